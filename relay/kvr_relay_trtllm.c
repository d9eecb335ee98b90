/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_TRTLLM_MS     100     /* between two polls */
#define KVR_RELAY_TRTLLM_PATH   "/kv_cache_events"
#define KVR_RELAY_TRTLLM_RETRY  1000    /* ms after a failure */


static void kvr_relay_trtllm_answered(kvr_relay_t *r,
    const kvr_relay_http_answer_t *answer);
static void kvr_relay_trtllm_failed(kvr_relay_t *r, const char *why,
    bool sent);


void
kvr_relay_trtllm_open(kvr_relay_t *r)
{
    bool                 named;
    size_t               len, path;
    const char          *base;
    kvr_relay_trtllm_t  *t;

    t = &r->trtllm;
    base = r->options.trtllm;
    path = sizeof(KVR_RELAY_TRTLLM_PATH) - 1;

    len = strlen(base);

    while (len != 0 && base[len - 1] == '/') {
        len--;
    }

    named = len >= path && memcmp(base + len - path, KVR_RELAY_TRTLLM_PATH,
                                  path) == 0;

    t->url = malloc(len + path + 1);
    if (t->url == NULL) {
        kvr_relay_exit(r, KVR_RELAY_FAILED);
        return;
    }

    sprintf(t->url, "%.*s%s", (int) len, base,
            named ? "" : KVR_RELAY_TRTLLM_PATH);

    if (!kvr_relay_http_open(&t->http, t->url, r->options.message_max)) {
        kvr_relay_trtllm_close(r);
        kvr_relay_exit(r, KVR_RELAY_FAILED);
        return;
    }

    kvr_relay_source_lack(&r->sources[0], KVR_RELAY_STEP_BROKEN,
                          r->options.ranks > 1
                          ? "events of several ranks come from one place"
                          : "what the engine said before this relay began "
                            "to ask is lost");
}


void
kvr_relay_trtllm_close(kvr_relay_t *r)
{
    kvr_relay_http_close(&r->trtllm.http);
    free(r->trtllm.url);
    r->trtllm.url = NULL;
}


const char *
kvr_relay_trtllm_why(const kvr_relay_t *r)
{
    return r->trtllm.why[0] ? r->trtllm.why : "no answer";
}


void
kvr_relay_trtllm_tick(kvr_relay_t *r)
{
    uint64_t                  ms;
    kvr_relay_trtllm_t       *t;
    kvr_relay_http_answer_t   answer;

    t = &r->trtllm;

    if (t->url == NULL) {
        return;
    }

    if (!t->http.running && r->now_ms >= t->due_ms) {
        kvr_relay_http_ask(&t->http, t->get);
        t->due_ms = r->now_ms + KVR_RELAY_TRTLLM_MS;
    }

    if (t->http.running) {

        if (!kvr_relay_http_answered(&t->http, &answer, &ms)) {
            kvr_relay_wake(r, r->now_ms + ms);
            return;
        }

        kvr_relay_trtllm_answered(r, &answer);
    }

    kvr_relay_wake(r, t->due_ms);
}


static void
kvr_relay_trtllm_answered(kvr_relay_t *r,
    const kvr_relay_http_answer_t *answer)
{
    char                 why[KVR_RELAY_TRTLLM_WHY];
    kvr_relay_source_t  *s;
    kvr_relay_trtllm_t  *t;

    t = &r->trtllm;
    s = &r->sources[0];

    if (answer->why != NULL) {
        kvr_relay_trtllm_failed(r, answer->why, answer->sent);
        return;
    }

    if (answer->status == 405) {
        t->get = !t->get;
    }

    if (answer->status != 200) {
        snprintf(why, sizeof(why), "HTTP status %ld", answer->status);
        kvr_relay_trtllm_failed(r, why, answer->status >= 500);
        return;
    }

    if (s->at.state == KVR_RELAY_STEP_AWAY) {
        kvr_relay_log(KVR_RELAY_INFO, "engine connected", "rank=0");

        if (s->synced) {
            r->counters.reconnects++;
        }

        kvr_relay_source_step(s, KVR_RELAY_STEP_REACHED);
    }

    if (kvr_relay_feed_list(r, s, answer->body, answer->len)) {
        t->doubt = false;
    }

    if (!t->doubt && !kvr_relay_step_in(s->at)) {
        kvr_relay_source_synced(r, s);
    }
}


/*
 * Ends a request without an answer.  If the request was sent, the engine may
 * have removed the events that it answered with.
 */

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
