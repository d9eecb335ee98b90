/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The public header of src/: a zone of shared memory that holds the index, the
 * workers, the load and the counters of one model.  The words are those of the
 * glossary in docs/concepts.md.
 *
 * SHARDS
 *
 * A zone has one shard or several.  A hash of a worker's id chooses the shard
 * of the worker, with all its ranks.  Each shard has a lock, an undo log, a
 * lease and a part of the memory of its own.  So several processes can write
 * at the same time, each for other workers.  A lookup asks all shards.  The
 * answers of a zone do not depend on the number of its shards.
 *
 * LOCKS
 *
 * One process at a time writes a shard, under the shard's lock.  The lock is a
 * word with the owner's pid and start time.  Every function below that writes
 * takes the lock and releases it before it returns.  A process has one lock at
 * a time.  Readers take no lock and never wait.  A process joins and leaves
 * the load tables under the lock of shard 0, and writes its own rows without a
 * lock.
 *
 * READERS BESIDE A WRITER
 *
 * A lookup sees each shard's index as it was at one moment during the call.
 * If a writer keeps changing the blocks of the prompt, the lookup may see a
 * prefix of that.  So a lookup can report less than is cached, never more.
 *
 * WHEN A PROCESS DIES, AT ANY INSTRUCTION
 *
 * A reader leaves no trace.  A writer leaves an unfinished transaction, and a
 * lock word that names a dead process.  The next process that needs the lock
 * takes the lock over, and undoes the transaction by the shard's undo log.
 * That process is a writer, or any process in kvr_router_tend(), which every
 * process calls each 100 ms.  Meanwhile the other shards can be written.  The
 * version numbers by which readers notice a change are never set back, so
 * that no reader takes half-written memory for whole.  A process that is
 * stopped, but not dead, keeps its lock: other writers get KVR_BUSY.
 *
 * A process writes events of a shard only while it has the shard's lease.  The
 * lease has a token, which is compared under the lock at each slice.  If a
 * process was stopped and lost its lease, it gets KVR_LOST and writes nothing.
 */


#ifndef KVR_ROUTER_H_INCLUDED
#define KVR_ROUTER_H_INCLUDED


#include "../kvr.h"
#include "../core/kvr_contract.h"
#include "../core/kvr_lock.h"
#include "../core/kvr_txn.h"
#include "../wire/kvr_event.h"
#include "../fleet/kvr_fleet.h"
#include "../traffic/kvr_echo.h"
#include "../traffic/kvr_health.h"
#include "../traffic/kvr_inflight.h"
#include "../traffic/kvr_load.h"
#include "../traffic/kvr_peers.h"
#include "../wire/kvr_registration.h"
#include "../traffic/kvr_capacity.h"
#include "../traffic/kvr_report.h"
#include "../traffic/kvr_routed.h"
#include "../traffic/kvr_trust.h"
#include "../traffic/kvr_frequency.h"
#include "../index/kvr_index.h"
#include "../traffic/kvr_flights.h"


#define KVR_ZONE_MIN         (4u << 20)  /* bytes */
#define KVR_SHARDS_MAX       64
#define KVR_TEND_LOADS_MS    1000        /* between looks for dead processes */
#define KVR_LEASE_MS         2000        /* a lease that was not renewed for so
                                            long can be taken */


/* The parameters of a zone; those of a reload must be the same. */
typedef struct {
    uint32_t    block_size;         /* tokens, 1..KVR_BLOCK_SIZE_MAX */
    uint32_t    max_workers;        /* 1..16384 */
    uint32_t    shards;             /* 1..KVR_SHARDS_MAX */
    uint32_t    index;              /* kvr_index_kind_t */
    uint32_t    frequency_ms;       /* window of frequencies; 0: none */
    bool        eagle;              /* the engines' blocks, and the zone's,
                                       are of pairs (kvr_hash_pairs()) */
    char        model[KVR_MODEL_MAX + 1];
    uint32_t    ttl;                /* seconds without use after which blocks
                                       are evicted, 0: never; may change */
} kvr_params_t;


/* How the blocks of such a zone are made. */
static inline kvr_contract_t
kvr_params_contract(const kvr_params_t *params)
{
    return (kvr_contract_t) { params->block_size, params->eagle };
}


typedef struct kvr_zone_s   kvr_zone_t;
typedef struct kvr_shard_s  kvr_shard_t;


/* A process's handle on a zone; must not be shared between threads. */
typedef struct {
    kvr_zone_t   *zone;
    kvr_shard_t  *shards;
    uint32_t     *hints;        /* kvr_fleet_hints(), of all shards */
    uint32_t      nshards;
    kvr_load_t    load;             /* of the holders of all shards */
    kvr_peers_t   peers;            /* the same, of other routers */
    kvr_flights_t flights;
    kvr_health_t *health;           /* of workers, by number */
    uint64_t      tended_ms;
    uint64_t      estimated_ms;
    uint32_t      ttl;              /* as in params */
    uint32_t     *rows;             /* of a lookup: 3 rows of depths */
    uint64_t     *scratch;          /* of an event */
} kvr_router_t;


/*
 * One holder's share of a prompt: cumulative, device <= host <= disk.  Of an
 * estimate all three are what is estimated to be cached.  They can then be 0,
 * as a match also tells what the estimate has evicted of late.
 */
typedef struct {
    uint32_t    holder;
    uint32_t    device;
    uint32_t    host;
    uint32_t    disk;
    uint32_t    cut;            /* 1: the lookup ended at its maximum number
                                   of steps, so the holder may have more */
    uint32_t    estimated;      /* 1: by an estimate, not by events */
    uint32_t    hot;            /* of an estimate: in half of the capacity, */
    uint32_t    ghost;          /* and in one and a half of it: for
                                   kvr_routed_record_t alone */
} kvr_match_t;


#define KVR_TEXT_BLOCK       64         /* bytes of a block of text */


/* Bytes of params that a person can read, for "why" answers. */
#define KVR_WHY_LEN          160


/*
 * Makes a new zone in size bytes at base, which no other process may use yet.
 * KVR_INVALID when params are out of range or size is too small; why then
 * holds a sentence.
 */
kvr_rc_t kvr_router_format(void *base, size_t size, const kvr_params_t *params,
    char why[KVR_WHY_LEN]);

/* The least size of a zone with these params, in bytes. */
uint64_t kvr_router_least(const kvr_params_t *params);

/* The maximum numbers of workers and of holders of a zone. */
void kvr_router_bounds(const kvr_params_t *params, uint32_t *workers,
    uint32_t *holders);

/*
 * Opens a zone.  KVR_INVALID when the memory is not a zone, is damaged, is of
 * another version of this software, or was made with other params (when params
 * is not NULL); why then holds a sentence.  Changes nothing in the zone.  The
 * handle has memory of its own, which kvr_router_detach() frees.
 */
kvr_rc_t kvr_router_attach(kvr_router_t *k, void *base, size_t size,
    const kvr_params_t *params, char why[KVR_WHY_LEN]);
void kvr_router_detach(kvr_router_t *k);

/*
 * Notes in the handle which process it is in, and joins the load tables.  Must
 * be called after a fork, before the process writes anything.  KVR_BUSY.
 */
kvr_rc_t kvr_router_join(kvr_router_t *k);

/*
 * Adds a reservation to the load of its holder, until kvr_load_release().  At
 * the first request of this process to one of KVR_LOAD_ROWS holders, waits for
 * shard 0's lock, KVR_LOCK_MS at most.  If the lock is not free by then, or
 * there is no memory and nothing to evict, the request is not counted.
 */
void kvr_router_reserve(kvr_router_t *k, kvr_reservation_t *r,
    uint64_t now_ms);

/*
 * The load of one generation of a holder: of all processes, as
 * kvr_load_read(), and of the peers, while one is fresh.
 */
static inline void
kvr_router_load(const kvr_router_t *k, uint32_t holder, uint32_t generation,
    uint64_t now_ms, kvr_load_row_t *out)
{
    kvr_load_read(&k->load, holder, generation, out);

    if (kvr_peers_fresh(&k->peers, now_ms)) {
        kvr_peers_add(&k->peers, holder, generation, now_ms, out);
    }
}


/* The process that joined: kvr_owner_self() without a system call. */
kvr_owner_t kvr_router_self(const kvr_router_t *k);

/* Gives back the process's leases, that of peers too, and its load table. */
void kvr_router_leave(kvr_router_t *k);

/*
 * Every process must call this each 100 ms.  Rolls back the transactions of
 * dead owners of locks, zeroes the load of dead processes, evicts blocks that
 * were not used for ttl=, reclaims some of the cleared views (about slice_us
 * microseconds of work for each of the last two).  True when work is left.
 */
bool kvr_router_tend(kvr_router_t *k, uint64_t now_ms, uint32_t slice_us);


/* ---- reading ------------------------------------------------------------ */

const kvr_params_t *kvr_router_params(const kvr_router_t *k);

/*
 * Finds how many blocks of a prompt, given as local hashes, each holder has.
 * Writes at most cap matches, in any order, without the holders that have
 * none, and returns their number; a cap of kvr_router_max_holders() is always
 * enough.  Takes one lookup in each shard.
 * tokens: the prompt's length, for engines that take less of a prompt from
 * the cache than they hold (kvr_hit.h); 0: not known, taken for n whole
 * blocks.
 * The match of a holder with classes of KV-cache groups is the hit, the same
 * in all tiers.
 * early_exit: where only one holder is left, the lookup may stop, and find
 * less than that holder has.
 */
uint32_t kvr_router_find(const kvr_router_t *k, const uint64_t *locals,
    uint32_t n, uint64_t tokens, bool early_exit, kvr_match_t *out,
    uint32_t cap);

/*
 * The number of blocks of a prompt that one worker has, in any tier and at its
 * best rank; worker must be below kvr_router_max_workers().  Of a holder with
 * classes of KV-cache groups, the blocks of the full group alone count.
 */
uint32_t kvr_router_depth(const kvr_router_t *k, uint32_t worker,
    const uint64_t *locals, uint32_t n);

/*
 * Counts a lookup with these matches, and writes to out how often each matched
 * block was asked for in the window before the lookup, see kvr_frequency.h.
 * Returns the number of values written: the deepest match, at most
 * KVR_FREQUENCY_DEPTH; 0 when the zone has no frequencies.  out must have room
 * for as many values as blocks were looked up, or for KVR_FREQUENCY_DEPTH.
 *
 * To be called once for each lookup that a request is routed by, not for a
 * lookup that only explains another one.  Takes no lock.
 */
uint32_t kvr_router_touch(const kvr_router_t *k, const uint64_t *locals,
    const kvr_match_t *matches, uint32_t n, uint64_t now_ms, uint32_t *out);

/*
 * Does the holder's view have classes of KV-cache groups?  Such a holder keeps
 * the end of a prompt, and not every beginning of it.
 */
bool kvr_router_classed(const kvr_router_t *k, uint32_t holder);

/* Counters and gauges for the status page, summed up over the shards. */
typedef struct {
    uint64_t    zone_bytes;
    uint64_t    used_bytes;         /* of all tables that can get full */
    uint64_t    arena_bytes;
    uint64_t    arena_used;
    uint64_t    pairs;              /* (holder, handle) */
    uint64_t    handles;            /* entries of the table of handles: one
                                       that holders share counts once */
    uint64_t    handles_max;
    uint64_t    runs;               /* of a positional index: blocks */
    uint64_t    runs_max;
    uint64_t    blocks;             /* block positions in the trees */
    uint64_t    holes;              /* (run, holder) pairs with detail, or
                                       broken links: kvr_links.h */
    uint64_t    views_dying;        /* cleared, not yet reclaimed */
    uint64_t    rollbacks;          /* transactions of dead writers undone */
    uint64_t    lock_breaks;        /* locks taken over from dead owners */
    uint64_t    stores_full;        /* stores refused: the zone is full */
    uint64_t    forgotten;          /* handles evicted: full zone, or ttl= */
    uint64_t    lookups_torn;       /* in one shard: cut short by a writer */
    uint64_t    lookups_cut;        /* in one shard: ended at the maximum
                                       number of runs, or blocks */
    uint64_t    frequency_max;      /* the maximum number of blocks counted */
    uint64_t    frequency_replaced; /* of these, evicted in the window */
    uint64_t    frequency_cut;      /* lookups counted in part */
    uint32_t    workers;
    uint32_t    holders;
    uint64_t    load_reclaimed;
    uint64_t    load_uncounted;     /* requests that no table counts */
    uint64_t    load_below_zero;
    uint64_t    selections;         /* see kvr_selections.h */
} kvr_stats_t;

void kvr_router_stats(const kvr_router_t *k, kvr_stats_t *out);

/*
 * The same for one shard.  zone_bytes is the size of the shard's part; what
 * all shards share is left out.
 */
void kvr_router_shard_stats(const kvr_router_t *k, uint32_t shard,
    kvr_stats_t *out);


/* ---- members ------------------------------------------------------------ */

/*
 * Workers and holders are numbered through all shards.  A number stays the
 * same as long as the worker or holder is there; some numbers may be unused.
 * The functions take no lock.  When a number goes to another worker, the
 * worker's generation changes.
 */

/*
 * The shard, 0..nshards - 1, of the worker with this id, by a hash of the id
 * (any bytes are allowed); and of the worker with this number.
 */
uint32_t kvr_router_shard(const kvr_router_t *k, const char *id, size_t len);
uint32_t kvr_router_worker_shard(const kvr_router_t *k, uint32_t worker);

/* The version of the membership, which changes with each change of it. */
uint32_t kvr_router_version(const kvr_router_t *k);

/*
 * All worker numbers in use are below kvr_router_workers(), all that can be
 * given are below kvr_router_max_workers().
 */
uint32_t kvr_router_workers(const kvr_router_t *k);
uint32_t kvr_router_max_workers(const kvr_router_t *k);
uint32_t kvr_router_max_holders(const kvr_router_t *k);

/* The number of holders. */
uint32_t kvr_router_holders(const kvr_router_t *k);

/* Finds a worker by id, deleted ones included; KVR_DECLINED: none. */
kvr_rc_t kvr_router_find_worker(const kvr_router_t *k, const char *id,
    size_t len, uint32_t *worker);

/* As kvr_fleet_read(). */
kvr_rc_t kvr_router_read_worker(const kvr_router_t *k, uint32_t worker,
    kvr_worker_conf_t *conf, uint32_t *flags, uint32_t *generation);

/* As kvr_fleet_reason(). */
kvr_rc_t kvr_router_publisher_reason(const kvr_router_t *k, uint32_t worker,
    char *reason);

/*
 * The worker with this number, which must be below kvr_router_max_workers(),
 * for its stream and its counters.  They may change at any time: read each
 * field with kvr_load32() or kvr_load64().
 */
const kvr_worker_t *kvr_router_worker(const kvr_router_t *k, uint32_t worker);

/*
 * Finds the holder of a worker's rank; worker must be below
 * kvr_router_max_workers().  KVR_DECLINED: there is none.
 */
kvr_rc_t kvr_router_find_holder(const kvr_router_t *k, uint32_t worker,
    uint32_t rank, uint32_t *holder);

/*
 * Moves *holder to the next holder of a worker, from KVR_HOLDER_NONE to the
 * first one.  False behind the last one, with *holder KVR_HOLDER_NONE again.
 * *steps must be 0 at first; it bounds the walk when a writer changes the list
 * meanwhile.
 */
bool kvr_router_next_holder(const kvr_router_t *k, uint32_t worker,
    uint32_t *holder, uint32_t *steps);

/*
 * The worker's record of health, see kvr_health.h; worker must be below
 * kvr_router_max_workers().
 */
kvr_health_t *kvr_router_health(const kvr_router_t *k, uint32_t worker);

/* The worker and the rank of a holder. */
uint32_t kvr_router_holder_worker(const kvr_router_t *k, uint32_t holder);
uint32_t kvr_router_holder_rank(const kvr_router_t *k, uint32_t holder);

/* The number of handles by which the holder holds blocks, in any tier. */
uint32_t kvr_router_holder_held(const kvr_router_t *k, uint32_t holder);

/*
 * The number of blocks that the holder has stored on the device lately, see
 * kvr_churn.h; blocks of text in an estimate of texts.  Any process may call
 * it.  now_s: seconds of the monotonic clock.
 */
double kvr_router_holder_churn(const kvr_router_t *k, uint32_t holder,
    uint32_t now_s);

/*
 * The number of the index's blocks in the longest block of the engine that the
 * holder ever had in its present view; at least 1.
 */
uint32_t kvr_router_holder_span(const kvr_router_t *k, uint32_t holder);


/* ---- membership --------------------------------------------------------- */

/*
 * Makes or changes a worker; origin is KVR_WORKER_STATIC, _API, _NAMED or
 * _SEEN.  The API overrides the configuration, the configuration overrides
 * what events say.  Only the API can bring back a deleted worker (others:
 * KVR_DECLINED).
 *
 * NAMED: conf->name is the number of a host name that has the address.  A
 * worker that was gone begins empty, with another generation.  KVR_DECLINED:
 * the id is that of a worker of another origin, or of another name.
 */
kvr_rc_t kvr_router_put_worker(kvr_router_t *k, const kvr_worker_conf_t *conf,
    uint32_t origin);

/*
 * Sets the workers of the configuration, all at once.  A worker that was
 * STATIC and is not among them any more loses its address, and keeps what
 * events say of it.  Idempotent: each process of a configuration calls it.
 */
kvr_rc_t kvr_router_set_static(kvr_router_t *k, const kvr_worker_conf_t *confs,
    size_t n);

/*
 * Deletes a worker with all that it holds; a tombstone stays.  KVR_DECLINED:
 * there is no such worker.
 */
kvr_rc_t kvr_router_remove_worker(kvr_router_t *k, const char *id, size_t len);

/*
 * After KVR_FULL of put_worker or register: which bound was reached, a
 * sentence of less than KVR_NO_ROOM bytes.
 */
#define KVR_NO_ROOM          96
void kvr_router_no_room(const kvr_router_t *k, const char *id, size_t len,
    char *text);

/*
 * Members in Redis, for the holder of the lease of the worker's shard.
 * KVR_LOST: the lease is another process's.  KVR_BUSY.
 *
 * register: the worker is registered in Redis until expires_ms (monotonic).
 * When the registration is not renewed until then, the worker is silent.  The
 * configuration and the API override the registration, except for the reason
 * why the publisher is not complete and for the flag of a hybrid model.  A
 * worker that was known from events alone, or was taken out of Redis, becomes
 * one of Redis, with all that it holds.  KVR_DECLINED: deleted by the API;
 * KVR_FULL: the zone is full of workers, or of holders.
 *
 * deregister: the worker is not in Redis any more.  It is removed with all
 * that it holds, and comes back when it registers or sends events.
 * KVR_DECLINED: the worker is not known, or was not made by Redis alone; then
 * only its registration is gone, and with it the drain by that.
 *
 * expire: the worker did not leave, but has no registration: it is silent from
 * now on, however it was made.  KVR_DECLINED: not known, or deleted.
 *
 * ignore: the worker is of another model or block size.  As deregister, but
 * its events are dropped.  KVR_DECLINED: not known, ignored already, or
 * configured.
 */
typedef enum {
    KVR_REGISTERED_AS_BEFORE = 0,
    KVR_REGISTERED_NEW,
    KVR_REGISTERED_CHANGED
} kvr_registered_t;

kvr_rc_t kvr_router_register(kvr_router_t *k, const kvr_registration_t *reg,
    uint64_t expires_ms, kvr_registered_t *what);
kvr_rc_t kvr_router_deregister(kvr_router_t *k, const char *id, size_t len);
kvr_rc_t kvr_router_expire(kvr_router_t *k, const char *id, size_t len,
    uint64_t now_ms);
kvr_rc_t kvr_router_ignore_worker(kvr_router_t *k, const char *id,
    size_t len);

/*
 * Takes out a NAMED worker, of the host name with this number, that has the
 * address no more, with all that the worker holds.  Its requests run to their
 * end.  KVR_DECLINED: the worker is not of this name.
 */
kvr_rc_t kvr_router_take_named(kvr_router_t *k, const char *id, size_t len,
    uint64_t name);

/*
 * on: the worker gets no new requests; its running requests may end.  Off: the
 * worker starts as a new one, unless a registration that has not expired says
 * that it drains.  KVR_DECLINED: there is no such worker.
 */
kvr_rc_t kvr_router_drain(kvr_router_t *k, const char *id, size_t len,
    bool on);

/*
 * Sets and clears flags of the worker, KVR_WORKER_REPORTS or
 * KVR_WORKER_PARTIAL; overlaps of a worker that has one of these are upper
 * bounds.  Takes the shard's lock if a flag changes.  KVR_BUSY: the lock was
 * not to be had; KVR_DECLINED: the worker is gone.
 */
kvr_rc_t kvr_router_mark(kvr_router_t *k, uint32_t worker, uint32_t set,
    uint32_t clear);


/* ---- writing, for API and Lua ------------------------------------------- */

/*
 * Applies one event, decoded or made by the caller, to a worker that exists
 * and has no event stream; the worker becomes UNVERIFIED.
 *
 * KVR_INVALID: refused; *why and *detail say what is wrong.
 * KVR_FULL: the zone is full; the worker is flagged TRUNCATED.
 * KVR_BUSY: the lock is held by another process; try again later.
 * KVR_DECLINED: no such worker.  KVR_LOST: the worker has an event stream.
 * *unknown becomes the number of handles of a removal that were not held.
 * KVR_OK with another *why than KVR_WHY_NONE: the event, or its end, was
 * filtered.
 */
kvr_rc_t kvr_router_write(kvr_router_t *k, const char *id, size_t len,
    const kvr_event_t *ev, uint64_t now_ms, uint32_t *unknown, kvr_why_t *why,
    const char **detail);


/* ---- estimates: workers without events, see kvr_estimated.h ------------- */

/*
 * Applies what the rings say, ring by ring, for about slice_us microseconds:
 * for the process that has the lease of shard 0 (kvr_router_leased()); false
 * and nothing done in another one.  Evicts what the capacities have no room
 * for, forgets what was not used for long, and drops the estimates of workers
 * whose events tell more.  Must be called each 100 ms, with n = 0 if there is
 * no ring.  True: work is left, call again soon.
 */
bool kvr_router_estimate(kvr_router_t *k, kvr_routed_t *const *rings,
    uint32_t n, uint64_t now_ms, uint32_t slice_us);

/*
 * Sets the capacity of the prefix cache of each holder of a worker, in tokens;
 * 0: this source has no value any more.  source: KVR_CAPACITY_CONFIGURED or
 * _SCRAPED.  For any process.  KVR_DECLINED: there is no such worker.
 * KVR_BUSY: try again later.
 */
kvr_rc_t kvr_router_estimate_capacity(kvr_router_t *k, uint32_t worker,
    uint64_t tokens, kvr_capacity_source_t source);

/* Why the estimate of a worker was dropped. */
typedef enum {
    KVR_ESTIMATE_RESTARTED = 0, /* the engine was restarted */
    KVR_ESTIMATE_EVENTS,        /* events tell what the worker has */
    KVR_ESTIMATE_ASKED,         /* the worker was removed */
    KVR_ESTIMATE_FULL,          /* the zone is full, and evicted too much */
    KVR_ESTIMATE_DIED,          /* a process died in the middle of a change */
    KVR_ESTIMATE_WHYS
} kvr_estimate_why_t;

/* The estimate of a holder; counts are of tokens unless they say else. */
typedef struct {
    uint64_t    capacity;           /* 0: not known */
    uint32_t    source;             /* kvr_capacity_source_t */
    uint32_t    ends;               /* the number of chains held */
    uint64_t    held;               /* estimated to be cached */
    uint64_t    ghosts;             /* evicted of late; not counted in held */
    uint64_t    answers;            /* the number of answers that reported
                                       cached tokens */
    uint64_t    grown;              /* answers that raised the capacity */
    uint64_t    shrunk;
    uint64_t    refused;            /* prompts, or their ends, that were not
                                       stored: the zone, or the table of ends
                                       of chains, is full */
    uint64_t    cleared[KVR_ESTIMATE_WHYS];
    uint32_t    text_tokens;        /* millionths of a token, by byte of
                                       text */
} kvr_estimate_info_t;

/*
 * Reads the estimate of a holder, without a lock.  KVR_DECLINED: there is no
 * such holder, or nothing was ever estimated of it.
 */
kvr_rc_t kvr_router_estimate_read(const kvr_router_t *k, uint32_t holder,
    kvr_estimate_info_t *out);

/*
 * Converts a number of blocks of text, as a lookup of a prompt in text tells
 * it, to blocks of the zone, by the text that this holder had so far.
 */
uint32_t kvr_router_estimate_blocks(const kvr_router_t *k, uint32_t holder,
    uint32_t text_blocks);

/* "restarted", "events", "asked", "full", "died" */
const char *kvr_estimate_why_name(uint32_t why);


/* ---- dump --------------------------------------------------------------- */

/*
 * Calls put() with every RouterEvent, in JSON without newline, that an empty
 * zone needs to give the same answers: complete chains, parents first, then
 * the removals that make the holes.  When a handle spans several blocks, those
 * before the last have handles of their own here (kvr_span.h): the answers are
 * the same.
 *
 * Dumps one shard after the other, each under its lock: while a shard is
 * dumped, about half a second for a million blocks, it is not written.  For
 * people, not for the hot path.  When put() returns anything but KVR_OK, the
 * dump stops and returns the same.
 *
 * estimates: instead, in the same way, what workers without events are taken
 * to have (kvr_estimated.h).  The handles are the router's own then.
 */
kvr_rc_t kvr_router_dump(kvr_router_t *k, bool estimates,
    kvr_rc_t (*put)(void *data, const char *line, size_t len), void *data);

/*
 * Dumps one worker, as events: stores with locals, and removals, each with its
 * rank, worker and event_id, and with a bounded number of blocks.  An event is
 * valid during the call of put().  KVR_DECLINED: no such worker.
 */
kvr_rc_t kvr_router_dump_events(kvr_router_t *k, const char *id, size_t len,
    kvr_rc_t (*put)(void *data, const kvr_event_t *ev), void *data);


/* ---- a picture of the tree ---------------------------------------------- */

#define KVR_TREE_NODES       500
#define KVR_TREE_HOLDERS     16

/* A run of blocks, and a part of those who hold it. */
typedef struct {
    uint32_t    shard;
    uint32_t    run;                /* of the shard */
    uint32_t    parent;             /* the same; 0: the run begins prompts */
    uint32_t    offset;             /* blocks of the parent before the run */
    uint32_t    blocks;
    uint32_t    below;              /* blocks of the runs below this one that
                                       were found */
    uint32_t    holders;            /* there are so many */
    uint32_t    nholders;           /* told below: those with the most of its
                                       blocks, in no order */
    struct {
        uint32_t  holder;
        uint32_t  blocks;           /* of the run, in any tier */
    } held[KVR_TREE_HOLDERS];
} kvr_tree_node_t;

/*
 * Writes the runs with the most blocks in and below them to nodes, at most
 * KVR_TREE_NODES: each shard's by themselves, the parent of a run before the
 * run.  Returns their number.  *cut: there are more runs.
 *
 * Of a large index only some thousand runs are looked at, and those before
 * them: a random choice, which has all branches of many runs.  Takes each
 * shard's lock for some milliseconds.  KVR_BUSY: the lock was not to be had;
 * KVR_ERROR: no memory.  A positional index has no runs: *n becomes 0.
 */
kvr_rc_t kvr_router_tree(kvr_router_t *k, kvr_tree_node_t *nodes, uint32_t *n,
    bool *cut);


/* ---- leases: the process that consumes the events of a shard's workers -- */

/*
 * Takes the shard's lease when the lease is free, its holder is dead, or it
 * was not renewed for KVR_LEASE_MS; renews it when this process has it.
 *
 * wait_ms: take the lease only after it was free for so long.  A process that
 * has leases already passes it, so that others get some, too; the first such
 * process that calls after the holder's death makes the lease free.
 *
 * KVR_OK: this process has the lease.  KVR_DECLINED: another process has it.
 * KVR_BUSY: the lock is held by another process; try again soon.
 */
kvr_rc_t kvr_router_lease(kvr_router_t *k, uint32_t shard, uint32_t wait_ms,
    uint64_t now_ms);

/*
 * True when this process has the shard's lease.  Takes no lock: the lease may
 * be another process's a moment later.
 */
bool kvr_router_leased(const kvr_router_t *k, uint32_t shard);

/* Gives back all leases of this process. */
void kvr_router_lease_release(kvr_router_t *k);

/*
 * The process that has the shard's lease, 0: none; and the lease's token,
 * which changes with each takeover.
 */
void kvr_router_lease_holder(const kvr_router_t *k, uint32_t shard,
    uint32_t *pid, uint64_t *token);


#endif /* KVR_ROUTER_H_INCLUDED */
