/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Sync: what this nginx tells its peers of its load, and hears of theirs, over
 * a channel of Redis.  src/sync decides what is told and what becomes of it;
 * here are the connections and the timers.
 *
 *     each process         adds, ends ──────────────► PUBLISH
 *     the one that leads   rows, and its share ─────► PUBLISH
 *                          kvr_group ◄──────────────── SUBSCRIBE
 *
 * The process that leads has the lease of the zone's peers.  The connections
 * are beside those of the events, which must not hold up news that are worth
 * something for 150 ms.
 *
 * EXIT.  A process that exits gracefully keeps its publisher to its last
 * request, and leads if no other process does: its router's load is told until
 * its last stream ends.  Then it is silent, and its peers forget it.
 */


#ifndef _NGX_HTTP_KV_ROUTER_SYNC_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_SYNC_H_INCLUDED_


#include "../redis/ngx_http_kv_router_redis.h"

#include <sync/kvr_group.h>
#include <sync/kvr_teller.h>


/* "kv-sync:ZONE:DB:HASH"; a longer name of a zone is cut */
#define NGX_HTTP_KV_ROUTER_SYNC_CHANNEL  256
#define NGX_HTTP_KV_ROUTER_SYNC_NAME     200


struct ngx_http_kv_router_sync_s {
    ngx_http_kv_router_zone_t      *zone;
    ngx_log_t                      *log;

    ngx_event_t                     tick;      /* timer */
    ngx_event_t                     soon;      /* posted, or a timer */
    ngx_connection_t                dummy;     /* of the timers */

    ngx_http_kv_router_redis_t      publisher;
    ngx_http_kv_router_redis_t      subscriber; /* of the process that leads */

    char                            hash[17];
    char                            name[KVR_PEERS_NAME_MAX + 1];
    char                            channel[NGX_HTTP_KV_ROUTER_SYNC_CHANNEL];

    ngx_msec_t                      told;      /* when adds were, last */
    ngx_msec_t                      moved;     /* to another server, last */

    kvr_sync_message_t              message;   /* adds and ends that wait */
    kvr_flight_t                    flights[KVR_SYNC_ADDS];     /* of adds */
    char                            bytes[KVR_SYNC_MAX];

    kvr_group_t                    *group;     /* NULL: does not lead */
    kvr_teller_t                   *teller;    /* the same */
    kvr_group_counts_t              counted;   /* of the group, so far */
    ngx_msec_t                      looked;    /* at the peers, last */
    ngx_msec_t                      asked;     /* to subscribe, last */
    uint32_t                        npeers;    /* the log knows of */
    kvr_peer_t                      peers[KVR_PEERS_MAX];

    ngx_uint_t                      mute;      /* PUBLISH was refused */
    ngx_uint_t                      deaf;      /* SUBSCRIBE was */
    ngx_uint_t                      replica;   /* redis is one */
};


/*
 * A process's start and end with a zone that has Redis.  start does nothing
 * where the zone has "kv_router_sync off".  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_kv_router_sync_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone);
void ngx_http_kv_router_sync_stop(ngx_http_kv_router_zone_t *zone);

/*
 * Tells peers of a flight that begins or goes on, and of its end; id: of this
 * process.  They do nothing while no peer was heard.
 */
void ngx_http_kv_router_sync_add(ngx_http_kv_router_zone_t *zone,
    const kvr_flight_t *flight, uint32_t id);
void ngx_http_kv_router_sync_end(ngx_http_kv_router_zone_t *zone, uint32_t id);


/* of the room */

/* Sets what a connection of sync needs, and opens it. */
void ngx_http_kv_router_sync_open(ngx_http_kv_router_sync_t *s,
    ngx_http_kv_router_redis_t *r, char *purpose,
    ngx_http_kv_router_redis_event_pt connected);

/* Publishes a message; false: it can't be sent now. */
bool ngx_http_kv_router_sync_publish(void *sync, const char *bytes,
    size_t len);

/* Warns of the first reply in a row which is an error. */
void ngx_http_kv_router_sync_refused(ngx_http_kv_router_sync_t *s,
    char *command, ngx_uint_t *refused, const kvr_reply_t *reply);

/* Tells the adds and ends that wait; to be called by the tick. */
void ngx_http_kv_router_sync_tell(ngx_http_kv_router_sync_t *s);

/* begin: NGX_ERROR, no memory.  tick: each 20 ms. */
ngx_int_t ngx_http_kv_router_lead_begin(ngx_http_kv_router_sync_t *s);
void ngx_http_kv_router_lead_tick(ngx_http_kv_router_sync_t *s);
void ngx_http_kv_router_lead_end(ngx_http_kv_router_sync_t *s);

/* The words for the log: who came and who went. */
void ngx_http_kv_router_sync_look(ngx_http_kv_router_sync_t *s);


#endif /* _NGX_HTTP_KV_ROUTER_SYNC_H_INCLUDED_ */
