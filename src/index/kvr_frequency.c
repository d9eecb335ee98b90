/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_frequency.h"
#include "kvr_table.h"


#define KVR_FREQUENCY_COUNT   0xffffffu     /* the low 24 bits */
#define KVR_FREQUENCY_AHEAD   8             /* slots fetched while counting */


static inline uint64_t kvr_frequency_check(uint64_t tag);
static inline uint64_t kvr_frequency_word(uint64_t tag, uint64_t bucket,
    uint64_t n);
static inline int32_t kvr_frequency_age(uint64_t word, uint64_t bucket);
static inline bool kvr_frequency_live(uint64_t word, uint64_t tag,
    uint64_t bucket);
static kvr_frequency_slot_t *kvr_frequency_slot(kvr_frequency_zone_t *z,
    kvr_frequency_slot_t *set, uint64_t tag, uint64_t bucket);
static int32_t kvr_frequency_idle(const kvr_frequency_slot_t *s, uint64_t tag,
    uint64_t bucket);
static void kvr_frequency_clean(kvr_frequency_slot_t *s, uint64_t tag);
static uint32_t kvr_frequency_sum(const kvr_frequency_slot_t *s, uint64_t tag,
    uint64_t bucket);
static void kvr_frequency_add(kvr_frequency_slot_t *s, uint64_t tag,
    uint64_t bucket);


#define kvr_frequency_load(p)                                                \
    __atomic_load_n(p, __ATOMIC_RELAXED)

#define kvr_frequency_swap(p, old, new)                                      \
    __atomic_compare_exchange_n(p, &(old), new, false, __ATOMIC_RELAXED,     \
                                __ATOMIC_RELAXED)


void
kvr_frequency_format(kvr_frequency_zone_t *z, char *base, uint64_t at,
    uint64_t size, uint32_t window_ms, const uint64_t secret[2])
{
    memset(z, 0, sizeof(kvr_frequency_zone_t));

    z->slots = at;
    z->nsets = size / (KVR_FREQUENCY_WAYS * sizeof(kvr_frequency_slot_t));
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
    uint32_t               i;
    uint64_t               bucket, tag;
    uint64_t               tags[KVR_FREQUENCY_AHEAD];
    kvr_frequency_slot_t  *slots, *sets[KVR_FREQUENCY_AHEAD], *set, *s;

    if (n > KVR_FREQUENCY_DEPTH) {
        (void) __atomic_fetch_add(&z->cut, 1, __ATOMIC_RELAXED);
        n = KVR_FREQUENCY_DEPTH;
    }

    slots = (kvr_frequency_slot_t *) (base + z->slots);
    bucket = now_ms / z->bucket_ms;
    tag = 0;

    for (i = 0; i < n + KVR_FREQUENCY_AHEAD; i++) {

        if (i >= KVR_FREQUENCY_AHEAD) {
            set = sets[i % KVR_FREQUENCY_AHEAD];

            s = kvr_frequency_slot(z, set, tags[i % KVR_FREQUENCY_AHEAD],
                                   bucket);

            out[i - KVR_FREQUENCY_AHEAD]
                = kvr_frequency_sum(s, tags[i % KVR_FREQUENCY_AHEAD], bucket);
            kvr_frequency_add(s, tags[i % KVR_FREQUENCY_AHEAD], bucket);
        }

        if (i < n) {
            tag = kvr_table_mix(tag ^ locals[i] ^ z->secret[0], z->secret[1]);
            tag += tag == 0;

            set = slots + kvr_table_home(tag, z->nsets) * KVR_FREQUENCY_WAYS;

            tags[i % KVR_FREQUENCY_AHEAD] = tag;
            sets[i % KVR_FREQUENCY_AHEAD] = set;

            __builtin_prefetch(&set[tag % KVR_FREQUENCY_WAYS], 1);
        }
    }

    return n;
}


/* ---- slots -------------------------------------------------------------- */

/*
 * The slot of a tag, found or taken.  Slots are tried in an order that the tag
 * gives.  None becomes free again, so that a block is in front of the first
 * free one or nowhere, and processes that take a slot for the same block at
 * the same time take the same.
 *
 * When the exchange fails, another process took the slot: there are no more
 * rounds than processes that are in this set just now.
 */

static kvr_frequency_slot_t *
kvr_frequency_slot(kvr_frequency_zone_t *z, kvr_frequency_slot_t *set,
    uint64_t tag, uint64_t bucket)
{
    int32_t                idle, most;
    uint32_t               i;
    uint64_t               t, was;
    kvr_frequency_slot_t  *s, *chosen;

    for ( ;; ) {

        chosen = NULL;
        most = -1;
        was = 0;

        for (i = 0; i < KVR_FREQUENCY_WAYS; i++) {

            s = &set[(tag + i) % KVR_FREQUENCY_WAYS];
            t = kvr_frequency_load(&s->tag);

            if (t == tag) {
                return s;
            }

            idle = t == 0 ? INT32_MAX : kvr_frequency_idle(s, t, bucket);

            if (idle > most) {
                chosen = s;
                most = idle;
                was = t;
            }

            if (t == 0) {
                break;
            }
        }

        if (kvr_frequency_swap(&chosen->tag, was, tag)) {

            if (most < KVR_FREQUENCY_BUCKETS) {
                (void) __atomic_fetch_add(&z->replaced, 1, __ATOMIC_RELAXED);
            }

            kvr_frequency_clean(chosen, tag);

            return chosen;
        }
    }
}


/* Buckets since the block was asked for, 0 or more. */

static int32_t
kvr_frequency_idle(const kvr_frequency_slot_t *s, uint64_t tag,
    uint64_t bucket)
{
    int32_t   age, idle;
    uint32_t  i;
    uint64_t  word;

    idle = KVR_FREQUENCY_BUCKETS;

    for (i = 0; i < KVR_FREQUENCY_BUCKETS; i++) {
        word = kvr_frequency_load(&s->counts[i]);

        if (kvr_frequency_live(word, tag, bucket)) {
            age = kvr_frequency_age(word, bucket);
            idle = kvr_min(idle, kvr_max(age, 0));
        }
    }

    return idle;
}


/* What was counted for a tag that happens to have the same check. */

static void
kvr_frequency_clean(kvr_frequency_slot_t *s, uint64_t tag)
{
    uint32_t  i;
    uint64_t  word;

    for (i = 0; i < KVR_FREQUENCY_BUCKETS; i++) {
        word = kvr_frequency_load(&s->counts[i]);

        if (word >> 48 == kvr_frequency_check(tag)) {
            (void) kvr_frequency_swap(&s->counts[i], word, 0);
        }
    }
}


/* ---- counts ------------------------------------------------------------- */

/* The tag's high half chose the set, its last bits the slot. */

static inline uint64_t
kvr_frequency_check(uint64_t tag)
{
    return tag >> 8 & 0xffff;
}


static inline uint64_t
kvr_frequency_word(uint64_t tag, uint64_t bucket, uint64_t n)
{
    return kvr_frequency_check(tag) << 48
           | (bucket & KVR_FREQUENCY_COUNT) << 24 | n;
}


/* Buckets passed since that of the word; below 0: it is yet to come. */

static inline int32_t
kvr_frequency_age(uint64_t word, uint64_t bucket)
{
    return (int32_t) ((uint32_t) (bucket - (word >> 24)) << 8) >> 8;
}


/* Is it of this tag, in the window, or ahead of a clock that is late? */

static inline bool
kvr_frequency_live(uint64_t word, uint64_t tag, uint64_t bucket)
{
    int32_t  age;

    age = kvr_frequency_age(word, bucket);

    return word >> 48 == kvr_frequency_check(tag)
           && (word & KVR_FREQUENCY_COUNT) != 0
           && age < KVR_FREQUENCY_BUCKETS && age >= -KVR_FREQUENCY_BUCKETS;
}


static uint32_t
kvr_frequency_sum(const kvr_frequency_slot_t *s, uint64_t tag, uint64_t bucket)
{
    uint32_t  i, sum;
    uint64_t  word;

    sum = 0;

    for (i = 0; i < KVR_FREQUENCY_BUCKETS; i++) {
        word = kvr_frequency_load(&s->counts[i]);

        if (kvr_frequency_live(word, tag, bucket)) {
            sum += word & KVR_FREQUENCY_COUNT;
        }
    }

    return sum;
}


static void
kvr_frequency_add(kvr_frequency_slot_t *s, uint64_t tag, uint64_t bucket)
{
    uint64_t   word, next, *p;

    p = &s->counts[bucket % KVR_FREQUENCY_BUCKETS];
    word = kvr_frequency_load(p);

    do {
        next = kvr_frequency_word(tag, bucket, 1);

        if (kvr_frequency_live(word, tag, bucket)) {

            if (kvr_frequency_age(word, bucket) < 0) {
                return;             /* a window late */
            }

            if ((word & KVR_FREQUENCY_COUNT) == KVR_FREQUENCY_COUNT) {
                return;
            }

            next = word + 1;
        }

    } while (!kvr_frequency_swap(p, word, next));
}
