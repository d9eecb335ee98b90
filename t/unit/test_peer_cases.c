/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The cases in which routers' indexes err, by their names: each says what is
 * stored and removed, and the exact answer.  All go through the one door of
 * src/, for every kind of zone that there is (zone.h).
 */


#include "zone.h"


static void removal_in_the_middle(void);
static void removal_in_the_middle_of_many(void);
static void stale_descendants_revived(void);
static void descendants_lost(void);
static void batch_with_an_unknown_hash(void);
static void message_with_a_bad_event(void);
static void engine_hashes_that_differ(void);
static void block_that_is_its_own_parent(void);
static void child_before_its_parent(void);
static void one_hash_at_two_places(void);
static void two_hashes_for_one_block(void);
static void duplicate_store(void);
static void clear_in_the_middle(void);
static void parent_before_its_children(void);
static void stored_again_elsewhere(void);
static void trunk_of_two_branches(void);
static void tiers_leave_one_by_one(void);
static void ranks_are_holders(void);
static void worker_that_comes_back(void);


static void (*const cases[])(void) = {
    removal_in_the_middle,
    removal_in_the_middle_of_many,
    stale_descendants_revived,
    descendants_lost,
    batch_with_an_unknown_hash,
    message_with_a_bad_event,
    engine_hashes_that_differ,
    block_that_is_its_own_parent,
    child_before_its_parent,
    one_hash_at_two_places,
    two_hashes_for_one_block,
    duplicate_store,
    clear_in_the_middle,
    parent_before_its_children,
    stored_again_elsewhere,
    trunk_of_two_branches,
    tiers_leave_one_by_one,
    ranks_are_holders,
    worker_that_comes_back
};


static uint32_t
has(const char *worker, const uint64_t *prompt, uint32_t n)
{
    return matched(worker, prompt, n).disk;
}


static void
has_of(const char *worker, const uint64_t *prompt, uint32_t n, uint32_t want,
    const char *what)
{
    is_u64(has(worker, prompt, n), want, "%s: %s", kind->name, what);
}


/* A zone of its own for each case; at the end nothing may be left in it. */

static void
in_a_zone(void (*one)(void))
{
    uint32_t     i;
    kvr_stats_t  stats;

    put("a");
    put("b");
    put("c");

    one();

    (void) kvr_router_remove_worker(&router, "a", 1);
    (void) kvr_router_remove_worker(&router, "b", 1);
    (void) kvr_router_remove_worker(&router, "c", 1);

    for (i = 0; i < 1000 && kvr_router_tend(&router, now_ms, 10000); i++) {
        /* void */
    }

    kvr_router_stats(&router, &stats);
    ok(stats.handles == 0 && stats.blocks == 0 && stats.runs == 0,
       "%s: and nothing is left behind", kind->name);
}


int
main(int argc, char **argv)
{
    uint32_t  i, k;

    for (i = 0; i < KINDS; i++) {
        for (k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
            zone_open(&kinds[i], 16 << 20);
            in_a_zone(cases[k]);
            zone_close();
        }
    }

    return done();
}


/* ---- the cases ---------------------------------------------------------- */

/* Local hashes are 1, 2, …; the engine's name of block i is 100 + i. */

static void
removal_in_the_middle(void)
{
    store("a", 0, row(101, 10), row(1, 10), 10);
    has_of("a", row(1, 10), 10, 10, "a chain is held");

    take_one("a", 105);
    has_of("a", row(1, 10), 10, 4,
           "a removal in the middle ends the match of its only holder there");
    has_of("a", row(1, 4), 4, 4, "a prompt that ends before is whole");

    take_one("a", 107);
    has_of("a", row(1, 10), 10, 4, "another one behind it changes nothing");

    store("a", 104, row(105, 1), row(5, 1), 1);
    has_of("a", row(1, 10), 10, 6, "the hole filled, the next one counts");
}


static void
removal_in_the_middle_of_many(void)
{
    store("a", 0, row(101, 10), row(1, 10), 10);
    store("b", 0, row(101, 10), row(1, 10), 10);
    store("c", 0, row(101, 10), row(1, 10), 10);

    take_one("b", 105);
    take_one("c", 103);
    take_one("c", 107);

    has_of("a", row(1, 10), 10, 10,
           "others' removals in the middle leave a holder alone");
    has_of("b", row(1, 10), 10, 4, "one with a hole has what is before it");
    has_of("c", row(1, 10), 10, 2, "one with two what is before the first");

    take_one("a", 101);
    has_of("a", row(1, 10), 10, 0, "without the first block nothing counts");
    has_of("b", row(1, 10), 10, 4, "and the others have what they had");
    has_of("c", row(1, 10), 10, 2, "each its own");
}


static void
stale_descendants_revived(void)
{
    store("a", 0, row(101, 10), row(1, 10), 10);
    store("b", 0, row(101, 10), row(1, 10), 10);

    take_one("a", 105);
    take_out("a", row(106, 5), 5);
    is_u64(unknown, 0, "%s: what is behind a hole can be removed",
           kind->name);

    store("a", 104, row(105, 1), row(5, 1), 1);
    has_of("a", row(1, 10), 10, 5,
           "a block stored again does not revive removed descendants");
    has_of("b", row(1, 10), 10, 10, "which another holder has");
}


static void
descendants_lost(void)
{
    uint64_t  q[9] = { 1, 2, 3, 4, 5, 6, 7, 51, 52 };

    store("a", 0, row(101, 10), row(1, 10), 10);
    take_one("a", 105);
    store("a", 104, row(105, 1), row(5, 1), 1);
    has_of("a", row(1, 10), 10, 10,
           "a block stored again finds its descendants, which stayed");

    take_one("a", 105);
    store("a", 107, row(201, 2), row(51, 2), 2);
    is_u64(why, KVR_WHY_NONE, "%s: behind a hole one can store",
           kind->name);
    store("a", 104, row(105, 1), row(5, 1), 1);
    has_of("a", q, 9, 9, "and that counts once the hole is filled");
}


static void
batch_with_an_unknown_hash(void)
{
    uint64_t  some[4] = { 108, 999, 109, 110 };

    store("a", 0, row(101, 10), row(1, 10), 10);

    ok(take_out("a", some, 4) == KVR_OK, "%s: an unknown hash is no error",
       kind->name);
    is_u64(unknown, 1, "%s: it is counted", kind->name);
    has_of("a", row(1, 10), 10, 7,
           "and those before and behind it are removed");

    take_out("a", some, 4);
    is_u64(unknown, 4, "%s: removed again, all are unknown", kind->name);
    has_of("a", row(1, 10), 10, 7, "and nothing changes");
}


static void
message_with_a_bad_event(void)
{
    kvr_rc_t       rc;
    const char    *detail;
    kvr_ingest_t  *in;

    static const char  text[] =
        "[{\"worker_id\":\"e\",\"event\":{\"event_id\":1,\"data\":{\"stored\":"
        "{\"parent_hash\":null,\"blocks\":["
        "{\"block_hash\":101,\"tokens_hash\":1},"
        "{\"block_hash\":102,\"tokens_hash\":2},"
        "{\"block_hash\":103,\"tokens_hash\":3}]}}}},"
        "{\"worker_id\":\"e\",\"event\":{\"event_id\":2,\"data\":{\"stored\":"
        "{\"parent_hash\":777,\"blocks\":["
        "{\"block_hash\":104,\"tokens_hash\":4}]}}}},"
        "{\"worker_id\":\"e\",\"event\":{\"event_id\":3,\"data\":{\"removed\":"
        "{\"block_hashes\":[888,103]}}}},"
        "{\"worker_id\":\"e\",\"event\":{\"event_id\":4,\"data\":{\"stored\":"
        "{\"parent_hash\":102,\"blocks\":["
        "{\"block_hash\":105,\"tokens_hash\":5}]}}}}]";

    uint64_t  q[3] = { 1, 2, 5 };

    in = kvr_ingest_create(&router);
    (void) lease("e", now_ms);

    rc = kvr_ingest_open(in, "e", 1, text, strlen(text), true, now_ms, &detail)
         == KVR_INGEST_APPLY ? KVR_OK : KVR_ERROR;

    while (rc == KVR_OK) {
        rc = kvr_ingest_step(in, 100);
    }

    ok(rc == KVR_DONE, "%s: a message with a store behind an unknown block "
       "and an unknown removal is applied", kind->name);
    has_of("e", row(1, 4), 4, 2, "but for these two, all of it");
    has_of("e", q, 3, 3, "to its end");

    kvr_router_lease_release(&router);
    kvr_ingest_destroy(in);
    (void) kvr_router_remove_worker(&router, "e", 1);
}


static void
engine_hashes_that_differ(void)
{
    store("a", 0, row(101, 10), row(1, 10), 10);
    store("b", 0, row(9001, 10), row(1, 10), 10);
    has_of("a", row(1, 10), 10, 10, "engines may name one block differently:");
    has_of("b", row(1, 10), 10, 10, "both have it");

    take_one("b", 105);
    is_u64(unknown, 1, "%s: another engine's name is unknown", kind->name);
    has_of("b", row(1, 10), 10, 10, "and removes nothing");

    take_one("b", 9005);
    has_of("b", row(1, 10), 10, 4, "one's own does");
    has_of("a", row(1, 10), 10, 10, "and only from oneself");

    /* one number, different blocks */

    store("c", 0, row(101, 10), row(501, 10), 10);
    has_of("c", row(501, 10), 10, 10, "one name may be two engines' blocks:");
    take_out("c", row(101, 10), 10);
    has_of("c", row(501, 10), 10, 0, "the one removes its own");
    has_of("a", row(1, 10), 10, 10, "the other keeps its own");
}


static void
block_that_is_its_own_parent(void)
{
    uint64_t  q[2] = { 1, 2 }, same[2] = { 100, 100 };

    ok(store("a", 100, same, q, 1) == KVR_INVALID && why == KVR_WHY_PARENT,
       "%s: a block whose parent is itself, not known yet, is refused",
       kind->name);
    has_of("a", q, 2, 0, "and not there");

    store("a", 0, same, q, 1);
    has_of("a", q, 2, 1, "stored at the root it is there");

    ok(store("a", 100, same, q + 1, 1) == KVR_OK,
       "%s: stored behind itself it moves there", kind->name);
    has_of("a", q, 2, 0, "and leaves the place before: no match at all");

    store("a", 0, row(300, 1), q, 1);
    has_of("a", q, 2, 2, "with another block in its old place both count");

    take_one("a", 100);
    has_of("a", q, 2, 1, "its removal takes the one that it names last");

    store("a", 0, same, q, 2);
    has_of("a", q, 2, 2, "a name twice in an event is the last of the two");
    take_one("a", 300);
    has_of("a", q, 2, 0, "so that the first has one name only");
    take_one("a", 100);
    is_u64(unknown, 0, "%s: and goes in one removal", kind->name);
}


static void
child_before_its_parent(void)
{
    ok(store("a", 105, row(106, 3), row(6, 3), 3) == KVR_INVALID
       && why == KVR_WHY_PARENT,
       "%s: a child before its parent is refused", kind->name);
    has_of("a", row(6, 3), 3, 0, "it is not taken for a root");

    store("b", 0, row(101, 5), row(1, 5), 5);
    ok(store("a", 105, row(106, 3), row(6, 3), 3) == KVR_INVALID,
       "%s: a parent that only another worker has is unknown", kind->name);

    store("a", 0, row(101, 5), row(1, 5), 5);
    has_of("a", row(1, 8), 8, 5, "the parent brings nothing of the child");
    store("a", 105, row(106, 3), row(6, 3), 3);
    has_of("a", row(1, 8), 8, 8, "which comes again, and counts");
}


/* Prompts with a LoRA adapter hash to other blocks; engines may not. */

static void
one_hash_at_two_places(void)
{
    uint32_t      i, tokens[8];
    uint64_t      handles[2] = { 101, 102 }, q[3][2];
    kvr_event_t   ev;
    kvr_hasher_t  hasher;

    static const char *const  names[3] = { "", "adapter", "other" };

    memset(&hasher, 0, sizeof(hasher));
    memset(&ev, 0, sizeof(ev));

    for (i = 0; i < 8; i++) {
        tokens[i] = i;
    }

    for (i = 0; i < 3; i++) {
        kvr_hasher_init(&hasher, kvr_hash_seed(names[i], strlen(names[i]),
                                               NULL, 0));
        (void) kvr_hash_blocks(&hasher, tokens, 8, 4, q[i]);
    }

    ev.kind = KVR_STORE;
    ev.handles = handles;
    ev.nhandles = 2;
    ev.tokens = tokens;
    ev.ntokens = 8;
    ev.block_size = 4;

    write_event("a", &ev);
    ev.lora_name = "adapter";
    ev.lora_len = 7;
    write_event("b", &ev);

    has_of("a", q[0], 2, 2, "one engine hash, with and without an adapter:");
    has_of("b", q[1], 2, 2, "each worker has its own block");
    has_of("a", q[1], 2, 0, "and not");
    has_of("b", q[0], 2, 0, "the other's");

    write_event("a", &ev);
    has_of("a", q[1], 2, 2, "one worker's hash that names another block");
    has_of("a", q[0], 2, 0, "has left the first");

    take_out("a", handles, 2);
    is_u64(unknown, 0, "%s: it is removed once", kind->name);
    has_of("a", q[1], 2, 0, "and is nowhere then");
    has_of("b", q[1], 2, 2, "the other worker keeps its own");

    ev.lora_name = NULL;
    ev.lora_len = 0;
    ev.cache_salt = "salt";
    ev.salt_len = 4;
    write_event("a", &ev);
    has_of("a", q[0], 2, 0, "a salted block is not the plain one");

    /* what is stored behind it inherits the salt */

    kvr_hasher_init(&hasher, kvr_hash_seed(NULL, 0, "salt", 4));
    (void) kvr_hash_blocks(&hasher, tokens, 8, 4, q[2]);
    has_of("a", q[2], 2, 2, "but that of its salt");
}


static void
two_hashes_for_one_block(void)
{
    store("a", 0, row(101, 5), row(1, 5), 5);
    store("a", 0, row(201, 5), row(1, 5), 5);
    store("b", 0, row(101, 5), row(1, 5), 5);

    take_one("a", 103);
    has_of("a", row(1, 5), 5, 5, "a block with two names stays with one");
    take_one("a", 203);
    has_of("a", row(1, 5), 5, 2, "and goes with the last");
    has_of("b", row(1, 5), 5, 5, "another holder has names of its own");

    take_out("a", row(101, 2), 2);
    has_of("a", row(1, 5), 5, 2, "two more with one name left");
    store("a", 202, row(103, 1), row(3, 1), 1);
    has_of("a", row(1, 5), 5, 5, "either name is a parent");
}


static void
duplicate_store(void)
{
    uint32_t  i;

    for (i = 0; i < 3; i++) {
        store("a", 0, row(101, 5), row(1, 5), 5);
    }

    store("a", 102, row(103, 3), row(3, 3), 3);
    has_of("a", row(1, 5), 5, 5, "a store that comes again changes nothing");

    take_one("a", 105);
    has_of("a", row(1, 5), 5, 4, "and one removal is enough");
    take_one("a", 105);
    is_u64(unknown, 1, "%s: a second one is unknown", kind->name);
}


static void
clear_in_the_middle(void)
{
    store("a", 0, row(101, 10), row(1, 10), 10);
    store("b", 0, row(101, 10), row(1, 10), 10);
    take_one("a", 105);

    clear("a");
    has_of("a", row(1, 10), 10, 0, "a clear leaves nothing");
    has_of("b", row(1, 10), 10, 10, "of its holder alone");

    take_one("a", 101);
    is_u64(unknown, 1, "%s: names are forgotten", kind->name);
    ok(store("a", 104, row(105, 1), row(5, 1), 1) == KVR_INVALID,
       "%s: and are no parents", kind->name);

    store("a", 0, row(101, 3), row(1, 3), 3);
    has_of("a", row(1, 10), 10, 3, "a refill counts as far as it goes");

    while (kvr_router_tend(&router, now_ms, 10000)) { /* void */ }

    has_of("a", row(1, 10), 10, 3, "what was cleared is reclaimed");
    has_of("b", row(1, 10), 10, 10, "and nothing else");
    store("a", 103, row(104, 7), row(4, 7), 7);
    has_of("a", row(1, 10), 10, 10, "a whole refill has no hole");
}


static void
parent_before_its_children(void)
{
    store("a", 0, row(101, 10), row(1, 10), 10);
    take_one("a", 101);
    has_of("a", row(1, 10), 10, 0, "a root that is removed ends all matches");

    ok(store("a", 110, row(111, 1), row(11, 1), 1) == KVR_OK,
       "%s: its descendants are still there to store behind", kind->name);
    store("a", 0, row(101, 1), row(1, 1), 1);
    has_of("a", row(1, 11), 11, 11, "and count when it comes back");

    take_one("a", 101);
    take_out("a", row(102, 10), 10);
    is_u64(unknown, 0, "%s: removed after it, none is unknown", kind->name);
    store("a", 0, row(101, 1), row(1, 1), 1);
    has_of("a", row(1, 11), 11, 1, "and none comes back with it");
}


static void
stored_again_elsewhere(void)
{
    uint64_t  q[6] = { 51, 52, 5, 6, 7, 8 };

    store("a", 0, row(101, 8), row(1, 8), 8);
    store("a", 0, row(201, 2), row(51, 2), 2);

    take_out("a", row(105, 2), 2);
    store("a", 202, row(105, 2), row(5, 2), 2);
    has_of("a", q, 6, 4, "a removed block comes back behind another parent");
    has_of("a", row(1, 8), 8, 4, "and not where it was");

    store("a", 106, row(107, 2), row(7, 2), 2);
    has_of("a", q, 6, 6, "so does one that was not removed: it moves");

    store("a", 104, row(305, 2), row(5, 2), 2);
    has_of("a", row(1, 8), 8, 6, "and leaves its old place for good");
}


static void
trunk_of_two_branches(void)
{
    uint64_t  q[8] = { 1, 2, 3, 4, 5, 56, 57, 58 };

    store("a", 0, row(101, 10), row(1, 10), 10);
    store("a", 105, row(156, 3), row(56, 3), 3);
    store("b", 0, row(101, 5), row(1, 5), 5);
    store("b", 105, row(156, 3), row(56, 3), 3);

    has_of("a", row(1, 10), 10, 10, "a trunk and");
    has_of("a", q, 8, 8, "its branch");

    take_one("a", 103);
    has_of("a", row(1, 10), 10, 2, "a hole in the trunk ends both,");
    has_of("a", q, 8, 2, "the branch as well");
    has_of("b", q, 8, 8, "not that of another holder");

    take_one("b", 105);
    has_of("b", q, 8, 4, "whose own hole ends it at the fork");

    store("a", 102, row(103, 1), row(3, 1), 1);
    has_of("a", q, 8, 8, "and filled, all is there");
}


static void
tiers_leave_one_by_one(void)
{
    kvr_match_t  m;

    store("a", 0, row(101, 10), row(1, 10), 10);
    tier = KVR_HOST;
    store("a", 0, row(101, 8), row(1, 8), 8);
    tier = KVR_DISK;
    store("a", 105, row(106, 1), row(6, 1), 1);
    tier = KVR_DEVICE;
    take_out("a", row(104, 3), 3);

    m = matched("a", row(1, 10), 10);
    ok(m.device == 3 && m.host == 10 && m.disk == 10,
       "%s: offloaded blocks count for host, and those behind them",
       kind->name);

    tier = KVR_HOST;
    take_one("a", 106);
    m = matched("a", row(1, 10), 10);
    ok(m.device == 3 && m.host == 5 && m.disk == 10,
       "%s: one left on disk only, for disk", kind->name);

    tier = KVR_DISK;
    take_one("a", 106);
    m = matched("a", row(1, 10), 10);
    ok(m.device == 3 && m.host == 5 && m.disk == 5,
       "%s: and gone from there it is a hole", kind->name);

    take_one("a", 101);
    is_u64(unknown, 1, "%s: a removal from a tier where it is not is unknown",
           kind->name);

    tier = KVR_EXTERNAL;
    store("a", 105, row(106, 1), row(6, 1), 1);
    has_of("a", row(1, 10), 10, 5, "an external copy fills no hole");
}


static void
ranks_are_holders(void)
{
    store("a", 0, row(101, 5), row(1, 5), 5);
    rank = 1;
    has_of("a", row(1, 5), 5, 0, "a rank has not what another rank has");
    ok(store("a", 105, row(106, 1), row(6, 1), 1) == KVR_INVALID,
       "%s: nor are that one's blocks parents", kind->name);

    store("a", 0, row(101, 3), row(1, 3), 3);
    clear("a");
    has_of("a", row(1, 5), 5, 0, "a rank's clear is its own");
    rank = 0;
    has_of("a", row(1, 5), 5, 5, "and leaves the others");
}


static void
worker_that_comes_back(void)
{
    store("a", 0, row(101, 5), row(1, 5), 5);
    store("b", 0, row(101, 5), row(1, 5), 5);

    (void) kvr_router_remove_worker(&router, "a", 1);
    has_of("a", row(1, 5), 5, 0, "a worker removed has nothing");

    put("a");
    has_of("a", row(1, 5), 5, 0, "nor when it comes back");
    ok(store("a", 102, row(103, 1), row(3, 1), 1) == KVR_INVALID,
       "%s: what it had is no parent", kind->name);

    store("a", 0, row(101, 2), row(1, 2), 2);
    has_of("a", row(1, 5), 5, 2, "it has what it stores from then on");
    has_of("b", row(1, 5), 5, 5, "the other has what it had");
}
