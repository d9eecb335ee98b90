/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The turn cache against a run without it: sessions that grow and are edited,
 * under constant eviction; terms that must not meet; entries that are lost,
 * torn, too large, or of a chain that is too long.
 *
 *     test_turns [turns [seed]]
 */


#include "turns_fixture.h"


#define TURNS      30000
#define SESSIONS   24


typedef struct {
    uint32_t    block_size;
    bool        pairs;
    size_t      size;               /* of the memory */
} kind_t;


static void layout(void);
static void entries(void);
static void model(const kind_t *kind, uint32_t turns);
static void edit(tx_text_t *x);
static void terms(void);
static void lost(void);
static void torn(void);
static void bounds(void);
static void chain(void);
static void shared_cut(void);


static tx_t       f;
static tx_text_t  text, sessions[SESSIONS];
static uint64_t   random_;

static const kind_t  kinds[] = {
    { 1, false, 1 << 20 },
    { 16, false, 200 << 10 },
    { 16, true, 200 << 10 },
    { 64, false, 100 << 10 },
    { 64, true, 100 << 10 },
    { 1024, false, 300 << 10 },
    { 16, false, 64 << 20 },
};


int
main(int argc, char **argv)
{
    uint32_t  i, turns;

    turns = argc > 1 ? strtoul(argv[1], NULL, 0) : TURNS;
    random_ = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261122;

    layout();
    entries();

    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        model(&kinds[i], turns);
    }

    terms();
    lost();
    torn();
    bounds();
    chain();
    shared_cut();

    return done();
}


static void
texts(tx_text_t *x, uint32_t n, uint64_t first)
{
    uint32_t  i;

    x->n = n;

    for (i = 0; i < n; i++) {
        x->part[i] = first + i;
    }

    tx_build(&f, x);
}


static void
layout(void)
{
    char         why[KVR_SLOTS_WHY];
    uint64_t     seed;
    kvr_turns_t  t;

    tx_open(&f, 1 << 20, 16, false);
    seed = kvr_turns_seed(&f.t);

    ok(kvr_turns_format(f.base, 4096, why) == KVR_INVALID
       && strstr(why, "4032 bytes are too few, it needs 16704 at least"),
       "memory that is too small is refused: %s", why);
    ok(kvr_turns_format(f.base, 8, why) == KVR_INVALID,
       "and so are 8 bytes");
    ok(kvr_turns_attach(&t, f.base, (1 << 20) - 64, why) == KVR_INVALID
       && strstr(why, "stop nginx and start it again"),
       "memory of another size is refused: %s", why);
    ok(kvr_turns_attach(&t, f.base, 1 << 20, why) == KVR_OK
       && kvr_turns_seed(&t) == seed,
       "another process has the same seed");

    kvr_turns_format(f.base, 1 << 20, why);
    kvr_turns_attach(&t, f.base, 1 << 20, why);
    ok(kvr_turns_seed(&t) != seed, "memory laid out again has another seed");

    tx_close(&f);
}


static void
entries(void)
{
    bool               right;
    kvr_turns_entry_t  e;
    kvr_turns_stats_t  s;

    tx_open(&f, 1 << 20, 16, false);
    texts(&text, 10, 100);

    ok(tx_find(&f, &text, 1, &e, &right) == KVR_DECLINED && right,
       "in an empty cache nothing is found");

    ok(tx_keep(&f, &text, 4, 2, &e) == KVR_OK
       && e.byte == text.cuts[4].byte && e.depth == 0,
       "an entry of a text's first five parts is kept");
    ok(tx_find(&f, &text, 3, &e, &right) == KVR_OK && right
       && e.byte == text.cuts[4].byte && e.depth == 0,
       "and found for the text that goes on");

    ok(tx_keep(&f, &text, 9, 4, &e) == KVR_OK && e.depth == 1,
       "the entry of the whole text continues it");
    ok(tx_find(&f, &text, 5, &e, &right) == KVR_OK && right
       && e.byte == text.cuts[9].byte && e.depth == 1,
       "and is found with the hashes of both");

    text.n = 9;
    ok(tx_find(&f, &text, 6, &e, &right) == KVR_OK && right
       && e.byte == text.cuts[4].byte,
       "a text that ends earlier has the first one");

    text.n = 10;
    text.part[4]++;
    tx_build(&f, &text);
    ok(tx_find(&f, &text, 7, &e, &right) == KVR_DECLINED && right,
       "a text that is edited before the cut has none");

    texts(&text, 0, 0);
    ok(tx_find(&f, &text, 8, &e, &right) == KVR_DECLINED && right,
       "a text without cuts has none");

    s = tx_stats(&f);
    ok(s.hits == 3 && s.misses == 3 && s.kept == 2 && s.slots.evicted == 0
       && s.lost == 0 && s.slots.torn == 0,
       "3 hits, 3 misses and 2 entries are counted");

    tx_close(&f);
}


/* ---- the model ---------------------------------------------------------- */

/* Another text of the session: it grows, or is cut, or its middle changes. */

static void
edit(tx_text_t *x)
{
    uint32_t  i, n;

    switch (fx_random(&random_) % 12) {

    case 0:                         /* before a cut: another part */
        if (x->n) {
            x->part[fx_random(&random_) % x->n] = fx_random(&random_) % 1000;
        }
        break;

    case 1:                         /* at a cut: a part comes between */
        if (x->n && x->n < PARTS) {
            i = fx_random(&random_) % x->n;
            memmove(&x->part[i + 1], &x->part[i],
                    (x->n - i) * sizeof(uint64_t));
            x->part[i] = fx_random(&random_) % 1000;
            x->n++;
        }
        break;

    case 2:                         /* behind a cut: the end is taken back */
        x->n -= x->n ? fx_random(&random_) % x->n : 0;
        break;

    case 3:                         /* a new session with one of 4 prompts */
        x->n = 0;
        break;

    default:
        break;
    }

    if (x->n == 0) {
        x->part[0] = 5000 + fx_random(&random_) % 4;
        x->part[1] = 6000 + fx_random(&random_) % 4;
        x->n = 2;
    }

    n = 1 + fx_random(&random_) % 4;

    for (i = 0; i < n && x->n < PARTS; i++) {
        x->part[x->n++] = fx_random(&random_) % 100000;
    }

    if (x->n == PARTS) {
        x->n = 2;
    }
}


static void
model(const kind_t *kind, uint32_t turns)
{
    bool               good, roomy;
    uint32_t           i, hits;
    kvr_rc_t           rc;
    tx_text_t         *x;
    kvr_turns_stats_t  s;

    tx_open(&f, kind->size, kind->block_size, kind->pairs);
    memset(sessions, 0, sizeof(sessions));

    good = true;
    hits = 0;

    for (i = 0; i < turns && good; i++) {
        x = &sessions[fx_random(&random_) % SESSIONS];

        edit(x);
        tx_build(&f, x);

        good = tx_turn(&f, x, i, &rc);
        hits += rc == KVR_OK;
    }

    s = tx_stats(&f);
    roomy = kind->size > 16 << 20;

    ok(good, "blocks of %u%s in %zu KB: %u turns, %u hits, all as without a "
       "cache", kind->block_size, kind->pairs ? " pairs" : "",
       kind->size >> 10, i, hits);
    ok(s.hits == hits && s.hits + s.misses == i && s.kept > i / 2,
       "hits and misses are counted");
    ok(roomy ? s.slots.evicted == 0 && s.lost == 0 && hits > i / 4 * 3
             : s.slots.evicted > i / 2 && s.lost > 0 && hits > i / 2,
       "%llu slots were forgotten, %llu entries were lost, %llu were too "
       "large", (unsigned long long) s.slots.evicted,
       (unsigned long long) s.lost, (unsigned long long) s.too_large);
    ok(s.slots.torn == 0 && s.busy == 0 && s.slots.used <= s.slots.slots,
       "nothing was torn beside no other writer");

    tx_close(&f);
}


/* ---- terms -------------------------------------------------------------- */

static void
terms(void)
{
    bool                right;
    uint32_t            i, met;
    kvr_turns_entry_t   e;
    kvr_turns_terms_t   all[12], *t;

    tx_open(&f, 8 << 20, 16, false);

    for (i = 0; i < 12; i++) {
        all[i] = f.terms;
    }

    all[1].tokenizer++;
    all[2].flags = 1;
    all[3].tables++;
    all[4].contract.pairs = true;
    all[5].contract.block_size = 32;
    all[6].seed++;

    t = &all[7];
    t->lora = "a"; t->lora_len = 1; t->salt = "b"; t->salt_len = 1;
    t = &all[8];
    t->lora = "b"; t->lora_len = 1; t->salt = "a"; t->salt_len = 1;
    t = &all[9];
    t->salt = "ab"; t->salt_len = 2;
    t = &all[10];
    t->lora = "ab"; t->lora_len = 2;
    t = &all[11];
    t->salt = "b"; t->salt_len = 1;

    texts(&text, 10, 100);

    for (i = 0, met = 0; i < 12; i++) {
        f.terms = all[i];
        tx_build(&f, &text);

        met += tx_find(&f, &text, i, &e, &right) != KVR_DECLINED;
        (void) tx_keep(&f, &text, 5, i, &e);
        (void) tx_keep(&f, &text, 9, i, &e);
    }

    is_u64(met, 0, "tokenizers, flags, tables, contracts, seeds, LoRA names "
           "and salts never meet");

    for (i = 0, met = 0; i < 12; i++) {
        f.terms = all[i];
        tx_build(&f, &text);

        met += tx_find(&f, &text, 20 + i, &e, &right) == KVR_OK && right
               && e.byte == text.cuts[9].byte;
    }

    is_u64(met, 12, "and each finds its own");

    tx_close(&f);
}


/* ---- what is gone ------------------------------------------------------- */

/* Forgets the slots with this key. */

static void
forget(const uint64_t key[2])
{
    uint64_t  i;

    for (i = 0; i < f.t.slots.nsets * KVR_SLOTS_WAYS; i++) {
        if (f.t.slots.words[i] >> 32 == (uint32_t) key[1]) {
            f.t.slots.words[i] = 0;
        }
    }
}


static void
lost(void)
{
    bool               right;
    uint32_t           i;
    kvr_turns_entry_t  e[4], found;

    tx_open(&f, 1 << 20, 16, false);
    texts(&text, 40, 900);
    memset(e, 0, sizeof(e));

    (void) tx_keep(&f, &text, 9, 1, &e[0]);

    for (i = 1; i < 4; i++) {
        e[i] = e[i - 1];
        (void) tx_keep(&f, &text, i * 10 + 9, 1, &e[i]);
    }

    ok(tx_find(&f, &text, 2, &found, &right) == KVR_OK && right
       && found.depth == 3, "a chain of four entries is found");

    forget(e[1].key);
    ok(tx_find(&f, &text, 3, &found, &right) == KVR_OK && right
       && found.byte == text.cuts[9].byte,
       "an entry whose parent's parent is gone is a miss, the first one not");
    is_u64(tx_stats(&f).lost, 1, "it is counted");

    (void) tx_keep(&f, &text, 19, 4, &found);
    ok(tx_find(&f, &text, 5, &found, &right) == KVR_OK && right
       && found.depth == 3, "when it is kept again, the chain is whole");

    forget(e[0].key);
    ok(tx_find(&f, &text, 6, &found, &right) == KVR_DECLINED && right,
       "without its beginning there is none");

    tx_close(&f);
}


/* Each word of each slot changed: an entry is right or not found. */

static void
torn(void)
{
    bool               right, good;
    uint32_t           k, missed, tried;
    uint64_t           i, was, *word;
    kvr_turns_entry_t  e;

    tx_open(&f, 256 << 10, 1, false);
    texts(&text, 12, 300);
    memset(&e, 0, sizeof(e));

    (void) tx_keep(&f, &text, 5, 1, &e);
    (void) tx_keep(&f, &text, 11, 1, &e);

    good = true;
    missed = 0;
    tried = 0;

    for (i = 0; i < f.t.slots.nsets * KVR_SLOTS_WAYS; i++) {

        if (f.t.slots.words[i] == 0) {
            continue;
        }

        for (k = 0; k < KVR_SLOTS_SIZE / 8; k++) {
            word = (uint64_t *) f.t.slots.slots + i * KVR_SLOTS_SIZE / 8 + k;
            was = *word;
            *word ^= UINT64_C(1) << fx_random(&random_) % 64;

            (void) tx_find(&f, &text, 2, &e, &right);

            good = good && right;
            missed += e.byte != text.cuts[11].byte;
            tried++;

            *word = was;
        }
    }

    ok(good && tried > 500 && missed + tx_stats(&f).slots.used >= tried,
       "%u bits turned over in slots, one after the other: %u times the entry "
       "was not found, and never was it wrong", tried, missed);
    ok(tx_stats(&f).slots.torn > 500, "torn slots are counted");
    ok(tx_find(&f, &text, 3, &e, &right) == KVR_OK && right
       && e.byte == text.cuts[11].byte, "turned back, it is found");

    tx_close(&f);
}


/* ---- bounds ------------------------------------------------------------- */

static void
bounds(void)
{
    uint32_t           tail[16];
    uint64_t           hashes[TEXT];
    kvr_turns_entry_t  e;

    tx_open(&f, 20 << 10, 1, false);            /* 32 slots: 4 an entry */
    texts(&text, 60, 2000);
    memset(&e, 0, sizeof(e));

    ok(tx_keep(&f, &text, 59, 1, &e) == KVR_FULL && e.tokens == 0,
       "an entry of over an eighth of the slots is refused");
    is_u64(tx_stats(&f).too_large, 1, "and counted");
    is_u64(tx_stats(&f).slots.used, 0, "no slot was taken for it");
    ok(tx_keep(&f, &text, 0, 1, &e) == KVR_OK, "a small one is kept");

    e.tokens = 99;
    ok(kvr_turns_find(&f.t, &f.terms, text.cuts, text.n, hashes,
                      text.tokens[0] - 1, tail, 2, &e) == KVR_DECLINED
       && e.tokens == 0,
       "an entry with more blocks than there is room for is passed over");

    hashes[text.tokens[0]] = 77;
    ok(kvr_turns_find(&f.t, &f.terms, text.cuts, text.n, hashes,
                      text.tokens[0], tail, 2, &e) == KVR_OK
       && hashes[text.tokens[0]] == 77,
       "one with as many is found, and nothing is written behind them");

    tx_close(&f);
}


/* Cuts of a long text: one id and 2 bytes each. */

static kvr_turns_cut_t *
long_text(uint32_t n, uint32_t from, uint64_t salt)
{
    uint32_t          i;
    kvr_turns_cut_t  *cuts;

    cuts = calloc(n, sizeof(kvr_turns_cut_t));

    for (i = 0; i < n; i++) {
        cuts[i].byte = 2 * (i + 1);
        cuts[i].digest[0] = fx_mix(i + (i >= from ? salt : 0));
        cuts[i].digest[1] = fx_mix(cuts[i].digest[0]);
    }

    return cuts;
}


static void
chain(void)
{
    bool               good;
    uint32_t           i, n, tail[16], most;
    uint64_t          *hashes, *got;
    kvr_turns_cut_t   *cuts;
    kvr_turns_entry_t  e, found;

    n = 3 * KVR_TURNS_DEPTH;

    tx_open(&f, 8 << 20, 1, false);
    cuts = long_text(n, n, 0);
    hashes = calloc(n, sizeof(uint64_t));
    got = calloc(n, sizeof(uint64_t));
    memset(&e, 0, sizeof(e));

    for (i = 0; i < n; i++) {
        hashes[i] = fx_mix(i);
    }

    for (i = 0, most = 0, good = true; i < n && good; i++) {
        good = kvr_turns_keep(&f.t, &f.terms, &cuts[i], i + 1, hashes, NULL,
                              i, &e) == KVR_OK
               && kvr_turns_find(&f.t, &f.terms, cuts, i + 1, got, n, tail, i,
                                 &found) == KVR_OK
               && found.tokens == i + 1 && found.depth == e.depth
               && memcmp(hashes, got, (i + 1) * sizeof(uint64_t)) == 0;

        most = e.depth > most ? e.depth : most;
    }

    ok(good && most == KVR_TURNS_DEPTH - 1,
       "%u turns: a chain of %u entries begins anew", n, most + 1);

    free(cuts);
    free(hashes);
    free(got);
    tx_close(&f);
}


static void
shared_cut(void)
{
    uint32_t           n, i, tail[16];
    uint64_t           hashes[4096];
    kvr_turns_cut_t   *cuts;
    kvr_turns_entry_t  e;

    n = 4000;

    tx_open(&f, 8 << 20, 1, false);
    cuts = long_text(n, n, 0);
    memset(&e, 0, sizeof(e));
    memset(hashes, 0, sizeof(hashes));

    i = (uint32_t) kvr_turns_shared(cuts, n);
    is_u64(cuts[i].byte, KVR_TURNS_SHARED + 2,
           "the first cut behind %u bytes is the shared one",
           KVR_TURNS_SHARED);
    is_u64(kvr_turns_shared(cuts, 10), 10, "a short text has none");

    (void) kvr_turns_keep(&f.t, &f.terms, &cuts[i], i + 1, hashes, NULL, 1,
                          &e);
    free(cuts);

    cuts = long_text(n, i + 1, 1);
    ok(kvr_turns_find(&f.t, &f.terms, cuts, n, hashes, 4096, tail, 2, &e)
       == KVR_OK && e.tokens == i + 1,
       "another session finds it, %u cuts before its end", n - i);

    free(cuts);
    tx_close(&f);
}
