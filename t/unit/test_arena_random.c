/*
 * Copyright (C) the nginx-kv-router authors
 *
 *     test_arena_random [transactions]
 *
 * The arena under random transactions, some of them rolled back or killed, so
 * many at one instruction after the other; and under an index that is looked
 * up meanwhile.
 *
 * A transaction is made from its number and from what the slots hold, so that
 * two arenas that did the same are the same.
 */


#include "arena_fixture.h"


#define NOTES        512
#define OPS          24                 /* of one transaction, at most */
#define CHAIN        300
#define BLOCKS       1200

#ifdef __SANITIZE_ADDRESS__
#define STRIDE       160                /* instructions between two kills */
#else
#define STRIDE       20
#endif


/* The words in the index's memory. */
enum {
    W_LOOKUPS = 0,
    W_TORN,
    W_WRONG
};


/* What a reader without the lock may hold. */
typedef struct {
    uint32_t            run;
    uint32_t            version;
    uint32_t            epoch;
    uint32_t            slot;
    uint64_t            name;
} note_t;


static void stream(void);
static void rollbacks(void);
static void kills(void);
static void steps(uint32_t transactions);
static void readers(void);
static bool transaction(arena_t *f, uint64_t i);
static void take(arena_t *f, slot_t *s, uint64_t *seed);
static void write_piece(arena_t *f, const slot_t *s);
static void note_runs(const arena_t *f, uint64_t *seed);
static bool look_at_notes(const arena_t *f);
static bool is_same(arena_t *one, arena_t *two);
static void writer(void);
static void one_transaction(void);
static void reader(void);


static arena_t   fx, other;
static fx_t      looked_up;
static note_t    notes[NOTES];
static uint64_t  stale, unversioned;    /* notes that are not true any more:
                                           by the version; by the epoch */


int
main(int argc, char **argv)
{
    stream();
    rollbacks();
    kills();
    steps(argc > 1 ? strtoul(argv[1], NULL, 0) : 3);

    for (fx_kind = 0; fx_kind < KVR_INDEX_KINDS; fx_kind++) {
        readers();
    }

    return done();
}


/* ---- transactions ------------------------------------------------------- */

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
                kvr_arena_free(&f->a, (uint32_t) s->piece);

            } else {
                kvr_arena_free(&f->a, (uint32_t) s->piece);
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


/* ---- readers of runs ---------------------------------------------------- */

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

        i = *fx.next;
        pid = start(writer);

        while (kvr_load64(fx.next) == i) {
            usleep(20);
        }

        usleep(fx_mix(k) % 2000);
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
    ok(mid != 0, "%u of them inside", mid);
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
steps(uint32_t transactions)
{
    bool      good;
    uint32_t  i, n, at;

    arena_open(&fx, 120);
    arena_open(&other, 120);
    good = true;
    n = 0;

    for (i = 0; i < 40 * transactions && good; i++) {

        for (at = 1; i % 40 == 3 && *fx.next == i && good;
             at += 1 + fx_mix(at) % (STRIDE + at / 8))
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

    ok(good && n > 20 * transactions, "a process killed at %u instructions, too", n);
    arena_close(&fx);
    arena_close(&other);
}


/* ---- lookups beside it -------------------------------------------------- */

/*
 * An index that is full of single blocks by turns, and of long chains: runs
 * where pages were, pages where runs were.  View 0 has the blocks, 1 the
 * chains, 2 one chain for good, 3 nothing.  In a positional index it is the
 * number of views that have a chain that takes memory beside the blocks: there
 * all from 4 on have what 1 has.
 */

static void
readers(void)
{
    int       status;
    bool      good;
    pid_t     pid;
    kvr_rc_t  rc;
    uint32_t  i, k, v, view, views, epoch;
    uint64_t  q[CHAIN];

    views = fx_kind == KVR_INDEX_RADIX ? 4 : 16;
    fx_open(&looked_up, 1 << 20, views);
    fx_set_tries(&looked_up, 0);
    fx_count(q, 1, CHAIN);
    fx_store(&looked_up, 2, KVR_DEVICE, 0, q, q, CHAIN);

    pid = start(reader);
    good = true;

    while (kvr_load64(&looked_up.words[W_LOOKUPS]) == 0) {
        usleep(100);
    }

    for (i = 0; i < 60; i++) {

        view = i % 2;

        for (k = 0; k < (view ? BLOCKS / CHAIN * 10 : BLOCKS); k++) {
            fx_count(q, (uint64_t) (k + 1) << 20 | view << 16, CHAIN);

            rc = fx_store(&looked_up, view, KVR_DEVICE, 0, q, q,
                          view ? CHAIN : 1);

            for (v = 4; v < views && view && rc == KVR_OK; v++) {
                rc = fx_store(&looked_up, v, KVR_DEVICE, 0, q, q, CHAIN);
            }

            if (rc != KVR_OK) {
                break;
            }
        }

        good = good && k >= (view && views > 4 ? 2u : 30u)
               && fx_whole(&looked_up, "full");
        fx_reclaim(&looked_up, view, 1000000);

        for (v = 4; v < views; v++) {
            fx_reclaim(&looked_up, v, 1000000);
        }
    }

    good = good && waitpid(pid, &status, WNOHANG) == 0;
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);

    ok(good, "an index is filled with blocks and with chains by turns");
    epoch = kvr_index_arena(&looked_up.x)->zone->epoch;
    ok(epoch > 20, "that made %u epochs", epoch / 2);
    is_u64(looked_up.words[W_WRONG], 0, "no lookup beside it was wrong, of %"
           PRIu64 ", %" PRIu64 " cut short", looked_up.words[W_LOOKUPS],
           looked_up.words[W_TORN]);
    fx_close(&looked_up);
}


static void
reader(void)
{
    bool      wrong;
    uint32_t  i, n;
    uint64_t  q[CHAIN];
    fx_t     *f;

    f = &looked_up;

    for (i = 0; /* void */ ; i++) {

        fx_count(q, i % 3 == 2 ? 1
                               : (uint64_t) (i / 3 % BLOCKS + 1) << 20
                                 | i % 3 << 16,
                 CHAIN);
        n = fx_find(f, q, CHAIN);

        switch (i % 3) {

        case 0:
            wrong = f->depths[2][0] > 1 || f->depths[2][1];
            break;

        case 1:
            wrong = f->depths[2][0] || n > CHAIN;
            break;

        default:
            wrong = f->depths[2][0] || f->depths[2][1]
                    || (f->depths[2][2] != CHAIN && !f->torn);
            break;
        }

        wrong = wrong || f->depths[2][3] || (i % 3 != 2 && f->depths[2][2]);

        f->words[W_TORN] += f->torn;
        f->words[W_WRONG] += wrong;
        f->words[W_LOOKUPS]++;
    }
}
