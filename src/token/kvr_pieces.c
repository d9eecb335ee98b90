/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_pieces.h"

#include <stdlib.h>


#define KVR_PIECES_SHORT     26         /* bytes of a piece in a small slot */
#define KVR_PIECES_FEW       9          /* ids of a piece in a small slot */


/* One cache line. */
typedef struct {
    uint8_t     len;
    uint8_t     n;
    char        text[KVR_PIECES_SHORT];
    uint32_t    ids[KVR_PIECES_FEW];
} kvr_pieces_small_t;

_Static_assert(sizeof(kvr_pieces_small_t) == 64, "a slot is a cache line");


typedef struct {
    uint8_t     len;
    uint8_t     n;
    uint8_t     pad[2];
    char        text[KVR_PIECES_LEN];
    uint32_t    ids[KVR_PIECES_IDS];
} kvr_pieces_large_t;

_Static_assert(sizeof(kvr_pieces_large_t) == 256, "four cache lines");


struct kvr_pieces_s {
    kvr_pieces_small_t  *small;
    kvr_pieces_large_t  *large;
    uint32_t             small_mask;
    uint32_t             large_mask;
};


kvr_pieces_t *
kvr_pieces_new(uint32_t slots)
{
    kvr_pieces_t  *p;

    if (slots < 8 || slots > 1u << 24 || (slots & (slots - 1))) {
        return NULL;
    }

    p = calloc(1, sizeof(kvr_pieces_t));
    if (p == NULL) {
        return NULL;
    }

    p->small_mask = slots - 1;
    p->large_mask = slots / 8 - 1;

    p->small = aligned_alloc(64, slots * sizeof(kvr_pieces_small_t));
    p->large = aligned_alloc(64, slots / 8 * sizeof(kvr_pieces_large_t));

    if (p->small == NULL || p->large == NULL) {
        kvr_pieces_free(p);
        return NULL;
    }

    memset(p->small, 0, slots * sizeof(kvr_pieces_small_t));
    memset(p->large, 0, slots / 8 * sizeof(kvr_pieces_large_t));

    return p;
}


void
kvr_pieces_free(kvr_pieces_t *p)
{
    if (p) {
        free(p->small);
        free(p->large);
        free(p);
    }
}


uint32_t
kvr_pieces_find(kvr_pieces_t *p, const char *text, size_t len, uint64_t hash,
    uint32_t *out)
{
    kvr_pieces_small_t  *small;
    kvr_pieces_large_t  *large;

    if (len <= KVR_PIECES_SHORT) {
        small = &p->small[hash & p->small_mask];

        if (small->len == len && memcmp(small->text, text, len) == 0) {
            memcpy(out, small->ids, small->n * sizeof(uint32_t));
            return small->n;
        }
    }

    if (len <= KVR_PIECES_LEN) {
        large = &p->large[hash & p->large_mask];

        if (large->len == len && memcmp(large->text, text, len) == 0) {
            memcpy(out, large->ids, large->n * sizeof(uint32_t));
            return large->n;
        }
    }

    return 0;
}


void
kvr_pieces_keep(kvr_pieces_t *p, const char *text, size_t len, uint64_t hash,
    const uint32_t *ids, uint32_t n)
{
    kvr_pieces_small_t  *small;
    kvr_pieces_large_t  *large;

    if (len <= KVR_PIECES_SHORT && n <= KVR_PIECES_FEW) {
        small = &p->small[hash & p->small_mask];
        small->len = (uint8_t) len;
        small->n = (uint8_t) n;
        memcpy(small->text, text, len);
        memcpy(small->ids, ids, n * sizeof(uint32_t));
        return;
    }

    if (len <= KVR_PIECES_LEN && n <= KVR_PIECES_IDS) {
        large = &p->large[hash & p->large_mask];
        large->len = (uint8_t) len;
        large->n = (uint8_t) n;
        memcpy(large->text, text, len);
        memcpy(large->ids, ids, n * sizeof(uint32_t));
    }
}
