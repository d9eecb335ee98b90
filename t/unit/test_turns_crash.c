/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Processes that are killed in the turn cache: at many instructions of a find
 * and of a keep, and at any time while several of them are at work.  What is
 * found is right, and no slot is lost for good.
 *
 *     test_turns_crash [rounds [seed [stride]]]
 */


#include "turns_fixture.h"
#include "processes.h"


#ifdef __SANITIZE_ADDRESS__
#define ROUNDS      30
#define STRIDE      1499            /* instructions between two kills */
#else
#define ROUNDS      100
#define STRIDE      97
#endif

#define WRITERS     3
#define WORLD       40              /* different texts' beginnings */


/* What processes share beside the cache. */
typedef struct {
    uint64_t    wrong;
    uint64_t    turns;
    uint64_t    hits;
} shared_t;


static void do_keep(void);
static void do_find(void);
static void kills_in(const char *name, void (*fn)(void), uint32_t stride);
static void taken_again(void);
static void any_text(tx_text_t *x, uint64_t *seed);
static void writer(void);
static void rounds_of(uint32_t rounds);


static tx_t       f;
static tx_text_t  text, other;
static uint64_t   random_, clock_;
static shared_t  *shared;


int
main(int argc, char **argv)
{
    uint32_t  i, rounds, stride;

    rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : ROUNDS;
    random_ = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261122;
    stride = argc > 3 ? strtoul(argv[3], NULL, 0) : STRIDE;

    shared = shared_memory(sizeof(shared_t));

    tx_open(&f, 20 << 10, 4, false);                /* one set */

    text.n = 3;
    other.n = 3;

    for (i = 0; i < 3; i++) {
        text.part[i] = i + 11;
        other.part[i] = i + 51;
    }

    tx_build(&f, &text);
    tx_build(&f, &other);

    kills_in("keep", do_keep, stride);
    kills_in("find", do_find, stride);
    taken_again();

    tx_close(&f);

    rounds_of(rounds);

    return done();
}


/* ---- one call ----------------------------------------------------------- */

static void
do_keep(void)
{
    kvr_turns_entry_t  e;

    memset(&e, 0, sizeof(e));
    (void) tx_keep(&f, &text, 0, clock_, &e);
    (void) tx_keep(&f, &text, 2, clock_, &e);
}


static void
do_find(void)
{
    uint32_t           tail[4];
    uint64_t           hashes[3 * IDS];
    kvr_turns_entry_t  e;

    (void) kvr_turns_find(&f.t, &f.terms, text.cuts, text.n, hashes, 3 * IDS,
                          tail, clock_, &e);
}


/* All slots are written, by entries of other texts. */

static void
prepare(void)
{
    char                why[KVR_SLOTS_WHY];
    uint32_t            i;
    tx_text_t           full;
    kvr_turns_entry_t   e;

    (void) kvr_turns_format(f.base, f.size, why);
    (void) kvr_turns_attach(&f.t, f.base, f.size, why);

    for (i = 0; i < KVR_SLOTS_WAYS; i++) {
        full.n = 1;
        full.part[0] = i + 100;
        tx_build(&f, &full);
        memset(&e, 0, sizeof(e));
        (void) tx_keep(&f, &full, 0, clock_ + i, &e);
    }

    clock_ += KVR_SLOTS_WAYS;
}


static uint32_t
odd_slots(void)
{
    uint32_t  i, n;

    for (i = 0, n = 0; i < KVR_SLOTS_WAYS; i++) {
        n += *((uint64_t *) f.t.slots.slots + i * KVR_SLOTS_SIZE / 8) & 1;
    }

    return n;
}


static void
kills_in(const char *name, void (*fn)(void), uint32_t stride)
{
    bool               good, inside, right;
    uint32_t           n, steps, odd, found[3];
    kvr_turns_entry_t  e;

    good = true;
    inside = true;
    n = 0;
    odd = 0;
    memset(found, 0, sizeof(found));

    for (steps = 1 + fx_random(&random_) % stride;
         good && inside;
         steps += 1 + fx_random(&random_) % (2 * stride))
    {
        prepare();

        if (fn == do_find) {
            do_keep();
        }

        inside = killed_at(fn, steps);
        odd += odd_slots() != 0;

        (void) tx_find(&f, &text, clock_, &e, &right);
        found[e.tokens == 0 ? 0 : e.depth + 1]++;
        good = right;

        /* another process keeps the same, at once, and what it can't keep it
         * can a second later */

        clock_++;
        do_keep();
        (void) tx_find(&f, &text, clock_, &e, &right);
        good = good && right && (fn != do_find || e.depth == 1);

        clock_ += KVR_SLOTS_DEAD;
        do_keep();
        good = tx_find(&f, &text, clock_, &e, &right) == KVR_OK && right
               && e.byte == text.cuts[2].byte && good;

        n++;
    }

    ok(good && n > 10 && (fn == do_find || (found[0] && found[1])),
       "%s: killed at %u places, nothing wrong is found: nothing %u times, "
       "the first entry %u times, both %u times", name, n, found[0], found[1],
       found[2]);

    if (fn == do_keep) {
        ok(odd > 0, "a slot was being written %u times, and was taken again "
           "after %u ms", odd, KVR_SLOTS_DEAD);

    } else {
        is_u64(odd, 0, "a find leaves all slots as they are");
    }
}


/* All slots of the set are those of dead writers. */

static void
taken_again(void)
{
    bool               right;
    uint32_t           i;
    kvr_turns_entry_t  e;

    prepare();

    for (i = 0; i < KVR_SLOTS_WAYS; i++) {
        *((uint64_t *) f.t.slots.slots + i * KVR_SLOTS_SIZE / 8) |= 1;
    }

    memset(&e, 0, sizeof(e));
    ok(tx_keep(&f, &other, 0, clock_, &e) == KVR_BUSY
       && tx_stats(&f).busy == 1,
       "if writers have died in all slots of a set, nothing is kept, which is "
       "counted");

    clock_ += KVR_SLOTS_DEAD + KVR_SLOTS_WAYS;
    ok(tx_keep(&f, &other, 0, clock_, &e) == KVR_OK
       && tx_find(&f, &other, clock_, &e, &right) == KVR_OK && right,
       "a second later it is");
}


/* ---- many at once ------------------------------------------------------- */

static void
any_text(tx_text_t *x, uint64_t *seed)
{
    uint32_t  i, first;

    first = fx_random(seed) % WORLD;
    x->n = 1 + fx_random(seed) % 12;

    for (i = 0; i < x->n; i++) {
        x->part[i] = first * 100 + i + (i > 6 ? fx_random(seed) % 2 : 0);
    }

    tx_build(&f, x);
}


static void
writer(void)
{
    kvr_rc_t          rc;
    uint64_t          seed;
    static tx_text_t  x;

    seed = fx_now_ns();

    for ( ;; ) {
        any_text(&x, &seed);

        if (!tx_turn(&f, &x, fx_now_ns() / 1000000, &rc)) {
            (void) __atomic_fetch_add(&shared->wrong, 1, __ATOMIC_RELAXED);
        }

        (void) __atomic_fetch_add(&shared->turns, 1, __ATOMIC_RELAXED);
        (void) __atomic_fetch_add(&shared->hits, rc == KVR_OK,
                                  __ATOMIC_RELAXED);
    }
}


static void
rounds_of(uint32_t rounds)
{
    int                status;
    bool               right;
    pid_t              pids[WRITERS];
    uint32_t           i, k, found;
    uint64_t           turns;
    kvr_turns_entry_t  e;
    kvr_turns_stats_t  s;

    tx_open(&f, 150 << 10, 1, false);

    for (k = 0; k < WRITERS; k++) {
        pids[k] = start(writer);
    }

    for (i = 0; i < rounds; i++) {
        turns = __atomic_load_n(&shared->turns, __ATOMIC_RELAXED);

        while (__atomic_load_n(&shared->turns, __ATOMIC_RELAXED) < turns + 20)
        {
            usleep(200);
        }

        usleep(fx_random(&random_) % 1000);

        k = fx_random(&random_) % WRITERS;
        kill(pids[k], SIGKILL);
        waitpid(pids[k], &status, 0);
        pids[k] = start(writer);
    }

    for (k = 0; k < WRITERS; k++) {
        kill(pids[k], SIGKILL);
        waitpid(pids[k], &status, 0);
    }

    s = tx_stats(&f);

    ok(shared->wrong == 0 && shared->hits > 0 && s.slots.evicted > 0,
       "%u processes of %u at work were killed: %llu turns, %llu hits, %llu "
       "slots forgotten, %llu torn, and nothing wrong was found", rounds,
       WRITERS, (unsigned long long) shared->turns,
       (unsigned long long) shared->hits,
       (unsigned long long) s.slots.evicted,
       (unsigned long long) s.slots.torn);

    for (i = 0, found = 0; i < 50; i++) {
        any_text(&text, &random_);
        memset(&e, 0, sizeof(e));

        clock_ = fx_now_ns() / 1000000 + (i + 2) * KVR_SLOTS_DEAD;

        found += tx_keep(&f, &text, text.n - 1, clock_, &e) == KVR_OK
                 && tx_find(&f, &text, clock_, &e, &right) == KVR_OK && right
                 && e.byte == text.cuts[text.n - 1].byte;
    }

    is_u64(found, 50, "afterwards all that is kept is found");

    tx_close(&f);
}
