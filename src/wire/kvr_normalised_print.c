/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Writes what kvr_envelope.c and kvr_normalised.c read.
 */


#include "kvr_decoder.h"
#include "kvr_packer.h"


#define KVR_ARRAY32  0xdd       /* an array's tag with a count of 32 bits */


void
kvr_normalised_head_print(char out[KVR_NORMALISED_HEAD], uint32_t events)
{
    out[0] = (char) KVR_ARRAY32;
    out[1] = (char) (events >> 24);
    out[2] = (char) (events >> 16);
    out[3] = (char) (events >> 8);
    out[4] = (char) events;
}


size_t
kvr_normalised_print(char *out, size_t size, const kvr_change_t *ev)
{
    kvr_packer_t  to;

    if (ev->nlocals != 0
        && (ev->nhandles == 0 || ev->nlocals % ev->nhandles != 0))
    {
        return 0;
    }

    to.pos = out;
    to.left = size;
    to.full = false;

    kvr_pack(&to, mpack_pack_array(kvr_normalised[ev->kind].fields));
    kvr_pack_text(&to, kvr_normalised[ev->kind].tag, 1);
    kvr_pack_u64(&to, ev->rank);

    switch (ev->kind) {

    case KVR_STORE:
        kvr_pack_u64(&to, ev->tier);
        kvr_pack_maybe(&to, ev->has_parent, ev->parent);
        kvr_pack_numbers(&to, ev->handles, ev->nhandles, 8);
        kvr_pack_numbers(&to, ev->locals, ev->nlocals, 8);
        break;

    case KVR_REMOVE:
        kvr_pack_u64(&to, ev->tier);
        kvr_pack_numbers(&to, ev->handles, ev->nhandles, 8);
        break;

    case KVR_CLEAR:
        break;

    case KVR_CLASS:
        kvr_pack_u64(&to, ev->class_at);
        kvr_pack_u64(&to, ev->group_kind);
        kvr_pack_u64(&to, ev->class_window);
        kvr_pack_u64(&to, ev->block_size);
        break;

    case KVR_BITS:
        kvr_pack_u64(&to, ev->class_at);
        kvr_pack_numbers(&to, ev->handles, ev->nadded, 8);
        kvr_pack_numbers(&to, ev->handles + ev->nadded,
                         ev->nhandles - ev->nadded, 8);
        break;
    }

    return to.full ? 0 : size - to.left;
}


size_t
kvr_envelope_print(char *out, size_t size, const kvr_envelope_t *e)
{
    kvr_packer_t  to;

    if (!kvr_worker_id_valid(e->worker, e->worker_len)) {
        return 0;
    }

    to.pos = out;
    to.left = size;
    to.full = false;

    kvr_pack(&to, mpack_pack_array(10));
    kvr_pack_text(&to, "kvr1", 4);
    kvr_pack_text(&to, e->worker, e->worker_len);
    kvr_pack_u64(&to, e->epoch);
    kvr_pack_u64(&to, e->seq);
    kvr_pack(&to, mpack_pack_boolean(e->complete));

    kvr_pack_maybe(&to, e->has_engine_seq, e->rank);

    if (e->payload != NULL) {
        kvr_pack(&to, mpack_pack_bin((mpack_uint32_t) e->payload_len));
        kvr_pack_bytes(&to, e->payload, e->payload_len);

    } else {
        kvr_pack(&to, mpack_pack_nil());
    }

    kvr_pack_maybe(&to, e->has_engine_seq, e->engine_seq);

    kvr_pack(&to, mpack_pack_boolean(e->hybrid));
    kvr_pack(&to, mpack_pack_boolean(e->draining));

    return to.full ? 0 : size - to.left;
}
