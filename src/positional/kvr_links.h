/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Links: the views that hold a block and the one before it.
 *
 * A block that a view holds in a row is linked to its parent, and when the
 * view does not hold the parent in that row, the link is broken.  A block
 * counts the children that a view holds, so that it is known how many links
 * get broken or whole when the view lets go of the block or takes it; the view
 * counts its broken links.
 *
 * ORDER, for readers who jump over what changes here: a broken link is counted
 * before it is there, and until it is gone.
 *
 * For kvr_positional.c, under the zone's lock and in a transaction.
 */


#ifndef KVR_LINKS_H_INCLUDED
#define KVR_LINKS_H_INCLUDED


#include "kvr_positional.h"


/* The handle's tiers in the block become `tiers`, more than they were; takes
 * memory: KVR_FULL. */
kvr_rc_t kvr_links_gain(kvr_positional_t *x, uint32_t view, uint32_t block,
    uint64_t handle, uint32_t tiers);

/* The handle's tiers in the block become `tiers`, fewer than they were; 0: its
 * record is deleted. */
void kvr_links_lose(kvr_positional_t *x, uint32_t view, uint32_t block,
    uint64_t handle, uint32_t tiers);

/* Sets a view's number of broken links, with or without KVR_BROKEN_HIDDEN. */
void kvr_links_set_broken(kvr_positional_t *x, uint32_t view,
    uint32_t broken);


#endif /* KVR_LINKS_H_INCLUDED */
