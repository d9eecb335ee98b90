
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A zone: its start in shared memory, its end with the configuration, and how
 * it is found by name.
 */


#include "ngx_http_kv_router_module.h"


/*
 * The parts of the shared memory, in their order: behind the shctx, and before
 * the router, which has all that is left.  Such a part has a record for each
 * worker or for each holder, or a size and a start of its own.
 */

typedef struct {
    size_t       pointer;                      /* of the shctx */
    size_t       record;                       /* 0: has a size of its own */
    ngx_uint_t   holders;                      /* 1: of each holder */
    size_t     (*size)(ngx_http_kv_router_zone_t *zone, size_t zone_size,
                       const kvr_params_t *params);
    void       (*init)(ngx_http_kv_router_zone_t *zone, void *part);
} ngx_http_kv_router_part_t;

static size_t ngx_http_kv_router_queue_size(ngx_http_kv_router_zone_t *zone,
    size_t zone_size, const kvr_params_t *params);
static void ngx_http_kv_router_queue_init(ngx_http_kv_router_zone_t *zone,
    void *part);

#define ngx_http_kv_router_table(name, type, holders)                         \
    { offsetof(ngx_http_kv_router_shctx_t, name), sizeof(type), holders,      \
      NULL, NULL }

static const ngx_http_kv_router_part_t  ngx_http_kv_router_parts[] = {
    ngx_http_kv_router_table(trust, kvr_trust_t, 0),
    ngx_http_kv_router_table(served, kvr_served_t, 0),
    ngx_http_kv_router_table(turns, ngx_http_kv_router_turn_t, 0),
    ngx_http_kv_router_table(rungs, kvr_rungs_t, 0),
    ngx_http_kv_router_table(names, kvr_name_t, 0),
    ngx_http_kv_router_table(reports, kvr_report_t, 1),
    ngx_http_kv_router_table(speeds, kvr_speed_t, 1),
    { offsetof(ngx_http_kv_router_shctx_t, rings), 0, 0,
      ngx_http_kv_router_rings_size, ngx_http_kv_router_rings_init },
    { offsetof(ngx_http_kv_router_shctx_t, queue), 0, 0,
      ngx_http_kv_router_queue_size, ngx_http_kv_router_queue_init }
};

#define NGX_HTTP_KV_ROUTER_PARTS                                              \
    (sizeof(ngx_http_kv_router_parts) / sizeof(ngx_http_kv_router_part_t))

#define NGX_HTTP_KV_ROUTER_MB        (1024 * 1024)
#define NGX_HTTP_KV_ROUTER_ZONE_MAX  ((size_t) 64 * 1024)  /* in MB */


uint32_t
ngx_http_kv_router_zone_workers(size_t size)
{
    size_t  n;

    n = size / NGX_HTTP_KV_ROUTER_MB * NGX_HTTP_KV_ROUTER_WORKERS_MB;
    n = ngx_min(n, NGX_HTTP_KV_ROUTER_WORKERS);

    return ngx_max((uint32_t) n, 1);
}


static size_t
ngx_http_kv_router_part_size(const ngx_http_kv_router_part_t *part,
    ngx_http_kv_router_zone_t *zone, size_t size, const kvr_params_t *params)
{
    uint32_t  nworkers, nholders;

    if (part->size) {
        return part->size(zone, size, params);
    }

    kvr_router_bounds(params, &nworkers, &nholders);

    return (part->holders ? nholders : nworkers) * part->record;
}


/*
 * A zone needs room for nginx's slab pool with a header for each page, the
 * parts, and the least memory of the router.
 */

static ngx_uint_t
ngx_http_kv_router_zone_holds(ngx_http_kv_router_zone_t *zone, size_t size,
    uint32_t max_workers)
{
    size_t         pages, used;
    ngx_uint_t     i;
    kvr_params_t   params;

    params = zone->conf.params;
    params.max_workers = max_workers;

    used = ngx_align(sizeof(ngx_http_kv_router_shctx_t), ngx_pagesize);

    for (i = 0; i < NGX_HTTP_KV_ROUTER_PARTS; i++) {
        used += ngx_align(ngx_http_kv_router_part_size(
                              &ngx_http_kv_router_parts[i], zone, size,
                              &params),
                          ngx_pagesize);
    }

    /* the pool's own header, and what is lost where the pages are aligned */

    pages = size / (ngx_pagesize + sizeof(ngx_slab_page_t));
    pages -= ngx_min(pages, 3);

    return pages * ngx_pagesize >= used + kvr_router_least(&params);
}


static ngx_int_t
ngx_http_kv_router_zone_fits(ngx_http_kv_router_zone_t *zone, ngx_log_t *log)
{
    u_char      *last, also[sizeof(", or max_workers=") + NGX_INT32_LEN];
    size_t       m, unit;
    uint32_t     n, fewer;
    const char  *letter;

    n = zone->conf.params.max_workers;

    if (ngx_http_kv_router_zone_holds(zone, zone->conf.size, n)) {
        return NGX_OK;
    }

    for (m = zone->conf.size / NGX_HTTP_KV_ROUTER_MB + 1;
         m < NGX_HTTP_KV_ROUTER_ZONE_MAX;
         m++)
    {
        if (ngx_http_kv_router_zone_holds(zone, m * NGX_HTTP_KV_ROUTER_MB,
                                          zone->conf.default_workers
                                          ? ngx_http_kv_router_zone_workers(
                                                m * NGX_HTTP_KV_ROUTER_MB)
                                          : n))
        {
            break;
        }
    }

    for (fewer = n / 2; fewer; fewer /= 2) {
        if (ngx_http_kv_router_zone_holds(zone, zone->conf.size, fewer)) {
            break;
        }
    }

    last = also;

    if (fewer) {
        last = ngx_sprintf(also, ", or max_workers=%uD", fewer);
    }

    if (zone->conf.size % NGX_HTTP_KV_ROUTER_MB == 0) {
        unit = NGX_HTTP_KV_ROUTER_MB;
        letter = "m";

    } else if (zone->conf.size % 1024 == 0) {
        unit = 1024;
        letter = "k";

    } else {
        unit = 1;
        letter = "";
    }

    ngx_log_error(NGX_LOG_EMERG, log, 0,
                  "kv_router_zone \"%V\": %uz%s is too small for "
                  "max_workers=%uD, shards=%uD and worker_processes=%i: write "
                  "zone=%V:%uzm%*s in %V:%ui",
                  &zone->conf.name, zone->conf.size / unit, letter, n,
                  zone->conf.params.shards,
                  zone->conf.processes->worker_processes, &zone->conf.name, m,
                  (size_t) (last - also), also, &zone->conf.file,
                  zone->conf.line);

    return NGX_ERROR;
}


static size_t
ngx_http_kv_router_queue_size(ngx_http_kv_router_zone_t *zone,
    size_t zone_size, const kvr_params_t *params)
{
    uint32_t  nworkers, nholders;

    kvr_router_bounds(params, &nworkers, &nholders);

    return kvr_admit_format(NULL, (uint32_t) zone->conf.queue.size, nholders,
                            params->block_size,
                            (double) zone->conf.queue.quantum);
}


static void
ngx_http_kv_router_queue_init(ngx_http_kv_router_zone_t *zone, void *part)
{
    uint32_t  nworkers, nholders;

    kvr_router_bounds(&zone->conf.params, &nworkers, &nholders);

    ngx_memzero(part, ngx_http_kv_router_queue_size(zone, 0,
                                                    &zone->conf.params));
    (void) kvr_admit_format(part, (uint32_t) zone->conf.queue.size, nholders,
                            zone->conf.params.block_size,
                            (double) zone->conf.queue.quantum);
}


/* A reload can't change the memory of the queue. */

static ngx_int_t
ngx_http_kv_router_queue_same(ngx_http_kv_router_zone_t *zone,
    const kvr_admit_zone_t *was, ngx_log_t *log)
{
    ngx_uint_t  size, quantum;

    size = was ? was->limit : 0;
    quantum = was ? (ngx_uint_t) was->order.quantum : zone->conf.queue.quantum;

    if (size == zone->conf.queue.size && quantum == zone->conf.queue.quantum) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, log, 0,
                  "kv_router_zone \"%V\" was made with queue=%ui "
                  "queue_quantum=%ui and can't be changed to queue=%ui "
                  "queue_quantum=%ui by a reload: restart nginx, or give the "
                  "zone another name or size", &zone->conf.name, size, quantum,
                  zone->conf.queue.size, zone->conf.queue.quantum);

    return NGX_ERROR;
}


/* Lays a new zone out; NULL: it is logged. */

static ngx_http_kv_router_shctx_t *
ngx_http_kv_router_zone_make(ngx_http_kv_router_zone_t *zone,
    ngx_slab_pool_t *shpool, ngx_log_t *log)
{
    char                              why[KVR_WHY_LEN];
    void                             *p;
    size_t                            size;
    ngx_uint_t                        i;
    ngx_http_kv_router_shctx_t       *sh;
    const ngx_http_kv_router_part_t  *part;

    if (ngx_http_kv_router_zone_fits(zone, log) != NGX_OK) {
        return NULL;
    }

    sh = ngx_slab_calloc(shpool, sizeof(ngx_http_kv_router_shctx_t));
    if (sh == NULL) {
        return NULL;
    }

    shpool->log_ctx = (u_char *) " in kv_router_zone";
    shpool->data = sh;

    sh->made = ngx_time();

    kvr_router_bounds(&zone->conf.params, &sh->nworkers, &sh->nholders);

    for (i = 0; i < NGX_HTTP_KV_ROUTER_PARTS; i++) {
        part = &ngx_http_kv_router_parts[i];
        size = ngx_http_kv_router_part_size(part, zone, zone->conf.size,
                                            &zone->conf.params);

        if (size == 0) {
            continue;
        }

        p = ngx_slab_alloc(shpool, size);
        if (p == NULL) {
            return NULL;
        }

        if (part->init) {
            part->init(zone, p);

        } else {
            ngx_memzero(p, size);
        }

        *(void **) ((u_char *) sh + part->pointer) = p;
    }

    /* the router takes all pages that are left, as one contiguous area */

    sh->size = shpool->pfree * ngx_pagesize;

    sh->base = ngx_slab_alloc(shpool, sh->size);
    if (sh->base == NULL) {
        return NULL;
    }

#ifdef MADV_HUGEPAGE
    /* before the area is touched; most systems have no huge pages */

    (void) madvise(sh->base, sh->size, MADV_HUGEPAGE);
#endif

    if (kvr_router_format(sh->base, sh->size, &zone->conf.params, why)
        != KVR_OK)
    {
        ngx_log_error(NGX_LOG_EMERG, log, 0, "kv_router_zone \"%V\": %s",
                      &zone->conf.name, why);
        return NULL;
    }

    return sh;
}


/*
 * Called in the master.  A zone of the previous configuration is only checked,
 * because processes of that configuration use it, and go on using it if the
 * new configuration fails.
 */

ngx_int_t
ngx_http_kv_router_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_kv_router_zone_t  *ozone = data;

    char                         why[KVR_WHY_LEN];
    ngx_str_t                   *key;
    kvr_flights_t               *flights;
    ngx_slab_pool_t             *shpool;
    ngx_http_kv_router_zone_t   *zone;
    ngx_http_kv_router_shctx_t  *sh;

    zone = shm_zone->data;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (ozone) {
        sh = ozone->run.sh;

    } else if (shm_zone->shm.exists) {
        sh = shpool->data;

    } else {
        sh = ngx_http_kv_router_zone_make(zone, shpool, shm_zone->shm.log);
    }

    if (sh == NULL
        || ngx_http_kv_router_queue_same(zone, sh->queue, shm_zone->shm.log)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (kvr_router_attach(&zone->run.router, sh->base, sh->size,
                          &zone->conf.params, why)
        != KVR_OK)
    {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "kv_router_zone \"%V\" can't be used: %s",
                      &zone->conf.name, why);
        return NGX_ERROR;
    }

    zone->run.sh = sh;

    /* without the key nobody recognises a prompt by its chains */

    flights = &zone->run.router.flights;
    key = &zone->conf.sync.key;

    if (key->len
        && kvr_flights_attach(flights, flights->zone, flights->base,
                              (char *) key->data, key->len)
           != KVR_OK)
    {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "kv_router_zone \"%V\": no SHA-256 for the key of "
                      "kv_router_sync", &zone->conf.name);
        return NGX_ERROR;
    }

    if (zone->conf.model && zone->conf.model_kept) {
        ngx_http_kv_router_count(sh, MODELS_KEPT, 1);

    } else if (zone->conf.model) {
        ngx_http_kv_router_count(sh, MODELS_LOADED, 1);
    }

    return NGX_OK;
}


void
ngx_http_kv_router_zone_cleanup(void *data)
{
    ngx_http_kv_router_zone_t *zone = data;

    kvr_router_detach(&zone->run.router);
    kvr_inflight_destroy(zone->run.inflight);
    kvr_echoes_destroy(zone->run.echoes);
}


ngx_http_kv_router_zone_t *
ngx_http_kv_router_find_zone(ngx_cycle_t *cycle, const u_char *name,
    size_t len)
{
    ngx_http_kv_router_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_kv_router_module);

    return kmcf ? ngx_http_kv_router_named(&kmcf->zones, name, len) : NULL;
}


void *
ngx_http_kv_router_named(ngx_array_t *all, const u_char *name, size_t len)
{
    ngx_str_t   **begins = all->elts;
    ngx_uint_t    i;

    for (i = 0; i < all->nelts; i++) {
        if (begins[i]->len == len
            && ngx_strncmp(begins[i]->data, name, len) == 0)
        {
            return begins[i];
        }
    }

    return NULL;
}
