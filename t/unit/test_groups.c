/*
 * Copyright (C) the nginx-kv-router authors
 *
 * KV-cache groups beside a model of a few lines.
 *
 *     the rule     kvr_hit() beside the sentences of kvr_hit.h, block by block
 *     the index    random stores and removals of an engine with several groups:
 *                  the zone beside the engine, the zone that hears normalised
 *                  events, and a zone made of the dump tell what the model
 *                  tells, of any prompt of any length
 *
 *     a kill       the process that applies an event dies at some instruction
 *                  of it: no prompt is told more than before the event, or
 *                  than after it, and the index is sound
 *
 *     test_groups [rounds [seed [stride]]]
 */


#include "engine.h"
#include "processes.h"

#include "../check/kvr_check.h"


#define ROUNDS     60
#define GROUPS     6
#define LETTERS    2                    /* contents of a block */
#define DEPTH      24                   /* blocks of the longest chain */
#define NODES      96                   /* blocks of all chains */
#define STEPS      400
#define ROW        200                  /* blocks of the rule's rows */

#ifdef __SANITIZE_ADDRESS__
#define STRIDE     4999                 /* instructions between two kills */
#else
#define STRIDE     997
#endif

#define VICTIMS    3                    /* blocks of an event that is killed */


typedef struct {
    uint32_t          number;
    kvr_group_kind_t  kind;
    uint32_t          window;           /* tokens */
    bool              heard;            /* an event has named it */
    uint32_t          copies[NODES];
} group_t;


/* A block of an engine: the one behind its parent with this content. */
typedef struct {
    uint32_t    parent;                 /* itself: none */
    uint32_t    depth;                  /* blocks before it */
    char        letter;
} node_t;


static uint64_t       seed;
static group_t        groups[GROUPS];
static uint32_t       ngroups;
static node_t         nodes[NODES];
static uint32_t       nnodes;
static uint32_t       chunk;            /* the engine's blocks; 0: unknown */
static bool           drop;
static engine_zone_t  dumped;           /* made of the near zone's dump */


static uint32_t
below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) ((seed >> 20) % n);
}


/* ---- the rule ----------------------------------------------------------- */

/* Does the class accept n blocks?  Everything is in the index's blocks. */
static bool
accepts(const kvr_class_t *c, const uint64_t *row, uint32_t n,
    const kvr_hit_rule_t *rule)
{
    uint32_t  i, from, to;

    if (n == 0) {
        return true;
    }

    from = 0;
    to = n;

    if (c->kind == KVR_GROUP_WINDOW) {
        from = n > c->window * c->span ? n - c->window * c->span : 0;

    } else if (c->kind == KVR_GROUP_MAMBA) {
        from = n - c->span;

    } else if (c->kind == KVR_GROUP_CHUNKED) {

        if (rule->chunk == 0 || rule->chunk % c->span) {
            return true;
        }

        from = n / rule->chunk * rule->chunk;
    }

    if (rule->drop && (c->kind == KVR_GROUP_WINDOW
                       || c->kind == KVR_GROUP_INDEXED))
    {
        to += c->span;
    }

    for (i = from; i < to; i++) {
        if ((row[i / 64] >> (i % 64) & 1) == 0) {
            return false;
        }
    }

    return true;
}


static uint32_t
naive_hit(const kvr_class_t *classes, uint32_t n, const uint64_t *const *rows,
    uint32_t span, uint32_t most, const kvr_hit_rule_t *rule)
{
    uint32_t  i, hit;

    hit = most / span;

    if (rule->drop && hit) {
        hit--;
    }

    for (hit *= span; hit; hit -= span) {

        for (i = 0; i < n && accepts(&classes[i], rows[i], hit, rule); i++) {
            /* void */
        }

        if (i == n) {
            break;
        }
    }

    return hit;
}


static void
random_row(uint64_t *row)
{
    uint32_t  i, n, at, held;

    memset(row, 0, (ROW / 64 + 1) * sizeof(uint64_t));
    held = below(2);

    for (at = 0; at < ROW; at += n) {
        n = 1 + below(below(4) ? 4 : 60);

        for (i = at; i < at + n && i < ROW && held; i++) {
            row[i / 64] |= UINT64_C(1) << (i % 64);
        }

        held = !held;
    }
}


static void
test_rule(uint32_t rounds)
{
    uint32_t         i, round, n, span, full, limit, wrong, zero, whole;
    uint64_t         bits[KVR_CLASSES_MAX][ROW / 64 + 1];
    const uint64_t  *rows[KVR_CLASSES_MAX];
    kvr_class_t      classes[KVR_CLASSES_MAX];
    kvr_hit_rule_t   rule;

    static const kvr_group_kind_t  kinds_of[] = {
        KVR_GROUP_INDEXED, KVR_GROUP_WINDOW, KVR_GROUP_MAMBA,
        KVR_GROUP_CHUNKED
    };

    wrong = 0;
    zero = 0;
    whole = 0;

    for (round = 0; round < rounds * 2000; round++) {

        n = below(KVR_CLASSES_MAX + 1);
        span = 1 + below(3);
        full = below(ROW);
        limit = below(2) ? full : below(ROW);
        rule.drop = below(4) == 0;
        rule.chunk = below(4) ? (1 + below(8)) * span : below(3);

        for (i = 0; i < n; i++) {
            random_row(bits[i]);
            rows[i] = bits[i];
            classes[i].kind = kinds_of[below(4)];
            classes[i].window = below(3) ? below(12) : below(1000000000);
            classes[i].span = span;

            if (classes[i].window * (uint64_t) span > UINT32_MAX / 2) {
                classes[i].window = ROW;
            }
        }

        i = kvr_hit(classes, n, rows, span, full, limit, &rule);

        if (i != naive_hit(classes, n, rows, span, kvr_min(full, limit),
                           &rule))
        {
            wrong++;
        }

        zero += i == 0;
        whole += i && i == kvr_min(full, limit) / span * span;
    }

    note("%u hits, %u of them 0, %u all that was held", round, zero, whole);
    ok(wrong == 0 && zero > rounds && whole > rounds && zero + whole < round,
       "the hit is the largest number that all classes accept");
}


/* ---- an engine ---------------------------------------------------------- */

static uint64_t
handle_of(uint32_t node)
{
    return (node + 1) * UINT64_C(0x9e3779b97f4a7c15);
}


/* The letters up to and with a block. */
static void
letters_of(uint32_t node, char out[DEPTH + 1])
{
    uint32_t  d;

    d = nodes[node].depth + 1;
    out[d] = '\0';

    while (d-- > 0) {
        out[d] = nodes[node].letter;
        node = nodes[node].parent;
    }
}


static bool
taken(uint32_t parent, char letter)
{
    uint32_t  i;
    bool      root;

    root = parent == nnodes;

    for (i = 0; i < nnodes; i++) {
        if (nodes[i].letter == letter
            && (root ? nodes[i].parent == i
                     : nodes[i].parent == parent && i != parent))
        {
            return true;
        }
    }

    return false;
}


static void
grow(void)
{
    uint32_t  parent;
    char      letter;

    nnodes = 0;

    while (nnodes < NODES) {

        parent = nnodes == 0 || below(12) == 0
                 ? nnodes : below(3) ? nnodes - 1 : below(nnodes);
        letter = (char) ('a' + below(LETTERS));

        if (taken(parent, letter)
            || (parent != nnodes && nodes[parent].depth + 1 == DEPTH))
        {
            continue;
        }

        nodes[nnodes].depth = parent == nnodes ? 0 : nodes[parent].depth + 1;
        nodes[nnodes].parent = parent;
        nodes[nnodes].letter = letter;
        nnodes++;
    }
}


/* An event of the group, as the decoder reads it. */
static void
group_event(group_t *g, kvr_event_kind_t kind, const uint32_t *at, uint32_t n)
{
    uint32_t     i, tokens[ENGINE_BLOCKS * ENGINE_SIZE_MAX];
    uint64_t     handles[ENGINE_BLOCKS];
    char         letters[ENGINE_BLOCKS];
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));

    for (i = 0; i < n; i++) {
        handles[i] = handle_of(at[i]);
        letters[i] = nodes[at[i]].letter;
    }

    ev.kind = kind;
    ev.rank = engine_rank;
    ev.handles = handles;
    ev.nhandles = n;
    ev.group = g->number;

    if (kind == KVR_STORE) {
        engine_tokens(letters, n, tokens);
        ev.tokens = tokens;
        ev.ntokens = n * engine_size;
        ev.block_size = engine_size;
        ev.group_kind = g->kind;
        ev.group_window = g->window;
        ev.has_parent = nodes[at[0]].parent != at[0];
        ev.parent = handle_of(nodes[at[0]].parent);
    }

    if (kind == KVR_STORE ? g->kind != KVR_GROUP_INDEXED : g->number != 0) {
        ev.verdict = KVR_FILTERED;
        ev.why = KVR_WHY_GROUP;
    }

    (void) engine_tell(&ev);
    g->heard = true;
}


/* A row of blocks down one chain, the last of them `node`. */
static uint32_t
row_to(uint32_t node, uint32_t most, uint32_t *at)
{
    uint32_t  n, i;

    n = 1 + below(most);
    n = kvr_min(n, nodes[node].depth + 1);

    for (i = n; i-- > 0; /* void */ ) {
        at[i] = node;
        node = nodes[node].parent;
    }

    return n;
}


static void
engine_step(void)
{
    bool      held;
    uint32_t  i, n, at[ENGINE_BLOCKS] = { 0 };
    group_t  *g;

    g = &groups[below(ngroups)];

    if (below(5) < 3) {

        n = row_to(below(nnodes), DEPTH, at);

        if (g->kind == KVR_GROUP_INDEXED) {

            /* behind what full attention does not hold nothing is stored */

            held = nodes[at[0]].parent == at[0]
                   || g->copies[nodes[at[0]].parent];

            if (!held) {
                return;
            }
        }

        group_event(g, KVR_STORE, at, n);

        for (i = 0; i < n; i++) {
            g->copies[at[i]]++;
        }

        return;
    }

    for (n = 0, i = below(nnodes); n < 1 + below(12) && i < nnodes; i++) {
        if (g->copies[i] && below(2)) {
            at[n++] = i;
        }
    }

    if (n) {
        group_event(g, KVR_REMOVE, at, n);

        for (i = 0; i < n; i++) {
            g->copies[at[i]]--;
        }
    }
}


/* The hit of a prompt, in the index's blocks. */
static uint32_t
expected(uint32_t node, uint32_t tokens)
{
    uint32_t         i, k, n, d, full, span, path[DEPTH];
    uint64_t         bits[GROUPS];
    kvr_class_t      classes[GROUPS];
    const uint64_t  *rows[GROUPS];
    kvr_hit_rule_t   rule;

    span = engine_size / 4;
    d = nodes[node].depth + 1;

    for (i = d; i-- > 0; node = nodes[node].parent) {
        path[i] = node;
    }

    full = 0;
    n = 0;

    for (k = 0; k < ngroups; k++) {

        if (!groups[k].heard) {
            continue;
        }

        bits[n] = 0;
        rows[n] = &bits[n];
        classes[n].kind = groups[k].kind;
        classes[n].span = 1;
        classes[n].window = (groups[k].window + engine_size - 2)
                            / engine_size;

        for (i = 0; i < d; i++) {
            bits[n] |= (uint64_t) (groups[k].copies[path[i]] != 0) << i;
        }

        if (groups[k].kind == KVR_GROUP_INDEXED) {
            full = d;
        }

        n++;
    }

    if (n < 2 && !drop) {

        /* an engine of one group is told all that it holds */

        rule.chunk = 0;
        rule.drop = false;
        full = naive_hit(classes, n, rows, 1, full, &rule);

        return kvr_min(full * span, tokens / 4);
    }

    rule.chunk = chunk;
    rule.drop = drop;
    full = kvr_min(full, (tokens - 1) / engine_size);

    return naive_hit(classes, n, rows, 1, full, &rule) * span;
}


static uint32_t
told(const engine_zone_t *z, uint32_t node, uint32_t tokens)
{
    uint32_t     i, n, found;
    uint64_t     locals[ENGINE_BLOCKS * ENGINE_SIZE_MAX];
    char         letters[DEPTH + 1];
    kvr_match_t  m[16];

    letters_of(node, letters);
    n = engine_locals(letters, locals);
    n = kvr_min(n, tokens / 4);
    found = kvr_router_find(&z->router, locals, n, tokens, false, m, 16);

    for (i = 0; i < found; i++) {
        if (m[i].device != m[i].host || m[i].host != m[i].disk) {
            return UINT32_MAX;
        }
    }

    return found ? m[0].device : 0;
}


static kvr_rc_t
redo(void *data, const kvr_event_t *ev)
{
    kvr_why_t  why;

    return kvr_normalise_event(data, "w", 1, ev, &why, NULL, NULL);
}


/* The numbers of prompts of which a zone tells something else. */
static uint32_t
compare(const engine_zone_t *z, const char *which, uint32_t *hits)
{
    uint32_t  i, tokens, want, has, wrong;

    wrong = 0;

    for (i = 0; i < nnodes; i++) {

        /* that end with a block, or within one */

        tokens = (nodes[i].depth + 1) * engine_size;
        tokens -= below(2) ? below(engine_size) : 0;

        want = expected(i, tokens);
        has = told(z, i, tokens);
        *hits += want != 0;

        if (has != want && wrong++ == 0) {
            note("%s: block %u, depth %u, %u tokens: %u told, not %u", which,
                 i, nodes[i].depth, tokens, has, want);
        }
    }

    return wrong;
}


/* Settings of the engine, in all zones. */
static void
settings(engine_zone_t *z)
{
    kvr_worker_conf_t  conf;

    memset(&conf, 0, sizeof(conf));
    strcpy(conf.id, "w");
    conf.ranks = 1;
    conf.weight = 1000;
    conf.spec_drop = drop;
    conf.attention_chunk = chunk * engine_size;

    (void) kvr_router_put_worker(&z->router, &conf, KVR_WORKER_API);
}


static kvr_rc_t
keep(void *data, const void *part, size_t size)
{
    return kvr_normalise_load(data, "w", 1, part, size) == KVR_OK ? KVR_OK
                                                                  : KVR_ERROR;
}


/*
 * A relay that starts again: a zone made of the dump, and another memory of
 * the engine's blocks over it, take the place of the near ones.
 */
static bool
restart(const kind_t *kind)
{
    bool               good;
    engine_zone_t      was;
    kvr_normaliser_t  *next;

    engine_zone_open(&dumped, kind, 8 << 20);
    settings(&dumped);

    next = kvr_normalise_create(&dumped.router, NULL);

    good = next
           && kvr_router_dump_events(&near_zone.router, "w", 1, redo, next)
              == KVR_OK
           && kvr_normalise_save(engine, "w", 1, keep, next) == KVR_OK;

    kvr_normalise_destroy(engine);
    engine = next;

    was = near_zone;
    near_zone = dumped;
    engine_zone_close(&was);

    return good;
}


static void
random_groups(uint32_t round)
{
    uint32_t  i, k, first;

    static const kvr_group_kind_t  kinds_of[] = {
        KVR_GROUP_WINDOW, KVR_GROUP_WINDOW, KVR_GROUP_MAMBA,
        KVR_GROUP_CHUNKED, KVR_GROUP_INDEXED
    };

    ngroups = 1 + below(GROUPS);
    memset(groups, 0, sizeof(groups));

    /* the group of full attention comes first, or last */

    first = round % 2 ? 0 : ngroups - 1;

    for (i = 0; i < ngroups; i++) {
        groups[i].number = i;
        groups[i].kind = i == first ? KVR_GROUP_INDEXED : kinds_of[below(5)];

        if (groups[i].kind == KVR_GROUP_WINDOW) {
            groups[i].window = 1 + below(2) * 9;
        }
    }

    /* two windows, mamba, chunks, full: five classes would be one too many */

    for (i = 0; i < ngroups; i++) {
        for (k = 0; k < i; k++) {
            if (groups[k].kind == KVR_GROUP_WINDOW
                && groups[i].kind == KVR_GROUP_WINDOW)
            {
                groups[i].window = groups[k].window;
            }
        }
    }

    chunk = below(3) ? 1 + below(4) : 0;
    drop = below(4) == 0;
}


static void
test_index(const kind_t *kind, uint32_t rounds)
{
    bool      good;
    uint32_t  round, step, wrong, hits, bound;

    wrong = 0;
    hits = 0;
    bound = 0;
    good = true;

    for (round = 0; round < rounds; round++) {

        engine_open_sized(kind, true, 0, 8 << 20);
        engine_size = 4 * (1 + below(2));

        random_groups(round);
        grow();
        settings(&near_zone);
        settings(&far_zone);

        for (step = 0; step < STEPS && wrong == 0; step++) {

            engine_step();

            if (step % 40 == 39) {
                wrong += compare(&near_zone, "near", &hits);
                wrong += compare(&far_zone, "far", &hits);
            }

            if (step == STEPS / 2) {
                good = good && restart(kind);
                wrong += compare(&near_zone, "dumped", &hits);
            }
        }

        bound += (engine_flags() & KVR_WORKER_HYBRID) != 0;
        good = good && emission_fits;
        engine_close();

        if (wrong) {
            note("round %u, %u groups, blocks of %u, chunk %u, drop %u", round,
                 ngroups, engine_size, chunk, drop);
            break;
        }
    }

    note("%s: %u rounds, %u hits, %u hybrid", kind->name, round, hits, bound);
    ok(good && wrong == 0 && hits > rounds * 100 && bound == 0,
       "%s: index, events, dump and saved memory tell what the model tells",
       kind->name);
}


/* ---- kills -------------------------------------------------------------- */

/* The event that is killed. */
static struct {
    group_t           *group;
    kvr_event_kind_t   kind;
    uint32_t           at[ENGINE_BLOCKS];
    uint32_t           n;
} victim;


static void
victim_begin(void)
{
    (void) kvr_router_join(&near_zone.router);
    (void) kvr_router_join(&far_zone.router);
}


static void
victim_apply(void)
{
    group_event(victim.group, victim.kind, victim.at, victim.n);
}


static void
victim_choose(group_t *g, uint32_t stored)
{
    uint32_t  i;

    victim.group = g;
    victim.kind = stored ? KVR_STORE : KVR_REMOVE;
    victim.n = 0;

    if (stored) {
        victim.n = row_to(nnodes - 1, VICTIMS, victim.at);
        return;
    }

    for (i = 0; i < nnodes && victim.n < VICTIMS; i++) {
        if (g->copies[i] == 1) {
            victim.at[victim.n++] = i;
        }
    }
}


/* Is the shard's index sound, and no prompt told more than that? */
static bool
no_more(engine_zone_t *z, const uint32_t *before, const uint32_t *after)
{
    uint32_t      i, has;
    const char   *why;
    kvr_shard_t  *k;

    k = &z->router.shards[0];

    if (kvr_shard_lock(k, 1000) != KVR_OK) {
        return false;
    }

    why = kvr_index_check(&k->index);
    kvr_shard_unlock(k);

    if (why) {
        note("%s", why);
        return false;
    }

    for (i = 0; i < nnodes; i++) {

        has = told(z, i, (nodes[i].depth + 1) * engine_size + 1);

        if (has > before[i] && has > after[i]) {
            note("block %u: %u told, %u before, %u after", i, has, before[i],
                 after[i]);
            return false;
        }
    }

    return true;
}


static void
hits_of(uint32_t *hits)
{
    uint32_t  i;

    for (i = 0; i < nnodes; i++) {
        hits[i] = expected(i, (nodes[i].depth + 1) * engine_size + 1);
    }
}


static void
test_killed(uint32_t stride)
{
    bool      good, inside;
    uint32_t  i, round, steps, kills, hits, before[NODES], after[NODES];

    good = true;
    kills = 0;
    hits = 0;

    for (round = 0; good && round < 8; round++) {

        engine_open_sized(&kinds[0], true, 0, 8 << 20);
        engine_size = 4 * (1 + round / 4);

        do {
            random_groups(round);
        } while (ngroups < 3);

        grow();
        settings(&near_zone);
        settings(&far_zone);

        /* each group is heard, and the whole of one chain is held */

        for (i = 0; i < ngroups; i++) {
            victim_choose(&groups[i], 1);
            victim.n = nodes[nnodes - 1].depth + 1;

            for (steps = victim.n; steps-- > 0; /* void */ ) {
                victim.at[steps] = steps + 1 == victim.n
                                   ? nnodes - 1
                                   : nodes[victim.at[steps + 1]].parent;
            }

            victim_apply();

            for (steps = 0; steps < victim.n; steps++) {
                groups[i].copies[victim.at[steps]]++;
            }
        }

        for (i = 0; i < STEPS / 4; i++) {
            engine_step();
        }

        victim_choose(&groups[round % ngroups], round / 2 % 2);

        if (victim.n == 0) {
            engine_close();
            continue;
        }

        hits_of(before);

        for (i = 0; i < victim.n; i++) {
            victim.group->copies[victim.at[i]] += victim.kind == KVR_STORE
                                                  ? 1u : -1u;
        }

        hits_of(after);
        inside = true;

        kvr_router_leave(&near_zone.router);
        kvr_router_leave(&far_zone.router);

        for (steps = 0; good && inside; steps += stride) {

            inside = killed_behind(victim_begin, victim_apply, steps);
            kills += inside;

            good = kvr_router_join(&near_zone.router) == KVR_OK
                   && kvr_router_join(&far_zone.router) == KVR_OK
                   && no_more(&near_zone, before, after)
                   && no_more(&far_zone, before, after);

            kvr_router_leave(&near_zone.router);
            kvr_router_leave(&far_zone.router);
        }

        victim_begin();
        victim_apply();

        good = good && no_more(&near_zone, after, after)
               && compare(&near_zone, "after kills", &hits) == 0;

        engine_close();
    }

    note("%u kills in %u events", kills, round);
    ok(good && kills > 8,
       "killed at any instruction of an event: nothing is told that neither "
       "held before nor holds after");
}


/* ---- bounds ------------------------------------------------------------- */

static void
test_bounds(void)
{
    uint32_t  i, at[1];
    group_t   g;

    engine_open(&kinds[0], true, 0);
    grow();

    memset(&g, 0, sizeof(g));
    at[0] = 0;

    g.kind = KVR_GROUP_INDEXED;
    group_event(&g, KVR_STORE, at, 1);

    for (i = 1; i <= KVR_CLASSES_MAX; i++) {
        g.number = i;
        g.kind = KVR_GROUP_WINDOW;
        g.window = i * 100;
        group_event(&g, KVR_STORE, at, 1);
    }

    ok(!(engine_flags() & KVR_WORKER_HYBRID),
       "a worker with as many classes as there may be is exact");

    g.number = i;
    g.window = i * 100;
    group_event(&g, KVR_STORE, at, 1);

    ok(engine_flags() & KVR_WORKER_HYBRID && engine_why == KVR_WHY_GROUP,
       "one more makes it hybrid");
    engine_close();

    engine_open(&kinds[1], true, 0);
    memset(&g, 0, sizeof(g));
    g.kind = KVR_GROUP_MAMBA;
    group_event(&g, KVR_STORE, at, 1);

    ok(engine_flags() & KVR_WORKER_HYBRID && engine_why == KVR_WHY_GROUP,
       "in a positional index any class does");
    engine_close();
}


int
main(int argc, char **argv)
{
    uint32_t  rounds;

    rounds = argc > 1 ? (uint32_t) strtoul(argv[1], NULL, 0) : ROUNDS;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261122;

    test_rule(rounds);
    test_index(&kinds[0], rounds);
    test_index(&kinds[2], rounds);
    test_killed(argc > 3 ? (uint32_t) strtoul(argv[3], NULL, 0) : STRIDE);
    test_bounds();

    return done();
}
