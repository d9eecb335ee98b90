/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv-relay's envelope: ["kvr1", worker, epoch, seq, complete, rank, payload,
 * engine_seq, hybrid, draining].  The last three may be missing; engine_seq is
 * for kv-relay itself.  Further elements belong to later versions and are
 * ignored.
 */


#include "kvr_decoder.h"

#include <stdio.h>


#define KVR_ENVELOPE_NAME    "kvr"   /* before the version's number */
#define KVR_ENVELOPE_VERSION "kvr1"  /* the version that is read */
#define KVR_ENVELOPE_DIGITS  8       /* the maximum of the number's digits */
#define KVR_ENVELOPE_FIELDS  7       /* required fields */
#define KVR_ENVELOPE_HYBRID  8       /* position of hybrid, */
#define KVR_ENVELOPE_DRAINING 9      /* and of draining */


bool
kvr_envelope_named(const kvr_msgpack_item_t *first)
{
    size_t  i, len;

    len = sizeof(KVR_ENVELOPE_NAME) - 1;

    if (first->type != MPACK_TOKEN_STR || first->count <= len
        || first->count > len + KVR_ENVELOPE_DIGITS
        || memcmp(first->bytes, KVR_ENVELOPE_NAME, len) != 0)
    {
        return false;
    }

    for (i = len; i < first->count; i++) {
        if (first->bytes[i] < '0' || first->bytes[i] > '9') {
            return false;
        }
    }

    return true;
}


kvr_rc_t
kvr_envelope_open(kvr_decoder_t *d, const kvr_msgpack_item_t *version,
    kvr_message_t *msg, kvr_why_t *why)
{
    uint32_t            i;
    kvr_msgpack_t       peek;
    kvr_msgpack_item_t  frame, more, item[KVR_ENVELOPE_FIELDS];
    kvr_msgpack_item_t *worker, *epoch, *seq, *complete, *rank, *payload;

    if (!kvr_msgpack_equals(version, KVR_ENVELOPE_VERSION)) {
        snprintf(d->valued, sizeof(d->valued),
                 "an envelope of version \"%.*s\", and this router reads \""
                 KVR_ENVELOPE_VERSION "\": upgrade the router",
                 (int) version->count, (const char *) version->bytes);
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX, d->valued);
    }

    if (kvr_msgpack_read(&d->in, &frame) != KVR_OK) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX, "broken envelope");
    }

    if (frame.count < KVR_ENVELOPE_FIELDS) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX, "short envelope");
    }

    for (i = 0; i < frame.count; i++) {

        if (i >= KVR_ENVELOPE_FIELDS) {
            peek = d->in;

            if ((i == KVR_ENVELOPE_HYBRID || i == KVR_ENVELOPE_DRAINING)
                && kvr_msgpack_read(&peek, &more) == KVR_OK
                && more.type == MPACK_TOKEN_BOOLEAN)
            {
                *(i == KVR_ENVELOPE_HYBRID ? &msg->hybrid : &msg->draining) =
                                                           more.number != 0;
            }

            if (kvr_msgpack_skip(&d->in, KVR_MSGPACK_DEPTH - 1) != KVR_OK) {
                return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                         "broken envelope");
            }

            continue;
        }

        if (kvr_msgpack_read(&d->in, &item[i]) != KVR_OK
            || item[i].type == MPACK_TOKEN_ARRAY
            || item[i].type == MPACK_TOKEN_MAP)
        {
            return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                     "broken envelope");
        }
    }

    if (d->in.left != 0) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                 "bytes after the envelope");
    }

    worker = &item[1];
    epoch = &item[2];
    seq = &item[3];
    complete = &item[4];
    rank = &item[5];
    payload = &item[6];

    if (worker->type != MPACK_TOKEN_STR
        || !kvr_worker_id_valid(worker->bytes, worker->count))
    {
        return kvr_frame_invalid(d, why, KVR_WHY_WORKER,
                                 "invalid worker in the envelope");
    }

    if (epoch->type != MPACK_TOKEN_UINT || seq->type != MPACK_TOKEN_UINT) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                 "epoch or seq is not a number");
    }

    if (complete->type != MPACK_TOKEN_BOOLEAN) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                 "complete is not a boolean");
    }

    if (rank->type == MPACK_TOKEN_UINT && rank->number < KVR_RANKS_MAX) {
        d->rank = (uint32_t) rank->number;

    } else if (rank->type != MPACK_TOKEN_NIL) {
        return kvr_frame_invalid(d, why, KVR_WHY_RANK,
                                 "invalid rank in the envelope");
    }

    if (payload->type != MPACK_TOKEN_BIN && payload->type != MPACK_TOKEN_NIL) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                 "payload is neither bin nor nil");
    }

    msg->form = KVR_FORM_ENVELOPE;
    msg->worker = worker->bytes;
    msg->worker_len = worker->count;
    msg->epoch = epoch->number;
    msg->seq = seq->number;
    msg->complete = complete->number != 0;

    if (payload->type == MPACK_TOKEN_NIL) {
        msg->heartbeat = true;
        return KVR_OK;
    }

    d->in.pos = payload->bytes;
    d->in.left = payload->count;

    return KVR_OK;
}
