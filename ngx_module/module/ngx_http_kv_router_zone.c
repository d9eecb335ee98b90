
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A zone: its start in shared memory, its end with the configuration, and how
 * it is found by name.
 */


#include "ngx_http_kv_router_module.h"


/*
 * Called in the master.  A new zone is laid out.  A zone of the previous
 * configuration is only checked, because processes of that configuration use
 * it, and go on using it if the new configuration fails.
 */

ngx_int_t
ngx_http_kv_router_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_kv_router_zone_t  *ozone = data;

    char                         why[KVR_WHY_LEN];
    size_t                       size;
    kvr_rc_t                     rc;
    ngx_slab_pool_t             *shpool;
    ngx_http_kv_router_zone_t   *zone;
    ngx_http_kv_router_shctx_t  *sh;

    zone = shm_zone->data;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (ozone) {
        sh = ozone->sh;

    } else if (shm_zone->shm.exists) {
        sh = shpool->data;

    } else {

        sh = ngx_slab_calloc(shpool, sizeof(ngx_http_kv_router_shctx_t));
        if (sh == NULL) {
            return NGX_ERROR;
        }

        shpool->log_ctx = (u_char *) " in kv_router_zone";
        shpool->data = sh;

        kvr_router_bounds(&zone->params, &sh->nworkers, &sh->nholders);

        sh->usage = ngx_slab_calloc(shpool,
                                    sh->nworkers * sizeof(kvr_usage_t));
        sh->trust = ngx_slab_calloc(shpool,
                                    sh->nworkers * sizeof(kvr_trust_t));
        sh->served = ngx_slab_calloc(shpool,
                                     sh->nworkers * sizeof(kvr_served_t));
        sh->reports = ngx_slab_calloc(shpool,
                                      sh->nholders * sizeof(kvr_report_t));

        sh->nspeeds = ngx_min(sh->nholders,
                              zone->size / NGX_HTTP_KV_ROUTER_SPEED_PART
                              / sizeof(kvr_speed_t));
        sh->speeds = ngx_slab_calloc(shpool,
                                     sh->nspeeds * sizeof(kvr_speed_t));

        sh->turns = ngx_slab_calloc(shpool,
                                    sh->nworkers
                                    * sizeof(ngx_http_kv_router_turn_t));

        sh->rungs = ngx_slab_calloc(shpool,
                                    sh->nworkers * sizeof(kvr_rungs_t));

        sh->names = ngx_slab_calloc(shpool,
                                    sh->nworkers * sizeof(kvr_name_t));

        zone->sh = sh;
        sh->made = ngx_time();

        if (sh->usage == NULL || sh->trust == NULL || sh->served == NULL
            || sh->reports == NULL || sh->speeds == NULL || sh->turns == NULL
            || sh->rungs == NULL || sh->names == NULL
            || ngx_http_kv_router_rings_init(zone, shpool,
                                             zone->processes->worker_processes)
               != NGX_OK)
        {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "kv_router_zone \"%V\": too small for its "
                          "max_workers", &zone->name);
            return NGX_ERROR;
        }

        /* take all pages that are left, as one contiguous area */

        size = shpool->pfree * ngx_pagesize;

        sh->base = ngx_slab_alloc(shpool, size);
        if (sh->base == NULL) {
            return NGX_ERROR;
        }

        sh->size = size;

#ifdef MADV_HUGEPAGE
        /*
         * ask for huge pages before the area is touched; most systems have
         * none
         */
        (void) madvise(sh->base, size, MADV_HUGEPAGE);
#endif

        if (kvr_router_format(sh->base, size, &zone->params, why) != KVR_OK) {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "kv_router_zone \"%V\": %s", &zone->name, why);
            return NGX_ERROR;
        }
    }

    rc = kvr_router_attach(&zone->router, sh->base, sh->size, &zone->params,
                           why);
    if (rc != KVR_OK) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "kv_router_zone \"%V\" can't be used: %s", &zone->name,
                      why);
        return NGX_ERROR;
    }

    zone->sh = sh;

    if (zone->model) {
        (void) ngx_atomic_fetch_add(zone->model_kept ? &sh->models_kept
                                                     : &sh->models_loaded, 1);
    }

    return NGX_OK;
}


void
ngx_http_kv_router_zone_cleanup(void *data)
{
    ngx_http_kv_router_zone_t *zone = data;

    kvr_router_detach(&zone->router);
    kvr_inflight_destroy(zone->inflight);
    kvr_echoes_destroy(zone->echoes);
}


ngx_http_kv_router_zone_t *
ngx_http_kv_router_find_zone(ngx_cycle_t *cycle, ngx_str_t *name)
{
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_kv_router_module);
    if (kmcf == NULL) {
        return NULL;
    }

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (zones[i]->name.len == name->len
            && ngx_strncmp(zones[i]->name.data, name->data, name->len) == 0)
        {
            return zones[i];
        }
    }

    return NULL;
}
