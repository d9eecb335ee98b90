
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv_router_status: the formats that a request may ask for.
 */


#include "ngx_http_kv_router_history.h"


/* A part of the JSON, as ?part= names it. */

typedef struct {
    const char                     *name;
    void                          (*json)(ngx_http_request_t *r,
                                          ngx_http_kv_router_zone_t *zone,
                                          yajl_gen g);
} ngx_http_kv_router_part_t;


static ngx_int_t ngx_http_kv_router_part(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, ngx_http_kv_router_answer_t *a);
static void ngx_http_kv_router_part_status(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g);
static void ngx_http_kv_router_part_places(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g);
static ngx_uint_t ngx_http_kv_router_is(const ngx_str_t *word,
    const char *name);
static ngx_uint_t ngx_http_kv_router_accepts(ngx_http_request_t *r,
    char *type);


/* The first one is that of a request that names none. */

static const ngx_http_kv_router_part_t  ngx_http_kv_router_parts[] = {
    { "status", ngx_http_kv_router_part_status },
    { "places", ngx_http_kv_router_part_places },
    { "history", ngx_http_kv_router_history_json },
    { "decisions", ngx_http_kv_router_decisions_json },
    { "prefixes", ngx_http_kv_router_prefixes_json },
    { "tree", ngx_http_kv_router_tree_json },
    { NULL, NULL }
};


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
    static ngx_str_t  vary = ngx_string("Accept");

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

        if (ngx_http_kv_router_answer_header(r, "Vary", &vary) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (ngx_http_kv_router_accepts(r, "application/openmetrics-text")) {
            ngx_str_set(&format, "prometheus");

        } else if (ngx_http_kv_router_accepts(r, "text/html")) {
            ngx_str_set(&format, "html");

        } else {
            ngx_str_set(&format, "json");
        }
    }

    if (ngx_http_kv_router_is(&format, "json")) {
        return ngx_http_kv_router_part(r, zone, a);
    }

    if (ngx_http_kv_router_is(&format, "prometheus")) {

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

    if (ngx_http_kv_router_is(&format, "html")) {

        if (ngx_http_kv_router_page(r, a) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_kv_router_answer_send(a, NGX_HTTP_OK,
                                              "text/html; charset=utf-8");
    }

    return ngx_http_kv_router_answer_error(a, NGX_HTTP_BAD_REQUEST,
                                           "unknown format \"%V\": it is "
                                           "\"json\", \"prometheus\" or "
                                           "\"html\"%s", &format,
                                           ngx_http_kv_router_is(&format,
                                                                 "table")
                                           ? "; \"json\" has the numbers "
                                             "of the table" : "");
}


/* Answers the part of the JSON that the request asks for. */

static ngx_int_t
ngx_http_kv_router_part(ngx_http_request_t *r, ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_answer_t *a)
{
    ngx_str_t                           name;
    const ngx_http_kv_router_part_t    *part;

    part = ngx_http_kv_router_parts;

    if (ngx_http_arg(r, (u_char *) "part", 4, &name) == NGX_OK) {
        while (part->name && !ngx_http_kv_router_is(&name, part->name)) {
            part++;
        }
    }

    if (part->name == NULL) {
        return ngx_http_kv_router_answer_error(a, NGX_HTTP_NOT_FOUND,
                                               "unknown part \"%V\": "
                                               "?part=places lists the parts",
                                               &name);
    }

    part->json(r, zone, a->gen);
    ngx_http_kv_router_answer_write(a, "\n", 1);

    return ngx_http_kv_router_answer_send(a, NGX_HTTP_OK, "application/json");
}


static void
ngx_http_kv_router_part_status(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    ngx_http_kv_router_stats_json(zone, g);
}


static void
ngx_http_kv_router_part_places(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    const ngx_http_kv_router_part_t  *part;

    (void) yajl_gen_map_open(g);
    ngx_http_kv_router_gen_array(g, "parts");

    for (part = ngx_http_kv_router_parts; part->name; part++) {
        (void) yajl_gen_string(g, (u_char *) part->name,
                               ngx_strlen(part->name));
    }

    (void) yajl_gen_array_close(g);
    ngx_http_kv_router_places_json(r, g);
    (void) yajl_gen_map_close(g);
}


static ngx_uint_t
ngx_http_kv_router_is(const ngx_str_t *word, const char *name)
{
    return word->len == ngx_strlen(name)
           && ngx_strncmp(word->data, name, word->len) == 0;
}


/*
 * Does a header Accept name the type?  Qualities are not looked at: browsers
 * name text/html, Prometheus names OpenMetrics, and programs name neither.
 */

static ngx_uint_t
ngx_http_kv_router_accepts(ngx_http_request_t *r, char *type)
{
    ngx_table_elt_t               *h;
    ngx_http_kv_router_headers_t   at = { &r->headers_in.headers.part, 0 };

    while ((h = ngx_http_kv_router_header(&at, "Accept"))) {
        if (ngx_strlcasestrn(h->value.data, h->value.data + h->value.len,
                             (u_char *) type, ngx_strlen(type) - 1))
        {
            return 1;
        }
    }

    return 0;
}
