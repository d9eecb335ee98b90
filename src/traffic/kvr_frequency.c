/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_frequency.h"
#include "../core/kvr_table.h"


#define KVR_FREQUENCY_LOW     0xffffffu     /* 24 bits: a bucket, a count */
#define KVR_FREQUENCY_AHEAD   8             /* blocks, for each of two steps */


/*
 * A block on its way: first its set is fetched, then its slot's counts.  Its
 * name is the tag that it has when it is asked for now.
 */
typedef struct {
    uint64_t              name;
    kvr_frequency_set_t  *set;
    uint32_t              slot;
} kvr_frequency_block_t;


static void kvr_frequency_slot(kvr_frequency_zone_t *z,
    kvr_frequency_block_t *b);
static bool kvr_frequency_take(kvr_frequency_block_t *b, uint64_t was);
static uint32_t kvr_frequency_sum(const kvr_frequency_block_t *b);
static void kvr_frequency_add(kvr_frequency_block_t *b);


#define kvr_frequency_load(p)                                                \
    __atomic_load_n(p, __ATOMIC_RELAXED)

#define kvr_frequency_swap(p, old, new)                                      \
    __atomic_compare_exchange_n(p, &(old), new, false, __ATOMIC_RELAXED,     \
                                __ATOMIC_RELAXED)


/*
 * The number of buckets from one time to another; both are in the low 24 bits
 * of the arguments.  Below 0: `now` is earlier, because a process's clock is
 * late.
 */

static inline int32_t
kvr_frequency_age(uint64_t then, uint64_t now)
{
    return (int32_t) ((uint32_t) (now - then) << 8) >> 8;
}


static inline bool
kvr_frequency_in_window(int32_t age)
{
    return age < KVR_FREQUENCY_BUCKETS && age >= -KVR_FREQUENCY_BUCKETS;
}


/* The 16 bits of a tag that are kept with its counts. */

static inline uint64_t
kvr_frequency_check(uint64_t name)
{
    return name >> 24 & 0xffff;
}


/* Does this word of counts belong to the block, and is it in the window? */

static inline bool
kvr_frequency_live(uint64_t word, uint64_t name)
{
    return word >> 48 == kvr_frequency_check(name)
           && (word & KVR_FREQUENCY_LOW) != 0
           && kvr_frequency_in_window(kvr_frequency_age(word >> 24, name));
}


void
kvr_frequency_format(kvr_frequency_zone_t *z, char *base, uint64_t at,
    uint64_t size, uint32_t window_ms, const uint64_t secret[2])
{
    memset(z, 0, sizeof(kvr_frequency_zone_t));

    z->sets = at;
    z->nsets = size / sizeof(kvr_frequency_set_t);
    z->secret[0] = secret[0];
    z->secret[1] = secret[1] | 1;
    z->bucket_ms = (window_ms + KVR_FREQUENCY_BUCKETS - 2)
                   / (KVR_FREQUENCY_BUCKETS - 1);

    memset(base + at, 0, size);
}


uint32_t
kvr_frequency_touch(kvr_frequency_zone_t *z, char *base,
    const uint64_t *locals, uint32_t n, uint64_t now_ms, uint32_t *out)
{
    uint32_t                i;
    uint64_t                bucket, hash;
    kvr_frequency_set_t    *sets;
    kvr_frequency_block_t  *b, ring[2 * KVR_FREQUENCY_AHEAD];

    if (n > KVR_FREQUENCY_DEPTH) {
        (void) __atomic_fetch_add(&z->cut, 1, __ATOMIC_RELAXED);
        n = KVR_FREQUENCY_DEPTH;
    }

    sets = (kvr_frequency_set_t *) (base + z->sets);
    bucket = now_ms / z->bucket_ms & KVR_FREQUENCY_LOW;
    hash = 0;

    for (i = 0; i < n + 2 * KVR_FREQUENCY_AHEAD; i++) {

        b = &ring[i % (2 * KVR_FREQUENCY_AHEAD)];

        if (i >= 2 * KVR_FREQUENCY_AHEAD) {
            out[i - 2 * KVR_FREQUENCY_AHEAD] = kvr_frequency_sum(b);
            kvr_frequency_add(b);
        }

        if (i < n) {
            hash = kvr_table_mix(hash ^ locals[i] ^ z->secret[0],
                                 z->secret[1]);

            /*
             * the hash's high half chooses the set; its low 40 bits are the
             * tag's
             */

            b->set = sets + kvr_table_home(hash, z->nsets);
            b->name = hash << 24 | bucket;
            b->name += b->name >> 24 == 0 ? 1u << 24 : 0;

            __builtin_prefetch(b->set->tags, 1);
        }

        if (i >= KVR_FREQUENCY_AHEAD && i < n + KVR_FREQUENCY_AHEAD) {
            b = &ring[(i - KVR_FREQUENCY_AHEAD) % (2 * KVR_FREQUENCY_AHEAD)];

            kvr_frequency_slot(z, b);

            __builtin_prefetch(b->set->counts[b->slot], 1);
        }
    }

    return n;
}


/*
 * Finds or takes the slot of a block.  Slots are taken in order, and no slot
 * becomes free again: a block is before the first free slot or nowhere, and
 * processes that take a slot for the same block at the same time try to take
 * the same one. When the exchange fails, another process has taken the slot or
 * counted in it: there are no more rounds than processes doing so at that
 * moment.
 */

static void
kvr_frequency_slot(kvr_frequency_zone_t *z, kvr_frequency_block_t *b)
{
    int32_t    age, idle;
    uint32_t   i;
    uint64_t   t, was, *tags;

    tags = b->set->tags;

    for ( ;; ) {

        idle = -1;
        was = 0;

        for (i = 0; i < KVR_FREQUENCY_WAYS && idle != INT32_MAX; i++) {

            t = kvr_frequency_load(&tags[i]);
            age = kvr_frequency_age(t, b->name);

            if (t >> 24 == b->name >> 24) {
                b->slot = i;

                if (age > 0 || !kvr_frequency_in_window(age)) {
                    (void) kvr_frequency_swap(&tags[i], t, b->name);
                }

                return;
            }

            if (t == 0) {
                age = INT32_MAX;

            } else if (!kvr_frequency_in_window(age)) {
                age = KVR_FREQUENCY_BUCKETS;

            } else {
                age = kvr_max(age, 0);
            }

            if (age > idle) {
                idle = age;
                b->slot = i;
                was = t;
            }
        }

        if (kvr_frequency_take(b, was)) {

            if (idle < KVR_FREQUENCY_BUCKETS) {
                (void) __atomic_fetch_add(&z->replaced, 1, __ATOMIC_RELAXED);
            }

            return;
        }
    }
}


/*
 * Takes the slot from the block with tag `was`. Old words of counts which
 * happen to have the new block's 16 bits are emptied.  Only words read before
 * the exchange are: other processes may count in the slot as soon as it is
 * taken.
 */

static bool
kvr_frequency_take(kvr_frequency_block_t *b, uint64_t was)
{
    uint32_t  i;
    uint64_t  words[KVR_FREQUENCY_BUCKETS], *counts;

    counts = b->set->counts[b->slot];

    for (i = 0; i < KVR_FREQUENCY_BUCKETS; i++) {
        words[i] = kvr_frequency_load(&counts[i]);
    }

    if (!kvr_frequency_swap(&b->set->tags[b->slot], was, b->name)) {
        return false;
    }

    for (i = 0; i < KVR_FREQUENCY_BUCKETS; i++) {
        if (words[i] && words[i] >> 48 == kvr_frequency_check(b->name)) {
            (void) kvr_frequency_swap(&counts[i], words[i], 0);
        }
    }

    return true;
}


static uint32_t
kvr_frequency_sum(const kvr_frequency_block_t *b)
{
    uint32_t         i, sum;
    uint64_t         word;
    const uint64_t  *counts;

    counts = b->set->counts[b->slot];
    sum = 0;

    for (i = 0; i < KVR_FREQUENCY_BUCKETS; i++) {
        word = kvr_frequency_load(&counts[i]);

        if (kvr_frequency_live(word, b->name)) {
            sum += word & KVR_FREQUENCY_LOW;
        }
    }

    return sum;
}


static void
kvr_frequency_add(kvr_frequency_block_t *b)
{
    uint64_t  word, next, *p;

    p = &b->set->counts[b->slot][b->name % KVR_FREQUENCY_BUCKETS];
    word = kvr_frequency_load(p);

    do {
        if (kvr_frequency_live(word, b->name)) {

            if (kvr_frequency_age(word >> 24, b->name) != 0) {
                return;             /* this process is a whole window late */
            }

            if ((word & KVR_FREQUENCY_LOW) == KVR_FREQUENCY_LOW) {
                return;
            }

            next = word + 1;

        } else if (kvr_frequency_load(&b->set->tags[b->slot]) >> 24
                   == b->name >> 24)
        {
            next = b->name << 24 | 1;

        } else {
            return;                 /* the slot belongs to another block now */
        }

    } while (!kvr_frequency_swap(p, word, next));
}
