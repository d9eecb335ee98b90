
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The prompt of a request, found once, by the form of the request: its token
 * ids, from the body or from Lua, and what else is kept of it: the model, the
 * namespaces of the cache, and the workers that it may go to.
 */


#include "ngx_http_kv_router_route.h"

#include <wire/kvr_route.h>


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
    ngx_uint_t   why;
    kvr_tape_t  *tape;

    why = ngx_http_kv_router_body(r, ctx, 1);

    if (why != NGX_HTTP_KV_ROUTER_BY_POLICY) {
        return why;
    }

    tape = &ctx->body.tape;

    if (ctx->prompt.guess) {
        ctx->prompt.form = kvr_prompt_form(tape);
    }

    switch (kvr_prompt_read(prompt, tape, ctx->prompt.form,
                            ctx->fleet->engines))
    {

    case KVR_OK:

        if (prompt->field) {
            ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                          "kv_router: the field \"%s\" of the body changes "
                          "what the engine reads, routed by load",
                          prompt->field);

            return NGX_HTTP_KV_ROUTER_UNKNOWN_FORM;
        }

        return prompt->has_ids ? NGX_HTTP_KV_ROUTER_BY_POLICY
                               : NGX_HTTP_KV_ROUTER_NO_TOKENS;

    case KVR_FULL:
        return NGX_HTTP_KV_ROUTER_TOO_LONG;

    default:
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "kv_router: %s at byte %uz of the body",
                      prompt->error, prompt->error_at);

        ngx_memzero(&prompt->model, sizeof(kvr_prompt_string_t));

        return NGX_HTTP_KV_ROUTER_BAD_BODY;
    }
}


/*
 * The form of a request.  Of a body that POST /route asks about, the argument
 * "path" says the form; without it the body's fields do, see
 * ngx_http_kv_router_scan().
 */

static kvr_form_t
ngx_http_kv_router_form(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_names_t *names)
{
    u_char      *p, *src;
    ngx_str_t    path;
    ngx_uint_t   asks;

    path = r->uri;
    asks = (r->method & (NGX_HTTP_POST|NGX_HTTP_PUT)) != 0;

    if (names->asked) {
        asks = 1;

        if (ngx_http_arg(r, (u_char *) "path", 4, &path) != NGX_OK) {
            ctx->prompt.guess = 1;
            return KVR_FORM_UNKNOWN;
        }

        p = ngx_pnalloc(r->pool, path.len);
        if (p == NULL) {
            return KVR_FORM_UNKNOWN;
        }

        src = path.data;
        path.data = p;

        ngx_unescape_uri(&p, &src, path.len, 0);

        path.len = p - path.data;
    }

    return kvr_form(asks, (char *) path.data, path.len, ctx->fleet->engines);
}


static ngx_uint_t
ngx_http_kv_router_encoded(ngx_http_request_t *r)
{
    ngx_str_t                     *value;
    ngx_table_elt_t               *h;
    ngx_http_kv_router_headers_t   at = { &r->headers_in.headers.part, 0 };

    while ((h = ngx_http_kv_router_header(&at, "Content-Encoding"))) {
        value = &h->value;

        if (value->len
            && (value->len != sizeof("identity") - 1
                || ngx_strncasecmp(value->data, (u_char *) "identity",
                                   value->len)
                   != 0))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * Finds the form and, in the body, what the form has.  A body without a prompt
 * is looked at for its model only, and may be anything.
 */

static ngx_uint_t
ngx_http_kv_router_search(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, kvr_prompt_t *prompt)
{
    ngx_uint_t  why;

    ngx_memzero(prompt, offsetof(kvr_prompt_t, model_buf));

    if (ngx_http_kv_router_encoded(r)) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "kv_router: the body has a Content-Encoding and is not "
                      "read, routed by load");

        why = NGX_HTTP_KV_ROUTER_BAD_BODY;

    } else {
        why = ngx_http_kv_router_scan(r, ctx, prompt);
    }

    switch (ctx->prompt.form) {

    case KVR_FORM_NO_LOAD:
        return NGX_HTTP_KV_ROUTER_NO_LOAD;

    case KVR_FORM_NO_PROMPT:
        return NGX_HTTP_KV_ROUTER_NO_PROMPT;

    case KVR_FORM_UNKNOWN:
        return why == NGX_HTTP_KV_ROUTER_NO_TOKENS
               ? NGX_HTTP_KV_ROUTER_UNKNOWN_FORM : why;

    default:
        return why;
    }
}


/* Keeps what was found in the body, for the load and for tokens from Lua. */

static ngx_int_t
ngx_http_kv_router_keep_prompt(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, const ngx_http_kv_router_names_t *names,
    const kvr_prompt_t *body)
{
    size_t       salt_len;
    ngx_str_t    model, adapter, lora;
    const char  *salt;

    model.data = (u_char *) (names->model ? (char *) names->model
                                          : body->model.data);
    model.len = names->model ? names->model_len : body->model.len;

    ngx_http_kv_router_find_adapter(ctx, &model, &adapter);

    lora.data = (u_char *) body->lora.data;
    lora.len = body->lora.len;

    if (adapter.len) {
        lora = adapter;
    }

    if (names->lora) {
        lora.data = (u_char *) names->lora;
        lora.len = names->lora_len;
    }

    if (model.data) {

        if (ngx_http_kv_router_copy_str(r->pool, &model, model.data, model.len)
            != NGX_OK
            || ngx_http_kv_router_copy_str(r->pool, &ctx->prompt.adapter,
                                           adapter.data, adapter.len)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        ctx->prompt.view.model = (char *) model.data;
        ctx->prompt.view.model_len = model.len;
    }

    if (lora.len) {

        if (ngx_http_kv_router_copy_str(r->pool, &lora, lora.data, lora.len)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        ctx->prompt.view.lora = (char *) lora.data;
        ctx->prompt.view.lora_len = lora.len;
    }

    salt = names->salt ? (const char *) names->salt : body->salt.data;
    salt_len = names->salt ? names->salt_len : body->salt.len;

    ctx->prompt.seed = kvr_hash_seed(ctx->prompt.view.lora,
                                     ctx->prompt.view.lora_len, salt,
                                     salt_len);

    if (ngx_http_kv_router_copy_str(r->pool, &ctx->prompt.salt,
                                    (u_char *) salt, salt_len)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ctx->prompt.cut = body->cut;
    ctx->prompt.reports = body->reports;
    ctx->prompt.stream = body->stream;
    ctx->prompt.sequences = ngx_max(body->sequences, 1);
    ctx->prompt.others = body->others;
    ctx->prompt.prompts = body->prompts;

    ctx->prompt.view.form = ctx->prompt.form;
    ctx->prompt.view.text = body->text;
    ctx->prompt.view.unserved = !ngx_http_kv_router_served(ctx);

    return NGX_OK;
}


/* Copies the names of the workers that the request may go to. */

static ngx_int_t
ngx_http_kv_router_keep_names(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, const ngx_http_kv_router_names_t *names)
{
    ctx->prompt.roles = names->roles;
    ngx_str_null(&ctx->prompt.allowed);

    if (names->allowed == NULL) {
        return NGX_OK;
    }

    return ngx_http_kv_router_copy_str(r->pool, &ctx->prompt.allowed,
                                       names->allowed, names->allowed_len);
}


/* The token ids of the prompt come from Lua; a known prompt goes before. */

static ngx_uint_t
ngx_http_kv_router_prompt_given(ngx_http_kv_router_ctx_t *ctx,
    const uint32_t **tokens, size_t *n)
{
    size_t                       all;
    ngx_http_kv_router_known_t  *known;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router tokens from lua: %uz", *n);

    kvr_prompt_cut(&ctx->prompt.cut, tokens, n);

    ctx->keys.route = kvr_route(ctx->prompt.form, KVR_FROM_ENGINE);

    known = ctx->prompt.known;
    all = *n;

    if (known && known->tokens != *tokens) {
        ctx->prompt.known = NULL;

    } else if (known) {
        all += known->blocks * ctx->zone->conf.params.block_size;
    }

    return all > ctx->zone->conf.max_tokens ? NGX_HTTP_KV_ROUTER_TOO_LONG
                                       : NGX_HTTP_KV_ROUTER_BY_POLICY;
}


/* The prompt is that of the body: nothing of an earlier one stays. */

static ngx_int_t
ngx_http_kv_router_prompt_body(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, const ngx_http_kv_router_names_t *names,
    kvr_prompt_t *body, ngx_uint_t *why)
{
    ngx_memzero(&ctx->prompt, sizeof(ctx->prompt));
    ngx_memzero(&ctx->keys, sizeof(ctx->keys));

    ctx->prompt.form = ngx_http_kv_router_form(r, ctx, names);

    *why = ngx_http_kv_router_search(r, ctx, body);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router body: form %s, %s, %uz tokens",
                   kvr_form_name(ctx->prompt.form),
                   *why ? ngx_http_kv_router_why_name(*why) : "token ids",
                   body->ntokens);

    ctx->keys.route = kvr_route(ctx->prompt.form, KVR_FROM_BODY);
    ctx->keys.rung = *why ? NGX_HTTP_KV_ROUTER_BY_LOAD
                          : NGX_HTTP_KV_ROUTER_BY_IDS;
    ctx->keys.rung_why = *why;

    return ngx_http_kv_router_keep_prompt(r, ctx, names, body);
}


int
ngx_http_kv_router_ffi_prompt(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_names_t *names, const uint32_t *tokens,
    size_t ntokens, ngx_http_kv_router_prompt_t *out, char **err)
{
    ngx_uint_t                 why;
    kvr_prompt_t               body;
    ngx_http_kv_router_ctx_t  *ctx;

    *err = "no memory";

    ctx = ngx_http_kv_router_make_ctx(r, zone);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    if (tokens && !ctx->prompt.prompted) {
        *err = "the body was not searched before its tokens came";
        return NGX_ERROR;
    }

    ctx->prompt.prompted = 0;
    ctx->found.matched = 0;

    if (tokens) {
        why = ngx_http_kv_router_prompt_given(ctx, &tokens, &ntokens);

    } else {

        if (ngx_http_kv_router_prompt_body(r, ctx, names, &body, &why)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        tokens = body.tokens;
        ntokens = body.ntokens;
    }

    ngx_http_kv_router_keys_drop(ctx);

    if (ngx_http_kv_router_keep_names(r, ctx, names) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->prompt.prompted = 1;

    if (why != NGX_HTTP_KV_ROUTER_BY_POLICY) {
        ctx->prompt.view.why = why;

    } else if (ngx_http_kv_router_keys_ids(ctx, tokens, ntokens) != NGX_OK) {
        return NGX_ERROR;
    }

    *out = ctx->prompt.view;

    return NGX_OK;
}
