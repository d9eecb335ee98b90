
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The process that leads: tells the router's rows, and hears the peers.
 */


#include "ngx_http_kv_router_sync.h"

#include <core/kvr_clock.h>


/* milliseconds before a refused subscription is tried again */
#define NGX_HTTP_KV_ROUTER_SYNC_AGAIN  5000

/* milliseconds between two looks at who came and went */
#define NGX_HTTP_KV_ROUTER_SYNC_LOOK   200


/* A refusal leaves the connection open: a new one would be refused alike. */

static void
ngx_http_kv_router_lead_subscribed(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    ngx_http_kv_router_sync_t *s = data;

    r->pushes = (reply->type == KVR_REPLY_ARRAY);

    if (r->pushes && r->replica && !s->replica) {
        ngx_http_kv_router_warn(s->zone, NGX_LOG_WARN, s->log,
                                "redis \"%V\" is a replica: this router hears "
                                "its peers and is not heard by them, for what "
                                "is published at a replica stays there",
                                ngx_http_kv_router_redis_url(r));
    }

    s->replica = r->replica;

    ngx_http_kv_router_sync_refused(s, "SUBSCRIBE", &s->deaf, reply);

    kvr_reply_release(reply);
}


static void
ngx_http_kv_router_lead_subscribe(ngx_http_kv_router_redis_t *r)
{
    kvr_ask_t                   ask;
    ngx_http_kv_router_sync_t  *s;

    s = r->data;
    s->asked = ngx_current_msec;

    ngx_http_kv_router_redis_works(r);

    kvr_ask_begin(&ask, "SUBSCRIBE");
    kvr_ask_text(&ask, s->channel);

    (void) ngx_http_kv_router_redis_send(r, ngx_http_kv_router_lead_subscribed,
                                         s, &ask);
}


/* ["message", channel, body] */

static void
ngx_http_kv_router_lead_push(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *push)
{
    ngx_http_kv_router_sync_t *s = data;

    kvr_reply_t  body;

    if (push->len == 3) {
        body = kvr_reply_element(push, 2);

        if (body.type == KVR_REPLY_STRING) {
            (void) kvr_group_hear(s->group, body.text, body.len, kvr_now_us());
        }
    }

    kvr_reply_release(push);
}


void
ngx_http_kv_router_lead_end(ngx_http_kv_router_sync_t *s)
{
    if (s->group == NULL) {
        return;
    }

    ngx_http_kv_router_redis_close(&s->subscriber);

    kvr_teller_destroy(s->teller);
    kvr_group_destroy(s->group);

    s->group = NULL;
    s->teller = NULL;
}


ngx_int_t
ngx_http_kv_router_lead_begin(ngx_http_kv_router_sync_t *s)
{
    kvr_router_t      *k;
    kvr_group_conf_t   conf;

    k = &s->zone->run.router;

    conf.timeout_ms = s->zone->conf.sync.timeout;
    conf.predict_ms = s->zone->conf.predict;

    s->group = kvr_group_create(k, &conf);
    s->teller = s->group ? kvr_teller_create(s->group, s->name, KVR_VERSION)
                         : NULL;

    if (s->teller == NULL) {

        /* tried each 20 ms, and told once */

        if (!s->deaf) {
            ngx_log_error(NGX_LOG_ALERT, s->log, 0,
                          "kv_router zone \"%V\": no memory to hear peers",
                          &s->zone->conf.name);
        }

        s->deaf = 1;

        ngx_http_kv_router_lead_end(s);

        return NGX_ERROR;
    }

    ngx_memzero(&s->counted, sizeof(kvr_group_counts_t));

    /* the peers that the process before had met need no line */

    s->npeers = kvr_peers_read(&k->peers, s->peers);

    s->subscriber.push = ngx_http_kv_router_lead_push;
    s->subscriber.leader = &s->publisher;

    ngx_http_kv_router_sync_open(s, &s->subscriber, "peers",
                                 ngx_http_kv_router_lead_subscribe);

    return NGX_OK;
}


/* Adds what the group has counted since the last time. */

static void
ngx_http_kv_router_lead_count(ngx_http_kv_router_sync_t *s)
{
    kvr_group_counts_t  c;

    c = *kvr_group_counts(s->group);

    ngx_http_kv_router_count(s->zone->run.sh, SYNC_MESSAGES,
                             c.messages - s->counted.messages);
    ngx_http_kv_router_count(s->zone->run.sh, SYNC_REFUSED,
                             c.refused - s->counted.refused);

    s->counted = c;
}


void
ngx_http_kv_router_lead_tick(ngx_http_kv_router_sync_t *s)
{
    uint64_t  now;

    now = kvr_now_us();

    kvr_teller_tell(s->teller, now, ngx_exiting,
                    ngx_http_kv_router_sync_publish, s);

    kvr_group_tick(s->group, kvr_teller_uncached(s->teller), ngx_exiting, now);

    if (s->subscriber.ready && !s->subscriber.pushes
        && ngx_current_msec - s->asked >= NGX_HTTP_KV_ROUTER_SYNC_AGAIN)
    {
        ngx_http_kv_router_lead_subscribe(&s->subscriber);
    }

    if (ngx_current_msec - s->looked >= NGX_HTTP_KV_ROUTER_SYNC_LOOK) {
        s->looked = ngx_current_msec;

        ngx_http_kv_router_lead_count(s);
        ngx_http_kv_router_sync_look(s);
    }
}
