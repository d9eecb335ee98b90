
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Bounds: max_active, of workers and of the zone, over all processes of nginx.
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
    uint32_t  i;

    if (ctx->prompt.form == KVR_FORM_NO_LOAD) {
        return 0;
    }

    if (ctx->zone->conf.max_active) {
        return 1;
    }

    for (i = 0; i < ctx->found.ncandidates; i++) {
        if (ctx->found.candidates[i].max_active) {
            return 1;
        }
    }

    return 0;
}


/* The requests that fresh peers have at a holder. */

static int64_t
ngx_http_kv_router_bound_peers(ngx_http_kv_router_ctx_t *ctx, uint32_t holder,
    uint32_t generation)
{
    kvr_load_row_t  load;

    ngx_memzero(&load, sizeof(kvr_load_row_t));

    kvr_peers_add(&ctx->zone->run.router.peers, holder, generation,
                  ngx_current_msec, &load);

    return load.active;
}


static ngx_uint_t
ngx_http_kv_router_bound_reached(ngx_http_kv_router_ctx_t *ctx,
    uint32_t bound, int64_t own, int64_t peers)
{
    kvr_peers_t  *of;

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


/* Is the worker full, of which all n ranks are candidates? */

static ngx_uint_t
ngx_http_kv_router_bound_full(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c, uint32_t n)
{
    int64_t   active, peers;
    uint32_t  i;

    active = 0;
    peers = 0;

    for (i = 0; i < n; i++) {
        active += (int64_t) c[i].active_requests;
        peers += ngx_http_kv_router_bound_peers(ctx, c[i].holder,
                                                c[i].generation);
    }

    return ngx_http_kv_router_bound_reached(ctx, c->max_active,
                                            active - peers, peers);
}


/* The list has all ranks of a worker next to one another. */

uint32_t
ngx_http_kv_router_bound_list(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c, uint32_t n)
{
    uint32_t  i, k, last;

    if (ctx->prompt.form == KVR_FORM_NO_LOAD) {
        return n;
    }

    for (i = 0, k = 0; i < n; i = last) {

        for (last = i + 1; last < n && c[last].worker == c[i].worker; last++) {
            /* void */
        }

        if (c[i].max_active
            && ngx_http_kv_router_bound_full(ctx, &c[i], last - i))
        {
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
    int64_t                       active, peers;
    ngx_uint_t                    i;
    kvr_load_row_t                load;
    ngx_http_kv_router_holder_t  *h;

    if (ctx->zone->conf.max_active == 0
        || ctx->prompt.form == KVR_FORM_NO_LOAD)
    {
        return 0;
    }

    active = 0;
    peers = 0;

    for (i = 0; i < ctx->fleet->n; i++) {
        h = &ctx->fleet->holders[i];

        kvr_load_read(&ctx->zone->run.router.load, h->holder, h->generation,
                      &load);

        active += load.active;
        peers += ngx_http_kv_router_bound_peers(ctx, h->holder,
                                                h->generation);
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router bound: %L and peers' %L of the zone's %ui "
                   "requests", active, peers, ctx->zone->conf.max_active);

    return ngx_http_kv_router_bound_reached(ctx, ctx->zone->conf.max_active,
                                            active, peers);
}


/* max_active is for all ranks of a worker. */

ngx_uint_t
ngx_http_kv_router_worker_full(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    int64_t                          active, peers;
    uint32_t                         k;
    kvr_load_row_t                   load;
    ngx_http_kv_router_candidate_t  *c, *other;

    c = &ctx->found.candidates[i];

    if (c->max_active == 0 || ctx->prompt.form == KVR_FORM_NO_LOAD) {
        return 0;
    }

    active = 0;
    peers = 0;

    for (k = 0; k < ctx->found.ncandidates; k++) {
        other = &ctx->found.candidates[k];

        if (other->worker == c->worker) {
            kvr_load_read(&ctx->zone->run.router.load, other->holder,
                          other->generation, &load);

            active += load.active;
            peers += ngx_http_kv_router_bound_peers(ctx, other->holder,
                                                    other->generation);
        }
    }

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router bound: worker \"%*s\" has %L and peers' %L of "
                   "%uD requests", (size_t) c->worker_len, c->worker, active,
                   peers, c->max_active);

    return ngx_http_kv_router_bound_reached(ctx, c->max_active, active,
                                            peers);
}
