/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Load of several processes: bounds that hold, and the memory of their tables.
 */


#include "processes.h"
#include "zone.h"
#include "zone/kvr_zone.h"

#include <sched.h>


#define RUNNERS  4
#define ROUNDS   3000
#define ROOM     2                      /* requests of the holder */
#define HOLDER   3
#define LOST     3                      /* times that the gate is lost */


static struct {
    uint32_t           now, most, total, lost, done;
    kvr_reservation_t  first;
} *seen;                                /* of all processes */


static int64_t
active(void)
{
    kvr_load_row_t  row;

    kvr_load_read(&router.load, HOLDER, 0, &row);

    return row.active;
}


static kvr_reservation_t
one(void)
{
    kvr_reservation_t  r;

    memset(&r, 0, sizeof(r));
    r.holder = HOLDER;
    r.prefilling = 1;
    r.prefill_tokens = 10;

    return r;
}


static void
join(void)
{
    uint32_t  i;

    /* beside load the lock can be taken for longer than a process waits */

    for (i = 0; i < 100; i++) {

        if (kvr_router_join(&router) == KVR_OK) {
            return;
        }
    }

    _exit(1);
}


/* A process that dies as nginx's do that are killed. */

static void
end(pid_t pid)
{
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
}


static void
tend(void)
{
    now_ms += KVR_TEND_LOADS_MS;
    (void) kvr_router_tend(&router, now_ms, 1000);
}


/* ---- processes that are stuck ------------------------------------------- */

static void
beat_and_stay(void)
{
    join();
    (void) kvr_load_beat(&router.load, now_ms, 1000);
    (void) __atomic_add_fetch(&seen->now, 1, __ATOMIC_SEQ_CST);

    for ( ;; ) {
        (void) pause();
    }
}


static kvr_owner_t
stuck(uint64_t ms)
{
    now_ms += ms;

    return kvr_load_beat(&router.load, now_ms, 1000);
}


static void
test_stuck(void)
{
    pid_t  pid;

    memset(seen, 0, sizeof(*seen));
    join();
    is_u64(stuck(100), 0, "a process alone waits for none");

    pid = start(beat_and_stay);

    while (__atomic_load_n(&seen->now, __ATOMIC_SEQ_CST) == 0) {
        (void) sched_yield();
    }

    is_u64(stuck(900), 0, "one that was there a moment ago is not stuck");
    is_u64(stuck(5000), 0, "who was away for longer itself judges none");
    is_u64(kvr_owner_pid(stuck(100)), pid, "one that stays away is found");
    is_u64(stuck(100), 0, "once");
    end(pid);

    seen->now = 0;
    pid = start(beat_and_stay);

    while (__atomic_load_n(&seen->now, __ATOMIC_SEQ_CST) == 0) {
        (void) sched_yield();
    }

    end(pid);
    is_u64(stuck(900) + stuck(900), 0, "one that died is not stuck");
    tend();
    kvr_router_leave(&router);
}


/* ---- bounds ------------------------------------------------------------- */

static void
run(void)
{
    uint32_t           i, now, most;
    kvr_reservation_t  r;

    join();

    for (i = 0; i < ROUNDS || !__atomic_load_n(&seen->done, __ATOMIC_SEQ_CST);
         i++)
    {
        r = one();
        kvr_load_shut(&router.load);

        if (active() >= ROOM) {
            (void) kvr_load_open(&router.load);
            (void) sched_yield();
            continue;
        }

        (void) sched_yield();
        kvr_router_reserve(&router, &r, now_ms);

        if (!kvr_load_open(&router.load)) {
            kvr_load_release(&router.load, &r, now_ms);
            (void) __atomic_add_fetch(&seen->lost, 1, __ATOMIC_SEQ_CST);
            continue;
        }

        now = __atomic_add_fetch(&seen->now, 1, __ATOMIC_SEQ_CST);
        most = __atomic_load_n(&seen->most, __ATOMIC_SEQ_CST);

        while (now > most
               && !__atomic_compare_exchange_n(&seen->most, &most, now, false,
                                               __ATOMIC_SEQ_CST,
                                               __ATOMIC_SEQ_CST))
        {
            /* void */
        }

        (void) __atomic_add_fetch(&seen->total, 1, __ATOMIC_SEQ_CST);
        (void) sched_yield();

        (void) __atomic_sub_fetch(&seen->now, 1, __ATOMIC_SEQ_CST);
        kvr_load_release(&router.load, &r, now_ms);
    }

    kvr_router_leave(&router);
}


static void
shut_and_stay(void)
{
    join();
    kvr_load_shut(&router.load);
    __atomic_store_n(&seen->now, 1, __ATOMIC_SEQ_CST);

    for ( ;; ) {
        (void) pause();
    }
}


/* Finds room, stands still behind the gate, and then reserves. */

static void
look_and_stop(void)
{
    bool               kept, room;
    kvr_reservation_t  r;

    join();
    r = one();

    kvr_load_shut(&router.load);
    room = active() < ROOM;
    (void) raise(SIGSTOP);

    kvr_router_reserve(&router, &r, now_ms);
    kept = kvr_load_open(&router.load);

    if (!kept) {
        kvr_load_release(&router.load, &r, now_ms);
    }

    seen->now = room;
    seen->total = kept;

    kvr_router_leave(&router);
}


static void
test_taken_over(void)
{
    int                status;
    pid_t              pid;
    uint32_t           i;
    kvr_reservation_t  r[ROOM];

    join();
    memset(seen, 0xff, sizeof(*seen));
    pid = start(look_and_stop);
    (void) waitpid(pid, &status, WUNTRACED);
    ok(WIFSTOPPED(status), "a process stands still behind the gate");

    kvr_load_shut(&router.load);

    for (i = 0; i < ROOM; i++) {
        r[i] = one();
        kvr_router_reserve(&router, &r[i], now_ms);
    }

    ok(kvr_load_open(&router.load), "another one takes all the room");

    (void) kill(pid, SIGCONT);
    (void) waitpid(pid, NULL, 0);

    is_u64(seen->now, 1, "the first process had found room");
    is_u64(seen->total, 0, "but is told that the room may be another's");
    is_u64(active(), ROOM, "and gives back what it had reserved");
    is_u64(router.zone->load.gate.owner, 0, "the gate is open");

    for (i = 0; i < ROOM; i++) {
        kvr_load_release(&router.load, &r[i], now_ms);
    }

    kvr_router_leave(&router);
}


static void
test_gate(void)
{
    pid_t     pids[RUNNERS];
    uint32_t  i;

    memset(seen, 0, sizeof(*seen));

    for (i = 0; i < RUNNERS; i++) {
        pids[i] = start(run);
    }

    /* a process that stands still behind the gate loses the gate */

    for (i = 0; __atomic_load_n(&seen->lost, __ATOMIC_SEQ_CST) < LOST; i++) {
        (void) kill(pids[i % RUNNERS], SIGSTOP);
        (void) usleep(KVR_LOAD_GATE_MS * 1500);
        (void) kill(pids[i % RUNNERS], SIGCONT);
    }

    __atomic_store_n(&seen->done, 1, __ATOMIC_SEQ_CST);

    for (i = 0; i < RUNNERS; i++) {
        (void) waitpid(pids[i], NULL, 0);
    }

    ok(seen->most <= ROOM && seen->total > ROUNDS / 10,
       "who looks for room behind the gate never takes too much: %u of %u, "
       "%u times, also when the gate is lost, %u times", seen->most, ROOM,
       seen->total, seen->lost);
    is_u64(active(), 0, "nothing is left of it");

    for (i = 0; i < 2; i++) {
        seen->now = 0;
        pids[0] = start(shut_and_stay);

        while (__atomic_load_n(&seen->now, __ATOMIC_SEQ_CST) == 0) {
            (void) sched_yield();
        }

        if (i == 1) {
            end(pids[0]);
        }

        kvr_load_shut(&router.load);
        is_u64(router.zone->load.gate.owner, kvr_owner_self(),
               "one that %s behind the gate does not keep it shut",
               i ? "died" : "stays");
        ok(kvr_load_open(&router.load), "the gate was kept until then");
        is_u64(router.zone->load.gate.owner, 0, "it is open");

        if (i == 0) {
            end(pids[0]);
        }
    }

    tend();
}


/* ---- the running prefill ------------------------------------------------ */

/* Since when can the prefill that runs at the holder have run? */

static uint64_t
begun(void)
{
    kvr_load_row_t  row;

    kvr_load_read(&router.load, HOLDER, 0, &row);

    return row.begun_ms;
}


static void
reserve_and_stay(void)
{
    kvr_reservation_t  r;

    join();

    r = one();
    kvr_router_reserve(&router, &r, now_ms);
    seen->first = r;
    seen->most = router.load.slot;
    (void) __atomic_add_fetch(&seen->now, 1, __ATOMIC_SEQ_CST);

    for ( ;; ) {
        (void) pause();
    }
}


static pid_t
start_reserved(void)
{
    pid_t  pid;

    memset(seen, 0, sizeof(*seen));
    pid = start(reserve_and_stay);

    while (__atomic_load_n(&seen->now, __ATOMIC_SEQ_CST) != 1) {
        (void) sched_yield();
    }

    return pid;
}


static void
test_prefills(void)
{
    pid_t              pid;
    kvr_load_t         other;
    kvr_reservation_t  first, second, third;

    /* this process writes the table of another one, too */

    pid = start_reserved();
    join();
    other = router.load;
    other.slot = seen->most;
    third = seen->first;
    kvr_load_release(&other, &third, 0);

    first = second = third = one();

    is_u64(begun(), 0, "no prefill has begun yet");

    kvr_router_reserve(&router, &first, 100);
    is_u64(begun(), 100, "a prefill begins when it is reserved");

    kvr_router_reserve(&router, &second, 130);
    kvr_load_reserve(&other, &third, 150);
    is_u64(begun(), 100, "others wait for it, in any process");

    kvr_load_prefilled(&router.load, &first, 180);
    is_u64(begun(), 180, "when it has ended the next one runs");

    kvr_load_prefilled(&router.load, &second, 200);
    is_u64(begun(), 200, "be it the one of another process");

    kvr_load_release(&other, &third, 250);
    third = one();
    kvr_router_reserve(&router, &third, 300);
    is_u64(begun(), 300, "the next one has begun after a pause, and not "
                         "before it was reserved");

    kvr_load_prefilled(&router.load, &third, 320);
    kvr_load_prefill_again(&router.load, &third, 350);
    is_u64(begun(), 350, "a prefill that is counted again begins again");

    kvr_load_release(&router.load, &first, 400);
    kvr_load_release(&router.load, &second, 400);
    kvr_load_release(&router.load, &third, 400);
    is_u64((uint64_t) active(), 0, "all have ended");

    end(pid);
    tend();
    kvr_router_leave(&router);
}


/* ---- memory ------------------------------------------------------------- */

/* Chains of blocks until some had to be evicted. */

static void
fill(void)
{
    uint64_t     n;
    kvr_stats_t  stats;

    put("a");
    (void) lease("a", now_ms);
    n = 1;

    do {
        (void) store("a", 0, row(n, BLOCKS), row(n, BLOCKS), BLOCKS);
        n += BLOCKS;
        kvr_router_stats(&router, &stats);

    } while (stats.forgotten == 0 && n < 10 * 1000 * 1000);
}


/* A process can count its requests to all holders when the zone is full. */

static void
test_full(void)
{
    uint32_t           i, lost, least;
    uint64_t           lent, before;
    kvr_arena_want_t   part = { .class = 15 };
    kvr_load_row_t     row;
    kvr_arena_t       *arena;
    kvr_reservation_t  r;

    join();
    arena = router.load.arena;
    before = arena->zone->lent;

    r = one();
    kvr_router_reserve(&router, &r, now_ms);
    kvr_load_release(&router.load, &r, now_ms);
    lent = arena->zone->lent - before;

    ok(lent * 8 < KVR_LOAD_ROWS * sizeof(kvr_load_row_t) * 2,
       "a request to one holder takes memory for a few: %" PRIu64 " bytes",
       lent * 8);

    fill();

    lost = 0;
    least = UINT32_MAX;

    for (i = 0; i < router.zone->load.max_holders; i++) {
        r = one();
        r.holder = i;
        least = kvr_min(least, kvr_arena_room(arena, part));
        kvr_router_reserve(&router, &r, now_ms);
        kvr_load_read(&router.load, i, 0, &row);
        lost += row.active != 1;
        kvr_load_release(&router.load, &r, now_ms);
    }

    is_u64(least, 0, "the zone was full, without room for a part of a table");
    is_u64(lost, 0, "requests to all of %u holders are counted nevertheless",
           router.zone->load.max_holders);
    is_u64(router.zone->load.uncounted, 0, "none is missing");

    kvr_router_leave(&router);
}


/* ---- no table ----------------------------------------------------------- */

static void
test_none(void)
{
    pid_t              busy;
    uint32_t           i;
    kvr_load_zone_t   *z;
    kvr_reservation_t  r;

    z = &router.zone->load;
    busy = start_reserved();

    for (i = 0; i < KVR_LOAD_PROCS; i++) {
        z->procs[i].owner = z->procs[seen->most].owner;
    }

    join();
    is_u64(router.load.slot, KVR_LOAD_NONE, "no table is free");

    r = one();
    kvr_router_reserve(&router, &r, now_ms);
    is_u64(active(), 1, "a request of such a process has no load");
    is_u64(z->uncounted, 1, "but is counted as missing");

    kvr_load_wait(&router.load, 1);
    kvr_load_grow(&router.load, &r, 5);
    kvr_load_prefilled(&router.load, &r, now_ms);
    kvr_load_release(&router.load, &r, now_ms);
    is_u64(active(), 1, "and takes none away when it ends");
    is_u64(z->below_zero, 0, "nothing fell below zero");

    kvr_router_leave(&router);
    end(busy);
}


int
main(void)
{
    uint32_t  i;

    static const kind_t  large[] = {
        { "radix", { .block_size = 4, .max_workers = 256, .shards = 1 } },
        { "positional", { .block_size = 4, .max_workers = 256, .shards = 1,
                          .index = KVR_INDEX_POSITIONAL } }
    };

    seen = shared_memory(sizeof(*seen));

    zone_open(&kinds[0], 16 << 20);
    test_prefills();
    test_stuck();
    test_gate();
    test_taken_over();
    test_none();
    zone_close();

    for (i = 0; i < 2; i++) {
        zone_open(&large[i], 8 << 20);
        test_full();
        zone_close();
    }

    return done();
}
