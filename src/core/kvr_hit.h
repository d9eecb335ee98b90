/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The hit: how many blocks of a prompt an engine takes from its cache, when
 * its model has several KV-cache groups.
 *
 * Each layer of a model belongs to a group, and the engine keeps and evicts
 * blocks group by group.  Groups of the same kind, window and block size form
 * a class; a class holds a block when all its groups hold it.  The hit is the
 * largest n, at most floor((the prompt's tokens - 1) / block), which each
 * class accepts:
 *
 *     full       holds [0, n)
 *     window     holds [max(0, n - w), n), w = ceil((window - 1) / block)
 *     mamba      holds block n - 1; n = 0 is accepted
 *     chunked    holds [floor(n / c) * c, n), with chunks of c blocks
 *
 * An engine that drafts tokens (EAGLE, MTP) computes one block again: full and
 * window classes must hold block n, too.  The rule is that of vLLM 0.32.
 *
 *     full       1 1 1 1 1 1 1 1 1 0        accepts 0..9
 *     window, 2  1 1 0 0 0 1 1 1 0 0        accepts 0..2, 7, 8
 *     hit                        8
 *
 * Everything here is pure: no memory but the caller's, no locks.
 */


#ifndef KVR_HIT_H_INCLUDED
#define KVR_HIT_H_INCLUDED


#include "../kvr.h"


#define KVR_CLASSES_MAX      4          /* of a holder, besides the group of
                                           full attention that names the
                                           places of its blocks */


/* The kind of a KV-cache group. */
typedef enum {
    KVR_GROUP_UNSAID = 0,
    KVR_GROUP_INDEXED,      /* full attention of some kind */
    KVR_GROUP_OTHER,        /* a kind without a rule: not indexed */
    KVR_GROUP_WINDOW,       /* sliding window */
    KVR_GROUP_MAMBA,        /* a state for each block's end */
    KVR_GROUP_CHUNKED,      /* chunked local attention */
    KVR_GROUP_KINDS
} kvr_group_kind_t;


/* True of a kind whose groups can form a class. */
static inline bool
kvr_group_has_rule(uint32_t kind)
{
    return kind != KVR_GROUP_UNSAID && kind != KVR_GROUP_OTHER
           && kind < KVR_GROUP_KINDS;
}


typedef struct {
    uint32_t    kind;               /* kvr_group_kind_t with a rule */
    uint32_t    window;             /* w above, engine's blocks; else 0 */
    uint32_t    span;               /* the index's blocks in an engine's
                                       block, 1..KVR_EVENT_BLOCKS_MAX */
} kvr_class_t;


/* Settings of an engine, of which no event tells. */
typedef struct {
    uint32_t    chunk;              /* the index's blocks of a chunk; 0: not
                                       known, and chunked classes accept all */
    bool        drop;               /* the engine drafts tokens */
} kvr_hit_rule_t;


/*
 * The hit in the index's blocks.  full: the blocks that the naming group holds
 * from the prompt's start on.  limit: floor((the prompt's tokens - 1) / the
 * index's block).  rows[i]: bits of the blocks that class i holds, at least
 * min(full, limit) of them.  span: that of an engine without classes.
 */
uint32_t kvr_hit(const kvr_class_t *classes, uint32_t nclasses,
    const uint64_t *const rows[KVR_CLASSES_MAX], uint32_t span, uint32_t full,
    uint32_t limit, const kvr_hit_rule_t *rule);


#endif /* KVR_HIT_H_INCLUDED */
