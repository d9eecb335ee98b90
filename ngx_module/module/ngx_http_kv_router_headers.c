
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Headers by name.
 */


#include "ngx_http_kv_router_module.h"


ngx_table_elt_t *
ngx_http_kv_router_header(ngx_http_kv_router_headers_t *at, const char *name)
{
    size_t            len;
    ngx_table_elt_t  *h;

    len = ngx_strlen(name);

    for ( /* void */ ; at->part; at->part = at->part->next, at->i = 0) {

        while (at->i < at->part->nelts) {
            h = (ngx_table_elt_t *) at->part->elts + at->i++;

            if (h->key.len == len
                && ngx_strncasecmp(h->key.data, (u_char *) name, len) == 0)
            {
                return h;
            }
        }
    }

    return NULL;
}
