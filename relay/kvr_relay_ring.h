/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Envelopes that no snapshot covers yet, oldest first, their seqs one after
 * the other.  Bounded in bytes.
 */


#ifndef KVR_RELAY_RING_H_INCLUDED
#define KVR_RELAY_RING_H_INCLUDED


#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>


#define KVR_RELAY_RING_ENTRIES  65536u      /* a power of two */


typedef struct {
    uint64_t    seq;
    uint64_t    made_ms;
    char       *bytes;
    size_t      len;
    bool        complete;           /* what the envelope says */
} kvr_relay_entry_t;


typedef struct {
    kvr_relay_entry_t  *entries;
    uint32_t            first;
    uint32_t            n;
    uint64_t            bytes;      /* with the overhead of each entry */
    uint64_t            max_bytes;
} kvr_relay_ring_t;


/* False: out of memory. */
bool kvr_relay_ring_init(kvr_relay_ring_t *ring, uint64_t max_bytes);
void kvr_relay_ring_free(kvr_relay_ring_t *ring);

/* Is there room for an entry of so many bytes? */
bool kvr_relay_ring_room(const kvr_relay_ring_t *ring, size_t len);

/* Takes ownership of the bytes.  There must be room. */
void kvr_relay_ring_push(kvr_relay_ring_t *ring, uint64_t seq, char *bytes,
    size_t len, bool complete, uint64_t now_ms);

/* The entry with this seq, or NULL. */
const kvr_relay_entry_t *kvr_relay_ring_at(const kvr_relay_ring_t *ring,
    uint64_t seq);

/* Drops all entries up to seq. */
void kvr_relay_ring_drop(kvr_relay_ring_t *ring, uint64_t seq);


#endif /* KVR_RELAY_RING_H_INCLUDED */
