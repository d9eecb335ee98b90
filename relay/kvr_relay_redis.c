/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


/* without an answer so long: the connection is broken */
#define KVR_RELAY_SILENCE_MS  5000
#define KVR_RELAY_RETRY_MS    200       /* the first pause, */
#define KVR_RELAY_RETRY_MAX   3000      /* and the longest */
/* a connection that was up so long did not fail */
#define KVR_RELAY_GOOD_MS     10000
#define KVR_RELAY_OUT_MIN     (64u << 10)
#define KVR_RELAY_OUT_KEEP    (1u << 20)    /* when all was written */
#define KVR_RELAY_OUT_MAX     (64u << 20)   /* bytes not written yet */
#define KVR_RELAY_READ        (64u << 10)   /* at a time, */
/* the maximum number of bytes read in a turn of the loop */
#define KVR_RELAY_READ_TURN   (1u << 20)
#define KVR_RELAY_REPLY_MAX   (256u << 20)  /* bytes */
/* The maximum number of elements of an array: a page of the log has 256.
   hiredis has no bound of its own. */
#define KVR_RELAY_ELEMENTS    4096


#if (HIREDIS_MAJOR == 0)
typedef int     kvr_relay_elements_t;
#else
typedef size_t  kvr_relay_elements_t;
#endif


static void kvr_relay_redis_connect(kvr_relay_t *r);
static redisReader *kvr_relay_redis_reader(void);
static void *kvr_relay_redis_array(const redisReadTask *task,
    kvr_relay_elements_t elements);
static void kvr_relay_redis_url(const kvr_relay_t *r, uint32_t i,
    kvr_redis_url_t *url);
static void kvr_relay_redis_silent(kvr_relay_t *r);
static void kvr_relay_redis_closed(kvr_relay_t *r, const char *why);
static void kvr_relay_redis_say(kvr_relay_t *r, const char *why);
static bool kvr_relay_redis_read(kvr_relay_t *r);
static bool kvr_relay_redis_replies(kvr_relay_t *r);
static void kvr_relay_redis_answer(kvr_relay_t *r, const redisReply *reply);
static bool kvr_relay_redis_write(kvr_relay_t *r);
static void kvr_relay_redis_empty(kvr_relay_redis_t *c);
static bool kvr_relay_redis_put(kvr_relay_redis_t *c, const char *bytes,
    size_t len);


/* hiredis's own functions that make replies, with a bound for arrays */

static redisReplyObjectFunctions  kvr_relay_redis_objects;

static void *(*kvr_relay_redis_make_array)(const redisReadTask *task,
    kvr_relay_elements_t elements);


bool
kvr_relay_redis_init(kvr_relay_t *r, const kvr_relay_redis_told_t *told,
    char why[KVR_RELAY_TLS_WHY])
{
    uint32_t         i;
    kvr_redis_url_t  url;

    memset(&r->redis, 0, sizeof(kvr_relay_redis_t));
    r->redis.told = *told;

    for (i = 0; i < r->options.redis.n; i++) {
        kvr_relay_redis_url(r, i, &url);

        if (url.tls) {
            return kvr_relay_tls_check(&r->options, why);
        }
    }

    return true;
}


/* Parses URL i again.  All URLs were checked at the start. */

static void
kvr_relay_redis_url(const kvr_relay_t *r, uint32_t i, kvr_redis_url_t *url)
{
    const char  *text;

    text = r->options.redis.items[i];

    (void) kvr_redis_url_parse(url, text, strlen(text));
}


void
kvr_relay_redis_free(kvr_relay_t *r)
{
    kvr_relay_wire_close(&r->redis.wire);

    if (r->redis.reader != NULL) {
        redisReaderFree(r->redis.reader);
    }

    free(r->redis.out);
}


void
kvr_relay_redis_tick(kvr_relay_t *r)
{
    kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->wire.phase == KVR_RELAY_WIRE_NONE) {

        if (r->now_ms >= c->retry_ms) {
            kvr_relay_redis_connect(r);
        }

    } else if (!c->broken && c->npending != 0
               && r->now_ms - c->heard_ms >= KVR_RELAY_SILENCE_MS)
    {
        kvr_relay_redis_silent(r);
    }

    if (c->broken) {
        kvr_relay_redis_closed(r, NULL);
    }

    if (c->wire.phase == KVR_RELAY_WIRE_NONE) {
        kvr_relay_wake(r, c->retry_ms);

    } else if (c->npending != 0) {
        kvr_relay_wake(r, c->heard_ms + KVR_RELAY_SILENCE_MS);
    }
}


static void
kvr_relay_redis_connect(kvr_relay_t *r)
{
    bool                good;
    kvr_relay_redis_t  *c;

    c = &r->redis;

    if (!c->found) {
        kvr_relay_redis_url(r, c->url, &c->where);
    }

    c->asking = c->where.master[0] != '\0' && !c->found;
    c->found = false;

    c->reader = kvr_relay_redis_reader();

    if (c->reader == NULL) {
        kvr_relay_redis_closed(r, "out of memory");
        return;
    }

    good = kvr_relay_wire_open(&c->wire, &c->where);

    /* the lookup of a host name may have taken long */

    r->now_ms = kvr_relay_clock();
    c->heard_ms = r->now_ms;

    if (!good) {
        kvr_relay_redis_closed(r, c->wire.why);
        return;
    }

    /* The password is sent when the connection is open: the server is
       verified by then. */

    c->told.greet(r);
}


static redisReader *
kvr_relay_redis_reader(void)
{
    redisReader  *reader;

    reader = redisReaderCreate();
    if (reader == NULL) {
        return NULL;
    }

    if (kvr_relay_redis_make_array == NULL) {
        kvr_relay_redis_make_array = reader->fn->createArray;
        kvr_relay_redis_objects = *reader->fn;
        kvr_relay_redis_objects.createArray = kvr_relay_redis_array;
    }

    reader->fn = &kvr_relay_redis_objects;

    return reader;
}


static void *
kvr_relay_redis_array(const redisReadTask *task, kvr_relay_elements_t elements)
{
    if (elements > KVR_RELAY_ELEMENTS) {
        return NULL;
    }

    return kvr_relay_redis_make_array(task, elements);
}


void
kvr_relay_redis_break(kvr_relay_t *r, const char *why, const redisReply *reply)
{
    char                quoted[KVR_RELAY_QUOTED], text[KVR_RELAY_KEY];
    kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->wire.phase == KVR_RELAY_WIRE_NONE || c->broken) {
        return;
    }

    snprintf(text, sizeof(text), "%s%s%.100s", why, reply ? ": " : "",
             reply ? reply->str : "");

    kvr_relay_log(KVR_RELAY_WARN, "redis connection given up", "why=%s",
                  kvr_relay_quote(quoted, text, strlen(text)));

    c->broken = true;
    kvr_relay_wake(r, r->now_ms);
}


static void
kvr_relay_redis_silent(kvr_relay_t *r)
{
    kvr_relay_redis_t       *c;
    kvr_relay_wire_phase_t   phase;

    c = &r->redis;
    phase = c->wire.phase;

    if (phase != KVR_RELAY_WIRE_OPEN && kvr_relay_wire_next(&c->wire)) {
        c->heard_ms = r->now_ms;
        return;
    }

    switch (phase) {

    case KVR_RELAY_WIRE_CONNECTING:
        kvr_relay_redis_closed(r, "can't connect: no answer");
        return;

    case KVR_RELAY_WIRE_HANDSHAKE:
        kvr_relay_redis_closed(r, "no answer in the TLS handshake: the server "
                               "may speak none");
        return;

    default:
        kvr_relay_redis_break(r, "no answer", NULL);
    }
}


/*
 * Closes the connection and logs why.  NULL: the log has the reason already.
 */

static void
kvr_relay_redis_closed(kvr_relay_t *r, const char *why)
{
    bool                up;
    uint64_t            pause;
    kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->up && r->now_ms - c->up_ms >= KVR_RELAY_GOOD_MS) {
        c->failures = 0;
        memset(c->said, 0, sizeof(c->said));
    }

    if (why != NULL) {
        kvr_relay_redis_say(r, why);
    }

    up = c->up;

    kvr_relay_wire_close(&c->wire);

    if (c->reader != NULL) {
        redisReaderFree(c->reader);
        c->reader = NULL;
    }

    c->up = false;
    c->broken = false;
    c->more = false;
    c->partial = 0;

    kvr_relay_redis_empty(c);

    while (c->npending != 0) {
        kvr_relay_redis_answer(r, NULL);
    }

    if (c->found) {
        c->retry_ms = r->now_ms;
        kvr_relay_wake(r, c->retry_ms);
        return;
    }

    c->url = (c->url + 1) % r->options.redis.n;

    pause = (uint64_t) KVR_RELAY_RETRY_MS << kvr_min(c->failures, 4);
    pause = kvr_min(pause, KVR_RELAY_RETRY_MAX);

    c->retry_ms = r->now_ms + pause / 2 + (uint64_t) rand() % pause;
    c->failures++;

    if (up) {
        c->told.down(r);
    }

    kvr_relay_wake(r, c->retry_ms);
}


/* Logs why a connection failed, once for each reason. */

static void
kvr_relay_redis_say(kvr_relay_t *r, const char *why)
{
    char               *said, quoted[KVR_RELAY_QUOTED];
    kvr_relay_redis_t  *c;

    c = &r->redis;
    said = c->said[c->url];

    if (strcmp(said, why) == 0) {
        return;
    }

    snprintf(said, KVR_RELAY_TLS_WHY, "%s", why);

    kvr_relay_log(KVR_RELAY_WARN, "redis is not there", "redis=%s why=%s",
                  c->where.name, kvr_relay_quote(quoted, why, strlen(why)));
}


/* ---- bytes -------------------------------------------------------------- */

uint32_t
kvr_relay_redis_poll(const kvr_relay_t *r, kvr_relay_loop_t *loop)
{
    short                     events;
    const kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->wire.phase == KVR_RELAY_WIRE_NONE) {
        return kvr_relay_loop_add(loop, NULL, -1, 0);
    }

    events = kvr_relay_wire_events(&c->wire, c->out_first != c->out_last);

    return kvr_relay_loop_add(loop, NULL, c->wire.fd, events);
}


void
kvr_relay_redis_ready(kvr_relay_t *r, short revents)
{
    struct addrinfo    *next;
    kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->wire.phase == KVR_RELAY_WIRE_NONE || c->broken
        || (revents == 0 && !c->more))
    {
        return;
    }

    if (c->wire.phase != KVR_RELAY_WIRE_OPEN) {

        next = c->wire.next;

        if (!kvr_relay_wire_step(&c->wire, &c->where, &r->options)) {
            kvr_relay_redis_closed(r, c->wire.why);

        } else if (c->wire.phase == KVR_RELAY_WIRE_OPEN
                   || c->wire.next != next)
        {
            c->heard_ms = r->now_ms;
        }

        return;
    }

    /* Input is read first: the last reply of a server that closes tells
       more than a failed write. */

    if (!kvr_relay_redis_read(r) || !kvr_relay_redis_write(r)) {
        kvr_relay_redis_closed(r, c->wire.why);
    }
}


/* False: the wire failed. */

static bool
kvr_relay_redis_read(kvr_relay_t *r)
{
    size_t              left;
    ssize_t             n;
    kvr_relay_redis_t  *c;

    static char  buf[KVR_RELAY_READ];

    c = &r->redis;
    c->more = false;

    for (left = KVR_RELAY_READ_TURN; left >= KVR_RELAY_READ;
         left -= (size_t) n)
    {
        n = kvr_relay_wire_read(&c->wire, buf, KVR_RELAY_READ);

        if (n <= 0) {
            return n == 0;
        }

        c->heard_ms = r->now_ms;
        c->partial += (size_t) n;

        if (redisReaderFeed(c->reader, buf, (size_t) n) != REDIS_OK) {
            kvr_relay_redis_break(r, "out of memory", NULL);
            return true;
        }

        if (!kvr_relay_redis_replies(r)) {
            return true;
        }
    }

    c->more = true;
    kvr_relay_wake(r, r->now_ms);

    return true;
}


/* Takes the replies that were read.  False: the connection is broken. */

static bool
kvr_relay_redis_replies(kvr_relay_t *r)
{
    void               *reply;
    kvr_relay_redis_t  *c;

    c = &r->redis;

    while (!c->broken) {

        if (redisReaderGetReply(c->reader, &reply) != REDIS_OK) {
            kvr_relay_redis_break(r, c->reader->err == REDIS_ERR_OOM
                                     ? "too big an answer, or no memory"
                                     : "the server does not speak RESP", NULL);
            return false;
        }

        if (reply == NULL) {

            if (c->partial > KVR_RELAY_REPLY_MAX) {
                kvr_relay_redis_break(r, "too big an answer", NULL);
            }

            return !c->broken;
        }

        c->partial = 0;

        if (c->npending == 0) {
            kvr_relay_redis_break(r, "an answer to nothing", NULL);

        } else {
            kvr_relay_redis_answer(r, reply);
        }

        freeReplyObject(reply);
    }

    return false;
}


/*
 * Gives the reply to the command that has waited longest.  NULL: the
 * connection is lost.
 */

static void
kvr_relay_redis_answer(kvr_relay_t *r, const redisReply *reply)
{
    kvr_relay_redis_t    *c;
    kvr_relay_command_t   command;

    c = &r->redis;
    command = c->pending[c->first];

    c->first = (c->first + 1) % KVR_RELAY_PENDING;
    c->npending--;

    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        r->counters.redis_errors++;
    }

    if (command.reply != NULL) {
        command.reply(r, command.data, reply);
    }
}


/* False: the wire failed. */

static bool
kvr_relay_redis_write(kvr_relay_t *r)
{
    ssize_t             n;
    kvr_relay_redis_t  *c;

    c = &r->redis;

    while (c->out_first != c->out_last && !c->broken) {
        n = kvr_relay_wire_write(&c->wire, c->out + c->out_first,
                                 c->out_last - c->out_first);

        if (n <= 0) {
            return n == 0;
        }

        c->out_first += (size_t) n;
    }

    if (c->out_first == c->out_last) {
        kvr_relay_redis_empty(c);
    }

    return true;
}


/* Frees the memory of a large buffer that is empty. */

static void
kvr_relay_redis_empty(kvr_relay_redis_t *c)
{
    c->out_first = 0;
    c->out_last = 0;

    if (c->out_size > KVR_RELAY_OUT_KEEP) {
        free(c->out);
        c->out = NULL;
        c->out_size = 0;
    }
}


/* ---- commands ----------------------------------------------------------- */

void
kvr_relay_redis_argv(kvr_relay_t *r, kvr_relay_reply_pt *reply, void *data,
    int argc, const char **argv, const size_t *len)
{
    char               *text;
    uint32_t            last;
    long long           n;
    kvr_relay_redis_t  *c;

    c = &r->redis;

    if (c->npending == KVR_RELAY_PENDING) {
        kvr_relay_redis_break(r, "too many commands are waiting", NULL);
    }

    if (c->wire.phase != KVR_RELAY_WIRE_NONE && !c->broken) {
        text = NULL;
        n = redisFormatCommandArgv(&text, argc, argv, len);

        if (n < 0 || !kvr_relay_redis_put(c, text, (size_t) n)) {
            kvr_relay_redis_break(r, "too much is waiting, or no memory",
                                  NULL);
        }

        redisFreeCommand(text);
    }

    if (c->wire.phase == KVR_RELAY_WIRE_NONE || c->broken) {
        if (reply != NULL) {
            reply(r, data, NULL);
        }

        return;
    }

    if (c->npending == 0) {
        c->heard_ms = r->now_ms;
    }

    last = (c->first + c->npending++) % KVR_RELAY_PENDING;

    c->pending[last].reply = reply;
    c->pending[last].data = data;
}


static bool
kvr_relay_redis_put(kvr_relay_redis_t *c, const char *bytes, size_t len)
{
    char    *out;
    size_t   used, size;

    used = c->out_last - c->out_first;

    if (used + len > KVR_RELAY_OUT_MAX) {
        return false;
    }

    if (c->out_last + len > c->out_size) {

        if (used != 0) {
            memmove(c->out, c->out + c->out_first, used);
        }

        c->out_first = 0;
        c->out_last = used;

        /* a buffer that is half empty is not filled up again soon */

        if (used + len > c->out_size / 2) {
            size = kvr_max(c->out_size * 2, KVR_RELAY_OUT_MIN);

            while (size < used + len) {
                size *= 2;
            }

            out = realloc(c->out, size);
            if (out == NULL) {
                return false;
            }

            c->out = out;
            c->out_size = size;
        }
    }

    memcpy(c->out + c->out_last, bytes, len);
    c->out_last += len;

    return true;
}
