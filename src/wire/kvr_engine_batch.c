/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Batches as engines publish them: vLLM, SGLang, and what shares their form
 * (docs/events.md).  A batch is [ts, events, rank] or a map of
 * these; an event is an array, its fields told by position, or a map, its
 * fields told by name.
 */


#include "kvr_engine_event.h"


typedef enum {
    KVR_BATCH_EVENTS,
    KVR_BATCH_RANK,
    KVR_BATCH_OTHER
} kvr_batch_part_t;


typedef struct {
    const char          *name;
    uint32_t             len;
    kvr_field_read_t    *read;
} kvr_field_t;


static kvr_rc_t kvr_engine_window(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item);
static kvr_rc_t kvr_engine_batch_part(kvr_decoder_t *d,
    const kvr_msgpack_item_t *frame, uint32_t i, kvr_batch_part_t *part);
static kvr_rc_t kvr_engine_batch_next(kvr_decoder_t *d, kvr_event_t *ev);
static kvr_rc_t kvr_engine_array(kvr_decoder_t *d, kvr_engine_event_t *e,
    uint32_t n);
static kvr_rc_t kvr_engine_map(kvr_decoder_t *d, kvr_engine_event_t *e,
    uint32_t n);
static kvr_rc_t kvr_engine_verdict(kvr_decoder_t *d, kvr_engine_event_t *e);
static kvr_rc_t kvr_engine_rest(kvr_decoder_t *d, kvr_engine_event_t *e);
static kvr_rc_t kvr_engine_store_verdict(kvr_decoder_t *d,
    kvr_engine_event_t *e);
static kvr_why_t kvr_engine_left_out(kvr_decoder_t *d, kvr_engine_event_t *e,
    uint32_t *blocks);
static kvr_why_t kvr_engine_store_wrong(const kvr_engine_event_t *e,
    const char **detail);


/* Fields after the tag, by position. */

static kvr_field_read_t *const  kvr_stored_fields[] = {
    kvr_field_handles, kvr_field_parent, kvr_field_tokens,
    kvr_field_block_size, kvr_field_lora_id, kvr_field_medium,
    kvr_field_seventh, kvr_field_extra_keys, kvr_field_group,
    kvr_field_group_kind, kvr_engine_window, NULL
};

static kvr_field_read_t *const  kvr_removed_fields[] = {
    kvr_field_handles, kvr_field_medium, kvr_field_group, NULL
};

static kvr_field_read_t *const  kvr_cleared_fields[] = { NULL };


/*
 * Fields by name; RFC 1527's own names come last.  SGLang has its salt in
 * metadata; newer versions have it beside the other fields.  Other fields of
 * vLLM and SGLang (session_id, ownership, lookahead_token_ids, ...) are
 * skipped.
 */

#define KVR_FIELD(name, read)  { name, sizeof(name) - 1, read }

static const kvr_field_t  kvr_named_fields[] = {
    KVR_FIELD("type", kvr_field_tag),
    KVR_FIELD("event_type", kvr_field_tag),
    KVR_FIELD("block_hashes", kvr_field_handles),
    KVR_FIELD("parent_block_hash", kvr_field_parent),
    KVR_FIELD("token_ids", kvr_field_tokens),
    KVR_FIELD("block_size", kvr_field_block_size),
    KVR_FIELD("lora_id", kvr_field_lora_id),
    KVR_FIELD("medium", kvr_field_medium),
    KVR_FIELD("lora_name", kvr_field_lora_name),
    KVR_FIELD("metadata", kvr_field_metadata),
    KVR_FIELD("extra_keys", kvr_field_extra_keys),
    KVR_FIELD("group_idx", kvr_field_group),
    KVR_FIELD("kv_cache_spec_kind", kvr_field_group_kind),
    KVR_FIELD("spec_kind", kvr_field_group_kind),
    KVR_FIELD("kv_cache_spec_sliding_window", kvr_engine_window),
    KVR_FIELD("locality", kvr_field_locality),
    KVR_FIELD("remaining_copy_counts", kvr_field_remaining),
    KVR_FIELD("origin", kvr_field_origin),
    KVR_FIELD("data_parallel_rank", kvr_field_rank),
    KVR_FIELD("dp_rank", kvr_field_rank),
    KVR_FIELD("seq_hashes", kvr_field_handles),
    KVR_FIELD("parent_hash", kvr_field_parent),
    KVR_FIELD("cache_salt", kvr_field_salt),
    KVR_FIELD("additional_salt", kvr_field_salt),
    KVR_FIELD("base_block_idx", kvr_field_base),
    KVR_FIELD("event_id", kvr_field_event_id),
    KVR_FIELD("tenant_id", kvr_field_tenant),
    KVR_FIELD("object_key", kvr_field_object_key),
    KVR_FIELD("group_id", kvr_field_object_group),
    KVR_FIELD("block_mm_infos", kvr_field_mm_infos),
    { NULL, 0, kvr_field_skip }
};


kvr_rc_t
kvr_engine_batch_open(kvr_decoder_t *d, kvr_why_t *why)
{
    bool                found;
    uint32_t            i;
    kvr_batch_part_t    part;
    kvr_msgpack_t       events;
    kvr_msgpack_item_t  frame, item;

    if (kvr_msgpack_read(&d->in, &frame) != KVR_OK) {
        goto broken;
    }

    found = false;
    memset(&events, 0, sizeof(kvr_msgpack_t));

    for (i = 0; i < frame.count; i++) {

        if (kvr_engine_batch_part(d, &frame, i, &part) != KVR_OK
            || kvr_msgpack_read(&d->in, &item) != KVR_OK)
        {
            goto broken;
        }

        if (part == KVR_BATCH_RANK) {
            if (item.type == MPACK_TOKEN_UINT && item.number < KVR_RANKS_MAX) {
                d->rank = (uint32_t) item.number;

            } else if (item.type != MPACK_TOKEN_NIL) {
                return kvr_frame_invalid(d, why, KVR_WHY_RANK,
                                         "rank out of range");
            }
        }

        if (part == KVR_BATCH_EVENTS) {
            if (item.type != MPACK_TOKEN_ARRAY) {
                return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                         "events are not an array");
            }

            found = true;
            events = d->in;
            d->left = item.count;

            /*
             * a rank comes after the events: if the frame has no rank, stop
             * here
             */

            if (frame.type == MPACK_TOKEN_ARRAY && frame.count == 2) {
                d->in.left = 0;
                break;
            }
        }

        if (kvr_msgpack_skip_rest(&d->in, &item, KVR_MSGPACK_DEPTH - 1)
            == KVR_INVALID)
        {
            goto broken;
        }

        if (part == KVR_BATCH_EVENTS) {
            events.left = (size_t) (d->in.pos - events.pos);
        }
    }

    if (!found) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                 "a batch without events");
    }

    if (d->in.left != 0) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                 "bytes after the batch");
    }

    d->in = events;
    d->next = kvr_engine_batch_next;

    return KVR_OK;

broken:

    return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX, "broken msgpack");
}


/* Tells what the next value of a batch is; of a map, reads the key first. */
static kvr_rc_t
kvr_engine_batch_part(kvr_decoder_t *d, const kvr_msgpack_item_t *frame,
    uint32_t i, kvr_batch_part_t *part)
{
    kvr_msgpack_item_t  key;

    *part = KVR_BATCH_OTHER;

    if (frame->type == MPACK_TOKEN_ARRAY) {
        if (i == 1) {
            *part = KVR_BATCH_EVENTS;

        } else if (i == 2) {
            *part = KVR_BATCH_RANK;
        }

        return KVR_OK;
    }

    if (kvr_msgpack_read(&d->in, &key) != KVR_OK) {
        return KVR_INVALID;
    }

    /* names of the rank: vLLM's, the one in events, and SGLang's */

    if (kvr_msgpack_equals(&key, "events")) {
        *part = KVR_BATCH_EVENTS;

    } else if (kvr_msgpack_equals(&key, "data_parallel_rank")
               || kvr_msgpack_equals(&key, "dp_rank")
               || kvr_msgpack_equals(&key, "attn_dp_rank"))
    {
        *part = KVR_BATCH_RANK;
    }

    return kvr_msgpack_skip_rest(&d->in, &key, KVR_MSGPACK_DEPTH - 1)
           == KVR_INVALID ? KVR_INVALID : KVR_OK;
}


static kvr_rc_t
kvr_engine_batch_next(kvr_decoder_t *d, kvr_event_t *ev)
{
    kvr_rc_t            rc;
    kvr_msgpack_item_t  item;
    kvr_engine_event_t  e;

    if (d->left == 0) {
        return d->in.left == 0 ? KVR_DONE : KVR_INVALID;
    }

    d->left--;

    if (kvr_msgpack_read(&d->in, &item) != KVR_OK) {
        return KVR_INVALID;
    }

    memset(&e, 0, sizeof(kvr_engine_event_t));
    e.ev = ev;

    if (item.type == MPACK_TOKEN_ARRAY) {
        rc = kvr_engine_array(d, &e, item.count);

    } else if (item.type == MPACK_TOKEN_MAP) {
        rc = kvr_engine_map(d, &e, item.count);

    } else {
        return kvr_event_refuse(d, ev, KVR_WHY_TYPE,
                                "event is neither an array nor a map");
    }

    return rc == KVR_OK ? kvr_engine_verdict(d, &e) : rc;
}


static kvr_rc_t
kvr_engine_array(kvr_decoder_t *d, kvr_engine_event_t *e, uint32_t n)
{
    uint32_t             i;
    kvr_field_read_t    *read;
    kvr_msgpack_item_t   item;
    kvr_field_read_t *const  *field;

    field = kvr_cleared_fields;

    for (i = 0; i < n; i++) {

        if (kvr_msgpack_read(&d->in, &item) != KVR_OK) {
            return KVR_INVALID;
        }

        if (i == 0) {
            read = kvr_field_tag;

        } else {
            read = (*field != NULL) ? *field++ : kvr_field_skip;
        }

        if (read(d, e, &item) != KVR_OK) {
            return KVR_INVALID;
        }

        if (i == 0 && e->tagged) {

            if (e->ev->kind == KVR_STORE) {
                field = kvr_stored_fields;

            } else if (e->ev->kind == KVR_REMOVE) {
                field = kvr_removed_fields;
            }
        }
    }

    return KVR_OK;
}


static kvr_rc_t
kvr_engine_map(kvr_decoder_t *d, kvr_engine_event_t *e, uint32_t n)
{
    uint32_t             i;
    kvr_msgpack_item_t   key, item;
    const kvr_field_t   *field;

    for (i = 0; i < n; i++) {

        if (kvr_msgpack_read(&d->in, &key) != KVR_OK
            || kvr_field_skip(d, e, &key) != KVR_OK
            || kvr_msgpack_read(&d->in, &item) != KVR_OK)
        {
            return KVR_INVALID;
        }

        for (field = kvr_named_fields; field->name != NULL; field++) {
            if (key.type == MPACK_TOKEN_STR && key.count == field->len
                && memcmp(key.bytes, field->name, key.count) == 0)
            {
                break;
            }
        }

        if (field->read(d, e, &item) != KVR_OK) {
            return KVR_INVALID;
        }
    }

    return KVR_OK;
}


/*
 * Reads a group's window.  A value that is not a number counts as missing: the
 * group has no rule then.
 */

static kvr_rc_t
kvr_engine_window(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item)
{
    e->ev->group_window = item->type == MPACK_TOKEN_UINT
                          && item->number <= UINT32_MAX
                          ? (uint32_t) item->number : 0;

    return kvr_field_skip(d, e, item);
}


static kvr_rc_t
kvr_engine_verdict(kvr_decoder_t *d, kvr_engine_event_t *e)
{
    kvr_event_t  *ev;

    ev = e->ev;

    if (!e->tagged) {
        return kvr_event_refuse(d, ev, KVR_WHY_TYPE,
                                "event type is missing or unknown");
    }

    if (e->torn) {
        return kvr_event_refuse(d, ev, KVR_WHY_TYPE,
                                "type and event_type disagree");
    }

    if (e->foreign_tenant) {
        return kvr_event_filter(d, ev, KVR_WHY_EXTRA_KEY,
                                "a tenant other than the default one");
    }

    if (ev->kind != KVR_CLEAR) {

        if (e->object_part) {

            /* the engine's own cache may have a block by the same hash */

            ev->nhandles = 0;

            return kvr_event_filter(d, ev, KVR_WHY_OBJECT_KEY,
                                    "object_key is no number, or its group "
                                    "has a name: it may be a part of a "
                                    "block");
        }

        if (e->object_key && ev->nhandles == 0) {
            kvr_object_handle(d, e);
        }

        if (e->foreign_medium) {
            return kvr_event_filter(d, ev, KVR_WHY_MEDIUM, "unknown medium");
        }

        if (e->foreign_locality) {
            return kvr_event_filter(d, ev, KVR_WHY_LOCALITY,
                                    "locality is not LOCAL");
        }

        if (ev->group_kind > KVR_GROUP_INDEXED
            || (ev->group_kind == KVR_GROUP_UNSAID && ev->group != 0))
        {
            if (ev->group_kind == KVR_GROUP_UNSAID) {
                (void) kvr_engine_rest(d, e);
                ev->otherwise = ev->why;

            } else {
                ev->otherwise = e->has_handles ? e->wrong[ev->kind].why
                                               : KVR_WHY_SYNTAX;
            }

            return kvr_event_filter(d, ev, KVR_WHY_GROUP,
                                    "KV cache group is not indexed");
        }
    }

    return kvr_engine_rest(d, e);
}


/* Sets the event's verdict, after the filters that need no other field. */
static kvr_rc_t
kvr_engine_rest(kvr_decoder_t *d, kvr_engine_event_t *e)
{
    kvr_event_t  *ev;

    ev = e->ev;

    if (ev->kind == KVR_STORE) {
        return kvr_engine_store_verdict(d, e);
    }

    if (e->wrong[ev->kind].why != KVR_WHY_NONE) {
        return kvr_event_refuse(d, ev, e->wrong[ev->kind].why,
                                e->wrong[ev->kind].detail);
    }

    if (ev->kind == KVR_REMOVE && !e->has_handles) {
        return kvr_event_refuse(d, ev, KVR_WHY_SYNTAX,
                                "a removal without block hashes");
    }

    /* other fields that a map may name are ignored */

    if (ev->kind != KVR_REMOVE) {
        ev->nhandles = 0;
    }

    if (ev->nhandles == 0 || e->nremaining != ev->nhandles) {
        ev->remaining = NULL;
    }

    ev->ntokens = 0;
    ev->block_size = 0;

    return KVR_OK;
}


static kvr_rc_t
kvr_engine_store_verdict(kvr_decoder_t *d, kvr_engine_event_t *e)
{
    uint32_t      blocks;
    kvr_why_t     why;
    const char   *detail;
    kvr_event_t  *ev;

    ev = e->ev;
    ev->remaining = NULL;

    if (ev->pairs != d->conf.contract.pairs && (ev->pairs || ev->ntokens)) {
        return kvr_event_filter(d, ev, KVR_WHY_BIGRAM, ev->pairs
                ? "token pairs (EAGLE), and the index is not of pairs"
                : "single tokens, and the index is of pairs (EAGLE)");
    }

    if (ev->ntokens != 0) {

        if (e->has_lora_id && ev->lora_len == 0) {

            if (!e->lora_numbered) {
                return kvr_event_filter(d, ev, KVR_WHY_LORA_ID,
                                        "lora_id is no number, and there is "
                                        "no lora_name");
            }

            kvr_event_lora_id(d, ev, e->lora_id);
        }

        why = kvr_engine_left_out(d, e, &blocks);

        if (why != KVR_WHY_NONE) {

            if (blocks == 0) {
                return kvr_event_filter(d, ev, why, d->detail);
            }

            /* keep the blocks before the first block that is left out */

            ev->why = why;
            ev->nfiltered = ev->nhandles - blocks;
            ev->nhandles = blocks;
            ev->ntokens = (uint32_t) (e->block_size * blocks);
        }
    }

    why = kvr_engine_store_wrong(e, &detail);
    if (why != KVR_WHY_NONE) {
        return kvr_event_refuse(d, ev, why, detail);
    }

    if (ev->ntokens == 0) {
        ev->block_size = 0;
    }

    return KVR_OK;
}


/*
 * Why blocks at the end of a store are left out; d->detail has it in words.
 * *blocks: the number of blocks before them, which stay.
 */

static kvr_why_t
kvr_engine_left_out(kvr_decoder_t *d, kvr_engine_event_t *e, uint32_t *blocks)
{
    uint32_t      good;
    uint64_t      whole;
    kvr_why_t     why, keys;
    kvr_event_t  *ev;

    ev = e->ev;
    why = KVR_WHY_NONE;
    whole = e->block_size * ev->nhandles;
    *blocks = ev->nhandles;

    if (ev->nhandles != 0 && ev->ntokens < whole
        && ev->ntokens > whole - e->block_size)
    {
        why = KVR_WHY_PARTIAL;
        d->detail = "the last block is partial";
        whole -= e->block_size;
        ev->ntokens = (uint32_t) whole;
        (*blocks)--;
    }

    if (e->unclassified) {
        d->detail = "multimodal infos are not indexed, nor is what has two "
                    "salts";
        *blocks = 0;
        return KVR_WHY_EXTRA_KEY;
    }

    if (e->has_extra_keys) {
        keys = kvr_extra_keys(d, ev, &e->extra_keys_item, e->extra_keys,
                              &good);

        if (keys == KVR_WHY_EXTRA_KEY) {
            why = keys;
            d->detail = "an extra key can't be classified";
            *blocks = kvr_min(*blocks, good);

        } else if (keys != KVR_WHY_NONE) {
            kvr_engine_wrong(e, KVR_OF_STORE, keys,
                             "extra_keys don't fit the blocks");
        }
    }

    if (e->wrong[KVR_STORE].why != KVR_WHY_NONE || ev->ntokens != whole) {
        *blocks = 0;
    }

    return why;
}


/* Why a store is refused. */

static kvr_why_t
kvr_engine_store_wrong(const kvr_engine_event_t *e, const char **detail)
{
    const kvr_event_t  *ev;

    ev = e->ev;

    if (e->wrong[KVR_STORE].why != KVR_WHY_NONE) {
        *detail = e->wrong[KVR_STORE].detail;
        return e->wrong[KVR_STORE].why;
    }

    if (!e->has_handles || !e->has_tokens
        || (ev->ntokens != 0 && (!e->has_parent || !e->has_block_size)))
    {
        *detail = "a store without a required field";
        return KVR_WHY_SYNTAX;
    }

    if (ev->ntokens == 0) {
        return KVR_WHY_NONE;
    }

    if (e->block_size > KVR_BLOCK_SIZE_MAX) {
        *detail = "block_size too large";
        return KVR_WHY_LIMIT;
    }

    if (e->block_size == 0 || ev->ntokens != e->block_size * ev->nhandles) {
        *detail = "tokens are not block_size a block hash";
        return KVR_WHY_LENGTH;
    }

    if (e->off_root && !ev->has_parent) {
        *detail = "not a chain's first block, and no parent";
        return KVR_WHY_PARENT;
    }

    return KVR_WHY_NONE;
}
