/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Children: (run, offset, first hash) -> the run that hangs there.
 *
 * A slot is one word, run << 32 | tag; 0 is empty.  The key itself is in the
 * run's header; its upper half is the tag, which spares most looks at it, and
 * says where an entry's home is when another one is deleted.  A bitmap says
 * which slots are in use: it is small enough for the processor's caches, where
 * the slot that a miss would look at is not.  Before both, the root's children
 * have a filter that is smaller still (kvr_roots.h).
 *
 * Readers probe without a lock.  A new child comes by one store.  A deletion
 * moves others back, and a reader might miss one that is on its way: so the
 * table has a version, odd while entries move, and a reader that found
 * nothing looks again when the version has changed.  One that found something
 * needs not: the run itself says whose child it is.
 */


#ifndef KVR_CHILDREN_H_INCLUDED
#define KVR_CHILDREN_H_INCLUDED


#include "kvr_roots.h"


#define KVR_CHILDREN_ROW     1024       /* slots in use in a row, and so many
                                           entries that a deletion may move;
                                           a longer row counts as a full
                                           table */


static inline uint64_t
kvr_children_key(const kvr_radix_t *x, uint32_t run, uint32_t offset,
    uint64_t hash)
{
    return kvr_table_mix(kvr_table_spread(hash ^ x->zone->secret[0]),
                         ((uint64_t) run << 16 | offset) ^ x->zone->secret[1]);
}


#define kvr_children_tag(key)  ((uint32_t) ((key) >> 32))


/*
 * For readers and writers: the child, or 0.  *torn is set when a writer was
 * in the way and nothing was found.
 */
static inline uint32_t
kvr_children_find(const kvr_radix_t *x, uint32_t run, uint32_t offset,
    uint64_t hash, bool *torn)
{
    uint32_t          tag, version, child, attempts;
    uint64_t          i, n, key, slot, probes;
    const kvr_run_t  *r;

    key = kvr_children_key(x, run, offset, hash);
    tag = kvr_children_tag(key);
    n = x->zone->nchildren;

    if (run == 0 && !kvr_roots_may(x, key)) {
        return 0;
    }

    for (attempts = 0; attempts < KVR_RADIX_ATTEMPTS; attempts++) {

        version = __atomic_load_n(&x->zone->children_version,
                                  __ATOMIC_ACQUIRE);
        i = kvr_table_home(key, n);
        probes = kvr_load64(&x->occupied[i / 64]) >> (i & 63) & 1 ? 0 : n;

        for ( /* void */ ; probes < n; probes++) {
            slot = __atomic_load_n(&x->children[i], __ATOMIC_ACQUIRE);

            if (slot == 0) {
                break;
            }

            if ((uint32_t) slot == tag) {
                child = (uint32_t) (slot >> 32);
                r = kvr_radix_run(x, child);

                if (kvr_load32(&r->parent) == run
                    && kvr_load16(&r->offset) == offset
                    && kvr_load64(&r->hashes[0]) == hash
                    && kvr_load16(&r->len))
                {
                    return child;
                }
            }

            i = kvr_table_next(i, n);
        }

        kvr_fence(__ATOMIC_ACQUIRE);

        if ((version & 1) == 0
            && kvr_load32(&x->zone->children_version) == version)
        {
            return 0;
        }
    }

    *torn = true;

    return 0;
}


/* Writers.  KVR_FULL. */
kvr_rc_t kvr_children_add(kvr_radix_t *x, uint32_t child);
void kvr_children_delete(kvr_radix_t *x, uint32_t child);


#endif /* KVR_CHILDREN_H_INCLUDED */
