/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Writers killed at random moments, and in the rollback too; what is left is
 * held against an index that applied the same events undisturbed.  A reader
 * looks up all the time, and is killed now and then.
 *
 *     test_crash [rounds [seed [stride]]]
 *
 * The prompts: CHAINS stable chains, each cut at one of CUTS lengths, there
 * goes on one of TAILS tails of a view.  The first block of a tail is only
 * ever stored by its view, so that a reader knows how deep others can be.
 */


#include "processes.h"
#include "radix_fixture.h"

#include "core/kvr_lock.h"


#ifdef __SANITIZE_ADDRESS__
#define ROUNDS       12                 /* of each kind of index */
#define STRIDE       37                 /* instructions between two kills */
#else
#define ROUNDS       30
#define STRIDE       5
#endif

#define MORE         20                 /* times as many rounds, at most, until
                                           all was seen that is to be seen */

#define CHAINS       2
#define CHAIN        600
#define CUTS         6
#define TAILS        3
#define PATH         (CHAIN + 500)
#define VIEWS        12                 /* the first CHURN change */
#define CHURN        8
#define STABLE       10                 /* has all stable chains, for good */
#define NEVER        11                 /* has nothing, ever */
#define EVENTS       30000
#define BATCH        6
#define TIMES        65536              /* rollbacks that are remembered */


/* The words in the shared memory. */
enum {
    W_PROGRESS = 0,
    W_LOCK,
    W_REFUSED,
    W_LOOKUPS,
    W_TORN,
    W_WRONG,
    W_READER
};


typedef enum {
    EV_STORE,
    EV_REMOVE,
    EV_RECLAIM
} kind_t;


typedef struct {
    kind_t      kind;
    uint32_t    view;
    kvr_tier_t  tier;
    uint32_t    n;
    uint64_t    parent;
    uint64_t   *handles;
    uint64_t   *hashes;
} event_t;


typedef struct {
    uint32_t    chain, cut, tail, view;
    uint32_t    n;
    uint64_t    hashes[PATH];
    uint64_t    handles[PATH];
} path_t;


static void path_make(path_t *p, uint64_t *seed, uint32_t view);
static void events_make(uint64_t seed);
static void event_make(event_t *e, uint64_t *seed);
static bool apply(fx_t *f, uint64_t i);
static bool is_small(uint64_t i);
static void writer(void);
static void reader(uint64_t seed);
static void roll_back(void);
static void roll_back_timed(void);
static void times_tell(const char *what, uint64_t *times);
static int by_number(const void *a, const void *b);
static void begin(void);
static bool same_answers(uint64_t seed, uint32_t n);
static bool round_of(uint32_t i);
static void crashes(uint32_t rounds);
static bool all_seen(uint32_t rounds);
static void beginnings(uint32_t stride);
static void locks(void);
static void lock_and_wait(void);


static fx_t      crashed, whole;
static event_t   events[EVENTS];
static uint64_t  random_, mid, inside, broken_locks;
static pid_t     reader_pid;
static uint32_t  ntimes, writers_killed, readers_killed;
static uint64_t  wrong;
static uint64_t  nanoseconds[TIMES], records[TIMES];


int
main(int argc, char **argv)
{
    uint32_t  rounds, stride;

    rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : ROUNDS;
    random_ = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261121;
    stride = argc > 3 ? strtoul(argv[3], NULL, 0) : STRIDE;

    locks();

    for (fx_kind = 0; fx_kind < KVR_INDEX_KINDS; fx_kind++) {
        note("%s", kvr_index_name(fx_kind));

        mid = 0;
        inside = 0;
        broken_locks = 0;

        events_make(random_);
        crashes(rounds);
        beginnings(stride);
    }

    note("total writers killed %u", writers_killed);
    note("total readers killed %u", readers_killed);
    note("total wrong answers %llu", (unsigned long long) wrong);

    return done();
}


/* ---- events ------------------------------------------------------------- */

static void
path_make(path_t *p, uint64_t *seed, uint32_t view)
{
    uint32_t  i, len;
    uint64_t  name;

    p->chain = fx_below(seed, CHAINS);
    p->cut = fx_below(seed, CUTS);
    p->tail = fx_below(seed, TAILS);
    p->view = view;

    len = p->cut * (CHAIN / (CUTS - 1));
    p->n = len + (p->tail ? 10 + p->tail * 15 : p->cut < CUTS - 1 ? 150 : 500);
    name = fx_mix(p->chain * 1000 + p->cut * 10 + p->tail) + view;

    for (i = 0; i < p->n; i++) {
        p->hashes[i] = i < len ? fx_mix(p->chain << 16 | i)
                       : i == len ? 1000 + view : fx_mix(name + i * 7919);
        p->handles[i] = i < len ? p->hashes[i] ^ 1 : fx_mix(name * 3 + i);
    }
}


static void
events_make(uint64_t seed)
{
    uint32_t  i;

    for (i = 0; i < EVENTS; i++) {
        event_make(&events[i], &seed);
    }
}


static void
event_make(event_t *e, uint64_t *seed)
{
    uint32_t  a, i, k;
    path_t    p, other;

    memset(e, 0, sizeof(event_t));
    e->view = fx_below(seed, CHURN);
    path_make(&p, seed, e->view);
    e->tier = fx_below(seed, 12) ? KVR_DEVICE : fx_below(seed, KVR_TIERS);

    if (fx_below(seed, 600) == 0) {
        e->kind = EV_RECLAIM;
        return;
    }

    a = 0;
    e->n = p.n;

    if (fx_below(seed, 4)) {
        a = fx_below(seed, p.n);
        e->n = 1 + fx_below(seed, p.n - a);

        if (fx_below(seed, 2)) {
            e->n = kvr_min(e->n, 1 + a % 8);
        }
    }

    e->kind = fx_below(seed, 100) < 60 ? EV_STORE : EV_REMOVE;
    e->parent = e->kind == EV_STORE && a ? p.handles[a - 1] : 0;
    e->handles = malloc(2 * e->n * sizeof(uint64_t));
    e->hashes = e->handles + e->n;
    memcpy(e->handles, p.handles + a, e->n * sizeof(uint64_t));
    memcpy(e->hashes, p.hashes + a, e->n * sizeof(uint64_t));

    if (e->kind == EV_REMOVE && fx_below(seed, 3)) {
        for (i = 0; i < e->n; i++) {
            e->handles[i] = p.handles[a + e->n - 1 - i];
        }
    }

    /* handles of other blocks: they move; never the event's own parent, for
       half of such an event, applied once more, would be another one */

    if (fx_below(seed, 8) == 0) {
        path_make(&other, seed, e->view);

        for (k = 0; k < 3; k++) {
            i = fx_below(seed, e->n);
            a = fx_below(seed, other.n);

            if (other.handles[a] != e->parent) {
                e->handles[i] = other.handles[a];
            }
        }
    }
}


/* One event, in the transaction that is open. */

static bool
apply(fx_t *f, uint64_t i)
{
    bool      round;
    uint32_t  done, unknown;
    kvr_rc_t  rc;
    event_t  *e;

    e = &events[i % EVENTS];
    unknown = 0;
    rc = KVR_OK;

    switch (e->kind) {

    case EV_STORE:
        rc = kvr_index_store(&f->x, e->view, e->tier, e->parent != 0,
                             e->parent, e->handles, e->hashes, e->n, 0,
                             &done);
        break;

    case EV_REMOVE:
        rc = kvr_index_remove(&f->x, e->view, e->tier, e->handles, e->n,
                              &unknown);
        break;

    case EV_RECLAIM:
        do {
            round = kvr_index_reclaim(&f->x, fx_dying, &e->view, 20000);
            kvr_txn_commit(&f->mem);
            kvr_index_begin(&f->x);
        } while (!round || !kvr_index_view_empty(&f->x, e->view));
    }

    kvr_set64(&f->mem, &f->words[W_PROGRESS], i + 1);

    return rc != KVR_FULL;
}


/* An event that is applied as a whole or not at all. */

static bool
is_small(uint64_t i)
{
    event_t  *e;

    e = &events[i % EVENTS];

    return e->kind == EV_REMOVE ? e->n <= 16
                                : e->kind == EV_STORE && e->n == 1;
}


/* ---- processes ---------------------------------------------------------- */

static void
writer(void)
{
    bool         broken;
    uint32_t     n;
    uint64_t     i;
    kvr_lock_t  *lock;
    kvr_owner_t  self;

    self = kvr_owner_self();
    lock = (kvr_lock_t *) &crashed.words[W_LOCK];

    for ( ;; ) {
        if (kvr_lock_acquire(lock, self, 1000, &broken) != KVR_OK) {
            _exit(1);
        }

        i = crashed.words[W_PROGRESS];
        n = fx_mix(i) % 3 ? 1 : BATCH;

        kvr_index_begin(&crashed.x);

        while (n--) {
            if (!apply(&crashed, i++)) {
                crashed.words[W_REFUSED]++;
            }
        }

        kvr_txn_commit(&crashed.mem);
        kvr_lock_release(lock, self);
    }
}


static void
reader(uint64_t seed)
{
    uint32_t  v, len;
    path_t    p;

    for ( ;; ) {
        path_make(&p, &seed, fx_below(&seed, CHURN));
        len = p.cut * (CHAIN / (CUTS - 1));

        fx_find(&crashed, p.hashes, p.n);

        for (v = 0; v < VIEWS; v++) {
            if ((v != p.view && crashed.depths[2][v] > len)
                || crashed.depths[0][v] > crashed.depths[1][v]
                || crashed.depths[1][v] > crashed.depths[2][v])
            {
                crashed.words[W_WRONG]++;
            }
        }

        if (crashed.depths[2][NEVER]
            || (!crashed.torn && crashed.depths[0][STABLE] != len))
        {
            crashed.words[W_WRONG]++;
        }

        crashed.words[W_TORN] += crashed.torn;
        crashed.words[W_LOOKUPS]++;
    }
}


static void
start_reader(void)
{
    reader(fx_mix(crashed.words[W_LOOKUPS]));
}


static void
roll_back(void)
{
    kvr_txn_rollback(&crashed.mem);
}


static void
roll_back_timed(void)
{
    uint64_t  t, n;

    t = fx_now_ns();
    n = kvr_txn_rollback(&crashed.mem);
    t = fx_now_ns() - t;

    if (n && ntimes < TIMES) {
        nanoseconds[ntimes] = t;
        records[ntimes++] = n;
    }
}


static void
times_tell(const char *what, uint64_t *times)
{
    if (ntimes) {
        qsort(times, ntimes, sizeof(uint64_t), by_number);
        note("%s: %llu at p50, %llu at most, of %u", what,
             (unsigned long long) times[ntimes / 2],
             (unsigned long long) times[ntimes - 1], ntimes);
    }
}


static int
by_number(const void *a, const void *b)
{
    uint64_t  x, y;

    x = *(const uint64_t *) a;
    y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}


static void
begin(void)
{
    kvr_index_begin(&crashed.x);
}


/* ---- rounds ------------------------------------------------------------- */

static bool
same_answers(uint64_t seed, uint32_t n)
{
    uint32_t  i, v, a, b;
    path_t    p;

    for (i = 0; i < n; i++) {
        path_make(&p, &seed, fx_below(&seed, CHURN));

        a = fx_find(&crashed, p.hashes, p.n);
        b = fx_find(&whole, p.hashes, p.n);

        if (a == b && memcmp(crashed.depths, whole.depths,
                             sizeof(crashed.depths)) == 0)
        {
            continue;
        }

        for (v = 0; v < VIEWS; v++) {
            if (crashed.depths[2][v] != whole.depths[2][v]
                || crashed.depths[0][v] != whole.depths[0][v])
            {
                note("view %u: got %u, %u, want %u, %u (best %u, %u)", v,
                     crashed.depths[0][v], crashed.depths[2][v],
                     whole.depths[0][v], whole.depths[2][v], a, b);
            }
        }

        return false;
    }

    return true;
}


static bool
round_of(uint32_t i)
{
    int          status;
    bool         good, broken;
    pid_t        pid;
    uint32_t     k;
    uint64_t     at;
    kvr_lock_t  *lock;
    kvr_owner_t  self;

    lock = (kvr_lock_t *) &crashed.words[W_LOCK];
    self = kvr_owner_self();

    at = crashed.words[W_PROGRESS];
    pid = start(writer);

    while (kvr_load64(&crashed.words[W_PROGRESS]) == at
           && __atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == 0)
    {
        usleep(20);
    }

    usleep(fx_below(&random_, fx_below(&random_, 8) ? 2000 : 20000));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);

    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        note("the writer ended by itself: %x", status);
        return false;
    }

    if (kvr_lock_acquire(lock, self, 1000, &broken) != KVR_OK) {
        note("the lock of a dead writer was not to be had");
        return false;
    }

    broken_locks += broken;
    mid += crashed.mem.journal->n > 0;

    if (crashed.mem.journal->n && !broken) {
        note("a log without a lock");
        return false;
    }

    for (k = 0; k < 3 && i % 3 == 0 && crashed.mem.journal->n; k++) {
        killed_at(roll_back, 1 + fx_below(&random_, k == 2 ? 3000 : 300));
        inside += crashed.mem.journal->n != 0;
    }

    roll_back_timed();

    at = crashed.words[W_PROGRESS];
    good = true;

    if (events[at % EVENTS].kind != EV_RECLAIM) {
        good = fx_whole(&crashed, "after a crash");
    }

    while (whole.words[W_PROGRESS] < at) {
        kvr_index_begin(&whole.x);
        apply(&whole, whole.words[W_PROGRESS]);
        kvr_txn_commit(&whole.mem);
    }

    /* an event that is long may be there by half */

    if (good && is_small(at)) {
        good = same_answers(at, 10);
    }

    for (k = 0; k < 2; k++) {
        kvr_index_begin(k ? &whole.x : &crashed.x);
        apply(k ? &whole : &crashed, at);
        kvr_txn_commit(k ? &whole.mem : &crashed.mem);
    }

    good = good
           && (i % 4 || fx_whole(&crashed, "with the event that was cut"))
           && same_answers(at + 1, 40)

           /* not of names: an event that is applied once more may find that a
              name is shared by now, or is not any more */

           && fx_usage(&crashed).pairs == fx_usage(&whole).pairs;

    kvr_lock_release(lock, self);

    return good;
}


/* How often that is depends on when the kills come. */

static bool
all_seen(uint32_t rounds)
{
    return mid > rounds / 4 && inside > 0
           && kvr_load64(&crashed.words[W_LOOKUPS]) > rounds;
}


static void
crashes(uint32_t rounds)
{
    int       status;
    bool      good;
    uint32_t  i, k, died;
    fx_t     *f;
    uint64_t  hashes[CHAIN], handles[CHAIN];

    fx_open(&crashed, 8 << 20, VIEWS);
    fx_open(&whole, 8 << 20, VIEWS);

    for (i = 0; i < 2 * CHAINS; i++) {
        f = i & 1 ? &crashed : &whole;

        for (k = 0; k < CHAIN; k++) {
            hashes[k] = fx_mix((i / 2) << 16 | k);
            handles[k] = hashes[k] ^ 1;
        }

        fx_store(f, STABLE, KVR_DEVICE, 0, handles, hashes, CHAIN);
    }

    reader_pid = start(start_reader);
    good = true;
    died = 0;

    for (i = 0;
         good && (i < rounds || (i < MORE * rounds && !all_seen(rounds)));
         i++)
    {
        good = round_of(i);

        if (waitpid(reader_pid, &status, WNOHANG) == reader_pid) {
            died++;
            reader_pid = start(start_reader);
        }

        if (i % 2) {
            kill(reader_pid, SIGKILL);
            waitpid(reader_pid, &status, 0);
            reader_pid = start(start_reader);
            readers_killed++;
        }
    }

    writers_killed += i;
    wrong += crashed.words[W_WRONG];

    ok(good, "a writer killed %u times leaves the index whole and right", i);
    ok(mid > rounds / 4, "%llu of them in a transaction",
       (unsigned long long) mid);
    ok(inside > 0, "and %llu times in the rollback",
       (unsigned long long) inside);
    ok(broken_locks >= mid, "the lock was taken from the dead %llu times",
       (unsigned long long) broken_locks);
    is_u64(crashed.words[W_REFUSED], 0, "no event was refused");
    is_u64(died, 0, "no reader came to harm");
    is_u64(crashed.words[W_WRONG], 0, "no answer was wrong");
    ok(crashed.words[W_LOOKUPS] > rounds, "of %llu, %llu of them cut short",
       (unsigned long long) crashed.words[W_LOOKUPS],
       (unsigned long long) crashed.words[W_TORN]);
    note("%llu events", (unsigned long long) crashed.words[W_PROGRESS]);
    times_tell("nanoseconds of a rollback", nanoseconds);
    times_tell("records undone by it", records);

    /* the index that crashed is as good as new */

    for (i = 0; i < VIEWS; i++) {
        fx_reclaim(&crashed, i, 1000000);
    }

    ok(fx_empty(&crashed)
       && fx_whole(&crashed, "all dropped"),
       "when all views are dropped nothing is left");

    kill(reader_pid, SIGKILL);
    waitpid(reader_pid, &status, 0);

    fx_close(&crashed);
    fx_close(&whole);

    for (i = 0; i < EVENTS; i++) {
        free(events[i].handles);
    }
}


/*
 * A transaction's beginning takes what the last one freed out of limbo: killed
 * there, at each instruction in turn, nothing of it may be lost.
 */

static void
beginnings(uint32_t stride)
{
    bool      good;
    uint32_t  i, n, steps;
    uint64_t  q[3];

    fx_open(&crashed, 4 << 20, VIEWS);

    for (i = 0; i < 3; i++) {
        q[0] = i + 1;
        fx_store(&crashed, 0, KVR_DEVICE, 0, q, q, 1);
    }

    for (i = 0; i < 3; i++) {
        q[i] = i + 1;
    }

    fx_remove(&crashed, 0, KVR_DEVICE, q, 3);
    good = fx_usage(&crashed).arena == 0
           && kvr_index_arena(&crashed.x)->zone->nlimbo > 0;

    n = 0;

    for (steps = 1;
         good && kvr_index_arena(&crashed.x)->zone->nlimbo;
         steps += stride)
    {
        n++;
        killed_at(begin, steps);
        kvr_txn_rollback(&crashed.mem);
        good = fx_usage(&crashed).arena == 0 && fx_whole(&crashed, "begun");
    }

    ok(good && n > 20, "killed in a beginning at %u places, no memory is "
       "lost", n);
    fx_close(&crashed);
}


/* ---- locks -------------------------------------------------------------- */

static kvr_lock_t  *shared_lock;


static void
lock_and_wait(void)
{
    bool  broken;

    kvr_lock_acquire(shared_lock, kvr_owner_self(), 1000, &broken);

    for ( ;; ) {
        pause();
    }
}


static void
locks(void)
{
    int          status;
    bool         broken;
    pid_t        pid;
    uint64_t     t;
    kvr_rc_t     rc;
    kvr_owner_t  self, owner;

    fx_open(&crashed, 4 << 20, VIEWS);
    shared_lock = (kvr_lock_t *) &crashed.words[W_LOCK];
    self = kvr_owner_self();

    ok(kvr_owner_alive(self), "this process is alive");
    is_u64((uint64_t) kvr_owner_pid(self), (uint64_t) getpid(),
           "an owner has its pid");
    ok(!kvr_owner_alive(self + 1) && !kvr_owner_alive(self - 1),
       "a pid with another start time is another process");
    ok(!kvr_owner_alive((kvr_owner_t) 0x3fffff << 40 | 1),
       "a pid that is not there is dead");

    rc = kvr_lock_acquire(shared_lock, self, 100, &broken);
    ok(rc == KVR_OK && !broken, "a free lock is taken");
    ok(!kvr_lock_orphaned(shared_lock), "its owner lives");
    kvr_lock_release(shared_lock, self + 1);
    ok(shared_lock->owner == self, "another can't give it back");
    kvr_lock_release(shared_lock, self);
    ok(shared_lock->owner == 0 && !kvr_lock_orphaned(shared_lock),
       "its owner can");

    /* a live owner, stopped */

    pid = start(lock_and_wait);

    while (__atomic_load_n(&shared_lock->owner, __ATOMIC_RELAXED) == 0) {
        usleep(100);
    }

    owner = shared_lock->owner;
    is_u64((uint64_t) kvr_owner_pid(owner), (uint64_t) pid,
           "another process has the lock");
    kill(pid, SIGSTOP);
    waitpid(pid, &status, WUNTRACED);

    t = fx_now_ns();
    rc = kvr_lock_acquire(shared_lock, self, 50, &broken);
    t = (fx_now_ns() - t) / 1000000;
    ok(rc == KVR_BUSY && !broken && shared_lock->owner == owner,
       "an owner that is stopped keeps it");
    ok(t >= 45, "the wait ends in time (50 ms: %llu)",
       (unsigned long long) t);
    ok(!kvr_lock_orphaned(shared_lock), "the lock is no orphan");

    /* a zombie: killed, not waited for */

    kill(pid, SIGKILL);

    for (t = 0; t < 60000 && kvr_owner_alive(owner); t++) {
        usleep(1000);
    }

    ok(kill(pid, 0) == 0 && !kvr_owner_alive(owner), "a zombie is dead");
    ok(kvr_lock_orphaned(shared_lock), "its lock is an orphan");
    rc = kvr_lock_acquire(shared_lock, self, 1000, &broken);
    ok(rc == KVR_OK && broken && shared_lock->owner == self,
       "which is taken from it");
    kvr_lock_release(shared_lock, self);
    waitpid(pid, &status, 0);

    pid = start(lock_and_wait);

    while (__atomic_load_n(&shared_lock->owner, __ATOMIC_RELAXED) == 0) {
        usleep(100);
    }

    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    rc = kvr_lock_acquire(shared_lock, self, 0, &broken);
    ok(rc == KVR_OK && broken,
       "a dead owner's lock is taken at once");

    /* a pid used again: this process's, of another time */

    shared_lock->owner = self ^ 1;
    rc = kvr_lock_acquire(shared_lock, self, 1000, &broken);
    ok(rc == KVR_OK && broken, "so is that of a pid that was used again");
    fx_close(&crashed);
}
