/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Batches as they left an engine, by the router's ingest: what is counted,
 * what becomes of the worker's confidence, and what is told of it.
 */


#include "pack.h"
#include "zone.h"


static kvr_ingest_t  *ingest;
static char           told[KVR_WARNING_LEN];
static unsigned       tellings;
static unsigned       misfits;          /* of them, of blocks of 3 */
static uint32_t       step;             /* blocks */


static void
open_ingest(const kind_t *of)
{
    uint32_t  i;

    zone_open(of, 16 << 20);

    for (i = 0; i < of->params.shards; i++) {
        (void) kvr_router_lease(&router, i, 0, now_ms);
    }

    ingest = kvr_ingest_create(&router);
    tellings = 0;
    misfits = 0;
    step = 3;
}


static void
close_ingest(void)
{
    kvr_ingest_destroy(ingest);
    zone_close();
}


static kvr_ingest_verdict_t
message_bytes(const char *worker, const void *bytes, size_t len)
{
    kvr_rc_t               rc;
    const char            *detail;
    kvr_ingest_verdict_t   verdict;

    verdict = kvr_ingest_open(ingest, worker, strlen(worker), bytes, len, true,
                              now_ms, &detail);

    if (verdict == KVR_INGEST_APPLY) {
        do {
            rc = kvr_ingest_step(ingest, step);

            while (kvr_ingest_warning(ingest, told)) {
                tellings++;
                misfits += strstr(told, "its block size is 3,") != NULL;
            }
        } while (rc == KVR_OK);
    }

    return verdict;
}


/* An engine's events, in a batch. */
static kvr_ingest_verdict_t
message(const char *worker, const char *events)
{
    size_t   len;
    char     text[4096];
    uint8_t  bytes[8192];

    snprintf(text, sizeof(text), "[1.5, [%s]]", events);
    len = pack(bytes, sizeof(bytes), text);

    return message_bytes(worker, bytes, len);
}


/* An event that stores one block of four equal tokens. */
static const char *
block(unsigned handle, const char *parent, unsigned token)
{
    static unsigned  turn;
    static char      text[4][256];

    turn = (turn + 1) % 4;

    snprintf(text[turn], sizeof(text[turn]),
             "['BlockStored', [%u], %s, [%u, %u, %u, %u], 4]", handle, parent,
             token, token, token, token);

    return text[turn];
}


static uint32_t
held(const char *worker)
{
    uint32_t      i, n, tokens[12];
    uint64_t      locals[3];
    kvr_hasher_t  hasher;

    for (i = 0; i < 12; i++) {
        tokens[i] = 1 + i / 4;
    }

    hasher.ready = false;
    kvr_hasher_init(&hasher, KVR_HASH_SEED);
    n = (uint32_t) kvr_hash_blocks(&hasher, tokens, 12, 4, locals);

    return matched(worker, locals, n).device;
}


static const kvr_worker_t *
of(const char *worker)
{
    uint32_t  w;

    if (kvr_router_find_worker(&router, worker, strlen(worker), &w)
        != KVR_OK)
    {
        printf("Bail out! no worker\n");
        exit(1);
    }

    return kvr_router_worker(&router, w);
}


static bool
stands(const char *worker, kvr_confidence_t confidence, uint32_t reason)
{
    const kvr_worker_t  *w;

    w = of(worker);

    if (w->stream.confidence != confidence || w->stream.reason != reason) {
        note("%s, %s", kvr_confidence_name(w->stream.confidence),
             kvr_degraded_name(w->stream.reason));
        return false;
    }

    return true;
}


static void
test_counts(void)
{
    message("a", block(7, "null", 1));
    message("a", block(8, "7", 2));
    message("a", block(8, "7", 2));
    is_u64(held("a"), 2, "%s: a bare batch is applied", kind->name);
    ok(stands("a", KVR_UNVERIFIED, KVR_FINE), "its worker is UNVERIFIED");

    message("a", "['BlockRemoved', [8]]");
    is_u64(held("a"), 2, "of two copies one is left");

    message("a", "['BlockRemoved', [8]]");
    is_u64(held("a"), 1, "and then none");

    message("a", "['BlockStored', [8], null, [], 0, null, 'CPU']");
    message("a", block(9, "8", 3));
    message("a", block(8, "7", 2));
    is_u64(held("a"), 3, "what was gone comes back to its place");

    ok(stands("a", KVR_UNVERIFIED, KVR_FINE) && tellings == 0,
       "all of it without harm to confidence");
}


static void
test_takeover(void)
{
    message("a", block(7, "null", 1));
    message("a", block(7, "null", 1));

    kvr_router_lease_release(&router);
    (void) lease("a", now_ms);

    message("a", "['BlockRemoved', [7]]");
    is_u64(held("a"), 0, "%s: with another lease a block has one copy: "
           "better less than more", kind->name);

    message("a", block(7, "null", 1));
    message("a", block(7, "null", 1));

    kvr_router_remove_worker(&router, "a", 1);
    put("a");

    message("a", block(7, "null", 1));
    message("a", "['BlockRemoved', [7]]");
    is_u64(held("a"), 0, "of a worker taken out nothing is remembered");
}


static void
test_refused(void)
{
    message("a", block(7, "null", 1));
    message("a", block(9, "8", 3));
    ok(stands("a", KVR_DEGRADED, KVR_DEG_REFUSED),
       "%s: an unknown parent is refused, and the view DEGRADED",
       kind->name);
    ok(tellings == 1 && strstr(told, "\"a\"") && strstr(told, "parent"),
       "which is told, with the worker and why");

    message("a", block(10, "9", 3));
    ok(tellings == 1 && of("a")->counters.why[KVR_WHY_PARENT] == 2,
       "once; the next is only counted");

    is_u64(held("a"), 1, "what is good goes on being applied");

    message("a", "['AllBlocksCleared']");
    ok(stands("a", KVR_UNVERIFIED, KVR_FINE),
       "when all is cleared nothing is missing any more");

    message("a", "['BlockStored', [7], null, [1, 1, 1, 1], 4, null, 'TAPE']");
    message("a", block(8, "7", 2));
    ok(stands("a", KVR_UNVERIFIED, KVR_FINE) && tellings == 1
       && of("a")->counters.why[KVR_WHY_MEDIUM] == 2,
       "what is filtered does no harm, nor what hangs on it");
}


/* A refusal is of its place, whether in one message or in three. */

static void
test_refused_between(void)
{
    uint32_t  i;

#define RANK_CLEARED(r)  "{'type': 'AllBlocksCleared', 'dp_rank': " r "}"
#define RANK_REFUSED     "{'type': 'BlockStored', 'block_hashes': [9], "      \
                         "'parent_block_hash': 99, "                          \
                         "'token_ids': [1, 1, 1, 1], 'block_size': 4, "       \
                         "'dp_rank': 0}"

    for (i = 0; i < 2; i++) {
        step = i ? 100 : 1;

        message("a", RANK_CLEARED("0") ", " RANK_CLEARED("1"));
        ok(stands("a", KVR_UNVERIFIED, KVR_FINE), "%s: two ranks", kind->name);

        message("a", RANK_CLEARED("0") ", " RANK_REFUSED ", "
                RANK_CLEARED("1"));
        ok(stands("a", KVR_DEGRADED, KVR_DEG_REFUSED),
           "what is refused of one is not mended by a clear of the other");

        message("a", RANK_CLEARED("1"));
        ok(stands("a", KVR_DEGRADED, KVR_DEG_REFUSED), "nor by the next");

        message("a", RANK_CLEARED("0"));
        ok(stands("a", KVR_UNVERIFIED, KVR_FINE), "but by its own");

        message("a", RANK_CLEARED("0") ", " RANK_REFUSED ", "
                RANK_CLEARED("1"));
        message("a", RANK_CLEARED("0"));
        ok(stands("a", KVR_UNVERIFIED, KVR_FINE),
           "which does with the clear of the other behind the refusal");
    }
}


/* Messages that can't be read at all. */

static void
test_unread(void)
{
    size_t   i, len;
    uint8_t  bytes[256];

    static const char *const  batches[] = {
        "[1.5, [['AllBlocksCleared']], 5000]",
        "[1.5, [['AllBlocksCleared']], '0']",
        "[1.5, [['AllBlocksCleared']], -1]",
        "[null, [['AllBlocksCleared']]]"
    };

    static const char  cleared[] = "{\"worker_id\":\"r\",\"event\":{"
        "\"event_id\":1,\"data\":\"cleared\"}}";

    for (i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        message("a", block(7, "null", 1));
        message("a", "['AllBlocksCleared']");
        ok(stands("a", KVR_UNVERIFIED, KVR_FINE), "%s: nothing is missing",
           kind->name);

        len = pack(bytes, sizeof(bytes), batches[i]);
        ok(message_bytes("a", bytes, len) == KVR_INGEST_DROP
           && stands("a", KVR_DEGRADED, KVR_DEG_REFUSED),
           "but after %s there is", batches[i]);
    }

    (void) message_bytes("r", cleared, sizeof(cleared) - 1);
    ok(stands("r", KVR_UNVERIFIED, KVR_FINE)
       && message_bytes("r", cleared + 1, 17) == KVR_INGEST_DROP
       && stands("r", KVR_DEGRADED, KVR_DEG_REFUSED),
       "the same where RouterEvents are expected");
}


/* Messages that were dropped before anybody looked at them. */

static void
test_dropped(void)
{
    size_t   len;
    uint8_t  bytes[256];

    message("a", block(7, "null", 1));
    ok(kvr_ingest_dropped(ingest, "a", 1) == KVR_OK && held("a") == 1
       && stands("a", KVR_DEGRADED, KVR_DEG_GAP),
       "%s: what was dropped of bare batches is missing", kind->name);
    message("a", block(8, "7", 2));
    ok(stands("a", KVR_DEGRADED, KVR_DEG_GAP), "and remains so");
    message("a", "['AllBlocksCleared']");
    ok(stands("a", KVR_UNVERIFIED, KVR_FINE), "until all is cleared");

    ok(kvr_ingest_dropped(ingest, "b", 1) == KVR_OK
       && stands("b", KVR_UNKNOWN, KVR_DEG_GAP), "nobody knows of whom");
    message("b", block(7, "null", 1));
    ok(stands("b", KVR_DEGRADED, KVR_DEG_GAP), "until something is heard");

    len = pack(bytes, sizeof(bytes), "['kvr1', 'e', 5, 1, true, 0, "
               "{'$bin': '9192a16300'}]");
    ok(message_bytes("e", bytes, len) == KVR_INGEST_APPLY
       && kvr_ingest_dropped(ingest, "e", 1) == KVR_OK
       && stands("e", KVR_EXACT, KVR_FINE),
       "envelopes tell it by their numbers");
}


static void
test_block_size(void)
{
    message("a", "['BlockStored', [7], null, [1, 1, 1], 3]");
    ok(stands("a", KVR_DEGRADED, KVR_DEG_BLOCK_SIZE)
       && of("a")->stream.engine_block_size == 3,
       "%s: a block size that doesn't fit has a reason of its own",
       kind->name);
    ok(tellings == 1 && strstr(told, " 3") && strstr(told, " 4"),
       "and is told with both sizes: %s", told);

    message("a", "['BlockStored', [8], 7, [1, 1, 1], 3]");
    message("a", "['BlockStored', [9], 8, [1, 1, 1], 3]");
    ok(tellings == 1 && stands("a", KVR_DEGRADED, KVR_DEG_BLOCK_SIZE)
       && of("a")->counters.why[KVR_WHY_BLOCK_SIZE] == 3
       && of("a")->counters.why[KVR_WHY_PARENT] == 0,
       "once, for all that hangs on it too");

    message("a", "['BlockStored', [7], null, [1, 1], 2]");
    is_u64(tellings, 2, "another such size is told again");

    message("b", "['BlockStored', [7], null, [1, 1, 1], 3]");
    is_u64(tellings, 3, "and of another worker");

    message("c", "['BlockStored', [7], null, [1, 1, 1, 1, 2, 2, 2, 2], 8]");
    ok(held("c") == 2 && tellings == 3
       && stands("c", KVR_UNVERIFIED, KVR_FINE),
       "a multiple fits");

    message("d", "['BlockStored', [7, 8], null, [1, 1, 1, 1, 2, 2], 4]");
    ok(held("d") == 1 && of("d")->stream.engine_block_size == 4
       && stands("d", KVR_UNVERIFIED, KVR_FINE),
       "a store whose last block is left out says its size, too");
}


/* What else there is must not hide it, nor have it told for ever. */

static void
test_block_size_told(void)
{
    uint32_t  i;

#define OTHER_GROUP  "['BlockStored', [70], null, [1, 1, 1], 3, null, "       \
                     "'GPU', null, null, 1, 'sliding_window']"
#define MISFIT       "['BlockStored', [7], null, [1, 1, 1], 3]"

    message("a", OTHER_GROUP);
    is_u64(of("a")->stream.engine_block_size, 0,
           "%s: another group's block size is not the engine's", kind->name);
    message("a", MISFIT);
    is_u64(tellings, 1, "the engine's is told when it is the same");

    step = 100;
    message("b", "['BlockStored', [8], 99, [1, 1, 1, 1], 4], " MISFIT);
    message("d", MISFIT ", ['BlockStored', [8], 99, [1, 1, 1, 1], 4]");
    ok(tellings == 5 && misfits == 3,
       "two reasons of one step are both told");

    message("e", MISFIT ", ['AllBlocksCleared'], "
            "['BlockStored', [8], 99, [1, 1, 1, 1], 4]");
    ok(stands("e", KVR_DEGRADED, KVR_DEG_REFUSED) && tellings == 7,
       "what was cleared since is not why the worker is DEGRADED");
    tellings = 5;

    for (i = 0; i < 4; i++) {
        message("c", "['BlockStored', [7], null, [1, 1, 1, 1, 1], 5]");
        message("c", "['BlockStored', [7], null, [1, 1], 2, null, 'GPU', "
                "null, null, 1, 'sliding_window']");
        message("c", MISFIT);
    }

    is_u64(tellings, 7, "two sizes in turn are told once each");
}


/* The first of each reason. */

static void
test_told(void)
{
    size_t   len;
    uint8_t  bytes[256];

    static const char  other[] = "{\"worker_id\":\"s\",\"event\":{"
        "\"event_id\":1,\"data\":\"cleared\"}}";

    (void) message_bytes("r", other, sizeof(other) - 1);
    ok(tellings == 1 && strstr(told, "channel") != NULL,
       "%s: another worker's RouterEvent is told: %s", kind->name, told);

    (void) message_bytes("r", other, 20);
    ok(tellings == 2 && strstr(told, "\"r\"") != NULL,
       "so is a message that breaks in its middle: %s", told);

    len = pack(bytes, sizeof(bytes), "[1.5, [['AllBlocksCleared'], "
               "['BlockRemoved', [1]]]]");
    (void) message_bytes("b", bytes, len - 2);
    ok(tellings == 3 && of("b")->counters.clears == 1, "of any form: %s",
       told);

    (void) message_bytes("b", bytes, len - 2);
    is_u64(tellings, 3, "once");

    message("p", "['BlockStored', [7, 8], 99, [1, 1, 1, 1, 2, 2], 4]");
    ok(tellings == 4 && strstr(told, "parent") && !strstr(told, "partial"),
       "for what it is refused, not what is left out of it: %s", told);
}


static void
test_forgotten(void)
{
    uint32_t  i;

    message("a", block(7, "null", 1));

    router.ttl = 1;

    for (i = 0; i < 20; i++) {
        kvr_router_tend(&router, later_ms(i * 1000), 10000);
    }

    router.ttl = 0;

    message("a", block(8, "7", 2));
    message("a", block(9, "8", 2));
    ok(of("a")->flags & KVR_WORKER_TRUNCATED
       && stands("a", KVR_UNVERIFIED, KVR_FINE)
       && of("a")->counters.why[KVR_WHY_FORGOTTEN] == 2 && tellings == 0,
       "%s: what hangs on what we forgot is counted, and no more",
       kind->name);
}


static void
test_hybrid(void)
{
    message("a", block(7, "null", 1));
    ok(!(of("a")->flags & KVR_WORKER_HYBRID), "%s: not every worker is hybrid",
       kind->name);

    message("a", "['BlockStored', [7], null, [1, 1, 1, 1], 4, null, 'GPU', "
            "null, null, 1, 'sliding_window']");
    ok(of("a")->flags & KVR_WORKER_HYBRID && held("a") == 1
       && stands("a", KVR_UNVERIFIED, KVR_FINE),
       "one with a group that is not indexed is");
    ok(kvr_fleet_confidence(of("a"), 0, 5000, true, NULL) == KVR_BOUND,
       "readers are told BOUND");

    put("a");
    ok(of("a")->flags & KVR_WORKER_HYBRID,
       "and stays so when somebody changes what is set of it");

    message("a", "['BlockRemoved', [7], 'GPU', 1]");
    is_u64(held("a"), 1, "a block leaves that group without leaving ours");
}


static void
test_bounds(void)
{
    char      text[256], long_id[80];
    uint32_t  i, refused;

    ok(message("a b", block(7, "null", 1)) == KVR_INGEST_DROP
       && message("", block(7, "null", 1)) == KVR_INGEST_DROP
       && kvr_router_workers(&router) == 0,
       "%s: a name that no worker may have makes none", kind->name);

    memset(long_id, 'w', 64);
    long_id[64] = '\0';

    ok(message(long_id, block(7, "null", 1)) == KVR_INGEST_DROP
       && kvr_router_workers(&router) == 0, "nor one of 64 bytes");

    ok(message(long_id + 1, block(7, "null", 1)) == KVR_INGEST_APPLY,
       "one of 63 does");

    /* ranks: as many as the zone has room for, none of 1024 or more */

    refused = 0;

    for (i = 0; i <= 1024; i++) {
        snprintf(text, sizeof(text), "{'type': 'BlockStored', "
                 "'block_hashes': [7], 'parent_block_hash': null, "
                 "'token_ids': [1, 1, 1, 1], 'block_size': 4, "
                 "'dp_rank': %u}", i);
        message("r", text);

        if (of("r")->counters.why[KVR_WHY_RANK] > refused) {
            refused++;
        }
    }

    ok(refused > 0 && refused < 1025
       && kvr_router_holders(&router) <= kvr_router_max_holders(&router)
       && stands("r", KVR_DEGRADED, KVR_DEG_REFUSED),
       "of ranks there are as many as the zone has room for");

    for (i = 0; i < 64; i++) {
        snprintf(text, sizeof(text), "many-%u", i);
        message(text, block(7, "null", 1));
    }

    ok(kvr_router_workers(&router) <= kvr_router_max_workers(&router),
       "and of workers");
}


static void
run(const kind_t *of, void (*test)(void))
{
    open_ingest(of);
    test();
    close_ingest();
}


/* What TensorRT-LLM gives when nothing has happened. */

static void
test_empty(void)
{
    static const char  behind[] = "[] {\"worker_id\":\"f\",\"event\":{"
        "\"event_id\":1,\"data\":\"cleared\"}}";

    (void) message_bytes("e", "[]", 2);
    is_u64(of("e")->stream.source, KVR_SOURCE_NONE,
           "an empty list says nothing of who sent it");

    (void) message("e", block(7, "null", 1));
    (void) message_bytes("e", "[]", 2);
    is_u64(of("e")->stream.source, KVR_SOURCE_BARE,
           "and makes no other source of a bare one");
    ok(held("e") == 1 && stands("e", KVR_UNVERIFIED, KVR_FINE),
       "which goes on");

    (void) message_bytes("f", behind, sizeof(behind) - 1);
    ok(of("f")->stream.source == KVR_SOURCE_ROUTER_EVENT
       && stands("f", KVR_UNVERIFIED, KVR_FINE),
       "but an event behind it does");
}


/* TensorRT-LLM names a block alike in all windows of attention. */

static void
test_windows(void)
{
#define BATCH(data, window)                                                   \
    "[{\"event_id\":5,\"data\":" data ",\"window_size\":" window "}]"
#define STORED_4                                                              \
    "{\"type\":\"stored\",\"parent_hash\":null,\"blocks\":["                     \
    "{\"block_hash\":7,\"tokens\":[1,2,3,4],\"cache_level\":0}]}"
#define SAY(json)  message_bytes("t", json, strlen(json))

    uint32_t      w, holder;
    kvr_router_t *r;

    r = &router;

    (void) SAY(BATCH(STORED_4, "512"));
    (void) SAY(BATCH("{\"type\":\"created\"}", "512"));

    ok(kvr_router_find_worker(r, "t", 1, &w) == KVR_OK
       && kvr_router_find_holder(r, w, 0, &holder) == KVR_OK
       && kvr_router_holder_held(r, holder) == 1,
       "the one window that is known of is indexed");

    (void) SAY(BATCH("{\"type\":\"created\"}", "4096"));
    (void) SAY(BATCH("{\"type\":\"removed\",\"block_hashes\":[7]}", "512"));

    ok(kvr_router_holder_held(r, holder) == 0,
       "of a larger one nothing of it is left, since its removals are not "
       "heard any more");

    (void) SAY(BATCH(STORED_4, "4096"));
    (void) SAY(BATCH("{\"type\":\"removed\",\"block_hashes\":[7]}", "512"));

    ok(kvr_router_holder_held(r, holder) == 1, "the larger one is indexed");
}


static void
test_removed_everywhere(void)
{
    (void) SAY(BATCH(STORED_4, "512"));
    (void) SAY(BATCH("{\"type\":\"updated\",\"block_hash\":7,\"cache_level\":"
                     "{\"old_value\":0,\"new_value\":1}}", "512"));
    (void) SAY(BATCH("{\"type\":\"removed\",\"block_hashes\":[7]}", "512"));
    is_u64(of("t")->counters.blocks_unknown, 0,
           "a block is removed from the tier that it is in");

    (void) SAY(BATCH("{\"type\":\"removed\",\"block_hashes\":[7]}", "512"));
    is_u64(of("t")->counters.blocks_unknown, 1,
           "one that is in none is unknown once");

#define STORED_LORA                                                           \
    "{\"type\":\"stored\",\"parent_hash\":null,\"blocks\":["                     \
    "{\"block_hash\":9,\"lora_id\":-3,\"tokens\":[1,2,3,4],\"cache_level\":0}]}"

    (void) SAY(BATCH(STORED_LORA, "512"));
    (void) SAY(BATCH("{\"type\":\"removed\",\"block_hashes\":[9]}", "512"));
    is_u64(of("t")->counters.why[KVR_WHY_LORA_ID], 2,
           "one that was left out is so once");
}


/* Mooncake's store holds parts of blocks, and whole ones. */

static void
test_objects(void)
{
#define OBJECT(type, key, hashes)                                             \
    "{\"event_type\":\"" type "\",\"object_key\":\"" key "\",\"seq_hashes\":" \
        hashes ",\"token_ids\":null,\"parent_hash\":null,"                    \
        "\"base_block_idx\":null,\"group_id\":\"0\",\"medium\":\"cpu\"}"

    uint32_t  w, holder;

    (void) message("t", block(255, "null", 1));
    (void) SAY(OBJECT("stored", "m@tp_rank:0@pp_rank:0@ff", "[]"));
    (void) SAY(OBJECT("stored", "m@tp_rank:1@pp_rank:0@ff", "[255]"));
    (void) SAY(OBJECT("removed", "m@tp_rank:1@pp_rank:0@ff", "[255]"));

    ok(of("t")->counters.why[KVR_WHY_OBJECT_KEY] == 3 && held("t") == 1
       && stands("t", KVR_UNVERIFIED, KVR_FINE),
       "parts of a block are counted, without harm to the block and to the "
       "confidence");

    (void) message("t", block(256, "255", 2));
    is_u64(held("t"), 2, "and what follows the block is indexed");

    (void) SAY(OBJECT("stored", "0xff", "[]"));
    (void) SAY(OBJECT("stored", "256", "[]"));
    (void) message("t", "['BlockRemoved', [255, 256], 'GPU']");

    ok(kvr_router_find_worker(&router, "t", 1, &w) == KVR_OK
       && kvr_router_find_holder(&router, w, 0, &holder) == KVR_OK
       && kvr_router_holder_held(&router, holder) == 2 && held("t") == 0,
       "objects that are blocks keep them in their tier");

    (void) SAY(OBJECT("removed", "0xff", "[]"));
    ok(kvr_router_holder_held(&router, holder) == 1
       && stands("t", KVR_UNVERIFIED, KVR_FINE), "until they are removed");

#undef OBJECT
}


/* Ranks of one engine, which say their windows one after another. */

#define OF_RANK(id, data, window, rank)                                       \
    "{\"event_id\":" id ",\"data\":" data ",\"window_size\":" window ","        \
    "\"attention_dp_rank\":" rank "}"
#define CREATED_OF(id, window, rank)                                          \
    OF_RANK(id, "{\"type\":\"created\"}", window, rank)
#define REMOVED_7  "{\"type\":\"removed\",\"block_hashes\":[7]}"


static uint32_t
held_by(const char *worker, uint32_t rank)
{
    uint32_t  w, holder;

    if (kvr_router_find_worker(&router, worker, strlen(worker), &w) != KVR_OK
        || kvr_router_find_holder(&router, w, rank, &holder) != KVR_OK)
    {
        return 0;
    }

    return kvr_router_holder_held(&router, holder);
}


static void
test_windows_of_ranks(void)
{
    (void) SAY("[" CREATED_OF("0", "128", "0") ","
               CREATED_OF("1", "4096", "0") ","
               OF_RANK("2", STORED_4, "4096", "0") "]");
    (void) SAY("[" CREATED_OF("0", "128", "1") ","
               CREATED_OF("1", "4096", "1") ","
               OF_RANK("2", STORED_4, "4096", "1") "]");

    ok(held_by("t", 0) == 1 && held_by("t", 1) == 1,
       "a rank that begins takes nothing from another one");

    (void) SAY("[" CREATED_OF("0", "128", "1") ","
               OF_RANK("3", REMOVED_7, "128", "0") "]");
    (void) SAY("[" OF_RANK("4", REMOVED_7, "128", "0") ","
               CREATED_OF("1", "4096", "1") "]");

    ok(held_by("t", 0) == 1 && held_by("t", 1) == 0,
       "nor does the other one's smaller window in the meantime");

    (void) SAY("[" CREATED_OF("0", "128", "0") ","
               CREATED_OF("1", "256", "0") ","
               OF_RANK("2", STORED_4, "256", "0") "]");

    ok(held_by("t", 0) == 1 && of("t")->stream.window == 256,
       "when no other rank holds anything, windows may be smaller");
}


int
main(void)
{
    size_t  i;

    for (i = 0; i < KINDS; i++) {
        run(&kinds[i], test_counts);
        run(&kinds[i], test_takeover);
        run(&kinds[i], test_refused);
        run(&kinds[i], test_refused_between);
        run(&kinds[i], test_unread);
        run(&kinds[i], test_dropped);
        run(&kinds[i], test_block_size);
        run(&kinds[i], test_block_size_told);
        run(&kinds[i], test_told);
        run(&kinds[i], test_forgotten);
        run(&kinds[i], test_hybrid);
        run(&kinds[i], test_empty);
        run(&kinds[i], test_windows);
        run(&kinds[i], test_windows_of_ranks);
        run(&kinds[i], test_removed_everywhere);
        run(&kinds[i], test_objects);
        run(&kinds[i], test_bounds);
    }

    return done();
}
