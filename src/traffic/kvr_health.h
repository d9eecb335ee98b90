/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Health: which workers answer, as all processes of nginx see them together.
 *
 *            max_fails failures                after the wait, to one request
 *     closed ─────────────────────► open ─────────────────────► half-open
 *       ▲      in fail_timeout        ▲       of fail_timeout       │ │
 *       │                             └─────────────────────────────┘ │
 *       │                               it fails: waits twice as long │
 *       └─────────────────────────────────────────────────────────────┘
 *         it answers: slow start
 *
 * The wait also ends with a sign that the worker is back.  When the probe that
 * follows fails, the wait is fail_timeout again, not twice as long as before.
 *
 * A worker has one record, beside the fleet, found by the worker's number.
 * Its state is four words, each of which stands for itself and is changed by
 * compare-and-exchange, without a lock, by any process:
 *
 *     circuit   time (40) │ failures (10) │ level (4) │ phase (2) │ tag (8)
 *               time: closed: of the first failure; open: since when;
 *               half-open: from when on another probe may go
 *     since     time (40) │ … │ tag: of the last change, where slow start
 *               counts from
 *     away      time (40) │ … │ tag: until when the worker wants no requests
 *     checks    time (40) │ in a row (15) │ down (1) │ tag: active checks; the
 *               time is that of the last answer
 *     due       time (40) │ … │ tag: of the next active check
 *
 * Times are monotonic milliseconds.  The tag is the end of the generation of
 * the worker that the word is about: a word with another one counts as zero,
 * so that the next worker with this number begins anew.  Whoever reports looks
 * first whether the number is still that worker's.
 *
 * A process may die between any two instructions.  What it leaves is a state
 * that was right a moment ago: a probe that never comes back lets another go
 * after fail_timeout, a change without its "since" has no slow start.
 */


#ifndef KVR_HEALTH_H_INCLUDED
#define KVR_HEALTH_H_INCLUDED


#include "../kvr.h"


#define KVR_FAILS_MAX        1000        /* of max_fails: 10 bits hold it */
#define KVR_HEALTH_MS_MAX    3600000     /* of any of the times */
#define KVR_HEALTH_WAIT_MAX  60000       /* ms: the wait grows up to that,
                                            or fail_timeout when it is more */
#define KVR_HEALTH_AWAY_MAX  60000       /* ms: that an engine may be away */
#define KVR_HEALTH_SHARE     0.01        /* what slow start begins with */


typedef enum {
    KVR_HEALTH_OK = 0,
    KVR_HEALTH_SLOW_START,
    KVR_HEALTH_HALF_OPEN,       /* may have one request: a probe */
    KVR_HEALTH_FAILED,          /* the circuit is open, or a probe is out */
    KVR_HEALTH_AWAY,            /* the engine asked for a pause */
    KVR_HEALTH_DOWN,            /* active checks fail */
    KVR_HEALTH_STATES
} kvr_health_state_t;


/* May a request go there? */
#define kvr_health_usable(state)  ((state) < KVR_HEALTH_FAILED)


/* How an attempt at a worker failed. */
typedef enum {
    KVR_FAILED_CONNECT = 0,     /* no connection */
    KVR_FAILED_TIMEOUT,
    KVR_FAILED_RESET,           /* closed before the first byte */
    KVR_FAILED_INVALID,         /* what came is no answer */
    KVR_FAILED_STATUS,          /* one that counts as a failure */
    KVR_FAILED_CUT,             /* closed in the middle of the answer */
    KVR_FAILURES
} kvr_failure_t;


/* What a process's configuration says, with the worker's own settings. */
typedef struct {
    uint32_t    max_fails;      /* 0: failures are counted, and no more */
    uint32_t    fail_timeout;   /* ms */
    uint32_t    slow_start;     /* ms; 0: none */
    uint32_t    checked;        /* there are active checks */
} kvr_health_params_t;


/* All since the worker is there; by relaxed atomic additions. */
typedef struct {
    uint64_t    attempts;
    uint64_t    failures[KVR_FAILURES];
    uint64_t    aborted;        /* nobody waited for the end */
    uint64_t    pauses;         /* that the engine asked for */
    uint64_t    opened;         /* circuits, from closed */
    uint64_t    probes;
    uint64_t    checks;
    uint64_t    checks_failed;
} kvr_health_counters_t;


typedef struct {
    uint64_t               circuit;
    uint64_t               since;
    uint64_t               away;
    uint64_t               checks;
    uint64_t               due;
    kvr_health_counters_t  counters;
    uint64_t               pad[6];      /* whole cache lines */
} kvr_health_t;


/* What an attempt was begun with; its owner keeps it until the end. */
typedef struct {
    uint64_t    probe;          /* the circuit that it claimed; 0: none */
    uint32_t    out;            /* the worker was out when it went there */
} kvr_ticket_t;


/* A record as it is at one moment. */
typedef struct {
    kvr_health_state_t     state;
    uint32_t               fails;       /* in the window, or that opened it */
    int64_t                since;       /* ms ago; -1: since ever */
    int64_t                left;        /* ms until it may be tried; 0: now */
    double                 share;       /* of its weight, by slow start */
    kvr_health_counters_t  counters;
} kvr_health_view_t;


/* Bytes of the records of so many workers; all zero is a valid beginning. */
size_t kvr_health_size(uint32_t workers);

/*
 * The functions below: any process, no lock.  generation: of the worker.
 *
 * begin: it is new, or back: what was known of it is void.
 */
void kvr_health_begin(kvr_health_t *h, uint32_t generation, uint64_t now_ms);

/* share: of its weight that it is to have, KVR_HEALTH_SHARE to 1. */
kvr_health_state_t kvr_health_state(const kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, double *share);

void kvr_health_view(const kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, kvr_health_view_t *view);

/*
 * An attempt begins.  False, and nothing is counted: the worker is out, or
 * another request is its probe.  anyhow: it goes there all the same, there is
 * nobody else; the answer is true then.
 */
bool kvr_health_take(kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, bool anyhow,
    kvr_ticket_t *ticket);

/*
 * And ends, in one of these ways, once.
 *
 * failed: true when the circuit is open now, and was not before.
 * answered: true when it is closed now, and was not before.  To be called at
 * the first byte: the end of a stream may be far; failed() may follow.
 * aborted: nobody knows how it would have ended.
 */
bool kvr_health_failed(kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, kvr_failure_t how,
    kvr_ticket_t *ticket);
bool kvr_health_answered(kvr_health_t *h, uint32_t generation,
    uint64_t now_ms, kvr_ticket_t *ticket);
void kvr_health_aborted(kvr_health_t *h, uint32_t generation,
    uint64_t now_ms, kvr_ticket_t *ticket);

/*
 * There is a sign that the worker is back, other than an answer to a request.
 * An open circuit is half-open from now on: one request may go there as a
 * probe.  Nothing changes while the circuit is closed or half-open: each sign
 * is worth one probe at most.  True: the circuit was open.
 */
bool kvr_health_returned(kvr_health_t *h, uint32_t generation,
    uint64_t now_ms);

/* The engine wants no requests for so long, KVR_HEALTH_AWAY_MAX at most. */
void kvr_health_pause(kvr_health_t *h, uint32_t generation, uint64_t now_ms,
    uint64_t for_ms);

/*
 * Active checks.  due: is the worker to be checked, and that by the caller?
 * Its next check is at next_ms then.  checked: the answer; true when the
 * worker is down now and was not before, or the other way round: rises passed
 * checks in a row bring it up, falls that failed take it down.
 */
bool kvr_health_due(kvr_health_t *h, uint32_t generation, uint64_t now_ms,
    uint64_t next_ms);
bool kvr_health_checked(kvr_health_t *h, uint32_t generation, uint64_t now_ms,
    bool passed, uint32_t rises, uint32_t falls);
bool kvr_health_down(const kvr_health_t *h, uint32_t generation);

/* "ok", "slow_start", …; "connect", "timeout", … */
const char *kvr_health_name(uint32_t state);
const char *kvr_failure_name(uint32_t how);


#endif /* KVR_HEALTH_H_INCLUDED */
