/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The prefix cache: a radix tree of keys in shared memory, as an inference
 * engine keeps one over its KV cache (SGLang's RadixAttention), and beside it
 * a store which finds the longest stored key that a key begins with.
 *
 * UNITS.  A key is a row of units, all of one size in a zone: token ids
 * (uint32_t), block hashes (uint64_t) or bytes.  An item of several tokens,
 * such as a picture, is written into a key by kvr_prefix_item().
 *
 * NAMESPACES.  Each key has an extra key, any bytes, "" as a rule.  Keys with
 * different extra keys never match each other.
 *
 * THE TREE.  kvr_prefix_match() and kvr_prefix_insert() work on whole pages of
 * page_size units; units behind the last whole page are ignored.  A node of
 * the tree has an edge of one or more pages, KVR_PREFIX_EDGE units at most; a
 * longer key is a chain of nodes.  A node is split where keys diverge.  Each
 * unit can have a value, a uint32_t, such as the place of its KV cache.  The
 * unit itself, cut to 32 bits, is its value where none was given.
 *
 * LOCKS.  A lock protects a node and all nodes above it from eviction.  A
 * split inherits the locks.  The locks belong to the process which took them.
 * When that process has died, kvr_prefix_tend() releases its locks.
 *
 * ENTRIES.  kvr_prefix_put() stores a key of any length with a value of bytes.
 * Entries are apart from the tree: neither is found by calls for the other.
 *
 * CONCURRENCY.  One lock (core/kvr_lock) guards a zone; readers take it, too.
 * All changes go through an undo log (core/kvr_txn): if a process is killed at
 * any instruction, then the next process that takes the zone's lock undoes the
 * transaction that was open.  Each call below is one transaction, or a series
 * of transactions with a sound tree after each; the calls' comments say which.
 * Between the transactions of a long series the zone's lock is given back, so
 * that no call holds the lock for more than about KVR_PREFIX_SLICE
 * microseconds.  Such a hold is a slice; the stats count slices, the slices
 * which took longer, and the longest one.
 *
 * The order of eviction is not part of these transactions' promise: a process
 * killed while it notes a use leaves the order of some nodes as it was.
 *
 * BOUNDS.  Units of a key: KVR_PREFIX_KEY_MAX, and 4 MiB.  Nodes below each
 * other that a call follows: KVR_PREFIX_HOPS; a match ends there, an insertion
 * too, an entry is refused, and all are counted ("deep").  Locks: one for each
 * 16 KiB of the zone, at least 1,024.  Processes with locks:
 * KVR_PREFIX_OWNERS.
 *
 * A handle (kvr_prefix_t) serves one thread of one process.  Results of all
 * calls that take the zone's lock:
 *
 *     KVR_OK        done
 *     KVR_BUSY      another process kept the lock for KVR_PREFIX_WAIT ms
 *     KVR_INVALID   a key, an extra key or a value is too long, or an
 *                   entry's key has too many other entries' keys in it
 *     KVR_FULL      no memory, and nothing that may be evicted; or no room
 *                   for one more lock
 *     KVR_DECLINED  the node or the lock is gone; there is no such entry
 */


#ifndef KVR_PREFIX_H_INCLUDED
#define KVR_PREFIX_H_INCLUDED


#include "../core/kvr_arena.h"
#include "../core/kvr_lock.h"


#define KVR_PREFIX_KEY_MAX    (1u << 20)  /* units of a key, and values */
#define KVR_PREFIX_ENTRY_MAX  65536       /* units of an entry's key: a put is
                                             one transaction */
#define KVR_PREFIX_VALUE_MAX  65536       /* bytes of an entry's value */
#define KVR_PREFIX_EXTRA_MAX  1024        /* bytes of an extra key */
#define KVR_PREFIX_PAGE_MAX   512         /* units; a node has one or more */
#define KVR_PREFIX_EDGE       1024        /* units of a node; 512 hashes: 4
                                             KiB, the arena's largest class */
#define KVR_PREFIX_HOPS       2048        /* the undo log has room to lock as
                                             many nodes */
#define KVR_PREFIX_OWNERS     256
#define KVR_PREFIX_LEVELS     256         /* of priorities, of hits */
#define KVR_PREFIX_SLICE      1000        /* us */
#define KVR_PREFIX_WAIT       10          /* ms */
#define KVR_PREFIX_ZONE_MIN   (1u << 20)  /* bytes */
#define KVR_PREFIX_DUMP_MAX   4096        /* nodes of a dump */
#define KVR_PREFIX_WHY        160         /* bytes of a reason */


typedef enum {
    KVR_PREFIX_TOKENS = 0,          /* uint32_t */
    KVR_PREFIX_HASHES,              /* uint64_t */
    KVR_PREFIX_BYTES,
    KVR_PREFIX_UNITS
} kvr_prefix_units_t;


/*
 * The order in which unlocked leaves are evicted.  A match or insertion uses
 * all nodes of its path; a node that is unlocked was used just then.
 */
typedef enum {
    KVR_PREFIX_LRU = 0,             /* the least recently used */
    KVR_PREFIX_LFU,                 /* the least often used; of those, the
                                       least recently used; uses count up to
                                       255 */
    KVR_PREFIX_FIFO,                /* the first inserted, or unlocked */
    KVR_PREFIX_MRU,                 /* the most recently used */
    KVR_PREFIX_PRIORITY,            /* the lowest priority; of those, the
                                       least recently used */
    KVR_PREFIX_POLICIES
} kvr_prefix_policy_t;


typedef struct {
    uint32_t    units;              /* kvr_prefix_units_t */
    uint32_t    page_size;          /* units; 1 .. KVR_PREFIX_PAGE_MAX */
    uint32_t    evict;              /* kvr_prefix_policy_t */

    /* a zone keeps the three above; these are each process's own */

    uint32_t    refuse;             /* 1: a full zone refuses; 0: it evicts */
    uint32_t    max_entries;        /* 0: as many as there is memory for */
    uint32_t    disabled;           /* 1: nothing is stored or found */
} kvr_prefix_params_t;


/* The units must stay as they are during a call; no alignment is needed. */
typedef struct {
    const void  *units;
    size_t       n;
    const void  *extra;             /* NULL: extra_len is 0 */
    size_t       extra_len;
} kvr_prefix_key_t;


/*
 * A place in the tree: the first length units of a key.  Stays valid until the
 * node is evicted; then each call refuses the handle.  id 0: no node, length
 * is 0.
 */
typedef struct {
    uint64_t    id;                 /* a node's; never used twice in a zone */
    uint32_t    node;
    uint32_t    length;             /* units */
} kvr_prefix_node_t;


/* id 0: nothing is locked. */
typedef struct {
    uint64_t    id;                 /* never used twice in a zone */
    uint32_t    slot;
    uint32_t    pad;
} kvr_prefix_lock_t;


/*
 * Told of values that were freed, in no order.  Called without the zone's
 * lock, after the transaction that has freed these values.
 */
typedef void kvr_prefix_freed_pt(void *data, const uint32_t *values,
    uint32_t n);

typedef struct {
    kvr_prefix_freed_pt  *fn;       /* NULL: nobody wants to know */
    void                 *data;
} kvr_prefix_freed_t;


typedef struct {
    uint64_t    nodes;              /* of the tree */
    uint64_t    tokens;             /* units of the tree: evictable and
                                       protected ones */
    uint64_t    evictable;
    uint64_t    protected;          /* by locks */
    uint64_t    namespaces;
    uint64_t    entries;
    uint64_t    entry_tokens;       /* units of nodes that entries need */
    uint64_t    locks;
    uint64_t    owners;             /* processes with locks */
    uint64_t    used;               /* bytes of the arena */
    uint64_t    size;

    uint64_t    hits;               /* lookups that found something */
    uint64_t    misses;
    uint64_t    asked;              /* units of matches */
    uint64_t    matched;            /* of those, found */
    uint64_t    inserted;           /* units */
    uint64_t    evicted;            /* units */
    uint64_t    entries_evicted;
    uint64_t    full;               /* refused for want of memory */
    uint64_t    locks_full;         /* refused for want of a lock */
    uint64_t    stale;              /* handles refused */
    uint64_t    deep;               /* KVR_PREFIX_HOPS ended a call's way */
    uint64_t    reaped;             /* locks of processes that died */
    uint64_t    rollbacks;          /* transactions of such, undone */
    uint64_t    busy;
    uint64_t    slices;
    uint64_t    slow_slices;        /* above KVR_PREFIX_SLICE */
    uint64_t    longest_slice;      /* us */
} kvr_prefix_stats_t;


struct kvr_prefix_zone_s;
struct kvr_prefix_record_s;
struct kvr_prefix_owner_s;

/* A process's handle. */
typedef struct {
    struct kvr_prefix_zone_s    *zone;
    kvr_mem_t                    mem;
    kvr_arena_t                  arena;
    struct kvr_prefix_record_s  *records;   /* of locks */
    struct kvr_prefix_owner_s   *owners;
    uint32_t                    *buckets;
    kvr_prefix_params_t          params;
    kvr_owner_t                  self;
    uint32_t                     slot;      /* of self among the owners */
    uint32_t                     unit;      /* bytes */
    uint32_t                     edge;      /* units of a node at most */
    uint64_t                     entered;   /* us */
    uint32_t                    *freed;     /* values, to be told */
    uint32_t                     nfreed;
} kvr_prefix_t;


/* ---- the zone ----------------------------------------------------------- */

/*
 * Lays a zone out in zeroed memory, aligned to 64 bytes.  KVR_INVALID,
 * KVR_ERROR: why has a sentence.
 */
kvr_rc_t kvr_prefix_format(void *base, size_t size,
    const kvr_prefix_params_t *params, char why[KVR_PREFIX_WHY]);

/*
 * Opens a zone for a process.  KVR_INVALID: the memory holds no such zone, or
 * one of other units, page_size or evict; why says so.
 */
kvr_rc_t kvr_prefix_attach(kvr_prefix_t *c, void *base, size_t size,
    const kvr_prefix_params_t *params, char why[KVR_PREFIX_WHY]);

void kvr_prefix_detach(kvr_prefix_t *c);

/* To be called by each process after its fork: locks will be its own. */
void kvr_prefix_join(kvr_prefix_t *c);

/* Releases this process's locks: it ends. */
void kvr_prefix_leave(kvr_prefix_t *c);

/*
 * To be called by each process about each 100 ms: undoes what a process that
 * died has left, and releases its locks.  True: there is more to be done soon.
 */
bool kvr_prefix_tend(kvr_prefix_t *c);

/* Reads the numbers as they are; takes no lock. */
void kvr_prefix_stats(const kvr_prefix_t *c, kvr_prefix_stats_t *s);

const char *kvr_prefix_policy_name(uint32_t policy);
const char *kvr_prefix_units_name(uint32_t units);


/* ---- the tree ----------------------------------------------------------- */

/*
 * Writes n units that stand for an item, for keys of tokens: units that follow
 * from the item's hash and their place in the item, all from 2^31 up, where no
 * vocabulary has tokens.
 */
void kvr_prefix_item(uint64_t hash, uint32_t *units, uint32_t n);

/*
 * Finds the longest prefix of a key, and uses its nodes.  The tree stays as it
 * is.  values: NULL, or room for as many values as the key has units; the
 * first node->length are written.  One transaction.
 */
kvr_rc_t kvr_prefix_match(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    kvr_prefix_node_t *node, uint32_t *values);

/*
 * Matches all but the last unit of a key, which is always left to be computed,
 * and locks what was found.  What is uncached are the key's units from
 * node->length on.  One transaction.
 */
kvr_rc_t kvr_prefix_begin(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    kvr_prefix_node_t *node, kvr_prefix_lock_t *lock, uint32_t *values);


typedef struct {
    const uint32_t           *values;   /* one for each unit of the key; NULL:
                                           the units are the values */
    const kvr_prefix_node_t  *from;     /* NULL, or where an earlier match of
                                           the same key ended: the units before
                                           that place are not compared */
    uint32_t                  priority; /* below KVR_PREFIX_LEVELS; a node has
                                           the highest it was inserted with */
    kvr_prefix_freed_t        freed;    /* values evicted to make room */
} kvr_prefix_insert_t;

/*
 * Inserts a key.  *existing: how many of its units were there before; node:
 * how far the key is in the tree now.  A series of transactions of 64 nodes
 * each: after KVR_FULL and KVR_BUSY the tree may have a prefix of the key, see
 * node->length.
 */
kvr_rc_t kvr_prefix_insert(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    const kvr_prefix_insert_t *how, uint32_t *existing,
    kvr_prefix_node_t *node);

/* Protects the first node->length units of a path.  One transaction. */
kvr_rc_t kvr_prefix_lock(kvr_prefix_t *c, const kvr_prefix_node_t *node,
    kvr_prefix_lock_t *lock);

/*
 * Gives a lock back.  KVR_DECLINED: the lock was given back before, was voided
 * by a reset, or is another process's.  A series of transactions of 1,024
 * nodes each: after each the lock protects the nodes that are left.
 */
kvr_rc_t kvr_prefix_unlock(kvr_prefix_t *c, const kvr_prefix_lock_t *lock);

/*
 * Evicts unlocked leaves, and their parents when they have become leaves, by
 * the zone's policy, until *done >= n units are free or none is evictable.  A
 * series of transactions of up to 16 nodes each.
 */
kvr_rc_t kvr_prefix_evict(kvr_prefix_t *c, uint64_t n, uint64_t *done,
    kvr_prefix_freed_t freed);

/*
 * Voids all locks, of all processes, and evicts all nodes of the tree.  What
 * other processes insert or lock meanwhile may stay or go.  A series of
 * transactions.
 */
kvr_rc_t kvr_prefix_reset(kvr_prefix_t *c, kvr_prefix_freed_t freed);

/*
 * Tells the values of all nodes, in no order.  A series of looks: a node that
 * other processes insert, split or evict meanwhile may be told or not.
 */
kvr_rc_t kvr_prefix_values(kvr_prefix_t *c, kvr_prefix_freed_t told);


/* ---- entries ------------------------------------------------------------ */

/*
 * Stores a key with a value, or sets the value of a stored key.  The least
 * recently used entry goes when there are max_entries, or there is no memory.
 * One transaction, and one for each entry that goes.
 */
kvr_rc_t kvr_prefix_put(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    const void *value, size_t len);

/*
 * The value of a key; uses the entry.  value: room for KVR_PREFIX_VALUE_MAX
 * bytes.  KVR_DECLINED: there is no such entry.
 */
kvr_rc_t kvr_prefix_get(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    void *value, size_t *len);

/*
 * The longest stored key that the key begins with; with strict, one that is
 * shorter than the key.  Uses the entry.  *length: its units.
 */
kvr_rc_t kvr_prefix_longest(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    bool strict, size_t *length, void *value, size_t *len);

/* KVR_DECLINED: there is no such entry. */
kvr_rc_t kvr_prefix_delete(kvr_prefix_t *c, const kvr_prefix_key_t *key);

/* Deletes all entries.  A series of transactions. */
kvr_rc_t kvr_prefix_clear(kvr_prefix_t *c);


/* ---- for people --------------------------------------------------------- */

/*
 * Prints nodes of tree and entries, parents before children, indented, up to
 * limit of them (KVR_PREFIX_DUMP_MAX at most); a last line says how many there
 * are beyond.  line() is called without the zone's lock.  One slice.
 */
kvr_rc_t kvr_prefix_dump(kvr_prefix_t *c, uint32_t limit,
    void (*line)(void *data, const char *text, size_t len), void *data);


#endif /* KVR_PREFIX_H_INCLUDED */
