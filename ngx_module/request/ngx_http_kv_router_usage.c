
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Compares the cached tokens that an engine reports with the prediction.
 */


#include "ngx_http_kv_router_route.h"

#include <wire/kvr_route.h>


/* the minimum of blocks that were predicted: of fewer nothing is said */

#define NGX_HTTP_KV_ROUTER_USAGE_BLOCKS  4

/* the engine must have one of so many; or where they are an upper bound */

#define NGX_HTTP_KV_ROUTER_USAGE_LESS    2
#define NGX_HTTP_KV_ROUTER_USAGE_BOUND   20


static void ngx_http_kv_router_usage_reported(ngx_http_kv_router_ctx_t *ctx);
static void ngx_http_kv_router_usage_judge(ngx_http_kv_router_ctx_t *ctx,
    uint32_t worker, uint32_t known, uint64_t cached);


/*
 * Looks for the usage in a part of the answer.  A buffer in a file is not
 * read, nor is an answer with a Content-Encoding.
 */

void
ngx_http_kv_router_usage(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    ngx_buf_t *b)
{
    if (r->headers_out.status != NGX_HTTP_OK || ctx->choice.prefiller
        || ctx->choice.chosen->role == KVR_ROLE_DECODE
        || ctx->answer.usage_done || ctx->answer.encoded)
    {
        /* blocks from another worker's cache are no hits of this worker */
        return;
    }

    if (ngx_buf_in_memory(b)) {
        kvr_answer_add(&ctx->answer.search, b->pos, b->last - b->pos);

    } else if (ngx_buf_size(b) > 0) {
        kvr_answer_gap(&ctx->answer.search);
    }

    if (b->last_buf) {
        ctx->answer.usage_done = 1;
        ngx_http_kv_router_usage_reported(ctx);
    }
}


static void
ngx_http_kv_router_usage_reported(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         known, worker;
    kvr_router_t                    *k;
    kvr_answer_usage_t               usage;
    kvr_usage_t                      a;
    ngx_http_kv_router_candidate_t  *c;

    if (!kvr_answer_usage(&ctx->answer.search, &usage)) {
        return;
    }

    ctx->answer.usage_tokens = ctx->prompt.others ? 0 : usage.prompt_tokens;
    ctx->answer.output_tokens = ngx_max(ctx->answer.output_tokens,
                                        usage.completion_tokens);

    if (!usage.has_cached) {
        return;
    }

    ctx->answer.cached_tokens = usage.cached_tokens;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router usage: the engine had %uL of %uL tokens cached, "
                   "%uD of %uD blocks were known", usage.cached_tokens,
                   usage.prompt_tokens, ctx->choice.chosen->device,
                   ctx->found.match.prompt_blocks);

    /* several prompts have one usage: their sum */

    if (ctx->found.match.prompt_blocks == 0 || ctx->prompt.others) {
        return;
    }

    k = &ctx->zone->router;
    c = ctx->choice.chosen;

    worker = kvr_router_holder_worker(k, c->holder);

    if (worker >= ctx->zone->sh->nworkers
        || kvr_load32(&kvr_router_worker(k, worker)->generation)
           != c->generation)
    {
        return;
    }

    /*
     * the blocks known by the worker's events, without predicted ones; blocks
     * in lower tiers count, because the engine finds them, too
     */

    known = c->predicted && c->disk == c->device ? c->device - c->predicted
                                                 : c->disk;

    a.requests = 1;
    a.prompt_tokens = usage.prompt_tokens;
    a.predicted_tokens = (uint64_t) known * ctx->found.match.block_size;
    a.best_tokens = (uint64_t) ngx_max(ctx->found.best, known)
                    * ctx->found.match.block_size;
    a.cached_tokens = usage.cached_tokens;

    kvr_usage_add(&ctx->zone->sh->trust[worker], c->generation, &a);

    ngx_http_kv_router_usage_judge(ctx, worker, known,
                                   usage.cached_tokens
                                   / ctx->found.match.block_size);

    ngx_http_kv_router_estimate_answer(ctx, usage.cached_tokens);
}


/* Estimates learn from the same answers: what they say is no evidence. */

static void
ngx_http_kv_router_usage_judge(ngx_http_kv_router_ctx_t *ctx, uint32_t worker,
    uint32_t known, uint64_t cached)
{
    uint32_t             less;
    kvr_echo_t           e;
    const kvr_worker_t  *w;

    w = kvr_router_worker(&ctx->zone->router, worker);

    if (known < NGX_HTTP_KV_ROUTER_USAGE_BLOCKS
        || ngx_http_kv_router_confidence(ctx->zone, w, worker)
           == KVR_ESTIMATED)
    {
        return;
    }

    less = kvr_fleet_bound(w) ? NGX_HTTP_KV_ROUTER_USAGE_BOUND
                              : NGX_HTTP_KV_ROUTER_USAGE_LESS;

    e.worker = worker;
    e.generation = ctx->choice.chosen->generation;
    e.epoch = kvr_load64(&w->stream.epoch);
    e.route = KVR_ROUTE_CACHED;
    e.depth = (uint32_t) ngx_min(cached, known);
    e.blocks = known;

    ngx_http_kv_router_echo_add(ctx->zone, &e, cached * less >= known);
}
