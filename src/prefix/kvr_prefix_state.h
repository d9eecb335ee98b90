/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the files of the prefix cache share: the zone's layout, nodes, and the
 * steps that calls consist of.  All functions are for the owner of the zone's
 * lock, between kvr_prefix_enter() and kvr_prefix_exit().
 */


#ifndef KVR_PREFIX_STATE_H_INCLUDED
#define KVR_PREFIX_STATE_H_INCLUDED


#include "kvr_prefix.h"


#define KVR_PREFIX_INLINE    112        /* bytes of units inside a node */
#define KVR_PREFIX_FREED     65536      /* values that one slice can note */

/* Flags of a node. */
#define KVR_PREFIX_SPACE     1u         /* a namespace: units are its extra
                                           key; it has no parent */
#define KVR_PREFIX_STORED    2u         /* of the store, not of the tree */
#define KVR_PREFIX_ENTRY     4u         /* an entry ends here */
#define KVR_PREFIX_LISTED    8u         /* in a list of zone->levels, or, an
                                           entry, in zone->entries */


/*
 * A node, a run of the arena.  A node's number is its piece; 0: none.
 * A node of the tree is listed while it may be evicted now or when its
 * children are gone: while it has no lock, and with mru, while it is a leaf.
 */
typedef struct {
    uint64_t    id;                 /* 0: freed */
    uint32_t    parent;
    uint32_t    child;              /* the first */
    uint32_t    next;               /* siblings */
    uint32_t    prev;
    uint32_t    chain;              /* next of the bucket */
    uint32_t    hash;               /* of parent and first page */
    uint32_t    start;              /* units before it */
    uint32_t    len;                /* units; a namespace: bytes */
    uint32_t    units;              /* piece; 0: data has them */
    uint32_t    values;             /* piece; 0: the units are the values */
    uint32_t    locks;              /* of this node, and of nodes below it */
    uint32_t    flags;
    uint32_t    newer;              /* in its list; 0: the newest */
    uint32_t    older;
    uint32_t    level;              /* priority, or hits */
    uint32_t    value;              /* an entry's piece; 0: no bytes */
    uint32_t    value_len;
    uint32_t    pad;
    uint64_t    data[KVR_PREFIX_INLINE / sizeof(uint64_t)];
} kvr_prefix_item_t;

_Static_assert(sizeof(kvr_prefix_item_t)
               == KVR_ARENA_RUN_WORDS * sizeof(uint64_t),
               "a node is a run of the arena");


/* Newest and oldest node; 0: none. */
typedef struct {
    uint32_t    newest;
    uint32_t    oldest;
} kvr_prefix_list_t;


/* A lock.  Slots are numbers from 0; next and prev are slots + 1, 0: none. */
typedef struct kvr_prefix_record_s {
    uint64_t    id;                 /* 0: free */
    uint32_t    node;               /* the lowest that is locked */
    uint32_t    owner;
    uint32_t    next;               /* of its owner's; of the free ones */
    uint32_t    prev;
} kvr_prefix_record_t;


typedef struct kvr_prefix_owner_s {
    kvr_owner_t  owner;             /* 0: free */
    uint32_t     head;              /* slot + 1 of a lock */
    uint32_t     n;
} kvr_prefix_owner_t;


typedef struct kvr_prefix_zone_s {
    uint64_t             magic;
    uint64_t             size;
    uint32_t             version;
    uint32_t             units;
    uint32_t             page_size;
    uint32_t             evict;
    uint64_t             secret[2];

    uint64_t             journal;   /* offsets from the base */
    uint64_t             records;
    uint64_t             owners;
    uint64_t             buckets;
    uint32_t             nrecords;
    uint32_t             nbuckets;

    kvr_lock_t           lock;
    uint64_t             ids;       /* the last one given */
    uint32_t             free;      /* slot + 1 of a lock */
    uint32_t             prune;     /* a node of the store that may have
                                       become useless, 0: none */
    uint64_t             reap;      /* ms: next look for dead owners */
    uint32_t             reaped;    /* where the last one ended */
    uint32_t             spaces;    /* the first namespace */

    kvr_prefix_stats_t   stats;
    uint64_t             filled[KVR_PREFIX_LEVELS / 64];
    kvr_prefix_list_t    levels[KVR_PREFIX_LEVELS];
    kvr_prefix_list_t    entries;
    kvr_arena_zone_t     arena;
} kvr_prefix_zone_t;


/* Where a walk ended. */
typedef struct {
    uint32_t    node;               /* the last one; 0: not even a namespace */
    uint32_t    length;             /* units found */
    uint32_t    entry;              /* the last entry passed; 0: none */
    uint32_t    hops;               /* nodes passed */
    bool        deep;               /* KVR_PREFIX_HOPS ended the walk */
} kvr_prefix_walk_t;


static inline kvr_prefix_item_t *
kvr_prefix_at(const kvr_prefix_t *c, uint32_t node)
{
    return kvr_arena_at(&c->arena, node);
}


static inline const char *
kvr_prefix_units(const kvr_prefix_t *c, const kvr_prefix_item_t *p)
{
    return p->units ? kvr_arena_at(&c->arena, p->units)
                    : (const void *) p->data;
}


/* Units that two pages must not cross: entries may end anywhere. */
static inline uint32_t
kvr_prefix_page(const kvr_prefix_t *c, uint32_t flags)
{
    return flags & KVR_PREFIX_STORED ? 1 : c->params.page_size;
}


/* Where a page or a walk of these flags ends at most. */
static inline uint32_t
kvr_prefix_whole(uint32_t n, uint32_t page)
{
    return page == 1 ? n : n - n % page;
}


/* ---- zone --------------------------------------------------------------- */

/* Takes the zone's lock, undoes what a dead process left, and begins. */
kvr_rc_t kvr_prefix_enter(kvr_prefix_t *c);

/* Ends the transaction, if one is open, and gives the lock back. */
void kvr_prefix_exit(kvr_prefix_t *c);

/* Between two transactions of one slice: commits and begins. */
void kvr_prefix_again(kvr_prefix_t *c);

/* True while the slice may go on. */
bool kvr_prefix_in_time(const kvr_prefix_t *c);

/* KVR_OK, or KVR_INVALID: the key is too long. */
kvr_rc_t kvr_prefix_check_key(const kvr_prefix_t *c,
    const kvr_prefix_key_t *key, size_t max);


/* ---- nodes -------------------------------------------------------------- */

/* The namespace of a key, of the tree or, by flags, the store; 0: none. */
uint32_t kvr_prefix_space(const kvr_prefix_t *c, const kvr_prefix_key_t *key,
    uint32_t flags);

/* Makes a namespace; 0: no memory. */
uint32_t kvr_prefix_space_make(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    uint32_t flags);

/* Follows a key's first n units below w->node, which is at w->length. */
void kvr_prefix_walk(kvr_prefix_t *c, const kvr_prefix_key_t *key, uint32_t n,
    kvr_prefix_walk_t *w);

/* The same from the key's namespace on, of the tree or the store. */
void kvr_prefix_find(kvr_prefix_t *c, const kvr_prefix_key_t *key, uint32_t n,
    uint32_t flags, kvr_prefix_walk_t *w);

/* Makes w->node end where the walk did; 0: no memory. */
uint32_t kvr_prefix_place(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    uint32_t flags, kvr_prefix_walk_t *w);

/* Makes a leaf of len units; values may be NULL.  0: no memory. */
uint32_t kvr_prefix_make(kvr_prefix_t *c, uint32_t parent, const void *units,
    const uint32_t *values, uint32_t len);

/*
 * Cuts a node behind its first n units; returns the new node, which has these
 * units and is the parent of the other.  0: no memory.
 */
uint32_t kvr_prefix_split(kvr_prefix_t *c, uint32_t node, uint32_t n);

/*
 * The node that ends at this length, after a split of the node given, or, when
 * there is no memory for the split, that node.  To be called with nothing in
 * the transaction.
 */
uint32_t kvr_prefix_end_at(kvr_prefix_t *c, uint32_t node, uint32_t length);

/* Removes a leaf, and its namespace when that has no other node. */
void kvr_prefix_remove(kvr_prefix_t *c, uint32_t node);

/* Writes values of units from .. to of a node. */
void kvr_prefix_read(const kvr_prefix_t *c, const kvr_prefix_item_t *p,
    uint32_t from, uint32_t to, uint32_t *values);

/* The node in which, or at whose end, a handle's place is; 0: stale. */
uint32_t kvr_prefix_resolve(const kvr_prefix_t *c,
    const kvr_prefix_node_t *node);


/* ---- order of eviction -------------------------------------------------- */

/* Puts a node into its list, or takes it out, as its state asks. */
void kvr_prefix_list(kvr_prefix_t *c, uint32_t node);

/* Puts a node of the tree beside another one, which is its only child. */
void kvr_prefix_list_beside(kvr_prefix_t *c, uint32_t node, uint32_t child);

/* Takes a node out of its list. */
void kvr_prefix_unlist(kvr_prefix_t *c, uint32_t node);

/* An entry is the newest of its list. */
void kvr_prefix_use_entry(kvr_prefix_t *c, uint32_t node);

/*
 * Notes a use of a node and all above it.  hit: counts as one; insert: as an
 * insertion with this priority.  Commits.
 */
void kvr_prefix_use(kvr_prefix_t *c, uint32_t node, bool hit, bool insert,
    uint32_t priority);

/* The leaf to be evicted next, but not that one; 0: none. */
uint32_t kvr_prefix_victim(const kvr_prefix_t *c, uint32_t except);


/* ---- locks -------------------------------------------------------------- */

/* Locks a node that ends where the lock is to end.  No commit. */
kvr_rc_t kvr_prefix_take(kvr_prefix_t *c, uint32_t node,
    kvr_prefix_lock_t *lock);

/* Releases the lock in a slot; may commit. */
void kvr_prefix_release(kvr_prefix_t *c, uint32_t slot);


/* ---- room --------------------------------------------------------------- */

/* Evicts some nodes in a slice; returns how many units were freed. */
uint64_t kvr_prefix_evict_some(kvr_prefix_t *c, uint64_t n, uint32_t except,
    bool tell);

/* Tells what was freed; to be called without the lock. */
void kvr_prefix_tell(kvr_prefix_t *c, const kvr_prefix_freed_t *freed);

/* Notes values of a node, to be told.  False: there is no room. */
bool kvr_prefix_note(kvr_prefix_t *c, const kvr_prefix_item_t *p);

/* Drops the oldest entry.  Commits.  False: there is none. */
bool kvr_prefix_drop_oldest(kvr_prefix_t *c);

/*
 * Removes nodes of the store that no entry needs any more, zone->prune and
 * those above.  Commits.  False: there is more to do, and the slice is over.
 */
bool kvr_prefix_prune(kvr_prefix_t *c);


#endif /* KVR_PREFIX_STATE_H_INCLUDED */
