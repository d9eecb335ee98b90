/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Engine batches, and the vectors of t/vectors.
 */


#include "decode.h"


/* The vectors. */


static yajl_val
member(yajl_val object, const char *name)
{
    const char  *path[] = { name, NULL };

    return yajl_tree_get(object, path, yajl_t_any);
}


static char *
vectors_read(const char *dir)
{
    FILE  *f;
    char   path[1024], *text;
    long   len;

    snprintf(path, sizeof(path), "%s/kv_events.json", dir);

    f = fopen(path, "rb");
    if (f == NULL) {
        return NULL;
    }

    fseek(f, 0, SEEK_END);
    len = ftell(f);
    rewind(f);

    text = calloc(1, (size_t) len + 1);
    len = (long) fread(text, 1, (size_t) len, f);
    fclose(f);

    return text;
}


static kvr_tier_t
vector_tier(yajl_val medium)
{
    const char  *name;

    name = YAJL_GET_STRING(medium);

    if (name == NULL || name[0] == 'G' || name[0] == 'g') {
        return KVR_DEVICE;
    }

    return name[0] == 'D' ? KVR_DISK : KVR_HOST;
}


static bool
vector_numbers(yajl_val list, const uint64_t *u64s, const uint32_t *u32s,
    uint32_t n)
{
    size_t    i;
    uint64_t  want;

    if (!YAJL_IS_ARRAY(list) || list->u.array.len != n) {
        return false;
    }

    for (i = 0; i < n; i++) {
        want = strtoull(list->u.array.values[i]->u.number.r, NULL, 10);

        if (want != (u64s != NULL ? u64s[i] : u32s[i])) {
            return false;
        }
    }

    return true;
}


static bool
vector_string(yajl_val want, const char *text)
{
    const char  *name;

    name = YAJL_GET_STRING(want);

    return strcmp(text, name != NULL ? name : "") == 0;
}


static bool
vector_event(yajl_val want, const decoded_event_t *e)
{
    yajl_val            v, group, lora_name;
    kvr_why_t           why;
    const char         *op;
    const kvr_event_t  *ev;

    ev = &e->ev;
    op = YAJL_GET_STRING(member(want, "op"));

    if (strcmp(op, "cleared") == 0) {
        return ev->kind == KVR_CLEAR && ev->verdict == KVR_KEEP;
    }

    if (ev->kind != (strcmp(op, "stored") == 0 ? KVR_STORE : KVR_REMOVE)
        || ev->tier != vector_tier(member(want, "medium"))
        || !vector_numbers(member(want, "hashes"), e->handles, NULL,
                           ev->nhandles))
    {
        return false;
    }

    v = member(want, "dp_rank");

    if (ev->rank != (v != NULL ? (uint32_t) YAJL_GET_INTEGER(v) : 0)) {
        return false;
    }

    group = member(want, "group_idx");
    lora_name = member(want, "lora_name");

    if (ev->kind == KVR_STORE) {
        v = member(want, "parent");

        if (ev->has_parent != YAJL_IS_NUMBER(v)
            || (ev->has_parent
                && ev->parent != (uint64_t) YAJL_GET_INTEGER(v))
            || !vector_numbers(member(want, "tokens"), NULL, e->tokens,
                               ev->ntokens)
            || ev->block_size != YAJL_GET_INTEGER(member(want, "block_size"))
            || ev->nlocals != 0)
        {
            return false;
        }

        if (!vector_string(lora_name, e->lora)
            || !vector_string(member(want, "cache_salt"), e->salt))
        {
            return false;
        }
    }

    /* what the decoder keeps from being used, fields and all */

    why = KVR_WHY_NONE;

    if (group != NULL && YAJL_GET_INTEGER(group) != 0) {
        why = KVR_WHY_GROUP;

    } else if (member(want, "extra_keys") != NULL) {
        why = KVR_WHY_EXTRA_KEY;
    }

    if (group != NULL && ev->group != YAJL_GET_INTEGER(group)) {
        return false;
    }

    return ev->why == why
           && ev->verdict == (why == KVR_WHY_NONE ? KVR_KEEP : KVR_FILTERED);
}


static void
test_vectors(const char *dir)
{
    bool         good;
    char        *text;
    size_t       i, k, len, packed;
    uint8_t      bytes[4096], again[4096];
    yajl_val     tree, cases, c, expect, error, from;
    pack_t       out;
    const char  *name;

    text = vectors_read(dir);

    if (!ok(text != NULL, "the vectors are in %s", dir)) {
        return;
    }

    tree = yajl_tree_parse(text, NULL, 0);
    cases = member(tree, "cases");

    for (i = 0; i < cases->u.array.len; i++) {
        c = cases->u.array.values[i];
        name = YAJL_GET_STRING(member(c, "name"));
        expect = member(c, "expect");
        error = member(c, "error");
        from = member(c, "tree");

        len = unhex(bytes, YAJL_GET_STRING(member(c, "payload_hex")));

        if (from != NULL) {
            out.pos = again;
            out.end = again + sizeof(again);
            pack_tree(&out, from);
            packed = (size_t) (out.pos - again);

            ok(packed == len && memcmp(again, bytes, len) == 0,
               "vector %s: its tree and its bytes agree", name);
        }

        decode_bytes(bytes, len);

        if (YAJL_IS_NULL(expect)) {
            ok(got.opened == KVR_INVALID && got.detail[0] != '\0',
               "vector %s is not a batch", name);
            continue;
        }

        good = got.opened == KVR_OK && got.ended == KVR_DONE
               && got.msg.form == KVR_FORM_BARE && !got.msg.counted;

        if (error != NULL) {
            good = good && got.n == 1
                   && got.event[0].ev.verdict == KVR_REFUSED
                   && got.event[0].ev.why == KVR_WHY_TYPE;

            ok(good, "vector %s: the event is refused", name);
            continue;
        }

        good = good && got.n == expect->u.array.len;

        for (k = 0; good && k < got.n; k++) {
            good = vector_event(expect->u.array.values[k], &got.event[k])
                   && got.event[k].ev.at == k;
        }

        ok(good, "vector %s: every field is as expected", name);
    }

    yajl_tree_free(tree);
    free(text);
}


/* Engine batches. */


static void
test_media(void)
{
    size_t  i;
    char    json[256];

    static const struct {
        const char  *medium;
        kvr_tier_t   tier;
    } media[] = {
        { "null", KVR_DEVICE }, { "''", KVR_DEVICE }, { "'GPU'", KVR_DEVICE },
        { "'gpu'", KVR_DEVICE }, { "'Device'", KVR_DEVICE },
        { "'CPU'", KVR_HOST }, { "'cpu_pinned'", KVR_HOST },
        { "'CPU_TIER1'", KVR_HOST }, { "'CPU_TIER2'", KVR_DISK },
        { "'DISK'", KVR_DISK }, { "'nvme'", KVR_DISK },
        { "'STORAGE'", KVR_DISK }, { "'FS'", KVR_DISK },
        { "'EXTERNAL'", KVR_EXTERNAL }, { "'NETWORK'", KVR_EXTERNAL },
        { "'REMOTE'", KVR_EXTERNAL }, { "'shared'", KVR_EXTERNAL },
        { "'OBJ'", KVR_EXTERNAL }
    };

    static const char *const  foreign[] = {
        "'TAPE'", "'GPU '", "'GP'", "7", "['GPU']", "{'$bin': '475055'}"
    };

    for (i = 0; i < sizeof(media) / sizeof(media[0]); i++) {
        snprintf(json, sizeof(json),
                 "['BlockStored', [7], null, [1, 2], 2, null, %s]",
                 media[i].medium);

        ok(decode_event(json, KVR_KEEP, KVR_WHY_NONE)
           && got.event[0].ev.tier == media[i].tier,
           "medium %s is tier %d", media[i].medium, media[i].tier);
    }

    for (i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        snprintf(json, sizeof(json), "['BlockRemoved', [7], %s]", foreign[i]);

        ok(decode_event(json, KVR_FILTERED, KVR_WHY_MEDIUM)
           && got.event[0].ev.nhandles == 1,
           "medium %s is filtered, its handles known", foreign[i]);
    }

    ok(decode_event("['BlockStored', [7], null, [1, 2]]", KVR_REFUSED,
                    KVR_WHY_SYNTAX),
       "a store without block_size is refused");

    ok(decode_event("['BlockStored', [7], null, [1, 2], 2]", KVR_KEEP,
                    KVR_WHY_NONE) && got.event[0].ev.tier == KVR_DEVICE,
       "a missing medium is the device");
}


static void
test_hashes(void)
{
    size_t  i;
    char    json[512];

    static const struct {
        const char  *form;
        const char  *json;
        uint64_t     hash;
    } hashes[] = {
        { "a u64", "18446744073709551615", UINT64_MAX },
        { "a fixint", "5", 5 },
        { "a negative fixint, by its bits", "-1", UINT64_MAX },
        { "an i8", "-100", (uint64_t) -100 },
        { "an i16", "-1000", (uint64_t) -1000 },
        { "an i32", "-100000", (uint64_t) -100000 },
        { "an i64, by its bits", "-9223372036854775807",
          0x8000000000000001u },
        { "a positive i64", "{'$hex': 'd30000000000000007'}", 7 },
        { "bin of 8 bytes", "{'$bin': '0102030405060708'}",
          0x0102030405060708u },
        { "bin of 32 bytes, the last 8", "{'$bin': '000102030405060708090a0b"
          "0c0d0e0f101112131415161718191a1b1c1d1e1f'}", 0x18191a1b1c1d1e1fu },
        { "bin of 3 bytes, padded on the left", "{'$bin': 'ff0001'}",
          0xff0001 },
        { "a str of bytes, the last 8", "'xxABCDwxyz'", 0x414243447778797au },
        { "a hex string of 64 digits", "'000102030405060708090a0b0c0d0e0f1011"
          "12131415161718191A1b1c1d1e1f'", 0x18191a1b1c1d1e1fu },
        { "a hex string of 4 digits", "'00fe'", 0xfe }
    };

    static const char *const  bad[] = {
        "1.5", "true", "null", "[7]", "{'a': 1}", "'short'", "''",
        "{'$bin': ''}", "{'$hex': 'd60102030405'}"
    };

    for (i = 0; i < sizeof(hashes) / sizeof(hashes[0]); i++) {
        snprintf(json, sizeof(json), "['BlockStored', [%s], %s, [1], 1]",
                 hashes[i].json, hashes[i].json);

        ok(decode_event(json, KVR_KEEP, KVR_WHY_NONE)
           && got.event[0].handles[0] == hashes[i].hash
           && got.event[0].ev.has_parent
           && got.event[0].ev.parent == hashes[i].hash,
           "a hash may be %s", hashes[i].form);
    }

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(json, sizeof(json),
                 "[1.5, [['BlockRemoved', [3, %s, 4]], "
                 "['BlockRemoved', [9]]]]",
                 bad[i]);
        decode(json);

        ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 2
           && got.event[0].ev.verdict == KVR_REFUSED
           && got.event[0].ev.why == KVR_WHY_SYNTAX
           && got.event[1].ev.verdict == KVR_KEEP
           && got.event[1].handles[0] == 9,
           "a hash may not be %s, and the next event is kept", bad[i]);
    }
}


static void
test_groups(void)
{
    ok(decode_event("['BlockStored', [7], null, [1], 1, null, 'GPU', null,"
                    " null, 1, 'full_attention']", KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.group == 1
       && got.event[0].ev.group_kind == KVR_GROUP_INDEXED,
       "full attention is indexed in any group");

    ok(decode_event("{'type': 'BlockStored', 'block_hashes': [7], "
                    "'parent_block_hash': null, 'token_ids': [1], "
                    "'block_size': 1, 'group_idx': 2, "
                    "'kv_cache_spec_kind': 'mla_attention'}",
                    KVR_KEEP, KVR_WHY_NONE),
       "MLA attention is indexed, in a map too");

    ok(decode_event("['BlockStored', [7], null, [1], 1, null, 'GPU', null,"
                    " null, 0, 'sink_full_attention', 4096]",
                    KVR_KEEP, KVR_WHY_NONE),
       "full attention with a sink is indexed");

    ok(decode_event("['BlockStored', [7], null, [1], 1, null, 'GPU', null,"
                    " null, 0, 'sliding_window', 4096]",
                    KVR_FILTERED, KVR_WHY_GROUP)
       && got.event[0].ev.group_kind == KVR_GROUP_WINDOW
       && got.event[0].ev.group_window == 4096,
       "a sliding window is filtered in group 0 too");

    ok(decode_event("['BlockStored', [7], null, [1], 1, null, 'GPU', null,"
                    " null, 1]", KVR_FILTERED, KVR_WHY_GROUP)
       && got.event[0].ev.group_kind == KVR_GROUP_UNSAID,
       "without a kind, only group 0 is indexed");

    ok(decode_event("['BlockStored', [7], null, [1], 1, null, 'GPU', null,"
                    " null, 0]", KVR_KEEP, KVR_WHY_NONE),
       "group 0 needs no kind");

    ok(decode_event("['BlockStored', [7, 8], null, [1, 2, 3], 1, null, 'GPU',"
                    " null, null, 1, 'mamba']", KVR_FILTERED, KVR_WHY_GROUP),
       "a group is filtered before lengths are looked at");

    ok(decode_event("{'type': 'BlockRemoved', 'block_hashes': [7], "
                    "'locality': 'REMOTE'}", KVR_FILTERED, KVR_WHY_LOCALITY),
       "a removal elsewhere is filtered");

    ok(decode_event("{'type': 'BlockRemoved', 'block_hashes': [7], "
                    "'locality': 'LOCAL'}", KVR_KEEP, KVR_WHY_NONE),
       "a removal here is kept");

    ok(decode_event("{'type': 'BlockRemoved', 'block_hashes': [7, 8], "
                    "'remaining_copy_counts': [0, 3]}",
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.remaining != NULL
       && got.event[0].remaining[0] == 0 && got.event[0].remaining[1] == 3,
       "remaining copies come with a removal");

    ok(decode_event("{'type': 'BlockRemoved', 'block_hashes': [7, 8], "
                    "'remaining_copy_counts': [0]}",
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.remaining == NULL,
       "remaining copies that don't fit are passed over");

    ok(decode_event("{'type': 'BlockRemoved', 'block_hashes': [7], "
                    "'lora_name': 7, 'parent_block_hash': {}, 'token_ids': "
                    "[-1], 'block_size': 'x', 'metadata': 7, "
                    "'additional_salt': 7, 'extra_keys': 7}",
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.nhandles == 1 && got.event[0].handles[0] == 7,
       "a removal has blocks, whatever else is wrong with it");

    ok(decode_event("{'type': 'BlockRemoved', 'block_hashes': [7], "
                    "'group_idx': 'x'}", KVR_REFUSED, KVR_WHY_SYNTAX)
       && decode_event("{'type': 'BlockRemoved', 'block_hashes': [7], "
                       "'dp_rank': 1024}", KVR_REFUSED, KVR_WHY_RANK)
       && decode_event("{'type': 'BlockRemoved', 'block_hashes': [1.5]}",
                       KVR_REFUSED, KVR_WHY_SYNTAX)
       && decode_event("{'lora_name': 7, 'group_idx': 0, 'dp_rank': 'x', "
                       "'type': 'BlockRemoved', 'block_hashes': [7]}",
                       KVR_REFUSED, KVR_WHY_RANK),
       "but not without its hashes, group and rank");

    ok(decode_event("{'type': 'AllBlocksCleared', 'block_hashes': [1.5], "
                    "'group_idx': 'x', 'lora_name': 7}",
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.kind == KVR_CLEAR
       && got.event[0].ev.nhandles == 0,
       "a clear has a rank, whatever else is wrong with it");

    ok(decode_event("{'type': 'AllBlocksCleared', 'dp_rank': 'x'}",
                    KVR_REFUSED, KVR_WHY_RANK),
       "but not without its rank");

    ok(decode_event("{'type': 'BlockStored', 'block_hashes': [7], "
                    "'parent_block_hash': null, 'token_ids': [1, 2], "
                    "'block_size': 2, 'origin': 'REUSED'}",
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.reused
       && decode_event("{'type': 'BlockStored', 'block_hashes': [7], "
                       "'parent_block_hash': null, 'token_ids': [1, 2], "
                       "'block_size': 2, 'origin': 'NEW'}",
                       KVR_KEEP, KVR_WHY_NONE)
       && !got.event[0].ev.reused,
       "an origin tells a block announced again from a new copy");
}


static void
test_extra_keys(void)
{
#define ID  "0123456789abcdef00112233445566778899aabbccddeeff" \
            "fedcba9876543210"

#define STORE(parent, lora, keys)                                             \
    "['BlockStored', [7, 8], " parent ", [1, 2, 3, 4], 2, null, 'GPU', "      \
    lora ", " keys "]"

    ok(decode_event(STORE("null", "'ad'", "[['ad'], ['ad']]"),
                    KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].lora, "ad") == 0
       && got.event[0].ev.mm_start == NULL && got.event[0].ev.salt_len == 0,
       "an extra key may be the LoRA's name");

    ok(decode_event(STORE("null", "'ad'", "[['ad', 'ad'], ['ad']]"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "a second key that is the LoRA's name can't be classified");

    kvr_decoder_conf(decoder)->salted = true;

    ok(decode_event(STORE("null", "'ad'", "[['ad', 'ad'], ['ad']]"),
                    KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].lora, "ad") == 0
       && strcmp(got.event[0].salt, "ad") == 0,
       "where salts are there it is a salt");
    ok(decode_event(STORE("null", "'ad'", "[['ad', 's'], ['ad']]"),
                    KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, "s") == 0,
       "as any other second key is");

    kvr_decoder_conf(decoder)->salted = false;

    ok(decode_event(STORE("null", "null", "[['ad'], ['ad']]"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "a name that isn't the LoRA's can't be classified");

    ok(decode_event(STORE("null", "null", "[['" ID "'], null]"),
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.mm_start != NULL
       && got.event[0].mm_start[0] == 0 && got.event[0].mm_start[1] == 1
       && got.event[0].mm_start[2] == 1
       && got.event[0].mm[0] == 0x0123456789abcdefu,
       "64 hex digits are multimodal, of the block they are with");

    ok(decode_event(STORE("5", "null", "[null, [['" ID "', -3], "
                          "['fedcba9876543210', 4]]]"),
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].mm_start[1] == 0 && got.event[0].mm_start[2] == 2
       && got.event[0].mm[0] == 0x0123456789abcdefu
       && got.event[0].mm[1] == 0xfedcba9876543210u,
       "a pair of identifier and offset is multimodal");

    ok(decode_event(STORE("5", "null", "[[['uuid-a', 4]], null]"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "an identifier without hex digits has no hash");

    ok(decode_event(STORE("5", "null", "[['" ID "'], [['uuid-a', 4]]]"),
                    KVR_KEEP, KVR_WHY_EXTRA_KEY)
       && got.event[0].ev.nhandles == 1 && got.event[0].ev.nfiltered == 1
       && got.event[0].ev.ntokens == 2 && got.event[0].mm_start[1] == 1
       && got.event[0].ev.handles[1] == 8,
       "the blocks before the one that can't be classified are kept");

    ok(decode_event(STORE("null", "'ad'", "[['ad', '" ID
                          "', 'dynamo-cache-salt:t'], ['ad']]"), KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, "t") == 0
       && got.event[0].mm_start[2] == 1,
       "a tagged salt, an image and a LoRA can be told apart");

    ok(decode_event(STORE("null", "null", "[['dynamo-cache-salt:t'], "
                          "['dynamo-cache-salt:t']]"),
                    KVR_KEEP, KVR_WHY_EXTRA_KEY)
       && got.event[0].ev.nhandles == 1 && got.event[0].ev.nfiltered == 1
       && strcmp(got.event[0].salt, "t") == 0
       && decode_event(STORE("null", "null",
                             "[null, ['dynamo-cache-salt:t']]"),
                       KVR_KEEP, KVR_WHY_EXTRA_KEY)
       && got.event[0].ev.nhandles == 1 && got.event[0].ev.salt_len == 0,
       "a tagged salt on a later block is filtered, and salts none before it");

    ok(decode_event(STORE("5", "null", "[['dynamo-cache-salt:t'], null]"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY)
       && decode_event(STORE("5", "{'cache_salt': 't'}",
                             "[['dynamo-cache-salt:t'], null]"),
                       KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "a tagged salt in the middle of a chain is filtered");

    ok(decode_event(STORE("null", "{'cache_salt': 't'}",
                          "[['dynamo-cache-salt:u'], null]"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "two salts that differ can't be classified");

    ok(decode_event(STORE("null", "null", "[['s3cret'], null]"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY)
       && got.event[0].ev.nhandles == 2 && got.event[0].ev.ntokens == 4,
       "a bare string is filtered where salts are not expected");

    kvr_decoder_conf(decoder)->salted = true;

    ok(decode_event(STORE("null", "null", "[['s3cret'], null]"),
                    KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, "s3cret") == 0,
       "with salted=on it is the salt");

    ok(decode_event(STORE("null", "null", "[['s3cret', 'other'], null]"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "with salted=on, a second one is filtered");

    ok(decode_event(STORE("null", "null", "[null, ['s3cret']]"),
                    KVR_KEEP, KVR_WHY_EXTRA_KEY)
       && got.event[0].ev.nhandles == 1 && got.event[0].ev.nfiltered == 1,
       "with salted=on, one on a later block is filtered");

    ok(decode_event(STORE("5", "null", "[['s3cret'], null]"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "with salted=on, one in the middle of a chain is filtered");

    ok(decode_event(STORE("null", "null", "[['" ID "'], null]"),
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.salt_len == 0 && got.event[0].ev.mm_start != NULL,
       "with salted=on, 64 hex digits are an image where no kind is said");

    ok(decode_event(STORE("null", "null", "[[['" ID "', 0], '" ID "'], null], "
                          "0, 'full_attention'"), KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, ID) == 0
       && got.event[0].mm_start[2] == 1,
       "where one is, images come with an offset: it is the salt");

    ok(decode_event(STORE("null", "null", "[['" ID "'], ['" ID "']], 0, "
                          "'full_attention'"), KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, ID) == 0
       && got.event[0].mm_start[1] == 0 && got.event[0].mm_start[2] == 1
       && decode_event(STORE("null", "null", "[['" ID "', 'other'], null], 0, "
                             "'full_attention'"),
                       KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "on the first block, and once");

    kvr_decoder_conf(decoder)->salted = false;

    ok(decode_event(STORE("null", "null", "[[5], null]"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY)
       && decode_event(STORE("null", "null", "[[{'$bin': '00'}], null]"),
                       KVR_FILTERED, KVR_WHY_EXTRA_KEY)
       && decode_event(STORE("null", "null", "'key'"),
                       KVR_FILTERED, KVR_WHY_EXTRA_KEY)
       && decode_event(STORE("null", "null", "['key', null]"),
                       KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "numbers, bytes and bare keys can't be classified");

    ok(decode_event(STORE("null", "null", "[['" ID "']]"),
                    KVR_REFUSED, KVR_WHY_LENGTH)
       && got.event[0].ev.mm_start == NULL,
       "extra keys that are not one a block are refused");

    ok(decode_event(STORE("null", "null", "[[], [null]]"),
                    KVR_KEEP, KVR_WHY_NONE)
       && decode_event(STORE("null", "null", "[]"), KVR_KEEP, KVR_WHY_NONE),
       "empty extra keys are none");

    ok(decode_event("{'extra_keys': [['ad']], 'lora_name': 'ad', "
                    "'block_size': 1, 'token_ids': [9], "
                    "'parent_block_hash': null, 'block_hashes': [7], "
                    "'lora_id': 3, 'medium': 'CPU', 'later': {'x': [1]}, "
                    "'event_type': 'BlockStored', 'dp_rank': 5}",
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.rank == 5 && got.event[0].ev.tier == KVR_HOST
       && strcmp(got.event[0].lora, "ad") == 0,
       "a map's fields come in any order, the tag last");
}


static void
test_stores(void)
{
    ok(decode_event("['BlockStored', [7], null, [], 0, null, 'CPU']",
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.ntokens == 0 && got.event[0].ev.nlocals == 0
       && got.event[0].ev.nhandles == 1 && got.event[0].ev.block_size == 0
       && got.event[0].ev.tier == KVR_HOST,
       "an offload event has neither tokens nor locals");

    ok(decode_event("['BlockStored', [7], null, [], 16, 5, 'CPU', null, "
                    "[['what']]]", KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.block_size == 0,
       "where there is nothing to hash, no key and no block size matters");

    ok(decode_event("['BlockStored', [7], null, [1, 2], 2, 0]",
                    KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].lora, "0") == 0
       && decode_event("['BlockStored', [7], null, [1, 2], 2, "
                       "18446744073709551615]", KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].lora, "18446744073709551615") == 0,
       "a LoRA known by number only has the number as its name");

    ok(decode_event("['BlockStored', [7], null, [1, 2], 2, -3]",
                    KVR_FILTERED, KVR_WHY_LORA_ID)
       && decode_event("['BlockStored', [7], null, [1, 2], 2, 'a']",
                       KVR_FILTERED, KVR_WHY_LORA_ID)
       && got.event[0].ev.ntokens == 2,
       "one with neither a name nor a number is filtered");

    ok(decode_event("['BlockStored', [7, 8], null, [[1, 2], [2, 3], [3, 4], "
                    "[4, 5]], 2]", KVR_FILTERED, KVR_WHY_BIGRAM)
       && got.event[0].ev.nhandles == 2 && got.event[0].detail[0] != '\0',
       "token pairs are filtered, and the detail says so");

    ok(decode_event("['BlockStored', [7, 8], null, [1, 2, 3], 2]",
                    KVR_KEEP, KVR_WHY_PARTIAL)
       && got.event[0].ev.nhandles == 1 && got.event[0].ev.nfiltered == 1
       && got.event[0].ev.ntokens == 2
       && decode_event("['BlockStored', [7], null, [1], 2]",
                       KVR_FILTERED, KVR_WHY_PARTIAL),
       "a partial last block is filtered, and no other");

    ok(decode_event("['BlockStored', [7, 8], null, [1, 2], 2]",
                    KVR_REFUSED, KVR_WHY_LENGTH)
       && decode_event("['BlockStored', [7], null, [1, 2, 3], 2]",
                       KVR_REFUSED, KVR_WHY_LENGTH)
       && decode_event("['BlockStored', [], null, [1], 1]",
                       KVR_REFUSED, KVR_WHY_LENGTH)
       && decode_event("['BlockStored', [7], null, [1], 0]",
                       KVR_REFUSED, KVR_WHY_LENGTH),
       "tokens that are not block_size a hash are refused");

    ok(decode_event("['BlockStored', [7], null, [1], 1025]",
                    KVR_FILTERED, KVR_WHY_PARTIAL)
       && decode_event("['BlockStored', [7], null, [1], 4294967296]",
                       KVR_REFUSED, KVR_WHY_SYNTAX),
       "block sizes have a bound");

    ok(decode_event("['BlockStored', [7], null, [0, 127, 128, 255, 256, "
                    "65535, 65536, 4294967295, {'$hex': 'd205060708'}, "
                    "{'$hex': 'cf0000000000000001'}], 10]",
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].tokens[1] == 127 && got.event[0].tokens[2] == 128
       && got.event[0].tokens[3] == 255 && got.event[0].tokens[4] == 256
       && got.event[0].tokens[5] == 65535 && got.event[0].tokens[6] == 65536
       && got.event[0].tokens[7] == UINT32_MAX
       && got.event[0].tokens[8] == 0x05060708
       && got.event[0].tokens[9] == 1,
       "tokens come in every width of an integer");

    ok(decode_event("['BlockStored', [7], null, [1, -1], 2]",
                    KVR_REFUSED, KVR_WHY_SYNTAX)
       && decode_event("['BlockStored', [7], null, [4294967296], 1]",
                       KVR_REFUSED, KVR_WHY_SYNTAX)
       && decode_event("['BlockStored', [7], null, [1, [2, 3]], 2]",
                       KVR_REFUSED, KVR_WHY_SYNTAX)
       && decode_event("['BlockStored', [7], null, 'abc', 2]",
                       KVR_REFUSED, KVR_WHY_SYNTAX),
       "what isn't a token id is refused");

    ok(decode_event("{'type': 'BlockStored', 'block_hashes': [7], "
                    "'token_ids': [1], 'block_size': 1}",
                    KVR_REFUSED, KVR_WHY_SYNTAX),
       "a store that doesn't say its parent isn't put at the root");

    ok(decode_event("{'event_type': 'stored', 'seq_hashes': [7], "
                    "'base_block_idx': 0, 'parent_hash': null, "
                    "'token_ids': [1], 'block_size': 1, 'medium': 'cpu', "
                    "'additional_salt': 's', 'dp_rank': 2}",
                    KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, "s") == 0 && got.event[0].ev.rank == 2,
       "RFC 1527's names are understood");

    ok(decode_event("{'event_type': 'stored', 'seq_hashes': [7], "
                    "'base_block_idx': 3, 'parent_hash': null, "
                    "'token_ids': [1], 'block_size': 1}",
                    KVR_REFUSED, KVR_WHY_PARENT),
       "a block off the root without a parent isn't put at the root");

    ok(decode_event("['BlockMoved', [7]]", KVR_REFUSED, KVR_WHY_TYPE)
       && decode_event("[]", KVR_REFUSED, KVR_WHY_TYPE)
       && decode_event("[7, [7]]", KVR_REFUSED, KVR_WHY_TYPE)
       && decode_event("{}", KVR_REFUSED, KVR_WHY_TYPE)
       && decode_event("7", KVR_REFUSED, KVR_WHY_TYPE)
       && decode_event("null", KVR_REFUSED, KVR_WHY_TYPE),
       "an event without a type we know is refused");

    ok(decode_event("{'type': 'BlockRemoved', 'event_type': 'cleared', "
                    "'block_hashes': [7]}", KVR_REFUSED, KVR_WHY_TYPE)
       && decode_event("{'event_type': 'AllBlocksCleared', 'type': "
                       "'BlockRemoved', 'block_hashes': [7]}",
                       KVR_REFUSED, KVR_WHY_TYPE)
       && decode_event("{'type': 'BlockRemoved', 'block_hashes': [7], "
                       "'event_type': 'evicted'}",
                       KVR_REFUSED, KVR_WHY_TYPE)
       && decode_event("{'type': 'evicted', 'block_hashes': [7], "
                       "'event_type': 'removed', 'medium': 'TAPE'}",
                       KVR_REFUSED, KVR_WHY_TYPE)
       && strstr(got.event[0].detail, "disagree") != NULL,
       "an event of two types is refused, whichever comes last");

    ok(decode_event("{'type': 'BlockRemoved', 'event_type': 'removed', "
                    "'block_hashes': [7]}", KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.kind == KVR_REMOVE
       && decode_event("{'type': 'BlockRemoved', 'event_type': null, "
                       "'block_hashes': [7]}", KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.kind == KVR_REMOVE,
       "one type under two names is one");

    ok(decode_event("['AllBlocksCleared', 'GPU', {'a': 1}]",
                    KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.kind == KVR_CLEAR,
       "a clear may have fields that we ignore");
}


static void
test_batches(void)
{
    decode("[1.5, [['BlockRemoved', 5], ['BlockMoved'], 3, "
           "['BlockRemoved', [9]], ['BlockRemoved', [8], 'TAPE'], "
           "['BlockStored', [7], null, [1], 1]], 3, 'later']");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 6
       && got.event[0].ev.verdict == KVR_REFUSED
       && got.event[1].ev.verdict == KVR_REFUSED
       && got.event[2].ev.verdict == KVR_REFUSED
       && got.event[3].ev.verdict == KVR_KEEP
       && got.event[4].ev.verdict == KVR_FILTERED
       && got.event[5].ev.verdict == KVR_KEEP && got.event[5].ev.at == 5
       && got.event[5].tokens[0] == 1,
       "each event of a batch stands alone");

    ok(got.event[0].ev.rank == 3 && got.event[5].ev.rank == 3,
       "events have the batch's rank, which comes after them");

    decode("{'data_parallel_rank': 4, 'more': [[1]], 'ts': 1.5, "
           "'events': [['BlockRemoved', [9]]]}");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 1
       && got.event[0].ev.rank == 4 && got.event[0].handles[0] == 9,
       "a batch may be a map");

    decode("{'events': [['BlockRemoved', [9]]], 'data_parallel_rank': 4}");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 1
       && got.event[0].ev.rank == 4,
       "a map's rank may come after its events");

    decode("{'attn_dp_rank': 4, 'events': [['BlockRemoved', [9]]]}");
    ok(got.n == 1 && got.event[0].ev.rank == 4, "and be called as in SGLang");

    decode("{'events': [['BlockRemoved', [9]]], 'dp_rank': 4}");
    ok(got.n == 1 && got.event[0].ev.rank == 4, "or as in its events");

    kvr_decoder_conf(decoder)->rank = 2;

    decode("[1.5, [['BlockRemoved', [9]]]]");
    ok(got.n == 1 && got.event[0].ev.rank == 2,
       "a batch that names no rank is of the usual one");

    decode("[1.5, [['BlockRemoved', [9]]], null]");
    ok(got.n == 1 && got.event[0].ev.rank == 2,
       "a rank that is nil names none");

    decode("[1.5, [['BlockRemoved', [9]], {'type': 'BlockRemoved', "
           "'block_hashes': [9], 'dp_rank': 1}], 0]");
    ok(got.n == 2 && got.event[0].ev.rank == 0 && got.event[1].ev.rank == 1,
       "a batch that names rank 0 is of rank 0, whatever the usual one is");

    kvr_decoder_conf(decoder)->rank = 0;

    decode("[1.5, [['BlockRemoved', [9]]]]");
    ok(got.n == 1 && got.event[0].ev.rank == 0,
       "the usual rank is 0 where nothing else was said");

    decode("[7, []]");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 0
       && !got.msg.counted && got.msg.form == KVR_FORM_BARE,
       "a batch's time may be an integer");

    decode("[1.5, [], 1024]");
    ok(got.opened == KVR_INVALID && got.why == KVR_WHY_RANK,
       "a rank has a bound");

    decode("[1.5, [], -1]");
    ok(got.opened == KVR_INVALID && got.why == KVR_WHY_RANK,
       "a rank isn't negative");

    decode("[1.5, 7]");
    ok(got.opened == KVR_INVALID && got.why == KVR_WHY_SYNTAX,
       "events are an array");

    decode("[1.5]");
    ok(got.opened == KVR_INVALID, "a batch has events");

    decode("{'ts': 1.5}");
    ok(got.opened == KVR_INVALID, "a map that is a batch has events");

    decode("['x', []]");
    ok(got.opened == KVR_INVALID, "a batch doesn't begin with a string");

    decode("5");
    ok(got.opened == KVR_INVALID, "a number is no message");

    decode_bytes("", 0);
    ok(got.opened == KVR_INVALID, "no bytes are no message");

    decode("[1.5, [['BlockRemoved', [9]], {'$hex': '92ac426c'}]]");
    ok(got.opened == KVR_OK && got.n == 1 && got.ended == KVR_INVALID
       && got.event[0].handles[0] == 9 && got.detail[0] != '\0',
       "what comes before broken msgpack is kept");

    decode("{'$hex': '92cb3ff00000000000009000'}");
    ok(got.opened == KVR_OK && got.n == 0 && got.ended == KVR_INVALID,
       "bytes after a batch are an error");

    decode("{'$hex': '93cb3ff000000000000090c000'}");
    ok(got.opened == KVR_INVALID,
       "bytes after a batch with a rank are an error");
}


int
main(int argc, char **argv)
{
    const char  *dir;

    dir = (argc > 1) ? argv[1] : getenv("KVR_VECTORS");

    decoder = kvr_decoder_create();

    test_vectors(dir != NULL ? dir : "t/vectors");
    test_media();
    test_hashes();
    test_groups();
    test_extra_keys();
    test_stores();
    test_batches();

    kvr_decoder_destroy(decoder);

    return done();
}
