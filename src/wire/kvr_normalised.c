/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Normalised batches, kv-relay's own: an array of
 *
 *     ["s", rank, tier, parent|nil, handles, locals]
 *     ["r", rank, tier, handles]
 *     ["c", rank]
 *     ["g", rank, class, kind, window, block size]
 *     ["b", rank, class, handles added, handles removed]
 *
 * with handles and locals as bin of little-endian u64.  The last two are of
 * holders with several KV-cache groups: "g" describes a class of groups, with
 * the kind as a number (kvr_group_kind_t), a window in the engine's blocks and
 * a block size in tokens; "b" says which blocks the class holds from now on,
 * and no longer.  Elements after these are a later version's, and ignored.
 */


#include "kvr_decoder.h"


#define KVR_NORMALISED_FIELDS  6


static kvr_rc_t kvr_normalised_next(kvr_decoder_t *d, kvr_event_t *ev);
static kvr_rc_t kvr_normalised_event(kvr_decoder_t *d, kvr_event_t *ev,
    kvr_msgpack_item_t *item, uint32_t n);
static kvr_rc_t kvr_normalised_class(kvr_decoder_t *d, kvr_event_t *ev,
    const kvr_msgpack_item_t *item);
static kvr_rc_t kvr_normalised_bits(kvr_decoder_t *d, kvr_event_t *ev,
    const kvr_msgpack_item_t *item);
static const uint64_t *kvr_normalised_u64s(kvr_decoder_t *d, kvr_event_t *ev,
    const kvr_msgpack_item_t *item, kvr_scratch_t *to, uint32_t max,
    uint32_t *n);


const kvr_normalised_t  kvr_normalised[KVR_BITS + 1] = {
    [KVR_STORE] = { "s", 6 },
    [KVR_REMOVE] = { "r", 4 },
    [KVR_CLEAR] = { "c", 2 },
    [KVR_CLASS] = { "g", 6 },
    [KVR_BITS] = { "b", 5 }
};


kvr_rc_t
kvr_normalised_open(kvr_decoder_t *d, kvr_why_t *why)
{
    kvr_msgpack_item_t  frame;

    if (kvr_msgpack_read(&d->in, &frame) != KVR_OK) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX, "broken msgpack");
    }

    d->left = frame.count;
    d->next = kvr_normalised_next;

    return KVR_OK;
}


static kvr_rc_t
kvr_normalised_next(kvr_decoder_t *d, kvr_event_t *ev)
{
    bool                nested;
    uint32_t            i;
    kvr_rc_t            rc;
    kvr_msgpack_item_t  event, item[KVR_NORMALISED_FIELDS], other, *to;

    if (d->left == 0) {
        return d->in.left == 0 ? KVR_DONE : KVR_INVALID;
    }

    d->left--;

    ev->unranked = true;

    if (kvr_msgpack_read(&d->in, &event) != KVR_OK) {
        return KVR_INVALID;
    }

    if (event.type != MPACK_TOKEN_ARRAY) {
        if (kvr_msgpack_skip_rest(&d->in, &event, KVR_MSGPACK_DEPTH)
            == KVR_INVALID)
        {
            return KVR_INVALID;
        }

        return kvr_event_refuse(d, ev, KVR_WHY_TYPE, "event is not an array");
    }

    nested = false;

    for (i = 0; i < event.count; i++) {

        to = i < KVR_NORMALISED_FIELDS ? &item[i] : &other;

        if (kvr_msgpack_read(&d->in, to) != KVR_OK) {
            return KVR_INVALID;
        }

        rc = kvr_msgpack_skip_rest(&d->in, to, KVR_MSGPACK_DEPTH - 2);
        if (rc == KVR_INVALID) {
            return KVR_INVALID;
        }

        if (rc == KVR_FULL) {
            nested = true;
        }
    }

    if (nested) {
        return kvr_event_refuse(d, ev, KVR_WHY_LIMIT, "nested too deep");
    }

    return kvr_normalised_event(d, ev, item, event.count);
}


static kvr_rc_t
kvr_normalised_event(kvr_decoder_t *d, kvr_event_t *ev,
    kvr_msgpack_item_t *item, uint32_t n)
{
    uint32_t             kind;
    kvr_msgpack_item_t  *parent;

    for (kind = 0; /* void */ ; kind++) {

        if (n == 0 || kind > KVR_BITS) {
            return kvr_event_refuse(d, ev, KVR_WHY_TYPE, "unknown event type");
        }

        if (kvr_msgpack_equals(&item[0], kvr_normalised[kind].tag)) {
            break;
        }
    }

    if (n < kvr_normalised[kind].fields) {
        return kvr_event_refuse(d, ev, KVR_WHY_SYNTAX, "short event");
    }

    ev->kind = (kvr_event_kind_t) kind;

    if (item[1].type != MPACK_TOKEN_UINT || item[1].number >= KVR_RANKS_MAX) {
        return kvr_event_refuse(d, ev, KVR_WHY_RANK, "rank out of range");
    }

    ev->rank = (uint32_t) item[1].number;
    ev->unranked = false;

    if (ev->kind == KVR_CLEAR) {
        return KVR_OK;
    }

    if (ev->kind == KVR_CLASS || ev->kind == KVR_BITS) {
        return kvr_normalised_class(d, ev, item);
    }

    if (item[2].type != MPACK_TOKEN_UINT || item[2].number >= KVR_TIERS) {
        return kvr_event_refuse(d, ev, KVR_WHY_SYNTAX, "tier out of range");
    }

    ev->tier = (kvr_tier_t) item[2].number;

    if (ev->kind == KVR_REMOVE) {
        ev->handles = kvr_normalised_u64s(d, ev, &item[3], &d->handles,
                                          KVR_EVENT_BLOCKS_MAX, &ev->nhandles);
        return KVR_OK;
    }

    parent = &item[3];

    switch (parent->type) {

    case MPACK_TOKEN_NIL:
        break;

    case MPACK_TOKEN_UINT:
    case MPACK_TOKEN_SINT:
        ev->has_parent = true;
        ev->parent = parent->number;
        break;

    default:
        return kvr_event_refuse(d, ev, KVR_WHY_SYNTAX,
                                "parent is neither a number nor nil");
    }

    ev->handles = kvr_normalised_u64s(d, ev, &item[4], &d->handles,
                                      KVR_EVENT_BLOCKS_MAX, &ev->nhandles);
    if (ev->verdict != KVR_KEEP) {
        return KVR_OK;
    }

    ev->locals = kvr_normalised_u64s(d, ev, &item[5], &d->locals,
                                     KVR_EVENT_TOKENS_MAX, &ev->nlocals);
    if (ev->verdict != KVR_KEEP) {
        return KVR_OK;
    }

    if (ev->nlocals != 0
        && (ev->nhandles == 0 || ev->nlocals % ev->nhandles != 0))
    {
        return kvr_event_refuse(d, ev, KVR_WHY_LENGTH,
                                "locals are no multiple of handles");
    }

    return KVR_OK;
}


/* Reads "g" and "b" behind the rank. */
static kvr_rc_t
kvr_normalised_class(kvr_decoder_t *d, kvr_event_t *ev,
    const kvr_msgpack_item_t *item)
{
    if (item[2].type != MPACK_TOKEN_UINT
        || item[2].number >= KVR_CLASSES_MAX)
    {
        return kvr_event_refuse(d, ev, KVR_WHY_LIMIT,
                                "class of KV-cache groups out of range");
    }

    ev->class_at = (uint32_t) item[2].number;

    if (ev->kind == KVR_BITS) {
        return kvr_normalised_bits(d, ev, item);
    }

    if (item[3].type != MPACK_TOKEN_UINT || item[3].number > UINT32_MAX
        || !kvr_group_has_rule((uint32_t) item[3].number)
        || item[4].type != MPACK_TOKEN_UINT || item[4].number > UINT32_MAX
        || item[5].type != MPACK_TOKEN_UINT || item[5].number > UINT32_MAX)
    {
        return kvr_event_refuse(d, ev, KVR_WHY_SYNTAX,
                                "kind, window or block size of KV-cache "
                                "groups out of range");
    }

    ev->group_kind = (kvr_group_kind_t) item[3].number;
    ev->class_window = (uint32_t) item[4].number;
    ev->block_size = (uint32_t) item[5].number;

    return KVR_OK;
}


static kvr_rc_t
kvr_normalised_bits(kvr_decoder_t *d, kvr_event_t *ev,
    const kvr_msgpack_item_t *item)
{
    (void) kvr_normalised_u64s(d, ev, &item[3], &d->handles,
                               KVR_EVENT_BLOCKS_MAX, &ev->nhandles);
    ev->nadded = ev->nhandles;

    if (ev->verdict == KVR_KEEP) {
        (void) kvr_normalised_u64s(d, ev, &item[4], &d->handles,
                                   KVR_EVENT_BLOCKS_MAX, &ev->nhandles);
    }

    /* if the second list is wrong, the first one is there still */

    ev->handles = d->handles.data;

    return KVR_OK;
}


/*
 * Reads numbers behind the first *n of `to`; returns all of them.  If the item
 * is not valid, refuses the event and returns NULL.
 */

static const uint64_t *
kvr_normalised_u64s(kvr_decoder_t *d, kvr_event_t *ev,
    const kvr_msgpack_item_t *item, kvr_scratch_t *to, uint32_t max,
    uint32_t *n)
{
    size_t          all;
    uint32_t        k;
    uint64_t       *out;
    const uint8_t  *p, *end;

    if (item->type != MPACK_TOKEN_BIN) {
        (void) kvr_event_refuse(d, ev, KVR_WHY_SYNTAX,
                                "handles or locals are not bin");
        return NULL;
    }

    if (item->count % 8 != 0) {
        (void) kvr_event_refuse(d, ev, KVR_WHY_LENGTH,
                                "handles or locals are not whole u64");
        return NULL;
    }

    all = *n + (size_t) item->count / 8;

    if (all > max) {
        (void) kvr_event_refuse(d, ev, KVR_WHY_LIMIT, "too many blocks");
        return NULL;
    }

    out = kvr_scratch_reserve(to, all * 8);
    if (out == NULL && all != 0) {
        (void) kvr_event_refuse(d, ev, KVR_WHY_LIMIT, "out of memory");
        return NULL;
    }

    p = (const uint8_t *) item->bytes;

    for (end = p + item->count; p != end; p += 8, (*n)++) {
        out[*n] = 0;

        for (k = 0; k < 8; k++) {
            out[*n] |= (uint64_t) p[k] << (k * 8);
        }
    }

    return out;
}
