
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A small HTTP client for what the module itself asks engines: one request on
 * a connection of its own, on the event loop, the answer in memory.
 */


#ifndef _NGX_HTTP_KV_ROUTER_CLIENT_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_CLIENT_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"

#include <wire/kvr_http.h>


typedef struct ngx_http_kv_router_client_s  ngx_http_kv_router_client_t;


/*
 * The answer, or a static sentence why there is none; neither of them when
 * nginx ends the connection as it exits.  Called once, never from
 * within ngx_http_kv_router_client_ask(); the client is gone afterwards.
 */
typedef void (*ngx_http_kv_router_client_pt)(void *data,
    const kvr_http_answer_t *answer, const char *why);


/*
 * Asks address ("host:port" with numbers, or "unix:/path") for uri, with the
 * headers and the TLS that the zone has for its engines.  body: of a POST,
 * copied; NULL: a GET.  timeout: milliseconds until the end of the answer;
 * max: the maximum size of the answer, bytes.  NGX_DECLINED: no connection;
 * NGX_ERROR: no memory, no descriptor, or no such address.  After an error no
 * handler will be called, and *why is the cause.
 */
ngx_int_t ngx_http_kv_router_client_ask(ngx_http_kv_router_client_t **client,
    ngx_http_kv_router_zone_t *zone, ngx_str_t *address, ngx_str_t *uri,
    ngx_str_t *body, ngx_msec_t timeout, size_t max, ngx_log_t *log,
    ngx_http_kv_router_client_pt handler, void *data, const char **why);

/* Ends it; nothing is called. */
void ngx_http_kv_router_client_cancel(ngx_http_kv_router_client_t *client);


#endif /* _NGX_HTTP_KV_ROUTER_CLIENT_H_INCLUDED_ */
