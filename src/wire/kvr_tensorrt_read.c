/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TensorRT-LLM's events: yajl calls back for every token.  Names are looked up
 * with the container they are in; what isn't known is passed over.  Numbers
 * are taken as text, or from a string: hashes fill 64 bits.
 */


#include "kvr_tensorrt.h"


static int kvr_tensorrt_null(void *ctx);
static int kvr_tensorrt_boolean(void *ctx, int value);
static int kvr_tensorrt_number(void *ctx, const char *text, size_t len);
static int kvr_tensorrt_string(void *ctx, const unsigned char *text,
    size_t len);
static int kvr_tensorrt_start_map(void *ctx);
static int kvr_tensorrt_map_key(void *ctx, const unsigned char *text,
    size_t len);
static int kvr_tensorrt_end_map(void *ctx);
static int kvr_tensorrt_start_array(void *ctx);
static int kvr_tensorrt_end_array(void *ctx);

static bool kvr_tensorrt_stray(kvr_tensorrt_t *t);
static int kvr_tensorrt_enter(kvr_tensorrt_t *t, kvr_tensorrt_place_t place);
static int kvr_tensorrt_skip(kvr_tensorrt_t *t);
static void kvr_tensorrt_unexpected(kvr_tensorrt_t *t);
static void kvr_tensorrt_scalar(kvr_decoder_t *d, const char *text,
    size_t len, bool string);
static void kvr_tensorrt_hash(kvr_tensorrt_t *t, const char *text,
    size_t len, bool hex, bool *has, uint64_t *hash);
static void kvr_tensorrt_token(kvr_decoder_t *d, const char *text,
    size_t len);
static void kvr_tensorrt_mm(kvr_decoder_t *d, const char *text, size_t len);
static void kvr_tensorrt_type(kvr_tensorrt_t *t, const char *text,
    size_t len);
static void kvr_tensorrt_salt(kvr_tensorrt_t *t, const char *text,
    size_t len);
static bool kvr_tensorrt_text(kvr_tensorrt_t *t, kvr_scratch_t *to,
    const char *text, size_t len);
static void kvr_tensorrt_append(kvr_tensorrt_t *t, kvr_scratch_t *to,
    uint32_t *n, uint64_t value);
static void kvr_tensorrt_block(kvr_decoder_t *d);


const yajl_callbacks  kvr_tensorrt_callbacks = {
    .yajl_null = kvr_tensorrt_null,
    .yajl_boolean = kvr_tensorrt_boolean,
    .yajl_number = kvr_tensorrt_number,
    .yajl_string = kvr_tensorrt_string,
    .yajl_start_map = kvr_tensorrt_start_map,
    .yajl_map_key = kvr_tensorrt_map_key,
    .yajl_end_map = kvr_tensorrt_end_map,
    .yajl_start_array = kvr_tensorrt_start_array,
    .yajl_end_array = kvr_tensorrt_end_array
};


/* Names of token fields come first, because they are the most frequent. */

static const struct {
    kvr_tensorrt_place_t  place;
    const char           *text;
    kvr_tensorrt_name_t   name;
} kvr_tensorrt_names[] = {
    { KVR_IN_TOKEN, "token_id", KVR_NAME_TOKEN_ID },
    { KVR_IN_TOKEN, "token_extra_id", KVR_NAME_EXTRA_ID },
    { KVR_IN_EVENT, "event_id", KVR_NAME_EVENT_ID },
    { KVR_IN_EVENT, "data", KVR_NAME_DATA },
    { KVR_IN_EVENT, "window_size", KVR_NAME_WINDOW },
    { KVR_IN_EVENT, "attention_dp_rank", KVR_NAME_RANK },
    { KVR_IN_DATA, "type", KVR_NAME_TYPE },
    { KVR_IN_DATA, "parent_hash", KVR_NAME_PARENT },
    { KVR_IN_DATA, "blocks", KVR_NAME_BLOCKS },
    { KVR_IN_DATA, "block_hashes", KVR_NAME_HASHES },
    { KVR_IN_DATA, "block_hash", KVR_NAME_HASH },
    { KVR_IN_DATA, "cache_level", KVR_NAME_LEVEL },
    { KVR_IN_DATA, "lora_name", KVR_NAME_LORA_NAME },
    { KVR_IN_BLOCK, "block_hash", KVR_NAME_HASH },
    { KVR_IN_BLOCK, "tokens", KVR_NAME_TOKENS },
    { KVR_IN_BLOCK, "cache_level", KVR_NAME_LEVEL },
    { KVR_IN_BLOCK, "mm_keys", KVR_NAME_MM_KEYS },
    { KVR_IN_BLOCK, "cache_salt", KVR_NAME_SALT },
    { KVR_IN_BLOCK, "lora_id", KVR_NAME_LORA_ID },
    { KVR_IN_MM_KEY, "hash", KVR_NAME_MM_HASH },
    { KVR_IN_LEVEL, "old_value", KVR_NAME_OLD },
    { KVR_IN_LEVEL, "new_value", KVR_NAME_NEW },
    { KVR_IN_TOP, NULL, KVR_NAME_OTHER }
};


/* Scalars. */


/* An optional field can be null; a block's end checks the required ones. */
static int
kvr_tensorrt_null(void *ctx)
{
    kvr_tensorrt_t  *t = ((kvr_decoder_t *) ctx)->tensorrt;

    if (kvr_tensorrt_stray(t)) {
        return 1;
    }

    switch (t->name) {

    case KVR_NAME_DATA:
    case KVR_NAME_TYPE:
    case KVR_NAME_BLOCKS:
    case KVR_NAME_HASHES:
        kvr_tensorrt_unexpected(t);
        break;

    case KVR_NAME_TOKEN_ID:
        kvr_tensorrt_block_wrong(t, KVR_WHY_SYNTAX);
        break;

    default:
        break;
    }

    return 1;
}


static int
kvr_tensorrt_boolean(void *ctx, int value)
{
    kvr_tensorrt_t  *t = ((kvr_decoder_t *) ctx)->tensorrt;

    if (!kvr_tensorrt_stray(t)) {
        kvr_tensorrt_unexpected(t);
    }

    return 1;
}


static int
kvr_tensorrt_number(void *ctx, const char *text, size_t len)
{
    kvr_tensorrt_t  *t = ((kvr_decoder_t *) ctx)->tensorrt;

    if (t->skipping == 0 && t->place == KVR_IN_TOKENS) {
        kvr_tensorrt_token(ctx, text, len);
        return 1;
    }

    if (kvr_tensorrt_stray(t)) {
        return 1;
    }

    switch (t->name) {

    case KVR_NAME_TYPE:
    case KVR_NAME_LORA_NAME:
    case KVR_NAME_SALT:
    case KVR_NAME_MM_HASH:
        kvr_tensorrt_unexpected(t);
        break;

    default:
        kvr_tensorrt_scalar(ctx, text, len, false);
        break;
    }

    return 1;
}


static int
kvr_tensorrt_string(void *ctx, const unsigned char *text, size_t len)
{
    kvr_tensorrt_t  *t = ((kvr_decoder_t *) ctx)->tensorrt;

    if (!kvr_tensorrt_stray(t)) {
        kvr_tensorrt_scalar(ctx, (const char *) text, len, true);
    }

    return 1;
}


static void
kvr_tensorrt_scalar(kvr_decoder_t *d, const char *text, size_t len,
    bool string)
{
    bool             has, number;
    uint64_t         n;
    kvr_tensorrt_t  *t;

    t = d->tensorrt;
    n = 0;
    number = kvr_u64_parse(text, len, &n);

    switch (t->name) {

    case KVR_NAME_OTHER:
        break;

    case KVR_NAME_TOKEN_ID:
        kvr_tensorrt_token(d, text, len);
        break;

    case KVR_NAME_EXTRA_ID:
        if (!number || n != 0) {
            kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
        }

        break;

    case KVR_NAME_EVENT_ID:
        t->has_id = number;
        t->id = n;

        if (!number) {
            kvr_tensorrt_unexpected(t);
        }

        break;

    case KVR_NAME_WINDOW:
        t->window = (uint32_t) n;

        if (!number || n > UINT32_MAX) {
            kvr_tensorrt_unexpected(t);
        }

        break;

    case KVR_NAME_RANK:
        if (!number || n >= KVR_RANKS_MAX) {
            kvr_tensorrt_wrong(t, KVR_WHY_RANK,
                               "attention_dp_rank out of range");
            break;
        }

        t->rank = (uint32_t) n;
        break;

    case KVR_NAME_TYPE:
        kvr_tensorrt_type(t, text, len);
        break;

    case KVR_NAME_PARENT:
        kvr_tensorrt_hash(t, text, len, string, &t->has_parent, &t->parent);
        break;

    case KVR_NAME_HASH:
        if (t->place == KVR_IN_DATA) {
            kvr_tensorrt_hash(t, text, len, string, &t->has_hash, &t->hash);
            break;
        }

        t->block.has_hash = kvr_hash_parse(text, len, string,
                                           &t->block.hash);
        break;

    case KVR_NAME_HASHES:
        if (t->place != KVR_IN_HASHES) {
            kvr_tensorrt_unexpected(t);
            break;
        }

        kvr_tensorrt_hash(t, text, len, string, &has, &n);
        kvr_tensorrt_append(t, &d->handles, &t->nhashes, n);
        break;

    case KVR_NAME_LEVEL:
        if (!number || t->place != KVR_IN_BLOCK) {
            kvr_tensorrt_unexpected(t);
            break;
        }

        t->block.level = n;
        break;

    case KVR_NAME_OLD:
    case KVR_NAME_NEW:
        if (!number) {
            kvr_tensorrt_unexpected(t);

        } else if (t->name == KVR_NAME_OLD) {
            t->has_old = true;
            t->old_level = n;

        } else {
            t->has_new = true;
            t->new_level = n;
        }

        break;

    case KVR_NAME_LORA_ID:
        t->block.lora = number ? KVR_LORA_NUMBER : KVR_LORA_OTHER;
        t->block.lora_id = n;
        break;

    case KVR_NAME_LORA_NAME:
        t->lora_len = kvr_tensorrt_text(t, &t->lora, text, len) ? len : 0;
        break;

    case KVR_NAME_SALT:
        kvr_tensorrt_salt(t, text, len);
        break;

    case KVR_NAME_MM_HASH:
        kvr_tensorrt_mm(d, text, len);
        break;

    default:
        kvr_tensorrt_unexpected(t);
        break;
    }
}


/* Containers. */


static int
kvr_tensorrt_start_map(void *ctx)
{
    kvr_decoder_t   *d;
    kvr_tensorrt_t  *t;

    d = ctx;
    t = d->tensorrt;

    if (t->skipping != 0) {
        return kvr_tensorrt_skip(t);
    }

    switch (t->place) {

    case KVR_IN_TOP:
    case KVR_IN_LIST:
        kvr_tensorrt_begin(d);
        return kvr_tensorrt_enter(t, KVR_IN_EVENT);

    case KVR_IN_BLOCKS:
        memset(&t->block, 0, sizeof(kvr_tensorrt_block_t));
        t->block_salted = false;
        return kvr_tensorrt_enter(t, KVR_IN_BLOCK);

    case KVR_IN_TOKENS:
        return kvr_tensorrt_enter(t, KVR_IN_TOKEN);

    case KVR_IN_MM_KEYS:
        t->mm_hashed = false;
        return kvr_tensorrt_enter(t, KVR_IN_MM_KEY);

    default:
        break;
    }

    if (t->place == KVR_IN_EVENT && t->name == KVR_NAME_DATA) {
        return kvr_tensorrt_enter(t, KVR_IN_DATA);
    }

    if (t->place == KVR_IN_DATA && t->name == KVR_NAME_LEVEL) {
        return kvr_tensorrt_enter(t, KVR_IN_LEVEL);
    }

    kvr_tensorrt_unexpected(t);

    return kvr_tensorrt_skip(t);
}


static int
kvr_tensorrt_start_array(void *ctx)
{
    kvr_tensorrt_t  *t = ((kvr_decoder_t *) ctx)->tensorrt;

    if (t->skipping != 0) {
        return kvr_tensorrt_skip(t);
    }

    switch (t->name) {

    case KVR_NAME_BLOCKS:
        t->has_blocks = true;
        return kvr_tensorrt_enter(t, KVR_IN_BLOCKS);

    case KVR_NAME_TOKENS:
        return kvr_tensorrt_enter(t, KVR_IN_TOKENS);

    case KVR_NAME_MM_KEYS:
        return kvr_tensorrt_enter(t, KVR_IN_MM_KEYS);

    case KVR_NAME_HASHES:
        if (t->place == KVR_IN_DATA) {
            t->has_hashes = true;
            t->place = KVR_IN_HASHES;       /* the name stays as it is */
            return 1;
        }

        break;

    default:
        break;
    }

    if (t->place == KVR_IN_TOP) {
        t->in_list = true;
        return kvr_tensorrt_enter(t, KVR_IN_LIST);
    }

    if (!kvr_tensorrt_stray(t)) {
        kvr_tensorrt_unexpected(t);
    }

    return kvr_tensorrt_skip(t);
}


static int
kvr_tensorrt_map_key(void *ctx, const unsigned char *text, size_t len)
{
    size_t           i;
    kvr_tensorrt_t  *t = ((kvr_decoder_t *) ctx)->tensorrt;

    if (t->skipping != 0) {
        return 1;
    }

    t->name = KVR_NAME_OTHER;

    for (i = 0; kvr_tensorrt_names[i].text != NULL; i++) {
        if (kvr_tensorrt_names[i].place == t->place
            && strlen(kvr_tensorrt_names[i].text) == len
            && memcmp(kvr_tensorrt_names[i].text, text, len) == 0)
        {
            t->name = kvr_tensorrt_names[i].name;
            break;
        }
    }

    return 1;
}


static int
kvr_tensorrt_end_map(void *ctx)
{
    kvr_decoder_t   *d;
    kvr_tensorrt_t  *t;

    d = ctx;
    t = d->tensorrt;

    if (t->skipping != 0) {
        t->skipping--;
        return 1;
    }

    switch (t->place) {

    case KVR_IN_EVENT:
        t->ready = true;
        return kvr_tensorrt_enter(t, t->in_list ? KVR_IN_LIST : KVR_IN_TOP);

    case KVR_IN_DATA:
        return kvr_tensorrt_enter(t, KVR_IN_EVENT);

    case KVR_IN_BLOCK:
        kvr_tensorrt_block(d);
        return kvr_tensorrt_enter(t, KVR_IN_BLOCKS);

    case KVR_IN_TOKEN:
        return kvr_tensorrt_enter(t, KVR_IN_TOKENS);

    case KVR_IN_MM_KEY:
        if (!t->mm_hashed) {
            kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
        }

        return kvr_tensorrt_enter(t, KVR_IN_MM_KEYS);

    default: /* KVR_IN_LEVEL */
        return kvr_tensorrt_enter(t, KVR_IN_DATA);
    }
}


static int
kvr_tensorrt_end_array(void *ctx)
{
    kvr_tensorrt_t  *t = ((kvr_decoder_t *) ctx)->tensorrt;

    if (t->skipping != 0) {
        t->skipping--;
        return 1;
    }

    switch (t->place) {

    case KVR_IN_LIST:
        t->in_list = false;
        return kvr_tensorrt_enter(t, KVR_IN_TOP);

    case KVR_IN_TOKENS:
    case KVR_IN_MM_KEYS:
        return kvr_tensorrt_enter(t, KVR_IN_BLOCK);

    default: /* KVR_IN_BLOCKS, KVR_IN_HASHES */
        return kvr_tensorrt_enter(t, KVR_IN_DATA);
    }
}


/* True when the value is not a field that we know; counts strays. */
static bool
kvr_tensorrt_stray(kvr_tensorrt_t *t)
{
    if (t->skipping != 0) {
        return true;
    }

    switch (t->place) {

    case KVR_IN_TOP:
    case KVR_IN_LIST:
        t->strays++;
        return true;

    case KVR_IN_BLOCKS:
        kvr_tensorrt_wrong(t, KVR_WHY_SYNTAX, "block is not an object");
        return true;

    case KVR_IN_TOKENS:
        kvr_tensorrt_block_wrong(t, KVR_WHY_SYNTAX);
        return true;

    case KVR_IN_MM_KEYS:
        kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
        return true;

    default:
        return false;
    }
}


static int
kvr_tensorrt_enter(kvr_tensorrt_t *t, kvr_tensorrt_place_t place)
{
    t->place = place;
    t->name = KVR_NAME_OTHER;

    return 1;
}


static int
kvr_tensorrt_skip(kvr_tensorrt_t *t)
{
    t->skipping++;

    if (t->skipping > KVR_PIECES_DEPTH) {
        kvr_tensorrt_wrong(t, KVR_WHY_LIMIT, "nested too deep");
    }

    return 1;
}


static void
kvr_tensorrt_unexpected(kvr_tensorrt_t *t)
{
    switch (t->name) {

    case KVR_NAME_OTHER:
        break;

    case KVR_NAME_TOKEN_ID:
    case KVR_NAME_EXTRA_ID:
    case KVR_NAME_MM_KEYS:
    case KVR_NAME_MM_HASH:
    case KVR_NAME_SALT:
        kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
        break;

    default:
        kvr_tensorrt_wrong(t, KVR_WHY_SYNTAX, "a field has the wrong type");
        break;
    }
}


/* Fields. */


static void
kvr_tensorrt_type(kvr_tensorrt_t *t, const char *text, size_t len)
{
    uint32_t  i;

    static const char *const  types[] = {
        "", "created", "stored", "removed", "updated"
    };

    t->type = KVR_TENSORRT_UNKNOWN;

    for (i = KVR_TENSORRT_CREATED; i <= KVR_TENSORRT_UPDATED; i++) {
        if (strlen(types[i]) == len && memcmp(types[i], text, len) == 0) {
            t->type = (kvr_tensorrt_type_t) i;
        }
    }
}


static void
kvr_tensorrt_hash(kvr_tensorrt_t *t, const char *text, size_t len, bool hex,
    bool *has, uint64_t *hash)
{
    *has = kvr_hash_parse(text, len, hex, hash);

    if (!*has) {
        *hash = 0;
        kvr_tensorrt_wrong(t, KVR_WHY_SYNTAX, "not a block hash");
    }
}


/* Text that is not a number stands for a part of an image. */
static void
kvr_tensorrt_token(kvr_decoder_t *d, const char *text, size_t len)
{
    uint32_t        *tokens;
    uint64_t         token;
    kvr_tensorrt_t  *t;

    t = d->tensorrt;

    if (!kvr_u64_parse(text, len, &token) || token > UINT32_MAX) {
        kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
        token = 0;
    }

    if (t->ntokens == KVR_EVENT_TOKENS_MAX) {
        kvr_tensorrt_wrong(t, KVR_WHY_LIMIT, "too many tokens");
        return;
    }

    tokens = kvr_scratch_reserve(&d->tokens,
                                 (t->ntokens + (size_t) 1) * sizeof(uint32_t));
    if (tokens == NULL) {
        kvr_tensorrt_wrong(t, KVR_WHY_LIMIT, "out of memory");
        return;
    }

    tokens[t->ntokens++] = (uint32_t) token;
}


static void
kvr_tensorrt_mm(kvr_decoder_t *d, const char *text, size_t len)
{
    uint32_t         before;
    kvr_tensorrt_t  *t;

    t = d->tensorrt;
    t->mm_hashed = true;

    if (kvr_hex_digits(text, len) < 16) {
        kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
        return;
    }

    before = (t->nblocks != 0)
             ? ((kvr_tensorrt_block_t *) t->blocks.data)[t->nblocks - 1].mm
             : 0;

    if (t->nmm - before == KVR_BLOCK_MM_MAX) {
        kvr_tensorrt_block_wrong(t, KVR_WHY_LIMIT);
        return;
    }

    kvr_tensorrt_append(t, &d->mm, &t->nmm, kvr_hex_value(text, 16));
}


/* One salt an event: blocks behind a block with another can't be hashed. */
static void
kvr_tensorrt_salt(kvr_tensorrt_t *t, const char *text, size_t len)
{
    if (len == 0) {
        return;
    }

    t->block_salted = true;

    if (t->salt_len == 0 && t->nblocks == 0) {
        t->salt_len = kvr_tensorrt_text(t, &t->salt, text, len) ? len : 0;
        return;
    }

    if (t->salt_len != len || memcmp(t->salt.data, text, len) != 0) {
        kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
    }
}


static bool
kvr_tensorrt_text(kvr_tensorrt_t *t, kvr_scratch_t *to, const char *text,
    size_t len)
{
    if (len == 0) {
        return true;
    }

    if (kvr_scratch_reserve(to, len) == NULL) {
        kvr_tensorrt_wrong(t, KVR_WHY_LIMIT, "out of memory");
        return false;
    }

    memcpy(to->data, text, len);

    return true;
}


static void
kvr_tensorrt_append(kvr_tensorrt_t *t, kvr_scratch_t *to, uint32_t *n,
    uint64_t value)
{
    const char  *detail;

    detail = kvr_scratch_append(to, n, value);

    if (detail != NULL) {
        kvr_tensorrt_wrong(t, KVR_WHY_LIMIT, detail);
    }
}


static void
kvr_tensorrt_block(kvr_decoder_t *d)
{
    kvr_tensorrt_t        *t;
    kvr_tensorrt_block_t  *blocks;

    t = d->tensorrt;

    if (t->nblocks == KVR_EVENT_BLOCKS_MAX) {
        kvr_tensorrt_wrong(t, KVR_WHY_LIMIT, "too many blocks");
        return;
    }

    blocks = kvr_scratch_reserve(&t->blocks,
                                 (t->nblocks + (size_t) 1)
                                 * sizeof(kvr_tensorrt_block_t));
    if (blocks == NULL) {
        kvr_tensorrt_wrong(t, KVR_WHY_LIMIT, "out of memory");
        return;
    }

    if (t->salt_len != 0 && !t->block_salted) {
        kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
    }

    t->block.tokens = t->ntokens;
    t->block.mm = t->nmm;

    blocks[t->nblocks++] = t->block;
}


void
kvr_tensorrt_begin(kvr_decoder_t *d)
{
    kvr_tensorrt_t  *t;

    t = d->tensorrt;

    t->judged = false;
    t->type = KVR_TENSORRT_UNKNOWN;
    t->has_id = false;
    t->has_parent = false;
    t->has_hash = false;
    t->has_blocks = false;
    t->has_hashes = false;
    t->has_old = false;
    t->has_new = false;
    t->id = 0;
    t->rank = d->rank;
    t->window = 0;
    t->parent = 0;
    t->nhashes = 0;
    t->nblocks = 0;
    t->ntokens = 0;
    t->nmm = 0;
    t->lora_len = 0;
    t->salt_len = 0;
    t->wrong = KVR_WHY_NONE;
}
