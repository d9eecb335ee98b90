/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the files kvr_repair*.c share, from the lowest of them to the highest.
 */


#ifndef KVR_REPAIR_STATE_H_INCLUDED
#define KVR_REPAIR_STATE_H_INCLUDED


#include "kvr_repair.h"


/* ---- kvr_repair_move.c -------------------------------------------------- */

/* the events of a state; the columns of the table in kvr_repair.h */
typedef enum {
    KVR_SEES_NEXT = 0,              /* done, and more is to come */
    KVR_SEES_ENOUGH,                /* nothing more is to come */
    KVR_SEES_LOSS,                  /* messages are missing, and no snapshot
                                       helps */
    KVR_SEES_GONE,                  /* a part expired */
    KVR_SEES_HOLE,                  /* messages are missing */
    KVR_SEES_VAIN,                  /* Redis can't or won't say */
    KVR_SEES_USELESS,               /* no snapshot helps; the log goes on from
                                       the view, */
    KVR_SEES_NEITHER,               /* or it does not */
    KVR_SEES_BEYOND,                /* the view is beyond the snapshot */
    KVR_SEES_SWAPPED,               /* the view is the snapshot's */
    KVR_SEES_EVENTS
} kvr_repair_event_t;


typedef struct {
    kvr_repair_state_t    state;
    kvr_way_t             way;
    bool                  lose;     /* first: what is missing is lost */
} kvr_repair_move_t;


/*
 * The next state; a function of its arguments alone.  A pair that can't be
 * leads to the end, where the view is DEGRADED.
 */
kvr_repair_move_t kvr_repair_decide(kvr_repair_state_t state, kvr_way_t way,
    kvr_repair_event_t event);

/* Decides, and goes there, where nothing is asked yet: KVR_NEXT_AGAIN. */
kvr_next_t kvr_repair_sees(kvr_repair_t *r, kvr_repair_event_t event);


/* ---- kvr_repair_ask.c --------------------------------------------------- */

/* errors with snapshots: each is logged once for each kind and worker */
typedef enum {
    KVR_TROUBLE_POINTER = 0,
    KVR_TROUBLE_READ,
    KVR_TROUBLE_BLOCK_SIZE,
    KVR_TROUBLE_PART,
    KVR_TROUBLE_EXPIRED,
    KVR_TROUBLE_LOG,
    KVR_TROUBLE_ASK
} kvr_trouble_t;


/* The command of the state. */
void kvr_repair_command(const kvr_repair_t *r, kvr_ask_t *ask);

void kvr_repair_trouble(kvr_repair_t *r, kvr_trouble_t kind,
    const char *detail);

/* The worker's place in its stream; zeros: there is none. */
kvr_cursor_t kvr_repair_cursor(const kvr_repair_t *r);

bool kvr_repair_behind(const kvr_cursor_t *a, const kvr_cursor_t *b);

/* The worker is SYNCING from now on; KVR_OK, KVR_BUSY or KVR_LOST. */
kvr_rc_t kvr_repair_syncing(kvr_repair_t *r);

/* KVR_OK for a worker that was removed, for it needs no repair. */
kvr_rc_t kvr_repair_rc(kvr_rc_t rc);

/* Can only a snapshot make the view whole? */
bool kvr_repair_wants_snapshot(const kvr_repair_t *r);


/* ---- kvr_repair_snapshot.c ---------------------------------------------- */

/* States; return as kvr_repair_step() does. */
kvr_next_t kvr_repair_pointer(kvr_repair_t *r);
kvr_next_t kvr_repair_load(kvr_repair_t *r);
kvr_next_t kvr_repair_part(kvr_repair_t *r, const kvr_turn_t *turn);
kvr_next_t kvr_repair_swap(kvr_repair_t *r, const kvr_turn_t *turn);

/* Applies an entry of the log aside; it is behind r->seq. */
kvr_next_t kvr_repair_entry_aside(kvr_repair_t *r,
    const kvr_turn_t *turn, uint64_t seq, const kvr_reply_t *body);

/* Goes on without the snapshot, with the log. */
kvr_next_t kvr_repair_give_up(kvr_repair_t *r);


#endif /* KVR_REPAIR_STATE_H_INCLUDED */
