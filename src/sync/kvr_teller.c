/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_teller.h"
#include "kvr_group_state.h"

#include <stdio.h>
#include <stdlib.h>


#define KVR_TELLER_PART  128            /* rows of a message, which has room
                                           for so many of the longest */


typedef struct {
    uint64_t        row;                /* 0: of no worker so far */
    uint32_t        generation;
    kvr_load_row_t  told;
    kvr_load_row_t  now;
} kvr_teller_row_t;


struct kvr_teller_s {
    kvr_group_t        *group;          /* knows the fleet */
    uint32_t            version;        /* of the fleet that was told */
    bool                again;
    uint64_t            full_us;        /* when the last full one was told */
    uint64_t            spoke_us;       /* when anything was */
    kvr_sync_message_t  header;
    kvr_sync_writer_t   writer;
    kvr_teller_row_t    rows[];         /* of each holder */
};


kvr_teller_t *
kvr_teller_create(kvr_group_t *g, const char *name, const char *version)
{
    kvr_teller_t  *t;

    t = calloc(1, sizeof(kvr_teller_t)
                  + g->max_holders * sizeof(kvr_teller_row_t));

    if (t) {
        t->group = g;

        (void) snprintf(t->header.name, sizeof(t->header.name), "%s", name);
        (void) snprintf(t->header.version, sizeof(t->header.version), "%s",
                        version);
    }

    return t;
}


void
kvr_teller_destroy(kvr_teller_t *t)
{
    free(t);
}


void
kvr_teller_again(kvr_teller_t *t)
{
    t->again = true;
}


uint64_t
kvr_teller_uncached(const kvr_teller_t *t)
{
    const kvr_peers_zone_t  *z;

    z = t->group->k->peers.zone;

    /* the second behind the newest is the oldest */

    return kvr_load64(&z->uncached)
           - z->windows[(z->window_s + 1) % KVR_PEERS_WINDOW_S];
}


/*
 * The row of a holder of the fleet; a new one, if it was another worker's: a
 * full message says that the other's is 0.
 */

static kvr_teller_row_t *
kvr_teller_row(kvr_teller_t *t, uint32_t i)
{
    kvr_teller_row_t          *row;
    const kvr_group_holder_t  *h;

    h = &t->group->fleet[i];
    row = &t->rows[h->holder];

    if (row->row != h->row || row->generation != h->generation) {
        memset(row, 0, sizeof(kvr_teller_row_t));
        row->row = h->row;
        row->generation = h->generation;
    }

    return row;
}


/* Notes the counter of tokens for each second that has begun. */

static void
kvr_teller_window(kvr_peers_zone_t *z, uint64_t now_s)
{
    uint64_t  s;

    s = kvr_max(z->window_s + 1, now_s - kvr_min(now_s, KVR_PEERS_WINDOW_S));

    for ( /* void */ ; s <= now_s; s++) {
        z->windows[s % KVR_PEERS_WINDOW_S] = kvr_load64(&z->uncached);
        z->window_s = s;
    }
}


static bool
kvr_teller_loaded(const kvr_load_row_t *load)
{
    return load->active || load->prefills || load->prefill_tokens
           || load->decode_blocks;
}


/*
 * Requests that came and went between two looks had the row in their adds as
 * it was then: ended_ms is another one now.
 */

static bool
kvr_teller_due(const kvr_teller_row_t *row, bool full)
{
    return full ? kvr_teller_loaded(&row->now)
                : memcmp(&row->now, &row->told, sizeof(kvr_load_row_t)) != 0;
}


/*
 * Writes a message of the rows that are due from a place on; returns the place
 * behind them.
 */

static uint32_t
kvr_teller_part(kvr_teller_t *t, uint32_t at, bool full, uint64_t now_us)
{
    uint32_t           n;
    kvr_teller_row_t  *row;

    kvr_sync_begin(&t->writer, &t->header);

    for (n = 0; at < t->group->nfleet; at++) {
        row = kvr_teller_row(t, at);

        if (!kvr_teller_due(row, full)) {
            continue;
        }

        if (n++ == KVR_TELLER_PART) {
            break;
        }

        (void) kvr_sync_put_load(&t->writer, row->row, &row->now,
                                 now_us / 1000);
    }

    return at;
}


void
kvr_teller_tell(kvr_teller_t *t, uint64_t now_us, bool heard, uint32_t share,
    bool leaving, uint32_t process, uint64_t *number,
    bool (*send)(void *data, const char *bytes, size_t len), void *data)
{
    bool                 full, loaded;
    uint32_t             at, due, i, next;
    uint64_t             since_ms;
    kvr_group_t         *g;
    kvr_teller_row_t    *row;
    kvr_sync_message_t  *m;

    g = t->group;
    m = &t->header;

    kvr_teller_window(g->k->peers.zone, now_us / 1000000);

    kvr_group_fleet(g, now_us);

    t->again |= t->version != g->version;
    t->version = g->version;

    since_ms = (now_us - t->full_us) / 1000;
    full = t->full_us == 0 || since_ms >= KVR_TELLER_FULL_MS
           || (t->again && since_ms >= KVR_TELLER_AGAIN_MS);

    if (!full && !heard) {
        return;
    }

    for (i = 0, due = 0, loaded = false; i < g->nfleet; i++) {
        row = kvr_teller_row(t, i);

        kvr_load_read(&g->k->load, g->fleet[i].holder, row->generation,
                      &row->now);

        due += kvr_teller_due(row, full);
        loaded |= kvr_teller_loaded(&row->now);
    }

    m->alive = loaded && (now_us - t->spoke_us) / 1000 >= KVR_TELLER_ALIVE_MS;

    if (!full && due == 0 && !m->alive) {
        return;
    }

    m->router = g->k->peers.zone->router;
    m->process = process;
    m->clock_us = now_us;
    m->full = full;
    m->epoch = now_us;
    m->parts = kvr_max(1, (due + KVR_TELLER_PART - 1) / KVR_TELLER_PART);
    m->share = share;
    m->uncached = kvr_teller_uncached(t);
    m->leaving = leaving;

    for (m->part = 0, at = 0; m->part < m->parts; m->part++, at = next) {
        m->number = *number + 1;
        next = kvr_teller_part(t, at, full, now_us);

        if (!send(data, t->writer.bytes, kvr_sync_finish(&t->writer))) {
            return;
        }

        *number = m->number;
        t->spoke_us = now_us;

        for (i = at; i < next; i++) {
            row = kvr_teller_row(t, i);
            row->told = row->now;
        }
    }

    if (full) {
        t->full_us = now_us;
        t->again = false;
    }
}
