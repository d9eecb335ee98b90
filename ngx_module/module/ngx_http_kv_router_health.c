
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the configuration says of workers' health, and what is shown of it.
 */


#include "../status/ngx_http_kv_router_stats.h"
#include "../api/ngx_http_kv_router_answer.h"


#define NGX_HTTP_KV_ROUTER_IN_A_ROW  1000


static ngx_int_t ngx_http_kv_router_health_ms(ngx_str_t *arg, size_t prefix,
    ngx_uint_t min, uint32_t *ms);


void
ngx_http_kv_router_health_init(ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_health_conf_t  *h;

    h = &zone->health;

    h->params.max_fails = 3;
    h->params.fail_timeout = 10000;
    h->interval = 5000;
    h->timeout = 2000;
    h->passes = 1;
    h->fails = 3;
}


/* "name=TIME", the name having so many characters with its "=" */

static ngx_int_t
ngx_http_kv_router_health_ms(ngx_str_t *arg, size_t prefix, ngx_uint_t min,
    uint32_t *ms)
{
    ngx_int_t  n;
    ngx_str_t  s;

    s.data = arg->data + prefix;
    s.len = arg->len - prefix;

    n = ngx_parse_time(&s, 0);

    if (n == NGX_ERROR || n < (ngx_int_t) min || n > KVR_HEALTH_MS_MAX) {
        return NGX_ERROR;
    }

    *ms = n;

    return NGX_OK;
}


ngx_int_t
ngx_http_kv_router_health_param(ngx_str_t *arg, uint32_t *max_fails,
    uint32_t *fail_timeout, uint32_t *slow_start, uint32_t *own)
{
    ngx_int_t  n;

    if (ngx_strncmp(arg->data, "max_fails=", 10) == 0) {

        n = ngx_atoi(arg->data + 10, arg->len - 10);

        if (n < 0 || n > KVR_FAILS_MAX) {
            return NGX_ERROR;
        }

        *max_fails = n;
        *own |= KVR_OWN_MAX_FAILS;

        return NGX_OK;
    }

    if (ngx_strncmp(arg->data, "fail_timeout=", 13) == 0) {
        *own |= KVR_OWN_FAIL_TIMEOUT;
        return ngx_http_kv_router_health_ms(arg, 13, 1, fail_timeout);
    }

    if (ngx_strncmp(arg->data, "slow_start=", 11) == 0) {
        *own |= KVR_OWN_SLOW_START;
        return ngx_http_kv_router_health_ms(arg, 11, 0, slow_start);
    }

    return NGX_DECLINED;
}


char *
ngx_http_kv_router_health(ngx_conf_t *cf, ngx_http_kv_router_zone_t *zone)
{
    uint32_t                           own, ms;
    ngx_int_t                          n;
    ngx_str_t                         *value;
    ngx_uint_t                         i, j;
    ngx_http_kv_router_health_conf_t  *h;

    h = &zone->health;
    h->set = 1;

    own = 0;
    value = cf->args->elts;

    for (i = 2; i < cf->args->nelts; i++) {

        switch (ngx_http_kv_router_health_param(&value[i],
                                                &h->params.max_fails,
                                                &h->params.fail_timeout,
                                                &h->params.slow_start, &own))
        {
        case NGX_OK:
            continue;

        case NGX_ERROR:
            goto invalid;
        }

        if (ngx_strncmp(value[i].data, "check=/", 7) == 0) {

            h->check.data = value[i].data + 6;
            h->check.len = value[i].len - 6;

            for (j = 0; j < h->check.len; j++) {
                if (h->check.data[j] <= ' ' || h->check.data[j] >= 0x7f) {
                    goto invalid;
                }
            }

            h->params.checked = 1;
            continue;
        }

        if (ngx_strncmp(value[i].data, "interval=", 9) == 0) {

            if (ngx_http_kv_router_health_ms(&value[i], 9, 100, &ms)
                != NGX_OK)
            {
                goto invalid;
            }

            h->interval = ms;
            continue;
        }

        if (ngx_strncmp(value[i].data, "timeout=", 8) == 0) {

            if (ngx_http_kv_router_health_ms(&value[i], 8, 1, &ms) != NGX_OK) {
                goto invalid;
            }

            h->timeout = ms;
            continue;
        }

        if (ngx_strncmp(value[i].data, "passes=", 7) == 0) {

            n = ngx_atoi(value[i].data + 7, value[i].len - 7);

            if (n < 1 || n > NGX_HTTP_KV_ROUTER_IN_A_ROW) {
                goto invalid;
            }

            h->passes = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "fails=", 6) == 0) {

            n = ngx_atoi(value[i].data + 6, value[i].len - 6);

            if (n < 1 || n > NGX_HTTP_KV_ROUTER_IN_A_ROW) {
                goto invalid;
            }

            h->fails = n;
            continue;
        }

        goto invalid;
    }

    return NGX_CONF_OK;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                       &value[i]);

    return NGX_CONF_ERROR;
}


void
ngx_http_kv_router_health_params(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_conf_t *conf, kvr_health_params_t *params)
{
    *params = zone->health.params;

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
ngx_http_kv_router_health_json(const kvr_health_params_t *params,
    const kvr_health_view_t *view, yajl_gen g)
{
    ngx_uint_t                    i;
    const kvr_health_counters_t  *c;

    c = &view->counters;

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

    ngx_http_kv_router_gen_key(g, "failures");
    yajl_gen_map_open(g);

    for (i = 0; i < KVR_FAILURES; i++) {
        ngx_http_kv_router_gen_u64(g, kvr_failure_name(i), c->failures[i]);
    }

    yajl_gen_map_close(g);

    ngx_http_kv_router_fields_json(ngx_http_kv_router_health_fields, c, g);

    yajl_gen_map_close(g);
}
