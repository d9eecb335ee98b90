
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A connection to Redis as its files share it: what it has, how it is closed,
 * and how the next try is planned.  Nothing here calls the state machine
 * (…_redis.c), which gives it the function that goes on (next).
 */


#ifndef _NGX_HTTP_KV_ROUTER_REDIS_LINK_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_REDIS_LINK_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"

#include <follow/kvr_ask.h>
#include <follow/kvr_reply.h>

#include <hiredis/hiredis.h>


/*
 * The maximum size of a reply: two messages of the maximum size.  hiredis
 * keeps all of a reply in memory, so a greater reply closes the connection.
 */
#define NGX_HTTP_KV_ROUTER_REPLY_MAX  (2 * KVR_MESSAGE_MAX)

/* milliseconds, for each of connecting, TLS and login */
#define NGX_HTTP_KV_ROUTER_CONNECT    5000

/*
 * commands not yet sent: one SUBSCRIBE, a few XRANGE of 200 bytes each, or one
 * message of 8 KB for peers
 */
#define NGX_HTTP_KV_ROUTER_OUT_MAX    16384

/* the maximum number of commands whose replies are to come */
#define NGX_HTTP_KV_ROUTER_COMMANDS   80


typedef struct ngx_http_kv_router_redis_s  ngx_http_kv_router_redis_t;

typedef void (*ngx_http_kv_router_redis_event_pt)(
    ngx_http_kv_router_redis_t *r);

/* the answer to a command, which the function owns: see kvr_reply.h */
typedef void (*ngx_http_kv_router_redis_reply_pt)(
    ngx_http_kv_router_redis_t *r, void *data, kvr_reply_t *reply);


typedef struct {
    ngx_http_kv_router_redis_reply_pt   reply;
    void                               *data;
} ngx_http_kv_router_redis_command_t;


struct ngx_http_kv_router_redis_s {

    /* set by the owner; all of the functions may call _close() */

    ngx_http_kv_router_zone_t          *zone;
    char                               *purpose;      /* a word, in debug
                                                         logs */
    void                               *data;
    ngx_http_kv_router_redis_event_pt   connected;    /* may send now */
    ngx_http_kv_router_redis_event_pt   disconnected; /* was connected; or
                                                         NULL */
    ngx_http_kv_router_redis_event_pt   exiting;      /* graceful shutdown;
                                                         NULL: it stays */
    ngx_http_kv_router_redis_reply_pt   push;         /* a message of a
                                                         channel; gets data */
    ngx_http_kv_router_redis_t         *leader;       /* goes where this one
                                                         works; or NULL */
    ngx_uint_t                          beside;       /* 1: beside the events:
                                                         it is not idle, is not
                                                         counted, and leaves
                                                         it to them to say
                                                         that Redis is down */

    /* of the connection itself */

    ngx_http_kv_router_redis_event_pt   next;         /* after a lookup, or the
                                                         TLS handshake */

    ngx_peer_connection_t               peer;
    redisReader                        *reader;
    ngx_log_t                           log;
    ngx_event_t                         reconnect;
    ngx_connection_t                    dummy;        /* of the timer */

    ngx_uint_t                          server;       /* in conf->servers */
    ngx_uint_t                          addr;         /* of addrs */
    ngx_addr_t                         *addrs;        /* of the server; NULL:
                                                         not looked at yet */
    ngx_uint_t                          naddrs;
    ngx_pool_t                         *pool;         /* of addrs; NULL: they
                                                         are the directive's */
    ngx_resolver_ctx_t                 *resolving;
    ngx_addr_t                          master;       /* by a Sentinel; none
                                                         yet: socklen 0 */
    ngx_sockaddr_t                      master_addr;
    u_char                              master_text[NGX_SOCKADDR_STRLEN];
    ngx_str_t                           master_host;  /* without the port */
    u_char                              master_host_text[NGX_SOCKADDR_STRLEN];
    ngx_msec_t                          delay;        /* before connecting */
    ngx_http_kv_router_redis_command_t  commands[NGX_HTTP_KV_ROUTER_COMMANDS];
    ngx_uint_t                          first;        /* of a ring */
    ngx_uint_t                          ncommands;    /* replies to come */
    size_t                              partial;      /* bytes of a reply */

    unsigned                            opened:1;
    unsigned                            established:1;
    unsigned                            ready:1;      /* handshake is done */
    unsigned                            pushes:1;     /* the owner says so:
                                                         it is subscribed */
    unsigned                            works:1;      /* the owner says so */
    unsigned                            too_big:1;    /* why it was closed */
    unsigned                            asking:1;     /* a Sentinel */
    unsigned                            found:1;      /* the next connection
                                                         is to the master */
    unsigned                            replica:1;    /* the server is one */
    unsigned                            reset:1;      /* by its owner, who is
                                                         to come back later
                                                         each time */

    size_t                              out_len;
    u_char                              out[NGX_HTTP_KV_ROUTER_OUT_MAX];
};


/*
 * Sends a command; reply is called with data once, unless the connection is
 * closed by its owner before.  NGX_ERROR when not connected, or when too much
 * waits to be sent or to be answered.
 */
ngx_int_t ngx_http_kv_router_redis_send(ngx_http_kv_router_redis_t *r,
    ngx_http_kv_router_redis_reply_pt reply, void *data,
    const kvr_ask_t *ask);

/* Writes now what can be written; NGX_ERROR: the connection is closed. */
ngx_int_t ngx_http_kv_router_redis_flush(ngx_http_kv_router_redis_t *r);

/* As the directive had it, without the password. */
ngx_str_t *ngx_http_kv_router_redis_url(ngx_http_kv_router_redis_t *r);

#define ngx_http_kv_router_redis_debug(r, text)                               \
    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, &(r)->log, 0,                          \
                   "kv_router zone \"%V\": redis %s: %s",                     \
                   &(r)->zone->conf.name, (r)->purpose, text)

ngx_http_kv_router_redis_server_t *ngx_http_kv_router_redis_current(
    ngx_http_kv_router_redis_t *r);

/* logs why, once until the server is back, and schedules the next try */
void ngx_http_kv_router_redis_failed(ngx_http_kv_router_redis_t *r,
    ngx_err_t err, char *reason, ngx_str_t *detail);

void ngx_http_kv_router_redis_disconnect(ngx_http_kv_router_redis_t *r);

/* the handler of r->log */
u_char *ngx_http_kv_router_redis_log_text(ngx_log_t *log, u_char *buf,
    size_t len);

/* gives a reply to the first command; NGX_DECLINED: there is none */
ngx_int_t ngx_http_kv_router_redis_answer(ngx_http_kv_router_redis_t *r,
    kvr_reply_t *reply);

/* The connection is gone: answers all commands, then tells the owner. */
void ngx_http_kv_router_redis_lost(ngx_http_kv_router_redis_t *r);

/* with bounds; NULL: no memory */
redisReader *ngx_http_kv_router_redis_reader(void);

/* the view of a reply of hiredis, which the view owns */
void ngx_http_kv_router_redis_view(redisReply *reply, kvr_reply_t *view);

/* NGX_OK: go on; NGX_AGAIN: r->next is called, or was */
ngx_int_t ngx_http_kv_router_redis_resolve(ngx_http_kv_router_redis_t *r);
void ngx_http_kv_router_redis_resolve_stop(ngx_http_kv_router_redis_t *r);

/* r->next is called, or failed() */
void ngx_http_kv_router_redis_ssl(ngx_http_kv_router_redis_t *r);

/* 1: the next connection is to r->master, no Sentinel needs to be asked */
ngx_uint_t ngx_http_kv_router_redis_has_master(ngx_http_kv_router_redis_t *r,
    const ngx_http_kv_router_redis_server_t *server);

/* 1: both are connected to the same master, or to no Sentinel's */
ngx_uint_t ngx_http_kv_router_redis_same_master(ngx_http_kv_router_redis_t *a,
    ngx_http_kv_router_redis_t *b);

/*
 * sets r->master to what the Sentinel answered; NULL, or why this is not
 * possible, with a detail that lives as long as the reply
 */
char *ngx_http_kv_router_redis_sentinel_reply(ngx_http_kv_router_redis_t *r,
    const ngx_http_kv_router_redis_server_t *server, const kvr_reply_t *reply,
    ngx_str_t *detail);

/* closes the connection to the Sentinel, and connects to the master soon */
void ngx_http_kv_router_redis_go_to_master(ngx_http_kv_router_redis_t *r);

/* sends AUTH, INFO, SELECT and PING, or asks the Sentinel; NGX_ERROR */
ngx_int_t ngx_http_kv_router_redis_login(ngx_http_kv_router_redis_t *r);


#endif /* _NGX_HTTP_KV_ROUTER_REDIS_LINK_H_INCLUDED_ */
