/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Messages that are cut short, damaged, or made to hurt: the decoder ends,
 * and reads nothing that isn't there.  Run it with sanitizers.
 */


#include "decode.h"


#define MUTATIONS   200000
#define SEED_MAX    64
#define SEED_BYTES  1024


static struct {
    size_t   len;
    uint8_t  bytes[SEED_BYTES];
} seeds[SEED_MAX];

static size_t  nseeds;

static uint64_t  random_state = 1337;


static uint64_t
random_next(void)
{
    uint64_t  z;

    z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;

    return z ^ (z >> 31);
}


static void
seed_add(const void *bytes, size_t len)
{
    if (nseeds < SEED_MAX && len <= SEED_BYTES) {
        memcpy(seeds[nseeds].bytes, bytes, len);
        seeds[nseeds++].len = len;
    }
}


static void
seed_pack(const char *json)
{
    size_t   len;
    uint8_t  bytes[SEED_BYTES];

    len = pack(bytes, sizeof(bytes), json);
    seed_add(bytes, len);
}


static void
seed_text(const char *json)
{
    char  *text;

    text = quoted(json);
    seed_add(text, strlen(text));
    free(text);
}


static void
seeds_read(const char *dir)
{
    FILE    *f;
    char     path[1024], line[8192], *hex, *end;
    size_t   len;
    uint8_t  bytes[SEED_BYTES];

    snprintf(path, sizeof(path), "%s/kv_events.json", dir);

    f = fopen(path, "rb");
    if (f == NULL) {
        return;
    }

    while (fgets(line, sizeof(line), f) != NULL) {
        hex = strstr(line, "\"payload_hex\": \"");

        if (hex != NULL) {
            hex += sizeof("\"payload_hex\": \"") - 1;
            end = strchr(hex, '"');
            *end = '\0';
            len = unhex(bytes, hex);
            seed_add(bytes, len);
        }
    }

    fclose(f);
}


static void
seeds_write(void)
{
    static const char  json[] =
        "[{\"worker_id\":\"w\",\"storage_tier\":\"disk\",\"event\":{"
        "\"event_id\":1,\"data\":{\"stored\":{\"parent_hash\":5,\"blocks\":["
        "{\"block_hash\":1,\"tokens_hash\":2},{\"block_hash\":3,"
        "\"tokens_hash\":4}]}},\"dp_rank\":1}},{\"worker_id\":7,\"event\":{"
        "\"data\":{\"removed\":{\"block_hashes\":[1,2]}}}},{\"worker_id\":7,"
        "\"event\":{\"data\":\"cleared\"}}]";

    seed_add(json, sizeof(json) - 1);

    seed_text("[{'event_id':0,'window_size':64,'attention_dp_rank':1,'data':"
              "{'type':'created'}},{'event_id':1,'data':{'type':'stored',"
              "'parent_hash':null,'lora_name':'ad','blocks':[{'block_hash':"
              "18446744073709551615,'tokens':[{'token_id':5,"
              "'token_extra_id':0},{'token_id':6}],'cache_level':0,"
              "'cache_salt':'s','mm_keys':[{'hash':'0123456789abcdef'}]},"
              "{'block_hash':'-7','tokens':[7,8],'cache_level':1}]}},"
              "{'data':{'type':'updated','block_hash':9,'cache_level':"
              "{'old_value':0,'new_value':1}}},{'data':{'type':'removed',"
              "'block_hashes':[9,'ff00']}}]");
    seed_text("[1.5,[{'type':'BlockStored','block_hashes':[-7,'ff00'],"
              "'parent_block_hash':null,'token_ids':[1,2,300,70000],"
              "'block_size':2,'extra_keys':[null,[[]]]},['BlockRemoved',"
              "[7]]],3]");

    seed_pack("['kvr1', 'w:1', 5, 6, true, 9, null]");
    seed_pack("['kvr1', 'w:1', 5, 6, true, null, {'$bin': "
              "'9195a1730000c0c4080700000000000000'}]");
    seed_pack("[['s', 2, 1, 5, {'$bin': '0700000000000000'}, "
              "{'$bin': '0102030405060708'}], ['r', 1, 2, {'$bin': "
              "'0800000000000000'}], ['c', 1]]");
    seed_pack("[1.5, [['BlockStored', [7, 8], 5, [1, 2, 300, 70000], 2, 3, "
              "'CPU', 'ad', [['ad', ['0123456789abcdef', 3]], ["
              "'dynamo-cache-salt:t']], 1, 'full_attention', 5], "
              "{'type': 'BlockRemoved', 'block_hashes': [{'$bin': '0102'}, -5,"
              " 'abcdef'], 'remaining_copy_counts': [1, 2, 3], 'metadata': "
              "{'cache_salt': 'x'}, 'later': [[1], {'a': 2.5}]}], 3]");
    seed_pack("{'data_parallel_rank': 4, 'ts': 1.5, "
              "'events': [['BlockRemoved', [9]], ['AllBlocksCleared']]}");
    seed_pack("[1.5, [['BlockStored', [7], null, [[1, 2], [2, 3]], 2]]]");
}


/* Whatever comes, the events are no more than the bytes, and add up. */
static bool
sane(size_t len)
{
    uint32_t            i;
    const kvr_event_t  *ev;

    if (got.opened != KVR_OK) {
        return got.opened == KVR_INVALID && got.detail[0] != '\0';
    }

    if (got.n > len
        || (got.ended != KVR_DONE && got.ended != KVR_INVALID))
    {
        return false;
    }

    for (i = 0; i < kvr_min(got.n, DECODE_EVENTS); i++) {
        ev = &got.event[i].ev;

        if (ev->rank >= KVR_RANKS_MAX || ev->tier >= KVR_TIERS
            || ev->nhandles > len || ev->ntokens > len || ev->nlocals > len
            || ev->at != i || ev->source > i || (size_t) ev->nhandles + ev->nfiltered > len
            || (ev->verdict == KVR_KEEP && !ev->why != !ev->nfiltered)
            || (ev->verdict != KVR_KEEP && ev->why == 0)
            || (ev->verdict != KVR_KEEP && got.event[i].detail[0] == '\0'))
        {
            return false;
        }

        if (ev->verdict == KVR_KEEP && ev->kind == KVR_STORE
            && ((ev->ntokens != 0
                 && ev->ntokens != ev->nhandles * ev->block_size)
                || (ev->nlocals != 0 && ev->nlocals % ev->nhandles != 0)))
        {
            return false;
        }
    }

    return true;
}


static void
test_truncation(void)
{
    bool    good, whole;
    size_t  i, len, kept;

    good = true;
    whole = true;

    for (i = 0; i < nseeds; i++) {
        decode_bytes(seeds[i].bytes, seeds[i].len);
        kept = got.n;

        for (len = 0; len < seeds[i].len; len++) {
            decode_bytes(seeds[i].bytes, len);
            good = good && sane(len);
            whole = whole && got.n <= kept
                    && (got.opened == KVR_INVALID || got.ended == KVR_INVALID);
        }
    }

    ok(nseeds > 20, "there are %zu messages to be damaged", nseeds);
    ok(good, "a message cut short anywhere is decoded to its end");
    ok(whole, "a message cut short anywhere is told from a whole one");
}


static void
test_mutations(void)
{
    bool      good;
    size_t    i, k, n, len, seed;
    uint8_t   bytes[SEED_BYTES];
    uint64_t  kept;

    good = true;
    kept = 0;

    for (i = 0; i < MUTATIONS && good; i++) {
        seed = random_next() % nseeds;
        len = seeds[seed].len;
        memcpy(bytes, seeds[seed].bytes, len);

        n = 1 + random_next() % 4;

        for (k = 0; k < n; k++) {
            switch (random_next() % 4) {

            case 0:
                bytes[random_next() % len] = (uint8_t) random_next();
                break;

            case 1:
                bytes[random_next() % len] ^= (uint8_t) (1u << (random_next()
                                                                % 8));
                break;

            case 2:
                /* heads of containers and strings, as wide as they come */
                bytes[random_next() % len] = (uint8_t) (0xc0 + random_next()
                                                               % 0x20);
                break;

            default:
                memmove(&bytes[random_next() % len],
                        &bytes[len / 2], len - kvr_max(len / 2, 1));
                break;
            }
        }

        kvr_decoder_conf(decoder)->salted = random_next() % 2;
        decode_bytes(bytes, len);
        good = sane(len);
        kept += got.n;

        if (!good) {
            note("mutation %zu of message %zu", i, seed);
        }
    }

    kvr_decoder_conf(decoder)->salted = false;

    ok(good, "%d damaged messages are decoded to their ends", MUTATIONS);
    ok(kept > MUTATIONS / 10, "and many an event in them is read");
}


static void
test_counts(void)
{
    bool    good;
    size_t  i;

    static const char *const  big[] = {
        "dd00ffffffff", "ddffffffff", "dcffff", "dfffffffff", "deffff",
        "c6ffffffff00", "dbffffffff00", "c9ffffffff0100", "d9ff", "daffff",
        "92cb3ff0000000000000ddffffffff",
        "92cb3ff000000000000091ddffffffff",
        "92cb3ff000000000000091dfffffffff",
        "92cb3ff00000000000009195ab426c6f636b53746f726564ddffffffff",
        "92cb3ff00000000000009192ac426c6f636b52656d6f766564dd0fffffff0101",
        "92cb3ff00000000000009195ab426c6f636b53746f7265649107c0dd000ffffe01",
        "9191ddffffffff", "9194a1720000c6ffffffff", "81ddffffffff",
        "dd7fffffff", "df7fffffff"
    };

    uint8_t  bytes[64];

    good = true;

    for (i = 0; i < sizeof(big) / sizeof(big[0]); i++) {
        decode_bytes(bytes, unhex(bytes, big[i]));
        good = good && sane(sizeof(bytes)) && got.n == 0
               && (got.opened == KVR_INVALID || got.ended == KVR_INVALID);
    }

    ok(good, "a count larger than the bytes that are left is an error");
}


/* An event with a field of n arrays in one another, then a good event. */
static void
nested(size_t n)
{
    pack_t    out;
    size_t    i;
    uint8_t  *bytes;

    bytes = malloc(n + 256);
    out.pos = bytes;
    out.end = bytes + n + 256;

    pack_array(&out, 2);
    pack_f64(&out, 1.5);
    pack_array(&out, 2);
    pack_array(&out, 5);
    pack_str(&out, "BlockRemoved", 12);
    pack_array(&out, 1);
    pack_u64(&out, 7);
    pack_tag(&out, 0xc0, 0, 0);
    pack_tag(&out, 0xc0, 0, 0);

    for (i = 0; i < n; i++) {
        pack_array(&out, 1);
    }

    pack_u64(&out, 1);

    pack_array(&out, 2);
    pack_str(&out, "BlockRemoved", 12);
    pack_array(&out, 1);
    pack_u64(&out, 8);

    decode_bytes(bytes, (size_t) (out.pos - bytes));
    free(bytes);
}


static void
test_depth(void)
{
    pack_t    out;
    size_t    i, len;
    uint8_t  *bytes;

    nested(5);
    ok(got.n == 2 && got.ended == KVR_DONE
       && got.event[0].ev.verdict == KVR_KEEP
       && got.event[1].ev.verdict == KVR_KEEP,
       "eight containers in one another may be");

    nested(6);
    ok(got.n == 2 && got.ended == KVR_DONE
       && got.event[0].ev.verdict == KVR_REFUSED
       && got.event[0].ev.why == KVR_WHY_LIMIT
       && got.event[1].ev.verdict == KVR_KEEP
       && got.event[1].handles[0] == 8,
       "with nine the event is refused, and the next one is kept");

    nested(1000000);
    ok(got.n == 2 && got.ended == KVR_DONE
       && got.event[0].ev.verdict == KVR_REFUSED
       && got.event[1].ev.verdict == KVR_KEEP
       && got.event[1].handles[0] == 8,
       "with a million too");

    len = 1u << 20;
    bytes = malloc(len);

    memset(bytes, 0x91, len);
    decode_bytes(bytes, len);
    ok(sane(len) && got.ended == KVR_INVALID,
       "a million arrays that never end are an error");

    memset(bytes, 0x81, len);
    decode_bytes(bytes, len);
    ok(got.opened == KVR_INVALID, "a million maps that never end are too");

    /* one array of arrays, each as long as what is left */

    len = 1000000;
    out.pos = bytes;
    out.end = bytes + len;

    for (i = 0; i + 5 <= len; i += 5) {
        pack_tag(&out, 0xdd, len - i - 5, 4);
    }

    decode_bytes(bytes, (size_t) (out.pos - bytes));
    ok(sane(len) && got.ended == KVR_INVALID,
       "arrays that each claim all that is left are an error");

    free(bytes);
}


/* A batch of one store with so many blocks of so many tokens. */
static void
store(size_t blocks, size_t block_size, size_t tokens)
{
    pack_t    out;
    size_t    i, size;
    uint8_t  *bytes;

    size = blocks * 9 + tokens * 5 + 256;
    bytes = malloc(size);
    out.pos = bytes;
    out.end = bytes + size;

    pack_array(&out, 2);
    pack_f64(&out, 1.5);
    pack_array(&out, 2);
    pack_array(&out, 5);
    pack_str(&out, "BlockStored", 11);
    pack_array(&out, blocks);

    for (i = 0; i < blocks; i++) {
        pack_u64(&out, i);
    }

    pack_tag(&out, 0xc0, 0, 0);
    pack_array(&out, tokens);

    for (i = 0; i < tokens; i++) {
        pack_u64(&out, i);
    }

    pack_u64(&out, block_size);
    pack_array(&out, 1);
    pack_str(&out, "AllBlocksCleared", 16);

    decode_bytes(bytes, (size_t) (out.pos - bytes));
    free(bytes);
}


static void
test_limits(void)
{
    uint8_t  *bytes;

    store(KVR_EVENT_BLOCKS_MAX, 16, KVR_EVENT_TOKENS_MAX);
    ok(got.n == 2 && got.event[0].ev.verdict == KVR_KEEP
       && got.event[0].ev.nhandles == KVR_EVENT_BLOCKS_MAX
       && got.event[0].ev.ntokens == KVR_EVENT_TOKENS_MAX
       && got.event[0].tokens[255] == 255,
       "64 k blocks and 1 M tokens can be in one event");

    store(KVR_EVENT_BLOCKS_MAX + 1, 1, KVR_EVENT_BLOCKS_MAX + 1);
    ok(got.n == 2 && got.event[0].ev.verdict == KVR_REFUSED
       && got.event[0].ev.why == KVR_WHY_LIMIT
       && got.event[1].ev.verdict == KVR_KEEP,
       "one block more is refused, the next event kept");

    store(1, 1024, KVR_EVENT_TOKENS_MAX + 1);
    ok(got.n == 2 && got.event[0].ev.verdict == KVR_REFUSED
       && got.event[0].ev.why == KVR_WHY_LIMIT
       && got.event[1].ev.verdict == KVR_KEEP,
       "one token more is refused, the next event kept");

    store(2, 1024, 2048);
    ok(got.event[0].ev.verdict == KVR_KEEP, "a block may have 1024 tokens");

    store(2, 1025, 2050);
    ok(got.event[0].ev.verdict == KVR_REFUSED
       && got.event[0].ev.why == KVR_WHY_LIMIT,
       "a block of 1025 tokens is refused");

    bytes = calloc(1, KVR_MESSAGE_MAX + 1);
    bytes[0] = 0x90;
    decode_bytes(bytes, KVR_MESSAGE_MAX + 1);
    ok(got.opened == KVR_INVALID && got.why == KVR_WHY_LIMIT,
       "a message of more than 16 MiB is refused unread");

    kvr_decoder_conf(decoder)->message_max = KVR_MESSAGE_MAX + 1;
    decode_bytes(bytes, KVR_MESSAGE_MAX + 1);
    ok(got.why != KVR_WHY_LIMIT, "unless more is allowed");
    kvr_decoder_conf(decoder)->message_max = KVR_MESSAGE_MAX;
    free(bytes);
}


/* Decodes JSON with n times `of' in it. */
static void
repeated(const char *before, const char *of, size_t n, const char *after)
{
    char    *head, *text, *tail;
    size_t   i, len;

    head = quoted(before);
    tail = quoted(after);
    text = malloc(strlen(head) + n * strlen(of) + strlen(tail));

    len = strlen(head);
    memcpy(text, head, len);

    for (i = 0; i < n; i++) {
        memcpy(text + len, of, strlen(of));
        len += strlen(of);
    }

    memcpy(text + len, tail, strlen(tail));
    len += strlen(tail);

    decode_bytes(text, len);

    free(head);
    free(text);
    free(tail);
}


static void
test_long_tokens(void)
{
    bool    kept;
    size_t  i, k;

    static const struct {
        const char  *before;
        const char  *after;
        uint32_t     events;
    } messages[] = {
        { "{'worker_id':'w','x':'", "','event':{'data':'cleared'}}", 1 },
        { "{'", "':0,'worker_id':'w','event':{'data':'cleared'}}", 1 },
        { "[{'event_id':1,'data':{'type':'removed','x':'",
          "','block_hashes':[1]}}]", 3 },
        { "[{'", "':0,'event_id':1,'data':{'type':'removed',"
          "'block_hashes':[1]}}]", 3 },
        { "[{'type':'AllBlocksCleared','x':'", "'}]", 1 },
        { "[{'", "':0,'type':'AllBlocksCleared'}]", 1 }
    };

    static const char *const  fill[] = {
        "}", "x", "\\\"}", "{}", "\\u00e9", "\\\\", "\xc3\xa9}"
    };

    static const char *const  broken[] = {
        "\xff", "\xc3", "\xed\xa0\x80", "\xc0\x80", "\n", "\\x"
    };

    for (k = 0; k < sizeof(fill) / sizeof(fill[0]); k++) {

        kept = true;

        for (i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {

            repeated(messages[i].before, fill[k], 10000, messages[i].after);

            kept = kept && got.ended == KVR_DONE
                   && got.n == messages[i].events
                   && got.event[0].ev.verdict == KVR_KEEP;
        }

        ok(kept, "a string of 10,000 times %s is read, and the events are "
           "kept", fill[k]);
    }

    for (k = 0; k < sizeof(broken) / sizeof(broken[0]); k++) {

        kept = false;

        for (i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {

            repeated(messages[i].before, broken[k], 1, messages[i].after);

            kept = kept || got.n != 0
                   || (got.opened == KVR_OK && got.ended != KVR_INVALID);
        }

        ok(!kept, "what no string may have (%zu) breaks the message", k);
    }

    repeated("{'worker_id':1", "0", 10000, ",'event':{'x':{}}}");
    ok(got.n == 1 && got.event[0].ev.why == KVR_WHY_SYNTAX
       && got.ended == KVR_DONE,
       "an id of 10,000 digits is refused");

    repeated("{'worker_id':", " ", 10000, "1,'event':{'data':'cleared'}}");
    ok(got.n == 1 && got.event[0].ev.verdict == KVR_KEEP
       && got.ended == KVR_DONE,
       "10,000 spaces are passed over");

    repeated("{'worker_id':1,'event':{'data':'cleared'}}",
             "{\"worker_id\":2,\"x\":\"}\",\"event\":{\"data\":0}}", 100, "");
    ok(got.n == 101 && got.ended == KVR_DONE,
       "a hundred objects one after another are as many events");

    repeated("{'worker_id':1,'event':{'data':'cleared'},'x':'", "}", 10000,
             "");
    ok(got.n == 0 && got.ended == KVR_INVALID,
       "a string that never ends is an error");

    repeated("{'worker_id':1,'event':{'data':'cleared'}} '", "}", 10, "");
    ok(got.n == 1 && got.ended == KVR_INVALID,
       "and behind an event too, which is kept");

    repeated("{'worker_id':1,'event':{'data':'cleared'},'x':", "[", 63, "");
    ok(got.n == 0 && got.ended == KVR_INVALID,
       "lists that never end are an error");
}


static void
test_use(void)
{
    unsigned              i;
    kvr_why_t             why;
    kvr_event_t           ev;
    const char           *detail;
    kvr_message_t         msg;
    static const uint8_t  broken[] = { 0x92, 0x01, 0x91 };

    kvr_message_open(decoder, broken, sizeof(broken), &msg, &why, &detail);

    ok(kvr_decoder_next(decoder, &ev) == KVR_INVALID
       && kvr_decoder_next(decoder, &ev) == KVR_INVALID
       && kvr_decoder_next(decoder, &ev) == KVR_INVALID,
       "what is broken stays broken");

    decode("[1.5, [['BlockRemoved', [9]]]]");
    ok(got.n == 1 && got.ended == KVR_DONE
       && kvr_decoder_next(decoder, &ev) == KVR_DONE,
       "a decoder that met a broken message reads the next one");

    for (i = 0; i < KVR_WHYS; i++) {
        if (kvr_why_name((kvr_why_t) i) == NULL
            || kvr_why_name((kvr_why_t) i)[0] == '\0')
        {
            break;
        }
    }

    ok(i == KVR_WHYS, "every reason has a name");

    while (i < 256 && kvr_why_class((kvr_why_t) i) == KVR_WHY_IS_FORGOTTEN) {
        i++;
    }

    ok(i == 256, "a byte that is no reason has a class");

    kvr_decoder_destroy(NULL);
    ok(true, "destroying no decoder is nothing");
}


int
main(int argc, char **argv)
{
    const char  *dir;

    dir = (argc > 1) ? argv[1] : getenv("KVR_VECTORS");

    decoder = kvr_decoder_create();

    seeds_read(dir != NULL ? dir : "t/vectors");
    seeds_write();

    test_truncation();
    test_mutations();
    test_counts();
    test_depth();
    test_limits();
    test_long_tokens();
    test_use();

    kvr_decoder_destroy(decoder);

    return done();
}
