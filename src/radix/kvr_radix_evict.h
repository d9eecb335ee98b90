/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Making room in a zone that is full.
 */


#ifndef KVR_RADIX_EVICT_H_INCLUDED
#define KVR_RADIX_EVICT_H_INCLUDED


#include "kvr_radix_state.h"


/*
 * Evicts some of what was not used for longest, but not that run; with a log
 * that holds what kvr_radix_begin() wrote, and leaves it so.  Adds to *cost;
 * false: there is nothing, or that is as much as an event may cost.
 */
bool kvr_radix_make_room(kvr_radix_t *x, uint32_t keep, uint32_t *cost);


#endif /* KVR_RADIX_EVICT_H_INCLUDED */
