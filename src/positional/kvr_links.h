/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Links between a block and its parent, for each view.
 *
 * If a view holds a block in a row (kvr_block.h), the block has a link to its
 * parent there.  If the view does not hold the parent in that row, the link is
 * broken.  A block counts its children that a view holds: so many links break
 * when the view loses the block, and are whole again when it gets the block.
 * The view counts its broken links.
 *
 * ORDER.  A lookup skips blocks of views without broken links.  Therefore a
 * broken link is counted before it exists, and until after it is mended.
 *
 * For kvr_positional.c, under the zone's lock and in a transaction.
 */


#ifndef KVR_LINKS_H_INCLUDED
#define KVR_LINKS_H_INCLUDED


#include "kvr_positional.h"


/* Adds tiers: the handle's tiers in the block become `tiers`.  KVR_FULL: no
 * memory, and the caller rolls back. */
kvr_rc_t kvr_links_gain(kvr_positional_t *x, uint32_t view, uint32_t block,
    uint64_t handle, uint32_t tiers);

/* Takes tiers away: the handle's tiers in the block become `tiers`; 0: the
 * handle's record is deleted. */
void kvr_links_lose(kvr_positional_t *x, uint32_t view, uint32_t block,
    uint64_t handle, uint32_t tiers);

/* Sets a view's number of broken links, with or without KVR_BROKEN_HIDDEN. */
void kvr_links_set_broken(kvr_positional_t *x, uint32_t view,
    uint32_t broken);


#endif /* KVR_LINKS_H_INCLUDED */
