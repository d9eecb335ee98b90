/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_teller.h"
#include "kvr_group_state.h"

#include <stdio.h>
#include <stdlib.h>


typedef struct {
    uint64_t        row;                /* 0: of no worker so far */
    uint32_t        generation;
    uint64_t        told_us;            /* 0: never */
    kvr_load_row_t  told;
} kvr_teller_row_t;


struct kvr_teller_s {
    kvr_group_t        *group;          /* knows the fleet, and the peers */
    uint64_t            about_us;       /* when it was told last; 0: never */
    uint64_t            spoke_us;       /* when anything was */
    kvr_sync_message_t  message;
    char                bytes[KVR_SYNC_MAX];
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

        (void) snprintf(t->message.name, sizeof(t->message.name), "%s", name);
        (void) snprintf(t->message.version, sizeof(t->message.version), "%s",
                        version);
    }

    return t;
}


void
kvr_teller_destroy(kvr_teller_t *t)
{
    free(t);
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
 * Adds the row of a holder to the message, if it is due.  Requests that came
 * and went between two looks told the row as it was then, and have changed
 * ended_ms.  True: the holder has load.
 */

static bool
kvr_teller_row(kvr_teller_t *t, const kvr_group_holder_t *h)
{
    bool                 loaded;
    uint64_t             now_us;
    kvr_load_row_t       load;
    kvr_teller_row_t    *row;
    kvr_sync_message_t  *m;

    m = &t->message;
    now_us = m->clock_us;
    row = &t->rows[h->holder];

    if (row->row != h->row || row->generation != h->generation) {
        memset(row, 0, sizeof(kvr_teller_row_t));
        row->row = h->row;
        row->generation = h->generation;
    }

    kvr_load_read(&t->group->k->load, h->holder, h->generation, &load);

    loaded = kvr_teller_loaded(&load);

    if (memcmp(&load, &row->told, sizeof(kvr_load_row_t)) != 0
        || (loaded && now_us - row->told_us >= KVR_TELLER_AGAIN_MS * 1000))
    {
        row->told = load;
        row->told_us = now_us;
        m->rows[m->nrows++] = kvr_sync_load(h->row, &load, now_us / 1000);
    }

    return loaded;
}


static void
kvr_teller_send(kvr_teller_t *t, kvr_teller_send_pt send, void *data)
{
    kvr_sync_message_t  *m;

    m = &t->message;

    if (send(data, t->bytes, kvr_sync_write(m, t->bytes))) {
        t->spoke_us = m->clock_us;
        t->about_us = m->about ? m->clock_us : t->about_us;
        m->about = false;
    }

    m->nrows = 0;
}


void
kvr_teller_tell(kvr_teller_t *t, uint64_t now_us, bool leaving,
    kvr_teller_send_pt send, void *data)
{
    bool                 loaded;
    uint32_t             i;
    kvr_group_t         *g;
    kvr_sync_message_t  *m;

    g = t->group;
    m = &t->message;

    kvr_teller_window(g->k->peers.zone, now_us / 1000000);
    kvr_group_fleet(g, now_us);

    m->router = g->own;
    m->clock_us = now_us;
    m->share = g->share;
    m->uncached = kvr_teller_uncached(t);
    m->leaving = leaving;
    m->about = t->about_us == 0
               || now_us - t->about_us >= KVR_TELLER_ABOUT_MS * 1000;

    for (i = 0, loaded = false; g->npeers && i < g->nfleet; i++) {

        loaded |= kvr_teller_row(t, &g->fleet[i]);

        if (m->nrows == KVR_SYNC_ROWS) {
            kvr_teller_send(t, send, data);
        }
    }

    if (m->about || m->nrows
        || (loaded && now_us - t->spoke_us >= KVR_TELLER_ALIVE_MS * 1000))
    {
        kvr_teller_send(t, send, data);
    }
}
