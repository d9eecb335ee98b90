/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Routers of a group, each with a zone of its own, and messages by hand, under
 * one clock:
 *
 *     open_router(&a, 4);                      workers w0 to w3
 *     tell_row("w1", 5);                       what peer 7 says of w1
 *     heard(&a, 7);                            and a hears it
 */


#ifndef GROUP_FIXTURE_H_INCLUDED
#define GROUP_FIXTURE_H_INCLUDED


#include "kinds.h"
#include "sync/kvr_group.h"
#include "sync/kvr_teller.h"
#include "tap.h"


#define ZONE     (8u << 20)
#define WORKERS  64                     /* of a zone, at most */
#define BLOCKS   16                     /* of the prompts of flights */
#define DELAY    500                    /* us, of a message */


typedef struct {
    kvr_router_t        k;
    void               *base;
    kvr_group_t        *g;
    kvr_rc_t            rc;             /* of the last message */
} router_t;


static uint64_t            now_us = 1000000000;
static kvr_group_conf_t    conf = { 3000, 0 };
static kvr_sync_message_t  say;         /* the next message */


#define now_ms  (now_us / 1000)


static inline uint64_t
hash_of(const char *worker, uint32_t rank)
{
    return kvr_sync_row(worker, strlen(worker), rank);
}


static inline void
put_worker(router_t *r, const char *id, uint32_t ranks)
{
    kvr_worker_conf_t  w;

    memset(&w, 0, sizeof(w));
    strcpy(w.id, id);
    w.ranks = ranks;
    w.weight = 1000;

    if (kvr_router_put_worker(&r->k, &w, KVR_WORKER_API) != KVR_OK) {
        printf("Bail out! no worker\n");
        exit(1);
    }
}


/* The process with the lease is another one. */

static inline void
renew_group(router_t *r)
{
    bool  taken;

    if (r->g) {
        kvr_group_destroy(r->g);
        kvr_peers_release(&r->k.peers, now_ms);
    }

    (void) kvr_peers_lease(&r->k.peers, false, now_ms, &taken);
    r->g = kvr_group_create(&r->k, &conf);

    if (!taken || r->g == NULL) {
        printf("Bail out! no lease, or no group\n");
        exit(1);
    }
}


static inline void
open_router(router_t *r, uint32_t workers)
{
    char      id[12];
    uint32_t  i;

    static const kvr_params_t  params = {
        .block_size = 4, .max_workers = WORKERS, .shards = 1
    };

    memset(r, 0, sizeof(router_t));
    r->base = router_open(&r->k, &params, ZONE);

    for (i = 0; i < workers; i++) {
        (void) snprintf(id, sizeof(id), "w%u", i);
        put_worker(r, id, 1);
    }

    renew_group(r);
}


static inline void
close_router(router_t *r)
{
    kvr_group_destroy(r->g);
    router_close(&r->k, r->base, ZONE);
}


static inline uint32_t
holder_of(router_t *r, const char *id)
{
    uint32_t  w, holder;

    return kvr_router_find_worker(&r->k, id, strlen(id), &w) == KVR_OK
           && kvr_router_find_holder(&r->k, w, 0, &holder) == KVR_OK
           ? holder : KVR_HOLDER_NONE;
}


static inline uint32_t
generation_of(router_t *r, const char *id)
{
    uint32_t           w, flags, generation;
    kvr_worker_conf_t  c;

    (void) kvr_router_find_worker(&r->k, id, strlen(id), &w);
    (void) kvr_router_read_worker(&r->k, w, &c, &flags, &generation);

    return generation;
}


/* What the router adds to the load of a worker. */

static inline kvr_load_row_t
load_of(router_t *r, const char *id)
{
    kvr_load_row_t  row;

    memset(&row, 0, sizeof(row));
    kvr_peers_add(&r->k.peers, holder_of(r, id), generation_of(r, id), now_ms,
                  &row);

    return row;
}


/* The blocks of prompt p that are in flight at a worker, by peers. */

static inline const uint64_t *
chains_of(router_t *r, uint64_t p)
{
    uint32_t  i;
    uint64_t  locals[BLOCKS];

    static uint64_t  chains[BLOCKS / KVR_FLIGHT_STRIDE];

    for (i = 0; i < BLOCKS; i++) {
        locals[i] = p * 1000 + i;
    }

    (void) kvr_flights_chains(&r->k.flights, locals, BLOCKS, chains);

    return chains;
}


static inline uint32_t
flying(router_t *r, uint64_t p, const char *id)
{
    uint32_t              holder;
    kvr_inflight_depth_t  depths[2 * WORKERS + 64];

    memset(depths, 0, sizeof(depths));
    holder = holder_of(r, id);
    depths[holder].generation = generation_of(r, id);
    kvr_flights_find(&r->k.flights, chains_of(r, p), BLOCKS, true, now_ms,
                     depths, holder + 1);

    return depths[holder].depth;
}


/* A request at a worker. */

static inline void
reserve(router_t *r, const char *id, int64_t tokens, int64_t blocks,
    kvr_reservation_t *load)
{
    memset(load, 0, sizeof(kvr_reservation_t));
    load->holder = holder_of(r, id);
    load->generation = generation_of(r, id);
    load->prefilling = 1;
    load->prefill_tokens = tokens;
    load->decode_blocks = blocks;

    kvr_router_reserve(&r->k, load, now_ms);
}


/* ---- messages of peers --------------------------------------------------- */

static inline void
tell_row(const char *worker, int64_t active)
{
    say.rows[say.nrows++] = (kvr_sync_row_t) {
        hash_of(worker, 0), active, active > 0, active * 100, 40, active * 10
    };
}


static inline void
tell_add(router_t *r, uint32_t id, uint64_t p, const char *worker)
{
    kvr_flight_t     flight;
    kvr_sync_add_t  *add;

    kvr_flight_sample(&flight, chains_of(r, p), BLOCKS, 0, false);

    add = &say.adds[say.nadds++];
    add->id = id;
    add->row = hash_of(worker, 0);
    add->n = flight.n;
    memcpy(add->chains, flight.chains, sizeof(add->chains));
}


/* What was to be said is heard as a peer's, sent now; the next is empty. */

static inline kvr_rc_t
heard(router_t *r, uint64_t peer)
{
    size_t  len;
    char    bytes[KVR_SYNC_MAX];

    say.router = peer;
    say.process = kvr_max(say.process, 1);
    say.clock_us = say.clock_us ? say.clock_us : now_us - DELAY;

    len = kvr_sync_write(&say, bytes);
    r->rc = kvr_group_hear(r->g, bytes, len, now_us);
    memset(&say, 0, sizeof(say));

    return r->rc;
}


/* One row, and nothing else. */

static inline void
row_of(router_t *r, uint64_t peer, const char *worker, int64_t active)
{
    tell_row(worker, active);
    (void) heard(r, peer);
}


/* What a peer tells of itself. */

static inline void
about_of(router_t *r, uint64_t peer, uint32_t share, uint64_t uncached)
{
    say.about = true;
    say.share = share;
    say.uncached = uncached;
    (void) snprintf(say.name, sizeof(say.name), "peer %u", (unsigned) peer);
    strcpy(say.version, KVR_VERSION);
    (void) heard(r, peer);
}


/* Our own echo. */

static inline void
echo(router_t *r)
{
    (void) heard(r, r->k.peers.zone->router);
}


static inline void
tick(router_t *r)
{
    kvr_group_tick(r->g, 0, false, now_us);
}


/* So many ms in which the router ticks, and hears itself. */

static inline void
pass(router_t *r, uint32_t ms)
{
    uint64_t  until_us;

    for (until_us = now_us + ms * UINT64_C(1000); now_us < until_us; ) {
        now_us += kvr_min(20000, until_us - now_us);
        echo(r);
        tick(r);
    }
}


/* The record of a peer. */

static inline const kvr_peer_t *
record_of(router_t *r, uint64_t peer)
{
    uint32_t  i, n;

    static kvr_peer_t  records[KVR_PEERS_MAX];

    n = kvr_peers_read(&r->k.peers, records);

    for (i = 0; i < n; i++) {
        if (records[i].router == peer) {
            return &records[i];
        }
    }

    return NULL;
}


#endif /* GROUP_FIXTURE_H_INCLUDED */
