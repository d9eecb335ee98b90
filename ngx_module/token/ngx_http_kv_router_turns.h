
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The turn cache: the zone of kv_router_turn_cache, of which there is one for
 * all zones of workers.
 */


#ifndef _NGX_HTTP_KV_ROUTER_TURNS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_TURNS_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"

#include <token/kvr_turns.h>


/* the least "zone=", of which nginx itself needs a part */
#define NGX_HTTP_KV_ROUTER_TURNS_MIN  (1024 * 1024)


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


/* The turn cache of the configuration in force, or NULL. */
ngx_http_kv_router_turns_t *ngx_http_kv_router_turns(void);


#endif /* _NGX_HTTP_KV_ROUTER_TURNS_H_INCLUDED_ */
