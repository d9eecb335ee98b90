/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Streams of messages, into a whole zone: cursors never go back, the dump can
 * be read, and when all workers are taken out nothing is left.
 *
 * An input is a row of: what (1 byte), length (2, low byte first), message.
 */


#include "drained.h"

#include "follow/kvr_ingest_state.h"

#include "../t/unit/kinds.h"


#define ZONE         (4u << 20)
#define MESSAGES     64                 /* of an input, at most */
#define NOW          1000


static void run(const kind_t *kind, const uint8_t *bytes, size_t len);
static void open_zone(const kind_t *kind);
static void message(uint8_t what, const uint8_t *bytes, size_t len);
static void repair(uint8_t what, const uint8_t *bytes, size_t len);
static void cursors(void);
static kvr_rc_t line(void *data, const char *text, size_t len);
static void close_zone(void);


const uint32_t  fuzz_inputs = 2000;

static _Alignas(4096) char  zone[ZONE];

static kvr_router_t         router;
static kvr_ingest_t        *ingest;
static kvr_decoder_t       *decoder;

static const char *const    names[] = { "w", "7", "x" };
#define NAMES               (sizeof(names) / sizeof(names[0]))

static kvr_cursor_t         at[NAMES];


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    size_t  i;

    for (i = 0; i < KINDS; i++) {
        run(&kinds[i], bytes, len);
    }

    return 0;
}


static void
run(const kind_t *kind, const uint8_t *bytes, size_t len)
{
    size_t    n;
    uint32_t  i;

    open_zone(kind);

    for (i = 0; i < MESSAGES && len >= 3; i++) {

        n = bytes[1] | (size_t) bytes[2] << 8;
        n = kvr_min(n, len - 3);

        if ((bytes[0] & 15) == 15) {
            repair(bytes[0], bytes + 3, n);

        } else if ((bytes[0] & 15) == 14) {
            (void) kvr_router_tend(&router, NOW, 100);

        } else {
            message(bytes[0], bytes + 3, n);
        }

        cursors();

        bytes += n + 3;
        len -= n + 3;
    }

    close_zone();
}


static void
open_zone(const kind_t *kind)
{
    char                 why[KVR_WHY_LEN];
    uint32_t             i;
    const kvr_params_t  *params;

    if (decoder == NULL) {
        decoder = kvr_decoder_create();
    }

    params = &kind->params;

    memset(zone, 0, ZONE);
    memset(at, 0, sizeof(at));

    if (kvr_router_format(zone, ZONE, params, why) != KVR_OK
        || kvr_router_attach(&router, zone, ZONE, params, why) != KVR_OK
        || kvr_router_join(&router) != KVR_OK)
    {
        fuzz_fail("no zone: %s", why);
    }

    for (i = 0; i < params->shards; i++) {
        (void) kvr_router_lease(&router, i, 0, NOW);
    }

    ingest = kvr_ingest_create(&router);
    ingest->memory.blocks = 64;
}


static void
message(uint8_t what, const uint8_t *bytes, size_t len)
{
    void                 *copy;
    uint32_t              steps;
    kvr_rc_t              rc;
    const char           *name, *detail;
    kvr_cursor_t          last;
    kvr_ingest_verdict_t  verdict;

    copy = fuzz_copy(bytes, len);
    name = names[(what >> 4) % NAMES];
    verdict = kvr_ingest_open(ingest, name, 1, copy, len, what & 1, NOW,
                              &detail);

    switch (verdict) {

    case KVR_INGEST_APPLY:
        steps = 0;

        do {
            rc = kvr_ingest_step(ingest, 1 + (what >> 1 & 7));
        } while (rc == KVR_OK && steps++ < 200000);

        if (rc != KVR_DONE) {
            fuzz_fail("step: %d", rc);
        }

        break;

    case KVR_INGEST_GAP:
        if (kvr_ingest_missing(ingest, &last) == KVR_OK) {
            (void) kvr_ingest_repair_failed(ingest, name, 1, last.epoch,
                                            last.seq);
        }

        break;

    case KVR_INGEST_DROP:
        break;

    default:
        fuzz_fail("open: %d", verdict);
    }

    free(copy);
}


static void
repair(uint8_t what, const uint8_t *bytes, size_t len)
{
    const char  *name;

    name = names[(what >> 4) % NAMES];

    (void) kvr_ingest_repair_begin(ingest, name, 1);

    if (len > 1) {
        (void) kvr_ingest_repair_failed(ingest, name, 1, bytes[0], bytes[1]);

    } else if (len == 1) {
        (void) kvr_ingest_repair_end(ingest, name, 1);
    }
}


static void
cursors(void)
{
    uint32_t      i;
    kvr_cursor_t  now;

    for (i = 0; i < NAMES; i++) {
        if (kvr_ingest_cursor(ingest, names[i], 1, &now) != KVR_OK) {
            continue;
        }

        if (now.epoch < at[i].epoch
            || (now.epoch == at[i].epoch && now.seq < at[i].seq))
        {
            fuzz_fail("the cursor of %s went back to %llu in %llu", names[i],
                      (unsigned long long) now.seq,
                      (unsigned long long) now.epoch);
        }

        at[i] = now;
    }
}


static kvr_rc_t
line(void *data, const char *text, size_t len)
{
    kvr_why_t      why;
    kvr_event_t    ev;
    const char    *detail;
    kvr_message_t  msg;

    if (kvr_message_open(decoder, text, len, &msg, &why, &detail) != KVR_OK
        || kvr_decoder_next(decoder, &ev) != KVR_OK
        || ev.verdict != KVR_KEEP)
    {
        fuzz_fail("a line of the dump: %.*s", (int) len, text);
    }

    return KVR_OK;
}


static void
close_zone(void)
{
    uint32_t  i;

    if (kvr_router_dump(&router, false, line, NULL) != KVR_OK) {
        fuzz_fail("no dump");
    }

    for (i = 0; i < NAMES; i++) {
        (void) kvr_router_remove_worker(&router, names[i], 1);
    }

    drained(&router, NOW);

    kvr_ingest_destroy(ingest);
    kvr_router_leave(&router);
    kvr_router_detach(&router);
}
