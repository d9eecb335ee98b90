/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Decodes a message and keeps all its events, for tests.
 */


#ifndef DECODE_H_INCLUDED
#define DECODE_H_INCLUDED


#include "wire/kvr_event.h"
#include "pack.h"
#include "tap.h"


#define DECODE_EVENTS   64      /* events that are kept */
#define DECODE_VALUES   256     /* handles, tokens, … of each */


typedef struct {
    kvr_event_t    ev;          /* its arrays are those below */
    char           detail[96];
    uint64_t       handles[DECODE_VALUES];
    uint64_t       locals[DECODE_VALUES];
    uint32_t       tokens[DECODE_VALUES];
    uint32_t       remaining[DECODE_VALUES];
    uint64_t       mm[DECODE_VALUES];
    uint32_t       mm_start[DECODE_VALUES + 1];
    char           worker[64];
    char           lora[96];
    char           salt[96];
} decoded_event_t;


static struct {
    kvr_rc_t         opened;
    kvr_rc_t         ended;     /* KVR_DONE or KVR_INVALID */
    kvr_message_t    msg;
    kvr_why_t        why;
    char             detail[96];
    char             worker[64];
    uint32_t         n;
    decoded_event_t  event[DECODE_EVENTS];
} got;


static kvr_decoder_t  *decoder;


static inline void
decode_keep(decoded_event_t *e, const kvr_event_t *ev)
{
    size_t  n;

    memset(e, 0, sizeof(decoded_event_t));
    e->ev = *ev;
    snprintf(e->detail, sizeof(e->detail), "%s", kvr_decoder_detail(decoder));

#define DECODE_COPY(to, from, count)                                          \
    if ((from) != NULL) {                                                     \
        n = kvr_min((size_t) (count), DECODE_VALUES);                         \
        memcpy(to, from, n * sizeof((to)[0]));                                \
    }

    DECODE_COPY(e->handles, ev->handles, ev->nhandles);
    DECODE_COPY(e->locals, ev->locals, ev->nlocals);
    DECODE_COPY(e->tokens, ev->tokens, ev->ntokens);
    DECODE_COPY(e->remaining, ev->remaining, ev->nhandles);

    if (ev->mm_start != NULL) {
        DECODE_COPY(e->mm_start, ev->mm_start, ev->nhandles + 1);
        DECODE_COPY(e->mm, ev->mm, ev->mm_start[ev->nhandles]);
    }

    snprintf(e->worker, sizeof(e->worker), "%.*s", (int) ev->worker_len,
             ev->worker != NULL ? ev->worker : "");
    snprintf(e->lora, sizeof(e->lora), "%.*s", (int) ev->lora_len,
             ev->lora_name != NULL ? ev->lora_name : "");
    snprintf(e->salt, sizeof(e->salt), "%.*s", (int) ev->salt_len,
             ev->cache_salt != NULL ? ev->cache_salt : "");
}


/* Into got, from an exact copy, so that a sanitizer sees what is beyond. */
static inline void
decode_bytes(const void *bytes, size_t len)
{
    void         *copy;
    kvr_event_t   ev;
    const char   *detail;

    copy = malloc(len != 0 ? len : 1);

    if (len != 0) {
        memcpy(copy, bytes, len);
    }

    got.n = 0;
    got.ended = KVR_DONE;
    got.opened = kvr_message_open(decoder, copy, len, &got.msg, &got.why,
                                  &detail);
    snprintf(got.detail, sizeof(got.detail), "%s", detail);

    snprintf(got.worker, sizeof(got.worker), "%.*s", (int) got.msg.worker_len,
             got.msg.worker != NULL ? got.msg.worker : "");

    if (got.opened == KVR_OK) {

        while ((got.ended = kvr_decoder_next(decoder, &ev)) == KVR_OK) {
            if (got.n < DECODE_EVENTS) {
                decode_keep(&got.event[got.n], &ev);
            }

            got.n++;
        }

        if (got.ended == KVR_INVALID) {
            snprintf(got.detail, sizeof(got.detail), "%s",
                     kvr_decoder_detail(decoder));
        }
    }

    free(copy);
}


/* JSON as it is, with apostrophes for quotation marks. */
static inline void
decode_json(const char *json)
{
    char  *text;

    text = quoted(json);
    decode_bytes(text, strlen(text));
    free(text);
}


/* A msgpack message that pack() makes of this. */
static inline void
decode(const char *json)
{
    size_t   len;
    uint8_t  bytes[16384];

    len = pack(bytes, sizeof(bytes), json);
    decode_bytes(bytes, len);
}


/* One event in an engine's batch: its verdict and reason. */
static inline bool
decode_event(const char *json, kvr_verdict_t verdict, kvr_why_t why)
{
    bool    good;
    char   *text;
    size_t  len;

    len = strlen(json) + 32;
    text = malloc(len);
    snprintf(text, len, "[1.5, [%s]]", json);
    decode(text);
    free(text);

    good = got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 1
           && got.event[0].ev.verdict == verdict
           && got.event[0].ev.why == why;

    if (!good) {
        note("open %d, end %d, events %u, verdict %d, why %s: %s %s",
             got.opened, got.ended, got.n, got.event[0].ev.verdict,
             kvr_why_name(got.event[0].ev.why), got.detail,
             got.event[0].detail);
    }

    return good;
}


#endif /* DECODE_H_INCLUDED */
