/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How often blocks were asked for: exact counts under a clock of our own, the
 * window, full sets, and many processes at once, some of which are killed.
 */


#include "traffic/kvr_frequency.h"

#include "fixture.h"
#include "tap.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>


#define SET         sizeof(kvr_frequency_set_t)
#define SETS        16384
#define BUCKET      1000u
#define WINDOW      (BUCKET * (KVR_FREQUENCY_BUCKETS - 1))
#define START       UINT64_C(1000000000)

#define CHAINS      8           /* of the model: one prefix, then its own */
#define DEPTH       12
#define SHARED      5
#define PROCESSES   4
#define ROUNDS      20000
#define RACES       1000
#define RACERS      24          /* blocks, in sets for 64 */


typedef struct {
    uint64_t              done[PROCESSES];
    uint64_t              start;            /* rounds begun, of a race */
    uint64_t              ended;            /* processes, of all rounds */
    kvr_frequency_zone_t  z;
} shared_t;


static char                  *base;
static kvr_frequency_zone_t   zone, *z = &zone;
static uint32_t               out[KVR_FREQUENCY_DEPTH];
static uint64_t               seed = 1;


static uint64_t
rnd(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);

    return seed >> 33;
}


static void
fresh(uint64_t nsets)
{
    uint64_t  secret[2] = { UINT64_C(0x9ae16a3b2f90404f),
                            UINT64_C(0xc949d7c7509e6557) };

    memset(base, 0xa5, nsets * SET);
    kvr_frequency_format(z, base, 0, nsets * SET, WINDOW, secret);
}


static uint32_t
touch(const uint64_t *locals, uint32_t n, uint64_t now)
{
    return kvr_frequency_touch(z, base, locals, n, now, out);
}


/* The first block of a prompt of its own. */

static uint32_t
touch_one(uint64_t local, uint64_t now)
{
    (void) touch(&local, 1, now);

    return out[0];
}


static void
test_counts(void)
{
    uint64_t  a[4] = { 1, 2, 3, 4 }, b[3] = { 1, 2, 9 }, c[2] = { 2, 3 };

    fresh(SETS);

    is_u64(z->nsets, SETS, "the table has the sets that fit");
    is_u64(z->bucket_ms, BUCKET, "a bucket is a seventh of the window");

    memset(out, 0xff, sizeof(out));
    is_u64(touch(a, 4, START), 4, "each matched block is counted");
    ok(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 0,
       "the first lookup finds that nobody asked before");
    is_u64(out[4], UINT32_MAX, "nothing is written behind the last");

    (void) touch(a, 4, START + 1);
    ok(out[0] == 1 && out[3] == 1, "the second finds the first, not itself");

    (void) touch(b, 3, START + 2);
    ok(out[0] == 2 && out[1] == 2 && out[2] == 0,
       "a branch counts the shared prefix, and its own block apart");

    (void) touch(a, 4, START + 3);
    ok(out[0] == 3 && out[1] == 3 && out[2] == 2 && out[3] == 2,
       "blocks behind the branch are counted apart");

    (void) touch(c, 2, START + 4);
    ok(out[0] == 0 && out[1] == 0,
       "the same local hashes in another place are other blocks");

    is_u64(touch(a, 0, START + 5), 0, "a lookup without matches counts none");
    is_u64(z->replaced, 0, "nothing was forgotten");
    is_u64(z->cut, 0, "no lookup was cut");
}


static void
test_window(void)
{
    uint32_t  i;

    fresh(SETS);

    (void) touch_one(7, START);
    is_u64(touch_one(7, START + WINDOW), 1, "a lookup counts for the window");
    is_u64(touch_one(7, START + WINDOW + BUCKET - 1), 2,
           "and to the end of a bucket");
    is_u64(touch_one(7, START + WINDOW + BUCKET), 2, "not longer");

    /* at its end a bucket is as old as can be when it is left out */

    (void) touch_one(8, START + BUCKET - 1);
    is_u64(touch_one(8, START + BUCKET - 1 + WINDOW), 1,
           "what came late in its bucket counts for the window, too");
    is_u64(touch_one(8, START + BUCKET + WINDOW), 1, "and then no more");

    for (i = 0; i < 3 * KVR_FREQUENCY_BUCKETS; i++) {
        (void) touch_one(9, START + i * BUCKET);
    }

    is_u64(touch_one(9, START + i * BUCKET), KVR_FREQUENCY_BUCKETS - 1,
           "buckets are used again");
    is_u64(touch_one(9, START * 1000), 0, "after long silence nothing counts");

    (void) touch_one(10, START + BUCKET);
    is_u64(touch_one(10, START), 1, "a clock that is late sees what is ahead");
    is_u64(touch_one(10, START + BUCKET), 2, "and is counted in its time");

    (void) touch_one(11, START + KVR_FREQUENCY_BUCKETS * BUCKET);
    (void) touch_one(11, START);
    is_u64(touch_one(11, START + KVR_FREQUENCY_BUCKETS * BUCKET), 1,
           "one that is a window late is not, and takes nothing away");
}


/* Against a list of all that was ever touched. */

static void
test_model(void)
{
    uint32_t   i, k, c, n, o, t, want, wrong, lookups;
    uint64_t   now, bucket;
    uint64_t   chain[CHAINS][DEPTH];
    uint64_t  *when[CHAINS];
    uint32_t  *depth[CHAINS], used[CHAINS];

    fresh(SETS);

    for (c = 0; c < CHAINS; c++) {
        when[c] = calloc(ROUNDS, sizeof(uint64_t));
        depth[c] = calloc(ROUNDS, sizeof(uint32_t));
        used[c] = 0;

        for (i = 0; i < DEPTH; i++) {
            chain[c][i] = i < SHARED ? i : 100 * (c + 1) + i;
        }
    }

    now = START;
    wrong = 0;
    lookups = 3000;

    for (k = 0; k < lookups; k++) {
        now += rnd() % 10 == 0 ? rnd() % (2 * WINDOW) : rnd() % (BUCKET / 4);
        bucket = now / BUCKET;
        c = rnd() % CHAINS;
        n = rnd() % (DEPTH + 1);

        wrong += touch(chain[c], n, now) != n;

        for (i = 0; i < n; i++) {
            want = 0;

            for (o = 0; o < CHAINS; o++) {
                if (o != c && i >= SHARED) {
                    continue;
                }

                for (t = used[o]; t-- > 0; /* void */ ) {
                    if (bucket - when[o][t] >= KVR_FREQUENCY_BUCKETS) {
                        break;
                    }

                    want += depth[o][t] > i;
                }
            }

            wrong += out[i] != want;
        }

        when[c][used[c]] = bucket;
        depth[c][used[c]++] = n;
    }

    is_u64(wrong, 0, "%u lookups at random: all counts are those of the model",
           lookups);
    is_u64(z->replaced, 0, "in a table with room nothing is forgotten");

    for (c = 0; c < CHAINS; c++) {
        free(when[c]);
        free(depth[c]);
    }
}


static void
test_full(void)
{
    uint64_t  i, wrong;

    fresh(1);

    for (i = 0; i < KVR_FREQUENCY_WAYS; i++) {
        (void) touch_one(i, START + i * BUCKET);
    }

    i = START + (KVR_FREQUENCY_WAYS - 1) * BUCKET;

    (void) touch_one(0, i);
    is_u64(z->replaced, 0, "as many blocks as slots are all kept");

    is_u64(touch_one(77, i), 0, "one more is counted, too");
    is_u64(z->replaced, 1, "in the room of another, which is counted");

    ok(touch_one(0, i) == 2 && touch_one(2, i) == 1 && touch_one(7, i) == 1
       && touch_one(77, i) == 1,
       "the others keep their counts");

    is_u64(touch_one(1, i + BUCKET), 0,
           "forgotten was the one not asked for the longest");
    is_u64(z->replaced, 2, "now it took another's room");

    (void) touch_one(78, START + 100 * BUCKET);
    is_u64(z->replaced, 2, "what is out of the window may go uncounted");

    /* slots keep 16 bits of their tags with each count */

    for (i = 0, wrong = 0; i < 500000; i++) {
        wrong += touch_one(rnd() << 31 | rnd(), START + 200 * BUCKET) != 0;
    }

    is_u64(wrong, 0, "a new block never has the counts of the one before it");
    ok(z->replaced >= i - KVR_FREQUENCY_WAYS, "all were counted: %" PRIu64,
       z->replaced);
}


static void
test_bounds(void)
{
    uint32_t              i;
    static uint64_t       locals[KVR_FREQUENCY_DEPTH + 1];
    kvr_frequency_set_t  *s;

    fresh(SETS);

    for (i = 0; i <= KVR_FREQUENCY_DEPTH; i++) {
        locals[i] = rnd();
    }

    is_u64(touch(locals, KVR_FREQUENCY_DEPTH, START), KVR_FREQUENCY_DEPTH,
           "all blocks to the bound are counted");
    is_u64(z->cut, 0, "which is no cut");
    is_u64(touch(locals, KVR_FREQUENCY_DEPTH + 1, START), KVR_FREQUENCY_DEPTH,
           "a deeper lookup is counted to the bound");
    is_u64(z->cut, 1, "and that it was cut");
    is_u64(out[KVR_FREQUENCY_DEPTH - 1], 1, "the last in it, too");

    fresh(1);
    (void) touch_one(5, START);

    s = (kvr_frequency_set_t *) base;
    s->counts[0][START / BUCKET % KVR_FREQUENCY_BUCKETS] |= 0xffffff;

    is_u64(touch_one(5, START), 0xffffff, "a count at its end");
    is_u64(touch_one(5, START), 0xffffff, "stays there");
}


/*
 * Processes that ask for the same prompts all the time, in a table with room:
 * no lookup may be lost, and of a killed process at most its last one is
 * counted in part.
 */

static void
test_processes(bool killed)
{
    int        status;
    pid_t      pid[PROCESSES];
    uint32_t   i, k, p;
    uint64_t   sum, locals[64];
    shared_t  *s;

    s = shared_memory(sizeof(shared_t));

    z = &s->z;
    fresh(SETS);

    for (i = 0; i < 64; i++) {
        locals[i] = 1000 + i;
    }

    for (p = 0; p < PROCESSES; p++) {
        pid[p] = fork();

        if (pid[p] == 0) {
            for (k = 0; k < ROUNDS || killed; k++) {
                (void) touch(locals, 64, START);
                __atomic_store_n(&s->done[p], k + 1, __ATOMIC_RELAXED);
            }

            _exit(0);
        }
    }

    for (p = 0; p < PROCESSES; p++) {
        if (killed) {
            while (__atomic_load_n(&s->done[p], __ATOMIC_RELAXED) < 100) {
                (void) usleep(1000);
            }

            (void) usleep(1000 + rnd() % 5000);
            kill(pid[p], SIGKILL);
        }

        waitpid(pid[p], &status, 0);
    }

    for (p = 0, sum = 0; p < PROCESSES; p++) {
        sum += s->done[p];
    }

    (void) touch(locals, 64, START);

    if (killed) {
        for (i = 0, k = 0; i < 64; i++) {
            k += out[i] < sum || out[i] > sum + PROCESSES
                 || (i && out[i] > out[i - 1]);
        }

        is_u64(k, 0, "killed processes left whole counts of %" PRIu64, sum);

    } else {
        for (i = 0, k = 0; i < 64; i++) {
            k += out[i] != PROCESSES * ROUNDS;
        }

        is_u64(k, 0, "%u processes lost no lookup of %" PRIu64, PROCESSES,
               sum);
    }

    is_u64(z->replaced, 0, "no block has two slots");

    z = &zone;
    munmap(s, sizeof(shared_t));
}


/*
 * Blocks that are asked for the first time by all processes at once, by each
 * in another order, all of them in a few sets: every block gets one slot.
 */

static void
test_race(void)
{
    int        status;
    pid_t      pid[PROCESSES];
    uint32_t   i, k, p, wrong, lost;
    shared_t  *s;

    s = shared_memory(sizeof(shared_t));

    z = &s->z;

    for (p = 0; p < PROCESSES; p++) {
        pid[p] = fork();

        if (pid[p] == 0) {
            for (k = 1; k <= RACES; k++) {
                while (__atomic_load_n(&s->start, __ATOMIC_ACQUIRE) < k) {
                    (void) sched_yield();
                }

                for (i = 0; i < RACERS; i++) {
                    (void) touch_one((i + p * (k % RACERS)) % RACERS, START);
                }

                (void) __atomic_fetch_add(&s->ended, 1, __ATOMIC_RELEASE);
            }

            _exit(0);
        }
    }

    for (k = 1, wrong = 0, lost = 0; k <= RACES; k++) {
        fresh(8);
        __atomic_store_n(&s->start, k, __ATOMIC_RELEASE);

        while (__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE) < k * PROCESSES) {
            (void) sched_yield();
        }

        for (i = 0; i < RACERS; i++) {
            wrong += touch_one(i, START) != PROCESSES;
        }

        lost += z->replaced;
    }

    for (p = 0; p < PROCESSES; p++) {
        waitpid(pid[p], &status, 0);
    }

    is_u64(lost, 0, "%u races for slots: nobody's was taken away", RACES);
    is_u64(wrong, 0, "and all lookups are counted");

    z = &zone;
    munmap(s, sizeof(shared_t));
}


/*
 * In one set, with more blocks than slots: counts may be forgotten, but none
 * is more than was asked.
 */

static void
test_crowd(void)
{
    int        status;
    pid_t      pid[PROCESSES];
    uint32_t   i, k, p;
    uint64_t   locals[16], *asked;
    shared_t  *s;

    s = shared_memory(sizeof(shared_t) + sizeof(locals));

    asked = (uint64_t *) (s + 1);
    z = &s->z;
    fresh(1);

    for (p = 0; p < PROCESSES; p++) {
        pid[p] = fork();

        if (pid[p] == 0) {
            seed = p;

            for (k = 0; k < ROUNDS; k++) {
                i = rnd() % 16;
                (void) __atomic_fetch_add(&asked[i], 1, __ATOMIC_SEQ_CST);

                if (touch_one(i, START + k % 3 * BUCKET)
                    >= __atomic_load_n(&asked[i], __ATOMIC_SEQ_CST))
                {
                    s->done[p]++;
                }
            }

            _exit(0);
        }
    }

    for (p = 0, k = 0; p < PROCESSES; p++) {
        waitpid(pid[p], &status, 0);
        k += s->done[p];
    }

    is_u64(k, 0, "in a crowded set nothing counts more than it was asked");
    ok(z->replaced > 0, "though blocks were forgotten");

    z = &zone;
    munmap(s, sizeof(shared_t) + sizeof(locals));
}


int
main(void)
{
    base = shared_memory(SETS * SET);

    test_counts();
    test_window();
    test_model();
    test_full();
    test_bounds();
    test_processes(false);
    test_processes(true);
    test_race();
    test_crowd();

    return done();
}
