/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_ingest_state.h"
#include "../zone/kvr_span.h"
#include "kvr_stream.h"
#include "../zone/kvr_lease.h"

#include <stdlib.h>


#define KVR_INGEST_SILENT  5000         /* ms; relays speak each second */


static void kvr_ingest_source(kvr_ingest_t *in, kvr_worker_t *w);
static kvr_ingest_verdict_t kvr_ingest_message(kvr_ingest_t *in,
    const char *worker, size_t len, const char *text);
static kvr_ingest_verdict_t kvr_ingest_drop(kvr_ingest_t *in, kvr_worker_t *w,
    kvr_why_t why, const char *detail);
static kvr_ingest_verdict_t kvr_ingest_envelope(kvr_ingest_t *in,
    kvr_worker_t *w);
static kvr_ingest_verdict_t kvr_ingest_seq(kvr_ingest_t *in, kvr_worker_t *w);
static void kvr_ingest_complete(kvr_ingest_t *in, kvr_worker_t *w);
static uint32_t kvr_ingest_part(kvr_ingest_t *in, kvr_worker_t *w,
    uint32_t blocks);
static uint32_t kvr_ingest_cut(const kvr_ingest_t *in, const kvr_event_t *ev);
static void kvr_ingest_broken(kvr_ingest_t *in, kvr_worker_t *w);
static void kvr_ingest_finish(kvr_ingest_t *in, kvr_worker_t *w);


kvr_ingest_t *
kvr_ingest_create(kvr_router_t *k)
{
    kvr_ingest_t  *in;

    in = calloc(1, sizeof(kvr_ingest_t));
    if (in == NULL) {
        return NULL;
    }

    in->router = k;
    in->memory.counting = true;
    in->decoder = kvr_decoder_create();

    if (in->decoder == NULL) {
        free(in);
        return NULL;
    }

    kvr_decoder_conf(in->decoder)->contract =
                                  kvr_params_contract(kvr_router_params(k));

    return in;
}


void
kvr_ingest_destroy(kvr_ingest_t *in)
{
    if (in) {
        kvr_decoder_destroy(in->decoder);
        kvr_normalise_destroy(in->engine);
        free(in);
    }
}


/* ---- messages ----------------------------------------------------------- */

kvr_rc_t
kvr_ingest_worker(kvr_ingest_t *in, const char *worker, size_t len)
{
    uint32_t           flags;
    kvr_rc_t           rc;
    kvr_shard_t       *k;
    kvr_worker_conf_t  conf;

    k = in->shard;

    rc = kvr_fleet_find(&k->fleet, worker, len, &in->worker);

    if (rc == KVR_OK) {
        flags = k->fleet.workers[in->worker].flags;

        /* a worker that left Redis goes on without a registration */

        if (flags & KVR_WORKER_DELETED && !(flags & KVR_WORKER_NOT_INDEXED)
            && !kvr_worker_tombstone(flags))
        {
            rc = KVR_DECLINED;
        }
    }

    if (rc != KVR_OK) {

        kvr_worker_conf_init(&conf, worker, len);

        rc = kvr_fleet_put(&k->fleet, &conf, KVR_WORKER_SEEN, &in->worker);

        if (rc != KVR_OK) {
            return rc;
        }

        kvr_txn_commit(&k->mem);
    }

    in->generation = k->fleet.workers[in->worker].generation;

    return k->fleet.workers[in->worker].flags & KVR_WORKER_DELETED
           ? KVR_DECLINED : KVR_OK;
}


kvr_ingest_verdict_t
kvr_ingest_open(kvr_ingest_t *in, const char *worker, size_t len,
    const void *bytes, size_t n, bool live, uint64_t now_ms,
    const char **detail)
{
    const char            *text;
    kvr_ingest_verdict_t   verdict;

    in->refused = 0;
    in->bad_block_size = false;
    in->halfway = false;
    in->warning.noted = 0;
    in->detail = NULL;
    in->live = live;
    in->now_ms = now_ms;

    if (!kvr_worker_id_valid(worker, len)) {
        *detail = "the channel names no valid worker id";
        return KVR_INGEST_DROP;
    }

    if (kvr_message_open(in->decoder, bytes, n, &in->msg, &in->unread, &text)
        == KVR_OK)
    {
        text = NULL;
    }

    /* an envelope counts as an envelope even if its payload can't be read */

    in->enveloped = in->msg.form == KVR_FORM_ENVELOPE;

    if (in->enveloped
        && (in->msg.worker_len != len
            || memcmp(in->msg.worker, worker, len) != 0))
    {
        in->enveloped = false;
        in->unread = KVR_WHY_WORKER;
        text = "the envelope's worker is not the channel's";
    }

    in->shard = kvr_shard_of(in->router, worker, len);

    switch (kvr_shard_lock_leased(in->shard)) {

    case KVR_OK:
        verdict = kvr_ingest_message(in, worker, len, text);
        kvr_shard_unlock(in->shard);
        break;

    case KVR_LOST:
        verdict = KVR_INGEST_LOST;
        break;

    default:
        verdict = KVR_INGEST_BUSY;
        break;
    }

    *detail = in->detail;

    return verdict;
}


/* The verdict on a message, of which text says why it can't be read. */

static kvr_ingest_verdict_t
kvr_ingest_message(kvr_ingest_t *in, const char *worker, size_t len,
    const char *text)
{
    bool                   bare;
    kvr_shard_t           *k;
    kvr_worker_t          *w;
    kvr_ingest_verdict_t   verdict;

    k = in->shard;

    if (text && !in->enveloped
        && (kvr_fleet_find(&k->fleet, worker, len, &in->worker) != KVR_OK
            || k->fleet.workers[in->worker].flags & KVR_WORKER_DELETED))
    {
        /* an unreadable message neither makes nor restores a worker */
        in->detail = text;
        return KVR_INGEST_DROP;
    }

    switch (kvr_ingest_worker(in, worker, len)) {

    case KVR_OK:
        break;

    case KVR_DECLINED:
        return KVR_INGEST_DROP;

    default:
        in->detail = "all workers are taken: raise max_workers";
        return KVR_INGEST_DROP;
    }

    w = &k->fleet.workers[in->worker];
    bare = w->stream.source != KVR_SOURCE_ENVELOPE;

    kvr_decoder_conf(in->decoder)->window = w->stream.window;
    kvr_decoder_conf(in->decoder)->salted = w->conf.salted;

    /*
     * A message of the log is no sign of life, for it may be old.  On an
     * enveloped stream only a message that continues the stream is a sign.
     */

    if (in->live && bare) {
        kvr_set64(&k->mem, &w->stream.last_ms, in->now_ms);
    }

    if (in->enveloped) {
        verdict = kvr_ingest_envelope(in, w);
        in->detail = verdict == KVR_INGEST_APPLY ? text : in->detail;

        return verdict;
    }

    if (text) {
        (void) kvr_ingest_drop(in, w, in->unread, text);

        /* without envelopes there is no number that would show the loss */

        if (in->msg.form != KVR_FORM_ENVELOPE && bare
            && w->stream.source != KVR_SOURCE_API)
        {
            kvr_stream_refused(k, w, false);
            kvr_ingest_confidence(in, w);
        }

        return KVR_INGEST_DROP;
    }

    /* one worker, one kind of source: two would contradict each other */

    if (in->msg.form == KVR_FORM_NORMALISED || !in->live || !bare) {
        return kvr_ingest_drop(in, w, KVR_WHY_SYNTAX,
                               in->msg.form == KVR_FORM_NORMALISED
                               ? "a normalised batch without an envelope"
                               : "a message without an envelope on an "
                                 "enveloped stream");
    }

    if (!in->msg.empty) {
        kvr_ingest_source(in, w);
    }

    return KVR_INGEST_APPLY;
}


static kvr_ingest_verdict_t
kvr_ingest_drop(kvr_ingest_t *in, kvr_worker_t *w, kvr_why_t why,
    const char *detail)
{
    in->detail = detail;
    kvr_ingest_refuse(in, w, why);

    return KVR_INGEST_DROP;
}


void
kvr_ingest_confidence(kvr_ingest_t *in, kvr_worker_t *w)
{
    if (kvr_stream_confidence(in->shard, w)) {
        kvr_members_returned(in->router, in->shard, in->worker);
    }
}


static void
kvr_ingest_source(kvr_ingest_t *in, kvr_worker_t *w)
{
    kvr_set32(&in->shard->mem, &w->stream.source,
              in->msg.form == KVR_FORM_BARE ? KVR_SOURCE_BARE
                                            : KVR_SOURCE_ROUTER_EVENT);
}


/*
 * Checks the epoch, by the rules of docs/events.md.  There is one exception to
 * "a lower epoch is ignored".  If the known epoch sends no more heartbeats and
 * a lower epoch does, the stream goes back to the lower epoch.  Then Redis
 * lost its data, and the clock of the publisher that started afterwards was
 * set back.  Log and snapshot repair the view.  A publisher that only ends
 * late sends no heartbeats.
 */

static kvr_ingest_verdict_t
kvr_ingest_envelope(kvr_ingest_t *in, kvr_worker_t *w)
{
    bool            back;
    kvr_shard_t    *k;
    kvr_stream_t   *s;
    kvr_message_t  *m;

    k = in->shard;
    s = &w->stream;
    m = &in->msg;

    if (m->epoch == 0 || m->epoch > KVR_EPOCH_MAX) {
        return kvr_ingest_drop(in, w, KVR_WHY_SYNTAX, m->epoch
                               ? "an epoch that is no time in milliseconds"
                               : "an epoch of 0");
    }

    if (m->seq > KVR_SEQ_MAX) {
        return kvr_ingest_drop(in, w, KVR_WHY_SYNTAX,
                               "a seq that no publisher comes to");
    }

    back = m->epoch < s->epoch;

    if (back && !(in->live && m->heartbeat && m->seq != 0 && s->heartbeats
                  && in->now_ms > s->last_ms + KVR_INGEST_SILENT))
    {
        kvr_count(k, &w->counters.duplicates, 1);
        return KVR_INGEST_DROP;
    }

    if (in->live) {
        kvr_set64(&k->mem, &s->last_ms, in->now_ms);
    }

    if (back) {
        kvr_stream_skip(k, w, m->epoch, 0);
        kvr_ingest_confidence(in, w);
        kvr_count(k, &w->counters.restarts, 1);
        kvr_count(k, &w->counters.gaps, 1);
        return KVR_INGEST_GAP;
    }

    /*
     * A drain that the log tells of may be over.  Only a registration that is
     * known will be seen to end.
     */

    if (m->draining && in->live && w->expires_ms) {
        kvr_fleet_set_flags(&k->fleet, in->worker, KVR_WORKER_LEAVING, 0);
    }

    if (m->hybrid) {
        kvr_fleet_set_flags(&k->fleet, in->worker, KVR_WORKER_HYBRID, 0);
    }

    return kvr_ingest_seq(in, w);
}


/* Checks the number, in an epoch that is not lower than the stream's. */

static kvr_ingest_verdict_t
kvr_ingest_seq(kvr_ingest_t *in, kvr_worker_t *w)
{
    bool            seen, fresh;
    kvr_shard_t    *k;
    kvr_stream_t   *s;
    kvr_message_t  *m;

    k = in->shard;
    s = &w->stream;
    m = &in->msg;

    seen = m->epoch == s->epoch && m->seq <= s->seq;

    if (m->heartbeat) {
        kvr_count(k, &w->counters.heartbeats, 1);

        if (!s->heartbeats) {
            kvr_set32(&k->mem, &s->heartbeats, 1);
        }

        /* the publisher restarted, and sent nothing yet */

        fresh = m->epoch > s->epoch && m->seq == 0 && s->epoch;

        if (fresh || (seen && m->seq == s->seq)) {

            if (fresh && m->complete) {
                kvr_stream_restart(k, in->worker, m->epoch);
            }

            kvr_ingest_complete(in, w);
        }

        if (seen || m->seq == 0) {
            return KVR_INGEST_DROP;
        }

    } else if (seen) {
        kvr_count(k, &w->counters.duplicates, 1);
        return KVR_INGEST_DROP;

    } else if (m->seq == 1 && (m->epoch > s->epoch || !s->contiguous)) {

        /* the first message of an epoch: the view starts empty */

        kvr_stream_restart(k, in->worker, m->epoch);

        /* a reader between two slices must see what the publisher lacks */

        if (!m->complete) {
            kvr_ingest_complete(in, w);
        }

        return KVR_INGEST_APPLY;

    } else if (m->epoch == s->epoch && m->seq == s->seq + 1) {
        return KVR_INGEST_APPLY;
    }

    kvr_count(k, &w->counters.gaps, 1);

    return KVR_INGEST_GAP;
}


/* The message says whether its publisher knows all that its engine holds. */

static void
kvr_ingest_complete(kvr_ingest_t *in, kvr_worker_t *w)
{
    kvr_stream_complete(in->shard, w, in->msg.complete);

    if (w->stream.confidence != KVR_SYNCING) {
        kvr_ingest_confidence(in, w);
    }
}


kvr_rc_t
kvr_ingest_step(kvr_ingest_t *in, uint32_t blocks)
{
    uint32_t       used, refused;
    kvr_rc_t       rc;
    kvr_shard_t   *k;
    kvr_worker_t  *w;

    k = in->shard;

    rc = kvr_shard_lock_leased(in->shard);
    if (rc != KVR_OK) {
        return rc;
    }

    w = &k->fleet.workers[in->worker];

    if (w->generation != in->generation || w->flags & KVR_WORKER_DELETED) {
        kvr_shard_unlock(k);
        return KVR_DONE;
    }

    for (used = 0; used < blocks; /* void */ ) {

        if (!in->halfway) {

            rc = kvr_decoder_next(in->decoder, &in->event);
            in->done = 0;

            if (rc == KVR_DONE) {
                kvr_ingest_finish(in, w);
                break;
            }

            if (rc != KVR_OK) {
                kvr_ingest_broken(in, w);
                kvr_ingest_finish(in, w);
                rc = KVR_DONE;
                break;
            }

            if (in->msg.empty && in->msg.form != KVR_FORM_ENVELOPE) {
                /*
                 * the message is not quite empty: an event is behind the first
                 * value
                 */
                kvr_ingest_source(in, w);
            }

            if (in->msg.form == KVR_FORM_ENVELOPE
                && in->event.source < w->stream.at)
            {
                /*
                 * a process which did not finish the message applied the event
                 * before
                 */
                kvr_decoder_conf(in->decoder)->window = w->stream.window;
                used += 1 + in->event.nhandles / 16;
                continue;
            }
        }

        refused = in->refused;

        used += 1 + kvr_ingest_part(in, w, blocks - used);

        /*
         * The loss is stored at once: later clears of the message may be of
         * other ranks, and another process that goes on with the message must
         * know the loss.
         */

        if (in->refused > refused) {
            kvr_stream_refused(k, w, in->bad_block_size);
        }

        if (in->msg.form == KVR_FORM_ENVELOPE && !in->halfway
            && !in->event.more)
        {
            kvr_set32(&k->mem, &w->stream.at, in->event.source + 1);
        }

        kvr_txn_commit(&k->mem);
    }

    kvr_shard_unlock(k);

    return rc == KVR_DONE ? KVR_DONE : KVR_OK;
}


/* Applies about `blocks` blocks of the event; returns the number applied. */

static uint32_t
kvr_ingest_part(kvr_ingest_t *in, kvr_worker_t *w, uint32_t blocks)
{
    uint32_t            refused, span;
    kvr_rc_t            rc;
    kvr_event_t         part;
    const kvr_event_t  *ev;

    ev = &in->event;
    span = kvr_ingest_cut(in, ev);

    if (span == 0) {
        (void) kvr_ingest_event(in, w, ev);
        return kvr_max(ev->nhandles, ev->nlocals);
    }

    refused = in->refused;
    in->done += kvr_event_part(ev, in->done, blocks / span, &part);

    rc = kvr_ingest_event(in, w, &part);

    /*
     * if a part of an engine's event is declined, the next part may still be
     * taken, namely behind a block that the engine announced before
     */

    in->halfway = in->done < ev->nhandles && in->refused == refused
                  && (rc == KVR_OK
                      || (rc == KVR_DECLINED && !in->msg.counted));

    return kvr_max(part.nhandles * span, part.nlocals);
}


/*
 * Returns 0 if the event must not be cut; else the maximum number of blocks
 * of one of the event's handles, or 1 if the event has local hashes.
 *
 * The cursor counts complete events: if a process stops in an event, the
 * event is applied again from the log.  Therefore, of events in envelopes,
 * only those are cut that can be applied twice.  Messages without envelope
 * are never read again.  An offload is not cut: a block is restored together
 * with the missing blocks before it.  If a RouterEvent is cut, its first part
 * has the number: if that part must not be applied, the other parts are not.
 */

static uint32_t
kvr_ingest_cut(const kvr_ingest_t *in, const kvr_event_t *ev)
{
    uint32_t  span, n;

    if (ev->verdict != KVR_KEEP) {
        return 0;
    }

    if (in->msg.counted) {
        return kvr_span_longest(in->shard, in->worker, &ev->change);
    }

    if (in->msg.form != KVR_FORM_BARE
        || (ev->kind == KVR_STORE && ev->ntokens == 0))
    {
        return 0;
    }

    if (ev->kind != KVR_STORE) {
        return kvr_span_longest(in->shard, in->worker, &ev->change);
    }

    /* if an event is refused, all its blocks are refused */

    if (kvr_span_of(ev, in->shard->params, &span, &n) != KVR_WHY_NONE
        || n != ev->nhandles)
    {
        return 0;
    }

    return span;
}


bool
kvr_ingest_warning(kvr_ingest_t *in, char text[KVR_WARNING_LEN])
{
    return kvr_warning_tell(&in->warning,
                            &in->shard->fleet.workers[in->worker],
                            in->shard->params->block_size, text);
}


/* Refuses what can't be read: the rest of the message, or all of it. */

static void
kvr_ingest_broken(kvr_ingest_t *in, kvr_worker_t *w)
{
    if (in->unread) {
        kvr_ingest_refuse(in, w, in->unread);

    } else {
        kvr_ingest_refuse(in, w, KVR_WHY_SYNTAX);
        kvr_warning_note(&in->warning, &in->shard->mem, w, KVR_WHY_SYNTAX,
                         &in->event, kvr_decoder_detail(in->decoder));
    }

    kvr_stream_missed(in->shard, in->worker, KVR_RANKS_MAX);
    kvr_stream_refused(in->shard, w, in->bad_block_size);
}


/* Moves the cursor on: all of the message is applied. */

static void
kvr_ingest_finish(kvr_ingest_t *in, kvr_worker_t *w)
{
    kvr_shard_t   *k;
    kvr_stream_t  *s;

    k = in->shard;
    s = &w->stream;

    if (in->msg.form == KVR_FORM_ENVELOPE) {
        kvr_set64(&k->mem, &s->seq, in->msg.seq);
        kvr_set32(&k->mem, &s->at, 0);

        kvr_stream_complete(k, w, in->msg.complete);
    }

    kvr_count(k, &w->counters.messages, 1);

    if (s->confidence != KVR_SYNCING) {
        kvr_ingest_confidence(in, w);
    }
}
