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


enum {
#define number(name, ...)  KVR_DIALECT_##name,
    KVR_JSON_DIALECTS(number)
#undef number
    KVR_DIALECTS
};


static const kvr_json_dialect_t  kvr_dialects[KVR_DIALECTS] = {
#define dialect(name, form, counted, ...)                                     \
    { kvr_##name##_open, form, counted, { __VA_ARGS__ } },
    KVR_JSON_DIALECTS(dialect)
#undef dialect
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
    dialect = &kvr_dialects[KVR_DIALECT_router_event];

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
                return &kvr_dialects[KVR_DIALECT_json_batch];
            }

            (void) kvr_json_skip(&j);
            break;

        case '"':
            if (first && kvr_dialect_tag(&j, false)) {
                return &kvr_dialects[KVR_DIALECT_json_batch];
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
    size_t              i;
    kvr_json_text_t     key;
    const char *const  *field;

    (void) kvr_json_open(j, '{');

    while (kvr_json_key(j, &key)) {

        for (i = 0; i < KVR_DIALECTS; i++) {
            for (field = kvr_dialects[i].fields; *field != NULL; field++) {
                if (kvr_json_is(&key, *field)) {
                    *dialect = &kvr_dialects[i];
                    return true;
                }
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
