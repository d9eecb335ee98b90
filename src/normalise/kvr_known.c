/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_known.h"
#include "../core/kvr_hash.h"

#include <stdlib.h>
#include <sys/random.h>


/* The number of blocks that are prefetched at once. */
#define KVR_KNOWN_FETCH  64


static uint32_t kvr_known_take(kvr_known_t *t, kvr_known_state_t state);
static uint32_t kvr_known_evict(kvr_known_t *t, kvr_known_list_t *list);
static void kvr_known_forget(kvr_known_t *t, kvr_known_list_t *list,
    uint32_t i);
static void kvr_known_free_locals(kvr_known_t *t, kvr_known_block_t *b);
static kvr_known_list_t *kvr_known_list(kvr_known_t *t,
    kvr_known_list_t *live, uint32_t state);
static void kvr_known_list_put(kvr_known_t *t,
    kvr_known_list_t *list, uint32_t i);
static void kvr_known_list_cut(kvr_known_t *t,
    kvr_known_list_t *list, uint32_t i);


bool
kvr_known_init(kvr_known_t *t, uint32_t max)
{
    uint32_t  n;

    max = kvr_min(kvr_max(max, 16), 1u << 30);

    memset(t, 0, sizeof(kvr_known_t));

    /* four buckets for each block: a lookup that fails reads one bucket */

    for (n = 16; n < max * (uint64_t) 4; n *= 2) { /* void */ }

    t->max = max;
    t->mask = n - 1;
    t->fresh = 1;
    t->blocks = calloc((size_t) max + 1, sizeof(kvr_known_block_t));
    t->buckets = calloc(n, sizeof(uint32_t));

    if (t->blocks == NULL || t->buckets == NULL
        || getrandom(&t->secret, sizeof(t->secret), 0)
           != (ssize_t) sizeof(t->secret))
    {
        kvr_known_done(t);
        return false;
    }

    return true;
}


void
kvr_known_done(kvr_known_t *t)
{
    uint32_t  i;

    for (i = 1; t->blocks && i < t->fresh; i++) {
        kvr_known_free_locals(t, &t->blocks[i]);
    }

    free(t->blocks);
    free(t->buckets);
    t->blocks = NULL;
    t->buckets = NULL;
}


static uint32_t *
kvr_known_bucket(const kvr_known_t *t, uint32_t owner, uint64_t handle)
{
    uint64_t  key[2];

    key[0] = handle;
    key[1] = owner;

    return &t->buckets[kvr_hash_bytes(key, sizeof(key), t->secret) & t->mask];
}


kvr_known_block_t *
kvr_known_find(const kvr_known_t *t, uint32_t owner, uint64_t handle)
{
    uint32_t            i;
    kvr_known_block_t  *b;

    for (i = *kvr_known_bucket(t, owner, handle); i; i = b->chain) {
        b = &t->blocks[i];

        if (b->handle == handle && b->owner == owner) {
            return b;
        }
    }

    return NULL;
}


void
kvr_known_fetch(const kvr_known_t *t, uint32_t owner,
    const uint64_t *handles, uint32_t n)
{
    uint32_t   i, k, *buckets[KVR_KNOWN_FETCH];

    for (i = 0; i < n; i += k) {

        for (k = 0; k < KVR_KNOWN_FETCH && i + k < n; k++) {
            buckets[k] = kvr_known_bucket(t, owner, handles[i + k]);
            __builtin_prefetch(buckets[k], 1);
        }

        while (k-- > 0) {
            __builtin_prefetch(&t->blocks[*buckets[k]]);
        }

        k = kvr_min(KVR_KNOWN_FETCH, n - i);
    }
}


kvr_known_block_t *
kvr_known_add(kvr_known_t *t, kvr_known_list_t *live,
    uint32_t owner, uint64_t handle, kvr_known_state_t state)
{
    uint32_t            i, *bucket;
    kvr_known_block_t  *b;

    i = kvr_known_take(t, state);

    if (i == 0) {
        t->unremembered++;
        return NULL;
    }

    b = &t->blocks[i];
    memset(b, 0, sizeof(kvr_known_block_t));

    b->handle = handle;
    b->owner = owner;
    b->state = state;

    bucket = kvr_known_bucket(t, owner, handle);
    b->chain = *bucket;
    *bucket = i;

    kvr_known_list_put(t, kvr_known_list(t, live, state), i);

    return b;
}


/* Takes a free entry for a block in `state`; 0: there is none. */

static uint32_t
kvr_known_take(kvr_known_t *t, kvr_known_state_t state)
{
    uint32_t  i;

    if (state == KVR_KNOWN_FILTERED && t->filtered.n >= t->max / 4) {
        return kvr_known_evict(t, &t->filtered);
    }

    if (state == KVR_KNOWN_GONE && t->gone.n >= t->max / 4) {
        return kvr_known_evict(t, &t->gone);
    }

    i = t->free.first;

    if (i) {
        kvr_known_list_cut(t, &t->free, i);
        return i;
    }

    if (t->fresh <= t->max) {
        return t->fresh++;
    }

    if (t->dead.n) {
        return kvr_known_evict(t, &t->dead);
    }

    return kvr_known_evict(t, t->gone.n ? &t->gone : &t->filtered);
}


/* Forgets the oldest block of a list and returns it; 0: an empty list. */

static uint32_t
kvr_known_evict(kvr_known_t *t, kvr_known_list_t *list)
{
    uint32_t            i;
    kvr_known_block_t  *b;

    i = list->first;

    if (i) {

        /* prefetch the bucket of the list's next block for the next call */

        b = &t->blocks[t->blocks[i].next];
        __builtin_prefetch(kvr_known_bucket(t, b->owner, b->handle));

        kvr_known_forget(t, list, i);
    }

    return i;
}


/* Takes a block out of its bucket and of its list. */

static void
kvr_known_forget(kvr_known_t *t, kvr_known_list_t *list, uint32_t i)
{
    uint32_t           *at;
    kvr_known_block_t  *b;

    b = &t->blocks[i];
    at = kvr_known_bucket(t, b->owner, b->handle);

    while (*at != i) {
        at = &t->blocks[*at].chain;
    }

    *at = b->chain;

    kvr_known_list_cut(t, list, i);
    kvr_known_free_locals(t, b);

    b->state = KVR_KNOWN_FREE;
}


void
kvr_known_delete(kvr_known_t *t, kvr_known_list_t *live, kvr_known_block_t *b)
{
    uint32_t  i;

    i = (uint32_t) (b - t->blocks);

    kvr_known_forget(t, kvr_known_list(t, live, b->state), i);
    kvr_known_list_put(t, &t->free, i);
}


void
kvr_known_set_locals(kvr_known_t *t, kvr_known_block_t *b,
    const uint64_t *locals, uint32_t k)
{
    kvr_known_free_locals(t, b);

    if (k == 1) {
        b->locals.one = *locals;
        b->k = 1;
        return;
    }

    /* a span has several words: the limit is four words for each block */

    if (t->words + k <= 4 * (uint64_t) t->max) {
        b->locals.many = malloc(k * sizeof(uint64_t));

        if (b->locals.many) {
            memcpy(b->locals.many, locals, k * sizeof(uint64_t));
            t->words += k;
            b->k = (uint16_t) k;
            return;
        }
    }

    t->unremembered++;
}


static void
kvr_known_free_locals(kvr_known_t *t, kvr_known_block_t *b)
{
    if (b->k > 1) {
        free(b->locals.many);
        t->words -= b->k;
    }

    b->k = 0;
}


void
kvr_known_move(kvr_known_t *t, kvr_known_list_t *live,
    kvr_known_block_t *b, kvr_known_state_t state)
{
    uint32_t           i;
    kvr_known_list_t  *list;

    i = (uint32_t) (b - t->blocks);

    kvr_known_list_cut(t, kvr_known_list(t, live, b->state), i);
    b->state = state;

    list = kvr_known_list(t, live, state);
    kvr_known_list_put(t, list, i);

    if (state != KVR_KNOWN_LIVE && list->n > t->max / 4) {
        kvr_known_list_put(t, &t->free, kvr_known_evict(t, list));
    }
}


void
kvr_known_drop(kvr_known_t *t, kvr_known_list_t *live)
{
    if (live->n == 0) {
        return;
    }

    if (t->dead.last) {
        t->blocks[t->dead.last].next = live->first;
        t->blocks[live->first].prev = t->dead.last;

    } else {
        t->dead.first = live->first;
    }

    t->dead.last = live->last;
    t->dead.n += live->n;

    memset(live, 0, sizeof(kvr_known_list_t));
}


static kvr_known_list_t *
kvr_known_list(kvr_known_t *t, kvr_known_list_t *live, uint32_t state)
{
    switch (state) {

    case KVR_KNOWN_GONE:
        return &t->gone;

    case KVR_KNOWN_FILTERED:
        return &t->filtered;

    default:
        return live;
    }
}


static void
kvr_known_list_put(kvr_known_t *t, kvr_known_list_t *list, uint32_t i)
{
    t->blocks[i].prev = list->last;
    t->blocks[i].next = 0;

    if (list->last) {
        t->blocks[list->last].next = i;

    } else {
        list->first = i;
    }

    list->last = i;
    list->n++;
}


static void
kvr_known_list_cut(kvr_known_t *t, kvr_known_list_t *list, uint32_t i)
{
    kvr_known_block_t  *b;

    b = &t->blocks[i];

    if (b->prev) {
        t->blocks[b->prev].next = b->next;

    } else {
        list->first = b->next;
    }

    if (b->next) {
        t->blocks[b->next].prev = b->prev;

    } else {
        list->last = b->prev;
    }

    list->n--;
}
