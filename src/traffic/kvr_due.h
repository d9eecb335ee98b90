/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Due: when something is to be done next for a worker, by one process of all.
 *
 * A process takes the turn for a time, by compare-and-exchange; in the end it
 * writes when the next turn is due.  When it dies, another process takes the
 * turn after that time.
 */


#ifndef KVR_DUE_H_INCLUDED
#define KVR_DUE_H_INCLUDED


#include "../core/kvr_words.h"


/* All zero: due at once. */
typedef struct {
    uint64_t    at_ms;          /* monotonic */
    uint64_t    mark;           /* of the last turn */
} kvr_due_t;


/*
 * True: the caller has the turn, for lease_ms.  mark: a number that stands for
 * the worker as it is now: when it changes, a turn is due at once.  So is a
 * turn that is more than max_ms away.
 *
 * Two processes may both get a turn when the mark changes, which must do no
 * harm.
 */
static inline bool
kvr_due_take(kvr_due_t *d, uint64_t mark, uint64_t now_ms, uint64_t lease_ms,
    uint64_t max_ms)
{
    uint64_t  at;

    at = kvr_load64(&d->at_ms);

    if ((now_ms < at && at - now_ms <= max_ms && kvr_load64(&d->mark) == mark)
        || !__atomic_compare_exchange_n(&d->at_ms, &at, now_ms + lease_ms,
                                        false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
    {
        return false;
    }

    kvr_put64(&d->mark, mark);

    return true;
}


#endif /* KVR_DUE_H_INCLUDED */
