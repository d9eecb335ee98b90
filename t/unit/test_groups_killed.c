/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A process that applies an event of a KV-cache group dies at some instruction
 * of it: no prompt is told more than before the event, or than after it, and
 * the index is sound.
 *
 *     test_groups_killed [stride [seed]]
 */


#include "groups.h"
#include "processes.h"

#include "../check/kvr_check.h"


#ifdef __SANITIZE_ADDRESS__
#define STRIDE     4999                 /* instructions between two kills */
#else
#define STRIDE     997
#endif

#define VICTIMS    3                    /* blocks of an event that is killed */


/* The event that is killed. */
static struct {
    group_t           *group;
    kvr_event_kind_t   kind;
    uint32_t           at[ENGINE_BLOCKS];
    uint32_t           n;
} victim;


static void
victim_begin(void)
{
    (void) kvr_router_join(&near_zone.router);
    (void) kvr_router_join(&far_zone.router);
}


static void
victim_apply(void)
{
    group_event(victim.group, victim.kind, victim.at, victim.n);
}


static void
victim_choose(group_t *g, uint32_t stored)
{
    uint32_t  i;

    victim.group = g;
    victim.kind = stored ? KVR_STORE : KVR_REMOVE;
    victim.n = 0;

    if (stored) {
        victim.n = row_to(nnodes - 1, VICTIMS, victim.at);
        return;
    }

    for (i = 0; i < nnodes && victim.n < VICTIMS; i++) {
        if (g->copies[i] == 1) {
            victim.at[victim.n++] = i;
        }
    }
}


/* Is the shard's index sound, and no prompt told more than that? */
static bool
no_more(engine_zone_t *z, const uint32_t *before, const uint32_t *after)
{
    uint32_t      i, has;
    const char   *why;
    kvr_shard_t  *k;

    k = &z->router.shards[0];

    if (kvr_shard_lock(k, 1000) != KVR_OK) {
        return false;
    }

    why = kvr_index_check(&k->index);
    kvr_shard_unlock(k);

    if (why) {
        note("%s", why);
        return false;
    }

    for (i = 0; i < nnodes; i++) {

        has = told(z, i, (nodes[i].depth + 1) * engine_size + 1);

        if (has > before[i] && has > after[i]) {
            note("block %u: %u told, %u before, %u after", i, has, before[i],
                 after[i]);
            return false;
        }
    }

    return true;
}


static void
hits_of(uint32_t *hits)
{
    uint32_t  i;

    for (i = 0; i < nnodes; i++) {
        hits[i] = expected(i, (nodes[i].depth + 1) * engine_size + 1);
    }
}


static void
test_killed(uint32_t stride)
{
    bool      good, inside;
    uint32_t  i, round, steps, kills, hits, before[NODES], after[NODES];

    good = true;
    kills = 0;
    hits = 0;

    for (round = 0; good && round < 8; round++) {

        engine_open_sized(&kinds[0], true, 0, 8 << 20);
        engine_size = 4 * (1 + round / 4);

        do {
            random_groups(round);
        } while (ngroups < 3);

        grow();
        settings(&near_zone);
        settings(&far_zone);

        /* each group is heard, and the whole of one chain is held */

        for (i = 0; i < ngroups; i++) {
            victim_choose(&groups[i], 1);
            victim.n = nodes[nnodes - 1].depth + 1;

            for (steps = victim.n; steps-- > 0; /* void */ ) {
                victim.at[steps] = steps + 1 == victim.n
                                   ? nnodes - 1
                                   : nodes[victim.at[steps + 1]].parent;
            }

            victim_apply();

            for (steps = 0; steps < victim.n; steps++) {
                groups[i].copies[victim.at[steps]]++;
            }
        }

        for (i = 0; i < STEPS / 4; i++) {
            engine_step();
        }

        victim_choose(&groups[round % ngroups], round / 2 % 2);

        if (victim.n == 0) {
            engine_close();
            continue;
        }

        hits_of(before);

        for (i = 0; i < victim.n; i++) {
            victim.group->copies[victim.at[i]] += victim.kind == KVR_STORE
                                                  ? 1u : -1u;
        }

        hits_of(after);
        inside = true;

        kvr_router_leave(&near_zone.router);
        kvr_router_leave(&far_zone.router);

        for (steps = 0; good && inside; steps += stride) {

            inside = killed_behind(victim_begin, victim_apply, steps);
            kills += inside;

            good = kvr_router_join(&near_zone.router) == KVR_OK
                   && kvr_router_join(&far_zone.router) == KVR_OK
                   && no_more(&near_zone, before, after)
                   && no_more(&far_zone, before, after);

            kvr_router_leave(&near_zone.router);
            kvr_router_leave(&far_zone.router);
        }

        victim_begin();
        victim_apply();

        good = good && no_more(&near_zone, after, after)
               && compare(&near_zone, "after kills", &hits) == 0;

        engine_close();
    }

    note("%u kills in %u events", kills, round);
    ok(good && kills > 8,
       "killed at any instruction of an event: nothing is told that neither "
       "held before nor holds after");
}


int
main(int argc, char **argv)
{
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261122;

    test_killed(argc > 1 ? (uint32_t) strtoul(argv[1], NULL, 0) : STRIDE);

    return done();
}
