/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Why an event or a message can't be used, and the memory that the decoders
 * fill.
 */


#include "kvr_decoder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>


static const char *const  kvr_why_names[] = { KVR_WHY_LIST(KVR_WHY_NAME) };

static const uint8_t  kvr_why_classes[] = { KVR_WHY_LIST(KVR_WHY_CLASS) };

static const char *const  kvr_why_class_names[] = {
    [KVR_WHY_IS_NONE] = "none",
    [KVR_WHY_IS_FILTERED] = "filtered",
    [KVR_WHY_IS_REFUSED] = "refused",
    [KVR_WHY_IS_FORGOTTEN] = "forgotten"
};


const char *
kvr_why_name(kvr_why_t why)
{
    return (unsigned) why < KVR_WHYS ? kvr_why_names[why] : "unknown";
}


kvr_why_class_t
kvr_why_class(kvr_why_t why)
{
    return (unsigned) why < KVR_WHYS ? kvr_why_classes[why]
                                     : KVR_WHY_IS_FORGOTTEN;
}


const char *
kvr_why_class_name(kvr_why_class_t c)
{
    return kvr_why_class_names[c];
}


void *
kvr_scratch_reserve(kvr_scratch_t *s, size_t size)
{
    void    *data;
    size_t   room;

    if (size <= s->size) {
        return s->data;
    }

    room = (s->size == 0) ? 4096 : s->size;

    while (room < size) {
        room *= 2;
    }

    data = realloc(s->data, room);
    if (data == NULL) {
        return NULL;
    }

    s->data = data;
    s->size = room;

    return data;
}


const char *
kvr_scratch_append(kvr_scratch_t *s, uint32_t *n, uint64_t value)
{
    uint64_t  *values;

    if (*n == KVR_EVENT_BLOCKS_MAX) {
        return "too many blocks";
    }

    values = kvr_scratch_reserve(s, (*n + (size_t) 1) * sizeof(uint64_t));
    if (values == NULL) {
        return "out of memory";
    }

    values[(*n)++] = value;

    return NULL;
}


kvr_rc_t
kvr_event_judge(kvr_decoder_t *d, kvr_event_t *ev, kvr_verdict_t verdict,
    kvr_why_t why, const char *detail)
{
    ev->verdict = verdict;
    ev->why = why;
    d->detail = detail;

    return KVR_OK;
}


void
kvr_event_lora_id(kvr_decoder_t *d, kvr_event_t *ev, uint64_t id)
{
    ev->lora_len = (size_t) snprintf(d->lora_id, sizeof(d->lora_id),
                                     "%" PRIu64, id);
    ev->lora_name = d->lora_id;
}


kvr_rc_t
kvr_frame_invalid(kvr_decoder_t *d, kvr_why_t *why, kvr_why_t reason,
    const char *detail)
{
    *why = reason;
    d->detail = detail;

    return KVR_INVALID;
}
