
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The connections, and what a process publishes.
 */


#include "ngx_http_kv_router_sync.h"

#include <core/kvr_clock.h>


static void ngx_http_kv_router_sync_connected(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_sync_disconnected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_sync_published(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply);


void
ngx_http_kv_router_sync_open(ngx_http_kv_router_sync_t *s,
    ngx_http_kv_router_redis_event_pt exiting)
{
    s->publisher.exiting = exiting;

    ngx_http_kv_router_sync_make(s, &s->publisher, "sync",
                                 ngx_http_kv_router_sync_connected);
    ngx_http_kv_router_redis_open(&s->publisher);
}


void
ngx_http_kv_router_sync_make(ngx_http_kv_router_sync_t *s,
    ngx_http_kv_router_redis_t *r, char *purpose,
    ngx_http_kv_router_redis_event_pt connected)
{
    r->purpose = purpose;
    r->zone = s->zone;
    r->data = s;
    r->beside = 1;
    r->connected = connected;
    r->disconnected = ngx_http_kv_router_sync_disconnected;
    r->exiting = s->publisher.exiting;
}


static void
ngx_http_kv_router_sync_connected(ngx_http_kv_router_redis_t *r)
{
    u_char                             *last;
    ngx_http_kv_router_sync_t          *s;
    ngx_http_kv_router_redis_server_t  *server;

    s = r->data;

    /* databases of a server have the same channels */

    server = ngx_http_kv_router_redis_current(r);
    last = ngx_snprintf((u_char *) s->channel, sizeof(s->channel),
                        "kv-sync:%V:%i:%s", &s->zone->conf.name, server->db,
                        s->hash);
    s->channel_len = last - (u_char *) s->channel;

    ngx_http_kv_router_redis_works(r);
    ngx_http_kv_router_redis_follow(&s->subscriber);
}


static void
ngx_http_kv_router_sync_disconnected(ngx_http_kv_router_redis_t *r)
{
    /* a new connection follows; until then nothing is sent, or heard */
}


bool
ngx_http_kv_router_sync_publish(void *sync, const char *bytes, size_t len)
{
    ngx_http_kv_router_sync_t *s = sync;

    kvr_ask_t  ask;

    if (!s->publisher.ready) {
        return false;
    }

    kvr_ask_begin(&ask, "PUBLISH");
    kvr_ask_bytes(&ask, s->channel, s->channel_len);
    kvr_ask_bytes(&ask, bytes, len);

    return ngx_http_kv_router_redis_send(&s->publisher,
                                         ngx_http_kv_router_sync_published,
                                         s, &ask)
           == NGX_OK;
}


/* The process that leads speaks each second: it tells of a refusal. */

static void
ngx_http_kv_router_sync_published(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    ngx_http_kv_router_sync_t *s = data;

    if (s->group) {
        ngx_http_kv_router_sync_refused(s, "PUBLISH", &s->mute, reply);
    }

    kvr_reply_release(reply);
}


void
ngx_http_kv_router_sync_refused(ngx_http_kv_router_sync_t *s, char *command,
    ngx_uint_t *refused, const kvr_reply_t *reply)
{
    ngx_uint_t  error;

    error = (reply->type == KVR_REPLY_ERROR);

    if (error && !*refused) {
        ngx_http_kv_router_warn(s->zone, NGX_LOG_WARN, s->log,
                                "the load is not shared with peers, redis "
                                "refused %s: \"%s\"; its user needs "
                                "\"+publish +subscribe &kv-sync:*\"",
                                command, reply->text);
    }

    *refused = error;
}


void
ngx_http_kv_router_sync_header(ngx_http_kv_router_sync_t *s,
    kvr_sync_message_t *m)
{
    ngx_memzero(m, sizeof(kvr_sync_message_t));

    m->router = s->zone->run.router.peers.zone->router;
    m->process = s->process;
    m->number = s->number + 1;
    m->clock_us = kvr_now_us();
}
