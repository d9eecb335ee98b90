
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Compares the cached tokens that an engine reports with the prediction, and
 * warns (the watchdog) if the two never agree.
 */


#include "ngx_http_kv_router_route.h"


/* milliseconds between two looks at all workers */

#define NGX_HTTP_KV_ROUTER_JUDGE_PERIOD  1000


static void ngx_http_kv_router_usage_reported(ngx_http_kv_router_ctx_t *ctx);
static void ngx_http_kv_router_judge_worker(ngx_http_kv_router_zone_t *zone,
    uint32_t number);


/*
 * Looks for the usage in a part of the answer.  A buffer in a file is not
 * read, nor is an answer with a Content-Encoding.
 */

void
ngx_http_kv_router_usage(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    ngx_buf_t *b)
{
    if (r->headers_out.status != NGX_HTTP_OK || ctx->prefiller
        || ctx->chosen->role == KVR_ROLE_DECODE || ctx->usage_done
        || ctx->encoded)
    {
        /* blocks from another worker's cache are no hits of this worker */
        return;
    }

    if (ngx_buf_in_memory(b)) {
        kvr_answer_add(&ctx->answer, b->pos, b->last - b->pos);

    } else if (ngx_buf_size(b) > 0) {
        kvr_answer_gap(&ctx->answer);
    }

    if (b->last_buf) {
        ctx->usage_done = 1;
        ngx_http_kv_router_usage_reported(ctx);
    }
}


static void
ngx_http_kv_router_usage_reported(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         known, worker;
    kvr_router_t                    *k;
    kvr_answer_usage_t               usage;
    kvr_usage_answer_t               a;
    ngx_http_kv_router_candidate_t  *c;

    if (!kvr_answer_usage(&ctx->answer, &usage)) {
        return;
    }

    ctx->usage_tokens = ctx->others ? 0 : usage.prompt_tokens;
    ctx->output_tokens = ngx_max(ctx->output_tokens, usage.completion_tokens);

    if (!usage.has_cached) {
        return;
    }

    ctx->cached_tokens = usage.cached_tokens;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router usage: the engine had %uL of %uL tokens cached, "
                   "%uD of %uD blocks were known", usage.cached_tokens,
                   usage.prompt_tokens, ctx->chosen->device,
                   ctx->match.prompt_blocks);

    /* several prompts have one usage: their sum */

    if (ctx->match.prompt_blocks == 0 || ctx->others) {
        return;
    }

    k = &ctx->zone->router;
    c = ctx->chosen;

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

    a.block_size = ctx->match.block_size;
    a.blocks = ctx->match.prompt_blocks;
    a.prompt_tokens = usage.prompt_tokens;
    a.predicted = (uint64_t) known * a.block_size;
    a.best = (uint64_t) ngx_max(ctx->best, known) * a.block_size;
    a.cached = usage.cached_tokens;

    kvr_usage_add(&ctx->zone->sh->usage[worker], c->generation, &a);

    ngx_http_kv_router_estimate_answer(ctx, usage.cached_tokens);
}


/* ---- the watchdog ------------------------------------------------------- */

const char *
ngx_http_kv_router_usage_causes(kvr_usage_verdict_t verdict)
{
    switch (verdict) {

    case KVR_USAGE_NEVER_MATCHED:
        return "are the block size, the tokens (tokenizer, chat template), "
               "the cache salt and the LoRA name those of the engine, and is "
               "it this engine that the events are of?";

    case KVR_USAGE_NOT_CACHED:
        return "is prefix caching on, is it this engine that the events are "
               "of, are removals lost, and are the cache salt and the LoRA "
               "name those of the engine?";

    case KVR_USAGE_LESS_CACHED:
        return "has its model layers of which the engine publishes nothing, "
               "as SGLang's hybrid models have (hybrid=on), does the engine "
               "draft tokens (spec_drop=on), are removals lost?";

    default:
        return NULL;
    }
}


const char *
ngx_http_kv_router_usage_says(kvr_usage_verdict_t verdict)
{
    switch (verdict) {

    case KVR_USAGE_NEVER_MATCHED:
        return "finds prompts in its cache of which no block is known here";

    case KVR_USAGE_NOT_CACHED:
        return "has nothing in its cache of the blocks that are known here";

    default: /* KVR_USAGE_LESS_CACHED */
        return "has, of more than 5 % of the prompts, less than half in its "
               "cache of the blocks that are known here";
    }
}


void
ngx_http_kv_router_judge(ngx_http_kv_router_zone_t *zone)
{
    uint32_t  i, n;

    if (ngx_current_msec - zone->judged < NGX_HTTP_KV_ROUTER_JUDGE_PERIOD) {
        return;
    }

    zone->judged = ngx_current_msec;

    n = ngx_min(kvr_router_workers(&zone->router), zone->sh->nworkers);

    for (i = 0; i < n; i++) {
        ngx_http_kv_router_judge_worker(zone, i);
        ngx_http_kv_router_estimate_tell(zone, i);
    }
}


static void
ngx_http_kv_router_judge_worker(ngx_http_kv_router_zone_t *zone,
    uint32_t number)
{
    bool                  holds, bound;
    uint32_t              flags, generation, holder, steps;
    kvr_router_t         *k;
    kvr_worker_conf_t     conf;
    const kvr_worker_t   *w;
    kvr_usage_verdict_t   verdict;

    k = &zone->router;

    generation = kvr_load32(&kvr_router_worker(k, number)->generation);

    holds = false;
    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (!holds && kvr_router_next_holder(k, number, &holder, &steps)) {
        holds = kvr_router_holder_held(k, holder) != 0;
    }

    /* the engine may have evicted blocks that are estimated to be cached */

    w = kvr_router_worker(k, number);
    bound = kvr_fleet_bound(w)
            || ngx_http_kv_router_confidence(zone, w, number) == KVR_ESTIMATED;

    if (!kvr_usage_judge(&zone->sh->usage[number], generation, holds, bound,
                         &verdict)
        || kvr_router_read_worker(k, number, &conf, &flags, &generation)
           != KVR_OK)
    {
        return;
    }

    if (verdict == KVR_USAGE_GOOD) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": what worker \"%s\" has cached "
                      "agrees with what is known of it",
                      &zone->name, conf.id);
        return;
    }

    ngx_http_kv_router_warn(zone, NGX_LOG_ERR, ngx_cycle->log,
                            "worker \"%s\" %s: %s", conf.id,
                            ngx_http_kv_router_usage_says(verdict),
                            ngx_http_kv_router_usage_causes(verdict));
}
