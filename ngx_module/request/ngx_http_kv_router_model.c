
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The model and the adapter (LoRA) that a request names, and the workers that
 * serve them.
 *
 * An adapter is named by "model" alone, where a worker has it among its
 * adapters; by the model, a colon and the adapter, as SGLang has it; or by
 * "lora_path" of SGLang.  A name given in Lua goes before all of these.
 */


#include "ngx_http_kv_router_route.h"


static ngx_uint_t
ngx_http_kv_router_has_adapter(ngx_http_kv_router_holder_t *h,
    const ngx_str_t *name)
{
    size_t       len;
    const char  *list, *adapter;

    list = (char *) h->lora.data;

    while (kvr_adapters_next(&list, &adapter, &len)) {
        if (len == name->len && ngx_memcmp(adapter, name->data, len) == 0) {
            return 1;
        }
    }

    return 0;
}


/* Is the name the model, a colon, and then an adapter? */

static ngx_uint_t
ngx_http_kv_router_behind(const ngx_str_t *name, const ngx_str_t *model,
    ngx_str_t *adapter)
{
    if (model->len == 0 || name->len < model->len + 2
        || name->data[model->len] != ':'
        || ngx_memcmp(name->data, model->data, model->len) != 0)
    {
        return 0;
    }

    adapter->data = name->data + model->len + 1;
    adapter->len = name->len - model->len - 1;

    return 1;
}


/* Splits a name that no worker has into a model and an adapter behind it. */

static void
ngx_http_kv_router_split_model(ngx_http_kv_router_ctx_t *ctx,
    ngx_str_t *model, ngx_str_t *adapter)
{
    u_char                       *p;
    ngx_str_t                     base, rest;
    ngx_uint_t                    i;
    ngx_http_kv_router_holder_t  *h;

    base.data = (u_char *) ctx->zone->conf.params.model;
    base.len = ngx_strlen(base.data);

    for (i = 0; i < ctx->fleet->n; i++) {
        h = &ctx->fleet->holders[i];

        if (ngx_http_kv_router_behind(model, &h->model, adapter)) {
            model->len = h->model.len;
            return;
        }
    }

    if (ngx_http_kv_router_behind(model, &base, adapter)) {
        model->len = base.len;
        return;
    }

    /* no worker has said its model: as SGLang does, at the first colon */

    p = ngx_strlchr(model->data, model->data + model->len, ':');

    if (p == NULL || p == model->data
        || p + 1 == model->data + model->len)
    {
        return;
    }

    rest.data = p + 1;
    rest.len = model->data + model->len - rest.data;

    if (ctx->fleet->engines != kvr_engine_bit(KVR_ENGINE_SGLANG)) {

        for (i = 0; i < ctx->fleet->n; i++) {
            if (ngx_http_kv_router_has_adapter(&ctx->fleet->holders[i],
                                               &rest))
            {
                break;
            }
        }

        if (i == ctx->fleet->n) {
            return;
        }
    }

    *adapter = rest;
    model->len = p - model->data;
}


void
ngx_http_kv_router_find_adapter(ngx_http_kv_router_ctx_t *ctx,
    ngx_str_t *model, ngx_str_t *adapter)
{
    ngx_uint_t                    i, listed;
    ngx_http_kv_router_holder_t  *h;

    ngx_str_null(adapter);

    if (model->data == NULL) {
        return;
    }

    listed = 0;

    for (i = 0; i < ctx->fleet->n; i++) {
        h = &ctx->fleet->holders[i];

        if (h->model.len && ngx_http_kv_router_same(&h->model, model)) {
            return;
        }

        /* SGLang takes a plain name for its model, whatever it is */

        if (h->engine != KVR_ENGINE_SGLANG && !listed) {
            listed = ngx_http_kv_router_has_adapter(h, model);
        }
    }

    if (listed) {
        *adapter = *model;
        return;
    }

    if (kvr_form_has_base_adapter(ctx->prompt.form, ctx->fleet->engines)) {
        ngx_http_kv_router_split_model(ctx, model, adapter);
    }
}


ngx_uint_t
ngx_http_kv_router_serves(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_holder_t *h)
{
    ngx_str_t   model;
    ngx_uint_t  loaded;

    model.data = (u_char *) ctx->prompt.view.model;
    model.len = ctx->prompt.view.model_len;

    loaded = h->lora.len == 0 || ctx->prompt.adapter.len == 0
             || ngx_http_kv_router_has_adapter(h, &ctx->prompt.adapter);

    if (ctx->prompt.adapter.len && h->lora.len
        && ngx_http_kv_router_same(&ctx->prompt.adapter, &model))
    {
        return loaded;
    }

    return loaded && (model.data == NULL || h->model.len == 0
                      || ngx_http_kv_router_same(&h->model, &model));
}


ngx_uint_t
ngx_http_kv_router_served(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_uint_t  i;

    for (i = 0; i < ctx->fleet->n; i++) {
        if (ngx_http_kv_router_serves(ctx, &ctx->fleet->holders[i])) {
            return 1;
        }
    }

    return ctx->fleet->n == 0;
}
