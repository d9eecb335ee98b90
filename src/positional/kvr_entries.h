/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Entries of the positional index: a hash table from (view, handle) to the
 * block that the handle names, and the tiers in which the view's holder has
 * that block by this handle.
 *
 * A handle is the hash by which an engine names a block: events tell removed
 * blocks and parents by handles.  The number has no meaning outside of its
 * engine: two workers may use one handle for different blocks.
 *
 * An entry is 16 bytes:
 *
 *     word 0   the handle
 *     word 1   block (32) | 12 free, tiers (4) | view (16)
 *
 * with block 0 for an empty slot.  Only writers, under the zone's lock, look
 * at this table.
 */


#ifndef KVR_ENTRIES_H_INCLUDED
#define KVR_ENTRIES_H_INCLUDED


#include "../core/kvr_txn.h"
#include "../core/kvr_table.h"


typedef struct {
    uint64_t    handle;
    uint64_t    word;                   /* block, tiers, view; 0: empty */
} kvr_entry_t;


typedef struct {
    uint64_t    slots;              /* offset from the zone's base */
    uint64_t    nslots;
    uint64_t    limit;              /* entries: 4/5 of the slots */
    uint64_t    used;
    uint64_t    secret[2];
} kvr_entries_zone_t;


typedef struct {
    kvr_mem_t           *mem;
    kvr_entries_zone_t  *zone;
    kvr_entry_t         *slots;
} kvr_entries_t;


static inline uint64_t
kvr_entry(uint32_t block, uint32_t tiers, uint32_t view)
{
    return (uint64_t) block << 32 | tiers << 16 | view;
}


#define kvr_entry_block(p)   ((uint32_t) ((p) >> 32))
#define kvr_entry_tiers(p)   ((uint32_t) (p) >> 16 & 0xf)
#define kvr_entry_view(p)    ((uint32_t) (p) & 0xffff)


void kvr_entries_attach(kvr_entries_t *h, kvr_mem_t *mem,
    kvr_entries_zone_t *z);


static inline uint64_t
kvr_entries_home(const kvr_entries_t *h, uint64_t handle, uint32_t view)
{
    uint64_t  mixed;

    mixed = kvr_table_mix(kvr_table_spread(handle ^ h->zone->secret[0]),
                          h->zone->secret[1]
                          + (uint64_t) view * 0x9e3779b97f4a7c15u);

    return kvr_table_home(mixed, h->zone->nslots);
}


/* A macro: gcc 12 finds that a function which only prefetches does nothing,
 * and drops the call. */
#define kvr_entries_prefetch(h, handle, view)                                 \
    __builtin_prefetch(&(h)->slots[kvr_entries_home(h, handle, view)], 1)


/* The entry, or NULL; *slot is where it is or where it would go. */
static inline kvr_entry_t *
kvr_entries_find(const kvr_entries_t *h, uint64_t handle, uint32_t view,
    uint64_t *slot)
{
    uint64_t       i;
    kvr_entry_t   *e;

    i = kvr_entries_home(h, handle, view);

    for ( ;; ) {
        e = &h->slots[i];

        if (e->word == 0) {
            *slot = i;
            return NULL;
        }

        if (e->handle == handle && kvr_entry_view(e->word) == view) {
            *slot = i;
            return e;
        }

        i = kvr_table_next(i, h->zone->nslots);
    }
}


/*
 * Puts a new entry into the slot that kvr_entries_find() gave; KVR_FULL.
 * zone->used must have been logged in this transaction
 * (kvr_positional_begin() does it once for many).
 */
static inline kvr_rc_t
kvr_entries_put(kvr_entries_t *h, uint64_t slot, uint64_t handle,
    uint64_t word)
{
    kvr_entry_t   *e;

    if (h->zone->used >= h->zone->limit) {
        return KVR_FULL;
    }

    e = &h->slots[slot];

    kvr_set64(h->mem, &e->handle, handle);
    kvr_set64(h->mem, &e->word, word);

    kvr_put64(&h->zone->used, h->zone->used + 1);

    return KVR_OK;
}


/* Deletes the entry in a slot and closes the gap; zone->used as above. */
void kvr_entries_delete(kvr_entries_t *h, uint64_t slot);


#endif /* KVR_ENTRIES_H_INCLUDED */
