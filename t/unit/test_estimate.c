/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Estimates of workers without events, and what shows a restart.
 */


#include "traffic/kvr_estimate.h"
#include "tap.h"


static bool
misses(kvr_estimate_t *e, uint32_t generation, uint32_t name, uint32_t n)
{
    bool      any;
    uint32_t  i;

    any = false;

    for (i = 0; i < n; i++) {
        any |= kvr_estimate_answer(e, generation, name, 8, 0);
    }

    return any;
}


int
main(void)
{
    uint32_t        i, name, next;
    kvr_estimate_t  e, other;

    e.state = 0;
    other.state = 0;

    for (i = 0; i < 1000 && kvr_estimate_name(&e, i) != i; i++) { /* void */ }

    ok(i == 1000, "estimates and predictions of a worker have two names");

    name = kvr_estimate_name(&e, 7);

    ok(name == kvr_estimate_name(&other, 7)
       && name != kvr_estimate_name(&e, 8),
       "the name follows from the generation");

    ok(!misses(&e, 7, name, 9) && kvr_estimate_name(&e, 7) == name,
       "nine misses change nothing");

    ok(!kvr_estimate_answer(&e, 7, name, 8, 16) && !misses(&e, 7, name, 9),
       "a hit between them: the misses are counted anew");

    ok(!kvr_estimate_answer(&e, 7, name, 3, 0)
       && kvr_estimate_name(&e, 7) == name,
       "no miss: too few blocks were estimated");

    ok(kvr_estimate_answer(&e, 7, name, 4, 0), "the tenth in a row: a restart");

    next = kvr_estimate_name(&e, 7);
    ok(next != name, "the worker's estimates have a new name");

    ok(!misses(&e, 7, name, 20) && kvr_estimate_name(&e, 7) == next,
       "answers to prompts that were estimated before the restart are void");

    ok(misses(&e, 7, next, 10) && kvr_estimate_name(&e, 7) != next
       && kvr_estimate_name(&e, 7) != name, "a second restart");

    ok(!misses(&e, 8, kvr_estimate_name(&e, 8), 9)
       && misses(&e, 8, kvr_estimate_name(&e, 8), 1),
       "another worker in its place begins with no miss");

    name = kvr_estimate_name(&e, 8);
    kvr_estimate_void(&e, 8);
    next = kvr_estimate_name(&e, 8);
    ok(next != name && !misses(&e, 8, next, 9) && misses(&e, 8, next, 1),
       "a restart that was reported: a new name, and no miss");

    return done();
}
