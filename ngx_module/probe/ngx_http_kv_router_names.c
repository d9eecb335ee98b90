
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Host names of workers, which the API and Redis may give: looked up by
 * nginx's resolver when the worker comes, and again when the TTL ends.
 *
 * Every process looks which names are due.  The record of a name (kvr_name.h)
 * decides which process looks the name up, so that all names are looked up
 * even if a process dies.  The result is in the record, where all processes
 * and the status page read it.  When an address changes, names_changed does,
 * and each process makes a new copy of the fleet.
 */


#include "../request/ngx_http_kv_router_route.h"
#include "../module/ngx_http_kv_router_resolver.h"

#include <wire/kvr_address.h>


#define NGX_HTTP_KV_ROUTER_NAMES        16     /* at a time, of a process */
#define NGX_HTTP_KV_ROUTER_NAMES_TICK   100    /* ms, and as much jitter */

#define NGX_HTTP_KV_ROUTER_NAMES_AGAIN  5000   /* ms after a failure */
#define NGX_HTTP_KV_ROUTER_NAMES_MAX    86400  /* s, whatever the TTL */


typedef struct ngx_http_kv_router_lookups_s  ngx_http_kv_router_lookups_t;


typedef struct {
    ngx_http_kv_router_zone_t      *zone;      /* NULL: free */
    ngx_resolver_ctx_t             *ctx;
    uint32_t                        number;    /* of the worker */
    uint32_t                        generation;
    uint64_t                        mark;
    ngx_str_t                       host;
    ngx_str_t                       id;
    in_port_t                       port;
    u_char                          address[KVR_ADDRESS_MAX + 1];
    u_char                          id_data[KVR_WORKER_ID_MAX];
} ngx_http_kv_router_lookup_t;


struct ngx_http_kv_router_lookups_s {
    ngx_http_kv_router_zone_t      *zone;
    ngx_event_t                     tick;
    ngx_connection_t                dummy;     /* fd of the tick */
    ngx_uint_t                      next;      /* first of the next tick */
    ngx_http_kv_router_lookup_t     all[NGX_HTTP_KV_ROUTER_NAMES];
};


static void ngx_http_kv_router_names_tick(ngx_event_t *ev);
static ngx_http_kv_router_lookup_t *ngx_http_kv_router_lookup_free(
    ngx_http_kv_router_lookups_t *names);
static void ngx_http_kv_router_lookup_start(ngx_http_kv_router_lookup_t *l,
    ngx_http_kv_router_zone_t *zone, ngx_http_kv_router_named_t *named);
static void ngx_http_kv_router_lookup_handler(ngx_resolver_ctx_t *ctx);
static void ngx_http_kv_router_lookup_pick(ngx_http_kv_router_lookup_t *l,
    ngx_resolver_ctx_t *ctx, const kvr_name_found_t *before,
    kvr_name_found_t *found);
static ngx_uint_t ngx_http_kv_router_lookup_less(const struct sockaddr *a,
    const struct sockaddr *b);
static void ngx_http_kv_router_lookup_done(ngx_http_kv_router_lookup_t *l,
    const kvr_name_found_t *before, kvr_name_found_t *found,
    ngx_msec_t delay);
static void ngx_http_kv_router_lookup_say(ngx_http_kv_router_lookup_t *l,
    const kvr_name_found_t *found);


ngx_int_t
ngx_http_kv_router_names_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_event_t                   *ev;
    ngx_http_kv_router_lookups_t  *names;

    names = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_lookups_t));
    if (names == NULL) {
        return NGX_ERROR;
    }

    names->zone = zone;

    names->dummy.fd = (ngx_socket_t) -1;
    names->dummy.data = names;

    ev = &names->tick;
    ev->handler = ngx_http_kv_router_names_tick;
    ev->data = &names->dummy;
    ev->log = cycle->log;
    ev->cancelable = 1;

    ngx_add_timer(ev, 1 + ngx_random() % NGX_HTTP_KV_ROUTER_NAMES_TICK);

    zone->names = names;

    return NGX_OK;
}


void
ngx_http_kv_router_names_stop(ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t                     i;
    ngx_http_kv_router_lookups_t  *names;

    names = zone->names;

    if (names == NULL) {
        return;
    }

    if (names->tick.timer_set) {
        ngx_del_timer(&names->tick);
    }

    for (i = 0; i < NGX_HTTP_KV_ROUTER_NAMES; i++) {
        if (names->all[i].ctx) {
            ngx_resolve_name_done(names->all[i].ctx);
        }
    }

    zone->names = NULL;
}


static void
ngx_http_kv_router_names_tick(ngx_event_t *ev)
{
    ngx_uint_t                     i;
    ngx_connection_t              *c;
    ngx_http_kv_router_zone_t     *zone;
    ngx_http_kv_router_fleet_t    *fleet;
    ngx_http_kv_router_named_t    *named;
    ngx_http_kv_router_lookup_t   *l;
    ngx_http_kv_router_lookups_t  *names;

    c = ev->data;
    names = c->data;
    zone = names->zone;

    if (ngx_exiting || ngx_terminate) {
        return;
    }

    fleet = ngx_http_kv_router_fleet_get(zone);

    for (i = 0; fleet && i < fleet->nnamed; i++) {

        l = ngx_http_kv_router_lookup_free(names);
        if (l == NULL) {
            break;
        }

        named = &fleet->named[(names->next + i) % fleet->nnamed];

        if (kvr_name_due(&zone->sh->names[named->number], named->mark,
                         ngx_current_msec))
        {
            ngx_http_kv_router_lookup_start(l, zone, named);
        }
    }

    names->next += i;

    if (fleet) {
        ngx_http_kv_router_fleet_put(fleet);
    }

    ngx_add_timer(ev, NGX_HTTP_KV_ROUTER_NAMES_TICK
                      + ngx_random() % NGX_HTTP_KV_ROUTER_NAMES_TICK);
}


/* NULL: the maximum number of lookups is running. */

static ngx_http_kv_router_lookup_t *
ngx_http_kv_router_lookup_free(ngx_http_kv_router_lookups_t *names)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_KV_ROUTER_NAMES; i++) {
        if (names->all[i].zone == NULL) {
            return &names->all[i];
        }
    }

    return NULL;
}


static void
ngx_http_kv_router_lookup_start(ngx_http_kv_router_lookup_t *l,
    ngx_http_kv_router_zone_t *zone, ngx_http_kv_router_named_t *named)
{
    ngx_int_t         rc;
    kvr_name_found_t  before, found;

    l->zone = zone;
    l->number = named->number;
    l->generation = named->generation;
    l->mark = named->mark;

    l->id.data = l->id_data;
    l->id.len = named->id.len;
    ngx_memcpy(l->id_data, named->id.data, named->id.len);

    ngx_memcpy(l->address, named->address.data, named->address.len);
    l->address[named->address.len] = '\0';

    l->host.data = l->address;
    l->host.len = kvr_address_named((char *) l->address);
    l->port = (in_port_t) ngx_atoi(l->address + l->host.len + 1,
                                   named->address.len - l->host.len - 1);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": name of worker \"%V\": resolves "
                   "\"%V\"", &zone->name, &l->id, &l->host);

    (void) ngx_atomic_fetch_add(&zone->sh->names_asked, 1);

    rc = ngx_http_kv_router_resolve(zone, &l->host,
                                    ngx_http_kv_router_lookup_handler, l,
                                    &l->ctx);
    if (rc == NGX_AGAIN) {
        return;
    }

    (void) kvr_name_read(&zone->sh->names[l->number], l->mark, &before);

    found = before;

    if (rc == NGX_DECLINED) {
        found.error = NGX_HTTP_KV_ROUTER_NO_RESOLVER;
    }

    ngx_http_kv_router_lookup_done(l, &before, &found,
                                   NGX_HTTP_KV_ROUTER_NAMES_AGAIN);
}


static void
ngx_http_kv_router_lookup_handler(ngx_resolver_ctx_t *ctx)
{
    time_t                        valid;
    kvr_name_found_t              before, found;
    ngx_http_kv_router_lookup_t  *l;

    l = ctx->data;
    l->ctx = NULL;

    (void) kvr_name_read(&l->zone->sh->names[l->number], l->mark, &before);

    found = before;
    found.error = ctx->state;
    valid = NGX_HTTP_KV_ROUTER_NAMES_AGAIN / 1000;

    if (ctx->state == NGX_OK && ctx->naddrs) {
        ngx_http_kv_router_lookup_pick(l, ctx, &before, &found);

        /* a second more: until then the resolver answers from its cache */

        valid = ngx_max(ctx->valid - ngx_time(), 0) + 1;
        valid = ngx_min(valid, NGX_HTTP_KV_ROUTER_NAMES_MAX);

    } else if (ctx->state == NGX_OK || ctx->state == NGX_RESOLVE_NXDOMAIN) {

        /*
         * the name has no address.  After all other errors the last address
         * stays: a name server that fails must not take workers out
         */

        found.error = NGX_RESOLVE_NXDOMAIN;
        found.naddrs = 0;
        ngx_memzero(found.address, KVR_NAME_ADDRESS);
    }

    ngx_resolve_name_done(ctx);

    ngx_http_kv_router_lookup_done(l, &before, &found,
                                   (ngx_msec_t) valid * 1000);
}


/*
 * Picks one of several addresses: that in use as long as the name has it, else
 * the lowest, IPv4 before IPv6, so that all routers pick the same.
 */

static void
ngx_http_kv_router_lookup_pick(ngx_http_kv_router_lookup_t *l,
    ngx_resolver_ctx_t *ctx, const kvr_name_found_t *before,
    kvr_name_found_t *found)
{
    u_char             text[KVR_NAME_ADDRESS];
    socklen_t          socklen;
    ngx_uint_t         i;
    ngx_sockaddr_t     sa;
    struct sockaddr   *best;

    best = NULL;
    found->naddrs = ctx->naddrs;

    for (i = 0; i < ctx->naddrs; i++) {

        socklen = ctx->addrs[i].socklen;

        ngx_memcpy(&sa, ctx->addrs[i].sockaddr, socklen);
        ngx_inet_set_port(&sa.sockaddr, l->port);

        ngx_memzero(text, sizeof(text));
        (void) ngx_sock_ntop(&sa.sockaddr, socklen, text, sizeof(text) - 1, 1);

        if (ngx_strcmp(text, before->address) == 0) {
            ngx_memcpy(found->address, text, sizeof(text));
            return;
        }

        if (best == NULL
            || ngx_http_kv_router_lookup_less(ctx->addrs[i].sockaddr, best))
        {
            best = ctx->addrs[i].sockaddr;
            ngx_memcpy(found->address, text, sizeof(text));
        }
    }
}


static ngx_uint_t
ngx_http_kv_router_lookup_less(const struct sockaddr *a,
    const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family) {
        return a->sa_family == AF_INET;
    }

#if (NGX_HAVE_INET6)
    if (a->sa_family == AF_INET6) {
        return ngx_memcmp(&((const struct sockaddr_in6 *) a)->sin6_addr,
                          &((const struct sockaddr_in6 *) b)->sin6_addr, 16)
               < 0;
    }
#endif

    return ngx_memcmp(&((const struct sockaddr_in *) a)->sin_addr,
                      &((const struct sockaddr_in *) b)->sin_addr, 4)
           < 0;
}


static void
ngx_http_kv_router_lookup_done(ngx_http_kv_router_lookup_t *l,
    const kvr_name_found_t *before, kvr_name_found_t *found, ngx_msec_t delay)
{
    ngx_uint_t                   moved;
    kvr_router_t                *k;
    ngx_http_kv_router_shctx_t  *sh;

    sh = l->zone->sh;
    k = &l->zone->router;

    found->mark = l->mark;

    if (found->error) {
        (void) ngx_atomic_fetch_add(&sh->names_failed, 1);
    }

    moved = ngx_strcmp(found->address, before->address) != 0;

    if (!kvr_name_write(&sh->names[l->number], found,
                        ngx_current_msec + delay))
    {
        l->zone = NULL;
        return;
    }

    if (moved || found->error != before->error) {
        ngx_http_kv_router_lookup_say(l, found);
    }

    /* at another address is another run of the engine */

    if (moved && found->address[0]
        && kvr_load32(&kvr_router_worker(k, l->number)->generation)
           == l->generation)
    {
        kvr_health_begin(kvr_router_health(k, l->number), l->generation,
                         ngx_current_msec);
        kvr_rungs_doubt(&sh->rungs[l->number], ngx_current_msec);
    }

    if (moved) {
        (void) ngx_atomic_fetch_add(&sh->names_changed, 1);
    }

    l->zone = NULL;
}


/* Logs a change; found has an error, or an address, or both. */

static void
ngx_http_kv_router_lookup_say(ngx_http_kv_router_lookup_t *l,
    const kvr_name_found_t *found)
{
    const char                 *why;
    ngx_http_kv_router_zone_t  *zone;

    zone = l->zone;
    why = ngx_http_kv_router_name_error(found->error);

    if (found->error) {
        ngx_http_kv_router_warn(zone, NGX_LOG_ERR, ngx_cycle->log,
                                found->address[0]
                                ? "worker \"%V\": \"%s\" could not be "
                                  "resolved (%s), its last address \"%s\" is "
                                  "used"
                                : "worker \"%V\": \"%s\" could not be "
                                  "resolved (%s), the worker gets no requests",
                                &l->id, l->address, why, found->address);
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "kv_router zone \"%V\": worker \"%V\": \"%s\" is \"%s\"",
                  &zone->name, &l->id, l->address, found->address);

    if (found->naddrs > 1) {
        ngx_http_kv_router_warn(zone, NGX_LOG_WARN, ngx_cycle->log,
                                "worker \"%V\": \"%s\" has %uD addresses, "
                                "only \"%s\" is used: a worker is one engine, "
                                "each engine needs a name of its own",
                                &l->id, l->address, found->naddrs,
                                found->address);
    }
}


const char *
ngx_http_kv_router_name_error(uint32_t error)
{
    if (error == NGX_HTTP_KV_ROUTER_NO_RESOLVER) {
        return "no \"resolver\" in the http block";
    }

    return error ? ngx_resolver_strerror(error) : "";
}
