/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Churn: what is stored counts, halves, and is one word.
 */


#include <math.h>
#include <sys/mman.h>

#include "traffic/kvr_churn.h"
#include "processes.h"
#include "tap.h"


/* With sanitizers a function has far more instructions. */

#if defined(__SANITIZE_ADDRESS__)
#define STRIDE   11
#else
#define STRIDE   1
#endif


static uint64_t  *shared;


static bool
near(double a, double b)
{
    return fabs(a - b) <= 1e-4 * fabs(b);
}


static void
decays(void)
{
    uint32_t  i;
    uint64_t  churn;

    churn = 0;
    ok(kvr_churn_read(&churn, 0) == 0 && kvr_churn_read(&churn, 1000) == 0,
       "nothing was stored: 0 at any time");

    kvr_churn_add(&churn, 1000, 5000);
    ok(kvr_churn_read(&churn, 5000) == 1000, "a store counts at once");
    ok(near(kvr_churn_read(&churn, 5000 + KVR_CHURN_HALF), 500),
       "half of it is gone after KVR_CHURN_HALF seconds");
    ok(near(kvr_churn_read(&churn, 5000 + 3 * KVR_CHURN_HALF), 125),
       "an eighth is left after three times as long");

    kvr_churn_add(&churn, 100, 5000 + KVR_CHURN_HALF);
    ok(near(kvr_churn_read(&churn, 5000 + KVR_CHURN_HALF), 600),
       "a later store is added to what is left");

    ok(near(kvr_churn_read(&churn, 4000), 600),
       "a clock that is behind counts as equal");

    churn = 0;
    for (i = 0; i < 10 * KVR_CHURN_HALF; i++) {
        kvr_churn_add(&churn, 10, i);
    }

    /* the sum of 10 * 2 ** -(i / half) */

    ok(near(kvr_churn_read(&churn, i - 1),
            10 * (1 - exp2(-10)) / (1 - exp2(-1.0 / KVR_CHURN_HALF))),
       "steady stores come to the sum of a geometric series");

    ok(kvr_churn_read(&churn, UINT32_MAX / 2) < 1e-6,
       "after years nothing is left");
}


/*
 * A writer that is killed at an instruction leaves the value from before its
 * store, or that from after it.
 */

static void
store(void)
{
    kvr_churn_add(shared, 1000, 300);
}


static void
killed(void)
{
    bool      inside, whole;
    double    now, old;
    uint32_t  steps, before, after;

    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    whole = shared != MAP_FAILED;
    before = 0;
    after = 0;

    for (steps = 0, inside = whole; inside && whole; steps += STRIDE) {
        *shared = 0;
        kvr_churn_add(shared, 500, 200);
        old = kvr_churn_read(shared, 300);

        inside = killed_at(store, steps);

        now = kvr_churn_read(shared, 300);
        before += now == old;
        after += now == old + 1000;
        whole = now == old || near(now, old + 1000);
    }

    ok(whole && before > 0 && after > 0,
       "killed at each of %u instructions: %u times before the store, %u "
       "times after it", steps, before, after);
}


int
main(void)
{
    decays();
    killed();

    return done();
}
