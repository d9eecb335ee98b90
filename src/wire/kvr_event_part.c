/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_event.h"


uint32_t
kvr_event_part(const kvr_event_t *ev, uint32_t from, uint32_t blocks,
    kvr_event_t *part)
{
    uint32_t  n, span;

    *part = *ev;
    n = ev->nhandles - from;

    if (n == 0 || ev->nlocals % ev->nhandles
        || (ev->ntokens
            && ev->ntokens != (uint64_t) ev->nhandles * ev->block_size))
    {
        return n;
    }

    span = ev->nlocals / ev->nhandles;
    n = kvr_min(n, kvr_max(blocks / kvr_max(span, 1), 1));

    part->handles += from;
    part->nhandles = n;

    if (span) {
        part->locals += from * span;
        part->nlocals = n * span;
    }

    if (ev->ntokens) {
        part->tokens += from * ev->block_size;
        part->ntokens = n * ev->block_size;
    }

    part->nadded = kvr_min(ev->nadded - kvr_min(ev->nadded, from), n);

    if (ev->mm_start) {
        part->mm_start += from;
    }

    if (ev->remaining) {
        part->remaining += from;
    }

    if (from + n < ev->nhandles) {
        part->nfiltered = 0;
    }

    if (from) {
        part->has_event_id = false;
    }

    if (ev->kind == KVR_STORE && from) {
        part->has_parent = true;
        part->parent = ev->handles[from - 1];
    }

    return n;
}
