/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Estimates against a naive model of an engine's cache: a list of blocks, each
 * with the time of its last use, of which the oldest goes first.
 *
 *     test_estimates [steps [seed]]
 */


#include "estimates.h"

#include "core/kvr_hash.h"


#ifdef __SANITIZE_ADDRESS__
#define STEPS        1200               /* prompts, of each capacity */
#else
#define STEPS        6000
#endif

#define MODEL        4096               /* blocks that a model can hold */
#define PATHS        64                 /* prompts that are known */
#define LONG         48                 /* blocks of a prompt, at most */


typedef struct {
    uint64_t    handle;
    uint32_t    depth;
    uint32_t    extra;
    uint64_t    time;
    uint64_t    ended;                  /* the last time that a prompt ended
                                           here */
} block_t;


typedef struct {
    block_t     blocks[MODEL];
    uint32_t    n;
    uint64_t    capacity;               /* tokens */
    uint64_t    time;
} model_t;


typedef struct {
    uint64_t    locals[LONG];
    uint32_t    n;
} path_t;


static model_t   models[KVR_FLEET_ESTIMATES];
static path_t    paths[PATHS];
static uint64_t  random_ = 20261123;
static uint32_t  holder;


static block_t *
model_find(model_t *m, uint64_t handle)
{
    uint32_t  i;

    for (i = 0; i < m->n; i++) {
        if (m->blocks[i].handle == handle) {
            return &m->blocks[i];
        }
    }

    return NULL;
}


static uint32_t
model_prefix(model_t *m, const uint64_t *handles, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n && model_find(m, handles[i]); i++) {
        /* void */
    }

    return i;
}


static uint64_t
model_held(const model_t *m)
{
    uint32_t  i;
    uint64_t  held;

    held = m->n;

    for (i = 0; i < m->n; i++) {
        held += m->blocks[i].extra;
    }

    return held * ES_BLOCK;
}


static void
model_evict(model_t *m)
{
    bool      extra;
    uint32_t  i, old;
    block_t  *b, *o;

    while (model_held(m) > m->capacity) {

        old = 0;
        extra = false;

        for (i = 0; i < m->n; i++) {
            b = &m->blocks[i];
            o = &m->blocks[old];

            if (i == 0 || b->time < (extra ? o->ended : o->time)
                || (b->time == (extra ? o->ended : o->time)
                    && b->depth > o->depth))
            {
                old = i;
                o = b;
                extra = false;
            }

            if (b->extra
                && (b->ended < (extra ? o->ended : o->time)
                    || (b->ended == (extra ? o->ended : o->time)
                        && b->depth >= o->depth)))
            {
                old = i;
                extra = true;
            }
        }

        if (extra) {
            m->blocks[old].extra--;

        } else {
            m->blocks[old] = m->blocks[--m->n];
        }
    }
}


static void
model_use(model_t *m, const uint64_t *handles, uint32_t n, uint32_t extra,
    bool ends)
{
    uint32_t  i, had;
    block_t  *b;

    had = model_prefix(m, handles, n);
    m->time++;

    if (had && had < n) {
        model_find(m, handles[had - 1])->extra = 0;
    }

    for (i = 0; i < n; i++) {

        b = model_find(m, handles[i]);

        if (b == NULL) {
            b = &m->blocks[m->n++];
            memset(b, 0, sizeof(block_t));
            b->handle = handles[i];
            b->depth = i;
        }

        b->time = m->time;
    }

    b = model_find(m, handles[n - 1]);
    b->ended = m->time;

    if (ends) {
        b->extra = extra;
    }
}


/* ---- prompts ------------------------------------------------------------ */

static path_t *
a_path(void)
{
    uint32_t  n, keep;
    path_t   *p, *from;

    p = &paths[fx_below(&random_, PATHS)];

    if (p->n && fx_below(&random_, 3)) {
        return p;
    }

    /* goes on from another one, or from its beginning, or is new */

    from = &paths[fx_below(&random_, PATHS)];
    keep = fx_below(&random_, 6) ? fx_below(&random_, from->n + 1) : 0;

    if (fx_below(&random_, 2)) {
        keep = from->n;
    }

    memmove(p->locals, from->locals, keep * sizeof(uint64_t));
    p->n = keep;
    n = fx_below(&random_, 3) ? fx_below(&random_, 12)
                              : fx_below(&random_, LONG);

    while (p->n == 0 || (n-- && p->n < LONG)) {
        p->locals[p->n++] = fx_random(&random_);
    }

    return p;
}


static void
routed(const path_t *p, kvr_routed_kind_t kind, uint32_t extra)
{
    kvr_routed_record_t  r;

    r = es_record(holder, kind);
    r.n = p->n;
    r.tokens = p->n * ES_BLOCK;
    r.completion = extra * ES_BLOCK;

    if (!kvr_routed_append(es_ring, &r, p->locals)) {
        printf("Bail out! the ring is full\n");
        exit(1);
    }

    es_apply();
}


static bool
same(uint32_t step)
{
    uint32_t             i, e;
    uint64_t             handles[LONG], got, want;
    path_t              *p;
    kvr_match_t          m;
    kvr_estimate_info_t  info;

    if (kvr_router_estimate_read(&es, holder, &info) != KVR_OK) {
        return false;
    }

    for (e = 0; e < KVR_FLEET_ESTIMATES; e++) {
        got = kvr_estimated_held(&es.shards[holder % es.nshards],
                                 holder / es.nshards, e);
        want = model_held(&models[e]);

        if (got != want) {
            printf("# step %u, view %u: holds %lu tokens, not %lu\n", step, e,
                   (unsigned long) got, (unsigned long) want);
            return false;
        }
    }

    for (i = 0; i < 8; i++) {
        p = &paths[fx_below(&random_, PATHS)];

        if (p->n == 0) {
            continue;
        }

        m = es_match(holder, p->locals, p->n);
        kvr_hash_sequence(p->locals, p->n, handles);

        if (m.hot != model_prefix(&models[0], handles, p->n)
            || m.host != model_prefix(&models[1], handles, p->n)
            || m.ghost != model_prefix(&models[2], handles, p->n)
            || m.device != m.host || m.disk != m.host)
        {
            printf("# step %u: %u, %u, %u of %u, not %u, %u, %u\n", step,
                   m.hot, m.host, m.ghost, p->n,
                   model_prefix(&models[0], handles, p->n),
                   model_prefix(&models[1], handles, p->n),
                   model_prefix(&models[2], handles, p->n));
            return false;
        }
    }

    return true;
}


/* ---- tests -------------------------------------------------------------- */

static void
as_the_model(uint64_t capacity, uint32_t steps)
{
    bool         good;
    void        *base;
    uint32_t     i, e, k, w, extra, held;
    uint64_t     handles[LONG];
    path_t      *p;
    const char  *why;

    base = es_open(ES_ZONE);
    w = es_worker("w");
    holder = es_holder(w);
    (void) kvr_router_estimate_capacity(&es, w, capacity,
                                        KVR_CAPACITY_CONFIGURED);

    memset(models, 0, sizeof(models));
    memset(paths, 0, sizeof(paths));

    for (e = 0; e < KVR_FLEET_ESTIMATES; e++) {
        models[e].capacity = capacity * (e + 1) / 2;
    }

    good = true;
    why = NULL;
    held = 0;

    for (i = 0; i < steps && good && why == NULL; i++) {

        p = a_path();
        extra = fx_below(&random_, 3) ? fx_below(&random_, 10) : 0;

        for (k = 0; k < 2; k++) {
            routed(p, k ? KVR_ROUTED_END : KVR_ROUTED_BEGIN, extra);
            kvr_hash_sequence(p->locals, p->n, handles);

            for (e = 0; e < KVR_FLEET_ESTIMATES; e++) {
                model_use(&models[e], handles, p->n, extra, k);
                model_evict(&models[e]);
            }
        }

        good = same(i);
        held = kvr_max(held, models[1].n);

        if (i % 64 == 0 || i == steps - 1) {
            why = es_check();
        }
    }

    ok(good, "%s: with room for %lu tokens, the estimate holds what the "
       "model holds after each of %u prompts, up to %u blocks",
       kvr_index_name(es_kind), (unsigned long) capacity, i, held);
    ok(why == NULL, "and its points are as they must be: %s",
       why ? why : "yes");

    es_close(base, ES_ZONE);
}


int
main(int argc, char **argv)
{
    uint32_t  steps;

    steps = argc > 1 ? strtoul(argv[1], NULL, 0) : STEPS;
    random_ = argc > 2 ? strtoull(argv[2], NULL, 0) : random_;

    for (es_kind = 0; es_kind < KVR_INDEX_KINDS; es_kind++) {
        as_the_model(40, steps);
        as_the_model(402, steps);
        as_the_model(1999, steps);
    }

    return done();
}
