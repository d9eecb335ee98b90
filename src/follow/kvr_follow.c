
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_follow.h"


static kvr_next_t kvr_follow_next(kvr_follow_t *f,
    const kvr_turn_t *turn, kvr_ask_t *ask, kvr_repair_t **r);
static kvr_next_t kvr_follow_message(kvr_follow_t *f,
    const kvr_turn_t *turn);
static kvr_next_t kvr_follow_gap(kvr_follow_t *f, kvr_queued_t *m);
static kvr_rc_t kvr_follow_dropped(kvr_follow_t *f, uint8_t times);
static void kvr_follow_refused(kvr_follow_t *f, const kvr_queued_t *m,
    const char *detail);


kvr_rc_t
kvr_follow_open(kvr_follow_t *f, kvr_router_t *router, const kvr_tell_t *tell,
    bool replay)
{
    f->router = router;
    f->tell = tell;
    f->ingest = kvr_ingest_create(router);

    if (f->ingest == NULL) {
        return KVR_FULL;
    }

    f->repairs.env = (kvr_repair_env_t) { router, f->ingest, tell };
    f->repairs.queue = &f->queue;
    f->repairs.replay = replay;

    return kvr_repairs_open(&f->repairs);
}


void
kvr_follow_close(kvr_follow_t *f)
{
    /* the ingest has bytes of a message open: destroy the ingest first */

    kvr_ingest_destroy(f->ingest);

    if (f->message) {
        kvr_queue_free(&f->queue, f->message);
    }

    if (f->router) {
        kvr_repairs_close(&f->repairs);
    }

    kvr_queue_clear(&f->queue);

    memset(f, 0, sizeof(kvr_follow_t));
}


kvr_rc_t
kvr_follow_push(kvr_follow_t *f, const kvr_reply_t *reply,
    const kvr_reply_t *body, const char *worker, size_t len)
{
    char         shown[KVR_WORKER_ID_MAX];
    size_t       i;
    kvr_lane_t  *lane;

    if (!kvr_worker_id_valid(worker, len)) {
        len = len < KVR_WORKER_ID_MAX ? len : KVR_WORKER_ID_MAX;

        /* such an id can't add log lines */

        for (i = 0; i < len; i++) {
            shown[i] = (worker[i] < 0x20 || worker[i] > 0x7e) ? '?'
                                                              : worker[i];
        }

        kvr_tell_refused(f->tell, &f->detail, shown, len,
                         "not a worker's id");
        return KVR_DECLINED;
    }

    if (kvr_queue_add(&f->queue, reply, body, worker, len) == KVR_OK) {
        return KVR_OK;
    }

    f->tell->count(f->tell->data, KVR_COUNT_MESSAGES_DROPPED);

    if (!f->full) {
        f->full = true;
        kvr_tell(f->tell, KVR_LOG_WARN, "%u messages of %zu bytes wait, "
                 "dropping more", f->queue.count, f->queue.bytes);
    }

    lane = kvr_repairs_lane(&f->repairs, worker, len);

    if (lane) {
        lane->dropped = 2;
        f->dropped = 2;
        kvr_repairs_want(&f->repairs, lane);
    }

    return KVR_DECLINED;
}


bool
kvr_follow_waits(const kvr_follow_t *f)
{
    return f->message || f->repair || f->queue.messages.first
           || f->repairs.nactive || f->repairs.nwanted || f->dropped;
}


kvr_next_t
kvr_follow_step(kvr_follow_t *f, const kvr_turn_t *turn, size_t *bytes,
    kvr_ask_t *ask, kvr_repair_t **r)
{
    char             warning[KVR_WARNING_LEN];
    kvr_rc_t         rc;
    kvr_next_t       next;

    *bytes = 0;

    if (f->message == NULL && f->repair == NULL) {
        next = kvr_follow_next(f, turn, ask, r);

        if (f->message == NULL && f->repair == NULL) {
            return next;
        }
    }

    rc = kvr_ingest_step(f->ingest, turn->blocks);

    while (kvr_ingest_warning(f->ingest, warning)) {
        kvr_tell(f->tell, KVR_LOG_ERROR, "%s", warning);
    }

    switch (rc) {

    case KVR_OK:
        return KVR_NEXT_YIELD;

    case KVR_DONE:
        break;

    case KVR_BUSY:
    case KVR_LOST:
        return kvr_repair_stopped(rc);

    default:
        kvr_tell(f->tell, KVR_LOG_ALERT, "message failed: %d", (int) rc);
        break;
    }

    if (f->message) {
        *bytes = f->message->n;
        kvr_queue_free(&f->queue, f->message);
        f->message = NULL;

    } else {
        *bytes = kvr_repair_applied(f->repair);
        f->repair = NULL;
    }

    return KVR_NEXT_AGAIN;
}


/*
 * Opens the next message or entry, or does what has to be done instead.  A
 * loss is recorded twice: at once, and behind the messages queued before it,
 * for these may make the worker EXACT again.
 */

static kvr_next_t
kvr_follow_next(kvr_follow_t *f, const kvr_turn_t *turn, kvr_ask_t *ask,
    kvr_repair_t **r)
{
    bool             empty;
    kvr_rc_t         rc;
    kvr_next_t       next;

    if (f->dropped == 2) {
        rc = kvr_follow_dropped(f, 2);
        if (rc != KVR_OK) {
            return kvr_repair_stopped(rc);
        }
    }

    empty = (f->queue.messages.first == NULL);

    if ((f->repairs.nactive || f->repairs.nwanted)
        && (f->turn++ % 2 == 0 || empty))
    {
        next = kvr_repairs_step(&f->repairs, turn, ask, r);

        if (next == KVR_NEXT_APPLY) {
            f->repair = *r;
            return KVR_NEXT_AGAIN;
        }

        if (next != KVR_NEXT_WAIT) {
            return next;
        }
    }

    if (f->queue.messages.first) {
        return kvr_follow_message(f, turn);
    }

    if (f->dropped && f->repairs.nactive == 0 && f->repairs.nwanted == 0) {
        rc = kvr_follow_dropped(f, 1);
        if (rc != KVR_OK) {
            return kvr_repair_stopped(rc);
        }
    }

    f->full = false;

    return KVR_NEXT_WAIT;
}


/* Parks, opens or drops the first message of the queue. */

static kvr_next_t
kvr_follow_message(kvr_follow_t *f, const kvr_turn_t *turn)
{
    kvr_lane_t            *lane;
    const char            *detail;
    kvr_queued_t          *m;
    kvr_ingest_verdict_t   verdict;

    m = f->queue.messages.first;

    if (f->repairs.nactive || f->repairs.nwanted) {
        lane = kvr_repairs_lane(&f->repairs, m->worker, m->len);

        if (lane && (lane->active || lane->parked.first)) {
            kvr_queue_park(&f->queue, &lane->parked);
            return KVR_NEXT_AGAIN;
        }
    }

    detail = NULL;

    verdict = kvr_ingest_open(f->ingest, m->worker, m->len, m->bytes, m->n,
                              true, turn->now_ms, &detail);
    switch (verdict) {

    case KVR_INGEST_GAP:
        return kvr_follow_gap(f, m);

    case KVR_INGEST_BUSY:
        return KVR_NEXT_BUSY;

    case KVR_INGEST_LOST:
        return KVR_NEXT_LOST;

    default: /* KVR_INGEST_APPLY, KVR_INGEST_DROP */
        break;
    }

    if (detail) {
        kvr_follow_refused(f, m, detail);
    }

    (void) kvr_queue_take(&f->queue);

    if (verdict == KVR_INGEST_DROP) {
        kvr_queue_free(&f->queue, m);
        return KVR_NEXT_AGAIN;
    }

    kvr_tell_debug(f->tell, "message of worker \"%.*s\", %zu bytes, is "
                   "applied", (int) m->len, m->worker, m->n);

    f->message = m;

    return KVR_NEXT_AGAIN;
}


/*
 * Handles messages that are missing before m, the first of the queue.  The
 * first time, the log is read.  The second time, the missing messages are
 * given up.  If messages are still missing after that, m is refused.
 */

static kvr_next_t
kvr_follow_gap(kvr_follow_t *f, kvr_queued_t *m)
{
    kvr_rc_t       rc;
    kvr_lane_t    *lane;
    kvr_cursor_t   missing;

    lane = kvr_repairs_lane(&f->repairs, m->worker, m->len);

    kvr_tell_debug(f->tell, "gap before a message of worker \"%.*s\"%s",
                   (int) m->len, m->worker,
                   m->gaps ? ", after its repair, too" : "");

    if (m->gaps > 1 || kvr_ingest_missing(f->ingest, &missing) != KVR_OK) {
        kvr_follow_refused(f, m, "no place in the stream");
        kvr_queue_free(&f->queue, kvr_queue_take(&f->queue));
        return KVR_NEXT_AGAIN;
    }

    if (m->gaps == 0 && lane && f->repairs.replay) {
        m->gaps = 1;
        lane->missing = missing;

        kvr_queue_park(&f->queue, &lane->parked);
        kvr_repairs_want(&f->repairs, lane);

        return KVR_NEXT_AGAIN;
    }

    rc = kvr_repair_lose(&f->repairs.env, m->worker, m->len, missing.epoch,
                         missing.seq);
    if (rc != KVR_OK) {
        return kvr_repair_stopped(rc);
    }

    m->gaps = 2;

    return KVR_NEXT_AGAIN;
}


/*
 * Records in the zone the loss of messages, for workers with dropped >= times;
 * KVR_OK, KVR_BUSY or KVR_LOST.
 */

static kvr_rc_t
kvr_follow_dropped(kvr_follow_t *f, uint8_t times)
{
    uint32_t           i, flags, generation;
    kvr_rc_t           rc;
    kvr_lane_t        *lane;
    kvr_worker_conf_t  conf;

    for (i = 0; i < f->repairs.nlanes; i++) {

        lane = &f->repairs.lanes[i];

        if (lane->dropped < times) {
            continue;
        }

        rc = kvr_router_read_worker(f->router, i, &conf, &flags, &generation);

        if (rc == KVR_OK && !(flags & KVR_WORKER_DELETED)) {
            rc = kvr_ingest_dropped(f->ingest, conf.id, strlen(conf.id));
        }

        if (rc == KVR_BUSY || rc == KVR_LOST) {
            return rc;
        }

        lane->dropped = times - 1;
    }

    f->dropped = times - 1;

    return KVR_OK;
}


/* Counts a message of which all is refused; logs each reason once. */

static void
kvr_follow_refused(kvr_follow_t *f, const kvr_queued_t *m, const char *detail)
{
    kvr_lane_t  *lane;

    lane = kvr_repairs_lane(&f->repairs, m->worker, m->len);

    kvr_tell_refused(f->tell, lane ? &lane->detail : &f->detail, m->worker,
                     m->len, detail);
}
