/*
 * Copyright (C) the nginx-kv-router authors
 */


#define CURL_DISABLE_TYPECHECK

#include "wires.h"

#include "event/kvr_msgpack.h"

#include <errno.h>
#include <stdarg.h>


#undef curl_easy_setopt
#undef curl_easy_getinfo


#define FRAMES    512                   /* on a wire */
#define OWED      4096                  /* answers */
#define KEYS      512                   /* of Redis */
#define KEY       256                   /* bytes */
#define FIELDS    32                    /* of a pointer */
#define ANSWER    (1u << 20)            /* bytes */


typedef struct {
    void     *bytes;
    size_t    len;
    bool      more;
} frame_t;


typedef struct {
    frame_t   frames[FRAMES];
    uint32_t  first;
    uint32_t  n;
} wire_t;


typedef struct {
    void    *wire;                      /* NULL: not connected */
    bool     taken;
} end_t;


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


static frame_t *message(zmq_msg_t *msg);
static void drain(wire_t *w);
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


uint64_t  wires_clock;
bool      wires_unloaded;

static wire_t     wires[WIRES][WIRES_RANKS];
static end_t      ends[WIRES * WIRES_RANKS];
static int        context;              /* there is one, somewhere */

static owed_t     owed[OWED];
static uint32_t   first_owed, nowed;
static stored_t     keys[KEYS];
static uint32_t   nkeys;
static char       fields[FIELDS][2][KEY];
static uint32_t   nfields;
static bool       multi, full;

static struct {
    bool        ready;
    CURLcode    code;
    long        status;
    void       *body;
    size_t      len;
    size_t    (*write)(char *bytes, size_t one, size_t n, void *data);
    void       *data;
    bool        asked;
    bool        done;
} http;


void
wires_reset(void)
{
    wires_clear();

    while (nkeys != 0) {
        free(keys[--nkeys].bytes);
    }

    nfields = 0;
    full = false;
    wires_unloaded = false;
}


void
wires_clear(void)
{
    uint32_t  i, k;

    for (i = 0; i < WIRES; i++) {
        for (k = 0; k < WIRES_RANKS; k++) {
            drain(&wires[i][k]);
        }
    }

    for (i = 0; i < WIRES * WIRES_RANKS; i++) {
        if (ends[i].taken) {
            fuzz_fail("a socket was left open");
        }
    }

    for ( /* void */ ; nowed != 0; nowed--) {
        free(owed[first_owed % OWED].answer);
        first_owed++;
    }

    free(http.body);
    memset(&http, 0, sizeof(http));

    multi = false;
}


uint64_t
kvr_relay_clock(void)
{
    return wires_clock;
}


uint64_t
kvr_relay_unix(void)
{
    return 1700000000000 + wires_clock;
}


/* The log's lines are made, and go nowhere. */

void __wrap_kvr_relay_log(kvr_relay_level_t level, const char *msg,
    const char *fmt, ...);

void
__wrap_kvr_relay_log(kvr_relay_level_t level, const char *msg,
    const char *fmt, ...)
{
    char     line[1024];
    va_list  args;

    if (fmt != NULL) {
        va_start(args, fmt);
        (void) vsnprintf(line, sizeof(line), fmt, args);
        va_end(args);
    }

    if (strcmp(msg, "snapshot not loaded") == 0) {
        wires_unloaded = true;
    }
}


/* ---- in the place of libzmq --------------------------------------------- */

static frame_t *
message(zmq_msg_t *msg)
{
    return (frame_t *) (void *) msg;
}


static void
drain(wire_t *w)
{
    for ( /* void */ ; w->n != 0; w->n--) {
        free(w->frames[w->first % FRAMES].bytes);
        w->first++;
    }
}


void
wires_frame(wires_kind_t kind, uint32_t rank, const void *bytes, size_t len,
    bool more)
{
    wire_t   *w;
    frame_t  *f;

    w = &wires[kind][rank % WIRES_RANKS];

    if (w->n == FRAMES) {
        drain(w);
    }

    f = &w->frames[(w->first + w->n) % FRAMES];
    f->bytes = fuzz_copy(bytes, len);
    f->len = len;
    f->more = more;
    w->n++;
}


void
wires_connect(uint32_t rank, bool up)
{
    uint8_t   frame[6];
    uint16_t  event;

    event = up ? ZMQ_EVENT_HANDSHAKE_SUCCEEDED : ZMQ_EVENT_DISCONNECTED;

    memset(frame, 0, sizeof(frame));
    memcpy(frame, &event, sizeof(event));

    wires_frame(WIRES_MONITOR, rank, frame, sizeof(frame), true);
    wires_frame(WIRES_MONITOR, rank, "", 0, false);
}


void *
zmq_ctx_new(void)
{
    return &context;
}


int
zmq_ctx_term(void *ctx)
{
    return 0;
}


void *
zmq_socket(void *ctx, int type)
{
    uint32_t  i;

    for (i = 0; i < WIRES * WIRES_RANKS; i++) {
        if (!ends[i].taken) {
            ends[i].taken = true;
            ends[i].wire = NULL;
            return &ends[i];
        }
    }

    fuzz_fail("too many sockets");
}


int
zmq_close(void *socket)
{
    end_t  *e;

    e = socket;

    if (!e->taken) {
        fuzz_fail("a socket was closed twice");
    }

    if (e->wire != NULL) {
        drain(e->wire);
    }

    e->taken = false;

    return 0;
}


/* "events:<rank>", "replay:<rank>", and the monitor's own. */

int
zmq_connect(void *socket, const char *address)
{
    end_t         *e;
    uint32_t       rank;
    wires_kind_t   kind;

    e = socket;
    rank = (uint32_t) (address[strlen(address) - 1] - '0');
    kind = address[0] == 'e' ? WIRES_EVENTS
           : address[0] == 'r' ? WIRES_REPLAY : WIRES_MONITOR;

    e->wire = &wires[kind][rank];

    if (kind == WIRES_REPLAY) {
        drain(e->wire);                 /* meant for another one */
    }

    return 0;
}


int
zmq_disconnect(void *socket, const char *address)
{
    end_t  *e;

    e = socket;
    e->wire = NULL;

    return 0;
}


int
zmq_setsockopt(void *socket, int option, const void *value, size_t len)
{
    return 0;
}


/* ZMQ_EVENTS alone: a connection can be written to until it is over. */

int
zmq_getsockopt(void *socket, int option, void *value, size_t *len)
{
    end_t  *e;

    e = socket;

    if (option != ZMQ_EVENTS || *len != sizeof(int)) {
        fuzz_fail("an option that nobody knows is asked for");
    }

    *(int *) value = e->wire != NULL ? ZMQ_POLLOUT : 0;

    return 0;
}


int
zmq_socket_monitor(void *socket, const char *address, int events)
{
    return 0;
}


int
zmq_send(void *socket, const void *bytes, size_t len, int flags)
{
    return (int) len;
}


int
zmq_errno(void)
{
    return errno;
}


const char *
zmq_strerror(int number)
{
    return "an error";
}


int
zmq_msg_init(zmq_msg_t *msg)
{
    memset(message(msg), 0, sizeof(frame_t));

    return 0;
}


int
zmq_msg_close(zmq_msg_t *msg)
{
    free(message(msg)->bytes);
    memset(message(msg), 0, sizeof(frame_t));

    return 0;
}


int
zmq_msg_move(zmq_msg_t *to, zmq_msg_t *from)
{
    free(message(to)->bytes);
    *message(to) = *message(from);
    memset(message(from), 0, sizeof(frame_t));

    return 0;
}


void *
zmq_msg_data(zmq_msg_t *msg)
{
    return message(msg)->bytes;
}


size_t
zmq_msg_size(const zmq_msg_t *msg)
{
    return message((zmq_msg_t *) (uintptr_t) msg)->len;
}


int
zmq_msg_more(const zmq_msg_t *msg)
{
    return message((zmq_msg_t *) (uintptr_t) msg)->more;
}


int
zmq_msg_recv(zmq_msg_t *msg, void *socket, int flags)
{
    wire_t  *w;

    w = ((end_t *) socket)->wire;

    if (w == NULL || w->n == 0) {
        errno = EAGAIN;
        return -1;
    }

    free(message(msg)->bytes);
    *message(msg) = w->frames[w->first % FRAMES];

    w->first++;
    w->n--;

    /* a message is there as a whole */

    if (w->n == 0) {
        message(msg)->more = false;
    }

    return (int) message(msg)->len;
}


/* ---- in the place of libcurl -------------------------------------------- */

void
wires_http(CURLcode code, long status, const void *body, size_t len)
{
    free(http.body);

    http.ready = true;
    http.code = code;
    http.status = status;
    http.body = fuzz_copy(body, len);
    http.len = len;
}


CURLcode
curl_global_init(long flags)
{
    return CURLE_OK;
}


CURLM *
curl_multi_init(void)
{
    return (CURLM *) &http;
}


CURL *
curl_easy_init(void)
{
    return (CURL *) &http;
}


void
curl_easy_cleanup(CURL *easy)
{
}


CURLMcode
curl_multi_cleanup(CURLM *m)
{
    return CURLM_OK;
}


struct curl_slist *
curl_slist_append(struct curl_slist *list, const char *text)
{
    static struct curl_slist  one;

    return &one;
}


void
curl_slist_free_all(struct curl_slist *list)
{
}


CURLcode
curl_easy_setopt(CURL *easy, CURLoption option, ...)
{
    va_list  args;

    va_start(args, option);

    if (option == CURLOPT_WRITEFUNCTION) {
        http.write = va_arg(args, size_t (*)(char *, size_t, size_t, void *));

    } else if (option == CURLOPT_WRITEDATA) {
        http.data = va_arg(args, void *);
    }

    va_end(args);

    return CURLE_OK;
}


CURLcode
curl_easy_getinfo(CURL *easy, CURLINFO info, ...)
{
    va_list  args;

    va_start(args, info);
    *va_arg(args, long *) = http.status;
    va_end(args);

    return CURLE_OK;
}


const char *
curl_easy_strerror(CURLcode code)
{
    return "an error";
}


CURLMcode
curl_multi_add_handle(CURLM *m, CURL *easy)
{
    http.asked = true;

    return CURLM_OK;
}


CURLMcode
curl_multi_remove_handle(CURLM *m, CURL *easy)
{
    http.asked = false;

    return CURLM_OK;
}


CURLMcode
curl_multi_fdset(CURLM *m, fd_set *in, fd_set *out, fd_set *error, int *max)
{
    return CURLM_OK;
}


CURLMcode
curl_multi_timeout(CURLM *m, long *ms)
{
    return CURLM_OK;
}


/* The body comes in two pieces. */

CURLMcode
curl_multi_perform(CURLM *m, int *running)
{
    size_t   half;
    char    *piece;

    if (!http.asked || !http.ready) {
        return CURLM_OK;
    }

    half = http.len / 2;

    piece = fuzz_copy(http.body, half);
    (void) http.write(piece, 1, half, http.data);
    free(piece);

    piece = fuzz_copy((char *) http.body + half, http.len - half);
    (void) http.write(piece, 1, http.len - half, http.data);
    free(piece);

    http.ready = false;
    http.done = true;

    return CURLM_OK;
}


CURLMsg *
curl_multi_info_read(CURLM *m, int *left)
{
    static CURLMsg  msg;

    if (!http.done) {
        return NULL;
    }

    http.done = false;

    msg.msg = CURLMSG_DONE;
    msg.data.result = http.code;

    return &msg;
}


/* ---- in the place of the connection to Redis ---------------------------- */

bool
kvr_relay_redis_init(kvr_relay_t *r, char why[KVR_RELAY_TLS_WHY])
{
    memset(&r->redis, 0, sizeof(kvr_relay_redis_t));

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
        kvr_relay_session_up(r);
        return;
    }

    if (!up && r->redis.up) {
        hang_up(r);

        r->redis.up = false;
        r->redis.broken = false;
        kvr_relay_session_down(r);
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
kvr_relay_redis_args(kvr_relay_t *r, kvr_relay_reply_pt *reply, void *data,
    ...)
{
    int          n;
    size_t       len[16];
    va_list      args;
    const char  *argv[16];

    va_start(args, data);

    for (n = 0; n < 16; n++) {
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
    if (!r->redis.up || r->redis.broken || nowed == OWED) {

        if (reply != NULL) {
            reply(r, data, NULL);
        }

        return;
    }

    owe(reply, data, argc, argv, len);
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
    int      i;
    size_t   n;
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
