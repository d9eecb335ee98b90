/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_snapshot.h"
#include "../zone/kvr_span.h"
#include "../zone/kvr_shard.h"
#include "../zone/kvr_lease.h"
#include "../zone/kvr_views.h"

#include <stdlib.h>


struct kvr_snapshot_s {
    kvr_router_t        *router;
    kvr_shard_t         *shard;
    kvr_decoder_t       *decoder;
    kvr_message_t        msg;
    kvr_why_t            unread;        /* why no event of msg can be read */
    kvr_event_t          event;
    uint32_t             done;          /* applied handles */
    kvr_snapshot_head_t  head;          /* moves on with the log's entries */
    uint64_t             number;        /* 0: no view is being built */
    uint32_t             worker;        /* slot in the shard */
    uint32_t             generation;
    uint32_t             refused;       /* events */
    bool                 entries;       /* log entries were opened */
    bool                 full;          /* a rank was dropped */
};


static uint32_t kvr_snapshot_event(kvr_snapshot_t *s, kvr_worker_t *w,
    uint32_t blocks);
static kvr_rc_t kvr_snapshot_apply(kvr_snapshot_t *s, kvr_worker_t *w,
    const kvr_event_t *ev);
static void kvr_snapshot_swap(kvr_snapshot_t *s, kvr_worker_t *w);


kvr_snapshot_t *
kvr_snapshot_create(kvr_router_t *k)
{
    kvr_snapshot_t  *s;

    s = calloc(1, sizeof(kvr_snapshot_t));
    if (s == NULL) {
        return NULL;
    }

    s->router = k;
    s->decoder = kvr_decoder_create();

    if (s->decoder == NULL) {
        free(s);
        return NULL;
    }

    return s;
}


void
kvr_snapshot_destroy(kvr_snapshot_t *s)
{
    if (s) {
        (void) kvr_snapshot_abort(s);
        kvr_decoder_destroy(s->decoder);
        free(s);
    }
}


/* ---- building ----------------------------------------------------------- */

/*
 * When a snapshot begins, a snapshot behind the cursor is good enough: the log
 * may lead on from there.  When the snapshot ends, it must not be behind.
 */

static bool
kvr_snapshot_newer(const kvr_worker_t *w, const kvr_snapshot_head_t *head,
    bool begin)
{
    uint64_t  epoch, seq;

    epoch = kvr_load64(&w->stream.epoch);
    seq = kvr_load64(&w->stream.seq);

    if (head->epoch != epoch) {
        return head->epoch > epoch;
    }

    if (head->seq > seq) {
        return true;
    }

    return kvr_load32(&w->stream.contiguous) == 0
           && (begin || head->seq == seq);
}


bool
kvr_snapshot_usable(const kvr_router_t *k, const char *worker, size_t len,
    const kvr_snapshot_head_t *head)
{
    uint32_t  i;

    return head->epoch
           && kvr_router_find_worker(k, worker, len, &i) == KVR_OK
           && kvr_snapshot_newer(kvr_router_worker(k, i), head, true);
}


kvr_rc_t
kvr_snapshot_begin(kvr_snapshot_t *s, const char *worker, size_t len,
    const kvr_snapshot_head_t *head)
{
    kvr_rc_t       rc;
    kvr_shard_t   *k;
    kvr_worker_t  *w;

    (void) kvr_snapshot_abort(s);

    k = kvr_shard_of(s->router, worker, len);

    if (kvr_contract_differs(head->contract, kvr_params_contract(k->params))) {
        return KVR_INVALID;
    }

    rc = kvr_shard_lock_leased(k);
    if (rc != KVR_OK) {
        return rc;
    }

    if (kvr_fleet_find(&k->fleet, worker, len, &s->worker) != KVR_OK) {
        kvr_shard_unlock(k);
        return KVR_DECLINED;
    }

    w = &k->fleet.workers[s->worker];

    if (w->flags & KVR_WORKER_DELETED || head->epoch == 0
        || !kvr_snapshot_newer(w, head, true))
    {
        kvr_shard_unlock(k);
        return KVR_DECLINED;
    }

    kvr_shard_drop_aside(k, s->worker);

    s->shard = k;
    s->head = *head;
    s->number = k->zone->fleet.snapshots + 1;
    s->generation = w->generation;
    s->refused = 0;
    s->entries = false;
    s->full = false;

    kvr_set64(&k->mem, &k->zone->fleet.snapshots, s->number);
    kvr_set64(&k->mem, &w->stream.aside, s->number);
    kvr_set32(&k->mem, &w->stream.aside_lost, 0);

    if (head->hybrid) {
        kvr_fleet_set_flags(&k->fleet, s->worker, KVR_WORKER_HYBRID, 0);
    }

    kvr_shard_unlock(k);

    return KVR_OK;
}


kvr_rc_t
kvr_snapshot_open(kvr_snapshot_t *s, const void *bytes, size_t n,
    const char **detail)
{
    kvr_why_t            why;
    const char          *id;
    const kvr_message_t  *m;

    *detail = NULL;
    memset(&s->msg, 0, sizeof(kvr_message_t));
    memset(&s->event, 0, sizeof(kvr_event_t));
    s->done = 0;

    m = &s->msg;

    /* only the envelope of an entry must be readable */

    if (kvr_message_open(s->decoder, bytes, n, &s->msg, &why, detail)
        != KVR_OK && m->form != KVR_FORM_ENVELOPE)
    {
        return KVR_INVALID;
    }

    s->unread = why;

    if (m->form == KVR_FORM_NORMALISED) {

        if (n > KVR_SNAPSHOT_PART_MAX) {
            *detail = "a part of a snapshot that is too big";
            return KVR_INVALID;
        }

        if (!s->entries) {
            return KVR_OK;
        }
    }

    id = s->shard->fleet.workers[s->worker].conf.id;

    if (m->form != KVR_FORM_ENVELOPE
        || strlen(id) != m->worker_len
        || memcmp(id, m->worker, m->worker_len) != 0)
    {
        *detail = "neither a part of a snapshot nor an entry of its log";
        return KVR_INVALID;
    }

    if (m->heartbeat || m->epoch < s->head.epoch
        || (m->epoch == s->head.epoch && m->seq <= s->head.seq))
    {
        return KVR_DONE;
    }

    if (m->epoch != s->head.epoch || m->seq != s->head.seq + 1) {
        *detail = "the log does not lead on from the snapshot";
        return KVR_DECLINED;
    }

    s->entries = true;

    return KVR_OK;
}


/*
 * Takes the lock if the view aside is still the view of this snapshot;
 * otherwise, returns without the lock.
 */

static kvr_rc_t
kvr_snapshot_enter(kvr_snapshot_t *s, kvr_worker_t **w)
{
    kvr_rc_t       rc;
    kvr_worker_t  *worker;

    if (s->number == 0) {
        return KVR_DECLINED;
    }

    rc = kvr_shard_lock_leased(s->shard);
    if (rc != KVR_OK) {
        return rc;
    }

    worker = &s->shard->fleet.workers[s->worker];

    if (worker->stream.aside != s->number
        || worker->generation != s->generation
        || worker->flags & KVR_WORKER_DELETED)
    {
        kvr_shard_unlock(s->shard);
        return KVR_DECLINED;
    }

    *w = worker;

    return KVR_OK;
}


kvr_rc_t
kvr_snapshot_step(kvr_snapshot_t *s, uint32_t blocks)
{
    uint32_t       used;
    kvr_rc_t       rc;
    kvr_worker_t  *w;

    rc = kvr_snapshot_enter(s, &w);
    if (rc != KVR_OK) {
        return rc;
    }

    for (used = 0; used < blocks; /* void */ ) {

        if (s->done == s->event.nhandles) {

            rc = kvr_decoder_next(s->decoder, &s->event);
            s->done = 0;

            if (rc == KVR_INVALID && s->entries) {
                kvr_count(s->shard, &w->counters.why[s->unread ? s->unread
                                                     : KVR_WHY_SYNTAX], 1);
                s->refused++;
                rc = KVR_DONE;
            }

            if (rc == KVR_DONE && s->entries) {
                s->head.seq = s->msg.seq;
                s->head.complete = s->head.complete && s->msg.complete;

                if (s->msg.hybrid) {
                    kvr_fleet_set_flags(&s->shard->fleet, s->worker,
                                        KVR_WORKER_HYBRID, 0);
                }
            }

            if (rc != KVR_OK) {
                break;
            }
        }

        used += 1 + kvr_snapshot_event(s, w, blocks - used);

        kvr_txn_commit(&s->shard->mem);
    }

    kvr_shard_unlock(s->shard);

    return rc;
}


/*
 * Applies about `blocks` blocks of the event, at least one part of it; returns
 * the number of blocks applied.
 */

static uint32_t
kvr_snapshot_event(kvr_snapshot_t *s, kvr_worker_t *w, uint32_t blocks)
{
    uint32_t            n, span;
    kvr_event_t         part;
    const kvr_event_t  *ev;

    ev = &s->event;
    n = ev->nhandles - s->done;

    if (ev->verdict != KVR_KEEP) {
        kvr_count(s->shard, &w->counters.why[ev->why], 1);
        s->refused += ev->verdict == KVR_REFUSED;
        s->done = ev->nhandles;

        if (ev->why == KVR_WHY_GROUP) {
            kvr_fleet_set_flags(&s->shard->fleet, s->worker,
                                KVR_WORKER_HYBRID, 0);
        }

        return n;
    }

    span = kvr_span_longest(s->shard, s->worker, &ev->change);
    s->done += kvr_event_part(ev, s->done, blocks / span, &part);

    if (kvr_snapshot_apply(s, w, &part) == KVR_INVALID) {
        s->done = ev->nhandles;         /* the rest would be refused, too */
    }

    return kvr_max(part.nhandles * span, part.nlocals);
}


static kvr_rc_t
kvr_snapshot_apply(kvr_snapshot_t *s, kvr_worker_t *w, const kvr_event_t *ev)
{
    uint32_t      unknown, reason, holder;
    kvr_rc_t      rc;
    kvr_why_t     why;
    kvr_shard_t  *k;

    k = s->shard;
    reason = w->stream.reason;

    if (ev->kind == KVR_CLASS && !s->head.hybrid && !s->msg.hybrid) {
        kvr_fleet_set_flags(&k->fleet, s->worker, 0, KVR_WORKER_HYBRID);
    }

    k->fleet.aside = true;
    rc = kvr_shard_apply(k, s->worker, &ev->change, &unknown, &why);
    k->fleet.aside = false;

    /* an error of the snapshot is no error of the worker's current view */

    if (w->stream.reason != reason) {
        kvr_set32(&k->mem, &w->stream.reason, reason);
    }

    if (rc == KVR_FULL) {

        /* a hole that could not be recorded has dropped the whole rank */

        s->full = s->full
                  || kvr_fleet_holder_find(&k->fleet, s->worker, ev->rank,
                                           &holder) != KVR_OK
                  || k->fleet.holders[holder].aside == KVR_VIEW_NONE;

        kvr_set32(&k->mem, &w->stream.aside_lost, 1);
    }

    if (rc == KVR_INVALID
        && !(w->stream.aside_lost
             && (why == KVR_WHY_PARENT || why == KVR_WHY_FORGOTTEN)))
    {
        s->refused++;
    }

    return rc;
}


/* ---- end ---------------------------------------------------------------- */

kvr_rc_t
kvr_snapshot_end(kvr_snapshot_t *s, uint64_t now_ms, bool *behind)
{
    kvr_rc_t       rc;
    kvr_mem_t     *m;
    kvr_worker_t  *w;
    kvr_stream_t  *stream;

    *behind = false;

    rc = kvr_snapshot_enter(s, &w);
    if (rc != KVR_OK) {
        return rc;
    }

    stream = &w->stream;
    m = &s->shard->mem;

    if (!kvr_snapshot_newer(w, &s->head, false)) {
        *behind = s->head.epoch == stream->epoch && !stream->contiguous;
        kvr_shard_unlock(s->shard);
        return KVR_DECLINED;
    }

    kvr_txn_commit(m);

    kvr_snapshot_swap(s, w);

    if (stream->epoch && s->head.epoch > stream->epoch) {
        kvr_count(s->shard, &w->counters.restarts, 1);
    }

    kvr_count(s->shard, &w->counters.snapshots, 1);

    kvr_fleet_set_flags(&s->shard->fleet, s->worker,
                        stream->aside_lost ? KVR_WORKER_TRUNCATED : 0,
                        stream->aside_lost ? 0 : KVR_WORKER_TRUNCATED);

    kvr_set64(m, &stream->epoch, s->head.epoch);
    kvr_set64(m, &stream->seq, s->head.seq);
    kvr_set32(m, &stream->at, 0);
    kvr_set32(m, &stream->source, KVR_SOURCE_ENVELOPE);
    kvr_set32(m, &stream->contiguous, s->head.complete);
    kvr_set32(m, &stream->reason,
              !s->head.complete ? KVR_DEG_INCOMPLETE
              : s->full ? KVR_DEG_FULL
              : s->refused ? KVR_DEG_REFUSED : KVR_FINE);

    kvr_set64(m, &stream->aside, 0);

    /* a publisher of snapshots sends heartbeats: silence degrades it */

    kvr_set32(m, &stream->heartbeats, 1);

    if (stream->last_ms == 0) {
        kvr_set64(m, &stream->last_ms, now_ms);
    }

    kvr_shard_unlock(s->shard);

    s->number = 0;

    return KVR_OK;
}


/*
 * All old views go first.  A lookup that still sees an old view began before
 * the membership's version changed: when the lookup sees a new view, it looks
 * again.
 */

static void
kvr_snapshot_swap(kvr_snapshot_t *s, kvr_worker_t *w)
{
    uint32_t       h;
    kvr_fleet_t   *f;
    kvr_holder_t  *holders;

    f = &s->shard->fleet;
    holders = f->holders;

    for (h = w->first_holder; h != KVR_HOLDER_NONE; h = holders[h].next) {
        kvr_shard_clear(s->shard, h);
    }

    kvr_fleet_touch(f);
    kvr_fence(__ATOMIC_RELEASE);

    for (h = w->first_holder; h != KVR_HOLDER_NONE; h = holders[h].next) {
        kvr_fleet_swap_view(f, h);
        kvr_set32(f->mem, &holders[h].cleared, 0);
    }
}


kvr_rc_t
kvr_snapshot_abort(kvr_snapshot_t *s)
{
    kvr_rc_t       rc;
    kvr_worker_t  *w;

    rc = kvr_snapshot_enter(s, &w);

    if (rc == KVR_OK) {
        kvr_shard_drop_aside(s->shard, s->worker);
        kvr_shard_unlock(s->shard);
    }

    s->number = 0;

    return rc == KVR_BUSY ? KVR_BUSY : KVR_OK;
}
