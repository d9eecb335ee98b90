/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Long events as they left an engine: whatever the slices that they are
 * applied in, what is held comes to the same, copies and all.  Of these seeds:
 * where the parent of a store is not known, slices may take more of it than
 * the whole, from a block on whose parent is held by an earlier event.
 */


#include "pack.h"
#include "zone.h"


#define HANDLES  40                     /* of a turn */
#define LONGEST  24                     /* blocks of an event */
#define EVENTS   400
#define TEXT     (32 << 10)


typedef struct {
    uint64_t    held;
    uint64_t    tiers[HANDLES];
    uint64_t    depths[HANDLES];
    uint64_t    unknown;
    uint64_t    refused;
} outcome_t;


static kvr_ingest_t  *ingest;
static uint64_t       state;


static uint32_t
below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;

    return (uint32_t) (state >> 32) % n;
}


static void
add(char *text, const char *format, ...)
{
    size_t   len;
    va_list  args;

    len = strlen(text);

    va_start(args, format);
    vsnprintf(text + len, TEXT - len, format, args);
    va_end(args);
}


/* Handle i of a chain, and the token that its blocks are of. */

static void
handles(char *text, uint32_t first, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        add(text, "%s%u", i ? ", " : "", 1 + (first + i) % HANDLES);
    }
}


static void
stored(char *text, uint32_t first, uint32_t n)
{
    uint32_t  i, k, size;

    size = below(8) ? 4 : 8;

    add(text, "{'type': 'BlockStored', 'block_size': %u, "
        "'block_hashes': [", size);
    handles(text, first, n);
    add(text, "], 'token_ids': [");

    for (i = 0; i < n; i++) {
        for (k = 0; k < size; k++) {
            add(text, "%s%u", i || k ? ", " : "", 1 + (first + i) % HANDLES);
        }
    }

    if (below(20) == 0) {
        add(text, ", 5");                   /* one too many */
    }

    add(text, "]");

    if (first && below(3)) {
        add(text, ", 'parent_block_hash': %u", first);

    } else {
        add(text, ", 'parent_block_hash': null");
    }

    if (below(6) == 0) {
        add(text, ", 'origin': 'OFFLOAD_REUSED'");
    }

    if (below(6) == 0) {
        add(text, ", 'lora_name': 'one'");
    }

    if (below(6) == 0) {
        add(text, ", 'extra_keys': [");
        k = below(n);

        for (i = 0; i < n; i++) {
            add(text, "%s%s", i ? ", " : "", i != k ? "null"
                : below(2) ? "[['00112233445566778899', 3]]" : "[[7.5]]");
        }

        add(text, "]");
    }

    add(text, "}");
}


static void
event(char *text)
{
    uint32_t  i, n, first;

    n = 1 + below(LONGEST);
    first = below(HANDLES - n + 1);

    switch (below(6)) {

    case 0:
    case 1:
    case 2:
        add(text, "{'type': 'BlockRemoved', 'block_hashes': [");
        handles(text, first, n);
        add(text, "]");

        if (below(4) == 0) {
            add(text, ", 'remaining_copy_counts': [");

            for (i = 0; i < n; i++) {
                add(text, "%s%u", i ? ", " : "", below(2));
            }

            add(text, "]");
        }

        if (below(4) == 0) {
            add(text, ", 'medium': 'CPU'");
        }

        add(text, "}");
        break;

    case 3:
        add(text, "['BlockStored', [");
        handles(text, first, n);
        add(text, "], null, [], 0, null, 'CPU']");
        break;

    default:
        stored(text, first, n);
        break;
    }
}


static uint64_t
depth(uint32_t first)
{
    uint32_t      i, tokens[4 * HANDLES];
    uint64_t      locals[HANDLES];
    kvr_hasher_t  hasher;

    for (i = 0; i < 4 * HANDLES; i++) {
        tokens[i] = 1 + (first + i / 4) % HANDLES;
    }

    hasher.ready = false;
    kvr_hasher_init(&hasher, KVR_HASH_SEED);
    (void) kvr_hash_blocks(&hasher, tokens, 4 * HANDLES, 4, locals);

    return matched("a", locals, HANDLES).disk;
}


static void
outcome(outcome_t *out)
{
    uint32_t             i, w, view, holder;
    kvr_shard_t         *k;
    const kvr_worker_t  *worker;

    memset(out, 0, sizeof(outcome_t));

    k = kvr_shard_of(&router, "a", 1);

    if (kvr_fleet_find(&k->fleet, "a", 1, &w) != KVR_OK) {
        return;
    }

    worker = &k->fleet.workers[w];
    out->unknown = worker->counters.blocks_unknown;

    for (i = 0; i < KVR_WHYS; i++) {
        if (kvr_why_class(i) == KVR_WHY_IS_REFUSED) {
            out->refused += worker->counters.why[i];
        }
    }

    if (kvr_fleet_holder(&k->fleet, w, 0, &holder) != KVR_OK) {
        return;
    }

    view = k->fleet.holders[holder].view;
    out->held = view == KVR_VIEW_NONE ? 0 : kvr_index_held(&k->index, view);

    for (i = 0; i < HANDLES; i++) {
        out->tiers[i] = view == KVR_VIEW_NONE
                        ? 0 : kvr_index_tiers(&k->index, view, 1 + i);
        out->depths[i] = depth(i);
    }
}


/* The same events, by a seed, in slices of so many blocks. */

static void
play(const kind_t *of, uint64_t seed, uint32_t slice, outcome_t *out,
    uint32_t *steps)
{
    char         *text;
    size_t        len;
    uint8_t      *bytes;
    uint32_t      i, n;
    const char   *detail;

    text = malloc(TEXT);
    bytes = malloc(TEXT);
    state = seed;

    zone_open(of, 16 << 20);

    for (i = 0; i < of->params.shards; i++) {
        (void) kvr_router_lease(&router, i, 0, now_ms);
    }

    ingest = kvr_ingest_create(&router);
    *steps = 0;

    for (i = 0; i < EVENTS; i++) {

        strcpy(text, "[1.5, [");

        for (n = 1 + below(3); n != 0; n--) {
            event(text);
            add(text, n > 1 ? ", " : "");
        }

        add(text, "]]");
        len = pack(bytes, TEXT, text);

        if (kvr_ingest_open(ingest, "a", 1, bytes, len, true, now_ms, &detail)
            == KVR_INGEST_APPLY)
        {
            while (kvr_ingest_step(ingest, slice) == KVR_OK) {
                (*steps)++;
            }
        }

        outcome(&out[i]);
    }

    kvr_ingest_destroy(ingest);
    zone_close();

    free(text);
    free(bytes);
}


static void
test_same(const kind_t *of)
{
    bool               same;
    uint32_t           i, k, s, steps, most;
    uint64_t           held, depth;
    static outcome_t   whole[EVENTS], sliced[EVENTS];

    static const uint32_t  slices[] = { 1, 3, 7 };

    for (s = 1; s <= 3; s++) {

        play(of, s * 0x9e3779b97f4a7c15, KVR_EVENT_BLOCKS_MAX, whole, &most);

        for (k = 0; k < sizeof(slices) / sizeof(slices[0]); k++) {

            play(of, s * 0x9e3779b97f4a7c15, slices[k], sliced, &steps);

            same = true;
            held = 0;
            depth = 0;

            for (i = 0; same && i < EVENTS; i++) {
                held += whole[i].held;
                depth += whole[i].depths[i % HANDLES];
                same = memcmp(&whole[i], &sliced[i], sizeof(outcome_t)) == 0;
            }

            if (!same) {
                note("message %u: held %llu, %llu; unknown %llu, %llu; "
                     "refused %llu, %llu", i - 1,
                     (unsigned long long) whole[i - 1].held,
                     (unsigned long long) sliced[i - 1].held,
                     (unsigned long long) whole[i - 1].unknown,
                     (unsigned long long) sliced[i - 1].unknown,
                     (unsigned long long) whole[i - 1].refused,
                     (unsigned long long) sliced[i - 1].refused);
            }

            ok(same && steps > 2 * EVENTS / slices[k]
               && most == 0 && held > EVENTS && depth > EVENTS / 8,
               "%s, seed %u: in slices of %u all comes to the same", of->name,
               s, slices[k]);
        }
    }
}


int
main(void)
{
    size_t  i;

    for (i = 0; i < KINDS; i++) {
        test_same(&kinds[i]);
    }

    return done();
}
