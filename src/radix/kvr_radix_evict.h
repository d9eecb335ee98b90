/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Evicts runs to make room in a zone that is full.
 */


#ifndef KVR_RADIX_EVICT_H_INCLUDED
#define KVR_RADIX_EVICT_H_INCLUDED


#include "kvr_radix_state.h"


/*
 * Evicts some of the runs that were not used for longest, but not the run
 * `keep`.  To be called when the log has only what kvr_radix_begin() wrote; at
 * the return it is so again.  Adds the views and handles evicted to *cost.
 * False: there is nothing to evict, or the event has evicted the maximum.
 */
bool kvr_radix_make_room(kvr_radix_t *x, uint32_t keep, uint32_t *cost);


#endif /* KVR_RADIX_EVICT_H_INCLUDED */
