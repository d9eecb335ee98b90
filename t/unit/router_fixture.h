/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Zones of one index and number of shards, and events by hand: what the tests
 * of a zone's parts have in common.
 */


#ifndef ROUTER_FIXTURE_H_INCLUDED
#define ROUTER_FIXTURE_H_INCLUDED


#include "kinds.h"
#include "tap.h"


#define ZONE    (16u << 20)
#define BLOCK   4


static uint32_t     kind;               /* of the index */
static uint32_t     shards = 1;
static const char  *detail;             /* of the last event */


static inline uint64_t
now(void)
{
    return kvr_now_us() / 1000;
}


static inline kvr_params_t
params(void)
{
    kvr_params_t  p;

    memset(&p, 0, sizeof(p));
    p.block_size = BLOCK;
    p.max_workers = 16;
    p.shards = shards;
    p.index = kind;

    return p;
}


static inline void *
fresh(kvr_router_t *k)
{
    void          *base;
    uint32_t       i;
    kvr_params_t   p;

    p = params();
    base = router_open(k, &p, ZONE);

    for (i = 0; i < shards; i++) {
        (void) kvr_router_lease(k, i, 0, now());
    }

    return base;
}


static inline void
put(kvr_router_t *k, const char *id, const char *address)
{
    (void) router_put(k, id, address, 1, KVR_WORKER_STATIC);
}


/* Handles h, h + 1, … with locals of the same numbers, from a parent. */
static inline void
event(kvr_event_t *ev, kvr_event_kind_t kind, uint64_t parent, uint64_t h,
    uint32_t n, uint64_t *buf)
{
    uint32_t  i;

    memset(ev, 0, sizeof(kvr_event_t));

    for (i = 0; i < n; i++) {
        buf[i] = h + i;
    }

    ev->kind = kind;
    ev->has_parent = parent != 0;
    ev->parent = parent;
    ev->handles = buf;
    ev->nhandles = n;

    if (kind == KVR_STORE) {
        ev->locals = buf;
        ev->nlocals = n;
    }
}


static inline kvr_rc_t
store(kvr_router_t *k, const char *id, uint64_t parent, uint64_t h,
    uint32_t n)
{
    uint32_t     unknown;
    uint64_t     buf[4096];
    kvr_why_t    reason;
    kvr_event_t  ev;

    event(&ev, KVR_STORE, parent, h, n, buf);

    return kvr_router_write(k, id, strlen(id), &ev, now(), &unknown, &reason,
                            &detail);
}


/* Device blocks of worker id for the prompt h, h + 1 and so on. */
static inline uint32_t
held(kvr_router_t *k, const char *id, uint64_t h, uint32_t n)
{
    uint32_t  i;
    uint64_t  q[4096];

    for (i = 0; i < n; i++) {
        q[i] = h + i;
    }

    return router_match(k, id, 0, q, n).device;
}


static inline const kvr_worker_t *
worker(kvr_router_t *k, const char *id)
{
    uint32_t  i;

    return kvr_router_find_worker(k, id, strlen(id), &i) == KVR_OK
           ? kvr_router_worker(k, i) : NULL;
}


#endif /* ROUTER_FIXTURE_H_INCLUDED */
