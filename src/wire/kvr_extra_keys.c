/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Extra keys are what else an engine hashed into a block: one entry a block,
 * nil or an array of values without types.  What can't be told from the rest
 * ends what can be used of the event: a block must never be hashed as if it
 * were plain.
 */


#include "kvr_decoder.h"


#define KVR_MM_DIGITS         64    /* a multimodal identifier: SHA-256 */
#define KVR_SALT_TAG          "dynamo-cache-salt:"


static kvr_why_t kvr_extra_key(kvr_decoder_t *d, kvr_event_t *ev,
    kvr_msgpack_t *in, uint32_t block, uint32_t at, uint32_t *nmm);
static bool kvr_extra_mm(kvr_decoder_t *d, const kvr_msgpack_item_t *id,
    uint32_t *nmm);


kvr_why_t
kvr_extra_keys(kvr_decoder_t *d, kvr_event_t *ev,
    const kvr_msgpack_item_t *item, kvr_msgpack_t in, uint32_t *good)
{
    uint32_t            block, i, n, *mm_start;
    kvr_why_t           why, worst;
    kvr_msgpack_item_t  entry;

    *good = 0;

    if (item->type != MPACK_TOKEN_ARRAY) {
        return KVR_WHY_EXTRA_KEY;
    }

    if (item->count == 0) {
        return KVR_WHY_NONE;
    }

    if (item->count > KVR_EVENT_BLOCKS_MAX) {
        return KVR_WHY_LIMIT;
    }

    mm_start = kvr_scratch_reserve(&d->mm_start,
                                   (item->count + 1) * sizeof(uint32_t));
    if (mm_start == NULL) {
        return KVR_WHY_LIMIT;
    }

    n = 0;
    worst = (item->count == ev->nhandles) ? KVR_WHY_NONE : KVR_WHY_LENGTH;

    for (block = 0; block < item->count; block++) {
        mm_start[block] = n;

        if (kvr_msgpack_read(&in, &entry) != KVR_OK) {
            return KVR_WHY_EXTRA_KEY;
        }

        if (entry.type == MPACK_TOKEN_NIL) {
            continue;
        }

        if (entry.type != MPACK_TOKEN_ARRAY) {
            goto strange;
        }

        for (i = 0; i < entry.count; i++) {
            why = kvr_extra_key(d, ev, &in, block, i, &n);

            if (why == KVR_WHY_EXTRA_KEY) {
                goto strange;
            }

            if (why != KVR_WHY_NONE || n - mm_start[block] > KVR_BLOCK_MM_MAX)
            {
                worst = KVR_WHY_LIMIT;
            }
        }
    }

    mm_start[block] = n;

    if (worst == KVR_WHY_NONE && n != 0) {
        ev->mm = d->mm.data;
        ev->mm_start = mm_start;
    }

    return worst;

strange:

    if (worst == KVR_WHY_NONE) {
        *good = block;

        if (mm_start[block] != 0) {
            ev->mm = d->mm.data;
            ev->mm_start = mm_start;
        }
    }

    return KVR_WHY_EXTRA_KEY;
}


/* Reads key number `at` of the block's entry. */

static kvr_why_t
kvr_extra_key(kvr_decoder_t *d, kvr_event_t *ev, kvr_msgpack_t *in,
    uint32_t block, uint32_t at, uint32_t *nmm)
{
    bool                first;
    size_t              tag;
    kvr_msgpack_item_t  key, id;

    if (kvr_msgpack_read(in, &key) != KVR_OK) {
        return KVR_WHY_EXTRA_KEY;
    }

    if (key.type == MPACK_TOKEN_NIL) {
        return KVR_WHY_NONE;
    }

    if (key.type == MPACK_TOKEN_ARRAY && key.count == 2) {

        /* the pair is an identifier and its offset */

        if (kvr_msgpack_read(in, &id) != KVR_OK
            || kvr_msgpack_read(in, &key) != KVR_OK
            || (key.type != MPACK_TOKEN_UINT && key.type != MPACK_TOKEN_SINT)
            || id.type != MPACK_TOKEN_STR
            || kvr_hex_digits(id.bytes, id.count) < 16)
        {
            return KVR_WHY_EXTRA_KEY;
        }

        return kvr_extra_mm(d, &id, nmm) ? KVR_WHY_NONE : KVR_WHY_LIMIT;
    }

    if (key.type != MPACK_TOKEN_STR) {
        return KVR_WHY_EXTRA_KEY;
    }

    /*
     * vLLM puts the LoRA's name first (vllm/v1/core/kv_cache_utils.py,
     * generate_block_hash_extra_keys()).  The same text at a later position is
     * a salt.
     */

    if (at == 0 && ev->lora_len != 0 && key.count == ev->lora_len
        && memcmp(key.bytes, ev->lora_name, ev->lora_len) == 0)
    {
        return KVR_WHY_NONE;
    }

    /* only the first block of a chain has a salt */

    first = block == 0 && !ev->has_parent;
    tag = sizeof(KVR_SALT_TAG) - 1;

    if (key.count > tag && memcmp(key.bytes, KVR_SALT_TAG, tag) == 0) {
        return first && kvr_extra_salt(ev, key.bytes + tag, key.count - tag)
               ? KVR_WHY_NONE : KVR_WHY_EXTRA_KEY;
    }

    /* an engine that names kinds sends images as pairs: digits are the salt */

    if (key.count == KVR_MM_DIGITS
        && !(d->conf.salted && first && ev->group_kind != KVR_GROUP_UNSAID)
        && kvr_hex_digits(key.bytes, key.count) == KVR_MM_DIGITS)
    {
        return kvr_extra_mm(d, &key, nmm) ? KVR_WHY_NONE : KVR_WHY_LIMIT;
    }

    if (d->conf.salted && first && kvr_extra_salt(ev, key.bytes, key.count)) {
        return KVR_WHY_NONE;
    }

    return KVR_WHY_EXTRA_KEY;
}


bool
kvr_extra_salt(kvr_event_t *ev, const char *salt, size_t len)
{
    if (ev->salt_len != 0) {
        return ev->salt_len == len
               && memcmp(ev->cache_salt, salt, len) == 0;
    }

    ev->cache_salt = salt;
    ev->salt_len = len;

    return true;
}


static bool
kvr_extra_mm(kvr_decoder_t *d, const kvr_msgpack_item_t *id, uint32_t *nmm)
{
    uint64_t  *mm;

    mm = kvr_scratch_reserve(&d->mm, (*nmm + (size_t) 1) * sizeof(uint64_t));
    if (mm == NULL) {
        return false;
    }

    mm[(*nmm)++] = kvr_hex_value(id->bytes, 16);

    return true;
}
