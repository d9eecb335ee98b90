
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A process's copy of the fleet.
 */


#include "ngx_http_kv_router_fleet.h"

#include <wire/kvr_address.h>


#define NGX_HTTP_KV_ROUTER_AUTO_SECONDS  2  /* of prefilling: what "auto" is */


static ngx_http_kv_router_fleet_t *ngx_http_kv_router_fleet_make(
    ngx_http_kv_router_zone_t *zone, uint32_t version);
static ngx_int_t ngx_http_kv_router_fleet_worker(
    ngx_http_kv_router_fleet_t *fleet, ngx_http_kv_router_zone_t *zone,
    uint32_t slot);
static void ngx_http_kv_router_fleet_bound(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_conf_t *conf, ngx_http_kv_router_holder_t *h);
static void ngx_http_kv_router_fleet_twins(ngx_http_kv_router_fleet_t *fleet,
    ngx_http_kv_router_zone_t *zone);
static ngx_int_t ngx_http_kv_router_fleet_named(
    ngx_http_kv_router_fleet_t *fleet, ngx_http_kv_router_zone_t *zone,
    uint32_t slot, uint32_t generation, ngx_str_t *id, ngx_str_t *address);
static ngx_int_t ngx_http_kv_router_fleet_string(ngx_pool_t *pool,
    ngx_str_t *s, const char *from);
static void ngx_http_kv_router_fleet_split(ngx_http_kv_router_holder_t *h);


ngx_http_kv_router_fleet_t *
ngx_http_kv_router_fleet_get(ngx_http_kv_router_zone_t *zone)
{
    uint32_t                     version;
    ngx_http_kv_router_fleet_t  *fleet;

    /* changes with each of the three */

    version = kvr_router_version(&zone->run.router)
              + (uint32_t) zone->run.sh->engines_learned
              + (uint32_t) zone->run.sh->names_changed;

    if (zone->run.fleet == NULL || zone->run.fleet->version != version) {

        fleet = ngx_http_kv_router_fleet_make(zone, version);

        if (fleet) {
            if (zone->run.fleet) {
                ngx_http_kv_router_fleet_put(zone->run.fleet);
            }

            zone->run.fleet = fleet;
        }

        /* without memory for a new copy, the old copy is used */
    }

    if (zone->run.fleet) {
        zone->run.fleet->refs++;
    }

    return zone->run.fleet;
}


void
ngx_http_kv_router_fleet_put(ngx_http_kv_router_fleet_t *fleet)
{
    if (--fleet->refs == 0) {
        ngx_destroy_pool(fleet->pool);
    }
}


static ngx_http_kv_router_fleet_t *
ngx_http_kv_router_fleet_make(ngx_http_kv_router_zone_t *zone,
    uint32_t version)
{
    uint32_t                     i, n, max;
    ngx_pool_t                  *pool;
    ngx_http_kv_router_fleet_t  *fleet;

    pool = ngx_create_pool(16384, ngx_cycle->log);
    if (pool == NULL) {
        return NULL;
    }

    max = kvr_router_max_holders(&zone->run.router);

    fleet = ngx_pcalloc(pool, sizeof(ngx_http_kv_router_fleet_t));
    if (fleet == NULL) {
        goto failed;
    }

    fleet->version = version;
    fleet->refs = 1;
    fleet->pool = pool;

    fleet->size = ngx_min(kvr_router_holders(&zone->run.router), max);

    fleet->holders = ngx_pcalloc(pool, (fleet->size + 1)
                                 * sizeof(ngx_http_kv_router_holder_t));
    fleet->by_holder = ngx_pcalloc(pool, max * sizeof(uint32_t));

    if (fleet->holders == NULL || fleet->by_holder == NULL
        || ngx_array_init(&fleet->named, pool, 4,
                          sizeof(ngx_http_kv_router_holder_t))
           != NGX_OK)
    {
        goto failed;
    }

    n = kvr_router_workers(&zone->run.router);

    for (i = 0; i < n; i++) {
        if (ngx_http_kv_router_fleet_worker(fleet, zone, i) != NGX_OK) {
            goto failed;
        }
    }

    ngx_http_kv_router_fleet_twins(fleet, zone);

    return fleet;

failed:

    ngx_destroy_pool(pool);

    return NULL;
}


static ngx_int_t
ngx_http_kv_router_fleet_worker(ngx_http_kv_router_fleet_t *fleet,
    ngx_http_kv_router_zone_t *zone, uint32_t slot)
{
    uint32_t                      rank, id, flags, generation, engine, first;
    kvr_rc_t                      rc;
    ngx_int_t                     routable;
    ngx_str_t                     name, address, model, lora;
    kvr_router_t                 *k;
    kvr_rungs_found_t             found;
    kvr_worker_conf_t             conf;
    ngx_http_kv_router_holder_t  *h;

    k = &zone->run.router;

    rc = kvr_router_read_worker(k, slot, &conf, &flags, &generation);

    if (rc == KVR_BUSY) {
        /* a process is writing the worker: the next request looks again */
        fleet->version--;
        return NGX_OK;
    }

    if (rc != KVR_OK || flags & KVR_WORKER_DELETED
        || conf.address[0] == '\0')
    {
        return NGX_OK;
    }

    if (ngx_http_kv_router_fleet_string(fleet->pool, &name, conf.id)
        != NGX_OK
        || ngx_http_kv_router_fleet_string(fleet->pool, &address,
                                           conf.address)
           != NGX_OK
        || ngx_http_kv_router_fleet_string(fleet->pool, &model, conf.model)
           != NGX_OK
        || ngx_http_kv_router_fleet_string(fleet->pool, &lora, conf.lora)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    routable = ngx_http_kv_router_fleet_named(fleet, zone, slot, generation,
                                              &name, &address);
    if (routable != NGX_OK) {
        return routable == NGX_DECLINED ? NGX_OK : NGX_ERROR;
    }

    /* nobody said what engine it is: the probe may have found it */

    engine = conf.engine;

    if (engine == KVR_ENGINE_UNKNOWN
        && kvr_rungs_read(&zone->run.sh->rungs[slot], generation, &found))
    {
        engine = found.engine;
    }

    first = KVR_HOLDER_NONE;

    for (rank = 0; rank < conf.ranks; rank++) {

        if (fleet->n == fleet->size) {
            /* holders added meanwhile will be in the next copy */
            return NGX_OK;
        }

        if (kvr_router_find_holder(k, slot, rank, &id) != KVR_OK
            || fleet->by_holder[id])
        {
            continue;
        }

        h = &fleet->holders[fleet->n++];

        first = first == KVR_HOLDER_NONE ? id : first;

        h->holder = id;
        h->first = first;
        h->generation = generation;
        h->worker = kvr_router_worker(k, slot);
        h->number = slot;
        h->rank = rank;
        h->role = conf.role;
        h->max_active = conf.max_active;
        h->engine = engine;
        h->weight = conf.weight / 1000.0;
        h->speed = kvr_speed_read(ngx_http_kv_router_speed(zone, id),
                                  generation, zone->run.speed);
        h->id = name;
        h->address = address;
        h->model = model;
        h->lora = lora;
        ngx_http_kv_router_health_params(zone, &conf, &h->health);
        h->draining = (flags & KVR_WORKER_DRAINS) ? 1 : 0;

        ngx_http_kv_router_fleet_bound(zone, &conf, h);
        ngx_http_kv_router_fleet_split(h);

        fleet->engines |= kvr_engine_bit(h->engine);
        fleet->by_holder[id] = fleet->n;
    }

    return NGX_OK;
}


/* Workers that only decode are sent prompts that were prefilled elsewhere. */

static void
ngx_http_kv_router_fleet_bound(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_conf_t *conf, ngx_http_kv_router_holder_t *h)
{
    uint32_t  tokens;

    tokens = conf->role == KVR_ROLE_DECODE ? 0
             : conf->own & KVR_OWN_TOKENS ? conf->max_prefill_tokens
                                          : zone->conf.max_prefill_tokens;

    if (tokens == KVR_TOKENS_AUTO) {
        h->auto_seconds = NGX_HTTP_KV_ROUTER_AUTO_SECONDS * conf->ranks;

    } else {
        h->max_prefill_tokens = tokens;
    }
}


uint32_t
ngx_http_kv_router_fleet_tokens(ngx_http_kv_router_zone_t *zone,
    uint32_t number)
{
    uint32_t                     i, holder, tokens;
    ngx_http_kv_router_fleet_t  *fleet;

    fleet = ngx_http_kv_router_fleet_get(zone);
    if (fleet == NULL) {
        return 0;
    }

    i = kvr_router_find_holder(&zone->run.router, number, 0, &holder)
        == KVR_OK ? fleet->by_holder[holder] : 0;
    tokens = i ? ngx_http_kv_router_holder_tokens(&fleet->holders[i - 1]) : 0;

    ngx_http_kv_router_fleet_put(fleet);

    return tokens;
}


/*
 * Tells once of each worker that has the address of another one, unless both
 * are of the configuration alone: nginx has told of these at its start.  One
 * that was made for a host name is about to go.
 */

static void
ngx_http_kv_router_fleet_twins(ngx_http_kv_router_fleet_t *fleet,
    ngx_http_kv_router_zone_t *zone)
{
    uint32_t                       i, k, size, was, flags, *told;
    ngx_http_kv_router_holder_t   *h, *other, **table;

    for (size = 1; size < 2 * fleet->n; size *= 2) { /* void */ }

    table = ngx_pcalloc(fleet->pool, size * sizeof(table[0]));

    for (i = 0; table && i < fleet->n; i++) {
        h = &fleet->holders[i];

        if (h->rank != 0) {
            continue;
        }

        k = ngx_murmur_hash2(h->address.data, h->address.len) & (size - 1);

        for (other = table[k]; other; other = table[k]) {

            if (ngx_http_kv_router_same(&other->address, &h->address)) {
                break;
            }

            k = (k + 1) & (size - 1);
        }

        told = &zone->run.sh->turns[h->number].twin;

        if (other == NULL) {
            table[k] = h;
            kvr_put32(told, 0);
            continue;
        }

        was = kvr_load32(told);

        flags = kvr_load32(&h->worker->flags)
                | kvr_load32(&other->worker->flags);

        if (!(flags & (KVR_WORKER_API|KVR_WORKER_REDIS))
            || flags & KVR_WORKER_NAMED
            || was == h->generation + 1
            || !__atomic_compare_exchange_n(told, &was, h->generation + 1,
                                            false, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED))
        {
            continue;
        }

        ngx_http_kv_router_warn(zone, NGX_LOG_WARN, ngx_cycle->log,
                                "the workers \"%V\" and \"%V\" have the same "
                                "address %V, so the load of this engine is "
                                "counted as that of two: leave one of them "
                                "out; a kv-relay names its worker by --worker",
                                &other->id, &h->id, &h->address);
    }
}


/*
 * Puts the IP address in the place of a host name.  NGX_DECLINED: the name is
 * not resolved, and no requests go to the worker.
 */

static ngx_int_t
ngx_http_kv_router_fleet_named(ngx_http_kv_router_fleet_t *fleet,
    ngx_http_kv_router_zone_t *zone, uint32_t slot, uint32_t generation,
    ngx_str_t *id, ngx_str_t *address)
{
    uint64_t                      mark;
    kvr_name_found_t              found;
    ngx_http_kv_router_holder_t  *named;

    mark = ngx_http_kv_router_name_mark((char *) address->data);

    if (mark == 0) {
        return NGX_OK;
    }

    named = ngx_array_push(&fleet->named);
    if (named == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(named, sizeof(ngx_http_kv_router_holder_t));

    named->number = slot;
    named->generation = generation;
    named->worker = kvr_router_worker(&zone->run.router, slot);
    named->id = *id;
    named->address = *address;

    if (!kvr_name_read(&zone->run.sh->names[slot], mark, &found)
        || found.address[0] == '\0')
    {
        return NGX_DECLINED;
    }

    return ngx_http_kv_router_fleet_string(fleet->pool, address,
                                           found.address);
}


uint64_t
ngx_http_kv_router_name_mark(const char *address)
{
    if (kvr_address_named(address) == 0) {
        return 0;
    }

    return (uint64_t) 1 << 32
           | ngx_murmur_hash2((u_char *) address, ngx_strlen(address));
}


static ngx_int_t
ngx_http_kv_router_fleet_string(ngx_pool_t *pool, ngx_str_t *s,
    const char *from)
{
    s->len = ngx_strlen(from);
    s->data = ngx_pnalloc(pool, s->len + 1);

    if (s->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(s->data, from, s->len + 1);

    return NGX_OK;
}


/*
 * Splits "host:port" or "[v6]:port"; the balancer needs the brackets, so that
 * they stay.
 */

static void
ngx_http_kv_router_fleet_split(ngx_http_kv_router_holder_t *h)
{
    u_char     *p;
    ngx_int_t   port;

    h->host = h->address;
    h->port = 0;

    if (ngx_strncmp(h->address.data, "unix:", 5) == 0) {
        return;
    }

    for (p = h->address.data + h->address.len; p > h->address.data; p--) {

        if (p[-1] == ':') {
            port = ngx_atoi(p, h->address.data + h->address.len - p);

            if (port > 0 && port < 65536) {
                h->port = (in_port_t) port;
                h->host.len = p - 1 - h->address.data;
            }

            return;
        }

        if (p[-1] == ']') {
            return;
        }
    }
}
