
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Bytes of any number, by malloc(), for Lua: ngx_http_kv_router_ffi_free()
 * frees them.
 */


#ifndef _NGX_HTTP_KV_ROUTER_TEXT_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_TEXT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_HTTP_KV_ROUTER_TEXT_MIN  65536   /* bytes, of the first piece */


/* All zero: empty. */

typedef struct {
    char    *data;
    size_t   len;
    size_t   size;
} ngx_http_kv_router_text_t;


/* Adds len bytes.  NGX_ERROR: no memory; the text is as it was. */

static ngx_inline ngx_int_t
ngx_http_kv_router_text_add(ngx_http_kv_router_text_t *t, const void *data,
    size_t len)
{
    char    *p;
    size_t   size;

    if (t->len + len > t->size) {

        size = ngx_max(t->size * 2, t->len + len);
        size = ngx_max(size, NGX_HTTP_KV_ROUTER_TEXT_MIN);

        p = realloc(t->data, size);
        if (p == NULL) {
            return NGX_ERROR;
        }

        t->data = p;
        t->size = size;
    }

    ngx_memcpy(t->data + t->len, data, len);
    t->len += len;

    return NGX_OK;
}


#endif /* _NGX_HTTP_KV_ROUTER_TEXT_H_INCLUDED_ */
