
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What goes wrong most often, in words: no events at all, blocks that no
 * prompt ever finds, and why a worker's view can't be trusted.
 */


#ifndef _NGX_HTTP_KV_ROUTER_WATCH_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_WATCH_H_INCLUDED_


#include "ngx_http_kv_router_consumer.h"


/* called by the lease's timer: logs each finding once */
void ngx_http_kv_router_watch(ngx_http_kv_router_consumer_t *c);


#endif /* _NGX_HTTP_KV_ROUTER_WATCH_H_INCLUDED_ */
