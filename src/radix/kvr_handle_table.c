/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_handle_table.h"


void
kvr_handle_format(kvr_mem_t *mem, kvr_handle_zone_t *z, uint64_t at,
    uint64_t size, const uint64_t secret[2])
{
    z->lines = at;
    z->nlines = kvr_min(size / sizeof(kvr_handle_line_t), UINT32_MAX);
    z->limit = z->nlines * KVR_HANDLE_FILL;
    z->used = 0;
    z->secret[0] = secret[0];
    z->secret[1] = secret[1] | 1;
}


void
kvr_handle_attach(kvr_handle_table_t *t, kvr_mem_t *mem, kvr_handle_zone_t *z)
{
    t->mem = mem;
    t->zone = z;
    t->lines = (kvr_handle_line_t *) (mem->base + z->lines);
}


/*
 * The slow part of an insertion: the tag is in the table already, or the home
 * line is full, or the line has overflowed before.
 */

kvr_rc_t
kvr_handle_put_far(kvr_handle_table_t *t, kvr_handle_key_t key, uint32_t run,
    uint32_t offset, bool beside)
{
    uint32_t            at, same, empty, spot, hops, far;
    uint64_t           *slot;
    kvr_handle_line_t  *l;

    if (t->zone->used >= t->zone->limit) {
        return KVR_FULL;
    }

    slot = NULL;
    spot = 0;
    at = key.line;
    far = kvr_handle_far(t);

    for (hops = 0; hops < far; hops++) {
        l = &t->lines[at];
        kvr_handle_scan(l, key.tag, &same, &empty);

        if (same && !beside) {
            return KVR_DECLINED;
        }

        if (empty && slot == NULL) {
            slot = &l->slots[__builtin_ctz(empty)];
            spot = at;
        }

        if (slot && l->passed == 0) {
            break;
        }

        at = (uint32_t) kvr_table_next(at, t->zone->nlines);
    }

    if (slot == NULL) {
        return KVR_FULL;
    }

    for (at = key.line; at != spot;
         at = (uint32_t) kvr_table_next(at, t->zone->nlines))
    {
        kvr_set64(t->mem, &t->lines[at].passed, t->lines[at].passed + 1);
    }

    kvr_set64(t->mem, slot, kvr_handle_word(key, run, offset));
    kvr_put64(&t->zone->used, t->zone->used + 1);

    return KVR_OK;
}


/* The slow part of a deletion: the entry is not in its home line. */

void
kvr_handle_delete_far(kvr_handle_table_t *t, kvr_handle_key_t key,
    uint64_t word)
{
    uint32_t            i, at, same, empty;
    kvr_handle_line_t  *l;

    at = key.line;

    for ( ;; ) {
        l = &t->lines[at];
        kvr_handle_scan(l, key.tag, &same, &empty);

        for ( /* void */ ; same; same &= same - 1) {
            i = (uint32_t) __builtin_ctz(same);

            if (l->slots[i] == word) {
                kvr_set64(t->mem, &l->slots[i], 0);
                kvr_put64(&t->zone->used, t->zone->used - 1);
                return;
            }
        }

        if (l->passed == 0) {
            kvr_txn_damaged("a handle is not in its table");
        }

        kvr_set64(t->mem, &l->passed, l->passed - 1);
        at = (uint32_t) kvr_table_next(at, t->zone->nlines);
    }
}
