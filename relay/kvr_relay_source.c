/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>


bool
kvr_relay_source_init(kvr_relay_t *r)
{
    uint32_t             i;
    kvr_relay_source_t  *s;

    r->nsources = r->options.trtllm ? 1 : r->options.events.n;
    r->sources = calloc(r->nsources, sizeof(kvr_relay_source_t));
    if (r->sources == NULL) {
        return false;
    }

    for (i = 0; i < r->nsources; i++) {
        s = &r->sources[i];
        s->index = i;
        s->nranks = r->options.trtllm ? r->options.ranks : 1;
        s->base = r->options.first_rank + i;
        s->other = s->base;
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
    uint32_t  i;

    for (i = 0; i < r->nsources; i++) {
        kvr_relay_source_unknown(&r->sources[i]);
    }
}


void
kvr_relay_source_unknown(kvr_relay_source_t *s)
{
    s->known = false;
    s->at.whole = false;
    s->seq = 0;
    s->digest = 0;
    s->sgl_epoch[0] = '\0';
    snprintf(s->reason, sizeof(s->reason), "the engine was not reached yet");
}


const char *
kvr_relay_source_endpoint(const kvr_relay_t *r, const kvr_relay_source_t *s)
{
    return kvr_relay_shown(r->options.trtllm
                           ? r->options.trtllm
                           : r->options.events.items[s->index]);
}


/* ---- messages ----------------------------------------------------------- */

uint64_t
kvr_relay_source_digest(const void *payload, size_t len)
{
    return kvr_hash_bytes(payload, len, 0);
}


bool
kvr_relay_source_ours(const kvr_relay_source_t *s, kvr_event_t *ev)
{
    if (ev->rank < s->base || ev->rank - s->base >= s->nranks) {
        return false;
    }

    ev->rank = ev->rank - s->base + s->index;

    return true;
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
kvr_relay_source_step(kvr_relay_source_t *s, kvr_relay_step_input_t input)
{
    s->at = kvr_relay_step_next(s->at, input);

    if (kvr_relay_step_sure(s->at)) {
        s->reason[0] = '\0';
    }
}


void
kvr_relay_source_lack(kvr_relay_source_t *s, kvr_relay_step_input_t input,
    const char *why)
{
    char  text[KVR_RELAY_REASON];

    snprintf(text, sizeof(text), "%s", why);

    if (kvr_relay_step_sure(s->at) || s->reason[0] == '\0') {
        kvr_relay_log(KVR_RELAY_WARN, "not complete", "rank=%u seq=%llu "
                      "why=\"%s\"", s->index, (unsigned long long) s->seq,
                      text);
    }

    kvr_relay_source_step(s, input);
    memcpy(s->reason, text, sizeof(text));
}


void
kvr_relay_source_synced(kvr_relay_t *r, kvr_relay_source_t *s)
{
    s->synced = true;
    kvr_relay_source_step(s, KVR_RELAY_STEP_ENDED);

    kvr_relay_log(KVR_RELAY_INFO, "in step", "rank=%u seq=%lld complete=%d",
                  s->index, s->known ? (long long) s->seq : -1LL,
                  kvr_relay_step_sure(s->at));

    kvr_relay_wake(r, r->now_ms);
}


bool
kvr_relay_complete(kvr_relay_t *r, char reason[KVR_RELAY_REASON])
{
    uint32_t                   i;
    const char                *why;
    const kvr_relay_source_t  *s;

    why = "";

    if (kvr_relay_mirror_lacks(&r->mirror)) {
        why = "the mirror is full: more --memory is needed";
    }

    for (i = 0; i < r->nsources && *why == '\0'; i++) {
        s = &r->sources[i];

        if (!kvr_relay_step_sure(s->at)) {
            why = *s->reason ? s->reason : "not all of it is known";

        } else if (s->at.state == KVR_RELAY_STEP_AWAY) {
            why = "the engine is not connected";

        } else if (s->at.state != KVR_RELAY_STEP_IN_STEP) {
            why = "what the engine did meanwhile is being asked for";
        }
    }

    if (reason != NULL) {
        snprintf(reason, KVR_RELAY_REASON, "%s", why);
    }

    return *why == '\0';
}
