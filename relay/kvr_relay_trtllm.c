/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>


#define KVR_RELAY_TRTLLM_PATH   "/kv_cache_events"
#define KVR_RELAY_TRTLLM_MS     5000    /* for an answer */
#define KVR_RELAY_TRTLLM_RETRY  1000    /* ms after a failure */


static void kvr_relay_trtllm_ask(kvr_relay_t *r);
static void kvr_relay_trtllm_answered(kvr_relay_t *r, CURLcode code);
static void kvr_relay_trtllm_failed(kvr_relay_t *r, const char *why,
    bool sent);
static size_t kvr_relay_trtllm_write(char *bytes, size_t one, size_t n,
    void *data);


void
kvr_relay_trtllm_open(kvr_relay_t *r)
{
    size_t               len;
    const char          *base;
    kvr_relay_trtllm_t  *t;

    t = &r->trtllm;
    base = r->options.trtllm;

    curl_global_init(CURL_GLOBAL_DEFAULT);

    len = strlen(base);

    while (len != 0 && base[len - 1] == '/') {
        len--;
    }

    t->url = malloc(len + sizeof(KVR_RELAY_TRTLLM_PATH));
    t->multi = curl_multi_init();
    t->easy = curl_easy_init();
    t->headers = curl_slist_append(NULL, "Content-Type: application/json");

    if (t->url == NULL || t->multi == NULL || t->easy == NULL
        || t->headers == NULL)
    {
        kvr_relay_exit(r, KVR_RELAY_FAILED);
        return;
    }

    memcpy(t->url, base, len);
    t->url[len] = '\0';

    if (len < sizeof(KVR_RELAY_TRTLLM_PATH) - 1
        || strcmp(t->url + len - (sizeof(KVR_RELAY_TRTLLM_PATH) - 1),
                  KVR_RELAY_TRTLLM_PATH) != 0)
    {
        memcpy(t->url + len, KVR_RELAY_TRTLLM_PATH,
               sizeof(KVR_RELAY_TRTLLM_PATH));
    }

    curl_easy_setopt(t->easy, CURLOPT_URL, t->url);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long) KVR_RELAY_TRTLLM_MS);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, kvr_relay_trtllm_write);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, r);

    kvr_relay_tail_apply(r, &r->sources[0]);
    kvr_relay_source_broken(r, &r->sources[0], r->options.ranks > 1
                            ? "events of several ranks come from one place"
                            : "what the engine said before this relay began "
                              "to ask is lost");
}


void
kvr_relay_trtllm_close(kvr_relay_t *r)
{
    kvr_relay_trtllm_t  *t;

    t = &r->trtllm;

    if (t->running) {
        curl_multi_remove_handle(t->multi, t->easy);
        t->running = false;
    }

    if (t->easy != NULL) {
        curl_easy_cleanup(t->easy);
        t->easy = NULL;
    }

    if (t->multi != NULL) {
        curl_multi_cleanup(t->multi);
        t->multi = NULL;
    }

    curl_slist_free_all(t->headers);
    t->headers = NULL;

    free(t->body);
    free(t->url);
    t->body = NULL;
    t->url = NULL;
}


uint32_t
kvr_relay_trtllm_poll(kvr_relay_t *r, zmq_pollitem_t *items)
{
    int                  fd, max;
    short                events;
    fd_set               in, out, error;
    uint32_t             n;
    kvr_relay_trtllm_t  *t;

    t = &r->trtllm;
    n = 0;

    if (t->easy == NULL || !t->running) {
        return 0;
    }

    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&error);
    max = -1;

    (void) curl_multi_fdset(t->multi, &in, &out, &error, &max);

    for (fd = 0; fd <= max && n < KVR_RELAY_TRTLLM_FDS; fd++) {
        events = (short) ((FD_ISSET(fd, &in) ? ZMQ_POLLIN : 0)
                          | (FD_ISSET(fd, &out) ? ZMQ_POLLOUT : 0));

        if (events) {
            items[n].socket = NULL;
            items[n].fd = fd;
            items[n].events = events;
            items[n].revents = 0;
            n++;
        }
    }

    return n;
}


const char *
kvr_relay_trtllm_why(const kvr_relay_t *r)
{
    return r->trtllm.why[0] ? r->trtllm.why : "no answer";
}


void
kvr_relay_trtllm_tick(kvr_relay_t *r)
{
    int                  running, left;
    long                 ms;
    CURLMsg             *message;
    kvr_relay_trtllm_t  *t;

    t = &r->trtllm;

    if (t->easy == NULL) {
        return;
    }

    if (!t->running && r->now_ms >= t->due_ms) {
        kvr_relay_trtllm_ask(r);
    }

    if (t->running) {
        (void) curl_multi_perform(t->multi, &running);

        while ((message = curl_multi_info_read(t->multi, &left)) != NULL) {
            if (message->msg == CURLMSG_DONE) {
                kvr_relay_trtllm_answered(r, message->data.result);
                break;
            }
        }
    }

    if (!t->running) {
        kvr_relay_wake(r, t->due_ms);
        return;
    }

    ms = -1;
    (void) curl_multi_timeout(t->multi, &ms);

    /* while it looks a name up, there may be nothing to poll */

    kvr_relay_wake(r, r->now_ms + (ms < 0 || ms > 100 ? 100 : (uint64_t) ms));
}


static void
kvr_relay_trtllm_ask(kvr_relay_t *r)
{
    kvr_relay_trtllm_t  *t;

    t = &r->trtllm;
    t->len = 0;

    if (t->get) {
        curl_easy_setopt(t->easy, CURLOPT_HTTPGET, 1L);

    } else {
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, "{}");
    }

    t->running = curl_multi_add_handle(t->multi, t->easy) == CURLM_OK;
    t->due_ms = r->now_ms + r->options.trtllm_interval;
}


static size_t
kvr_relay_trtllm_write(char *bytes, size_t one, size_t n, void *data)
{
    char                *body;
    size_t               size;
    kvr_relay_t         *r;
    kvr_relay_trtllm_t  *t;

    r = data;
    t = &r->trtllm;
    n *= one;

    if (n == 0 || n > r->options.message_max - t->len) {
        return 0;
    }

    if (t->len + n > t->size) {
        size = kvr_max(t->size * 2, t->len + n);

        body = realloc(t->body, size);
        if (body == NULL) {
            return 0;
        }

        t->body = body;
        t->size = size;
    }

    memcpy(t->body + t->len, bytes, n);
    t->len += n;

    return n;
}


static void
kvr_relay_trtllm_answered(kvr_relay_t *r, CURLcode code)
{
    char                 why[KVR_RELAY_TRTLLM_WHY];
    long                 status, error;
    kvr_relay_source_t  *s;
    kvr_relay_trtllm_t  *t;

    t = &r->trtllm;
    s = &r->sources[0];

    status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);

    curl_multi_remove_handle(t->multi, t->easy);
    t->running = false;

    if (code != CURLE_OK) {
        error = 0;

        if (code == CURLE_COULDNT_CONNECT) {
            curl_easy_getinfo(t->easy, CURLINFO_OS_ERRNO, &error);
        }

        kvr_relay_trtllm_failed(r, error ? strerror((int) error)
                                         : curl_easy_strerror(code),
                                code != CURLE_COULDNT_CONNECT
                                && code != CURLE_COULDNT_RESOLVE_HOST);
        return;
    }

    if (status == 405) {
        t->get = !t->get;
    }

    if (status != 200) {
        snprintf(why, sizeof(why), "HTTP status %ld", status);
        kvr_relay_trtllm_failed(r, why, status >= 500);
        return;
    }

    if (s->at.state == KVR_RELAY_STEP_AWAY) {
        kvr_relay_log(KVR_RELAY_INFO, "engine connected", "rank=0");

        if (s->synced) {
            r->counters.reconnects++;
        }

        kvr_relay_source_step(s, KVR_RELAY_STEP_REACHED);
    }

    if (kvr_relay_feed_list(r, s, t->body, t->len)) {
        t->doubt = false;
    }

    if (!t->doubt && !kvr_relay_step_in(s->at)) {
        kvr_relay_source_synced(r, s);
    }
}


/* sent: the engine may have seen it, and have taken its events for read. */

static void
kvr_relay_trtllm_failed(kvr_relay_t *r, const char *why, bool sent)
{
    char                 quoted[KVR_RELAY_QUOTED];
    kvr_relay_source_t  *s;
    kvr_relay_trtllm_t  *t;

    t = &r->trtllm;
    s = &r->sources[0];

    snprintf(t->why, sizeof(t->why), "%s", why);

    if (s->at.state != KVR_RELAY_STEP_AWAY) {
        kvr_relay_log(KVR_RELAY_WARN, "engine doesn't answer", "why=%s",
                      kvr_relay_quote(quoted, why, strlen(why)));
    }

    kvr_relay_source_step(s, KVR_RELAY_STEP_GONE);
    t->doubt = t->doubt || sent;
    t->due_ms = r->now_ms + KVR_RELAY_TRTLLM_RETRY;
}
