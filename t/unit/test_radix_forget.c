/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Forgetting: what makes room in a full index, and what ttl= takes out.
 */


#include "processes.h"
#include "radix_fixture.h"

#include <sys/time.h>


#define MAX       4096


static void oldest(void);
static void prefixes(void);
static void staircase(void);
static void longest(void);
static void costly(void);
static void ttl(void);
static void in_vain(void);
static void hints(void);
static void shapes(void);
static void smaller(void);
static void crowd(void);
static void killed(void);
static void forget_and_die(void);
static void forget_all(void);
static void model(void);
static bool model_sync(mdl_t *m, uint64_t before, uint64_t *lost);
static void forgot(void *data, uint32_t view, uint32_t handles);


static fx_t      fx;
static fx_t     *f = &fx;
static uint64_t  q[MAX], h[MAX];
static uint64_t  told[FX_VIEWS];
static uint32_t  now;
static uint32_t  wait_us;
static uint32_t  steps = 2000;          /* of the model's */


int
main(int argc, char **argv)
{
    if (argc > 1) {
        steps = strtoul(argv[1], NULL, 0);
    }

    for (fx_kind = 0; fx_kind < KVR_INDEX_KINDS; fx_kind++) {
        note("%s", kvr_index_name(fx_kind));

        oldest();
        prefixes();
        staircase();
        longest();
        costly();
        ttl();
        smaller();
        model();
    }

    /* what only the radix index has */

    fx_kind = KVR_INDEX_RADIX;

    in_vain();
    hints();
    shapes();
    crowd();
    killed();

    return done();
}


static void
forgot(void *data, uint32_t view, uint32_t handles)
{
    uint64_t *to = data;

    to[view] += handles;
}


static void
open_small(size_t size, uint32_t views)
{
    fx_open(f, size, views);

    now = 0;
    memset(told, 0, sizeof(told));
    kvr_index_on_forget(&f->x, forgot, told);
}


static uint64_t
told_all(void)
{
    uint32_t  v;
    uint64_t  n;

    n = 0;

    for (v = 0; v < FX_VIEWS; v++) {
        n += told[v];
    }

    return n;
}


static uint32_t
depth_of(uint32_t view, uint64_t first, uint32_t n)
{
    fx_count(q, first, n);
    fx_find(f, q, n);

    return f->depths[2][view];
}


/*
 * Ten times what there is room for, a second each; 20 prompts are asked for
 * all the time.
 */

static void
oldest(void)
{
    uint32_t  i, k, bad, whole, last;

    open_small(2 << 20, 8);
    bad = 0;
    last = 0;

    for (i = 1; i <= 20000; i++) {
        kvr_index_set_now(&f->x, ++now);
        fx_count(q, i * 1000, 30);
        bad += fx_store(f, i % 8, KVR_DEVICE, 0, q, q, 30) != KVR_OK;

        for (k = 1; k <= 20 && i % 20 == 0 && k <= i; k++) {
            (void) depth_of(k % 8, k * 1000, 30);
        }
    }

    is_u64(bad, 0, "a full index stores on");
    ok(fx_whole(f, "after much forgetting"), "it is whole");
    ok(fx_usage(f).forgotten > 300000 && told_all() == fx_usage(f).forgotten
       && fx_usage(f).pairs + fx_usage(f).forgotten == 600000,
       "what it forgot is told and counted (%lu)",
       (unsigned long) fx_usage(f).forgotten);

    whole = 0;

    for (k = 1; k <= 20; k++) {
        whole += depth_of(k % 8, k * 1000, 30) == 30;
    }

    is_u64(whole, 20, "what was asked for all the time is there");

    whole = 0;

    for (i = 20000 - 99; i <= 20000; i++) {
        last += depth_of(i % 8, i * 1000, 30) == 30;
    }

    for (i = 21; i <= 10000; i++) {
        whole += depth_of(i % 8, i * 1000, 30) == 30;
    }

    ok(last >= 98, "the last ones are there (%u of 100)", last);
    is_u64(whole, 0, "the old ones are not");

    for (i = 0; i < 8; i++) {
        fx_reclaim(f, i, 100000);
    }

    is_empty(f, "and in the end nothing is left");
    fx_close(f);
}


/* Chains of many runs: their ends go first, what is left is a prefix. */

static void
prefixes(void)
{
    bool      good;
    uint32_t  i, k, n, depth;

    open_small(2 << 20, 8);
    good = true;

    for (i = 1; i <= 200; i++) {
        kvr_index_set_now(&f->x, ++now);
        fx_count(q, i * 10000, 2000);
        good = good
               && fx_store(f, i % 8, KVR_DEVICE, 0, q, q, 2000) == KVR_OK;
    }

    n = 0;

    for (i = 1; i <= 200; i++) {
        depth = depth_of(i % 8, i * 10000, 2000);

        /* prefixes, by handles too: what is gone is unknown */

        for (k = 0; k < 2000; k += 100) {
            good = good && kvr_index_knows(&f->x, i % 8, i * 10000 + k)
                           == (k < depth);
        }

        n += depth > 0 && depth < 2000;
    }

    ok(good && fx_whole(f, "prefixes"),
       "of a chain its end is forgotten first (%u are prefixes)", n);
    fx_close(f);
}


/* Every run is one block long and all hang on one another. */

static void
staircase(void)
{
    uint32_t  i, bad;
    uint64_t  parent;

    open_small(1 << 20, 8);
    bad = 0;
    parent = 0;

    for (i = 1; i <= 20000; i++) {

        /* two children each, so that none is appended */

        kvr_index_set_now(&f->x, ++now);
        h[0] = i * 2;
        q[0] = i * 2;
        bad += fx_store(f, 0, KVR_DEVICE, parent, h, q, 1) != KVR_OK;
        h[0] = i * 2 + 1;
        q[0] = i * 2 + 1;
        bad += fx_store(f, 0, KVR_DEVICE, parent, h, q, 1) != KVR_OK;

        parent = i % 1000 ? i * 2 : 0;
    }

    is_u64(bad, 0, "staircases make room, too");
    ok(fx_whole(f, "staircases") && fx_usage(f).forgotten,
       "and the index is whole");
    fx_close(f);
}


/* One chain that is longer than the index has room for. */

static void
longest(void)
{
    uint32_t  n;
    uint64_t  parent;
    kvr_rc_t  rc;

    open_small(1 << 20, 8);
    fx_count(q, 1, 100);
    fx_store(f, 1, KVR_DEVICE, 0, q, q, 100);

    parent = 0;
    rc = KVR_OK;

    for (n = 0; rc == KVR_OK && n < 1000000; n += 50) {
        kvr_index_set_now(&f->x, ++now);
        fx_count(q, 1000 + n, 50);
        rc = fx_store(f, 0, KVR_DEVICE, parent, q, q, 50);
        parent = 1000 + n + 49;
    }

    is_u64(rc, (uint64_t) KVR_FULL,
           "one chain longer than the index is refused in the end");
    ok(fx_whole(f, "the longest chain") && told[1] == 100 && told[0] == 0,
       "all others made room for it, and it is whole");
    fx_close(f);
}


/*
 * Few prompts, each on all of FX_VIEWS views: to forget a chunk of them at once
 * would cost many times what an event may.
 */

static void
costly(void)
{
    uint32_t  v, n, bad;
    uint64_t  was, most;

    open_small(1 << 20, FX_VIEWS);
    fx_set_tries(f, 2000);
    bad = 0;
    most = 0;

    for (n = 1; n <= 400; n++) {
        kvr_index_set_now(&f->x, ++now);

        for (v = 0; v < FX_VIEWS; v++) {
            was = fx_usage(f).forgotten;
            h[0] = n;
            q[0] = n;
            bad += fx_store(f, v, KVR_DEVICE, 0, h, q, 1) == KVR_INVALID;
            most = kvr_max(most, fx_usage(f).forgotten - was);
        }
    }

    ok(most > 0 && most <= 2 * 2000 && bad == 0,
       "what one event forgets is bounded: %u handles", (uint32_t) most);
    ok(fx_whole(f, "costly"), "and the index is whole");
    fx_close(f);
}


static void
ttl(void)
{
    bool      good;
    uint32_t  i, k, run, rounds;

    open_small(16 << 20, 8);

    /* what goes at once: a run, or a block */

    run = fx_kind == KVR_INDEX_RADIX ? KVR_RUN_MAX : 100;
    kvr_index_set_now(&f->x, 1000);

    for (i = 1; i <= 100; i++) {
        fx_count(q, i * 10000, 1000);
        fx_store(f, i % 8, KVR_DEVICE, 0, q, q, 1000);
    }

    kvr_index_set_now(&f->x, 1050);

    for (i = 1; i <= 50; i++) {
        (void) depth_of(i % 8, i * 10000, i <= 25 ? 100 : 1000);
    }

    kvr_index_set_now(&f->x, 1100);

    for (rounds = 0; rounds < 4; /* void */ ) {
        kvr_index_begin(&f->x);
        rounds += kvr_index_forget(&f->x, 60, 100);
        kvr_txn_commit(&f->mem);
    }

    good = true;

    for (i = 1; i <= 100; i++) {
        k = depth_of(i % 8, i * 10000, 1000);
        good = good && k == (i <= 25 ? run : i <= 50 ? 1000 : 0);
    }

    ok(good && fx_whole(f, "ttl"),
       "what was not used for the time to live is forgotten, run by run");

    kvr_index_set_now(&f->x, 1105);

    kvr_index_begin(&f->x);
    while (!kvr_index_forget(&f->x, 60, 1000)) { /* void */ }
    kvr_txn_commit(&f->mem);

    is_u64(depth_of(3, 30000, 1000), run,
           "what was used since is not");

    kvr_index_set_now(&f->x, 2000);

    for (rounds = 0; rounds < 4; /* void */ ) {
        kvr_index_begin(&f->x);
        rounds += kvr_index_forget(&f->x, 60, 100);
        kvr_txn_commit(&f->mem);
    }

    is_empty(f, "in the end all is");
    is_u64(told_all(), 100000, "and told");
    fx_close(f);
}


/* More handles for the same blocks than a view may have: no room helps. */

static void
in_vain(void)
{
    uint32_t  i;
    kvr_rc_t  rc;

    open_small(16 << 20, 8);
    fx_count(q, 1000000, 30);
    fx_store(f, 1, KVR_DEVICE, 0, q, q, 30);

    fx_count(q, 1, KVR_RUN_MAX);
    rc = KVR_OK;

    for (i = 1; rc == KVR_OK && i < 100; i++) {
        fx_count(h, i * 10000, KVR_RUN_MAX);
        rc = fx_store(f, 0, KVR_DEVICE, 0, h, q, KVR_RUN_MAX);
    }

    is_u64(rc, (uint64_t) KVR_FULL,
           "too many handles for the same blocks are refused");
    ok(f->zone->u.radix.forgotten == 0 && fx_whole(f, "in vain"),
       "and nothing is forgotten for it");
    fx_close(f);
}


/* Runs are forgotten, and others' hashes come to where they were. */

static void
hints(void)
{
    uint32_t  i;

    open_small(8 << 20, 8);
    kvr_index_set_now(&f->x, 1);

    for (i = 1; i <= 500; i++) {
        h[0] = i * 1000;
        q[0] = i;
        fx_store(f, 0, KVR_DEVICE, 0, h, q, 1);
    }

    kvr_index_set_now(&f->x, 1000);
    forget_all();

    for (i = 0; i < 100; i++) {
        h[i] = (i + 1) * 1000;
        q[i] = UINT64_C(0xfff0fff0fff0fff0) - i;
    }

    (void) fx_store(f, 0, KVR_HOST, 0, h, q, 100);
    is_depth(f, q, 0, 100, 0, 100, 100,
             "a handle is not looked for where its run was");
    fx_close(f);
}


/*
 * What is forgotten for one store, where all that there is is of another
 * shape: pieces of the sizes that it lacks are nobody's.
 */

static void
shapes(void)
{
    uint32_t  i, v, bad;
    uint64_t  before;

    open_small(4 << 20, 8);
    bad = 0;

    for (i = 1; fx_usage(f).forgotten == 0; i++) {
        q[0] = i;
        bad += fx_store(f, i % 8, KVR_DEVICE, 0, q, q, 1) != KVR_OK;
    }

    fx_count(q, 1 << 20, 300);
    before = fx_usage(f).forgotten;

    for (v = 0; v < 8; v++) {
        bad += fx_store(f, v, KVR_DEVICE, 0, q, q, 300) != KVR_OK;
    }

    before = fx_usage(f).forgotten - before;
    ok(bad == 0 && before > 0 && before < 400,
       "where all prompts are short, room is made for a long one, and not "
       "of all of them (%lu of %u)", (unsigned long) before, i);
    ok(fx_whole(f, "shapes"), "it is whole");
    fx_close(f);

    bad = 0;

    open_small(4 << 20, 8);

    for (i = 1; fx_usage(f).forgotten == 0; i++) {
        fx_count(q, i * 10000, 600);
        bad += fx_store(f, i % 8, KVR_DEVICE, 0, q, q, 600) != KVR_OK;
    }

    before = fx_usage(f).forgotten;

    for (i = 1; i <= 200; i++) {
        q[0] = i;
        bad += fx_store(f, i % 8, KVR_DEVICE, 0, q, q, 1) != KVR_OK;
    }

    before = fx_usage(f).forgotten - before;
    ok(bad == 0 && before < 10000 && fx_whole(f, "shapes"),
       "where all are long, it is made for short ones (%lu)",
       (unsigned long) before);
    fx_close(f);
}


/*
 * What gets smaller would move to a smaller piece, and stays where it is when
 * there is none: no room is to be made for that.
 */

static void
smaller(void)
{
    uint32_t      i, piece;
    kvr_arena_t  *arena;

    open_small(4 << 20, 8);
    arena = kvr_index_arena(&f->x);

    for (i = 0; i < 300; i++) {
        q[i] = fx_kind == KVR_INDEX_RADIX ? i + 1 : 1;
        h[i] = i + 1;
    }

    if (fx_kind == KVR_INDEX_RADIX) {
        fx_store(f, 0, KVR_DEVICE, 0, h, q, 300);
    }

    for (i = 0; fx_kind == KVR_INDEX_POSITIONAL && i < 300; i++) {
        fx_store(f, 0, KVR_DEVICE, 0, &h[i], q, 1);
    }

    do {
        kvr_index_begin(&f->x);
        piece = kvr_arena_alloc(arena, 1);
        kvr_txn_commit(&f->mem);
    } while (piece);

    is_u64(arena->lack.class, 1, "no piece is free, be it the smallest");
    fx_backwards(q, h + 50, 250);
    is_u64(fx_remove(f, 0, KVR_DEVICE, q, 250), 0, "most of it goes");
    is_u64(arena->lack.class, 0, "and lacks nothing");
    fx_close(f);
}


/* A handle names another block each time, and its old ones stay in use. */

static void
crowd(void)
{
    uint32_t  i, bad;

    open_small(128 << 20, 8);
    bad = 0;

    for (i = 1; i <= 130000; i++) {
        h[0] = 7;
        q[0] = i * 10;
        h[1] = i * 10 + 1;
        q[1] = i * 10 + 1;
        bad += fx_store(f, 0, KVR_DEVICE, 0, h, q, 2) != KVR_OK;
    }

    is_u64(bad, 0, "a handle may move as often as it likes");
    ok(kvr_index_knows(&f->x, 0, 7) && f->zone->u.radix.forgotten == 0
       && f->zone->u.radix.pairs == 130001, "and is at one place only");

    kvr_index_set_now(&f->x, 1000);
    forget_all();
    is_empty(f, "all of it may be forgotten");
    fx_close(f);
}


/*
 * Who holds blocks by names of its own lets go of names and blocks at once,
 * whenever it is killed.
 */

static void
killed(void)
{
    int        status;
    bool       good;
    pid_t      pid;
    uint32_t   i, v, kills, round;

    good = true;
    kills = 0;

    for (round = 0; good && round < 60; round++) {

        open_small(4 << 20, 8);
        fx_count(q, 1, KVR_RUN_MAX);

        for (v = 0; v < 3; v++) {
            for (i = 1; i <= 3; i++) {
                fx_count(h, (v * 3 + i) * 10000, KVR_RUN_MAX);
                fx_store(f, v, KVR_DEVICE, 0, h, q, KVR_RUN_MAX);
            }
        }

        kvr_index_set_now(&f->x, 1000);
        wait_us = 10 + round * 10;
        pid = start(forget_and_die);

        if (waitpid(pid, &status, 0) != pid) {
            perror("waitpid");
            exit(1);
        }

        kills += WIFSIGNALED(status);

        (void) kvr_txn_rollback(&f->mem);
        good = fx_whole(f, "killed while it forgot");

        forget_all();
        good = good && f->zone->u.radix.pairs == 0
               && fx_whole(f, "forgotten in the end");
        fx_close(f);
    }

    ok(good && kills, "killed while it forgets, %u times", kills);
}


/* SIGALRM kills. */

static void
forget_and_die(void)
{
    struct itimerval  t;

    memset(&t, 0, sizeof(t));
    t.it_value.tv_usec = wait_us;
    setitimer(ITIMER_REAL, &t, NULL);

    forget_all();
}


static void
forget_all(void)
{
    kvr_index_begin(&f->x);

    while (!kvr_index_forget(&f->x, 60, 100000)) { /* void */ }

    kvr_txn_commit(&f->mem);
}


/*
 * Random streams in an index that is much too small, beside the model, from
 * which is taken what the index has forgotten: the rest must agree.
 */

static void
model(void)
{
    bool        good;
    mdl_t       m;
    uint32_t    i, k, n, v, step, stores;
    uint64_t    seed, lost, parent, before, known[64];
    kvr_tier_t  tier;

    open_small(768 << 10, 8);
    mdl_open(&m);
    memset(known, 0, sizeof(known));

    seed = 20261121;
    lost = 0;
    stores = 0;
    good = true;

    for (step = 0; good && step < steps; step++) {

        now += step % 16 == 0;
        kvr_index_set_now(&f->x, now);
        before = fx_usage(f).forgotten;
        v = fx_below(&seed, 8);
        tier = fx_below(&seed, 12) ? KVR_DEVICE : fx_below(&seed, 4);

        if (fx_below(&seed, 4)) {

            n = 1 + fx_below(&seed, fx_below(&seed, 8) ? 40 : 600);
            parent = fx_below(&seed, 3) ? known[fx_below(&seed, 64)] : 0;

            if (!kvr_index_knows(&f->x, v, parent)) {
                parent = 0;
            }

            for (i = 0; i < n; i++) {
                q[i] = fx_below(&seed, 3) + (i > 3 ? fx_random(&seed) : 0);
                h[i] = fx_mix(q[i] ^ fx_mix(i ? h[i - 1] : parent))
                       + (fx_below(&seed, 900) == 0);
            }

            good = fx_store(f, v, tier, parent, h, q, n) == KVR_OK
                   && model_sync(&m, before, &lost)
                   && mdl_store(&m, v, tier, parent, h, q, n)
                   && model_sync(&m, before, &lost);

            known[fx_below(&seed, 64)] = h[fx_below(&seed, n)];
            stores++;

        } else {

            k = fx_below(&seed, 64);

            for (i = 0; i < 8; i++) {
                h[i] = known[(k + i) % 64];
            }

            (void) fx_remove(f, v, tier, h, 8);
            good = model_sync(&m, before, &lost);
            (void) mdl_remove(&m, v, tier, h, 8);
            n = 0;
        }

        good = good && m.handles.n == fx_usage(f).pairs
               && fx_agree(f, &m, q, n);

        if (step % 200 == 0) {
            good = good && fx_whole(f, "the model's check");
        }
    }

    note("%u steps, %u stores, %lu handles forgotten, %lu for good", step,
         stores, (unsigned long) fx_usage(f).forgotten, (unsigned long) lost);

    ok(good && lost && fx_usage(f).forgotten == told_all(),
       "with what was forgotten taken out, the model agrees");

    mdl_close(&m);
    fx_close(f);
}


/* Takes out of the model what the index does not know any more. */

static bool
model_sync(mdl_t *m, uint64_t before, uint64_t *lost)
{
    uint32_t      t, view;
    uint64_t      b, handle;
    mdl_entry_t  *e, *next;

    if (before == fx_usage(f).forgotten) {
        return true;
    }

    for (b = 0; b < m->handles.nbuckets; b++) {
        for (e = m->handles.buckets[b]; e; e = next) {
            next = e->next;
            view = e->a;
            handle = e->b;

            if (kvr_index_knows(&f->x, view, handle)) {
                continue;
            }

            for (t = 0; t < KVR_TIERS; t++) {
                (void) mdl_remove(m, view, t, &handle, 1);
            }

            (*lost)++;
        }
    }

    return true;
}
