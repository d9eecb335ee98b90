
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A call of the HTTP API, and what all functions that serve calls need.
 */


#ifndef _NGX_HTTP_KV_ROUTER_CALL_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_CALL_H_INCLUDED_


#include "../module/ngx_http_kv_router_answer.h"
#include "../module/ngx_http_kv_router_ffi.h"

#include <wire/kvr_json.h>


typedef struct {
    ngx_http_request_t             *request;
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_kv_router_answer_t    *answer;
    ngx_str_t                       id;        /* of "workers/ID" */
    ngx_str_t                       body;
} ngx_http_kv_router_call_t;


typedef ngx_int_t (*ngx_http_kv_router_call_pt)(ngx_http_kv_router_call_t *c);


/* sends what was written, with 200 */

ngx_int_t ngx_http_kv_router_call_ok(ngx_http_kv_router_call_t *c);

/* sends what is wrong with the body, and where */

ngx_int_t ngx_http_kv_router_call_bad_body(ngx_http_kv_router_call_t *c,
    kvr_json_t *j);

/* sends what a writing function of the zone failed with */

ngx_int_t ngx_http_kv_router_call_failed(ngx_http_kv_router_call_t *c,
    kvr_rc_t rc);

/* a field of the body that the call doesn't know: an error of j */

void ngx_http_kv_router_call_unknown(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, kvr_json_text_t *key);

/* reads a string, or null for an empty one, decoded; what's wrong is in j */

void ngx_http_kv_router_call_string(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, ngx_str_t *value);

/* explain: what a candidate has of the prompt, as JSON */

void ngx_http_kv_router_explain_overlap(yajl_gen g,
    const ngx_http_kv_router_candidate_t *c);

/* explain: answers a call that needs the policy of a router, where none is */

ngx_int_t ngx_http_kv_router_call_no_router(ngx_http_kv_router_call_t *c,
    const char *call);


#endif /* _NGX_HTTP_KV_ROUTER_CALL_H_INCLUDED_ */
