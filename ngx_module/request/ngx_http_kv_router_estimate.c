
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A request at workers without events: what they are estimated to have cached
 * of its prompt, and what the answer adds to the estimate.
 */


#include "ngx_http_kv_router_route.h"

#include <wire/kvr_plain.h>


/* a chunk of text is a block of so many u32 */
#define NGX_HTTP_KV_ROUTER_TEXT_WORDS  (KVR_TEXT_BLOCK / sizeof(uint32_t))

#define NGX_HTTP_KV_ROUTER_TEXT_SEED   "kv_router text"


static uint64_t *ngx_http_kv_router_estimate_hash(
    ngx_http_kv_router_ctx_t *ctx, const char *text, size_t len);
static void ngx_http_kv_router_estimate_record(ngx_http_kv_router_ctx_t *ctx,
    kvr_routed_record_t *record, kvr_routed_kind_t kind);


/* Of this process, used within one call. */

static kvr_hasher_t  ngx_http_kv_router_text_hasher;


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


ngx_int_t
ngx_http_kv_router_estimate_text(ngx_http_kv_router_ctx_t *ctx)
{
    char                        *text;
    size_t                       len;
    uint32_t                     i;
    ngx_log_t                   *log;
    kvr_tape_t                  *tape;
    ngx_http_kv_router_match_t  *match;

    if (ctx->keys.ids.hash || !ctx->prompt.view.text
        || ctx->prompt.prompts != 1
        || ctx->prompt.view.why != NGX_HTTP_KV_ROUTER_NO_TOKENS
        || !ngx_http_kv_router_estimates(ctx))
    {
        return NGX_OK;
    }

    if (ctx->keys.text.n == 0) {

        if (ngx_http_kv_router_body(ctx->request, ctx, 0)
            != NGX_HTTP_KV_ROUTER_BY_POLICY)
        {
            return NGX_OK;
        }

        log = ctx->request->connection->log;
        tape = &ctx->body.tape;

        /* the hasher reads whole words */

        text = ngx_memalign(sizeof(uint64_t), tape->text_len + 1, log);
        if (text == NULL) {
            return NGX_ERROR;
        }

        len = kvr_plain_text(tape, ctx->prompt.form, text, tape->text_len);

        ctx->keys.text_bytes = len;
        ctx->keys.text.hash = ngx_http_kv_router_estimate_hash(ctx, text, len);
        ctx->keys.text.n = ctx->keys.text.hash ? len / KVR_TEXT_BLOCK : 0;

        ngx_free(text);

        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, log, 0,
                       "kv_router text: %uz bytes, %uD blocks", len,
                       ctx->keys.text.n);
    }

    if (ctx->keys.text.n == 0) {
        return NGX_OK;
    }

    ctx->keys.lookup = ctx->keys.text;
    ctx->keys.of_text = 1;

    /* for the policies the prompt has tokens and blocks of the zone */

    for (i = 0; ctx->found.candidates[i].confidence != KVR_ESTIMATED; i++) {
        /* void */
    }

    match = &ctx->found.match;

    match->prompt_blocks = kvr_router_estimate_blocks(&ctx->zone->router,
                                               ctx->found.candidates[i].holder,
                                               ctx->keys.text.n);
    match->prompt_tokens = match->prompt_blocks * match->block_size;
    match->why = NGX_HTTP_KV_ROUTER_BY_POLICY;
    ctx->keys.rung = NGX_HTTP_KV_ROUTER_BY_TEXT;

    for (i = 0; i < ctx->found.ncandidates; i++) {
        ctx->found.candidates[i].additional_blocks += match->prompt_blocks;
    }

    return NGX_OK;
}


/* Texts of two models, adapters or salts have no block in common. */

static uint64_t *
ngx_http_kv_router_estimate_hash(ngx_http_kv_router_ctx_t *ctx,
    const char *text, size_t len)
{
    uint64_t   seed, *hashes;
    ngx_str_t  model;

    if (len < KVR_TEXT_BLOCK) {
        return NULL;
    }

    hashes = ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_TEXT,
                                       len / KVR_TEXT_BLOCK
                                       * sizeof(uint64_t));
    if (hashes == NULL) {
        return NULL;
    }

    model.data = (u_char *) ctx->prompt.view.model;
    model.len = ctx->prompt.view.model_len;

    seed = ctx->prompt.seed
           + kvr_hash_seed((char *) model.data, model.len,
                           NGX_HTTP_KV_ROUTER_TEXT_SEED,
                           sizeof(NGX_HTTP_KV_ROUTER_TEXT_SEED) - 1);

    kvr_hasher_init(&ngx_http_kv_router_text_hasher, seed);

    (void) kvr_hash_blocks(&ngx_http_kv_router_text_hasher,
                           (const uint32_t *) (const void *) text,
                           len / sizeof(uint32_t),
                           NGX_HTTP_KV_ROUTER_TEXT_WORDS, hashes);

    return hashes;
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

    k = &ctx->zone->router;
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
        || ctx->prompt.form == KVR_FORM_NO_LOAD
        || ctx->request->headers_out.status != NGX_HTTP_OK)
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
