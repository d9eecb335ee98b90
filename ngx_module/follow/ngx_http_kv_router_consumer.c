
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_consumer.h"
#include "ngx_http_kv_router_tell.h"
#include "ngx_http_kv_router_watch.h"

#include <core/kvr_clock.h>


/*
 * milliseconds between two rounds of leases, and the maximum of random ones
 * added: together a third of KVR_LEASE_MS at most, so that no lease expires
 */
#define NGX_HTTP_KV_ROUTER_LEASE_MIN      100
#define NGX_HTTP_KV_ROUTER_LEASE_JITTER   100

/* milliseconds between two rounds while a lease is free */
#define NGX_HTTP_KV_ROUTER_LEASE_SOON     20

/* milliseconds before a busy lock is tried again */
#define NGX_HTTP_KV_ROUTER_BUSY           5

/*
 * the maximum number of messages of a turn, and the bytes of a message that
 * count as one block
 */
#define NGX_HTTP_KV_ROUTER_TURN           64
#define NGX_HTTP_KV_ROUTER_BLOCK_BYTES    16

/*
 * the microseconds that a turn should take at most, and the minimum number of
 * blocks of a turn
 */
#define NGX_HTTP_KV_ROUTER_TURN_US        300
#define NGX_HTTP_KV_ROUTER_PACE_MIN       16
#define NGX_HTTP_KV_ROUTER_PACE_MAX       512


static void ngx_http_kv_router_consumer_lease_handler(ngx_event_t *ev);
static void ngx_http_kv_router_consumer_taken(
    ngx_http_kv_router_consumer_t *c, uint64_t held);
static ngx_int_t ngx_http_kv_router_consumer_begin(
    ngx_http_kv_router_consumer_t *c);
static void ngx_http_kv_router_consumer_lost(void *data);
static void ngx_http_kv_router_consumer_drop(ngx_http_kv_router_consumer_t *c);
static void ngx_http_kv_router_consumer_exiting(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_consumer_up(ngx_http_kv_router_consumer_t *c,
    ngx_uint_t up);
static void ngx_http_kv_router_consumer_set(ngx_http_kv_router_shctx_t *sh,
    uint32_t shard, ngx_uint_t up);
static void ngx_http_kv_router_consumer_say(ngx_http_kv_router_consumer_t *c);

static void ngx_http_kv_router_consumer_connected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_consumer_disconnected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_consumer_subscribed(
    ngx_http_kv_router_redis_t *r, void *data, kvr_reply_t *reply);
static void ngx_http_kv_router_consumer_push(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *push);
static ngx_int_t ngx_http_kv_router_consumer_message(
    ngx_http_kv_router_consumer_t *c, const kvr_reply_t *push);

static void ngx_http_kv_router_consumer_registered(void *data,
    uint32_t worker);

static void ngx_http_kv_router_consumer_repairer_connected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_consumer_repairer_disconnected(
    ngx_http_kv_router_redis_t *r);

static void ngx_http_kv_router_consumer_wake(ngx_http_kv_router_consumer_t *c);
static void ngx_http_kv_router_consumer_work_handler(ngx_event_t *ev);
static void ngx_http_kv_router_consumer_pace(ngx_http_kv_router_consumer_t *c,
    ngx_int_t rc, uint64_t us);
static ngx_int_t ngx_http_kv_router_consumer_work(
    ngx_http_kv_router_consumer_t *c);
static void ngx_http_kv_router_consumer_turn(ngx_http_kv_router_consumer_t *c,
    kvr_turn_t *turn);


ngx_int_t
ngx_http_kv_router_consumer_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_redis_t     *r;
    ngx_http_kv_router_consumer_t  *c;

    if (zone->conf.redis == NULL || zone->run.consumer) {
        return NGX_OK;
    }

    c = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_consumer_t));
    if (c == NULL) {
        return NGX_ERROR;
    }

    c->zone = zone;
    c->log = cycle->log;
    c->started = ngx_current_msec;
    c->pace = NGX_HTTP_KV_ROUTER_PACE_MIN;

    ngx_http_kv_router_timer(&c->lease, &c->dummy,
                             ngx_http_kv_router_consumer_lease_handler, c,
                             c->log);
    ngx_http_kv_router_timer(&c->work, &c->dummy,
                             ngx_http_kv_router_consumer_work_handler, c,
                             c->log);
    c->busy = c->work;

    r = &c->subscriber;
    r->purpose = "events";
    r->zone = zone;
    r->data = c;
    r->connected = ngx_http_kv_router_consumer_connected;
    r->disconnected = ngx_http_kv_router_consumer_disconnected;
    r->exiting = ngx_http_kv_router_consumer_exiting;
    r->push = ngx_http_kv_router_consumer_push;

    r = &c->repairer;
    r->purpose = "logs";
    r->zone = zone;
    r->data = c;
    r->connected = ngx_http_kv_router_consumer_repairer_connected;
    r->disconnected = ngx_http_kv_router_consumer_repairer_disconnected;
    r->exiting = ngx_http_kv_router_consumer_exiting;
    r->leader = &c->subscriber;

    ngx_http_kv_router_tell_init(&c->tell, zone, c->log);

    c->members.zone = zone;
    c->members.tell = &c->tell;
    c->members.leader = &c->subscriber;
    c->members.shards = &c->leased;
    c->members.data = c;
    c->members.registered = ngx_http_kv_router_consumer_registered;
    c->members.lost = ngx_http_kv_router_consumer_lost;
    c->members.exiting = ngx_http_kv_router_consumer_exiting;

    zone->run.consumer = c;

    ngx_add_timer(&c->lease, 1 + ngx_random() % 20);

    return NGX_OK;
}


void
ngx_http_kv_router_consumer_stop(ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_consumer_t  *c;

    c = zone->run.consumer;

    if (c == NULL) {
        return;
    }

    zone->run.consumer = NULL;

    if (c->lease.timer_set) {
        ngx_del_timer(&c->lease);
    }

    if (c->leased) {
        ngx_http_kv_router_consumer_drop(c);

        ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                      "kv_router zone \"%V\": this process no longer "
                      "applies events", &zone->conf.name);
    }

    kvr_router_lease_release(&zone->run.router);
}


/* ---- leases ------------------------------------------------------------- */

static void
ngx_http_kv_router_consumer_lease_handler(ngx_event_t *ev)
{
    uint64_t                        held;
    ngx_msec_t                      next;
    ngx_uint_t                      soon;
    ngx_connection_t               *dummy;
    ngx_http_kv_router_consumer_t  *c;

    dummy = ev->data;
    c = dummy->data;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        ngx_http_kv_router_consumer_stop(c->zone);
        return;
    }

    soon = ngx_http_kv_router_leases(c->zone, c->leased, c->started, &held);

    if (c->leased & ~held) {
        ngx_http_kv_router_consumer_lost(c);
        soon = 1;

    } else if (held & ~c->leased) {
        ngx_http_kv_router_consumer_taken(c, held);
    }

    if (c->leased) {

        /* a former holder of a lease may have overwritten the state */

        ngx_http_kv_router_consumer_say(c);

        if (c->up) {
            kvr_repairs_tick(&c->follow.repairs, c->leased, ngx_current_msec);
        }

        if (kvr_follow_waits(&c->follow)) {
            ngx_http_kv_router_consumer_wake(c);
        }

        ngx_http_kv_router_members_look(&c->members);
        ngx_http_kv_router_watch(c);
    }

    next = soon ? NGX_HTTP_KV_ROUTER_LEASE_SOON
                : NGX_HTTP_KV_ROUTER_LEASE_MIN
                  + ngx_random() % NGX_HTTP_KV_ROUTER_LEASE_JITTER;

    ngx_add_timer(&c->lease, next);
}


static void
ngx_http_kv_router_consumer_taken(ngx_http_kv_router_consumer_t *c,
    uint64_t held)
{
    uint64_t  before;

    before = c->leased;
    c->leased = held;

    if (before == 0) {
        if (ngx_http_kv_router_consumer_begin(c) != NGX_OK) {
            kvr_router_lease_release(&c->zone->run.router);
        }

    } else if (c->up) {
        c->not_syncing |= held & ~before;
    }
}


static ngx_int_t
ngx_http_kv_router_consumer_begin(ngx_http_kv_router_consumer_t *c)
{
    if (kvr_follow_open(&c->follow, &c->zone->run.router, &c->tell,
                        c->zone->conf.redis->replay)
        != KVR_OK)
    {
        ngx_log_error(NGX_LOG_ALERT, c->log, 0,
                      "kv_router zone \"%V\": no memory to consume events",
                      &c->zone->conf.name);

        ngx_http_kv_router_consumer_drop(c);
        return NGX_ERROR;
    }

    ngx_http_kv_router_redis_open(&c->subscriber);

    return NGX_OK;
}


/* A lease was lost: drops all that waits, because it must not be applied. */

static void
ngx_http_kv_router_consumer_lost(void *data)
{
    ngx_http_kv_router_consumer_t  *c;

    c = data;

    ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                  "kv_router zone \"%V\": lease is lost, %uD messages dropped",
                  &c->zone->conf.name, c->follow.queue.count);

    ngx_http_kv_router_consumer_drop(c);
}


static void
ngx_http_kv_router_consumer_drop(ngx_http_kv_router_consumer_t *c)
{
    ngx_http_kv_router_consumer_up(c, 0);

    c->leased = 0;
    c->not_syncing = 0;

    ngx_http_kv_router_redis_close(&c->subscriber);
    ngx_http_kv_router_redis_close(&c->repairer);
    ngx_http_kv_router_members_close(&c->members);

    if (c->work.posted) {
        ngx_delete_posted_event(&c->work);
    }

    if (c->busy.timer_set) {
        ngx_del_timer(&c->busy);
    }

    kvr_follow_close(&c->follow);
}


static void
ngx_http_kv_router_consumer_exiting(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_consumer_stop(r->zone);
}


/* If a process lost the lease of a shard, another process writes its state. */

static void
ngx_http_kv_router_consumer_up(ngx_http_kv_router_consumer_t *c,
    ngx_uint_t up)
{
    uint32_t  i;

    c->up = up;

    /* first mark the workers that lost messages, then report Redis as up */

    if (up) {
        c->not_syncing = c->leased;
        ngx_http_kv_router_consumer_say(c);
        return;
    }

    c->not_syncing = 0;

    for (i = 0; i < c->zone->conf.params.shards; i++) {
        if (kvr_router_leased(&c->zone->run.router, i)) {
            ngx_http_kv_router_consumer_set(c->zone->run.sh, i, up);
        }
    }
}


/*
 * Sets in the zone, for each shard with a lease here, whether its events are
 * received.  After a takeover the shard's workers are made SYNCING first.
 */

static void
ngx_http_kv_router_consumer_say(ngx_http_kv_router_consumer_t *c)
{
    uint32_t  i;
    uint64_t  bit;

    for (i = 0; i < c->zone->conf.params.shards; i++) {

        bit = (uint64_t) 1 << i;

        if (!(c->leased & bit)
            || !kvr_router_leased(&c->zone->run.router, i))
        {
            continue;
        }

        if (c->not_syncing & bit
            && kvr_ingest_repair_shard(c->follow.ingest, i,
                                       c->zone->conf.redis->replay)
               == KVR_OK)
        {
            /* the workers stay SYNCING until the end of a repair */
            c->not_syncing &= ~bit;
            kvr_repairs_want_shards(&c->follow.repairs, bit);
            ngx_http_kv_router_consumer_wake(c);
        }

        ngx_http_kv_router_consumer_set(c->zone->run.sh, i,
                                        c->up && !(c->not_syncing & bit));
    }
}


/* Sets whether the events of a shard are received, and since when. */

static void
ngx_http_kv_router_consumer_set(ngx_http_kv_router_shctx_t *sh, uint32_t shard,
    ngx_uint_t up)
{
    if (sh->redis_changed[shard] == 0 || sh->redis_up[shard] != up) {
        sh->redis_changed[shard] = ngx_time();
    }

    sh->redis_up[shard] = up;
}


/* ---- messages ----------------------------------------------------------- */

static void
ngx_http_kv_router_consumer_connected(ngx_http_kv_router_redis_t *r)
{
    kvr_ask_t                       ask;
    ngx_str_t                      *channel;
    ngx_http_kv_router_consumer_t  *c;

    c = r->data;

    channel = &c->zone->conf.redis->channel;

    kvr_ask_begin(&ask, channel->data[channel->len - 1] == '*' ? "PSUBSCRIBE"
                                                               : "SUBSCRIBE");
    kvr_ask_bytes(&ask, (char *) channel->data, channel->len);

    if (ngx_http_kv_router_redis_send(r,
                                      ngx_http_kv_router_consumer_subscribed,
                                      c, &ask)
        != NGX_OK)
    {
        ngx_http_kv_router_redis_reset(r, "no subscription was sent to redis",
                                       NULL);
    }
}


static void
ngx_http_kv_router_consumer_disconnected(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_consumer_up(r->data, 0);
}


static void
ngx_http_kv_router_consumer_subscribed(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *reply)
{
    ngx_http_kv_router_consumer_t  *c;

    c = data;

    if (reply->type != KVR_REPLY_ARRAY) {
        ngx_http_kv_router_redis_reset(r, "redis refused to subscribe",
                                       reply->type == KVR_REPLY_ERROR
                                       ? (char *) reply->text : NULL);
        kvr_reply_release(reply);
        return;
    }

    kvr_reply_release(reply);

    r->pushes = 1;
    c->zone->run.sh->redis_server = r->server;

    ngx_http_kv_router_consumer_up(c, 1);
    ngx_http_kv_router_redis_works(r);
    ngx_http_kv_router_redis_follow(&c->repairer);

    ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                  "kv_router zone \"%V\": subscribed to \"%V\" at \"%V\"",
                  &c->zone->conf.name, &c->zone->conf.redis->channel,
                  ngx_http_kv_router_redis_url(r));

    ngx_http_kv_router_members_open(&c->members);
}


/* ["message", channel, body], ["pmessage", pattern, channel, body] */

static void
ngx_http_kv_router_consumer_push(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *push)
{
    kvr_reply_t  kind;

    if (push->len >= 3) {
        kind = kvr_reply_element(push, 0);

        if (kind.type == KVR_REPLY_STRING
            && (ngx_strcmp(kind.text, "pmessage") == 0
                || ngx_strcmp(kind.text, "message") == 0)
            && ngx_http_kv_router_consumer_message(data, push) == NGX_OK)
        {
            return;
        }
    }

    kvr_reply_release(push);
}


/* NGX_DECLINED: the message is not queued. */

static ngx_int_t
ngx_http_kv_router_consumer_message(ngx_http_kv_router_consumer_t *c,
    const kvr_reply_t *push)
{
    size_t        len, prefix;
    uint32_t      shard;
    const char   *worker;
    kvr_reply_t   channel, body;

    prefix = c->zone->conf.redis->prefix.len;

    channel = kvr_reply_element(push, push->len - 2);
    body = kvr_reply_element(push, push->len - 1);

    if (channel.type != KVR_REPLY_STRING || body.type != KVR_REPLY_STRING
        || channel.len < prefix)
    {
        return NGX_DECLINED;
    }

    worker = channel.text + prefix;
    len = channel.len - prefix;

    /*
     * even an invalid id belongs to a shard, so that only one process refuses
     * it
     */

    shard = kvr_router_shard(&c->zone->run.router, worker, len);

    if (!(c->leased >> shard & 1)) {
        return NGX_DECLINED;
    }

    ngx_http_kv_router_count(c->zone->run.sh, REDIS_MESSAGES, 1);
    ngx_http_kv_router_count(c->zone->run.sh, REDIS_BYTES, body.len);

    ngx_http_kv_router_consumer_wake(c);

    return kvr_follow_push(&c->follow, push, &body, worker, len) == KVR_OK
           ? NGX_OK : NGX_DECLINED;
}


/* A new worker: its log is read for the blocks that it holds already. */

static void
ngx_http_kv_router_consumer_registered(void *data, uint32_t worker)
{
    ngx_http_kv_router_consumer_t  *c;

    c = data;

    if (c->up && worker < c->follow.repairs.nlanes) {
        kvr_repairs_want(&c->follow.repairs,
                         &c->follow.repairs.lanes[worker]);
        ngx_http_kv_router_consumer_wake(c);
    }
}


/* ---- repairs ------------------------------------------------------------ */

static void
ngx_http_kv_router_consumer_repairer_connected(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_redis_works(r);

    ngx_http_kv_router_consumer_wake(r->data);
}


static void
ngx_http_kv_router_consumer_repairer_disconnected(
    ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_consumer_wake(r->data);
}


static void
ngx_http_kv_router_consumer_answer(ngx_http_kv_router_redis_t *r, void *data,
    kvr_reply_t *reply)
{
    kvr_turn_t  turn;

    ngx_http_kv_router_consumer_turn(r->data, &turn);

    kvr_repair_answer(data, &turn, reply);

    ngx_http_kv_router_consumer_wake(r->data);
}


/* ---- turns -------------------------------------------------------------- */

/* There is work: it is done in the next turn of the event loop. */

static void
ngx_http_kv_router_consumer_wake(ngx_http_kv_router_consumer_t *c)
{
    if (!c->busy.timer_set) {
        ngx_post_event(&c->work, &ngx_posted_next_events);
    }
}


static void
ngx_http_kv_router_consumer_work_handler(ngx_event_t *ev)
{
    uint64_t                        start;
    ngx_int_t                       rc;
    ngx_connection_t               *dummy;
    ngx_http_kv_router_consumer_t  *c;

    dummy = ev->data;
    c = dummy->data;

    if (!c->leased) {
        return;
    }

    start = kvr_now_us();

    rc = ngx_http_kv_router_consumer_work(c);

    ngx_http_kv_router_consumer_pace(c, rc, kvr_now_us() - start);

    switch (rc) {

    case NGX_AGAIN:
        ngx_http_kv_router_consumer_wake(c);
        break;

    case NGX_BUSY:
        ngx_add_timer(&c->busy, NGX_HTTP_KV_ROUTER_BUSY);
        break;

    case NGX_ABORT:
        ngx_http_kv_router_consumer_lost(c);
        break;

    default: /* NGX_DECLINED */
        break;
    }
}


/*
 * Adapts the number of blocks of a turn.  The time of a block differs by a
 * factor of 20: in memory that was never touched each block is a page fault or
 * two.  A request waits for several turns, so that all of them must be short,
 * not only the longest one.  Turns with few blocks are not measured.
 */

static void
ngx_http_kv_router_consumer_pace(ngx_http_kv_router_consumer_t *c,
    ngx_int_t rc, uint64_t us)
{
    if (us > NGX_HTTP_KV_ROUTER_TURN_US) {
        c->pace = ngx_max(c->pace / 2, NGX_HTTP_KV_ROUTER_PACE_MIN);

    } else if (rc == NGX_AGAIN) {
        c->pace += c->pace / 8 + 1;
    }

    c->pace = ngx_min(c->pace, NGX_HTTP_KV_ROUTER_PACE_MAX);
}


/* Does one turn: so little work that requests are not delayed noticeably. */

static ngx_int_t
ngx_http_kv_router_consumer_work(ngx_http_kv_router_consumer_t *c)
{
    size_t            bytes;
    kvr_ask_t         ask;
    ngx_int_t         blocks;
    ngx_uint_t        n;
    kvr_turn_t        turn;
    kvr_repair_t     *r;
    kvr_next_t        rc;

    blocks = c->pace;

    ngx_http_kv_router_consumer_turn(c, &turn);

    for (n = 0; n < NGX_HTTP_KV_ROUTER_TURN && blocks > 0; n++) {

        rc = kvr_follow_step(&c->follow, &turn, &bytes, &ask, &r);

        /* connect only now: there may be nothing to repair for days */

        if (c->follow.repairs.nactive) {
            ngx_http_kv_router_redis_open(&c->repairer);
        }

        switch (rc) {

        case KVR_NEXT_AGAIN:

            if (bytes) {
                blocks -= 1 + bytes / NGX_HTTP_KV_ROUTER_BLOCK_BYTES;
            }

            break;

        case KVR_NEXT_ASK:

            if (ngx_http_kv_router_redis_send(&c->repairer,
                                            ngx_http_kv_router_consumer_answer,
                                              r, &ask)
                != NGX_OK)
            {
                /* too much waits to be sent: later */

                turn.ready = 0;
                kvr_repair_unasked(r);
            }

            break;

        case KVR_NEXT_YIELD:
            return NGX_AGAIN;

        case KVR_NEXT_BUSY:
            return NGX_BUSY;

        case KVR_NEXT_LOST:
            return NGX_ABORT;

        default: /* KVR_NEXT_WAIT */
            return NGX_DECLINED;
        }
    }

    return NGX_AGAIN;
}


static void
ngx_http_kv_router_consumer_turn(ngx_http_kv_router_consumer_t *c,
    kvr_turn_t *turn)
{
    turn->now_ms = ngx_current_msec;
    turn->random = ngx_random();
    turn->blocks = c->pace;
    turn->ready = c->repairer.ready;
}
