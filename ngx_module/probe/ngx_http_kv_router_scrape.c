
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Load that engines report of themselves: GET /metrics of each worker, now and
 * then.  The values are in the zone, for all processes.
 */


#include "ngx_http_kv_router_rounds.h"
#include "../module/ngx_http_kv_router_answer.h"
#include "../status/ngx_http_kv_router_stats.h"


#define NGX_HTTP_KV_ROUTER_SCRAPES       32     /* at a time, of a process */
#define NGX_HTTP_KV_ROUTER_SCRAPES_TICK  50     /* ms */
#define NGX_HTTP_KV_ROUTER_SCRAPE_LATE   1000   /* ms after its timeout */
#define NGX_HTTP_KV_ROUTER_SCRAPE_MAX    (1024 * 1024 + KVR_HTTP_HEADER_MAX)


typedef struct {
    ngx_http_kv_router_slot_t       slot;
    uint64_t                        next_ms;   /* when the next is due */
} ngx_http_kv_router_scrape_t;


static ngx_uint_t ngx_http_kv_router_scrape_wanted(
    ngx_http_kv_router_zone_t *zone);
static ngx_uint_t ngx_http_kv_router_scrape_due(
    ngx_http_kv_router_zone_t *zone, ngx_http_kv_router_holder_t *h);
static void ngx_http_kv_router_scrape_start(ngx_http_kv_router_slot_t *slot);
static void ngx_http_kv_router_scrape_done(void *data,
    const kvr_http_answer_t *answer, const char *why);
static uint32_t ngx_http_kv_router_scrape_store(
    ngx_http_kv_router_zone_t *zone, uint32_t number, uint32_t generation,
    const kvr_http_answer_t *answer);
static void ngx_http_kv_router_scrape_say(ngx_http_kv_router_zone_t *zone,
    uint32_t number, const char *why);


/* a buffer of this process, used within one call */
static kvr_report_load_t  ngx_http_kv_router_reported[KVR_RANKS_MAX];


const ngx_http_kv_router_rounds_kind_t  ngx_http_kv_router_scrapes = {
    1,
    NGX_HTTP_KV_ROUTER_SCRAPES,
    sizeof(ngx_http_kv_router_scrape_t),
    NGX_HTTP_KV_ROUTER_SCRAPES_TICK,
    NGX_LOG_CRIT,
    0,
    ngx_http_kv_router_scrape_wanted,
    ngx_http_kv_router_scrape_due,
    ngx_http_kv_router_scrape_start,
    NULL
};


static ngx_uint_t
ngx_http_kv_router_scrape_wanted(ngx_http_kv_router_zone_t *zone)
{
    return zone->conf.scrape.interval != 0;
}


/* A reload may have shortened the interval: a later time does not count. */

static ngx_uint_t
ngx_http_kv_router_scrape_due(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_holder_t *h)
{
    ngx_msec_t  lease;

    lease = zone->conf.scrape.timeout + NGX_HTTP_KV_ROUTER_SCRAPE_LATE;

    return h->number < zone->run.sh->nworkers
           && kvr_due_take(&zone->run.sh->turns[h->number].due, h->generation,
                           ngx_current_msec, lease,
                           ngx_max(lease, 2 * zone->conf.scrape.interval));
}


static void
ngx_http_kv_router_scrape_start(ngx_http_kv_router_slot_t *slot)
{
    const char                   *why;
    ngx_http_kv_router_zone_t    *zone;
    ngx_http_kv_router_scrape_t  *s;

    zone = slot->zone;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": load of worker \"%V\": GET \"%V\" "
                   "at \"%V\"", &zone->conf.name, &slot->id,
                   &zone->conf.scrape.uri, &slot->address);

    s = (ngx_http_kv_router_scrape_t *) slot;

    s->next_ms = ngx_current_msec
                 + ngx_http_kv_router_rounds_apart(zone->conf.scrape.interval);

    if (ngx_http_kv_router_slot_ask(slot, &zone->conf.scrape.uri, NULL,
                                    zone->conf.scrape.timeout,
                                    NGX_HTTP_KV_ROUTER_SCRAPE_MAX,
                                    ngx_http_kv_router_scrape_done, &why)
        != NGX_OK)
    {
        ngx_http_kv_router_scrape_done(slot, NULL, why);
    }
}


static void
ngx_http_kv_router_scrape_done(void *data, const kvr_http_answer_t *answer,
    const char *why)
{
    ngx_http_kv_router_slot_t *slot = data;

    ngx_http_kv_router_zone_t    *zone;
    ngx_http_kv_router_scrape_t  *s;

    zone = slot->zone;
    s = data;

    slot->client = NULL;
    slot->rounds = NULL;

    kvr_put64(&zone->run.sh->turns[slot->number].due.at_ms, s->next_ms);

    if ((answer == NULL && why == NULL)
        || !ngx_http_kv_router_slot_current(slot))
    {
        return;
    }

    if (answer) {
        why = ngx_http_kv_router_slot_status(slot, answer);

        if (why == NULL
            && ngx_http_kv_router_scrape_store(zone, slot->number,
                                               slot->generation, answer)
               == 0)
        {
            why = "none of the metrics that are known is in it";
        }
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": load of worker number %uD: %s",
                   &zone->conf.name, slot->number, why ? why : "read");

    ngx_http_kv_router_scrape_say(zone, slot->number, why);
}


static uint32_t
ngx_http_kv_router_scrape_store(ngx_http_kv_router_zone_t *zone,
    uint32_t number, uint32_t generation, const kvr_http_answer_t *answer)
{
    bool                again;
    uint32_t            rank, holder, found, flags, now;
    kvr_worker_conf_t   conf;

    if (kvr_router_read_worker(&zone->run.router, number, &conf, &flags, &now)
        != KVR_OK
        || now != generation)
    {
        return 1;
    }

    conf.ranks = ngx_min(conf.ranks, KVR_RANKS_MAX);
    again = false;

    found = kvr_report_parse(answer->body, answer->len,
                             ngx_http_kv_router_reported, conf.ranks);

    for (rank = 0; found && rank < conf.ranks; rank++) {

        if (kvr_router_find_holder(&zone->run.router, number, rank, &holder)
            == KVR_OK
            && holder < zone->run.sh->nholders)
        {
            again |= kvr_report_write(&zone->run.sh->reports[holder],
                                      generation,
                                      &ngx_http_kv_router_reported[rank],
                                      ngx_current_msec);
        }
    }

    if (again) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": worker \"%s\" was restarted: "
                      "\"%V\" of it reports another "
                      "process_start_time_seconds", &zone->conf.name, conf.id,
                      &zone->conf.scrape.uri);

        ngx_http_kv_router_restarted(zone, number, generation);
    }

    return found;
}


/*
 * Counts the result of a scrape.  Logs the first failure; after failures, logs
 * the first success, which shows that the worker is back.
 */

static void
ngx_http_kv_router_scrape_say(ngx_http_kv_router_zone_t *zone,
    uint32_t number, const char *why)
{
    uint32_t                     flags, generation, failing;
    kvr_worker_conf_t            conf;
    ngx_http_kv_router_turn_t  *turn;

    turn = &zone->run.sh->turns[number];

    ngx_http_kv_router_count(zone->run.sh, SCRAPES, 1);

    if (why) {
        ngx_http_kv_router_count(zone->run.sh, SCRAPES_FAILED, 1);
    }

    failing = (why != NULL);

    if (__atomic_exchange_n(&turn->failing, failing, __ATOMIC_RELAXED)
        == failing
        || kvr_router_read_worker(&zone->run.router, number, &conf, &flags,
                                  &generation)
           != KVR_OK)
    {
        return;
    }

    if (why) {
        ngx_http_kv_router_warn(zone, NGX_LOG_WARN, ngx_cycle->log,
                                "the load of worker \"%s\" is not known, "
                                "\"%V\" of it is not read: %s", conf.id,
                                &zone->conf.scrape.uri, why);

    } else {
        (void) kvr_health_returned(kvr_router_health(&zone->run.router,
                                                     number),
                                   generation, ngx_current_msec);
        kvr_rungs_doubt(&zone->run.sh->rungs[number], ngx_current_msec);

        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": worker \"%s\" reports its load",
                      &zone->conf.name, conf.id);
    }
}


/* ---- what is known ------------------------------------------------------ */

int64_t
ngx_http_kv_router_read_report(ngx_http_kv_router_zone_t *zone,
    uint32_t holder, kvr_report_load_t *load)
{
    uint32_t             worker;
    const kvr_worker_t  *w;

    load->waiting = -1;
    load->running = -1;
    load->usage = -1;

    worker = kvr_router_holder_worker(&zone->run.router, holder);

    if (worker >= kvr_router_max_workers(&zone->run.router)
        || holder >= zone->run.sh->nholders)
    {
        return -1;
    }

    w = kvr_router_worker(&zone->run.router, worker);

    return kvr_report_read(&zone->run.sh->reports[holder],
                           kvr_load32(&w->generation), ngx_current_msec,
                           zone->conf.report_ms, load);
}
