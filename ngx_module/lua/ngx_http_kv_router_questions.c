
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Questions to engines, for Lua: their bodies, and the ids in the answers.
 */


#include "../request/ngx_http_kv_router_route.h"

#include <wire/kvr_question.h>


void
ngx_http_kv_router_ffi_form(uint32_t form, ngx_http_kv_router_form_t *out)
{
    const kvr_form_row_t  *row;

    row = &kvr_form_rows[form];

    out->word = row->name;
    out->render = *row->render ? kvr_rung_render(form) : 0;
    out->remote = row->remote;
    out->tokenized = (row->text != NULL);
    out->plain = row->plain;
}


int
ngx_http_kv_router_ffi_question_body(ngx_http_request_t *r, void *zone,
    uint32_t ask, uint32_t engine, const char **path, const char **text,
    size_t *len, const char **field, char **err)
{
    char                      *out;
    size_t                     size;
    kvr_rc_t                   rc;
    const kvr_tape_t          *tape;
    ngx_http_kv_router_ctx_t  *ctx;

    *field = NULL;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->prompt.prompted) {
        *err = "nothing is known of the request's prompt";
        return NGX_ERROR;
    }

    *path = kvr_question_path(ask, ctx->prompt.form);

    if (*path == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_http_kv_router_body(r, ctx, 0) != NGX_HTTP_KV_ROUTER_BY_POLICY) {
        *err = "the body can't be read";
        return NGX_ERROR;
    }

    tape = &ctx->body.tape;

    if (ask == KVR_ASK_RENDER) {
        *text = tape->text;
        *len = tape->text_len;

        return NGX_OK;
    }

    size = tape->text_len + KVR_QUESTION_ROOM;
    out = ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_QUESTION,
                                    size);
    if (out == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    rc = kvr_question(tape, ctx->prompt.form, engine, out, size, len, field);

    if (rc != KVR_OK) {
        *err = "the question does not fit";
        return rc == KVR_DECLINED ? NGX_DECLINED : NGX_ERROR;
    }

    *text = out;

    return NGX_OK;
}


int
ngx_http_kv_router_ffi_answer_ids(void *data, const char *text, size_t len,
    const uint32_t **ids, size_t *n, char **err)
{
    ngx_http_kv_router_zone_t *zone = data;

    kvr_tape_t  *tape;
    const char  *wrong;

    tape = ngx_http_kv_router_process_tape(len, zone->conf.max_tokens);

    if (tape == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    switch (kvr_answer_ids(tape, text, len, ids, n, &wrong)) {

    case KVR_OK:
        return NGX_OK;

    case KVR_FULL:
        *err = "more tokens than max_tokens";
        return NGX_ERROR;

    default:
        *err = (char *) wrong;
        return NGX_ERROR;
    }
}
