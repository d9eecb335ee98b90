/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The ring of routed prompts: order, room, two readers, and processes that die
 * while they append.
 */


#include "fixture.h"
#include "processes.h"
#include "tap.h"

#include "traffic/kvr_routed.h"


#define RING     KVR_ROUTED_MIN
#define MANY     20000
#define KILLS    60
#define LONG     512


static kvr_routed_t  *ring;
static uint64_t       random_ = 20261123;


static void
fresh(void)
{
    ring = shared_memory(RING);
    kvr_routed_format(ring, RING);
}


/* Record number i: its length and its hashes follow from the number. */

static bool
append(uint64_t i)
{
    uint32_t              k;
    uint64_t              locals[LONG];
    kvr_routed_record_t   r;

    memset(&r, 0, sizeof(r));
    r.kind = i % 4 == 3 ? KVR_ROUTED_ANSWER : KVR_ROUTED_BEGIN;
    r.holder = (uint32_t) i;
    r.n = fx_mix(i) % LONG;
    r.routed_ms = i;

    for (k = 0; k < r.n; k++) {
        locals[k] = fx_mix(i * LONG + k);
    }

    return kvr_routed_append(ring, &r, locals);
}


/* Is this record number i, as a whole? */

static bool
is_record(const kvr_routed_record_t *r, const uint64_t *locals, uint64_t i)
{
    uint32_t  k;

    if (r->holder != (uint32_t) i || r->routed_ms != i
        || r->n != fx_mix(i) % LONG
        || r->kind != (i % 4 == 3 ? KVR_ROUTED_ANSWER : KVR_ROUTED_BEGIN))
    {
        return false;
    }

    for (k = 0; k < r->n && r->kind == KVR_ROUTED_BEGIN; k++) {
        if (locals[k] != fx_mix(i * LONG + k)) {
            return false;
        }
    }

    return true;
}


static void
records_come_in_order(void)
{
    bool                  good;
    uint32_t              burst;
    uint64_t              in, out, head, next, locals[LONG];
    kvr_routed_record_t   r;

    fresh();
    good = true;
    in = 0;
    out = 0;

    while (out < MANY && good) {

        for (burst = fx_below(&random_, 40); burst; burst--) {
            in += append(in);
        }

        for (burst = fx_below(&random_, 40);
             burst && kvr_routed_read(ring, &r, locals, LONG, &head, &next);
             burst--)
        {
            good = good && is_record(&r, locals, out++)
                   && kvr_routed_advance(ring, head, next);
        }
    }

    ok(good, "%lu records are read whole and in order",
       (unsigned long) out);
    ok(ring->dropped > 0, "%lu that had no room were dropped, and counted",
       (unsigned long) ring->dropped);
    is_u64(ring->appended, in, "the others are counted, too");
    is_u64(ring->damaged, 0, "no record was in the wrong place");
}


static void
a_long_prompt_is_cut(void)
{
    uint64_t              head, next, *locals;
    kvr_routed_record_t   r;

    fresh();
    locals = calloc(RING, sizeof(uint64_t));
    memset(&r, 0, sizeof(r));
    r.n = RING / 8;
    locals[100] = 7;

    ok(kvr_routed_append(ring, &r, locals),
       "a prompt that is longer than the ring is appended");
    is_u64(ring->cut, 1, "in part, which is counted");

    memset(locals, 0, RING);

    ok(kvr_routed_read(ring, &r, locals, RING, &head, &next)
       && r.n > 0 && r.n < RING / 8 / KVR_ROUTED_PART && locals[100] == 7,
       "its first blocks are read: %u", r.n);

    ok(kvr_routed_read(ring, &r, locals, 50, &head, &next) && r.n == 50,
       "a reader with room for less gets less");

    free(locals);
}


static void
two_readers(void)
{
    uint64_t              head[2], next[2], locals[LONG];
    kvr_routed_record_t   r;

    fresh();
    (void) append(0);
    (void) append(1);

    ok(kvr_routed_read(ring, &r, locals, LONG, &head[0], &next[0])
       && kvr_routed_read(ring, &r, locals, LONG, &head[1], &next[1]),
       "two readers can have the same record");
    ok(kvr_routed_advance(ring, head[0], next[0])
       && !kvr_routed_advance(ring, head[1], next[1]),
       "only one of them frees it");
    ok(kvr_routed_read(ring, &r, locals, LONG, &head[0], &next[0])
       && is_record(&r, locals, 1), "the next one is there");
}


static void
a_damaged_ring(void)
{
    uint64_t              head, next, locals[LONG];
    kvr_routed_record_t   r;

    fresh();
    (void) append(0);
    *(uint64_t *) (ring + 1) = 1u << 30;

    ok(!kvr_routed_read(ring, &r, locals, LONG, &head, &next)
       && ring->damaged == 1,
       "a ring with a length that can't be is emptied, and that is counted");

    (void) append(1);

    ok(kvr_routed_read(ring, &r, locals, LONG, &head, &next)
       && is_record(&r, locals, 1), "and goes on");
}


static void
producer(void)
{
    uint64_t  i;

    for (i = ring->appended; /* void */ ; i++) {
        while (!append(i)) {
            usleep(10);
        }
    }
}


/*
 * The producer dies between a record and its count: the number of the next
 * record follows from the one that was read last.
 */

static void
producers_are_killed(void)
{
    int                   status;
    bool                  good;
    pid_t                 pid;
    uint32_t              i, had;
    uint64_t              out, head, next, locals[LONG];
    kvr_routed_record_t   r;

    fresh();
    good = true;
    out = 0;

    for (i = 0; i < KILLS && good; i++) {

        pid = start(producer);

        for (had = 0; had < 200; /* void */ ) {
            if (kvr_routed_read(ring, &r, locals, LONG, &head, &next)) {
                good = good && is_record(&r, locals, out++);
                (void) kvr_routed_advance(ring, head, next);
                had++;
            }
        }

        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);

        while (kvr_routed_read(ring, &r, locals, LONG, &head, &next)) {
            good = good && is_record(&r, locals, out++);
            (void) kvr_routed_advance(ring, head, next);
        }

        /* the count may be one short */

        good = good && out - ring->appended <= 1;
        ring->appended = out;
    }

    ok(good, "%u processes that were killed while they appended left whole "
       "records alone: %lu", i, (unsigned long) out);
}


int
main(void)
{
    records_come_in_order();
    a_long_prompt_is_cut();
    two_readers();
    a_damaged_ring();
    producers_are_killed();

    return done();
}
