
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
                       "kv_router zone \"%V\": %s", &zone->name, text);
        return;
    }

    ngx_http_kv_router_warn(zone, levels[level], ngx_cycle->log, "%s", text);
}


static void
ngx_http_kv_router_tell_count(void *data, kvr_count_t what)
{
    ngx_atomic_t                *counter;
    ngx_http_kv_router_shctx_t  *sh;

    sh = ((ngx_http_kv_router_zone_t *) data)->sh;

    switch (what) {

    case KVR_COUNT_MESSAGES_REFUSED:
        counter = &sh->redis_refused;
        break;

    case KVR_COUNT_MESSAGES_DROPPED:
        counter = &sh->redis_dropped;
        break;

    case KVR_COUNT_REPAIRS_STARTED:
        counter = &sh->repairs_started;
        break;

    case KVR_COUNT_REPAIRS_DONE:
        counter = &sh->repairs_done;
        break;

    case KVR_COUNT_REPAIRS_FAILED:
        counter = &sh->repairs_failed;
        break;

    case KVR_COUNT_SNAPSHOTS_LOADED:
        counter = &sh->snapshots_loaded;
        break;

    case KVR_COUNT_SNAPSHOTS_REFUSED:
        counter = &sh->snapshots_refused;
        break;

    default: /* KVR_COUNT_SNAPSHOTS_ASKED */
        counter = &sh->snapshots_asked;
        break;
    }

    (void) ngx_atomic_fetch_add(counter, 1);
}
