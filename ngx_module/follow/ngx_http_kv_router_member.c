
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What becomes of a member: registered, ignored, refused, or gone.
 */


#include "ngx_http_kv_router_members.h"
#include "../module/ngx_http_kv_router_resolver.h"


/* milliseconds */
#define NGX_HTTP_KV_ROUTER_TTL_MAX        3600000

/* PTTL's replies without a time */
#define NGX_HTTP_KV_ROUTER_TTL_NO_END     -1
#define NGX_HTTP_KV_ROUTER_TTL_NO_KEY     -2

/* the number of slots in which a warning about an id can be remembered */
#define NGX_HTTP_KV_ROUTER_WARNING_SLOTS  8


static ngx_int_t ngx_http_kv_router_member_register(
    ngx_http_kv_router_members_t *m, kvr_registration_t *reg, size_t len,
    int64_t ttl);
static ngx_uint_t ngx_http_kv_router_member_down(
    ngx_http_kv_router_members_t *m, uint32_t number);
static ngx_int_t ngx_http_kv_router_member_ignore(
    ngx_http_kv_router_members_t *m, kvr_registration_t *reg, size_t len,
    const char *why);
static void ngx_http_kv_router_member_shown(ngx_str_t *shown, u_char *buf,
    size_t size, const u_char *data, size_t len);


ngx_int_t
ngx_http_kv_router_member_found(ngx_http_kv_router_members_t *m,
    ngx_http_kv_router_asked_t *asked, int64_t ttl)
{
    size_t                        i;
    redisReply                   *hash, *value;
    const char                   *why;
    kvr_params_t                 *params;
    kvr_registration_t            reg;
    ngx_http_kv_router_member_t  *slot;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, m->consumer->log, 0,
                   "kv_router zone \"%V\": registration of worker \"%s\" is "
                   "read, ttl %L ms", &m->consumer->zone->name, asked->id,
                   ttl);

    hash = asked->hash;
    slot = ngx_http_kv_router_member_slot(m, asked->id, asked->len);

    if (hash->type == REDIS_REPLY_ERROR) {

        if (ngx_strncmp(hash->str, "WRONGTYPE", 9) != 0) {
            return ngx_http_kv_router_members_fail(m, KVR_KEY_WORKER, hash);
        }

        ngx_http_kv_router_member_warn(m, asked->id, asked->len,
                                       "refused", "not a hash", NULL);
        goto seen;
    }

    if (hash->type != REDIS_REPLY_ARRAY
        || hash->elements != KVR_MEMBER_ROUTER)
    {
        return ngx_http_kv_router_members_fail(m, KVR_KEY_WORKER, hash);
    }

    if (ttl == NGX_HTTP_KV_ROUTER_TTL_NO_KEY) {

        /*
         * the registration expired, but its id is still in the set: the worker
         * did not leave
         */

        if (m->state == ngx_http_kv_router_members_rest) {
            return NGX_OK;
        }

        /* the worker does not answer checks either: remove it */

        if (slot && ngx_http_kv_router_members_sure(m)
            && ngx_http_kv_router_member_down(m, slot - m->slots))
        {
            return ngx_http_kv_router_member_gone(m, slot - m->slots);
        }

        if (kvr_router_expire(&m->consumer->zone->router, (char *) asked->id,
                              asked->len, ngx_current_msec)
            == KVR_LOST)
        {
            return NGX_ABORT;
        }

        goto seen;
    }

    kvr_registration_init(&reg, (char *) asked->id, asked->len);

    for (i = 0; i < hash->elements; i++) {
        value = hash->element[i];

        if (value->type != REDIS_REPLY_STRING) {
            continue;                           /* the hash lacks the field */
        }

        why = kvr_registration_field(&reg, i, value->str, value->len);
        if (why) {
            ngx_http_kv_router_member_warn(m, asked->id, asked->len,
                                           "refused", why, value);
            goto seen;
        }
    }

    why = reg.conf.address[0]
          ? ngx_http_kv_router_address_wrong(m->consumer->zone,
                                             reg.conf.address)
          : NULL;
    if (why) {
        ngx_http_kv_router_member_warn(m, asked->id, asked->len, "refused",
                                       why,
                                       hash->element[KVR_MEMBER_ADDRESS]);
        goto seen;
    }

    params = &m->consumer->zone->params;
    why = kvr_registration_foreign(&reg, params->model,
                                   kvr_params_contract(params));
    if (why) {
        return ngx_http_kv_router_member_ignore(m, &reg, asked->len, why);
    }

    return ngx_http_kv_router_member_register(m, &reg, asked->len, ttl);

seen:

    if (slot) {
        slot->poll = m->poll;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_member_register(ngx_http_kv_router_members_t *m,
    kvr_registration_t *reg, size_t len, int64_t ttl)
{
    char                            reason[KVR_REASON_MAX + 1];
    uint32_t                        n;
    kvr_rc_t                        rc;
    ngx_str_t                       id;
    kvr_registered_t                what;
    ngx_http_kv_router_member_t    *slot;
    ngx_http_kv_router_consumer_t  *c;

    c = m->consumer;

    if (ttl == NGX_HTTP_KV_ROUTER_TTL_NO_END) {
        ttl = NGX_HTTP_KV_ROUTER_TTL;
    }

    ttl = ngx_max(ttl, 0);
    ttl = ngx_min(ttl, NGX_HTTP_KV_ROUTER_TTL_MAX);

    id.len = len;
    id.data = (u_char *) reg->conf.id;

    slot = ngx_http_kv_router_member_slot(m, id.data, len);

    if (slot == NULL
        || kvr_router_publisher_reason(&c->zone->router, slot - m->slots,
                                       reason)
           != KVR_OK)
    {
        reason[0] = '\0';
    }

    rc = kvr_router_register(&c->zone->router, reg, ngx_current_msec + ttl,
                             &what);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": registration of worker \"%V\": "
                   "%s", &c->zone->name, &id,
                   rc != KVR_OK ? "not taken"
                   : what == KVR_REGISTERED_NEW ? "new"
                   : what == KVR_REGISTERED_AS_BEFORE ? "as before"
                                                      : "changed");

    slot = ngx_http_kv_router_member_slot(m, id.data, len);

    if (slot) {
        slot->poll = m->poll;
    }

    switch (rc) {

    case KVR_OK:
        break;

    case KVR_LOST:
        return NGX_ABORT;

    case KVR_FULL:
        ngx_http_kv_router_member_warn(m, id.data, len, "refused",
                                       "no room for it in the zone", NULL);
        return NGX_OK;

    default: /* a tombstone, or the lock is taken: the next poll tries again */
        return NGX_OK;
    }

    ngx_http_kv_router_member_warn(m, id.data, len, NULL, NULL, NULL);

    if (reg->reason[0] && ngx_strcmp(reg->reason, reason) != 0) {
        ngx_log_error(NGX_LOG_WARN, c->log, 0,
                      "kv_router zone \"%V\": the publisher of worker \"%V\" "
                      "is not complete: \"%s\"", &c->zone->name, &id,
                      reg->reason);
    }

    if (what == KVR_REGISTERED_AS_BEFORE) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                  "kv_router zone \"%V\": worker \"%V\" %s, at \"%s\"",
                  &c->zone->name, &id,
                  what == KVR_REGISTERED_NEW ? "registered" : "changed",
                  reg->conf.address);

    /* a new worker: read its log for the blocks that it holds already */

    if (what == KVR_REGISTERED_NEW && c->up && slot
        && kvr_router_find_worker(&c->zone->router, reg->conf.id, len, &n)
           == KVR_OK
        && n < c->nslots)
    {
        ngx_http_kv_router_repair_want(c, &c->slots[n]);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_member_ignore(ngx_http_kv_router_members_t *m,
    kvr_registration_t *reg, size_t len, const char *why)
{
    kvr_rc_t                      rc;
    ngx_http_kv_router_member_t  *slot;

    rc = kvr_router_ignore_worker(&m->consumer->zone->router, reg->conf.id,
                                  len);
    if (rc == KVR_LOST) {
        return NGX_ABORT;
    }

    slot = ngx_http_kv_router_member_slot(m, (u_char *) reg->conf.id, len);

    if (slot) {
        slot->poll = m->poll;
    }

    ngx_http_kv_router_member_warn(m, (u_char *) reg->conf.id, len,
                                   "ignored", why, NULL);

    return NGX_OK;
}


/* Did Redis alone add the worker, and do its active checks fail? */

static ngx_uint_t
ngx_http_kv_router_member_down(ngx_http_kv_router_members_t *m,
    uint32_t number)
{
    uint32_t             generation;
    kvr_router_t        *k;
    const kvr_worker_t  *w;

    k = &m->consumer->zone->router;
    w = kvr_router_worker(k, number);
    generation = kvr_load32(&w->generation);

    return m->consumer->zone->health.params.checked
           && kvr_load32(&w->flags) & KVR_WORKER_REDIS
           && kvr_health_down(kvr_router_health(k, number), generation);
}


ngx_int_t
ngx_http_kv_router_member_gone(ngx_http_kv_router_members_t *m, uint32_t slot)
{
    size_t              len;
    uint32_t            flags, generation;
    kvr_rc_t            rc;
    ngx_str_t           id;
    kvr_router_t       *k;
    kvr_worker_conf_t   conf;

    k = &m->consumer->zone->router;

    if (kvr_router_read_worker(k, slot, &conf, &flags, &generation)
        != KVR_OK)
    {
        return NGX_OK;
    }

    len = ngx_strlen(conf.id);

    rc = kvr_router_deregister(k, conf.id, len);

    if (rc == KVR_BUSY) {
        return NGX_OK;                          /* the next poll tries again */
    }

    m->slots[slot].absences = 0;
    m->slots[slot].generation = 0;

    switch (rc) {

    case KVR_OK:
        id.len = len;
        id.data = (u_char *) conf.id;

        ngx_log_error(NGX_LOG_NOTICE, m->consumer->log, 0,
                      "kv_router zone \"%V\": worker \"%V\" has left",
                      &m->consumer->zone->name, &id);
        return NGX_OK;

    case KVR_LOST:
        return NGX_ABORT;

    default:
        return NGX_OK;
    }
}


ngx_http_kv_router_member_t *
ngx_http_kv_router_member_slot(ngx_http_kv_router_members_t *m, u_char *id,
    size_t len)
{
    uint32_t  n;

    if (kvr_router_find_worker(&m->consumer->zone->router, (char *) id, len,
                               &n)
        != KVR_OK || n >= m->nslots)
    {
        return NULL;
    }

    return &m->slots[n];
}


void
ngx_http_kv_router_member_warn(ngx_http_kv_router_members_t *m,
    u_char *id, size_t len, const char *what, const char *text,
    const redisReply *value)
{
    size_t                                i;
    u_char                                name[KVR_WORKER_ID_MAX];
    u_char                                it[KVR_ADDRESS_MAX];
    uint32_t                              hash;
    ngx_str_t                             shown, wrong;
    ngx_uint_t                            level;
    ngx_http_kv_router_member_warning_t  *warning, *slot;

    hash = ngx_murmur_hash2(id, len);
    warning = NULL;
    level = NGX_LOG_WARN;

    for (i = 0; i < NGX_HTTP_KV_ROUTER_WARNING_SLOTS; i++) {

        slot = &m->warnings[(hash + i) % NGX_HTTP_KV_ROUTER_WARNINGS];

        if (slot->text && slot->id == hash) {
            warning = slot;
            break;
        }

        if (slot->text == NULL && warning == NULL) {
            warning = slot;
        }
    }

    if (what == NULL) {

        if (warning) {
            warning->text = NULL;
        }

        return;
    }

    if (warning == NULL || warning->text == text) {

        /*
         * the warning was logged already, or no slot is free: ids that took
         * slots from one another would be logged at each poll
         */

        level = NGX_LOG_INFO;

    } else {
        warning->id = hash;
        warning->text = text;
    }

    ngx_http_kv_router_member_shown(&shown, name, sizeof(name), id, len);

    if (value) {
        ngx_http_kv_router_member_shown(&wrong, it, sizeof(it),
                                        (u_char *) value->str, value->len);

        ngx_log_error(level, m->consumer->log, 0,
                      "kv_router zone \"%V\": registration of worker \"%V\" "
                      "%s: %s, it is \"%V\"", &m->consumer->zone->name, &shown,
                      what, text, &wrong);
        return;
    }

    ngx_log_error(level, m->consumer->log, 0,
                  "kv_router zone \"%V\": registration of worker \"%V\" %s: "
                  "%s", &m->consumer->zone->name, &shown, what, text);
}


/* Copies what may be any bytes for a message: size bytes of it. */

static void
ngx_http_kv_router_member_shown(ngx_str_t *shown, u_char *buf, size_t size,
    const u_char *data, size_t len)
{
    size_t  i;

    shown->len = ngx_min(len, size);
    shown->data = buf;

    for (i = 0; i < shown->len; i++) {
        buf[i] = (data[i] < 0x20 || data[i] > 0x7e) ? '?' : data[i];
    }
}
