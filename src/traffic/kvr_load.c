/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_load.h"


static bool kvr_load_count(int64_t *counter, int64_t n);
static void kvr_load_begin(kvr_load_row_t *row, uint64_t generation);
static void kvr_load_zero(const kvr_load_t *l, uint32_t slot);


uint64_t
kvr_load_size(uint32_t max_holders)
{
    return kvr_load_parts(max_holders)
           * (sizeof(uint64_t) + KVR_LOAD_ROWS * sizeof(kvr_load_row_t));
}


void
kvr_load_format(kvr_load_zone_t *z, uint32_t max_holders, char *base,
    uint64_t at)
{
    size_t     i, n;
    uint64_t  *parts;

    memset(z, 0, sizeof(kvr_load_zone_t));
    memset(base + at, 0, kvr_load_size(max_holders));

    z->max_holders = max_holders;
    z->selected = at;

    n = kvr_load_parts(max_holders);
    parts = (uint64_t *) (base + at);

    for (i = 0; i < n; i++) {
        parts[i] = at + n * sizeof(uint64_t)
                   + i * KVR_LOAD_ROWS * sizeof(kvr_load_row_t);
    }
}


void
kvr_load_attach(kvr_load_t *l, kvr_mem_t *mem, kvr_arena_t *arena,
    kvr_load_zone_t *z)
{
    l->mem = mem;
    l->arena = arena;
    l->zone = z;
    l->slot = KVR_LOAD_NONE;
    l->self = 0;
}


/*
 * The offset of a piece of zeros, lent by the index; 0: no memory.  A reader
 * which finds the offset must find the zeros.
 */

uint64_t
kvr_load_piece(const kvr_load_t *l, size_t size)
{
    char      *p;
    uint32_t   piece;

    piece = kvr_arena_alloc(l->arena, (uint32_t) (size / 8));
    if (piece == 0) {
        return 0;
    }

    p = kvr_arena_at(l->arena, piece);
    kvr_zero_words(p, size / 8);

    kvr_set64(l->mem, &l->arena->zone->lent, l->arena->zone->lent
              + kvr_arena_size(l->arena, piece));

    kvr_fence(__ATOMIC_RELEASE);

    return (uint64_t) (p - l->mem->base);
}


bool
kvr_load_make(kvr_load_t *l, uint32_t holder)
{
    uint64_t          at, *part;
    kvr_load_proc_t  *p;

    if (l->slot == KVR_LOAD_NONE || holder >= l->zone->max_holders) {
        return false;
    }

    p = &l->zone->procs[l->slot];

    if (p->parts == 0) {
        at = kvr_load_piece(l, kvr_load_parts(l->zone->max_holders)
                               * sizeof(uint64_t));
        if (at == 0) {
            return false;
        }

        kvr_set64(l->mem, &p->parts, at);
    }

    part = (uint64_t *) (l->mem->base + p->parts) + holder / KVR_LOAD_ROWS;

    if (*part == 0) {
        at = kvr_load_piece(l, KVR_LOAD_ROWS * sizeof(kvr_load_row_t));
        if (at == 0) {
            return false;
        }

        kvr_set64(l->mem, part, at);
    }

    return true;
}


void
kvr_load_join(kvr_load_t *l, kvr_owner_t self)
{
    uint32_t          i, slot;
    kvr_load_zone_t  *z;

    z = l->zone;
    l->self = self;

    slot = KVR_LOAD_NONE;

    for (i = KVR_LOAD_PROCS; i-- > 0; /* void */ ) {
        if (z->procs[i].owner == 0 || z->procs[i].owner == self) {
            slot = i;
        }
    }

    l->slot = slot;

    if (slot == KVR_LOAD_NONE) {
        return;
    }

    kvr_set64(l->mem, &z->procs[slot].owner, self);

    if (slot >= z->nprocs) {
        kvr_set32(l->mem, &z->nprocs, slot + 1);
    }
}


void
kvr_load_leave(kvr_load_t *l)
{
    if (l->slot == KVR_LOAD_NONE) {
        return;
    }

    kvr_load_zero(l, l->slot);
    kvr_set64(l->mem, &l->zone->procs[l->slot].owner, 0);

    l->slot = KVR_LOAD_NONE;
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

    return n;
}


kvr_owner_t
kvr_load_beat(kvr_load_t *l, uint64_t now_ms, uint64_t stuck_ms)
{
    uint32_t          i, n;
    uint64_t          last, beat;
    kvr_owner_t       owner;
    kvr_load_proc_t  *p;

    if (l->slot == KVR_LOAD_NONE) {
        return 0;
    }

    p = &l->zone->procs[l->slot];

    last = kvr_load64(&p->beat_ms);
    kvr_put64(&p->beat_ms, now_ms);

    if (now_ms == 0 || now_ms - last > KVR_LOAD_BEAT_MS) {
        return 0;
    }

    n = kvr_load32(&l->zone->nprocs);

    for (i = 0; i < n; i++) {
        p = &l->zone->procs[i];
        beat = kvr_load64(&p->beat_ms);

        if (beat == 0 || now_ms < beat + stuck_ms) {
            continue;
        }

        owner = kvr_load64(&p->owner);

        if (owner && kvr_owner_alive(owner)
            && __atomic_compare_exchange_n(&p->beat_ms, &beat, 0, false,
                                           __ATOMIC_RELAXED,
                                           __ATOMIC_RELAXED))
        {
            return owner;
        }
    }

    return 0;
}


static void
kvr_load_zero(const kvr_load_t *l, uint32_t slot)
{
    uint32_t         i;
    kvr_load_row_t  *row;

    __atomic_store_n(&l->zone->procs[slot].waiting, 0, __ATOMIC_RELAXED);
    kvr_put64(&l->zone->procs[slot].beat_ms, 0);

    for (i = 0; i < l->zone->max_holders; i++) {
        row = kvr_load_row(l, slot, i);

        if (row) {
            kvr_load_begin(row, 0);
        }
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

    if (!r->counted) {
        return NULL;
    }

    row = kvr_load_row(l, l->slot, r->holder);

    return row && row->generation == r->generation ? row : NULL;
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
kvr_load_reserve(kvr_load_t *l, kvr_reservation_t *r, uint64_t now_ms)
{
    kvr_load_row_t  *row;

    r->counted = 0;
    row = kvr_load_row(l, l->slot, r->holder);

    if (row == NULL) {
        (void) __atomic_add_fetch(&l->zone->uncounted, 1, __ATOMIC_RELAXED);
        return;
    }

    if (row->generation != r->generation) {

        if ((int32_t) ((uint32_t) row->generation - r->generation) > 0) {
            /* the worker was deleted: do not touch the row of its successor */
            return;
        }

        kvr_load_begin(row, r->generation);
    }

    r->counted = 1;

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
    if (l->slot != KVR_LOAD_NONE) {
        (void) __atomic_fetch_add(&l->zone->procs[l->slot].waiting, n,
                                  __ATOMIC_RELAXED);
    }
}


uint64_t
kvr_load_waiting(const kvr_load_t *l)
{
    int64_t   sum;
    uint32_t  i, n;

    n = kvr_load32(&l->zone->nprocs);
    sum = 0;

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

    n = kvr_load32(&l->zone->nprocs);
    begun = UINT64_MAX;

    for (i = 0; i <= n; i++) {

        row = kvr_load_row(l, i < n ? i : KVR_LOAD_SELECTED, holder);

        if (row == NULL
            || __atomic_load_n(&row->generation, __ATOMIC_ACQUIRE)
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
