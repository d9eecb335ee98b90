/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Zones of several shards: they answer what a zone of one shard answers, a
 * dead or stopped writer is its shard's affair alone, each shard has a lease.
 *
 *     test_shards [rounds [seed [kills]]]
 */


#include "follow/kvr_ingest.h"
#include "kinds.h"
#include "zone/kvr_zone.h"

#include "../check/kvr_check.h"
#include "tap.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>


#define ZONE         (32u << 20)
#define ZONES        4
#define WORKERS      20
#define RANKS        2
#define DEPTH        6                  /* of the forest */
#define CHUNK        3                  /* blocks of an event, at most */
#define READERS      2
#define KEPT         8000               /* blocks, in the shard that is written
                                           all the time */


/* Of a dump, one block of one event. */
typedef struct {
    char        worker[KVR_WORKER_ID_MAX + 1];
    uint32_t    rank;
    uint32_t    kind;
    uint32_t    tier;
    uint64_t    handle;
    uint64_t    parent;
    uint64_t    local;
} record_t;


/* What a lookup answers of one holder. */
typedef struct {
    uint32_t    worker;                 /* of the test's */
    uint32_t    rank;
    uint32_t    depths[3];
} answer_t;


static const uint32_t  counts[ZONES] = { 1, 3, 4, KVR_SHARDS_MAX };

static uint32_t        rounds = 6000;
static uint32_t        kills = 10;
static uint64_t        state = 1;
static kvr_router_t    zones[ZONES];
static record_t       *records[ZONES];
static size_t          nrecords[ZONES];


static uint64_t
below(uint64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
}


static uint64_t
now(void)
{
    return kvr_now_us() / 1000;
}


static void
fresh(kvr_router_t *k, uint32_t shards)
{
    kvr_params_t  p;

    memset(&p, 0, sizeof(p));
    p.block_size = 4;
    p.max_workers = 64;
    p.shards = shards;

    (void) router_open(k, &p, ZONE * (1 + shards / 16));
}


static char *
name(uint32_t worker)
{
    static char  id[32];

    snprintf(id, sizeof(id), "engine-%u", worker);

    return id;
}


static kvr_rc_t
put(kvr_router_t *k, uint32_t worker)
{
    return router_put(k, name(worker), "127.0.0.1:1", RANKS, KVR_WORKER_API);
}


static kvr_rc_t
put_event(kvr_router_t *k, uint32_t worker, const kvr_event_t *ev)
{
    uint32_t     unknown;
    kvr_why_t    why;
    const char  *detail;

    return kvr_router_write(k, name(worker), strlen(name(worker)), ev, now(),
                            &unknown, &why, &detail);
}


/* One block below the root. */

static kvr_rc_t
store(kvr_router_t *k, uint32_t worker, uint64_t handle)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.handles = &handle;
    ev.nhandles = 1;
    ev.locals = &handle;
    ev.nlocals = 1;

    return put_event(k, worker, &ev);
}


static int
answer_cmp(const void *one, const void *two)
{
    const answer_t *a = one;
    const answer_t *b = two;

    return a->worker != b->worker ? (a->worker < b->worker ? -1 : 1)
                                  : (int) a->rank - (int) b->rank;
}


/* The matches of a prompt, by what they are instead of their numbers. */

static uint32_t
ask(kvr_router_t *k, const uint64_t *q, uint32_t n, answer_t *out)
{
    uint32_t           i, found, flags, generation;
    kvr_match_t        m[WORKERS * RANKS];
    kvr_worker_conf_t  conf;

    found = kvr_router_find(k, q, n, 0, false, m, WORKERS * RANKS);

    for (i = 0; i < found; i++) {
        (void) kvr_router_read_worker(k, kvr_router_holder_worker(k,
                                      m[i].holder), &conf, &flags,
                                      &generation);

        out[i].worker = (uint32_t) atoi(conf.id + strlen("engine-"));
        out[i].rank = kvr_router_holder_rank(k, m[i].holder);
        out[i].depths[0] = m[i].device;
        out[i].depths[1] = m[i].host;
        out[i].depths[2] = m[i].disk;
    }

    qsort(out, found, sizeof(answer_t), answer_cmp);

    return found;
}


/* Prompts of the forest that two zones answer differently. */

static uint32_t
differences(kvr_router_t *one, kvr_router_t *two)
{
    uint32_t  i, n, p, bad;
    uint64_t  q[DEPTH];
    answer_t  a[WORKERS * RANKS], b[WORKERS * RANKS];

    bad = 0;

    for (p = 0; p < 3 * 3 * 3 * 3 * 3 * 3; p++) {

        for (i = 0, n = p; i < DEPTH; i++, n /= 3) {
            q[i] = n % 3;
        }

        n = ask(one, q, DEPTH, a);

        if (n != ask(two, q, DEPTH, b)
            || memcmp(a, b, n * sizeof(answer_t)) != 0)
        {
            bad++;
        }
    }

    return bad;
}


/*
 * An event of the forest: the handle of a block is 1 and its path in base 4,
 * so that parents are known; the last digit is the local hash.
 */

static void
random_event(kvr_event_t *ev, bool removals)
{
    uint32_t         i, n, depth;
    uint64_t         h;
    static uint64_t  handles[CHUNK], locals[CHUNK];

    memset(ev, 0, sizeof(kvr_event_t));

    h = 1;
    depth = (uint32_t) below(DEPTH);

    for (i = 0; i < depth; i++) {
        h = h * 4 + below(3);
    }

    n = 1 + (uint32_t) below(kvr_min(CHUNK, DEPTH - depth));

    ev->kind = removals && below(5) < 2 ? KVR_REMOVE : KVR_STORE;
    ev->rank = (uint32_t) below(RANKS);
    ev->tier = below(4) ? KVR_DEVICE : (kvr_tier_t) below(KVR_TIERS);
    ev->has_parent = h != 1;
    ev->parent = h;
    ev->handles = handles;
    ev->nhandles = n;

    for (i = 0; i < n; i++) {
        locals[i] = below(3);
        h = h * 4 + locals[i];
        handles[i] = h;
    }

    if (ev->kind == KVR_STORE) {
        ev->locals = locals;
        ev->nlocals = n;

        if (below(16) == 0) {
            handles[n - 1] += 1u << 20;         /* a second handle */
        }

    } else if (below(200) == 0) {
        ev->kind = KVR_CLEAR;
    }
}


/* ---- the same answers --------------------------------------------------- */

static kvr_rc_t
collect(void *data, const char *line, size_t len)
{
    uint32_t        i;
    kvr_why_t       why;
    record_t       *r;
    const char     *text;
    kvr_event_t     ev;
    kvr_message_t   msg;
    kvr_decoder_t  *d;
    const uint32_t  zone = *(uint32_t *) data;

    d = kvr_decoder_create();

    (void) kvr_message_open(d, line, len, &msg, &why, &text);

    while (kvr_decoder_next(d, &ev) == KVR_OK) {

        records[zone] = realloc(records[zone], (nrecords[zone] + ev.nhandles)
                                               * sizeof(record_t));

        for (i = 0; i < ev.nhandles; i++) {
            r = &records[zone][nrecords[zone]++];
            memset(r, 0, sizeof(record_t));
            memcpy(r->worker, ev.worker, ev.worker_len);
            r->rank = ev.rank;
            r->kind = ev.kind;
            r->tier = ev.tier;
            r->handle = ev.handles[i];

            if (ev.kind == KVR_STORE) {
                r->local = ev.locals[i];
                r->parent = i ? ev.handles[i - 1]
                              : ev.has_parent ? ev.parent : 0;
            }
        }
    }

    kvr_decoder_destroy(d);

    return KVR_OK;
}


static int
record_cmp(const void *one, const void *two)
{
    return memcmp(one, two, sizeof(record_t));
}


static kvr_rc_t
replay(void *data, const char *line, size_t len)
{
    uint32_t        unknown;
    kvr_why_t       why;
    const char     *text;
    kvr_event_t     ev;
    kvr_router_t   *to = data;
    kvr_message_t   msg;
    kvr_decoder_t  *d;

    d = kvr_decoder_create();

    (void) kvr_message_open(d, line, len, &msg, &why, &text);

    while (kvr_decoder_next(d, &ev) == KVR_OK) {
        (void) kvr_router_write(to, ev.worker, ev.worker_len, &ev, now(),
                                &unknown, &why, &text);
    }

    kvr_decoder_destroy(d);

    return KVR_OK;
}


static void
test_answers(void)
{
    uint32_t      i, k, z, w, bad, refused;
    kvr_rc_t      rc;
    kvr_stats_t   stats;
    kvr_event_t   ev;
    kvr_router_t  copy;

    for (z = 0; z < ZONES; z++) {
        fresh(&zones[z], counts[z]);

        for (w = 0; w < WORKERS; w++) {
            (void) put(&zones[z], w);
        }
    }

    /* stores only: dumps have no names of their own */

    for (i = 0; i < rounds / 4; i++) {
        w = (uint32_t) below(WORKERS);
        random_event(&ev, false);

        for (z = 0; z < ZONES; z++) {
            (void) put_event(&zones[z], w, &ev);
        }
    }

    for (z = 0; z < ZONES; z++) {
        (void) kvr_router_dump(&zones[z], false, collect, &z);
        qsort(records[z], nrecords[z], sizeof(record_t), record_cmp);

        ok(nrecords[z] && nrecords[z] == nrecords[0]
           && memcmp(records[z], records[0], nrecords[0] * sizeof(record_t))
              == 0,
           "%u shards: the dump is that of one, as a set: %zu blocks",
           counts[z], nrecords[z]);
    }

    refused = 0;

    for (i = 0; i < rounds; i++) {
        w = (uint32_t) below(WORKERS);
        random_event(&ev, true);
        k = (uint32_t) below(1000);

        for (z = 0; z < ZONES; z++) {

            if (k == 0) {
                rc = kvr_router_remove_worker(&zones[z], name(w),
                                              strlen(name(w)));
                rc = rc == KVR_OK ? put(&zones[z], w) : rc;

            } else {
                rc = put_event(&zones[z], w, &ev);
            }

            refused += rc == KVR_INVALID && z == 0;

            if (k < 20) {
                (void) kvr_router_tend(&zones[z], now(), 100);
            }
        }
    }

    kvr_router_stats(&zones[0], &stats);
    note("%u events, %u refused, %llu handles, %llu holes", rounds, refused,
         (unsigned long long) stats.handles, (unsigned long long) stats.holes);

    for (z = 1; z < ZONES; z++) {
        is_u64(differences(&zones[0], &zones[z]), 0,
               "%u shards: all prompts are answered as by one", counts[z]);
    }

    for (z = 0; z < ZONES; z++) {
        fresh(&copy, counts[ZONES - 1 - z]);

        for (w = 0; w < WORKERS; w++) {
            (void) put(&copy, w);
        }

        ok(kvr_router_dump(&zones[z], false, replay, &copy) == KVR_OK
           && differences(&zones[0], &copy) == 0,
           "a dump of %u shards makes the same index in %u", counts[z],
           counts[ZONES - 1 - z]);

        kvr_router_detach(&copy);
    }

    for (z = 0; z < ZONES; z++) {

        while (kvr_router_tend(&zones[z], now(), 1000)) { /* void */ }

        for (bad = 0, i = 0; i < counts[z]; i++) {
            bad += kvr_index_check(&zones[z].shards[i].index) != NULL;
        }

        is_u64(bad, 0, "%u shards: their indexes are sound", counts[z]);
        free(records[z]);
    }
}


/* ---- members ------------------------------------------------------------ */

static void
test_members(void)
{
    char               id[32];
    uint32_t           i, h, w, n, same, version, steps, shard, good;
    uint32_t           in[4] = { 0, 0, 0, 0 };
    kvr_router_t      *k;
    kvr_load_row_t     row;
    kvr_reservation_t  r;

    k = &zones[2];                      /* of 4 shards */
    good = 0;

    for (i = 0; i < 4000; i++) {
        n = (uint32_t) snprintf(id, sizeof(id), "10.0.%u.%u:8000", i / 250,
                                i % 250);
        in[kvr_router_shard(k, id, n)]++;
        good += kvr_router_shard(&zones[0], id, n) == 0;
    }

    ok(in[0] > 850 && in[1] > 850 && in[2] > 850 && in[3] > 850
       && good == 4000, "workers fall to shards evenly: %u %u %u %u",
       in[0], in[1], in[2], in[3]);

    good = 0;
    memset(&r, 0, sizeof(r));

    for (i = 0; i < WORKERS; i++) {
        shard = kvr_router_shard(k, name(i), strlen(name(i)));

        if (kvr_router_find_worker(k, name(i), strlen(name(i)), &w) != KVR_OK
            || w >= kvr_router_workers(k)
            || kvr_router_worker_shard(k, w) != shard
            || strcmp(kvr_router_worker(k, w)->conf.id, name(i)) != 0)
        {
            continue;
        }

        h = KVR_HOLDER_NONE;
        steps = 0;
        n = 0;

        while (kvr_router_next_holder(k, w, &h, &steps)) {
            (void) kvr_router_find_holder(k, w, kvr_router_holder_rank(k, h),
                                          &same);
            kvr_load_read(&k->load, h, 0, &row);

            n += kvr_router_holder_worker(k, h) == w && same == h
                 && h < kvr_router_max_holders(k)
                 && row.active == 0;    /* nobody else's */

            r.holder = h;
            kvr_router_reserve(k, &r, now());
        }

        good += n == RANKS;
    }

    is_u64(good, WORKERS, "each worker and holder has a number of its own");
    is_u64(kvr_router_holders(k), WORKERS * RANKS, "and they are so many");

    version = kvr_router_version(k);
    good = 0;

    for (i = WORKERS; i < WORKERS + 8; i++) {
        (void) put(k, i);
        good += kvr_router_version(k) != version;
        version = kvr_router_version(k);
    }

    is_u64(good, 8, "the version tells of a change in any shard");
}


/* ---- writers that die or stop ------------------------------------------- */

/* A worker of the shard. */

static uint32_t
worker_of(kvr_router_t *k, uint32_t shard)
{
    uint32_t  w;

    for (w = 0; kvr_router_shard(k, name(w), strlen(name(w))) != shard; w++) {
        /* void */
    }

    return w;
}


static void
test_stopped(void)
{
    int            status, fds[2];
    char           c;
    pid_t          pid;
    uint32_t       i, good;
    kvr_rc_t       rc;
    kvr_router_t  *k;

    k = &zones[2];

    if (pipe(fds) != 0) {
        printf("Bail out! pipe\n");
        exit(1);
    }

    pid = fork();

    if (pid == 0) {
        k->shards[2].self = kvr_owner_self();
        (void) kvr_shard_lock(&k->shards[2], 100);
        kvr_set64(&k->shards[2].mem, &k->shards[2].zone->stores_full, 4711);
        (void) !write(fds[1], "x", 1);

        for ( ;; ) {
            pause();
        }
    }

    (void) !read(fds[0], &c, 1);

    good = 0;

    for (i = 0; i < 4; i++) {
        rc = store(k, worker_of(k, i), 1000 + i);
        good += rc == (i == 2 ? KVR_BUSY : KVR_OK);
    }

    is_u64(good, 4, "who keeps a shard's lock keeps that of no other");

    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, &status, 0);

    good = 0;

    for (i = 0; i < 4; i++) {
        good += i == 2 || store(k, worker_of(k, i), 1010 + i) == KVR_OK;
    }

    ok(good == 4 && k->shards[2].zone->stores_full == 4711,
       "when it is dead the others go on, past its half-done work");

    (void) kvr_router_tend(k, now(), 100);

    ok(k->shards[2].zone->stores_full != 4711
       && k->shards[2].zone->lock.owner == 0
       && k->shards[2].zone->rollbacks == 1
       && k->shards[1].zone->rollbacks == 0,
       "which is rolled back by who comes by, in that shard alone");

    is_u64(store(k, worker_of(k, 2), 1012), KVR_OK, "and it is written again");
}


/* A lookup after the other, until killed; what is wrong is counted. */

static void
reader(kvr_router_t *k, uint64_t *wrong)
{
    uint32_t     i, n, found;
    uint64_t     q[DEPTH];
    kvr_match_t  m[WORKERS * RANKS];

    (void) alarm(600);                   /* should nobody kill it */

    for ( ;; ) {

        for (i = 0; i < DEPTH; i++) {
            q[i] = below(3);
        }

        n = 1 + (uint32_t) below(DEPTH);
        found = kvr_router_find(k, q, n, 0, below(2), m, WORKERS * RANKS);

        for (i = 0; i < found; i++) {
            if (m[i].device > m[i].host || m[i].host > m[i].disk
                || m[i].disk > n)
            {
                (void) __atomic_fetch_add(wrong, 1, __ATOMIC_RELAXED);
            }
        }
    }
}


/*
 * One process for each shard but the first writes, and is killed, and so are
 * readers; the first shard is written all the time.
 */

static void
test_killed(void)
{
    int            status;
    pid_t          pid[4 + READERS];
    uint32_t       i, n, round, bad;
    uint64_t       h, q, *wrong;
    answer_t       a[WORKERS * RANKS];
    kvr_stats_t    stats;
    kvr_event_t    ev;
    kvr_router_t   k;

    fresh(&k, 4);

    for (i = 0; i < WORKERS; i++) {
        (void) put(&k, i);
    }

    bad = 0;
    h = 0;
    wrong = shared_memory(sizeof(uint64_t));

    for (round = 0; round < kills; round++) {

        for (i = 1; i < 4 + READERS; i++) {
            (void) below(2);            /* each has its own numbers */
            pid[i] = fork();

            if (pid[i] == 0 && i >= 4) {
                reader(&k, wrong);
            }

            if (pid[i] == 0) {
                k.shards[i].self = kvr_owner_self();
                (void) alarm(600);       /* should nobody kill it */

                for ( ;; ) {
                    random_event(&ev, true);
                    (void) put_event(&k, worker_of(&k, i), &ev);
                }
            }
        }

        for (n = 200 + (uint32_t) below(400); n > 0; n--) {
            bad += store(&k, worker_of(&k, 0), 101 + h++ % KEPT) != KVR_OK;
        }

        for (i = 1; i < 4 + READERS; i++) {
            (void) kill(pid[i], SIGKILL);
        }

        for (i = 1; i < 4 + READERS; i++) {
            (void) waitpid(pid[i], &status, 0);
            bad += !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
        }

        while (kvr_router_tend(&k, now(), 1000)) { /* void */ }

        for (i = 0; i < 4; i++) {
            bad += k.shards[i].zone->lock.owner != 0
                   || kvr_index_check(&k.shards[i].index) != NULL;
        }
    }

    is_u64(bad, 0, "writers of three shards are killed %u times: the fourth "
           "is written on, all are sound", kills);
    is_u64(*wrong, 0, "and readers, who saw nothing wrong");

    n = 0;

    for (q = 101; q <= 100 + kvr_min(h, KEPT); q++) {
        n += ask(&k, &q, 1, a) == 1 && a[0].worker == worker_of(&k, 0);
    }

    is_u64(n, kvr_min(h, KEPT), "and has all that was written");

    kvr_router_stats(&k, &stats);
    note("total writers killed %u", kills * 3);
    note("total readers killed %u", kills * READERS);
    note("total wrong answers %llu", (unsigned long long) *wrong);
    note("%llu rolled back, %llu locks broken",
         (unsigned long long) stats.rollbacks,
         (unsigned long long) stats.lock_breaks);

    kvr_router_detach(&k);
}


/* ---- leases ------------------------------------------------------------- */

static kvr_ingest_verdict_t
message(kvr_ingest_t *in, uint32_t worker)
{
    char         text[256];
    const char  *detail;

    snprintf(text, sizeof(text), "{\"worker_id\":\"%s\",\"event\":{"
             "\"event_id\":1,\"data\":\"cleared\"}}", name(worker));

    return kvr_ingest_open(in, name(worker), strlen(name(worker)), text,
                           strlen(text), true, now(), &detail);
}


static void
test_leases(void)
{
    int            status;
    pid_t          pid;
    uint32_t       i, w, good, owner;
    uint64_t       t, token;
    kvr_router_t   k;
    kvr_ingest_t  *in;

    fresh(&k, 4);
    in = kvr_ingest_create(&k);
    t = now();

    for (i = 0; i < 3; i++) {
        (void) kvr_router_lease(&k, i, 0, t);
    }

    good = 0;

    for (w = 0; w < WORKERS; w++) {
        i = kvr_router_shard(&k, name(w), strlen(name(w)));
        good += message(in, w) == (i < 3 ? KVR_INGEST_APPLY
                                         : KVR_INGEST_LOST);
    }

    is_u64(good, WORKERS, "a process writes what it has the leases for");

    pid = fork();

    if (pid == 0) {
        (void) kvr_router_join(&k);

        good = kvr_router_lease(&k, 3, 0, t) == KVR_OK
               && kvr_router_lease(&k, 0, 0, t) == KVR_DECLINED
               && kvr_router_lease(&k, 0, 0, t + KVR_LEASE_MS + 1) == KVR_OK
               && message(in, worker_of(&k, 0)) == KVR_INGEST_APPLY
               && message(in, worker_of(&k, 3)) == KVR_INGEST_APPLY
               && message(in, worker_of(&k, 1)) == KVR_INGEST_LOST;

        kvr_router_lease_release(&k);
        _exit(good ? 0 : 1);
    }

    (void) waitpid(pid, &status, 0);
    is_u64(status, 0, "another one may have others, and takes over one only");

    ok(message(in, worker_of(&k, 0)) == KVR_INGEST_LOST
       && message(in, worker_of(&k, 1)) == KVR_INGEST_APPLY
       && !kvr_router_leased(&k, 0) && kvr_router_leased(&k, 1),
       "who lost one goes on with the rest");

    kvr_router_lease_holder(&k, 3, &owner, &token);
    ok(owner == 0 && token == 1, "leases are given back");

    t = now() + 5000;
    good = kvr_router_lease(&k, 3, 60000, t) == KVR_BUSY
           && kvr_router_lease(&k, 3, 60000, t + 40000) == KVR_BUSY
           && kvr_router_lease(&k, 3, 60000, t + 60000) == KVR_OK;
    ok(good, "who has some waits for more");

    is_u64(kvr_router_lease(&k, 0, 0, t), KVR_OK, "who has none does not");

    kvr_ingest_destroy(in);
    kvr_router_detach(&k);
}


int
main(int argc, char **argv)
{
    uint32_t  z;

    if (argc > 1) {
        rounds = (uint32_t) atoi(argv[1]);
    }

    if (argc > 2) {
        state = (uint64_t) atoll(argv[2]);
    }

    if (argc > 3) {
        kills = (uint32_t) atoi(argv[3]);
    }

    test_answers();
    test_members();
    test_stopped();
    test_killed();
    test_leases();

    for (z = 0; z < ZONES; z++) {
        kvr_router_detach(&zones[z]);
    }

    return done();
}
