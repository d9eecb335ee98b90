/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a zone holds, in pairs of a worker and a block, until it has to forget
 * some for others: by shape and by size.  All through the router, as events
 * of an API, into the bytes that nginx gives a zone of that size.
 */


#include "index.h"
#include "zone/kvr_router.h"
#include "script.h"

#include <sys/mman.h>


/*
 * What nginx gives the router of a zone, with two worker processes and without
 * max_workers=: memory.zone_bytes and max_workers of its status.
 */

typedef struct {
    const char  *name;
    size_t       whole;
    size_t       size;
    uint32_t     max_workers;
} rows_size_t;

static const rows_size_t  rows_sizes[] = {
    { "8m", 8u << 20, 7278592, 256 },
    { "64m", 64u << 20, 63197184, 1024 },
    { "256m", 256u << 20, 260206592, 1024 },
    { "1024m", 1024u << 20, 1060818944, 1024 },
    { "4096m", 4096ull << 20, 4263280640, 1024 }
};

#define ROWS_SIZES  (sizeof(rows_sizes) / sizeof(rows_size_t))


typedef struct {
    kvr_router_t    k;
    const char     *name;               /* of the zone's size */
    kvr_index_kind_t  kind;
    void           *base;
    size_t          size;               /* what nginx gives of it */
    size_t          whole;
    uint64_t        pairs;
} rows_zone_t;


static void rows_zone_open(rows_zone_t *z, const rows_size_t *of,
    kvr_index_kind_t kind);
static void rows_zone_say(rows_zone_t *z, const char *shape);
static bool rows_zone_store(rows_zone_t *z, uint32_t worker,
    const uint64_t *parent, const uint64_t *handles, const uint64_t *locals,
    uint32_t n);
static void rows_zone_chains(rows_zone_t *z, uint32_t holders);
static void rows_zone_chats(rows_zone_t *z, script_t *s);
static void rows_zone_ones(rows_zone_t *z);
static void rows_zone_stairs(rows_zone_t *z);


void
rows_capacity(const char *chat)
{
    uint32_t     i;
    script_t     s;
    rows_zone_t  z;

    script_open(&s, chat);

    for (i = 0; i < ROWS_SIZES; i++) {
        rows_zone_open(&z, &rows_sizes[i], KVR_INDEX_RADIX);
        rows_zone_chains(&z, 1);
        rows_zone_say(&z, "long chains");

        rows_zone_open(&z, &rows_sizes[i], KVR_INDEX_RADIX);
        rows_zone_chats(&z, &s);
        rows_zone_say(&z, "chats");

        rows_zone_open(&z, &rows_sizes[i], KVR_INDEX_RADIX);
        rows_zone_ones(&z);
        rows_zone_say(&z, "one-block prompts");

        rows_zone_open(&z, &rows_sizes[i], KVR_INDEX_RADIX);
        rows_zone_stairs(&z);
        rows_zone_say(&z, "staircases");

        rows_zone_open(&z, &rows_sizes[i], KVR_INDEX_RADIX);
        rows_zone_chains(&z, WL_WORKERS);
        rows_zone_say(&z, "long chains on 128 workers");
    }

    script_close(&s);

    for (i = 0; i < ROWS_SIZES - 1; i++) {
        rows_zone_open(&z, &rows_sizes[i], KVR_INDEX_POSITIONAL);
        rows_zone_chains(&z, 1);
        rows_zone_say(&z, "long chains");

        rows_zone_open(&z, &rows_sizes[i], KVR_INDEX_POSITIONAL);
        rows_zone_ones(&z);
        rows_zone_say(&z, "one-block prompts");

        rows_zone_open(&z, &rows_sizes[i], KVR_INDEX_POSITIONAL);
        rows_zone_stairs(&z);
        rows_zone_say(&z, "staircases");

        rows_zone_open(&z, &rows_sizes[i], KVR_INDEX_POSITIONAL);
        rows_zone_chains(&z, WL_WORKERS);
        rows_zone_say(&z, "long chains on 128 workers");
    }
}


static void
rows_zone_open(rows_zone_t *z, const rows_size_t *of, kvr_index_kind_t kind)
{
    char               why[KVR_WHY_LEN];
    uint32_t           i;
    kvr_params_t       params;
    kvr_worker_conf_t  conf;

    memset(z, 0, sizeof(rows_zone_t));
    z->name = of->name;
    z->kind = kind;
    z->whole = of->whole;
    z->size = of->size;
    z->base = mmap(NULL, z->size, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (z->base == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }

    memset(&params, 0, sizeof(params));
    params.block_size = 16;
    params.max_workers = of->max_workers;
    params.shards = 1;
    params.index = kind;

    ix_must(kvr_router_format(z->base, z->size, &params, why) == KVR_OK
            && kvr_router_attach(&z->k, z->base, z->size, &params, why)
               == KVR_OK
            && kvr_router_join(&z->k) == KVR_OK, "a zone");

    memset(&conf, 0, sizeof(conf));
    conf.ranks = 1;
    conf.weight = KVR_WEIGHT_MAX;

    for (i = 0; i < WL_WORKERS; i++) {
        snprintf(conf.id, sizeof(conf.id), "w%u", i);
        ix_must(kvr_router_put_worker(&z->k, &conf, KVR_WORKER_API) == KVR_OK,
                "a worker");
    }
}


static void
rows_zone_say(rows_zone_t *z, const char *shape)
{
    char  row[64], name[32];

    snprintf(name, sizeof(name), "%s%s", z->name,
             z->kind == KVR_INDEX_RADIX ? "" : ", positional");
    snprintf(row, sizeof(row), "zone of %s: %s", name, shape);
    ix_say(row, "pairs", (double) z->pairs);
    snprintf(row, sizeof(row), "zone of %s: %s, a pair", name, shape);
    ix_say(row, "bytes", (double) z->whole / z->pairs);

    kvr_router_leave(&z->k);
    kvr_router_detach(&z->k);
    munmap(z->base, z->size);
}


/* False: the zone is full. */

static bool
rows_zone_store(rows_zone_t *z, uint32_t worker, const uint64_t *parent,
    const uint64_t *handles, const uint64_t *locals, uint32_t n)
{
    int           len;
    char          id[KVR_WORKER_ID_MAX + 1];
    uint32_t      unknown;
    kvr_rc_t      rc;
    kvr_why_t     why;
    const char   *detail;
    kvr_stats_t   stats;
    kvr_event_t   ev;

    memset(&ev, 0, sizeof(kvr_event_t));
    ev.kind = KVR_STORE;
    ev.has_parent = parent != NULL;
    ev.parent = parent ? *parent : 0;
    ev.handles = handles;
    ev.nhandles = n;
    ev.locals = locals;
    ev.nlocals = n;

    len = snprintf(id, sizeof(id), "w%u", worker);
    rc = kvr_router_write(&z->k, id, (size_t) len, &ev, 1, &unknown, &why,
                          &detail);
    ix_must(rc == KVR_OK || rc == KVR_FULL, "a store into a zone");
    kvr_router_stats(&z->k, &stats);

    if (rc != KVR_OK || stats.forgotten) {
        return false;
    }

    z->pairs += n;

    return true;
}


/* Prompts of 1024 blocks that share nothing, each on so many workers. */

static void
rows_zone_chains(rows_zone_t *z, uint32_t holders)
{
    uint32_t         k, d;
    uint64_t         s;
    static uint64_t  locals[WL_DEPTH], handles[WL_DEPTH];

    for (s = 0; /* void */ ; s++) {

        for (d = 0; d < WL_DEPTH; d++) {
            locals[d] = wl_local((UINT64_C(1) << 39) + s, d);
        }

        kvr_hash_sequence(locals, WL_DEPTH, handles);

        for (k = 0; k < holders; k++) {
            if (!rows_zone_store(z, (s + k) % WL_WORKERS, NULL, handles,
                                 locals, WL_DEPTH))
            {
                return;
            }
        }
    }
}


/* The script's stores, again and again with other blocks. */

static void
rows_zone_chats(rows_zone_t *z, script_t *s)
{
    uint32_t            i;
    uint64_t            at, salt;
    const script_op_t  *op;

    for (salt = 0; /* void */ ; salt++) {

        script_salt(s, salt);

        for (i = 0; i < s->nops; i++) {
            op = &s->ops[i];
            at = s->starts[op->prompt] + op->from;

            if (op->kind == SCRIPT_STORE
                && !rows_zone_store(z, op->worker,
                                    op->from ? &s->handles[at - 1] : NULL,
                                    &s->handles[at], &s->locals[at], op->n))
            {
                return;
            }
        }
    }
}


static void
rows_zone_ones(rows_zone_t *z)
{
    uint32_t  i;
    uint64_t  l;

    for (i = 0; /* void */ ; i++) {
        l = wl_one(i);

        if (!rows_zone_store(z, i % WL_WORKERS, NULL, &l, &l, 1)) {
            return;
        }
    }
}


static void
rows_zone_stairs(rows_zone_t *z)
{
    size_t       at;
    uint32_t     s, d;
    wl_stairs_t  w;

    for (s = 0; /* void */ ; s++) {

        wl_stairs_make(&w, s, 1);

        for (d = 0; d < WL_DEPTH; d++) {
            at = wl_stair(0, d);

            if (!rows_zone_store(z, s % WL_WORKERS,
                                 d ? &w.handles[at - 2] : NULL,
                                 &w.handles[at], &w.locals[at], 2))
            {
                wl_stairs_free(&w);
                return;
            }
        }

        wl_stairs_free(&w);
    }
}
