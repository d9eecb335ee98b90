/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Members: the workers that Redis knows.  follow/kvr_roll.h decides; here are
 * the connection and the timer, in each process that has leases.
 */


#ifndef _NGX_HTTP_KV_ROUTER_MEMBERS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_MEMBERS_H_INCLUDED_


#include "../redis/ngx_http_kv_router_redis.h"

#include <follow/kvr_roll.h>


typedef struct ngx_http_kv_router_members_s  ngx_http_kv_router_members_t;


struct ngx_http_kv_router_members_s {

    /* set by the owner, before the first call */

    ngx_http_kv_router_zone_t      *zone;
    const kvr_tell_t               *tell;
    ngx_http_kv_router_redis_t     *leader;
    const uint64_t                 *shards;    /* the leases, a bit each */
    void                           *data;
    void                          (*registered)(void *data, uint32_t worker);
    void                          (*lost)(void *data);  /* the lease; it may
                                                           call _close() */
    ngx_http_kv_router_redis_event_pt  exiting;         /* as of redis */

    ngx_http_kv_router_redis_t      redis;
    ngx_event_t                     timer;     /* set: between two polls */
    ngx_connection_t                dummy;     /* of the timer */
    kvr_roll_t                      roll;      /* while it is open */
};


/* Starts polls; must be called after each subscription. */
void ngx_http_kv_router_members_open(ngx_http_kv_router_members_t *m);
void ngx_http_kv_router_members_close(ngx_http_kv_router_members_t *m);

/*
 * Must be called now and then: polls soon if there are workers, or shards, for
 * which no poll asked yet.
 */
void ngx_http_kv_router_members_look(ngx_http_kv_router_members_t *m);


#endif /* _NGX_HTTP_KV_ROUTER_MEMBERS_H_INCLUDED_ */
