/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Making room in a zone that is full.
 */


#ifndef KVR_POSITIONAL_EVICT_H_INCLUDED
#define KVR_POSITIONAL_EVICT_H_INCLUDED


#include "kvr_positional.h"


/*
 * Evicts some of what was not used for long, but not the block `keep`, nor
 * those before it.  With a log that holds what kvr_positional_begin() wrote;
 * leaves it so.  Adds to *cost; false: there is nothing to evict that would
 * help, or that is as much as an event may cost.
 */
bool kvr_positional_make_room(kvr_positional_t *x, uint32_t keep,
    uint32_t *cost);


#endif /* KVR_POSITIONAL_EVICT_H_INCLUDED */
