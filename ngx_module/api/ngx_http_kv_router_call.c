
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_call.h"


ngx_int_t
ngx_http_kv_router_call_ok(ngx_http_kv_router_call_t *c)
{
    ngx_http_kv_router_answer_write(c->answer, "\n", 1);

    return ngx_http_kv_router_answer_send(c->answer, NGX_HTTP_OK,
                                          "application/json");
}


ngx_int_t
ngx_http_kv_router_call_bad_body(ngx_http_kv_router_call_t *c, kvr_json_t *j)
{
    return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                           "body: %s at byte %uz", j->error,
                                           j->error_at);
}


ngx_int_t
ngx_http_kv_router_call_failed(ngx_http_kv_router_call_t *c, kvr_rc_t rc)
{
    char  room[KVR_NO_ROOM];

    static ngx_str_t  second = ngx_string("1");

    switch (rc) {

    case KVR_FULL:
        kvr_router_no_room(&c->zone->run.router, (char *) c->id.data,
                           c->id.len, room);

        return ngx_http_kv_router_answer_error(c->answer,
                                               NGX_HTTP_INSUFFICIENT_STORAGE,
                                               "zone \"%V\": %s",
                                               &c->zone->conf.name, room);

    case KVR_BUSY:
        if (ngx_http_kv_router_answer_header(c->request, "Retry-After",
                                             &second)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_kv_router_answer_error(c->answer,
                                               NGX_HTTP_SERVICE_UNAVAILABLE,
                                               "zone \"%V\" is being written "
                                               "by another process",
                                               &c->zone->conf.name);

    case KVR_DECLINED:
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_NOT_FOUND,
                                               "unknown worker \"%V\"",
                                               &c->id);

    default:
        ngx_log_error(NGX_LOG_ALERT, c->request->connection->log, 0,
                      "kv_router zone \"%V\": writing failed: %i",
                      &c->zone->conf.name, (ngx_int_t) rc);

        return ngx_http_kv_router_answer_error(c->answer,
                                           NGX_HTTP_INTERNAL_SERVER_ERROR,
                                           "zone \"%V\" can't be written",
                                           &c->zone->conf.name);
    }
}


void
ngx_http_kv_router_call_unknown(ngx_http_kv_router_call_t *c, kvr_json_t *j,
    kvr_json_text_t *key)
{
    u_char  *p, *last;
    size_t   len;

    len = ngx_min(key->len, 64);

    p = ngx_pnalloc(c->request->pool, sizeof("unknown field \"\"") + len);
    if (p == NULL) {
        kvr_json_fail(j, key->data, "unknown field");
        return;
    }

    last = ngx_sprintf(p, "unknown field \"%*s\"", len, key->data);
    *last = '\0';

    kvr_json_fail(j, key->data, (char *) p);
}


void
ngx_http_kv_router_call_string(ngx_http_kv_router_call_t *c, kvr_json_t *j,
    ngx_str_t *value)
{
    const char       *at;
    kvr_json_text_t   text;

    ngx_str_null(value);

    if (kvr_json_peek(j) == 'n') {
        (void) kvr_json_null(j);
        return;
    }

    at = j->pos;

    if (!kvr_json_string(j, &text)) {
        return;
    }

    value->data = (u_char *) text.data;
    value->len = text.len;

    if (text.escaped) {
        value->data = ngx_pnalloc(c->request->pool, text.len);
        if (value->data == NULL) {
            kvr_json_fail(j, at, "no memory for a string");
            return;
        }

        value->len = kvr_json_decode(&text, (char *) value->data, text.len);
    }
}
