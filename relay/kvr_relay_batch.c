/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdlib.h>


/*
 * the maximum number of blocks in a piece: 3/4 of a batch, whatever the number
 * of local hashes of each block
 */
#define KVR_RELAY_PIECE  (KVR_RELAY_BATCH_MAX / 4 * 3)


static bool kvr_relay_batch_put(kvr_relay_batch_t *b, const kvr_change_t *ev);


bool
kvr_relay_batch_init(kvr_relay_batch_t *b,
    kvr_rc_t (*full)(void *data, const void *bytes, size_t len), void *data)
{
    b->bytes = malloc(KVR_RELAY_BATCH_MAX);
    b->full = full;
    b->data = data;

    kvr_relay_batch_reset(b);

    return b->bytes != NULL;
}


void
kvr_relay_batch_free(kvr_relay_batch_t *b)
{
    free(b->bytes);
    b->bytes = NULL;
}


void
kvr_relay_batch_reset(kvr_relay_batch_t *b)
{
    b->len = KVR_NORMALISED_HEAD;
    b->events = 0;
}


bool
kvr_relay_batch_end(kvr_relay_batch_t *b)
{
    kvr_normalised_head_print(b->bytes, b->events);

    return b->events != 0;
}


bool
kvr_relay_batch_add(kvr_relay_batch_t *b, const kvr_change_t *ev)
{
    uint32_t      i, n, span, most;
    kvr_change_t  piece;

    span = ev->nhandles ? ev->nlocals / ev->nhandles : 0;
    most = kvr_max(KVR_RELAY_PIECE / (8 + 8 * span), 1);

    if (ev->nhandles <= most) {
        return kvr_relay_batch_put(b, ev);
    }

    piece = *ev;

    for (i = 0; i < ev->nhandles; i += n) {
        n = kvr_min(ev->nhandles - i, most);

        piece.handles = ev->handles + i;
        piece.nhandles = n;

        if (span) {
            piece.locals = ev->locals + (size_t) i * span;
            piece.nlocals = n * span;
        }

        if (i != 0 && span) {
            piece.has_parent = true;
            piece.parent = ev->handles[i - 1];
        }

        if (!kvr_relay_batch_put(b, &piece)) {
            return false;
        }
    }

    return true;
}


static bool
kvr_relay_batch_put(kvr_relay_batch_t *b, const kvr_change_t *ev)
{
    size_t  len;

    len = kvr_normalised_print(b->bytes + b->len, KVR_RELAY_BATCH_MAX - b->len,
                               ev);

    if (len == 0) {

        if (kvr_relay_batch_end(b)
            && b->full(b->data, b->bytes, b->len) != KVR_OK)
        {
            return false;
        }

        kvr_relay_batch_reset(b);

        len = kvr_normalised_print(b->bytes + b->len,
                                   KVR_RELAY_BATCH_MAX - b->len, ev);
        if (len == 0) {
            return false;
        }
    }

    b->len += len;
    b->events++;

    return true;
}
