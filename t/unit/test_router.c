/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A zone as a whole: making and opening it, the prompts it counts, the
 * processes that live in it and their load.
 */


#include "router_fixture.h"
#include "zone/kvr_zone.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>


static bool damaged(void *base, kvr_index_zone_t *z);


static kvr_router_t  router;
static char          why[KVR_WHY_LEN];  /* of the last zone */


static void
test_zone(void)
{
    void              *base;
    kvr_params_t       p;
    kvr_router_t       k;
    kvr_shard_zone_t  *z;

    p = params();
    base = shared_memory(ZONE);

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

    z->index.kind = kind;
    ok(damaged(base, &z->index) && kvr_index_valid(&z->index, ZONE),
       "any word of the index's header may be damaged");

    munmap(base, ZONE);
}


/*
 * Each word of the header in turn, but limbo's, which is long: the zone is
 * refused, or attached without harm.  True: more than one in four was refused.
 */

static bool
damaged(void *base, kvr_index_zone_t *z)
{
    size_t        i, n;
    uint32_t      k, refused;
    uint64_t      old, *words;
    kvr_router_t  r;

    static const uint64_t  bits[] = {
        UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 31, UINT64_C(1) << 47
    };

    words = (uint64_t *) z;
    n = (kind == KVR_INDEX_RADIX
         ? (char *) z->u.radix.arena.limbo - (char *) z
         : (char *) z->u.positional.arena.limbo - (char *) z)
        / sizeof(uint64_t);
    refused = 0;

    for (i = 0; i < n; i++) {
        for (k = 0; k < sizeof(bits) / sizeof(bits[0]); k++) {
            old = words[i];
            words[i] ^= bits[k];

            if (kvr_router_attach(&r, base, ZONE, NULL, why) == KVR_OK) {
                kvr_router_detach(&r);

            } else {
                refused++;
            }

            words[i] = old;
        }
    }

    note("%u of %u were refused", refused,
         (uint32_t) (n * sizeof(bits) / sizeof(bits[0])));

    return refused > n;
}


static void
test_frequencies(void)
{
    void          *base;
    uint32_t       n, a, b, found, out[8];
    uint64_t       q[4] = { 100, 101, 102, 103 };
    kvr_match_t    m[256];
    kvr_stats_t    s;
    kvr_params_t   p;
    kvr_router_t   k;

    p = params();
    p.frequency_ms = 60000;
    base = shared_memory(ZONE);

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

    found = kvr_router_find(&k, q, 4, 0, false, m, 256);
    n = kvr_router_touch(&k, q, m, found, 1000000, out);
    ok(found == 2 && n == 3 && out[0] == 0 && out[2] == 0,
       "a lookup is counted as deep as its deepest match");

    n = kvr_router_touch(&k, q, m, found, 1000000, out);
    ok(n == 3 && out[0] == 1 && out[2] == 1, "and is found by the next");

    ok(kvr_router_find_worker(&k, "a", 1, &a) == KVR_OK
       && kvr_router_find_worker(&k, "b", 1, &b) == KVR_OK
       && kvr_router_depth(&k, a, q, 4) == 2
       && kvr_router_depth(&k, b, q, 4) == 3
       && kvr_router_depth(&k, b, q + 1, 3) == 0,
       "each worker's own depth is found");

    found = kvr_router_find(&k, q, 1, 0, false, m, 256);
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

    kvr_router_reserve(&router, &r, now());
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.active == 1 && row.prefills == 1 && row.prefill_tokens == 100
       && row.decode_blocks == 7, "a reservation counts");

    kvr_load_prefilled(&router.load, &r, now());
    kvr_load_prefilled(&router.load, &r, now());
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.active == 1 && row.prefills == 0 && row.prefill_tokens == 0,
       "the first byte ends its prefill, once");

    kvr_load_prefill_again(&router.load, &r, now());
    kvr_load_prefill_again(&router.load, &r, now());
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.active == 1 && row.prefills == 1 && row.prefill_tokens == 100,
       "a prefill that failed elsewhere begins again, once");

    kvr_load_prefilled(&router.load, &r, now());
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.prefills == 0 && row.prefill_tokens == 0, "and ends again");

    kvr_load_release(&router.load, &r, now());
    kvr_load_release(&router.load, &r, now());
    kvr_load_read(&router.load, 3, 0, &row);
    ok(row.active == 0 && row.decode_blocks == 0, "a release is once");

    kvr_load_prefill_again(&router.load, &r, now());
    kvr_load_read(&router.load, 3, 0, &row);
    is_u64(row.prefills, 0, "what is released prefills no more");

    pid = fork();

    if (pid == 0) {
        other = router;
        (void) kvr_router_join(&other);
        kvr_router_reserve(&other, &s, now());
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
    kvr_router_reserve(&router, &r, now());
    kvr_router_reserve(&router, &s, now());
    kvr_load_release(&router.load, &r, now());
    kvr_load_read(&router.load, 3, 1, &row);
    ok(row.active == 1 && row.decode_blocks == 7,
       "a late release of a worker that is gone does not hit its successor");

    kvr_load_grow(&router.load, &s, 2);
    kvr_load_read(&router.load, 3, 1, &row);
    is_u64(row.decode_blocks, 9, "the answer's blocks count");

    kvr_load_share(&s, 4);
    kvr_load_release(&router.load, &s, now());
    kvr_load_read(&router.load, 3, 1, &row);
    is_u64(row.decode_blocks, 3, "blocks that others work on stay");

    r.holder = s.holder = 3;
    s.decode_blocks = 1;
    kvr_router_reserve(&router, &s, now());
    kvr_router_reserve(&router, &r, now());
    kvr_load_prefilled(&router.load, &r, now());
    kvr_load_release(&router.load, &r, now());
    kvr_load_read(&router.load, 3, 1, &row);
    is_u64(row.active, 1, "nor does a late reservation of one that is gone");

    kvr_load_release(&router.load, &s, now());
    is_u64(router.load.zone->below_zero, 0, "no counter is below zero");

    slot = router.load.slot;
    (void) kvr_router_join(&router);
    is_u64(router.load.slot, slot,
           "a process that joins again keeps its slot");
}


static void
test_peers(void)
{
    bool               taken;
    kvr_router_t       other;
    kvr_load_row_t     row;
    kvr_load_row_t     told;
    kvr_reservation_t  r;

    memset(&r, 0, sizeof(r));
    memset(&told, 0, sizeof(told));
    r.holder = 5;
    told.active = 3;
    told.decode_blocks = 20;

    kvr_router_reserve(&router, &r, now());
    ok(kvr_peers_lease(&router.peers, false, now(), &taken),
       "who joined the zone can have the lease of peers");
    kvr_peers_set_row(&router.peers, 5, &told);
    kvr_router_load(&router, 5, 0, now(), &row);
    is_u64(row.active, 1, "while no peer is fresh, load is the router's own");

    kvr_peers_set_fresh(&router.peers, now() + 60000);
    kvr_router_load(&router, 5, 0, now(), &row);
    ok(row.active == 4 && row.decode_blocks == 20,
       "else it is that of peers, too");
    kvr_load_read(&router.load, 5, 0, &row);
    is_u64(row.active, 1, "the own load can still be told");

    kvr_load_release(&router.load, &r, now());
    kvr_router_leave(&router);
    is_u64(router.peers.zone->owner, 0, "who leaves gives the lease back");

    ok(router.peers.zone->router != 0, "a router has an id");
    fresh(&other);
    ok(other.peers.zone->router != router.peers.zone->router,
       "which is another one in each zone");
    kvr_router_detach(&other);
    (void) kvr_router_join(&router);
}


int
main(void)
{
    for (kind = 0; kind < KVR_INDEX_KINDS; kind++) {
        note("%s", kvr_index_name(kind));

        test_zone();

        fresh(&router);
        test_frequencies();
        test_descriptors();
        test_load();
        test_peers();
        kvr_router_detach(&router);
    }

    return done();
}
