
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Active checks: GET of a URI of each worker, now and then.
 *
 * Every process looks which workers are due; the record of a worker's health
 * says to whom it falls (kvr_health_due()), so that a process that dies leaves
 * nobody unchecked.  An answer passes when its status is 200.
 */


#include "ngx_http_kv_router_route.h"


#define NGX_HTTP_KV_ROUTER_CHECKS       64     /* at a time, of a process */
#define NGX_HTTP_KV_ROUTER_CHECKS_TICK  100    /* ms, and as much jitter */

#define NGX_HTTP_KV_ROUTER_STATUS_LINE  12     /* "HTTP/1.1 200" */


typedef struct ngx_http_kv_router_checks_s  ngx_http_kv_router_checks_t;


typedef struct {
    ngx_http_kv_router_checks_t    *checks;    /* NULL: free */
    ngx_pool_t                     *pool;
    ngx_peer_connection_t           peer;
    uint32_t                        number;    /* of the worker */
    uint32_t                        generation;
    ngx_str_t                       id;
    ngx_str_t                       request;
    size_t                          sent;
    size_t                          got;
    u_char                          line[NGX_HTTP_KV_ROUTER_STATUS_LINE];
} ngx_http_kv_router_check_t;


struct ngx_http_kv_router_checks_s {
    ngx_http_kv_router_zone_t      *zone;
    ngx_event_t                     tick;
    ngx_connection_t                dummy;     /* of the tick */
    ngx_log_t                       log;
    ngx_uint_t                      next;      /* to be looked at first */
    ngx_uint_t                      running;
    ngx_http_kv_router_check_t      all[NGX_HTTP_KV_ROUTER_CHECKS];
};


static void ngx_http_kv_router_checks_tick(ngx_event_t *ev);
static void ngx_http_kv_router_check_start(ngx_http_kv_router_checks_t *checks,
    ngx_http_kv_router_holder_t *h);
static ngx_int_t ngx_http_kv_router_check_connect(
    ngx_http_kv_router_check_t *check, ngx_http_kv_router_holder_t *h);
static void ngx_http_kv_router_check_write(ngx_event_t *wev);
static void ngx_http_kv_router_check_read(ngx_event_t *rev);
static void ngx_http_kv_router_check_done(ngx_http_kv_router_check_t *check,
    const char *why);
static void ngx_http_kv_router_check_free(ngx_http_kv_router_check_t *check);


ngx_int_t
ngx_http_kv_router_checks_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_event_t                  *ev;
    ngx_http_kv_router_checks_t  *checks;

    if (zone->health.check.len == 0) {
        return NGX_OK;
    }

    checks = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_checks_t));
    if (checks == NULL) {
        return NGX_ERROR;
    }

    checks->zone = zone;

    /* a worker that is down would say so each time */

    checks->log = *cycle->log;
    checks->log.log_level = ngx_min(cycle->log->log_level, NGX_LOG_CRIT);

    checks->dummy.fd = (ngx_socket_t) -1;
    checks->dummy.data = checks;

    ev = &checks->tick;
    ev->handler = ngx_http_kv_router_checks_tick;
    ev->data = &checks->dummy;
    ev->log = cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, ngx_random() % NGX_HTTP_KV_ROUTER_CHECKS_TICK);

    zone->checks = checks;

    return NGX_OK;
}


void
ngx_http_kv_router_checks_stop(ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t                    i;
    ngx_http_kv_router_checks_t  *checks;

    checks = zone->checks;

    if (checks == NULL) {
        return;
    }

    if (checks->tick.timer_set) {
        ngx_del_timer(&checks->tick);
    }

    for (i = 0; i < NGX_HTTP_KV_ROUTER_CHECKS; i++) {
        if (checks->all[i].checks) {
            ngx_http_kv_router_check_free(&checks->all[i]);
        }
    }

    zone->checks = NULL;
}


static void
ngx_http_kv_router_checks_tick(ngx_event_t *ev)
{
    ngx_uint_t                     i;
    ngx_msec_t                     next;
    kvr_health_t                  *health;
    ngx_connection_t              *c;
    ngx_http_kv_router_zone_t     *zone;
    ngx_http_kv_router_fleet_t    *fleet;
    ngx_http_kv_router_holder_t   *h;
    ngx_http_kv_router_checks_t   *checks;

    c = ev->data;
    checks = c->data;
    zone = checks->zone;

    if (ngx_exiting || ngx_terminate) {
        return;
    }

    fleet = ngx_http_kv_router_fleet_get(zone);

    for (i = 0; fleet && i < fleet->n; i++) {

        if (checks->running == NGX_HTTP_KV_ROUTER_CHECKS) {
            break;
        }

        h = &fleet->holders[(checks->next + i) % fleet->n];

        if (h->rank != 0) {
            continue;
        }

        /* a tenth sooner or later, so that they don't come all at once */

        next = ngx_current_msec + zone->health.interval
               - zone->health.interval / 10
               + ngx_random() % (zone->health.interval / 5 + 1);

        health = kvr_router_health(&zone->router, h->number);

        if (kvr_load32(&h->worker->generation) == h->generation
            && kvr_health_due(health, h->generation, ngx_current_msec, next))
        {
            ngx_http_kv_router_check_start(checks, h);
        }
    }

    checks->next += i;

    if (fleet) {
        ngx_http_kv_router_fleet_put(fleet);
    }

    ngx_add_timer(ev, NGX_HTTP_KV_ROUTER_CHECKS_TICK
                      + ngx_random() % NGX_HTTP_KV_ROUTER_CHECKS_TICK);
}


static void
ngx_http_kv_router_check_start(ngx_http_kv_router_checks_t *checks,
    ngx_http_kv_router_holder_t *h)
{
    ngx_uint_t                   i;
    ngx_pool_t                  *pool;
    ngx_http_kv_router_check_t  *check;

    for (i = 0; checks->all[i].checks; i++) { /* void */ }

    check = &checks->all[i];

    pool = ngx_create_pool(1024, &checks->log);
    if (pool == NULL) {
        return;
    }

    ngx_memzero(check, sizeof(ngx_http_kv_router_check_t));

    check->checks = checks;
    check->pool = pool;
    check->number = h->number;
    check->generation = h->generation;
    checks->running++;

    if (ngx_http_kv_router_copy_str(pool, &check->id, h->id.data, h->id.len)
        != NGX_OK)
    {
        ngx_http_kv_router_check_free(check);
        return;
    }

    switch (ngx_http_kv_router_check_connect(check, h)) {

    case NGX_OK:
        return;

    case NGX_DECLINED:
        ngx_http_kv_router_check_done(check, "no connection");
        return;

    default: /* no memory, no descriptor: that is not the worker's fault */
        ngx_http_kv_router_check_free(check);
    }
}


static ngx_int_t
ngx_http_kv_router_check_connect(ngx_http_kv_router_check_t *check,
    ngx_http_kv_router_holder_t *h)
{
    u_char                     *p;
    ngx_int_t                   rc;
    ngx_url_t                   u;
    ngx_str_t                   host;
    ngx_connection_t           *c;
    ngx_http_kv_router_zone_t  *zone;

    zone = check->checks->zone;

    ngx_memzero(&u, sizeof(ngx_url_t));
    u.url = h->address;
    u.no_resolve = 1;

    if (ngx_parse_url(check->pool, &u) != NGX_OK || u.naddrs == 0) {
        return NGX_ERROR;
    }

    ngx_str_set(&host, "localhost");

    if (u.family != AF_UNIX) {
        host = h->address;
    }

    p = ngx_pnalloc(check->pool, sizeof("GET  HTTP/1.1" CRLF "Host: " CRLF
                                        "User-Agent: nginx-kv-router" CRLF
                                        "Connection: close" CRLF CRLF)
                                 + zone->health.check.len + host.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    check->request.data = p;
    check->request.len = ngx_sprintf(p, "GET %V HTTP/1.1" CRLF "Host: %V" CRLF
                                     "User-Agent: nginx-kv-router" CRLF
                                     "Connection: close" CRLF CRLF,
                                     &zone->health.check, &host)
                         - p;

    check->peer.sockaddr = u.addrs[0].sockaddr;
    check->peer.socklen = u.addrs[0].socklen;
    check->peer.name = &u.addrs[0].name;
    check->peer.get = ngx_event_get_peer;
    check->peer.log = &check->checks->log;
    check->peer.log_error = NGX_ERROR_ERR;

    rc = ngx_event_connect_peer(&check->peer);

    if (rc == NGX_DECLINED || rc == NGX_ERROR || rc == NGX_BUSY) {
        return rc == NGX_DECLINED ? NGX_DECLINED : NGX_ERROR;
    }

    c = check->peer.connection;

    c->data = check;
    c->pool = check->pool;
    c->idle = 1;                    /* an exiting process need not wait */
    c->log = check->peer.log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = ngx_http_kv_router_check_read;
    c->write->handler = ngx_http_kv_router_check_write;
    c->read->cancelable = 1;

    ngx_add_timer(c->read, zone->health.timeout);

    if (rc == NGX_OK) {
        ngx_http_kv_router_check_write(c->write);
    }

    return NGX_OK;
}


static void
ngx_http_kv_router_check_write(ngx_event_t *wev)
{
    ssize_t                      n;
    ngx_connection_t            *c;
    ngx_http_kv_router_check_t  *check;

    c = wev->data;
    check = c->data;

    while (check->sent < check->request.len) {

        n = c->send(c, check->request.data + check->sent,
                    check->request.len - check->sent);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n <= 0) {
            ngx_http_kv_router_check_done(check, "no connection");
            return;
        }

        check->sent += n;
    }

    if (ngx_handle_write_event(wev, 0) != NGX_OK) {
        ngx_http_kv_router_check_free(check);
    }
}


static void
ngx_http_kv_router_check_read(ngx_event_t *rev)
{
    ssize_t                      n;
    ngx_connection_t            *c;
    ngx_http_kv_router_check_t  *check;

    c = rev->data;
    check = c->data;

    if (c->close) {
        ngx_http_kv_router_check_free(check);
        return;
    }

    if (rev->timedout) {
        ngx_http_kv_router_check_done(check, "timeout");
        return;
    }

    while (check->got < NGX_HTTP_KV_ROUTER_STATUS_LINE) {

        n = c->recv(c, check->line + check->got,
                    NGX_HTTP_KV_ROUTER_STATUS_LINE - check->got);

        if (n == NGX_AGAIN) {

            if (ngx_handle_read_event(rev, 0) != NGX_OK) {
                ngx_http_kv_router_check_free(check);
            }

            return;
        }

        if (n <= 0) {
            ngx_http_kv_router_check_done(check, "no answer");
            return;
        }

        check->got += n;
    }

    if (ngx_strncmp(check->line, "HTTP/1.", 7) != 0
        || ngx_strncmp(check->line + 8, " 200", 4) != 0)
    {
        ngx_http_kv_router_check_done(check, "another status than 200");
        return;
    }

    ngx_http_kv_router_check_done(check, NULL);
}


/* why: what is wrong; NULL: it passed */

static void
ngx_http_kv_router_check_done(ngx_http_kv_router_check_t *check,
    const char *why)
{
    kvr_health_t               *health;
    kvr_router_t               *router;
    ngx_http_kv_router_zone_t  *zone;

    zone = check->checks->zone;
    router = &zone->router;

    health = kvr_router_health(router, check->number);

    if (kvr_load32(&kvr_router_worker(router, check->number)->generation)
        == check->generation
        && kvr_health_checked(health, check->generation, ngx_current_msec,
                              why == NULL, zone->health.passes,
                              zone->health.fails))
    {
        if (why) {
            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "kv_router zone \"%V\": worker \"%V\" is down: "
                          "%uD checks failed, the last one: %s",
                          &zone->name, &check->id, zone->health.fails, why);

        } else {
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "kv_router zone \"%V\": worker \"%V\" is up",
                          &zone->name, &check->id);
        }
    }

    ngx_http_kv_router_check_free(check);
}


static void
ngx_http_kv_router_check_free(ngx_http_kv_router_check_t *check)
{
    ngx_pool_t  *pool;

    if (check->peer.connection) {
        ngx_close_connection(check->peer.connection);
        check->peer.connection = NULL;
    }

    pool = check->pool;

    check->checks->running--;
    check->checks = NULL;

    ngx_destroy_pool(pool);
}
