/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_ARGS        16
#define KVR_RELAY_SILENCE_MS  5000      /* without an answer: broken */
#define KVR_RELAY_RETRY_MS    200       /* the first pause, */
#define KVR_RELAY_RETRY_MAX   3000      /* and the longest */
#define KVR_RELAY_GOOD_MS     10000     /* up for so long: no failure */


typedef struct {
    kvr_relay_reply_pt  *reply;
    void                *data;
} kvr_relay_command_t;


static void kvr_relay_redis_connect(kvr_relay_t *r);
static void kvr_relay_redis_greet(kvr_relay_t *r, const kvr_relay_url_t *url);
static void kvr_relay_redis_greeted(kvr_relay_t *r, void *data,
    const redisReply *reply);
static void kvr_relay_redis_closed(kvr_relay_t *r, const char *why);
static void kvr_relay_redis_connected(const redisAsyncContext *c, int status);
static void kvr_relay_redis_disconnected(const redisAsyncContext *c,
    int status);
static void kvr_relay_redis_answer(redisAsyncContext *c, void *reply,
    void *privdata);
static void kvr_relay_redis_add_read(void *privdata);
static void kvr_relay_redis_del_read(void *privdata);
static void kvr_relay_redis_add_write(void *privdata);
static void kvr_relay_redis_del_write(void *privdata);
static void kvr_relay_redis_cleanup(void *privdata);


void
kvr_relay_redis_init(kvr_relay_t *r)
{
    memset(&r->redis, 0, sizeof(kvr_relay_redis_t));
}


void
kvr_relay_redis_free(kvr_relay_t *r)
{
    if (r->redis.context != NULL) {
        redisAsyncFree(r->redis.context);
    }
}


void
kvr_relay_redis_tick(kvr_relay_t *r)
{
    kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->context == NULL) {

        if (r->now_ms >= c->retry_ms) {
            kvr_relay_redis_connect(r);
        }

    } else if (!c->broken && c->pending != 0
               && r->now_ms - c->heard_ms >= KVR_RELAY_SILENCE_MS)
    {
        kvr_relay_redis_break(r, "no answer", NULL);
    }

    if (c->context != NULL && c->broken) {
        redisAsyncFree(c->context);
        kvr_relay_redis_closed(r, NULL);
    }

    if (c->context == NULL) {
        kvr_relay_wake(r, c->retry_ms);

    } else if (c->pending != 0) {
        kvr_relay_wake(r, c->heard_ms + KVR_RELAY_SILENCE_MS);
    }
}


static void
kvr_relay_redis_connect(kvr_relay_t *r)
{
    kvr_relay_url_t     url;
    kvr_relay_redis_t  *c;
    redisAsyncContext  *context;

    c = &r->redis;

    (void) kvr_relay_url_parse(&url, r->options.redis.items[c->url]);

    context = url.port ? redisAsyncConnect(url.host, (int) url.port)
                       : redisAsyncConnectUnix(url.host);

    c->up = false;
    c->broken = false;
    c->reading = false;
    c->writing = false;
    c->pending = 0;
    c->heard_ms = r->now_ms;

    if (context == NULL || context->err) {
        kvr_relay_redis_closed(r, context ? context->errstr
                                          : "out of memory");
        if (context != NULL) {
            redisAsyncFree(context);
        }

        return;
    }

    c->context = context;

    context->data = r;
    context->ev.data = r;
    context->ev.addRead = kvr_relay_redis_add_read;
    context->ev.delRead = kvr_relay_redis_del_read;
    context->ev.addWrite = kvr_relay_redis_add_write;
    context->ev.delWrite = kvr_relay_redis_del_write;
    context->ev.cleanup = kvr_relay_redis_cleanup;

    (void) redisAsyncSetConnectCallback(context, kvr_relay_redis_connected);
    (void) redisAsyncSetDisconnectCallback(context,
                                           kvr_relay_redis_disconnected);

    kvr_relay_redis_greet(r, &url);
}


static void
kvr_relay_redis_greet(kvr_relay_t *r, const kvr_relay_url_t *url)
{
    char  text[KVR_RELAY_KEY];

    if (url->password[0] != '\0' && url->user[0] != '\0') {
        kvr_relay_redis_args(r, kvr_relay_redis_greeted, NULL, "AUTH",
                             url->user, url->password, NULL);

    } else if (url->password[0] != '\0') {
        kvr_relay_redis_args(r, kvr_relay_redis_greeted, NULL, "AUTH",
                             url->password, NULL);
    }

    if (url->db != 0) {
        snprintf(text, sizeof(text), "%u", url->db);
        kvr_relay_redis_args(r, kvr_relay_redis_greeted, NULL, "SELECT", text,
                             NULL);
    }

    kvr_relay_redis_args(r, kvr_relay_redis_greeted, r, "PING", NULL);
}


/* data: the last of the greeting. */

static void
kvr_relay_redis_greeted(kvr_relay_t *r, void *data, const redisReply *reply)
{
    kvr_relay_url_t  url;

    if (reply == NULL || r->redis.broken) {
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        kvr_relay_redis_break(r, "refused", reply);
        return;
    }

    if (data == NULL) {
        return;
    }

    (void) kvr_relay_url_parse(&url, r->options.redis.items[r->redis.url]);

    kvr_relay_log(KVR_RELAY_INFO, "redis connected", "redis=%s", url.name);

    r->redis.up = true;
    r->redis.up_ms = r->now_ms;
    r->counters.redis_connects++;

    kvr_relay_session_up(r);
}


void
kvr_relay_redis_break(kvr_relay_t *r, const char *why, const redisReply *reply)
{
    char                quoted[KVR_RELAY_QUOTED], text[KVR_RELAY_KEY];
    kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->context == NULL || c->broken) {
        return;
    }

    snprintf(text, sizeof(text), "%s%s%.100s", why, reply ? ": " : "",
             reply ? reply->str : "");

    kvr_relay_log(KVR_RELAY_WARN, "redis connection given up", "why=%s",
                  kvr_relay_quote(quoted, text, strlen(text)));

    c->broken = true;
    kvr_relay_wake(r, r->now_ms);
}


/* why: NULL when it was said already. */

static void
kvr_relay_redis_closed(kvr_relay_t *r, const char *why)
{
    bool                up;
    char                quoted[KVR_RELAY_QUOTED];
    uint64_t            pause;
    kvr_relay_url_t     url;
    kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->context == NULL && why == NULL) {
        return;
    }

    (void) kvr_relay_url_parse(&url, r->options.redis.items[c->url]);

    if (c->up && r->now_ms - c->up_ms >= KVR_RELAY_GOOD_MS) {
        c->failures = 0;
    }

    /* said once for each time that it goes away */

    if (why != NULL && c->failures < r->options.redis.n) {
        kvr_relay_log(KVR_RELAY_WARN, "redis is not there",
                      "redis=%s why=%s", url.name,
                      kvr_relay_quote(quoted, why, strlen(why)));
    }

    up = c->up;

    c->context = NULL;
    c->up = false;
    c->broken = false;
    c->pending = 0;
    c->url = (c->url + 1) % r->options.redis.n;

    pause = (uint64_t) KVR_RELAY_RETRY_MS << kvr_min(c->failures, 4);
    pause = kvr_min(pause, KVR_RELAY_RETRY_MAX);

    c->retry_ms = r->now_ms + pause / 2 + (uint64_t) rand() % pause;
    c->failures++;

    if (up) {
        kvr_relay_session_down(r);
    }

    kvr_relay_wake(r, c->retry_ms);
}


static void
kvr_relay_redis_connected(const redisAsyncContext *c, int status)
{
    if (status != REDIS_OK) {
        kvr_relay_redis_closed(c->data, c->errstr);
    }
}


static void
kvr_relay_redis_disconnected(const redisAsyncContext *c, int status)
{
    kvr_relay_redis_closed(c->data, status == REDIS_OK ? NULL : c->errstr);
}


int
kvr_relay_redis_poll(const kvr_relay_t *r, short *events)
{
    const kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->context == NULL) {
        return -1;
    }

    *events = (short) ((c->reading ? ZMQ_POLLIN : 0)
                       | (c->writing ? ZMQ_POLLOUT : 0));

    return c->context->c.fd;
}


void
kvr_relay_redis_ready(kvr_relay_t *r, short revents)
{
    if (r->redis.context != NULL
        && (revents & (ZMQ_POLLIN | ZMQ_POLLERR)))
    {
        redisAsyncHandleRead(r->redis.context);
    }

    if (r->redis.context != NULL && (revents & ZMQ_POLLOUT)) {
        redisAsyncHandleWrite(r->redis.context);
    }
}


void
kvr_relay_redis_args(kvr_relay_t *r, kvr_relay_reply_pt *reply, void *data,
    ...)
{
    int          n;
    size_t       len[KVR_RELAY_ARGS];
    va_list      args;
    const char  *argv[KVR_RELAY_ARGS];

    va_start(args, data);

    for (n = 0; n < KVR_RELAY_ARGS; n++) {
        argv[n] = va_arg(args, const char *);

        if (argv[n] == NULL) {
            break;
        }

        len[n] = strlen(argv[n]);
    }

    va_end(args);

    kvr_relay_redis_argv(r, reply, data, n, argv, len);
}


void
kvr_relay_redis_argv(kvr_relay_t *r, kvr_relay_reply_pt *reply, void *data,
    int argc, const char **argv, const size_t *len)
{
    kvr_relay_redis_t    *c;
    kvr_relay_command_t  *command;

    c = &r->redis;

    command = c->context && !c->broken ? malloc(sizeof(kvr_relay_command_t))
                                       : NULL;

    if (command == NULL) {
        if (reply != NULL) {
            reply(r, data, NULL);
        }

        return;
    }

    command->reply = reply;
    command->data = data;

    if (c->pending++ == 0) {
        c->heard_ms = r->now_ms;
    }

    if (redisAsyncCommandArgv(c->context, kvr_relay_redis_answer, command,
                              argc, argv, len) != REDIS_OK)
    {
        c->pending--;
        free(command);

        if (reply != NULL) {
            reply(r, data, NULL);
        }
    }
}


static void
kvr_relay_redis_answer(redisAsyncContext *c, void *answer, void *privdata)
{
    kvr_relay_t          *r;
    redisReply           *reply;
    kvr_relay_command_t  *command;

    r = c->data;
    reply = answer;
    command = privdata;

    if (r->redis.pending != 0) {
        r->redis.pending--;
    }

    r->redis.heard_ms = r->now_ms;

    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        r->counters.redis_errors++;
    }

    if (command->reply != NULL) {
        command->reply(r, command->data, reply);
    }

    free(command);
}


static void
kvr_relay_redis_add_read(void *privdata)
{
    ((kvr_relay_t *) privdata)->redis.reading = true;
}


static void
kvr_relay_redis_del_read(void *privdata)
{
    ((kvr_relay_t *) privdata)->redis.reading = false;
}


static void
kvr_relay_redis_add_write(void *privdata)
{
    ((kvr_relay_t *) privdata)->redis.writing = true;
}


static void
kvr_relay_redis_del_write(void *privdata)
{
    ((kvr_relay_t *) privdata)->redis.writing = false;
}


static void
kvr_relay_redis_cleanup(void *privdata)
{
    kvr_relay_t  *r;

    r = privdata;
    r->redis.reading = false;
    r->redis.writing = false;
}
