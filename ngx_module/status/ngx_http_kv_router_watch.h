
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What goes wrong most often, in words: no events at all, blocks that no
 * prompt ever finds, and why a worker's view can't be trusted.
 */


#ifndef _NGX_HTTP_KV_ROUTER_WATCH_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_WATCH_H_INCLUDED_


#include "../follow/ngx_http_kv_router_consumer.h"


/*
 * The reason of the confidence in a worker: "none", "no_events", "silent",
 * "redis_down", or a word of kvr_degraded_name(); number: the worker's number
 */
const char *ngx_http_kv_router_reason(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_t *w, uint32_t number);

/* counts a lookup of blocks, and whether anybody had any of them */
void ngx_http_kv_router_watch_lookup(ngx_http_kv_router_zone_t *zone,
    uint32_t found);

/* called by the lease's timer: logs each finding once */
void ngx_http_kv_router_watch(ngx_http_kv_router_consumer_t *c);


#endif /* _NGX_HTTP_KV_ROUTER_WATCH_H_INCLUDED_ */
