/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <sys/mman.h>


#define KVR_RELAY_TEND_US  2000         /* of each turn, while there is work */


bool
kvr_relay_mirror_init(kvr_relay_mirror_t *m, const kvr_relay_options_t *o,
    char why[KVR_WHY_LEN])
{
    kvr_params_t       params;
    kvr_worker_conf_t  conf;

    memset(m, 0, sizeof(kvr_relay_mirror_t));
    memset(&params, 0, sizeof(kvr_params_t));
    memset(&conf, 0, sizeof(kvr_worker_conf_t));

    m->worker = o->worker;
    m->worker_len = strlen(o->worker);
    m->size = o->memory;
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

    kvr_decoder_salted(m->decoder, o->salted);

    params.block_size = o->block_size;
    params.max_workers = 1 + o->ranks / 2;  /* holders come with them */
    params.shards = 1;
    params.index = KVR_INDEX_RADIX;

    snprintf(conf.id, sizeof(conf.id), "%s", o->worker);
    conf.ranks = o->ranks;
    conf.weight = 1000;

    snprintf(why, KVR_WHY_LEN, "no lock");

    return kvr_router_format(m->base, m->size, &params, why) == KVR_OK
           && kvr_router_attach(&m->router, m->base, m->size, &params, why)
              == KVR_OK
           && kvr_router_join(&m->router) == KVR_OK
           && kvr_router_put_worker(&m->router, &conf, KVR_WORKER_API)
              == KVR_OK
           && kvr_router_find_worker(&m->router, m->worker, m->worker_len,
                                     &m->number) == KVR_OK;
}


void
kvr_relay_mirror_free(kvr_relay_mirror_t *m)
{
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
    kvr_relay_emit_pt *emit, void *data, bool *refused)
{
    uint32_t      unknown;
    kvr_rc_t      rc;
    kvr_why_t     why;
    const char   *detail;
    kvr_event_t   normal;

    *refused = ev->verdict == KVR_REFUSED;

    if (ev->verdict != KVR_KEEP) {
        return ev->why;
    }

    rc = kvr_router_write(&m->router, m->worker, m->worker_len, ev, 0,
                          &unknown, &why, &detail);
    if (rc != KVR_OK) {
        *refused = true;
        return why ? why : KVR_WHY_FULL;
    }

    if (ev->kind != KVR_CLEAR && unknown == ev->nhandles) {
        return KVR_WHY_NONE;
    }

    normal = *ev;

    if (ev->ntokens) {
        normal.ntokens = 0;
        normal.locals = m->router.hashes;
        normal.nlocals = ev->nhandles;
    }

    emit(data, &normal);

    return KVR_WHY_NONE;
}


void
kvr_relay_mirror_clear(kvr_relay_mirror_t *m, uint32_t rank)
{
    uint32_t      unknown;
    kvr_why_t     why;
    const char   *detail;
    kvr_event_t   ev;

    memset(&ev, 0, sizeof(kvr_event_t));
    ev.kind = KVR_CLEAR;
    ev.rank = rank;

    (void) kvr_router_write(&m->router, m->worker, m->worker_len, &ev, 0,
                            &unknown, &why, &detail);
}


void
kvr_relay_mirror_clear_all(kvr_relay_mirror_t *m)
{
    uint32_t  holder, steps;

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (kvr_router_next_holder(&m->router, m->number, &holder, &steps)) {
        kvr_relay_mirror_clear(m, kvr_router_holder_rank(&m->router, holder));
    }
}


bool
kvr_relay_mirror_load(kvr_relay_mirror_t *m, const void *bytes, size_t len)
{
    uint32_t        unknown;
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
            || kvr_router_write(&m->router, m->worker, m->worker_len, &ev, 0,
                                &unknown, &why, &detail) != KVR_OK)
        {
            return false;
        }
    }

    return rc == KVR_DONE;
}


kvr_rc_t
kvr_relay_mirror_dump(kvr_relay_mirror_t *m,
    kvr_rc_t (*put)(void *data, const kvr_event_t *ev), void *data)
{
    return kvr_router_dump_events(&m->router, m->worker, m->worker_len, put,
                                  data);
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
    const kvr_worker_t  *w;

    w = kvr_router_worker(&m->router, m->number);

    return w->counters.blocks_forgotten;
}


void
kvr_relay_mirror_tick(kvr_relay_t *r)
{
    if (kvr_router_tend(&r->mirror.router, r->now_ms, KVR_RELAY_TEND_US)) {
        kvr_relay_wake(r, r->now_ms);
    }
}
