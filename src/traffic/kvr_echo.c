/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_echo.h"

#include <stdlib.h>


/*
 * A ring of echoes, in the order of their answers, and a ring of hashes.  All
 * numbers below grow without end; a place in a ring is the rest of a division.
 *
 *     first ........ at[2] ........ at[1] ........ at[0] ........ next
 *
 * The echoes from at[i] on wait for their look i.  An echo that has ended is
 * freed when all echoes before it have ended.
 */

struct kvr_echoes_s {
    uint32_t    first;
    uint32_t    at[KVR_ECHO_LOOKS];
    uint32_t    next;
    uint32_t    first_hash;
    uint32_t    next_hash;
    kvr_echo_t  echoes[KVR_ECHO_MAX];
    uint64_t    hashes[KVR_ECHO_HASHES];
};


static kvr_echo_verdict_t kvr_echo_end(kvr_echoes_t *t, kvr_echo_t *e,
    kvr_echo_verdict_t verdict);


#define kvr_echo_of(t, i)  (&(t)->echoes[(i) % KVR_ECHO_MAX])


/* When the looks are, in milliseconds after the answer began. */

static const uint64_t  kvr_echo_looks_ms[KVR_ECHO_LOOKS] = {
    1000, 2000, 4000
};


kvr_echoes_t *
kvr_echoes_create(void)
{
    return calloc(1, sizeof(kvr_echoes_t));
}


void
kvr_echoes_destroy(kvr_echoes_t *t)
{
    free(t);
}


kvr_rc_t
kvr_echoes_keep(kvr_echoes_t *t, const kvr_echo_t *e, const uint64_t *hashes)
{
    uint32_t     at, rest;
    kvr_echo_t  *kept;

    /* the hashes of an echo lie in one piece: a rest may stay unused */

    at = t->next_hash;
    rest = KVR_ECHO_HASHES - at % KVR_ECHO_HASHES;

    if (rest < e->blocks) {
        at += rest;
    }

    if (t->next - t->first == KVR_ECHO_MAX
        || at + e->blocks - t->first_hash > KVR_ECHO_HASHES)
    {
        return KVR_FULL;
    }

    memcpy(&t->hashes[at % KVR_ECHO_HASHES], hashes,
           e->blocks * sizeof(uint64_t));

    kept = kvr_echo_of(t, t->next);

    *kept = *e;
    kept->at = at;
    kept->looks = 0;
    kept->ended = false;

    t->next++;
    t->next_hash = at + e->blocks;

    return KVR_OK;
}


kvr_echo_t *
kvr_echoes_due(kvr_echoes_t *t, uint64_t now_ms, const uint64_t **hashes)
{
    uint32_t     i, end;
    kvr_echo_t  *e;

    for (i = KVR_ECHO_LOOKS; i-- > 0; /* void */ ) {

        end = i ? t->at[i - 1] : t->next;

        for ( /* void */ ; t->at[i] != end; t->at[i]++) {

            e = kvr_echo_of(t, t->at[i]);

            if (e->ended) {
                continue;
            }

            if (e->answered_ms + kvr_echo_looks_ms[i] > now_ms) {
                break;
            }

            t->at[i]++;
            *hashes = &t->hashes[e->at % KVR_ECHO_HASHES];

            return e;
        }
    }

    return NULL;
}


kvr_echo_verdict_t
kvr_echoes_look(kvr_echoes_t *t, kvr_echo_t *e, const kvr_echo_look_t *look)
{
    uint32_t  before, blocks;

    /* an engine does not store a part of its block */

    blocks = e->blocks - e->blocks % look->span;

    if (blocks == 0) {
        return kvr_echo_end(t, e, KVR_ECHO_VOID);
    }

    if (look->depth >= blocks) {
        return kvr_echo_end(t, e, KVR_ECHO_IS_FULL);
    }

    before = e->depth;
    e->depth = look->depth;

    if (look->depth < before) {
        return kvr_echo_end(t, e, KVR_ECHO_VOID);
    }

    if (e->looks + 1 < KVR_ECHO_LOOKS) {
        return kvr_echoes_skip(t, e, false);
    }

    return kvr_echo_end(t, e, look->depth > before
                              || look->heard_ms <= e->answered_ms
                              ? KVR_ECHO_VOID : KVR_ECHO_HAS_PARTED);
}


kvr_echo_verdict_t
kvr_echoes_skip(kvr_echoes_t *t, kvr_echo_t *e, bool gone)
{
    e->looks++;

    return gone || e->looks == KVR_ECHO_LOOKS
           ? kvr_echo_end(t, e, KVR_ECHO_VOID) : KVR_ECHO_AGAIN;
}


static kvr_echo_verdict_t
kvr_echo_end(kvr_echoes_t *t, kvr_echo_t *e, kvr_echo_verdict_t verdict)
{
    uint32_t  i;

    e->ended = true;

    while (t->first != t->next && kvr_echo_of(t, t->first)->ended) {
        t->first++;
        t->first_hash = t->first == t->next
                        ? t->next_hash : kvr_echo_of(t, t->first)->at;
    }

    /* no look is behind the first echo */

    for (i = 0; i < KVR_ECHO_LOOKS; i++) {
        if ((int32_t) (t->at[i] - t->first) < 0) {
            t->at[i] = t->first;
        }
    }

    return verdict;
}
