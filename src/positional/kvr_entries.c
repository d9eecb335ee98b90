/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_entries.h"


void
kvr_entries_attach(kvr_entries_t *h, kvr_mem_t *mem, kvr_entries_zone_t *z)
{
    h->mem = mem;
    h->zone = z;
    h->slots = (kvr_entry_t *) (mem->base + z->slots);
}


void
kvr_entries_delete(kvr_entries_t *h, uint64_t slot)
{
    uint64_t       j, n;
    kvr_entry_t   *gap, *e;

    n = h->zone->nslots;
    j = slot;

    for ( ;; ) {
        j = kvr_table_next(j, n);
        e = &h->slots[j];

        if (e->word == 0) {
            break;
        }

        if (kvr_table_moves(slot, j,
                            kvr_entries_home(h, e->handle,
                                             kvr_entry_view(e->word))))
        {
            gap = &h->slots[slot];
            kvr_set64(h->mem, &gap->handle, e->handle);
            kvr_set64(h->mem, &gap->word, e->word);
            slot = j;
        }
    }

    kvr_set64(h->mem, &h->slots[slot].word, 0);
    kvr_put64(&h->zone->used, h->zone->used - 1);
}
