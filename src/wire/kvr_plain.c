/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_plain.h"


#define KVR_PLAIN_MESSAGE    '\x1e'      /* RS: before a message */
#define KVR_PLAIN_FIELD      '\x1f'      /* US: before a field of a message */


typedef struct {
    const kvr_tape_t  *tape;
    char              *out;
    size_t             size;
    size_t             n;
} kvr_plain_t;


/* Fields at the top that chat templates show before the messages. */

static const char *const  kvr_plain_before[] = {
    "tools", "system", "instructions"
};


static void
kvr_plain_byte(kvr_plain_t *p, char c)
{
    if (p->n < p->size) {
        p->out[p->n++] = c;
    }
}


/* If the string has more bytes than are left, its first ones are written. */

static void
kvr_plain_string(kvr_plain_t *p, const kvr_json_text_t *s)
{
    size_t  n;

    n = kvr_json_decode(s, p->out + p->n, p->size - p->n);
    p->n += kvr_min(n, p->size - p->n);
}


/* Writes a string decoded, and any other value as it stands in the text. */

static void
kvr_plain_value(kvr_plain_t *p, uint32_t i)
{
    size_t           len;
    kvr_json_text_t  s;

    if (!kvr_tape_given(p->tape, i)) {
        return;
    }

    if (kvr_tape_kind(p->tape, i) == KVR_TAPE_STRING) {
        s = kvr_tape_text(p->tape, i);
        kvr_plain_string(p, &s);
        return;
    }

    s = kvr_tape_raw(p->tape, i);
    len = kvr_min(s.len, p->size - p->n);

    memcpy(p->out + p->n, s.data, len);
    p->n += len;
}


/*
 * Writes a content that has parts: the texts of the parts.  A part without
 * text is written as it stands.
 */

static void
kvr_plain_content(kvr_plain_t *p, uint32_t i)
{
    uint32_t           part, text;
    const kvr_tape_t  *t;

    t = p->tape;

    if (kvr_tape_kind(t, i) != KVR_TAPE_ARRAY
        || t->entries[i].flags & KVR_TAPE_CUT)
    {
        kvr_plain_value(p, i);
        return;
    }

    for (part = kvr_tape_first(t, i); part; part = kvr_tape_next(t, i, part)) {

        text = kvr_tape_get(t, part, "text");

        kvr_plain_value(p, kvr_tape_kind(t, text) == KVR_TAPE_STRING ? text
                                                                     : part);
    }
}


/*
 * Writes a message.  The role comes first, wherever it stands in the message.
 */

static void
kvr_plain_message(kvr_plain_t *p, uint32_t i)
{
    uint32_t           key, role;
    kvr_json_text_t    name;
    const kvr_tape_t  *t;

    t = p->tape;

    kvr_plain_byte(p, KVR_PLAIN_MESSAGE);

    if (kvr_tape_kind(t, i) != KVR_TAPE_OBJECT
        || t->entries[i].flags & KVR_TAPE_CUT)
    {
        kvr_plain_value(p, i);
        return;
    }

    role = kvr_tape_get(t, i, "role");
    kvr_plain_value(p, role);

    for (key = kvr_tape_first(t, i); key; key = kvr_tape_next(t, i, key)) {

        if (key + 1 == role || !kvr_tape_given(t, key + 1)) {
            continue;
        }

        kvr_plain_byte(p, KVR_PLAIN_FIELD);

        name = kvr_tape_text(t, key);

        if (kvr_json_is(&name, "content")) {
            kvr_plain_content(p, key + 1);

        } else {
            kvr_plain_string(p, &name);
            kvr_plain_byte(p, KVR_PLAIN_FIELD);
            kvr_plain_value(p, key + 1);
        }
    }
}


size_t
kvr_plain_text(const kvr_tape_t *t, kvr_form_t form, char *out, size_t size)
{
    uint32_t     k, i, at;
    kvr_plain_t  p;
    const char  *field;

    p.tape = t;
    p.out = out;
    p.size = size;
    p.n = 0;

    field = kvr_form_rows[form].text;
    i = field ? kvr_tape_get(t, KVR_TAPE_ROOT, field) : 0;

    if (!kvr_tape_given(t, i)) {
        return 0;
    }

    if (kvr_form_rows[form].plain) {

        /* several prompts are a list */

        if (kvr_tape_kind(t, i) == KVR_TAPE_ARRAY) {
            i = kvr_tape_first(t, i);
        }

        if (kvr_tape_kind(t, i) == KVR_TAPE_STRING) {
            kvr_plain_value(&p, i);
        }

        return p.n;
    }

    for (k = 0; k < kvr_nelts(kvr_plain_before); k++) {

        at = kvr_tape_get(t, KVR_TAPE_ROOT, kvr_plain_before[k]);

        if (kvr_tape_given(t, at)) {
            kvr_plain_byte(&p, KVR_PLAIN_MESSAGE);
            kvr_plain_content(&p, at);
        }
    }

    if (kvr_tape_kind(t, i) != KVR_TAPE_ARRAY
        || t->entries[i].flags & KVR_TAPE_CUT)
    {
        kvr_plain_message(&p, i);
        return p.n;
    }

    for (at = kvr_tape_first(t, i); at; at = kvr_tape_next(t, i, at)) {
        kvr_plain_message(&p, at);
    }

    return p.n;
}
