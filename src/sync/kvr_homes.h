/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Which router of a group is the home of a worker.
 *
 * The largest of -share / log(u) decides, where u is a hash of (router,
 * worker), in (0, 1).  So each router is the home of as large a part of the
 * workers as its share.  A share that grows takes workers from others, one
 * that shrinks gives workers away, and no other worker changes its home.
 *
 * A share is a whole number of sixteenths of all uncached tokens.  It changes
 * when it is off by more than 3/4 of a sixteenth.  It is 0 below 1 %, and from
 * 0 it rises at 2 %.
 *
 * kv-simulate has the same rules, in lua/resty/kv_router/tools/simulate/.
 */


#ifndef KVR_HOMES_H_INCLUDED
#define KVR_HOMES_H_INCLUDED


#include "../kvr.h"


/* The share of a router that had `tokens` of `all`; last: its share before. */
uint32_t kvr_homes_share(uint64_t tokens, uint64_t all, uint32_t last);

/*
 * The home of a worker, of n routers; row: of the worker's rank 0.  Routers
 * without a share have none; if no router has one, the first is the home.
 */
uint32_t kvr_homes_of(const uint64_t *routers, const uint32_t *shares,
    uint32_t n, uint64_t row);


#endif /* KVR_HOMES_H_INCLUDED */
