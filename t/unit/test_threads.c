/*
 * Copyright (C) the nginx-kv-router authors
 *
 * One thread writes, others look up, in one zone: events, clears, and their
 * reclaim; classes of KV-cache groups; workers that come and go.  Made for ThreadSanitizer (make tsan),
 * which finds accesses to shared memory that nothing orders; what is answered
 * is looked at too.
 *
 *     test_threads [milliseconds]
 *
 * A process has a handle of its own on a zone, and so has each thread here.
 */


#include "zone.h"

#include <pthread.h>
#include <stdarg.h>
#include <time.h>


#define READERS    3
#define CHAINS     24
#define CHAIN      500                  /* blocks: more than a run */
#define STABLE     450
#define DYING      32                   /* views that wait for their reclaim */
#define STATE      99                   /* a block that "grouped" has a state
                                           behind, all the time */
#define STATES     199                  /* one that it has a state behind now
                                           and then */


typedef struct {
    kvr_router_t    router;
    pthread_t       thread;
    uint64_t        seed;
    uint64_t        lookups;
    uint64_t        found;
    uint64_t        wrong;
    char            what[200];          /* the first that was wrong */
} reader_t;


static void threads(uint64_t ms);
static void *reader(void *data);
static void look_up(reader_t *r);
static void look_at_worker(reader_t *r);
static void is_wrong(reader_t *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void writer(void);
static void stable(void);
static void grouped(void);
static kvr_rc_t describe(const char *worker, kvr_group_kind_t kind);
static kvr_rc_t bits(const char *worker, const uint64_t *handles, uint32_t n,
    uint32_t gone);
static void part(uint32_t chain, uint32_t from, uint32_t n, bool in);
static uint32_t shared(uint32_t chain);
static uint32_t chain_make(uint64_t *q, uint32_t chain);
static uint64_t random_below(uint64_t *seed, uint64_t n);
static uint64_t milliseconds(void);


static const char *const  names[] = { "a", "b", "c", "d", "e", "f", "g", "h",
                                      "i", "j", "k", "l" };
#define NAMES    (sizeof(names) / sizeof(names[0]))

static reader_t  readers[READERS];
static uint32_t  stopped;
static uint32_t  stable_holder;
static uint32_t  grouped_holder;
static uint64_t  seed_ = 1;


int
main(int argc, char **argv)
{
    uint32_t  i;
    uint64_t  ms;

    ms = argc > 1 ? strtoull(argv[1], NULL, 0) : 1500;

    for (i = 0; i < KINDS; i++) {
        zone_open(&kinds[i], 16 << 20);
        threads(ms);
        zone_close();
    }

    return done();
}


static void
threads(uint64_t ms)
{
    char         text[KVR_WHY_LEN];
    uint32_t     i, w;
    uint64_t     until, rounds, lookups, found, wrong;
    kvr_stats_t  stats;

    put("stable");
    stable();
    (void) kvr_router_find_worker(&router, "stable", 6, &w);
    (void) kvr_router_find_holder(&router, w, 0, &stable_holder);

    grouped_holder = UINT32_MAX;

    if (kind->params.index == KVR_INDEX_RADIX) {
        put("grouped");
        grouped();
        (void) kvr_router_find_worker(&router, "grouped", 7, &w);
        (void) kvr_router_find_holder(&router, w, 0, &grouped_holder);
    }

    stopped = 0;
    memset(readers, 0, sizeof(readers));

    for (i = 0; i < READERS; i++) {
        readers[i].seed = i + 10;

        if (kvr_router_attach(&readers[i].router, zone_base, zone_size,
                              &kind->params, text) != KVR_OK
            || pthread_create(&readers[i].thread, NULL, reader, &readers[i]))
        {
            printf("Bail out! no reader\n");
            exit(1);
        }
    }

    until = milliseconds() + ms;

    for (rounds = 0; rounds < 20 || milliseconds() < until; rounds++) {
        writer();
    }

    __atomic_store_n(&stopped, 1, __ATOMIC_RELAXED);
    lookups = 0;
    found = 0;
    wrong = 0;

    for (i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        kvr_router_detach(&readers[i].router);
        lookups += readers[i].lookups;
        found += readers[i].found;
        wrong += readers[i].wrong;

        if (readers[i].wrong) {
            note("reader %u: %s", i, readers[i].what);
        }
    }

    kvr_router_stats(&router, &stats);
    ok(rounds >= 20 && lookups > 20 && found,
       "%s: %llu rounds of a writer beside %llu lookups", kind->name,
       (unsigned long long) rounds, (unsigned long long) lookups);
    is_u64(wrong, 0, "%s: no answer was wrong", kind->name);
    is_u64(stats.forgotten, 0, "%s: nothing was forgotten", kind->name);
    note("%llu lookups met a writer again and again",
         (unsigned long long) stats.lookups_torn);
}


/* ---- readers ------------------------------------------------------------ */

static void *
reader(void *data)
{
    reader_t  *r = data;

    while (__atomic_load_n(&stopped, __ATOMIC_RELAXED) == 0
           || r->lookups <= 20)
    {
        look_up(r);
        look_at_worker(r);
    }

    return NULL;
}


/*
 * "stable" has the first STABLE blocks of all chains of even numbers, all the
 * time, so that of others it has what they share with these; and nobody has
 * anything of the chain CHAINS.
 */

static void
look_up(reader_t *r)
{
    bool         torn;
    uint32_t     i, n, found, chain, want;
    uint64_t     before, q[CHAIN];
    kvr_match_t  m[256];
    kvr_stats_t  stats;

    chain = (uint32_t) random_below(&r->seed, CHAINS + 1);
    n = chain_make(q, chain);
    want = chain == CHAINS ? 0 : chain % 2 == 0 ? STABLE : shared(chain);

    kvr_router_stats(&r->router, &stats);
    before = stats.lookups_torn;
    found = kvr_router_find(&r->router, q, n, 0, false, m, 256);
    kvr_router_stats(&r->router, &stats);
    torn = stats.lookups_torn != before;

    for (i = 0; i < found; i++) {

        if (m[i].device > m[i].host || m[i].host > m[i].disk
            || m[i].disk > n || chain == CHAINS)
        {
            is_wrong(r, "holder %u of chain %u: %u, %u, %u%s", m[i].holder,
                     chain, m[i].device, m[i].host, m[i].disk,
                     torn ? ", torn" : "");
        }

        if (m[i].holder == stable_holder) {

            if (m[i].device > want || (m[i].device < want && !torn)) {
                is_wrong(r, "stable has %u of chain %u, %u expected%s",
                         m[i].device, chain, want, torn ? ", torn" : "");
            }

            want = 0;
        }

        if (m[i].holder == grouped_holder && m[i].device != STATE + 1
            && m[i].device != STATES + 1)
        {
            is_wrong(r, "grouped has %u of chain %u%s", m[i].device, chain,
                     torn ? ", torn" : "");
        }
    }

    if (want && !torn) {
        is_wrong(r, "stable is not among the %u of chain %u", found, chain);
    }

    r->lookups++;
    r->found += found;
}


static void
look_at_worker(reader_t *r)
{
    uint32_t           w, flags, generation, i;
    kvr_load_row_t     row;
    kvr_worker_conf_t  conf;

    i = (uint32_t) random_below(&r->seed, NAMES);

    if (kvr_router_find_worker(&r->router, names[i], 1, &w) != KVR_OK) {
        return;
    }

    if (kvr_router_read_worker(&r->router, w, &conf, &flags, &generation)
        == KVR_OK)
    {
        if (conf.ranks != 2) {
            is_wrong(r, "%s has %u ranks", names[i], conf.ranks);
        }

        kvr_load_read(&r->router.load, w, 0, &row);
    }
}


static void
is_wrong(reader_t *r, const char *format, ...)
{
    va_list  args;

    if (r->wrong++ == 0) {
        va_start(args, format);
        vsnprintf(r->what, sizeof(r->what), format, args);
        va_end(args);
    }
}


/* ---- the writer --------------------------------------------------------- */

static void
writer(void)
{
    uint32_t     i, k, from, n;
    const char  *name;
    kvr_stats_t  stats;

    for (i = 0; i < 40; i++) {
        k = (uint32_t) random_below(&seed_, CHAINS);
        from = (uint32_t) random_below(&seed_, CHAIN);
        n = 1 + (uint32_t) random_below(&seed_, kvr_min(CHAIN - from, 90u));
        tier = random_below(&seed_, 4) ? KVR_DEVICE
                                       : (kvr_tier_t) random_below(&seed_, 4);
        part(k, random_below(&seed_, 3) ? from : 0, n,
             random_below(&seed_, 5) < 3);
    }

    name = names[random_below(&seed_, NAMES)];

    switch (random_below(&seed_, 8)) {

    case 0:
        (void) kvr_router_remove_worker(&router, name, 1);
        break;

    case 1:
        put(name);
        break;

    case 2:
        (void) clear(name);
        break;

    case 3:
        (void) kvr_router_drain(&router, name, 1, random_below(&seed_, 2));
        break;

    default:
        (void) kvr_router_tend(&router, now_ms++, 200);
    }

    /* a full zone would forget what is stable */

    do {
        kvr_router_stats(&router, &stats);
    } while (stats.views_dying > DYING
             && kvr_router_tend(&router, now_ms++, 200));
}


static void
stable(void)
{
    uint32_t  i, k;
    uint64_t  q[CHAIN];

    for (i = 0; i < CHAINS; i += 2) {
        (void) chain_make(q, i);

        for (k = 0; k < STABLE; k += 50) {
            (void) store("stable", k ? q[k - 1] : 0, q + k, q + k, 50);
        }
    }
}


/*
 * "grouped" has the same of chain 0, and a class of mamba's kind: it takes
 * STATE + 1 blocks from its cache, or STATES + 1, and nothing of other chains.
 */

static void
grouped(void)
{
    uint64_t  q[CHAIN];

    (void) chain_make(q, 0);
    (void) store("grouped", 0, q, q, STABLE);
    (void) describe("grouped", KVR_GROUP_MAMBA);
    (void) bits("grouped", &q[STATE], 1, 0);
}


static kvr_rc_t
describe(const char *worker, kvr_group_kind_t group_kind)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_CLASS;
    ev.group_kind = group_kind;
    ev.block_size = kind->params.block_size;
    ev.class_window = group_kind == KVR_GROUP_WINDOW ? 10 : 0;

    return write_event(worker, &ev);
}


/* The class gets the blocks but the last ones, so many, which it loses. */

static kvr_rc_t
bits(const char *worker, const uint64_t *handles, uint32_t n, uint32_t gone)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_BITS;
    ev.handles = handles;
    ev.nhandles = n;
    ev.nadded = n - gone;

    return write_event(worker, &ev);
}


/* Some worker stores a part of a chain, with all before it, or removes it. */

static void
part(uint32_t chain, uint32_t from, uint32_t n, bool in)
{
    uint64_t     q[CHAIN];
    const char  *name;

    name = names[(chain + random_below(&seed_, 3)) % NAMES];
    (void) chain_make(q, chain);

    if (grouped_holder != UINT32_MAX && random_below(&seed_, 4) == 0) {
        (void) describe(name, KVR_GROUP_WINDOW);
        (void) bits(name, q + from, n, in ? 0 : n);

        (void) chain_make(q, 0);
        (void) bits("grouped", &q[STATES], 1, in ? 0 : 1);
        return;
    }

    if (!in) {
        (void) take_out(name, q + from, n);
        return;
    }

    if (store(name, from ? q[from - 1] : 0, q + from, q + from, n)
        == KVR_INVALID)
    {
        (void) store(name, 0, q, q, from);
    }
}


/* How many of its first blocks a chain shares with those that have more. */

static uint32_t
shared(uint32_t chain)
{
    return chain == CHAINS ? 0 : 40 + chain % 3 * 100;
}


static uint32_t
chain_make(uint64_t *q, uint32_t chain)
{
    uint32_t  i, n;

    n = shared(chain);

    for (i = 0; i < CHAIN; i++) {
        q[i] = i < n ? 1000 + i : (chain + 1) * 1000000u + i;
    }

    return CHAIN;
}


static uint64_t
random_below(uint64_t *seed, uint64_t n)
{
    uint64_t  z;

    *seed += 0x9e3779b97f4a7c15u;
    z = *seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;

    return ((z ^ z >> 31) >> 32) * n >> 32;
}


static uint64_t
milliseconds(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}
