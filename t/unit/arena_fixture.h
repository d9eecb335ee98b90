/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An arena in memory of its own, for the tests:
 *
 *     journal │ zone │ the test's word and slots │ chunks
 *
 * Slots, in the same memory and logged as everything is, name the pieces that
 * are somebody's.
 */


#ifndef ARENA_FIXTURE_H_INCLUDED
#define ARENA_FIXTURE_H_INCLUDED


#include "processes.h"
#include "radix_fixture.h"


#define SLOTS        600
#define RUN          0                  /* a slot's words: a run */


typedef struct {
    uint64_t            piece;          /* 0: none */
    uint64_t            words;
    uint64_t            name;           /* of what is written in it */
} slot_t;


typedef struct {
    kvr_mem_t           mem;
    kvr_arena_t         a;
    kvr_arena_zone_t   *zone;
    uint64_t           *next;           /* transaction */
    slot_t             *slots;
    uint64_t           *words;          /* of the arena, table and all */
} arena_t;


/* of is_whole() */
static uint8_t  *taken;
static bool      twice;


static inline void
arena_open(arena_t *f, uint32_t chunks)
{
    size_t    at, size;
    void     *p;

    size = sizeof(kvr_journal_t) + sizeof(kvr_arena_zone_t) + 64 + 16384
           + SLOTS * sizeof(slot_t) + chunks * 4096ul + 100;

    p = shared_memory(size);
    f->mem.base = p;
    f->mem.size = size;
    f->mem.journal = p;
    at = (sizeof(kvr_journal_t) + 63) & ~(size_t) 63;
    f->zone = (kvr_arena_zone_t *) (f->mem.base + at);
    at += (sizeof(kvr_arena_zone_t) + 63) & ~(size_t) 63;
    f->next = (uint64_t *) (f->mem.base + at);
    f->slots = (slot_t *) (f->mem.base + at + 64);
    at += (64 + SLOTS * sizeof(slot_t) + 63) & ~(size_t) 63;

    /* a few words over, which make no chunk */

    kvr_arena_format(f->zone, at, chunks * 512ul + 9);
    kvr_arena_attach(&f->a, &f->mem, f->zone);
    f->words = f->a.words;
}


static inline void
arena_close(arena_t *f)
{
    munmap(f->mem.base, f->mem.size);
}


/* Each in a transaction of its own. */

static inline uint32_t
get(arena_t *f, uint32_t words)
{
    uint32_t  piece;

    kvr_arena_settle(&f->a);
    piece = words == RUN ? kvr_arena_alloc_run(&f->a)
                         : kvr_arena_alloc(&f->a, words);

    if (piece) {
        kvr_txn_commit(&f->mem);

    } else {
        kvr_txn_rollback(&f->mem);
    }

    return piece;
}


static inline void
put(arena_t *f, uint32_t piece, uint32_t words)
{
    kvr_arena_settle(&f->a);

    kvr_arena_free(&f->a, piece);
    kvr_txn_commit(&f->mem);
}


/* What write_piece() of the random transactions writes; runs have a version. */

static inline bool
is_written(const arena_t *f, const slot_t *s)
{
    uint64_t  i, n;

    n = s->words == RUN ? KVR_ARENA_RUN_WORDS : s->words;

    for (i = s->words == RUN; i < n; i++) {
        if (f->words[s->piece + i]
            != ((s->name + i) << 32 | (s->name & 3) * 2))
        {
            return false;
        }
    }

    return s->words != RUN || (f->words[s->piece] & 1) == 0;
}


static inline void
nobodys(void *data, uint32_t piece, uint32_t words)
{
    uint32_t        i;
    const arena_t  *f;

    f = data;

    for (i = piece; i < piece + words; i++) {

        if (i >= f->zone->bump || taken[i]) {
            note("word %u is outside, or belongs to two", i);
            twice = true;
            return;
        }

        taken[i] = 1;
    }
}


/* Nothing belongs to two, all that is used is somebody's. */

static inline bool
is_whole(arena_t *f, const char *when)
{
    slot_t      *s;
    uint64_t     used;
    uint32_t     i, words;
    const char  *why;

    taken = calloc(f->zone->limit + 1, 1);
    twice = false;
    used = 0;

    for (i = 0; i < SLOTS; i++) {
        s = &f->slots[i];

        if (s->piece) {
            words = kvr_arena_size(&f->a, (uint32_t) s->piece);
            nobodys(f, (uint32_t) s->piece, words);
            used += words;

            if (!is_written(f, s)) {
                note("%s: what was written in piece %u is not there", when,
                     (uint32_t) s->piece);
                twice = true;
            }
        }
    }

    why = kvr_arena_check(&f->a, nobodys, f);
    free(taken);

    if (why) {
        note("%s: %s", when, why);
    }

    /* only random transactions use slots */

    if (used && used != f->zone->used) {
        note("%s: %" PRIu64 " words are used, %" PRIu64 " counted", when, used,
             f->zone->used);
        return false;
    }

    return why == NULL && !twice;
}


#endif /* ARENA_FIXTURE_H_INCLUDED */
