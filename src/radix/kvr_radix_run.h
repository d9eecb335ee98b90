/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The life of a run: made, compared, grown, trimmed, freed.  For kvr_radix.c,
 * under the zone's lock and in a transaction; comparing is for kvr_find.c too.
 */


#ifndef KVR_RADIX_RUN_H_INCLUDED
#define KVR_RADIX_RUN_H_INCLUDED


#include "kvr_radix.h"


/*
 * Room in the log that one step needs, whatever names engines choose:
 *
 *     4096    a view gets names of its own, or all of them go (KVR_OWN_COST)
 *      192    three names put or deleted (KVR_HANDLE_FAR each): one more, one
 *             that moves, one that was too much
 *       64    runs whose names are contested; a run's header
 *     1024    pieces of the arena, a dozen of 64 (KVR_ARENA_SETTLE) and what
 *             classes keep, given back once
 *      768    coverage, details, counters: many times what they are
 *
 * The deletion of a child comes after none of these, and has as much room to
 * itself (KVR_CHILDREN_ROW).
 */
#define KVR_RADIX_TXN_ROOM        6144
#define KVR_RADIX_LIMBO_ROOM      64


/* Would another step not fit? */
static inline bool
kvr_radix_short(const kvr_radix_t *x)
{
    return kvr_txn_room(x->mem) < KVR_RADIX_TXN_ROOM
           || kvr_arena_limbo_room(&x->arena) < KVR_RADIX_LIMBO_ROOM;
}


/* Between two steps: commits and goes on when it would not. */
static inline void
kvr_radix_breathe(kvr_radix_t *x)
{
    if (kvr_radix_short(x)) {
        kvr_txn_commit(x->mem);
        kvr_radix_begin(x);
        x->breaths++;
    }
}


/* Before words behind the end of a run's hashes, or names, are written. */
void kvr_radix_keep(kvr_radix_t *x, const uint64_t *words, uint32_t n);

/* The view has so many handles more, or less. */
static inline void
kvr_radix_count(kvr_radix_t *x, uint32_t view, int32_t n)
{
    kvr_set32(x->mem, &x->view_handles[view],
              x->view_handles[view] + (uint32_t) n);

    kvr_put64(&x->zone->pairs, x->zone->pairs + (uint64_t) (int64_t) n);
}


/* How many of n words are the same. */
uint32_t kvr_radix_compare(const uint64_t *a, const uint64_t *b, uint32_t n);

/*
 * How many of n hashes are the run's, from an offset on; offset + n is at most
 * its length.  For readers as well: what is torn ends it.
 */
uint32_t kvr_radix_same(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t offset, const uint64_t *hashes, uint32_t n);

/*
 * A new run of n hashes, n <= KVR_RUN_MAX, that hangs at an offset of its
 * parent (0, 0: at the root); KVR_FULL.
 */
kvr_rc_t kvr_radix_new_run(kvr_radix_t *x, uint32_t parent, uint32_t offset,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *run);

/* n hashes more at the end of a run that has place for them; KVR_FULL. */
kvr_rc_t kvr_radix_append(kvr_radix_t *x, uint32_t run,
    const uint64_t *hashes, uint32_t n);

/*
 * Somebody has let go of a run: forgets the names that nobody uses, trims a
 * tail that nobody has; frees the run when nobody has anything of it and
 * nothing hangs on it, then its parent likewise.
 * keep: a run to be left alone, whatever it holds at present; 0: none.
 */
void kvr_radix_tidy(kvr_radix_t *x, uint32_t run, uint32_t keep);


/* The i-th word of its pages. */
#define kvr_radix_paged(x, r, i)                                              \
    ((uint64_t *) kvr_arena_at(&(x)->arena, (r)->pages[(i) / KVR_RUN_PAGE])   \
     + (i) % KVR_RUN_PAGE)

/* The view lets go of all it has of a run; may commit before. */
void kvr_radix_drop(kvr_radix_t *x, uint32_t run, uint32_t view);

/*
 * Forgets some of what was not used for longest, but not that run; with a log
 * that holds what kvr_radix_begin() wrote, and leaves it so.  Adds to *cost;
 * false: there is nothing, or that is as much as an event may cost.
 */
bool kvr_radix_make_room(kvr_radix_t *x, uint32_t keep, uint32_t *cost);


#endif /* KVR_RADIX_RUN_H_INCLUDED */
