
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
 *
 * Places that the queue has granted, and that are not yet reserved, count as
 * load, but for the request's own.
 */


#include "ngx_http_kv_router_route.h"


static ngx_uint_t
ngx_http_kv_router_bounded(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i;
    ngx_http_kv_router_candidate_t  *c;

    if (ctx->prompt.form == KVR_FORM_NO_LOAD || ctx->queue.unbound) {
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
ngx_http_kv_router_bound_reached(ngx_http_kv_router_zone_t *zone,
    uint32_t bound, int64_t own, int64_t peers)
{
    kvr_peers_t  *of;

    if (bound == 0) {
        return 0;
    }

    if (!ngx_http_kv_router_syncs(zone) || zone->conf.sync.bounds_own) {
        return own >= (int64_t) bound;
    }

    of = &zone->run.router.peers;

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
    int64_t          active, tokens;
    uint32_t         i, k, at, last;
    kvr_load_row_t   peers;
    kvr_admit_row_t  granted;

    if (ctx->prompt.form == KVR_FORM_NO_LOAD || ctx->queue.unbound) {
        return n;
    }

    for (i = 0, k = 0; i < n; i = last) {
        granted = ngx_http_kv_router_queue_granted(ctx->zone, ctx,
                                     ngx_http_kv_router_holder(ctx, &c[i]));
        active = granted.requests;
        tokens = granted.tokens;
        ngx_memzero(&peers, sizeof(kvr_load_row_t));

        for (last = i; last < n && c[last].worker == c[i].worker; last++) {
            active += (int64_t) c[last].active_requests;
            tokens += c[last].tokens_in_flight;

            if (c[i].max_active || c[i].max_prefill_tokens) {
                kvr_peers_add(&ctx->zone->run.router.peers, c[last].holder,
                              c[last].generation, ngx_current_msec, &peers);
            }
        }

        if (ngx_http_kv_router_bound_reached(ctx->zone, c[i].max_active,
                                             active - peers.active,
                                             peers.active))
        {
            continue;
        }

        if (out
            && !ngx_http_kv_router_queue_owns(ctx,
                                    ngx_http_kv_router_holder(ctx, &c[i]))
            && ngx_http_kv_router_bound_reached(ctx->zone,
                                                c[i].max_prefill_tokens,
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
    return ctx->prompt.form != KVR_FORM_NO_LOAD && !ctx->queue.unbound
           && ngx_http_kv_router_bound_zone(ctx->zone, ctx, ctx->fleet);
}


ngx_uint_t
ngx_http_kv_router_bound_zone(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_ctx_t *ctx, ngx_http_kv_router_fleet_t *fleet)
{
    int64_t                       active;
    ngx_uint_t                    i;
    kvr_load_row_t                load, peers;
    ngx_http_kv_router_holder_t  *h;

    if (zone->conf.max_active == 0) {
        return 0;
    }

    active = ngx_http_kv_router_queue_granted(zone, ctx, NULL).requests;
    ngx_memzero(&peers, sizeof(kvr_load_row_t));

    for (i = 0; i < fleet->n; i++) {
        h = &fleet->holders[i];

        kvr_load_read(&zone->run.router.load, h->holder, h->generation, &load);

        active += load.active;
        kvr_peers_add(&zone->run.router.peers, h->holder, h->generation,
                      ngx_current_msec, &peers);
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router bound: %L and peers' %L of the zone's %ui "
                   "requests", active, peers.active, zone->conf.max_active);

    return ngx_http_kv_router_bound_reached(zone, zone->conf.max_active,
                                            active, peers.active);
}


/* A retry passes the bound of tokens. */

ngx_uint_t
ngx_http_kv_router_worker_full(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    return ctx->prompt.form != KVR_FORM_NO_LOAD && !ctx->queue.unbound
           && ngx_http_kv_router_bound_worker(
                  ctx->zone, ctx, ctx->fleet,
                  ngx_http_kv_router_holder(ctx, &ctx->found.candidates[i]),
                  ctx->try.tries == 0);
}


/* Bounds are for all ranks of a worker, which follow one another. */

ngx_uint_t
ngx_http_kv_router_bound_worker(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_ctx_t *ctx, ngx_http_kv_router_fleet_t *fleet,
    ngx_http_kv_router_holder_t *h, ngx_uint_t tokens)
{
    uint32_t                      bound;
    kvr_load_row_t                load, own, peers;
    kvr_admit_row_t               granted;
    ngx_http_kv_router_holder_t  *rank;

    bound = ngx_http_kv_router_holder_tokens(h);

    if (h->max_active == 0 && bound == 0) {
        return 0;
    }

    granted = ngx_http_kv_router_queue_granted(zone, ctx, h);

    ngx_memzero(&own, sizeof(kvr_load_row_t));
    ngx_memzero(&peers, sizeof(kvr_load_row_t));

    own.active = granted.requests;
    own.prefill_tokens = granted.tokens;

    for (rank = &fleet->holders[fleet->by_holder[h->first] - 1];
         rank < &fleet->holders[fleet->n] && rank->number == h->number;
         rank++)
    {
        kvr_load_read(&zone->run.router.load, rank->holder, rank->generation,
                      &load);
        kvr_load_sum(&own, &load);
        kvr_peers_add(&zone->run.router.peers, rank->holder, rank->generation,
                      ngx_current_msec, &peers);
    }

    ngx_log_debug7(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router bound: worker \"%V\" has %L and peers' %L of "
                   "%uD requests, %L and peers' %L of %uD tokens",
                   &h->id, own.active, peers.active, h->max_active,
                   own.prefill_tokens, peers.prefill_tokens, bound);

    return ngx_http_kv_router_bound_reached(zone, h->max_active, own.active,
                                            peers.active)
           || (tokens && !ngx_http_kv_router_queue_owns(ctx, h)
               && ngx_http_kv_router_bound_reached(zone, bound,
                                                   own.prefill_tokens,
                                                   peers.prefill_tokens));
}
