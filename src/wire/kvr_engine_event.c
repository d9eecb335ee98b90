/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_engine_event.h"

#include <strings.h>


/* Levels left for a field inside the batch, its events and the event. */
#define KVR_FIELD_ROOM  (KVR_MSGPACK_DEPTH - 3)


typedef struct {
    const char          *name;
    uint32_t             len;
    uint32_t             value;
} kvr_word_t;


#define KVR_WORD(name, value)  { name, sizeof(name) - 1, value }
#define KVR_NO_WORD            { NULL, 0, 0 }


static kvr_rc_t kvr_field_pairs(kvr_decoder_t *d, kvr_engine_event_t *e,
    uint32_t *tokens, uint32_t n);
static kvr_rc_t kvr_field_mistyped(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item, uint32_t kinds, const char *detail);
static bool kvr_engine_hash(const kvr_msgpack_item_t *item, uint64_t *hash);
static bool kvr_word_find(const kvr_word_t *words,
    const kvr_msgpack_item_t *item, uint32_t *value);


static const kvr_word_t  kvr_tags[] = {
    KVR_WORD("BlockStored", KVR_STORE),
    KVR_WORD("BlockRemoved", KVR_REMOVE),
    KVR_WORD("AllBlocksCleared", KVR_CLEAR),
    KVR_WORD("stored", KVR_STORE),
    KVR_WORD("removed", KVR_REMOVE),
    KVR_WORD("cleared", KVR_CLEAR),
    KVR_NO_WORD
};


static const kvr_word_t  kvr_media[] = {
    KVR_WORD("", KVR_DEVICE),
    KVR_WORD("GPU", KVR_DEVICE),
    KVR_WORD("DEVICE", KVR_DEVICE),
    KVR_WORD("CPU", KVR_HOST),
    KVR_WORD("CPU_PINNED", KVR_HOST),
    KVR_WORD("CPU_TIER1", KVR_HOST),
    KVR_WORD("CPU_TIER2", KVR_DISK),
    KVR_WORD("DISK", KVR_DISK),
    KVR_WORD("NVME", KVR_DISK),
    KVR_WORD("STORAGE", KVR_DISK),
    KVR_WORD("FS", KVR_DISK),
    KVR_WORD("EXTERNAL", KVR_EXTERNAL),
    KVR_WORD("NETWORK", KVR_EXTERNAL),
    KVR_WORD("REMOTE", KVR_EXTERNAL),
    KVR_WORD("SHARED", KVR_EXTERNAL),
    KVR_WORD("OBJ", KVR_EXTERNAL),
    KVR_NO_WORD
};


static const kvr_word_t  kvr_local_localities[] = {
    KVR_WORD("", 0),
    KVR_WORD("LOCAL", 0),
    KVR_NO_WORD
};


static const kvr_word_t  kvr_old_origins[] = {
    KVR_WORD("REUSED", 0),
    KVR_NO_WORD
};


static const kvr_word_t  kvr_our_tenants[] = {
    KVR_WORD("", 0),
    KVR_WORD("default", 0),
    KVR_NO_WORD
};


static const kvr_word_t  kvr_group_kinds[] = {
    KVR_WORD("full_attention", KVR_GROUP_INDEXED),
    KVR_WORD("mla_attention", KVR_GROUP_INDEXED),
    KVR_WORD("sink_full_attention", KVR_GROUP_INDEXED),
    KVR_WORD("sliding_window", KVR_GROUP_WINDOW),
    KVR_WORD("sliding_window_mla", KVR_GROUP_WINDOW),
    KVR_WORD("mamba", KVR_GROUP_MAMBA),
    KVR_WORD("chunked_local_attention", KVR_GROUP_CHUNKED),
    KVR_NO_WORD
};


kvr_rc_t
kvr_field_tag(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    bool      known;
    uint32_t  kind;

    if (item->type != MPACK_TOKEN_STR) {
        return kvr_field_skip(d, e, item);
    }

    known = kvr_word_find(kvr_tags, item, &kind);

    if (e->said
        && (known != e->tagged
            || (known && (kvr_event_kind_t) kind != e->ev->kind)))
    {
        e->torn = true;
    }

    e->said = true;

    if (known) {
        e->tagged = true;
        e->ev->kind = (kvr_event_kind_t) kind;
    }

    return kvr_field_skip(d, e, item);
}


kvr_rc_t
kvr_field_handles(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t            i;
    uint64_t           *handles;
    kvr_msgpack_item_t  hash;

    if (item->type != MPACK_TOKEN_ARRAY) {
        return kvr_field_mistyped(d, e, item, KVR_OF_BLOCKS,
                                  "block hashes are not an array");
    }

    if (item->count > KVR_EVENT_BLOCKS_MAX) {
        kvr_engine_wrong(e, KVR_OF_BLOCKS, KVR_WHY_LIMIT, "too many blocks");
        return kvr_field_skip(d, e, item);
    }

    handles = kvr_scratch_reserve(&d->handles,
                                  item->count * sizeof(uint64_t));
    if (handles == NULL && item->count != 0) {
        kvr_engine_wrong(e, KVR_OF_BLOCKS, KVR_WHY_LIMIT, "out of memory");
        return kvr_field_skip(d, e, item);
    }

    for (i = 0; i < item->count; i++) {

        if (kvr_msgpack_read(&d->in, &hash) != KVR_OK) {
            return KVR_INVALID;
        }

        if (!kvr_engine_hash(&hash, &handles[i])) {
            handles[i] = 0;

            if (kvr_field_mistyped(d, e, &hash, KVR_OF_BLOCKS,
                                   "not a block hash")
                != KVR_OK)
            {
                return KVR_INVALID;
            }
        }
    }

    e->has_handles = true;
    e->ev->handles = handles;
    e->ev->nhandles = item->count;

    return KVR_OK;
}


kvr_rc_t
kvr_field_parent(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    e->has_parent = true;

    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    if (!kvr_engine_hash(item, &e->ev->parent)) {
        return kvr_field_mistyped(d, e, item, KVR_OF_STORE,
                                  "parent is not a block hash");
    }

    e->ev->has_parent = true;

    return KVR_OK;
}


kvr_rc_t
kvr_field_tokens(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t            i, n, *tokens;
    kvr_msgpack_t       peek;
    kvr_msgpack_item_t  token;

    /* if a map names the field twice, the buffer may move */

    e->ev->tokens = NULL;
    e->ev->ntokens = 0;
    e->ev->pairs = false;

    if (item->type == MPACK_TOKEN_NIL) {
        e->has_tokens = true;
        return KVR_OK;
    }

    if (item->type != MPACK_TOKEN_ARRAY) {
        return kvr_field_mistyped(d, e, item, KVR_OF_STORE,
                                  "token_ids are not an array");
    }

    if (item->count > KVR_EVENT_TOKENS_MAX) {
        kvr_engine_wrong(e, KVR_OF_STORE, KVR_WHY_LIMIT, "too many tokens");
        return kvr_field_skip(d, e, item);
    }

    tokens = kvr_scratch_reserve(&d->tokens,
                                 (item->count + (size_t) 1)
                                 * sizeof(uint32_t));
    if (tokens == NULL) {
        kvr_engine_wrong(e, KVR_OF_STORE, KVR_WHY_LIMIT, "out of memory");
        return kvr_field_skip(d, e, item);
    }

    e->has_tokens = true;
    n = kvr_msgpack_u32s(&d->in, tokens, item->count);

    if (n == item->count) {
        e->ev->tokens = tokens;
        e->ev->ntokens = n;
        return KVR_OK;
    }

    peek = d->in;

    if (n == 0 && kvr_msgpack_read(&peek, &token) == KVR_OK
        && token.type == MPACK_TOKEN_ARRAY && token.count == 2)
    {
        e->ev->pairs = true;
        e->ev->tokens = tokens;
        e->ev->ntokens = item->count;
        return kvr_field_pairs(d, e, tokens, item->count);
    }

    for (i = n; i < item->count; i++) {

        if (kvr_msgpack_read(&d->in, &token) != KVR_OK
            || kvr_field_skip(d, e, &token) != KVR_OK)
        {
            return KVR_INVALID;
        }

        if (token.type != MPACK_TOKEN_UINT || token.number > UINT32_MAX) {
            kvr_engine_wrong(e, KVR_OF_STORE, KVR_WHY_SYNTAX,
                             "not a token id");
        }
    }

    return KVR_OK;
}


/* Pair i is tokens i and i + 1 (EAGLE). */
static kvr_rc_t
kvr_field_pairs(kvr_decoder_t *d, kvr_engine_event_t *e, uint32_t *tokens,
    uint32_t n)
{
    uint32_t            i, two[2];
    kvr_msgpack_t       start;
    kvr_msgpack_item_t  pair;

    for (i = 0; i < n; i++) {

        if (kvr_msgpack_read(&d->in, &pair) != KVR_OK) {
            return KVR_INVALID;
        }

        start = d->in;

        if (pair.type != MPACK_TOKEN_ARRAY || pair.count != 2
            || kvr_msgpack_u32s(&d->in, two, 2) != 2)
        {
            kvr_engine_wrong(e, KVR_OF_STORE, KVR_WHY_SYNTAX,
                             "not a pair of token ids");

            d->in = start;

            if (kvr_field_skip(d, e, &pair) != KVR_OK) {
                return KVR_INVALID;
            }

            two[0] = 0;
            two[1] = 0;

        } else if (i != 0 && two[0] != tokens[i]) {
            kvr_engine_wrong(e, KVR_OF_STORE, KVR_WHY_SYNTAX,
                             "a pair that doesn't begin where the one before "
                             "it ends");
        }

        tokens[i] = two[0];
        tokens[i + 1] = two[1];
    }

    return KVR_OK;
}


kvr_rc_t
kvr_field_block_size(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    e->has_block_size = true;

    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    if (item->type != MPACK_TOKEN_UINT || item->number > UINT32_MAX) {
        return kvr_field_mistyped(d, e, item, KVR_OF_STORE,
                                  "block_size is not a number");
    }

    e->block_size = item->number;
    e->ev->block_size = (uint32_t) item->number;

    return KVR_OK;
}


kvr_rc_t
kvr_field_lora_id(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    e->has_lora_id = (item->type != MPACK_TOKEN_NIL);
    e->lora_numbered = (item->type == MPACK_TOKEN_UINT);
    e->lora_id = item->number;

    return kvr_field_skip(d, e, item);
}


kvr_rc_t
kvr_field_medium(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t  tier;

    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    if (kvr_word_find(kvr_media, item, &tier)) {
        e->ev->tier = (kvr_tier_t) tier;
        return KVR_OK;
    }

    e->foreign_medium = true;

    return kvr_field_skip(d, e, item);
}


/* The seventh field after the tag: vLLM's lora_name, SGLang's metadata. */
kvr_rc_t
kvr_field_seventh(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    if (item->type == MPACK_TOKEN_MAP) {
        return kvr_field_metadata(d, e, item);
    }

    return kvr_field_lora_name(d, e, item);
}


kvr_rc_t
kvr_field_lora_name(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    if (item->type != MPACK_TOKEN_STR) {
        return kvr_field_mistyped(d, e, item, KVR_OF_STORE,
                                  "lora_name is not a string");
    }

    e->ev->lora_name = item->bytes;
    e->ev->lora_len = item->count;

    return KVR_OK;
}


kvr_rc_t
kvr_field_metadata(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t            i;
    kvr_field_read_t   *read;
    kvr_msgpack_item_t  key, value;

    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    if (item->type != MPACK_TOKEN_MAP) {
        return kvr_field_mistyped(d, e, item, KVR_OF_STORE,
                                  "metadata is not a map");
    }

    for (i = 0; i < item->count; i++) {

        if (kvr_msgpack_read(&d->in, &key) != KVR_OK
            || kvr_field_skip(d, e, &key) != KVR_OK
            || kvr_msgpack_read(&d->in, &value) != KVR_OK)
        {
            return KVR_INVALID;
        }

        read = kvr_msgpack_equals(&key, "cache_salt") ? kvr_field_salt
                                                      : kvr_field_skip;

        if (read(d, e, &value) != KVR_OK) {
            return KVR_INVALID;
        }
    }

    return KVR_OK;
}


kvr_rc_t
kvr_field_salt(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    if (item->type != MPACK_TOKEN_STR) {
        return kvr_field_mistyped(d, e, item, KVR_OF_STORE,
                                  "cache salt is not a string");
    }

    if (item->count && !kvr_extra_salt(e->ev, item->bytes, item->count)) {
        e->unclassified = true;
    }

    return KVR_OK;
}


/* Extra keys are read later, because their meaning depends on other fields. */
kvr_rc_t
kvr_field_extra_keys(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    if (item->type != MPACK_TOKEN_NIL) {
        e->has_extra_keys = true;
        e->extra_keys_item = *item;
        e->extra_keys = d->in;
    }

    return kvr_field_skip(d, e, item);
}


kvr_rc_t
kvr_field_group(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint64_t  group;

    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    group = item->number;

    if ((item->type != MPACK_TOKEN_UINT
         && (item->type != MPACK_TOKEN_STR
             || !kvr_u64_parse(item->bytes, item->count, &group)))
        || group > UINT32_MAX)
    {
        return kvr_field_mistyped(d, e, item, KVR_OF_BLOCKS,
                                  "group_idx is not a number");
    }

    e->ev->group = (uint32_t) group;

    return KVR_OK;
}


kvr_rc_t
kvr_field_group_kind(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t  kind;

    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    e->ev->group_kind = kvr_word_find(kvr_group_kinds, item, &kind)
                        ? kind : KVR_GROUP_OTHER;

    return kvr_field_skip(d, e, item);
}


kvr_rc_t
kvr_field_locality(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t  unused;

    e->foreign_locality = item->type != MPACK_TOKEN_NIL
                          && !kvr_word_find(kvr_local_localities, item,
                                            &unused);

    return kvr_field_skip(d, e, item);
}


/* The count of copies left is advice: an invalid value is ignored. */
kvr_rc_t
kvr_field_remaining(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t            i, n, *remaining;
    kvr_msgpack_item_t  count;

    e->ev->remaining = NULL;

    if (item->type != MPACK_TOKEN_ARRAY
        || item->count > KVR_EVENT_BLOCKS_MAX)
    {
        return kvr_field_skip(d, e, item);
    }

    remaining = kvr_scratch_reserve(&d->remaining,
                                    item->count * sizeof(uint32_t));
    if (remaining == NULL) {
        return kvr_field_skip(d, e, item);
    }

    n = kvr_msgpack_u32s(&d->in, remaining, item->count);

    for (i = n; i < item->count; i++) {
        if (kvr_msgpack_read(&d->in, &count) != KVR_OK
            || kvr_field_skip(d, e, &count) != KVR_OK)
        {
            return KVR_INVALID;
        }
    }

    e->ev->remaining = remaining;
    e->nremaining = n;

    return KVR_OK;
}


/* NEW, or REUSED: the block is announced once more, and no copy is added. */
kvr_rc_t
kvr_field_origin(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t  unused;

    e->ev->reused = kvr_word_find(kvr_old_origins, item, &unused);

    return kvr_field_skip(d, e, item);
}


kvr_rc_t
kvr_field_rank(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    if (item->type != MPACK_TOKEN_UINT || item->number >= KVR_RANKS_MAX) {
        kvr_engine_wrong(e, KVR_OF_ALL, KVR_WHY_RANK, "rank out of range");
        return kvr_field_skip(d, e, item);
    }

    e->ev->rank = (uint32_t) item->number;

    return KVR_OK;
}


/* An event whose position in the chain is not 0 does not begin a chain. */

kvr_rc_t
kvr_field_base(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    e->off_root = (item->type != MPACK_TOKEN_UINT || item->number != 0);

    return kvr_field_skip(d, e, item);
}


kvr_rc_t
kvr_field_event_id(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    if (item->type == MPACK_TOKEN_UINT) {
        e->ev->has_event_id = true;
        e->ev->event_id = item->number;
    }

    return kvr_field_skip(d, e, item);
}


/* Tenants share no blocks, and requests do not name their tenants. */
kvr_rc_t
kvr_field_tenant(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t  unused;

    e->foreign_tenant = item->type != MPACK_TOKEN_NIL
                        && !kvr_word_find(kvr_our_tenants, item, &unused);

    return kvr_field_skip(d, e, item);
}


/* A field of Dynamo for TensorRT-LLM: a value for each block, or null. */
kvr_rc_t
kvr_field_mm_infos(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint32_t            i;
    kvr_msgpack_item_t  info;

    if (item->type != MPACK_TOKEN_ARRAY) {
        e->unclassified = e->unclassified || item->type != MPACK_TOKEN_NIL;
        return kvr_field_skip(d, e, item);
    }

    for (i = 0; i < item->count; i++) {

        if (kvr_msgpack_read(&d->in, &info) != KVR_OK
            || kvr_field_skip(d, e, &info) != KVR_OK)
        {
            return KVR_INVALID;
        }

        if (info.type != MPACK_TOKEN_NIL) {
            e->unclassified = true;
        }
    }

    return KVR_OK;
}


/* Skips a field of a later version, or one that the router does not use. */
kvr_rc_t
kvr_field_skip(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    switch (kvr_msgpack_skip_rest(&d->in, item, KVR_FIELD_ROOM)) {

    case KVR_OK:
        return KVR_OK;

    case KVR_FULL:
        kvr_engine_wrong(e, KVR_OF_ALL, KVR_WHY_LIMIT, "nested too deep");
        return KVR_OK;

    default:
        return KVR_INVALID;
    }
}


static kvr_rc_t
kvr_field_mistyped(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item, uint32_t kinds, const char *detail)
{
    kvr_engine_wrong(e, kinds, KVR_WHY_SYNTAX, detail);

    return kvr_field_skip(d, e, item);
}


void
kvr_engine_wrong(kvr_engine_event_t *e, uint32_t kinds, kvr_why_t why,
    const char *detail)
{
    uint32_t  kind;

    for (kind = 0; kind < KVR_ENGINE_KINDS; kind++) {
        if ((kinds & KVR_OF(kind)) && e->wrong[kind].why == KVR_WHY_NONE) {
            e->wrong[kind].why = why;
            e->wrong[kind].detail = detail;
        }
    }
}


/*
 * An integer is taken as it is, a signed integer by its bits.  If the hash is
 * bytes, the last eight bytes count, big-endian.  A string of hexadecimal
 * digits stands for bytes.
 */
static bool
kvr_engine_hash(const kvr_msgpack_item_t *item, uint64_t *hash)
{
    uint32_t  i;

    switch (item->type) {

    case MPACK_TOKEN_UINT:
    case MPACK_TOKEN_SINT:
        *hash = item->number;
        return true;

    case MPACK_TOKEN_STR:
        if (item->count != 0
            && kvr_hex_digits(item->bytes, item->count) == item->count)
        {
            i = item->count - kvr_min(item->count, 16);
            *hash = kvr_hex_value(item->bytes + i, item->count - i);
            return true;
        }

        if (item->count < 8) {
            return false;
        }

        break;

    case MPACK_TOKEN_BIN:
        if (item->count == 0) {
            return false;
        }

        break;

    default:
        return false;
    }

    *hash = 0;

    for (i = item->count - kvr_min(item->count, 8); i < item->count; i++) {
        *hash = *hash << 8 | (uint8_t) item->bytes[i];
    }

    return true;
}


/* Finds a word; upper and lower case are the same. */
static bool
kvr_word_find(const kvr_word_t *words, const kvr_msgpack_item_t *item,
    uint32_t *value)
{
    if (item->type != MPACK_TOKEN_STR) {
        return false;
    }

    for ( /* void */ ; words->name != NULL; words++) {
        if (words->len == item->count
            && strncasecmp(words->name, item->bytes, item->count) == 0)
        {
            *value = words->value;
            return true;
        }
    }

    return false;
}
