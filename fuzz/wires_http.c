/*
 * Copyright (C) the nginx-kv-router authors
 *
 * In the place of the HTTP client.
 */


#include "wires.h"


static kvr_relay_http_answer_t  answers;
static char                    *body;
static bool                     ready;


void
wires_http_clear(void)
{
    free(body);
    body = NULL;
    ready = false;
}


void
wires_http(const char *why, bool sent, long status, const void *bytes,
    size_t len)
{
    wires_http_clear();

    body = fuzz_copy(bytes, len);
    ready = true;

    answers.why = why;
    answers.sent = sent;
    answers.status = status;
    answers.body = body;
    answers.len = len;
}


bool
kvr_relay_http_open(kvr_relay_http_t *http, const char *url, size_t max)
{
    return true;
}


void
kvr_relay_http_close(kvr_relay_http_t *http)
{
    http->running = false;
}


void
kvr_relay_http_poll(kvr_relay_http_t *http, kvr_relay_loop_t *loop)
{
}


void
kvr_relay_http_ask(kvr_relay_http_t *http, bool get)
{
    http->running = true;
}


bool
kvr_relay_http_answered(kvr_relay_http_t *http,
    kvr_relay_http_answer_t *answer, uint64_t *ms)
{
    *answer = answers;
    *ms = 100;
    http->running = !ready;
    ready = false;

    return !http->running;
}
