
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_answer.h"


#define NGX_HTTP_KV_ROUTER_LINE  1024   /* bytes of one printf() */


static void ngx_http_kv_router_answer_cleanup(void *data);
static void ngx_http_kv_router_answer_print(void *data, const char *str,
    size_t len);
static ngx_int_t ngx_http_kv_router_answer_spill(
    ngx_http_kv_router_answer_t *a);
static ngx_int_t ngx_http_kv_router_answer_out(ngx_http_kv_router_answer_t *a,
    ngx_chain_t *out, off_t len);


ngx_http_kv_router_answer_t *
ngx_http_kv_router_answer(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t           *cln;
    ngx_http_kv_router_answer_t  *a;

    a = ngx_pcalloc(r->pool, sizeof(ngx_http_kv_router_answer_t));
    if (a == NULL) {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NULL;
    }

    a->request = r;

    a->gen = yajl_gen_alloc(NULL);
    if (a->gen == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_kv_router_answer_cleanup;
    cln->data = a;

    yajl_gen_config(a->gen, yajl_gen_print_callback,
                    ngx_http_kv_router_answer_print, a);

    return a;
}


static void
ngx_http_kv_router_answer_cleanup(void *data)
{
    ngx_http_kv_router_answer_t  *a = data;

    yajl_gen_free(a->gen);
}


static void
ngx_http_kv_router_answer_print(void *data, const char *str, size_t len)
{
    ngx_http_kv_router_answer_write(data, str, len);
}


void
ngx_http_kv_router_answer_write(ngx_http_kv_router_answer_t *a,
    const void *data, size_t len)
{
    size_t         n;
    ngx_buf_t     *b;
    ngx_pool_t    *pool;
    const u_char  *p;
    ngx_chain_t   *cl;

    p = data;
    pool = a->request->pool;

    while (len && !a->failed) {

        b = a->last ? a->last->buf : NULL;

        if (b && b->last < b->end) {
            n = ngx_min(len, (size_t) (b->end - b->last));
            b->last = ngx_cpymem(b->last, p, n);
            p += n;
            len -= n;
            continue;
        }

        if (a->last && a->last->next) {

            /*
             * the next buffer was written to the file before, and is empty:
             * reuse it
             */

            a->last = a->last->next;
            continue;
        }

        if (a->size >= NGX_HTTP_KV_ROUTER_ANSWER_MEM) {

            if (ngx_http_kv_router_answer_spill(a) != NGX_OK) {
                a->failed = 1;
                return;
            }

            continue;
        }

        /* most answers are short: the first buffer is small */

        n = a->last ? NGX_HTTP_KV_ROUTER_ANSWER_BUF : 4096;

        b = ngx_create_temp_buf(pool, n);
        cl = ngx_alloc_chain_link(pool);

        if (b == NULL || cl == NULL) {
            a->failed = 1;
            return;
        }

        cl->buf = b;
        cl->next = NULL;

        if (a->last) {
            a->last->next = cl;

        } else {
            a->first = cl;
        }

        a->last = cl;
        a->size += n;
    }
}


/* Writes all buffers to the file and makes them empty again. */

static ngx_int_t
ngx_http_kv_router_answer_spill(ngx_http_kv_router_answer_t *a)
{
    ssize_t                    n;
    ngx_chain_t               *cl, *next;
    ngx_temp_file_t           *tf;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = a->request;
    tf = a->file;

    if (tf == NULL) {
        clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

        tf = ngx_pcalloc(r->pool, sizeof(ngx_temp_file_t));
        if (tf == NULL) {
            return NGX_ERROR;
        }

        tf->file.fd = NGX_INVALID_FILE;
        tf->file.log = r->connection->log;
        tf->path = clcf->client_body_temp_path;
        tf->pool = r->pool;
        tf->clean = 1;
        tf->log_level = NGX_LOG_INFO;
        tf->warn = "a long kv_router answer is buffered to a temporary file";

        a->file = tf;
    }

    /* end the chain behind the last used buffer: write no empty buffers */

    next = NULL;

    if (a->last) {
        next = a->last->next;
        a->last->next = NULL;
    }

    n = ngx_write_chain_to_temp_file(tf, a->first);

    if (n == NGX_ERROR) {
        return NGX_ERROR;
    }

    tf->offset += n;

    if (a->last) {
        a->last->next = next;
    }

    for (cl = a->first; cl; cl = cl->next) {
        cl->buf->pos = cl->buf->start;
        cl->buf->last = cl->buf->start;
    }

    a->last = a->first;

    return NGX_OK;
}


void ngx_cdecl
ngx_http_kv_router_answer_printf(ngx_http_kv_router_answer_t *a,
    const char *fmt, ...)
{
    u_char    buf[NGX_HTTP_KV_ROUTER_LINE], *p;
    va_list   args;

    va_start(args, fmt);
    p = ngx_vslprintf(buf, buf + NGX_HTTP_KV_ROUTER_LINE, fmt, args);
    va_end(args);

    ngx_http_kv_router_answer_write(a, buf, p - buf);
}


void
ngx_http_kv_router_answer_reset(ngx_http_kv_router_answer_t *a)
{
    ngx_chain_t  *cl;

    for (cl = a->first; cl; cl = cl->next) {
        cl->buf->pos = cl->buf->start;
        cl->buf->last = cl->buf->start;
    }

    a->last = a->first;
    a->file = NULL;
    a->failed = 0;

    yajl_gen_reset(a->gen, NULL);
}


ngx_int_t
ngx_http_kv_router_answer_send(ngx_http_kv_router_answer_t *a,
    ngx_uint_t status, char *type)
{
    off_t                len;
    ngx_buf_t           *b;
    ngx_chain_t         *cl, out;
    ngx_http_request_t  *r;

    r = a->request;

    if (a->file
        && !a->failed && ngx_http_kv_router_answer_spill(a) != NGX_OK)
    {
        a->failed = 1;
    }

    if (a->failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.status = status;
    r->headers_out.content_type.data = (u_char *) type;
    r->headers_out.content_type.len = ngx_strlen(type);
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    if (a->file) {
        b = ngx_calloc_buf(r->pool);
        if (b == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        b->in_file = 1;
        b->file = &a->file->file;
        b->file_pos = 0;
        b->file_last = a->file->offset;

        out.buf = b;
        out.next = NULL;

        return ngx_http_kv_router_answer_out(a, &out, a->file->offset);
    }

    len = 0;

    for (cl = a->first; cl; cl = cl->next) {
        len += cl->buf->last - cl->buf->pos;

        if (cl == a->last) {
            cl->next = NULL;
        }
    }

    return ngx_http_kv_router_answer_out(a, a->first, len);
}


static ngx_int_t
ngx_http_kv_router_answer_out(ngx_http_kv_router_answer_t *a, ngx_chain_t *out,
    off_t len)
{
    ngx_int_t            rc;
    ngx_buf_t           *b;
    ngx_chain_t         *cl;
    ngx_http_request_t  *r;

    r = a->request;

    if (r->headers_out.status == NGX_HTTP_NO_CONTENT || len == 0) {
        r->header_only = 1;
    }

    r->headers_out.content_length_n = len;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    for (cl = out; cl->next; cl = cl->next) { /* void */ }

    b = cl->buf;

    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    return ngx_http_output_filter(r, out);
}


ngx_int_t ngx_cdecl
ngx_http_kv_router_answer_error(ngx_http_kv_router_answer_t *a,
    ngx_uint_t status, const char *fmt, ...)
{
    u_char    buf[NGX_HTTP_KV_ROUTER_LINE], *p, *last;
    va_list   args;

    va_start(args, fmt);
    last = ngx_vslprintf(buf, buf + NGX_HTTP_KV_ROUTER_LINE, fmt, args);
    va_end(args);

    /* parts of the message may come from the client and need not be UTF-8 */

    for (p = buf; p < last; p++) {
        if (*p >= 0x7f || *p < 0x20) {
            *p = '?';
        }
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, a->request->connection->log, 0,
                   "kv_router answers %ui: %*s", status,
                   (size_t) (last - buf), buf);

    ngx_http_kv_router_answer_reset(a);

    yajl_gen_map_open(a->gen);
    ngx_http_kv_router_gen_key(a->gen, "error");
    yajl_gen_string(a->gen, buf, last - buf);
    yajl_gen_map_close(a->gen);

    ngx_http_kv_router_answer_write(a, "\n", 1);

    return ngx_http_kv_router_answer_send(a, status, "application/json");
}


ngx_int_t
ngx_http_kv_router_answer_header(ngx_http_request_t *r, char *name,
    ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key.data = (u_char *) name;
    h->key.len = ngx_strlen(name);
    h->value = *value;

    return NGX_OK;
}


void
ngx_http_kv_router_gen_key(yajl_gen g, const char *key)
{
    yajl_gen_string(g, (const u_char *) key, ngx_strlen(key));
}


void
ngx_http_kv_router_gen_map(yajl_gen g, const char *key)
{
    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_map_open(g);
}


void
ngx_http_kv_router_gen_array(yajl_gen g, const char *key)
{
    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_array_open(g);
}


void
ngx_http_kv_router_gen_null(yajl_gen g, const char *key)
{
    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_null(g);
}


void
ngx_http_kv_router_gen_text(yajl_gen g, const char *key, const void *data,
    size_t len)
{
    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_string(g, data, len);
}


void
ngx_http_kv_router_gen_str(yajl_gen g, const char *key, const char *value)
{
    ngx_http_kv_router_gen_text(g, key, (const u_char *) value,
                                ngx_strlen(value));
}


void
ngx_http_kv_router_gen_u64(yajl_gen g, const char *key, uint64_t value)
{
    u_char  buf[NGX_INT64_LEN], *last;

    last = ngx_sprintf(buf, "%uL", value);

    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_number(g, (char *) buf, last - buf);
}


void
ngx_http_kv_router_gen_bool(yajl_gen g, const char *key, ngx_uint_t value)
{
    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_bool(g, value ? 1 : 0);
}


void
ngx_http_kv_router_gen_ms(yajl_gen g, const char *key, int64_t ms)
{
    if (ms < 0) {
        ngx_http_kv_router_gen_null(g, key);
        return;
    }

    ngx_http_kv_router_gen_decimal(g, key, ms, 3);
}


void
ngx_http_kv_router_gen_decimal(yajl_gen g, const char *key, uint64_t v,
    ngx_uint_t digits)
{
    u_char      buf[NGX_INT64_LEN + 16], *last;
    uint64_t    one;
    ngx_uint_t  i;

    one = 1;

    for (i = 0; i < digits; i++) {
        one *= 10;
    }

    last = ngx_sprintf(buf, "%uL", v / one);
    v %= one;

    if (v) {
        *last++ = '.';
    }

    while (v) {
        one /= 10;
        *last++ = (u_char) ('0' + v / one);
        v %= one;
    }

    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_number(g, (char *) buf, last - buf);
}
