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
#define ALL      15                     /* windows up to this length */

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

/* As the rules say it, over a list of echoes, the last one at its end. */

static kvr_trust_state_t
rule(kvr_trust_state_t state, const bool *full, uint32_t n, bool vouched)
{
    uint32_t  i, parted, recent;

    parted = 0;
    recent = 0;

    for (i = 0; i < n; i++) {
        parted += !full[i] && i + 50 >= n;
        recent += full[i] && i + 22 >= n;
    }

    switch (state) {

    case KVR_TRUST_SHADOW:
        if (parted >= 11) {
            return KVR_TRUST_MISMATCH;
        }

        return recent >= 20 || (vouched && n >= 3 && parted == 0)
               ? KVR_TRUST_PROVEN : KVR_TRUST_SHADOW;

    case KVR_TRUST_PROVEN:
        return parted >= 11 ? KVR_TRUST_MISMATCH : KVR_TRUST_PROVEN;

    default:
        return recent >= 20 ? KVR_TRUST_PROVEN : KVR_TRUST_MISMATCH;
    }
}


/* All that can follow a window: agrees with the rule and keeps what it must. */

static bool
follows(kvr_trust_state_t state, uint64_t parted, uint32_t n)
{
    bool                list[KVR_TRUST_WINDOW + 1];
    uint32_t            i, input;
    kvr_trust_state_t   want;
    kvr_trust_window_t  is;

    for (i = 0; i < n; i++) {
        list[i] = !(parted >> (n - 1 - i) & 1);
    }

    for (input = 0; input < 4; input++) {

        list[n] = input & 1;
        want = rule(state, list, n + 1, input >> 1);
        is = kvr_trust_next((kvr_trust_window_t) { state, n, parted },
                            input & 1, input >> 1);

        if (is.state != want
            || (want != state && (is.n || is.parted))
            || (want == state
                && (is.n != kvr_min(n + 1, (uint32_t) KVR_TRUST_WINDOW)
                    || (is.parted & 1) == (input & 1)
                    || is.parted >> is.n != 0)))
        {
            note("%s, %u echoes %" PRIx64 ", input %u: %s, not %s",
                 kvr_trust_name(state), n, parted, input,
                 kvr_trust_name(is.state), kvr_trust_name(want));
            return false;
        }
    }

    return true;
}


static void
states(void)
{
    bool               good;
    uint32_t           n, i;
    uint64_t           parted;
    kvr_trust_state_t  state;

    good = true;

    for (state = 0; state < KVR_TRUST_STATES; state++) {
        for (n = 0; n <= ALL; n++) {
            for (parted = 0; parted < UINT64_C(1) << n; parted++) {
                good = good && follows(state, parted, n);
            }
        }
    }

    ok(good, "each state, with all windows of up to %u echoes and each echo, "
       "is followed by the state that the rules name", ALL);

    srandom(11);

    for (i = 0; i < 1000000 && good; i++) {
        n = (uint32_t) random() % (KVR_TRUST_WINDOW + 1);
        parted = (uint64_t) random() << 31 | (uint64_t) random();

        /* of some windows most echoes are full, as the rules ask for */

        if (i & 1) {
            parted &= (uint64_t) random() << 31 | (uint64_t) random();
            parted &= (uint64_t) random() << 31 | (uint64_t) random();
        }

        parted &= (UINT64_C(1) << n) - 1;
        good = follows((uint32_t) random() % KVR_TRUST_STATES, parted, n);
    }

    ok(good, "so are windows of up to 50 echoes");
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


/* Adds n echoes; the last state that began, or KVR_TRUST_STATES. */

static kvr_trust_state_t
add(kvr_trust_who_t who, uint32_t n, bool full, bool vouched)
{
    uint32_t           seen;
    kvr_trust_state_t  state, last;

    last = KVR_TRUST_STATES;

    while (n--) {
        state = kvr_trust_add(t, who, CHAT, full ? 12 : 3, 12, vouched, &seen);
        last = state == KVR_TRUST_STATES ? last : state;
    }

    return last;
}


static kvr_trust_state_t
state(kvr_trust_who_t who)
{
    kvr_trust_view_t  view;

    kvr_trust_read(t, who, CHAT, &view);

    return view.state;
}


static void
records(void)
{
    uint32_t          seen;
    kvr_trust_view_t  view;

    make();

    kvr_trust_read(t, w1, CHAT, &view);
    ok(view.state == KVR_TRUST_SHADOW && view.full == 0 && view.blocks == 0,
       "a route without an echo is in shadow");

    ok(add(w1, 19, true, false) == KVR_TRUST_STATES
       && state(w1) == KVR_TRUST_SHADOW, "19 full echoes prove nothing yet");
    ok(add(w1, 1, true, false) == KVR_TRUST_PROVEN
       && state(w1) == KVR_TRUST_PROVEN, "the 20th proves the route");

    kvr_trust_read(t, w1, OTHER, &view);
    ok(view.state == KVR_TRUST_SHADOW, "the other routes stay in shadow");

    ok(add(w1, 10, false, false) == KVR_TRUST_STATES
       && state(w1) == KVR_TRUST_PROVEN, "10 that part are borne");

    seen = 0;
    ok(kvr_trust_add(t, w1, CHAT, 3, 12, false, &seen) == KVR_TRUST_MISMATCH
       && seen == 11 && state(w1) == KVR_TRUST_MISMATCH,
       "the 11th ends the trust");
    ok(add(w1, 100, false, false) == KVR_TRUST_STATES,
       "and is told once, whatever follows");

    kvr_trust_read(t, w1, CHAT, &view);
    ok(view.full == 20 && view.parted == 111 && view.mismatches == 1
       && view.depth == 3 && view.blocks == 12,
       "all are counted, and where the last one parted");

    ok(!kvr_trust_asks(t, w1, CHAT)
       && add(w1, 19, true, true) == KVR_TRUST_STATES
       && add(w1, 1, true, false) == KVR_TRUST_PROVEN,
       "after a mismatch nobody can vouch: 20 full echoes are needed");

    ok(state(again) == KVR_TRUST_SHADOW,
       "a worker that was restarted is in shadow");
    ok(add(again, 1, true, false) == KVR_TRUST_STATES
       && state(again) == KVR_TRUST_SHADOW && state(w1) == KVR_TRUST_SHADOW,
       "and its first echo ends the trust of the one before");

    kvr_trust_read(t, again, CHAT, &view);
    ok(view.full == 41 && view.mismatches == 1, "the counters go on");

    ok(!kvr_trust_asks(t, again, CHAT)
       && add(again, 1, true, true) == KVR_TRUST_STATES
       && kvr_trust_asks(t, again, CHAT),
       "two full echoes are too few for one who vouches");
    ok(add(again, 1, true, true) == KVR_TRUST_PROVEN, "three are enough");

    kvr_trust_read(t, next, CHAT, &view);
    ok(view.state == KVR_TRUST_SHADOW && view.full == 0,
       "of the next worker with that number nothing is known");

    (void) add(next, 1, true, false);
    kvr_trust_read(t, next, CHAT, &view);
    ok(view.full == 1 && view.parted == 0 && view.mismatches == 0
       && view.blocks == 0, "its first echo begins the counters anew");

    (void) add(next, 1, false, false);
    ok(!kvr_trust_asks(t, next, CHAT)
       && add(next, 3, true, true) == KVR_TRUST_STATES,
       "an echo that parted is not made good by one who vouches");

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
    (void) add(w1, 20, true, false);

    for (i = 0; i < 5000; i++) {
        good = good
               && state((kvr_trust_who_t) { 1, 5000 + i }) == KVR_TRUST_SHADOW
               && add((kvr_trust_who_t) { 1, 5000 + i }, i % 2, true, false)
                  == KVR_TRUST_STATES;
    }

    ok(good, "5000 restarts later nothing is trusted that was before");

    munmap(t, sizeof(kvr_trust_t));
}


/* ---- processes ---------------------------------------------------------- */

static void
twentieth(void)
{
    (void) add(w1, 1, true, false);
}


static void
restart(void)
{
    (void) add(again, 1, true, false);
}


static void
successor(void)
{
    (void) add(next, 1, false, false);
}


static void
thousand(void)
{
    uint32_t  i;

    for (i = 0; i < 1000; i++) {
        (void) add(i % 3 ? w1 : again, 1, i % 5 != 0, false);
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
        (void) add(w1, 19, true, false);

        if (!killed_at(twentieth, steps)) {
            break;
        }

        kvr_trust_read(t, w1, CHAT, &view);
        before |= view.state == KVR_TRUST_SHADOW;
        after |= view.state == KVR_TRUST_PROVEN;
        good = view.state != KVR_TRUST_MISMATCH
               && (view.full == 19 || view.full == 20);

        (void) add(w1, 1, true, false);
        good = good && state(w1) == KVR_TRUST_PROVEN;
        munmap(t, sizeof(kvr_trust_t));
    }

    ok(good && before && after, "killed at any of %u instructions of the 20th "
       "echo: it counts or not, and the next one proves", steps);

    for (steps = 0; good; steps += STRIDE) {
        make();
        (void) add(w1, 20, true, false);

        if (!killed_at(restart, steps)) {
            break;
        }

        good = state(again) == KVR_TRUST_SHADOW
               && add(again, 18, true, false) == KVR_TRUST_STATES
               && add(again, 2, true, false) == KVR_TRUST_PROVEN;
        munmap(t, sizeof(kvr_trust_t));
    }

    ok(good, "killed at any of %u instructions of the first echo after a "
       "restart: no trust is left", steps);

    for (steps = 0; good; steps += STRIDE) {
        make();
        (void) add(w1, 20, true, false);

        if (!killed_at(successor, steps)) {
            break;
        }

        good = state(next) == KVR_TRUST_SHADOW
               && add(next, 19, true, false) == KVR_TRUST_STATES
               && add(next, 2, true, false) == KVR_TRUST_PROVEN;
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
       && add(w1, 22, true, false) == KVR_TRUST_PROVEN,
       "four processes that don't agree on the incarnation do no harm");

    munmap(t, sizeof(kvr_trust_t));
}


int
main(void)
{
    states();
    records();
    eras();
    deaths();
    crowds();

    return done();
}
