
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What this process has in flight, as its peers are told: the first add at
 * once, what follows within 2 ms together.  Ends can wait for the tick.
 */


#include "ngx_http_kv_router_sync.h"

#include <core/kvr_clock.h>


#define NGX_HTTP_KV_ROUTER_SYNC_SOON  2    /* ms */


/*
 * The row of a flight's holder, with the load that it has now; 0: its worker
 * is gone.
 */

static uint64_t
ngx_http_kv_router_sync_row(ngx_http_kv_router_sync_t *s,
    const kvr_flight_t *f)
{
    uint64_t             row;
    uint32_t             i, flags, generation, worker;
    kvr_router_t        *router;
    kvr_load_row_t       load;
    kvr_worker_conf_t    conf;
    kvr_sync_message_t  *m;

    m = &s->message;
    router = &s->zone->run.router;
    worker = kvr_router_holder_worker(router, f->holder);

    if (worker >= kvr_router_max_workers(router)
        || kvr_router_read_worker(router, worker, &conf, &flags, &generation)
           != KVR_OK
        || generation != f->generation)
    {
        return 0;
    }

    row = kvr_sync_row(conf.id, ngx_strlen(conf.id),
                       kvr_router_holder_rank(router, f->holder));

    for (i = 0; i < m->nrows && m->rows[i].row != row; i++) { /* void */ }

    if (i == m->nrows) {
        kvr_load_read(&router->load, f->holder, f->generation, &load);
        m->rows[m->nrows++] = kvr_sync_load(row, &load, ngx_current_msec);
    }

    return row;
}


void
ngx_http_kv_router_sync_tell(ngx_http_kv_router_sync_t *s)
{
    ngx_uint_t           i, k;
    kvr_sync_add_t      *add;
    kvr_sync_message_t  *m;

    m = &s->message;

    if (m->nadds == 0 && m->nends == 0) {
        return;
    }

    /* the clock is older than the rows, which are older than the adds */

    m->clock_us = kvr_now_us();
    m->nrows = 0;

    for (i = 0, k = 0; i < m->nadds; i++) {
        add = &m->adds[k];
        add->id = m->adds[i].id;
        add->row = ngx_http_kv_router_sync_row(s, &s->flights[i]);
        add->n = s->flights[i].n;
        ngx_memcpy(add->chains, s->flights[i].chains,
                   add->n * sizeof(uint64_t));

        k += add->row != 0;
    }

    m->nadds = k;

    if (!ngx_http_kv_router_sync_publish(s, s->bytes,
                                         kvr_sync_write(m, s->bytes)))
    {
        ngx_http_kv_router_count(s->zone->run.sh, SYNC_DROPPED, m->nadds);
    }

    m->nadds = 0;
    m->nends = 0;
    s->told = ngx_current_msec;
}


/* NULL: there is nobody to tell. */

static ngx_http_kv_router_sync_t *
ngx_http_kv_router_sync_heard(ngx_http_kv_router_zone_t *zone)
{
    return kvr_load32(&zone->run.router.peers.zone->npeers) ? zone->run.sync
                                                            : NULL;
}


void
ngx_http_kv_router_sync_add(ngx_http_kv_router_zone_t *zone,
    const kvr_flight_t *flight, uint32_t id)
{
    ngx_http_kv_router_sync_t  *s;

    s = ngx_http_kv_router_sync_heard(zone);

    if (s == NULL) {
        return;
    }

    if (s->message.nadds == KVR_SYNC_ADDS) {
        ngx_http_kv_router_sync_tell(s);
    }

    s->flights[s->message.nadds] = *flight;
    s->message.adds[s->message.nadds++].id = id;

    if (s->soon.posted || s->soon.timer_set) {
        return;
    }

    if (ngx_current_msec - s->told < NGX_HTTP_KV_ROUTER_SYNC_SOON) {
        ngx_add_timer(&s->soon, NGX_HTTP_KV_ROUTER_SYNC_SOON);

    } else {
        ngx_post_event(&s->soon, &ngx_posted_events);
    }
}


void
ngx_http_kv_router_sync_end(ngx_http_kv_router_zone_t *zone, uint32_t id)
{
    ngx_http_kv_router_sync_t  *s;

    s = ngx_http_kv_router_sync_heard(zone);

    if (s == NULL) {
        return;
    }

    if (s->message.nends == KVR_SYNC_ENDS) {
        ngx_http_kv_router_sync_tell(s);
    }

    s->message.ends[s->message.nends++] = id;
}
