/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The fleet: the workers, the (worker, rank) pairs that hold blocks, and the
 * state of each worker's event stream.
 *
 *     worker   one engine behind one address, found by its id
 *     holder   (worker, rank): load and matches are counted by holder; its
 *              number stays as long as the worker does
 *     view     the column of the index that belongs to a holder at present.
 *              A clear gives the holder an empty view at once and leaves the
 *              old one to be reclaimed in slices: clearing is O(1)
 *     aside    a second view of a holder, in which a snapshot is built: no
 *              reader looks at it until it takes the place of the first
 *     estimate three more views of a holder whose worker publishes no events:
 *              what it is taken to have.  Readers look at them instead of the
 *              first view while kvr_fleet_estimated() is true of the worker
 *
 * Everything lives in the zone.  Writers hold the zone's lock and have a
 * transaction open.  Readers take no lock: each worker has a version (even
 * when no writer changes the worker), and fleet->version changes with every
 * change of membership, so that a process can keep a copy and see by one load
 * that there is a newer one.  Counters are written by the lock's holder only
 * and may be read at any time.
 */


#ifndef KVR_FLEET_H_INCLUDED
#define KVR_FLEET_H_INCLUDED


#include "../kvr.h"
#include "../core/kvr_txn.h"
#include "../wire/kvr_event.h"
#include "../wire/kvr_registration.h"


#define KVR_HOLDER_NONE      UINT32_MAX
#define KVR_VIEW_NONE        0xffffu
#define KVR_VIEWS_MAX        0xfff0u     /* 16 bits in the index, as
                                            KVR_VIEWS_LIMIT says there */


/*
 * How far a worker's view can be trusted (docs/events.md, "Confidence"): the
 * list, of which all names of it are.
 *
 * UNKNOWN: no event was ever seen.  UNVERIFIED: RouterEvents, bare batches, or
 * written by the API or Lua.  BOUND: EXACT or UNVERIFIED, but the model has KV
 * cache groups that are not indexed, or chunks of a size that is not known:
 * the engine may use less of a match than is reported.  ESTIMATED: the worker
 * publishes no events, or they were never complete so far: taken to have what
 * it answered, kvr_estimated.h.
 */
#define KVR_CONFIDENCES(X)                                                    \
    X(UNKNOWN) X(EXACT) X(DEGRADED) X(SYNCING) X(UNVERIFIED) X(BOUND)         \
    X(ESTIMATED)

#define KVR_CONFIDENCE_ID(name)    KVR_##name,
#define KVR_CONFIDENCE_NAME(name)  #name,

typedef enum {
    KVR_CONFIDENCES(KVR_CONFIDENCE_ID)
} kvr_confidence_t;


/* Flags of a worker. */
#define KVR_WORKER_USED      0x0001u
#define KVR_WORKER_STATIC    0x0002u     /* from the configuration */
#define KVR_WORKER_API       0x0004u     /* put by the API; overrides static */
#define KVR_WORKER_DRAINING  0x0008u     /* by the API, which ends it */
#define KVR_WORKER_DELETED   0x0010u     /* tombstone until restart: nothing
                                            but the API brings it back */
#define KVR_WORKER_SEEN      0x0020u     /* known from events alone */
#define KVR_WORKER_TRUNCATED 0x0040u     /* we forgot blocks of it */
#define KVR_WORKER_REDIS     0x0080u     /* registered in Redis; with DELETED:
                                            was registered, no tombstone */
#define KVR_WORKER_NOT_INDEXED 0x0100u   /* with DELETED and REDIS: of another
                                            model or block size */
#define KVR_WORKER_HYBRID    0x0200u     /* has KV cache groups that are not
                                            indexed: overlaps are upper
                                            bounds, see KVR_BOUND */
#define KVR_WORKER_REPORTS   0x0400u     /* a request asked the engine to
                                            announce cached blocks again, and
                                            blocks may be told twice: overlaps
                                            are upper bounds until the index
                                            has none of the worker's blocks */
#define KVR_WORKER_PARTIAL   0x0800u     /* the engine says that it has KV
                                            cache groups besides the one that
                                            its events are of: as HYBRID */
#define KVR_WORKER_EVENTS    0x1000u     /* with events_off: events told
                                            nevertheless, once, all that the
                                            worker had: no estimates of it */
#define KVR_WORKER_NAMED     0x2000u     /* an address of a host name, see
                                            conf.name; with DELETED: a
                                            tombstone until the name has the
                                            address no more */
#define KVR_WORKER_LEAVING   0x4000u     /* a registration, or a heartbeat,
                                            said that it drains; ends when a
                                            registration says otherwise, or is
                                            removed */

/* Either one keeps new requests away. */
#define KVR_WORKER_DRAINS    (KVR_WORKER_DRAINING | KVR_WORKER_LEAVING)


/* True of a worker that a person deleted, and that is not just gone from
 * Redis. */
static inline bool
kvr_worker_tombstone(uint32_t flags)
{
    return (flags & (KVR_WORKER_DELETED | KVR_WORKER_REDIS))
           == KVR_WORKER_DELETED;
}


/* Counters of a worker, all since the zone was made. */
typedef struct {
    uint64_t    messages;           /* applied */
    uint64_t    heartbeats;
    uint64_t    duplicates;         /* messages with a seq already applied */
    uint64_t    gaps;
    uint64_t    repairs;            /* finished */
    uint64_t    restarts;           /* higher epochs */
    uint64_t    snapshots;          /* swapped in */
    uint64_t    stores;             /* events */
    uint64_t    removes;
    uint64_t    clears;
    uint64_t    blocks_stored;
    uint64_t    blocks_removed;
    uint64_t    blocks_unknown;     /* removals of handles not held */
    uint64_t    blocks_forgotten;   /* evicted: full zone, or ttl= */
    uint64_t    why[KVR_WHYS];      /* filtered and refused, by reason */
} kvr_worker_counters_t;


/* A worker's event stream. */
typedef struct {
    uint64_t    epoch;              /* 0: no envelope was ever applied */
    uint64_t    seq;                /* last message applied as a whole */
    uint32_t    at;                 /* events of seq + 1 applied already, as
                                       they were sent */
    uint32_t    source;             /* kvr_source_t */
    uint32_t    contiguous;         /* nothing is missing since a complete
                                       start */
    uint32_t    confidence;         /* kvr_confidence_t; that nothing is heard
                                       also depends on the clock */
    uint32_t    heartbeats;         /* has ever sent one */
    uint32_t    reason;             /* kvr_degraded_t */
    uint32_t    window;             /* kvr_decoder_conf_t; 0: unknown */
    uint32_t    logged_sizes;       /* bits of block sizes that don't fit and
                                       were logged: kvr_warning.c */
    uint64_t    last_ms;            /* last message; monotonic ms, 0: never */
    uint64_t    aside;              /* the snapshot that is built, by number;
                                       0: none */
    uint32_t    aside_lost;         /* blocks of the snapshot were evicted */
    uint32_t    engine_block_size;  /* of the last bare event that named one
                                       and was not filtered; 0: none */
    uint32_t    chunked_block;      /* tokens of a block of chunked local
                                       attention; 0: the engine has none */
    uint32_t    unheard;            /* until the publisher is heard, as nobody
                                       read what was missed */
} kvr_stream_t;


typedef enum {
    KVR_SOURCE_NONE = 0,
    KVR_SOURCE_ENVELOPE,
    KVR_SOURCE_ROUTER_EVENT,
    KVR_SOURCE_BARE,
    KVR_SOURCE_API
} kvr_source_t;


/* The reasons why a view is DEGRADED. */
typedef enum {
    KVR_FINE = 0,
    KVR_DEG_GAP,                /* a gap that the log did not fill */
    KVR_DEG_LOG_TRIMMED,        /* the log begins after the stream's start */
    KVR_DEG_INCOMPLETE,         /* the publisher says so */
    KVR_DEG_REFUSED,            /* an event had to be refused */
    KVR_DEG_FULL,               /* a hole could not be written down: the view
                                   was dropped */
    KVR_DEG_BLOCK_SIZE          /* the engine's block size is no multiple
                                   of the zone's */
} kvr_degraded_t;


/* A worker in the zone. */
typedef struct {
    uint32_t               version;     /* odd while conf or reason change */
    uint32_t               flags;
    uint32_t               generation;  /* another one when the slot is used
                                           again: see below */
    uint32_t               first_holder;/* holders, linked by next */
    uint64_t               expires_ms;  /* the registration's end, unless
                                           renewed; monotonic, 0: none */
    kvr_worker_conf_t      conf;
    char                   reason[KVR_REASON_MAX + 1];  /* the publisher's
                                           reason
                                           for not being complete, printable */
    kvr_stream_t           stream;
    kvr_worker_counters_t  counters;
} kvr_worker_t;


/* The views of an estimate, from the smallest to the largest. */
typedef enum {
    KVR_FLEET_HOT = 0,              /* half of the capacity */
    KVR_FLEET_VISIBLE,              /* estimated to be cached */
    KVR_FLEET_GHOST,                /* one and a half of the capacity */
    KVR_FLEET_ESTIMATES
} kvr_fleet_estimate_t;


typedef struct {
    uint32_t    worker;             /* slot; UINT32_MAX when free */
    uint32_t    rank;
    uint32_t    view;               /* KVR_VIEW_NONE until it stores */
    uint32_t    next;               /* holder of the same worker */
    uint32_t    generation;
    uint32_t    aside;              /* view that a snapshot is built in, or
                                       KVR_VIEW_NONE */
    uint32_t    cleared;            /* by the engine, since events of the
                                       worker were last lost */
    uint32_t    dropped;            /* grows with each view taken away, and
                                       with each holder in this place */
    uint32_t    estimate[KVR_FLEET_ESTIMATES];  /* views, or KVR_VIEW_NONE */
    uint32_t    pad;
    uint64_t    event_id;           /* last RouterEvent's id + 1; 0: none */
    uint64_t    churn;              /* see kvr_churn.h */
} kvr_holder_t;


typedef struct {
    uint32_t    version;            /* of the membership */
    uint32_t    max_workers;
    uint32_t    max_holders;
    uint32_t    max_views;
    uint32_t    nworkers;           /* slots ever used: 0 .. nworkers - 1 */
    uint32_t    nholders;
    uint32_t    nviews;             /* views ever used */
    uint32_t    ndying;             /* views that wait for their reclaim */
    uint32_t    naside;             /* views that are aside */
    uint32_t    nestimates;         /* views of estimates */
    uint32_t    drops;              /* a worker had spec_drop since the zone
                                       was made */
    uint32_t    generation;         /* the one given last */
    uint64_t    snapshots;          /* the number of snapshots begun */
    uint64_t    off_workers;        /* of arrays, from the zone's base */
    uint64_t    off_holders;
    uint64_t    off_views;
    uint64_t    off_spans;
} kvr_fleet_zone_t;


/*
 * GENERATIONS.  A worker's is that of its holders, and no two workers of the
 * fleet have ever had the same one.  A holder goes to workers of later
 * generations only.  So (holder, generation) names one (worker, rank) for
 * good, and of two generations of a holder the later one is the greater: what
 * is late belongs to nobody.
 *
 * A deleted worker keeps its slot and its holders until others need them.  A
 * holder whose generation is not its worker's was taken from a deleted worker:
 * it is in no list, and free.
 *
 * view_holder[v]: the holder whose view v is; UINT32_MAX when v is free,
 * KVR_VIEW_DYING when it waits for its reclaim, KVR_VIEW_ASIDE | holder when
 * it is the holder's aside, kvr_view_estimate(e) | holder when it is view e of
 * the holder's estimate.
 *
 * view_span[v]: the blocks of the longest span that the view ever had, 0 as
 * long as each of its handles names one; see kvr_span.h.
 */
#define KVR_VIEW_DYING       (UINT32_MAX - 1)
#define KVR_VIEW_ASIDE       0x80000000u
#define KVR_VIEW_ESTIMATE    0x40000000u
#define KVR_VIEW_HOLDER      0x0fffffffu /* the bits of the holder */

#define kvr_view_estimate(e)      (KVR_VIEW_ESTIMATE | (uint32_t) (e) << 28)
#define kvr_view_is_estimate(h)   ((h) >> 30 == 1)
#define kvr_view_estimate_of(h)   ((h) >> 28 & 3)


/* A process's handle on the fleet. */
typedef struct {
    kvr_mem_t         *mem;
    kvr_fleet_zone_t  *zone;
    kvr_worker_t      *workers;
    kvr_holder_t      *holders;
    uint32_t          *view_holder;
    uint32_t          *view_span;
    bool               aside;       /* events are written to views aside */
    uint32_t           estimate;    /* 1 + the view of the estimate that is
                                       written; 0: none */

    uint32_t          *hints;       /* slots by hash of the id, or NULL */
    uint32_t           hint_mask;
} kvr_fleet_t;


/* The maximum numbers of holders and views of a fleet of so many workers. */
void kvr_fleet_bounds(uint32_t max_workers, uint32_t *holders,
    uint32_t *views);

/* Bytes that a fleet of these bounds takes in the zone. */
size_t kvr_fleet_size(uint32_t max_workers);

/* Lays the arrays out at offset `at`, in kvr_fleet_size() bytes. */
void kvr_fleet_format(kvr_mem_t *mem, kvr_fleet_zone_t *z, uint64_t at,
    uint32_t max_workers);
void kvr_fleet_attach(kvr_fleet_t *f, kvr_mem_t *mem, kvr_fleet_zone_t *z);

/*
 * Sets a process's cache of the slots where ids were found: n words, a power
 * of two, zero at first.  Fleets may share the cache, as each entry is checked
 * before it is used.  The cache must outlive the fleet.
 */
void kvr_fleet_hints(kvr_fleet_t *f, uint32_t *hints, uint32_t n);

/*
 * Finds a worker's slot by id, deleted workers included.  Any process may call
 * it, without the lock; under the lock the answer stays true.  KVR_DECLINED:
 * there is no such worker.
 */
kvr_rc_t kvr_fleet_find(const kvr_fleet_t *f, const char *id, size_t len,
    uint32_t *worker);

/*
 * Copies the configuration and the flags of a worker, consistently, without
 * the lock.  KVR_DECLINED: the slot is free.  KVR_BUSY: a writer changed them
 * in each of a bounded number of attempts.
 */
kvr_rc_t kvr_fleet_read(const kvr_fleet_t *f, uint32_t worker,
    kvr_worker_conf_t *conf, uint32_t *flags, uint32_t *generation);

/*
 * Copies the last reason that the worker's publisher gave for not being
 * complete, KVR_REASON_MAX + 1 bytes; as above.
 */
kvr_rc_t kvr_fleet_reason(const kvr_fleet_t *f, uint32_t worker, char *reason);

/* Is there a slot for another worker?  No lock. */
bool kvr_fleet_room(const kvr_fleet_t *f);

/*
 * The functions below are for the lock's holder, inside a transaction.
 *
 * put: makes a worker, or changes its configuration.  KVR_FULL: all slots are
 * taken, see kvr_fleet_room().  flags: the origin of conf (STATIC, API, REDIS,
 * NAMED or SEEN).
 *
 * renew: what is known of a deleted worker is not known any more: it has
 * another generation, and so have its holders.
 */
kvr_rc_t kvr_fleet_put(kvr_fleet_t *f, const kvr_worker_conf_t *conf,
    uint32_t flags, uint32_t *worker);
void kvr_fleet_renew(kvr_fleet_t *f, uint32_t worker);
/*
 * Advances the version of the membership: with each change of it, and with
 * each view that a holder gets.  A version is never rolled back.  After a
 * rollback this must be called, as copies may have been made meanwhile.
 */
static inline void
kvr_fleet_touch(kvr_fleet_t *f)
{
    __atomic_store_n(&f->zone->version, f->zone->version + 1,
                     __ATOMIC_RELEASE);
}


/* Keeps the reason that the worker's publisher gives for not being complete,
 * KVR_REASON_MAX bytes of it. */
void kvr_fleet_set_reason(kvr_fleet_t *f, uint32_t worker, const char *reason);

/*
 * Resets the state of a worker's event stream.  To be called when the worker's
 * blocks are gone: the stream must then be read from its beginning.
 */
void kvr_fleet_forget_stream(kvr_fleet_t *f, uint32_t worker);

void kvr_fleet_set_flags(kvr_fleet_t *f, uint32_t worker, uint32_t set,
    uint32_t clear);

/*
 * Finds the holder (worker, rank), or makes it, of those of deleted workers if
 * all were used.  KVR_FULL: all are taken.
 */
kvr_rc_t kvr_fleet_holder(kvr_fleet_t *f, uint32_t worker, uint32_t rank,
    uint32_t *holder);

/* Finds the holder (worker, rank), without the lock; KVR_DECLINED: none. */
kvr_rc_t kvr_fleet_holder_find(const kvr_fleet_t *f, uint32_t worker,
    uint32_t rank, uint32_t *holder);

/*
 * The view of a holder that is written to: its own, or, while f->aside is set,
 * the one aside, or, while f->estimate is set, that view of the estimate.
 */
static inline uint32_t *
kvr_fleet_written(const kvr_fleet_t *f, uint32_t holder)
{
    if (f->estimate) {
        return &f->holders[holder].estimate[f->estimate - 1];
    }

    return f->aside ? &f->holders[holder].aside : &f->holders[holder].view;
}


/* The view that events are written to; made when there is none.  KVR_FULL. */
kvr_rc_t kvr_fleet_view(kvr_fleet_t *f, uint32_t holder, uint32_t *view);

/*
 * Takes the view that events are written to from the holder and marks it
 * KVR_VIEW_DYING for the reclaim; returns it, or KVR_VIEW_NONE when there was
 * none.
 */
uint32_t kvr_fleet_drop_view(kvr_fleet_t *f, uint32_t holder);

/* Makes the view aside the holder's own; the holder must have none. */
void kvr_fleet_swap_view(kvr_fleet_t *f, uint32_t holder);

/* Frees a reclaimed view, which may then be used again. */
void kvr_fleet_free_view(kvr_fleet_t *f, uint32_t view);

/*
 * The holder of a view, whichever of its views that is; KVR_HOLDER_NONE for
 * views that are free or wait for their reclaim.
 */
static inline uint32_t
kvr_fleet_view_holder(const kvr_fleet_t *f, uint32_t view)
{
    uint32_t  h;

    h = kvr_load32(&f->view_holder[view]);

    if (h < KVR_VIEW_DYING) {
        h &= KVR_VIEW_HOLDER;
    }

    return h < f->zone->max_holders ? h : KVR_HOLDER_NONE;
}


/*
 * True when only a snapshot can make the worker's view complete: blocks are
 * missing that the publisher itself knows.  No lock.
 */
bool kvr_fleet_wants_snapshot(const kvr_worker_t *w);

/*
 * Begins to fetch what kvr_fleet_confidence() reads of a worker.  A macro, as
 * kvr_load_prefetch() is one.
 */
#define kvr_fleet_prefetch(w)                                                 \
    (__builtin_prefetch(&(w)->expires_ms),                                    \
     __builtin_prefetch(&(w)->stream.source),                                 \
     __builtin_prefetch(&(w)->stream.last_ms))

/*
 * The confidence that a reader may have at now_ms (monotonic): the stream's,
 * or DEGRADED when a publisher of heartbeats was silent for stale_ms, or did
 * not renew its registration ("silent"), or when heard is false: messages of
 * publishers are not received now ("redis_down").  *reason, if reason is not
 * NULL: these, "external" (written by the API or Lua), or a word of
 * kvr_degraded_name().
 */
kvr_confidence_t kvr_fleet_confidence(const kvr_worker_t *w, uint64_t now_ms,
    uint64_t stale_ms, bool heard, const char **reason);

/*
 * True of a worker without events, as long as events did not tell, for all
 * that, everything that it has: its estimate counts then.  No lock.
 */
bool kvr_fleet_estimated(const kvr_worker_t *w);

/*
 * True when the overlaps of a worker are upper bounds, whatever its stream:
 * its KV-cache groups are not, or not all, known.  No lock.
 */
bool kvr_fleet_bound(const kvr_worker_t *w);

/* "EXACT", "DEGRADED", …; "gap not filled", … */
const char *kvr_confidence_name(kvr_confidence_t c);
const char *kvr_degraded_name(uint32_t reason);
const char *kvr_source_name(uint32_t source);


#endif /* KVR_FLEET_H_INCLUDED */
