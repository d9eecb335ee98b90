/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Repair of one worker's view: messages that did not come live are read from
 * the worker's log, or, where the log doesn't reach back, from its snapshot.
 * A machine without I/O, which says what to ask of Redis, and is told the
 * answers.
 *
 *     kvr_repair_begin(r, …);
 *
 *     switch (kvr_repair_step(r, &turn, &ask)) {
 *     case KVR_NEXT_ASK:     send ask, and give the reply to
 *                            kvr_repair_answer(); then step again
 *     case KVR_NEXT_APPLY:   kvr_ingest_step() until KVR_DONE, then
 *                            kvr_repair_applied(); then step again
 *     case KVR_NEXT_DONE:    the repair has ended
 *     …
 *
 * States.  One that asks waits for the answer, and acts when it is there:
 *
 *     state     asks                  with the answer expected
 *     start     -                     the worker is SYNCING: last; a look for
 *                                     a snapshot alone: pointer
 *     last      XREVRANGE log COUNT 1 where the log ends: pointer
 *     pointer   HMGET kv-snap         a snapshot that is better than the log:
 *                                     load; otherwise without it (see below)
 *     load      -                     views aside are begun: part; of a
 *                                     snapshot without parts: swap
 *     part      GETRANGE of a part    the part is put aside: part; after the
 *                                     last part: swap
 *     swap      -                     the view is the snapshot's: page; the
 *                                     view is beyond the snapshot: page, whose
 *                                     entries go aside, then swap again
 *     page      XRANGE log            the entries are applied: page; when
 *                                     there are no more: end; when entries
 *                                     are missing: pointer
 *     new       SET kv-snap-ask NX    a publisher will write a snapshot: end
 *     end       -                     what is still missing is lost; the view
 *                                     can only be whole by a new snapshot:
 *                                     new; otherwise done
 *
 * "Without it": to end when the view is at the log's end or the log can't be
 * read, otherwise to page.
 *
 * Answers:
 *
 *     state     expected   any other           too big         lost
 *     last      array      asks 3 times, 0.5 s asks 3 times,   asks again
 *                          and more between;   then as left
 *                          then on without
 *                          the log
 *     page      array      as above            asks for fewer, asks again
 *                                              skips the one;
 *                                              3 in a row: as
 *                                              left
 *     pointer   array      logs why, and goes  asks 3 times,   asks again
 *     part      string     on without it       then as left
 *     new       status,                        but logs
 *               nil                            nothing
 *
 * An answer to a state that asks nothing can't be: each question has one
 * answer, and the state does not change between the two.
 */


#ifndef KVR_REPAIR_H_INCLUDED
#define KVR_REPAIR_H_INCLUDED


#include "kvr_ask.h"
#include "kvr_lane.h"
#include "kvr_snapshot.h"
#include "kvr_tell.h"


typedef enum {
    KVR_REPAIR_START = 0,
    KVR_REPAIR_LAST,
    KVR_REPAIR_POINTER,
    KVR_REPAIR_LOAD,
    KVR_REPAIR_PART,
    KVR_REPAIR_SWAP,
    KVR_REPAIR_PAGE,
    KVR_REPAIR_NEW,
    KVR_REPAIR_END,
    KVR_REPAIR_STATES
} kvr_repair_state_t;


/* the question of a state */
typedef enum {
    KVR_ASKED_NOT = 0,
    KVR_ASKED_WAITS,                /* for the answer */
    KVR_ASKED_ANSWERED,             /* the answer is in reply */
    KVR_ASKED_IN_VAIN               /* Redis can't or won't say */
} kvr_asked_t;


/* all that a repair works with; its owner's */
typedef struct {
    kvr_router_t      *router;
    kvr_ingest_t      *ingest;
    const kvr_tell_t  *tell;
} kvr_repair_env_t;


/* the next move of the caller of a machine without I/O: it steps again ... */
typedef enum {
    KVR_NEXT_ASK,                   /* when the command is sent, whose reply is
                                       for kvr_repair_answer(), */
    KVR_NEXT_APPLY,                 /* when the entry open in ingest is
                                       applied, */
    KVR_NEXT_AGAIN,                 /* at once, */
    KVR_NEXT_YIELD,                 /* in the next turn, */
    KVR_NEXT_WAIT,                  /* after an answer or other news, when the
                                       connection is ready, or some time
                                       later, */
    KVR_NEXT_DONE,                  /* never: it has ended, */
    KVR_NEXT_BUSY,                  /* later: a lock is taken, */
    KVR_NEXT_LOST                   /* never: the lease is another process's */
} kvr_next_t;


/* one turn of the owner's loop */
typedef struct {
    uint64_t           now_ms;      /* monotonic */
    uint32_t           random;
    uint32_t           blocks;      /* to apply in a slice */
    bool               ready;       /* commands can be sent */
} kvr_turn_t;


typedef struct {
    const kvr_repair_env_t  *env;
    kvr_lane_t           *lane;     /* of the worker; NULL: no repair */
    uint32_t              number;   /* of the worker in the zone */
    char                  id[KVR_WORKER_ID_MAX + 1];
    size_t                len;

    kvr_repair_state_t    state;
    kvr_asked_t           asked;
    kvr_reply_t           reply;    /* a page, a pointer, or a part */
    uint64_t              after;    /* ms: when to ask again */
    uint32_t              errors;   /* answers that were not expected */

    kvr_cursor_t          last;     /* of the log */
    uint64_t              seq;      /* applied, of last.epoch */
    uint64_t              gap;      /* entry that met a gap */
    size_t                entry;    /* the next one of the page */
    uint32_t              count;    /* entries asked for; 0: the next one is
                                       too big, and is skipped */
    kvr_cursor_t          at;       /* the entry that is applied, */
    size_t                bytes;    /* the size of that */

    kvr_snapshot_t       *snapshot; /* being loaded */
    kvr_snapshot_head_t   head;     /* of the pointer */
    char                  why[KVR_POINTER_WHY]; /* the pointer is refused */
    uint32_t              parts;
    uint32_t              part;     /* the next one */
    uint32_t              looks;    /* at the pointer */

    bool                  begun;    /* the worker is SYNCING */
    bool                  look;     /* only for a snapshot */
    bool                  late;     /* the log begins too late */
    bool                  given_up; /* no snapshot helps */
    bool                  open;     /* in snapshot: a part, or an entry */
    bool                  aside;    /* entries go to snapshot */
    bool                  renewed;  /* a new snapshot was asked for */
    bool                  failed;   /* messages are lost */
    bool                  broken;   /* the log can't be read */
} kvr_repair_t;


/* Begins the repair of a worker, whose id is terminated; env and lane stay. */
void kvr_repair_begin(kvr_repair_t *r, const kvr_repair_env_t *env,
    kvr_lane_t *lane, uint32_t number, const char *id);

/* Ends a repair at any time; r may be without one. */
void kvr_repair_stop(kvr_repair_t *r);

kvr_next_t kvr_repair_step(kvr_repair_t *r, const kvr_turn_t *turn,
    kvr_ask_t *ask);

/* The answer to the question; owns the reply.  Then step again. */
void kvr_repair_answer(kvr_repair_t *r, const kvr_turn_t *turn,
    kvr_reply_t *reply);

/* The question was not sent: step again later. */
void kvr_repair_unasked(kvr_repair_t *r);

/* The entry of KVR_NEXT_APPLY was applied; returns its size in bytes. */
size_t kvr_repair_applied(kvr_repair_t *r);

/*
 * Goes on behind messages of a worker that are lost, and logs them.  KVR_OK,
 * also when the worker was removed; KVR_BUSY, KVR_LOST.
 */
kvr_rc_t kvr_repair_lose(const kvr_repair_env_t *env, const char *id,
    size_t len, uint64_t epoch, uint64_t seq);

/* KVR_BUSY, KVR_LOST */
kvr_next_t kvr_repair_stopped(kvr_rc_t rc);


#endif /* KVR_REPAIR_H_INCLUDED */
