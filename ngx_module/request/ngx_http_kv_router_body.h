
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The body of a request: read, scanned once, kept as a tape.
 */


#ifndef _NGX_HTTP_KV_ROUTER_BODY_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_BODY_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"

#include <wire/kvr_tape.h>


/* A tape of a body; part of the request's context, all zero at first. */
typedef struct {
    kvr_tape_t   tape;          /* entries: in the request's pool; ids: there,
                                   too, once Lua has the tape, or of the
                                   process, as long as `scan` is its last */
    ngx_uint_t   scan;          /* number of the scan; 0: none was made */
    ngx_uint_t   why;           /* NGX_HTTP_KV_ROUTER_…: result of the scan */

    /* the body that was scanned: a policy can give the request another one */
    ngx_buf_t   *buf;
    u_char      *pos;
    off_t        size;
} ngx_http_kv_router_body_t;


#endif /* _NGX_HTTP_KV_ROUTER_BODY_H_INCLUDED_ */
