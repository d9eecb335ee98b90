/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TensorRT-LLM's events, from the fields that were read.
 *
 * Two things are unsaid.  The size of a block: it is a power of two, a block
 * that others follow is whole, and what is smaller than the worker's blocks
 * are known to be is partial.  And which attention window is the largest,
 * whose events alone are indexed: who asks, says what it has learned before.
 */


#include "kvr_tensorrt.h"


static kvr_rc_t kvr_tensorrt_next(kvr_decoder_t *d, kvr_event_t *ev);
static void kvr_tensorrt_judge(kvr_decoder_t *d);
static bool kvr_tensorrt_same_lora(const kvr_tensorrt_block_t *b,
    const kvr_tensorrt_block_t *before);
static bool kvr_tensorrt_partial(kvr_decoder_t *d, uint32_t tokens);
static bool kvr_tensorrt_part(kvr_decoder_t *d, kvr_event_t *ev);
static void kvr_tensorrt_other_window(kvr_decoder_t *d, kvr_event_t *ev);
static bool kvr_tensorrt_stored(kvr_decoder_t *d, kvr_event_t *ev);
static bool kvr_tensorrt_removed(kvr_decoder_t *d, kvr_event_t *ev);
static bool kvr_tensorrt_updated(kvr_decoder_t *d, kvr_event_t *ev);
static void kvr_tensorrt_remove(kvr_decoder_t *d, kvr_event_t *ev,
    kvr_tier_t tier, uint32_t n);


/* Tiers by cache level; there is no fourth level. */

#define KVR_TENSORRT_LEVELS  3

static const kvr_tier_t  kvr_tensorrt_tiers[KVR_TENSORRT_LEVELS] = {
    KVR_DEVICE, KVR_HOST, KVR_DISK
};


static const char *const  kvr_tensorrt_details[KVR_WHYS] = {
    [KVR_WHY_MEDIUM] = "unknown cache_level",
    [KVR_WHY_EXTRA_KEY] = "tokens or keys that are not plain text's",
    [KVR_WHY_LORA_ID] = "no lora_name, and no number that is the lora_id of "
                        "the block and of the one before",
    [KVR_WHY_BIGRAM] = "single tokens, and the index is of pairs (EAGLE)",
    [KVR_WHY_PARTIAL] = "the last block is partial",
    [KVR_WHY_SYNTAX] = "a block without a usable block_hash or token",
    [KVR_WHY_LENGTH] = "blocks of different sizes",
    [KVR_WHY_LIMIT] = "a block over a limit"
};


kvr_rc_t
kvr_tensorrt_open(kvr_decoder_t *d, kvr_why_t *why)
{
    d->page = 0;

    return kvr_json_events_open(d, sizeof(kvr_tensorrt_t), kvr_tensorrt_next,
                                why);
}


static kvr_rc_t
kvr_tensorrt_next(kvr_decoder_t *d, kvr_event_t *ev)
{
    uint32_t         at, source;
    kvr_rc_t         rc;
    kvr_tensorrt_t  *t;

    t = d->state.data;
    at = ev->at;
    source = ev->source;

    for ( ;; ) {

        if (!t->ready) {

            rc = kvr_json_events_next(d, &kvr_tensorrt_events, ev);

            if (rc != KVR_OK || ev->verdict != KVR_KEEP) {
                return rc;
            }

            kvr_tensorrt_judge(d);

            t->ready = true;
            t->part = 0;
        }

        if (kvr_tensorrt_part(d, ev)) {
            return KVR_OK;
        }

        t->ready = false;

        memset(ev, 0, sizeof(kvr_event_t));
        ev->rank = d->rank;
        ev->at = at;
        ev->source = source;
    }
}


/*
 * An engine that starts sends the window of each of its pools, and its event
 * numbers start at 0.  The windows of its former run are forgotten then.
 */
static void
kvr_tensorrt_window(kvr_decoder_t *d)
{
    kvr_tensorrt_t  *t;

    t = d->state.data;

    if (t->window == 0) {
        return;
    }

    if (t->window > d->conf.window
        || (t->type == KVR_TENSORRT_CREATED && t->has_id && t->id == 0))
    {
        d->conf.window = t->window;
    }
}


/* Decides for each block whether the block can be indexed. */
static void
kvr_tensorrt_judge(kvr_decoder_t *d)
{
    uint32_t               i, n, first;
    uint64_t              *handles;
    kvr_why_t              why;
    kvr_tensorrt_t        *t;
    kvr_tensorrt_block_t  *b;

    t = d->state.data;

    if (t->wrong != KVR_WHY_NONE) {
        return;
    }

    if (t->type != KVR_TENSORRT_UNKNOWN) {
        kvr_tensorrt_window(d);
    }

    if (t->window == 0 || t->window >= d->conf.window) {

        /* an event of another window is filtered first */

        if (t->type == KVR_TENSORRT_STORED && !t->has_blocks) {
            kvr_tensorrt_wrong(t, KVR_WHY_SYNTAX, "a store without blocks");
        }

        if (t->type == KVR_TENSORRT_REMOVED && !t->has_hashes) {
            kvr_tensorrt_wrong(t, KVR_WHY_SYNTAX,
                               "a removal without block_hashes");
        }
    }

    if (t->type != KVR_TENSORRT_STORED) {
        return;
    }

    b = d->blocks.data;
    n = t->nblocks;

    handles = kvr_scratch_reserve(&d->handles, n * sizeof(uint64_t));
    if (handles == NULL && n != 0) {
        kvr_tensorrt_wrong(t, KVR_WHY_LIMIT, "out of memory");
        return;
    }

    first = (n != 0) ? b[0].tokens : 0;

    if (n > 1 && first != 0) {
        d->page = first;
    }

    why = KVR_WHY_NONE;

    for (i = 0; i < n; i++) {

        handles[i] = b[i].hash;

        if (i != 0) {
            first = b[i].tokens - b[i - 1].tokens;
        }

        if (b[i].why == KVR_WHY_NONE && t->lora_len == 0
            && !kvr_tensorrt_same_lora(&b[i], i != 0 ? &b[i - 1] : NULL))
        {
            b[i].why = KVR_WHY_LORA_ID;
        }

        if (b[i].why == KVR_WHY_NONE && !b[i].has_hash) {
            b[i].why = KVR_WHY_SYNTAX;
        }

        if (b[i].why == KVR_WHY_NONE && b[i].level >= KVR_TENSORRT_LEVELS) {
            b[i].why = KVR_WHY_MEDIUM;
        }

        if (b[i].why == KVR_WHY_NONE && t->ntokens != 0) {

            if (d->conf.contract.pairs) {
                b[i].why = KVR_WHY_BIGRAM;

            } else if (i == n - 1 && kvr_tensorrt_partial(d, first)) {
                b[i].why = KVR_WHY_PARTIAL;

            } else if (n > 1 && first != d->page) {
                b[i].why = KVR_WHY_LENGTH;

            } else if (first > KVR_BLOCK_SIZE_MAX) {
                b[i].why = KVR_WHY_LIMIT;
            }
        }

        /* blocks behind a missing block have no parent */

        if (why != KVR_WHY_NONE) {
            b[i].why = why;
        }

        why = b[i].why;
    }
}


/*
 * Has the block no LoRA, or a LoRA that the engine only gives as a number, and
 * is it the LoRA of the block before? before is NULL for the first block.
 */
static bool
kvr_tensorrt_same_lora(const kvr_tensorrt_block_t *b,
    const kvr_tensorrt_block_t *before)
{
    if (b->lora == KVR_LORA_OTHER) {
        return false;
    }

    return before == NULL
           || (b->lora == before->lora && b->lora_id == before->lora_id);
}


static bool
kvr_tensorrt_partial(kvr_decoder_t *d, uint32_t tokens)
{
    if (d->page != 0) {
        return tokens < d->page;
    }

    return tokens < 2 || (tokens & (tokens - 1)) != 0
           || tokens < d->conf.contract.block_size;
}


/* Makes the next event out of the one that was read; false: none. */
static bool
kvr_tensorrt_part(kvr_decoder_t *d, kvr_event_t *ev)
{
    kvr_tensorrt_t  *t;

    t = d->state.data;

    ev->rank = t->rank;
    ev->has_event_id = t->has_id;
    ev->event_id = t->id;
    ev->window = d->conf.window;

    if (t->part == 0
        && (t->wrong != KVR_WHY_NONE || t->type == KVR_TENSORRT_UNKNOWN))
    {
        t->part++;

        if (t->wrong == KVR_WHY_NONE) {
            kvr_tensorrt_wrong(t, KVR_WHY_TYPE,
                               "event type is missing or unknown");
        }

        (void) kvr_event_refuse(d, ev, t->wrong, t->detail);
        return true;
    }

    if (t->wrong != KVR_WHY_NONE) {
        return false;
    }

    if (t->type == KVR_TENSORRT_CREATED) {

        ev->kind = (t->has_id && t->id == 0) ? KVR_CLEAR : KVR_STORE;

        return t->part++ == 0;
    }

    if (t->window != 0 && t->window < d->conf.window) {

        kvr_tensorrt_other_window(d, ev);

        return t->part++ == 0;
    }

    switch (t->type) {

    case KVR_TENSORRT_STORED:
        return kvr_tensorrt_stored(d, ev);

    case KVR_TENSORRT_REMOVED:
        return kvr_tensorrt_removed(d, ev);

    default: /* KVR_TENSORRT_UPDATED */
        return kvr_tensorrt_updated(d, ev);
    }
}


/* Gives an event of another window a group number that is not 0. */
static void
kvr_tensorrt_other_window(kvr_decoder_t *d, kvr_event_t *ev)
{
    kvr_tensorrt_t  *t;

    t = d->state.data;

    ev->kind = (t->type == KVR_TENSORRT_REMOVED) ? KVR_REMOVE : KVR_STORE;
    ev->group = t->window;
    ev->group_kind = KVR_GROUP_OTHER;
    ev->handles = d->handles.data;
    ev->nhandles = (t->type == KVR_TENSORRT_REMOVED) ? t->nhashes
                   : (t->type == KVR_TENSORRT_STORED) ? t->nblocks : 0;

    (void) kvr_event_filter(d, ev, KVR_WHY_GROUP,
                            "not the largest attention window");
}


/* Makes an event of consecutive blocks that are in one tier. */
static bool
kvr_tensorrt_stored(kvr_decoder_t *d, kvr_event_t *ev)
{
    uint32_t               i, first, *mm_start;
    kvr_why_t              why;
    const uint64_t        *handles;
    kvr_tensorrt_t        *t;
    kvr_tensorrt_block_t  *b;

    t = d->state.data;
    b = d->blocks.data;

    ev->kind = KVR_STORE;

    if (t->nblocks == 0) {
        return t->part++ == 0;
    }

    if (t->part == t->nblocks) {
        return false;
    }

    first = t->part;
    why = b[first].why;

    for (i = first + 1; i < t->nblocks; i++) {
        if (b[i].why != why
            || (why == KVR_WHY_NONE && b[i].level != b[first].level))
        {
            break;
        }
    }

    t->part = i;
    ev->more = i < t->nblocks;

    handles = d->handles.data;

    ev->handles = handles + first;
    ev->nhandles = i - first;

    if (b[first].level < KVR_TENSORRT_LEVELS) {
        ev->tier = kvr_tensorrt_tiers[b[first].level];
    }

    ev->has_parent = (first != 0) ? b[first - 1].has_hash : t->has_parent;
    ev->parent = (first != 0) ? handles[first - 1] : t->parent;

    ev->ntokens = b[i - 1].tokens - (first != 0 ? b[first - 1].tokens : 0);

    if (ev->ntokens != 0) {
        ev->tokens = (const uint32_t *) d->tokens.data
                     + (first != 0 ? b[first - 1].tokens : 0);
        ev->block_size = ev->ntokens / ev->nhandles;
        ev->lora_name = d->lora.data;
        ev->lora_len = t->lora_len;
        ev->cache_salt = d->salt.data;
        ev->salt_len = t->salt_len;

        if (t->lora_len == 0 && b[first].lora == KVR_LORA_NUMBER) {
            kvr_event_lora_id(d, ev, b[first].lora_id);
        }
    }

    if (why != KVR_WHY_NONE) {

        if (why < KVR_WHY_SYNTAX) {
            (void) kvr_event_filter(d, ev, why, kvr_tensorrt_details[why]);

        } else {
            (void) kvr_event_refuse(d, ev, why, kvr_tensorrt_details[why]);
        }

        return true;
    }

    if (ev->ntokens == 0 || t->nmm == 0) {
        return true;
    }

    mm_start = kvr_scratch_reserve(&d->mm_start,
                                   (ev->nhandles + 1) * sizeof(uint32_t));
    if (mm_start == NULL) {
        (void) kvr_event_refuse(d, ev, KVR_WHY_LIMIT, "out of memory");
        return true;
    }

    for (i = 0; i <= ev->nhandles; i++) {
        mm_start[i] = (first + i != 0) ? b[first + i - 1].mm : 0;
    }

    if (mm_start[0] != mm_start[ev->nhandles]) {
        ev->mm = d->mm.data;
        ev->mm_start = mm_start;
    }

    return true;
}


/* Removes the block from all tiers. */
static bool
kvr_tensorrt_removed(kvr_decoder_t *d, kvr_event_t *ev)
{
    kvr_tensorrt_t  *t;

    t = d->state.data;

    if (t->part == KVR_TENSORRT_LEVELS) {
        return false;
    }

    ev->handles = d->handles.data;
    ev->everywhere = true;
    kvr_tensorrt_remove(d, ev, kvr_tensorrt_tiers[t->part++], t->nhashes);
    ev->more = t->part < KVR_TENSORRT_LEVELS;

    return true;
}


/*
 * A block that moves to another level is stored there first, and removed from
 * its old level then.
 */
static bool
kvr_tensorrt_updated(kvr_decoder_t *d, kvr_event_t *ev)
{
    bool             moved, leaves;
    kvr_tensorrt_t  *t;

    t = d->state.data;
    moved = t->has_new && !(t->has_old && t->old_level == t->new_level);

    leaves = moved && t->has_hash && t->has_old
             && t->old_level < KVR_TENSORRT_LEVELS;

    ev->kind = KVR_STORE;
    ev->handles = &t->hash;
    ev->nhandles = 1;

    switch (t->part++) {

    case 0:
        ev->more = leaves;

        if (!moved) {

            /* only the priority changed, which the index does not use */

            ev->handles = NULL;
            ev->nhandles = 0;
            return true;
        }

        if (!t->has_hash) {
            (void) kvr_event_refuse(d, ev, KVR_WHY_SYNTAX,
                                    "an update without block_hash");
            return true;
        }

        if (t->new_level >= KVR_TENSORRT_LEVELS) {
            (void) kvr_event_filter(d, ev, KVR_WHY_MEDIUM,
                                    kvr_tensorrt_details[KVR_WHY_MEDIUM]);
            return true;
        }

        ev->tier = kvr_tensorrt_tiers[t->new_level];
        return true;

    case 1:
        if (!leaves) {
            return false;
        }

        kvr_tensorrt_remove(d, ev, kvr_tensorrt_tiers[t->old_level], 1);
        return true;

    default:
        return false;
    }
}


/*
 * Sets the number of copies left after a removal to 0: the engine counts a
 * block once.
 */

static void
kvr_tensorrt_remove(kvr_decoder_t *d, kvr_event_t *ev, kvr_tier_t tier,
    uint32_t n)
{
    uint32_t  *remaining;

    ev->kind = KVR_REMOVE;
    ev->tier = tier;
    ev->nhandles = n;

    remaining = kvr_scratch_reserve(&d->remaining, n * sizeof(uint32_t));

    if (remaining != NULL && n != 0) {
        memset(remaining, 0, n * sizeof(uint32_t));
        ev->remaining = remaining;
    }
}
