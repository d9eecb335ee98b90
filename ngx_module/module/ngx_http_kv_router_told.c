
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Warnings: to the log, and to the zone's ring, which the status tells.
 */


#include "ngx_http_kv_router_module.h"


void ngx_cdecl
ngx_http_kv_router_warn(ngx_http_kv_router_zone_t *zone, ngx_uint_t level,
    ngx_log_t *log, const char *fmt, ...)
{
    u_char   text[NGX_MAX_ERROR_STR], *last;
    va_list  args;

    va_start(args, fmt);
    last = ngx_vslprintf(text, text + sizeof(text), fmt, args);
    va_end(args);

    ngx_log_error(level, log, 0, "kv_router zone \"%V\": %*s",
                  &zone->conf.name, (size_t) (last - text), text);

    ngx_http_kv_router_told(zone, level, text, last - text);
}


void
ngx_http_kv_router_told(ngx_http_kv_router_zone_t *zone, ngx_uint_t level,
    const u_char *text, size_t len)
{
    ngx_time_t  *now;

    now = ngx_timeofday();

    if (zone->run.sh && level <= NGX_LOG_WARN) {
        kvr_told_add(&zone->run.sh->told, kvr_router_self(&zone->run.router),
                     (uint32_t) level, (const char *) text, len,
                     (uint64_t) now->sec * 1000 + now->msec);
    }
}
