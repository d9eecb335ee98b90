/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Pairs: for each view that holds something of a run a pair (view, depth), in
 * the run's header, in a list or in a dense array; see kvr_run.h.  A run has
 * no two pairs of a view.
 *
 * All of it is for the owner of the zone's lock, in a transaction.
 */


#ifndef KVR_PAIRS_H_INCLUDED
#define KVR_PAIRS_H_INCLUDED


#include "kvr_run.h"


/* The memory of the coverage; for the owner of the zone's lock. */
typedef struct {
    kvr_mem_t    *mem;
    kvr_arena_t  *arena;
    uint32_t     *view_runs;            /* runs a view has a pair in */
    uint64_t     *details;              /* how many there are */
    uint32_t      shadows;              /* the first view of which readers read
                                           bits: see kvr_classes.h */
} kvr_cover_t;


/* The pairs of a run, and the depths of one that is dense. */

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


/* Where the view's pair says what it has, or NULL. */
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
 * get: the word of the view's pair, with KVR_COVER_OWN; 0: the view has no
 * pair.  depth: the word without KVR_COVER_OWN: the depth of a view without
 * details; KVR_COVER_DETAIL; 0.
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

/* Sets the depth of a view without a detail.  0 takes the view out. */
kvr_rc_t kvr_pairs_set_depth(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint32_t depth);

/* Notes that a view with a pair has handles of its own from now on. */
void kvr_pairs_set_own(kvr_cover_t *c, kvr_run_t *run, uint32_t view);

/* Takes a view out that has no detail, or none any more. */
void kvr_pairs_remove(kvr_cover_t *c, kvr_run_t *run, uint32_t view);

/*
 * The view with a pair at place *i or behind it, *i being moved there;
 * UINT32_MAX when there is none.  When that view is dropped the next one comes
 * to the same place; otherwise go on with *i + 1.
 */
uint32_t kvr_pairs_next(const kvr_cover_t *c, const kvr_run_t *run,
    uint32_t *i);


#endif /* KVR_PAIRS_H_INCLUDED */
