/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The pointer of a worker's newest snapshot, a hash in Redis (kvr_keys.h).
 * Whoever can write to Redis can write anything there.
 */


#ifndef KVR_POINTER_H_INCLUDED
#define KVR_POINTER_H_INCLUDED


#include "../core/kvr_contract.h"
#include "kvr_keys.h"


/*
 * The maximum number of parts of a snapshot: more blocks than any zone has
 * room for.
 */
#define KVR_POINTER_PARTS   65536


#define KVR_POINTER_WHY     128     /* bytes of a reason */


#define KVR_SNAPSHOT_VERSION  1


/* A snapshot's head, as the pointer contains it. */
typedef struct {
    uint64_t    epoch;              /* state after message (epoch, seq) */
    uint64_t    seq;
    kvr_contract_t  contract;       /* of its blocks */
    bool        complete;           /* the publisher knows all of the engine */
    bool        hybrid;             /* the model has KV cache groups that are
                                       not in it */
} kvr_snapshot_head_t;


typedef struct {
    kvr_snapshot_head_t  head;
    uint32_t             parts;
} kvr_pointer_t;


/*
 * Reads the fields, by kvr_pointer_field_t, of any bytes; NULL: the hash has
 * no such field.  Without eagle, or hybrid, what p->head says stays as it is.
 * KVR_DECLINED: there is no snapshot.  KVR_INVALID: why has the reason, a
 * sentence.
 */
kvr_rc_t kvr_pointer_read(kvr_pointer_t *p,
    const char *const values[KVR_POINTER_ROUTER],
    const size_t len[KVR_POINTER_ROUTER], char why[KVR_POINTER_WHY]);


#endif /* KVR_POINTER_H_INCLUDED */
