
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_turns.h"


static ngx_int_t ngx_http_kv_router_turns_init(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_http_kv_router_turns_sh_t *ngx_http_kv_router_turns_format(
    ngx_http_kv_router_turns_t *turns, ngx_slab_pool_t *shpool,
    ngx_log_t *log);


/* nginx tells zones of other directives with the same name by their tag */

static ngx_uint_t  ngx_http_kv_router_turns_tag;


char *
ngx_http_kv_router_turns_size(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    size_t *size = field;

    ssize_t  n;

    if (value->len == 3 && ngx_strncmp(value->data, "off", 3) == 0) {
        *size = 0;
        return NGX_CONF_OK;
    }

    n = ngx_parse_size(value);

    if (n < NGX_HTTP_KV_ROUTER_TURNS_MIN) {
        return "it must be \"off\", or a size of 1m at least";
    }

    *size = n;

    return NGX_CONF_OK;
}


char *
ngx_http_kv_router_turns_add(ngx_conf_t *cf, ngx_http_kv_router_zone_t *zone,
    size_t size)
{
    u_char                      *p;
    ngx_http_kv_router_turns_t  *turns;

    turns = ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_turns_t));
    p = ngx_pnalloc(cf->pool, zone->conf.name.len + sizeof(":turns") - 1);

    if (turns == NULL || p == NULL) {
        return NGX_CONF_ERROR;
    }

    /* no zone of a configuration has a colon in its name */

    turns->name.data = p;
    turns->name.len = ngx_sprintf(p, "%V:turns", &zone->conf.name) - p;
    turns->size = size;

    turns->shm_zone = ngx_shared_memory_add(cf, &turns->name, size,
                                            &ngx_http_kv_router_turns_tag);
    if (turns->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    turns->shm_zone->init = ngx_http_kv_router_turns_init;
    turns->shm_zone->data = turns;

    zone->conf.turns = turns;

    return NGX_CONF_OK;
}


/*
 * Called in the master.  A zone of the previous configuration is only
 * attached: processes of that configuration go on using it.
 */

static ngx_int_t
ngx_http_kv_router_turns_init(ngx_shm_zone_t *shm_zone, void *data)
{
    char                            why[KVR_SLOTS_WHY];
    ngx_log_t                      *log;
    ngx_slab_pool_t                *shpool;
    ngx_http_kv_router_turns_t     *turns;
    ngx_http_kv_router_turns_sh_t  *sh;

    turns = shm_zone->data;
    log = shm_zone->shm.log;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    sh = data || shm_zone->shm.exists
         ? shpool->data : ngx_http_kv_router_turns_format(turns, shpool, log);

    if (sh == NULL) {
        return NGX_ERROR;
    }

    if (kvr_turns_attach(&turns->cache, sh->base, sh->size, why) != KVR_OK) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "the turn cache \"%V\" can't be used: %s",
                      &turns->name, why);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_http_kv_router_turns_sh_t *
ngx_http_kv_router_turns_format(ngx_http_kv_router_turns_t *turns,
    ngx_slab_pool_t *shpool, ngx_log_t *log)
{
    char                            why[KVR_SLOTS_WHY];
    ngx_http_kv_router_turns_sh_t  *sh;

    sh = ngx_slab_calloc(shpool, sizeof(ngx_http_kv_router_turns_sh_t));
    if (sh == NULL) {
        return NULL;
    }

    shpool->log_ctx = (u_char *) " in turns= of kv_router_model";
    shpool->data = sh;

    /* take all pages that are left, as one contiguous area */

    sh->size = shpool->pfree * ngx_pagesize;

    sh->base = ngx_slab_alloc(shpool, sh->size);
    if (sh->base == NULL) {
        return NULL;
    }

    if (kvr_turns_format(sh->base, sh->size, why) != KVR_OK) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "the turn cache \"%V\": %s", &turns->name, why);
        return NULL;
    }

    return sh;
}
