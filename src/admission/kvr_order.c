/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_order.h"

#include "../core/kvr_table.h"
#include "../core/kvr_words.h"

#include <stdlib.h>


#define kvr_order_heap(o, class)                                              \
    ((o)->heaps + (size_t) (class) * kvr_order_tenants((o)->zone))


/* ---- memory ------------------------------------------------------------- */

/* Sets the parts of the memory; returns its size. */

static size_t
kvr_order_parts(kvr_order_t *o, char *memory, const kvr_order_zone_t *z)
{
    size_t    at;
    uint32_t  ntenants;

    ntenants = kvr_order_tenants(z);

    at = kvr_lines(sizeof(kvr_order_zone_t));
    o->named = (kvr_order_named_t *) (memory + at);

    at += kvr_lines(z->nnamed * sizeof(kvr_order_named_t));
    o->tenants = (kvr_order_tenant_t *) (memory + at);

    at += kvr_lines(ntenants * sizeof(kvr_order_tenant_t));
    o->heaps = (uint32_t *) (memory + at);

    return at + kvr_lines((size_t) z->nclasses * ntenants * sizeof(uint32_t));
}


size_t
kvr_order_size(const kvr_order_conf_t *conf)
{
    kvr_order_t       o;
    kvr_order_zone_t  z;

    z.nclasses = conf->nclasses;
    z.nnamed = conf->nnamed;

    return kvr_order_parts(&o, NULL, &z);
}


void
kvr_order_attach(kvr_order_t *o, void *memory, kvr_order_entry_t *entries,
    const uint8_t *states, kvr_order_came_t *came,
    const kvr_order_conf_t *conf)
{
    kvr_order_zone_t  z;

    z.nclasses = conf->nclasses;
    z.nnamed = conf->nnamed;

    o->zone = memory;
    o->entries = entries;
    o->states = states;
    o->came = came;

    (void) kvr_order_parts(o, memory, &z);
}


void
kvr_order_format(kvr_order_t *o, const kvr_order_conf_t *conf)
{
    uint32_t           i;
    kvr_order_zone_t  *z;

    z = o->zone;
    kvr_zero_words(z, kvr_order_size(conf) / 8);

    z->nclasses = conf->nclasses;
    z->nnamed = conf->nnamed;
    z->block_size = conf->block_size;
    z->nentries = conf->nentries;
    z->quantum = conf->quantum;

    for (i = 0; i < z->nclasses; i++) {
        z->classes[i].weight = conf->weights[i];
    }

    z->formatted = 1;
}


/* ---- the heap of a class: tenants that wait, by service ----------------- */

static void
kvr_order_put(kvr_order_t *o, uint32_t *heap, uint32_t place, uint32_t tenant)
{
    heap[place - 1] = tenant;
    o->tenants[tenant].place = place;
}


static double
kvr_order_service(const kvr_order_t *o, const uint32_t *heap, uint32_t place)
{
    return o->tenants[heap[place - 1]].service;
}


/* A tenant's service has changed, or it is new at the end. */

static void
kvr_order_sift(kvr_order_t *o, uint32_t tenant)
{
    double               service;
    uint32_t             n, place, child, *heap;
    kvr_order_tenant_t  *t;

    t = &o->tenants[tenant];
    place = t->place;

    if (place == 0) {
        return;
    }

    n = o->zone->classes[t->class].waiting;
    heap = kvr_order_heap(o, t->class);
    service = t->service;

    while (place > 1 && kvr_order_service(o, heap, place / 2) > service) {
        kvr_order_put(o, heap, place, heap[place / 2 - 1]);
        place /= 2;
    }

    for (child = 2 * place; child <= n; child = 2 * place) {

        if (child < n && kvr_order_service(o, heap, child + 1)
                         < kvr_order_service(o, heap, child))
        {
            child++;
        }

        if (service <= kvr_order_service(o, heap, child)) {
            break;
        }

        kvr_order_put(o, heap, place, heap[child - 1]);
        place = child;
    }

    kvr_order_put(o, heap, place, tenant);
}


static void
kvr_order_enter(kvr_order_t *o, uint32_t tenant)
{
    kvr_order_class_t  *c;

    c = &o->zone->classes[o->tenants[tenant].class];

    c->weights += o->tenants[tenant].weight;
    kvr_order_put(o, kvr_order_heap(o, o->tenants[tenant].class),
                  ++c->waiting, tenant);
    kvr_order_sift(o, tenant);
}


static void
kvr_order_exit(kvr_order_t *o, uint32_t tenant)
{
    uint32_t             last, place, *heap;
    kvr_order_class_t   *c;
    kvr_order_tenant_t  *t;

    t = &o->tenants[tenant];
    c = &o->zone->classes[t->class];
    heap = kvr_order_heap(o, t->class);
    place = t->place;

    last = heap[--c->waiting];
    c->weights = c->waiting ? c->weights - t->weight : 0;
    t->place = 0;

    if (last != tenant) {
        kvr_order_put(o, heap, place, last);
        kvr_order_sift(o, last);
    }
}


/* ---- tenants ------------------------------------------------------------ */

/* A class or a tenant that has none waiting begins where the others are, and a
 * tenant a quantum before. */

static void
kvr_order_arrive(kvr_order_t *o, kvr_order_tenant_t *t)
{
    kvr_order_class_t  *c;

    c = &o->zone->classes[t->class];

    if (c->waiting == 0) {
        c->service = kvr_max(c->service, o->zone->start);
    }

    if (t->place == 0) {
        t->service = kvr_max(t->service, c->start - o->zone->quantum);
    }
}


static void
kvr_order_add(kvr_order_t *o, uint32_t tenant, double tokens)
{
    kvr_order_class_t   *c;
    kvr_order_tenant_t  *t;

    t = &o->tenants[tenant];
    c = &o->zone->classes[t->class];

    c->service += tokens / c->weight;
    t->service += tokens / t->weight;

    kvr_order_sift(o, tenant);
}


/* Counts a request of a tenant that is served, or one less. */

static void
kvr_order_active(kvr_order_t *o, uint32_t tenant, int32_t n)
{
    kvr_order_tenant_t  *t;

    t = &o->tenants[tenant];
    t->active += (uint32_t) n;
    o->zone->classes[t->class].active += (uint32_t) n;

    if (t->named != KVR_ORDER_UNNAMED) {
        o->named[t->named].active += (uint32_t) n;
    }
}


static void
kvr_order_begin(kvr_order_t *o, uint32_t tenant, uint32_t charge)
{
    kvr_order_class_t   *c;
    kvr_order_tenant_t  *t;

    t = &o->tenants[tenant];
    c = &o->zone->classes[t->class];

    o->zone->start = kvr_max(o->zone->start, c->service);
    c->start = kvr_max(c->start, t->service);

    o->zone->granted += charge;

    kvr_order_active(o, tenant, 1);
    kvr_order_add(o, tenant, charge);
}


void
kvr_order_end(kvr_order_t *o, uint32_t tenant, uint32_t charge,
    uint64_t tokens)
{
    kvr_order_active(o, tenant, -1);
    kvr_order_add(o, tenant, (double) tokens - charge);
}


uint32_t
kvr_order_tenant(kvr_order_t *o, uint32_t class, uint64_t hash,
    uint32_t named, double weight)
{
    uint32_t             i, n, tenant;
    kvr_order_zone_t    *z;
    kvr_order_tenant_t  *t;

    z = o->zone;
    n = z->nclasses * z->nnamed;
    tenant = n + class;                 /* the shared one */

    if (named != KVR_ORDER_UNNAMED) {
        tenant = named * z->nclasses + class;

    } else {
        i = n + z->nclasses
            + (uint32_t) kvr_table_home(kvr_table_spread(hash + class),
                                        KVR_ORDER_TENANTS / KVR_ORDER_WAYS)
              * KVR_ORDER_WAYS;

        for (n = i + KVR_ORDER_WAYS; i < n; i++) {
            t = &o->tenants[i];

            if (t->hash == hash && t->class == class) {
                return i;
            }

            if (t->hash == 0
                || (t->place == 0 && t->active == 0
                    && t->service <= z->classes[t->class].start - z->quantum))
            {
                tenant = i;
            }
        }
    }

    t = &o->tenants[tenant];

    n = tenant / z->nclasses;           /* above nnamed: hashed */

    if (t->hash == 0 || n > z->nnamed || (n < z->nnamed && t->hash != hash)) {
        memset(t, 0, sizeof(kvr_order_tenant_t));
        t->hash = hash;
        t->class = class;
        t->named = named;
        t->first = KVR_ORDER_NONE;
        t->last = KVR_ORDER_NONE;
    }

    if (t->place == 0) {
        t->weight = weight;
    }

    return tenant;
}


bool
kvr_order_may(const kvr_order_t *o, uint32_t tenant)
{
    const kvr_order_named_t  *named;

    if (o->tenants[tenant].named == KVR_ORDER_UNNAMED) {
        return true;
    }

    named = &o->named[o->tenants[tenant].named];

    return named->max_active == 0 || named->active < named->max_active;
}


/* ---- entries ------------------------------------------------------------ */

/* Puts an entry into its tenant's list: as the first, or as the last. */

static void
kvr_order_link(kvr_order_t *o, uint32_t entry, bool first)
{
    kvr_order_entry_t   *e;
    kvr_order_tenant_t  *t;

    e = &o->entries[entry];
    t = &o->tenants[e->tenant];

    e->prev = first ? KVR_ORDER_NONE : t->last;
    e->next = first ? t->first : KVR_ORDER_NONE;

    *(e->prev == KVR_ORDER_NONE ? &t->first : &o->entries[e->prev].next)
        = entry;
    *(e->next == KVR_ORDER_NONE ? &t->last : &o->entries[e->next].prev)
        = entry;

    kvr_put32(&o->zone->waiting, o->zone->waiting + 1);
    t->waiting++;

    if (t->place == 0) {
        kvr_order_enter(o, e->tenant);
    }
}


void
kvr_order_leave(kvr_order_t *o, uint32_t entry)
{
    kvr_order_entry_t   *e;
    kvr_order_tenant_t  *t;

    e = &o->entries[entry];
    t = &o->tenants[e->tenant];

    *(e->prev == KVR_ORDER_NONE ? &t->first : &o->entries[e->prev].next)
        = e->next;
    *(e->next == KVR_ORDER_NONE ? &t->last : &o->entries[e->next].prev)
        = e->prev;

    kvr_put32(&o->zone->waiting, o->zone->waiting - 1);
    t->waiting--;

    if (t->first == KVR_ORDER_NONE) {
        kvr_order_exit(o, e->tenant);
    }
}


void
kvr_order_wait(kvr_order_t *o, uint32_t entry, uint32_t tenant)
{
    kvr_order_entry_t  *e;

    e = &o->entries[entry];

    e->number = ++o->zone->number;
    e->tenant = tenant;
    e->came = o->zone->granted;

    kvr_order_arrive(o, &o->tenants[tenant]);
    kvr_order_link(o, entry, false);
}


void
kvr_order_pass(kvr_order_t *o, uint32_t tenant, uint32_t charge)
{
    kvr_order_arrive(o, &o->tenants[tenant]);
    kvr_order_begin(o, tenant, charge);
}


static uint32_t
kvr_order_uncached(const kvr_order_cost_t *cost, uint32_t worker)
{
    uint32_t  i;

    for (i = 0; i < cost->nbest; i++) {
        if (cost->best[i].worker == worker) {
            return cost->best[i].uncached;
        }
    }

    return cost->elsewhere;
}


uint32_t
kvr_order_charge(const kvr_order_t *o, const kvr_order_cost_t *cost,
    uint32_t worker)
{
    uint64_t  charge;

    charge = (uint64_t) kvr_max(kvr_order_uncached(cost, worker),
                                o->zone->block_size)
             + 2 * (uint64_t) cost->output;

    return (uint32_t) kvr_min(charge, UINT32_MAX);
}


void
kvr_order_grant(kvr_order_t *o, uint32_t entry)
{
    kvr_order_entry_t   *e;
    kvr_order_tenant_t  *t;

    e = &o->entries[entry];
    t = &o->tenants[e->tenant];

    t->passed = t->first == entry ? 0 : t->passed + 1;
    kvr_order_leave(o, entry);
    kvr_order_begin(o, e->tenant, e->charge);
}


void
kvr_order_back(kvr_order_t *o, uint32_t entry)
{
    kvr_order_entry_t  *e;

    e = &o->entries[entry];

    kvr_order_end(o, e->tenant, e->charge, 0);
    kvr_order_link(o, entry, true);
}


/* ---- the choice --------------------------------------------------------- */

typedef struct {
    const kvr_order_t  *order;
    uint32_t            worker;
    uint32_t            workers;
    kvr_order_fits_pt   fits;
    void               *data;
    uint32_t            looked;
    uint32_t            patient;        /* the first entry that would wait */
    uint32_t            best;           /* an entry */
    double              part;           /* of its prompt to prefill */
    double              most;           /* the service of tenants within
                                           quantum */
} kvr_order_choice_t;


/* Does the entry wait for a better worker? */

static bool
kvr_order_patient(const kvr_order_choice_t *ch, const kvr_order_entry_t *e)
{
    double                   saved;
    const kvr_order_zone_t  *z;

    z = ch->order->zone;

    if (z->quantum == 0 || e->cost.nbest == 0) {
        return false;
    }

    saved = (double) kvr_order_uncached(&e->cost, ch->worker)
            - e->cost.best[0].uncached;

    return z->granted - e->came < ch->workers * saved / 2;
}


/* The first entries of a tenant. */

static void
kvr_order_look(kvr_order_choice_t *ch, const kvr_order_tenant_t *t)
{
    double                    part;
    uint32_t                  i, n, each;
    const kvr_order_entry_t  *e;

    each = t->passed < KVR_ORDER_PASSED ? KVR_ORDER_EACH : 1;

    for (i = t->first, n = 0;
         i != KVR_ORDER_NONE && n < each && ch->looked < KVR_ORDER_LOOK;
         i = e->next, n++)
    {
        e = &ch->order->entries[i];
        ch->looked++;

        if (!ch->fits(ch->data, e, ch->worker)) {
            continue;
        }

        if (kvr_order_patient(ch, e)) {
            if (ch->patient == KVR_ORDER_NONE) {
                ch->patient = i;
            }

            continue;
        }

        part = (double) kvr_order_uncached(&e->cost, ch->worker)
               / e->cost.prompt;

        if (ch->best == KVR_ORDER_NONE) {
            ch->most = t->service + ch->order->zone->quantum;

        } else if (part >= ch->part) {
            continue;
        }

        ch->best = i;
        ch->part = part;

        if (ch->order->zone->quantum == 0) {
            return;
        }
    }
}


/*
 * Looks at a class's tenants in their order, and leaves the heap as it is:
 * `open' has the places whose parents were looked at.
 */

static void
kvr_order_look_class(kvr_order_choice_t *ch, uint32_t class)
{
    uint32_t                   i, k, n, place;
    uint32_t                   open[KVR_ORDER_LOOK + 2];
    const uint32_t            *heap;
    const kvr_order_t         *o;
    const kvr_order_class_t   *c;
    const kvr_order_tenant_t  *t;

    o = ch->order;
    c = &o->zone->classes[class];
    heap = kvr_order_heap(o, class);

    open[0] = 1;
    n = c->waiting != 0;

    while (n != 0 && ch->looked < KVR_ORDER_LOOK) {

        for (i = 1, k = 0; i < n; i++) {
            if (kvr_order_service(o, heap, open[i])
                < kvr_order_service(o, heap, open[k]))
            {
                k = i;
            }
        }

        place = open[k];
        t = &o->tenants[heap[place - 1]];

        if (ch->best != KVR_ORDER_NONE && t->service > ch->most) {
            return;
        }

        if (kvr_order_may(o, heap[place - 1])) {
            kvr_order_look(ch, t);

            if (ch->best != KVR_ORDER_NONE && o->zone->quantum == 0) {
                return;
            }

        } else {
            ch->looked++;
        }

        open[k] = open[--n];

        for (i = 2 * place; i <= 2 * place + 1 && i <= c->waiting; i++) {
            open[n++] = i;
        }
    }
}


/* The next one in turn that can use the worker, of all that wait. */

static uint32_t
kvr_order_turn(const kvr_order_choice_t *ch, uint32_t held)
{
    uint32_t                  i, n, looked;
    kvr_order_zone_t         *z;
    const kvr_order_entry_t  *e;

    z = ch->order->zone;

    for (n = 0, looked = 0;
         n < kvr_min(z->nentries, KVR_ORDER_TURN) && looked < KVR_ORDER_LOOK;
         n++)
    {
        i = z->turn++ % z->nentries;
        e = &ch->order->entries[i];

        if (!(ch->order->states[i] & KVR_ORDER_LISTED)
            || e->pool != ch->order->pool)
        {
            continue;
        }

        looked++;

        if (!(held >> ch->order->tenants[e->tenant].class & 1)
            && kvr_order_may(ch->order, e->tenant)
            && ch->fits(ch->data, e, ch->worker))
        {
            return i;
        }
    }

    return KVR_ORDER_NONE;
}


uint32_t
kvr_order_next(kvr_order_t *o, uint32_t worker, uint32_t workers,
    uint32_t held, kvr_order_fits_pt fits, void *data)
{
    uint32_t            i, class, closed;
    kvr_order_choice_t  ch;
    kvr_order_class_t  *classes;

    closed = held;
    classes = o->zone->classes;
    ch = (kvr_order_choice_t) { o, worker, workers, fits, data, 0,
                                KVR_ORDER_NONE, KVR_ORDER_NONE, 0, 0 };

    /* the classes in their order; one that was looked at is held */

    while (ch.best == KVR_ORDER_NONE && ch.looked < KVR_ORDER_LOOK) {

        for (i = 0, class = KVR_ORDER_NONE; i < o->zone->nclasses; i++) {
            if (classes[i].waiting && !(held & 1u << i)
                && (class == KVR_ORDER_NONE
                    || classes[i].service < classes[class].service))
            {
                class = i;
            }
        }

        if (class == KVR_ORDER_NONE) {
            break;
        }

        held |= 1u << class;
        kvr_order_look_class(&ch, class);
    }

    o->zone->looked += ch.looked == KVR_ORDER_LOOK;

    if (ch.best == KVR_ORDER_NONE) {
        ch.best = ch.patient;
    }

    if (ch.best == KVR_ORDER_NONE && ch.looked < o->zone->waiting) {
        ch.best = kvr_order_turn(&ch, closed);
    }

    return ch.best;
}


/* ---- after a death ------------------------------------------------------ */

static int
kvr_order_compare(const void *a, const void *b)
{
    uint64_t  x, y;

    x = ((const kvr_order_came_t *) a)->number;
    y = ((const kvr_order_came_t *) b)->number;

    return (x > y) - (x < y);
}


/* Empties lists, heaps and numbers. */

static void
kvr_order_empty(kvr_order_t *o)
{
    uint32_t             i;
    kvr_order_zone_t    *z;
    kvr_order_tenant_t  *t;

    z = o->zone;
    kvr_put32(&z->waiting, 0);

    for (i = 0; i < z->nclasses; i++) {
        z->classes[i].waiting = 0;
        z->classes[i].weights = 0;
        z->classes[i].active = 0;
    }

    for (i = 0; i < z->nnamed; i++) {
        o->named[i].active = 0;
    }

    for (i = 0; i < kvr_order_tenants(z); i++) {
        t = &o->tenants[i];
        t->first = KVR_ORDER_NONE;
        t->last = KVR_ORDER_NONE;
        t->waiting = 0;
        t->active = 0;
        t->place = 0;
    }
}


void
kvr_order_rebuild(kvr_order_t *orders, uint32_t n, uint32_t nentries)
{
    uint8_t                   state;
    uint32_t                  i, k;
    const kvr_order_entry_t  *e;

    for (i = 0; i < n; i++) {
        if (orders[i].zone->formatted) {
            kvr_order_empty(&orders[i]);
        }
    }

    for (i = 0, k = 0; i < nentries; i++) {
        e = &orders->entries[i];
        state = __atomic_load_n(&orders->states[i], __ATOMIC_ACQUIRE);

        if (state & KVR_ORDER_LISTED) {
            orders->came[k].number = e->number;
            orders->came[k++].entry = i;

        } else if (state & KVR_ORDER_CHARGED) {
            kvr_order_active(&orders[e->pool], e->tenant, 1);
        }
    }

    qsort(orders->came, k, sizeof(kvr_order_came_t), kvr_order_compare);

    for (i = 0; i < k; i++) {
        e = &orders->entries[orders->came[i].entry];
        kvr_order_link(&orders[e->pool], orders->came[i].entry, false);
    }
}
