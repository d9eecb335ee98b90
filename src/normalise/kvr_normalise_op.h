/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Types and functions that the files of the normaliser share; only files of
 * src/normalise include this header.
 */


#ifndef KVR_NORMALISE_OP_H_INCLUDED
#define KVR_NORMALISE_OP_H_INCLUDED


#include "kvr_normalise.h"
#include "kvr_known.h"
#include "../zone/kvr_shard.h"


/*
 * A KV cache group of a holder.  The first group of full attention names the
 * places of blocks: its blocks are the index's.  Groups of other kinds with a
 * rule (kvr_hit.h), and further ones of full attention, belong to a class, and
 * their blocks are in the table of known blocks under an owner of their own.
 */
typedef struct {
    uint32_t             group;         /* number */
    uint32_t             size;          /* tokens of the largest block */
    uint32_t             window;        /* tokens; 0: none */
    uint32_t             owner;         /* 0: no class */
    uint8_t              kind;          /* kvr_group_kind_t */
    uint8_t              class_at;
} kvr_normalise_group_t;


/* Memory of a holder, valid while the first three fields are the holder's. */
typedef struct {
    uint64_t             token;         /* of the lease */
    uint32_t             generation;
    uint32_t             dropped;

    uint32_t             owner;         /* 0: nothing is remembered yet */
    bool                 all_known;     /* every handle that the index holds
                                           for this holder has a block here,
                                           so a miss spares a lookup */
    uint32_t             ngroups;
    kvr_normalise_group_t  groups[KVR_NORMALISE_GROUPS];
    uint32_t             nclasses;
    kvr_known_list_t     live;          /* of all owners */
} kvr_normalise_holder_t;


struct kvr_normaliser_s {
    kvr_router_t        *router;
    bool                 counting;
    bool                 groups;        /* classes of groups are indexed */
    uint32_t             max_holders;   /* of a shard */
    uint32_t             owner;         /* the last number given out */
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


/* One call's work on one holder. */
typedef struct {
    kvr_normaliser_t    *e;
    kvr_shard_t         *k;
    kvr_worker_t        *w;
    uint32_t             worker;
    uint32_t             rank;
    uint32_t             holder;        /* in the shard */
    kvr_normalise_holder_t *h;

    kvr_normalise_group_t *group;       /* the event's, if it has a class */

    uint32_t               npins;       /* ancestors held for their children */
    uint32_t               steps;       /* remaining limit of steps for pins */

    kvr_normalise_emit_pt  emit;
    void                  *data;
} kvr_normalise_op_t;


/* Takes the shard's lock and finds the worker.  KVR_OK: the caller unlocks. */
kvr_rc_t kvr_normalise_enter(kvr_normalise_op_t *op, kvr_normaliser_t *e,
    const char *worker, size_t len);

/* Finds, or makes, the holder of (op->worker, rank), and its memory. */
kvr_rc_t kvr_normalise_op(kvr_normalise_op_t *op, uint32_t rank);

/* Drops the memory of a holder, groups included. */
void kvr_normalise_reset(kvr_normaliser_t *e, kvr_normalise_holder_t *h);

/* The remembered block; NULL: not remembered. */
static inline kvr_known_block_t *
kvr_normalise_find(const kvr_normalise_op_t *op, uint64_t handle)
{
    return kvr_known_find(&op->e->blocks, op->h->owner, handle);
}


/* Adds a block that is not remembered yet; NULL: the table is full. */
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


/* The tiers in which the index holds the handle, a bit each. */
static inline uint32_t
kvr_normalise_tiers(const kvr_normalise_op_t *op, uint64_t handle)
{
    uint32_t  view;

    view = op->k->fleet.holders[op->holder].view;

    return view == KVR_VIEW_NONE
           ? 0 : kvr_index_tiers(&op->k->index, view, handle);
}


/* Prefetches an event's blocks, before all of them are looked up. */
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
 * Calls kvr_shard_apply().  If the index drops the whole view because it has
 * no space for its holes (KVR_FULL), a CLEAR is emitted and the memory of the
 * holder is dropped too.
 */
kvr_rc_t kvr_normalise_write(kvr_normalise_op_t *op, const kvr_change_t *c,
    kvr_why_t *why);

/* The second half of it, for those who call the shard themselves. */
void kvr_normalise_dropped(kvr_normalise_op_t *op);

/* Counts an event that is left out for the reason `what`; returns rc. */
kvr_rc_t kvr_normalise_not(kvr_normalise_op_t *op, kvr_rc_t rc, kvr_why_t *why,
    kvr_why_t what);

/* Emits a change, if anybody listens. */
void kvr_normalise_emit(kvr_normalise_op_t *op, const kvr_change_t *c);

/* The first copy of a block in a tier; fresh: it was in no other. */
void kvr_normalise_hold(kvr_normalise_op_t *op, kvr_known_block_t *b,
    kvr_tier_t tier, bool fresh);

/* Another copy in a tier; reused: it is none. */
void kvr_normalise_copy(kvr_normalise_op_t *op, kvr_known_block_t *b,
    kvr_tier_t tier, bool reused);


/*
 * Does the removal of handle i take out the last copy of the block?  If not,
 * one copy less is counted.
 */
bool kvr_normalise_last(kvr_normalise_op_t *op, kvr_known_block_t *b,
    const kvr_event_t *ev, uint32_t i);


/* ---- kvr_groups.c ------------------------------------------------ */

/*
 * The reason not to index the event, by the decoder's verdict and the event's
 * group, which is remembered; KVR_WHY_NONE: index it.
 */
kvr_why_t kvr_groups_filter(kvr_normalise_op_t *op, const kvr_event_t *ev);

/* The index of a group in the holder's memory; ngroups: not remembered. */
uint32_t kvr_groups_find(const kvr_normalise_holder_t *h, uint32_t group);

/*
 * Remembers kind and size of a group.  Returns its index, or
 * KVR_NORMALISE_GROUPS: there are that many already.  *fresh: the group was
 * not known.  A group with a class keeps the kind that it had first.
 */
uint32_t kvr_groups_learn(kvr_normalise_holder_t *h, uint32_t group,
    uint8_t kind, uint32_t size, bool *fresh);

/*
 * Is this store, whose parent is unknown, a partial block?  If the end of a
 * prompt does not fill a block, vLLM publishes it as a smaller block, in a
 * chain of blocks of that size, and does not publish the rest of that chain.
 */
bool kvr_groups_partial(const kvr_normalise_op_t *op, const kvr_event_t *ev);

/* Remembers blocks that are filtered. */
void kvr_groups_not_indexed(kvr_normalise_op_t *op, const uint64_t *handles,
    uint32_t n, kvr_why_t why);


/* ---- kvr_group_class.c ---------------------------------------------- */

/*
 * Puts a group that has just been learned, which must be the last, into its
 * class, and describes a new class to the index.  A group that can have none
 * makes the worker hybrid.
 */
void kvr_class_join(kvr_normalise_op_t *op);

/* Describes all classes to the index. */
void kvr_class_describe(kvr_normalise_op_t *op);

/* Applies an event of op->group. */
kvr_rc_t kvr_class_event(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why);

/* Tells which classes hold these blocks, which the naming group has stored. */
void kvr_class_stored(kvr_normalise_op_t *op, const uint64_t *handles,
    uint32_t n);

/* Empties all classes after a clear: the groups stay, their blocks do not. */
void kvr_class_cleared(kvr_normalise_op_t *op);


/* ---- kvr_restore.c ------------------------------------------------ */

/*
 * Stores a block that is gone, and its ancestors, in the index again, in a
 * tier that is not scored: KVR_EXTERNAL.  False: the block, or an ancestor, is
 * not remembered.
 */
bool kvr_restore_pin(kvr_normalise_op_t *op, uint64_t handle);

/* Takes the blocks out again that only kvr_restore_pin() holds. */
void kvr_restore_unpin(kvr_normalise_op_t *op);

/* Applies a store without tokens: known, or gone, blocks get one more tier. */
kvr_rc_t kvr_restore_offload(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why);


#endif /* KVR_NORMALISE_OP_H_INCLUDED */
