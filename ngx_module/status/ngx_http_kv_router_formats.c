
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv_router_status: the formats that a request may ask for.
 */


#include "ngx_http_kv_router_stats.h"


static ngx_uint_t ngx_http_kv_router_accepts(ngx_http_request_t *r,
    char *type);


ngx_int_t
ngx_http_kv_router_status_handler(ngx_http_request_t *r)
{
    ngx_int_t                       rc;
    ngx_str_t                       format;
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_kv_router_answer_t    *a;
    ngx_http_kv_router_loc_conf_t  *klcf;
    ngx_uint_t                      openmetrics;

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

    if (ngx_http_arg(r, (u_char *) "format", 6, &format) != NGX_OK) {

        if (ngx_http_kv_router_accepts(r, "application/openmetrics-text")) {
            ngx_str_set(&format, "prometheus");

        } else if (ngx_http_kv_router_accepts(r, "text/html")) {
            ngx_str_set(&format, "html");

        } else {
            ngx_str_set(&format, "json");
        }
    }

    if (format.len == 4 && ngx_strncmp(format.data, "json", 4) == 0) {
        ngx_http_kv_router_stats_json(zone, a->gen);
        ngx_http_kv_router_answer_write(a, "\n", 1);

        return ngx_http_kv_router_answer_send(a, NGX_HTTP_OK,
                                              "application/json");
    }

    if (format.len == 10 && ngx_strncmp(format.data, "prometheus", 10) == 0) {

        openmetrics = ngx_http_kv_router_accepts(r,
                                              "application/openmetrics-text");

        if (ngx_http_kv_router_prometheus(r, zone, a, openmetrics) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_kv_router_answer_send(a, NGX_HTTP_OK,
                       openmetrics ? "application/openmetrics-text; "
                                     "version=1.0.0; charset=utf-8"
                                   : "text/plain; version=0.0.4");
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


/*
 * Does a header Accept name the type?  Qualities are not looked at: browsers
 * name text/html, Prometheus names OpenMetrics, and programs name neither.
 */

static ngx_uint_t
ngx_http_kv_router_accepts(ngx_http_request_t *r, char *type)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {

            if (part->next == NULL) {
                return 0;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == 6
            && ngx_strncasecmp(h[i].key.data, (u_char *) "accept", 6) == 0
            && ngx_strlcasestrn(h[i].value.data,
                                h[i].value.data + h[i].value.len,
                                (u_char *) type, ngx_strlen(type) - 1))
        {
            return 1;
        }
    }
}
