
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The estimates of workers without events, see kvr_estimated.h: each process
 * has a ring for what it routed; the process that has the lease of shard 0
 * reads all rings.  In a zone without Redis the lease is for this alone, and
 * is taken here.
 */


#include "../module/ngx_http_kv_router_module.h"

#include <core/kvr_lock.h>


/*
 * milliseconds between two rounds: while work is left, while this process has
 * the lease, and of the other processes, with the maximum of random ones added
 */
#define NGX_HTTP_KV_ROUTER_ESTIMATE_MORE    1
#define NGX_HTTP_KV_ROUTER_ESTIMATE_ROUND   20
#define NGX_HTTP_KV_ROUTER_ESTIMATE_WAIT    100
#define NGX_HTTP_KV_ROUTER_ESTIMATE_JITTER  50

/* milliseconds between two looks at capacities and restarts */
#define NGX_HTTP_KV_ROUTER_ESTIMATE_LOOK    1000

/* microseconds of a round */
#define NGX_HTTP_KV_ROUTER_ESTIMATE_US      500

/* rings: 1/64 of the zone, of these sizes each; 1/8 of the zone at most */
#define NGX_HTTP_KV_ROUTER_RINGS_PART       64
#define NGX_HTTP_KV_ROUTER_RINGS_MOST       8
#define NGX_HTTP_KV_ROUTER_RING_MAX         (1024 * 1024)


struct ngx_http_kv_router_estimator_s {
    ngx_http_kv_router_zone_t      *zone;
    ngx_event_t                     round;
    ngx_connection_t                dummy;     /* of the timer's log */
    ngx_log_t                      *log;
    ngx_uint_t                      mine;      /* ring + 1; 0: none */
    ngx_uint_t                      leased;
    ngx_msec_t                      renewed;   /* the lease */
    ngx_msec_t                      looked;
    uint64_t                       *restarts;  /* of each holder, as logged */
    kvr_routed_t                   *rings[NGX_HTTP_KV_ROUTER_RINGS];
};


static void ngx_http_kv_router_estimator_round(ngx_event_t *ev);
static void ngx_http_kv_router_estimator_lease(
    ngx_http_kv_router_estimator_t *e);
static void ngx_http_kv_router_estimator_claim(
    ngx_http_kv_router_estimator_t *e);
static void ngx_http_kv_router_estimator_look(
    ngx_http_kv_router_estimator_t *e);
static void ngx_http_kv_router_estimator_worker(
    ngx_http_kv_router_estimator_t *e, uint32_t number, ngx_uint_t first);
static void ngx_http_kv_router_estimator_say(
    ngx_http_kv_router_estimator_t *e, uint32_t number, uint32_t generation,
    const char *id);


/* ---- the zone ----------------------------------------------------------- */

/* The number of rings in a zone of so many bytes; *size: the bytes of each. */

static ngx_uint_t
ngx_http_kv_router_rings_plan(ngx_http_kv_router_zone_t *zone,
    size_t zone_size, size_t *size)
{
    ngx_uint_t  n;

    /* after a reload the old processes need theirs for a while */

    n = ngx_min(2 * zone->conf.processes->worker_processes,
                NGX_HTTP_KV_ROUTER_RINGS);
    n = ngx_min(n, zone_size / NGX_HTTP_KV_ROUTER_RINGS_MOST
                   / KVR_ROUTED_MIN);
    n = ngx_max(n, 1);

    *size = zone_size / NGX_HTTP_KV_ROUTER_RINGS_PART / n;
    *size = ngx_max(*size, KVR_ROUTED_MIN);
    *size = ngx_min(*size, NGX_HTTP_KV_ROUTER_RING_MAX) & ~(size_t) 63;

    return n;
}


size_t
ngx_http_kv_router_rings_size(ngx_http_kv_router_zone_t *zone,
    size_t zone_size, const kvr_params_t *params)
{
    size_t      size;
    ngx_uint_t  n;

    n = ngx_http_kv_router_rings_plan(zone, zone_size, &size);

    return sizeof(ngx_http_kv_router_rings_t) + n * size;
}


void
ngx_http_kv_router_rings_init(ngx_http_kv_router_zone_t *zone, void *part)
{
    ngx_http_kv_router_rings_t *rings = part;

    u_char      *p;
    ngx_uint_t   i;

    ngx_memzero(rings, sizeof(ngx_http_kv_router_rings_t));

    rings->n = ngx_http_kv_router_rings_plan(zone, zone->conf.size,
                                             &rings->size);
    p = (u_char *) (rings + 1);

    for (i = 0; i < rings->n; i++) {
        rings->all[i] = (kvr_routed_t *) (p + i * rings->size);
        kvr_routed_format(rings->all[i], rings->size);
    }
}


/* ---- a process ---------------------------------------------------------- */

ngx_int_t
ngx_http_kv_router_estimator_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_estimator_t  *e;

    e = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_estimator_t));
    if (e == NULL) {
        return NGX_ERROR;
    }

    e->restarts = ngx_pcalloc(cycle->pool,
                              zone->run.sh->nholders * sizeof(uint64_t));
    if (e->restarts == NULL) {
        return NGX_ERROR;
    }

    e->zone = zone;
    e->log = cycle->log;
    ngx_memcpy(e->rings, zone->run.sh->rings->all, sizeof(e->rings));

    ngx_http_kv_router_timer(&e->round, &e->dummy,
                             ngx_http_kv_router_estimator_round, e,
                             cycle->log);

    zone->run.estimator = e;

    ngx_http_kv_router_estimator_claim(e);

    ngx_add_timer(&e->round,
                  1 + ngx_random() % NGX_HTTP_KV_ROUTER_ESTIMATE_ROUND);

    return NGX_OK;
}


void
ngx_http_kv_router_estimator_stop(ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_estimator_t  *e;

    e = zone->run.estimator;

    if (e == NULL) {
        return;
    }

    zone->run.estimator = NULL;

    if (e->round.timer_set) {
        ngx_del_timer(&e->round);
    }

    if (e->mine) {
        __atomic_store_n(&zone->run.sh->rings->owners[e->mine - 1], 0,
                         __ATOMIC_RELEASE);
    }

    if (zone->conf.redis == NULL) {
        kvr_router_lease_release(&zone->run.router);
    }
}


/*
 * Takes a ring that no living process has, together with what is unread in
 * the ring.
 */

static void
ngx_http_kv_router_estimator_claim(ngx_http_kv_router_estimator_t *e)
{
    ngx_uint_t                   i;
    kvr_owner_t                  owner, self;
    ngx_http_kv_router_rings_t  *rings;

    rings = e->zone->run.sh->rings;
    self = kvr_owner_self();

    for (i = 0; i < rings->n && e->mine == 0; i++) {

        owner = __atomic_load_n(&rings->owners[i], __ATOMIC_ACQUIRE);

        if ((owner == 0 || !kvr_owner_alive(owner))
            && __atomic_compare_exchange_n(&rings->owners[i], &owner, self,
                                           false, __ATOMIC_ACQ_REL,
                                           __ATOMIC_RELAXED))
        {
            e->mine = i + 1;
        }
    }
}


static void
ngx_http_kv_router_estimator_round(ngx_event_t *ev)
{
    bool                             more;
    ngx_msec_t                       next;
    ngx_connection_t                *c;
    ngx_http_kv_router_zone_t       *zone;
    ngx_http_kv_router_estimator_t  *e;

    c = ev->data;
    e = c->data;
    zone = e->zone;

    if (ngx_exiting || ngx_terminate || ngx_quit) {

        /* requests that are still answered fill this process's ring */

        if (zone->conf.redis == NULL && e->leased) {
            e->leased = 0;
            kvr_router_lease_release(&zone->run.router);
        }

        return;
    }

    if (e->mine == 0) {
        ngx_http_kv_router_estimator_claim(e);
    }

    ngx_http_kv_router_estimator_lease(e);

    more = false;
    next = NGX_HTTP_KV_ROUTER_ESTIMATE_WAIT
           + ngx_random() % NGX_HTTP_KV_ROUTER_ESTIMATE_JITTER;

    if (e->leased) {
        ngx_http_kv_router_estimator_look(e);

        more = kvr_router_estimate(&zone->run.router, e->rings,
                                   zone->run.sh->rings->n, ngx_current_msec,
                                   NGX_HTTP_KV_ROUTER_ESTIMATE_US);

        next = more ? NGX_HTTP_KV_ROUTER_ESTIMATE_MORE
                    : NGX_HTTP_KV_ROUTER_ESTIMATE_ROUND;
    }

    ngx_add_timer(ev, next);
}


static void
ngx_http_kv_router_estimator_lease(ngx_http_kv_router_estimator_t *e)
{
    ngx_uint_t                  before;
    ngx_http_kv_router_zone_t  *zone;

    zone = e->zone;
    before = e->leased;

    if (zone->conf.redis) {
        e->leased = kvr_router_leased(&zone->run.router, 0);

    } else if (!before
               || ngx_current_msec - e->renewed
                  >= NGX_HTTP_KV_ROUTER_ESTIMATE_WAIT)
    {
        switch (kvr_router_lease(&zone->run.router, 0, 0, ngx_current_msec)) {

        case KVR_OK:
            e->leased = 1;
            e->renewed = ngx_current_msec;
            break;

        case KVR_BUSY:
            break;

        default:
            e->leased = 0;
            break;
        }
    }

    if (e->leased && !before) {
        e->looked = 0;

        if (zone->conf.redis == NULL) {
            ngx_log_error(NGX_LOG_INFO, e->log, 0,
                          "kv_router zone \"%V\": this process now applies "
                          "estimates", &zone->conf.name);
        }
    }
}


/* Tells the zone the capacities, and the log the restarts. */

static void
ngx_http_kv_router_estimator_look(ngx_http_kv_router_estimator_t *e)
{
    uint32_t    i, n;
    ngx_uint_t  first;

    first = (e->looked == 0);

    if (!first
        && ngx_current_msec - e->looked < NGX_HTTP_KV_ROUTER_ESTIMATE_LOOK)
    {
        return;
    }

    e->looked = ngx_current_msec;

    n = ngx_min(kvr_router_workers(&e->zone->run.router),
                e->zone->run.sh->nworkers);

    for (i = 0; i < n; i++) {
        ngx_http_kv_router_estimator_worker(e, i, first);
    }
}


static void
ngx_http_kv_router_estimator_worker(ngx_http_kv_router_estimator_t *e,
    uint32_t number, ngx_uint_t first)
{
    uint32_t                    flags, generation, holder, steps, tokens;
    uint64_t                    restarts;
    ngx_uint_t                  again;
    kvr_router_t               *k;
    kvr_worker_conf_t           conf;
    kvr_estimate_info_t         info;
    ngx_http_kv_router_zone_t  *zone;

    zone = e->zone;
    k = &zone->run.router;

    if (kvr_router_read_worker(k, number, &conf, &flags, &generation) != KVR_OK
        || flags & KVR_WORKER_DELETED
        || ngx_http_kv_router_confidence(zone, kvr_router_worker(k, number),
                                         number)
           != KVR_ESTIMATED)
    {
        return;
    }

    /* the workers of a host name can be hundreds, and never have events */

    if (!(flags & KVR_WORKER_NAMED)) {
        ngx_http_kv_router_estimator_say(e, number, generation, conf.id);
    }

    tokens = 0;
    again = 0;
    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (kvr_router_next_holder(k, number, &holder, &steps)) {

        if (holder >= zone->run.sh->nholders) {
            continue;
        }

        tokens = ngx_max(tokens,
                         kvr_report_capacity(&zone->run.sh->reports[holder],
                                             generation));

        if (kvr_router_estimate_read(k, holder, &info) == KVR_OK) {
            restarts = info.cleared[KVR_ESTIMATE_RESTARTED];
            again |= (restarts > e->restarts[holder]);
            e->restarts[holder] = restarts;
        }
    }

    /* an old value is set again each time: a value that is the same is none */

    (void) kvr_router_estimate_capacity(k, number, conf.capacity,
                                        KVR_CAPACITY_CONFIGURED);
    (void) kvr_router_estimate_capacity(k, number, tokens,
                                        KVR_CAPACITY_SCRAPED);

    if (again && !first) {
        ngx_log_error(NGX_LOG_NOTICE, e->log, 0,
                      "kv_router zone \"%V\": what was estimated of worker "
                      "\"%s\" is forgotten: the worker was restarted, or its "
                      "prefix caching is off, as it had nothing cached of %d "
                      "prompts in a row, or reports another start",
                      &zone->conf.name, conf.id, KVR_CAPACITY_MISSES);
    }
}


/* Says once of a worker what events would add. */

static void
ngx_http_kv_router_estimator_say(ngx_http_kv_router_estimator_t *e,
    uint32_t number, uint32_t generation, const char *id)
{
    uint32_t  told, *at;

    at = &e->zone->run.sh->turns[number].told;
    told = kvr_load32(at);

    if (told == generation + 1
        || !__atomic_compare_exchange_n(at, &told, generation + 1, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    {
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, e->log, 0,
                  "kv_router zone \"%V\": what worker \"%s\" has cached is "
                  "estimated from its answers: what other routers send there, "
                  "and when the engine drops blocks, is not known; with the "
                  "engine's KV events, a kv-relay beside it and "
                  "kv_router_redis it is", &e->zone->conf.name, id);
}


/* ---- what is told ------------------------------------------------------- */

void
ngx_http_kv_router_routed(ngx_http_kv_router_zone_t *zone,
    const kvr_routed_record_t *record, const uint64_t *locals)
{
    ngx_http_kv_router_estimator_t  *e;

    e = zone->run.estimator;

    if (e == NULL || e->mine == 0) {
        ngx_http_kv_router_count(zone->run.sh, ROUTED_LOST, 1);
        return;
    }

    (void) kvr_routed_append(e->rings[e->mine - 1], record, locals);
}


void
ngx_http_kv_router_restarted(ngx_http_kv_router_zone_t *zone, uint32_t number,
    uint32_t generation)
{
    uint32_t             holder, steps;
    kvr_routed_record_t  record;

    ngx_memzero(&record, sizeof(kvr_routed_record_t));

    record.kind = KVR_ROUTED_RESTART;
    record.generation = generation;

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (kvr_router_next_holder(&zone->run.router, number, &holder, &steps))
    {
        record.holder = holder;
        ngx_http_kv_router_routed(zone, &record, NULL);
    }
}
