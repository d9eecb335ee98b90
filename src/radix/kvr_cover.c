/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_detail.h"


static kvr_pair_t *kvr_cover_pairs(const kvr_cover_t *c, const kvr_run_t *run);
static kvr_pair_t *kvr_cover_find(const kvr_cover_t *c, const kvr_run_t *run,
    uint32_t view);
static uint16_t *kvr_cover_dense(const kvr_cover_t *c, const kvr_run_t *run);
static kvr_rc_t kvr_cover_insert(kvr_cover_t *c, kvr_run_t *run,
    uint32_t view, uint32_t depth);
static kvr_rc_t kvr_cover_make_dense(kvr_cover_t *c, kvr_run_t *run,
    uint32_t views);
static void kvr_cover_remove(kvr_cover_t *c, kvr_run_t *run, uint32_t view);
static void kvr_cover_free_ext(kvr_cover_t *c, kvr_run_t *run);


/* ---- pairs -------------------------------------------------------------- */

static kvr_pair_t *
kvr_cover_pairs(const kvr_cover_t *c, const kvr_run_t *run)
{
    return run->cap ? kvr_arena_at(c->arena, run->cover.ext)
                    : (kvr_pair_t *) run->cover.pairs;
}


static uint16_t *
kvr_cover_dense(const kvr_cover_t *c, const kvr_run_t *run)
{
    return kvr_arena_at(c->arena, run->cover.ext);
}


static kvr_pair_t *
kvr_cover_find(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view)
{
    uint32_t     i;
    kvr_pair_t  *pairs;

    pairs = kvr_cover_pairs(c, run);

    for (i = 0; i < run->npairs; i++) {
        if (pairs[i].view == view) {
            return &pairs[i];
        }
    }

    return NULL;
}


uint16_t *
kvr_cover_look(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view)
{
    uint16_t    *word;
    kvr_pair_t  *pair;

    if (run->npairs == KVR_COVER_DENSE) {

        if (view >= run->cap * 64u) {
            return NULL;
        }

        word = &kvr_cover_dense(c, run)[view];

        return *word ? word : NULL;
    }

    pair = kvr_cover_find(c, run, view);

    return pair ? &pair->depth : NULL;
}


kvr_rc_t
kvr_cover_set_depth(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint32_t depth)
{
    uint16_t  *word;

    if (depth == 0) {
        kvr_cover_remove(c, run, view);
        return KVR_OK;
    }

    word = kvr_cover_word(c, run, view);

    if (word == NULL) {
        return kvr_cover_insert(c, run, view, depth);
    }

    kvr_version_lock(c->mem, &run->version);
    kvr_set16(c->mem, word, depth | (*word & KVR_COVER_OWN));
    kvr_version_unlock(&run->version);

    return KVR_OK;
}


/* Readers don't look at the bit. */

void
kvr_cover_set_own(kvr_cover_t *c, kvr_run_t *run, uint32_t view)
{
    uint16_t  *word;

    word = kvr_cover_word(c, run, view);

    if (word && (*word & KVR_COVER_OWN) == 0) {
        kvr_set16(c->mem, word, *word | KVR_COVER_OWN);
    }
}


/* A view that has nothing yet. */

static kvr_rc_t
kvr_cover_insert(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint32_t depth)
{
    uint32_t     n, cap, piece;
    kvr_rc_t     rc;
    kvr_pair_t  *pairs, *pair;

    n = run->npairs;
    cap = run->cap ? run->cap : KVR_COVER_INLINE;

    if (n == KVR_COVER_DENSE) {
        if (view >= run->cap * 64u) {
            rc = kvr_cover_make_dense(c, run, view + 1);
            if (rc != KVR_OK) {
                return rc;
            }
        }

    } else if (n == cap) {

        if (n >= KVR_COVER_DENSE_AT && n >= view / 8) {
            rc = kvr_cover_make_dense(c, run, view + 1);
            if (rc != KVR_OK) {
                return rc;
            }

        } else {
            cap = n < 4 ? 8 : cap * 2;

            piece = kvr_arena_alloc(c->arena, cap / 2);
            if (piece == 0) {
                return KVR_FULL;
            }

            pairs = kvr_arena_at(c->arena, piece);
            kvr_copy_halves(pairs, kvr_cover_pairs(c, run), n);

            kvr_version_lock(c->mem, &run->version);
            kvr_cover_free_ext(c, run);
            kvr_set32(c->mem, &run->cover.ext, piece);
            kvr_set16(c->mem, &run->cap, cap);
            kvr_version_unlock(&run->version);
        }
    }

    kvr_version_lock(c->mem, &run->version);

    if (run->npairs == KVR_COVER_DENSE) {
        kvr_set16(c->mem, &kvr_cover_dense(c, run)[view], depth);

    } else {
        pair = &kvr_cover_pairs(c, run)[n];
        kvr_set16(c->mem, &pair->view, view);
        kvr_set16(c->mem, &pair->depth, depth);
        kvr_set16(c->mem, &run->npairs, n + 1);
    }

    kvr_version_unlock(&run->version);

    kvr_set32(c->mem, &c->view_runs[view], c->view_runs[view] + 1);

    return KVR_OK;
}


/* From pairs, or from a shorter array, to one that has place for `views`. */

static kvr_rc_t
kvr_cover_make_dense(kvr_cover_t *c, kvr_run_t *run, uint32_t views)
{
    uint32_t     i, cap, piece;
    uint16_t    *depths;
    kvr_pair_t  *pairs;

    /* room to grow: views come one after another while a fleet starts */

    cap = (views + 63) / 64;

    if (run->npairs == KVR_COVER_DENSE) {
        cap = kvr_max(cap, run->cap + run->cap / 2u);

    } else {
        pairs = kvr_cover_pairs(c, run);

        for (i = 0; i < run->npairs; i++) {
            cap = kvr_max(cap, pairs[i].view / 64u + 1);
        }
    }

    piece = kvr_arena_alloc(c->arena, cap * 16);
    if (piece == 0) {
        return KVR_FULL;
    }

    depths = kvr_arena_at(c->arena, piece);
    kvr_zero_words(depths, cap * 16);

    if (run->npairs == KVR_COVER_DENSE) {
        kvr_copy_words(depths, kvr_cover_dense(c, run), run->cap * 16u);

    } else {
        pairs = kvr_cover_pairs(c, run);

        for (i = 0; i < run->npairs; i++) {
            kvr_put16(&depths[pairs[i].view], pairs[i].depth);
        }
    }

    kvr_version_lock(c->mem, &run->version);
    kvr_cover_free_ext(c, run);
    kvr_set32(c->mem, &run->cover.ext, piece);
    kvr_set16(c->mem, &run->cap, cap);
    kvr_set16(c->mem, &run->npairs, KVR_COVER_DENSE);
    kvr_version_unlock(&run->version);

    return KVR_OK;
}


static void
kvr_cover_free_ext(kvr_cover_t *c, kvr_run_t *run)
{
    if (run->cap == 0) {
        return;
    }

    kvr_arena_free(c->arena, run->cover.ext);
}


static void
kvr_cover_remove(kvr_cover_t *c, kvr_run_t *run, uint32_t view)
{
    uint32_t     i, n;
    uint16_t    *depths;
    kvr_pair_t  *pair, *last;

    if (run->npairs == KVR_COVER_DENSE) {

        depths = kvr_cover_dense(c, run);

        if (view >= run->cap * 64u || depths[view] == 0) {
            return;
        }

        kvr_version_lock(c->mem, &run->version);
        kvr_set16(c->mem, &depths[view], 0);

        n = run->cap * 64u;

        for (i = 0; i < n && depths[i] == 0; i++) { /* void */ }

        if (i == n) {
            kvr_cover_free_ext(c, run);
            kvr_set16(c->mem, &run->cap, 0);
            kvr_set16(c->mem, &run->npairs, 0);
        }

        kvr_version_unlock(&run->version);

    } else {

        pair = kvr_cover_find(c, run, view);

        if (pair == NULL) {
            return;
        }

        n = run->npairs - 1u;
        last = &kvr_cover_pairs(c, run)[n];

        kvr_version_lock(c->mem, &run->version);

        if (pair != last) {
            kvr_set16(c->mem, &pair->view, last->view);
            kvr_set16(c->mem, &pair->depth, last->depth);
        }

        kvr_set16(c->mem, &run->npairs, n);

        if (n == 0 && run->cap) {
            kvr_cover_free_ext(c, run);
            kvr_set16(c->mem, &run->cap, 0);
        }

        kvr_version_unlock(&run->version);
    }

    kvr_set32(c->mem, &c->view_runs[view], c->view_runs[view] - 1);
}


uint32_t
kvr_cover_next(const kvr_cover_t *c, const kvr_run_t *run, uint32_t *i)
{
    uint16_t  *depths;

    if (run->npairs != KVR_COVER_DENSE) {
        return *i < run->npairs ? kvr_cover_pairs(c, run)[*i].view
                                : UINT32_MAX;
    }

    depths = kvr_cover_dense(c, run);

    for ( /* void */ ; *i < run->cap * 64u; (*i)++) {
        if (depths[*i]) {
            return *i;
        }
    }

    return UINT32_MAX;
}


uint32_t
kvr_cover_top(const kvr_cover_t *c, const kvr_run_t *run, uint32_t enough,
    uint32_t *named)
{
    bool            own;
    uint32_t        i, k, n, top, depth;
    uint64_t        any, *bits;
    kvr_detail_t   *d;
    kvr_details_t  *details;

    top = 0;
    *named = 0;
    n = run->npairs == KVR_COVER_DENSE ? run->cap * 64u : run->npairs;

    for (i = 0; i < n; i++) {
        depth = run->npairs == KVR_COVER_DENSE
                ? kvr_cover_dense(c, run)[i]
                : kvr_cover_pairs(c, run)[i].depth;

        if (depth & KVR_COVER_DETAIL) {
            continue;
        }

        own = depth & KVR_COVER_OWN;
        depth = kvr_cover_plain(depth);
        top = kvr_max(top, depth);

        if (!own && depth > *named) {
            *named = depth;

            if (depth >= enough) {
                return depth;
            }
        }
    }

    if (run->detail == 0) {
        return top;
    }

    details = kvr_arena_at(c->arena, run->detail);

    for (i = 0; i < details->n; i++) {
        d = &details->items[i];
        bits = kvr_detail_bits(c, d);

        for (k = d->words; k-- > 0; /* void */ ) {
            any = bits[k] | bits[d->words + k] | bits[2 * d->words + k]
                  | bits[3 * d->words + k];

            if (any) {
                depth = k * 64 + 64 - (uint32_t) __builtin_clzll(any);
                top = kvr_max(top, depth);

                if ((kvr_cover_pair(c, run, d->view) & KVR_COVER_OWN) == 0) {
                    *named = kvr_max(*named, depth);
                }

                break;
            }
        }
    }

    return top;
}


void
kvr_cover_drop(kvr_cover_t *c, kvr_run_t *run, uint32_t view)
{
    if (kvr_cover_depth(c, run, view) == KVR_COVER_DETAIL) {
        kvr_detail_drop(c, run, kvr_detail_find(c, run, view));
    }

    kvr_cover_remove(c, run, view);
}


/* ---- one block ---------------------------------------------------------- */

uint32_t
kvr_cover_tiers(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view,
    uint32_t offset)
{
    uint32_t       t, depth, tiers;
    uint64_t      *bits;
    kvr_detail_t  *d;

    depth = kvr_cover_depth(c, run, view);

    if (depth != KVR_COVER_DETAIL) {
        return offset < depth ? 1u << KVR_DEVICE : 0;
    }

    d = kvr_detail_find(c, run, view);

    if (offset / 64 >= d->words) {
        return 0;
    }

    bits = kvr_detail_bits(c, d) + offset / 64;
    tiers = 0;

    for (t = 0; t < KVR_TIERS; t++) {
        tiers |= (uint32_t) (bits[t * d->words] >> (offset & 63) & 1) << t;
    }

    return tiers;
}


uint32_t
kvr_cover_held(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view)
{
    uint32_t       k, n, depth;
    uint64_t      *bits;
    kvr_detail_t  *d;

    depth = kvr_cover_depth(c, run, view);

    if (depth != KVR_COVER_DETAIL) {
        return depth;
    }

    d = kvr_detail_find(c, run, view);
    bits = kvr_detail_bits(c, d);
    n = 0;

    for (k = 0; k < d->words; k++) {
        n += (uint32_t) __builtin_popcountll(bits[k] | bits[d->words + k]
                                             | bits[2 * d->words + k]
                                             | bits[3 * d->words + k]);
    }

    return n;
}


kvr_rc_t
kvr_cover_add(kvr_cover_t *c, kvr_run_t *run, uint32_t view, uint32_t offset,
    kvr_tier_t tier)
{
    uint32_t       depth;
    uint64_t      *word, bit;
    kvr_rc_t       rc;
    kvr_detail_t  *d;

    depth = kvr_cover_depth(c, run, view);

    if (depth != KVR_COVER_DETAIL) {

        if (tier == KVR_DEVICE && offset == depth) {
            return kvr_cover_set_depth(c, run, view, depth + 1);
        }

        rc = kvr_detail_make(c, run, view, &d);
        if (rc != KVR_OK) {
            return rc;
        }

    } else {
        d = kvr_detail_find(c, run, view);
    }

    rc = kvr_detail_widen(c, run, d, offset);
    if (rc != KVR_OK) {
        return rc;
    }

    word = kvr_detail_bits(c, d) + tier * d->words + offset / 64;
    bit = UINT64_C(1) << (offset & 63);

    if (*word & bit) {
        return kvr_detail_count(c, d, offset, tier);
    }

    kvr_set64(c->mem, word, *word | bit);
    kvr_detail_settle(c, run, d);

    return KVR_OK;
}


kvr_rc_t
kvr_cover_del(kvr_cover_t *c, kvr_run_t *run, uint32_t view, uint32_t offset,
    kvr_tier_t tier)
{
    uint32_t       depth;
    uint64_t      *word, bit;
    uint16_t      *count;
    kvr_rc_t       rc;
    kvr_detail_t  *d;

    depth = kvr_cover_depth(c, run, view);

    if (depth != KVR_COVER_DETAIL) {

        if (tier != KVR_DEVICE || offset >= depth) {
            return KVR_DECLINED;
        }

        if (offset == depth - 1) {
            return kvr_cover_set_depth(c, run, view, offset);
        }

        rc = kvr_detail_make(c, run, view, &d);
        if (rc != KVR_OK) {
            return rc;
        }

    } else {
        d = kvr_detail_find(c, run, view);
    }

    if (offset / 64 >= d->words) {
        return KVR_DECLINED;
    }

    word = kvr_detail_bits(c, d) + tier * d->words + offset / 64;
    bit = UINT64_C(1) << (offset & 63);

    if ((*word & bit) == 0) {
        return KVR_DECLINED;
    }

    if (d->counts) {
        count = kvr_detail_counts(c, d) + tier * d->words * 64 + offset;

        if (*count) {
            kvr_set16(c->mem, count, *count - 1);

            if (*count == 0) {
                kvr_set16(c->mem, &d->counted, d->counted - 1);
                kvr_detail_settle(c, run, d);
            }

            return KVR_OK;
        }
    }

    kvr_set64(c->mem, word, *word & ~bit);
    kvr_detail_settle(c, run, d);

    return KVR_OK;
}
