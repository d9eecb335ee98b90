/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The one door of src/: a zone of shared memory that holds one model's index,
 * fleet, load and counters.
 *
 * WHO MAY DO WHAT
 *
 * One process at a time writes, under the zone's lock, a word that carries
 * its owner {pid, start time}.  Every function below that writes takes the
 * lock and gives it back by itself.  Readers take no lock and never wait.
 *
 * WHAT A READER MAY SEE
 *
 * A lookup sees the index as it was at one moment during the call, or, when
 * a writer keeps changing the very blocks asked for, a prefix of that: it
 * may under-report what is being written, and never over-reports.
 *
 * WHAT HAPPENS WHEN A PROCESS DIES, AT ANY INSTRUCTION
 *
 * A reader: nothing; it left no trace.  A writer: its transaction stays
 * unfinished behind a lock word that names a dead process.  Whoever comes by
 * next (the next writer, or kvr_router_tend(), which every process calls each
 * 100 ms) takes the lock over and rolls the transaction back by the undo log.
 * Versions are never rolled back, so that no reader takes torn memory for
 * whole.  A process that is only stopped keeps its lock; others get KVR_BUSY.
 *
 * A process that has the lease writes events only while the lease's token is
 * its own, checked under the lock at each slice: one that was stopped and
 * wakes gets KVR_LOST and can do no harm.
 */


#ifndef KVR_ROUTER_H_INCLUDED
#define KVR_ROUTER_H_INCLUDED


#include "kvr.h"
#include "core/kvr_hash.h"
#include "core/kvr_lock.h"
#include "core/kvr_txn.h"
#include "event/kvr_event.h"
#include "fleet/kvr_fleet.h"
#include "fleet/kvr_load.h"
#include "index/kvr_index.h"


#define KVR_ZONE_MIN         (4u << 20)  /* bytes */
#define KVR_TEND_LOADS_MS    1000        /* between looks for dead processes */
#define KVR_LEASE_MS         2000        /* a lease not renewed for so long is
                                            free to be taken */


/* What a zone was made with; a reload must come with the same. */
typedef struct {
    uint32_t    block_size;         /* tokens, 1..KVR_BLOCK_SIZE_MAX */
    uint32_t    max_workers;        /* 1..16384 */
    uint32_t    index;              /* kvr_index_kind_t */
    char        model[KVR_MODEL_MAX + 1];
} kvr_params_t;


typedef struct kvr_zone_s  kvr_zone_t;


/* A process's handle on a zone; not shared, no locking of its own. */
typedef struct {
    kvr_zone_t   *zone;
    size_t        size;
    kvr_mem_t     mem;
    kvr_index_t   index;
    kvr_fleet_t   fleet;
    kvr_load_t    load;
    kvr_owner_t   self;
    uint64_t      token;            /* of the lease; 0: not ours */
    uint64_t      tended_ms;
    uint32_t     *rows;             /* of a lookup: 3 rows of depths */
    uint64_t     *hashes;           /* of an event that came with tokens */
    kvr_hasher_t  hasher;           /* of the same */
} kvr_router_t;


/* One holder's share of a prompt: cumulative, device <= host <= disk. */
typedef struct {
    uint32_t    holder;
    uint32_t    device;
    uint32_t    host;
    uint32_t    disk;
} kvr_match_t;


/* Bytes of params that a person can read, for "why" answers. */
#define KVR_WHY_LEN          160


/*
 * Makes a new zone in size bytes at base.  Nobody else may use it yet.
 * KVR_INVALID when params are out of range or size is too small; why then
 * holds a sentence.
 */
kvr_rc_t kvr_router_format(void *base, size_t size, const kvr_params_t *params,
    char why[KVR_WHY_LEN]);

/*
 * Opens a zone.  KVR_INVALID when it is not one, is damaged, is of another
 * version of this software, or was made with other params (when params is not
 * NULL); why then holds a sentence.  Changes nothing in the zone.  The handle
 * has memory of its own, which kvr_router_detach() frees.
 */
kvr_rc_t kvr_router_attach(kvr_router_t *k, void *base, size_t size,
    const kvr_params_t *params, char why[KVR_WHY_LEN]);
void kvr_router_detach(kvr_router_t *k);

/*
 * Tells the handle which process it is in: to be called after a fork, before
 * anything is written.  Joins the load tables.  KVR_BUSY.
 */
kvr_rc_t kvr_router_join(kvr_router_t *k);

/* Leaves: gives back the lease when it is ours, and the load table. */
void kvr_router_leave(kvr_router_t *k);

/*
 * What every process does each 100 ms: recovers for a dead owner of the lock,
 * zeroes the load of dead processes, reclaims some of the cleared views
 * (about slice_us microseconds of work).  Returns true when work is left.
 */
bool kvr_router_tend(kvr_router_t *k, uint64_t now_ms, uint32_t slice_us);


/* ---- reading ------------------------------------------------------------ */

const kvr_params_t *kvr_router_params(const kvr_router_t *k);

/*
 * Finds who holds how much of a prompt, given as local hashes.  Writes at most
 * cap matches, holders in ascending order, those with nothing left out, and
 * returns their number; cap of fleet->max_holders is always enough.
 */
uint32_t kvr_router_find(const kvr_router_t *k, const uint64_t *locals,
    uint32_t n, kvr_match_t *out, uint32_t cap);

/* Counters and gauges for the status page. */
typedef struct {
    uint64_t    zone_bytes;
    uint64_t    used_bytes;         /* of all that can run out, in bytes */
    uint64_t    arena_bytes;
    uint64_t    arena_used;
    uint64_t    handles;            /* (holder, handle) pairs */
    uint64_t    handles_max;
    uint64_t    runs;               /* of a positional index: blocks */
    uint64_t    runs_max;
    uint64_t    blocks;             /* block positions in the tree */
    uint64_t    holes;              /* (run, holder) pairs with detail, or
                                       broken links: kvr_links.h */
    uint64_t    views_dying;        /* cleared, not yet reclaimed */
    uint64_t    rollbacks;          /* transactions of dead writers undone */
    uint64_t    lock_breaks;        /* locks taken over from dead owners */
    uint64_t    stores_full;        /* stores refused for want of room */
    uint64_t    lookups_torn;       /* lookups that gave up on a writer */
    uint32_t    workers;
    uint32_t    holders;
    uint32_t    lease_pid;          /* 0: nobody */
    uint64_t    lease_token;        /* changes with each takeover */
    uint64_t    load_reclaimed;
    uint64_t    load_overflow;
} kvr_stats_t;

void kvr_router_stats(const kvr_router_t *k, kvr_stats_t *out);


/* ---- membership --------------------------------------------------------- */

/*
 * Makes or changes a worker; origin is KVR_WORKER_STATIC, _API or _SEEN.  API
 * overrides static, static overrides what events say; a deleted worker is
 * brought back by the API only (KVR_DECLINED for others).
 */
kvr_rc_t kvr_router_put_worker(kvr_router_t *k, const kvr_worker_conf_t *conf,
    uint32_t origin);

/*
 * The workers of the configuration, all of them.  Those that were STATIC and
 * are not among them any more lose their address, and keep what events say of
 * them.  Idempotent: each process of a configuration calls it.
 */
kvr_rc_t kvr_router_set_static(kvr_router_t *k, const kvr_worker_conf_t *confs,
    size_t n);

/* Takes a worker out, with all it holds; a tombstone stays.  KVR_DECLINED. */
kvr_rc_t kvr_router_remove_worker(kvr_router_t *k, const char *id, size_t len);

/* on: nothing new goes there; what runs there ends in peace.  KVR_DECLINED. */
kvr_rc_t kvr_router_drain(kvr_router_t *k, const char *id, size_t len,
    bool on);


/* ---- writing, for API and Lua ------------------------------------------- */

/*
 * Applies one event, kept by the decoder or made by hand, to a worker that
 * exists and has no event stream (it becomes EXTERNAL).
 *
 * KVR_INVALID: refused; *why and *detail say what is wrong.
 * KVR_FULL: no room; the worker is flagged TRUNCATED.  KVR_BUSY: again later.
 * KVR_DECLINED: no such worker.  KVR_LOST: the worker has an event stream.
 * *unknown: handles of a removal that were not held.
 */
kvr_rc_t kvr_router_write(kvr_router_t *k, const char *id, size_t len,
    const kvr_event_t *ev, uint64_t now_ms, uint32_t *unknown, kvr_why_t *why,
    const char **detail);


/* ---- dump --------------------------------------------------------------- */

/*
 * Calls put() with every RouterEvent, in JSON without newline, that an empty
 * zone needs to give the same answers: whole chains, parents first, then the
 * removals that make the holes.  Holds the lock all the while, tens of
 * milliseconds for a million blocks: for people, not for the hot path.  Stops
 * when put() answers anything but KVR_OK, and answers the same.
 */
kvr_rc_t kvr_router_dump(kvr_router_t *k,
    kvr_rc_t (*put)(void *data, const char *line, size_t len), void *data);


/* ---- the lease: who consumes events ------------------------------------- */

/*
 * Takes the lease when it is free, its holder is dead, or it was not renewed
 * for KVR_LEASE_MS; renews it when it is ours.  KVR_OK: it is ours.
 * KVR_DECLINED: another process's.  KVR_BUSY.
 */
kvr_rc_t kvr_router_lease(kvr_router_t *k, uint64_t now_ms);

/* Gives the lease back when it is ours. */
void kvr_router_lease_release(kvr_router_t *k);


#endif /* KVR_ROUTER_H_INCLUDED */
