/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_group_state.h"
#include "kvr_homes.h"
#include "kvr_teller.h"

#include <stdlib.h>


#define KVR_GROUP_DEAF_US  1500000      /* our own echo comes each second */
#define KVR_GROUP_MET_US   1000000      /* messages may be missing so long */


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
    g->adds = kvr_adds_create(&k->flights, conf->predict_ms);

    if (g->fleet == NULL || g->rows == NULL || g->foreign == NULL
        || g->adds == NULL)
    {
        kvr_group_destroy(g);
        return NULL;
    }

    /* the process before left its peers, with their shares, and our share */

    n = kvr_peers_read(&k->peers, known);

    for (i = 0; i < n; i++) {
        (void) kvr_group_meet(g, &known[i]);
    }

    n = kvr_load32(&k->peers.zone->own) % (KVR_PEERS_MAX + 1);
    g->share = g->npeers ? kvr_load32(&k->peers.zone->shares[n]) : 0;

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
    free(g);
}


/* ---- a message ---------------------------------------------------------- */

/* Does the peer count now? */

static void
kvr_group_judge(kvr_group_t *g, kvr_group_peer_t *p, uint64_t now_us)
{
    bool  counts;

    p->record.state = kvr_news_state(&p->news, p->active > 0, p->leaving,
                                     now_us);
    counts = p->record.state == KVR_PEER_FRESH
             || p->record.state == KVR_PEER_LEAVING;

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


static kvr_news_order_t
kvr_group_order(kvr_group_t *g, kvr_group_peer_t *p,
    const kvr_sync_message_t *m, uint64_t now_us)
{
    uint32_t              i;
    uint64_t              met_us;
    kvr_news_order_t      order;
    kvr_group_process_t  *process;

    for (i = 0; i < p->nprocesses && p->processes[i].process != m->process;
         i++)
    {
        /* void */
    }

    if (i == p->nprocesses) {
        i = i < KVR_GROUP_PROCESSES ? i : 0;
        p->nprocesses = i + 1;
        memset(&p->processes[i], 0, sizeof(kvr_group_process_t));
    }

    process = &p->processes[i];
    process->process = m->process;

    met_us = kvr_max(p->record.since_ms * 1000, g->back_us);
    order = kvr_news_order(&process->count, m->number, m->clock_us,
                           now_us - met_us < KVR_GROUP_MET_US);

    if (order != KVR_NEWS_OLD) {
        process->count.number = m->number;
        process->count.clock_us = m->clock_us;
    }

    return order;
}


/* Rows of workers that are not known are left out: they come again. */

static void
kvr_group_rows(kvr_group_t *g, kvr_group_peer_t *p, kvr_sync_message_t *m,
    uint64_t now_ms)
{
    uint64_t                   age;
    kvr_sync_row_t             told;
    kvr_group_row_t           *row;
    const kvr_group_holder_t  *h;

    while (kvr_sync_row_next(m, &told)) {

        h = kvr_group_holder(g, told.row);

        if (h == NULL) {
            continue;
        }

        row = &p->rows[h->holder];

        if (m->full) {
            row->epoch = m->epoch;
        }

        if (m->clock_us < kvr_max(row->clock_us, p->whole_us)) {
            continue;
        }

        age = (uint64_t) told.age_ms + p->news.lag_us / 1000;

        p->active += told.active - row->load.active;

        row->clock_us = m->clock_us;
        row->load = (kvr_load_row_t) {
            0, told.active, told.prefills, told.prefill_tokens,
            told.decode_blocks, now_ms - kvr_min(now_ms, age), 0
        };

        if (p->counts) {
            kvr_group_sum(g, h);
        }
    }
}


/* A part of a full message.  True: all are there with this one. */

static bool
kvr_group_full(kvr_group_t *g, kvr_group_peer_t *p,
    const kvr_sync_message_t *m)
{
    uint32_t   share;
    uint64_t  *have, bit;

    memcpy(p->record.name, m->name, sizeof(m->name));
    memcpy(p->record.version, m->version, sizeof(m->version));

    share = m->leaving ? 0 : kvr_min(m->share, KVR_PEERS_SHARES);
    g->changed |= share != p->record.share;

    p->record.share = share;
    p->uncached = m->uncached;
    p->leaving = m->leaving;

    if (p->parts != m->parts || p->epoch != m->epoch) {
        p->epoch = m->epoch;
        p->epoch_us = m->clock_us;
        p->parts = m->parts;
        p->missing = m->parts;
        memset(p->have, 0, sizeof(p->have));
    }

    have = &p->have[m->part / 64 % 16];
    bit = UINT64_C(1) << m->part % 64;

    if (*have & bit) {
        return false;
    }

    *have |= bit;

    return --p->missing == 0;
}


/* The rows that no part named are 0, but for those which are younger. */

static void
kvr_group_whole(kvr_group_t *g, kvr_group_peer_t *p)
{
    uint32_t          i;
    kvr_group_row_t  *row;

    p->whole_us = p->epoch_us;

    for (i = 0; i < g->nfleet; i++) {

        row = &p->rows[g->fleet[i].holder];

        if (row->clock_us && row->clock_us < p->epoch_us
            && row->epoch != p->epoch)
        {
            p->active -= row->load.active;
            memset(row, 0, sizeof(kvr_group_row_t));

            if (p->counts) {
                kvr_group_sum(g, &g->fleet[i]);
            }
        }
    }
}


static void
kvr_group_flights(kvr_group_t *g, kvr_sync_message_t *m, uint64_t now_ms)
{
    uint32_t                   id;
    kvr_flight_t               flight;
    kvr_sync_add_t             add;
    const kvr_group_holder_t  *h;

    while (kvr_sync_add_next(m, &add)) {

        h = kvr_group_holder(g, add.row);

        if (h == NULL || add.n == 0) {
            continue;
        }

        flight.holder = h->holder;
        flight.generation = h->generation;
        flight.n = add.n;
        memcpy(flight.chains, add.chains, add.n * sizeof(uint64_t));

        if (!kvr_adds_begin(g->adds, m->router, m->process, add.id, &flight,
                            now_ms))
        {
            g->counts.refused++;
        }
    }

    while (kvr_sync_end_next(m, &id)) {
        kvr_adds_end(g->adds, m->router, m->process, id, now_ms);
    }
}


kvr_rc_t
kvr_group_hear(kvr_group_t *g, const char *bytes, size_t len,
    uint64_t now_us, kvr_group_heard_t *heard)
{
    bool                 whole;
    int64_t              echo;
    kvr_peer_t           record;
    kvr_group_peer_t    *p;
    kvr_news_order_t     order;
    kvr_sync_message_t   m;

    memset(heard, 0, sizeof(kvr_group_heard_t));

    if (kvr_sync_read(bytes, len, &m) != KVR_OK) {
        g->counts.refused++;
        return KVR_INVALID;
    }

    kvr_group_alive(g, now_us);

    if (m.router == g->own) {

        if (m.clock_us <= now_us) {
            echo = (int64_t) (now_us - m.clock_us);
            echo = kvr_news_least(&g->echo, echo, now_us);
            g->way_us = (uint64_t) echo / 2;
        }

        return KVR_OK;
    }

    p = kvr_group_peer(g, m.router);

    if (p == NULL) {

        if (m.bye) {
            return KVR_OK;
        }

        memset(&record, 0, sizeof(kvr_peer_t));
        record.router = m.router;
        record.since_ms = now_us / 1000;
        p = kvr_group_meet(g, &record);

        if (p == NULL) {
            g->counts.refused++;
            return KVR_FULL;
        }
    }

    if (!kvr_news_near(&p->news, m.clock_us,
                       g->conf.timeout_ms * UINT64_C(1000), now_us))
    {
        g->counts.refused++;
        return KVR_OK;
    }

    order = kvr_group_order(g, p, &m, now_us);

    if (order == KVR_NEWS_OLD) {
        return KVR_OK;
    }

    g->counts.messages++;
    g->counts.missed += order == KVR_NEWS_GAP;
    heard->full = m.again == g->own;

    if (m.bye) {
        kvr_group_forget(g, p, now_us);
        return KVR_OK;
    }

    if (order == KVR_NEWS_GAP
        && now_us - p->asked_us >= KVR_TELLER_AGAIN_MS * 1000)
    {
        p->asked_us = now_us;
        heard->again = m.router;
    }

    kvr_group_fleet(g, now_us);
    kvr_news_take(&p->news, m.clock_us, g->way_us,
                  g->conf.max_lag_ms * UINT64_C(1000), now_us);

    whole = m.full && kvr_group_full(g, p, &m);
    kvr_group_rows(g, p, &m, now_us / 1000);

    if (whole) {
        kvr_group_whole(g, p);
    }

    kvr_group_judge(g, p, now_us);
    kvr_group_flights(g, &m, now_us / 1000);

    return KVR_OK;
}


/* ---- the tick ----------------------------------------------------------- */

/*
 * This router's share, each second: others hear of it as often.  It stays
 * until all peers that the process before left have told their tokens again:
 * those have a name, which else comes with the tokens.
 */

static void
kvr_group_own(kvr_group_t *g, uint64_t uncached, bool leaving,
    uint64_t now_us)
{
    uint32_t                 i, share;
    uint64_t                 all;
    const kvr_group_peer_t  *p;

    if (!leaving && now_us - g->shared_us < KVR_TELLER_FULL_MS * 1000) {
        return;
    }

    g->shared_us = now_us;

    for (i = 0, all = uncached; i < g->npeers; i++) {

        p = g->peers[i];
        all += p->uncached;

        if (!leaving && p->record.name[0] && p->parts == 0) {
            return;
        }
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

bool
kvr_group_heard_any(const kvr_group_t *g)
{
    return g->npeers != 0;
}


uint32_t
kvr_group_share(const kvr_group_t *g)
{
    return g->share;
}


const kvr_group_counts_t *
kvr_group_counts(const kvr_group_t *g)
{
    return &g->counts;
}
