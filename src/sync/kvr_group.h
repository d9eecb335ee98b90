/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The group: what the process with the lease makes of what peers tell.  A
 * pure machine of (state, message or tick, time): no sockets, no timers.  It
 * writes kvr_peers_zone_t and the flights of peers.
 *
 *     message ─► known router? ─► number ─► clock ─► rows, adds, ends, full
 *                  │ new             │ gap: ask again, once in 100 ms
 *                  │                 └ doubled or older: dropped
 *                  └ 32 already: refused, counted
 *
 *     tick ─► who is fresh ─► sums ─► fresh_until; shares ─► homes
 *
 * LAG.  (our clock at arrival - sender's clock) - the least of that in the
 * last 10 s, + half of our own echo's way: clocks of hosts are not compared.
 * A peer counts while its newest message, lag included, is at most
 * KVR_PEERS_FRESH_MS old, and its lag is below max_lag: off after 100 ms
 * above, on again after 1 s below half of it.  A row of a message that has
 * an older clock than what is known of the row is dropped.  A peer that is
 * silent for `timeout` is gone, and so is its share.  But if nobody at all
 * was heard, our own echo included, it is Redis that is gone: then shares
 * and homes stay, until our echo is back and `timeout` has passed.
 *
 * SHARES.  A router's is its uncached tokens of all routers', in sixteenths:
 * it changes when it is off by more than 3/4 of a sixteenth; 0 below 1 %,
 * and from 0 it rises at 2 %; 0 when the router leaves.  Each router tells
 * its own share; others take it as told.  The home of a worker is the router
 * with the largest -share / log(u), u a hash of (router, row of rank 0) in
 * (0, 1).
 *
 * FLIGHTS.  An add is remembered by (router, process, id) until its end, a
 * bye or its time, in a table of KVR_GROUP_ADDS, so that an end takes away
 * what was added and nothing else.  An end of an unknown add does nothing.
 * An add that is known renews.  When the table is full, an add is taken as a
 * timed one of 5 s.
 *
 * Rows of unknown workers are kept by hash until the worker is known: the
 * sums are made by looking rows up for each holder of the fleet, when its
 * version or the rows changed.
 */


#ifndef KVR_GROUP_H_INCLUDED
#define KVR_GROUP_H_INCLUDED


#include "kvr_sync.h"
#include "../zone/kvr_router.h"


#define KVR_GROUP_ADDS     65536
#define KVR_GROUP_ROWS     4096         /* of one peer; more are dropped and
                                           counted */

typedef struct {
    uint32_t    timeout_ms;
    uint32_t    max_lag_ms;
    uint32_t    predict_ms;             /* of the zone: times adds; 0:
                                           they last to their end */
} kvr_group_conf_t;

typedef struct {
    uint64_t    messages;               /* of peers, taken */
    uint64_t    refused;                /* not readable, or too many routers,
                                           rows, adds */
    uint64_t    missed;                 /* gaps in numbers */
} kvr_group_counts_t;

typedef struct kvr_group_s  kvr_group_t;

kvr_group_t *kvr_group_create(kvr_router_t *k, const kvr_group_conf_t *conf);
void kvr_group_destroy(kvr_group_t *g);

typedef struct {
    uint64_t    again;                  /* ask this router for a full message;
                                           0: nobody */
    bool        full;                   /* a peer asks for ours */
    const kvr_peer_t  *met;             /* a peer was heard for the first time;
                                           valid until the next call; NULL */
} kvr_group_heard_t;

/*
 * A message of the channel, of this router's own processes too: those
 * measure the echo, and show that Redis is there.  KVR_INVALID: it is not
 * readable.
 */
kvr_rc_t kvr_group_hear(kvr_group_t *g, const char *bytes, size_t len,
    uint64_t now_us, kvr_group_heard_t *heard);

/* uncached: this router's own, see kvr_teller_uncached(); leaving: it takes no
 * new requests.  Each 20 ms. */
void kvr_group_tick(kvr_group_t *g, uint64_t uncached, bool leaving,
    uint64_t now_us);

/* Is there any peer, fresh or not? */
bool kvr_group_heard_any(const kvr_group_t *g);

/* The share that this router tells. */
uint32_t kvr_group_share(const kvr_group_t *g);

const kvr_group_counts_t *kvr_group_counts(const kvr_group_t *g);


#endif /* KVR_GROUP_H_INCLUDED */
