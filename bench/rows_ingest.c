/*
 * Copyright (C) the nginx-kv-router authors
 *
 * From the socket to the index: what Redis publishes, over a loopback
 * connection from another process, through hiredis' reader, the decoder, the
 * hash and the state machine into a zone.  What is measured is the CPU time of
 * the receiving process, the kernel's share of it included: what one core
 * can do.
 *
 * The same bytes are received three times: read as RESP only; decoded too;
 * and applied.  The differences are the split.
 */


#include "index.h"
#include "follow/kvr_ingest.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>


#define IN_TOKENS      16u              /* a block */
#define IN_VOCABULARY  128000u
#define IN_READ        16384u           /* bytes a read, as in nginx */
#define IN_BATCH       4096u            /* blocks of a slice */
#define IN_ZONE        (512ul << 20)


typedef enum {
    IN_RESP,
    IN_DECODE,
    IN_APPLY
} in_depth_t;


/* A stream of messages of one kind. */
typedef struct {
    const char  *name;
    uint32_t     sequences;             /* of WL_DEPTH blocks */
    uint32_t     blocks;                /* an event */
    uint32_t     events;                /* a message, of as many sequences */
    bool         enveloped;
} in_kind_t;


typedef struct {
    uint8_t  *start;
    uint8_t  *pos;
    uint64_t  messages;
} in_out_t;


static void in_row(const in_kind_t *kind);
static void in_zone_open(void);
static void in_zone_close(void);
static void in_clear(const in_kind_t *kind, uint64_t epoch);
static void in_make(in_out_t *out, const in_kind_t *kind, uint64_t epoch);
static void in_publish(in_out_t *out, uint32_t worker, const in_out_t *body);
static void in_event(in_out_t *out, const in_kind_t *kind, uint32_t s,
    uint32_t d);
static void in_handle(in_out_t *out, uint32_t s, uint32_t d);
static void in_head(in_out_t *out, uint8_t tag, uint64_t n, uint32_t bytes);
static void in_words(in_out_t *out, const uint64_t *words, uint32_t n);
static void in_envelope(in_out_t *out, uint32_t worker, uint64_t epoch,
    uint64_t seq, const in_out_t *payload);
static uint64_t in_receive(const in_out_t *out, in_depth_t depth);
static void in_writer(const in_out_t *out);
static void in_reply(const redisReply *r, in_depth_t depth);
static void in_message(const char *worker, size_t len, const void *bytes,
    size_t n);
static uint64_t in_cpu(void);


static kvr_router_t    router;
static void           *base;
static kvr_ingest_t   *ingest;
static kvr_decoder_t  *decoder;
static kvr_hasher_t    hasher;
static uint64_t        seqs[WL_WORKERS];
static pid_t           writer;
static int             orders;          /* to it: how much to write */

static struct sockaddr_in  address;


void
rows_ingest(void)
{
    size_t  i;

    static const in_kind_t  kinds[] = {
        { "vLLM, 64 blocks an event", 896, 64, 1, false },
        { "vLLM, 1 block an event", 512, 1, 1, false },
        { "vLLM, 1 block an event, 64 a message", 512, 1, 64, false },
        { "envelope, 64 blocks an event", 896, 64, 1, true },
        { "envelope, 1 block an event", 512, 1, 1, true },
        { "envelope, 1 block an event, 64 a message", 512, 1, 64, true }
    };

    memset(&hasher, 0, sizeof(kvr_hasher_t));
    kvr_hasher_init(&hasher, KVR_HASH_SEED);
    signal(SIGPIPE, SIG_IGN);

    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        in_row(&kinds[i]);
    }
}


static void
in_row(const in_kind_t *kind)
{
    char         name[96];
    double       blocks;
    uint64_t     ns[3];
    uint32_t     i;
    in_out_t     out;
    kvr_stats_t  stats;

    out.start = mmap(NULL, 1ul << 30, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ix_must(out.start != MAP_FAILED, "memory");
    in_writer(&out);

    in_zone_open();
    decoder = kvr_decoder_create();

    /* the first time the kernel gives memory */

    in_clear(kind, 1);
    in_make(&out, kind, 1);
    (void) in_receive(&out, IN_APPLY);
    in_clear(kind, 2);
    in_make(&out, kind, 2);

    for (i = IN_RESP; i <= IN_APPLY; i++) {
        ns[i] = in_receive(&out, (in_depth_t) i);
    }

    blocks = (double) kind->sequences * WL_DEPTH;
    kvr_router_stats(&router, &stats);
    ix_must(stats.handles == blocks, "all blocks are held");

    snprintf(name, sizeof(name), "ingest: %s", kind->name);
    ix_say(name, kind->blocks == 1 ? "k events/s" : "k blocks/s",
           blocks * 1e6 / ns[IN_APPLY]);

    snprintf(name, sizeof(name), "ingest: %s: RESP", kind->name);
    ix_say(name, "ns/block", ns[IN_RESP] / blocks);
    snprintf(name, sizeof(name), "ingest: %s: decoder", kind->name);
    ix_say(name, "ns/block",
           ((double) ns[IN_DECODE] - (double) ns[IN_RESP]) / blocks);
    snprintf(name, sizeof(name), "ingest: %s: hash, index", kind->name);
    ix_say(name, "ns/block",
           ((double) ns[IN_APPLY] - (double) ns[IN_DECODE]) / blocks);

    kvr_decoder_destroy(decoder);
    in_zone_close();
    close(orders);
    waitpid(writer, NULL, 0);
    munmap(out.start, 1ul << 30);
}


static void
in_zone_open(void)
{
    char  why[KVR_WHY_LEN];

    static const kvr_params_t  params = {
        .block_size = IN_TOKENS, .max_workers = 2 * WL_WORKERS, .shards = 1
    };

    base = mmap(NULL, IN_ZONE, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ix_must(base != MAP_FAILED
            && kvr_router_format(base, IN_ZONE, &params, why) == KVR_OK
            && kvr_router_attach(&router, base, IN_ZONE, &params, why)
               == KVR_OK
            && kvr_router_join(&router) == KVR_OK
            && kvr_router_lease(&router, 0, 0, 1000) == KVR_OK, "a zone");

    ingest = kvr_ingest_create(&router);
    ix_must(ingest != NULL, "memory");
}


static void
in_zone_close(void)
{
    kvr_ingest_destroy(ingest);
    kvr_router_leave(&router);
    kvr_router_detach(&router);
    munmap(base, IN_ZONE);
}


/* The first message of each worker, after which it holds nothing. */

static void
in_clear(const in_kind_t *kind, uint64_t epoch)
{
    char      worker[16];
    uint8_t   bytes[256];
    uint32_t  w;
    in_out_t  body, all;

    static const uint8_t  bare[] = "\x92\xcb\0\0\0\0\0\0\0\0\x91\x91\xb0"
                                   "AllBlocksCleared";
    static const uint8_t  batch[] = "\x91\x92\xa1" "c\0";

    for (w = 0; w < WL_WORKERS; w++) {
        body.start = (uint8_t *) (kind->enveloped ? batch : bare);
        body.pos = body.start + (kind->enveloped ? sizeof(batch)
                                                 : sizeof(bare)) - 1;
        all.start = all.pos = bytes;

        if (kind->enveloped) {
            seqs[w] = 1;
            in_envelope(&all, w, epoch, seqs[w], &body);

        } else {
            all = body;
        }

        snprintf(worker, sizeof(worker), "w%u", w);
        in_message(worker, strlen(worker), all.start,
                   (size_t) (all.pos - all.start));
    }

    while (kvr_router_tend(&router, 1000, 10000)) {
        /* void */
    }
}


/* Sequences take turns, as many as there are events in a message. */

static void
in_make(in_out_t *out, const in_kind_t *kind, uint64_t epoch)
{
    uint32_t   s, d, w, i;
    in_out_t   batch, whole;

    batch.start = wl_alloc(1u << 20);
    whole.start = wl_alloc(1u << 20);
    out->pos = out->start;
    out->messages = 0;

    /* all sequences of a message are one worker's: w, w + 128, … */

    for (s = 0; s < kind->sequences; s += kind->events) {
        w = (s / kind->events) % WL_WORKERS;

        for (d = 0; d < WL_DEPTH; d += kind->blocks) {
            batch.pos = batch.start;

            if (!kind->enveloped) {
                in_head(&batch, 0x93, 0, 0);
                in_head(&batch, 0xcb, UINT64_C(0x41d26580b4800000), 8);
            }

            in_head(&batch, 0xdc, kind->events, 2);

            for (i = 0; i < kind->events; i++) {
                in_event(&batch, kind, s + i, d);
            }

            if (!kind->enveloped) {
                in_head(&batch, 0xc0, 0, 0);
                in_publish(out, w, &batch);
                continue;
            }

            whole.pos = whole.start;
            in_envelope(&whole, w, epoch, ++seqs[w], &batch);
            in_publish(out, w, &whole);
        }
    }

    free(batch.start);
    free(whole.start);
}


static void
in_publish(in_out_t *out, uint32_t worker, const in_out_t *body)
{
    char    channel[32];
    size_t  len;

    snprintf(channel, sizeof(channel), "kv-events:w%u", worker);
    len = (size_t) (body->pos - body->start);

    out->pos += sprintf((char *) out->pos,
                        "*4\r\n$8\r\npmessage\r\n$11\r\nkv-events:*\r\n"
                        "$%zu\r\n%s\r\n$%zu\r\n",
                        strlen(channel), channel, len);
    memcpy(out->pos, body->start, len);
    out->pos += len;
    *out->pos++ = '\r';
    *out->pos++ = '\n';
    out->messages++;
}


static void
in_event(in_out_t *out, const in_kind_t *kind, uint32_t s, uint32_t d)
{
    uint32_t  i, token, tokens[WL_DEPTH * IN_TOKENS];
    uint64_t  handles[WL_DEPTH], locals[WL_DEPTH];

    for (i = 0; i < kind->blocks * IN_TOKENS; i++) {
        tokens[i] = wl_mix(((uint64_t) s << 32) + d * IN_TOKENS + i)
                    % IN_VOCABULARY;
    }

    if (kind->enveloped) {
        kvr_hash_blocks(&hasher, tokens, kind->blocks * IN_TOKENS, IN_TOKENS,
                        locals);
        in_head(out, 0x96, 0, 0);
        in_head(out, 0xa1, 's', 1);
        in_head(out, 0, 0, 0);
        in_head(out, 0, 0, 0);

        if (d) {
            in_handle(out, s, d - 1);

        } else {
            in_head(out, 0xc0, 0, 0);
        }

        for (i = 0; i < kind->blocks; i++) {
            handles[i] = wl_mix(wl_mix(s) + d + i);
        }

        in_words(out, handles, kind->blocks);
        in_words(out, locals, kind->blocks);

        return;
    }

    in_head(out, 0x98, 0, 0);
    in_head(out, 0xab, 0, 0);
    memcpy(out->pos, "BlockStored", 11);
    out->pos += 11;

    in_head(out, 0xdc, kind->blocks, 2);

    for (i = 0; i < kind->blocks; i++) {
        in_handle(out, s, d + i);
    }

    if (d) {
        in_handle(out, s, d - 1);

    } else {
        in_head(out, 0xc0, 0, 0);
    }

    in_head(out, 0xdc, kind->blocks * IN_TOKENS, 2);

    for (i = 0; i < kind->blocks * IN_TOKENS; i++) {
        token = tokens[i];

        if (token < 0x80) {
            in_head(out, (uint8_t) token, 0, 0);

        } else if (token <= UINT8_MAX) {
            in_head(out, 0xcc, token, 1);

        } else if (token <= UINT16_MAX) {
            in_head(out, 0xcd, token, 2);

        } else {
            in_head(out, 0xce, token, 4);
        }
    }

    in_head(out, IN_TOKENS, 0, 0);
    in_head(out, 0xc0, 0, 0);
    in_head(out, 0xa3, 0, 0);
    memcpy(out->pos, "GPU", 3);
    out->pos += 3;
    in_head(out, 0xc0, 0, 0);
}


static void
in_handle(in_out_t *out, uint32_t s, uint32_t d)
{
    in_head(out, 0xcf, wl_mix(wl_mix(s) + d), 8);
}


static void
in_head(in_out_t *out, uint8_t tag, uint64_t n, uint32_t bytes)
{
    *out->pos++ = tag;

    while (bytes-- > 0) {
        *out->pos++ = (uint8_t) (n >> (8 * bytes));
    }
}


static void
in_words(in_out_t *out, const uint64_t *words, uint32_t n)
{
    in_head(out, 0xc5, n * sizeof(uint64_t), 2);
    memcpy(out->pos, words, n * sizeof(uint64_t));
    out->pos += n * sizeof(uint64_t);
}


static void
in_envelope(in_out_t *out, uint32_t worker, uint64_t epoch, uint64_t seq,
    const in_out_t *payload)
{
    char    name[16];
    size_t  len;

    snprintf(name, sizeof(name), "w%u", worker);
    len = (size_t) (payload->pos - payload->start);

    in_head(out, 0x97, 0, 0);
    in_head(out, 0xa4, 0, 0);
    memcpy(out->pos, "kvr1", 4);
    out->pos += 4;
    in_head(out, (uint8_t) (0xa0 | strlen(name)), 0, 0);
    memcpy(out->pos, name, strlen(name));
    out->pos += strlen(name);
    in_head(out, 0xcf, epoch, 8);
    in_head(out, 0xcf, seq, 8);
    in_head(out, 0xc3, 0, 0);
    in_head(out, 0xc0, 0, 0);
    in_head(out, 0xc6, len, 4);
    memcpy(out->pos, payload->start, len);
    out->pos += len;
}


/* CPU time that it takes to receive all, ns. */

static uint64_t
in_receive(const in_out_t *out, in_depth_t depth)
{
    int           fd;
    void         *reply;
    size_t        size;
    ssize_t       n;
    uint64_t      t, messages;
    redisReader  *reader;

    static char   buf[IN_READ];

    size = (size_t) (out->pos - out->start);
    fd = socket(AF_INET, SOCK_STREAM, 0);

    ix_must(fd != -1 && write(orders, &size, sizeof(size)) == sizeof(size)
            && connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0,
            "a connection");

    reader = redisReaderCreate();
    messages = 0;
    t = in_cpu();

    for ( ;; ) {
        n = read(fd, buf, sizeof(buf));

        if (n <= 0) {
            break;
        }

        ix_must(redisReaderFeed(reader, buf, (size_t) n) == REDIS_OK, "RESP");

        for ( ;; ) {
            ix_must(redisReaderGetReply(reader, &reply) == REDIS_OK, "RESP");

            if (reply == NULL) {
                break;
            }

            in_reply(reply, depth);
            freeReplyObject(reply);
            messages++;
        }
    }

    t = in_cpu() - t;

    ix_must(messages == out->messages, "all messages came");
    redisReaderFree(reader);
    close(fd);

    return t;
}


/*
 * The process that writes is made before there is anything that it would share
 * with the one that reads: no page is copied while that one is timed.
 */

static void
in_writer(const in_out_t *out)
{
    int                 fd, server, ends[2];
    size_t              size;
    ssize_t             n;
    socklen_t           len;
    const uint8_t      *p;
    struct sockaddr_in  sin;

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    len = sizeof(sin);

    server = socket(AF_INET, SOCK_STREAM, 0);

    ix_must(server != -1
            && bind(server, (struct sockaddr *) &sin, len) == 0
            && getsockname(server, (struct sockaddr *) &address, &len) == 0
            && listen(server, 1) == 0 && pipe(ends) == 0, "a socket");

    writer = fork();
    ix_must(writer != -1, "fork");

    if (writer) {
        close(server);
        close(ends[0]);
        orders = ends[1];
        return;
    }

    close(ends[1]);

    while (read(ends[0], &size, sizeof(size)) == sizeof(size)) {
        fd = accept(server, NULL, NULL);

        for (p = out->start; p < out->start + size; p += n) {
            n = write(fd, p, (size_t) (out->start + size - p));

            if (n <= 0) {
                _exit(1);
            }
        }

        close(fd);
    }

    _exit(0);
}


static void
in_reply(const redisReply *r, in_depth_t depth)
{
    kvr_why_t          why;
    kvr_event_t        ev;
    const char        *detail;
    const redisReply  *channel, *body;
    kvr_message_t      msg;

    channel = r->element[2];
    body = r->element[3];

    switch (depth) {

    case IN_RESP:
        break;

    case IN_DECODE:
        ix_must(kvr_message_open(decoder, body->str, body->len, &msg, &why,
                                 &detail) == KVR_OK, "a message");

        while (kvr_decoder_next(decoder, &ev) == KVR_OK) {
            ix_must(ev.verdict == KVR_KEEP, "an event");
        }

        break;

    case IN_APPLY:
        in_message(channel->str + sizeof("kv-events:") - 1,
                   channel->len - (sizeof("kv-events:") - 1), body->str,
                   body->len);
        break;
    }
}


static void
in_message(const char *worker, size_t len, const void *bytes, size_t n)
{
    const char  *detail;

    ix_must(kvr_ingest_open(ingest, worker, len, bytes, n, true, 1000,
                            &detail) == KVR_INGEST_APPLY, "a message");

    while (kvr_ingest_step(ingest, IN_BATCH) == KVR_OK) {
        /* void */
    }
}


static uint64_t
in_cpu(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);

    return (uint64_t) ts.tv_sec * 1000000000u + (uint64_t) ts.tv_nsec;
}
