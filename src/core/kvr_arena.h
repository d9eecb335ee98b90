/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The arena: pieces of the zone for what grows and shrinks.
 *
 *     base                                                      limit
 *      │ chunk table, map │ chunk │ chunk │ … │ never touched      │
 *                            │
 *                         piece │ piece │ … all of one class
 *
 * Memory comes in chunks of 512 words (8 bytes each).  A chunk in use serves
 * one class, that is one size of pieces, and has a bit for each of its slots
 * in the chunk table: a free piece is not written to.  A chunk without pieces
 * goes back and may serve any other class, so that what one shape of load has
 * left is there for the next.  A class keeps one chunk without pieces, if it
 * has no other with room, until somebody lacks it.  A chunk with one piece
 * left stays with its class.
 *
 * A piece is named by its offset in words from the base, 32 bits, never 0.
 * Sizes are rounded up to a class: 4 words, 8, from there to 80 in steps of
 * 8, 96, 128, 168, 256, 512.  Each fits into a chunk once more than the next
 * one does, and all but 0 to 32 words of a chunk are slots.  Above 512 words
 * a piece is a span of whole chunks, the first that are free in a row.
 *
 * Where a class has no room and no chunk is free, a piece of a larger class
 * will do: in an arena that is full, what was freed is seldom of the class
 * that is wanted, and still more seldom a whole chunk.
 *
 * Free chunks are found by a map, a bit each, the lowest first.  Zeroed memory
 * is an empty arena: what was never handed out was never touched.
 *
 * RUNS AND BLOCKS.  The first word of a run (kvr_arena_alloc_run(), for the
 * radix index) or of a block (kvr_arena_alloc_block(), for the positional one)
 * is a version that must outlive it: a reader without the lock may hold the
 * number of a run that was freed, and looks at the version there in the end.
 * So runs have chunks of their own, and so have blocks; while a chunk is
 * theirs, the arena writes nothing into it, and a new run finds at its address
 * the version that the last one left, or, in a chunk that was another's,
 * anything.
 *
 * Before a chunk that runs were in serves others, the arena's epoch advances.
 * It also does when a transaction that gave runs a chunk is rolled back.  A
 * reader notes the epoch before everything and looks at it behind everything:
 * when it is odd, or another, versions tell nothing and the lookup begins
 * anew.  Whatever else a reader looks at, pages or coverage, may be freed and
 * become anything meanwhile: the version of the run that it belongs to has
 * changed by then.  All this holds for blocks alike.
 *
 * A piece freed in a transaction is handed out again only after its commit:
 * until then it waits in limbo.  That is what lets new pieces be filled
 * without logging: after a rollback nobody can reach them.
 *
 * All functions but kvr_arena_valid(), kvr_arena_epoch() and kvr_arena_at()
 * are for the owner of the zone's lock, in a transaction.
 */


#ifndef KVR_ARENA_H_INCLUDED
#define KVR_ARENA_H_INCLUDED


#include "kvr_txn.h"


#define KVR_ARENA_CHUNK      512        /* words: 4 KiB */
#define KVR_ARENA_RUN        17         /* the class of runs, behind 1 .. 16 */
#define KVR_ARENA_BLOCK      18         /* of blocks; these have versions */
#define KVR_ARENA_SPAN       19         /* of the first chunk of a span */
#define KVR_ARENA_RUN_WORDS  24
#define KVR_ARENA_BLOCK_WORDS  8
#define KVR_ARENA_LIMBO      2048       /* pieces freed in one transaction */
#define KVR_ARENA_ROOM       16
#define KVR_ARENA_WORDS_MAX  (1u << 19) /* words of the largest piece: 4 MiB */


/* By class: its size, and what is taken of a chunk without room. */
typedef struct {
    uint32_t    words;
    uint32_t    slots;
    uint32_t    inverse;                /* of words, as a fraction of 2^16 */
    uint32_t    pad;
    uint64_t    full[2];
} kvr_arena_class_t;

extern const kvr_arena_class_t  kvr_arena_classes[KVR_ARENA_SPAN];


/*
 * An entry of the chunk table.  The class of a chunk that is free is the one
 * it served last; 0: none so far.  Inside a span, behind its first chunk, an
 * entry is as before.
 */
typedef struct {
    uint64_t    taken[2];               /* a bit for each slot */
    uint32_t    next;                   /* chunks of the class that have room;
                                           0: the last */
    uint32_t    prev;                   /* not set in the first */
    uint32_t    class;
    uint32_t    span;                   /* chunks of the span */
} kvr_arena_chunk_t;


/*
 * In the zone.  What readers look at has lines of its own: a writer's counters
 * would take them out of the readers' caches with each piece.
 */
typedef struct {
    uint32_t    room[KVR_ARENA_SPAN];   /* by class: the first chunk that has
                                           some; 0: none */
    uint64_t    base;                   /* offset from the zone's base */
    uint64_t    limit;                  /* words there are, with the table */
    uint32_t    first;                  /* chunk behind table and map */
    uint32_t    nchunks;                /* numbers are below it */
    uint32_t    epoch;                  /* a version: RUNS AND BLOCKS */
    uint32_t    pad[9];
    uint64_t    bump;                   /* first word never in use */
    uint64_t    used;                   /* words handed out, after rounding */
    uint64_t    lent;                   /* of these, not to the index */
    uint32_t    chunks;                 /* in use */
    uint32_t    low;                    /* no chunk below it is free */
    uint32_t    nlimbo;
    uint32_t    limbo[KVR_ARENA_LIMBO]; /* pieces */
} kvr_arena_zone_t;


/* A piece: of a class, or n chunks.  class 0: none. */
typedef struct {
    uint32_t            class;
    uint32_t            n;
} kvr_arena_want_t;


/* A process's handle. */
typedef struct {
    kvr_mem_t          *mem;
    kvr_arena_zone_t   *zone;
    uint64_t           *words;
    kvr_arena_chunk_t  *chunks;
    uint64_t           *map;            /* a bit for each chunk in use */
    kvr_arena_want_t    lack;           /* what was asked for last, if there
                                           was no room for it */
} kvr_arena_t;


static inline bool
kvr_arena_is_full(const kvr_arena_chunk_t *r, const kvr_arena_class_t *class)
{
    return r->taken[0] == class->full[0] && r->taken[1] == class->full[1];
}


static inline bool
kvr_arena_is_empty(const kvr_arena_chunk_t *r)
{
    return (r->taken[0] | r->taken[1]) == 0;
}


/* The memory must be zeroed, and its offset a multiple of 64. */
void kvr_arena_format(kvr_arena_zone_t *z, uint64_t base, uint64_t words);
void kvr_arena_attach(kvr_arena_t *a, kvr_mem_t *mem, kvr_arena_zone_t *z);

/*
 * A piece of at least n words, contents undefined, aligned to 64 bytes from 8
 * words on.  0 when there is no room: then the caller rolls back.
 */
uint32_t kvr_arena_alloc(kvr_arena_t *a, uint32_t n);

void kvr_arena_free(kvr_arena_t *a, uint32_t piece);

/* The same for runs, KVR_ARENA_RUN_WORDS each. */
uint32_t kvr_arena_alloc_run(kvr_arena_t *a);

/* And for blocks, KVR_ARENA_BLOCK_WORDS each. */
uint32_t kvr_arena_alloc_block(kvr_arena_t *a);

/*
 * Ends limbo: what was freed before may be handed out again.  To be called
 * with an empty log, at the beginning of a transaction; commits by itself.
 */
void kvr_arena_settle(kvr_arena_t *a);

/* Pieces that may still be freed in this transaction. */
static inline uint32_t
kvr_arena_limbo_room(const kvr_arena_t *a)
{
    return KVR_ARENA_LIMBO - a->zone->nlimbo;
}


/*
 * It was not needed: room is not to be made for what was asked for last.  To
 * be said by those who do without.
 */
static inline void
kvr_arena_forgo(kvr_arena_t *a)
{
    a->lack.class = 0;
}


/*
 * For how many such pieces there is room, up to KVR_ARENA_ROOM, which is also
 * said of none; of a span up to one.
 */
uint32_t kvr_arena_room(const kvr_arena_t *a, kvr_arena_want_t want);

/* The words of a piece: as many as were asked for, or more. */
uint32_t kvr_arena_size(const kvr_arena_t *a, uint32_t piece);


static inline void *
kvr_arena_at(const kvr_arena_t *a, uint32_t piece)
{
    return a->words + piece;
}


/* Is the chunk of that slot the class's, or free? */
static inline bool
kvr_arena_serves(const kvr_arena_t *a, uint32_t piece, uint32_t class)
{
    uint32_t                  chunk;
    const kvr_arena_chunk_t  *r;

    chunk = piece / KVR_ARENA_CHUNK;
    r = &a->chunks[chunk];

    if ((a->map[chunk / 64] >> (chunk & 63) & 1) == 0) {
        return true;
    }

    /* inside a span it is only said to be */

    return r->class == class
           && (!kvr_arena_is_empty(r) || a->zone->room[class] == chunk);
}


/* Is there a piece of the class at that slot, be it in limbo? */
static inline bool
kvr_arena_is(const kvr_arena_t *a, uint32_t piece, uint32_t class)
{
    uint32_t                  slot;
    const kvr_arena_chunk_t  *r;

    r = &a->chunks[piece / KVR_ARENA_CHUNK];
    slot = piece % KVR_ARENA_CHUNK / kvr_arena_classes[class].words;

    return r->class == class && (r->taken[slot / 64] >> (slot & 63) & 1);
}


/* For readers, who may hold a torn number: is it inside, with n words? */
static inline bool
kvr_arena_valid(const kvr_arena_t *a, uint32_t piece, uint32_t n)
{
    return (uint64_t) piece + n <= a->zone->limit;
}


/* For readers: what they see behind this is of this epoch or a later one. */
static inline uint32_t
kvr_arena_epoch(const kvr_arena_t *a)
{
    return __atomic_load_n(&a->zone->epoch, __ATOMIC_ACQUIRE);
}


/*
 * For readers: was the epoch the same for everything that they have read since
 * they noted it?  An odd one is no epoch.
 */
static inline bool
kvr_arena_same_epoch(const kvr_arena_t *a, uint32_t epoch)
{
    kvr_fence(__ATOMIC_ACQUIRE);

    return (epoch & 1) == 0 && kvr_load32(&a->zone->epoch) == epoch;
}


#endif /* KVR_ARENA_H_INCLUDED */
