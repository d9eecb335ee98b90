/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TensorRT-LLM's events are read.  Numbers are taken as text, or from a
 * string: hashes fill 64 bits.
 */


#include "kvr_tensorrt.h"


typedef enum {
    KVR_TENSORRT_NONE,
    KVR_TENSORRT_EVENT_ID,
    KVR_TENSORRT_DATA,
    KVR_TENSORRT_WINDOW,
    KVR_TENSORRT_RANK,
    KVR_TENSORRT_TYPE,
    KVR_TENSORRT_PARENT,
    KVR_TENSORRT_BLOCKS,
    KVR_TENSORRT_BLOCK,
    KVR_TENSORRT_HASHES,
    KVR_TENSORRT_HASH,
    KVR_TENSORRT_UPDATED_HASH,
    KVR_TENSORRT_UPDATED_LEVEL,
    KVR_TENSORRT_OLD,
    KVR_TENSORRT_NEW,
    KVR_TENSORRT_LORA_NAME,
    KVR_TENSORRT_BLOCK_HASH,
    KVR_TENSORRT_LEVEL,
    KVR_TENSORRT_LORA_ID,
    KVR_TENSORRT_SALT,
    KVR_TENSORRT_TOKENS,
    KVR_TENSORRT_TOKEN,
    KVR_TENSORRT_TOKEN_ID,
    KVR_TENSORRT_EXTRA_ID,
    KVR_TENSORRT_MM_KEYS,
    KVR_TENSORRT_MM_KEY,
    KVR_TENSORRT_MM_HASH
} kvr_tensorrt_name_t;


static void kvr_tensorrt_begin(kvr_decoder_t *d);
static void kvr_tensorrt_take(kvr_decoder_t *d, uint32_t name,
    const kvr_json_value_t *v);
static void kvr_tensorrt_end(kvr_decoder_t *d, uint32_t name);
static void kvr_tensorrt_bad(kvr_decoder_t *d, uint32_t name, kvr_why_t why,
    const char *detail);

static void kvr_tensorrt_container(kvr_tensorrt_t *t, uint32_t name);
static void kvr_tensorrt_number(kvr_decoder_t *d, uint32_t name,
    const kvr_json_value_t *v);
static void kvr_tensorrt_hash(kvr_tensorrt_t *t, const kvr_json_value_t *v,
    bool *has, uint64_t *hash);
static void kvr_tensorrt_token(kvr_decoder_t *d, const kvr_json_value_t *v);
static void kvr_tensorrt_mm(kvr_decoder_t *d, const char *text, size_t len);
static void kvr_tensorrt_type(kvr_tensorrt_t *t, const char *text,
    size_t len);
static void kvr_tensorrt_salt(kvr_decoder_t *d, const char *text,
    size_t len);
static bool kvr_tensorrt_text(kvr_tensorrt_t *t, kvr_scratch_t *to,
    const char *text, size_t len);
static void kvr_tensorrt_append(kvr_tensorrt_t *t, kvr_scratch_t *to,
    uint32_t *n, uint64_t value);
static void kvr_tensorrt_block(kvr_decoder_t *d);


/* An event's grammar, from its innermost parts outwards. */

#define KVR_TENSORRT_NUMBER  (KVR_JSON_NUMBER | KVR_JSON_STRING)
#define KVR_TENSORRT_MAYBE   (KVR_JSON_NULL | KVR_TENSORRT_NUMBER)

static const kvr_json_field_t  kvr_tensorrt_token_fields[] = {
    kvr_json_field("token_id", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_TOKEN_ID, NULL),
    kvr_json_field("token_extra_id", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_EXTRA_ID, NULL),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_tensorrt_tokens[] = {
    kvr_json_element(KVR_JSON_NUMBER | KVR_JSON_MAP,
                     KVR_TENSORRT_TOKEN, kvr_tensorrt_token_fields)
};

static const kvr_json_field_t  kvr_tensorrt_mm_key[] = {
    kvr_json_field("hash", KVR_JSON_NULL | KVR_JSON_STRING,
                   KVR_TENSORRT_MM_HASH, NULL),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_tensorrt_mm_keys[] = {
    kvr_json_element(KVR_JSON_MAP, KVR_TENSORRT_MM_KEY, kvr_tensorrt_mm_key)
};

static const kvr_json_field_t  kvr_tensorrt_block_fields[] = {
    kvr_json_field("block_hash", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_BLOCK_HASH, NULL),
    kvr_json_field("tokens", KVR_JSON_NULL | KVR_JSON_LIST,
                   KVR_TENSORRT_TOKENS, kvr_tensorrt_tokens),
    kvr_json_field("cache_level", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_LEVEL, NULL),
    kvr_json_field("mm_keys", KVR_JSON_NULL | KVR_JSON_LIST,
                   KVR_TENSORRT_MM_KEYS, kvr_tensorrt_mm_keys),
    kvr_json_field("cache_salt", KVR_JSON_NULL | KVR_JSON_STRING,
                   KVR_TENSORRT_SALT, NULL),
    kvr_json_field("lora_id", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_LORA_ID, NULL),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_tensorrt_blocks[] = {
    kvr_json_element(KVR_JSON_MAP, KVR_TENSORRT_BLOCK,
                     kvr_tensorrt_block_fields)
};

static const kvr_json_field_t  kvr_tensorrt_hashes[] = {
    kvr_json_element(KVR_TENSORRT_NUMBER, KVR_TENSORRT_HASH, NULL)
};

static const kvr_json_field_t  kvr_tensorrt_level[] = {
    kvr_json_field("old_value", KVR_TENSORRT_MAYBE, KVR_TENSORRT_OLD, NULL),
    kvr_json_field("new_value", KVR_TENSORRT_MAYBE, KVR_TENSORRT_NEW, NULL),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_tensorrt_data[] = {
    kvr_json_field("type", KVR_JSON_STRING, KVR_TENSORRT_TYPE, NULL),
    kvr_json_field("parent_hash", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_PARENT, NULL),
    kvr_json_field("blocks", KVR_JSON_LIST,
                   KVR_TENSORRT_BLOCKS, kvr_tensorrt_blocks),
    kvr_json_field("block_hashes", KVR_JSON_LIST,
                   KVR_TENSORRT_HASHES, kvr_tensorrt_hashes),
    kvr_json_field("block_hash", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_UPDATED_HASH, NULL),
    kvr_json_field("cache_level", KVR_JSON_NULL | KVR_JSON_MAP,
                   KVR_TENSORRT_UPDATED_LEVEL, kvr_tensorrt_level),
    kvr_json_field("lora_name", KVR_JSON_NULL | KVR_JSON_STRING,
                   KVR_TENSORRT_LORA_NAME, NULL),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_tensorrt_event[] = {
    kvr_json_field("event_id", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_EVENT_ID, NULL),
    kvr_json_field("data", KVR_JSON_MAP,
                   KVR_TENSORRT_DATA, kvr_tensorrt_data),
    kvr_json_field("window_size", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_WINDOW, NULL),
    kvr_json_field("attention_dp_rank", KVR_TENSORRT_MAYBE,
                   KVR_TENSORRT_RANK, NULL),
    kvr_json_fields_end
};


const kvr_json_events_t  kvr_tensorrt_events = {
    kvr_tensorrt_event,
    kvr_tensorrt_begin,
    kvr_tensorrt_take,
    kvr_tensorrt_end,
    kvr_tensorrt_bad
};


/* An optional field can be null; a block's end checks the required ones. */

static void
kvr_tensorrt_take(kvr_decoder_t *d, uint32_t name, const kvr_json_value_t *v)
{
    kvr_tensorrt_t  *t;

    t = d->state.data;

    if (v->kind == KVR_JSON_NULL) {

        if (name == KVR_TENSORRT_TOKEN_ID) {
            kvr_tensorrt_block_wrong(t, KVR_WHY_SYNTAX);
        }

        return;
    }

    if (v->kind == KVR_JSON_LIST || v->kind == KVR_JSON_MAP) {
        kvr_tensorrt_container(t, name);
        return;
    }

    switch (name) {

    case KVR_TENSORRT_TOKEN:
    case KVR_TENSORRT_TOKEN_ID:
        kvr_tensorrt_token(d, v);
        break;

    case KVR_TENSORRT_TYPE:
        kvr_tensorrt_type(t, v->text, v->len);
        break;

    case KVR_TENSORRT_LORA_NAME:
        t->lora_len = kvr_tensorrt_text(t, &d->lora, v->text, v->len)
                      ? v->len : 0;
        break;

    case KVR_TENSORRT_SALT:
        kvr_tensorrt_salt(d, v->text, v->len);
        break;

    case KVR_TENSORRT_MM_HASH:
        kvr_tensorrt_mm(d, v->text, v->len);
        break;

    default:
        kvr_tensorrt_number(d, name, v);
        break;
    }
}


static void
kvr_tensorrt_container(kvr_tensorrt_t *t, uint32_t name)
{
    switch (name) {

    case KVR_TENSORRT_BLOCKS:
        t->has_blocks = true;
        break;

    case KVR_TENSORRT_HASHES:
        t->has_hashes = true;
        break;

    case KVR_TENSORRT_BLOCK:
        memset(&t->block, 0, sizeof(kvr_tensorrt_block_t));
        t->block_salted = false;
        break;

    case KVR_TENSORRT_MM_KEY:
        t->mm_hashed = false;
        break;

    default:
        break;
    }
}


static void
kvr_tensorrt_number(kvr_decoder_t *d, uint32_t name,
    const kvr_json_value_t *v)
{
    bool             has, number;
    uint64_t         n;
    kvr_tensorrt_t  *t;

    t = d->state.data;
    n = 0;
    number = kvr_u64_parse(v->text, v->len, &n);

    switch (name) {

    case KVR_TENSORRT_EXTRA_ID:
        if (!number || n != 0) {
            kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
        }

        return;

    case KVR_TENSORRT_LORA_ID:
        t->block.lora = number ? KVR_LORA_NUMBER : KVR_LORA_OTHER;
        t->block.lora_id = n;
        return;

    case KVR_TENSORRT_PARENT:
        kvr_tensorrt_hash(t, v, &t->has_parent, &t->parent);
        return;

    case KVR_TENSORRT_UPDATED_HASH:
        kvr_tensorrt_hash(t, v, &t->has_hash, &t->hash);
        return;

    case KVR_TENSORRT_BLOCK_HASH:
        t->block.has_hash = kvr_hash_parse(v->text, v->len,
                                           v->kind == KVR_JSON_STRING,
                                           &t->block.hash);
        return;

    case KVR_TENSORRT_HASH:
        kvr_tensorrt_hash(t, v, &has, &n);
        kvr_tensorrt_append(t, &d->handles, &t->nhashes, n);
        return;

    case KVR_TENSORRT_RANK:
        if (!number || n >= KVR_RANKS_MAX) {
            kvr_tensorrt_wrong(t, KVR_WHY_RANK,
                               "attention_dp_rank out of range");
            return;
        }

        t->rank = (uint32_t) n;
        return;

    case KVR_TENSORRT_EVENT_ID:
        t->has_id = number;
        t->id = n;
        break;

    case KVR_TENSORRT_WINDOW:
        number = number && n <= UINT32_MAX;
        t->window = (uint32_t) n;
        break;

    case KVR_TENSORRT_LEVEL:
        t->block.level = number ? n : t->block.level;
        break;

    case KVR_TENSORRT_OLD:
        t->has_old |= number;
        t->old_level = number ? n : t->old_level;
        break;

    default: /* KVR_TENSORRT_NEW */
        t->has_new |= number;
        t->new_level = number ? n : t->new_level;
        break;
    }

    if (!number) {
        kvr_tensorrt_wrong(t, KVR_WHY_SYNTAX, "a field has the wrong type");
    }
}


static void
kvr_tensorrt_end(kvr_decoder_t *d, uint32_t name)
{
    kvr_tensorrt_t  *t;

    t = d->state.data;

    if (name == KVR_TENSORRT_BLOCK) {
        kvr_tensorrt_block(d);

    } else if (name == KVR_TENSORRT_MM_KEY && !t->mm_hashed) {
        kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
    }
}


/*
 * Refuses the event for a value of the wrong kind, or only the block, if the
 * value belongs to a block.
 */

static void
kvr_tensorrt_bad(kvr_decoder_t *d, uint32_t name, kvr_why_t why,
    const char *detail)
{
    kvr_tensorrt_t  *t;

    t = d->state.data;

    switch (name) {

    case KVR_TENSORRT_TOKEN:
        kvr_tensorrt_block_wrong(t, KVR_WHY_SYNTAX);
        break;

    case KVR_TENSORRT_TOKEN_ID:
    case KVR_TENSORRT_EXTRA_ID:
    case KVR_TENSORRT_MM_KEYS:
    case KVR_TENSORRT_MM_KEY:
    case KVR_TENSORRT_MM_HASH:
    case KVR_TENSORRT_SALT:
        kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
        break;

    case KVR_TENSORRT_BLOCK:
        kvr_tensorrt_wrong(t, why, "block is not an object");
        break;

    default:
        kvr_tensorrt_wrong(t, why, detail);
        break;
    }
}


/* Fields. */


static void
kvr_tensorrt_type(kvr_tensorrt_t *t, const char *text, size_t len)
{
    uint32_t  i;

    static const char *const  types[] = {
        "", "created", "stored", "removed", "updated", NULL
    };

    t->type = kvr_word_at(types, text, len, &i) ? (kvr_tensorrt_type_t) i
                                                : KVR_TENSORRT_UNKNOWN;
}


static void
kvr_tensorrt_hash(kvr_tensorrt_t *t, const kvr_json_value_t *v, bool *has,
    uint64_t *hash)
{
    *has = kvr_hash_parse(v->text, v->len, v->kind == KVR_JSON_STRING, hash);

    if (!*has) {
        *hash = 0;
        kvr_tensorrt_wrong(t, KVR_WHY_SYNTAX, "not a block hash");
    }
}


/* Text that is not a number stands for a part of an image. */
static void
kvr_tensorrt_token(kvr_decoder_t *d, const kvr_json_value_t *v)
{
    uint32_t        *tokens;
    uint64_t         token;
    kvr_tensorrt_t  *t;

    t = d->state.data;

    if (!kvr_u64_parse(v->text, v->len, &token) || token > UINT32_MAX) {
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

    t = d->state.data;
    t->mm_hashed = true;

    if (kvr_hex_digits(text, len) < 16) {
        kvr_tensorrt_block_wrong(t, KVR_WHY_EXTRA_KEY);
        return;
    }

    before = (t->nblocks != 0)
             ? ((kvr_tensorrt_block_t *) d->blocks.data)[t->nblocks - 1].mm
             : 0;

    if (t->nmm - before == KVR_BLOCK_MM_MAX) {
        kvr_tensorrt_block_wrong(t, KVR_WHY_LIMIT);
        return;
    }

    kvr_tensorrt_append(t, &d->mm, &t->nmm, kvr_hex_value(text, 16));
}


/*
 * Reads a salt.  An event has one salt: blocks behind a block with another
 * salt can't be hashed.
 */

static void
kvr_tensorrt_salt(kvr_decoder_t *d, const char *text, size_t len)
{
    kvr_tensorrt_t  *t;

    t = d->state.data;

    if (len == 0) {
        return;
    }

    t->block_salted = true;

    if (t->salt_len == 0 && t->nblocks == 0) {
        t->salt_len = kvr_tensorrt_text(t, &d->salt, text, len) ? len : 0;
        return;
    }

    if (t->salt_len != len || memcmp(d->salt.data, text, len) != 0) {
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

    t = d->state.data;

    if (t->nblocks == KVR_EVENT_BLOCKS_MAX) {
        kvr_tensorrt_wrong(t, KVR_WHY_LIMIT, "too many blocks");
        return;
    }

    blocks = kvr_scratch_reserve(&d->blocks,
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


static void
kvr_tensorrt_begin(kvr_decoder_t *d)
{
    kvr_tensorrt_t  *t;

    t = d->state.data;

    memset(t, 0, sizeof(kvr_tensorrt_t));
    t->rank = d->rank;
}
