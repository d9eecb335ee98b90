/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The modules together, and one turn of them.
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>


#define KVR_RELAY_STOP_MS   3000        /* for what is queued, at the end */
#define KVR_RELAY_LEAVE_MS  1000        /* of that, for the leave itself */


static void kvr_relay_leave(kvr_relay_t *r);
static void kvr_relay_watch(kvr_relay_t *r);


bool
kvr_relay_init(kvr_relay_t *r)
{
    char  why[KVR_WHY_LEN];

    r->now_ms = kvr_relay_clock();
    r->started_ms = kvr_relay_unix();

    srand((unsigned) (r->started_ms ^ (uint64_t) getpid()));

    snprintf(why, sizeof(why), "out of memory");

    r->zmq = zmq_ctx_new();

    if (r->zmq != NULL
        && kvr_relay_mirror_init(&r->mirror, &r->options, why)
        && kvr_relay_source_init(r)
        && kvr_relay_publisher_init(r)
        && kvr_relay_session_init(r)
        && kvr_relay_metrics_init(r, why)
        && kvr_relay_redis_init(r, why))
    {
        kvr_relay_log(KVR_RELAY_INFO, "started", "pid=%d block_size=%u "
                      "listen=%s", (int) getpid(), r->options.block_size,
                      r->metrics.address);
        return true;
    }

    kvr_relay_log(KVR_RELAY_ERROR, "can't start", "why=\"%s\"", why);

    return false;
}


void
kvr_relay_free(kvr_relay_t *r)
{
    r->done = true;

    kvr_relay_metrics_free(r);
    kvr_relay_redis_free(r);
    kvr_relay_snapshot_free(r);
    kvr_relay_tail_free(r);

    if (r->sources != NULL) {
        kvr_relay_source_free(r);
    }

    kvr_relay_publisher_free(r);
    kvr_relay_mirror_free(&r->mirror);

    if (r->zmq != NULL) {
        zmq_ctx_term(r->zmq);
    }
}


void
kvr_relay_turn(kvr_relay_t *r)
{
    uint32_t  i;

    for (i = 0; i < r->nsources; i++) {
        kvr_relay_zmq_tick(r, &r->sources[i]);
    }

    kvr_relay_trtllm_tick(r);

    kvr_relay_redis_tick(r);
    kvr_relay_source_tick(r);
    kvr_relay_source_watch(r);
    kvr_relay_watch(r);
    kvr_relay_publisher_tick(r);
    kvr_relay_session_tick(r);
    kvr_relay_snapshot_tick(r);
    kvr_relay_mirror_tick(r);
    kvr_relay_metrics_tick(r);
    kvr_relay_log_tick();

    if (r->stopping) {
        kvr_relay_leave(r);
    }
}


/* What routers have to be told at once. */

static void
kvr_relay_watch(kvr_relay_t *r)
{
    bool  complete;
    char  reason[KVR_RELAY_REASON], quoted[KVR_RELAY_QUOTED];

    if (!r->session.started) {
        return;
    }

    complete = kvr_relay_complete(r, reason);

    if (complete == r->complete) {
        return;
    }

    r->complete = complete;

    kvr_relay_log(KVR_RELAY_INFO, complete ? "complete" : "not complete",
                  "why=%s", kvr_relay_quote(quoted, reason, strlen(reason)));

    kvr_relay_session_beat_now(r);

    if (complete && (r->cut_off
                     || !(r->snapshot.writing ? r->snapshot.complete
                                              : r->snapshot.in_complete)))
    {
        r->cut_off = false;
        kvr_relay_snapshot_want(r, "complete again");
    }
}


void
kvr_relay_stop(kvr_relay_t *r)
{
    r->stopping = true;
    r->stop_ms = r->now_ms + KVR_RELAY_STOP_MS;

    kvr_relay_source_stop(r);
}


/* What is queued goes first, then the worker. */

static void
kvr_relay_leave(kvr_relay_t *r)
{
    if (r->now_ms >= r->stop_ms) {
        kvr_relay_log(KVR_RELAY_WARN, "ended, not all was sent", "unsent=%llu",
                      (unsigned long long) (r->publisher.seq
                                            - r->publisher.acked));
        kvr_relay_exit(r, KVR_RELAY_ENDED);
        return;
    }

    kvr_relay_wake(r, r->stop_ms - KVR_RELAY_LEAVE_MS);

    if (r->session.phase == KVR_RELAY_LEAVING) {
        kvr_relay_wake(r, r->stop_ms);
        return;
    }

    if (!r->session.started || kvr_relay_publisher_idle(r)
        || r->now_ms >= r->stop_ms - KVR_RELAY_LEAVE_MS)
    {
        kvr_relay_session_leave(r);
    }
}


void
kvr_relay_wake(kvr_relay_t *r, uint64_t at_ms)
{
    r->wake_ms = kvr_min(r->wake_ms, at_ms);
}


void
kvr_relay_exit(kvr_relay_t *r, kvr_relay_exit_t code)
{
    if (!r->done) {
        r->done = true;
        r->exit = code;
    }
}
