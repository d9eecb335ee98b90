/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The arena: memory of the zone for runs, blocks and all that grows and
 * shrinks, in pieces.
 *
 *     base                                                      limit
 *      │ chunk table, map │ chunk │ chunk │ … │ never touched      │
 *                            │
 *                         piece │ piece │ … all of one class
 *
 * Memory comes in chunks of 512 words (8 bytes each).  A chunk in use serves
 * one class, that is one size of pieces, and has a bit for each of its slots
 * in the chunk table: a free piece is not written to.  A chunk without pieces
 * is free again and may serve any other class, so that another shape of load
 * can use the memory.  A class keeps one chunk without pieces, when it has no
 * other chunk with a free slot, until another class lacks a chunk.  A chunk
 * with one piece left stays with its class.
 *
 * A piece is named by its offset in words from the base, 32 bits, never 0.
 * Sizes are rounded up to a class: 4 words, 8, from there to 80 in steps of
 * 8, 96, 128, 168, 256, 512.  Each fits into a chunk once more than the next
 * one does, and all but 0 to 32 words of a chunk are slots.  Above 512 words
 * a piece is a span of whole chunks, the first that are free in a row.
 *
 * When a class has no free slot and no chunk is free, a larger class's piece
 * is taken: in a full arena, a freed piece is seldom of the class that is
 * wanted, and still more seldom the last one of its chunk.
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
 * reader notes the epoch before all other reads and looks at it again after
 * them: when the epoch is odd, or has changed, versions mean nothing and the
 * lookup restarts.  Pages and coverage of a run may be freed and used for
 * anything meanwhile: the version of their run has changed by then.  The same
 * is true for blocks.
 *
 * A piece freed in a transaction is handed out again only after its commit:
 * until then it waits in limbo.  For this reason new pieces may be filled
 * without logging: after a rollback no reader or writer can reach them.
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


/* A class: its size, and the bits `taken` of a chunk without a free slot. */
typedef struct {
    uint32_t    words;
    uint32_t    slots;
    uint32_t    inverse;                /* of words, as a fraction of 2^16 */
    uint32_t    pad;
    uint64_t    full[2];
} kvr_arena_class_t;

extern const kvr_arena_class_t  kvr_arena_classes[KVR_ARENA_SPAN];


/*
 * An entry of the chunk table.  The class of a free chunk is the class that it
 * served last; 0: none so far.  The entries of a span, but for the first one,
 * are left as they were before.
 */
typedef struct {
    uint64_t    taken[2];               /* a bit for each slot */
    uint32_t    next;                   /* chunk of the class with a free slot;
                                           0: none */
    uint32_t    prev;                   /* not set in the first */
    uint32_t    class;
    uint32_t    span;                   /* chunks of the span */
} kvr_arena_chunk_t;


/*
 * In the zone.  The fields that readers look at have cache lines of their own:
 * beside a writer's counters, each new piece would take these lines out of the
 * readers' caches.
 */
typedef struct {
    uint32_t    room[KVR_ARENA_SPAN];   /* by class: the first chunk with a
                                           free slot; 0: none */
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
    kvr_arena_want_t    lack;           /* the last request without success;
                                           class 0: none */
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
 * words on.  0: there is no memory, and the caller must roll back.
 */
uint32_t kvr_arena_alloc(kvr_arena_t *a, uint32_t n);

void kvr_arena_free(kvr_arena_t *a, uint32_t piece);

/* Allocates a run, KVR_ARENA_RUN_WORDS; 0 as above. */
uint32_t kvr_arena_alloc_run(kvr_arena_t *a);

/* Allocates a block, KVR_ARENA_BLOCK_WORDS; 0 as above. */
uint32_t kvr_arena_alloc_block(kvr_arena_t *a);

/*
 * Empties the limbo: pieces freed before may be handed out again.  To be
 * called with an empty log, at the beginning of a transaction; commits by
 * itself.
 */
void kvr_arena_settle(kvr_arena_t *a);

/* The number of pieces that may still be freed in this transaction. */
static inline uint32_t
kvr_arena_limbo_room(const kvr_arena_t *a)
{
    return KVR_ARENA_LIMBO - a->zone->nlimbo;
}


/*
 * To be called when an allocation failed and the caller can do without it:
 * nothing is evicted for it.
 */
static inline void
kvr_arena_forgo(kvr_arena_t *a)
{
    a->lack.class = 0;
}


/*
 * The number of pieces of this kind that can be allocated: at most
 * KVR_ARENA_ROOM, and 1 for a span.  For class 0 it is KVR_ARENA_ROOM.
 */
uint32_t kvr_arena_room(const kvr_arena_t *a, kvr_arena_want_t want);

/* The words of a piece: as many as were asked for, or more. */
uint32_t kvr_arena_size(const kvr_arena_t *a, uint32_t piece);


static inline void *
kvr_arena_at(const kvr_arena_t *a, uint32_t piece)
{
    return a->words + piece;
}


/* True when the chunk of the piece is free or of the class. */
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

    /* an empty chunk of the class may be inside a span */

    return r->class == class
           && (!kvr_arena_is_empty(r) || a->zone->room[class] == chunk);
}


/* True when there is a piece of the class at that address, or one in limbo. */
static inline bool
kvr_arena_is(const kvr_arena_t *a, uint32_t piece, uint32_t class)
{
    uint32_t                  slot;
    const kvr_arena_chunk_t  *r;

    r = &a->chunks[piece / KVR_ARENA_CHUNK];
    slot = piece % KVR_ARENA_CHUNK / kvr_arena_classes[class].words;

    return r->class == class && (r->taken[slot / 64] >> (slot & 63) & 1);
}


/* For readers, which may have read a torn number: true when n words from there
 * are inside the arena. */
static inline bool
kvr_arena_valid(const kvr_arena_t *a, uint32_t piece, uint32_t n)
{
    return (uint64_t) piece + n <= a->zone->limit;
}


/* For readers.  An acquire load: later reads are not older than the epoch
 * returned. */
static inline uint32_t
kvr_arena_epoch(const kvr_arena_t *a)
{
    return __atomic_load_n(&a->zone->epoch, __ATOMIC_ACQUIRE);
}


/*
 * For readers: true when the epoch was the same during all reads since it was
 * noted.  An odd epoch is never the same.
 */
static inline bool
kvr_arena_same_epoch(const kvr_arena_t *a, uint32_t epoch)
{
    kvr_fence(__ATOMIC_ACQUIRE);

    return (epoch & 1) == 0 && kvr_load32(&a->zone->epoch) == epoch;
}


#endif /* KVR_ARENA_H_INCLUDED */
