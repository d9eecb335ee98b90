/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>


#define KVR_RELAY_IDLE_MS      10000    /* while it is silent */
/* the time until libzmq connects again */
#define KVR_RELAY_AGAIN_MS     500
/* after so long without an answer to a connect, the engine counts as silent */
#define KVR_RELAY_SILENT_MS    3000


static void kvr_relay_zmq_whole(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_again(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_monitor(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_event(kvr_relay_t *r, kvr_relay_source_t *s,
    uint16_t event);
static void kvr_relay_zmq_connected(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_subscribe(const kvr_relay_zmq_t *z);
static void kvr_relay_zmq_disconnected(kvr_relay_t *r, kvr_relay_source_t *s);
static const char *kvr_relay_zmq_refusal(const kvr_relay_t *r,
    const kvr_relay_source_t *s);
static bool kvr_relay_zmq_silent(const kvr_relay_t *r,
    const kvr_relay_zmq_t *z);
static void kvr_relay_zmq_live(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_doubted(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_zmq_message(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_message_t *m);
static void kvr_relay_zmq_first(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_message_t *m, bool same, bool other);


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

    kvr_relay_frames_option(r, z->sub, ZMQ_RCVHWM, KVR_RELAY_LIVE_HWM);
    kvr_relay_frames_option(r, z->sub, ZMQ_RECONNECT_IVL, 100);
    kvr_relay_frames_option(r, z->sub, ZMQ_RECONNECT_IVL_MAX, 1000);
    kvr_relay_frames_option(r, z->sub, ZMQ_HEARTBEAT_IVL, 2000);
    kvr_relay_frames_option(r, z->sub, ZMQ_HEARTBEAT_TIMEOUT, 6000);
    kvr_relay_frames_option(r, z->monitor, ZMQ_LINGER, 0);

    if (zmq_setsockopt(z->sub, ZMQ_SUBSCRIBE, topic, strlen(topic)) != 0
        || zmq_socket_monitor(z->sub, name, ZMQ_EVENT_HANDSHAKE_SUCCEEDED
                              | ZMQ_EVENT_DISCONNECTED
                              | ZMQ_EVENT_CONNECT_DELAYED
                              | ZMQ_EVENT_CLOSED
                              | ZMQ_EVENT_CONNECT_RETRIED) != 0
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


void
kvr_relay_zmq_close(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (z == NULL) {
        return;
    }

    kvr_relay_replay_stop(s);
    kvr_relay_replay_drop(s);

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


void
kvr_relay_zmq_poll(const kvr_relay_source_t *s, kvr_relay_loop_t *loop)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (z == NULL) {
        return;
    }

    (void) kvr_relay_loop_add(loop, z->monitor, -1, ZMQ_POLLIN);

    if (z->replay != NULL) {
        (void) kvr_relay_loop_add(loop, z->replay, -1, ZMQ_POLLIN);

    } else if (z->mode == KVR_RELAY_LIVE) {
        (void) kvr_relay_loop_add(loop, z->sub, -1, ZMQ_POLLIN);
    }
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
    kvr_relay_zmq_again(r, s);

    if (z->replay != NULL) {
        kvr_relay_replay_read(r, s);
    }

    if (z->replay == NULL && z->mode == KVR_RELAY_LIVE) {
        kvr_relay_zmq_live(r, s);
    }

    /* the engine may have sent messages that have not arrived yet */

    if (z->replay == NULL && z->mode == KVR_RELAY_LIVE
        && r->options.replay.n != 0)
    {
        if (s->at.unanswered) {
            kvr_relay_zmq_whole(r, s);
            return;
        }

        if (r->now_ms >= z->check_ms) {
            if (z->doubted || r->now_ms - s->heard_ms >= KVR_RELAY_CHECK_MS) {
                kvr_relay_replay_ask(r, s, s->known ? KVR_RELAY_VERIFY
                                                 : KVR_RELAY_ZERO);
            }

            z->check_ms = r->now_ms + KVR_RELAY_IDLE_MS;
        }

        kvr_relay_wake(r, z->check_ms);
    }
}


/* Asks for all that the engine holds, when it is time. */

static void
kvr_relay_zmq_whole(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (r->now_ms < z->whole_ms) {
        kvr_relay_wake(r, z->whole_ms);
        return;
    }

    kvr_relay_log(KVR_RELAY_INFO, "replay is asked again",
                  "rank=%u unanswered=%u", s->index, z->unanswered);

    z->whole_ms = r->now_ms + KVR_RELAY_WHOLE_MS;
    z->check_ms = r->now_ms + KVR_RELAY_IDLE_MS;
    kvr_relay_replay_ask(r, s, KVR_RELAY_ZERO);
}


/* ---- connections -------------------------------------------------------- */

/*
 * Connects again to a peer that broke the protocol, for example by a message
 * that is too large. libzmq itself connects again in all other cases.
 */
static void
kvr_relay_zmq_again(kvr_relay_t *r, kvr_relay_source_t *s)
{
    const char       *endpoint;
    kvr_relay_zmq_t  *z;

    z = s->zmq;
    endpoint = r->options.events.items[s->index];

    if (z->again_ms == 0) {
        return;
    }

    if (r->now_ms >= z->again_ms) {
        z->again_ms = 0;

        (void) zmq_disconnect(z->sub, endpoint);
        (void) zmq_connect(z->sub, endpoint);
        return;
    }

    kvr_relay_wake(r, z->again_ms);
}


/* Reads the events of the connection's monitor. */

static void
kvr_relay_zmq_monitor(kvr_relay_t *r, kvr_relay_source_t *s)
{
    uint16_t             event;
    kvr_relay_message_t  m;

    while (kvr_relay_frames_receive(s->zmq->monitor, &m)) {

        if (m.n != 0 && zmq_msg_size(&m.frames[0]) >= sizeof(event)) {
            memcpy(&event, zmq_msg_data(&m.frames[0]), sizeof(event));

            kvr_relay_zmq_event(r, s, event);
        }

        kvr_relay_frames_release(&m);
    }
}


/*
 * Finds out why a connect fails. libzmq does not report the error, but the
 * events around it: DELAYED is the begin of a connect, CLOSED its failure, and
 * RETRIED comes when the next connect is planned.  Without DELAYED and CLOSED
 * there was no address to connect to.
 */
static void
kvr_relay_zmq_event(kvr_relay_t *r, kvr_relay_source_t *s, uint16_t event)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    switch (event) {

    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        kvr_relay_zmq_connected(r, s);
        return;

    case ZMQ_EVENT_DISCONNECTED:
        kvr_relay_zmq_disconnected(r, s);
        return;

    case ZMQ_EVENT_CONNECT_DELAYED:
        z->tried_ms = r->now_ms;
        return;

    case ZMQ_EVENT_CLOSED:
        z->failed = true;
        z->why = kvr_relay_zmq_refusal(r, s);
        return;
    }

    /* ZMQ_EVENT_CONNECT_RETRIED */

    if (!z->failed) {
        z->why = "the host's name has no address, or there is no route to it";
    }

    z->failed = false;
    z->tried_ms = 0;
    z->again_ms = 0;
}


/* Why a connect has just failed; NULL: it had no answer for long. */

static const char *
kvr_relay_zmq_refusal(const kvr_relay_t *r, const kvr_relay_source_t *s)
{
    const char  *endpoint;

    endpoint = r->options.events.items[s->index];

    if (strncmp(endpoint, "ipc://", 6) != 0) {
        return kvr_relay_zmq_silent(r, s->zmq) ? NULL
               : "connection refused, or no route to the host";
    }

    if (faccessat(AT_FDCWD, endpoint + 6, W_OK, AT_EACCESS) == -1
        && errno == EACCES)
    {
        return "the relay's user can't write to the socket, or can't enter "
               "its folder";
    }

    return "there is no such socket, or nothing listens at it";
}


/* Has the connect that runs, or has just failed, had no answer for long? */

static bool
kvr_relay_zmq_silent(const kvr_relay_t *r, const kvr_relay_zmq_t *z)
{
    return z->tried_ms && r->now_ms >= z->tried_ms + KVR_RELAY_SILENT_MS;
}


const char *
kvr_relay_zmq_why(const kvr_relay_t *r, const kvr_relay_source_t *s)
{
    const kvr_relay_zmq_t  *z;

    z = s->zmq;

    return z == NULL || z->why == NULL || kvr_relay_zmq_silent(r, z)
           ? "no answer" : z->why;
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

    kvr_relay_zmq_subscribe(s->zmq);
    kvr_relay_source_step(s, KVR_RELAY_STEP_REACHED);
    z->tried_ms = 0;
    z->again_ms = 0;
    z->reconnected = true;
    z->has_live = false;
    z->overlap = 0;
    z->tries = 0;
    z->unanswered = 0;

    if (r->options.replay.n != 0) {
        kvr_relay_replay_ask(r, s, s->known ? KVR_RELAY_VERIFY
                                            : KVR_RELAY_ZERO);
        return;
    }

    /* what the engine did while it was away can't be known */

    kvr_relay_source_lack(s, KVR_RELAY_STEP_DOUBT,
                          "there is no --replay to ask what the engine did "
                          "before it was reached");
    z->mode = KVR_RELAY_LIVE;
    kvr_relay_source_synced(r, s);
}


/*
 * Sends the subscription to an engine that was reached again.  libzmq does it
 * when the socket is used next, which may be only after the replay: what the
 * engine publishes until then would be lost.
 */
static void
kvr_relay_zmq_subscribe(const kvr_relay_zmq_t *z)
{
    int     events;
    size_t  len;

    len = sizeof(events);

    (void) zmq_getsockopt(z->sub, ZMQ_EVENTS, &events, &len);
}


static void
kvr_relay_zmq_disconnected(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;
    z->why = NULL;

    if (s->at.state != KVR_RELAY_STEP_AWAY) {
        kvr_relay_log(KVR_RELAY_WARN, "engine disconnected", "rank=%u",
                      s->index);

    } else {
        z->why = "what answers there is no publisher by ZMQ";
    }

    if (s->at.state == KVR_RELAY_STEP_REBUILDING) {
        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN,
                              "the engine went away during replay");
        kvr_relay_feed_rebuilt(r, s);
    }

    kvr_relay_source_step(s, KVR_RELAY_STEP_GONE);
    z->mode = KVR_RELAY_AWAY;
    z->failed = true;
    z->tried_ms = 0;
    z->again_ms = r->now_ms + KVR_RELAY_AGAIN_MS;

    kvr_relay_replay_stop(s);
    kvr_relay_replay_drop(s);
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

        if (!kvr_relay_frames_receive(z->sub, &m)) {
            return;
        }

        /*
         * The monitor reports a new connection before its first message can be
         * read.  The replay also has the messages that came with the new
         * connection.
         */

        kvr_relay_zmq_monitor(r, s);

        if (z->replay != NULL || z->mode != KVR_RELAY_LIVE) {
            kvr_relay_frames_release(&m);
            return;
        }

        if (kvr_relay_frames_parse(&m, false)) {
            kvr_relay_zmq_message(r, s, &m);

        } else {
            kvr_relay_replay_refused(r, s, &m);
            kvr_relay_zmq_doubted(r, s);
        }

        kvr_relay_frames_release(&m);

        if (z->replay != NULL) {
            return;
        }
    }

    kvr_relay_wake(r, r->now_ms);
}


/*
 * Handles a live message that can't be read.  The sender is the engine or
 * another publisher: the replay, or the number of the next message, shows
 * which of the two.
 */
static void
kvr_relay_zmq_doubted(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (r->options.replay.n == 0) {
        kvr_relay_source_lack(s, KVR_RELAY_STEP_DOUBT, KVR_RELAY_UNREAD);
        return;
    }

    z->doubted = true;

    /* a second such message tells nothing new */

    if (!z->unread) {
        z->check_ms = kvr_min(z->check_ms, r->now_ms + KVR_RELAY_CHECK_MS);
    }
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

    if (kvr_relay_frames_epoch(m, epoch) && s->sgl_epoch[0] != '\0') {
        same = strcmp(epoch, s->sgl_epoch) == 0;
        other = !same;
    }

    if (s->known && !other && m->seq <= s->seq) {

        if (m->seq < z->overlap && (!z->has_live || m->seq > z->live)) {
            z->has_live = true;
            z->live = m->seq;
            return;
        }

        if (same) {
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
            kvr_relay_replay_hold(s, m);
            kvr_relay_replay_ask(r, s, KVR_RELAY_VERIFY);
            return;
        }

        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN,
                              "messages of the engine were lost, and there "
                              "is no --replay");

    } else {
        kvr_relay_source_step(s, KVR_RELAY_STEP_NEXT);
    }

    z->has_live = true;
    z->live = m->seq;

    kvr_relay_source_epoch(s, m);
    kvr_relay_feed_message(r, s, m->seq, m->payload, m->len);
}


/*
 * Handles a message whose predecessor is uncertain: the first of all, the
 * first after a reconnect without a replay, or a message of an engine which
 * counts from 0 again.
 */
static void
kvr_relay_zmq_first(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_message_t *m, bool same, bool other)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (r->options.replay.n != 0 && (other || m->seq != 0)) {
        kvr_relay_replay_hold(s, m);
        kvr_relay_replay_ask(r, s, s->known ? KVR_RELAY_VERIFY
                                            : KVR_RELAY_ZERO);
        return;
    }

    if (s->known && z->reconnected && m->seq == 0) {
        other = true;
    }

    z->reconnected = false;

    if (other) {
        kvr_relay_feed_restarted(r, s);
    }

    if (s->known && same && m->seq == s->seq + 1) {
        kvr_relay_source_step(s, KVR_RELAY_STEP_NEXT);

    } else if (!s->known && m->seq == 0) {
        kvr_relay_source_step(s, KVR_RELAY_STEP_CLEARED);

    } else if (!s->known) {
        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN,
                              "there is no --replay to ask what the engine "
                              "did before");

    } else {
        if (m->seq != s->seq + 1) {
            r->counters.gaps++;
        }

        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, s->reason);
    }

    z->has_live = true;
    z->live = m->seq;

    kvr_relay_source_epoch(s, m);
    kvr_relay_feed_message(r, s, m->seq, m->payload, m->len);
}
