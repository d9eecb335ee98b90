/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the two halves of kvr_radix_check() share.
 */


#ifndef KVR_CHECK_RUN_H_INCLUDED
#define KVR_CHECK_RUN_H_INCLUDED


#include "kvr_check_pieces.h"
#include "radix/kvr_radix.h"


typedef struct {
    const kvr_radix_t  *x;
    kvr_check_pieces_t  pieces;
    uint64_t           *runs;           /* a bit for each run, at its word */
    uint32_t           *nchildren;      /* counted; by run / 8 */
    uint32_t           *npairs;         /* the same */
    uint32_t           *roots;          /* counted; by cell */
    uint32_t           *view_runs;      /* counted; by view */
    uint32_t           *view_handles;
    uint32_t           *view_owns;
    uint32_t           *seen;           /* the last run of a view */
    uint64_t            entries;        /* names that have theirs */
    uint64_t            lines;          /* looked at to delete these */
    uint64_t            pairs;
    uint64_t            used;
    uint64_t            blocks;
    uint64_t            details;
} kvr_check_t;


#define kvr_check_bit(map, i)                                                 \
    ((map)[(i) / 64] >> ((i) & 63) & 1)
#define kvr_check_set(map, i)                                                 \
    ((map)[(i) / 64] |= UINT64_C(1) << ((i) & 63))


/* Where a run hangs, and that it is found there. */
const char *kvr_check_place(kvr_check_t *k, uint32_t run);

/* A run, its pages, and who has what of it. */
const char *kvr_check_run(kvr_check_t *k, uint32_t run);

/* The pages of n words. */
const char *kvr_check_pages(kvr_check_t *k, uint32_t run, kvr_pages_t p,
    uint32_t n, const char *what);

/* Its names, shared and own, and that they say what the coverage says. */
const char *kvr_check_run_handles(kvr_check_t *k, uint32_t run);

/* One of the runs in the children's table? */
bool kvr_check_is_run(const kvr_check_t *k, uint32_t run);


#endif /* KVR_CHECK_RUN_H_INCLUDED */
