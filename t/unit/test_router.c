/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A zone as a whole: making and opening it, membership, the event streams'
 * state machine, load, the lease, the dump.
 */


#include "kvr_ingest.h"
#include "kvr_zone.h"

#include "pack.h"
#include "tap.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>


#define ZONE    (16u << 20)
#define BLOCK   4


static uint32_t       shards = 1;
static kvr_router_t   router;
static kvr_ingest_t  *ingest;
static const char    *detail;
static char           why[KVR_WHY_LEN];
static uint32_t       kind;          /* of the index */


static uint64_t
now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}


static void *
memory(size_t size)
{
    void  *p;

    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }

    return p;
}


static kvr_params_t
params(void)
{
    kvr_params_t  p;

    memset(&p, 0, sizeof(p));
    p.block_size = BLOCK;
    p.max_workers = 16;
    p.shards = shards;
    p.index = kind;

    return p;
}


static void *
fresh(kvr_router_t *k)
{
    void          *base;
    uint32_t       i;
    kvr_params_t   p;

    p = params();
    base = memory(ZONE);

    if (kvr_router_format(base, ZONE, &p, why) != KVR_OK
        || kvr_router_attach(k, base, ZONE, &p, why) != KVR_OK
        || kvr_router_join(k) != KVR_OK)
    {
        printf("Bail out! %s\n", why);
        exit(1);
    }

    for (i = 0; i < shards; i++) {
        (void) kvr_router_lease(k, i, 0, now());
    }

    return base;
}


static void
put(kvr_router_t *k, const char *id, const char *address)
{
    kvr_worker_conf_t  conf;

    memset(&conf, 0, sizeof(conf));
    strcpy(conf.id, id);
    strcpy(conf.address, address);
    conf.ranks = 1;
    conf.weight = 1000;

    (void) kvr_router_put_worker(k, &conf, KVR_WORKER_STATIC);
}


/* handles h, h + 1, … with locals of the same numbers, from a parent */

static void
event(kvr_event_t *ev, kvr_event_kind_t kind, uint64_t parent, uint64_t h,
    uint32_t n, uint64_t *buf)
{
    uint32_t  i;

    memset(ev, 0, sizeof(kvr_event_t));

    for (i = 0; i < n; i++) {
        buf[i] = h + i;
    }

    ev->kind = kind;
    ev->has_parent = parent != 0;
    ev->parent = parent;
    ev->handles = buf;
    ev->nhandles = n;

    if (kind == KVR_STORE) {
        ev->locals = buf;
        ev->nlocals = n;
    }
}


static kvr_rc_t
store(kvr_router_t *k, const char *id, uint64_t parent, uint64_t h,
    uint32_t n)
{
    uint32_t     unknown;
    uint64_t     buf[4096];
    kvr_why_t    reason;
    kvr_event_t  ev;

    event(&ev, KVR_STORE, parent, h, n, buf);

    return kvr_router_write(k, id, strlen(id), &ev, now(), &unknown, &reason,
                            &detail);
}


/* device blocks of worker id for the prompt h, h + 1, … */

static uint32_t
held(kvr_router_t *k, const char *id, uint64_t h, uint32_t n)
{
    uint32_t      i, found, worker, holder;
    uint64_t      q[4096];
    kvr_match_t   m[256];

    for (i = 0; i < n; i++) {
        q[i] = h + i;
    }

    found = kvr_router_find(k, q, n, false, m, 256);

    if (kvr_router_find_worker(k, id, strlen(id), &worker) != KVR_OK
        || kvr_router_find_holder(k, worker, 0, &holder) != KVR_OK)
    {
        return 0;
    }

    for (i = 0; i < found; i++) {
        if (m[i].holder == holder) {
            return m[i].device;
        }
    }

    return 0;
}


static void
hex(char *out, uint64_t h, uint32_t n)
{
    uint32_t  i, k;

    for (i = 0; i < n; i++) {
        for (k = 0; k < 8; k++) {
            out += sprintf(out, "%02x", (unsigned) ((h + i) >> (8 * k)) & 255);
        }
    }

    *out = '\0';
}


/* an envelope with one store; n 0: a heartbeat */

static size_t
envelope(uint8_t *out, size_t size, const char *id, uint64_t epoch,
    uint64_t seq, bool complete, uint64_t parent, uint64_t h, uint32_t n)
{
    size_t   len, i;
    char     names[1024], up[64], bytes[4096], text[8192];
    uint8_t  inner[2048];

    if (n == 0) {
        snprintf(text, sizeof(text), "['kvr1', '%s', %llu, %llu, %s, null, "
                 "null]", id, (unsigned long long) epoch,
                 (unsigned long long) seq, complete ? "true" : "false");
        return pack(out, size, text);
    }

    hex(names, h, n);
    snprintf(up, sizeof(up), parent ? "%llu" : "null",
             (unsigned long long) parent);

    snprintf(text, sizeof(text), "[['s', 0, 0, %s, {'$bin': '%s'}, "
             "{'$bin': '%s'}]]", up, names, names);
    len = pack(inner, sizeof(inner), text);

    for (i = 0; i < len; i++) {
        sprintf(bytes + 2 * i, "%02x", inner[i]);
    }

    snprintf(text, sizeof(text), "['kvr1', '%s', %llu, %llu, %s, null, "
             "{'$bin': '%s'}]", id, (unsigned long long) epoch,
             (unsigned long long) seq, complete ? "true" : "false", bytes);

    return pack(out, size, text);
}


static kvr_ingest_verdict_t
take(const char *id, const void *bytes, size_t n, bool live)
{
    kvr_rc_t              rc;
    kvr_ingest_verdict_t  v;

    v = kvr_ingest_open(ingest, id, strlen(id), bytes, n, live, now(),
                        &detail);

    if (v == KVR_INGEST_APPLY) {
        while ((rc = kvr_ingest_step(ingest, 2)) == KVR_OK) { /* void */ }

        if (rc != KVR_DONE) {
            return KVR_INGEST_LOST;
        }
    }

    return v;
}


static kvr_ingest_verdict_t
message(const char *id, uint64_t epoch, uint64_t seq, uint64_t parent,
    uint64_t h, uint32_t n)
{
    size_t   len;
    uint8_t  bytes[8192];

    len = envelope(bytes, sizeof(bytes), id, epoch, seq, true, parent, h, n);

    return take(id, bytes, len, true);
}


static const kvr_worker_t *
worker(kvr_router_t *k, const char *id)
{
    uint32_t  i;

    return kvr_router_find_worker(k, id, strlen(id), &i) == KVR_OK
           ? kvr_router_worker(k, i) : NULL;
}


static kvr_health_state_t
health(kvr_router_t *k, const char *id, const kvr_health_params_t *p)
{
    double    share;
    uint32_t  i;

    return kvr_router_find_worker(k, id, strlen(id), &i) == KVR_OK
           ? kvr_health_state(kvr_router_health(k, i),
                              kvr_router_worker(k, i)->generation, p, now(),
                              &share)
           : KVR_HEALTH_STATES;
}


/* The worker fails so that it is out. */

static bool
fails(kvr_router_t *k, const char *id, const kvr_health_params_t *p)
{
    uint32_t      i;
    kvr_ticket_t  ticket = { 0, 0 };

    return kvr_router_find_worker(k, id, strlen(id), &i) == KVR_OK
           && kvr_health_failed(kvr_router_health(k, i),
                                kvr_router_worker(k, i)->generation, p, now(),
                                KVR_FAILED_CONNECT, &ticket)
           && health(k, id, p) == KVR_HEALTH_FAILED;
}


static void
test_zone(void)
{
    void              *base;
    kvr_params_t       p;
    kvr_router_t       k;
    kvr_shard_zone_t  *z;

    p = params();
    base = memory(ZONE);

    p.block_size = 0;
    ok(kvr_router_format(base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "block_size"), "a block size of 0 is refused: %s", why);

    p = params();
    p.max_workers = 16384;
    ok(kvr_router_format(base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "too few"), "a zone too small is refused: %s", why);

    ok(kvr_router_attach(&k, base, ZONE, NULL, why) == KVR_INVALID,
       "memory that is no zone is not opened: %s", why);

    p = params();
    ok(kvr_router_format(base, ZONE, &p, why) == KVR_OK, "a zone is made");
    ok(kvr_router_attach(&k, base, ZONE, &p, why) == KVR_OK,
       "and opened");
    z = k.shards[0].zone;
    kvr_router_detach(&k);

    p.block_size = 16;
    ok(kvr_router_attach(&k, base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "block_size=4"),
       "other parameters are refused: %s", why);

    p = params();
    p.frequency_ms = 60000;
    ok(kvr_router_attach(&k, base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "made with frequency=0ms, not 60000ms"),
       "frequencies, too: %s", why);

    p.frequency_ms = 999;
    ok(kvr_router_format(base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "frequency"), "a window too short is refused: %s", why);

    p.frequency_ms = UINT32_MAX;
    ok(kvr_router_format(base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "frequency"), "one too long is refused: %s", why);

    p.shards = 4;
    ok(kvr_router_attach(&k, base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "shards=1, not 4"),
       "another number of shards is refused: %s", why);

    p.shards = KVR_SHARDS_MAX + 1;
    ok(kvr_router_format(base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "shards"), "too many shards are refused: %s", why);

    p = params();
    p.index = 1 - kind;
    ok(kvr_router_attach(&k, base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "index="), "so is another index: %s", why);

    p.index = KVR_INDEX_KINDS;
    ok(kvr_router_format(base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "index"), "or one that is not known: %s", why);

    z->index.kind = KVR_INDEX_KINDS;
    ok(kvr_router_attach(&k, base, ZONE, NULL, why) == KVR_INVALID,
       "a damaged header is refused: %s", why);

    munmap(base, ZONE);
}


static void
test_frequencies(void)
{
    void          *base;
    uint32_t       n, found, out[8];
    uint64_t       q[4] = { 100, 101, 102, 103 };
    kvr_match_t    m[256];
    kvr_stats_t    s;
    kvr_params_t   p;
    kvr_router_t   k;

    p = params();
    p.frequency_ms = 60000;
    base = memory(ZONE);

    ok(kvr_router_format(base, ZONE, &p, why) == KVR_OK
       && kvr_router_attach(&k, base, ZONE, &p, why) == KVR_OK
       && kvr_router_join(&k) == KVR_OK, "a zone with frequencies is made");

    kvr_router_stats(&k, &s);
    is_u64(s.frequency_max, ZONE / 8 / sizeof(kvr_frequency_set_t)
           * KVR_FREQUENCY_WAYS, "an eighth of it is their table's");
    ok(s.arena_bytes > ZONE / 4, "the arena has less, but has some");

    put(&k, "a", "127.0.0.1:1");
    put(&k, "b", "127.0.0.1:2");
    (void) store(&k, "a", 0, 100, 2);
    (void) store(&k, "b", 0, 100, 3);

    found = kvr_router_find(&k, q, 4, false, m, 256);
    n = kvr_router_touch(&k, q, m, found, 1000000, out);
    ok(found == 2 && n == 3 && out[0] == 0 && out[2] == 0,
       "a lookup is counted as deep as its deepest match");

    n = kvr_router_touch(&k, q, m, found, 1000000, out);
    ok(n == 3 && out[0] == 1 && out[2] == 1, "and is found by the next");

    found = kvr_router_find(&k, q, 1, false, m, 256);
    n = kvr_router_touch(&k, q, m, found, 1060000, out);
    ok(n == 1 && out[0] == 2, "for the window");
    n = kvr_router_touch(&k, q, m, found, 1070001, out);
    ok(n == 1 && out[0] == 1, "and not much longer");
    is_u64(kvr_router_touch(&k, q, m, 0, 1000000, out), 0,
           "without a match nothing is counted");

    kvr_router_detach(&k);

    p.frequency_ms = 30000;
    ok(kvr_router_attach(&k, base, ZONE, &p, why) == KVR_INVALID
       && strstr(why, "made with frequency=60000ms, not 30000ms"),
       "another window is refused: %s", why);

    ((kvr_zone_t *) base)->frequency.nsets *= 16;
    ok(kvr_router_attach(&k, base, ZONE, NULL, why) == KVR_INVALID,
       "a table beyond the zone is refused: %s", why);

    munmap(base, ZONE);

    is_u64(kvr_router_touch(&router, q, m, found, 1000000, out), 0,
           "a zone without frequencies counts none");
}


static void
test_members(void)
{
    char                 id[32];
    uint32_t             i, flags, generation;
    kvr_stats_t          stats;
    kvr_worker_conf_t    conf, list[2];
    kvr_health_params_t  p;

    put(&router, "a", "127.0.0.1:1");
    put(&router, "b", "127.0.0.1:2");

    ok(worker(&router, "a") && worker(&router, "b"), "workers are found");

    conf = worker(&router, "a")->conf;
    strcpy(conf.address, "127.0.0.1:9");
    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK,
       "the API changes a static worker");

    strcpy(conf.address, "127.0.0.1:1");
    (void) kvr_router_put_worker(&router, &conf, KVR_WORKER_STATIC);
    ok(strcmp(worker(&router, "a")->conf.address, "127.0.0.1:9") == 0,
       "and the configuration does not change it back");

    ok(store(&router, "b", 0, 100, 4) == KVR_OK, "a worker's blocks");
    is_u64(held(&router, "b", 100, 4), 4, "are found");

    ok(kvr_router_drain(&router, "b", 1, true) == KVR_OK
       && worker(&router, "b")->flags & KVR_WORKER_DRAINING,
       "a worker is drained");

    p = (kvr_health_params_t) { 1, 10000, 0, 0 };
    ok(fails(&router, "b", &p), "a worker fails");

    conf = worker(&router, "b")->conf;
    conf.max_active = 7;
    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK
       && health(&router, "b", &p) == KVR_HEALTH_FAILED,
       "it has failed although it is put again");

    ok(kvr_router_drain(&router, "b", 1, false) == KVR_OK
       && health(&router, "b", &p) == KVR_HEALTH_OK,
       "when it drains no more it begins anew");

    strcpy(conf.address, "127.0.0.1:7");
    ok(fails(&router, "b", &p)
       && kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK
       && health(&router, "b", &p) == KVR_HEALTH_OK,
       "and so it does at another address");

    ok(kvr_router_remove_worker(&router, "b", 1) == KVR_OK,
       "a worker is removed");
    is_u64(held(&router, "b", 100, 4), 0, "with all it held");
    ok(kvr_router_remove_worker(&router, "b", 1) == KVR_DECLINED,
       "and is not there to be removed again");
    ok(store(&router, "b", 0, 100, 4) == KVR_DECLINED,
       "nor to be written to");

    conf = worker(&router, "b")->conf;
    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_STATIC)
       == KVR_DECLINED, "the configuration does not bring it back");
    (void) fails(&router, "b", &p);
    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK,
       "the API does");
    is_u64(health(&router, "b", &p), KVR_HEALTH_OK,
           "and what failed before is forgotten");

    while (kvr_router_tend(&router, now(), 1000)) { /* void */ }

    kvr_router_stats(&router, &stats);
    is_u64(stats.views_dying, 0, "its old view is reclaimed");
    is_u64(stats.handles, 0, "down to the last handle");
    is_u64(stats.blocks, 0, "and the last block");

    memset(list, 0, sizeof(list));
    strcpy(list[0].id, "s1");
    strcpy(list[0].address, "127.0.0.1:5");
    list[0].ranks = 2;
    list[0].weight = 1000;
    list[1] = list[0];
    strcpy(list[1].id, "s2");

    (void) kvr_router_set_static(&router, list, 2);
    (void) kvr_router_set_static(&router, list, 1);
    ok(worker(&router, "s2")->conf.address[0] == '\0'
       && strcmp(worker(&router, "s1")->conf.address, "127.0.0.1:5") == 0,
       "a worker that left the configuration loses its address");

    for (i = 0; i < 100; i++) {
        snprintf(id, sizeof(id), "many%u", i);
        memset(&conf, 0, sizeof(conf));
        strcpy(conf.id, id);
        conf.ranks = 1;

        if (kvr_router_put_worker(&router, &conf, KVR_WORKER_API) != KVR_OK) {
            break;
        }
    }

    ok(i == 12, "the table of workers has a bound: %u more", i);
    ok(kvr_router_remove_worker(&router, "many3", 5) == KVR_OK
       && kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK,
       "and a deleted worker's place is used again");
    ok(kvr_router_read_worker(&router, 0, &conf, &flags, &generation)
       == KVR_OK
       && strcmp(conf.id, "a") == 0, "a worker is read without the lock");
}


static void
test_stream(void)
{
    size_t               len;
    uint64_t             rollbacks;
    uint8_t              bytes[8192];
    kvr_cursor_t         at;
    kvr_worker_conf_t    conf;
    const kvr_worker_t  *w;

    ok(message("e", 1000, 1, 0, 1, 4) == KVR_INGEST_APPLY,
       "the first message of an epoch is applied");
    ok(message("e", 1000, 2, 4, 5, 4) == KVR_INGEST_APPLY, "and the next");
    is_u64(held(&router, "e", 1, 8), 8, "their blocks are found");

    w = worker(&router, "e");
    is_u64(w->stream.confidence, KVR_EXACT, "the view is EXACT");

    ok(message("e", 1000, 2, 4, 5, 4) == KVR_INGEST_DROP,
       "a message that was applied is a duplicate");
    is_u64(w->counters.duplicates, 1, "and counted");

    ok(message("e", 1000, 4, 8, 9, 2) == KVR_INGEST_GAP, "a gap is seen");
    is_u64(held(&router, "e", 1, 10), 8, "and nothing applied behind it");

    (void) kvr_ingest_repair_begin(ingest, "e", 1);
    is_u64(w->stream.confidence, KVR_SYNCING, "a repair makes it SYNCING");
    ok(message("e", 1000, 3, 8, 9, 1) == KVR_INGEST_APPLY
       && message("e", 1000, 4, 9, 10, 1) == KVR_INGEST_APPLY,
       "the log fills the gap");
    (void) kvr_ingest_repair_end(ingest, "e", 1);
    is_u64(w->stream.confidence, KVR_EXACT, "and the view is EXACT again");
    is_u64(held(&router, "e", 1, 10), 10, "with all its blocks");

    ok(message("e", 999, 50, 0, 1, 1) == KVR_INGEST_DROP,
       "a lower epoch is ignored");

    ok(message("e", KVR_EPOCH_MAX + 1, 1, 0, 1, 1) == KVR_INGEST_DROP
       && message("e", INT64_MAX, 1, 0, 1, 1) == KVR_INGEST_DROP
       && detail != NULL, "an epoch that is no time is refused, and said so");
    is_u64(w->counters.why[KVR_WHY_SYNTAX], 2, "it is counted");
    ok(kvr_ingest_cursor(ingest, "e", 1, &at) == KVR_OK && at.epoch == 1000
       && w->stream.confidence == KVR_EXACT, "and silences nobody");


    len = envelope(bytes, sizeof(bytes), "e", 1000, 4, true, 0, 0, 0);
    ok(take("e", bytes, len, true) == KVR_INGEST_DROP,
       "a heartbeat with the last seq says nothing new");
    len = envelope(bytes, sizeof(bytes), "e", 1000, 5, true, 0, 0, 0);
    ok(take("e", bytes, len, true) == KVR_INGEST_GAP,
       "one with a higher seq is a gap");

    is_u64(kvr_fleet_confidence(w, now() + 6000, 5000), KVR_STALE,
           "a publisher of heartbeats that is silent is STALE");

    (void) kvr_ingest_repair_failed(ingest, "e", 1, 1000, 7);
    is_u64(w->stream.confidence, KVR_DEGRADED,
           "a gap that the log can't fill degrades the view");
    is_u64(held(&router, "e", 1, 10), 10, "but does not clear it");
    (void) kvr_ingest_cursor(ingest, "e", 1, &at);
    ok(at.epoch == 1000 && at.seq == 7, "and the stream goes on behind it");
    (void) kvr_ingest_repair_failed(ingest, "e", 1, 1000, 3);
    (void) kvr_ingest_cursor(ingest, "e", 1, &at);
    is_u64(at.seq, 7, "a cursor never goes back");

    ok(message("e", 2000, 1, 0, 50, 4) == KVR_INGEST_APPLY,
       "a higher epoch starts over");
    is_u64(held(&router, "e", 1, 10), 0, "without the old blocks");
    is_u64(held(&router, "e", 50, 4), 4, "with its own");
    is_u64(w->stream.confidence, KVR_EXACT, "and EXACT");

    ok(message("e", 2000, 2, 777, 60, 1) == KVR_INGEST_APPLY
       && held(&router, "e", 60, 1) == 0,
       "an unknown parent is never taken for the root");
    is_u64(w->counters.why[KVR_WHY_PARENT], 1, "it is counted");
    is_u64(w->stream.confidence, KVR_DEGRADED, "and degrades the view");
    is_u64(w->stream.seq, 2, "but the stream goes on");

    ok(take("e", "\xff\xff\xff", 3, true) == KVR_INGEST_DROP && detail,
       "what can't be read is refused: %s", detail ? detail : "");
    len = envelope(bytes, sizeof(bytes), "f", 1, 1, true, 0, 1, 1);
    ok(take("e", bytes, len, true) == KVR_INGEST_DROP && detail,
       "so is another worker's envelope: %s", detail ? detail : "");
    ok(take("no/worker", bytes, len, true) == KVR_INGEST_DROP && detail,
       "and a channel that names no worker: %s", detail ? detail : "");
    is_u64(held(&router, "e", 50, 4), 4, "and nothing is harmed");
    ok(take("ghost", "\xff", 1, true) == KVR_INGEST_DROP
       && worker(&router, "ghost") == NULL,
       "nor is a worker made of what can't be read");

    ok(store(&router, "e", 0, 1, 1) == KVR_LOST,
       "the API can't write to a worker that has a stream");

    conf = worker(&router, "e")->conf;
    ok(kvr_router_remove_worker(&router, "e", 1) == KVR_OK
       && message("e", 2000, 3, 53, 54, 1) == KVR_INGEST_DROP,
       "a removed worker's messages are dropped");
    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK
       && message("e", 2000, 4, 54, 55, 1) == KVR_INGEST_GAP,
       "when it is back its stream is read from the beginning");
    ok(message("e", 2000, 1, 0, 50, 4) == KVR_INGEST_APPLY
       && message("e", 2000, 2, 53, 54, 1) == KVR_INGEST_APPLY
       && held(&router, "e", 50, 5) == 5, "with all it holds");

    rollbacks = router.shards[0].zone->rollbacks;
    ok(message("g", 5, 3, 0, 1, 1) == KVR_INGEST_GAP,
       "a stream that we meet in its middle is a gap");
    (void) kvr_ingest_repair_failed(ingest, "g", 1, 5, 2);
    ok(message("g", 5, 3, 0, 1, 1) == KVR_INGEST_APPLY
       && held(&router, "g", 1, 1) == 1, "and goes on from there");
    is_u64(worker(&router, "g")->stream.confidence, KVR_DEGRADED,
           "DEGRADED, for its beginning is missing");
    is_u64(router.shards[0].zone->rollbacks, rollbacks,
           "nothing was rolled back");
}


static kvr_ingest_verdict_t
json(const char *id, const char *text)
{
    return take(id, text, strlen(text), true);
}


static void
test_forms(void)
{
    size_t         len;
    uint32_t       i;
    uint8_t        bytes[1024];
    uint32_t       tokens[BLOCK * 2];
    uint64_t       locals[2];
    kvr_match_t    m[256];
    kvr_hasher_t   h;

    ok(json("r", "{\"worker_id\":\"r\",\"event\":{\"event_id\":1,\"data\":"
            "{\"stored\":{\"parent_hash\":null,\"blocks\":[{\"block_hash\":"
            "18446744073709551615,\"tokens_hash\":200}]}},\"dp_rank\":0}}")
       == KVR_INGEST_APPLY && held(&router, "r", 200, 1) == 1,
       "a RouterEvent is applied");
    is_u64(worker(&router, "r")->stream.confidence, KVR_UNVERIFIED,
           "the view is UNVERIFIED");

    (void) json("r", "{\"worker_id\":\"r\",\"event\":{\"event_id\":1,\"data\":"
                "\"cleared\"}}");
    is_u64(held(&router, "r", 200, 1), 1, "a duplicate id is ignored");

    (void) json("r", "{\"worker_id\":\"r\",\"event\":{\"event_id\":5,\"data\":"
                "{\"removed\":{\"block_hashes\":[18446744073709551615]}}}}");
    is_u64(held(&router, "r", 200, 1), 0, "hashes above 2^53 are exact");
    is_u64(worker(&router, "r")->stream.confidence, KVR_DEGRADED,
           "a gap in the ids degrades the view");

    (void) json("r", "{\"worker_id\":\"r\",\"event\":{\"event_id\":1,\"data\":"
                "{\"stored\":{\"parent_hash\":null,\"blocks\":[{\"block_hash\":"
                "7,\"tokens_hash\":300}]}}}}");
    is_u64(held(&router, "r", 300, 1), 1, "an id that falls starts over");

    len = pack(bytes, sizeof(bytes), "[1.5, [['BlockStored', [11, 12], null, "
               "[0, 1, 2, 3, 4, 5, 6, 7], 4]]]");
    ok(take("v", bytes, len, true) == KVR_INGEST_APPLY,
       "an engine's bare batch is applied");

    for (i = 0; i < BLOCK * 2; i++) {
        tokens[i] = i;
    }

    h.ready = false;
    kvr_hasher_init(&h, KVR_HASH_SEED);
    (void) kvr_hash_blocks(&h, tokens, BLOCK * 2, BLOCK, locals);

    is_u64(locals[0], UINT64_C(9143094415614847814),
           "tokens are hashed as Dynamo hashes them");
    ok(kvr_router_find(&router, locals, 2, false, m, 256) == 1 && m[0].device == 2,
       "and found by the hash of a prompt");

    len = pack(bytes, sizeof(bytes), "[1.5, [['BlockStored', [21], null, "
               "[0, 1, 2, 3, 4, 5], 6]]]");
    (void) take("v", bytes, len, true);
    is_u64(worker(&router, "v")->counters.why[KVR_WHY_BLOCK_SIZE], 1,
           "a block size that is no multiple is refused and counted");

    len = pack(bytes, sizeof(bytes), "[1.5, [['BlockStored', [22], null, "
               "[8, 9, 2, 3, 4, 5, 6, 7], 8], ['BlockRemoved', [22]]]]");
    (void) take("v", bytes, len, true);
    ok(worker(&router, "v")->counters.why[KVR_WHY_BLOCK_SIZE] == 1
       && worker(&router, "v")->counters.blocks_unknown == 0,
       "one that is, is split, and removed as a whole");

    len = pack(bytes, sizeof(bytes), "[1.5, [['BlockStored', [31], null, "
               "[0, 1, 2, 3], 4, null, 'GPU', 'adapter-a'],"
               "['BlockStored', [32], 31, [4, 5, 6, 7], 4]]]");
    (void) take("v", bytes, len, true);

    kvr_hasher_init(&h, kvr_hash_seed("adapter-a", 9, NULL, 0));
    (void) kvr_hash_blocks(&h, tokens, BLOCK * 2, BLOCK, locals);
    ok(kvr_router_find(&router, locals, 2, false, m, 256) == 1 && m[0].device == 2,
       "a child inherits the hash seed of its chain");

    len = pack(bytes, sizeof(bytes), "[1.5, [['BlockStored', [], null, "
               "[], 0, null, 'CPU'], ['BlockRemoved', [12]],"
               "['BlockStored', [11], null, [], 0, null, 'CPU'],"
               "['BlockRemoved', [11], 'GPU']]]");
    (void) take("v", bytes, len, true);

    kvr_hasher_init(&h, KVR_HASH_SEED);
    (void) kvr_hash_blocks(&h, tokens, BLOCK * 2, BLOCK, locals);
    ok(kvr_router_find(&router, locals, 2, false, m, 256) == 1 && m[0].device == 0
       && m[0].host == 1 && m[0].disk == 1,
       "a block that was offloaded is in the host tier only");
}


static void
test_descriptors(void)
{
    int            status;
    pid_t          pid;
    kvr_owner_t    parent, gone;
    struct rlimit  none = { 0, 0 };

    parent = kvr_owner_self();

    pid = fork();

    if (pid == 0) {
        _exit(0);
    }

    gone = (kvr_owner_t) pid << 40 | 1;
    (void) waitpid(pid, &status, 0);

    pid = fork();

    if (pid == 0) {
        /* no file can be opened, /proc's neither */
        (void) setrlimit(RLIMIT_NOFILE, &none);
        _exit(kvr_owner_alive(parent) && !kvr_owner_alive(gone) ? 0 : 1);
    }

    (void) waitpid(pid, &status, 0);
    is_u64(status, 0, "without descriptors a live process is not taken for "
           "dead, and a dead one not for alive");
}


static void
test_crash(void)
{
    int           status;
    pid_t         pid;
    uint64_t      breaks;
    kvr_shard_t  *shard;

    shard = &router.shards[0];
    breaks = shard->zone->lock_breaks;

    pid = fork();

    if (pid == 0) {
        shard->self = kvr_owner_self();
        (void) kvr_shard_lock(shard, 100);
        kvr_set64(&shard->mem, &shard->zone->stores_full, 4711);
        raise(SIGKILL);
    }

    (void) waitpid(pid, &status, 0);

    ok(shard->zone->stores_full == 4711, "a writer dies in a transaction");
    (void) kvr_router_tend(&router, now(), 100);
    ok(shard->zone->stores_full != 4711 && shard->zone->lock.owner == 0,
       "its work is rolled back by who comes by");
    is_u64(shard->zone->lock_breaks, breaks + 1, "and its lock taken");
}


static kvr_rc_t
lease(uint32_t wait_ms)
{
    return kvr_router_lease(&router, 0, wait_ms, now());
}


static void
test_lease(void)
{
    int           status;
    pid_t         pid;
    uint64_t      token;
    kvr_shard_t  *shard;

    shard = &router.shards[0];
    token = shard->token;
    is_u64(lease(0), KVR_OK, "a lease is renewed");
    is_u64(shard->token, token, "with the same token");

    pid = fork();

    if (pid == 0) {
        shard->self = kvr_owner_self();
        shard->token = 0;
        _exit(lease(0) == KVR_DECLINED
              && kvr_router_lease(&router, 0, 0, now() + KVR_LEASE_MS + 100)
                 == KVR_OK ? 0 : 1);
    }

    (void) waitpid(pid, &status, 0);
    is_u64(status, 0, "another process takes it only when it is not renewed");

    ok(message("e", 2000, 3, 53, 54, 1) == KVR_INGEST_LOST,
       "who lost the lease can't write");
    is_u64(lease(60000), KVR_BUSY, "who can wait finds its holder dead");
    is_u64(shard->zone->lease.owner, 0, "and makes it free");
    is_u64(lease(60000), KVR_BUSY, "but waits");
    is_u64(lease(0), KVR_OK, "who has waited takes it");
    ok(shard->token > token, "the token grows");
    ok(message("e", 2000, 3, 53, 54, 1) == KVR_INGEST_APPLY,
       "and the stream goes on at its cursor");

    kvr_router_lease_release(&router);
    is_u64(shard->zone->lease.owner, 0, "a lease is given back");
    is_u64(lease(60000), KVR_BUSY, "whose time begins");
    (void) lease(0);
}


static void
test_load(void)
{
    int                status;
    pid_t              pid;
    uint32_t           slot;
    kvr_router_t       other;
    kvr_load_row_t     row;
    kvr_reservation_t  r, s;

    memset(&r, 0, sizeof(r));
    r.holder = 3;
    r.prefilling = 1;
    r.prefill_tokens = 100;
    r.decode_blocks = 7;
    s = r;

    kvr_load_reserve(&router.load, &r);
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.active == 1 && row.prefills == 1 && row.prefill_tokens == 100
       && row.decode_blocks == 7, "a reservation counts");

    kvr_load_prefilled(&router.load, &r);
    kvr_load_prefilled(&router.load, &r);
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.active == 1 && row.prefills == 0 && row.prefill_tokens == 0,
       "the first byte ends its prefill, once");

    kvr_load_prefill_again(&router.load, &r);
    kvr_load_prefill_again(&router.load, &r);
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.active == 1 && row.prefills == 1 && row.prefill_tokens == 100,
       "a prefill that failed elsewhere begins again, once");

    kvr_load_prefilled(&router.load, &r);
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.prefills == 0 && row.prefill_tokens == 0, "and ends again");

    kvr_load_release(&router.load, &r);
    kvr_load_release(&router.load, &r);
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.active == 0 && row.decode_blocks == 0, "a release is once");

    kvr_load_prefill_again(&router.load, &r);
    kvr_load_read(&router.load, 3, 0, &row);
    is_u64(row.prefills, 0, "what is released prefills no more");

    pid = fork();

    if (pid == 0) {
        other = router;
        (void) kvr_router_join(&other);
        kvr_load_reserve(&other.load, &s);
        raise(SIGKILL);
    }

    (void) waitpid(pid, &status, 0);
    kvr_load_read(&router.load, 3, 0, &row);
    is_u64(row.active, 1, "a process dies with a request");
    (void) kvr_router_tend(&router, now() + 2 * KVR_TEND_LOADS_MS, 100);
    kvr_load_read(&router.load, 3, 0, &row);
    is_u64(row.active, 0, "and leaks nothing");

    s.holder = r.holder = 3;
    s.prefilling = r.prefilling = 0;
    s.generation = 1;
    kvr_load_reserve(&router.load, &r);
    kvr_load_reserve(&router.load, &s);
    kvr_load_release(&router.load, &r);
    kvr_load_read(&router.load, 3, 1, &row);
    ok(row.active == 1 && row.decode_blocks == 7,
       "a late release of a worker that is gone does not hit its successor");

    kvr_load_grow(&router.load, &s, 2);
    kvr_load_read(&router.load, 3, 1, &row);
    is_u64(row.decode_blocks, 9, "the answer's blocks count");

    kvr_load_share(&s, 4);
    kvr_load_release(&router.load, &s);
    kvr_load_read(&router.load, 3, 1, &row);
    is_u64(row.decode_blocks, 3, "blocks that others work on stay");

    r.holder = s.holder = 3;
    s.decode_blocks = 1;
    kvr_load_reserve(&router.load, &s);
    kvr_load_reserve(&router.load, &r);
    kvr_load_prefilled(&router.load, &r);
    kvr_load_release(&router.load, &r);
    kvr_load_read(&router.load, 3, 1, &row);
    is_u64(row.active, 1, "nor does a late reservation of one that is gone");

    kvr_load_release(&router.load, &s);
    is_u64(router.load.zone->below_zero, 0, "no counter is below zero");

    slot = router.load.slot;
    (void) kvr_router_join(&router);
    is_u64(router.load.slot, slot, "a process that joins again keeps its slot");
}


/* ---- dump --------------------------------------------------------------- */

static char    *dumped;
static size_t   dumped_len;


static kvr_rc_t
line(void *data, const char *text, size_t len)
{
    dumped = realloc(dumped, dumped_len + len + 2);
    memcpy(dumped + dumped_len, text, len);
    dumped_len += len;
    dumped[dumped_len++] = '\n';
    dumped[dumped_len] = '\0';

    return KVR_OK;
}


static void
replay(kvr_router_t *k)
{
    char            *p, *end;
    uint32_t         unknown;
    kvr_why_t        reason;
    const char      *text;
    kvr_event_t      ev;
    kvr_message_t    msg;
    kvr_decoder_t   *d;

    d = kvr_decoder_create();

    for (p = dumped; p && *p; p = end + 1) {
        end = strchr(p, '\n');

        if (kvr_message_open(d, p, end - p, &msg, &reason, &text) != KVR_OK) {
            continue;
        }

        while (kvr_decoder_next(d, &ev) == KVR_OK) {
            (void) kvr_router_write(k, ev.worker, ev.worker_len, &ev, now(),
                                    &unknown, &reason, &text);
        }
    }

    kvr_decoder_destroy(d);
}


static uint64_t
next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}


static void
test_dump(void)
{
    char          id[2] = "a";
    uint32_t      i, n, t, bad, unknown, round;
    uint64_t      seed, h, parent, buf[64], q[8];
    kvr_why_t     reason;
    kvr_event_t   ev;
    kvr_match_t   one[256], two[256];
    kvr_router_t  from, to;

    fresh(&from);
    fresh(&to);

    for (i = 0; i < 4; i++) {
        id[0] = (char) ('a' + i);
        put(&from, id, "127.0.0.1:1");
        put(&to, id, "127.0.0.1:1");
    }

    /*
     * a small forest: handle = 1 + path in base 4, so that parents are known;
     * the last digit is the local hash
     */

    seed = 42;

    for (round = 0; round < 20000; round++) {

        id[0] = (char) ('a' + next_random(&seed) % 4);
        n = 1 + (uint32_t) (next_random(&seed) % 5);
        h = 1;

        for (i = 0; i < n; i++) {
            h = h * 4 + next_random(&seed) % 3;
        }

        parent = h / 4 == 1 ? 0 : h / 4;
        t = next_random(&seed) % 4 == 0 ? next_random(&seed) % KVR_TIERS : 0;

        event(&ev, next_random(&seed) % 5 < 2 ? KVR_REMOVE : KVR_STORE,
              parent, h, 1, buf);
        ev.tier = t;

        if (ev.kind == KVR_STORE) {
            buf[1] = h % 4;
            ev.locals = buf + 1;

            if (next_random(&seed) % 16 == 0) {
                buf[0] += 1u << 20;             /* a second handle */
            }
        }

        (void) kvr_router_write(&from, id, 1, &ev, now(), &unknown, &reason,
                                &detail);
    }

    ok(kvr_router_dump(&from, line, NULL) == KVR_OK && dumped_len,
       "an index with holes, tiers and aliases is dumped: %zu bytes",
       dumped_len);

    replay(&to);

    bad = 0;

    for (round = 0; round < 3 * 3 * 3 * 3 * 3; round++) {

        for (i = 0, n = round; i < 5; i++, n /= 3) {
            q[i] = n % 3;
        }

        n = kvr_router_find(&from, q, 5, false, one, 256);

        if (n != kvr_router_find(&to, q, 5, false, two, 256)
            || memcmp(one, two, n * sizeof(kvr_match_t)) != 0)
        {
            bad++;
        }
    }

    is_u64(bad, 0, "and replayed into an empty one answers the same");
    ok(kvr_index_check(&from.shards[0].index) == NULL
       && kvr_index_check(&to.shards[0].index) == NULL, "both are sound");

    free(dumped);
    dumped = NULL;
    dumped_len = 0;
    kvr_router_detach(&from);
    kvr_router_detach(&to);
}


static void
test_all(void)
{
    const char  *wrong;

    test_zone();

    fresh(&router);
    test_frequencies();
    test_members();

    kvr_router_detach(&router);
    fresh(&router);
    ingest = kvr_ingest_create(&router);
    test_stream();
    test_forms();
    test_descriptors();
    test_crash();
    test_lease();
    test_load();

    while (kvr_router_tend(&router, now(), 1000)) { /* void */ }

    wrong = kvr_index_check(&router.shards[0].index);
    ok(wrong == NULL, "the index is sound: %s", wrong ? wrong : "");

    test_dump();

    kvr_ingest_destroy(ingest);
    kvr_router_detach(&router);
}


int
main(void)
{
    for (kind = 0; kind < KVR_INDEX_KINDS; kind++) {
        note("%s", kvr_index_name(kind));
        test_all();
    }

    /* the streams once more, over several shards */

    kind = KVR_INDEX_RADIX;
    shards = 3;
    fresh(&router);
    ingest = kvr_ingest_create(&router);
    test_stream();
    test_forms();

    kvr_ingest_destroy(ingest);
    kvr_router_detach(&router);

    return done();
}
