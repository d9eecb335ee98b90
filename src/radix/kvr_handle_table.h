/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The table of handles: engine's hash -> the block (run, offset) it names.
 *
 * A slot is one word, run (32) | offset in it (9) | tag (23); 0 is empty.  The
 * handle itself is in the run's array (kvr_handles.h), and the tag, bits of
 * the handle's mixed hash, spares all but one look in a million at a wrong
 * one.
 *
 *     line, 64 bytes    7 slots │ passed: entries that found the line full and
 *                                 went on to the next one
 *
 * An access touches one line as a rule, and no others are moved: a deletion
 * empties its slot and counts `passed` down on the way to it.  So what it
 * takes of the undo log is what the entry took when it came, and no entry is
 * KVR_HANDLE_FAR lines from its home.
 *
 * One handle may have several entries: other views may use it for another
 * block.  The handles of those that agree on them are keyed by themselves, a
 * view's own ones (kvr_handles.h) by the view too: two spaces in one table.
 *
 * For the owner of the zone's lock, in a transaction.
 */


#ifndef KVR_HANDLE_TABLE_H_INCLUDED
#define KVR_HANDLE_TABLE_H_INCLUDED


#include "../core/kvr_txn.h"
#include "../core/kvr_table.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif


#define KVR_HANDLE_SLOTS     7          /* of a line */
#define KVR_HANDLE_FILL      5          /* of these in use, on the average,
                                           when the table counts as full; with
                                           6, entries lie 40 lines from home */
#define KVR_HANDLE_FAR       64         /* lines in which an entry may be, its
                                           home the first; as many records are
                                           logged at most to put or delete */
#define KVR_HANDLE_TAG       0x7fffffu

#define KVR_SPACE_SHARED     0u
#define KVR_SPACE_OWN(view)  ((view) + 1u)


typedef struct {
    uint64_t    slots[KVR_HANDLE_SLOTS];
    uint64_t    passed;
} kvr_handle_line_t;

_Static_assert(sizeof(kvr_handle_line_t) == 64, "one cache line");


typedef struct {
    uint64_t    lines;              /* offset from the zone's base */
    uint64_t    nlines;             /* fits 32 bits */
    uint64_t    limit;              /* entries */
    uint64_t    used;
    uint64_t    secret[2];
} kvr_handle_zone_t;


typedef struct {
    kvr_mem_t          *mem;
    kvr_handle_zone_t  *zone;
    kvr_handle_line_t  *lines;
} kvr_handle_table_t;


/* Where a handle's entries begin, and what they carry. */
typedef struct {
    uint32_t    line;
    uint32_t    tag;
} kvr_handle_key_t;


/* A walk over the entries with a key's tag. */
typedef struct {
    uint32_t    line;
    uint32_t    tag;
    uint32_t    left;               /* bits: slots of the line yet to come */
    uint32_t    hops;
} kvr_handle_walk_t;


#define kvr_handle_run(word)     ((uint32_t) ((word) >> 32))
#define kvr_handle_offset(word)  ((uint32_t) (word) >> 23)


/* Lays an empty table out in the bytes [at, at + size), at of 64. */
void kvr_handle_format(kvr_mem_t *mem, kvr_handle_zone_t *z, uint64_t at,
    uint64_t size, const uint64_t secret[2]);
void kvr_handle_attach(kvr_handle_table_t *t, kvr_mem_t *mem,
    kvr_handle_zone_t *z);


static inline kvr_handle_key_t
kvr_handle_key(const kvr_handle_table_t *t, uint64_t handle, uint32_t space)
{
    uint64_t          mixed;
    kvr_handle_key_t  key;

    mixed = kvr_table_mix(kvr_table_spread(handle ^ t->zone->secret[0]),
                          t->zone->secret[1]
                          + (uint64_t) space * 0x9e3779b97f4a7c15u);

    key.line = (uint32_t) kvr_table_home(mixed, t->zone->nlines);
    key.tag = (uint32_t) mixed & KVR_HANDLE_TAG;

    return key;
}


#define kvr_handle_word(key, run, offset)                                     \
    ((uint64_t) (run) << 32 | (uint64_t) (offset) << 23 | (key).tag)


/* A macro: gcc 12 finds that a function which only prefetches does nothing,
 * and drops the call. */
#define kvr_handle_prefetch(t, key)                                           \
    __builtin_prefetch(&(t)->lines[(key).line], 1)


/* Bits of the slots that carry the tag, and of those that are empty. */
static inline void
kvr_handle_scan(const kvr_handle_line_t *l, uint32_t tag, uint32_t *same,
    uint32_t *empty)
{
#ifdef __SSE2__

    uint32_t        low, high;
    __m128          w0, w1, w2, w3;
    __m128i         lo0, lo1, hi0, hi1, want, mask, zero;
    const float    *p;

    /* the words' low halves together, and the high ones */

    p = (const float *) l;
    w0 = _mm_load_ps(p);
    w1 = _mm_load_ps(p + 4);
    w2 = _mm_load_ps(p + 8);
    w3 = _mm_load_ps(p + 12);

    lo0 = _mm_castps_si128(_mm_shuffle_ps(w0, w1, 0x88));
    lo1 = _mm_castps_si128(_mm_shuffle_ps(w2, w3, 0x88));
    hi0 = _mm_castps_si128(_mm_shuffle_ps(w0, w1, 0xdd));
    hi1 = _mm_castps_si128(_mm_shuffle_ps(w2, w3, 0xdd));

    want = _mm_set1_epi32((int) tag);
    mask = _mm_set1_epi32(KVR_HANDLE_TAG);
    zero = _mm_setzero_si128();

    lo0 = _mm_cmpeq_epi32(_mm_and_si128(lo0, mask), want);
    lo1 = _mm_cmpeq_epi32(_mm_and_si128(lo1, mask), want);
    hi0 = _mm_cmpeq_epi32(hi0, zero);
    hi1 = _mm_cmpeq_epi32(hi1, zero);

    low = (uint32_t) _mm_movemask_ps(_mm_castsi128_ps(lo0))
          | (uint32_t) _mm_movemask_ps(_mm_castsi128_ps(lo1)) << 4;
    high = (uint32_t) _mm_movemask_ps(_mm_castsi128_ps(hi0))
           | (uint32_t) _mm_movemask_ps(_mm_castsi128_ps(hi1)) << 4;

    high &= (1u << KVR_HANDLE_SLOTS) - 1;

    *empty = high;
    *same = low & ~high & ((1u << KVR_HANDLE_SLOTS) - 1);

#else

    uint32_t  i;

    *same = 0;
    *empty = 0;

    for (i = 0; i < KVR_HANDLE_SLOTS; i++) {
        *empty |= (uint32_t) (l->slots[i] == 0) << i;
        *same |= (uint32_t) (((uint32_t) l->slots[i] & KVR_HANDLE_TAG) == tag)
                 << i;
    }

    *same &= ~*empty;

#endif
}


/* Lines in which an entry may be; a small table has fewer. */
static inline uint32_t
kvr_handle_far(const kvr_handle_table_t *t)
{
    return (uint32_t) kvr_min(t->zone->nlines, (uint64_t) KVR_HANDLE_FAR);
}


static inline void
kvr_handle_walk(const kvr_handle_table_t *t, kvr_handle_key_t key,
    kvr_handle_walk_t *w)
{
    uint32_t  empty;

    w->line = key.line;
    w->tag = key.tag;
    w->hops = 0;

    kvr_handle_scan(&t->lines[w->line], w->tag, &w->left, &empty);
}


/* The next entry with the tag; 0: no more. */
static inline uint64_t
kvr_handle_next(const kvr_handle_table_t *t, kvr_handle_walk_t *w)
{
    uint32_t  i, empty;

    for ( ;; ) {

        if (w->left) {
            i = (uint32_t) __builtin_ctz(w->left);
            w->left &= w->left - 1;

            return t->lines[w->line].slots[i];
        }

        if (t->lines[w->line].passed == 0 || ++w->hops == kvr_handle_far(t)) {
            return 0;
        }

        w->line = (uint32_t) kvr_table_next(w->line, t->zone->nlines);
        kvr_handle_scan(&t->lines[w->line], w->tag, &w->left, &empty);
    }
}


/*
 * Puts an entry in.  KVR_DECLINED, nothing done: there are entries with its
 * tag already (unless `beside` is set).  KVR_FULL: the table, or all lines in
 * which it may be.  zone->used must have been logged in this transaction
 * (kvr_radix_begin() does it once for many).
 */
kvr_rc_t kvr_handle_put_far(kvr_handle_table_t *t, kvr_handle_key_t key,
    uint32_t run, uint32_t offset, bool beside);

/* The slot at home for it, where it is as simple as that, or NULL. */
static inline uint64_t *
kvr_handle_spot(const kvr_handle_table_t *t, kvr_handle_key_t key)
{
    uint32_t            same, empty;
    kvr_handle_line_t  *l;

    l = &t->lines[key.line];
    kvr_handle_scan(l, key.tag, &same, &empty);

    if (__builtin_expect(same || empty == 0 || l->passed
                         || t->zone->used >= t->zone->limit, 0))
    {
        return NULL;
    }

    return &l->slots[__builtin_ctz(empty)];
}


static inline kvr_rc_t
kvr_handle_put(kvr_handle_table_t *t, kvr_handle_key_t key, uint32_t run,
    uint32_t offset, bool beside)
{
    uint64_t  *slot;

    slot = kvr_handle_spot(t, key);

    if (slot == NULL) {
        return kvr_handle_put_far(t, key, run, offset, beside);
    }

    kvr_set64(t->mem, slot, kvr_handle_word(key, run, offset));
    kvr_put64(&t->zone->used, t->zone->used + 1);

    return KVR_OK;
}


/* The slot at home with that word, which is not 0; NULL. */
static inline uint64_t *
kvr_handle_slot(const kvr_handle_table_t *t, kvr_handle_key_t key,
    uint64_t word)
{
#ifdef __SSE2__

    uint32_t            found;
    __m128i             want, a, b;
    const __m128i      *p;
    kvr_handle_line_t  *l;

    l = &t->lines[key.line];
    p = (const __m128i *) l;
    want = _mm_set1_epi64x((int64_t) word);
    a = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_load_si128(p), want),
                        _mm_cmpeq_epi32(_mm_load_si128(p + 1), want));
    b = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_load_si128(p + 2), want),
                        _mm_cmpeq_epi32(_mm_load_si128(p + 3), want));

    /* two bits a word, one of each half */

    found = (uint32_t) _mm_movemask_epi8(_mm_packs_epi16(a, b));
    found &= found >> 1 & 0x1555;

    return found ? &l->slots[__builtin_ctz(found) / 2] : NULL;

#else

    uint32_t            i;
    kvr_handle_line_t  *l;

    l = &t->lines[key.line];

    for (i = 0; i < KVR_HANDLE_SLOTS; i++) {
        if (l->slots[i] == word) {
            return &l->slots[i];
        }
    }

    return NULL;

#endif
}


/* Takes out the entry of that block, which must be there; used as above. */
void kvr_handle_delete_far(kvr_handle_table_t *t, kvr_handle_key_t key,
    uint64_t word);

static inline void
kvr_handle_delete(kvr_handle_table_t *t, kvr_handle_key_t key, uint32_t run,
    uint32_t offset)
{
    uint64_t  word, *slot;

    word = kvr_handle_word(key, run, offset);
    slot = kvr_handle_slot(t, key, word);

    if (slot == NULL) {
        kvr_handle_delete_far(t, key, word);
        return;
    }

    kvr_set64(t->mem, slot, 0);
    kvr_put64(&t->zone->used, t->zone->used - 1);
}


#endif /* KVR_HANDLE_TABLE_H_INCLUDED */
