/*
 * Copyright (C) the nginx-kv-router authors
 *
 * RouterEvents, Dynamo's JSON form (EVENTS.md section 5): one object, an
 * array of them, or many one after another, as /dump writes them.
 *
 * Numbers are taken as text: hashes fill 64 bits, and a double doesn't.
 */


#include "kvr_pieces.h"

#include <stdlib.h>


/* Where the parser is; the name is that of the container. */
typedef enum {
    KVR_AT_TOP,
    KVR_AT_LIST,
    KVR_AT_ROUTER_EVENT,
    KVR_AT_EVENT,
    KVR_AT_DATA,
    KVR_AT_STORED,
    KVR_AT_BLOCKS,
    KVR_AT_BLOCK,
    KVR_AT_REMOVED,
    KVR_AT_HASHES
} kvr_place_t;


typedef enum {
    KVR_KEY_OTHER,
    KVR_KEY_WORKER_ID,
    KVR_KEY_STORAGE_TIER,
    KVR_KEY_EVENT,
    KVR_KEY_EVENT_ID,
    KVR_KEY_DATA,
    KVR_KEY_DP_RANK,
    KVR_KEY_STORED,
    KVR_KEY_REMOVED,
    KVR_KEY_PARENT_HASH,
    KVR_KEY_BLOCKS,
    KVR_KEY_BLOCK_HASH,
    KVR_KEY_TOKENS_HASH,
    KVR_KEY_BLOCK_HASHES
} kvr_key_t;


struct kvr_yajl_s {
    kvr_pieces_t     text;

    kvr_place_t      place;
    bool             in_list;
    kvr_key_t        key;
    uint32_t         skipping;      /* depth in a skipped value */

    uint32_t         strays;        /* values that should be events */
    bool             ready;         /* ev is complete */

    kvr_event_t      ev;
    bool             has_data;
    bool             has_list;      /* of blocks, or of their hashes */
    bool             foreign_tier;
    bool             lost_rank;     /* the rank can't be read */
    kvr_why_t        wrong;         /* first error */
    const char      *detail;

    bool             has_handle;    /* of the block we are in */
    bool             has_local;
    uint64_t         handle;
    uint64_t         local;

    char             worker[KVR_WORKER_ID_MAX];
};


static kvr_rc_t kvr_router_event_next(kvr_decoder_t *d, kvr_event_t *ev);
static kvr_rc_t kvr_router_event_verdict(kvr_decoder_t *d, kvr_event_t *ev);

static int kvr_yajl_null(void *ctx);
static int kvr_yajl_boolean(void *ctx, int value);
static int kvr_yajl_number(void *ctx, const char *text, size_t len);
static int kvr_yajl_string(void *ctx, const unsigned char *text, size_t len);
static int kvr_yajl_start_map(void *ctx);
static int kvr_yajl_map_key(void *ctx, const unsigned char *text, size_t len);
static int kvr_yajl_end_map(void *ctx);
static int kvr_yajl_start_array(void *ctx);
static int kvr_yajl_end_array(void *ctx);

static bool kvr_yajl_stray(kvr_yajl_t *j);
static int kvr_yajl_enter(kvr_yajl_t *j, kvr_place_t place);
static int kvr_yajl_skip(kvr_yajl_t *j);
static void kvr_yajl_unexpected(kvr_yajl_t *j);
static void kvr_yajl_wrong(kvr_yajl_t *j, kvr_why_t why, const char *detail);
static void kvr_yajl_begin(kvr_decoder_t *d);
static void kvr_yajl_data(kvr_yajl_t *j, kvr_event_kind_t kind);
static void kvr_yajl_worker(kvr_yajl_t *j, const char *text, size_t len);
static void kvr_yajl_tier(kvr_yajl_t *j, const char *text, size_t len);
static void kvr_yajl_block(kvr_decoder_t *d);
static void kvr_yajl_append(kvr_yajl_t *j, kvr_scratch_t *to, uint32_t *n,
    uint64_t value);


static const yajl_callbacks  kvr_yajl_callbacks = {
    .yajl_null = kvr_yajl_null,
    .yajl_boolean = kvr_yajl_boolean,
    .yajl_number = kvr_yajl_number,
    .yajl_string = kvr_yajl_string,
    .yajl_start_map = kvr_yajl_start_map,
    .yajl_map_key = kvr_yajl_map_key,
    .yajl_end_map = kvr_yajl_end_map,
    .yajl_start_array = kvr_yajl_start_array,
    .yajl_end_array = kvr_yajl_end_array
};


static const struct {
    kvr_place_t      place;
    const char      *name;
    kvr_key_t        key;
} kvr_yajl_keys[] = {
    { KVR_AT_BLOCK, "block_hash", KVR_KEY_BLOCK_HASH },
    { KVR_AT_BLOCK, "tokens_hash", KVR_KEY_TOKENS_HASH },
    { KVR_AT_ROUTER_EVENT, "worker_id", KVR_KEY_WORKER_ID },
    { KVR_AT_ROUTER_EVENT, "storage_tier", KVR_KEY_STORAGE_TIER },
    { KVR_AT_ROUTER_EVENT, "event", KVR_KEY_EVENT },
    { KVR_AT_EVENT, "event_id", KVR_KEY_EVENT_ID },
    { KVR_AT_EVENT, "data", KVR_KEY_DATA },
    { KVR_AT_EVENT, "dp_rank", KVR_KEY_DP_RANK },
    { KVR_AT_DATA, "stored", KVR_KEY_STORED },
    { KVR_AT_DATA, "removed", KVR_KEY_REMOVED },
    { KVR_AT_STORED, "parent_hash", KVR_KEY_PARENT_HASH },
    { KVR_AT_STORED, "blocks", KVR_KEY_BLOCKS },
    { KVR_AT_REMOVED, "block_hashes", KVR_KEY_BLOCK_HASHES },
    { KVR_AT_TOP, NULL, KVR_KEY_OTHER }
};


kvr_rc_t
kvr_router_event_open(kvr_decoder_t *d, kvr_why_t *why)
{
    kvr_yajl_t  *j;

    j = calloc(1, sizeof(kvr_yajl_t));
    if (j == NULL) {
        return kvr_frame_invalid(d, why, KVR_WHY_LIMIT, "out of memory");
    }

    d->json = j;

    if (kvr_pieces_open(&j->text, &kvr_yajl_callbacks, d, &d->in) != KVR_OK) {
        kvr_router_event_close(d);
        return kvr_frame_invalid(d, why, KVR_WHY_LIMIT, "out of memory");
    }

    d->next = kvr_router_event_next;

    return KVR_OK;
}


void
kvr_router_event_close(kvr_decoder_t *d)
{
    if (d->json == NULL) {
        return;
    }

    kvr_pieces_close(&d->json->text);

    free(d->json);
    d->json = NULL;
}


static kvr_rc_t
kvr_router_event_next(kvr_decoder_t *d, kvr_event_t *ev)
{
    uint32_t     at, source;
    kvr_yajl_t  *j;

    j = d->json;

    for ( ;; ) {

        if (j->strays != 0) {
            j->strays--;
            return kvr_event_refuse(d, ev, KVR_WHY_TYPE,
                                    "event is not an object");
        }

        if (j->ready) {
            j->ready = false;
            at = ev->at;
            source = ev->source;
            *ev = j->ev;
            ev->at = at;
            ev->source = source;

            return kvr_router_event_verdict(d, ev);
        }

        if (j->text.over) {
            if (j->text.rc == KVR_INVALID) {
                d->detail = "JSON syntax error";
            }

            return j->text.rc;
        }

        kvr_pieces_feed(&j->text);
    }
}


static kvr_rc_t
kvr_router_event_verdict(kvr_decoder_t *d, kvr_event_t *ev)
{
    kvr_yajl_t  *j;

    j = d->json;

    ev->handles = d->handles.data;
    ev->locals = (ev->nlocals != 0) ? d->locals.data : NULL;

    if (ev->worker == NULL || j->lost_rank) {
        /* a number is of no use if its rank is unknown */
        ev->has_event_id = false;
    }

    if (j->foreign_tier) {
        return kvr_event_filter(d, ev, KVR_WHY_MEDIUM, "unknown storage_tier");
    }

    if (j->wrong != KVR_WHY_NONE) {
        return kvr_event_refuse(d, ev, j->wrong, j->detail);
    }

    if (ev->worker == NULL) {
        return kvr_event_refuse(d, ev, KVR_WHY_WORKER, "no worker_id");
    }

    if (!j->has_data) {
        return kvr_event_refuse(d, ev, KVR_WHY_TYPE,
                                "event data is missing or unknown");
    }

    if (ev->kind != KVR_CLEAR && !j->has_list) {
        return kvr_event_refuse(d, ev, KVR_WHY_SYNTAX,
                                "no blocks, or no block_hashes");
    }

    if (ev->nlocals != 0 && ev->nlocals != ev->nhandles) {
        return kvr_event_refuse(d, ev, KVR_WHY_LENGTH,
                                "a block without tokens_hash");
    }

    return KVR_OK;
}


/* Scalars. */


static int
kvr_yajl_null(void *ctx)
{
    kvr_yajl_t  *j = ((kvr_decoder_t *) ctx)->json;

    if (kvr_yajl_stray(j)) {
        return 1;
    }

    switch (j->key) {

    case KVR_KEY_WORKER_ID:
    case KVR_KEY_EVENT:
    case KVR_KEY_DATA:
    case KVR_KEY_BLOCKS:
    case KVR_KEY_BLOCK_HASH:
    case KVR_KEY_BLOCK_HASHES:
        kvr_yajl_unexpected(j);
        break;

    default:
        /* a field that can be missing can be null */
        break;
    }

    return 1;
}


static int
kvr_yajl_boolean(void *ctx, int value)
{
    kvr_yajl_t  *j = ((kvr_decoder_t *) ctx)->json;

    if (!kvr_yajl_stray(j)) {
        kvr_yajl_unexpected(j);
    }

    return 1;
}


static int
kvr_yajl_number(void *ctx, const char *text, size_t len)
{
    uint64_t        n;
    kvr_yajl_t     *j;
    kvr_decoder_t  *d;

    d = ctx;
    j = d->json;

    if (kvr_yajl_stray(j) || j->key == KVR_KEY_OTHER) {
        return 1;
    }

    if (!kvr_u64_parse(text, len, &n)) {
        kvr_yajl_wrong(j, KVR_WHY_SYNTAX, "not an unsigned 64 bit integer");
        return 1;
    }

    switch (j->key) {

    case KVR_KEY_WORKER_ID:
        kvr_yajl_worker(j, text, len);
        break;

    case KVR_KEY_EVENT_ID:
        j->ev.has_event_id = true;
        j->ev.event_id = n;
        break;

    case KVR_KEY_DP_RANK:
        if (n >= KVR_RANKS_MAX) {
            kvr_yajl_wrong(j, KVR_WHY_RANK, "dp_rank out of range");
            break;
        }

        j->ev.rank = (uint32_t) n;
        break;

    case KVR_KEY_PARENT_HASH:
        j->ev.has_parent = true;
        j->ev.parent = n;
        break;

    case KVR_KEY_BLOCK_HASH:
        j->has_handle = true;
        j->handle = n;
        break;

    case KVR_KEY_TOKENS_HASH:
        j->has_local = true;
        j->local = n;
        break;

    case KVR_KEY_BLOCK_HASHES:
        if (j->place == KVR_AT_HASHES) {
            kvr_yajl_append(j, &d->handles, &j->ev.nhandles, n);
            break;
        }

        /* fall through */

    default:
        kvr_yajl_unexpected(j);
        break;
    }

    return 1;
}


static int
kvr_yajl_string(void *ctx, const unsigned char *text, size_t len)
{
    kvr_yajl_t  *j = ((kvr_decoder_t *) ctx)->json;

    if (kvr_yajl_stray(j)) {
        return 1;
    }

    switch (j->key) {

    case KVR_KEY_WORKER_ID:
        kvr_yajl_worker(j, (const char *) text, len);
        break;

    case KVR_KEY_STORAGE_TIER:
        kvr_yajl_tier(j, (const char *) text, len);
        break;

    case KVR_KEY_DATA:
        if (len == 7 && memcmp(text, "cleared", 7) == 0) {
            kvr_yajl_data(j, KVR_CLEAR);
        }

        break;

    case KVR_KEY_PARENT_HASH:
    case KVR_KEY_BLOCK_HASH:
    case KVR_KEY_TOKENS_HASH:
    case KVR_KEY_BLOCK_HASHES:
        /* the publisher writes all numbers as doubles */
        return kvr_yajl_number(ctx, (const char *) text, len);

    default:
        kvr_yajl_unexpected(j);
        break;
    }

    return 1;
}


/* Containers. */


static int
kvr_yajl_start_map(void *ctx)
{
    kvr_yajl_t     *j;
    kvr_decoder_t  *d;

    d = ctx;
    j = d->json;

    if (j->skipping != 0) {
        return kvr_yajl_skip(j);
    }

    switch (j->place) {

    case KVR_AT_TOP:
    case KVR_AT_LIST:
        kvr_yajl_begin(d);
        return kvr_yajl_enter(j, KVR_AT_ROUTER_EVENT);

    case KVR_AT_BLOCKS:
        j->has_handle = false;
        j->has_local = false;
        return kvr_yajl_enter(j, KVR_AT_BLOCK);

    default:
        break;
    }

    switch (j->key) {

    case KVR_KEY_EVENT:
        return kvr_yajl_enter(j, KVR_AT_EVENT);

    case KVR_KEY_DATA:
        return kvr_yajl_enter(j, KVR_AT_DATA);

    case KVR_KEY_STORED:
        kvr_yajl_data(j, KVR_STORE);
        return kvr_yajl_enter(j, KVR_AT_STORED);

    case KVR_KEY_REMOVED:
        kvr_yajl_data(j, KVR_REMOVE);
        return kvr_yajl_enter(j, KVR_AT_REMOVED);

    default:
        kvr_yajl_unexpected(j);
        return kvr_yajl_skip(j);
    }
}


static int
kvr_yajl_start_array(void *ctx)
{
    kvr_yajl_t  *j = ((kvr_decoder_t *) ctx)->json;

    if (j->skipping != 0) {
        return kvr_yajl_skip(j);
    }

    if (j->place == KVR_AT_TOP) {
        j->in_list = true;
        return kvr_yajl_enter(j, KVR_AT_LIST);
    }

    if (j->place == KVR_AT_STORED && j->key == KVR_KEY_BLOCKS) {
        j->has_list = true;
        return kvr_yajl_enter(j, KVR_AT_BLOCKS);
    }

    if (j->place == KVR_AT_REMOVED && j->key == KVR_KEY_BLOCK_HASHES) {
        j->has_list = true;
        j->place = KVR_AT_HASHES;       /* the key stays as it is */
        return 1;
    }

    if (!kvr_yajl_stray(j)) {
        kvr_yajl_unexpected(j);
    }

    return kvr_yajl_skip(j);
}


static int
kvr_yajl_map_key(void *ctx, const unsigned char *text, size_t len)
{
    size_t       i;
    kvr_yajl_t  *j = ((kvr_decoder_t *) ctx)->json;

    if (j->skipping != 0) {
        return 1;
    }

    j->key = KVR_KEY_OTHER;

    for (i = 0; kvr_yajl_keys[i].name != NULL; i++) {
        if (kvr_yajl_keys[i].place == j->place
            && strlen(kvr_yajl_keys[i].name) == len
            && memcmp(kvr_yajl_keys[i].name, text, len) == 0)
        {
            j->key = kvr_yajl_keys[i].key;
            break;
        }
    }

    return 1;
}


static int
kvr_yajl_end_map(void *ctx)
{
    kvr_yajl_t     *j;
    kvr_decoder_t  *d;

    d = ctx;
    j = d->json;

    if (j->skipping != 0) {
        j->skipping--;
        return 1;
    }

    switch (j->place) {

    case KVR_AT_ROUTER_EVENT:
        j->ready = true;
        return kvr_yajl_enter(j, j->in_list ? KVR_AT_LIST : KVR_AT_TOP);

    case KVR_AT_EVENT:
        return kvr_yajl_enter(j, KVR_AT_ROUTER_EVENT);

    case KVR_AT_DATA:
        return kvr_yajl_enter(j, KVR_AT_EVENT);

    case KVR_AT_BLOCK:
        kvr_yajl_block(d);
        return kvr_yajl_enter(j, KVR_AT_BLOCKS);

    default:
        return kvr_yajl_enter(j, KVR_AT_DATA);
    }
}


static int
kvr_yajl_end_array(void *ctx)
{
    kvr_yajl_t  *j = ((kvr_decoder_t *) ctx)->json;

    if (j->skipping != 0) {
        j->skipping--;
        return 1;
    }

    switch (j->place) {

    case KVR_AT_LIST:
        j->in_list = false;
        return kvr_yajl_enter(j, KVR_AT_TOP);

    case KVR_AT_BLOCKS:
        return kvr_yajl_enter(j, KVR_AT_STORED);

    default:
        return kvr_yajl_enter(j, KVR_AT_REMOVED);
    }
}


/* True when the value is not a field of an event we know; counts strays. */
static bool
kvr_yajl_stray(kvr_yajl_t *j)
{
    if (j->skipping != 0) {
        return true;
    }

    switch (j->place) {

    case KVR_AT_TOP:
    case KVR_AT_LIST:
        j->strays++;
        return true;

    case KVR_AT_BLOCKS:
        kvr_yajl_wrong(j, KVR_WHY_SYNTAX, "block is not an object");
        return true;

    default:
        return false;
    }
}


static int
kvr_yajl_enter(kvr_yajl_t *j, kvr_place_t place)
{
    j->place = place;
    j->key = KVR_KEY_OTHER;

    return 1;
}


static int
kvr_yajl_skip(kvr_yajl_t *j)
{
    j->skipping++;

    if (j->skipping > KVR_PIECES_DEPTH) {
        kvr_yajl_wrong(j, KVR_WHY_LIMIT, "nested too deep");
    }

    return 1;
}


static void
kvr_yajl_unexpected(kvr_yajl_t *j)
{
    if (j->key != KVR_KEY_OTHER) {
        kvr_yajl_wrong(j, KVR_WHY_SYNTAX, "a field has the wrong type");
    }
}


static void
kvr_yajl_wrong(kvr_yajl_t *j, kvr_why_t why, const char *detail)
{
    if (j->wrong == KVR_WHY_NONE) {
        j->wrong = why;
        j->detail = detail;
    }

    if (j->key == KVR_KEY_DP_RANK) {
        j->lost_rank = true;
    }
}


/* Fields. */


static void
kvr_yajl_begin(kvr_decoder_t *d)
{
    kvr_yajl_t  *j;

    j = d->json;

    memset(&j->ev, 0, sizeof(kvr_event_t));
    j->ev.rank = d->rank;
    j->has_data = false;
    j->has_list = false;
    j->foreign_tier = false;
    j->lost_rank = false;
    j->wrong = KVR_WHY_NONE;
}


static void
kvr_yajl_data(kvr_yajl_t *j, kvr_event_kind_t kind)
{
    if (j->has_data) {
        kvr_yajl_wrong(j, KVR_WHY_SYNTAX, "event data given twice");
    }

    j->has_data = true;
    j->ev.kind = kind;
}


static void
kvr_yajl_worker(kvr_yajl_t *j, const char *text, size_t len)
{
    if (!kvr_worker_id_valid(text, len)) {
        kvr_yajl_wrong(j, KVR_WHY_WORKER, "invalid worker_id");
        return;
    }

    memcpy(j->worker, text, len);
    j->ev.worker = j->worker;
    j->ev.worker_len = len;
}


static void
kvr_yajl_tier(kvr_yajl_t *j, const char *text, size_t len)
{
    uint32_t  tier;

    j->foreign_tier = false;

    for (tier = 0; tier < KVR_TIERS; tier++) {
        if (strlen(kvr_router_event_tiers[tier]) == len
            && memcmp(kvr_router_event_tiers[tier], text, len) == 0)
        {
            j->ev.tier = (kvr_tier_t) tier;
            return;
        }
    }

    j->foreign_tier = true;
}


static void
kvr_yajl_block(kvr_decoder_t *d)
{
    kvr_yajl_t  *j;

    j = d->json;

    if (!j->has_handle) {
        kvr_yajl_wrong(j, KVR_WHY_SYNTAX, "a block without block_hash");
        return;
    }

    kvr_yajl_append(j, &d->handles, &j->ev.nhandles, j->handle);

    if (j->has_local) {
        kvr_yajl_append(j, &d->locals, &j->ev.nlocals, j->local);
    }
}


static void
kvr_yajl_append(kvr_yajl_t *j, kvr_scratch_t *to, uint32_t *n, uint64_t value)
{
    const char  *detail;

    detail = kvr_scratch_append(to, n, value);

    if (detail != NULL) {
        kvr_yajl_wrong(j, KVR_WHY_LIMIT, detail);
    }
}
