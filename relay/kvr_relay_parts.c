/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdlib.h>


bool
kvr_relay_parts_add(kvr_relay_parts_t *parts, const void *bytes, size_t len)
{
    char              *copy;
    uint32_t           n;
    kvr_relay_part_t  *items;

    if (parts->n == parts->size) {
        n = parts->size ? parts->size * 2 : 16;

        items = realloc(parts->items, n * sizeof(kvr_relay_part_t));
        if (items == NULL) {
            return false;
        }

        parts->items = items;
        parts->size = n;
    }

    copy = malloc(len);
    if (copy == NULL) {
        return false;
    }

    memcpy(copy, bytes, len);

    parts->items[parts->n].bytes = copy;
    parts->items[parts->n].len = len;
    parts->n++;

    return true;
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
