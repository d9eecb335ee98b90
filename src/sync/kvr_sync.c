/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_sync.h"

#include "../core/kvr_hash.h"
#include "../wire/kvr_packer.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>


#define KVR_SYNC_TIME    (UINT64_C(1) << 62)    /* numbers and clocks */
#define KVR_SYNC_PARTS   1024
#define KVR_SYNC_HEAD    5              /* bytes before a list: its key, and
                                           an array's head */
#define KVR_SYNC_ARRAY16 0xdc           /* such a head */


/*
 * The keys: numbers, those that each message has first, then "f", then the
 * lists.  What a value must be:
 *
 *     i  an integer of 32 bits      r  one of 64 bits, not 0
 *     n  one below 2^62             u  any of 64 bits
 *     c  what is counted: clamped   b  true or false
 *     s  a text or bytes
 */

#define KVR_SYNC_VALUES  7
#define KVR_SYNC_NEEDED  5
#define KVR_SYNC_LIST    8              /* the first list's key */

static const char  kvr_sync_keys[] = "vrpncgbflae";
static const char  kvr_sync_kinds[] = "irinnub";


/* ---- read --------------------------------------------------------------- */

static bool
kvr_sync_value(kvr_msgpack_t *in, char kind, uint64_t *value,
    kvr_msgpack_item_t **texts)
{
    kvr_msgpack_item_t  item;

    if (kvr_msgpack_read(in, &item) != KVR_OK) {
        return false;
    }

    if (kind == 's') {
        *(*texts)++ = item;
        return item.bytes != NULL;
    }

    *value = item.number;

    if (kind == 'b') {
        return item.type == MPACK_TOKEN_BOOLEAN;
    }

    if (kind == 'c') {
        *value = item.type == MPACK_TOKEN_SINT
                 ? 0 : kvr_min(item.number, (uint64_t) KVR_SYNC_MOST);

        return item.type == MPACK_TOKEN_UINT || item.type == MPACK_TOKEN_SINT;
    }

    return item.type == MPACK_TOKEN_UINT
           && (kind != 'i' || item.number <= UINT32_MAX)
           && (kind != 'n' || item.number < KVR_SYNC_TIME)
           && (kind != 'r' || item.number != 0);
}


/* Reads the first elements of an array, and skips the others. */

static bool
kvr_sync_array(kvr_msgpack_t *in, const char *kinds, uint64_t *values,
    kvr_msgpack_item_t *texts)
{
    uint32_t            n;
    kvr_msgpack_item_t  array;

    if (kvr_msgpack_read(in, &array) != KVR_OK
        || array.type != MPACK_TOKEN_ARRAY || array.count < strlen(kinds))
    {
        return false;
    }

    for (n = array.count; *kinds; n--, kinds++) {

        if (!kvr_sync_value(in, *kinds, values, &texts)) {
            return false;
        }

        values += *kinds != 's';
    }

    while (n != 0 && kvr_msgpack_skip(in, KVR_MSGPACK_DEPTH) != KVR_INVALID) {
        n--;
    }

    return n == 0;
}


/* kinds NULL: the elements are ids, and not arrays. */

static bool
kvr_sync_next(kvr_sync_message_t *m, kvr_sync_list_t list, const char *kinds,
    uint64_t *values, kvr_msgpack_item_t *texts)
{
    if (m->left[list] == 0
        || !(kinds ? kvr_sync_array(&m->lists[list], kinds, values, texts)
                   : kvr_sync_value(&m->lists[list], 'i', values, NULL)))
    {
        return false;
    }

    m->left[list]--;

    return true;
}


bool
kvr_sync_row_next(kvr_sync_message_t *m, kvr_sync_row_t *row)
{
    _Static_assert(sizeof(kvr_sync_row_t) == 6 * 8, "numbers of 64 bits");

    return kvr_sync_next(m, KVR_SYNC_ROWS, "rccccc", (uint64_t *) row, NULL);
}


bool
kvr_sync_add_next(kvr_sync_message_t *m, kvr_sync_add_t *add)
{
    uint32_t             i, k;
    uint64_t             value[2];
    const uint8_t       *p;
    kvr_msgpack_item_t   chains;

    if (!kvr_sync_next(m, KVR_SYNC_ADDS, "irs", value, &chains)) {
        return false;
    }

    add->id = (uint32_t) value[0];
    add->row = value[1];
    add->n = chains.count / KVR_CHAIN_BYTES;

    if (chains.type != MPACK_TOKEN_BIN || chains.count % KVR_CHAIN_BYTES != 0
        || add->n > KVR_FLIGHT_SAMPLES)
    {
        m->left[KVR_SYNC_ADDS]++;
        return false;
    }

    p = (const uint8_t *) chains.bytes;

    for (i = 0; i < add->n; i++, p += KVR_CHAIN_BYTES) {
        add->chains[i] = 0;

        for (k = KVR_CHAIN_BYTES; k != 0; k--) {
            add->chains[i] = add->chains[i] << 8 | p[k - 1];
        }
    }

    return true;
}


bool
kvr_sync_end_next(kvr_sync_message_t *m, uint32_t *id)
{
    uint64_t  value;

    if (!kvr_sync_next(m, KVR_SYNC_ENDS, NULL, &value, NULL)) {
        return false;
    }

    *id = (uint32_t) value;

    return true;
}


static bool
kvr_sync_text(const kvr_msgpack_item_t *item, char *out, size_t size)
{
    uint32_t  i;

    if (item->type != MPACK_TOKEN_STR || item->count >= size) {
        return false;
    }

    for (i = 0; i < item->count; i++) {

        if (item->bytes[i] < 0x20 || item->bytes[i] > 0x7e) {
            return false;
        }

        out[i] = item->bytes[i];
    }

    out[i] = '\0';

    return true;
}


static bool
kvr_sync_full(kvr_msgpack_t *in, kvr_sync_message_t *m)
{
    uint64_t            value[6];
    kvr_msgpack_item_t  text[2];

    if (!kvr_sync_array(in, "uiiccbss", value, text)
        || value[2] > KVR_SYNC_PARTS || value[1] >= value[2]
        || !kvr_sync_text(&text[0], m->name, sizeof(m->name))
        || !kvr_sync_text(&text[1], m->version, sizeof(m->version)))
    {
        return false;
    }

    m->full = true;
    m->epoch = value[0];
    m->part = (uint32_t) value[1];
    m->parts = (uint32_t) value[2];
    m->share = (uint32_t) kvr_min(value[3], KVR_PEERS_SHARES);
    m->uncached = value[4];
    m->leaving = value[5] != 0;

    return true;
}


/* Notes where the elements of an array are, and skips it. */

static bool
kvr_sync_list(kvr_msgpack_t *in, kvr_sync_message_t *m, uint32_t list)
{
    kvr_msgpack_item_t  item;

    if (kvr_msgpack_read(in, &item) != KVR_OK
        || item.type != MPACK_TOKEN_ARRAY)
    {
        return false;
    }

    m->lists[list] = *in;
    m->left[list] = item.count;

    return kvr_msgpack_skip_rest(in, &item, KVR_MSGPACK_DEPTH) != KVR_INVALID;
}


kvr_rc_t
kvr_sync_read(const char *bytes, size_t len, kvr_sync_message_t *m)
{
    bool                 good;
    uint32_t             id, key, pairs, seen;
    uint64_t             values[KVR_SYNC_VALUES];
    const char          *known;
    kvr_msgpack_t        in;
    kvr_sync_add_t       add;
    kvr_sync_row_t       row;
    kvr_sync_message_t   all;
    kvr_msgpack_item_t   item;

    memset(m, 0, sizeof(kvr_sync_message_t));
    memset(values, 0, sizeof(values));

    in.pos = bytes;
    in.left = len;
    seen = 0;

    if (len > KVR_SYNC_MAX || kvr_msgpack_read(&in, &item) != KVR_OK
        || item.type != MPACK_TOKEN_MAP)
    {
        return KVR_INVALID;
    }

    for (pairs = item.count; pairs != 0; pairs--) {

        if (kvr_msgpack_read(&in, &item) != KVR_OK
            || kvr_msgpack_skip_rest(&in, &item, KVR_MSGPACK_DEPTH)
               == KVR_INVALID)
        {
            return KVR_INVALID;
        }

        known = item.type == MPACK_TOKEN_STR && item.count == 1
                ? memchr(kvr_sync_keys, item.bytes[0],
                         sizeof(kvr_sync_keys) - 1)
                : NULL;
        key = known ? (uint32_t) (known - kvr_sync_keys) : 31;

        if (known == NULL) {
            good = kvr_msgpack_skip(&in, KVR_MSGPACK_DEPTH) != KVR_INVALID;

        } else if (seen & 1u << key) {
            good = false;

        } else if (key < KVR_SYNC_VALUES) {
            good = kvr_sync_value(&in, kvr_sync_kinds[key], &values[key],
                                  NULL);

        } else if (key == KVR_SYNC_VALUES) {
            good = kvr_sync_full(&in, m);

        } else {
            good = kvr_sync_list(&in, m, key - KVR_SYNC_LIST);
        }

        if (!good) {
            return KVR_INVALID;
        }

        seen |= 1u << key;
    }

    m->router = values[1];
    m->process = (uint32_t) values[2];
    m->number = values[3];
    m->clock_us = values[4];
    m->again = values[5];
    m->bye = values[6] != 0;

    if (in.left != 0 || values[0] != KVR_SYNC_VERSION || m->number == 0
        || ~seen & ((1u << KVR_SYNC_NEEDED) - 1))
    {
        return KVR_INVALID;
    }

    /* all that will be given out, once */

    all = *m;

    while (kvr_sync_row_next(&all, &row)) { /* void */ }
    while (kvr_sync_add_next(&all, &add)) { /* void */ }
    while (kvr_sync_end_next(&all, &id)) { /* void */ }

    return all.left[KVR_SYNC_ROWS] || all.left[KVR_SYNC_ADDS]
           || all.left[KVR_SYNC_ENDS] ? KVR_INVALID : KVR_OK;
}


/* ---- write -------------------------------------------------------------- */

static void
kvr_sync_key(kvr_packer_t *to, kvr_sync_writer_t *w, char key)
{
    w->fields++;
    kvr_pack_text(to, &key, 1);
}


void
kvr_sync_begin(kvr_sync_writer_t *w, const kvr_sync_message_t *header)
{
    uint32_t      i;
    kvr_packer_t  to;

    const uint64_t  values[KVR_SYNC_NEEDED] = {
        KVR_SYNC_VERSION, header->router, header->process, header->number,
        header->clock_us
    };

    memset(w->counts, 0, sizeof(w->counts));
    w->fields = 0;
    w->empty = !header->full && header->again == 0 && !header->bye
               && !header->alive;

    /* behind the map's head */

    to = (kvr_packer_t) { w->bytes + 1, KVR_SYNC_MAX - 1, false };

    for (i = 0; i < KVR_SYNC_NEEDED; i++) {
        kvr_sync_key(&to, w, kvr_sync_keys[i]);
        kvr_pack_u64(&to, values[i]);
    }

    if (header->full) {
        kvr_sync_key(&to, w, 'f');
        kvr_pack(&to, mpack_pack_array(8));
        kvr_pack_u64(&to, header->epoch);
        kvr_pack_u64(&to, header->part);
        kvr_pack_u64(&to, header->parts);
        kvr_pack_u64(&to, header->share);
        kvr_pack_u64(&to, header->uncached);
        kvr_pack(&to, mpack_pack_boolean(header->leaving));
        kvr_pack_text(&to, header->name, strlen(header->name));
        kvr_pack_text(&to, header->version, strlen(header->version));
    }

    if (header->again) {
        kvr_sync_key(&to, w, 'g');
        kvr_pack_u64(&to, header->again);
    }

    if (header->bye) {
        kvr_sync_key(&to, w, 'b');
        kvr_pack(&to, mpack_pack_boolean(true));
    }

    w->len = (size_t) (to.pos - w->bytes);
}


/* The first one of a list is written behind room for the list's head. */

static bool
kvr_sync_put(kvr_sync_writer_t *w, kvr_sync_list_t list,
    const uint64_t *values, uint32_t n, const kvr_sync_add_t *add)
{
    char          *count;
    size_t         len;
    uint32_t       i;
    kvr_packer_t   to, head;

    len = w->len + (w->counts[list] == 0 ? KVR_SYNC_HEAD : 0);

    to = (kvr_packer_t) { w->bytes + len, KVR_SYNC_MAX - len,
                          len >= KVR_SYNC_MAX };

    if (list != KVR_SYNC_ENDS) {
        kvr_pack(&to, mpack_pack_array(n + (add != NULL)));
    }

    for (i = 0; i < n; i++) {
        kvr_pack_u64(&to, values[i]);
    }

    if (add) {
        kvr_pack_numbers(&to, add->chains, add->n, KVR_CHAIN_BYTES);
    }

    if (to.full) {
        return false;
    }

    if (w->counts[list]++ == 0) {
        w->empty = false;
        w->places[list] = len - 2;
        w->bytes[len - 3] = (char) KVR_SYNC_ARRAY16;

        head = (kvr_packer_t) { w->bytes + w->len, KVR_SYNC_HEAD, false };
        kvr_sync_key(&head, w, kvr_sync_keys[KVR_SYNC_LIST + list]);
    }

    count = w->bytes + w->places[list];
    count[0] = (char) (w->counts[list] >> 8);
    count[1] = (char) w->counts[list];

    w->len = (size_t) (to.pos - w->bytes);

    return true;
}


bool
kvr_sync_put_row(kvr_sync_writer_t *w, const kvr_sync_row_t *row)
{
    const uint64_t  values[] = {
        row->row,
        (uint64_t) kvr_max(row->active, 0),
        (uint64_t) kvr_max(row->prefills, 0),
        (uint64_t) kvr_max(row->prefill_tokens, 0),
        (uint64_t) kvr_max(row->age_ms, 0),
        (uint64_t) kvr_max(row->decode_blocks, 0)
    };

    return kvr_sync_put(w, KVR_SYNC_ROWS, values, 6, NULL);
}


/* Another process may have begun the prefill behind now_ms. */

bool
kvr_sync_put_load(kvr_sync_writer_t *w, uint64_t row,
    const kvr_load_row_t *load, uint64_t now_ms)
{
    uint64_t        begun;
    kvr_sync_row_t  told;

    begun = load->begun_ms ? load->begun_ms : now_ms;

    told = (kvr_sync_row_t) {
        row, load->active, load->prefills, load->prefill_tokens,
        (int64_t) (now_ms - kvr_min(now_ms, begun)), load->decode_blocks
    };

    return kvr_sync_put_row(w, &told);
}


bool
kvr_sync_put_add(kvr_sync_writer_t *w, const kvr_sync_add_t *add)
{
    const uint64_t  values[] = { add->id, add->row };

    return kvr_sync_put(w, KVR_SYNC_ADDS, values, 2, add);
}


bool
kvr_sync_put_end(kvr_sync_writer_t *w, uint32_t id)
{
    const uint64_t  value = id;

    return kvr_sync_put(w, KVR_SYNC_ENDS, &value, 1, NULL);
}


size_t
kvr_sync_finish(kvr_sync_writer_t *w)
{
    w->bytes[0] = (char) (0x80 | w->fields);

    return w->empty ? 0 : w->len;
}


/* ---- names -------------------------------------------------------------- */

uint64_t
kvr_sync_row(const char *worker, size_t len, uint32_t rank)
{
    return kvr_max(kvr_hash_bytes(worker, len, KVR_HASH_SEED + rank), 1);
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
