/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A relay that asks an engine's replay: what it says of itself until that is
 * over, and that it is over some time.  And one whose engine is not reached.
 * Wires and clock are fuzz/wires.h's.
 */


#include "../../fuzz/wires.h"

#include "tap.h"


#define END   UINT64_MAX                /* of a replay: its number */
#define UNREAD  "messages can't be read"
#define TURN  10                        /* ms from one to the next */


static void begin(void);
static void end(void);
static void turn(uint32_t ms);
static void say(wires_kind_t kind, uint64_t seq, uint8_t ts, bool more);
static void strange(wires_kind_t kind, uint64_t seq);
static void live(uint64_t seq);
static void replayed(uint64_t seq);
static bool complete(const char *why);
static bool asks(void);
static void gap(void);
static void hole(void);
static void another(void);
static void silent(void);
static void silent_short(void);
static void silent_twice(void);
static void ends(void);
static void endless(void);
static void unread(void);
static void refused(void);
static void full(void);
static void unreached(void);
static bool because(const char *why);


static kvr_relay_t  relay;


int
main(void)
{
    gap();
    hole();
    another();
    silent();
    silent_short();
    silent_twice();
    ends();
    endless();
    unread();
    refused();
    full();
    unreached();

    return done();
}


/* Beside an engine that has said one message, 0. */

static void
begin(void)
{
    uint32_t              i;
    kvr_relay_options_t  *o;

    wires_reset();
    wires_clock = 1000000;

    memset(&relay, 0, sizeof(kvr_relay_t));

    o = &relay.options;
    o->worker = "w";
    o->redis.items[0] = "redis://127.0.0.1";
    o->redis.n = 1;
    o->events.items[0] = "events:0";
    o->events.n = 1;
    o->replay.items[0] = "replay:0";
    o->replay.n = 1;
    o->channel = "kv-events:";
    o->topic = "";
    o->ranks = 1;
    o->block_size = 4;
    o->refcount = true;
    o->address = "";
    o->model = "";
    o->engine = "";
    o->role = "both";
    o->weight = "1";
    o->max_prefill_tokens = "";
    o->lora = "";
    o->memory = KVR_ZONE_MIN * 2;
    o->message_max = KVR_MESSAGE_MAX;
    o->ring = 1u << 20;
    o->snapshot_interval = 1000;

    if (!kvr_relay_init(&relay, NULL)) {
        fuzz_fail("no relay");
    }

    wires_redis(&relay, true);

    for (i = 0; i < 10; i++) {
        turn(TURN);
    }

    wires_connect(0, true);
    turn(TURN);
    replayed(0);
    replayed(END);
    turn(TURN);

    if (!complete("")) {
        fuzz_fail("no complete relay");
    }
}


static void
end(void)
{
    kvr_relay_free(&relay);
    wires_clear();
}


static void
turn(uint32_t ms)
{
    wires_clock += ms;

    relay.now_ms = kvr_relay_clock();
    relay.wake_ms = relay.now_ms + 1000;

    kvr_relay_turn(&relay);
    wires_answer(&relay, 64);
}


/* A batch without events, of some time; more: with a frame too many. */

static void
say(wires_kind_t kind, uint64_t seq, uint8_t ts, bool more)
{
    uint8_t   number[8], payload[] = { 0x92, 0x00, 0x90 };
    uint32_t  i;

    for (i = 0; i < 8; i++) {
        number[i] = (uint8_t) (seq >> (56 - 8 * i));
    }

    payload[1] = ts;

    wires_frame(kind, 0, "", 0, true);
    wires_frame(kind, 0, number, sizeof(number), true);
    wires_frame(kind, 0, payload, seq == END ? 0 : sizeof(payload), more);

    if (more) {
        wires_frame(kind, 0, "more", 4, false);
    }
}


static void
strange(wires_kind_t kind, uint64_t seq)
{
    say(kind, seq, 0, true);
}


static void
live(uint64_t seq)
{
    say(WIRES_EVENTS, seq, (uint8_t) (seq & 63), false);
}


static void
replayed(uint64_t seq)
{
    say(WIRES_REPLAY, seq, (uint8_t) (seq & 63), false);
}


/* Is it?  If not, is it for that reason? */

static bool
complete(const char *why)
{
    bool  answer;
    char  reason[KVR_RELAY_REASON];

    answer = kvr_relay_complete(&relay, reason);

    if (strstr(reason, why) == NULL) {
        fuzz_fail("\"%s\" is the reason, not \"%s\"", reason, why);
    }

    return answer;
}


static bool
asks(void)
{
    return relay.sources[0].zmq->replay != NULL;
}


static void
gap(void)
{
    begin();

    live(3);
    turn(TURN);
    ok(asks() && !complete("being asked for"),
       "what is behind a gap waits, and it is said at once");

    replayed(0);
    replayed(1);
    turn(TURN);
    ok(!complete("being asked for"), "until what is missing is there,");

    replayed(2);
    replayed(3);
    turn(TURN);
    ok(complete(""), "all of it,");

    replayed(END);
    turn(TURN);
    ok(complete("") && relay.counters.messages == 4,
       "and each message counts once");

    live(5);
    turn(TURN);
    replayed(3);
    replayed(4);
    replayed(END);
    turn(TURN);
    ok(complete("") && relay.counters.messages == 6,
       "whether the replay has the one that waits or not");

    end();
}


static void
hole(void)
{
    begin();

    turn(15000);
    replayed(0);
    replayed(2);
    turn(TURN);
    ok(asks() && !complete("being asked for"),
       "nor is it complete since a look for more has left one out,");

    replayed(0);
    replayed(1);
    replayed(2);
    replayed(END);
    turn(TURN);
    ok(!asks() && complete(""), "until that was asked for again,");

    end();
}


static void
another(void)
{
    begin();

    turn(15000);
    say(WIRES_REPLAY, 0, 7, false);
    turn(TURN);
    ok(asks() && !complete("being asked for"),
       "nor since one has shown that it is another engine,");

    turn(6000);
    ok(!asks() && !complete("doesn't answer"),
       "nor when it doesn't say what that one has");

    end();
}


/* What waits for an answer that does not come is asked for again. */

static void
silent(void)
{
    begin();

    live(3);
    turn(TURN);
    turn(5000);
    ok(asks() && !complete("being asked for")
       && relay.counters.unanswered == 1 && relay.sources[0].seq == 0,
       "a question without an answer is asked again, and messages wait,");

    turn(9000);
    ok(asks(), "twice as long,");

    replayed(0);
    replayed(1);
    replayed(2);
    replayed(3);
    replayed(END);
    turn(TURN);
    ok(!asks() && complete("") && relay.sources[0].seq == 3,
       "and the second answer counts as the first would have;");

    end();
    begin();

    live(3);
    turn(TURN);
    turn(5000);
    turn(10000);
    ok(!asks() && !complete("doesn't answer") && relay.sources[0].seq == 3,
       "after two the engine's messages go on,");

    turn(9000);
    ok(relay.sources[0].at.unanswered, "not complete,");

    turn(1000);
    ok(asks(), "until all is asked for,");

    turn(5000);
    ok(!asks() && relay.counters.unanswered == 3, "which may be silent, too,");

    turn(19000);
    ok(!asks(), "and later each time");

    turn(1000);
    ok(asks(), "again,");

    replayed(0);
    replayed(1);
    replayed(2);
    replayed(3);
    replayed(END);
    turn(TURN);
    turn(TURN);
    ok(!asks() && complete("") && relay.sources[0].seq == 3
       && relay.counters.restarts == 0,
       "and is complete when the same engine has told all of it,");

    live(4);
    turn(TURN);
    ok(complete("") && relay.sources[0].seq == 4, "and goes on from there");

    end();
}


/* An engine that answers, and does not have all any more. */

static void
silent_short(void)
{
    uint64_t  epochs;

    begin();

    live(3);
    turn(TURN);
    turn(5000);
    turn(10000);
    turn(10000);
    epochs = relay.publisher.epoch;
    replayed(2);
    replayed(3);
    replayed(END);
    turn(TURN);
    ok(!asks() && !complete("reach back to its first")
       && relay.publisher.epoch == epochs && relay.sources[0].seq == 3,
       "a part of it does not replace what is known,");

    ok(!relay.sources[0].at.unanswered, "and all of it is not asked for "
       "again,");

    end();
    begin();

    live(3);
    turn(TURN);
    turn(5000);
    turn(10000);
    turn(10000);
    replayed(END);
    turn(TURN);
    ok(!asks() && !complete("keeps no messages")
       && relay.sources[0].known && !relay.sources[0].at.unanswered,
       "nor does nothing at all");

    end();
}


/* The engine goes away meanwhile, and is the same. */

static void
silent_twice(void)
{
    uint32_t  i;

    begin();

    live(3);
    turn(TURN);
    turn(5000);
    turn(10000);
    wires_connect(0, false);
    turn(TURN);
    wires_connect(0, true);
    turn(TURN);
    replayed(3);
    replayed(END);
    turn(TURN);
    ok(!complete("") && asks() && relay.sources[0].at.unanswered,
       "an engine that answers again is asked for all at once,");

    for (i = 0; i < 4; i++) {
        replayed(i);
    }

    replayed(END);
    turn(TURN);
    turn(TURN);
    ok(!asks() && complete(""), "whatever was asked first");

    end();
    begin();

    live(3);
    turn(TURN);

    for (i = 0; i < 4000; i++) {
        turn(1000);
    }

    ok(relay.sources[0].at.unanswered && relay.counters.unanswered > 12
       && relay.counters.unanswered < 20,
       "and one that never answers is asked each five minutes");

    end();
}


/* Its end does not come. */

static void
ends(void)
{
    uint32_t  i;

    begin();

    live(2);
    turn(TURN);

    for (i = 0; i < 4; i++) {
        ok(asks(), "a replay without an end is asked again,");
        replayed(0);
        turn(TURN);
        turn(5000);
    }

    ok(!asks() && !complete("doesn't answer"), "and not for ever;");

    live(3);
    turn(TURN);
    ok(!asks() && relay.sources[0].seq == 3, "then the engine is followed");

    end();
    begin();

    live(100);
    turn(TURN);

    for (i = 0; i < 100; i++) {
        replayed(i);
        turn(1000);
    }

    ok(asks() && !complete("being asked for"), "one that goes on is not cut "
       "off");

    replayed(END);
    turn(TURN);
    ok(!asks() && complete("") && relay.sources[0].seq == 100,
       "before it has said all");

    end();
}


/* It has no end, or repeats itself. */

static void
endless(void)
{
    uint32_t  i, n;

    begin();

    turn(15000);
    ok(asks() && complete(""), "a look for more leaves all as it is,");

    for (i = 0; i < 40 && asks(); i++) {

        for (n = 0; n < KVR_RELAY_TURN; n++) {
            replayed(0);
        }

        turn(1000);

        if (i == 5) {
            ok(!complete("being asked for"), "but for one that has no end,");
        }
    }

    ok(i > 15 && i < 35 && !complete("doesn't answer"),
       "and one that repeats itself is over,");

    live(1);
    turn(TURN);
    ok(!asks() && relay.sources[0].seq == 1 && !complete("doesn't answer"),
       "the engine is followed then");

    end();
    begin();

    turn(15000);

    for (i = 0; i < 700 && asks(); i++) {
        replayed(i);
        turn(1000);

        if (i == 10) {
            ok(!complete("being asked for"), "so it is not complete while one "
               "goes on for long");
        }
    }

    ok(i > 590 && i < 610 && !complete("doesn't answer"),
       "which ten minutes end,");

    live(i);
    turn(TURN);
    ok(!asks() && relay.sources[0].seq == i, "the engine is followed then,");

    live(i + 1);
    turn(TURN);
    ok(!complete("doesn't answer"), "which does not make it complete");

    end();
    begin();

    turn(15000);

    for (i = 0; i < 700 && asks(); i++) {
        replayed(i);
        replayed(i + 1);
        replayed(i + 3);
        turn(1000);
    }

    ok(i > 590 && i < 610 && !complete("doesn't answer"),
       "nor is one asked for longer that always leaves some out");

    end();
}


static void
unread(void)
{
    uint64_t  epochs;

    begin();

    wires_connect(0, false);
    turn(TURN);
    wires_connect(0, true);
    turn(TURN);
    replayed(END);
    turn(TURN);
    strange(WIRES_REPLAY, 0);
    strange(WIRES_REPLAY, 1);
    replayed(END);
    turn(TURN);
    ok(!asks() && !complete(UNREAD)
       && relay.counters.why[KVR_WHY_SYNTAX] == 2,
       "a replay that can't be read does not say that there is nothing");

    epochs = relay.publisher.epoch;

    turn(15000);
    ok(asks(), "it is looked at again,");

    strange(WIRES_REPLAY, 0);
    replayed(END);
    turn(TURN);
    turn(TURN);
    ok(!complete(UNREAD) && relay.publisher.epoch == epochs,
       "which begins nothing anew,");

    turn(15000);
    strange(WIRES_REPLAY, 0);
    turn(TURN);
    turn(6000);
    ok(!asks() && !complete(UNREAD), "nor does it without an end;");

    end();
    begin();

    turn(15000);
    replayed(0);
    strange(WIRES_REPLAY, 1);
    replayed(END);
    turn(TURN);
    ok(!asks() && !complete(UNREAD),
       "nor is it complete behind what was read,");

    turn(15000);
    replayed(0);
    replayed(1);
    replayed(END);
    turn(TURN);
    ok(!complete(UNREAD), "whatever a later one has");

    end();
}


static void
refused(void)
{
    uint64_t  replays;

    begin();

    turn(TURN);
    replays = relay.counters.replays;

    strange(WIRES_EVENTS, 1);
    turn(TURN);
    turn(600);
    ok(asks() && complete(""), "after a live one that can't be read the "
       "replay is asked what it was:");

    replayed(0);
    replayed(END);
    turn(TURN);
    ok(!asks() && complete(""), "nothing,");

    strange(WIRES_EVENTS, 1);
    live(1);
    strange(WIRES_EVENTS, 2);
    turn(TURN);
    turn(600);
    replayed(1);
    replayed(2);
    replayed(END);
    turn(TURN);
    ok(complete("") && relay.sources[0].seq == 2
       && relay.counters.replays == replays + 2,
       "or something, once for several,");

    strange(WIRES_EVENTS, 3);
    turn(TURN);
    turn(600);
    strange(WIRES_REPLAY, 3);
    replayed(END);
    turn(TURN);
    replays = relay.counters.replays;
    strange(WIRES_EVENTS, 4);
    turn(TURN);
    turn(600);
    ok(!complete(UNREAD) && relay.counters.replays == replays,
       "or what can't be read either, and is not asked for each time");

    end();
    begin();

    relay.options.replay.n = 0;
    strange(WIRES_EVENTS, 1);
    turn(TURN);
    ok(!complete(UNREAD), "without a replay it is not complete");

    live(1);
    turn(TURN);
    ok(complete(""), "until the next number,");

    strange(WIRES_EVENTS, 2);
    live(3);
    turn(TURN);
    ok(!complete("were lost"), "or for longer, when one is missing");

    live(4);
    turn(TURN);
    ok(!complete("were lost"), "which the next one doesn't end");

    end();
}


static void
full(void)
{
    begin();

    wires_full = true;
    live(3);
    turn(TURN);
    ok(!asks() && !complete("can't be asked") && relay.sources[0].seq == 3,
       "without a socket for the replay the engine is followed, not complete");

    wires_full = false;
    live(4);
    live(6);
    turn(TURN);
    ok(asks() && relay.sources[0].seq == 4, "and the next one is asked for");

    end();
}


static void
unreached(void)
{
    uint32_t  i;

    begin();

    for (i = 0; i < 70; i++) {
        turn(1000);
    }

    ok(wires_unreached == 0, "of an engine that is reached nothing is said");

    wires_connect(0, false);
    turn(TURN);
    turn(4000);
    wires_connect(0, true);
    turn(TURN);
    turn(4000);
    ok(wires_unreached == 0, "nor of one that was away for four seconds,");

    wires_connect(0, false);
    turn(TURN);
    turn(4999);
    ok(wires_unreached == 0, "or a little longer,");

    turn(1);
    ok(wires_unreached == 1 && strstr(wires_line, "rank=0 endpoint="
                                      "\"events:0\" seconds=5 why=") != NULL,
       "but after five,");

    turn(59999);
    ok(wires_unreached == 1, "and not again");

    turn(1);
    ok(wires_unreached == 2 && strstr(wires_line, "seconds=65") != NULL,
       "before a minute is over");

    ok(because("no answer"), "nothing has answered so far");

    wires_event(0, ZMQ_EVENT_CONNECT_DELAYED);
    wires_event(0, ZMQ_EVENT_CLOSED);
    wires_event(0, ZMQ_EVENT_CONNECT_RETRIED);
    ok(because("connection refused"), "a connect may fail at once,");

    wires_event(0, ZMQ_EVENT_CONNECT_DELAYED);
    ok(because("connection refused"), "which is so while the next one runs,");

    turn(3000);
    ok(because("no answer"), "until it takes too long;");

    wires_event(0, ZMQ_EVENT_CLOSED);
    wires_event(0, ZMQ_EVENT_CONNECT_RETRIED);
    ok(because("no answer"), "it may fail by that;");

    wires_event(0, ZMQ_EVENT_CONNECT_RETRIED);
    ok(because("name has no address"), "there may be no address;");

    wires_connect(0, false);
    ok(because("no publisher"), "or something else may listen there");

    wires_event(0, ZMQ_EVENT_CONNECT_RETRIED);
    ok(because("no publisher"), "and again");

    wires_connect(0, true);
    turn(TURN);
    wires_connect(0, false);
    ok(because("no answer"), "an engine that was there may be gone");

    end();
}


/* Is that why the engine is not reached? */

static bool
because(const char *why)
{
    turn(TURN);

    return strstr(kvr_relay_engine_why(&relay, &relay.sources[0]), why)
           != NULL;
}
