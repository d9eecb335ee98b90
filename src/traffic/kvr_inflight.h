/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Prompts in flight: the blocks of a prompt that a worker works on already,
 * for other requests, so that a shared prefix is counted once at each holder.
 *
 *     a b c d e      a b c x y      a b c d e z       three prompts, and
 *
 *     [a b c] ──┬── [d e] ──── [z]                    the tree of them
 *               └── [x y]
 *
 * A node is a part of one or more prompts, and lists the holders that work on
 * it, with the number of requests of each.  A node is split where prompts part
 * and goes with its last request.  Blocks are compared by their local hashes.
 *
 * The tree is a process's own, and exact for its requests.  Blocks that other
 * processes or routers have in flight at a holder are no new load there,
 * though they are new to the tree: they are held and not counted.  A process
 * counts no more blocks of a holder than it holds.  If it leaves out more than
 * others count there, as their requests ended before its own, each request
 * counts a fourth part of the rest: the others see the same, and count, too.
 * So the sums of all processes are 0 when nothing is in flight, whatever each
 * has known of the others.
 *
 * It is not for threads.  It has KVR_INFLIGHT_NODES nodes at most; requests
 * that find none, or no memory, are counted as sharing nothing.
 */


#ifndef KVR_INFLIGHT_H_INCLUDED
#define KVR_INFLIGHT_H_INCLUDED


#include "../kvr.h"


#define KVR_INFLIGHT_NODES   65536      /* two are needed for a request at
                                           most; nginx has fewer connections */


typedef struct kvr_inflight_s  kvr_inflight_t;


/* A new, empty tree; NULL when out of memory. */
kvr_inflight_t *kvr_inflight_create(void);
void kvr_inflight_destroy(kvr_inflight_t *f);

/* The blocks of a prompt that are in flight at one holder. */
typedef struct {
    uint32_t    generation;         /* of the holder */
    uint32_t    depth;              /* blocks */
} kvr_inflight_depth_t;


/*
 * Adds a request for the prompt locals[0..n) at a generation of the holder:
 * the next worker with the holder's number shares nothing with it.  known: so
 * many of the prompt's blocks are in flight there, at others.  all: the blocks
 * that are counted there, by everybody.  *blocks becomes how many more this
 * process counts: those that no request has in flight there, and of what
 * nobody counts a part.  Returns the number to pass to kvr_inflight_remove().
 * 0: the request was not added, as n is 0, or the tree or the memory is full;
 * then *blocks is n, and there is nothing to be removed.
 */
uint32_t kvr_inflight_add(kvr_inflight_t *f, uint32_t holder,
    uint32_t generation, const uint64_t *locals, uint32_t n, uint32_t known,
    uint32_t all, uint32_t *blocks);

/*
 * Removes a request that is over.  Returns how many blocks this process no
 * longer counts.  To be called once, with the same holder.
 */
uint32_t kvr_inflight_remove(kvr_inflight_t *f, uint32_t holder,
    uint32_t generation, uint32_t request);

/*
 * Finds how many blocks of the prompt each holder has in flight: raises
 * depths[h].depth of the holders that have any, when depths[h].generation is
 * the holder's.  Holders from nholders on are left out.
 */
void kvr_inflight_find(const kvr_inflight_t *f, const uint64_t *locals,
    uint32_t n, kvr_inflight_depth_t *depths, uint32_t nholders);

/* The number of nodes in use, for the status page. */
uint32_t kvr_inflight_nodes(const kvr_inflight_t *f);


#endif /* KVR_INFLIGHT_H_INCLUDED */
