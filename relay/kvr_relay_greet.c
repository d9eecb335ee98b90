/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"
#include "kvr_relay_greet.h"

#include "wire/kvr_decoder.h"
#include "wire/kvr_redis_info.h"

#include <stdio.h>


static void kvr_relay_greet_authed(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_greet_named(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_greet_known(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_greet_greeted(kvr_relay_t *r, void *data,
    const redisReply *reply);


void
kvr_relay_greet(kvr_relay_t *r)
{
    bool                    user;
    char                    text[KVR_RELAY_KEY];
    const kvr_redis_url_t  *url;

    url = &r->redis.where;

    user = url->user[0] != '\0';

    if (url->password[0] != '\0') {
        kvr_relay_redis_args(r, kvr_relay_greet_authed, NULL, "AUTH",
                             user ? url->user : url->password,
                             user ? url->password : NULL, NULL);
    }

    if (r->redis.asking) {
        kvr_relay_redis_args(r, kvr_relay_greet_named, NULL, "SENTINEL",
                             "get-master-addr-by-name", url->master, NULL);
        return;
    }

    kvr_relay_redis_args(r, kvr_relay_greet_known, NULL, "INFO", NULL);

    if (url->db != 0) {
        snprintf(text, sizeof(text), "%u", url->db);
        kvr_relay_redis_args(r, kvr_relay_greet_greeted, NULL, "SELECT", text,
                             NULL);
    }

    kvr_relay_redis_args(r, kvr_relay_greet_greeted, r, "PING", NULL);
}


/*
 * Logs the error code alone: a server without AUTH repeats the password in its
 * message.
 */

static void
kvr_relay_greet_authed(kvr_relay_t *r, void *data, const redisReply *reply)
{
    char  why[KVR_RELAY_KEY];

    /* The users of a Sentinel can differ from the users of the master. */

    if (reply != NULL && reply->type == REDIS_REPLY_ERROR
        && !r->redis.asking)
    {
        snprintf(why, sizeof(why), "AUTH refused: %.*s",
                 (int) strcspn(reply->str, " "), reply->str);
        kvr_relay_redis_break(r, why, NULL);
    }
}


/* Takes the Sentinel's answer: the address of the master. */

static void
kvr_relay_greet_named(kvr_relay_t *r, void *data, const redisReply *reply)
{
    char                key[KVR_RELAY_KEY];
    uint64_t            port;
    kvr_relay_redis_t  *c;
    const redisReply   *host;

    c = &r->redis;

    if (reply == NULL) {
        return;
    }

    if (reply->type == REDIS_REPLY_NIL) {
        snprintf(key, sizeof(key), "the Sentinel knows no master \"%.64s\"",
                 c->where.master);
        kvr_relay_redis_break(r, key, NULL);
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        kvr_relay_redis_break(r, "the Sentinel refused", reply);
        return;
    }

    host = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2
           ? reply->element[0] : NULL;

    if (host == NULL || host->type != REDIS_REPLY_STRING
        || host->len == 0 || host->len >= KVR_REDIS_URL_PART
        || reply->element[1]->type != REDIS_REPLY_STRING
        || !kvr_u64_parse(reply->element[1]->str, reply->element[1]->len,
                          &port)
        || port < 1 || port > UINT16_MAX)
    {
        kvr_relay_redis_break(r, "the Sentinel does not answer as one", NULL);
        return;
    }

    memcpy(c->where.host, host->str, host->len);
    c->where.host[host->len] = '\0';
    c->where.port = (uint32_t) port;

    snprintf(c->where.name, sizeof(c->where.name), "%s:%u/%u",
             c->where.host, c->where.port, c->where.db);

    c->found = true;
    c->broken = true;
    kvr_relay_wake(r, r->now_ms);
}


/* Where INFO is not permitted, PING tells what else is wrong. */

static void
kvr_relay_greet_known(kvr_relay_t *r, void *data, const redisReply *reply)
{
    const char  *why;

    if (reply == NULL || reply->type != REDIS_REPLY_STRING) {
        return;
    }

    why = kvr_redis_info_refused(reply->str, r->redis.where.master[0] != '\0');

    if (why != NULL) {
        kvr_relay_redis_break(r, why, NULL);
    }
}


/* data is not NULL for the last command of the greeting. */

static void
kvr_relay_greet_greeted(kvr_relay_t *r, void *data, const redisReply *reply)
{
    SSL  *ssl;

    if (reply == NULL) {
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        kvr_relay_redis_break(r, "refused", reply);
        return;
    }

    if (data == NULL) {
        return;
    }

    ssl = r->redis.wire.ssl;

    kvr_relay_log(KVR_RELAY_INFO, "redis connected", "redis=%s tls=%s",
                  r->redis.where.name, ssl ? SSL_get_version(ssl) : "no");

    r->redis.up = true;
    r->redis.up_ms = r->now_ms;
    r->counters.redis_connects++;

    r->redis.told.up(r);
}
