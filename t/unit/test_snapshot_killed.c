/*
 * Copyright (C) the nginx-kv-router authors
 *
 *     test_snapshot_killed [rounds [stride]]
 *
 * Snapshots whose loaders are killed, at random and all through the swap: one
 * view or the other is left, and nothing aside.  Lookups go on meanwhile.
 */


#include "snapshot.h"
#include "processes.h"


#define ROUNDS   12
#define MORE     20                     /* times as many, at most, until one is
                                           killed while something is aside */
#define STRIDE   41                     /* instructions between two kills */
#define STUCK    600000                 /* times 100 us, and more: it hangs */

#define CHILD    (*(volatile uint64_t *) shared)


static model_t    models[2];
static void      *shared;
static uint32_t   looks, looks_empty, rounds, stride;


static void
lease_all(void)
{
    uint32_t  i;

    for (i = 0; i < router.nshards; i++) {
        while (kvr_router_lease(&router, i, 0, now_ms) == KVR_BUSY) {
            usleep(100);
        }
    }
}


/*
 * Loads the one and the other snapshot in turn; even seqs are of models[0].
 * What was there before is reclaimed each time, or the zone would be full when
 * whoever is to kill it has to wait.
 */

static void
loader(void)
{
    uint64_t  seq;

    if (kvr_router_join(&router) != KVR_OK) {
        _exit(1);
    }

    lease_all();

    for (seq = worker_of("a")->stream.seq + 1; /* void */ ; seq++) {

        if (!load("a", 7, seq, true, &models[seq & 1])) {
            _exit(2);
        }

        CHILD = seq;

        while (kvr_router_tend(&router, now_ms, 500)) { /* void */ }
    }
}


/*
 * A lookup beside the loader: what the one or the other has, or less of it,
 * and once for each rank.
 */

static bool
look(void)
{
    uint32_t     i, n, p, r, rank_of, seen;
    uint64_t     prompt[LENGTH];
    kvr_match_t  all[64], most, other;

    p = random_below(PROMPTS);

    for (i = 0; i < LENGTH; i++) {
        prompt[i] = local(p, i);
    }

    n = kvr_router_find(&router, prompt, LENGTH, 0, false, all, 64);
    seen = 0;

    for (i = 0; i < n; i++) {
        rank_of = kvr_router_holder_rank(&router, all[i].holder);
        r = kvr_min(rank_of, RANKS - 1);
        most = model_match(&models[0], r, p);
        other = model_match(&models[1], r, p);

        if (seen >> r & 1
            || all[i].device > kvr_max(most.device, other.device)
            || all[i].host > kvr_max(most.host, other.host)
            || all[i].disk > kvr_max(most.disk, other.disk))
        {
            note("rank %u prompt %u: %u %u %u", rank_of, p, all[i].device,
                 all[i].host, all[i].disk);
            return false;
        }

        seen |= 1u << r;
    }

    looks++;
    looks_empty += n == 0;

    return true;
}


static void
test_killed(void)
{
    int       status;
    bool      good;
    pid_t     pid;
    uint32_t  i, n, loaded, middle;
    uint64_t  until;

    model_random(&models[0]);
    model_random(&models[1]);

    good = load("a", 7, 2, true, &models[0]);
    loaded = 0;
    middle = 0;

    kvr_router_leave(&router);

    for (i = 0;
         good && (i < rounds || (i < MORE * rounds && middle == 0));
         i++)
    {
        CHILD = 0;
        pid = start(loader);

        for (n = 0; CHILD == 0 && n < STUCK; n++) {
            usleep(100);
        }

        until = kvr_now_us() + random_below(3000);

        while (good && kvr_now_us() < until) {
            good = look();
        }

        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);

        good = good && WIFSIGNALED(status) && CHILD;

        if (kvr_router_join(&router) != KVR_OK) {
            good = false;
        }

        for (n = 0; n < router.nshards; n++) {
            middle += router.shards[n].zone->fleet.naside != 0;
        }

        /* in turns: by a successor, and by whoever tends the zone */

        if (i & 1) {
            lease_all();
        }

        good = good && tidy()
               && worker_of("a")->stream.reason == KVR_FINE
               && holds("a", &models[worker_of("a")->stream.seq & 1])
               && pairs() == held("a");

        loaded += CHILD > worker_of("a")->stream.seq - 2;
        kvr_router_leave(&router);
    }

    (void) kvr_router_join(&router);
    lease_all();

    note("%u kills, %u while something was aside; %u lookups, %u empty", i,
         middle, looks, looks_empty);
    ok(good && loaded == i && middle,
       "whoever is killed leaves one view or the other, and nothing aside; "
       "lookups meanwhile find no more than is there");
}


/* Builds the other one, and waits with the swap. */

static void
builder(void)
{
    uint64_t  seq;

    if (kvr_router_join(&router) != KVR_OK) {
        _exit(1);
    }

    lease_all();

    seq = worker_of("a")->stream.seq + 1;
    snapshot_write(&models[seq & 1]);

    if (begin("a", 7, seq, true) != KVR_OK || !all_parts()) {
        _exit(2);
    }
}


static void
swapper(void)
{
    (void) end();
}


/* At instructions all through the swap. */

static void
test_swap_killed(void)
{
    bool      good, inside, changed;
    uint32_t  steps, swapped;
    uint64_t  seq;

    model_random(&models[0]);
    model_random(&models[1]);

    good = load("a", 7, 2, true, &models[0]);
    swapped = 0;
    inside = true;

    kvr_router_leave(&router);

    for (steps = 0; good && inside; steps += stride) {
        seq = worker_of("a")->stream.seq;
        inside = killed_behind(builder, swapper, steps);

        good = kvr_router_join(&router) == KVR_OK && tidy()
               && holds("a", &models[worker_of("a")->stream.seq & 1])
               && pairs() == held("a");

        changed = worker_of("a")->stream.seq != seq;
        swapped += changed && inside;
        good = good && (changed || inside);

        kvr_router_leave(&router);
    }

    (void) kvr_router_join(&router);
    lease_all();

    note("killed up to instruction %u, %u behind the swap", steps, swapped);
    ok(good && steps > 500 && swapped,
       "killed at any instruction of the swap: the one or the other");
}


int
main(int argc, char **argv)
{
    uint32_t  i, k;

    static void  (*const tests[])(void) = {
        test_killed, test_swap_killed
    };

    rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : ROUNDS;
    stride = argc > 2 ? strtoul(argv[2], NULL, 0) : STRIDE;
    shared = shared_memory(4096);

    for (i = 0; i < KINDS; i++) {
        note("%s", kinds[i].name);

        for (k = 0; k < sizeof(tests) / sizeof(tests[0]); k++) {
            open_all(&kinds[i]);
            tests[k]();
            close_all();
        }
    }

    return done();
}
