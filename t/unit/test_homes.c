/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Shares and homes: pure numbers.
 */


#include "sync/kvr_homes.h"
#include "sync/kvr_sync.h"
#include "tap.h"


#define ROUTERS  4
#define WORKERS  4096


static uint64_t  routers[ROUTERS] = { 11, 222, 3333, 44444 };
static uint8_t   homes[2][WORKERS];


static void
assign(uint8_t *out, const uint32_t *shares)
{
    char      id[16];
    uint32_t  i;

    for (i = 0; i < WORKERS; i++) {
        (void) snprintf(id, sizeof(id), "w%u", i);
        out[i] = (uint8_t) kvr_homes_of(routers, shares, ROUTERS,
                                        kvr_sync_row(id, strlen(id), 0));
    }
}


static uint32_t
of(const uint8_t *all, uint32_t router)
{
    uint32_t  i, n;

    for (i = 0, n = 0; i < WORKERS; i++) {
        n += all[i] == router;
    }

    return n;
}


static void
shares(void)
{
    uint32_t  i;

    static const struct {
        uint64_t  tokens, all;
        uint32_t  last, want;
    } rows[] = {
        { 0, 0, 0, 0 }, { 0, 0, 5, 5 },
        { 100, 100, 0, 16 }, { 25, 100, 0, 4 }, { 25, 100, 4, 4 },
        { 296, 1000, 4, 4 }, { 297, 1000, 4, 5 },
        { 204, 1000, 4, 4 }, { 203, 1000, 4, 3 },
        { 10, 1000, 1, 1 }, { 9, 1000, 1, 0 },
        { 19, 1000, 0, 0 }, { 20, 1000, 0, 1 },
        { 50, 100, 16, 8 }, { 1000, 1000, 15, 16 }, { 970, 1000, 16, 16 }
    };

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        is_u64(kvr_homes_share(rows[i].tokens, rows[i].all, rows[i].last),
               rows[i].want, "%u of %u after %u: %u",
               (unsigned) rows[i].tokens, (unsigned) rows[i].all,
               rows[i].last, rows[i].want);
    }
}


int
main(void)
{
    uint32_t  i, moved, wrong;
    uint32_t  equal[ROUTERS] = { 4, 4, 4, 4 };
    uint32_t  grown[ROUTERS] = { 4, 4, 8, 4 };
    uint32_t  gone[ROUTERS] = { 4, 0, 4, 4 };
    uint32_t  alone[ROUTERS] = { 0, 0, 1, 0 };

    shares();

    assign(homes[0], equal);

    for (i = 0; i < ROUTERS; i++) {
        ok(of(homes[0], i) > WORKERS / 4 * 9 / 10
           && of(homes[0], i) < WORKERS / 4 * 11 / 10,
           "router %u is the home of a quarter of the workers: %u of %u", i,
           of(homes[0], i), WORKERS);
    }

    assign(homes[1], grown);

    for (i = 0, wrong = 0; i < WORKERS; i++) {
        wrong += homes[0][i] != homes[1][i] && homes[1][i] != 2;
    }

    ok(of(homes[1], 2) > WORKERS * 2 / 5 * 9 / 10
       && of(homes[1], 2) < WORKERS * 2 / 5 * 11 / 10,
       "a share that is doubled is one of two fifths: %u", of(homes[1], 2));
    is_u64(wrong, 0, "no worker moves between the others");

    assign(homes[1], gone);

    for (i = 0, wrong = 0, moved = 0; i < WORKERS; i++) {
        moved += homes[0][i] != homes[1][i];
        wrong += homes[0][i] != homes[1][i] && homes[0][i] != 1;
    }

    is_u64(of(homes[1], 1), 0, "a router without a share is nobody's home");
    is_u64(wrong, 0, "only its workers move");
    ok(moved == of(homes[0], 1), "and all of them");

    assign(homes[1], alone);
    is_u64(of(homes[1], 2), WORKERS, "the only one with a share has all");

    return done();
}
