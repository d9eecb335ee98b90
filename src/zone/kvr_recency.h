/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Recency: which block of a cache was not used for longest.
 *
 * An engine with a full cache evicts the block that was not used for longest,
 * and of one request the last block first.  A use of a block uses all blocks
 * before it.  So the block that goes next is always the end of a chain, and it
 * is enough to remember the ends, from the oldest use to the newest:
 *
 *     a─b─c─d─e       oldest ─► e ─► h ─► g ◄─ newest
 *         └─f─g                           c: 1 fork
 *         └─h                             c: 2 forks
 *
 * When e is evicted, d is an end, in e's place of the list.  When d is gone,
 * too, c loses a fork, and is no end yet: f hangs on it.
 *
 * A point is a block of which there is something to remember:
 *
 *     an end      nothing that is held hangs on the block
 *     a fork      several blocks hang on it: one more than forks says
 *     a touch     a prompt ended there, though something hangs on it.  The
 *                 touch has a place in the list: when all that hangs on the
 *                 block is older, and gone, the block is an end in this place.
 *                 A touch that comes to be the oldest is one whose block was
 *                 used later by what hangs on it: it goes
 *
 * Ends and touches can have an extra: blocks of an answer, whose hashes are
 * not known.  They are used together with the block, go before it, and are
 * known as blocks, and not extra any more, when the chain grows there.
 *
 * This takes a point for each prompt that is held, and not for each block.
 *
 * A space is a number that a cache has for itself.  A cache is emptied at once
 * by taking its points to the garbage, and giving it another space.
 *
 * The table has a fixed number of points.  All functions are for the owner of
 * the shard's lock, in a transaction; a step takes KVR_RECENCY_LOG records of
 * the log at most.
 */


#ifndef KVR_RECENCY_H_INCLUDED
#define KVR_RECENCY_H_INCLUDED


#include "../core/kvr_txn.h"


#define KVR_RECENCY_LOG      64         /* records of a step of a list */
#define KVR_RECENCY_SWEEP    16         /* points of the garbage that are freed
                                           at once */

/* Kinds of points; a point can be a touch and a fork. */
#define KVR_POINT_END        1u
#define KVR_POINT_TOUCH      2u
#define KVR_POINT_TEXT       4u         /* with END: the chain is of text */


typedef struct {
    uint64_t    handle;
    uint32_t    space;
    uint32_t    tick;               /* second of the last use */
    uint32_t    busy;               /* second until which the prompt is taken
                                       to be in flight; 0: it is not */
    uint32_t    forks;
    uint32_t    extra;              /* blocks */
    uint32_t    flags;              /* KVR_POINT_… */
    uint32_t    prev;               /* in the list of uses, or of forks */
    uint32_t    next;
    uint32_t    chain;              /* next point of the bucket */
    uint32_t    pad;
} kvr_point_t;


typedef struct {
    uint32_t    first;              /* points; 0: none */
    uint32_t    last;
} kvr_recency_list_t;


/* A cache, in the zone.  All zero is an empty one, but for its space. */
typedef struct {
    kvr_recency_list_t  uses;       /* ends and touches, the oldest first */
    kvr_recency_list_t  forks;      /* points that are nothing else */
    uint32_t            ends;       /* the number of ends */
    uint32_t            text;       /* blocks of text held */
    uint64_t            extra;      /* of all points */
} kvr_recency_t;


/* In the zone. */
typedef struct {
    uint64_t    points;             /* offsets */
    uint64_t    buckets;
    uint32_t    npoints;            /* there are; number 0 is not used */
    uint32_t    bump;               /* first that was never used */
    uint32_t    free;               /* list, by next */
    uint32_t    garbage;            /* the same */
    uint32_t    used;               /* with the garbage */
    uint32_t    spaces;             /* the last number given */
    uint64_t    secret[2];
} kvr_recency_zone_t;


/* A process's handle. */
typedef struct {
    kvr_mem_t           *mem;
    kvr_recency_zone_t  *zone;
    kvr_point_t         *points;
    uint32_t            *buckets;
} kvr_recency_table_t;


/* Lays the table out in `size` bytes from offset `at`, a multiple of 64. */
void kvr_recency_format(kvr_mem_t *mem, kvr_recency_zone_t *z, uint64_t at,
    uint64_t size, const uint64_t secret[2]);
void kvr_recency_attach(kvr_recency_table_t *t, kvr_mem_t *mem,
    kvr_recency_zone_t *z);
bool kvr_recency_valid(const kvr_recency_zone_t *z, uint64_t size);

/* The number of points that can be made. */
static inline uint32_t
kvr_recency_room(const kvr_recency_table_t *t)
{
    return t->zone->npoints - 1 - t->zone->used;
}


/* The point of a block, or NULL. */
kvr_point_t *kvr_recency_find(const kvr_recency_table_t *t, uint32_t space,
    uint64_t handle);

/* The oldest end or touch; NULL: there is none. */
kvr_point_t *kvr_recency_oldest(const kvr_recency_table_t *t,
    const kvr_recency_t *c);

/*
 * A prompt of n blocks, more than 0, with these handles was used, of which
 * the cache held the first m before, and holds all now.  The table must have
 * room for two points.  tick and busy as in kvr_point_t; text: blocks of text.
 */
void kvr_recency_use(kvr_recency_table_t *t, kvr_recency_t *c, uint32_t space,
    const uint64_t *handles, uint32_t m, uint32_t n, uint32_t tick,
    uint32_t busy, bool text);

/* Sets the extra of the block at which a prompt ended just now. */
void kvr_recency_extra(kvr_recency_table_t *t, kvr_recency_t *c,
    uint32_t space, uint64_t handle, uint32_t extra);

/* The point becomes the newest. */
void kvr_recency_renew(kvr_recency_table_t *t, kvr_recency_t *c,
    kvr_point_t *p);

/* Takes up to n blocks from the point's extra; returns how many. */
uint32_t kvr_recency_take_extra(kvr_recency_table_t *t, kvr_recency_t *c,
    kvr_point_t *p, uint32_t n);

/*
 * The end, without an extra, and the n - 1 blocks before it, which have no
 * points, are gone; the block before them, if the cache holds one, is
 * `parent`.
 */
void kvr_recency_shorten(kvr_recency_table_t *t, kvr_recency_t *c,
    kvr_point_t *p, uint32_t n, bool has_parent, uint64_t parent);

/* The point is no end and no touch any more, and goes unless it is a fork. */
void kvr_recency_forget(kvr_recency_table_t *t, kvr_recency_t *c,
    kvr_point_t *p);

/* Empties the cache; its points are garbage from now on. */
void kvr_recency_clear(kvr_recency_table_t *t, kvr_recency_t *c);

/* Frees KVR_RECENCY_SWEEP points of the garbage; true: there are more. */
bool kvr_recency_sweep(kvr_recency_table_t *t);

/* A space that no cache has. */
uint32_t kvr_recency_space(kvr_recency_table_t *t);


#endif /* KVR_RECENCY_H_INCLUDED */
