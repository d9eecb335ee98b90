/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_radix_free.h"
#include "kvr_children.h"
#include "kvr_handles.h"
#include "kvr_radix_run.h"


static void kvr_radix_open(kvr_radix_t *x);


void
kvr_radix_begin(kvr_radix_t *x)
{
    kvr_radix_open(x);

    if (x->zone->freeing) {
        kvr_radix_free_if_empty(x, x->zone->freeing, 0);
        kvr_txn_commit(x->mem);
        kvr_radix_open(x);
    }
}


static void
kvr_radix_open(kvr_radix_t *x)
{
    kvr_undo_t        *u;
    kvr_radix_zone_t  *z;

    z = x->zone;

    if (z->arena.nlimbo) {
        kvr_arena_settle(&x->arena);
    }

    /* counters that change with every block are logged once, here */

    u = kvr_txn_note_begin(x->mem, 3);
    kvr_txn_note(&u, x->mem, &z->handles.used, KVR_UNDO_64, z->handles.used);
    kvr_txn_note(&u, x->mem, &z->blocks, KVR_UNDO_64, z->blocks);
    kvr_txn_note(&u, x->mem, &z->pairs, KVR_UNDO_64, z->pairs);
    kvr_txn_note_end(x->mem, u);

    x->trimmed = false;

    if (!kvr_arena_same_epoch(&x->arena, x->epoch)) {
        memset(x->hints, 0, sizeof(x->hints));
        x->epoch = kvr_arena_epoch(&x->arena);
    }
}


/*
 * Commits, if the log is low, between two steps of kvr_radix_free_if_empty();
 * if this process dies here, the next writer continues with `run`.
 */

static void
kvr_radix_pause(kvr_radix_t *x, uint32_t run)
{
    if (kvr_radix_short(x)) {
        kvr_set32(x->mem, &x->zone->freeing, run);
        kvr_txn_commit(x->mem);
        kvr_radix_open(x);
        x->early_commits++;
    }
}


/* Shortens the run to len hashes: no view holds a block behind them. */

static void
kvr_radix_trim(kvr_radix_t *x, kvr_run_t *r, uint32_t len)
{
    if (len == r->len) {
        return;
    }

    x->trimmed = true;

    kvr_version_lock(x->mem, &r->version);

    kvr_pages_trim(&x->arena, kvr_run_pages(r), kvr_run_paged(r->len),
                   kvr_run_paged(len));

    kvr_put64(&x->zone->blocks, x->zone->blocks - (r->len - len));
    kvr_set16(x->mem, &r->len, len);

    kvr_version_unlock(&r->version);
}


void
kvr_radix_free_if_empty(kvr_radix_t *x, uint32_t run, uint32_t keep)
{
    uint32_t    top, named, parent;
    kvr_run_t  *r, *up;

    for ( /* void */ ; run && run != keep; run = parent) {

        kvr_radix_pause(x, run);

        r = kvr_radix_run(x, run);
        top = kvr_cover_top(&x->cover, r, r->len, &named);

        while (!kvr_handles_trim(x, run, named)) {
            kvr_radix_pause(x, run);
        }

        if (r->nchildren) {
            break;
        }

        if (!kvr_cover_empty(r)) {
            kvr_radix_trim(x, r, top);
            break;
        }

        kvr_radix_pause(x, run);

        parent = r->parent;

        kvr_children_delete(x, run);

        if (parent) {
            up = kvr_radix_run(x, parent);
            kvr_set32(x->mem, &up->nchildren, up->nchildren - 1);

            if (up->next == run) {
                kvr_set32(x->mem, &up->next, 0);
            }
        }

        kvr_radix_trim(x, r, 0);
        kvr_arena_free(&x->arena, run);
    }

    if (x->zone->freeing) {
        kvr_set32(x->mem, &x->zone->freeing, 0);
    }
}


void
kvr_radix_drop(kvr_radix_t *x, uint32_t run, uint32_t view)
{
    uint32_t    held;
    kvr_run_t  *r;

    r = kvr_radix_run(x, run);

    if (kvr_pairs_get(&x->cover, r, view) & KVR_COVER_OWN) {

        kvr_radix_commit_if_low(x);
        kvr_own_drop(x, run, view);

    } else {
        held = kvr_cover_held(&x->cover, r, view);
        kvr_radix_count(x, view, -(int32_t) held);
    }

    kvr_cover_drop(&x->cover, r, view);
}
