
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The logs of the workers, streams in Redis whose entries have the ids
 * epoch-seq, and their snapshots (wire/kvr_keys.h).  What the repair asks of
 * them, and the answers.
 */


#include "ngx_http_kv_router_consumer.h"

#include <wire/kvr_pointer.h>


/*
 * when a log can't be read: the number of tries, and the milliseconds before
 * the second try
 */
#define NGX_HTTP_KV_ROUTER_TRIES        3
#define NGX_HTTP_KV_ROUTER_TRY_AGAIN    500


static void ngx_http_kv_router_log_command(ngx_http_kv_router_repair_t *r,
    kvr_ask_t *ask);
static void ngx_http_kv_router_log_failed(ngx_http_kv_router_repair_t *r);
static ngx_uint_t ngx_http_kv_router_log_expected(
    ngx_http_kv_router_repair_t *r, redisReply *reply);
static void ngx_http_kv_router_log_connected(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_log_disconnected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_log_reply(ngx_http_kv_router_redis_t *r,
    void *data, kvr_reply_t *view);
static void ngx_http_kv_router_log_lost(ngx_http_kv_router_repair_t *r,
    ngx_uint_t too_big);
#if (NGX_DEBUG)
static const char *ngx_http_kv_router_log_kind(redisReply *reply);
#endif


void
ngx_http_kv_router_log_init(ngx_http_kv_router_consumer_t *c)
{
    c->repairer.connected = ngx_http_kv_router_log_connected;
    c->repairer.disconnected = ngx_http_kv_router_log_disconnected;
}


ngx_int_t
ngx_http_kv_router_log_ask(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    kvr_ask_t  ask;
    ngx_int_t  rc;

    if (r->skip) {
        rc = ngx_http_kv_router_repair_lost(c, &r->worker, r->last.epoch,
                                            r->seq + 1);
        if (rc != NGX_OK) {
            return rc;
        }

        r->seq++;
        r->skip = 0;
        r->failed = 1;
    }

    if (!c->repairer.ready
        || (r->after && (ngx_msec_int_t) (r->after - ngx_current_msec) > 0))
    {
        return NGX_DECLINED;
    }

    ngx_http_kv_router_log_command(r, &ask);

    if (ngx_http_kv_router_redis_send(&c->repairer,
                                      ngx_http_kv_router_log_reply, r, &ask)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": repair of worker \"%V\" asks: "
                   "%s %s", &c->zone->name, &r->worker, ask.argv[0],
                   ask.argv[1]);

    r->state++;    /* wait for the reply */

    return NGX_AGAIN;
}


static void
ngx_http_kv_router_log_command(ngx_http_kv_router_repair_t *r, kvr_ask_t *ask)
{
    char        *worker;
    size_t       len;
    ngx_uint_t   i;

    worker = (char *) r->worker.data;
    len = r->worker.len;

    switch (r->state) {

    case ngx_http_kv_router_repair_ask_last:
        kvr_ask_begin(ask, "XREVRANGE");
        kvr_ask_key(ask, KVR_KEY_LOG, worker, len);
        kvr_ask_text(ask, "+");
        kvr_ask_text(ask, "-");
        kvr_ask_text(ask, "COUNT");
        kvr_ask_text(ask, "1");
        return;

    case ngx_http_kv_router_repair_ask_page:
        kvr_ask_begin(ask, "XRANGE");
        kvr_ask_key(ask, KVR_KEY_LOG, worker, len);
        kvr_ask_printf(ask, "(%lu-%lu", r->last.epoch, r->seq);
        kvr_ask_printf(ask, "%lu-%lu", r->last.epoch, UINT64_MAX);
        kvr_ask_text(ask, "COUNT");
        kvr_ask_printf(ask, "%lu", r->count);
        return;

    case ngx_http_kv_router_repair_ask_pointer:
        kvr_ask_begin(ask, "HMGET");
        kvr_ask_key(ask, KVR_KEY_SNAPSHOT, worker, len);

        for (i = 0; i < KVR_POINTER_ROUTER; i++) {
            kvr_ask_text(ask, kvr_pointer_fields[i]);
        }

        return;

    case ngx_http_kv_router_repair_ask_part:

        /*
         * ask for one byte more than a part may have: a part that is too long
         * is noticed, and never read as a whole
         */

        kvr_ask_begin(ask, "GETRANGE");
        kvr_ask_part(ask, worker, len, r->head.epoch, r->head.seq, r->part);
        kvr_ask_text(ask, "0");
        kvr_ask_printf(ask, "%u", KVR_SNAPSHOT_PART_MAX);
        return;

    default: /* ngx_http_kv_router_repair_ask_new */
        kvr_ask_begin(ask, "SET");
        kvr_ask_key(ask, KVR_KEY_ASK, worker, len);
        kvr_ask_text(ask, "1");
        kvr_ask_text(ask, "EX");
        kvr_ask_text(ask, "60");
        kvr_ask_text(ask, "NX");
        return;
    }
}


/* [ "epoch-seq", [ "m", body, … ] ] */

ngx_int_t
ngx_http_kv_router_log_entry(redisReply *entry, kvr_cursor_t *id,
    ngx_str_t *body)
{
    u_char      *p;
    uint64_t    *n;
    redisReply  *key, *fields;

    if (entry->type != REDIS_REPLY_ARRAY || entry->elements < 2) {
        return NGX_ERROR;
    }

    key = entry->element[0];
    fields = entry->element[1];

    if (key->type != REDIS_REPLY_STRING
        || fields->type != REDIS_REPLY_ARRAY || fields->elements < 2
        || fields->element[1]->type != REDIS_REPLY_STRING)
    {
        return NGX_ERROR;
    }

    /* Redis itself wrote the id: both numbers fit into 64 bits */

    id->epoch = 0;
    id->seq = 0;
    n = &id->epoch;

    for (p = (u_char *) key->str; *p; p++) {

        if (*p == '-' && n == &id->epoch) {
            n = &id->seq;
            continue;
        }

        if (*p < '0' || *p > '9') {
            return NGX_ERROR;
        }

        *n = *n * 10 + (*p - '0');
    }

    if (id->epoch > KVR_EPOCH_MAX || id->seq > KVR_SEQ_MAX) {
        return NGX_ERROR;
    }

    if (body) {
        body->len = fields->element[1]->len;
        body->data = (u_char *) fields->element[1]->str;
    }

    return NGX_OK;
}


static void
ngx_http_kv_router_log_connected(ngx_http_kv_router_redis_t *redis)
{
    ngx_http_kv_router_consumer_t  *c;

    c = redis->data;

    (void) ngx_atomic_fetch_add(&c->zone->sh->redis_connects, 1);

    ngx_http_kv_router_redis_works(redis);

    ngx_http_kv_router_consumer_wake(c);
}


static void
ngx_http_kv_router_log_disconnected(ngx_http_kv_router_redis_t *redis)
{
    ngx_http_kv_router_consumer_t  *c;

    c = redis->data;

    (void) ngx_atomic_fetch_add(&c->zone->sh->redis_disconnects, 1);

    ngx_http_kv_router_consumer_wake(c);
}


/* If a question was lost, its repair asks again. */

static void
ngx_http_kv_router_log_lost(ngx_http_kv_router_repair_t *r,
    ngx_uint_t too_big)
{
    if (too_big) {

        if (r->state != ngx_http_kv_router_repair_wait_page) {
            r->errors++;

        } else if (r->count > 1) {
            r->count = ngx_max(r->count / 8, 1);

        } else {
            r->skip = 1;
        }
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->consumer->log, 0,
                   "kv_router zone \"%V\": repair of worker \"%V\": its "
                   "question was lost, and is asked again",
                   &r->consumer->zone->name, &r->worker);

    r->state--;

    if (r->errors >= NGX_HTTP_KV_ROUTER_TRIES) {
        ngx_http_kv_router_log_failed(r);
    }
}


static void
ngx_http_kv_router_log_reply(ngx_http_kv_router_redis_t *redis, void *data,
    kvr_reply_t *view)
{
    ngx_msec_t                      delay;
    ngx_uint_t                      level;
    redisReply                     *reply;
    ngx_http_kv_router_repair_t    *r;
    ngx_http_kv_router_consumer_t  *c;

    r = data;
    c = r->consumer;

    if (view->type == KVR_REPLY_LOST || view->type == KVR_REPLY_TOO_BIG) {
        ngx_http_kv_router_log_lost(r, view->type == KVR_REPLY_TOO_BIG);
        return;
    }

    reply = view->owned;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": repair of worker \"%V\" is "
                   "answered: %s of %uz", &c->zone->name, &r->worker,
                   ngx_http_kv_router_log_kind(reply),
                   reply->type == REDIS_REPLY_ARRAY ? (size_t) reply->elements
                                                    : (size_t) reply->len);

    if (ngx_http_kv_router_log_expected(r, reply)) {
        r->page = reply;
        r->state++;
        r->errors = 0;

        ngx_http_kv_router_consumer_wake(c);
        return;
    }

    if (r->state > ngx_http_kv_router_repair_page) {

        /*
         * no harm is done: the log remains, and a snapshot is tried again
         * later
         */

        ngx_http_kv_router_snapshot_trouble(c, r,
                               (r->state == ngx_http_kv_router_repair_wait_new)
                               ? ngx_http_kv_router_trouble_ask
                               : ngx_http_kv_router_trouble_read,
                               (reply->type == REDIS_REPLY_ERROR)
                               ? reply->str : "not what was asked for");
        freeReplyObject(reply);

        r->state++;

        ngx_http_kv_router_consumer_wake(c);
        return;
    }

    level = r->errors ? NGX_LOG_INFO : NGX_LOG_ERR;

    ngx_log_error(level, c->log, 0,
                  "kv_router zone \"%V\": log of worker \"%V\" can't be read: "
                  "\"%s\"", &c->zone->name, &r->worker,
                  reply->type == REDIS_REPLY_ERROR ? reply->str : "no array");

    freeReplyObject(reply);

    r->state--;

    if (++r->errors < NGX_HTTP_KV_ROUTER_TRIES) {
        delay = NGX_HTTP_KV_ROUTER_TRY_AGAIN << (r->errors - 1);
        r->after = ngx_current_msec + delay / 2 + ngx_random() % delay;

        ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                       "kv_router zone \"%V\": repair of worker \"%V\" asks "
                       "again in %M ms", &c->zone->name, &r->worker,
                       r->after - ngx_current_msec);

    } else {
        ngx_http_kv_router_log_failed(r);
    }

    ngx_http_kv_router_consumer_wake(c);
}


static ngx_uint_t
ngx_http_kv_router_log_expected(ngx_http_kv_router_repair_t *r,
    redisReply *reply)
{
    switch (r->state) {

    case ngx_http_kv_router_repair_wait_part:
        return reply->type == REDIS_REPLY_STRING;

    case ngx_http_kv_router_repair_wait_new:

        /* nil: another router has already asked for a new snapshot */

        return reply->type == REDIS_REPLY_STATUS
               || reply->type == REDIS_REPLY_NIL;

    default:
        return reply->type == REDIS_REPLY_ARRAY;
    }
}


#if (NGX_DEBUG)

static const char *
ngx_http_kv_router_log_kind(redisReply *reply)
{
    switch (reply->type) {

    case REDIS_REPLY_STRING:
        return "string";

    case REDIS_REPLY_ARRAY:
        return "array";

    case REDIS_REPLY_NIL:
        return "nil";

    case REDIS_REPLY_STATUS:
        return "status";

    case REDIS_REPLY_ERROR:
        return "error";

    default:
        return "another type";
    }
}

#endif


/* Decides what to do if Redis lacks the data for the repair's state. */

static void
ngx_http_kv_router_log_failed(ngx_http_kv_router_repair_t *r)
{
    r->errors = 0;
    r->after = 0;

    switch (r->state) {

    case ngx_http_kv_router_repair_ask_last:
        r->broken = 1;
        r->state = ngx_http_kv_router_repair_ask_pointer;
        break;

    case ngx_http_kv_router_repair_ask_page:
        r->broken = 1;
        r->state = ngx_http_kv_router_repair_end;
        break;

    default:
        r->state += 2;         /* go on without a page */
        break;
    }
}
