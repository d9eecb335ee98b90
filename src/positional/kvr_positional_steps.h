/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the writers of the positional index have in common; in a transaction.
 */


#ifndef KVR_POSITIONAL_STEPS_H_INCLUDED
#define KVR_POSITIONAL_STEPS_H_INCLUDED


#include "kvr_positional.h"


/* Between two steps: commits and goes on when another would not fit. */
void kvr_positional_breathe(kvr_positional_t *x);

/*
 * Somebody has let go of a block: frees it when nobody holds it and it has no
 * children, then its parent likewise; the block where that ends, or 0.  When
 * it takes more than one transaction, the zone remembers where to go on.
 */
uint32_t kvr_positional_tidy(kvr_positional_t *x, uint32_t block);

/*
 * Takes record i, a handle's, out of a block, with its entry; the last record
 * comes to its place.
 */
void kvr_positional_expel(kvr_positional_t *x, uint32_t block, uint32_t i);

/*
 * Forgets some of what was not used for long, but not the block `keep`, nor
 * those before it.  With a log that holds what kvr_positional_begin() wrote;
 * leaves it so.  Adds to *cost; false: there is nothing to forget that would
 * help, or that is as much as an event may cost.
 */
bool kvr_positional_make_room(kvr_positional_t *x, uint32_t keep,
    uint32_t *cost);


#endif /* KVR_POSITIONAL_STEPS_H_INCLUDED */
