/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A shard: some of a zone's workers, with all that events change for them.
 *
 *     kvr_shard_zone_t    lock, lease, headers
 *     journal             the undo log
 *     fleet               workers, holders, views
 *     estimates           a record for each holder
 *     recency             the ends of the chains that estimates hold
 *     index               of one kind or the other: tables, arena
 *
 * All of it lies in one part of the zone, and offsets count from the part's
 * base (mem.base): to the rooms below, a part is the whole memory.
 *
 * WHO MAY WRITE.  The owner of the shard's lock, through the shard's undo log,
 * and nothing but this part.  So two writers of two shards have no word in
 * common, and what a dead one left is rolled back without a look at the other
 * shards.  Nobody holds the locks of two shards at once.  The one thing of a
 * zone that is not a shard's own, the load tables, belongs to shard 0.
 *
 * WHOSE.  kvr_shard_of(): a worker's shard follows from its id alone, so that
 * any process knows it from the name of a channel.
 *
 * For kvr_router.c and its neighbours; everybody else uses kvr_router.h.
 */


#ifndef KVR_SHARD_H_INCLUDED
#define KVR_SHARD_H_INCLUDED


#include "../core/kvr_clock.h"
#include "kvr_estimated.h"


#define KVR_LOCK_MS          50         /* far longer than a writer's slice */


typedef struct {
    kvr_owner_t       owner;            /* 0: free */
    uint64_t          token;            /* grows with each takeover */
    uint64_t          renewed_ms;       /* or freed; monotonic */
} kvr_lease_t;


/* In the zone. */
typedef struct {
    kvr_lock_t        lock;
    kvr_lease_t       lease;

    uint64_t          journal;          /* offset */
    uint64_t          rollbacks;
    uint64_t          lock_breaks;
    uint64_t          stores_full;
    uint64_t          evict_ms;         /* the next slice by ttl= is due */

    uint64_t          pad;              /* of the radix index, counters begin
                                           a line behind what lookups read */
    kvr_index_zone_t  index;
    kvr_fleet_zone_t  fleet;
    kvr_recency_zone_t  recency;
    uint64_t          estimates;        /* offset: kvr_estimated_t a holder */
} kvr_shard_zone_t;


/* A process's handle. */
struct kvr_shard_s {
    kvr_shard_zone_t    *zone;
    const kvr_params_t  *params;
    kvr_mem_t            mem;
    kvr_index_t          index;
    kvr_fleet_t          fleet;
    kvr_recency_table_t  recency;
    kvr_estimated_t     *estimates;
    kvr_owner_t          self;
    uint64_t             token;         /* of the lease; 0: this process has
                                           none */
    uint64_t            *hashes;        /* of an event that came with tokens;
                                           the router's, for all shards */
    uint64_t            *handles;       /* of an event with spans; the same */
    kvr_hasher_t         hasher;        /* of the same */
};


/* ---- making and opening ------------------------------------------------- */

/* The shard of the worker with this id. */
static inline kvr_shard_t *
kvr_shard_of(const kvr_router_t *r, const char *id, size_t len)
{
    return &r->shards[kvr_router_shard(r, id, len)];
}


/* The maximum number of workers of each shard. */
uint32_t kvr_shard_workers(const kvr_params_t *params);

/* Bytes of the tables of a fixed size in the part of a shard of so many
 * workers. */
uint64_t kvr_shard_fixed(uint32_t workers, kvr_index_kind_t kind);

/*
 * Lays a shard out in mem, its header at offset `at`; the bytes before the
 * header are not touched.  mem must have its journal.  secret: 4 random words.
 */
void kvr_shard_format(kvr_mem_t *mem, uint64_t at, uint32_t workers,
    kvr_index_kind_t kind, const uint64_t secret[4]);

/*
 * Opens the shard whose header is at offset `at` of mem; the caller calls
 * kvr_shard_evict_init() afterwards.  False: its header is damaged.  Changes
 * nothing in the zone.  scratch: memory of the process for twice
 * KVR_EVENT_BLOCKS_MAX words; the shards of a router may share it.
 */
bool kvr_shard_attach(kvr_shard_t *k, const kvr_mem_t *mem, uint64_t at,
    const kvr_params_t *params, uint64_t *scratch);


/* ---- lock --------------------------------------------------------------- */

/*
 * Takes the shard's lock within timeout_ms: KVR_OK or KVR_BUSY.  Rolls back
 * the transaction of a dead owner, so that the log is empty afterwards.
 */
kvr_rc_t kvr_shard_lock(kvr_shard_t *k, uint32_t timeout_ms);
void kvr_shard_unlock(kvr_shard_t *k);

/*
 * Takes the shard's lock and finds the slot of a worker by id.  KVR_DECLINED:
 * there is no such worker; KVR_BUSY.  After both the lock is not held.
 */
kvr_rc_t kvr_shard_enter(kvr_shard_t *k, const char *id, size_t len,
    uint32_t *worker);

/* Adds to a counter of the shard. */
#define kvr_count(k, p, n)  kvr_set64(&(k)->mem, p, *(p) + (n))


/* ---- events: under the lock --------------------------------------------- */

/*
 * Applies one change to a worker that exists.  The caller must have the
 * lock, and the log must be empty.  All but the last part is committed; the
 * caller commits that part, with what it writes itself.  Counts the change in
 * the worker's counters.
 * KVR_INVALID: refused, *why says why.  KVR_FULL: the zone is full, blocks of
 * the change are missing, and the worker is flagged TRUNCATED.  KVR_OK with
 * another *why than KVR_WHY_NONE: the change was filtered.
 */
kvr_rc_t kvr_shard_apply(kvr_shard_t *k, uint32_t worker,
    const kvr_change_t *c, uint32_t *unknown, kvr_why_t *why);

/*
 * The same for an event, as the decoder returned it and with the verdict
 * KVR_KEEP.  Tokens are hashed first: *c becomes the change that was applied,
 * with its seed; its locals are valid until the next call.  KVR_OK with
 * KVR_WHY_EXTRA_KEY: blocks at the end of the event were filtered, c->nhandles
 * are left.
 *
 * seed is that of the chain, from a caller who may know it where the index
 * does not; 0: unknown.
 */
kvr_rc_t kvr_shard_apply_event(kvr_shard_t *k, uint32_t worker,
    const kvr_event_t *ev, uint64_t seed, kvr_change_t *c, uint32_t *unknown,
    kvr_why_t *why);

/* The sentence for an event that could not be applied; "": another reason. */
const char *kvr_why_detail(kvr_why_t why);


/* ---- one shard's share of what kvr_router.h promises -------------------- */

/*
 * Resets health and slow start of a worker that has become routable; under k's
 * lock.
 */
void kvr_members_begin(const kvr_router_t *r, const kvr_shard_t *k,
    uint32_t worker);

/*
 * The shard of the worker that is configured so; NULL: its id or the number of
 * its ranks is not valid.
 */
kvr_shard_t *kvr_members_shard_for(kvr_router_t *r,
    const kvr_worker_conf_t *conf);

/*
 * Puts a worker of this origin, whose configuration kvr_members_shard_for()
 * has found valid, with the holders of its ranks; under k's lock.  An origin
 * of 0: the worker is there and stays as it is, only holders are added.  A
 * worker that is new at its address begins with a new health.
 *
 * On an error nothing has changed: KVR_FULL, no room for a worker or holder.
 */
kvr_rc_t kvr_members_put(const kvr_router_t *r, kvr_shard_t *k,
    const kvr_worker_conf_t *conf, uint32_t origin, uint32_t *worker);

/* Half-opens the worker's circuit, see kvr_health_returned(). */
void kvr_members_returned(const kvr_router_t *r, const kvr_shard_t *k,
    uint32_t worker);

/* Rolls back the transaction of a dead owner of the lock, if there is one. */
void kvr_shard_recover(kvr_shard_t *k);

/* Makes the index count what it evicts in the counters of the workers. */
void kvr_shard_evict_init(kvr_shard_t *k);

/*
 * Sets the time of the index, and evicts blocks that were not used for ttl
 * seconds (0: none), until about until_us.  True when more is due.
 */
bool kvr_shard_evict(kvr_shard_t *k, uint32_t ttl, uint64_t now_ms,
    uint64_t until_us);


#endif /* KVR_SHARD_H_INCLUDED */
