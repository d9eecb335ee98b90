/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>


/* The warning of a rank that is refused is repeated after so long. */
#define KVR_RELAY_OTHER_MS  60000


static uint32_t kvr_relay_feed_read(kvr_relay_t *r, kvr_relay_source_t *s,
    const void *payload, size_t len);
static void kvr_relay_feed_known(kvr_relay_t *r, kvr_relay_source_t *s,
    uint64_t seq);
static void kvr_relay_feed_other(kvr_relay_t *r, kvr_relay_source_t *s,
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
    kvr_relay_feed_known(r, s, seq);
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


/*
 * Applies the events of a batch and gives them to the publisher.  Returns the
 * number of events.
 */

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

    /* A batch without a rank belongs to the rank of its endpoint. */

    kvr_decoder_conf(d)->rank = s->base;

    if (kvr_message_open(d, payload, len, &msg, &why, &detail) != KVR_OK) {
        r->counters.messages++;
        kvr_relay_feed_refused(r, s, why, detail);
        return 0;
    }

    while ((rc = kvr_decoder_next(d, &ev)) == KVR_OK) {

        if (n++ == 0) {
            s->other = s->base;
        }

        if (!kvr_relay_source_ours(s, &ev)) {
            kvr_relay_feed_other(r, s, ev.rank);
            continue;
        }

        if (ev.has_event_id && r->options.trtllm != NULL) {
            kvr_relay_feed_number(r, s, &ev);
        }

        kvr_relay_feed_event(r, s, &ev);
    }

    if (rc != KVR_DONE) {
        kvr_relay_feed_refused(r, s, KVR_WHY_SYNTAX, kvr_decoder_detail(d));
    }

    /* An empty list of TensorRT-LLM's events is not a message. */

    if (n != 0 || r->options.trtllm == NULL) {
        r->counters.messages++;
    }

    kvr_relay_publisher_end(r, true, s->index, s->seq);

    return n;
}


/* Records the number of the source's last message, which may be its first. */

static void
kvr_relay_feed_known(kvr_relay_t *r, kvr_relay_source_t *s, uint64_t seq)
{
    if (!s->known) {
        s->lost = kvr_relay_mirror_lost(&r->mirror);
    }

    s->known = true;
    s->seq = seq;
}


/* Refuses an event whose rank is not the source's, counts it and warns. */

static void
kvr_relay_feed_other(kvr_relay_t *r, kvr_relay_source_t *s, uint32_t rank)
{
    char         text[KVR_RELAY_REASON], where[KVR_RELAY_QUOTED];
    const char  *endpoint;

    r->counters.why[KVR_WHY_RANK]++;

    if (rank != s->other) {
        snprintf(text, sizeof(text), "events of the engine's rank %u were "
                 "refused: its endpoint is that of rank %u", rank, s->base);
        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, text);
    }

    s->other = rank;

    if (r->now_ms < s->other_ms) {
        return;
    }

    s->other_ms = r->now_ms + KVR_RELAY_OTHER_MS;

    endpoint = kvr_relay_source_endpoint(r, s);

    kvr_relay_log(KVR_RELAY_WARN, "rank refused", "rank=%u endpoint=%s "
                  "expected=%u named=%u remedy=\"%s\"", s->index,
                  kvr_relay_quote(where, endpoint, strlen(endpoint)), s->base,
                  rank, KVR_RELAY_OTHER_REMEDY);
}


/*
 * Checks the number of an event of TensorRT-LLM.  Several parts of one event
 * have one number.  With ranks, each rank counts for itself, and the numbers
 * of a mixed list tell nothing about losses.
 */

static void
kvr_relay_feed_number(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_event_t *ev)
{
    uint64_t  id;

    id = ev->event_id;

    if (s->nranks > 1) {
        kvr_relay_feed_known(r, s, id);
        return;
    }

    if (s->known && id == s->seq) {
        return;
    }

    if (s->known && id < s->seq) {
        kvr_relay_feed_restarted(r, s);

        if (ev->kind != KVR_CLEAR) {
            kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN,
                                  "the engine restarted, and its first "
                                  "events are lost");
        }

    } else if (s->known && id != s->seq + 1) {
        r->counters.gaps++;

        kvr_relay_log(KVR_RELAY_WARN, "gap", "rank=%u seq=%llu got=%llu",
                      s->index, (unsigned long long) s->seq,
                      (unsigned long long) id);

        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN,
                              "events of the engine were lost");
    }

    kvr_relay_feed_known(r, s, id);
}


static void
kvr_relay_feed_event(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_event_t *ev)
{
    char         text[KVR_RELAY_REASON];
    bool         refused;
    kvr_why_t    why;
    const char  *detail;

    why = kvr_relay_mirror_event(&r->mirror, ev, kvr_relay_publisher_event, r,
                                 &refused);

    if (why == KVR_WHY_NONE) {

        if (ev->kind == KVR_CLEAR && s->nranks == 1) {
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

    /* A removal of an unknown block is expected while something is missing. */

    if (why == KVR_WHY_UNKNOWN && s->at.whole) {
        kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN,
                              "an offloaded block was not known, or not any "
                              "more");
    }
}


/* The engine holds nothing: all that it holds is known again. */

static void
kvr_relay_feed_empty(kvr_relay_t *r, kvr_relay_source_t *s)
{
    kvr_relay_source_t  *other;

    kvr_relay_source_step(s, KVR_RELAY_STEP_CLEARED);
    s->lost = kvr_relay_mirror_lost(&r->mirror);

    /* The mirror does not know of which rank the forgotten blocks were. */

    for (other = r->sources; other < r->sources + r->nsources; other++) {
        if (other->known && other->lost != s->lost) {
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
    kvr_relay_source_lack(s, KVR_RELAY_STEP_BROKEN, text);
}


void
kvr_relay_feed_restarted(kvr_relay_t *r, kvr_relay_source_t *s)
{
    r->counters.restarts++;

    kvr_relay_log(KVR_RELAY_INFO, "engine restarted", "rank=%u seq=%llu",
                  s->index, (unsigned long long) s->seq);

    kvr_relay_feed_clear(r, s, kvr_relay_publisher_event);
}


/* Another engine has come: its blocks follow, and it has no number yet. */

static void
kvr_relay_feed_clear(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_normalise_emit_pt emit)
{
    uint32_t  i;

    for (i = 0; s->known && i < s->nranks; i++) {
        kvr_relay_mirror_clear(&r->mirror, s->index + i, emit, r);
    }

    s->known = false;

    kvr_relay_feed_empty(r, s);
}


void
kvr_relay_feed_rebuild(kvr_relay_t *r, kvr_relay_source_t *s)
{
    /* A source in step has asked the same engine for all that it holds. */

    if (s->known && !kvr_relay_step_in(s->at)) {
        r->counters.restarts++;

        kvr_relay_log(KVR_RELAY_INFO, "engine restarted", "rank=%u seq=%llu",
                      s->index, (unsigned long long) s->seq);
    }

    kvr_relay_source_step(s, KVR_RELAY_STEP_BEGUN);
    s->sgl_epoch[0] = '\0';

    if (r->nsources > 1) {

        /* The other ranks keep what is known of them. */

        kvr_relay_feed_clear(r, s, kvr_relay_publisher_event);
        kvr_relay_publisher_end(r, false, 0, 0);
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
    /* The snapshot that the next relay reads must be one of this engine. */

    if (r->nsources > 1) {
        kvr_relay_snapshot_want(r, "an engine began anew");
    }
}
