/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The measured prefill speed: found in noise, followed when it changes, and
 * valid whatever becomes of the processes that write it.
 */


#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "processes.h"
#include "tap.h"
#include "traffic/kvr_speed.h"


#define TRUE_SPEED   16000.0            /* tokens per second */
#define OVERHEAD_US  20000.0            /* of each request, and no tokens */
#define WRITERS      4
#define ROUNDS       20000
#define RECORDS      1000

/* instructions between two kills in an estimate; sanitizers add many */

#ifdef __SANITIZE_ADDRESS__
#define STRIDE       2003
#else
#define STRIDE       211
#endif


static kvr_speed_t  *shared;
static uint64_t      seed;


/* ---- samples ------------------------------------------------------------ */

/* From 0 to 1, the same numbers in each run (xorshift64*). */

static double
drawn(void)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;

    return (double) (seed * UINT64_C(0x2545f4914f6cdd1d) >> 11) / 0x1p53;
}


static double
between(double from, double to)
{
    return from + drawn() * (to - from);
}


/* The time of a first byte; noise: at most this part of the time. */

static int64_t
time_of(double tokens, double speed, double noise)
{
    return (int64_t) ((OVERHEAD_US + tokens / speed * 1e6)
                      * between(1 - noise, 1 + noise));
}


static void
add(kvr_speed_t *s, double tokens, double speed, double noise)
{
    tokens = floor(tokens);

    kvr_speed_add(s, 7, (uint64_t) tokens, time_of(tokens, speed, noise));
}


static bool
near(double found, double speed, double part)
{
    return fabs(found - speed) <= part * speed;
}


static int
ascending(const void *a, const void *b)
{
    double  x, y;

    x = *(const double *) a;
    y = *(const double *) b;

    return (x > y) - (x < y);
}


/*
 * The error of the speed of many records, each with 128 samples of its own:
 * 95 % of the records are at most `most` off, and 99 % at most twice as much.
 */

static void
within(double most, void (*one)(kvr_speed_t *s), const char *what)
{
    static double  errors[RECORDS];

    uint32_t     i, k;
    kvr_speed_t  s;

    for (i = 0; i < RECORDS; i++) {
        seed = i + 1;
        memset(&s, 0, sizeof(s));

        for (k = 0; k < 4 * KVR_SPEED_SAMPLES; k++) {
            one(&s);
        }

        errors[i] = fabs(kvr_speed_measured(&s, 7) / TRUE_SPEED - 1);
    }

    qsort(errors, RECORDS, sizeof(double), ascending);

    note("errors of %u records: half up to %.1f %%, 95 of 100 up to %.1f %%, "
         "99 up to %.1f %%, all up to %.1f %%", RECORDS,
         errors[RECORDS / 2] * 100, errors[RECORDS * 95 / 100] * 100,
         errors[RECORDS * 99 / 100] * 100, errors[RECORDS - 1] * 100);

    ok(errors[RECORDS * 95 / 100] <= most
       && errors[RECORDS * 99 / 100] <= 2 * most,
       "%s: 95 of 100 speeds are right within %.1f %%, 99 within %.1f %%",
       what, most * 100, most * 200);
}


static void
exact(kvr_speed_t *s)
{
    add(s, between(300, 8000), TRUE_SPEED, 0);
}


static void
noisy(kvr_speed_t *s)
{
    add(s, between(300, 8000), TRUE_SPEED, 0.1);
}


/* One of five prompts waits for something else, for seconds. */

static void
disturbed(kvr_speed_t *s)
{
    double  tokens;

    if (drawn() < 0.2) {
        tokens = floor(between(300, 8000));
        kvr_speed_add(s, 7, (uint64_t) tokens,
                      (int64_t) between(1e6, 30e6));
        return;
    }

    add(s, between(300, 8000), TRUE_SPEED, 0.1);
}


static void
two_clusters(kvr_speed_t *s)
{
    if (drawn() < 0.5) {
        add(s, between(300, 400), TRUE_SPEED, 0.1);

    } else {
        add(s, between(20000, 20100), TRUE_SPEED, 0.1);
    }
}


/* ---- the speed ---------------------------------------------------------- */

static void
found(void)
{
    within(0.001, exact, "times without noise");
    within(0.08, noisy, "times up to 10 % off");
    within(0.2, disturbed, "times up to 10 % off, and one of five answers "
           "late by seconds");
    within(0.06, two_clusters, "short and long prompts, and none between");
}


static void
followed(void)
{
    uint32_t     i;
    kvr_speed_t  s;

    seed = 1;
    memset(&s, 0, sizeof(s));

    for (i = 0; i < 500; i++) {
        add(&s, between(300, 8000), TRUE_SPEED, 0.1);
    }

    ok(near(kvr_speed_measured(&s, 7), TRUE_SPEED, 0.15),
       "after 500 samples the speed is that of the last ones");

    for (i = 0; i < 256; i++) {
        add(&s, between(300, 8000), TRUE_SPEED / 4, 0.1);
    }

    ok(near(kvr_speed_measured(&s, 7), TRUE_SPEED / 4, 0.15),
       "an engine that becomes slower is followed within 256 samples");

    for (i = 0; i < 256; i++) {
        add(&s, between(300, 8000), TRUE_SPEED, 0.1);
    }

    ok(near(kvr_speed_measured(&s, 7), TRUE_SPEED, 0.25),
       "and one that becomes faster");
    is_u64(kvr_speed_samples(&s, 7), 500 + 2 * 256,
           "all samples are counted");
}


static void
refused(void)
{
    uint32_t     i;
    kvr_speed_t  s, empty;

    memset(&s, 0, sizeof(s));
    memset(&empty, 0, sizeof(empty));

    for (i = 0; i < 100; i++) {
        kvr_speed_add(&s, 7, KVR_SPEED_TOKENS, 1000);
        kvr_speed_add(&s, 7, 0, 1000);
        kvr_speed_add(&s, 7, 1 << 24, 1000);
        kvr_speed_add(&s, 7, UINT64_MAX, 1000);
        kvr_speed_add(&s, 7, 1000, 0);
        kvr_speed_add(&s, 7, 1000, -1);
        kvr_speed_add(&s, 7, 1000, (int64_t) UINT32_MAX + 1);
    }

    ok(memcmp(&s, &empty, sizeof(s)) == 0,
       "samples with too few tokens, or with impossible numbers, are not "
       "taken");

    for (i = 0; i < KVR_SPEED_LEAST - 1; i++) {
        kvr_speed_add(&s, 7, 1000 + i * 300, 1000 + i * 300);
    }

    ok(kvr_speed_measured(&s, 7) <= 0, "19 samples make no speed");

    kvr_speed_add(&s, 7, 20000, 20000);
    ok(near(kvr_speed_measured(&s, 7), 1e6, 0.001), "20 samples make one");

    for (i = 0; i < 100; i++) {
        kvr_speed_add(&s, 7, 1000, 1000);
    }

    ok(near(kvr_speed_measured(&s, 7), 1e6, 0.001),
       "prompts that are all alike say nothing of the speed: the last one "
       "stays");

    for (i = 0; i < 100; i++) {
        kvr_speed_add(&s, 7, 2000 + i * 300, 900 - i);
    }

    ok(near(kvr_speed_measured(&s, 7), 1e6, 0.001),
       "so do longer prompts that are faster");

    memset(&s, 0, sizeof(s));

    for (i = 0; i < 100; i++) {
        kvr_speed_add(&s, 7, i % 25 ? 1000 : 9000, 1000 + i);
    }

    ok(kvr_speed_measured(&s, 7) <= 0,
       "and one prompt that is unlike all others");
}


static void
generations(void)
{
    uint32_t     i;
    kvr_speed_t  s;

    seed = 1;
    memset(&s, 0, sizeof(s));

    for (i = 0; i < 40; i++) {
        add(&s, between(300, 8000), TRUE_SPEED, 0);
    }

    ok(kvr_speed_measured(&s, 8) <= 0 && kvr_speed_samples(&s, 8) == 0,
       "another worker with the number has no speed and no samples");

    for (i = 0; i < 19; i++) {
        kvr_speed_add(&s, 8, 1000 + i * 300, 1000 + i * 300);
    }

    ok(kvr_speed_measured(&s, 8) <= 0 && kvr_speed_samples(&s, 8) == 19,
       "what is left of the worker before does not count for it");

    kvr_speed_add(&s, 8, 20000, 20000);

    ok(near(kvr_speed_measured(&s, 8), 1e6, 0.001),
       "its speed is that of its own samples");

    for (i = 0; i < 40; i++) {
        add(&s, between(300, 8000), TRUE_SPEED, 0);
    }

    ok(near(kvr_speed_measured(&s, 8), 1e6, 0.001)
       && kvr_speed_samples(&s, 8) == 20,
       "late samples of the worker before are dropped");

    s.count = (uint64_t) 8 << 32 | UINT32_MAX;
    kvr_speed_add(&s, 8, 1000, 1000);

    ok(kvr_speed_samples(&s, 8) == KVR_SPEED_SAMPLES
       && s.samples[KVR_SPEED_SAMPLES - 1]
          == ((uint64_t) 8 << 56 | UINT64_C(1000) << 32 | 1000),
       "a counter that is full begins again, and the generation stays");

    for (i = 0; i < KVR_SPEED_SAMPLES; i++) {
        kvr_speed_add(&s, 9, 1000 + i * 300, 1000 + i * 300);
    }

    for (i = 0; i < KVR_SPEED_LEAST; i++) {
        kvr_speed_add(&s, 9 + 256, 1000 + i * 300, 4 * (1000 + i * 300));
    }

    ok(near(kvr_speed_measured(&s, 9 + 256), 250000, 0.001),
       "no samples are those of a worker 256 generations before");
}


static void
medians(void)
{
    double       odd[] = { 5, 1, 9, 3, 7 }, even[] = { 4, 1, 8, 2 };
    double       same[] = { 2, 2, 2, 2 }, one[] = { 6 };
    uint32_t     i;
    kvr_speed_t  s;

    ok(near(kvr_speed_median(odd, 5), 5, 0)
       && near(kvr_speed_median(even, 4), 3, 0)
       && near(kvr_speed_median(same, 4), 2, 0)
       && near(kvr_speed_median(one, 1), 6, 0)
       && kvr_speed_median(NULL, 0) <= 0, "medians");

    memset(&s, 0, sizeof(s));

    ok(kvr_speed_read(&s, 7, 0) <= 0 && near(kvr_speed_read(&s, 7, 900), 900,
                                              0),
       "the median of the fleet stands in for a speed that is not known");

    for (i = 0; i < 20; i++) {
        kvr_speed_add(&s, 7, 1000 + i * 300, 1000 + i * 300);
    }

    ok(near(kvr_speed_read(&s, 7, 0), 1e6, 0.001)
       && near(kvr_speed_read(&s, 7, 5e5), 1e6, 0.001),
       "a speed that is known stands for itself");
    kvr_speed_add(NULL, 7, 1000, 1000);

    ok(kvr_speed_samples(NULL, 7) == 0
       && near(kvr_speed_read(NULL, 7, 900), 900, 0),
       "a holder without a record has the median, too");
    ok(near(kvr_speed_read(&s, 7, 1000), 4000, 0)
       && near(kvr_speed_read(&s, 7, 1e7), 2.5e6, 0),
       "between a quarter of the median and four times the median");
}


/* ---- what is left ------------------------------------------------------- */

static void
left(void)
{
    double  queued, prefills, speed, ms, rest;

    ok(near(kvr_speed_left(8000, 1, 16000, 250), 4000, 0),
       "a prefill that runs is done by and by");
    ok(kvr_speed_left(8000, 1, 16000, 500) <= 0
       && near(kvr_speed_left(8000, 1, 16000, 90000), 0, 0),
       "and never by more than it is");
    ok(near(kvr_speed_left(8000, 4, 16000, 90000), 6000, 0),
       "prefills that wait for a prefill that does not end still count");
    ok(near(kvr_speed_left(8000, 4, 0, 90000), 8000, 0)
       && near(kvr_speed_left(8000, 4, 16000, 0), 8000, 0)
       && near(kvr_speed_left(8000, 4, 16000, -5), 8000, 0),
       "no speed, or no time: all tokens are left");
    ok(kvr_speed_left(0, 3, 16000, 5) <= 0
       && near(kvr_speed_left(-5, 1, 16000, 5), 0, 0)
       && near(kvr_speed_left(700, 0, 16000, 5), 700, 0),
       "numbers that were read while others changed them do no harm");

    seed = 1;

    do {
        queued = floor(between(0, 100000));
        prefills = floor(between(1, 40));
        speed = between(0, 50000);
        ms = between(0, 20000);

        rest = kvr_speed_left(queued, prefills, speed, ms);

    } while (rest >= 0 && rest <= queued
             && rest >= queued - speed * ms / 1000 - 1e-6
             && rest >= queued - queued / prefills - 1e-6
             && queued < 99990);

    ok(queued >= 99990, "what is left is never below 0, nor above what was "
       "queued, nor less than the speed and the other prefills leave");
}


/* ---- processes ---------------------------------------------------------- */

static bool
plausible(double speed)
{
    return speed <= 0 || near(speed, TRUE_SPEED, 0.01);
}


static void
one_more(uint32_t generation)
{
    uint32_t  tokens;

    tokens = 1000 + 300 * (kvr_speed_samples(shared, generation) % 16);

    kvr_speed_add(shared, generation, tokens,
                  time_of(tokens, TRUE_SPEED, 0));
}


static void
none(void)
{
    memset(shared, 0, sizeof(kvr_speed_t));
}


/* As many samples of worker 7 as there can be before the first speed. */

static void
almost(void)
{
    none();

    while (kvr_speed_samples(shared, 7) < KVR_SPEED_LEAST - 1) {
        one_more(7);
    }
}


static void
add_to_7(void)
{
    one_more(7);
}


static void
add_to_8(void)
{
    one_more(8);
}


/*
 * Kills a process after each so many instructions of fn().  Whatever it
 * leaves, no speed is wrong, and the samples of others bring a right one.
 */

static void
killed(void (*first)(void), void (*fn)(void), uint32_t stride,
    const char *what)
{
    bool      good, inside;
    uint32_t  i, steps;

    good = true;
    inside = true;

    for (steps = 0; inside && good; steps += stride) {

        inside = killed_behind(first, fn, steps);

        good = plausible(kvr_speed_measured(shared, 7))
               && plausible(kvr_speed_measured(shared, 8));

        for (i = 0; i <= KVR_SPEED_SAMPLES && good; i++) {
            one_more(8);
            good = plausible(kvr_speed_measured(shared, 8));
        }

        good = good && kvr_speed_measured(shared, 8) > 0;
    }

    note("killed %u times", steps / stride);

    ok(good && steps > 10 * stride, "a process is killed while it adds %s: no "
       "speed is wrong, and others go on", what);
}


static void
writer(void)
{
    uint32_t  i;

    seed = (uint64_t) getpid();

    for (i = 0; i < ROUNDS; i++) {
        add(shared, between(300, 8000), TRUE_SPEED, 0);
    }
}


static void
together(void)
{
    bool      good;
    pid_t     pids[WRITERS];
    uint32_t  i, n;

    none();

    for (i = 0; i < WRITERS; i++) {
        pids[i] = start(writer);
    }

    good = true;
    n = 0;

    for (i = 0; i < WRITERS; /* void */ ) {
        good = good && plausible(kvr_speed_measured(shared, 7));
        n++;

        if (waitpid(pids[i], NULL, WNOHANG) != 0) {
            i++;
        }
    }

    note("%u looks, %u of %u samples", n, kvr_speed_samples(shared, 7),
         WRITERS * ROUNDS);

    ok(good, "each look at a speed that %u processes write finds the speed",
       WRITERS);
    ok(kvr_speed_samples(shared, 7) <= WRITERS * ROUNDS
       && kvr_speed_samples(shared, 7) >= ROUNDS / 10,
       "samples are lost at most, never counted twice");
}


int
main(void)
{
    shared = mmap(NULL, sizeof(kvr_speed_t), PROT_READ|PROT_WRITE,
                  MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }

    found();
    followed();
    refused();
    generations();
    medians();
    left();
    killed(none, add_to_7, 1, "the first sample");
    killed(almost, add_to_8, 1, "the first sample of the next worker");
    killed(almost, add_to_7, STRIDE, "a sample that brings the speed");
    together();

    return done();
}
