
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_route.h"

#include <request/kvr_tokens.h>


typedef struct {
    ngx_str_t                       lora;
    ngx_str_t                       salt;      /* data NULL: the body's */
    ngx_str_t                       model;     /* data NULL: any */
} ngx_http_kv_router_names_t;


static ngx_http_kv_router_ctx_t *ngx_http_kv_router_make_ctx(
    ngx_http_request_t *r, ngx_http_kv_router_zone_t *zone);
static void ngx_http_kv_router_cleanup(void *data);
static void ngx_http_kv_router_release(ngx_http_kv_router_ctx_t *ctx);

static ngx_uint_t ngx_http_kv_router_body(ngx_http_request_t *r,
    ngx_str_t *body);
static ngx_uint_t ngx_http_kv_router_scan(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, kvr_prompt_t *prompt,
    uint32_t **tokens);
static ngx_int_t ngx_http_kv_router_hash(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, const uint32_t *tokens, size_t n,
    ngx_http_kv_router_names_t *names);
static ngx_int_t ngx_http_kv_router_fill(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_http_kv_router_names_t *names);
static ngx_uint_t ngx_http_kv_router_eligible(ngx_http_kv_router_holder_t *h,
    ngx_http_kv_router_names_t *names, ngx_uint_t strict);
static void ngx_http_kv_router_candidate(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_holder_t *h, ngx_http_kv_router_candidate_t *c);
static uint32_t ngx_http_kv_router_best_left(ngx_http_kv_router_ctx_t *ctx);
static void ngx_http_kv_router_go(ngx_http_kv_router_ctx_t *ctx, uint32_t i);
static ngx_int_t ngx_http_kv_router_copy_str(ngx_pool_t *pool, ngx_str_t *to,
    const u_char *data, size_t len);

static ngx_int_t ngx_http_kv_router_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);


static ngx_http_output_body_filter_pt  ngx_http_next_body_filter;


/*
 * Buffers of this process, used within one call: token ids of a prompt and
 * what the lookup finds.  They grow to the largest that was needed, bounded
 * by kv_router_max_tokens and max_workers.
 */

static uint32_t     *ngx_http_kv_router_tokens;
static size_t        ngx_http_kv_router_tokens_size;
static kvr_match_t  *ngx_http_kv_router_matches;
static uint32_t      ngx_http_kv_router_matches_size;
static kvr_hasher_t  ngx_http_kv_router_hasher;


double
ngx_http_kv_router_now_us(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}


/* ---- context -------------------------------------------------------------- */

ngx_http_kv_router_ctx_t *
ngx_http_kv_router_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kv_router_module);

    if (ctx || r != r->main) {
        return ctx;
    }

    /* an internal redirect has zeroed the contexts */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_kv_router_cleanup) {
            ctx = cln->data;
            ngx_http_set_ctx(r, ctx, ngx_http_kv_router_module);
            return ctx;
        }
    }

    return NULL;
}


static ngx_http_kv_router_ctx_t *
ngx_http_kv_router_make_ctx(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_kv_router_ctx_t    *ctx;
    ngx_http_kv_router_fleet_t  *fleet;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx && ctx->zone == zone) {
        return ctx;
    }

    if (ctx) {
        /* routed by another zone before: that is over now */
        ngx_http_kv_router_release(ctx);
        ngx_http_kv_router_fleet_put(ctx->fleet);
        ctx->fleet = NULL;

    } else {

        cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_kv_router_ctx_t));
        if (cln == NULL) {
            return NULL;
        }

        ctx = cln->data;
        ngx_memzero(ctx, sizeof(ngx_http_kv_router_ctx_t));
        ctx->reservation.holder = KVR_HOLDER_NONE;

        cln->handler = ngx_http_kv_router_cleanup;

        ngx_http_set_ctx(r, ctx, ngx_http_kv_router_module);
    }

    fleet = ngx_http_kv_router_fleet_get(zone);
    if (fleet == NULL) {
        return NULL;
    }

    ngx_memzero(ctx, sizeof(ngx_http_kv_router_ctx_t));
    ctx->reservation.holder = KVR_HOLDER_NONE;
    ctx->zone = zone;
    ctx->fleet = fleet;

    return ctx;
}


static void
ngx_http_kv_router_cleanup(void *data)
{
    ngx_http_kv_router_ctx_t *ctx = data;

    if (ctx->fleet == NULL) {
        return;
    }

    ngx_http_kv_router_release(ctx);
    ngx_http_kv_router_fleet_put(ctx->fleet);
    ctx->fleet = NULL;
}


static void
ngx_http_kv_router_release(ngx_http_kv_router_ctx_t *ctx)
{
    kvr_load_release(&ctx->zone->router.load, &ctx->reservation);
}


/* ---- the prompt ----------------------------------------------------------- */

/*
 * The body in one piece.  NGX_HTTP_KV_ROUTER_NO_BODY, or _BAD_BODY when it
 * can't be read.
 */

static ngx_uint_t
ngx_http_kv_router_body(ngx_http_request_t *r, ngx_str_t *body)
{
    u_char       *p;
    size_t        len;
    off_t         size;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        return NGX_HTTP_KV_ROUTER_NO_BODY;
    }

    cl = r->request_body->bufs;

    if (cl->next == NULL && ngx_buf_in_memory(cl->buf)) {
        body->data = cl->buf->pos;
        body->len = cl->buf->last - cl->buf->pos;

        return body->len ? NGX_HTTP_KV_ROUTER_BY_POLICY
                         : NGX_HTTP_KV_ROUTER_NO_BODY;
    }

    size = 0;

    for ( /* void */ ; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    if (size == 0) {
        return NGX_HTTP_KV_ROUTER_NO_BODY;
    }

    p = ngx_palloc(r->pool, size);
    if (p == NULL) {
        return NGX_HTTP_KV_ROUTER_BAD_BODY;
    }

    body->data = p;
    body->len = size;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {

        b = cl->buf;
        len = ngx_buf_size(b);

        if (ngx_buf_in_memory(b)) {
            p = ngx_cpymem(p, b->pos, len);
            continue;
        }

        n = len ? ngx_read_file(b->file, p, len, b->file_pos) : 0;

        if (n != (ssize_t) len) {
            return NGX_HTTP_KV_ROUTER_BAD_BODY;
        }

        p += len;
    }

    return NGX_HTTP_KV_ROUTER_BY_POLICY;
}


static ngx_uint_t
ngx_http_kv_router_scan(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, kvr_prompt_t *prompt, uint32_t **tokens)
{
    size_t      n;
    uint32_t   *p;
    ngx_str_t   body;
    ngx_uint_t  why;

    prompt->model = NULL;
    prompt->salt = NULL;
    prompt->ntokens = 0;

    why = ngx_http_kv_router_body(r, &body);

    if (why != NGX_HTTP_KV_ROUTER_BY_POLICY) {
        return why;
    }

    n = ngx_min(body.len / 2 + 1, zone->max_tokens);

    if (n > ngx_http_kv_router_tokens_size) {

        n = ngx_min(ngx_max(n, 65536), zone->max_tokens);

        p = ngx_alloc(n * sizeof(uint32_t), r->connection->log);
        if (p == NULL) {
            return NGX_HTTP_KV_ROUTER_TOO_LONG;
        }

        ngx_free(ngx_http_kv_router_tokens);
        ngx_http_kv_router_tokens = p;
        ngx_http_kv_router_tokens_size = n;
    }

    *tokens = ngx_http_kv_router_tokens;

    switch (kvr_prompt_scan(prompt, (char *) body.data, body.len, *tokens,
                            ngx_http_kv_router_tokens_size))
    {
    case KVR_OK:
        return prompt->kind == KVR_PROMPT_NONE ? NGX_HTTP_KV_ROUTER_NO_TOKENS
                                               : NGX_HTTP_KV_ROUTER_BY_POLICY;

    case KVR_FULL:
        return NGX_HTTP_KV_ROUTER_TOO_LONG;

    default:
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "kv_router: %s at byte %uz of the body",
                      prompt->error, prompt->error_at);
        prompt->model = NULL;
        prompt->salt = NULL;

        return NGX_HTTP_KV_ROUTER_BAD_BODY;
    }
}


static ngx_int_t
ngx_http_kv_router_hash(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    const uint32_t *tokens, size_t n, ngx_http_kv_router_names_t *names)
{
    uint32_t  block_size;

    block_size = ctx->zone->params.block_size;

    ctx->match.prompt_tokens = n;
    ctx->match.prompt_blocks = n / block_size;

    if (ctx->match.prompt_blocks == 0) {
        ctx->match.why = NGX_HTTP_KV_ROUTER_SHORT;
        return NGX_OK;
    }

    ctx->hashes = ngx_palloc(r->pool, ctx->match.prompt_blocks
                                      * sizeof(uint64_t));
    if (ctx->hashes == NULL) {
        return NGX_ERROR;
    }

    kvr_hasher_init(&ngx_http_kv_router_hasher,
                    kvr_hash_seed((char *) names->lora.data, names->lora.len,
                                  (char *) names->salt.data,
                                  names->salt.len));

    (void) kvr_hash_blocks(&ngx_http_kv_router_hasher, tokens, n, block_size,
                           ctx->hashes);

    return NGX_OK;
}


/* ---- candidates ----------------------------------------------------------- */

static ngx_uint_t
ngx_http_kv_router_eligible(ngx_http_kv_router_holder_t *h,
    ngx_http_kv_router_names_t *names, ngx_uint_t strict)
{
    if (h->draining) {
        return 0;
    }

    if (!strict) {
        return 1;
    }

    /* prefill and decode workers are for policies that ask for pairs */

    if (h->role != KVR_ROLE_BOTH) {
        return 0;
    }

    return names->model.data == NULL || h->model.len == 0
           || (h->model.len == names->model.len
               && ngx_memcmp(h->model.data, names->model.data, h->model.len)
                  == 0);
}


static void
ngx_http_kv_router_candidate(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_holder_t *h, ngx_http_kv_router_candidate_t *c)
{
    uint64_t         last;
    kvr_load_row_t   load;
    kvr_worker_t    *w;

    w = &ctx->zone->router.fleet.workers[h->worker];

    kvr_load_read(&ctx->zone->router.load, h->holder, &load);

    c->active_requests = load.active;
    c->active_prefills = load.prefills;
    c->prefill_tokens = load.prefill_tokens;
    c->decode_blocks = load.decode_blocks;
    c->additional_blocks = ctx->match.prompt_blocks;
    c->weight = h->weight;

    last = kvr_load64(&w->stream.last_ms);
    c->age = last == 0 ? -1 : last >= ngx_current_msec
                              ? 0 : (ngx_current_msec - last) / 1000.0;

    c->holder = h->holder;
    c->generation = h->generation;
    c->rank = h->rank;
    c->device = 0;
    c->host = 0;
    c->disk = 0;
    c->role = h->role;
    c->confidence = kvr_fleet_confidence(w, ngx_current_msec,
                                         ctx->zone->stale);
    c->max_active = h->max_active;
    c->worker_len = h->id.len;
    c->address_len = h->address.len;
    c->model_len = h->model.len;
    c->worker = (char *) h->id.data;
    c->address = (char *) h->address.data;
    c->model = (char *) h->model.data;
}


/* Eligible holders with their load, then what of the prompt each has. */

static ngx_int_t
ngx_http_kv_router_fill(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_names_t *names)
{
    uint32_t                         i, k, n, found, strict, max, *where;
    kvr_match_t                     *m;
    ngx_http_kv_router_holder_t     *h;
    ngx_http_kv_router_candidate_t  *c;

    ctx->candidates = ngx_palloc(r->pool, (ctx->fleet->n + 1)
                                 * sizeof(ngx_http_kv_router_candidate_t));
    where = ngx_pcalloc(r->pool, (ctx->fleet->n + 1) * sizeof(uint32_t));

    if (ctx->candidates == NULL || where == NULL) {
        return NGX_ERROR;
    }

    n = 0;

    for (strict = 2; strict-- > 0 && n == 0; /* void */ ) {

        for (i = 0; i < ctx->fleet->n; i++) {
            h = &ctx->fleet->holders[i];

            if (ngx_http_kv_router_eligible(h, names, strict)) {
                ngx_http_kv_router_candidate(ctx, h, &ctx->candidates[n]);
                where[i] = ++n;
            }
        }

        if (n && !strict && ctx->match.why == 0) {
            ctx->match.why = NGX_HTTP_KV_ROUTER_NO_ELIGIBLE;
        }
    }

    ctx->match.n = n;
    ctx->match.candidates = ctx->candidates;

    if (n == 0) {
        return NGX_DECLINED;
    }

    if (ctx->hashes == NULL) {
        return NGX_OK;
    }

    max = ctx->zone->router.fleet.zone->max_holders;

    if (max > ngx_http_kv_router_matches_size) {
        m = ngx_alloc(max * sizeof(kvr_match_t), r->connection->log);
        if (m == NULL) {
            return NGX_ERROR;
        }

        ngx_free(ngx_http_kv_router_matches);
        ngx_http_kv_router_matches = m;
        ngx_http_kv_router_matches_size = max;
    }

    m = ngx_http_kv_router_matches;
    found = kvr_router_find(&ctx->zone->router, ctx->hashes,
                            ctx->match.prompt_blocks, m, max);

    for (i = 0; i < found; i++) {

        k = ctx->fleet->by_holder[m[i].holder];

        if (k == 0 || where[k - 1] == 0) {
            continue;
        }

        c = &ctx->candidates[where[k - 1] - 1];
        c->device = m[i].device;
        c->host = m[i].host;
        c->disk = m[i].disk;

        ctx->match.best = ngx_max(ctx->match.best, c->device);
    }

    return NGX_OK;
}


static int
ngx_http_kv_router_match(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, const uint32_t *tokens, size_t ntokens,
    ngx_uint_t why, ngx_http_kv_router_names_t *names,
    const ngx_http_kv_router_match_t **out, char **err)
{
    ngx_int_t                  rc;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_make_ctx(r, zone);
    if (ctx == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    ngx_memzero(&ctx->match, sizeof(ngx_http_kv_router_match_t));
    ctx->match.block_size = zone->params.block_size;
    ctx->match.why = why;
    ctx->hashes = NULL;

    if (why == NGX_HTTP_KV_ROUTER_BY_POLICY
        && ngx_http_kv_router_hash(r, ctx, tokens, ntokens, names) != NGX_OK)
    {
        *err = "no memory";
        return NGX_ERROR;
    }

    rc = ngx_http_kv_router_fill(r, ctx, names);

    if (rc == NGX_ERROR) {
        *err = "no memory";
        return NGX_ERROR;
    }

    ctx->matched = 1;
    *out = &ctx->match;

    if (rc == NGX_DECLINED) {
        *err = "no worker";
    }

    return rc;
}


static void
ngx_http_kv_router_names(ngx_http_kv_router_names_t *names,
    const u_char *lora, size_t lora_len, const u_char *salt, size_t salt_len,
    const u_char *model, size_t model_len)
{
    names->lora.data = (u_char *) lora;
    names->lora.len = lora ? lora_len : 0;
    names->salt.data = (u_char *) salt;
    names->salt.len = salt ? salt_len : 0;
    names->model.data = (u_char *) model;
    names->model.len = model ? model_len : 0;
}


int
ngx_http_kv_router_ffi_match(ngx_http_request_t *r, void *zone,
    const u_char *lora, size_t lora_len, const u_char *salt, size_t salt_len,
    const u_char *model, size_t model_len,
    const ngx_http_kv_router_match_t **out, char **err)
{
    uint32_t                    *tokens;
    ngx_uint_t                   why;
    kvr_prompt_t                 prompt;
    ngx_http_kv_router_names_t   names;

    tokens = NULL;
    why = ngx_http_kv_router_scan(r, zone, &prompt, &tokens);

    ngx_http_kv_router_names(&names, lora, lora_len, salt, salt_len, model,
                             model_len);

    if (salt == NULL && prompt.salt) {
        names.salt.data = (u_char *) prompt.salt;
        names.salt.len = prompt.salt_len;
    }

    if (model == NULL && prompt.model) {
        names.model.data = (u_char *) prompt.model;
        names.model.len = prompt.model_len;
    }

    return ngx_http_kv_router_match(r, zone, tokens, prompt.ntokens, why,
                                    &names, out, err);
}


int
ngx_http_kv_router_ffi_match_tokens(ngx_http_request_t *r, void *data,
    const uint32_t *tokens, size_t ntokens,
    const u_char *lora, size_t lora_len, const u_char *salt, size_t salt_len,
    const u_char *model, size_t model_len,
    const ngx_http_kv_router_match_t **out, char **err)
{
    ngx_http_kv_router_zone_t *zone = data;

    ngx_http_kv_router_names_t  names;

    ngx_http_kv_router_names(&names, lora, lora_len, salt, salt_len, model,
                             model_len);

    return ngx_http_kv_router_match(r, zone, tokens, ntokens,
                                    ntokens > zone->max_tokens
                                    ? NGX_HTTP_KV_ROUTER_TOO_LONG
                                    : NGX_HTTP_KV_ROUTER_BY_POLICY,
                                    &names, out, err);
}


/* ---- the decision --------------------------------------------------------- */

static ngx_int_t
ngx_http_kv_router_copy_str(ngx_pool_t *pool, ngx_str_t *to,
    const u_char *data, size_t len)
{
    to->len = 0;
    to->data = ngx_pnalloc(pool, len + 1);

    if (to->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(to->data, data, len);
    to->len = len;

    return NGX_OK;
}


/* The reservation is for candidate i from now on, and its load there. */

static void
ngx_http_kv_router_go(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    uint32_t                         cached;
    kvr_reservation_t               *s;
    ngx_http_kv_router_candidate_t  *c;

    ngx_http_kv_router_release(ctx);

    c = &ctx->candidates[i];
    s = &ctx->reservation;

    cached = ngx_min(c->device * ctx->match.block_size,
                     ctx->match.prompt_tokens);

    s->holder = c->holder;
    s->generation = c->generation;
    s->prefilling = 1;
    s->prefill_tokens = ctx->match.prompt_tokens - cached;
    s->decode_blocks = ctx->match.prompt_blocks;

    kvr_load_reserve(&ctx->zone->router.load, s);

    ctx->chosen = c;
    ctx->tried[i] = 1;
}


int
ngx_http_kv_router_ffi_reserve(ngx_http_request_t *r, void *zone,
    uint32_t i, const uint32_t *ranked, size_t nranked,
    const u_char *policy, size_t policy_len, uint32_t why,
    const u_char *reason, size_t reason_len, double us, char **err)
{
    size_t                       n;
    ngx_http_kv_router_ctx_t    *ctx;
    ngx_http_kv_router_shctx_t  *sh;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->matched) {
        *err = "there was no match for this request";
        return NGX_ERROR;
    }

    if (i >= ctx->match.n) {
        *err = "no such candidate";
        return NGX_ERROR;
    }

    ctx->tried = ngx_pcalloc(r->pool, ctx->match.n);
    ctx->ranked = NULL;
    ctx->nranked = 0;
    ctx->next = 0;

    if (ctx->tried == NULL
        || ngx_http_kv_router_copy_str(r->pool, &ctx->policy, policy,
                                       policy_len)
           != NGX_OK
        || ngx_http_kv_router_copy_str(r->pool, &ctx->reason, reason,
                                       reason_len)
           != NGX_OK)
    {
        *err = "no memory";
        return NGX_ERROR;
    }

    if (ranked && nranked) {
        n = ngx_min(nranked, ctx->match.n);

        ctx->ranked = ngx_palloc(r->pool, n * sizeof(uint32_t));
        if (ctx->ranked == NULL) {
            *err = "no memory";
            return NGX_ERROR;
        }

        ngx_memcpy(ctx->ranked, ranked, n * sizeof(uint32_t));
        ctx->nranked = n;
    }

    ctx->why = why;
    ctx->us = us;
    ctx->decided_us = ngx_http_kv_router_now_us();
    ctx->first_byte_us = 0;
    ctx->tries = 0;
    ctx->reserved = 1;

    ngx_http_kv_router_go(ctx, i);

    sh = ctx->zone->sh;

    (void) ngx_atomic_fetch_add(&sh->requests, 1);
    (void) ngx_atomic_fetch_add(&sh->prompt_blocks, ctx->match.prompt_blocks);
    (void) ngx_atomic_fetch_add(&sh->overlap_blocks, ctx->chosen->device);
    (void) ngx_atomic_fetch_add(&sh->best_blocks, ctx->match.best);
    (void) ngx_atomic_fetch_add(&sh->decide_us, (ngx_atomic_int_t) us);

    if (why < NGX_HTTP_KV_ROUTER_REASONS) {
        (void) ngx_atomic_fetch_add(&sh->by_reason[why], 1);
    }

    if (why == NGX_HTTP_KV_ROUTER_POLICY_ERROR) {
        (void) ngx_atomic_fetch_add(&sh->policy_errors, 1);
    }

    return NGX_OK;
}


int
ngx_http_kv_router_ffi_reserved(ngx_http_request_t *r, void *zone)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    return ctx && ctx->zone == zone && ctx->reserved ? NGX_OK : NGX_DECLINED;
}


/* ---- the balancer --------------------------------------------------------- */

/*
 * The next candidate that was not tried: in the policy's order, then by
 * overlap and load.  UINT32_MAX when there is none.
 */

static uint32_t
ngx_http_kv_router_best_left(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i, best;
    ngx_http_kv_router_candidate_t  *c;

    while (ctx->next < ctx->nranked) {
        i = ctx->ranked[ctx->next++];

        if (i < ctx->match.n && !ctx->tried[i]) {
            return i;
        }
    }

    best = UINT32_MAX;

    for (i = 0; i < ctx->match.n; i++) {

        if (ctx->tried[i]) {
            continue;
        }

        c = &ctx->candidates[i];

        if (best == UINT32_MAX
            || c->device > ctx->candidates[best].device
            || (c->device == ctx->candidates[best].device
                && c->active_requests
                   < ctx->candidates[best].active_requests))
        {
            best = i;
        }
    }

    return best;
}


int
ngx_http_kv_router_ffi_peer(ngx_http_request_t *r, void *zone,
    ngx_uint_t failed, const char **host, size_t *host_len, uint32_t *port,
    uint32_t *left, char **err)
{
    uint32_t                      i, n;
    ngx_http_kv_router_ctx_t     *ctx;
    ngx_http_kv_router_holder_t  *h;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->reserved) {
        *err = "the request was not routed in its access phase";
        return NGX_DECLINED;
    }

    /*
     * a first try of a request that was tried before is an internal redirect
     * back to an engine: it takes the next one as well
     */

    if (ctx->tries) {

        i = ngx_http_kv_router_best_left(ctx);

        if (i == UINT32_MAX) {
            *err = "no worker is left to try";
            return NGX_DECLINED;
        }

        ngx_http_kv_router_go(ctx, i);

        ctx->why = NGX_HTTP_KV_ROUTER_RETRY;

        (void) ngx_atomic_fetch_add(&ctx->zone->sh->retries, 1);
    }

    ctx->tries++;

    h = &ctx->fleet->holders[ctx->fleet->by_holder[ctx->chosen->holder] - 1];

    *host = (char *) h->host.data;
    *host_len = h->host.len;
    *port = h->port;

    n = 0;

    for (i = 0; i < ctx->match.n; i++) {
        n += !ctx->tried[i];
    }

    *left = n;

    return NGX_OK;
}


/* ---- the end -------------------------------------------------------------- */

int
ngx_http_kv_router_ffi_outcome(ngx_http_request_t *r, void *zone,
    ngx_http_kv_router_outcome_t *out)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->reserved) {
        return NGX_DECLINED;
    }

    out->holder = ctx->chosen->holder;
    out->rank = ctx->chosen->rank;
    out->tries = ctx->tries;
    out->status = r->err_status ? r->err_status : r->headers_out.status;
    out->first_byte_us = ctx->first_byte_us ? ctx->first_byte_us
                                              - ctx->decided_us : -1;
    out->total_us = ngx_http_kv_router_now_us() - ctx->decided_us;
    out->worker_len = ctx->chosen->worker_len;
    out->worker = ctx->chosen->worker;

    return NGX_OK;
}


/*
 * The first byte of an answer ends the prefill; the last one the request's
 * load at the engine, although the client's connection may linger.
 */

static ngx_int_t
ngx_http_kv_router_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_chain_t               *cl;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = r == r->main && in ? ngx_http_kv_router_get_ctx(r) : NULL;

    if (ctx == NULL || !ctx->reserved || r->upstream == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    for (cl = in; cl; cl = cl->next) {

        if (ctx->first_byte_us == 0 && ngx_buf_size(cl->buf) > 0) {
            ctx->first_byte_us = ngx_http_kv_router_now_us();

            kvr_load_prefilled(&ctx->zone->router.load, &ctx->reservation);
        }

        if (cl->buf->last_buf) {
            ngx_http_kv_router_release(ctx);
        }
    }

    return ngx_http_next_body_filter(r, in);
}


void
ngx_http_kv_router_filter_init(void)
{
    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_kv_router_body_filter;
}
