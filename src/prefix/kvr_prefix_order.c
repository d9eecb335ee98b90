/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The order in which a prefix cache evicts.
 *
 * Each level has a list of nodes from the newest to the oldest; all policies
 * but lfu and priority use level 0 alone.  A use moves a node to the newest
 * end, and after it the nodes above.  So a node is newer than its children, or
 * is in a higher level, and the oldest node of the lowest level is a leaf.
 * With mru only leaves are listed: a parent that becomes a leaf was used no
 * earlier than its last child, the newest leaf.
 *
 * A process that was killed in the middle of a use may leave a node older than
 * its child.  For this reason the search for a victim looks at each node.
 */


#include "kvr_prefix_state.h"


#define KVR_PREFIX_LOOKS     (2 * KVR_PREFIX_HOPS)
#define KVR_PREFIX_USE_ROOM  64     /* undo records for a node's use */


static kvr_prefix_list_t *
kvr_prefix_list_of(kvr_prefix_t *c, const kvr_prefix_item_t *p)
{
    return p->flags & KVR_PREFIX_STORED ? &c->zone->entries
                                        : &c->zone->levels[p->level];
}


static void
kvr_prefix_fill(kvr_prefix_t *c, const kvr_prefix_item_t *p, bool filled)
{
    uint64_t  bit, *word;

    if (p->flags & KVR_PREFIX_STORED) {
        return;
    }

    word = &c->zone->filled[p->level / 64];
    bit = UINT64_C(1) << p->level % 64;

    kvr_set64(&c->mem, word, filled ? *word | bit : *word & ~bit);
}


/* Makes a node the newest of its list. */

static void
kvr_prefix_push(kvr_prefix_t *c, uint32_t node)
{
    kvr_prefix_item_t  *p;
    kvr_prefix_list_t  *list;

    p = kvr_prefix_at(c, node);
    list = kvr_prefix_list_of(c, p);

    kvr_set32(&c->mem, &p->newer, 0);
    kvr_set32(&c->mem, &p->older, list->newest);
    kvr_set32(&c->mem, &p->flags, p->flags | KVR_PREFIX_LISTED);

    if (list->newest) {
        kvr_set32(&c->mem, &kvr_prefix_at(c, list->newest)->newer, node);

    } else {
        kvr_set32(&c->mem, &list->oldest, node);
        kvr_prefix_fill(c, p, true);
    }

    kvr_set32(&c->mem, &list->newest, node);
}


void
kvr_prefix_unlist(kvr_prefix_t *c, uint32_t node)
{
    kvr_prefix_item_t  *p;
    kvr_prefix_list_t  *list;

    p = kvr_prefix_at(c, node);

    if ((p->flags & KVR_PREFIX_LISTED) == 0) {
        return;
    }

    list = kvr_prefix_list_of(c, p);

    kvr_set32(&c->mem, p->newer ? &kvr_prefix_at(c, p->newer)->older
                                : &list->newest, p->older);
    kvr_set32(&c->mem, p->older ? &kvr_prefix_at(c, p->older)->newer
                                : &list->oldest, p->newer);
    kvr_set32(&c->mem, &p->flags, p->flags & ~KVR_PREFIX_LISTED);

    if (list->newest == 0) {
        kvr_prefix_fill(c, p, false);
    }
}


void
kvr_prefix_list(kvr_prefix_t *c, uint32_t node)
{
    bool                wanted;
    kvr_prefix_item_t  *p;

    p = kvr_prefix_at(c, node);
    wanted = p->locks == 0
             && (c->zone->evict != KVR_PREFIX_MRU || p->child == 0);

    if (!wanted) {
        kvr_prefix_unlist(c, node);

    } else if ((p->flags & KVR_PREFIX_LISTED) == 0) {
        kvr_prefix_push(c, node);
    }
}


void
kvr_prefix_list_beside(kvr_prefix_t *c, uint32_t node, uint32_t child)
{
    kvr_prefix_item_t  *p, *q;

    p = kvr_prefix_at(c, node);
    q = kvr_prefix_at(c, child);

    if (c->zone->evict == KVR_PREFIX_MRU
        || (q->flags & KVR_PREFIX_LISTED) == 0)
    {
        return;
    }

    p->flags |= KVR_PREFIX_LISTED;
    p->newer = q->newer;
    p->older = child;

    kvr_set32(&c->mem, q->newer ? &kvr_prefix_at(c, q->newer)->older
                                : &kvr_prefix_list_of(c, q)->newest, node);
    kvr_set32(&c->mem, &q->newer, node);
}


void
kvr_prefix_use_entry(kvr_prefix_t *c, uint32_t node)
{
    kvr_prefix_unlist(c, node);
    kvr_prefix_push(c, node);
}


void
kvr_prefix_use(kvr_prefix_t *c, uint32_t node, bool hit, bool insert,
    uint32_t priority)
{
    bool                moves;
    uint32_t            level;
    kvr_prefix_item_t  *p;

    moves = insert || c->zone->evict != KVR_PREFIX_FIFO;

    for ( /* void */ ; node; node = p->parent) {

        p = kvr_prefix_at(c, node);

        if (p->flags & KVR_PREFIX_SPACE) {
            break;
        }

        if (kvr_txn_room(&c->mem) < KVR_PREFIX_USE_ROOM) {
            kvr_txn_commit(&c->mem);
        }

        level = p->level;

        if (c->zone->evict == KVR_PREFIX_LFU && hit) {
            level = kvr_min(level + 1, KVR_PREFIX_LEVELS - 1);

        } else if (c->zone->evict == KVR_PREFIX_PRIORITY && insert) {
            level = kvr_max(level, priority);
        }

        if ((p->flags & KVR_PREFIX_LISTED) == 0) {
            if (level != p->level) {
                kvr_set32(&c->mem, &p->level, level);
            }

            continue;
        }

        if (level == p->level && (!moves || p->newer == 0)) {
            continue;
        }

        kvr_prefix_unlist(c, node);
        kvr_set32(&c->mem, &p->level, level);
        kvr_prefix_push(c, node);
    }

    kvr_txn_commit(&c->mem);
}


uint32_t
kvr_prefix_victim(const kvr_prefix_t *c, uint32_t except)
{
    bool                      mru;
    uint32_t                  i, looks, level, node;
    uint64_t                  left;
    const kvr_prefix_item_t  *p;
    const kvr_prefix_list_t  *list;

    mru = c->zone->evict == KVR_PREFIX_MRU;
    looks = 0;

    for (i = 0; i < KVR_PREFIX_LEVELS / 64; i++) {

        for (left = c->zone->filled[i]; left; left &= left - 1) {

            level = i * 64 + (uint32_t) __builtin_ctzll(left);
            list = &c->zone->levels[level];
            node = mru ? list->newest : list->oldest;

            while (node && looks++ < KVR_PREFIX_LOOKS) {
                p = kvr_prefix_at(c, node);

                if (node != except && p->child == 0) {
                    return node;
                }

                node = mru ? p->older : p->newer;
            }
        }
    }

    return 0;
}
