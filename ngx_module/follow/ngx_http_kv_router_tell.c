
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_tell.h"


static void ngx_http_kv_router_tell_log(void *data, kvr_level_t level,
    const char *text);
static void ngx_http_kv_router_tell_count(void *data, kvr_count_t what);


void
ngx_http_kv_router_tell_init(kvr_tell_t *tell,
    ngx_http_kv_router_zone_t *zone, ngx_log_t *log)
{
    tell->data = zone;
    tell->log = ngx_http_kv_router_tell_log;
    tell->count = ngx_http_kv_router_tell_count;

#if (NGX_DEBUG)
    tell->debug = (log->log_level & NGX_LOG_DEBUG_HTTP) != 0;
#endif
}


static void
ngx_http_kv_router_tell_log(void *data, kvr_level_t level, const char *text)
{
    ngx_http_kv_router_zone_t  *zone;

    static const ngx_uint_t  levels[] = {
        NGX_LOG_ALERT, NGX_LOG_ERR, NGX_LOG_WARN, NGX_LOG_NOTICE, NGX_LOG_INFO
    };

    zone = data;

    if (level == KVR_LOG_DEBUG) {
        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                       "kv_router zone \"%V\": %s", &zone->conf.name, text);
        return;
    }

    ngx_http_kv_router_warn(zone, levels[level], ngx_cycle->log, "%s", text);
}


static void
ngx_http_kv_router_tell_count(void *data, kvr_count_t what)
{
    static const ngx_http_kv_router_count_t  ids[] = {
        [KVR_COUNT_MESSAGES_REFUSED] = NGX_HTTP_KV_ROUTER_COUNT_REDIS_REFUSED,
        [KVR_COUNT_MESSAGES_DROPPED] = NGX_HTTP_KV_ROUTER_COUNT_REDIS_DROPPED,
        [KVR_COUNT_REPAIRS_STARTED] = NGX_HTTP_KV_ROUTER_COUNT_REPAIRS_STARTED,
        [KVR_COUNT_REPAIRS_DONE] = NGX_HTTP_KV_ROUTER_COUNT_REPAIRS_DONE,
        [KVR_COUNT_REPAIRS_FAILED] = NGX_HTTP_KV_ROUTER_COUNT_REPAIRS_FAILED,
        [KVR_COUNT_SNAPSHOTS_LOADED] =
            NGX_HTTP_KV_ROUTER_COUNT_SNAPSHOTS_LOADED,
        [KVR_COUNT_SNAPSHOTS_REFUSED] =
            NGX_HTTP_KV_ROUTER_COUNT_SNAPSHOTS_REFUSED,
        [KVR_COUNT_SNAPSHOTS_ASKED] = NGX_HTTP_KV_ROUTER_COUNT_SNAPSHOTS_ASKED
    };

    ngx_http_kv_router_zone_t *zone = data;

    (void) ngx_atomic_fetch_add(&zone->run.sh->counters[ids[what]], 1);
}
