/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Selections: their events, their ends, the table when it is full, and
 * processes that are killed anywhere while they write.
 *
 *     test_selections [seconds]
 */


#include "processes.h"
#include "zone.h"
#include "zone/kvr_zone.h"


#define WORKERS  4
#define RUNNERS  4
#define MINE     16                     /* selections of a runner */
#define LEASE    1000
#define BLOCKS_OF_PROMPT  32


static uint32_t            holders[WORKERS], generations[WORKERS];
static uint64_t            seed = 20261128;
static uint32_t            nfreed;
static kvr_selection_id_t  one;         /* of the process that is killed */


static void
freed(void *data, uint32_t holder)
{
    (void) data;
    (void) holder;
    nfreed++;
}


static uint32_t
sweep(void)
{
    now_ms += KVR_SELECTIONS_MS;

    return kvr_router_selections_sweep(&router, now_ms, freed, NULL);
}


static void
worker(uint32_t i)
{
    char      name[] = "w0";
    uint32_t  number;

    name[1] += (char) i;
    put(name);

    (void) store(name, 0, row(1000 * i, 1), row(1, 1), 1);
    (void) kvr_router_find_worker(&router, name, 2, &number);
    (void) kvr_router_find_holder(&router, number, 0, &holders[i]);
    generations[i] = kvr_load32(&kvr_router_worker(&router,
                                                   number)->generation);
}


static void
open_zone(const kind_t *of, size_t size)
{
    uint32_t  i;

    zone_open(of, size);

    for (i = 0; i < WORKERS; i++) {
        worker(i);
    }
}


/* ---- one ---------------------------------------------------------------- */

static uint64_t *
chains(uint64_t prompt)
{
    uint32_t  i;
    uint64_t  locals[BLOCKS_OF_PROMPT];

    static uint64_t  of[BLOCKS_OF_PROMPT / KVR_FLIGHT_STRIDE + 1];

    for (i = 0; i < BLOCKS_OF_PROMPT; i++) {
        locals[i] = prompt * 1000 + i;
    }

    (void) kvr_flights_chains(&router.flights, locals, BLOCKS_OF_PROMPT, of);

    return of;
}


static uint32_t
flies(uint32_t w, uint64_t prompt)
{
    kvr_inflight_depth_t  depths[64];

    memset(depths, 0, sizeof(depths));
    depths[holders[w]].generation = generations[w];
    kvr_flights_find(&router.flights, chains(prompt), BLOCKS_OF_PROMPT, false,
                     now_ms, depths, 64);

    return depths[holders[w]].depth;
}


/* As a process of nginx does it: its own load first, which is given back. */

static kvr_rc_t
choose(uint32_t w, uint64_t prompt, uint64_t prefilled_ms,
    kvr_selection_id_t *id)
{
    kvr_rc_t         rc;
    kvr_selection_t  s;

    memset(&s, 0, sizeof(s));

    s.prefilled_ms = prefilled_ms;
    s.load.holder = holders[w];
    s.load.generation = generations[w];
    s.load.prefilling = 1;
    s.load.prefill_tokens = 10;
    s.load.decode_blocks = 3;
    s.flight.holder = holders[w];
    s.flight.generation = generations[w];

    kvr_flight_sample(&s.flight, chains(prompt), BLOCKS_OF_PROMPT, 0, false);
    kvr_flights_add(&router.flights, &s.flight, KVR_FLIGHT_COUNTED, false,
                    now_ms, now_ms + kvr_selection_flight_ms(LEASE));
    kvr_router_reserve(&router, &s.load, now_ms);

    rc = kvr_router_select(&router, &s, now_ms, LEASE, id);

    kvr_load_release(&router.load, &s.load, now_ms);

    if (rc != KVR_OK) {
        kvr_flights_end(&router.flights, &s.flight, false, now_ms);
    }

    return rc;
}


static kvr_rc_t
event(const kvr_selection_id_t *id, kvr_selection_event_t what)
{
    kvr_selection_t  was;

    return kvr_router_selected(&router, id, what, now_ms, LEASE, &was);
}


static kvr_load_row_t
load(uint32_t w)
{
    kvr_load_row_t  row;

    kvr_load_read(&router.load, holders[w], generations[w], &row);

    return row;
}


static bool
nothing(void)
{
    bool            good;
    uint32_t        i;
    kvr_load_row_t  row;

    good = kvr_router_selections(&router) == 0
           && router.zone->load.below_zero == 0;

    for (i = 0; i < WORKERS; i++) {
        row = load(i);
        good &= (row.active | row.prefills | row.prefill_tokens
                 | row.decode_blocks) == 0;
    }

    return good;
}


static void
test_events(void)
{
    kvr_selection_id_t  id, other;

    is_u64(choose(1, 1, 0, &id), KVR_OK, "a request is selected");
    ok(load(1).active == 1 && load(1).prefills == 1
       && load(1).prefill_tokens == 10 && load(1).decode_blocks == 3,
       "it is load as any other");
    is_u64(flies(1, 1), BLOCKS_OF_PROMPT, "and in flight");

    other = id;
    other.bits[1] ^= 1;
    is_u64(event(&other, KVR_SELECTION_END), KVR_DECLINED,
           "who does not know all bits ends nothing");

    other = id;
    other.place = 65535;
    is_u64(event(&other, KVR_SELECTION_END), KVR_DECLINED, "nor elsewhere");

    is_u64(event(&id, KVR_SELECTION_FIRST), KVR_OK, "its first output comes");
    ok(load(1).active == 1 && load(1).prefills == 0
       && load(1).prefill_tokens == 0, "nothing is prefilled any more");
    is_u64(event(&id, KVR_SELECTION_FIRST), KVR_OK, "once more");
    is_u64((uint64_t) load(1).prefills, 0, "counts nothing");

    now_ms += LEASE - 1;
    is_u64(event(&id, KVR_SELECTION_RENEW), KVR_OK, "it goes on");
    now_ms += LEASE - 1;
    is_u64(sweep(), 1, "a sweep ends it after its lease");
    ok(nothing() && flies(1, 1) == 0, "nothing is left of it");
    is_u64(event(&id, KVR_SELECTION_END), KVR_DECLINED, "not even its id");

    is_u64(choose(1, 1, 0, &id), KVR_OK, "another one");
    is_u64(event(&id, KVR_SELECTION_END), KVR_OK, "is over");
    ok(nothing() && flies(1, 1) == 0, "nothing is left of it, either");
    is_u64(event(&id, KVR_SELECTION_END), KVR_DECLINED, "once");

    (void) choose(1, 1, 0, &id);
    now_ms += LEASE;
    is_u64(event(&id, KVR_SELECTION_RENEW), KVR_DECLINED,
           "an end of a lease needs no sweep");
    (void) sweep();

    (void) choose(2, 1, now_ms + 50, &id);
    nfreed = 0;
    is_u64(sweep(), 0, "a prefill that is over by the worker's speed");
    ok(load(2).prefills == 0 && load(2).active == 1 && nfreed == 1,
       "is ended by a sweep");
    (void) event(&id, KVR_SELECTION_END);
}


static void
test_worker_gone(void)
{
    kvr_selection_id_t  id, next;

    (void) choose(0, 1, 0, &id);
    (void) kvr_router_remove_worker(&router, "w0", 2);
    is_u64(event(&id, KVR_SELECTION_RENEW), KVR_DECLINED,
           "a selection goes with its worker");
    is_u64(sweep(), 0, "by no lease");
    is_u64(kvr_router_selections(&router), 0, "but at once");

    worker(0);
    is_u64(choose(0, 1, 0, &next), KVR_OK, "the next worker of that name");
    is_u64((uint64_t) load(0).active, 1, "has its own load");
    (void) sweep();
    is_u64((uint64_t) load(0).active, 1, "and keeps it");
    (void) event(&next, KVR_SELECTION_END);
    ok(nothing(), "nothing is left");
}


static void
test_table_full(void)
{
    bool                 good;
    uint32_t             i, n;
    kvr_selection_id_t  *ids;

    ids = malloc(KVR_SELECTIONS * sizeof(kvr_selection_id_t));
    good = true;

    for (i = 0; i < KVR_SELECTIONS; i++) {
        good &= choose(i % WORKERS, i % 50, 0, &ids[i]) == KVR_OK;
    }

    ok(good, "%u requests are selected", KVR_SELECTIONS);
    is_u64(choose(0, 1, 0, &one), KVR_FULL, "one more is not");
    is_u64((uint64_t) load(0).active, KVR_SELECTIONS / WORKERS,
           "and is no load");

    good = true;

    for (i = 0; i < KVR_SELECTIONS / 2; i++) {
        good &= event(&ids[i], KVR_SELECTION_END) == KVR_OK;
    }

    is_u64(choose(0, 1, 0, &one), KVR_OK, "when some have ended, one is");
    now_ms += LEASE;

    for (i = 0, n = 0; i < KVR_SELECTIONS / KVR_SELECTIONS_SLICE; i++) {
        n += sweep();
    }

    is_u64(n, KVR_SELECTIONS / 2 + 1, "a sweep ends all others in slices");
    ok(good && nothing(), "nothing is left");

    free(ids);
}


/* The index gives room for the table. */

static void
test_zone_full(void)
{
    bool         good;
    uint64_t     n;
    uint32_t     i;
    kvr_stats_t  stats;

    n = 1 << 20;

    do {
        (void) store("w0", 0, row(n, BLOCKS), row(n, BLOCKS), BLOCKS);
        n += BLOCKS;
        kvr_router_stats(&router, &stats);

    } while (stats.forgotten == 0 && n < 10 * 1000 * 1000);

    good = true;

    for (i = 0; i < 1000; i++) {
        good &= choose(i % WORKERS, i, 0, &one) == KVR_OK;
    }

    kvr_router_stats(&router, &stats);
    ok(good, "1,000 requests are selected in a zone that is full");
    is_u64(stats.selections, 1000, "they are counted");

    now_ms += LEASE;
    (void) sweep();
    ok(nothing(), "nothing is left");
}


/* ---- killed ------------------------------------------------------------- */

/* Rows are the sums of entries, and each entry is free or held. */

static bool
whole(void)
{
    uint32_t                i, w, held, listed;
    kvr_selection_t        *e;
    kvr_load_row_t          sums[WORKERS], is;
    kvr_selections_zone_t  *z;

    z = &router.zone->selections;
    memset(sums, 0, sizeof(sums));
    held = 0;

    for (i = 0; i < z->used; i++) {
        e = (kvr_selection_t *) ((uint64_t *) router.zone + z->parts[i / 10])
            + i % 10;

        for (w = 0; e->lease_ms && w < WORKERS; w++) {
            if (holders[w] == e->load.holder) {
                sums[w].active++;
                sums[w].prefills += e->load.prefilling;
                sums[w].prefill_tokens += e->load.prefilling ? 10 : 0;
                sums[w].decode_blocks += 3;
            }
        }

        held += e->lease_ms != 0;
    }

    listed = 0;

    for (i = z->free; i != KVR_SELECTIONS && listed <= z->used; i = e->next) {
        e = (kvr_selection_t *) ((uint64_t *) router.zone + z->parts[i / 10])
            + i % 10;
        listed++;
    }

    if (held != z->held || held + listed != z->used) {
        note("%u held, not %u; %u free of %u", held, z->held, listed, z->used);
        return false;
    }

    for (w = 0; w < WORKERS; w++) {
        is = load(w);

        if (is.active != sums[w].active || is.prefills != sums[w].prefills
            || is.prefill_tokens != sums[w].prefill_tokens
            || is.decode_blocks != sums[w].decode_blocks)
        {
            note("worker %u: %" PRId64 " active, not %" PRId64, w, is.active,
                 sums[w].active);
            return false;
        }
    }

    return true;
}


static void
attach(void)
{
    while (kvr_router_join(&router) != KVR_OK) { /* void */ }
}


static void
all_calls(void)
{
    kvr_selection_id_t  id;

    (void) event(&one, KVR_SELECTION_FIRST);
    (void) choose(1, 3, 0, &id);
    (void) event(&id, KVR_SELECTION_FIRST);
    (void) event(&id, KVR_SELECTION_RENEW);
    (void) event(&id, KVR_SELECTION_END);
    (void) event(&one, KVR_SELECTION_END);
    (void) kvr_router_selections_sweep(&router, now_ms + LEASE, freed, NULL);
}


/* What every process of nginx does each 100 ms. */

static void
tend(void)
{
    now_ms += KVR_TEND_LOADS_MS;
    (void) kvr_router_tend(&router, now_ms, 1000);
    (void) kvr_router_selections_sweep(&router, now_ms, freed, NULL);
}


static void
test_killed_at(uint64_t ms)
{
    bool      good, inside;
    uint32_t  n, most;
    uint64_t  until;

    good = true;
    most = 20000;
    until = kvr_now_us() + ms * 1000;

    for (n = 0; good && kvr_now_us() < until; n++) {
        good = choose(1, 3, 0, &one) == KVR_OK;

        inside = killed_behind(attach, all_calls, fx_below(&seed, most));
        most = inside ? most + 50 : most * 7 / 8;

        (void) event(&one, KVR_SELECTION_RENEW);    /* takes the lock */
        tend();
        good = good && whole();

        now_ms += LEASE + KVR_FLIGHT_QUARTER;
        tend();
        good = good && nothing() && flies(1, 3) == 0;
    }

    ok(good, "killed at %u instructions of all calls, nothing is left", n);
}


static void
runner(void)
{
    uint32_t            k;
    uint64_t            random;
    kvr_selection_id_t  mine[MINE];

    attach();
    random = (uint64_t) getpid();
    memset(mine, 0, sizeof(mine));

    for ( ;; ) {
        now_ms = kvr_now_us() / 1000;
        k = fx_below(&random, MINE);

        switch (fx_below(&random, 4)) {

        case 0:
            (void) event(&mine[k], KVR_SELECTION_END);
            (void) choose(fx_below(&random, WORKERS), fx_below(&random, 20), 0,
                          &mine[k]);
            break;

        case 1:
            (void) event(&mine[k], KVR_SELECTION_FIRST);
            break;

        case 2:
            (void) event(&mine[k], KVR_SELECTION_RENEW);
            break;

        default:
            (void) kvr_router_selections_sweep(&router, now_ms, freed, NULL);
        }
    }
}


static void
test_killed(uint64_t ms)
{
    bool      good;
    pid_t     pids[RUNNERS];
    uint32_t  i, n, w;
    uint64_t  until, prompt;

    until = kvr_now_us() + ms * 1000;
    good = true;

    for (n = 0; good && kvr_now_us() < until; n++) {

        for (i = 0; i < RUNNERS; i++) {
            pids[i] = start(runner);
        }

        usleep(3000 + fx_below(&seed, 20000));

        for (i = 0; i < RUNNERS; i++) {
            (void) kill(pids[i], SIGKILL);
            usleep(fx_below(&seed, 200));
        }

        for (i = 0; i < RUNNERS; i++) {
            (void) waitpid(pids[i], NULL, 0);
        }

        now_ms = kvr_now_us() / 1000;
        tend();
        good = whole();

        now_ms += LEASE + KVR_FLIGHT_QUARTER;
        tend();
        good = good && nothing();

        for (w = 0; w < WORKERS; w++) {
            for (prompt = 0; prompt < 20; prompt++) {
                good = good && flies(w, prompt) == 0;
            }
        }
    }

    ok(good, "%u times %u processes were killed: rows are the sums of "
       "entries, and nothing stays beyond a lease", n, RUNNERS);
    note("%u entries were in use at once, at most",
         router.zone->selections.used);
}


int
main(int argc, char **argv)
{
    uint32_t  i;
    uint64_t  ms;

    ms = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000 : 3000;

    for (i = 0; i < KINDS; i++) {
        note("%s", kinds[i].name);
        open_zone(&kinds[i], 64 << 20);
        test_events();
        test_worker_gone();
        zone_close();
    }

    open_zone(&kinds[0], 64 << 20);
    test_table_full();
    zone_close();

    for (i = 0; i < 2; i++) {
        open_zone(&kinds[i], 8 << 20);
        test_zone_full();
        zone_close();
    }

    open_zone(&kinds[0], 16 << 20);
    test_killed_at(ms);
    zone_close();

    open_zone(&kinds[0], 16 << 20);     /* for it has another clock */
    test_killed(ms);
    zone_close();

    return done();
}
