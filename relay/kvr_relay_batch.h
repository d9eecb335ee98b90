/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Collects events to normalised batches of a bounded size.  An event that is
 * larger is cut into several, each hanging on the one before.
 */


#ifndef KVR_RELAY_BATCH_H_INCLUDED
#define KVR_RELAY_BATCH_H_INCLUDED


#include "kvr_relay_core.h"


#define KVR_RELAY_BATCH_MAX  (256u << 10)   /* bytes of a batch */


typedef struct {
    char       *bytes;              /* KVR_RELAY_BATCH_MAX */
    size_t      len;
    uint32_t    events;

    /* is given a batch that is full; KVR_ERROR: the rest is of no use */
    kvr_rc_t  (*full)(void *data, const void *bytes, size_t len);
    void       *data;
} kvr_relay_batch_t;


/* False: out of memory. */
bool kvr_relay_batch_init(kvr_relay_batch_t *b,
    kvr_rc_t (*full)(void *data, const void *bytes, size_t len), void *data);
void kvr_relay_batch_free(kvr_relay_batch_t *b);

/* False: full() said so. */
bool kvr_relay_batch_add(kvr_relay_batch_t *b, const kvr_change_t *ev);

/*
 * Writes the head: bytes[0..len) are the batch then, until
 * kvr_relay_batch_reset().  False: the batch has no event.
 */
bool kvr_relay_batch_end(kvr_relay_batch_t *b);
void kvr_relay_batch_reset(kvr_relay_batch_t *b);


#endif /* KVR_RELAY_BATCH_H_INCLUDED */
