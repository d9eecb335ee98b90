/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Engines that cache pairs of tokens (EAGLE), and zones for them.
 */


#include "decode.h"
#include "zone.h"


#define TOKENS   24


static kvr_ingest_t  *ingest;


/* ---- decoding ----------------------------------------------------------- */

static bool
decodes(const char *json, kvr_verdict_t verdict, kvr_why_t reason)
{
    char     text[4096];
    uint8_t  bytes[8192];
    size_t   len;

    snprintf(text, sizeof(text), "[1.5, [%s]]", json);
    len = pack(bytes, sizeof(bytes), text);

    decode_bytes(bytes, len);

    if (got.n != 1 || got.event[0].ev.verdict != verdict
        || got.event[0].ev.why != reason)
    {
        note("%s: %u events, verdict %d, %s: %s", json, got.n,
             got.event[0].ev.verdict, kvr_why_name(got.event[0].ev.why),
             got.event[0].detail);
        return false;
    }

    return true;
}


/* Token i of the only event; the one behind the last is there too. */
static uint32_t
token(uint32_t i)
{
    return got.event[0].tokens[i];
}


static void
test_decoder(void)
{
    decoder = kvr_decoder_create();
    kvr_decoder_conf(decoder)->contract = (kvr_contract_t) { 0, true };

    ok(decodes("['BlockStored', [7, 8], null, [[1, 2], [2, 3], [3, 4], "
               "[4, 5]], 2]", KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.pairs && got.event[0].ev.ntokens == 4
       && got.event[0].ev.nhandles == 2 && token(0) == 1 && token(3) == 4,
       "pairs of tokens are read, one after the other");

    ok(decodes("['BlockStored', [7], null, [[70000, 4294967295], "
               "[4294967295, 0]], 2]", KVR_KEEP, KVR_WHY_NONE)
       && token(0) == 70000 && token(1) == UINT32_MAX,
       "of any token ids");

    ok(decodes("{'type': 'BlockStored', 'block_hashes': [7], "
               "'parent_block_hash': null, 'token_ids': [[1, 2], [2, 3]], "
               "'block_size': 2}", KVR_KEEP, KVR_WHY_NONE),
       "in maps too");

    ok(decodes("['BlockStored', [7], null, [1, 2], 2]", KVR_FILTERED,
               KVR_WHY_BIGRAM) && got.event[0].detail[0] != '\0',
       "single tokens are filtered: the one behind the block is not told");

    ok(decodes("['BlockStored', [7], null, [], 0, null, 'CPU']",
               KVR_KEEP, KVR_WHY_NONE),
       "where there are none, they have no kind");

    ok(decodes("['BlockStored', [7], null, [[1, 2], [3, 4]], 2]",
               KVR_REFUSED, KVR_WHY_SYNTAX)
       && strstr(got.event[0].detail, "begin"),
       "a pair that doesn't begin where the one before it ends is refused");

    ok(decodes("['BlockStored', [7], null, [[1, 2], [2, -1]], 2]",
               KVR_REFUSED, KVR_WHY_SYNTAX)
       && decodes("['BlockStored', [7], null, [[1, 2], [2]], 2]",
                  KVR_REFUSED, KVR_WHY_SYNTAX)
       && decodes("['BlockStored', [7], null, [[1, 2], [2, 3, 4]], 2]",
                  KVR_REFUSED, KVR_WHY_SYNTAX)
       && decodes("['BlockStored', [7], null, [[1, 2], 2], 2]",
                  KVR_REFUSED, KVR_WHY_SYNTAX)
       && decodes("['BlockStored', [7], null, [[1, 'x'], [2, 3]], 2]",
                  KVR_REFUSED, KVR_WHY_SYNTAX)
       && decodes("['BlockStored', [7], null, [[[1], 2], [2, 3]], 2]",
                  KVR_REFUSED, KVR_WHY_SYNTAX)
       && decodes("['BlockStored', [7], null, [1, [2, 3]], 2]",
                  KVR_REFUSED, KVR_WHY_SYNTAX),
       "and what is no pair of token ids");

    ok(decodes("['BlockStored', [7, 8], null, [[1, 2], [2, 3], [3, 4]], 2]",
               KVR_KEEP, KVR_WHY_PARTIAL)
       && got.event[0].ev.nhandles == 1 && got.event[0].ev.ntokens == 2
       && token(0) == 1 && token(1) == 2,
       "a partial last block is filtered");

    ok(decodes("['BlockStored', [7], null, [[1, 2], [2, 3], [3, 4]], 2]",
               KVR_REFUSED, KVR_WHY_LENGTH),
       "the block size counts pairs");

    decode_json("[{'event_id': 5, 'data': {'type': 'stored', "
                "'parent_hash': null, 'blocks': [{'type': 'stored_block', "
                "'block_hash': 1, 'tokens': [{'token_id': 1}, "
                "{'token_id': 2}], 'cache_level': 0}]}, "
                "'window_size': 64}]");
    ok(got.n == 1 && got.event[0].ev.verdict == KVR_FILTERED
       && got.event[0].ev.why == KVR_WHY_BIGRAM,
       "TensorRT-LLM has single tokens");

    kvr_decoder_conf(decoder)->contract = (kvr_contract_t) { 0, false };

    ok(decodes("['BlockStored', [7], null, [[1, 2], [3, 4]], 9]",
               KVR_FILTERED, KVR_WHY_BIGRAM),
       "for another index pairs are filtered, whatever is wrong with them");

    kvr_decoder_destroy(decoder);
}


/* ---- zones -------------------------------------------------------------- */

static void
open_eagle(const kind_t *of, kind_t *eagle)
{
    uint32_t  i;

    *eagle = *of;
    eagle->params.eagle = true;

    zone_open(eagle, 16 << 20);

    for (i = 0; i < of->params.shards; i++) {
        (void) kvr_router_lease(&router, i, 0, now_ms);
    }

    ingest = kvr_ingest_create(&router);
}


static void
close_eagle(void)
{
    kvr_ingest_destroy(ingest);
    zone_close();
}


/* A batch of an engine's that holds this one event. */
static void
message(const char *event)
{
    size_t       len;
    char         text[4096];
    uint8_t      bytes[8192];
    const char  *detail;

    snprintf(text, sizeof(text), "[1.5, [%s]]", event);
    len = pack(bytes, sizeof(bytes), text);

    if (kvr_ingest_open(ingest, "a", 1, bytes, len, true, now_ms, &detail)
        == KVR_INGEST_APPLY)
    {
        while (kvr_ingest_step(ingest, 3) == KVR_OK) {
            /* void */
        }
    }
}


/* Of a prompt of n tokens, 100 the first; *blocks: that it has. */
static uint32_t
held(size_t n, size_t *blocks)
{
    uint32_t        i, tokens[TOKENS];
    uint64_t        locals[TOKENS];
    kvr_hasher_t    hasher;
    kvr_contract_t  contract;

    for (i = 0; i < TOKENS; i++) {
        tokens[i] = 100 + i;
    }

    contract = kvr_params_contract(kvr_router_params(&router));
    hasher.ready = false;
    kvr_hasher_init(&hasher, KVR_HASH_SEED);

    *blocks = kvr_contract_hash(contract, &hasher, tokens, n, locals);

    if (*blocks != kvr_contract_blocks(contract, n)) {
        return UINT32_MAX;
    }

    return matched("a", locals, (uint32_t) *blocks).device;
}


static bool
holds(size_t n, uint32_t want, uint32_t want_blocks)
{
    size_t    blocks;
    uint32_t  found;

    found = held(n, &blocks);

    if (found != want || blocks != want_blocks) {
        note("%zu tokens: %u of %zu blocks", n, found, blocks);
        return false;
    }

    return true;
}


static const kvr_worker_t *
worker(void)
{
    uint32_t  w;

    if (kvr_router_find_worker(&router, "a", 1, &w) != KVR_OK) {
        printf("Bail out! no worker\n");
        exit(1);
    }

    return kvr_router_worker(&router, w);
}


static void
test_blocks(void)
{
    message("['BlockStored', [7, 8], null, [[100, 101], [101, 102], "
            "[102, 103], [103, 104], [104, 105], [105, 106], [106, 107], "
            "[107, 108]], 4]");

    ok(holds(9, 2, 2), "%s: two blocks of four pairs are nine tokens",
       kind->name);
    ok(holds(8, 1, 1) && holds(5, 1, 1), "eight tokens have one block");
    ok(holds(4, 0, 0) && holds(1, 0, 0) && holds(0, 0, 0),
       "and four have none");

    message("['BlockStored', [9], 8, [[108, 109], [109, 110], [110, 111], "
            "[111, 112]], 4]");
    ok(holds(13, 3, 3) && holds(12, 2, 2), "the next block joins them");

    message("['BlockStored', [10], 9, [[112, 113], [113, 114], [114, 115], "
            "[115, 999]], 4]");
    ok(holds(17, 3, 4), "the token behind a block is one of its");

    message("['BlockRemoved', [8]]");
    ok(holds(13, 1, 3), "a removal is one");

    ok(worker()->stream.confidence == KVR_UNVERIFIED
       && worker()->stream.reason == KVR_FINE, "and all is well");
}


static void
test_spans(void)
{
    message("['BlockStored', [7, 8], null, [[100, 101], [101, 102], "
            "[102, 103], [103, 104], [104, 105], [105, 106], [106, 107], "
            "[107, 108], [108, 109], [109, 110], [110, 111], [111, 112], "
            "[112, 113], [113, 114], [114, 115], [115, 116]], 8]");
    ok(holds(17, 4, 4) && holds(16, 3, 3),
       "%s: a larger block of the engine's is several", kind->name);

    message("['BlockRemoved', [8]]");
    ok(holds(17, 2, 4), "and is removed as one");
}


static void
test_single(void)
{
    message("['BlockStored', [7], null, [100, 101, 102, 103], 4]");
    message("['BlockStored', [8], 7, [[104, 105], [105, 106], [106, 107], "
            "[107, 108]], 4]");

    ok(holds(9, 0, 2) && worker()->stream.reason == KVR_FINE
       && worker()->counters.why[KVR_WHY_BIGRAM] == 2,
       "%s: single tokens are filtered, and what hangs on them",
       kind->name);
}


static void
test_undecoded(void)
{
    uint32_t     tokens[] = { 100, 101, 102, 103 };
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.handles = row(7, 1);
    ev.nhandles = 1;
    ev.tokens = tokens;
    ev.ntokens = 4;
    ev.block_size = 4;

    put("b");
    ok(write_event("b", &ev) == KVR_INVALID && why == KVR_WHY_BIGRAM,
       "%s: nothing beyond single tokens is read, whoever brings them",
       kind->name);
}


static void
test_params(void)
{
    char          text[KVR_WHY_LEN];
    kvr_params_t  other;
    kvr_router_t  second;

    other = kind->params;
    other.eagle = false;

    ok(kvr_router_attach(&second, zone_base, zone_size, &other, text)
       == KVR_INVALID && strstr(text, "eagle=on, not off"),
       "%s: a zone stays what it is: %s", kind->name, text);
}


static void
run(const kind_t *of, void (*test)(void))
{
    kind_t  eagle;

    open_eagle(of, &eagle);
    test();
    close_eagle();
}


int
main(void)
{
    size_t  i;

    test_decoder();

    for (i = 0; i < KINDS; i++) {
        run(&kinds[i], test_blocks);
        run(&kinds[i], test_spans);
        run(&kinds[i], test_single);
        run(&kinds[i], test_undecoded);
        run(&kinds[i], test_params);
    }

    return done();
}
