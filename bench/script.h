/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Scripts: stores, removals and lookups with their answers, in a file that
 * every program of the benchmarks plays.  script.py writes them, and says what
 * is in them.
 */


#ifndef SCRIPT_H_INCLUDED
#define SCRIPT_H_INCLUDED


#include "workload.h"


typedef enum {
    SCRIPT_FIND = 'f',
    SCRIPT_STORE = 's',
    SCRIPT_REMOVE = 'r'
} script_kind_t;


typedef struct {
    uint32_t       kind;
    uint32_t       worker;
    uint32_t       prompt;
    uint32_t       from;                /* block; of a find: the best match */
    uint32_t       n;                   /* blocks */
    uint32_t       holders;             /* of a find: that have any */
} script_op_t;

_Static_assert(sizeof(script_op_t) == 24, "as in the file");


typedef struct {
    uint64_t       number;
    uint32_t       blocks;
    uint32_t       pad;
} script_segment_t;

_Static_assert(sizeof(script_segment_t) == 16, "as in the file");


typedef struct {
    uint32_t           nprompts;
    uint32_t           nops;
    uint32_t           nfinds;
    uint64_t           pairs;           /* that all stores make together */
    script_op_t       *ops;
    uint32_t          *nsegments;       /* of each prompt */
    script_segment_t  *segments;        /* prompt after prompt */
    uint64_t          *starts;          /* each prompt's first block in: */
    uint64_t          *locals;
    uint64_t          *handles;         /* sequence hashes of the locals */
} script_t;


/* Reads a file, and makes all hashes; ends the program when it can't. */
void script_open(script_t *s, const char *file);
void script_close(script_t *s);

/* Makes all hashes anew: another salt, other blocks; 0 at first. */
void script_salt(script_t *s, uint64_t salt);


#endif /* SCRIPT_H_INCLUDED */
