/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Nodes leave a prefix cache, and their values are told.
 */


#include "kvr_prefix_state.h"


#define KVR_PREFIX_BATCH     16         /* nodes in a transaction */
#define KVR_PREFIX_BUCKETS   1024       /* between two looks at the clock */


/* Where the telling of all values is. */
typedef struct {
    uint32_t    bucket;
    uint32_t    skip;                   /* nodes of the bucket told before */
} kvr_prefix_place_t;


bool
kvr_prefix_note(kvr_prefix_t *c, const kvr_prefix_item_t *p)
{
    if (c->nfreed + p->len > KVR_PREFIX_FREED) {
        return false;
    }

    kvr_prefix_read(c, p, 0, p->len, c->freed + c->nfreed);
    c->nfreed += p->len;

    return true;
}


void
kvr_prefix_tell(kvr_prefix_t *c, const kvr_prefix_freed_t *freed)
{
    if (c->nfreed && freed->fn) {
        freed->fn(freed->data, c->freed, c->nfreed);
    }

    c->nfreed = 0;
}


uint64_t
kvr_prefix_evict_some(kvr_prefix_t *c, uint64_t n, uint32_t except, bool tell)
{
    uint32_t                  i, node;
    uint64_t                  done;
    const kvr_prefix_item_t  *p;

    done = 0;

    do {
        for (i = 0; i < KVR_PREFIX_BATCH && done < n; i++) {

            node = kvr_prefix_victim(c, except);
            if (node == 0) {
                break;
            }

            p = kvr_prefix_at(c, node);

            if (tell && !kvr_prefix_note(c, p)) {
                break;
            }

            done += p->len;
            c->zone->stats.evicted += p->len;

            kvr_prefix_remove(c, node);
        }

        kvr_prefix_again(c);

    } while (i == KVR_PREFIX_BATCH && done < n && kvr_prefix_in_time(c));

    return done;
}


kvr_rc_t
kvr_prefix_evict(kvr_prefix_t *c, uint64_t n, uint64_t *done,
    kvr_prefix_freed_t freed)
{
    kvr_rc_t  rc;
    uint64_t  some;

    *done = 0;

    if (c->params.disabled) {
        return KVR_OK;
    }

    for (some = 1; *done < n && some; *done += some) {

        rc = kvr_prefix_enter(c);
        if (rc != KVR_OK) {
            return rc;
        }

        some = kvr_prefix_evict_some(c, n - *done, 0, freed.fn != NULL);

        kvr_prefix_exit(c);
        kvr_prefix_tell(c, &freed);
    }

    return KVR_OK;
}


kvr_rc_t
kvr_prefix_reset(kvr_prefix_t *c, kvr_prefix_freed_t freed)
{
    kvr_rc_t             rc;
    uint32_t             i;
    uint64_t             done, locks, tokens;
    kvr_prefix_owner_t  *o;

    locks = kvr_load64(&c->zone->stats.locks);
    tokens = kvr_load64(&c->zone->stats.tokens);
    i = 0;

    while (locks && i < KVR_PREFIX_OWNERS) {

        rc = kvr_prefix_enter(c);
        if (rc != KVR_OK) {
            return rc;
        }

        do {
            o = &c->owners[i];

            if (o->head) {
                kvr_prefix_release(c, o->head - 1);
                locks--;

            } else {
                i++;
            }

        } while (locks && i < KVR_PREFIX_OWNERS && kvr_prefix_in_time(c));

        kvr_prefix_exit(c);
    }

    return kvr_prefix_evict(c, tokens, &done, freed);
}


/* ---- all values --------------------------------------------------------- */

/* Notes values of one slice. */

static void
kvr_prefix_some_values(kvr_prefix_t *c, kvr_prefix_place_t *at)
{
    uint32_t                  node, skip;
    const kvr_prefix_item_t  *p;

    do {
        skip = at->skip;

        for (node = c->buckets[at->bucket]; node; node = p->chain) {
            p = kvr_prefix_at(c, node);

            if (skip) {
                skip--;
                continue;
            }

            if ((p->flags & (KVR_PREFIX_SPACE | KVR_PREFIX_STORED)) == 0
                && !kvr_prefix_note(c, p))
            {
                return;
            }

            at->skip++;
        }

        at->skip = 0;

        if (++at->bucket == c->zone->nbuckets) {
            return;
        }

    } while (at->bucket % KVR_PREFIX_BUCKETS || kvr_prefix_in_time(c));
}


kvr_rc_t
kvr_prefix_values(kvr_prefix_t *c, kvr_prefix_freed_t told)
{
    kvr_rc_t            rc;
    kvr_prefix_place_t  at;

    memset(&at, 0, sizeof(at));

    while (at.bucket < c->zone->nbuckets) {

        rc = kvr_prefix_enter(c);
        if (rc != KVR_OK) {
            return rc;
        }

        kvr_prefix_some_values(c, &at);

        kvr_prefix_exit(c);
        kvr_prefix_tell(c, &told);
    }

    return KVR_OK;
}
