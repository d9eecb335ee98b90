/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_decoder.h"

#include <stdlib.h>


static kvr_rc_t kvr_batch_open(kvr_decoder_t *d, kvr_message_t *msg,
    kvr_why_t *why);
static bool kvr_json_text(const kvr_msgpack_t *in);
static void kvr_scratch_free(kvr_scratch_t *s);


kvr_decoder_t *
kvr_decoder_create(void)
{
    kvr_decoder_t  *d;

    d = calloc(1, sizeof(kvr_decoder_t));
    if (d == NULL) {
        return NULL;
    }

    d->end = KVR_DONE;
    d->detail = "";
    d->conf.message_max = KVR_MESSAGE_MAX;

    return d;
}


void
kvr_decoder_destroy(kvr_decoder_t *d)
{
    if (d == NULL) {
        return;
    }

    kvr_scratch_free(&d->text);
    kvr_scratch_free(&d->state);
    kvr_scratch_free(&d->packed);
    kvr_scratch_free(&d->handles);
    kvr_scratch_free(&d->locals);
    kvr_scratch_free(&d->tokens);
    kvr_scratch_free(&d->remaining);
    kvr_scratch_free(&d->mm);
    kvr_scratch_free(&d->mm_start);
    kvr_scratch_free(&d->blocks);
    kvr_scratch_free(&d->lora);
    kvr_scratch_free(&d->salt);

    free(d);
}


kvr_decoder_conf_t *
kvr_decoder_conf(kvr_decoder_t *d)
{
    return &d->conf;
}


kvr_rc_t
kvr_message_open(kvr_decoder_t *d, const void *bytes, size_t len,
    kvr_message_t *msg, kvr_why_t *why, const char **detail)
{
    kvr_rc_t            rc;
    kvr_msgpack_t       peek;
    kvr_msgpack_item_t  frame, first;

    d->next = NULL;
    d->detail = "";
    d->at = 0;
    d->source = 0;
    d->rank = d->conf.rank;
    d->left = 0;
    d->in.pos = bytes;
    d->in.left = len;

    memset(msg, 0, sizeof(kvr_message_t));
    msg->form = KVR_FORM_BARE;
    *why = KVR_WHY_NONE;

    if (len > d->conf.message_max) {
        rc = kvr_frame_invalid(d, why, KVR_WHY_LIMIT, "message too long");
        goto done;
    }

    peek = d->in;

    if (kvr_msgpack_read(&peek, &frame) == KVR_OK
        && frame.type == MPACK_TOKEN_ARRAY
        && frame.count != 0
        && kvr_msgpack_read(&peek, &first) == KVR_OK
        && kvr_envelope_named(&first))
    {
        rc = kvr_envelope_open(d, &first, msg, why);

        if (rc != KVR_OK || msg->heartbeat) {
            goto done;
        }
    }

    rc = kvr_batch_open(d, msg, why);

done:

    if (rc != KVR_OK) {
        d->next = NULL;
    }

    d->end = (rc == KVR_OK) ? KVR_DONE : KVR_INVALID;
    *detail = d->detail;

    return rc;
}


/* Opens a message or payload that is no envelope; its bytes are in d->in. */
static kvr_rc_t
kvr_batch_open(kvr_decoder_t *d, kvr_message_t *msg, kvr_why_t *why)
{
    kvr_msgpack_t              peek;
    kvr_msgpack_item_t         frame, first;
    const kvr_json_dialect_t  *dialect;

    if (kvr_json_text(&d->in)) {

        dialect = kvr_json_dialect(&d->in, &msg->empty);
        msg->counted = dialect->counted;

        if (msg->form == KVR_FORM_BARE) {
            msg->form = dialect->form;
        }

        return dialect->open(d, why);
    }

    peek = d->in;

    if (kvr_msgpack_read(&peek, &frame) != KVR_OK) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX, "broken msgpack");
    }

    if (frame.type == MPACK_TOKEN_MAP) {
        return kvr_engine_batch_open(d, why);
    }

    if (frame.type != MPACK_TOKEN_ARRAY) {
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX, "not a batch");
    }

    if (frame.count != 0) {
        if (kvr_msgpack_read(&peek, &first) != KVR_OK) {
            return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX,
                                     "broken msgpack");
        }

        /* an engine's batch begins with its time */

        if (first.type == MPACK_TOKEN_FLOAT
            || first.type == MPACK_TOKEN_UINT)
        {
            return kvr_engine_batch_open(d, why);
        }

        if (first.type != MPACK_TOKEN_ARRAY) {
            return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX, "not a batch");
        }
    }

    if (msg->form == KVR_FORM_BARE) {
        msg->form = KVR_FORM_NORMALISED;
    }

    msg->counted = true;

    return kvr_normalised_open(d, why);
}


kvr_rc_t
kvr_decoder_next(kvr_decoder_t *d, kvr_event_t *ev)
{
    kvr_rc_t  rc;

    if (d->next == NULL) {
        return d->end;
    }

    d->detail = "";

    memset(ev, 0, sizeof(kvr_event_t));
    ev->rank = d->rank;
    ev->at = d->at;
    ev->source = d->source;

    rc = d->next(d, ev);

    if (rc != KVR_OK) {
        d->next = NULL;
        d->end = rc;

        if (rc == KVR_INVALID && d->detail[0] == '\0') {
            d->detail = "the message is broken";
        }

        return rc;
    }

    d->at++;
    d->source += !ev->more;

    return KVR_OK;
}


const char *
kvr_decoder_detail(const kvr_decoder_t *d)
{
    return d->detail;
}


/*
 * Is the message JSON?  The first byte decides: a brace, a bracket or a space
 * would be an integer in msgpack, and no message is a single integer.
 */
static bool
kvr_json_text(const kvr_msgpack_t *in)
{
    size_t  i;

    for (i = 0; i < in->left; i++) {

        switch (in->pos[i]) {

        case ' ':
        case '\t':
        case '\r':
        case '\n':
            continue;

        case '{':
        case '[':
            return true;

        default:
            return false;
        }
    }

    return false;
}


static void
kvr_scratch_free(kvr_scratch_t *s)
{
    free(s->data);
    s->data = NULL;
    s->size = 0;
}
