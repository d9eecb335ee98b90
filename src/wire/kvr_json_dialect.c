/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Tells the dialects in JSON from one another: by the first name, in the first
 * object that is an event or a list's first event, that only one of them has.
 */


#include "kvr_decoder.h"

#include <yajl/yajl_parse.h>


typedef struct {
    kvr_json_dialect_t   dialect;
    uint32_t             depth;     /* open lists and maps */
    uint32_t             outer;     /* 1: the event is in a list */
    bool                 timed;     /* a list that begins with a number */
    bool                 begun;
    bool                 tag;       /* the next value may be an event's type */
} kvr_dialect_t;


static int kvr_dialect_null(void *ctx);
static int kvr_dialect_boolean(void *ctx, int value);
static int kvr_dialect_number(void *ctx, const char *text, size_t len);
static int kvr_dialect_string(void *ctx, const unsigned char *text,
    size_t len);
static int kvr_dialect_start_map(void *ctx);
static int kvr_dialect_key(void *ctx, const unsigned char *text, size_t len);
static int kvr_dialect_start_array(void *ctx);
static int kvr_dialect_end(void *ctx);


static const yajl_callbacks  kvr_dialect_callbacks = {
    .yajl_null = kvr_dialect_null,
    .yajl_boolean = kvr_dialect_boolean,
    .yajl_number = kvr_dialect_number,
    .yajl_string = kvr_dialect_string,
    .yajl_start_map = kvr_dialect_start_map,
    .yajl_map_key = kvr_dialect_key,
    .yajl_end_map = kvr_dialect_end,
    .yajl_start_array = kvr_dialect_start_array,
    .yajl_end_array = kvr_dialect_end
};


static const struct {
    const char          *name;
    kvr_json_dialect_t   dialect;
} kvr_dialect_names[] = {
    { "worker_id", KVR_JSON_ROUTER_EVENT },
    { "storage_tier", KVR_JSON_ROUTER_EVENT },
    { "event", KVR_JSON_ROUTER_EVENT },
    { "data", KVR_JSON_TENSORRT },
    { "window_size", KVR_JSON_TENSORRT },
    { "attention_dp_rank", KVR_JSON_TENSORRT },
    { "type", KVR_JSON_ENGINE },
    { "event_type", KVR_JSON_ENGINE },
    { "events", KVR_JSON_ENGINE },
    { "block_hashes", KVR_JSON_ENGINE },
    { "seq_hashes", KVR_JSON_ENGINE },
    { NULL, KVR_JSON_ROUTER_EVENT }
};


static const char *const  kvr_dialect_tags[] = {
    "BlockStored", "BlockRemoved", "AllBlocksCleared", NULL
};


kvr_json_dialect_t
kvr_json_dialect(const kvr_msgpack_t *in)
{
    yajl_handle    parser;
    kvr_dialect_t  dialect;

    memset(&dialect, 0, sizeof(kvr_dialect_t));
    dialect.dialect = KVR_JSON_ROUTER_EVENT;

    parser = yajl_alloc(&kvr_dialect_callbacks, NULL, &dialect);
    if (parser == NULL) {
        return dialect.dialect;
    }

    /*
     * yajl_parse() gets all of the text, see kvr_pieces_cut(): the parser
     * stops where the dialect is known, or where the text is broken or holds
     * more than one value.
     */

    (void) yajl_parse(parser, (const unsigned char *) in->pos, in->left);

    yajl_free(parser);

    return dialect.begun ? dialect.dialect : KVR_JSON_NOTHING;
}


static int
kvr_dialect_null(void *ctx)
{
    kvr_dialect_t  *dialect = ctx;

    dialect->begun = true;
    dialect->tag = false;

    return 1;
}


static int
kvr_dialect_boolean(void *ctx, int value)
{
    return kvr_dialect_null(ctx);
}


/* A list of a number and a list is an engine's batch: its time, its events. */
static int
kvr_dialect_number(void *ctx, const char *text, size_t len)
{
    kvr_dialect_t  *dialect = ctx;

    dialect->timed = (dialect->depth == 1 && dialect->outer == 1
                      && !dialect->begun);

    return kvr_dialect_null(ctx);
}


/* A list that begins with a type is an engine's event, or has one first. */
static int
kvr_dialect_string(void *ctx, const unsigned char *text, size_t len)
{
    size_t          i;
    kvr_dialect_t  *dialect = ctx;

    if (dialect->tag) {

        for (i = 0; kvr_dialect_tags[i] != NULL; i++) {
            if (strlen(kvr_dialect_tags[i]) == len
                && memcmp(kvr_dialect_tags[i], text, len) == 0)
            {
                dialect->begun = true;
                dialect->dialect = KVR_JSON_ENGINE;
                return 0;
            }
        }
    }

    return kvr_dialect_null(ctx);
}


static int
kvr_dialect_start_map(void *ctx)
{
    kvr_dialect_t  *dialect = ctx;

    dialect->depth++;

    return kvr_dialect_null(ctx);
}


static int
kvr_dialect_key(void *ctx, const unsigned char *text, size_t len)
{
    size_t          i;
    kvr_dialect_t  *dialect = ctx;

    if (dialect->depth != dialect->outer + 1) {
        return 1;
    }

    for (i = 0; kvr_dialect_names[i].name != NULL; i++) {
        if (strlen(kvr_dialect_names[i].name) == len
            && memcmp(kvr_dialect_names[i].name, text, len) == 0)
        {
            dialect->dialect = kvr_dialect_names[i].dialect;
            return 0;
        }
    }

    return 1;
}


static int
kvr_dialect_start_array(void *ctx)
{
    kvr_dialect_t  *dialect = ctx;

    if (dialect->depth == 1 && dialect->timed) {
        dialect->dialect = KVR_JSON_ENGINE;
        return 0;
    }

    /* the event can be this list, or the first list in it */

    dialect->tag = !dialect->begun;

    if (dialect->depth++ == 0) {
        dialect->outer = 1;

    } else {
        dialect->begun = true;
    }

    return 1;
}


static int
kvr_dialect_end(void *ctx)
{
    kvr_dialect_t  *dialect = ctx;

    dialect->depth--;
    dialect->tag = false;

    return 1;
}
