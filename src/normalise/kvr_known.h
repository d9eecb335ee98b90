/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The blocks that the normaliser knows of an engine, by (owner, handle): a
 * table of a fixed size in a process's own memory.
 *
 *     buckets ──► block ──► block         the same bucket
 *
 * An owner is one holder since its last clear: a holder that is cleared gets
 * a new owner, and all blocks of the old owner are dead at once.  Their
 * entries are reused when entries are needed.  Each block is in one of these
 * lists, oldest first:
 *
 *     live        a list per owner: held in some tier, as far as is known here
 *     gone        held in no tier, remembered for later events; the maximum
 *                 is a quarter of the table
 *     filtered    not indexed; the maximum is a quarter of the table
 *     dead        of former owners
 *
 * If the table is full, a new block takes the entry of a dead block, else of
 * the oldest block that is gone, else of the oldest filtered block; never of
 * a live block.
 */


#ifndef KVR_KNOWN_H_INCLUDED
#define KVR_KNOWN_H_INCLUDED


#include "../kvr.h"


typedef enum {
    KVR_KNOWN_FREE = 0,
    KVR_KNOWN_LIVE,
    KVR_KNOWN_GONE,
    KVR_KNOWN_FILTERED
} kvr_known_state_t;


typedef struct {
    uint64_t     handle;
    uint64_t     parent;            /* handle, with has_parent */
    uint64_t     path_hash;         /* of all local hashes of the chain */
    uint64_t     seed;              /* of the chain; 0: not known */
    union {
        uint64_t     one;           /* k = 1 */
        uint64_t    *many;          /* malloc()ed */
    } locals;
    uint32_t     owner;
    uint32_t     chain;             /* next in the bucket; 0: none */
    uint32_t     prev, next;        /* in the block's list; 0: none */
    uint32_t     stamp;             /* last event that used this block */
    uint16_t     copies[KVR_TIERS]; /* 0: not known to be in the tier */
    uint16_t     k;                 /* locals; 0: path hash not known */
    uint8_t      state : 4;         /* kvr_known_state_t */
    uint8_t      has_parent : 1;
    uint8_t      not_indexed : 1;   /* an event filtered it; any state */
    uint8_t      why;               /* kvr_why_t, with not_indexed */
} kvr_known_block_t;


typedef struct {
    uint32_t     first, last;
    uint32_t     n;
} kvr_known_list_t;


typedef struct {
    kvr_known_block_t  *blocks;     /* [0] is not used */
    uint32_t           *buckets;
    uint32_t            mask;
    uint32_t            max;
    uint32_t            fresh;      /* blocks from this on were never used */
    uint64_t            words;      /* malloc()ed for locals */
    uint64_t            secret;
    uint64_t            unremembered;

    kvr_known_list_t    free;
    kvr_known_list_t    gone;
    kvr_known_list_t    filtered;
    kvr_known_list_t    dead;
} kvr_known_t;


/* Makes a table of at most max blocks; false: out of memory. */
bool kvr_known_init(kvr_known_t *t, uint32_t max);
void kvr_known_done(kvr_known_t *t);

/* The block, which the table owns; NULL: not in the table. */
kvr_known_block_t *kvr_known_find(const kvr_known_t *t,
    uint32_t owner, uint64_t handle);

/* Prefetches n blocks into the CPU's cache, before they are looked up. */
void kvr_known_fetch(const kvr_known_t *t, uint32_t owner,
    const uint64_t *handles, uint32_t n);

/*
 * Adds a block, which must not be in the table, in a state; live is the
 * owner's list.  NULL: the table is full, which is counted as unremembered.
 */
kvr_known_block_t *kvr_known_add(kvr_known_t *t,
    kvr_known_list_t *live, uint32_t owner, uint64_t handle,
    kvr_known_state_t state);

/*
 * Gives a block its k > 0 local hashes, which are copied.  The caller has set
 * path_hash and seed.  Without memory the block gets none (k is 0), which is
 * counted as unremembered: its path hash is not known.
 */
void kvr_known_set_locals(kvr_known_t *t, kvr_known_block_t *b,
    const uint64_t *locals, uint32_t k);

/* Moves a block to another state; the block is the youngest there. */
void kvr_known_move(kvr_known_t *t, kvr_known_list_t *live,
    kvr_known_block_t *b, kvr_known_state_t state);

/* Takes a block out of the table. */
void kvr_known_delete(kvr_known_t *t, kvr_known_list_t *live,
    kvr_known_block_t *b);

/* Makes all live blocks of an owner dead. */
void kvr_known_drop(kvr_known_t *t, kvr_known_list_t *live);

static inline const uint64_t *
kvr_known_locals(const kvr_known_block_t *b)
{
    return b->k == 1 ? &b->locals.one : b->locals.many;
}


#endif /* KVR_KNOWN_H_INCLUDED */
