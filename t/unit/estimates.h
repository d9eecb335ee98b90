/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A zone with workers without events, a ring, and prompts: what the tests of
 * estimates have in common.
 */


#ifndef ESTIMATES_H_INCLUDED
#define ESTIMATES_H_INCLUDED


#include "kinds.h"
#include "tap.h"

#include "../check/kvr_check.h"
#include "../check/kvr_recency_check.h"


#define ES_ZONE      (32u << 20)
#define ES_RING      (1u << 20)
#define ES_BLOCK     4
#define ES_PROMPT    512                /* blocks, at most */


static kvr_router_t   es;
static kvr_routed_t  *es_ring;
static uint32_t       es_kind;          /* of the index */
static uint32_t       es_shards = 1;
static uint64_t       es_now = 1000000; /* ms */


static inline uint32_t
es_worker(const char *id)
{
    uint32_t           w;
    kvr_worker_conf_t  conf;

    memset(&conf, 0, sizeof(conf));
    strcpy(conf.id, id);
    strcpy(conf.address, "127.0.0.1:1");
    conf.ranks = 1;
    conf.weight = 1000;
    conf.events_off = 1;

    (void) kvr_router_put_worker(&es, &conf, KVR_WORKER_STATIC);

    return kvr_router_find_worker(&es, id, strlen(id), &w) == KVR_OK
           ? w : UINT32_MAX;
}


static inline uint32_t
es_holder(uint32_t worker)
{
    uint32_t  h;

    return kvr_router_find_holder(&es, worker, 0, &h) == KVR_OK
           ? h : UINT32_MAX;
}


/* A new zone of that many bytes, with the lease of shard 0. */
static inline void *
es_open(size_t size)
{
    void          *base;
    kvr_params_t   p;

    memset(&p, 0, sizeof(p));
    p.block_size = ES_BLOCK;
    p.max_workers = 8;
    p.shards = es_shards;
    p.index = es_kind;

    base = router_open(&es, &p, size);
    (void) kvr_router_lease(&es, 0, 0, kvr_now_us() / 1000);

    es_ring = shared_memory(ES_RING);
    kvr_routed_format(es_ring, ES_RING);

    return base;
}


static inline void
es_close(void *base, size_t size)
{
    router_close(&es, base, size);
    munmap(es_ring, ES_RING);
}


/* A record of a holder, with nothing else. */
static inline kvr_routed_record_t
es_record(uint32_t holder, kvr_routed_kind_t kind)
{
    kvr_routed_record_t  r;

    memset(&r, 0, sizeof(r));
    r.kind = kind;
    r.holder = holder;
    r.generation = kvr_router_worker(&es, kvr_router_holder_worker(&es,
                                                                   holder))
                   ->generation;
    r.routed_ms = UINT64_MAX;

    return r;
}


/* Applies all that there is. */
static inline void
es_apply(void)
{
    while (kvr_router_estimate(&es, &es_ring, 1, es_now, 1000000)
           || kvr_routed_unread(es_ring))
    {
        /* void */
    }
}


/* Drops what is estimated of a holder. */
static inline void
es_clear(kvr_router_t *k, uint32_t holder)
{
    kvr_shard_t  *s;

    s = &k->shards[holder % k->nshards];

    if (kvr_shard_lock(s, KVR_LOCK_MS) == KVR_OK) {
        kvr_estimated_sync(s, holder / k->nshards);
        kvr_estimated_clear(s, holder / k->nshards, KVR_ESTIMATE_ASKED);
        kvr_shard_unlock(s);
    }
}


/* What the holder is estimated to have of a prompt. */
static inline kvr_match_t
es_match(uint32_t holder, const uint64_t *locals, uint32_t n)
{
    uint32_t     i, found;
    kvr_match_t  none, all[64];

    memset(&none, 0, sizeof(none));
    found = kvr_router_find(&es, locals, n, 0, false, all, 64);

    for (i = 0; i < found; i++) {
        if (all[i].holder == holder) {
            return all[i];
        }
    }

    return none;
}


static inline const char *
es_check(void)
{
    uint32_t     i;
    const char  *why;

    why = NULL;

    for (i = 0; i < es.nshards && why == NULL; i++) {
        why = kvr_index_check(&es.shards[i].index);

        if (why == NULL) {
            why = kvr_recency_check(&es.shards[i]);
        }
    }

    return why;
}


#endif /* ESTIMATES_H_INCLUDED */
