
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Directives, the zone in shared memory, and what each worker process does
 * from its start to its exit.
 */


#include "ngx_http_kv_router_route.h"


#define NGX_HTTP_KV_ROUTER_TEND          100    /* ms */
#define NGX_HTTP_KV_ROUTER_TEND_MORE     5      /* ms, while work is left */
#define NGX_HTTP_KV_ROUTER_TEND_SLICE    500    /* us of that work */
#define NGX_HTTP_KV_ROUTER_JOIN_TRIES    20     /* of 50 ms each */


static void *ngx_http_kv_router_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_kv_router_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_kv_router_create_loc_conf(ngx_conf_t *cf);
static ngx_int_t ngx_http_kv_router_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kv_router_postconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_kv_router_init_process(ngx_cycle_t *cycle);
static void ngx_http_kv_router_exit_process(ngx_cycle_t *cycle);

static char *ngx_http_kv_router_zone(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_kv_router_redis(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_kv_router_worker(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_kv_router_location(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_http_kv_router_zone_t *ngx_http_kv_router_conf_zone(ngx_conf_t *cf,
    ngx_command_t *cmd);
static ngx_int_t ngx_http_kv_router_copy(ngx_str_t *value, char *to,
    size_t size);

static ngx_int_t ngx_http_kv_router_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static void ngx_http_kv_router_zone_cleanup(void *data);
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

    { ngx_string("kv_router_worker"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_kv_router_worker,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("kv_router_event_batch"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_num_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_kv_router_main_conf_t, batch),
      NULL },

    { ngx_string("kv_router_max_tokens"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_num_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_kv_router_main_conf_t, max_tokens),
      NULL },

    { ngx_string("kv_router_stale"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_kv_router_main_conf_t, stale),
      NULL },

    { ngx_string("kv_router_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_kv_router_location,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_kv_router_loc_conf_t, status),
      ngx_http_kv_router_status_handler },

    { ngx_string("kv_router_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_kv_router_location,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_kv_router_loc_conf_t, api),
      ngx_http_kv_router_api_handler },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_kv_router_module_ctx = {
    ngx_http_kv_router_preconfiguration,   /* preconfiguration */
    ngx_http_kv_router_postconfiguration,  /* postconfiguration */

    ngx_http_kv_router_create_main_conf,   /* create main configuration */
    ngx_http_kv_router_init_main_conf,     /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_kv_router_create_loc_conf,    /* create location configuration */
    NULL                                   /* merge location configuration */
};


ngx_module_t  ngx_http_kv_router_module = {
    NGX_MODULE_V1,
    &ngx_http_kv_router_module_ctx,        /* module context */
    ngx_http_kv_router_commands,           /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    ngx_http_kv_router_init_process,       /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_kv_router_exit_process,       /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


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
        != NGX_OK)
    {
        return NULL;
    }

    kmcf->batch = NGX_CONF_UNSET;
    kmcf->max_tokens = NGX_CONF_UNSET;
    kmcf->stale = NGX_CONF_UNSET_MSEC;

    return kmcf;
}


static char *
ngx_http_kv_router_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_kv_router_main_conf_t *kmcf = conf;

    ngx_uint_t                   i;
    ngx_http_kv_router_zone_t  **zones;

    ngx_conf_init_value(kmcf->batch, 4096);
    ngx_conf_init_value(kmcf->max_tokens, KVR_EVENT_TOKENS_MAX);
    ngx_conf_init_msec_value(kmcf->stale, 5000);

    if (kmcf->batch < 1 || kmcf->batch > (ngx_int_t) KVR_EVENT_BLOCKS_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"kv_router_event_batch\" must be 1..%ud",
                           KVR_EVENT_BLOCKS_MAX);
        return NGX_CONF_ERROR;
    }

    if (kmcf->max_tokens < 1
        || kmcf->max_tokens > (ngx_int_t) KVR_EVENT_TOKENS_MAX)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"kv_router_max_tokens\" must be 1..%ud",
                           KVR_EVENT_TOKENS_MAX);
        return NGX_CONF_ERROR;
    }

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        zones[i]->batch = kmcf->batch;
        zones[i]->max_tokens = kmcf->max_tokens;
        zones[i]->stale = kmcf->stale;
    }

    return NGX_CONF_OK;
}


static void *
ngx_http_kv_router_create_loc_conf(ngx_conf_t *cf)
{
    /*
     * set by ngx_pcalloc():
     *
     *     conf->status = NULL;
     *     conf->api = NULL;
     */

    return ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_loc_conf_t));
}


static ngx_int_t
ngx_http_kv_router_preconfiguration(ngx_conf_t *cf)
{
    return ngx_http_kv_router_add_variables(cf);
}


static ngx_int_t
ngx_http_kv_router_postconfiguration(ngx_conf_t *cf)
{
    ngx_http_kv_router_main_conf_t  *kmcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kv_router_module);

    if (kmcf->zones.nelts) {
        ngx_http_kv_router_filter_init();
    }

    return NGX_OK;
}


/* ---- directives ----------------------------------------------------------- */

static char *
ngx_http_kv_router_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_main_conf_t *kmcf = conf;

    u_char                      *p;
    ssize_t                      size;
    ngx_int_t                    n;
    ngx_str_t                   *value, name, s;
    ngx_uint_t                   i;
    ngx_pool_cleanup_t          *cln;
    ngx_http_kv_router_zone_t   *zone, **zp;

    value = cf->args->elts;

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_zone_t));
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (ngx_array_init(&zone->workers, cf->pool, 8, sizeof(kvr_worker_conf_t))
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    zone->params.block_size = 16;
    zone->params.max_workers = 1024;

    ngx_str_null(&name);
    size = 0;

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "zone=", 5) == 0) {

            name.data = value[i].data + 5;

            p = (u_char *) ngx_strchr(name.data, ':');

            if (p == NULL || p == name.data) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid zone size \"%V\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            name.len = p - name.data;

            s.data = p + 1;
            s.len = value[i].data + value[i].len - s.data;

            size = ngx_parse_size(&s);

            if (size == NGX_ERROR) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid zone size \"%V\"", &value[i]);
                return NGX_CONF_ERROR;
            }

            continue;
        }

        if (ngx_strncmp(value[i].data, "block_size=", 11) == 0) {

            n = ngx_atoi(value[i].data + 11, value[i].len - 11);

            if (n < 1 || n > KVR_BLOCK_SIZE_MAX) {
                goto invalid;
            }

            zone->params.block_size = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "max_workers=", 12) == 0) {

            n = ngx_atoi(value[i].data + 12, value[i].len - 12);

            if (n < 1 || n > 16384) {
                goto invalid;
            }

            zone->params.max_workers = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "model=", 6) == 0) {

            s.data = value[i].data + 6;
            s.len = value[i].len - 6;

            if (ngx_http_kv_router_copy(&s, zone->params.model,
                                        sizeof(zone->params.model))
                != NGX_OK)
            {
                goto invalid;
            }

            continue;
        }

        if (ngx_strcmp(value[i].data, "index=radix") == 0
            || ngx_strcmp(value[i].data, "shards=1") == 0)
        {
            continue;
        }

        goto invalid;
    }

    if (name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (size < (ssize_t) NGX_HTTP_KV_ROUTER_ZONE_MIN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" is too small", &name);
        return NGX_CONF_ERROR;
    }

    zone->name = name;

    zone->shm_zone = ngx_shared_memory_add(cf, &name, size,
                                           &ngx_http_kv_router_module);
    if (zone->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->shm_zone->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%V \"%V\" is already defined", &cmd->name, &name);
        return NGX_CONF_ERROR;
    }

    zone->shm_zone->init = ngx_http_kv_router_init_zone;
    zone->shm_zone->data = zone;

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

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                       &value[i]);

    return NGX_CONF_ERROR;
}


/* The zone that a directive's first argument names. */

static ngx_http_kv_router_zone_t *
ngx_http_kv_router_conf_zone(ngx_conf_t *cf, ngx_command_t *cmd)
{
    ngx_str_t                       *value;
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;

    value = cf->args->elts;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kv_router_module);
    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (zones[i]->name.len == value[1].len
            && ngx_strncmp(zones[i]->name.data, value[1].data, value[1].len)
               == 0)
        {
            return zones[i];
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown kv_router_zone \"%V\" in \"%V\", "
                       "it must be defined before", &value[1], &cmd->name);
    return NULL;
}


static char *
ngx_http_kv_router_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kv_router_zone_t  *zone;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->redis) {
        return "is duplicate";
    }

    return ngx_http_kv_router_redis_parse(cf, zone);
}


static char *
ngx_http_kv_router_worker(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_int_t                   n;
    ngx_str_t                  *value, s;
    ngx_url_t                   u;
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

    if (!kvr_worker_id_valid((char *) value[2].data, value[2].len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid worker id \"%V\", it must be 1..63 "
                           "characters of [A-Za-z0-9._:-]", &value[2]);
        return NGX_CONF_ERROR;
    }

    others = zone->workers.elts;

    for (i = 0; i < zone->workers.nelts; i++) {
        if (ngx_strcmp(others[i].id, value[2].data) == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate worker \"%V\"", &value[2]);
            return NGX_CONF_ERROR;
        }
    }

    if (zone->workers.nelts == zone->params.max_workers) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many workers, the zone \"%V\" has "
                           "max_workers=%uD", &zone->name,
                           zone->params.max_workers);
        return NGX_CONF_ERROR;
    }

    w = ngx_array_push(&zone->workers);
    if (w == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(w, sizeof(kvr_worker_conf_t));
    ngx_memcpy(w->id, value[2].data, value[2].len);

    w->ranks = 1;
    w->weight = 1000;

    /* as in "server" of an upstream: names are resolved at start */

    ngx_memzero(&u, sizeof(ngx_url_t));
    u.url = value[3];
    u.default_port = 80;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s in worker \"%V\"",
                           u.err ? u.err : "invalid address", &value[3]);
        return NGX_CONF_ERROR;
    }

    if (u.uri.len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid address \"%V\" of worker \"%V\": "
                           "no scheme and no path can be in it", &value[3],
                           &value[2]);
        return NGX_CONF_ERROR;
    }

    if (u.no_port && u.family != AF_UNIX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "no port in address \"%V\" of worker \"%V\"",
                           &value[3], &value[2]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kv_router_copy(&u.addrs[0].name, w->address,
                                sizeof(w->address))
        != NGX_OK)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "address \"%V\" is too long", &value[3]);
        return NGX_CONF_ERROR;
    }

    for (i = 4; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "ranks=", 6) == 0) {

            n = ngx_atoi(value[i].data + 6, value[i].len - 6);

            if (n < 1 || n > KVR_RANKS_MAX) {
                goto invalid;
            }

            w->ranks = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "weight=", 7) == 0) {

            n = ngx_atofp(value[i].data + 7, value[i].len - 7, 3);

            if (n < 1 || n > 1000000) {
                goto invalid;
            }

            w->weight = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "max_active=", 11) == 0) {

            n = ngx_atoi(value[i].data + 11, value[i].len - 11);

            if (n < 0 || n > 1000000) {
                goto invalid;
            }

            w->max_active = n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "model=", 6) == 0) {

            s.data = value[i].data + 6;
            s.len = value[i].len - 6;

            if (ngx_http_kv_router_copy(&s, w->model, sizeof(w->model))
                != NGX_OK)
            {
                goto invalid;
            }

            continue;
        }

        if (ngx_strcmp(value[i].data, "role=both") == 0) {
            w->role = KVR_ROLE_BOTH;
            continue;
        }

        if (ngx_strcmp(value[i].data, "role=prefill") == 0) {
            w->role = KVR_ROLE_PREFILL;
            continue;
        }

        if (ngx_strcmp(value[i].data, "role=decode") == 0) {
            w->role = KVR_ROLE_DECODE;
            continue;
        }

        goto invalid;
    }

    return NGX_CONF_OK;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                       &value[i]);

    return NGX_CONF_ERROR;
}


/* kv_router_status, kv_router_api: a zone, and the location's handler */

static char *
ngx_http_kv_router_location(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_kv_router_zone_t  **zone;

    zone = (ngx_http_kv_router_zone_t **) (p + cmd->offset);

    if (*zone) {
        return "is duplicate";
    }

    *zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (*zone == NULL) {
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler) {
        return "conflicts with another handler of this location";
    }

    clcf->handler = (ngx_http_handler_pt) cmd->post;

    return NGX_CONF_OK;
}


/* A value as a terminated string; longer ones don't fit. */

static ngx_int_t
ngx_http_kv_router_copy(ngx_str_t *value, char *to, size_t size)
{
    if (value->len >= size || ngx_strlchr(value->data,
                                          value->data + value->len, '\0'))
    {
        return NGX_ERROR;
    }

    ngx_memzero(to, size);
    ngx_memcpy(to, value->data, value->len);

    return NGX_OK;
}


/* ---- the zone ------------------------------------------------------------- */

/*
 * In the master.  A new zone is laid out; one that comes from the previous
 * configuration is only looked at: processes of that configuration use it,
 * and may go on doing so if this one turns out to be bad.
 */

static ngx_int_t
ngx_http_kv_router_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_kv_router_zone_t  *ozone = data;

    char                         why[KVR_WHY_LEN];
    size_t                       size;
    kvr_rc_t                     rc;
    ngx_slab_pool_t             *shpool;
    ngx_http_kv_router_zone_t   *zone;
    ngx_http_kv_router_shctx_t  *sh;

    zone = shm_zone->data;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (ozone) {
        sh = ozone->sh;

    } else if (shm_zone->shm.exists) {
        sh = shpool->data;

    } else {

        sh = ngx_slab_calloc(shpool, sizeof(ngx_http_kv_router_shctx_t));
        if (sh == NULL) {
            return NGX_ERROR;
        }

        shpool->log_ctx = (u_char *) " in kv_router_zone";
        shpool->data = sh;

        /* all pages that are left, in one piece */

        size = shpool->pfree * ngx_pagesize;

        sh->base = ngx_slab_alloc(shpool, size);
        if (sh->base == NULL) {
            return NGX_ERROR;
        }

        sh->size = size;

        if (kvr_router_format(sh->base, size, &zone->params, why) != KVR_OK) {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "kv_router_zone \"%V\": %s", &zone->name, why);
            return NGX_ERROR;
        }
    }

    rc = kvr_router_attach(&zone->router, sh->base, sh->size, &zone->params,
                           why);
    if (rc != KVR_OK) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "kv_router_zone \"%V\" can't be used: %s", &zone->name,
                      why);
        return NGX_ERROR;
    }

    zone->sh = sh;

    return NGX_OK;
}


static void
ngx_http_kv_router_zone_cleanup(void *data)
{
    ngx_http_kv_router_zone_t *zone = data;

    kvr_router_detach(&zone->router);
}


ngx_http_kv_router_zone_t *
ngx_http_kv_router_find_zone(ngx_cycle_t *cycle, ngx_str_t *name)
{
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_kv_router_module);
    if (kmcf == NULL) {
        return NULL;
    }

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (zones[i]->name.len == name->len
            && ngx_strncmp(zones[i]->name.data, name->data, name->len) == 0)
        {
            return zones[i];
        }
    }

    return NULL;
}


/* ---- a worker process ----------------------------------------------------- */

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
    ngx_event_t  *ev;

    for (i = 0; i < NGX_HTTP_KV_ROUTER_JOIN_TRIES; i++) {
        rc = kvr_router_join(&zone->router);

        if (rc == KVR_OK) {
            rc = kvr_router_set_static(&zone->router, zone->workers.elts,
                                       zone->workers.nelts);
        }

        if (rc != KVR_BUSY) {
            break;
        }
    }

    if (rc != KVR_OK) {
        /* requests are routed all the same, by what can be read */
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "kv_router_zone \"%V\": %s", &zone->name,
                      rc == KVR_BUSY ? "another process keeps its lock"
                                     : "no room for the configured workers");
    }

    zone->tend_conn.fd = (ngx_socket_t) -1;

    ev = &zone->tend;
    ev->handler = ngx_http_kv_router_tend;
    ev->data = &zone->tend_conn;
    ev->log = cycle->log;
    ev->cancelable = 1;

    zone->tend_conn.data = zone;

    ngx_add_timer(ev, NGX_HTTP_KV_ROUTER_TEND);

    if (zone->redis) {
        return ngx_http_kv_router_consumer_start(cycle, zone);
    }

    return NGX_OK;
}


/* What keeps a zone in order although processes die: each 100 ms. */

static void
ngx_http_kv_router_tend(ngx_event_t *ev)
{
    bool                        more;
    ngx_connection_t           *c;
    ngx_http_kv_router_zone_t  *zone;

    c = ev->data;
    zone = c->data;

    if (ngx_exiting || ngx_terminate) {
        return;
    }

    more = kvr_router_tend(&zone->router, ngx_current_msec,
                           NGX_HTTP_KV_ROUTER_TEND_SLICE);

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

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (zones[i]->consumer) {
            ngx_http_kv_router_consumer_stop(zones[i]);
        }

        kvr_router_leave(&zones[i]->router);
    }
}
