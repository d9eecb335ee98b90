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

#include <yajl/yajl_parse.h>


/* The maximum depth of lists and maps; a deeper message can't be read. */
#define KVR_JSON_BATCH_DEPTH  32

/* Bytes of the head of a batch with one row; its length is written last. */
#define KVR_JSON_BATCH_HEAD   7


typedef struct {
    uint8_t        *start;
    uint8_t        *pos;
    size_t          size;

    uint32_t        depth;
    struct {
        size_t      at;             /* offset of its length */
        uint32_t    n;              /* values and keys */
        bool        map;
    } open[KVR_JSON_BATCH_DEPTH];

    uint32_t        values;         /* values at top level */
    bool            list;           /* first value is a list */
    bool            batch;          /* first value is a batch */
    bool            deep;
} kvr_json_batch_t;


static int kvr_json_batch_null(void *ctx);
static int kvr_json_batch_boolean(void *ctx, int value);
static int kvr_json_batch_number(void *ctx, const char *text, size_t len);
static int kvr_json_batch_string(void *ctx, const unsigned char *text,
    size_t len);
static int kvr_json_batch_start_map(void *ctx);
static int kvr_json_batch_key(void *ctx, const unsigned char *text,
    size_t len);
static int kvr_json_batch_start_array(void *ctx);
static int kvr_json_batch_end(void *ctx);

static void kvr_json_batch_value(kvr_json_batch_t *b);
static int kvr_json_batch_start(kvr_json_batch_t *b, bool map);
static void kvr_json_batch_text(kvr_json_batch_t *b,
    const unsigned char *text, size_t len);
static void kvr_json_batch_put(kvr_json_batch_t *b, uint8_t tag,
    uint64_t value, uint32_t bytes);
static void kvr_json_batch_word(uint8_t *to, uint64_t value, uint32_t bytes);


static const yajl_callbacks  kvr_json_batch_callbacks = {
    .yajl_null = kvr_json_batch_null,
    .yajl_boolean = kvr_json_batch_boolean,
    .yajl_number = kvr_json_batch_number,
    .yajl_string = kvr_json_batch_string,
    .yajl_start_map = kvr_json_batch_start_map,
    .yajl_map_key = kvr_json_batch_key,
    .yajl_end_map = kvr_json_batch_end,
    .yajl_start_array = kvr_json_batch_start_array,
    .yajl_end_array = kvr_json_batch_end
};


kvr_rc_t
kvr_json_batch_open(kvr_decoder_t *d, kvr_why_t *why)
{
    bool              good;
    uint8_t          *from;
    yajl_handle       parser;
    kvr_json_batch_t  b;

    memset(&b, 0, sizeof(kvr_json_batch_t));

    b.size = KVR_JSON_BATCH_HEAD + 3 * d->in.left;
    b.start = kvr_scratch_reserve(&d->packed, b.size);
    parser = yajl_alloc(&kvr_json_batch_callbacks, NULL, &b);

    if (b.start == NULL || parser == NULL) {
        if (parser != NULL) {
            yajl_free(parser);
        }

        return kvr_frame_invalid(d, why, KVR_WHY_LIMIT, "out of memory");
    }

    b.pos = b.start + KVR_JSON_BATCH_HEAD;

    yajl_config(parser, yajl_allow_multiple_values, 1);

    good = yajl_parse(parser, (const unsigned char *) d->in.pos, d->in.left)
           == yajl_status_ok
           && yajl_complete_parse(parser) == yajl_status_ok;

    yajl_free(parser);

    if (b.deep) {
        return kvr_frame_invalid(d, why, KVR_WHY_LIMIT, "nested too deep");
    }

    if (!good) {
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


static int
kvr_json_batch_null(void *ctx)
{
    kvr_json_batch_value(ctx);
    kvr_json_batch_put(ctx, 0xc0, 0, 0);

    return 1;
}


static int
kvr_json_batch_boolean(void *ctx, int value)
{
    kvr_json_batch_value(ctx);
    kvr_json_batch_put(ctx, value ? 0xc3 : 0xc2, 0, 0);

    return 1;
}


/* A number that is neither u64 nor i64 is a double. */
static int
kvr_json_batch_number(void *ctx, const char *text, size_t len)
{
    char               copy[64];
    double             real;
    uint64_t           n;
    kvr_json_batch_t  *b = ctx;

    /* a list that begins with a number is a batch: its time */

    if (b->values == 1 && b->depth == 1 && b->list && b->open[0].n == 0) {
        b->batch = true;
    }

    kvr_json_batch_value(b);

    if (!kvr_hash_parse(text, len, false, &n)) {
        snprintf(copy, sizeof(copy), "%.*s", (int) kvr_min(len, 63), text);
        real = strtod(copy, NULL);
        memcpy(&n, &real, sizeof(n));
        kvr_json_batch_put(b, 0xcb, n, 8);

    } else if (text[0] == '-' && n != 0) {

        if (n >= (uint64_t) -32) {
            kvr_json_batch_put(b, (uint8_t) n, 0, 0);

        } else {
            kvr_json_batch_put(b, 0xd3, n, 8);
        }

    } else if (n < 0x80) {
        kvr_json_batch_put(b, (uint8_t) n, 0, 0);

    } else if (n <= UINT8_MAX) {
        kvr_json_batch_put(b, 0xcc, n, 1);

    } else if (n <= UINT16_MAX) {
        kvr_json_batch_put(b, 0xcd, n, 2);

    } else if (n <= UINT32_MAX) {
        kvr_json_batch_put(b, 0xce, n, 4);

    } else {
        kvr_json_batch_put(b, 0xcf, n, 8);
    }

    return 1;
}


static int
kvr_json_batch_string(void *ctx, const unsigned char *text, size_t len)
{
    kvr_json_batch_t  *b = ctx;

    /* a list that begins with a string is one event: its type */

    if (b->values == 1 && b->depth == 1 && b->open[0].n == 0) {
        b->list = false;
    }

    kvr_json_batch_value(b);
    kvr_json_batch_text(b, text, len);

    return 1;
}


static int
kvr_json_batch_start_map(void *ctx)
{
    return kvr_json_batch_start(ctx, true);
}


static int
kvr_json_batch_start_array(void *ctx)
{
    return kvr_json_batch_start(ctx, false);
}


/* A map with events in it is a batch. */
static int
kvr_json_batch_key(void *ctx, const unsigned char *text, size_t len)
{
    kvr_json_batch_t  *b = ctx;

    if (b->values == 1 && b->depth == 1 && len == 6
        && memcmp(text, "events", 6) == 0)
    {
        b->batch = true;
    }

    kvr_json_batch_value(b);
    kvr_json_batch_text(b, text, len);

    return 1;
}


static int
kvr_json_batch_end(void *ctx)
{
    uint32_t           n;
    kvr_json_batch_t  *b = ctx;

    b->depth--;

    n = b->open[b->depth].n;

    if (b->open[b->depth].map) {
        n /= 2;
    }

    kvr_json_batch_word(b->start + b->open[b->depth].at, n, 4);

    return 1;
}


static void
kvr_json_batch_value(kvr_json_batch_t *b)
{
    if (b->depth == 0) {
        b->values++;
        return;
    }

    b->open[b->depth - 1].n++;
}


static int
kvr_json_batch_start(kvr_json_batch_t *b, bool map)
{
    if (b->depth == KVR_JSON_BATCH_DEPTH
        || b->size - (size_t) (b->pos - b->start) < 5)
    {
        b->deep = true;
        return 0;
    }

    kvr_json_batch_value(b);

    if (b->depth == 0 && b->values == 1) {
        b->list = !map;
    }

    b->open[b->depth].at = (size_t) (b->pos - b->start) + 1;
    b->open[b->depth].n = 0;
    b->open[b->depth].map = map;
    b->depth++;

    kvr_json_batch_put(b, map ? 0xdf : 0xdd, 0, 4);

    return 1;
}


static void
kvr_json_batch_text(kvr_json_batch_t *b, const unsigned char *text,
    size_t len)
{
    if (len < 32) {
        kvr_json_batch_put(b, (uint8_t) (0xa0 | len), 0, 0);

    } else if (len <= UINT8_MAX) {
        kvr_json_batch_put(b, 0xd9, len, 1);

    } else {
        kvr_json_batch_put(b, 0xdb, len, 4);
    }

    if (len <= b->size - (size_t) (b->pos - b->start)) {
        memcpy(b->pos, text, len);
        b->pos += len;
    }
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
