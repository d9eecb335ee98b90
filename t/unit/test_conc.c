/*
 * Copyright (C) the nginx-kv-router authors
 *
 * One process writes, another looks up, on one index.  The writer goes round
 * through states of which each has its answer; a lookup beside it may say
 * less than is true, never more.
 *
 *     test_conc [milliseconds]
 */


#include "radix_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>


#define VIEWS        200
#define LONG         600                /* two runs */
#define CHURNS       512


/* The views. */
enum {
    V_STABLE = 0,
    V_MIDDLE,
    V_MOVE,
    V_TIERS,
    V_BRANCH,
    V_PLAIN,
    V_CHURN,
    V_NEVER,
    V_CROWD                             /* and all behind it */
};


/* The words in the shared memory. */
enum {
    W_STOP = 0,
    W_ROUNDS,
    W_REFUSED,
    W_LOOKUPS,
    W_STABLE,
    W_MIDDLE,
    W_MOVE,
    W_TIERS,
    W_BRANCH,
    W_PLAIN,
    W_CHURN,
    W_CROWD,
    W_LESS,
    W_TORN
};


static void beside(uint64_t ms);
static void prompts(void);
static void writer(void);
static void middle(void);
static void move(void);
static void tiers(void);
static void branch(void);
static void plain(void);
static void churn(uint64_t i);
static void crowd(uint64_t i);
static void reader(void);
static void store(uint32_t view, kvr_tier_t tier, const uint64_t *q,
    uint32_t from, uint32_t to);
static void drop(uint32_t view, kvr_tier_t tier, const uint64_t *q,
    uint32_t from, uint32_t to);
static void chain(uint64_t *q, uint64_t name, uint32_t from, uint32_t n);


static fx_t      fx;
static fx_t     *f = &fx;

/* prompts; the handle of a block is its hash ^ 1 */
static uint64_t  q_long[LONG], q_alone[LONG], q_branch[80], q_move[2];
static uint64_t  q_tiers[64], q_crowd[40];


int
main(int argc, char **argv)
{
    uint64_t  ms;

    ms = argc > 1 ? strtoull(argv[1], NULL, 0) : 1500;

    for (fx_kind = 0; fx_kind < KVR_INDEX_KINDS; fx_kind++) {
        note("%s", kvr_index_name(fx_kind));
        beside(ms);
    }

    return done();
}


static void
beside(uint64_t ms)
{
    int       status;
    pid_t     pid;
    uint32_t  i;
    uint64_t  until;

    fx_open(f, 16 << 20, VIEWS);
    prompts();

    until = fx_now_ns() + 1000000 * ms;

    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        writer();
        _exit(0);
    }

    while (fx_now_ns() < until || kvr_load64(&f->words[W_ROUNDS]) <= 10
           || f->words[W_LOOKUPS] <= 100)
    {
        for (i = 0; i < 16; i++) {
            reader();
        }
    }

    __atomic_store_n(&f->words[W_STOP], 1, __ATOMIC_RELAXED);
    waitpid(pid, &status, 0);

    ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the writer went on");
    ok(f->words[W_ROUNDS] > 10 && f->words[W_LOOKUPS] > 100,
       "%llu rounds, %llu lookups", (unsigned long long) f->words[W_ROUNDS],
       (unsigned long long) f->words[W_LOOKUPS]);
    is_u64(f->words[W_REFUSED], 0, "no event was refused");
    is_u64(f->words[W_STABLE], 0, "what nobody touches is answered exactly");
    is_u64(f->words[W_MIDDLE], 0,
           "a block removed in the middle: never too much");
    is_u64(f->words[W_MOVE], 0, "a handle that moves is never at both places");
    is_u64(f->words[W_TIERS], 0, "tiers are cumulative, host never too much");
    is_u64(f->words[W_BRANCH], 0, "trunk and branch: never too much");
    is_u64(f->words[W_PLAIN], 0, "nor without a hole");
    is_u64(f->words[W_CHURN], 0, "memory used again shows no other's blocks");
    is_u64(f->words[W_CROWD], 0, "a run of many views: never too much");
    ok(fx_whole(f, "at the end"), "the index is whole at the end");
    note("%llu said less than some state, %llu were cut short",
         (unsigned long long) f->words[W_LESS],
         (unsigned long long) f->words[W_TORN]);

    fx_close(f);
}


static void
prompts(void)
{
    uint32_t  i;

    chain(q_long, 1, 0, LONG);
    chain(q_alone, 2, 0, LONG);
    chain(q_tiers, 3, 0, 64);
    chain(q_move, 4, 0, 2);
    chain(q_crowd, 5, 0, 40);

    /* the branch leaves the long chain at 20 */

    memcpy(q_branch, q_long, 20 * sizeof(uint64_t));
    chain(q_branch, 6, 20, 80);

    store(V_STABLE, KVR_DEVICE, q_long, 0, LONG);
    store(V_STABLE, KVR_DEVICE, q_alone, 0, LONG);
    store(V_MIDDLE, KVR_DEVICE, q_long, 0, LONG);
    drop(V_MIDDLE, KVR_DEVICE, q_long, 200, 300);
    store(V_TIERS, KVR_HOST, q_tiers, 0, 48);
    store(V_BRANCH, KVR_DEVICE, q_long, 0, 40);
    store(V_BRANCH, KVR_DEVICE, q_branch, 20, 50);
    store(V_PLAIN, KVR_DEVICE, q_long, 0, 40);
    store(V_PLAIN, KVR_DEVICE, q_branch, 20, 50);

    for (i = V_CROWD; i < VIEWS; i += 2) {
        store(i, KVR_DEVICE, q_crowd, 0, 20);
    }
}


static void
chain(uint64_t *q, uint64_t name, uint32_t from, uint32_t n)
{
    uint32_t  i;

    for (i = from; i < n; i++) {
        q[i] = fx_mix(name << 20 | i);
    }
}


static void
store(uint32_t view, kvr_tier_t tier, const uint64_t *q, uint32_t from,
    uint32_t to)
{
    uint32_t  i;
    uint64_t  handles[LONG];

    for (i = from; i < to; i++) {
        handles[i] = q[i] ^ 1;
    }

    if (fx_store(f, view, tier, from ? q[from - 1] ^ 1 : 0, handles + from,
                 q + from, to - from)
        != KVR_OK)
    {
        f->words[W_REFUSED]++;
    }
}


/* From the end to the beginning. */

static void
drop(uint32_t view, kvr_tier_t tier, const uint64_t *q, uint32_t from,
    uint32_t to)
{
    uint32_t  i;
    uint64_t  handles[LONG];

    for (i = from; i < to; i++) {
        handles[to - 1 - i] = q[i] ^ 1;
    }

    if (fx_remove(f, view, tier, handles, to - from)) {
        f->words[W_REFUSED]++;
    }
}


/* ---- the writer --------------------------------------------------------- */

static void
writer(void)
{
    uint64_t  i;

    for (i = 0; __atomic_load_n(&f->words[W_STOP], __ATOMIC_RELAXED) == 0;
         i++)
    {
        middle();
        move();
        tiers();
        branch();
        plain();
        churn(i);
        crowd(i);

        f->words[W_ROUNDS]++;
    }
}


/* 200, 100, 100, 100, 250 and back: never 600, never above 250. */

static void
middle(void)
{
    drop(V_MIDDLE, KVR_DEVICE, q_long, 100, 101);
    store(V_MIDDLE, KVR_DEVICE, q_long, 200, 300);
    drop(V_MIDDLE, KVR_DEVICE, q_long, 250, LONG);
    store(V_MIDDLE, KVR_DEVICE, q_long, 100, 101);

    drop(V_MIDDLE, KVR_DEVICE, q_long, 100, 101);
    store(V_MIDDLE, KVR_DEVICE, q_long, 250, LONG);
    drop(V_MIDDLE, KVR_DEVICE, q_long, 200, 300);
    store(V_MIDDLE, KVR_DEVICE, q_long, 100, 101);
}


/* One handle for the first block or the second: never 2. */

static void
move(void)
{
    uint64_t  handle;

    handle = q_move[0] ^ 1;

    fx_store(f, V_MOVE, KVR_DEVICE, 0, &handle, q_move, 1);
    fx_store(f, V_MOVE, KVR_DEVICE, handle, &handle, q_move + 1, 1);
}


/* Host has 48 all the time, device and disk some. */

static void
tiers(void)
{
    store(V_TIERS, KVR_DEVICE, q_tiers, 0, 30);
    store(V_TIERS, KVR_DISK, q_tiers, 47, 64);
    drop(V_TIERS, KVR_DEVICE, q_tiers, 10, 20);
    drop(V_TIERS, KVR_DISK, q_tiers, 47, 64);
    drop(V_TIERS, KVR_DEVICE, q_tiers, 20, 30);
    drop(V_TIERS, KVR_DEVICE, q_tiers, 0, 10);
}


/* 50, 10, 10, 10, 25, 10, 10, 50: never 80. */

static void
branch(void)
{
    drop(V_BRANCH, KVR_DEVICE, q_long, 10, 11);
    store(V_BRANCH, KVR_DEVICE, q_branch, 50, 80);
    drop(V_BRANCH, KVR_DEVICE, q_branch, 25, 80);
    store(V_BRANCH, KVR_DEVICE, q_long, 10, 11);

    drop(V_BRANCH, KVR_DEVICE, q_long, 10, 11);
    store(V_BRANCH, KVR_DEVICE, q_branch, 25, 50);
    store(V_BRANCH, KVR_DEVICE, q_long, 10, 11);
}


/* The same without a hole: the trunk is cut at 10, below the branch. */

static void
plain(void)
{
    drop(V_PLAIN, KVR_DEVICE, q_long, 10, 40);
    store(V_PLAIN, KVR_DEVICE, q_branch, 50, 80);
    drop(V_PLAIN, KVR_DEVICE, q_branch, 50, 80);
    store(V_PLAIN, KVR_DEVICE, q_long, 10, 40);
}


/*
 * Chains come and go, some in transactions that are rolled back; those with
 * odd numbers have a first half only.
 */

static void
churn(uint64_t i)
{
    uint32_t  k, n, done;
    uint64_t  q[200], handles[200];

    for (k = 0; k < 4; k++) {
        chain(q, 1000 + (i + k * 7) % CHURNS, 0, 200);
        n = (i + k * 7) & 1 ? 100 : 200;

        store(V_CHURN, KVR_DEVICE, q, 0, n);

        if (k == 2) {
            memcpy(handles, q, sizeof(q));
            kvr_index_begin(&f->x);
            kvr_index_store(&f->x, V_CHURN, KVR_DEVICE, false, 0, handles, q,
                            n / 2, 0, &done);
            kvr_txn_rollback(&f->mem);
        }

        drop(V_CHURN, KVR_DEVICE, q, 0, n);
    }
}


/* Even views have 20 at least, 40 at most; odd ones 10 at most. */

static void
crowd(uint64_t i)
{
    uint32_t  k, v;

    for (k = 0; k < 16; k++) {
        v = V_CROWD + fx_mix(i * 16 + k) % (VIEWS - V_CROWD);

        if ((v - V_CROWD) & 1) {
            store(v, KVR_DEVICE, q_crowd, 0, 10);
            drop(v, KVR_DEVICE, q_crowd, 0, 10);

        } else {
            store(v, KVR_DEVICE, q_crowd, 20, 40);
            drop(v, KVR_DEVICE, q_crowd, 20, 40);
        }
    }
}


/* ---- the reader --------------------------------------------------------- */

static void
reader(void)
{
    uint32_t  v, d;
    uint64_t  i, q[200];

    static uint64_t  seed = 1;

    /* what nobody touches, and the long chain, that others change */

    fx_find(f, q_alone, LONG);
    f->words[W_TORN] += f->torn;
    f->words[W_STABLE] += !f->torn && f->depths[2][V_STABLE] != LONG;

    fx_find(f, q_long, LONG);
    f->words[W_TORN] += f->torn;
    f->words[W_STABLE] += !f->torn && f->depths[2][V_STABLE] != LONG;
    f->words[W_STABLE] += f->depths[2][V_STABLE] > LONG;

    d = f->depths[2][V_MIDDLE];
    f->words[W_MIDDLE] += d > 250;
    f->words[W_LESS] += d != 100 && d != 200 && d != 250;
    f->words[W_BRANCH] += f->depths[2][V_BRANCH] > 40;

    for (v = 0; v < VIEWS; v++) {
        f->words[W_CHURN] += v != V_STABLE && v != V_MIDDLE && v != V_BRANCH
                             && v != V_PLAIN && f->depths[2][v] != 0;
    }

    fx_find(f, q_move, 2);
    f->words[W_TORN] += f->torn;
    f->words[W_MOVE] += f->depths[2][V_MOVE] > 1;

    fx_find(f, q_tiers, 64);
    f->words[W_TORN] += f->torn;
    d = f->depths[0][V_TIERS];
    f->words[W_TIERS] += d > 30 || d > f->depths[1][V_TIERS]
                         || f->depths[1][V_TIERS] > f->depths[2][V_TIERS]
                         || f->depths[1][V_TIERS] > 48
                         || f->depths[2][V_TIERS] > 64;
    f->words[W_LESS] += f->depths[1][V_TIERS] != 48;

    fx_find(f, q_branch, 80);
    f->words[W_TORN] += f->torn;
    d = f->depths[2][V_BRANCH];
    f->words[W_BRANCH] += d > 50;
    f->words[W_PLAIN] += f->depths[2][V_PLAIN] > 50;
    f->words[W_LESS] += d != 10 && d != 25 && d != 50;
    f->words[W_STABLE] += !f->torn && f->depths[2][V_STABLE] != 20;

    i = fx_below(&seed, CHURNS);
    chain(q, 1000 + i, 0, 200);
    fx_find(f, q, 200);
    f->words[W_TORN] += f->torn;

    for (v = 0; v < VIEWS; v++) {
        d = f->depths[2][v];
        f->words[W_CHURN] += d > (v != V_CHURN ? 0 : i & 1 ? 100u : 200u);
    }

    fx_find(f, q_crowd, 40);
    f->words[W_TORN] += f->torn;

    for (v = V_CROWD; v < VIEWS; v++) {
        d = f->depths[2][v];

        if ((v - V_CROWD) & 1) {
            f->words[W_CROWD] += d > 10;

        } else {
            f->words[W_CROWD] += d > 40 || (!f->torn && d < 20);
        }
    }

    for (v = 0; v < V_CROWD; v++) {
        f->words[W_CROWD] += f->depths[2][v] != 0;
    }

    f->words[W_LOOKUPS] += 7;
}
