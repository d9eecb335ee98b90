
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Mistakes that nginx takes for a configuration: found at start, and told as
 * warnings.
 */


#include "ngx_http_kv_router_module.h"


static void ngx_http_kv_router_same_redis(ngx_conf_t *cf,
    ngx_http_kv_router_main_conf_t *kmcf);
static ngx_uint_t ngx_http_kv_router_share_redis(
    ngx_http_kv_router_zone_t *a, ngx_http_kv_router_zone_t *b);
static void ngx_http_kv_router_same_address(ngx_conf_t *cf,
    ngx_http_kv_router_zone_t *zone);


void
ngx_http_kv_router_tell_mistakes(ngx_conf_t *cf)
{
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kv_router_module);

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        ngx_http_kv_router_same_address(cf, zones[i]);

        if (zones[i]->conf.sync.set && zones[i]->conf.redis == NULL) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"kv_router_sync\" of the zone \"%V\" does nothing "
                          "without \"kv_router_redis\": routers meet in "
                          "Redis", &zones[i]->conf.name);
        }
    }

    ngx_http_kv_router_same_redis(cf, kmcf);
}


/*
 * A registration in Redis without a model, or a zone without one, fits all:
 * two such zones have all of each other's workers.
 */

static void
ngx_http_kv_router_same_redis(ngx_conf_t *cf,
    ngx_http_kv_router_main_conf_t *kmcf)
{
    ngx_uint_t                   i, k;
    ngx_http_kv_router_zone_t  **zones, *a, *b;

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {

        for (k = 0; k < i; k++) {
            a = zones[k];
            b = zones[i];

            if (!ngx_http_kv_router_share_redis(a, b)
                || a->conf.params.block_size != b->conf.params.block_size
                || a->conf.params.eagle != b->conf.params.eagle
                || (a->conf.params.model[0] && b->conf.params.model[0]
                    && ngx_strcmp(a->conf.params.model, b->conf.params.model)
                       != 0))
            {
                continue;
            }

            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "the zones \"%V\" (model \"%s\") and \"%V\" (model "
                          "\"%s\") have the same Redis and channel, and so "
                          "the same workers: give each zone its \"served=\" "
                          "in \"kv_router_zone\", and each kv-relay its "
                          "\"--model\"", &a->conf.name,
                          a->conf.params.model, &b->conf.name,
                          b->conf.params.model);
        }
    }
}


static ngx_uint_t
ngx_http_kv_router_share_redis(ngx_http_kv_router_zone_t *a,
    ngx_http_kv_router_zone_t *b)
{
    ngx_uint_t                          i, k;
    ngx_http_kv_router_redis_server_t  *sa, *sb;

    if (a->conf.redis == NULL || b->conf.redis == NULL
        || !ngx_http_kv_router_same(&a->conf.redis->channel,
                                    &b->conf.redis->channel))
    {
        return 0;
    }

    sa = a->conf.redis->servers.elts;
    sb = b->conf.redis->servers.elts;

    for (i = 0; i < a->conf.redis->servers.nelts; i++) {

        for (k = 0; k < b->conf.redis->servers.nelts; k++) {

            if (sa[i].port == sb[k].port && sa[i].db == sb[k].db
                && ngx_http_kv_router_same(&sa[i].host, &sb[k].host)
                && ngx_http_kv_router_same(&sa[i].url, &sb[k].url))
            {
                return 1;
            }
        }
    }

    return 0;
}


static void
ngx_http_kv_router_same_address(ngx_conf_t *cf,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t          i, k;
    kvr_worker_conf_t  *w;

    w = zone->conf.workers.elts;

    for (i = 0; i < zone->conf.workers.nelts; i++) {

        for (k = 0; k < i; k++) {

            if (ngx_strcmp(w[i].address, w[k].address) == 0) {
                ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                              "the workers \"%s\" and \"%s\" of zone \"%V\" "
                              "have the same address %s, so the load of this "
                              "engine is counted as that of two: leave one of "
                              "them out, or, for data-parallel ranks, write "
                              "\"ranks=2\"", w[k].id, w[i].id,
                              &zone->conf.name, w[i].address);
                break;
            }
        }
    }
}
