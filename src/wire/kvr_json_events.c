/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_json_events.h"


static bool kvr_json_events_object(kvr_decoder_t *d,
    const kvr_json_events_t *e);
static const kvr_json_field_t *kvr_json_events_field(
    const kvr_json_field_t *fields, const kvr_json_text_t *key);
static bool kvr_json_events_scalar(kvr_decoder_t *d,
    const kvr_json_events_t *e, kvr_json_value_t *v);
static void kvr_json_events_skip(kvr_decoder_t *d,
    const kvr_json_events_t *e);
static uint32_t kvr_json_events_kind(kvr_json_t *j);


kvr_rc_t
kvr_json_events_open(kvr_decoder_t *d, size_t size,
    kvr_rc_t (*next)(kvr_decoder_t *d, kvr_event_t *ev), kvr_why_t *why)
{
    if (kvr_scratch_reserve(&d->state, size) == NULL) {
        return kvr_frame_invalid(d, why, KVR_WHY_LIMIT, "out of memory");
    }

    memset(d->state.data, 0, size);
    kvr_json_init(&d->json, d->in.pos, d->in.left);
    d->json.utf8 = true;
    d->next = next;

    return KVR_OK;
}


kvr_rc_t
kvr_json_events_next(kvr_decoder_t *d, const kvr_json_events_t *e,
    kvr_event_t *ev)
{
    kvr_json_t  *j;

    j = &d->json;

    /* events are at level 0, or 1 in a list; the rest is of a stray list */

    (void) kvr_json_leave(j, 1);

    while (j->error == NULL) {

        if (j->depth == 1 && !kvr_json_next(j)) {
            continue;
        }

        switch (kvr_json_events_kind(j)) {

        case KVR_JSON_MAP:

            if (kvr_json_events_object(d, e)) {
                return KVR_OK;
            }

            continue;

        case KVR_JSON_LIST:

            if (!kvr_json_open(j, '[') || j->depth != 2) {
                continue;
            }

            break;

        default:

            if (j->depth == 0 && j->pos == j->end) {
                return KVR_DONE;
            }

            if (!kvr_json_skip(j)) {
                continue;
            }
        }

        return kvr_event_refuse(d, ev, KVR_WHY_TYPE,
                                "event is not an object");
    }

    d->detail = "JSON syntax error";

    return KVR_INVALID;
}


/* Reads an event, the object that comes next; false after an error. */

static bool
kvr_json_events_object(kvr_decoder_t *d, const kvr_json_events_t *e)
{
    bool                     more;
    uint32_t                 kind, level;
    kvr_json_t              *j;
    kvr_json_text_t          key;
    kvr_json_value_t         v;
    const kvr_json_field_t  *f;

    /* the tables that are open, and the rows which opened them */

    struct {
        const kvr_json_field_t  *fields;
        uint32_t                 name;
    } at[KVR_JSON_TABLES];

    j = &d->json;

    (void) kvr_json_open(j, '{');
    e->begin(d);

    at[0].fields = e->fields;
    at[0].name = 0;
    level = 0;

    for ( ;; ) {

        if ((j->maps >> (j->depth - 1)) & 1) {
            more = kvr_json_key(j, &key);
            f = more ? kvr_json_events_field(at[level].fields, &key) : NULL;

        } else {
            more = kvr_json_next(j);
            f = at[level].fields;
        }

        if (j->error != NULL) {
            return false;
        }

        if (!more) {
            if (level == 0) {
                return true;
            }

            e->end(d, at[level].name);
            level--;
            continue;
        }

        if (f == NULL) {
            kvr_json_events_skip(d, e);
            continue;
        }

        kind = kvr_json_events_kind(j);

        if ((f->takes & kind) == 0) {
            e->wrong(d, f->name, KVR_WHY_SYNTAX,
                     "a field has the wrong type");
            kvr_json_events_skip(d, e);
            continue;
        }

        if (kind & (KVR_JSON_LIST | KVR_JSON_MAP)) {

            (void) kvr_json_open(j, (kind == KVR_JSON_MAP) ? '{' : '[');

            level++;
            at[level].fields = f->opens;
            at[level].name = f->name;

            v.kind = kind;
            e->take(d, f->name, &v);
            continue;
        }

        v.kind = kind;

        if (kvr_json_events_scalar(d, e, &v)) {
            e->take(d, f->name, &v);
        }
    }
}


static const kvr_json_field_t *
kvr_json_events_field(const kvr_json_field_t *fields,
    const kvr_json_text_t *key)
{
    const kvr_json_field_t  *f;

    for (f = fields; f->key != NULL; f++) {

        if (key->escaped ? kvr_json_is(key, f->key)
                         : key->len == f->len
                           && memcmp(key->data, f->key, f->len) == 0)
        {
            return f;
        }
    }

    return NULL;
}


static bool
kvr_json_events_scalar(kvr_decoder_t *d, const kvr_json_events_t *e,
    kvr_json_value_t *v)
{
    bool             ok;
    char            *text;
    kvr_json_text_t  read;

    memset(&read, 0, sizeof(kvr_json_text_t));

    if (v->kind == KVR_JSON_NUMBER) {
        ok = kvr_json_number(&d->json, &read);

    } else if (v->kind == KVR_JSON_STRING) {
        ok = kvr_json_string(&d->json, &read);

    } else {
        ok = kvr_json_skip(&d->json);
    }

    v->text = read.data;
    v->len = read.len;

    if (ok && read.escaped) {

        text = kvr_scratch_reserve(&d->text, read.len);
        if (text == NULL) {
            e->wrong(d, 0, KVR_WHY_LIMIT, "out of memory");
            return false;
        }

        v->text = text;
        v->len = kvr_json_decode(&read, text, read.len);
    }

    return ok;
}


static void
kvr_json_events_skip(kvr_decoder_t *d, const kvr_json_events_t *e)
{
    bool  deep;

    deep = false;

    (void) kvr_json_skip_levels(&d->json, KVR_JSON_EVENT_DEPTH, &deep);

    if (deep) {
        e->wrong(d, 0, KVR_WHY_LIMIT, "nested too deep");
    }
}


/* The kind of the value that comes next; 0: none does. */

static uint32_t
kvr_json_events_kind(kvr_json_t *j)
{
    int  c;

    c = kvr_json_peek(j);

    switch (c) {

    case '{':
        return KVR_JSON_MAP;

    case '[':
        return KVR_JSON_LIST;

    case '"':
        return KVR_JSON_STRING;

    case 't':
    case 'f':
        return KVR_JSON_BOOL;

    case 'n':
        return KVR_JSON_NULL;

    default:
        return (c == '-' || (c >= '0' && c <= '9')) ? KVR_JSON_NUMBER : 0;
    }
}
