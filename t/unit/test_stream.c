/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What makes a view one to be trusted, and what ends that: beyond a single
 * message, a publisher's change of mind, a process's life.
 */


#include "snapshot.h"


#define REFUSED  "['s', 0, 9, null, 1, 2]"


static void
test_refusal(void)
{
    model_t  m;

    model_random(&m);

    ok(load("a", 5, 100, true, &m)
       && stands("a", KVR_EXACT, KVR_FINE, 5, 100), "a view");

    (void) say("a", 5, 101, true, "[" REFUSED "]");
    (void) say("a", 5, 101, false, NULL);
    ok(stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 5, 101),
       "an event is refused, then the publisher does not know all");

    (void) say("a", 5, 101, true, NULL);
    ok(stands("a", KVR_DEGRADED, KVR_DEG_GAP, 5, 101)
       && kvr_fleet_wants_snapshot(worker_of("a")),
       "when it does again the refused event is missing all the same");

    ok(load("a", 5, 101, true, &m)
       && stands("a", KVR_EXACT, KVR_FINE, 5, 101),
       "unless a snapshot brings it");
}


/* Between two slices of the first message of an epoch. */

static void
test_half_begun(void)
{
    model_t  m;
    size_t   len;
    uint8_t  bytes[BYTES], payload[1024];

    model_random(&m);

    ok(load("a", 5, 100, true, &m)
       && stands("a", KVR_EXACT, KVR_FINE, 5, 100), "a view");

    len = pack(payload, sizeof(payload), "[['c', 0], ['c', 1], ['c', 0]]");
    len = envelope(bytes, "a", 6, 1, false, payload, len);

    ok(kvr_ingest_open(ingest, "a", 1, bytes, len, true, now_ms, &detail)
       == KVR_INGEST_APPLY
       && kvr_ingest_step(ingest, 1) == KVR_OK
       && stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 6, 0),
       "a new epoch whose publisher lacks something says so in the middle of "
       "its first message");

    ok(kvr_ingest_repair_begin(ingest, "a", 1) == KVR_OK, "a repair begins");

    len = envelope(bytes, "a", 7, 1, false, payload,
                   pack(payload, sizeof(payload), "[['c', 0], ['c', 1]]"));

    ok(kvr_ingest_open(ingest, "a", 1, bytes, len, false, now_ms, &detail)
       == KVR_INGEST_APPLY
       && kvr_ingest_step(ingest, 1) == KVR_OK
       && stands("a", KVR_SYNCING, KVR_DEG_INCOMPLETE, 7, 0),
       "and a repair that reads that from the log does, too");
}


/* Is the worker to be tried?  If not, it fails once more. */

static kvr_health_state_t
failing(uint64_t at_ms)
{
    double               share;
    uint32_t             w;
    kvr_health_t        *h;
    kvr_ticket_t         ticket;
    kvr_health_state_t   state;

    static const kvr_health_params_t  p = { 1, 3600000, 0, 0 };

    if (kvr_router_find_worker(&router, "a", 1, &w) != KVR_OK) {
        return KVR_HEALTH_STATES;
    }

    h = kvr_router_health(&router, w);
    state = kvr_health_state(h, worker_of("a")->generation, &p, at_ms, &share);

    if (kvr_health_take(h, worker_of("a")->generation, &p, at_ms, false,
                        &ticket))
    {
        (void) kvr_health_failed(h, worker_of("a")->generation, &p, at_ms,
                                 KVR_FAILED_CONNECT, &ticket);
    }

    return state;
}


static void
test_return(void)
{
    model_t   m;
    uint64_t  at_ms;

    model_random(&m);
    at_ms = kvr_now_us() / 1000 + 60000;

    ok(load("a", 5, 100, true, &m) && failing(at_ms) == KVR_HEALTH_OK
       && failing(at_ms) == KVR_HEALTH_FAILED, "a worker that has failed");

    (void) say("a", 5, 100, true, NULL);
    (void) say("a", 5, 101, true, "[['c', 0]]");
    is_u64(failing(at_ms), KVR_HEALTH_FAILED,
           "is not tried because its publisher goes on");

    (void) say("a", 5, 101, false, NULL);
    is_u64(failing(at_ms), KVR_HEALTH_FAILED, "nor because it loses step,");

    (void) say("a", 5, 101, true, NULL);
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 101), "but when it is in step");
    is_u64(failing(at_ms), KVR_HEALTH_HALF_OPEN, "again it is,");
    is_u64(failing(at_ms), KVR_HEALTH_FAILED, "once");

    (void) say("a", 6, 1, false, "[['c', 0]]");
    is_u64(failing(at_ms), KVR_HEALTH_FAILED,
           "a new epoch of a publisher that lacks something changes nothing");

    ok(kvr_ingest_repair_begin(ingest, "a", 1) == KVR_OK
       && failing(at_ms) == KVR_HEALTH_FAILED
       && load("a", 7, 10, true, &m)
       && stands("a", KVR_EXACT, KVR_FINE, 7, 10)
       && failing(at_ms) == KVR_HEALTH_HALF_OPEN
       && failing(at_ms) == KVR_HEALTH_FAILED,
       "the end of a repair that makes the view EXACT is such a sign, too");
}


/* A message whose first event is refused, of two. */

static void
test_taken_over(void)
{
    size_t   len;
    model_t  m;
    uint8_t  bytes[1024], message[BYTES];

    model_random(&m);

    ok(load("a", 5, 100, true, &m), "a view");

    len = pack(bytes, sizeof(bytes), "[" REFUSED ", " REFUSED ", "
                                     "['r', 0, 0, {'$bin': ''}]]");
    len = envelope(message, "a", 5, 101, true, bytes, len);

    ok(kvr_ingest_open(ingest, "a", 1, message, len, true, now_ms, &detail)
       == KVR_INGEST_APPLY
       && kvr_ingest_step(ingest, 1) == KVR_OK
       && kvr_ingest_step(ingest, 1) == KVR_OK
       && worker_of("a")->stream.at == 2,
       "a process that refuses two of a message's events ends there");

    kvr_ingest_destroy(ingest);
    ingest = kvr_ingest_create(&router);

    ok(kvr_ingest_open(ingest, "a", 1, message, len, true, now_ms, &detail)
       == KVR_INGEST_APPLY
       && kvr_ingest_step(ingest, 100) == KVR_DONE
       && stands("a", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 101),
       "who goes on with the message knows that they were refused");

    (void) say("a", 5, 102, true, "[['c', 0], ['c', 1]]");
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 102), "cleared: EXACT");
}


/* TensorRT-LLM's events come apart as the window is known, and it is now. */

static void
test_parts_taken_over(void)
{
    size_t    len;
    uint32_t  i, steps, w, holder;
    uint8_t   message[BYTES];

    static const char  json[] =
        "[{\"event_id\":5,\"window_size\":128,\"data\":{\"type\":\"created\"}},"
        "{\"event_id\":6,\"window_size\":128,\"data\":{\"type\":\"removed\","
        "\"block_hashes\":[9]}},"
        "{\"event_id\":7,\"window_size\":4096,\"data\":{\"type\":\"created\"}},"
        "{\"event_id\":8,\"window_size\":4096,\"data\":{\"type\":\"stored\","
        "\"parent_hash\":null,\"blocks\":[{\"block_hash\":7,"
        "\"tokens\":[1,2,3,4]}]}}]";

    len = envelope(message, "p", 5, 1, true, (const uint8_t *) json,
                   sizeof(json) - 1);

    for (steps = 0; steps <= 6; steps++) {

        close_all();
        open_all(kind);

        (void) kvr_ingest_open(ingest, "p", 1, message, len, true, now_ms,
                               &detail);

        for (i = 0; i < steps; i++) {
            (void) kvr_ingest_step(ingest, 1);
        }

        kvr_ingest_destroy(ingest);
        ingest = kvr_ingest_create(&router);

        (void) kvr_ingest_open(ingest, "p", 1, message, len, true, now_ms,
                               &detail);

        while (kvr_ingest_step(ingest, 100) == KVR_OK) { /* void */ }

        ok(kvr_router_find_worker(&router, "p", 1, &w) == KVR_OK
           && kvr_router_find_holder(&router, w, 0, &holder) == KVR_OK
           && kvr_router_holder_held(&router, holder) == 1
           && worker_of("p")->stream.at == 0
           && worker_of("p")->stream.seq == 1,
           "taken over after %u steps its block is there", steps);
    }
}


/* A publisher that began anew, and has nothing to say yet. */

static void
test_silent_epoch(void)
{
    model_t  m;

    model_random(&m);

    ok(load("a", 5, 100, true, &m), "a view");

    ok(say("a", 6, 0, false, NULL) == KVR_INGEST_DROP && holds("a", &m)
       && stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 5, 100),
       "a publisher's next life, that knows nothing: the view stays, "
       "DEGRADED");

    ok(say("a", 4, 0, true, NULL) == KVR_INGEST_DROP
       && say("a", 5, 0, true, NULL) == KVR_INGEST_DROP
       && stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 5, 100),
       "an earlier life says nothing");

    ok(say("a", 6, 0, true, NULL) == KVR_INGEST_DROP && held("a") == 0
       && stands("a", KVR_EXACT, KVR_FINE, 6, 0),
       "one that knows all, and has sent nothing, begins with nothing");

    ok(say("a", 6, 1, true, "[['c', 0]]") == KVR_INGEST_APPLY
       && say("a", 6, 0, true, NULL) == KVR_INGEST_DROP
       && stands("a", KVR_EXACT, KVR_FINE, 6, 1)
       && worker_of("a")->counters.restarts == 1,
       "its first message goes on from there");

    ok(say("c", 7, 0, true, NULL) == KVR_INGEST_DROP
       && worker_of("c")->stream.confidence == KVR_UNKNOWN,
       "nothing is known of a worker that said nothing at all");
}


/* Redis lost all, and the publisher's clock was set back. */

static void
test_set_back(void)
{
    model_t      m;
    uint64_t     last;
    const char  *reason;

    model_random(&m);

    ok(load("a", 5, 100, true, &m)
       && say("a", 5, 100, true, NULL) == KVR_INGEST_DROP, "a view");

    last = worker_of("a")->stream.last_ms;

    now_ms += 4000;
    ok(say("a", 4, 2, true, NULL) == KVR_INGEST_DROP
       && say("a", 4, 3, true, "[['c', 0]]") == KVR_INGEST_DROP
       && worker_of("a")->stream.last_ms == last
       && stands("a", KVR_EXACT, KVR_FINE, 5, 100),
       "what is of an earlier epoch is no sign of life");

    now_ms += 2000;
    ok(kvr_fleet_confidence(worker_of("a"), now_ms, 5000, true, &reason)
       == KVR_DEGRADED && strcmp(reason, "silent") == 0,
       "so that the known epoch becomes silent");

    ok(say("a", 4, 0, true, NULL) == KVR_INGEST_DROP
       && say("a", 4, 3, true, "[['c', 0]]") == KVR_INGEST_DROP
       && stands("a", KVR_EXACT, KVR_FINE, 5, 100),
       "an earlier one that has nothing to say, or ends late, changes "
       "nothing");

    ok(kvr_ingest_open(ingest, "a", 1, "x", 1, true, now_ms, &detail)
       == KVR_INGEST_DROP
       && worker_of("a")->stream.last_ms == last,
       "nor is what can't be read a sign of life");

    ok(say("a", 4, 3, true, NULL) == KVR_INGEST_GAP && holds("a", &m)
       && stands("a", KVR_DEGRADED, KVR_DEG_GAP, 4, 0)
       && kvr_fleet_wants_snapshot(worker_of("a")),
       "one that has is followed then: the view stays, DEGRADED");

    model_random(&m);

    ok(load("a", 4, 3, true, &m) && holds("a", &m)
       && stands("a", KVR_EXACT, KVR_FINE, 4, 3),
       "its snapshot makes it EXACT");

    ok(say("a", 3, 9, true, NULL) == KVR_INGEST_DROP
       && stands("a", KVR_EXACT, KVR_FINE, 4, 3),
       "who is heard is not left for one before it");

    now_ms += 6000;
    ok(say("a", 3, 2, true, NULL) == KVR_INGEST_GAP
       && stands("a", KVR_DEGRADED, KVR_DEG_GAP, 3, 0), "back once more");

    ok(say("a", 3, 1, true, "[['r', 0, 0, {'$bin': ''}]]")
       == KVR_INGEST_APPLY
       && stands("a", KVR_EXACT, KVR_FINE, 3, 1) && !holds("a", &m),
       "where its first message is there it begins anew");
}


/* Envelopes whose payload can't be read: a batch without its end. */

static void
test_unread(void)
{
    static const uint8_t  torn[] = { 0x93, 0xcb, 0x3f, 0xf8 };

    size_t   len;
    model_t  m;
    uint8_t  payload[BYTES], message[BYTES];

    model_random(&m);

    ok(load("a", 5, 100, true, &m), "a view");

    ok(send_bytes("a", 5, 101, true, torn, sizeof(torn)) == KVR_INGEST_APPLY
       && detail && stands("a", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 101)
       && worker_of("a")->counters.why[KVR_WHY_SYNTAX] == 1
       && holds("a", &m),
       "a payload that can't be read is refused: %s", detail);

    ok(send_bytes("a", 5, 101, true, torn, sizeof(torn)) == KVR_INGEST_DROP
       && worker_of("a")->counters.why[KVR_WHY_SYNTAX] == 1, "once");

    ok(say("a", 5, 102, true, "[1.5, [['AllBlocksCleared']], 5000]")
       == KVR_INGEST_APPLY
       && stands("a", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 102)
       && worker_of("a")->counters.why[KVR_WHY_RANK] == 1,
       "so is a batch of a rank that can't be");

    ok(say("a", 5, 103, true, "[['c', 0], ['c', 1]]") == KVR_INGEST_APPLY
       && stands("a", KVR_EXACT, KVR_FINE, 5, 103)
       && worker_of("a")->counters.gaps == 0, "without a gap");

    len = envelope(message, "d", 7, 1, true, torn, sizeof(torn));
    ok(kvr_ingest_open(ingest, "d", 1, message, len, false, now_ms, &detail)
       == KVR_INGEST_APPLY
       && kvr_ingest_step(ingest, 100) == KVR_DONE
       && stands("d", KVR_DEGRADED, KVR_DEG_REFUSED, 7, 1),
       "also from the log, of a worker that is not known");

    (void) say("a", 5, 105, true, NULL);
    (void) kvr_ingest_repair_failed(ingest, "a", 1, 5, 105);
    model_random(&m);
    snapshot_write(&m);
    ok(begin("a", 5, 104, true) == KVR_OK && all_parts(), "a snapshot");

    len = envelope(message, "a", 5, 105, true, torn, sizeof(torn));
    ok(part(message, len, 16) == KVR_DONE && end() == KVR_OK
       && kvr_ingest_repair_end(ingest, "a", 1) == KVR_OK
       && stands("a", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 105)
       && holds("a", &m),
       "and an entry behind it that can't be read");

    len = pack(payload, sizeof(payload), "['kvr1', 'a', 5, 106, true]");
    ok(kvr_ingest_open(ingest, "a", 1, payload, len, true, now_ms, &detail)
       == KVR_INGEST_DROP
       && stands("a", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 105),
       "what is no envelope has no number");
}


/* A gap in which another rank may have stored, and then a clear. */

static void
test_ranks(void)
{
    kvr_registered_t    what;
    kvr_registration_t  reg;

    (void) say("x", 5, 1, true, "[['c', 0]]");
    ok(stands("x", KVR_EXACT, KVR_FINE, 5, 1),
       "a worker that is known from its events alone");

    (void) kvr_ingest_repair_failed(ingest, "x", 1, 5, 2);
    (void) say("x", 5, 3, true, "[['c', 0]]");
    ok(stands("x", KVR_DEGRADED, KVR_DEG_GAP, 5, 3)
       && kvr_fleet_wants_snapshot(worker_of("x")),
       "after a gap it may have more ranks than those that are cleared");

    kvr_registration_init(&reg, "x", 1);
    ok(kvr_router_register(&router, &reg, now_ms + 15000, &what) == KVR_OK
       && say("x", 5, 4, true, "[['c', 0]]") == KVR_INGEST_APPLY
       && stands("x", KVR_EXACT, KVR_FINE, 5, 4),
       "when it says how many it has, a clear of these is enough");

    kvr_registration_init(&reg, "z", 1);
    reg.conf.ranks = 1;
    ok(kvr_router_put_worker(&router, &reg.conf, KVR_WORKER_STATIC) == KVR_OK,
       "a worker that is configured with one rank");
    reg.conf.ranks = 2;
    (void) kvr_router_register(&router, &reg, now_ms + 15000, &what);
    (void) say("z", 5, 1, true, "[['c', 0]]");
    (void) kvr_ingest_repair_failed(ingest, "z", 1, 5, 2);
    (void) say("z", 5, 3, true, "[['c', 0]]");
    ok(stands("z", KVR_DEGRADED, KVR_DEG_GAP, 5, 3)
       && say("z", 5, 4, true, "[['c', 1]]") == KVR_INGEST_APPLY
       && stands("z", KVR_EXACT, KVR_FINE, 5, 4),
       "has those that its relay says it has");

    (void) say("y", 5, 1, true, "[['c', 0], " REFUSED "]");
    (void) say("y", 5, 2, true, "[['c', 0]]");
    ok(stands("y", KVR_EXACT, KVR_FINE, 5, 2),
       "as it is after a refusal, whose rank is known");

    (void) kvr_ingest_repair_failed(ingest, "y", 1, 5, 3);
    (void) say("y", 6, 1, true, "[['c', 0]]");
    ok(stands("y", KVR_EXACT, KVR_FINE, 6, 1), "or with another epoch");

    (void) say("y", 6, 2, false, "[]");
    (void) say("y", 6, 3, true, "[['c', 0]]");
    ok(stands("y", KVR_EXACT, KVR_FINE, 6, 3),
       "or when the publisher, which knew not all, does so now");

    (void) kvr_ingest_repair_failed(ingest, "y", 1, 6, 4);
    (void) say("y", 6, 5, false, "[]");
    ok(stands("y", KVR_DEGRADED, KVR_DEG_GAP, 6, 5),
       "but a gap is one also while the publisher does not know all");
    (void) say("y", 6, 6, true, "[['c', 0]]");
    ok(stands("y", KVR_DEGRADED, KVR_DEG_GAP, 6, 6), "and when it does again");
}


/* Refusals of ranks that were never heard of, or can't be told. */

static void
test_ranks_refused(void)
{
    uint32_t  i;

    static const char *const  events[] = {
        "[7]", "[['x', 0]]", "[['s']]", "[['s', 'x', 0, null, 1, 2]]",
        "[['s', 1024, 0, null, {'$bin': ''}, {'$bin': ''}]]",
        "[1.5, [['AllBlocksCleared']], 5000]"
    };

    static const char  behind[] = "[] {\"worker_id\":\"y\",\"event\":{"
        "\"event_id\":1,\"data\":\"cleared\"}}";

    (void) say("x", 5, 1, true, "[['c', 0]]");
    (void) say("x", 5, 2, true,
               "[['s', 1, 0, null, {'$bin': '07'}, {'$bin': '07'}]]");
    (void) say("x", 5, 3, true, "[['c', 0]]");
    ok(stands("x", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 3),
       "a rank whose first event is refused is one");
    (void) say("x", 5, 4, true, "[['c', 1]]");
    ok(stands("x", KVR_EXACT, KVR_FINE, 5, 4), "and mended by its own clear");

    (void) say("x", 5, 5, true, "[" REFUSED ", ['c', 1]]");
    (void) say("x", 5, 6, true, "[['c', 0]]");
    ok(stands("x", KVR_EXACT, KVR_FINE, 5, 6),
       "the other's was behind the refusal, and counts");

    (void) say("b", 5, 1, true, "[1.5, [['BlockStored', [7], null, "
               "[1, 1, 1, 1], 4]]]");
    (void) say("b", 5, 2, true, "[1.5, [['BlockStored', [7], null, "
               "[1, 1, 1], 3]], 1]");
    (void) say("b", 5, 3, true, "[1.5, [['AllBlocksCleared']]]");
    ok(stands("b", KVR_DEGRADED, KVR_DEG_BLOCK_SIZE, 5, 3),
       "so is one of an engine's batch");
    (void) say("b", 5, 4, true, "[1.5, [['AllBlocksCleared']], 1]");
    ok(stands("b", KVR_EXACT, KVR_FINE, 5, 4), "and mended so, too");

    for (i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        (void) say("y", 6 + i, 1, true, "[['c', 0]]");
        (void) say("y", 6 + i, 2, true, events[i]);
        (void) say("y", 6 + i, 3, true, "[['c', 0]]");
        ok(stands("y", KVR_DEGRADED, KVR_DEG_REFUSED, 6 + i, 3)
           && kvr_fleet_wants_snapshot(worker_of("y")),
           "%s may have been of any rank", events[i]);
    }

    (void) send_bytes("y", 20, 1, true, (const uint8_t *) behind,
                      sizeof(behind) - 1);
    ok(stands("y", KVR_EXACT, KVR_FINE, 20, 1)
       && worker_of("y")->stream.source == KVR_SOURCE_ENVELOPE,
       "a payload of JSON is one of an envelope, whatever is in it");
}


/* What the log has was said at some time. */

static void
test_old(void)
{
    size_t       len;
    model_t      m;
    uint8_t      payload[64], message[BYTES];
    const char  *reason;

    model_random(&m);
    (void) load("a", 5, 100, true, &m);
    (void) say("a", 5, 100, true, NULL);

    ok(kvr_fleet_confidence(worker_of("a"), now_ms, 5000, true, &reason)
       == KVR_EXACT && strcmp(reason, "none") == 0, "a publisher is heard");
    ok(kvr_fleet_confidence(worker_of("a"), now_ms, 5000, false, &reason)
       == KVR_DEGRADED && strcmp(reason, "redis_down") == 0,
       "it is DEGRADED while nobody hears it");

    now_ms += 6000;
    ok(kvr_fleet_confidence(worker_of("a"), now_ms, 5000, true, &reason)
       == KVR_DEGRADED && strcmp(reason, "silent") == 0,
       "a publisher is silent");

    len = pack(payload, sizeof(payload), "[['c', 0]]");
    len = envelope(message, "a", 5, 100, true, payload, len);
    ok(kvr_ingest_open(ingest, "a", 1, message, len, false, now_ms, &detail)
       == KVR_INGEST_DROP
       && kvr_fleet_confidence(worker_of("a"), now_ms, 5000, true, &reason)
          == KVR_DEGRADED && strcmp(reason, "silent") == 0,
       "and stays so when something old of it is read in the log");

    len = pack(payload, sizeof(payload), "[['c', 0]]");
    len = envelope(message, "c", 7, 1, true, payload, len);
    ok(kvr_ingest_open(ingest, "c", 1, message, len, false, now_ms, &detail)
       == KVR_INGEST_APPLY
       && kvr_ingest_step(ingest, 100) == KVR_DONE
       && stands("c", KVR_EXACT, KVR_FINE, 7, 1)
       && worker_of("c")->stream.last_ms == 0,
       "of who is known by its log alone no message was heard");

    ok(say("a", 5, 100, true, NULL) == KVR_INGEST_DROP
       && kvr_fleet_confidence(worker_of("a"), now_ms, 5000, true, NULL)
          == KVR_EXACT,
       "until it is heard again");
}


/* A RouterEvent: rank r is cleared, or a block of it in that tier removed. */

static bool
numbered(uint32_t r, uint64_t id, const char *tier)
{
    char  text[256];

    snprintf(text, sizeof(text),
             "{\"worker_id\":\"n\",%s%s%s\"event\":{\"event_id\":%" PRIu64
             ",\"dp_rank\":%u,\"data\":%s}}",
             tier ? "\"storage_tier\":\"" : "", tier ? tier : "",
             tier ? "\"," : "", id, r,
             tier ? "{\"removed\":{\"block_hashes\":[7]}}" : "\"cleared\"");

    return kvr_ingest_open(ingest, "n", 1, text, strlen(text), true, now_ms,
                           &detail) == KVR_INGEST_APPLY
           && kvr_ingest_step(ingest, 100) == KVR_DONE;
}


static void
test_numbers(void)
{
    ok(numbered(0, 1, NULL) && numbered(1, 1, NULL)
       && stands("n", KVR_UNVERIFIED, KVR_FINE, 0, 0),
       "RouterEvents, numbered for each rank");

    ok(numbered(0, 2, "tape") && numbered(0, 3, NULL)
       && worker_of("n")->counters.why[KVR_WHY_MEDIUM] == 1
       && stands("n", KVR_UNVERIFIED, KVR_FINE, 0, 0),
       "one that is filtered has its number, and leaves no gap");

    ok(numbered(1, 5, NULL)
       && stands("n", KVR_DEGRADED, KVR_DEG_GAP, 0, 0), "a gap in rank 1");

    ok(numbered(0, 0, NULL)
       && stands("n", KVR_DEGRADED, KVR_DEG_GAP, 0, 0),
       "is not filled because rank 0 begins anew");

    ok(numbered(1, 0, NULL)
       && stands("n", KVR_UNVERIFIED, KVR_FINE, 0, 0),
       "but when rank 1 does, too");
}


/* One of rank 0 with this event, and it applies to its end. */

static bool
event(const char *of)
{
    char  text[256];

    snprintf(text, sizeof(text), "{\"worker_id\":\"n\",\"event\":{%s}}", of);

    return kvr_ingest_open(ingest, "n", 1, text, strlen(text), true, now_ms,
                           &detail) == KVR_INGEST_APPLY
           && kvr_ingest_step(ingest, 100) == KVR_DONE;
}


static void
test_refused_numbers(void)
{
#define STORED(blocks)                                                        \
    "\"data\":{\"stored\":{\"parent_hash\":null,\"blocks\":[" blocks "]}}"
#define GOOD   STORED("{\"block_hash\":1,\"tokens_hash\":2}")
#define BAD    STORED("{\"tokens_hash\":2}")

    uint32_t  w, holder;

    ok(event("\"event_id\":1," GOOD) && event("\"event_id\":2," BAD)
       && event("\"event_id\":3," GOOD)
       && worker_of("n")->counters.gaps == 0
       && stands("n", KVR_DEGRADED, KVR_DEG_REFUSED, 0, 0),
       "one that is refused has its number, and leaves no gap");

    ok(event("\"event_id\":4,\"dp_rank\":1024," GOOD)
       && event("\"event_id\":9,\"dp_rank\":\"x\"," GOOD)
       && worker_of("n")->counters.gaps == 0
       && event("\"event_id\":4," GOOD)
       && worker_of("n")->counters.duplicates == 0,
       "but one whose rank can't be read is no event of rank 0");

    ok(event("\"event_id\":0," BAD)
       && worker_of("n")->counters.restarts == 1
       && kvr_router_find_worker(&router, "n", 1, &w) == KVR_OK
       && kvr_router_find_holder(&router, w, 0, &holder) == KVR_OK
       && kvr_router_holder_held(&router, holder) == 0,
       "numbers that begin anew clear the rank, with one that is refused too");

    ok(event("\"event_id\":1," BAD) && event("\"event_id\":2," GOOD)
       && worker_of("n")->counters.duplicates == 0
       && kvr_router_holder_held(&router, holder) == 1,
       "and what follows is no duplicate");
}


/* Ranks that the zone has no room for, which no snapshot would give them. */

static void
test_no_room(void)
{
    char      text[32];
    uint32_t  i;

    for (i = 1; i < KVR_RANKS_MAX; i++) {
        snprintf(text, sizeof(text), "[['c', %u]]", i);
        (void) say("x", 5, i, true, text);
    }

    ok(stands("x", KVR_DEGRADED, KVR_DEG_REFUSED, 5, KVR_RANKS_MAX - 1)
       && worker_of("x")->counters.why[KVR_WHY_RANK] > 0,
       "there is no room for all ranks, and it is said");
    ok(worker_of("x")->stream.contiguous == 1
       && !kvr_fleet_wants_snapshot(worker_of("x")),
       "but no snapshot is asked for");
}


int
main(void)
{
    uint32_t  i, k;

    static void  (*const tests[])(void) = {
        test_refusal, test_half_begun, test_return, test_taken_over,
        test_parts_taken_over,
        test_silent_epoch, test_set_back, test_unread, test_ranks,
        test_ranks_refused, test_no_room, test_old, test_numbers,
        test_refused_numbers
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
