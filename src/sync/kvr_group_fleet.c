/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_group_state.h"
#include "kvr_homes.h"

#include <stdlib.h>


void
kvr_group_sum(kvr_group_t *g, const kvr_group_holder_t *h)
{
    uint32_t        i;
    kvr_load_row_t  sum;

    memset(&sum, 0, sizeof(kvr_load_row_t));
    sum.generation = h->generation;

    for (i = 0; i < g->npeers; i++) {
        if (g->peers[i]->counts) {
            kvr_load_sum(&sum, &g->peers[i]->rows[h->holder].load);
        }
    }

    kvr_peers_set_row(&g->k->peers, h->holder, &sum);
}


void
kvr_group_sums(kvr_group_t *g)
{
    uint32_t  i;

    for (i = 0; i < g->nfleet; i++) {
        kvr_group_sum(g, &g->fleet[i]);
    }
}


static int
kvr_group_compare(const void *a, const void *b)
{
    uint64_t  x, y;

    x = ((const kvr_group_holder_t *) a)->row;
    y = ((const kvr_group_holder_t *) b)->row;

    return (x > y) - (x < y);
}


const kvr_group_holder_t *
kvr_group_holder(const kvr_group_t *g, uint64_t row)
{
    kvr_group_holder_t  key;

    key.row = row;

    return bsearch(&key, g->fleet, g->nfleet, sizeof(kvr_group_holder_t),
                   kvr_group_compare);
}


/* A row is another worker's: what peers told of the one before is over. */

static void
kvr_group_moved(kvr_group_t *g, const kvr_group_holder_t *h)
{
    uint32_t           i;
    kvr_group_peer_t  *p;

    for (i = 0; i < g->npeers; i++) {
        p = g->peers[i];
        p->active -= p->rows[h->holder].load.active;
        memset(&p->rows[h->holder], 0, sizeof(kvr_group_row_t));
    }

    g->rows[h->holder] = h->row;
}


void
kvr_group_fleet(kvr_group_t *g, uint64_t now_us)
{
    size_t               len;
    kvr_rc_t             rc;
    uint32_t             i, flags, generation, holder, steps, version;
    kvr_worker_conf_t    conf;
    kvr_group_holder_t  *h;

    if (g->looked_us && now_us - g->looked_us < KVR_GROUP_MAKE_US) {
        return;
    }

    version = kvr_router_version(g->k);

    if (g->looked_us && version == g->version) {
        return;
    }

    g->looked_us = now_us;
    g->version = version;
    g->changed = true;
    g->nfleet = 0;

    for (i = 0; i < kvr_router_workers(g->k); i++) {

        rc = kvr_router_read_worker(g->k, i, &conf, &flags, &generation);

        if (rc == KVR_BUSY) {
            g->version = version - 1;       /* look again */
        }

        if (rc != KVR_OK || (flags & KVR_WORKER_DELETED)) {
            continue;
        }

        len = strlen(conf.id);
        holder = KVR_HOLDER_NONE;
        steps = 0;

        while (kvr_router_next_holder(g->k, i, &holder, &steps)
               && g->nfleet < g->max_holders)
        {
            h = &g->fleet[g->nfleet++];
            h->row = kvr_sync_row(conf.id, len,
                                  kvr_router_holder_rank(g->k, holder));
            h->home = kvr_sync_row(conf.id, len, 0);
            h->holder = holder;
            h->generation = generation;

            if (g->rows[holder] != h->row) {
                kvr_group_moved(g, h);
            }
        }
    }

    qsort(g->fleet, g->nfleet, sizeof(kvr_group_holder_t), kvr_group_compare);
    kvr_group_sums(g);
}


void
kvr_group_expire(kvr_group_t *g, kvr_group_peer_t *p)
{
    bool              any;
    uint32_t          i;
    kvr_group_row_t  *row;

    for (i = 0, any = false; i < g->max_holders; i++) {

        row = &p->rows[i];

        if (row->clock_us && p->clock_us - row->clock_us > KVR_GROUP_ROW_US) {
            p->active -= row->load.active;
            memset(row, 0, sizeof(kvr_group_row_t));
            any = true;
        }
    }

    if (any && p->counts) {
        kvr_group_sums(g);
    }
}


void
kvr_group_homes(kvr_group_t *g)
{
    uint32_t           i, n, all, before;
    uint32_t           shares[KVR_PEERS_MAX + 1];
    uint64_t           routers[KVR_PEERS_MAX + 1];
    const kvr_peer_t  *record;

    routers[0] = g->own;
    shares[0] = g->share;
    all = g->share;
    before = 0;

    for (n = 1; n <= g->npeers; n++) {
        record = &g->peers[n - 1]->record;

        routers[n] = record->router;
        shares[n] = record->share;
        all += record->share;
        before += record->router < g->own ? record->share : 0;
    }

    kvr_peers_set_place(&g->k->peers, g->share, before, n > 1 ? all : 0);

    if (all == g->share) {
        kvr_peers_set_homes(&g->k->peers, NULL);
        return;
    }

    memset(g->foreign, 0, g->max_holders);

    for (i = 0; i < g->nfleet; i++) {
        g->foreign[g->fleet[i].holder]
            = kvr_homes_of(routers, shares, n, g->fleet[i].home) != 0;
    }

    kvr_peers_set_homes(&g->k->peers, g->foreign);
}
