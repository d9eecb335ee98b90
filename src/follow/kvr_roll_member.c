
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What becomes of a member: registered, ignored, refused, or gone.
 */


#include "kvr_roll_member.h"
#include "../core/kvr_hash.h"
#include "../wire/kvr_redis_info.h"

#include <stdio.h>


/* milliseconds */
#define KVR_ROLL_TTL_MAX        3600000

/* PTTL's replies without a time */
#define KVR_ROLL_TTL_NO_END     -1
#define KVR_ROLL_TTL_NO_KEY     -2

/* the number of places in which a warning about an id can be remembered */
#define KVR_ROLL_WARNING_PLACES  8


/* bytes of a channel's name in a warning */
#define KVR_CHANNEL_SHOWN  90


static kvr_rc_t kvr_roll_expired(kvr_roll_t *m, kvr_roll_asked_t *asked,
    uint64_t now_ms);
static const char *kvr_roll_read(kvr_roll_t *m, const kvr_reply_t *hash,
    kvr_registration_t *reg, kvr_reply_t *wrong);
static kvr_rc_t kvr_roll_register(kvr_roll_t *m, kvr_registration_t *reg,
    const kvr_roll_asked_t *asked, int64_t ttl, uint64_t now_ms);
static void kvr_roll_channel(kvr_roll_t *m, const kvr_roll_asked_t *asked);
static kvr_rc_t kvr_roll_ignore(kvr_roll_t *m, kvr_registration_t *reg,
    size_t len, const char *why, const kvr_params_t *params);
static bool kvr_roll_down(kvr_roll_t *m, uint32_t worker);
static void kvr_roll_seen(kvr_roll_t *m, const char *id, size_t len);
static kvr_roll_warning_t *kvr_roll_warning(kvr_roll_t *m, uint32_t hash);
static void kvr_roll_shown(char *out, size_t max, const char *data,
    size_t len);


kvr_rc_t
kvr_roll_found(kvr_roll_t *m, kvr_roll_asked_t *asked, int64_t ttl,
    uint64_t now_ms)
{
    char                 shown[KVR_ADDRESS_MAX + 1];
    char                 more[KVR_ADDRESS_MAX + 16];
    const char          *why;
    kvr_reply_t          wrong;
    kvr_registration_t   reg;
    const kvr_params_t  *params;

    kvr_tell_debug(m->conf.tell, "registration of worker \"%s\" is read, ttl "
                   "%lld ms", asked->id, (long long) ttl);

    if (asked->hash.type == KVR_REPLY_ERROR
        && strncmp(asked->hash.text, "WRONGTYPE", 9) == 0)
    {
        kvr_roll_warn(m, asked->id, asked->len, "refused", "not a hash", NULL);
        kvr_roll_seen(m, asked->id, asked->len);
        return KVR_OK;
    }

    if (asked->hash.type != KVR_REPLY_ARRAY
        || asked->hash.len != KVR_MEMBER_ROUTER)
    {
        kvr_roll_fail(m, KVR_KEY_WORKER, &asked->hash);
        return KVR_OK;
    }

    if (ttl == KVR_ROLL_TTL_NO_KEY) {
        return kvr_roll_expired(m, asked, now_ms);
    }

    kvr_registration_init(&reg, asked->id, asked->len);
    reg.drained = asked->drained;

    why = kvr_roll_read(m, &asked->hash, &reg, &wrong);
    if (why) {
        kvr_roll_shown(shown, KVR_ADDRESS_MAX, wrong.text, wrong.len);
        snprintf(more, sizeof(more), ", it is \"%s\"", shown);
        kvr_roll_warn(m, asked->id, asked->len, "refused", why, more);
        kvr_roll_seen(m, asked->id, asked->len);
        return KVR_OK;
    }

    params = kvr_router_params(m->conf.router);

    why = kvr_registration_foreign(&reg, params->model,
                                   kvr_params_contract(params));
    if (why) {
        return kvr_roll_ignore(m, &reg, asked->len, why, params);
    }

    return kvr_roll_register(m, &reg, asked, ttl, now_ms);
}


/* There is no registration. */

static kvr_rc_t
kvr_roll_expired(kvr_roll_t *m, kvr_roll_asked_t *asked, uint64_t now_ms)
{
    uint32_t            worker;
    kvr_roll_member_t  *member;

    /* the worker is in no page either: the end of the poll takes it out */

    if (m->state == KVR_ROLL_REST) {
        return KVR_OK;
    }

    /*
     * the registration expired, but its id is still in the set: the worker
     * did not leave
     */

    member = kvr_roll_member(m, asked->id, asked->len);

    /* the worker does not answer checks either: remove it */

    if (member && kvr_roll_sure(m, now_ms)) {
        worker = member - m->members;

        if (kvr_roll_down(m, worker)) {
            return kvr_roll_gone(m, worker);
        }
    }

    if (kvr_router_expire(m->conf.router, asked->id, asked->len, now_ms)
        == KVR_LOST)
    {
        return KVR_LOST;
    }

    kvr_roll_seen(m, asked->id, asked->len);

    return KVR_OK;
}


/* NULL, or why the registration is refused, with the value that is wrong. */

static const char *
kvr_roll_read(kvr_roll_t *m, const kvr_reply_t *hash, kvr_registration_t *reg,
    kvr_reply_t *wrong)
{
    size_t       i;
    const char  *why;

    for (i = 0; i < hash->len; i++) {
        *wrong = kvr_reply_element(hash, i);

        if (wrong->type != KVR_REPLY_STRING) {
            continue;                           /* the hash lacks the field */
        }

        why = kvr_registration_field(reg, i, wrong->text, wrong->len);
        if (why) {
            return why;
        }
    }

    if (reg->conf.address[0] == '\0') {
        return NULL;
    }

    *wrong = kvr_reply_element(hash, KVR_MEMBER_ADDRESS);

    return m->conf.address_wrong(m->conf.data, reg->conf.address);
}


static kvr_rc_t
kvr_roll_register(kvr_roll_t *m, kvr_registration_t *reg,
    const kvr_roll_asked_t *asked, int64_t ttl, uint64_t now_ms)
{
    size_t              len;
    char                reason[KVR_REASON_MAX + 1], room[KVR_NO_ROOM];
    kvr_rc_t            rc;
    const char         *id;
    kvr_registered_t    what;
    kvr_roll_member_t  *member;

    if (ttl == KVR_ROLL_TTL_NO_END) {
        ttl = KVR_ROLL_TTL;
    }

    ttl = ttl < 0 ? 0 : ttl > KVR_ROLL_TTL_MAX ? KVR_ROLL_TTL_MAX : ttl;

    id = reg->conf.id;
    len = asked->len;
    member = kvr_roll_member(m, id, len);

    if (member == NULL
        || kvr_router_publisher_reason(m->conf.router, member - m->members,
                                       reason)
           != KVR_OK)
    {
        reason[0] = '\0';
    }

    rc = kvr_router_register(m->conf.router, reg, now_ms + ttl, &what);

    kvr_tell_debug(m->conf.tell, "registration of worker \"%s\": %s", id,
                   rc != KVR_OK ? "not taken"
                   : what == KVR_REGISTERED_NEW ? "new"
                   : what == KVR_REGISTERED_AS_BEFORE ? "as before"
                                                      : "changed");

    kvr_roll_seen(m, id, len);

    switch (rc) {

    case KVR_OK:
        break;

    case KVR_LOST:
        return KVR_LOST;

    case KVR_FULL:
        kvr_router_no_room(m->conf.router, id, len, room);
        kvr_roll_warn(m, id, len, "refused", room, NULL);
        return KVR_OK;

    default: /* a tombstone, or the lock is taken: the next poll tries again */
        return KVR_OK;
    }

    kvr_roll_channel(m, asked);

    if (reg->reason[0] && strcmp(reg->reason, reason) != 0) {
        kvr_tell(m->conf.tell, KVR_LOG_WARN, "the publisher of worker \"%s\" "
                 "is not complete: \"%s\"", id, reg->reason);
    }

    member = kvr_roll_member(m, id, len);

    if (member && member->drains != reg->draining) {
        member->drains = reg->draining;
        kvr_tell(m->conf.tell, KVR_LOG_NOTICE, "worker \"%s\" drains%s, its "
                 "registration says", id, reg->draining ? "" : " no more");
    }

    if (what == KVR_REGISTERED_AS_BEFORE) {
        return KVR_OK;
    }

    kvr_tell(m->conf.tell, KVR_LOG_NOTICE, "worker \"%s\" %s, at \"%s\"", id,
             what == KVR_REGISTERED_NEW ? "registered" : "changed",
             reg->conf.address);

    if (what == KVR_REGISTERED_NEW && member) {
        m->conf.registered(m->conf.data, member - m->members);
    }

    return KVR_OK;
}


/* Does the publisher use another channel than the one that is subscribed? */

static void
kvr_roll_channel(kvr_roll_t *m, const kvr_roll_asked_t *asked)
{
    char         more[2 * KVR_CHANNEL_SHOWN + 160];
    char         shown[KVR_CHANNEL_SHOWN + 1];
    kvr_reply_t  channel;

    channel = kvr_reply_element(&asked->hash, KVR_MEMBER_CHANNEL);

    if (m->conf.channel == NULL || channel.type != KVR_REPLY_STRING
        || (channel.len == m->conf.channel_len
            && memcmp(channel.text, m->conf.channel, channel.len) == 0))
    {
        kvr_roll_warn(m, asked->id, asked->len, NULL, NULL, NULL);
        return;
    }

    kvr_roll_shown(shown, KVR_CHANNEL_SHOWN, channel.text, channel.len);

    snprintf(more, sizeof(more), ": its kv-relay has --channel \"%s\", and "
             "channel= of kv_router_redis begins with \"%.*s\"; write the "
             "same", shown,
             (int) kvr_min(m->conf.channel_len, KVR_CHANNEL_SHOWN),
             m->conf.channel);

    kvr_roll_warn(m, asked->id, asked->len, "names another channel",
                  "no event of it is heard", more);
}


static kvr_rc_t
kvr_roll_ignore(kvr_roll_t *m, kvr_registration_t *reg, size_t len,
    const char *why, const kvr_params_t *params)
{
    char  model[KVR_MODEL_MAX + 1];
    char  more[2 * KVR_MODEL_MAX + 160];

    if (kvr_router_ignore_worker(m->conf.router, reg->conf.id, len)
        == KVR_LOST)
    {
        return KVR_LOST;
    }

    kvr_roll_seen(m, reg->conf.id, len);

    more[0] = '\0';

    if (reg->contract.block_size
        && reg->contract.block_size != params->block_size)
    {
        snprintf(more, sizeof(more), ": it is %u, and the zone has "
                 "block_size=%u; start engine and relay with a block size of "
                 "%u, or make a zone with block_size=%u",
                 reg->contract.block_size, params->block_size,
                 params->block_size, reg->contract.block_size);

    } else if (params->model[0] && reg->conf.model[0]
               && strcmp(reg->conf.model, params->model) != 0)
    {
        kvr_roll_shown(model, KVR_MODEL_MAX, reg->conf.model,
                       strlen(reg->conf.model));
        snprintf(more, sizeof(more), ": it is \"%s\", and the zone has "
                 "served=%s; correct one of them, or make a zone for that "
                 "model", model, params->model);
    }

    kvr_roll_warn(m, reg->conf.id, len, "ignored", why, more);

    return KVR_OK;
}


/* Did Redis alone add the worker, and do its active checks fail? */

static bool
kvr_roll_down(kvr_roll_t *m, uint32_t worker)
{
    const kvr_worker_t  *w;

    w = kvr_router_worker(m->conf.router, worker);

    return m->conf.checked
           && kvr_load32(&w->flags) & KVR_WORKER_REDIS
           && kvr_health_down(kvr_router_health(m->conf.router, worker),
                              kvr_load32(&w->generation));
}


kvr_rc_t
kvr_roll_gone(kvr_roll_t *m, uint32_t worker)
{
    uint32_t           flags, generation;
    kvr_rc_t           rc;
    kvr_worker_conf_t  conf;

    if (kvr_router_read_worker(m->conf.router, worker, &conf, &flags,
                               &generation)
        != KVR_OK)
    {
        return KVR_OK;
    }

    rc = kvr_router_deregister(m->conf.router, conf.id, strlen(conf.id));

    if (rc == KVR_BUSY) {
        return KVR_OK;                          /* the next poll tries again */
    }

    memset(&m->members[worker], 0, sizeof(kvr_roll_member_t));

    if (rc == KVR_OK) {
        kvr_tell(m->conf.tell, KVR_LOG_NOTICE, "worker \"%s\" has left",
                 conf.id);
    }

    return rc == KVR_LOST ? KVR_LOST : KVR_OK;
}


bool
kvr_roll_sure(const kvr_roll_t *m, uint64_t now_ms)
{
    return now_ms - m->since >= KVR_ROLL_TTL;
}


kvr_roll_member_t *
kvr_roll_member(kvr_roll_t *m, const char *id, size_t len)
{
    uint32_t  n;

    if (kvr_router_find_worker(m->conf.router, id, len, &n) != KVR_OK
        || n >= m->nmembers)
    {
        return NULL;
    }

    return &m->members[n];
}


static void
kvr_roll_seen(kvr_roll_t *m, const char *id, size_t len)
{
    kvr_roll_member_t  *member;

    member = kvr_roll_member(m, id, len);

    if (member) {
        member->poll = m->poll;
    }
}


void
kvr_roll_fail(kvr_roll_t *m, const char *key, const kvr_reply_t *reply)
{
    const char  *text;

    m->failed = true;

    if (reply == NULL) {
        text = "too many";

    } else if (reply->type == KVR_REPLY_LOST
               || reply->type == KVR_REPLY_TOO_BIG)
    {
        return;

    } else if (reply->type != KVR_REPLY_ERROR) {
        text = "an answer of another type";

    } else {
        text = kvr_redis_error_refused(reply->text);
        text = text ? text : reply->text;
    }

    kvr_tell(m->conf.tell, m->logged ? KVR_LOG_INFO : KVR_LOG_ERROR,
             "members can't be read, \"%s\": \"%s\"", key, text);

    m->logged = true;
}


void
kvr_roll_warn(kvr_roll_t *m, const char *id, size_t len, const char *what,
    const char *text, const char *more)
{
    char                 shown[KVR_WORKER_ID_MAX + 1];
    uint32_t             hash;
    kvr_level_t          level;
    kvr_roll_warning_t  *warning;

    hash = (uint32_t) kvr_hash_bytes(id, len, KVR_HASH_SEED);
    warning = kvr_roll_warning(m, hash);

    if (what == NULL) {

        if (warning) {
            warning->text = NULL;
        }

        return;
    }

    level = KVR_LOG_ERROR;

    if (warning == NULL || warning->text == text) {

        /*
         * the warning was logged already, or no place is free: ids that took
         * places from one another would be logged at each poll
         */

        level = KVR_LOG_INFO;

    } else {
        warning->id = hash;
        warning->text = text;
    }

    kvr_roll_shown(shown, KVR_WORKER_ID_MAX, id, len);

    kvr_tell(m->conf.tell, level, "registration of worker \"%s\" %s: %s%s",
             shown, what, text, more ? more : "");
}


/* The place of an id's warning, or a free one; NULL: there is none. */

static kvr_roll_warning_t *
kvr_roll_warning(kvr_roll_t *m, uint32_t hash)
{
    size_t               i;
    kvr_roll_warning_t  *place, *free_place;

    free_place = NULL;

    for (i = 0; i < KVR_ROLL_WARNING_PLACES; i++) {

        place = &m->warnings[(hash + i) % KVR_ROLL_WARNINGS];

        if (place->text && place->id == hash) {
            return place;
        }

        if (place->text == NULL && free_place == NULL) {
            free_place = place;
        }
    }

    return free_place;
}


/* Copies what may be any bytes for a message: max bytes of it. */

static void
kvr_roll_shown(char *out, size_t max, const char *data, size_t len)
{
    size_t  i;

    len = len < max ? len : max;

    for (i = 0; i < len; i++) {
        out[i] = (data[i] < 0x20 || data[i] > 0x7e) ? '?' : data[i];
    }

    out[len] = '\0';
}
