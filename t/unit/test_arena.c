/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The arena: random transactions, some of them rolled back or killed, against
 * what must be true of them; shapes that follow one another; limbo; what
 * readers hold of runs.
 *
 * SLOTS slots in the same memory, logged as everything is, name the pieces
 * that are somebody's.  A transaction is made from its number and from what
 * the slots hold, so that two arenas that did the same are the same.
 */


#include "processes.h"
#include "radix_fixture.h"


#define SLOTS        600
#define NOTES        512
#define OPS          24                 /* of one transaction, at most */
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


/* What a reader without the lock may hold. */
typedef struct {
    uint32_t            run;
    uint32_t            version;
    uint32_t            epoch;
    uint32_t            slot;
    uint64_t            name;
} note_t;


static void sizes(void);
static void shapes(void);
static void spans(void);
static void limbo(void);
static void stream(void);
static void rollbacks(void);
static void kills(void);
static void steps(void);
static void arena_open(arena_t *f, uint32_t chunks);
static void arena_close(arena_t *f);
static uint32_t get(arena_t *f, uint32_t words);
static void put(arena_t *f, uint32_t piece, uint32_t words);
static uint32_t fill(arena_t *f, uint32_t words, uint32_t *pieces);
static void drop(arena_t *f, uint32_t words, const uint32_t *pieces,
    uint32_t n);
static bool transaction(arena_t *f, uint64_t i);
static void take(arena_t *f, slot_t *s, uint64_t *seed);
static void write_piece(arena_t *f, const slot_t *s);
static bool is_written(const arena_t *f, const slot_t *s);
static void note_runs(const arena_t *f, uint64_t *seed);
static bool look_at_notes(const arena_t *f);
static bool is_whole(arena_t *f, const char *when);
static void nobodys(void *data, uint32_t piece, uint32_t words);
static bool is_same(arena_t *one, arena_t *two);
static void writer(void);
static void one_transaction(void);


static arena_t   fx, other;
static note_t    notes[NOTES];
static uint64_t  stale, unversioned;    /* notes that are not true any more:
                                           by the version; by the epoch */
static uint32_t  all[64 << 10];

/* of is_whole() */
static uint8_t  *taken;
static bool      twice;


int
main(int argc, char **argv)
{
    sizes();
    shapes();
    spans();
    limbo();
    stream();
    rollbacks();
    kills();
    steps();

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
        rounded = kvr_arena_rounded(n);
        piece = get(&fx, n);

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
        k = kvr_arena_rounded(shape[i] ? shape[i] : KVR_ARENA_RUN_WORDS);

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


static void
limbo(void)
{
    uint32_t  i, n, epoch, version, *word;

    arena_open(&fx, 4096);
    n = fill(&fx, 64, all);
    kvr_arena_settle(&fx.a);

    kvr_arena_free(&fx.a, all[5], 64);
    is_u64(kvr_arena_limbo_room(&fx.a), KVR_ARENA_LIMBO - 1,
           "a piece that is freed waits");
    is_u64(kvr_arena_alloc(&fx.a, 64), 0, "nobody gets it");
    is_u64(fx.zone->used, (n - 1) * 64, "it is not used");
    kvr_txn_rollback(&fx.mem);
    is_u64(kvr_arena_limbo_room(&fx.a), KVR_ARENA_LIMBO,
           "after a rollback it does not wait");
    is_u64(fx.zone->used, n * 64, "but is used");

    kvr_arena_free(&fx.a, all[5], 64);
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
        kvr_arena_free(&fx.a, all[i], 600);
    }

    kvr_txn_commit(&fx.mem);
    kvr_arena_settle(&fx.a);
    is_u64(kvr_arena_limbo_room(&fx.a), KVR_ARENA_LIMBO, "%u spans are out of "
           "limbo", i);
    drop(&fx, 600, all + i, n - i);
    n = fill(&fx, 512, all);

    for (i = 0; kvr_arena_limbo_room(&fx.a); i++) {
        kvr_arena_free(&fx.a, all[i], 512);
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


/* ---- random transactions ------------------------------------------------ */

static void
arena_open(arena_t *f, uint32_t chunks)
{
    size_t    at, size;
    void     *p;

    size = sizeof(kvr_journal_t) + sizeof(kvr_arena_zone_t) + 64 + 16384
           + SLOTS * sizeof(slot_t) + chunks * 4096ul + 100;

    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }

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


static void
arena_close(arena_t *f)
{
    munmap(f->mem.base, f->mem.size);
}


/* Each in a transaction of its own. */

static uint32_t
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


static void
put(arena_t *f, uint32_t piece, uint32_t words)
{
    kvr_arena_settle(&f->a);

    if (words == RUN) {
        kvr_arena_free_run(&f->a, piece);

    } else {
        kvr_arena_free(&f->a, piece, words);
    }

    kvr_txn_commit(&f->mem);
}


/*
 * The i-th, open at the end.  False when there was no room: to be rolled back.
 */

static bool
transaction(arena_t *f, uint64_t i)
{
    slot_t    *s;
    uint32_t   n, k, filling;
    uint64_t   seed;

    seed = fx_mix(i);

    kvr_arena_settle(&f->a);
    kvr_set64(&f->mem, f->next, i + 1);

    /* for some time more comes than goes, then the other way */

    filling = i / 256 % 2;
    n = 1 + fx_below(&seed, OPS);

    while (n--) {

        /* what kind of slots is used changes, too */

        k = i / 512 % 4 * (SLOTS / 4) + fx_below(&seed, SLOTS / 2);
        s = &f->slots[k % SLOTS];

        if (s->piece == 0) {
            if (fx_below(&seed, 8) < (filling ? 7u : 2u)) {
                take(f, s, &seed);

                if (s->piece == 0) {
                    return false;
                }
            }

            continue;
        }

        if (fx_below(&seed, 8) < (filling ? 3u : 6u)) {

            if (s->words == RUN) {
                kvr_version_lock(&f->mem, (uint32_t *) (f->words + s->piece));
                kvr_version_unlock((uint32_t *) (f->words + s->piece));
                kvr_arena_free_run(&f->a, (uint32_t) s->piece);

            } else {
                kvr_arena_free(&f->a, (uint32_t) s->piece,
                               (uint32_t) s->words);
            }

            kvr_set64(&f->mem, &s->piece, 0);
        }
    }

    return true;
}


static void
take(arena_t *f, slot_t *s, uint64_t *seed)
{
    slot_t     new;
    uint32_t  *version;

    new.name = fx_random(seed);

    switch ((s - f->slots) * 8 / SLOTS) {

    case 0:
    case 3:
        new.words = RUN;
        break;

    case 1:
    case 4:
        new.words = 64;
        break;

    case 2:
        new.words = 1 + fx_below(seed, 100);
        break;

    case 5:
        new.words = fx_below(seed, 4) ? RUN : 256;
        break;

    case 6:
        new.words = 4 << fx_below(seed, 3);
        break;

    default:
        new.words = 1 + fx_below(seed, fx_below(seed, 8) ? 600 : 6000);
        break;
    }

    if (new.words == RUN) {
        new.piece = kvr_arena_alloc_run(&f->a);

        if (new.piece) {
            version = (uint32_t *) (f->words + new.piece);

            if (*version & 1) {
                kvr_version_unlock(version);
            }

            kvr_version_lock(&f->mem, version);
            kvr_version_unlock(version);
        }

    } else {
        new.piece = kvr_arena_alloc(&f->a, (uint32_t) new.words);
    }

    if (new.piece) {
        kvr_set64(&f->mem, &s->words, new.words);
        kvr_set64(&f->mem, &s->name, new.name);
        kvr_set64(&f->mem, &s->piece, new.piece);
        write_piece(f, s);
    }
}


/* Not logged, as pieces are; halves that look like versions of runs. */

static void
write_piece(arena_t *f, const slot_t *s)
{
    uint64_t  i, n;

    n = s->words == RUN ? KVR_ARENA_RUN_WORDS : s->words;

    for (i = s->words == RUN; i < n; i++) {
        f->words[s->piece + i] = (s->name + i) << 32 | (s->name & 3) * 2;
    }
}


static bool
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


/* A reader comes by. */

static void
note_runs(const arena_t *f, uint64_t *seed)
{
    uint32_t       i, slot;
    note_t        *n;
    const slot_t  *s;

    for (i = 0; i < 8; i++) {
        slot = fx_below(seed, SLOTS);
        s = &f->slots[slot];

        if (s->piece && s->words == RUN) {
            n = &notes[fx_below(seed, NOTES)];
            n->slot = slot;
            n->epoch = kvr_arena_epoch(&f->a);
            n->run = (uint32_t) s->piece;
            n->version = (uint32_t) f->words[n->run];
            n->name = s->name;
        }
    }
}


/* What it holds for true is true: the run is there, with what was in it. */

static bool
look_at_notes(const arena_t *f)
{
    bool           same, there;
    note_t        *n;
    uint32_t       i;
    const slot_t  *s;

    for (i = 0; i < NOTES; i++) {
        n = &notes[i];
        s = &f->slots[n->slot];

        if (n->run == 0) {
            continue;
        }

        there = s->piece == n->run && s->words == RUN && s->name == n->name;
        same = (uint32_t) f->words[n->run] == n->version;

        if (there || !same) {
            stale += !there;
            continue;
        }

        if (kvr_arena_same_epoch(&f->a, n->epoch)) {
            note("run %u: version %u was there before", n->run, n->version);
            return false;
        }

        unversioned++;
        n->run = 0;
    }

    return true;
}


/* Nothing belongs to two, all that is used is somebody's. */

static bool
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
            words = kvr_arena_rounded(s->words == RUN ? KVR_ARENA_RUN_WORDS
                                                      : (uint32_t) s->words);
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


static void
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


/* ---- streams ------------------------------------------------------------ */

static void
stream(void)
{
    bool      good;
    uint32_t  i, k, full, back;
    uint64_t  seed;

    arena_open(&fx, 120);
    memset(notes, 0, sizeof(notes));
    seed = 7;
    good = true;
    full = 0;
    back = 0;

    for (i = 0; i < 20000 && good; i++) {

        if (!transaction(&fx, i)) {
            kvr_txn_rollback(&fx.mem);
            full++;

        } else {

            /* readers see what is not committed */

            note_runs(&fx, &seed);

            if (fx_below(&seed, 8) == 0) {
                kvr_txn_rollback(&fx.mem);
                back++;

            } else {
                kvr_txn_commit(&fx.mem);
            }
        }

        good = look_at_notes(&fx) && (i % 8 || is_whole(&fx, "stream"));
        note_runs(&fx, &seed);
    }

    ok(good, "%u transactions, %u rolled back, %u without room", i, back,
       full);
    ok(full > 10 && full < i / 2, "the arena was full at times");
    ok(good && unversioned > 0, "a run that a reader held too long was found "
       "out %" PRIu64 " times, and %" PRIu64 " by the epoch alone", stale,
       unversioned);

    /* and back */

    for (k = 0; k < SLOTS; k++) {
        if (fx.slots[k].piece) {
            put(&fx, (uint32_t) fx.slots[k].piece,
                (uint32_t) fx.slots[k].words);
            fx.slots[k].piece = 0;
        }
    }

    kvr_arena_settle(&fx.a);
    k = (fx.zone->nchunks - fx.zone->first) * KVR_ARENA_CHUNK;
    ok(fx.zone->used == 0 && is_whole(&fx, "all freed") && get(&fx, k),
       "when all is freed it is one piece again");
    arena_close(&fx);
}


/* All is as it was: the same transactions have the same effect. */

static bool
is_same(arena_t *one, arena_t *two)
{
    uint32_t                 i;
    const kvr_arena_zone_t  *a, *b;

    a = one->zone;
    b = two->zone;

    /* links of chunks that are in no list are logged as well */

    if (a->bump != b->bump || a->used != b->used || a->chunks != b->chunks
        || a->low != b->low || a->nlimbo != b->nlimbo
        || memcmp(a->room, b->room, sizeof(a->room)) != 0
        || memcmp(a->limbo, b->limbo, a->nlimbo * sizeof(uint32_t)) != 0
        || *one->next != *two->next
        || memcmp(one->words, two->words, a->first * 4096ul) != 0)
    {
        return false;
    }

    for (i = 0; i < SLOTS; i++) {
        if (one->slots[i].piece != two->slots[i].piece) {
            return false;
        }
    }

    return true;
}


/* One arena has more tries than the other, and not one trace of them. */

static void
rollbacks(void)
{
    bool      good;
    uint32_t  i;

    arena_open(&fx, 120);
    arena_open(&other, 120);
    good = true;

    for (i = 0; i < 3000 && good; i++) {

        (void) transaction(&fx, i + 100000);
        kvr_txn_rollback(&fx.mem);
        good = is_same(&fx, &other);

        if (transaction(&fx, i)) {
            kvr_txn_commit(&fx.mem);

        } else {
            kvr_txn_rollback(&fx.mem);
        }

        if (transaction(&other, i)) {
            kvr_txn_commit(&other.mem);

        } else {
            kvr_txn_rollback(&other.mem);
        }

        kvr_arena_settle(&fx.a);
        kvr_arena_settle(&other.a);
        good = good && is_same(&fx, &other)
               && (i % 16 || is_whole(&fx, "rolled back"));
    }

    ok(good, "%u transactions that were rolled back left nothing", i);
    arena_close(&fx);
    arena_close(&other);
}


/* ---- processes that are killed ------------------------------------------ */

static void
writer(void)
{
    uint64_t  i;

    for (i = *fx.next; /* void */ ; i++) {
        if (transaction(&fx, i)) {
            kvr_txn_commit(&fx.mem);

        } else {

            /* goes on, all the same */

            kvr_txn_rollback(&fx.mem);
            kvr_set64(&fx.mem, fx.next, i + 1);
            kvr_txn_commit(&fx.mem);
        }
    }
}


static void
kills(void)
{
    int       status;
    bool      good;
    pid_t     pid;
    uint32_t  k, mid;
    uint64_t  i;

    arena_open(&fx, 120);
    arena_open(&other, 120);
    good = true;
    mid = 0;

    for (k = 0; k < 150 && good; k++) {

        pid = start(writer);
        usleep(200 + fx_mix(k) % 2000);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);

        mid += fx.mem.journal->n > 0;
        kvr_txn_rollback(&fx.mem);
        good = is_whole(&fx, "killed");

        for (i = *other.next; i < *fx.next; i++) {
            if (!transaction(&other, i)) {
                kvr_txn_rollback(&other.mem);
                kvr_set64(&other.mem, other.next, i + 1);
            }

            kvr_txn_commit(&other.mem);
        }

        kvr_arena_settle(&fx.a);
        kvr_arena_settle(&other.a);
        good = good && is_same(&fx, &other);
    }

    ok(good, "a process killed %u times in %" PRIu64 " transactions leaves "
       "an arena as if it had not been", k, *fx.next);
    ok(mid > 50, "%u of them inside", mid);
    arena_close(&fx);
    arena_close(&other);
}


static void
one_transaction(void)
{
    if (transaction(&fx, *fx.next)) {
        kvr_txn_commit(&fx.mem);
    }
}


/* Killed at an instruction, then at a later one, until it comes to its end. */

static void
steps(void)
{
    bool      good;
    uint32_t  i, n, at;

    arena_open(&fx, 120);
    arena_open(&other, 120);
    good = true;
    n = 0;

    for (i = 0; i < 480 && good; i++) {

        for (at = 1; i % 40 == 3 && *fx.next == i && good;
             at += 1 + fx_mix(at) % (20 + at / 8))
        {
            killed_at(one_transaction, at);
            kvr_txn_rollback(&fx.mem);
            good = is_whole(&fx, "killed at an instruction");
            n++;
        }

        if (*fx.next == i && transaction(&fx, i)) {
            kvr_txn_commit(&fx.mem);
        }

        if (transaction(&other, i)) {
            kvr_txn_commit(&other.mem);
        }

        kvr_arena_settle(&fx.a);
        kvr_arena_settle(&other.a);
        good = good && is_same(&fx, &other);
    }

    ok(good && n > 200, "a process killed at %u instructions, too", n);
    arena_close(&fx);
    arena_close(&other);
}
