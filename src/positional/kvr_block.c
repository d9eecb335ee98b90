/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_block.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif


static kvr_rc_t kvr_block_resize(kvr_arena_t *a, kvr_block_t *b,
    uint32_t cap);
static void kvr_block_inline(kvr_arena_t *a, kvr_block_t *b);
static uint32_t kvr_block_next(const uint32_t *marks, uint32_t n, uint32_t i,
    uint32_t view);


void
kvr_block_look(const kvr_arena_t *a, const kvr_block_t *b, uint32_t view,
    uint64_t handle, kvr_block_view_t *out)
{
    uint32_t         i, tiers;
    const uint32_t  *marks;
    const uint64_t  *values;

    marks = kvr_block_marks(a, b);
    values = kvr_block_values(a, b);

    out->tiers = 0;
    out->own = 0;
    out->record = UINT32_MAX;
    out->kids = UINT32_MAX;

    for (i = kvr_block_next(marks, b->n, 0, view);
         i < b->n;
         i = kvr_block_next(marks, b->n, i + 1, view))
    {
        tiers = kvr_mark_tiers(marks[i]);

        if (tiers == 0) {
            out->kids = i;

        } else if (values[i] == handle) {
            out->own = tiers;
            out->record = i;

        } else {
            out->tiers |= tiers;
        }
    }
}


/* The index of the view's first mark at or behind i, or n. */

static uint32_t
kvr_block_next(const uint32_t *marks, uint32_t n, uint32_t i, uint32_t view)
{
#ifdef __SSE2__

    int      bits;
    __m128i  four, want, low;

    low = _mm_set1_epi32(0xffff);
    want = _mm_set1_epi32((int) view);

    for ( /* void */ ; i + 4 <= n; i += 4) {

        four = _mm_loadu_si128((const __m128i *) (const void *) (marks + i));
        four = _mm_cmpeq_epi32(_mm_and_si128(four, low), want);
        bits = _mm_movemask_epi8(four);

        if (bits) {
            return i + (uint32_t) __builtin_ctz((unsigned) bits) / 4;
        }
    }

#endif

    while (i < n && kvr_mark_view(marks[i]) != view) {
        i++;
    }

    return i;
}


uint32_t
kvr_block_find(const kvr_arena_t *a, const kvr_block_t *b, uint32_t mark)
{
    uint32_t         i;
    const uint32_t  *marks;

    marks = kvr_block_marks(a, b);

    for (i = 0; i < b->n; i++) {
        if (marks[i] == mark) {
            return i;
        }
    }

    return UINT32_MAX;
}


kvr_rc_t
kvr_block_add(kvr_arena_t *a, kvr_block_t *b, uint32_t mark, uint64_t value)
{
    uint32_t  n, cap;
    kvr_rc_t  rc;

    n = b->n;
    cap = b->cap ? b->cap : KVR_BLOCK_INLINE;

    if (n == cap) {

        if (cap == KVR_BLOCK_RECORDS) {
            return KVR_INVALID;
        }

        rc = kvr_block_resize(a, b, kvr_min(cap * 2, KVR_BLOCK_RECORDS));
        if (rc != KVR_OK) {
            return rc;
        }
    }

    kvr_set64(a->mem, &kvr_block_values(a, b)[n], value);

    kvr_version_lock(a->mem, &b->version);
    kvr_set32(a->mem, &kvr_block_marks(a, b)[n], mark);
    kvr_set16(a->mem, &b->n, n + 1);
    kvr_version_unlock(&b->version);

    return KVR_OK;
}


/*
 * Moves the records, which must fit, to a piece with room for `cap` records.
 */

static kvr_rc_t
kvr_block_resize(kvr_arena_t *a, kvr_block_t *b, uint32_t cap)
{
    uint32_t   piece;
    uint32_t  *marks;

    piece = kvr_arena_alloc(a, kvr_block_ext_words(cap));
    if (piece == 0) {
        return KVR_FULL;
    }

    cap = kvr_min(kvr_block_ext_records(kvr_arena_size(a, piece)),
                  KVR_BLOCK_RECORDS);

    marks = kvr_arena_at(a, piece);
    kvr_copy_halves(marks, kvr_block_marks(a, b), b->n);
    kvr_copy_words((uint64_t *) marks + cap / 2, kvr_block_values(a, b), b->n);

    kvr_version_lock(a->mem, &b->version);

    if (b->cap) {
        kvr_arena_free(a, b->at.ext);
    }

    kvr_set32(a->mem, &b->at.ext, piece);
    kvr_set16(a->mem, &b->cap, cap);

    kvr_version_unlock(&b->version);

    return KVR_OK;
}


void
kvr_block_mark(kvr_arena_t *a, kvr_block_t *b, uint32_t i, uint32_t mark)
{
    kvr_version_lock(a->mem, &b->version);
    kvr_set32(a->mem, &kvr_block_marks(a, b)[i], mark);
    kvr_version_unlock(&b->version);
}


void
kvr_block_delete(kvr_arena_t *a, kvr_block_t *b, uint32_t i)
{
    uint32_t   half, last;
    uint32_t  *marks;
    uint64_t  *values;

    last = b->n - 1;
    marks = kvr_block_marks(a, b);
    values = kvr_block_values(a, b);

    kvr_version_lock(a->mem, &b->version);

    if (i != last) {
        kvr_set32(a->mem, &marks[i], marks[last]);
        kvr_set64(a->mem, &values[i], values[last]);
    }

    kvr_set16(a->mem, &b->n, last);

    if (b->cap && last <= KVR_BLOCK_INLINE) {
        kvr_block_inline(a, b);
    }

    kvr_version_unlock(&b->version);

    half = b->cap / 2u & ~1u;

    if (last <= half && b->cap > 2 * KVR_BLOCK_INLINE) {
        /* without memory for a smaller piece the present one stays */

        if (kvr_block_resize(a, b, half) != KVR_OK) {
            kvr_arena_forgo(a);
        }
    }
}


/* Moves the few records that are left back into the block itself. */

static void
kvr_block_inline(kvr_arena_t *a, kvr_block_t *b)
{
    uint32_t   i, piece;
    uint32_t  *marks;
    uint64_t  *values;

    piece = b->at.ext;
    marks = kvr_block_marks(a, b);
    values = kvr_block_values(a, b);

    kvr_set16(a->mem, &b->cap, 0);

    for (i = 0; i < b->n; i++) {
        kvr_set32(a->mem, &b->at.marks[i], marks[i]);
        kvr_set64(a->mem, &b->values[i], values[i]);
    }

    kvr_arena_free(a, piece);
}
