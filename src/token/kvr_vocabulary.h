/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A tokenizer's vocabulary and merges, by hash tables.
 *
 * Read-only when it is built.
 */


#ifndef KVR_VOCABULARY_H_INCLUDED
#define KVR_VOCABULARY_H_INCLUDED


#include "kvr_bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>


#define KVR_TOKEN_NONE       UINT32_MAX

#define KVR_VOCABULARY_PAIRS 22         /* bits of the index of pairs */


/* Two ids that become one.  key KVR_MERGE_FREE: no such. */
typedef struct {
    uint64_t    key;                    /* the first one << 32 | the second */
    uint32_t    rank;                   /* smaller ones go first */
    uint32_t    id;
} kvr_merge_t;

#define KVR_MERGE_FREE       UINT64_MAX


typedef struct {
    uint32_t    rank;                   /* KVR_TOKEN_NONE: they don't merge */
    uint32_t    id;
} kvr_merge_to_t;


typedef struct {
    /* by id: its bytes, as they are in a text */
    kvr_bytes_t      bytes;
    uint32_t        *offsets;
    uint32_t        *lengths;
    uint32_t         nids;              /* the largest id + 1 */
    uint32_t         longest;           /* bytes of a token, at most */

    /* bytes -> id */
    uint32_t        *slots;
    uint8_t         *tags;              /* 0: free; else bits of the hash */
    uint32_t         mask;

    kvr_merge_t     *merges;
    uint32_t         merges_mask;

    /* byte-level: two bytes that a piece begins with need no hash */
    kvr_merge_to_t  *byte_pairs;        /* NULL, or 65536 */

    uint32_t         byte_ids[256];     /* of single bytes */
    uint8_t         *whole;             /* a bit for each id: its bytes alone
                                           become this id alone */

    /*
     * Pairs of characters that stand side by side within a merged token.
     * Between two others nothing ever merges.  A false "yes" is allowed.
     */
    uint8_t         *pairs;
    uint32_t         ascii_pairs[128][4];

    uint32_t         unknown;           /* id, or KVR_TOKEN_NONE */
    bool             byte_level;
    bool             byte_fallback;
    bool             fuse_unknown;
    bool             ignore_merges;     /* whatever is a token becomes it */
} kvr_vocabulary_t;


static inline uint64_t
kvr_vocabulary_mix(uint64_t key)
{
    key ^= key >> 32;
    key *= UINT64_C(0x9e3779b97f4a7c15);

    return key ^ key >> 29;
}


/* The token with these bytes, hash being XXH3-64 of them; KVR_TOKEN_NONE. */
static inline uint32_t
kvr_vocabulary_find(const kvr_vocabulary_t *v, const char *text, size_t len,
    uint64_t hash)
{
    uint8_t   tag;
    uint32_t  i, id;

    tag = (uint8_t) (hash >> 56 | 1);

    for (i = hash & v->mask; v->tags[i]; i = (i + 1) & v->mask) {

        if (v->tags[i] != tag) {
            continue;
        }

        id = v->slots[i];

        if (v->lengths[id] == len
            && memcmp(v->bytes.data + v->offsets[id], text, len) == 0)
        {
            return id;
        }
    }

    return KVR_TOKEN_NONE;
}


/* The merge of two ids. */
static inline kvr_merge_to_t
kvr_vocabulary_merge(const kvr_vocabulary_t *v, uint32_t a, uint32_t b)
{
    uint64_t  key;
    uint32_t  i;

    key = (uint64_t) a << 32 | b;

    for (i = kvr_vocabulary_mix(key) & v->merges_mask;
         v->merges[i].key != KVR_MERGE_FREE;
         i = (i + 1) & v->merges_mask)
    {
        if (v->merges[i].key == key) {
            return (kvr_merge_to_t) { v->merges[i].rank, v->merges[i].id };
        }
    }

    return (kvr_merge_to_t) { KVR_TOKEN_NONE, KVR_TOKEN_NONE };
}


/* Can two characters be side by side within a token? */
static inline bool
kvr_vocabulary_joins(const kvr_vocabulary_t *v, uint32_t a, uint32_t b)
{
    uint32_t  hash;

    if ((a | b) < 128) {
        return v->ascii_pairs[a][b / 32] >> b % 32 & 1;
    }

    hash = kvr_vocabulary_mix((uint64_t) a << 21 | b)
           >> (64 - KVR_VOCABULARY_PAIRS);

    return v->pairs[hash / 8] >> hash % 8 & 1;
}


static inline bool
kvr_vocabulary_is_whole(const kvr_vocabulary_t *v, uint32_t id)
{
    return v->whole[id / 8] >> id % 8 & 1;
}


/*
 * Building, in this order.  Flags must be set before.  False: no memory.
 *
 * init: for n tokens with ids below nids, and for so many merges.
 * put: a token's bytes.  merge: two ids become a third one; text: the bytes of
 * the third as the file has them, whose characters stand side by side.
 * finish: derives the rest.
 */
bool kvr_vocabulary_init(kvr_vocabulary_t *v, uint32_t n, uint32_t nids,
    uint32_t merges);
bool kvr_vocabulary_put(kvr_vocabulary_t *v, uint32_t id, const char *text,
    size_t len);
void kvr_vocabulary_put_merge(kvr_vocabulary_t *v, uint32_t a, uint32_t b,
    uint32_t to, uint32_t rank, const char *text, size_t len);
bool kvr_vocabulary_finish(kvr_vocabulary_t *v);
void kvr_vocabulary_free(kvr_vocabulary_t *v);

/* Bytes of memory. */
size_t kvr_vocabulary_bytes(const kvr_vocabulary_t *v);


#endif /* KVR_VOCABULARY_H_INCLUDED */
