
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The prompt of a request, found once: its token ids, from the body or from
 * Lua, are hashed; the model and the workers that it may go to are kept.
 */


#include "ngx_http_kv_router_route.h"

#include <wire/kvr_route.h>
#include <wire/kvr_tokens.h>


static ngx_uint_t ngx_http_kv_router_body(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_str_t *body);
static ngx_uint_t ngx_http_kv_router_scan(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, kvr_prompt_t *prompt);
static ngx_int_t ngx_http_kv_router_keep_names(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, const ngx_http_kv_router_names_t *names,
    const kvr_prompt_t *body);
static ngx_int_t ngx_http_kv_router_hash(ngx_http_kv_router_ctx_t *ctx,
    const uint32_t *tokens, size_t n, uint64_t seed);


/*
 * Buffers of this process, used within one call.  The buffer for the token ids
 * of a body grows to the maximum number of ids seen, which
 * kv_router_max_tokens bounds.
 */

static uint32_t     *ngx_http_kv_router_tokens;
static size_t        ngx_http_kv_router_tokens_size;
static kvr_hasher_t  ngx_http_kv_router_hasher;


/*
 * Reads the body into one buffer.  If there is no body, returns
 * NGX_HTTP_KV_ROUTER_NO_BODY; if the body can't be read, returns _BAD_BODY.
 */

static ngx_uint_t
ngx_http_kv_router_body(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    ngx_str_t *body)
{
    u_char       *p;
    size_t        len;
    off_t         size;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        return NGX_HTTP_KV_ROUTER_NO_BODY;
    }

    cl = r->request_body->bufs;

    if (cl->next == NULL && ngx_buf_in_memory(cl->buf)) {
        body->data = cl->buf->pos;
        body->len = cl->buf->last - cl->buf->pos;

        return body->len ? NGX_HTTP_KV_ROUTER_BY_POLICY
                         : NGX_HTTP_KV_ROUTER_NO_BODY;
    }

    size = 0;

    for ( /* void */ ; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    if (size == 0) {
        return NGX_HTTP_KV_ROUTER_NO_BODY;
    }

    p = ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_BODY, size);
    if (p == NULL) {
        return NGX_HTTP_KV_ROUTER_BAD_BODY;
    }

    body->data = p;
    body->len = size;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {

        b = cl->buf;
        len = ngx_buf_size(b);

        if (ngx_buf_in_memory(b)) {
            p = ngx_cpymem(p, b->pos, len);
            continue;
        }

        n = len ? ngx_read_file(b->file, p, len, b->file_pos) : 0;

        if (n != (ssize_t) len) {
            return NGX_HTTP_KV_ROUTER_BAD_BODY;
        }

        p += len;
    }

    return NGX_HTTP_KV_ROUTER_BY_POLICY;
}


/*
 * Finds the token ids, the model and the salt of the body.  If the model or
 * the salt is missing, its pointer is NULL; otherwise it points into the body
 * or into *prompt.  Returns an NGX_HTTP_KV_ROUTER_…: BY_POLICY if there are
 * ids to be hashed.
 */

static ngx_uint_t
ngx_http_kv_router_scan(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    kvr_prompt_t *prompt)
{
    size_t                      n;
    uint32_t                   *p;
    ngx_str_t                   body;
    ngx_uint_t                  why;
    ngx_http_kv_router_zone_t  *zone;

    zone = ctx->zone;

    prompt->model = NULL;
    prompt->salt = NULL;
    prompt->salt_len = 0;
    prompt->ntokens = 0;

    why = ngx_http_kv_router_body(r, ctx, &body);

    if (why != NGX_HTTP_KV_ROUTER_BY_POLICY) {
        return why;
    }

    n = ngx_min(body.len / 2 + 1, zone->max_tokens);

    if (n > ngx_http_kv_router_tokens_size) {

        n = ngx_min(ngx_max(n, 65536), zone->max_tokens);

        /* ids that begin at a cache line are hashed a tenth faster by AVX2 */

        p = ngx_memalign(64, n * sizeof(uint32_t), r->connection->log);
        if (p == NULL) {
            return NGX_HTTP_KV_ROUTER_TOO_LONG;
        }

        ngx_free(ngx_http_kv_router_tokens);
        ngx_http_kv_router_tokens = p;
        ngx_http_kv_router_tokens_size = n;
    }

    if (!ctx->dry) {
        (void) ngx_atomic_fetch_add(&zone->sh->prompts_scanned, 1);
    }

    switch (kvr_prompt_scan(prompt, (char *) body.data, body.len,
                            ngx_http_kv_router_tokens,
                            ngx_http_kv_router_tokens_size))
    {
    case KVR_OK:

        if (prompt->field) {
            ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                          "kv_router: the field \"%s\" of the body changes "
                          "what the engine reads, routed by load",
                          prompt->field);

            return NGX_HTTP_KV_ROUTER_UNKNOWN_FIELD;
        }

        return prompt->kind == KVR_PROMPT_NONE ? NGX_HTTP_KV_ROUTER_NO_TOKENS
                                               : NGX_HTTP_KV_ROUTER_BY_POLICY;

    case KVR_FULL:
        return NGX_HTTP_KV_ROUTER_TOO_LONG;

    default:
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "kv_router: %s at byte %uz of the body",
                      prompt->error, prompt->error_at);
        prompt->model = NULL;

        return NGX_HTTP_KV_ROUTER_BAD_BODY;
    }
}


/*
 * Copies the names of the workers and of the model.  If no model is named, the
 * body's model is copied.  If body is NULL, no body was searched, and the
 * model stays as it is.
 */

static ngx_int_t
ngx_http_kv_router_keep_names(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, const ngx_http_kv_router_names_t *names,
    const kvr_prompt_t *body)
{
    size_t         len;
    ngx_str_t      s;
    const u_char  *model;

    ctx->roles = names->roles;
    ngx_str_null(&ctx->allowed);

    if (names->allowed
        && ngx_http_kv_router_copy_str(r->pool, &ctx->allowed, names->allowed,
                                       names->allowed_len)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    model = names->model;
    len = names->model_len;

    if (model == NULL) {

        if (body == NULL) {
            return NGX_OK;
        }

        model = (const u_char *) body->model;
        len = body->model_len;
    }

    ngx_str_null(&s);

    if (model
        && ngx_http_kv_router_copy_str(r->pool, &s, model, len) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ctx->prompt.model = (char *) s.data;
    ctx->prompt.model_len = s.len;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_hash(ngx_http_kv_router_ctx_t *ctx, const uint32_t *tokens,
    size_t n, uint64_t seed)
{
    uint32_t         blocks;
    uint64_t        *hashes;
    kvr_contract_t   contract;

    contract = kvr_params_contract(&ctx->zone->params);
    blocks = kvr_contract_blocks(contract, n);

    if (blocks == 0) {
        ctx->prompt.tokens = n;
        return NGX_OK;
    }

    hashes = ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_HASHES,
                                       blocks * sizeof(uint64_t));
    if (hashes == NULL) {
        return NGX_ERROR;
    }

    kvr_hasher_init(&ngx_http_kv_router_hasher, seed);

    (void) kvr_contract_hash(contract, &ngx_http_kv_router_hasher, tokens, n,
                             hashes);

    ctx->hashes = hashes;
    ctx->prompt.tokens = n;
    ctx->prompt.blocks = blocks;
    ctx->prompt.why = NGX_HTTP_KV_ROUTER_BY_POLICY;

    return NGX_OK;
}


void
ngx_http_kv_router_prompt_drop(ngx_http_kv_router_ctx_t *ctx)
{
    ctx->hashes = NULL;
    ctx->prompt.tokens = 0;
    ctx->prompt.blocks = 0;
    ctx->prompt.why = NGX_HTTP_KV_ROUTER_SHORT;
}


int
ngx_http_kv_router_ffi_prompt(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_names_t *names, const uint32_t *tokens,
    size_t ntokens, ngx_http_kv_router_prompt_t *out, char **err)
{
    size_t                     salt_len;
    ngx_uint_t                 why;
    const char                *salt;
    kvr_prompt_t               body, *searched;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_make_ctx(r, zone);
    if (ctx == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    ctx->prompted = 0;
    ctx->matched = 0;
    ctx->route = kvr_route((char *) r->uri.data, r->uri.len, tokens == NULL);
    ngx_http_kv_router_prompt_drop(ctx);

    salt = (const char *) names->salt;
    salt_len = names->salt_len;

    if (tokens) {

        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "kv_router tokens from lua: %uz", ntokens);

        searched = NULL;
        why = ntokens > ctx->zone->max_tokens ? NGX_HTTP_KV_ROUTER_TOO_LONG
                                              : NGX_HTTP_KV_ROUTER_BY_POLICY;

    } else {
        searched = &body;
        why = ngx_http_kv_router_scan(r, ctx, &body);
        tokens = ngx_http_kv_router_tokens;
        ntokens = body.ntokens;

        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "kv_router body: %s, %uz tokens",
                       why ? ngx_http_kv_router_why_name(why) : "token ids",
                       ntokens);

        if (salt == NULL) {
            salt = body.salt;
            salt_len = body.salt_len;
        }
    }

    if (ngx_http_kv_router_keep_names(r, ctx, names, searched) != NGX_OK) {
        *err = "no memory";
        return NGX_ERROR;
    }

    ctx->prompted = 1;

    if (why != NGX_HTTP_KV_ROUTER_BY_POLICY) {
        ctx->prompt.why = why;

    } else if (ngx_http_kv_router_hash(ctx, tokens, ntokens,
                                       kvr_hash_seed((char *) names->lora,
                                                     names->lora_len, salt,
                                                     salt_len))
               != NGX_OK)
    {
        *err = "no memory";
        return NGX_ERROR;
    }

    *out = ctx->prompt;

    return NGX_OK;
}
