
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A process's part: its publisher, and the tick, which looks for the lease.
 */


#include "ngx_http_kv_router_sync.h"


/* milliseconds between two tries to go where the events come from */
#define NGX_HTTP_KV_ROUTER_SYNC_MOVE  1000


/* Of several URLs, all of the zone use that which the events come from. */

static void
ngx_http_kv_router_sync_server(ngx_http_kv_router_sync_t *s)
{
    ngx_uint_t                   server;
    ngx_http_kv_router_redis_t  *r;

    r = &s->publisher;
    server = s->zone->run.sh->redis_server;

    if (!r->ready || r->server == server
        || server >= s->zone->conf.redis->servers.nelts
        || ngx_current_msec - s->moved < NGX_HTTP_KV_ROUTER_SYNC_MOVE)
    {
        return;
    }

    s->moved = ngx_current_msec;

    ngx_http_kv_router_redis_close(r);
    r->server = server;
    ngx_http_kv_router_redis_open(r);
}


static void
ngx_http_kv_router_sync_tick(ngx_event_t *ev)
{
    bool                        leads, taken;
    ngx_connection_t           *dummy;
    ngx_http_kv_router_sync_t  *s;

    dummy = ev->data;
    s = dummy->data;

    leads = kvr_peers_lease(&s->zone->run.router.peers, ngx_exiting,
                            ngx_current_msec, &taken);

    if (!leads || taken) {
        ngx_http_kv_router_lead_end(s);
    }

    if (leads && (s->group || ngx_http_kv_router_lead_begin(s) == NGX_OK)) {
        ngx_http_kv_router_lead_tick(s);
    }

    ngx_http_kv_router_sync_tell(s);
    ngx_http_kv_router_sync_server(s);

    ngx_add_timer(ev, KVR_TELLER_ROWS_MS);
}


static void
ngx_http_kv_router_sync_soon(ngx_event_t *ev)
{
    ngx_connection_t  *dummy;

    dummy = ev->data;

    ngx_http_kv_router_sync_tell(dummy->data);
}


static void
ngx_http_kv_router_sync_connected(ngx_http_kv_router_redis_t *r)
{
    ngx_str_t                  *name;
    ngx_http_kv_router_sync_t  *s;

    s = r->data;
    name = &s->zone->conf.name;

    /* databases of a server have the same channels */

    (void) ngx_snprintf((u_char *) s->channel, sizeof(s->channel),
                        "kv-sync:%*s:%i:%s%Z",
                        ngx_min(name->len, NGX_HTTP_KV_ROUTER_SYNC_NAME),
                        name->data, ngx_http_kv_router_redis_current(r)->db,
                        s->hash);

    ngx_http_kv_router_redis_works(r);
    ngx_http_kv_router_redis_follow(&s->subscriber);
}


ngx_int_t
ngx_http_kv_router_sync_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    kvr_owner_t                 self;
    ngx_http_kv_router_sync_t  *s;

    if (!ngx_http_kv_router_syncs(zone) || zone->run.sync) {
        return NGX_OK;
    }

    s = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_sync_t));
    if (s == NULL) {
        return NGX_ERROR;
    }

    s->zone = zone;
    s->log = cycle->log;

    /* the start time tells a process from an earlier one of the same pid */

    self = kvr_router_self(&zone->run.router);
    s->message.router = zone->run.router.peers.zone->router;
    s->message.process = (uint32_t) kvr_owner_pid(self) * 0x9e3779b1u
                         ^ (uint32_t) self;

    if (kvr_sync_channel_hash(&zone->conf.params,
                              (char *) zone->conf.sync.key.data,
                              zone->conf.sync.key.len, s->hash)
        != KVR_OK)
    {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "kv_router zone \"%V\": no SHA-256, so peers are not "
                      "heard", &zone->conf.name);
        return NGX_OK;
    }

    (void) ngx_snprintf((u_char *) s->name, KVR_PEERS_NAME_MAX, "%V",
                        zone->conf.sync.name.len ? &zone->conf.sync.name
                                                 : &cycle->hostname);

    ngx_http_kv_router_timer(&s->tick, &s->dummy,
                             ngx_http_kv_router_sync_tick, s, s->log);
    ngx_http_kv_router_timer(&s->soon, &s->dummy,
                             ngx_http_kv_router_sync_soon, s, s->log);

    zone->run.sync = s;

    ngx_http_kv_router_sync_open(s, &s->publisher, "sync",
                                 ngx_http_kv_router_sync_connected);

    ngx_add_timer(&s->tick, KVR_TELLER_ROWS_MS);

    return NGX_OK;
}


void
ngx_http_kv_router_sync_stop(ngx_http_kv_router_zone_t *zone)
{
    ngx_http_kv_router_sync_t  *s;

    s = zone->run.sync;

    if (s == NULL) {
        return;
    }

    zone->run.sync = NULL;

    ngx_http_kv_router_sync_tell(s);

    /* no event comes any more */

    if (s->publisher.ready) {
        (void) ngx_http_kv_router_redis_flush(&s->publisher);
    }

    ngx_http_kv_router_lead_end(s);
    kvr_peers_release(&zone->run.router.peers, ngx_current_msec);

    ngx_http_kv_router_redis_close(&s->publisher);
}
