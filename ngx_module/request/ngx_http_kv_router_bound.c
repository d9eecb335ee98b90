
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Bounds: max_active, of workers and of the zone, and max_prefill_tokens, of
 * workers, over all processes of nginx.  A worker has room while it is below
 * its bounds, so one request may pass the bound of tokens: none is too large.
 * A retry passes it, too.
 * Of a bound that several routers have in common, each router has a part.  The
 * bound is reached by the router's own requests at its part, or by those of
 * all routers together: a request outlasts a change of the parts.  While peers
 * are heard, a router may go beyond its part until all routers have three
 * quarters of the bound: its part was made by the traffic of 30 seconds, and
 * what is beyond is lent until the others want it.
 *
 * A process that checks a maximum and then reserves holds the gate of the load
 * tables meanwhile, so that two processes never reserve the same slot.  The
 * gate is shut for some microseconds.  If a process dies in the gate, the gate
 * opens.  If a process stands still in the gate (SIGSTOP, a machine without a
 * free core), another process takes the gate over.  When the first process
 * goes on, it gives back what it has reserved, and checks again.
 *
 * A request that is no load has no bound.
 */


#include "ngx_http_kv_router_route.h"


static ngx_uint_t
ngx_http_kv_router_bounded(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i;
    ngx_http_kv_router_candidate_t  *c;

    if (ctx->prompt.form == KVR_FORM_NO_LOAD) {
        return 0;
    }

    if (ctx->zone->conf.max_active) {
        return 1;
    }

    for (i = 0; i < ctx->found.ncandidates; i++) {
        c = &ctx->found.candidates[i];

        if (c->max_active || c->max_prefill_tokens) {
            return 1;
        }
    }

    return 0;
}


/* A bound of 0 is none. */

static ngx_uint_t
ngx_http_kv_router_bound_reached(ngx_http_kv_router_ctx_t *ctx,
    uint32_t bound, int64_t own, int64_t peers)
{
    kvr_peers_t  *of;

    if (bound == 0) {
        return 0;
    }

    if (!ngx_http_kv_router_syncs(ctx->zone)
        || ctx->zone->conf.sync.bounds_own)
    {
        return own >= (int64_t) bound;
    }

    of = &ctx->zone->run.router.peers;

    if (own + peers >= (int64_t) bound) {
        return 1;
    }

    if (kvr_peers_fresh(of, ngx_current_msec)
        && (own + peers) * 4 < (int64_t) bound * 3)
    {
        return 0;
    }

    return own >= (int64_t) kvr_peers_part(of, bound);
}


/* The list has all ranks of a worker next to one another. */

uint32_t
ngx_http_kv_router_bound_list(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c, uint32_t n, uint32_t *out,
    uint32_t *nout)
{
    int64_t         active, tokens;
    uint32_t        i, k, at, last;
    kvr_load_row_t  peers;

    if (ctx->prompt.form == KVR_FORM_NO_LOAD) {
        return n;
    }

    for (i = 0, k = 0; i < n; i = last) {
        active = 0;
        tokens = 0;
        ngx_memzero(&peers, sizeof(kvr_load_row_t));

        for (last = i; last < n && c[last].worker == c[i].worker; last++) {
            active += (int64_t) c[last].active_requests;
            tokens += c[last].tokens_in_flight;

            if (c[i].max_active || c[i].max_prefill_tokens) {
                kvr_peers_add(&ctx->zone->run.router.peers, c[last].holder,
                              c[last].generation, ngx_current_msec, &peers);
            }
        }

        if (ngx_http_kv_router_bound_reached(ctx, c[i].max_active,
                                             active - peers.active,
                                             peers.active))
        {
            continue;
        }

        if (out
            && ngx_http_kv_router_bound_reached(ctx, c[i].max_prefill_tokens,
                                                tokens - peers.prefill_tokens,
                                                peers.prefill_tokens))
        {
            for (at = i; at < last; at++) {
                out[(*nout)++] = ctx->fleet->by_holder[c[at].holder] - 1;
            }

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


void
ngx_http_kv_router_bound_begin(ngx_http_kv_router_ctx_t *ctx)
{
    if (ngx_http_kv_router_bounded(ctx)) {
        kvr_load_shut(&ctx->zone->run.router.load);
    }
}


ngx_int_t
ngx_http_kv_router_bound_end(ngx_http_kv_router_ctx_t *ctx)
{
    if (!ngx_http_kv_router_bounded(ctx)
        || kvr_load_open(&ctx->zone->run.router.load))
    {
        return NGX_OK;
    }

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router bound: this process stood still, another one "
                   "has reserved meanwhile");

    return NGX_AGAIN;
}


ngx_uint_t
ngx_http_kv_router_zone_full(ngx_http_kv_router_ctx_t *ctx)
{
    int64_t                       active;
    ngx_uint_t                    i;
    kvr_load_row_t                load, peers;
    ngx_http_kv_router_holder_t  *h;

    if (ctx->zone->conf.max_active == 0
        || ctx->prompt.form == KVR_FORM_NO_LOAD)
    {
        return 0;
    }

    active = 0;
    ngx_memzero(&peers, sizeof(kvr_load_row_t));

    for (i = 0; i < ctx->fleet->n; i++) {
        h = &ctx->fleet->holders[i];

        kvr_load_read(&ctx->zone->run.router.load, h->holder, h->generation,
                      &load);

        active += load.active;
        kvr_peers_add(&ctx->zone->run.router.peers, h->holder, h->generation,
                      ngx_current_msec, &peers);
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router bound: %L and peers' %L of the zone's %ui "
                   "requests", active, peers.active,
                   ctx->zone->conf.max_active);

    return ngx_http_kv_router_bound_reached(ctx, ctx->zone->conf.max_active,
                                            active, peers.active);
}


/* Bounds are for all ranks of a worker.  A retry passes that of tokens. */

ngx_uint_t
ngx_http_kv_router_worker_full(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    uint32_t                         k;
    kvr_load_row_t                   load, own, peers;
    ngx_http_kv_router_candidate_t  *c, *other;

    c = &ctx->found.candidates[i];

    if ((c->max_active == 0 && c->max_prefill_tokens == 0)
        || ctx->prompt.form == KVR_FORM_NO_LOAD)
    {
        return 0;
    }

    ngx_memzero(&own, sizeof(kvr_load_row_t));
    ngx_memzero(&peers, sizeof(kvr_load_row_t));

    for (k = 0; k < ctx->found.ncandidates; k++) {
        other = &ctx->found.candidates[k];

        if (other->worker == c->worker) {
            kvr_load_read(&ctx->zone->run.router.load, other->holder,
                          other->generation, &load);
            kvr_load_sum(&own, &load);
            kvr_peers_add(&ctx->zone->run.router.peers, other->holder,
                          other->generation, ngx_current_msec, &peers);
        }
    }

    ngx_log_debug8(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router bound: worker \"%*s\" has %L and peers' %L of "
                   "%uD requests, %L and peers' %L of %uD tokens",
                   (size_t) c->worker_len, c->worker, own.active, peers.active,
                   c->max_active, own.prefill_tokens, peers.prefill_tokens,
                   c->max_prefill_tokens);

    return ngx_http_kv_router_bound_reached(ctx, c->max_active, own.active,
                                            peers.active)
           || (ctx->try.tries == 0
               && ngx_http_kv_router_bound_reached(ctx, c->max_prefill_tokens,
                                                   own.prefill_tokens,
                                                   peers.prefill_tokens));
}
