/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_links.h"
#include "kvr_places.h"
#include "kvr_positional_evict.h"
#include "kvr_positional_steps.h"


#define KVR_POSITIONAL_AHEAD          8     /* handles fetched ahead */


/* A chain that is being stored. */
typedef struct {
    uint32_t         view;
    kvr_tier_t       tier;
    const uint64_t  *handles;
    const uint64_t  *hashes;
    uint32_t         n;
    uint32_t         step;              /* the maximum number of blocks in
                                           one transaction */
    uint64_t         seed;
    uint32_t         done;              /* of the n blocks, those committed */
    uint32_t         up;                /* block before the next one; 0: the
                                           root */
} kvr_positional_chain_t;


static kvr_rc_t kvr_positional_chain(kvr_positional_t *x,
    kvr_positional_chain_t *c);
static inline uint64_t kvr_positional_fetch(const kvr_positional_t *x,
    const kvr_positional_chain_t *c, uint32_t k, uint64_t before);
static inline void kvr_positional_touch(const kvr_positional_t *x,
    kvr_block_t *b);
static kvr_rc_t kvr_positional_hold(kvr_positional_t *x, uint32_t view,
    kvr_tier_t tier, uint32_t block, uint64_t handle);
static void kvr_positional_ahead(const kvr_positional_t *x, uint32_t view,
    const uint64_t *handles, uint32_t n);


/* ---- blocks ------------------------------------------------------------- */

/*
 * Makes a block that no view holds yet, behind its parent (0: the root);
 * KVR_FULL.
 */

static kvr_rc_t
kvr_positional_new(kvr_positional_t *x, uint32_t parent, uint64_t hash,
    uint64_t sequence, uint32_t *block)
{
    kvr_rc_t      rc;
    kvr_block_t  *b, *up;

    *block = kvr_arena_alloc_block(&x->arena);
    if (*block == 0) {
        return KVR_FULL;
    }

    b = kvr_block_at(&x->arena, *block);
    up = parent ? kvr_block_at(&x->arena, parent) : NULL;

    /* a version is even at rest, whatever the memory held at first */

    if (kvr_load32(&b->version) & 1) {
        kvr_version_unlock(&b->version);
    }

    kvr_version_lock(x->mem, &b->version);

    kvr_put32(&b->stamp, x->now);
    kvr_put32(&b->parent, parent);
    kvr_put64(&b->hash, hash);
    kvr_put64(&b->sequence, sequence);
    kvr_put32(&b->position, up ? up->position + 1 : 0);
    kvr_put32(&b->nchildren, 0);
    kvr_put16(&b->n, 0);
    kvr_put16(&b->cap, 0);

    kvr_version_unlock(&b->version);

    rc = kvr_places_add(x, *block);
    if (rc != KVR_OK) {
        return rc;
    }

    if (up) {
        kvr_set32(x->mem, &up->nchildren, up->nchildren + 1);
    }

    return KVR_OK;
}


/* ---- seeds -------------------------------------------------------------- */

/* The block of the same chain that stores the seed for this block. */

static uint32_t
kvr_positional_anchor(const kvr_positional_t *x, uint32_t block)
{
    kvr_block_t  *b;

    for ( ;; ) {
        b = kvr_block_at(&x->arena, block);

        if (b->position % KVR_SEED_EVERY == 0) {
            return block;
        }

        block = b->parent;
    }
}


static uint64_t
kvr_positional_seed_of(const kvr_positional_t *x, uint32_t block)
{
    uint32_t      i;
    kvr_block_t  *b;

    b = kvr_block_at(&x->arena, kvr_positional_anchor(x, block));
    i = kvr_block_find(&x->arena, b, KVR_MARK_SEED);

    return i == UINT32_MAX ? 0 : kvr_block_values(&x->arena, b)[i];
}


static kvr_rc_t
kvr_positional_set_seed(kvr_positional_t *x, uint32_t block, uint64_t seed)
{
    kvr_block_t  *b;

    b = kvr_block_at(&x->arena, kvr_positional_anchor(x, block));

    if (kvr_block_find(&x->arena, b, KVR_MARK_SEED) != UINT32_MAX) {
        return KVR_OK;
    }

    return kvr_block_add(&x->arena, b, KVR_MARK_SEED, seed);
}


kvr_rc_t
kvr_positional_seed(const kvr_positional_t *x, uint32_t view, uint64_t handle,
    uint64_t *seed)
{
    uint64_t       slot;
    kvr_entry_t   *e;

    e = kvr_entries_find(&x->handles, handle, view, &slot);

    if (e == NULL) {
        return KVR_DECLINED;
    }

    *seed = kvr_positional_seed_of(x, kvr_entry_block(e->word));

    return KVR_OK;
}


/* ---- store -------------------------------------------------------------- */

kvr_rc_t
kvr_positional_store(kvr_positional_t *x, uint32_t view, kvr_tier_t tier,
    bool has_parent, uint64_t parent, const uint64_t *handles,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *done)
{
    uint32_t                 cost;
    uint64_t                 slot, known;
    kvr_rc_t                 rc;
    kvr_entry_t             *e;
    kvr_positional_chain_t   c;

    *done = 0;

    c.view = view;
    c.tier = tier;
    c.handles = handles;
    c.hashes = hashes;
    c.n = n;
    c.step = KVR_POSITIONAL_CHUNK;
    c.seed = seed;
    c.done = 0;
    c.up = 0;

    if (has_parent) {
        e = kvr_entries_find(&x->handles, parent, view, &slot);

        if (e == NULL) {
            return KVR_DECLINED;
        }

        /* the whole chain has one seed */

        c.up = kvr_entry_block(e->word);
        known = kvr_positional_seed_of(x, c.up);

        if (known) {
            c.seed = known;
        }
    }

    cost = 0;

    for ( ;; ) {

        rc = kvr_positional_chain(x, &c);
        *done = c.done;

        if (rc == KVR_OK) {
            return KVR_OK;
        }

        (void) kvr_txn_rollback(x->mem);
        kvr_positional_begin(x);

        /*
         * KVR_FULL may also mean that a block has too many records: then more
         * memory does not help
         */

        if (rc != KVR_FULL || !kvr_positional_make_room(x, c.up, &cost)) {
            return KVR_FULL;
        }

        /* blocks that were stored need not be stored again */

        c.step = KVR_POSITIONAL_STEP;
    }
}


/* Stores the rest of a chain; KVR_FULL: c->done blocks are committed. */

static kvr_rc_t
kvr_positional_chain(kvr_positional_t *x, kvr_positional_chain_t *c)
{
    uint32_t      i, k, up, block;
    uint64_t      sequence, ahead[KVR_POSITIONAL_AHEAD];
    kvr_rc_t      rc;
    kvr_block_t  *b;

    up = c->up;
    sequence = up ? kvr_block_at(&x->arena, up)->sequence : 0;

    if (up && c->seed && c->n) {
        rc = kvr_positional_set_seed(x, up, c->seed);
        if (rc != KVR_OK) {
            return rc;
        }
    }

    /* both tables' slots are fetched ahead */

    for (k = c->done; k < c->n && k < c->done + KVR_POSITIONAL_AHEAD; k++) {
        sequence = kvr_positional_fetch(x, c, k, sequence);
        ahead[k % KVR_POSITIONAL_AHEAD] = sequence;
    }

    for (i = c->done; i < c->n; i++) {

        if (i - c->done == c->step || kvr_positional_short(x)) {
            kvr_txn_commit(x->mem);
            kvr_positional_open(x);
            c->done = i;
            c->up = up;
        }

        block = kvr_places_child(x, up, c->hashes[i],
                                 ahead[i % KVR_POSITIONAL_AHEAD]);

        if (block == 0) {
            rc = kvr_positional_new(x, up, c->hashes[i],
                                    ahead[i % KVR_POSITIONAL_AHEAD], &block);
            if (rc != KVR_OK) {
                return rc;
            }
        }

        if (k < c->n) {
            sequence = kvr_positional_fetch(x, c, k, sequence);
            ahead[k % KVR_POSITIONAL_AHEAD] = sequence;
            k++;
        }

        b = kvr_block_at(&x->arena, block);

        if (c->seed && b->position % KVR_SEED_EVERY == 0) {
            rc = kvr_positional_set_seed(x, block, c->seed);
            if (rc != KVR_OK) {
                return rc;
            }
        }

        kvr_positional_touch(x, b);

        rc = kvr_positional_hold(x, c->view, c->tier, block, c->handles[i]);
        if (rc != KVR_OK) {
            return rc;
        }

        up = block;
    }

    c->done = c->n;

    return KVR_OK;
}


/*
 * The sequence hash of block k, behind `before`; prefetches the table slots
 * that block k needs.
 */

static inline uint64_t
kvr_positional_fetch(const kvr_positional_t *x,
    const kvr_positional_chain_t *c, uint32_t k, uint64_t before)
{
    uint64_t  sequence;

    sequence = kvr_places_sequence(x, before, c->hashes[k]);

    kvr_entries_prefetch(&x->handles, c->handles[k], c->view);
    kvr_places_prefetch(x, sequence);

    return sequence;
}


static inline void
kvr_positional_touch(const kvr_positional_t *x, kvr_block_t *b)
{
    if (kvr_load32(&b->stamp) != x->now) {
        kvr_put32(&b->stamp, x->now);
    }
}


/* Makes a view a holder of a block, by this handle, in a tier; KVR_FULL. */

static kvr_rc_t
kvr_positional_hold(kvr_positional_t *x, uint32_t view, kvr_tier_t tier,
    uint32_t block, uint64_t handle)
{
    uint32_t       old, tiers;
    uint64_t       slot;
    kvr_rc_t       rc;
    kvr_entry_t   *e;

    old = 0;
    tiers = 1u << tier;
    e = kvr_entries_find(&x->handles, handle, view, &slot);

    if (e == NULL) {

        rc = kvr_entries_put(&x->handles, slot, handle,
                             kvr_entry(block, tiers, view));
        if (rc != KVR_OK) {
            return rc;
        }

        kvr_set32(x->mem, &x->view_handles[view], x->view_handles[view] + 1);

        return kvr_links_gain(x, view, block, handle, tiers);
    }

    if (kvr_entry_block(e->word) == block) {

        if (kvr_entry_tiers(e->word) & tiers) {
            return KVR_OK;
        }

        tiers |= kvr_entry_tiers(e->word);

    } else {

        /*
         * the handle moves: delete it at the old block first, or readers would
         * see it at both
         */

        old = kvr_entry_block(e->word);
        kvr_links_lose(x, view, old, handle, 0);
    }

    kvr_set64(x->mem, &e->word, kvr_entry(block, tiers, view));

    rc = kvr_links_gain(x, view, block, handle, tiers);

    if (rc == KVR_OK && old) {
        (void) kvr_positional_free_if_empty(x, old);
    }

    return rc;
}


kvr_rc_t
kvr_positional_add_tier(kvr_positional_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    uint32_t       i, block, cost;
    uint64_t       slot;
    kvr_rc_t       rc;
    kvr_entry_t   *e;

    cost = 0;

    for (i = 0; i < n; /* void */ ) {

        e = kvr_entries_find(&x->handles, handles[i], view, &slot);

        if (e == NULL) {
            (*unknown)++;
            i++;
            continue;
        }

        block = kvr_entry_block(e->word);
        kvr_positional_touch(x, kvr_block_at(&x->arena, block));

        rc = kvr_positional_hold(x, view, tier, block, handles[i]);

        if (rc == KVR_OK) {
            kvr_txn_commit(x->mem);
            kvr_positional_open(x);
            i++;
            continue;
        }

        (void) kvr_txn_rollback(x->mem);
        kvr_positional_begin(x);

        if (rc != KVR_FULL || !kvr_positional_make_room(x, block, &cost)) {
            return KVR_FULL;
        }
    }

    return KVR_OK;
}


kvr_rc_t
kvr_positional_parent(const kvr_positional_t *x, uint32_t view,
    uint64_t handle, bool *has_parent, uint64_t *parent)
{
    uint32_t            i, up, mark;
    uint64_t            slot;
    kvr_block_t        *b;
    const kvr_entry_t  *e;

    *has_parent = false;

    e = kvr_entries_find(&x->handles, handle, view, &slot);

    if (e == NULL) {
        return KVR_DECLINED;
    }

    up = kvr_block_at(&x->arena, kvr_entry_block(e->word))->parent;

    if (up == 0) {
        return KVR_OK;
    }

    b = kvr_block_at(&x->arena, up);

    for (i = 0; i < b->n; i++) {
        mark = kvr_block_marks(&x->arena, b)[i];

        if (kvr_mark_tiers(mark) && kvr_mark_view(mark) == view) {
            *parent = kvr_block_values(&x->arena, b)[i];
            *has_parent = true;
            break;
        }
    }

    return KVR_OK;
}


/* ---- remove ------------------------------------------------------------- */

kvr_rc_t
kvr_positional_remove(kvr_positional_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    uint32_t       i, block, tiers;
    uint64_t       slot;
    kvr_entry_t   *e;

    for (i = 0; i < n && i < KVR_POSITIONAL_AHEAD; i++) {
        kvr_entries_prefetch(&x->handles, handles[i], view);
    }

    for (i = 0; i < n; i++) {

        kvr_positional_ahead(x, view, handles + i, n - i);

        e = kvr_entries_find(&x->handles, handles[i], view, &slot);

        if (e == NULL || (kvr_entry_tiers(e->word) & 1u << tier) == 0) {
            (*unknown)++;
            continue;
        }

        kvr_positional_commit_if_low(x);

        block = kvr_entry_block(e->word);
        tiers = kvr_entry_tiers(e->word) & ~(1u << tier);

        kvr_links_lose(x, view, block, handles[i], tiers);

        if (tiers) {
            kvr_set64(x->mem, &e->word, kvr_entry(block, tiers, view));
            continue;
        }

        kvr_positional_drop(x, slot);
        (void) kvr_positional_free_if_empty(x, block);
    }

    return KVR_OK;
}


/*
 * Prefetches what the removal of later handles needs: one step of each on
 * every call.
 */

static void
kvr_positional_ahead(const kvr_positional_t *x, uint32_t view,
    const uint64_t *handles, uint32_t n)
{
    uint64_t       slot;
    kvr_block_t   *b;
    kvr_entry_t   *e;

    if (n > KVR_POSITIONAL_AHEAD) {
        kvr_entries_prefetch(&x->handles, handles[KVR_POSITIONAL_AHEAD],
                             view);
    }

    if (n > KVR_POSITIONAL_AHEAD / 2) {
        e = kvr_entries_find(&x->handles, handles[KVR_POSITIONAL_AHEAD / 2],
                             view, &slot);
        if (e) {
            b = kvr_block_at(&x->arena, kvr_entry_block(e->word));
            __builtin_prefetch(b, 1);
        }
    }

    if (n > KVR_POSITIONAL_AHEAD / 4) {
        e = kvr_entries_find(&x->handles, handles[KVR_POSITIONAL_AHEAD / 4],
                             view, &slot);
        if (e) {
            b = kvr_block_at(&x->arena, kvr_entry_block(e->word));
            kvr_places_prefetch(x, b->sequence);
        }
    }
}


/* ---- reclaim ------------------------------------------------------------ */

bool
kvr_positional_reclaim(kvr_positional_t *x,
    bool (*dying)(void *data, uint32_t v), void *data, uint32_t slots)
{
    bool          round;
    uint32_t      i, mark, view, block;
    uint64_t      pos;
    kvr_block_t  *b;

    round = false;
    pos = x->zone->reclaim_at;

    while (slots--) {

        if (pos >= x->zone->nplaces) {
            pos = 0;
            round = true;
            break;
        }

        block = (uint32_t) (x->places[pos] >> 32);

        if (block == 0) {
            pos++;
            continue;
        }

        b = kvr_block_at(&x->arena, block);

        for (i = 0; i < b->n; /* void */ ) {

            mark = kvr_block_marks(&x->arena, b)[i];
            view = kvr_mark_view(mark);

            if (kvr_mark_tiers(mark) == 0 || !dying(data, view)) {
                i++;
                continue;
            }

            kvr_positional_commit_if_low(x);

            if (x->view_broken[view] < KVR_BROKEN_HIDDEN) {
                kvr_links_set_broken(x, view, x->view_broken[view]
                                              | KVR_BROKEN_HIDDEN);
            }

            kvr_positional_evict_record(x, block, i);
        }

        if (b->nchildren == 0 && !kvr_block_held(&x->arena, b)) {
            /*
             * the deletion may move another block to this slot: look at it
             * again
             */
            (void) kvr_positional_free_if_empty(x, block);

        } else {
            pos++;
        }

        kvr_positional_commit_if_low(x);
    }

    kvr_set64(x->mem, &x->zone->reclaim_at, pos);

    return round;
}
