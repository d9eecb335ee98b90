/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_zone.h"

#include <sys/random.h>


/* ---- memory ------------------------------------------------------------- */

static kvr_selection_t *
kvr_selections_at(const kvr_router_t *k, uint32_t place)
{
    const kvr_selections_zone_t  *z;

    z = &k->zone->selections;

    return (kvr_selection_t *) ((uint64_t *) k->zone
                                + z->parts[place / KVR_SELECTIONS_PART])
           + place % KVR_SELECTIONS_PART;
}


/* The numbers below it have an entry. */

static uint32_t
kvr_selections_room(const kvr_selections_zone_t *z)
{
    return kvr_min(__atomic_load_n(&z->nparts, __ATOMIC_ACQUIRE)
                   * KVR_SELECTIONS_PART, KVR_SELECTIONS);
}


/* Takes another part if no entry is free. */

static kvr_rc_t
kvr_selections_grow(kvr_router_t *k)
{
    uint32_t                n;
    uint64_t                at;
    kvr_rc_t                rc;
    kvr_shard_t            *first;
    kvr_selections_zone_t  *z;

    _Static_assert(KVR_SELECTIONS_PART * sizeof(kvr_selection_t)
                   <= KVR_ARENA_CHUNK * sizeof(uint64_t), "a part is a chunk");

    z = &k->zone->selections;
    first = &k->shards[0];

    if (kvr_load32(&z->free) != KVR_SELECTIONS
        || kvr_load32(&z->used) < kvr_selections_room(z))
    {
        return KVR_OK;
    }

    if (kvr_load32(&z->nparts) == KVR_SELECTIONS_PARTS) {
        return KVR_FULL;
    }

    rc = kvr_shard_lock(first, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    n = kvr_load32(&z->nparts);
    kvr_index_begin(&first->index);

    while (n < KVR_SELECTIONS_PARTS && z->parts[n] == 0) {
        at = kvr_load_piece(&k->load, KVR_SELECTIONS_PART
                                      * sizeof(kvr_selection_t));
        if (at) {
            kvr_set32(&first->mem, &z->parts[n],
                      (uint32_t) (at / sizeof(uint64_t)));
            break;
        }

        (void) kvr_txn_rollback(&first->mem);
        kvr_index_begin(&first->index);

        if (!kvr_index_make_room(&first->index)) {
            rc = KVR_FULL;
            break;
        }
    }

    kvr_shard_unlock(first);

    if (rc == KVR_OK && n < KVR_SELECTIONS_PARTS) {
        (void) __atomic_compare_exchange_n(&z->nparts, &n, n + 1, false,
                                           __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }

    return rc;
}


/* ---- a change ----------------------------------------------------------- */

/* The table of the selections' load; the lock's owner writes it. */

static kvr_load_t
kvr_selections_load(const kvr_router_t *k)
{
    kvr_load_t  load;

    load = k->load;
    load.slot = KVR_LOAD_SELECTED;

    return load;
}


static void
kvr_selections_begin(kvr_router_t *k, uint32_t place)
{
    kvr_load_t              load;
    kvr_load_row_t         *row;
    kvr_selection_t        *e;
    kvr_selections_zone_t  *z;

    z = &k->zone->selections;
    e = kvr_selections_at(k, place);
    load = kvr_selections_load(k);
    row = kvr_load_row(&load, load.slot, e->load.holder);

    z->undo.held = z->held;
    z->undo.free = z->free;
    z->undo.used = z->used;
    z->undo.lease_ms = e->lease_ms;
    z->undo.load = e->load;

    if (row) {
        z->undo.row = *row;
    }

    kvr_txn_barrier();
    kvr_put32(&z->undo.place, place + 1);
    kvr_txn_barrier();
}


static void
kvr_selections_commit(kvr_router_t *k)
{
    kvr_txn_barrier();
    kvr_put32(&k->zone->selections.undo.place, 0);
    kvr_txn_barrier();
}


static void
kvr_selections_undo(kvr_router_t *k)
{
    kvr_load_t              load;
    kvr_load_row_t         *row;
    kvr_selection_t        *e;
    kvr_selections_zone_t  *z;

    z = &k->zone->selections;

    if (z->undo.place == 0) {
        return;
    }

    e = kvr_selections_at(k, z->undo.place - 1);
    load = kvr_selections_load(k);
    row = kvr_load_row(&load, load.slot, z->undo.load.holder);

    kvr_put32(&z->held, z->undo.held);
    kvr_put32(&z->free, z->undo.free);
    kvr_put32(&z->used, z->undo.used);
    e->lease_ms = z->undo.lease_ms;
    e->load = z->undo.load;

    if (row) {
        kvr_copy_words(row, &z->undo.row, sizeof(*row) / sizeof(uint64_t));
    }

    kvr_selections_commit(k);
}


static kvr_rc_t
kvr_selections_lock(kvr_router_t *k, uint32_t timeout_ms)
{
    bool      broken;
    kvr_rc_t  rc;

    rc = kvr_lock_acquire(&k->zone->selections.lock, kvr_router_self(k),
                          timeout_ms, &broken);

    if (rc == KVR_OK) {
        kvr_selections_undo(k);
    }

    return rc;
}


static void
kvr_selections_unlock(kvr_router_t *k)
{
    (void) kvr_lock_release(&k->zone->selections.lock, kvr_router_self(k));
}


/* ---- selections --------------------------------------------------------- */

kvr_rc_t
kvr_router_select(kvr_router_t *k, const kvr_selection_t *s, uint64_t now_ms,
    uint32_t lease_ms, kvr_selection_id_t *id)
{
    uint32_t                i;
    kvr_rc_t                rc;
    kvr_load_t              load;
    kvr_selection_t        *e;
    kvr_selections_zone_t  *z;

    if (getrandom(id->bits, sizeof(id->bits), 0)
        != (ssize_t) sizeof(id->bits))
    {
        return KVR_ERROR;
    }

    rc = kvr_selections_grow(k);

    if (rc == KVR_OK) {
        rc = kvr_selections_lock(k, KVR_LOCK_MS);
    }

    if (rc != KVR_OK) {
        return rc;
    }

    z = &k->zone->selections;
    i = z->free != KVR_SELECTIONS ? z->free : z->used;

    if (i >= kvr_selections_room(z)) {
        /* another process has taken the last entry meanwhile */
        kvr_selections_unlock(k);
        return KVR_FULL;
    }

    id->place = i;
    e = kvr_selections_at(k, i);
    load = kvr_selections_load(k);

    e->bits[0] = id->bits[0];
    e->bits[1] = id->bits[1];
    e->prefilled_ms = s->prefilled_ms;
    e->known = s->known;
    e->best = s->best;
    e->load = s->load;
    e->flight = s->flight;
    e->flight_ms = now_ms + kvr_selection_flight_ms(lease_ms);

    kvr_put64(&k->load.zone->procs[KVR_LOAD_SELECTED].parts,
              k->load.zone->selected);

    kvr_selections_begin(k, i);

    if (i == z->free) {
        kvr_put32(&z->free, e->next);

    } else {
        kvr_put32(&z->used, i + 1);
    }

    kvr_put32(&z->held, z->held + 1);
    kvr_load_reserve(&load, &e->load, now_ms);
    e->lease_ms = now_ms + lease_ms;

    kvr_selections_commit(k);
    kvr_selections_unlock(k);

    return KVR_OK;
}


static void
kvr_selections_over(kvr_router_t *k, uint32_t place, uint64_t now_ms)
{
    kvr_load_t              load;
    kvr_selection_t        *e;
    kvr_selections_zone_t  *z;

    z = &k->zone->selections;
    e = kvr_selections_at(k, place);
    load = kvr_selections_load(k);

    kvr_selections_begin(k, place);

    e->next = z->free;
    kvr_put32(&z->free, place);
    kvr_put32(&z->held, z->held - 1);
    kvr_load_release(&load, &e->load, now_ms);
    e->lease_ms = 0;

    kvr_selections_commit(k);

    /* after its time a word of that name is another flight's */

    if (e->flight_ms + KVR_FLIGHT_QUARTER > now_ms) {
        kvr_flights_end(&k->flights, &e->flight, false, now_ms);
    }
}


static void
kvr_selections_prefilled(kvr_router_t *k, uint32_t place, uint64_t now_ms)
{
    kvr_load_t        load;
    kvr_selection_t  *e;

    e = kvr_selections_at(k, place);
    load = kvr_selections_load(k);

    kvr_selections_begin(k, place);
    kvr_load_prefilled(&load, &e->load, now_ms);
    kvr_selections_commit(k);
}


/* Is the worker another one now, or none? */

static bool
kvr_selections_gone(const kvr_router_t *k, const kvr_selection_t *e)
{
    uint32_t             worker;
    const kvr_worker_t  *w;

    worker = kvr_router_holder_worker(k, e->load.holder);

    if (worker >= kvr_router_max_workers(k)) {
        return true;
    }

    w = kvr_router_worker(k, worker);

    return kvr_load32(&w->generation) != e->load.generation
           || (kvr_load32(&w->flags) & KVR_WORKER_DELETED) != 0;
}


kvr_rc_t
kvr_router_selected(kvr_router_t *k, const kvr_selection_id_t *id,
    kvr_selection_event_t event, uint64_t now_ms, uint32_t lease_ms,
    kvr_selection_t *was)
{
    kvr_rc_t          rc;
    kvr_selection_t  *e;

    if (id->place >= kvr_selections_room(&k->zone->selections)) {
        return KVR_DECLINED;
    }

    rc = kvr_selections_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    e = kvr_selections_at(k, id->place);

    if (((e->bits[0] ^ id->bits[0]) | (e->bits[1] ^ id->bits[1])) != 0
        || e->lease_ms <= now_ms || kvr_selections_gone(k, e))
    {
        kvr_selections_unlock(k);
        return KVR_DECLINED;
    }

    *was = *e;

    switch (event) {

    case KVR_SELECTION_FIRST:
        kvr_selections_prefilled(k, id->place, now_ms);
        break;

    case KVR_SELECTION_RENEW:
        e->lease_ms = now_ms + lease_ms;
        e->flight_ms = now_ms + kvr_selection_flight_ms(lease_ms);
        kvr_flights_add(&k->flights, &e->flight, KVR_FLIGHT_RENEWED, false,
                        now_ms, e->flight_ms);
        break;

    case KVR_SELECTION_END:
        kvr_selections_over(k, id->place, now_ms);
    }

    kvr_selections_unlock(k);

    return KVR_OK;
}


uint32_t
kvr_router_selections_sweep(kvr_router_t *k, uint64_t now_ms,
    void (*freed)(void *data, uint32_t holder), void *data)
{
    uint32_t                i, n, holder, expired;
    uint64_t                swept;
    kvr_selection_t        *e;
    kvr_selections_zone_t  *z;

    z = &k->zone->selections;
    swept = kvr_load64(&z->swept_ms);

    if ((kvr_load32(&z->held) == 0 && kvr_load32(&z->undo.place) == 0)
        || now_ms - swept < KVR_SELECTIONS_MS
        || !__atomic_compare_exchange_n(&z->swept_ms, &swept, now_ms, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)
        || kvr_selections_lock(k, 0) != KVR_OK)
    {
        return 0;
    }

    expired = 0;
    n = kvr_min(z->used, KVR_SELECTIONS_SLICE);

    for ( /* void */ ; n; n--) {
        i = z->next < z->used ? z->next : 0;
        z->next = i + 1;

        e = kvr_selections_at(k, i);
        holder = e->load.holder;

        if (e->lease_ms == 0) {
            continue;
        }

        if (e->lease_ms <= now_ms || kvr_selections_gone(k, e)) {
            expired += e->lease_ms <= now_ms;
            kvr_selections_over(k, i, now_ms);
            freed(data, holder);

        } else if (e->load.prefilling && e->prefilled_ms
                   && e->prefilled_ms <= now_ms)
        {
            kvr_selections_prefilled(k, i, now_ms);
            freed(data, holder);
        }
    }

    kvr_selections_unlock(k);

    return expired;
}


uint32_t
kvr_router_selections(const kvr_router_t *k)
{
    return kvr_load32(&k->zone->selections.held);
}
