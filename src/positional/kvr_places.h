/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Places: (position, sequence hash) -> block, the positional index's table.
 *
 * A slot is one word, block << 32 | tag; 0 is empty.  The tag is the high half
 * of the sequence hash and tells an entry's home slot; the whole key is in the
 * block.
 *
 * Readers probe without a lock.  A new entry is inserted by one store.  A
 * deletion moves other entries back, and a reader might miss an entry which
 * is being moved.  So every KVR_POSITIONAL_STRIPE slots have a version, which
 * is odd while their entries move.  A reader that found nothing looks again
 * when a version of the slots that it probed has changed.  A reader that found
 * a block need not: the block itself holds its key.
 */


#ifndef KVR_PLACES_H_INCLUDED
#define KVR_PLACES_H_INCLUDED


#include "kvr_positional.h"


#define KVR_PLACES_SPINS     64         /* while a block's version is odd */


/* The sequence hash behind `before` (of the root: 0). */
static inline uint64_t
kvr_places_sequence(const kvr_positional_t *x, uint64_t before, uint64_t hash)
{
    return kvr_table_mix(before ^ x->zone->secret[0],
                         kvr_table_spread(hash ^ x->zone->secret[1]));
}


#define kvr_places_tag(sequence)   ((uint32_t) ((sequence) >> 32))

#define kvr_places_prefetch(x, sequence)                                      \
    __builtin_prefetch(&(x)->places[kvr_table_home(sequence,                  \
                                                   (x)->zone->nplaces)])


/*
 * For readers: the block and its version, which was read before anything else
 * of the block, or 0. *torn is set when nothing was found and a writer was
 * changing the table or a block on the way.
 */
uint32_t kvr_places_find(const kvr_positional_t *x, uint32_t position,
    uint64_t hash, uint64_t sequence, uint32_t *version, bool *torn);


/* For writers: the child of a block (0: the root), or 0. */
static inline uint32_t
kvr_places_child(const kvr_positional_t *x, uint32_t parent, uint64_t hash,
    uint64_t sequence)
{
    uint32_t            child;
    uint64_t            i, n, slot;
    const kvr_block_t  *b;

    n = x->zone->nplaces;
    i = kvr_table_home(sequence, n);

    for ( ;; ) {
        slot = x->places[i];

        if (slot == 0) {
            return 0;
        }

        if ((uint32_t) slot == kvr_places_tag(sequence)) {
            child = (uint32_t) (slot >> 32);
            b = kvr_block_at(&x->arena, child);

            if (b->parent == parent && b->hash == hash
                && b->sequence == sequence)
            {
                return child;
            }
        }

        i = kvr_table_next(i, n);
    }
}


/* Writers; zone->blocks must have been logged in this transaction. */

kvr_rc_t kvr_places_add(kvr_positional_t *x, uint32_t block);
void kvr_places_delete(kvr_positional_t *x, uint32_t block);


#endif /* KVR_PLACES_H_INCLUDED */
