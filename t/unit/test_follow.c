/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Following a stream: messages that wait, are parked, and go on behind a
 * repair; and the repairs of several workers at a time.  Redis is a table.
 */


#include "answers.h"
#include "pack.h"
#include "zone.h"
#include "follow/kvr_follow.h"


#define SIZE      (16u << 20)
#define WORKERS   6


static kvr_follow_t   follow;
static uint64_t       log_last[WORKERS];    /* of each worker's log */
static kvr_repair_t  *open[KVR_REPAIRS];    /* repairs that asked, */
static kvr_reply_t    replies[KVR_REPAIRS]; /* their answers */
static uint32_t       nopen;
static uint32_t       most_open;
static bool           silent;               /* Redis answers nothing */


/* ---- messages ----------------------------------------------------------- */

static const char *
name(uint32_t worker)
{
    static char  text[4];

    sprintf(text, "w%u", worker);

    return text;
}


/* Message seq of epoch 7 stores block seq. */

static size_t
message(uint8_t *bytes, size_t size, uint32_t worker, uint64_t seq)
{
    char     text[512], inner[128], block[20], hex[257];
    size_t   len, i;
    uint8_t  payload[128];

    snprintf(block, sizeof(block), "%02x%02x000000000000",
             (unsigned) seq & 255, (unsigned) (seq >> 8) & 255);
    snprintf(inner, sizeof(inner), "[['s', 0, 0, null, {'$bin': '%s'}, "
             "{'$bin': '%s'}]]", block, block);
    len = pack(payload, sizeof(payload), inner);

    for (i = 0; i < len; i++) {
        snprintf(hex + 2 * i, 3, "%02x", payload[i]);
    }

    snprintf(text, sizeof(text), "['kvr1', '%s', 7, %llu, true, null, "
             "{'$bin': '%s'}]", name(worker), (unsigned long long) seq, hex);

    return pack(bytes, size, text);
}


/* A message comes live; what is published is in the log as well. */

static kvr_rc_t
push_bytes(const char *id, const void *bytes, size_t len)
{
    kvr_rc_t      rc;
    kvr_reply_t   reply, body;

    blobs[0] = (blob_t) { bytes, len };

    reply = answer("['message' 'c' @0]");
    body = kvr_reply_element(&reply, 2);

    rc = kvr_follow_push(&follow, &reply, &body, id, strlen(id));

    if (rc != KVR_OK) {
        kvr_reply_release(&reply);
    }

    return rc;
}


static kvr_rc_t
push(uint32_t worker, uint64_t seq)
{
    size_t   len;
    uint8_t  bytes[512];

    /* the id must live as long as the message, as it does in a channel */

    static char  ids[WORKERS][4];

    strcpy(ids[worker], name(worker));
    len = message(bytes, sizeof(bytes), worker, seq);

    if (log_last[worker] < seq) {
        log_last[worker] = seq;
    }

    return push_bytes(ids[worker], bytes, len);
}


/* ---- a Redis without one ------------------------------------------------ */

static kvr_reply_t
redis(const kvr_ask_t *ask)
{
    char      text[8192], *p;
    uint8_t   bytes[64][512];
    uint32_t  worker, n;
    uint64_t  seq, last;

    worker = strchr(ask->argv[1], '{')[2] - '0';
    last = log_last[worker];
    n = 0;
    p = text + sprintf(text, "[");

    if (strcmp(ask->argv[0], "HMGET") == 0) {
        return answer("[~ ~ ~ ~ ~ ~ ~ ~]");
    }

    if (strcmp(ask->argv[0], "SET") == 0) {
        return answer("+OK");
    }

    seq = strcmp(ask->argv[0], "XRANGE") == 0
          ? strtoull(ask->argv[2] + 3, NULL, 10) + 1 : last;

    for ( /* void */ ; seq && seq <= last && n < 64; seq++, n++) {
        blobs[n].bytes = (char *) bytes[n];
        blobs[n].len = message(bytes[n], sizeof(bytes[n]), worker, seq);
        p += sprintf(p, "['7-%llu' ['m' @%u]] ", (unsigned long long) seq, n);
    }

    strcpy(p, "]");

    return answer(text);
}


static void
reply_all(const kvr_turn_t *turn)
{
    uint32_t  i;

    for (i = 0; i < nopen; i++) {
        kvr_repair_answer(open[i], turn, &replies[i]);
    }

    nopen = 0;
}


/* Works until nothing is to be done. */

static kvr_next_t
work(void)
{
    size_t            bytes;
    uint32_t          n;
    kvr_ask_t         ask;
    kvr_turn_t        turn;
    kvr_repair_t     *r;
    kvr_next_t        rc;

    for (n = 0; n < 100000; n++) {
        turn = (kvr_turn_t) { now_ms, 7, 16, true };

        rc = kvr_follow_step(&follow, &turn, &bytes, &ask, &r);

        if (rc == KVR_NEXT_ASK) {
            replies[nopen] = redis(&ask);
            open[nopen++] = r;

            most_open = nopen > most_open ? nopen : most_open;

        } else if (rc == KVR_NEXT_WAIT && nopen && !silent) {
            reply_all(&turn);

        } else if (rc != KVR_NEXT_AGAIN && rc != KVR_NEXT_YIELD) {
            return rc;
        }
    }

    return KVR_NEXT_BUSY;
}


static void
open_all(bool replay)
{
    uint32_t  i;

    zone_open(&kinds[0], SIZE);
    tell_reset();

    for (i = 0; i < WORKERS; i++) {
        put(name(i));
        log_last[i] = 0;
    }

    (void) lease("w0", now_ms);

    nopen = 0;
    most_open = 0;
    silent = false;
    memset(&follow, 0, sizeof(follow));

    if (kvr_follow_open(&follow, &router, &tell, replay) != KVR_OK) {
        printf("Bail out! no memory\n");
        exit(1);
    }
}


static void
close_all(void)
{
    kvr_follow_close(&follow);
    ok(unreleased == 0, "and no message or answer is left");
    zone_close();
}


/* Worker's view: "EXACT 9 of 9", confidence, seq, and blocks held. */

static bool
stands(uint32_t worker, const char *want)
{
    char                 text[64];
    uint32_t             w, h, visited, held;
    const kvr_worker_t  *of;

    if (kvr_router_find_worker(&router, name(worker), 2, &w) != KVR_OK) {
        return false;
    }

    of = kvr_router_worker(&router, w);
    h = KVR_HOLDER_NONE;
    visited = 0;
    held = 0;

    while (kvr_router_next_holder(&router, w, &h, &visited)) {
        held += kvr_router_holder_held(&router, h);
    }

    snprintf(text, sizeof(text), "%s %u of %u",
             kvr_confidence_name(of->stream.confidence),
             (uint32_t) of->stream.seq, held);

    if (strcmp(text, want) != 0) {
        note("%s, not %s; log: %s", text, want, told);
        return false;
    }

    return true;
}


/* ---- tests -------------------------------------------------------------- */

static void
test_order(void)
{
    open_all(true);

    (void) push(0, 1);
    (void) push(1, 1);
    (void) push(0, 2);
    ok(follow.queue.count == 3, "messages wait,");
    ok(work() == KVR_NEXT_WAIT && stands(0, "EXACT 2 of 2")
       && stands(1, "EXACT 1 of 1") && follow.queue.count == 0
       && follow.queue.bytes == 0 && !kvr_follow_waits(&follow),
       "and are applied in their order");

    close_all();
}


/* A gap: what follows waits for the repair, the others' messages don't. */

static void
test_gap(void)
{
    open_all(true);

    (void) push(0, 1);
    (void) work();

    silent = true;
    log_last[0] = 4;
    (void) push(0, 5);
    (void) push(0, 6);
    (void) push(1, 1);
    (void) work();

    ok(stands(0, "SYNCING 1 of 1") && stands(1, "EXACT 1 of 1")
       && follow.queue.count == 2 && nopen == 1,
       "behind a gap a worker's messages are parked, no other's");

    (void) push(0, 7);
    (void) work();
    ok(follow.queue.count == 3 && follow.queue.messages.first == NULL,
       "so are those that come during its repair");

    silent = false;
    (void) work();
    ok(stands(0, "EXACT 7 of 7") && follow.queue.count == 0,
       "the log brings what is missing, and what was parked goes on");
    ok(counted[KVR_COUNT_REPAIRS_STARTED] == 1
       && counted[KVR_COUNT_REPAIRS_DONE] == 1
       && strstr(told, "workers resynchronized: 1, with lost events: 0"),
       "it is counted and said");

    close_all();
}


static void
test_gap_without_log(void)
{
    open_all(false);

    (void) push(0, 1);
    (void) push(0, 5);
    (void) push(0, 6);
    ok(work() == KVR_NEXT_WAIT && stands(0, "DEGRADED 6 of 3")
       && strstr(told, "messages of worker \"w0\" up to 7-4 are lost")
       && most_open == 0,
       "without logs a gap is a loss, and nothing is asked");

    close_all();
}


static void
test_several(void)
{
    uint32_t  i;

    open_all(true);

    for (i = 0; i < WORKERS; i++) {
        log_last[i] = 3 + i;
    }

    kvr_repairs_want_shards(&follow.repairs, UINT64_MAX);
    silent = true;
    (void) work();
    ok(follow.repairs.nactive == KVR_REPAIRS
       && follow.repairs.nwanted == WORKERS - KVR_REPAIRS,
       "of six repairs four are made at a time");

    silent = false;
    (void) work();

    for (i = 0; i < WORKERS; i++) {
        char  want[32];

        sprintf(want, "EXACT %u of %u", 3 + i, 3 + i);
        ok(stands(i, want), "the log of worker %u is read", i);
    }

    ok(follow.repairs.nactive == 0 && follow.repairs.nwanted == 0
       && strstr(told, "workers resynchronized: 6"), "all are");

    close_all();
}


/* The queue is full: what is dropped is read from the log, or is a loss. */

static void
test_full(void)
{
    uint32_t  i;

    open_all(true);

    (void) push(0, 1);
    (void) work();

    for (i = 2; push(1, i - 1) == KVR_OK && i < 70000; i++) { /* void */ }

    ok(i == 65538 && counted[KVR_COUNT_MESSAGES_DROPPED] == 1
       && strstr(told, "warn: 65536 messages of"),
       "the queue takes 65536 messages, and says when it is full");
    (void) push(0, 2);
    ok(counted[KVR_COUNT_MESSAGES_DROPPED] == 2
       && strstr(strstr(told, "wait, dropping more") + 1,
                 "wait, dropping more") == NULL, "once");

    kvr_queue_clear(&follow.queue);
    log_last[1] = 0;
    (void) work();
    ok(stands(0, "EXACT 2 of 2"), "what was dropped is read from the log");

    close_all();
}


static void
test_refused(void)
{
    open_all(true);

    ok(push_bytes("no id", "x", 1) == KVR_DECLINED
       && strstr(told, "error: message of worker \"no id\" refused: not a "
                 "worker's id"), "an id that is none is refused");
    ok(push_bytes("a\nb", "x", 1) == KVR_DECLINED
       && strstr(told, "info: message of worker \"a?b\" refused"),
       "and adds no line to the log");

    told[0] = '\0';
    (void) push(0, 1);
    (void) push_bytes("w0", "x", 1);
    (void) push_bytes("w0", "x", 1);
    (void) push(0, 2);
    ok(work() == KVR_NEXT_WAIT && stands(0, "EXACT 2 of 2")
       && counted[KVR_COUNT_MESSAGES_REFUSED] == 4
       && strstr(told, "error: message of worker \"w0\" refused: ")
       && strstr(told, "info: message of worker \"w0\" refused: "),
       "messages that can't be read change nothing, and are told of once");

    close_all();
}


/* A view that only a snapshot can make whole is looked at again and again. */

static void
test_looks(void)
{
    uint32_t  looks;

    open_all(true);

    (void) push(0, 1);
    (void) work();
    log_last[0] = 0;
    (void) push(0, 5);
    log_last[0] = 0;
    (void) work();
    ok(stands(0, "DEGRADED 5 of 2") && counted[KVR_COUNT_SNAPSHOTS_ASKED] == 1
       && counted[KVR_COUNT_REPAIRS_FAILED] == 1,
       "a gap that nothing fills: a snapshot is asked for");

    kvr_repairs_tick(&follow.repairs, UINT64_MAX, now_ms);
    ok(!kvr_follow_waits(&follow), "it is not looked for at once,");

    for (looks = 0; looks < 10; looks++) {
        now_ms += 5000;
        kvr_repairs_tick(&follow.repairs, UINT64_MAX, now_ms);

        if (!kvr_follow_waits(&follow)) {
            break;
        }

        (void) work();
    }

    ok(looks == 10 && counted[KVR_COUNT_REPAIRS_STARTED] == 1,
       "but then each 5 seconds at the latest, which is no repair");

    now_ms += 5000;
    kvr_repairs_tick(&follow.repairs, 0, now_ms);
    ok(!kvr_follow_waits(&follow), "without its lease it isn't");

    close_all();
}


static void
test_lease(void)
{
    open_all(true);

    (void) push(0, 1);
    (void) push(0, 2);
    kvr_router_lease_release(&router);
    ok(work() == KVR_NEXT_LOST && follow.queue.count == 2,
       "without the lease nothing is applied");
    kvr_follow_close(&follow);
    ok(follow.queue.count == 0 && unreleased == 0,
       "all that waits can be dropped");

    close_all();
}


int
main(void)
{
    test_order();
    test_gap();
    test_gap_without_log();
    test_several();
    test_full();
    test_refused();
    test_looks();
    test_lease();

    return done();
}
