
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Who may call the HTTP API.
 */


#ifndef _NGX_HTTP_KV_ROUTER_GUARD_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_GUARD_H_INCLUDED_


#include "ngx_http_kv_router_call.h"


/*
 * NGX_OK: the call, which changes something, may go on.  Else it was answered
 * with 403, and the value is that of the handler.  call: its name, for people.
 */
ngx_int_t ngx_http_kv_router_api_forbidden(ngx_http_kv_router_call_t *c,
    const char *call);


#endif /* _NGX_HTTP_KV_ROUTER_GUARD_H_INCLUDED_ */
