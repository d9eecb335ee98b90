/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdlib.h>


kvr_rc_t
kvr_relay_parts_add(void *parts, const void *bytes, size_t len)
{
    char               *copy;
    uint32_t            n;
    kvr_relay_part_t   *items;
    kvr_relay_parts_t  *p;

    p = parts;

    if (p->n == p->size) {
        n = p->size ? p->size * 2 : 16;

        items = realloc(p->items, n * sizeof(kvr_relay_part_t));
        if (items == NULL) {
            return KVR_ERROR;
        }

        p->items = items;
        p->size = n;
    }

    copy = malloc(len);
    if (copy == NULL) {
        return KVR_ERROR;
    }

    memcpy(copy, bytes, len);

    p->items[p->n].bytes = copy;
    p->items[p->n].len = len;
    p->n++;

    return KVR_OK;
}


void
kvr_relay_parts_free(kvr_relay_parts_t *parts)
{
    uint32_t  i;

    for (i = 0; i < parts->n; i++) {
        free(parts->items[i].bytes);
    }

    free(parts->items);
    memset(parts, 0, sizeof(kvr_relay_parts_t));
}
