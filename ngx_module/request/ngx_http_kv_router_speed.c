
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How fast each rank prefills, measured by the first output of its answers,
 * and the fleet's median of that.
 */


#include "ngx_http_kv_router_route.h"


/* milliseconds between two looks at all records */

#define NGX_HTTP_KV_ROUTER_SPEED_PERIOD  1000


static void ngx_http_kv_router_speed_sample(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c, const kvr_reservation_t *s,
    double us);


/*
 * Some versions of SGLang stream only the end of an answer of the Responses
 * API, behind events without output.
 */

ngx_uint_t
ngx_http_kv_router_shows_output(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c)
{
    return ctx->prompt.form != KVR_FORM_RESPONSES
           || c->engine == KVR_ENGINE_VLLM;
}


/*
 * Of these answers the first output shows the end of the prefill: it comes
 * with the first token, at once.  An answer that is not streamed, or that
 * nginx buffers, begins after some or all of its tokens.  A retry's queue is
 * not known: the candidates were listed for the first try.
 */

void
ngx_http_kv_router_speed_answer(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx)
{
    if (r->headers_out.status != NGX_HTTP_OK || r->upstream->buffering
        || !ngx_http_kv_router_shows_output(ctx, ctx->choice.chosen)
        || ctx->choice.prefiller || ctx->try.tries != 1)
    {
        return;
    }

    ngx_http_kv_router_speed_sample(ctx, ctx->choice.chosen,
                                    &ctx->choice.reservation,
                                    ngx_http_kv_router_now_us()
                                    - ctx->times.decided_us);
}


void
ngx_http_kv_router_speed_prefill(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_http_kv_router_speed_sample(ctx, ctx->choice.prefiller,
                                    &ctx->choice.prefill,
                                    ngx_http_kv_router_now_us()
                                    - ctx->times.prefill_us);
}


/*
 * A prompt whose tokens are not known, or estimated by its text, is no sample,
 * nor are several prompts: the first output comes after the first of them.
 */

static void
ngx_http_kv_router_speed_sample(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c, const kvr_reservation_t *s,
    double us)
{
    uint64_t  tokens;

    if (ctx->found.match.prompt_tokens == 0 || ctx->keys.of_text
        || ctx->prompt.others)
    {
        return;
    }

    tokens = (uint64_t) c->prefill_tokens + s->prefill_tokens;

    kvr_speed_add(ngx_http_kv_router_speed(ctx->zone, c->holder),
                  c->generation, tokens, (int64_t) us);

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router speed: worker \"%*s\" rank %uD: %uL tokens in "
                   "%uL us", (size_t) c->worker_len, c->worker, c->rank,
                   tokens, (uint64_t) us);
}


/* A request reads the speeds of all candidates: this process has a copy. */

void
ngx_http_kv_router_speeds(ngx_http_kv_router_zone_t *zone)
{
    double                       *speeds, speed;
    uint32_t                      n;
    ngx_uint_t                    i;
    ngx_http_kv_router_fleet_t   *fleet;
    ngx_http_kv_router_holder_t  *h;

    if (ngx_current_msec - zone->run.speeds_at
        < NGX_HTTP_KV_ROUTER_SPEED_PERIOD)
    {
        return;
    }

    zone->run.speeds_at = ngx_current_msec;

    fleet = ngx_http_kv_router_fleet_get(zone);
    if (fleet == NULL) {
        return;
    }

    speeds = ngx_alloc((fleet->n + 1) * sizeof(double), ngx_cycle->log);

    if (speeds == NULL) {
        ngx_http_kv_router_fleet_put(fleet);
        return;
    }

    n = 0;

    for (i = 0; i < fleet->n; i++) {
        h = &fleet->holders[i];
        speed = kvr_speed_measured(ngx_http_kv_router_speed(zone, h->holder),
                                   h->generation);
        if (speed > 0) {
            speeds[n++] = speed;
        }
    }

    zone->run.speed = kvr_speed_median(speeds, n);

    for (i = 0; i < fleet->n; i++) {
        h = &fleet->holders[i];
        h->speed = kvr_speed_read(ngx_http_kv_router_speed(zone, h->holder),
                                  h->generation, zone->run.speed);
    }

    ngx_free(speeds);
    ngx_http_kv_router_fleet_put(fleet);
}
