/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Peers: what the other routers of the group have in flight at each holder,
 * added up, and what this router's place among them is.  In the zone.
 *
 * WHO MAY WRITE.  One process has the lease: it alone writes the rows, the
 * homes, the shares and the records of peers.  Anyone may read at any time,
 * with relaxed atomics, and may see one field newer than the other.  If the
 * holder of the lease dies or stands still, fresh_until_ms passes, at most
 * KVR_PEERS_FRESH_MS later: then the rows, and the flights that peers told,
 * count no more.  The next holder of the lease zeroes the rows, then makes
 * them anew from what it hears.  Homes and shares stay as they were
 * meanwhile.
 *
 * A holder that stood still loses the lease, and learns so when it renews it.
 * Until then, for one tick of 20 ms at most, it may write beside the new
 * holder: its rows are absolute and clamped, its fresh_until_ms has passed,
 * and the new holder, which sets all rows each tick, mends what differs.
 *
 * A row counts for one generation of its holder.
 */


#ifndef KVR_PEERS_H_INCLUDED
#define KVR_PEERS_H_INCLUDED


#include "../kvr.h"
#include "../core/kvr_lock.h"       /* kvr_owner_t */
#include "../core/kvr_words.h"
#include "kvr_load.h"


#define KVR_PEERS_MAX         31        /* 32 routers are a group at most */
#define KVR_PEERS_FRESH_MS    150
#define KVR_PEERS_SHARES      16        /* a share is a number of sixteenths */
#define KVR_PEERS_LEASE_MS    100       /* unless renewed; the holder renews it
                                           each 20 ms */
#define KVR_PEERS_DOUBT_MS    40        /* not renewed for so long: does the
                                           holder live? */
#define KVR_PEERS_WAIT_MS     200       /* a process that leaves takes no lease
                                           that is free for less */
#define KVR_PEERS_NAME_MAX    63        /* bytes */
#define KVR_PEERS_WINDOW_S    30        /* of the tokens that make a share */


/* A peer's record.  Read by kvr_peers_read(). */
typedef struct {
    uint64_t    router;                 /* the peer's id; never 0 */
    uint64_t    since_ms;               /* heard first; monotonic, our clock */
    uint64_t    heard_ms;               /* last */
    uint64_t    uncached;               /* tokens of the last 30 s */
    uint32_t    lag_us;                 /* of the newest message */
    uint32_t    share;                  /* sixteenths */
    uint32_t    active;                 /* requests */
    uint32_t    state;                  /* kvr_peer_state_t */
    char        name[KVR_PEERS_NAME_MAX + 1];
    char        version[16];
} kvr_peer_t;

typedef enum {
    KVR_PEER_FRESH = 0,                 /* the peer counts */
    KVR_PEER_SILENT,                    /* for KVR_PEERS_FRESH_MS, or its news
                                           take so long */
    KVR_PEER_LEAVING                    /* fresh, takes no new requests */
} kvr_peer_state_t;


/* In the zone. */
typedef struct {
    uint64_t    rows;                   /* of each holder, kvr_load_row_t, by
                                           our clock; all offsets are from the
                                           zone's base */
    uint64_t    homes;                  /* a byte of each holder, 1: foreign */
    uint32_t    max_holders;
    uint32_t    alone;                  /* 1: no other router has a share, so
                                           there are no homes */
    uint64_t    fresh_until_ms;         /* 0: no peer is fresh */
    uint64_t    router;                 /* this router's id; made by format,
                                           never 0 */
    uint64_t    owner;                  /* the lease: kvr_owner_t; 0: free */
    uint64_t    renewed_ms;
    uint64_t    free_ms;                /* since when it is free */
    uint64_t    place;                  /* kvr_peers_set_place() */
    uint32_t    seq;                    /* odd: peers[] is being written */
    uint32_t    npeers;
    kvr_peer_t  peers[KVR_PEERS_MAX];
    uint64_t    uncached;               /* tokens asked for that were not
                                           cached: all processes add to it */
    uint64_t    windows[KVR_PEERS_WINDOW_S];    /* uncached, as it was when
                                                   each second began */
    uint64_t    window_s;               /* the newest of these seconds */
} kvr_peers_zone_t;


/* A process's handle. */
typedef struct {
    kvr_peers_zone_t  *zone;
    char              *base;
    kvr_owner_t        self;
    bool               gave;            /* the process leaves, and gave its
                                           lease up */
} kvr_peers_t;


/* Bytes that rows and homes need, at a multiple of 64. */
size_t kvr_peers_size(uint32_t max_holders);
void kvr_peers_format(kvr_peers_zone_t *z, char *base, uint64_t at,
    uint32_t max_holders, uint64_t router);

/* self is 0 until the process joins. */
void kvr_peers_attach(kvr_peers_t *p, kvr_peers_zone_t *z, char *base);

/*
 * Takes or renews the lease; to be called each 20 ms.  A free lease is taken
 * at once, as is one whose holder is dead, or has not renewed it for
 * KVR_PEERS_LEASE_MS.  leaving: this process exits.  It gives the lease up
 * once, and takes one only if that is free for KVR_PEERS_WAIT_MS.  True: this
 * process has the lease now.  *taken: it has it newly; the rows are zeroed,
 * and no peer is fresh.
 */
bool kvr_peers_lease(kvr_peers_t *p, bool leaving, uint64_t now_ms,
    bool *taken);

/* Gives the lease up, if this process has it. */
void kvr_peers_release(kvr_peers_t *p, uint64_t now_ms);


/*
 * For the holder of the lease.  Each call does nothing if the lease is another
 * process's.  What is the same already is not written.
 */

/* The sums of all fresh peers at a holder; numbers are never negative. */
void kvr_peers_set_row(kvr_peers_t *p, uint32_t holder,
    const kvr_load_row_t *row);

/* After the rows: they count until then; 0: no peer is fresh. */
void kvr_peers_set_fresh(kvr_peers_t *p, uint64_t until_ms);

/*
 * This router's share, the sum of the shares of the routers with lower ids,
 * and the sum of all shares; 0: no other router is known.
 */
void kvr_peers_set_place(kvr_peers_t *p, uint32_t own, uint32_t before,
    uint32_t all);

/* A byte of each of max_holders, 1: foreign; NULL: no homes any more. */
void kvr_peers_set_homes(kvr_peers_t *p, const uint8_t *foreign);

/* All records, at most KVR_PEERS_MAX. */
void kvr_peers_set_peers(kvr_peers_t *p, const kvr_peer_t *peers, uint32_t n);


/* Does what peers tell count now? */
static inline bool
kvr_peers_fresh(const kvr_peers_t *p, uint64_t now_ms)
{
    return kvr_load64(&p->zone->fresh_until_ms) > now_ms;
}


/* Counts tokens that were asked for and are not cached. */
static inline void
kvr_peers_uncached(const kvr_peers_t *p, int64_t tokens)
{
    (void) __atomic_fetch_add(&p->zone->uncached, (uint64_t) tokens,
                              __ATOMIC_RELAXED);
}


/*
 * Adds the peers' load of one generation of a holder to *row, if it is fresh.
 * A prefill runs since the later of both beginnings.
 */
void kvr_peers_add(const kvr_peers_t *p, uint32_t holder, uint32_t generation,
    uint64_t now_ms, kvr_load_row_t *row);

/* The homes, a byte of each holder, 1: another router's; NULL: no homes. */
const uint8_t *kvr_peers_homes(const kvr_peers_t *p);

/* This router's share, as kvr_peers_set_place() wrote it. */
static inline uint32_t
kvr_peers_share(const kvr_peers_t *p)
{
    return (uint32_t) (kvr_load64(&p->zone->place) & 0xffff);
}


/*
 * This router's part of a bound: what is between the shares before its own and
 * those with its own, in routers' order, rounded down, so that the parts are
 * the bound together; but one request at least.  The bound itself, while no
 * other router is known, or no router has a share.
 */
uint32_t kvr_peers_part(const kvr_peers_t *p, uint32_t bound);

/*
 * Copies the records of peers, at most KVR_PEERS_MAX; returns their number, 0
 * while a process that died has left them half written.
 */
uint32_t kvr_peers_read(const kvr_peers_t *p, kvr_peer_t *out);


#endif /* KVR_PEERS_H_INCLUDED */
