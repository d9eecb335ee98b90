/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_recency.h"
#include "../core/kvr_table.h"


#define KVR_POINT_USED  (KVR_POINT_END | KVR_POINT_TOUCH)


static void kvr_recency_grow(kvr_recency_table_t *t, kvr_recency_t *c,
    uint32_t space, uint64_t handle);
static void kvr_recency_flags(kvr_recency_table_t *t, kvr_recency_t *c,
    kvr_point_t *p, uint32_t flags);
static void kvr_recency_drop(kvr_recency_table_t *t, kvr_recency_t *c,
    kvr_point_t *p);


#define kvr_recency_number(t, p)  ((uint32_t) ((p) - (t)->points))


void
kvr_recency_format(kvr_mem_t *mem, kvr_recency_zone_t *z, uint64_t at,
    uint64_t size, const uint64_t secret[2])
{
    uint64_t  n;

    memset(z, 0, sizeof(kvr_recency_zone_t));

    n = size / (sizeof(kvr_point_t) + sizeof(uint32_t));

    z->points = at;
    z->buckets = at + n * sizeof(kvr_point_t);
    z->npoints = (uint32_t) n;
    z->bump = 1;
    z->secret[0] = secret[0];
    z->secret[1] = secret[1];

    memset(mem->base + z->buckets, 0, n * sizeof(uint32_t));
}


void
kvr_recency_attach(kvr_recency_table_t *t, kvr_mem_t *mem,
    kvr_recency_zone_t *z)
{
    t->mem = mem;
    t->zone = z;
    t->points = (kvr_point_t *) (mem->base + z->points);
    t->buckets = (uint32_t *) (mem->base + z->buckets);
}


bool
kvr_recency_valid(const kvr_recency_zone_t *z, uint64_t size)
{
    return z->points < size && z->points % 8 == 0
           && z->npoints > 2
           && z->npoints <= (size - z->points)
                            / (sizeof(kvr_point_t) + sizeof(uint32_t))
           && z->buckets == z->points + z->npoints * sizeof(kvr_point_t)
           && z->bump <= z->npoints && z->used < z->npoints
           && z->free < z->npoints && z->garbage < z->npoints;
}


/* ---- the table ---------------------------------------------------------- */

static uint32_t *
kvr_recency_bucket(const kvr_recency_table_t *t, uint32_t space,
    uint64_t handle)
{
    uint64_t  mixed;

    mixed = kvr_table_mix(kvr_table_spread(handle ^ t->zone->secret[0]),
                          t->zone->secret[1]
                          + space * UINT64_C(0x9e3779b97f4a7c15));

    return &t->buckets[kvr_table_home(mixed, t->zone->npoints)];
}


kvr_point_t *
kvr_recency_find(const kvr_recency_table_t *t, uint32_t space,
    uint64_t handle)
{
    uint32_t      i;
    kvr_point_t  *p;

    for (i = *kvr_recency_bucket(t, space, handle); i; i = p->chain) {

        p = &t->points[i];

        if (p->handle == handle && p->space == space) {
            return p;
        }
    }

    return NULL;
}


static void
kvr_recency_hang(kvr_recency_table_t *t, kvr_point_t *p, uint64_t handle)
{
    uint32_t  *bucket;

    bucket = kvr_recency_bucket(t, p->space, handle);

    kvr_set64(t->mem, &p->handle, handle);
    kvr_set32(t->mem, &p->chain, *bucket);
    kvr_set32(t->mem, bucket, kvr_recency_number(t, p));
}


static void
kvr_recency_unhang(kvr_recency_table_t *t, kvr_point_t *p)
{
    uint32_t  *at;

    for (at = kvr_recency_bucket(t, p->space, p->handle);
         *at != kvr_recency_number(t, p);
         at = &t->points[*at].chain)
    {
        if (*at == 0) {
            kvr_txn_damaged("a point is not in its bucket");
        }
    }

    kvr_set32(t->mem, at, p->chain);
}


/* A point that is in no list; the table must have room. */

static kvr_point_t *
kvr_recency_new(kvr_recency_table_t *t, uint32_t space, uint64_t handle)
{
    uint32_t             i;
    kvr_point_t         *p;
    kvr_recency_zone_t  *z;

    z = t->zone;
    i = z->free;

    if (i == 0) {
        i = z->bump;

        if (i == z->npoints) {
            kvr_txn_damaged("the table of points is full");
        }

        kvr_set32(t->mem, &z->bump, i + 1);

    } else {
        kvr_set32(t->mem, &z->free, t->points[i].next);
    }

    p = &t->points[i];

    kvr_set32(t->mem, &z->used, z->used + 1);
    kvr_set32(t->mem, &p->space, space);
    kvr_set32(t->mem, &p->tick, 0);
    kvr_set32(t->mem, &p->busy, 0);
    kvr_set32(t->mem, &p->forks, 0);
    kvr_set32(t->mem, &p->extra, 0);
    kvr_set32(t->mem, &p->flags, 0);
    kvr_recency_hang(t, p, handle);

    return p;
}


static void
kvr_recency_delete(kvr_recency_table_t *t, kvr_point_t *p)
{
    kvr_recency_unhang(t, p);

    kvr_set32(t->mem, &p->next, t->zone->free);
    kvr_set32(t->mem, &t->zone->free, kvr_recency_number(t, p));
    kvr_set32(t->mem, &t->zone->used, t->zone->used - 1);
}


uint32_t
kvr_recency_space(kvr_recency_table_t *t)
{
    uint32_t  space;

    space = t->zone->spaces + 1;

    kvr_set32(t->mem, &t->zone->spaces, space ? space : 1);

    return t->zone->spaces;
}


bool
kvr_recency_sweep(kvr_recency_table_t *t)
{
    uint32_t      i;
    kvr_point_t  *p;

    for (i = 0; i < KVR_RECENCY_SWEEP && t->zone->garbage; i++) {
        p = &t->points[t->zone->garbage];

        kvr_set32(t->mem, &t->zone->garbage, p->next);
        kvr_recency_delete(t, p);
    }

    return t->zone->garbage != 0;
}


/* ---- lists -------------------------------------------------------------- */

static kvr_recency_list_t *
kvr_recency_list(kvr_recency_t *c, const kvr_point_t *p)
{
    return p->flags & KVR_POINT_USED ? &c->uses : &c->forks;
}


static void
kvr_recency_append(kvr_recency_table_t *t, kvr_recency_list_t *l,
    kvr_point_t *p)
{
    uint32_t  number;

    number = kvr_recency_number(t, p);

    kvr_set32(t->mem, &p->prev, l->last);
    kvr_set32(t->mem, &p->next, 0);
    kvr_set32(t->mem, l->last ? &t->points[l->last].next : &l->first, number);
    kvr_set32(t->mem, &l->last, number);
}


static void
kvr_recency_take(kvr_recency_table_t *t, kvr_recency_list_t *l,
    kvr_point_t *p)
{
    kvr_set32(t->mem, p->prev ? &t->points[p->prev].next : &l->first, p->next);
    kvr_set32(t->mem, p->next ? &t->points[p->next].prev : &l->last, p->prev);
}


kvr_point_t *
kvr_recency_oldest(const kvr_recency_table_t *t, const kvr_recency_t *c)
{
    return c->uses.first ? &t->points[c->uses.first] : NULL;
}


void
kvr_recency_renew(kvr_recency_table_t *t, kvr_recency_t *c, kvr_point_t *p)
{
    kvr_recency_take(t, kvr_recency_list(c, p), p);
    kvr_recency_append(t, &c->uses, p);
}


/* ---- uses --------------------------------------------------------------- */

void
kvr_recency_use(kvr_recency_table_t *t, kvr_recency_t *c, uint32_t space,
    const uint64_t *handles, uint32_t m, uint32_t n, uint32_t tick,
    uint32_t busy, bool text)
{
    uint32_t      i;
    uint64_t      end;
    kvr_point_t  *p;

    end = handles[n - 1];

    if (m < n) {

        if (m) {
            kvr_recency_grow(t, c, space, handles[m - 1]);
        }

        /* blocks that the index forgot can have left points behind */

        for (i = m; i < n; i++) {
            p = kvr_recency_find(t, space, handles[i]);

            if (p) {
                kvr_recency_drop(t, c, p);
            }
        }

        if (text) {
            kvr_set32(t->mem, &c->text, c->text + n - m);
        }
    }

    p = kvr_recency_find(t, space, end);

    if (p == NULL) {
        p = kvr_recency_new(t, space, end);

    } else {
        kvr_recency_take(t, kvr_recency_list(c, p), p);
    }

    if (m < n) {
        kvr_recency_flags(t, c, p,
                          KVR_POINT_END | (text ? KVR_POINT_TEXT : 0));

    } else if ((p->flags & KVR_POINT_END) == 0) {
        kvr_recency_flags(t, c, p, KVR_POINT_TOUCH);
    }

    kvr_set32(t->mem, &p->tick, tick);
    kvr_set32(t->mem, &p->busy, busy);
    kvr_recency_append(t, &c->uses, p);
}


/* One more block hangs on a block that is held. */

static void
kvr_recency_grow(kvr_recency_table_t *t, kvr_recency_t *c, uint32_t space,
    uint64_t handle)
{
    kvr_point_t  *p;

    p = kvr_recency_find(t, space, handle);

    if (p) {
        (void) kvr_recency_take_extra(t, c, p, p->extra);

        if (p->flags & KVR_POINT_END) {
            kvr_recency_drop(t, c, p);
            return;
        }

    } else {
        p = kvr_recency_new(t, space, handle);
        kvr_recency_append(t, &c->forks, p);
    }

    kvr_set32(t->mem, &p->forks, p->forks + 1);
}


void
kvr_recency_extra(kvr_recency_table_t *t, kvr_recency_t *c, uint32_t space,
    uint64_t handle, uint32_t extra)
{
    kvr_point_t  *p;

    p = kvr_recency_find(t, space, handle);

    if (p && p->flags & KVR_POINT_USED) {
        kvr_set64(t->mem, &c->extra, c->extra - p->extra + extra);
        kvr_set32(t->mem, &p->extra, extra);
    }
}


uint32_t
kvr_recency_take_extra(kvr_recency_table_t *t, kvr_recency_t *c,
    kvr_point_t *p, uint32_t n)
{
    n = kvr_min(n, p->extra);

    if (n) {
        kvr_set64(t->mem, &c->extra, c->extra - n);
        kvr_set32(t->mem, &p->extra, p->extra - n);
    }

    return n;
}


/* Changes a point's flags and counts the ends; the lists stay. */

static void
kvr_recency_flags(kvr_recency_table_t *t, kvr_recency_t *c, kvr_point_t *p,
    uint32_t flags)
{
    kvr_set32(t->mem, &c->ends, c->ends - (p->flags & KVR_POINT_END)
                                + (flags & KVR_POINT_END));
    kvr_set32(t->mem, &p->flags, flags);
}


/* ---- evictions ---------------------------------------------------------- */

void
kvr_recency_shorten(kvr_recency_table_t *t, kvr_recency_t *c, kvr_point_t *p,
    uint32_t n, bool has_parent, uint64_t parent)
{
    uint32_t      text;
    kvr_point_t  *up;

    text = p->flags & KVR_POINT_TEXT;

    if (text) {
        kvr_set32(t->mem, &c->text, c->text - kvr_min(c->text, n));
    }

    if (!has_parent) {
        kvr_recency_drop(t, c, p);
        return;
    }

    up = kvr_recency_find(t, p->space, parent);

    if (up == NULL) {
        /* the parent is the end now: in the same place, used at the same time
           */
        kvr_recency_unhang(t, p);
        kvr_recency_hang(t, p, parent);
        return;
    }

    kvr_recency_drop(t, c, p);

    if (up->forks) {
        kvr_set32(t->mem, &up->forks, up->forks - 1);

        if (up->forks == 0 && (up->flags & KVR_POINT_USED) == 0) {
            kvr_recency_drop(t, c, up);
        }

    } else {
        kvr_recency_flags(t, c, up, KVR_POINT_END | text);
    }
}


void
kvr_recency_forget(kvr_recency_table_t *t, kvr_recency_t *c, kvr_point_t *p)
{
    if (p->forks == 0) {
        kvr_recency_drop(t, c, p);
        return;
    }

    (void) kvr_recency_take_extra(t, c, p, p->extra);
    kvr_recency_take(t, &c->uses, p);
    kvr_recency_flags(t, c, p, 0);
    kvr_recency_append(t, &c->forks, p);
}


static void
kvr_recency_drop(kvr_recency_table_t *t, kvr_recency_t *c, kvr_point_t *p)
{
    (void) kvr_recency_take_extra(t, c, p, p->extra);
    kvr_recency_take(t, kvr_recency_list(c, p), p);
    kvr_recency_flags(t, c, p, 0);
    kvr_recency_delete(t, p);
}


void
kvr_recency_clear(kvr_recency_table_t *t, kvr_recency_t *c)
{
    uint32_t             i;
    kvr_recency_list_t  *lists[2] = { &c->uses, &c->forks };

    for (i = 0; i < 2; i++) {

        if (lists[i]->first) {
            kvr_set32(t->mem, &t->points[lists[i]->last].next,
                      t->zone->garbage);
            kvr_set32(t->mem, &t->zone->garbage, lists[i]->first);
            kvr_set32(t->mem, &lists[i]->first, 0);
            kvr_set32(t->mem, &lists[i]->last, 0);
        }
    }

    kvr_set32(t->mem, &c->ends, 0);
    kvr_set32(t->mem, &c->text, 0);
    kvr_set64(t->mem, &c->extra, 0);
}
