/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A tokenizer's pre-tokenizers: they split a normalized text into pieces, each
 * of which is merged apart.  Each pre-tokenizer splits what the one before it
 * has left.
 *
 *     "it's 12"   words   →   "it" "'s" " 12"   digits   →   " " "1" "2"
 *
 * Pieces are pulled one by one, so that the work can be interrupted between
 * two of them.
 *
 * A splitter is read-only when it is built; a split is for one thread.
 */


#ifndef KVR_SPLITTER_H_INCLUDED
#define KVR_SPLITTER_H_INCLUDED


#include "kvr_pattern.h"


#define KVR_SPLITTER_OPS     12


typedef enum {
    KVR_SPLITTER_SPLIT,
    KVR_SPLITTER_METASPACE,             /* blanks become a mark, which begins
                                           a piece */
    KVR_SPLITTER_PREFIX                 /* one blank in front */
} kvr_splitter_kind_t;


/* The fate of a match. */
typedef enum {
    KVR_SPLITTER_ISOLATED,
    KVR_SPLITTER_REMOVED,
    KVR_SPLITTER_CONTIGUOUS,            /* a run of matches is one piece */
    KVR_SPLITTER_PREVIOUS,              /* the end of the piece before */
    KVR_SPLITTER_NEXT                   /* the begin of the piece behind */
} kvr_splitter_behaviour_t;


/* Where a metaspace puts a mark in front. */
typedef enum {
    KVR_SPLITTER_NEVER,
    KVR_SPLITTER_FIRST,                 /* of the whole text */
    KVR_SPLITTER_ALWAYS                 /* of each section */
} kvr_splitter_scheme_t;


typedef struct {
    kvr_splitter_kind_t       kind;
    kvr_splitter_behaviour_t  behaviour;
    kvr_splitter_scheme_t     scheme;
    bool                      invert;   /* split: what does not match */
    bool                      joined;   /* metaspace: no split at marks */
    kvr_pattern_t            *pattern;
    kvr_bytes_t               literal;  /* if there is no pattern */
} kvr_splitter_op_t;


typedef struct {
    kvr_splitter_op_t         ops[KVR_SPLITTER_OPS];
    uint32_t                  n;
} kvr_splitter_t;


typedef struct {
    size_t    a;
    size_t    b;
    bool      match;
} kvr_split_part_t;


/* A pre-tokenizer at work. */
typedef struct {
    const char        *text;
    const char        *repaired;        /* for PCRE2 */
    size_t             len;
    size_t             at;
    size_t             a;               /* the next match */
    size_t             b;
    bool               found;
    bool               peeked;
    kvr_split_part_t   peek;
    kvr_bytes_t        own;
    kvr_bytes_t        own_repaired;
} kvr_split_level_t;


/* All zero is a beginning. */
typedef struct {
    kvr_split_level_t  levels[KVR_SPLITTER_OPS];
    uint32_t           depth;           /* levels in use */
    bool               first;           /* at the begin of the whole text */
} kvr_split_t;


void kvr_splitter_free(kvr_splitter_t *s);
void kvr_split_free(kvr_split_t *s);

/*
 * Begins to split a text, of which `repaired` is the repaired copy, or the
 * same.  Both must stay.  The splitter must have an operation.  False: no
 * memory.
 */
bool kvr_split_begin(kvr_split_t *s, const kvr_splitter_t *splitter,
    const char *text, const char *repaired, size_t len, bool first);

/*
 * The next piece, which is not empty.  KVR_DONE: there is none; KVR_ERROR:
 * PCRE2 could not tell; KVR_FULL: no memory.
 */
kvr_rc_t kvr_split_next(kvr_split_t *s, const kvr_splitter_t *splitter,
    kvr_matcher_t *m, const char **piece, size_t *len);


#endif /* KVR_SPLITTER_H_INCLUDED */
