/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Functions that make a run and extend it.  For kvr_radix.c, under the zone's
 * lock and in a transaction.
 */


#ifndef KVR_RADIX_RUN_H_INCLUDED
#define KVR_RADIX_RUN_H_INCLUDED


#include "kvr_radix_state.h"


/* Adds n, which may be negative, to the view's number of handles. */
static inline void
kvr_radix_count(kvr_radix_t *x, uint32_t view, int32_t n)
{
    kvr_set32(x->mem, &x->view_handles[view],
              x->view_handles[view] + (uint32_t) n);

    kvr_put64(&x->zone->pairs, x->zone->pairs + (uint64_t) (int64_t) n);
}


/*
 * Makes a run of n hashes, n <= KVR_RUN_MAX, which hangs at an offset of its
 * parent (0, 0: at the root); KVR_FULL.
 */
kvr_rc_t kvr_radix_new_run(kvr_radix_t *x, uint32_t parent, uint32_t offset,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *run);

/* Appends n hashes to a run, which must stay below KVR_RUN_MAX; KVR_FULL. */
kvr_rc_t kvr_radix_append(kvr_radix_t *x, uint32_t run,
    const uint64_t *hashes, uint32_t n);


#endif /* KVR_RADIX_RUN_H_INCLUDED */
