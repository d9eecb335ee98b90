
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The trace that a request belongs to: W3C's headers traceparent and
 * tracestate, as variables for proxy_set_header.
 */


#include "../request/ngx_http_kv_router_route.h"

#include <sys/random.h>


/* "00-" trace id "-" parent id "-" flags, in lower-case hexadecimal digits */

#define NGX_HTTP_KV_ROUTER_TRACE_ID      16
#define NGX_HTTP_KV_ROUTER_TRACE_PARENT  8
#define NGX_HTTP_KV_ROUTER_TRACE_LEN     55


static ngx_int_t ngx_http_kv_router_trace_field(u_char *p, size_t digits,
    ngx_uint_t zeros);
static ngx_int_t ngx_http_kv_router_trace_valid(ngx_str_t *value);
static ngx_int_t ngx_http_kv_router_trace_parent(ngx_http_request_t *r,
    ngx_str_t *value);
static ngx_uint_t ngx_http_kv_router_trace_header(ngx_http_request_t *r,
    ngx_str_t *name, ngx_str_t *value);


/*
 * $kv_router_traceparent: the request's own header when that is valid, else a
 * new trace that is sampled.
 */

ngx_int_t
ngx_http_kv_router_traceparent(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char     *p;
    u_char      id[NGX_HTTP_KV_ROUTER_TRACE_ID
                   + NGX_HTTP_KV_ROUTER_TRACE_PARENT];
    ngx_str_t   value;

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    if (ngx_http_kv_router_trace_parent(r, &value)) {
        v->data = value.data;
        v->len = value.len;
        return NGX_OK;
    }

    if (getrandom(id, sizeof(id), 0) != (ssize_t) sizeof(id)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, ngx_errno,
                      "getrandom() failed, there is no "
                      "$kv_router_traceparent");
        return NGX_ERROR;
    }

    p = ngx_pnalloc(r->pool, NGX_HTTP_KV_ROUTER_TRACE_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    v->data = p;
    v->len = NGX_HTTP_KV_ROUTER_TRACE_LEN;

    p = ngx_cpymem(p, "00-", 3);
    p = ngx_hex_dump(p, id, NGX_HTTP_KV_ROUTER_TRACE_ID);
    *p++ = '-';
    p = ngx_hex_dump(p, id + NGX_HTTP_KV_ROUTER_TRACE_ID,
                     NGX_HTTP_KV_ROUTER_TRACE_PARENT);
    ngx_memcpy(p, "-01", 3);

    return NGX_OK;
}


/*
 * $kv_router_tracestate: the request's own headers, joined by commas.  Not
 * found when there are none, or when they belong to a traceparent that was
 * replaced.
 */

ngx_int_t
ngx_http_kv_router_tracestate(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t  value;

    static ngx_str_t  name = ngx_string("tracestate");

    if (!ngx_http_kv_router_trace_parent(r, &value)
        || ngx_http_kv_router_trace_header(r, &name, &value) == 0)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    if (value.data == NULL) {
        return NGX_ERROR;
    }

    v->data = value.data;
    v->len = value.len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


/* Has the request one valid traceparent?  *value becomes that. */

static ngx_int_t
ngx_http_kv_router_trace_parent(ngx_http_request_t *r, ngx_str_t *value)
{
    static ngx_str_t  name = ngx_string("traceparent");

    return ngx_http_kv_router_trace_header(r, &name, value) == 1
           && ngx_http_kv_router_trace_valid(value);
}


/*
 * How often the request has the header; *value becomes all values, joined by
 * commas.  value->data: NULL without memory.
 */

static ngx_uint_t
ngx_http_kv_router_trace_header(ngx_http_request_t *r, ngx_str_t *name,
    ngx_str_t *value)
{
    u_char           *p;
    ngx_uint_t        i, n;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    n = 0;
    ngx_str_null(value);

    for (part = &r->headers_in.headers.part; part; part = part->next) {

        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (h[i].key.len != name->len
                || ngx_strncasecmp(h[i].key.data, name->data, name->len) != 0)
            {
                continue;
            }

            if (n++ == 0) {
                *value = h[i].value;
                continue;
            }

            p = ngx_pnalloc(r->pool, value->len + 1 + h[i].value.len);
            if (p == NULL) {
                ngx_str_null(value);
                return n;
            }

            ngx_memcpy(p, value->data, value->len);
            p[value->len] = ',';
            ngx_memcpy(p + value->len + 1, h[i].value.data, h[i].value.len);

            value->data = p;
            value->len += 1 + h[i].value.len;
        }
    }

    return n;
}


/* Versions after 00 may have more fields behind those that are known. */

static ngx_int_t
ngx_http_kv_router_trace_valid(ngx_str_t *value)
{
    u_char  *p, *id, *parent, *flags;

    if (value->len < NGX_HTTP_KV_ROUTER_TRACE_LEN) {
        return 0;
    }

    p = value->data;
    id = p + 3;
    parent = id + 2 * NGX_HTTP_KV_ROUTER_TRACE_ID + 1;
    flags = parent + 2 * NGX_HTTP_KV_ROUTER_TRACE_PARENT + 1;

    if (id[-1] != '-' || parent[-1] != '-' || flags[-1] != '-'
        || !ngx_http_kv_router_trace_field(p, 2, 1)
        || !ngx_http_kv_router_trace_field(id,
                                           2 * NGX_HTTP_KV_ROUTER_TRACE_ID, 0)
        || !ngx_http_kv_router_trace_field(parent,
                                           2 * NGX_HTTP_KV_ROUTER_TRACE_PARENT,
                                           0)
        || !ngx_http_kv_router_trace_field(flags, 2, 1))
    {
        return 0;
    }

    if (p[0] == '0' && p[1] == '0') {
        return value->len == NGX_HTTP_KV_ROUTER_TRACE_LEN;
    }

    return !(p[0] == 'f' && p[1] == 'f')
           && (value->len == NGX_HTTP_KV_ROUTER_TRACE_LEN
               || p[NGX_HTTP_KV_ROUTER_TRACE_LEN] == '-');
}


/* Are there so many digits, and, unless zeros may be, one that is not 0? */

static ngx_int_t
ngx_http_kv_router_trace_field(u_char *p, size_t digits, ngx_uint_t zeros)
{
    size_t  i;

    for (i = 0; i < digits; i++) {

        if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f'))) {
            return 0;
        }

        zeros |= p[i] != '0';
    }

    return zeros;
}
