
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What is counted of a request for histograms: times, reasons, statuses.
 */


#include "ngx_http_kv_router_route.h"


static char *ngx_http_kv_router_policy_copy(ngx_pool_t *pool,
    const u_char *data, size_t len, ngx_str_t *to);


void
ngx_http_kv_router_count_reason(ngx_http_kv_router_ctx_t *ctx)
{
    u_char  word[KVR_TALLY_LEN], *p, *last;

    last = word + KVR_TALLY_LEN;

    p = ngx_slprintf(word, last, "%V\n%V", &ctx->choice.policy,
                     &ctx->choice.reason);

    kvr_tally_add(&ctx->zone->run.sh->reasons, (char *) word, p - word);
}


void
ngx_http_kv_router_ffi_tokenized(void *data, double us)
{
    ngx_http_kv_router_zone_t *zone = data;

    kvr_histogram_add(&zone->run.sh->times[KVR_TIME_TOKENIZE],
                      KVR_TIME_TOKENIZE, (int64_t) us);
}


void
ngx_http_kv_router_ffi_waits(ngx_http_request_t *r, void *zone)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx && ctx->zone == zone && ctx->times.waits_us == 0) {
        ctx->times.waits_us = ngx_http_kv_router_now_us();
        kvr_load_wait(&ctx->zone->run.router.load, 1);
    }
}


void
ngx_http_kv_router_ffi_waited(ngx_http_request_t *r, void *zone)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx && ctx->zone == zone) {
        ngx_http_kv_router_waited(ctx);
    }
}


void
ngx_http_kv_router_waited(ngx_http_kv_router_ctx_t *ctx)
{
    double                       us;
    ngx_http_kv_router_class_t  *class;

    if (ctx->times.waits_us == 0) {
        return;
    }

    us = ngx_http_kv_router_now_us() - ctx->times.waits_us;
    ctx->queue.waited_us += us;
    ctx->times.waits_us = 0;

    kvr_load_wait(&ctx->zone->run.router.load, -1);

    class = ngx_http_kv_router_queue_class(ctx);

    if (class) {
        kvr_histogram_add(&class->wait, KVR_TIME_WAIT, (int64_t) us);
    }
}


/* The worker is the last one that was tried. */

void
ngx_http_kv_router_count_end(ngx_http_kv_router_ctx_t *ctx)
{
    int64_t              first_byte;
    uint32_t             worker;
    ngx_uint_t           status;
    ngx_http_request_t  *r;

    if (!ctx->choice.reserved || ctx->choice.dry || ctx->try.tries == 0) {
        return;
    }

    r = ctx->request;
    worker = kvr_router_holder_worker(&ctx->zone->run.router,
                                      ctx->choice.chosen->holder);

    if (worker >= ctx->zone->run.sh->nworkers) {
        return;                         /* the worker was taken out */
    }

    status = r->err_status ? r->err_status : r->headers_out.status;

    if (!r->header_sent || status >= 500) {
        ngx_http_kv_router_count(ctx->zone->run.sh, FAILED, 1);
    }

    first_byte = -1;

    if (ctx->times.first_byte_us) {
        first_byte = (int64_t) (ctx->times.first_byte_us
                                - ctx->times.began_us);
        kvr_histogram_add(&ctx->zone->run.sh->times[KVR_TIME_FIRST_BYTE],
                          KVR_TIME_FIRST_BYTE, first_byte);
    }

    kvr_served_add(&ctx->zone->run.sh->served[worker],
                   ctx->choice.chosen->generation,
                   r->header_sent ? status : 0, first_byte);
}


void
ngx_http_kv_router_ffi_policy(const u_char *name, size_t len,
    const u_char *policy, size_t policy_len, const u_char *conf,
    size_t conf_len)
{
    ngx_cycle_t                *cycle;
    ngx_http_kv_router_zone_t  *zone;

    cycle = ngx_http_kv_router_models_cycle();

    zone = ngx_http_kv_router_find_zone(cycle, name, len);

    if (zone == NULL
        || ngx_http_kv_router_policy_copy(cycle->pool, conf, conf_len,
                                          &zone->run.policy_conf) == NULL
        || ngx_http_kv_router_policy_copy(cycle->pool, policy, policy_len,
                                          &zone->run.policy) == NULL)
    {
        return;                 /* kv.new() itself says what is wrong */
    }

    zone->run.policy_loaded = ngx_time();
}


/*
 * The master reads a new configuration.  The processes of the one that serves
 * tell of it, by the zone that they share with the master.
 */

void
ngx_http_kv_router_ffi_not_made(const u_char *name, size_t len,
    const u_char *why, size_t why_len)
{
    size_t                       i, n;
    ngx_cycle_t                 *cycle;
    ngx_http_kv_router_zone_t   *zone;
    ngx_http_kv_router_shctx_t  *sh;

    cycle = ngx_http_kv_router_models_serving();

    if (cycle == NULL) {
        return;                 /* no reload: who starts nginx is told */
    }

    zone = ngx_http_kv_router_find_zone(cycle, name, len);

    if (zone == NULL || zone->run.sh == NULL) {
        return;
    }

    sh = zone->run.sh;
    n = ngx_min(why_len, NGX_HTTP_KV_ROUTER_REFUSED_MAX - 1);

    ngx_memzero(sh->refused, NGX_HTTP_KV_ROUTER_REFUSED_MAX);

    for (i = 0; i < n; i++) {
        sh->refused[i] = (why[i] >= ' ' && why[i] < 0x7f) ? why[i] : '?';
    }

    sh->refused_at = ngx_time();
}


/* The memory of a shorter text is used again: routers may be made often. */

static char *
ngx_http_kv_router_policy_copy(ngx_pool_t *pool, const u_char *data,
    size_t len, ngx_str_t *to)
{
    if (to->data == NULL || to->len < len) {

        to->data = ngx_pnalloc(pool, len + 1);
        if (to->data == NULL) {
            to->len = 0;
            return NULL;
        }
    }

    ngx_memcpy(to->data, data, len);
    to->len = len;

    return (char *) to->data;
}
