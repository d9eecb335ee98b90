/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The dump: events that make the same index again, and RouterEvents of them.
 *
 * For each holder:
 *
 *     1. its chains, parents first, stored in device; a block that it does
 *        not hold but that lies before one it holds gets a made-up handle
 *     2. further tiers, and further handles of blocks
 *     3. removals in device of what it does not have there
 *
 * The classes of KV cache groups are described before all of this, and told
 * after it which blocks they hold (kvr_dump_classes.h); in events only.
 *
 * Where handles span several blocks, each of these is stored by itself, under
 * the handle that it has in the index (kvr_span.h).  An event can say that
 * there are spans, a RouterEvent can't.
 */


#include "kvr_dump_classes.h"
#include "kvr_span.h"
#include "kvr_views.h"

#include <stdlib.h>


#define KVR_DUMP_BLOCKS      512        /* the maximum number of blocks in
                                           one line, about 30 KB */
#define KVR_DUMP_LINE        (KVR_DUMP_BLOCKS * 80 + 1024)


/* a run of which the holder has blocks, or a run before such a run */
typedef struct {
    uint32_t    run;
    uint32_t    top;                    /* blocks that need a handle */
    uint32_t    depth;                  /* blocks before the run */
    uint32_t    parent;                 /* the parent's index + 1; 0: none */
    uint64_t   *handles;
    uint8_t    *tiers;                  /* tiers of the block's handle */
} kvr_dump_run_t;


typedef struct {
    kvr_shard_t         *shard;
    uint32_t             only;          /* worker's slot; UINT32_MAX: all */
    bool                 estimates;     /* instead of what events told */
    kvr_rc_t           (*put)(void *data, const kvr_event_t *ev);
    void                *data;

    kvr_index_handle_t  *entries;       /* the handles of a shard, sorted by
                                           view */
    size_t               nentries;
    size_t               pairs;         /* the maximum number of entries */

    kvr_dump_run_t      *runs;          /* the runs of one holder */
    uint32_t             nruns;
    uint32_t             size;
    uint32_t            *map;           /* run -> index + 1 */
    uint32_t             nmap;

    const char          *worker;
    uint32_t             rank;
    uint64_t             event_id;      /* counted per holder */
} kvr_dump_t;


/* Writes events as lines of the dump. */
typedef struct {
    kvr_rc_t         (*put)(void *data, const char *line, size_t len);
    void              *data;
    char              *line;
} kvr_dump_lines_t;


static kvr_rc_t kvr_dump_line(void *data, const kvr_event_t *ev);
static void kvr_dump_free(kvr_dump_t *d);
static kvr_rc_t kvr_dump_shard(kvr_dump_t *d);
static kvr_rc_t kvr_dump_collect(kvr_dump_t *d);
static void kvr_dump_tell(void *data, const kvr_index_handle_t *h);
static int kvr_dump_compare(const void *one, const void *two);
static kvr_rc_t kvr_dump_holder(kvr_dump_t *d, kvr_index_handle_t *e,
    size_t n);
static uint32_t kvr_dump_run(kvr_dump_t *d, uint32_t run);
static kvr_rc_t kvr_dump_handles(kvr_dump_t *d, uint32_t view,
    kvr_index_handle_t *e, size_t n);
static kvr_rc_t kvr_dump_chains(kvr_dump_t *d);
static kvr_rc_t kvr_dump_others(kvr_dump_t *d, kvr_index_handle_t *e,
    size_t n);
static kvr_rc_t kvr_dump_holes(kvr_dump_t *d);
static kvr_rc_t kvr_dump_span(kvr_dump_t *d, uint32_t view);
static kvr_rc_t kvr_dump_store(kvr_dump_t *d, kvr_dump_run_t *r,
    uint32_t offset, uint32_t n, const uint64_t *handles, kvr_tier_t tier);
static kvr_rc_t kvr_dump_event(kvr_dump_t *d, kvr_event_t *ev);
static void kvr_dump_free_runs(kvr_dump_t *d);


kvr_rc_t
kvr_router_dump(kvr_router_t *r, bool estimates,
    kvr_rc_t (*put)(void *data, const char *line, size_t len), void *data)
{
    uint32_t          i;
    kvr_rc_t          rc;
    kvr_dump_t        d;
    kvr_dump_lines_t  lines;

    memset(&d, 0, sizeof(d));
    memset(&lines, 0, sizeof(lines));

    lines.put = put;
    lines.data = data;
    lines.line = malloc(KVR_DUMP_LINE);

    d.only = UINT32_MAX;
    d.estimates = estimates;
    d.put = kvr_dump_line;
    d.data = &lines;

    rc = lines.line ? KVR_OK : KVR_ERROR;

    for (i = 0; rc == KVR_OK && i < r->nshards; i++) {
        d.shard = &r->shards[i];
        rc = kvr_dump_shard(&d);
    }

    kvr_dump_free(&d);
    free(lines.line);

    return rc;
}


kvr_rc_t
kvr_router_dump_events(kvr_router_t *r, const char *id, size_t len,
    kvr_rc_t (*put)(void *data, const kvr_event_t *ev), void *data)
{
    kvr_rc_t    rc;
    kvr_dump_t  d;

    memset(&d, 0, sizeof(d));

    d.shard = kvr_shard_of(r, id, len);
    d.put = put;
    d.data = data;

    rc = kvr_fleet_find(&d.shard->fleet, id, len, &d.only);

    if (rc == KVR_OK) {
        rc = kvr_dump_shard(&d);
    }

    kvr_dump_free(&d);

    return rc;
}


static kvr_rc_t
kvr_dump_line(void *data, const kvr_event_t *ev)
{
    size_t             len;
    kvr_dump_lines_t  *lines;

    lines = data;

    len = kvr_router_event_print(lines->line, KVR_DUMP_LINE, ev->worker,
                                 ev->worker_len, ev->event_id, ev);

    return len ? lines->put(lines->data, lines->line, len) : KVR_ERROR;
}


static void
kvr_dump_free(kvr_dump_t *d)
{
    kvr_dump_free_runs(d);
    free(d->entries);
    free(d->runs);
    free(d->map);
}


static kvr_rc_t
kvr_dump_shard(kvr_dump_t *d)
{
    size_t    i, first;
    uint32_t  view;
    kvr_rc_t  rc;

    rc = kvr_shard_lock(d->shard, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_dump_collect(d);

    if (rc == KVR_OK && d->only != UINT32_MAX) {
        rc = kvr_dump_classes(d->shard, d->only, KVR_CLASS, d->put, d->data);
    }

    for (i = 0; rc == KVR_OK && i < d->nentries; /* void */ ) {

        first = i;
        view = d->entries[i].view;

        while (i < d->nentries && d->entries[i].view == view) {
            i++;
        }

        rc = kvr_dump_holder(d, &d->entries[first], i - first);
    }

    if (rc == KVR_OK && d->only != UINT32_MAX) {
        rc = kvr_dump_classes(d->shard, d->only, KVR_BITS, d->put, d->data);
    }

    kvr_shard_unlock(d->shard);

    return rc;
}


/* Collects all handles of the shard's living views, sorted by view. */

static kvr_rc_t
kvr_dump_collect(kvr_dump_t *d)
{
    kvr_index_usage_t  usage;

    kvr_index_usage(&d->shard->index, &usage);

    free(d->entries);

    d->nentries = 0;
    d->pairs = usage.pairs;
    d->entries = malloc((usage.pairs + 1) * sizeof(kvr_index_handle_t));
    if (d->entries == NULL) {
        return KVR_ERROR;
    }

    kvr_index_each(&d->shard->index, kvr_dump_tell, d);

    qsort(d->entries, d->nentries, sizeof(kvr_index_handle_t),
          kvr_dump_compare);

    return KVR_OK;
}


static void
kvr_dump_tell(void *data, const kvr_index_handle_t *h)
{
    bool          shadow;
    uint32_t      view, holder;
    kvr_dump_t   *d;
    kvr_shard_t  *k;

    d = data;
    k = d->shard;
    view = kvr_index_view(&k->index, h->view, &shadow);
    holder = d->estimates ? kvr_shard_estimates(k, view)
                          : k->fleet.view_holder[view];

    if (shadow || holder >= k->zone->fleet.max_holders
        || d->nentries == d->pairs)
    {
        return;
    }

    if (d->only == UINT32_MAX || k->fleet.holders[holder].worker == d->only) {
        d->entries[d->nentries++] = *h;
    }
}


static int
kvr_dump_compare(const void *one, const void *two)
{
    uint64_t  a, b;

    const kvr_index_handle_t *x = one;
    const kvr_index_handle_t *y = two;

    /*
     * sort by view, run and offset; comparing the handle, too, makes the order
     * unique
     */

    a = (uint64_t) x->view << 32 | x->run;
    b = (uint64_t) y->view << 32 | y->run;

    if (a == b) {
        a = x->offset;
        b = y->offset;
    }

    if (a == b) {
        a = x->handle;
        b = y->handle;
    }

    return a < b ? -1 : a > b;
}


static int
kvr_dump_compare_depth(const void *one, const void *two)
{
    const kvr_dump_run_t *x = *(kvr_dump_run_t *const *) one;
    const kvr_dump_run_t *y = *(kvr_dump_run_t *const *) two;

    if (x->depth != y->depth) {
        return x->depth < y->depth ? -1 : 1;
    }

    return x->run < y->run ? -1 : x->run > y->run;
}


static kvr_rc_t
kvr_dump_holder(kvr_dump_t *d, kvr_index_handle_t *e, size_t n)
{
    size_t         i;
    uint32_t       r, up, view, holder, offset;
    kvr_rc_t       rc;
    kvr_shard_t   *k;

    k = d->shard;
    view = e[0].view;
    holder = kvr_fleet_view_holder(&k->fleet, view);

    d->worker = k->fleet.workers[k->fleet.holders[holder].worker].conf.id;
    d->rank = k->fleet.holders[holder].rank;
    d->event_id = 0;

    kvr_dump_free_runs(d);

    /* the runs of which the view has blocks, and all runs before them */

    for (i = 0; i < n; i++) {

        r = kvr_dump_run(d, e[i].run);
        if (r == 0) {
            return KVR_ERROR;
        }

        d->runs[r - 1].top = kvr_max(d->runs[r - 1].top,
                                     e[i].offset + 1u);
    }

    for (i = 0; i < d->nruns; i++) {

        d->runs[i].depth = kvr_index_depth(&k->index, d->runs[i].run);

        r = kvr_index_parent(&k->index, d->runs[i].run, &offset);
        if (r == 0) {
            continue;
        }

        up = kvr_dump_run(d, r);                /* may move d->runs */
        if (up == 0) {
            return KVR_ERROR;
        }

        d->runs[i].parent = up;
        d->runs[up - 1].top = kvr_max(d->runs[up - 1].top, offset);
    }

    rc = kvr_dump_handles(d, view, e, n);

    if (rc == KVR_OK) {
        rc = kvr_dump_chains(d);
    }

    if (rc == KVR_OK) {
        rc = kvr_dump_others(d, e, n);
    }

    if (rc == KVR_OK) {
        rc = kvr_dump_holes(d);
    }

    if (rc == KVR_OK && d->only != UINT32_MAX) {
        rc = kvr_dump_span(d, view);
    }

    return rc;
}


static uint32_t *
kvr_dump_slot(kvr_dump_t *d, uint32_t run)
{
    uint32_t  i;

    i = (run * 0x9e3779b1u) & (d->nmap - 1);

    while (d->map[i] && d->runs[d->map[i] - 1].run != run) {
        i = (i + 1) & (d->nmap - 1);
    }

    return &d->map[i];
}


/*
 * The index + 1 of a run's record, which is made if it does not exist; 0: out
 * of memory.
 */

static uint32_t
kvr_dump_run(kvr_dump_t *d, uint32_t run)
{
    uint32_t         i, n, *slot, *map;
    kvr_dump_run_t  *runs;

    if (d->nruns == d->size) {

        n = d->size ? d->size * 2 : 1024;

        runs = realloc(d->runs, n * sizeof(kvr_dump_run_t));
        if (runs == NULL) {
            return 0;
        }

        d->runs = runs;
        d->size = n;

        map = calloc(n * 2, sizeof(uint32_t));
        if (map == NULL) {
            return 0;
        }

        free(d->map);
        d->map = map;
        d->nmap = n * 2;

        for (i = 0; i < d->nruns; i++) {
            *kvr_dump_slot(d, d->runs[i].run) = i + 1;
        }
    }

    slot = kvr_dump_slot(d, run);

    if (*slot == 0) {
        memset(&d->runs[d->nruns], 0, sizeof(kvr_dump_run_t));
        d->runs[d->nruns].run = run;
        *slot = ++d->nruns;
    }

    return *slot;
}


/* Gives each block of a run a handle: the view's first, or a made-up one. */

static kvr_rc_t
kvr_dump_handles(kvr_dump_t *d, uint32_t view, kvr_index_handle_t *e, size_t n)
{
    size_t           i;
    uint32_t         k, o;
    uint64_t         handle;
    kvr_dump_run_t  *r;

    for (i = 0; i < d->nruns; i++) {
        r = &d->runs[i];

        r->handles = calloc(r->top + 1, sizeof(uint64_t));
        r->tiers = calloc(r->top + 1, 1);

        if (r->handles == NULL || r->tiers == NULL) {
            return KVR_ERROR;
        }
    }

    for (i = 0; i < n; i++) {
        r = &d->runs[*kvr_dump_slot(d, e[i].run) - 1];
        o = e[i].offset;

        if (r->tiers[o] == 0) {
            r->handles[o] = e[i].handle;
            r->tiers[o] = (uint8_t) e[i].tiers;
        }
    }

    for (i = 0; i < d->nruns; i++) {
        r = &d->runs[i];

        for (k = 0; k < r->top; k++) {

            if (r->tiers[k]) {
                continue;
            }

            /*
             * a made-up handle: different for each (run, offset), and not in
             * use by the view
             */

            handle = ((uint64_t) r->run << 9 | k) * 0x9e3779b97f4a7c15u;

            while (kvr_index_knows(&d->shard->index, view, handle)) {
                handle += UINT64_C(1) << 41;
            }

            r->handles[k] = handle;
        }
    }

    return KVR_OK;
}


static kvr_rc_t
kvr_dump_chains(kvr_dump_t *d)
{
    uint32_t          i;
    kvr_rc_t          rc;
    kvr_dump_run_t  **order;

    order = malloc((d->nruns + 1) * sizeof(kvr_dump_run_t *));
    if (order == NULL) {
        return KVR_ERROR;
    }

    for (i = 0; i < d->nruns; i++) {
        order[i] = &d->runs[i];
    }

    qsort(order, d->nruns, sizeof(kvr_dump_run_t *), kvr_dump_compare_depth);

    rc = KVR_OK;

    for (i = 0; rc == KVR_OK && i < d->nruns; i++) {
        rc = kvr_dump_store(d, order[i], 0, order[i]->top, order[i]->handles,
                            KVR_DEVICE);
    }

    free(order);

    return rc;
}


/*
 * Stores the tiers other than device, and the handles of a block after its
 * first.
 */

static kvr_rc_t
kvr_dump_others(kvr_dump_t *d, kvr_index_handle_t *e, size_t n)
{
    size_t           i;
    uint32_t         o, t, first;
    kvr_rc_t         rc;
    kvr_dump_run_t  *r;

    for (i = 0; i < n; i++) {

        r = &d->runs[*kvr_dump_slot(d, e[i].run) - 1];
        o = e[i].offset;
        first = r->handles[o] == e[i].handle;

        for (t = first ? KVR_HOST : KVR_DEVICE; t < KVR_TIERS; t++) {

            if ((e[i].tiers & 1u << t) == 0) {
                continue;
            }

            rc = kvr_dump_store(d, r, o, 1, &e[i].handle, t);

            if (rc != KVR_OK) {
                return rc;
            }
        }
    }

    return KVR_OK;
}


static kvr_rc_t
kvr_dump_holes(kvr_dump_t *d)
{
    uint32_t         i, k, n;
    uint64_t         gone[KVR_RUN_MAX];
    kvr_rc_t         rc;
    kvr_event_t      ev;
    kvr_dump_run_t  *r;

    for (i = 0; i < d->nruns; i++) {

        r = &d->runs[i];
        n = 0;

        for (k = 0; k < r->top; k++) {
            if ((r->tiers[k] & 1u << KVR_DEVICE) == 0) {
                gone[n++] = r->handles[k];
            }
        }

        if (n == 0) {
            continue;
        }

        memset(&ev, 0, sizeof(ev));
        ev.kind = KVR_REMOVE;
        ev.tier = KVR_DEVICE;
        ev.handles = gone;
        ev.nhandles = n;

        rc = kvr_dump_event(d, &ev);

        if (rc != KVR_OK) {
            return rc;
        }
    }

    return KVR_OK;
}


/*
 * Stores and removes a block with the view's longest span: a process that
 * loads the dump must know the span to find the handles that derive from one
 * handle.  This comes last, because a handle which is stored alone leaves what
 * was derived from it before (kvr_span_store()).
 */
static kvr_rc_t
kvr_dump_span(kvr_dump_t *d, uint32_t view)
{
    uint32_t     i, span;
    uint64_t     handle, locals[KVR_SPAN_MAX];
    kvr_rc_t     rc;
    kvr_event_t  ev;

    span = kvr_min(d->shard->fleet.view_span[view], KVR_SPAN_MAX);

    if (span < 2) {
        return KVR_OK;
    }

    for (handle = 1; kvr_index_knows(&d->shard->index, view, handle);
         handle++)
    {
        /* void */
    }

    for (i = 0; i < span; i++) {
        locals[i] = ~handle - i;
    }

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.handles = &handle;
    ev.nhandles = 1;
    ev.locals = locals;
    ev.nlocals = span;

    rc = kvr_dump_event(d, &ev);

    if (rc == KVR_OK) {
        ev.kind = KVR_REMOVE;
        ev.locals = NULL;
        ev.nlocals = 0;

        rc = kvr_dump_event(d, &ev);
    }

    return rc;
}


/* Stores n blocks of a run from an offset on, under these handles. */

static kvr_rc_t
kvr_dump_store(kvr_dump_t *d, kvr_dump_run_t *r, uint32_t offset, uint32_t n,
    const uint64_t *handles, kvr_tier_t tier)
{
    uint32_t      i, k, m, before;
    uint64_t      locals[KVR_RUN_MAX];
    kvr_rc_t      rc;
    kvr_event_t   ev;

    (void) kvr_index_parent(&d->shard->index, r->run, &before);

    for (i = 0; i < n; i += m) {

        m = kvr_min(n - i, KVR_DUMP_BLOCKS);

        for (k = 0; k < m; k++) {
            locals[k] = kvr_index_hash(&d->shard->index, r->run,
                                       offset + i + k);
        }

        memset(&ev, 0, sizeof(ev));
        ev.kind = KVR_STORE;
        ev.tier = tier;
        ev.handles = handles + i;
        ev.nhandles = m;
        ev.locals = locals;
        ev.nlocals = m;

        if (offset + i) {
            ev.has_parent = true;
            ev.parent = r->handles[offset + i - 1];

        } else if (r->parent) {
            ev.has_parent = true;
            ev.parent = d->runs[r->parent - 1].handles[before - 1];
        }

        rc = kvr_dump_event(d, &ev);

        if (rc != KVR_OK) {
            return rc;
        }
    }

    return KVR_OK;
}


static kvr_rc_t
kvr_dump_event(kvr_dump_t *d, kvr_event_t *ev)
{
    ev->rank = d->rank;
    ev->worker = d->worker;
    ev->worker_len = strlen(d->worker);
    ev->has_event_id = true;
    ev->event_id = ++d->event_id;

    return d->put(d->data, ev);
}


static void
kvr_dump_free_runs(kvr_dump_t *d)
{
    uint32_t  i;

    for (i = 0; i < d->nruns; i++) {
        free(d->runs[i].handles);
        free(d->runs[i].tiers);
    }

    d->nruns = 0;

    if (d->map) {
        memset(d->map, 0, d->nmap * sizeof(uint32_t));
    }
}
