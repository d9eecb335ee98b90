
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Engines for Lua: how they are talked to, and what they can be asked for.
 */


#include "../request/ngx_http_kv_router_route.h"

#include <wire/kvr_route.h>


void
ngx_http_kv_router_ffi_engine(void *data, ngx_http_kv_router_engine_t *out)
{
    ngx_http_kv_router_zone_t *zone = data;

    out->headers = (char *) zone->conf.engine_headers.data;
    out->headers_len = zone->conf.engine_headers.len;
    out->name = (char *) zone->conf.engine_tls.name.data;
    out->name_len = zone->conf.engine_tls.name.len;
    out->tls = zone->conf.engine_tls.ssl != NULL;
    out->verify = zone->conf.engine_tls.verify;
}


int
ngx_http_kv_router_ffi_defined(const u_char *name, size_t len, char *names,
    size_t size)
{
    u_char                      *p, *last;
    ngx_uint_t                   i;
    ngx_http_kv_router_zone_t   *zone, **zones;

    if (ngx_http_kv_router_read_conf == NULL) {
        return 1;
    }

    p = (u_char *) names;
    last = p + size - 1;

    zone = ngx_http_kv_router_named(&ngx_http_kv_router_read_conf->zones,
                                    name, len);
    if (zone) {
        return zone->conf.redis ? 2 : 1;
    }

    zones = ngx_http_kv_router_read_conf->zones.elts;

    for (i = 0; i < ngx_http_kv_router_read_conf->zones.nelts; i++) {
        p = ngx_slprintf(p, last, "%s%V", i ? "," : "", &zones[i]->conf.name);
    }

    *p = '\0';

    return 0;
}


uint32_t
ngx_http_kv_router_ffi_rungs(void *data, uint32_t holder, uint32_t generation)
{
    ngx_http_kv_router_zone_t *zone = data;

    uint32_t  worker;

    worker = kvr_router_holder_worker(&zone->run.router, holder);

    if (worker >= zone->run.sh->nworkers) {
        return 0;
    }

    return kvr_rungs_bits(&zone->run.sh->rungs[worker], generation);
}


void
ngx_http_kv_router_ffi_doubt(void *data, uint32_t holder)
{
    ngx_http_kv_router_zone_t *zone = data;

    uint32_t  worker;

    worker = kvr_router_holder_worker(&zone->run.router, holder);

    if (worker < zone->run.sh->nworkers) {
        kvr_rungs_doubt(&zone->run.sh->rungs[worker], ngx_current_msec);
    }
}


void
ngx_http_kv_router_ffi_count(void *data, uint32_t id)
{
    ngx_http_kv_router_zone_t *zone = data;

    if (id < NGX_HTTP_KV_ROUTER_COUNTERS) {
        (void) ngx_atomic_fetch_add(&zone->run.sh->counters[id], 1);
    }
}


/*
 * The seed is drawn by each process, so that nobody can choose texts that have
 * the same digest.
 */

void
ngx_http_kv_router_ffi_digest(const u_char *text, size_t len, uint64_t *out)
{
    static uint64_t  seed;

    while (seed == 0) {
        seed = ((uint64_t) ngx_random() << 32) ^ (uint64_t) ngx_random();
    }

    kvr_hash_digest(text, len, seed, out);
}


void
ngx_http_kv_router_ffi_tokens_by(ngx_http_request_t *r, void *zone,
    uint32_t rung, uint32_t why)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx && ctx->zone == zone && rung < NGX_HTTP_KV_ROUTER_RUNGS) {
        ctx->keys.rung = rung;
        ctx->keys.rung_why = why;

        if (rung == NGX_HTTP_KV_ROUTER_BY_LOCAL) {
            ctx->keys.route = kvr_route(ctx->prompt.form, KVR_FROM_MODEL);
        }
    }
}
