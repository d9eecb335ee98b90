
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Load that engines report of themselves: GET /metrics of each worker, now and
 * then.
 *
 * Every process looks which workers are due.  One word per worker in shared
 * memory decides which process asks, so that all workers are asked even if a
 * process dies.  The values are in the zone, for all processes.
 */


#include "../request/ngx_http_kv_router_route.h"
#include "../module/ngx_http_kv_router_answer.h"
#include "ngx_http_kv_router_client.h"
#include "../status/ngx_http_kv_router_stats.h"


#define NGX_HTTP_KV_ROUTER_SCRAPES       32     /* at a time, of a process */
#define NGX_HTTP_KV_ROUTER_SCRAPES_TICK  50     /* ms, and as much jitter */
#define NGX_HTTP_KV_ROUTER_SCRAPE_LATE   1000   /* ms after its timeout */
#define NGX_HTTP_KV_ROUTER_SCRAPE_MAX    (1024 * 1024 + KVR_HTTP_HEADER_MAX)


typedef struct {
    ngx_http_kv_router_scraper_t   *scraper;
    ngx_http_kv_router_client_t    *client;    /* NULL: free */
    uint32_t                        number;    /* of the worker */
    uint32_t                        generation;
    uint64_t                        next_ms;   /* when the next is due */
} ngx_http_kv_router_scrape_t;


struct ngx_http_kv_router_scraper_s {
    ngx_http_kv_router_zone_t      *zone;
    ngx_event_t                     tick;
    ngx_connection_t                dummy;     /* of the tick */
    ngx_log_t                       log;
    ngx_uint_t                      next;      /* first of the next tick */
    ngx_http_kv_router_scrape_t     all[NGX_HTTP_KV_ROUTER_SCRAPES];
};


static void ngx_http_kv_router_scraper_tick(ngx_event_t *ev);
static ngx_uint_t ngx_http_kv_router_scrape_claim(
    ngx_http_kv_router_zone_t *zone, uint32_t number);
static ngx_int_t ngx_http_kv_router_scrape_start(
    ngx_http_kv_router_scraper_t *scraper, ngx_http_kv_router_holder_t *h);
static void ngx_http_kv_router_scrape_done(void *data,
    const kvr_http_answer_t *answer, const char *why);
static uint32_t ngx_http_kv_router_scrape_store(
    ngx_http_kv_router_zone_t *zone, uint32_t number, uint32_t generation,
    const kvr_http_answer_t *answer);
static void ngx_http_kv_router_scrape_say(ngx_http_kv_router_zone_t *zone,
    uint32_t number, const char *why);
static void ngx_http_kv_router_report_json(const char *key, double value,
    yajl_gen g);


/* a buffer of this process, used within one call */
static kvr_report_load_t  ngx_http_kv_router_reported[KVR_RANKS_MAX];


ngx_int_t
ngx_http_kv_router_scraper_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_event_t                   *ev;
    ngx_http_kv_router_scraper_t  *scraper;

    if (zone->scrape.interval == 0) {
        return NGX_OK;
    }

    scraper = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_scraper_t));
    if (scraper == NULL) {
        return NGX_ERROR;
    }

    scraper->zone = zone;

    /* nginx would log each connection that fails */

    scraper->log = *cycle->log;
    scraper->log.log_level = ngx_min(cycle->log->log_level, NGX_LOG_CRIT);

    scraper->dummy.fd = (ngx_socket_t) -1;
    scraper->dummy.data = scraper;

    ev = &scraper->tick;
    ev->handler = ngx_http_kv_router_scraper_tick;
    ev->data = &scraper->dummy;
    ev->log = cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, 1 + ngx_random() % NGX_HTTP_KV_ROUTER_SCRAPES_TICK);

    zone->scraper = scraper;

    return NGX_OK;
}


void
ngx_http_kv_router_scraper_stop(ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t                     i;
    ngx_http_kv_router_scraper_t  *scraper;

    scraper = zone->scraper;

    if (scraper == NULL) {
        return;
    }

    if (scraper->tick.timer_set) {
        ngx_del_timer(&scraper->tick);
    }

    for (i = 0; i < NGX_HTTP_KV_ROUTER_SCRAPES; i++) {
        if (scraper->all[i].client) {
            ngx_http_kv_router_client_cancel(scraper->all[i].client);
        }
    }

    zone->scraper = NULL;
}


static void
ngx_http_kv_router_scraper_tick(ngx_event_t *ev)
{
    ngx_uint_t                     i;
    ngx_connection_t              *c;
    ngx_http_kv_router_zone_t     *zone;
    ngx_http_kv_router_fleet_t    *fleet;
    ngx_http_kv_router_holder_t   *h;
    ngx_http_kv_router_scraper_t  *scraper;

    c = ev->data;
    scraper = c->data;
    zone = scraper->zone;

    if (ngx_exiting || ngx_terminate) {
        return;
    }

    fleet = ngx_http_kv_router_fleet_get(zone);

    for (i = 0; fleet && i < fleet->n; i++) {

        h = &fleet->holders[(scraper->next + i) % fleet->n];

        /* rank 0 stands for the worker, which is scraped once for all ranks */

        if (h->rank == 0
            && ngx_http_kv_router_scrape_start(scraper, h) == NGX_BUSY)
        {
            break;
        }
    }

    scraper->next += i;

    if (fleet) {
        ngx_http_kv_router_fleet_put(fleet);
    }

    ngx_add_timer(ev, NGX_HTTP_KV_ROUTER_SCRAPES_TICK
                      + ngx_random() % NGX_HTTP_KV_ROUTER_SCRAPES_TICK);
}


/*
 * Claims the scrape of a worker.  No other process scrapes the worker before
 * the scrape must be over, even if this process dies meanwhile.
 */

static ngx_uint_t
ngx_http_kv_router_scrape_claim(ngx_http_kv_router_zone_t *zone,
    uint32_t number)
{
    uint64_t                     due, next;
    ngx_http_kv_router_turn_t  *turn;

    turn = &zone->sh->turns[number];
    due = kvr_load64(&turn->due_ms);

    next = ngx_current_msec + zone->scrape.timeout
           + NGX_HTTP_KV_ROUTER_SCRAPE_LATE;

    /* a reload may have shortened the interval: ignore a later time */

    if (due > ngx_current_msec
        && due <= ngx_max(next, ngx_current_msec + 2 * zone->scrape.interval))
    {
        return 0;
    }

    return __atomic_compare_exchange_n(&turn->due_ms, &due, next, false,
                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}


/* NGX_BUSY: the maximum number of scrapes is running. */

static ngx_int_t
ngx_http_kv_router_scrape_start(ngx_http_kv_router_scraper_t *scraper,
    ngx_http_kv_router_holder_t *h)
{
    uint32_t                      i, number;
    const char                   *why;
    ngx_http_kv_router_zone_t    *zone;
    ngx_http_kv_router_scrape_t  *s;

    zone = scraper->zone;

    for (i = 0; i < NGX_HTTP_KV_ROUTER_SCRAPES; i++) {
        if (scraper->all[i].client == NULL) {
            break;
        }
    }

    if (i == NGX_HTTP_KV_ROUTER_SCRAPES) {
        return NGX_BUSY;
    }

    number = kvr_router_holder_worker(&zone->router, h->holder);

    if (number >= zone->sh->nworkers
        || kvr_load32(&h->worker->generation) != h->generation
        || !ngx_http_kv_router_scrape_claim(zone, number))
    {
        return NGX_OK;
    }

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": load of worker \"%V\": GET \"%V\" "
                   "at \"%V\"", &zone->name, &h->id, &zone->scrape.uri,
                   &h->address);

    s = &scraper->all[i];

    s->scraper = scraper;
    s->number = number;
    s->generation = h->generation;

    /*
     * a scrape is up to a tenth of the interval sooner or later, so that the
     * scrapes of all workers do not come at once
     */

    s->next_ms = ngx_current_msec + zone->scrape.interval
                 - zone->scrape.interval / 10
                 + ngx_random() % (zone->scrape.interval / 5 + 1);

    if (ngx_http_kv_router_client_ask(&s->client, zone, &h->address,
                                      &zone->scrape.uri, NULL,
                                      zone->scrape.timeout,
                                      NGX_HTTP_KV_ROUTER_SCRAPE_MAX,
                                      &scraper->log,
                                      ngx_http_kv_router_scrape_done, s, &why)
        != NGX_OK)
    {
        ngx_http_kv_router_scrape_done(s, NULL, why);
    }

    return NGX_OK;
}


static void
ngx_http_kv_router_scrape_done(void *data, const kvr_http_answer_t *answer,
    const char *why)
{
    ngx_http_kv_router_scrape_t *s = data;

    u_char                      text[sizeof("status 4294967295, not 200")];
    ngx_http_kv_router_zone_t  *zone;

    zone = s->scraper->zone;
    s->client = NULL;

    __atomic_store_n(&zone->sh->turns[s->number].due_ms, s->next_ms,
                     __ATOMIC_RELAXED);

    if ((answer == NULL && why == NULL)
        || kvr_load32(&kvr_router_worker(&zone->router, s->number)->generation)
           != s->generation)
    {
        return;
    }

    if (answer && answer->status != NGX_HTTP_OK) {
        (void) ngx_sprintf(text, "status %uD, not 200%Z", answer->status);
        why = (char *) text;

    } else if (answer
               && ngx_http_kv_router_scrape_store(zone, s->number,
                                                  s->generation, answer)
                  == 0)
    {
        why = "none of the metrics that are known is in it";
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": load of worker number %uD: %s",
                   &zone->name, s->number, why ? why : "read");

    ngx_http_kv_router_scrape_say(zone, s->number, why);
}


static uint32_t
ngx_http_kv_router_scrape_store(ngx_http_kv_router_zone_t *zone,
    uint32_t number, uint32_t generation, const kvr_http_answer_t *answer)
{
    bool                again;
    uint32_t            rank, holder, found, flags, now;
    kvr_worker_conf_t   conf;

    if (kvr_router_read_worker(&zone->router, number, &conf, &flags, &now)
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

        if (kvr_router_find_holder(&zone->router, number, rank, &holder)
            == KVR_OK
            && holder < zone->sh->nholders)
        {
            again |= kvr_report_write(&zone->sh->reports[holder], generation,
                                      &ngx_http_kv_router_reported[rank],
                                      ngx_current_msec);
        }
    }

    if (again) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": worker \"%s\" was restarted: "
                      "\"%V\" of it reports another "
                      "process_start_time_seconds", &zone->name, conf.id,
                      &zone->scrape.uri);

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

    turn = &zone->sh->turns[number];

    (void) ngx_atomic_fetch_add(&zone->sh->scrapes, 1);

    if (why) {
        (void) ngx_atomic_fetch_add(&zone->sh->scrapes_failed, 1);
    }

    failing = (why != NULL);

    if (__atomic_exchange_n(&turn->failing, failing, __ATOMIC_RELAXED)
        == failing
        || kvr_router_read_worker(&zone->router, number, &conf, &flags,
                                  &generation)
           != KVR_OK)
    {
        return;
    }

    if (why) {
        ngx_http_kv_router_warn(zone, NGX_LOG_WARN, ngx_cycle->log,
                                "the load of worker \"%s\" is not known, "
                                "\"%V\" of it is not read: %s", conf.id,
                                &zone->scrape.uri, why);

    } else {
        (void) kvr_health_returned(kvr_router_health(&zone->router, number),
                                   generation, ngx_current_msec);
        kvr_rungs_doubt(&zone->sh->rungs[number], ngx_current_msec);

        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": worker \"%s\" reports its load",
                      &zone->name, conf.id);
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

    worker = kvr_router_holder_worker(&zone->router, holder);

    if (worker >= kvr_router_max_workers(&zone->router)
        || holder >= zone->sh->nholders)
    {
        return -1;
    }

    w = kvr_router_worker(&zone->router, worker);

    return kvr_report_read(&zone->sh->reports[holder],
                           kvr_load32(&w->generation), ngx_current_msec,
                           zone->report_ms, load);
}


static void
ngx_http_kv_router_report_json(const char *key, double value, yajl_gen g)
{
    if (value < 0) {
        ngx_http_kv_router_gen_key(g, key);
        yajl_gen_null(g);

    } else {
        ngx_http_kv_router_gen_decimal(g, key, (uint64_t) (value * 1e6 + 0.5),
                                       6);
    }
}


void
ngx_http_kv_router_reports_json(ngx_http_kv_router_zone_t *zone,
    uint32_t worker, yajl_gen g)
{
    int64_t            age;
    uint32_t           holder, steps;
    kvr_report_load_t  report;

    yajl_gen_array_open(g);

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (kvr_router_next_holder(&zone->router, worker, &holder, &steps)) {

        age = ngx_http_kv_router_read_report(zone, holder, &report);

        if (age < 0) {
            continue;
        }

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_u64(g, "dp_rank",
                            kvr_router_holder_rank(&zone->router, holder));
        ngx_http_kv_router_gen_decimal(g, "age", age, 3);
        ngx_http_kv_router_report_json("waiting_requests", report.waiting, g);
        ngx_http_kv_router_report_json("running_requests", report.running, g);
        ngx_http_kv_router_report_json("kv_usage", report.usage, g);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
}
