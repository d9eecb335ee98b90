/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The queue of a zone: each move of an entry, each call, the lock with owners
 * that die and stop, and processes that are killed and stopped anywhere.
 *
 *     test_admit [milliseconds]
 */


#include "admission/kvr_admit.h"
#include "core/kvr_clock.h"
#include "core/kvr_words.h"

#include "fixture.h"
#include "processes.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>


#define BLOCK     16
#define WORKERS   8
#define PLACES    3                     /* of each worker */
#define PROCS     4
#define LIMIT     200
#define DEAD      ((kvr_owner_t) 1 << 40 | 1)   /* pid 1 began later */


/* What processes share beside the queue: their loads, as kvr_load.h has them,
 * and what they have seen. */

typedef struct {
    int64_t   load[PROCS][WORKERS];
    int64_t   most;                     /* at a worker */
    uint64_t  done;
    uint64_t  refused;
    uint64_t  unordered;
    uint64_t  wrong;
} shared_t;


#if (KVR_TSAN)
static const bool        threads_only = true;
#else
static const bool        threads_only = false;
#endif

static shared_t         *shared;
static kvr_admit_t       q;
static void             *memory;
static size_t            size;
static uint64_t          seed = 1;
static uint64_t          now = 1000000;
static double            slack;         /* of services: a death may cost one a
                                           charge */
static uint32_t          full;          /* a bit of each worker without room */
static uint32_t          proc;
static kvr_rules_t  conf;


/* ---- helpers ------------------------------------------------------------ */

static kvr_rule_t
rule(uint64_t hash, double weight, double most, uint32_t max_active)
{
    return (kvr_rule_t) { hash, weight, most, max_active, 0 };
}


static void
fresh(uint32_t limit)
{
    if (memory) {
        munmap(memory, size);
    }

    size = kvr_admit_format(NULL, limit, WORKERS, BLOCK, 0);
    memory = shared_memory(size);
    (void) kvr_admit_format(memory, limit, WORKERS, BLOCK, 0);
    kvr_admit_attach(&q, memory);
    q.self = kvr_owner_self();
    full = 0;
    slack = 0;

    memset(&conf, 0, sizeof(conf));
    conf.version = 1;
    conf.classes[0] = rule(1, 4, 1, 0);
    conf.classes[1] = rule(2, 1, 0.5, 0);
    conf.tenants[0] = rule(100, 2, 1, 2);

    if (kvr_admit_configure(&q, &conf) != KVR_OK) {
        printf("Bail out! no configuration\n");
        exit(1);
    }
}


static bool
has_room(void *data, uint32_t worker)
{
    (void) data;

    return !(full >> worker & 1);
}


static bool
fits(void *data, const kvr_order_entry_t *e, uint32_t worker)
{
    (void) data;

    return e->narrow == 0 || e->narrow == worker + 1;
}


static kvr_admit_worker_t
at(uint32_t pool, uint32_t worker)
{
    return (kvr_admit_worker_t) { pool, worker, 7, WORKERS, WORKERS * PLACES,
                                  has_room, fits, NULL };
}


static uint32_t
claim(uint32_t pool, uint64_t class, uint64_t name, uint32_t prompt)
{
    uint32_t            i;
    kvr_order_entry_t  *e;

    i = kvr_admit_claim(&q);
    if (i == KVR_ADMIT_NONE) {
        return i;
    }

    e = &q.entries[i];
    memset(&e->cost, 0, sizeof(e->cost));
    e->pool = pool;
    e->class = class;
    e->name = name;
    e->narrow = 0;
    kvr_put64(&e->at_ms, now);
    e->deadline_ms = now + 10000;
    e->cost.prompt = prompt;
    e->cost.elsewhere = prompt;
    e->cost.output = 10;

    return i;
}


static uint32_t
waits(uint32_t pool, uint64_t class, uint64_t name, uint32_t prompt)
{
    uint32_t  i;

    i = claim(pool, class, name, prompt);
    (void) kvr_admit_move(&q, i, KVR_ADMIT_COME);

    return i;
}


/* The entry that is given room, or none. */

static uint32_t
room(uint32_t pool, uint32_t worker, uint32_t mine)
{
    uint32_t            entry;
    kvr_admit_worker_t  w;

    w = at(pool, worker);

    return kvr_admit_room(&q, &w, mine, now, &entry) == KVR_OK
           ? entry : KVR_ADMIT_NONE;
}


/* Takes a grant and keeps it, or gives it back. */

static bool
keep(uint32_t entry)
{
    return kvr_admit_move(&q, entry, KVR_ADMIT_TAKE)
           && kvr_admit_move(&q, entry, KVR_ADMIT_KEEP);
}


static bool
back(uint32_t entry)
{
    return kvr_admit_move(&q, entry, KVR_ADMIT_TAKE)
           && kvr_admit_move(&q, entry, KVR_ADMIT_RETURN);
}


static void
end(uint32_t entry, uint32_t tokens)
{
    kvr_put32(&q.entries[entry].tokens, tokens);
    (void) kvr_admit_move(&q, entry, KVR_ADMIT_LEAVE);
}


static bool
sweep(void)
{
    now += KVR_ADMIT_SWEEP_MS;

    return kvr_admit_sweep(&q, now);
}


/* Is nothing counted any more, and no entry left? */

static bool
empty(void)
{
    uint32_t             i, k;
    kvr_order_t         *o;
    kvr_admit_row_t      row;

    if (kvr_load64(&q.zone->granted)) {
        note("%llu are granted", (unsigned long long) q.zone->granted);
        return false;
    }

    for (i = 0; i < WORKERS; i++) {
        row = kvr_admit_granted(&q, i);

        if (row.requests || row.tokens) {
            note("row %u: %lld, %lld", i, (long long) row.requests,
                 (long long) row.tokens);
            return false;
        }
    }

    for (i = 0; i < q.zone->nentries; i++) {
        if (kvr_admit_state(&q, i) != KVR_ADMIT_FREE) {
            note("entry %u: state %x, owner %llx", i, kvr_admit_state(&q, i),
                 (unsigned long long) q.entries[i].owner);
            return false;
        }
    }

    for (i = 0; i < KVR_ADMIT_POOLS; i++) {
        o = &q.orders[i];

        if (!o->zone->formatted) {
            continue;
        }

        for (k = 0; k < KVR_ORDER_CLASSES; k++) {
            if (o->zone->classes[k].active || o->zone->classes[k].waiting
                || !(o->zone->classes[k].service >= -slack))
            {
                note("class %u of pool %u: %u, %u, %f", k, i,
                     o->zone->classes[k].active, o->zone->classes[k].waiting,
                     o->zone->classes[k].service);
                return false;
            }
        }

        for (k = 0; k < KVR_ORDER_CLASSES * (KVR_RULES_TENANTS + 1)
                        + KVR_ORDER_TENANTS; k++)
        {
            if (o->tenants[k].active || o->tenants[k].waiting
                || o->tenants[k].place)
            {
                note("tenant %u of pool %u", k, i);
                return false;
            }
        }

        if (o->zone->waiting || o->named[0].active) {
            return false;
        }
    }

    return true;
}


/* ---- states -------------------------------------------------------------- */

static void
test_states(void)
{
    bool      good;
    uint32_t  i, k, to;

    static const uint8_t  states[] = {
        KVR_ADMIT_FREE, KVR_ADMIT_CLAIMED, KVR_ADMIT_COMING, KVR_ADMIT_REFUSED,
        KVR_ADMIT_WAITING, KVR_ADMIT_GRANTED, KVR_ADMIT_TAKEN, KVR_ADMIT_BACK,
        KVR_ADMIT_KEPT, KVR_ADMIT_ACTIVE
    };

    /* from, event, to */

    static const uint16_t  moves[][3] = {
        { KVR_ADMIT_FREE, KVR_ADMIT_CLAIM, KVR_ADMIT_CLAIMED },
        { KVR_ADMIT_CLAIMED, KVR_ADMIT_COME, KVR_ADMIT_COMING },
        { KVR_ADMIT_CLAIMED, KVR_ADMIT_PASS, KVR_ADMIT_GRANTED },
        { KVR_ADMIT_COMING, KVR_ADMIT_LINE, KVR_ADMIT_WAITING },
        { KVR_ADMIT_COMING, KVR_ADMIT_REFUSE, KVR_ADMIT_REFUSED },
        { KVR_ADMIT_WAITING, KVR_ADMIT_GRANT, KVR_ADMIT_GRANTED },
        { KVR_ADMIT_GRANTED, KVR_ADMIT_TAKE, KVR_ADMIT_TAKEN },
        { KVR_ADMIT_GRANTED, KVR_ADMIT_EXPIRE, KVR_ADMIT_BACK },
        { KVR_ADMIT_TAKEN, KVR_ADMIT_KEEP, KVR_ADMIT_KEPT },
        { KVR_ADMIT_TAKEN, KVR_ADMIT_RETURN, KVR_ADMIT_BACK },
        { KVR_ADMIT_KEPT, KVR_ADMIT_COUNT, KVR_ADMIT_ACTIVE },
        { KVR_ADMIT_BACK, KVR_ADMIT_HEAD, KVR_ADMIT_WAITING }
    };

    good = true;

    for (i = 0; i < sizeof(states); i++) {

        for (k = 0; k < sizeof(moves) / sizeof(moves[0]); k++) {
            to = moves[k][0] == states[i] ? moves[k][2] : KVR_ADMIT_NONE;
            good &= kvr_admit_next(states[i], moves[k][1]) == to;
            good &= kvr_admit_next(states[i] | KVR_ADMIT_LEAVE, moves[k][1])
                    == KVR_ADMIT_NONE;
        }

        to = states[i] ? states[i] | KVR_ADMIT_LEAVE : KVR_ADMIT_NONE;

        good &= kvr_admit_next(states[i], KVR_ADMIT_LEAVE) == to
                && kvr_admit_next(to, KVR_ADMIT_LEAVE) == KVR_ADMIT_NONE;

        for (k = 0; k < i; k++) {
            good &= states[i] != states[k];
        }
    }

    ok(good, "each state and event have the state that the header says");

    /* a move without the lock changes nothing that is counted */

    static const uint16_t  own[] = { KVR_ADMIT_CLAIM, KVR_ADMIT_COME,
                                    KVR_ADMIT_TAKE, KVR_ADMIT_KEEP,
                                    KVR_ADMIT_RETURN, KVR_ADMIT_EXPIRE,
                                    KVR_ADMIT_LEAVE };

    for (i = 0, good = true; i < sizeof(states); i++) {
        for (k = 0; k < sizeof(own) / sizeof(own[0]); k++) {
            to = kvr_admit_next(states[i], own[k]);
            good &= to == KVR_ADMIT_NONE
                    || ((to ^ states[i]) & (KVR_ORDER_LISTED
                                            | KVR_ORDER_CHARGED
                                            | KVR_ADMIT_ROW)) == 0;
        }
    }

    ok(good, "moves without the lock change nothing that is counted");
}


/* ---- the calls ----------------------------------------------------------- */

static void
test_calls(void)
{
    uint32_t  a, b, c, pool;

    is_u64(kvr_admit_format(NULL, 0, WORKERS, BLOCK, 0), 0, "no queue needs no memory");

    fresh(LIMIT);
    pool = kvr_admit_pool(&q, 77);

    ok(pool == 0 && kvr_admit_pool(&q, 78) == 1 && kvr_admit_pool(&q, 77) == 0,
       "a pool has a number");

    a = claim(pool, 1, 5, 1000);
    is_u64(room(pool, 3, a), a, "a request finds room at once");
    is_u64(kvr_admit_state(&q, a), KVR_ADMIT_GRANTED, "it is granted");
    is_u64((uint64_t) kvr_admit_granted(&q, 3).requests, 1, "which counts");
    is_u64((uint64_t) kvr_admit_granted(&q, 3).tokens, 1000,
           "with its tokens");
    ok(keep(a), "it takes the grant");
    is_u64(kvr_admit_state(&q, a), KVR_ADMIT_ACTIVE, "and is served");
    is_u64((uint64_t) kvr_admit_granted(&q, 3).requests, 0,
           "its worker's load has it");
    ok(q.orders[pool].zone->classes[0].service == 1020 / 4.0,
       "its class is charged");
    end(a, 500);
    ok(q.orders[pool].zone->classes[0].service == 500 / 4.0,
       "and has what it has cost in the end");
    ok(empty(), "then nothing is left");

    full = 0xff;
    a = claim(pool, 1, 15, 1000);
    is_u64(room(pool, 3, a), KVR_ADMIT_NONE, "without room it is to wait");
    ok(kvr_admit_move(&q, a, KVR_ADMIT_COME), "it waits");
    b = waits(pool, 1, 16, 100);
    is_u64(kvr_admit_waiting(&q, pool), 2, "another one, too");

    full = 0;
    c = claim(pool, 1, 7, 10);
    is_u64(room(pool, 2, c), a, "who comes later does not pass who waits");
    is_u64(kvr_admit_state(&q, c), KVR_ADMIT_CLAIMED, "and is to wait");
    ok(q.entries[a].worker == 2 && q.entries[a].generation == 7
       && q.entries[a].charge == 1020, "the grant says where");

    ok(back(a), "the grant is given back");
    is_u64(kvr_admit_state(&q, a), KVR_ADMIT_WAITING, "so it waits again");
    is_u64((uint64_t) kvr_admit_granted(&q, 2).requests, 0,
           "and counts nowhere");

    q.entries[b].narrow = 7;
    q.entries[a].narrow = 6;
    is_u64(room(pool, 2, c), c, "who waits can't use a worker: a later one does");
    ok(kvr_admit_move(&q, c, KVR_ADMIT_LEAVE), "it leaves with its grant");
    is_u64(room(pool, 5, KVR_ADMIT_NONE), a, "the first one goes to its own");
    ok(!keep(b), "nobody takes what is not granted");
    ok(kvr_admit_move(&q, b, KVR_ADMIT_LEAVE) && !kvr_admit_waiting(&q, pool),
       "who waits can leave");
    ok(kvr_admit_move(&q, a, KVR_ADMIT_LEAVE) && empty(),
       "and who is granted, without cost");

    for (a = 2; a < KVR_ADMIT_POOLS; a++) {
        (void) kvr_admit_pool(&q, 100 + a);
    }

    is_u64(kvr_admit_pool(&q, 5), KVR_ADMIT_NONE, "there are 16 pools");
}


static void
test_bounds(void)
{
    uint32_t  i, a, b, n, of[LIMIT + 2], pool[2];

    fresh(LIMIT);
    pool[0] = kvr_admit_pool(&q, 77);

    for (i = 0, n = 0; i < LIMIT; i++) {
        a = waits(pool[0], 1, 5, 10);
        n += kvr_admit_state(&q, a) == KVR_ADMIT_WAITING;
    }

    a = waits(pool[0], 1, 6, 10);
    ok(n == LIMIT / 5 * 4 && kvr_admit_state(&q, a) == KVR_ADMIT_WAITING,
       "one tenant leaves a fifth of the entries to others: %u", n);

    fresh(LIMIT);
    pool[0] = kvr_admit_pool(&q, 77);
    pool[1] = kvr_admit_pool(&q, 78);

    for (i = 0; i < LIMIT; i++) {
        of[i] = waits(pool[i % 2], 1, 5 + i, 10);
    }

    a = waits(pool[0], 1, 5, 10);
    ok(kvr_admit_state(&q, a) == KVR_ADMIT_REFUSED
       && q.entries[a].worker == KVR_ADMIT_FULL,
       "as many wait in all pools as may");
    end(a, 0);

    b = room(pool[0], 0, KVR_ADMIT_NONE);
    a = waits(pool[0], 1, 5, 10);
    ok(kvr_admit_state(&q, a) == KVR_ADMIT_REFUSED,
       "a grant may come back, so it counts");
    end(a, 0);
    (void) keep(b);
    a = waits(pool[0], 1, 5, 10);
    is_u64(kvr_admit_state(&q, a), KVR_ADMIT_WAITING, "until it is taken");
    end(a, 0);
    end(b, 0);

    for (i = 0; i < LIMIT; i++) {
        (void) kvr_admit_move(&q, of[i], KVR_ADMIT_LEAVE);
    }

    ok(empty(), "all have left");

    /* most: half of 24 places */

    for (i = 0, n = 0; i < 20; i++) {
        of[i] = claim(pool[0], 2, 5, 10);

        if (room(pool[0], 0, of[i]) == of[i]) {
            n++;
        } else {
            (void) kvr_admit_move(&q, of[i], KVR_ADMIT_COME);
        }
    }

    is_u64(n, WORKERS * PLACES / 2, "a class has its part of the places");
    is_u64(room(pool[0], 0, KVR_ADMIT_NONE), KVR_ADMIT_NONE,
           "the rest of it waits");
    a = claim(pool[0], 1, 5, 10);
    is_u64(room(pool[0], 0, a), a, "another class passes it");
    end(of[0], 0);
    is_u64(room(pool[0], 0, KVR_ADMIT_NONE), of[n], "until one is over");
    end(a, 0);

    for (i = 1; i < 20; i++) {
        end(of[i], 0);
    }

    /* max_active 2 of the tenant 100 */

    for (i = 0; i < 3; i++) {
        of[i] = claim(pool[0], 1 + i % 2, 100, 10);
        (void) room(pool[0], 0, of[i]);
    }

    is_u64(kvr_admit_state(&q, of[2]), KVR_ADMIT_CLAIMED,
           "a tenant has its max_active, over classes");
    (void) kvr_admit_move(&q, of[2], KVR_ADMIT_COME);
    ok(kvr_admit_state(&q, of[2]) == KVR_ADMIT_REFUSED
       && q.entries[of[2]].worker == KVR_ADMIT_LIMIT, "and is refused");

    for (i = 0; i < 3; i++) {
        end(of[i], 0);
    }

    ok(empty(), "then nothing is left");

    /* all entries */

    for (i = 0; claim(pool[0], 1, 1, 1) != KVR_ADMIT_NONE; i++) { /* void */ }

    is_u64(i, q.zone->nentries, "all entries can be claimed");
}


static void
test_configure(void)
{
    uint32_t  a, i;

    fresh(LIMIT);
    a = waits(kvr_admit_pool(&q, 7), 2, 100, 10);

    conf.version = 2;

    for (i = 0; i < KVR_ORDER_CLASSES; i++) {
        conf.classes[i] = rule(50 + i, 1, 1, 0);
    }

    for (i = 0; i < KVR_RULES_TENANTS; i++) {
        conf.tenants[i] = rule(200 + i, 1, 1, 0);
    }

    is_u64((uint64_t) kvr_admit_configure(&q, &conf), (uint64_t) KVR_FULL,
           "a class that is gone keeps its place while one of it waits");
    ok(q.zone->rules.classes[1].hash == 2 && q.zone->rules.tenants[0].hash == 100,
       "so does a tenant");
    (void) kvr_admit_move(&q, a, KVR_ADMIT_LEAVE);
    is_u64((uint64_t) kvr_admit_configure(&q, &conf), KVR_OK,
           "and then its place is another's");

    a = waits(0, 2, 5, 10);
    is_u64(q.orders[0].tenants[q.entries[a].tenant].class, q.zone->rules.first,
           "who is of no known class is of the first");
    (void) kvr_admit_move(&q, a, KVR_ADMIT_LEAVE);

    conf.version = 1;
    is_u64((uint64_t) kvr_admit_configure(&q, &conf), (uint64_t) KVR_DECLINED,
           "an older configuration changes nothing");
    ok(empty(), "then nothing is left");
}


static void
test_late(void)
{
    uint32_t    i, a, n;
    kvr_pace_t  pace;

    ok(kvr_pace_expected(100, 5, 0.25, 10) == 2, "own part by weight");
    ok(kvr_pace_expected(100, 50, 0.25, 10) == 10, "at most all");
    ok(kvr_pace_expected(100, 50, 0.25, 0) == 0, "nothing is known");
    memset(&pace, 0, sizeof(pace));

    for (i = 0; i < 49; i++) {
        (void) kvr_pace_count(&pace, 5000 + 100 * i, 1);
    }

    ok(!kvr_pace_late(&pace, 100, 10), "none is late before 50 grants");
    ok(kvr_pace_count(&pace, 9900, 1) == 1000 * 50 / 4900.0,
       "the rate is that since the first one");
    ok(kvr_pace_late(&pace, 15.1, 10) && !kvr_pace_late(&pace, 15, 10),
       "then beyond 1.5 x what it may wait");
    ok(kvr_pace_count(&pace, 15500, 0) == 40 / 9.5
       && kvr_pace_count(&pace, 99000, 0) == 0, "or of the last seconds");

    fresh(LIMIT);

    for (i = 0; i < 50; i++) {
        a = claim(kvr_admit_pool(&q, 7), 1, 5, 10);
        (void) room(0, 0, a);
        (void) keep(a);
        end(a, 10);
        now += 1000;
    }

    for (i = 0; i < 50; i++) {
        a = waits(0, 1, 5, 10);
    }

    is_u64(kvr_admit_state(&q, a), KVR_ADMIT_WAITING,
           "the pace is not that of those who came while none waited");

    fresh(LIMIT);

    (void) waits(kvr_admit_pool(&q, 7), 1, 5, 10);

    for (i = 0; i < 50; i++) {
        (void) waits(0, 1, 5, 10);
        a = room(0, 0, KVR_ADMIT_NONE);
        (void) keep(a);
        end(a, 10);
        now += 100;
    }

    for (i = 1; i < LIMIT; i++) {
        a = waits(0, 1, 5, 10);

        if (kvr_admit_state(&q, a) == KVR_ADMIT_REFUSED) {
            break;
        }
    }

    ok(i > 145 && i < 160 && q.entries[a].worker == KVR_ADMIT_LATE,
       "at 10 per second, more than 15 s are too many: %u wait", i);
    ok(q.entries[a].expected_ms > 14500 && q.entries[a].expected_ms < 15500,
       "who is refused knows the wait, %u ms", q.entries[a].expected_ms);
    (void) kvr_admit_move(&q, a, KVR_ADMIT_LEAVE);

    a = waits(0, 1, 6, 10);
    is_u64(kvr_admit_state(&q, a), KVR_ADMIT_WAITING,
           "another tenant does not pay for that");

    for (i = 0, n = q.zone->nentries; i < n; i++) {
        (void) kvr_admit_move(&q, i, KVR_ADMIT_LEAVE);
    }

    ok(empty(), "then nothing is left");
}


static void
test_sweep(void)
{
    uint32_t           a, b, c;
    kvr_owner_t        self;

    fresh(LIMIT);
    a = waits(kvr_admit_pool(&q, 7), 1, 5, 10);
    b = waits(0, 1, 5, 10);
    self = q.self;

    is_u64(room(0, 1, KVR_ADMIT_NONE), a, "one is granted");
    ok(q.nwakes == 1 && q.wakes[0].entry == a, "its process is told");
    q.nwakes = 0;

    q.self = self + 1;
    ok(sweep() && !kvr_admit_sweep(&q, now), "one process sweeps");
    ok(q.nwakes == 1 && q.wakes[0].owner == self && q.wakes[0].entry == a
       && q.zone->lost == 0, "who did not take a grant is told again");
    q.nwakes = 0;

    while (kvr_admit_state(&q, a) == KVR_ADMIT_GRANTED) {
        (void) sweep();
    }

    ok(kvr_admit_state(&q, a) == KVR_ADMIT_WAITING
       && kvr_admit_granted(&q, 1).requests == 0,
       "after 100 ms the grant has gone back");
    is_u64(room(0, 1, KVR_ADMIT_NONE), a, "to the head of its tenant");
    ok(q.nwakes == 1 && q.wakes[0].entry == a, "another process is told");
    q.nwakes = 0;

    /* dead ones: granted, waiting, served, claimed */

    c = waits(0, 1, 5, 10);
    q.entries[c].owner = DEAD;
    is_u64(room(0, 1, KVR_ADMIT_NONE), b, "another is granted");
    q.entries[a].owner = DEAD;
    q.entries[b].owner = DEAD;
    (void) keep(b);
    q.states[kvr_admit_claim(&q)] = KVR_ADMIT_CLAIMED;
    q.entries[claim(0, 1, 5, 10)].owner = DEAD;
    q.entries[q.next - 2].owner = 0;
    ok(kvr_owner_alive(self) && !kvr_owner_alive(DEAD), "a process is dead");

    (void) sweep();
    (void) sweep();
    q.self = self;
    ok(empty(), "what dead processes had is gone");
    ok(q.orders[0].tenants[q.entries[b].tenant].service == q.entries[b].charge
                                                           / 1.0,
       "what was taken costs its charge, the rest nothing");
}


/* ---- the lock ------------------------------------------------------------ */

static void
hold(void)
{
    kvr_owner_t  none;

    none = 0;
    (void) __atomic_compare_exchange_n(&q.zone->lock.owner, &none,
                                       kvr_owner_self(), false,
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    kvr_put64(&q.zone->since_us, kvr_now_us());

    for ( ;; ) {
        pause();
    }
}


static void
test_lock(void)
{
    pid_t               pid;
    uint32_t            a, b, c, entry;
    kvr_admit_worker_t  w;

    fresh(LIMIT);
    a = waits(kvr_admit_pool(&q, 7), 1, 5, 10);
    b = claim(0, 1, 6, 10);
    is_u64(room(0, 1, KVR_ADMIT_NONE), a, "one is granted");

    pid = start(hold);

    while (kvr_load64(&q.zone->lock.owner) == 0
           || kvr_load64(&q.zone->lock.owner) == q.self)
    {
        usleep(100);
    }

    w = at(0, 2);
    kvr_put64(&q.zone->since_us, kvr_now_us());
    is_u64((uint64_t) kvr_admit_room(&q, &w, b, now, &entry),
           (uint64_t) KVR_DECLINED, "another has the lock: a request waits");

    ok(kvr_admit_move(&q, b, KVR_ADMIT_COME)
       && keep(a),
       "it comes, another takes its grant");
    ok(kvr_admit_state(&q, b) == KVR_ADMIT_COMING
       && kvr_admit_state(&q, a) == KVR_ADMIT_KEPT,
       "what others do with the lock is due");
    ok(kvr_load32(&q.zone->again), "who has it is to look again");

    usleep(KVR_ADMIT_STUCK_US + 1000);
    c = claim(0, 1, 6, 10);
    is_u64((uint64_t) kvr_admit_room(&q, &w, c, now, &entry),
           (uint64_t) KVR_BUSY, "after 10 ms requests go unordered");
    (void) kvr_admit_move(&q, c, KVR_ADMIT_LEAVE);
    ok(kvr_load64(&q.zone->lock.owner) != q.self,
       "nobody takes the lock from a living process");

    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    q.look = false;

    ok(kvr_admit_configure(&q, &conf) == KVR_OK && q.zone->rebuilt == 1,
       "it is taken from a dead one");
    ok(kvr_admit_state(&q, a) == KVR_ADMIT_ACTIVE
       && kvr_admit_state(&q, b) == KVR_ADMIT_WAITING
       && kvr_admit_state(&q, c) == KVR_ADMIT_FREE, "what was due is done");
    ok(q.look, "and this process is to look at all rooms");

    end(a, 10);
    end(b, 0);
    ok(empty(), "then nothing is left");
}


/* ---- processes ----------------------------------------------------------- */

static int64_t
load(uint32_t worker)
{
    int64_t   sum;
    uint32_t  i;

    for (i = 0, sum = 0; i < PROCS; i++) {
        sum += __atomic_load_n(&shared->load[i][worker], __ATOMIC_SEQ_CST);
    }

    return sum;
}


static bool
load_room(void *data, uint32_t worker)
{
    (void) data;

    return load(worker) + kvr_admit_granted(&q, worker).requests < PLACES;
}


static bool
load_fits(void *data, const kvr_order_entry_t *e, uint32_t worker)
{
    return fits(data, e, worker) && e->deadline_ms > now;
}


static void
look(void)
{
    uint32_t            i, k, entry;
    kvr_admit_worker_t  w;

    q.look = false;

    for (k = 0; k < 2; k++) {
        for (i = 0; i < WORKERS; i++) {
            w = (kvr_admit_worker_t) { k, i, 7, WORKERS, WORKERS * PLACES,
                                       load_room, load_fits, NULL };

            while (kvr_admit_room(&q, &w, KVR_ADMIT_NONE, now, &entry)
                   == KVR_OK)
            {
                /* void */
            }
        }
    }

    q.nwakes = 0;
}


static void
count(uint32_t worker, int64_t n)
{
    int64_t  sum;

    (void) __atomic_fetch_add(&shared->load[proc][worker], n,
                              __ATOMIC_SEQ_CST);
    sum = load(worker);

    if (sum > PLACES) {
        (void) __atomic_fetch_add(&shared->wrong, 1, __ATOMIC_RELAXED);
    }

    if (sum > __atomic_load_n(&shared->most, __ATOMIC_RELAXED)) {
        __atomic_store_n(&shared->most, sum, __ATOMIC_RELAXED);
    }
}


/* One step of one request: it looks at its state, and goes on from there. */

static void
step(uint32_t *entry, bool *served)
{
    uint32_t            i, given, state;
    kvr_rc_t            rc;
    kvr_admit_worker_t  w;

    if (*entry == KVR_ADMIT_NONE) {
        *served = false;
        *entry = claim(fx_below(&seed, 2), 1 + fx_below(&seed, 2),
                       95 + fx_below(&seed, 8), 1 + fx_below(&seed, 500));

        if (*entry == KVR_ADMIT_NONE) {
            return;
        }

        q.entries[*entry].narrow = fx_below(&seed, 8) ? 0
                                   : 1 + fx_below(&seed, WORKERS);
        i = fx_below(&seed, WORKERS);
        w = (kvr_admit_worker_t) { q.entries[*entry].pool, i, 7, WORKERS,
                                   WORKERS * PLACES, load_room, load_fits,
                                   NULL };
        rc = kvr_admit_room(&q, &w, *entry, now, &given);

        if (rc == KVR_BUSY) {
            (void) __atomic_fetch_add(&shared->unordered, 1, __ATOMIC_RELAXED);
            (void) kvr_admit_move(&q, *entry, KVR_ADMIT_LEAVE);
            *entry = KVR_ADMIT_NONE;

        } else if (rc != KVR_OK || given != *entry) {
            (void) kvr_admit_move(&q, *entry, KVR_ADMIT_COME);
        }

        return;
    }

    state = kvr_admit_state(&q, *entry);

    if (kvr_admit_move(&q, *entry, KVR_ADMIT_TAKE)) {

        if (fx_below(&seed, 16) == 0) {
            (void) kvr_admit_move(&q, *entry, KVR_ADMIT_RETURN);
            return;
        }

        count(q.entries[*entry].worker, 1);
        *served = kvr_admit_move(&q, *entry, KVR_ADMIT_KEEP);

    } else if (*served) {

        if (fx_below(&seed, 4) == 0) {
            count(q.entries[*entry].worker, -1);
            end(*entry, fx_below(&seed, 600));
            *entry = KVR_ADMIT_NONE;
            (void) __atomic_fetch_add(&shared->done, 1, __ATOMIC_RELAXED);
            look();
        }

    } else if (state == KVR_ADMIT_REFUSED || fx_below(&seed, 64) == 0) {
        shared->refused += state == KVR_ADMIT_REFUSED;
        end(*entry, 0);
        *entry = KVR_ADMIT_NONE;
    }
}


#define MINE  60


static void
works(void)
{
    bool      served[MINE];
    uint32_t  i, mine[MINE];

    kvr_admit_attach(&q, memory);
    q.self = kvr_owner_self();
    q.next = fx_below(&seed, 1000);
    memset(mine, 0xff, sizeof(mine));
    memset(served, 0, sizeof(served));

    (void) alarm(100);

    for ( ;; ) {
        now = kvr_now_us() / 1000;

        for (i = 0; i < 20; i++) {
            uint32_t  k;

            k = fx_below(&seed, MINE);
            step(&mine[k], &served[k]);
        }

        if (kvr_admit_sweep(&q, now) || q.look) {
            look();
        }
    }
}


static pid_t
begin(uint32_t i)
{
    pid_t  pid;

    pid = fork();

    if (pid == 0) {
        proc = i;
        seed += i * 1000 + (uint64_t) getpid();
        works();
    }

    return pid;
}


/* Waits until the process is gone, and forgets its load, as
 * kvr_load_reclaim() does. */

static void
end_of(pid_t pid, uint32_t i)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    memset(shared->load[i], 0, sizeof(shared->load[i]));
}


static void
test_killed(uint64_t ms)
{
    pid_t     pid[PROCS];
    uint32_t  i, k, n, kills, stops, waiting, most, mine[LIMIT];
    uint64_t  until;

    fresh(LIMIT);
    (void) kvr_admit_pool(&q, 7);
    (void) kvr_admit_pool(&q, 8);

    for (i = 0; i < PROCS; i++) {
        pid[i] = begin(i);
    }

    kills = 0;
    stops = 0;
    most = 0;
    until = kvr_now_us() + ms * 1000;

    while (kvr_now_us() < until) {
        usleep((useconds_t) fx_below(&seed, 8000));
        i = fx_below(&seed, PROCS);
        seed++;

        waiting = kvr_admit_waiting(&q, 0) + kvr_admit_waiting(&q, 1);
        most = kvr_max(most, waiting);

        if (fx_below(&seed, 3)) {
            end_of(pid[i], i);
            pid[i] = begin(i);
            slack += 600;
            kills++;

        } else {
            kill(pid[i], SIGSTOP);
            usleep((useconds_t) fx_below(&seed, 150000));
            kill(pid[i], SIGCONT);
            stops++;
        }
    }

    for (i = 0; i < PROCS; i++) {
        end_of(pid[i], i);
    }

    now = kvr_now_us() / 1000;

    for (i = 0; i < 20; i++) {
        usleep(2000);
        (void) sweep();
    }

    ok(empty(), "after %u kills and %u stops no entry is left, and nothing "
       "is counted", kills, stops);
    for (i = 0; i < LIMIT - 20; i++) {
        mine[i] = waits(i % 2, 1 + i % 2, 500 + i % 7, 10);
    }

    for (i = 0, n = 0; i < 10000; i++) {
        for (k = 0; k < LIMIT - 20; k++) {
            if (kvr_admit_state(&q, mine[k]) == KVR_ADMIT_GRANTED
                && keep(mine[k]))
            {
                end(mine[k], 20);
                mine[k] = 0;
                n++;
            }
        }

        if (n == LIMIT - 20) {
            break;
        }

        look();
    }

    ok(n == LIMIT - 20 && empty(), "of %u that wait then all are served", n);
    is_u64(shared->wrong, 0, "no worker had more than its places");
    ok(most <= LIMIT, "no more wait than may: %u of %u", most, LIMIT);
    ok(shared->done > 0 && q.zone->rebuilt <= kills, "requests were served");
    note("%llu served, %llu refused, %llu unordered, %llu of the locks were a "
         "dead process's, %llu wakes lost",
         (unsigned long long) shared->done,
         (unsigned long long) shared->refused,
         (unsigned long long) shared->unordered,
         (unsigned long long) q.zone->rebuilt,
         (unsigned long long) q.zone->lost);
    note("the lock was held %llu times, %llu of more than 20 us",
         (unsigned long long) q.zone->turns,
         (unsigned long long) q.zone->long_turns);
}


/* Killed after some instruction of the calls of a request. */

static void
attach_here(void)
{
    kvr_admit_attach(&q, memory);
    q.self = kvr_owner_self();
}


static void
all_calls(void)
{
    uint32_t  i, k;

    i = claim(0, 1, 6, 50);
    (void) kvr_admit_move(&q, i, KVR_ADMIT_COME);
    (void) room(0, 1, KVR_ADMIT_NONE);
    (void) back(i);
    (void) room(0, 1, KVR_ADMIT_NONE);
    (void) keep(i);

    k = claim(0, 1, 7, 50);
    (void) room(0, 1, k);
    end(k, 0);
    end(i, 70);
}


static void
test_killed_at(uint64_t ms)
{
    bool      good, inside;
    uint32_t  a, n, most;
    uint64_t  until;

    fresh(LIMIT);
    (void) kvr_admit_pool(&q, 7);
    full = 0;

    /* the pool, before the first fork */

    a = claim(0, 1, 5, 10);
    (void) room(0, 1, a);
    end(a, 10);

    good = true;
    most = 4000;
    until = kvr_now_us() + ms * 1000;

    for (n = 0; good && kvr_now_us() < until; n++) {

        /* where it ends there are fewer instructions than we think */

        slack += 70;
        inside = killed_behind(attach_here, all_calls, fx_below(&seed, most));
        most = inside ? most + 50 : most * 7 / 8;

        kvr_put64(&q.zone->since_us, 0);
        (void) sweep();
        (void) sweep();
        (void) sweep();

        good = empty();

        a = claim(0, 1, 5, 10);
        good &= room(0, 1, a) == a && keep(a);
        end(a, 10);
        good &= empty();
    }

    ok(good, "killed at %u instructions of all calls, nothing is left", n);
    note("%llu of the locks were a dead process's",
         (unsigned long long) q.zone->rebuilt);
}


/* ---- threads, for ThreadSanitizer ----------------------------------------- */

typedef struct {
    kvr_admit_t  q;
    uint64_t     until;
    uint64_t     seed;
    pthread_t    thread;
    uint64_t     done;
} thread_t;


static bool
yes(void *data, uint32_t worker)
{
    (void) data;
    (void) worker;

    return true;
}


static void *
thread(void *data)
{
    uint32_t            i, k, entry, mine[8];
    thread_t           *t;
    kvr_order_entry_t  *e;
    kvr_admit_worker_t  w;

    t = data;
    memset(mine, 0xff, sizeof(mine));
    w = (kvr_admit_worker_t) { 0, 0, 7, WORKERS, 0, yes, fits, NULL };

    while (kvr_now_us() < t->until) {
        k = fx_below(&t->seed, 8);
        i = mine[k];

        if (i == KVR_ADMIT_NONE) {
            i = kvr_admit_claim(&t->q);
            e = &t->q.entries[i];
            memset(&e->cost, 0, sizeof(e->cost));
            e->pool = 0;
            e->class = 1 + fx_below(&t->seed, 2);
            e->name = 5 + fx_below(&t->seed, 10);
            e->narrow = 0;
            e->cost.prompt = 100;
            kvr_put64(&e->at_ms, kvr_now_us() / 1000);
            e->deadline_ms = kvr_now_us();
            mine[k] = i;

            if (fx_below(&t->seed, 2)) {
                (void) kvr_admit_move(&t->q, i, KVR_ADMIT_COME);
            }
        }

        w.worker = fx_below(&t->seed, WORKERS);
        (void) kvr_admit_room(&t->q, &w, fx_below(&t->seed, 2)
                                         ? i : KVR_ADMIT_NONE,
                              kvr_now_us() / 1000, &entry);
        t->q.nwakes = 0;

        switch (kvr_admit_state(&t->q, i)) {

        case KVR_ADMIT_GRANTED:
            if (kvr_admit_move(&t->q, i, KVR_ADMIT_TAKE)) {
                (void) kvr_admit_move(&t->q, i, fx_below(&t->seed, 4)
                                                ? KVR_ADMIT_KEEP
                                                : KVR_ADMIT_RETURN);
            }

            break;

        case KVR_ADMIT_ACTIVE:
            kvr_put32(&t->q.entries[i].tokens, 7);
            /* fall through */

        default:
            if (fx_below(&t->seed, 3) == 0) {
                t->done += kvr_admit_move(&t->q, i, KVR_ADMIT_LEAVE);
                mine[k] = KVR_ADMIT_NONE;
            }
        }

        (void) kvr_admit_sweep(&t->q, kvr_now_us() / 1000);
    }

    for (k = 0; k < 8; k++) {
        if (mine[k] != KVR_ADMIT_NONE) {
            (void) kvr_admit_move(&t->q, mine[k], KVR_ADMIT_LEAVE);
        }
    }

    return NULL;
}


static void
test_threads(uint64_t ms)
{
    uint32_t  i;
    uint64_t  done_;
    thread_t  threads[PROCS];

    fresh(LIMIT);
    (void) kvr_admit_pool(&q, 7);

    for (i = 0; i < PROCS; i++) {
        kvr_admit_attach(&threads[i].q, memory);
        threads[i].q.self = q.self;
        threads[i].seed = i;
        threads[i].done = 0;
        threads[i].until = kvr_now_us() + ms * 1000;
        pthread_create(&threads[i].thread, NULL, thread, &threads[i]);
    }

    for (i = 0, done_ = 0; i < PROCS; i++) {
        pthread_join(threads[i].thread, NULL);
        done_ += threads[i].done;
    }

    now = kvr_now_us() / 1000 + 1000;
    (void) sweep();
    ok(empty() && done_ > 100, "threads: %llu requests come and go",
       (unsigned long long) done_);
}


/* ---- figures ------------------------------------------------------------- */

static void
fill(uint32_t n)
{
    uint32_t  i;

    fresh(kvr_max(n, 1000) + n / 10 + 100);

    for (i = 1; i < KVR_RULES_TENANTS; i++) {
        conf.tenants[i] = rule(200 + i, 1, 1, 50);
    }

    for (i = 2; i < KVR_ORDER_CLASSES; i++) {
        conf.classes[i] = rule(1000 + i, 1, 0.9, 0);
    }

    (void) kvr_admit_configure(&q, &conf);
    (void) kvr_admit_pool(&q, 7);

    for (i = 0; i < n; i++) {
        (void) waits(0, 1 + fx_below(&seed, 2), 1000 + fx_below(&seed, 3000),
                     1 + fx_below(&seed, 4000));
    }

    q.zone->turns = 0;
    q.zone->long_turns = 0;
}


/*
 * The time of a request: until it is granted, and to its end.  The least of
 * many means, as other programs run beside.
 */

static void
figure(const char *what, bool wait)
{
    uint32_t  a, i, k;
    uint64_t  from, class, name, granted, ended, g, e;

    granted = UINT64_MAX;
    ended = UINT64_MAX;

    for (i = 0; i < 100; i++) {
        for (k = 0, g = 0, e = 0; k < 200; k++) {
            class = 1 + fx_below(&seed, 2);
            name = 1000 + fx_below(&seed, 3000);
            from = fx_now_ns();

            if (wait) {
                (void) waits(0, class, name, 100);
                a = room(0, k % WORKERS, KVR_ADMIT_NONE);

            } else {
                a = claim(0, class, name, 100);
                (void) room(0, k % WORKERS, a);
            }

            g += fx_now_ns() - from;
            (void) keep(a);
            end(a, 1000);
            e += fx_now_ns() - from;
        }

        granted = kvr_min(granted, g);
        ended = kvr_min(ended, e);
    }

    note("%s: %.2f us until it is granted, %.2f us in all", what,
         (double) granted / k / 1000, (double) ended / k / 1000);
    note("  the lock was held %llu times, %llu of more than 20 us",
         (unsigned long long) q.zone->turns,
         (unsigned long long) q.zone->long_turns);
}


static void
figures(void)
{
    uint32_t  k;
    uint64_t  from, swept;

    fill(0);
    figure("a request finds room at once", false);

    fill(50000);
    is_u64(kvr_admit_waiting(&q, 0), 50000, "50,000 wait");
    figure("50,000 wait, one more comes, the next goes", true);

    for (k = 0; k < 3; k++) {
        from = fx_now_ns();
        (void) sweep();
        swept = fx_now_ns() - from;

        q.zone->lock.owner = DEAD;
        kvr_put64(&q.zone->since_us, 0);
        from = fx_now_ns();
        (void) sweep();
        note("swept in %.2f ms; with a lock of a dead process %.2f ms",
             (double) swept / 1e6, (double) (fx_now_ns() - from) / 1e6);
    }
}


int
main(int argc, char **argv)
{
    uint64_t  ms;

    ms = argc > 1 ? strtoull(argv[1], NULL, 0) : 3000;
    shared = shared_memory(sizeof(shared_t));

    test_threads(ms / 4);

    if (threads_only) {
        return done();
    }

    test_states();
    test_calls();
    test_bounds();
    test_configure();
    test_late();
    test_sweep();
    test_lock();
    figures();
    test_killed_at(ms / 2);
    test_killed(ms);

    return done();
}
