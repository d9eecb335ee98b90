/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Event streams: their state machine and forms, a writer that dies, the lease
 * of who writes.
 */


#include "follow/kvr_ingest.h"
#include "zone/kvr_shard.h"

#include "../check/kvr_check.h"
#include "pack.h"
#include "router_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>


static kvr_router_t   router;
static kvr_ingest_t  *ingest;


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


static void
test_stream(void)
{
    size_t               len;
    uint64_t             rollbacks;
    uint8_t              bytes[8192];
    const char          *reason;
    kvr_cursor_t         at;
    kvr_worker_conf_t    conf;
    kvr_registered_t     what;
    kvr_registration_t   reg;
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

    len = envelope(bytes, sizeof(bytes), "e", 1000, UINT64_MAX, true, 0, 0, 0);
    ok(take("e", bytes, len, true) == KVR_INGEST_DROP && detail != NULL
       && message("e", 1000, KVR_SEQ_MAX + 1, 0, 1, 1) == KVR_INGEST_DROP
       && w->counters.why[KVR_WHY_SYNTAX] == 4
       && w->stream.confidence == KVR_EXACT,
       "nor does a seq that none could follow: it is refused");

    len = envelope(bytes, sizeof(bytes), "e", 1000, 4, true, 0, 0, 0);
    ok(take("e", bytes, len, true) == KVR_INGEST_DROP,
       "a heartbeat with the last seq says nothing new");
    ok(kvr_fleet_confidence(w, now(), 5000, true, NULL) == KVR_EXACT
       && take("e", bytes, pack(bytes, sizeof(bytes), "['kvr1', 'e', 1000, 4, "
                                "true, null, null, null, true]"), true)
          == KVR_INGEST_DROP
       && w->stream.confidence == KVR_EXACT
       && kvr_fleet_confidence(w, now(), 5000, true, NULL) == KVR_BOUND,
       "but one that says that the model is hybrid makes EXACT BOUND");

    kvr_registration_init(&reg, "e", 1);
    len = pack(bytes, sizeof(bytes), "['kvr1', 'e', 1000, 4, true, null, null, "
               "null, false, true]");
    ok(take("e", bytes, len, false) == KVR_INGEST_DROP
       && !(w->flags & KVR_WORKER_LEAVING),
       "that it drains is nothing that a log can say");
    ok(take("e", bytes, len, true) == KVR_INGEST_DROP
       && !(w->flags & KVR_WORKER_LEAVING),
       "nor who is not registered");
    ok(kvr_router_register(&router, &reg, UINT64_MAX, &what) == KVR_OK,
       "it registers");
    ok(take("e", bytes, len, true) == KVR_INGEST_DROP
       && w->flags & KVR_WORKER_LEAVING
       && take("e", bytes, pack(bytes, sizeof(bytes), "['kvr1', 'e', 1000, 4, "
                                "true, null, null, null, false, false]"), true)
          == KVR_INGEST_DROP
       && w->flags & KVR_WORKER_LEAVING,
       "a heartbeat can, and no other one takes it back");

    len = envelope(bytes, sizeof(bytes), "e", 1000, 5, true, 0, 0, 0);
    ok(take("e", bytes, len, true) == KVR_INGEST_GAP,
       "one with a higher seq is a gap");

    ok(kvr_fleet_confidence(w, now() + 6000, 5000, true, &reason)
       == KVR_DEGRADED && strcmp(reason, "silent") == 0,
       "a publisher of heartbeats that is silent is DEGRADED");

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
    ok(kvr_router_find(&router, locals, 2, 0, false, m, 256) == 1
       && m[0].device == 2,
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
    ok(kvr_router_find(&router, locals, 2, 0, false, m, 256) == 1
       && m[0].device == 2,
       "a child inherits the hash seed of its chain");

    len = pack(bytes, sizeof(bytes), "[1.5, [['BlockStored', [], null, "
               "[], 0, null, 'CPU'], ['BlockRemoved', [12]],"
               "['BlockStored', [11], null, [], 0, null, 'CPU'],"
               "['BlockRemoved', [11], 'GPU']]]");
    (void) take("v", bytes, len, true);

    kvr_hasher_init(&h, KVR_HASH_SEED);
    (void) kvr_hash_blocks(&h, tokens, BLOCK * 2, BLOCK, locals);
    ok(kvr_router_find(&router, locals, 2, 0, false, m, 256) == 1
       && m[0].device == 0 && m[0].host == 1 && m[0].disk == 1,
       "a block that was offloaded is in the host tier only");
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
begin(void)
{
    fresh(&router);
    ingest = kvr_ingest_create(&router);
}


static void
end(void)
{
    kvr_ingest_destroy(ingest);
    kvr_router_detach(&router);
}


static void
test_sound(void)
{
    const char  *wrong;

    while (kvr_router_tend(&router, now(), 1000)) { /* void */ }

    wrong = kvr_index_check(&router.shards[0].index);
    ok(wrong == NULL, "the index is sound: %s", wrong ? wrong : "");
}


int
main(void)
{
    for (kind = 0; kind < KVR_INDEX_KINDS; kind++) {
        note("%s", kvr_index_name(kind));

        begin();
        test_stream();
        test_forms();
        test_crash();
        test_lease();
        test_sound();
        end();
    }

    /* the streams once more, over several shards */

    kind = KVR_INDEX_RADIX;
    shards = 3;

    begin();
    test_stream();
    test_forms();
    end();

    return done();
}
