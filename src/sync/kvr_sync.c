/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_sync.h"

#include "../core/kvr_hash.h"
#include "../wire/kvr_packer.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>


#define KVR_SYNC_CLOCK  (UINT64_C(1) << 62)


/* ---- read --------------------------------------------------------------- */

/* Reads the head of an array of `least' elements or more. */

static bool
kvr_sync_array(kvr_msgpack_t *in, uint32_t least, uint32_t *n)
{
    kvr_msgpack_item_t  item;

    if (kvr_msgpack_read(in, &item) != KVR_OK
        || item.type != MPACK_TOKEN_ARRAY || item.count < least)
    {
        return false;
    }

    *n = item.count;

    return true;
}


/* Skips the elements which are a later version's. */

static bool
kvr_sync_rest(kvr_msgpack_t *in, uint32_t n)
{
    while (n != 0 && kvr_msgpack_skip(in, KVR_MSGPACK_DEPTH) != KVR_INVALID) {
        n--;
    }

    return n == 0;
}


static bool
kvr_sync_number(kvr_msgpack_t *in, uint64_t most, uint64_t *value)
{
    kvr_msgpack_item_t  item;

    if (kvr_msgpack_read(in, &item) != KVR_OK
        || item.type != MPACK_TOKEN_UINT || item.number > most)
    {
        return false;
    }

    *value = item.number;

    return true;
}


/* A count, clamped. */

static bool
kvr_sync_count(kvr_msgpack_t *in, int64_t *value)
{
    kvr_msgpack_item_t  item;

    if (kvr_msgpack_read(in, &item) != KVR_OK) {
        return false;
    }

    *value = item.type == MPACK_TOKEN_SINT
             ? 0 : (int64_t) kvr_min(item.number, (uint64_t) KVR_SYNC_MOST);

    return item.type == MPACK_TOKEN_UINT || item.type == MPACK_TOKEN_SINT;
}


static bool
kvr_sync_text(kvr_msgpack_t *in, char *out, size_t size)
{
    uint32_t            i;
    kvr_msgpack_item_t  item;

    if (kvr_msgpack_read(in, &item) != KVR_OK
        || item.type != MPACK_TOKEN_STR || item.count >= size)
    {
        return false;
    }

    for (i = 0; i < item.count; i++) {

        if (item.bytes[i] < 0x20 || item.bytes[i] > 0x7e) {
            return false;
        }

        out[i] = item.bytes[i];
    }

    out[i] = '\0';

    return true;
}


static bool
kvr_sync_read_about(kvr_msgpack_t *in, kvr_sync_message_t *m)
{
    uint32_t            n;
    int64_t             share, uncached;
    kvr_msgpack_t       at;
    kvr_msgpack_item_t  item;

    at = *in;

    if (kvr_msgpack_read(&at, &item) == KVR_OK
        && item.type == MPACK_TOKEN_NIL)
    {
        *in = at;
        return true;
    }

    if (!kvr_sync_array(in, 5, &n)
        || !kvr_sync_count(in, &share) || !kvr_sync_count(in, &uncached)
        || kvr_msgpack_read(in, &item) != KVR_OK
        || item.type != MPACK_TOKEN_BOOLEAN
        || !kvr_sync_text(in, m->name, sizeof(m->name))
        || !kvr_sync_text(in, m->version, sizeof(m->version)))
    {
        return false;
    }

    m->about = true;
    m->share = (uint32_t) kvr_min(share, KVR_PEERS_SHARES);
    m->uncached = (uint64_t) uncached;
    m->leaving = item.number != 0;

    return kvr_sync_rest(in, n - 5);
}


static bool
kvr_sync_read_row(kvr_msgpack_t *in, kvr_sync_row_t *row)
{
    uint32_t  n;

    return kvr_sync_array(in, 6, &n)
           && kvr_sync_number(in, UINT64_MAX, &row->row) && row->row != 0
           && kvr_sync_count(in, &row->active)
           && kvr_sync_count(in, &row->prefills)
           && kvr_sync_count(in, &row->prefill_tokens)
           && kvr_sync_count(in, &row->age_ms)
           && kvr_sync_count(in, &row->decode_blocks)
           && kvr_sync_rest(in, n - 6);
}


static bool
kvr_sync_read_add(kvr_msgpack_t *in, kvr_sync_add_t *add)
{
    uint32_t             i, k, n;
    const uint8_t       *p;
    kvr_msgpack_item_t   chains;

    if (!kvr_sync_array(in, 3, &n) || kvr_msgpack_u32s(in, &add->id, 1) != 1
        || !kvr_sync_number(in, UINT64_MAX, &add->row) || add->row == 0
        || kvr_msgpack_read(in, &chains) != KVR_OK
        || chains.type != MPACK_TOKEN_BIN
        || chains.count % KVR_CHAIN_BYTES != 0
        || chains.count / KVR_CHAIN_BYTES > KVR_FLIGHT_SAMPLES)
    {
        return false;
    }

    add->n = chains.count / KVR_CHAIN_BYTES;
    p = (const uint8_t *) chains.bytes;

    for (i = 0; i < add->n; i++, p += KVR_CHAIN_BYTES) {
        add->chains[i] = 0;

        for (k = KVR_CHAIN_BYTES; k != 0; k--) {
            add->chains[i] = add->chains[i] << 8 | p[k - 1];
        }
    }

    return kvr_sync_rest(in, n - 3);
}


kvr_rc_t
kvr_sync_read(const char *bytes, size_t len, kvr_sync_message_t *m)
{
    uint32_t       i, n;
    uint64_t       version;
    kvr_msgpack_t  in;

    in.pos = bytes;
    in.left = len;
    m->about = false;

    if (len > KVR_SYNC_MAX || !kvr_sync_array(&in, 8, &n)
        || !kvr_sync_number(&in, KVR_SYNC_VERSION, &version)
        || version != KVR_SYNC_VERSION
        || !kvr_sync_number(&in, UINT64_MAX, &m->router) || m->router == 0
        || kvr_msgpack_u32s(&in, &m->process, 1) != 1
        || !kvr_sync_number(&in, KVR_SYNC_CLOCK - 1, &m->clock_us)
        || !kvr_sync_read_about(&in, m)
        || !kvr_sync_array(&in, 0, &m->nrows) || m->nrows > KVR_SYNC_ROWS)
    {
        return KVR_INVALID;
    }

    for (i = 0; i < m->nrows; i++) {
        if (!kvr_sync_read_row(&in, &m->rows[i])) {
            return KVR_INVALID;
        }
    }

    if (!kvr_sync_array(&in, 0, &m->nadds) || m->nadds > KVR_SYNC_ADDS) {
        return KVR_INVALID;
    }

    for (i = 0; i < m->nadds; i++) {
        if (!kvr_sync_read_add(&in, &m->adds[i])) {
            return KVR_INVALID;
        }
    }

    if (!kvr_sync_array(&in, 0, &m->nends) || m->nends > KVR_SYNC_ENDS
        || kvr_msgpack_u32s(&in, m->ends, m->nends) != m->nends
        || !kvr_sync_rest(&in, n - 8) || in.left != 0)
    {
        return KVR_INVALID;
    }

    return KVR_OK;
}


/* ---- write -------------------------------------------------------------- */

static void
kvr_sync_write_about(const kvr_sync_message_t *m, kvr_packer_t *to)
{
    if (!m->about) {
        kvr_pack(to, mpack_pack_nil());
        return;
    }

    kvr_pack(to, mpack_pack_array(5));
    kvr_pack_u64(to, m->share);
    kvr_pack_u64(to, m->uncached);
    kvr_pack(to, mpack_pack_boolean(m->leaving));
    kvr_pack_text(to, m->name, strlen(m->name));
    kvr_pack_text(to, m->version, strlen(m->version));
}


size_t
kvr_sync_write(const kvr_sync_message_t *m, char *out)
{
    uint32_t               i;
    kvr_packer_t           to;
    const kvr_sync_add_t  *add;
    const kvr_sync_row_t  *row;

    to = (kvr_packer_t) { out, KVR_SYNC_MAX, false };

    kvr_pack(&to, mpack_pack_array(8));
    kvr_pack_u64(&to, KVR_SYNC_VERSION);
    kvr_pack_u64(&to, m->router);
    kvr_pack_u64(&to, m->process);
    kvr_pack_u64(&to, m->clock_us);
    kvr_sync_write_about(m, &to);

    kvr_pack(&to, mpack_pack_array(m->nrows));

    for (i = 0; i < m->nrows; i++) {
        row = &m->rows[i];

        kvr_pack(&to, mpack_pack_array(6));
        kvr_pack_u64(&to, row->row);
        kvr_pack_u64(&to, (uint64_t) kvr_max(row->active, 0));
        kvr_pack_u64(&to, (uint64_t) kvr_max(row->prefills, 0));
        kvr_pack_u64(&to, (uint64_t) kvr_max(row->prefill_tokens, 0));
        kvr_pack_u64(&to, (uint64_t) kvr_max(row->age_ms, 0));
        kvr_pack_u64(&to, (uint64_t) kvr_max(row->decode_blocks, 0));
    }

    kvr_pack(&to, mpack_pack_array(m->nadds));

    for (i = 0; i < m->nadds; i++) {
        add = &m->adds[i];

        kvr_pack(&to, mpack_pack_array(3));
        kvr_pack_u64(&to, add->id);
        kvr_pack_u64(&to, add->row);
        kvr_pack_numbers(&to, add->chains, add->n, KVR_CHAIN_BYTES);
    }

    kvr_pack(&to, mpack_pack_array(m->nends));

    for (i = 0; i < m->nends; i++) {
        kvr_pack_u64(&to, m->ends[i]);
    }

    return (size_t) (to.pos - out);
}


/* ---- names -------------------------------------------------------------- */

uint64_t
kvr_sync_row(const char *worker, size_t len, uint32_t rank)
{
    return kvr_max(kvr_hash_bytes(worker, len, KVR_HASH_SEED + rank), 1);
}


/* Another process may have begun the prefill behind now_ms. */

kvr_sync_row_t
kvr_sync_load(uint64_t row, const kvr_load_row_t *load, uint64_t now_ms)
{
    uint64_t  begun;

    begun = load->begun_ms ? load->begun_ms : now_ms;

    return (kvr_sync_row_t) {
        row, load->active, load->prefills, load->prefill_tokens,
        (int64_t) (now_ms - kvr_min(now_ms, begun)), load->decode_blocks
    };
}


kvr_rc_t
kvr_sync_channel_hash(const kvr_params_t *params, const char *key, size_t len,
    char out[17])
{
    int            n;
    char           text[KVR_MODEL_MAX + 64];
    unsigned int   i;
    unsigned char  digest[EVP_MAX_MD_SIZE];

    n = snprintf(text, sizeof(text), "%u %u %u %s", KVR_SYNC_VERSION,
                 params->block_size, params->eagle, params->model);

    if (HMAC(EVP_sha256(), len ? key : "", (int) len, (unsigned char *) text,
             (size_t) n, digest, NULL)
        == NULL)
    {
        return KVR_ERROR;
    }

    for (i = 0; i < 8; i++) {
        (void) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }

    return KVR_OK;
}
