/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The kinds of zone that tests run over: what a zone answers is the same in
 * all of them.
 */


#ifndef KINDS_H_INCLUDED
#define KINDS_H_INCLUDED


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


/* So many ms after a time that is later than all that was stamped by now. */

static inline uint64_t
later_ms(uint64_t ms)
{
    return kvr_now_us() / 1000 + 3600000 + ms;
}


#endif /* KINDS_H_INCLUDED */
