/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the index means, in sets: for each view and handle the block that it
 * names and the tiers it is held in.  A block is a number for its chain of
 * hashes; there is no tree.
 */


#ifndef SETS_H_INCLUDED
#define SETS_H_INCLUDED


#include "kvr.h"

#include <stdlib.h>


#define SETS_VIEWS     4
#define SETS_HANDLES   1024             /* their names: 0 .. 1023 */
#define SETS_BLOCKS    32768            /* chains that one input may name */
#define SETS_BUCKETS   4096


typedef struct {
    uint32_t    parent;
    uint32_t    depth;
    uint64_t    hash;
    uint32_t    next;                   /* of the same bucket */
} sets_block_t;


typedef struct {
    uint32_t    block;                  /* 0: the handle is unknown */
    uint32_t    tiers;                  /* a bit each */
} sets_entry_t;


typedef struct {
    sets_entry_t  entries[SETS_VIEWS][SETS_HANDLES];
    sets_block_t  blocks[SETS_BLOCKS];  /* [0]: the root */
    uint32_t      buckets[SETS_BUCKETS];
    uint32_t      nblocks;

    /* by how many handles a block is held */
    uint16_t      held[SETS_BLOCKS][SETS_VIEWS][KVR_TIERS];
} sets_t;


static inline void
sets_init(sets_t *s)
{
    memset(s->entries, 0, sizeof(s->entries));
    memset(s->buckets, 0, sizeof(s->buckets));
    s->nblocks = 1;
}


/* The block behind another; UINT32_MAX: an input has used up all numbers. */
static inline uint32_t
sets_block(sets_t *s, uint32_t parent, uint64_t hash)
{
    uint32_t       i, *bucket;
    sets_block_t  *b;

    bucket = &s->buckets[((hash * 0x9e3779b97f4a7c15u >> 32)
                          + parent * 40503u) % SETS_BUCKETS];

    for (i = *bucket; i; i = b->next) {
        b = &s->blocks[i];

        if (b->parent == parent && b->hash == hash) {
            return i;
        }
    }

    if (s->nblocks == SETS_BLOCKS) {
        return UINT32_MAX;
    }

    i = s->nblocks++;
    b = &s->blocks[i];
    b->parent = parent;
    b->hash = hash;
    b->depth = parent ? s->blocks[parent].depth + 1 : 1;
    b->next = *bucket;
    *bucket = i;
    memset(s->held[i], 0, sizeof(s->held[i]));

    return i;
}


/* False when it was not held there. */
static inline bool
sets_remove(sets_t *s, uint32_t view, uint64_t handle, kvr_tier_t tier)
{
    sets_entry_t  *e;

    e = &s->entries[view][handle];

    if ((e->tiers & 1u << tier) == 0) {
        return false;
    }

    s->held[e->block][view][tier]--;
    e->tiers &= ~(1u << tier);

    if (e->tiers == 0) {
        e->block = 0;
    }

    return true;
}


/* A handle names a block, in one tier more; it leaves the one it named. */
static inline void
sets_hold(sets_t *s, uint32_t view, uint64_t handle, uint32_t block,
    kvr_tier_t tier)
{
    uint32_t       t;
    sets_entry_t  *e;

    e = &s->entries[view][handle];

    if (e->block != block) {
        for (t = 0; t < KVR_TIERS; t++) {
            (void) sets_remove(s, view, handle, t);
        }

        e->block = block;
    }

    if ((e->tiers & 1u << tier) == 0) {
        e->tiers |= 1u << tier;
        s->held[block][view][tier]++;
    }
}


static inline void
sets_clear(sets_t *s, uint32_t view)
{
    uint32_t  i, t;

    for (i = 0; i < SETS_HANDLES; i++) {
        for (t = 0; t < KVR_TIERS; t++) {
            (void) sets_remove(s, view, i, t);
        }
    }
}


/* The three depths of a view for a prompt. */
static inline void
sets_find(sets_t *s, uint32_t view, const uint64_t *hashes, uint32_t n,
    uint32_t depths[3])
{
    bool      has;
    uint32_t  i, t, block;

    memset(depths, 0, 3 * sizeof(uint32_t));
    block = 0;

    for (i = 0; i < n && depths[2] == i; i++) {

        block = sets_block(s, block, hashes[i]);
        has = false;

        if (block == UINT32_MAX) {
            break;
        }

        for (t = 0; t < 3; t++) {
            has = has || s->held[block][view][t];
            depths[t] += has && depths[t] == i;
        }
    }
}


/* The chain of a block from the root; returns its length. */
static inline uint32_t
sets_chain(const sets_t *s, uint32_t block, uint64_t *hashes)
{
    uint32_t  i, n;

    n = block ? s->blocks[block].depth : 0;

    for (i = n; i-- > 0; block = s->blocks[block].parent) {
        hashes[i] = s->blocks[block].hash;
    }

    return n;
}


#endif /* SETS_H_INCLUDED */
