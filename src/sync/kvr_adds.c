/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_adds.h"
#include "../core/kvr_table.h"

#include <stdlib.h>


typedef struct {
    uint64_t      ids;                  /* process and id */
    uint64_t      until_ms;
    kvr_flight_t  flight;
} kvr_add_t;

struct kvr_adds_s {
    const kvr_flights_t  *flights;
    uint32_t              timed_ms;
    uint64_t              routers[KVR_ADDS_MAX];        /* 0: free */
    kvr_add_t             adds[KVR_ADDS_MAX];
};


kvr_adds_t *
kvr_adds_create(const kvr_flights_t *f, uint32_t timed_ms)
{
    kvr_adds_t  *a;

    a = calloc(1, sizeof(kvr_adds_t));

    if (a) {
        a->flights = f;
        a->timed_ms = timed_ms;
    }

    return a;
}


void
kvr_adds_destroy(kvr_adds_t *a)
{
    free(a);
}


/* The place of an add; if it has none, *room is a free one of its set, or
 * KVR_ADDS_MAX. */

static bool
kvr_adds_find(const kvr_adds_t *a, uint64_t router, uint64_t ids,
    uint64_t now_ms, uint32_t *place)
{
    uint32_t  i, first, room;
    uint64_t  hash;

    hash = kvr_table_mix(kvr_table_spread(router), kvr_table_spread(ids) | 1);
    first = (uint32_t) (hash % (KVR_ADDS_MAX / KVR_ADDS_WAYS) * KVR_ADDS_WAYS);
    room = KVR_ADDS_MAX;

    for (i = first; i < first + KVR_ADDS_WAYS; i++) {

        if (a->routers[i] == 0 || a->adds[i].until_ms <= now_ms) {
            room = i;

        } else if (a->routers[i] == router && a->adds[i].ids == ids) {
            *place = i;
            return true;
        }
    }

    *place = room;

    return false;
}


bool
kvr_adds_begin(kvr_adds_t *a, uint64_t router, uint32_t process, uint32_t id,
    const kvr_flight_t *flight, uint64_t now_ms)
{
    bool                known;
    uint32_t            i;
    uint64_t            ids, until_ms;
    kvr_flight_kind_t   kind;

    ids = (uint64_t) process << 32 | id;
    known = kvr_adds_find(a, router, ids, now_ms, &i);

    kind = a->timed_ms ? KVR_FLIGHT_TIMED
                       : known ? KVR_FLIGHT_RENEWED : KVR_FLIGHT_COUNTED;
    until_ms = now_ms + (a->timed_ms ? a->timed_ms : KVR_FLIGHT_UNTIL_MS);

    if (i == KVR_ADDS_MAX) {
        kind = KVR_FLIGHT_TIMED;
        until_ms = kvr_min(until_ms, now_ms + KVR_ADDS_TIMED_MS);

    } else {
        a->routers[i] = router;
        a->adds[i].ids = ids;
        a->adds[i].until_ms = now_ms + KVR_FLIGHT_UNTIL_MS;

        if (known) {
            flight = &a->adds[i].flight;

        } else {
            a->adds[i].flight = *flight;
        }
    }

    if (!known || a->timed_ms == 0) {
        kvr_flights_add(a->flights, flight, kind, true, now_ms, until_ms);
    }

    return i != KVR_ADDS_MAX;
}


static void
kvr_adds_over(kvr_adds_t *a, uint32_t i, uint64_t now_ms)
{
    a->routers[i] = 0;

    if (a->timed_ms == 0) {
        kvr_flights_end(a->flights, &a->adds[i].flight, true, now_ms);
    }
}


void
kvr_adds_end(kvr_adds_t *a, uint64_t router, uint32_t process, uint32_t id,
    uint64_t now_ms)
{
    uint32_t  i;

    if (kvr_adds_find(a, router, (uint64_t) process << 32 | id, now_ms, &i)) {
        kvr_adds_over(a, i, now_ms);
    }
}


void
kvr_adds_forget(kvr_adds_t *a, uint64_t router, uint64_t now_ms)
{
    uint32_t  i;

    for (i = 0; i < KVR_ADDS_MAX; i++) {
        if (a->routers[i] == router && a->adds[i].until_ms > now_ms) {
            kvr_adds_over(a, i, now_ms);
        }
    }
}
