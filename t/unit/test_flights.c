/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What is in flight: depths, words, ends and times, under a clock of our own;
 * threads on the same words, made for ThreadSanitizer (make tsan), and processes,
 * some of which are killed.
 */


#include "traffic/kvr_flights.h"

#include "fixture.h"
#include "processes.h"
#include "tap.h"

#include <pthread.h>


#define SETS      4096
#define N         6400                  /* blocks of the longest prompt */
#define HOLDERS   64
#define NOW       UINT64_C(100000000)
#define UNTIL     (NOW + KVR_FLIGHT_UNTIL_MS)
#define RACERS    4
#define ROUNDS    20000
#define PROMPTS   12


typedef struct {
    kvr_flights_zone_t  z;
    uint64_t            words[SETS * KVR_FLIGHT_WAYS]
                            __attribute__((aligned(64)));
} shared_t;


static shared_t              *shared;
static kvr_flights_t          f;
static kvr_inflight_depth_t   depths[HOLDERS];
static uint32_t               racer;
static uint64_t               prompts[PROMPTS][N / KVR_FLIGHT_STRIDE];


/* ---- helpers ------------------------------------------------------------ */

static void
fresh(uint64_t nsets)
{
    kvr_flights_format(&shared->z, (char *) shared, offsetof(shared_t, words),
                       nsets * KVR_FLIGHT_WAYS * sizeof(uint64_t));
    (void) kvr_flights_attach(&f, &shared->z, (char *) shared, NULL, 0);
}


/* A prompt of n blocks, the first ones of which are shared by all. */

static void
prompt(uint64_t seed, uint32_t n, uint32_t common, uint64_t *chains)
{
    uint32_t  i;
    uint64_t  locals[N];

    for (i = 0; i < n; i++) {
        locals[i] = (i < common ? 1 : seed) * UINT64_C(0x9e3779b97f4a7c15) + i;
    }

    (void) kvr_flights_chains(&f, locals, n, chains);
}


static kvr_flight_t
flight(uint32_t holder, const uint64_t *chains, uint32_t n, uint32_t from)
{
    kvr_flight_t  it;

    it.holder = holder;
    it.generation = 1;
    kvr_flight_sample(&it, chains, n, from, false);

    return it;
}


static uint32_t
found(const uint64_t *chains, uint32_t n, uint32_t holder, bool peers,
    uint64_t now)
{
    uint32_t  i;

    for (i = 0; i < HOLDERS; i++) {
        depths[i].generation = 1;
        depths[i].depth = 0;
    }

    kvr_flights_find(&f, chains, n, peers, now, depths, HOLDERS);

    return depths[holder].depth;
}


static uint32_t
words(void)
{
    uint32_t  i, n;

    for (i = 0, n = 0; i < shared->z.nsets * KVR_FLIGHT_WAYS; i++) {
        n += shared->words[i] != 0;
    }

    return n;
}


/* ---- depths ------------------------------------------------------------- */

/* The rule in the words of kv-simulate: multiples of step in (from, n]. */

static uint32_t
multiples(uint32_t from, uint32_t n, uint32_t most, uint32_t *out)
{
    uint32_t  depth, i, last, step;

    for (step = 4; (uint64_t) step * most < n - from; step *= 2) { /* void */ }

    i = 0;
    last = n - n % 4;

    if (last > from) {
        out[i++] = last;
    }

    for (depth = n - n % step; depth > from; depth -= step) {
        if (depth != last) {
            out[i++] = depth;
        }
    }

    return i;
}


static void
sampled(void)
{
    bool          same, deep, lookups;
    uint32_t      depth, from, i, k, n, out[200], most;
    uint64_t      a[N / KVR_FLIGHT_STRIDE], word[N / KVR_FLIGHT_STRIDE];
    kvr_flight_t  it;

    same = true;
    deep = true;
    lookups = true;
    most = 0;
    fresh(SETS);
    prompt(2, N, 0, a);

    for (n = 0; n <= N; n += n < 300 ? 1 : 101) {

        for (from = 0; from <= n; from += 1 + n / 7) {
            it = flight(1, a, n, from);
            k = multiples(from, n, 32, out);
            same = same && k == it.n;
            most = kvr_max(most, k);

            for (i = 0; i < k && i < it.n; i++) {
                same = same && it.chains[i] == a[out[i] / 4 - 1];
            }

            kvr_flight_sample(&it, a, n, from, true);
            deep = deep && it.n == (k != 0)
                   && (k == 0 || it.chains[0] == a[n / 4 - 1]);
        }

        /* each depth alone: is it looked up where it must be? */

        k = multiples(0, n, KVR_FLIGHT_LOOKUPS, out);
        most = kvr_max(most, k > 129 ? 1000 : 0);

        for (i = 0; i < k; i++) {
            memset(shared->words, 0, sizeof(shared->words));
            depth = out[i];
            it.n = 1;
            it.holder = 3;
            it.generation = 1;
            it.chains[0] = a[depth / 4 - 1];
            kvr_flights_add(&f, &it, KVR_FLIGHT_COUNTED, false, NOW, UNTIL);
            lookups = lookups && found(a, n, 3, false, NOW) == depth;
        }

        if (n >= 1024) {
            memset(shared->words, 0, sizeof(shared->words));
            it.chains[0] = a[0];
            kvr_flights_add(&f, &it, KVR_FLIGHT_COUNTED, false, NOW, UNTIL);
            lookups = lookups && found(a, n, 3, false, NOW) == 0;
        }
    }

    ok(same, "the depths of a flight are those of kv-simulate");
    is_u64(most, KVR_FLIGHT_SAMPLES, "which are 33 at most, and of a lookup "
           "129");
    ok(deep, "of a whole prompt it is the deepest alone");
    ok(lookups, "each depth is looked up that has to be, and no other");

    is_u64(flight(1, a, 100, 200).n, 0, "a prompt that is cached has none");

    for (i = 0, k = 0; i < N / 4; i++) {
        word[i] = a[i];
        k += a[i] >> 48 != 0;
    }

    is_u64(k, 0, "a chain fits in 6 bytes");
    (void) kvr_flights_attach(&f, &shared->z, (char *) shared, NULL, 0);
    prompt(2, N, 0, a);
    ok(memcmp(a, word, sizeof(a)) == 0, "all nginx have the same chains");
    (void) kvr_flights_attach(&f, &shared->z, (char *) shared, "secret", 6);
    prompt(2, N, 0, a);
    ok(a[0] != word[0] && a[9] != word[9], "those with a key have others");
    (void) kvr_flights_attach(&f, &shared->z, (char *) shared, "secret", 6);
    prompt(2, N, 0, word);
    ok(memcmp(a, word, sizeof(a)) == 0, "which all with the same key have");
}


/* ---- words -------------------------------------------------------------- */

static void
counted(void)
{
    uint32_t      i;
    uint64_t      a[25], b[25];
    kvr_flight_t  one, two;

    fresh(SETS);
    prompt(2, 100, 50, a);
    prompt(3, 100, 50, b);

    ok(kvr_flights_empty(&f, NOW), "at first the table is empty");
    is_u64(found(a, 100, 7, false, NOW), 0, "and nothing is found");

    one = flight(7, a, 100, 0);
    kvr_flights_add(&f, &one, KVR_FLIGHT_COUNTED, false, NOW, UNTIL);

    ok(!kvr_flights_empty(&f, NOW), "then it is not");
    is_u64(found(a, 100, 7, false, NOW), 100, "what was sent is in flight");
    is_u64(found(b, 100, 7, false, NOW), 48, "a sibling has what it shares");
    is_u64(found(a, 70, 7, false, NOW), 68, "and so has its beginning");
    is_u64(found(a, 100, 8, false, NOW), 0, "another holder has nothing");

    depths[7].generation = 2;
    depths[7].depth = 0;
    kvr_flights_find(&f, a, 100, false, NOW, depths, HOLDERS);
    is_u64(depths[7].depth, 0, "nor whoever gets its number next");

    depths[7].generation = 1;
    kvr_flights_find(&f, a, 100, false, NOW, depths, 7);
    is_u64(depths[7].depth, 0, "holders beyond the last are left out");

    two = flight(7, b, 100, 0);
    kvr_flights_add(&f, &two, KVR_FLIGHT_COUNTED, false, NOW, UNTIL);
    kvr_flights_end(&f, &one, false, NOW);
    is_u64(found(a, 100, 7, false, NOW), 48, "what others have too remains");
    kvr_flights_end(&f, &two, false, NOW);
    is_u64(words(), 0, "with the last end all is free");

    kvr_flights_end(&f, &two, false, NOW);
    is_u64(words(), 0, "an end of nothing does nothing");

    for (i = 0; i < 126; i++) {
        kvr_flights_add(&f, &one, KVR_FLIGHT_COUNTED, false, NOW, UNTIL);
    }

    for (i = 0; i < 126; i++) {
        is_u64(found(a, 100, 7, false, NOW) != 100, 0, "%u are counted",
               126 - i);
        kvr_flights_end(&f, &one, false, NOW);
    }

    is_u64(words(), 0, "to the last one");

    for (i = 0; i < 200; i++) {
        kvr_flights_add(&f, &one, KVR_FLIGHT_COUNTED, false, NOW, UNTIL);
    }

    for (i = 0; i < 200; i++) {
        kvr_flights_end(&f, &one, false, NOW);
    }

    is_u64(found(a, 100, 7, false, NOW), 100, "more than 127 stay");
    is_u64(found(a, 100, 7, false, UNTIL + 250), 0, "until their time");

    one.holder = 1 << 20;
    kvr_flights_add(&f, &one, KVR_FLIGHT_COUNTED, false, NOW, UNTIL);
    is_u64(found(a, 100, 0, false, NOW), 0, "a holder that no word can name "
           "has none");
}


static void
peers(void)
{
    uint64_t      a[25];
    kvr_flight_t  it;

    fresh(SETS);
    prompt(2, 100, 0, a);
    it = flight(7, a, 100, 0);

    kvr_flights_add(&f, &it, KVR_FLIGHT_COUNTED, true, NOW, UNTIL);
    is_u64(found(a, 100, 7, false, NOW), 0, "what peers tell is masked");
    is_u64(found(a, 100, 7, true, NOW), 100, "unless they are fresh");

    kvr_flights_end(&f, &it, false, NOW);
    is_u64(found(a, 100, 7, true, NOW), 100, "own ends are not theirs");
    kvr_flights_end(&f, &it, true, NOW);
    is_u64(words(), 0, "theirs are");
}


static void
timed(void)
{
    uint64_t      a[25], now;
    kvr_flight_t  it;

    fresh(SETS);
    prompt(2, 100, 0, a);
    it = flight(7, a, 100, 0);

    kvr_flights_add(&f, &it, KVR_FLIGHT_TIMED, false, NOW, NOW + 5000);
    kvr_flights_end(&f, &it, false, NOW);
    is_u64(found(a, 100, 7, false, NOW + 4999), 100, "no end takes away what "
           "has a time");
    is_u64(found(a, 100, 7, false, NOW + 5250), 0, "which ends by itself");
    kvr_flights_add(&f, &it, KVR_FLIGHT_TIMED, false, NOW, NOW + 9000);
    kvr_flights_add(&f, &it, KVR_FLIGHT_TIMED, false, NOW, NOW + 2000);
    is_u64(found(a, 100, 7, false, NOW + 8999), 100, "the later time counts");
    ok(!kvr_flights_empty(&f, NOW + 8999)
       && kvr_flights_empty(&f, NOW + 12000), "then the table is empty");

    /* renewed */

    fresh(SETS);
    kvr_flights_add(&f, &it, KVR_FLIGHT_COUNTED, false, NOW, UNTIL);
    kvr_flights_add(&f, &it, KVR_FLIGHT_RENEWED, false, NOW + 30000,
                    UNTIL + 30000);
    is_u64(found(a, 100, 7, false, UNTIL + 29999), 100, "what goes on is "
           "renewed");
    kvr_flights_end(&f, &it, false, NOW + 30000);
    is_u64(words(), 0, "and counted once");
    kvr_flights_add(&f, &it, KVR_FLIGHT_RENEWED, false, NOW, UNTIL);
    is_u64(found(a, 100, 7, false, NOW), 100, "what was lost is made again");
    kvr_flights_end(&f, &it, false, NOW);
    is_u64(words(), 0, "with an end");

    /* the clock of 12 bits */

    fresh(SETS);

    for (now = NOW; now < NOW + 3000000; now += 1000) {
        kvr_flights_add(&f, &it, KVR_FLIGHT_TIMED, false, now,
                        now + KVR_FLIGHT_TIMED_MAX);

        if (found(a, 100, 7, false, now + KVR_FLIGHT_TIMED_MAX - 1) != 100
            || found(a, 100, 7, false, now + KVR_FLIGHT_TIMED_MAX + 250))
        {
            break;
        }
    }

    is_u64(now, NOW + 3000000, "at any time a time is what it was");

    kvr_flights_clear(&f, now);

    for (it.n = 0; now < NOW + 5000000; now += 100) {
        kvr_flights_clear(&f, now);

        if (now > NOW + 3300000 && found(a, 100, 7, false, now)) {
            break;
        }

        /* others keep the table in use */

        it.n = 1;
        it.chains[0] = now << 20 & 0xffffffffffff;
        kvr_flights_add(&f, &it, KVR_FLIGHT_TIMED, false, now, now + 1000);
    }

    is_u64(now, NOW + 5000000, "and does not come again");
}


static void
full(void)
{
    uint32_t      i, n;
    kvr_flight_t  it;

    fresh(1);

    it.generation = 1;
    it.n = 1;

    for (i = 0; i < 9; i++) {
        it.holder = i;
        it.chains[0] = 1000 + i;
        kvr_flights_add(&f, &it, KVR_FLIGHT_TIMED, false, NOW,
                        NOW + (i == 4 ? 1000 : 5000));
    }

    for (i = 0, n = 0; i < 9; i++) {
        n += found((uint64_t[]) { 1000 + i }, 4, i, false, NOW) != 0;
    }

    is_u64(n, 8, "of a full set one word goes");
    is_u64(found((uint64_t[]) { 1004 }, 4, 4, false, NOW), 0,
           "that which ends first");
}


/* ---- races -------------------------------------------------------------- */

/*
 * Adds, renews and ends flights of prompts with one beginning at two holders,
 * and looks at what is its own: at most `most` are open.
 */

static bool
race(uint32_t number, uint32_t rounds, uint32_t most)
{
    bool                  good;
    uint32_t              i, k, which;
    uint64_t              seed;
    kvr_flight_t          open[8];
    kvr_inflight_depth_t  mine[2];

    good = true;
    seed = number + 1;
    memset(open, 0, sizeof(open));

    for (i = 0; i < rounds || most; i++) {
        k = fx_below(&seed, most);

        if (i >= rounds) {
            k = --most;
        }

        if (open[k].n) {
            mine[0] = mine[1] = (kvr_inflight_depth_t) { 1, 0 };
            kvr_flights_find(&f, prompts[open[k].generation], 100, false, NOW,
                             mine, 2);
            open[k].generation = 1;
            kvr_flights_end(&f, &open[k], false, NOW);
            open[k].n = 0;
            good = good && mine[open[k].holder].depth == 100;

        } else if (i < rounds) {
            which = fx_below(&seed, PROMPTS);
            open[k] = flight(fx_below(&seed, 2), prompts[which], 100, 0);
            kvr_flights_add(&f, &open[k], KVR_FLIGHT_COUNTED, false, NOW,
                            UNTIL);
            kvr_flights_add(&f, &open[k], KVR_FLIGHT_RENEWED, false, NOW,
                            UNTIL);

            /* until the end, the number of the prompt is kept here */

            open[k].generation = which;
        }
    }

    return good;
}


static void *
thread(void *number)
{
    return race((uint32_t) (uintptr_t) number, ROUNDS, 8) ? number : NULL;
}


static void
child(void)
{
    (void) race(racer, UINT32_MAX, 8);
}


static void
raced(void)
{
    bool       good;
    void      *answer;
    pid_t      pids[RACERS];
    uint32_t   i;
    pthread_t  threads[RACERS];

    /* sets for all of their words */

    fresh(256);

    for (i = 0; i < PROMPTS; i++) {
        prompt(i + 2, 100, 92, prompts[i]);
    }

    ok(race(0, ROUNDS, 8), "a flight is found until its end");
    is_u64(words(), 0, "and leaves nothing");
    good = true;

    for (i = 1; i < RACERS; i++) {
        good = good && pthread_create(&threads[i], NULL, thread,
                                      (void *) (uintptr_t) i) == 0;
    }

    for (i = 1; i < RACERS; i++) {
        good = pthread_join(threads[i], &answer) == 0 && answer && good;
    }

    ok(good, "threads find their own flights until they end them");
    is_u64(words(), 0, "and leave nothing");

    for (i = 0; i < RACERS; i++) {
        racer = i;
        pids[i] = start(child);
    }

    usleep(100000);

    for (i = 0; i < RACERS; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }

    ok(words() != 0, "processes that are killed leave their flights");
    ok(race(0, ROUNDS, 8), "others go on beside these");
    good = true;

    for (i = 0; i < PROMPTS; i++) {
        good = good && found(prompts[i], 100, 0, false, UNTIL + 250) == 0
               && depths[1].depth == 0;
    }

    ok(good, "which end with their time");
}


int
main(void)
{
    shared = shared_memory(sizeof(shared_t));

    sampled();
    counted();
    peers();
    timed();
    full();
    raced();

    return done();
}
