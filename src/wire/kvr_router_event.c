/*
 * Copyright (C) the nginx-kv-router authors
 *
 * RouterEvents, Dynamo's JSON form (docs/events.md): one object, an
 * array of them, or many one after another, as /dump writes them.
 *
 * Numbers are taken as text: hashes fill 64 bits, and a double doesn't.  They
 * may be in strings, where a publisher would write numbers as doubles.
 */


#include "kvr_json_events.h"


typedef enum {
    KVR_ROUTER_NONE,
    KVR_ROUTER_WORKER_ID,
    KVR_ROUTER_TIER,
    KVR_ROUTER_EVENT,
    KVR_ROUTER_EVENT_ID,
    KVR_ROUTER_DATA,
    KVR_ROUTER_RANK,
    KVR_ROUTER_STORED,
    KVR_ROUTER_REMOVED,
    KVR_ROUTER_PARENT,
    KVR_ROUTER_BLOCKS,
    KVR_ROUTER_BLOCK,
    KVR_ROUTER_BLOCK_HASH,
    KVR_ROUTER_TOKENS_HASH,
    KVR_ROUTER_HASHES,
    KVR_ROUTER_HASH
} kvr_router_name_t;


/* An event while it is read. */
typedef struct {
    kvr_event_t     *ev;
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
} kvr_router_event_t;


static kvr_rc_t kvr_router_event_next(kvr_decoder_t *d, kvr_event_t *ev);
static kvr_rc_t kvr_router_event_verdict(kvr_decoder_t *d, kvr_event_t *ev);

static void kvr_router_event_begin(kvr_decoder_t *d);
static void kvr_router_event_take(kvr_decoder_t *d, uint32_t name,
    const kvr_json_value_t *v);
static void kvr_router_event_end(kvr_decoder_t *d, uint32_t name);
static void kvr_router_event_wrong(kvr_decoder_t *d, uint32_t name,
    kvr_why_t why, const char *detail);

static void kvr_router_event_number(kvr_decoder_t *d, uint32_t name,
    const kvr_json_value_t *v);
static void kvr_router_event_data(kvr_decoder_t *d, kvr_event_kind_t kind);
static void kvr_router_event_worker(kvr_decoder_t *d,
    const kvr_json_value_t *v);
static void kvr_router_event_tier(kvr_decoder_t *d,
    const kvr_json_value_t *v);
static void kvr_router_event_append(kvr_decoder_t *d, kvr_scratch_t *to,
    uint32_t *n, uint64_t value);


/* An event's grammar, from its innermost parts outwards. */

#define KVR_ROUTER_MAYBE      (KVR_JSON_NULL | KVR_JSON_NUMBER)
#define KVR_ROUTER_HASH_TEXT  (KVR_JSON_NUMBER | KVR_JSON_STRING)

static const kvr_json_field_t  kvr_router_block[] = {
    kvr_json_field("block_hash", KVR_ROUTER_HASH_TEXT,
                   KVR_ROUTER_BLOCK_HASH, NULL),
    kvr_json_field("tokens_hash", KVR_JSON_NULL | KVR_ROUTER_HASH_TEXT,
                   KVR_ROUTER_TOKENS_HASH, NULL),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_router_blocks[] = {
    kvr_json_element(KVR_JSON_MAP, KVR_ROUTER_BLOCK, kvr_router_block)
};

static const kvr_json_field_t  kvr_router_hashes[] = {
    kvr_json_element(KVR_ROUTER_HASH_TEXT, KVR_ROUTER_HASH, NULL)
};

static const kvr_json_field_t  kvr_router_stored[] = {
    kvr_json_field("parent_hash", KVR_JSON_NULL | KVR_ROUTER_HASH_TEXT,
                   KVR_ROUTER_PARENT, NULL),
    kvr_json_field("blocks", KVR_JSON_LIST,
                   KVR_ROUTER_BLOCKS, kvr_router_blocks),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_router_removed[] = {
    kvr_json_field("block_hashes", KVR_JSON_LIST,
                   KVR_ROUTER_HASHES, kvr_router_hashes),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_router_data[] = {
    kvr_json_field("stored", KVR_JSON_NULL | KVR_JSON_MAP,
                   KVR_ROUTER_STORED, kvr_router_stored),
    kvr_json_field("removed", KVR_JSON_NULL | KVR_JSON_MAP,
                   KVR_ROUTER_REMOVED, kvr_router_removed),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_router_inner[] = {
    kvr_json_field("event_id", KVR_ROUTER_MAYBE,
                   KVR_ROUTER_EVENT_ID, NULL),
    kvr_json_field("data", KVR_JSON_STRING | KVR_JSON_MAP,
                   KVR_ROUTER_DATA, kvr_router_data),
    kvr_json_field("dp_rank", KVR_ROUTER_MAYBE,
                   KVR_ROUTER_RANK, NULL),
    kvr_json_fields_end
};

static const kvr_json_field_t  kvr_router_outer[] = {
    kvr_json_field("worker_id", KVR_JSON_NUMBER | KVR_JSON_STRING,
                   KVR_ROUTER_WORKER_ID, NULL),
    kvr_json_field("storage_tier", KVR_JSON_NULL | KVR_JSON_STRING,
                   KVR_ROUTER_TIER, NULL),
    kvr_json_field("event", KVR_JSON_MAP,
                   KVR_ROUTER_EVENT, kvr_router_inner),
    kvr_json_fields_end
};


static const kvr_json_events_t  kvr_router_events = {
    kvr_router_outer,
    kvr_router_event_begin,
    kvr_router_event_take,
    kvr_router_event_end,
    kvr_router_event_wrong
};


kvr_rc_t
kvr_router_event_open(kvr_decoder_t *d, kvr_why_t *why)
{
    return kvr_json_events_open(d, sizeof(kvr_router_event_t),
                                kvr_router_event_next, why);
}


static kvr_rc_t
kvr_router_event_next(kvr_decoder_t *d, kvr_event_t *ev)
{
    kvr_rc_t             rc;
    kvr_router_event_t  *r;

    r = d->state.data;
    r->ev = ev;

    rc = kvr_json_events_next(d, &kvr_router_events, ev);

    if (rc != KVR_OK || ev->verdict != KVR_KEEP) {
        return rc;
    }

    return kvr_router_event_verdict(d, ev);
}


static kvr_rc_t
kvr_router_event_verdict(kvr_decoder_t *d, kvr_event_t *ev)
{
    kvr_router_event_t  *r;

    r = d->state.data;

    ev->handles = d->handles.data;
    ev->locals = (ev->nlocals != 0) ? d->locals.data : NULL;

    if (ev->worker == NULL || r->lost_rank) {
        /* a number is of no use if its rank is unknown */
        ev->has_event_id = false;
    }

    if (r->foreign_tier) {
        return kvr_event_filter(d, ev, KVR_WHY_MEDIUM, "unknown storage_tier");
    }

    if (r->wrong != KVR_WHY_NONE) {
        return kvr_event_refuse(d, ev, r->wrong, r->detail);
    }

    if (ev->worker == NULL) {
        return kvr_event_refuse(d, ev, KVR_WHY_WORKER, "no worker_id");
    }

    if (!r->has_data) {
        return kvr_event_refuse(d, ev, KVR_WHY_TYPE,
                                "event data is missing or unknown");
    }

    if (ev->kind != KVR_CLEAR && !r->has_list) {
        return kvr_event_refuse(d, ev, KVR_WHY_SYNTAX,
                                "no blocks, or no block_hashes");
    }

    if (ev->nlocals != 0 && ev->nlocals != ev->nhandles) {
        return kvr_event_refuse(d, ev, KVR_WHY_LENGTH,
                                "a block without tokens_hash");
    }

    return KVR_OK;
}


static void
kvr_router_event_begin(kvr_decoder_t *d)
{
    kvr_router_event_t  *r;

    r = d->state.data;

    r->has_data = false;
    r->has_list = false;
    r->foreign_tier = false;
    r->lost_rank = false;
    r->wrong = KVR_WHY_NONE;
}


static void
kvr_router_event_take(kvr_decoder_t *d, uint32_t name,
    const kvr_json_value_t *v)
{
    kvr_router_event_t  *r;

    r = d->state.data;

    if (v->kind == KVR_JSON_NULL) {
        return;
    }

    switch (name) {

    case KVR_ROUTER_WORKER_ID:
        kvr_router_event_worker(d, v);
        break;

    case KVR_ROUTER_TIER:
        kvr_router_event_tier(d, v);
        break;

    case KVR_ROUTER_DATA:
        if (v->kind == KVR_JSON_STRING && v->len == 7
            && memcmp(v->text, "cleared", 7) == 0)
        {
            kvr_router_event_data(d, KVR_CLEAR);
        }

        break;

    case KVR_ROUTER_STORED:
        kvr_router_event_data(d, KVR_STORE);
        break;

    case KVR_ROUTER_REMOVED:
        kvr_router_event_data(d, KVR_REMOVE);
        break;

    case KVR_ROUTER_BLOCKS:
    case KVR_ROUTER_HASHES:
        r->has_list = true;
        break;

    case KVR_ROUTER_BLOCK:
        r->has_handle = false;
        r->has_local = false;
        break;

    case KVR_ROUTER_EVENT:
        break;

    default:
        kvr_router_event_number(d, name, v);
        break;
    }
}


static void
kvr_router_event_number(kvr_decoder_t *d, uint32_t name,
    const kvr_json_value_t *v)
{
    uint64_t             n;
    kvr_event_t         *ev;
    kvr_router_event_t  *r;

    r = d->state.data;
    ev = r->ev;

    if (!kvr_u64_parse(v->text, v->len, &n)) {
        kvr_router_event_wrong(d, name, KVR_WHY_SYNTAX,
                               "not an unsigned 64 bit integer");
        return;
    }

    switch (name) {

    case KVR_ROUTER_EVENT_ID:
        ev->has_event_id = true;
        ev->event_id = n;
        break;

    case KVR_ROUTER_RANK:
        if (n >= KVR_RANKS_MAX) {
            kvr_router_event_wrong(d, name, KVR_WHY_RANK,
                                   "dp_rank out of range");
            break;
        }

        ev->rank = (uint32_t) n;
        break;

    case KVR_ROUTER_PARENT:
        ev->has_parent = true;
        ev->parent = n;
        break;

    case KVR_ROUTER_BLOCK_HASH:
        r->has_handle = true;
        r->handle = n;
        break;

    case KVR_ROUTER_TOKENS_HASH:
        r->has_local = true;
        r->local = n;
        break;

    default: /* KVR_ROUTER_HASH */
        kvr_router_event_append(d, &d->handles, &ev->nhandles, n);
        break;
    }
}


static void
kvr_router_event_end(kvr_decoder_t *d, uint32_t name)
{
    kvr_router_event_t  *r;

    if (name != KVR_ROUTER_BLOCK) {
        return;
    }

    r = d->state.data;

    if (!r->has_handle) {
        kvr_router_event_wrong(d, 0, KVR_WHY_SYNTAX,
                               "a block without block_hash");
        return;
    }

    kvr_router_event_append(d, &d->handles, &r->ev->nhandles, r->handle);

    if (r->has_local) {
        kvr_router_event_append(d, &d->locals, &r->ev->nlocals, r->local);
    }
}


/* The first thing that is wrong with an event stays. */

static void
kvr_router_event_wrong(kvr_decoder_t *d, uint32_t name, kvr_why_t why,
    const char *detail)
{
    kvr_router_event_t  *r;

    r = d->state.data;

    if (r->wrong == KVR_WHY_NONE) {
        r->wrong = why;
        r->detail = (name == KVR_ROUTER_BLOCK) ? "block is not an object"
                                               : detail;
    }

    if (name == KVR_ROUTER_RANK) {
        r->lost_rank = true;
    }
}


static void
kvr_router_event_data(kvr_decoder_t *d, kvr_event_kind_t kind)
{
    kvr_router_event_t  *r;

    r = d->state.data;

    if (r->has_data) {
        kvr_router_event_wrong(d, KVR_ROUTER_DATA, KVR_WHY_SYNTAX,
                               "event data given twice");
    }

    r->has_data = true;
    r->ev->kind = kind;
}


static void
kvr_router_event_worker(kvr_decoder_t *d, const kvr_json_value_t *v)
{
    uint64_t             n;
    kvr_router_event_t  *r;

    r = d->state.data;

    if (v->kind == KVR_JSON_NUMBER && !kvr_u64_parse(v->text, v->len, &n)) {
        kvr_router_event_wrong(d, KVR_ROUTER_WORKER_ID, KVR_WHY_SYNTAX,
                               "not an unsigned 64 bit integer");
        return;
    }

    if (!kvr_worker_id_valid(v->text, v->len)) {
        kvr_router_event_wrong(d, KVR_ROUTER_WORKER_ID, KVR_WHY_WORKER,
                               "invalid worker_id");
        return;
    }

    memcpy(r->worker, v->text, v->len);
    r->ev->worker = r->worker;
    r->ev->worker_len = v->len;
}


static void
kvr_router_event_tier(kvr_decoder_t *d, const kvr_json_value_t *v)
{
    uint32_t             tier;
    kvr_router_event_t  *r;

    r = d->state.data;
    r->foreign_tier = !kvr_word_at(kvr_router_event_tiers, v->text, v->len,
                                   &tier);

    if (!r->foreign_tier) {
        r->ev->tier = (kvr_tier_t) tier;
    }
}


static void
kvr_router_event_append(kvr_decoder_t *d, kvr_scratch_t *to, uint32_t *n,
    uint64_t value)
{
    const char  *detail;

    detail = kvr_scratch_append(to, n, value);

    if (detail != NULL) {
        kvr_router_event_wrong(d, 0, KVR_WHY_LIMIT, detail);
    }
}
