
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a request asks for and who could serve it: from the body to token ids,
 * block hashes, and the candidates with their overlap and load.
 */


#include "ngx_http_kv_router_route.h"
#include "../status/ngx_http_kv_router_watch.h"

#include <wire/kvr_tokens.h>


typedef struct {
    ngx_str_t                       lora;
    ngx_str_t                       salt;      /* data NULL: the body's */
    ngx_str_t                       model;     /* data NULL: any */
    ngx_str_t                       allowed;   /* data NULL: all */
    uint32_t                        roles;
} ngx_http_kv_router_names_t;


static ngx_uint_t ngx_http_kv_router_body(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_str_t *body);
static ngx_uint_t ngx_http_kv_router_scan(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, kvr_prompt_t *prompt, uint32_t **tokens);
static ngx_int_t ngx_http_kv_router_hash(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, const uint32_t *tokens, size_t n,
    ngx_http_kv_router_names_t *names);
static ngx_int_t ngx_http_kv_router_lookup(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, uint32_t *found);
static ngx_int_t ngx_http_kv_router_fill(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_http_kv_router_names_t *names);
static ngx_uint_t ngx_http_kv_router_listed(ngx_str_t *list, ngx_str_t *id);
static ngx_uint_t ngx_http_kv_router_eligible(ngx_http_kv_router_holder_t *h,
    ngx_http_kv_router_names_t *names, ngx_uint_t strict);
static ngx_uint_t ngx_http_kv_router_candidate(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_holder_t *h, ngx_http_kv_router_candidate_t *c);
static ngx_int_t ngx_http_kv_router_list(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_http_kv_router_names_t *names);
static int ngx_http_kv_router_match(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, const uint32_t *tokens, size_t ntokens,
    ngx_uint_t why, ngx_http_kv_router_names_t *names,
    const ngx_http_kv_router_match_t **out, char **err);
static void ngx_http_kv_router_names(ngx_http_kv_router_names_t *names,
    const u_char *lora, size_t lora_len, const u_char *salt, size_t salt_len,
    const u_char *model, size_t model_len, const u_char *allowed,
    size_t allowed_len, uint32_t roles);


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


/* ---- the prompt --------------------------------------------------------- */

/*
 * The body in one piece.  NGX_HTTP_KV_ROUTER_NO_BODY, or _BAD_BODY when it
 * can't be read.
 */

static ngx_uint_t
ngx_http_kv_router_body(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    ngx_str_t *body)
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

    p = ngx_http_kv_router_room(ctx, NGX_HTTP_KV_ROUTER_ROOM_BODY, size);
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
ngx_http_kv_router_scan(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    kvr_prompt_t *prompt, uint32_t **tokens)
{
    size_t                      n;
    uint32_t                   *p;
    ngx_str_t                   body;
    ngx_uint_t                  why;
    ngx_http_kv_router_zone_t  *zone;

    zone = ctx->zone;

    prompt->model = NULL;
    prompt->salt = NULL;
    prompt->ntokens = 0;

    why = ngx_http_kv_router_body(r, ctx, &body);

    if (why != NGX_HTTP_KV_ROUTER_BY_POLICY) {
        return why;
    }

    n = ngx_min(body.len / 2 + 1, zone->max_tokens);

    if (n > ngx_http_kv_router_tokens_size) {

        n = ngx_min(ngx_max(n, 65536), zone->max_tokens);

        /* at a cache line's start: a tenth faster to hash by AVX2 */

        p = ngx_memalign(64, n * sizeof(uint32_t), r->connection->log);
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
    kvr_contract_t  contract;

    contract = kvr_params_contract(&ctx->zone->params);

    ctx->match.prompt_tokens = n;
    ctx->match.prompt_blocks = kvr_contract_blocks(contract, n);

    if (ctx->match.prompt_blocks == 0) {
        ctx->match.why = NGX_HTTP_KV_ROUTER_SHORT;
        return NGX_OK;
    }

    ctx->hashes = ngx_http_kv_router_room(ctx, NGX_HTTP_KV_ROUTER_ROOM_HASHES,
                                          ctx->match.prompt_blocks
                                          * sizeof(uint64_t));
    if (ctx->hashes == NULL) {
        return NGX_ERROR;
    }

    kvr_hasher_init(&ngx_http_kv_router_hasher,
                    kvr_hash_seed((char *) names->lora.data, names->lora.len,
                                  (char *) names->salt.data,
                                  names->salt.len));

    (void) kvr_contract_hash(contract, &ngx_http_kv_router_hasher, tokens, n,
                             ctx->hashes);

    return NGX_OK;
}


/* ---- candidates --------------------------------------------------------- */

/* Is id one of those in the list, which commas or blanks join? */

static ngx_uint_t
ngx_http_kv_router_listed(ngx_str_t *list, ngx_str_t *id)
{
    u_char  *p, *last, *start;

    p = list->data;
    last = p + list->len;

    while (p < last) {

        if (*p == ',' || *p == ' ' || *p == '\t') {
            p++;
            continue;
        }

        start = p;

        while (p < last && *p != ',' && *p != ' ' && *p != '\t') {
            p++;
        }

        if ((size_t) (p - start) == id->len
            && ngx_memcmp(start, id->data, id->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_kv_router_eligible(ngx_http_kv_router_holder_t *h,
    ngx_http_kv_router_names_t *names, ngx_uint_t strict)
{
    if (h->draining || !strict) {
        return !h->draining;
    }

    /* prefill and decode workers are for policies that ask for pairs */

    if ((names->roles & 1 << h->role) == 0) {
        return 0;
    }

    if (names->allowed.data
        && !ngx_http_kv_router_listed(&names->allowed, &h->id))
    {
        return 0;
    }

    return names->model.data == NULL || h->model.len == 0
           || (h->model.len == names->model.len
               && ngx_memcmp(h->model.data, names->model.data, h->model.len)
                  == 0);
}


/* 0: it is out, by its health */

static ngx_uint_t
ngx_http_kv_router_candidate(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_holder_t *h, ngx_http_kv_router_candidate_t *c)
{
    double               share;
    uint64_t             last;
    kvr_load_row_t       load;
    kvr_report_load_t    reported;
    const kvr_worker_t  *w;

    w = h->worker;

    kvr_load_read(&ctx->zone->router.load, h->holder, h->generation, &load);

    c->active_requests = load.active;
    c->active_prefills = load.prefills;
    c->prefill_tokens = load.prefill_tokens;
    c->decode_blocks = load.decode_blocks;
    c->additional_blocks = ctx->match.prompt_blocks;

    c->health = kvr_health_state(kvr_router_health(&ctx->zone->router,
                                                   h->number),
                                 h->generation, &h->health, ngx_current_msec,
                                 &share);
    c->share = share;
    c->weight = h->weight * share;

    last = kvr_load64(&w->stream.last_ms);
    c->age = last == 0 ? -1 : last >= ngx_current_msec
                              ? 0 : (ngx_current_msec - last) / 1000.0;

    c->holder = h->holder;
    c->generation = h->generation;
    c->rank = h->rank;
    c->device = 0;
    c->host = 0;
    c->disk = 0;
    c->predicted = 0;
    c->role = h->role;
    c->confidence = ngx_http_kv_router_confidence(ctx->zone, w, h->holder);
    c->max_active = h->max_active;
    c->worker_len = h->id.len;
    c->address_len = h->address.len;
    c->model_len = h->model.len;
    c->lora_len = h->lora.len;
    c->worker = (char *) h->id.data;
    c->address = (char *) h->address.data;
    c->model = (char *) h->model.data;
    c->lora = (char *) h->lora.data;
    c->reason = ngx_http_kv_router_reason(ctx->zone, w, h->holder);

    (void) kvr_report_read(&ctx->zone->sh->reports[h->holder], h->generation,
                           ngx_current_msec, ctx->zone->report_ms, &reported);

    c->reported_waiting = reported.waiting;
    c->reported_running = reported.running;
    c->reported_usage = reported.usage;

    return kvr_health_usable(c->health);
}


/*
 * Who has how much of the prompt: *found of ngx_http_kv_router_matches, 0 when
 * there is nothing to look up.
 */

static ngx_int_t
ngx_http_kv_router_lookup(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    uint32_t *found)
{
    uint32_t      max;
    kvr_match_t  *m;

    max = kvr_router_max_holders(&ctx->zone->router);

    if (max > ngx_http_kv_router_matches_size) {
        m = ngx_alloc(max * sizeof(kvr_match_t), r->connection->log);
        if (m == NULL) {
            return NGX_ERROR;
        }

        ngx_free(ngx_http_kv_router_matches);
        ngx_http_kv_router_matches = m;
        ngx_http_kv_router_matches_size = max;
    }

    *found = 0;

    if (ctx->hashes) {
        *found = kvr_router_find(&ctx->zone->router, ctx->hashes,
                                 ctx->match.prompt_blocks, false,
                                 ngx_http_kv_router_matches, max);

        if (!ctx->dry) {
            ngx_http_kv_router_watch_lookup(ctx->zone, *found);
        }
    }

    if (ctx->dry) {
        return NGX_OK;
    }

    return ngx_http_kv_router_touch(r->pool, ctx->zone, ctx->hashes,
                                    ctx->match.prompt_blocks,
                                    ngx_http_kv_router_matches, *found,
                                    &ctx->match.frequencies,
                                    &ctx->match.nfrequencies);
}


/*
 * Leaves out candidates of workers that have all the requests that they may:
 * max_active is for all ranks of a worker, which lie side by side.
 */

static uint32_t
ngx_http_kv_router_leave_full(ngx_http_kv_router_candidate_t *c, uint32_t n)
{
    double    active;
    uint32_t  i, k, last;

    for (i = 0, k = 0; i < n; i = last) {

        active = 0;

        for (last = i; last < n && c[last].worker == c[i].worker; last++) {
            active += c[last].active_requests;
        }

        if (c[i].max_active && active >= c[i].max_active) {
            continue;
        }

        if (k != i) {
            ngx_memmove(&c[k], &c[i], (last - i)
                                    * sizeof(ngx_http_kv_router_candidate_t));
        }

        k += last - i;
    }

    return k;
}


/*
 * Eligible holders with their load.  Those that are out by their health are
 * spare ones, behind the others, unless there are no others.  NGX_BUSY: all
 * who could have the request are full.
 */

static ngx_int_t
ngx_http_kv_router_list(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_names_t *names)
{
    uint32_t                         i, k, n, all, full, strict, *out;
    ngx_http_kv_router_holder_t     *h;
    ngx_http_kv_router_candidate_t  *c;

    c = ctx->candidates;

    out = ngx_http_kv_router_room(ctx, NGX_HTTP_KV_ROUTER_ROOM_OUT,
                                  (ctx->fleet->n + 1) * sizeof(uint32_t));
    if (out == NULL) {
        return NGX_ERROR;
    }

    n = 0;
    k = 0;

    for (strict = 2; strict-- > 0 && n + k == 0; /* void */ ) {

        for (i = 0; i < ctx->fleet->n; i++) {
            h = &ctx->fleet->holders[i];

            if (!ngx_http_kv_router_eligible(h, names, strict)) {
                continue;
            }

            if (ngx_http_kv_router_candidate(ctx, h, &c[n])) {
                n++;

            } else {
                out[k++] = i;
            }
        }

        if (n + k && (!strict || n == 0) && ctx->match.why == 0) {
            ctx->match.why = NGX_HTTP_KV_ROUTER_NO_ELIGIBLE;
        }
    }

    if (n + k && ngx_http_kv_router_zone_full(ctx)) {
        ctx->match.n = 0;
        ctx->ncandidates = 0;

        return NGX_BUSY;
    }

    all = n;
    n = ngx_http_kv_router_leave_full(c, n);

    for (i = 0; i < k; i++) {
        (void) ngx_http_kv_router_candidate(ctx,
                                            &ctx->fleet->holders[out[i]],
                                            &c[n + i]);
    }

    full = k;
    k = n + ngx_http_kv_router_leave_full(&c[n], k);

    ctx->match.n = all ? n : k;
    ctx->ncandidates = k;

    if (ctx->match.n == 0) {
        return all || full ? NGX_BUSY : NGX_DECLINED;
    }

    return NGX_OK;
}


/* Candidates, then what of the prompt each has. */

static ngx_int_t
ngx_http_kv_router_fill(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_names_t *names)
{
    uint32_t                         i, k, n, found, *where;
    ngx_int_t                        rc;
    kvr_match_t                     *m;
    ngx_http_kv_router_candidate_t  *c;

    n = ctx->fleet->n + 1;

    ctx->candidates = ngx_http_kv_router_room(ctx,
                                 NGX_HTTP_KV_ROUTER_ROOM_CANDIDATES,
                                 n * sizeof(ngx_http_kv_router_candidate_t));
    where = ngx_http_kv_router_room(ctx, NGX_HTTP_KV_ROUTER_ROOM_WHERE,
                                    n * sizeof(uint32_t));

    if (ctx->candidates == NULL || where == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(where, n * sizeof(uint32_t));

    rc = ngx_http_kv_router_list(r, ctx, names);

    ctx->match.candidates = ctx->candidates;

    if (rc != NGX_OK) {
        return rc;
    }

    for (i = 0; i < ctx->ncandidates; i++) {
        k = ctx->fleet->by_holder[ctx->candidates[i].holder];
        where[k - 1] = i + 1;
    }

    if (ngx_http_kv_router_lookup(r, ctx, &found) != NGX_OK) {
        return NGX_ERROR;
    }

    m = ngx_http_kv_router_matches;

    for (i = 0; i < found; i++) {

        k = ctx->fleet->by_holder[m[i].holder];

        if (k == 0 || where[k - 1] == 0) {
            continue;
        }

        c = &ctx->candidates[where[k - 1] - 1];
        c->device = m[i].device;
        c->host = m[i].host;
        c->disk = m[i].disk;

        if (where[k - 1] <= ctx->match.n) {
            ctx->match.best = ngx_max(ctx->match.best, c->device);
        }
    }

    return ngx_http_kv_router_expect(r, ctx);
}


ngx_int_t
ngx_http_kv_router_touch(ngx_pool_t *pool, ngx_http_kv_router_zone_t *zone,
    const uint64_t *locals, uint32_t n, const kvr_match_t *matches,
    uint32_t found, uint32_t **out, uint32_t *nout)
{
    *out = NULL;
    *nout = 0;

    if (zone->params.frequency_ms == 0) {
        return NGX_OK;
    }

    *out = ngx_palloc(pool, (ngx_min(n, KVR_FREQUENCY_DEPTH) + 1)
                            * sizeof(uint32_t));
    if (*out == NULL) {
        return NGX_ERROR;
    }

    *nout = kvr_router_touch(&zone->router, locals, matches, found,
                             ngx_current_msec, *out);

    return NGX_OK;
}


static int
ngx_http_kv_router_match(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, const uint32_t *tokens, size_t ntokens,
    ngx_uint_t why, ngx_http_kv_router_names_t *names,
    const ngx_http_kv_router_match_t **out, char **err)
{
    ngx_int_t                    rc;
    ngx_http_kv_router_ctx_t    *ctx;
    ngx_http_kv_router_fleet_t  *fleet;

    ctx = ngx_http_kv_router_make_ctx(r, zone);
    if (ctx == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    /* who has waited since the last time wants to know who is there now */

    fleet = ctx->reserved ? NULL : ngx_http_kv_router_fleet_get(zone);

    if (fleet) {
        ngx_http_kv_router_fleet_put(ctx->fleet);
        ctx->fleet = fleet;
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

    ctx->match.hashes = ctx->hashes;
    ctx->matched = 1;
    *out = &ctx->match;

    if (rc == NGX_BUSY) {
        *err = "all workers have their max_active requests";
    }

    if (rc == NGX_DECLINED) {
        *err = "no worker";

        if (!ctx->dry) {
            (void) ngx_atomic_fetch_add(
                       &zone->sh->by_reason[NGX_HTTP_KV_ROUTER_NO_WORKER], 1);
        }
    }

    return rc;
}


static void
ngx_http_kv_router_names(ngx_http_kv_router_names_t *names,
    const u_char *lora, size_t lora_len, const u_char *salt, size_t salt_len,
    const u_char *model, size_t model_len, const u_char *allowed,
    size_t allowed_len, uint32_t roles)
{
    names->lora.data = (u_char *) lora;
    names->lora.len = lora ? lora_len : 0;
    names->salt.data = (u_char *) salt;
    names->salt.len = salt ? salt_len : 0;
    names->model.data = (u_char *) model;
    names->model.len = model ? model_len : 0;
    names->allowed.data = (u_char *) allowed;
    names->allowed.len = allowed ? allowed_len : 0;
    names->roles = roles;
}


int
ngx_http_kv_router_ffi_match(ngx_http_request_t *r, void *zone,
    const u_char *lora, size_t lora_len, const u_char *salt, size_t salt_len,
    const u_char *model, size_t model_len,
    const u_char *allowed, size_t allowed_len, uint32_t roles,
    const ngx_http_kv_router_match_t **out, char **err)
{
    int                          rc;
    uint32_t                    *tokens;
    ngx_uint_t                   why;
    kvr_prompt_t                 prompt;
    ngx_http_kv_router_ctx_t    *ctx;
    ngx_http_kv_router_names_t   names;

    ctx = ngx_http_kv_router_make_ctx(r, zone);
    if (ctx == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    tokens = NULL;
    why = ngx_http_kv_router_scan(r, ctx, &prompt, &tokens);

    ngx_http_kv_router_names(&names, lora, lora_len, salt, salt_len, model,
                             model_len, allowed, allowed_len, roles);

    if (salt == NULL && prompt.salt) {
        names.salt.data = (u_char *) prompt.salt;
        names.salt.len = prompt.salt_len;
    }

    if (model == NULL && prompt.model) {
        names.model.data = (u_char *) prompt.model;
        names.model.len = prompt.model_len;
    }

    rc = ngx_http_kv_router_match(r, zone, tokens, prompt.ntokens, why,
                                  &names, out, err);

    if (rc == NGX_OK && why == NGX_HTTP_KV_ROUTER_NO_TOKENS && prompt.model) {

        /* whoever tokenizes comes back without the body */

        if (ngx_http_kv_router_copy_str(r->pool, &ctx->model,
                                        names.model.data, names.model.len)
            != NGX_OK)
        {
            *err = "no memory";
            return NGX_ERROR;
        }
    }

    return rc;
}


int
ngx_http_kv_router_ffi_match_tokens(ngx_http_request_t *r, void *data,
    const uint32_t *tokens, size_t ntokens,
    const u_char *lora, size_t lora_len, const u_char *salt, size_t salt_len,
    const u_char *model, size_t model_len,
    const u_char *allowed, size_t allowed_len, uint32_t roles,
    const ngx_http_kv_router_match_t **out, char **err)
{
    ngx_http_kv_router_zone_t *zone = data;

    ngx_http_kv_router_ctx_t    *ctx;
    ngx_http_kv_router_names_t   names;

    ngx_http_kv_router_names(&names, lora, lora_len, salt, salt_len, model,
                             model_len, allowed, allowed_len, roles);

    ctx = ngx_http_kv_router_get_ctx(r);

    if (model == NULL && ctx && ctx->model.len) {
        names.model = ctx->model;
    }

    return ngx_http_kv_router_match(r, zone, tokens, ntokens,
                                    ntokens > zone->max_tokens
                                    ? NGX_HTTP_KV_ROUTER_TOO_LONG
                                    : NGX_HTTP_KV_ROUTER_BY_POLICY,
                                    &names, out, err);
}
