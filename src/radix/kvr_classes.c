/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_classes.h"


/* A class in a word: kind (8 bits), span (24), window (32). */
#define KVR_CLASS_WORD(c)                                                     \
    ((uint64_t) (c)->kind << 56 | (uint64_t) (c)->span << 32 | (c)->window)

/* Words of the bits of a class; one more, as a run's bits are shifted. */
#define KVR_CLASSES_WORDS  (KVR_CLASSES_BLOCKS / 64 + 1)


static inline bool kvr_classes_asked(const kvr_radix_t *x,
    const kvr_depths_t *out, uint32_t view);
static uint32_t kvr_classes_way(const kvr_step_t *steps, uint32_t nsteps,
    uint32_t depth);
static uint32_t kvr_classes_share(const kvr_radix_t *x,
    const kvr_step_t *steps, uint32_t nsteps, const kvr_depths_t *out,
    uint32_t n);
static uint32_t kvr_classes_hit(const kvr_radix_t *x, uint32_t view,
    const kvr_step_t *steps, uint32_t nsteps, const kvr_depths_t *out,
    uint32_t full);
static void kvr_classes_row(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t shadow, uint32_t nclasses, uint32_t n, uint32_t pos,
    uint64_t rows[KVR_CLASSES_MAX][KVR_CLASSES_WORDS]);
static uint32_t kvr_classes_pair(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t shadow);
static const uint64_t *kvr_classes_bits(const kvr_radix_t *x,
    const kvr_run_t *r, uint32_t shadow, uint32_t *words);
static inline void kvr_classes_put(uint64_t *row, uint32_t pos, uint64_t word);


static inline uint64_t *
kvr_classes_words(const kvr_radix_t *x, uint32_t view)
{
    return &x->classes[(size_t) view * KVR_CLASSES_MAX];
}


static inline bool
kvr_classes_may(const kvr_radix_t *x, uint32_t view)
{
    return view < kvr_classes_shadows(x->zone->shadows);
}


uint32_t
kvr_classes_get(const kvr_radix_t *x, uint32_t view, kvr_class_t *out)
{
    uint32_t  i;
    uint64_t  word;

    if (!kvr_classes_may(x, view)) {
        return 0;
    }

    for (i = 0; i < KVR_CLASSES_MAX; i++) {

        word = kvr_load64(&kvr_classes_words(x, view)[i]);

        if (word == 0) {
            break;
        }

        out[i].kind = (uint32_t) (word >> 56);
        out[i].span = (uint32_t) (word >> 32) & 0xffffff;
        out[i].window = (uint32_t) word;
    }

    return i;
}


kvr_rc_t
kvr_classes_set(kvr_radix_t *x, uint32_t view, uint32_t i,
    const kvr_class_t *c)
{
    uint64_t  *words;

    if (!kvr_classes_may(x, view)) {
        return KVR_DECLINED;
    }

    words = kvr_classes_words(x, view);

    if (i && words[i - 1] == 0) {
        return KVR_DECLINED;
    }

    if (words[0] == 0) {
        kvr_set32(x->mem, &x->zone->classed, x->zone->classed + 1);
    }

    kvr_set64(x->mem, &words[i], KVR_CLASS_WORD(c));

    return KVR_OK;
}


void
kvr_classes_forget(kvr_radix_t *x, uint32_t view)
{
    uint32_t   i;
    uint64_t  *words;

    if (!kvr_classes_may(x, view)) {
        return;
    }

    words = kvr_classes_words(x, view);

    if (words[0] == 0) {
        return;
    }

    kvr_set32(x->mem, &x->zone->classed, x->zone->classed - 1);

    for (i = 0; i < KVR_CLASSES_MAX; i++) {
        kvr_set64(x->mem, &words[i], 0);
    }
}


/* ---- readers ------------------------------------------------------------ */

/*
 * As in kvr_radix_find.c: each number is checked before it is used as a place,
 * and nothing is believed until the versions say so.
 */

void
kvr_classes_find(const kvr_radix_t *x, const kvr_step_t *steps,
    uint32_t nsteps, kvr_depths_t *out)
{
    uint32_t  t, view, n, full, way, share;

    n = kvr_min(out->nviews, kvr_classes_shadows(x->zone->shadows));
    share = kvr_classes_share(x, steps, nsteps, out, n);

    for (view = 0; view < n; view++) {

        if (!kvr_classes_asked(x, out, view)) {
            continue;
        }

        full = out->depths[out->tiered ? 0 : 2][view];
        way = kvr_classes_way(steps, nsteps, full);
        out->looks += kvr_min(way, share);

        if (way > share) {
            full = share ? steps[share].pos : 0;
            out->cut = true;
        }

        full = kvr_classes_hit(x, view, steps, nsteps, out, full);

        for (t = out->tiered ? 0 : 2; t < 3; t++) {
            out->depths[t][view] = full;
        }
    }
}


/* Has the view classes, and something of the prompt? */

static inline bool
kvr_classes_asked(const kvr_radix_t *x, const kvr_depths_t *out, uint32_t view)
{
    return out->depths[2][view]
           && kvr_load64(kvr_classes_words(x, view)) != 0;
}


/* The number of runs that begin before a depth. */

static uint32_t
kvr_classes_way(const kvr_step_t *steps, uint32_t nsteps, uint32_t depth)
{
    uint32_t  low, high, middle;

    low = 0;
    high = nsteps;

    while (low < high) {
        middle = low + (high - low) / 2;

        if (steps[middle].pos < depth) {
            low = middle + 1;

        } else {
            high = middle;
        }
    }

    return low;
}


/*
 * The number of runs that each of the first n views may go through; all of
 * them together go through KVR_CLASSES_RUNS at most.
 */

static uint32_t
kvr_classes_share(const kvr_radix_t *x, const kvr_step_t *steps,
    uint32_t nsteps, const kvr_depths_t *out, uint32_t n)
{
    uint32_t         view, share;
    uint64_t         all;
    const uint32_t  *depths;

    depths = out->depths[out->tiered ? 0 : 2];

    for (share = nsteps; share; share /= 2) {

        if ((uint64_t) share * n <= KVR_CLASSES_RUNS) {
            break;
        }

        all = 0;

        for (view = 0; view < n; view++) {
            if (kvr_classes_asked(x, out, view)) {
                all += kvr_min(kvr_classes_way(steps, nsteps, depths[view]),
                               share);
            }
        }

        if (all <= KVR_CLASSES_RUNS) {
            break;
        }
    }

    return share;
}


static uint32_t
kvr_classes_hit(const kvr_radix_t *x, uint32_t view, const kvr_step_t *steps,
    uint32_t nsteps, const kvr_depths_t *out, uint32_t full)
{
    uint32_t         i, n, end, nclasses;
    uint64_t         rows[KVR_CLASSES_MAX][KVR_CLASSES_WORDS];
    kvr_class_t      classes[KVR_CLASSES_MAX];
    kvr_hit_rule_t   rule;
    const uint64_t  *row[KVR_CLASSES_MAX];

    nclasses = kvr_classes_get(x, view, classes);
    n = kvr_min(kvr_min(full, out->limit), KVR_CLASSES_BLOCKS);

    for (i = 0; i < nclasses; i++) {
        memset(rows[i], 0, (n / 64 + 1) * sizeof(uint64_t));
        row[i] = rows[i];
    }

    for (i = 0; i < nsteps && steps[i].pos < n; i++) {

        end = i + 1 < nsteps ? kvr_min(steps[i + 1].pos, n) : n;

        kvr_classes_row(x, kvr_radix_run(x, steps[i].run),
                        kvr_classes_shadow(x, view), nclasses,
                        end - steps[i].pos, steps[i].pos, rows);
    }

    rule.chunk = 0;
    rule.drop = false;

    if (out->rule) {
        out->rule(out->data, view, &rule);
    }

    return kvr_hit(classes, nclasses, row, 1, n, n, &rule);
}


/* Copies the bits of the first n blocks of a run to place pos of the rows. */

static void
kvr_classes_row(const kvr_radix_t *x, const kvr_run_t *r, uint32_t shadow,
    uint32_t nclasses, uint32_t n, uint32_t pos,
    uint64_t rows[KVR_CLASSES_MAX][KVR_CLASSES_WORDS])
{
    uint32_t         c, i, depth, words;
    uint64_t         word;
    const uint64_t  *bits;

    depth = kvr_classes_pair(x, r, shadow);
    bits = NULL;
    words = 0;

    if (depth == KVR_COVER_DETAIL) {
        depth = 0;
        bits = kvr_classes_bits(x, r, shadow, &words);
    }

    if (bits == NULL && depth == 0) {
        return;
    }

    for (c = 0; c < (bits ? nclasses : 1); c++) {

        for (i = 0; i * 64 < n; i++) {

            if (bits) {
                word = i < words ? kvr_load64(&bits[c * words + i]) : 0;

            } else {
                word = depth >= i * 64 + 64 ? UINT64_MAX
                       : depth > i * 64 ? (UINT64_C(1) << depth % 64) - 1 : 0;
            }

            if (n < i * 64 + 64) {
                word &= (UINT64_C(1) << n % 64) - 1;
            }

            kvr_classes_put(rows[c], pos + i * 64, word);
        }
    }
}


/* Puts 64 bits in place; none of them is set behind the row's end. */

static inline void
kvr_classes_put(uint64_t *row, uint32_t pos, uint64_t word)
{
    uint32_t  shift;

    shift = pos % 64;
    row[pos / 64] |= word << shift;

    if (shift && word >> (64 - shift)) {
        row[pos / 64 + 1] |= word >> (64 - shift);
    }
}


/* The shadow's depth in the run, or KVR_COVER_DETAIL; 0: it has no pair. */

static uint32_t
kvr_classes_pair(const kvr_radix_t *x, const kvr_run_t *r, uint32_t shadow)
{
    uint32_t           i, n, cap, ext;
    const uint16_t    *dense;
    const kvr_pair_t  *pairs;

    n = kvr_load16(&r->npairs);
    cap = kvr_load16(&r->cap);
    ext = kvr_load32(&r->cover.ext);

    if (n == KVR_COVER_DENSE) {

        if (shadow >= cap * 64
            || !kvr_arena_valid(&x->arena, ext, cap * 16))
        {
            return 0;
        }

        dense = kvr_arena_at(&x->arena, ext);

        return kvr_cover_plain(kvr_load16(&dense[shadow]));
    }

    if (n > (cap ? cap : KVR_COVER_INLINE)
        || (cap && !kvr_arena_valid(&x->arena, ext, cap / 2)))
    {
        return 0;
    }

    pairs = cap ? kvr_arena_at(&x->arena, ext) : r->cover.pairs;

    for (i = 0; i < n; i++) {
        if (kvr_load16(&pairs[i].view) == shadow) {
            return kvr_cover_plain(kvr_load16(&pairs[i].depth));
        }
    }

    return 0;
}


/* The rows of bits of the shadow's detail, each of *words words; or NULL. */

static const uint64_t *
kvr_classes_bits(const kvr_radix_t *x, const kvr_run_t *r, uint32_t shadow,
    uint32_t *words)
{
    uint32_t              i, n, piece;
    const kvr_detail_t   *d;
    const kvr_details_t  *details;

    piece = kvr_load32(&r->detail);

    if (piece == 0 || !kvr_arena_valid(&x->arena, piece, 1)) {
        return NULL;
    }

    details = kvr_arena_at(&x->arena, piece);
    n = kvr_load32(&details->n);

    if (n > KVR_VIEWS_LIMIT
        || !kvr_arena_valid(&x->arena, piece, kvr_details_words(n)))
    {
        return NULL;
    }

    for (i = 0; i < n; i++) {

        d = &details->items[i];

        if (kvr_load16(&d->view) != shadow) {
            continue;
        }

        *words = kvr_load16(&d->words);
        piece = kvr_load32(&d->bits);

        return kvr_arena_valid(&x->arena, piece, *words * KVR_TIERS)
               ? kvr_arena_at(&x->arena, piece) : NULL;
    }

    return NULL;
}
