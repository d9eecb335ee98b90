/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Peers: the lease of who writes them, by processes that die and stand still;
 * rows that are fresh; parts of bounds that add up to the bound.
 */


#include "processes.h"
#include "tap.h"
#include "traffic/kvr_peers.h"

#include <sched.h>
#include <sys/mman.h>


#define HOLDERS  64
#define KILLS    400                    /* instructions of a write, or more */


static struct {
    kvr_peers_zone_t  zone;
    uint32_t          has;              /* processes that took the lease */
    uint32_t          lost;             /* that found that it is lost */
    uint32_t          stop;
    uint64_t          now_ms;
    char              space[] __attribute__((aligned(64)));
} *shared;

static kvr_peers_t   peers;
static kvr_peer_t    records[KVR_PEERS_MAX];
static uint64_t      now_ms = 1000000;


static void
fresh(void)
{
    kvr_peers_format(&shared->zone, (char *) shared,
                     (uint64_t) (shared->space - (char *) shared), HOLDERS,
                     7);
    kvr_peers_attach(&peers, &shared->zone, (char *) shared);
    peers.self = kvr_owner_self();
}


static bool
lease(bool leaving)
{
    bool  taken;

    return kvr_peers_lease(&peers, leaving, now_ms, &taken);
}


static bool
takes(bool leaving)
{
    bool  taken;

    return kvr_peers_lease(&peers, leaving, now_ms, &taken) && taken;
}


static kvr_load_row_t
one(uint64_t generation, int64_t active)
{
    kvr_load_row_t  row;

    memset(&row, 0, sizeof(row));
    row.generation = generation;
    row.active = active;
    row.prefills = 1;
    row.prefill_tokens = 100;
    row.decode_blocks = 10;
    row.begun_ms = now_ms - 5;

    return row;
}


static int64_t
active(uint32_t holder, uint32_t generation)
{
    kvr_load_row_t  row;

    memset(&row, 0, sizeof(row));
    kvr_peers_add(&peers, holder, generation, now_ms, &row);

    return row.active;
}


/* ---- the lease ---------------------------------------------------------- */

static void
take_and_stay(void)
{
    peers.self = kvr_owner_self();

    if (takes(false)) {
        (void) __atomic_add_fetch(&shared->has, 1, __ATOMIC_SEQ_CST);
    }

    for ( ;; ) {
        (void) pause();
    }
}


static pid_t
other(void)
{
    pid_t  pid;

    shared->has = 0;
    pid = start(take_and_stay);

    while (__atomic_load_n(&shared->has, __ATOMIC_SEQ_CST) == 0) {
        (void) sched_yield();
    }

    return pid;
}


static void
end(pid_t pid)
{
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
}


static void
test_lease(void)
{
    pid_t           pid;
    kvr_load_row_t  row;

    fresh();
    ok(takes(false), "a free lease is taken at once");
    ok(lease(false) && !takes(false), "and is renewed");

    row = one(1, 3);
    kvr_peers_set_row(&peers, 2, &row);
    kvr_peers_set_fresh(&peers, now_ms + KVR_PEERS_FRESH_MS);
    is_u64(active(2, 1), 3, "its holder writes rows");

    kvr_peers_release(&peers, now_ms);
    pid = other();
    is_u64(active(2, 1), 0, "who takes it zeroes the rows");

    kvr_peers_set_row(&peers, 2, &row);
    kvr_peers_set_place(&peers, 1, 0, 2);
    kvr_peers_set_fresh(&peers, now_ms + KVR_PEERS_FRESH_MS);
    ok(!kvr_peers_fresh(&peers, now_ms) && active(2, 1) == 0
       && kvr_peers_part(&peers, 8) == 8,
       "who has it no more writes nothing");

    now_ms += KVR_PEERS_LEASE_MS;
    ok(!lease(false), "a lease of a living process stays");

    now_ms++;
    ok(takes(false), "until it was not renewed for 100 ms");
    end(pid);

    kvr_peers_release(&peers, now_ms);
    pid = other();
    end(pid);
    now_ms += KVR_PEERS_DOUBT_MS;
    ok(!lease(false), "nobody looks whether who renewed just now lives");
    now_ms++;
    ok(takes(false), "that of a dead process is taken sooner");
}


static void
test_leaving(void)
{
    pid_t  pid;

    fresh();
    ok(takes(false) && !lease(true), "who leaves gives the lease up");
    now_ms += KVR_PEERS_WAIT_MS - 1;
    ok(!lease(true), "leaves it to others");
    now_ms++;
    ok(takes(true) && lease(true), "and takes it after 200 ms, to keep it");

    kvr_peers_release(&peers, now_ms);
    pid = other();
    end(pid);
    now_ms += KVR_PEERS_LEASE_MS;
    ok(!lease(true), "the lease of a dead process becomes free first");
    now_ms += KVR_PEERS_WAIT_MS;
    ok(takes(true), "for 200 ms");
}


/* A process that renews each tick, of a clock that the test sets. */

static void
compete(void)
{
    bool      had, has, taken;
    uint64_t  last, ms;

    peers.self = kvr_owner_self();
    had = false;
    last = 0;

    while (!__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST)) {

        ms = __atomic_load_n(&shared->now_ms, __ATOMIC_SEQ_CST);

        if (ms == last) {
            (void) sched_yield();
            continue;
        }

        last = ms;
        has = kvr_peers_lease(&peers, false, ms, &taken);

        if (has && taken) {
            (void) __atomic_add_fetch(&shared->has, 1, __ATOMIC_SEQ_CST);
        }

        if (had && !has) {
            (void) __atomic_add_fetch(&shared->lost, 1, __ATOMIC_SEQ_CST);
        }

        had = has;
    }
}


static void
test_stopped(void)
{
    int       i, k, held;
    pid_t     pids[3];
    uint64_t  owner;

    fresh();
    shared->stop = 0;
    shared->has = 0;
    shared->lost = 0;
    shared->now_ms = now_ms;

    for (i = 0; i < 3; i++) {
        pids[i] = start(compete);
    }

    held = 0;

    for (k = 0; k < 20; k++) {

        for (i = 0; i < 200; i++) {
            (void) __atomic_add_fetch(&shared->now_ms, 1, __ATOMIC_SEQ_CST);
            (void) usleep(100);
        }

        owner = kvr_load64(&shared->zone.owner);
        held += owner != 0;

        for (i = 0; i < 3; i++) {
            (void) kill(pids[i], pids[i] == kvr_owner_pid(owner) ? SIGSTOP
                                                                 : SIGCONT);
        }
    }

    shared->stop = 1;

    for (i = 0; i < 3; i++) {
        (void) kill(pids[i], SIGCONT);
        (void) waitpid(pids[i], NULL, 0);
    }

    is_u64(held, 20, "somebody always has it, while holders are stopped");
    ok(shared->has >= 10 && shared->lost >= 10,
       "it goes on from process to process, and who goes on learns so");
}


/* ---- written half ------------------------------------------------------- */

static void
write_all(void)
{
    kvr_peers_set_place(&peers, 4, 4, 16);
    kvr_peers_set_peers(&peers, records, 5);
}


static void
take(void)
{
    peers.self = kvr_owner_self();
    now_ms += KVR_PEERS_LEASE_MS + 1;
    (void) lease(false);
}


static void
test_killed(void)
{
    uint32_t    i, n, part, bad, steps;
    kvr_peer_t  out[KVR_PEERS_MAX];

    fresh();
    memset(records, 0, sizeof(records));

    for (i = 0; i < KVR_PEERS_MAX; i++) {
        records[i].router = i + 1;
    }

    bad = 0;

    for (steps = 1; steps < KILLS; steps += 3) {
        (void) takes(false);
        kvr_peers_set_place(&peers, 8, 0, 16);
        kvr_peers_set_peers(&peers, records, 3);

        if (kvr_peers_part(&peers, 19) != 9) {
            bad++;
        }

        if (!killed_behind(take, write_all, steps)) {
            break;
        }

        n = kvr_peers_read(&peers, out);
        part = kvr_peers_part(&peers, 19);

        if ((n != 0 && n != 3 && n != 5) || (part != 9 && part != 5)) {
            bad++;
        }

        now_ms += 2 * (KVR_PEERS_LEASE_MS + 1);
    }

    ok(steps > 30, "a writer is killed at %u instructions", steps);
    is_u64(bad, 0, "nothing half written is read; the next writer mends it");
}


/* Two places by turns, until it is killed. */

static void
move(void)
{
    for ( ;; ) {
        kvr_peers_set_place(&peers, 1, 0, 4);
        kvr_peers_set_place(&peers, 300, 100, 500);
    }
}


static void
test_torn(void)
{
    pid_t     pid;
    uint32_t  i, part, bad, moved, last;

    fresh();
    (void) takes(false);
    kvr_peers_set_place(&peers, 1, 0, 4);
    pid = start(move);                  /* it has this process's lease */

    for (i = 0, bad = 0, moved = 0, last = 0; moved < 1000; i++) {
        part = kvr_peers_part(&peers, 1000);
        bad += part != 250 && part != 600;
        moved += part != last;
        last = part;
    }

    end(pid);
    is_u64(bad, 0, "a place is never torn");
    note("%u reads, %u moves", i, moved);
}


/* ---- what is read ------------------------------------------------------- */

static void
test_rows(void)
{
    kvr_load_row_t  row;
    kvr_load_row_t  of;

    fresh();
    (void) takes(false);
    of = one(3, 2);
    kvr_peers_set_row(&peers, HOLDERS - 1, &of);
    kvr_peers_set_row(&peers, HOLDERS, &of);
    is_u64(active(HOLDERS - 1, 3), 0, "rows count when a peer is fresh");

    kvr_peers_set_fresh(&peers, now_ms + 1);
    is_u64(active(HOLDERS - 1, 2), 0, "for their generation");

    memset(&row, 0, sizeof(row));
    row.active = 1;
    row.prefills = 1;
    row.begun_ms = now_ms - 9;
    kvr_peers_add(&peers, HOLDERS - 1, 3, now_ms, &row);
    ok(row.active == 3 && row.prefills == 2 && row.prefill_tokens == 100
       && row.decode_blocks == 10, "they are added");
    is_u64(row.begun_ms, now_ms - 5, "the later beginning is the prefill's");

    of.begun_ms = now_ms + 100;
    kvr_peers_set_row(&peers, HOLDERS - 1, &of);
    kvr_peers_add(&peers, HOLDERS - 1, 3, now_ms, &row);
    is_u64(row.begun_ms, now_ms, "which is not to come");

    now_ms++;
    is_u64(active(HOLDERS - 1, 3), 0, "rows that are too old do not count");
}


static void
test_homes(void)
{
    uint8_t  foreign[HOLDERS] = { 0, 1 };

    fresh();
    (void) takes(false);
    ok(kvr_peers_homes(&peers) == NULL, "alone there are no homes");

    kvr_peers_set_homes(&peers, foreign);
    ok(kvr_peers_homes(&peers)
       && memcmp(kvr_peers_homes(&peers), foreign, HOLDERS) == 0,
       "homes are told");

    kvr_peers_set_homes(&peers, NULL);
    ok(kvr_peers_homes(&peers) == NULL, "and end");
}


/*
 * How many of the parts of n routers are wrong: each is off by less than 1, but
 * 1 at least; together they are the bound, and 1 for each that would have none.
 */

static uint32_t
wrong(const uint32_t *shares, uint32_t n, uint32_t bound)
{
    uint32_t  i, all, before, part, bad, none;
    uint64_t  sum;
    double    exact;

    for (i = 0, all = 0; i < n; i++) {
        all += shares[i];
    }

    for (i = 0, before = 0, sum = 0, bad = 0, none = 0; i < n; i++) {

        kvr_peers_set_place(&peers, shares[i], before, all);
        part = kvr_peers_part(&peers, bound);
        before += shares[i];
        sum += part;

        if (all == 0) {
            bad += part != bound;
            continue;
        }

        exact = (double) bound * shares[i] / all;
        bad += part < 1 || (part > 1 && part >= exact + 1) || part <= exact - 1;
        none += (uint64_t) bound * before / all
                == (uint64_t) bound * (before - shares[i]) / all;
    }

    return bad + (all && sum != (uint64_t) bound + none);
}


static void
test_parts(void)
{
    uint32_t  i, k, n, bound, bad;
    uint32_t  shares[KVR_PEERS_MAX + 1];

    fresh();
    (void) takes(false);
    is_u64(kvr_peers_part(&peers, 64), 64, "alone the bound is whole");
    is_u64(kvr_peers_share(&peers), 0, "and there is no share");

    kvr_peers_set_place(&peers, 16, 0, 16);
    is_u64(kvr_peers_part(&peers, 64), 64, "as if nobody else has a share");

    kvr_peers_set_place(&peers, 5, 0, 16);
    is_u64(kvr_peers_share(&peers), 5, "a share is in its place");
    is_u64(kvr_peers_part(&peers, 64), 20, "64 by 5, 5 and 6: the first");
    is_u64(kvr_peers_part(&peers, 70), 21, "another bound");
    is_u64(kvr_peers_part(&peers, 0), 0, "no bound stays none");
    kvr_peers_set_place(&peers, 5, 5, 16);
    is_u64(kvr_peers_part(&peers, 70), 22, "the second");
    kvr_peers_set_place(&peers, 6, 10, 16);
    is_u64(kvr_peers_part(&peers, 70), 27, "the last");

    kvr_peers_set_place(&peers, 0, 10, 10);
    is_u64(kvr_peers_part(&peers, 64), 1, "who has no share has one");
    kvr_peers_set_place(&peers, 0, 0, 0);
    is_u64(kvr_peers_part(&peers, 64), 64, "without shares the bound is whole");

    for (i = 0, bad = 0; i <= 16 * 16 * 16; i++) {
        shares[0] = i % 17;
        shares[1] = i / 16 % 17;
        shares[2] = i / 256;

        for (bound = 1; bound <= 40; bound++) {
            bad += wrong(shares, 3, bound);
        }
    }

    is_u64(bad, 0, "the parts of three routers are the bound, each at least 1");

    srand(1);

    for (i = 0, bad = 0; i < 2000; i++) {
        n = 2 + (uint32_t) rand() % KVR_PEERS_MAX;

        for (k = 0; k < n; k++) {
            shares[k] = (uint32_t) rand() % 17 * ((uint32_t) rand() & 1);
        }

        bound = i % 7 ? 1 + (uint32_t) rand() % 200 : UINT32_MAX - i;
        bad += wrong(shares, n, bound);
    }

    is_u64(bad, 0, "so are those of up to 32");
}


static void
test_size(void)
{
    bool      good;
    uint32_t  n;

    for (n = 1, good = true; n <= 200; n++) {
        good = good && kvr_peers_size(n) % 64 == 0;
    }

    ok(good, "what lies behind the rows begins with a cache line");
}


int
main(void)
{
    shared = mmap(NULL, sizeof(*shared) + kvr_peers_size(HOLDERS),
                  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return 1;
    }

    test_size();
    test_lease();
    test_leaving();
    test_stopped();
    test_killed();
    test_torn();
    test_rows();
    test_homes();
    test_parts();

    return done();
}
