/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_simulate.h"

#include "admission/kvr_order.h"

#include <stdlib.h>


struct kvr_simulate_order_s {
    kvr_order_t         order;
    void               *memory;
    kvr_order_entry_t  *entries;
    kvr_order_came_t   *came;
    uint32_t           *free;           /* entries */
    uint32_t            nfree;
};


kvr_simulate_order_t *
kvr_simulate_order_create(uint32_t classes, const double *weights,
    uint32_t requests, uint32_t block_size, double quantum)
{
    uint32_t               i;
    kvr_order_conf_t       conf;
    kvr_simulate_order_t  *s;

    if (classes == 0 || classes > KVR_ORDER_CLASSES) {
        return NULL;
    }

    s = calloc(1, sizeof(kvr_simulate_order_t));
    if (s == NULL) {
        return NULL;
    }

    conf = (kvr_order_conf_t) { .nclasses = classes, .block_size = block_size,
                                .quantum = quantum };

    for (i = 0; i < classes; i++) {
        conf.weights[i] = weights[i];
    }

    s->memory = malloc(kvr_order_size(&conf));
    s->entries = calloc(requests, sizeof(kvr_order_entry_t));
    s->came = malloc(requests * sizeof(kvr_order_came_t));
    s->free = malloc(requests * sizeof(uint32_t));

    if (s->memory == NULL || s->entries == NULL || s->came == NULL
        || s->free == NULL)
    {
        kvr_simulate_order_destroy(s);
        return NULL;
    }

    while (s->nfree < requests) {
        s->free[s->nfree] = requests - 1 - s->nfree;
        s->nfree++;
    }

    kvr_order_attach(&s->order, s->memory, s->entries, NULL,
                     s->came, &conf);
    kvr_order_format(&s->order, &conf);

    return s;
}


void
kvr_simulate_order_destroy(kvr_simulate_order_t *s)
{
    free(s->memory);
    free(s->entries);
    free(s->came);
    free(s->free);
    free(s);
}


uint32_t
kvr_simulate_order_tenant(kvr_simulate_order_t *s, uint32_t class,
    uint32_t name)
{
    return kvr_order_tenant(&s->order, class, name, KVR_ORDER_UNNAMED, 1);
}


/* The cost at the best workers, and what it is at most at the others. */

uint32_t
kvr_simulate_order_wait(kvr_simulate_order_t *s, uint32_t tenant,
    uint32_t prompt, uint32_t output, const uint32_t *uncached, uint32_t n)
{
    uint32_t          i, j, k, entry;
    kvr_order_cost_t  cost;

    if (s->nfree == 0) {
        return KVR_ORDER_NONE;
    }

    cost = (kvr_order_cost_t) { .prompt = prompt, .output = output };

    for (i = 0; i < n; i++) {

        for (j = cost.nbest;
             j > 0 && cost.best[j - 1].uncached > uncached[i];
             j--)
        {
            /* void */
        }

        if (cost.nbest == KVR_ORDER_BEST) {
            k = j < cost.nbest ? cost.best[--cost.nbest].uncached
                               : uncached[i];
            cost.elsewhere = kvr_max(cost.elsewhere, k);
        }

        if (j == KVR_ORDER_BEST) {
            continue;
        }

        for (k = cost.nbest++; k > j; k--) {
            cost.best[k] = cost.best[k - 1];
        }

        cost.best[j].worker = i;
        cost.best[j].uncached = uncached[i];
    }

    entry = s->free[--s->nfree];
    s->entries[entry].cost = cost;
    kvr_order_wait(&s->order, entry, tenant);

    return entry;
}


uint32_t
kvr_simulate_order_waiting(const kvr_simulate_order_t *s)
{
    return s->order.zone->waiting;
}


static bool
kvr_simulate_order_fits(void *data, const kvr_order_entry_t *entry,
    uint32_t worker)
{
    (void) data;
    (void) entry;
    (void) worker;

    return true;
}


uint32_t
kvr_simulate_order_next(kvr_simulate_order_t *s, uint32_t worker,
    uint32_t workers)
{
    return kvr_order_next(&s->order, worker, workers, 0,
                          kvr_simulate_order_fits, NULL);
}


uint32_t
kvr_simulate_order_grant(kvr_simulate_order_t *s, uint32_t request,
    uint32_t worker)
{
    kvr_order_entry_t  *e;

    e = &s->entries[request];
    e->charge = kvr_order_charge(&s->order, &e->cost, worker);

    kvr_order_grant(&s->order, request);
    s->free[s->nfree++] = request;

    return e->charge;
}


uint32_t
kvr_simulate_order_pass(kvr_simulate_order_t *s, uint32_t tenant,
    uint32_t output, uint32_t uncached)
{
    uint32_t          charge;
    kvr_order_cost_t  cost;

    cost = (kvr_order_cost_t) { .output = output, .elsewhere = uncached };
    charge = kvr_order_charge(&s->order, &cost, 0);
    kvr_order_pass(&s->order, tenant, charge);

    return charge;
}


void
kvr_simulate_order_end(kvr_simulate_order_t *s, uint32_t tenant,
    uint32_t charge, double tokens)
{
    kvr_order_end(&s->order, tenant, charge, (uint64_t) tokens);
}
