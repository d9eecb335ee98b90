/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Messages that wait to be applied: those of all workers in one queue, in the
 * order in which they came, and those of each worker in repair in a row of
 * their own.  The queue and all rows together have bounds.
 */


#ifndef KVR_QUEUE_H_INCLUDED
#define KVR_QUEUE_H_INCLUDED


#include "kvr_reply.h"


typedef struct kvr_queued_s  kvr_queued_t;

struct kvr_queued_s {
    kvr_queued_t  *next;
    kvr_reply_t    reply;           /* owned; has the bytes of both: */
    const char    *worker;
    size_t         len;
    const char    *bytes;           /* the message */
    size_t         n;
    uint32_t       gaps;            /* times that the message met a gap */
};


typedef struct {
    kvr_queued_t  *first;
    kvr_queued_t  *last;
} kvr_row_t;


/* All zeros: empty. */
typedef struct {
    kvr_row_t      messages;
    size_t         bytes;           /* in the queue, in rows, or taken */
    uint32_t       count;           /* the same */
} kvr_queue_t;


/*
 * Queues a message, which is in a reply; from KVR_OK on the queue owns the
 * reply.  KVR_FULL: a bound is reached, or there is no memory.
 */
kvr_rc_t kvr_queue_add(kvr_queue_t *q, const kvr_reply_t *reply,
    const kvr_reply_t *body, const char *worker, size_t len);

/* Takes the first message, which there must be, out of the queue. */
kvr_queued_t *kvr_queue_take(kvr_queue_t *q);

/* Moves the first message, which there must be, to the end of a row. */
void kvr_queue_park(kvr_queue_t *q, kvr_row_t *row);

/* Moves all messages of a row before all others of the queue. */
void kvr_queue_unpark(kvr_queue_t *q, kvr_row_t *row);

/* Frees a message that was taken. */
void kvr_queue_free(kvr_queue_t *q, kvr_queued_t *m);

/* Frees all messages of the queue. */
void kvr_queue_clear(kvr_queue_t *q);


#endif /* KVR_QUEUE_H_INCLUDED */
