/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_detail.h"


static uint32_t kvr_detail_lead(const uint64_t *bits, uint32_t words,
    uint32_t rows);


kvr_detail_t *
kvr_detail_find(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view)
{
    uint32_t        i;
    kvr_details_t  *details;

    details = kvr_arena_at(c->arena, run->detail);

    for (i = 0; i < details->n; i++) {
        if (details->items[i].view == view) {
            return &details->items[i];
        }
    }

    /*
     * the pair has KVR_COVER_DETAIL, so its detail must exist: else the zone
     * is damaged
     */
    kvr_txn_damaged("a view's detail is missing");
}


/*
 * Makes a detail for a view which has a plain depth or nothing; the detail
 * covers the same blocks.
 */

kvr_rc_t
kvr_detail_make(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    kvr_detail_t **detail)
{
    uint32_t        i, n, cap, depth, words, bits, piece;
    uint64_t       *row;
    kvr_rc_t        rc;
    kvr_detail_t   *d;
    kvr_details_t  *details, *old;

    depth = kvr_pairs_depth(c, run, view);
    words = (kvr_max(run->len, 1u) + 63) / 64;

    bits = kvr_arena_alloc(c->arena, words * KVR_TIERS);
    if (bits == 0) {
        return KVR_FULL;
    }

    row = kvr_arena_at(c->arena, bits);
    kvr_zero_words(row, words * KVR_TIERS);

    for (i = 0; i < depth; i++) {
        kvr_put64(&row[i / 64], row[i / 64] | UINT64_C(1) << (i & 63));
    }

    old = run->detail ? kvr_arena_at(c->arena, run->detail) : NULL;
    n = old ? old->n : 0;
    cap = old ? old->cap : 0;

    if (n == cap) {
        cap = cap ? cap * 2 : 2;

        piece = kvr_arena_alloc(c->arena, kvr_details_words(cap));
        if (piece == 0) {
            return KVR_FULL;
        }

        details = kvr_arena_at(c->arena, piece);
        kvr_put32(&details->n, n);
        kvr_put32(&details->cap, cap);

        if (old) {
            kvr_copy_words(details->items, old->items, n * 3);
        }

        kvr_version_lock(c->mem, &run->version);

        if (old) {
            kvr_arena_free(c->arena, run->detail);
        }

        kvr_set32(c->mem, &run->detail, piece);
        kvr_version_unlock(&run->version);
    }

    details = kvr_arena_at(c->arena, run->detail);
    d = &details->items[n];

    rc = kvr_pairs_set_depth(c, run, view, KVR_COVER_DETAIL);
    if (rc != KVR_OK) {
        return rc;
    }

    kvr_version_lock(c->mem, &run->version);

    /*
     * the item behind the last one is unused, but it may have been in use
     * earlier in this transaction: log it, so that a rollback restores it
     */

    for (i = 0; i < 3; i++) {
        kvr_set_word(c->mem, d, i, ((kvr_word_t *) d)[i]);
    }

    kvr_put16(&d->view, view);
    kvr_put16(&d->depth[0], depth);
    kvr_put16(&d->depth[1], depth);
    kvr_put16(&d->depth[2], depth);
    kvr_put32(&d->bits, bits);
    kvr_put16(&d->words, words);
    kvr_put16(&d->counted, 0);
    kvr_put32(&d->counts, 0);
    kvr_put32(&d->pad, 0);

    kvr_set32(c->mem, &details->n, n + 1);
    kvr_version_unlock(&run->version);

    kvr_set64(c->mem, c->details, *c->details + 1);

    *detail = d;

    return KVR_OK;
}


/* Makes the rows of bits longer after the run has grown. */

kvr_rc_t
kvr_detail_widen(kvr_cover_t *c, kvr_run_t *run, kvr_detail_t *d,
    uint32_t offset)
{
    uint32_t   t, words, bits, counts;
    uint16_t  *to, *from;
    uint64_t  *new, *old;

    if (offset / 64 < d->words) {
        return KVR_OK;
    }

    words = (kvr_max(run->len, offset + 1) + 63) / 64;
    counts = 0;

    bits = kvr_arena_alloc(c->arena, words * KVR_TIERS);
    if (bits == 0) {
        return KVR_FULL;
    }

    new = kvr_arena_at(c->arena, bits);
    old = kvr_detail_bits(c, d);
    kvr_zero_words(new, words * KVR_TIERS);

    for (t = 0; t < KVR_TIERS; t++) {
        kvr_copy_words(new + t * words, old + t * d->words, d->words);
    }

    if (d->counts) {
        counts = kvr_arena_alloc(c->arena, words * KVR_TIERS * 16);
        if (counts == 0) {
            return KVR_FULL;
        }

        to = kvr_arena_at(c->arena, counts);
        from = kvr_detail_counts(c, d);
        kvr_zero_words(to, words * KVR_TIERS * 16);

        for (t = 0; t < KVR_TIERS; t++) {
            kvr_copy_words(to + t * words * 64, from + t * d->words * 64,
                           d->words * 16u);
        }

        kvr_arena_free(c->arena, d->counts);
        kvr_set32(c->mem, &d->counts, counts);
    }

    kvr_version_lock(c->mem, &run->version);
    kvr_arena_free(c->arena, d->bits);
    kvr_set32(c->mem, &d->bits, bits);
    kvr_set16(c->mem, &d->words, words);
    kvr_version_unlock(&run->version);

    return KVR_OK;
}


/*
 * Counts another handle for a block that the view holds in that tier already.
 */

kvr_rc_t
kvr_detail_count(kvr_cover_t *c, kvr_detail_t *d, uint32_t offset,
    kvr_tier_t tier)
{
    uint32_t   piece;
    uint16_t  *count;

    if (d->counts == 0) {
        piece = kvr_arena_alloc(c->arena, kvr_detail_counts_words(d));
        if (piece == 0) {
            return KVR_FULL;
        }

        kvr_zero_words(kvr_arena_at(c->arena, piece),
                       kvr_detail_counts_words(d));
        kvr_set32(c->mem, &d->counts, piece);
    }

    count = kvr_detail_counts(c, d) + tier * d->words * 64 + offset;

    if (*count == UINT16_MAX) {
        return KVR_FULL;
    }

    if (*count == 0) {
        kvr_set16(c->mem, &d->counted, d->counted + 1);
    }

    kvr_set16(c->mem, count, *count + 1);

    return KVR_OK;
}


void
kvr_detail_drop(kvr_cover_t *c, kvr_run_t *run, kvr_detail_t *d)
{
    uint32_t        i;
    kvr_detail_t   *last;
    kvr_details_t  *details;

    details = kvr_arena_at(c->arena, run->detail);
    last = &details->items[details->n - 1];

    kvr_arena_free(c->arena, d->bits);

    if (d->counts) {
        kvr_arena_free(c->arena, d->counts);
    }

    kvr_version_lock(c->mem, &run->version);

    if (d != last) {
        for (i = 0; i < 3; i++) {
            kvr_set_word(c->mem, d, i, ((kvr_word_t *) last)[i]);
        }
    }

    kvr_set32(c->mem, &details->n, details->n - 1);

    if (details->n == 0) {
        kvr_arena_free(c->arena, run->detail);
        kvr_set32(c->mem, &run->detail, 0);
    }

    kvr_version_unlock(&run->version);

    kvr_set64(c->mem, c->details, *c->details - 1);
}


/*
 * To be called after the bits have changed: works the depths out.  If a plain
 * depth, or nothing, describes the bits completely, the detail is freed.
 */

void
kvr_detail_settle(kvr_cover_t *c, kvr_run_t *run, kvr_detail_t *d)
{
    uint32_t   i, k, ones, lead, other, depth[3];
    uint64_t  *bits;

    bits = kvr_detail_bits(c, d);

    for (i = 0; i < 3; i++) {
        depth[i] = kvr_detail_lead(bits, d->words, i + 1);
    }

    ones = 0;
    other = 0;
    lead = depth[0];

    for (k = 0; k < d->words; k++) {
        ones += (uint32_t) __builtin_popcountll(bits[k]);
        other |= (bits[d->words + k] | bits[2 * d->words + k]
                  | bits[3 * d->words + k]) != 0;
    }

    if (!other && ones == lead && d->counted == 0) {
        k = d->view;
        kvr_detail_drop(c, run, d);

        /* the view has a pair already: this takes no memory */
        (void) kvr_pairs_set_depth(c, run, k, lead);
        return;
    }

    if (depth[0] == d->depth[0] && depth[1] == d->depth[1]
        && depth[2] == d->depth[2])
    {
        return;
    }

    kvr_version_lock(c->mem, &run->version);

    for (i = 0; i < 3; i++) {
        kvr_set16(c->mem, &d->depth[i], depth[i]);
    }

    kvr_version_unlock(&run->version);
}


/*
 * The number of contiguous blocks, from the run's start, that are held in any
 * of the first `rows` tiers.
 */

static uint32_t
kvr_detail_lead(const uint64_t *bits, uint32_t words, uint32_t rows)
{
    uint32_t  k, t;
    uint64_t  any;

    for (k = 0; k < words; k++) {
        any = 0;

        for (t = 0; t < rows; t++) {
            any |= bits[t * words + k];
        }

        if (~any) {
            return k * 64 + (uint32_t) __builtin_ctzll(~any);
        }
    }

    return words * 64;
}
