
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Messages that wait to be applied, of all workers and of those in repair.
 */


#include "ngx_http_kv_router_consumer.h"


/*
 * bounds of the queue of messages: enough for a burst of seconds; messages
 * beyond the bounds are read from the log later
 */
#define NGX_HTTP_KV_ROUTER_QUEUE_BYTES    (64 * 1024 * 1024)
#define NGX_HTTP_KV_ROUTER_QUEUE_COUNT    65536
#define NGX_HTTP_KV_ROUTER_MESSAGE_COST   512     /* bytes beside the body */


ngx_int_t
ngx_http_kv_router_message_push(ngx_http_kv_router_consumer_t *c,
    redisReply *reply)
{
    size_t                         i, size;
    uint32_t                       shard;
    ngx_str_t                      worker, *prefix;
    redisReply                    *channel, *body;
    ngx_http_kv_router_slot_t     *slot;
    ngx_http_kv_router_message_t  *m;

    prefix = &c->zone->redis->prefix;

    channel = reply->element[reply->elements - 2];
    body = reply->element[reply->elements - 1];

    if (channel->type != REDIS_REPLY_STRING
        || body->type != REDIS_REPLY_STRING
        || (size_t) channel->len < prefix->len)
    {
        return NGX_DECLINED;
    }

    worker.data = (u_char *) channel->str + prefix->len;
    worker.len = channel->len - prefix->len;

    /*
     * even an invalid id belongs to a shard, so that only one process refuses
     * it
     */

    shard = kvr_router_shard(&c->zone->router, (char *) worker.data,
                             worker.len);

    if (!(c->leased >> shard & 1)) {
        return NGX_DECLINED;
    }

    (void) ngx_atomic_fetch_add(&c->zone->sh->redis_messages, 1);
    (void) ngx_atomic_fetch_add(&c->zone->sh->redis_bytes, body->len);

    if (!kvr_worker_id_valid((char *) worker.data, worker.len)) {
        worker.len = ngx_min(worker.len, KVR_WORKER_ID_MAX);

        for (i = 0; i < worker.len; i++) {
            if (worker.data[i] < 0x20 || worker.data[i] > 0x7e) {
                worker.data[i] = '?';           /* an id can't add log lines */
            }
        }

        ngx_http_kv_router_message_refused(c, NULL, &worker,
                                           "not a worker's id");
        return NGX_DECLINED;
    }

    size = body->len + NGX_HTTP_KV_ROUTER_MESSAGE_COST;

    if (c->count >= NGX_HTTP_KV_ROUTER_QUEUE_COUNT
        || c->bytes + size > NGX_HTTP_KV_ROUTER_QUEUE_BYTES)
    {
        m = NULL;

    } else {
        m = ngx_alloc(sizeof(ngx_http_kv_router_message_t), c->log);
    }

    if (m == NULL) {
        (void) ngx_atomic_fetch_add(&c->zone->sh->redis_dropped, 1);

        if (!c->full) {
            c->full = 1;
            ngx_log_error(NGX_LOG_WARN, c->log, 0,
                          "kv_router zone \"%V\": %ui messages of %uz bytes "
                          "wait, dropping more", &c->zone->name, c->count,
                          c->bytes);
        }

        slot = ngx_http_kv_router_consumer_slot(c, &worker);
        if (slot) {
            slot->dropped = 2;
            c->dropped = 2;
            ngx_http_kv_router_repair_want(c, slot);
        }

        return NGX_DECLINED;
    }

    m->reply = reply;
    m->worker = worker;
    m->body.len = body->len;
    m->body.data = (u_char *) body->str;
    m->gaps = 0;

    ngx_queue_insert_tail(&c->messages, &m->queue);

    c->bytes += size;
    c->count++;

    ngx_http_kv_router_consumer_wake(c);

    return NGX_OK;
}


ngx_int_t
ngx_http_kv_router_message_dropped(ngx_http_kv_router_consumer_t *c,
    ngx_uint_t times)
{
    uint32_t           i, flags, generation;
    kvr_rc_t           krc;
    ngx_int_t          rc;
    kvr_worker_conf_t  conf;

    for (i = 0; i < c->nslots; i++) {

        if (c->slots[i].dropped < times) {
            continue;
        }

        krc = kvr_router_read_worker(&c->zone->router, i, &conf, &flags,
                                     &generation);

        if (krc == KVR_OK && !(flags & KVR_WORKER_DELETED)) {
            krc = kvr_ingest_dropped(c->ingest, conf.id, ngx_strlen(conf.id));
        }

        rc = ngx_http_kv_router_repair_rc(krc);
        if (rc != NGX_OK) {
            return rc;
        }

        c->slots[i].dropped = times - 1;
    }

    c->dropped = times - 1;

    return NGX_OK;
}


void
ngx_http_kv_router_message_unpark(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_slot_t *slot)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&slot->parked)) {
        q = ngx_queue_last(&slot->parked);
        ngx_queue_remove(q);
        ngx_queue_insert_head(&c->messages, q);
    }
}


void
ngx_http_kv_router_message_refused(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_slot_t *slot, ngx_str_t *worker, const char *detail)
{
    ngx_uint_t    level;
    const char  **logged;

    (void) ngx_atomic_fetch_add(&c->zone->sh->redis_refused, 1);

    logged = slot ? &slot->detail : &c->detail;

    level = *logged == detail ? NGX_LOG_INFO : NGX_LOG_WARN;

    ngx_log_error(level, c->log, 0,
                  "kv_router zone \"%V\": message of worker \"%V\" refused: "
                  "%s", &c->zone->name, worker, detail);

    *logged = detail;
}


void
ngx_http_kv_router_message_free(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_message_t *m)
{
    c->bytes -= m->body.len + NGX_HTTP_KV_ROUTER_MESSAGE_COST;
    c->count--;

    freeReplyObject(m->reply);
    ngx_free(m);
}
