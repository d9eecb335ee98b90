
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_prefix.h"
#include "../module/ngx_http_kv_router_param.h"


#define NGX_HTTP_KV_ROUTER_PREFIX_TEND       100    /* ms */
#define NGX_HTTP_KV_ROUTER_PREFIX_TEND_MORE  5      /* ms, with work left */


static char *ngx_http_kv_router_prefix_name(ngx_conf_t *cf, ngx_str_t *value,
    void *field);
static ngx_int_t ngx_http_kv_router_prefix_init(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_http_kv_router_prefix_format(
    ngx_http_kv_router_prefix_t *prefix, ngx_slab_pool_t *shpool,
    ngx_log_t *log);
static void ngx_http_kv_router_prefix_cleanup(void *data);
static void ngx_http_kv_router_prefix_tend(ngx_event_t *ev);


/* nginx tells zones of other directives with the same name by their tag */

static ngx_uint_t  ngx_http_kv_router_prefix_tag;


static const char *const  ngx_http_kv_router_prefix_units[] = {
    "tokens", "hashes", "bytes", NULL
};


static const char *const  ngx_http_kv_router_prefix_policies[] = {
    "lru", "lfu", "fifo", "mru", "priority", NULL
};


static const char *const  ngx_http_kv_router_prefix_full[] = {
    "evict", "refuse", NULL
};


static const char *const  ngx_http_kv_router_prefix_enabled[] = {
    "on", "off", NULL
};


#define at(field)  ngx_http_kv_router_at(ngx_http_kv_router_prefix_t, field)

static const ngx_http_kv_router_param_t  ngx_http_kv_router_prefix_params[] = {

    { ngx_string("zone"), NGX_HTTP_KV_ROUTER_SET,
      0, 0, 0, 0, ngx_http_kv_router_prefix_name, 0 },

    { ngx_string("key"), NGX_HTTP_KV_ROUTER_WORD,
      at(params.units), 0, 0, ngx_http_kv_router_prefix_units, 0 },

    { ngx_string("page_size"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(params.page_size), 1, KVR_PREFIX_PAGE_MAX, NULL, 0 },

    { ngx_string("evict"), NGX_HTTP_KV_ROUTER_WORD,
      at(params.evict), 0, 0, ngx_http_kv_router_prefix_policies, 0 },

    { ngx_string("full"), NGX_HTTP_KV_ROUTER_WORD,
      at(params.refuse), 0, 0, ngx_http_kv_router_prefix_full, 0 },

    { ngx_string("max_entries"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(params.max_entries), 0, INT32_MAX, NULL, 0 },

    { ngx_string("enabled"), NGX_HTTP_KV_ROUTER_WORD,
      at(params.disabled), 0, 0, ngx_http_kv_router_prefix_enabled, 0 },

    { ngx_null_string, 0, 0, 0, 0, 0, NULL, 0 }
};

#undef at


char *
ngx_http_kv_router_prefix_cache(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_kv_router_main_conf_t *kmcf = conf;

    ngx_pool_cleanup_t            *cln;
    ngx_http_kv_router_prefix_t   *prefix, **p;

    prefix = ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_prefix_t));
    if (prefix == NULL) {
        return NGX_CONF_ERROR;
    }

    prefix->params.page_size = 1;

    if (ngx_http_kv_router_params(cf, 1, ngx_http_kv_router_prefix_params,
                                  prefix, NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (prefix->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    /* nginx itself needs a part of the zone */

    if (prefix->size < 2 * KVR_PREFIX_ZONE_MIN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" is too small, it must have %dm at "
                           "least", &prefix->name,
                           2 * KVR_PREFIX_ZONE_MIN / (1024 * 1024));
        return NGX_CONF_ERROR;
    }

    prefix->shm_zone = ngx_shared_memory_add(cf, &prefix->name, prefix->size,
                                             &ngx_http_kv_router_prefix_tag);
    if (prefix->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (prefix->shm_zone->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%V \"%V\" is already defined", &cmd->name,
                           &prefix->name);
        return NGX_CONF_ERROR;
    }

    prefix->shm_zone->init = ngx_http_kv_router_prefix_init;
    prefix->shm_zone->data = prefix;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_http_kv_router_prefix_cleanup;
    cln->data = prefix;

    p = ngx_array_push(&kmcf->prefixes);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    *p = prefix;

    return NGX_CONF_OK;
}


static char *
ngx_http_kv_router_prefix_name(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_http_kv_router_prefix_t *prefix = field;

    return ngx_http_kv_router_param_zone(cf, value, &prefix->name,
                                         &prefix->size);
}


/* ---- the zone ----------------------------------------------------------- */

/*
 * Called in the master.  A zone of the previous configuration is only
 * attached: processes of that configuration go on using it.
 */

static ngx_int_t
ngx_http_kv_router_prefix_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_kv_router_prefix_t  *oprefix = data;

    char                          why[KVR_PREFIX_WHY];
    ngx_log_t                    *log;
    ngx_slab_pool_t              *shpool;
    ngx_http_kv_router_prefix_t  *prefix;

    prefix = shm_zone->data;
    log = shm_zone->shm.log;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (oprefix) {
        prefix->sh = oprefix->sh;

    } else if (shm_zone->shm.exists) {
        prefix->sh = shpool->data;

    } else if (ngx_http_kv_router_prefix_format(prefix, shpool, log)
               != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (kvr_prefix_attach(&prefix->cache, prefix->sh->base, prefix->sh->size,
                          &prefix->params, why)
        != KVR_OK)
    {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "kv_router_prefix_cache \"%V\" can't be used: %s",
                      &prefix->name, why);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_prefix_format(ngx_http_kv_router_prefix_t *prefix,
    ngx_slab_pool_t *shpool, ngx_log_t *log)
{
    char                             why[KVR_PREFIX_WHY];
    ngx_http_kv_router_prefix_sh_t  *sh;

    sh = ngx_slab_calloc(shpool, sizeof(ngx_http_kv_router_prefix_sh_t));
    if (sh == NULL) {
        return NGX_ERROR;
    }

    shpool->log_ctx = (u_char *) " in kv_router_prefix_cache";
    shpool->data = sh;

    /* take all pages that are left, as one contiguous area */

    sh->size = shpool->pfree * ngx_pagesize;

    sh->base = ngx_slab_alloc(shpool, sh->size);
    if (sh->base == NULL) {
        return NGX_ERROR;
    }

    if (kvr_prefix_format(sh->base, sh->size, &prefix->params, why)
        != KVR_OK)
    {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "kv_router_prefix_cache \"%V\": %s", &prefix->name,
                      why);
        return NGX_ERROR;
    }

    prefix->sh = sh;

    return NGX_OK;
}


static void
ngx_http_kv_router_prefix_cleanup(void *data)
{
    ngx_http_kv_router_prefix_t  *prefix = data;

    kvr_prefix_detach(&prefix->cache);
}


ngx_http_kv_router_prefix_t *
ngx_http_kv_router_find_prefix(ngx_cycle_t *cycle, ngx_str_t *name)
{
    ngx_http_kv_router_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_kv_router_module);

    return kmcf ? ngx_http_kv_router_named(&kmcf->prefixes, name->data,
                                           name->len)
                : NULL;
}


/* ---- a worker process --------------------------------------------------- */

void
ngx_http_kv_router_prefix_join(ngx_cycle_t *cycle, ngx_array_t *prefixes)
{
    ngx_uint_t                     i;
    ngx_http_kv_router_prefix_t  **p;

    p = prefixes->elts;

    for (i = 0; i < prefixes->nelts; i++) {
        kvr_prefix_join(&p[i]->cache);

        ngx_http_kv_router_timer(&p[i]->tend, &p[i]->tend_conn,
                                 ngx_http_kv_router_prefix_tend, p[i],
                                 cycle->log);

        ngx_add_timer(&p[i]->tend, NGX_HTTP_KV_ROUTER_PREFIX_TEND);
    }
}


static void
ngx_http_kv_router_prefix_tend(ngx_event_t *ev)
{
    ngx_connection_t             *c;
    ngx_http_kv_router_prefix_t  *prefix;

    c = ev->data;
    prefix = c->data;

    if (ngx_exiting || ngx_terminate) {
        return;
    }

    ngx_add_timer(ev, kvr_prefix_tend(&prefix->cache)
                      ? NGX_HTTP_KV_ROUTER_PREFIX_TEND_MORE
                      : NGX_HTTP_KV_ROUTER_PREFIX_TEND);
}


void
ngx_http_kv_router_prefix_leave(ngx_array_t *prefixes)
{
    ngx_uint_t                     i;
    ngx_http_kv_router_prefix_t  **p;

    p = prefixes->elts;

    for (i = 0; i < prefixes->nelts; i++) {
        kvr_prefix_leave(&p[i]->cache);
    }
}
