
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


static void ngx_http_kv_router_lead_count(ngx_http_kv_router_sync_t *s);
static void ngx_http_kv_router_lead_subscribe(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_lead_subscribed(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply);
static void ngx_http_kv_router_lead_push(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *push);
static void ngx_http_kv_router_lead_hear(ngx_http_kv_router_sync_t *s,
    const kvr_reply_t *body);


ngx_int_t
ngx_http_kv_router_lead_begin(ngx_http_kv_router_sync_t *s)
{
    kvr_group_conf_t                 conf;
    kvr_router_t                    *k;
    ngx_http_kv_router_redis_t      *r;
    ngx_http_kv_router_sync_conf_t  *scf;

    k = &s->zone->run.router;
    scf = &s->zone->conf.sync;

    conf.timeout_ms = scf->timeout;
    conf.max_lag_ms = scf->max_lag;
    conf.predict_ms = s->zone->conf.predict;

    s->group = kvr_group_create(k, &conf);
    s->teller = s->group ? kvr_teller_create(s->group, s->name, KVR_VERSION)
                         : NULL;

    if (s->teller == NULL) {
        ngx_log_error(NGX_LOG_ALERT, s->log, 0,
                      "kv_router zone \"%V\": no memory to hear peers",
                      &s->zone->conf.name);

        if (s->group) {
            kvr_group_destroy(s->group);
            s->group = NULL;
        }

        return NGX_ERROR;
    }

    ngx_memzero(&s->counted, sizeof(kvr_group_counts_t));

    /* the peers that the process before had met need no line */

    s->npeers = kvr_peers_read(&k->peers, s->peers);

    r = &s->subscriber;

    ngx_http_kv_router_sync_make(s, r, "peers",
                                 ngx_http_kv_router_lead_subscribe);
    r->push = ngx_http_kv_router_lead_push;
    r->leader = &s->publisher;

    ngx_http_kv_router_redis_open(r);

    return NGX_OK;
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


void
ngx_http_kv_router_lead_tick(ngx_http_kv_router_sync_t *s)
{
    uint64_t                     now;
    ngx_http_kv_router_redis_t  *r;

    now = kvr_now_us();

    kvr_teller_tell(s->teller, now, kvr_group_heard_any(s->group),
                    kvr_group_share(s->group), ngx_exiting, s->process,
                    &s->number, ngx_http_kv_router_sync_publish, s);

    kvr_group_tick(s->group, kvr_teller_uncached(s->teller), ngx_exiting, now);

    r = &s->subscriber;

    if (r->ready && !r->pushes
        && ngx_current_msec - s->asked >= NGX_HTTP_KV_ROUTER_SYNC_AGAIN)
    {
        ngx_http_kv_router_lead_subscribe(r);
    }

    if (ngx_current_msec - s->looked >= NGX_HTTP_KV_ROUTER_SYNC_LOOK) {
        s->looked = ngx_current_msec;

        ngx_http_kv_router_lead_count(s);
        ngx_http_kv_router_sync_look(s);
    }
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
    ngx_http_kv_router_count(s->zone->run.sh, SYNC_MISSED,
                             c.missed - s->counted.missed);

    s->counted = c;
}


/* ---- the subscriber ----------------------------------------------------- */

static void
ngx_http_kv_router_lead_subscribe(ngx_http_kv_router_redis_t *r)
{
    kvr_ask_t                   ask;
    ngx_http_kv_router_sync_t  *s;

    s = r->data;
    s->asked = ngx_current_msec;

    ngx_http_kv_router_redis_works(r);

    kvr_ask_begin(&ask, "SUBSCRIBE");
    kvr_ask_bytes(&ask, s->channel, s->channel_len);

    (void) ngx_http_kv_router_redis_send(r, ngx_http_kv_router_lead_subscribed,
                                         s, &ask);
}


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


/* ["message", channel, body] */

static void
ngx_http_kv_router_lead_push(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *push)
{
    kvr_reply_t  body;

    if (push->len == 3) {
        body = kvr_reply_element(push, 2);

        if (body.type == KVR_REPLY_STRING) {
            ngx_http_kv_router_lead_hear(data, &body);
        }
    }

    kvr_reply_release(push);
}


static void
ngx_http_kv_router_lead_hear(ngx_http_kv_router_sync_t *s,
    const kvr_reply_t *body)
{
    kvr_group_heard_t         heard;
    kvr_sync_message_t        m;
    static kvr_sync_writer_t  w;

    if (kvr_group_hear(s->group, body->text, body->len, kvr_now_us(), &heard)
        != KVR_OK)
    {
        return;
    }

    if (heard.full) {
        kvr_teller_again(s->teller);
    }

    if (heard.again) {
        ngx_http_kv_router_sync_header(s, &m);
        m.again = heard.again;

        kvr_sync_begin(&w, &m);

        if (ngx_http_kv_router_sync_publish(s, w.bytes, kvr_sync_finish(&w))) {
            s->number = m.number;
        }
    }
}
