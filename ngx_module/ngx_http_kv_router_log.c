
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The logs of the workers, streams in Redis: "kv-log:{worker}", whose entries
 * have the ids epoch-seq.  What the repair asks of them, and the answers.
 */


#include "ngx_http_kv_router_consumer.h"


/* when a log can't be read: tries, and milliseconds before the second */
#define NGX_HTTP_KV_ROUTER_TRIES        3
#define NGX_HTTP_KV_ROUTER_TRY_AGAIN    500

/* "kv-log:{" id "}" */
#define NGX_HTTP_KV_ROUTER_LOG_KEY_LEN  (KVR_WORKER_ID_MAX + 16)

/* "(" epoch "-" seq */
#define NGX_HTTP_KV_ROUTER_LOG_ID_LEN   (2 * NGX_INT64_LEN + 8)


static void ngx_http_kv_router_log_connected(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_log_disconnected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_log_reply(ngx_http_kv_router_redis_t *r,
    redisReply *reply);


void
ngx_http_kv_router_log_init(ngx_http_kv_router_consumer_t *c)
{
    c->repairer.connected = ngx_http_kv_router_log_connected;
    c->repairer.disconnected = ngx_http_kv_router_log_disconnected;
    c->repairer.reply = ngx_http_kv_router_log_reply;
}


ngx_int_t
ngx_http_kv_router_log_ask(ngx_http_kv_router_consumer_t *c,
    ngx_http_kv_router_repair_t *r)
{
    u_char     key[NGX_HTTP_KV_ROUTER_LOG_KEY_LEN];
    u_char     from[NGX_HTTP_KV_ROUTER_LOG_ID_LEN];
    u_char     to[NGX_HTTP_KV_ROUTER_LOG_ID_LEN];
    u_char     count[NGX_INT_T_LEN];
    ngx_int_t  rc;
    ngx_str_t  args[6];

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

    if (!c->repairer.ready || c->nasked == NGX_HTTP_KV_ROUTER_REPAIRS
        || (r->after && (ngx_msec_int_t) (r->after - ngx_current_msec) > 0))
    {
        return NGX_DECLINED;
    }

    args[1].data = key;
    args[1].len = ngx_sprintf(key, "kv-log:{%V}", &r->worker) - key;

    if (r->state == ngx_http_kv_router_repair_ask_last) {
        ngx_str_set(&args[0], "XREVRANGE");
        ngx_str_set(&args[2], "+");
        ngx_str_set(&args[3], "-");

        args[5].len = ngx_sprintf(count, "1") - count;

    } else {
        ngx_str_set(&args[0], "XRANGE");

        args[2].data = from;
        args[2].len = ngx_sprintf(from, "(%uL-%uL", r->last.epoch, r->seq)
                      - from;

        args[3].data = to;
        args[3].len = ngx_sprintf(to, "%uL-%uL", r->last.epoch, UINT64_MAX)
                      - to;

        args[5].len = ngx_sprintf(count, "%ui", r->count) - count;
    }

    ngx_str_set(&args[4], "COUNT");
    args[5].data = count;

    if (ngx_http_kv_router_redis_send(&c->repairer, 6, args) != NGX_OK) {
        return NGX_DECLINED;
    }

    r->state++;    /* wait for it */
    c->asked[c->nasked++] = r;

    return NGX_AGAIN;
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

    /* redis wrote the id: two numbers of 64 bits */

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
    ngx_uint_t                      i;
    ngx_http_kv_router_repair_t    *r;
    ngx_http_kv_router_consumer_t  *c;

    c = redis->data;

    (void) ngx_atomic_fetch_add(&c->zone->sh->redis_disconnects, 1);

    /* the reply that was too big is the first of those asked for */

    if (redis->too_big && c->nasked) {
        r = c->asked[0];

        if (r->state == ngx_http_kv_router_repair_wait_last) {
            r->errors++;

        } else if (r->count > 1) {
            r->count = ngx_max(r->count / 8, 1);

        } else {
            r->skip = 1;
        }
    }

    /* what was asked for is asked again */

    for (i = 0; i < c->nasked; i++) {
        r = c->asked[i];

        r->state--;

        if (r->errors >= NGX_HTTP_KV_ROUTER_TRIES) {
            r->broken = 1;
            r->state = ngx_http_kv_router_repair_end;
        }
    }

    c->nasked = 0;

    ngx_http_kv_router_consumer_wake(c);
}


static void
ngx_http_kv_router_log_reply(ngx_http_kv_router_redis_t *redis,
    redisReply *reply)
{
    ngx_msec_t                      delay;
    ngx_uint_t                      level;
    ngx_http_kv_router_repair_t    *r;
    ngx_http_kv_router_consumer_t  *c;

    c = redis->data;

    if (c->nasked == 0) {
        freeReplyObject(reply);
        ngx_http_kv_router_redis_reset(redis, "redis was not asked for this",
                                       NULL);
        return;
    }

    r = c->asked[0];
    c->nasked--;
    ngx_memmove(&c->asked[0], &c->asked[1],
                c->nasked * sizeof(ngx_http_kv_router_repair_t *));

    if (reply->type == REDIS_REPLY_ARRAY) {
        r->page = reply;
        r->state++;
        r->errors = 0;

        ngx_http_kv_router_consumer_wake(c);
        return;
    }

    level = r->errors ? NGX_LOG_INFO : NGX_LOG_ERR;

    ngx_log_error(level, c->log, 0,
                  "kv_router zone \"%V\": log of worker \"%V\" can't be read: "
                  "\"%s\"", &c->zone->name, &r->worker,
                  reply->type == REDIS_REPLY_ERROR ? reply->str : "no array");

    freeReplyObject(reply);

    if (++r->errors < NGX_HTTP_KV_ROUTER_TRIES) {
        delay = NGX_HTTP_KV_ROUTER_TRY_AGAIN << (r->errors - 1);
        r->after = ngx_current_msec + delay / 2 + ngx_random() % delay;
        r->state--;

    } else {
        r->broken = 1;
        r->state = ngx_http_kv_router_repair_end;
    }

    ngx_http_kv_router_consumer_wake(c);
}
