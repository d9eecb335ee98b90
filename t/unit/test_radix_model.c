/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The radix index against the naive model, over random streams of events.
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
    fx_t              f;
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
static void group_make(run_t *r, op_t *op, const op_t *last);
static bool compare(run_t *r, uint32_t prompts);
static bool empty(run_t *r);
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
    uint64_t  seed;

    steps = argc > 1 ? strtoul(argv[1], NULL, 0) : 9000;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261120;
    only = argc > 3 ? strtoul(argv[3], NULL, 0) : UINT32_MAX;

    for (i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {

        if (only != UINT32_MAX && only != i) {
            continue;
        }

        good = profile_run(&profiles[i],
                           (uint64_t) steps * profiles[i].weight / 100,
                           seed + i);
        ok(good, "the index agrees with the model: %s", profiles[i].name);
    }

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

    fx_open(&r->f, 24 << 20, p->views);
    mdl_open(&r->m);

    good = true;

    for (i = 0; i < steps && good; i++) {

        good = step(r) && compare(r, 2);

        if (good && i % 200 == 199) {
            good = fx_whole(&r->f, "the check") && compare(r, 32);
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
    fx_close(&r->f);
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

    rc = fx_store(&r->f, view, tier, parent, r->handles, r->hashes, n);
    known = mdl_store(&r->m, view, tier, parent, r->handles, r->hashes, n);

    if (rc != (known ? KVR_OK : KVR_DECLINED)) {
        note("store: rc %d, parent known %d", rc, known);
        return false;
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

    got = fx_remove(&r->f, view, tier, r->handles, n);
    want = mdl_remove(&r->m, view, tier, r->handles, n);

    if (got != want) {
        note("remove: %u unknown, want %u", got, want);
    }

    return got == want;
}


static bool
step_add_tier(run_t *r)
{
    bool          good;
    uint32_t      i, n, unknown, want;
    kvr_rc_t      rc;
    event_t      *e;
    kvr_tier_t    tier;
    mdl_entry_t  *h;

    e = recent(r, UINT32_MAX);
    if (e == NULL) {
        return true;
    }

    n = at_most(size(r), e->n);
    tier = fx_below(&r->random, KVR_TIERS);
    unknown = 0;
    want = 0;

    kvr_radix_begin(&r->f.x);
    rc = kvr_radix_add_tier(&r->f.x, e->view, tier, e->handles, n, &unknown);
    kvr_txn_commit(&r->f.mem);

    for (i = 0; i < n; i++) {
        h = mdl_get(&r->m.handles, e->view, e->handles[i]);

        if (h == NULL) {
            want++;

        } else if (h->n[tier] == 0) {
            h->n[tier] = 1;
            mdl_get(&r->m.held, e->view, h->node)->n[tier]++;
        }
    }

    good = rc == KVR_OK && unknown == want;

    if (!good) {
        note("add_tier: rc %d, %u unknown, want %u", rc, unknown, want);
    }

    return good;
}


/*
 * A few small events in one transaction, which is rolled back or not.  What
 * the index committed on its way can't be rolled back: then all is kept.
 */

static bool
step_group(run_t *r)
{
    bool        whole;
    uint32_t    i, n, k, unknown;
    op_t       *op, ops[GROUP];
    kvr_rc_t    rc;
    kvr_mem_t  *m;

    m = &r->f.mem;
    n = 1 + fx_below(&r->random, GROUP);
    rc = KVR_OK;
    unknown = 0;

    kvr_radix_begin(&r->f.x);
    k = (uint32_t) m->journal->n;
    kvr_set64(m, &r->f.words[0], r->f.words[0] + 1);

    for (i = 0; i < n; i++) {
        op = &ops[i];
        group_make(r, op, i ? op - 1 : NULL);

        if (op->remove) {
            rc = kvr_radix_remove(&r->f.x, op->view, op->tier, op->handles,
                                  op->n, &unknown);

        } else {
            rc = kvr_radix_store(&r->f.x, op->view, op->tier,
                                 op->parent != 0, op->parent, op->handles,
                                 op->hashes, op->n, 0, &unknown);
        }

        if (rc == KVR_FULL) {
            note("a group: full");
            return false;
        }
    }

    whole = m->journal->n > k
            && m->journal->records[k].where
               == ((uint64_t) ((char *) r->f.words - m->base) << 2
                   | KVR_UNDO_64);

    if (whole && fx_below(&r->random, 3)) {
        kvr_txn_rollback(m);
        r->rolled_back++;
        return true;
    }

    kvr_txn_commit(m);

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
    uint32_t  view;

    view = fx_below(&r->random, r->profile->views);

    fx_reclaim(&r->f, view, 1 + fx_below(&r->random, 3000000));
    mdl_drop(&r->m, view);

    return kvr_radix_view_empty(&r->f.x, view);
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

        if (!fx_agree(&r->f, &r->m, r->prompt, n)) {
            return false;
        }
    }

    return true;
}


/* When all is taken away, the index is as it was at first. */

static bool
empty(run_t *r)
{
    uint32_t      view, t, n;
    uint64_t      b;
    mdl_entry_t  *e;

    for (view = 0; view < r->profile->views; view++) {

        for (t = 0; t < KVR_TIERS; t++) {
            n = 0;

            for (b = 0; b < r->m.handles.nbuckets; b++) {
                for (e = r->m.handles.buckets[b]; e; e = e->next) {
                    if (e->a != view || e->n[t] == 0) {
                        continue;
                    }

                    r->handles[n++] = e->b;

                    if (n == EVENT_MAX) {
                        if (fx_remove(&r->f, view, t, r->handles, n)) {
                            note("view %u, tier %u: handles lost", view, t);
                            return false;
                        }

                        n = 0;
                    }
                }
            }

            if (fx_remove(&r->f, view, t, r->handles, n)) {
                note("view %u, tier %u: handles lost", view, t);
                return false;
            }
        }

        if (view % 64 == 0 && !fx_whole(&r->f, "while it empties")) {
            return false;
        }
    }

    if (r->f.zone->arena.used || r->f.zone->handles.used
        || r->f.zone->blocks || r->f.zone->children_used)
    {
        note("left: %llu words, %llu handles, %llu blocks, %llu runs",
             (unsigned long long) r->f.zone->arena.used,
             (unsigned long long) r->f.zone->handles.used,
             (unsigned long long) r->f.zone->blocks,
             (unsigned long long) r->f.zone->children_used);
        return false;
    }

    return fx_whole(&r->f, "empty");
}
