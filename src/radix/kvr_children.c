/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_children.h"


static bool kvr_children_crowded(const kvr_radix_t *x, uint64_t slot);


static uint64_t
kvr_children_key_of(const kvr_radix_t *x, uint32_t child)
{
    const kvr_run_t  *r;

    r = kvr_radix_run(x, child);

    return kvr_children_key(x, r->parent, r->offset, r->hashes[0]);
}


kvr_rc_t
kvr_children_add(kvr_radix_t *x, uint32_t child)
{
    uint64_t  i, key;

    if (x->zone->children_used >= x->zone->children_limit) {
        return KVR_FULL;
    }

    key = kvr_children_key_of(x, child);
    i = kvr_table_home(key, x->zone->nchildren);

    while (x->children[i]) {
        i = kvr_table_next(i, x->zone->nchildren);
    }

    if (kvr_children_crowded(x, i)) {
        return KVR_FULL;
    }

    kvr_txn_log(x->mem, &x->children[i], KVR_UNDO_64, 0);
    __atomic_store_n(&x->children[i],
                     (uint64_t) child << 32 | kvr_children_tag(key),
                     __ATOMIC_RELEASE);

    kvr_set64(x->mem, &x->occupied[i / 64],
              x->occupied[i / 64] | UINT64_C(1) << (i & 63));

    if (kvr_radix_run(x, child)->parent == 0) {
        kvr_roots_add(x, key);
    }

    kvr_set64(x->mem, &x->zone->children_used, x->zone->children_used + 1);

    return KVR_OK;
}


/* Would an entry in this slot make a row that is too long? */

static bool
kvr_children_crowded(const kvr_radix_t *x, uint64_t slot)
{
    uint64_t  i, n, row, word, bit;

    n = x->zone->nchildren;
    bit = UINT64_C(1) << (slot & 63);
    word = ~(x->occupied[slot / 64] | bit);

    /* in most cases the row begins and ends within this word */

    if ((word & (bit - 1)) && word > bit && slot / 64 < n / 64) {
        return false;
    }

    row = 1;

    for (i = kvr_table_next(slot, n);
         x->children[i] && i != slot && row <= KVR_CHILDREN_ROW;
         i = kvr_table_next(i, n))
    {
        row++;
    }

    for (i = slot ? slot - 1 : n - 1;
         x->children[i] && i != slot && row <= KVR_CHILDREN_ROW;
         i = i ? i - 1 : n - 1)
    {
        row++;
    }

    return row > KVR_CHILDREN_ROW;
}


/* The slot of the table that holds this child. */

static uint64_t
kvr_children_slot(const kvr_radix_t *x, uint32_t child)
{
    uint64_t  i;

    i = kvr_table_home(kvr_children_key_of(x, child), x->zone->nchildren);

    while ((uint32_t) (x->children[i] >> 32) != child) {
        if (x->children[i] == 0) {
            kvr_txn_damaged("a run is not in its table");
        }

        i = kvr_table_next(i, x->zone->nchildren);
    }

    return i;
}


void
kvr_children_delete(kvr_radix_t *x, uint32_t child)
{
    uint64_t  gap, j, n, slot, home;

    n = x->zone->nchildren;
    gap = kvr_children_slot(x, child);

    if (kvr_radix_run(x, child)->parent == 0) {
        kvr_roots_delete(x, kvr_children_key_of(x, child));
    }

    kvr_version_lock(x->mem, &x->zone->children_version);

    j = gap;

    for ( ;; ) {
        j = kvr_table_next(j, n);
        slot = x->children[j];

        if (slot == 0) {
            break;
        }

        home = kvr_table_home(slot << 32, n);

        if (kvr_table_moves(gap, j, home)) {
            kvr_set64(x->mem, &x->children[gap], slot);
            gap = j;
        }
    }

    kvr_set64(x->mem, &x->children[gap], 0);
    kvr_set64(x->mem, &x->occupied[gap / 64],
              x->occupied[gap / 64] & ~(UINT64_C(1) << (gap & 63)));

    kvr_version_unlock(&x->zone->children_version);

    kvr_set64(x->mem, &x->zone->children_used, x->zone->children_used - 1);
}
