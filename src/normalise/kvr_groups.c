/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What of an engine's events is not indexed, and is remembered to be so.
 */


#include "kvr_normalise_op.h"


static kvr_group_kind_t kvr_groups_kind(kvr_normalise_op_t *op,
    const kvr_event_t *ev);


kvr_why_t
kvr_groups_filter(kvr_normalise_op_t *op, const kvr_event_t *ev)
{
    kvr_group_kind_t  kind;

    if (ev->kind >= KVR_CLEAR || ev->nlocals) {
        return ev->verdict == KVR_FILTERED ? ev->why : KVR_WHY_NONE;
    }

    kind = kvr_groups_kind(op, ev);

    if (ev->verdict == KVR_FILTERED && ev->why != KVR_WHY_GROUP) {
        return ev->why;
    }

    if (op->group) {
        return KVR_WHY_NONE;
    }

    if (kind == KVR_GROUP_INDEXED) {
        /* if some blocks of an event are kept, the event is indexed */
        return ev->nfiltered
               && kvr_why_class(ev->otherwise) == KVR_WHY_IS_FILTERED
               ? KVR_WHY_NONE : ev->otherwise;
    }

    kvr_fleet_set_flags(&op->k->fleet, op->worker, KVR_WORKER_HYBRID, 0);

    return KVR_WHY_GROUP;
}


/* Finds the kind of the event's group, from this event or an earlier one. */

static kvr_group_kind_t
kvr_groups_kind(kvr_normalise_op_t *op, const kvr_event_t *ev)
{
    bool                     fresh;
    uint32_t                 i;
    kvr_normalise_holder_t  *h;

    h = op->h;

    if (ev->group_kind == KVR_GROUP_UNSAID) {

        i = kvr_groups_find(h, ev->group);

        if (i < h->ngroups) {
            op->group = h->groups[i].owner ? &h->groups[i] : NULL;
            return h->groups[i].kind;
        }

        /*
         * Another process may have indexed this block before the takeover:
         * remove the block, even if it was filtered.
         */

        return ev->group == 0 || ev->kind == KVR_REMOVE ? KVR_GROUP_INDEXED
                                                        : KVR_GROUP_OTHER;
    }

    i = kvr_groups_find(h, ev->group);

    if (i < h->ngroups && h->groups[i].kind != ev->group_kind) {
        kvr_fleet_set_flags(&op->k->fleet, op->worker, KVR_WORKER_HYBRID, 0);
    }

    i = kvr_groups_learn(h, ev->group, ev->group_kind,
                         ev->verdict == KVR_KEEP
                         || kvr_group_has_rule(ev->group_kind)
                         ? ev->block_size : 0, &fresh);

    if (i == KVR_NORMALISE_GROUPS) {
        op->e->blocks.unremembered++;

        if (ev->group_kind != KVR_GROUP_INDEXED) {
            kvr_fleet_set_flags(&op->k->fleet, op->worker, KVR_WORKER_HYBRID,
                                0);
        }

        return ev->group_kind;
    }

    if (fresh && op->e->groups) {
        h->groups[i].window = ev->group_window;
        kvr_class_join(op);
    }

    op->group = h->groups[i].owner ? &h->groups[i] : NULL;

    return ev->group_kind;
}


uint32_t
kvr_groups_find(const kvr_normalise_holder_t *h, uint32_t group)
{
    uint32_t  i;

    for (i = 0; i < h->ngroups && h->groups[i].group != group; i++) {
        /* void */
    }

    return i;
}


uint32_t
kvr_groups_learn(kvr_normalise_holder_t *h, uint32_t group, uint8_t kind,
    uint32_t size, bool *fresh)
{
    uint32_t                i;
    kvr_normalise_group_t  *g;

    i = kvr_groups_find(h, group);
    *fresh = i == h->ngroups;

    if (i == KVR_NORMALISE_GROUPS) {
        return i;
    }

    g = &h->groups[i];

    if (*fresh) {
        memset(g, 0, sizeof(kvr_normalise_group_t));
        h->ngroups++;
        g->group = group;
    }

    /* a group with a class keeps its kind: its blocks were indexed by that */

    if (g->owner == 0) {
        g->kind = kind;
    }

    g->size = kvr_max(g->size, size);

    return i;
}


bool
kvr_groups_partial(const kvr_normalise_op_t *op, const kvr_event_t *ev)
{
    uint32_t  i;

    i = kvr_groups_find(op->h, ev->group);

    return ev->ntokens && i < op->h->ngroups
           && ev->block_size < op->h->groups[i].size;
}


void
kvr_groups_not_indexed(kvr_normalise_op_t *op, const uint64_t *handles,
    uint32_t n, kvr_why_t why)
{
    uint32_t            i;
    kvr_known_block_t  *b;

    for (i = 0; i < n; i++) {

        b = kvr_normalise_find(op, handles[i]);

        if (b == NULL) {
            b = kvr_normalise_add(op, handles[i], KVR_KNOWN_FILTERED);

        } else if (b->state == KVR_KNOWN_FILTERED) {
            kvr_known_move(&op->e->blocks, &op->h->live, b,
                           KVR_KNOWN_FILTERED);
        }

        if (b) {
            b->not_indexed = 1;
            b->why = (uint8_t) why;
        }
    }
}
