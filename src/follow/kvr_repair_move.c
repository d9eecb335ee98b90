
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The table of kvr_repair.h: where a repair goes from a state.
 */


#include "kvr_repair_state.h"


#define MOVE(state, sees, to)                                                 \
    [KVR_REPAIR_ ## state][KVR_SEES_ ## sees] = KVR_REPAIR_ ## to

#define WITHOUT(state)                                                        \
    MOVE(state, USELESS, PAGE), MOVE(state, NEITHER, END)

#define WAYS(sees, any, snapshot, log, alone, none)                           \
    [KVR_SEES_ ## sees] = { KVR_WAY_ ## any, KVR_WAY_ ## snapshot,            \
                            KVR_WAY_ ## log, KVR_WAY_ ## alone,               \
                            KVR_WAY_ ## none }


/* nothing leads back to the start: the pairs that can't be are zeros */

static const uint8_t  kvr_repair_moves[KVR_REPAIR_STATES][KVR_SEES_EVENTS] = {
    MOVE(START, NEXT, LAST),
    MOVE(LAST, NEXT, POINTER), MOVE(LAST, VAIN, POINTER),
    MOVE(POINTER, NEXT, LOAD), WITHOUT(POINTER),
    MOVE(LOAD, NEXT, PART), MOVE(LOAD, ENOUGH, SWAP), WITHOUT(LOAD),
    MOVE(PART, NEXT, PART), MOVE(PART, ENOUGH, SWAP), WITHOUT(PART),
    MOVE(PART, GONE, POINTER),
    MOVE(SWAP, BEYOND, ASIDE), MOVE(SWAP, SWAPPED, PAGE), WITHOUT(SWAP),
    MOVE(ASIDE, NEXT, ASIDE), MOVE(ASIDE, ENOUGH, SWAP), WITHOUT(ASIDE),
    MOVE(ASIDE, VAIN, END),
    MOVE(PAGE, NEXT, PAGE), MOVE(PAGE, ENOUGH, END), MOVE(PAGE, VAIN, END),
    MOVE(PAGE, HOLE, POINTER), MOVE(PAGE, LOSS, PAGE),
    MOVE(END, ENOUGH, NEW), MOVE(END, HOLE, POINTER), MOVE(END, LOSS, NEW),
    MOVE(NEW, NEXT, DONE), MOVE(NEW, ENOUGH, DONE)
};


/* the way that is left; the events before the first row leave it */

static const uint8_t  kvr_repair_ways[KVR_SEES_EVENTS][KVR_WAYS] = {
    WAYS(HOLE, SNAPSHOT, SNAPSHOT, LOG, ALONE, NONE),
    WAYS(VAIN, ALONE, ALONE, NONE, ALONE, NONE),
    WAYS(USELESS, ANY, LOG, LOG, NONE, NONE),
    WAYS(NEITHER, ANY, LOG, LOG, NONE, NONE),
    WAYS(BEYOND, ANY, SNAPSHOT, LOG, NONE, NONE),
    WAYS(SWAPPED, ANY, ANY, ANY, ANY, ANY)
};


kvr_repair_move_t
kvr_repair_decide(kvr_repair_state_t state, kvr_way_t way,
    kvr_repair_event_t event)
{
    kvr_repair_state_t  next;

    if ((event == KVR_SEES_HOLE
         && (way == KVR_WAY_LOG || way == KVR_WAY_NONE))
        || (state == KVR_REPAIR_END && event == KVR_SEES_ENOUGH
            && way >= KVR_WAY_ALONE))
    {
        event = KVR_SEES_LOSS;
    }

    next = kvr_repair_moves[state][event];

    if (next == KVR_REPAIR_START) {
        next = state < KVR_REPAIR_END ? KVR_REPAIR_END : KVR_REPAIR_DONE;
        return (kvr_repair_move_t) { next, KVR_WAY_NONE, false };
    }

    if (way >= KVR_WAY_ALONE
        && (next == KVR_REPAIR_PAGE || next == KVR_REPAIR_ASIDE))
    {
        next = KVR_REPAIR_END;
    }

    if (event >= KVR_SEES_HOLE) {
        way = kvr_repair_ways[event][way];
    }

    return (kvr_repair_move_t) { next, way, event == KVR_SEES_LOSS };
}


kvr_next_t
kvr_repair_sees(kvr_repair_t *r, kvr_repair_event_t event)
{
    kvr_repair_move_t  move;

    move = kvr_repair_decide(r->state, r->way, event);

    kvr_reply_release(&r->reply);

    r->state = move.state;
    r->way = move.way;
    r->asked = KVR_ASKED_NOT;
    r->errors = 0;
    r->after = 0;
    r->entry = 0;

    if (r->state < KVR_REPAIR_PART || r->state > KVR_REPAIR_ASIDE) {
        kvr_snapshot_destroy(r->snapshot);
        r->snapshot = NULL;
    }

    return KVR_NEXT_AGAIN;
}
