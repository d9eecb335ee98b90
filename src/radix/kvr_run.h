/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Runs: the edges of the radix tree, and who holds how much of each.
 *
 * A trie of blocks would have one node for each block.  Most chains are long
 * and have no branch, so a chain is kept as one run, an array of local hashes:
 *
 *     blocks    a─b─c─d─e─f        runs    [a b c d e f]
 *                   └─g─h                       └─────[g h]   at offset 3
 *                   └─i                         └─────[i]     at offset 3
 *
 * A run is never split.  A child can hang at any offset of its parent; one
 * hash table finds it by (parent run, offset, first hash).  So a block never
 * moves to another run: its address, (run, offset), is valid as long as the
 * run is.
 *
 *     run, 192 bytes   header, one cache line │ pages │ handles │ 7 hashes
 *     pages            of 128 hashes each, as the run grows (kvr_pages.h)
 *     a longer chain   goes on in the child at offset KVR_RUN_MAX
 *
 * COVERAGE.  Most holders hold a run from its start to some depth, in device
 * memory: a pair (view, depth), 4 bytes.  Up to eight pairs are in the header,
 * more pairs in a piece of the arena.  Very many pairs become an array of
 * depths, which the view's number indexes ("dense").  A view with holes, with
 * blocks in other tiers, or with more than one handle of a block has a detail
 * instead: a bitmap for each tier, and the three cumulative depths that follow
 * from the bitmaps.  Its pair is then KVR_COVER_DETAIL.
 *
 * HANDLES.  kvr_handles.h describes the handles of the blocks.
 *
 * WHAT READERS SEE.  Everything that a lookup reads of a run is changed under
 * the run's version (kvr_txn.h).  Bitmaps, counts and handles are read by
 * writers alone.
 */


#ifndef KVR_RUN_H_INCLUDED
#define KVR_RUN_H_INCLUDED


#include "kvr_pages.h"


#define KVR_RUN_INLINE       7
#define KVR_RUN_MAX          512

/* Hashes and handles in pages of different sizes don't mix in the arena: a
 * lookup finds all hashes of a long run side by side. */
#define KVR_RUN_PAGE         128        /* hashes */
#define KVR_RUN_HANDLES      64         /* handles */

#define KVR_VIEWS_LIMIT      0xfff0u    /* a view's number has 16 bits here */

#define KVR_COVER_INLINE     8
#define KVR_COVER_DENSE      0xffffu    /* a value of npairs: ext is
                                           uint16_t[cap * 64] */
#define KVR_COVER_DETAIL     0x8000u    /* a value of depth: the view has a
                                           detail */
#define KVR_COVER_OWN        0x4000u    /* a flag beside the depth: the view
                                           has handles of its own in this
                                           run */
#define kvr_cover_plain(d)   ((d) & ~KVR_COVER_OWN)
#define KVR_COVER_DENSE_AT   16         /* pairs, at least, before dense */


typedef struct {
    uint16_t    view;
    uint16_t    depth;
} kvr_pair_t;


typedef struct {
    uint32_t    version;                /* seqlock; outlives the run */
    uint32_t    stamp;                  /* second of the last use; readers set
                                           it, both words at once */
    uint32_t    parent;                 /* run; 0: the root */
    uint16_t    offset;                 /* blocks of the parent in front of
                                           this run's first block */
    uint16_t    len;                    /* 1 .. KVR_RUN_MAX; 0: free */
    uint16_t    npairs;                 /* or KVR_COVER_DENSE */
    uint16_t    cap;                    /* of ext: pairs, or 64 views; or 0 */
    uint32_t    detail;                 /* piece: kvr_details_t; 0: none */
    uint32_t    nchildren;
    uint32_t    next;                   /* a child, which lookups try before
                                           they ask the table; 0: not known */
    union {
        kvr_pair_t  pairs[KVR_COVER_INLINE];
        uint32_t    ext;                /* piece, when cap is not 0 */
    } cover;

    uint64_t    seed;                   /* of the chain's hashes; 0: unknown */
    uint32_t    pages[KVR_RUN_MAX / KVR_RUN_PAGE];  /* behind the inline */
    uint32_t    pages_tail;
    uint32_t    handles[KVR_RUN_MAX / KVR_RUN_HANDLES];
    uint32_t    handles_tail;
    uint32_t    owns;                   /* piece: kvr_owns_t; 0: none */
    uint16_t    nhandles;
    uint16_t    contested;              /* a handle is also another block's */
    uint64_t    hashes[KVR_RUN_INLINE];
} kvr_run_t;

_Static_assert(sizeof(kvr_run_t) == KVR_ARENA_RUN_WORDS * 8, "run");
_Static_assert(offsetof(kvr_run_t, seed) == 64, "header: one cache line");


/* One view's coverage of a run, when a depth does not say it all. */
typedef struct {
    uint16_t    view;
    uint16_t    depth[3];               /* device; device or host; any of
                                           device, host, disk */
    uint32_t    bits;                   /* piece: KVR_TIERS rows of `words` */
    uint16_t    words;                  /* of 64 blocks each */
    uint16_t    counted;                /* blocks with more handles than one */
    uint32_t    counts;                 /* piece: uint16_t[KVR_TIERS]
                                           [words * 64], handles beyond the
                                           first; 0: none */
    uint32_t    pad;
} kvr_detail_t;

_Static_assert(sizeof(kvr_detail_t) == 24, "detail");


typedef struct {
    uint32_t      n;
    uint32_t      cap;
    kvr_detail_t  items[];
} kvr_details_t;

#define kvr_details_words(cap)  (1 + 3 * (cap))


/* How many of n hashes are in pages. */
#define kvr_run_paged(n)                                                      \
    ((n) > KVR_RUN_INLINE ? (n) - KVR_RUN_INLINE : 0)


/* The pages of a run's hashes, and those of its handles. */

static inline kvr_pages_t
kvr_run_pages(kvr_run_t *r)
{
    return (kvr_pages_t) { r->pages, &r->pages_tail, KVR_RUN_PAGE };
}


static inline kvr_pages_t
kvr_run_handles(kvr_run_t *r)
{
    return (kvr_pages_t) { r->handles, &r->handles_tail, KVR_RUN_HANDLES };
}


#endif /* KVR_RUN_H_INCLUDED */
