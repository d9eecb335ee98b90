/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>


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
    free(r->sources);
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


/* ---- messages ----------------------------------------------------------- */

uint64_t
kvr_relay_source_digest(const void *payload, size_t len)
{
    return kvr_hash_bytes(payload, len, 0);
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


void
kvr_relay_source_epoch(kvr_relay_source_t *s, const kvr_relay_message_t *m)
{
    char  epoch[KVR_RELAY_SGL_EPOCH];

    if (kvr_relay_frames_epoch(m, epoch)) {
        memcpy(s->sgl_epoch, epoch, KVR_RELAY_SGL_EPOCH);
    }
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
kvr_relay_source_synced(kvr_relay_t *r, kvr_relay_source_t *s)
{
    s->synced = true;
    s->in_step = true;

    kvr_relay_log(KVR_RELAY_INFO, "in step", "rank=%u seq=%lld complete=%d",
                  s->index, s->known ? (long long) s->seq : -1LL, s->whole);

    kvr_relay_wake(r, r->now_ms);
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
