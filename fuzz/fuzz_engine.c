/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a relay reads back: an engine's events, snapshots' parts and saved
 * state, in any order.  What was made of them is saved again, and has to be
 * taken whole by another engine whose index is the same.
 *
 * An input is a row of: what (1 byte), length (2, low byte first), bytes.
 */


#include "fuzz.h"

#include "normalise/kvr_normalise.h"

#include "../t/unit/kinds.h"


#define ZONE      (4u << 20)
#define ROWS      64                    /* of an input, at most */
#define REMEMBER  64                    /* blocks */
#define RANKS     4


typedef struct {
    kvr_router_t       router;
    kvr_normaliser_t  *engine;
    char              *zone;
} side_t;


static void side_open(side_t *s);
static void side_close(side_t *s);
static void event(side_t *s, const kvr_event_t *ev);
static void message(side_t *s, const void *bytes, size_t len);
static void clear(side_t *s, uint32_t rank);
static void emitted(void *data, const kvr_change_t *ev);
static kvr_rc_t dumped(void *data, const kvr_event_t *ev);
static kvr_rc_t saved(void *data, const void *part, size_t len);
static void compare(void);


const uint32_t  fuzz_inputs = 2500;

static _Alignas(4096) char  zones[2][ZONE];

static side_t          near = { .zone = zones[0] };
static side_t          far = { .zone = zones[1] };
static kvr_decoder_t  *decoder;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    void      *copy;
    size_t     n;
    uint32_t   i;

    if (decoder == NULL) {
        decoder = kvr_decoder_create();
    }

    side_open(&near);

    for (i = 0; i < ROWS && len >= 3; i++) {

        n = bytes[1] | (size_t) bytes[2] << 8;
        n = kvr_min(n, len - 3);
        copy = fuzz_copy(bytes + 3, n);

        switch (bytes[0] & 3) {

        case 0:
        case 1:
            message(&near, copy, n);
            break;

        case 2:
            (void) kvr_normalise_load(near.engine, "w", 1, copy, n);
            break;

        case 3:
            clear(&near, bytes[0] >> 2 & 3);
            break;
        }

        free(copy);

        bytes += n + 3;
        len -= n + 3;
    }

    compare();
    side_close(&near);

    return 0;
}


static void
side_open(side_t *s)
{
    char                  why[KVR_WHY_LEN];
    kvr_worker_conf_t     worker;
    kvr_normalise_conf_t  conf;

    memset(s->zone, 0, ZONE);
    memset(&worker, 0, sizeof(worker));

    strcpy(worker.id, "w");
    worker.ranks = RANKS;
    worker.weight = 1000;

    conf.counting = true;
    conf.blocks = REMEMBER;

    if (kvr_router_format(s->zone, ZONE, &kinds[0].params, why) != KVR_OK
        || kvr_router_attach(&s->router, s->zone, ZONE, &kinds[0].params, why)
           != KVR_OK
        || kvr_router_join(&s->router) != KVR_OK
        || kvr_router_put_worker(&s->router, &worker, KVR_WORKER_API)
           != KVR_OK)
    {
        fuzz_fail("no zone: %s", why);
    }

    s->engine = kvr_normalise_create(&s->router, &conf);
}


static void
side_close(side_t *s)
{
    kvr_normalise_destroy(s->engine);
    kvr_router_leave(&s->router);
    kvr_router_detach(&s->router);
}


static void
event(side_t *s, const kvr_event_t *ev)
{
    kvr_why_t  why;

    (void) kvr_normalise_event(s->engine, "w", 1, ev, &why, emitted, s);
}


static void
message(side_t *s, const void *bytes, size_t len)
{
    kvr_why_t      why;
    kvr_event_t    ev;
    const char    *detail;
    kvr_message_t  msg;

    if (kvr_message_open(decoder, bytes, len, &msg, &why, &detail) != KVR_OK) {
        return;
    }

    while (kvr_decoder_next(decoder, &ev) == KVR_OK) {
        event(s, &ev);
    }
}


static void
clear(side_t *s, uint32_t rank)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_CLEAR;
    ev.rank = rank;

    event(s, &ev);
}


/* What is passed on can be printed, and has hashes for whole blocks. */

static void
emitted(void *data, const kvr_change_t *ev)
{
    if (ev->kind != KVR_CLEAR && ev->kind != KVR_CLASS && ev->nhandles == 0) {
        fuzz_fail("an event of nothing");
    }

    if (ev->nhandles != 0 && ev->nlocals % ev->nhandles != 0) {
        fuzz_fail("%u hashes of %u blocks", ev->nlocals, ev->nhandles);
    }
}


/* ---- what is saved is taken again --------------------------------------- */

static kvr_rc_t
dumped(void *data, const kvr_event_t *ev)
{
    kvr_why_t  why;

    if (kvr_normalise_event(far.engine, "w", 1, ev, &why, NULL, NULL)
        != KVR_OK)
    {
        fuzz_fail("a dump's event was not taken: %s", kvr_why_name(why));
    }

    return KVR_OK;
}


static kvr_rc_t
saved(void *data, const void *part, size_t len)
{
    void  *copy;

    if (len > KVR_NORMALISE_PART) {
        fuzz_fail("a part of %zu bytes", len);
    }

    copy = fuzz_copy(part, len);

    if (kvr_normalise_load(far.engine, "w", 1, copy, len) != KVR_OK) {
        fuzz_fail("a saved part was not taken");
    }

    free(copy);

    return KVR_OK;
}


static void
compare(void)
{
    side_open(&far);

    if (kvr_router_dump_events(&near.router, "w", 1, dumped, NULL) != KVR_OK
        || kvr_normalise_save(near.engine, "w", 1, saved, NULL) != KVR_OK)
    {
        fuzz_fail("no dump");
    }

    side_close(&far);
}
