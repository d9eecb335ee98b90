/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_STATE_VERSION  2
#define KVR_RELAY_STATE_LINE     256
#define KVR_RELAY_STATE_WHY      120    /* bytes of a reason there */


static size_t kvr_relay_state_print(char *text, size_t size,
    const kvr_relay_t *r, const kvr_relay_source_t *s);
static bool kvr_relay_state_line(kvr_relay_t *r, kvr_relay_source_t **source,
    const char *line, const char **why);
static uint64_t kvr_relay_state_endpoint(const kvr_relay_t *r,
    uint32_t place);


/*
 * Part 0 is lines: "kv-relay 2", the largest attention window, and whether the
 * mirror lacks something; then of each source
 *
 *     source place endpoint            a hash of its name, hexadecimal
 *     last seq digest whole -epoch reason
 *
 * the last one of those that have had a message, with the reason why whole is
 * 0.  The other parts are kvr_normalise_save()'s.
 */
bool
kvr_relay_state_save(kvr_relay_t *r, kvr_relay_parts_t *parts)
{
    bool       good;
    char      *text;
    size_t     size, len;
    uint32_t   i;

    size = KVR_RELAY_STATE_LINE * (1 + 2 * (size_t) r->nsources);

    text = malloc(size);
    if (text == NULL) {
        return false;
    }

    len = (size_t) sprintf(text, "kv-relay %d %u %d\n",
                           KVR_RELAY_STATE_VERSION, r->mirror.window,
                           kvr_relay_mirror_lacks(&r->mirror));

    for (i = 0; i < r->nsources; i++) {
        len += kvr_relay_state_print(text + len, size - len, r,
                                     &r->sources[i]);
    }

    good = kvr_relay_parts_add(parts, text, len) == KVR_OK;
    free(text);

    return good
           && kvr_relay_mirror_save(&r->mirror, kvr_relay_parts_add, parts)
              == KVR_OK;
}


static size_t
kvr_relay_state_print(char *text, size_t size, const kvr_relay_t *r,
    const kvr_relay_source_t *s)
{
    size_t  len;

    len = (size_t) snprintf(text, size, "source %u %llx\n", s->index,
                            (unsigned long long)
                            kvr_relay_state_endpoint(r, s->index));

    if (s->known) {
        len += (size_t) snprintf(text + len, size - len,
                                 "last %llu %llu %d -%s %.*s\n",
                                 (unsigned long long) s->seq,
                                 (unsigned long long) s->digest,
                                 kvr_relay_step_sure(s->at),
                                 s->sgl_epoch, KVR_RELAY_STATE_WHY,
                                 kvr_relay_step_sure(s->at) ? "" : s->reason);
    }

    return len;
}


bool
kvr_relay_state_load(kvr_relay_t *r, uint32_t part, const char *bytes,
    size_t len, const char **why)
{
    char                 line[KVR_RELAY_STATE_LINE];
    size_t               n;
    const char          *end;
    kvr_relay_source_t  *source;

    *why = "a part is broken";

    if (part != 0) {
        return kvr_relay_mirror_load_state(&r->mirror, bytes, len);
    }

    source = NULL;

    while (len != 0) {
        end = memchr(bytes, '\n', len);
        n = end ? (size_t) (end - bytes) : sizeof(line);

        if (n >= sizeof(line)) {
            return false;
        }

        memcpy(line, bytes, n);
        line[n] = '\0';

        bytes += n + 1;
        len -= n + 1;

        if (!kvr_relay_state_line(r, &source, line, why)) {
            return false;
        }
    }

    return true;
}


/* source: that of the lines which follow, or NULL: they are not of use. */

static bool
kvr_relay_state_line(kvr_relay_t *r, kvr_relay_source_t **source,
    const char *line, const char **why)
{
    int                  whole, lacks, reason;
    char                 epoch[KVR_RELAY_SGL_EPOCH + 1];
    uint32_t             version, window, place;
    kvr_relay_source_t  *s;
    unsigned long long   seq, digest, endpoint;

    if (sscanf(line, "kv-relay %u %u %d", &version, &window, &lacks) == 3) {

        if (version != KVR_RELAY_STATE_VERSION) {
            *why = "its state is of another version of the relay";
            return false;
        }

        kvr_relay_mirror_window(&r->mirror, window);
        r->mirror.lacking = lacks != 0;
        return true;
    }

    if (sscanf(line, "source %u %llx", &place, &endpoint) == 2) {
        *source = NULL;

        if (place >= r->nsources) {
            return true;
        }

        s = &r->sources[place];

        if (kvr_relay_state_endpoint(r, place) != endpoint) {
            kvr_relay_log(KVR_RELAY_INFO, "begins anew", "rank=%u "
                          "why=\"another endpoint was at its place\"",
                          s->index);
            kvr_relay_source_unknown(s);
            return true;
        }

        *source = s;
        return true;
    }

    if (sscanf(line, "last %llu %llu %d %64s%n", &seq, &digest, &whole, epoch,
               &reason) != 4)
    {
        return false;
    }

    s = *source;

    if (s == NULL) {
        return true;
    }

    s->known = true;
    s->seq = seq;
    s->digest = digest;
    s->at.whole = whole != 0;
    snprintf(s->sgl_epoch, sizeof(s->sgl_epoch), "%s", epoch + 1);

    if (line[reason] == ' ' && line[reason + 1] != '\0') {
        snprintf(s->reason, sizeof(s->reason), "%.*s", KVR_RELAY_REASON - 1,
                 line + reason + 1);
    }

    return true;
}


static uint64_t
kvr_relay_state_endpoint(const kvr_relay_t *r, uint32_t place)
{
    const char  *name;

    name = r->options.trtllm != NULL ? r->options.trtllm
                                     : r->options.events.items[place];

    return kvr_hash_bytes(name, strlen(name), 0);
}


/*
 * Empties ranks that belong to no source, and ranks of a source that starts
 * again.
 */

void
kvr_relay_state_loaded(kvr_relay_t *r)
{
    bool                 kept;
    uint32_t             i, holder, steps, rank;
    kvr_relay_source_t  *s;

    for (i = 0; i < r->nsources; i++) {
        s = &r->sources[i];
        s->lost = r->mirror.lacking ? UINT64_MAX : 0;

        if (s->at.whole) {
            s->reason[0] = '\0';
        }
    }

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (kvr_relay_mirror_next(&r->mirror, &holder, &steps, &rank)) {
        kept = false;

        for (i = 0; i < r->nsources; i++) {
            s = &r->sources[i];
            kept = kept || (s->known && rank >= s->index
                            && rank - s->index < s->nranks);
        }

        if (!kept) {
            kvr_relay_mirror_clear(&r->mirror, rank, NULL, NULL);
        }
    }
}
