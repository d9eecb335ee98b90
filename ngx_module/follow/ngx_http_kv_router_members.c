
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_members.h"
#include "../module/ngx_http_kv_router_resolver.h"


/* milliseconds between the end of a poll and the next one */
#define NGX_HTTP_KV_ROUTER_POLL  2000


static void ngx_http_kv_router_members_make(ngx_http_kv_router_members_t *m);
static ngx_int_t ngx_http_kv_router_members_roll(
    ngx_http_kv_router_members_t *m);
static const char *ngx_http_kv_router_members_address(void *data,
    const char *address);
static void ngx_http_kv_router_members_registered(void *data,
    uint32_t worker);

static void ngx_http_kv_router_members_connected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_members_disconnected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_members_stop_timer(
    ngx_http_kv_router_members_t *m);
static void ngx_http_kv_router_members_timer(ngx_event_t *ev);

static void ngx_http_kv_router_members_poll(ngx_http_kv_router_members_t *m);
static void ngx_http_kv_router_members_go_on(ngx_http_kv_router_members_t *m);
static void ngx_http_kv_router_members_page(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply);
static void ngx_http_kv_router_members_hash(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply);
static void ngx_http_kv_router_members_ttl(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply);


void
ngx_http_kv_router_members_open(ngx_http_kv_router_members_t *m)
{
    if (m->redis.data == NULL) {
        ngx_http_kv_router_members_make(m);
    }

    if (m->roll.members == NULL
        && ngx_http_kv_router_members_roll(m) != NGX_OK)
    {
        return;
    }

    ngx_http_kv_router_redis_open(&m->redis);
    ngx_http_kv_router_redis_follow(&m->redis);
}


static void
ngx_http_kv_router_members_make(ngx_http_kv_router_members_t *m)
{
    ngx_http_kv_router_redis_t  *r;

    ngx_http_kv_router_timer(&m->timer, &m->dummy,
                             ngx_http_kv_router_members_timer, m,
                             ngx_cycle->log);

    r = &m->redis;
    r->purpose = "members";
    r->zone = m->zone;
    r->data = m;
    r->connected = ngx_http_kv_router_members_connected;
    r->disconnected = ngx_http_kv_router_members_disconnected;
    r->exiting = m->exiting;
    r->leader = m->leader;
}


static ngx_int_t
ngx_http_kv_router_members_roll(ngx_http_kv_router_members_t *m)
{
    ngx_str_t        *channel, *prefix;
    kvr_roll_conf_t   conf;

    ngx_memzero(&conf, sizeof(kvr_roll_conf_t));

    conf.router = &m->zone->run.router;
    conf.tell = m->tell;
    conf.checked = m->zone->conf.health.params.checked;
    conf.data = m;
    conf.address_wrong = ngx_http_kv_router_members_address;
    conf.registered = ngx_http_kv_router_members_registered;
    conf.channel = (char *) m->zone->conf.redis->prefix.data;
    conf.channel_len = m->zone->conf.redis->prefix.len;

    /* the channel may be the channel of one worker */

    channel = &m->zone->conf.redis->channel;
    prefix = &m->zone->conf.redis->prefix;

    if (channel->data[channel->len - 1] != '*') {
        conf.only = (char *) channel->data + prefix->len;
        conf.only_len = channel->len - prefix->len;
    }

    return kvr_roll_open(&m->roll, &conf) == KVR_OK ? NGX_OK : NGX_ERROR;
}


static const char *
ngx_http_kv_router_members_address(void *data, const char *address)
{
    ngx_http_kv_router_members_t  *m;

    m = data;

    return ngx_http_kv_router_address_wrong(m->zone, address);
}


static void
ngx_http_kv_router_members_registered(void *data, uint32_t worker)
{
    ngx_http_kv_router_members_t  *m;

    m = data;

    m->registered(m->data, worker);
}


void
ngx_http_kv_router_members_close(ngx_http_kv_router_members_t *m)
{
    if (m->roll.members == NULL) {
        return;
    }

    ngx_http_kv_router_redis_close(&m->redis);
    ngx_http_kv_router_members_stop_timer(m);

    kvr_roll_close(&m->roll);
}


void
ngx_http_kv_router_members_look(ngx_http_kv_router_members_t *m)
{
    if (m->timer.timer_set
        && kvr_roll_due(&m->roll, ngx_current_msec, *m->shards))
    {
        ngx_http_kv_router_members_poll(m);
    }
}


/* ---- connection --------------------------------------------------------- */

static void
ngx_http_kv_router_members_connected(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_members_t  *m;

    m = r->data;

    ngx_http_kv_router_redis_works(r);

    kvr_roll_connected(&m->roll, ngx_current_msec);

    ngx_http_kv_router_members_poll(m);
}


static void
ngx_http_kv_router_members_disconnected(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_members_t  *m;

    m = r->data;

    ngx_http_kv_router_members_stop_timer(m);

    kvr_roll_reset(&m->roll);
}


static void
ngx_http_kv_router_members_stop_timer(ngx_http_kv_router_members_t *m)
{
    if (m->timer.timer_set) {
        ngx_del_timer(&m->timer);
    }
}


static void
ngx_http_kv_router_members_timer(ngx_event_t *ev)
{
    ngx_connection_t  *dummy;

    dummy = ev->data;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    ngx_http_kv_router_members_poll(dummy->data);
}


/* ---- a poll ------------------------------------------------------------- */

static void
ngx_http_kv_router_members_poll(ngx_http_kv_router_members_t *m)
{
    ngx_http_kv_router_members_stop_timer(m);

    kvr_roll_begin(&m->roll, ngx_current_msec, *m->shards);

    ngx_http_kv_router_members_go_on(m);
}


static void
ngx_http_kv_router_members_go_on(ngx_http_kv_router_members_t *m)
{
    void                               *data;
    kvr_ask_t                           ask;
    kvr_roll_asked_t                   *asked;
    ngx_http_kv_router_redis_reply_pt   reply;

    do {
        switch (kvr_roll_step(&m->roll, ngx_current_msec, &ask, &asked)) {

        case KVR_ROLL_ASK_PAGE:
            reply = ngx_http_kv_router_members_page;
            data = m;
            break;

        case KVR_ROLL_ASK_HASH:
            reply = ngx_http_kv_router_members_hash;
            data = asked;
            break;

        case KVR_ROLL_ASK_TTL:
            reply = ngx_http_kv_router_members_ttl;
            data = asked;
            break;

        case KVR_ROLL_ENDED:
            ngx_add_timer(&m->timer, NGX_HTTP_KV_ROUTER_POLL);
            return;

        case KVR_ROLL_LOST:
            m->lost(m->data);
            return;

        default: /* KVR_ROLL_WAIT */
            return;
        }

    } while (ngx_http_kv_router_redis_send(&m->redis, reply, data, &ask)
             == NGX_OK);

    ngx_http_kv_router_redis_reset(&m->redis, "members were not asked for",
                                   NULL);
}


/* If the connection was lost, disconnected() follows: nothing is asked. */

static void
ngx_http_kv_router_members_page(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    ngx_http_kv_router_members_t  *m;

    m = data;

    kvr_roll_page(&m->roll, reply);

    if (r->ready) {
        ngx_http_kv_router_members_go_on(m);
    }
}


static void
ngx_http_kv_router_members_hash(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    kvr_roll_hash(data, reply);
}


static void
ngx_http_kv_router_members_ttl(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    ngx_http_kv_router_members_t  *m;

    m = r->data;

    if (kvr_roll_ttl(data, ngx_current_msec, reply) == KVR_LOST) {
        m->lost(m->data);
        return;
    }

    if (r->ready) {
        ngx_http_kv_router_members_go_on(m);
    }
}
