/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A zone of any kind, and events by hand, for the tests that go through the
 * one door of src/.
 *
 *     for (i = 0; i < KINDS; i++) {
 *         zone_open(&kinds[i], 16 << 20);
 *         store("a", 0, row(101, 5), row(1, 5), 5);
 *         …
 *         zone_close();
 *     }
 */


#ifndef ZONE_H_INCLUDED
#define ZONE_H_INCLUDED


#include "kinds.h"
#include "follow/kvr_ingest.h"
#include "tap.h"


#define BLOCKS   128                    /* of an event, at most */


static const kind_t  *kind;
static kvr_router_t   router;
static void          *zone_base;
static size_t         zone_size;
static kvr_why_t      why;              /* of the last event */
static uint32_t       unknown;          /* the same */
static uint32_t       rank;             /* of what is written and asked */
static kvr_tier_t     tier;             /* of what is written */
static uint64_t       now_ms = 1000;    /* nothing here waits */


static inline void
zone_open(const kind_t *of, size_t size)
{
    kind = of;
    zone_size = size;
    zone_base = router_open(&router, &of->params, size);
    rank = 0;
    tier = KVR_DEVICE;
}


static inline void
zone_close(void)
{
    router_close(&router, zone_base, zone_size);
}


static inline void
put(const char *worker)
{
    if (router_put(&router, worker, "", 2, KVR_WORKER_API) != KVR_OK) {
        printf("Bail out! no worker\n");
        exit(1);
    }
}


/* Row a, a + 1, …: the names of n blocks, and their local hashes. */
static inline uint64_t *
row(uint64_t a, uint32_t n)
{
    uint32_t  i;

    static uint32_t  turn;
    static uint64_t  rows[4][BLOCKS];

    turn = (turn + 1) % 4;

    for (i = 0; i < n; i++) {
        rows[turn][i] = a + i;
    }

    return rows[turn];
}


/* The lease for the events of a worker. */
static inline kvr_rc_t
lease(const char *worker, uint64_t ms)
{
    return kvr_router_lease(&router,
                            kvr_router_shard(&router, worker, strlen(worker)),
                            0, ms);
}


static inline kvr_rc_t
write_event(const char *worker, kvr_event_t *ev)
{
    const char  *detail;

    ev->rank = rank;
    ev->tier = tier;

    return kvr_router_write(&router, worker, strlen(worker), ev, now_ms,
                            &unknown, &why, &detail);
}


/* parent 0: from the root. */
static inline kvr_rc_t
store(const char *worker, uint64_t parent, const uint64_t *handles,
    const uint64_t *locals, uint32_t n)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.has_parent = parent != 0;
    ev.parent = parent;
    ev.handles = handles;
    ev.nhandles = n;
    ev.locals = locals;
    ev.nlocals = n;

    return write_event(worker, &ev);
}


static inline kvr_rc_t
take_out(const char *worker, const uint64_t *handles, uint32_t n)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_REMOVE;
    ev.handles = handles;
    ev.nhandles = n;

    return write_event(worker, &ev);
}


static inline kvr_rc_t
take_one(const char *worker, uint64_t handle)
{
    return take_out(worker, &handle, 1);
}


static inline kvr_rc_t
clear(const char *worker)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_CLEAR;

    return write_event(worker, &ev);
}


/* What a worker and rank have of a prompt: device, host, disk. */
static inline kvr_match_t
matched(const char *worker, const uint64_t *prompt, uint32_t n)
{
    return router_match(&router, worker, rank, prompt, n);
}


#endif /* ZONE_H_INCLUDED */
