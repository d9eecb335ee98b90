/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What is in flight over all processes: a prompt of which 8 holders have half,
 * in a table of 16 MiB that has 3000 other flights.  Cold: the processor's
 * caches have nothing of it.
 */


#include "index.h"
#include "traffic/kvr_flights.h"


#define ROWS_TABLE        (16u << 20)
#define ROWS_CACHES       (64u << 20)   /* more than a processor has */
#define ROWS_OTHERS       3000u
#define ROWS_ROUNDS       101u
#define ROWS_HOLDERS      512u
#define ROWS_BLOCKS       6400u
#define ROWS_NOW          1000000u
#define ROWS_UNTIL        (ROWS_NOW + KVR_FLIGHT_UNTIL_MS)


static void rows_flights_of(uint32_t holders, uint32_t blocks, char *caches);
static uint64_t rows_flights_begin(char *caches);


static kvr_flights_t       rows_f;
static kvr_flights_zone_t  rows_z;
static uint64_t            rows_locals[ROWS_BLOCKS];
static uint64_t            rows_chains[ROWS_BLOCKS / KVR_FLIGHT_STRIDE];


void
rows_flights(void)
{
    char      *base, *caches;
    uint32_t   i, cold;

    static const uint32_t  of[4][2] = {
        { 8, 400 }, { 8, ROWS_BLOCKS },
        { ROWS_HOLDERS, 400 }, { ROWS_HOLDERS, ROWS_BLOCKS }
    };

    base = ix_map(ROWS_TABLE);
    caches = ix_map(ROWS_CACHES);

    for (i = 0; i < ROWS_BLOCKS; i++) {
        rows_locals[i] = wl_mix(i + 1);
    }

    for (i = 0; i < 4; i++) {
        for (cold = 0; cold < 2; cold++) {
            kvr_flights_format(&rows_z, base, 0, ROWS_TABLE);
            (void) kvr_flights_attach(&rows_f, &rows_z, base, NULL, 0);
            rows_flights_of(of[i][0], of[i][1], cold ? caches : NULL);
        }
    }

    ix_unmap(base, ROWS_TABLE);
    ix_unmap(caches, ROWS_CACHES);
}


/* The middle one of each step. */

static void
rows_flights_of(uint32_t holders, uint32_t blocks, char *caches)
{
    char                         name[64];
    uint32_t                     i, k;
    uint64_t                     at;
    kvr_flight_t                 it;
    static uint64_t              took[4][ROWS_ROUNDS];
    static kvr_inflight_depth_t  depths[ROWS_HOLDERS];
    static const char *const     steps[4] = { "chains", "find", "store",
                                              "end" };

    (void) kvr_flights_chains(&rows_f, rows_locals, blocks, rows_chains);
    it.generation = 1;

    for (i = 0; i < 8; i++) {
        it.holder = i * holders / 8;
        kvr_flight_sample(&it, rows_chains, blocks / 2, 0, false);
        kvr_flights_add(&rows_f, &it, KVR_FLIGHT_COUNTED, false, ROWS_NOW,
                        ROWS_UNTIL);
    }

    for (i = 0; i < ROWS_OTHERS; i++) {
        it.holder = i % holders;
        it.n = KVR_FLIGHT_SAMPLES;

        for (k = 0; k < it.n; k++) {
            it.chains[k] = wl_mix(i * it.n + k) >> 16;
        }

        kvr_flights_add(&rows_f, &it, KVR_FLIGHT_COUNTED, false, ROWS_NOW,
                        ROWS_UNTIL);
    }

    for (i = 0; i < ROWS_ROUNDS; i++) {

        for (k = 0; k < holders; k++) {
            depths[k] = (kvr_inflight_depth_t) { 1, 0 };
        }

        at = rows_flights_begin(caches);
        (void) kvr_flights_chains(&rows_f, rows_locals, blocks, rows_chains);
        took[0][i] = wl_now() - at - ix_clock_ns;

        at = rows_flights_begin(caches);
        kvr_flights_find(&rows_f, rows_chains, blocks, false, ROWS_NOW, depths,
                         holders);
        took[1][i] = wl_now() - at - ix_clock_ns;
        ix_must(depths[0].depth == blocks / 2, "what is in flight");

        it.holder = i % holders;

        at = rows_flights_begin(caches);
        kvr_flight_sample(&it, rows_chains, blocks, 0, false);
        kvr_flights_add(&rows_f, &it, KVR_FLIGHT_COUNTED, false, ROWS_NOW,
                        ROWS_UNTIL);
        took[2][i] = wl_now() - at - ix_clock_ns;

        at = rows_flights_begin(caches);
        kvr_flights_end(&rows_f, &it, false, ROWS_NOW);
        took[3][i] = wl_now() - at - ix_clock_ns;
    }

    for (i = 0; i < 4; i++) {
        (void) snprintf(name, sizeof(name), "flights, %u holders, %u blocks%s:"
                        " %s", holders, blocks, caches ? ", cold" : "",
                        steps[i]);
        ix_say(name, "ns", ix_percentile(took[i], ROWS_ROUNDS, 50));
    }
}


/* Empties the processor's caches, unless it is NULL; what the time is then. */

static uint64_t
rows_flights_begin(char *caches)
{
    uint32_t  i;

    for (i = 0; caches && i < ROWS_CACHES; i += 64) {
        caches[i]++;
    }

    return wl_now();
}
