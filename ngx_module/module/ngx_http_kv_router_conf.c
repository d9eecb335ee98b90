
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Directives.
 */


#include "ngx_http_kv_router_module.h"


static ngx_http_kv_router_zone_t *ngx_http_kv_router_conf_zone(ngx_conf_t *cf,
    ngx_command_t *cmd);
static ngx_int_t ngx_http_kv_router_copy(ngx_str_t *value, char *to,
    size_t size);


char *
ngx_http_kv_router_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_main_conf_t *kmcf = conf;

    u_char                      *p;
    ssize_t                      size;
    ngx_int_t                    n, ttl;
    ngx_str_t                   *value, name, s;
    ngx_uint_t                   i;
    ngx_pool_cleanup_t          *cln;
    ngx_http_kv_router_zone_t   *zone, **zp;

    value = cf->args->elts;

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_zone_t));
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (ngx_array_init(&zone->workers, cf->pool, 8, sizeof(kvr_worker_conf_t))
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_http_kv_router_health_init(zone);

    zone->params.block_size = 16;
    zone->params.max_workers = 1024;
    zone->params.shards = 1;

    ngx_str_null(&name);
    size = 0;

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "zone=", 5) == 0) {

            name.data = value[i].data + 5;

            p = (u_char *) ngx_strchr(name.data, ':');

            if (p == NULL || p == name.data) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid zone size \"%V\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            name.len = p - name.data;

            s.data = p + 1;
            s.len = value[i].data + value[i].len - s.data;

            size = ngx_parse_size(&s);

            if (size == NGX_ERROR) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid zone size \"%V\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "block_size=", 11) == 0) {

            n = ngx_atoi(value[i].data + 11, value[i].len - 11);

            if (n < 1 || n > KVR_BLOCK_SIZE_MAX) {
                goto invalid;
            }

            zone->params.block_size = n;
            continue;
        }

        if (ngx_strcmp(value[i].data, "eagle=on") == 0) {
            zone->params.eagle = 1;
            continue;
        }

        if (ngx_strcmp(value[i].data, "eagle=off") == 0) {
            zone->params.eagle = 0;
            continue;
        }

        if (ngx_strncmp(value[i].data, "max_workers=", 12) == 0) {

            n = ngx_atoi(value[i].data + 12, value[i].len - 12);

            if (n < 1 || n > 16384) {
                goto invalid;
            }

            zone->params.max_workers = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "frequency=", 10) == 0) {

            s.data = value[i].data + 10;
            s.len = value[i].len - 10;

            n = ngx_parse_time(&s, 0);

            if (n != NGX_ERROR && n >= KVR_FREQUENCY_MIN
                && n <= KVR_FREQUENCY_MAX)
            {
                zone->params.frequency_ms = n;
                continue;
            }

            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\", it must be a time "
                               "from 1s to 1d", &value[i]);
            return NGX_CONF_ERROR;
        }

        if (ngx_strncmp(value[i].data, "shards=", 7) == 0) {

            n = ngx_atoi(value[i].data + 7, value[i].len - 7);

            if (n < 1 || n > KVR_SHARDS_MAX) {
                goto invalid;
            }

            zone->params.shards = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "model=", 6) == 0) {

            s.data = value[i].data + 6;
            s.len = value[i].len - 6;

            if (ngx_http_kv_router_copy(&s, zone->params.model,
                                        sizeof(zone->params.model))
                != NGX_OK)
            {
                goto invalid;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "max_active=", 11) == 0) {

            n = ngx_atoi(value[i].data + 11, value[i].len - 11);

            if (n == NGX_ERROR || n > KVR_ACTIVE_MAX) {
                goto invalid;
            }

            zone->max_active = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "predict=", 8) == 0) {

            s.data = value[i].data + 8;
            s.len = value[i].len - 8;

            n = ngx_parse_time(&s, 0);

            if (n == NGX_ERROR || n > KVR_PREDICT_MAX) {
                goto invalid;
            }

            zone->predict = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "ttl=", 4) == 0) {

            s.data = value[i].data + 4;
            s.len = value[i].len - 4;

            ttl = ngx_parse_time(&s, 1);

            if (ttl == NGX_ERROR || ttl <= 0 || ttl > INT32_MAX) {
                goto invalid;
            }

            zone->params.ttl = ttl;
            continue;
        }

        if (ngx_strcmp(value[i].data, "index=radix") == 0) {
            zone->params.index = KVR_INDEX_RADIX;
            continue;
        }

        if (ngx_strcmp(value[i].data, "index=positional") == 0) {
            zone->params.index = KVR_INDEX_POSITIONAL;
            continue;
        }

        goto invalid;
    }

    if (name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (size < (ssize_t) NGX_HTTP_KV_ROUTER_ZONE_MIN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" is too small", &name);
        return NGX_CONF_ERROR;
    }

    zone->name = name;

    zone->shm_zone = ngx_shared_memory_add(cf, &name, size,
                                           &ngx_http_kv_router_module);
    if (zone->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->shm_zone->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%V \"%V\" is already defined", &cmd->name, &name);
        return NGX_CONF_ERROR;
    }

    zone->shm_zone->init = ngx_http_kv_router_init_zone;
    zone->shm_zone->data = zone;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_http_kv_router_zone_cleanup;
    cln->data = zone;

    zp = ngx_array_push(&kmcf->zones);
    if (zp == NULL) {
        return NGX_CONF_ERROR;
    }

    *zp = zone;

    return NGX_CONF_OK;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                       &value[i]);

    return NGX_CONF_ERROR;
}


/* The zone that a directive's first argument names. */

static ngx_http_kv_router_zone_t *
ngx_http_kv_router_conf_zone(ngx_conf_t *cf, ngx_command_t *cmd)
{
    ngx_str_t                       *value;
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;

    value = cf->args->elts;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kv_router_module);
    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (zones[i]->name.len == value[1].len
            && ngx_strncmp(zones[i]->name.data, value[1].data, value[1].len)
               == 0)
        {
            return zones[i];
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown kv_router_zone \"%V\" in \"%V\", "
                       "it must be defined before", &value[1], &cmd->name);
    return NULL;
}


char *
ngx_http_kv_router_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_zone_t  *zone;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->redis) {
        return "is duplicate";
    }

    return ngx_http_kv_router_redis_parse(cf, zone);
}


char *
ngx_http_kv_router_scrape(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_zone_t  *zone;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->scrape.interval) {
        return "is duplicate";
    }

    return ngx_http_kv_router_scrape_parse(cf, zone);
}


char *
ngx_http_kv_router_worker(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_int_t                   n;
    ngx_str_t                  *value, s;
    ngx_url_t                   u;
    ngx_uint_t                  i;
    kvr_worker_conf_t          *w, *others;
    ngx_http_kv_router_zone_t  *zone;

    value = cf->args->elts;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts < 4) {
        return "is missing the worker's address";
    }

    if (!kvr_worker_id_valid((char *) value[2].data, value[2].len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid worker id \"%V\", it must be 1..63 "
                           "characters of [A-Za-z0-9._:-]", &value[2]);
        return NGX_CONF_ERROR;
    }

    others = zone->workers.elts;

    for (i = 0; i < zone->workers.nelts; i++) {
        if (ngx_strcmp(others[i].id, value[2].data) == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate worker \"%V\"", &value[2]);
            return NGX_CONF_ERROR;
        }
    }

    if (zone->workers.nelts == zone->params.max_workers) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many workers, the zone \"%V\" has "
                           "max_workers=%uD", &zone->name,
                           zone->params.max_workers);
        return NGX_CONF_ERROR;
    }

    w = ngx_array_push(&zone->workers);
    if (w == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(w, sizeof(kvr_worker_conf_t));
    ngx_memcpy(w->id, value[2].data, value[2].len);

    w->ranks = 1;
    w->weight = 1000;

    /* as in "server" of an upstream: names are resolved at start */

    ngx_memzero(&u, sizeof(ngx_url_t));
    u.url = value[3];
    u.default_port = 80;

    if (ngx_strncmp(value[3].data, "unix:", 5) != 0
        && ngx_strlchr(value[3].data, value[3].data + value[3].len, '/'))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid address \"%V\" of worker \"%V\": "
                           "no scheme and no path can be in it", &value[3],
                           &value[2]);
        return NGX_CONF_ERROR;
    }

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s in worker \"%V\"",
                           u.err ? u.err : "invalid address", &value[3]);
        return NGX_CONF_ERROR;
    }

    if (u.no_port && u.family != AF_UNIX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "no port in address \"%V\" of worker \"%V\"",
                           &value[3], &value[2]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kv_router_copy(&u.addrs[0].name, w->address,
                                sizeof(w->address))
        != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "address \"%V\" is too long", &value[3]);
        return NGX_CONF_ERROR;
    }

    for (i = 4; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "ranks=", 6) == 0) {

            n = ngx_atoi(value[i].data + 6, value[i].len - 6);

            if (n < 1 || n > KVR_RANKS_MAX) {
                goto invalid;
            }

            w->ranks = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "weight=", 7) == 0) {

            n = ngx_atofp(value[i].data + 7, value[i].len - 7, 3);

            if (n < 1 || n > KVR_WEIGHT_MAX * 1000) {
                goto invalid;
            }

            w->weight = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "max_active=", 11) == 0) {

            n = ngx_atoi(value[i].data + 11, value[i].len - 11);

            if (n < 0 || n > KVR_ACTIVE_MAX) {
                goto invalid;
            }

            w->max_active = n;
            continue;
        }

        switch (ngx_http_kv_router_health_param(&value[i], &w->max_fails,
                                                &w->fail_timeout,
                                                &w->slow_start, &w->own))
        {
        case NGX_OK:
            continue;

        case NGX_ERROR:
            goto invalid;
        }

        if (ngx_strncmp(value[i].data, "model=", 6) == 0) {

            s.data = value[i].data + 6;
            s.len = value[i].len - 6;

            if (ngx_http_kv_router_copy(&s, w->model, sizeof(w->model))
                != NGX_OK)
            {
                goto invalid;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "lora=", 5) == 0) {

            if (kvr_adapters_set(w->lora, (char *) value[i].data + 5,
                                 value[i].len - 5))
            {
                goto invalid;
            }

            continue;
        }

        if (ngx_strcmp(value[i].data, "salted=on") == 0) {
            w->salted = 1;
            continue;
        }

        if (ngx_strcmp(value[i].data, "salted=off") == 0) {
            w->salted = 0;
            continue;
        }

        if (ngx_strcmp(value[i].data, "role=both") == 0) {
            w->role = KVR_ROLE_BOTH;
            continue;
        }

        if (ngx_strcmp(value[i].data, "role=prefill") == 0) {
            w->role = KVR_ROLE_PREFILL;
            continue;
        }

        if (ngx_strcmp(value[i].data, "role=decode") == 0) {
            w->role = KVR_ROLE_DECODE;
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


char *
ngx_http_kv_router_health_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_kv_router_zone_t  *zone;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->health.set) {
        return "is duplicate";
    }

    return ngx_http_kv_router_health(cf, zone);
}


/* kv_router_status, kv_router_api: a zone, and the location's handler */

char *
ngx_http_kv_router_location(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_kv_router_zone_t  **zone;

    zone = (ngx_http_kv_router_zone_t **) (p + cmd->offset);

    if (*zone) {
        return "is duplicate";
    }

    *zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (*zone == NULL) {
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler) {
        return "conflicts with another handler of this location";
    }

    clcf->handler = (ngx_http_handler_pt) cmd->post;

    return NGX_CONF_OK;
}


/* A value as a terminated string; longer ones don't fit. */

static ngx_int_t
ngx_http_kv_router_copy(ngx_str_t *value, char *to, size_t size)
{
    if (value->len >= size || ngx_strlchr(value->data,
                                          value->data + value->len, '\0'))
    {
        return NGX_ERROR;
    }

    ngx_memzero(to, size);
    ngx_memcpy(to, value->data, value->len);

    return NGX_OK;
}
