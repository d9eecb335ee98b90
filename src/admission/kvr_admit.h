/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The queue of a zone: requests of all processes of one nginx wait in its
 * memory, by pools (model and role), in the order of kvr_order.h.  A place is
 * handed over: who finds room at a worker grants it to the next entry, and
 * tells that entry's process.
 *
 * AN ENTRY is a request of a process, from its coming to its end.
 *
 *     event    from, to
 *     claim    FREE, CLAIMED       its process
 *     come     CLAIMED, COMING     its process: it asks to wait
 *     line     COMING, WAITING     with the lock
 *     refuse   COMING, REFUSED     with the lock
 *     pass     CLAIMED, GRANTED    with the lock: there was room at once
 *     grant    WAITING, GRANTED    with the lock
 *     take     GRANTED, TAKEN      its process, which reads where
 *     keep     TAKEN, KEPT         its process, which has reserved
 *     count    KEPT, ACTIVE        with the lock
 *     return   TAKEN, BACK         its process
 *     expire   GRANTED, BACK       a sweep, after 100 ms
 *     head     BACK, WAITING       with the lock: the first of its tenant
 *     leave    any, + GOING        its process, or a sweep when that has died
 *     free     GOING, FREE         with the lock
 *
 * A move is a compare-and-swap of the state, a byte.  Its bits say what of the
 * entry is counted: it is in a list, in its worker's row, charged.  What moves
 * without the lock changes none of these bits.  It may set DUE: who has the
 * lock is to do the rest.
 *
 * THE LOCK is tried, and not waited for.  Who does not get it sets `again',
 * tries once more, and goes on.  Who unlocks and sees `again' takes the lock
 * once more and settles what is due; then its caller looks at the rooms of all
 * pools (`look' of its handle), as others could not.
 *
 *     free            who tries has it, and writes since_us
 *     held            others set `again', and get KVR_DECLINED
 *     held for 10 ms  by a process that lives, for it is stopped perhaps: they
 *                     get KVR_BUSY, and go unordered if they find room.
 *                     Nobody takes the lock; who comes stays COMING, and all
 *                     is settled when that process goes on
 *     owner died      who finds that takes it, and rebuilds
 *
 * WHO MAY WRITE.  Lists, rows, services, and the fields of a grant before its
 * state are written with the lock.  The other fields of an entry are its
 * process's until it is COMING, or tries to pass.
 *
 * WHAT READERS SEE.  Rows and numbers, without the lock, may be one move
 * behind.  A process that sees a state of its own entry sees its fields, too.
 *
 * WHEN A PROCESS DIES a sweep makes its entries go: what waits or is granted
 * costs nothing, what was kept costs `tokens'.  If it had the lock, all that
 * is counted is made anew from the states; the services may have the charge of
 * one request too much or too little.
 *
 * WHEN A PROCESS IS STOPPED its entries stay, and its grants go back after
 * 100 ms, each time that they are granted, until their deadlines.  When it
 * goes on, it finds by the states what was done.
 */


#ifndef KVR_ADMIT_H_INCLUDED
#define KVR_ADMIT_H_INCLUDED


#include "kvr_order.h"
#include "kvr_pace.h"
#include "kvr_rules.h"

#include "../core/kvr_lock.h"


#define KVR_ADMIT_POOLS      16
#define KVR_ADMIT_SPARE      16384      /* entries beside those that wait: of
                                           requests that are served */
#define KVR_ADMIT_GRANT_MS   100
#define KVR_ADMIT_SWEEP_MS   20
#define KVR_ADMIT_DOUBT_US   1000       /* the lock held so long: does its
                                           owner live? */
#define KVR_ADMIT_STUCK_US   10000
#define KVR_ADMIT_GREED      4          /* a tenant may have so many times the
                                           entries that are free: others find
                                           one */
#define KVR_ADMIT_TURN       32         /* entries settled in one holding */
#define KVR_ADMIT_WAKES      64
#define KVR_ADMIT_NONE       KVR_ORDER_NONE


/* States: bits of what is counted, of what is to be done, and a number. */
typedef enum {
    KVR_ADMIT_ROW = 0x04,               /* a bit: in its worker's row */
    KVR_ADMIT_SERVED = 0x08,            /* a bit: it costs `tokens' */
    KVR_ADMIT_GOING = 0x40,             /* a bit */
    KVR_ADMIT_DUE = 0x80,               /* a bit */

    KVR_ADMIT_FREE = 0,
    KVR_ADMIT_CLAIMED = 0x10,
    KVR_ADMIT_COMING = 0x10 | KVR_ADMIT_DUE,
    KVR_ADMIT_REFUSED = 0x20,
    KVR_ADMIT_WAITING = KVR_ORDER_LISTED,
    KVR_ADMIT_GRANTED = KVR_ORDER_CHARGED | KVR_ADMIT_ROW,
    KVR_ADMIT_TAKEN = KVR_ADMIT_GRANTED | 0x10,
    KVR_ADMIT_BACK = KVR_ADMIT_GRANTED | KVR_ADMIT_DUE,
    KVR_ADMIT_KEPT = KVR_ADMIT_BACK | KVR_ADMIT_SERVED,
    KVR_ADMIT_ACTIVE = KVR_ORDER_CHARGED | KVR_ADMIT_SERVED
} kvr_admit_state_t;

/* Events, but for LEAVE by the state that each is for, and the next one. */
typedef enum {
    KVR_ADMIT_CLAIM = KVR_ADMIT_FREE << 8 | KVR_ADMIT_CLAIMED,
    KVR_ADMIT_COME = KVR_ADMIT_CLAIMED << 8 | KVR_ADMIT_COMING,
    KVR_ADMIT_LINE = KVR_ADMIT_COMING << 8 | KVR_ADMIT_WAITING,
    KVR_ADMIT_REFUSE = KVR_ADMIT_COMING << 8 | KVR_ADMIT_REFUSED,
    KVR_ADMIT_PASS = KVR_ADMIT_CLAIMED << 8 | KVR_ADMIT_GRANTED,
    KVR_ADMIT_GRANT = KVR_ADMIT_WAITING << 8 | KVR_ADMIT_GRANTED,
    KVR_ADMIT_TAKE = KVR_ADMIT_GRANTED << 8 | KVR_ADMIT_TAKEN,
    KVR_ADMIT_KEEP = KVR_ADMIT_TAKEN << 8 | KVR_ADMIT_KEPT,
    KVR_ADMIT_COUNT = KVR_ADMIT_KEPT << 8 | KVR_ADMIT_ACTIVE,
    KVR_ADMIT_RETURN = KVR_ADMIT_TAKEN << 8 | KVR_ADMIT_BACK,
    KVR_ADMIT_EXPIRE = KVR_ADMIT_GRANTED << 8 | KVR_ADMIT_BACK,
    KVR_ADMIT_HEAD = KVR_ADMIT_BACK << 8 | KVR_ADMIT_WAITING,
    KVR_ADMIT_LEAVE = KVR_ADMIT_GOING | KVR_ADMIT_DUE
} kvr_admit_event_t;

/* Why an entry is refused: as many wait as may, in all or of the tenant, the
 * tenant has its max_active, or it can't be in time. */
typedef enum {
    KVR_ADMIT_FULL = 1,
    KVR_ADMIT_LIMIT,
    KVR_ADMIT_LATE
} kvr_admit_why_t;


/* Grants at a worker that are not yet in its load. */
typedef struct {
    int64_t     requests;
    int64_t     tokens;                 /* uncached, a block at least */
} kvr_admit_row_t;

typedef struct {
    uint64_t    key;                    /* 0: free */
    kvr_pace_t  pace;
} kvr_admit_pool_t;

typedef struct {
    kvr_lock_t        lock;
    uint64_t          since_us;         /* when it was taken */
    uint32_t          again;
    uint32_t          limit;            /* entries that may wait */
    uint32_t          nentries;
    uint32_t          nholders;
    uint64_t          granted;          /* entries in the rows */
    uint64_t          swept_ms;
    uint64_t          turns;            /* holdings of the lock, */
    uint64_t          long_turns;       /* of them more than 20 us long */
    uint64_t          rebuilt;          /* the lock was a dead process's */
    uint64_t          lost;             /* wakes; also by who sends them */
    kvr_order_conf_t  order;            /* of each pool */
    kvr_admit_pool_t  pools[KVR_ADMIT_POOLS];
    kvr_rules_t       rules;
} kvr_admit_zone_t;

/* A process's handle. */
typedef struct {
    kvr_admit_zone_t   *zone;
    kvr_admit_row_t    *rows;           /* of each holder */
    uint8_t            *states;         /* of each entry */
    kvr_order_entry_t  *entries;
    kvr_order_t         orders[KVR_ADMIT_POOLS];
    kvr_owner_t         self;
    uint32_t            next;           /* the entry to be tried first */
    bool                look;           /* the caller is to look at the rooms
                                           of all pools, and clears this */
    uint32_t            nwakes;         /* the caller is to tell these
                                           processes, its own, too, and clears
                                           the number */
    struct {
        kvr_owner_t  owner;
        uint32_t     entry;
    } wakes[KVR_ADMIT_WAKES];
} kvr_admit_t;

/*
 * A worker that may have room.  Both functions are called with the lock, so
 * that no place is given twice.  room(): has it any, beside what is in its
 * load and what kvr_admit_granted() says?  fits(): can the entry use it, and
 * is its deadline not over?
 */
typedef struct {
    uint32_t            pool;
    uint32_t            worker;         /* the number of its holder */
    uint32_t            generation;
    uint32_t            workers;        /* of the pool */
    uint32_t            places;         /* of the pool, in requests; 0: no
                                           bound, and `most' has no effect */
    bool              (*room)(void *data, uint32_t worker);
    kvr_order_fits_pt   fits;
    void               *data;
} kvr_admit_worker_t;


/*
 * Formats zeroed memory, unless that is NULL, for `limit' entries that wait;
 * returns its size, 0 if limit is 0.  The process sets self of its handle.
 */
size_t kvr_admit_format(void *memory, uint32_t limit, uint32_t nholders,
    uint32_t block_size, double quantum);
void kvr_admit_attach(kvr_admit_t *q, void *memory);

/*
 * Sets classes and tenants, as kvr_rules_set(), before any request comes.
 * Weights and bounds act when a request of theirs comes next.  KVR_BUSY: the
 * lock is another process's: to be called again later.
 */
kvr_rc_t kvr_admit_configure(kvr_admit_t *q, const kvr_rules_t *conf);

/* The pool with this key, not 0; KVR_ADMIT_NONE: there are 16 others.  Pools
 * stay as long as the zone. */
uint32_t kvr_admit_pool(kvr_admit_t *q, uint64_t key);

/*
 * An entry for a request of this process; KVR_ADMIT_NONE: there is none, and
 * the request goes unordered.  The caller sets its pool, class, name, narrow,
 * cost, at_ms and deadline_ms.
 */
uint32_t kvr_admit_claim(kvr_admit_t *q);

/*
 * Gives the room of a worker, if it has any, to the entry that goes next, and
 * else to `mine', which is claimed; KVR_ADMIT_NONE: the caller has no request.
 * *entry becomes the one that has it.  KVR_DECLINED: none can use it, or
 * another process has the lock and will look.  A request that got none is to
 * wait.  KVR_BUSY: see the lock.
 */
kvr_rc_t kvr_admit_room(kvr_admit_t *q, const kvr_admit_worker_t *w,
    uint32_t mine, uint64_t now_ms, uint32_t *entry);

/*
 * A process moves its own entry by COME, TAKE, KEEP, RETURN or LEAVE.  False:
 * the state does not allow that.  After COME the entry may be REFUSED: its
 * `worker' is why, expected_ms is the wait that it would have had.  Else the
 * caller looks at the rooms once more.  If TAKE is true, the grant can't
 * expire any more: the process reserves where worker and generation say, or
 * elsewhere, and moves by KEEP; or it moves by RETURN, and waits on.  Before
 * LEAVE a request that was served sets the tokens that it has cost, by
 * kvr_put32(); then the entry is another's.
 */
bool kvr_admit_move(kvr_admit_t *q, uint32_t entry, kvr_admit_event_t event);

/*
 * To be called each 20 ms by every process: one of them does it.  Grants that
 * nobody takes expire, entries of dead processes go, wakes that may be lost
 * are told again.  True: this process did it, and is to look at all rooms.
 */
bool kvr_admit_sweep(kvr_admit_t *q, uint64_t now_ms);


/* Pure: the next state, or KVR_ADMIT_NONE. */
uint32_t kvr_admit_next(uint32_t state, kvr_admit_event_t event);

static inline uint32_t
kvr_admit_state(const kvr_admit_t *q, uint32_t entry)
{
    return __atomic_load_n(&q->states[entry], __ATOMIC_ACQUIRE);
}


static inline kvr_admit_row_t
kvr_admit_granted(const kvr_admit_t *q, uint32_t worker)
{
    return (kvr_admit_row_t) {
        __atomic_load_n(&q->rows[worker].requests, __ATOMIC_RELAXED),
        __atomic_load_n(&q->rows[worker].tokens, __ATOMIC_RELAXED)
    };
}


static inline uint32_t
kvr_admit_waiting(const kvr_admit_t *q, uint32_t pool)
{
    return __atomic_load_n(&q->orders[pool].zone->waiting, __ATOMIC_RELAXED);
}


#endif /* KVR_ADMIT_H_INCLUDED */
