
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a request has in flight, for other processes and routers: see
 * kvr_flights.h.
 */


#include "ngx_http_kv_router_route.h"
#include "../sync/ngx_http_kv_router_sync.h"

#include <zone/kvr_selections.h>


/*
 * Milliseconds for which a prompt that was sent counts as cached at a worker
 * without events.
 */

#define NGX_HTTP_KV_ROUTER_ESTIMATED  5000


static ngx_int_t ngx_http_kv_router_chains(ngx_http_kv_router_ctx_t *ctx);


/* Is there anybody else who sends requests to these workers? */

static ngx_uint_t
ngx_http_kv_router_others(ngx_http_kv_router_zone_t *zone)
{
    return zone->conf.processes->worker_processes > 1
           || kvr_router_selections(&zone->run.router)
           || kvr_peers_fresh(&zone->run.router.peers, ngx_current_msec);
}


ngx_uint_t
ngx_http_kv_router_flies(ngx_http_kv_router_ctx_t *ctx)
{
    return ctx->zone->conf.predict || ngx_http_kv_router_others(ctx->zone)
           || ngx_http_kv_router_estimates(ctx);
}


ngx_int_t
ngx_http_kv_router_flights_find(ngx_http_kv_router_ctx_t *ctx,
    kvr_inflight_depth_t *depths, uint32_t n)
{
    kvr_router_t  *k;

    k = &ctx->zone->run.router;

    if (kvr_flights_empty(&k->flights, ngx_current_msec)) {
        return NGX_OK;
    }

    if (ngx_http_kv_router_chains(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    kvr_flights_find(&k->flights, ctx->found.chains, ctx->keys.lookup.n,
                     kvr_peers_fresh(&k->peers, ngx_current_msec),
                     ngx_current_msec, depths, n);

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_chains(ngx_http_kv_router_ctx_t *ctx)
{
    if (ctx->found.chains) {
        return NGX_OK;
    }

    ctx->found.chains = ngx_http_kv_router_buffer(ctx,
                            NGX_HTTP_KV_ROUTER_BUFFER_CHAINS,
                            (ctx->keys.lookup.n / KVR_FLIGHT_STRIDE + 1)
                            * sizeof(uint64_t));
    if (ctx->found.chains == NULL) {
        return NGX_ERROR;
    }

    (void) kvr_flights_chains(&ctx->zone->run.router.flights,
                              ctx->keys.lookup.hash, ctx->keys.lookup.n,
                              ctx->found.chains);

    return NGX_OK;
}


/*
 * With predict=, and at a worker without events, a flight has a time.  Any
 * other ends with its request, so it is kept.
 */

void
ngx_http_kv_router_flight_begin(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s, uint32_t i)
{
    uint32_t                         from;
    ngx_msec_t                       ms;
    kvr_flight_t                     timed, *flight;
    kvr_router_t                    *k;
    ngx_http_kv_router_flight_t     *kept;
    ngx_http_kv_router_candidate_t  *c;

    static uint32_t  id;

    c = &ctx->found.candidates[i];
    k = &ctx->zone->run.router;
    ms = ctx->zone->conf.predict;
    from = c->device - c->predicted;

    if (ctx->keys.lookup.hash == NULL) {
        return;
    }

    if (c->confidence == KVR_ESTIMATED) {
        ms = ms ? ms : NGX_HTTP_KV_ROUTER_ESTIMATED;
        from = ctx->found.estimates[i].device;

    } else if (ctx->keys.of_text
               || (ms == 0 && !ctx->selects
                   && !ngx_http_kv_router_others(ctx->zone)))
    {
        return;
    }

    kept = NULL;
    flight = &timed;

    if (ms == 0) {
        kept = ngx_palloc(ctx->request->pool,
                          sizeof(ngx_http_kv_router_flight_t));
        if (kept == NULL) {
            return;
        }

        flight = &kept->flight;
    }

    if (ngx_http_kv_router_chains(ctx) != NGX_OK) {
        return;
    }

    flight->holder = c->holder;
    flight->generation = c->generation;

    kvr_flight_sample(flight, ctx->found.chains, ctx->keys.lookup.n, from,
                      kvr_router_classed(k, c->holder));

    kvr_flights_add(&k->flights, flight,
                    kept ? KVR_FLIGHT_COUNTED : KVR_FLIGHT_TIMED, false,
                    ngx_current_msec,
                    ngx_current_msec
                    + (kept == NULL ? ms : ctx->selects
                       ? kvr_selection_flight_ms(ctx->zone->conf.lease)
                       : KVR_FLIGHT_UNTIL_MS));

    if (flight->n == 0) {
        return;
    }

    /* each router estimates what a worker without events has, for itself */

    if (c->confidence != KVR_ESTIMATED) {
        ngx_http_kv_router_sync_add(ctx->zone, flight, ++id);
    }

    if (kept) {
        kept->id = id;
        kept->renew = ngx_current_msec + KVR_FLIGHT_RENEW_MS;
        ngx_queue_insert_tail(&ctx->zone->run.flights, &kept->queue);
        s->flight = kept;
    }
}


void
ngx_http_kv_router_flight_end(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s)
{
    ngx_http_kv_router_flight_t  *kept;

    kept = s->flight;

    if (kept) {
        kvr_flights_end(&ctx->zone->run.router.flights, &kept->flight, false,
                        ngx_current_msec);
        ngx_http_kv_router_sync_end(ctx->zone, kept->id);
        ngx_queue_remove(&kept->queue);
        s->flight = NULL;
    }
}


void
ngx_http_kv_router_flight_hand_over(kvr_reservation_t *s)
{
    ngx_http_kv_router_flight_t  *kept;

    kept = s->flight;

    if (kept) {
        ngx_queue_remove(&kept->queue);
        s->flight = NULL;
    }
}


/* The flight that is to be renewed first is the first of the queue. */

void
ngx_http_kv_router_flights_renew(ngx_http_kv_router_zone_t *zone)
{
    ngx_queue_t                  *q;
    ngx_http_kv_router_flight_t  *kept;

    while (!ngx_queue_empty(&zone->run.flights)) {
        q = ngx_queue_head(&zone->run.flights);
        kept = ngx_queue_data(q, ngx_http_kv_router_flight_t, queue);

        if ((ngx_msec_int_t) (kept->renew - ngx_current_msec) > 0) {
            return;
        }

        kvr_flights_add(&zone->run.router.flights, &kept->flight,
                        KVR_FLIGHT_RENEWED, false, ngx_current_msec,
                        ngx_current_msec + KVR_FLIGHT_UNTIL_MS);
        ngx_http_kv_router_sync_add(zone, &kept->flight, kept->id);

        kept->renew = ngx_current_msec + KVR_FLIGHT_RENEW_MS;
        ngx_queue_remove(q);
        ngx_queue_insert_tail(&zone->run.flights, q);
    }
}
