/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_vocabulary.h"

#include "kvr_merge.h"
#include "kvr_unicode.h"


#define KVR_VOCABULARY_LONG  1000       /* bytes; longer tokens are not marked
                                           as whole: each is merged */


/* The smallest power of 2 that is not below n. */

static uint32_t
kvr_vocabulary_power(uint32_t n)
{
    uint32_t  power;

    for (power = 16; power < n; power *= 2) { /* void */ }

    return power;
}


bool
kvr_vocabulary_init(kvr_vocabulary_t *v, uint32_t n, uint32_t nids,
    uint32_t merges)
{
    uint32_t  i;

    v->nids = nids;
    v->mask = kvr_vocabulary_power(2 * n) - 1;
    v->merges_mask = kvr_vocabulary_power(2 * merges) - 1;
    v->unknown = KVR_TOKEN_NONE;
    memset(v->byte_ids, 0xff, sizeof(v->byte_ids));

    v->offsets = calloc(nids, sizeof(uint32_t));
    v->lengths = calloc(nids, sizeof(uint32_t));
    v->slots = malloc((v->mask + UINT64_C(1)) * sizeof(uint32_t));
    v->tags = calloc(v->mask + UINT64_C(1), 1);
    v->merges = malloc((v->merges_mask + UINT64_C(1)) * sizeof(kvr_merge_t));
    v->whole = calloc(nids / 8 + 1, 1);
    v->pairs = calloc(1 << (KVR_VOCABULARY_PAIRS - 3), 1);

    if (v->offsets == NULL || v->lengths == NULL || v->slots == NULL
        || v->tags == NULL || v->merges == NULL || v->whole == NULL
        || v->pairs == NULL)
    {
        return false;
    }

    for (i = 0; i <= v->merges_mask; i++) {
        v->merges[i].key = KVR_MERGE_FREE;
    }

    return true;
}


void
kvr_vocabulary_free(kvr_vocabulary_t *v)
{
    kvr_bytes_free(&v->bytes);
    free(v->offsets);
    free(v->lengths);
    free(v->slots);
    free(v->tags);
    free(v->merges);
    free(v->byte_pairs);
    free(v->whole);
    free(v->pairs);
}


size_t
kvr_vocabulary_bytes(const kvr_vocabulary_t *v)
{
    return v->bytes.cap + v->nids * (2 * sizeof(uint32_t)) + v->nids / 8
           + (v->mask + UINT64_C(1)) * (sizeof(uint32_t) + 1)
           + (v->merges_mask + UINT64_C(1)) * sizeof(kvr_merge_t)
           + (v->byte_pairs ? 65536 * sizeof(kvr_merge_to_t) : 0)
           + (1 << (KVR_VOCABULARY_PAIRS - 3));
}


bool
kvr_vocabulary_put(kvr_vocabulary_t *v, uint32_t id, const char *text,
    size_t len)
{
    uint64_t  hash;
    uint32_t  i;

    v->offsets[id] = (uint32_t) v->bytes.n;
    v->lengths[id] = (uint32_t) len;
    v->longest = kvr_max(v->longest, (uint32_t) len);

    kvr_bytes_add(&v->bytes, text, len);

    hash = XXH3_64bits(text, len);

    for (i = hash & v->mask; v->tags[i]; i = (i + 1) & v->mask) { /* void */ }

    v->tags[i] = (uint8_t) (hash >> 56 | 1);
    v->slots[i] = id;

    if (v->byte_level && len == 1) {
        v->byte_ids[(uint8_t) text[0]] = id;
    }

    return !v->bytes.failed;
}


/* Of a pair that comes twice the later rank counts. */

void
kvr_vocabulary_put_merge(kvr_vocabulary_t *v, uint32_t a, uint32_t b,
    uint32_t to, uint32_t rank, const char *text, size_t len)
{
    size_t    at;
    uint64_t  key;
    uint32_t  i, n, one, two, hash;

    key = (uint64_t) a << 32 | b;

    for (i = kvr_vocabulary_mix(key) & v->merges_mask;
         v->merges[i].key != KVR_MERGE_FREE && v->merges[i].key != key;
         i = (i + 1) & v->merges_mask)
    {
        /* void */
    }

    v->merges[i].key = key;
    v->merges[i].rank = rank;
    v->merges[i].id = to;

    if (v->byte_level || len == 0) {
        return;
    }

    one = kvr_unicode_get(text, &n);

    for (at = n; at < len; at += n) {

        two = kvr_unicode_get(text + at, &n);

        hash = kvr_vocabulary_mix((uint64_t) one << 21 | two)
               >> (64 - KVR_VOCABULARY_PAIRS);
        v->pairs[hash / 8] |= 1 << hash % 8;

        if ((one | two) < 128) {
            v->ascii_pairs[one][two / 32] |= UINT32_C(1) << two % 32;
        }

        one = two;
    }
}


bool
kvr_vocabulary_finish(kvr_vocabulary_t *v)
{
    bool                whole;
    uint32_t            i, a, b, id;
    kvr_merge_state_t  *m;

    if (v->byte_level) {

        v->byte_pairs = malloc(65536 * sizeof(kvr_merge_to_t));
        if (v->byte_pairs == NULL) {
            return false;
        }

        for (i = 0; i < 65536; i++) {
            a = v->byte_ids[i >> 8];
            b = v->byte_ids[i & 0xff];

            v->byte_pairs[i] = kvr_vocabulary_merge(v, a, b);
        }
    }

    m = kvr_merge_new();
    if (m == NULL) {
        return false;
    }

    for (id = 0; id < v->nids; id++) {

        if (v->lengths[id] == 0 || v->lengths[id] > KVR_VOCABULARY_LONG) {
            continue;
        }

        kvr_merge_begin(m, v->bytes.data + v->offsets[id], v->lengths[id]);

        while (kvr_merge_run(m, v, UINT32_MAX) == KVR_MERGE_AGAIN) {
            /* void */
        }

        whole = m->n == 1 && m->ids[0] == id;

        if (whole) {
            v->whole[id / 8] |= 1 << id % 8;
        }

        if (m->failed) {
            break;
        }
    }

    whole = !m->failed;
    kvr_merge_free(m);

    return whole;
}
