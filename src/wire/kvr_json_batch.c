/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An engine's events in JSON: the same fields as in msgpack, which they are
 * turned into.  A batch stays one; one event, a list of them, and one after
 * another become a batch without a rank.
 *
 * The msgpack is at most three times as long as the text: most values are
 * shorter; "[]", "{}", "-33" and "1e1" are not.
 */


#include "kvr_decoder.h"

#include <stdio.h>
#include <stdlib.h>


/* The maximum depth of lists and maps; a deeper message can't be read. */
#define KVR_JSON_BATCH_DEPTH  32

/* Bytes of the head of a batch with one row; its length is written last. */
#define KVR_JSON_BATCH_HEAD   7


typedef struct {
    kvr_json_t      json;

    uint8_t        *start;
    uint8_t        *pos;
    size_t          size;

    struct {
        size_t      at;             /* offset of its length */
        uint32_t    n;              /* values and keys */
        bool        map;
    } open[KVR_JSON_BATCH_DEPTH];   /* by level of the cursor */

    uint32_t        values;         /* values at top level */
    bool            list;           /* first value is a list */
    bool            batch;          /* first value is a batch */
} kvr_json_batch_t;


static kvr_why_t kvr_json_batch_read(kvr_json_batch_t *b);
static bool kvr_json_batch_more(kvr_json_batch_t *b);
static bool kvr_json_batch_start(kvr_json_batch_t *b, bool map);
static void kvr_json_batch_scalar(kvr_json_batch_t *b, int c);
static void kvr_json_batch_number(kvr_json_batch_t *b,
    const kvr_json_text_t *text);
static void kvr_json_batch_value(kvr_json_batch_t *b);
static void kvr_json_batch_text(kvr_json_batch_t *b,
    const kvr_json_text_t *text);
static void kvr_json_batch_put(kvr_json_batch_t *b, uint8_t tag,
    uint64_t value, uint32_t bytes);
static void kvr_json_batch_word(uint8_t *to, uint64_t value, uint32_t bytes);


kvr_rc_t
kvr_json_batch_open(kvr_decoder_t *d, kvr_why_t *why)
{
    uint8_t          *from;
    kvr_json_batch_t  b;

    memset(&b, 0, sizeof(kvr_json_batch_t));

    b.size = KVR_JSON_BATCH_HEAD + 3 * d->in.left;
    b.start = kvr_scratch_reserve(&d->packed, b.size);

    if (b.start == NULL) {
        return kvr_frame_invalid(d, why, KVR_WHY_LIMIT, "out of memory");
    }

    b.pos = b.start + KVR_JSON_BATCH_HEAD;

    kvr_json_init(&b.json, d->in.pos, d->in.left);
    b.json.utf8 = true;

    switch (kvr_json_batch_read(&b)) {

    case KVR_WHY_NONE:
        break;

    case KVR_WHY_LIMIT:
        return kvr_frame_invalid(d, why, KVR_WHY_LIMIT, "nested too deep");

    default:
        return kvr_frame_invalid(d, why, KVR_WHY_SYNTAX, "JSON syntax error");
    }

    from = b.start + KVR_JSON_BATCH_HEAD;

    if (b.values != 1 || !b.batch) {

        /* wrap the values: [0, list], or [0, [values]] */

        from -= 2;

        if (b.values != 1 || !b.list) {
            from = b.start + 2;
            from[0] = 0xdd;
            kvr_json_batch_word(from + 1, b.values, 4);
            from -= 2;
        }

        from[0] = 0x92;
        from[1] = 0;
    }

    d->in.pos = (const char *) from;
    d->in.left = (size_t) (b.pos - from);

    return kvr_engine_batch_open(d, why);
}


/* Turns all values of the text into msgpack, one behind another. */

static kvr_why_t
kvr_json_batch_read(kvr_json_batch_t *b)
{
    int          c;
    kvr_json_t  *j;

    j = &b->json;

    while (j->error == NULL) {

        if (j->depth != 0 && !kvr_json_batch_more(b)) {
            continue;
        }

        c = kvr_json_peek(j);

        if (c == '{' || c == '[') {

            if (!kvr_json_batch_start(b, c == '{')) {
                return KVR_WHY_LIMIT;
            }

            (void) kvr_json_open(j, c);

        } else if (j->depth == 0 && j->pos == j->end) {
            return KVR_WHY_NONE;

        } else {
            kvr_json_batch_scalar(b, c);
        }
    }

    return KVR_WHY_SYNTAX;
}


/*
 * Goes to the next value of the list or map that the cursor is in, behind its
 * key; false when there is none, and the list's or map's length is written.
 */

static bool
kvr_json_batch_more(kvr_json_batch_t *b)
{
    uint32_t         n, level;
    kvr_json_t      *j;
    kvr_json_text_t  key;

    j = &b->json;
    level = j->depth - 1;

    if (!b->open[level].map) {

        if (kvr_json_next(j)) {
            return true;
        }

    } else if (kvr_json_key(j, &key)) {

        /* a map with events in it is a batch */

        if (b->values == 1 && level == 0 && kvr_json_is(&key, "events")) {
            b->batch = true;
        }

        kvr_json_batch_value(b);
        kvr_json_batch_text(b, &key);

        return true;
    }

    n = b->open[level].n;

    if (b->open[level].map) {
        n /= 2;
    }

    kvr_json_batch_word(b->start + b->open[level].at, n, 4);

    return false;
}


/* False: too deep, or lists that do not end. */

static bool
kvr_json_batch_start(kvr_json_batch_t *b, bool map)
{
    uint32_t  level;

    level = b->json.depth;

    if (level == KVR_JSON_BATCH_DEPTH
        || b->size - (size_t) (b->pos - b->start) < 5)
    {
        return false;
    }

    kvr_json_batch_value(b);

    if (level == 0 && b->values == 1) {
        b->list = !map;
    }

    b->open[level].at = (size_t) (b->pos - b->start) + 1;
    b->open[level].n = 0;
    b->open[level].map = map;

    kvr_json_batch_put(b, map ? 0xdf : 0xdd, 0, 4);

    return true;
}


static void
kvr_json_batch_scalar(kvr_json_batch_t *b, int c)
{
    bool             first, value;
    kvr_json_t      *j;
    kvr_json_text_t  text;

    j = &b->json;
    first = (b->values == 1 && j->depth == 1 && b->open[0].n == 0);

    switch (c) {

    case '"':
        if (kvr_json_string(j, &text)) {

            /* a list that begins with a string is one event: its type */

            if (first) {
                b->list = false;
            }

            kvr_json_batch_value(b);
            kvr_json_batch_text(b, &text);
        }

        return;

    case 't':
    case 'f':
        if (kvr_json_bool(j, &value)) {
            kvr_json_batch_value(b);
            kvr_json_batch_put(b, value ? 0xc3 : 0xc2, 0, 0);
        }

        return;

    case 'n':
        if (kvr_json_null(j)) {
            kvr_json_batch_value(b);
            kvr_json_batch_put(b, 0xc0, 0, 0);
        }

        return;

    default:
        if (kvr_json_number(j, &text)) {

            /* a list that begins with a number is a batch: its time */

            if (first && b->list) {
                b->batch = true;
            }

            kvr_json_batch_value(b);
            kvr_json_batch_number(b, &text);
        }
    }
}


/* A number that is neither u64 nor i64 is a double. */

static void
kvr_json_batch_number(kvr_json_batch_t *b, const kvr_json_text_t *text)
{
    char      copy[64];
    double    real;
    uint32_t  log;
    uint64_t  n;

    if (!kvr_hash_parse(text->data, text->len, false, &n)) {
        snprintf(copy, sizeof(copy), "%.*s", (int) kvr_min(text->len, 63),
                 text->data);
        real = strtod(copy, NULL);
        memcpy(&n, &real, sizeof(n));
        kvr_json_batch_put(b, 0xcb, n, 8);

    } else if (text->data[0] == '-' && n != 0) {

        if (n >= (uint64_t) -32) {
            kvr_json_batch_put(b, (uint8_t) n, 0, 0);

        } else {
            kvr_json_batch_put(b, 0xd3, n, 8);
        }

    } else if (n < 0x80) {
        kvr_json_batch_put(b, (uint8_t) n, 0, 0);

    } else {

        /* of 1, 2, 4 or 8 bytes */

        for (log = 0; log < 3 && n >> (8u << log) != 0; log++) {
            /* void */
        }

        kvr_json_batch_put(b, (uint8_t) (0xcc + log), n, 1u << log);
    }
}


static void
kvr_json_batch_value(kvr_json_batch_t *b)
{
    if (b->json.depth == 0) {
        b->values++;
        return;
    }

    b->open[b->json.depth - 1].n++;
}


static void
kvr_json_batch_text(kvr_json_batch_t *b, const kvr_json_text_t *text)
{
    size_t  len;

    len = text->escaped ? kvr_json_decode(text, NULL, 0) : text->len;

    if (len < 32) {
        kvr_json_batch_put(b, (uint8_t) (0xa0 | len), 0, 0);

    } else if (len <= UINT8_MAX) {
        kvr_json_batch_put(b, 0xd9, len, 1);

    } else {
        kvr_json_batch_put(b, 0xdb, len, 4);
    }

    if (len > b->size - (size_t) (b->pos - b->start)) {
        return;
    }

    if (text->escaped) {
        (void) kvr_json_decode(text, (char *) b->pos, len);

    } else {
        memcpy(b->pos, text->data, len);
    }

    b->pos += len;
}


/* Never writes beyond the buffer's end, which is always large enough. */
static void
kvr_json_batch_put(kvr_json_batch_t *b, uint8_t tag, uint64_t value,
    uint32_t bytes)
{
    if (bytes >= b->size - (size_t) (b->pos - b->start)) {
        return;
    }

    *b->pos++ = tag;
    kvr_json_batch_word(b->pos, value, bytes);
    b->pos += bytes;
}


static void
kvr_json_batch_word(uint8_t *to, uint64_t value, uint32_t bytes)
{
    uint32_t  i;

    for (i = 0; i < bytes; i++) {
        to[i] = (uint8_t) (value >> (8 * (bytes - 1 - i)));
    }
}
