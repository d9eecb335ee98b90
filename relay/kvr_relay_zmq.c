/*
 * Copyright (C) the nginx-kv-router authors
 */


#define _GNU_SOURCE         /* memmem */

#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_HWM          100000   /* messages that wait in a socket */
#define KVR_RELAY_TURN         256      /* messages of one turn */
#define KVR_RELAY_REPLAY_MS    5000     /* without an answer */
#define KVR_RELAY_TRIES        3        /* for what a replay leaves out */
#define KVR_RELAY_CHECK_MS     500      /* after the engine was reached, and */
#define KVR_RELAY_IDLE_MS      10000    /* while it is silent */
#define KVR_RELAY_FRAMES       4
#define KVR_RELAY_END          UINT64_MAX

#define KVR_RELAY_SGL_TAG      "\0sgl-kv-epoch="


typedef struct {
    zmq_msg_t    frames[KVR_RELAY_FRAMES];
    uint32_t     n;

    const char  *topic;
    size_t       topic_len;
    uint64_t     seq;
    const void  *payload;
    size_t       len;
} kvr_relay_message_t;


static void kvr_relay_zmq_monitor(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_connected(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_disconnected(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_live(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_message(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_message_t *m);
static void kvr_relay_zmq_first(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_message_t *m, bool same, bool other);
static void kvr_relay_zmq_hold(kvr_relay_source_t *s, kvr_relay_message_t *m);
static void kvr_relay_zmq_drop(kvr_relay_source_t *s);
static void kvr_relay_zmq_ask(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_zmq_mode_t mode);
static void kvr_relay_zmq_unask(kvr_relay_source_t *s);
static void kvr_relay_zmq_replay(kvr_relay_t *r, kvr_relay_source_t *s);
static bool kvr_relay_zmq_answer(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m);
static bool kvr_relay_zmq_verify(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m);
static void kvr_relay_zmq_end(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_done(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_epoch(kvr_relay_source_t *s,
    const kvr_relay_message_t *m);
static bool kvr_relay_zmq_tag(const kvr_relay_message_t *m,
    char epoch[KVR_RELAY_SGL_EPOCH]);
static bool kvr_relay_zmq_receive(void *socket, kvr_relay_message_t *m);
static void kvr_relay_zmq_release(kvr_relay_message_t *m);
static bool kvr_relay_zmq_parse(kvr_relay_message_t *m, bool replay);
static void kvr_relay_zmq_set(void *socket, int option, int value);


/* ---- sockets ------------------------------------------------------------ */

void
kvr_relay_zmq_open(kvr_relay_t *r, kvr_relay_source_t *s)
{
    char              name[64];
    const char       *topic;
    kvr_relay_zmq_t  *z;

    z = calloc(1, sizeof(kvr_relay_zmq_t));
    if (z == NULL) {
        kvr_relay_exit(r, KVR_RELAY_FAILED);
        return;
    }

    s->zmq = z;

    z->mode = KVR_RELAY_AWAY;
    z->sub = zmq_socket(r->zmq, ZMQ_SUB);
    z->monitor = zmq_socket(r->zmq, ZMQ_PAIR);

    snprintf(name, sizeof(name), "inproc://kv-relay-%u", s->index);
    topic = r->options.topic;

    if (z->sub == NULL || z->monitor == NULL) {
        goto failed;
    }

    kvr_relay_zmq_set(z->sub, ZMQ_RCVHWM, KVR_RELAY_HWM);
    kvr_relay_zmq_set(z->sub, ZMQ_RECONNECT_IVL, 100);
    kvr_relay_zmq_set(z->sub, ZMQ_RECONNECT_IVL_MAX, 1000);
    kvr_relay_zmq_set(z->sub, ZMQ_HEARTBEAT_IVL, 2000);
    kvr_relay_zmq_set(z->sub, ZMQ_HEARTBEAT_TIMEOUT, 6000);
    kvr_relay_zmq_set(z->monitor, ZMQ_LINGER, 0);

    if (zmq_setsockopt(z->sub, ZMQ_SUBSCRIBE, topic, strlen(topic)) != 0
        || zmq_socket_monitor(z->sub, name, ZMQ_EVENT_HANDSHAKE_SUCCEEDED
                              | ZMQ_EVENT_DISCONNECTED) != 0
        || zmq_connect(z->monitor, name) != 0
        || zmq_connect(z->sub, r->options.events.items[s->index]) != 0)
    {
        goto failed;
    }

    return;

failed:

    kvr_relay_log(KVR_RELAY_ERROR, "no socket", "rank=%u why=\"%s\"",
                  s->index, zmq_strerror(zmq_errno()));
    kvr_relay_exit(r, KVR_RELAY_FAILED);
}


static void
kvr_relay_zmq_set(void *socket, int option, int value)
{
    int64_t  size;

    size = KVR_MESSAGE_MAX + 4096;

    (void) zmq_setsockopt(socket, option, &value, sizeof(value));

    value = 0;
    (void) zmq_setsockopt(socket, ZMQ_LINGER, &value, sizeof(value));
    (void) zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &size, sizeof(size));
}


void
kvr_relay_zmq_close(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (z == NULL) {
        return;
    }

    kvr_relay_zmq_unask(s);
    kvr_relay_zmq_drop(s);

    if (z->sub != NULL) {
        (void) zmq_socket_monitor(z->sub, NULL, 0);
        zmq_close(z->sub);
    }

    if (z->monitor != NULL) {
        zmq_close(z->monitor);
    }

    free(z);
    s->zmq = NULL;
}


uint32_t
kvr_relay_zmq_poll(const kvr_relay_source_t *s, zmq_pollitem_t *items)
{
    uint32_t          i, n;
    kvr_relay_zmq_t  *z;

    z = s->zmq;
    n = 0;

    if (z == NULL) {
        return 0;
    }

    items[n++].socket = z->monitor;

    if (z->mode == KVR_RELAY_LIVE && z->replay == NULL) {
        items[n++].socket = z->sub;
    }

    if (z->replay != NULL) {
        items[n++].socket = z->replay;
    }

    for (i = 0; i < n; i++) {
        items[i].fd = -1;
        items[i].events = ZMQ_POLLIN;
        items[i].revents = 0;
    }

    return n;
}


void
kvr_relay_zmq_tick(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (z == NULL) {
        return;
    }

    kvr_relay_zmq_monitor(r, s);

    if (z->replay != NULL) {
        kvr_relay_zmq_replay(r, s);
    }

    if (z->replay == NULL && z->mode == KVR_RELAY_LIVE) {
        kvr_relay_zmq_live(r, s);
    }

    /* the engine may have sent more than has arrived */

    if (z->replay == NULL && z->mode == KVR_RELAY_LIVE
        && r->options.replay.n != 0)
    {
        if (r->now_ms >= z->check_ms) {
            if (r->now_ms - s->heard_ms >= KVR_RELAY_CHECK_MS) {
                kvr_relay_zmq_ask(r, s, s->known ? KVR_RELAY_VERIFY
                                                 : KVR_RELAY_ZERO);
            }

            z->check_ms = r->now_ms + KVR_RELAY_IDLE_MS;
        }

        kvr_relay_wake(r, z->check_ms);
    }
}


/* ---- connections -------------------------------------------------------- */

/* What happened to the connection, up to now. */

static void
kvr_relay_zmq_monitor(kvr_relay_t *r, kvr_relay_source_t *s)
{
    uint16_t             event;
    kvr_relay_message_t  m;

    while (kvr_relay_zmq_receive(s->zmq->monitor, &m)) {

        if (m.n != 0 && zmq_msg_size(&m.frames[0]) >= sizeof(event)) {
            memcpy(&event, zmq_msg_data(&m.frames[0]), sizeof(event));

            if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
                kvr_relay_zmq_connected(r, s);

            } else if (event == ZMQ_EVENT_DISCONNECTED) {
                kvr_relay_zmq_disconnected(r, s);
            }
        }

        kvr_relay_zmq_release(&m);
    }
}


static void
kvr_relay_zmq_connected(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    kvr_relay_log(KVR_RELAY_INFO, "engine connected", "rank=%u", s->index);

    if (s->synced) {
        r->counters.reconnects++;
    }

    s->connected = true;
    z->reconnected = true;
    z->has_live = false;
    z->overlap = 0;
    z->tries = 0;

    if (r->options.replay.n != 0) {
        kvr_relay_zmq_ask(r, s, s->known ? KVR_RELAY_VERIFY : KVR_RELAY_ZERO);
        return;
    }

    /* what the engine did meanwhile can't be known */

    s->before = s->whole;
    kvr_relay_source_broken(r, s, "there is no --replay to ask what the engine"
                            " did before it was reached");
    z->mode = KVR_RELAY_LIVE;
    kvr_relay_source_synced(r, s);
}


static void
kvr_relay_zmq_disconnected(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_log(KVR_RELAY_WARN, "engine disconnected", "rank=%u", s->index);

    s->connected = false;
    s->in_step = false;
    s->zmq->mode = KVR_RELAY_AWAY;

    kvr_relay_zmq_unask(s);
    kvr_relay_zmq_drop(s);

    if (s->rebuilding) {
        kvr_relay_source_broken(r, s, "the engine went away during replay");
        kvr_relay_source_rebuilt(r, s);
    }
}


/* ---- live messages ------------------------------------------------------ */

static void
kvr_relay_zmq_live(kvr_relay_t *r, kvr_relay_source_t *s)
{
    uint32_t              i;
    kvr_relay_zmq_t      *z;
    kvr_relay_message_t   m;

    z = s->zmq;

    for (i = 0; i < KVR_RELAY_TURN; i++) {

        if (!kvr_relay_zmq_receive(z->sub, &m)) {
            return;
        }

        /*
         * A connection is told of before its first message is there.  What
         * came with a new one is in the replay, too.
         */

        kvr_relay_zmq_monitor(r, s);

        if (z->replay != NULL || z->mode != KVR_RELAY_LIVE) {
            kvr_relay_zmq_release(&m);
            return;
        }

        if (kvr_relay_zmq_parse(&m, false)) {
            kvr_relay_zmq_message(r, s, &m);

        } else {
            r->counters.why[KVR_WHY_SYNTAX]++;
        }

        kvr_relay_zmq_release(&m);

        if (z->replay != NULL) {
            return;
        }
    }

    kvr_relay_wake(r, r->now_ms);
}


static void
kvr_relay_zmq_message(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_message_t *m)
{
    bool              same, other;
    char              epoch[KVR_RELAY_SGL_EPOCH];
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    same = false;
    other = false;

    if (kvr_relay_zmq_tag(m, epoch) && s->sgl_epoch[0] != '\0') {
        same = strcmp(epoch, s->sgl_epoch) == 0;
        other = !same;
    }

    if (s->known && !other && m->seq <= s->seq) {

        if (m->seq <= z->overlap && (!z->has_live || m->seq > z->live)) {
            z->has_live = true;
            z->live = m->seq;
            r->counters.duplicates++;
            return;
        }

        if (same) {
            r->counters.duplicates++;
            return;
        }

        other = true;                       /* it counts anew */
    }

    if (other || !s->known || z->reconnected) {
        kvr_relay_zmq_first(r, s, m, same, other);
        return;
    }

    if (m->seq != s->seq + 1) {
        r->counters.gaps++;

        kvr_relay_log(KVR_RELAY_WARN, "gap", "rank=%u seq=%llu got=%llu",
                      s->index, (unsigned long long) s->seq,
                      (unsigned long long) m->seq);

        if (r->options.replay.n != 0) {
            kvr_relay_zmq_hold(s, m);
            kvr_relay_zmq_ask(r, s, KVR_RELAY_VERIFY);
            return;
        }

        kvr_relay_source_broken(r, s, "messages of the engine were lost, and "
                                "there is no --replay");
    }

    z->has_live = true;
    z->live = m->seq;

    kvr_relay_zmq_epoch(s, m);
    kvr_relay_source_message(r, s, m->seq, m->payload, m->len);
}


/*
 * A message that follows on nothing that is sure: the first of all, the first
 * after a reconnect without replay, or one of an engine that counts anew.
 */
static void
kvr_relay_zmq_first(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_message_t *m, bool same, bool other)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (r->options.replay.n != 0 && (other || m->seq != 0)) {
        kvr_relay_zmq_hold(s, m);
        kvr_relay_zmq_ask(r, s, s->known ? KVR_RELAY_VERIFY : KVR_RELAY_ZERO);
        return;
    }

    if (s->known && z->reconnected && m->seq == 0) {
        other = true;
    }

    z->reconnected = false;

    if (other) {
        kvr_relay_source_restarted(r, s);
    }

    if (s->known && same && m->seq == s->seq + 1 && s->before) {
        s->whole = true;
        s->reason[0] = '\0';

    } else if (!s->known && m->seq == 0) {
        s->whole = true;
        s->reason[0] = '\0';

    } else if (!s->known) {
        kvr_relay_source_broken(r, s, "there is no --replay to ask what the "
                                "engine did before");

    } else if (m->seq != s->seq + 1) {
        r->counters.gaps++;
    }

    z->has_live = true;
    z->live = m->seq;

    kvr_relay_zmq_epoch(s, m);
    kvr_relay_source_message(r, s, m->seq, m->payload, m->len);
}


static void
kvr_relay_zmq_hold(kvr_relay_source_t *s, kvr_relay_message_t *m)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    kvr_relay_zmq_drop(s);

    zmq_msg_init(&z->held);
    zmq_msg_move(&z->held, &m->frames[m->n - 1]);

    z->has_held = true;
    z->held_seq = m->seq;
}


static void
kvr_relay_zmq_drop(kvr_relay_source_t *s)
{
    if (s->zmq->has_held) {
        zmq_msg_close(&s->zmq->held);
        s->zmq->has_held = false;
    }
}


/* ---- replay ------------------------------------------------------------- */

static void
kvr_relay_zmq_ask(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_zmq_mode_t mode)
{
    uint8_t           start[8];
    uint32_t          i;
    uint64_t          from;
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    kvr_relay_zmq_unask(s);

    from = mode == KVR_RELAY_VERIFY ? s->seq : 0;

    for (i = 0; i < 8; i++) {
        start[i] = (uint8_t) (from >> (56 - 8 * i));
    }

    z->mode = mode;
    z->answers = 0;
    z->hole = false;
    z->deadline_ms = r->now_ms + KVR_RELAY_REPLAY_MS;
    z->replay = zmq_socket(r->zmq, ZMQ_DEALER);

    r->counters.replays++;

    kvr_relay_log(KVR_RELAY_DEBUG, "replay", "rank=%u from=%llu", s->index,
                  (unsigned long long) from);

    if (z->replay != NULL) {
        kvr_relay_zmq_set(z->replay, ZMQ_RCVHWM, KVR_RELAY_HWM);

        if (zmq_connect(z->replay, r->options.replay.items[s->index]) == 0
            && zmq_send(z->replay, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0
            && zmq_send(z->replay, start, 8, ZMQ_DONTWAIT) == 8)
        {
            kvr_relay_wake(r, z->deadline_ms);
            return;
        }
    }

    z->deadline_ms = r->now_ms;
    kvr_relay_wake(r, r->now_ms);
}


static void
kvr_relay_zmq_unask(kvr_relay_source_t *s)
{
    if (s->zmq->replay != NULL) {
        zmq_close(s->zmq->replay);
        s->zmq->replay = NULL;
    }
}


static void
kvr_relay_zmq_replay(kvr_relay_t *r, kvr_relay_source_t *s)
{
    bool                  more;
    uint32_t              i;
    kvr_relay_zmq_t      *z;
    kvr_relay_message_t   m;

    z = s->zmq;

    for (i = 0; i < KVR_RELAY_TURN; i++) {

        if (!kvr_relay_zmq_receive(z->replay, &m)) {
            break;
        }

        z->deadline_ms = r->now_ms + KVR_RELAY_REPLAY_MS;

        more = !kvr_relay_zmq_parse(&m, true)
               || kvr_relay_zmq_answer(r, s, &m);

        kvr_relay_zmq_release(&m);

        if (!more) {
            return;
        }
    }

    if (i == KVR_RELAY_TURN) {
        kvr_relay_wake(r, r->now_ms);
        return;
    }

    kvr_relay_wake(r, z->deadline_ms);

    if (r->now_ms < z->deadline_ms) {
        return;
    }

    kvr_relay_log(KVR_RELAY_WARN, "replay doesn't answer", "rank=%u answers=%u",
                  s->index, z->answers);

    /* one that only looked for more has lost nothing */

    if (z->reconnected || z->has_held || z->answers != 0 || s->rebuilding) {
        kvr_relay_source_broken(r, s, "the engine's replay doesn't answer");
    }

    kvr_relay_zmq_done(r, s);
}


/* False: this replay is over. */

static bool
kvr_relay_zmq_answer(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (m->seq == KVR_RELAY_END) {
        kvr_relay_zmq_end(r, s);
        return false;
    }

    if (z->hole) {
        return true;
    }

    if (z->answers++ == 0) {

        if (z->mode == KVR_RELAY_VERIFY) {
            return kvr_relay_zmq_verify(r, s, m);
        }

        kvr_relay_source_rebuild(r, s);

        if (m->seq != 0) {
            kvr_relay_source_broken(r, s, "the engine's replay doesn't reach "
                                    "back to its first message");
        }

        kvr_relay_zmq_epoch(s, m);
        kvr_relay_source_message(r, s, m->seq, m->payload, m->len);

        return true;
    }

    if (m->seq <= s->seq) {
        return true;
    }

    if (m->seq != s->seq + 1) {

        if (z->tries < KVR_RELAY_TRIES) {
            z->hole = true;
            return true;
        }

        kvr_relay_source_broken(r, s, "the engine's replay leaves messages "
                                "out");
    }

    z->tries = 0;

    kvr_relay_zmq_epoch(s, m);
    kvr_relay_source_message(r, s, m->seq, m->payload, m->len);

    return true;
}


/* The first answer to what was asked from our last message on. */

static bool
kvr_relay_zmq_verify(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m)
{
    bool  lost;

    if (m->seq < s->seq) {
        s->zmq->answers = 0;
        return true;
    }

    if (m->seq == s->seq) {

        if (kvr_relay_source_digest(m->payload, m->len) == s->digest) {
            return true;
        }

        kvr_relay_zmq_ask(r, s, KVR_RELAY_ZERO);
        return false;
    }

    lost = m->seq != s->seq + 1;

    if (lost || s->zmq->reconnected) {
        kvr_relay_source_broken(r, s, "the engine's replay doesn't reach back "
                                "to what was known");
    }

    kvr_relay_zmq_epoch(s, m);
    kvr_relay_source_message(r, s, m->seq, m->payload, m->len);

    return true;
}


static void
kvr_relay_zmq_end(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (z->hole) {
        z->tries++;
        kvr_relay_zmq_ask(r, s, KVR_RELAY_VERIFY);
        return;
    }

    /* an engine that doesn't have what we know is another one */

    if (z->mode == KVR_RELAY_VERIFY && z->answers == 0) {
        kvr_relay_zmq_ask(r, s, KVR_RELAY_ZERO);
        return;
    }

    if (z->mode == KVR_RELAY_ZERO && z->answers == 0
        && (s->known || !s->whole || !s->synced))
    {
        kvr_relay_source_rebuild(r, s);
    }

    kvr_relay_zmq_done(r, s);
}


static void
kvr_relay_zmq_done(kvr_relay_t *r, kvr_relay_source_t *s)
{
    bool              news;
    kvr_relay_zmq_t  *z;

    z = s->zmq;
    news = z->reconnected || s->rebuilding || z->answers > 1;

    kvr_relay_zmq_unask(s);

    if (z->reconnected) {
        z->check_ms = r->now_ms + KVR_RELAY_CHECK_MS;
    }

    z->mode = KVR_RELAY_LIVE;
    z->reconnected = false;
    z->overlap = s->known ? s->seq : 0;

    if (s->rebuilding) {
        kvr_relay_source_rebuilt(r, s);
    }

    if (z->has_held) {

        if (s->known && z->held_seq <= s->seq) {
            r->counters.gaps_filled++;

        } else {
            if (z->held_seq != (s->known ? s->seq + 1 : 0)) {
                kvr_relay_source_broken(r, s, "messages of the engine were "
                                        "lost");
            }

            kvr_relay_source_message(r, s, z->held_seq,
                                     zmq_msg_data(&z->held),
                                     zmq_msg_size(&z->held));
        }

        z->has_live = true;
        z->live = z->held_seq;
        kvr_relay_zmq_drop(s);
    }

    if (news) {
        kvr_relay_source_synced(r, s);
    }

    kvr_relay_wake(r, r->now_ms);
}


/* ---- frames ------------------------------------------------------------- */

/* False: there is none. */

static bool
kvr_relay_zmq_receive(void *socket, kvr_relay_message_t *m)
{
    zmq_msg_t  other, *frame;

    m->n = 0;

    for ( ;; ) {
        frame = m->n < KVR_RELAY_FRAMES ? &m->frames[m->n] : &other;

        zmq_msg_init(frame);

        if (zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(frame);
            kvr_relay_zmq_release(m);
            return false;
        }

        if (frame != &other) {
            m->n++;
        }

        if (!zmq_msg_more(frame)) {
            break;
        }

        if (frame == &other) {
            zmq_msg_close(&other);
        }
    }

    if (frame == &other) {
        zmq_msg_close(&other);
    }

    return true;
}


static void
kvr_relay_zmq_release(kvr_relay_message_t *m)
{
    while (m->n != 0) {
        zmq_msg_close(&m->frames[--m->n]);
    }
}


/* [topic, seq, payload]; of a replay ["", (topic,) seq, payload]. */

static bool
kvr_relay_zmq_parse(kvr_relay_message_t *m, bool replay)
{
    uint32_t        i, seq;
    const uint8_t  *p;

    m->topic = "";
    m->topic_len = 0;
    m->payload = "";
    m->len = 0;

    if (m->n < 2) {
        return false;
    }

    /* the end of a replay may come without a payload */

    seq = m->n - 2;

    if (replay && m->n == 2 && zmq_msg_size(&m->frames[0]) == 0) {
        seq = 1;
    }

    if (zmq_msg_size(&m->frames[seq]) != 8) {
        return false;
    }

    p = zmq_msg_data(&m->frames[seq]);
    m->seq = 0;

    for (i = 0; i < 8; i++) {
        m->seq = m->seq << 8 | p[i];
    }

    if (seq + 1 < m->n) {
        m->payload = zmq_msg_data(&m->frames[seq + 1]);
        m->len = zmq_msg_size(&m->frames[seq + 1]);
    }

    if (seq != 0) {
        m->topic = zmq_msg_data(&m->frames[seq - 1]);
        m->topic_len = zmq_msg_size(&m->frames[seq - 1]);
    }

    return true;
}


/* SGLang's incarnation, in the topic. */

static bool
kvr_relay_zmq_tag(const kvr_relay_message_t *m,
    char epoch[KVR_RELAY_SGL_EPOCH])
{
    size_t       len;
    const char  *p;

    p = memmem(m->topic, m->topic_len, KVR_RELAY_SGL_TAG,
               sizeof(KVR_RELAY_SGL_TAG) - 1);
    if (p == NULL) {
        return false;
    }

    p += sizeof(KVR_RELAY_SGL_TAG) - 1;
    len = m->topic_len - (size_t) (p - m->topic);

    if (len == 0 || len >= KVR_RELAY_SGL_EPOCH) {
        return false;
    }

    memcpy(epoch, p, len);
    epoch[len] = '\0';

    return strcspn(epoch, " \t\r\n") == strlen(epoch);
}


static void
kvr_relay_zmq_epoch(kvr_relay_source_t *s, const kvr_relay_message_t *m)
{
    char  epoch[KVR_RELAY_SGL_EPOCH];

    if (kvr_relay_zmq_tag(m, epoch)) {
        memcpy(s->sgl_epoch, epoch, KVR_RELAY_SGL_EPOCH);
    }
}
