/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A reply of Redis, as the machines of this room see it: a view of what the
 * owner of the connection has read, whatever its library.  A test makes one by
 * hand.
 *
 * Each question has one answer.  A question whose connection was lost, or
 * whose reply was too big to be read, is answered with KVR_REPLY_LOST or
 * KVR_REPLY_TOO_BIG.
 *
 * A function that is given an answer owns it, and calls kvr_reply_release()
 * when the bytes are not needed any more.
 */


#ifndef KVR_REPLY_H_INCLUDED
#define KVR_REPLY_H_INCLUDED


#include "../kvr.h"


typedef enum {
    KVR_REPLY_NONE = 0,             /* no reply: released, or not there yet */
    KVR_REPLY_STRING,
    KVR_REPLY_STATUS,
    KVR_REPLY_INTEGER,
    KVR_REPLY_ARRAY,
    KVR_REPLY_NIL,
    KVR_REPLY_ERROR,
    KVR_REPLY_OTHER,                /* a type that no command here has */
    KVR_REPLY_TOO_BIG,
    KVR_REPLY_LOST,
    KVR_REPLY_TYPES
} kvr_reply_type_t;


typedef struct kvr_reply_s  kvr_reply_t;

struct kvr_reply_s {
    kvr_reply_type_t  type;
    const char       *text;         /* of a string, status or error, with a
                                       null byte behind it */
    size_t            len;          /* bytes of text, or elements */
    int64_t           integer;

    const void       *array;        /* the library's */
    void            (*element)(const void *array, size_t i, kvr_reply_t *out);

    void             *owned;        /* by the answer as a whole */
    void            (*release)(void *owned);
};


/* Element i of an array, i < array->len; has the array's life. */
static inline kvr_reply_t
kvr_reply_element(const kvr_reply_t *array, size_t i)
{
    kvr_reply_t  element;

    memset(&element, 0, sizeof(kvr_reply_t));
    array->element(array->array, i, &element);

    return element;
}


/* May be called more than once. */
static inline void
kvr_reply_release(kvr_reply_t *reply)
{
    if (reply->type != KVR_REPLY_NONE && reply->release) {
        reply->release(reply->owned);
    }

    memset(reply, 0, sizeof(kvr_reply_t));
}


#endif /* KVR_REPLY_H_INCLUDED */
