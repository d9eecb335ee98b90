
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The module, and what each worker process does from its start to its exit.
 */


#include "ngx_http_kv_router_resolver.h"
#include "../api/ngx_http_kv_router_api.h"
#include "../request/ngx_http_kv_router_route.h"
#include "../status/ngx_http_kv_router_history.h"
#include "../sync/ngx_http_kv_router_sync.h"


#define NGX_HTTP_KV_ROUTER_TEND          100    /* ms */
#define NGX_HTTP_KV_ROUTER_TEND_MORE     5      /* ms, while work is left */
#define NGX_HTTP_KV_ROUTER_TEND_SLICE    200    /* us of such work */
#define NGX_HTTP_KV_ROUTER_STUCK         10000  /* ms without a timer */
#define NGX_HTTP_KV_ROUTER_JOIN_TRIES    20     /* of 50 ms each */


static void *ngx_http_kv_router_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_kv_router_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_kv_router_create_srv_conf(ngx_conf_t *cf);
static void *ngx_http_kv_router_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_kv_router_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_kv_router_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kv_router_postconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kv_router_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_kv_router_init_process(ngx_cycle_t *cycle);
static void ngx_http_kv_router_exit_process(ngx_cycle_t *cycle);

static void ngx_http_kv_router_no_events(ngx_array_t *workers);
static ngx_int_t ngx_http_kv_router_join(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone);
static void ngx_http_kv_router_tend(ngx_event_t *ev);


static ngx_command_t  ngx_http_kv_router_commands[] = {

    { ngx_string("kv_router_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_kv_router_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_redis"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_kv_router_redis,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_sync"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_kv_router_sync,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_worker"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_kv_router_worker,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_health"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_kv_router_health,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_scrape"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_kv_router_scrape,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_engine"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_kv_router_engine,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_model"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_kv_router_model,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_prefix_cache"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_kv_router_prefix_cache,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_kv_router_location,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_kv_router_loc_conf_t, status),
      ngx_http_kv_router_status_handler },

    { ngx_string("kv_router_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE123,
      ngx_http_kv_router_api_conf,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_kv_router_loc_conf_t, api),
      ngx_http_kv_router_api_handler },

    ngx_http_kv_router_retired_command("kv_router_engine_header"),
    ngx_http_kv_router_retired_command("kv_router_engine_tls"),
    ngx_http_kv_router_retired_command("kv_router_event_batch"),
    ngx_http_kv_router_retired_command("kv_router_max_body"),
    ngx_http_kv_router_retired_command("kv_router_max_tokens"),
    ngx_http_kv_router_retired_command("kv_router_stale"),
    ngx_http_kv_router_retired_command("kv_router_turn_cache"),

      ngx_null_command
};


static ngx_http_module_t  ngx_http_kv_router_module_ctx = {
    ngx_http_kv_router_preconfiguration,   /* preconfiguration */
    ngx_http_kv_router_postconfiguration,  /* postconfiguration */

    ngx_http_kv_router_create_main_conf,   /* create main configuration */
    ngx_http_kv_router_init_main_conf,     /* init main configuration */

    ngx_http_kv_router_create_srv_conf,    /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_kv_router_create_loc_conf,    /* create location configuration */
    ngx_http_kv_router_merge_loc_conf      /* merge location configuration */
};


ngx_module_t  ngx_http_kv_router_module = {
    NGX_MODULE_V1,
    &ngx_http_kv_router_module_ctx,        /* module context */
    ngx_http_kv_router_commands,           /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_kv_router_init_module,        /* init module */
    ngx_http_kv_router_init_process,       /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_kv_router_exit_process,       /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


ngx_http_kv_router_main_conf_t  *ngx_http_kv_router_read_conf;


static void *
ngx_http_kv_router_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_kv_router_main_conf_t  *kmcf;

    kmcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_main_conf_t));
    if (kmcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&kmcf->zones, cf->pool, 2,
                       sizeof(ngx_http_kv_router_zone_t *))
        != NGX_OK
        || ngx_array_init(&kmcf->prefixes, cf->pool, 1, sizeof(void *))
           != NGX_OK
        || ngx_array_init(&kmcf->places, cf->pool, 2,
                          sizeof(ngx_http_kv_router_place_t))
           != NGX_OK
        || ngx_array_init(&kmcf->apis, cf->pool, 2,
                          sizeof(ngx_http_core_srv_conf_t *))
           != NGX_OK)
    {
        return NULL;
    }

    return kmcf;
}


static char *
ngx_http_kv_router_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_kv_router_main_conf_t *kmcf = conf;

    ngx_uint_t                   i;
    ngx_http_kv_router_zone_t  **zones;

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        /*
         * without Redis no engine's events can come by themselves, and those
         * of a name's engines never do
         */

        if (zones[i]->conf.redis == NULL) {
            ngx_http_kv_router_no_events(&zones[i]->conf.workers);
        }

        ngx_http_kv_router_no_events(&zones[i]->conf.names);
    }

    return NGX_CONF_OK;
}


/* These workers are estimated, unless events=on says otherwise. */

static void
ngx_http_kv_router_no_events(ngx_array_t *workers)
{
    ngx_uint_t          i;
    kvr_worker_conf_t  *w;

    w = workers->elts;

    for (i = 0; i < workers->nelts; i++) {
        if (!(w[i].own & KVR_OWN_EVENTS)) {
            w[i].events_off = 1;
        }
    }
}


static void *
ngx_http_kv_router_create_srv_conf(ngx_conf_t *cf)
{
    /*
     * set by ngx_pcalloc():
     *
     *     conf->init_peer = NULL;
     */

    return ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_srv_conf_t));
}


static void *
ngx_http_kv_router_create_loc_conf(ngx_conf_t *cf)
{
    /*
     * set by ngx_pcalloc():
     *
     *     conf->status = NULL;
     *     conf->api = NULL;
     *     conf->token = { 0, NULL };
     *     conf->read_only = 0;
     */

    return ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_loc_conf_t));
}


/*
 * "if" and "limit_except" make locations inside the location that has the
 * handler.  An inner location inherits the zone.  nginx gives a location of
 * "limit_except" no handler, so that it must inherit the handler as well.
 */

static char *
ngx_http_kv_router_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_kv_router_loc_conf_t *prev = parent;
    ngx_http_kv_router_loc_conf_t *conf = child;

    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if ((!clcf->noname && !clcf->lmt_excpt) || clcf->handler
        || conf->api || conf->status)
    {
        return NGX_CONF_OK;
    }

    conf->api = prev->api;
    conf->token = prev->token;
    conf->read_only = prev->read_only;
    conf->status = prev->status;

    if (clcf->lmt_excpt && conf->api) {
        clcf->handler = ngx_http_kv_router_api_handler;

    } else if (clcf->lmt_excpt && conf->status) {
        clcf->handler = ngx_http_kv_router_status_handler;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_kv_router_preconfiguration(ngx_conf_t *cf)
{
    ngx_http_kv_router_read_conf = ngx_http_conf_get_module_main_conf(cf,
                                                  ngx_http_kv_router_module);

    ngx_http_kv_router_probes_forget();

    if (ngx_http_kv_router_models_begin(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_kv_router_add_variables(cf);
}


static ngx_int_t
ngx_http_kv_router_postconfiguration(ngx_conf_t *cf)
{
    ngx_uint_t                       i;
    ngx_http_handler_pt             *handler;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_core_main_conf_t       *cmcf;
    ngx_http_kv_router_main_conf_t  *kmcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kv_router_module);
    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {

        if (zones[i]->conf.names.nelts
            && !ngx_http_kv_router_resolver(zones[i]))
        {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"resolve=all\" in zone \"%V\" needs the directive "
                          "\"resolver\" in the http block: add it",
                          &zones[i]->conf.name);
            return NGX_ERROR;
        }
    }

    if (kmcf->zones.nelts) {
        ngx_http_kv_router_attempt_init(cf);
        ngx_http_kv_router_filter_init();
        ngx_http_kv_router_tell_mistakes(cf);
    }

    if (kmcf->apis.nelts) {
        cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

        handler = ngx_array_push(
                          &cmcf->phases[NGX_HTTP_ACCESS_PHASE].handlers);
        if (handler == NULL) {
            return NGX_ERROR;
        }

        *handler = ngx_http_kv_router_api_access;

        if (ngx_http_kv_router_api_names(cf, kmcf) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* The configuration was read, and is taken. */

static ngx_int_t
ngx_http_kv_router_init_module(ngx_cycle_t *cycle)
{
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;

    ngx_http_kv_router_models_end();

    kmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_kv_router_module);
    if (kmcf == NULL) {
        return NGX_OK;
    }

    /* This configuration was not refused. */

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (zones[i]->run.sh) {
            zones[i]->run.sh->refused_at = 0;
            zones[i]->run.sh->refused[0] = '\0';
        }
    }

    return NGX_OK;
}


/* ---- a worker process --------------------------------------------------- */

static ngx_int_t
ngx_http_kv_router_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;

    if (ngx_process != NGX_PROCESS_WORKER
        && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    kmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_kv_router_module);
    if (kmcf == NULL) {
        return NGX_OK;
    }

    ngx_http_kv_router_prefix_join(cycle, &kmcf->prefixes);

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (ngx_http_kv_router_join(cycle, zones[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_join(ngx_cycle_t *cycle, ngx_http_kv_router_zone_t *zone)
{
    kvr_rc_t      rc;
    ngx_uint_t    i;
    for (i = 0; i < NGX_HTTP_KV_ROUTER_JOIN_TRIES; i++) {
        rc = kvr_router_join(&zone->run.router);

        if (rc == KVR_OK) {
            rc = kvr_router_set_static(&zone->run.router,
                                       zone->conf.workers.elts,
                                       zone->conf.workers.nelts);
        }

        if (rc != KVR_BUSY) {
            break;
        }
    }

    if (rc != KVR_OK) {
        /* requests are routed nevertheless, with the data that can be read */
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "kv_router_zone \"%V\": %s", &zone->conf.name,
                      rc == KVR_BUSY ? "another process keeps its lock"
                                     : "no room for the configured workers: "
                                       "raise max_workers");
    }

    if (zone->run.router.load.slot == KVR_LOAD_NONE) {
        ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                      "kv_router_zone \"%V\": no table counts the requests "
                      "of this process, %d other processes have all tables, "
                      "old ones of reloads included",
                      &zone->conf.name, KVR_LOAD_PROCS);
    }

    /* a process that hangs before its first timer is told, too */

    (void) kvr_load_beat(&zone->run.router.load, ngx_current_msec,
                         NGX_HTTP_KV_ROUTER_STUCK);

    ngx_http_kv_router_timer(&zone->run.tend, &zone->run.tend_conn,
                             ngx_http_kv_router_tend, zone, cycle->log);

    ngx_add_timer(&zone->run.tend, NGX_HTTP_KV_ROUTER_TEND);

    ngx_queue_init(&zone->run.flights);

    if (ngx_http_kv_router_rounds_start(cycle, zone) != NGX_OK) {
        return NGX_ERROR;
    }

    if (zone->conf.redis
        && (ngx_http_kv_router_consumer_start(cycle, zone) != NGX_OK
            || ngx_http_kv_router_sync_start(cycle, zone) != NGX_OK))
    {
        return NGX_ERROR;
    }

    if (ngx_http_kv_router_queue_start(cycle, zone) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_kv_router_estimator_start(cycle, zone);
}


/* Maintains a zone each 100 ms, and cleans up after processes that died. */

static void
ngx_http_kv_router_tend(ngx_event_t *ev)
{
    bool                        more, ends;
    kvr_owner_t                 stuck;
    ngx_connection_t           *c;
    ngx_http_kv_router_zone_t  *zone;

    c = ev->data;
    zone = c->data;

    ends = ngx_exiting || ngx_terminate;

    stuck = kvr_load_beat(&zone->run.router.load, ends ? 0 : ngx_current_msec,
                          NGX_HTTP_KV_ROUTER_STUCK);
    if (stuck) {
        ngx_http_kv_router_warn(zone, NGX_LOG_ERR, ev->log,
                                "process %P hangs for %d s, and so do its "
                                "requests: it was stopped, or its Lua, as the "
                                "policy \"%V\", does not end: try the policy "
                                "by kv-router-check, reload, then kill -9 %P",
                                kvr_owner_pid(stuck),
                                NGX_HTTP_KV_ROUTER_STUCK / 1000,
                                &zone->run.policy, kvr_owner_pid(stuck));
    }

    ngx_http_kv_router_flights_renew(zone);

    if (ends) {
        if (!ngx_queue_empty(&zone->run.flights)) {
            ngx_add_timer(ev, NGX_HTTP_KV_ROUTER_TEND);
        }

        return;
    }

    more = kvr_router_tend(&zone->run.router, ngx_current_msec,
                           NGX_HTTP_KV_ROUTER_TEND_SLICE);

    ngx_http_kv_router_speeds(zone);
    ngx_http_kv_router_echo_looks(zone);
    ngx_http_kv_router_history_tend(zone);
    ngx_http_kv_router_selections_tend(zone);

    ngx_add_timer(ev, more ? NGX_HTTP_KV_ROUTER_TEND_MORE
                           : NGX_HTTP_KV_ROUTER_TEND);
}


static void
ngx_http_kv_router_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;

    if (ngx_process != NGX_PROCESS_WORKER
        && ngx_process != NGX_PROCESS_SINGLE)
    {
        return;
    }

    kmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_kv_router_module);
    if (kmcf == NULL) {
        return;
    }

    ngx_http_kv_router_prefix_leave(&kmcf->prefixes);

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        ngx_http_kv_router_rounds_stop(zones[i]);

        if (zones[i]->run.consumer) {
            ngx_http_kv_router_consumer_stop(zones[i]);
        }

        ngx_http_kv_router_estimator_stop(zones[i]);
        ngx_http_kv_router_sync_stop(zones[i]);
        ngx_http_kv_router_queue_stop(zones[i]);

        kvr_router_leave(&zones[i]->run.router);

        if (zones[i]->run.fleet) {
            ngx_http_kv_router_fleet_put(zones[i]->run.fleet);
            zones[i]->run.fleet = NULL;
        }
    }
}
