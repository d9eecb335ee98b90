/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The arena: pieces of the zone, by size classes, for what grows and shrinks.
 *
 * A piece is named by its offset in 8-byte words from the arena's base, 32
 * bits, never 0.  Sizes are rounded up to a class: 2, 4, 8 words, then four
 * steps to each doubling (at most a quarter is lost).  A freed piece goes to
 * its class's list and never to another class, so that what lies in it keeps
 * its shape; a reader that still looks at it sees old or new data of the same
 * kind, never code of another, and its version tells it so.
 *
 *     base                                     bump            limit
 *      │ piece │ piece │ … free pieces linked … │    untouched   │
 *
 * Runs and blocks have lists of their own (KVR_ARENA_RUN, KVR_ARENA_BLOCK):
 * their first word holds a version, which must outlive them, so they are
 * linked by their last word.
 *
 * A piece freed in a transaction is handed out again only after its commit:
 * until then it waits in limbo.  That is what lets new pieces be filled
 * without logging: after a rollback nobody can reach them.
 *
 * All functions are for the owner of the zone's lock, in a transaction.
 */


#ifndef KVR_ARENA_H_INCLUDED
#define KVR_ARENA_H_INCLUDED


#include "kvr_txn.h"


#define KVR_ARENA_CLASSES    74
#define KVR_ARENA_RUN        72         /* of the radix index */
#define KVR_ARENA_RUN_WORDS  24
#define KVR_ARENA_BLOCK      73         /* of the positional index */
#define KVR_ARENA_BLOCK_WORDS  8
#define KVR_ARENA_LIMBO      2048       /* pieces freed in one transaction */
#define KVR_ARENA_WORDS_MAX  (1u << 19) /* words of the largest piece: 4 MiB */


/* In the zone. */
typedef struct {
    uint64_t    base;                   /* offset from the zone's base */
    uint64_t    limit;                  /* words there are */
    uint64_t    bump;                   /* first word never handed out */
    uint64_t    used;                   /* words handed out, after rounding */
    uint64_t    lent;                   /* of these, not to the index */
    uint32_t    nlimbo;
    uint32_t    pad;
    uint32_t    free[KVR_ARENA_CLASSES];
    uint64_t    limbo[KVR_ARENA_LIMBO]; /* class << 32 | piece */
} kvr_arena_zone_t;


/* A process's handle. */
typedef struct {
    kvr_mem_t         *mem;
    kvr_arena_zone_t  *zone;
    uint64_t          *words;
} kvr_arena_t;


void kvr_arena_format(kvr_arena_zone_t *z, uint64_t base, uint64_t words);
void kvr_arena_attach(kvr_arena_t *a, kvr_mem_t *mem, kvr_arena_zone_t *z);

/*
 * A piece of at least n words, contents undefined, aligned to 64 bytes from 8
 * words on.  0 when there is no room: then the caller rolls back.
 */
uint32_t kvr_arena_alloc(kvr_arena_t *a, uint32_t n);

/* n as it was allocated with. */
void kvr_arena_free(kvr_arena_t *a, uint32_t piece, uint32_t n);

/* The same for runs, KVR_ARENA_RUN_WORDS each. */
uint32_t kvr_arena_alloc_run(kvr_arena_t *a);
void kvr_arena_free_run(kvr_arena_t *a, uint32_t piece);

/* And for blocks, KVR_ARENA_BLOCK_WORDS each. */
uint32_t kvr_arena_alloc_block(kvr_arena_t *a);
void kvr_arena_free_block(kvr_arena_t *a, uint32_t piece);

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


/* The words that a piece of n words takes. */
uint32_t kvr_arena_rounded(uint32_t n);

/* For those who walk the free lists: the words of a class's pieces, and the
 * piece behind a free one. */
uint32_t kvr_arena_words(uint32_t c);
uint32_t kvr_arena_next(const kvr_arena_t *a, uint32_t c, uint32_t piece);


static inline void *
kvr_arena_at(const kvr_arena_t *a, uint32_t piece)
{
    return a->words + piece;
}


/* For readers, who may hold a torn number: is it inside, with n words? */
static inline bool
kvr_arena_valid(const kvr_arena_t *a, uint32_t piece, uint32_t n)
{
    return (uint64_t) piece + n <= a->zone->limit;
}


#endif /* KVR_ARENA_H_INCLUDED */
