
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the API and the status page answer with: text of any length, written
 * piece by piece into a chain of buffers, and sent.
 */


#ifndef _NGX_HTTP_KV_ROUTER_ANSWER_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_ANSWER_H_INCLUDED_


#include "ngx_http_kv_router_module.h"


#define NGX_HTTP_KV_ROUTER_ANSWER_BUF   65536          /* bytes of a buffer */
#define NGX_HTTP_KV_ROUTER_ANSWER_MEM   (1024 * 1024)  /* bytes in memory; what
                                                          is longer goes to a
                                                          temporary file */


typedef struct {
    ngx_http_request_t  *request;
    ngx_chain_t         *first;
    ngx_chain_t         *last;
    size_t               size;      /* of the buffers */
    ngx_temp_file_t     *file;      /* NULL: all is in memory */
    yajl_gen             gen;       /* writes here */
    ngx_uint_t           failed;    /* unsigned  failed:1 */
} ngx_http_kv_router_answer_t;


/*
 * Begins an empty answer, for as long as the request lives.  NULL when there
 * is no memory.
 */
ngx_http_kv_router_answer_t *ngx_http_kv_router_answer(ngx_http_request_t *r);

/* Writes; what fails is found by the sending. */
void ngx_http_kv_router_answer_write(ngx_http_kv_router_answer_t *a,
    const void *data, size_t len);
void ngx_cdecl ngx_http_kv_router_answer_printf(ngx_http_kv_router_answer_t *a,
    const char *fmt, ...);

/* Forgets what was written. */
void ngx_http_kv_router_answer_reset(ngx_http_kv_router_answer_t *a);

/*
 * Sends what was written.  Returns what a content handler returns, or
 * ngx_http_finalize_request() takes.
 */
ngx_int_t ngx_http_kv_router_answer_send(ngx_http_kv_router_answer_t *a,
    ngx_uint_t status, char *type);

/* Sends {"error":"…"} instead of what was written. */
ngx_int_t ngx_cdecl ngx_http_kv_router_answer_error(
    ngx_http_kv_router_answer_t *a, ngx_uint_t status, const char *fmt, ...);

/* Adds a header to the response; value stays as long as the request. */
ngx_int_t ngx_http_kv_router_answer_header(ngx_http_request_t *r, char *name,
    ngx_str_t *value);


/* JSON: a pair of an object. */

void ngx_http_kv_router_gen_key(yajl_gen g, const char *key);
void ngx_http_kv_router_gen_null(yajl_gen g, const char *key);
void ngx_http_kv_router_gen_text(yajl_gen g, const char *key,
    const void *data, size_t len);
void ngx_http_kv_router_gen_str(yajl_gen g, const char *key,
    const char *value);
void ngx_http_kv_router_gen_u64(yajl_gen g, const char *key, uint64_t value);
void ngx_http_kv_router_gen_bool(yajl_gen g, const char *key,
    ngx_uint_t value);

/* milliseconds, in seconds; null when they are negative */
void ngx_http_kv_router_gen_ms(yajl_gen g, const char *key, int64_t ms);

/* v / 10^digits, without loss; digits is at most 9 */

void ngx_http_kv_router_gen_decimal(yajl_gen g, const char *key, uint64_t v,
    ngx_uint_t digits);

/* an object, an array: what is in it follows, and its end */
void ngx_http_kv_router_gen_map(yajl_gen g, const char *key);
void ngx_http_kv_router_gen_array(yajl_gen g, const char *key);


#endif /* _NGX_HTTP_KV_ROUTER_ANSWER_H_INCLUDED_ */
