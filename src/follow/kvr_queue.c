
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_queue.h"

#include <stdlib.h>


/*
 * bounds of the queue of messages: enough for a burst of seconds; messages
 * beyond the bounds are read from the log later
 */
#define KVR_QUEUE_BYTES  (64u << 20)
#define KVR_QUEUE_COUNT  65536
#define KVR_QUEUE_COST   512            /* bytes of a message beside its own */


static void kvr_queue_append(kvr_row_t *row, kvr_queued_t *m);


kvr_rc_t
kvr_queue_add(kvr_queue_t *q, const kvr_reply_t *reply,
    const kvr_reply_t *body, const char *worker, size_t len)
{
    size_t         size;
    kvr_queued_t  *m;

    size = body->len + KVR_QUEUE_COST;

    if (q->count >= KVR_QUEUE_COUNT || q->bytes + size > KVR_QUEUE_BYTES) {
        return KVR_FULL;
    }

    m = calloc(1, sizeof(kvr_queued_t));
    if (m == NULL) {
        return KVR_FULL;
    }

    m->reply = *reply;
    m->worker = worker;
    m->len = len;
    m->bytes = body->text;
    m->n = body->len;

    kvr_queue_append(&q->messages, m);

    q->bytes += size;
    q->count++;

    return KVR_OK;
}


static void
kvr_queue_append(kvr_row_t *row, kvr_queued_t *m)
{
    m->next = NULL;

    if (row->first) {
        row->last->next = m;

    } else {
        row->first = m;
    }

    row->last = m;
}


kvr_queued_t *
kvr_queue_take(kvr_queue_t *q)
{
    kvr_queued_t  *m;

    m = q->messages.first;
    q->messages.first = m->next;

    return m;
}


void
kvr_queue_park(kvr_queue_t *q, kvr_row_t *row)
{
    kvr_queue_append(row, kvr_queue_take(q));
}


void
kvr_queue_unpark(kvr_queue_t *q, kvr_row_t *row)
{
    if (row->first == NULL) {
        return;
    }

    row->last->next = q->messages.first;

    if (q->messages.first == NULL) {
        q->messages.last = row->last;
    }

    q->messages.first = row->first;
    row->first = NULL;
}


void
kvr_queue_free(kvr_queue_t *q, kvr_queued_t *m)
{
    q->bytes -= m->n + KVR_QUEUE_COST;
    q->count--;

    kvr_reply_release(&m->reply);
    free(m);
}


void
kvr_queue_clear(kvr_queue_t *q)
{
    while (q->messages.first) {
        kvr_queue_free(q, kvr_queue_take(q));
    }
}
