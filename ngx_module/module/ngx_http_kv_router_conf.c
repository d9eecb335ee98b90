
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Directives, and the tables of their parameters.
 */


#include "ngx_http_kv_router_module.h"
#include "ngx_http_kv_router_param.h"
#include "ngx_http_kv_router_resolver.h"

#include <core/kvr_clock.h>
#include <wire/kvr_address.h>


#define NGX_HTTP_KV_ROUTER_IN_A_ROW       1000  /* checks */
#define NGX_HTTP_KV_ROUTER_SCRAPE_MS_MIN  100   /* ms */
#define NGX_HTTP_KV_ROUTER_SCRAPE_MS_MAX  3600000
#define NGX_HTTP_KV_ROUTER_SILENT         5000  /* ms, of stale */
#define NGX_HTTP_KV_ROUTER_SILENT_MAX     86400000
#define NGX_HTTP_KV_ROUTER_HEADERS_MAX    4096  /* bytes of all lines */
#define NGX_HTTP_KV_ROUTER_ENGINE_TLS     1     /* a parameter of TLS */
#define NGX_HTTP_KV_ROUTER_QUEUE_MAX      100000
#define NGX_HTTP_KV_ROUTER_QUANTUM        16384  /* tokens */
#define NGX_HTTP_KV_ROUTER_LEASE          120000  /* ms */
#define NGX_HTTP_KV_ROUTER_LEASE_MIN      1000
#define NGX_HTTP_KV_ROUTER_LEASE_MAX      3600000


static char *ngx_http_kv_router_zone_name(ngx_conf_t *cf, ngx_str_t *value,
    void *field);
static const ngx_http_kv_router_param_t *ngx_http_kv_router_worker_params(
    void);
static char *ngx_http_kv_router_worker_lora(ngx_conf_t *cf, ngx_str_t *value,
    void *field);
static char *ngx_http_kv_router_worker_address(ngx_conf_t *cf,
    ngx_str_t *value, kvr_worker_conf_t *w);
static char *ngx_http_kv_router_engine_header(ngx_conf_t *cf,
    ngx_str_t *value, void *field);
static ngx_uint_t ngx_http_kv_router_header_name(ngx_str_t *name);


static const char *const  ngx_http_kv_router_indexes[] = {
    "radix", "positional", NULL
};


/* the values of refuses_models */

static const char *const  ngx_http_kv_router_unknown_models[] = {
    "any", "404", NULL
};


/* the values of queue.observe */

static const char *const  ngx_http_kv_router_queue_modes[] = {
    "on", "observe", NULL
};


#define at(field)                                                             \
    ngx_http_kv_router_at(ngx_http_kv_router_zone_t, conf.field)

static const ngx_http_kv_router_param_t  ngx_http_kv_router_zone_params[] = {

    { ngx_string("zone"), NGX_HTTP_KV_ROUTER_SET,
      0, 0, 0, 0, ngx_http_kv_router_zone_name, 0 },

    { ngx_string("block_size"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(params.block_size), 1, KVR_BLOCK_SIZE_MAX, NULL, 0 },

    { ngx_string("index"), NGX_HTTP_KV_ROUTER_WORD,
      at(params.index), 0, 0, ngx_http_kv_router_indexes, 0 },

    { ngx_string("served"), NGX_HTTP_KV_ROUTER_TEXT,
      at(params.model), 0, 0, NULL, 0 },

    { ngx_string("eagle"), NGX_HTTP_KV_ROUTER_FLAG,
      at(params.eagle), 0, 0, NULL, 0 },

    { ngx_string("max_workers"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(params.max_workers), 1, 16384, NULL, 0 },

    { ngx_string("shards"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(params.shards), 1, KVR_SHARDS_MAX, NULL, 0 },

    { ngx_string("frequency"), NGX_HTTP_KV_ROUTER_MSEC,
      at(params.frequency_ms), KVR_FREQUENCY_MIN, KVR_FREQUENCY_MAX, NULL, 0 },

    { ngx_string("max_active"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(max_active), 0, KVR_ACTIVE_MAX, NULL, 0 },

    { ngx_string("max_prefill_tokens"), NGX_HTTP_KV_ROUTER_AUTO,
      at(max_prefill_tokens), 0, KVR_TOKENS_MAX, NULL, 0 },

    { ngx_string("queue"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(queue.size), 0, NGX_HTTP_KV_ROUTER_QUEUE_MAX, NULL, 0 },

    { ngx_string("queue_mode"), NGX_HTTP_KV_ROUTER_WORD,
      at(queue.observe), 0, 0, ngx_http_kv_router_queue_modes, 0 },

    { ngx_string("queue_quantum"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(queue.quantum), 0, KVR_TOKENS_MAX, NULL, 0 },

    { ngx_string("predict"), NGX_HTTP_KV_ROUTER_MSEC,
      at(predict), 0, KVR_FLIGHT_TIMED_MAX, NULL, 0 },

    { ngx_string("lease"), NGX_HTTP_KV_ROUTER_MSEC,
      at(lease), NGX_HTTP_KV_ROUTER_LEASE_MIN, NGX_HTTP_KV_ROUTER_LEASE_MAX,
      NULL, 0 },

    { ngx_string("ttl"), NGX_HTTP_KV_ROUTER_SEC,
      at(params.ttl), 1, INT32_MAX, NULL, 0 },

    { ngx_string("max_tokens"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(max_tokens), 1, KVR_EVENT_TOKENS_MAX, NULL, 0 },

    { ngx_string("max_body"), NGX_HTTP_KV_ROUTER_SIZE,
      at(max_body), 1, NGX_HTTP_KV_ROUTER_BODY_LIMIT, NULL, 0 },

    { ngx_string("stale"), NGX_HTTP_KV_ROUTER_MSEC,
      at(stale), 0, NGX_HTTP_KV_ROUTER_SILENT_MAX, NULL, 0 },

    { ngx_string("unknown_model"), NGX_HTTP_KV_ROUTER_WORD,
      at(refuses_models), 0, 0, ngx_http_kv_router_unknown_models, 0 },

    { ngx_null_string, 0, 0, 0, 0, 0, NULL, 0 }
};


static const ngx_http_kv_router_param_t  ngx_http_kv_router_check_params[] = {

    { ngx_string("max_fails"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(health.params.max_fails), 0, KVR_FAILS_MAX, NULL, 0 },

    { ngx_string("fail_timeout"), NGX_HTTP_KV_ROUTER_MSEC,
      at(health.params.fail_timeout), 1, KVR_HEALTH_MS_MAX, NULL, 0 },

    { ngx_string("slow_start"), NGX_HTTP_KV_ROUTER_MSEC,
      at(health.params.slow_start), 0, KVR_HEALTH_MS_MAX, NULL, 0 },

    { ngx_string("check"), NGX_HTTP_KV_ROUTER_URI,
      at(health.check), 0, 0, NULL, 0 },

    { ngx_string("interval"), NGX_HTTP_KV_ROUTER_MSEC,
      at(health.interval), 100, KVR_HEALTH_MS_MAX, NULL, 0 },

    { ngx_string("timeout"), NGX_HTTP_KV_ROUTER_MSEC,
      at(health.timeout), 1, KVR_HEALTH_MS_MAX, NULL, 0 },

    { ngx_string("passes"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(health.passes), 1, NGX_HTTP_KV_ROUTER_IN_A_ROW, NULL, 0 },

    { ngx_string("fails"), NGX_HTTP_KV_ROUTER_NUMBER,
      at(health.fails), 1, NGX_HTTP_KV_ROUTER_IN_A_ROW, NULL, 0 },

    { ngx_null_string, 0, 0, 0, 0, 0, NULL, 0 }
};


static const ngx_http_kv_router_param_t  ngx_http_kv_router_scrape_params[] = {

    { ngx_string("uri"), NGX_HTTP_KV_ROUTER_URI,
      at(scrape.uri), 0, 0, NULL, 0 },

    { ngx_string("interval"), NGX_HTTP_KV_ROUTER_MSEC,
      at(scrape.interval), NGX_HTTP_KV_ROUTER_SCRAPE_MS_MIN,
      NGX_HTTP_KV_ROUTER_SCRAPE_MS_MAX, NULL, 0 },

    { ngx_string("timeout"), NGX_HTTP_KV_ROUTER_MSEC,
      at(scrape.timeout), NGX_HTTP_KV_ROUTER_SCRAPE_MS_MIN,
      NGX_HTTP_KV_ROUTER_SCRAPE_MS_MAX, NULL, 0 },

    { ngx_null_string, 0, 0, 0, 0, 0, NULL, 0 }
};


static const ngx_http_kv_router_param_t  ngx_http_kv_router_engine_params[] = {

    { ngx_string("header"), NGX_HTTP_KV_ROUTER_SET,
      0, 0, 0, 0, ngx_http_kv_router_engine_header, 0 },

    { ngx_string("ssl_verify"), NGX_HTTP_KV_ROUTER_FLAG,
      at(engine_tls.verify), 0, 0, NULL, NGX_HTTP_KV_ROUTER_ENGINE_TLS },

    { ngx_string("ssl_trusted_certificate"), NGX_HTTP_KV_ROUTER_STR,
      at(engine_tls.trusted_certificate), 0, 0, NULL,
      NGX_HTTP_KV_ROUTER_ENGINE_TLS },

    { ngx_string("ssl_name"), NGX_HTTP_KV_ROUTER_STR,
      at(engine_tls.name), 0, 0, NULL, NGX_HTTP_KV_ROUTER_ENGINE_TLS },

    { ngx_null_string, 0, 0, 0, 0, 0, NULL, 0 }
};

#undef at


char *
ngx_http_kv_router_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_main_conf_t *kmcf = conf;

    ngx_pool_cleanup_t          *cln;
    ngx_http_kv_router_zone_t   *zone, **zp;

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_zone_t));
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (ngx_array_init(&zone->conf.workers, cf->pool, 8,
                       sizeof(kvr_worker_conf_t))
        != NGX_OK
        || ngx_array_init(&zone->conf.names, cf->pool, 1,
                          sizeof(kvr_worker_conf_t))
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_http_kv_router_health_init(zone);

    zone->conf.core = ngx_http_conf_get_module_loc_conf(cf,
                                                        ngx_http_core_module);
    zone->conf.processes = (ngx_core_conf_t *)
                           ngx_get_conf(cf->cycle->conf_ctx, ngx_core_module);
    zone->conf.params.block_size = 16;
    zone->conf.params.shards = 1;
    zone->conf.max_tokens = KVR_EVENT_TOKENS_MAX;
    zone->conf.max_body = NGX_HTTP_KV_ROUTER_MAX_BODY;
    zone->conf.stale = NGX_HTTP_KV_ROUTER_SILENT;
    zone->conf.lease = NGX_HTTP_KV_ROUTER_LEASE;
    zone->conf.queue.quantum = NGX_HTTP_KV_ROUTER_QUANTUM;
    zone->conf.queue.version = kvr_now_us();
    zone->conf.sync.on = 1;
    zone->conf.sync.timeout = NGX_HTTP_KV_ROUTER_SYNC_TIMEOUT;

    if (ngx_http_kv_router_params(cf, 1, ngx_http_kv_router_zone_params, zone,
                                  NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (zone->conf.name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (zone->conf.params.max_workers == 0) {
        zone->conf.default_workers = 1;
        zone->conf.params.max_workers =
            ngx_http_kv_router_zone_workers(zone->conf.size);
    }

    zone->conf.file = cf->conf_file->file.name;
    zone->conf.line = cf->conf_file->line;

    /* nginx needs some pages before init_zone() can refuse a tiny zone */

    zone->conf.shm_zone = ngx_shared_memory_add(cf, &zone->conf.name,
                                                ngx_max(zone->conf.size,
                                                        8 * ngx_pagesize),
                                                &ngx_http_kv_router_module);
    if (zone->conf.shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->conf.shm_zone->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%V \"%V\" is already defined, each needs a "
                           "name of its own", &cmd->name, &zone->conf.name);
        return NGX_CONF_ERROR;
    }

    zone->conf.shm_zone->init = ngx_http_kv_router_init_zone;
    zone->conf.shm_zone->data = zone;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_http_kv_router_zone_cleanup;
    cln->data = zone;

    zp = ngx_array_push(&kmcf->zones);
    if (zp == NULL) {
        return NGX_CONF_ERROR;
    }

    *zp = zone;

    return NGX_CONF_OK;
}


static char *
ngx_http_kv_router_zone_name(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_http_kv_router_zone_t *zone = field;

    return ngx_http_kv_router_param_zone(cf, value, &zone->conf.name,
                                         &zone->conf.size);
}


ngx_http_kv_router_zone_t *
ngx_http_kv_router_conf_zone(ngx_conf_t *cf, ngx_command_t *cmd)
{
    ngx_str_t                       *value;
    ngx_http_kv_router_zone_t       *zone;
    ngx_http_kv_router_main_conf_t  *kmcf;

    value = cf->args->elts;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kv_router_module);
    zone = ngx_http_kv_router_named(&kmcf->zones, value[1].data,
                                    value[1].len);
    if (zone == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown kv_router_zone \"%V\" in \"%V\", "
                           "it must be defined before", &value[1], &cmd->name);
    }

    return zone;
}


char *
ngx_http_kv_router_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_zone_t  *zone;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->conf.redis) {
        return "is duplicate";
    }

    return ngx_http_kv_router_redis_parse(cf, zone);
}


char *
ngx_http_kv_router_scrape(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_zone_t  *zone;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->conf.scrape.interval) {
        return "is duplicate";
    }

    ngx_str_set(&zone->conf.scrape.uri, "/metrics");
    zone->conf.scrape.interval = 1000;
    zone->conf.scrape.timeout = 1000;

    if (ngx_http_kv_router_params(cf, 2, ngx_http_kv_router_scrape_params,
                                  zone, NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    /* the report of a worker stays valid if two scrapes are missed */

    zone->conf.report_ms = 3 * zone->conf.scrape.interval
                           + zone->conf.scrape.timeout;

    return NGX_CONF_OK;
}


char *
ngx_http_kv_router_health(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_zone_t  *zone;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->conf.health.set) {
        return "is duplicate";
    }

    zone->conf.health.set = 1;

    if (ngx_http_kv_router_params(cf, 2, ngx_http_kv_router_check_params,
                                  zone, NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    zone->conf.health.params.checked = (zone->conf.health.check.len != 0);

    return NGX_CONF_OK;
}


/*
 * A worker is known by its address, for which certificates are seldom issued
 * and which the Lua module can't verify: verifying needs the name.
 */

char *
ngx_http_kv_router_engine(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    uint32_t                    given;
    ngx_http_kv_router_zone_t  *zone;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->conf.engine_tls.ssl || zone->conf.engine_headers.len) {
        return "is duplicate";
    }

    given = 0;
    zone->conf.engine_tls.verify = 1;

    if (ngx_http_kv_router_params(cf, 2, ngx_http_kv_router_engine_params,
                                  zone, &given)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (!given) {
        return NGX_CONF_OK;
    }

    if (zone->conf.engine_tls.verify && zone->conf.engine_tls.name.len == 0) {
        return "needs \"ssl_name\", the name in the engines' certificates, or "
               "\"ssl_verify=off\"";
    }

    return ngx_http_kv_router_tls_conf(cf, &zone->conf.engine_tls,
                                       "kv_router_engine");
}


/* "NAME: VALUE".  Messages do not show the value, which may be a secret. */

static char *
ngx_http_kv_router_engine_header(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_http_kv_router_zone_t *zone = field;

    u_char      *p, *last;
    size_t       len;
    ngx_str_t    name, *lines;
    ngx_uint_t   i;

    last = value->data + value->len;
    p = ngx_strlchr(value->data, last, ':');

    name.data = value->data;
    name.len = p ? (size_t) (p - value->data) : 0;

    if (!ngx_http_kv_router_header_name(&name)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid name \"%V\" of a header for engines, it "
                           "must be letters, digits and \"-\", and none of "
                           "the headers that the router sets itself, as in "
                           "header=\"NAME: VALUE\"", &name);
        return NGX_CONF_ERROR;
    }

    for (p++; p < last && *p == ' '; p++) { /* void */ }

    for (i = 0; i < (size_t) (last - p); i++) {
        if (p[i] < ' ' || p[i] == 0x7f) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value of the header \"%V\" for "
                               "engines, it must have no control characters",
                               &name);
            return NGX_CONF_ERROR;
        }
    }

    value->len = last - p;
    value->data = p;

    lines = &zone->conf.engine_headers;
    len = lines->len + name.len + value->len + sizeof(": " CRLF) - 1;

    if (len > NGX_HTTP_KV_ROUTER_HEADERS_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too long headers for the engines of zone \"%V\", "
                           "all of them must have %d bytes at most",
                           &zone->conf.name, NGX_HTTP_KV_ROUTER_HEADERS_MAX);
        return NGX_CONF_ERROR;
    }

    p = ngx_pnalloc(cf->pool, len);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_sprintf(p, "%V%V: %V" CRLF, lines, &name, value);

    lines->data = p;
    lines->len = len;

    return NGX_CONF_OK;
}


static ngx_uint_t
ngx_http_kv_router_header_name(ngx_str_t *name)
{
    u_char      c;
    ngx_str_t  *own;
    ngx_uint_t  i;

    static ngx_str_t  owns[] = {
        ngx_string("Host"),
        ngx_string("Connection"),
        ngx_string("Content-Type"),
        ngx_string("Content-Length"),
        ngx_string("Transfer-Encoding"),
        ngx_null_string
    };

    for (i = 0; i < name->len; i++) {

        c = ngx_tolower(name->data[i]);

        if ((c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-') {
            return 0;
        }
    }

    for (own = owns; own->len; own++) {
        if (own->len == name->len
            && ngx_strncasecmp(own->data, name->data, name->len) == 0)
        {
            return 0;
        }
    }

    return name->len != 0;
}


char *
ngx_http_kv_router_worker(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                  *value, resolve;
    ngx_uint_t                  i;
    kvr_worker_conf_t          *w, *others;
    ngx_http_kv_router_zone_t  *zone;

    value = cf->args->elts;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts < 4) {
        return "is missing the worker's address";
    }

    for (i = 3; i < cf->args->nelts; i++) {
        if (ngx_strncmp(value[i].data, "resolve=", 8) == 0) {
            resolve = value[i];
            value[i] = value[3];

            w = ngx_http_kv_router_resolve_all(cf, zone, &value[2], &resolve);

            return w == NULL
                   ? NGX_CONF_ERROR
                   : ngx_http_kv_router_params(cf, 4,
                                          ngx_http_kv_router_worker_params(),
                                          w, &w->own);
        }
    }

    if (!kvr_worker_id_valid((char *) value[2].data, value[2].len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid worker id \"%V\", it must be 1..63 "
                           "characters of [A-Za-z0-9._:-]", &value[2]);
        return NGX_CONF_ERROR;
    }

    others = zone->conf.workers.elts;

    for (i = 0; i < zone->conf.workers.nelts; i++) {
        if (ngx_strcmp(others[i].id, value[2].data) == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate worker \"%V\" of zone \"%V\", each "
                               "needs an id of its own", &value[2],
                               &zone->conf.name);
            return NGX_CONF_ERROR;
        }
    }

    if (zone->conf.workers.nelts == zone->conf.params.max_workers) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many workers, the zone \"%V\" has "
                           "max_workers=%uD", &zone->conf.name,
                           zone->conf.params.max_workers);
        return NGX_CONF_ERROR;
    }

    w = ngx_array_push(&zone->conf.workers);
    if (w == NULL) {
        return NGX_CONF_ERROR;
    }

    kvr_worker_conf_init(w, (char *) value[2].data, value[2].len);

    if (ngx_http_kv_router_worker_address(cf, &value[3], w) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_kv_router_params(cf, 4, ngx_http_kv_router_worker_params(),
                                     w, &w->own);
}


/* All settings of a worker but its address, which has no word here. */

static const ngx_http_kv_router_param_t *
ngx_http_kv_router_worker_params(void)
{
    ngx_uint_t                   i;
    const kvr_setting_t         *s;
    ngx_http_kv_router_param_t  *p;

    static ngx_http_kv_router_param_t  params[KVR_SETTINGS + 1];

    static const ngx_http_kv_router_param_e  kinds[] = {
        [KVR_SETTING_TEXT] = NGX_HTTP_KV_ROUTER_TEXT,
        [KVR_SETTING_NAMES] = NGX_HTTP_KV_ROUTER_SET,
        [KVR_SETTING_FLAG] = NGX_HTTP_KV_ROUTER_FLAG,
        [KVR_SETTING_OFF] = NGX_HTTP_KV_ROUTER_WORD,
        [KVR_SETTING_WORD] = NGX_HTTP_KV_ROUTER_WORD,
        [KVR_SETTING_NUMBER] = NGX_HTTP_KV_ROUTER_NUMBER,
        [KVR_SETTING_AUTO] = NGX_HTTP_KV_ROUTER_AUTO,
        [KVR_SETTING_SIZE] = NGX_HTTP_KV_ROUTER_SIZE,
        [KVR_SETTING_DECIMAL] = NGX_HTTP_KV_ROUTER_DECIMAL,
        [KVR_SETTING_TIME] = NGX_HTTP_KV_ROUTER_MSEC
    };

    p = params;

    for (i = 0; i < KVR_SETTINGS; i++) {
        s = &kvr_settings[i];

        if (s->kind == KVR_SETTING_ADDRESS) {
            continue;
        }

        p->name.data = (u_char *) s->word;
        p->name.len = ngx_strlen(s->word);
        p->kind = kinds[s->kind];
        p->offset = s->offset;
        p->size = s->size;
        p->least = s->least;
        p->most = s->most;
        p->post = s->kind == KVR_SETTING_NAMES
                  ? (const void *) ngx_http_kv_router_worker_lora
                  : (const void *) s->words;
        p->bit = s->own;
        p++;
    }

    return params;
}


/* Names are resolved at start, as names in "server" of an upstream are. */

static char *
ngx_http_kv_router_worker_address(ngx_conf_t *cf, ngx_str_t *value,
    kvr_worker_conf_t *w)
{
    ngx_url_t  u;

    ngx_memzero(&u, sizeof(ngx_url_t));
    u.url = *value;
    u.default_port = 80;

    if (ngx_strncmp(value->data, "unix:", 5) != 0
        && ngx_strlchr(value->data, value->data + value->len, '/'))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid address \"%V\" of worker \"%s\": %s",
                           value, w->id,
                           kvr_address_wrong((char *) value->data));
        return NGX_CONF_ERROR;
    }

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s in worker \"%V\"",
                           u.err ? u.err : "invalid address", value);
        return NGX_CONF_ERROR;
    }

    if (u.no_port && u.family != AF_UNIX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "no port in address \"%V\" of worker \"%s\", "
                           "write \"%V:PORT\", with the engine's port",
                           value, w->id, value);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kv_router_param_copy(&u.addrs[0].name, w->address,
                                      sizeof(w->address))
        != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "address \"%V\" is too long", value);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_kv_router_worker_lora(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    u_char      *p;
    size_t       size;
    const char  *why;

    why = kvr_adapters_set(field, (char *) value->data, value->len);

    if (why == NULL) {
        return NGX_CONF_OK;
    }

    size = sizeof("it ") + ngx_strlen(why);

    p = ngx_pnalloc(cf->pool, size);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_snprintf(p, size, "it %s%Z", why);

    return (char *) p;
}


double
ngx_http_kv_router_ffi_parameter(void *zone, const char *name)
{
    return ngx_http_kv_router_param_get(ngx_http_kv_router_zone_params,
                                        zone, name);
}
