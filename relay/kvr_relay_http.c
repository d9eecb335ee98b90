/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdlib.h>
#include <sys/select.h>


#define KVR_RELAY_HTTP_MS    5000       /* for an answer */
/* ms: while a host name is looked up, there may be no socket to poll */
#define KVR_RELAY_HTTP_LOOK  100


static void kvr_relay_http_end(kvr_relay_http_t *http, CURLcode code,
    kvr_relay_http_answer_t *answer);
static size_t kvr_relay_http_write(char *bytes, size_t one, size_t n,
    void *data);


bool
kvr_relay_http_open(kvr_relay_http_t *http, const char *url, size_t max)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);

    http->max = max;
    http->multi = curl_multi_init();
    http->easy = curl_easy_init();
    http->headers = curl_slist_append(NULL, "Content-Type: application/json");

    if (http->multi == NULL || http->easy == NULL || http->headers == NULL) {
        return false;
    }

    curl_easy_setopt(http->easy, CURLOPT_URL, url);
    curl_easy_setopt(http->easy, CURLOPT_HTTPHEADER, http->headers);
    curl_easy_setopt(http->easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(http->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(http->easy, CURLOPT_TIMEOUT_MS, (long) KVR_RELAY_HTTP_MS);
    curl_easy_setopt(http->easy, CURLOPT_WRITEFUNCTION, kvr_relay_http_write);
    curl_easy_setopt(http->easy, CURLOPT_WRITEDATA, http);

    return true;
}


void
kvr_relay_http_close(kvr_relay_http_t *http)
{
    if (http->running) {
        curl_multi_remove_handle(http->multi, http->easy);
    }

    if (http->easy != NULL) {
        curl_easy_cleanup(http->easy);
    }

    if (http->multi != NULL) {
        curl_multi_cleanup(http->multi);
    }

    curl_slist_free_all(http->headers);
    free(http->body);

    memset(http, 0, sizeof(kvr_relay_http_t));
}


void
kvr_relay_http_poll(kvr_relay_http_t *http, kvr_relay_loop_t *loop)
{
    int     fd, max;
    short   events;
    fd_set  in, out, error;

    if (!http->running) {
        return;
    }

    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&error);
    max = -1;

    (void) curl_multi_fdset(http->multi, &in, &out, &error, &max);

    for (fd = 0; fd <= max; fd++) {
        events = (short) ((FD_ISSET(fd, &in) ? ZMQ_POLLIN : 0)
                          | (FD_ISSET(fd, &out) ? ZMQ_POLLOUT : 0));

        if (events) {
            (void) kvr_relay_loop_add(loop, NULL, fd, events);
        }
    }
}


void
kvr_relay_http_ask(kvr_relay_http_t *http, bool get)
{
    http->len = 0;

    if (get) {
        curl_easy_setopt(http->easy, CURLOPT_HTTPGET, 1L);

    } else {
        curl_easy_setopt(http->easy, CURLOPT_POSTFIELDS, "{}");
    }

    http->running = curl_multi_add_handle(http->multi, http->easy)
                    == CURLM_OK;
}


bool
kvr_relay_http_answered(kvr_relay_http_t *http,
    kvr_relay_http_answer_t *answer, uint64_t *ms)
{
    int       running, left;
    long      due;
    CURLMsg  *message;

    (void) curl_multi_perform(http->multi, &running);

    while ((message = curl_multi_info_read(http->multi, &left)) != NULL) {
        if (message->msg == CURLMSG_DONE) {
            kvr_relay_http_end(http, message->data.result, answer);
            return true;
        }
    }

    due = -1;
    (void) curl_multi_timeout(http->multi, &due);
    *ms = due < 0 ? KVR_RELAY_HTTP_LOOK
                  : kvr_min((uint64_t) due, KVR_RELAY_HTTP_LOOK);

    return false;
}


static void
kvr_relay_http_end(kvr_relay_http_t *http, CURLcode code,
    kvr_relay_http_answer_t *answer)
{
    long  error;

    memset(answer, 0, sizeof(kvr_relay_http_answer_t));

    if (code != CURLE_OK) {
        error = 0;

        if (code == CURLE_COULDNT_CONNECT) {
            curl_easy_getinfo(http->easy, CURLINFO_OS_ERRNO, &error);
        }

        answer->why = error ? strerror((int) error) : curl_easy_strerror(code);
        answer->sent = code != CURLE_COULDNT_CONNECT
                       && code != CURLE_COULDNT_RESOLVE_HOST;
    }

    curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &answer->status);
    answer->body = http->body;
    answer->len = http->len;

    curl_multi_remove_handle(http->multi, http->easy);
    http->running = false;
}


static size_t
kvr_relay_http_write(char *bytes, size_t one, size_t n, void *data)
{
    char              *body;
    size_t             size;
    kvr_relay_http_t  *http;

    http = data;
    n *= one;

    if (n == 0 || n > http->max - http->len) {
        return 0;
    }

    if (http->len + n > http->size) {
        size = kvr_max(http->size * 2, http->len + n);

        body = realloc(http->body, size);
        if (body == NULL) {
            return 0;
        }

        http->body = body;
        http->size = size;
    }

    memcpy(http->body + http->len, bytes, n);
    http->len += n;

    return n;
}
