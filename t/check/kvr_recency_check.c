/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The points of the estimates against the index: each block that is held has
 * the point that it must have, and there are no others.
 */


#include "kvr_check.h"
#include "kvr_check_pieces.h"
#include "kvr_recency_check.h"

#include <stdlib.h>


typedef struct {
    kvr_shard_t  *shard;
    uint32_t      view;
    uint32_t      n;
    uint32_t      nparents;
    uint64_t     *handles;
    uint64_t     *parents;
    uint64_t      points;
} kvr_recency_seen_t;


static const char *kvr_recency_check_view(kvr_recency_seen_t *s,
    const kvr_recency_t *c, uint32_t space);
static const char *kvr_recency_check_block(kvr_recency_seen_t *s,
    const kvr_recency_t *c, uint32_t space, uint64_t handle);
static const char *kvr_recency_check_list(kvr_recency_seen_t *s,
    const kvr_recency_t *c, const kvr_recency_list_t *l, uint32_t space,
    uint64_t *n, uint64_t *extra);
static void kvr_recency_tell(void *data, const kvr_index_handle_t *h);
static uint32_t kvr_recency_children(const kvr_recency_seen_t *s,
    uint64_t handle);
static int kvr_recency_order(const void *a, const void *b);


const char *
kvr_recency_check(kvr_shard_t *k)
{
    uint32_t             h, e, i;
    uint64_t             garbage;
    const char          *why;
    kvr_estimated_t     *is;
    kvr_recency_seen_t   s;

    why = NULL;
    memset(&s, 0, sizeof(s));
    s.shard = k;

    for (h = 0; h < k->zone->fleet.nholders && why == NULL; h++) {

        is = &k->estimates[h];

        if (is->forgotten) {
            return NULL;                /* ends are missing, and may be */
        }

        for (e = 0; e < KVR_FLEET_ESTIMATES && why == NULL; e++) {

            if (is->spaces[e] == 0) {
                continue;
            }

            s.view = k->fleet.holders[h].estimate[e];

            if (s.view == KVR_VIEW_NONE) {
                return kvr_check_fail("holder %u has points and no view", h);
            }

            why = kvr_recency_check_view(&s, &is->caches[e], is->spaces[e]);
        }

        if (why == NULL && is->marked) {
            return kvr_check_fail("holder %u is marked", h);
        }
    }

    if (why) {
        return why;
    }

    garbage = 0;

    for (i = k->zone->recency.garbage; i; i = k->recency.points[i].next) {
        garbage++;
    }

    if (s.points + garbage != k->zone->recency.used) {
        return kvr_check_fail("%lu points and %lu of garbage, %u counted",
                              (unsigned long) s.points,
                              (unsigned long) garbage, k->zone->recency.used);
    }

    return NULL;
}


static const char *
kvr_recency_check_view(kvr_recency_seen_t *s, const kvr_recency_t *c,
    uint32_t space)
{
    bool         has_parent;
    uint32_t     i, held;
    uint64_t     n, extra;
    const char  *why;

    held = kvr_index_held(&s->shard->index, s->view);

    s->n = 0;
    s->nparents = 0;
    s->handles = calloc(held + 1, sizeof(uint64_t));
    s->parents = calloc(held + 1, sizeof(uint64_t));

    kvr_index_each(&s->shard->index, kvr_recency_tell, s);

    why = s->n == held ? NULL
                       : kvr_check_fail("view %u has %u handles, %u counted",
                                        s->view, s->n, held);

    for (i = 0; i < s->n && why == NULL; i++) {

        if (kvr_index_parent_handle(&s->shard->index, s->view, s->handles[i],
                                    &has_parent, &s->parents[s->nparents])
            != KVR_OK)
        {
            why = kvr_check_fail("a block of view %u is not known by its "
                                 "handle", s->view);
        }

        s->nparents += has_parent;
    }

    qsort(s->parents, s->nparents, sizeof(uint64_t), kvr_recency_order);

    n = 0;
    extra = 0;

    if (why == NULL) {
        why = kvr_recency_check_list(s, c, &c->uses, space, &n, &extra);
    }

    if (why == NULL) {
        why = kvr_recency_check_list(s, c, &c->forks, space, &n, &extra);
    }

    if (why == NULL && extra != c->extra) {
        why = kvr_check_fail("view %u: %lu extra, %lu counted", s->view,
                             (unsigned long) extra, (unsigned long) c->extra);
    }

    s->points += n;

    for (i = 0; i < s->n && why == NULL; i++) {
        why = kvr_recency_check_block(s, c, space, s->handles[i]);
        n -= kvr_recency_find(&s->shard->recency, space, s->handles[i])
             != NULL;
    }

    if (why == NULL && n) {
        why = kvr_check_fail("view %u: %lu points of blocks that it has not",
                             s->view, (unsigned long) n);
    }

    free(s->handles);
    free(s->parents);

    return why;
}


static const char *
kvr_recency_check_block(kvr_recency_seen_t *s, const kvr_recency_t *c,
    uint32_t space, uint64_t handle)
{
    bool                end;
    uint32_t            children, forks;
    const kvr_point_t  *p;

    (void) c;

    p = kvr_recency_find(&s->shard->recency, space, handle);
    children = kvr_recency_children(s, handle);
    end = p && p->flags & KVR_POINT_END;
    forks = p ? p->forks : 0;

    if (end != (children == 0)) {
        return kvr_check_fail("view %u: %u blocks hang on a block that is %s "
                              "end", s->view, children, end ? "an" : "no");
    }

    if (children && forks != children - 1) {
        return kvr_check_fail("view %u: %u blocks hang on a block with %u "
                              "forks", s->view, children, forks);
    }

    if (p && p->flags == 0 && forks == 0) {
        return kvr_check_fail("view %u: a point for nothing", s->view);
    }

    return NULL;
}


static const char *
kvr_recency_check_list(kvr_recency_seen_t *s, const kvr_recency_t *c,
    const kvr_recency_list_t *l, uint32_t space, uint64_t *n, uint64_t *extra)
{
    bool                used;
    uint32_t            i, prev, ends;
    const kvr_point_t  *p;

    prev = 0;
    ends = 0;

    for (i = l->first; i; i = p->next) {

        p = &s->shard->recency.points[i];
        used = p->flags & (KVR_POINT_END | KVR_POINT_TOUCH);

        if (p->prev != prev || p->space != space
            || used != (l == &c->uses)
            || kvr_recency_find(&s->shard->recency, space, p->handle) != p
            || (*n)++ > s->shard->zone->recency.npoints)
        {
            return kvr_check_fail("view %u: a list of points is broken",
                                  s->view);
        }

        *extra += p->extra;
        ends += p->flags & KVR_POINT_END;
        prev = i;
    }

    if (l->last != prev || (l == &c->uses && ends != c->ends)) {
        return kvr_check_fail("view %u: %u ends, %u counted", s->view, ends,
                              c->ends);
    }

    return NULL;
}


static void
kvr_recency_tell(void *data, const kvr_index_handle_t *h)
{
    kvr_recency_seen_t  *s;

    s = data;

    if (h->view == s->view
        && s->n < kvr_index_held(&s->shard->index, s->view))
    {
        s->handles[s->n++] = h->handle;
    }
}


static uint32_t
kvr_recency_children(const kvr_recency_seen_t *s, uint64_t handle)
{
    uint32_t  low, high, at, n;

    low = 0;
    high = s->nparents;

    while (low < high) {
        at = low + (high - low) / 2;

        if (s->parents[at] < handle) {
            low = at + 1;

        } else {
            high = at;
        }
    }

    for (n = 0; low + n < s->nparents && s->parents[low + n] == handle; n++) {
        /* void */
    }

    return n;
}


static int
kvr_recency_order(const void *a, const void *b)
{
    uint64_t  x, y;

    x = *(const uint64_t *) a;
    y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}
