/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_SYNC_MS     3000      /* engines are waited for before there
                                           is a base: less than routers wait */
#define KVR_RELAY_AWAY_MS     5000      /* without a connection to the engine:
                                           that is said, */
#define KVR_RELAY_WARN_MS     60000     /* and again so much later */


static uint32_t kvr_relay_source_read(kvr_relay_t *r, kvr_relay_source_t *s,
    const void *payload, size_t len);
static void kvr_relay_source_rank(kvr_relay_t *r, kvr_relay_source_t *s,
    uint32_t rank);
static void kvr_relay_source_number(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_event_t *ev);
static void kvr_relay_source_event(kvr_relay_t *r, kvr_relay_source_t *s,
    const kvr_event_t *ev);
static void kvr_relay_source_clear(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_normalise_emit_pt emit);
static void kvr_relay_source_empty(kvr_relay_t *r, kvr_relay_source_t *s);
static void kvr_relay_source_refused(kvr_relay_t *r, kvr_relay_source_t *s,
    kvr_why_t why, const char *detail);


bool
kvr_relay_source_init(kvr_relay_t *r)
{
    uint32_t  i;

    r->nsources = r->options.trtllm ? 1 : r->options.events.n;
    r->sources = calloc(r->nsources, sizeof(kvr_relay_source_t));
    if (r->sources == NULL) {
        return false;
    }

    for (i = 0; i < r->nsources; i++) {
        r->sources[i].index = i;
    }

    kvr_relay_source_forget(r);

    return true;
}


void
kvr_relay_source_free(kvr_relay_t *r)
{
    kvr_relay_source_stop(r);
    free(r->sources);
}


void
kvr_relay_source_stop(kvr_relay_t *r)
{
    uint32_t  i;

    for (i = 0; i < r->nsources; i++) {
        kvr_relay_zmq_close(r, &r->sources[i]);
    }

    kvr_relay_trtllm_close(r);
}


void
kvr_relay_source_start(kvr_relay_t *r)
{
    uint32_t  i;

    r->sync_ms = r->now_ms + KVR_RELAY_SYNC_MS;
    kvr_relay_wake(r, r->sync_ms);

    if (r->options.trtllm != NULL) {
        kvr_relay_trtllm_open(r);

    } else {
        for (i = 0; i < r->nsources; i++) {
            kvr_relay_zmq_open(r, &r->sources[i]);
        }
    }

    kvr_relay_log(KVR_RELAY_INFO, "ready", "ranks=%u listen=%s", r->nsources,
                  r->metrics.address);
}


void
kvr_relay_source_forget(kvr_relay_t *r)
{
    uint32_t             i;
    kvr_relay_source_t  *s;

    for (i = 0; i < r->nsources; i++) {
        s = &r->sources[i];

        memset(&s->ranks, 0, sizeof(kvr_relay_ranks_t));
        s->known = false;
        s->whole = false;
        s->tailed = true;
        s->seq = 0;
        s->digest = 0;
        s->sgl_epoch[0] = '\0';
        snprintf(s->reason, sizeof(s->reason), "the engine was not reached "
                 "yet");
    }
}


/* ---- connections -------------------------------------------------------- */

void
kvr_relay_source_watch(kvr_relay_t *r)
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

        if (s->connected) {
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
            text = kvr_relay_source_why(r, s);
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
kvr_relay_source_endpoint(const kvr_relay_t *r, const kvr_relay_source_t *s)
{
    return kvr_relay_shown(r->options.trtllm
                           ? r->options.trtllm
                           : r->options.events.items[s->index]);
}


const char *
kvr_relay_source_why(const kvr_relay_t *r, const kvr_relay_source_t *s)
{
    return r->options.trtllm ? kvr_relay_trtllm_why(r)
                             : kvr_relay_zmq_why(r, s);
}


/* ---- messages ----------------------------------------------------------- */

uint64_t
kvr_relay_source_digest(const void *payload, size_t len)
{
    return kvr_hash_bytes(payload, len, 0);
}


void
kvr_relay_source_message(kvr_relay_t *r, kvr_relay_source_t *s, uint64_t seq,
    const void *payload, size_t len)
{
    s->known = true;
    s->seq = seq;
    s->digest = kvr_relay_source_digest(payload, len);

    (void) kvr_relay_source_read(r, s, payload, len);
}


bool
kvr_relay_source_list(kvr_relay_t *r, kvr_relay_source_t *s,
    const void *payload, size_t len)
{
    return kvr_relay_source_read(r, s, payload, len) != 0
           && s->known;
}


/* Applies the events of a batch, has it published; returns their number. */

static uint32_t
kvr_relay_source_read(kvr_relay_t *r, kvr_relay_source_t *s,
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

    kvr_decoder_conf(d)->rank = s->index;

    if (kvr_message_open(d, payload, len, &msg, &why, &detail) != KVR_OK) {
        r->counters.messages++;
        kvr_relay_source_refused(r, s, why, detail);
        return 0;
    }

    while ((rc = kvr_decoder_next(d, &ev)) == KVR_OK) {
        n++;

        kvr_relay_source_rank(r, s, ev.rank);

        if (ev.has_event_id && r->options.trtllm != NULL) {
            kvr_relay_source_number(r, s, &ev);
        }

        kvr_relay_source_event(r, s, &ev);
    }

    if (rc != KVR_DONE) {
        kvr_relay_source_refused(r, s, KVR_WHY_SYNTAX, kvr_decoder_detail(d));
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
kvr_relay_source_rank(kvr_relay_t *r, kvr_relay_source_t *s, uint32_t rank)
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


kvr_relay_source_t *
kvr_relay_source_of(const kvr_relay_t *r, uint32_t rank)
{
    uint32_t  i;

    for (i = 0; i < r->nsources; i++) {
        if (kvr_relay_ranks_has(&r->sources[i].ranks, rank)) {
            return &r->sources[i];
        }
    }

    return NULL;
}


/*
 * An event of TensorRT-LLM: one may come in several parts.  Ranks have numbers
 * of their own, which say nothing when they are mixed.
 */

static void
kvr_relay_source_number(kvr_relay_t *r, kvr_relay_source_t *s,
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
        kvr_relay_source_restarted(r, s);
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
kvr_relay_source_event(kvr_relay_t *r, kvr_relay_source_t *s,
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
            kvr_relay_source_empty(r, s);
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

        kvr_relay_source_refused(r, s, why, detail);
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
kvr_relay_source_empty(kvr_relay_t *r, kvr_relay_source_t *s)
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
kvr_relay_source_refused(kvr_relay_t *r, kvr_relay_source_t *s, kvr_why_t why,
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


/* ---- in step or not ----------------------------------------------------- */

void
kvr_relay_source_broken(kvr_relay_t *r, kvr_relay_source_t *s,
    const char *why)
{
    if (s->whole || s->reason[0] == '\0') {
        kvr_relay_log(KVR_RELAY_WARN, "not complete", "rank=%u seq=%llu "
                      "why=\"%s\"", s->index, (unsigned long long) s->seq,
                      why);
    }

    s->whole = false;
    s->before = false;
    snprintf(s->reason, sizeof(s->reason), "%.*s", KVR_RELAY_REASON - 1, why);
}


void
kvr_relay_source_restarted(kvr_relay_t *r, kvr_relay_source_t *s)
{
    r->counters.restarts++;

    kvr_relay_log(KVR_RELAY_INFO, "engine restarted", "rank=%u seq=%llu",
                  s->index, (unsigned long long) s->seq);

    kvr_relay_source_clear(r, s, kvr_relay_publisher_event);
}


/*
 * Another engine: what it holds follows, and it has no number yet.  Where
 * somebody else has told of the same rank, that goes, too.
 */

static void
kvr_relay_source_clear(kvr_relay_t *r, kvr_relay_source_t *s,
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

    kvr_relay_source_empty(r, s);
}


void
kvr_relay_source_rebuild(kvr_relay_t *r, kvr_relay_source_t *s)
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

        kvr_relay_source_clear(r, s, kvr_relay_publisher_event);
        kvr_relay_publisher_flush(r);
        return;
    }

    if (r->publisher.state != KVR_RELAY_UNBASED) {
        r->sync_ms = r->now_ms + KVR_RELAY_SYNC_MS;
    }

    kvr_relay_source_clear(r, s, NULL);
    kvr_relay_publisher_unbase(r, true);
}


void
kvr_relay_source_rebuilt(kvr_relay_t *r, kvr_relay_source_t *s)
{
    s->rebuilding = false;

    /* what the next relay asks has to be of this engine */

    if (r->nsources > 1) {
        kvr_relay_snapshot_want(r, "an engine began anew");
    }
}


void
kvr_relay_source_synced(kvr_relay_t *r, kvr_relay_source_t *s)
{
    s->synced = true;
    s->in_step = true;

    kvr_relay_log(KVR_RELAY_INFO, "in step", "rank=%u seq=%lld complete=%d",
                  s->index, s->known ? (long long) s->seq : -1LL, s->whole);

    kvr_relay_wake(r, r->now_ms);
}


void
kvr_relay_source_tick(kvr_relay_t *r)
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
                  || r->sources[i].rebuilding;
    }

    if (waiting && r->now_ms < r->sync_ms) {
        kvr_relay_wake(r, r->sync_ms);
        return;
    }

    kvr_relay_tail_free(r);
    kvr_relay_publisher_base(r);
}


bool
kvr_relay_complete(kvr_relay_t *r, char reason[KVR_RELAY_REASON])
{
    char                       text[KVR_RELAY_REASON];
    uint32_t                   i, rank;
    const char                *why;
    kvr_relay_ranks_t          told;
    const kvr_relay_source_t  *s;

    why = "";
    memset(&told, 0, sizeof(kvr_relay_ranks_t));

    if (kvr_relay_mirror_lacks(&r->mirror)) {
        why = "the mirror is full: more --memory is needed";
    }

    for (i = 0; i < r->nsources && *why == '\0'; i++) {
        s = &r->sources[i];
        rank = kvr_relay_ranks_common(&told, &s->ranks);

        if (!s->whole) {
            why = *s->reason ? s->reason : "not all of it is known";

        } else if (rank < KVR_RANKS_MAX) {
            snprintf(text, sizeof(text), "endpoints %u and %u both say that "
                     "they are rank %u: engines of one worker need ranks of "
                     "their own, others a relay each",
                     kvr_relay_source_of(r, rank)->index + 1, s->index + 1,
                     rank);
            why = text;

        } else if (!s->connected) {
            why = "the engine is not connected";

        } else if (!s->in_step) {
            why = "what the engine did meanwhile is being asked for";
        }

        kvr_relay_ranks_join(&told, &s->ranks);
    }

    if (reason != NULL) {
        snprintf(reason, KVR_RELAY_REASON, "%s", why);
    }

    return *why == '\0';
}
