
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_members.h"

#include <wire/kvr_redis_info.h>


/* milliseconds */
#define NGX_HTTP_KV_ROUTER_POLL           2000
#define NGX_HTTP_KV_ROUTER_POLL_SOON      500     /* after the last one */

/* the number of polls in a row that must miss a worker before it is removed */
#define NGX_HTTP_KV_ROUTER_ABSENCES       2

/*
 * ids that SSCAN is asked for at once; the maximum number of pages of a poll,
 * many of which may be empty; the maximum number of ids of a poll
 */
#define NGX_HTTP_KV_ROUTER_MEMBERS_PAGE   "256"
#define NGX_HTTP_KV_ROUTER_MEMBERS_PAGES  4096
#define NGX_HTTP_KV_ROUTER_MEMBERS_MAX    65536


static ngx_http_kv_router_members_t *ngx_http_kv_router_members_make(
    ngx_http_kv_router_consumer_t *c);
static void ngx_http_kv_router_members_exiting(ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_members_connected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_members_disconnected(
    ngx_http_kv_router_redis_t *r);
static void ngx_http_kv_router_members_scanned(ngx_http_kv_router_redis_t *r,
    void *data, redisReply *reply);
static void ngx_http_kv_router_members_hash(ngx_http_kv_router_redis_t *r,
    void *data, redisReply *reply);
static void ngx_http_kv_router_members_ttl(ngx_http_kv_router_redis_t *r,
    void *data, redisReply *reply);
static void ngx_http_kv_router_members_timer(ngx_event_t *ev);
static void ngx_http_kv_router_members_reset(
    ngx_http_kv_router_members_t *m);

static void ngx_http_kv_router_members_poll(ngx_http_kv_router_members_t *m);
static void ngx_http_kv_router_members_ask_page(
    ngx_http_kv_router_members_t *m, char *cursor);
static void ngx_http_kv_router_members_go_on(
    ngx_http_kv_router_members_t *m);
static ngx_int_t ngx_http_kv_router_members_ask_next(
    ngx_http_kv_router_members_t *m);
static ngx_int_t ngx_http_kv_router_members_ours(
    ngx_http_kv_router_members_t *m, redisReply *id);
static ngx_int_t ngx_http_kv_router_members_ask_rest(
    ngx_http_kv_router_members_t *m);
static ngx_int_t ngx_http_kv_router_members_ask(
    ngx_http_kv_router_members_t *m, u_char *id, size_t len);
static void ngx_http_kv_router_members_finish(
    ngx_http_kv_router_members_t *m);


void
ngx_http_kv_router_members_open(ngx_http_kv_router_consumer_t *c)
{
    ngx_http_kv_router_members_t  *m;

    m = c->members ? c->members : ngx_http_kv_router_members_make(c);

    if (m == NULL) {
        return;
    }

    if (m->slots == NULL) {
        m->nslots = kvr_router_max_workers(&c->zone->router);
        m->slots = ngx_calloc(m->nslots * sizeof(ngx_http_kv_router_member_t),
                              c->log);
        if (m->slots == NULL) {
            return;
        }
    }

    ngx_http_kv_router_redis_open(&m->redis);
    ngx_http_kv_router_redis_follow(&m->redis);
}


static ngx_http_kv_router_members_t *
ngx_http_kv_router_members_make(ngx_http_kv_router_consumer_t *c)
{
    ngx_http_kv_router_redis_t    *r;
    ngx_http_kv_router_members_t  *m;

    m = ngx_pcalloc(ngx_cycle->pool, sizeof(ngx_http_kv_router_members_t));
    if (m == NULL) {
        return NULL;
    }

    m->consumer = c;

    m->dummy.fd = (ngx_socket_t) -1;
    m->dummy.data = m;

    m->timer.handler = ngx_http_kv_router_members_timer;
    m->timer.data = &m->dummy;
    m->timer.log = c->log;
    m->timer.cancelable = 1;

    r = &m->redis;
    r->purpose = "members";
    r->zone = c->zone;
    r->data = m;
    r->connected = ngx_http_kv_router_members_connected;
    r->disconnected = ngx_http_kv_router_members_disconnected;
    r->exiting = ngx_http_kv_router_members_exiting;
    r->leader = &c->subscriber;

    c->members = m;

    return m;
}


void
ngx_http_kv_router_members_close(ngx_http_kv_router_consumer_t *c)
{
    ngx_http_kv_router_members_t  *m;

    m = c->members;

    if (m == NULL) {
        return;
    }

    ngx_http_kv_router_redis_close(&m->redis);
    ngx_http_kv_router_members_reset(m);

    if (m->slots) {
        ngx_free(m->slots);
        m->slots = NULL;
    }
}


void
ngx_http_kv_router_members_look(ngx_http_kv_router_consumer_t *c)
{
    uint32_t                       i, n, version, flags;
    ngx_msec_t                     passed;
    kvr_router_t                  *k;
    const kvr_worker_t            *w;
    ngx_http_kv_router_members_t  *m;

    m = c->members;

    if (m == NULL || m->slots == NULL || !m->timer.timer_set) {
        return;
    }

    k = &c->zone->router;
    version = kvr_router_version(k);

    if (version == m->version && m->shards == c->leased) {
        return;
    }

    passed = ngx_current_msec - m->begun;

    if (passed < NGX_HTTP_KV_ROUTER_POLL_SOON) {
        return;
    }

    m->version = version;

    n = ngx_min(kvr_router_workers(k), m->nslots);

    for (i = 0; i < n && m->shards == c->leased; i++) {
        w = kvr_router_worker(k, i);
        flags = kvr_load32(&w->flags);

        if (flags & KVR_WORKER_SEEN && !(flags & KVR_WORKER_DELETED)
            && c->leased >> kvr_router_worker_shard(k, i) & 1
            && m->slots[i].generation != kvr_load32(&w->generation))
        {
            break;
        }
    }

    if (i < n || m->shards != c->leased) {
        ngx_del_timer(&m->timer);
        ngx_http_kv_router_members_poll(m);
    }
}


/* ---- connection --------------------------------------------------------- */

static void
ngx_http_kv_router_members_exiting(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_consumer_stop(r->zone);
}


static void
ngx_http_kv_router_members_connected(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_members_t  *m;

    m = r->data;

    (void) ngx_atomic_fetch_add(&r->zone->sh->redis_connects, 1);

    ngx_http_kv_router_redis_works(r);

    ngx_http_kv_router_members_reset(m);
    ngx_memzero(m->slots, m->nslots * sizeof(ngx_http_kv_router_member_t));

    m->since = ngx_current_msec;

    ngx_http_kv_router_members_poll(m);
}


static void
ngx_http_kv_router_members_disconnected(ngx_http_kv_router_redis_t *r)
{
    (void) ngx_atomic_fetch_add(&r->zone->sh->redis_disconnects, 1);

    ngx_http_kv_router_members_reset(r->data);
}


static void
ngx_http_kv_router_members_reset(ngx_http_kv_router_members_t *m)
{
    if (m->timer.timer_set) {
        ngx_del_timer(&m->timer);
    }

    for ( /* void */ ; m->nasked; m->nasked--) {

        if (m->asked[m->first].hash) {
            freeReplyObject(m->asked[m->first].hash);
            m->asked[m->first].hash = NULL;
        }

        m->first = (m->first + 1) % NGX_HTTP_KV_ROUTER_MEMBERS_ASKED;
    }

    if (m->page) {
        freeReplyObject(m->page);
        m->page = NULL;
    }

    m->state = ngx_http_kv_router_members_idle;
}


static void
ngx_http_kv_router_members_timer(ngx_event_t *ev)
{
    ngx_connection_t              *dummy;
    ngx_http_kv_router_members_t  *m;

    dummy = ev->data;
    m = dummy->data;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    ngx_http_kv_router_members_poll(m);
}


/* of these three, if the connection is lost, disconnected() ends the poll */

static void
ngx_http_kv_router_members_scanned(ngx_http_kv_router_redis_t *r, void *data,
    redisReply *reply)
{
    ngx_http_kv_router_members_t  *m;

    m = data;

    if (reply == NULL) {
        return;
    }

    m->state = ngx_http_kv_router_members_page;
    m->next = 0;

    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2
        && reply->element[0]->type == REDIS_REPLY_STRING
        && reply->element[1]->type == REDIS_REPLY_ARRAY)
    {
        m->page = reply;

    } else {
        (void) ngx_http_kv_router_members_fail(m, KVR_KEY_WORKERS, reply);
        freeReplyObject(reply);
    }

    ngx_http_kv_router_members_go_on(m);
}


static void
ngx_http_kv_router_members_hash(ngx_http_kv_router_redis_t *r, void *data,
    redisReply *reply)
{
    ngx_http_kv_router_asked_t  *asked;

    asked = data;
    asked->hash = reply;
}


static void
ngx_http_kv_router_members_ttl(ngx_http_kv_router_redis_t *r, void *data,
    redisReply *reply)
{
    ngx_int_t                      rc;
    ngx_http_kv_router_asked_t    *asked;
    ngx_http_kv_router_members_t  *m;

    asked = data;
    m = asked->members;
    rc = NGX_OK;

    if (reply == NULL) {
        return;
    }

    if (reply->type != REDIS_REPLY_INTEGER) {
        rc = ngx_http_kv_router_members_fail(m, KVR_KEY_WORKER, reply);

    } else if (!m->failed) {
        rc = ngx_http_kv_router_member_found(m, asked, reply->integer);
    }

    freeReplyObject(reply);

    freeReplyObject(asked->hash);
    asked->hash = NULL;

    m->first = (m->first + 1) % NGX_HTTP_KV_ROUTER_MEMBERS_ASKED;
    m->nasked--;

    if (rc == NGX_ABORT) {
        ngx_http_kv_router_consumer_lost(m->consumer);
        return;
    }

    ngx_http_kv_router_members_go_on(m);
}


/* ---- a poll ------------------------------------------------------------- */

static void
ngx_http_kv_router_members_poll(ngx_http_kv_router_members_t *m)
{
    m->poll++;
    m->ids = 0;
    m->pages = 0;
    m->next = 0;
    m->failed = 0;
    m->begun = ngx_current_msec;
    m->shards = m->consumer->leased;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, m->consumer->log, 0,
                   "kv_router zone \"%V\": poll %uD of the members begins",
                   &m->consumer->zone->name, m->poll);

    ngx_http_kv_router_members_ask_page(m, "0");
}


static void
ngx_http_kv_router_members_ask_page(ngx_http_kv_router_members_t *m,
    char *cursor)
{
    ngx_str_t  args[5];

    ngx_str_set(&args[0], "SSCAN");
    ngx_str_set(&args[1], KVR_KEY_WORKERS);
    args[2].data = (u_char *) cursor;
    args[2].len = ngx_strlen(cursor);
    ngx_str_set(&args[3], "COUNT");
    ngx_str_set(&args[4], NGX_HTTP_KV_ROUTER_MEMBERS_PAGE);

    if (ngx_http_kv_router_redis_send(&m->redis,
                                      ngx_http_kv_router_members_scanned, m,
                                      5, args)
        != NGX_OK)
    {
        ngx_http_kv_router_redis_reset(&m->redis,
                                       "members were not asked for", NULL);
        return;
    }

    m->state = ngx_http_kv_router_members_scan;
}


/* Asks for as many ids as can be; ends the poll when all are answered. */

static void
ngx_http_kv_router_members_go_on(ngx_http_kv_router_members_t *m)
{
    ngx_int_t    rc;
    redisReply  *page;

    for ( ;; ) {

        if (m->failed) {
            rc = NGX_DONE;

        } else if (m->state == ngx_http_kv_router_members_page) {
            rc = ngx_http_kv_router_members_ask_next(m);

        } else if (m->state == ngx_http_kv_router_members_rest) {
            rc = ngx_http_kv_router_members_ask_rest(m);

        } else {
            return;
        }

        if (rc == NGX_AGAIN || m->nasked) {
            return;
        }

        if (m->failed || m->state == ngx_http_kv_router_members_rest) {
            ngx_http_kv_router_members_finish(m);
            return;
        }

        page = m->page;
        m->page = NULL;

        if (ngx_strcmp(page->element[0]->str, "0") == 0) {
            m->state = ngx_http_kv_router_members_rest;
            m->next = 0;

        } else if (++m->pages == NGX_HTTP_KV_ROUTER_MEMBERS_PAGES) {
            (void) ngx_http_kv_router_members_fail(m, KVR_KEY_WORKERS, NULL);

        } else {
            ngx_http_kv_router_members_ask_page(m, page->element[0]->str);
        }

        freeReplyObject(page);
    }
}


/* NGX_DONE: all ids of the page were asked for; NGX_AGAIN: not all yet. */

static ngx_int_t
ngx_http_kv_router_members_ask_next(ngx_http_kv_router_members_t *m)
{
    redisReply                   *id, *ids;
    kvr_router_t                 *k;
    ngx_http_kv_router_member_t  *slot;

    k = &m->consumer->zone->router;
    ids = m->page->element[1];

    for ( /* void */ ; m->next < ids->elements; m->next++) {

        if (m->nasked == NGX_HTTP_KV_ROUTER_MEMBERS_ASKED) {
            return NGX_AGAIN;
        }

        id = ids->element[m->next];

        if (id->type != REDIS_REPLY_STRING
            || !(m->shards >> kvr_router_shard(k, id->str, id->len) & 1)
            || !ngx_http_kv_router_members_ours(m, id))
        {
            continue;
        }

        if (m->ids++ == NGX_HTTP_KV_ROUTER_MEMBERS_MAX) {
            (void) ngx_http_kv_router_members_fail(m, KVR_KEY_WORKERS, NULL);
            return NGX_DONE;
        }

        if (!kvr_worker_id_valid(id->str, id->len)) {
            ngx_http_kv_router_member_warn(m, (u_char *) id->str, id->len,
                                           "refused",
                                           "not a worker's id", NULL);
            continue;
        }

        slot = ngx_http_kv_router_member_slot(m, (u_char *) id->str, id->len);

        if (slot && slot->poll == m->poll) {
            continue;                           /* SSCAN may repeat an id */
        }

        if (ngx_http_kv_router_members_ask(m, (u_char *) id->str, id->len)
            != NGX_OK)
        {
            return NGX_AGAIN;
        }
    }

    return NGX_DONE;
}


/* If the channel is the channel of one worker, other ids are ignored. */

static ngx_int_t
ngx_http_kv_router_members_ours(ngx_http_kv_router_members_t *m,
    redisReply *id)
{
    ngx_str_t  *channel, *prefix;

    channel = &m->consumer->zone->redis->channel;
    prefix = &m->consumer->zone->redis->prefix;

    return channel->data[channel->len - 1] == '*'
           || ((size_t) id->len == channel->len - prefix->len
               && ngx_memcmp(id->str, channel->data + prefix->len, id->len)
                  == 0);
}


/*
 * Asks for the workers of Redis that are not in the set; returns NGX_DONE and
 * NGX_AGAIN as ngx_http_kv_router_members_ask_next() does.
 */

static ngx_int_t
ngx_http_kv_router_members_ask_rest(ngx_http_kv_router_members_t *m)
{
    uint32_t            n, flags, generation;
    kvr_router_t       *k;
    kvr_worker_conf_t   conf;

    k = &m->consumer->zone->router;
    n = ngx_min(kvr_router_workers(k), m->nslots);

    for ( /* void */ ; m->next < n; m->next++) {

        if (m->nasked == NGX_HTTP_KV_ROUTER_MEMBERS_ASKED) {
            return NGX_AGAIN;
        }

        if (!(m->shards >> kvr_router_worker_shard(k, m->next) & 1)
            || m->slots[m->next].poll == m->poll
            || kvr_router_read_worker(k, m->next, &conf, &flags, &generation)
               != KVR_OK
            || !(flags & KVR_WORKER_REDIS) || (flags & KVR_WORKER_DELETED))
        {
            continue;
        }

        if (ngx_http_kv_router_members_ask(m, (u_char *) conf.id,
                                           ngx_strlen(conf.id))
            != NGX_OK)
        {
            return NGX_AGAIN;
        }
    }

    return NGX_DONE;
}


static ngx_int_t
ngx_http_kv_router_members_ask(ngx_http_kv_router_members_t *m, u_char *id,
    size_t len)
{
    char                         key[KVR_KEY_MAX];
    ngx_str_t                    args[2 + KVR_MEMBER_ROUTER];
    ngx_uint_t                   i, last;
    ngx_http_kv_router_asked_t  *asked;

    args[1].data = (u_char *) key;
    args[1].len = kvr_key(key, KVR_KEY_WORKER, (char *) id, len);

    /* not HGETALL: there may be any number of fields */

    ngx_str_set(&args[0], "HMGET");

    for (i = 0; i < KVR_MEMBER_ROUTER; i++) {
        args[2 + i].data = (u_char *) kvr_member_fields[i];
        args[2 + i].len = ngx_strlen(kvr_member_fields[i]);
    }

    last = (m->first + m->nasked) % NGX_HTTP_KV_ROUTER_MEMBERS_ASKED;
    asked = &m->asked[last];

    if (ngx_http_kv_router_redis_send(&m->redis,
                                      ngx_http_kv_router_members_hash, asked,
                                      2 + KVR_MEMBER_ROUTER, args)
        != NGX_OK)
    {
        goto failed;
    }

    ngx_str_set(&args[0], "PTTL");

    if (ngx_http_kv_router_redis_send(&m->redis,
                                      ngx_http_kv_router_members_ttl, asked,
                                      2, args)
        != NGX_OK)
    {
        goto failed;
    }

    m->nasked++;

    asked->members = m;
    asked->len = len;
    asked->hash = NULL;
    ngx_memcpy(asked->id, id, len);
    asked->id[len] = '\0';

    return NGX_OK;

failed:

    ngx_http_kv_router_redis_reset(&m->redis, "members were not asked for",
                                   NULL);
    return NGX_ERROR;
}


ngx_uint_t
ngx_http_kv_router_members_sure(ngx_http_kv_router_members_t *m)
{
    return ngx_current_msec - m->since >= NGX_HTTP_KV_ROUTER_TTL;
}


/* Ends a poll that failed: such a poll can't show that workers are absent. */

ngx_int_t
ngx_http_kv_router_members_fail(ngx_http_kv_router_members_t *m, char *what,
    redisReply *reply)
{
    ngx_uint_t   level;
    const char  *text;

    m->failed = 1;

    if (reply == NULL) {
        text = "too many";

    } else if (reply->type != REDIS_REPLY_ERROR) {
        text = "an answer of another type";

    } else {
        text = kvr_redis_error_refused(reply->str);
        text = text ? text : reply->str;
    }

    level = m->logged ? NGX_LOG_INFO : NGX_LOG_ERR;
    m->logged = 1;

    ngx_log_error(level, m->consumer->log, 0,
                  "kv_router zone \"%V\": members can't be read, \"%s\": "
                  "\"%s\"", &m->consumer->zone->name, what, text);

    return NGX_ERROR;
}


static void
ngx_http_kv_router_members_finish(ngx_http_kv_router_members_t *m)
{
    uint32_t                      i, n, flags;
    ngx_int_t                     rc;
    ngx_uint_t                    known, missed;
    kvr_router_t                 *k;
    const kvr_worker_t           *w;
    ngx_http_kv_router_member_t  *slot;

    ngx_add_timer(&m->timer, NGX_HTTP_KV_ROUTER_POLL);

    m->state = ngx_http_kv_router_members_idle;

    if (m->page) {
        freeReplyObject(m->page);
        m->page = NULL;
    }

    if (m->failed) {
        m->since = ngx_current_msec;
        return;
    }

    m->logged = 0;

    k = &m->consumer->zone->router;
    n = ngx_min(kvr_router_workers(k), m->nslots);

    known = 0;
    missed = 0;

    for (i = 0; i < n; i++) {
        w = kvr_router_worker(k, i);
        flags = kvr_load32(&w->flags);
        slot = &m->slots[i];

        if (!(m->shards >> kvr_router_worker_shard(k, i) & 1)) {
            continue;
        }

        slot->generation = kvr_load32(&w->generation);

        /*
         * if Redis did not add the worker, only its registration can be taken
         * back, and only if it has one
         */

        if (flags & KVR_WORKER_DELETED
            || (!(flags & KVR_WORKER_REDIS)
                && kvr_load64(&w->expires_ms) == 0))
        {
            slot->absences = 0;
            continue;
        }

        known++;

        if (slot->poll == m->poll) {
            slot->absences = 0;

        } else {
            missed += (slot->absences++ == 0);
        }
    }

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, m->consumer->log, 0,
                   "kv_router zone \"%V\": poll %uD of the members ends: %ui "
                   "known, %ui newly absent%s", &m->consumer->zone->name,
                   m->poll, known, missed,
                   missed * 2 > known ? ", none is taken out yet" : "");

    /*
     * most workers are absent at once: Redis lost its data, and the workers
     * will register again
     */

    if (missed * 2 > known) {
        m->since = ngx_current_msec;
    }

    if (!ngx_http_kv_router_members_sure(m)) {
        return;
    }

    for (i = 0; i < n; i++) {

        if (m->slots[i].absences < NGX_HTTP_KV_ROUTER_ABSENCES) {
            continue;
        }

        rc = ngx_http_kv_router_member_gone(m, i);

        if (rc == NGX_ABORT) {
            ngx_http_kv_router_consumer_lost(m->consumer);
            return;
        }
    }
}
