/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Prompts in flight: which blocks of a prompt a worker works on already, for
 * other requests, so that a prefix that many share is counted once at each
 * holder.
 *
 *     a b c d e      a b c x y      a b c d e z       three prompts, and
 *
 *     [a b c] ──┬── [d e] ──── [z]                    the tree of them
 *               └── [x y]
 *
 * A node is a piece of one or more prompts, and lists the holders that work on
 * it, with the number of requests of each.  A node is split where prompts part
 * and goes with its last request.  Blocks are compared by their local hashes.
 *
 * The tree is a process's own: what is counted is exact for the requests of
 * this process, and their sum over several an upper bound.  It is not for
 * threads.  It has KVR_INFLIGHT_NODES nodes at most; requests that find none,
 * or no memory, are counted as sharing nothing.
 */


#ifndef KVR_INFLIGHT_H_INCLUDED
#define KVR_INFLIGHT_H_INCLUDED


#include "../kvr.h"


#define KVR_INFLIGHT_NODES   65536      /* two are needed for a request at
                                           most; nginx has fewer connections */


typedef struct kvr_inflight_s  kvr_inflight_t;


/* NULL when out of memory. */
kvr_inflight_t *kvr_inflight_create(void);
void kvr_inflight_destroy(kvr_inflight_t *f);

/* What a process has in flight at one holder. */
typedef struct {
    uint32_t    generation;         /* of the holder that is meant */
    uint32_t    depth;              /* blocks */
} kvr_inflight_depth_t;


/*
 * A request for the prompt locals[0..n) goes to that generation of the holder:
 * the next worker with its number shares nothing with it.  *blocks becomes
 * the number of blocks that nobody else has in flight there: n minus those
 * that it shares.  Returns what kvr_inflight_remove() takes; 0: the request is
 * not in the tree, for want of blocks or of room, *blocks is n, and there is
 * nothing to be removed.
 */
uint32_t kvr_inflight_add(kvr_inflight_t *f, uint32_t holder,
    uint32_t generation, const uint64_t *locals, uint32_t n,
    uint32_t *blocks);

/*
 * The request is over.  Returns the number of blocks that nobody has in flight
 * there any more.  For the same holder, once.
 */
uint32_t kvr_inflight_remove(kvr_inflight_t *f, uint32_t holder,
    uint32_t generation, uint32_t request);

/*
 * How many blocks of the prompt each holder has in flight: depths[h].depth is
 * raised for the holders that have any, of the generation that it says.
 * Holders from nholders on are left out.
 */
void kvr_inflight_find(const kvr_inflight_t *f, const uint64_t *locals,
    uint32_t n, kvr_inflight_depth_t *depths, uint32_t nholders);

/* A gauge. */
uint32_t kvr_inflight_nodes(const kvr_inflight_t *f);


#endif /* KVR_INFLIGHT_H_INCLUDED */
