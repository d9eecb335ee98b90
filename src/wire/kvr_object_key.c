/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Objects of Mooncake's store, which its master tells of in events of RFC 1527
 * (Mooncake, docs/source/design/kv-event/publisher-design.md): without tokens,
 * without a parent, and in versions of late 2026 without a hash, but with the
 * object's key.
 *
 * A key which is a number is the hash of a block.  The keys of vLLM's, vLLM
 * Ascend's and SGLang's connectors name what one process of an engine, or one
 * layer, has of a block.  No event says how many such parts a block has, so
 * they can't be told to hold it.
 */


#include "kvr_engine_event.h"


kvr_rc_t
kvr_field_object_key(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    size_t       len;
    const char  *text;

    if (item->type == MPACK_TOKEN_NIL) {
        return KVR_OK;
    }

    if (item->type != MPACK_TOKEN_STR) {
        e->object_part = true;
        return kvr_field_skip(d, e, item);
    }

    text = item->bytes;
    len = item->count;

    if (kvr_u64_parse(text, len, &e->object_hash)) {
        e->object_key = true;
        return KVR_OK;
    }

    if (len > 2 && len <= 18 && text[0] == '0' && text[1] == 'x'
        && kvr_hex_digits(text + 2, len - 2) == len - 2)
    {
        e->object_hash = kvr_hex_value(text + 2, len - 2);
        e->object_key = true;
        return KVR_OK;
    }

    e->object_part = true;

    return KVR_OK;
}


/*
 * RFC 1527's group is a number.  Mooncake's store has a name there, of objects
 * which belong together, and "" or null for none.
 */
kvr_rc_t
kvr_field_object_group(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    uint64_t  unused;

    if (item->type == MPACK_TOKEN_STR
        && !kvr_u64_parse(item->bytes, item->count, &unused))
    {
        e->object_part = e->object_part || item->count != 0;
        return KVR_OK;
    }

    return kvr_field_group(d, e, item);
}


void
kvr_object_handle(kvr_decoder_t *d, kvr_engine_event_t *e)
{
    uint64_t  *handles;

    handles = kvr_scratch_reserve(&d->handles, sizeof(uint64_t));
    if (handles == NULL) {
        kvr_engine_wrong(e, KVR_OF_BLOCKS, KVR_WHY_LIMIT, "out of memory");
        return;
    }

    handles[0] = e->object_hash;

    e->has_handles = true;
    e->ev->handles = handles;
    e->ev->nhandles = 1;
}
