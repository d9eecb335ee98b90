/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The invariants of the positional index, for tests and for the doubtful.
 *
 * One pass over the places looks at each block with its records and marks its
 * words; the free lists and limbo must mark others.  What each view holds of
 * each block is held against the counts in the parents, and the handles
 * against the records.
 */


#include "kvr_check.h"
#include "kvr_check_pieces.h"
#include "positional/kvr_places.h"

#include <stdlib.h>


/* A view holds a block in some rows: seen from its parent. */
typedef struct {
    uint32_t    parent;
    uint32_t    view;
    uint32_t    rows;                   /* that the child is held in */
    uint32_t    broken;                 /* and the parent is not */
} kvr_check_link_t;


typedef struct {
    const kvr_positional_t  *x;
    kvr_check_pieces_t       pieces;
    uint32_t                *nchildren; /* counted; by block / 8 */
    uint32_t                *broken;    /* counted; by view */
    uint32_t                *handles;
    kvr_check_link_t        *links;
    uint64_t                 nlinks;
    uint64_t                 nkids;     /* records of counts */
    uint64_t                 nhandles;
    uint64_t                 used;
} kvr_pcheck_t;


static const char *kvr_pcheck_all(kvr_pcheck_t *k);
static const char *kvr_pcheck_places(kvr_pcheck_t *k);
static const char *kvr_pcheck_block(kvr_pcheck_t *k, uint32_t block);
static const char *kvr_pcheck_records(kvr_pcheck_t *k, uint32_t block);
static const char *kvr_pcheck_record(kvr_pcheck_t *k, uint32_t block,
    uint32_t i);
static const char *kvr_pcheck_leaves(kvr_pcheck_t *k);
static const char *kvr_pcheck_links(kvr_pcheck_t *k);
static const char *kvr_pcheck_kids(kvr_pcheck_t *k,
    const kvr_check_link_t *link, const uint64_t n[3]);
static const char *kvr_pcheck_counts(kvr_pcheck_t *k);
static uint32_t kvr_pcheck_rows(const kvr_pcheck_t *k, uint32_t block,
    uint32_t view);
static int kvr_pcheck_compare(const void *one, const void *two);


const char *
kvr_positional_check(const kvr_positional_t *x)
{
    size_t         words;
    const char    *why;
    kvr_pcheck_t   k;

    memset(&k, 0, sizeof(kvr_pcheck_t));

    words = x->zone->arena.bump;

    if (words > x->zone->arena.limit) {
        return kvr_check_fail("the arena's bump is behind its limit");
    }

    k.x = x;
    k.nchildren = calloc(words / 8 + 1, sizeof(uint32_t));
    k.broken = calloc(x->zone->max_views + 1, sizeof(uint32_t));
    k.handles = calloc(x->zone->max_views + 1, sizeof(uint32_t));
    k.links = malloc((x->zone->handles.used + 1) * sizeof(kvr_check_link_t));

    if (kvr_check_open(&k.pieces, &x->arena) && k.nchildren && k.broken
        && k.handles && k.links)
    {
        why = kvr_pcheck_all(&k);

    } else {
        why = kvr_check_fail("no memory to check the index");
    }

    kvr_check_close(&k.pieces);
    free(k.nchildren);
    free(k.broken);
    free(k.handles);
    free(k.links);

    return why;
}


static const char *
kvr_pcheck_all(kvr_pcheck_t *k)
{
    const char  *why;

    why = kvr_pcheck_places(k);

    if (why == NULL) {
        why = kvr_pcheck_leaves(k);
    }

    if (why == NULL) {
        why = kvr_pcheck_links(k);
    }

    if (why == NULL) {
        why = kvr_check_free(&k->pieces);
    }

    if (why == NULL) {
        why = kvr_pcheck_counts(k);
    }

    return why;
}


/* ---- blocks ------------------------------------------------------------- */

static const char *
kvr_pcheck_places(kvr_pcheck_t *k)
{
    uint32_t                 block;
    uint64_t                 i, n;
    const char              *why;
    const kvr_positional_t  *x;

    x = k->x;
    n = 0;

    for (i = 0; i <= (x->zone->nplaces - 1) / KVR_POSITIONAL_STRIPE; i++) {
        if (x->stripes[i] & 1) {
            return kvr_check_fail("the version of stripe %lu is odd",
                                   (unsigned long) i);
        }
    }

    if (x->zone->broken_version & 1) {
        return kvr_check_fail("the version of the broken links is odd");
    }

    for (i = 0; i < x->zone->nplaces; i++) {

        block = (uint32_t) (x->places[i] >> 32);

        if (block == 0) {
            continue;
        }

        n++;

        if (block % 8) {
            return kvr_check_fail("block %u is not aligned", block);
        }

        why = kvr_check_piece(&k->pieces, block, KVR_ARENA_BLOCK_WORDS,
                              "block");
        if (why) {
            return why;
        }

        k->used += KVR_ARENA_BLOCK_WORDS;

        why = kvr_pcheck_block(k, block);
        if (why) {
            return why;
        }

        why = kvr_pcheck_records(k, block);
        if (why) {
            return why;
        }
    }

    if (n != x->zone->blocks) {
        return kvr_check_fail("%lu blocks, %lu counted", (unsigned long) n,
                               (unsigned long) x->zone->blocks);
    }

    return NULL;
}


/* Its name, and that it and its parent are found. */

static const char *
kvr_pcheck_block(kvr_pcheck_t *k, uint32_t block)
{
    uint32_t                 position;
    uint64_t                 before;
    const kvr_block_t       *b, *up;
    const kvr_positional_t  *x;

    x = k->x;
    b = kvr_block_at(&x->arena, block);

    if (b->version & 1) {
        return kvr_check_fail("the version of block %u is odd", block);
    }

    position = 0;
    before = 0;

    if (b->parent) {

        if (b->parent >= x->zone->arena.bump) {
            return kvr_check_fail("block %u: the parent is outside", block);
        }

        up = kvr_block_at(&x->arena, b->parent);
        position = up->position + 1;
        before = up->sequence;

        if (kvr_places_child(x, up->parent, up->hash, up->sequence)
            != b->parent)
        {
            return kvr_check_fail("block %u: parent %u is not found", block,
                                   b->parent);
        }

        k->nchildren[b->parent / 8]++;
    }

    if (b->position != position) {
        return kvr_check_fail("block %u is at %u, should be %u", block,
                               b->position, position);
    }

    if (b->sequence != kvr_places_sequence(x, before, b->hash)) {
        return kvr_check_fail("block %u has another's sequence hash", block);
    }

    if (kvr_places_child(x, b->parent, b->hash, b->sequence) != block) {
        return kvr_check_fail("block %u is not found", block);
    }

    return NULL;
}


static const char *
kvr_pcheck_records(kvr_pcheck_t *k, uint32_t block)
{
    uint32_t            i;
    const char         *why;
    const kvr_block_t  *b;

    b = kvr_block_at(&k->x->arena, block);

    if (b->n > (b->cap ? b->cap : KVR_BLOCK_INLINE)
        || (b->cap && b->n <= KVR_BLOCK_INLINE) || b->cap % 2)
    {
        return kvr_check_fail("block %u: %u records, room for %u", block,
                               b->n, b->cap);
    }

    if (b->cap) {
        why = kvr_check_alloc(&k->pieces, b->at.ext,
                              kvr_block_ext_words(b->cap), "records",
                              &k->used);
        if (why) {
            return why;
        }
    }

    for (i = 0; i < b->n; i++) {
        why = kvr_pcheck_record(k, block, i);
        if (why) {
            return why;
        }
    }

    return NULL;
}


static const char *
kvr_pcheck_record(kvr_pcheck_t *k, uint32_t block, uint32_t i)
{
    bool                first;
    uint32_t            j, mark, view, rows;
    uint64_t            slot, value;
    const uint32_t     *marks;
    const kvr_block_t  *b;
    kvr_check_link_t   *link;
    kvr_entry_t       *e;

    b = kvr_block_at(&k->x->arena, block);
    marks = kvr_block_marks(&k->x->arena, b);
    mark = marks[i];
    view = kvr_mark_view(mark);
    value = kvr_block_values(&k->x->arena, b)[i];

    if (mark == KVR_MARK_SEED) {

        if (b->position % KVR_SEED_EVERY || value == 0
            || kvr_block_find(&k->x->arena, b, mark) != i)
        {
            return kvr_check_fail("block %u has a seed unasked", block);
        }

        return NULL;
    }

    if (view >= k->x->zone->max_views || mark >> 20) {
        return kvr_check_fail("block %u has a record of view %u", block,
                               view);
    }

    if (kvr_mark_tiers(mark) == 0) {

        if (kvr_block_find(&k->x->arena, b, mark) != i) {
            return kvr_check_fail("block %u: view %u has its children twice",
                                   block, view);
        }

        k->nkids++;

        return NULL;
    }

    e = kvr_entries_find(&k->x->handles, value, view, &slot);

    if (e == NULL
        || e->word != kvr_entry(block, kvr_mark_tiers(mark), view))
    {
        return kvr_check_fail("block %u: view %u has no handle %lx", block,
                               view, (unsigned long) value);
    }

    first = true;

    for (j = 0; j < i; j++) {
        if (kvr_mark_view(marks[j]) != view || !kvr_mark_tiers(marks[j])) {
            continue;
        }

        first = false;

        if (kvr_block_values(&k->x->arena, b)[j] == value) {
            return kvr_check_fail("block %u: view %u has handle %lx twice",
                                   block, view, (unsigned long) value);
        }
    }

    k->nhandles++;
    k->handles[view]++;

    if (k->nhandles > k->x->zone->handles.used) {
        return kvr_check_fail("more handles than the %lu counted",
                               (unsigned long) k->x->zone->handles.used);
    }

    rows = kvr_pcheck_rows(k, block, view);

    if (first && rows && b->parent) {
        link = &k->links[k->nlinks++];
        link->parent = b->parent;
        link->view = view;
        link->rows = rows;
        link->broken = rows & ~kvr_pcheck_rows(k, b->parent, view);
        k->broken[view] += (uint32_t) __builtin_popcount(link->broken);
    }

    return NULL;
}


/* The rows that a view holds a block in. */

static uint32_t
kvr_pcheck_rows(const kvr_pcheck_t *k, uint32_t block, uint32_t view)
{
    kvr_block_view_t  v;

    kvr_block_look(&k->x->arena, kvr_block_at(&k->x->arena, block), view, 0,
                   &v);

    return kvr_block_rows(v.tiers | v.own);
}


static const char *
kvr_pcheck_leaves(kvr_pcheck_t *k)
{
    uint32_t            block;
    uint64_t            i;
    const kvr_block_t  *b;

    for (i = 0; i < k->x->zone->nplaces; i++) {

        block = (uint32_t) (k->x->places[i] >> 32);

        if (block == 0) {
            continue;
        }

        b = kvr_block_at(&k->x->arena, block);

        if (b->nchildren != k->nchildren[block / 8]) {
            return kvr_check_fail("block %u: %u children, %u counted", block,
                                   k->nchildren[block / 8], b->nchildren);
        }

        if (b->nchildren == 0 && !kvr_block_held(&k->x->arena, b)
            && block != k->x->zone->freeing)
        {
            return kvr_check_fail("block %u is nobody's and a leaf", block);
        }
    }

    return NULL;
}


/* ---- links -------------------------------------------------------------- */

static const char *
kvr_pcheck_links(kvr_pcheck_t *k)
{
    uint32_t                 t;
    uint64_t                 i, groups, n[3];
    const char              *why;
    const kvr_check_link_t  *link;

    qsort(k->links, k->nlinks, sizeof(kvr_check_link_t), kvr_pcheck_compare);

    groups = 0;

    for (i = 0; i < k->nlinks; groups++) {

        link = &k->links[i];
        memset(n, 0, sizeof(n));

        for ( /* void */ ;
             i < k->nlinks && k->links[i].parent == link->parent
             && k->links[i].view == link->view;
             i++)
        {
            for (t = 0; t < 3; t++) {
                n[t] += k->links[i].rows >> t & 1;
            }
        }

        why = kvr_pcheck_kids(k, link, n);
        if (why) {
            return why;
        }
    }

    if (groups != k->nkids) {
        return kvr_check_fail("children are held behind %lu blocks, counted "
                               "in %lu", (unsigned long) groups,
                               (unsigned long) k->nkids);
    }

    return NULL;
}


static const char *
kvr_pcheck_kids(kvr_pcheck_t *k, const kvr_check_link_t *link,
    const uint64_t n[3])
{
    uint32_t            i, t;
    uint64_t            kids;
    const kvr_block_t  *b;

    b = kvr_block_at(&k->x->arena, link->parent);
    i = kvr_block_find(&k->x->arena, b, kvr_mark(0, link->view));

    if (i == UINT32_MAX) {
        return kvr_check_fail("block %u: view %u holds a child, not counted",
                               link->parent, link->view);
    }

    kids = kvr_block_values(&k->x->arena, b)[i];

    for (t = 0; t < 3; t++) {
        if ((kids >> t * KVR_KIDS_BITS & KVR_KIDS_MAX) != n[t]) {
            return kvr_check_fail("block %u: view %u holds %lu children in "
                                   "row %u, %lu counted", link->parent,
                                   link->view, (unsigned long) n[t], t,
                                   (unsigned long)
                                   (kids >> t * KVR_KIDS_BITS
                                    & KVR_KIDS_MAX));
        }
    }

    return NULL;
}


static int
kvr_pcheck_compare(const void *one, const void *two)
{
    const kvr_check_link_t *a = one;
    const kvr_check_link_t *b = two;

    if (a->parent != b->parent) {
        return a->parent < b->parent ? -1 : 1;
    }

    return a->view < b->view ? -1 : a->view > b->view;
}


static const char *
kvr_pcheck_counts(kvr_pcheck_t *k)
{
    uint32_t                      view, nbroken;
    const kvr_positional_zone_t  *z;

    z = k->x->zone;
    nbroken = 0;

    if (z->arena.used - z->arena.lent != k->used) {
        return kvr_check_fail("%lu words are used, %lu counted",
                               (unsigned long) k->used,
                               (unsigned long) (z->arena.used
                                                - z->arena.lent));
    }

    if (z->handles.used != k->nhandles) {
        return kvr_check_fail("%lu handles, %lu counted",
                               (unsigned long) k->nhandles,
                               (unsigned long) z->handles.used);
    }

    for (view = 0; view < z->max_views; view++) {

        if (k->x->view_handles[view] != k->handles[view]) {
            return kvr_check_fail("view %u has %u handles, %u counted", view,
                                   k->handles[view],
                                   k->x->view_handles[view]);
        }

        nbroken += k->x->view_broken[view] != 0;

        if ((k->x->view_broken[view] & ~KVR_BROKEN_HIDDEN) != k->broken[view])
        {
            return kvr_check_fail("view %u has %u broken links, %u counted",
                                   view, k->broken[view],
                                   k->x->view_broken[view]);
        }
    }

    if (z->nbroken != nbroken) {
        return kvr_check_fail("%u views have broken links, %u counted",
                               nbroken, z->nbroken);
    }

    return NULL;
}
