
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_rounds.h"


struct ngx_http_kv_router_rounds_s {
    const ngx_http_kv_router_rounds_kind_t  *kind;
    ngx_http_kv_router_zone_t               *zone;
    ngx_event_t                              tick;
    ngx_connection_t                         dummy;    /* fd of the tick */
    ngx_log_t                                log;
    ngx_uint_t                               next;     /* first of the next
                                                          tick */
    u_char                                  *slots;
};


static ngx_http_kv_router_slot_t *ngx_http_kv_router_rounds_slot(
    ngx_http_kv_router_rounds_t *rounds, ngx_uint_t i);
static void ngx_http_kv_router_rounds_tick(ngx_event_t *ev);
static void ngx_http_kv_router_rounds_look(ngx_http_kv_router_rounds_t *rounds,
    ngx_http_kv_router_fleet_t *fleet);
static ngx_http_kv_router_slot_t *ngx_http_kv_router_rounds_free(
    ngx_http_kv_router_rounds_t *rounds);
static void ngx_http_kv_router_slot_start(ngx_http_kv_router_rounds_t *rounds,
    ngx_http_kv_router_slot_t *slot, ngx_http_kv_router_holder_t *h);


ngx_int_t
ngx_http_kv_router_rounds_begin(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_rounds_kind_t *kind)
{
    ngx_http_kv_router_rounds_t  *rounds;

    if (zone->run.rounds[kind->index]) {
        return NGX_OK;
    }

    rounds = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kv_router_rounds_t));
    if (rounds == NULL) {
        return NGX_ERROR;
    }

    rounds->slots = ngx_pcalloc(cycle->pool, kind->slots * kind->size);
    if (rounds->slots == NULL) {
        return NGX_ERROR;
    }

    rounds->kind = kind;
    rounds->zone = zone;

    rounds->log = *cycle->log;
    rounds->log.log_level = ngx_min(cycle->log->log_level, kind->level);

    ngx_http_kv_router_timer(&rounds->tick, &rounds->dummy,
                             ngx_http_kv_router_rounds_tick, rounds,
                             cycle->log);

    ngx_add_timer(&rounds->tick, 1 + ngx_random() % kind->tick);

    zone->run.rounds[kind->index] = rounds;

    return NGX_OK;
}


void
ngx_http_kv_router_rounds_stop(ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t                    i, k;
    ngx_http_kv_router_slot_t    *slot;
    ngx_http_kv_router_rounds_t  *rounds;

    for (i = 0; i < NGX_HTTP_KV_ROUTER_ROUNDS; i++) {
        rounds = zone->run.rounds[i];

        if (rounds == NULL) {
            continue;
        }

        if (rounds->tick.timer_set) {
            ngx_del_timer(&rounds->tick);
        }

        for (k = 0; k < rounds->kind->slots; k++) {
            slot = ngx_http_kv_router_rounds_slot(rounds, k);

            if (slot->client) {
                ngx_http_kv_router_client_cancel(slot->client);
            }

            if (slot->rounds && rounds->kind->stop) {
                rounds->kind->stop(slot);
            }
        }

        zone->run.rounds[i] = NULL;
    }

    ngx_http_kv_router_named_stop(zone);
}


static ngx_http_kv_router_slot_t *
ngx_http_kv_router_rounds_slot(ngx_http_kv_router_rounds_t *rounds,
    ngx_uint_t i)
{
    return (ngx_http_kv_router_slot_t *) (rounds->slots
                                          + i * rounds->kind->size);
}


static void
ngx_http_kv_router_rounds_tick(ngx_event_t *ev)
{
    ngx_connection_t             *c;
    ngx_http_kv_router_fleet_t   *fleet;
    ngx_http_kv_router_rounds_t  *rounds;

    c = ev->data;
    rounds = c->data;

    if (ngx_exiting || ngx_terminate) {
        return;
    }

    fleet = ngx_http_kv_router_fleet_get(rounds->zone);

    if (fleet) {
        ngx_http_kv_router_rounds_look(rounds, fleet);
        ngx_http_kv_router_fleet_put(fleet);
    }

    ngx_add_timer(ev, rounds->kind->tick + ngx_random() % rounds->kind->tick);
}


static void
ngx_http_kv_router_rounds_look(ngx_http_kv_router_rounds_t *rounds,
    ngx_http_kv_router_fleet_t *fleet)
{
    ngx_uint_t                    i, n;
    ngx_http_kv_router_slot_t    *slot;
    ngx_http_kv_router_holder_t  *h, *all;

    all = rounds->kind->named ? fleet->named.elts : fleet->holders;
    n = rounds->kind->named ? fleet->named.nelts : fleet->n;

    for (i = 0; i < n; i++) {

        slot = ngx_http_kv_router_rounds_free(rounds);
        if (slot == NULL) {
            break;
        }

        h = &all[(rounds->next + i) % n];

        /* rank 0 stands for the worker */

        if (h->rank == 0
            && kvr_load32(&h->worker->generation) == h->generation
            && rounds->kind->due(rounds->zone, h))
        {
            ngx_http_kv_router_slot_start(rounds, slot, h);
        }
    }

    rounds->next += i;
}


/* NULL: the maximum number of turns is running. */

static ngx_http_kv_router_slot_t *
ngx_http_kv_router_rounds_free(ngx_http_kv_router_rounds_t *rounds)
{
    ngx_uint_t                  i;
    ngx_http_kv_router_slot_t  *slot;

    for (i = 0; i < rounds->kind->slots; i++) {
        slot = ngx_http_kv_router_rounds_slot(rounds, i);

        if (slot->rounds == NULL) {
            return slot;
        }
    }

    return NULL;
}


static void
ngx_http_kv_router_slot_start(ngx_http_kv_router_rounds_t *rounds,
    ngx_http_kv_router_slot_t *slot, ngx_http_kv_router_holder_t *h)
{
    ngx_memzero(slot, rounds->kind->size);

    slot->rounds = rounds;
    slot->zone = rounds->zone;
    slot->number = h->number;
    slot->generation = h->generation;

    slot->id.data = slot->id_data;
    slot->id.len = ngx_cpystrn(slot->id_data, h->id.data,
                               ngx_min(h->id.len + 1, sizeof(slot->id_data)))
                   - slot->id_data;

    slot->address.data = slot->address_data;
    slot->address.len = ngx_cpystrn(slot->address_data, h->address.data,
                                    ngx_min(h->address.len + 1,
                                            sizeof(slot->address_data)))
                        - slot->address_data;

    rounds->kind->start(slot);
}


ngx_int_t
ngx_http_kv_router_slot_ask(ngx_http_kv_router_slot_t *slot, ngx_str_t *uri,
    ngx_str_t *body, ngx_msec_t timeout, size_t max,
    ngx_http_kv_router_client_pt handler, const char **why)
{
    return ngx_http_kv_router_client_ask(&slot->client, slot->zone,
                                         &slot->address, uri, body, timeout,
                                         max, &slot->rounds->log, handler,
                                         slot, why);
}


const char *
ngx_http_kv_router_slot_status(ngx_http_kv_router_slot_t *slot,
    const kvr_http_answer_t *answer)
{
    if (answer->status == NGX_HTTP_OK) {
        return NULL;
    }

    (void) ngx_sprintf(slot->why, "status %uD, not 200%Z", answer->status);

    return (char *) slot->why;
}


ngx_uint_t
ngx_http_kv_router_slot_current(ngx_http_kv_router_slot_t *slot)
{
    return kvr_load32(&kvr_router_worker(&slot->zone->run.router, slot->number)
                       ->generation)
           == slot->generation;
}


ngx_msec_t
ngx_http_kv_router_rounds_apart(ngx_msec_t interval)
{
    return interval - interval / 10 + ngx_random() % (interval / 5 + 1);
}
