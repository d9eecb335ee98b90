/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_packer.h"


void
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


void
kvr_pack_u64(kvr_packer_t *out, uint64_t value)
{
    kvr_pack(out, mpack_pack_uint(value));
}


void
kvr_pack_maybe(kvr_packer_t *out, bool is, uint64_t value)
{
    kvr_pack(out, is ? mpack_pack_uint(value) : mpack_pack_nil());
}


void
kvr_pack_text(kvr_packer_t *out, const char *text, size_t len)
{
    kvr_pack(out, mpack_pack_str((mpack_uint32_t) len));
    kvr_pack_bytes(out, text, len);
}


void
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


void
kvr_pack_numbers(kvr_packer_t *out, const uint64_t *values, uint32_t n,
    uint32_t width)
{
    uint32_t  i, k;

    kvr_pack(out, mpack_pack_bin(n * width));

    if (out->full || (size_t) n * width > out->left) {
        out->full = true;
        return;
    }

    for (i = 0; i < n; i++) {
        for (k = 0; k < width; k++) {
            *out->pos++ = (char) (values[i] >> (k * 8));
        }
    }

    out->left -= (size_t) n * width;
}
