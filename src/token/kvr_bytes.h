/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A growing array of bytes for one thread.  When there is no memory, `failed`
 * becomes true and stays so, and nothing is added any more: one check at the
 * end is enough.
 */


#ifndef KVR_BYTES_H_INCLUDED
#define KVR_BYTES_H_INCLUDED


#include "../kvr.h"

#include <stdlib.h>


/* All zero is an empty array. */
typedef struct {
    char    *data;
    size_t   n;
    size_t   cap;
    bool     failed;
} kvr_bytes_t;


/* Makes room for so many bytes more; false: there is no memory. */
static inline bool
kvr_bytes_room(kvr_bytes_t *b, size_t more)
{
    char    *data;
    size_t   cap;

    if (b->n + more <= b->cap) {
        return true;
    }

    if (b->failed) {
        return false;
    }

    cap = (b->n + more) + (b->n + more) / 2 + 64;

    data = realloc(b->data, cap);
    if (data == NULL) {
        b->failed = true;
        return false;
    }

    b->data = data;
    b->cap = cap;

    return true;
}


static inline void
kvr_bytes_add(kvr_bytes_t *b, const void *data, size_t n)
{
    if (n && kvr_bytes_room(b, n)) {
        memcpy(b->data + b->n, data, n);
        b->n += n;
    }
}


/* Frees the memory; the array is empty then. */
static inline void
kvr_bytes_free(kvr_bytes_t *b)
{
    free(b->data);
    memset(b, 0, sizeof(kvr_bytes_t));
}


#endif /* KVR_BYTES_H_INCLUDED */
