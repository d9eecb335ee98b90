/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A message of an engine, in its frames:
 *
 *     [topic, seq, payload]            of its events
 *     ["", (topic,) seq, payload]      of its replay
 *
 * seq is 8 bytes, big-endian.
 */


#ifndef KVR_RELAY_FRAMES_H_INCLUDED
#define KVR_RELAY_FRAMES_H_INCLUDED


#include "kvr_relay_core.h"

#include <zmq.h>


#define KVR_RELAY_FRAMES     4
#define KVR_RELAY_SGL_EPOCH  64         /* bytes */


typedef struct {
    zmq_msg_t    frames[KVR_RELAY_FRAMES];
    uint32_t     n;
    /* the message had more frames, which were dropped */
    bool         more;

    /* parsed */
    const char  *topic;
    size_t       topic_len;
    uint64_t     seq;
    const void  *payload;
    size_t       len;
} kvr_relay_message_t;


/* Receives a message, which must be released.  False: there is none. */
bool kvr_relay_frames_receive(void *socket, kvr_relay_message_t *m);
void kvr_relay_frames_release(kvr_relay_message_t *m);

/* False: it isn't one. */
bool kvr_relay_frames_parse(kvr_relay_message_t *m, bool replay);

/*
 * Reads SGLang's incarnation: the topic up to the next NUL.  False: the topic
 * has none.
 */
bool kvr_relay_frames_epoch(const kvr_relay_message_t *m,
    char epoch[KVR_RELAY_SGL_EPOCH]);

/* Sets an option of a socket, and the options that all sockets have. */
void kvr_relay_frames_option(const kvr_relay_t *r, void *socket, int option,
    int value);


#endif /* KVR_RELAY_FRAMES_H_INCLUDED */
