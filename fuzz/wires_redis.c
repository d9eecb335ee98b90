/*
 * Copyright (C) the nginx-kv-router authors
 *
 * In the place of the connection to Redis, and a Redis that works.
 */


#include "wires.h"

#include "wire/kvr_event.h"


#define OWED      4096                  /* answers */
#define KEYS      512                   /* of Redis */
#define KEY       256                   /* bytes */
#define FIELDS    32                    /* of a pointer */
#define ARGS      64                    /* of a command, at most */
#define ANSWER    (1u << 20)            /* bytes */


typedef struct {
    kvr_relay_reply_pt  *reply;
    void                *data;
    char                *answer;        /* of a Redis that works */
    size_t               len;
} owed_t;


typedef struct {
    char     name[KEY];
    char    *bytes;
    size_t   len;
} stored_t;


static void give(kvr_relay_t *r, const char *bytes, size_t len);
static void owe(kvr_relay_reply_pt *reply, void *data, int argc,
    const char **argv, const size_t *len);
static size_t work(int argc, const char **argv, const size_t *len,
    char *answer);
static size_t bulk(char *answer, const char *bytes, size_t len);
static size_t pointer_field(char *answer, const char *name);
static void published(const char *id, const void *bytes, size_t len);
static void put(const char *name, size_t name_len, const char *bytes,
    size_t len);
static stored_t *get(const char *name);


static owed_t    owed[OWED];
static uint32_t  first_owed, nowed;
static stored_t  keys[KEYS];
static uint32_t  nkeys;
static char      fields[FIELDS][2][KEY];
static uint32_t  nfields;
static bool      multi, full;


void
wires_redis_reset(void)
{
    while (nkeys != 0) {
        free(keys[--nkeys].bytes);
    }

    nfields = 0;
    full = false;
}


void
wires_redis_clear(void)
{
    for ( /* void */ ; nowed != 0; nowed--) {
        free(owed[first_owed % OWED].answer);
        first_owed++;
    }

    multi = false;
}


bool
kvr_relay_redis_init(kvr_relay_t *r, const kvr_relay_redis_told_t *told,
    char why[KVR_RELAY_TLS_WHY])
{
    memset(&r->redis, 0, sizeof(kvr_relay_redis_t));
    r->redis.told = *told;

    return true;
}


/* Who waits for an answer is told that there will be none. */

static void
hang_up(kvr_relay_t *r)
{
    owed_t  o;

    while (nowed != 0) {
        o = owed[first_owed++ % OWED];
        nowed--;

        if (o.reply != NULL) {
            o.reply(r, o.data, NULL);
        }

        free(o.answer);
    }

    multi = false;
}


void
kvr_relay_redis_free(kvr_relay_t *r)
{
    hang_up(r);
    r->redis.up = false;
}


void
wires_redis(kvr_relay_t *r, bool up)
{
    if (up && !r->redis.up) {
        r->redis.up = true;
        r->redis.broken = false;
        r->redis.told.up(r);
        return;
    }

    if (!up && r->redis.up) {
        hang_up(r);

        r->redis.up = false;
        r->redis.broken = false;
        r->redis.told.down(r);
    }
}


void
kvr_relay_redis_tick(kvr_relay_t *r)
{
    if (r->redis.broken) {
        wires_redis(r, false);
    }
}


void
kvr_relay_redis_break(kvr_relay_t *r, const char *why, const redisReply *reply)
{
    r->redis.broken = r->redis.up;
}


void
kvr_relay_redis_argv(kvr_relay_t *r, kvr_relay_reply_pt *reply, void *data,
    int argc, const char **argv, const size_t *len)
{
    int     i;
    size_t  lens[ARGS];

    for (i = 0; len == NULL && i < argc; i++) {
        lens[i] = strlen(argv[i]);
    }

    if (!r->redis.up || r->redis.broken || nowed == OWED) {

        if (reply != NULL) {
            reply(r, data, NULL);
        }

        return;
    }

    owe(reply, data, argc, argv, len ? len : lens);
}


static void
owe(kvr_relay_reply_pt *reply, void *data, int argc, const char **argv,
    const size_t *len)
{
    size_t   n;
    owed_t  *o;

    static char  answer[ANSWER];

    n = work(argc, argv, len, answer);

    o = &owed[(first_owed + nowed++) % OWED];
    o->reply = reply;
    o->data = data;
    o->answer = fuzz_copy(answer, n);
    o->len = n;
}


void
wires_answer(kvr_relay_t *r, uint32_t n)
{
    char    *answer;
    size_t   len;

    while (n-- != 0 && nowed != 0 && r->redis.up
           && !r->redis.broken)
    {
        answer = owed[first_owed % OWED].answer;
        len = owed[first_owed % OWED].len;
        owed[first_owed % OWED].answer = NULL;

        give(r, answer, len);
        free(answer);
    }
}


void
wires_reply(kvr_relay_t *r, const void *bytes, size_t len)
{
    char    *copy;
    size_t   i;

    /* those that nobody looks at say nothing */

    while (nowed != 0 && owed[first_owed % OWED].reply == NULL) {
        wires_answer(r, 1);
    }

    if (nowed == 0 || !r->redis.up || r->redis.broken) {
        return;
    }

    copy = fuzz_copy(bytes, len);

    /* hiredis takes memory for elements that are not there */

    for (i = 0; i + 5 < len && !(copy[i] == '*' && copy[i + 4] >= '0'
                                 && copy[i + 4] <= '9'); i++)
    {
        /* void */
    }

    give(r, copy, i + 5 < len ? i : len);
    free(copy);
}


/* An answer; one that ends too early breaks the connection. */

static void
give(kvr_relay_t *r, const char *bytes, size_t len)
{
    void         *reply;
    owed_t        o;
    redisReader  *reader;

    o = owed[first_owed++ % OWED];
    nowed--;

    free(o.answer);

    reader = redisReaderCreate();
    reply = NULL;

    if (redisReaderFeed(reader, bytes, len) != REDIS_OK
        || redisReaderGetReply(reader, &reply) != REDIS_OK || reply == NULL)
    {
        kvr_relay_redis_break(r, "no answer", NULL);
    }

    if (o.reply != NULL) {
        o.reply(r, o.data, reply);
    }

    if (reply != NULL) {
        freeReplyObject(reply);
    }

    redisReaderFree(reader);
}


/* ---- a Redis that works ------------------------------------------------- */

#define is(i, text)                                                           \
    (len[i] == sizeof(text) - 1 && memcmp(argv[i], text, len[i]) == 0)


static size_t
work(int argc, const char **argv, const size_t *len, char *answer)
{
    int        i;
    size_t     n;
    stored_t  *k;

    if (is(0, "MULTI")) {
        multi = true;
        return (size_t) sprintf(answer, "+OK\r\n");
    }

    if (is(0, "EXEC")) {
        multi = false;
        return (size_t) sprintf(answer, "*2\r\n$3\r\n1-1\r\n:1\r\n");
    }

    if (is(0, "XADD")) {
        published(argv[2], argv[4], len[4]);
    }

    if (multi) {
        return (size_t) sprintf(answer, "+QUEUED\r\n");
    }

    if (is(0, "SET")) {
        put(argv[1], len[1], argv[2], len[2]);
        return (size_t) sprintf(answer, "+OK\r\n");
    }

    if (is(0, "GET")) {
        k = get(argv[1]);
        return bulk(answer, k ? k->bytes : NULL, k ? k->len : 0);
    }

    if (is(0, "HMGET")) {
        n = (size_t) sprintf(answer, "*%d\r\n", argc - 2);

        for (i = 2; i < argc; i++) {
            n += pointer_field(answer + n, argv[i]);
        }

        return n;
    }

    if (is(0, "XREVRANGE") || is(0, "XRANGE")) {
        return (size_t) sprintf(answer, "*0\r\n");
    }

    if (is(0, "HGET") || is(0, "GETDEL")) {
        return (size_t) sprintf(answer, "$-1\r\n");
    }

    /* the pointer of a snapshot: its fields are behind the epoch */

    if (is(0, "EVAL") && is(2, "2")) {
        nfields = 0;

        for (i = 0; i + 1 < argc && !is(i, "version"); i++) {
            /* void */
        }

        for ( /* void */ ; i + 1 < argc && nfields < FIELDS; i += 2) {
            snprintf(fields[nfields][0], KEY, "%s", argv[i]);
            snprintf(fields[nfields][1], KEY, "%s", argv[i + 1]);
            nfields++;
        }
    }

    return (size_t) sprintf(answer, ":1\r\n");
}


static size_t
bulk(char *answer, const char *bytes, size_t len)
{
    size_t  n;

    if (bytes == NULL || len + 64 > ANSWER) {
        return (size_t) sprintf(answer, "$-1\r\n");
    }

    n = (size_t) sprintf(answer, "$%zu\r\n", len);
    memcpy(answer + n, bytes, len);
    memcpy(answer + n + len, "\r\n", 2);

    return n + len + 2;
}


static size_t
pointer_field(char *answer, const char *name)
{
    uint32_t  i;

    for (i = 0; i < nfields; i++) {
        if (strcmp(fields[i][0], name) == 0) {
            return bulk(answer, fields[i][1], strlen(fields[i][1]));
        }
    }

    return bulk(answer, NULL, 0);
}


bool
wires_snapshot(uint64_t *blocks)
{
    uint32_t  i;

    for (i = 0; i < nfields && !full; i++) {
        if (strcmp(fields[i][0], "blocks") == 0) {
            *blocks = strtoull(fields[i][1], NULL, 10);
            return true;
        }
    }

    return false;
}


/* Routers can read it, and all that is in it. */

static void
published(const char *id, const void *bytes, size_t len)
{
    char            text[64];
    void           *copy;
    kvr_rc_t        rc;
    kvr_why_t       why;
    kvr_event_t     ev;
    const char     *detail;
    kvr_message_t   msg;

    static kvr_decoder_t  *decoder;

    if (decoder == NULL) {
        decoder = kvr_decoder_create();
    }

    copy = fuzz_copy(bytes, len);

    if (kvr_message_open(decoder, copy, len, &msg, &why, &detail) != KVR_OK
        || msg.form != KVR_FORM_ENVELOPE || !msg.counted || msg.heartbeat)
    {
        fuzz_fail("what was published is no envelope");
    }

    snprintf(text, sizeof(text), "%llu-%llu", (unsigned long long) msg.epoch,
             (unsigned long long) msg.seq);

    if (strcmp(text, id) != 0) {
        fuzz_fail("envelope %s has the id %s", text, id);
    }

    while ((rc = kvr_decoder_next(decoder, &ev)) == KVR_OK) {
        if (ev.verdict != KVR_KEEP) {
            fuzz_fail("an event that was published is not kept");
        }
    }

    if (rc != KVR_DONE) {
        fuzz_fail("what was published can't be read to its end");
    }

    free(copy);
}


static void
put(const char *name, size_t name_len, const char *bytes, size_t len)
{
    stored_t  *k;

    k = get(name);

    if (k == NULL) {
        if (nkeys == KEYS || name_len >= KEY) {
            full = true;
            return;
        }

        k = &keys[nkeys++];
        memcpy(k->name, name, name_len + 1);
        k->bytes = NULL;
    }

    free(k->bytes);
    k->bytes = fuzz_copy(bytes, len);
    k->len = len;
}


static stored_t *
get(const char *name)
{
    uint32_t  i;

    for (i = 0; i < nkeys; i++) {
        if (strcmp(keys[i].name, name) == 0) {
            return &keys[i];
        }
    }

    return NULL;
}
