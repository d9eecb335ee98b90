/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Eviction: kvr_positional_make_room() when the zone is full, and
 * kvr_positional_evict() of what nobody used for a time.
 *
 * It is done by block, from all views at once, and a block on which others
 * hang is left until they are gone: so what is evicted is the end of a
 * chain, and what is left of the chain is still a prefix that can be matched.
 * A lookup stamps the deepest block that it matched and none before it: those
 * are as young as the youngest behind them.
 *
 * ROOM is made by the oldest of a sample.  When it was a piece of the arena
 * that there was no room for, and what these had was of no use for that, the
 * blocks of as many chunks in a row are evicted as the piece takes.
 *
 * What an event may cost bounds each of these two steps, so that the last two
 * may come to twice as much again: the rest of a sample, of a row of chunks
 * and of the records of a block stays then.  The next event that lacks such a
 * row goes on with this one.
 */


#include "../core/kvr_evict_sample.h"
#include "kvr_positional_evict.h"
#include "kvr_positional_steps.h"


#define KVR_EVICT_BLOCKS     64         /* of each, from its end on */
#define KVR_EVICT_COST       1024       /* of a sample; no block is evicted
                                           by half then */
#define KVR_EVICT_LINE       128        /* records looked at for one that
                                           goes */
#define KVR_EVICT_LOOK       4096       /* slots looked at for the sample */
#define KVR_EVICT_LONG       (1 << 20)  /* for the first of it */
#define KVR_EVICT_AHEAD      8          /* handles fetched ahead */
#define KVR_EVICT_ROW        8          /* chunks: a longer piece is not made
                                           room for */
#define KVR_EVICT_SLOTS      32         /* looked at for nothing, that cost
                                           as much as a record */


/*
 * A row of chunks of the arena, as a candidate for being emptied of its
 * blocks.
 */
typedef struct {
    uint32_t    first;                  /* chunk */
    uint32_t    n;                      /* chunks */
    uint32_t    held;                   /* children outside of it */
    uint32_t    age;                    /* age of the youngest block */
} kvr_evict_row_t;


static uint32_t kvr_evict_sampled(kvr_positional_t *x, uint32_t keep,
    kvr_evict_sample_t *sample, uint32_t *cost);
static uint32_t kvr_evict_blocks(kvr_positional_t *x, uint32_t keep,
    uint32_t n, const kvr_evict_sample_t *near);
static bool kvr_evict_best(const kvr_positional_t *x, uint32_t keep,
    uint32_t n, const kvr_evict_sample_t *near, kvr_evict_row_t *best);
static bool kvr_evict_look(const kvr_positional_t *x, uint32_t keep,
    kvr_evict_row_t *row);
static bool kvr_evict_inside(const kvr_evict_row_t *row, uint32_t block);
static uint32_t kvr_evict_block_age(const kvr_positional_t *x, uint32_t block);
static uint32_t kvr_evict_end(kvr_positional_t *x, uint32_t block,
    uint32_t keep);
static uint32_t kvr_evict_block(kvr_positional_t *x, uint32_t block,
    uint32_t max, uint32_t *cost);


bool
kvr_positional_make_room(kvr_positional_t *x, uint32_t keep, uint32_t *cost)
{
    uint32_t            some, room;
    kvr_evict_sample_t  sample;
    kvr_arena_want_t    want;

    want = x->arena.lack;
    x->arena.lack.class = 0;

    if (*cost >= x->cost || (want.class && want.n > KVR_EVICT_ROW)) {
        return false;
    }

    room = kvr_arena_room(&x->arena, want) + 1;
    room = kvr_min(room, KVR_ARENA_ROOM);

    some = kvr_evict_sampled(x, keep, &sample, cost);

    kvr_txn_commit(x->mem);
    kvr_positional_begin(x);

    if (kvr_arena_room(&x->arena, want) < room) {

        some += kvr_evict_blocks(x, keep, want.n, &sample);

        kvr_txn_commit(x->mem);
        kvr_positional_begin(x);
    }

    *cost += some;

    return some != 0;
}


/*
 * Evicts the oldest blocks of a sample, as the radix index does.  Here the
 * sample is what comes next in the table, where the order is random.  Returns
 * the cost, or 0 when there is no block to evict; slots looked at beyond the
 * usual number are added to *cost.
 */

static uint32_t
kvr_evict_sampled(kvr_positional_t *x, uint32_t keep,
    kvr_evict_sample_t *sample, uint32_t *cost)
{
    uint32_t  i, n, block, all;
    uint64_t  pos, look;

    sample->n = 0;
    pos = x->zone->evict_at;
    look = kvr_min(x->zone->nplaces, KVR_EVICT_LONG);

    for (i = 0;
         i < look && sample->n < KVR_EVICT_SAMPLE
         && (sample->n == 0 || i < KVR_EVICT_LOOK);
         i++)
    {
        pos = pos + 1 < x->zone->nplaces ? pos + 1 : 0;
        block = (uint32_t) (x->places[pos] >> 32);

        if (block && block != keep
            && kvr_block_at(&x->arena, block)->nchildren == 0)
        {
            kvr_evict_sample_add(sample, block, kvr_evict_block_age(x, block));
        }
    }

    kvr_set64(x->mem, &x->zone->evict_at, pos);

    *cost += (i - kvr_min(i, KVR_EVICT_LOOK)) / KVR_EVICT_SLOTS;

    n = kvr_min(sample->n, KVR_EVICT_BEST);
    all = 0;

    for (i = 0; i < n && all < KVR_EVICT_COST; i++) {
        all += kvr_evict_end(x, sample->items[i], keep);
    }

    return all;
}


/* Evicts all blocks of n chunks in a row, if possible. */

static uint32_t
kvr_evict_blocks(kvr_positional_t *x, uint32_t keep, uint32_t n,
    const kvr_evict_sample_t *near)
{
    bool             more;
    uint32_t         block, end, cost, all;
    kvr_block_t     *b;
    kvr_evict_row_t  row;

    if (!kvr_evict_best(x, keep, n, near, &row)) {
        return 0;
    }

    all = 0;
    end = (row.first + row.n) * KVR_ARENA_CHUNK;

    do {
        more = false;

        for (block = row.first * KVR_ARENA_CHUNK;
             block < end && all < x->cost;
             block += KVR_ARENA_BLOCK_WORDS)
        {
            b = kvr_block_at(&x->arena, block);

            if (kvr_arena_is(&x->arena, block, KVR_ARENA_BLOCK)
                && b->position != KVR_BLOCK_FREE && b->nchildren == 0)
            {
                (void) kvr_evict_block(x, block, x->cost - all, &cost);
                all += cost;
                more = true;
            }
        }

    } while (more && all < x->cost);

    x->emptying = more ? row.first : 0;

    return all;
}


/*
 * The row of chunks to be emptied next: the one that could not be emptied the
 * last time; or else, of the rows near the sample's blocks, the one with the
 * fewest chains that continue elsewhere, and of equal ones the oldest.  False:
 * there is none.
 */

static bool
kvr_evict_best(const kvr_positional_t *x, uint32_t keep, uint32_t n,
    const kvr_evict_sample_t *near, kvr_evict_row_t *best)
{
    uint32_t         i;
    kvr_evict_row_t  row;

    best->first = x->emptying;
    best->n = n;

    if (x->emptying && kvr_evict_look(x, keep, best)
        && best->age != UINT32_MAX)
    {
        return true;
    }

    best->n = 0;

    for (i = 0; i < near->n; i++) {

        row.first = near->items[i] / KVR_ARENA_CHUNK;
        row.n = n;

        if (kvr_evict_look(x, keep, &row)
            && (best->n == 0 || row.held < best->held
                || (row.held == best->held && row.age > best->age)))
        {
            *best = row;
        }
    }

    return best->n != 0;
}


/* Looks at a row of chunks; false: the row must not be emptied. */

static bool
kvr_evict_look(const kvr_positional_t *x, uint32_t keep,
    kvr_evict_row_t *row)
{
    uint32_t            block, end, age, inside;
    const kvr_block_t  *b;

    if (row->first + row->n > x->arena.zone->nchunks
        || kvr_evict_inside(row, keep))
    {
        return false;
    }

    row->held = 0;
    row->age = UINT32_MAX;
    inside = 0;
    end = (row->first + row->n) * KVR_ARENA_CHUNK;

    for (block = row->first * KVR_ARENA_CHUNK;
         block < end;
         block += KVR_ARENA_BLOCK_WORDS)
    {
        if (block % KVR_ARENA_CHUNK == 0
            && !kvr_arena_serves(&x->arena, block, KVR_ARENA_BLOCK))
        {
            return false;
        }

        b = kvr_block_at(&x->arena, block);

        if (kvr_arena_is(&x->arena, block, KVR_ARENA_BLOCK)
            && b->position != KVR_BLOCK_FREE)
        {
            age = kvr_evict_block_age(x, block);
            row->age = kvr_min(row->age, age);
            row->held += b->nchildren;
            inside += kvr_evict_inside(row, b->parent);
        }
    }

    row->held -= inside;

    return true;
}


static bool
kvr_evict_inside(const kvr_evict_row_t *row, uint32_t block)
{
    return block / KVR_ARENA_CHUNK - row->first < row->n;
}


/*
 * Evicts chains which are too old, block by block from their ends.  When the
 * slots for this call end in the middle of a chain, the zone records where the
 * next call continues.
 */

bool
kvr_positional_evict(kvr_positional_t *x, uint32_t age, uint32_t slots)
{
    bool      round, moved;
    uint32_t  block, cost;
    uint64_t  pos;

    pos = x->zone->evict_at;
    block = x->zone->evicting;
    round = false;
    moved = false;

    while (slots) {

        if (block && kvr_block_at(&x->arena, block)->nchildren == 0
            && kvr_evict_block_age(x, block) > age)
        {
            block = kvr_evict_block(x, block, slots, &cost);
            slots -= kvr_min(slots, cost);
            moved = true;
            continue;
        }

        slots--;

        if (moved && pos) {
            /* the deletion may have moved another block to this slot */
            pos--;
        }

        moved = false;

        if (pos >= x->zone->nplaces) {
            pos = 0;
            block = 0;
            round = true;
            break;
        }

        block = (uint32_t) (x->places[pos++] >> 32);
    }

    kvr_set64(x->mem, &x->zone->evict_at, pos);
    kvr_set32(x->mem, &x->zone->evicting, block);

    return round;
}


static uint32_t
kvr_evict_block_age(const kvr_positional_t *x, uint32_t block)
{
    return kvr_evict_age(x->now,
                         kvr_load32(&kvr_block_at(&x->arena, block)->stamp));
}


/*
 * Evicts the end of a chain, if possible back to a block that was used after
 * it; returns the cost.
 */

static uint32_t
kvr_evict_end(kvr_positional_t *x, uint32_t block, uint32_t keep)
{
    uint32_t  n, age, cost, all;

    age = kvr_evict_block_age(x, block);
    all = 0;

    for (n = 0; n < KVR_EVICT_BLOCKS; n++) {

        block = kvr_evict_block(x, block, x->cost, &cost);
        all += cost;

        if (block == 0 || block == keep || all >= KVR_EVICT_COST
            || kvr_block_at(&x->arena, block)->nchildren
            || kvr_evict_block_age(x, block) < age)
        {
            break;
        }
    }

    return all;
}


/*
 * Takes a block from all its views; returns the first block before it that
 * stays, or 0. The cost is 1, and for each record a look at the others.  When
 * the cost comes to max, the block stays, with the records that are left.
 */

static uint32_t
kvr_evict_block(kvr_positional_t *x, uint32_t block, uint32_t max,
    uint32_t *cost)
{
    uint32_t      i, mark, view, ahead;
    kvr_block_t  *b;

    b = kvr_block_at(&x->arena, block);
    *cost = 1;

    for (i = 0; i < b->n && *cost < max; /* void */ ) {

        mark = kvr_block_marks(&x->arena, b)[i];

        if (kvr_mark_tiers(mark) == 0) {
            i++;
            continue;
        }

        *cost += 1 + b->n / KVR_EVICT_LINE;

        /* the last record moves to the place of a deleted one */

        if (b->n > KVR_EVICT_AHEAD) {
            ahead = b->n - 1 - KVR_EVICT_AHEAD;
            view = kvr_mark_view(kvr_block_marks(&x->arena, b)[ahead]);

            kvr_entries_prefetch(&x->handles,
                                 kvr_block_values(&x->arena, b)[ahead], view);
        }

        kvr_positional_commit_if_low(x);
        kvr_positional_evict_record(x, block, i);
        kvr_set64(x->mem, &x->zone->forgotten, x->zone->forgotten + 1);

        if (x->evicted) {
            x->evicted(x->evicted_data, kvr_mark_view(mark), 1);
        }
    }

    block = kvr_positional_free_if_empty(x, block);
    kvr_positional_commit_if_low(x);

    return block;
}
