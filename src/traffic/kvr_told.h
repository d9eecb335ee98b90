/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The last warnings of a zone, for the status page: the log may hide them.
 *
 * A warning that comes again is counted, and takes no second place.  If there
 * is no free place, the warning that was told longest ago is forgotten.
 *
 * The ring lies in shared memory, all zero at first, and stays through
 * reloads.  Every process of nginx may write to it, under the lock.  A process
 * that finds the lock taken waits for some milliseconds; then its warning is
 * in the log alone.  A process that dies with the lock leaves one text that
 * may be a mixture of two; the lock is taken from it.  No place refers to
 * another one, and readers bound each length.
 */


#ifndef KVR_TOLD_H_INCLUDED
#define KVR_TOLD_H_INCLUDED


#include "../core/kvr_lock.h"


#define KVR_TOLD       20
#define KVR_TOLD_TEXT  400              /* bytes of a text, not terminated */


typedef struct {
    uint64_t    first_ms;               /* unix */
    uint64_t    last_ms;
    uint64_t    order;                  /* grows; 0: a free place */
    uint64_t    count;
    uint32_t    level;                  /* of the caller's levels */
    uint32_t    len;
    char        text[KVR_TOLD_TEXT];
} kvr_told_t;


typedef struct {
    kvr_lock_t  lock;
    uint64_t    order;                  /* of the newest one */
    kvr_told_t  places[KVR_TOLD];
} kvr_told_ring_t;


/* Adds a warning, of any bytes; what is beyond KVR_TOLD_TEXT is cut off. */
void kvr_told_add(kvr_told_ring_t *ring, kvr_owner_t self, uint32_t level,
    const char *text, size_t len, uint64_t now_ms);

/*
 * Copies the warnings to out, the newest one first, and returns their number.
 * 0, too, if the lock is taken for over 10 milliseconds.
 */
uint32_t kvr_told_read(kvr_told_ring_t *ring, kvr_owner_t self,
    kvr_told_t out[KVR_TOLD]);


#endif /* KVR_TOLD_H_INCLUDED */
