/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What kv-relay writes is what routers read: envelopes, normalised batches,
 * and a dump as events that makes the same index again.
 */


#include "decode.h"
#include "zone.h"


#define BATCH  (64u << 10)


static char      batch[BATCH];
static size_t    batch_len;
static uint32_t  batch_events;


static void
begin(void)
{
    batch_len = KVR_NORMALISED_HEAD;
    batch_events = 0;
}


static bool
add(const kvr_event_t *ev)
{
    size_t  len;

    len = kvr_normalised_print(batch + batch_len, BATCH - batch_len,
                               &ev->change);

    batch_len += len;
    batch_events += len != 0;

    return len != 0;
}


static void
end(void)
{
    kvr_normalised_head_print(batch, batch_events);
    decode_bytes(batch, batch_len);
}


static void
test_batch(void)
{
    kvr_event_t  ev;

    static const uint64_t  handles[] = { 7, UINT64_MAX };
    static const uint64_t  locals[] = { 0x0102030405060708, 9, 10, 11 };

    begin();

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.rank = 1023;
    ev.tier = KVR_DISK;
    ev.has_parent = true;
    ev.parent = UINT64_MAX - 1;
    ev.handles = handles;
    ev.nhandles = 2;
    ev.locals = locals;
    ev.nlocals = 4;
    (void) add(&ev);

    ev.has_parent = false;
    ev.nlocals = 0;
    (void) add(&ev);

    ev.kind = KVR_REMOVE;
    (void) add(&ev);

    ev.kind = KVR_CLEAR;
    (void) add(&ev);

    end();

    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 4
       && got.msg.form == KVR_FORM_NORMALISED,
       "a batch that was written is read, event by event");

    ok(got.event[0].ev.kind == KVR_STORE && got.event[0].ev.rank == 1023
       && got.event[0].ev.tier == KVR_DISK && got.event[0].ev.has_parent
       && got.event[0].ev.parent == UINT64_MAX - 1
       && got.event[0].ev.nhandles == 2
       && memcmp(got.event[0].handles, handles, sizeof(handles)) == 0
       && got.event[0].ev.nlocals == 4
       && memcmp(got.event[0].locals, locals, sizeof(locals)) == 0,
       "a store has all its fields, with two locals to a handle");

    ok(got.event[1].ev.kind == KVR_STORE && !got.event[1].ev.has_parent
       && got.event[1].ev.nhandles == 2 && got.event[1].ev.nlocals == 0,
       "a store may do without locals and parent");

    ok(got.event[2].ev.kind == KVR_REMOVE && got.event[2].ev.tier == KVR_DISK
       && got.event[2].handles[1] == UINT64_MAX
       && got.event[3].ev.kind == KVR_CLEAR && got.event[3].ev.rank == 1023,
       "removals and clears too");

    ev.kind = KVR_STORE;
    ev.nlocals = 3;
    begin();
    ok(!add(&ev), "three locals to two handles can't be said");
}


static void
test_room(void)
{
    size_t       len, size;
    char         out[256];
    bool         good;
    kvr_event_t  ev;

    static const uint64_t  values[] = { 1, 2, 3 };

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.has_parent = true;
    ev.parent = UINT64_MAX;
    ev.handles = values;
    ev.nhandles = 3;
    ev.locals = values;
    ev.nlocals = 3;
    ev.rank = 1023;

    len = kvr_normalised_print(out, sizeof(out), &ev.change);

    ok(len != 0 && len <= KVR_NORMALISED_EVENT + 6 * 8,
       "an event takes what its bound says, at most");

    good = true;

    for (size = 0; size < len; size++) {
        memset(out, 0x55, sizeof(out));

        if (kvr_normalised_print(out, size, &ev.change) != 0 || out[size] != 0x55) {
            good = false;
        }
    }

    ok(good, "where there is less room nothing is said, nor written behind");
}


static void
test_envelope(void)
{
    char            out[512];
    size_t          len;
    kvr_event_t     ev;
    kvr_envelope_t  e;

    static const uint64_t  handle = 5;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_REMOVE;
    ev.handles = &handle;
    ev.nhandles = 1;

    begin();
    (void) add(&ev);
    kvr_normalised_head_print(batch, batch_events);

    memset(&e, 0, sizeof(e));
    e.worker = "w:1";
    e.worker_len = 3;
    e.epoch = 1795288545942;
    e.seq = UINT64_MAX;
    e.complete = true;
    e.payload = batch;
    e.payload_len = batch_len;
    e.has_engine_seq = true;
    e.engine_seq = 77;
    e.rank = 3;

    len = kvr_envelope_print(out, sizeof(out), &e);
    decode_bytes(out, len);

    ok(len != 0 && len <= batch_len + KVR_ENVELOPE_HEAD
       && got.opened == KVR_OK && got.msg.form == KVR_FORM_ENVELOPE
       && strcmp(got.worker, "w:1") == 0 && got.msg.epoch == 1795288545942
       && got.msg.seq == UINT64_MAX && got.msg.complete
       && !got.msg.heartbeat && got.msg.counted && !got.msg.hybrid,
       "an envelope that was written is read");

    ok(got.n == 1 && got.event[0].ev.kind == KVR_REMOVE
       && got.event[0].handles[0] == 5,
       "with its payload");

    e.payload = NULL;
    e.complete = false;
    len = kvr_envelope_print(out, sizeof(out), &e);
    decode_bytes(out, len);

    ok(got.opened == KVR_OK && got.msg.heartbeat && !got.msg.complete,
       "one without a payload is a heartbeat");

    e.hybrid = true;
    len = kvr_envelope_print(out, sizeof(out), &e);
    decode_bytes(out, len);

    ok(got.opened == KVR_OK && got.msg.hybrid,
       "an envelope says that the model is hybrid");
    ok(!got.msg.draining, "and that the engine doesn't drain");

    e.draining = true;
    e.hybrid = false;
    len = kvr_envelope_print(out, sizeof(out), &e);
    decode_bytes(out, len);

    ok(got.opened == KVR_OK && got.msg.draining && !got.msg.hybrid,
       "or that it does");

    ok(kvr_envelope_print(out, len - 1, &e) == 0,
       "one that has no room isn't written");

    e.worker_len = 0;
    ok(kvr_envelope_print(out, sizeof(out), &e) == 0,
       "nor one of a worker without a name");
}


/* ---- the dump ----------------------------------------------------------- */

static kvr_rc_t
dump_put(void *data, const kvr_event_t *ev)
{
    return add(ev) ? KVR_OK : KVR_ERROR;
}


/* Dumps worker "a" of the zone, and makes a zone of it. */

static void
again(void)
{
    uint32_t      i;
    kvr_event_t  *ev;

    begin();
    (void) kvr_router_dump_events(&router, "a", 1, dump_put, NULL);
    end();

    zone_close();
    zone_open(kind, 16 << 20);
    put("a");

    for (i = 0; i < got.n; i++) {
        ev = &got.event[i].ev;
        ev->handles = got.event[i].handles;
        ev->locals = got.event[i].locals;

        rank = ev->rank;
        tier = ev->tier;
        (void) write_event("a", ev);

        if (why != KVR_WHY_NONE) {
            note("event %u is refused: %s", i, kvr_why_name(why));
        }
    }

    rank = 0;
    tier = KVR_DEVICE;
}


static void
store_spans(uint64_t parent, const uint64_t *handles, const uint64_t *locals,
    uint32_t n, uint32_t span)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.has_parent = parent != 0;
    ev.parent = parent;
    ev.handles = handles;
    ev.nhandles = n;
    ev.locals = locals;
    ev.nlocals = n * span;

    (void) write_event("a", &ev);
}


static void
test_dump(void)
{
    zone_open(kind, 16 << 20);
    put("a");
    put("b");

    store("a", 0, row(101, 40), row(1, 40), 40);
    store("a", 110, row(301, 5), row(501, 5), 5);
    take_one("a", 105);

    tier = KVR_HOST;
    store("a", 0, row(101, 3), row(1, 3), 3);
    tier = KVR_DEVICE;

    rank = 1;
    store("a", 0, row(101, 7), row(1, 7), 7);
    rank = 0;

    store("b", 0, row(101, 9), row(1, 9), 9);

    again();

    is_u64(matched("a", row(1, 40), 40).device, 4,
           "%s: a dump ends a match at the hole that there is", kind->name);

    is_u64(matched("a", row(1, 40), 40).host, 4,
           "%s: and has the tiers", kind->name);

    store("a", 104, row(105, 1), row(5, 1), 1);

    is_u64(matched("a", row(1, 40), 40).device, 40,
           "%s: filled, it is whole again", kind->name);

    rank = 1;
    is_u64(matched("a", row(1, 40), 40).device, 7,
           "%s: each rank has its own", kind->name);
    rank = 0;

    is_u64(matched("b", row(1, 40), 40).device, 0,
           "%s: another worker is not in it", kind->name);

    zone_close();
}


static void
test_dump_spans(void)
{
    zone_open(kind, 16 << 20);
    put("a");

    store_spans(0, row(101, 5), row(1, 20), 5, 4);
    store_spans(103, row(201, 1), row(301, 4), 1, 4);

    again();

    is_u64(matched("a", row(1, 20), 20).device, 20,
           "%s: blocks that span four are in a dump", kind->name);

    take_one("a", 104);

    is_u64(matched("a", row(1, 20), 20).device, 12,
           "%s: a removal afterwards takes all four", kind->name);

    again();
    store_spans(103, row(104, 1), row(13, 4), 1, 4);

    is_u64(matched("a", row(1, 20), 20).device, 20,
           "%s: and a store brings them back", kind->name);

    zone_close();
}


int
main(void)
{
    uint32_t  i;

    decoder = kvr_decoder_create();

    test_batch();
    test_room();
    test_envelope();

    for (i = 0; i < KINDS; i++) {
        kind = &kinds[i];
        test_dump();
        test_dump_spans();
    }

    kvr_decoder_destroy(decoder);

    return done();
}
