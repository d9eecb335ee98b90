/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The modules together, and one turn of them.
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>


/* the time for sending what is queued when the process ends */
#define KVR_RELAY_STOP_MS   3000
/* the part of it that giving the lease back can take */
#define KVR_RELAY_LEAVE_MS  1000


static void kvr_relay_leave(kvr_relay_t *r);
static void kvr_relay_base(kvr_relay_t *r);
static void kvr_relay_watch(kvr_relay_t *r);


bool
kvr_relay_init(kvr_relay_t *r, void (*greet)(kvr_relay_t *r))
{
    char                    why[KVR_WHY_LEN];
    kvr_relay_redis_told_t  told;

    told.greet = greet;
    told.up = kvr_relay_session_up;
    told.down = kvr_relay_session_down;

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
        && kvr_relay_redis_init(r, &told, why))
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
    kvr_relay_http_close(&r->drain.http);
    kvr_relay_redis_free(r);
    kvr_relay_snapshot_abort(r);

    if (r->sources != NULL) {
        kvr_relay_engine_stop(r);
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
    if (r->session.started && !r->reading) {
        r->reading = true;
        r->sync_ms = r->now_ms + KVR_RELAY_SYNC_MS;
        kvr_relay_engine_start(r);
    }

    kvr_relay_engine_tick(r);
    kvr_relay_redis_tick(r);
    kvr_relay_base(r);
    kvr_relay_engine_watch(r);
    kvr_relay_watch(r);
    kvr_relay_publisher_tick(r);
    kvr_relay_drain_tick(r);
    kvr_relay_session_tick(r);
    kvr_relay_snapshot_tick(r);
    kvr_relay_mirror_tick(r);
    kvr_relay_metrics_tick(r);
    kvr_relay_log_tick();

    if (r->ending && !r->stopping && kvr_relay_drain_over(&r->drain)) {
        kvr_relay_stop(r);
    }

    if (r->stopping) {
        kvr_relay_leave(r);
    }
}


/*
 * Looks whether all sources are in step, so that publishing can begin or go
 * on.
 */

static void
kvr_relay_base(kvr_relay_t *r)
{
    bool      waiting;
    uint32_t  i;

    if (!r->session.started || r->publisher.state != KVR_RELAY_UNBASED
        || !r->publisher.resumed || !r->redis.up)
    {
        return;
    }

    if (r->now_ms < r->publisher.retry_ms) {
        kvr_relay_wake(r, r->publisher.retry_ms);
        return;
    }

    waiting = false;

    for (i = 0; i < r->nsources; i++) {
        waiting = waiting || !r->sources[i].synced
                  || r->sources[i].at.state == KVR_RELAY_STEP_REBUILDING;
    }

    if (waiting && r->now_ms < r->sync_ms) {
        kvr_relay_wake(r, r->sync_ms);
        return;
    }

    kvr_relay_publisher_base(r);
    kvr_relay_snapshot_start(r, true);
}


/* Sends a heartbeat at once when routers have to know that a state changed. */

static void
kvr_relay_watch(kvr_relay_t *r)
{
    bool  complete;
    char  reason[KVR_RELAY_REASON], quoted[KVR_RELAY_QUOTED];

    if (!r->session.started) {
        return;
    }

    if (r->snapshot.news) {
        r->snapshot.news = false;
        kvr_relay_session_beat_now(r);
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

    kvr_relay_engine_stop(r);
}


/*
 * Ends in two steps: queued envelopes are sent first, then the worker leaves.
 */

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
