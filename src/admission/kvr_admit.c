/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_admit.h"

#include "../core/kvr_clock.h"
#include "../core/kvr_words.h"


#define KVR_ADMIT_LONG_US  20
#define KVR_ADMIT_MET      64           /* processes that a sweep knows */
#define KVR_ADMIT_NOBODY   1            /* an owner that is always dead */


/* ---- memory ------------------------------------------------------------- */

/* Sets the parts of the memory; returns its size. */

static size_t
kvr_admit_parts(kvr_admit_t *q, char *memory, const kvr_admit_zone_t *z)
{
    char              *at;
    uint32_t           i;
    kvr_order_came_t  *came;

    at = memory + kvr_lines(sizeof(kvr_admit_zone_t));
    q->rows = (kvr_admit_row_t *) at;

    at += kvr_lines(z->nholders * sizeof(kvr_admit_row_t));
    q->entries = (kvr_order_entry_t *) at;

    at += z->nentries * sizeof(kvr_order_entry_t);
    came = (kvr_order_came_t *) at;

    at += z->nentries * sizeof(kvr_order_came_t);
    q->states = (uint8_t *) at;

    at += z->nentries;

    for (i = 0; i < KVR_ADMIT_POOLS; i++) {
        kvr_order_attach(&q->orders[i], at, q->entries, q->states, came,
                         &z->order);
        q->orders[i].pool = i;
        at += kvr_order_size(&z->order);
    }

    return (size_t) (at - memory);
}


size_t
kvr_admit_format(void *memory, uint32_t limit, uint32_t nholders,
    uint32_t block_size, double quantum)
{
    kvr_admit_t       q;
    kvr_admit_zone_t  z;

    memset(&z, 0, sizeof(z));

    z.limit = limit;
    z.nentries = (limit + KVR_ADMIT_SPARE + 63) / 64 * 64;
    z.nholders = nholders;
    z.order.nclasses = KVR_ORDER_CLASSES;
    z.order.nnamed = KVR_RULES_TENANTS;
    z.order.block_size = block_size;
    z.order.nentries = z.nentries;
    z.order.quantum = quantum;

    if (memory) {
        memcpy(memory, &z, sizeof(z));
    }

    return limit ? kvr_admit_parts(&q, NULL, &z) : 0;
}


void
kvr_admit_attach(kvr_admit_t *q, void *memory)
{
    memset(q, 0, sizeof(kvr_admit_t));

    q->zone = memory;
    (void) kvr_admit_parts(q, memory, q->zone);
}


static bool
kvr_admit_swap(uint64_t *word, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(word, &from, to, false,
                                       __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}


/* ---- the states of entries ---------------------------------------------- */

uint32_t
kvr_admit_next(uint32_t state, kvr_admit_event_t event)
{
    if (event == KVR_ADMIT_LEAVE) {
        return state == KVR_ADMIT_FREE || (state & KVR_ADMIT_GOING)
               ? KVR_ADMIT_NONE : state | KVR_ADMIT_LEAVE;
    }

    return state == event >> 8 ? event & 0xff : KVR_ADMIT_NONE;
}


static bool
kvr_admit_step(kvr_admit_t *q, uint32_t entry, kvr_admit_event_t event)
{
    uint8_t   from;
    uint32_t  to;

    from = (uint8_t) kvr_admit_state(q, entry);

    do {
        to = kvr_admit_next(from, event);

        if (to == KVR_ADMIT_NONE) {
            return false;
        }

    } while (!__atomic_compare_exchange_n(&q->states[entry], &from, to, false,
                                          __ATOMIC_SEQ_CST,
                                          __ATOMIC_ACQUIRE));

    return true;
}


/*
 * If a process dies or stops before it wrote the owner, sweeps make that
 * nobody and then free the entry: so the state must still be the same.
 */

uint32_t
kvr_admit_claim(kvr_admit_t *q)
{
    uint32_t  i, n;

    for (n = 0; n < q->zone->nentries; n++) {
        i = q->next++ % q->zone->nentries;

        if (kvr_admit_step(q, i, KVR_ADMIT_CLAIM)
            && kvr_admit_swap(&q->entries[i].owner, 0, q->self))
        {
            if (kvr_admit_state(q, i) == KVR_ADMIT_CLAIMED) {
                return i;
            }

            kvr_put64(&q->entries[i].owner, 0);
        }
    }

    return KVR_ADMIT_NONE;
}


/* Tells a process of its entry, when the lock is free. */

static void
kvr_admit_wake(kvr_admit_t *q, uint32_t entry)
{
    if (q->nwakes < KVR_ADMIT_WAKES) {
        q->wakes[q->nwakes].owner = kvr_load64(&q->entries[entry].owner);
        q->wakes[q->nwakes++].entry = entry;

    } else {
        (void) __atomic_fetch_add(&q->zone->lost, 1, __ATOMIC_RELAXED);
    }
}


/* ---- pools, classes and tenants ----------------------------------------- */

uint32_t
kvr_admit_pool(kvr_admit_t *q, uint64_t key)
{
    uint32_t  i;

    for (i = 0; i < KVR_ADMIT_POOLS; i++) {
        if (kvr_load64(&q->zone->pools[i].key) == 0) {
            (void) kvr_admit_swap(&q->zone->pools[i].key, 0, key);
        }

        if (kvr_load64(&q->zone->pools[i].key) == key) {
            return i;
        }
    }

    return KVR_ADMIT_NONE;
}


/* The tenant of an entry.  If the entry is the first one of its pool, the pool
 * is formatted. */

static uint32_t
kvr_admit_tenant(kvr_admit_t *q, kvr_order_entry_t *e)
{
    uint32_t           class, named;
    kvr_order_t       *o;
    kvr_rules_t       *r;
    const kvr_rule_t  *t;

    r = &q->zone->rules;
    o = &q->orders[e->pool];

    if (!o->zone->formatted) {
        kvr_order_format(o, &q->zone->order);
    }

    class = kvr_rules_class(r, e->class);
    e->class = r->classes[class].hash;
    o->zone->classes[class].weight = r->classes[class].weight;

    named = kvr_rules_tenant(r, e->name);

    if (named == KVR_ORDER_UNNAMED) {
        return kvr_order_tenant(o, class, e->name, named, 1);
    }

    t = &r->tenants[named];
    o->named[named].max_active = (uint32_t) t->max_active;

    return kvr_order_tenant(o, class, e->name, named, t->weight);
}


/* Why an entry may not wait; 0: it may. */

static uint32_t
kvr_admit_why(kvr_admit_t *q, kvr_order_entry_t *e, uint32_t tenant)
{
    double                     weights, expected;
    int64_t                    room;
    uint32_t                   i;
    kvr_pace_t                *p;
    const kvr_order_t         *o;
    const kvr_order_class_t   *c;
    const kvr_order_tenant_t  *t;

    p = &q->zone->pools[e->pool].pace;
    o = &q->orders[e->pool];
    t = &o->tenants[tenant];
    c = o->zone->classes;
    room = (int64_t) q->zone->limit - (int64_t) q->zone->granted;
    weights = c[t->class].waiting ? 0 : c[t->class].weight;

    for (i = 0; i < KVR_ORDER_CLASSES; i++) {
        weights += c[i].waiting ? c[i].weight : 0;
    }

    for (i = 0; i < KVR_ADMIT_POOLS; i++) {
        room -= q->orders[i].zone->waiting;
    }

    c += t->class;
    weights *= (t->place ? 0 : t->weight) + c->weights;

    expected = kvr_pace_expected(o->zone->waiting, t->waiting,
                                 c->weight * t->weight / weights,
                                 kvr_pace_count(p, e->at_ms, 0));

    e->expected_ms = (uint32_t) kvr_min(expected * 1000, INT32_MAX);

    return t->waiting / KVR_ADMIT_GREED >= room ? KVR_ADMIT_FULL
           : !kvr_order_may(o, tenant) ? KVR_ADMIT_LIMIT
           : kvr_pace_late(p, expected, ((double) e->deadline_ms
                                         - (double) e->at_ms) / 1000)
             ? KVR_ADMIT_LATE : 0;
}


/* ---- with the lock: what is due ----------------------------------------- */

/* Counts a grant at its worker, or one less. */

static void
kvr_admit_row(kvr_admit_t *q, const kvr_order_entry_t *e, int32_t n)
{
    int64_t           tokens;
    kvr_admit_row_t  *row;

    row = &q->rows[e->worker];
    tokens = (int64_t) e->charge - 2 * (int64_t) e->cost.output;

    kvr_put64(&row->requests, row->requests + n);
    kvr_put64(&row->tokens, row->tokens + n * kvr_max(tokens, 0));

    q->zone->granted += (uint64_t) n;
}


static void
kvr_admit_free(kvr_admit_t *q, uint32_t entry)
{
    uint32_t            state;
    kvr_order_t        *o;
    kvr_order_entry_t  *e;

    e = &q->entries[entry];
    o = &q->orders[e->pool];
    state = kvr_admit_state(q, entry);

    if (state & KVR_ORDER_LISTED) {
        kvr_order_leave(o, entry);
    }

    if (state & KVR_ADMIT_ROW) {
        kvr_admit_row(q, e, -1);
    }

    if (state & KVR_ORDER_CHARGED) {
        kvr_order_end(o, e->tenant, e->charge,
                      state & KVR_ADMIT_SERVED ? kvr_load32(&e->tokens) : 0);
    }

    kvr_put64(&e->owner, 0);
    __atomic_store_n(&q->states[entry], KVR_ADMIT_FREE, __ATOMIC_RELEASE);
}


/* An entry that comes waits, or is refused.  It may be going already. */

static void
kvr_admit_line(kvr_admit_t *q, uint32_t entry)
{
    uint32_t            tenant;
    kvr_order_entry_t  *e;

    e = &q->entries[entry];
    tenant = kvr_admit_tenant(q, e);

    if (kvr_admit_waiting(q, e->pool) == 0) {
        /* until now the pace was that of the requests which came */
        memset(&q->zone->pools[e->pool].pace, 0, sizeof(kvr_pace_t));
    }

    e->worker = kvr_admit_why(q, e, tenant);

    if (e->worker) {
        (void) kvr_admit_step(q, entry, KVR_ADMIT_REFUSE);
        kvr_admit_wake(q, entry);
        return;
    }

    kvr_order_wait(&q->orders[e->pool], entry, tenant);

    if (!kvr_admit_step(q, entry, KVR_ADMIT_LINE)) {
        kvr_order_leave(&q->orders[e->pool], entry);
    }
}


/* Does what is due for an entry, by its state. */

static void
kvr_admit_settle(kvr_admit_t *q, uint32_t entry)
{
    kvr_order_entry_t  *e;

    e = &q->entries[entry];

    if (kvr_admit_state(q, entry) == KVR_ADMIT_COMING) {
        kvr_admit_line(q, entry);
    }

    if (kvr_admit_step(q, entry, KVR_ADMIT_COUNT)) {
        kvr_admit_row(q, e, -1);
    }

    if (kvr_admit_step(q, entry, KVR_ADMIT_HEAD)) {
        kvr_admit_row(q, e, -1);
        kvr_order_back(&q->orders[e->pool], entry);
    }

    if (kvr_admit_state(q, entry) & KVR_ADMIT_GOING) {
        kvr_admit_free(q, entry);
    }
}


/* ---- the lock ----------------------------------------------------------- */

/* Makes all that is counted anew from the states. */

static void
kvr_admit_rebuild(kvr_admit_t *q)
{
    uint32_t  i;

    kvr_order_rebuild(q->orders, KVR_ADMIT_POOLS, q->zone->nentries);
    kvr_zero_words(q->rows, q->zone->nholders * sizeof(kvr_admit_row_t) / 8);
    q->zone->granted = 0;

    for (i = 0; i < q->zone->nentries; i++) {
        if (kvr_admit_state(q, i) & KVR_ADMIT_ROW) {
            kvr_admit_row(q, &q->entries[i], 1);
        }
    }

    q->zone->rebuilt++;
    __atomic_store_n(&q->zone->again, 1, __ATOMIC_SEQ_CST);
}


static kvr_rc_t
kvr_admit_lock(kvr_admit_t *q)
{
    bool               broken;
    int64_t            held;
    uint64_t           now;
    kvr_owner_t        owner;
    kvr_admit_zone_t  *z;

    z = q->zone;
    now = kvr_now_us();
    broken = false;

    if (!kvr_admit_swap(&z->lock.owner, 0, q->self)) {
        owner = kvr_load64(&z->lock.owner);
        held = (int64_t) (now - kvr_load64(&z->since_us));

        if (held < KVR_ADMIT_DOUBT_US || owner == 0 || kvr_owner_alive(owner)
            || !kvr_admit_swap(&z->lock.owner, owner, q->self))
        {
            return held < KVR_ADMIT_STUCK_US ? KVR_DECLINED : KVR_BUSY;
        }

        broken = true;
    }

    kvr_put64(&z->since_us, now);

    if (broken) {
        kvr_admit_rebuild(q);
    }

    return KVR_OK;
}


/* Settles what is due, if others could not; some of it in one holding. */

static void
kvr_admit_drain(kvr_admit_t *q)
{
    uint32_t           i, n, w;
    kvr_admit_zone_t  *z;

    z = q->zone;

    if (!__atomic_exchange_n(&z->again, 0, __ATOMIC_SEQ_CST)) {
        return;
    }

    q->look = true;

    for (w = 0, n = 0; w < z->nentries / 8 && n < KVR_ADMIT_TURN; w++) {

        if (!(kvr_load64((kvr_word_t *) q->states + w)
              & KVR_ADMIT_DUE * UINT64_C(0x0101010101010101)))
        {
            continue;
        }

        for (i = 8 * w; i < 8 * w + 8; i++) {
            if (kvr_admit_state(q, i) & KVR_ADMIT_DUE) {
                kvr_admit_settle(q, i);
                n++;
            }
        }
    }

    if (n >= KVR_ADMIT_TURN) {
        __atomic_store_n(&z->again, 1, __ATOMIC_SEQ_CST);
    }
}


static kvr_rc_t
kvr_admit_enter(kvr_admit_t *q)
{
    kvr_rc_t  rc;

    rc = kvr_admit_lock(q);

    if (rc != KVR_OK) {
        __atomic_store_n(&q->zone->again, 1, __ATOMIC_SEQ_CST);
        rc = kvr_admit_lock(q);
    }

    if (rc == KVR_OK) {
        kvr_admit_drain(q);
    }

    return rc;
}


static void
kvr_admit_exit(kvr_admit_t *q)
{
    kvr_admit_zone_t  *z;

    z = q->zone;

    for ( ;; ) {
        z->turns++;
        z->long_turns += kvr_now_us() - z->since_us > KVR_ADMIT_LONG_US;

        __atomic_store_n(&z->lock.owner, 0, __ATOMIC_SEQ_CST);

        if (!__atomic_load_n(&z->again, __ATOMIC_SEQ_CST)
            || kvr_admit_lock(q) != KVR_OK)
        {
            return;
        }

        kvr_admit_drain(q);
    }
}


bool
kvr_admit_move(kvr_admit_t *q, uint32_t entry, kvr_admit_event_t event)
{
    if (!kvr_admit_step(q, entry, event)) {
        return false;
    }

    if ((event & KVR_ADMIT_DUE) && kvr_admit_enter(q) == KVR_OK) {
        kvr_admit_settle(q, entry);
        kvr_admit_exit(q);
    }

    return true;
}


/* ---- the calls ---------------------------------------------------------- */

/* Is a class or a tenant needed by a request that waits or is served? */

static bool
kvr_admit_needed(void *data, uint64_t hash)
{
    uint32_t      i;
    kvr_admit_t  *q = data;

    for (i = 0; i < q->zone->nentries; i++) {
        if ((kvr_admit_state(q, i) & (KVR_ORDER_LISTED | KVR_ORDER_CHARGED))
            && (q->entries[i].class == hash || q->entries[i].name == hash))
        {
            return true;
        }
    }

    return false;
}


kvr_rc_t
kvr_admit_configure(kvr_admit_t *q, const kvr_rules_t *conf)
{
    kvr_rc_t  rc;

    if (kvr_admit_enter(q) != KVR_OK) {
        return KVR_BUSY;
    }

    rc = kvr_rules_set(&q->zone->rules, conf, kvr_admit_needed, q);
    kvr_admit_exit(q);

    return rc;
}


/* An entry which waits is granted, or passes; false: it is going. */

static bool
kvr_admit_grant(kvr_admit_t *q, uint32_t entry, const kvr_admit_worker_t *w,
    uint64_t now_ms)
{
    bool                passes;
    kvr_order_t        *o;
    kvr_order_entry_t  *e;

    e = &q->entries[entry];
    o = &q->orders[w->pool];
    passes = kvr_admit_state(q, entry) == KVR_ADMIT_CLAIMED;

    e->worker = w->worker;
    e->generation = w->generation;
    e->charge = kvr_order_charge(o, &e->cost, w->worker);
    kvr_put32(&e->tokens, e->charge);
    kvr_put64(&e->at_ms, now_ms);

    if (!kvr_admit_step(q, entry, passes ? KVR_ADMIT_PASS : KVR_ADMIT_GRANT)) {
        return false;
    }

    kvr_admit_row(q, e, 1);
    (void) kvr_pace_count(&q->zone->pools[w->pool].pace, now_ms, 1);

    if (passes) {
        kvr_order_pass(o, e->tenant, e->charge);

    } else {
        kvr_order_grant(o, entry);
        kvr_admit_wake(q, entry);
    }

    return true;
}


/* The entry that goes next; `mine' if none that waits can use the worker. */

static uint32_t
kvr_admit_first(kvr_admit_t *q, const kvr_admit_worker_t *w, uint32_t mine)
{
    double              most;
    uint32_t            i, first, held, tenant;
    kvr_order_t        *o;
    kvr_order_class_t  *c;

    o = &q->orders[w->pool];
    c = o->zone->classes;

    for (i = 0, held = 0; i < KVR_ORDER_CLASSES; i++) {
        most = q->zone->rules.classes[i].most;

        held |= (uint32_t) (w->places && most < 1
                            && c[i].active >= kvr_max(most * w->places, 1))
                << i;
    }

    if (o->zone->waiting) {
        first = kvr_order_next(o, w->worker, w->workers, held, w->fits,
                               w->data);

        if (first != KVR_ADMIT_NONE) {
            return first;
        }
    }

    if (mine == KVR_ADMIT_NONE
        || kvr_admit_state(q, mine) != KVR_ADMIT_CLAIMED)
    {
        return KVR_ADMIT_NONE;
    }

    tenant = kvr_admit_tenant(q, &q->entries[mine]);
    q->entries[mine].tenant = tenant;

    return kvr_order_may(o, tenant)
           && !(held >> o->tenants[tenant].class & 1) ? mine : KVR_ADMIT_NONE;
}


kvr_rc_t
kvr_admit_room(kvr_admit_t *q, const kvr_admit_worker_t *w, uint32_t mine,
    uint64_t now_ms, uint32_t *entry)
{
    kvr_rc_t  rc;

    if (mine == KVR_ADMIT_NONE && kvr_admit_waiting(q, w->pool) == 0) {
        return KVR_DECLINED;
    }

    rc = kvr_admit_enter(q);

    if (rc != KVR_OK) {
        return rc;
    }

    rc = KVR_DECLINED;

    while (rc != KVR_OK && w->room(w->data, w->worker)) {
        *entry = kvr_admit_first(q, w, mine);

        if (*entry == KVR_ADMIT_NONE) {
            break;
        }

        if (kvr_admit_grant(q, *entry, w, now_ms)) {
            rc = KVR_OK;

        } else {
            kvr_admit_settle(q, *entry);
        }
    }

    kvr_admit_exit(q);

    return rc;
}


/* ---- the sweep ---------------------------------------------------------- */

/* A grant that nobody takes, or an entry whose process may not know. */

static void
kvr_admit_remind(kvr_admit_t *q, uint32_t entry, uint64_t now_ms)
{
    int64_t   age;
    uint32_t  state;

    state = kvr_admit_state(q, entry);
    age = (int64_t) (now_ms - kvr_load64(&q->entries[entry].at_ms));

    if (state == KVR_ADMIT_GRANTED && age >= KVR_ADMIT_GRANT_MS) {
        (void) kvr_admit_step(q, entry, KVR_ADMIT_EXPIRE);

    } else if ((state == KVR_ADMIT_GRANTED || state == KVR_ADMIT_REFUSED)
               && age >= KVR_ADMIT_SWEEP_MS && age < 2 * KVR_ADMIT_SWEEP_MS)
    {
        kvr_admit_wake(q, entry);
    }
}


/* An entry of a dead process goes, with the lock: an entry becomes another's
 * with it alone. */

static void
kvr_admit_bury(kvr_admit_t *q, uint32_t entry, kvr_owner_t owner)
{
    uint64_t  *word = &q->entries[entry].owner;

    if (owner == 0) {
        (void) kvr_admit_swap(word, 0, KVR_ADMIT_NOBODY);

    } else if (kvr_load64(word) == owner) {
        (void) kvr_admit_step(q, entry, KVR_ADMIT_LEAVE);
    }
}


bool
kvr_admit_sweep(kvr_admit_t *q, uint64_t now_ms)
{
    bool         locked, dead[KVR_ADMIT_MET];
    uint32_t     i, k;
    uint64_t     swept;
    kvr_owner_t  owner, met[KVR_ADMIT_MET];

    swept = kvr_load64(&q->zone->swept_ms);

    if (now_ms < swept + KVR_ADMIT_SWEEP_MS
        || !kvr_admit_swap(&q->zone->swept_ms, swept, now_ms))
    {
        return false;
    }

    locked = false;
    memset(met, 0, sizeof(met));
    memset(dead, true, sizeof(dead));   /* for owner 0 */

    for (i = 0; i < q->zone->nentries; i++) {

        if (kvr_admit_state(q, i) == KVR_ADMIT_FREE) {
            i += i % 8 || kvr_load64((kvr_word_t *) q->states + i / 8) ? 0 : 7;
            continue;
        }

        owner = kvr_load64(&q->entries[i].owner);
        k = (uint32_t) kvr_owner_pid(owner) % KVR_ADMIT_MET;

        if (met[k] != owner) {
            met[k] = owner;
            dead[k] = !kvr_owner_alive(owner);
        }

        if (!dead[k]) {
            kvr_admit_remind(q, i, now_ms);

        } else if (locked || kvr_admit_enter(q) == KVR_OK) {
            locked = true;
            kvr_admit_bury(q, i, owner);
        }
    }

    __atomic_store_n(&q->zone->again, 1, __ATOMIC_SEQ_CST);

    if (locked || kvr_admit_enter(q) == KVR_OK) {
        kvr_admit_exit(q);
    }

    q->look = false;

    return true;
}
