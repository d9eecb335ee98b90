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
 *     state    asks                   does
 *     start    -                      the worker is SYNCING
 *     last     XREVRANGE log COUNT 1  learns where the log ends
 *     pointer  HMGET kv-snap          is a snapshot better than the log? (A
 *                                     look for a snapshot begins here.)
 *     load     -                      begins views aside
 *     part     GETRANGE of a part     puts the part aside
 *     swap     -                      the views aside take the view's place
 *     aside    XRANGE log             puts entries that the view has aside
 *     page     XRANGE log             applies entries
 *     end      -                      the view is whole, or messages are lost
 *     new      SET kv-snap-ask NX     asks publishers for a snapshot, if the
 *                                     view can only be whole by one
 *     done     -                      the repair has ended
 *
 * The next state, by what a state sees (kvr_repair_state.h); a pair without a
 * state can't be:
 *
 *              next     enough  hole     loss  gone     vain     useless
 *                                                                neither
 *     start    last
 *     last     pointer                                  pointer
 *     pointer  load                                              page  end
 *     load     part     swap                                     page  end
 *     part     part     swap                   pointer           page  end
 *     swap     beyond: aside, swapped: page                      page  end
 *     aside    aside    swap                            end      page  end
 *     page     page     end     pointer  page           end
 *     end               new     pointer  new
 *     new      done     done
 *
 * Which ways to a whole view are left decides, too.  At first any is.  Each
 * row names the way that is left when a state has seen the column:
 *
 *               hole      vain   useless,  beyond    swapped
 *                                neither
 *     any       snapshot  alone  any       any       any
 *     snapshot  snapshot  alone  log       snapshot  any
 *     log       log       none   log       log       any
 *     alone     alone     alone  none      none      any
 *     none      none      none   none      none      any
 *
 * If the way is log or none, a hole is a loss.  If the way is alone or none,
 * the log can't be read: page and aside are the end, and the end is a loss.
 *
 * Answers:
 *
 *     state     expected   any other           too big         lost
 *     last      array      asks 3 times, 0.5 s asks 3 times    asks again
 *                          and more between
 *     page,     array      as above            asks for fewer, asks again
 *     aside                                    page skips the
 *                                              one; 3 in a row
 *     pointer   array      logs why            asks 3 times    asks again
 *     part      string
 *     new       status,
 *               nil
 *
 * After that, the question was in vain; pointer then has no snapshot, and part
 * none that is of use.
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
    KVR_REPAIR_ASIDE,
    KVR_REPAIR_PAGE,
    KVR_REPAIR_END,
    KVR_REPAIR_NEW,
    KVR_REPAIR_DONE,
    KVR_REPAIR_STATES
} kvr_repair_state_t;


/* the ways to a whole view that are left */
typedef enum {
    KVR_WAY_ANY = 0,                /* the log, or a snapshot */
    KVR_WAY_SNAPSHOT,               /* a snapshot, and then the log, which
                                       alone begins too late */
    KVR_WAY_LOG,                    /* the log, even with holes: no snapshot
                                       helps */
    KVR_WAY_ALONE,                  /* a snapshot: the log can't be read */
    KVR_WAY_NONE,                   /* neither */
    KVR_WAYS
} kvr_way_t;


/* the effect of the repair on the view */
typedef enum {
    KVR_EFFECT_LOOK = 0,            /* nothing: a look for a snapshot */
    KVR_EFFECT_NONE,
    KVR_EFFECT_SYNCING,
    KVR_EFFECT_LOST                 /* messages are lost */
} kvr_effect_t;


/* the question of a state */
typedef enum {
    KVR_ASKED_NOT = 0,
    KVR_ASKED_WAITS,                /* for the answer */
    KVR_ASKED_ANSWERED,             /* the answer is in reply, */
    KVR_ASKED_OPEN,                 /* and a part, or an entry, of it is open
                                       in snapshot */
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
    kvr_way_t             way;
    kvr_effect_t          effect;
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
    uint32_t              parts;
    uint32_t              part;     /* the next one */
    uint32_t              looks;    /* at the pointer */
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
