
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Host names of workers, which the API and Redis may give: looked up by
 * nginx's resolver when the worker comes, and again when the TTL ends.
 *
 * The result is in the record of the name (kvr_name.h), where all processes
 * and the status page read it.  When an address changes, names_changed does,
 * and each process makes a new copy of the fleet.
 */


#include "ngx_http_kv_router_rounds.h"
#include "../module/ngx_http_kv_router_resolver.h"

#include <wire/kvr_address.h>


#define NGX_HTTP_KV_ROUTER_NAMES        16     /* at a time, of a process */
#define NGX_HTTP_KV_ROUTER_NAMES_TICK   100    /* ms */


typedef struct {
    ngx_http_kv_router_slot_t       slot;
    ngx_resolver_ctx_t             *ctx;       /* NULL: none runs */
    uint64_t                        mark;
    ngx_str_t                       host;
    in_port_t                       port;
} ngx_http_kv_router_lookup_t;


static ngx_uint_t ngx_http_kv_router_lookup_wanted(
    ngx_http_kv_router_zone_t *zone);
static ngx_uint_t ngx_http_kv_router_lookup_due(
    ngx_http_kv_router_zone_t *zone, ngx_http_kv_router_holder_t *h);
static void ngx_http_kv_router_lookup_start(ngx_http_kv_router_slot_t *slot);
static void ngx_http_kv_router_lookup_stop(ngx_http_kv_router_slot_t *slot);
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


const ngx_http_kv_router_rounds_kind_t  ngx_http_kv_router_lookups = {
    3,
    NGX_HTTP_KV_ROUTER_NAMES,
    sizeof(ngx_http_kv_router_lookup_t),
    NGX_HTTP_KV_ROUTER_NAMES_TICK,
    NGX_LOG_CRIT,
    1,
    ngx_http_kv_router_lookup_wanted,
    ngx_http_kv_router_lookup_due,
    ngx_http_kv_router_lookup_start,
    ngx_http_kv_router_lookup_stop
};


static ngx_uint_t
ngx_http_kv_router_lookup_wanted(ngx_http_kv_router_zone_t *zone)
{
    return 1;
}


static ngx_uint_t
ngx_http_kv_router_lookup_due(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_holder_t *h)
{
    return kvr_name_due(&zone->run.sh->names[h->number],
                   ngx_http_kv_router_name_mark((char *) h->address.data),
                   ngx_current_msec);
}


static void
ngx_http_kv_router_lookup_stop(ngx_http_kv_router_slot_t *slot)
{
    ngx_resolve_name_done(((ngx_http_kv_router_lookup_t *) slot)->ctx);
}


static void
ngx_http_kv_router_lookup_start(ngx_http_kv_router_slot_t *slot)
{
    ngx_int_t                     rc;
    kvr_name_found_t              before, found;
    ngx_http_kv_router_zone_t    *zone;
    ngx_http_kv_router_lookup_t  *l;

    l = (ngx_http_kv_router_lookup_t *) slot;
    zone = slot->zone;

    l->mark = ngx_http_kv_router_name_mark((char *) slot->address.data);

    l->host.data = slot->address.data;
    l->host.len = kvr_address_named((char *) slot->address.data);
    l->port = (in_port_t) ngx_atoi(l->host.data + l->host.len + 1,
                                   slot->address.len - l->host.len - 1);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": name of worker \"%V\": resolves "
                   "\"%V\"", &zone->conf.name, &slot->id, &l->host);

    ngx_http_kv_router_count(zone->run.sh, NAMES_ASKED, 1);

    rc = ngx_http_kv_router_resolve(zone, &l->host,
                                    ngx_http_kv_router_lookup_handler, l,
                                    &l->ctx);
    if (rc == NGX_AGAIN) {
        return;
    }

    (void) kvr_name_read(&zone->run.sh->names[slot->number], l->mark, &before);

    found = before;

    if (rc == NGX_DECLINED) {
        found.error = NGX_HTTP_KV_ROUTER_NO_RESOLVER;
    }

    ngx_http_kv_router_lookup_done(l, &before, &found,
                                   NGX_HTTP_KV_ROUTER_RESOLVE_AGAIN);
}


static void
ngx_http_kv_router_lookup_handler(ngx_resolver_ctx_t *ctx)
{
    ngx_msec_t                    delay;
    kvr_name_found_t              before, found;
    ngx_http_kv_router_lookup_t  *l;

    l = ctx->data;
    l->ctx = NULL;

    (void) kvr_name_read(&l->slot.zone->run.sh->names[l->slot.number], l->mark,
                         &before);

    found = before;
    delay = ngx_http_kv_router_resolved(ctx, &found.error);

    if (found.error == 0) {
        ngx_http_kv_router_lookup_pick(l, ctx, &before, &found);

    } else if (found.error == NGX_RESOLVE_NXDOMAIN) {
        found.naddrs = 0;
        ngx_memzero(found.address, KVR_NAME_ADDRESS);
    }

    ngx_resolve_name_done(ctx);

    ngx_http_kv_router_lookup_done(l, &before, &found, delay);
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
    char              text[KVR_NAME_ADDRESS];
    ngx_uint_t        i;
    struct sockaddr  *best;

    best = NULL;
    found->naddrs = ctx->naddrs;

    for (i = 0; i < ctx->naddrs; i++) {
        ngx_http_kv_router_resolved_text(&ctx->addrs[i], l->port, text);

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

    sh = l->slot.zone->run.sh;
    k = &l->slot.zone->run.router;

    l->slot.rounds = NULL;

    found->mark = l->mark;

    if (found->error) {
        ngx_http_kv_router_count(sh, NAMES_FAILED, 1);
    }

    moved = ngx_strcmp(found->address, before->address) != 0;

    if (!kvr_name_write(&sh->names[l->slot.number], found,
                        ngx_current_msec + delay))
    {
        return;
    }

    if (moved || found->error != before->error) {
        ngx_http_kv_router_lookup_say(l, found);
    }

    /* at another address is another run of the engine */

    if (moved && found->address[0]
        && ngx_http_kv_router_slot_current(&l->slot))
    {
        kvr_health_begin(kvr_router_health(k, l->slot.number),
                         l->slot.generation, ngx_current_msec);
        kvr_rungs_doubt(&sh->rungs[l->slot.number], ngx_current_msec);
    }

    if (moved) {
        (void) ngx_atomic_fetch_add(&sh->names_changed, 1);
    }
}


/* Logs a change; found has an error, or an address, or both. */

static void
ngx_http_kv_router_lookup_say(ngx_http_kv_router_lookup_t *l,
    const kvr_name_found_t *found)
{
    u_char                     *name;
    ngx_str_t                  *id;
    const char                 *why;
    ngx_http_kv_router_zone_t  *zone;

    zone = l->slot.zone;
    id = &l->slot.id;
    name = l->slot.address_data;
    why = ngx_http_kv_router_name_error(found->error);

    if (found->error) {
        ngx_http_kv_router_warn(zone, NGX_LOG_ERR, ngx_cycle->log,
                                found->address[0]
                                ? "worker \"%V\": \"%s\" could not be "
                                  "resolved (%s), its last address \"%s\" is "
                                  "used"
                                : "worker \"%V\": \"%s\" could not be "
                                  "resolved (%s), the worker gets no requests",
                                id, name, why, found->address);
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "kv_router zone \"%V\": worker \"%V\": \"%s\" is \"%s\"",
                  &zone->conf.name, id, name, found->address);

    if (found->naddrs > 1) {
        ngx_http_kv_router_warn(zone, NGX_LOG_WARN, ngx_cycle->log,
                                "worker \"%V\": \"%s\" has %uD addresses, "
                                "only \"%s\" is used: a worker is one engine, "
                                "each engine needs a name of its own",
                                id, name, found->naddrs,
                                found->address);
    }
}
