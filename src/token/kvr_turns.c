/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_turns.h"

#include "../core/kvr_hash.h"
#include "../core/kvr_words.h"


#define KVR_TURNS_VERSION  1        /* of the memory's layout */


/* At the memory's start, before the slots.  All only grow. */
typedef struct kvr_turns_zone_s {
    uint64_t    hits;
    uint64_t    misses;
    uint64_t    tokens;
    uint64_t    kept;
    uint64_t    lost;
    uint64_t    too_large;
    uint64_t    busy;
    uint64_t    pad;
} kvr_turns_zone_t;


/* Where an entry begins; then come its hashes, then its tail. */
typedef struct {
    uint64_t    parent[2];
    uint32_t    byte;
    uint32_t    parent_byte;        /* 0: there is no parent */
    uint32_t    tokens;
    uint32_t    parent_tokens;
} kvr_turns_record_t;


_Static_assert(sizeof(kvr_turns_zone_t) == 64, "a cache line");

/* All is counted in halves of words: 4 bytes. */

#define KVR_TURNS_HALVES   (2 * KVR_SLOTS_WORDS)
#define KVR_TURNS_RECORD   (sizeof(kvr_turns_record_t) / sizeof(uint32_t))


/* An entry on its way into slots, or out of them. */
typedef struct {
    uint64_t    key[2];
    uint64_t    parent[2];
    uint32_t    piece;
    uint32_t    n;                  /* halves of this piece, done */
    uint64_t    data[KVR_SLOTS_WORDS];
} kvr_turns_cursor_t;


/* The text of a find, and where its answer goes. */
typedef struct {
    kvr_turns_t              *t;
    const kvr_turns_terms_t  *terms;
    const kvr_turns_cut_t    *cuts;
    uint64_t                  root[2];
    uint64_t                 *hashes;
    size_t                    max_blocks;
    uint32_t                 *tail;
    uint64_t                  now_ms;
} kvr_turns_find_t;


static size_t kvr_turns_cut_at(const kvr_turns_cut_t *cuts, size_t n,
    uint64_t byte);


#define kvr_turns_tally(p)  (void) __atomic_fetch_add(p, 1, __ATOMIC_RELAXED)


/* ---- the memory --------------------------------------------------------- */

kvr_rc_t
kvr_turns_format(void *base, size_t size, char why[KVR_SLOTS_WHY])
{
    kvr_rc_t           rc;
    kvr_turns_zone_t  *z;

    z = base;

    rc = kvr_slots_format(z + 1, size - kvr_min(size, sizeof(*z)),
                          KVR_TURNS_VERSION, why);

    if (rc == KVR_OK) {
        memset(z, 0, sizeof(*z));
    }

    return rc;
}


kvr_rc_t
kvr_turns_attach(kvr_turns_t *t, void *base, size_t size,
    char why[KVR_SLOTS_WHY])
{
    kvr_rc_t           rc;
    kvr_turns_zone_t  *z;

    z = base;

    rc = kvr_slots_attach(&t->slots, z + 1, size - sizeof(*z),
                          KVR_TURNS_VERSION, why);
    if (rc != KVR_OK) {
        return rc;
    }

    t->zone = z;
    t->seed = t->slots.seed;
    t->max_pieces = (uint32_t) kvr_min(t->slots.nsets * KVR_SLOTS_WAYS / 8,
                                       KVR_TURNS_PIECES);

    return KVR_OK;
}


uint64_t
kvr_turns_seed(const kvr_turns_t *t)
{
    return t->seed;
}


void
kvr_turns_stats(const kvr_turns_t *t, kvr_turns_stats_t *s)
{
    const kvr_turns_zone_t  *z;

    z = t->zone;

    kvr_slots_stats(&t->slots, &s->slots);

    s->hits = kvr_load64(&z->hits);
    s->misses = kvr_load64(&z->misses);
    s->tokens = kvr_load64(&z->tokens);
    s->kept = kvr_load64(&z->kept);
    s->lost = kvr_load64(&z->lost);
    s->too_large = kvr_load64(&z->too_large);
    s->busy = kvr_load64(&z->busy);
}


/* ---- keys --------------------------------------------------------------- */

static void
kvr_turns_root(const kvr_turns_t *t, const kvr_turns_terms_t *terms,
    uint64_t root[2])
{
    uint64_t  words[10];

    words[0] = terms->tokenizer;
    words[1] = (uint64_t) terms->tables << 32 | terms->flags;
    words[2] = (uint64_t) terms->contract.pairs << 32
               | terms->contract.block_size;
    words[3] = terms->seed;
    words[4] = terms->lora_len;
    words[5] = terms->salt_len;

    kvr_hash_digest(terms->lora, terms->lora_len, t->seed, &words[6]);
    kvr_hash_digest(terms->salt, terms->salt_len, t->seed, &words[8]);
    kvr_hash_digest(words, sizeof(words), t->seed, root);
}


static void
kvr_turns_key(const kvr_turns_t *t, const uint64_t root[2],
    const kvr_turns_cut_t *cut, uint64_t key[2])
{
    uint64_t  words[5];

    words[0] = root[0];
    words[1] = root[1];
    words[2] = cut->digest[0];
    words[3] = cut->digest[1];
    words[4] = cut->byte;

    kvr_hash_digest(words, sizeof(words), t->seed, key);
}


/*
 * The first slot of an entry has the entry's key.  The keys of the others
 * follow from the parent, too: entries of one cut with different parents have
 * different words, which must not be mixed.
 */

static void
kvr_turns_piece_key(const kvr_turns_t *t, const kvr_turns_cursor_t *c,
    uint64_t key[2])
{
    uint64_t  words[5];

    if (c->piece == 0) {
        key[0] = c->key[0];
        key[1] = c->key[1];
        return;
    }

    words[0] = c->key[0];
    words[1] = c->key[1];
    words[2] = c->parent[0];
    words[3] = c->parent[1];
    words[4] = c->piece;

    kvr_hash_digest(words, sizeof(words), ~t->seed, key);
}


/* ---- entries ------------------------------------------------------------ */

/*
 * Adds halves of 4 bytes to an entry.  from NULL: the entry ends, and its last
 * slot is filled up and written.
 */

static kvr_rc_t
kvr_turns_add(kvr_turns_t *t, kvr_turns_cursor_t *c, const void *from,
    size_t halves, uint64_t now_ms)
{
    size_t           n, room;
    uint64_t         key[2];
    kvr_rc_t         rc;
    const uint32_t  *p = from;

    do {
        room = KVR_TURNS_HALVES - c->n;

        if (p == NULL || room == 0) {
            memset((uint32_t *) c->data + c->n, 0, room * sizeof(uint32_t));
            kvr_turns_piece_key(t, c, key);

            rc = kvr_slots_put(&t->slots, key, now_ms, c->data);

            if (rc != KVR_OK || p == NULL) {
                return rc;
            }

            c->piece++;
            c->n = 0;
            continue;
        }

        n = kvr_min(halves, room);
        memcpy((uint32_t *) c->data + c->n, p, n * sizeof(uint32_t));

        p += n;
        halves -= n;
        c->n += (uint32_t) n;

    } while (halves);

    return KVR_OK;
}


/* Takes as many from an entry; false: a slot of it is gone. */

static bool
kvr_turns_take(kvr_turns_t *t, kvr_turns_cursor_t *c, void *to,
    size_t halves, uint64_t now_ms)
{
    size_t     n;
    uint64_t   key[2];
    uint32_t  *p = to;

    while (halves) {

        if (c->n == KVR_TURNS_HALVES) {
            c->piece++;
            c->n = 0;
            kvr_turns_piece_key(t, c, key);

            if (!kvr_slots_get(&t->slots, key, now_ms, c->data)) {
                return false;
            }
        }

        n = kvr_min(halves, KVR_TURNS_HALVES - c->n);
        memcpy(p, (uint32_t *) c->data + c->n, n * sizeof(uint32_t));

        p += n;
        halves -= n;
        c->n += (uint32_t) n;
    }

    return true;
}


static bool
kvr_turns_open(const kvr_turns_find_t *f, const kvr_turns_cut_t *cut,
    kvr_turns_cursor_t *c, kvr_turns_record_t *r)
{
    kvr_turns_key(f->t, f->root, cut, c->key);

    if (!kvr_slots_get(&f->t->slots, c->key, f->now_ms, c->data)) {
        return false;
    }

    memcpy(r, c->data, sizeof(kvr_turns_record_t));

    c->parent[0] = r->parent[0];
    c->parent[1] = r->parent[1];
    c->piece = 0;
    c->n = KVR_TURNS_RECORD;

    return r->byte == cut->byte && r->parent_byte < r->byte
           && r->parent_tokens <= r->tokens
           && (r->parent_byte == 0) == (r->parent_tokens == 0);
}


/*
 * Reads the entry of cut i and all that it continues.  If they are there, *e
 * is the entry.  Else e->tokens stays 0, and only cuts before the one returned
 * can still have an entry: what continues a lost entry is lost, too.
 */

static size_t
kvr_turns_walk(const kvr_turns_find_t *f, size_t i, kvr_turns_entry_t *e)
{
    size_t               at, from, blocks;
    uint32_t             depth;
    kvr_turns_cursor_t   c;
    kvr_turns_record_t   r, child;
    kvr_contract_t       contract;
    kvr_turns_entry_t    found;

    contract = f->terms->contract;

    if (!kvr_turns_open(f, &f->cuts[i], &c, &r)) {
        return i;
    }

    blocks = kvr_contract_blocks(contract, r.tokens);

    if (blocks > f->max_blocks) {
        return i;
    }

    found.key[0] = c.key[0];
    found.key[1] = c.key[1];
    found.byte = r.byte;
    found.tokens = r.tokens;
    found.blocks = (uint32_t) blocks;
    found.tail = r.tokens - (uint32_t) blocks * contract.block_size;

    at = i;

    for (depth = 0; depth < KVR_TURNS_DEPTH; depth++) {

        from = kvr_contract_blocks(contract, r.parent_tokens);
        blocks = kvr_contract_blocks(contract, r.tokens);

        if (!kvr_turns_take(f->t, &c, f->hashes + from, 2 * (blocks - from),
                            f->now_ms)
            || (at == i && !kvr_turns_take(f->t, &c, f->tail, found.tail,
                                           f->now_ms)))
        {
            break;
        }

        if (r.parent_byte == 0) {
            found.depth = depth;
            *e = found;
            return i;
        }

        child = r;
        at = kvr_turns_cut_at(f->cuts, at, child.parent_byte);

        if (f->cuts[at].byte != child.parent_byte
            || !kvr_turns_open(f, &f->cuts[at], &c, &r)
            || c.key[0] != child.parent[0] || c.key[1] != child.parent[1]
            || r.tokens != child.parent_tokens)
        {
            break;
        }
    }

    kvr_turns_tally(&f->t->zone->lost);

    return at;
}


/* The first of n cuts, of more than n, that is at that byte or behind it. */

static size_t
kvr_turns_cut_at(const kvr_turns_cut_t *cuts, size_t n, uint64_t byte)
{
    size_t  low, high, mid;

    low = 0;
    high = n;

    while (low < high) {
        mid = low + (high - low) / 2;

        if (cuts[mid].byte < byte) {
            low = mid + 1;

        } else {
            high = mid;
        }
    }

    return low;
}


size_t
kvr_turns_shared(const kvr_turns_cut_t *cuts, size_t n)
{
    return kvr_turns_cut_at(cuts, n, KVR_TURNS_SHARED + 1);
}


kvr_rc_t
kvr_turns_find(kvr_turns_t *t, const kvr_turns_terms_t *terms,
    const kvr_turns_cut_t *cuts, size_t n, uint64_t *hashes,
    size_t max_blocks, uint32_t *tail, uint64_t now_ms, kvr_turns_entry_t *e)
{
    size_t            i, shared;
    uint32_t          probes;
    kvr_turns_find_t  f;

    memset(e, 0, sizeof(kvr_turns_entry_t));

    f.t = t;
    f.terms = terms;
    f.cuts = cuts;
    f.hashes = hashes;
    f.max_blocks = max_blocks;
    f.tail = tail;
    f.now_ms = now_ms;

    kvr_turns_root(t, terms, f.root);

    i = n;

    for (probes = 0; probes < KVR_TURNS_PROBES && i > 0 && e->tokens == 0;
         probes++)
    {
        i = kvr_turns_walk(&f, i - 1, e);
    }

    shared = kvr_turns_shared(cuts, n);

    if (shared < i && e->tokens == 0) {
        (void) kvr_turns_walk(&f, shared, e);
    }

    if (e->tokens == 0) {
        kvr_turns_tally(&t->zone->misses);
        return KVR_DECLINED;
    }

    kvr_turns_tally(&t->zone->hits);
    (void) __atomic_fetch_add(&t->zone->tokens, e->tokens, __ATOMIC_RELAXED);

    return KVR_OK;
}


kvr_rc_t
kvr_turns_keep(kvr_turns_t *t, const kvr_turns_terms_t *terms,
    const kvr_turns_cut_t *cut, uint32_t tokens, const uint64_t *hashes,
    const uint32_t *tail, uint64_t now_ms, kvr_turns_entry_t *e)
{
    size_t              halves, from;
    kvr_rc_t            rc;
    uint64_t            root[2];
    kvr_turns_entry_t   is;
    kvr_turns_cursor_t  c;
    kvr_turns_record_t  r;

    kvr_turns_root(t, terms, root);
    kvr_turns_key(t, root, cut, is.key);

    is.byte = (uint32_t) cut->byte;
    is.tokens = tokens;
    is.blocks = (uint32_t) kvr_contract_blocks(terms->contract, tokens);
    is.tail = tokens - is.blocks * terms->contract.block_size;
    is.depth = 0;

    memset(&r, 0, sizeof(kvr_turns_record_t));

    r.byte = is.byte;
    r.tokens = tokens;
    from = 0;

    /* a chain that is too long begins anew */

    if (e->tokens && e->depth + 1 < KVR_TURNS_DEPTH) {
        r.parent[0] = e->key[0];
        r.parent[1] = e->key[1];
        r.parent_byte = e->byte;
        r.parent_tokens = e->tokens;
        from = e->blocks;
        is.depth = e->depth + 1;
    }

    halves = KVR_TURNS_RECORD + 2 * (is.blocks - from) + is.tail;

    if (cut->byte > UINT32_MAX
        || (halves + KVR_TURNS_HALVES - 1) / KVR_TURNS_HALVES > t->max_pieces)
    {
        kvr_turns_tally(&t->zone->too_large);
        return KVR_FULL;
    }

    memcpy(c.key, is.key, sizeof(c.key));
    memcpy(c.parent, r.parent, sizeof(c.parent));
    c.piece = 0;
    c.n = 0;

    rc = kvr_turns_add(t, &c, &r, KVR_TURNS_RECORD, now_ms);

    if (rc == KVR_OK && is.blocks > from) {
        rc = kvr_turns_add(t, &c, hashes + from, 2 * (is.blocks - from),
                           now_ms);
    }

    if (rc == KVR_OK && is.tail) {
        rc = kvr_turns_add(t, &c, tail, is.tail, now_ms);
    }

    if (rc == KVR_OK) {
        rc = kvr_turns_add(t, &c, NULL, 0, now_ms);
    }

    if (rc != KVR_OK) {
        kvr_turns_tally(&t->zone->busy);
        return rc;
    }

    kvr_turns_tally(&t->zone->kept);
    *e = is;

    return KVR_OK;
}
