/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_arena.h"


static uint32_t kvr_arena_class(uint32_t n, uint32_t *rounded);
static uint64_t *kvr_arena_link(const kvr_arena_t *a, uint32_t c,
    uint32_t piece);
static uint32_t kvr_arena_take(kvr_arena_t *a, uint32_t c, uint32_t words);
static void kvr_arena_give(kvr_arena_t *a, uint32_t piece, uint32_t c,
    uint32_t words);


/*
 * Classes 0, 1, 2 are 2, 4, 8 words; above, each doubling 2^e .. 2^(e+1) has
 * four steps of 2^(e-2).
 */

static uint32_t
kvr_arena_class(uint32_t n, uint32_t *rounded)
{
    uint32_t  e, k, step;

    if (n <= 2) {
        *rounded = 2;
        return 0;
    }

    if (n <= 4) {
        *rounded = 4;
        return 1;
    }

    if (n <= 8) {
        *rounded = 8;
        return 2;
    }

    e = 31 - (uint32_t) __builtin_clz(n - 1);
    step = 1u << (e - 2);
    k = (n - 1 - (1u << e)) / step;

    *rounded = (1u << e) + (k + 1) * step;

    return 3 + (e - 3) * 4 + k;
}


uint32_t
kvr_arena_rounded(uint32_t n)
{
    uint32_t  rounded;

    (void) kvr_arena_class(n, &rounded);

    return rounded;
}


uint32_t
kvr_arena_words(uint32_t c)
{
    uint32_t  e;

    if (c == KVR_ARENA_RUN) {
        return KVR_ARENA_RUN_WORDS;
    }

    if (c == KVR_ARENA_BLOCK) {
        return KVR_ARENA_BLOCK_WORDS;
    }

    if (c < 3) {
        return 2u << c;
    }

    e = 3 + (c - 3) / 4;

    return (1u << e) + ((c - 3) % 4 + 1) * (1u << (e - 2));
}


uint32_t
kvr_arena_next(const kvr_arena_t *a, uint32_t c, uint32_t piece)
{
    return (uint32_t) *kvr_arena_link(a, c, piece);
}


void
kvr_arena_format(kvr_arena_zone_t *z, uint64_t base, uint64_t words)
{
    memset(z, 0, sizeof(kvr_arena_zone_t));

    z->base = base;
    z->limit = kvr_min(words, (uint64_t) UINT32_MAX);
    z->bump = 8;                        /* piece 0 is "none" */
}


void
kvr_arena_attach(kvr_arena_t *a, kvr_mem_t *mem, kvr_arena_zone_t *z)
{
    a->mem = mem;
    a->zone = z;
    a->words = (uint64_t *) (mem->base + z->base);
}


uint32_t
kvr_arena_alloc(kvr_arena_t *a, uint32_t n)
{
    uint32_t  c, rounded;

    if (n > KVR_ARENA_WORDS_MAX) {
        return 0;
    }

    c = kvr_arena_class(n, &rounded);

    return kvr_arena_take(a, c, rounded);
}


uint32_t
kvr_arena_alloc_run(kvr_arena_t *a)
{
    return kvr_arena_take(a, KVR_ARENA_RUN, KVR_ARENA_RUN_WORDS);
}


void
kvr_arena_free(kvr_arena_t *a, uint32_t piece, uint32_t n)
{
    uint32_t  c, rounded;

    c = kvr_arena_class(n, &rounded);

    kvr_arena_give(a, piece, c, rounded);
}


void
kvr_arena_free_run(kvr_arena_t *a, uint32_t piece)
{
    kvr_arena_give(a, piece, KVR_ARENA_RUN, KVR_ARENA_RUN_WORDS);
}


uint32_t
kvr_arena_alloc_block(kvr_arena_t *a)
{
    return kvr_arena_take(a, KVR_ARENA_BLOCK, KVR_ARENA_BLOCK_WORDS);
}


void
kvr_arena_free_block(kvr_arena_t *a, uint32_t piece)
{
    kvr_arena_give(a, piece, KVR_ARENA_BLOCK, KVR_ARENA_BLOCK_WORDS);
}


/* Where a free piece holds the next one's number. */

static uint64_t *
kvr_arena_link(const kvr_arena_t *a, uint32_t c, uint32_t piece)
{
    return a->words + piece
           + (c >= KVR_ARENA_RUN ? kvr_arena_words(c) - 1 : 0);
}


static uint32_t
kvr_arena_take(kvr_arena_t *a, uint32_t c, uint32_t words)
{
    uint32_t           piece;
    uint64_t           start;
    uint64_t          *link;
    kvr_arena_zone_t  *z;

    z = a->zone;
    piece = z->free[c];

    if (piece) {
        link = kvr_arena_link(a, c, piece);

        /* the caller overwrites the link before the commit */
        kvr_txn_log(a->mem, link, KVR_UNDO_64, *link);
        kvr_set32(a->mem, &z->free[c], (uint32_t) *link);

    } else {
        start = z->bump;

        if (words >= 8) {
            start = (start + 7) & ~UINT64_C(7);
        }

        if (start + words > z->limit) {
            return 0;
        }

        kvr_set64(a->mem, &z->bump, start + words);
        piece = (uint32_t) start;
    }

    kvr_set64(a->mem, &z->used, z->used + words);

    return piece;
}


static void
kvr_arena_give(kvr_arena_t *a, uint32_t piece, uint32_t c, uint32_t words)
{
    kvr_arena_zone_t  *z;

    z = a->zone;

    if (z->nlimbo == KVR_ARENA_LIMBO) {
        kvr_txn_overflow();
    }

    kvr_set64(a->mem, &z->limbo[z->nlimbo], (uint64_t) c << 32 | piece);
    kvr_set32(a->mem, &z->nlimbo, z->nlimbo + 1);
    kvr_set64(a->mem, &z->used, z->used - words);
}


void
kvr_arena_settle(kvr_arena_t *a)
{
    uint32_t           i, c, piece;
    uint64_t          *link;
    kvr_arena_zone_t  *z;

    z = a->zone;

    if (z->nlimbo == 0) {
        return;
    }

    for (i = 0; i < z->nlimbo; i++) {
        c = (uint32_t) (z->limbo[i] >> 32);
        piece = (uint32_t) z->limbo[i];

        /* a piece in limbo is nobody's: its words need no log */
        link = kvr_arena_link(a, c, piece);
        __atomic_store_n(link, z->free[c], __ATOMIC_RELAXED);

        kvr_set32(a->mem, &z->free[c], piece);
    }

    kvr_set32(a->mem, &z->nlimbo, 0);

    kvr_txn_commit(a->mem);
}
