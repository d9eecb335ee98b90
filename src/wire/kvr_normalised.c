/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Normalised batches, kv-relay's own: an array of
 *
 *     ["s", rank, tier, parent|nil, handles, locals]
 *     ["r", rank, tier, handles]
 *     ["c", rank]
 *
 * with handles and locals as bin of little-endian u64.  Elements after these
 * are a later version's, and ignored.
 */


#include "kvr_decoder.h"


#define KVR_NORMALISED_FIELDS  6


static kvr_rc_t kvr_normalised_next(kvr_decoder_t *d, kvr_event_t *ev);
static kvr_rc_t kvr_normalised_event(kvr_decoder_t *d, kvr_event_t *ev,
    kvr_msgpack_item_t *item, uint32_t n);
static const uint64_t *kvr_normalised_u64s(kvr_decoder_t *d, kvr_event_t *ev,
    kvr_msgpack_item_t *item, kvr_scratch_t *to, uint32_t max, uint32_t *n);


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
    kvr_msgpack_item_t  event, item[KVR_NORMALISED_FIELDS], other;

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

        if (kvr_msgpack_read(&d->in,
                             i < KVR_NORMALISED_FIELDS ? &item[i] : &other)
            != KVR_OK)
        {
            return KVR_INVALID;
        }

        rc = kvr_msgpack_skip_rest(&d->in,
                                   i < KVR_NORMALISED_FIELDS ? &item[i]
                                                             : &other,
                                   KVR_MSGPACK_DEPTH - 2);
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
    uint32_t             fields;
    kvr_msgpack_item_t  *parent;

    if (n != 0 && kvr_msgpack_equals(&item[0], "s")) {
        ev->kind = KVR_STORE;
        fields = 6;

    } else if (n != 0 && kvr_msgpack_equals(&item[0], "r")) {
        ev->kind = KVR_REMOVE;
        fields = 4;

    } else if (n != 0 && kvr_msgpack_equals(&item[0], "c")) {
        ev->kind = KVR_CLEAR;
        fields = 2;

    } else {
        return kvr_event_refuse(d, ev, KVR_WHY_TYPE, "unknown event type");
    }

    if (n < fields) {
        return kvr_event_refuse(d, ev, KVR_WHY_SYNTAX, "short event");
    }

    if (item[1].type != MPACK_TOKEN_UINT || item[1].number >= KVR_RANKS_MAX) {
        return kvr_event_refuse(d, ev, KVR_WHY_RANK, "rank out of range");
    }

    ev->rank = (uint32_t) item[1].number;
    ev->unranked = false;

    if (ev->kind == KVR_CLEAR) {
        return KVR_OK;
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


/* If the item is not valid, refuses the event and returns NULL. */
static const uint64_t *
kvr_normalised_u64s(kvr_decoder_t *d, kvr_event_t *ev,
    kvr_msgpack_item_t *item, kvr_scratch_t *to, uint32_t max, uint32_t *n)
{
    uint32_t        i, k;
    uint64_t       *out;
    const uint8_t  *p;

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

    if (item->count / 8 > max) {
        (void) kvr_event_refuse(d, ev, KVR_WHY_LIMIT, "too many blocks");
        return NULL;
    }

    out = kvr_scratch_reserve(to, item->count);
    if (out == NULL && item->count != 0) {
        (void) kvr_event_refuse(d, ev, KVR_WHY_LIMIT, "out of memory");
        return NULL;
    }

    p = (const uint8_t *) item->bytes;
    *n = item->count / 8;

    for (i = 0; i < *n; i++, p += 8) {
        out[i] = 0;

        for (k = 0; k < 8; k++) {
            out[i] |= (uint64_t) p[k] << (k * 8);
        }
    }

    return out;
}
