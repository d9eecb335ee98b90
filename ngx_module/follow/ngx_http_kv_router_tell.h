/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The log and the counters of a zone, for the machines of src/follow.
 */


#ifndef _NGX_HTTP_KV_ROUTER_TELL_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_TELL_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"

#include <follow/kvr_tell.h>


/* Messages begin with the zone's name. */
void ngx_http_kv_router_tell_init(kvr_tell_t *tell,
    ngx_http_kv_router_zone_t *zone, ngx_log_t *log);


#endif /* _NGX_HTTP_KV_ROUTER_TELL_H_INCLUDED_ */
