
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_turns.h"
#include "../module/ngx_http_kv_router_param.h"


static char *ngx_http_kv_router_turns_name(ngx_conf_t *cf, ngx_str_t *value,
    void *field);
static ngx_int_t ngx_http_kv_router_turns_init(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_http_kv_router_turns_sh_t *ngx_http_kv_router_turns_format(
    ngx_http_kv_router_turns_t *turns, ngx_slab_pool_t *shpool,
    ngx_log_t *log);


/* nginx tells zones of other directives with the same name by their tag */

static ngx_uint_t  ngx_http_kv_router_turns_tag;


static const ngx_http_kv_router_param_t  ngx_http_kv_router_turns_params[] = {

    { ngx_string("zone"), NGX_HTTP_KV_ROUTER_SET,
      0, 0, 0, 0, ngx_http_kv_router_turns_name, 0 },

    { ngx_null_string, 0, 0, 0, 0, 0, NULL, 0 }
};


char *
ngx_http_kv_router_turn_cache(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_main_conf_t *kmcf = conf;

    ngx_http_kv_router_turns_t  *turns;

    if (kmcf->turns) {
        return "is duplicate: one cache serves all zones of workers";
    }

    turns = ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_turns_t));
    if (turns == NULL) {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kv_router_params(cf, 1, ngx_http_kv_router_turns_params,
                                  turns, NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (turns->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (turns->size < NGX_HTTP_KV_ROUTER_TURNS_MIN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" is too small, it must have %dm at "
                           "least", &turns->name,
                           NGX_HTTP_KV_ROUTER_TURNS_MIN / (1024 * 1024));
        return NGX_CONF_ERROR;
    }

    turns->shm_zone = ngx_shared_memory_add(cf, &turns->name, turns->size,
                                            &ngx_http_kv_router_turns_tag);
    if (turns->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    turns->shm_zone->init = ngx_http_kv_router_turns_init;
    turns->shm_zone->data = turns;

    kmcf->turns = turns;

    return NGX_CONF_OK;
}


static char *
ngx_http_kv_router_turns_name(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_http_kv_router_turns_t *turns = field;

    return ngx_http_kv_router_param_zone(cf, value, &turns->name,
                                         &turns->size);
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
                      "kv_router_turn_cache \"%V\" can't be used: %s",
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

    shpool->log_ctx = (u_char *) " in kv_router_turn_cache";
    shpool->data = sh;

    /* take all pages that are left, as one contiguous area */

    sh->size = shpool->pfree * ngx_pagesize;

    sh->base = ngx_slab_alloc(shpool, sh->size);
    if (sh->base == NULL) {
        return NULL;
    }

    if (kvr_turns_format(sh->base, sh->size, why) != KVR_OK) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "kv_router_turn_cache \"%V\": %s", &turns->name, why);
        return NULL;
    }

    return sh;
}


ngx_http_kv_router_turns_t *
ngx_http_kv_router_turns(void)
{
    ngx_http_kv_router_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kv_router_module);

    return kmcf ? kmcf->turns : NULL;
}
