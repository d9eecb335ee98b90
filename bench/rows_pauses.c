/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How long one thing may keep a process of nginx: a turn of what it does each
 * 100 ms, while all of a million pairs are older than ttl=, and a store into a
 * full zone, which forgets something first.  The longest of all, in time of
 * the CPU: what else the machine does is not ours.
 */


#include "index.h"
#include "zone/kvr_router.h"

#include <sys/mman.h>


#define ROWS_PAIRS    1000000u
#define ROWS_SLICE    500u              /* us, as the module has it */
#define ROWS_TTL      10u               /* seconds */
#define ROWS_EVENT    64u               /* blocks */
#define ROWS_STORES   2000000u          /* pairs stored into a full zone */
#define ROWS_MEMORY   (64u << 20)       /* of that zone */


/* A shape of what is stored. */
typedef struct {
    const char  *name;
    uint32_t     depth;                 /* of a prompt */
    uint32_t     holders;               /* of each */
} rows_shape_t;


static void rows_pause_ttl(const rows_shape_t *shape, kvr_index_kind_t kind);
static void rows_pause_full(const rows_shape_t *shape, kvr_index_kind_t kind);
static void *rows_pause_open(kvr_router_t *k, size_t size,
    kvr_index_kind_t kind);
static uint64_t rows_pause_store(kvr_router_t *k, const rows_shape_t *shape,
    uint64_t prompt);
static uint64_t rows_pause_event(kvr_router_t *k, const kvr_event_t *ev,
    uint32_t worker);
static void rows_pause_say(const char *what, const rows_shape_t *shape,
    kvr_index_kind_t kind, uint64_t ns);
static uint64_t rows_cpu(void);


static const rows_shape_t  rows_shapes[] = {
    { "long chains", WL_DEPTH, 1 },
    { "long chains on 128 workers", WL_DEPTH, WL_WORKERS },
    { "one-block prompts", 1, 1 },
    { "one-block prompts on 128 workers", 1, WL_WORKERS }
};


void
rows_pauses(void)
{
    uint32_t  i, kind;

    for (i = 0; i < sizeof(rows_shapes) / sizeof(rows_shapes[0]); i++) {
        for (kind = 0; kind < KVR_INDEX_KINDS; kind++) {
            rows_pause_ttl(&rows_shapes[i], kind);
            rows_pause_full(&rows_shapes[i], kind);
        }
    }
}


static void
rows_pause_ttl(const rows_shape_t *shape, kvr_index_kind_t kind)
{
    void          *base;
    uint64_t       p, t, now, worst;
    kvr_stats_t    stats;
    kvr_router_t   k;

    base = rows_pause_open(&k, 1024u << 20, kind);

    for (p = 0; p * shape->depth * shape->holders < ROWS_PAIRS; p++) {
        (void) rows_pause_store(&k, shape, p);
    }

    k.ttl = ROWS_TTL;
    now = wl_now() / 1000000 + (ROWS_TTL + 2) * 1000;
    worst = 0;

    do {
        t = rows_cpu();
        (void) kvr_router_tend(&k, now, ROWS_SLICE);
        t = rows_cpu() - t;

        worst = kvr_max(worst, t);
        now += 10;

        kvr_router_stats(&k, &stats);

    } while (stats.pairs);

    rows_pause_say("ttl, longest turn", shape, kind, worst);

    kvr_router_leave(&k);
    kvr_router_detach(&k);
    munmap(base, 1024u << 20);
}


static void
rows_pause_full(const rows_shape_t *shape, kvr_index_kind_t kind)
{
    void          *base;
    uint64_t       p, t, stored, worst;
    kvr_stats_t    stats;
    kvr_router_t   k;

    base = rows_pause_open(&k, ROWS_MEMORY, kind);
    p = 0;

    do {
        (void) rows_pause_store(&k, shape, p++);
        kvr_router_stats(&k, &stats);
    } while (stats.forgotten == 0);

    worst = 0;

    for (stored = 0; stored < ROWS_STORES; /* void */ ) {
        t = rows_pause_store(&k, shape, p++);
        worst = kvr_max(worst, t);
        stored += (uint64_t) shape->depth * shape->holders;
    }

    rows_pause_say("full, longest store", shape, kind, worst);
    kvr_router_stats(&k, &stats);
    fprintf(stderr, "index: %s, %s: %llu stores of all found it full\n",
            shape->name, kvr_index_name(kind),
            (unsigned long long) stats.stores_full);

    kvr_router_leave(&k);
    kvr_router_detach(&k);
    munmap(base, ROWS_MEMORY);
}


static void *
rows_pause_open(kvr_router_t *k, size_t size, kvr_index_kind_t kind)
{
    char               why[KVR_WHY_LEN];
    void              *base;
    uint32_t           i;
    kvr_params_t       params;
    kvr_worker_conf_t  conf;

    base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_POPULATE, -1,
                0);

    ix_must(base != MAP_FAILED, "memory");

    memset(&params, 0, sizeof(params));
    params.block_size = 16;
    params.max_workers = 256;
    params.shards = 1;
    params.index = kind;

    ix_must(kvr_router_format(base, size, &params, why) == KVR_OK
            && kvr_router_attach(k, base, size, &params, why) == KVR_OK
            && kvr_router_join(k) == KVR_OK, "a zone");

    memset(&conf, 0, sizeof(conf));
    conf.ranks = 1;
    conf.weight = KVR_WEIGHT_MAX;

    for (i = 0; i < WL_WORKERS; i++) {
        snprintf(conf.id, sizeof(conf.id), "w%u", i);
        ix_must(kvr_router_put_worker(k, &conf, KVR_WORKER_API) == KVR_OK,
                "a worker");
    }

    return base;
}


/* A prompt on all that hold it; the longest of its events, ns. */

static uint64_t
rows_pause_store(kvr_router_t *k, const rows_shape_t *shape, uint64_t prompt)
{
    uint32_t     h, d;
    uint64_t     took, worst;
    kvr_event_t  ev;

    static uint64_t  locals[WL_DEPTH], handles[WL_DEPTH];

    for (d = 0; d < shape->depth; d++) {
        locals[d] = wl_local((UINT64_C(1) << 41) + prompt, d);
    }

    kvr_hash_sequence(locals, shape->depth, handles);

    memset(&ev, 0, sizeof(kvr_event_t));
    ev.kind = KVR_STORE;
    worst = 0;

    for (h = 0; h < shape->holders; h++) {
        for (d = 0; d < shape->depth; d += ev.nhandles) {
            ev.has_parent = d != 0;
            ev.parent = d ? handles[d - 1] : 0;
            ev.handles = handles + d;
            ev.locals = locals + d;
            ev.nhandles = kvr_min(shape->depth - d, ROWS_EVENT);
            ev.nlocals = ev.nhandles;

            took = rows_pause_event(k, &ev, (prompt + h) % WL_WORKERS);
            worst = kvr_max(worst, took);
        }
    }

    return worst;
}


static uint64_t
rows_pause_event(kvr_router_t *k, const kvr_event_t *ev, uint32_t worker)
{
    int          len;
    char         id[KVR_WORKER_ID_MAX + 1];
    uint32_t     unknown;
    uint64_t     t;
    kvr_rc_t     rc;
    kvr_why_t    why;
    const char  *detail;

    len = snprintf(id, sizeof(id), "w%u", worker);

    t = rows_cpu();
    rc = kvr_router_write(k, id, (size_t) len, ev, 1, &unknown, &why,
                          &detail);
    t = rows_cpu() - t;

    /*
     * a parent may be forgotten while the prompt is still being stored, and
     * what is forgotten may not be what is lacked
     */

    ix_must(rc == KVR_OK || rc == KVR_FULL || why == KVR_WHY_PARENT,
            "a store");

    return t;
}


static void
rows_pause_say(const char *what, const rows_shape_t *shape,
    kvr_index_kind_t kind, uint64_t ns)
{
    char  row[128];

    snprintf(row, sizeof(row), "%s: %s, %s", what, shape->name,
             kvr_index_name(kind));
    ix_say(row, "us", (double) ns / 1000);
}


static uint64_t
rows_cpu(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}
