/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Writes what kvr_envelope.c and kvr_normalised.c read.
 */


#include "kvr_decoder.h"


#define KVR_ARRAY32  0xdd       /* an array's tag with a count of 32 bits */


typedef struct {
    char    *pos;
    size_t   left;
    bool     full;
} kvr_packer_t;


static void kvr_pack(kvr_packer_t *out, mpack_token_t token);
static void kvr_pack_u64(kvr_packer_t *out, uint64_t value);
static void kvr_pack_maybe(kvr_packer_t *out, bool is, uint64_t value);
static void kvr_pack_text(kvr_packer_t *out, const char *text, size_t len);
static void kvr_pack_bytes(kvr_packer_t *out, const void *bytes, size_t len);
static void kvr_pack_u64s(kvr_packer_t *out, const uint64_t *values,
    uint32_t n);


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
        kvr_pack_u64s(&to, ev->handles, ev->nhandles);
        kvr_pack_u64s(&to, ev->locals, ev->nlocals);
        break;

    case KVR_REMOVE:
        kvr_pack_u64(&to, ev->tier);
        kvr_pack_u64s(&to, ev->handles, ev->nhandles);
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
        kvr_pack_u64s(&to, ev->handles, ev->nadded);
        kvr_pack_u64s(&to, ev->handles + ev->nadded,
                      ev->nhandles - ev->nadded);
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

    kvr_pack(&to, mpack_pack_array(9));
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

    return to.full ? 0 : size - to.left;
}


static void
kvr_pack(kvr_packer_t *out, mpack_token_t token)
{
    mpack_tokbuf_t  buf;

    if (out->full) {
        return;
    }

    mpack_tokbuf_init(&buf);

    if (mpack_write(&buf, &out->pos, &out->left, &token) != MPACK_OK) {
        out->full = true;
    }
}


static void
kvr_pack_u64(kvr_packer_t *out, uint64_t value)
{
    kvr_pack(out, mpack_pack_uint(value));
}


/* The value, or nil. */

static void
kvr_pack_maybe(kvr_packer_t *out, bool is, uint64_t value)
{
    kvr_pack(out, is ? mpack_pack_uint(value) : mpack_pack_nil());
}


static void
kvr_pack_text(kvr_packer_t *out, const char *text, size_t len)
{
    kvr_pack(out, mpack_pack_str((mpack_uint32_t) len));
    kvr_pack_bytes(out, text, len);
}


static void
kvr_pack_bytes(kvr_packer_t *out, const void *bytes, size_t len)
{
    if (out->full || len > out->left) {
        out->full = true;
        return;
    }

    memcpy(out->pos, bytes, len);
    out->pos += len;
    out->left -= len;
}


static void
kvr_pack_u64s(kvr_packer_t *out, const uint64_t *values, uint32_t n)
{
    uint32_t  i, k;

    kvr_pack(out, mpack_pack_bin(n * 8));

    if (out->full || (size_t) n * 8 > out->left) {
        out->full = true;
        return;
    }

    for (i = 0; i < n; i++) {
        for (k = 0; k < 8; k++) {
            *out->pos++ = (char) (values[i] >> (k * 8));
        }
    }

    out->left -= (size_t) n * 8;
}
