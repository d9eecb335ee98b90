/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Health: whether each worker answers, as all processes of nginx see it
 * together.
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
 * Its state is words, each of which stands for itself and is changed by
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
 *
 * Times are monotonic milliseconds.  The tag is the end of the generation of
 * the worker that the word is about: a word with another tag counts as zero,
 * so that the next worker with this number starts without a history.  The
 * caller must check first that the number is still that worker's.
 *
 * A process may die between any two instructions.  The state that it leaves
 * was right a moment ago: when a probe never comes back, another may go after
 * fail_timeout; a change without its "since" has no slow start.
 */


#ifndef KVR_HEALTH_H_INCLUDED
#define KVR_HEALTH_H_INCLUDED


#include "../kvr.h"
#include "kvr_due.h"


#define KVR_HEALTH_WAIT_MAX  60000       /* ms: the wait grows up to that,
                                            or fail_timeout when it is more */
#define KVR_HEALTH_AWAY_MAX  60000       /* ms: the maximum pause */
#define KVR_HEALTH_SHARE     0.01        /* the first share of slow start */


typedef enum {
    KVR_HEALTH_OK = 0,
    KVR_HEALTH_SLOW_START,
    KVR_HEALTH_HALF_OPEN,       /* may have one request: a probe */
    KVR_HEALTH_FAILED,          /* the circuit is open, or a probe is out */
    KVR_HEALTH_AWAY,            /* the engine asked for a pause */
    KVR_HEALTH_DOWN,            /* active checks fail */
    KVR_HEALTH_STATES
} kvr_health_state_t;


/* True when a request may go to a worker in this state. */
#define kvr_health_usable(state)  ((state) < KVR_HEALTH_FAILED)


/* How an attempt at a worker failed. */
typedef enum {
    KVR_FAILED_CONNECT = 0,     /* no connection */
    KVR_FAILED_TIMEOUT,
    KVR_FAILED_RESET,           /* closed before the first byte */
    KVR_FAILED_INVALID,         /* an invalid response */
    KVR_FAILED_STATUS,          /* a status that counts as failure */
    KVR_FAILED_CUT,             /* closed in the middle of the answer */
    KVR_FAILURES
} kvr_failure_t;


/* The settings of a process's configuration and of the worker. */
typedef struct {
    uint32_t    max_fails;      /* 0: failures are counted, and no more */
    uint32_t    fail_timeout;   /* ms */
    uint32_t    slow_start;     /* ms; 0: none */
    uint32_t    checked;        /* there are active checks */
} kvr_health_params_t;


/* Counters since the worker was made; by relaxed atomic additions. */
typedef struct {
    uint64_t    attempts;
    uint64_t    failures[KVR_FAILURES];
    uint64_t    aborted;        /* the client left before the end */
    uint64_t    pauses;         /* asked for by the engine */
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
    kvr_due_t              due;         /* the next active check */
    kvr_health_counters_t  counters;
    uint64_t               pad[5];      /* whole cache lines */
} kvr_health_t;


/* The state at the start of an attempt; the caller keeps it until the end. */
typedef struct {
    uint64_t    probe;          /* the circuit claimed as its probe;
                                   0: none */
    uint32_t    out;            /* the worker was out at the start */
} kvr_ticket_t;


/* A record as it is at one moment. */
typedef struct {
    kvr_health_state_t     state;
    uint32_t               fails;       /* in the window, or that opened the
                                           circuit */
    int64_t                since;       /* ms ago; -1: since ever */
    int64_t                left;        /* ms until it may be tried; 0: now */
    double                 share;       /* of the weight, by slow start */
    kvr_health_counters_t  counters;
} kvr_health_view_t;


/* Bytes of the records of so many workers; all zero is a valid beginning. */
size_t kvr_health_size(uint32_t workers);

/*
 * Any process may call the functions below; they take no lock.  generation:
 * the worker's.
 *
 * begin: resets the record of a worker that is new or back.
 */
void kvr_health_begin(kvr_health_t *h, uint32_t generation, uint64_t now_ms);

/* share: the part of its weight that the worker must have now,
 * KVR_HEALTH_SHARE to 1. */
kvr_health_state_t kvr_health_state(const kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, double *share);

void kvr_health_view(const kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, kvr_health_view_t *view);

/*
 * Begins an attempt.  False, and nothing is counted: the worker is out, or
 * another request is its probe.  anyhow: begin the attempt all the same, as
 * there is no other worker; then the result is true.
 */
bool kvr_health_take(kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, bool anyhow,
    kvr_ticket_t *ticket);

/*
 * Ends an attempt; one of these must be called, once.
 *
 * failed: true when the circuit is open now, and was not before.
 * answered: true when the circuit is closed now, and was not before.  To be
 * called at the first byte, as the end of a stream may be far; failed() may
 * follow.
 * aborted: the attempt ended without a result.
 */
bool kvr_health_failed(kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, kvr_failure_t how,
    kvr_ticket_t *ticket);
bool kvr_health_answered(kvr_health_t *h, uint32_t generation,
    uint64_t now_ms, kvr_ticket_t *ticket);
void kvr_health_aborted(kvr_health_t *h, uint32_t generation,
    uint64_t now_ms, kvr_ticket_t *ticket);

/*
 * To be called at a sign that the worker is back, other than an answer to a
 * request.  Makes an open circuit half-open: one request may go to the worker
 * as a probe.  A closed or half-open circuit does not change, so each sign is
 * worth one probe at most.  True: the circuit was open.
 */
bool kvr_health_returned(kvr_health_t *h, uint32_t generation,
    uint64_t now_ms);

/* Notes a pause that the engine asked for, KVR_HEALTH_AWAY_MAX at most. */
void kvr_health_pause(kvr_health_t *h, uint32_t generation, uint64_t now_ms,
    uint64_t for_ms);

/*
 * Active checks.  due: true when the caller must check the worker now; the
 * next check is then at next_ms.  checked: notes the result of a check; true
 * when the worker is down now and was not before, or the other way round.
 * `rises` passed checks in a row bring the worker up, `falls` failed ones take
 * it down.
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
