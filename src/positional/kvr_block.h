/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Blocks: the nodes of the positional index, and the views that hold each.
 *
 * One block is one cache line.  It has records of a mark (32 bits) and a value
 * (64 bits) each.  Up to two records are in the block; more are in a piece of
 * the arena, all marks first:
 *
 *     record          mark                     value
 *     a handle        tiers (4) << 16 | view   the handle
 *     children held   0 << 16 | view           three counts of 21 bits
 *     the seed        KVR_MARK_SEED            the seed
 *
 * A view has a record for each handle that names the block: it holds the block
 * in the tiers of all of them together.  The counts say how many children of
 * this block the view holds in each row; they are there while one of them is
 * not 0, whether the view holds the block itself or not.
 *
 * ROWS.  Answers are cumulative: row 0 is device, row 1 device or host, row 2
 * any of device, host and disk.  A set of rows is 3 bits.
 *
 * SEEDS are kept in every KVR_SEED_EVERY-th block of a chain, for those behind
 * it.
 *
 * WHAT READERS SEE.  Marks, their number and place, and the name of a block
 * are changed under its version (kvr_txn.h).  Only writers read values.
 * Readers write the stamp, too: by a compare-and-swap of the word that has
 * both version and stamp, which fails if the version has changed.
 */


#ifndef KVR_BLOCK_H_INCLUDED
#define KVR_BLOCK_H_INCLUDED


#include "../core/kvr_arena.h"


#define KVR_BLOCK_INLINE     2
#define KVR_BLOCK_FREE       UINT32_MAX /* position: not a block any more */
#define KVR_BLOCK_RECORDS    32768      /* of one block: a full block refuses
                                           more */

#define KVR_MARK_SEED        0xffffu
#define KVR_SEED_EVERY       16

#define KVR_KIDS_BITS        21
#define KVR_KIDS_MAX         ((UINT64_C(1) << KVR_KIDS_BITS) - 1)


typedef struct {
    uint32_t        version;            /* seqlock; outlives the block */
    uint32_t        stamp;              /* seconds: stored, or matched last;
                                           changes together with version */
    uint64_t        hash;               /* local */
    uint64_t        sequence;           /* of all hashes from the root */
    uint32_t        position;           /* blocks before this one */
    uint32_t        nchildren;
    uint32_t        parent;             /* block; 0: the root */
    uint16_t        n;                  /* records */
    uint16_t        cap;                /* of ext: even; 0: they are here */
    union {
        uint32_t    marks[KVR_BLOCK_INLINE];
        uint32_t    ext;                /* piece: marks, then values */
    } at;
    uint64_t        values[KVR_BLOCK_INLINE];
} kvr_block_t;

_Static_assert(sizeof(kvr_block_t) == KVR_ARENA_BLOCK_WORDS * 8, "block");
_Static_assert(sizeof(kvr_block_t) == 64, "block: one cache line");

#define kvr_block_ext_words(cap)      ((cap) / 2u + (cap))
#define kvr_block_ext_records(words)  ((words) * 2 / 3 & ~1u)

#define kvr_mark(tiers, view)     ((uint32_t) (tiers) << 16 | (view))
#define kvr_mark_tiers(mark)      ((mark) >> 16 & 0xf)
#define kvr_mark_view(mark)       ((mark) & 0xffff)


static inline kvr_block_t *
kvr_block_at(const kvr_arena_t *a, uint32_t block)
{
    return kvr_arena_at(a, block);
}


/* The rows of a set of tiers. */
static inline uint32_t
kvr_block_rows(uint32_t tiers)
{
    static const uint8_t  rows[16] = {
        0, 7, 6, 7, 4, 7, 6, 7, 0, 7, 6, 7, 4, 7, 6, 7
    };

    return rows[tiers & 0xf];
}


static inline uint32_t *
kvr_block_marks(const kvr_arena_t *a, const kvr_block_t *b)
{
    return b->cap ? kvr_arena_at(a, b->at.ext) : (uint32_t *) b->at.marks;
}


static inline uint64_t *
kvr_block_values(const kvr_arena_t *a, const kvr_block_t *b)
{
    return b->cap ? (uint64_t *) kvr_arena_at(a, b->at.ext) + b->cap / 2
                  : (uint64_t *) b->values;
}


/* Does anybody hold it?  Of a block without children. */
static inline bool
kvr_block_held(const kvr_arena_t *a, const kvr_block_t *b)
{
    return b->n > 1
           || (b->n == 1 && kvr_block_marks(a, b)[0] != KVR_MARK_SEED);
}


/* The records of one view in a block. */
typedef struct {
    uint32_t    tiers;                  /* of all its handles but this one */
    uint32_t    own;                    /* tiers of the handle asked for */
    uint32_t    record;                 /* index; UINT32_MAX: no record */
    uint32_t    kids;                   /* the counts' index; UINT32_MAX */
} kvr_block_view_t;

void kvr_block_look(const kvr_arena_t *a, const kvr_block_t *b, uint32_t view,
    uint64_t handle, kvr_block_view_t *out);

/* The index of a mark that is there at most once, or UINT32_MAX. */
uint32_t kvr_block_find(const kvr_arena_t *a, const kvr_block_t *b,
    uint32_t mark);


/* Writers, in a transaction. */

/*
 * Adds a record.  KVR_FULL, or KVR_INVALID: the block has KVR_BLOCK_RECORDS of
 * them.  After both the caller must roll back.
 */
kvr_rc_t kvr_block_add(kvr_arena_t *a, kvr_block_t *b, uint32_t mark,
    uint64_t value);
void kvr_block_mark(kvr_arena_t *a, kvr_block_t *b, uint32_t i,
    uint32_t mark);

/* Deletes record i; the last record takes its index.  Needs no memory. */
void kvr_block_delete(kvr_arena_t *a, kvr_block_t *b, uint32_t i);


#endif /* KVR_BLOCK_H_INCLUDED */
