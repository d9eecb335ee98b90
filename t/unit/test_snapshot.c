/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Snapshots: what a worker holds is swapped for what a snapshot says, at once
 * or not at all; the cursor never goes back.
 */


#include "snapshot.h"


#define MANY  2000              /* blocks of a long chain */


static kvr_rc_t
count_line(void *data, const char *line, size_t len)
{
    ++*(uint32_t *) data;

    return KVR_OK;
}


static void
test_swap(void)
{
    bool      apart;
    uint32_t  i, lines;
    model_t   none, before, after;

    memset(&none, 0, sizeof(none));
    model_random(&before);
    model_random(&after);

    snapshot_write(&before);

    ok(begin("a", 5, 100, true) == KVR_OK && all_parts(),
       "a snapshot of a worker that nothing is known of is built");

    lines = 0;
    (void) kvr_router_dump(&router, false, count_line, &lines);
    ok(holds("a", &none) && held("a") == 0 && lines == 0,
       "lookup, count and dump see nothing of it");

    ok(end() == KVR_OK && holds("a", &before)
       && held("a") == model_held(&before),
       "with its end all of it is there");

    (void) kvr_ingest_repair_end(ingest, "a", 1);
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 100) && tidy(),
       "the view is EXACT, and the stream stands at its message");

    ok(say("a", 5, 100, true, "[['c', 0]]") == KVR_INGEST_DROP
       && say("a", 5, 102, true, "[['c', 0]]") == KVR_INGEST_GAP
       && holds("a", &before), "the stream goes on behind that message");

    snapshot_write(&after);
    apart = begin("a", 6, 1, true) == KVR_OK;

    for (i = 0; i < nparts; i++) {
        apart = apart
                && part(parts[i].bytes, parts[i].len, 1) == KVR_DONE
                && holds("a", &before) && held("a") == model_held(&before);
    }

    ok(apart, "while another epoch's is built the view stays");
    ok(end() == KVR_OK && holds("a", &after) && held("b") == 0,
       "then it is the other");
    ok(worker_of("a")->counters.restarts == 1
       && worker_of("a")->counters.snapshots == 2,
       "a restart and two snapshots are counted");

    ok(tidy() && pairs() == model_held(&after),
       "what was held before is reclaimed");

    nparts = 0;
    ok(begin("a", 6, 9, true) == KVR_OK && end() == KVR_OK && tidy()
       && pairs() == 0 && holds("a", &none),
       "a snapshot without parts is an empty view");
}


/* A part that is one long event: slices all the same. */

static void
test_slices(void)
{
    size_t    len;
    pack_t    out;
    uint8_t   bytes[BYTES];
    uint32_t  i, slices;
    model_t   m;

    memset(&m, 0, sizeof(m));

    for (i = 0; i < LENGTH; i++) {
        m.tiers[0][0][i] = 1;
    }

    out.pos = bytes;
    out.end = bytes + BYTES;
    pack_array(&out, 1);
    pack_store(&out, 0, 0, 0, 0, LENGTH);
    len = out.pos - bytes;

    slices = 0;

    ok(begin("a", 1, 1, true) == KVR_OK
       && kvr_snapshot_open(snapshot, bytes, len, &detail) == KVR_OK,
       "a part with one event of many blocks");

    while (kvr_snapshot_step(snapshot, 8) == KVR_OK) {
        slices++;
    }

    ok(slices >= LENGTH / 8 && end() == KVR_OK && holds("a", &m),
       "is applied in slices of so many blocks as were asked for");

    out.pos = bytes;
    pack_array(&out, 1);
    pack_store(&out, 1, 0, 3, 50, 50);
    len = out.pos - bytes;

    ok(begin("a", 1, 2, true) == KVR_OK && part(bytes, len, 8) == KVR_DONE
       && worker_of("a")->counters.why[KVR_WHY_PARENT] == 1,
       "when it is refused it is counted once");
}


/* Which the pointer says, before an envelope could. */

static void
test_hybrid(void)
{
    model_t  m;

    model_random(&m);

    ok(load("a", 1, 1, true, &m)
       && kvr_fleet_confidence(worker_of("a"), now_ms, 5000, true, NULL)
          == KVR_EXACT,
       "a snapshot makes the view EXACT");
    ok(begin_hybrid("a", 2, 1) == KVR_OK && end() == KVR_OK
       && kvr_fleet_confidence(worker_of("a"), now_ms, 5000, true, NULL)
          == KVR_BOUND,
       "that of a hybrid model makes it BOUND");
}


/* Engine blocks of two of ours each. */

static void
test_spans(void)
{
    uint32_t  i;
    uint64_t  locals[40], handles[20];
    pack_t    out;
    uint8_t   bytes[BYTES];

    for (i = 0; i < 40; i++) {
        locals[i] = 77 + i;
        handles[i / 2] = 9000 + i / 2;
    }

    out.pos = bytes;
    out.end = bytes + BYTES;
    pack_array(&out, 2);
    pack_array(&out, 6);
    pack_str(&out, "s", 1);
    pack_u64(&out, 0);
    pack_u64(&out, 0);
    pack_tag(&out, 0xc0, 0, 0);
    pack_bin(&out, handles, sizeof(handles));
    pack_bin(&out, locals, sizeof(locals));
    pack_remove(&out, 0, 0, &handles[15], 1);

    rank = 0;

    ok(begin("a", 1, 1, true) == KVR_OK
       && part(bytes, out.pos - bytes, 3) == KVR_DONE && end() == KVR_OK
       && matched("a", locals, 40).device == 30,
       "engine blocks that span several of ours come in slices too");
}


static void
test_cursor(void)
{
    bool      behind;
    size_t    len;
    model_t   m;
    uint8_t   bytes[BYTES], message[BYTES];

    model_random(&m);

    ok(load("a", 5, 100, true, &m), "a view stands at message 100");

    ok(begin("a", 4, 999, true) == KVR_DECLINED
       && begin("a", 5, 99, true) == KVR_DECLINED
       && begin("a", 5, 100, true) == KVR_DECLINED
       && begin("a", 0, 0, true) == KVR_DECLINED
       && begin("nobody", 6, 1, true) == KVR_DECLINED,
       "no snapshot of an earlier epoch or message can be begun");

    (void) kvr_ingest_repair_failed(ingest, "a", 1, 5, 103);
    ok(stands("a", KVR_DEGRADED, KVR_DEG_GAP, 5, 103)
       && kvr_fleet_wants_snapshot(worker_of("a")) && holds("a", &m),
       "messages that are lost make it DEGRADED; the view is kept");

    snapshot_write(&m);
    ok(begin("a", 5, 102, true) == KVR_OK && all_parts()
       && kvr_snapshot_end(snapshot, now_ms, &behind) == KVR_DECLINED
       && behind, "a snapshot behind the cursor is not enough by itself");

    len = one_block(&m, bytes, 1, 3);
    len = envelope(message, "a", 5, 104, true, bytes, len);
    ok(part(message, len, 1) == KVR_DECLINED,
       "nor with an entry of the log that does not follow");

    len = envelope(message, "a", 5, 102, true, bytes, len);
    ok(part(message, len, 1) == KVR_DONE, "an entry that it covers is passed");

    m.tiers[1][3][0] |= 1;
    len = one_block(&m, bytes, 0, 2);
    len = envelope(message, "a", 5, 103, true, bytes, len);
    ok(part(message, len, 1) == KVR_DONE, "one that follows is applied aside");

    ok(end() == KVR_OK
       && kvr_ingest_repair_end(ingest, "a", 1) == KVR_OK
       && stands("a", KVR_EXACT, KVR_FINE, 5, 103),
       "then the view is EXACT, and the cursor never went back");

    snapshot_write(&m);
    ok(load("a", 5, 110, true, &m) && holds("a", &m) && tidy(),
       "a later snapshot of the same epoch is taken");

    ok(begin("a", 5, 120, true) == KVR_OK && all_parts()
       && send_bytes("a", 6, 1, true, (uint8_t *) "\x90", 1)
          == KVR_INGEST_APPLY
       && end() == KVR_DECLINED && held("a") == 0 && tidy(),
       "a new epoch that begins meanwhile ends what is built");
}


static void
test_whole(void)
{
    model_t      m, none;
    uint32_t     i;
    const char  *reason;

    memset(&none, 0, sizeof(none));
    model_random(&m);

    ok(load("a", 5, 100, false, &m)
       && stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 5, 100)
       && !kvr_fleet_wants_snapshot(worker_of("a")) && holds("a", &m),
       "an incomplete snapshot: DEGRADED, and another one would not help");

    (void) say("a", 5, 101, true, "[['c', 0]]");
    ok(stands("a", KVR_DEGRADED, KVR_DEG_GAP, 5, 101),
       "when one rank of two is cleared it stays so");

    (void) say("a", 5, 102, true, "[['c', 1]]");
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 102) && holds("a", &none),
       "when both are it is EXACT");

    (void) say("a", 5, 103, true, "[['c', 0]]");
    (void) kvr_ingest_repair_failed(ingest, "a", 1, 5, 105);
    (void) say("a", 5, 106, true, "[['c', 1]]");
    ok(stands("a", KVR_DEGRADED, KVR_DEG_GAP, 5, 106),
       "what was cleared before messages were lost does not count");

    (void) say("a", 5, 107, false, "[['c', 0]]");
    ok(stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 5, 107),
       "nor what a publisher says that does not know all");

    (void) say("a", 5, 108, true, "[['c', 0], ['c', 1]]");
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 108), "both at once do");

    (void) say("a", 5, 109, true, "[['s', 0, 9, null, 1, 2]]");
    ok(stands("a", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 109),
       "a refused event: DEGRADED");

    (void) say("a", 5, 110, true, "[['c', 1], ['c', 0]]");
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 110), "cleared: EXACT");

    (void) say("a", 5, 110, false, NULL);
    ok(stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 5, 110),
       "a heartbeat that says incomplete is believed");

    (void) say("a", 5, 110, true, NULL);
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 110), "and one that takes it back");

    for (i = 0; i < router.nshards; i++) {
        (void) kvr_ingest_repair_shard(ingest, i, true);
    }

    ok(stands("a", KVR_SYNCING, KVR_FINE, 5, 110)
       && worker_of("b")->stream.confidence == KVR_UNKNOWN,
       "when it is listened to anew it is SYNCING");

    for (i = 0; i < router.nshards; i++) {
        (void) kvr_ingest_repair_shard(ingest, i, false);
    }

    ok(stands("a", KVR_DEGRADED, KVR_FINE, 5, 110)
       && kvr_fleet_confidence(worker_of("a"), now_ms, 5000, true, &reason)
          == KVR_DEGRADED && strcmp(reason, "silent") == 0
       && worker_of("b")->stream.confidence == KVR_UNKNOWN,
       "where nobody will read what was missed it is silent");

    (void) say("a", 5, 110, true, NULL);
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 110),
       "until a heartbeat tells that there was nothing");

    for (i = 0; i < router.nshards; i++) {
        (void) kvr_ingest_repair_shard(ingest, i, false);
    }

    (void) say("a", 5, 111, true, "[['c', 0]]");
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 111), "or a message does");

    for (i = 0; i < router.nshards; i++) {
        (void) kvr_ingest_repair_shard(ingest, i, false);
    }

    ok(say("a", 5, 113, true, NULL) == KVR_INGEST_GAP
       && kvr_ingest_repair_failed(ingest, "a", 1, 5, 113) == KVR_OK
       && stands("a", KVR_DEGRADED, KVR_DEG_GAP, 5, 113),
       "or that there was something");

    (void) say("a", 5, 114, true, "[['s', 0, 9, null, 1, 2]]");
    ok(load("a", 5, 115, true, &m)
       && stands("a", KVR_EXACT, KVR_FINE, 5, 115),
       "a snapshot ends what a refusal began");
}


/* A chain of `n' blocks, or one block behind that chain. */

static bool
long_part(uint64_t first, uint32_t n, bool child)
{
    uint32_t  i;
    pack_t    out;

    static uint64_t  values[MANY];
    static uint8_t   bytes[4 * BYTES];

    out.pos = bytes;
    out.end = bytes + sizeof(bytes);

    pack_array(&out, 1);
    pack_array(&out, 6);
    pack_str(&out, "s", 1);
    pack_u64(&out, 0);
    pack_u64(&out, 0);

    if (child) {
        pack_u64(&out, first + n - 1);
        first += UINT64_C(1) << 32;
        n = 1;

    } else {
        pack_tag(&out, 0xc0, 0, 0);
    }

    for (i = 0; i < n; i++) {
        values[i] = first + i;
    }

    pack_bin(&out, values, n * 8);
    pack_bin(&out, values, n * 8);

    return part(bytes, out.pos - bytes, 1000) == KVR_DONE;
}


/* A snapshot that the zone has no room for. */

static void
test_full(void)
{
    bool                 good;
    uint32_t             i;
    const kvr_worker_t  *w;

    w = worker_of("a");
    good = begin("a", 5, 100, true) == KVR_OK;

    for (i = 0; i < 1000 && good && !w->stream.aside_lost; i++) {
        good = long_part(1 + i * MANY, MANY, false);
    }

    ok(good && i < 1000, "a part is forgotten as soon as the zone is full");

    while (good && i--) {
        good = long_part(1 + i * MANY, MANY, true);
    }

    ok(good && w->counters.why[KVR_WHY_FORGOTTEN] > 0
       && w->counters.why[KVR_WHY_PARENT] <= 1,
       "and what hangs on it, which is counted");

    ok(end() == KVR_OK
       && kvr_ingest_repair_end(ingest, "a", 1) == KVR_OK
       && stands("a", KVR_EXACT, KVR_FINE, 5, 100)
       && w->flags & KVR_WORKER_TRUNCATED,
       "and no more: the view is TRUNCATED, not DEGRADED");
}


static void
test_garbage(void)
{
    bool      good;
    size_t    n;
    uint8_t   bytes[BYTES];
    uint32_t  i;
    model_t   before, after;

    model_random(&before);
    model_random(&after);

    ok(load("a", 5, 100, true, &before), "a view");

    snapshot_write(&after);

    good = true;

    for (i = 0; i < 200; i++) {
        n = random_below(parts[0].len);
        memcpy(bytes, parts[0].bytes, parts[0].len);

        if (i & 1) {
            good = good && begin("a", 5, 101, true) == KVR_OK
                   && part(bytes, n, 8) == KVR_INVALID;

        } else {
            bytes[n] ^= 1u << random_below(8);
            good = good && begin("a", 5, 101, true) == KVR_OK;
            (void) part(bytes, parts[0].len, 8);
        }

        good = good && kvr_snapshot_abort(snapshot) == KVR_OK;
    }

    ok(good && holds("a", &before) && tidy() && pairs() == model_held(&before)
       && stands("a", KVR_EXACT, KVR_FINE, 5, 100),
       "parts with bits flipped or an end cut off leave the view as it was");

    good = begin("a", 5, 101, true) == KVR_OK;
    n = pack(bytes, sizeof(bytes), "[1.5, [['AllBlocksCleared']], 0]");
    good = good && part(bytes, n, 8) == KVR_INVALID;
    n = pack(bytes, sizeof(bytes), "{}");
    good = good && part(bytes, n, 8) == KVR_INVALID;
    n = envelope(bytes, "b", 5, 102, true, (uint8_t *) "\x90", 1);
    good = good && part(bytes, n, 8) == KVR_INVALID;
    good = good && part((uint8_t *) "", 0, 8) == KVR_INVALID;
    ok(good && kvr_snapshot_abort(snapshot) == KVR_OK && holds("a", &before),
       "nor may a part be anything else");

    n = pack(bytes, sizeof(bytes), "[['s', 0, 0, 77, {'$bin': "
             "'0100000000000000'}, {'$bin': '0100000000000000'}]]");
    ok(begin("a", 5, 101, true) == KVR_OK && part(bytes, n, 8) == KVR_DONE
       && all_parts() && end() == KVR_OK
       && kvr_ingest_repair_end(ingest, "a", 1) == KVR_OK
       && stands("a", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 101)
       && holds("a", &after),
       "an event of a part that is refused makes the new view DEGRADED");

    ok(begin("a", 5, 102, true) == KVR_OK && all_parts()
       && kvr_router_remove_worker(&router, "a", 1) == KVR_OK
       && part(parts[0].bytes, parts[0].len, 8) == KVR_DECLINED
       && end() == KVR_DECLINED && tidy() && pairs() == 0,
       "of a worker that is removed meanwhile nothing comes in");

    put("a");
    ok(part(parts[0].bytes, parts[0].len, 8) == KVR_DECLINED
       && held("a") == 0, "nor when it is put again");

    ok(load("a", 1, 1, true, &before) && holds("a", &before),
       "it begins anew");
}


int
main(void)
{
    uint32_t  i, k;

    static void  (*const tests[])(void) = {
        test_swap, test_hybrid, test_slices, test_spans, test_cursor,
        test_whole, test_full, test_garbage
    };

    for (i = 0; i < KINDS; i++) {
        note("%s", kinds[i].name);

        for (k = 0; k < sizeof(tests) / sizeof(tests[0]); k++) {
            open_all(&kinds[i]);
            tests[k]();
            close_all();
        }
    }

    return done();
}
