/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The pointer of a worker's newest snapshot: fields of the hash
 * "kv-snap:{worker}" (EVENTS.md section 2).  Whoever can write to Redis can
 * write anything there.
 */


#ifndef KVR_POINTER_H_INCLUDED
#define KVR_POINTER_H_INCLUDED


#include "../kvr.h"


/* Of a snapshot: more blocks than any zone has room for. */
#define KVR_POINTER_PARTS   65536

/* version, epoch, seq, complete, parts, block_size, and eagle and hybrid,
   which may be missing */
#define KVR_POINTER_FIELDS  8
#define KVR_POINTER_NEEDED  6


/* A snapshot's head, as the pointer contains it. */
typedef struct {
    uint64_t    epoch;              /* state after message (epoch, seq) */
    uint64_t    seq;
    uint32_t    block_size;         /* tokens */
    bool        complete;           /* the publisher knows all of the engine */
    bool        eagle;              /* blocks are of pairs of tokens */
    bool        hybrid;             /* the model has KV cache groups that are
                                       not in it */
} kvr_snapshot_head_t;


typedef struct {
    kvr_snapshot_head_t  head;
    uint32_t             parts;
} kvr_pointer_t;


/*
 * Reads the fields, in the order above, of any bytes; NULL: the hash has no
 * such field.  Without eagle, or hybrid, the one in p->head stays as it is.
 * KVR_DECLINED: there is no snapshot.  KVR_INVALID: *detail says why, a
 * sentence that lives forever.
 */
kvr_rc_t kvr_pointer_read(kvr_pointer_t *p,
    const char *const values[KVR_POINTER_FIELDS],
    const size_t len[KVR_POINTER_FIELDS], const char **detail);


#endif /* KVR_POINTER_H_INCLUDED */
