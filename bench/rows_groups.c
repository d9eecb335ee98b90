/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Finds where the holders have KV-cache groups besides full attention: a
 * prompt of 1024 blocks that all of the workers hold, with a class of windows
 * of 64 blocks and one of mamba's kind.  Both have what an engine keeps, which
 * is the ends of prompts of 256, 512 and 1024 blocks; then the second one has
 * nothing any more, so that the whole prompt is searched in vain.
 */


#include "index.h"


#define ROWS_FINDS   4001u
#define ROWS_WINDOW  64u
#define ROWS_WINDOWS 0u                 /* classes */
#define ROWS_STATES  1u


static void rows_groups_of(uint32_t workers);
static double rows_groups_find(ix_t *ix, const uint64_t *locals,
    uint32_t hit);
static void rows_groups_bits(ix_t *ix, uint32_t view, uint32_t at,
    const uint64_t *handles, uint32_t n);


void
rows_groups(void)
{
    rows_groups_of(1);
    rows_groups_of(16);
    rows_groups_of(128);
}


static void
rows_groups_of(uint32_t workers)
{
    ix_t      ix;
    char      name[64];
    double    plain, ends, whole;
    uint32_t  i, view, unknown;
    uint64_t  locals[WL_DEPTH], handles[WL_DEPTH];

    static const uint32_t     prompts[3] = { 256, 512, WL_DEPTH };
    static const kvr_class_t  classes[2] = {
        { KVR_GROUP_WINDOW, ROWS_WINDOW, 1 }, { KVR_GROUP_MAMBA, 0, 1 }
    };

    for (i = 0; i < WL_DEPTH; i++) {
        locals[i] = wl_mix(i + 1);
        handles[i] = wl_mix(i + 1000001);
    }

    ix_open(&ix, (uint64_t) workers * WL_DEPTH, IX_PAIR_BYTES);
    ix.out.limit = WL_DEPTH;

    for (view = 0; view < workers; view++) {
        ix_store(&ix, view, NULL, handles, locals, WL_DEPTH);
    }

    plain = rows_groups_find(&ix, locals, WL_DEPTH);

    for (view = 0; view < workers; view++) {

        for (i = 0; i < 2; i++) {
            kvr_radix_begin(&ix.x);
            ix_must(kvr_classes_set(&ix.x, view, i, &classes[i]) == KVR_OK,
                    "a class");
            kvr_txn_commit(&ix.mem);
        }

        for (i = 0; i < 3; i++) {
            rows_groups_bits(&ix, view, ROWS_WINDOWS,
                             handles + prompts[i] - ROWS_WINDOW, ROWS_WINDOW);
            rows_groups_bits(&ix, view, ROWS_STATES, handles + prompts[i] - 1,
                             1);
        }
    }

    ends = rows_groups_find(&ix, locals, WL_DEPTH);

    /* all states go */

    for (view = 0; view < workers; view++) {
        for (i = 0; i < 3; i++) {
            unknown = 0;
            kvr_radix_begin(&ix.x);
            ix_must(kvr_radix_remove(&ix.x, kvr_classes_shadow(&ix.x, view),
                                     ROWS_STATES, handles + prompts[i] - 1, 1,
                                     &unknown) == KVR_OK && unknown == 0,
                    "a state's end");
            kvr_txn_commit(&ix.mem);
        }
    }

    whole = rows_groups_find(&ix, locals, 0);

    snprintf(name, sizeof(name), "groups, %u worker%s: find without", workers,
             workers == 1 ? "" : "s");
    ix_say(name, "ns", plain);
    snprintf(name, sizeof(name), "groups, %u worker%s: more, each", workers,
             workers == 1 ? "" : "s");
    ix_say(name, "ns", (ends - plain) / workers);
    snprintf(name, sizeof(name), "groups, %u worker%s: more, each, no hit",
             workers, workers == 1 ? "" : "s");
    ix_say(name, "ns", (whole - plain) / workers);

    ix_close(&ix);
}


static double
rows_groups_find(ix_t *ix, const uint64_t *locals, uint32_t hit)
{
    uint32_t         i, best;
    static uint64_t  took[ROWS_FINDS];

    for (i = 0; i < ROWS_FINDS; i++) {
        took[i] = ix_find(ix, locals, WL_DEPTH, &best);
        ix_must(ix->out.depths[2][0] == hit, "a hit");
    }

    return ix_percentile(took, ROWS_FINDS, 50);
}


static void
rows_groups_bits(ix_t *ix, uint32_t view, uint32_t at,
    const uint64_t *handles, uint32_t n)
{
    uint32_t  unknown;

    unknown = 0;
    kvr_radix_begin(&ix->x);
    ix_must(kvr_radix_add(&ix->x, view, kvr_classes_shadow(&ix->x, view), at,
                          handles, n, &unknown) == KVR_OK && unknown == 0,
            "bits of a class");
    kvr_txn_commit(&ix->mem);
}
