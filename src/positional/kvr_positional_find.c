/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The lookup: kvr_positional_find(), for readers without a lock.
 *
 * Views without broken links hold what they hold of a prompt from its first
 * block on: of two blocks, those who hold the later one hold the earlier one
 * too.  So when as many hold the one as the other, in each row, they are the
 * same, and nobody has ended in between.
 *
 *     0        64                192                            448
 *     ├────────┼─────────────────┼──────────────┬───────────────┤
 *        all       all              all       halves: who ended where?
 *
 * Views with broken links are followed block by block after that.
 *
 * Everything here may read memory that a writer changes at this moment: each
 * number is checked before it is used as a place, and nothing is believed
 * until the versions say so, in one epoch of the arena (kvr_arena.h).  Where
 * writers break and mend links all the time, all views are followed block by
 * block: that needs the blocks' versions only.
 */


#include "kvr_places.h"


#define KVR_SEARCH_JUMP      64         /* the length of the first jump;
                                           doubled each time */
#define KVR_SEARCH_JUMP_MAX  1024
#define KVR_SEARCH_PATIENT   2          /* the last attempts, which follow
                                           all views */


typedef struct {
    uint32_t    block;
    uint32_t    version;
    uint32_t    stamp;
    uint32_t    position;
} kvr_visit_t;


/* The views for which a lookup counts records. */
typedef enum {
    KVR_SEARCH_WHOLE,                   /* views without broken links */
    KVR_SEARCH_BROKEN,                  /* views with broken links */
    KVR_SEARCH_ALL
} kvr_search_whose_t;


typedef struct {
    const kvr_positional_t  *x;
    const uint64_t          *hashes;
    uint32_t                 n;
    kvr_depths_t            *out;

    bool                     torn;      /* a writer was in the way */
    bool                     broken;    /* a view with broken links has the
                                           first block */
    bool                     nbroken;   /* there are such views */
    uint32_t                 best;
    uint32_t                 deepest;   /* the visit at which best was found */

    uint32_t                 base;      /* sequences[0] belongs to position
                                           base + 1 */
    uint32_t                 nvisits;
    kvr_visit_t              visits[KVR_POSITIONAL_STEPS];
    uint64_t                 sequences[KVR_SEARCH_JUMP_MAX];
} kvr_search_t;


/* Views that hold a block, in each row. */
typedef struct {
    uint32_t    rows[3];
} kvr_holders_t;


static void kvr_search_jump(kvr_search_t *s);
static void kvr_search_between(kvr_search_t *s, uint32_t low,
    const kvr_holders_t *at_low, uint32_t high, const kvr_holders_t *at_high);
static void kvr_search_probe(kvr_search_t *s, uint32_t position,
    uint64_t sequence, kvr_holders_t *more);
static void kvr_search_walk(kvr_search_t *s, kvr_search_whose_t whose);
static uint32_t kvr_search_step(kvr_search_t *s, uint32_t position,
    const kvr_block_t *b, kvr_search_whose_t whose);
static const kvr_block_t *kvr_search_visit(kvr_search_t *s,
    uint32_t position, uint64_t sequence);
static bool kvr_search_marks(kvr_search_t *s, const kvr_block_t *b,
    const uint32_t **marks, uint32_t *n);
static inline bool kvr_search_counts(kvr_search_t *s, uint32_t view,
    kvr_search_whose_t whose, uint32_t position);
static void kvr_search_tiered(kvr_depths_t *out);
static uint32_t kvr_search_good(const kvr_search_t *s);
static uint32_t kvr_search_cut(kvr_search_t *s, bool same);
static void kvr_search_stamp(const kvr_search_t *s);


static inline bool
kvr_holders_same(const kvr_holders_t *a, const kvr_holders_t *b)
{
    return a->rows[0] == b->rows[0] && a->rows[1] == b->rows[1]
           && a->rows[2] == b->rows[2];
}


uint32_t
kvr_positional_find(const kvr_positional_t *x, const uint64_t *hashes,
    uint32_t n, kvr_depths_t *out)
{
    bool          patient, same, whole;
    uint32_t      i, epoch, attempts, version;
    kvr_search_t  s;

    version = 0;
    s.x = x;
    s.hashes = hashes;
    s.n = n;
    s.out = out;

    out->torn = false;

    for (attempts = 1; /* void */ ; attempts++) {

        memset(out->depths[2], 0, out->nviews * sizeof(uint32_t));
        out->tiered = false;
        out->cut = false;
        s.torn = false;
        s.broken = false;
        s.best = 0;
        s.deepest = 0;
        s.nvisits = 0;

        if (n == 0) {
            return 0;
        }

        epoch = kvr_arena_epoch(&x->arena);

        for (i = 0; i < KVR_PLACES_SPINS; i++) {
            version = __atomic_load_n(&x->zone->broken_version,
                                      __ATOMIC_ACQUIRE);

            if ((version & 1) == 0) {
                break;
            }
        }

        s.nbroken = kvr_load32(&x->zone->nbroken) != 0;

        patient = version & 1
                  || attempts > KVR_POSITIONAL_ATTEMPTS - KVR_SEARCH_PATIENT;

        if (patient) {
            kvr_search_walk(&s, KVR_SEARCH_ALL);

        } else {
            kvr_search_jump(&s);

            if (s.broken) {
                kvr_search_walk(&s, KVR_SEARCH_BROKEN);
            }
        }

        /*
         * Seqlock validation: if no visited block's version changed,
         * everything read belongs to one consistent state.
         */

        kvr_fence(__ATOMIC_ACQUIRE);

        same = kvr_arena_same_epoch(&x->arena, epoch);

        whole = same && !s.torn && kvr_search_good(&s) == s.nvisits
                && (patient
                    || kvr_load32(&x->zone->broken_version) == version);

        if (whole || (patient && attempts >= KVR_POSITIONAL_ATTEMPTS)) {
            break;
        }
    }

    if (!whole) {
        s.best = kvr_search_cut(&s, same);

    } else if (s.best) {
        kvr_search_stamp(&s);
    }

    if (whole && out->cut) {
        (void) __atomic_fetch_add(&x->zone->cut, 1, __ATOMIC_RELAXED);
    }

    return s.best;
}


/* ---- jumps: views without broken links ---------------------------------- */

static void
kvr_search_jump(kvr_search_t *s)
{
    uint32_t       i, low, high, jump;
    uint64_t       sequence;
    kvr_holders_t  at_low, at_high;

    sequence = kvr_places_sequence(s->x, 0, s->hashes[0]);
    kvr_search_probe(s, 0, sequence, &at_low);

    low = 0;
    jump = KVR_SEARCH_JUMP;

    while (low + 1 < s->n && at_low.rows[2] && !s->torn) {

        high = kvr_min(low + jump, s->n - 1);

        for (i = low + 1; i <= high; i++) {
            sequence = kvr_places_sequence(s->x, sequence, s->hashes[i]);
            s->sequences[i - low - 1] = sequence;
        }

        s->base = low;

        kvr_search_probe(s, high, sequence, &at_high);
        kvr_search_between(s, low, &at_low, high, &at_high);

        if (s->out->early_exit && at_high.rows[2] == 1 && !s->broken) {
            return;
        }

        low = high;
        at_low = at_high;
        jump = kvr_min(jump * 2, KVR_SEARCH_JUMP_MAX);
    }
}


/* Finds where the views that hold `low`, but not `high`, end. */

static void
kvr_search_between(kvr_search_t *s, uint32_t low, const kvr_holders_t *at_low,
    uint32_t high, const kvr_holders_t *at_high)
{
    uint32_t       t, middle;
    kvr_holders_t  at_middle;

    if (high - low < 2 || s->torn || kvr_holders_same(at_low, at_high)) {
        return;
    }

    middle = low + (high - low) / 2;

    kvr_search_probe(s, middle, s->sequences[middle - s->base - 1],
                     &at_middle);

    /* a view that holds `high` holds `middle`, too */

    for (t = 0; t < 3; t++) {
        at_middle.rows[t] += at_high->rows[t];
    }

    kvr_search_between(s, low, at_low, middle, &at_middle);
    kvr_search_between(s, middle, &at_middle, high, at_high);
}


/*
 * Records for all views that hold the block at a position that they reach it;
 * *more: the number of views that were not yet known to.
 */

static void
kvr_search_probe(kvr_search_t *s, uint32_t position, uint64_t sequence,
    kvr_holders_t *more)
{
    uint32_t            i, t, n, mark, rows, view, depth;
    uint32_t          **depths;
    const uint32_t     *marks;
    const kvr_block_t  *b;

    memset(more, 0, sizeof(kvr_holders_t));

    b = kvr_search_visit(s, position, sequence);

    if (b == NULL || !kvr_search_marks(s, b, &marks, &n)) {
        return;
    }

    depths = s->out->depths;
    depth = position + 1;

    for (i = 0; i < n; i++) {
        mark = kvr_load32(&marks[i]);
        rows = kvr_block_rows(mark >> 16);
        view = kvr_mark_view(mark);

        if (rows == 0
            || !kvr_search_counts(s, view, KVR_SEARCH_WHOLE, position))
        {
            continue;
        }

        if (!s->out->tiered) {

            if (rows == 7) {
                if (depths[2][view] < depth) {
                    depths[2][view] = depth;
                    more->rows[2]++;
                }

                continue;
            }

            kvr_search_tiered(s->out);
            more->rows[0] = more->rows[2];
            more->rows[1] = more->rows[2];
        }

        for (t = 0; t < 3; t++) {
            if (rows >> t & 1 && depths[t][view] < depth) {
                depths[t][view] = depth;
                more->rows[t]++;
            }
        }
    }

    if (!s->out->tiered) {
        more->rows[0] = more->rows[2];
        more->rows[1] = more->rows[2];
    }

    if (more->rows[2] && s->best < depth) {
        s->best = depth;
        s->deepest = s->nvisits - 1;
    }
}


/* ---- block by block ----------------------------------------------------- */

static void
kvr_search_walk(kvr_search_t *s, kvr_search_whose_t whose)
{
    uint32_t            i, on;
    uint64_t            sequence;
    const kvr_block_t  *b;

    sequence = 0;

    for (i = 0; i < s->n; i++) {
        sequence = kvr_places_sequence(s->x, sequence, s->hashes[i]);
        b = kvr_search_visit(s, i, sequence);

        if (b == NULL) {
            return;
        }

        on = kvr_search_step(s, i, b, whose);

        /* views that are not followed here may have come further */

        if (on == 0
            || (on == 1 && s->out->early_exit && s->best == i + 1))
        {
            return;
        }
    }
}


/* The number of views that have come as far as this block and go on. */

static uint32_t
kvr_search_step(kvr_search_t *s, uint32_t position, const kvr_block_t *b,
    kvr_search_whose_t whose)
{
    bool             goes;
    uint32_t         i, t, n, on, mark, rows, view;
    uint32_t       **depths;
    const uint32_t  *marks;

    if (!kvr_search_marks(s, b, &marks, &n)) {
        return 0;
    }

    depths = s->out->depths;
    on = 0;

    for (i = 0; i < n; i++) {
        mark = kvr_load32(&marks[i]);
        rows = kvr_block_rows(mark >> 16);
        view = kvr_mark_view(mark);

        if (rows == 0 || !kvr_search_counts(s, view, whose, position)) {
            continue;
        }

        if (!s->out->tiered) {

            if (rows == 7 || depths[2][view] < position) {
                if (depths[2][view] == position) {
                    depths[2][view] = position + 1;
                    on++;
                }

                continue;
            }

            kvr_search_tiered(s->out);
        }

        goes = false;

        for (t = 0; t < 3; t++) {
            if (rows >> t & 1 && depths[t][view] == position) {
                depths[t][view] = position + 1;
                goes = true;
            }
        }

        on += goes;
    }

    if (on && s->best <= position) {
        s->best = position + 1;
        s->deepest = s->nvisits - 1;
    }

    return on;
}


/* ---- what both need ----------------------------------------------------- */

/*
 * Finds the block at a position of the prompt; the visit is noted before
 * anything of the block is read.
 */

static const kvr_block_t *
kvr_search_visit(kvr_search_t *s, uint32_t position, uint64_t sequence)
{
    uint32_t      block;
    kvr_visit_t  *visit;

    if (s->nvisits == KVR_POSITIONAL_STEPS) {
        s->out->cut = true;
        return NULL;
    }

    visit = &s->visits[s->nvisits];

    block = kvr_places_find(s->x, position, s->hashes[position], sequence,
                            &visit->version, &s->torn);
    if (block == 0) {
        return NULL;
    }

    visit->block = block;
    visit->stamp = kvr_load32(&kvr_block_at(&s->x->arena, block)->stamp);
    visit->position = position;
    s->nvisits++;

    return kvr_block_at(&s->x->arena, block);
}


/* The marks of a block; false when they are torn. */

static bool
kvr_search_marks(kvr_search_t *s, const kvr_block_t *b,
    const uint32_t **marks, uint32_t *n)
{
    uint32_t  cap, ext;

    *n = kvr_load16(&b->n);
    cap = kvr_load16(&b->cap);

    if (cap == 0) {
        *marks = b->at.marks;
        s->torn = s->torn || *n > KVR_BLOCK_INLINE;

    } else {
        ext = kvr_load32(&b->at.ext);
        *marks = kvr_arena_at(&s->x->arena, ext);
        s->torn = s->torn || *n > cap
                  || !kvr_arena_valid(&s->x->arena, ext, cap / 2);
    }

    return !s->torn;
}


/* Does this lookup count the view? */

static inline bool
kvr_search_counts(kvr_search_t *s, uint32_t view, kvr_search_whose_t whose,
    uint32_t position)
{
    uint32_t  broken;

    if (view >= s->out->nviews) {
        return false;
    }

    broken = s->nbroken || whose != KVR_SEARCH_WHOLE
             ? kvr_load32(&s->x->view_broken[view]) : 0;

    if (broken >= KVR_BROKEN_HIDDEN) {
        return false;
    }

    if (broken && whose == KVR_SEARCH_WHOLE && position == 0) {
        s->broken = true;
    }

    return whose == KVR_SEARCH_ALL
           || whose == (broken ? KVR_SEARCH_BROKEN : KVR_SEARCH_WHOLE);
}


/* Begins to count each row by itself: up to here the rows were equal. */

static void
kvr_search_tiered(kvr_depths_t *out)
{
    memcpy(out->depths[0], out->depths[2], out->nviews * sizeof(uint32_t));
    memcpy(out->depths[1], out->depths[2], out->nviews * sizeof(uint32_t));

    out->tiered = true;
}


/* ---- the end ------------------------------------------------------------ */

/* The number of first visits whose blocks have not changed since. */

static uint32_t
kvr_search_good(const kvr_search_t *s)
{
    uint32_t            i;
    const kvr_block_t  *b;

    for (i = 0; i < s->nvisits; i++) {
        b = kvr_block_at(&s->x->arena, s->visits[i].block);

        if (kvr_load32(&b->version) != s->visits[i].version) {
            break;
        }
    }

    return i;
}


/*
 * The length of the prefix whose blocks no writer has changed; all views must
 * have been followed. It is 0 when the arena's epoch changed, because versions
 * mean nothing then.
 */

static uint32_t
kvr_search_cut(kvr_search_t *s, bool same)
{
    uint32_t  i, k, t, good;

    s->out->torn = true;
    good = kvr_search_good(s);
    k = !same ? 0 : good < s->nvisits ? s->visits[good].position : s->best;

    for (t = s->out->tiered ? 0 : 2; t < 3; t++) {
        for (i = 0; i < s->out->nviews; i++) {
            s->out->depths[t][i] = kvr_min(s->out->depths[t][i], k);
        }
    }

    (void) __atomic_fetch_add(&s->x->zone->torn, 1, __ATOMIC_RELAXED);

    return kvr_min(s->best, k);
}


/* Stamps the deepest matched block with the present time. */

static void
kvr_search_stamp(const kvr_search_t *s)
{
    const kvr_visit_t  *visit;

    visit = &s->visits[s->deepest];

    kvr_version_stamp(kvr_block_at(&s->x->arena, visit->block),
                      visit->version, visit->stamp, s->x->now);
}
