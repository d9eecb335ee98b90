/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include "wire/kvr_msgpack.h"

#include <stdlib.h>


#define KVR_RELAY_FIELDS  8             /* of an envelope */


static bool kvr_relay_tail_entry(kvr_relay_t *r, const redisReply *entry);
static void kvr_relay_tail_one(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_part_t *part);


void
kvr_relay_tail_begin(kvr_relay_t *r, uint64_t epoch, uint64_t seq)
{
    kvr_relay_tail_free(r);

    r->tail.epoch = epoch;
    r->tail.seq = seq;
}


void
kvr_relay_tail_free(kvr_relay_t *r)
{
    kvr_relay_parts_free(&r->tail.entries);
    r->tail.bytes = 0;
}


bool
kvr_relay_tail_page(kvr_relay_t *r, const redisReply *reply)
{
    size_t  i;

    if (reply->type != REDIS_REPLY_ARRAY) {
        return false;
    }

    for (i = 0; i < reply->elements; i++) {
        if (!kvr_relay_tail_entry(r, reply->element[i])) {
            return false;
        }
    }

    return reply->elements != 0;
}


/*
 * Takes [id, [field, value]]: the next entry of the epoch.  Any other entry
 * ends the tail.
 */

static bool
kvr_relay_tail_entry(kvr_relay_t *r, const redisReply *entry)
{
    char                *end;
    uint64_t             epoch, seq;
    const redisReply    *id, *fields, *value;
    kvr_relay_tail_t    *t;

    t = &r->tail;

    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2) {
        return false;
    }

    id = entry->element[0];
    fields = entry->element[1];

    if (id->type != REDIS_REPLY_STRING || fields->type != REDIS_REPLY_ARRAY
        || fields->elements != 2
        || fields->element[1]->type != REDIS_REPLY_STRING)
    {
        return false;
    }

    value = fields->element[1];
    epoch = strtoull(id->str, &end, 10);
    seq = *end == '-' ? strtoull(end + 1, NULL, 10) : 0;

    if (epoch != t->epoch || seq != t->seq + 1
        || t->bytes + value->len > r->options.ring)
    {
        return false;
    }

    if (!kvr_relay_parts_add(&t->entries, value->str, value->len)) {
        return false;
    }

    t->bytes += value->len;
    t->seq = seq;

    return true;
}


void
kvr_relay_tail_apply(kvr_relay_t *r, kvr_relay_source_t *s)
{
    uint32_t  i;

    if (s->tailed || r->tail.entries.n == 0) {
        return;
    }

    s->tailed = true;
    kvr_relay_source_step(s, KVR_RELAY_STEP_BROKEN);

    for (i = 0; i < r->tail.entries.n; i++) {
        kvr_relay_tail_one(r, s, &r->tail.entries.items[i]);
    }

    kvr_relay_log(KVR_RELAY_INFO, "log applied", "rank=%u envelopes=%u "
                  "seq=%llu", s->index, i, (unsigned long long) s->seq);
}


/* Reads the last fields of an envelope, which decoders pass over. */

static void
kvr_relay_tail_one(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_relay_part_t *part)
{
    uint32_t             i;
    kvr_msgpack_t        in;
    kvr_msgpack_item_t   frame, item[KVR_RELAY_FIELDS];

    in.pos = part->bytes;
    in.left = part->len;

    if (kvr_msgpack_read(&in, &frame) != KVR_OK
        || frame.type != MPACK_TOKEN_ARRAY || frame.count < KVR_RELAY_FIELDS)
    {
        return;
    }

    for (i = 0; i < KVR_RELAY_FIELDS; i++) {
        if (kvr_msgpack_read(&in, &item[i]) != KVR_OK) {
            return;
        }
    }

    if (item[6].type != MPACK_TOKEN_BIN) {
        return;
    }

    kvr_relay_mirror_load_ranks(&r->mirror, item[6].bytes, item[6].count,
                                s->index, s->nranks);

    if (item[5].type == MPACK_TOKEN_UINT && item[5].number == s->index
        && item[7].type == MPACK_TOKEN_UINT
        && (!s->known || item[7].number > s->seq))
    {
        s->known = true;
        s->seq = item[7].number;
        s->digest = 0;
    }
}
