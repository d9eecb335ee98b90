/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Pairs: a run has one pair (view, depth) for each view that holds at least
 * one block of the run.  Few pairs are in the run's header, more of them in a
 * list, very many in a dense array, which the view's number indexes; see
 * kvr_run.h.
 *
 * All functions are for the owner of the zone's lock, in a transaction.
 */


#ifndef KVR_PAIRS_H_INCLUDED
#define KVR_PAIRS_H_INCLUDED


#include "kvr_run.h"


/* The memory that functions of coverage work on; for the lock's owner. */
typedef struct {
    kvr_mem_t    *mem;
    kvr_arena_t  *arena;
    uint32_t     *view_runs;            /* by view: the number of runs in
                                           which the view has a pair */
    uint64_t     *details;              /* the number of details */
    uint32_t      shadows;              /* the first view of which readers read
                                           bits: see kvr_classes.h */
} kvr_cover_t;


/* The pairs of a run that is not dense; the depths of one that is dense. */

static inline kvr_pair_t *
kvr_pairs_items(const kvr_cover_t *c, const kvr_run_t *run)
{
    return run->cap ? kvr_arena_at(c->arena, run->cover.ext)
                    : (kvr_pair_t *) run->cover.pairs;
}


static inline uint16_t *
kvr_pairs_dense(const kvr_cover_t *c, const kvr_run_t *run)
{
    return kvr_arena_at(c->arena, run->cover.ext);
}


/*
 * The depth word of the view's pair, or NULL if the view has no pair.
 * kvr_pairs_word() answers the most frequent case itself, _look() all cases.
 */
uint16_t *kvr_pairs_look(const kvr_cover_t *c, const kvr_run_t *run,
    uint32_t view);

static inline uint16_t *
kvr_pairs_word(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view)
{
    /* most runs have one holder */

    if (run->npairs && run->cap == 0 && run->cover.pairs[0].view == view) {
        return (uint16_t *) &run->cover.pairs[0].depth;
    }

    return kvr_pairs_look(c, run, view);
}


/*
 * kvr_pairs_get() returns the depth word, with its flag KVR_COVER_OWN, or 0 if
 * the view has no pair.  kvr_pairs_depth() returns the word without that flag:
 * a plain depth, or KVR_COVER_DETAIL if the view has a detail, or 0.
 */
static inline uint32_t
kvr_pairs_get(const kvr_cover_t *c, const kvr_run_t *run, uint32_t view)
{
    uint16_t  *word;

    word = kvr_pairs_word(c, run, view);

    return word ? *word : 0;
}


#define kvr_pairs_depth(c, run, view)                                         \
    kvr_cover_plain(kvr_pairs_get(c, run, view))

/*
 * Sets the plain depth of a view that has no detail.  0 removes the view's
 * pair.  KVR_FULL: no memory for a new pair.
 */
kvr_rc_t kvr_pairs_set_depth(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint32_t depth);

/* Marks a view that has a pair: it has handles of its own from now on. */
void kvr_pairs_set_own(kvr_cover_t *c, kvr_run_t *run, uint32_t view);

/* Removes the pair of a view.  The view's detail is freed already. */
void kvr_pairs_remove(kvr_cover_t *c, kvr_run_t *run, uint32_t view);

/*
 * Iterates over the views of a run, beginning with *i = 0: returns the view of
 * the first pair at position *i or later, and sets *i to its position; or
 * UINT32_MAX if there is no such pair.  If the caller removes that view,
 * another pair takes the position: call again with the same *i.  Otherwise
 * call again with *i + 1.
 */
uint32_t kvr_pairs_next(const kvr_cover_t *c, const kvr_run_t *run,
    uint32_t *i);


#endif /* KVR_PAIRS_H_INCLUDED */
