
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Active checks: GET of a URI of each worker, now and then.  A check passes if
 * the answer has status 200 and is complete.
 */


#include "ngx_http_kv_router_rounds.h"


#define NGX_HTTP_KV_ROUTER_CHECKS       64     /* at a time, of a process */
#define NGX_HTTP_KV_ROUTER_CHECKS_TICK  100    /* ms */

#define NGX_HTTP_KV_ROUTER_CHECK_MAX    65536  /* bytes of an answer */


static ngx_uint_t ngx_http_kv_router_check_wanted(
    ngx_http_kv_router_zone_t *zone);
static ngx_uint_t ngx_http_kv_router_check_due(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_holder_t *h);
static void ngx_http_kv_router_check_start(ngx_http_kv_router_slot_t *check);
static void ngx_http_kv_router_check_answered(void *data,
    const kvr_http_answer_t *answer, const char *why);
static void ngx_http_kv_router_check_done(ngx_http_kv_router_slot_t *check,
    const char *why);


const ngx_http_kv_router_rounds_kind_t  ngx_http_kv_router_checks = {
    0,
    NGX_HTTP_KV_ROUTER_CHECKS,
    sizeof(ngx_http_kv_router_slot_t),
    NGX_HTTP_KV_ROUTER_CHECKS_TICK,
    NGX_LOG_CRIT,
    0,
    ngx_http_kv_router_check_wanted,
    ngx_http_kv_router_check_due,
    ngx_http_kv_router_check_start,
    NULL
};


static ngx_uint_t
ngx_http_kv_router_check_wanted(ngx_http_kv_router_zone_t *zone)
{
    return zone->conf.health.check.len != 0;
}


static ngx_uint_t
ngx_http_kv_router_check_due(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_holder_t *h)
{
    return kvr_health_due(kvr_router_health(&zone->run.router, h->number),
                          h->generation, ngx_current_msec,
                          ngx_current_msec
                          + ngx_http_kv_router_rounds_apart(
                                                zone->conf.health.interval));
}


static void
ngx_http_kv_router_check_start(ngx_http_kv_router_slot_t *check)
{
    const char                 *why;
    ngx_http_kv_router_zone_t  *zone;

    zone = check->zone;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": check of worker \"%V\": GET \"%V\" "
                   "at \"%V\"", &zone->conf.name, &check->id,
                   &zone->conf.health.check, &check->address);

    switch (ngx_http_kv_router_slot_ask(check, &zone->conf.health.check, NULL,
                                        zone->conf.health.timeout,
                                        NGX_HTTP_KV_ROUTER_CHECK_MAX,
                                        ngx_http_kv_router_check_answered,
                                        &why))
    {
    case NGX_OK:
        return;

    case NGX_DECLINED:
        ngx_http_kv_router_check_done(check, why);
        return;

    default: /* lack of memory or descriptors is no fault of the worker */
        check->rounds = NULL;
    }
}


static void
ngx_http_kv_router_check_answered(void *data, const kvr_http_answer_t *answer,
    const char *why)
{
    ngx_http_kv_router_slot_t *check = data;

    check->client = NULL;

    if (answer == NULL && why == NULL) {
        check->rounds = NULL;
        return;
    }

    if (answer) {
        why = ngx_http_kv_router_slot_status(check, answer);
    }

    ngx_http_kv_router_check_done(check, why);
}


/* Ends a check.  why: the reason of the failure; NULL: the check passed. */

static void
ngx_http_kv_router_check_done(ngx_http_kv_router_slot_t *check,
    const char *why)
{
    kvr_health_t               *health;
    ngx_http_kv_router_zone_t  *zone;

    zone = check->zone;
    check->rounds = NULL;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": check of worker \"%V\": %s",
                   &zone->conf.name, &check->id, why ? why : "passed");

    health = kvr_router_health(&zone->run.router, check->number);

    if (ngx_http_kv_router_slot_current(check)
        && kvr_health_checked(health, check->generation, ngx_current_msec,
                              why == NULL, zone->conf.health.passes,
                              zone->conf.health.fails))
    {
        if (why) {
            ngx_http_kv_router_warn(zone, NGX_LOG_ERR, ngx_cycle->log,
                                    "worker \"%V\" is down: %uD checks of "
                                    "\"%V\" failed, the last one: %s",
                                    &check->id, zone->conf.health.fails,
                                    &zone->conf.health.check, why);

        } else {
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                          "kv_router zone \"%V\": worker \"%V\" is up",
                          &zone->conf.name, &check->id);
        }
    }
}
