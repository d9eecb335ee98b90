
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A request at workers without events: what they are estimated to have cached
 * of its prompt, and what the answer adds to the estimate.
 */


#include "ngx_http_kv_router_route.h"


/* ---- before the decision ------------------------------------------------ */

ngx_uint_t
ngx_http_kv_router_estimates(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t  i;

    for (i = 0; i < ctx->found.ncandidates; i++) {
        if (ctx->found.candidates[i].confidence == KVR_ESTIMATED) {
            return 1;
        }
    }

    return 0;
}


/*
 * Policies see of the candidate what is expected of the candidate.  While the
 * size of the cache is not known, half of it counts: the engine may have
 * evicted the rest.
 */

void
ngx_http_kv_router_estimate(ngx_http_kv_router_ctx_t *ctx, uint32_t i,
    uint32_t expected)
{
    uint32_t                         known;
    kvr_router_t                    *k;
    kvr_estimate_info_t              info;
    ngx_http_kv_router_candidate_t  *c;

    k = &ctx->zone->run.router;
    c = &ctx->found.candidates[i];

    known = ctx->found.estimates[i].device;

    if (ctx->keys.of_text) {
        known = kvr_router_estimate_blocks(k, c->holder, known);
        expected = kvr_router_estimate_blocks(k, c->holder, expected);

        known = ngx_min(known, ctx->found.match.prompt_blocks);
        expected = ngx_min(expected, ctx->found.match.prompt_blocks);
    }

    if (kvr_router_estimate_read(k, c->holder, &info) != KVR_OK
        || info.capacity == 0)
    {
        known /= 2;
        expected /= 2;
    }

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router estimate: worker \"%*s\" has %uD blocks, with "
                   "predicted ones %uD", (size_t) c->worker_len, c->worker,
                   known, expected);

    c->predicted = expected - known;
    c->device = expected;
    c->host = expected;
    c->disk = expected;
}


/* ---- afterwards --------------------------------------------------------- */

static void
ngx_http_kv_router_estimate_record(ngx_http_kv_router_ctx_t *ctx,
    kvr_routed_record_t *record, kvr_routed_kind_t kind)
{
    ngx_memzero(record, sizeof(kvr_routed_record_t));

    record->kind = kind;
    record->holder = ctx->choice.chosen->holder;
    record->generation = ctx->choice.chosen->generation;
    record->n = ctx->keys.lookup.n;
    record->text = ctx->keys.of_text;
    record->bytes = ctx->keys.of_text ? ctx->keys.text_bytes : 0;
    record->tokens = ctx->keys.of_text ? ctx->answer.usage_tokens
                                       : ctx->prompt.view.tokens;
    record->routed_ms = ctx->times.routed_ms;
}


/* The engine has computed the whole prompt. */

void
ngx_http_kv_router_estimate_begin(ngx_http_kv_router_ctx_t *ctx)
{
    kvr_routed_record_t  record;

    if (ctx->choice.chosen->confidence != KVR_ESTIMATED
        || ctx->keys.lookup.n == 0 || ctx->answer.begun
        || ctx->prompt.form == KVR_FORM_NO_LOAD)
    {
        return;
    }

    ctx->answer.begun = 1;

    ngx_http_kv_router_estimate_record(ctx, &record, KVR_ROUTED_BEGIN);
    ngx_http_kv_router_routed(ctx->zone, &record, ctx->keys.lookup.hash);
}


void
ngx_http_kv_router_estimate_answer(ngx_http_kv_router_ctx_t *ctx,
    uint64_t cached)
{
    kvr_match_t          *m;
    kvr_routed_record_t   record;

    if (!ctx->answer.begun) {
        return;
    }

    m = &ctx->found.estimates[ctx->choice.chosen - ctx->found.candidates];

    ngx_http_kv_router_estimate_record(ctx, &record, KVR_ROUTED_ANSWER);

    record.hot = m->hot;
    record.visible = m->device;
    record.ghost = m->ghost;
    record.sibling = ctx->choice.chosen->predicted != 0;
    record.cached = cached;

    if (ctx->answer.usage_tokens) {
        record.tokens = ctx->answer.usage_tokens;
    }

    ngx_http_kv_router_routed(ctx->zone, &record, NULL);
}


void
ngx_http_kv_router_estimate_end(ngx_http_kv_router_ctx_t *ctx)
{
    kvr_routed_record_t  record;

    if (!ctx->answer.begun) {
        return;
    }

    ctx->answer.begun = 0;

    ngx_http_kv_router_estimate_record(ctx, &record, KVR_ROUTED_END);

    record.completion = ctx->answer.output_tokens;

    ngx_http_kv_router_routed(ctx->zone, &record, ctx->keys.lookup.hash);
}
