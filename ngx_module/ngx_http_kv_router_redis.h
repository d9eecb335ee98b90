/*
 * Copyright (C) the nginx-kv-router authors
 *
 * One connection to Redis on nginx's event loop: hiredis parses and formats,
 * nginx connects, reads and writes.  It keeps itself alive: connects again
 * with a growing delay, tries the next URL when one fails, says who it is
 * (AUTH, SELECT), and asks a silent server with PING.
 */


#ifndef _NGX_HTTP_KV_ROUTER_REDIS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_REDIS_H_INCLUDED_


#include "ngx_http_kv_router_module.h"

#include <hiredis/hiredis.h>


/*
 * A reply as a whole: two messages of the greatest size.  hiredis keeps all
 * of a reply in memory, so that a greater one closes the connection.
 */
#define NGX_HTTP_KV_ROUTER_REPLY_MAX  (2 * KVR_MESSAGE_MAX)

/* commands not yet sent: one SUBSCRIBE, or a few XRANGE, of 200 bytes each */
#define NGX_HTTP_KV_ROUTER_OUT_MAX    16384


typedef struct ngx_http_kv_router_redis_s  ngx_http_kv_router_redis_t;

typedef void (*ngx_http_kv_router_redis_event_pt)(
    ngx_http_kv_router_redis_t *r);
typedef void (*ngx_http_kv_router_redis_reply_pt)(
    ngx_http_kv_router_redis_t *r, redisReply *reply);


struct ngx_http_kv_router_redis_s {

    /* set by the owner; all of the functions may call _close() */

    ngx_http_kv_router_zone_t          *zone;
    void                               *data;
    ngx_http_kv_router_redis_event_pt   connected;    /* may send now */
    ngx_http_kv_router_redis_event_pt   disconnected; /* was connected */
    ngx_http_kv_router_redis_event_pt   exiting;      /* graceful shutdown */
    ngx_http_kv_router_redis_reply_pt   reply;        /* owns the reply */

    ngx_peer_connection_t               peer;
    redisReader                        *reader;
    ngx_log_t                           log;
    ngx_event_t                         reconnect;
    ngx_connection_t                    dummy;        /* of the timer */

    ngx_uint_t                          server;       /* in conf->servers */
    ngx_uint_t                          addr;         /* of the server's */
    ngx_msec_t                          delay;        /* before connecting */
    ngx_uint_t                          handshake;    /* replies to come */
    ngx_uint_t                          outstanding;  /* replies to come */
    size_t                              partial;      /* bytes of a reply */

    unsigned                            opened:1;
    unsigned                            established:1;
    unsigned                            ready:1;      /* handshake is done */
    unsigned                            ping:1;       /* PING was sent */
    unsigned                            pushes:1;     /* subscribed */
    unsigned                            works:1;      /* the owner says so */
    unsigned                            too_big:1;    /* why it was closed */

    size_t                              out_len;
    u_char                              out[NGX_HTTP_KV_ROUTER_OUT_MAX];
};


/* Connects, and keeps connecting until _close(). */
void ngx_http_kv_router_redis_open(ngx_http_kv_router_redis_t *r);

/* Calls none of the owner's functions. */
void ngx_http_kv_router_redis_close(ngx_http_kv_router_redis_t *r);

/* Closes and connects again; for replies that make no sense. */
void ngx_http_kv_router_redis_reset(ngx_http_kv_router_redis_t *r,
    char *reason, char *detail);

/*
 * To be called when the server gave what it is there for: failures are logged
 * again, and the next delay is the shortest.
 */
void ngx_http_kv_router_redis_works(ngx_http_kv_router_redis_t *r);

/* NGX_ERROR when not connected or too much waits to be sent. */
ngx_int_t ngx_http_kv_router_redis_send(ngx_http_kv_router_redis_t *r,
    int argc, ngx_str_t *argv);

/* As the directive had it, without the password. */
ngx_str_t *ngx_http_kv_router_redis_url(ngx_http_kv_router_redis_t *r);


#endif /* _NGX_HTTP_KV_ROUTER_REDIS_H_INCLUDED_ */
