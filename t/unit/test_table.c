/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Where names from outside lie in the tables: numbers in a row, as engines may
 * give them out, are spread over all of a table whatever its secrets are.
 */


#include "radix/kvr_children.h"
#include "positional/kvr_places.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>


#define SLOTS      16000
#define CLOSE      32                   /* slots side by side */
#define NAMES      80000
#define CHAIN      100


typedef enum {
    HANDLES = 0,
    ENTRIES,
    CHILDREN,
    PLACES,
    TABLES
} table_t;


static uint32_t crowd(table_t table, const uint64_t *secret);
static uint64_t home(table_t table, const uint64_t *secret, uint64_t name);


/* One in some hundreds is like these: 2^16 times the second, as a fraction of
 * 2^64, is near 5/14, 8/21, 2/3 and so on. */

static const uint64_t  secrets[][2] = {
    { UINT64_C(0x2d4de979b560315c), UINT64_C(0xbcf35b6db5f3ba41) },
    { UINT64_C(0xc9bd4e1897379da9), UINT64_C(0x0456ea4de370c415) },
    { UINT64_C(0x319bfe26aaf943a7), UINT64_C(0x90a0a70eac02fcd5) },
    { UINT64_C(0xd2981410b92d2555), UINT64_C(0x28a1aaaa153287fd) },
    { UINT64_C(0x057810a99784fe29), UINT64_C(0xf6bf6214ff3b0c79) }
};


int
main(void)
{
    uint32_t     i, most;
    table_t      table;
    const char  *names[TABLES] = { "handles", "entries", "children",
                                   "places" };

    for (table = 0; table < TABLES; table++) {

        most = 0;

        for (i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
            most = kvr_max(most, crowd(table, secrets[i]));
        }

        ok(most < 240, "%s: chains of names in a row, %u of them at most in "
           "%u slots, %u on the average", names[table], most, CLOSE,
           NAMES * CLOSE / SLOTS);
    }

    return done();
}


/* The most names that have their home in CLOSE slots. */

static uint32_t
crowd(table_t table, const uint64_t *secret)
{
    uint32_t  i, k, sum, most;
    uint32_t  count[SLOTS];

    memset(count, 0, sizeof(count));

    for (i = 0; i < NAMES; i++) {
        count[home(table, secret,
                   ((uint64_t) (i / CHAIN + 1) << 16) + i % CHAIN)]++;
    }

    most = 0;

    for (i = 0; i + CLOSE <= SLOTS; i += CLOSE) {

        for (k = 0, sum = 0; k < CLOSE; k++) {
            sum += count[i + k];
        }

        most = kvr_max(most, sum);
    }

    return most;
}


static uint64_t
home(table_t table, const uint64_t *secret, uint64_t name)
{
    kvr_radix_t            r;
    kvr_entries_t          e;
    kvr_radix_zone_t       rz;
    kvr_positional_t       p;
    kvr_handle_zone_t      hz;
    kvr_entries_zone_t     ez;
    kvr_handle_table_t     h;
    kvr_positional_zone_t  pz;

    switch (table) {

    case HANDLES:
        h.zone = &hz;
        hz.nlines = SLOTS;
        hz.secret[0] = secret[0];
        hz.secret[1] = secret[1];
        return kvr_handle_key(&h, name, KVR_SPACE_SHARED).line;

    case ENTRIES:
        e.zone = &ez;
        ez.nslots = SLOTS;
        ez.secret[0] = secret[0];
        ez.secret[1] = secret[1];
        return kvr_entries_home(&e, name, 0);

    case CHILDREN:
        r.zone = &rz;
        rz.secret[0] = secret[0];
        rz.secret[1] = secret[1];
        return kvr_table_home(kvr_children_key(&r, 0, 0, name), SLOTS);

    default:
        p.zone = &pz;
        pz.secret[0] = secret[1];
        pz.secret[1] = secret[0];
        return kvr_table_home(kvr_places_sequence(&p, 0, name), SLOTS);
    }
}
