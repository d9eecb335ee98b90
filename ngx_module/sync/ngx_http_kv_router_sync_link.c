
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The connections, and what a process publishes.
 */


#include "ngx_http_kv_router_sync.h"


void
ngx_http_kv_router_sync_open(ngx_http_kv_router_sync_t *s,
    ngx_http_kv_router_redis_t *r, char *purpose,
    ngx_http_kv_router_redis_event_pt connected)
{
    r->purpose = purpose;
    r->zone = s->zone;
    r->data = s;
    r->beside = 1;
    r->connected = connected;

    ngx_http_kv_router_redis_open(r);
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


/* The rows of a large fleet are more messages than wait in a connection. */

bool
ngx_http_kv_router_sync_publish(void *sync, const char *bytes, size_t len)
{
    ngx_http_kv_router_sync_t *s = sync;

    kvr_ask_t                    ask;
    ngx_int_t                    rc;
    ngx_http_kv_router_redis_t  *r;

    r = &s->publisher;

    if (!r->ready) {
        return false;
    }

    kvr_ask_begin(&ask, "PUBLISH");
    kvr_ask_text(&ask, s->channel);
    kvr_ask_bytes(&ask, bytes, len);

    rc = ngx_http_kv_router_redis_send(r, ngx_http_kv_router_sync_published, s,
                                       &ask);

    if (rc != NGX_OK && ngx_http_kv_router_redis_flush(r) == NGX_OK) {
        rc = ngx_http_kv_router_redis_send(r,
                                           ngx_http_kv_router_sync_published,
                                           s, &ask);
    }

    return rc == NGX_OK;
}
