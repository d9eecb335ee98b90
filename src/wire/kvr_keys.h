/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A worker's keys in Redis (relay/README.md, "In Redis"): their names, and the
 * fields of the hashes, for the router and kv-relay.
 *
 *     kv-workers                   a set: the ids of the workers
 *     kv-worker:{w}                a hash: the worker's registration
 *     kv-log:{w}                   a stream: its messages, by epoch-seq
 *     kv-snap:{w}                  a hash: the pointer of its newest snapshot
 *     kv-snap:{w}:<epoch>-<seq>:<n>    strings: the parts of that snapshot
 *     kv-snap:{w}:<epoch>-<seq>:s<n>   the parts that only relays read
 *     kv-snap-ask:{w}              there when a router wants a snapshot
 *     kv-lease:{w}                 the token of the relay that publishes
 *     kv-events:<w>                a channel: its messages as they come
 */


#ifndef KVR_KEYS_H_INCLUDED
#define KVR_KEYS_H_INCLUDED


#include "../kvr.h"


#define KVR_KEY_WORKERS   "kv-workers"
#define KVR_KEY_WORKER    "kv-worker"
#define KVR_KEY_LOG       "kv-log"
#define KVR_KEY_SNAPSHOT  "kv-snap"
#define KVR_KEY_ASK       "kv-snap-ask"
#define KVR_KEY_LEASE     "kv-lease"

/* The default prefix of a channel's name: see channel= of kv_router_redis. */
#define KVR_CHANNEL       "kv-events:"

/* The only field of a log's entries: the message. */
#define KVR_LOG_FIELD     "m"

/*
 * The maximum length of a key, with the null byte.  Keys of a snapshot's parts
 * are the longest.
 */
#define KVR_KEY_MAX       (KVR_WORKER_ID_MAX + 80)


/*
 * Fields of a pointer, in the order in which they are asked for: first those
 * that every pointer has, then those that routers read when they are there,
 * then those that only relays read.
 */
typedef enum {
    KVR_POINTER_VERSION,
    KVR_POINTER_EPOCH,
    KVR_POINTER_SEQ,
    KVR_POINTER_COMPLETE,
    KVR_POINTER_NPARTS,
    KVR_POINTER_BLOCK_SIZE,
    KVR_POINTER_NEEDED,             /* the number of those above */

    KVR_POINTER_EAGLE = KVR_POINTER_NEEDED,
    KVR_POINTER_HYBRID,
    KVR_POINTER_ROUTER,             /* the number of those above */

    KVR_POINTER_STATE_PARTS = KVR_POINTER_ROUTER,
    KVR_POINTER_RELAY,              /* the number of those above */

    KVR_POINTER_BLOCKS = KVR_POINTER_RELAY,
    KVR_POINTER_ENGINE_SEQ,
    KVR_POINTER_FIELDS
} kvr_pointer_field_t;


/* Fields that scripts of Redis name, too. */
#define KVR_FIELD_EPOCH        "epoch"
#define KVR_FIELD_SEQ          "seq"
#define KVR_FIELD_PARTS        "parts"
#define KVR_FIELD_STATE_PARTS  "state_parts"

/* The names of these fields, by their numbers. */
extern const char *const  kvr_pointer_fields[KVR_POINTER_FIELDS];


/*
 * Writes "name:{worker}" with a null byte, and returns the length.  The
 * worker's id must be valid; len is its length.
 */
size_t kvr_key(char out[KVR_KEY_MAX], const char *name, const char *worker,
    size_t len);

/*
 * Writes the key of part i of a snapshot. state: a part that only relays read.
 */
size_t kvr_key_part(char out[KVR_KEY_MAX], const char *worker, size_t len,
    uint64_t epoch, uint64_t seq, bool state, uint32_t i);


#endif /* KVR_KEYS_H_INCLUDED */
