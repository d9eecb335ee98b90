
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The names of resolve=all: each address of a name is a worker.
 *
 * The process that has the lease of shard 0 looks the names up, and compares
 * what they have with the fleet, whenever one of both has changed.  The fleet
 * says which workers are of which name.  So what a dead process did by half,
 * and the workers of a name that is not configured any more, are found by the
 * next process.
 *
 * A worker of the configuration, the API or Redis that has the address is the
 * engine's worker; then there is none of the name.
 */


#include "ngx_http_kv_router_rounds.h"
#include "../module/ngx_http_kv_router_resolver.h"

#include <wire/kvr_address.h>

#include <stdlib.h>


#define NGX_HTTP_KV_ROUTER_NAMED_TICK  100     /* ms */
#define NGX_HTTP_KV_ROUTER_NAMED_TOLD  4       /* ids of a line of the log */


typedef struct {
    char                            text[KVR_NAME_ADDRESS];  /* with port */
    ngx_uint_t                      registered;
} ngx_http_kv_router_named_addr_t;


/* Workers that came or left, for a line of the log. */

typedef struct {
    ngx_uint_t                      n;
    size_t                          len;
    u_char                          text[NGX_HTTP_KV_ROUTER_NAMED_TOLD
                                         * (KVR_NAME_ADDRESS + 2) + 8];
} ngx_http_kv_router_named_ids_t;


typedef struct {
    ngx_http_kv_router_zone_t       *zone;
    const kvr_worker_conf_t         *conf;     /* the address is the name */
    ngx_str_t                        host;
    in_port_t                        port;
    ngx_resolver_ctx_t              *ctx;      /* NULL: no lookup runs */
    ngx_msec_t                       due;      /* the next lookup */
    uint32_t                         error;    /* of the last one */
    ngx_uint_t                       known;    /* 1: the addresses are */
    ngx_uint_t                       n;
    ngx_http_kv_router_named_addr_t *addrs;    /* sorted */
    ngx_uint_t                       unfit;    /* addresses, as was told */
    ngx_http_kv_router_named_ids_t   left;
} ngx_http_kv_router_named_name_t;


struct ngx_http_kv_router_named_s {
    ngx_http_kv_router_zone_t        *zone;
    ngx_event_t                       tick;
    ngx_connection_t                  dummy;   /* of the timer's log */
    ngx_uint_t                        leased;
    ngx_uint_t                        changed; /* to be compared */
    uint32_t                          version; /* of the fleet, as compared */
    ngx_uint_t                        n;
    ngx_http_kv_router_named_name_t  *names;
};


static void ngx_http_kv_router_named_tick(ngx_event_t *ev);
static void ngx_http_kv_router_named_look(ngx_http_kv_router_named_t *named);
static void ngx_http_kv_router_named_forget(
    ngx_http_kv_router_named_t *named);
static void ngx_http_kv_router_named_handler(ngx_resolver_ctx_t *ctx);
static ngx_int_t ngx_http_kv_router_named_keep(
    ngx_http_kv_router_named_name_t *name, const ngx_resolver_ctx_t *ctx);
static void ngx_http_kv_router_named_registered(
    ngx_http_kv_router_named_t *named, ngx_http_kv_router_fleet_t *fleet);
static void ngx_http_kv_router_named_leave(ngx_http_kv_router_named_t *named);
static void ngx_http_kv_router_named_come(ngx_http_kv_router_named_t *named,
    ngx_http_kv_router_named_name_t *name);


/* The text comes first in an element. */

static int ngx_libc_cdecl
ngx_http_kv_router_named_order(const void *one, const void *two)
{
    return strcmp(one, two);
}


static ngx_http_kv_router_named_addr_t *
ngx_http_kv_router_named_find(const ngx_http_kv_router_named_name_t *name,
    const char *text)
{
    return name->known ? bsearch(text, name->addrs, name->n,
                                 sizeof(ngx_http_kv_router_named_addr_t),
                                 ngx_http_kv_router_named_order)
                       : NULL;
}


/* The id is the address without the brackets of IPv6. */

static void
ngx_http_kv_router_named_conf(const ngx_http_kv_router_named_name_t *name,
    const char *address, kvr_worker_conf_t *conf)
{
    char  *id;

    *conf = *name->conf;

    ngx_memzero(conf->address, sizeof(conf->address));
    ngx_memcpy(conf->address, address, KVR_NAME_ADDRESS);

    for (id = conf->id; *address; address++) {
        if (*address != '[' && *address != ']') {
            *id++ = *address;
        }
    }
}


/* Adds to " (ID, ID, ...)". */

static void
ngx_http_kv_router_named_id(ngx_http_kv_router_named_ids_t *ids,
    const char *id)
{
    u_char  *p, *last;

    p = ids->text + ids->len;
    last = ids->text + sizeof(ids->text);

    if (++ids->n == 1) {
        p = ngx_slprintf(p, last, " (%s)", id);

    } else if (ids->n <= NGX_HTTP_KV_ROUTER_NAMED_TOLD) {
        p = ngx_slprintf(p - 1, last, ", %s)", id);

    } else if (ids->n == NGX_HTTP_KV_ROUTER_NAMED_TOLD + 1) {
        p = ngx_slprintf(p - 1, last, ", ...)");
    }

    ids->len = p - ids->text;
}


ngx_int_t
ngx_http_kv_router_named_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t                        i;
    const kvr_worker_conf_t          *conf;
    ngx_http_kv_router_named_t       *named;
    ngx_http_kv_router_named_name_t  *name;

    named = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_named_t));
    if (named == NULL) {
        return NGX_ERROR;
    }

    named->zone = zone;
    named->n = zone->conf.names.nelts;

    named->names = ngx_pcalloc(cycle->pool, (named->n + 1)
                               * sizeof(ngx_http_kv_router_named_name_t));
    if (named->names == NULL) {
        return NGX_ERROR;
    }

    conf = zone->conf.names.elts;

    for (i = 0; i < named->n; i++) {
        name = &named->names[i];

        name->zone = zone;
        name->conf = &conf[i];
        name->host.data = (u_char *) conf[i].address;
        name->host.len = kvr_address_named(conf[i].address);
        name->port = (in_port_t) ngx_atoi(name->host.data + name->host.len + 1,
                                          ngx_strlen(conf[i].address)
                                          - name->host.len - 1);
    }

    ngx_http_kv_router_timer(&named->tick, &named->dummy,
                             ngx_http_kv_router_named_tick, named,
                             cycle->log);

    ngx_add_timer(&named->tick, NGX_HTTP_KV_ROUTER_NAMED_TICK);

    zone->run.named = named;

    return NGX_OK;
}


void
ngx_http_kv_router_named_stop(ngx_http_kv_router_zone_t *zone)
{
    if (zone->run.named) {

        if (zone->run.named->tick.timer_set) {
            ngx_del_timer(&zone->run.named->tick);
        }

        ngx_http_kv_router_named_forget(zone->run.named);
        zone->run.named = NULL;
    }
}


static void
ngx_http_kv_router_named_tick(ngx_event_t *ev)
{
    ngx_connection_t            *c;
    ngx_http_kv_router_named_t  *named;

    c = ev->data;
    named = c->data;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        ngx_http_kv_router_named_forget(named);
        return;
    }

    if (kvr_router_leased(&named->zone->run.router, 0)) {
        named->changed |= !named->leased;
        named->leased = 1;
        ngx_http_kv_router_named_look(named);

    } else if (named->leased) {
        named->leased = 0;
        ngx_http_kv_router_named_forget(named);
    }

    ngx_add_timer(ev, NGX_HTTP_KV_ROUTER_NAMED_TICK);
}


/* Nothing is kept that another process will know better. */

static void
ngx_http_kv_router_named_forget(ngx_http_kv_router_named_t *named)
{
    ngx_uint_t                        i;
    ngx_http_kv_router_named_name_t  *name;

    for (i = 0; i < named->n; i++) {
        name = &named->names[i];

        if (name->ctx) {
            ngx_resolve_name_done(name->ctx);
            name->ctx = NULL;
        }

        name->due = 0;
        name->known = 0;
    }
}


static void
ngx_http_kv_router_named_look(ngx_http_kv_router_named_t *named)
{
    ngx_uint_t                        i;
    ngx_http_kv_router_zone_t        *zone;
    ngx_http_kv_router_fleet_t       *fleet;
    ngx_http_kv_router_named_name_t  *name;

    zone = named->zone;

    for (i = 0; i < named->n; i++) {
        name = &named->names[i];

        if (name->ctx || (name->due && ngx_current_msec < name->due)) {
            continue;
        }

        name->due = ngx_current_msec + NGX_HTTP_KV_ROUTER_RESOLVE_AGAIN;

        ngx_http_kv_router_count(zone->run.sh, NAMES_ASKED, 1);

        if (ngx_http_kv_router_resolve(zone, &name->host,
                                       ngx_http_kv_router_named_handler, name,
                                       &name->ctx)
            != NGX_AGAIN)
        {
            ngx_http_kv_router_count(zone->run.sh, NAMES_FAILED, 1);
        }
    }

    fleet = ngx_http_kv_router_fleet_get(zone);

    if (fleet == NULL) {
        return;
    }

    if (named->changed || named->version != fleet->version) {
        named->changed = 0;
        named->version = fleet->version;

        ngx_http_kv_router_named_registered(named, fleet);
        ngx_http_kv_router_named_leave(named);

        for (i = 0; i < named->n; i++) {
            ngx_http_kv_router_named_come(named, &named->names[i]);
        }
    }

    ngx_http_kv_router_fleet_put(fleet);
}


/* ---- lookups ------------------------------------------------------------ */

static void
ngx_http_kv_router_named_handler(ngx_resolver_ctx_t *ctx)
{
    uint32_t                          error;
    ngx_http_kv_router_zone_t        *zone;
    ngx_http_kv_router_named_name_t  *name;

    name = ctx->data;
    name->ctx = NULL;
    zone = name->zone;

    name->due = ngx_current_msec + ngx_http_kv_router_resolved(ctx, &error);

    if (error == 0 || error == NGX_RESOLVE_NXDOMAIN) {

        if (ngx_http_kv_router_named_keep(name, ctx) == NGX_OK) {
            name->known = 1;
            zone->run.named->changed = 1;
        }
    }

    ngx_resolve_name_done(ctx);

    if (error) {
        ngx_http_kv_router_count(zone->run.sh, NAMES_FAILED, 1);

        if (error != name->error) {
            ngx_http_kv_router_warn(zone, NGX_LOG_ERR, ngx_cycle->log,
                                    "\"%s\" could not be resolved (%s), %s",
                                    name->conf->address,
                                    ngx_http_kv_router_name_error(error),
                                    error == NGX_RESOLVE_NXDOMAIN
                                    ? "it has no workers"
                                    : "its workers stay as they are");
        }
    }

    name->error = error;
}


static ngx_int_t
ngx_http_kv_router_named_keep(ngx_http_kv_router_named_name_t *name,
    const ngx_resolver_ctx_t *ctx)
{
    ngx_uint_t                        i, n;
    ngx_http_kv_router_named_addr_t  *addrs;

    n = ctx->state == NGX_OK ? ctx->naddrs : 0;

    addrs = ngx_alloc((n + 1) * sizeof(ngx_http_kv_router_named_addr_t),
                      ngx_cycle->log);
    if (addrs == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        ngx_http_kv_router_resolved_text(&ctx->addrs[i], name->port,
                                         addrs[i].text);
    }

    qsort(addrs, n, sizeof(ngx_http_kv_router_named_addr_t),
          ngx_http_kv_router_named_order);

    if (name->addrs) {
        ngx_free(name->addrs);
    }

    name->addrs = addrs;
    name->n = 0;

    /* an answer may have an address twice */

    for (i = 0; i < n; i++) {
        if (i == 0 || strcmp(addrs[i].text, addrs[i - 1].text) != 0) {
            addrs[name->n++] = addrs[i];
        }
    }

    return NGX_OK;
}


/* ---- the fleet ---------------------------------------------------------- */

/* Marks the addresses that workers have which are not of a name. */

static void
ngx_http_kv_router_named_registered(ngx_http_kv_router_named_t *named,
    ngx_http_kv_router_fleet_t *fleet)
{
    char                              text[KVR_NAME_ADDRESS];
    ngx_uint_t                        i, k;
    ngx_resolver_addr_t               addr;
    ngx_sockaddr_t                    sa;
    ngx_http_kv_router_holder_t      *h;
    ngx_http_kv_router_named_addr_t  *a;
    ngx_http_kv_router_named_name_t  *name;

    for (i = 0; i < named->n; i++) {
        name = &named->names[i];

        for (k = 0; k < name->n; k++) {
            name->addrs[k].registered = 0;
        }
    }

    for (k = 0; k < fleet->n; k++) {
        h = &fleet->holders[k];

        if (h->rank != 0
            || kvr_load32(&h->worker->generation) != h->generation
            || kvr_load32(&h->worker->flags)
               & (KVR_WORKER_NAMED|KVR_WORKER_DELETED))
        {
            continue;
        }

        (void) ngx_cpystrn((u_char *) text, h->address.data, sizeof(text));

#if (NGX_HAVE_INET6)

        /* there are several ways to write it */

        if (text[0] == '['
            && ngx_inet6_addr(h->host.data + 1, h->host.len - 2,
                              sa.sockaddr_in6.sin6_addr.s6_addr)
               == NGX_OK)
        {
            sa.sockaddr.sa_family = AF_INET6;
            addr.sockaddr = &sa.sockaddr;
            addr.socklen = sizeof(struct sockaddr_in6);
            ngx_http_kv_router_resolved_text(&addr, h->port, text);
        }

#endif

        for (i = 0; i < named->n; i++) {
            a = ngx_http_kv_router_named_find(&named->names[i], text);

            if (a) {
                a->registered = 1;
            }
        }
    }
}


/*
 * Takes out what is not an address of its name any more, or is registered.
 * What is of no name of the configuration is counted behind the names.
 */

static void
ngx_http_kv_router_named_leave(ngx_http_kv_router_named_t *named)
{
    uint32_t                          i, n, flags, generation;
    kvr_rc_t                          rc;
    ngx_uint_t                        k;
    kvr_router_t                     *r;
    kvr_worker_conf_t                 conf;
    const kvr_worker_t               *w;
    ngx_http_kv_router_named_ids_t   *left;
    ngx_http_kv_router_named_addr_t  *a;

    r = &named->zone->run.router;
    n = kvr_router_workers(r);

    for (i = 0; i < n; i++) {
        w = kvr_router_worker(r, i);

        if (!(kvr_load32(&w->flags) & KVR_WORKER_NAMED)
            || kvr_router_read_worker(r, i, &conf, &flags, &generation)
               != KVR_OK)
        {
            continue;
        }

        for (k = 0; k < named->n && named->names[k].conf->name != conf.name;
             k++)
        {
            /* void */
        }

        if (k < named->n) {

            if (!named->names[k].known) {
                continue;
            }

            a = ngx_http_kv_router_named_find(&named->names[k], conf.address);

            if (a && (!a->registered || flags & KVR_WORKER_DELETED)) {
                continue;
            }
        }

        rc = kvr_router_take_named(r, conf.id, ngx_strlen(conf.id), conf.name);

        if (rc == KVR_OK && !(flags & KVR_WORKER_DELETED)) {
            ngx_http_kv_router_named_id(&named->names[k].left, conf.id);
        }

        named->changed |= (rc == KVR_BUSY);
    }

    left = &named->names[named->n].left;

    if (left->n) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": %ui workers left%*s, their name "
                      "is not in the configuration", &named->zone->conf.name,
                      left->n, left->len, left->text);

        ngx_memzero(left, sizeof(ngx_http_kv_router_named_ids_t));
    }
}


/* Makes the workers of a name, and tells what has changed of them. */

static void
ngx_http_kv_router_named_come(ngx_http_kv_router_named_t *named,
    ngx_http_kv_router_named_name_t *name)
{
    char                            why[KVR_NO_ROOM];
    uint32_t                        slot;
    kvr_rc_t                        rc;
    ngx_uint_t                      i, new, unfit, registered;
    kvr_router_t                   *r;
    kvr_worker_conf_t               conf;
    const kvr_worker_t             *w;
    ngx_http_kv_router_named_ids_t  came;

    r = &named->zone->run.router;
    unfit = 0;
    registered = 0;

    ngx_memzero(&came, sizeof(ngx_http_kv_router_named_ids_t));

    for (i = 0; name->known && i < name->n; i++) {

        if (name->addrs[i].registered) {
            registered++;
            continue;
        }

        ngx_http_kv_router_named_conf(name, name->addrs[i].text, &conf);

        /* only this process writes workers of names */

        w = kvr_router_find_worker(r, conf.id, ngx_strlen(conf.id), &slot)
            == KVR_OK ? kvr_router_worker(r, slot) : NULL;

        new = w == NULL || (kvr_load32(&w->flags)
                            & (KVR_WORKER_NAMED|KVR_WORKER_DELETED))
                           != KVR_WORKER_NAMED;

        if (!new && ngx_memcmp(&w->conf, &conf, sizeof(conf)) == 0) {
            continue;
        }

        rc = kvr_router_put_worker(r, &conf, KVR_WORKER_NAMED);

        if (rc == KVR_OK && new) {
            ngx_http_kv_router_named_id(&came, conf.id);

        } else if (rc == KVR_FULL && unfit++ == 0) {
            kvr_router_no_room(r, conf.id, ngx_strlen(conf.id), why);
        }

        named->changed |= (rc == KVR_BUSY);
    }

    if (came.n || name->left.n) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": \"%s\" has %ui addresses, "
                      "%ui of registered workers: %ui workers came%*s, %ui "
                      "left%*s",
                      &named->zone->conf.name, name->conf->address, name->n,
                      registered, came.n, came.len, came.text, name->left.n,
                      name->left.len, name->left.text);

        ngx_memzero(&name->left, sizeof(ngx_http_kv_router_named_ids_t));
    }

    if (unfit && unfit != name->unfit) {
        ngx_http_kv_router_warn(named->zone, NGX_LOG_WARN, ngx_cycle->log,
                                "%ui of %ui addresses of \"%s\" are no "
                                "workers: %s", unfit, name->n,
                                name->conf->address, why);
    }

    name->unfit = unfit;
}
