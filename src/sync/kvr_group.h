/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The group: what the process with the lease makes of what peers tell.  A
 * pure machine of (state, message or tick, time): no sockets, no timers.  It
 * writes kvr_peers_zone_t and the flights of peers.
 *
 *     message ─► known router? ─► clock ─► about, rows, adds, ends
 *                  │ new            └ off by more than timeout: refused
 *                  └ 31 already: refused
 *
 *     tick ─► who is fresh ─► sums ─► fresh_until; shares ─► homes
 *
 * A peer is SILENT or FRESH as kvr_news_fresh() says.  A fresh one that takes
 * no new requests is LEAVING.  Its load counts while it is FRESH or LEAVING;
 * its share does unless it is leaving, until it is gone.
 *
 * NOTHING IS REPAIRED.  Rows are absolute numbers, and while a row has load
 * it is told each KVR_TELLER_AGAIN_MS: after a message is lost, a row is
 * wrong for so long.  A row that is not told for KVR_GROUP_ROW_US by the
 * peer's clock is 0: its zeros were lost, or the peer has no such worker
 * any more.  Such rows are looked for each second, when the peer tells of
 * itself.  A row of a message that has an older clock than what is known of
 * the row is dropped, and so is one of an unknown worker.  An end that is
 * lost leaves its flight until KVR_FLIGHT_UNTIL_MS.  A row counts for the
 * generation that its holder has now.
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
 * each peer 64 bytes for each holder of the zone.
 */


#ifndef KVR_GROUP_H_INCLUDED
#define KVR_GROUP_H_INCLUDED


#include "kvr_sync.h"
#include "../zone/kvr_router.h"


typedef struct {
    uint32_t    timeout_ms;
    uint32_t    predict_ms;             /* of the zone: times adds; 0:
                                           they last to their end */
} kvr_group_conf_t;

typedef struct {
    uint64_t    messages;               /* of peers, taken */
    uint64_t    refused;                /* not readable, older than timeout,
                                           or too many routers or adds */
} kvr_group_counts_t;

typedef struct kvr_group_s  kvr_group_t;

/* k must outlive the group.  NULL: out of memory. */
kvr_group_t *kvr_group_create(kvr_router_t *k, const kvr_group_conf_t *conf);
void kvr_group_destroy(kvr_group_t *g);

/*
 * A message of the channel, of this router's own processes too: those
 * measure the echo, and show that Redis is there.  KVR_INVALID: it is not
 * readable.  KVR_FULL: there are too many routers, or no memory for one more.
 */
kvr_rc_t kvr_group_hear(kvr_group_t *g, const char *bytes, size_t len,
    uint64_t now_us);

/* uncached: this router's own, see kvr_teller_uncached(); leaving: it takes no
 * new requests.  Each 20 ms. */
void kvr_group_tick(kvr_group_t *g, uint64_t uncached, bool leaving,
    uint64_t now_us);

const kvr_group_counts_t *kvr_group_counts(const kvr_group_t *g);


#endif /* KVR_GROUP_H_INCLUDED */
