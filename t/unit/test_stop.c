/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Processes that are stopped (SIGSTOP) and wake: one that held the lease finds
 * it taken and changes nothing; one that held the lock keeps it, others are
 * told KVR_BUSY, and lookups go on; one that looks something up answers what
 * was true when it began, or what is when it ends.
 *
 *     test_stop [rounds]
 *
 * The stream of worker "e": message number s stores the chain s, of CHAIN
 * blocks, and removes the chain s - KEPT; so a cursor says all that is held.
 */


#include "zone/kvr_shard.h"
#include "pack.h"
#include "processes.h"
#include "zone.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>


#define CHAIN    24
#define KEPT     30
#define EPOCH    7
#define STEP     8                      /* blocks a slice */
#define PATIENCE 60000                  /* ms: more than anything may take */


/* What processes tell one another. */
typedef struct {
    uint64_t    stop;
    uint64_t    slow;                   /* sleep between two messages */
    uint64_t    applied;                /* messages, by the other process */
    uint64_t    lost;                   /* times it was told KVR_LOST */
    uint64_t    wrong;
    uint64_t    lookups;
    uint64_t    result;
} told_t;


static void in_the_lock(void);
static kvr_rc_t stop_here(void *data, const char *line, size_t len);
static void dumper(void);
static void holder(void);
static void rounds_of(uint32_t rounds);
static bool has_the_lock(void);
static bool stopped_in_the_lock(void);
static bool stopped_outside(pid_t pid);
static void a_lease_runs_out(void);
static void lookups_are_stopped(uint32_t rounds);
static void looker(void);
static kvr_rc_t apply(kvr_ingest_t *in, uint64_t seq);
static size_t message(uint8_t *out, size_t size, uint64_t seq);
static uint64_t cursor(void);
static bool answers(uint64_t done, uint32_t touched);
static bool stop(pid_t pid);
static void finish(pid_t pid, int number);
static bool wait_for(const uint64_t *word, uint64_t above);
static uint64_t milliseconds(void);


static told_t        *told;
static kvr_ingest_t  *ingest;
static uint32_t       locked, outside;


int
main(int argc, char **argv)
{
    uint32_t  i, rounds;

    rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 5;
    told = shared_memory(sizeof(told_t));

    for (i = 0; i < KINDS; i++) {
        memset(told, 0, sizeof(told_t));
        zone_open(&kinds[i], 16 << 20);
        ingest = kvr_ingest_create(&router);

        put("a");
        in_the_lock();
        rounds_of(rounds);
        a_lease_runs_out();
        lookups_are_stopped(rounds * 10);

        kvr_ingest_destroy(ingest);
        zone_close();
    }

    return done();
}


/* ---- stopped within the lock, for sure ---------------------------------- */

/* A dump holds the lock while it calls this. */

static kvr_rc_t
stop_here(void *data, const char *line, size_t len)
{
    bool  *stopped = data;

    if (!*stopped) {
        *stopped = true;
        raise(SIGSTOP);
    }

    return KVR_OK;
}


static void
dumper(void)
{
    bool      stopped;
    uint32_t  i;

    for (i = 0; i < router.nshards; i++) {
        router.shards[i].self = kvr_owner_self();
    }

    stopped = false;
    told->result = (uint64_t) kvr_router_dump(&router, false, stop_here,
                                              &stopped);
    _exit(0);
}


static void
in_the_lock(void)
{
    int          status;
    pid_t        pid;
    kvr_stats_t  before, after;

    store("a", 0, row(101, 10), row(1, 10), 10);
    kvr_router_stats(&router, &before);

    pid = start(dumper);
    ok(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status),
       "%s: a process is stopped with the lock", kind->name);

    ok(store("a", 110, row(111, 1), row(11, 1), 1) == KVR_BUSY,
       "%s: who wants to write is told so", kind->name);
    ok(lease("a", milliseconds()) == KVR_BUSY,
       "%s: so is who wants the lease", kind->name);
    (void) kvr_router_tend(&router, milliseconds(), 1000);
    is_u64(matched("a", row(1, 11), 11).device, 10,
           "%s: lookups go on", kind->name);
    kvr_router_stats(&router, &after);
    is_u64(after.lock_breaks, before.lock_breaks,
           "%s: nobody takes the lock from it", kind->name);

    kill(pid, SIGCONT);
    waitpid(pid, &status, 0);
    ok(WIFEXITED(status) && told->result == KVR_OK,
       "%s: it wakes and goes on", kind->name);
    ok(store("a", 110, row(111, 1), row(11, 1), 1) == KVR_OK,
       "%s: and so do the others", kind->name);

    pid = start(dumper);
    waitpid(pid, &status, WUNTRACED);
    finish(pid, SIGKILL);
    ok(store("a", 111, row(112, 1), row(12, 1), 1) == KVR_OK,
       "%s: killed instead, its lock is taken at once", kind->name);
    kvr_router_stats(&router, &after);
    is_u64(after.lock_breaks, before.lock_breaks + 1, "%s: from it",
           kind->name);
    is_u64(matched("a", row(1, 12), 12).device, 12,
           "%s: what was stored is there", kind->name);
}


/* ---- stopped anywhere --------------------------------------------------- */

/* Takes the lease whenever it can, and applies one message after another. */

static void
holder(void)
{
    bool      had;
    uint64_t  seq;
    kvr_rc_t  rc;

    had = false;
    (void) kvr_router_join(&router);

    while (__atomic_load_n(&told->stop, __ATOMIC_RELAXED) == 0) {

        if (lease("e", milliseconds()) != KVR_OK) {
            rc = KVR_LOST;

        } else {
            had = true;
            seq = cursor() + 1;
            rc = apply(ingest, seq);
        }

        if (rc == KVR_DONE) {
            __atomic_fetch_add(&told->applied, 1, __ATOMIC_RELAXED);

            if (__atomic_load_n(&told->slow, __ATOMIC_RELAXED)) {
                usleep(200);
            }

        } else if (rc == KVR_LOST) {
            __atomic_fetch_add(&told->lost, had, __ATOMIC_RELAXED);
            had = false;
            usleep(200);

        } else if (rc != KVR_BUSY) {
            told->wrong++;
        }
    }

    kvr_router_leave(&router);
    _exit(0);
}


static void
rounds_of(uint32_t rounds)
{
    bool      good;
    pid_t     pid;
    uint32_t  i;

    good = true;
    locked = 0;
    outside = 0;
    pid = start(holder);

    for (i = 0; good && i < 1000 * rounds
                && (locked < rounds || outside < rounds); i++)
    {
        __atomic_store_n(&told->slow, outside < locked, __ATOMIC_RELAXED);
        good = wait_for(&told->applied, told->applied);
        usleep((useconds_t) (i * 7919 % 500));
        good = good && stop(pid);

        if (!good) {
            break;
        }

        good = has_the_lock() ? stopped_in_the_lock() : stopped_outside(pid);

        kill(pid, SIGCONT);
    }

    ok(good && outside >= rounds, "%s: stopped %u times without the lock, it "
       "lost the lease, woke, and changed nothing", kind->name, outside);
    ok(good && locked >= rounds, "%s: stopped %u times with it, others were "
       "told KVR_BUSY, and lookups were right", kind->name, locked);
    is_u64(told->wrong, 0, "%s: and the stream never stumbled", kind->name);
    note("%llu messages", (unsigned long long) cursor());

    told->stop = 1;
    finish(pid, SIGCONT);
    told->stop = 0;
}


/* The stopped process, that is: a write for its worker would be refused. */

static bool
has_the_lock(void)
{
    return store("e", 0, row(501, 1), row(501, 1), 1) == KVR_BUSY;
}


static bool
stopped_in_the_lock(void)
{
    bool      good;
    uint64_t  at;

    at = cursor();
    locked++;

    good = lease("e", milliseconds() + KVR_LEASE_MS + 1)
           == KVR_BUSY
           && answers(at, 1) && cursor() == at && has_the_lock();

    if (!good) {
        note("stopped with the lock at %llu", (unsigned long long) at);
    }

    return good;
}


/* As if KVR_LEASE_MS had gone by: another takes the lease, and writes. */

static bool
stopped_outside(pid_t pid)
{
    bool      good;
    uint32_t  i;
    uint64_t  at, lost;

    outside++;
    lost = told->lost;
    good = lease("e", milliseconds() + KVR_LEASE_MS + 1)
           == KVR_OK;

    at = cursor();
    good = good && answers(at, 1);

    for (i = 0; good && i < 3; i++) {
        good = apply(ingest, ++at) == KVR_DONE;
    }

    kill(pid, SIGCONT);

    good = good && wait_for(&told->lost, lost) && cursor() == at
           && answers(at, 0);

    if (!good) {
        note("stopped without the lock, now at %llu, not %llu",
             (unsigned long long) cursor(), (unsigned long long) at);
    }

    kvr_router_lease_release(&router);

    return good;
}


/* The same once with time that really goes by. */

static void
a_lease_runs_out(void)
{
    pid_t     pid;
    uint64_t  at, before, until;
    kvr_rc_t  first, rc;

    told->lost = 0;
    told->applied = 0;
    pid = start(holder);

    /* stopped where it does not hold the lock */

    do {
        kill(pid, SIGCONT);
        before = milliseconds();
        (void) wait_for(&told->applied, told->applied + 1);
        (void) stop(pid);
    } while (has_the_lock());

    first = lease("e", before);
    until = milliseconds() + PATIENCE;

    do {
        usleep(20000);
        rc = lease("e", milliseconds());
    } while (rc != KVR_OK && milliseconds() < until);

    ok(first == KVR_DECLINED && rc == KVR_OK,
       "%s: the lease of a stopped process is taken when its time is over, "
       "not before", kind->name);

    at = cursor();
    ok(apply(ingest, at + 1) == KVR_DONE, "%s: who has it writes",
       kind->name);

    kill(pid, SIGCONT);
    ok(wait_for(&told->lost, 0) && cursor() == at + 1 && answers(at + 1, 0),
       "%s: who had it finds it lost", kind->name);

    told->stop = 1;
    finish(pid, SIGCONT);
}


/* ---- stopped in a lookup ------------------------------------------------ */

/* "b" never has anything of this prompt. */

static void
looker(void)
{
    for ( ;; ) {
        told->wrong += matched("b", row(7001, 3), 3).disk != 0;
        __atomic_fetch_add(&told->lookups, 1, __ATOMIC_RELAXED);
    }
}


/* While it is stopped what it sees is cleared, and its place is another's. */

static void
lookups_are_stopped(uint32_t rounds)
{
    bool      good;
    pid_t     pid;
    uint32_t  i;

    told->wrong = 0;
    put("b");
    (void) clear("a");
    pid = start(looker);
    good = true;

    for (i = 0; good && i < rounds; i++) {
        good = store("a", 0, row(7001, 3), row(7001, 3), 3) == KVR_OK
               && wait_for(&told->lookups, told->lookups);
        usleep((useconds_t) (i * 7919 % 300));
        good = good && stop(pid);

        (void) clear("a");

        while (kvr_router_tend(&router, now_ms, 10000)) { /* void */ }

        good = good && store("b", 0, row(9001, 3), row(9001, 3), 3) == KVR_OK;
        kill(pid, SIGCONT);
        good = good && wait_for(&told->lookups, told->lookups);
        (void) clear("b");

        while (kvr_router_tend(&router, now_ms, 10000)) { /* void */ }
    }

    ok(good, "%s: a lookup is stopped %u times, what it saw is cleared, and "
       "used again by another", kind->name, i);
    is_u64(told->wrong, 0, "%s: that one gets nothing of it", kind->name);

    finish(pid, SIGKILL);
}


/* ---- the stream --------------------------------------------------------- */

static kvr_rc_t
apply(kvr_ingest_t *in, uint64_t seq)
{
    size_t       len;
    kvr_rc_t     rc;
    uint8_t      bytes[2048];
    const char  *detail;

    len = message(bytes, sizeof(bytes), seq);

    switch (kvr_ingest_open(in, "e", 1, bytes, len, true, milliseconds(),
                            &detail))
    {
    case KVR_INGEST_APPLY:
        break;

    case KVR_INGEST_LOST:
        return KVR_LOST;

    case KVR_INGEST_BUSY:
        return KVR_BUSY;

    default:
        return KVR_INVALID;
    }

    do {
        rc = kvr_ingest_step(in, STEP);
    } while (rc == KVR_OK || rc == KVR_BUSY);

    return rc;
}


static size_t
message(uint8_t *out, size_t size, uint64_t seq)
{
    pack_t    to;
    uint32_t  i;
    uint64_t  names[CHAIN];
    uint8_t   inner[1024];

    to.pos = inner;
    to.end = inner + sizeof(inner);

    for (i = 0; i < CHAIN; i++) {
        names[i] = seq << 16 | i;
    }

    pack_array(&to, 2);
    pack_array(&to, 6);
    pack_str(&to, "s", 1);
    pack_u64(&to, 0);
    pack_u64(&to, 0);
    pack_tag(&to, 0xc0, 0, 0);
    pack_bin(&to, names, sizeof(names));
    pack_bin(&to, names, sizeof(names));

    for (i = 0; i < CHAIN; i++) {
        names[i] = (seq > KEPT ? seq - KEPT : 0) << 16 | (CHAIN - 1 - i);
    }

    pack_remove(&to, 0, 0, names, CHAIN);

    i = (uint32_t) (to.pos - inner);
    to.pos = out;
    to.end = out + size;

    pack_array(&to, 7);
    pack_str(&to, "kvr1", 4);
    pack_str(&to, "e", 1);
    pack_u64(&to, EPOCH);
    pack_u64(&to, seq);
    pack_tag(&to, 0xc3, 0, 0);
    pack_tag(&to, 0xc0, 0, 0);
    pack_bin(&to, inner, i);

    return (size_t) (to.pos - out);
}


/* Of the last message that was applied as a whole; no lock is needed. */

static uint64_t
cursor(void)
{
    uint32_t  w;

    if (kvr_router_find_worker(&router, "e", 1, &w) != KVR_OK) {
        return 0;
    }

    return kvr_load64(&kvr_router_worker(&router, w)->stream.seq);
}


/*
 * Whether every chain is there, or not, after so many messages.  touched:
 * another process may be in the middle of the next one; its two chains have
 * anything up to their ends.
 */

static bool
answers(uint64_t done, uint32_t touched)
{
    uint32_t  depth, want;
    uint64_t  s;

    for (s = done > 2 * KEPT ? done - 2 * KEPT : 1; s <= done + 2; s++) {

        depth = matched("e", row(s << 16, CHAIN), CHAIN).disk;
        want = s <= done && s + KEPT > done ? CHAIN : 0;

        if (depth == want || (touched && (s == done + 1
                                          || s + KEPT == done + 1)))
        {
            continue;
        }

        note("at %llu the chain %llu has %u, not %u",
             (unsigned long long) done, (unsigned long long) s, depth, want);
        return false;
    }

    return matched("a", row(1, 12), 12).device == 12;
}


/* ---- processes ---------------------------------------------------------- */

static bool
stop(pid_t pid)
{
    int  status;

    kill(pid, SIGSTOP);

    return waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status);
}


static void
finish(pid_t pid, int number)
{
    int  status;

    kill(pid, number);
    waitpid(pid, &status, 0);
}


static bool
wait_for(const uint64_t *word, uint64_t above)
{
    uint64_t  until;

    until = milliseconds() + PATIENCE;

    while (__atomic_load_n(word, __ATOMIC_RELAXED) <= above) {
        if (milliseconds() > until) {
            note("waited in vain");
            return false;
        }

        usleep(100);
    }

    return true;
}


static uint64_t
milliseconds(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}
