/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The positional index: the same answers as the radix index's (kvr_radix.h),
 * by another way.  Each can be held against the other.
 *
 *                     places: (position, sequence hash) -> block
 *                     ┌────────┐
 *     prompt's ──────►│   0    │──► block ── who holds it, in which tiers
 *     hashes      ╲   │        │     ▲ parent
 *                  ╲─►│  64    │──► block     each block is found by itself:
 *                     │   …    │     ▲        a lookup may jump
 *                     └────────┘     │
 *                     handles: (view, engine's hash) -> block, tiers
 *
 * SEQUENCE HASHES are ours: each block's is made of its parent's and its local
 * hash, by a multiplication with the zone's secrets.  So a chain is known by
 * one number, whatever the engines call its blocks.  That two chains have the
 * same number is as likely as that two blocks' contents have the same local
 * hash, one in 2^64, and nobody can look for such chains without the secrets.
 *
 * The position and the local hash of a block are part of its sequence hash.
 * The table is keyed by the latter, because a table keyed by (position, local
 * hash) alone would have one long list for all prompts which differ in their
 * first block only, a date for instance.
 *
 * JUMPS ARE EXACT.  A view that holds a block holds, as a rule, all that are
 * before it.  Where it does not, a link is broken: a block that a view holds
 * in a row, behind one that it does not hold in that row (kvr_block.h).  The
 * broken links of each view are counted.  Of views that have none, a lookup
 * looks at few blocks, doubling its steps, and halving them where a view has
 * ended in between.  Other views are followed block by block.
 *
 *     find      about log2 of the prompt's blocks, for each depth at which
 *               some view ends; one a block for views with broken links
 *     store     one block, one place and one handle each
 *     remove    the same
 *
 * READERS AND WRITERS as in kvr_radix.h: one writer under the zone's lock, any
 * number of readers without one.  A lookup notes the versions of all blocks
 * that it saw, and that of the broken links, and looks at them again at its
 * end.
 *
 * STAMPS.  Storing a block stamps it with the time, and so does a lookup with
 * the deepest block that it matched, at most once a second.  What nobody has
 * touched for long can be evicted, the ends of chains first.
 */


#ifndef KVR_POSITIONAL_H_INCLUDED
#define KVR_POSITIONAL_H_INCLUDED


#include "../core/kvr_depths.h"
#include "kvr_block.h"
#include "kvr_entries.h"


#define KVR_POSITIONAL_STEPS     8192   /* blocks that one lookup looks at; the
                                           match ends where they do */
#define KVR_POSITIONAL_ATTEMPTS  8      /* of a lookup beside a writer */
#define KVR_POSITIONAL_CHUNK     128    /* blocks of one transaction */
#define KVR_POSITIONAL_STEP      4      /* the same, where room is made */
#define KVR_POSITIONAL_COST      65536  /* of making room, in one event:
                                           records that go */
#define KVR_POSITIONAL_STRIPE    64     /* places that share a version */

#define KVR_BROKEN_HIDDEN        0x80000000u    /* the view is reclaimed: it
                                                   has no answers any more */


typedef struct {
    uint64_t            places;         /* offset: u64 slots, block | tag */
    uint64_t            nplaces;        /* slots */
    uint64_t            blocks;         /* slots used */
    uint64_t            blocks_limit;
    uint64_t            stripes;        /* offset: u32 versions of places */
    uint64_t            view_handles;   /* offset: u32 a view */
    uint64_t            view_broken;    /* offset: u32 a view, links */
    uint32_t            max_views;
    uint32_t            broken_version; /* odd while a view's links get broken
                                           or whole */
    uint32_t            nbroken;        /* views with broken links or hidden */
    uint32_t            freeing;        /* block to free next; 0: none */
    uint64_t            secret[2];
    uint64_t            torn;           /* lookups cut short; relaxed adds */
    uint64_t            cut;            /* lookups ended at the maximum number
                                           of blocks; relaxed adds */
    uint64_t            reclaim_at;     /* next slot of the reclaim's scan */
    uint64_t            evict_at;       /* and of eviction's */
    uint32_t            evicting;       /* block to go on with; 0: none */
    uint32_t            pad;
    uint64_t            forgotten;      /* handles, since the start */
    kvr_entries_zone_t  handles;
    kvr_arena_zone_t    arena;
} kvr_positional_zone_t;


/* A process's handle. */
typedef struct {
    kvr_mem_t              *mem;
    kvr_positional_zone_t  *zone;
    kvr_arena_t             arena;
    kvr_entries_t           handles;
    uint64_t               *places;
    uint32_t               *stripes;
    uint32_t               *view_handles;
    uint32_t               *view_broken;
    uint32_t                now;        /* second, for the blocks' stamps; the
                                           owner of this handle sets it */
    uint32_t                cost;       /* the maximum number of records that
                                           one event evicts for memory; 0:
                                           nothing is evicted */
    uint32_t                emptying;   /* chunk, a guess: there is more to
                                           evict from it on; 0: none */

    /* called in a transaction, for each view that lost handles to evicting;
       may be NULL */
    void                  (*evicted)(void *data, uint32_t view,
                                     uint32_t handles);
    void                   *evicted_data;
} kvr_positional_t;


/* Bytes of the fixed tables that max_views views need. */
size_t kvr_positional_views_size(uint32_t max_views);

/* As kvr_radix_format(). */
void kvr_positional_format(kvr_mem_t *mem, kvr_positional_zone_t *z,
    uint64_t at, uint64_t size, uint32_t max_views, const uint64_t secret[4]);
void kvr_positional_attach(kvr_positional_t *x, kvr_mem_t *mem,
    kvr_positional_zone_t *z);


/* ---- readers ------------------------------------------------------------ */

/* As kvr_radix_find(). */
uint32_t kvr_positional_find(const kvr_positional_t *x,
    const uint64_t *hashes, uint32_t n, kvr_depths_t *out);


/* ---- writers: under the zone's lock; contracts as in kvr_radix.h -------- */

void kvr_positional_begin(kvr_positional_t *x);

kvr_rc_t kvr_positional_store(kvr_positional_t *x, uint32_t view,
    kvr_tier_t tier, bool has_parent, uint64_t parent,
    const uint64_t *handles, const uint64_t *hashes, uint32_t n,
    uint64_t seed, uint32_t *done);

kvr_rc_t kvr_positional_add_tier(kvr_positional_t *x, uint32_t view,
    kvr_tier_t tier, const uint64_t *handles, uint32_t n, uint32_t *unknown);

/* Takes no memory: always KVR_OK. */
kvr_rc_t kvr_positional_remove(kvr_positional_t *x, uint32_t view,
    kvr_tier_t tier, const uint64_t *handles, uint32_t n, uint32_t *unknown);

kvr_rc_t kvr_positional_seed(const kvr_positional_t *x, uint32_t view,
    uint64_t handle, uint64_t *seed);

/* As kvr_index_parent_handle(). */
kvr_rc_t kvr_positional_parent(const kvr_positional_t *x, uint32_t view,
    uint64_t handle, bool *has_parent, uint64_t *parent);

/* A view that is dying has no answers from the first call on. */
bool kvr_positional_reclaim(kvr_positional_t *x,
    bool (*dying)(void *data, uint32_t v), void *data, uint32_t slots);

static inline bool
kvr_positional_view_empty(const kvr_positional_t *x, uint32_t view)
{
    return x->view_handles[view] == 0;
}


/*
 * Evicts blocks that were not used for more than age seconds and on which
 * none hang, and then those before them likewise: takes them from all views,
 * with their handles in all tiers.  Looks at `slots` slots, a handle that is
 * evicted counting as some; true when a whole round over the table is done,
 * before that a long chain may be evicted in part.
 */
bool kvr_positional_evict(kvr_positional_t *x, uint32_t age,
    uint32_t slots);


#endif /* KVR_POSITIONAL_H_INCLUDED */
