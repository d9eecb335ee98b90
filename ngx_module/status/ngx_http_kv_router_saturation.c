
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Saturation: how much a pool of workers, those of one model and one role, has
 * to prefill, by what it can.  An autoscaler multiplies the number of workers
 * by it.
 */


#include "../request/ngx_http_kv_router_route.h"
#include "../request/ngx_http_kv_router_queue.h"
#include "ngx_http_kv_router_metrics.h"


/* Uncached prompt tokens, and how many of them are 1. */

typedef struct {
    double                          tokens;
    double                          capacity;  /* of the usable workers */
    double                          whole;     /* of all workers */
} ngx_http_kv_router_saturation_t;


static ngx_uint_t
ngx_http_kv_router_saturation_same(const ngx_http_kv_router_holder_t *a,
    const ngx_http_kv_router_holder_t *b)
{
    return a->role == b->role && a->model.len == b->model.len
           && ngx_memcmp(a->model.data, b->model.data, a->model.len) == 0;
}


/*
 * Adds a rank: what is in flight there, by this router and its peers.  What a
 * worker can prefill is its bound, or else what it prefills in a second.
 */

static void
ngx_http_kv_router_saturation_add(ngx_http_kv_router_saturation_t *s,
    ngx_http_kv_router_zone_t *zone, const ngx_http_kv_router_holder_t *h)
{
    double          capacity;
    kvr_load_row_t  load;

    kvr_load_read(&zone->run.router.load, h->holder, h->generation, &load);
    kvr_peers_add(&zone->run.router.peers, h->holder, h->generation,
                  ngx_current_msec, &load);

    s->tokens += load.prefill_tokens;

    capacity = ngx_http_kv_router_holder_tokens(h);

    if (capacity == 0) {
        capacity = h->speed;

    } else if (h->holder != h->first) {
        capacity = 0;           /* the bound is that of all ranks */
    }

    if (h->holder == h->first) {
        s->tokens += ngx_http_kv_router_queue_granted(zone, NULL, h).tokens;
    }

    s->whole += capacity;

    if (ngx_http_kv_router_holder_usable(zone, h, 0)) {
        s->capacity += capacity;
    }
}


/*
 * Adds what waits for the pool of h: of each request, the tokens that are not
 * cached at its best worker.  A request which is prefilled elsewhere waits for
 * a prefiller.
 */

static void
ngx_http_kv_router_saturation_wait(ngx_http_kv_router_saturation_t *s,
    ngx_http_kv_router_zone_t *zone, const ngx_http_kv_router_holder_t *h)
{
    uint32_t                  i;
    uint64_t                  key;
    const kvr_admit_t        *q;
    const kvr_order_entry_t  *e;

    q = zone->run.queue ? &zone->run.queue->admit : NULL;

    for (i = 0; q && i < q->zone->nentries; i++) {

        if (kvr_admit_state(q, i) != KVR_ADMIT_WAITING) {
            continue;
        }

        e = &q->entries[i];
        key = kvr_load64(&q->zone->pools[e->pool % KVR_ADMIT_POOLS].key);

        if (ngx_http_kv_router_pool_serves(key, h)
            && !(h->role == KVR_ROLE_DECODE && key & 1 << KVR_ROLE_PREFILL))
        {
            s->tokens += e->cost.nbest ? e->cost.best[0].uncached
                                       : e->cost.elsewhere;
        }
    }
}


void
ngx_http_kv_router_saturation_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t                         i, k;
    ngx_http_kv_router_fleet_t        *fleet;
    ngx_http_kv_router_saturation_t    sum;
    const ngx_http_kv_router_holder_t *h;

    fleet = ngx_http_kv_router_fleet_get(s->zone);
    if (fleet == NULL) {
        return;
    }

    for (i = 0; i < fleet->n; i++) {
        h = &fleet->holders[i];

        for (k = 0; !ngx_http_kv_router_saturation_same(h, &fleet->holders[k]);
             k++)
        {
            /* void */
        }

        if (k < i) {
            continue;
        }

        ngx_memzero(&sum, sizeof(sum));

        for ( /* void */ ; k < fleet->n; k++) {
            if (ngx_http_kv_router_saturation_same(h, &fleet->holders[k])) {
                ngx_http_kv_router_saturation_add(&sum, s->zone,
                                                  &fleet->holders[k]);
            }
        }

        ngx_http_kv_router_saturation_wait(&sum, s->zone, h);

        /* if none is usable, requests try all */

        sum.capacity = sum.capacity > 0 ? sum.capacity : sum.whole;

        if (sum.capacity > 0) {
            ngx_http_kv_router_metric(s, "saturation", NULL, "Uncached prompt "
                                      "tokens in flight and waiting, by what "
                                      "the workers of a model and a role can "
                                      "prefill in a second, or may have.");
            ngx_http_kv_router_labels(s, "", NULL);
            ngx_http_kv_router_label(s, "model", &h->model);
            ngx_http_kv_router_label_str(s, "role", kvr_role_name(h->role));
            ngx_http_kv_router_value(s, (uint64_t) (ngx_max(sum.tokens, 0)
                                                    / sum.capacity * 1000), 3);
        }
    }

    ngx_http_kv_router_fleet_put(fleet);
}
