
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The turn cache of a zone with a model: turns= of kv_router_model.
 */


#ifndef _NGX_HTTP_KV_ROUTER_TURNS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_TURNS_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"

#include <token/kvr_turns.h>


/* the least "turns=", of which nginx itself needs a part; and the default */
#define NGX_HTTP_KV_ROUTER_TURNS_MIN  (1024 * 1024)
#define NGX_HTTP_KV_ROUTER_TURNS      (16 * 1024 * 1024)


/* in shared memory */

typedef struct {
    void                           *base;
    size_t                          size;
} ngx_http_kv_router_turns_sh_t;


/* as one process knows it */

struct ngx_http_kv_router_turns_s {
    ngx_str_t                       name;
    size_t                          size;      /* of its shared memory */
    kvr_turns_t                     cache;
    ngx_shm_zone_t                 *shm_zone;
};


/* Takes the value of "turns=", see ngx_http_kv_router_param_pt; 0: "off". */
char *ngx_http_kv_router_turns_size(ngx_conf_t *cf, ngx_str_t *value,
    void *field);

/* Gives the zone a turn cache of so many bytes. */
char *ngx_http_kv_router_turns_add(ngx_conf_t *cf,
    ngx_http_kv_router_zone_t *zone, size_t size);


#endif /* _NGX_HTTP_KV_ROUTER_TURNS_H_INCLUDED_ */
