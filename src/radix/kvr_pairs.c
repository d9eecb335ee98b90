/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_pairs.h"


static kvr_rc_t kvr_pairs_insert(kvr_cover_t *c, kvr_run_t *run,
    uint32_t view, uint32_t depth);
static kvr_rc_t kvr_pairs_make_dense(kvr_cover_t *c, kvr_run_t *run,
    uint32_t views);
static void kvr_pairs_free_ext(kvr_cover_t *c, kvr_run_t *run);


static kvr_pair_t *
kvr_pairs_find(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view)
{
    uint32_t     i;
    kvr_pair_t  *pairs;

    pairs = kvr_pairs_items(c, run);

    for (i = 0; i < run->npairs; i++) {
        if (pairs[i].view == view) {
            return &pairs[i];
        }
    }

    return NULL;
}


uint16_t *
kvr_pairs_look(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view)
{
    uint16_t    *word;
    kvr_pair_t  *pair;

    if (run->npairs == KVR_COVER_DENSE) {

        if (view >= run->cap * 64u) {
            return NULL;
        }

        word = &kvr_pairs_dense(c, run)[view];

        return *word ? word : NULL;
    }

    pair = kvr_pairs_find(c, run, view);

    return pair ? &pair->depth : NULL;
}


kvr_rc_t
kvr_pairs_set_depth(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint32_t depth)
{
    uint16_t  *word;

    if (depth == 0) {
        kvr_pairs_remove(c, run, view);
        return KVR_OK;
    }

    word = kvr_pairs_word(c, run, view);

    if (word == NULL) {
        return kvr_pairs_insert(c, run, view, depth);
    }

    kvr_version_lock(c->mem, &run->version);
    kvr_set16(c->mem, word, depth | (*word & KVR_COVER_OWN));
    kvr_version_unlock(&run->version);

    return KVR_OK;
}


/* Sets KVR_COVER_OWN; readers do not use that bit, so no version changes. */

void
kvr_pairs_set_own(kvr_cover_t *c, kvr_run_t *run, uint32_t view)
{
    uint16_t  *word;

    word = kvr_pairs_word(c, run, view);

    if (word && (*word & KVR_COVER_OWN) == 0) {
        kvr_set16(c->mem, word, *word | KVR_COVER_OWN);
    }
}


/* Adds a pair for a view which holds nothing of the run yet. */

static kvr_rc_t
kvr_pairs_insert(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint32_t depth)
{
    uint32_t     n, cap, piece;
    kvr_rc_t     rc;
    kvr_pair_t  *pairs, *pair;

    n = run->npairs;
    cap = run->cap ? run->cap : KVR_COVER_INLINE;

    if (n == KVR_COVER_DENSE) {
        if (view >= run->cap * 64u) {
            rc = kvr_pairs_make_dense(c, run, view + 1);
            if (rc != KVR_OK) {
                return rc;
            }
        }

    } else if (n == cap) {

        if (n >= KVR_COVER_DENSE_AT && n >= view / 8) {
            rc = kvr_pairs_make_dense(c, run, view + 1);
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
            kvr_copy_halves(pairs, kvr_pairs_items(c, run), n);

            kvr_version_lock(c->mem, &run->version);
            kvr_pairs_free_ext(c, run);
            kvr_set32(c->mem, &run->cover.ext, piece);
            kvr_set16(c->mem, &run->cap, cap);
            kvr_version_unlock(&run->version);
        }
    }

    kvr_version_lock(c->mem, &run->version);

    if (run->npairs == KVR_COVER_DENSE) {
        kvr_set16(c->mem, &kvr_pairs_dense(c, run)[view], depth);

    } else {
        pair = &kvr_pairs_items(c, run)[n];
        kvr_set16(c->mem, &pair->view, view);
        kvr_set16(c->mem, &pair->depth, depth);
        kvr_set16(c->mem, &run->npairs, n + 1);
    }

    kvr_version_unlock(&run->version);

    kvr_set32(c->mem, &c->view_runs[view], c->view_runs[view] + 1);

    return KVR_OK;
}


/*
 * Turns pairs, or a shorter array, into an array with room for `views` views.
 */

static kvr_rc_t
kvr_pairs_make_dense(kvr_cover_t *c, kvr_run_t *run, uint32_t views)
{
    uint32_t     i, cap, piece;
    uint16_t    *depths;
    kvr_pair_t  *pairs;

    /* leave room to grow: while a fleet starts, views are added one by one */

    cap = (views + 63) / 64;

    if (run->npairs == KVR_COVER_DENSE) {
        cap = kvr_max(cap, run->cap + run->cap / 2u);

    } else {
        pairs = kvr_pairs_items(c, run);

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
        kvr_copy_words(depths, kvr_pairs_dense(c, run), run->cap * 16u);

    } else {
        pairs = kvr_pairs_items(c, run);

        for (i = 0; i < run->npairs; i++) {
            kvr_put16(&depths[pairs[i].view], pairs[i].depth);
        }
    }

    kvr_version_lock(c->mem, &run->version);
    kvr_pairs_free_ext(c, run);
    kvr_set32(c->mem, &run->cover.ext, piece);
    kvr_set16(c->mem, &run->cap, cap);
    kvr_set16(c->mem, &run->npairs, KVR_COVER_DENSE);
    kvr_version_unlock(&run->version);

    return KVR_OK;
}


static void
kvr_pairs_free_ext(kvr_cover_t *c, kvr_run_t *run)
{
    if (run->cap == 0) {
        return;
    }

    kvr_arena_free(c->arena, run->cover.ext);
}


void
kvr_pairs_remove(kvr_cover_t *c, kvr_run_t *run, uint32_t view)
{
    uint32_t     i, n;
    uint16_t    *depths;
    kvr_pair_t  *pair, *last;

    if (run->npairs == KVR_COVER_DENSE) {

        depths = kvr_pairs_dense(c, run);

        if (view >= run->cap * 64u || depths[view] == 0) {
            return;
        }

        kvr_version_lock(c->mem, &run->version);
        kvr_set16(c->mem, &depths[view], 0);

        n = run->cap * 64u;

        for (i = 0; i < n && depths[i] == 0; i++) { /* void */ }

        if (i == n) {
            kvr_pairs_free_ext(c, run);
            kvr_set16(c->mem, &run->cap, 0);
            kvr_set16(c->mem, &run->npairs, 0);
        }

        kvr_version_unlock(&run->version);

    } else {

        pair = kvr_pairs_find(c, run, view);

        if (pair == NULL) {
            return;
        }

        n = run->npairs - 1u;
        last = &kvr_pairs_items(c, run)[n];

        kvr_version_lock(c->mem, &run->version);

        if (pair != last) {
            kvr_set16(c->mem, &pair->view, last->view);
            kvr_set16(c->mem, &pair->depth, last->depth);
        }

        kvr_set16(c->mem, &run->npairs, n);

        if (n == 0 && run->cap) {
            kvr_pairs_free_ext(c, run);
            kvr_set16(c->mem, &run->cap, 0);
        }

        kvr_version_unlock(&run->version);
    }

    kvr_set32(c->mem, &c->view_runs[view], c->view_runs[view] - 1);
}


uint32_t
kvr_pairs_next(const kvr_cover_t *c, const kvr_run_t *run, uint32_t *i)
{
    uint16_t  *depths;

    if (run->npairs != KVR_COVER_DENSE) {
        return *i < run->npairs ? kvr_pairs_items(c, run)[*i].view
                                : UINT32_MAX;
    }

    depths = kvr_pairs_dense(c, run);

    for ( /* void */ ; *i < run->cap * 64u; (*i)++) {
        if (depths[*i]) {
            return *i;
        }
    }

    return UINT32_MAX;
}
