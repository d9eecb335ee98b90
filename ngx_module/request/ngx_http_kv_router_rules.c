
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Rules: the classes and tenants that kv.new() has said, in a process, and how
 * the zone gets them.
 */


#include "ngx_http_kv_router_route.h"

#include <core/kvr_hash.h>


uint64_t
ngx_http_kv_router_queue_hash(const u_char *name, size_t len)
{
    return ngx_max(kvr_hash_bytes(name, len, 0), 1);
}


/* Gives the zone what the newest kv.new() has said, as soon as it takes it. */

void
ngx_http_kv_router_queue_configure(ngx_http_kv_router_queue_t *q)
{
    kvr_rc_t                     rc;
    uint32_t                     i, place;
    kvr_rules_t                 *rules;
    ngx_http_kv_router_class_t  *class;

    rc = kvr_admit_configure(&q->admit, &q->rules);
    rules = &q->admit.zone->rules;

    q->pending = (rc == KVR_BUSY || rc == KVR_FULL) ? ngx_current_msec : 0;

    for (i = 0; rc != KVR_BUSY && q->classes[i].hash; i++) {
        place = kvr_rules_class(rules, q->classes[i].hash);
        class = &q->zone->run.sh->classes[place];

        if (rules->classes[place].hash == q->classes[i].hash
            && ngx_strncmp(class->name, q->classes[i].name.data,
                           q->classes[i].name.len + 1)
               != 0)
        {
            ngx_memzero(class, sizeof(ngx_http_kv_router_class_t));
            ngx_memcpy(class->name, q->classes[i].name.data,
                       q->classes[i].name.len);
        }

        if (i + 1 == KVR_RULES_CLASSES) {
            break;
        }
    }
}


/* Copies a name into memory of the process. */

static ngx_int_t
ngx_http_kv_router_queue_name(ngx_http_kv_router_queue_name_t *to,
    const ngx_http_kv_router_rule_t *from)
{
    u_char  *p;

    p = ngx_calloc(from->text_len + 1, ngx_cycle->log);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(p, from->text, from->text_len);

    to->name.data = p;
    to->name.len = from->text_len;
    to->hash = ngx_http_kv_router_queue_hash(p, from->text_len);

    return NGX_OK;
}


int
ngx_http_kv_router_ffi_queue_rules(void *data,
    const ngx_http_kv_router_rule_t *classes, uint32_t nclasses,
    const ngx_http_kv_router_rule_t *tenants, uint32_t ntenants)
{
    ngx_http_kv_router_zone_t *zone = data;

    uint32_t                     i;
    kvr_rules_t                 *rules;
    ngx_http_kv_router_queue_t  *q;

    q = zone->run.queue;

    if (q == NULL || nclasses > KVR_RULES_CLASSES
        || ntenants > KVR_RULES_TENANTS)
    {
        return NGX_DECLINED;
    }

    rules = &q->rules;

    if (rules->version) {
        return NGX_OK;                  /* another kv.new() has said so */
    }

    for (i = 0; i < nclasses; i++) {
        if (ngx_http_kv_router_queue_name(&q->classes[i], &classes[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        rules->classes[i].hash = q->classes[i].hash;
        rules->classes[i].weight = classes[i].weight;
        rules->classes[i].most = classes[i].most;
    }

    for (i = 0; i < ntenants; i++) {
        if (ngx_http_kv_router_queue_name(&q->tenants[i], &tenants[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        rules->tenants[i].hash = q->tenants[i].hash;
        rules->tenants[i].weight = tenants[i].weight;
        rules->tenants[i].max_active = tenants[i].max_active;
    }

    rules->version = zone->conf.queue.version;
    ngx_http_kv_router_queue_configure(q);

    return NGX_OK;
}


ngx_http_kv_router_class_t *
ngx_http_kv_router_queue_class(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_http_kv_router_queue_t  *q;

    q = ctx->zone->run.queue;

    if (q == NULL || !ctx->queue.begun) {
        return NULL;
    }

    return &ctx->zone->run.sh->classes[
               kvr_rules_class(&q->admit.zone->rules,
                               q->classes[ctx->queue.class].hash)];
}
