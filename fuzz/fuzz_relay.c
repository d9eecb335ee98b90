/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A whole relay, and what an engine, its replay, its HTTP server and Redis may
 * say to it, in any order.  What it publishes can be read (wires_redis.c); what
 * it has written of its state is taken whole by a relay that starts after it.
 *
 * An input is what the relay is told at its start (1 byte), and rows: what (1
 * byte), length (2, low byte first), bytes.
 */


#include "wires.h"


#define ROWS    96                      /* of an input, at most */
#define MEMORY  (KVR_ZONE_MIN * 2)
#define SMALL   (6u << 10)              /* bytes of a ring that runs over */
#define TURNS   64                      /* of the relay after it, to load */

/* of the first byte */
#define REPLAY  0x01
#define TRTLLM  0x02
#define RANKS_2 0x04
#define ROOM    0x08
#define SALTED  0x10
#define ONCE    0x20                    /* copies are not counted */


static void relay_open(kvr_relay_t *r, uint8_t how);
static void relay_close(kvr_relay_t *r);
static void turn(kvr_relay_t *r, uint32_t ms);
static void row(kvr_relay_t *r, uint8_t what, const uint8_t *bytes,
    size_t len);
static void frames(wires_kind_t kind, uint32_t rank, const uint8_t *bytes,
    size_t len);
static void numbered(wires_kind_t kind, uint32_t rank, const uint8_t *bytes,
    size_t len);
static void http(const uint8_t *bytes, size_t len);
static void follow(uint8_t how);


const uint32_t  fuzz_inputs = 400;

static kvr_relay_t  relay;

static const uint16_t  connects[] = {
    ZMQ_EVENT_CONNECT_DELAYED, ZMQ_EVENT_CLOSED, ZMQ_EVENT_CONNECT_RETRIED
};

static char  *events[] = { "events:0", "events:1" };
static char  *replays[] = { "replay:0", "replay:1" };


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    size_t    n;
    uint8_t   how;
    uint32_t  i;

    if (len == 0) {
        return 0;
    }

    how = bytes[0];
    bytes++;
    len--;

    wires_reset();
    wires_clock = 1000000;
    relay_open(&relay, how);

    for (i = 0; i < ROWS && len >= 3 && !relay.done; i++) {

        n = bytes[1] | (size_t) bytes[2] << 8;
        n = kvr_min(n, len - 3);

        row(&relay, bytes[0], bytes + 3, n);
        turn(&relay, 10);

        bytes += n + 3;
        len -= n + 3;
    }

    relay_close(&relay);
    follow(how);
    wires_reset();

    return 0;
}


static void
relay_open(kvr_relay_t *r, uint8_t how)
{
    uint32_t              i;
    kvr_relay_options_t  *o;

    memset(r, 0, sizeof(kvr_relay_t));

    o = &r->options;
    o->worker = "w";
    o->redis.items[0] = "redis://127.0.0.1";
    o->redis.n = 1;
    o->channel = KVR_CHANNEL;
    o->topic = "";
    o->ranks = how & RANKS_2 ? 2 : 1;
    o->trtllm = how & TRTLLM ? "http://127.0.0.1:1" : NULL;
    o->block_size = 4;
    o->refcount = (how & ONCE) == 0;
    o->salted = (how & SALTED) != 0;
    o->address = "";
    o->model = "";
    o->engine = "";
    o->role = "both";
    o->weight = "1";
    o->max_prefill_tokens = "";
    o->lora = "";
    o->memory = MEMORY;
    o->message_max = KVR_MESSAGE_MAX;
    o->ring = how & ROOM ? 1u << 20 : SMALL;
    o->snapshot_interval = 16;

    if (o->trtllm == NULL) {
        for (i = 0; i < o->ranks; i++) {
            o->events.items[o->events.n++] = events[i];

            if (how & REPLAY) {
                o->replay.items[o->replay.n++] = replays[i];
            }
        }
    }

    if (!kvr_relay_init(r, NULL)) {
        fuzz_fail("no relay");
    }
}


static void
relay_close(kvr_relay_t *r)
{
    kvr_relay_free(r);
    wires_clear();
}


static void
turn(kvr_relay_t *r, uint32_t ms)
{
    wires_clock += ms;

    r->now_ms = kvr_relay_clock();
    r->wake_ms = r->now_ms + 1000;

    kvr_relay_turn(r);
}


static void
row(kvr_relay_t *r, uint8_t what, const uint8_t *bytes, size_t len)
{
    uint32_t  rank;

    rank = what >> 4 & 1;

    switch (what & 15) {

    case 0:
        frames(WIRES_EVENTS, rank, bytes, len);
        break;

    case 1:
        frames(WIRES_REPLAY, rank, bytes, len);
        break;

    case 2:
    case 3:
        numbered(WIRES_EVENTS, rank, bytes, len);
        break;

    case 4:
    case 5:
        numbered(WIRES_REPLAY, rank, bytes, len);
        break;

    case 6:
        if (len != 0 && bytes[0] & 0x80) {
            wires_event(rank, connects[bytes[0] % 3]);

        } else {
            wires_connect(rank, len == 0 || bytes[0] & 1);
        }

        break;

    case 7:
        http(bytes, len);
        break;

    case 8:
        wires_redis(r, len == 0 || bytes[0] & 1);
        break;

    case 9:
        wires_reply(r, bytes, len);
        break;

    case 10:
        turn(r, len ? bytes[0] * 100u : 1000);
        break;

    case 11:
        kvr_relay_snapshot_want(r, "an input");
        break;

    case 12:
        kvr_relay_stop(r);
        break;

    default:
        wires_answer(r, len ? 1 + bytes[0] : 64);
        break;
    }
}


/* A message: frames, each with its length (2 bytes, low byte first). */

static void
frames(wires_kind_t kind, uint32_t rank, const uint8_t *bytes, size_t len)
{
    size_t  n;

    while (len >= 2) {
        n = bytes[0] | (size_t) bytes[1] << 8;
        n = kvr_min(n, len - 2);

        wires_frame(kind, rank, bytes + 2, n, len - 2 - n >= 2);

        bytes += 2 + n;
        len -= 2 + n;
    }
}


/* A message as it should be, of the number in the first byte; 255: the end. */

static void
numbered(wires_kind_t kind, uint32_t rank, const uint8_t *bytes, size_t len)
{
    uint8_t  seq[8];

    if (len == 0) {
        return;
    }

    memset(seq, bytes[0] == 255 ? 255 : 0, sizeof(seq));
    seq[7] = bytes[0];

    wires_frame(kind, rank, "", 0, true);
    wires_frame(kind, rank, seq, sizeof(seq), true);
    wires_frame(kind, rank, bytes + 1, len - 1, false);
}


/* How the request ends (1 byte), and the answer's body. */

static void
http(const uint8_t *bytes, size_t len)
{
    static const long  statuses[] = { 200, 200, 200, 404, 405, 500, 200, 200 };

    if (len != 0) {
        wires_http((bytes[0] & 7) >= 6 ? "an error" : NULL,
                   (bytes[0] & 7) == 7, statuses[bytes[0] & 7], bytes + 1,
                   len - 1);
    }
}


/* Another relay, with a Redis that works, takes what this one has written. */

static void
follow(uint8_t how)
{
    uint32_t  i;
    uint64_t  blocks;

    if (!wires_snapshot(&blocks)) {
        return;
    }

    wires_unloaded = false;

    relay_open(&relay, how);
    wires_redis(&relay, true);

    for (i = 0; i < TURNS && !relay.session.started; i++) {
        turn(&relay, 10);
        wires_answer(&relay, 64);
    }

    if (wires_unloaded) {
        fuzz_fail("a snapshot could not be loaded");
    }

    if (relay.session.started
        && kvr_relay_mirror_blocks(&relay.mirror) != blocks)
    {
        fuzz_fail("%llu blocks were written, %llu loaded",
                  (unsigned long long) blocks, (unsigned long long)
                  kvr_relay_mirror_blocks(&relay.mirror));
    }

    relay_close(&relay);
}
