/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_told.h"

#include <stdlib.h>


#define KVR_TOLD_MS  10


void
kvr_told_add(kvr_told_ring_t *ring, kvr_owner_t self, uint32_t level,
    const char *text, size_t len, uint64_t now_ms)
{
    bool         broken;
    uint32_t     i;
    kvr_told_t  *p, *place;

    len = kvr_min(len, KVR_TOLD_TEXT);

    if (kvr_lock_acquire(&ring->lock, self, KVR_TOLD_MS, &broken) != KVR_OK) {
        return;
    }

    place = &ring->places[0];

    for (i = 0; i < KVR_TOLD; i++) {
        p = &ring->places[i];

        if (p->order && p->len == len && memcmp(p->text, text, len) == 0) {
            place = p;
            break;
        }

        if (p->order < place->order) {
            place = p;
        }
    }

    if (i == KVR_TOLD) {
        memset(place, 0, sizeof(kvr_told_t));
        memcpy(place->text, text, len);
        place->len = (uint32_t) len;
        place->first_ms = now_ms;
    }

    place->level = level;
    place->last_ms = now_ms;
    place->count++;
    place->order = ++ring->order;

    (void) kvr_lock_release(&ring->lock, self);
}


static int
kvr_told_compare(const void *one, const void *two)
{
    const kvr_told_t  *a = one, *b = two;

    return a->order > b->order ? -1 : a->order < b->order;
}


uint32_t
kvr_told_read(kvr_told_ring_t *ring, kvr_owner_t self,
    kvr_told_t out[KVR_TOLD])
{
    bool      broken;
    uint32_t  i, n;

    if (kvr_lock_acquire(&ring->lock, self, KVR_TOLD_MS, &broken) != KVR_OK) {
        return 0;
    }

    for (i = 0, n = 0; i < KVR_TOLD; i++) {

        if (ring->places[i].order) {
            out[n] = ring->places[i];
            out[n].len = kvr_min(out[n].len, KVR_TOLD_TEXT);
            n++;
        }
    }

    (void) kvr_lock_release(&ring->lock, self);

    qsort(out, n, sizeof(kvr_told_t), kvr_told_compare);

    return n;
}
