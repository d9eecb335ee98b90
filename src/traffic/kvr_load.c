/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_load.h"


static kvr_load_row_t *kvr_load_own(const kvr_load_t *l,
    const kvr_reservation_t *r);
static void kvr_load_add(kvr_load_t *l, kvr_load_row_t *row, int64_t active,
    int64_t prefills, int64_t prefill_tokens, int64_t decode_blocks);
static bool kvr_load_count(int64_t *counter, int64_t n);
static void kvr_load_prefills(kvr_load_row_t *row, uint64_t now_ms);
static void kvr_load_begin(kvr_load_row_t *row, uint64_t generation);
static void kvr_load_zero(const kvr_load_t *l, uint32_t slot);
static bool kvr_load_table(kvr_load_t *l, uint32_t slot);
static void kvr_load_share_table(kvr_load_t *l, kvr_owner_t self);
static uint32_t kvr_load_reclaim_shared(kvr_load_t *l);


size_t
kvr_load_size(uint32_t max_holders)
{
    return max_holders * sizeof(kvr_load_row_t);
}


/* at: the shared table; the processes' own come from the arena. */

void
kvr_load_format(kvr_mem_t *mem, kvr_load_zone_t *z, uint64_t at,
    uint32_t max_holders)
{
    memset(z, 0, sizeof(kvr_load_zone_t));

    z->max_holders = max_holders;
    z->procs[KVR_LOAD_SHARED].table = at;

    memset(mem->base + at, 0, kvr_load_size(max_holders));
}


void
kvr_load_attach(kvr_load_t *l, kvr_mem_t *mem, kvr_arena_t *arena,
    kvr_load_zone_t *z)
{
    l->mem = mem;
    l->arena = arena;
    l->zone = z;
    l->slot = KVR_LOAD_SHARED;
    l->self = 0;
}


/*
 * Makes sure that the slot has a table, with rows of zeros; false: no memory.
 */

static bool
kvr_load_table(kvr_load_t *l, uint32_t slot)
{
    char             *rows;
    size_t            size;
    uint32_t          piece;
    kvr_load_proc_t  *p;

    p = &l->zone->procs[slot];

    if (p->table) {
        return true;
    }

    size = kvr_load_size(l->zone->max_holders);

    piece = kvr_arena_alloc(l->arena, (uint32_t) (size / 8));
    if (piece == 0) {
        kvr_arena_forgo(l->arena);
        return false;
    }

    rows = kvr_arena_at(l->arena, piece);
    kvr_zero_words(rows, size / 8);

    kvr_set64(l->mem, &l->arena->zone->lent, l->arena->zone->lent
              + kvr_arena_size(l->arena, piece));
    kvr_set64(l->mem, &p->table, (uint64_t) (rows - l->mem->base));

    return true;
}


/*
 * Tables come from the arena.  During a reload there are twice as many
 * processes, and the arena may be full by then: so each process that joins
 * makes sure that there are tables for as many again.
 */

bool
kvr_load_join(kvr_load_t *l, kvr_owner_t self)
{
    uint32_t          i, n, slot;
    kvr_load_zone_t  *z;

    z = l->zone;
    l->slot = KVR_LOAD_SHARED;
    l->self = self;

    slot = KVR_LOAD_SHARED;
    n = 1;

    for (i = KVR_LOAD_PROCS; i-- > 0; /* void */ ) {
        if (z->procs[i].owner == 0 || z->procs[i].owner == self) {
            slot = i;

        } else {
            n++;
        }
    }

    if (slot == KVR_LOAD_SHARED || !kvr_load_table(l, slot)) {
        kvr_set64(l->mem, &z->overflow, z->overflow + 1);
        kvr_load_share_table(l, self);

        return false;
    }

    kvr_set64(l->mem, &z->procs[slot].owner, self);

    if (slot >= z->nprocs) {
        kvr_set32(l->mem, &z->nprocs, slot + 1);
    }

    l->slot = slot;

    for (i = 0; i < kvr_min(2 * n, KVR_LOAD_PROCS); i++) {
        (void) kvr_load_table(l, i);
    }

    return true;
}


/* Makes a process a sharer of the shared table. */

static void
kvr_load_share_table(kvr_load_t *l, kvr_owner_t self)
{
    uint32_t          i, at;
    kvr_load_zone_t  *z;

    z = l->zone;
    at = KVR_LOAD_SHARERS;

    for (i = KVR_LOAD_SHARERS; i-- > 0; /* void */ ) {
        if (z->sharers[i] == 0 || z->sharers[i] == self) {
            at = i;
        }
    }

    if (at == KVR_LOAD_SHARERS) {
        kvr_set32(l->mem, &z->unknown, 1);
        return;
    }

    kvr_set64(l->mem, &z->sharers[at], self);
}


void
kvr_load_leave(kvr_load_t *l)
{
    uint32_t  i;

    if (l->slot == KVR_LOAD_SHARED) {

        for (i = 0; i < KVR_LOAD_SHARERS; i++) {
            if (l->self && l->zone->sharers[i] == l->self) {
                kvr_set64(l->mem, &l->zone->sharers[i], 0);
            }
        }

        return;
    }

    kvr_load_zero(l, l->slot);
    kvr_set64(l->mem, &l->zone->procs[l->slot].owner, 0);

    l->slot = KVR_LOAD_SHARED;
}


bool
kvr_load_orphaned(const kvr_load_t *l)
{
    uint32_t     i, n;
    kvr_owner_t  owner;

    n = kvr_load32(&l->zone->nprocs);

    for (i = 0; i < n; i++) {
        owner = kvr_load64(&l->zone->procs[i].owner);

        if (owner && i != l->slot && !kvr_owner_alive(owner)) {
            return true;
        }
    }

    for (i = 0; i < KVR_LOAD_SHARERS; i++) {
        owner = kvr_load64(&l->zone->sharers[i]);

        if (owner && !kvr_owner_alive(owner)) {
            return true;
        }
    }

    return false;
}


uint32_t
kvr_load_reclaim(kvr_load_t *l)
{
    uint32_t          i, n;
    kvr_load_proc_t  *p;

    n = 0;

    for (i = 0; i < l->zone->nprocs; i++) {
        p = &l->zone->procs[i];

        if (p->owner == 0 || i == l->slot || kvr_owner_alive(p->owner)) {
            continue;
        }

        /* zeroing twice has the same effect as once: it needs no log */

        kvr_load_zero(l, i);

        kvr_set64(l->mem, &p->owner, 0);
        kvr_set64(l->mem, &l->zone->reclaimed, l->zone->reclaimed + 1);
        n++;
    }

    return n + kvr_load_reclaim_shared(l);
}


/* The shared table does not say which of its sharers has counted what. */

static uint32_t
kvr_load_reclaim_shared(kvr_load_t *l)
{
    bool              left;
    uint32_t          i;
    kvr_load_zone_t  *z;

    z = l->zone;
    left = false;

    for (i = 0; i < KVR_LOAD_SHARERS; i++) {

        if (z->sharers[i] == 0) {
            continue;
        }

        if (kvr_owner_alive(z->sharers[i])) {
            left = true;
            continue;
        }

        kvr_set64(l->mem, &z->sharers[i], 0);
        kvr_set32(l->mem, &z->spilt, 1);
    }

    if (left || !z->spilt || z->unknown) {
        return 0;
    }

    kvr_load_zero(l, KVR_LOAD_SHARED);

    kvr_set32(l->mem, &z->spilt, 0);
    kvr_set64(l->mem, &z->reclaimed, z->reclaimed + 1);

    return 1;
}


static void
kvr_load_zero(const kvr_load_t *l, uint32_t slot)
{
    uint32_t  i;

    __atomic_store_n(&l->zone->procs[slot].waiting, 0, __ATOMIC_RELAXED);

    for (i = 0; i < l->zone->max_holders; i++) {
        kvr_load_begin(kvr_load_row(l, slot, i), 0);
    }
}


static void
kvr_load_begin(kvr_load_row_t *row, uint64_t generation)
{
    __atomic_store_n(&row->active, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&row->prefills, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&row->prefill_tokens, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&row->decode_blocks, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&row->begun_ms, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&row->ended_ms, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&row->generation, generation, __ATOMIC_RELEASE);
}


/* The row of a reservation which is still valid, or else NULL. */

static kvr_load_row_t *
kvr_load_own(const kvr_load_t *l, const kvr_reservation_t *r)
{
    kvr_load_row_t  *row;

    if (r->holder >= l->zone->max_holders) {
        return NULL;
    }

    row = kvr_load_row(l, l->slot, r->holder);

    return l->slot == KVR_LOAD_SHARED || row->generation == r->generation
           ? row : NULL;
}


static void
kvr_load_add(kvr_load_t *l, kvr_load_row_t *row, int64_t active,
    int64_t prefills, int64_t prefill_tokens, int64_t decode_blocks)
{
    bool  good;

    good = kvr_load_count(&row->active, active);
    good = kvr_load_count(&row->prefills, prefills) && good;
    good = kvr_load_count(&row->prefill_tokens, prefill_tokens) && good;
    good = kvr_load_count(&row->decode_blocks, decode_blocks) && good;

    if (!good) {
        (void) __atomic_fetch_add(&l->zone->below_zero, 1, __ATOMIC_RELAXED);
    }
}


static bool
kvr_load_count(int64_t *counter, int64_t n)
{
    return __atomic_add_fetch(counter, n, __ATOMIC_RELAXED) >= 0;
}


/* A prefill is counted: of several, the first one has begun. */

static void
kvr_load_prefills(kvr_load_row_t *row, uint64_t now_ms)
{
    if (__atomic_load_n(&row->prefills, __ATOMIC_RELAXED) == 0) {
        __atomic_store_n(&row->begun_ms, now_ms, __ATOMIC_RELAXED);
    }
}


void
kvr_load_reserve(kvr_load_t *l, const kvr_reservation_t *r, uint64_t now_ms)
{
    kvr_load_row_t  *row;

    if (r->holder >= l->zone->max_holders) {
        return;
    }

    row = kvr_load_row(l, l->slot, r->holder);

    if (l->slot != KVR_LOAD_SHARED && row->generation != r->generation) {

        if ((int32_t) ((uint32_t) row->generation - r->generation) > 0) {
            /* the worker was deleted: do not touch the row of its successor */
            return;
        }

        kvr_load_begin(row, r->generation);
    }

    if (r->prefilling) {
        kvr_load_prefills(row, now_ms);
    }

    kvr_load_add(l, row, 1 + r->more, r->prefilling ? 1 : 0,
                 r->prefilling ? r->prefill_tokens : 0, r->decode_blocks);
}


void
kvr_load_prefilled(kvr_load_t *l, kvr_reservation_t *r, uint64_t now_ms)
{
    kvr_load_row_t  *row;

    if (!r->prefilling) {
        return;
    }

    r->prefilling = 0;
    row = kvr_load_own(l, r);

    if (row) {
        __atomic_store_n(&row->ended_ms, now_ms, __ATOMIC_RELAXED);
        kvr_load_add(l, row, 0, -1, -r->prefill_tokens, 0);
    }
}


void
kvr_load_prefill_again(kvr_load_t *l, kvr_reservation_t *r, uint64_t now_ms)
{
    kvr_load_row_t  *row;

    row = kvr_load_own(l, r);

    if (row && !r->prefilling) {
        r->prefilling = 1;
        kvr_load_prefills(row, now_ms);
        kvr_load_add(l, row, 0, 1, r->prefill_tokens, 0);
    }
}


void
kvr_load_grow(kvr_load_t *l, kvr_reservation_t *r, int64_t blocks)
{
    kvr_load_row_t  *row;

    row = kvr_load_own(l, r);

    if (row) {
        r->decode_blocks += blocks;
        r->output_blocks += blocks;

        kvr_load_add(l, row, 0, 0, 0, blocks);
    }
}


void
kvr_load_share(kvr_reservation_t *r, int64_t blocks)
{
    r->decode_blocks = r->output_blocks + blocks;
}


void
kvr_load_release(kvr_load_t *l, kvr_reservation_t *r, uint64_t now_ms)
{
    kvr_load_row_t  *row;

    kvr_load_prefilled(l, r, now_ms);
    row = kvr_load_own(l, r);

    if (row) {
        kvr_load_add(l, row, -1 - r->more, 0, 0, -r->decode_blocks);
    }

    r->holder = UINT32_MAX;
}


/*
 * Closes the gate.  If its owner dies, the owner's changes are in its own
 * table.
 */

void
kvr_load_shut(kvr_load_t *l)
{
    bool         broken;
    kvr_owner_t  owner;

    do {
        owner = kvr_load64(&l->zone->gate.owner);

        if (kvr_lock_acquire(&l->zone->gate, l->self, KVR_LOAD_GATE_MS,
                             &broken)
            == KVR_OK)
        {
            return;
        }

        /*
         * take the gate over only from an owner which had it all that time:
         * that process is stopped; a new owner is not
         */

    } while (owner == 0
             || !__atomic_compare_exchange_n(&l->zone->gate.owner, &owner,
                                             l->self, false, __ATOMIC_ACQUIRE,
                                             __ATOMIC_RELAXED));
}


bool
kvr_load_open(kvr_load_t *l)
{
    return kvr_lock_release(&l->zone->gate, l->self);
}


void
kvr_load_wait(kvr_load_t *l, int64_t n)
{
    (void) __atomic_fetch_add(&l->zone->procs[l->slot].waiting, n,
                              __ATOMIC_RELAXED);
}


uint64_t
kvr_load_waiting(const kvr_load_t *l)
{
    int64_t   sum;
    uint32_t  i, n;

    n = kvr_load32(&l->zone->nprocs);
    sum = __atomic_load_n(&l->zone->procs[KVR_LOAD_SHARED].waiting,
                          __ATOMIC_RELAXED);

    for (i = 0; i < n; i++) {
        sum += __atomic_load_n(&l->zone->procs[i].waiting, __ATOMIC_RELAXED);
    }

    return (uint64_t) kvr_max(sum, 0);
}


void
kvr_load_read(const kvr_load_t *l, uint32_t holder, uint32_t generation,
    kvr_load_row_t *out)
{
    int64_t                prefills;
    uint32_t               i, n;
    uint64_t               begun, ended;
    const kvr_load_row_t  *row;

    memset(out, 0, sizeof(kvr_load_row_t));

    if (holder >= l->zone->max_holders) {
        return;
    }

    n = kvr_load32(&l->zone->nprocs);
    begun = UINT64_MAX;

    for (i = 0; i <= n; i++) {

        row = kvr_load_row(l, i < n ? i : KVR_LOAD_SHARED, holder);

        if (i < n
            && __atomic_load_n(&row->generation, __ATOMIC_ACQUIRE)
               != generation)
        {
            continue;
        }

        prefills = __atomic_load_n(&row->prefills, __ATOMIC_RELAXED);

        if (prefills > 0) {
            begun = kvr_min(begun, __atomic_load_n(&row->begun_ms,
                                                   __ATOMIC_RELAXED));
        }

        ended = __atomic_load_n(&row->ended_ms, __ATOMIC_RELAXED);

        out->ended_ms = kvr_max(out->ended_ms, ended);
        out->prefills += prefills;
        out->active += __atomic_load_n(&row->active, __ATOMIC_RELAXED);
        out->prefill_tokens += __atomic_load_n(&row->prefill_tokens,
                                               __ATOMIC_RELAXED);
        out->decode_blocks += __atomic_load_n(&row->decode_blocks,
                                              __ATOMIC_RELAXED);
    }

    if (begun != UINT64_MAX) {
        out->begun_ms = kvr_max(begun, out->ended_ms);
    }

    /*
     * the fields are read one by one, so a change in between may show less
     * than 0
     */

    out->active = kvr_max(out->active, 0);
    out->prefills = kvr_max(out->prefills, 0);
    out->prefill_tokens = kvr_max(out->prefill_tokens, 0);
    out->decode_blocks = kvr_max(out->decode_blocks, 0);
}
