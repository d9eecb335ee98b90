
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Active checks: GET of a URI of each worker, now and then.
 *
 * Every process looks which workers are due.  The record of a worker's health
 * decides which process checks the worker (kvr_health_due()), so that all
 * workers are checked even if a process dies.  A check passes if the answer
 * has status 200 and is complete.
 */


#include "../request/ngx_http_kv_router_route.h"
#include "ngx_http_kv_router_client.h"


#define NGX_HTTP_KV_ROUTER_CHECKS       64     /* at a time, of a process */
#define NGX_HTTP_KV_ROUTER_CHECKS_TICK  100    /* ms, and as much jitter */

#define NGX_HTTP_KV_ROUTER_CHECK_MAX    65536  /* bytes of an answer */


typedef struct ngx_http_kv_router_checks_s  ngx_http_kv_router_checks_t;


typedef struct {
    ngx_http_kv_router_checks_t    *checks;    /* NULL: free */
    ngx_http_kv_router_client_t    *client;
    uint32_t                        number;    /* of the worker */
    uint32_t                        generation;
    char                            id[KVR_WORKER_ID_MAX + 1];
} ngx_http_kv_router_check_t;


struct ngx_http_kv_router_checks_s {
    ngx_http_kv_router_zone_t      *zone;
    ngx_event_t                     tick;
    ngx_connection_t                dummy;     /* fd of the tick */
    ngx_log_t                       log;
    ngx_uint_t                      next;      /* first of the next tick */
    ngx_uint_t                      running;
    ngx_http_kv_router_check_t      all[NGX_HTTP_KV_ROUTER_CHECKS];
};


static void ngx_http_kv_router_checks_tick(ngx_event_t *ev);
static void ngx_http_kv_router_check_start(ngx_http_kv_router_checks_t *checks,
    ngx_http_kv_router_holder_t *h);
static void ngx_http_kv_router_check_answered(void *data,
    const kvr_http_answer_t *answer, const char *why);
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

    /* nginx would log each failed connection: a worker may be down for long */

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
        if (checks->all[i].client) {
            ngx_http_kv_router_client_cancel(checks->all[i].client);
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

        /*
         * a check is up to a tenth of the interval sooner or later, so that
         * the checks of all workers do not come at once
         */

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
    const char                  *why;
    ngx_http_kv_router_zone_t   *zone;
    ngx_http_kv_router_check_t  *check;

    for (i = 0; checks->all[i].checks; i++) { /* void */ }

    zone = checks->zone;
    check = &checks->all[i];

    check->checks = checks;
    check->number = h->number;
    check->generation = h->generation;
    checks->running++;

    ngx_cpystrn((u_char *) check->id, h->id.data,
                ngx_min(h->id.len + 1, sizeof(check->id)));

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": check of worker \"%V\": GET \"%V\" "
                   "at \"%V\"", &zone->name, &h->id, &zone->health.check,
                   &h->address);

    switch (ngx_http_kv_router_client_ask(&check->client, zone, &h->address,
                                          &zone->health.check, NULL,
                                          zone->health.timeout,
                                          NGX_HTTP_KV_ROUTER_CHECK_MAX,
                                          &checks->log,
                                          ngx_http_kv_router_check_answered,
                                          check, &why))
    {
    case NGX_OK:
        return;

    case NGX_DECLINED:
        ngx_http_kv_router_check_done(check, why);
        return;

    default: /* lack of memory or descriptors is no fault of the worker */
        ngx_http_kv_router_check_free(check);
    }
}


static void
ngx_http_kv_router_check_answered(void *data, const kvr_http_answer_t *answer,
    const char *why)
{
    ngx_http_kv_router_check_t *check = data;

    u_char  text[sizeof("status 4294967295, not 200")];

    if (answer == NULL && why == NULL) {
        ngx_http_kv_router_check_free(check);
        return;
    }

    if (answer && answer->status != NGX_HTTP_OK) {
        (void) ngx_sprintf(text, "status %uD, not 200%Z", answer->status);
        why = (char *) text;
    }

    ngx_http_kv_router_check_done(check, why);
}


/* Ends a check.  why: the reason of the failure; NULL: the check passed. */

static void
ngx_http_kv_router_check_done(ngx_http_kv_router_check_t *check,
    const char *why)
{
    kvr_health_t               *health;
    kvr_router_t               *router;
    ngx_http_kv_router_zone_t  *zone;

    zone = check->checks->zone;
    router = &zone->router;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": check of worker \"%s\": %s",
                   &zone->name, check->id, why ? why : "passed");

    health = kvr_router_health(router, check->number);

    if (kvr_load32(&kvr_router_worker(router, check->number)->generation)
        == check->generation
        && kvr_health_checked(health, check->generation, ngx_current_msec,
                              why == NULL, zone->health.passes,
                              zone->health.fails))
    {
        if (why) {
            ngx_http_kv_router_warn(zone, NGX_LOG_ERR, ngx_cycle->log,
                                    "worker \"%s\" is down: %uD checks of "
                                    "\"%V\" failed, the last one: %s",
                                    check->id, zone->health.fails,
                                    &zone->health.check, why);

        } else {
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "kv_router zone \"%V\": worker \"%s\" is up",
                          &zone->name, check->id);
        }
    }

    ngx_http_kv_router_check_free(check);
}


static void
ngx_http_kv_router_check_free(ngx_http_kv_router_check_t *check)
{
    check->checks->running--;
    check->checks = NULL;
    check->client = NULL;
}
