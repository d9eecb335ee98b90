
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The health of workers: what it is without a directive, what a worker has of
 * its own, and what is shown of it.
 */


#include "ngx_http_kv_router_stats.h"
#include "../module/ngx_http_kv_router_answer.h"


void
ngx_http_kv_router_health_init(ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_health_conf_t  *h;

    h = &zone->conf.health;

    h->params.max_fails = 3;
    h->params.fail_timeout = 10000;
    h->interval = 5000;
    h->timeout = 2000;
    h->passes = 1;
    h->fails = 3;
}


void
ngx_http_kv_router_health_params(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_conf_t *conf, kvr_health_params_t *params)
{
    *params = zone->conf.health.params;

    if (conf->own & KVR_OWN_MAX_FAILS) {
        params->max_fails = conf->max_fails;
    }

    if (conf->own & KVR_OWN_FAIL_TIMEOUT) {
        params->fail_timeout = conf->fail_timeout;
    }

    if (conf->own & KVR_OWN_SLOW_START) {
        params->slow_start = conf->slow_start;
    }
}


void
ngx_http_kv_router_health_json(const ngx_http_kv_router_worker_t *w,
    yajl_gen g)
{
    ngx_uint_t                  i;
    const kvr_health_view_t    *view;
    const kvr_health_params_t  *params;

    view = &w->health;
    params = &w->params;

    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_str(g, "state", kvr_health_name(view->state));
    ngx_http_kv_router_gen_u64(g, "fails", view->fails);

    ngx_http_kv_router_gen_ms(g, "since", view->since);
    ngx_http_kv_router_gen_ms(g, "retry_in", view->left);
    ngx_http_kv_router_gen_decimal(g, "share",
                                   (uint64_t) (view->share * 1000 + 0.5), 3);

    ngx_http_kv_router_gen_u64(g, "max_fails", params->max_fails);
    ngx_http_kv_router_gen_decimal(g, "fail_timeout", params->fail_timeout, 3);
    ngx_http_kv_router_gen_decimal(g, "slow_start", params->slow_start, 3);

    ngx_http_kv_router_gen_map(g, "failures");

    for (i = 0; i < KVR_FAILURES; i++) {
        ngx_http_kv_router_gen_u64(g, kvr_failure_name(i),
                                   view->counters.failures[i]);
    }

    yajl_gen_map_close(g);

    ngx_http_kv_router_fields_json(ngx_http_kv_router_health_fields, w, g);

    yajl_gen_map_close(g);
}
