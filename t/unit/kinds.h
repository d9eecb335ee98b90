/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The kinds of zone that tests run over, for what a zone answers is the same
 * in all of them; and the one way to open a zone, to put a worker, and to ask
 * what it holds.
 */


#ifndef KINDS_H_INCLUDED
#define KINDS_H_INCLUDED


#include "fixture.h"
#include "zone/kvr_router.h"
#include "zone/kvr_shard.h"


#define KINDS    (sizeof(kinds) / sizeof(kinds[0]))


/* A kind of zone; another one is one line more. */
typedef struct {
    const char    *name;
    kvr_params_t   params;
} kind_t;

static const kind_t  kinds[] = {
    { "radix", { .block_size = 4, .max_workers = 16, .shards = 1 } },
    { "positional", { .block_size = 4, .max_workers = 16, .shards = 1,
                      .index = KVR_INDEX_POSITIONAL } },
    { "4 shards", { .block_size = 4, .max_workers = 16, .shards = 4 } },
    { "positional, 4 shards", { .block_size = 4, .max_workers = 16,
                                .shards = 4,
                                .index = KVR_INDEX_POSITIONAL } }
};


/*
 * A zone in memory of its own, which this process has joined; returns where it
 * is.  The program ends when there is none.
 */
static inline void *
router_open(kvr_router_t *router, const kvr_params_t *params, size_t size)
{
    char   text[KVR_WHY_LEN] = "no lock";
    void  *base;

    base = shared_memory(size);

    if (kvr_router_format(base, size, params, text) != KVR_OK
        || kvr_router_attach(router, base, size, params, text) != KVR_OK
        || kvr_router_join(router) != KVR_OK)
    {
        printf("Bail out! no zone: %s\n", text);
        exit(1);
    }

    return base;
}


static inline void
router_close(kvr_router_t *router, void *base, size_t size)
{
    kvr_router_leave(router);
    kvr_router_detach(router);
    munmap(base, size);
}


static inline kvr_rc_t
router_put(kvr_router_t *router, const char *worker, const char *address,
    uint32_t ranks, uint32_t origin)
{
    kvr_worker_conf_t  conf;

    memset(&conf, 0, sizeof(conf));
    strcpy(conf.id, worker);
    strcpy(conf.address, address);
    conf.ranks = ranks;
    conf.weight = 1000;

    return kvr_router_put_worker(router, &conf, origin);
}


/* What a worker and rank have of a prompt: device, host, disk. */
static inline kvr_match_t
router_match(kvr_router_t *router, const char *worker, uint32_t rank,
    const uint64_t *prompt, uint32_t n)
{
    uint32_t      i, found, w, holder;
    kvr_match_t   none, all[256];

    memset(&none, 0, sizeof(none));
    found = kvr_router_find(router, prompt, n, 0, false, all, 256);

    if (kvr_router_find_worker(router, worker, strlen(worker), &w) != KVR_OK
        || kvr_router_find_holder(router, w, rank, &holder) != KVR_OK)
    {
        return none;
    }

    for (i = 0; i < found; i++) {
        if (all[i].holder == holder) {
            return all[i];
        }
    }

    return none;
}


/* So many ms after a time that is later than all that was stamped by now. */

static inline uint64_t
later_ms(uint64_t ms)
{
    return kvr_now_us() / 1000 + 3600000 + ms;
}


#endif /* KINDS_H_INCLUDED */
