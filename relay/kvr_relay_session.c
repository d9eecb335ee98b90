/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include "wire/kvr_pointer.h"
#include "wire/kvr_worker_conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>


#define KVR_RELAY_BEAT_MS      1000
#define KVR_RELAY_LEASE_MS     "5000"
#define KVR_RELAY_LEASE_S      "5"
#define KVR_RELAY_MEMBER_TTL   "15"     /* seconds */
/* the maximum number of parts of a snapshot */
#define KVR_RELAY_PARTS_MAX    1000000


static void kvr_relay_session_lease(kvr_relay_t *r);
static void kvr_relay_session_leased(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_session_rival(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_session_look(kvr_relay_t *r);
static void kvr_relay_session_saw_log(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_session_saw_worker(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_session_saw_snap(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_session_part(kvr_relay_t *r);
static void kvr_relay_session_loaded(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_session_unloaded(kvr_relay_t *r, const char *why);
static void kvr_relay_session_start(kvr_relay_t *r);
static void kvr_relay_session_resume(kvr_relay_t *r);
static void kvr_relay_session_beat(kvr_relay_t *r);
static void kvr_relay_session_beaten(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_session_asked(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_session_left(kvr_relay_t *r, void *data,
    const redisReply *reply);
static bool kvr_relay_session_bad(kvr_relay_t *r, const redisReply *reply);
static uint64_t kvr_relay_session_number(const redisReply *reply);
static bool kvr_relay_session_never(kvr_relay_t *r, const char *key,
    uint64_t epoch);


/*
 * KEYS: lease, worker, workers, snapshot, log.  ARGV: token, the lease's ms,
 * the worker's seconds, worker, epoch, the log's seconds, the fields of
 * kv-worker (no fields: the lease only).  Returns 0 when another relay has the
 * lease, or when the relay that has it is gone.
 */
static const char  kvr_relay_beat_script[] =
    "local t = redis.call('get', KEYS[1])\n"
    "if t and t ~= ARGV[1] then return 0 end\n"
    "local e = tonumber(ARGV[5])\n"
    "if not t and e > 0"
    " and (tonumber(redis.call('hget', KEYS[4], '" KVR_FIELD_EPOCH "') or 0)"
    " or 0) > e"
    " then return 0 end\n"
    "redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])\n"
    "redis.call('expire', KEYS[5], ARGV[6])\n"
    "if #ARGV > 6 then\n"
    "  redis.call('hset', KEYS[2], unpack(ARGV, 7))\n"
    "  redis.call('expire', KEYS[2], ARGV[3])\n"
    "  redis.call('sadd', KEYS[3], ARGV[4])\n"
    "end\n"
    "return 1\n";

/* KEYS: lease, worker, workers.  ARGV: token, worker. */
static const char  kvr_relay_leave_script[] =
    "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end\n"
    "redis.call('del', KEYS[1])\n"
    "redis.call('srem', KEYS[3], ARGV[2])\n"
    "redis.call('del', KEYS[2])\n"
    "return 1\n";


bool
kvr_relay_session_init(kvr_relay_t *r)
{
    uint32_t              i;
    uint8_t               random[16];
    size_t                len;
    const char           *w;
    kvr_relay_session_t  *s;

    s = &r->session;
    w = r->options.worker;
    len = strlen(w);

    memset(s, 0, sizeof(kvr_relay_session_t));

    if (getrandom(random, sizeof(random), 0) != (ssize_t) sizeof(random)) {
        return false;
    }

    for (i = 0; i < sizeof(random); i++) {
        sprintf(&s->token[i * 2], "%02x", random[i]);
    }

    snprintf(s->block_size, sizeof(s->block_size), "%u",
             r->options.block_size);
    snprintf(s->channel, KVR_RELAY_KEY, "%s%s", r->options.channel, w);
    (void) kvr_key(s->lease_key, KVR_KEY_LEASE, w, len);
    (void) kvr_key(s->worker_key, KVR_KEY_WORKER, w, len);
    (void) kvr_key(s->snap_key, KVR_KEY_SNAPSHOT, w, len);
    (void) kvr_key(s->ask_key, KVR_KEY_ASK, w, len);
    (void) kvr_key(s->log_key, KVR_KEY_LOG, w, len);

    return true;
}


void
kvr_relay_session_up(kvr_relay_t *r)
{
    if (r->session.phase == KVR_RELAY_LEAVING) {
        kvr_relay_session_leave(r);
        return;
    }

    if (r->session.started) {
        r->session.phase = KVR_RELAY_CHECK;
        kvr_relay_session_beat(r);
        kvr_relay_session_look(r);
        return;
    }

    r->session.phase = KVR_RELAY_LEASE;
    r->session.beat_ms = r->now_ms;
    kvr_relay_wake(r, r->now_ms);
}


void
kvr_relay_session_down(kvr_relay_t *r)
{
    if (r->session.phase == KVR_RELAY_LOAD) {
        kvr_relay_mirror_clear_all(&r->mirror);
        kvr_relay_source_forget(r);
    }

    if (r->session.phase != KVR_RELAY_LEAVING) {
        r->session.phase = KVR_RELAY_NOWHERE;
    }

    if (r->snapshot.writing) {
        kvr_relay_snapshot_want(r, "one was cut off");
    }

    kvr_relay_snapshot_abort(r);
    kvr_relay_publisher_down(r);
}


void
kvr_relay_session_tick(kvr_relay_t *r)
{
    kvr_relay_session_t  *s;

    s = &r->session;

    if (!r->redis.up || s->phase == KVR_RELAY_NOWHERE
        || s->phase == KVR_RELAY_LEAVING)
    {
        return;
    }

    if (r->now_ms >= s->beat_ms) {
        s->beat_ms = r->now_ms + KVR_RELAY_BEAT_MS;

        if (s->phase == KVR_RELAY_LEASE) {
            kvr_relay_session_lease(r);

        } else {
            kvr_relay_session_beat(r);
        }
    }

    kvr_relay_wake(r, s->beat_ms);
}


void
kvr_relay_session_beat_now(kvr_relay_t *r)
{
    r->session.beat_ms = r->now_ms;
    kvr_relay_wake(r, r->now_ms);
}


/* ---- lease -------------------------------------------------------------- */

static void
kvr_relay_session_lease(kvr_relay_t *r)
{
    kvr_relay_redis_args(r, kvr_relay_session_leased, NULL, "SET",
                         r->session.lease_key, r->session.token, "NX", "PX",
                         KVR_RELAY_LEASE_MS, NULL);
}


static void
kvr_relay_session_leased(kvr_relay_t *r, void *data, const redisReply *reply)
{
    kvr_relay_session_t  *s;

    s = &r->session;

    if (s->phase != KVR_RELAY_LEASE || kvr_relay_session_bad(r, reply)) {
        return;
    }

    if (reply->type == REDIS_REPLY_STATUS) {
        kvr_relay_log(KVR_RELAY_INFO, "lease taken", NULL);

        s->phase = KVR_RELAY_LOAD;
        kvr_relay_session_look(r);
        return;
    }

    /*
     * Shortens a lease whose time is too long because Redis's clock was set
     * back.  LT is of Redis 7.0; before 7.0 the lease ends at its own time.
     */

    kvr_relay_redis_args(r, NULL, NULL, "EXPIRE", s->lease_key,
                         KVR_RELAY_LEASE_S, "LT", NULL);

    if (!s->standby) {
        s->standby = true;
        kvr_relay_log(KVR_RELAY_INFO, "standby", "why=\"another relay of this "
                      "worker has the lease\"");
    }

    if (!s->rival && *r->options.address) {
        kvr_relay_redis_args(r, kvr_relay_session_rival, NULL, "HGET",
                             s->worker_key,
                             kvr_member_word(KVR_MEMBER_ADDRESS), NULL);
    }
}


/* A standby: is the relay that has the lease one of another engine? */

static void
kvr_relay_session_rival(kvr_relay_t *r, void *data, const redisReply *reply)
{
    if (kvr_relay_session_bad(r, reply) || reply->type != REDIS_REPLY_STRING
        || reply->len == 0 || strcmp(reply->str, r->options.address) == 0)
    {
        return;
    }

    r->session.rival = true;

    kvr_relay_log(KVR_RELAY_WARN, "another engine has this worker's id",
                  "worker=\"%s\" address=\"%s\" other=\"%s\" remedy=\"events "
                  "of this engine are not published: give each engine a "
                  "--worker of its own\"", r->options.worker,
                  r->options.address, kvr_relay_shown(reply->str));
}


/* ---- what is there ------------------------------------------------------ */

static void
kvr_relay_session_look(kvr_relay_t *r)
{
    uint32_t              i;
    const char           *argv[2 + KVR_POINTER_RELAY];
    kvr_relay_session_t  *s;

    s = &r->session;
    s->log_epoch = 0;
    s->log_seq = 0;
    s->snap_epoch = 0;
    s->snap_seq = 0;
    s->parts = 0;
    s->state_parts = 0;
    s->next = 0;

    kvr_relay_redis_args(r, kvr_relay_session_saw_worker, NULL, "HGET",
                         s->worker_key, kvr_member_word(KVR_MEMBER_EPOCH),
                         NULL);
    kvr_relay_redis_args(r, kvr_relay_session_saw_log, NULL, "XREVRANGE",
                         s->log_key, "+", "-", "COUNT", "1", NULL);

    argv[0] = "HMGET";
    argv[1] = s->snap_key;

    for (i = 0; i < KVR_POINTER_RELAY; i++) {
        argv[2 + i] = kvr_pointer_fields[i];
    }

    kvr_relay_redis_argv(r, kvr_relay_session_saw_snap, NULL,
                         2 + KVR_POINTER_RELAY, argv, NULL);
}


static void
kvr_relay_session_saw_worker(kvr_relay_t *r, void *data,
    const redisReply *reply)
{
    uint64_t  epoch;

    if (!kvr_relay_session_bad(r, reply)) {
        epoch = kvr_relay_session_number(reply);
        r->session.worker_epoch = epoch < KVR_EPOCH_MAX ? epoch : 0;
    }
}


/* [[id, [field, value]]] */

static void
kvr_relay_session_saw_log(kvr_relay_t *r, void *data, const redisReply *reply)
{
    char                 *end;
    const redisReply     *id;
    kvr_relay_session_t  *s;

    s = &r->session;

    if (kvr_relay_session_bad(r, reply) || reply->type != REDIS_REPLY_ARRAY
        || reply->elements == 0
        || reply->element[0]->type != REDIS_REPLY_ARRAY
        || reply->element[0]->elements == 0)
    {
        return;
    }

    id = reply->element[0]->element[0];

    if (id->type == REDIS_REPLY_STRING) {
        s->log_epoch = strtoull(id->str, &end, 10);
        s->log_seq = *end == '-' ? strtoull(end + 1, NULL, 10) : 0;

        if (kvr_relay_session_never(r, s->log_key, s->log_epoch)) {
            s->log_epoch = 0;
            s->log_seq = 0;
        }
    }
}


static void
kvr_relay_session_saw_snap(kvr_relay_t *r, void *data, const redisReply *reply)
{
    char                  why[KVR_POINTER_WHY];
    uint32_t              i;
    uint64_t              n[KVR_POINTER_RELAY];
    kvr_relay_session_t  *s;

    s = &r->session;
    memset(n, 0, sizeof(n));

    if (kvr_relay_session_bad(r, reply)) {
        return;
    }

    if (reply->type == REDIS_REPLY_ARRAY
        && reply->elements == KVR_POINTER_RELAY)
    {
        for (i = 0; i < KVR_POINTER_RELAY; i++) {
            n[i] = kvr_relay_session_number(reply->element[i]);
        }

        s->snap_epoch = n[KVR_POINTER_EPOCH];
        s->snap_seq = n[KVR_POINTER_SEQ];

        if (kvr_relay_session_never(r, s->snap_key, s->snap_epoch)) {
            s->snap_epoch = 0;
            s->snap_seq = 0;
        }
    }

    if (s->phase == KVR_RELAY_CHECK) {
        s->phase = KVR_RELAY_READY;
        kvr_relay_session_resume(r);
        return;
    }

    if (s->phase != KVR_RELAY_LOAD) {
        return;
    }

    if (s->snap_epoch == 0) {
        kvr_relay_session_start(r);
        return;
    }

    if (n[KVR_POINTER_VERSION] != KVR_SNAPSHOT_VERSION) {
        snprintf(why, sizeof(why), "the snapshot is of version %llu, and this "
                 "relay reads %d", (unsigned long long)
                 n[KVR_POINTER_VERSION], KVR_SNAPSHOT_VERSION);
        kvr_relay_session_unloaded(r, why);
        return;
    }

    if (n[KVR_POINTER_BLOCK_SIZE] != r->options.block_size
        || n[KVR_POINTER_EAGLE] != r->options.eagle
        || n[KVR_POINTER_NPARTS] > KVR_RELAY_PARTS_MAX
        || n[KVR_POINTER_STATE_PARTS] > KVR_RELAY_PARTS_MAX)
    {
        kvr_relay_session_unloaded(r, "another block size, or eagle");
        return;
    }

    s->parts = (uint32_t) n[KVR_POINTER_NPARTS];
    s->state_parts = (uint32_t) n[KVR_POINTER_STATE_PARTS];

    kvr_relay_session_part(r);
}


/* ---- loading ------------------------------------------------------------ */

static void
kvr_relay_session_part(kvr_relay_t *r)
{
    char                  key[KVR_KEY_MAX];
    bool                  state;
    kvr_relay_session_t  *s;

    s = &r->session;

    if (s->next == s->parts + s->state_parts) {

        kvr_relay_state_loaded(r);

        kvr_relay_log(KVR_RELAY_INFO, "snapshot loaded", "epoch=%llu "
                      "seq=%llu blocks=%llu",
                      (unsigned long long) s->snap_epoch,
                      (unsigned long long) s->snap_seq,
                      (unsigned long long)
                      kvr_relay_mirror_blocks(&r->mirror));

        kvr_relay_session_start(r);
        return;
    }

    state = s->next >= s->parts;

    (void) kvr_key_part(key, r->options.worker, strlen(r->options.worker),
                        s->snap_epoch, s->snap_seq, state,
                        state ? s->next - s->parts : s->next);

    kvr_relay_redis_args(r, kvr_relay_session_loaded, NULL, "GET", key, NULL);
}


static void
kvr_relay_session_loaded(kvr_relay_t *r, void *data, const redisReply *reply)
{
    bool                  good;
    const char           *why;
    kvr_relay_session_t  *s;

    s = &r->session;

    if (s->phase != KVR_RELAY_LOAD || kvr_relay_session_bad(r, reply)) {
        return;
    }

    if (reply->type != REDIS_REPLY_STRING) {
        kvr_relay_session_unloaded(r, "a part is not there");
        return;
    }

    why = "a part is broken";
    good = s->next < s->parts
           ? kvr_relay_mirror_load(&r->mirror, reply->str, reply->len)
           : kvr_relay_state_load(r, s->next - s->parts, reply->str,
                                  reply->len, &why);

    if (!good) {
        kvr_relay_session_unloaded(r, why);
        return;
    }

    s->next++;
    kvr_relay_session_part(r);
}


/* What Redis has is of no use: the relay starts from nothing. */

static void
kvr_relay_session_unloaded(kvr_relay_t *r, const char *why)
{
    kvr_relay_log(KVR_RELAY_WARN, "snapshot not loaded", "why=\"%s\"", why);

    kvr_relay_mirror_clear_all(&r->mirror);
    kvr_relay_source_forget(r);
    kvr_relay_session_start(r);
}


static void
kvr_relay_session_start(kvr_relay_t *r)
{
    kvr_relay_session_t  *s;

    s = &r->session;
    s->started = true;
    s->phase = KVR_RELAY_READY;

    r->publisher.known = s->worker_epoch;
    kvr_relay_session_resume(r);
}


static void
kvr_relay_session_resume(kvr_relay_t *r)
{
    kvr_relay_session_t  *s;

    s = &r->session;

    if (kvr_relay_publisher_resume(r, s->log_epoch, s->log_seq, s->snap_epoch,
                                   s->snap_seq)
        && (s->snap_epoch != r->snapshot.epoch
            || s->snap_seq < r->snapshot.seq))
    {
        kvr_relay_snapshot_want(r, "lost by redis");
    }
}


/* ---- each second -------------------------------------------------------- */

static void
kvr_relay_session_beat(kvr_relay_t *r)
{
    char                  epoch[24], seq[24], ranks[16], started[24];
    char                  chunk[16];
    char                  reason[KVR_RELAY_REASON];
    bool                  complete, told;
    uint32_t              i, n;
    const char           *argv[14 + 2 * KVR_MEMBER_FIELDS];
    const char           *values[KVR_MEMBER_FIELDS];
    kvr_relay_session_t  *s;

    s = &r->session;

    n = 0;
    argv[n++] = "EVAL";
    argv[n++] = kvr_relay_beat_script;
    argv[n++] = "5";
    argv[n++] = s->lease_key;
    argv[n++] = s->worker_key;
    argv[n++] = KVR_KEY_WORKERS;
    argv[n++] = s->snap_key;
    argv[n++] = s->log_key;
    argv[n++] = s->token;
    argv[n++] = KVR_RELAY_LEASE_MS;
    argv[n++] = KVR_RELAY_MEMBER_TTL;
    argv[n++] = r->options.worker;
    argv[n++] = epoch;
    argv[n++] = KVR_RELAY_KEEP_SECONDS;

    snprintf(epoch, sizeof(epoch), "%llu",
             (unsigned long long) r->publisher.epoch);

    told = r->drain.state != KVR_RELAY_DRAIN_SERVING
           && r->publisher.state == KVR_RELAY_OPEN;

    if (r->publisher.state == KVR_RELAY_OPEN) {

        complete = kvr_relay_complete(r, reason);

        snprintf(seq, sizeof(seq), "%llu",
                 (unsigned long long) r->publisher.sent);
        snprintf(ranks, sizeof(ranks), "%u", r->options.ranks);
        snprintf(chunk, sizeof(chunk), "%u", r->options.attention_chunk);
        snprintf(started, sizeof(started), "%llu",
                 (unsigned long long) r->started_ms);

        values[KVR_MEMBER_ADDRESS] = r->options.address;
        values[KVR_MEMBER_MODEL] = r->options.model;
        values[KVR_MEMBER_BLOCK_SIZE] = s->block_size;
        values[KVR_MEMBER_EAGLE] = r->options.eagle ? "1" : "0";
        values[KVR_MEMBER_RANKS] = ranks;
        values[KVR_MEMBER_ROLE] = r->options.role;
        values[KVR_MEMBER_WEIGHT] = r->options.weight;
        values[KVR_MEMBER_PREFILL_TOKENS] = r->options.max_prefill_tokens;
        values[KVR_MEMBER_LORA] = r->options.lora;
        values[KVR_MEMBER_HYBRID] = kvr_relay_mirror_hybrid(&r->mirror)
                                    ? "1" : "0";
        values[KVR_MEMBER_SPEC_DROP] = r->options.spec_drop ? "1" : "0";
        values[KVR_MEMBER_ATTENTION_CHUNK] = chunk;
        values[KVR_MEMBER_ENGINE] = r->options.engine;
        values[KVR_MEMBER_DRAINING] = told ? "1" : "0";
        values[KVR_MEMBER_REASON] = reason;
        values[KVR_MEMBER_CHANNEL] = r->options.channel;
        values[KVR_MEMBER_EPOCH] = epoch;
        values[KVR_MEMBER_SEQ] = seq;
        values[KVR_MEMBER_COMPLETE] = complete ? "1" : "0";
        values[KVR_MEMBER_STARTED] = started;

        for (i = 0; i < KVR_MEMBER_FIELDS; i++) {
            argv[n++] = kvr_member_word(i);
            argv[n++] = values[i];
        }
    }

    kvr_relay_redis_argv(r, kvr_relay_session_beaten,
                         (void *) (uintptr_t) told, (int) n, argv, NULL);

    kvr_relay_publisher_heartbeat(r);

    if (s->started) {
        kvr_relay_redis_args(r, kvr_relay_session_asked, NULL, "GETDEL",
                             s->ask_key, NULL);
    }
}


static void
kvr_relay_session_beaten(kvr_relay_t *r, void *data, const redisReply *reply)
{
    if (kvr_relay_session_bad(r, reply)) {
        return;
    }

    if (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0) {
        kvr_relay_log(KVR_RELAY_ERROR, "superseded", "by=lease");
        kvr_relay_exit(r, KVR_RELAY_SUPERSEDED);
        return;
    }

    r->session.told = r->session.told || data != NULL;
}


static void
kvr_relay_session_asked(kvr_relay_t *r, void *data, const redisReply *reply)
{
    kvr_relay_redis_spared("GETDEL", "routers ask for snapshots in vain",
                           &r->session.deaf, reply);

    if (reply != NULL && reply->type == REDIS_REPLY_STRING) {
        kvr_relay_snapshot_want(r, "a router asks");
    }
}


/* ---- the end ------------------------------------------------------------ */

void
kvr_relay_session_leave(kvr_relay_t *r)
{
    r->session.phase = KVR_RELAY_LEAVING;

    kvr_relay_redis_args(r, kvr_relay_session_left, NULL, "EVAL",
                         kvr_relay_leave_script, "3", r->session.lease_key,
                         r->session.worker_key, KVR_KEY_WORKERS,
                         r->session.token, r->options.worker, NULL);
}


static void
kvr_relay_session_left(kvr_relay_t *r, void *data, const redisReply *reply)
{
    if (reply != NULL) {
        kvr_relay_log(KVR_RELAY_INFO, "ended", "deregistered=%s",
                      reply->type == REDIS_REPLY_INTEGER
                      && reply->integer == 1 ? "yes" : "no");
    }

    kvr_relay_exit(r, KVR_RELAY_ENDED);
}


/* ---- answers ------------------------------------------------------------ */

/* Is the reply no answer or an error?  The connection is given up then. */

static bool
kvr_relay_session_bad(kvr_relay_t *r, const redisReply *reply)
{
    if (reply == NULL || r->redis.broken) {
        return true;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        kvr_relay_redis_break(r, "refused", reply);
        return true;
    }

    return false;
}


static uint64_t
kvr_relay_session_number(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER) {
        return (uint64_t) reply->integer;
    }

    return reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10)
                                             : 0;
}


/*
 * Removes a log or a snapshot whose epoch is so high that no epoch can follow.
 * No relay writes such an epoch, and the key would be in the way of all later
 * ones.
 */
static bool
kvr_relay_session_never(kvr_relay_t *r, const char *key, uint64_t epoch)
{
    if (epoch < KVR_EPOCH_MAX) {
        return false;
    }

    kvr_relay_log(KVR_RELAY_WARN, "no epoch, deleted", "key=%s epoch=%llu",
                  key, (unsigned long long) epoch);

    kvr_relay_redis_args(r, NULL, NULL, "DEL", key, NULL);

    return true;
}
