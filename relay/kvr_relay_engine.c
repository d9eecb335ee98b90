/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"


/* After so long without a connection to the engine, the log warns. */
#define KVR_RELAY_AWAY_MS     5000
#define KVR_RELAY_WARN_MS     60000     /* and again so much later */


void
kvr_relay_engine_start(kvr_relay_t *r)
{
    uint32_t  i;

    kvr_relay_wake(r, r->sync_ms);

    if (r->options.trtllm != NULL) {
        kvr_relay_trtllm_open(r);

    } else {
        for (i = 0; i < r->nsources; i++) {
            kvr_relay_zmq_open(r, &r->sources[i]);
        }
    }

    kvr_relay_log(KVR_RELAY_INFO, "ready", "ranks=%u listen=%s",
                  r->options.ranks,
                  r->metrics.address);
}


void
kvr_relay_engine_stop(kvr_relay_t *r)
{
    uint32_t  i;

    for (i = 0; i < r->nsources; i++) {
        kvr_relay_zmq_close(r, &r->sources[i]);
    }

    kvr_relay_trtllm_close(r);
}


void
kvr_relay_engine_poll(kvr_relay_t *r, kvr_relay_loop_t *loop)
{
    uint32_t  i;

    for (i = 0; i < r->nsources; i++) {
        kvr_relay_zmq_poll(&r->sources[i], loop);
    }

    kvr_relay_http_poll(&r->trtllm.http, loop);
}


void
kvr_relay_engine_tick(kvr_relay_t *r)
{
    uint32_t  i;

    for (i = 0; i < r->nsources; i++) {
        kvr_relay_zmq_tick(r, &r->sources[i]);
    }

    kvr_relay_trtllm_tick(r);
}


void
kvr_relay_engine_watch(kvr_relay_t *r)
{
    char                 where[KVR_RELAY_QUOTED], why[KVR_RELAY_QUOTED];
    uint32_t             i;
    const char          *text;
    kvr_relay_source_t  *s;

    if (!r->session.started || r->stopping) {
        return;
    }

    for (i = 0; i < r->nsources; i++) {
        s = &r->sources[i];

        if (s->at.state != KVR_RELAY_STEP_AWAY) {
            s->away_ms = 0;
            continue;
        }

        if (s->away_ms == 0) {
            s->away_ms = r->now_ms;
            s->warn_ms = r->now_ms + KVR_RELAY_AWAY_MS;
        }

        if (r->now_ms >= s->warn_ms) {
            s->warn_ms = r->now_ms + KVR_RELAY_WARN_MS;

            text = kvr_relay_source_endpoint(r, s);
            (void) kvr_relay_quote(where, text, strlen(text));
            text = kvr_relay_engine_why(r, s);
            (void) kvr_relay_quote(why, text, strlen(text));

            kvr_relay_log(KVR_RELAY_WARN, "engine not reached", "rank=%u "
                          "endpoint=%s seconds=%llu why=%s remedy=\"%s\"",
                          s->index, where, (unsigned long long)
                          ((r->now_ms - s->away_ms) / 1000), why,
                          r->options.trtllm
                          ? "start the engine, or correct --trtllm"
                          : "start the engine with its KV events, or correct "
                            "--events; an engine that loads its model may not "
                            "listen yet");
        }

        kvr_relay_wake(r, s->warn_ms);
    }
}


const char *
kvr_relay_engine_why(const kvr_relay_t *r, const kvr_relay_source_t *s)
{
    return r->options.trtllm ? kvr_relay_trtllm_why(r)
                             : kvr_relay_zmq_why(r, s);
}
