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
 * A peer is in one of these states.  The first four are those of
 * kvr_news_state(), whose header says when a peer comes to each.
 *
 *     state      counts   message           full         bye, or silent
 *     ─────────────────────────────────────────────────────────────────
 *     unknown             met, and then as it is           ─
 *     SILENT     no       as the lag is     rows, share    unknown
 *     LATE       no       as the lag is     rows, share    unknown
 *     LEAVING    yes      as the lag is     rows, no share unknown
 *     FRESH      yes      as the lag is     rows, share    unknown
 *
 * LAG.  (our clock at arrival - sender's clock) - the least of that in the
 * last 10 s, + half of what our own echo takes at the least: clocks of hosts
 * are not compared.
 *
 * ROWS.  A row of a message that has an older clock than what is known of the
 * row is dropped, and so is one of an unknown worker: each full message tells
 * it again.  A row counts for the generation that its holder has now.
 *
 * CLOCKS.  A message whose clock is off by more than `timeout` is refused, and
 * its peer is not heard by it.  So a forged clock can't keep a peer's own news
 * out for longer than `timeout`: then the peer is gone, and is met anew.
 *
 * SILENCE.  A peer that is silent for `timeout` is gone, and so are its share
 * and its flights.  Silence is measured to what was heard last of anybody, our
 * own echo included.  So if nobody at all is heard, it is Redis that is gone:
 * then peers, shares and homes stay, until something is heard again and
 * `timeout` has passed since.
 *
 * SHARES.  See kvr_homes.h.  Each router tells its own share; others take it
 * as told.
 *
 * FLIGHTS.  See kvr_adds.h.  An end of an unknown add does nothing, and an add
 * that is known renews.  An add at an unknown worker is left out.
 *
 * A process that takes the lease makes a group, and destroys it when the lease
 * is lost.  The group begins with the peers that the zone has, all silent, and
 * with no flights.
 *
 * MEMORY.  At most 20 MiB of flights, of which what is used is touched; for
 * each peer 72 bytes for each holder of the zone, and 8 KiB.
 */


#ifndef KVR_GROUP_H_INCLUDED
#define KVR_GROUP_H_INCLUDED


#include "kvr_sync.h"
#include "../zone/kvr_router.h"


#define KVR_GROUP_PROCESSES  256        /* of one peer: with one more, all are
                                           new ones again */

typedef struct {
    uint32_t    timeout_ms;
    uint32_t    max_lag_ms;
    uint32_t    predict_ms;             /* of the zone: times adds; 0:
                                           they last to their end */
} kvr_group_conf_t;

typedef struct {
    uint64_t    messages;               /* of peers, taken */
    uint64_t    refused;                /* not readable, older than timeout,
                                           or too many routers or adds */
    uint64_t    missed;                 /* gaps in numbers */
} kvr_group_counts_t;

typedef struct kvr_group_s  kvr_group_t;

/* k must outlive the group.  NULL: out of memory. */
kvr_group_t *kvr_group_create(kvr_router_t *k, const kvr_group_conf_t *conf);
void kvr_group_destroy(kvr_group_t *g);

typedef struct {
    uint64_t    again;                  /* ask this router for a full message;
                                           0: nobody */
    bool        full;                   /* a peer asks for ours */
} kvr_group_heard_t;

/*
 * A message of the channel, of this router's own processes too: those
 * measure the echo, and show that Redis is there.  KVR_INVALID: it is not
 * readable.  KVR_FULL: there are too many routers, or no memory for one more.
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
