/*
 * Copyright (C) the nginx-kv-router authors
 *
 * One interface for both indexes, kvr_radix.h and kvr_positional.h.  A zone
 * has one of them, chosen when the zone is made.  Both give the same answers,
 * block for block.
 */


#ifndef KVR_INDEX_H_INCLUDED
#define KVR_INDEX_H_INCLUDED


#include "../positional/kvr_positional.h"
#include "../radix/kvr_classes.h"
#include "../radix/kvr_radix.h"


typedef enum {
    KVR_INDEX_RADIX = 0,
    KVR_INDEX_POSITIONAL = 1,
    KVR_INDEX_KINDS = 2
} kvr_index_kind_t;


/* In the zone. */
typedef struct {
    uint32_t                   kind;
    uint32_t                   pad;
    union {
        kvr_radix_zone_t       radix;
        kvr_positional_zone_t  positional;
    } u;
} kvr_index_zone_t;


/* A process's handle. */
typedef struct {
    kvr_index_zone_t          *zone;
    union {
        kvr_radix_t            radix;
        kvr_positional_t       positional;
    } u;
} kvr_index_t;


/* The use of memory and of tables, and counters. */
typedef struct {
    uint64_t    arena;                  /* bytes */
    uint64_t    arena_max;
    uint64_t    pairs;                  /* (view, handle) */
    uint64_t    handles;                /* entries of their table */
    uint64_t    handles_max;
    uint64_t    entries;                /* of the table: runs, or blocks */
    uint64_t    entries_max;
    uint64_t    blocks;                 /* positions in the tree */
    uint64_t    holes;                  /* (run, view) pairs with a detail, or
                                           broken links */
    uint64_t    forgotten;              /* handles, since the start */
    uint64_t    torn;                   /* lookups cut short */
    uint64_t    cut;                    /* lookups ended at their maximum */
    uint64_t    bytes;                  /* arena, handles and entries */
} kvr_index_usage_t;


const char *kvr_index_name(kvr_index_kind_t kind);

/* Bytes of the fixed tables that max_views views need. */
size_t kvr_index_views_size(kvr_index_kind_t kind, uint32_t max_views);

/* As kvr_radix_format() and kvr_radix_attach(). */
void kvr_index_format(kvr_mem_t *mem, kvr_index_zone_t *z,
    kvr_index_kind_t kind, uint64_t at, uint64_t size, uint32_t max_views,
    const uint64_t secret[4]);
void kvr_index_attach(kvr_index_t *x, kvr_mem_t *mem, kvr_index_zone_t *z);

/* True when the header can be that of an index in a zone of so many bytes. */
bool kvr_index_valid(const kvr_index_zone_t *z, uint64_t size);

void kvr_index_usage(const kvr_index_t *x, kvr_index_usage_t *out);

/* The number of slots of the table that reclaim and eviction go over. */
uint64_t kvr_index_slots(const kvr_index_t *x);

/* Sets the time, in seconds, with which lookups and stores stamp blocks. */
void kvr_index_set_now(kvr_index_t *x, uint32_t now);

/*
 * Sets the function that the index calls, in a transaction, for each view that
 * lost handles by eviction.
 */
void kvr_index_on_evict(kvr_index_t *x,
    void (*evicted)(void *data, uint32_t view, uint32_t handles), void *data);

/* Counts a lookup that the caller cut short beside a writer. */
void kvr_index_torn(const kvr_index_t *x);

static inline kvr_arena_t *
kvr_index_arena(kvr_index_t *x)
{
    return x->zone->kind == KVR_INDEX_RADIX ? &x->u.radix.arena
                                            : &x->u.positional.arena;
}


static inline uint32_t
kvr_index_find(const kvr_index_t *x, const uint64_t *hashes, uint32_t n,
    kvr_depths_t *out)
{
    return x->zone->kind == KVR_INDEX_RADIX
           ? kvr_radix_find(&x->u.radix, hashes, n, out)
           : kvr_positional_find(&x->u.positional, hashes, n, out);
}


/* ---- writers: under the zone's lock, as in kvr_radix.h ------------------ */

void kvr_index_begin(kvr_index_t *x);
kvr_rc_t kvr_index_store(kvr_index_t *x, uint32_t view, kvr_tier_t tier,
    bool has_parent, uint64_t parent, const uint64_t *handles,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *done);
kvr_rc_t kvr_index_add_tier(kvr_index_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown);
kvr_rc_t kvr_index_remove(kvr_index_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown);
kvr_rc_t kvr_index_seed(const kvr_index_t *x, uint32_t view, uint64_t handle,
    uint64_t *seed);
bool kvr_index_reclaim(kvr_index_t *x, bool (*dying)(void *data, uint32_t v),
    void *data, uint32_t slots);
bool kvr_index_evict(kvr_index_t *x, uint32_t age, uint32_t slots);
/*
 * Evicts some blocks after kvr_arena_alloc() has found no memory for another
 * purpose than the index, so that the caller can try again.  The log must be
 * as kvr_index_begin() left it, and is so again.  False: there is nothing to
 * evict.
 */
bool kvr_index_make_room(kvr_index_t *x);

bool kvr_index_view_empty(const kvr_index_t *x, uint32_t view);

/*
 * Classes of KV-cache groups, see kvr_classes.h; a positional index has none.
 * set: KVR_DECLINED, the view can have no such class.  get: the number of the
 * view's classes, without the lock.  hold: the class holds these blocks of the
 * view from now on (add), or no longer; as kvr_index_add_tier() and
 * kvr_index_remove().  The view must have the class.
 */
kvr_rc_t kvr_index_class_set(kvr_index_t *x, uint32_t view, uint32_t i,
    const kvr_class_t *c);
uint32_t kvr_index_class_get(const kvr_index_t *x, uint32_t view,
    kvr_class_t out[KVR_CLASSES_MAX]);
void kvr_index_class_forget(kvr_index_t *x, uint32_t view);
kvr_rc_t kvr_index_class_hold(kvr_index_t *x, uint32_t view, uint32_t i,
    bool add, const uint64_t *handles, uint32_t n, uint32_t *unknown);

/*
 * The handle by which the view holds the block before the one that it holds by
 * this handle.  *has_parent becomes false when there is no block before, or
 * when the view does not hold that block.  KVR_DECLINED: the view holds no
 * block by this handle.
 */
kvr_rc_t kvr_index_parent_handle(const kvr_index_t *x, uint32_t view,
    uint64_t handle, bool *has_parent, uint64_t *parent);

/* Bits of the tiers in which the view holds a block by this handle. */
uint32_t kvr_index_tiers(const kvr_index_t *x, uint32_t view,
    uint64_t handle);

/* Fetches the handles' entries into the cache, before they are looked up. */
void kvr_index_fetch(const kvr_index_t *x, uint32_t view,
    const uint64_t *handles, uint32_t n);

static inline bool
kvr_index_knows(const kvr_index_t *x, uint32_t view, uint64_t handle)
{
    return kvr_index_tiers(x, view, handle) != 0;
}


/* The number of handles of a view; no lock. */
uint32_t kvr_index_held(const kvr_index_t *x, uint32_t view);


/* ---- for the dump and the tests ----------------------------------------- */

/*
 * The address of a block is (run, offset).  In the positional index a run is
 * one block.
 */
typedef kvr_radix_handle_t  kvr_index_handle_t;

/*
 * Calls tell() with every handle of every view.  Where *shadow is true of
 * kvr_index_view(), the tiers are bits of the classes of that view that hold
 * the block.  The caller must have the lock, and the log must be empty.
 */
void kvr_index_each(const kvr_index_t *x,
    void (*tell)(void *data, const kvr_index_handle_t *h), void *data);


/* The number of views with classes; no lock. */
uint32_t kvr_index_classed(const kvr_index_t *x);

/* The view, below the fleet's max_views, of a number that each() tells. */
uint32_t kvr_index_view(const kvr_index_t *x, uint32_t view, bool *shadow);

/* The parent of a run, 0: the root; *offset becomes the number of the parent's
 * blocks before the run. */
uint32_t kvr_index_parent(const kvr_index_t *x, uint32_t run,
    uint32_t *offset);

/* The number of blocks before a run. */
uint32_t kvr_index_depth(const kvr_index_t *x, uint32_t run);

/*
 * Walks over the runs, in no order: returns the first run from *slot on, and
 * sets *slot behind it; begins with *slot = 0.  0: there is no run left.  For
 * the runs of a radix index: a positional index answers 0.
 */
uint32_t kvr_index_next_run(const kvr_index_t *x, uint64_t *slot);

/* The number of blocks of such a run. */
uint32_t kvr_index_run_blocks(const kvr_index_t *x, uint32_t run);

/*
 * Walks over the views that hold blocks of such a run, beginning with *i = 0:
 * returns a view as kvr_index_each() tells it, UINT32_MAX behind the last one;
 * *held becomes the number of blocks that it holds, in any tier.
 */
uint32_t kvr_index_next_view(const kvr_index_t *x, uint32_t run, uint32_t *i,
    uint32_t *held);

/* The local hash of a block. */
uint64_t kvr_index_hash(const kvr_index_t *x, uint32_t run, uint32_t offset);


#endif /* KVR_INDEX_H_INCLUDED */
