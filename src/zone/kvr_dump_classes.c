/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_dump_classes.h"


#define KVR_DUMP_BITS  512              /* the maximum number of handles in one
                                           event */


typedef struct {
    kvr_shard_t  *shard;
    uint32_t      worker;
    kvr_rc_t    (*put)(void *data, const kvr_event_t *ev);
    void         *data;
    kvr_rc_t      rc;

    /* of one class */
    uint32_t      view;
    kvr_event_t   ev;
    uint64_t      handles[KVR_DUMP_BITS];
} kvr_dump_classes_t;


static void kvr_dump_bit(void *data, const kvr_index_handle_t *h);
static void kvr_dump_put(kvr_dump_classes_t *d);


kvr_rc_t
kvr_dump_classes(kvr_shard_t *k, uint32_t worker, kvr_event_kind_t kind,
    kvr_rc_t (*put)(void *data, const kvr_event_t *ev), void *data)
{
    uint32_t             h, i, n;
    kvr_class_t          classes[KVR_CLASSES_MAX];
    const kvr_holder_t  *holder;
    kvr_dump_classes_t   d;

    d.shard = k;
    d.worker = worker;
    d.put = put;
    d.data = data;
    d.rc = KVR_OK;

    for (h = k->fleet.workers[worker].first_holder; h != KVR_HOLDER_NONE;
         h = holder->next)
    {
        holder = &k->fleet.holders[h];
        d.view = holder->view;

        n = d.view == KVR_VIEW_NONE
            ? 0 : kvr_index_class_get(&k->index, d.view, classes);

        for (i = 0; i < n && d.rc == KVR_OK; i++) {

            memset(&d.ev, 0, sizeof(kvr_event_t));
            d.ev.kind = kind;
            d.ev.rank = holder->rank;
            d.ev.worker = k->fleet.workers[worker].conf.id;
            d.ev.worker_len = strlen(d.ev.worker);
            d.ev.class_at = i;

            if (kind == KVR_CLASS) {
                d.ev.group_kind = classes[i].kind;
                d.ev.class_window = classes[i].window;
                d.ev.block_size = classes[i].span * k->params->block_size;
                d.rc = put(data, &d.ev);
                continue;
            }

            d.ev.handles = d.handles;
            kvr_index_each(&k->index, kvr_dump_bit, &d);

            if (d.ev.nhandles) {
                kvr_dump_put(&d);
            }
        }
    }

    return d.rc;
}


static void
kvr_dump_bit(void *data, const kvr_index_handle_t *h)
{
    bool                 shadow;
    kvr_dump_classes_t  *d;

    d = data;

    if (kvr_index_view(&d->shard->index, h->view, &shadow) != d->view
        || !shadow || (h->tiers >> d->ev.class_at & 1) == 0
        || (kvr_index_tiers(&d->shard->index, d->view, h->handle)
            & 1u << KVR_DEVICE) == 0)
    {
        return;
    }

    d->handles[d->ev.nhandles++] = h->handle;

    if (d->ev.nhandles == KVR_DUMP_BITS) {
        kvr_dump_put(d);
    }
}


static void
kvr_dump_put(kvr_dump_classes_t *d)
{
    d->ev.nadded = d->ev.nhandles;

    if (d->rc == KVR_OK) {
        d->rc = d->put(d->data, &d->ev);
    }

    d->ev.nhandles = 0;
}
