
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The keys of a request: the hashes of its prompt's blocks, of token ids or,
 * for workers without events, of plain text.
 */


#include "ngx_http_kv_router_route.h"

#include <wire/kvr_plain.h>


/* a chunk of text is a block of so many u32 */
#define NGX_HTTP_KV_ROUTER_TEXT_WORDS  (KVR_TEXT_BLOCK / sizeof(uint32_t))

#define NGX_HTTP_KV_ROUTER_TEXT_SEED   "kv_router text"


static uint64_t *ngx_http_kv_router_keys_chunks(ngx_http_kv_router_ctx_t *ctx,
    const char *text, size_t len);


/* Of this process, used within one call. */

static kvr_hasher_t  ngx_http_kv_router_hasher;


ngx_int_t
ngx_http_kv_router_keys_ids(ngx_http_kv_router_ctx_t *ctx,
    const uint32_t *tokens, size_t n)
{
    size_t                       all;
    uint32_t                     blocks;
    uint64_t                    *hashes;
    kvr_contract_t               contract;
    ngx_http_kv_router_known_t  *known;

    contract = kvr_params_contract(&ctx->zone->conf.params);
    known = ctx->prompt.known;
    all = n + (known ? known->blocks * contract.block_size : 0);
    blocks = kvr_contract_blocks(contract, all);

    if (blocks == 0) {
        ctx->prompt.view.tokens = all;
        return NGX_OK;
    }

    hashes = known && blocks <= known->room
             ? known->hashes
             : ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_HASHES,
                                         blocks * sizeof(uint64_t));
    if (hashes == NULL) {
        return NGX_ERROR;
    }

    if (known && hashes != known->hashes) {
        ngx_memcpy(hashes, known->hashes, known->blocks * sizeof(uint64_t));
    }

    kvr_hasher_init(&ngx_http_kv_router_hasher, ctx->prompt.seed);

    (void) kvr_contract_hash(contract, &ngx_http_kv_router_hasher, tokens, n,
                             hashes + (known ? known->blocks : 0));

    ctx->keys.ids.hash = hashes;
    ctx->keys.ids.n = blocks;
    ctx->prompt.view.tokens = all;
    ctx->prompt.view.blocks = blocks;
    ctx->prompt.view.why = NGX_HTTP_KV_ROUTER_BY_POLICY;

    if (known) {
        known->done(ctx);
    }

    return NGX_OK;
}


void
ngx_http_kv_router_keys_drop(ngx_http_kv_router_ctx_t *ctx)
{
    ctx->keys.ids.hash = NULL;
    ctx->keys.ids.n = 0;
    ctx->prompt.view.tokens = 0;
    ctx->prompt.view.blocks = 0;
    ctx->prompt.view.why = NGX_HTTP_KV_ROUTER_SHORT;
}


int
ngx_http_kv_router_ffi_shadow(ngx_http_request_t *r, void *zone,
    const uint32_t *tokens, size_t ntokens)
{
    uint32_t                   blocks;
    uint64_t                  *hashes;
    kvr_contract_t             contract;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->prompt.prompted) {
        return NGX_ERROR;
    }

    kvr_prompt_cut(&ctx->prompt.cut, &tokens, &ntokens);

    ngx_http_kv_router_count(ctx->zone->run.sh, SHADOWS, 1);

    /* a block that ends with the prompt is not looked for */

    contract = kvr_params_contract(&ctx->zone->conf.params);
    blocks = ntokens ? kvr_contract_blocks(contract, ntokens - 1) : 0;

    if (blocks == 0) {
        return NGX_OK;
    }

    if (blocks > KVR_ECHO_BLOCKS) {
        ngx_http_kv_router_count(ctx->zone->run.sh, ECHOES_LONG, 1);
        return NGX_OK;
    }

    hashes = ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_SHADOW,
                                       blocks * sizeof(uint64_t));
    if (hashes == NULL) {
        return NGX_ERROR;
    }

    kvr_hasher_init(&ngx_http_kv_router_hasher, ctx->prompt.seed);

    (void) kvr_contract_hash(contract, &ngx_http_kv_router_hasher,
                             tokens, ntokens - 1, hashes);

    ctx->keys.shadow.hash = hashes;
    ctx->keys.shadow.n = blocks;

    return NGX_OK;
}


ngx_int_t
ngx_http_kv_router_keys_text(ngx_http_kv_router_ctx_t *ctx)
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
        ctx->keys.text.hash = ngx_http_kv_router_keys_chunks(ctx, text, len);
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

    match->prompt_blocks = kvr_router_estimate_blocks(&ctx->zone->run.router,
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
ngx_http_kv_router_keys_chunks(ngx_http_kv_router_ctx_t *ctx,
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

    kvr_hasher_init(&ngx_http_kv_router_hasher, seed);

    (void) kvr_hash_blocks(&ngx_http_kv_router_hasher,
                           (const uint32_t *) (const void *) text,
                           len / sizeof(uint32_t),
                           NGX_HTTP_KV_ROUTER_TEXT_WORDS, hashes);

    return hashes;
}
