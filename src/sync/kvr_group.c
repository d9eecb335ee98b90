/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_group_state.h"
#include "kvr_homes.h"
#include "kvr_teller.h"

#include <stdlib.h>


#define KVR_GROUP_DEAF_US  1500000      /* our own echo comes each second */


/* ---- peers -------------------------------------------------------------- */

static kvr_group_peer_t *
kvr_group_meet(kvr_group_t *g, const kvr_peer_t *record)
{
    kvr_group_peer_t  *p;

    p = NULL;

    if (g->npeers < KVR_PEERS_MAX) {
        p = calloc(1, sizeof(kvr_group_peer_t)
                      + g->max_holders * sizeof(kvr_group_row_t));
    }

    if (p) {
        p->record = *record;
        g->peers[g->npeers++] = p;
        g->changed = true;
    }

    return p;
}


static kvr_group_peer_t *
kvr_group_peer(kvr_group_t *g, uint64_t router)
{
    uint32_t  i;

    for (i = 0; i < g->npeers; i++) {
        if (g->peers[i]->record.router == router) {
            return g->peers[i];
        }
    }

    return NULL;
}


/* The peer is gone, with its flights, its load and its share. */

static void
kvr_group_forget(kvr_group_t *g, kvr_group_peer_t *p, uint64_t now_us)
{
    uint32_t  i;

    kvr_adds_forget(g->adds, p->record.router, now_us / 1000);

    for (i = 0; g->peers[i] != p; i++) { /* void */ }

    g->peers[i] = g->peers[--g->npeers];
    g->changed = true;

    kvr_group_sums(g);
    free(p);
}


kvr_group_t *
kvr_group_create(kvr_router_t *k, const kvr_group_conf_t *conf)
{
    uint32_t      i, n;
    kvr_peer_t    known[KVR_PEERS_MAX];
    kvr_group_t  *g;

    g = calloc(1, sizeof(kvr_group_t));

    if (g == NULL) {
        return NULL;
    }

    n = kvr_router_max_holders(k);

    g->k = k;
    g->conf = *conf;
    g->own = k->peers.zone->router;
    g->changed = true;
    g->max_holders = n;
    g->fleet = calloc(n, sizeof(kvr_group_holder_t));
    g->rows = calloc(n, sizeof(uint64_t));
    g->foreign = calloc(n, 1);
    g->message = malloc(sizeof(kvr_sync_message_t));
    g->adds = kvr_adds_create(&k->flights, conf->predict_ms);

    if (g->fleet == NULL || g->rows == NULL || g->foreign == NULL
        || g->message == NULL || g->adds == NULL)
    {
        kvr_group_destroy(g);
        return NULL;
    }

    /* the process before left its peers, with their shares, and our share */

    n = kvr_peers_read(&k->peers, known);

    for (i = 0; i < n; i++) {
        (void) kvr_group_meet(g, &known[i]);
    }

    g->share = kvr_peers_share(&k->peers);

    return g;
}


void
kvr_group_destroy(kvr_group_t *g)
{
    while (g->npeers) {
        free(g->peers[--g->npeers]);
    }

    kvr_adds_destroy(g->adds);
    free(g->fleet);
    free(g->rows);
    free(g->foreign);
    free(g->message);
    free(g);
}


/* ---- a message ---------------------------------------------------------- */

/* Does the peer count now? */

static void
kvr_group_judge(kvr_group_t *g, kvr_group_peer_t *p, uint64_t now_us)
{
    bool  counts;

    counts = kvr_news_fresh(&p->news, p->active > 0, now_us);
    p->record.state = !counts ? KVR_PEER_SILENT
                      : p->leaving ? KVR_PEER_LEAVING : KVR_PEER_FRESH;

    if (counts != p->counts) {
        p->counts = counts;
        kvr_group_sums(g);
    }
}


/* Something was heard. */

static void
kvr_group_alive(kvr_group_t *g, uint64_t now_us)
{
    if (g->heard_us == 0 || now_us - g->heard_us > KVR_GROUP_DEAF_US) {
        g->back_us = now_us;
    }

    g->heard_us = now_us;
}


/* Rows of workers that are not known are left out: they come again. */

static void
kvr_group_rows(kvr_group_t *g, kvr_group_peer_t *p,
    const kvr_sync_message_t *m, uint64_t now_ms)
{
    uint32_t                   i;
    uint64_t                   age;
    kvr_group_row_t           *row;
    const kvr_sync_row_t      *told;
    const kvr_group_holder_t  *h;

    for (i = 0; i < m->nrows; i++) {

        told = &m->rows[i];
        h = kvr_group_holder(g, told->row);

        if (h == NULL || m->clock_us < p->rows[h->holder].clock_us) {
            continue;
        }

        row = &p->rows[h->holder];
        age = (uint64_t) told->age_ms + p->news.lag_us / 1000;

        p->active += told->active - row->load.active;

        row->clock_us = m->clock_us;
        row->load = (kvr_load_row_t) {
            0, told->active, told->prefills, told->prefill_tokens,
            told->decode_blocks, now_ms - kvr_min(now_ms, age), 0
        };

        if (p->counts) {
            kvr_group_sum(g, h);
        }
    }
}


static void
kvr_group_about(kvr_group_t *g, kvr_group_peer_t *p,
    const kvr_sync_message_t *m)
{
    uint32_t  share;

    memcpy(p->record.name, m->name, sizeof(m->name));
    memcpy(p->record.version, m->version, sizeof(m->version));

    share = m->leaving ? 0 : m->share;
    g->changed |= share != p->record.share;

    p->record.share = share;
    p->record.uncached = m->uncached;
    p->leaving = m->leaving;
}


static void
kvr_group_flights(kvr_group_t *g, const kvr_sync_message_t *m, uint64_t now_ms)
{
    uint32_t                   i;
    kvr_flight_t               flight;
    const kvr_sync_add_t      *add;
    const kvr_group_holder_t  *h;

    for (i = 0; i < m->nadds; i++) {

        add = &m->adds[i];
        h = kvr_group_holder(g, add->row);

        if (h == NULL || add->n == 0) {
            continue;
        }

        flight.holder = h->holder;
        flight.generation = h->generation;
        flight.n = add->n;
        memcpy(flight.chains, add->chains, add->n * sizeof(uint64_t));

        if (!kvr_adds_begin(g->adds, m->router, m->process, add->id, &flight,
                            now_ms))
        {
            g->counts.refused++;
        }
    }

    for (i = 0; i < m->nends; i++) {
        kvr_adds_end(g->adds, m->router, m->process, m->ends[i], now_ms);
    }
}


/* Half of the least time that our own messages need to come back. */

static void
kvr_group_echo(kvr_group_t *g, uint64_t clock_us, uint64_t now_us)
{
    int64_t  echo;

    if (clock_us <= now_us) {
        echo = (int64_t) (now_us - clock_us);
        g->way_us = (uint64_t) kvr_news_least(&g->echo, echo, now_us) / 2;
    }
}


kvr_rc_t
kvr_group_hear(kvr_group_t *g, const char *bytes, size_t len, uint64_t now_us)
{
    kvr_peer_t           record;
    kvr_group_peer_t    *p;
    kvr_sync_message_t  *m;

    m = g->message;

    if (kvr_sync_read(bytes, len, m) != KVR_OK) {
        g->counts.refused++;
        return KVR_INVALID;
    }

    kvr_group_alive(g, now_us);

    if (m->router == g->own) {
        kvr_group_echo(g, m->clock_us, now_us);
        return KVR_OK;
    }

    p = kvr_group_peer(g, m->router);

    if (p == NULL) {
        memset(&record, 0, sizeof(kvr_peer_t));
        record.router = m->router;
        record.since_ms = now_us / 1000;
        p = kvr_group_meet(g, &record);

        if (p == NULL) {
            g->counts.refused++;
            return KVR_FULL;
        }
    }

    if (!kvr_news_near(&p->news, m->clock_us,
                       g->conf.timeout_ms * UINT64_C(1000), now_us))
    {
        g->counts.refused++;
        return KVR_OK;
    }

    g->counts.messages++;

    kvr_group_fleet(g, now_us);
    kvr_news_take(&p->news, m->clock_us, g->way_us, now_us);
    p->clock_us = kvr_max(p->clock_us, m->clock_us);

    kvr_group_rows(g, p, m, now_us / 1000);

    if (m->about) {
        kvr_group_about(g, p, m);
        kvr_group_expire(g, p);
    }

    kvr_group_judge(g, p, now_us);
    kvr_group_flights(g, m, now_us / 1000);

    return KVR_OK;
}


/* ---- the tick ----------------------------------------------------------- */

/* This router's share, each second: others hear of it as often. */

static void
kvr_group_own(kvr_group_t *g, uint64_t uncached, bool leaving,
    uint64_t now_us)
{
    uint32_t  i, share;
    uint64_t  all;

    if (!leaving && now_us - g->shared_us < KVR_TELLER_ABOUT_MS * 1000) {
        return;
    }

    g->shared_us = now_us;

    for (i = 0, all = uncached; i < g->npeers; i++) {
        all += g->peers[i]->record.uncached;
    }

    share = leaving ? 0 : kvr_homes_share(uncached, all, g->share);

    g->changed |= share != g->share;
    g->share = share;
}


void
kvr_group_tick(kvr_group_t *g, uint64_t uncached, bool leaving,
    uint64_t now_us)
{
    bool               fresh;
    uint32_t           i;
    uint64_t           now_ms;
    kvr_peer_t         records[KVR_PEERS_MAX], *record;
    kvr_group_peer_t  *p;

    if (g->heard_us == 0) {
        kvr_group_alive(g, now_us);
    }

    now_ms = now_us / 1000;
    fresh = false;
    kvr_group_fleet(g, now_us);

    for (i = g->npeers; i-- > 0; /* void */ ) {

        p = g->peers[i];

        if (g->heard_us - kvr_max(p->news.heard_us, g->back_us)
            > g->conf.timeout_ms * UINT64_C(1000))
        {
            kvr_group_forget(g, p, now_us);
            continue;
        }

        kvr_group_judge(g, p, now_us);
        fresh |= p->counts;
    }

    if (now_us - g->heard_us <= KVR_GROUP_DEAF_US) {
        kvr_group_own(g, uncached, leaving, now_us);
    }

    if (g->changed && now_us - g->made_us >= KVR_GROUP_MAKE_US) {
        g->changed = false;
        g->made_us = now_us;
        kvr_group_homes(g);
    }

    for (i = 0; i < g->npeers; i++) {
        p = g->peers[i];
        record = &p->record;

        record->heard_ms = p->news.heard_us / 1000;
        record->lag_us = p->news.lag_us;
        record->active = (uint32_t) kvr_min(p->active, UINT32_MAX);
        records[i] = *record;
    }

    kvr_peers_set_peers(&g->k->peers, records, g->npeers);
    kvr_peers_set_fresh(&g->k->peers,
                        fresh ? now_ms + KVR_PEERS_FRESH_MS : 0);
}


/* ---- asking ------------------------------------------------------------- */

const kvr_group_counts_t *
kvr_group_counts(const kvr_group_t *g)
{
    return &g->counts;
}
