/*
 * Copyright (C) the nginx-kv-router authors
 *
 * KV-cache groups in the index beside a model of a few lines: random stores
 * and removals of an engine with several groups.  The zone beside the engine,
 * the zone that hears normalised events, and a zone made of the dump tell what
 * the model tells, of any prompt of any length.
 *
 *     test_groups [rounds [seed]]
 */


#include "groups.h"


#define ROUNDS     60


static engine_zone_t  dumped;           /* made of the near zone's dump */


static kvr_rc_t
redo(void *data, const kvr_event_t *ev)
{
    kvr_why_t  why;

    return kvr_normalise_event(data, "w", 1, ev, &why, NULL, NULL);
}


static kvr_rc_t
keep(void *data, const void *part, size_t size)
{
    return kvr_normalise_load(data, "w", 1, part, size) == KVR_OK ? KVR_OK
                                                                  : KVR_ERROR;
}


/*
 * A relay that starts again: a zone made of the dump, and another memory of
 * the engine's blocks over it, take the place of the near ones.
 */
static bool
restart(const kind_t *kind)
{
    bool               good;
    engine_zone_t      was;
    kvr_normaliser_t  *next;

    engine_zone_open(&dumped, kind, 8 << 20);
    settings(&dumped);

    next = kvr_normalise_create(&dumped.router, NULL);

    good = next
           && kvr_router_dump_events(&near_zone.router, "w", 1, redo, next)
              == KVR_OK
           && kvr_normalise_save(engine, "w", 1, keep, next) == KVR_OK;

    kvr_normalise_destroy(engine);
    engine = next;

    was = near_zone;
    near_zone = dumped;
    engine_zone_close(&was);

    return good;
}


static void
test_index(const kind_t *kind, uint32_t rounds)
{
    bool      good;
    uint32_t  round, step, wrong, hits, bound;

    wrong = 0;
    hits = 0;
    bound = 0;
    good = true;

    for (round = 0; round < rounds; round++) {

        engine_open_sized(kind, true, 0, 8 << 20);
        engine_size = 4 * (1 + below(2));

        random_groups(round);
        grow();
        settings(&near_zone);
        settings(&far_zone);

        for (step = 0; step < STEPS && wrong == 0; step++) {

            engine_step();

            if (step % 40 == 39) {
                wrong += compare(&near_zone, "near", &hits);
                wrong += compare(&far_zone, "far", &hits);
            }

            if (step == STEPS / 2) {
                good = good && restart(kind);
                wrong += compare(&near_zone, "dumped", &hits);
            }
        }

        bound += (engine_flags() & KVR_WORKER_HYBRID) != 0;
        good = good && emission_fits;
        engine_close();

        if (wrong) {
            note("round %u, %u groups, blocks of %u, chunk %u, drop %u", round,
                 ngroups, engine_size, chunk, drop);
            break;
        }
    }

    note("%s: %u rounds, %u hits, %u hybrid", kind->name, round, hits, bound);
    ok(good && wrong == 0 && hits > rounds * 100 && bound == 0,
       "%s: index, events, dump and saved memory tell what the model tells",
       kind->name);
}


/* ---- bounds ------------------------------------------------------------- */

static void
test_bounds(void)
{
    uint32_t  i, at[1];
    group_t   g;

    engine_open(&kinds[0], true, 0);
    grow();

    memset(&g, 0, sizeof(g));
    at[0] = 0;

    g.kind = KVR_GROUP_INDEXED;
    group_event(&g, KVR_STORE, at, 1);

    for (i = 1; i <= KVR_CLASSES_MAX; i++) {
        g.number = i;
        g.kind = KVR_GROUP_WINDOW;
        g.window = i * 100;
        group_event(&g, KVR_STORE, at, 1);
    }

    ok(!(engine_flags() & KVR_WORKER_HYBRID),
       "a worker with as many classes as there may be is exact");

    g.number = i;
    g.window = i * 100;
    group_event(&g, KVR_STORE, at, 1);

    ok(engine_flags() & KVR_WORKER_HYBRID && engine_why == KVR_WHY_GROUP,
       "one more makes it hybrid");
    engine_close();

    engine_open(&kinds[1], true, 0);
    memset(&g, 0, sizeof(g));
    g.kind = KVR_GROUP_MAMBA;
    group_event(&g, KVR_STORE, at, 1);

    ok(engine_flags() & KVR_WORKER_HYBRID && engine_why == KVR_WHY_GROUP,
       "in a positional index any class does");
    engine_close();
}


int
main(int argc, char **argv)
{
    uint32_t  rounds;

    rounds = argc > 1 ? (uint32_t) strtoul(argv[1], NULL, 0) : ROUNDS;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261122;

    test_index(&kinds[0], rounds);
    test_index(&kinds[2], rounds);
    test_bounds();

    return done();
}
