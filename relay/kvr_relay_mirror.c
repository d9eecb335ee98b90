/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <sys/mman.h>


/* the time that pending work may take in each turn */
#define KVR_RELAY_TEND_US  2000
/* bytes that the normaliser remembers for a block */
#define KVR_RELAY_REMEMBER 96


static kvr_rc_t kvr_relay_mirror_apply(kvr_relay_mirror_t *m,
    const kvr_event_t *ev, kvr_why_t *why, kvr_normalise_emit_pt emit,
    void *data);
static void kvr_relay_mirror_windows(kvr_relay_mirror_t *m,
    const kvr_event_t *ev, kvr_normalise_emit_pt emit, void *data);


bool
kvr_relay_mirror_init(kvr_relay_mirror_t *m, const kvr_relay_options_t *o,
    char why[KVR_WHY_LEN])
{
    kvr_params_t          params;
    kvr_worker_conf_t     conf;
    kvr_normalise_conf_t  engine;

    memset(m, 0, sizeof(kvr_relay_mirror_t));
    memset(&params, 0, sizeof(kvr_params_t));
    memset(&conf, 0, sizeof(kvr_worker_conf_t));

    m->worker = o->worker;
    m->worker_len = strlen(o->worker);
    m->size = o->memory / 2;        /* the other half is for the normaliser */
    m->base = mmap(NULL, m->size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (m->base == MAP_FAILED) {
        m->base = NULL;
        snprintf(why, KVR_WHY_LEN, "out of memory");
        return false;
    }

    m->decoder = kvr_decoder_create();
    if (m->decoder == NULL) {
        snprintf(why, KVR_WHY_LEN, "out of memory");
        return false;
    }

    kvr_decoder_conf(m->decoder)->salted = o->salted;
    kvr_decoder_conf(m->decoder)->message_max = o->message_max;

    params.block_size = o->block_size;
    params.eagle = o->eagle;
    kvr_decoder_conf(m->decoder)->contract = kvr_params_contract(&params);
    params.max_workers = 1 + o->ranks / 2;  /* holders come with them */
    params.shards = 1;
    params.index = KVR_INDEX_RADIX;

    snprintf(conf.id, sizeof(conf.id), "%s", o->worker);
    conf.ranks = o->ranks;
    conf.weight = 1000;

    snprintf(why, KVR_WHY_LEN, "no lock");

    if (kvr_router_format(m->base, m->size, &params, why) != KVR_OK
        || kvr_router_attach(&m->router, m->base, m->size, &params, why)
           != KVR_OK
        || kvr_router_join(&m->router) != KVR_OK
        || kvr_router_put_worker(&m->router, &conf, KVR_WORKER_API) != KVR_OK
        || kvr_router_find_worker(&m->router, m->worker, m->worker_len,
                                  &m->number) != KVR_OK)
    {
        return false;
    }

    engine.counting = o->refcount;
    m->hybrid = o->hybrid;
    engine.blocks = (uint32_t) kvr_min(o->memory / 2 / KVR_RELAY_REMEMBER,
                                       UINT32_MAX / 2);

    m->engine = kvr_normalise_create(&m->router, &engine);
    if (m->engine == NULL) {
        snprintf(why, KVR_WHY_LEN, "out of memory");
        return false;
    }

    return true;
}


void
kvr_relay_mirror_free(kvr_relay_mirror_t *m)
{
    if (m->engine != NULL) {
        kvr_normalise_destroy(m->engine);
    }

    if (m->router.zone != NULL) {
        kvr_router_detach(&m->router);
    }

    if (m->base != NULL) {
        munmap(m->base, m->size);
    }

    kvr_decoder_destroy(m->decoder);
}


kvr_why_t
kvr_relay_mirror_event(kvr_relay_mirror_t *m, const kvr_event_t *ev,
    kvr_normalise_emit_pt emit, void *data, bool *refused)
{
    kvr_rc_t   rc;
    kvr_why_t  why;

    if (ev->window != m->window && ev->window != 0) {
        kvr_relay_mirror_windows(m, ev, emit, data);
    }

    rc = kvr_relay_mirror_apply(m, ev, &why, emit, data);

    *refused = rc != KVR_OK && rc != KVR_DECLINED;

    if (*refused && why == KVR_WHY_NONE) {
        why = KVR_WHY_FULL;
    }

    return why;
}


/*
 * Follows the attention windows as a router does: a rank that starts again
 * names its windows one after another, and until then blocks are of the
 * largest window that other ranks named.
 */

static void
kvr_relay_mirror_windows(kvr_relay_mirror_t *m, const kvr_event_t *ev,
    kvr_normalise_emit_pt emit, void *data)
{
    uint32_t  holder, steps, rank;

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (m->window
           && kvr_router_next_holder(&m->router, m->number, &holder, &steps))
    {
        rank = kvr_router_holder_rank(&m->router, holder);

        if (ev->window > m->window) {
            /* removals that wait for the rank are dropped, too */
            kvr_relay_mirror_clear(m, rank, emit, data);

        } else if (rank != ev->rank
                   && kvr_router_holder_held(&m->router, holder))
        {
            kvr_decoder_conf(m->decoder)->window = m->window;
            return;
        }
    }

    kvr_relay_mirror_window(m, ev->window);
}


void
kvr_relay_mirror_window(kvr_relay_mirror_t *m, uint32_t window)
{
    m->window = window;
    kvr_decoder_conf(m->decoder)->window = window;
}


/*
 * The mirror's lock is used by this process alone: only a debugger can keep it
 * busy.
 */

static kvr_rc_t
kvr_relay_mirror_apply(kvr_relay_mirror_t *m, const kvr_event_t *ev,
    kvr_why_t *why, kvr_normalise_emit_pt emit, void *data)
{
    kvr_rc_t  rc;

    do {
        *why = KVR_WHY_NONE;
        rc = kvr_normalise_event(m->engine, m->worker, m->worker_len, ev, why,
                                 emit, data);
    } while (rc == KVR_BUSY);

    return rc;
}


void
kvr_relay_mirror_clear(kvr_relay_mirror_t *m, uint32_t rank,
    kvr_normalise_emit_pt emit, void *data)
{
    kvr_why_t    why;
    kvr_event_t  ev;

    /* after a restart the engine may serve another model */

    while (kvr_normalise_forget_groups(m->engine, m->worker, m->worker_len,
                                       rank)
           == KVR_BUSY)
    {
        /* void */
    }

    memset(&ev, 0, sizeof(kvr_event_t));
    ev.kind = KVR_CLEAR;
    ev.rank = rank;

    (void) kvr_relay_mirror_apply(m, &ev, &why, emit, data);
}


void
kvr_relay_mirror_clear_all(kvr_relay_mirror_t *m)
{
    uint32_t  holder, steps, rank;

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (kvr_relay_mirror_next(m, &holder, &steps, &rank)) {
        kvr_relay_mirror_clear(m, rank, NULL, NULL);
    }

    kvr_relay_mirror_emptied(m);
}


bool
kvr_relay_mirror_next(const kvr_relay_mirror_t *m, uint32_t *holder,
    uint32_t *steps, uint32_t *rank)
{
    if (!kvr_router_next_holder(&m->router, m->number, holder, steps)) {
        return false;
    }

    *rank = kvr_router_holder_rank(&m->router, *holder);

    return true;
}


bool
kvr_relay_mirror_load(kvr_relay_mirror_t *m, const void *bytes, size_t len)
{
    kvr_rc_t        rc;
    kvr_why_t       why;
    const char     *detail;
    kvr_event_t     ev;
    kvr_message_t   msg;

    if (kvr_message_open(m->decoder, bytes, len, &msg, &why, &detail)
        != KVR_OK || msg.form != KVR_FORM_NORMALISED)
    {
        return false;
    }

    while ((rc = kvr_decoder_next(m->decoder, &ev)) == KVR_OK) {

        if (ev.verdict != KVR_KEEP
            || kvr_relay_mirror_apply(m, &ev, &why, NULL, NULL) != KVR_OK
            || why != KVR_WHY_NONE)
        {
            return false;
        }
    }

    return rc == KVR_DONE;
}


bool
kvr_relay_mirror_load_state(kvr_relay_mirror_t *m, const void *bytes,
    size_t len)
{
    return kvr_normalise_load(m->engine, m->worker, m->worker_len, bytes, len)
           == KVR_OK;
}


kvr_rc_t
kvr_relay_mirror_dump(kvr_relay_mirror_t *m,
    kvr_rc_t (*put)(void *data, const kvr_event_t *ev), void *data)
{
    return kvr_router_dump_events(&m->router, m->worker, m->worker_len, put,
                                  data);
}


kvr_rc_t
kvr_relay_mirror_save(kvr_relay_mirror_t *m,
    kvr_rc_t (*put)(void *data, const void *part, size_t len), void *data)
{
    return kvr_normalise_save(m->engine, m->worker, m->worker_len, put, data);
}


uint64_t
kvr_relay_mirror_blocks(const kvr_relay_mirror_t *m)
{
    uint32_t  holder, steps;
    uint64_t  blocks;

    holder = KVR_HOLDER_NONE;
    steps = 0;
    blocks = 0;

    while (kvr_router_next_holder(&m->router, m->number, &holder, &steps)) {
        blocks += kvr_router_holder_held(&m->router, holder);
    }

    return blocks;
}


uint64_t
kvr_relay_mirror_forgotten(const kvr_relay_mirror_t *m)
{
    return kvr_relay_mirror_lost(m) - m->forgotten;
}


void
kvr_relay_mirror_emptied(kvr_relay_mirror_t *m)
{
    m->forgotten = kvr_relay_mirror_lost(m);
    m->lacking = false;
}


bool
kvr_relay_mirror_lacks(const kvr_relay_mirror_t *m)
{
    return m->lacking || kvr_relay_mirror_forgotten(m) != 0;
}


bool
kvr_relay_mirror_hybrid(const kvr_relay_mirror_t *m)
{
    return m->hybrid
           || kvr_router_worker(&m->router, m->number)->flags
              & KVR_WORKER_HYBRID;
}


uint64_t
kvr_relay_mirror_lost(const kvr_relay_mirror_t *m)
{
    kvr_normalise_stats_t  stats;
    const kvr_worker_t    *w;

    w = kvr_router_worker(&m->router, m->number);
    kvr_normalise_stats(m->engine, &stats);

    return w->counters.blocks_forgotten + stats.unremembered;
}


void
kvr_relay_mirror_tick(kvr_relay_t *r)
{
    if (kvr_router_tend(&r->mirror.router, r->now_ms, KVR_RELAY_TEND_US)) {
        kvr_relay_wake(r, r->now_ms);
    }
}
