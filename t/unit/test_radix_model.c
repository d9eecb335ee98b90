/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Both indexes against the naive model, side by side, over random streams of
 * events.
 *
 *     test_radix_model [steps of a profile [seed [profile]]]
 */


#include "radix_fixture.h"


#define EVENT_MAX    1300               /* more than 3 runs */
#define EVENTS       128                /* remembered */
#define GROUP        6
#define GROUP_MAX    24
#define PROMPT_MAX   4096


typedef struct {
    const char  *name;
    uint32_t     views;
    uint32_t     hashes;                /* alphabet; 0: all are different */
    uint32_t     handles;               /* alphabet; 0: of the chain */
    bool         opaque;                /* each view has its own */
    uint32_t     blocks;                /* of an event, at most */
    uint32_t     deep;                  /* of 100 stores go on at an end */
    uint32_t     follow;                /* of 100 stores follow a chain */
    uint32_t     remove;                /* of 100 events */
    uint32_t     scatter;               /* of 100 removals: at random */
    uint32_t     tiers;                 /* of 100 events not in device */
    uint32_t     odd;                   /* of 1000 handles: another's */
    uint32_t     reclaim;               /* of 1000 events */
    uint32_t     weight;                /* steps, in hundredths */
} profile_t;


typedef struct {
    uint32_t     view;
    uint32_t     n;
    kvr_tier_t   tier;
    uint64_t     node;                  /* of the last block */
    uint64_t     handles[EVENT_MAX];
} event_t;


/* Of a group in one transaction. */
typedef struct {
    bool         remove;
    uint32_t     view;
    kvr_tier_t   tier;
    uint64_t     parent;                /* of a removal: the block before */
    uint32_t     n;
    uint64_t     handles[GROUP_MAX];
    uint64_t     hashes[GROUP_MAX];
} op_t;


typedef struct {
    const profile_t  *profile;
    uint64_t          seed;
    uint64_t          random;
    fx_t              f[KVR_INDEX_KINDS];
    mdl_t             m;
    event_t           events[EVENTS];
    uint32_t          nevents;
    uint32_t          rolled_back;
    uint64_t          handles[EVENT_MAX];
    uint64_t          hashes[EVENT_MAX];
    uint64_t          prompt[PROMPT_MAX];
} run_t;


static bool profile_run(const profile_t *p, uint32_t steps, uint64_t seed);
static bool step(run_t *r);
static bool step_store(run_t *r);
static bool step_remove(run_t *r);
static bool step_reclaim(run_t *r);
static bool step_add_tier(run_t *r);
static bool step_group(run_t *r);
static bool group_apply(fx_t *f, const op_t *op, uint32_t n, bool *keep);
static void group_make(run_t *r, op_t *op, const op_t *last);
static bool whole(run_t *r, const char *when);
static bool compare(run_t *r, uint32_t prompts);
static bool empty(run_t *r);
static bool empty_view(run_t *r, uint32_t view);
static bool take(run_t *r, uint32_t view, kvr_tier_t tier, uint32_t n);
static uint32_t size(run_t *r);
static uint32_t at_most(uint32_t n, uint32_t max);
static event_t *recent(run_t *r, uint32_t view);


static const profile_t  profiles[] = {
    { "deep chats, their ends removed",
      12, 0, 0, false, 150, 70, 60, 45, 10, 5, 0, 2, 80 },
    { "small alphabets",
      5, 2, 40, false, 12, 30, 0, 45, 60, 30, 50, 5, 250 },
    { "small alphabets, long events",
      3, 2, 900, false, 420, 60, 40, 40, 50, 25, 20, 5, 40 },
    { "one block an event",
      20, 3, 0, false, 1, 85, 20, 48, 30, 10, 10, 2, 250 },
    { "random removals in batches",
      8, 4, 0, false, 40, 50, 40, 50, 95, 10, 5, 3, 150 },
    { "opaque handles",
      16, 6, 0, true, 60, 50, 60, 45, 30, 10, 5, 4, 100 },
    { "the same handles in hundreds of views",
      300, 3, 0, false, 30, 50, 80, 40, 30, 5, 2, 20, 50 },
    { "tiers and handles that move",
      6, 2, 200, true, 30, 40, 50, 40, 50, 75, 100, 5, 150 },
    { "chains over many runs",
      4, 0, 0, true, 1200, 80, 80, 45, 20, 8, 1, 2, 15 }
};


int
main(int argc, char **argv)
{
    bool      good;
    uint32_t  i, only, steps;
    uint64_t  seed, all, wrong;

    all = 0;
    wrong = 0;
    steps = argc > 1 ? strtoul(argv[1], NULL, 0) : 2000;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261120;
    only = argc > 3 ? strtoul(argv[3], NULL, 0) : UINT32_MAX;

    for (i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {

        if (only != UINT32_MAX && only != i) {
            continue;
        }

        good = profile_run(&profiles[i],
                           (uint64_t) steps * profiles[i].weight / 100,
                           seed + i);
        ok(good, "both indexes agree with the model: %s", profiles[i].name);
        all += (uint64_t) steps * profiles[i].weight / 100 * KVR_INDEX_KINDS;
        wrong += !good;
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
    r->seed = seed;
    r->random = seed;

    for (fx_kind = 0; fx_kind < KVR_INDEX_KINDS; fx_kind++) {
        fx_open(&r->f[fx_kind], 48 << 20, p->views);
    }

    mdl_open(&r->m);

    good = true;

    for (i = 0; i < steps && good; i++) {

        good = step(r) && compare(r, 2);

        if (good && i % 200 == 199) {
            good = whole(r, "the check") && compare(r, 32);
        }
    }

    if (good) {
        good = compare(r, 200) && empty(r);
        note("%u groups rolled back", r->rolled_back);
    }

    if (!good) {
        note("seed %llu, step %u of \"%s\"", (unsigned long long) seed, i,
             p->name);
    }

    mdl_close(&r->m);

    for (i = 0; i < KVR_INDEX_KINDS; i++) {
        fx_close(&r->f[i]);
    }

    free(r);

    return good;
}


static bool
step(run_t *r)
{
    uint32_t  n;

    n = fx_below(&r->random, 1000);

    if (n < r->profile->reclaim) {
        return step_reclaim(r);
    }

    if (n < r->profile->reclaim + r->profile->tiers) {
        return step_add_tier(r);
    }

    if (fx_below(&r->random, 5) == 0) {
        return step_group(r);
    }

    if (fx_below(&r->random, 100) < r->profile->remove) {
        return step_remove(r);
    }

    return step_store(r);
}


static uint32_t
size(run_t *r)
{
    uint32_t  max;

    max = r->profile->blocks;

    if (max > 8 && fx_below(&r->random, 2)) {
        max = 8;
    }

    return 1 + fx_below(&r->random, max);
}


/* kvr_min() would ask twice. */

static uint32_t
at_most(uint32_t n, uint32_t max)
{
    return kvr_min(n, max);
}


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
step_store(run_t *r)
{
    bool              known;
    uint32_t          i, n, k, view, skip;
    uint64_t          parent, node;
    kvr_rc_t          rc;
    event_t          *e;
    kvr_tier_t        tier;
    const profile_t  *p;

    p = r->profile;
    view = fx_below(&r->random, p->views);
    n = size(r);
    parent = 0;
    e = recent(r, view);

    if (e && fx_below(&r->random, 100) < p->deep) {
        parent = e->handles[fx_below(&r->random, 3) ? e->n - 1
                            : fx_below(&r->random, e->n)];
    }

    tier = KVR_DEVICE;

    if (fx_below(&r->random, 100) < p->tiers) {
        tier = fx_below(&r->random, KVR_TIERS);
    }

    node = parent ? mdl_node(&r->m, view, parent) : 0;

    if (node == UINT64_MAX || r->m.nodes[node].depth + n > PROMPT_MAX - 8) {
        if (fx_below(&r->random, 8)) {
            parent = 0;
            node = 0;

        } else if (node != UINT64_MAX) {
            return true;
        }
    }

    /* hashes: along a chain that is there, then others */

    k = 0;
    e = recent(r, UINT32_MAX);
    skip = node == UINT64_MAX ? 0 : r->m.nodes[node].depth;

    if (e && fx_below(&r->random, 100) < p->follow) {
        k = mdl_chain(&r->m, e->node, r->prompt, PROMPT_MAX);

        for (i = 0; i < n && skip + i < k; i++) {
            r->hashes[i] = r->prompt[skip + i];
        }

        k = i;

        if (fx_below(&r->random, 3) == 0) {
            k = fx_below(&r->random, k + 1);
        }
    }

    for (i = k; i < n; i++) {
        r->hashes[i] = p->hashes ? 1 + fx_below(&r->random, p->hashes)
                                 : fx_random(&r->random);
    }

    /* handles */

    k = 0;

    for (i = 0; i < n; i++) {

        if (p->handles) {
            r->handles[i] = 1 + fx_below(&r->random, p->handles);

        } else if (node != UINT64_MAX) {
            node = mdl_child(&r->m, node, r->hashes[i]);
            r->handles[i] = r->m.nodes[node].chain
                            ^ (p->opaque ? fx_mix(view) : 0);

        } else {
            r->handles[i] = fx_random(&r->random);
        }

        if (fx_below(&r->random, 1000) < p->odd) {
            e = recent(r, view);

            switch (fx_below(&r->random, 4)) {

            case 0:
                r->handles[i] = fx_random(&r->random);
                break;

            case 1:
                if (i) {
                    r->handles[i] = r->handles[fx_below(&r->random, i)];

                } else if (parent) {
                    r->handles[i] = parent;
                }

                break;

            default:
                if (e) {
                    r->handles[i] = e->handles[fx_below(&r->random, e->n)];
                }
            }
        }
    }

    known = mdl_store(&r->m, view, tier, parent, r->handles, r->hashes, n);

    for (i = 0; i < KVR_INDEX_KINDS; i++) {
        rc = fx_store(&r->f[i], view, tier, parent, r->handles, r->hashes, n);

        if (rc != (known ? KVR_OK : KVR_DECLINED)) {
            note("%s: store: rc %d, parent known %d", kvr_index_name(i), rc,
                 known);
            return false;
        }
    }

    if (!known) {
        return true;
    }

    e = &r->events[r->nevents++ % EVENTS];
    e->view = view;
    e->n = n;
    e->tier = tier;
    e->node = mdl_node(&r->m, view, r->handles[n - 1]);
    memcpy(e->handles, r->handles, n * sizeof(uint64_t));

    return true;
}


static bool
step_remove(run_t *r)
{
    uint32_t     i, n, view, want, got;
    event_t     *e;
    kvr_tier_t   tier;

    e = recent(r, UINT32_MAX);
    if (e == NULL) {
        return true;
    }

    view = e->view;
    tier = fx_below(&r->random, 10) ? e->tier
                                    : fx_below(&r->random, KVR_TIERS);

    if (fx_below(&r->random, 100) < r->profile->scatter) {

        n = size(r);

        for (i = 0; i < n; i++) {
            if (i % 8 == 7) {
                e = recent(r, view);
            }

            r->handles[i] = e->handles[fx_below(&r->random, e->n)];
        }

        if (fx_below(&r->random, 4) == 0) {
            r->handles[fx_below(&r->random, n)] = fx_random(&r->random);
        }

    } else if (fx_below(&r->random, 6) == 0) {

        /* from the head on */
        n = at_most(size(r), e->n);
        memcpy(r->handles, e->handles, n * sizeof(uint64_t));

    } else {
        n = fx_below(&r->random, 3) ? e->n : at_most(size(r), e->n);

        for (i = 0; i < n; i++) {
            r->handles[i] = e->handles[e->n - 1 - i];
        }
    }

    want = mdl_remove(&r->m, view, tier, r->handles, n);

    for (i = 0; i < KVR_INDEX_KINDS; i++) {
        got = fx_remove(&r->f[i], view, tier, r->handles, n);

        if (got != want) {
            note("%s: remove: %u unknown, want %u", kvr_index_name(i), got,
                 want);
            return false;
        }
    }

    return true;
}


static bool
step_add_tier(run_t *r)
{
    uint32_t      i, n, unknown, want;
    kvr_rc_t      rc;
    fx_t         *f;
    event_t      *e;
    kvr_tier_t    tier;
    mdl_entry_t  *h;

    e = recent(r, UINT32_MAX);
    if (e == NULL) {
        return true;
    }

    n = at_most(size(r), e->n);
    tier = fx_below(&r->random, KVR_TIERS);
    want = 0;

    for (i = 0; i < n; i++) {
        h = mdl_get(&r->m.handles, e->view, e->handles[i]);

        if (h == NULL) {
            want++;

        } else if (h->n[tier] == 0) {
            h->n[tier] = 1;
            mdl_get(&r->m.held, e->view, h->node)->n[tier]++;
        }
    }

    for (i = 0; i < KVR_INDEX_KINDS; i++) {
        f = &r->f[i];
        unknown = 0;

        kvr_index_begin(&f->x);
        rc = kvr_index_add_tier(&f->x, e->view, tier, e->handles, n,
                                &unknown);
        kvr_txn_commit(&f->mem);

        if (rc != KVR_OK || unknown != want) {
            note("%s: add_tier: rc %d, %u unknown, want %u",
                 kvr_index_name(i), rc, unknown, want);
            return false;
        }
    }

    return true;
}


/*
 * A few small events in one transaction, which is rolled back or not.  What an
 * index committed on its way can't be rolled back: then all is kept, in both.
 */

static bool
step_group(run_t *r)
{
    bool      keep;
    uint32_t  i, n;
    op_t     *op, ops[GROUP];

    n = 1 + fx_below(&r->random, GROUP);
    keep = fx_below(&r->random, 3) == 0;

    for (i = 0; i < n; i++) {
        group_make(r, &ops[i], i ? &ops[i - 1] : NULL);
    }

    for (i = 0; i < KVR_INDEX_KINDS; i++) {
        if (!group_apply(&r->f[i], ops, n, &keep)) {
            return false;
        }
    }

    for (i = 0; i < KVR_INDEX_KINDS; i++) {
        if (!keep) {
            kvr_txn_rollback(&r->f[i].mem);
        }

        kvr_txn_commit(&r->f[i].mem);
    }

    if (!keep) {
        r->rolled_back++;
        return true;
    }

    for (i = 0; i < n; i++) {
        op = &ops[i];

        if (op->remove) {
            mdl_remove(&r->m, op->view, op->tier, op->handles, op->n);

        } else {
            mdl_store(&r->m, op->view, op->tier, op->parent, op->handles,
                      op->hashes, op->n);
        }
    }

    return true;
}


static bool
group_apply(fx_t *f, const op_t *op, uint32_t n, bool *keep)
{
    uint32_t    k, unknown;
    kvr_rc_t    rc;
    kvr_mem_t  *m;

    m = &f->mem;
    rc = KVR_OK;
    unknown = 0;

    kvr_index_begin(&f->x);
    k = (uint32_t) m->journal->n;
    kvr_set64(m, &f->words[0], f->words[0] + 1);

    for ( /* void */ ; n && rc != KVR_FULL; n--, op++) {

        if (op->remove) {
            rc = kvr_index_remove(&f->x, op->view, op->tier, op->handles,
                                  op->n, &unknown);

        } else {
            rc = kvr_index_store(&f->x, op->view, op->tier, op->parent != 0,
                                 op->parent, op->handles, op->hashes, op->n,
                                 0, &unknown);
        }
    }

    /* was there a commit? */

    *keep = *keep || m->journal->n <= k
            || m->journal->records[k].where
               != ((uint64_t) ((char *) f->words - m->base) << 2
                   | KVR_UNDO_64);

    if (rc == KVR_FULL) {
        note("%s: a group: full", kvr_index_name(f->zone->kind));
    }

    return rc != KVR_FULL;
}


static void
group_make(run_t *r, op_t *op, const op_t *last)
{
    uint32_t  i, k, first;
    event_t  *e;

    e = recent(r, UINT32_MAX);

    op->remove = e && fx_below(&r->random, 2);
    op->view = e ? e->view : 0;
    op->tier = fx_below(&r->random, 8) ? KVR_DEVICE : KVR_HOST;
    op->n = 1 + fx_below(&r->random, GROUP_MAX);
    op->parent = 0;

    if (e == NULL) {
        op->n = 1;
        op->handles[0] = 1;
        op->hashes[0] = 1;
        return;
    }

    op->n = kvr_min(op->n, e->n);
    first = fx_below(&r->random, 2) ? e->n - op->n
                                    : fx_below(&r->random,
                                               e->n - op->n + 1);

    for (i = 0; i < op->n; i++) {
        op->handles[i] = e->handles[first + op->n - 1 - i];
    }

    if (op->remove) {
        op->parent = first ? e->handles[first - 1] : 0;
        return;
    }

    /* in the place of what was removed just before, */

    if (last && last->remove && fx_below(&r->random, 2)) {
        op->view = last->view;
        op->parent = last->parent;

    } else {
        op->parent = e->handles[fx_below(&r->random, e->n)];
    }

    /* or behind any block; the handles in order, new ones, or backwards */

    k = fx_below(&r->random, 3);

    for (i = 0; i < op->n; i++) {
        if (k == 0) {
            op->handles[i] = e->handles[first + i];

        } else if (k == 1) {
            op->handles[i] = fx_random(&r->random);
        }

        op->hashes[i] = 1 + fx_below(&r->random, 2);
    }
}


static bool
step_reclaim(run_t *r)
{
    bool      good;
    uint32_t  i, view, slots;

    view = fx_below(&r->random, r->profile->views);
    slots = 1 + fx_below(&r->random, 3000000);
    mdl_drop(&r->m, view);
    good = true;

    for (i = 0; i < KVR_INDEX_KINDS; i++) {
        fx_reclaim(&r->f[i], view, slots);
        good = good && kvr_index_view_empty(&r->f[i].x, view);
    }

    return good;
}


static bool
whole(run_t *r, const char *when)
{
    return fx_whole(&r->f[0], when) && fx_whole(&r->f[1], when);
}


/* Prompts along the chains remembered, some with a change or more behind. */

static bool
compare(run_t *r, uint32_t prompts)
{
    uint32_t  n, k;
    event_t  *e;

    while (prompts--) {

        e = recent(r, UINT32_MAX);
        if (e == NULL) {
            return true;
        }

        n = mdl_chain(&r->m, e->node, r->prompt, PROMPT_MAX - 4);

        for (k = fx_below(&r->random, 4); k > 0; k--) {
            r->prompt[n++] = 1 + fx_below(&r->random, 3);
        }

        if (n && fx_below(&r->random, 4) == 0) {
            r->prompt[fx_below(&r->random, n)] = 1;
        }

        if (n && fx_below(&r->random, 4) == 0) {
            n = 1 + fx_below(&r->random, n);
        }

        for (k = 0; k < KVR_INDEX_KINDS; k++) {
            if (!fx_agree(&r->f[k], &r->m, r->prompt, n)) {
                return false;
            }
        }
    }

    return true;
}


/* When all is taken away, the indexes are as they were at first. */

static bool
empty(run_t *r)
{
    uint32_t            i, view;
    kvr_index_usage_t   u;

    for (view = 0; view < r->profile->views; view++) {

        if (!empty_view(r, view)) {
            return false;
        }

        if (view % 64 == 0 && !whole(r, "while it empties")) {
            return false;
        }
    }

    for (i = 0; i < KVR_INDEX_KINDS; i++) {

        if (!fx_empty(&r->f[i])) {
            u = fx_usage(&r->f[i]);
            note("%s: left: %llu bytes, %llu handles, %llu blocks, %llu "
                 "entries", kvr_index_name(i), (unsigned long long) u.arena,
                 (unsigned long long) u.handles,
                 (unsigned long long) u.blocks,
                 (unsigned long long) u.entries);
            return false;
        }
    }

    return whole(r, "empty");
}


static bool
empty_view(run_t *r, uint32_t view)
{
    uint32_t      t, n;
    uint64_t      b;
    mdl_entry_t  *e;

    for (t = 0; t < KVR_TIERS; t++) {
        n = 0;

        for (b = 0; b < r->m.handles.nbuckets; b++) {
            for (e = r->m.handles.buckets[b]; e; e = e->next) {

                if (e->a != view || e->n[t] == 0) {
                    continue;
                }

                r->handles[n++] = e->b;

                if (n == EVENT_MAX) {
                    if (!take(r, view, t, n)) {
                        return false;
                    }

                    n = 0;
                }
            }
        }

        if (!take(r, view, t, n)) {
            return false;
        }
    }

    return true;
}


/* Takes r->handles, all of which must be there. */

static bool
take(run_t *r, uint32_t view, kvr_tier_t tier, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < KVR_INDEX_KINDS; i++) {
        if (fx_remove(&r->f[i], view, tier, r->handles, n)) {
            note("%s: view %u, tier %u: handles lost", kvr_index_name(i),
                 view, tier);
            return false;
        }
    }

    return true;
}
