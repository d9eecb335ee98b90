
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What this process has in flight, as its peers are told: the first add at
 * once, what follows within 2 ms together.  Ends can wait for the tick.
 */


#include "ngx_http_kv_router_sync.h"


#define NGX_HTTP_KV_ROUTER_SYNC_SOON  2    /* ms */


/*
 * Writes the load of the adds' holders, each once, and sets the row of each
 * add; 0: its worker is gone.
 */

static void
ngx_http_kv_router_sync_rows(ngx_http_kv_router_sync_t *s, uint64_t *rows)
{
    uint32_t             flags, generation, worker;
    ngx_uint_t           i, k;
    kvr_router_t        *router;
    kvr_flight_t        *f;
    kvr_load_row_t       load;
    kvr_worker_conf_t    conf;

    router = &s->zone->run.router;

    for (i = 0; i < s->nadds; i++) {

        f = &s->adds[i].flight;
        rows[i] = 0;

        for (k = 0; k < i && (s->adds[k].flight.holder != f->holder
                              || s->adds[k].flight.generation
                                 != f->generation);
             k++) { /* void */ }

        if (k < i) {
            rows[i] = rows[k];
            continue;
        }

        worker = kvr_router_holder_worker(router, f->holder);

        if (worker >= kvr_router_max_workers(router)
            || kvr_router_read_worker(router, worker, &conf, &flags,
                                      &generation)
               != KVR_OK
            || generation != f->generation)
        {
            continue;
        }

        rows[i] = kvr_sync_row(conf.id, ngx_strlen(conf.id),
                               kvr_router_holder_rank(router, f->holder));

        kvr_load_read(&router->load, f->holder, f->generation, &load);

        (void) kvr_sync_put_load(&s->writer, rows[i], &load, ngx_current_msec);
    }
}


void
ngx_http_kv_router_sync_tell(ngx_http_kv_router_sync_t *s)
{
    uint64_t        rows[NGX_HTTP_KV_ROUTER_SYNC_ADDS];
    ngx_uint_t      i;
    kvr_sync_add_t  add;

    if (s->nadds == 0 && s->nends == 0) {
        return;
    }

    /* the clock is older than the rows, which are older than the adds */

    ngx_http_kv_router_sync_begin(s, false, 0);
    ngx_http_kv_router_sync_rows(s, rows);

    for (i = 0; i < s->nadds; i++) {
        add.id = s->adds[i].id;
        add.row = rows[i];
        add.n = s->adds[i].flight.n;
        ngx_memcpy(add.chains, s->adds[i].flight.chains,
                   add.n * sizeof(uint64_t));

        if (add.row) {
            (void) kvr_sync_put_add(&s->writer, &add);
        }
    }

    for (i = 0; i < s->nends; i++) {
        (void) kvr_sync_put_end(&s->writer, s->ends[i]);
    }

    if (!ngx_http_kv_router_sync_finish(s)) {
        ngx_http_kv_router_count(s->zone->run.sh, SYNC_DROPPED, s->nadds);
    }

    s->nadds = 0;
    s->nends = 0;
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
    ngx_http_kv_router_sync_t      *s;
    ngx_http_kv_router_sync_add_t  *add;

    s = ngx_http_kv_router_sync_heard(zone);

    if (s == NULL) {
        return;
    }

    if (s->nadds == NGX_HTTP_KV_ROUTER_SYNC_ADDS) {
        ngx_http_kv_router_sync_tell(s);
    }

    add = &s->adds[s->nadds++];
    add->id = id;
    add->flight = *flight;

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

    if (s->nends == NGX_HTTP_KV_ROUTER_SYNC_ENDS) {
        ngx_http_kv_router_sync_tell(s);
    }

    s->ends[s->nends++] = id;
}
