/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Forgetting: kvr_positional_make_room() when the zone is full, and
 * kvr_positional_forget() of what nobody used for a time.
 *
 * It is done by block, from all views at once, and a block on which others
 * hang is left until they are gone: so what is forgotten is the end of a
 * chain, and what is left of the chain is still a prefix that can be matched.
 * A lookup stamps the deepest block that it matched and none before it: those
 * are as young as the youngest behind them.
 */


#include "kvr_oldest.h"
#include "kvr_positional_steps.h"


#define KVR_FORGET_BLOCKS    64         /* of each, from its end on */
#define KVR_FORGET_RECORDS   4096       /* of all; a block is not forgotten by
                                           half then */
#define KVR_FORGET_LINE      16         /* records of a line */
#define KVR_FORGET_LOOK      4096       /* slots looked at for the sample */
#define KVR_FORGET_LONG      (1 << 20)  /* for the first of it */


static uint32_t kvr_forget_age(const kvr_positional_t *x, uint32_t block);
static uint32_t kvr_forget_end(kvr_positional_t *x, uint32_t block,
    uint32_t keep);
static uint32_t kvr_forget_block(kvr_positional_t *x, uint32_t block,
    uint32_t max, uint32_t *cost);


/*
 * The oldest of a sample, as kvr_radix_make_room() does it.  Here the sample
 * is what comes next in the table, whose order is by chance.
 */

bool
kvr_positional_make_room(kvr_positional_t *x, uint32_t keep)
{
    uint32_t      i, block, cost;
    uint64_t      pos, look;
    kvr_oldest_t  oldest;

    oldest.n = 0;
    pos = x->zone->forget_at;
    look = kvr_min(x->zone->nplaces, KVR_FORGET_LONG);

    for (i = 0;
         i < look && oldest.n < KVR_OLDEST_SAMPLE
         && (oldest.n == 0 || i < KVR_FORGET_LOOK);
         i++)
    {
        pos = pos + 1 < x->zone->nplaces ? pos + 1 : 0;
        block = (uint32_t) (x->places[pos] >> 32);

        if (block && block != keep
            && kvr_block_at(&x->arena, block)->nchildren == 0)
        {
            kvr_oldest_add(&oldest, block, kvr_forget_age(x, block));
        }
    }

    kvr_set64(x->mem, &x->zone->forget_at, pos);

    cost = 0;

    for (i = 0;
         i < kvr_min(oldest.n, KVR_OLDEST_BEST) && cost < KVR_FORGET_RECORDS;
         i++)
    {
        cost += kvr_forget_end(x, oldest.items[i], keep);
    }

    kvr_txn_commit(x->mem);
    kvr_positional_begin(x);

    return oldest.n != 0;
}


/*
 * A chain that is too old goes block by block from its end; where the slots
 * end in the middle of it, the zone remembers where to go on.
 */

bool
kvr_positional_forget(kvr_positional_t *x, uint32_t age, uint32_t slots)
{
    bool      round, moved;
    uint32_t  block, cost;
    uint64_t  pos;

    pos = x->zone->forget_at;
    block = x->zone->forgetting;
    round = false;
    moved = false;

    while (slots) {

        if (block && kvr_block_at(&x->arena, block)->nchildren == 0
            && kvr_forget_age(x, block) > age)
        {
            block = kvr_forget_block(x, block, slots, &cost);
            slots -= kvr_min(slots, cost);
            moved = true;
            continue;
        }

        slots--;

        if (moved && pos) {
            /* another may be in the slot by now */
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

    kvr_set64(x->mem, &x->zone->forget_at, pos);
    kvr_set32(x->mem, &x->zone->forgetting, block);

    return round;
}


static uint32_t
kvr_forget_age(const kvr_positional_t *x, uint32_t block)
{
    return kvr_oldest_age(x->now,
                          kvr_load32(&kvr_block_at(&x->arena, block)->stamp));
}


/* The end of a chain, up to a block that was used after it; what it cost. */

static uint32_t
kvr_forget_end(kvr_positional_t *x, uint32_t block, uint32_t keep)
{
    uint32_t  n, age, cost, all;

    age = kvr_forget_age(x, block);
    all = 0;

    for (n = 0; n < KVR_FORGET_BLOCKS; n++) {

        block = kvr_forget_block(x, block, UINT32_MAX, &cost);
        all += cost;

        if (block == 0 || block == keep || all >= KVR_FORGET_RECORDS
            || kvr_block_at(&x->arena, block)->nchildren
            || kvr_forget_age(x, block) < age)
        {
            break;
        }
    }

    return all;
}


/*
 * Takes it from all views; the first block before it that stays, or 0.  What
 * that costs is 1, and for each record the lines of the others; where it comes
 * to max, the block itself stays, with what is left.
 */

static uint32_t
kvr_forget_block(kvr_positional_t *x, uint32_t block, uint32_t max,
    uint32_t *cost)
{
    uint32_t      i, mark;
    kvr_block_t  *b;

    b = kvr_block_at(&x->arena, block);
    *cost = 1;

    for (i = 0; i < b->n && *cost < max; /* void */ ) {

        mark = kvr_block_marks(&x->arena, b)[i];

        if (kvr_mark_tiers(mark) == 0) {
            i++;
            continue;
        }

        *cost += 1 + b->n / KVR_FORGET_LINE;

        kvr_positional_breathe(x);
        kvr_positional_expel(x, block, i);
        kvr_set64(x->mem, &x->zone->forgotten, x->zone->forgotten + 1);

        if (x->forgot) {
            x->forgot(x->forgot_data, kvr_mark_view(mark), 1);
        }
    }

    block = kvr_positional_tidy(x, block);
    kvr_positional_breathe(x);

    return block;
}
