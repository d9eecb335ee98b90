/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The consumer of a zone's events, in a process that has leases of shards:
 * the connections to Redis, the timers and the turns.  follow/kvr_follow.h
 * decides what becomes of messages, and what is asked of Redis.
 *
 *     subscriber ──► messages ──► kvr_follow ──► zone
 *     repairer   ◄── questions ──┘  ▲
 *            └─────► answers ───────┘
 *
 * A message is applied in slices, a slice in each turn of the event loop: of
 * as many blocks as take 0.3 ms, by what the last ones took, and of
 * NGX_HTTP_KV_ROUTER_PACE_MAX at most.
 *
 * SHARDS.  Each has a lease.  All consumers subscribe to the same channels;
 * messages of workers whose shard is another process's are dropped by the
 * channel's name, before anything of them is read.  A process takes a first
 * lease at once, and further ones the later the more it has, so that they
 * are spread over all processes.  A process that loses a lease, which happens
 * if it was stopped, drops all that waits, and starts again with the leases
 * that it still has.
 */


#ifndef _NGX_HTTP_KV_ROUTER_CONSUMER_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_CONSUMER_H_INCLUDED_


#include "ngx_http_kv_router_members.h"

#include <follow/kvr_follow.h>


struct ngx_http_kv_router_consumer_s {
    ngx_http_kv_router_zone_t      *zone;
    ngx_log_t                      *log;

    ngx_event_t                     lease;     /* timer */
    ngx_event_t                     work;      /* posted */
    ngx_event_t                     busy;      /* timer, instead of work */
    ngx_connection_t                dummy;     /* of the timers */
    ngx_msec_t                      started;
    ngx_msec_t                      watched;   /* last */

    kvr_tell_t                      tell;
    ngx_http_kv_router_redis_t      subscriber;
    ngx_http_kv_router_redis_t      repairer;
    ngx_http_kv_router_members_t    members;

    uint64_t                        leased;    /* shards, a bit each */
    uint64_t                        not_syncing;
                                               /* shards, a bit each: their
                                                  workers must still be made
                                                  SYNCING after a takeover */

    kvr_follow_t                    follow;    /* with a lease only */
    ngx_uint_t                      pace;      /* blocks of a turn */

    unsigned                        up:1;      /* subscribed */
};


/* leases */

/*
 * Renews the leases of the shards in leased, a bit each, and takes free ones.
 * Sets *held to those that the process has now: each of leased that is missing
 * there is another process's.  Returns 1 when it must be called again soon,
 * for leases are free or locked.
 */
ngx_uint_t ngx_http_kv_router_leases(ngx_http_kv_router_zone_t *zone,
    uint64_t leased, ngx_msec_t started, uint64_t *held);


#endif /* _NGX_HTTP_KV_ROUTER_CONSUMER_H_INCLUDED_ */
