/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Writers killed while they make room in a full index, between any two
 * instructions of it and at random moments, beside a reader: what is left is
 * whole, and no answer has more than there is.
 *
 *     test_crash_full [rounds [seed]]
 */


#include "processes.h"
#include "radix_fixture.h"

#include "core/kvr_lock.h"


#define VIEWS        40
#define PROMPTS      3000
#define LONGEST      600
#define PHASE        2500               /* events of mostly one shape */


/* The words in the shared memory. */
enum {
    W_PROGRESS = 0,
    W_LOCK,
    W_LOOKUPS,
    W_WRONG
};


static uint32_t length(uint32_t prompt);
static uint32_t share(uint32_t prompt, uint32_t view);
static void words(uint32_t prompt, uint32_t view);
static void event(uint64_t i);
static uint32_t wrong_of(uint32_t prompt);
static void writer(void);
static void reader(void);
static void one_event(void);
static void steps(uint32_t rounds);
static void moments(uint32_t rounds);


/* of prompts, one phase after another */
static const uint32_t  shapes[] = { 1, LONGEST, 3, 40, 1, 200, LONGEST, 8 };

static fx_t      fx;
static fx_t     *f = &fx;
static uint64_t  q[LONGEST], h[LONGEST], back[LONGEST];
static uint64_t  random_;


int
main(int argc, char **argv)
{
    uint32_t  rounds;

    rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 4;
    random_ = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261121;

    for (fx_kind = 0; fx_kind < KVR_INDEX_KINDS; fx_kind++) {
        note("%s", kvr_index_name(fx_kind));

        steps(rounds);
        moments(rounds);
    }

    return done();
}


/* ---- prompts ------------------------------------------------------------ */

static uint32_t
length(uint32_t prompt)
{
    return shapes[prompt % 8];
}


/* As much of it as a view ever stores: so much an answer may have at most. */

static uint32_t
share(uint32_t prompt, uint32_t view)
{
    uint64_t  x;

    x = fx_mix((uint64_t) prompt << 16 | view);

    return x % 4 == 0 ? 0 : 1 + (uint32_t) (x >> 8) % length(prompt);
}


/* Its hashes, and what the view calls them: of some prompts a name of its
 * own. */

static void
words(uint32_t prompt, uint32_t view)
{
    uint32_t  i;

    for (i = 0; i < length(prompt); i++) {
        q[i] = fx_mix((uint64_t) prompt << 16 | i);
        h[i] = q[i] + (prompt % 5 == 0 ? view + 1 : 0);
    }
}


/* ---- events ------------------------------------------------------------- */

static void
event(uint64_t i)
{
    bool      round;
    uint32_t  a, n, what, view, prompt, done, unknown;
    uint64_t  seed;
    kvr_rc_t  rc;

    seed = i;
    view = fx_below(&seed, VIEWS);
    prompt = fx_below(&seed, PROMPTS / 8) * 8;
    prompt += fx_below(&seed, 8) ? i / PHASE % 8 : fx_below(&seed, 8);
    n = share(prompt, view);
    what = fx_below(&seed, 10);
    unknown = 0;
    rc = KVR_OK;

    words(prompt, view);
    kvr_index_set_now(&f->x, (uint32_t) (i / 50));

    if (n && what < 8) {
        (void) kvr_index_store(&f->x, view,
                               what ? KVR_DEVICE : fx_below(&seed, 3), false,
                               0, h, q, n, 0, &done);

    } else if (n && what == 8) {

        /* from its end, or from anywhere */

        a = fx_below(&seed, n);
        n = 1 + fx_below(&seed, n - a);

        if (fx_below(&seed, 2)) {
            fx_backwards(back, h + a, n);

        } else {
            memcpy(back, h + a, n * sizeof(uint64_t));
        }

        rc = kvr_index_remove(&f->x, view, KVR_DEVICE, back, n, &unknown);
    }

    if (rc != KVR_OK || fx_below(&seed, 500) == 0) {

        do {
            round = kvr_index_reclaim(&f->x, fx_dying, &view, 20000);
            kvr_txn_commit(&f->mem);
            kvr_index_begin(&f->x);
        } while (!round || !kvr_index_view_empty(&f->x, view));
    }

    kvr_set64(&f->mem, &f->words[W_PROGRESS], i + 1);
}


/* Views that have more of a prompt than they ever stored. */

static uint32_t
wrong_of(uint32_t prompt)
{
    uint32_t  v, n;

    words(prompt, 0);
    fx_find(f, q, length(prompt));

    for (v = 0, n = 0; v < VIEWS; v++) {
        n += f->depths[2][v] > share(prompt, v)
             || f->depths[0][v] > f->depths[1][v]
             || f->depths[1][v] > f->depths[2][v];
    }

    return n;
}


/* ---- processes ---------------------------------------------------------- */

static void
one_event(void)
{
    kvr_index_begin(&f->x);
    event(f->words[W_PROGRESS]);
    kvr_txn_commit(&f->mem);
}


static void
writer(void)
{
    bool         broken;
    kvr_lock_t  *lock;
    kvr_owner_t  self;

    self = kvr_owner_self();
    lock = (kvr_lock_t *) &f->words[W_LOCK];

    for ( ;; ) {
        if (kvr_lock_acquire(lock, self, 1000, &broken) != KVR_OK) {
            _exit(1);
        }

        one_event();
        kvr_lock_release(lock, self);
    }
}


static void
reader(void)
{
    uint64_t  seed;

    for (seed = f->words[W_LOOKUPS]; /* void */ ; f->words[W_LOOKUPS]++) {
        f->words[W_WRONG] += wrong_of(fx_below(&seed, PROMPTS));
    }
}


/* ---- rounds ------------------------------------------------------------- */

/* Killed after any number of instructions of an event that makes room. */

static void
steps(uint32_t rounds)
{
    bool      good;
    uint32_t  i, k, mid;
    uint64_t  before;

    fx_open(f, 3 << 19, VIEWS);

    while (fx_usage(f).forgotten < 20000) {
        one_event();
    }

    good = true;
    mid = 0;

    for (i = 0; i < rounds && good; i++) {

        /* of events that forget, for most of which a whole chunk goes */

        do {
            before = fx_usage(f).forgotten;
            one_event();
        } while (fx_usage(f).forgotten == before);

        for (k = 0; k < 4 && good; k++) {
            killed_at(one_event, 1 + fx_below(&random_, 300u << 2 * k));
            mid += f->mem.journal->n != 0;
            kvr_txn_rollback(&f->mem);
            good = fx_whole(f, "killed") && wrong_of(i * 4 + k) == 0;
        }
    }

    ok(good, "killed after some instructions, a full index is whole");
    ok(mid > rounds, "%u times in a transaction", mid);
    fx_close(f);
}


/* And at any moment, with a reader. */

static void
moments(uint32_t rounds)
{
    int          status;
    bool         good, broken;
    pid_t        pid, beside;
    uint32_t     i;
    uint64_t     before;
    kvr_lock_t  *lock;
    kvr_owner_t  self;

    fx_open(f, 3 << 19, VIEWS);

    lock = (kvr_lock_t *) &f->words[W_LOCK];
    self = kvr_owner_self();
    beside = start(reader);
    good = true;

    for (i = 0; i < rounds && good; i++) {
        before = f->words[W_PROGRESS];
        pid = start(writer);

        while (kvr_load64(&f->words[W_PROGRESS]) == before) {
            usleep(20);
        }

        usleep(fx_below(&random_, fx_below(&random_, 8) ? 3000 : 50000));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);

        good = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
               && kvr_lock_acquire(lock, self, 1000, &broken) == KVR_OK;

        kvr_txn_rollback(&f->mem);
        good = good && fx_whole(f, "after a crash") && wrong_of(i) == 0;
        kvr_lock_release(lock, self);
    }

    while (waitpid(beside, &status, WNOHANG) == 0
           && kvr_load64(&f->words[W_LOOKUPS]) <= rounds)
    {
        usleep(1000);
    }

    ok(good, "a writer killed %u times leaves a full index whole", i);
    ok(waitpid(beside, &status, WNOHANG) == 0,
       "the reader beside it came to no harm");
    is_u64(f->words[W_WRONG], 0, "no answer was wrong");
    ok(f->words[W_LOOKUPS] > rounds, "of %llu",
       (unsigned long long) f->words[W_LOOKUPS]);
    note("%llu events, %llu handles forgotten",
         (unsigned long long) f->words[W_PROGRESS],
         (unsigned long long) fx_usage(f).forgotten);

    kill(beside, SIGKILL);
    waitpid(beside, &status, 0);
    fx_close(f);
}
