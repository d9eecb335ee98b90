/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Both indexes against the model of the unit tests (t/unit/model.h): any bytes
 * are a row of stores, removals, tiers, clears and rollbacks by four holders
 * with few names, so that handles move, come twice, name themselves as parents,
 * and leave holes everywhere.
 *
 * The first byte chooses the index and the memory, of which there may be so
 * little that stores and removals are refused for want of room, or blocks are
 * forgotten: that ends an input, when nobody has more than the model says.  A
 * clear may take long: the holder is hidden, and reclaimed bit by bit between
 * other operations.
 *
 * In a radix index holders get classes of KV-cache groups, and classes get and
 * lose blocks: no hit is above what the holder has, and with nothing else the
 * answers are the same.
 */


#include "fuzz.h"

#include "../t/check/kvr_check.h"
#include "../t/unit/model.h"


#define ROOM         (1u << 20)         /* for log, tables, and arena */
#define VIEWS        4
#define HANDLES      1024               /* their names: 0 .. 1023 */
#define OPS          400                /* of an input, at most */
#define EVENT_MAX    768
#define PROMPT_MAX   4096
#define GROUP        4                  /* events in one transaction */
#define CHECK        24                 /* operations between two checks */


typedef struct {
    const uint8_t  *pos;
    const uint8_t  *end;
} bytes_t;


typedef enum {
    OP_STORE,
    OP_REMOVE,
    OP_ADD_TIER
} kind_t;


/* An event, and what the index answered. */
typedef struct {
    kind_t      kind;
    uint32_t    view;
    kvr_tier_t  tier;
    bool        has_parent;
    uint64_t    parent;
    uint32_t    n;
    uint64_t    hashes[EVENT_MAX];
    uint64_t    handles[EVENT_MAX];

    kvr_rc_t    rc;
    uint32_t    count;                  /* blocks stored, handles unknown */
} op_t;


static uint32_t take(bytes_t *b);
static void op_read(bytes_t *b, kind_t kind, op_t *op);
static void op_apply(op_t *op);
static void op_compare(const op_t *op);
static void open_index(kvr_index_kind_t kind, uint32_t room, bool full);
static void group(bytes_t *b, kind_t kind, uint32_t n);
static void class_of(bytes_t *b, uint32_t how);
static void class_bits(uint32_t view, uint32_t i, bool in, uint32_t first,
    uint32_t n);
static uint64_t named(uint32_t view, uint64_t handle);
static uint32_t deepest(uint32_t n);
static void forgot(void *data, uint32_t view, uint32_t handles);
static void clear(bytes_t *b);
static bool reclaim(uint32_t slots);
static void drop(uint32_t view);
static bool dying(void *data, uint32_t view);
static void prompt(bytes_t *b);
static void compare(uint64_t node);
static void compare_prompt(uint32_t n);
static void compare_hits(uint32_t n);
static void check(void);
static void finish(void);
static bool emptied(uint32_t view);


static _Alignas(4096) char  memory[ROOM];

static kvr_mem_t            mem;
static kvr_index_t          x;
static kvr_index_zone_t    *zone;
static uint64_t            *torn;       /* a counter that nothing here needs */
static mdl_t                model;
static bool                 forgetful;
static uint64_t             last;       /* the node of the block stored last */
static uint32_t             hidden;     /* a view; VIEWS: none */
static op_t                 ops[GROUP];
static uint64_t             q[PROMPT_MAX + 8];


const uint32_t  fuzz_inputs = 2000;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    bytes_t   b;
    uint32_t  i, kind;

    b.pos = bytes;
    b.end = bytes + len;

    kind = take(&b);
    open_index(kind & 8 ? KVR_INDEX_POSITIONAL : KVR_INDEX_RADIX,
               80u << 10 << kind % 4, kind & 4);

    mdl_open(&model);
    last = 0;
    hidden = VIEWS;
    forgetful = false;

    for (i = 0; i < OPS && b.pos < b.end && !forgetful; i++) {

        kind = take(&b);

        switch (kind & 15) {

        case 0: case 1: case 2: case 3: case 4: case 5: case 6:
            group(&b, OP_STORE, 1);
            break;

        case 7: case 8: case 9: case 10:
            group(&b, OP_REMOVE, 1);
            break;

        case 11:
            group(&b, OP_ADD_TIER, 1);
            break;

        case 12: case 13:
            prompt(&b);
            break;

        case 14:
            group(&b, kind >> 4 & 1 ? OP_STORE : OP_REMOVE,
                  1 + (kind >> 5) % GROUP);
            break;

        default:
            if (kind & 0x80) {
                class_of(&b, kind >> 4);

            } else {
                clear(&b);
            }
        }

        if (hidden < VIEWS) {
            (void) reclaim(1 + i);
        }

        compare(last);

        if (i % CHECK == CHECK - 1) {
            check();
        }
    }

    check();
    finish();
    mdl_close(&model);

    return 0;
}


static uint32_t
take(bytes_t *b)
{
    return b->pos < b->end ? *b->pos++ : 0;
}


static void
open_index(kvr_index_kind_t kind, uint32_t room, bool full)
{
    uint64_t  at;

    static const uint64_t  secret[4] = { 0x243f6a8885a308d3, 0x13198a2e03707344,
                                         0xa4093822299f31d0,
                                         0x082efa98ec4e6c89 };

    mem.base = memory;
    mem.journal = (kvr_journal_t *) memory;
    at = (sizeof(kvr_journal_t) + 63) & ~UINT64_C(63);
    zone = (kvr_index_zone_t *) (memory + at);
    at += (sizeof(kvr_index_zone_t) + 63) & ~UINT64_C(63);
    room = kvr_min(room, ROOM - at);
    mem.size = at + room;

    memset(memory, 0, mem.size);
    kvr_index_format(&mem, zone, kind, at, room, VIEWS, secret);
    kvr_index_attach(&x, &mem, zone);
    kvr_index_on_evict(&x, forgot, NULL);

    if (kind == KVR_INDEX_RADIX) {
        torn = &zone->u.radix.torn;
        x.u.radix.cost = full ? 0 : x.u.radix.cost;

    } else {
        torn = &zone->u.positional.torn;
        x.u.positional.cost = full ? 0 : x.u.positional.cost;
    }
}


/*
 * Six bytes: who and how, parent, number, two of hashes, first handle.  Short
 * events have hashes 0 and 1; long ones leave a common chain at some place.
 */

static void
op_read(bytes_t *b, kind_t kind, op_t *op)
{
    bool      many;
    uint32_t  i, how, n, first, shape, name;

    how = take(b);
    op->kind = kind;
    op->view = how % VIEWS;
    op->tier = how & 16 ? (kvr_tier_t) (how >> 2 & 3) : KVR_DEVICE;
    many = (how & 0x60) == 0x60;

    n = take(b);
    op->has_parent = n != 0;
    op->parent = (how & 0x80 ? n * 4 : n) % HANDLES;

    n = take(b);
    op->n = many ? 1 + n * 3 : 1 + n % 12;

    shape = take(b);
    first = take(b);
    name = take(b);

    for (i = 0; i < op->n; i++) {

        if (many) {
            op->hashes[i] = i < shape * 3 ? 100 + i : 1000 * (1 + first % 3) + i;

        } else {
            op->hashes[i] = ((shape | first << 8) >> (i & 15)) & 1;
        }

        switch (how >> 5 & 3) {

        case 0:
            op->handles[i] = name + i;
            break;

        case 1:                             /* some come twice */
            op->handles[i] = name + (i * 7) % 5;
            break;

        case 2:                             /* from the end */
            op->handles[i] = name + op->n - 1 - i;
            break;

        default:
            op->handles[i] = name * 4 + i;
        }

        op->handles[i] %= HANDLES;
    }

    if (op->has_parent && shape == 0xff) {
        op->handles[first % op->n] = op->parent;
    }
}


/* Events in one transaction; one that was whole may be rolled back. */

static void
group(bytes_t *b, kind_t kind, uint32_t n)
{
    bool      full, whole;
    uint32_t  i, k;
    uint64_t  record;

    full = false;

    for (i = 0; i < n; i++) {
        op_read(b, kind, &ops[i]);
        kind = kind == OP_STORE ? OP_REMOVE : OP_STORE;

        if (ops[i].view == hidden) {
            drop(ops[i].view);
        }
    }

    if (deepest(n) + n * EVENT_MAX > PROMPT_MAX) {
        return;
    }

    kvr_index_begin(&x);
    record = mem.journal->n;
    kvr_set64(&mem, torn, *torn + 1);

    for (i = 0; i < n && !full; i++) {
        op_apply(&ops[i]);
        full = ops[i].rc == KVR_FULL;
    }

    /* has none of it been committed? */

    whole = mem.journal->n > record
            && mem.journal->records[record].where
               == ((uint64_t) ((char *) torn - mem.base) << 2
                   | KVR_UNDO_64);

    if (n > 1 && whole && b->pos < b->end && *b->pos & 1) {
        (void) kvr_txn_rollback(&mem);
        return;
    }

    kvr_txn_commit(&mem);

    if (forgetful) {
        /* what there is of it may be looked for */

        for (i = 0; i < n; i++) {
            if (ops[i].kind == OP_STORE) {
                op_compare(&ops[i]);
            }
        }

        return;
    }

    if (full && (n > 1 || ops[0].kind != OP_STORE)) {

        /* nobody knows how much of it was done: nothing stays */

        for (k = 0; k < i; k++) {
            drop(ops[k].view);
        }

        return;
    }

    for (i = 0; i < n; i++) {
        op_compare(&ops[i]);
    }
}


/* A class is described, or gets or loses blocks by some handles in a row. */

static void
class_of(bytes_t *b, uint32_t how)
{
    uint32_t     i, n, view, first;
    kvr_rc_t     rc;
    kvr_class_t  c, had[KVR_CLASSES_MAX];

    static const kvr_group_kind_t  kinds[] = {
        KVR_GROUP_WINDOW, KVR_GROUP_MAMBA, KVR_GROUP_CHUNKED,
        KVR_GROUP_INDEXED
    };

    n = take(b);
    view = n % VIEWS;
    i = n >> 2 & 3;

    if (view == hidden) {
        return;
    }

    n = take(b);
    first = take(b) * 4;

    if (i >= kvr_index_class_get(&x, view, had)) {

        c.kind = kinds[n & 3];
        c.window = 1 + (n >> 2);
        c.span = 1;

        kvr_index_begin(&x);
        rc = kvr_index_class_set(&x, view, i, &c);
        kvr_txn_commit(&mem);

        if (rc == KVR_OK && zone->kind != KVR_INDEX_RADIX) {
            fuzz_fail("a class in a positional index");
        }

        return;
    }

    class_bits(view, i, (how & 1) == 0, first, 1 + n % 64);
}


static void
class_bits(uint32_t view, uint32_t i, bool in, uint32_t first, uint32_t n)
{
    uint32_t  k, unknown;
    uint64_t  handles[64];
    kvr_rc_t  rc;

    for (k = 0; k < n; k++) {
        handles[k] = (first + k) % HANDLES;
    }

    unknown = 0;
    kvr_index_begin(&x);
    rc = kvr_index_class_hold(&x, view, i, in, handles, n, &unknown);
    kvr_txn_commit(&mem);

    if (unknown > n) {
        fuzz_fail("%u of %u handles of a class are unknown", unknown, n);
    }

    /* nobody knows how much of it was done */

    if (rc != KVR_OK) {
        drop(view);
    }
}


static void
forgot(void *data, uint32_t view, uint32_t handles)
{
    forgetful = true;
}


/* The node of a handle; the root, which no handle names: it is unknown. */

static uint64_t
named(uint32_t view, uint64_t handle)
{
    uint64_t  node;

    node = mdl_node(&model, view, handle);

    return node == UINT64_MAX ? 0 : node;
}


/* Where the events' parents are. */

static uint32_t
deepest(uint32_t n)
{
    uint32_t  i, depth;

    depth = 0;

    for (i = 0; i < n; i++) {
        depth = kvr_max(depth, model.nodes[named(ops[i].view,
                                                 ops[i].parent)].depth);
    }

    return depth;
}


static void
op_apply(op_t *op)
{
    op->count = 0;

    switch (op->kind) {

    case OP_STORE:
        op->rc = kvr_index_store(&x, op->view, op->tier, op->has_parent,
                                 op->parent, op->handles, op->hashes, op->n,
                                 0, &op->count);
        break;

    case OP_REMOVE:
        op->rc = kvr_index_remove(&x, op->view, op->tier, op->handles, op->n,
                                  &op->count);
        break;

    default:
        op->rc = kvr_index_add_tier(&x, op->view, op->tier, op->handles,
                                    op->n, &op->count);
    }
}


/* The same with the model, and whether the answer was right. */

static void
op_compare(const op_t *op)
{
    bool      known;
    uint32_t  i, n;
    uint64_t  node;

    n = 0;
    known = true;

    switch (op->kind) {

    case OP_STORE:
        node = op->has_parent ? named(op->view, op->parent) : 0;
        known = !op->has_parent || node;

        for (n = 0; known && n < op->count; n++) {
            node = mdl_child(&model, node, op->hashes[n]);
            mdl_hold(&model, op->view, op->handles[n], node, op->tier);
            last = node;
        }

        break;

    case OP_REMOVE:
        n = mdl_remove(&model, op->view, op->tier, op->handles, op->n);
        break;

    default:
        for (i = 0; i < op->n; i++) {
            node = named(op->view, op->handles[i]);

            if (node) {
                mdl_hold(&model, op->view, op->handles[i], node, op->tier);
            }

            n += node == 0;
        }
    }

    if (forgetful) {
        return;
    }

    if (op->rc != (!known ? KVR_DECLINED : op->kind == OP_STORE
                                           && n < op->n ? KVR_FULL : KVR_OK)
        || op->count != n)
    {
        fuzz_fail("event %d of %u: %d, %u, not %u", op->kind, op->n, op->rc,
                  op->count, n);
    }
}


/* At once, or hidden and bit by bit. */

static void
clear(bytes_t *b)
{
    uint32_t  view;

    view = take(b);

    if (hidden < VIEWS) {
        drop(hidden);
    }

    hidden = view % VIEWS;
    mdl_drop(&model, hidden);

    kvr_index_begin(&x);
    kvr_index_class_forget(&x, hidden);
    kvr_txn_commit(&mem);

    if (view & 0x80) {
        drop(hidden);
    }
}


static bool
dying(void *data, uint32_t view)
{
    return view == *(uint32_t *) data;
}


/* True when a round is over. */

static bool
reclaim(uint32_t slots)
{
    bool  round;

    kvr_index_begin(&x);
    round = kvr_index_reclaim(&x, dying, &hidden, slots);
    kvr_txn_commit(&mem);

    if (round && kvr_index_view_empty(&x, hidden)) {
        hidden = VIEWS;
    }

    return round;
}


static void
drop(uint32_t view)
{
    uint32_t  rounds, other;

    other = hidden == view ? VIEWS : hidden;
    hidden = view;
    mdl_drop(&model, view);

    kvr_index_begin(&x);
    kvr_index_class_forget(&x, view);
    kvr_txn_commit(&mem);

    for (rounds = 0; hidden == view; /* void */ ) {
        rounds += reclaim(10000);

        if (rounds == 4) {
            fuzz_fail("view %u is not empty after %u rounds", view, rounds);
        }
    }

    hidden = other;
}


/* The chain that a handle names, with something behind it, or changed. */

static void
prompt(bytes_t *b)
{
    uint32_t  n, view, name, what;

    view = take(b) % VIEWS;
    name = take(b) * 4 + take(b) % 4;
    what = take(b);

    n = mdl_chain(&model, named(view, name), q, PROMPT_MAX);

    if (n && what & 1) {
        q[what % n] ^= 1;
    }

    for ( /* void */ ; what & 14; what -= 2) {
        q[n++] = what >> 4 & 1;
    }

    compare_prompt(n);
}


static void
compare(uint64_t node)
{
    compare_prompt(mdl_chain(&model, node, q, PROMPT_MAX));
}


static void
compare_prompt(uint32_t n)
{
    uint32_t      v, t, best, top, less, want[3], got[3][VIEWS];
    kvr_depths_t  out;

    top = 0;
    out.nviews = VIEWS;
    out.early_exit = false;
    out.limit = KVR_LIMIT_NONE;

    for (t = 0; t < 3; t++) {
        out.depths[t] = got[t];
    }

    compare_hits(n);

    best = kvr_index_find(&x, q, n, &out);

    for (v = 0; v < VIEWS; v++) {

        if (v == hidden) {
            top = kvr_max(top, out.depths[2][v]);
            continue;
        }

        mdl_find(&model, v, q, n, want);
        top = kvr_max(top, want[2]);

        for (t = 0; t < 3; t++) {
            if (forgetful ? out.depths[out.tiered ? t : 2][v] > want[t]
                : out.depths[out.tiered ? t : 2][v] != want[t])
            {
                fuzz_fail("a prompt of %u: view %u, tier %u: %u, not %u", n,
                          v, t, out.depths[out.tiered ? t : 2][v], want[t]);
            }
        }
    }

    if ((best != top && !forgetful) || out.torn) {
        fuzz_fail("a prompt of %u: best %u, not %u; torn %d", n, best, top,
                  out.torn);
    }

    if (hidden < VIEWS || forgetful) {
        return;
    }

    /* one that is left when a lookup ends early may have more */

    less = 0;
    out.early_exit = true;
    (void) kvr_index_find(&x, q, n, &out);

    for (v = 0; v < VIEWS; v++) {

        mdl_find(&model, v, q, n, want);
        less += out.depths[2][v] < want[2];

        for (t = 0; t < 3; t++) {
            if (out.depths[out.tiered ? t : 2][v] > want[t] || less > 1) {
                fuzz_fail("a prompt of %u, early exit: view %u, tier %u: %u, "
                          "not %u", n, v, t, out.depths[out.tiered ? t : 2][v],
                          want[t]);
            }
        }
    }
}


/* The hit of a view with classes is at most what it has in device memory. */

static void
compare_hits(uint32_t n)
{
    uint32_t      v, t, want[3], got[3][VIEWS];
    kvr_class_t   classes[KVR_CLASSES_MAX];
    kvr_depths_t  out;

    out.nviews = VIEWS;
    out.early_exit = false;
    out.limit = n;
    out.rule = NULL;

    for (t = 0; t < 3; t++) {
        out.depths[t] = got[t];
    }

    if (n == 0 || kvr_index_classed(&x) == 0) {
        return;
    }

    (void) kvr_index_find(&x, q, n, &out);

    for (v = 0; v < VIEWS; v++) {

        if (v == hidden || kvr_index_class_get(&x, v, classes) == 0) {
            continue;
        }

        mdl_find(&model, v, q, n, want);

        for (t = 0; t < 3; t++) {
            if (out.depths[out.tiered ? t : 2][v] > want[0]) {
                fuzz_fail("a prompt of %u: view %u has a hit of %u, and %u", n,
                          v, out.depths[out.tiered ? t : 2][v], want[0]);
            }
        }
    }
}


static void
check(void)
{
    const char  *why;

    if (hidden < VIEWS) {
        /* a view reclaimed by half is not whole */
        return;
    }

    why = kvr_index_check(&x);

    if (why) {
        fuzz_fail("%s", why);
    }
}


/* Every handle's chain is looked up, then everything is taken away. */

static void
finish(void)
{
    uint32_t           v, i;
    kvr_class_t        classes[KVR_CLASSES_MAX];
    kvr_index_usage_t  u;

    for (v = 0; v < VIEWS; v++) {

        for (i = 0; i < HANDLES; i += 17) {
            if (named(v, i)) {
                compare(named(v, i));
            }
        }

        if (v == hidden || forgetful
            || kvr_index_class_get(&x, v, classes) || !emptied(v))
        {
            drop(v);
        }

        mdl_drop(&model, v);

        if (!kvr_index_view_empty(&x, v)) {
            fuzz_fail("view %u is not empty at the end", v);
        }
    }

    kvr_index_usage(&x, &u);

    if (u.arena || u.blocks || u.pairs || u.handles) {
        fuzz_fail("%llu bytes, %llu blocks and %llu handles are left",
                  (unsigned long long) u.arena, (unsigned long long) u.blocks,
                  (unsigned long long) u.pairs);
    }

    check();
}


/* Takes out one handle after another; false when there is no room for it. */

static bool
emptied(uint32_t view)
{
    uint32_t             i, t, unknown;
    uint64_t             handle;
    kvr_rc_t             rc;
    const mdl_entry_t   *e;

    for (i = 0; i < HANDLES; i++) {
        e = mdl_get(&model.handles, view, i);
        handle = i;
        unknown = 0;

        for (t = 0; t < KVR_TIERS; t++) {

            if (e == NULL || e->n[t] == 0) {
                continue;
            }

            kvr_index_begin(&x);
            rc = kvr_index_remove(&x, view, t, &handle, 1, &unknown);
            kvr_txn_commit(&mem);

            if (rc != KVR_OK) {
                return false;
            }
        }

        if (unknown) {
            fuzz_fail("view %u has lost the handle %u", view, i);
        }
    }

    return true;
}
