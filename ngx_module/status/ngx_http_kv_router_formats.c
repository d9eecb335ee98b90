
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv_router_status: the formats that a request may ask for.
 */


#include "ngx_http_kv_router_stats.h"


ngx_int_t
ngx_http_kv_router_status_handler(ngx_http_request_t *r)
{
    ngx_int_t                       rc;
    ngx_str_t                       format;
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_kv_router_answer_t    *a;
    ngx_http_kv_router_loc_conf_t  *klcf;

    static ngx_str_t  allow = ngx_string("GET, HEAD");

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kv_router_module);
    zone = klcf->status;

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    a = ngx_http_kv_router_answer(r);
    if (a == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {

        if (ngx_http_kv_router_answer_header(r, "Allow", &allow) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_kv_router_answer_error(a, NGX_HTTP_NOT_ALLOWED,
                                               "the status page is read by "
                                               "GET or HEAD");
    }

    if (ngx_http_arg(r, (u_char *) "format", 6, &format) != NGX_OK
        || (format.len == 4 && ngx_strncmp(format.data, "json", 4) == 0))
    {
        ngx_http_kv_router_stats_json(zone, a->gen);
        ngx_http_kv_router_answer_write(a, "\n", 1);

        return ngx_http_kv_router_answer_send(a, NGX_HTTP_OK,
                                              "application/json");
    }

    if (format.len == 10 && ngx_strncmp(format.data, "prometheus", 10) == 0) {

        if (ngx_http_kv_router_prometheus(r, zone, a) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_kv_router_answer_send(a, NGX_HTTP_OK,
                                              "text/plain; version=0.0.4");
    }

    if (format.len == 4 && ngx_strncmp(format.data, "html", 4) == 0) {

        if (ngx_http_kv_router_page(r, zone, a) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_kv_router_answer_send(a, NGX_HTTP_OK,
                                              "text/html; charset=utf-8");
    }

    return ngx_http_kv_router_answer_error(a, NGX_HTTP_BAD_REQUEST,
                                           "unknown format \"%V\": it is "
                                           "\"json\", \"prometheus\" or "
                                           "\"html\"", &format);
}
