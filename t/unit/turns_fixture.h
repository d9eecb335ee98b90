/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Texts for the tests of the turn cache: rows of parts, each of which ends
 * with a cut.  The ids of a part follow from the part alone, as those of a
 * tokenizer's section do.
 */


#ifndef TURNS_FIXTURE_H_INCLUDED
#define TURNS_FIXTURE_H_INCLUDED


#include "token/kvr_turns.h"

#include "fixture.h"
#include "tap.h"


#define PARTS     64                /* of a text */
#define IDS       200               /* of a part, at most */
#define TEXT      (PARTS * IDS)


typedef struct {
    kvr_turns_t         t;
    char               *base;
    size_t              size;
    kvr_turns_terms_t   terms;
    kvr_hasher_t        hasher;
} tx_t;


typedef struct {
    uint64_t            part[PARTS];
    uint32_t            n;

    /* what tx_build() makes of them */

    kvr_turns_cut_t     cuts[PARTS];
    uint32_t            tokens[PARTS];      /* before each cut */
    uint32_t            ids[TEXT];
    uint64_t            hashes[TEXT];
} tx_text_t;


static inline void
tx_open(tx_t *f, size_t size, uint32_t block_size, bool pairs)
{
    char  why[KVR_SLOTS_WHY];

    memset(f, 0, sizeof(tx_t));

    f->size = size;
    f->base = shared_memory(size);

    if (kvr_turns_format(f->base, size, why) != KVR_OK
        || kvr_turns_attach(&f->t, f->base, size, why) != KVR_OK)
    {
        printf("Bail out! %s\n", why);
        exit(1);
    }

    f->terms.tokenizer = 7;
    f->terms.tables = 1;
    f->terms.contract.block_size = block_size;
    f->terms.contract.pairs = pairs;
    f->terms.seed = kvr_hash_seed(NULL, 0, NULL, 0);

    kvr_hasher_init(&f->hasher, f->terms.seed);
}


static inline void
tx_close(tx_t *f)
{
    munmap(f->base, f->size);
}


static inline kvr_turns_stats_t
tx_stats(const tx_t *f)
{
    kvr_turns_stats_t  s;

    kvr_turns_stats(&f->t, &s);

    return s;
}


static inline void
tx_build(const tx_t *f, tx_text_t *x)
{
    uint32_t  i, k, n, ids;
    uint64_t  row[3], byte;

    n = 0;
    byte = 0;
    memset(row, 0, sizeof(row));

    for (i = 0; i < x->n; i++) {
        ids = 1 + fx_mix(x->part[i]) % IDS;

        for (k = 0; k < ids; k++) {
            x->ids[n++] = (uint32_t) fx_mix(x->part[i] * 1000 + k);
        }

        row[2] = x->part[i];
        kvr_hash_digest(row, sizeof(row), kvr_turns_seed(&f->t), row);

        byte += 3 * ids;

        x->cuts[i].digest[0] = row[0];
        x->cuts[i].digest[1] = row[1];
        x->cuts[i].byte = byte;
        x->tokens[i] = n;
    }

    (void) kvr_contract_hash(f->terms.contract, &f->hasher, x->ids, n,
                             x->hashes);
}


/* Is the entry that of a cut of this text, with the right words? */

static inline bool
tx_right(const tx_t *f, const tx_text_t *x, const kvr_turns_entry_t *e,
    const uint64_t *hashes, const uint32_t *tail)
{
    uint32_t  i, at;

    for (i = 0; i < x->n && x->cuts[i].byte != e->byte; i++) {
        /* void */
    }

    if (i == x->n) {
        return false;
    }

    at = e->blocks * f->terms.contract.block_size;

    return e->tokens == x->tokens[i]
           && e->blocks == kvr_contract_blocks(f->terms.contract, e->tokens)
           && e->tail == e->tokens - at
           && memcmp(hashes, x->hashes, e->blocks * sizeof(uint64_t)) == 0
           && memcmp(tail, x->ids + at, e->tail * sizeof(uint32_t)) == 0;
}


static inline kvr_rc_t
tx_keep(tx_t *f, const tx_text_t *x, uint32_t cut, uint64_t now,
    kvr_turns_entry_t *e)
{
    uint32_t  blocks;

    blocks = (uint32_t) kvr_contract_blocks(f->terms.contract,
                                            x->tokens[cut]);

    return kvr_turns_keep(&f->t, &f->terms, &x->cuts[cut], x->tokens[cut],
                          x->hashes,
                          x->ids + blocks * f->terms.contract.block_size, now,
                          e);
}


static inline kvr_rc_t
tx_find(tx_t *f, const tx_text_t *x, uint64_t now, kvr_turns_entry_t *e,
    bool *right)
{
    kvr_rc_t         rc;
    static __thread uint32_t  tail[KVR_BLOCK_SIZE_MAX];
    static __thread uint64_t  hashes[TEXT];

    memset(hashes, 0xa5, sizeof(hashes));

    rc = kvr_turns_find(&f->t, &f->terms, x->cuts, x->n, hashes, TEXT, tail,
                        now, e);

    *right = rc == KVR_OK ? tx_right(f, x, e, hashes, tail)
                          : rc == KVR_DECLINED && e->tokens == 0;

    return rc;
}


/*
 * A turn, as a request makes it: what is known is found, the rest is encoded,
 * the deepest cut is kept, and the shared one if nothing was found.  False:
 * something wrong was found.
 */

static inline bool
tx_turn(tx_t *f, const tx_text_t *x, uint64_t now, kvr_rc_t *rc)
{
    bool               right;
    uint32_t           shared;
    kvr_turns_entry_t  e;

    *rc = tx_find(f, x, now, &e, &right);

    if (x->n == 0 || e.byte == x->cuts[x->n - 1].byte) {
        return right;
    }

    shared = (uint32_t) kvr_turns_shared(x->cuts, x->n);

    if (e.tokens == 0 && shared + 1 < x->n) {
        (void) tx_keep(f, x, shared, now, &e);
    }

    (void) tx_keep(f, x, x->n - 1, now, &e);

    return right;
}


#endif /* TURNS_FIXTURE_H_INCLUDED */
