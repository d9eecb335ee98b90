/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Health of workers.
 */


#include <stdlib.h>

#include "fixture.h"
#include "traffic/kvr_health.h"
#include "processes.h"
#include "tap.h"


#define NOW      UINT64_C(1000000)
#define TIMEOUT  10000                  /* fail_timeout */
#define PROCS    4
#define REPORTS  20000
#define KILLS    160


static kvr_health_t         *h;
static kvr_health_params_t   p = { 3, TIMEOUT, 0, 0 };
static kvr_ticket_t          ticket;
static uint32_t              generation = 1;
static double                share;


static kvr_health_state_t
state(uint64_t now)
{
    return kvr_health_state(h, generation, &p, now, &share);
}


static bool
take(uint64_t now)
{
    return kvr_health_take(h, generation, &p, now, false, &ticket);
}


static bool
another(uint64_t now)
{
    kvr_ticket_t  other;

    return kvr_health_take(h, generation, &p, now, false, &other);
}


static bool
fail(uint64_t now)
{
    return take(now)
           && kvr_health_failed(h, generation, &p, now, KVR_FAILED_CONNECT,
                                &ticket);
}


static bool
answer(uint64_t now)
{
    return kvr_health_answered(h, generation, now, &ticket);
}


static void
fresh(void)
{
    memset(h, 0, sizeof(kvr_health_t));
    p = (kvr_health_params_t) { 3, TIMEOUT, 0, 0 };
    generation = 1;
}


/* An open circuit, opened at NOW. */

static void
broken(void)
{
    uint32_t  i;

    fresh();

    for (i = 0; i < p.max_fails; i++) {
        (void) fail(NOW);
    }
}


static void
test_circuit(void)
{
    uint32_t           i;
    uint64_t           now;
    kvr_health_view_t  view;

    fresh();

    is_u64(state(NOW), KVR_HEALTH_OK, "a new worker is well");
    ok(!fail(NOW), "one failure opens no circuit");
    ok(!fail(NOW + 1), "nor do two");
    is_u64(state(NOW + 1), KVR_HEALTH_OK, "which it can have requests after");
    ok(fail(NOW + TIMEOUT), "the third in fail_timeout does");
    is_u64(state(NOW + TIMEOUT), KVR_HEALTH_FAILED, "then it has failed");
    ok(!take(NOW + TIMEOUT), "and gets no request");

    kvr_health_view(h, generation, &p, NOW + TIMEOUT + 5, &view);
    is_u64(view.fails, 3, "its failures can be seen");
    is_u64(view.since, 5, "and since when it is out");
    is_u64(view.left, TIMEOUT - 5, "and for how long");
    is_u64(view.counters.attempts, 3, "its attempts are counted");
    is_u64(view.counters.failures[KVR_FAILED_CONNECT], 3,
           "and their failures, by what they were");
    is_u64(view.counters.opened, 1, "and its circuit's opening");

    fresh();
    (void) fail(NOW);
    (void) fail(NOW);
    ok(!fail(NOW + TIMEOUT + 1), "failures of an earlier window don't count");
    kvr_health_view(h, generation, &p, NOW + TIMEOUT + 1, &view);
    is_u64(view.fails, 1, "a window begins with its first failure");

    broken();
    now = NOW + TIMEOUT;

    is_u64(state(now - 1), KVR_HEALTH_FAILED, "it is out for fail_timeout");
    is_u64(state(now), KVR_HEALTH_HALF_OPEN, "then it is half-open");
    ok(take(now), "a request goes there");
    is_u64(state(now), KVR_HEALTH_FAILED, "while it is there no other does");
    ok(!another(now), "however it asks");
    ok(answer(now + 7), "an answer closes the circuit");
    is_u64(state(now + 7), KVR_HEALTH_OK, "and all is well");
    ok(!fail(now + 8) && !fail(now + 8), "old failures are forgotten");

    broken();
    now = NOW;

    for (i = 0; i < 3; i++) {
        now += (uint64_t) TIMEOUT << i;
        is_u64(state(now - 1), KVR_HEALTH_FAILED, "wait %u is over", i);
        is_u64(state(now), KVR_HEALTH_HALF_OPEN, "and not before its time");
        ok(!fail(now), "a probe that fails is no news");
    }

    for (i = 0; i < 20; i++) {
        now += KVR_HEALTH_WAIT_MAX;
        (void) fail(now);
    }

    is_u64(state(now + KVR_HEALTH_WAIT_MAX - 1), KVR_HEALTH_FAILED,
           "each wait is twice as long");
    is_u64(state(now + KVR_HEALTH_WAIT_MAX), KVR_HEALTH_HALF_OPEN,
           "up to a bound");

    broken();
    p.max_fails = 0;
    is_u64(state(NOW), KVR_HEALTH_OK, "max_fails=0: it never fails");
    ok(!fail(NOW) && !fail(NOW) && !fail(NOW) && take(NOW),
       "however often it does");
    kvr_health_view(h, generation, &p, NOW, &view);
    is_u64(view.counters.failures[KVR_FAILED_CONNECT], 6,
           "which is counted all the same");
}


static void
test_probe(void)
{
    kvr_ticket_t  first, late;

    broken();
    ok(take(NOW + TIMEOUT), "a probe goes");
    first = ticket;

    ok(!take(NOW + 2 * TIMEOUT - 1), "none comes after it for fail_timeout");
    ok(take(NOW + 2 * TIMEOUT), "a lost one is replaced then");

    kvr_health_aborted(h, generation, NOW + 2 * TIMEOUT, &first);
    ok(!another(NOW + 2 * TIMEOUT),
       "a lost one that gives up frees no place");

    kvr_health_aborted(h, generation, NOW + 2 * TIMEOUT, &ticket);
    ok(take(NOW + 2 * TIMEOUT), "one that the client gave up does");

    broken();
    memset(&late, 0, sizeof(kvr_ticket_t));
    (void) kvr_health_failed(h, generation, &p, NOW + 5, KVR_FAILED_CUT,
                             &late);
    is_u64(state(NOW + TIMEOUT), KVR_HEALTH_HALF_OPEN,
           "failures of earlier requests don't prolong the wait");
    ok(!kvr_health_answered(h, generation, NOW + 6, &late),
       "answers to earlier requests don't shorten it");
    ok(take(NOW + TIMEOUT), "nor take they the probe away");
    (void) kvr_health_failed(h, generation, &p, NOW + TIMEOUT, KVR_FAILED_CUT,
                             &late);
    ok(answer(NOW + TIMEOUT), "which is what is believed");

    broken();
    ok(kvr_health_take(h, generation, &p, NOW, true, &ticket),
       "when nobody else is left, it gets requests anyhow");
    (void) kvr_health_failed(h, generation, &p, NOW, KVR_FAILED_CONNECT,
                             &ticket);
    is_u64(state(NOW), KVR_HEALTH_FAILED, "a failure of these is no news");
    ok(kvr_health_take(h, generation, &p, NOW, true, &ticket)
       && answer(NOW), "an answer is");
    is_u64(state(NOW), KVR_HEALTH_OK, "it is back");
}


static bool
returned(uint64_t now)
{
    return kvr_health_returned(h, generation, now);
}


static void
test_returned(void)
{
    uint64_t           now;
    kvr_ticket_t       first;
    kvr_health_view_t  view;

    fresh();
    (void) fail(NOW);
    (void) fail(NOW);
    ok(!returned(NOW + 1), "a closed circuit has no wait to end");
    ok(fail(NOW + 1), "nor does a sign of a return forgive failures");

    broken();
    now = NOW + TIMEOUT;
    (void) fail(now);
    now += 2 * TIMEOUT;
    (void) fail(now);
    is_u64(state(now + 4 * TIMEOUT - 1), KVR_HEALTH_FAILED,
           "after two probes that failed the wait is four times as long");

    ok(returned(now + 5), "a sign of a return ends it:");
    is_u64(state(now + 5), KVR_HEALTH_HALF_OPEN, "the worker is half-open,");
    kvr_health_view(h, generation, &p, now + 5, &view);
    is_u64(view.left, 0, "and may be tried at once");
    ok(!returned(now + 6), "a second sign changes nothing");
    ok(take(now + 7), "a request goes there as a probe");
    ok(!another(now + 7), "and no other one");
    ok(!returned(now + 8) && !another(now + 8),
       "nor does one when there is another sign meanwhile");

    (void) kvr_health_failed(h, generation, &p, now + 9, KVR_FAILED_CONNECT,
                             &ticket);
    now += 9;
    ok(!take(now), "when the probe fails the worker is out again,");
    is_u64(state(now + TIMEOUT - 1), KVR_HEALTH_FAILED, "for fail_timeout,");
    is_u64(state(now + TIMEOUT), KVR_HEALTH_HALF_OPEN, "and no longer");
    now += TIMEOUT;
    ok(!fail(now) && state(now + 2 * TIMEOUT - 1) == KVR_HEALTH_FAILED
       && state(now + 2 * TIMEOUT) == KVR_HEALTH_HALF_OPEN,
       "the probes after it double the wait as ever");

    ok(returned(now) && take(now), "the next sign is worth a probe, too");
    first = ticket;
    kvr_health_aborted(h, generation, now + 1, &first);
    ok(take(now + 1), "and another one when the client gave that up");
    (void) kvr_health_failed(h, generation, &p, now + 1, KVR_FAILED_CONNECT,
                             &ticket);
    is_u64(state(now + 1 + TIMEOUT), KVR_HEALTH_HALF_OPEN,
           "whose failure does not double the wait either");

    (void) fail(now + 1 + TIMEOUT);
    ok(returned(now + 2 + TIMEOUT) && take(now + 2 + TIMEOUT)
       && answer(now + 2 + TIMEOUT), "an answer to such a probe");
    is_u64(state(now + 2 + TIMEOUT), KVR_HEALTH_OK, "closes the circuit");

    broken();
    generation = 2;
    ok(!returned(NOW), "a sign is that of one generation");
}


static void
test_slow_start(void)
{
    kvr_health_view_t  view;

    fresh();
    p.slow_start = 1000;

    is_u64(state(NOW), KVR_HEALTH_OK, "who was never away starts at once");

    kvr_health_begin(h, generation, NOW);
    is_u64(state(NOW), KVR_HEALTH_SLOW_START, "who is new starts slowly");
    ok(share == KVR_HEALTH_SHARE, "with next to nothing");
    (void) state(NOW + 250);
    ok(share == 0.25, "its share grows with the time");
    is_u64(state(NOW + 999), KVR_HEALTH_SLOW_START, "until the end");
    is_u64(state(NOW + 1000), KVR_HEALTH_OK, "when all is as ever");
    ok(share == 1, "and its share whole");

    broken();
    p.slow_start = 1000;
    ok(take(NOW + TIMEOUT) && answer(NOW + TIMEOUT), "who comes back");
    is_u64(state(NOW + TIMEOUT + 1), KVR_HEALTH_SLOW_START,
           "starts slowly too");
    kvr_health_view(h, generation, &p, NOW + TIMEOUT + 500, &view);
    ok(view.share == 0.5 && view.since == 500, "as can be seen");
}


static void
test_since(void)
{
    kvr_health_view_t  view;

    broken();

    ok(kvr_health_checked(h, generation, NOW + TIMEOUT, false, 1, 1),
       "a check finds it down, too");
    kvr_health_view(h, generation, &p, NOW + TIMEOUT + 5, &view);
    ok(view.since > TIMEOUT, "it is out since it failed");
    (void) kvr_health_checked(h, generation, NOW + TIMEOUT + 9, true, 1, 1);
    kvr_health_view(h, generation, &p, NOW + TIMEOUT + 10, &view);
    is_u64(view.since, 1, "and is up since a check passed");
}


static void
test_away(void)
{
    fresh();

    kvr_health_pause(h, generation, NOW, 2000);
    is_u64(state(NOW + 1999), KVR_HEALTH_AWAY, "an engine may have a pause");
    ok(!take(NOW + 1999), "without requests");
    is_u64(state(NOW + 2000), KVR_HEALTH_OK, "for as long as it says");

    kvr_health_pause(h, generation, NOW, UINT64_MAX / 2);
    is_u64(state(NOW + KVR_HEALTH_AWAY_MAX), KVR_HEALTH_OK,
           "but not for ever");
}


static bool
check(uint64_t now, bool passed)
{
    return kvr_health_checked(h, generation, now, passed, 2, 3);
}


static void
test_checks(void)
{
    fresh();
    p.checked = 1;

    ok(kvr_health_due(h, generation, NOW, NOW + 5000), "a check is due");
    ok(!kvr_health_due(h, generation, NOW, NOW + 5000), "of one process");
    ok(!kvr_health_due(h, generation, NOW + 4999, NOW + 9999), "and again");
    ok(kvr_health_due(h, generation, NOW + 5000, NOW + 9999), "in its time");

    ok(!check(NOW, false) && !check(NOW, false), "some may fail");
    is_u64(state(NOW), KVR_HEALTH_OK, "without harm");
    ok(!check(NOW, true) && !check(NOW, false) && !check(NOW, false),
       "one that is passed makes good for them");
    ok(check(NOW, false), "falls of them in a row take it down");
    is_u64(state(NOW), KVR_HEALTH_DOWN, "so it is");
    ok(kvr_health_down(h, generation), "as others may ask");
    ok(!take(NOW), "and gets no request");

    p.checked = 0;
    is_u64(state(NOW), KVR_HEALTH_OK,
           "without checks in the configuration it is not");
    p.checked = 1;
    p.slow_start = 1000;

    ok(!check(NOW, true) && !check(NOW, false) && !check(NOW, true),
       "one that is passed does not bring it up");
    ok(check(NOW, true), "rises of them in a row do");
    is_u64(state(NOW), KVR_HEALTH_SLOW_START, "slowly");

    broken();
    p.checked = 1;
    (void) fail(NOW + TIMEOUT);
    ok(!check(NOW + TIMEOUT, true), "a passed check of an open circuit");
    is_u64(state(NOW + 2 * TIMEOUT - 1), KVR_HEALTH_FAILED,
           "does not close it");
    is_u64(state(NOW + 2 * TIMEOUT), KVR_HEALTH_HALF_OPEN,
           "but makes the wait short again");

    (void) check(NOW, false);
    (void) check(NOW, false);
    (void) check(NOW, false);
    (void) check(NOW, true);
    ok(check(NOW, true), "a worker that was down, and is up");
    is_u64(state(NOW), KVR_HEALTH_OK, "has a closed circuit");
}


static void
test_generations(void)
{
    kvr_health_view_t  view;

    broken();
    p.checked = 1;
    p.slow_start = 1000;

    (void) check(NOW, false);
    (void) check(NOW, false);
    (void) check(NOW, false);
    kvr_health_pause(h, generation, NOW, 1000);

    generation = 2;
    is_u64(state(NOW), KVR_HEALTH_OK, "the next worker begins anew");
    ok(kvr_health_due(h, generation, NOW, NOW + 1), "with its own checks");
    ok(!fail(NOW) && !fail(NOW) && fail(NOW), "and fails by itself");

    generation = 3;
    kvr_health_begin(h, generation, NOW);
    kvr_health_view(h, generation, &p, NOW, &view);
    is_u64(view.counters.attempts, 0, "its attempts are counted from zero");

    (void) fail(NOW);
    kvr_health_begin(h, generation, NOW + 1);
    kvr_health_view(h, generation, &p, NOW + 1, &view);
    is_u64(view.counters.attempts, 1, "and on, when it is back");
    is_u64(view.fails, 0, "without its old failures");

    generation = 257;
    kvr_health_begin(h, generation, NOW);
    is_u64(state(NOW), KVR_HEALTH_SLOW_START, "generations go on and on");
}


/* ---- processes ---------------------------------------------------------- */

static void
report(void)
{
    uint32_t  i;

    for (i = 0; i < REPORTS; i++) {
        (void) fail(NOW);
    }
}


static void
probe(void)
{
    _exit(take(NOW + TIMEOUT) ? 1 : 0);
}


static void
life(void)
{
    uint64_t  now;

    for (now = NOW; ; now += TIMEOUT) {
        (void) fail(now);
        (void) fail(now);
        (void) fail(now);
        (void) check(now, false);
        (void) kvr_health_returned(h, generation, now);
        (void) fail(now);
        (void) take(now + TIMEOUT);
        (void) answer(now + TIMEOUT);
        kvr_health_begin(h, generation, now);
        (void) check(now, true);
    }
}


static void
test_processes(void)
{
    int                status;
    pid_t              pids[PROCS];
    uint32_t           i, n;
    kvr_health_view_t  view;

    fresh();
    p.max_fails = KVR_FAILS_MAX;

    for (i = 0; i < PROCS; i++) {
        pids[i] = start(report);
    }

    for (i = 0; i < PROCS; i++) {
        waitpid(pids[i], NULL, 0);
    }

    kvr_health_view(h, generation, &p, NOW, &view);
    is_u64(view.counters.failures[KVR_FAILED_CONNECT],
           view.counters.attempts, "no process's report is lost");
    is_u64(view.fails, KVR_FAILS_MAX, "their failures add up");
    is_u64(view.counters.opened, 1, "and open the circuit once");

    n = 0;

    for (i = 0; i < PROCS; i++) {
        pids[i] = start(probe);
    }

    for (i = 0; i < PROCS; i++) {
        waitpid(pids[i], &status, 0);
        n += WIFEXITED(status) && WEXITSTATUS(status) == 1;
    }

    is_u64(n, 1, "one of all processes has the probe");

    n = 0;

    for (i = 0; i < KILLS; i++) {
        fresh();
        p.checked = 1;

        if (!killed_at(life, i * 5)) {
            break;
        }

        /* whatever it left, in the end the worker is back */

        while (kvr_health_down(h, generation)) {
            (void) check(NOW, true);
        }

        if (state(NOW + 3 * KVR_HEALTH_WAIT_MAX) != KVR_HEALTH_OK) {
            n += take(NOW + 3 * KVR_HEALTH_WAIT_MAX)
                 && answer(NOW + 3 * KVR_HEALTH_WAIT_MAX);
        } else {
            n++;
        }
    }

    is_u64(n, KILLS, "a process killed anywhere leaves no worker out");
}


int
main(void)
{
    h = shared_memory(sizeof(kvr_health_t));

    test_circuit();
    test_probe();
    test_returned();
    test_slow_start();
    test_since();
    test_away();
    test_checks();
    test_generations();
    test_processes();

    return done();
}
