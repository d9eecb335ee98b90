/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An engine's ZMQ sockets: PUB with its events, ROUTER with its replay.
 *
 * [topic, seq, payload] from the one; the other is asked with ["", seq] for
 * all that it still has from seq on, and answers ["", seq, payload] (newer
 * ones with the topic) until one has the number -1.  Engines keep a bounded
 * number of messages and leave out the older ones without a word, and a socket
 * may drop some in the middle: what is contiguous is verified here.
 *
 * While a replay runs, live messages wait in their socket.
 */


#ifndef KVR_RELAY_ZMQ_H_INCLUDED
#define KVR_RELAY_ZMQ_H_INCLUDED


#include "kvr_relay_loop.h"
#include "kvr_relay_source.h"


/* The maximum number of messages of a replay that wait: a ROUTER drops
   messages that find no room. */
#define KVR_RELAY_HWM          100000
/* The maximum number of live messages that wait: further ones stay in the
   engine's socket, or a replay has them. */
#define KVR_RELAY_LIVE_HWM     10000
/* the maximum number of sockets that are polled for a rank */
#define KVR_RELAY_ZMQ_FDS      3
#define KVR_RELAY_TURN         256      /* messages of one turn */
#define KVR_RELAY_UNREAD       "the engine's messages can't be read"
/* the replay is asked again so long after the engine was reached */
#define KVR_RELAY_CHECK_MS     500
/* The time until a question is asked again that had no answer doubles with
   each one in a row, up to this. */
#define KVR_RELAY_WHOLE_MS     300000


typedef enum {
    KVR_RELAY_AWAY,         /* not connected, or was not in step yet */
    KVR_RELAY_LIVE,
    KVR_RELAY_VERIFY,       /* a replay from the last message, inclusive */
    KVR_RELAY_ZERO          /* a replay from the engine's first message */
} kvr_relay_zmq_mode_t;


struct kvr_relay_zmq_s {
    void                  *sub;
    void                  *monitor;
    void                  *replay;          /* NULL: none runs */
    kvr_relay_zmq_mode_t   mode;

    const char            *why;             /* the last connect failed; NULL:
                                               nothing has answered */
    bool                   failed;          /* a connect, and the next one is
                                               not planned yet */
    uint64_t               tried_ms;        /* the connect that runs began; 0:
                                               none runs */
    bool                   refused;         /* told of frames that are no
                                               message */
    bool                   reconnected;     /* may be another engine */
    uint32_t               answers;         /* messages of this replay */
    uint32_t               tries;           /* without any progress */
    uint32_t               unanswered;      /* questions in a row that had no
                                               answer */
    uint64_t               whole_ms;        /* when to ask for all, if the
                                               source is unanswered */
    bool                   unread;          /* has some that can't be read, as
                                               had the last one */
    bool                   doubted;         /* a live one could not be read:
                                               a replay may have it */
    uint64_t               begun_ms;        /* the first of the replays that
                                               are asked in a row */
    uint64_t               next;            /* above all numbers of it */
    uint64_t               deadline_ms;     /* for its next answer */
    uint64_t               check_ms;        /* when to look for more */
    uint64_t               again_ms;        /* when to connect again; or 0 */

    bool                   hollow;          /* its replay keeps nothing */
    uint64_t               overlap;         /* live messages below this were
                                               in the replay */
    bool                   has_live;
    uint64_t               live;            /* the last live one's seq */

    bool                   has_held;        /* a live message that waits for
                                               the replay */
    uint64_t               held_seq;
    char                   held_epoch[KVR_RELAY_SGL_EPOCH];     /* or "" */
    zmq_msg_t              held;
};


void kvr_relay_zmq_open(kvr_relay_t *r, kvr_relay_source_t *s);
void kvr_relay_zmq_close(kvr_relay_t *r, kvr_relay_source_t *s);

/* Adds the sockets to what is polled, at most KVR_RELAY_ZMQ_FDS. */
void kvr_relay_zmq_poll(const kvr_relay_source_t *s, kvr_relay_loop_t *loop);

/* Why the engine can't be reached, while it can't. */
const char *kvr_relay_zmq_why(const kvr_relay_t *r,
    const kvr_relay_source_t *s);

/* Reads a bounded number of messages that have come; called at each turn. */
void kvr_relay_zmq_tick(kvr_relay_t *r, kvr_relay_source_t *s);


/* ---- between kvr_relay_zmq.c and kvr_relay_replay.c --------------------- */

/* Asks for a replay.  A replay that runs is given up. */
void kvr_relay_replay_ask(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_relay_zmq_mode_t mode);

/* Reads the answers of a replay.  The mode is KVR_RELAY_LIVE when it ends. */
void kvr_relay_replay_read(kvr_relay_t *r, kvr_relay_source_t *s);

void kvr_relay_replay_stop(kvr_relay_source_t *s);

/*
 * Keeps a live message until the replay ends.  The message replaces one that
 * is kept already.
 */
void kvr_relay_replay_hold(kvr_relay_source_t *s, kvr_relay_message_t *m);
void kvr_relay_replay_drop(kvr_relay_source_t *s);

/* Counts a message that can't be read.  The first one is logged. */
void kvr_relay_replay_refused(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_message_t *m);


#endif /* KVR_RELAY_ZMQ_H_INCLUDED */
