
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Why a request goes where it goes: POST /route of the API.
 */


#include "ngx_http_kv_router_api.h"
#include "../request/ngx_http_kv_router_route.h"
#include "../status/ngx_http_kv_router_stats.h"

#include <math.h>


/* ---- as JSON ------------------------------------------------------------ */

static void
ngx_http_kv_router_gen_double(yajl_gen g, const char *key, double value)
{
    char  buf[32];

    ngx_http_kv_router_gen_key(g, key);

    if (!isfinite(value)) {
        yajl_gen_null(g);
        return;
    }

    (void) snprintf(buf, sizeof(buf), "%.12g", value);
    yajl_gen_number(g, buf, ngx_strlen(buf));
}


static void
ngx_http_kv_router_gen_known(yajl_gen g, const char *key, double value)
{
    ngx_http_kv_router_gen_double(g, key, value < 0 ? NAN : value);
}


static void
ngx_http_kv_router_gen_bytes(yajl_gen g, const char *key, const u_char *data,
    size_t len)
{
    ngx_http_kv_router_gen_key(g, key);

    if (data == NULL) {
        yajl_gen_null(g);
        return;
    }

    yajl_gen_string(g, data, len);
}


/* Begins the object of a worker; the caller ends it. */

static void
ngx_http_kv_router_explain_who(yajl_gen g,
    const ngx_http_kv_router_candidate_t *c)
{
    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_bytes(g, "worker_id", (u_char *) c->worker,
                                 c->worker_len);
    ngx_http_kv_router_gen_u64(g, "dp_rank", c->rank);
}


/* The workers of a list, from first to last - 1. */

static void
ngx_http_kv_router_explain_all(yajl_gen g, const char *key,
    const ngx_http_kv_router_candidate_t *c, const uint32_t *list,
    uint32_t first, uint32_t last)
{
    uint32_t  i;

    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_array_open(g);

    for (i = first; i < last; i++) {
        ngx_http_kv_router_explain_who(g, &c[list[i]]);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
}


/* The part of a candidate's load that other routers have told. */

static void
ngx_http_kv_router_explain_peers(ngx_http_kv_router_ctx_t *ctx, yajl_gen g,
    const ngx_http_kv_router_candidate_t *c)
{
    kvr_load_row_t      load;
    const kvr_peers_t  *peers;

    peers = &ctx->zone->run.router.peers;

    if (!kvr_peers_fresh(peers, ngx_current_msec)) {
        return;
    }

    ngx_memzero(&load, sizeof(kvr_load_row_t));
    kvr_peers_add(peers, c->holder, c->generation, ngx_current_msec, &load);

    ngx_http_kv_router_gen_key(g, "peers");
    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_u64(g, "active_requests", load.active);
    ngx_http_kv_router_gen_u64(g, "prefill_tokens", load.prefill_tokens);
    ngx_http_kv_router_gen_u64(g, "decode_blocks", load.decode_blocks);
    yajl_gen_map_close(g);
}


void
ngx_http_kv_router_explain_overlap(yajl_gen g,
    const ngx_http_kv_router_candidate_t *c)
{
    ngx_http_kv_router_gen_map(g, "overlap");
    ngx_http_kv_router_gen_u64(g, "device", c->device);
    ngx_http_kv_router_gen_u64(g, "host", c->host);
    ngx_http_kv_router_gen_u64(g, "disk", c->disk);
    ngx_http_kv_router_gen_u64(g, "predicted", c->predicted);
    yajl_gen_map_close(g);
}


static void
ngx_http_kv_router_explain_candidate(ngx_http_kv_router_ctx_t *ctx, yajl_gen g,
    const ngx_http_kv_router_candidate_t *c,
    const ngx_http_kv_router_choice_t *choice, uint32_t i)
{
    const uint8_t  *foreign;

    foreign = ctx->found.match.foreign;

    ngx_http_kv_router_explain_who(g, c);

    ngx_http_kv_router_gen_bytes(g, "address", (u_char *) c->address,
                                 c->address_len);
    ngx_http_kv_router_gen_bytes(g, "model", (u_char *) c->model,
                                 c->model_len);
    ngx_http_kv_router_gen_str(g, "role", kvr_role_name(c->role));
    ngx_http_kv_router_gen_double(g, "weight", c->weight);
    ngx_http_kv_router_gen_u64(g, "max_active", c->max_active);
    ngx_http_kv_router_gen_adapters(g, "lora", c->lora);

    ngx_http_kv_router_gen_double(g, "cost",
                                  choice->costs ? choice->costs[i] : NAN);

    ngx_http_kv_router_explain_overlap(g, c);

    ngx_http_kv_router_gen_str(g, "confidence",
                               kvr_confidence_name(c->confidence));
    ngx_http_kv_router_gen_str(g, "reason", c->reason);
    ngx_http_kv_router_gen_known(g, "age", c->age);
    ngx_http_kv_router_gen_str(g, "health", kvr_health_name(c->health));

    ngx_http_kv_router_gen_key(g, "load");
    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_double(g, "active_requests", c->active_requests);
    ngx_http_kv_router_gen_double(g, "active_prefills", c->active_prefills);
    ngx_http_kv_router_gen_double(g, "prefill_tokens", c->prefill_tokens);
    ngx_http_kv_router_gen_double(g, "prefill_tokens_per_second",
                                  c->prefill_tps > 0 ? c->prefill_tps : NAN);
    ngx_http_kv_router_gen_double(g, "decode_blocks", c->decode_blocks);
    ngx_http_kv_router_gen_double(g, "additional_blocks",
                                  c->additional_blocks);
    ngx_http_kv_router_gen_double(g, "in_flight", c->in_flight);
    ngx_http_kv_router_gen_double(g, "churn", c->churn);
    ngx_http_kv_router_explain_peers(ctx, g, c);
    yajl_gen_map_close(g);

    if (foreign) {
        ngx_http_kv_router_gen_bool(g, "home", !foreign[c->holder]);
    }

    ngx_http_kv_router_gen_key(g, "reported");
    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_known(g, "waiting_requests", c->reported_waiting);
    ngx_http_kv_router_gen_known(g, "running_requests", c->reported_running);
    ngx_http_kv_router_gen_known(g, "kv_usage", c->reported_usage);
    yajl_gen_map_close(g);

    yajl_gen_map_close(g);
}


static void
ngx_http_kv_router_explain_json(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_choice_t *choice, yajl_gen g)
{
    uint32_t                               i, rung_why;
    const ngx_http_kv_router_match_t      *match;
    const ngx_http_kv_router_candidate_t  *c;

    c = ctx->found.candidates;
    match = &ctx->found.match;
    rung_why = ctx->keys.rung_why;

    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_bytes(g, "zone", ctx->zone->conf.name.data,
                                 ctx->zone->conf.name.len);
    ngx_http_kv_router_gen_u64(g, "prompt_tokens", match->prompt_tokens);
    ngx_http_kv_router_gen_u64(g, "prompt_blocks", match->prompt_blocks);
    ngx_http_kv_router_gen_u64(g, "block_size", match->block_size);
    ngx_http_kv_router_gen_u64(g, "best_overlap_blocks", match->best);
    ngx_http_kv_router_gen_bool(g, "cut", match->cut);

    /* the values of $kv_router_policy and $kv_router_reason */

    ngx_http_kv_router_gen_bytes(g, "policy", choice->policy,
                                 choice->policy_len);

    if (choice->why == NGX_HTTP_KV_ROUTER_BY_POLICY && choice->reason) {
        ngx_http_kv_router_gen_bytes(g, "reason", choice->reason,
                                     choice->reason_len);

    } else {
        ngx_http_kv_router_gen_str(g, "reason",
                                   ngx_http_kv_router_why_name(choice->why));
    }

    /* the values of $kv_router_rung and $kv_router_rung_why */

    ngx_http_kv_router_gen_str(g, "rung",
                               ngx_http_kv_router_rung_name(ctx->keys.rung));
    ngx_http_kv_router_gen_str(g, "rung_why", rung_why
                               ? ngx_http_kv_router_why_name(rung_why) : "");

    ngx_http_kv_router_gen_key(g, "chosen");

    if (choice->norder) {
        ngx_http_kv_router_explain_who(g, &c[choice->order[0]]);
        yajl_gen_map_close(g);

    } else {
        yajl_gen_null(g);
    }

    ngx_http_kv_router_explain_all(g, "retries", c, choice->order, 1,
                                   choice->norder);
    ngx_http_kv_router_explain_all(g, "prefill", c, choice->prefill, 0,
                                   choice->nprefill);

    ngx_http_kv_router_gen_key(g, "candidates");
    yajl_gen_array_open(g);

    for (i = 0; i < ctx->found.match.n; i++) {
        ngx_http_kv_router_explain_candidate(ctx, g, &c[i], choice, i);
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}


/* ---- for Lua ------------------------------------------------------------ */

int
ngx_http_kv_router_ffi_dry(ngx_http_request_t *r, void *zone, char **err)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx && ctx->choice.reserved) {
        *err = "the request is routed already";
        return NGX_ERROR;
    }

    ctx = ngx_http_kv_router_make_ctx(r, zone);

    if (ctx == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    ctx->choice.dry = 1;

    return NGX_OK;
}


int
ngx_http_kv_router_ffi_explain(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_choice_t *choice, char **out, size_t *len,
    char **err)
{
    size_t                     n;
    uint32_t                   i;
    yajl_gen                   g;
    const u_char              *text;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->found.matched) {
        *err = "there was no match for this request";
        return NGX_ERROR;
    }

    for (i = 0; i < choice->norder + choice->nprefill; i++) {

        if ((i < choice->norder ? choice->order[i]
                                : choice->prefill[i - choice->norder])
            >= ctx->found.match.n)
        {
            *err = "no such candidate";
            return NGX_ERROR;
        }
    }

    g = yajl_gen_alloc(NULL);
    if (g == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    ngx_http_kv_router_explain_json(ctx, choice, g);

    *out = NULL;

    if (yajl_gen_get_buf(g, &text, &n) == yajl_gen_status_ok) {
        *out = malloc(n + 1);

        if (*out) {
            ngx_memcpy(*out, text, n);
            *len = n;
        }
    }

    yajl_gen_free(g);

    if (*out == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* ---- POST /route without router:api() ----------------------------------- */

ngx_int_t
ngx_http_kv_router_call_route(ngx_http_kv_router_call_t *c)
{
    return ngx_http_kv_router_call_no_router(c, "route");
}


ngx_int_t
ngx_http_kv_router_call_no_router(ngx_http_kv_router_call_t *c,
    const char *call)
{
    return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_NOT_FOUND,
                                           "\"%s\" asks the policy of a "
                                           "router, and none is here: write "
                                           "\"access_by_lua_block "
                                           "{ router:api() }\" in this "
                                           "location", call);
}
