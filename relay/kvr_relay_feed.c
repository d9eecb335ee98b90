/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>


static uint32_t kvr_relay_feed_read(kvr_relay_t *r, kvr_relay_source_t *s,
    const void *payload, size_t len);
static void kvr_relay_feed_rank(kvr_relay_t *r, kvr_relay_source_t *s,
    uint32_t rank);
static void kvr_relay_feed_number(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_event_t *ev);
static void kvr_relay_feed_event(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_event_t *ev);
static void kvr_relay_feed_clear(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_normalise_emit_pt emit);
static void kvr_relay_feed_empty(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_feed_refused(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_why_t why, const char *detail);


void
kvr_relay_feed_message(kvr_relay_t *r, kvr_relay_source_t *s, uint64_t seq,
    const void *payload, size_t len)
{
    s->known = true;
    s->seq = seq;
    s->digest = kvr_relay_source_digest(payload, len);

    (void) kvr_relay_feed_read(r, s, payload, len);
}


bool
kvr_relay_feed_list(kvr_relay_t *r, kvr_relay_source_t *s,
    const void *payload, size_t len)
{
    return kvr_relay_feed_read(r, s, payload, len) != 0
           && s->known;
}


/* Applies the events of a batch, has it published; returns their number. */

static uint32_t
kvr_relay_feed_read(kvr_relay_t *r, kvr_relay_source_t *s,
    const void *payload, size_t len)
{
    kvr_rc_t         rc;
    uint32_t         n;
    kvr_why_t        why;
    const char      *detail;
    kvr_event_t      ev;
    kvr_decoder_t   *d;
    kvr_message_t    msg;

    d = r->mirror.decoder;
    n = 0;

    s->heard_ms = r->now_ms;

    /* a batch that names no rank is of the rank that it came from */

    kvr_decoder_rank(d, s->index);

    if (kvr_message_open(d, payload, len, &msg, &why, &detail) != KVR_OK) {
        r->counters.messages++;
        kvr_relay_feed_refused(r, s, why, detail);
        return 0;
    }

    while ((rc = kvr_decoder_next(d, &ev)) == KVR_OK) {
        n++;

        kvr_relay_feed_rank(r, s, ev.rank);

        if (ev.has_event_id && r->options.trtllm != NULL) {
            kvr_relay_feed_number(r, s, &ev);
        }

        kvr_relay_feed_event(r, s, &ev);
    }

    if (rc != KVR_DONE) {
        kvr_relay_feed_refused(r, s, KVR_WHY_SYNTAX, kvr_decoder_detail(d));
    }

    /* an empty list is no message */

    if (n != 0 || r->options.trtllm == NULL) {
        r->counters.messages++;
        r->counters.bytes += len;
    }

    kvr_relay_publisher_end(r, s->index, s->seq);

    return n;
}


/* What one rank has said is not what the others hold. */

static void
kvr_relay_feed_rank(kvr_relay_t *r, kvr_relay_source_t *s, uint32_t rank)
{
    if (kvr_relay_ranks_has(&s->ranks, rank)) {
        return;
    }

    if (kvr_relay_ranks_none(&s->ranks)) {
        s->lost = kvr_relay_mirror_lost(&r->mirror);
    }

    kvr_relay_ranks_add(&s->ranks, rank);

    if (kvr_relay_ranks_several(&s->ranks)
        && (s->by_clear || r->options.trtllm != NULL))
    {
        kvr_relay_source_broken(r, s, "events of several ranks come from one "
                                "place");
    }
}


/*
 * An event of TensorRT-LLM: one may come in several parts.  Ranks have numbers
 * of their own, which say nothing when they are mixed.
 */

static void
kvr_relay_feed_number(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_event_t *ev)
{
    uint64_t  id;

    id = ev->event_id;

    if (kvr_relay_ranks_several(&s->ranks)) {
        s->known = true;
        s->seq = id;
        return;
    }

    if (s->known && id == s->seq) {
        return;
    }

    if (s->known && id < s->seq) {
        kvr_relay_feed_restarted(r, s);
        kvr_relay_ranks_add(&s->ranks, ev->rank);

        if (ev->kind != KVR_CLEAR) {
            kvr_relay_source_broken(r, s, "the engine restarted, and its first"
                                    " events are lost");
        }

    } else if (s->known && id != s->seq + 1) {
        r->counters.gaps++;

        kvr_relay_log(KVR_RELAY_WARN, "gap", "rank=%u seq=%llu got=%llu",
                      s->index, (unsigned long long) s->seq,
                      (unsigned long long) id);

        kvr_relay_source_broken(r, s, "events of the engine were lost");
    }

    s->known = true;
    s->seq = id;
}


static void
kvr_relay_feed_event(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_event_t *ev)
{
    char         text[KVR_RELAY_REASON];
    bool         refused;
    kvr_why_t    why;
    const char  *detail;

    r->counters.events++;

    why = kvr_relay_mirror_event(&r->mirror, ev, kvr_relay_publisher_event, r,
                                 &refused);

    if (why == KVR_WHY_NONE) {

        if (ev->kind == KVR_CLEAR && !kvr_relay_ranks_several(&s->ranks)) {
            s->by_clear = s->by_clear || !s->whole;
            kvr_relay_feed_empty(r, s);
        }

        return;
    }

    if (refused) {
        detail = ev->verdict == KVR_REFUSED
                 ? kvr_decoder_detail(r->mirror.decoder) : "";

        if (why == KVR_WHY_BLOCK_SIZE && ev->block_size) {
            snprintf(text, sizeof(text), "the engine's is %u, no multiple of "
                     "--block-size %u", ev->block_size,
                     r->options.block_size);
            detail = text;
        }

        kvr_relay_feed_refused(r, s, why, detail);
        return;
    }

    r->counters.why[why]++;

    /* where not all is known anyway, that is no wonder */

    if (why == KVR_WHY_UNKNOWN && s->whole) {
        kvr_relay_source_broken(r, s, "an offloaded block was not known, or "
                                "not any more");
    }
}


/* It holds nothing, as far as the engine has said: so all is known. */

static void
kvr_relay_feed_empty(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_source_t  *other;

    s->whole = true;
    s->reason[0] = '\0';
    s->lost = kvr_relay_mirror_lost(&r->mirror);

    /* whose blocks it were that there was no room for isn't known */

    for (other = r->sources; other < r->sources + r->nsources; other++) {
        if (!kvr_relay_ranks_none(&other->ranks) && other->lost != s->lost) {
            return;
        }
    }

    kvr_relay_mirror_emptied(&r->mirror);
}


static void
kvr_relay_feed_refused(kvr_relay_t *r, kvr_relay_source_t *s, kvr_why_t why,
    const char *detail)
{
    char  text[KVR_RELAY_REASON];

    if (r->counters.why[why]++ == 0) {
        kvr_relay_log(KVR_RELAY_WARN, "event refused", "rank=%u seq=%llu "
                      "why=%s detail=\"%s\"", s->index,
                      (unsigned long long) s->seq, kvr_why_name(why), detail);
    }

    snprintf(text, sizeof(text), "an event was refused: %s%s%.100s",
             kvr_why_name(why), detail[0] ? ", " : "", detail);
    kvr_relay_source_broken(r, s, text);
}


void
kvr_relay_feed_restarted(kvr_relay_t *r, kvr_relay_source_t *s)
{
    r->counters.restarts++;

    kvr_relay_log(KVR_RELAY_INFO, "engine restarted", "rank=%u seq=%llu",
                  s->index, (unsigned long long) s->seq);

    kvr_relay_feed_clear(r, s, kvr_relay_publisher_event);
}


/*
 * Another engine: what it holds follows, and it has no number yet.  Where
 * somebody else has told of the same rank, that goes, too.
 */

static void
kvr_relay_feed_clear(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_normalise_emit_pt emit)
{
    uint32_t             rank;
    kvr_relay_ranks_t    ranks;
    kvr_relay_source_t  *other;

    ranks = s->ranks;

    s->known = false;
    s->by_clear = false;
    memset(&s->ranks, 0, sizeof(kvr_relay_ranks_t));

    for (rank = kvr_relay_ranks_next(&ranks, 0); rank < KVR_RANKS_MAX;
         rank = kvr_relay_ranks_next(&ranks, rank + 1))
    {
        kvr_relay_mirror_clear(&r->mirror, rank, emit, r);

        for (other = r->sources; other < r->sources + r->nsources; other++) {

            if (kvr_relay_ranks_has(&other->ranks, rank)) {
                kvr_relay_source_broken(r, other, "another endpoint that said "
                                        "that it was the same rank has begun "
                                        "anew");
            }
        }
    }

    kvr_relay_feed_empty(r, s);
}


void
kvr_relay_feed_rebuild(kvr_relay_t *r, kvr_relay_source_t *s)
{
    if (s->known) {
        r->counters.restarts++;

        kvr_relay_log(KVR_RELAY_INFO, "engine restarted", "rank=%u seq=%llu",
                      s->index, (unsigned long long) s->seq);
    }

    s->rebuilding = true;
    s->in_step = false;
    s->sgl_epoch[0] = '\0';

    if (r->nsources > 1) {

        /* what is said of the other ranks stays as it is */

        kvr_relay_feed_clear(r, s, kvr_relay_publisher_event);
        kvr_relay_publisher_flush(r);
        return;
    }

    if (r->publisher.state != KVR_RELAY_UNBASED) {
        r->sync_ms = r->now_ms + KVR_RELAY_SYNC_MS;
    }

    kvr_relay_feed_clear(r, s, NULL);
    kvr_relay_publisher_unbase(r, true);
}


void
kvr_relay_feed_rebuilt(kvr_relay_t *r, kvr_relay_source_t *s)
{
    s->rebuilding = false;

    /* what the next relay asks has to be of this engine */

    if (r->nsources > 1) {
        kvr_relay_snapshot_want(r, "an engine began anew");
    }
}
