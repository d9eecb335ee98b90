/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdlib.h>


bool
kvr_relay_ring_init(kvr_relay_ring_t *ring, uint64_t max_bytes)
{
    memset(ring, 0, sizeof(kvr_relay_ring_t));

    ring->max_bytes = max_bytes;
    ring->entries = calloc(KVR_RELAY_RING_ENTRIES, sizeof(kvr_relay_entry_t));

    return ring->entries != NULL;
}


void
kvr_relay_ring_free(kvr_relay_ring_t *ring)
{
    if (ring->entries != NULL) {
        kvr_relay_ring_drop(ring, UINT64_MAX);
        free(ring->entries);
        ring->entries = NULL;
    }
}


bool
kvr_relay_ring_room(const kvr_relay_ring_t *ring, size_t len)
{
    return ring->n < KVR_RELAY_RING_ENTRIES
           && ring->bytes + len + sizeof(kvr_relay_entry_t) <= ring->max_bytes;
}


void
kvr_relay_ring_push(kvr_relay_ring_t *ring, uint64_t seq, char *bytes,
    size_t len, bool complete, uint64_t now_ms)
{
    kvr_relay_entry_t  *e;

    e = &ring->entries[(ring->first + ring->n) % KVR_RELAY_RING_ENTRIES];

    e->seq = seq;
    e->made_ms = now_ms;
    e->bytes = bytes;
    e->len = len;
    e->complete = complete;

    ring->n++;
    ring->bytes += len + sizeof(kvr_relay_entry_t);
}


const kvr_relay_entry_t *
kvr_relay_ring_at(const kvr_relay_ring_t *ring, uint64_t seq)
{
    uint64_t  first;

    if (ring->n == 0) {
        return NULL;
    }

    first = ring->entries[ring->first].seq;

    if (seq < first || seq - first >= ring->n) {
        return NULL;
    }

    return &ring->entries[(ring->first + (uint32_t) (seq - first))
                          % KVR_RELAY_RING_ENTRIES];
}


void
kvr_relay_ring_drop(kvr_relay_ring_t *ring, uint64_t seq)
{
    kvr_relay_entry_t  *e;

    while (ring->n != 0) {
        e = &ring->entries[ring->first];

        if (e->seq > seq) {
            break;
        }

        free(e->bytes);
        e->bytes = NULL;

        ring->bytes -= e->len + sizeof(kvr_relay_entry_t);
        ring->first = (ring->first + 1) % KVR_RELAY_RING_ENTRIES;
        ring->n--;
    }
}
