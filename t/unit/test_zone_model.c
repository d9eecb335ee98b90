/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Zones of both indexes, of one shard and of four, against the naive model,
 * side by side, over random streams of events: handles that span several
 * blocks, tiers, holes, clears, workers that come and go.
 *
 *     test_zone_model [steps of a profile [seed [profile]]]
 */


#include "kinds.h"
#include "radix_fixture.h"

#include "zone/kvr_shard.h"


#define ZONE         (16u << 20)
#define ZONES        4
#define WORKERS      10
#define RANKS        2
#define VIEWS        (WORKERS * RANKS)
#define HANDLES_MAX  24                 /* of an event */
#define SPAN_MAX     7
#define BLOCKS_MAX   (HANDLES_MAX * SPAN_MAX)
#define EVENTS       96                 /* remembered */
#define PROMPT_MAX   1024


typedef struct {
    const char  *name;
    uint32_t     hashes;                /* alphabet */
    uint32_t     handles;               /* alphabet; 0: of the chain */
    uint32_t     blocks;                /* handles of an event, at most */
    uint32_t     spans[4];              /* of workers 0, 1, 2, 3, 0, … */
    uint32_t     other;                 /* of 1000 stores: another span */
    uint32_t     deep;                  /* of 100 stores go on at an end */
    uint32_t     remove;                /* of 100 events */
    uint32_t     tiers;                 /* of 100 events not in device */
    uint32_t     clear;                 /* of 10000 events */
} profile_t;


typedef struct {
    uint32_t     view;
    uint32_t     n;
    kvr_tier_t   tier;
    uint64_t     node;                  /* of the last block */
    uint64_t     handles[HANDLES_MAX];
} event_t;


typedef struct {
    const profile_t  *profile;
    uint64_t          random;
    kvr_router_t      zones[ZONES];
    void             *memory[ZONES];
    uint64_t          used[ZONES];      /* bytes of the arenas, when empty */
    mdl_t             m;
    mdl_map_t         spans;            /* view, handle -> span, in node */
    event_t           events[EVENTS];
    uint32_t          nevents;
    uint32_t          refused;
    uint32_t          spanned;
    uint64_t          handles[HANDLES_MAX];
    uint64_t          all[BLOCKS_MAX];  /* of the model */
    uint64_t          hashes[BLOCKS_MAX];
    uint64_t          prompt[PROMPT_MAX + 4];
} run_t;


static const profile_t  profiles[] = {
    { "one block a handle", 3, 0, 20, { 1, 1, 1, 1 }, 0, 60, 45, 15, 20 },
    { "spans of 2 and 4", 3, 0, 12, { 2, 4, 2, 4 }, 0, 60, 45, 15, 20 },
    { "a span for each worker", 2, 0, 8, { 1, 2, 4, 7 }, 0, 60, 45, 20, 20 },
    { "engines that change their minds", 2, 0, 6, { 1, 2, 3, 4 }, 100, 50, 45,
      30, 20 },
    { "handles that move, spans of any length", 2, 60, 6, { 1, 2, 3, 5 }, 300,
      50, 40, 40, 20 },
    { "one handle an event", 2, 0, 1, { 2, 4, 1, 2 }, 5, 85, 45, 10, 10 }
};


static bool profile_run(const profile_t *p, uint32_t steps, uint64_t seed);
static void zone_open(run_t *r, uint32_t z);
static kvr_rc_t worker_put(run_t *r, uint32_t z, uint32_t worker);
static char *name(uint32_t worker);
static bool step(run_t *r);
static bool step_store(run_t *r, uint32_t view);
static bool step_remove(run_t *r);
static bool step_add_tier(run_t *r);
static bool step_clear(run_t *r, uint32_t view);
static bool put_event(run_t *r, uint32_t view, kvr_event_t *ev, kvr_rc_t want,
    uint32_t unknown);
static event_t *recent(run_t *r, uint32_t view);
static uint64_t model_derived(uint64_t handle, uint32_t j);
static uint32_t model_span(run_t *r, uint32_t view, uint64_t handle);
static bool model_store(run_t *r, uint32_t view, kvr_tier_t tier,
    uint64_t parent, uint32_t n, uint32_t span);
static bool model_take(run_t *r, uint32_t view, kvr_tier_t tier,
    uint64_t handle);
static bool compare(run_t *r);
static bool compare_zone(run_t *r, uint32_t z, uint32_t n, bool early);
static bool whole(run_t *r);
static bool empty(run_t *r);


int
main(int argc, char **argv)
{
    bool      good;
    uint32_t  i, only, steps;
    uint64_t  seed, all, wrong;

    all = 0;
    wrong = 0;

    steps = argc > 1 ? strtoul(argv[1], NULL, 0) : 5000;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261121;
    only = argc > 3 ? strtoul(argv[3], NULL, 0) : UINT32_MAX;

    for (i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {

        if (only != UINT32_MAX && only != i) {
            continue;
        }

        good = profile_run(&profiles[i], steps, seed + i);
        all += (uint64_t) steps * ZONES;
        wrong += !good;

        ok(good, "radix and positional, 1 and 4 shards, agree with the model: %s",
           profiles[i].name);
    }

    note("total model steps %llu", (unsigned long long) all);
    note("total wrong answers %llu", (unsigned long long) wrong);

    return done();
}


static bool
profile_run(const profile_t *p, uint32_t steps, uint64_t seed)
{
    bool      good;
    run_t    *r;
    uint32_t  i;

    r = calloc(1, sizeof(run_t));
    r->profile = p;
    r->random = seed;

    for (i = 0; i < ZONES; i++) {
        zone_open(r, i);
    }

    mdl_open(&r->m);

    good = true;

    for (i = 0; i < steps && good; i++) {

        good = step(r) && compare(r);

        if (good && i % 500 == 499) {
            good = whole(r);
        }
    }

    if (good) {
        good = empty(r);
        note("%u refused, %u with spans", r->refused, r->spanned);
    }

    if (!good) {
        note("seed %llu, step %u of \"%s\"", (unsigned long long) seed, i,
             p->name);
    }

    mdl_close(&r->m);
    mdl_clear(&r->spans);

    for (i = 0; i < ZONES; i++) {
        kvr_router_leave(&r->zones[i]);
        kvr_router_detach(&r->zones[i]);
        munmap(r->memory[i], ZONE);
    }

    free(r);

    return good;
}


static void
zone_open(run_t *r, uint32_t z)
{
    uint32_t     w;
    kvr_stats_t  s;

    r->memory[z] = router_open(&r->zones[z], &kinds[z].params, ZONE);

    for (w = 0; w < WORKERS; w++) {
        (void) worker_put(r, z, w);
    }

    kvr_router_stats(&r->zones[z], &s);
    r->used[z] = s.arena_used;
}


static char *
name(uint32_t worker)
{
    static char  id[16];

    snprintf(id, sizeof(id), "w%u", worker);

    return id;
}


static kvr_rc_t
worker_put(run_t *r, uint32_t z, uint32_t worker)
{
    return router_put(&r->zones[z], name(worker), "", RANKS, KVR_WORKER_API);
}


/* ---- the model: spans --------------------------------------------------- */

/* Another one than the index has. */

static uint64_t
model_derived(uint64_t handle, uint32_t j)
{
    return fx_mix(fx_mix(handle) + j + 1);
}


static uint32_t
model_span(run_t *r, uint32_t view, uint64_t handle)
{
    mdl_entry_t  *e;

    e = mdl_get(&r->spans, view, handle);

    return e ? (uint32_t) e->node : 1;
}


static bool
model_store(run_t *r, uint32_t view, kvr_tier_t tier, uint64_t parent,
    uint32_t n, uint32_t span)
{
    uint32_t   i, j, t;
    uint64_t  *to, derived;

    if (parent && mdl_node(&r->m, view, parent) == UINT64_MAX) {
        return false;
    }

    to = r->all;

    for (i = 0; i < n; i++) {

        for (j = span - 1; j + 1 < model_span(r, view, r->handles[i]); j++) {
            derived = model_derived(r->handles[i], j);

            for (t = 0; t < KVR_TIERS; t++) {
                (void) mdl_remove(&r->m, view, t, &derived, 1);
            }
        }

        mdl_add(&r->spans, view, r->handles[i])->node = span;

        for (j = 0; j + 1 < span; j++) {
            *to++ = model_derived(r->handles[i], j);
        }

        *to++ = r->handles[i];
    }

    return mdl_store(&r->m, view, tier, parent, r->all, r->hashes, n * span);
}


/* Was it there? */

static bool
model_take(run_t *r, uint32_t view, kvr_tier_t tier, uint64_t handle)
{
    uint32_t  j;
    uint64_t  derived;

    for (j = 0; j + 1 < model_span(r, view, handle); j++) {
        derived = model_derived(handle, j);
        (void) mdl_remove(&r->m, view, tier, &derived, 1);
    }

    return mdl_remove(&r->m, view, tier, &handle, 1) == 0;
}


/* ---- steps -------------------------------------------------------------- */

/* One of the events remembered, of the view when there is one. */

static event_t *
recent(run_t *r, uint32_t view)
{
    uint32_t  i, n;
    event_t  *e;

    n = kvr_min(r->nevents, EVENTS);
    e = NULL;

    for (i = 0; i < 16 && n; i++) {
        e = &r->events[fx_below(&r->random, n)];

        if (e->view == view) {
            break;
        }
    }

    return e;
}


static bool
step(run_t *r)
{
    uint32_t          n;
    const profile_t  *p;

    p = r->profile;
    n = fx_below(&r->random, 10000);

    if (n < p->clear) {
        return step_clear(r, fx_below(&r->random, VIEWS));
    }

    n = fx_below(&r->random, 100);

    if (n < p->remove) {
        return step_remove(r);
    }

    if (n < p->remove + p->tiers / 4) {
        return step_add_tier(r);
    }

    return step_store(r, fx_below(&r->random, VIEWS));
}


static bool
step_store(run_t *r, uint32_t view)
{
    bool              known;
    uint32_t          i, j, n, span;
    uint64_t          parent, node;
    event_t          *e;
    kvr_event_t       ev;
    const profile_t  *p;

    p = r->profile;
    n = 1 + fx_below(&r->random, p->blocks);
    span = p->spans[view / RANKS % 4];

    if (fx_below(&r->random, 1000) < p->other) {
        span = 1 + fx_below(&r->random, SPAN_MAX);
    }

    parent = 0;
    e = recent(r, view);

    if (e && fx_below(&r->random, 100) < p->deep) {
        parent = e->handles[fx_below(&r->random, 3) ? e->n - 1
                            : fx_below(&r->random, e->n)];
    }

    node = parent ? mdl_node(&r->m, view, parent) : 0;

    if (node != UINT64_MAX
        && r->m.nodes[node].depth + n * span > PROMPT_MAX - 8)
    {
        parent = 0;
        node = 0;
    }

    for (i = 0; i < n * span; i++) {
        r->hashes[i] = 1 + fx_below(&r->random, p->hashes);
    }

    for (i = 0; i < n; i++) {

        if (p->handles) {
            r->handles[i] = 1 + fx_below(&r->random, p->handles);

        } else if (node != UINT64_MAX) {

            for (j = 0; j < span; j++) {
                node = mdl_child(&r->m, node, r->hashes[i * span + j]);
            }

            r->handles[i] = r->m.nodes[node].chain;

        } else {
            r->handles[i] = fx_random(&r->random);
        }
    }

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.tier = fx_below(&r->random, 100) < p->tiers
              ? (kvr_tier_t) fx_below(&r->random, KVR_TIERS) : KVR_DEVICE;
    ev.has_parent = parent != 0;
    ev.parent = parent;
    ev.handles = r->handles;
    ev.nhandles = n;
    ev.locals = r->hashes;
    ev.nlocals = n * span;

    known = model_store(r, view, ev.tier, parent, n, span);
    r->refused += !known;
    r->spanned += span > 1;

    if (!put_event(r, view, &ev, known ? KVR_OK : KVR_INVALID, 0)) {
        return false;
    }

    if (known) {
        e = &r->events[r->nevents++ % EVENTS];
        e->view = view;
        e->n = n;
        e->tier = ev.tier;
        e->node = mdl_node(&r->m, view, r->handles[n - 1]);
        memcpy(e->handles, r->handles, n * sizeof(uint64_t));
    }

    return true;
}


static bool
step_remove(run_t *r)
{
    uint32_t      i, n, first, unknown;
    event_t      *e;
    kvr_event_t   ev;

    e = recent(r, UINT32_MAX);
    if (e == NULL) {
        return true;
    }

    n = 1 + fx_below(&r->random, e->n);
    first = fx_below(&r->random, 3) ? e->n - n
                                    : fx_below(&r->random, e->n - n + 1);

    for (i = 0; i < n; i++) {
        r->handles[i] = e->handles[first + n - 1 - i];
    }

    if (fx_below(&r->random, 10) == 0) {
        r->handles[fx_below(&r->random, n)] = fx_random(&r->random);
    }

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_REMOVE;
    ev.tier = fx_below(&r->random, 8) ? e->tier
              : (kvr_tier_t) fx_below(&r->random, KVR_TIERS);
    ev.handles = r->handles;
    ev.nhandles = n;

    unknown = 0;

    for (i = 0; i < n; i++) {
        unknown += !model_take(r, e->view, ev.tier, r->handles[i]);
    }

    return put_event(r, e->view, &ev, KVR_OK, unknown);
}


static bool
step_add_tier(run_t *r)
{
    uint32_t      i, j, span, unknown;
    uint64_t      handle;
    event_t      *e;
    kvr_event_t   ev;
    mdl_entry_t  *h;

    e = recent(r, UINT32_MAX);
    if (e == NULL) {
        return true;
    }

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.tier = fx_below(&r->random, KVR_TIERS);
    ev.handles = e->handles;
    ev.nhandles = e->n;

    unknown = 0;

    for (i = 0; i < e->n; i++) {

        if (mdl_get(&r->m.handles, e->view, e->handles[i]) == NULL) {
            unknown++;
            continue;
        }

        span = model_span(r, e->view, e->handles[i]);

        for (j = 0; j < span; j++) {
            handle = j + 1 < span ? model_derived(e->handles[i], j)
                                  : e->handles[i];
            h = mdl_get(&r->m.handles, e->view, handle);

            if (h && h->n[ev.tier] == 0) {
                h->n[ev.tier] = 1;
                mdl_get(&r->m.held, e->view, h->node)->n[ev.tier]++;
            }
        }
    }

    return put_event(r, e->view, &ev, KVR_OK, unknown);
}


/* A holder, or a worker that goes and comes back. */

static bool
step_clear(run_t *r, uint32_t view)
{
    uint32_t     z, rank, worker;
    kvr_event_t  ev;

    worker = view / RANKS;

    if (fx_below(&r->random, 3)) {
        mdl_drop(&r->m, view);
        memset(&ev, 0, sizeof(ev));
        ev.kind = KVR_CLEAR;

        return put_event(r, view, &ev, KVR_OK, 0);
    }

    for (rank = 0; rank < RANKS; rank++) {
        mdl_drop(&r->m, worker * RANKS + rank);
    }

    for (z = 0; z < ZONES; z++) {

        if (kvr_router_remove_worker(&r->zones[z], name(worker),
                                     strlen(name(worker)))
            != KVR_OK || worker_put(r, z, worker) != KVR_OK)
        {
            note("zone %u: a worker does not go, or come back", z);
            return false;
        }
    }

    return true;
}


static bool
put_event(run_t *r, uint32_t view, kvr_event_t *ev, kvr_rc_t want,
    uint32_t unknown)
{
    char         *id;
    uint32_t      z, got;
    kvr_rc_t      rc;
    kvr_why_t     why;
    const char   *detail;

    id = name(view / RANKS);
    ev->rank = view % RANKS;

    for (z = 0; z < ZONES; z++) {
        rc = kvr_router_write(&r->zones[z], id, strlen(id), ev, 1000, &got,
                              &why, &detail);

        if (rc != want || (rc == KVR_OK && got != unknown)) {
            note("zone %u: event %d: rc %d, want %d; %u unknown, want %u: %s",
                 z, ev->kind, rc, want, got, unknown, detail);
            return false;
        }

        if (fx_below(&r->random, 64) == 0) {
            (void) kvr_router_tend(&r->zones[z], 1000, 50);
        }
    }

    return true;
}


/* ---- the same answers --------------------------------------------------- */

/* A prompt along a chain that is remembered. */

static bool
compare(run_t *r)
{
    uint32_t  z, n, k;
    event_t  *e;

    e = recent(r, UINT32_MAX);
    if (e == NULL) {
        return true;
    }

    n = mdl_chain(&r->m, e->node, r->prompt, PROMPT_MAX);

    for (k = fx_below(&r->random, 4); k > 0; k--) {
        r->prompt[n++] = 1 + fx_below(&r->random, r->profile->hashes);
    }

    if (fx_below(&r->random, 4) == 0) {
        r->prompt[fx_below(&r->random, n)] = 1;
    }

    if (fx_below(&r->random, 4) == 0) {
        n = 1 + fx_below(&r->random, n);
    }

    for (z = 0; z < ZONES; z++) {
        if (!compare_zone(r, z, n, false) || !compare_zone(r, z, n, true)) {
            return false;
        }
    }

    return true;
}


/*
 * With early_exit one holder of a shard may have less than there is, but not
 * nothing: the one that was left.
 */

static bool
compare_zone(run_t *r, uint32_t z, uint32_t n, bool early)
{
    bool           good;
    uint32_t       i, v, t, found, w, left, depths[3], got[VIEWS][3];
    uint32_t       less[4] = { 0, 0, 0, 0 };
    kvr_match_t    all[256];
    kvr_router_t  *k;

    k = &r->zones[z];
    memset(got, 0, sizeof(got));
    found = kvr_router_find(k, r->prompt, n, 0, early, all, 256);
    good = true;

    for (i = 0; i < found; i++) {
        w = kvr_router_holder_worker(k, all[i].holder);
        v = strtoul(kvr_router_worker(k, w)->conf.id + 1, NULL, 10) * RANKS
            + kvr_router_holder_rank(k, all[i].holder);

        got[v][0] = all[i].device;
        got[v][1] = all[i].host;
        got[v][2] = all[i].disk;
    }

    for (v = 0; v < VIEWS; v++) {
        mdl_find(&r->m, v, r->prompt, n, depths);

        for (t = 0; t < 3; t++) {
            if (early ? got[v][t] > depths[t] : got[v][t] != depths[t]) {
                note("zone %u%s, a prompt of %u: view %u, tier %u: got %u, "
                     "want %u", z, early ? ", early exit" : "", n, v, t,
                     got[v][t], depths[t]);
                good = false;
            }
        }

        left = kvr_router_shard(k, name(v / RANKS), strlen(name(v / RANKS)));
        less[left] += memcmp(got[v], depths, sizeof(depths)) != 0;

        if (less[left] > 1 || (depths[2] && got[v][2] == 0)) {
            note("zone %u, early exit: view %u: got %u, want %u", z, v,
                 got[v][2], depths[2]);
            good = false;
        }
    }

    return good;
}


static bool
whole(run_t *r)
{
    uint32_t     z, i;
    const char  *why;

    for (z = 0; z < ZONES; z++) {
        for (i = 0; i < r->zones[z].nshards; i++) {
            why = kvr_index_check(&r->zones[z].shards[i].index);

            if (why) {
                note("zone %u, shard %u: %s", z, i, why);
                return false;
            }
        }
    }

    return true;
}


/* When all is cleared, nothing is left. */

static bool
empty(run_t *r)
{
    uint32_t     z, v;
    kvr_stats_t  s;

    for (v = 0; v < VIEWS; v += RANKS) {
        for (z = 0; z < ZONES; z++) {
            (void) kvr_router_remove_worker(&r->zones[z], name(v / RANKS),
                                            strlen(name(v / RANKS)));
        }
    }

    for (z = 0; z < ZONES; z++) {

        while (kvr_router_tend(&r->zones[z], 1000, 1000)) { /* void */ }

        kvr_router_stats(&r->zones[z], &s);

        if (s.pairs || s.blocks || s.handles || s.holes || s.views_dying
            || s.arena_used != r->used[z])
        {
            note("zone %u: %llu handles, %llu blocks are left", z,
                 (unsigned long long) s.handles,
                 (unsigned long long) s.blocks);
            return false;
        }
    }

    return whole(r);
}
