
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What is found for a request, as often as is needed: the candidates, which
 * are the eligible workers with their load, and the blocks of the prompt that
 * each has.
 */


#include "ngx_http_kv_router_route.h"


/*
 * The matches of a lookup: a buffer of this process, used within one call,
 * with an element for each rank of max_workers.
 */

static kvr_match_t  *ngx_http_kv_router_matches;
static uint32_t      ngx_http_kv_router_matches_size;


/* Is id in the list?  Commas or blanks separate the ids of the list. */

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
ngx_http_kv_router_eligible(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_holder_t *h, ngx_uint_t strict)
{
    if (h->draining || !strict) {
        return !h->draining;
    }

    /* prefill and decode workers are for policies that ask for pairs */

    if ((ctx->prompt.roles & 1 << h->role) == 0) {
        return 0;
    }

    if (ctx->prompt.allowed.data
        && !ngx_http_kv_router_listed(&ctx->prompt.allowed, &h->id))
    {
        return 0;
    }

    return ngx_http_kv_router_serves(ctx, h);
}


/* The tokens that are still to be prefilled, by the speed; a whole number. */

static double
ngx_http_kv_router_queued(const kvr_load_row_t *load, double speed)
{
    return (int64_t) kvr_speed_left(load->prefill_tokens, load->prefills,
                                    speed, (double) ngx_current_msec
                                           - (double) load->begun_ms);
}


/* 0: the holder is unhealthy and can't be a candidate. */

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

    kvr_router_load(&ctx->zone->run.router, h->holder, h->generation,
                    ngx_current_msec, &load);

    c->active_requests = load.active;
    c->active_prefills = load.prefills;
    c->prefill_tps = h->speed;
    c->prefill_tokens = ngx_http_kv_router_queued(&load, h->speed);
    c->in_flight = 0;
    c->churn = kvr_router_holder_churn(&ctx->zone->run.router, h->holder,
                                       ngx_current_msec / 1000);
    c->decode_blocks = load.decode_blocks;
    c->additional_blocks = ctx->found.match.prompt_blocks
                           + ngx_http_kv_router_other_blocks(ctx);

    c->health = kvr_health_state(kvr_router_health(&ctx->zone->run.router,
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
    c->max_prefill_tokens = ngx_http_kv_router_holder_tokens(h);
    c->tokens_in_flight = (uint32_t) ngx_min(load.prefill_tokens, UINT32_MAX);
    c->engine = h->engine;
    c->engine_name = kvr_engine_name(h->engine);
    c->worker_len = h->id.len;
    c->address_len = h->address.len;
    c->model_len = h->model.len;
    c->lora_len = h->lora.len;
    c->worker = (char *) h->id.data;
    c->address = (char *) h->address.data;
    c->model = (char *) h->model.data;
    c->lora = (char *) h->lora.data;
    c->reason = ngx_http_kv_router_reason(ctx->zone, w, h->holder);

    (void) kvr_report_read(&ctx->zone->run.sh->reports[h->holder],
                           h->generation, ngx_current_msec,
                           ctx->zone->conf.report_ms, &reported);

    c->reported_waiting = reported.waiting;
    c->reported_running = reported.running;
    c->reported_usage = reported.usage;

    return kvr_health_usable(c->health);
}


/*
 * Looks the prompt up: *found is the number of holders found, in
 * ngx_http_kv_router_matches; 0 if there are no hashes to look up.
 */

static ngx_int_t
ngx_http_kv_router_lookup(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    uint32_t *found)
{
    uint32_t      max;
    kvr_match_t  *m;

    max = kvr_router_max_holders(&ctx->zone->run.router);

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

    if (ctx->keys.lookup.hash) {
        *found = kvr_router_find(&ctx->zone->run.router, ctx->keys.lookup.hash,
                                 ctx->keys.lookup.n,
                                 ctx->keys.of_text ? 0
                                                   : ctx->prompt.view.tokens,
                                 false, ngx_http_kv_router_matches, max);

        if (!ctx->choice.dry) {
            ngx_http_kv_router_count(ctx->zone->run.sh, LOOKUPS, 1);

            if (*found) {
                ngx_http_kv_router_count(ctx->zone->run.sh, LOOKUPS_MATCHED,
                                         1);
            }
        }
    }

    if (ctx->choice.dry) {
        return NGX_OK;
    }

    /* blocks are counted by tokens: chunks of a text are none */

    return ngx_http_kv_router_touch(r->pool, ctx->zone, ctx->keys.ids.hash,
                                    ctx->keys.ids.n,
                                    ngx_http_kv_router_matches,
                                    ctx->keys.ids.hash ? *found : 0,
                                    &ctx->found.match.frequencies,
                                    &ctx->found.match.nfrequencies);
}


/* The roles of the first n candidates, for policies that ask for pairs. */

static uint32_t
ngx_http_kv_router_roles(ngx_http_kv_router_ctx_t *ctx, uint32_t n)
{
    uint32_t  i, roles;

    roles = 0;

    if (ctx->prompt.roles & 1 << KVR_ROLE_PREFILL) {
        for (i = 0; i < n; i++) {
            roles |= 1 << ctx->found.candidates[i].role;
        }
    }

    return roles;
}


/*
 * Lists eligible holders with their load.  Behind the candidates, for retries,
 * come unhealthy holders and those that have no room for tokens; if all are
 * unhealthy, all are candidates.  NGX_BUSY: all eligible workers are full.
 */

static ngx_int_t
ngx_http_kv_router_list(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i, k, n, all, full, strict, *out;
    ngx_http_kv_router_holder_t     *h;
    ngx_http_kv_router_candidate_t  *c;

    c = ctx->found.candidates;

    out = ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_OUT,
                                    (ctx->fleet->n + 1) * sizeof(uint32_t));
    if (out == NULL) {
        return NGX_ERROR;
    }

    /* each line below is missed in a cold cache: all are fetched at once */

    for (i = 0; i < ctx->fleet->n; i++) {
        h = &ctx->fleet->holders[i];

        kvr_load_prefetch(&ctx->zone->run.router.load, h->holder);
        kvr_fleet_prefetch(h->worker);
        __builtin_prefetch(kvr_router_health(&ctx->zone->run.router,
                                             h->number));
        __builtin_prefetch(&ctx->zone->run.sh->reports[h->holder]);
    }

    n = 0;
    k = 0;

    for (strict = 2; strict-- > 0 && n + k == 0; /* void */ ) {

        for (i = 0; i < ctx->fleet->n; i++) {
            h = &ctx->fleet->holders[i];

            if (!ngx_http_kv_router_eligible(ctx, h, strict)) {
                continue;
            }

            if (ngx_http_kv_router_candidate(ctx, h, &c[n])) {
                n++;

            } else {
                out[k++] = i;
            }
        }

        if (n + k && (!strict || n == 0) && ctx->found.match.why == 0) {
            ctx->found.match.why = NGX_HTTP_KV_ROUTER_NO_ELIGIBLE;
        }
    }

    if (n + k && ngx_http_kv_router_zone_full(ctx)) {
        ctx->found.match.n = 0;
        ctx->found.ncandidates = 0;

        return NGX_BUSY;
    }

    all = n;
    ctx->found.match.full_roles = ngx_http_kv_router_roles(ctx, n);

    n = ngx_http_kv_router_bound_list(ctx, c, n, out, &k);

    ctx->found.match.full_roles &= ~ngx_http_kv_router_roles(ctx, n);

    for (i = 0; i < k; i++) {
        (void) ngx_http_kv_router_candidate(ctx,
                                            &ctx->fleet->holders[out[i]],
                                            &c[n + i]);
    }

    full = k;
    k = n + ngx_http_kv_router_bound_list(ctx, &c[n], k, NULL, NULL);

    ctx->found.match.n = all ? n : k;
    ctx->found.ncandidates = k;

    if (ctx->found.match.n == 0) {
        return all || full ? NGX_BUSY : NGX_DECLINED;
    }

    return NGX_OK;
}


/*
 * Lists the candidates, then finds the part of the prompt that each of them
 * has.
 */

static ngx_int_t
ngx_http_kv_router_fill(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i, k, n, found, *where;
    ngx_int_t                        rc;
    kvr_match_t                     *m;
    ngx_http_kv_router_candidate_t  *c;

    n = ctx->fleet->n + 1;

    ctx->found.candidates = ngx_http_kv_router_buffer(ctx,
                                 NGX_HTTP_KV_ROUTER_BUFFER_CANDIDATES,
                                 n * sizeof(ngx_http_kv_router_candidate_t));
    where = ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_WHERE,
                                      n * sizeof(uint32_t));

    if (ctx->found.candidates == NULL || where == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(where, n * sizeof(uint32_t));

    rc = ngx_http_kv_router_list(ctx);

    ctx->found.match.candidates = ctx->found.candidates;

    if (rc != NGX_OK) {
        return rc;
    }

    for (i = 0; i < ctx->found.ncandidates; i++) {
        k = ctx->fleet->by_holder[ctx->found.candidates[i].holder];
        where[k - 1] = i + 1;
    }

    ctx->keys.lookup = ctx->keys.ids;
    ctx->keys.of_text = 0;

    n = (ctx->found.ncandidates + 1) * sizeof(kvr_match_t);

    ctx->found.estimates = ngx_http_kv_router_buffer(ctx,
                                  NGX_HTTP_KV_ROUTER_BUFFER_ESTIMATES, n);

    if (ctx->found.estimates == NULL
        || ngx_http_kv_router_keys_text(ctx) != NGX_OK
        || ngx_http_kv_router_lookup(r, ctx, &found) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_memzero(ctx->found.estimates, n);

    m = ngx_http_kv_router_matches;

    for (i = 0; i < found; i++) {

        ctx->found.match.cut |= m[i].cut;

        k = ctx->fleet->by_holder[m[i].holder];

        if (k == 0 || where[k - 1] == 0) {
            continue;
        }

        c = &ctx->found.candidates[where[k - 1] - 1];

        if (m[i].estimated) {
            ctx->found.estimates[where[k - 1] - 1] = m[i];
            continue;
        }

        c->device = m[i].device;
        c->host = m[i].host;
        c->disk = m[i].disk;

        ngx_log_debug7(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "kv_router match: worker \"%*s\" rank %uD has %uD "
                       "blocks, %uD with host, %uD with disk; it is %s",
                       (size_t) c->worker_len, c->worker, c->rank, c->device,
                       c->host, c->disk, kvr_health_name(c->health));

        if (where[k - 1] <= ctx->found.match.n) {
            ctx->found.match.best = ngx_max(ctx->found.match.best, c->device);
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

    if (zone->conf.params.frequency_ms == 0) {
        return NGX_OK;
    }

    *out = ngx_palloc(pool, (ngx_min(n, KVR_FREQUENCY_DEPTH) + 1)
                            * sizeof(uint32_t));
    if (*out == NULL) {
        return NGX_ERROR;
    }

    *nout = kvr_router_touch(&zone->run.router, locals, matches, found,
                             ngx_current_msec, *out);

    return NGX_OK;
}


int
ngx_http_kv_router_ffi_candidates(ngx_http_request_t *r, void *zone,
    int how, const ngx_http_kv_router_match_t **out, char **err)
{
    ngx_int_t                    rc;
    ngx_http_kv_router_ctx_t    *ctx;
    ngx_http_kv_router_fleet_t  *fleet;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->prompt.prompted) {
        *err = "nothing is known of the request's prompt";
        return NGX_ERROR;
    }

    ctx->queue.unbound = (how & NGX_HTTP_KV_ROUTER_UNBOUND)
                         || (ctx->queue.begun
                             && ctx->zone->conf.queue.observe);

    if (how & NGX_HTTP_KV_ROUTER_LOAD_ONLY) {
        ngx_http_kv_router_keys_drop(ctx);
        ctx->prompt.view.text = 0;
    }

    /* workers may have come or gone since the request began to wait */

    fleet = ctx->choice.reserved ? NULL
                                 : ngx_http_kv_router_fleet_get(ctx->zone);

    if (fleet) {
        ngx_http_kv_router_fleet_put(ctx->fleet);
        ctx->fleet = fleet;
    }

    ngx_memzero(&ctx->found, sizeof(ctx->found));
    ctx->found.match.block_size = ctx->zone->conf.params.block_size;
    ctx->found.match.prompt_tokens = ctx->prompt.view.tokens;
    ctx->found.match.prompt_blocks = ctx->prompt.view.blocks;
    ctx->found.match.why = ctx->prompt.view.why;
    ctx->found.match.hashes = ctx->keys.ids.hash;
    ctx->found.match.foreign = ngx_http_kv_router_syncs(ctx->zone)
                               ? kvr_peers_homes(&ctx->zone->run.router.peers)
                               : NULL;

    rc = ngx_http_kv_router_fill(r, ctx);

    ngx_log_debug6(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router match: prompt of %uD tokens, %uD blocks; %uD "
                   "candidates and %uD that are out, best %uD blocks, rc:%i",
                   ctx->found.match.prompt_tokens,
                   ctx->found.match.prompt_blocks, ctx->found.match.n,
                   ctx->found.ncandidates - ctx->found.match.n,
                   ctx->found.match.best, rc);

    if (rc != NGX_OK) {
        *err = rc == NGX_BUSY ? "all workers are full, by max_active or "
                                "max_prefill_tokens"
               : rc == NGX_DECLINED ? "no worker" : "no memory";
        return rc;
    }

    ctx->found.matched = 1;
    *out = &ctx->found.match;

    return NGX_OK;
}
