/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Byte-pair encoding of one piece of text: as long as two neighbours merge,
 * those with the smallest rank do, the leftmost ones first.
 *
 *     h e l l o   →   h e ll o   →   he ll o   →   he llo   →   hello
 *
 * A short piece is merged at once, by scans of a small array.  A long one is
 * merged by a heap, in parts.
 *
 * A state is for one thread.
 */


#ifndef KVR_MERGE_H_INCLUDED
#define KVR_MERGE_H_INCLUDED


#include "kvr_vocabulary.h"


#define KVR_MERGE_SHORT      48         /* ids of a short piece, at most */


typedef enum {
    KVR_MERGE_DONE,
    KVR_MERGE_AGAIN
} kvr_merge_rc_t;


/* An id of a long piece, in a list. */
typedef struct {
    uint32_t    id;
    uint32_t    next;
    uint32_t    previous;
    uint32_t    rank;                   /* of the merge with the next one */
    uint32_t    to;                     /* the id of that merge */
} kvr_merge_symbol_t;


typedef struct {
    /* the result, when it is done */
    uint32_t            *ids;
    uint32_t             n;

    bool                 failed;        /* no memory: the result is wrong */

    /* the state's own */
    const char          *text;
    size_t               len;
    size_t               at;            /* bytes that have become ids */
    uint32_t             cap;
    bool                 unknown;       /* the last character was not known */
    bool                 heaped;

    kvr_merge_symbol_t  *symbols;
    uint64_t            *heap;          /* rank << 32 | symbol */
    uint32_t             nheap;
    uint32_t             nsymbols;
    uint32_t             long_cap;
} kvr_merge_state_t;


/* NULL: no memory. */
kvr_merge_state_t *kvr_merge_new(void);
void kvr_merge_free(kvr_merge_state_t *m);

/* Begins a piece, which must stay until it is done. */
void kvr_merge_begin(kvr_merge_state_t *m, const char *text, size_t len);

/*
 * Goes on.  A unit of the budget is a merge, or a few characters.
 * KVR_MERGE_DONE: m->ids are the ids.
 */
kvr_merge_rc_t kvr_merge_run(kvr_merge_state_t *m, const kvr_vocabulary_t *v,
    uint32_t budget);


#endif /* KVR_MERGE_H_INCLUDED */
