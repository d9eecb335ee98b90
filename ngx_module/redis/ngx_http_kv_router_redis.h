/*
 * Copyright (C) the nginx-kv-router authors
 *
 * One connection to Redis on nginx's event loop: hiredis parses and formats,
 * nginx connects, reads and writes.  The connection keeps itself alive: it
 * connects again with a growing delay, tries the next URL if one fails, logs
 * in (AUTH, SELECT), and asks a silent server with PING.  A connection with a
 * leader tries no URLs: it uses the server of its leader, because two servers
 * may have different data.
 *
 *     resolve ──► connect ──► TLS ──► login ──► the owner's commands
 *
 * A URL of a Sentinel goes through all of it twice: the Sentinel is asked for
 * the address of the master, each time anew, then the master is connected to.
 * A connection with a leader uses the master of its leader.
 *
 * nginx's resolver resolves a name again before the first address of the name
 * is tried.  If that fails, the addresses known before are used.
 */


#ifndef _NGX_HTTP_KV_ROUTER_REDIS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_REDIS_H_INCLUDED_


#include "ngx_http_kv_router_redis_link.h"


/* Connects, or waits for its leader, and keeps connecting until _close(). */
void ngx_http_kv_router_redis_open(ngx_http_kv_router_redis_t *r);

/*
 * To be called when r's leader works: goes where that is, and leaves, as if
 * the connection had been lost, where it is not.  Does nothing when r is not
 * open.
 */
void ngx_http_kv_router_redis_follow(ngx_http_kv_router_redis_t *r);

/* Calls none of the owner's functions. */
void ngx_http_kv_router_redis_close(ngx_http_kv_router_redis_t *r);

/*
 * Closes and connects again, each time later, however well the connection
 * works; for replies that make no sense, and what can't be asked.
 */
void ngx_http_kv_router_redis_reset(ngx_http_kv_router_redis_t *r,
    char *reason, char *detail);

/*
 * To be called when the server gave what it is there for: failures are logged
 * again, and the next delay is the shortest.
 */
void ngx_http_kv_router_redis_works(ngx_http_kv_router_redis_t *r);

/* the directive */

/* does the URL begin with a scheme that is supported? */
ngx_uint_t ngx_http_kv_router_redis_is_url(ngx_str_t *value);

/* parses a URL and resolves its host; NGX_CONF_OK, or an error was logged */
char *ngx_http_kv_router_redis_url_parse(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_kv_router_redis_server_t *server);

/* the text without what may be a password; NGX_ERROR */
ngx_int_t ngx_http_kv_router_redis_mask(ngx_pool_t *pool, ngx_str_t *value,
    ngx_str_t *masked);


#endif /* _NGX_HTTP_KV_ROUTER_REDIS_H_INCLUDED_ */
