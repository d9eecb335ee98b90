/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Result codes, tiers and bounds, for all folders of src/.
 */


#ifndef KVR_H_INCLUDED
#define KVR_H_INCLUDED


#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>


/*
 * Result codes.  A function that returns another code than KVR_OK has changed
 * nothing, unless its comment says otherwise.
 */
typedef enum {
    KVR_OK = 0,
    KVR_ERROR = -1,         /* programmer error, or the zone is damaged */
    KVR_DECLINED = -2,      /* not there: unknown worker, handle, parent */
    KVR_FULL = -3,          /* a fixed table or the zone has no room left */
    KVR_BUSY = -4,          /* another process held the lock for too long */
    KVR_INVALID = -5,       /* bad input; the call also gives the reason */
    KVR_DONE = -6,          /* an iterator has nothing more */
    KVR_LOST = -7           /* another process has the lease now */
} kvr_rc_t;


/* Where a block is cached (docs/concepts.md, "tier"). */
typedef enum {
    KVR_DEVICE = 0,
    KVR_HOST = 1,
    KVR_DISK = 2,
    KVR_EXTERNAL = 3,       /* stored, never scored */
    KVR_TIERS = 4
} kvr_tier_t;


/* Bounds, each with its reason. */

#define KVR_VERSION          "0.1.0"     /* of the software; CHANGES */

#define KVR_WORKER_ID_MAX    63          /* bytes */
#define KVR_ADDRESS_MAX      255         /* bytes; a DNS name and a port fit */
#define KVR_MODEL_MAX        127         /* bytes; hub names are below 100 */
#define KVR_MESSAGE_MAX      (16u << 20) /* bytes; kv-relay splits above */
#define KVR_EVENT_BLOCKS_MAX (64u << 10) /* blocks in one event */
#define KVR_EVENT_TOKENS_MAX (1u << 20)  /* tokens in one event or prompt */
#define KVR_BLOCK_SIZE_MAX   1024        /* tokens; engines use 1..256 */
#define KVR_RANKS_MAX        1024        /* data-parallel ranks of a worker */
#define KVR_FAILS_MAX        1000        /* of max_fails: 10 bits hold it */
#define KVR_HEALTH_MS_MAX    3600000     /* of any time of health */

/*
 * Epochs are milliseconds since 1970, or a few more than an earlier one: none
 * is of the year 10889.  Microseconds, nanoseconds and garbage are beyond, so
 * that no publisher leaves an epoch behind that none can follow.
 */
#define KVR_EPOCH_MAX        (((uint64_t) 1 << 48) - 1)

/* Of messages in an epoch: more than any publisher sends.  As above. */
#define KVR_SEQ_MAX          KVR_EPOCH_MAX


#define kvr_min(a, b)   ((a) < (b) ? (a) : (b))
#define kvr_max(a, b)   ((a) > (b) ? (a) : (b))

/* The number of elements of an array, not of a pointer. */
#define kvr_nelts(a)    (sizeof(a) / sizeof((a)[0]))

/* A size or an offset in the zone, rounded up to whole cache lines. */
#define kvr_lines(n)    (((uint64_t) (n) + 63) & ~UINT64_C(63))


/* Takes a part of so many bytes from memory; returns where it begins. */
static inline uint64_t
kvr_part(uint64_t *at, uint64_t *size, uint64_t bytes)
{
    *at += kvr_lines(bytes);
    *size -= kvr_lines(bytes);

    return *at - kvr_lines(bytes);
}


#endif /* KVR_H_INCLUDED */
