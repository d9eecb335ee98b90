/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Classes: which blocks of a run the KV-cache groups of a view hold, besides
 * the group of full attention that names the places of its blocks.
 * core/kvr_hit.h has the rule, and what a class is.
 *
 *     view       holds blocks as every view does: the naming group
 *     shadow     a second view, with a bit for each block and class: class i
 *                holds a block when the shadow holds it in tier i
 *     classes    a word for each view and class: kind, window, span
 *
 *     view   ── A:4         a b c d      a find tells 4
 *     shadow ── A':1001     class 0 (a window of one block) holds a and d
 *               A':0100     class 1 (mamba) holds b
 *                           the hit is 0: window 1 or 4, mamba 2
 *
 * A SHADOW IS A VIEW.  The shadow of view v is view v + shadows.  Its bits are
 * the rows of its details (kvr_run.h), in the arena; they are logged, rolled
 * back, and freed with the run, as all coverage is.  So a process that dies
 * leaves of classes what it leaves of any view, and a run or a view takes its
 * bits along.  An index whose views have no classes has no shadows in its
 * runs: nothing of it is larger, and nothing takes longer.
 *
 * The view names the places: a class gets a block only by a handle by which
 * the view holds it at that moment.  The shadow then holds the block by that
 * handle, too, until the class loses it, also while the view does not hold it.
 *
 * READERS.  kvr_radix_find() skips shadows.  Where a view has classes
 * (zone->classed), the runs on the way are gone through once more: the bits of
 * each such view are put side by side, and kvr_hit() does the rest.  Bits
 * change under their run's version, so they belong to the same moment as the
 * depths.
 *
 * BOUNDS.  Views are numbered by 16 bits, so that views from
 * KVR_VIEWS_LIMIT - shadows on have no shadow: kvr_classes_set() declines,
 * and the caller must not trust the view.  A hit is at most
 * KVR_CLASSES_BLOCKS.  All views of a lookup together go through
 * KVR_CLASSES_RUNS runs at most: where they would go through more, the views
 * with the longest ways have their hits among the first runs of these, and the
 * lookup is cut.
 */


#ifndef KVR_CLASSES_H_INCLUDED
#define KVR_CLASSES_H_INCLUDED


#include "../core/kvr_depths.h"
#include "kvr_radix_state.h"


#define KVR_CLASSES_BLOCKS   65536      /* of a prompt: 8 KiB a class */
#define KVR_CLASSES_RUNS     4096       /* (view, run) pairs of a lookup */


/* A run on the way of a lookup. */
typedef struct {
    uint32_t    run;
    uint32_t    version;
    uint32_t    stamp;
    uint32_t    pos;                    /* of the prompt, where it begins */
} kvr_step_t;


/* The number of views, from the first, that have a shadow. */
static inline uint32_t
kvr_classes_shadows(uint32_t max_views)
{
    return kvr_min(max_views, KVR_VIEWS_LIMIT - max_views);
}


/* Bytes of the words of all views, a multiple of 64; to be zeroed. */
static inline size_t
kvr_classes_size(uint32_t max_views)
{
    return ((size_t) kvr_classes_shadows(max_views) * KVR_CLASSES_MAX
            * sizeof(uint64_t) + 63) & ~(size_t) 63;
}


static inline uint32_t
kvr_classes_shadow(const kvr_radix_t *x, uint32_t view)
{
    return view + x->zone->shadows;
}


/* The view whose shadow this is, or the view itself. */
static inline uint32_t
kvr_classes_view(const kvr_radix_t *x, uint32_t view)
{
    return view < x->zone->shadows ? view : view - x->zone->shadows;
}


/*
 * Copies the view's classes to out, KVR_CLASSES_MAX at most, and returns their
 * number: those before the first that was not set.  For readers, too.
 */
uint32_t kvr_classes_get(const kvr_radix_t *x, uint32_t view,
    kvr_class_t *out);

/*
 * For readers: sets the hit of each view with classes, whose depths out has,
 * by the runs on the way.
 */
void kvr_classes_find(const kvr_radix_t *x, const kvr_step_t *steps,
    uint32_t nsteps, kvr_depths_t *out);


/* ---- writers: under the zone's lock, in a transaction ------------------- */

/*
 * Describes a class of the view.  KVR_DECLINED: the view can have no shadow,
 * or the classes before this one were not described.
 */
kvr_rc_t kvr_classes_set(kvr_radix_t *x, uint32_t view, uint32_t i,
    const kvr_class_t *c);

/* Forgets the view's classes.  The shadow is left to the reclaim. */
void kvr_classes_forget(kvr_radix_t *x, uint32_t view);


#endif /* KVR_CLASSES_H_INCLUDED */
