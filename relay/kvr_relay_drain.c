/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include "traffic/kvr_report.h"

#include <stdio.h>


#define KVR_RELAY_DRAIN_MS      500     /* between two questions */
/* Requests that routers sent before they knew have arrived after this time. */
#define KVR_RELAY_DRAIN_SETTLE  1000
#define KVR_RELAY_DRAIN_MAX     (4 << 20)   /* bytes of the engine's metrics */


static void kvr_relay_drain_input(kvr_relay_t *r,
    kvr_relay_drain_input_t input);
static void kvr_relay_drain_ask(kvr_relay_t *r);
static kvr_relay_drain_input_t kvr_relay_drain_heard(kvr_relay_t *r,
    const kvr_relay_http_answer_t *answer);


void
kvr_relay_drain_begin(kvr_relay_t *r)
{
    char                url[KVR_ADDRESS_MAX + 32];
    kvr_relay_drain_t  *d;

    d = &r->drain;

    if (d->state != KVR_RELAY_DRAIN_SERVING
        && d->state != KVR_RELAY_DRAIN_UNDONE)
    {
        return;
    }

    if (r->options.address[0] != '\0' && d->http.easy == NULL) {
        snprintf(url, sizeof(url), "http://%s/metrics", r->options.address);

        if (!kvr_relay_http_open(&d->http, url, KVR_RELAY_DRAIN_MAX)) {
            kvr_relay_http_close(&d->http);
        }
    }

    d->due_ms = r->now_ms + KVR_RELAY_DRAIN_SETTLE;
    d->from_ms = UINT64_MAX;
    d->late_ms = r->now_ms + UINT64_C(1000) * r->options.drain_timeout;
    d->restarts = r->counters.restarts;
    snprintf(d->why, sizeof(d->why), "redis has not taken the word");

    r->session.told = false;

    kvr_relay_drain_input(r, KVR_RELAY_DRAIN_ASKED);
}


void
kvr_relay_drain_tick(kvr_relay_t *r)
{
    kvr_relay_drain_t  *d;

    d = &r->drain;

    if (d->state == KVR_RELAY_DRAIN_SERVING) {
        return;
    }

    /* an engine that has said nothing yet is known by its connection alone */

    if (!r->ending
        && (d->restarts != r->counters.restarts
            || (kvr_relay_drain_over(d)
                && d->reconnects != r->counters.reconnects)))
    {
        kvr_relay_drain_input(r, KVR_RELAY_DRAIN_ANEW);
    }

    if (r->session.told && d->state == KVR_RELAY_DRAIN_TELLING) {
        d->due_ms = r->now_ms;
        d->from_ms = r->now_ms + KVR_RELAY_DRAIN_SETTLE;
        kvr_relay_drain_input(r, KVR_RELAY_DRAIN_TOLD);
    }

    if (kvr_relay_drain_over(d)) {
        return;
    }

    kvr_relay_drain_ask(r);

    if (r->now_ms >= d->late_ms) {
        kvr_relay_drain_input(r, KVR_RELAY_DRAIN_LATE);
    }

    kvr_relay_wake(r, d->late_ms);
}


static void
kvr_relay_drain_ask(kvr_relay_t *r)
{
    uint64_t                  ms;
    kvr_relay_drain_t        *d;
    kvr_relay_http_answer_t   answer;

    d = &r->drain;

    if (!d->http.running && r->now_ms >= d->due_ms) {

        if (d->http.easy == NULL) {
            snprintf(d->why, sizeof(d->why), "there is no --address");
            kvr_relay_drain_input(r, KVR_RELAY_DRAIN_BLIND);
            return;
        }

        kvr_relay_http_ask(&d->http, true);
        d->due_ms = r->now_ms + KVR_RELAY_DRAIN_MS;
    }

    if (d->http.running) {

        if (!kvr_relay_http_answered(&d->http, &answer, &ms)) {
            kvr_relay_wake(r, r->now_ms + ms);
            return;
        }

        kvr_relay_drain_input(r, kvr_relay_drain_heard(r, &answer));
    }

    kvr_relay_wake(r, d->due_ms);
}


/*
 * What the engine's answer means.  A status below 500 is its last word: it has
 * no metrics.
 */

static kvr_relay_drain_input_t
kvr_relay_drain_heard(kvr_relay_t *r, const kvr_relay_http_answer_t *answer)
{
    double              left;
    uint32_t            i, n;
    kvr_relay_drain_t  *d;

    static kvr_report_load_t  ranks[KVR_RANKS_MAX];

    d = &r->drain;

    if (answer->why != NULL) {
        snprintf(d->why, sizeof(d->why), "%s", answer->why);
        return answer->sent ? KVR_RELAY_DRAIN_RUNNING : KVR_RELAY_DRAIN_GONE;
    }

    if (answer->status != 200) {
        snprintf(d->why, sizeof(d->why), "its /metrics: HTTP status %ld",
                 answer->status);
        return answer->status >= 500 ? KVR_RELAY_DRAIN_RUNNING
                                     : KVR_RELAY_DRAIN_BLIND;
    }

    n = kvr_min(r->options.first_rank + r->options.ranks, KVR_RANKS_MAX);
    left = -1;

    (void) kvr_report_parse(answer->body, answer->len, ranks, n);

    for (i = 0; i < n; i++) {
        if (ranks[i].running >= 0) {
            left = kvr_max(left, 0) + ranks[i].running
                   + kvr_max(ranks[i].waiting, 0);
        }
    }

    if (left < 0) {
        snprintf(d->why, sizeof(d->why), "its /metrics don't tell what runs");
        return KVR_RELAY_DRAIN_BLIND;
    }

    snprintf(d->why, sizeof(d->why), "%.0f requests run or wait", left);

    return left > 0 || r->now_ms < d->from_ms ? KVR_RELAY_DRAIN_RUNNING
                                              : KVR_RELAY_DRAIN_NONE;
}


static void
kvr_relay_drain_input(kvr_relay_t *r, kvr_relay_drain_input_t input)
{
    kvr_relay_drain_t        *d;
    kvr_relay_drain_state_t   state;

    static const char  *msgs[KVR_RELAY_DRAIN_STATES] = {
        "draining no more", "draining", NULL, NULL, "drained", "not drained"
    };

    d = &r->drain;
    state = kvr_relay_drain_next(d->state, input);

    if (state == d->state) {
        return;
    }

    d->state = state;
    d->reconnects = r->counters.reconnects;
    kvr_relay_wake(r, r->now_ms);

    if (input == KVR_RELAY_DRAIN_ANEW) {
        snprintf(d->why, sizeof(d->why), "the engine began anew");
    }

    if (state <= KVR_RELAY_DRAIN_TELLING) {
        kvr_relay_session_beat_now(r);
    }

    if (msgs[state] != NULL) {
        kvr_relay_log(input == KVR_RELAY_DRAIN_BLIND
                      || input == KVR_RELAY_DRAIN_LATE
                      ? KVR_RELAY_WARN : KVR_RELAY_INFO, msgs[state],
                      "why=\"%s\"", d->why);
    }
}
