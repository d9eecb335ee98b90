/*
 * Copyright (C) the nginx-kv-router authors
 *
 * One event of a message, or a part of it: to the index, or to the memory of
 * an engine's blocks, or counted.
 */


#include "kvr_ingest_state.h"
#include "kvr_stream.h"
#include "../zone/kvr_views.h"


static void kvr_ingest_window(kvr_ingest_t *in, kvr_worker_t *w,
    const kvr_event_t *ev);
static bool kvr_ingest_numbered(kvr_ingest_t *in, kvr_worker_t *w,
    const kvr_event_t *ev);
static kvr_rc_t kvr_ingest_bare(kvr_ingest_t *in, kvr_worker_t *w,
    const kvr_event_t *ev);
static void kvr_ingest_missed(kvr_ingest_t *in, const kvr_event_t *ev,
    kvr_why_t why);
static void kvr_ingest_cleared(kvr_ingest_t *in, const kvr_worker_t *w,
    uint32_t rank);


kvr_rc_t
kvr_ingest_event(kvr_ingest_t *in, kvr_worker_t *w, const kvr_event_t *ev)
{
    uint32_t       unknown;
    kvr_rc_t       rc;
    kvr_why_t      why;
    kvr_shard_t   *k;

    k = in->shard;

    if (ev->window != w->stream.window && ev->window != 0) {
        kvr_ingest_window(in, w, ev);
    }

    if (!in->msg.counted) {
        return kvr_ingest_bare(in, w, ev);
    }

    if (ev->worker
        && (strlen(w->conf.id) != ev->worker_len
            || memcmp(w->conf.id, ev->worker, ev->worker_len) != 0))
    {
        kvr_ingest_refuse(in, w, KVR_WHY_WORKER);
        kvr_warning_note(&in->warning, &k->mem, w, KVR_WHY_WORKER, ev,
                         "its worker is not the channel's");
        return KVR_OK;
    }

    if (ev->has_event_id && in->msg.form == KVR_FORM_ROUTER_EVENT
        && !kvr_ingest_numbered(in, w, ev))
    {
        return KVR_DECLINED;
    }

    if (ev->verdict == KVR_REFUSED) {
        kvr_ingest_refuse(in, w, ev->why);
        kvr_ingest_missed(in, ev, ev->why);
        kvr_warning_note(&in->warning, &k->mem, w, ev->why, ev,
                         kvr_decoder_detail(in->decoder));
        return KVR_OK;
    }

    if (ev->verdict == KVR_FILTERED) {
        kvr_count(k, &w->counters.why[ev->why], 1);
        return KVR_OK;
    }

    if (ev->kind == KVR_CLASS && in->msg.form == KVR_FORM_ENVELOPE
        && !in->msg.hybrid)
    {
        /* an earlier publisher passed no groups on */
        kvr_fleet_set_flags(&k->fleet, in->worker, 0, KVR_WORKER_HYBRID);
    }

    rc = kvr_shard_apply(k, in->worker, &ev->change, &unknown, &why);

    if (ev->kind == KVR_CLEAR && rc == KVR_OK && in->msg.complete) {
        kvr_ingest_cleared(in, w, ev->rank);
    }

    if (rc == KVR_INVALID && kvr_why_class(why) == KVR_WHY_IS_REFUSED) {
        in->refused++;
        kvr_ingest_missed(in, ev, why);
        kvr_warning_note(&in->warning, &k->mem, w, why, ev, "");
    }

    return rc;
}


/*
 * A rank that restarts sends its windows one after another, perhaps the
 * smallest first.  While another rank holds blocks of a larger window, the
 * larger window is used.
 */

static void
kvr_ingest_window(kvr_ingest_t *in, kvr_worker_t *w, const kvr_event_t *ev)
{
    uint32_t       h;
    kvr_shard_t   *k;
    kvr_holder_t  *holders;

    k = in->shard;
    holders = k->fleet.holders;

    if (ev->window < w->stream.window) {

        for (h = w->first_holder; h != KVR_HOLDER_NONE; h = holders[h].next) {
            if (holders[h].rank != ev->rank
                && holders[h].view != KVR_VIEW_NONE
                && kvr_index_held(&k->index, holders[h].view))
            {
                kvr_decoder_conf(in->decoder)->window = w->stream.window;
                return;
            }
        }

    } else if (w->stream.window) {
        /*
         * the blocks are of another window, whose removals are not applied:
         * drop the blocks
         */
        kvr_shard_clear_worker(k, in->worker);
    }

    kvr_set32(&k->mem, &w->stream.window, ev->window);
}


/* Applies an event as it left the engine. */

static kvr_rc_t
kvr_ingest_bare(kvr_ingest_t *in, kvr_worker_t *w, const kvr_event_t *ev)
{
    kvr_rc_t      rc;
    kvr_why_t     why;
    kvr_shard_t  *k;

    k = in->shard;

    if (in->engine == NULL) {
        in->engine = kvr_normalise_create(in->router, &in->memory);

        if (in->engine == NULL) {
            kvr_ingest_refuse(in, w, KVR_WHY_FULL);
            kvr_ingest_missed(in, ev, KVR_WHY_FULL);
            return KVR_OK;
        }
    }

    rc = kvr_normalise_apply(in->engine, k, in->worker, ev, &why, NULL, NULL);

    if (ev->kind == KVR_CLEAR && rc == KVR_OK
        && (in->msg.form == KVR_FORM_BARE || in->msg.complete))
    {
        kvr_ingest_cleared(in, w, ev->rank);
    }

    if (rc == KVR_INVALID) {
        in->refused++;
        in->bad_block_size = in->bad_block_size || why == KVR_WHY_BLOCK_SIZE;
        kvr_ingest_missed(in, ev, why);
        kvr_warning_note(&in->warning, &k->mem, w, why, ev,
                         ev->verdict == KVR_REFUSED
                         ? kvr_decoder_detail(in->decoder) : "");
    }

    /* a filtered event may be of a group with another block size */

    if (ev->block_size && w->stream.engine_block_size != ev->block_size
        && (rc == KVR_OK || kvr_why_class(why) != KVR_WHY_IS_FILTERED))
    {
        kvr_set32(&k->mem, &w->stream.engine_block_size, ev->block_size);
    }

    return rc;
}


/*
 * RouterEvents are numbered for each (worker, rank).  Returns true if the
 * event must be applied.  RouterEvents have no log: missing events stay
 * missing.
 */

static bool
kvr_ingest_numbered(kvr_ingest_t *in, kvr_worker_t *w, const kvr_event_t *ev)
{
    uint32_t       holder;
    uint64_t       next;
    kvr_shard_t   *k;
    kvr_holder_t  *h;

    k = in->shard;

    if (kvr_fleet_holder(&k->fleet, in->worker, ev->rank, &holder)
        != KVR_OK)
    {
        return true;            /* kvr_shard_apply() will find the error */
    }

    h = &k->fleet.holders[holder];
    next = h->event_id;         /* 0 at first */

    if (next && ev->event_id < next) {

        if (ev->event_id > 1 || ev->event_id + 1 == next) {
            kvr_count(k, &w->counters.duplicates, 1);
            return false;
        }

        /* the numbers restart: this rank restarted, others may not have */

        kvr_count(k, &w->counters.restarts, 1);
        kvr_shard_clear(k, holder);
        (void) kvr_stream_cleared(k, in->worker, ev->rank);

    } else if (next && ev->event_id > next) {
        kvr_count(k, &w->counters.gaps, 1);
        kvr_set32(&k->mem, &w->stream.reason, KVR_DEG_GAP);
        kvr_stream_uncleared(k, w);
    }

    kvr_set64(&k->mem, &h->event_id, ev->event_id + 1);

    return true;
}


static void
kvr_ingest_missed(kvr_ingest_t *in, const kvr_event_t *ev, kvr_why_t why)
{
    bool  unranked;

    /* no space for this rank: the loss is of unknown rank, not this one's */

    unranked = ev->unranked
               || (why == KVR_WHY_RANK && ev->verdict == KVR_REFUSED);

    kvr_stream_missed(in->shard, in->worker,
                      unranked ? KVR_RANKS_MAX : ev->rank);
}


static void
kvr_ingest_cleared(kvr_ingest_t *in, const kvr_worker_t *w, uint32_t rank)
{
    if (w->stream.contiguous && w->stream.reason == KVR_FINE && !in->refused) {
        return;
    }

    if (kvr_stream_cleared(in->shard, in->worker, rank)) {
        in->refused = 0;
        in->bad_block_size = false;
    }
}


void
kvr_ingest_refuse(kvr_ingest_t *in, kvr_worker_t *w, kvr_why_t why)
{
    in->refused++;

    kvr_count(in->shard, &w->counters.why[why], 1);
}
