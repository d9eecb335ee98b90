
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_redis_link.h"


/* milliseconds */
#define NGX_HTTP_KV_ROUTER_DELAY_MIN       100
#define NGX_HTTP_KV_ROUTER_DELAY_MAX       3000


ngx_str_t *
ngx_http_kv_router_redis_url(ngx_http_kv_router_redis_t *r)
{
    return &ngx_http_kv_router_redis_current(r)->url;
}


ngx_http_kv_router_redis_server_t *
ngx_http_kv_router_redis_current(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_redis_server_t  *servers;

    servers = r->zone->conf.redis->servers.elts;

    return &servers[r->server];
}


void
ngx_http_kv_router_redis_failed(ngx_http_kv_router_redis_t *r, ngx_err_t err,
    char *reason, ngx_str_t *detail)
{
    u_char                             *last, text[KVR_TOLD_TEXT];
    ngx_uint_t                          ready, works, level;
    ngx_msec_t                          delay;
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);
    ready = r->ready;
    works = r->works;

    r->log.log_level = ngx_cycle->log->log_level;

    level = server->down || r->beside ? NGX_LOG_INFO : NGX_LOG_ERR;

    last = ngx_snprintf(text, sizeof(text), detail ? "%s: \"%V\"" : "%s",
                        reason, detail);

    ngx_log_error(level, &r->log, err, "%*s", (size_t) (last - text), text);

    last = ngx_slprintf(last, text + sizeof(text), ", redis: \"%V\"",
                        &server->url);
    ngx_http_kv_router_told(r->zone, level, text, last - text);

    server->down |= !r->beside;

    ngx_http_kv_router_redis_disconnect(r);

    if (works) {

        if (r->reset) {
            r->delay = ngx_min(r->delay * 2, NGX_HTTP_KV_ROUTER_DELAY_MAX);
        }

    } else {

        if (++r->addr >= r->naddrs) {
            r->addr = 0;
            r->addrs = NULL;

            if (r->leader == NULL) {
                r->server = (r->server + 1)
                            % r->zone->conf.redis->servers.nelts;
            }

            if (r->leader || r->server == 0) {
                r->delay = ngx_min(r->delay * 2, NGX_HTTP_KV_ROUTER_DELAY_MAX);
            }
        }
    }

    r->delay = ngx_max(r->delay, NGX_HTTP_KV_ROUTER_DELAY_MIN);

    /* 50-100% of the delay, so that a fleet does not connect at once */

    delay = r->delay / 2 + ngx_random() % (r->delay / 2 + 1);

    if (!works && (r->addr || (r->server && r->leader == NULL))) {
        delay = 1;
    }

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, &r->log, 0,
                   "kv_router zone \"%V\": redis %s: closed, %s; the next try "
                   "is in %M ms", &r->zone->conf.name, r->purpose, reason,
                   delay);

    ngx_add_timer(&r->reconnect, delay);

    if (ready) {
        ngx_http_kv_router_redis_lost(r);
    }
}


void
ngx_http_kv_router_redis_go_to_master(ngx_http_kv_router_redis_t *r)
{
    r->found = 1;

    ngx_http_kv_router_redis_disconnect(r);

    /* not at once: nginx could give the new connection the place of this */

    ngx_add_timer(&r->reconnect, 1);
}


void
ngx_http_kv_router_redis_disconnect(ngx_http_kv_router_redis_t *r)
{
    ngx_connection_t  *c;

    c = r->peer.connection;

    if (c) {
        r->peer.connection = NULL;
        ngx_http_kv_router_tls_close(c);

        if (c->pool) {
            ngx_destroy_pool(c->pool);
            c->pool = NULL;
        }

        ngx_close_connection(c);
    }

    if (r->reader) {
        redisReaderFree(r->reader);
        r->reader = NULL;
    }

    r->established = 0;
    r->ready = 0;
}


u_char *
ngx_http_kv_router_redis_log_text(ngx_log_t *log, u_char *buf, size_t len)
{
    u_char                      *p;
    ngx_http_kv_router_redis_t  *r;

    p = buf;
    r = log->data;

    if (log->action) {
        p = ngx_snprintf(p, len, " while %s", log->action);
        len -= p - buf;
        buf = p;
    }

    return ngx_snprintf(p, len, ", zone: \"%V\", redis: \"%V\"",
                        &r->zone->conf.name, ngx_http_kv_router_redis_url(r));
}
