/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Children: a hash table from (parent run, offset in the parent, hash of the
 * child's first block) to the child run.
 *
 * A slot is one 64-bit word, run << 32 | tag; 0 is an empty slot.  The key is
 * not in the slot: the child run's header has it.  The tag is the upper half
 * of the key's hash.  The tag saves most reads of run headers, and when an
 * entry is deleted, the tags say how far back the entries behind it can move.
 *
 * A bitmap says which slots are in use.  The bitmap fits in the processor's
 * caches and the table does not: most lookups that find nothing read the
 * bitmap alone.  For children of the root there is a smaller filter, which is
 * asked first (kvr_roots.h).
 *
 * Readers probe without a lock.  A writer adds a child by one store.  A
 * deletion moves other entries back, and a reader could miss an entry while it
 * moves.  Therefore the table has a version, which is odd while entries move:
 * a reader that found nothing and sees that the version has changed reads the
 * table again.  A reader that found a run needs no version, because the run's
 * header says which parent it belongs to.
 */


#ifndef KVR_CHILDREN_H_INCLUDED
#define KVR_CHILDREN_H_INCLUDED


#include "kvr_roots.h"


/*
 * The maximum number of consecutive slots in use, and so of the entries that
 * one deletion moves.  If a new child would make a longer row, the table
 * counts as full.
 */
#define KVR_CHILDREN_ROW     1024


static inline uint64_t
kvr_children_key(const kvr_radix_t *x, uint32_t run, uint32_t offset,
    uint64_t hash)
{
    return kvr_table_mix(kvr_table_spread(hash ^ x->zone->secret[0]),
                         ((uint64_t) run << 16 | offset) ^ x->zone->secret[1]);
}


#define kvr_children_tag(key)  ((uint32_t) ((key) >> 32))


/*
 * Finds the child run, or returns 0.  For readers, without a lock, and for the
 * writer.  If a writer kept moving entries during KVR_RADIX_ATTEMPTS reads,
 * returns 0 and sets *torn: the child may exist.  Otherwise *torn is not
 * changed.
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


/*
 * For the owner of the zone's lock, in a transaction.  add: the child's header
 * is complete, and the table has no such child; KVR_FULL: no free slot, or the
 * row would be longer than KVR_CHILDREN_ROW.  delete: the table has the child.
 */
kvr_rc_t kvr_children_add(kvr_radix_t *x, uint32_t child);
void kvr_children_delete(kvr_radix_t *x, uint32_t child);


#endif /* KVR_CHILDREN_H_INCLUDED */
