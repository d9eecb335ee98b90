/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include "wire/kvr_pointer.h"

#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_SNAPSHOT_MS       2000    /* between two of them */
#define KVR_RELAY_SNAPSHOT_PARTS    8       /* on their way at a time */
/* the maximum age of a snapshot: half of KVR_RELAY_KEEP_SECONDS */
#define KVR_RELAY_SNAPSHOT_AGE_MS   (12 * 3600 * 1000)
/* parts expire after so long unless the pointer names them */
#define KVR_RELAY_PART_SECONDS      "600"
#define KVR_RELAY_SNAPSHOT_READ                                               \
    "redis.call('hmget', KEYS[2], '" KVR_FIELD_EPOCH "', '" KVR_FIELD_SEQ "'" \
    ", '" KVR_FIELD_PARTS "', '" KVR_FIELD_STATE_PARTS "')"
#define KVR_RELAY_ENGINE_SEQ        32      /* bytes of one rank */


static bool kvr_relay_snapshot_take(kvr_relay_t *r);
static kvr_rc_t kvr_relay_snapshot_put(void *data, const kvr_event_t *ev);
static void kvr_relay_snapshot_failed(kvr_relay_t *r, const char *why,
    const redisReply *reply);
static void kvr_relay_snapshot_part(kvr_relay_t *r, uint32_t i);
static void kvr_relay_snapshot_wrote(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_snapshot_point(kvr_relay_t *r);
static void kvr_relay_snapshot_pointed(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_snapshot_trimmed(kvr_relay_t *r, void *data,
    const redisReply *reply);


/*
 * KEYS: lease, pointer.  ARGV: token, the pointer's epoch and number, its
 * fields.  Returns 0 when another relay has the lease or wrote the pointer, or
 * when the command comes late by a connection that was given up.
 */
static const char  kvr_relay_snapshot_script[] =
    "local t = redis.call('get', KEYS[1])\n"
    "local o = " KVR_RELAY_SNAPSHOT_READ "\n"
    "local e, s = tonumber(o[1]) or 0, tonumber(o[2]) or 0\n"
    "local to = tonumber(ARGV[2])\n"
    "if (t and t ~= ARGV[1]) or e > to"
    " or (e == to and s > tonumber(ARGV[3])) then return 0 end\n"
    "redis.call('del', KEYS[2])\n"
    "redis.call('hset', KEYS[2], unpack(ARGV, 4))\n"
    "local n = " KVR_RELAY_SNAPSHOT_READ "\n"
    "local function each(p, what)\n"
    "  local at = KEYS[2] .. ':' .. p[1] .. '-' .. p[2] .. ':'\n"
    "  for i = 0, (tonumber(p[3]) or 0) - 1 do what(at .. i) end\n"
    "  for i = 0, (tonumber(p[4]) or 0) - 1 do what(at .. 's' .. i) end\n"
    "end\n"
    "if o[1] and o[2] then\n"
    "  each(o, function(k) redis.call('expire', k, 60) end)\n"
    "end\n"
    "local keep = '" KVR_RELAY_KEEP_SECONDS "'\n"
    "each(n, function(k) redis.call('expire', k, keep) end)\n"
    "redis.call('expire', KEYS[2], keep)\n"
    "return 1\n";


void
kvr_relay_snapshot_want(kvr_relay_t *r, const char *why)
{
    if (!r->snapshot.wanted) {
        kvr_relay_log(KVR_RELAY_DEBUG, "snapshot wanted", "why=\"%s\"", why);
    }

    r->snapshot.wanted = true;
    kvr_relay_wake(r, r->snapshot.due_ms);
}


void
kvr_relay_snapshot_tick(kvr_relay_t *r)
{
    kvr_relay_snapshot_t  *s;

    s = &r->snapshot;

    if (s->writing && s->based != r->publisher.generation) {
        kvr_relay_snapshot_abort(r);
    }

    if (r->publisher.state != KVR_RELAY_OPEN || !r->publisher.resumed
        || !r->redis.up)
    {
        return;
    }

    if (s->writing) {
        return;
    }

    if (r->publisher.seq - s->seq >= r->options.snapshot_interval
        || r->now_ms - s->since_ms >= KVR_RELAY_SNAPSHOT_AGE_MS)
    {
        s->wanted = true;
    }

    if (!s->wanted) {
        return;
    }

    if (r->now_ms >= s->due_ms) {
        kvr_relay_snapshot_start(r, false);

    } else {
        kvr_relay_wake(r, s->due_ms);
    }
}


void
kvr_relay_snapshot_start(kvr_relay_t *r, bool base)
{
    uint32_t               i;
    kvr_relay_snapshot_t  *s;

    s = &r->snapshot;

    kvr_relay_snapshot_abort(r);

    s->wanted = false;
    s->writing = true;
    s->base = base;
    s->based = r->publisher.generation;
    s->at_epoch = r->publisher.epoch;
    s->at_seq = r->publisher.seq;
    s->complete = kvr_relay_complete(r, NULL);
    s->since_ms = r->now_ms;
    s->due_ms = r->now_ms + KVR_RELAY_SNAPSHOT_MS;

    if (!kvr_relay_snapshot_take(r)) {
        kvr_relay_snapshot_failed(r, "out of memory", NULL);
        return;
    }

    if (s->parts.n + s->state.n == 0) {
        kvr_relay_snapshot_point(r);
        return;
    }

    for (i = 0; i < KVR_RELAY_SNAPSHOT_PARTS && s->writing; i++) {
        if (s->next < s->parts.n + s->state.n) {
            kvr_relay_snapshot_part(r, s->next++);
        }
    }
}


static bool
kvr_relay_snapshot_take(kvr_relay_t *r)
{
    bool                    good;
    char                   *p;
    size_t                  size;
    uint32_t                i;
    kvr_relay_batch_t       batch;
    kvr_relay_snapshot_t   *s;

    s = &r->snapshot;
    s->blocks = kvr_relay_mirror_blocks(&r->mirror);

    if (!kvr_relay_batch_init(&batch, kvr_relay_parts_add, &s->parts)) {
        return false;
    }

    good = kvr_relay_mirror_dump(&r->mirror, kvr_relay_snapshot_put, &batch)
           == KVR_OK;

    if (good && kvr_relay_batch_end(&batch)) {
        good = kvr_relay_parts_add(&s->parts, batch.bytes, batch.len)
               == KVR_OK;
    }

    kvr_relay_batch_free(&batch);

    if (!good || !kvr_relay_state_save(r, &s->state)) {
        return false;
    }

    size = (size_t) (r->nsources + 1) * KVR_RELAY_ENGINE_SEQ;
    s->engine_seq = malloc(size);
    if (s->engine_seq == NULL) {
        return false;
    }

    p = s->engine_seq;
    *p++ = '{';

    for (i = 0; i < r->nsources; i++) {
        if (r->sources[i].known) {
            p += sprintf(p, "%s\"%u\":%llu", p[-1] == '{' ? "" : ",", i,
                         (unsigned long long) r->sources[i].seq);
        }
    }

    *p++ = '}';
    *p = '\0';

    return true;
}


static kvr_rc_t
kvr_relay_snapshot_put(void *data, const kvr_event_t *ev)
{
    return kvr_relay_batch_add(data, &ev->change) ? KVR_OK : KVR_ERROR;
}


/*
 * Does the answer come too late to count?  The snapshot was given up
 * meanwhile, or Redis has lost data since.
 */

static bool
kvr_relay_snapshot_late(const kvr_relay_t *r, const void *data)
{
    const kvr_relay_snapshot_t  *s;

    s = &r->snapshot;

    return !s->writing || (uintptr_t) data != s->generation
           || s->based != r->publisher.generation;
}


void
kvr_relay_snapshot_abort(kvr_relay_t *r)
{
    kvr_relay_snapshot_t  *s;

    s = &r->snapshot;

    kvr_relay_parts_free(&s->parts);
    kvr_relay_parts_free(&s->state);
    free(s->engine_seq);

    s->engine_seq = NULL;
    s->writing = false;
    s->pointing = false;
    s->next = 0;
    s->outstanding = 0;
    s->generation++;
}


static void
kvr_relay_snapshot_failed(kvr_relay_t *r, const char *why,
    const redisReply *reply)
{
    bool  base;
    char  quoted[KVR_RELAY_QUOTED];

    base = r->snapshot.base;

    r->counters.snapshots_failed++;

    kvr_relay_log(KVR_RELAY_WARN, "snapshot failed", "why=\"%s\" answer=%s",
                  why, kvr_relay_quote(quoted, reply ? reply->str : "",
                                       reply ? reply->len : 0));

    kvr_relay_snapshot_abort(r);

    if (base) {
        r->publisher.retry_ms = r->now_ms + KVR_RELAY_SNAPSHOT_MS;
        kvr_relay_publisher_unbase(r, false);
    }

    r->snapshot.wanted = true;
    r->snapshot.due_ms = r->now_ms + KVR_RELAY_SNAPSHOT_MS;
    kvr_relay_wake(r, r->snapshot.due_ms);
}


/*
 * Writes part i: the parts of the batches come first, then the parts of the
 * state.
 */

static void
kvr_relay_snapshot_part(kvr_relay_t *r, uint32_t i)
{
    char                   key[KVR_KEY_MAX];
    bool                   state;
    kvr_relay_part_t      *part;
    kvr_relay_snapshot_t  *s;

    s = &r->snapshot;
    state = i >= s->parts.n;
    part = state ? &s->state.items[i - s->parts.n] : &s->parts.items[i];

    (void) kvr_key_part(key, r->options.worker, strlen(r->options.worker),
                        s->at_epoch, s->at_seq, state,
                        state ? i - s->parts.n : i);

    s->outstanding++;

    kvr_relay_redis_bytes(r, kvr_relay_snapshot_wrote,
                          (void *) (uintptr_t) s->generation, part->bytes,
                          part->len, "SET", key, part->bytes, "EX",
                          KVR_RELAY_PART_SECONDS, NULL);
}


static void
kvr_relay_snapshot_wrote(kvr_relay_t *r, void *data, const redisReply *reply)
{
    kvr_relay_snapshot_t  *s;

    s = &r->snapshot;

    if (reply == NULL || kvr_relay_snapshot_late(r, data)) {
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        kvr_relay_snapshot_failed(r, "part", reply);
        return;
    }

    s->outstanding--;

    if (s->next < s->parts.n + s->state.n) {
        kvr_relay_snapshot_part(r, s->next++);

    } else if (s->outstanding == 0) {
        kvr_relay_snapshot_point(r);
    }
}


static void
kvr_relay_snapshot_point(kvr_relay_t *r)
{
    char                   number[6][24];
    uint32_t               i, n;
    const char            *argv[8 + 2 * KVR_POINTER_FIELDS];
    const char            *values[KVR_POINTER_FIELDS];
    kvr_relay_snapshot_t  *s;

    s = &r->snapshot;
    s->pointing = true;

    snprintf(number[0], 24, "%llu", (unsigned long long) s->at_epoch);
    snprintf(number[1], 24, "%llu", (unsigned long long) s->at_seq);
    snprintf(number[2], 24, "%u", s->parts.n);
    snprintf(number[3], 24, "%u", s->state.n);
    snprintf(number[4], 24, "%llu", (unsigned long long) s->blocks);
    snprintf(number[5], 24, "%d", KVR_SNAPSHOT_VERSION);

    n = 0;
    argv[n++] = "EVAL";
    argv[n++] = kvr_relay_snapshot_script;
    argv[n++] = "2";
    argv[n++] = r->session.lease_key;
    argv[n++] = r->session.snap_key;
    argv[n++] = r->session.token;
    argv[n++] = number[0];
    argv[n++] = number[1];

    values[KVR_POINTER_VERSION] = number[5];
    values[KVR_POINTER_EPOCH] = number[0];
    values[KVR_POINTER_SEQ] = number[1];
    values[KVR_POINTER_COMPLETE] = s->complete ? "1" : "0";
    values[KVR_POINTER_NPARTS] = number[2];
    values[KVR_POINTER_BLOCK_SIZE] = r->session.block_size;
    values[KVR_POINTER_EAGLE] = r->options.eagle ? "1" : "0";
    values[KVR_POINTER_HYBRID] = kvr_relay_mirror_hybrid(&r->mirror)
                                 ? "1" : "0";
    values[KVR_POINTER_STATE_PARTS] = number[3];
    values[KVR_POINTER_BLOCKS] = number[4];
    values[KVR_POINTER_ENGINE_SEQ] = s->engine_seq;

    for (i = 0; i < KVR_POINTER_FIELDS; i++) {
        argv[n++] = kvr_pointer_fields[i];
        argv[n++] = values[i];
    }

    kvr_relay_redis_argv(r, kvr_relay_snapshot_pointed,
                         (void *) (uintptr_t) s->generation, (int) n, argv,
                         NULL);
}


static void
kvr_relay_snapshot_pointed(kvr_relay_t *r, void *data, const redisReply *reply)
{
    bool                   base;
    char                   id[48];
    kvr_relay_snapshot_t  *s;

    s = &r->snapshot;

    if (reply == NULL || kvr_relay_snapshot_late(r, data)) {
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        kvr_relay_snapshot_failed(r, "pointer", reply);
        return;
    }

    if (reply->type != REDIS_REPLY_INTEGER || reply->integer != 1) {
        kvr_relay_log(KVR_RELAY_ERROR, "superseded", "by=lease");
        kvr_relay_exit(r, KVR_RELAY_SUPERSEDED);
        return;
    }

    s->epoch = s->at_epoch;
    s->seq = s->at_seq;
    s->in_complete = s->complete;
    base = s->base;

    r->counters.snapshots++;

    kvr_relay_log(KVR_RELAY_INFO, "snapshot", "epoch=%llu seq=%llu complete=%d"
                  " blocks=%llu parts=%u ms=%llu",
                  (unsigned long long) s->epoch, (unsigned long long) s->seq,
                  s->complete, (unsigned long long) s->blocks, s->parts.n,
                  (unsigned long long) (r->now_ms - s->since_ms));

    kvr_relay_snapshot_abort(r);

    snprintf(id, sizeof(id), "%llu-%llu", (unsigned long long) s->epoch,
             (unsigned long long) s->seq + 1);

    kvr_relay_redis_args(r, kvr_relay_snapshot_trimmed, NULL, "XTRIM",
                         r->session.log_key, "MINID", "~", id, NULL);

    kvr_relay_publisher_covered(r, s->seq, base);
    s->news = true;
}


static void
kvr_relay_snapshot_trimmed(kvr_relay_t *r, void *data, const redisReply *reply)
{
    kvr_relay_redis_spared("XTRIM", "the log grows", &r->session.untrimmed,
                           reply);
}
