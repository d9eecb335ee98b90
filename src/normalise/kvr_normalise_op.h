/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the files of the normaliser share; no other room includes it.
 */


#ifndef KVR_NORMALISE_OP_H_INCLUDED
#define KVR_NORMALISE_OP_H_INCLUDED


#include "kvr_normalise.h"
#include "kvr_known.h"
#include "../zone/kvr_shard.h"


/* What is known of a holder, for as long as these three stay the same. */
typedef struct {
    uint64_t             token;         /* of the lease */
    uint32_t             generation;
    uint32_t             dropped;

    uint32_t             owner;         /* 0: nothing is known yet */
    bool                 all_known;     /* there is nothing in the index that
                                           is not known here */
    uint32_t             ngroups;
    uint32_t             groups[KVR_NORMALISE_GROUPS];
    uint8_t              kinds[KVR_NORMALISE_GROUPS];
    uint32_t             sizes[KVR_NORMALISE_GROUPS]; /* the largest block's */
    kvr_known_list_t     live;
} kvr_normalise_holder_t;


struct kvr_normaliser_s {
    kvr_router_t        *router;
    bool                 counting;
    uint32_t             max_holders;   /* of a shard */
    uint32_t             owner;         /* the last one given */
    uint32_t             stamp;         /* of the last event */
    uint64_t             restored;
    kvr_normalise_holder_t *holders;       /* of all shards */
    kvr_known_t  blocks;

    /* of one event */
    uint64_t    *handles;
    uint8_t     *tiers;
    uint64_t    *path;
    uint64_t    *pins;
    uint64_t    *locals;
};


/* One event, or what is done to one holder. */
typedef struct {
    kvr_normaliser_t    *e;
    kvr_shard_t         *k;
    kvr_worker_t        *w;
    uint32_t             worker;
    uint32_t             rank;
    uint32_t             holder;        /* in the shard */
    kvr_normalise_holder_t *h;

    uint32_t               npins;       /* blocks that hold up others */
    uint32_t               steps;       /* that may still be taken for them */

    kvr_normalise_emit_pt  emit;
    void                  *data;
} kvr_normalise_op_t;


/* Finds, or makes, the holder of (worker, rank), and its memory. */
kvr_rc_t kvr_normalise_op(kvr_normalise_op_t *op, uint32_t rank);

/* Drops the memory of a holder. */
void kvr_normalise_reset(kvr_normaliser_t *e, kvr_normalise_holder_t *h);

/* The memory of a block; NULL. */
static inline kvr_known_block_t *
kvr_normalise_find(const kvr_normalise_op_t *op, uint64_t handle)
{
    return kvr_known_find(&op->e->blocks, op->h->owner, handle);
}


/* A new one, which was not found; NULL: no room. */
static inline kvr_known_block_t *
kvr_normalise_add(kvr_normalise_op_t *op, uint64_t handle,
    kvr_known_state_t state)
{
    kvr_normaliser_t  *e;

    e = op->e;

    return kvr_known_add(&e->blocks, &op->h->live, op->h->owner,
                         handle, state);
}


/* The path hash of a block with k local hashes; path_hash: its parent's. */
static inline uint64_t
kvr_normalise_path_hash(uint64_t path_hash, const uint64_t *locals, uint32_t k)
{
    uint32_t  i;
    uint64_t  link[2];

    for (i = 0; i < k; i++) {
        link[0] = path_hash;
        link[1] = locals[i];
        path_hash = kvr_hash_bytes(link, sizeof(link), KVR_HASH_SEED);
    }

    return path_hash;
}


/*
 * The path hash of a parent; 0 when there is none.  If the parent is not
 * remembered, its handle stands for it.
 */
static inline uint64_t
kvr_normalise_parent_path_hash(const kvr_normalise_op_t *op, bool has_parent,
    uint64_t parent)
{
    const kvr_known_block_t  *b;

    if (!has_parent) {
        return 0;
    }

    b = kvr_normalise_find(op, parent);

    return b && b->k ? b->path_hash : parent;
}


/* In which tiers the index has it, as bits. */
static inline uint32_t
kvr_normalise_tiers(const kvr_normalise_op_t *op, uint64_t handle)
{
    uint32_t  view;

    view = op->k->fleet.holders[op->holder].view;

    return view == KVR_VIEW_NONE
           ? 0 : kvr_index_tiers(&op->k->index, view, handle);
}


/* An event's blocks, which are all asked for, here or in the index too. */
static inline void
kvr_normalise_fetch(const kvr_normalise_op_t *op, const uint64_t *handles,
    uint32_t n)
{
    uint32_t  view;

    view = op->k->fleet.holders[op->holder].view;

    if (view != KVR_VIEW_NONE && !op->h->all_known) {
        kvr_index_fetch(&op->k->index, view, handles, n);
    }

    kvr_known_fetch(&op->e->blocks, op->h->owner, handles, n);
}


/*
 * kvr_shard_apply().  Where a view is dropped for want of room for its holes
 * (KVR_FULL), that is emitted and all memory of the holder is dropped too.
 */
kvr_rc_t kvr_normalise_write(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why);

/* Counts what is left out; returns rc. */
kvr_rc_t kvr_normalise_not(kvr_normalise_op_t *op, kvr_rc_t rc, kvr_why_t *why,
    kvr_why_t what);

/* Emits what is common of an event: without tokens and what goes with them. */
void kvr_normalise_emit(kvr_normalise_op_t *op, const kvr_event_t *ev);

/* The first copy of a block in a tier; fresh: it was in no other. */
void kvr_normalise_hold(kvr_normalise_op_t *op, kvr_known_block_t *b,
    kvr_tier_t tier, bool fresh);

/* Another copy in the event's tier, unless it is none. */
void kvr_normalise_copy(kvr_normalise_op_t *op, kvr_known_block_t *b,
    const kvr_event_t *ev);


/* ---- kvr_groups.c ------------------------------------------------ */

/*
 * Why the event is not to be indexed, by the decoder's verdict and what is
 * known of its group; learns of groups.  KVR_WHY_NONE: it is.
 */
kvr_why_t kvr_groups_filter(kvr_normalise_op_t *op, const kvr_event_t *ev);

/* The number of a group in the holder's memory; ngroups: it is not there. */
uint32_t kvr_groups_find(const kvr_normalise_holder_t *h, uint32_t group);

/* What is said of a group; false: there is no room for another one. */
bool kvr_groups_learn(kvr_normalise_holder_t *h, uint32_t group,
    uint8_t kind, uint32_t size);

/*
 * Is a store, of which the parent is unknown, part of a block?  vLLM publishes
 * the end of a prompt that fills a block in part as a smaller one, in a chain
 * of blocks of that size, of which the others are not published.
 */
bool kvr_groups_partial(const kvr_normalise_op_t *op, const kvr_event_t *ev);

/* Remembers blocks that are filtered. */
void kvr_groups_not_indexed(kvr_normalise_op_t *op, const uint64_t *handles,
    uint32_t n, kvr_why_t why);


/* ---- kvr_restore.c ------------------------------------------------ */

/*
 * Has the index hold a block that is gone, by way of its ancestors, in a tier
 * that is not scored: KVR_EXTERNAL.  False: it, or one of these, is not
 * remembered.
 */
bool kvr_restore_pin(kvr_normalise_op_t *op, uint64_t handle);

/* All that was held for that alone is taken out again. */
void kvr_restore_unpin(kvr_normalise_op_t *op);

/* A store without tokens: a tier more, of blocks that are known, or were. */
kvr_rc_t kvr_restore_offload(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why);


#endif /* KVR_NORMALISE_OP_H_INCLUDED */
