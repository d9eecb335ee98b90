/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Trust: every state with every echo, incarnations, and processes that die.
 */


#include <stdlib.h>
#include <sys/mman.h>

#include "traffic/kvr_trust.h"
#include "processes.h"
#include "tap.h"


#define CHAT     3                      /* routes */
#define OTHER    4

/* With sanitizers a function has far more instructions. */

#if defined(__SANITIZE_ADDRESS__)
#define STRIDE   11
#else
#define STRIDE   1
#endif


static kvr_trust_t            *t;       /* shared */
static const kvr_trust_who_t   w1 = { 1, 1000 };
static const kvr_trust_who_t   again = { 1, 2000 };     /* restarted */
static const kvr_trust_who_t   next = { 2, 1000 };      /* another worker */


/* ---- the states --------------------------------------------------------- */

/* The score that must follow, as the rules of kvr_trust.h say it. */

static kvr_trust_score_t
rule(kvr_trust_score_t s, bool full)
{
    int  good, bad;

    good = (int) s.good + (full ? 1 : -10);
    bad = (int) s.bad + (full ? -1 : 4);

    good = good < 0 ? 0 : kvr_min(good, 20);
    bad = bad < 0 ? 0 : kvr_min(bad, 44);

    switch (s.state) {

    case KVR_TRUST_SHADOW:
        if (good == 20 || bad == 44) {
            s.state = good == 20 ? KVR_TRUST_PROVEN : KVR_TRUST_MISMATCH;
            good = bad = 0;
        }

        break;

    case KVR_TRUST_PROVEN:
        if (bad == 44) {
            s.state = KVR_TRUST_MISMATCH;
            good = bad = 0;
        }

        break;

    default:
        if (good == 20) {
            s.state = KVR_TRUST_PROVEN;
            good = bad = 0;
        }
    }

    s.good = (uint32_t) good;
    s.bad = (uint32_t) bad;

    return s;
}


/* Each state, each good, each bad, with each of both kinds of evidence. */

static void
states(void)
{
    bool               good, full;
    uint32_t           n;
    kvr_trust_score_t  s, is, want;

    good = true;
    n = 0;

    for (s.state = 0; s.state < KVR_TRUST_STATES; s.state++) {
        for (s.good = 0; s.good <= KVR_TRUST_GOOD; s.good++) {
            for (s.bad = 0; s.bad <= KVR_TRUST_BAD; s.bad++) {
                for (full = false; ; full = true) {
                    is = kvr_trust_next(s, full);
                    want = rule(s, full);
                    n++;

                    if (is.state != want.state || is.good != want.good
                        || is.bad != want.bad)
                    {
                        note("%s, %u good, %u bad, then %s: %s, not %s",
                             kvr_trust_name(s.state), s.good, s.bad,
                             full ? "full" : "parted",
                             kvr_trust_name(is.state),
                             kvr_trust_name(want.state));
                        good = false;
                    }

                    if (full) {
                        break;
                    }
                }
            }
        }
    }

    ok(good, "each of %u pairs of a score and an echo is followed by the state "
       "that the rules name", n);
}


/* Does a share of parted ones, of 100, end the trust in so many echoes? */

static bool
ends(uint32_t share, uint32_t n)
{
    uint32_t           i, sum;
    kvr_trust_score_t  s = { KVR_TRUST_PROVEN, 0, 0 };

    sum = 0;

    for (i = 0; i < n && s.state == KVR_TRUST_PROVEN; i++) {
        sum += share;
        s = kvr_trust_next(s, sum < 100);
        sum %= 100;
    }

    return s.state == KVR_TRUST_MISMATCH;
}


static void
shares(void)
{
    ok(!ends(5, 10000) && !ends(19, 10000),
       "a share of parted ones up to a fifth is borne");
    ok(ends(25, 300) && ends(50, 40) && ends(100, 11) && !ends(100, 10),
       "a greater one ends the trust, the sooner the greater it is");
}


/* ---- a record ----------------------------------------------------------- */

static void
make(void)
{
    t = mmap(NULL, sizeof(kvr_trust_t), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (t == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
}


/* Adds n echoes; how many were told to begin a mismatch. */

static uint32_t
add(kvr_trust_who_t who, uint32_t n, bool full)
{
    uint32_t  told;

    told = 0;

    while (n--) {
        told += kvr_trust_add(t, who, CHAT, full ? 12 : 3, 12, full);
    }

    return told;
}


static kvr_trust_state_t
state(kvr_trust_who_t who)
{
    kvr_trust_view_t  view;

    kvr_trust_read(t, who, CHAT, &view);

    return view.state;
}


/* Is it proven after so many full echoes? */

static bool
proves(kvr_trust_who_t who, uint32_t n)
{
    (void) add(who, n, true);

    return state(who) == KVR_TRUST_PROVEN;
}


static void
records(void)
{
    kvr_trust_view_t  view;

    make();

    kvr_trust_read(t, w1, CHAT, &view);
    ok(view.state == KVR_TRUST_SHADOW && view.full == 0 && view.blocks == 0,
       "a route without an echo is in shadow");

    ok(add(w1, 19, true) == 0 && state(w1) == KVR_TRUST_SHADOW,
       "19 full echoes prove nothing yet");
    ok(add(w1, 1, true) == 0 && state(w1) == KVR_TRUST_PROVEN,
       "the 20th proves the route");

    kvr_trust_read(t, w1, OTHER, &view);
    ok(view.state == KVR_TRUST_SHADOW, "the other routes stay in shadow");

    ok(add(w1, 10, false) == 0 && state(w1) == KVR_TRUST_PROVEN,
       "10 that part are borne");

    ok(kvr_trust_add(t, w1, CHAT, 3, 12, false)
       && state(w1) == KVR_TRUST_MISMATCH, "the 11th ends the trust");
    ok(add(w1, 100, false) == 0, "and is told once, whatever follows");

    kvr_trust_read(t, w1, CHAT, &view);
    ok(view.full == 20 && view.parted == 111 && view.mismatches == 1
       && view.depth == 3 && view.blocks == 12,
       "all are counted, and where the last one parted");

    (void) add(w1, 19, true);
    ok(state(w1) == KVR_TRUST_MISMATCH && add(w1, 1, true) == 0
       && state(w1) == KVR_TRUST_PROVEN, "20 full echoes prove it again");

    ok(state(again) == KVR_TRUST_SHADOW,
       "a worker that was restarted is in shadow");
    ok(add(again, 1, true) == 0
       && state(again) == KVR_TRUST_SHADOW && state(w1) == KVR_TRUST_SHADOW,
       "and its first echo ends the trust of the one before");

    kvr_trust_read(t, again, CHAT, &view);
    ok(view.full == 41 && view.mismatches == 1, "the counters go on");

    kvr_trust_read(t, next, CHAT, &view);
    ok(view.state == KVR_TRUST_SHADOW && view.full == 0,
       "of the next worker with that number nothing is known");

    (void) add(next, 1, true);
    kvr_trust_read(t, next, CHAT, &view);
    ok(view.full == 1 && view.parted == 0 && view.mismatches == 0
       && view.blocks == 0, "its first echo begins the counters anew");

    munmap(t, sizeof(kvr_trust_t));
}


static void
sums(void)
{
    kvr_usage_t        u;
    const kvr_usage_t  one = { 1, 163, 128, 144, 96 };

    make();

    kvr_usage_add(t, 1, &one);
    kvr_usage_add(t, 1, &one);
    kvr_usage_read(t, 1, &u);
    ok(u.requests == 2 && u.prompt_tokens == 326 && u.predicted_tokens == 256
       && u.best_tokens == 288 && u.cached_tokens == 192,
       "what was predicted and what was cached is added up");

    kvr_usage_read(t, 2, &u);
    ok(u.requests == 0 && u.cached_tokens == 0,
       "of the next worker with its number nothing is known");

    kvr_usage_add(t, 2, &one);
    kvr_usage_read(t, 2, &u);
    ok(u.requests == 1 && u.cached_tokens == 96,
       "and its first answer begins the sums anew");

    munmap(t, sizeof(kvr_trust_t));
}


/* An old word must not be trusted, however many restarts there were. */

static void
eras(void)
{
    bool      good;
    uint32_t  i;

    make();

    good = true;
    (void) add(w1, 20, true);

    for (i = 0; i < 5000; i++) {
        good = good
               && state((kvr_trust_who_t) { 1, 5000 + i }) == KVR_TRUST_SHADOW
               && add((kvr_trust_who_t) { 1, 5000 + i }, i % 2, true) == 0;
    }

    ok(good, "5000 restarts later nothing is trusted that was before");

    munmap(t, sizeof(kvr_trust_t));
}


/* ---- processes ---------------------------------------------------------- */

static void
twentieth(void)
{
    (void) add(w1, 1, true);
}


static void
restart(void)
{
    (void) add(again, 1, true);
}


static void
successor(void)
{
    (void) add(next, 1, false);
}


static void
thousand(void)
{
    uint32_t  i;

    for (i = 0; i < 1000; i++) {
        (void) add(i % 3 ? w1 : again, 1, i % 5 != 0);
    }
}


static void
deaths(void)
{
    bool              good, before, after;
    uint32_t          steps;
    kvr_trust_view_t  view;

    before = false;
    after = false;
    good = true;

    for (steps = 0; good; steps += STRIDE) {
        make();
        (void) add(w1, 19, true);

        if (!killed_at(twentieth, steps)) {
            break;
        }

        kvr_trust_read(t, w1, CHAT, &view);
        before |= view.state == KVR_TRUST_SHADOW;
        after |= view.state == KVR_TRUST_PROVEN;
        good = view.state != KVR_TRUST_MISMATCH
               && (view.full == 19 || view.full == 20);

        (void) add(w1, 1, true);
        good = good && state(w1) == KVR_TRUST_PROVEN;
        munmap(t, sizeof(kvr_trust_t));
    }

    ok(good && before && after, "killed at any of %u instructions of the 20th "
       "echo: it counts or not, and the next one proves", steps);

    for (steps = 0; good; steps += STRIDE) {
        make();
        (void) add(w1, 20, true);

        if (!killed_at(restart, steps)) {
            break;
        }

        good = state(again) == KVR_TRUST_SHADOW
               && !proves(again, 18) && proves(again, 2);
        munmap(t, sizeof(kvr_trust_t));
    }

    ok(good, "killed at any of %u instructions of the first echo after a "
       "restart: no trust is left", steps);

    for (steps = 0; good; steps += STRIDE) {
        make();
        (void) add(w1, 20, true);

        if (!killed_at(successor, steps)) {
            break;
        }

        good = state(next) == KVR_TRUST_SHADOW
               && !proves(next, 19) && proves(next, 2);
        munmap(t, sizeof(kvr_trust_t));
    }

    ok(good, "nor for another worker, killed at any of %u instructions",
       steps);
}


/* Restarts and echoes at once, from several processes. */

static void
crowds(void)
{
    int               i, status;
    kvr_trust_view_t  view;

    make();

    for (i = 0; i < 4; i++) {
        (void) start(thousand);
    }

    for (i = 0; i < 4; i++) {
        (void) wait(&status);
    }

    kvr_trust_read(t, w1, CHAT, &view);
    ok(view.full + view.parted <= 4000 && view.full + view.parted > 0
       && proves(w1, 22),
       "four processes that don't agree on the incarnation do no harm");

    munmap(t, sizeof(kvr_trust_t));
}


int
main(void)
{
    states();
    shares();
    records();
    sums();
    eras();
    deaths();
    crowds();

    return done();
}
