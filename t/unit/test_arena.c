/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The arena: sizes, shapes that follow one another, spans, limbo, and what
 * readers are told of runs.
 */


#include "arena_fixture.h"


static void sizes(void);
static void shapes(void);
static void spans(void);
static void first_fit(void);
static void limbo(void);
static void lacks(void);
static uint32_t fill(arena_t *f, uint32_t words, uint32_t *pieces);
static void drop(arena_t *f, uint32_t words, const uint32_t *pieces,
    uint32_t n);


static arena_t   fx;
static uint32_t  all[64 << 10];


int
main(int argc, char **argv)
{
    sizes();
    shapes();
    spans();
    first_fit();
    limbo();
    lacks();

    return done();
}


/* ---- sizes -------------------------------------------------------------- */

static void
sizes(void)
{
    bool      good;
    uint32_t  n, k, rounded, piece;

    arena_open(&fx, 1100);
    good = true;

    for (n = 1; n <= 3000; n++) {
        piece = get(&fx, n);
        rounded = kvr_arena_size(&fx.a, piece);

        good = good && rounded >= n && piece && fx.zone->used == rounded
               && piece % (n > 4 ? 8 : 4) == 0
               && kvr_arena_valid(&fx.a, piece, rounded)
               && (n < 9 || n > 80 || rounded < n + 8);

        put(&fx, piece, n);
    }

    ok(good && is_whole(&fx, "sizes"), "every size is rounded, and aligned");

    piece = get(&fx, KVR_ARENA_WORDS_MAX);
    ok(piece && is_whole(&fx, "the largest"), "the largest piece is to be "
       "had");
    put(&fx, piece, KVR_ARENA_WORDS_MAX);
    is_u64(get(&fx, KVR_ARENA_WORDS_MAX + 1), 0, "a larger one is not");
    is_u64(get(&fx, UINT32_MAX), 0, "however large");

    piece = get(&fx, RUN);
    ok(piece % 8 == 0 && fx.zone->used == KVR_ARENA_RUN_WORDS,
       "a run is aligned");
    put(&fx, piece, RUN);
    arena_close(&fx);

    /* too small for a chunk behind the table */

    good = true;

    for (k = 0; k < 2; k++) {
        arena_open(&fx, k);
        good = good && get(&fx, 4) == 0 && get(&fx, 600) == 0
               && get(&fx, RUN) == 0 && is_whole(&fx, "nothing");
        arena_close(&fx);
    }

    ok(good, "an arena without room for a chunk has no room");

    /* memory that is not used is not touched */

    arena_open(&fx, 100000);
    good = true;

    for (n = fx.zone->bump; n < fx.zone->limit; n++) {
        good = good && fx.words[n] == 0;
    }

    for (n = 0; n < fx.zone->bump; n++) {
        good = good && fx.words[n] == 0;
    }

    ok(good, "nothing is written when an arena is made");
    arena_close(&fx);
}


/* ---- one shape after another -------------------------------------------- */

/* As many as there is room for. */

static uint32_t
fill(arena_t *f, uint32_t words, uint32_t *pieces)
{
    uint32_t  n;

    n = 0;

    for ( ;; ) {
        pieces[n] = get(f, words);

        if (pieces[n] == 0) {
            return n;
        }

        n++;
    }
}


static void
drop(arena_t *f, uint32_t words, const uint32_t *pieces, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        put(f, pieces[i], words);
    }
}


static void
shapes(void)
{
    bool      good;
    uint32_t  i, k, n, chunks, room[24];

    /* what there is room for at first: all but the table, all but the rest
       that is not a place */

    static const uint32_t  shape[] = {
        64, RUN, 4, 512, 8, 600, 16, RUN, 24, 33, 40, 1024, 48, 56, 72, 80,
        96, RUN, 128, 168, 256, 8000, RUN, 64
    };

    good = true;

    for (i = 0; i < 24; i++) {
        arena_open(&fx, 200);
        chunks = fx.zone->nchunks - fx.zone->first;
        room[i] = fill(&fx, shape[i], all);
        k = kvr_arena_size(&fx.a, all[0]);

        good = good && fx.zone->used == (uint64_t) room[i] * k
               && (k > KVR_ARENA_CHUNK
                   || fx.zone->used + chunks * 32u >= chunks * 512u)
               && is_whole(&fx, "full");
        arena_close(&fx);
    }

    ok(good, "each shape fills an arena");

    arena_open(&fx, 200);

    for (i = 0; i < 24; i++) {
        n = fill(&fx, shape[i], all);

        if (n != room[i]) {
            note("%u: %u pieces, should be %u", shape[i], n, room[i]);
            good = false;
        }

        good = good && is_whole(&fx, "filled again");
        drop(&fx, shape[i], all, n);
        good = good && fx.zone->used == 0 && is_whole(&fx, "dropped");
    }

    ok(good, "and fills it as much when all others have been there");

    /* all of them at once, most of it dropped, then the largest */

    n = 0;

    for (i = 0; fx.zone->chunks < 150; i++) {
        all[n++] = get(&fx, shape[i % 5]);
    }

    for (i = 0; i < n; i++) {
        put(&fx, all[i], shape[i % 5]);
    }

    k = (fx.zone->nchunks - fx.zone->first) * KVR_ARENA_CHUNK;
    n = get(&fx, k);
    ok(n && is_whole(&fx, "one piece"),
       "what classes keep is there for others: one piece of all memory");
    put(&fx, n, k);
    arena_close(&fx);
}


static void
spans(void)
{
    bool      good;
    uint32_t  i, n, piece, bump;

    arena_open(&fx, 300);
    n = fill(&fx, 512, all);
    is_u64(n, fx.zone->nchunks - fx.zone->first, "%u chunks are taken", n);

    for (i = 0; i < n; i += 2) {
        put(&fx, all[i], 512);
    }

    ok(get(&fx, 513) == 0 && is_whole(&fx, "holes"),
       "free chunks that are not neighbours make no span");

    put(&fx, all[101], 512);
    piece = get(&fx, 1536);
    is_u64(piece, all[100], "three in a row do");
    is_u64(get(&fx, 1024), 0, "once");
    put(&fx, piece, 1536);
    piece = get(&fx, 1025);
    is_u64(piece, all[100], "and again");
    put(&fx, piece, 1025);

    for (i = 1; i < n; i += 2) {
        if (i != 101) {
            put(&fx, all[i], 512);
        }
    }

    bump = fx.zone->bump;
    good = true;

    for (i = 0; i < 3000; i++) {
        piece = get(&fx, 513 + fx_mix(i) % 5000);

        if (piece == 0) {
            good = false;
            break;
        }

        put(&fx, piece, 513 + fx_mix(i) % 5000);
    }

    ok(good && fx.zone->used == 0 && fx.zone->bump == bump
       && is_whole(&fx, "spans"), "spans come and go");
    arena_close(&fx);
}


/* Spans of all lengths in a map of all patterns, found one by one as well. */

static void
first_fit(void)
{
    bool      good;
    uint32_t  i, k, n, at, end, first, piece, len[600];
    uint64_t  seed;

    arena_open(&fx, 600);
    seed = 3;
    first = fx.zone->first;
    end = first + fill(&fx, 512, all);
    good = end == fx.zone->nchunks;

    for (at = 0; at < end; at++) {
        len[at] = 1;
    }

    for (i = 0; i < 5000 && good; i++) {

        /* free are those that begin in some part, all or every so many */

        at = first + fx_below(&seed, end - first);
        n = at + fx_below(&seed, i % 7 ? 40 : 300);
        n = kvr_min(end, n);
        k = 1 + fx_below(&seed, 3);

        for ( /* void */ ; at < n; at += k) {
            if (len[at]) {
                put(&fx, at * 512, len[at] * 512);
                len[at] = 0;
            }
        }

        memset(all, 0, sizeof(all));

        for (at = first; at < end; at++) {
            for (k = 0; k < len[at]; k++) {
                all[at + k] = 1;
            }
        }

        n = fx_below(&seed, 4) ? 2 + fx_below(&seed, 8)
                               : 2 + fx_below(&seed, 150);
        k = 0;

        for (at = first; at < end && k < n; at++) {
            k = all[at] ? 0 : k + 1;
        }

        piece = get(&fx, n * 512);
        good = piece == (k == n ? (at - n) * 512 : 0);

        if (piece) {
            len[piece / 512] = n;
        }
    }

    ok(good && is_whole(&fx, "first fit"), "a span is where it first fits");
    arena_close(&fx);
}


/* ---- transactions ------------------------------------------------------- */

static void
limbo(void)
{
    uint32_t  i, n, epoch, version, *word;

    arena_open(&fx, 4096);
    n = fill(&fx, 64, all);
    kvr_arena_settle(&fx.a);

    kvr_arena_free(&fx.a, all[5]);
    is_u64(kvr_arena_limbo_room(&fx.a), KVR_ARENA_LIMBO - 1,
           "a piece that is freed waits");
    is_u64(kvr_arena_alloc(&fx.a, 64), 0, "nobody gets it");
    is_u64(fx.zone->used, (n - 1) * 64, "it is not used");
    kvr_txn_rollback(&fx.mem);
    is_u64(kvr_arena_limbo_room(&fx.a), KVR_ARENA_LIMBO,
           "after a rollback it does not wait");
    is_u64(fx.zone->used, n * 64, "but is used");

    kvr_arena_free(&fx.a, all[5]);
    kvr_txn_commit(&fx.mem);
    is_u64(kvr_arena_alloc(&fx.a, 64), 0, "a commit does not end its wait");
    kvr_txn_rollback(&fx.mem);
    kvr_arena_settle(&fx.a);
    is_u64(fx.mem.journal->n, 0, "settled: committed");
    is_u64(kvr_arena_alloc(&fx.a, 60), all[5], "it is handed out again");
    kvr_txn_rollback(&fx.mem);
    is_u64(kvr_arena_alloc(&fx.a, 57), all[5], "and again, rolled back");
    kvr_txn_commit(&fx.mem);
    drop(&fx, 64, all, n);

    /* as many as limbo holds, each with as much log as there can be */

    n = fill(&fx, 600, all);

    for (i = 0; i < n && kvr_arena_limbo_room(&fx.a); i++) {
        kvr_arena_free(&fx.a, all[i]);
    }

    kvr_txn_commit(&fx.mem);
    kvr_arena_settle(&fx.a);
    is_u64(kvr_arena_limbo_room(&fx.a), KVR_ARENA_LIMBO, "%u spans are out of "
           "limbo", i);
    drop(&fx, 600, all + i, n - i);
    n = fill(&fx, 512, all);

    for (i = 0; kvr_arena_limbo_room(&fx.a); i++) {
        kvr_arena_free(&fx.a, all[i]);
    }

    kvr_txn_commit(&fx.mem);
    kvr_arena_settle(&fx.a);
    ok(kvr_arena_limbo_room(&fx.a) == KVR_ARENA_LIMBO
       && is_whole(&fx, "after a long limbo"), "%u chunks are", i);
    drop(&fx, 512, all + i, n - i);

    /* a run's version and the epoch */

    n = get(&fx, RUN);
    word = (uint32_t *) (fx.words + n);
    *word = 8;
    epoch = fx.zone->epoch;
    put(&fx, n, RUN);
    is_u64(*word, 8, "a run that is freed keeps its version");
    is_u64(get(&fx, RUN), n, "the next run finds it there");
    is_u64(fx.zone->epoch, epoch, "in the same epoch");
    put(&fx, n, RUN);
    i = fill(&fx, 512, all);
    version = fx.zone->epoch;
    ok(version > epoch && version % 2 == 0,
       "a page where runs were begins another");
    drop(&fx, 512, all, i);

    kvr_arena_settle(&fx.a);
    n = kvr_arena_alloc_run(&fx.a);
    is_u64(fx.zone->epoch, version, "a run where pages were begins none");
    kvr_txn_rollback(&fx.mem);
    ok(n && fx.zone->epoch > version && fx.zone->epoch % 2 == 0,
       "unless it is rolled back");
    arena_close(&fx);
}


/* What room is to be made for, and by which chunks. */

static void
lacks(void)
{
    uint32_t  n, first, block, piece;

    arena_open(&fx, 100);
    first = get(&fx, 1000);
    kvr_arena_settle(&fx.a);
    block = kvr_arena_alloc_block(&fx.a);
    kvr_txn_commit(&fx.mem);

    n = fill(&fx, 512, all);
    ok(n && fx.a.lack.class == KVR_ARENA_RUN - 1,
       "the class is known that there was no room for");

    put(&fx, all[10], 512);
    put(&fx, all[11], 512);
    ok(get(&fx, 1500) == 0 && fx.a.lack.class == KVR_ARENA_SPAN
       && fx.a.lack.n == 3, "and how many chunks in a row");

    piece = get(&fx, 1000);
    ok(piece && fx.a.lack.class == 0, "where there was room nothing is");

    put(&fx, all[0], 512);
    all[0] = get(&fx, 72);
    ok(get(&fx, 64) && fx.a.lack.class == 0,
       "nor where a larger class has room");

    ok(!kvr_arena_serves(&fx.a, all[20], KVR_ARENA_BLOCK)
       && kvr_arena_serves(&fx.a, block, KVR_ARENA_BLOCK),
       "a chunk of blocks serves them, another's does not");

    kvr_arena_settle(&fx.a);
    kvr_arena_free(&fx.a, block);
    kvr_txn_commit(&fx.mem);
    put(&fx, first, 1000);
    kvr_arena_settle(&fx.a);
    ok(kvr_arena_serves(&fx.a, block, KVR_ARENA_BLOCK)
       && kvr_arena_serves(&fx.a, first, KVR_ARENA_BLOCK),
       "one that is kept for them does, and one that is free");

    is_u64(get(&fx, 1500), first, "both become a span");
    ok(!kvr_arena_serves(&fx.a, first, KVR_ARENA_BLOCK)
       && !kvr_arena_serves(&fx.a, block, KVR_ARENA_BLOCK)
       && is_whole(&fx, "lacks"), "then neither does");
    arena_close(&fx);
}
