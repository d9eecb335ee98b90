
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Why a request goes where it goes: POST /route of the API, and the header
 * x-kv-explain of a response.
 */


#include "ngx_http_kv_router_api.h"
#include "../request/ngx_http_kv_router_route.h"
#include "../status/ngx_http_kv_router_stats.h"

#include <math.h>


#define NGX_HTTP_KV_ROUTER_SHOW_MAX  1744   /* bytes of the header */
#define NGX_HTTP_KV_ROUTER_SHOW_TOP  5      /* candidates shown */


static void ngx_http_kv_router_gen_double(yajl_gen g, const char *key,
    double value);
static void ngx_http_kv_router_gen_known(yajl_gen g, const char *key,
    double value);
static void ngx_http_kv_router_gen_bytes(yajl_gen g, const char *key,
    const u_char *data, size_t len);
static void ngx_http_kv_router_explain_who(yajl_gen g,
    const ngx_http_kv_router_candidate_t *c);
static void ngx_http_kv_router_explain_candidate(yajl_gen g,
    const ngx_http_kv_router_candidate_t *c,
    const ngx_http_kv_router_choice_t *choice, uint32_t i);
static void ngx_http_kv_router_explain_json(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_choice_t *choice, yajl_gen g);
static ngx_int_t ngx_http_kv_router_show(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);
static uint32_t ngx_http_kv_router_show_next(ngx_http_kv_router_ctx_t *ctx,
    const uint32_t *shown, uint32_t n);
static u_char *ngx_http_kv_router_show_str(u_char *p, u_char *last,
    const u_char *data, size_t len);
static u_char *ngx_http_kv_router_show_cost(u_char *p, u_char *last,
    const ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c);
static ngx_int_t ngx_http_kv_router_header_filter(ngx_http_request_t *r);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;


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


static void
ngx_http_kv_router_explain_who(yajl_gen g,
    const ngx_http_kv_router_candidate_t *c)
{
    ngx_http_kv_router_gen_bytes(g, "worker_id", (u_char *) c->worker,
                                 c->worker_len);
    ngx_http_kv_router_gen_u64(g, "dp_rank", c->rank);
}


static void
ngx_http_kv_router_explain_candidate(yajl_gen g,
    const ngx_http_kv_router_candidate_t *c,
    const ngx_http_kv_router_choice_t *choice, uint32_t i)
{
    yajl_gen_map_open(g);

    ngx_http_kv_router_explain_who(g, c);

    ngx_http_kv_router_gen_bytes(g, "address", (u_char *) c->address,
                                 c->address_len);
    ngx_http_kv_router_gen_bytes(g, "model", (u_char *) c->model,
                                 c->model_len);
    ngx_http_kv_router_gen_str(g, "role", kvr_role_name(c->role));
    ngx_http_kv_router_gen_double(g, "weight", c->weight);
    ngx_http_kv_router_gen_u64(g, "max_active", c->max_active);
    ngx_http_kv_router_gen_adapters(g, "lora", c->lora);

    if (choice->costs) {
        ngx_http_kv_router_gen_double(g, "cost", choice->costs[i]);

    } else {
        ngx_http_kv_router_gen_key(g, "cost");
        yajl_gen_null(g);
    }

    ngx_http_kv_router_gen_key(g, "overlap");
    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_u64(g, "device", c->device);
    ngx_http_kv_router_gen_u64(g, "host", c->host);
    ngx_http_kv_router_gen_u64(g, "disk", c->disk);
    ngx_http_kv_router_gen_u64(g, "predicted", c->predicted);
    yajl_gen_map_close(g);

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
    yajl_gen_map_close(g);

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
    uint32_t                               i;
    const ngx_http_kv_router_candidate_t  *c;

    c = ctx->candidates;

    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_bytes(g, "zone", ctx->zone->name.data,
                                 ctx->zone->name.len);
    ngx_http_kv_router_gen_u64(g, "prompt_tokens", ctx->match.prompt_tokens);
    ngx_http_kv_router_gen_u64(g, "prompt_blocks", ctx->match.prompt_blocks);
    ngx_http_kv_router_gen_u64(g, "block_size", ctx->match.block_size);
    ngx_http_kv_router_gen_u64(g, "best_overlap_blocks", ctx->match.best);
    ngx_http_kv_router_gen_bool(g, "cut", ctx->match.cut);

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

    /* the values of $kv_router_tokens_by and $kv_router_tokens_why */

    ngx_http_kv_router_gen_str(g, "tokens_by",
                               ngx_http_kv_router_rung_name(ctx->rung));
    ngx_http_kv_router_gen_str(g, "tokens_why", ctx->rung_why
                               ? ngx_http_kv_router_why_name(ctx->rung_why)
                               : "");

    ngx_http_kv_router_gen_key(g, "chosen");

    if (choice->norder) {
        yajl_gen_map_open(g);
        ngx_http_kv_router_explain_who(g, &c[choice->order[0]]);
        yajl_gen_map_close(g);

    } else {
        yajl_gen_null(g);
    }

    ngx_http_kv_router_gen_key(g, "retries");
    yajl_gen_array_open(g);

    for (i = 1; i < choice->norder; i++) {
        yajl_gen_map_open(g);
        ngx_http_kv_router_explain_who(g, &c[choice->order[i]]);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);

    ngx_http_kv_router_gen_key(g, "prefill");
    yajl_gen_array_open(g);

    for (i = 0; i < choice->nprefill; i++) {
        yajl_gen_map_open(g);
        ngx_http_kv_router_explain_who(g, &c[choice->prefill[i]]);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);

    ngx_http_kv_router_gen_key(g, "candidates");
    yajl_gen_array_open(g);

    for (i = 0; i < ctx->match.n; i++) {
        ngx_http_kv_router_explain_candidate(g, &c[i], choice, i);
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

    if (ctx && ctx->reserved) {
        *err = "the request is routed already";
        return NGX_ERROR;
    }

    ctx = ngx_http_kv_router_make_ctx(r, zone);

    if (ctx == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    ctx->dry = 1;

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

    if (ctx == NULL || ctx->zone != zone || !ctx->matched) {
        *err = "there was no match for this request";
        return NGX_ERROR;
    }

    for (i = 0; i < choice->norder + choice->nprefill; i++) {

        if ((i < choice->norder ? choice->order[i]
                                : choice->prefill[i - choice->norder])
            >= ctx->match.n)
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


int
ngx_http_kv_router_ffi_show(ngx_http_request_t *r, void *zone,
    const double *costs)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->reserved) {
        return NGX_DECLINED;
    }

    ctx->show = 1;
    ctx->costs = NULL;

    if (costs) {
        ctx->costs = ngx_palloc(r->pool, ctx->match.n * sizeof(double));
        if (ctx->costs == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(ctx->costs, costs, ctx->match.n * sizeof(double));
        ngx_http_kv_router_decided_costs(ctx);
    }

    return NGX_OK;
}


/* ---- POST /route without a policy --------------------------------------- */

/*
 * A policy runs in Lua.  If the location calls router:api() in its access
 * phase, router:api() answers, and the request does not come here.
 */

ngx_int_t
ngx_http_kv_router_call_route(ngx_http_kv_router_call_t *c)
{
    int                                rc;
    char                              *err;
    ngx_http_kv_router_ctx_t          *ctx;
    ngx_http_kv_router_names_t         names;
    ngx_http_kv_router_choice_t        choice;
    ngx_http_kv_router_prompt_t        prompt;
    const ngx_http_kv_router_match_t  *match;

    static ngx_str_t  second = ngx_string("1");

    err = NULL;

    rc = ngx_http_kv_router_ffi_dry(c->request, c->zone, &err);

    ngx_memzero(&names, sizeof(ngx_http_kv_router_names_t));
    names.roles = NGX_HTTP_KV_ROUTER_ANY_ROLE;
    names.asked = 1;

    if (rc == NGX_OK) {
        rc = ngx_http_kv_router_ffi_prompt(c->request, c->zone, &names, NULL,
                                           0, &prompt, &err);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_kv_router_ffi_candidates(c->request, c->zone, 0, &match,
                                               &err);
    }

    if (rc == NGX_DECLINED || rc == NGX_BUSY) {

        if (ngx_http_kv_router_answer_header(c->request, "Retry-After",
                                             &second)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_kv_router_answer_error(c->answer,
                                               NGX_HTTP_SERVICE_UNAVAILABLE,
                                               "%s", err);
    }

    if (rc != NGX_OK) {
        return ngx_http_kv_router_answer_error(c->answer,
                                               NGX_HTTP_INTERNAL_SERVER_ERROR,
                                               "%s", err);
    }

    ctx = ngx_http_kv_router_get_ctx(c->request);

    ngx_memzero(&choice, sizeof(ngx_http_kv_router_choice_t));

    choice.why = match->why;

    if (match->why == NGX_HTTP_KV_ROUTER_BY_POLICY) {
        choice.reason = (u_char *) "no policy here: access_by_lua_block "
                                   "{ router:api() } in this location asks it";
        choice.reason_len = ngx_strlen(choice.reason);
    }

    ngx_http_kv_router_explain_json(ctx, &choice, c->answer->gen);

    return ngx_http_kv_router_call_ok(c);
}


/* ---- the header --------------------------------------------------------- */

/*
 * Finds the candidate to show next: of the candidates not shown yet, the one
 * with the largest part of the prompt, then with the least load.
 */

static uint32_t
ngx_http_kv_router_show_next(ngx_http_kv_router_ctx_t *ctx,
    const uint32_t *shown, uint32_t n)
{
    uint32_t                         i, k, best;
    ngx_http_kv_router_candidate_t  *c, *b;

    best = UINT32_MAX;

    for (i = 0; i < ctx->match.n; i++) {

        for (k = 0; k < n && shown[k] != i; k++) { /* void */ }

        if (k < n) {
            continue;
        }

        c = &ctx->candidates[i];
        b = (best == UINT32_MAX) ? NULL : &ctx->candidates[best];

        if (b == NULL || c->device > b->device
            || (c->device == b->device
                && c->active_requests < b->active_requests))
        {
            best = i;
        }
    }

    return best;
}


/* Writes a JSON string that is fit for a header, cut at the buffer's end. */

static u_char *
ngx_http_kv_router_show_str(u_char *p, u_char *last, const u_char *data,
    size_t len)
{
    size_t  i;

    if (last - p < 4) {
        return p;
    }

    *p++ = '"';

    for (i = 0; i < len && last - p > 3; i++) {

        if (data[i] == '"' || data[i] == '\\') {
            *p++ = '\\';
            *p++ = data[i];

        } else {
            *p++ = (data[i] < 0x20 || data[i] > 0x7e) ? '?' : data[i];
        }
    }

    *p++ = '"';

    return p;
}


static u_char *
ngx_http_kv_router_show_cost(u_char *p, u_char *last,
    const ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c)
{
    char      buf[32];
    double    cost;
    uint32_t  i;

    /* the policy saw no candidate that was out, though a retry may go there */

    i = c - ctx->candidates;
    cost = ctx->costs && i < ctx->match.n ? ctx->costs[i] : NAN;

    if (!isfinite(cost)) {
        return ngx_slprintf(p, last, "null");
    }

    (void) snprintf(buf, sizeof(buf), "%.6g", cost);

    return ngx_slprintf(p, last, "%s", buf);
}


static ngx_int_t
ngx_http_kv_router_show(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx)
{
    u_char                          *p, *start, *last;
    uint32_t                         i, n, shown[NGX_HTTP_KV_ROUTER_SHOW_TOP];
    ngx_str_t                        why, value;
    kvr_trust_view_t                 trust;
    ngx_http_kv_router_candidate_t  *c;

    start = ngx_pnalloc(r->pool, NGX_HTTP_KV_ROUTER_SHOW_MAX);
    if (start == NULL) {
        return NGX_ERROR;
    }

    /* only strings of the policy can be cut: all else fits into the buffer */

    last = start + NGX_HTTP_KV_ROUTER_SHOW_MAX;
    c = ctx->chosen;

    why = ctx->reason;

    if (ctx->why != NGX_HTTP_KV_ROUTER_BY_POLICY || why.len == 0) {
        why.data = (u_char *) ngx_http_kv_router_why_name(ctx->why);
        why.len = ngx_strlen(why.data);
    }

    p = ngx_slprintf(start, last, "{\"worker\":\"%*s\",\"rank\":%uD,"
                     "\"policy\":", (size_t) c->worker_len, c->worker,
                     c->rank);
    p = ngx_http_kv_router_show_str(p, p + 66, ctx->policy.data,
                                    ctx->policy.len);
    p = ngx_slprintf(p, last, ",\"reason\":");
    p = ngx_http_kv_router_show_str(p, p + 130, why.data, why.len);
    p = ngx_slprintf(p, last, ",\"tokens_by\":\"%s\",\"confidence\":\"%s\","
                     "\"cost\":", ngx_http_kv_router_rung_name(ctx->rung),
                     kvr_confidence_name(c->confidence));
    p = ngx_http_kv_router_show_cost(p, last, ctx, c);

    if (ctx->hashes) {
        ngx_http_kv_router_echo_trust(ctx->zone,
                                      kvr_router_holder_worker(
                                          &ctx->zone->router, c->holder),
                                      c->generation, ctx->route, &trust);

        p = ngx_slprintf(p, last, ",\"route\":\"%s\",\"trust\":\"%s\","
                         "\"echoes\":[%uL,%uL]", kvr_route_name(ctx->route),
                         kvr_trust_name(trust.state), trust.full,
                         trust.parted);
    }

    p = ngx_slprintf(p, last, ",\"overlap\":%uD,\"best\":%uD,\"blocks\":%uD,"
                     "%s\"candidates\":%uD,\"top\":[",
                     c->device, ctx->match.best, ctx->match.prompt_blocks,
                     ctx->match.cut ? "\"cut\":true," : "", ctx->match.n);

    n = ngx_min(ctx->match.n, NGX_HTTP_KV_ROUTER_SHOW_TOP);

    for (i = 0; i < n; i++) {
        shown[i] = ngx_http_kv_router_show_next(ctx, shown, i);
        c = &ctx->candidates[shown[i]];

        p = ngx_slprintf(p, last, "%s[\"%*s\",%uD,%uD,%L,", i ? "," : "",
                         (size_t) c->worker_len, c->worker, c->rank,
                         c->device, (int64_t) c->active_requests);
        p = ngx_http_kv_router_show_cost(p, last, ctx, c);
        p = ngx_slprintf(p, last, ",\"%s\"]",
                         kvr_confidence_name(c->confidence));
    }

    p = ngx_slprintf(p, last, "]}");

    value.data = start;
    value.len = p - start;

    return ngx_http_kv_router_answer_header(r, "x-kv-explain", &value);
}


static ngx_int_t
ngx_http_kv_router_header_filter(ngx_http_request_t *r)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = (r == r->main) ? ngx_http_kv_router_get_ctx(r) : NULL;

    if (ctx && ctx->show && ctx->reserved
        && ngx_http_kv_router_show(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(r);
}


void
ngx_http_kv_router_explain_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_kv_router_header_filter;
}
