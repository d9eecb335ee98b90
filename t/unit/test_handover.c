/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A stream of an engine's events that one relay after the other follows, each
 * from what the one before it has saved.  The engine's blocks span two of the
 * index's, and some begin alike.  At any time each mirror, and the router that
 * hears of it, hold what the engine does, handle for handle.
 */


#include "engine.h"
#include "zone/kvr_shard.h"
#include "zone/kvr_span.h"


#define DEPTH    6                      /* of a chain, at most */
#define BRANCH   6                      /* blocks behind each, two by two with
                                           the same first half */
#define NODES    4000
#define SLOTS    40
#define MEMORY   (1u << 16)             /* blocks */
#define SIZE     (4 << 20)
#define ROUNDS   400


/* A block of the engine: its handle is its number + 1. */
typedef struct {
    uint32_t  parent;                   /* number; 0: the root */
    uint32_t  tokens[ENGINE_SIZE_MAX];
    uint32_t  children[BRANCH];         /* 0: not there yet */
    uint32_t  copies;
    bool      known;                    /* was stored at some time */
    bool      host;                     /* is offloaded */
} node_t;


static node_t        nodes[NODES];
static uint32_t      nnodes;
static uint32_t      held;              /* copies of all */
static uint64_t      state;
static bool          counts;            /* removals say what is left */
static const kind_t *kind;


static uint32_t
any(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;

    return (uint32_t) ((state >> 32) * n >> 32);
}


static uint64_t
handle_of(uint32_t node)
{
    return node * UINT64_C(0x9e3779b97f4a7c15);
}


static uint32_t
child(uint32_t parent, uint32_t which)
{
    uint32_t  i, *at;
    node_t   *n;

    at = &nodes[parent].children[which];

    if (*at == 0 && nnodes < NODES) {
        *at = nnodes++;
        n = &nodes[*at];

        memset(n, 0, sizeof(node_t));
        n->parent = parent;

        for (i = 0; i < engine_size; i++) {
            n->tokens[i] = i < engine_size / 2 ? which / 2 : 100 + which;
        }
    }

    return *at;
}


/* ---- events ------------------------------------------------------------- */

static void
store(const uint32_t *chain, uint32_t n)
{
    uint32_t     i, tokens[DEPTH * ENGINE_SIZE_MAX];
    uint64_t     handles[DEPTH];
    kvr_event_t  ev;

    if (n == 0) {
        return;
    }

    for (i = 0; i < n; i++) {
        handles[i] = handle_of(chain[i]);
        memcpy(&tokens[i * engine_size], nodes[chain[i]].tokens,
               engine_size * sizeof(uint32_t));
    }

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.has_parent = nodes[chain[0]].parent != 0;
    ev.parent = handle_of(nodes[chain[0]].parent);
    ev.handles = handles;
    ev.nhandles = n;
    ev.tokens = tokens;
    ev.ntokens = n * engine_size;
    ev.block_size = engine_size;

    (void) engine_tell(&ev);

    if (engine_rc != KVR_OK || engine_why != KVR_WHY_NONE) {
        note("store: %d, %s", engine_rc, kvr_why_name(engine_why));
        emission_fits = false;
    }
}


static void
evict(uint32_t node)
{
    uint32_t     left;
    uint64_t     handle;
    kvr_event_t  ev;

    left = --nodes[node].copies;
    held--;
    handle = handle_of(node);

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_REMOVE;
    ev.handles = &handle;
    ev.nhandles = 1;
    ev.remaining = counts ? &left : NULL;

    (void) engine_tell(&ev);
}


/* To the host, or away from there: said late, of what may have been evicted. */

static void
offload(void)
{
    uint32_t     node;
    uint64_t     handle;
    kvr_event_t  ev;

    node = 1 + any(nnodes - 1);

    if (!nodes[node].known) {
        return;
    }

    handle = handle_of(node);

    memset(&ev, 0, sizeof(ev));
    ev.kind = nodes[node].host ? KVR_REMOVE : KVR_STORE;
    ev.tier = KVR_HOST;
    ev.handles = &handle;
    ev.nhandles = 1;

    nodes[node].host = !nodes[node].host;

    (void) engine_tell(&ev);

    if (engine_rc != KVR_OK || engine_why != KVR_WHY_NONE) {
        note("offload: %d, %s", engine_rc, kvr_why_name(engine_why));
        emission_fits = false;
    }
}


static void
request(void)
{
    uint32_t  i, n, hits, node, chain[DEPTH];

    n = 1 + any(DEPTH);
    node = 0;

    for (i = 0; i < n; i++) {
        node = child(node, any(3) ? any(2) : any(BRANCH));
        if (node == 0) {
            return;
        }

        chain[i] = node;
    }

    for (hits = 0; hits < n && nodes[chain[hits]].copies; hits++) {
        /* void */
    }

    if (hits == n) {
        hits--;
    }

    while (held + n - hits > SLOTS) {
        node = 1 + any(nnodes - 1);

        for (i = 0; i < n && chain[i] != node; i++) {
            /* void */
        }

        if (nodes[node].copies && (i == n || nodes[node].copies > 1)) {
            evict(node);
        }
    }

    store(&chain[hits], n - hits);

    for (i = hits; i < n; i++) {
        nodes[chain[i]].copies++;
        nodes[chain[i]].known = true;
        held++;
    }
}


/* ---- what is held ------------------------------------------------------- */

static uint32_t
zone_tiers(const engine_zone_t *z, uint64_t handle)
{
    uint32_t            w, holder, view;
    const kvr_shard_t  *k;

    k = kvr_shard_of(&z->router, "w", 1);

    if (kvr_fleet_find(&k->fleet, "w", 1, &w) != KVR_OK
        || kvr_fleet_holder_find(&k->fleet, w, engine_rank, &holder)
           != KVR_OK)
    {
        return 0;
    }

    view = k->fleet.holders[holder].view;

    return view == KVR_VIEW_NONE ? 0
                                 : kvr_index_tiers(&k->index, view, handle);
}


static bool
agrees(const char *who, const engine_zone_t *z)
{
    uint32_t  i, want, here, half;

    for (i = 1; i < nnodes; i++) {
        want = (nodes[i].copies ? 1u << KVR_DEVICE : 0)
               | (nodes[i].host ? 1u << KVR_HOST : 0);
        here = zone_tiers(z, handle_of(i));
        half = zone_tiers(z, kvr_span_handle(handle_of(i), 0));

        if (here != want || half != want) {
            note("%s: block %u: want tiers %x, is %x, its first half %x", who,
                 i, want, here, half);
            return false;
        }
    }

    return true;
}


/* ---- from one to the next ----------------------------------------------- */

static kvr_normaliser_t   *next_engine;
static engine_zone_t   slots[2], next_far;
static engine_zone_t  *next_near;      /* an engine points to its own */


static kvr_rc_t
next_learns(void *data, const kvr_event_t *ev)
{
    kvr_rc_t   rc;
    kvr_why_t  why;

    rc = kvr_normalise_event(next_engine, "w", 1, ev, &why, NULL, NULL);

    return rc == KVR_OK && why == KVR_WHY_NONE ? KVR_OK : KVR_ERROR;
}


static kvr_rc_t
next_remembers(void *data, const void *part, size_t size)
{
    return kvr_normalise_load(next_engine, "w", 1, part, size);
}


static kvr_rc_t
next_hears(void *data, const kvr_event_t *ev)
{
    uint32_t     unknown;
    kvr_why_t    why;
    const char  *detail;

    return kvr_router_write(&next_far.router, "w", 1, ev, 1000, &unknown,
                            &why, &detail);
}


static bool
hand_over(void)
{
    bool                  good;
    kvr_normalise_conf_t  conf = { true, MEMORY };

    next_near = &slots[next_near == slots];

    engine_zone_open(next_near, kind, SIZE);
    engine_zone_open(&next_far, kind, SIZE);
    next_engine = kvr_normalise_create(&next_near->router, &conf);

    good = kvr_router_dump_events(&near_zone.router, "w", 1, next_learns,
                                  NULL) == KVR_OK
           && kvr_normalise_save(engine, "w", 1, next_remembers, NULL)
              == KVR_OK
           && kvr_router_dump_events(&next_near->router, "w", 1, next_hears,
                                     NULL) == KVR_OK;

    kvr_normalise_destroy(engine);
    engine_zone_close(&near_zone);
    engine_zone_close(&far_zone);

    engine = next_engine;
    near_zone = *next_near;
    far_zone = next_far;

    if (!good) {
        note("not handed over");
    }

    return good;
}


static bool
run(uint64_t seed, uint32_t span)
{
    bool      good;
    uint32_t  i, n;

    state = seed * 2654435761u + 88172645463325252u;
    memset(nodes, 0, sizeof(nodes));
    nnodes = 1;
    held = 0;

    engine_open(kind, true, MEMORY);
    engine_size = span * kind->params.block_size;
    good = true;
    n = 0;

    for (i = 0; good && i < ROUNDS; i++) {
        request();

        if (any(3) == 0) {
            offload();
        }

        if (any(60) == 0) {
            n++;
            good = hand_over();
        }

        good = good && emission_fits && agrees("here", &near_zone)
               && agrees("there", &far_zone);
    }

    if (!good) {
        note("%s, seed %u, request %u, relay %u", kind->name, (unsigned) seed,
             i, n);
    }

    engine_close();

    return good;
}


int
main(void)
{
    bool      good;
    size_t    i;
    uint64_t  seed;

    for (i = 0; i < KINDS; i++) {

        kind = &kinds[i];

        for (counts = false; ; counts = true) {
            good = true;

            for (seed = 1; good && seed <= 5; seed++) {
                good = run(seed, 2);
            }

            ok(good, "%s: what the engine holds is held, from relay to relay, "
               "removals %s", kind->name,
               counts ? "say what is left" : "are counted");

            if (counts) {
                break;
            }
        }
    }

    return done();
}
