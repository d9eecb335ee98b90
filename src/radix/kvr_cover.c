/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_cover.h"
#include "kvr_detail.h"


static void kvr_cover_set_bits(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint64_t *word, uint64_t bits);


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
                ? kvr_pairs_dense(c, run)[i]
                : kvr_pairs_items(c, run)[i].depth;

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

                if ((kvr_pairs_get(c, run, d->view) & KVR_COVER_OWN) == 0) {
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
    if (kvr_pairs_depth(c, run, view) == KVR_COVER_DETAIL) {
        kvr_detail_drop(c, run, kvr_detail_find(c, run, view));
    }

    kvr_pairs_remove(c, run, view);
}


/* ---- one block ---------------------------------------------------------- */

uint32_t
kvr_cover_tiers(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view,
    uint32_t offset)
{
    uint32_t       t, depth, tiers;
    uint64_t      *bits;
    kvr_detail_t  *d;

    depth = kvr_pairs_depth(c, run, view);

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

    depth = kvr_pairs_depth(c, run, view);

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

    depth = kvr_pairs_depth(c, run, view);

    if (depth != KVR_COVER_DETAIL) {

        if (tier == KVR_DEVICE && offset == depth) {
            return kvr_pairs_set_depth(c, run, view, depth + 1);
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

    kvr_cover_set_bits(c, run, view, word, *word | bit);
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

    depth = kvr_pairs_depth(c, run, view);

    if (depth != KVR_COVER_DETAIL) {

        if (tier != KVR_DEVICE || offset >= depth) {
            return KVR_DECLINED;
        }

        if (offset == depth - 1) {
            return kvr_pairs_set_depth(c, run, view, offset);
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

    kvr_cover_set_bits(c, run, view, word, *word & ~bit);
    kvr_detail_settle(c, run, d);

    return KVR_OK;
}


/* Readers read the bits of shadows: these change under the run's version. */

static void
kvr_cover_set_bits(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint64_t *word, uint64_t bits)
{
    if (view < c->shadows) {
        kvr_set64(c->mem, word, bits);
        return;
    }

    kvr_version_lock(c->mem, &run->version);
    kvr_set64(c->mem, word, bits);
    kvr_version_unlock(&run->version);
}
