/*
 * Copyright (C) the nginx-kv-router authors
 */


#define _GNU_SOURCE         /* memmem */

#include "kvr_relay.h"


#define KVR_RELAY_SGL_TAG      "\0sgl-kv-epoch="


bool
kvr_relay_frames_receive(void *socket, kvr_relay_message_t *m)
{
    bool        more;
    zmq_msg_t   other, *frame;

    m->n = 0;
    m->more = false;

    for ( ;; ) {
        frame = m->n < KVR_RELAY_FRAMES ? &m->frames[m->n] : &other;

        zmq_msg_init(frame);

        if (zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(frame);
            kvr_relay_frames_release(m);
            return false;
        }

        more = zmq_msg_more(frame);

        if (frame != &other) {
            m->n++;

        } else {
            m->more = true;
            zmq_msg_close(&other);
        }

        if (!more) {
            return true;
        }
    }
}


void
kvr_relay_frames_release(kvr_relay_message_t *m)
{
    while (m->n != 0) {
        zmq_msg_close(&m->frames[--m->n]);
    }
}


bool
kvr_relay_frames_parse(kvr_relay_message_t *m, bool replay)
{
    uint32_t        i, seq;
    const uint8_t  *p;

    m->topic = "";
    m->topic_len = 0;
    m->payload = "";
    m->len = 0;

    if (m->n < 2 || m->more) {
        return false;
    }

    /* the last message of a replay may have no payload */

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


bool
kvr_relay_frames_epoch(const kvr_relay_message_t *m,
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
    len = strnlen(p, m->topic_len - (size_t) (p - m->topic));

    if (len == 0 || len >= KVR_RELAY_SGL_EPOCH) {
        return false;
    }

    memcpy(epoch, p, len);
    epoch[len] = '\0';

    return strcspn(epoch, " \t\r\n") == strlen(epoch);
}


void
kvr_relay_frames_option(const kvr_relay_t *r, void *socket, int option,
    int value)
{
    int64_t  size;

    size = (int64_t) r->options.message_max;

    (void) zmq_setsockopt(socket, option, &value, sizeof(value));

    value = 0;
    (void) zmq_setsockopt(socket, ZMQ_LINGER, &value, sizeof(value));
    (void) zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &size, sizeof(size));
}
