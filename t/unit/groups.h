/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A model of an engine with several KV-cache groups, in a few lines: random
 * stores and removals, group by group, and the hit of any prompt by the
 * sentences of kvr_hit.h, block by block.
 */


#ifndef GROUPS_H_INCLUDED
#define GROUPS_H_INCLUDED


#include "engine.h"


#define GROUPS     6
#define LETTERS    2                    /* contents of a block */
#define DEPTH      24                   /* blocks of the longest chain */
#define NODES      96                   /* blocks of all chains */
#define STEPS      400


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


static inline uint32_t
below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) ((seed >> 20) % n);
}


/* ---- the rule ----------------------------------------------------------- */

/* Does the class accept n blocks?  Everything is in the index's blocks. */
static inline bool
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


static inline uint32_t
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


/* ---- an engine ---------------------------------------------------------- */

static inline uint64_t
handle_of(uint32_t node)
{
    return (node + 1) * UINT64_C(0x9e3779b97f4a7c15);
}


/* The letters up to and with a block. */
static inline void
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


static inline bool
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


static inline void
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
static inline void
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
static inline uint32_t
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


static inline void
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
static inline uint32_t
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


static inline uint32_t
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


/* The numbers of prompts of which a zone tells something else. */
static inline uint32_t
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
static inline void
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


static inline void
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


#endif /* GROUPS_H_INCLUDED */
