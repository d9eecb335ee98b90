
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_redis.h"


/* milliseconds */
#define NGX_HTTP_KV_ROUTER_SILENCE         10000   /* ms; PING after it */
#define NGX_HTTP_KV_ROUTER_PONG            5000

/* bytes of a read: after a few replies hiredis moves what is left */
#define NGX_HTTP_KV_ROUTER_READ            16384
/* bytes read in one turn of the event loop, about 0.2 ms of work */
#define NGX_HTTP_KV_ROUTER_READ_TURN       (256 * 1024)


static void ngx_http_kv_router_redis_leave(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_redis_connect(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_redis_connect_addr(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_redis_reconnect_handler(ngx_event_t *ev);
static void ngx_http_kv_router_redis_established(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_redis_talk(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_redis_write_handler(ngx_event_t *wev);
static void ngx_http_kv_router_redis_read_handler(ngx_event_t *rev);
static ngx_int_t ngx_http_kv_router_redis_parse_replies(
    ngx_http_kv_router_redis_t *r);
static ngx_uint_t ngx_http_kv_router_redis_is_push(
    ngx_http_kv_router_redis_t *r, const kvr_reply_t *reply);
static void ngx_http_kv_router_redis_pong(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply);


static u_char  ngx_http_kv_router_redis_buf[NGX_HTTP_KV_ROUTER_READ];


void
ngx_http_kv_router_redis_open(ngx_http_kv_router_redis_t *r)
{
    if (r->opened) {
        return;
    }

    r->opened = 1;
    r->delay = 0;

    r->log = *ngx_cycle->log;
    r->log.handler = ngx_http_kv_router_redis_log_text;
    r->log.data = r;
    r->log.connection = 0;

    ngx_http_kv_router_timer(&r->reconnect, &r->dummy,
                             ngx_http_kv_router_redis_reconnect_handler, r,
                             &r->log);

    ngx_http_kv_router_redis_connect(r);
}


void
ngx_http_kv_router_redis_follow(ngx_http_kv_router_redis_t *r)
{
    ngx_uint_t  ready;

    if (!r->opened
        || (r->server == r->leader->server
            && ngx_http_kv_router_redis_same_master(r, r->leader)
            && (r->peer.connection || r->resolving
                || r->reconnect.timer_set)))
    {
        return;
    }

    ready = r->ready;

    ngx_http_kv_router_redis_debug(r, "goes where the events come from");

    ngx_http_kv_router_redis_leave(r);

    if (ready) {
        ngx_http_kv_router_redis_lost(r);
    }

    ngx_http_kv_router_redis_connect(r);
}


void
ngx_http_kv_router_redis_close(ngx_http_kv_router_redis_t *r)
{
    if (!r->opened) {
        return;
    }

    ngx_http_kv_router_redis_debug(r, "closed");

    r->opened = 0;
    r->ncommands = 0;

    ngx_http_kv_router_redis_leave(r);
}


static void
ngx_http_kv_router_redis_leave(ngx_http_kv_router_redis_t *r)
{
    if (r->reconnect.timer_set) {
        ngx_del_timer(&r->reconnect);
    }

    r->found = 0;

    ngx_http_kv_router_redis_resolve_stop(r);
    ngx_http_kv_router_redis_disconnect(r);
}


void
ngx_http_kv_router_redis_reset(ngx_http_kv_router_redis_t *r, char *reason,
    char *detail)
{
    ngx_str_t  text;

    if (r->peer.connection == NULL) {
        return;
    }

    r->reset = r->works;

    if (detail == NULL) {
        ngx_http_kv_router_redis_failed(r, 0, reason, NULL);
        return;
    }

    text.len = ngx_strlen(detail);
    text.data = (u_char *) detail;

    ngx_http_kv_router_redis_failed(r, 0, reason, &text);
}


void
ngx_http_kv_router_redis_works(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);

    if (!r->beside) {

        if (server->down) {
            ngx_log_error(NGX_LOG_NOTICE, &r->log, 0, "redis is back");
        }

        server->down = 0;
    }

    r->works = 1;

    if (r->reset) {
        r->reset = 0;

    } else {
        r->delay = 0;
    }
}


static void
ngx_http_kv_router_redis_connect(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_redis_server_t  *server;

    r->ncommands = 0;
    r->partial = 0;
    r->out_len = 0;
    r->established = 0;
    r->ready = 0;
    r->pushes = 0;
    r->too_big = 0;
    r->works = 0;

    if (r->leader) {

        if (!r->leader->works) {
            ngx_http_kv_router_redis_debug(r, "waits for the subscription");
            return;
        }

        if (r->server != r->leader->server) {
            r->server = r->leader->server;
            r->addrs = NULL;
        }
    }

    r->log.action = "connecting to redis";

    r->reader = ngx_http_kv_router_redis_reader();
    if (r->reader == NULL) {
        ngx_http_kv_router_redis_failed(r, 0, "no memory for redis", NULL);
        return;
    }

    server = ngx_http_kv_router_redis_current(r);

    if (r->addrs == NULL) {
        r->addr = 0;
        r->addrs = server->addrs;
        r->naddrs = server->naddrs;
    }

    r->next = ngx_http_kv_router_redis_connect_addr;

    if (!ngx_http_kv_router_redis_has_master(r, server)
        && r->addr == 0
        && ngx_http_kv_router_redis_resolve(r) == NGX_AGAIN)
    {
        return;
    }

    ngx_http_kv_router_redis_connect_addr(r);
}


static void
ngx_http_kv_router_redis_connect_addr(ngx_http_kv_router_redis_t *r)
{
    ngx_int_t                           rc;
    ngx_addr_t                         *addr;
    ngx_connection_t                   *c;
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);
    addr = server->master.len && !r->asking ? &r->master : &r->addrs[r->addr];

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, &r->log, 0,
                   "kv_router zone \"%V\": redis %s: connects to \"%V\" at %V",
                   &r->zone->conf.name, r->purpose, &server->url, &addr->name);

    ngx_memzero(&r->peer, sizeof(ngx_peer_connection_t));

    r->peer.sockaddr = addr->sockaddr;
    r->peer.socklen = addr->socklen;
    r->peer.name = &addr->name;
    r->peer.get = ngx_event_get_peer;
    r->peer.log = &r->log;
    r->peer.log_error = NGX_ERROR_INFO;

    /*
     * nginx logs a failure here itself: while the server is known to be down,
     * failures are not logged again
     */

    if (server->down || r->beside) {
        r->log.log_level = NGX_LOG_EMERG;
    }

    rc = ngx_event_connect_peer(&r->peer);

    r->log.log_level = ngx_cycle->log->log_level;

    if (rc != NGX_OK && rc != NGX_AGAIN) {

        server->down |= !r->beside;
        ngx_http_kv_router_redis_failed(r, 0, "redis can't be reached", NULL);
        return;
    }

    c = r->peer.connection;

    c->data = r;
    c->idle = !r->beside;
    c->read->handler = ngx_http_kv_router_redis_read_handler;
    c->write->handler = ngx_http_kv_router_redis_write_handler;
    c->read->cancelable = 1;
    c->write->cancelable = 1;

    if (rc == NGX_AGAIN) {
        ngx_add_timer(c->write, NGX_HTTP_KV_ROUTER_CONNECT);
        return;
    }

    ngx_http_kv_router_redis_established(r);
}


static void
ngx_http_kv_router_redis_reconnect_handler(ngx_event_t *ev)
{
    ngx_connection_t            *c;
    ngx_http_kv_router_redis_t  *r;

    c = ev->data;
    r = c->data;

    if ((ngx_exiting || ngx_terminate) && r->exiting) {
        r->exiting(r);
        return;
    }

    ngx_http_kv_router_redis_connect(r);
}


static void
ngx_http_kv_router_redis_established(ngx_http_kv_router_redis_t *r)
{
    int                err;
    socklen_t          len;
    ngx_connection_t  *c;

    c = r->peer.connection;

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err) {
        ngx_http_kv_router_redis_failed(r, err, "connect() failed", NULL);
        return;
    }

    if (c->write->timer_set) {
        ngx_del_timer(c->write);
    }

    if (ngx_tcp_nodelay(c) != NGX_OK) {
        ngx_http_kv_router_redis_failed(r, 0, "no nodelay for redis", NULL);
        return;
    }

    if (ngx_http_kv_router_redis_current(r)->ssl) {
        r->next = ngx_http_kv_router_redis_talk;
        ngx_http_kv_router_redis_ssl(r);
        return;
    }

    ngx_http_kv_router_redis_talk(r);
}


/* The bytes that come and go from now on are RESP. */

static void
ngx_http_kv_router_redis_talk(ngx_http_kv_router_redis_t *r)
{
    ngx_connection_t  *c;

    c = r->peer.connection;

    c->read->handler = ngx_http_kv_router_redis_read_handler;
    c->write->handler = ngx_http_kv_router_redis_write_handler;

    ngx_http_kv_router_redis_debug(r, "connected");

    r->established = 1;
    r->log.action = NULL;

    ngx_add_timer(c->read, NGX_HTTP_KV_ROUTER_CONNECT);

    if (ngx_http_kv_router_redis_login(r) != NGX_OK) {
        ngx_http_kv_router_redis_failed(r, 0, "too much to say to redis",
                                        NULL);
    }
}


static void
ngx_http_kv_router_redis_write_handler(ngx_event_t *wev)
{
    ngx_connection_t            *c;
    ngx_http_kv_router_redis_t  *r;

    c = wev->data;
    r = c->data;

    if (wev->timedout) {
        wev->timedout = 0;
        ngx_http_kv_router_redis_failed(r, NGX_ETIMEDOUT, "connect() failed",
                                        NULL);
        return;
    }

    if (!r->established) {
        ngx_http_kv_router_redis_established(r);
        return;
    }

    (void) ngx_http_kv_router_redis_flush(r);
}


ngx_int_t
ngx_http_kv_router_redis_flush(ngx_http_kv_router_redis_t *r)
{
    ssize_t            n;
    ngx_connection_t  *c;

    c = r->peer.connection;

    while (r->out_len) {

        n = c->send(c, r->out, r->out_len);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR) {
            ngx_http_kv_router_redis_failed(r, ngx_socket_errno,
                                            "redis closed the connection",
                                            NULL);
            return NGX_ERROR;
        }

        r->out_len -= n;
        ngx_memmove(r->out, r->out + n, r->out_len);
    }

    if (ngx_handle_write_event(c->write, 0) != NGX_OK) {
        ngx_http_kv_router_redis_failed(r, 0, "no events of redis", NULL);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_http_kv_router_redis_read_handler(ngx_event_t *rev)
{
    size_t                       left;
    ssize_t                      n;
    kvr_ask_t                    ping;
    ngx_connection_t            *c;
    ngx_http_kv_router_redis_t  *r;

    c = rev->data;
    r = c->data;

    if (c->close && r->exiting) {
        r->exiting(r);
        return;
    }

    if (rev->timedout) {
        rev->timedout = 0;

        kvr_ask_begin(&ping, "PING");

        if (!r->ready || r->ncommands
            || ngx_http_kv_router_redis_send(r, ngx_http_kv_router_redis_pong,
                                             NULL, &ping)
               != NGX_OK)
        {
            ngx_http_kv_router_redis_failed(r, NGX_ETIMEDOUT,
                                            "redis does not answer", NULL);
            return;
        }

        ngx_http_kv_router_redis_debug(r, "silent, PING is sent");

        ngx_add_timer(rev, NGX_HTTP_KV_ROUTER_PONG);
        return;
    }

    if (!r->established) {

        /* a connection was refused: the write event reports it, too */

        ngx_http_kv_router_redis_established(r);

        if (c != r->peer.connection) {
            return;
        }
    }

    left = NGX_HTTP_KV_ROUTER_READ_TURN;

    for ( ;; ) {

        if (left < NGX_HTTP_KV_ROUTER_READ) {
            ngx_post_event(rev, &ngx_posted_next_events);
            break;
        }

        n = c->recv(c, ngx_http_kv_router_redis_buf, NGX_HTTP_KV_ROUTER_READ);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == 0 || n == NGX_ERROR) {
            ngx_http_kv_router_redis_failed(r, n ? ngx_socket_errno : 0,
                                            "redis closed the connection",
                                            NULL);
            return;
        }

        left -= n;
        r->partial += n;

        if (redisReaderFeed(r->reader, (char *) ngx_http_kv_router_redis_buf,
                            n)
            != REDIS_OK)
        {
            ngx_http_kv_router_redis_failed(r, 0, "no memory for redis", NULL);
            return;
        }

        if (ngx_http_kv_router_redis_parse_replies(r) != NGX_OK) {
            return;
        }
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_http_kv_router_redis_failed(r, 0, "no events of redis", NULL);
        return;
    }

    if (r->ready && left != NGX_HTTP_KV_ROUTER_READ_TURN) {
        ngx_add_timer(rev, NGX_HTTP_KV_ROUTER_SILENCE);
    }
}


/* NGX_DONE: the connection is gone */

static ngx_int_t
ngx_http_kv_router_redis_parse_replies(ngx_http_kv_router_redis_t *r)
{
    void              *object;
    kvr_reply_t        reply;
    ngx_connection_t  *c;

    c = r->peer.connection;

    for ( ;; ) {

        if (redisReaderGetReply(r->reader, &object) != REDIS_OK) {
            ngx_http_kv_router_redis_failed(r, 0, "redis does not speak RESP",
                                            NULL);
            return NGX_DONE;
        }

        if (object == NULL) {
            break;
        }

        r->partial = 0;

        ngx_http_kv_router_redis_view(object, &reply);

        if (ngx_http_kv_router_redis_is_push(r, &reply)) {
            r->push(r, r->data, &reply);

        } else if (ngx_http_kv_router_redis_answer(r, &reply) != NGX_OK) {
            kvr_reply_release(&reply);
            ngx_http_kv_router_redis_reset(r, "redis was not asked for this",
                                           NULL);
        }

        if (c != r->peer.connection) {
            return NGX_DONE;
        }
    }

    if (r->partial > NGX_HTTP_KV_ROUTER_REPLY_MAX) {
        r->too_big = 1;
        ngx_http_kv_router_redis_failed(r, 0, "redis sent too big a reply",
                                        NULL);
        return NGX_DONE;
    }

    return NGX_OK;
}


/* The reply to PING of a connection with pushes is an array, or an error. */

static ngx_uint_t
ngx_http_kv_router_redis_is_push(ngx_http_kv_router_redis_t *r,
    const kvr_reply_t *reply)
{
    kvr_reply_t  kind;

    if (!r->pushes || reply->type != KVR_REPLY_ARRAY) {
        return 0;
    }

    if (reply->len == 0) {
        return 1;
    }

    kind = kvr_reply_element(reply, 0);

    return kind.type != KVR_REPLY_STRING || ngx_strcmp(kind.text, "pong") != 0;
}


static void
ngx_http_kv_router_redis_pong(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    kvr_reply_release(reply);
}
