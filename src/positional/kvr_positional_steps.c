/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_positional_steps.h"
#include "kvr_links.h"
#include "kvr_places.h"


void
kvr_positional_begin(kvr_positional_t *x)
{
    kvr_positional_open(x);

    if (x->zone->freeing) {
        (void) kvr_positional_free_if_empty(x, x->zone->freeing);
        kvr_txn_commit(x->mem);
        kvr_positional_open(x);
    }
}


void
kvr_positional_commit_if_low(kvr_positional_t *x)
{
    if (kvr_positional_short(x)) {
        kvr_txn_commit(x->mem);
        kvr_positional_open(x);
    }
}


uint32_t
kvr_positional_free_if_empty(kvr_positional_t *x, uint32_t block)
{
    uint32_t      parent;
    kvr_block_t  *b, *up;

    while (block) {

        b = kvr_block_at(&x->arena, block);

        if (b->nchildren || kvr_block_held(&x->arena, b)) {
            break;
        }

        parent = b->parent;

        if (x->zone->evicting == block) {
            kvr_set32(x->mem, &x->zone->evicting, 0);
        }

        kvr_places_delete(x, block);

        kvr_version_lock(x->mem, &b->version);
        kvr_set32(x->mem, &b->position, KVR_BLOCK_FREE);
        kvr_version_unlock(&b->version);

        if (parent) {
            up = kvr_block_at(&x->arena, parent);
            kvr_set32(x->mem, &up->nchildren, up->nchildren - 1);
        }

        if (b->cap) {
            kvr_arena_free(&x->arena, b->at.ext);
        }

        kvr_arena_free(&x->arena, block);

        block = parent;

        if (kvr_positional_short(x)) {
            kvr_set32(x->mem, &x->zone->freeing, block);
            kvr_txn_commit(x->mem);
            kvr_positional_open(x);
        }
    }

    if (x->zone->freeing) {
        kvr_set32(x->mem, &x->zone->freeing, 0);
    }

    return block;
}


void
kvr_positional_drop(kvr_positional_t *x, uint64_t slot)
{
    uint32_t  view;

    view = kvr_entry_view(x->handles.slots[slot].word);

    kvr_entries_delete(&x->handles, slot);
    kvr_set32(x->mem, &x->view_handles[view], x->view_handles[view] - 1);

    if (x->view_handles[view] == 0 && x->view_broken[view]) {
        /* nothing is left of the view's blocks, so its hiding ends */
        kvr_links_set_broken(x, view, 0);
    }
}


void
kvr_positional_evict_record(kvr_positional_t *x, uint32_t block, uint32_t i)
{
    uint32_t      view;
    uint64_t      slot, handle;
    kvr_block_t  *b;

    b = kvr_block_at(&x->arena, block);
    view = kvr_mark_view(kvr_block_marks(&x->arena, b)[i]);
    handle = kvr_block_values(&x->arena, b)[i];

    if (kvr_entries_find(&x->handles, handle, view, &slot) == NULL) {
        kvr_txn_damaged("a handle is not in its table");
    }

    kvr_links_lose(x, view, block, handle, 0);
    kvr_positional_drop(x, slot);
}
