
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_consumer.h"
#include "ngx_http_kv_router_tell.h"

#include <core/kvr_clock.h>


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


static void ngx_http_kv_router_consumer_drop(ngx_http_kv_router_consumer_t *c);
static void ngx_http_kv_router_consumer_exiting(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_consumer_up(ngx_http_kv_router_consumer_t *c,
    ngx_uint_t up);

static void ngx_http_kv_router_consumer_connected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_consumer_disconnected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_consumer_registered(void *data,
    uint32_t worker);
static void ngx_http_kv_router_consumer_lease_lost(void *data);
static void ngx_http_kv_router_consumer_subscribed(
    ngx_http_kv_router_redis_t *r, void *data, kvr_reply_t *reply);
static void ngx_http_kv_router_consumer_push(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *push);

static void ngx_http_kv_router_consumer_work_handler(ngx_event_t *ev);
static void ngx_http_kv_router_consumer_pace(ngx_http_kv_router_consumer_t *c,
    ngx_int_t rc, uint64_t us);
static ngx_int_t ngx_http_kv_router_consumer_work(
    ngx_http_kv_router_consumer_t *c);
static ngx_int_t ngx_http_kv_router_consumer_next(
    ngx_http_kv_router_consumer_t *c);
static ngx_int_t ngx_http_kv_router_consumer_gap(
    ngx_http_kv_router_consumer_t *c, ngx_http_kv_router_message_t *m);


ngx_int_t
ngx_http_kv_router_consumer_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_redis_t     *r;
    ngx_http_kv_router_consumer_t  *c;

    if (zone->redis == NULL || zone->consumer) {
        return NGX_OK;
    }

    c = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_consumer_t));
    if (c == NULL) {
        return NGX_ERROR;
    }

    c->zone = zone;
    c->log = cycle->log;
    c->started = ngx_current_msec;
    c->pace = ngx_min(zone->batch, NGX_HTTP_KV_ROUTER_PACE_MIN);

    ngx_queue_init(&c->messages);

    c->dummy.fd = (ngx_socket_t) -1;
    c->dummy.data = c;

    c->lease.handler = ngx_http_kv_router_lease_handler;
    c->lease.data = &c->dummy;
    c->lease.log = c->log;
    c->lease.cancelable = 1;

    c->work.handler = ngx_http_kv_router_consumer_work_handler;
    c->work.data = &c->dummy;
    c->work.log = c->log;

    c->busy = c->work;
    c->busy.cancelable = 1;

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
    r->exiting = ngx_http_kv_router_consumer_exiting;
    r->leader = &c->subscriber;

    ngx_http_kv_router_log_init(c);

    ngx_http_kv_router_tell_init(&c->tell, zone, c->log);

    c->members.zone = zone;
    c->members.tell = &c->tell;
    c->members.leader = &c->subscriber;
    c->members.shards = &c->leased;
    c->members.data = c;
    c->members.registered = ngx_http_kv_router_consumer_registered;
    c->members.lost = ngx_http_kv_router_consumer_lease_lost;

    zone->consumer = c;

    ngx_add_timer(&c->lease, 1 + ngx_random() % 20);

    return NGX_OK;
}


void
ngx_http_kv_router_consumer_stop(ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_consumer_t  *c;

    c = zone->consumer;

    if (c == NULL) {
        return;
    }

    zone->consumer = NULL;

    if (c->lease.timer_set) {
        ngx_del_timer(&c->lease);
    }

    if (c->leased) {
        ngx_http_kv_router_consumer_drop(c);

        ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                      "kv_router zone \"%V\": lease is released",
                      &zone->name);
    }

    kvr_router_lease_release(&zone->router);
}


ngx_int_t
ngx_http_kv_router_consumer_begin(ngx_http_kv_router_consumer_t *c)
{
    ngx_uint_t  i;

    c->nslots = kvr_router_max_workers(&c->zone->router);

    c->slots = ngx_calloc(c->nslots * sizeof(ngx_http_kv_router_slot_t),
                          c->log);
    c->ingest = kvr_ingest_create(&c->zone->router);

    if (c->slots == NULL || c->ingest == NULL) {
        ngx_log_error(NGX_LOG_ALERT, c->log, 0,
                      "kv_router zone \"%V\": no memory to consume events",
                      &c->zone->name);

        ngx_http_kv_router_consumer_drop(c);
        return NGX_ERROR;
    }

    for (i = 0; i < c->nslots; i++) {
        ngx_queue_init(&c->slots[i].parked);
    }

    ngx_http_kv_router_redis_open(&c->subscriber);

    return NGX_OK;
}


void
ngx_http_kv_router_consumer_lost(ngx_http_kv_router_consumer_t *c)
{
    ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                  "kv_router zone \"%V\": lease is lost, %ui messages dropped",
                  &c->zone->name, c->count);

    ngx_http_kv_router_consumer_drop(c);
}


static void
ngx_http_kv_router_consumer_drop(ngx_http_kv_router_consumer_t *c)
{
    ngx_uint_t                     i;
    ngx_queue_t                   *q;
    ngx_http_kv_router_message_t  *m;

    ngx_http_kv_router_consumer_up(c, 0);

    c->leased = 0;
    c->not_syncing = 0;

    /* the ingest has bytes of a message open: destroy the ingest first */

    if (c->ingest) {
        kvr_ingest_destroy(c->ingest);
        c->ingest = NULL;
    }

    ngx_http_kv_router_redis_close(&c->subscriber);
    ngx_http_kv_router_repair_stop(c);
    ngx_http_kv_router_members_close(&c->members);

    if (c->work.posted) {
        ngx_delete_posted_event(&c->work);
    }

    if (c->busy.timer_set) {
        ngx_del_timer(&c->busy);
    }

    if (c->message) {
        ngx_http_kv_router_message_free(c, c->message);
        c->message = NULL;
    }

    if (c->slots) {

        for (i = 0; i < c->nslots; i++) {
            if (!ngx_queue_empty(&c->slots[i].parked)) {
                ngx_http_kv_router_message_unpark(c, &c->slots[i]);
            }
        }

        ngx_free(c->slots);
        c->slots = NULL;
    }

    while (!ngx_queue_empty(&c->messages)) {
        q = ngx_queue_head(&c->messages);
        ngx_queue_remove(q);

        m = ngx_queue_data(q, ngx_http_kv_router_message_t, queue);
        ngx_http_kv_router_message_free(c, m);
    }

    c->full = 0;
    c->dropped = 0;
    c->detail = NULL;
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

    for (i = 0; i < c->zone->params.shards; i++) {
        if (kvr_router_leased(&c->zone->router, i)) {
            c->zone->sh->redis_up[i] = up;
        }
    }
}


void
ngx_http_kv_router_consumer_say(ngx_http_kv_router_consumer_t *c)
{
    uint32_t  i;
    uint64_t  bit;

    for (i = 0; i < c->zone->params.shards; i++) {

        bit = (uint64_t) 1 << i;

        if (!(c->leased & bit)
            || !kvr_router_leased(&c->zone->router, i))
        {
            continue;
        }

        if (c->not_syncing & bit
            && kvr_ingest_repair_shard(c->ingest, i, c->zone->redis->replay)
               == KVR_OK)
        {
            /* the workers stay SYNCING until the end of a repair */
            c->not_syncing &= ~bit;
            ngx_http_kv_router_repair_shards(c, bit);
        }

        c->zone->sh->redis_up[i] = (c->up && !(c->not_syncing & bit));
    }
}


static void
ngx_http_kv_router_consumer_connected(ngx_http_kv_router_redis_t *r)
{
    kvr_ask_t                       ask;
    ngx_str_t                      *channel;
    ngx_http_kv_router_consumer_t  *c;

    c = r->data;

    (void) ngx_atomic_fetch_add(&c->zone->sh->redis_connects, 1);

    channel = &c->zone->redis->channel;

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
    ngx_http_kv_router_consumer_t  *c;

    c = r->data;

    ngx_http_kv_router_consumer_up(c, 0);

    (void) ngx_atomic_fetch_add(&c->zone->sh->redis_disconnects, 1);
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

    ngx_http_kv_router_consumer_up(c, 1);
    ngx_http_kv_router_redis_works(r);
    ngx_http_kv_router_redis_follow(&c->repairer);

    ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                  "kv_router zone \"%V\": subscribed to \"%V\" at \"%V\"",
                  &c->zone->name, &c->zone->redis->channel,
                  ngx_http_kv_router_redis_url(r));

    ngx_http_kv_router_members_open(&c->members);
}


/* A new worker: its log is read for the blocks that it holds already. */

static void
ngx_http_kv_router_consumer_registered(void *data, uint32_t worker)
{
    ngx_http_kv_router_consumer_t  *c;

    c = data;

    if (c->up && worker < c->nslots) {
        ngx_http_kv_router_repair_want(c, &c->slots[worker]);
    }
}


static void
ngx_http_kv_router_consumer_lease_lost(void *data)
{
    ngx_http_kv_router_consumer_lost(data);
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
            && ngx_http_kv_router_message_push(data, push->owned) == NGX_OK)
        {
            return;
        }
    }

    kvr_reply_release(push);
}


void
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
        c->full = 0;
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

    c->pace = ngx_min(c->pace, c->zone->batch);
}


/* Does one turn: so little work that requests are not delayed noticeably. */

static ngx_int_t
ngx_http_kv_router_consumer_work(ngx_http_kv_router_consumer_t *c)
{
    char        warning[KVR_WARNING_LEN];
    kvr_rc_t    krc;
    ngx_int_t   rc, blocks;
    ngx_uint_t  n;

    blocks = c->pace;

    for (n = 0; n < NGX_HTTP_KV_ROUTER_TURN && blocks > 0; n++) {

        if (c->message == NULL && c->repair == NULL) {
            rc = ngx_http_kv_router_consumer_next(c);

            if (rc == NGX_AGAIN) {
                continue;
            }

            if (rc == NGX_DONE) {
                return NGX_AGAIN;
            }

            if (rc != NGX_OK) {
                return rc;
            }
        }

        krc = kvr_ingest_step(c->ingest, c->pace);

        while (kvr_ingest_warning(c->ingest, warning)) {
            ngx_log_error(NGX_LOG_WARN, c->log, 0, "kv_router zone \"%V\": %s",
                          &c->zone->name, warning);
        }

        switch (krc) {

        case KVR_OK:
            return NGX_AGAIN;

        case KVR_DONE:
            break;

        case KVR_BUSY:
            return NGX_BUSY;

        case KVR_LOST:
            return NGX_ABORT;

        default:
            ngx_log_error(NGX_LOG_ALERT, c->log, 0,
                          "kv_router zone \"%V\": message failed: %d",
                          &c->zone->name, (int) krc);
            break;
        }

        if (c->message) {
            blocks -= 1 + c->message->body.len
                          / NGX_HTTP_KV_ROUTER_BLOCK_BYTES;

            ngx_http_kv_router_message_free(c, c->message);
            c->message = NULL;

        } else {
            blocks -= 1 + ngx_http_kv_router_repair_applied(c)
                          / NGX_HTTP_KV_ROUTER_BLOCK_BYTES;
        }
    }

    return NGX_AGAIN;
}


/* Does the next step of a turn: repairs and live messages alternate. */

static ngx_int_t
ngx_http_kv_router_consumer_next(ngx_http_kv_router_consumer_t *c)
{
    ngx_int_t                      rc;
    const char                    *detail;
    ngx_queue_t                   *q;
    ngx_http_kv_router_slot_t     *slot;
    ngx_http_kv_router_message_t  *m;

    if (c->dropped == 2) {
        rc = ngx_http_kv_router_message_dropped(c, 2);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    if ((c->nactive || c->nwanted)
        && (c->turn++ % 2 == 0 || ngx_queue_empty(&c->messages)))
    {
        rc = ngx_http_kv_router_repair_run(c);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    if (ngx_queue_empty(&c->messages)) {

        if (c->dropped && c->nactive == 0 && c->nwanted == 0) {
            rc = ngx_http_kv_router_message_dropped(c, 1);

            if (rc != NGX_OK) {
                return rc;
            }
        }

        return NGX_DECLINED;
    }

    q = ngx_queue_head(&c->messages);
    m = ngx_queue_data(q, ngx_http_kv_router_message_t, queue);

    slot = NULL;

    if (c->nactive || c->nwanted) {
        slot = ngx_http_kv_router_consumer_slot(c, &m->worker);

        if (slot && (slot->active || !ngx_queue_empty(&slot->parked))) {
            ngx_queue_remove(q);
            ngx_queue_insert_tail(&slot->parked, q);
            return NGX_AGAIN;
        }
    }

    detail = NULL;

    switch (kvr_ingest_open(c->ingest, (char *) m->worker.data, m->worker.len,
                            m->body.data, m->body.len, 1, ngx_current_msec,
                            &detail))
    {
    case KVR_INGEST_APPLY:

        if (detail) {
            ngx_http_kv_router_message_refused(
                c, ngx_http_kv_router_consumer_slot(c, &m->worker),
                &m->worker, detail);
        }

        ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                       "kv_router zone \"%V\": message of worker \"%V\", %uz "
                       "bytes, is applied", &c->zone->name, &m->worker,
                       m->body.len);

        ngx_queue_remove(q);
        c->message = m;
        return NGX_OK;

    case KVR_INGEST_GAP:
        return ngx_http_kv_router_consumer_gap(c, m);

    case KVR_INGEST_BUSY:
        return NGX_BUSY;

    case KVR_INGEST_LOST:
        return NGX_ABORT;

    default: /* KVR_INGEST_DROP */

        if (detail) {
            if (slot == NULL) {
                slot = ngx_http_kv_router_consumer_slot(c, &m->worker);
            }

            ngx_http_kv_router_message_refused(c, slot, &m->worker, detail);
        }

        ngx_queue_remove(q);
        ngx_http_kv_router_message_free(c, m);
        return NGX_AGAIN;
    }
}


/*
 * Handles messages that are missing before m.  The first time, the log is
 * read.  The second time, the missing messages are given up.  If messages are
 * still missing after that, m is refused.
 */

static ngx_int_t
ngx_http_kv_router_consumer_gap(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_message_t *m)
{
    ngx_int_t                   rc;
    kvr_cursor_t                missing;
    ngx_http_kv_router_slot_t  *slot;

    slot = ngx_http_kv_router_consumer_slot(c, &m->worker);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": gap before a message of worker "
                   "\"%V\"%s", &c->zone->name, &m->worker,
                   m->gaps ? ", after its repair, too" : "");

    if (m->gaps > 1
        || kvr_ingest_missing(c->ingest, &missing) != KVR_OK)
    {
        ngx_http_kv_router_message_refused(c, slot, &m->worker,
                                           "no place in the stream");
        ngx_queue_remove(&m->queue);
        ngx_http_kv_router_message_free(c, m);
        return NGX_AGAIN;
    }

    if (m->gaps == 0 && slot && c->zone->redis->replay) {
        m->gaps = 1;
        slot->missing = missing;

        ngx_queue_remove(&m->queue);
        ngx_queue_insert_tail(&slot->parked, &m->queue);

        ngx_http_kv_router_repair_want(c, slot);
        return NGX_AGAIN;
    }

    rc = ngx_http_kv_router_repair_lost(c, &m->worker, missing.epoch,
                                        missing.seq);
    if (rc != NGX_OK) {
        return rc;
    }

    m->gaps = 2;

    return NGX_AGAIN;
}


ngx_http_kv_router_slot_t *
ngx_http_kv_router_consumer_slot(ngx_http_kv_router_consumer_t *c,
    ngx_str_t *worker)
{
    uint32_t  n;

    if (kvr_router_find_worker(&c->zone->router, (char *) worker->data,
                               worker->len, &n)
        != KVR_OK || n >= c->nslots)
    {
        return NULL;
    }

    return &c->slots[n];
}
