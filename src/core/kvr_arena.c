/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_arena.h"


#define KVR_ARENA_SETTLE     64         /* log records that one piece may
                                           need: a span's bits are in 17
                                           words */
#define KVR_ARENA_EIGHTS     11         /* class of 80 words: below it, sizes
                                           are 8 words apart */

/* Do pieces of a class begin with a version that outlives them? */
#define kvr_arena_versioned(c)                                               \
    ((c) == KVR_ARENA_RUN || (c) == KVR_ARENA_BLOCK)

#define kvr_arena_class(words, slots)                                         \
    { words, slots, kvr_arena_inverse(words), 0,                             \
      { ~UINT64_C(0) >> (64 - slots), 0 } }

/* for each slot of a chunk, (slot * words * inverse) >> 16 is slot again */
#define kvr_arena_inverse(words)  (65535 / words + 1)


static uint32_t kvr_arena_take(kvr_arena_t *a, uint32_t c);
static uint32_t kvr_arena_take_span(kvr_arena_t *a, uint32_t n);
static void kvr_arena_put(kvr_arena_t *a, uint32_t piece);
static uint32_t kvr_arena_chunks(kvr_arena_t *a, uint32_t c, uint32_t n);
static void kvr_arena_cast(kvr_arena_t *a, uint32_t c, uint32_t chunk,
    uint32_t n);
static uint32_t kvr_arena_find(const kvr_arena_t *a, uint32_t n);
static void kvr_arena_squeeze(kvr_arena_t *a);
static void kvr_arena_release(kvr_arena_t *a, uint32_t chunk, uint32_t n);
static void kvr_arena_mark(kvr_arena_t *a, uint32_t chunk, uint32_t n,
    bool taken);
static void kvr_arena_link(kvr_arena_t *a, uint32_t c, uint32_t chunk);
static void kvr_arena_unlink(kvr_arena_t *a, uint32_t c, uint32_t chunk);


const kvr_arena_class_t  kvr_arena_classes[KVR_ARENA_SPAN] = {
    { 0, 0, 0, 0, { 0, 0 } },
    { 4, 128, kvr_arena_inverse(4), 0, { ~UINT64_C(0), ~UINT64_C(0) } },
    kvr_arena_class(8, 64),
    kvr_arena_class(16, 32),
    kvr_arena_class(24, 21),
    kvr_arena_class(32, 16),
    kvr_arena_class(40, 12),
    kvr_arena_class(48, 10),
    kvr_arena_class(56, 9),
    kvr_arena_class(64, 8),
    kvr_arena_class(72, 7),
    kvr_arena_class(80, 6),
    kvr_arena_class(96, 5),
    kvr_arena_class(128, 4),
    kvr_arena_class(168, 3),
    kvr_arena_class(256, 2),
    kvr_arena_class(512, 1),
    kvr_arena_class(KVR_ARENA_RUN_WORDS, 21),
    kvr_arena_class(KVR_ARENA_BLOCK_WORDS, 64)
};


void
kvr_arena_format(kvr_arena_zone_t *z, uint64_t base, uint64_t words)
{
    uint64_t  bytes;

    memset(z, 0, sizeof(kvr_arena_zone_t));

    words = kvr_min(words, (uint64_t) UINT32_MAX);

    z->base = base;
    z->nchunks = (uint32_t) (words / KVR_ARENA_CHUNK);
    z->limit = (uint64_t) z->nchunks * KVR_ARENA_CHUNK;

    bytes = z->nchunks * sizeof(kvr_arena_chunk_t)
            + (z->nchunks + 63) / 64 * sizeof(uint64_t);
    words = bytes / sizeof(uint64_t);

    z->first = (uint32_t) ((words + KVR_ARENA_CHUNK - 1) / KVR_ARENA_CHUNK);
    z->bump = (uint64_t) z->first * KVR_ARENA_CHUNK;
    z->low = z->first;
}


void
kvr_arena_attach(kvr_arena_t *a, kvr_mem_t *mem, kvr_arena_zone_t *z)
{
    a->mem = mem;
    a->zone = z;
    a->words = (uint64_t *) (mem->base + z->base);
    a->chunks = (kvr_arena_chunk_t *) a->words;
    a->map = (uint64_t *) (a->chunks + z->nchunks);
    a->lack.n = 0;
    kvr_arena_forgo(a);
}


/* ---- pieces ------------------------------------------------------------- */

/* The class for pieces of n words; n is at most KVR_ARENA_CHUNK. */

static uint32_t
kvr_arena_class_of(uint32_t n)
{
    uint32_t  c;

    if (n <= 4) {
        return 1;
    }

    for (c = kvr_min((n + 7) / 8 + 1, KVR_ARENA_EIGHTS);
         kvr_arena_classes[c].words < n;
         c++)
    {
        /* void */
    }

    return c;
}


uint32_t
kvr_arena_alloc(kvr_arena_t *a, uint32_t n)
{
    uint32_t  c, own, piece;

    if (n > KVR_ARENA_WORDS_MAX) {
        return 0;
    }

    if (n > KVR_ARENA_CHUNK) {
        return kvr_arena_take_span(a, (n + KVR_ARENA_CHUNK - 1)
                                      / KVR_ARENA_CHUNK);
    }

    own = kvr_arena_class_of(n);
    piece = kvr_arena_take(a, own);

    for (c = own + 1; piece == 0 && c < KVR_ARENA_RUN; c++) {
        if (a->zone->room[c]) {
            piece = kvr_arena_take(a, c);
        }
    }

    return piece;
}


uint32_t
kvr_arena_alloc_run(kvr_arena_t *a)
{
    return kvr_arena_take(a, KVR_ARENA_RUN);
}


void
kvr_arena_free(kvr_arena_t *a, uint32_t piece)
{
    kvr_arena_zone_t  *z;

    z = a->zone;

    if (z->nlimbo == KVR_ARENA_LIMBO) {
        kvr_txn_overflow();
    }

    /* the slot behind limbo's last piece is unused: it needs no log */

    z->limbo[z->nlimbo] = piece;

    kvr_set32(a->mem, &z->nlimbo, z->nlimbo + 1);
    kvr_set64(a->mem, &z->used, z->used - kvr_arena_size(a, piece));
}


uint32_t
kvr_arena_alloc_block(kvr_arena_t *a)
{
    return kvr_arena_take(a, KVR_ARENA_BLOCK);
}


uint32_t
kvr_arena_size(const kvr_arena_t *a, uint32_t piece)
{
    const kvr_arena_chunk_t  *r;

    r = &a->chunks[piece / KVR_ARENA_CHUNK];

    return r->class == KVR_ARENA_SPAN ? r->span * KVR_ARENA_CHUNK
                                      : kvr_arena_classes[r->class].words;
}


uint32_t
kvr_arena_room(const kvr_arena_t *a, kvr_arena_want_t want)
{
    uint32_t                  c, n, end, chunk;
    const kvr_arena_zone_t   *z;
    const kvr_arena_chunk_t  *r;

    if (want.class == 0) {
        return KVR_ARENA_ROOM;
    }

    if (want.class == KVR_ARENA_SPAN) {
        return kvr_arena_find(a, want.n) != 0;
    }

    z = a->zone;
    n = (z->nchunks - z->first - z->chunks)
        * kvr_arena_classes[want.class].slots;
    end = kvr_arena_versioned(want.class) ? want.class + 1 : KVR_ARENA_RUN;

    for (c = want.class; c < end; c++) {
        for (chunk = z->room[c]; chunk && n < KVR_ARENA_ROOM; chunk = r->next)
        {
            r = &a->chunks[chunk];
            n += kvr_arena_classes[c].slots
                 - (uint32_t) (__builtin_popcountll(r->taken[0])
                               + __builtin_popcountll(r->taken[1]));
        }
    }

    return kvr_min(n, KVR_ARENA_ROOM);
}


static uint32_t
kvr_arena_take(kvr_arena_t *a, uint32_t c)
{
    uint32_t                  i, bit, chunk;
    kvr_arena_zone_t         *z;
    kvr_arena_chunk_t        *r;
    const kvr_arena_class_t  *class;

    z = a->zone;
    class = &kvr_arena_classes[c];
    chunk = z->room[c];
    kvr_arena_forgo(a);

    if (chunk == 0) {
        chunk = kvr_arena_chunks(a, c, 1);

        if (chunk == 0) {
            return 0;
        }

        kvr_arena_link(a, c, chunk);
    }

    r = &a->chunks[chunk];
    i = r->taken[0] == class->full[0];
    bit = (uint32_t) __builtin_ctzll(~r->taken[i]);

    kvr_set64(a->mem, &r->taken[i], r->taken[i] | UINT64_C(1) << bit);
    kvr_set64(a->mem, &z->used, z->used + class->words);

    if (kvr_arena_is_full(r, class)) {
        kvr_arena_unlink(a, c, chunk);
    }

    return chunk * KVR_ARENA_CHUNK + (i * 64 + bit) * class->words;
}


static uint32_t
kvr_arena_take_span(kvr_arena_t *a, uint32_t n)
{
    uint32_t  chunk;

    kvr_arena_forgo(a);

    chunk = kvr_arena_chunks(a, KVR_ARENA_SPAN, n);

    if (chunk == 0) {
        return 0;
    }

    kvr_set32(a->mem, &a->chunks[chunk].span, n);
    kvr_set64(a->mem, &a->zone->used, a->zone->used + n * KVR_ARENA_CHUNK);

    return chunk * KVR_ARENA_CHUNK;
}


void
kvr_arena_settle(kvr_arena_t *a)
{
    uint32_t           i;
    kvr_arena_zone_t  *z;

    z = a->zone;

    for (i = z->nlimbo; i > 0; /* void */ ) {

        kvr_arena_put(a, z->limbo[--i]);

        if (i == 0 || kvr_txn_room(a->mem) < KVR_ARENA_SETTLE) {
            kvr_set32(a->mem, &z->nlimbo, i);
            kvr_txn_commit(a->mem);
        }
    }
}


/* Returns a piece, which leaves limbo, to its chunk. */

static void
kvr_arena_put(kvr_arena_t *a, uint32_t piece)
{
    bool                      full;
    uint32_t                  c, i, slot, chunk;
    kvr_arena_zone_t         *z;
    kvr_arena_chunk_t        *r;
    const kvr_arena_class_t  *class;

    z = a->zone;
    chunk = piece / KVR_ARENA_CHUNK;
    r = &a->chunks[chunk];
    c = r->class;

    if (c == KVR_ARENA_SPAN) {
        kvr_arena_release(a, chunk, r->span);
        return;
    }

    class = &kvr_arena_classes[c];
    slot = piece % KVR_ARENA_CHUNK * class->inverse >> 16;
    i = slot / 64;
    full = kvr_arena_is_full(r, class);

    kvr_set64(a->mem, &r->taken[i],
              r->taken[i] & ~(UINT64_C(1) << slot % 64));

    if (full) {
        kvr_arena_link(a, c, chunk);
    }

    /* the class's only chunk with room is kept: the class may need it soon */

    if (kvr_arena_is_empty(r) && (z->room[c] != chunk || r->next)) {
        kvr_arena_unlink(a, c, chunk);
        kvr_arena_release(a, chunk, 1);
    }
}


/* ---- chunks ------------------------------------------------------------- */

/* Takes n chunks in a row for a class; returns the first of them, or 0. */

static uint32_t
kvr_arena_chunks(kvr_arena_t *a, uint32_t c, uint32_t n)
{
    uint32_t           chunk;
    uint64_t           end;
    kvr_arena_zone_t  *z;

    z = a->zone;
    chunk = n == 1 ? kvr_arena_find(a, 1) : 0;

    if (chunk == 0) {

        /*
         * take back empty chunks that classes keep: they count, or would split
         * a span
         */

        kvr_arena_squeeze(a);
        chunk = kvr_arena_find(a, n);

        if (chunk == 0) {
            a->lack.class = c;
            a->lack.n = n;

            if (n == 1 && z->low < z->nchunks) {
                /*
                 * a larger class may be used instead: do not search the map
                 * again
                 */
                kvr_set32(a->mem, &z->low, z->nchunks);
            }

            return 0;
        }
    }

    kvr_arena_cast(a, c, chunk, n);
    kvr_arena_mark(a, chunk, n, true);
    kvr_set32(a->mem, &z->chunks, z->chunks + n);

    if (n == 1 || chunk == z->low) {
        kvr_set32(a->mem, &z->low, chunk + n);
    }

    end = (uint64_t) (chunk + n) * KVR_ARENA_CHUNK;

    if (end > z->bump) {
        kvr_set64(a->mem, &z->bump, end);
    }

    return chunk;
}


/*
 * Sets the class of n chunks that were free.  See kvr_arena.h for what that
 * means to readers which still use runs or blocks in these chunks.
 */

static void
kvr_arena_cast(kvr_arena_t *a, uint32_t c, uint32_t chunk, uint32_t n)
{
    uint32_t  i, was, *epoch;

    epoch = &a->zone->epoch;

    for (i = 0; i < n; i++) {
        was = a->chunks[chunk + i].class;

        if (was != c && kvr_arena_versioned(was)) {
            kvr_version_lock(a->mem, epoch);
            kvr_version_unlock(epoch);
            break;
        }
    }

    if (a->chunks[chunk].class != c) {

        if (kvr_arena_versioned(c)) {

            /*
             * the version does not change now, but a rollback will advance it
             */

            kvr_txn_log(a->mem, epoch, KVR_UNDO_VERSION, 0);
        }

        kvr_set32(a->mem, &a->chunks[chunk].class, c);
    }
}


/*
 * The first of n free chunks in a row, or 0. Such a row ends in the word of
 * the map in which it begins, or it consists of the free bits at the end of
 * one word, all words that follow, and the beginning of the last.
 */

static uint32_t
kvr_arena_find(const kvr_arena_t *a, uint32_t n)
{
    uint32_t                 i, k, step, ones, found, chunk;
    uint64_t                 bits, starts;
    const kvr_arena_zone_t  *z;

    z = a->zone;
    found = 0;

    for (i = z->low / 64; i < (z->nchunks + 63) / 64; i++) {

        bits = ~a->map[i];

        if (i == z->low / 64) {
            bits &= UINT64_MAX << (z->low & 63);
        }

        if (bits == 0) {
            found = 0;
            continue;
        }

        ones = bits == UINT64_MAX ? 64 : (uint32_t) __builtin_ctzll(~bits);
        starts = 0;

        if (found + ones < n && n <= 64) {

            /* bits at which k free bits begin, including that bit itself */

            starts = bits;

            for (k = 1; k < n; k += step) {
                step = kvr_min(k, n - k);
                starts &= starts >> step;
            }
        }

        if (found + ones >= n || starts) {
            chunk = starts ? i * 64 + (uint32_t) __builtin_ctzll(starts)
                           : i * 64 - found;

            /* the map may end in the middle of its last word */

            return chunk + n <= z->nchunks ? chunk : 0;
        }

        found = ones == 64 ? found + 64 : (uint32_t) __builtin_clzll(~bits);
    }

    return 0;
}


/* Takes back the chunks that classes keep without a piece in them. */

static void
kvr_arena_squeeze(kvr_arena_t *a)
{
    uint32_t  c, chunk;

    for (c = 1; c < KVR_ARENA_SPAN; c++) {

        chunk = a->zone->room[c];

        if (chunk && kvr_arena_is_empty(&a->chunks[chunk])) {
            kvr_arena_unlink(a, c, chunk);
            kvr_arena_release(a, chunk, 1);
        }
    }
}


static void
kvr_arena_release(kvr_arena_t *a, uint32_t chunk, uint32_t n)
{
    kvr_arena_zone_t  *z;

    z = a->zone;

    kvr_arena_mark(a, chunk, n, false);
    kvr_set32(a->mem, &z->chunks, z->chunks - n);

    if (chunk < z->low) {
        kvr_set32(a->mem, &z->low, chunk);
    }
}


static void
kvr_arena_mark(kvr_arena_t *a, uint32_t chunk, uint32_t n, bool taken)
{
    uint32_t   k;
    uint64_t   bits, *word;

    for ( /* void */ ; n > 0; n -= k, chunk += k) {

        k = kvr_min(n, 64 - (chunk & 63));
        word = &a->map[chunk / 64];
        bits = ~UINT64_C(0) >> (64 - k) << (chunk & 63);

        kvr_set64(a->mem, word, taken ? *word | bits : *word & ~bits);
    }
}


/* ---- lists: the chunks of a class that have room ------------------------ */

/*
 * Puts a chunk at the head of its class's list.  A chunk without pieces, which
 * was kept at the head, is then no longer needed: so a chunk without pieces is
 * always the only one of its list.
 */

static void
kvr_arena_link(kvr_arena_t *a, uint32_t c, uint32_t chunk)
{
    uint32_t  head;

    head = a->zone->room[c];

    if (head && kvr_arena_is_empty(&a->chunks[head])) {
        kvr_arena_release(a, head, 1);
        head = 0;
    }

    kvr_set32(a->mem, &a->chunks[chunk].next, head);

    if (head) {
        kvr_set32(a->mem, &a->chunks[head].prev, chunk);
    }

    kvr_set32(a->mem, &a->zone->room[c], chunk);
}


static void
kvr_arena_unlink(kvr_arena_t *a, uint32_t c, uint32_t chunk)
{
    kvr_arena_chunk_t  *r;

    r = &a->chunks[chunk];

    if (a->zone->room[c] == chunk) {
        kvr_set32(a->mem, &a->zone->room[c], r->next);
        return;
    }

    kvr_set32(a->mem, &a->chunks[r->prev].next, r->next);

    if (r->next) {
        kvr_set32(a->mem, &a->chunks[r->next].prev, r->prev);
    }
}
