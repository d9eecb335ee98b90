/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The one door of src/: a zone of shared memory that holds one model's index,
 * fleet, load and counters.
 *
 * SHARDS
 *
 * A zone has one shard or several.  A worker, with all its ranks, belongs to
 * the shard that its id says.  Each shard has a lock, an undo log, a lease and
 * a part of the memory of its own, so that several processes can write at
 * once, each for other workers.  A lookup asks all of them.  What a zone
 * answers does not depend on how many there are.
 *
 * WHO MAY DO WHAT
 *
 * One process at a time writes a shard, under the shard's lock, a word that
 * carries its owner {pid, start time}.  Every function below that writes takes
 * the lock and gives it back by itself, one lock at a time.  Readers take no
 * lock and never wait.  The load tables are joined and left under the lock of
 * shard 0; a process writes its own rows without it.
 *
 * WHAT A READER MAY SEE
 *
 * A lookup sees each shard's index as it was at one moment during the call,
 * or, when a writer keeps changing the very blocks asked for, a prefix of
 * that: it may under-report what is being written, and never over-reports.
 *
 * WHAT HAPPENS WHEN A PROCESS DIES, AT ANY INSTRUCTION
 *
 * A reader: nothing; it left no trace.  A writer: its transaction stays
 * unfinished behind a lock word that names a dead process.  Whoever comes by
 * next (the next writer, or kvr_router_tend(), which every process calls each
 * 100 ms) takes the lock over and rolls the transaction back by the shard's
 * undo log; meanwhile the other shards are written as ever.
 * Versions are never rolled back, so that no reader takes torn memory for
 * whole.  A process that is only stopped keeps its lock; others get KVR_BUSY.
 *
 * A process that has a shard's lease writes events only while the lease's
 * token is its own, checked under the lock at each slice: one that was stopped
 * and wakes gets KVR_LOST and can do no harm.
 */


#ifndef KVR_ROUTER_H_INCLUDED
#define KVR_ROUTER_H_INCLUDED


#include "../kvr.h"
#include "../core/kvr_contract.h"
#include "../core/kvr_lock.h"
#include "../core/kvr_txn.h"
#include "../wire/kvr_event.h"
#include "../fleet/kvr_fleet.h"
#include "../traffic/kvr_health.h"
#include "../traffic/kvr_inflight.h"
#include "../traffic/kvr_load.h"
#include "../wire/kvr_registration.h"
#include "../traffic/kvr_report.h"
#include "../traffic/kvr_usage.h"
#include "../traffic/kvr_frequency.h"
#include "../index/kvr_index.h"
#include "../traffic/kvr_predict.h"


#define KVR_ZONE_MIN         (4u << 20)  /* bytes */
#define KVR_SHARDS_MAX       64
#define KVR_TEND_LOADS_MS    1000        /* between looks for dead processes */
#define KVR_LEASE_MS         2000        /* a lease not renewed for so long is
                                            free to be taken */


/* What a zone was made with; a reload must come with the same. */
typedef struct {
    uint32_t    block_size;         /* tokens, 1..KVR_BLOCK_SIZE_MAX */
    uint32_t    max_workers;        /* 1..16384 */
    uint32_t    shards;             /* 1..KVR_SHARDS_MAX */
    uint32_t    index;              /* kvr_index_kind_t */
    uint32_t    frequency_ms;       /* window of frequencies; 0: none */
    bool        eagle;              /* blocks are of pairs of tokens, as the
                                       engines' are (kvr_hash_pairs()) */
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


/* A process's handle on a zone; not shared, no locking of its own. */
typedef struct {
    kvr_zone_t   *zone;
    kvr_shard_t  *shards;
    uint32_t     *hints;        /* kvr_fleet_hints(), of all shards */
    uint32_t      nshards;
    kvr_load_t    load;             /* of the holders of all shards */
    kvr_health_t *health;           /* of workers, by number */
    uint64_t      tended_ms;
    uint32_t      ttl;              /* as in params */
    uint32_t     *rows;             /* of a lookup: 3 rows of depths */
    uint64_t     *scratch;          /* of an event */
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

/* The numbers of workers and holders that a zone may have are below these. */
void kvr_router_bounds(const kvr_params_t *params, uint32_t *workers,
    uint32_t *holders);

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

/* Leaves: gives back the leases that are ours, and the load table. */
void kvr_router_leave(kvr_router_t *k);

/*
 * What every process does each 100 ms: recovers for dead owners of locks,
 * zeroes the load of dead processes, evicts what is older than ttl=, reclaims
 * some of the cleared views (about slice_us microseconds of work for each of
 * the two).  Returns true when work is left.
 */
bool kvr_router_tend(kvr_router_t *k, uint64_t now_ms, uint32_t slice_us);


/* ---- reading ------------------------------------------------------------ */

const kvr_params_t *kvr_router_params(const kvr_router_t *k);

/*
 * Finds who holds how much of a prompt, given as local hashes.  Writes at most
 * cap matches, in no order that means anything, holders with nothing left out,
 * and returns their number; a cap of kvr_router_max_holders() is always
 * enough.  Takes one lookup in each shard.
 * early_exit: may stop where one holder is left, with less than it has.
 */
uint32_t kvr_router_find(const kvr_router_t *k, const uint64_t *locals,
    uint32_t n, bool early_exit, kvr_match_t *out, uint32_t cap);

/*
 * Counts a lookup whose matches are these: how often each matched block was
 * asked for in the window before it, see kvr_frequency.h.  out has room for
 * what was looked up, KVR_FREQUENCY_DEPTH at most; returns how many there are
 * in it, the deepest match or that bound.  0 when the zone has no frequencies.
 *
 * To be called once for each lookup that an answer is wanted of; not for one
 * that only explains another.  Takes no lock.
 */
uint32_t kvr_router_touch(const kvr_router_t *k, const uint64_t *locals,
    const kvr_match_t *matches, uint32_t n, uint64_t now_ms, uint32_t *out);

/*
 * Predictions, see kvr_predict.h: what was routed to a holder is taken to be
 * cached there for a while.  For any process, without a lock.
 *
 * chains: of a prompt, with room for KVR_PREDICT_DEPTHS; how many there are.
 */
uint32_t kvr_router_chains(const kvr_router_t *k, const uint64_t *locals,
    uint32_t n, uint64_t *chains);

/* The prompt was sent to the holder, which has `from` blocks of it. */
void kvr_router_predict(const kvr_router_t *k, const uint64_t *chains,
    uint32_t nchains, uint32_t holder, uint32_t generation, uint32_t from,
    uint64_t until_ms);

/* What the holder, which has `from` blocks of the prompt, may have by now. */
uint32_t kvr_router_predicted(const kvr_router_t *k, const uint64_t *chains,
    uint32_t nchains, uint32_t holder, uint32_t generation, uint32_t from,
    uint64_t now_ms);

/* Counters and gauges for the status page, summed up over the shards. */
typedef struct {
    uint64_t    zone_bytes;
    uint64_t    used_bytes;         /* of all that can run out, in bytes */
    uint64_t    arena_bytes;
    uint64_t    arena_used;
    uint64_t    pairs;              /* (holder, handle) */
    uint64_t    handles;            /* entries of the table of handles: names
                                       that holders share count once */
    uint64_t    handles_max;
    uint64_t    runs;               /* of a positional index: blocks */
    uint64_t    runs_max;
    uint64_t    blocks;             /* block positions in the trees */
    uint64_t    holes;              /* (run, holder) pairs with detail, or
                                       broken links: kvr_links.h */
    uint64_t    views_dying;        /* cleared, not yet reclaimed */
    uint64_t    rollbacks;          /* transactions of dead writers undone */
    uint64_t    lock_breaks;        /* locks taken over from dead owners */
    uint64_t    stores_full;        /* stores refused for want of room */
    uint64_t    forgotten;          /* handles, for want of room or use */
    uint64_t    lookups_torn;       /* in one shard: gave up on a writer */
    uint64_t    predictions;        /* made */
    uint64_t    frequency_max;      /* blocks that are counted, at most */
    uint64_t    frequency_replaced; /* of these, evicted in the window */
    uint64_t    frequency_cut;      /* lookups counted in part */
    uint32_t    workers;
    uint32_t    holders;
    uint64_t    load_reclaimed;
    uint64_t    load_overflow;
    uint64_t    load_below_zero;
} kvr_stats_t;

void kvr_router_stats(const kvr_router_t *k, kvr_stats_t *out);

/* The same of one shard: zone_bytes of its part, without what is common. */
void kvr_router_shard_stats(const kvr_router_t *k, uint32_t shard,
    kvr_stats_t *out);


/* ---- members ------------------------------------------------------------ */

/*
 * Workers and holders have numbers, through all shards, that stay as long as
 * they are there.  Numbers between may belong to nobody.  No lock is needed to
 * read; the worker of a number may change meanwhile, which its generation
 * tells.
 */

/*
 * The shard, 0..nshards - 1, of the worker with this id, by a hash of it (any
 * bytes have one), and of the worker with this number.
 */
uint32_t kvr_router_shard(const kvr_router_t *k, const char *id, size_t len);
uint32_t kvr_router_worker_shard(const kvr_router_t *k, uint32_t worker);

/* Of the membership: another one after each change. */
uint32_t kvr_router_version(const kvr_router_t *k);

/* The numbers in use are below it; those that there can be are below max. */
uint32_t kvr_router_workers(const kvr_router_t *k);
uint32_t kvr_router_max_workers(const kvr_router_t *k);
uint32_t kvr_router_max_holders(const kvr_router_t *k);

/* How many holders there are. */
uint32_t kvr_router_holders(const kvr_router_t *k);

/* Deleted ones included; KVR_DECLINED. */
kvr_rc_t kvr_router_find_worker(const kvr_router_t *k, const char *id,
    size_t len, uint32_t *worker);

/* As kvr_fleet_read(). */
kvr_rc_t kvr_router_read_worker(const kvr_router_t *k, uint32_t worker,
    kvr_worker_conf_t *conf, uint32_t *flags, uint32_t *generation);

/* As kvr_fleet_said(). */
kvr_rc_t kvr_router_said(const kvr_router_t *k, uint32_t worker, char *said);

/* Of a number below max: for its stream and its counters, word by word. */
const kvr_worker_t *kvr_router_worker(const kvr_router_t *k, uint32_t worker);

/* Of a worker's number below max; KVR_DECLINED. */
kvr_rc_t kvr_router_find_holder(const kvr_router_t *k, uint32_t worker,
    uint32_t rank, uint32_t *holder);

/*
 * The holders of a worker: *holder is KVR_HOLDER_NONE before the first and
 * after the last, when the answer is false.  *steps is 0 at first; it bounds a
 * list that is changed meanwhile.
 */
bool kvr_router_next_holder(const kvr_router_t *k, uint32_t worker,
    uint32_t *holder, uint32_t *steps);

/* Its record of health, see kvr_health.h; of a number below max. */
kvr_health_t *kvr_router_health(const kvr_router_t *k, uint32_t worker);

/* Who a holder is. */
uint32_t kvr_router_holder_worker(const kvr_router_t *k, uint32_t holder);
uint32_t kvr_router_holder_rank(const kvr_router_t *k, uint32_t holder);

/* How many handles of blocks it holds, in whatever tiers. */
uint32_t kvr_router_holder_held(const kvr_router_t *k, uint32_t holder);


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

/*
 * Members in Redis, for the holder of the lease of the worker's shard:
 * KVR_LOST when it is another process's by now.  KVR_BUSY.
 *
 * register: the worker is in Redis until expires_ms (monotonic), unless that
 * is renewed; from then on it is STALE.  Configuration and API override what
 * it says, but for why its publisher is not complete, and that it's a hybrid
 * model's.  A worker that only events told of becomes one of Redis, with all
 * it holds, as does one that was taken out of Redis.  KVR_DECLINED: deleted by
 * the API; KVR_FULL: no room for it, or for its ranks.
 *
 * deregister: the worker is not in Redis any more: it is taken out with all it
 * holds, and comes back when it registers, or sends events.  KVR_DECLINED: not
 * known, or not there by Redis alone.
 *
 * expire: the worker did not leave, but has no registration: it is STALE from
 * now on, whoever made it.  KVR_DECLINED: not known, or deleted.
 *
 * ignore: it is of another model or block size: the same, but that its events
 * are dropped.  KVR_DECLINED: not known, ignored already, or configured.
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
 * on: nothing new goes there; what runs there ends in peace.  Off: it starts
 * as a new one.  KVR_DECLINED.
 */
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
 * *unknown: handles of a removal that were not held.  KVR_OK with another *why
 * than KVR_WHY_NONE: filtered, all of it or its end.
 */
kvr_rc_t kvr_router_write(kvr_router_t *k, const char *id, size_t len,
    const kvr_event_t *ev, uint64_t now_ms, uint32_t *unknown, kvr_why_t *why,
    const char **detail);


/* ---- dump --------------------------------------------------------------- */

/*
 * Calls put() with every RouterEvent, in JSON without newline, that an empty
 * zone needs to give the same answers: whole chains, parents first, then the
 * removals that make the holes.  Of a handle that spans several blocks, those
 * before the last have handles of their own here (kvr_span.h): the answers are
 * the same.  One shard after the other, each under its lock, about half a
 * second for a million blocks, in which that shard is not written: for people,
 * not for the hot path.  Stops when put() answers anything but KVR_OK, and
 * answers the same.
 */
kvr_rc_t kvr_router_dump(kvr_router_t *k,
    kvr_rc_t (*put)(void *data, const char *line, size_t len), void *data);

/*
 * The same of one worker, as events: stores with locals, and removals, each
 * with its rank, worker and event_id, and with a bounded number of blocks.
 * They hold during the call of put().  KVR_DECLINED: no such worker.
 */
kvr_rc_t kvr_router_dump_events(kvr_router_t *k, const char *id, size_t len,
    kvr_rc_t (*put)(void *data, const kvr_event_t *ev), void *data);


/* ---- leases: who consumes the events of a shard's workers --------------- */

/*
 * Takes the shard's lease when it is free, its holder is dead, or it was not
 * renewed for KVR_LEASE_MS; renews it when it is ours.  With wait_ms it is
 * taken only after it was free for so long, which is for those who have leases
 * already, so that others may have some too: the first of them that comes by
 * after its holder's death makes it free.
 *
 * KVR_OK: it is ours.  KVR_DECLINED: another process's.  KVR_BUSY: not to be
 * had just now; again soon.
 */
kvr_rc_t kvr_router_lease(kvr_router_t *k, uint32_t shard, uint32_t wait_ms,
    uint64_t now_ms);

/* Is it ours?  Without the lock, so it may be another's a moment later. */
bool kvr_router_leased(const kvr_router_t *k, uint32_t shard);

/* Gives back the leases that are ours. */
void kvr_router_lease_release(kvr_router_t *k);

/* Whose it is: 0: nobody's.  The token changes with each takeover. */
void kvr_router_lease_holder(const kvr_router_t *k, uint32_t shard,
    uint32_t *pid, uint64_t *token);


#endif /* KVR_ROUTER_H_INCLUDED */
