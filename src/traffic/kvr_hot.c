
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_hot.h"
#include "../core/kvr_hash.h"

#include <stdlib.h>


#define KVR_HOT_READ_MS  10


static const uint32_t  kvr_hot_depths[KVR_HOT_DEPTHS] = {
    4, 16, 64, 256, 1024
};


/* Halves all counts, once in ten minutes; a count of 0 is a free place. */

static void
kvr_hot_halve(kvr_hot_t *hot, uint64_t now_ms)
{
    uint32_t           i;
    kvr_hot_prefix_t  *p;

    if (hot->half_ms == 0 || hot->half_ms > now_ms) {
        hot->half_ms = now_ms;
        return;
    }

    if (now_ms - hot->half_ms < KVR_HOT_HALF_MS) {
        return;
    }

    hot->half_ms = now_ms;

    for (i = 0; i < KVR_HOT_PREFIXES; i++) {
        p = &hot->prefixes[i];
        hot->counts[i] /= 2;
        p->error /= 2;
        p->saved /= 2;

        if (hot->counts[i] == 0) {
            hot->keys[i] = 0;
        }
    }
}


/* Counts the prefix, perhaps in the place of the least frequent one. */

static kvr_hot_prefix_t *
kvr_hot_place(kvr_hot_t *hot, uint64_t key, uint64_t now_ms)
{
    uint32_t           i, least;
    kvr_hot_prefix_t  *p;

    least = 0;

    for (i = 0; i < KVR_HOT_PREFIXES; i++) {

        if (hot->keys[i] == key) {
            hot->counts[i]++;
            return &hot->prefixes[i];
        }

        if (hot->counts[i] < hot->counts[least]) {
            least = i;
        }
    }

    p = &hot->prefixes[least];

    hot->keys[least] = 0;

    memset(p, 0, sizeof(kvr_hot_prefix_t));
    p->error = hot->counts[least];
    p->first_ms = now_ms;

    hot->counts[least]++;
    hot->keys[least] = key;

    return p;
}


uint64_t
kvr_hot_add(kvr_hot_t *hot, kvr_owner_t self, const kvr_hot_prompt_t *prompt)
{
    bool               broken;
    uint32_t           i, k, from, depth;
    uint64_t           key, parent, first;
    kvr_hot_prefix_t  *p;

    if (prompt->n < kvr_hot_depths[0]) {
        return 0;
    }

    first = kvr_hash_bytes(prompt->hashes,
                           kvr_hot_depths[0] * sizeof(uint64_t), 0) | 1;

    if (kvr_lock_acquire(&hot->lock, self, 0, &broken) != KVR_OK) {
        (void) __atomic_fetch_add(&hot->missed, 1, __ATOMIC_RELAXED);
        return first;
    }

    kvr_hot_halve(hot, prompt->now_ms);

    parent = 0;
    from = 0;

    for (i = 0; i < KVR_HOT_DEPTHS; i++) {
        depth = kvr_hot_depths[i];

        if (depth > prompt->n) {
            break;
        }

        key = kvr_hash_bytes(prompt->hashes + from,
                             (depth - from) * sizeof(uint64_t), parent) | 1;

        p = kvr_hot_place(hot, key, prompt->now_ms);

        p->saved += kvr_min(prompt->overlap, depth);
        p->parent = parent;
        p->depth = depth;
        p->last_ms = prompt->now_ms;
        p->nholders = 0;

        for (k = 0; k < prompt->nholders; k++) {
            if (prompt->holders[k].depth >= depth
                && p->nholders < KVR_HOT_HOLDERS)
            {
                p->holders[p->nholders++] = prompt->holders[k];
            }
        }

        p->model_len = (uint32_t) kvr_min(prompt->model_len, KVR_HOT_TEXT);
        memcpy(p->model, prompt->model, p->model_len);

        parent = key;
        from = depth;
    }

    (void) kvr_lock_release(&hot->lock, self);

    return first;
}


static int
kvr_hot_compare(const void *one, const void *two)
{
    const kvr_hot_prefix_t  *a = one, *b = two;

    if (a->count != b->count) {
        return a->count > b->count ? -1 : 1;
    }

    return a->depth > b->depth ? -1 : a->depth < b->depth;
}


/* Does a longer prefix of the table have nearly all prompts of this one? */

static bool
kvr_hot_is_longer(const kvr_hot_prefix_t *all, uint32_t n,
    const kvr_hot_prefix_t *p)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        if (all[i].parent == p->key && all[i].count * 5 >= p->count * 4) {
            return true;
        }
    }

    return false;
}


uint32_t
kvr_hot_read(kvr_hot_t *hot, kvr_owner_t self, kvr_hot_prefix_t *out,
    uint32_t max)
{
    bool               broken;
    uint32_t           i, n, told;
    kvr_hot_prefix_t  *all;

    all = malloc(sizeof(hot->prefixes));

    if (all == NULL) {
        return 0;
    }

    if (kvr_lock_acquire(&hot->lock, self, KVR_HOT_READ_MS, &broken)
        != KVR_OK)
    {
        free(all);
        return 0;
    }

    for (i = 0, n = 0; i < KVR_HOT_PREFIXES; i++) {

        if (hot->keys[i] == 0) {
            continue;
        }

        all[n] = hot->prefixes[i];
        all[n].key = hot->keys[i];
        all[n].count = hot->counts[i];
        all[n].nholders = kvr_min(all[n].nholders, KVR_HOT_HOLDERS);
        all[n].model_len = kvr_min(all[n].model_len, KVR_HOT_TEXT);
        n++;
    }

    (void) kvr_lock_release(&hot->lock, self);

    qsort(all, n, sizeof(kvr_hot_prefix_t), kvr_hot_compare);

    told = 0;

    for (i = 0; i < n && told < max; i++) {
        if (!kvr_hot_is_longer(all, n, &all[i])) {
            out[told++] = all[i];
        }
    }

    free(all);

    return told;
}
