/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_STATE_LINE   256
#define KVR_RELAY_STATE_RANKS  32       /* bytes of a line of ranks */
#define KVR_RELAY_STATE_WHY    120      /* bytes of a reason there */


typedef struct {
    kvr_relay_source_t  *source;        /* that the lines are of, or NULL */
    kvr_relay_ranks_t    gone;          /* ranks of those that are not here */
    kvr_relay_ranks_t    moved;         /* places whose endpoint was at another
                                           one */
} kvr_relay_state_loading_t;


typedef bool (*kvr_relay_state_line_pt)(kvr_relay_t *r,
    kvr_relay_state_loading_t *loading, const char *line);


static size_t kvr_relay_state_print(char *text, size_t size,
    const kvr_relay_t *r, const kvr_relay_source_t *s);
static kvr_rc_t kvr_relay_state_put(void *data, const void *part, size_t len);
static bool kvr_relay_state_lines(kvr_relay_t *r,
    kvr_relay_state_loading_t *loading, const char *bytes, size_t len,
    kvr_relay_state_line_pt read);
static bool kvr_relay_state_place(kvr_relay_t *r,
    kvr_relay_state_loading_t *loading, const char *line);
static bool kvr_relay_state_line(kvr_relay_t *r,
    kvr_relay_state_loading_t *loading, const char *line);
static bool kvr_relay_state_heir(const kvr_relay_t *r,
    const kvr_relay_state_loading_t *loading, uint32_t place,
    uint64_t endpoint);
static uint64_t kvr_relay_state_endpoint(const kvr_relay_t *r,
    uint32_t place);


/*
 * Part 0 is lines: "kv-relay 1", the largest attention window, and whether the
 * mirror lacks something; then of each source
 *
 *     source place endpoint            a hash of its name, hexadecimal
 *     ranks word bits                  hexadecimal; those that have some
 *     last seq digest whole -epoch reason
 *
 * the last one of those that have had a message, whole being 2 since a clear,
 * and the reason why it is 0.  The other parts are kvr_normalise_save()'s.
 */
bool
kvr_relay_state_save(kvr_relay_t *r, kvr_relay_parts_t *parts)
{
    bool       good;
    char      *text;
    size_t     size, len;
    uint32_t   i;

    size = KVR_RELAY_STATE_LINE
           + (size_t) r->nsources * (2 * KVR_RELAY_STATE_LINE
                                     + KVR_RELAY_RANKS_WORDS
                                       * KVR_RELAY_STATE_RANKS);

    text = malloc(size);
    if (text == NULL) {
        return false;
    }

    len = (size_t) sprintf(text, "kv-relay 1 %u %d\n", r->mirror.window,
                           kvr_relay_mirror_lacks(&r->mirror));

    for (i = 0; i < r->nsources; i++) {
        len += kvr_relay_state_print(text + len, size - len, r,
                                     &r->sources[i]);
    }

    good = kvr_relay_parts_add(parts, text, len);
    free(text);

    return good
           && kvr_relay_mirror_save(&r->mirror, kvr_relay_state_put, parts)
              == KVR_OK;
}


static size_t
kvr_relay_state_print(char *text, size_t size, const kvr_relay_t *r,
    const kvr_relay_source_t *s)
{
    size_t    len;
    uint32_t  i;

    len = (size_t) snprintf(text, size, "source %u %llx\n", s->index,
                            (unsigned long long)
                            kvr_relay_state_endpoint(r, s->index));

    for (i = 0; i < KVR_RELAY_RANKS_WORDS; i++) {

        if (s->ranks.words[i]) {
            len += (size_t) snprintf(text + len, size - len, "ranks %u %llx\n",
                                     i, (unsigned long long)
                                     s->ranks.words[i]);
        }
    }

    if (s->known) {
        len += (size_t) snprintf(text + len, size - len,
                                 "last %llu %llu %d -%s %.*s\n",
                                 (unsigned long long) s->seq,
                                 (unsigned long long) s->digest,
                                 s->whole ? 1 + s->by_clear : 0, s->sgl_epoch,
                                 KVR_RELAY_STATE_WHY,
                                 s->whole ? "" : s->reason);
    }

    return len;
}


static kvr_rc_t
kvr_relay_state_put(void *data, const void *part, size_t len)
{
    return kvr_relay_parts_add(data, part, len) ? KVR_OK : KVR_ERROR;
}


bool
kvr_relay_state_load(kvr_relay_t *r, uint32_t part, const char *bytes,
    size_t len)
{
    uint32_t                    i;
    kvr_relay_source_t         *s;
    kvr_relay_state_loading_t   loading;

    if (part != 0) {
        return kvr_relay_mirror_load_state(&r->mirror, bytes, len);
    }

    memset(&loading, 0, sizeof(kvr_relay_state_loading_t));

    if (!kvr_relay_state_lines(r, &loading, bytes, len, kvr_relay_state_place)
        || !kvr_relay_state_lines(r, &loading, bytes, len,
                                  kvr_relay_state_line))
    {
        return false;
    }

    /* where one that is gone has told of the same rank, nothing is sure */

    for (i = 0; i < r->nsources; i++) {
        s = &r->sources[i];

        if (kvr_relay_ranks_common(&s->ranks, &loading.gone)
            != KVR_RANKS_MAX)
        {
            s->known = false;
            s->whole = false;
        }
    }

    return true;
}


static bool
kvr_relay_state_lines(kvr_relay_t *r, kvr_relay_state_loading_t *loading,
    const char *bytes, size_t len, kvr_relay_state_line_pt read)
{
    char    line[KVR_RELAY_STATE_LINE];
    size_t  n;

    while (len != 0) {
        n = 0;

        while (n < len && bytes[n] != '\n') {
            n++;
        }

        if (n == len || n >= sizeof(line)) {
            return false;
        }

        memcpy(line, bytes, n);
        line[n] = '\0';

        bytes += n + 1;
        len -= n + 1;

        if (!read(r, loading, line)) {
            return false;
        }
    }

    return true;
}


/* Where the endpoints were is known before any of them is believed. */

static bool
kvr_relay_state_place(kvr_relay_t *r, kvr_relay_state_loading_t *loading,
    const char *line)
{
    uint32_t            i, place;
    unsigned long long  endpoint;

    if (sscanf(line, "source %u %llx", &place, &endpoint) == 2) {

        for (i = 0; i < r->nsources; i++) {

            if (i != place && kvr_relay_state_endpoint(r, i) == endpoint) {
                kvr_relay_ranks_add(&loading->moved, i);
            }
        }
    }

    return true;
}


static bool
kvr_relay_state_line(kvr_relay_t *r, kvr_relay_state_loading_t *loading,
    const char *line)
{
    int                  whole, lacks, why;
    char                 epoch[KVR_RELAY_SGL_EPOCH + 1];
    uint32_t             window, place, word;
    kvr_relay_ranks_t   *ranks;
    kvr_relay_source_t  *s;
    unsigned long long   seq, digest, endpoint, bits;

    s = loading->source;

    if (sscanf(line, "kv-relay 1 %u %d", &window, &lacks) == 2) {
        kvr_relay_mirror_window(&r->mirror, window);
        r->mirror.lacking = lacks != 0;
        return true;
    }

    if (sscanf(line, "source %u %llx", &place, &endpoint) == 2) {
        loading->source = NULL;

        if (kvr_relay_state_heir(r, loading, place, endpoint)) {
            loading->source = &r->sources[place];
            loading->source->tailed = false;
        }

        return true;
    }

    if (sscanf(line, "ranks %u %llx", &word, &bits) == 2) {

        if (word >= KVR_RELAY_RANKS_WORDS) {
            return false;
        }

        ranks = s != NULL ? &s->ranks : &loading->gone;
        ranks->words[word] |= bits;
        return true;
    }

    if (sscanf(line, "last %llu %llu %d %64s%n", &seq, &digest, &whole, epoch,
               &why) != 4)
    {
        return false;
    }

    if (s == NULL) {
        return true;
    }

    s->known = true;
    s->seq = seq;
    s->digest = digest;
    s->whole = whole != 0;
    s->by_clear = whole == 2;
    snprintf(s->sgl_epoch, sizeof(s->sgl_epoch), "%s", epoch + 1);

    if (line[why] == ' ' && line[why + 1] != '\0') {
        snprintf(s->reason, sizeof(s->reason), "%.*s", KVR_RELAY_REASON - 1,
                 line + why + 1);
    }

    return true;
}


/*
 * Is what was kept of that endpoint to be believed here?  One that has another
 * name may be the same; one that is at another place now is not, nor is it
 * where one is now that was at another place.
 */
static bool
kvr_relay_state_heir(const kvr_relay_t *r,
    const kvr_relay_state_loading_t *loading, uint32_t place,
    uint64_t endpoint)
{
    uint32_t  i;

    if (place >= r->nsources) {
        return false;
    }

    if (kvr_relay_state_endpoint(r, place) == endpoint) {
        return true;
    }

    if (kvr_relay_ranks_has(&loading->moved, place)) {
        return false;
    }

    for (i = 0; i < r->nsources; i++) {
        if (kvr_relay_state_endpoint(r, i) == endpoint) {
            return false;
        }
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


void
kvr_relay_state_loaded(kvr_relay_t *r)
{
    uint32_t            i;
    kvr_relay_ranks_t   told;

    memset(&told, 0, sizeof(kvr_relay_ranks_t));

    for (i = 0; i < r->nsources; i++) {
        kvr_relay_ranks_join(&told, &r->sources[i].ranks);

        r->sources[i].lost = r->mirror.lacking ? UINT64_MAX : 0;

        if (r->sources[i].whole) {
            r->sources[i].reason[0] = '\0';
        }
    }

    kvr_relay_mirror_keep(&r->mirror, &told);
}
