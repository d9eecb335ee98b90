
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Variables: what log_format can say of a decision.  "-" stands in a log where
 * a variable is not found.
 */


#include "ngx_http_kv_router_route.h"


/* X(name, value): the list of the variables */

#define NGX_HTTP_KV_ROUTER_VARIABLES(X)                                       \
    X("kv_router_worker", worker)                                             \
    X("kv_router_rank", rank)                                                 \
    X("kv_router_prefill_worker", prefill)                                    \
    X("kv_router_policy", policy)                                             \
    X("kv_router_overlap_blocks", overlap)                                    \
    X("kv_router_best_overlap_blocks", best)                                  \
    X("kv_router_cache_source", source)                                       \
    X("kv_router_prompt_blocks", blocks)                                      \
    X("kv_router_cached_tokens", cached)                                      \
    X("kv_router_confidence", confidence)                                     \
    X("kv_router_reason", reason)                                             \
    X("kv_router_rung", rung)                                                 \
    X("kv_router_rung_why", rung_why)                                         \
    X("kv_router_time", time)                                                 \
    X("kv_router_class", class)                                               \
    X("kv_router_tenant", tenant)                                             \
    X("kv_router_wait", wait)                                                 \
    X("kv_router_block_hashes", hashes)

#define ngx_http_kv_router_var_id(name, value)                                \
    ngx_http_kv_router_var_##value,

typedef enum {
    NGX_HTTP_KV_ROUTER_VARIABLES(ngx_http_kv_router_var_id)
} ngx_http_kv_router_var_e;


static ngx_int_t ngx_http_kv_router_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_http_kv_router_candidate_t *ngx_http_kv_router_cache_source(
    ngx_http_kv_router_ctx_t *ctx);
static ngx_int_t ngx_http_kv_router_variable_hashes(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_http_variable_value_t *v);


#define ngx_http_kv_router_var_row(name, value)                               \
    { ngx_string(name), NULL, ngx_http_kv_router_variable,                    \
      ngx_http_kv_router_var_##value, NGX_HTTP_VAR_NOCACHEABLE, 0 },

static ngx_http_variable_t  ngx_http_kv_router_vars[] = {
    NGX_HTTP_KV_ROUTER_VARIABLES(ngx_http_kv_router_var_row)
    ngx_http_null_variable
};


ngx_int_t
ngx_http_kv_router_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_kv_router_vars; v->name.len; v++) {

        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    double                           us;
    u_char                          *p;
    ngx_str_t                        s;
    ngx_http_kv_router_ctx_t        *ctx;
    ngx_http_kv_router_candidate_t  *c;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx && ctx->queue.begun) {

        /* a request that is refused has these, too */

        switch (data) {

        case ngx_http_kv_router_var_class:
            s = ctx->zone->run.queue->classes[ctx->queue.class].name;
            goto found;

        case ngx_http_kv_router_var_tenant:
            s = ctx->queue.tenant;
            goto found;

        case ngx_http_kv_router_var_wait:
            p = ngx_pnalloc(r->pool, NGX_INT64_LEN + sizeof(".000"));
            if (p == NULL) {
                return NGX_ERROR;
            }

            /* a request whose client has left waits still, as it is logged */

            us = ctx->queue.waited_us
                 + (ctx->times.waits_us ? ngx_http_kv_router_now_us()
                                          - ctx->times.waits_us : 0);
            s.data = p;
            s.len = ngx_sprintf(p, "%.3f", us / 1e6) - p;
            goto found;
        }
    }

    if (ctx == NULL || !ctx->choice.reserved
        || data == ngx_http_kv_router_var_class
        || data == ngx_http_kv_router_var_tenant
        || data == ngx_http_kv_router_var_wait)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    c = ctx->choice.chosen;

    if (data == ngx_http_kv_router_var_source) {
        c = ngx_http_kv_router_cache_source(ctx);
    }

    if (c == NULL
        || (data == ngx_http_kv_router_var_prefill
            && ctx->choice.prefiller == NULL)
        || (data == ngx_http_kv_router_var_cached
            && ctx->answer.cached_tokens < 0)
        || (data == ngx_http_kv_router_var_rung_why
            && ctx->keys.rung_why == 0))
    {
        v->not_found = 1;
        return NGX_OK;
    }

    if (data == ngx_http_kv_router_var_hashes) {
        return ngx_http_kv_router_variable_hashes(r, ctx, v);
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN + sizeof(".000000"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    s.data = p;
    s.len = 0;

    switch (data) {

    case ngx_http_kv_router_var_worker:
        s.data = (u_char *) c->worker;
        s.len = c->worker_len;
        break;

    case ngx_http_kv_router_var_rank:
        s.len = ngx_sprintf(p, "%uD", c->rank) - p;
        break;

    case ngx_http_kv_router_var_prefill:
        s.data = (u_char *) ctx->choice.prefiller->worker;
        s.len = ctx->choice.prefiller->worker_len;
        break;

    case ngx_http_kv_router_var_policy:
        s = ctx->choice.policy;
        break;

    case ngx_http_kv_router_var_overlap:
        s.len = ngx_sprintf(p, "%uD", c->device - c->predicted) - p;
        break;

    case ngx_http_kv_router_var_best:
        s.len = ngx_sprintf(p, "%uD", ctx->found.best) - p;
        break;

    case ngx_http_kv_router_var_source:
        s.data = (u_char *) c->address;
        s.len = c->address_len;
        break;

    case ngx_http_kv_router_var_blocks:
        s.len = ngx_sprintf(p, "%uD", ctx->found.match.prompt_blocks) - p;
        break;

    case ngx_http_kv_router_var_cached:
        s.len = ngx_sprintf(p, "%L", ctx->answer.cached_tokens) - p;
        break;

    case ngx_http_kv_router_var_confidence:
        s.data = (u_char *) kvr_confidence_name(c->confidence);
        s.len = ngx_strlen(s.data);
        break;

    case ngx_http_kv_router_var_reason:

        if (ctx->choice.why == NGX_HTTP_KV_ROUTER_BY_POLICY
            && ctx->choice.reason.len)
        {
            s = ctx->choice.reason;

        } else {
            s.data = (u_char *) ngx_http_kv_router_why_name(ctx->choice.why);
            s.len = ngx_strlen(s.data);
        }

        break;

    case ngx_http_kv_router_var_rung:
        s.data = (u_char *) ngx_http_kv_router_rung_name(ctx->keys.rung);
        s.len = ngx_strlen(s.data);
        break;

    case ngx_http_kv_router_var_rung_why:
        s.data = (u_char *) ngx_http_kv_router_why_name(ctx->keys.rung_why);
        s.len = ngx_strlen(s.data);
        break;

    default: /* ngx_http_kv_router_var_time */
        s.len = ngx_sprintf(p, "%L.%06L", (int64_t) ctx->choice.us / 1000000,
                            (int64_t) ctx->choice.us % 1000000)
                - p;
        break;
    }

found:

    v->data = s.data;
    v->len = s.len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


/*
 * The candidate that has more of the prompt than the chosen worker, and the
 * most of all; of several, the one with the fewest requests.  NULL: there is
 * none.
 */

static ngx_http_kv_router_candidate_t *
ngx_http_kv_router_cache_source(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i, most, has;
    ngx_http_kv_router_candidate_t  *c, *source, *chosen;

    source = NULL;
    chosen = ctx->choice.chosen;
    most = chosen->device - chosen->predicted;

    for (i = 0; i < ctx->found.match.n; i++) {

        c = &ctx->found.candidates[i];
        has = c->device - c->predicted;

        if (has > most
            || (source && has == most
                && c->active_requests < source->active_requests))
        {
            source = c;
            most = has;
        }
    }

    /* the ranks of a worker have one address */

    return source && source->worker != chosen->worker ? source : NULL;
}


/* Writes local hashes in hexadecimal, 16 digits each, joined by commas. */

static ngx_int_t
ngx_http_kv_router_variable_hashes(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_http_variable_value_t *v)
{
    u_char    *p;
    uint32_t   i;

    if (ctx->keys.ids.n == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, ctx->keys.ids.n * 17);
    if (p == NULL) {
        return NGX_ERROR;
    }

    v->data = p;

    for (i = 0; i < ctx->keys.ids.n; i++) {
        p = ngx_sprintf(p, "%016xL,", ctx->keys.ids.hash[i]);
    }

    v->len = p - 1 - v->data;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}
