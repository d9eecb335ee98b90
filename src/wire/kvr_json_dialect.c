/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Tells the dialects in JSON from one another: by the first name, in the first
 * object that is an event or a list's first event, that only one of them has.
 *
 *     the text begins with            it is
 *     {"worker_id" …  [{"data" …      by the name, see the table below; other
 *                                     names are passed over
 *     ["BlockStored" …                an engine's event
 *     [["BlockStored" …               a list of them
 *     [number, […                     an engine's batch: its time, its events
 *     [] or nothing                   nothing
 *     anything else                   RouterEvents, which say what is wrong
 */


#include "kvr_decoder.h"


static bool kvr_dialect_event(kvr_json_t *j,
    const kvr_json_dialect_t **dialect);
static bool kvr_dialect_tag(const kvr_json_t *j, bool list);


static const kvr_json_dialect_t  kvr_dialect_router_event = {
    kvr_router_event_open, KVR_FORM_ROUTER_EVENT, true
};

static const kvr_json_dialect_t  kvr_dialect_tensorrt = {
    kvr_tensorrt_open, KVR_FORM_BARE, false
};

/* An engine's batch or events, as in msgpack. */
static const kvr_json_dialect_t  kvr_dialect_engine = {
    kvr_json_batch_open, KVR_FORM_BARE, false
};


static const struct {
    const char                *name;
    const kvr_json_dialect_t  *dialect;
} kvr_dialect_names[] = {
    { "worker_id", &kvr_dialect_router_event },
    { "storage_tier", &kvr_dialect_router_event },
    { "event", &kvr_dialect_router_event },
    { "data", &kvr_dialect_tensorrt },
    { "window_size", &kvr_dialect_tensorrt },
    { "attention_dp_rank", &kvr_dialect_tensorrt },
    { "type", &kvr_dialect_engine },
    { "event_type", &kvr_dialect_engine },
    { "events", &kvr_dialect_engine },
    { "block_hashes", &kvr_dialect_engine },
    { "seq_hashes", &kvr_dialect_engine },
    { NULL, NULL }
};


static const char *const  kvr_dialect_tags[] = {
    "BlockStored", "BlockRemoved", "AllBlocksCleared", NULL
};


const kvr_json_dialect_t *
kvr_json_dialect(const kvr_msgpack_t *in, bool *empty)
{
    bool                       begun, first, timed;
    kvr_json_t                 j;
    kvr_json_text_t            number;
    const kvr_json_dialect_t  *dialect;

    kvr_json_init(&j, in->pos, in->left);
    j.utf8 = true;

    *empty = false;
    dialect = &kvr_dialect_router_event;

    if (kvr_json_peek(&j) == '{') {
        (void) kvr_dialect_event(&j, &dialect);
        return dialect;
    }

    (void) kvr_json_open(&j, '[');

    begun = false;
    timed = false;

    for (first = true; kvr_json_next(&j); first = false) {

        switch (kvr_json_peek(&j)) {

        case '{':
            begun = true;

            if (kvr_dialect_event(&j, &dialect)) {
                return dialect;
            }

            break;

        case '[':
            begun = true;

            if (timed || (first && kvr_dialect_tag(&j, true))) {
                return &kvr_dialect_engine;
            }

            (void) kvr_json_skip(&j);
            break;

        case '"':
            if (first && kvr_dialect_tag(&j, false)) {
                return &kvr_dialect_engine;
            }

            begun |= kvr_json_skip(&j);
            break;

        case '-':
        case '0': case '1': case '2': case '3': case '4':
        case '5': case '6': case '7': case '8': case '9':
            timed = kvr_json_number(&j, &number) && first;
            begun |= (j.error == NULL);
            break;

        default:
            begun |= kvr_json_skip(&j);
            break;
        }
    }

    *empty = !begun;

    return dialect;
}


/* Passes over an object; true when it has a name that tells its dialect. */

static bool
kvr_dialect_event(kvr_json_t *j, const kvr_json_dialect_t **dialect)
{
    size_t           i;
    kvr_json_text_t  key;

    (void) kvr_json_open(j, '{');

    while (kvr_json_key(j, &key)) {

        for (i = 0; kvr_dialect_names[i].name != NULL; i++) {
            if (kvr_json_is(&key, kvr_dialect_names[i].name)) {
                *dialect = kvr_dialect_names[i].dialect;
                return true;
            }
        }

        (void) kvr_json_skip(j);
    }

    return false;
}


/*
 * Is the value that comes next an event's type, or a list that begins with
 * one?  The cursor stays where it is.
 */

static bool
kvr_dialect_tag(const kvr_json_t *j, bool list)
{
    size_t           i;
    kvr_json_t       peek;
    kvr_json_text_t  tag;

    peek = *j;

    if (list && !(kvr_json_open(&peek, '[') && kvr_json_next(&peek))) {
        return false;
    }

    if (kvr_json_string(&peek, &tag)) {

        for (i = 0; kvr_dialect_tags[i] != NULL; i++) {
            if (kvr_json_is(&tag, kvr_dialect_tags[i])) {
                return true;
            }
        }
    }

    return false;
}
