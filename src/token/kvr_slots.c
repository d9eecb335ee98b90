/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_slots.h"

#include "../core/kvr_hash.h"
#include "../core/kvr_table.h"
#include "../core/kvr_words.h"

#include <stdio.h>
#include <sys/random.h>


#define KVR_SLOTS_MAGIC    UINT64_C(0x6b76722d736c6f74)     /* "kvr-slot" */
#define KVR_SLOTS_TRIES    4        /* at a set, beside other writers */


struct kvr_slots_zone_s {
    uint64_t    magic;
    uint64_t    version;            /* of the layout */
    uint64_t    size;
    uint64_t    nsets;
    uint64_t    seed;

    /* only grow */

    uint64_t    used;
    uint64_t    evicted;
    uint64_t    torn;
};


struct kvr_slot_s {
    uint64_t    version;            /* odd: is being written */
    uint64_t    key[2];
    uint64_t    sum;                /* of the key and the data */
    uint64_t    data[KVR_SLOTS_WORDS];
};


_Static_assert(sizeof(kvr_slot_t) == KVR_SLOTS_SIZE, "a slot");
_Static_assert(sizeof(kvr_slots_zone_t) % 64 == 0, "cache lines");


static bool kvr_slots_write(kvr_slots_t *t, uint64_t slot,
    const uint64_t key[2], const uint64_t *data);


#define kvr_slots_tally(p)  (void) __atomic_fetch_add(p, 1, __ATOMIC_RELAXED)


/*
 *     zone │ words of all slots │ slots
 */

kvr_rc_t
kvr_slots_format(void *base, size_t size, uint64_t version,
    char why[KVR_SLOTS_WHY])
{
    size_t             set, room;
    kvr_slots_zone_t  *z;

    z = base;
    set = KVR_SLOTS_WAYS * (sizeof(uint64_t) + sizeof(kvr_slot_t));
    room = size > sizeof(kvr_slots_zone_t) ? size - sizeof(kvr_slots_zone_t)
                                           : 0;

    if (room < set) {
        snprintf(why, KVR_SLOTS_WHY, "%zu bytes are too few, it needs %zu at "
                 "least", size, sizeof(kvr_slots_zone_t) + set);
        return KVR_INVALID;
    }

    memset(z, 0, sizeof(kvr_slots_zone_t));

    if (getrandom(&z->seed, sizeof(z->seed), 0) != (ssize_t) sizeof(z->seed)) {
        snprintf(why, KVR_SLOTS_WHY, "getrandom() failed");
        return KVR_ERROR;
    }

    z->version = version;
    z->size = size;
    z->nsets = room / set;

    memset(z + 1, 0, z->nsets * set);

    z->magic = KVR_SLOTS_MAGIC;

    return KVR_OK;
}


kvr_rc_t
kvr_slots_attach(kvr_slots_t *t, void *base, size_t size, uint64_t version,
    char why[KVR_SLOTS_WHY])
{
    kvr_slots_zone_t  *z;

    z = base;

    if (z->magic != KVR_SLOTS_MAGIC || z->version != version
        || z->size != size)
    {
        snprintf(why, KVR_SLOTS_WHY, "its layout is of version %llu with %llu "
                 "bytes, version %llu with %zu bytes was expected: stop nginx "
                 "and start it again", (unsigned long long) z->version,
                 (unsigned long long) z->size, (unsigned long long) version,
                 size);
        return KVR_INVALID;
    }

    t->zone = z;
    t->nsets = z->nsets;
    t->seed = z->seed;
    t->words = (uint64_t *) (z + 1);
    t->slots = (kvr_slot_t *) (t->words + t->nsets * KVR_SLOTS_WAYS);

    return KVR_OK;
}


void
kvr_slots_stats(const kvr_slots_t *t, kvr_slots_stats_t *s)
{
    s->slots = t->nsets * KVR_SLOTS_WAYS;
    s->used = kvr_load64(&t->zone->used);
    s->evicted = kvr_load64(&t->zone->evicted);
    s->torn = kvr_load64(&t->zone->torn);
}


static uint64_t
kvr_slots_sum(const kvr_slots_t *t, const uint64_t key[2],
    const uint64_t *data)
{
    return kvr_hash_bytes(data, KVR_SLOTS_WORDS * sizeof(uint64_t),
                          t->seed ^ kvr_table_mix(key[0], key[1] | 1));
}


static inline uint32_t
kvr_slots_tag(const uint64_t key[2])
{
    return (uint32_t) key[1] ? (uint32_t) key[1] : 1;
}


static inline uint64_t
kvr_slots_set(const kvr_slots_t *t, const uint64_t key[2])
{
    return kvr_table_home(key[0], t->nsets) * KVR_SLOTS_WAYS;
}


/* Copies the data of a slot; false: there is none with that key. */

bool
kvr_slots_get(kvr_slots_t *t, const uint64_t key[2], uint64_t now_ms,
    uint64_t *data)
{
    uint32_t     i;
    uint64_t     set, word, version, *w;
    kvr_slot_t  *s, copy;

    set = kvr_slots_set(t, key);

    for (i = 0; i < KVR_SLOTS_WAYS; i++) {

        w = &t->words[set + i];
        word = kvr_load64(w);

        if (word >> 32 != kvr_slots_tag(key)) {
            continue;
        }

        s = &t->slots[set + i];
        version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);

        kvr_copy_words(&copy, s, KVR_SLOTS_SIZE / sizeof(uint64_t));
        kvr_fence(__ATOMIC_ACQUIRE);

        if (version & 1 || kvr_load64(&s->version) != version) {
            kvr_slots_tally(&t->zone->torn);
            continue;
        }

        if (copy.key[0] != key[0] || copy.key[1] != key[1]) {
            continue;
        }

        if (copy.sum != kvr_slots_sum(t, key, copy.data)) {
            kvr_slots_tally(&t->zone->torn);
            continue;
        }

        /* fails if a writer has just taken the slot */

        if ((uint32_t) word != (uint32_t) now_ms) {
            (void) __atomic_compare_exchange_n(w, &word,
                                               (word & ~(uint64_t) UINT32_MAX)
                                               | (uint32_t) now_ms,
                                               false, __ATOMIC_RELAXED,
                                               __ATOMIC_RELAXED);
        }

        memcpy(data, copy.data, sizeof(copy.data));

        return true;
    }

    return false;
}


/*
 * The slot of a set that a writer should take: that of the same key, else a
 * free one, else the one that was not used for the longest.  A slot whose
 * version is odd counts if its writer must be dead.  -1: there is none.  *was
 * becomes the word by which the slot was chosen.
 */

static int32_t
kvr_slots_victim(kvr_slots_t *t, uint64_t set, uint32_t tag, uint32_t stamp,
    uint64_t *was)
{
    int32_t   age, oldest, found;
    uint32_t  i;
    uint64_t  word;

    found = -1;
    oldest = -1;

    for (i = 0; i < KVR_SLOTS_WAYS; i++) {

        word = kvr_load64(&t->words[set + i]);

        /* the clock of a process may be a little late */

        age = (int32_t) (stamp - (uint32_t) word);
        age = word == 0 ? INT32_MAX - 1 : kvr_max(age, 0);

        if (word != 0 && age < KVR_SLOTS_DEAD
            && kvr_load64(&t->slots[set + i].version) & 1)
        {
            continue;
        }

        if (word >> 32 == tag) {
            *was = word;
            return (int32_t) i;
        }

        if (age > oldest) {
            oldest = age;
            found = (int32_t) i;
            *was = word;
        }
    }

    return found;
}


kvr_rc_t
kvr_slots_put(kvr_slots_t *t, const uint64_t key[2], uint64_t now_ms,
    const uint64_t *data)
{
    int32_t   i;
    uint32_t  tries, tag;
    uint64_t  set, was, word;

    set = kvr_slots_set(t, key);
    tag = kvr_slots_tag(key);
    word = (uint64_t) tag << 32 | (uint32_t) now_ms;

    for (tries = 0; tries < KVR_SLOTS_TRIES; tries++) {

        i = kvr_slots_victim(t, set, tag, (uint32_t) now_ms, &was);

        if (i < 0) {
            break;
        }

        if (!__atomic_compare_exchange_n(&t->words[set + i], &was, word, false,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        {
            continue;
        }

        if (was == 0) {
            kvr_slots_tally(&t->zone->used);

        } else if (was >> 32 != tag) {
            kvr_slots_tally(&t->zone->evicted);
        }

        if (kvr_slots_write(t, set + i, key, data)) {
            return KVR_OK;
        }
    }

    return KVR_BUSY;
}


/* False: another writer has the slot, or has got it meanwhile. */

static bool
kvr_slots_write(kvr_slots_t *t, uint64_t slot, const uint64_t key[2],
    const uint64_t *data)
{
    uint64_t     version, mine;
    kvr_slot_t  *s;

    s = &t->slots[slot];
    version = kvr_load64(&s->version);

    /* odd: of a writer that is dead, for the slot's word was old */

    mine = version + 1 + (version & 1);

    if (!__atomic_compare_exchange_n(&s->version, &version, mine, false,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    {
        return false;
    }

    kvr_fence(__ATOMIC_RELEASE);

    kvr_put64(&s->key[0], key[0]);
    kvr_put64(&s->key[1], key[1]);
    kvr_put64(&s->sum, kvr_slots_sum(t, key, data));
    kvr_copy_words(s->data, data, KVR_SLOTS_WORDS);

    return __atomic_compare_exchange_n(&s->version, &mine, mine + 1, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}
