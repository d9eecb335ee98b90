/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"


#define KVR_RELAY_REPLAY_MS    5000     /* without an answer */
#define KVR_RELAY_DOUBLES      6        /* 5000 * 2^6 is more than that */
/* the maximum time of a replay, and of all that are asked after one another */
#define KVR_RELAY_ALL_MS       600000
/* the time between two looks whether the connection is closed */
#define KVR_RELAY_LOOK_MS      20
/* the maximum number of questions for messages that a replay leaves out */
#define KVR_RELAY_TRIES        3
#define KVR_RELAY_END          UINT64_MAX
#define KVR_RELAY_UNASKED      "the engine's replay can't be asked"
#define KVR_RELAY_SILENT       "the engine's replay doesn't answer"
#define KVR_RELAY_SHORT                                                       \
    "the engine's replay doesn't reach back to what was known"
#define KVR_RELAY_LATE                                                        \
    "the engine's replay doesn't reach back to its first message"
#define KVR_RELAY_LARGE                                                       \
    "a message of the engine is larger than half of --memory"
#define KVR_RELAY_HOLLOW       "the engine keeps no messages for its replay"


static void kvr_relay_replay_goes_on(kvr_relay_t *r, kvr_relay_source_t *s,
    uint64_t seq);
static bool kvr_relay_replay_again(kvr_relay_t *r, kvr_relay_source_t *s);
static bool kvr_relay_replay_unanswered(kvr_relay_t *r,
    kvr_relay_source_t *s);
static bool kvr_relay_replay_ended(const kvr_relay_zmq_t *z);
static bool kvr_relay_replay_whole(const kvr_relay_source_t *s);
static bool kvr_relay_replay_answer(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m);
static bool kvr_relay_replay_verify(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m);
static void kvr_relay_replay_apply(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m);
static void kvr_relay_replay_end(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_replay_done(kvr_relay_t *r, kvr_relay_source_t *s);


void
kvr_relay_replay_ask(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_zmq_mode_t mode)
{
    uint8_t           start[8];
    uint32_t          i;
    uint64_t          from;
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (z->replay == NULL) {
        z->begun_ms = r->now_ms;
    }

    kvr_relay_replay_stop(s);

    from = mode == KVR_RELAY_VERIFY ? s->seq : 0;

    for (i = 0; i < 8; i++) {
        start[i] = (uint8_t) (from >> (56 - 8 * i));
    }

    z->mode = mode;
    z->answers = 0;
    z->next = 0;
    z->unread = false;
    z->doubted = false;
    z->deadline_ms = r->now_ms + KVR_RELAY_REPLAY_MS;
    z->replay = zmq_socket(r->zmq, ZMQ_DEALER);

    r->counters.replays++;

    kvr_relay_log(KVR_RELAY_DEBUG, "replay", "rank=%u from=%llu", s->index,
                  (unsigned long long) from);

    if (z->replay == NULL) {
        kvr_relay_log(KVR_RELAY_WARN, "no socket", "rank=%u why=\"%s\"",
                      s->index, zmq_strerror(zmq_errno()));
        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, KVR_RELAY_UNASKED);
        kvr_relay_replay_done(r, s);
        return;
    }

    kvr_relay_frames_option(r, z->replay, ZMQ_RCVHWM, KVR_RELAY_HWM);

    if (zmq_connect(z->replay, r->options.replay.items[s->index]) == 0
        && zmq_send(z->replay, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0
        && zmq_send(z->replay, start, 8, ZMQ_DONTWAIT) == 8)
    {
        kvr_relay_wake(r, r->now_ms + KVR_RELAY_LOOK_MS);
        return;
    }

    z->deadline_ms = r->now_ms;
    kvr_relay_wake(r, r->now_ms);
}


void
kvr_relay_replay_stop(kvr_relay_source_t *s)
{
    if (s->zmq->replay != NULL) {
        zmq_close(s->zmq->replay);
        s->zmq->replay = NULL;
    }
}


void
kvr_relay_replay_read(kvr_relay_t *r, kvr_relay_source_t *s)
{
    bool                  more, large, silent;
    uint32_t              i;
    const char           *why;
    kvr_relay_zmq_t      *z;
    kvr_relay_message_t   m;

    z = s->zmq;

    for (i = 0; i < KVR_RELAY_TURN; i++) {

        if (!kvr_relay_frames_receive(z->replay, &m)) {
            break;
        }

        if (kvr_relay_frames_parse(&m, true)) {
            kvr_relay_replay_goes_on(r, s, m.seq);
            more = kvr_relay_replay_answer(r, s, &m);

        } else {
            z->unread = true;
            kvr_relay_replay_refused(r, s, &m);
            more = true;
        }

        kvr_relay_frames_release(&m);

        if (!more) {
            return;
        }
    }

    if (i == KVR_RELAY_TURN && r->now_ms < z->deadline_ms) {
        kvr_relay_wake(r, r->now_ms);
        return;
    }

    large = kvr_relay_replay_ended(z);

    if (!large && r->now_ms < z->deadline_ms) {
        kvr_relay_wake(r, kvr_min(z->deadline_ms,
                                  r->now_ms + KVR_RELAY_LOOK_MS));
        return;
    }

    silent = !large && !z->unread && z->answers == 0;

    why = large ? KVR_RELAY_LARGE
          : z->unread ? KVR_RELAY_UNREAD : KVR_RELAY_SILENT;

    kvr_relay_log(KVR_RELAY_WARN, "replay doesn't answer", "rank=%u "
                  "answers=%u why=\"%s\"", s->index, z->answers, why);

    if (silent && kvr_relay_replay_unanswered(r, s)) {
        return;
    }

    /* its end was lost */

    if (!large && z->answers != 0 && kvr_relay_replay_again(r, s)) {
        return;
    }

    if (large && z->mode == KVR_RELAY_ZERO && z->answers == 0
        && !kvr_relay_replay_whole(s))
    {
        kvr_relay_feed_rebuild(r, s);
    }

    r->cut_off = r->cut_off || large;

    if (!silent) {
        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, why);

    } else if (!kvr_relay_step_in(s->at)) {
        kvr_relay_source_lack(s, KVR_RELAY_STEP_SILENT, why);
    }

    kvr_relay_replay_done(r, s);
}


/*
 * A message of the replay has come.  A message whose number is higher than all
 * before it gives the replay more time: one that only repeats itself is over.
 * Live messages wait meanwhile, so that a replay that takes long is no mere
 * look for more.
 */
static void
kvr_relay_replay_goes_on(kvr_relay_t *r, kvr_relay_source_t *s, uint64_t seq)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (seq < z->next) {
        return;
    }

    z->next = seq + 1;
    z->deadline_ms = kvr_min(r->now_ms + KVR_RELAY_REPLAY_MS,
                             z->begun_ms + KVR_RELAY_ALL_MS);

    if (r->now_ms >= z->begun_ms + KVR_RELAY_REPLAY_MS) {
        kvr_relay_source_step(s, KVR_RELAY_STEP_LOST);
    }
}


/*
 * Asks for what a replay has left out, in its middle or at its end.  False:
 * that was asked often enough, or for long enough.
 */
static bool
kvr_relay_replay_again(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (z->tries == KVR_RELAY_TRIES
        || r->now_ms >= z->begun_ms + KVR_RELAY_ALL_MS)
    {
        return false;
    }

    z->tries++;
    kvr_relay_source_step(s, KVR_RELAY_STEP_LOST);
    kvr_relay_replay_ask(r, s, KVR_RELAY_VERIFY);

    return true;
}


/*
 * Counts a question without an answer, and plans the next one.  True: the
 * question was asked again at once.
 *
 * A question that follows the last known message is asked twice before live
 * messages go on: behind them only the replay of all messages helps.  Each
 * question has a connection of its own, so that a late answer to the one
 * before finds nobody: the engine drops the answer.
 */
static bool
kvr_relay_replay_unanswered(kvr_relay_t *r, kvr_relay_source_t *s)
{
    bool              first;
    kvr_relay_zmq_t  *z;

    z = s->zmq;
    first = z->unanswered == 0;

    r->counters.unanswered++;

    z->whole_ms = r->now_ms + kvr_min((uint64_t) KVR_RELAY_REPLAY_MS
                                      << z->unanswered, KVR_RELAY_WHOLE_MS);
    z->unanswered = kvr_min(z->unanswered + 1, KVR_RELAY_DOUBLES);

    if (!first || z->mode != KVR_RELAY_VERIFY || kvr_relay_step_in(s->at)) {
        return false;
    }

    kvr_relay_log(KVR_RELAY_INFO, "replay is asked again",
                  "rank=%u unanswered=%u", s->index, z->unanswered);

    kvr_relay_replay_ask(r, s, z->mode);
    z->deadline_ms += KVR_RELAY_REPLAY_MS;

    return true;
}


/*
 * Looks whether the replay's connection is over. libzmq makes a broken
 * connection again, and the socket takes questions meanwhile.  A connection
 * whose peer broke the protocol is not made again, and poll tells nothing
 * about it.
 */
static bool
kvr_relay_replay_ended(const kvr_relay_zmq_t *z)
{
    int     events;
    size_t  len;

    len = sizeof(events);

    return z->replay != NULL
           && zmq_getsockopt(z->replay, ZMQ_EVENTS, &events, &len) == 0
           && (events & (ZMQ_POLLIN | ZMQ_POLLOUT)) == 0;
}


/*
 * Is the replay one that a source in step asks for all that the engine holds,
 * after a question without an answer?
 */
static bool
kvr_relay_replay_whole(const kvr_relay_source_t *s)
{
    return s->zmq->mode == KVR_RELAY_ZERO && s->known
           && kvr_relay_step_in(s->at);
}


/* Handles a message of the replay.  False: the replay is over. */

static bool
kvr_relay_replay_answer(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    if (m->seq == KVR_RELAY_END) {
        kvr_relay_replay_end(r, s);
        return false;
    }

    z->hollow = false;

    z->overlap = m->seq + 1;

    if (z->answers++ == 0) {

        if (z->mode == KVR_RELAY_VERIFY) {
            return kvr_relay_replay_verify(r, s, m);
        }

        /* What is known is more than a part of the engine's messages. */

        if (m->seq != 0 && kvr_relay_replay_whole(s)) {
            kvr_relay_source_lack(s, KVR_RELAY_STEP_SHORT, KVR_RELAY_LATE);
            kvr_relay_replay_done(r, s);
            return false;
        }

        kvr_relay_feed_rebuild(r, s);

        if (m->seq != 0) {
            kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, KVR_RELAY_LATE);
        }

        kvr_relay_replay_apply(r, s, m);

        return true;
    }

    if (m->seq <= s->seq) {
        return true;
    }

    if (m->seq != s->seq + 1) {

        if (kvr_relay_replay_again(r, s)) {
            return false;
        }

        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN,
                              "the engine's replay leaves messages out");
    }

    z->tries = 0;

    /* the gap is closed */

    if (z->has_held && m->seq == z->held_seq) {
        kvr_relay_source_step(s, KVR_RELAY_STEP_FOUND);
    }

    kvr_relay_replay_apply(r, s, m);

    return true;
}


/*
 * Compares the first answer with the last message that is known: the replay
 * was asked to begin with it.
 */

static bool
kvr_relay_replay_verify(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m)
{
    if (m->seq < s->seq) {
        s->zmq->answers = 0;
        return true;
    }

    if (m->seq == s->seq) {

        if (kvr_relay_source_digest(m->payload, m->len) == s->digest) {
            return true;
        }

        kvr_relay_source_step(s, KVR_RELAY_STEP_OTHER);
        kvr_relay_replay_ask(r, s, KVR_RELAY_ZERO);
        return false;
    }

    if (m->seq != s->seq + 1 || s->zmq->reconnected) {
        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, KVR_RELAY_SHORT);
    }

    kvr_relay_replay_apply(r, s, m);

    return true;
}


static void
kvr_relay_replay_apply(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m)
{
    kvr_relay_source_epoch(s, m);
    kvr_relay_feed_message(r, s, m->seq, m->payload, m->len);
}


static void
kvr_relay_replay_end(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    z->unanswered = 0;
    z->whole_ms = r->now_ms;

    /*
     * An engine without the last known message is another engine.  While the
     * connection was never lost, the engine is the same and keeps nothing for
     * its replay.
     */

    if (z->mode == KVR_RELAY_VERIFY && z->answers == 0) {

        if (z->reconnected || (z->has_held && z->held_seq < s->seq)) {
            kvr_relay_replay_ask(r, s, KVR_RELAY_ZERO);
            return;
        }

        z->hollow = !z->unread;
        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, KVR_RELAY_HOLLOW);
    }

    /* A replay that keeps nothing does not say that the engine holds nothing:
       what is known stays. */

    if (z->answers == 0 && kvr_relay_replay_whole(s)) {
        kvr_relay_source_lack(s, KVR_RELAY_STEP_SHORT,
                              z->unread ? KVR_RELAY_UNREAD
                                        : KVR_RELAY_HOLLOW);

    } else if (z->mode == KVR_RELAY_ZERO && z->answers == 0
               && (s->known || !s->synced
                   || (!s->at.whole && !z->unread)))
    {
        kvr_relay_feed_rebuild(r, s);

        if (z->hollow || z->has_held) {
            z->hollow = !z->unread;
            kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, KVR_RELAY_HOLLOW);
        }
    }

    if (z->unread) {
        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, KVR_RELAY_UNREAD);
    }

    kvr_relay_replay_done(r, s);
}


static void
kvr_relay_replay_done(kvr_relay_t *r, kvr_relay_source_t *s)
{
    bool              news, anew, same;
    kvr_relay_zmq_t  *z;

    z = s->zmq;
    news = !kvr_relay_step_in(s->at) || z->answers > 1;

    kvr_relay_replay_stop(s);

    if (z->reconnected) {
        z->check_ms = r->now_ms + KVR_RELAY_CHECK_MS;
    }

    z->mode = KVR_RELAY_LIVE;
    z->reconnected = false;

    if (s->at.state == KVR_RELAY_STEP_REBUILDING) {
        kvr_relay_feed_rebuilt(r, s);
    }

    if (news) {
        kvr_relay_source_synced(r, s);
    }

    if (z->has_held) {

        anew = s->known && z->held_seq <= s->seq;

        /* an empty replay has no message of another incarnation */

        same = z->answers != 0 || z->held_epoch[0] == '\0'
               || s->sgl_epoch[0] == '\0'
               || strcmp(z->held_epoch, s->sgl_epoch) == 0;

        if (anew && same && z->held_seq < z->overlap) {
            r->counters.gaps_filled++;
            anew = false;

        } else {
            /* The engine counts from 0 again, and the replay is empty. */

            if (anew) {
                kvr_relay_feed_restarted(r, s);
                kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN,
                                      KVR_RELAY_SILENT);

            } else if (z->held_seq != (s->known ? s->seq + 1 : 0)
                       && s->at.whole)
            {
                kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN,
                                      "messages of the engine were lost");
            }

            kvr_relay_feed_message(r, s, z->held_seq,
                                   zmq_msg_data(&z->held),
                                   zmq_msg_size(&z->held));
        }

        /* The incarnation of an empty replay is not recorded: the next
           message asks again. */

        if ((anew || z->answers != 0) && z->held_epoch[0] != '\0') {
            memcpy(s->sgl_epoch, z->held_epoch, KVR_RELAY_SGL_EPOCH);
        }

        z->has_live = true;
        z->live = z->held_seq;
        kvr_relay_replay_drop(s);
    }

    kvr_relay_wake(r, r->now_ms);
}


/* ---- between zmq and this ----------------------------------------------- */

void
kvr_relay_replay_hold(kvr_relay_source_t *s, kvr_relay_message_t *m)
{
    kvr_relay_zmq_t  *z;

    z = s->zmq;

    kvr_relay_replay_drop(s);

    z->has_held = true;
    z->held_seq = m->seq;

    if (!kvr_relay_frames_epoch(m, z->held_epoch)) {
        z->held_epoch[0] = '\0';
    }

    /* The message that this one follows is unknown until the replay is
       over. */

    kvr_relay_source_step(s, KVR_RELAY_STEP_LOST);

    zmq_msg_init(&z->held);
    zmq_msg_move(&z->held, &m->frames[m->n - 1]);
}


void
kvr_relay_replay_drop(kvr_relay_source_t *s)
{
    if (s->zmq->has_held) {
        zmq_msg_close(&s->zmq->held);
        s->zmq->has_held = false;
    }
}


/*
 * Logs the first message that can't be read.  Later ones are counted only:
 * another publisher at this endpoint could fill the log.
 */

void
kvr_relay_replay_refused(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m)
{
    r->counters.why[KVR_WHY_SYNTAX]++;

    if (!s->zmq->refused) {
        s->zmq->refused = true;

        kvr_relay_log(KVR_RELAY_WARN, "message refused", "rank=%u frames=%s%u "
                      "why=\"not a topic, 8 bytes of a number and a payload\"",
                      s->index, m->more ? ">" : "", m->n);
    }
}
