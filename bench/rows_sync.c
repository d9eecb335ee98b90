/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the process that hears peers does: messages of 8 routers about 512
 * workers, and its tick.  Bytes are those of messages.
 */


#include "index.h"
#include "sync/kvr_group.h"


#define ROWS_ZONE      (64u << 20)
#define ROWS_WORKERS   512u
#define ROWS_PEERS     7u
#define ROWS_OPEN      256u             /* flights of a peer */
#define ROWS_ROUNDS    20001u
#define ROWS_TICKS     2001u


typedef enum {
    ROWS_ADD = 0,                       /* one, with its row */
    ROWS_END,
    ROWS_CHANGED,                       /* KVR_SYNC_ROWS rows */
    ROWS_KINDS
} rows_sync_kind_t;


static void rows_sync_open(kvr_router_t *k, void *base);
static size_t rows_sync_message(rows_sync_kind_t kind, uint32_t i);
static uint64_t rows_sync_hear(rows_sync_kind_t kind, uint32_t i, size_t *len);
static void rows_sync_kind(rows_sync_kind_t kind);
static void rows_sync_tick(const char *name, bool shares);


static kvr_group_t        *rows_g;
static uint64_t            rows_rows[ROWS_WORKERS];
static uint64_t            rows_took[ROWS_ROUNDS];
static uint64_t            rows_now = 1000000000;           /* us */
static kvr_sync_message_t  rows_m;
static char                rows_bytes[KVR_SYNC_MAX];

static const char *const   rows_kinds[ROWS_KINDS] = {
    "an add", "an end", "128 rows"
};


void
rows_sync(void)
{
    void          *base;
    uint32_t       i;
    kvr_router_t   k;

    base = ix_map(ROWS_ZONE);
    rows_sync_open(&k, base);

    for (i = 0; i < ROWS_KINDS; i++) {
        rows_sync_kind(i);
    }

    rows_sync_tick("sync, tick", false);
    rows_sync_tick("sync, tick after a share has changed", true);

    kvr_group_destroy(rows_g);
    kvr_router_leave(&k);
    kvr_router_detach(&k);
    ix_unmap(base, ROWS_ZONE);
}


static void
rows_sync_open(kvr_router_t *k, void *base)
{
    bool               taken;
    char               why[KVR_WHY_LEN];
    uint32_t           i;
    kvr_params_t       params;
    kvr_worker_conf_t  conf;

    static const kvr_group_conf_t  of = { 3000, 0 };

    memset(&params, 0, sizeof(params));
    params.block_size = 16;
    params.max_workers = ROWS_WORKERS;
    params.shards = 1;

    ix_must(kvr_router_format(base, ROWS_ZONE, &params, why) == KVR_OK
            && kvr_router_attach(k, base, ROWS_ZONE, &params, why) == KVR_OK
            && kvr_router_join(k) == KVR_OK, "a zone");

    for (i = 0; i < ROWS_WORKERS; i++) {
        memset(&conf, 0, sizeof(conf));
        (void) snprintf(conf.id, sizeof(conf.id), "worker-%u", i);
        conf.ranks = 1;
        conf.weight = 1000;
        rows_rows[i] = kvr_sync_row(conf.id, strlen(conf.id), 0);

        ix_must(kvr_router_put_worker(k, &conf, KVR_WORKER_API) == KVR_OK,
                "a worker");
    }

    (void) kvr_peers_lease(&k->peers, false, rows_now / 1000, &taken);
    rows_g = kvr_group_create(k, &of);
    ix_must(rows_g != NULL, "a group");
}


/* Message i of a kind, of one peer after the other. */

static size_t
rows_sync_message(rows_sync_kind_t kind, uint32_t i)
{
    uint32_t             k, n;
    kvr_sync_row_t      *row;
    kvr_sync_add_t      *add;
    kvr_sync_message_t  *m;

    static uint64_t      turn;

    rows_now += 100;

    m = &rows_m;
    m->router = wl_mix(i % ROWS_PEERS + 1);
    m->process = 77;
    m->clock_us = rows_now - 50;
    m->about = kind == ROWS_CHANGED;
    m->share = 2;
    m->uncached = 1000000;
    strcpy(m->name, "router");
    m->nrows = kind == ROWS_ADD ? 1 : kind == ROWS_END ? 0 : KVR_SYNC_ROWS;
    m->nadds = kind == ROWS_ADD;
    m->nends = kind == ROWS_END;

    for (k = 0; k < m->nrows; k++) {
        turn++;
        row = &m->rows[k];
        n = m->nadds ? i : i / ROWS_PEERS * KVR_SYNC_ROWS + k;
        row->row = rows_rows[n % ROWS_WORKERS];
        row->active = 20 + (int64_t) turn % 10;
        row->prefills = 2;
        row->prefill_tokens = 8000 + (int64_t) turn % 1000;
        row->age_ms = 100;
        row->decode_blocks = 4000;
    }

    add = &m->adds[0];
    add->id = m->ends[0] = i / ROWS_PEERS + 1;
    add->row = m->rows[0].row;
    add->n = KVR_FLIGHT_SAMPLES;

    for (k = 0; k < add->n; k++) {
        add->chains[k] = wl_mix(i * UINT64_C(64) + k) >> 16;
    }

    return kvr_sync_write(m, rows_bytes);
}


/* ns that a message of a kind takes; *len: its bytes. */

static uint64_t
rows_sync_hear(rows_sync_kind_t kind, uint32_t i, size_t *len)
{
    uint64_t  at;

    *len = rows_sync_message(kind, i);

    at = wl_now();
    ix_must(kvr_group_hear(rows_g, rows_bytes, *len, rows_now) == KVR_OK,
            "a message");

    return wl_now() - at - ix_clock_ns;
}


/* Peers have ROWS_OPEN flights each meanwhile. */

static void
rows_sync_kind(rows_sync_kind_t kind)
{
    char      name[64];
    size_t    len, other;
    uint32_t  i, open;

    open = ROWS_OPEN * ROWS_PEERS;

    for (i = 0, len = 0; i < ROWS_ROUNDS; i++) {

        if (kind == ROWS_END) {
            (void) rows_sync_hear(ROWS_ADD, i + open, &other);
        }

        rows_took[i] = rows_sync_hear(kind, i, &len);

        if (kind == ROWS_ADD && i >= open) {
            (void) rows_sync_hear(ROWS_END, i - open, &other);
        }

        if (i % 200 == 0) {
            kvr_group_tick(rows_g, 1000000, false, rows_now);
        }
    }

    (void) snprintf(name, sizeof(name), "sync, hear %s", rows_kinds[kind]);
    ix_say(name, "ns", ix_percentile(rows_took, ROWS_ROUNDS, 50));
    (void) snprintf(name, sizeof(name), "sync, %s", rows_kinds[kind]);
    ix_say(name, "bytes", (double) len);
}


/* shares: the router leaves and comes back, so that homes are made anew. */

static void
rows_sync_tick(const char *name, bool shares)
{
    size_t    len;
    uint32_t  i, k;
    uint64_t  at;

    for (i = 0; i < ROWS_TICKS; i++) {
        rows_now += 1100000;

        for (k = 0; k < ROWS_PEERS; k++) {
            (void) rows_sync_hear(ROWS_CHANGED, k, &len);
        }

        kvr_group_tick(rows_g, 1000000, false, rows_now);
        rows_now += 110000;

        at = wl_now();
        kvr_group_tick(rows_g, 1000000, shares, rows_now);
        rows_took[i] = wl_now() - at - ix_clock_ns;
    }

    ix_say(name, "ns", ix_percentile(rows_took, ROWS_TICKS, 50));
}
