/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the status page shows of the past: samples of the last hour, the last
 * decisions, hot prefixes; and processes that are killed while they write
 * them.
 */


#include <stdlib.h>
#include <sys/mman.h>

#include "traffic/kvr_decisions.h"
#include "traffic/kvr_history.h"
#include "traffic/kvr_hot.h"
#include "processes.h"
#include "tap.h"


#define KILLS  400


typedef struct {
    kvr_history_t    history;
    kvr_decisions_t  decisions;
    kvr_hot_t        hot;
} shared_t;


static shared_t  *shared;
static uint64_t   hashes[2048];


static void
clear(void)
{
    memset(shared, 0, sizeof(shared_t));
}


/* ---- history ------------------------------------------------------------ */

static void
history(void)
{
    uint64_t  i, step, v[KVR_HISTORY_SERIES], out[KVR_HISTORY_SERIES];

    clear();
    memset(v, 0, sizeof(v));

    step = kvr_history_due(&shared->history, 1000 * KVR_HISTORY_STEP_S * 7);
    is_u64(step, 7, "a sample is due");
    is_u64(kvr_history_due(&shared->history, 1000 * KVR_HISTORY_STEP_S * 7),
           0, "for one caller");
    ok(!kvr_history_read(&shared->history, 7, out),
       "it is not there before it is written");

    v[KVR_HISTORY_REQUESTS] = 5;
    kvr_history_write(&shared->history, 7, v);
    ok(kvr_history_read(&shared->history, 7, out)
       && out[KVR_HISTORY_REQUESTS] == 5, "it is read");
    ok(!kvr_history_read(&shared->history, 0, out), "step 0 is none");

    for (i = 8; i < 8 + KVR_HISTORY_STEPS; i++) {
        kvr_history_write(&shared->history, i, v);
    }

    ok(!kvr_history_read(&shared->history, 7, out), "it is gone an hour later");
    ok(kvr_history_read(&shared->history, 8, out), "the next one is there");
}


static void
first_bytes(void)
{
    double           ms;
    uint64_t         before[KVR_HISTORY_SERIES], after[KVR_HISTORY_SERIES];
    const uint32_t  *b;

    b = kvr_histogram_bounds(KVR_TIME_FIRST_BYTE);
    memset(before, 0, sizeof(before));
    memset(after, 0, sizeof(after));

    ok(kvr_history_first_byte_ms(before, after, 0.5) < 0, "no first byte");

    before[KVR_HISTORY_FIRST_BYTE + 3] = 100;
    after[KVR_HISTORY_FIRST_BYTE + 3] = 110;

    ms = kvr_history_first_byte_ms(before, after, 0.5);
    ok(ms * 1000 > b[2] && ms * 1000 < b[3],
       "the median lies in the part that grew");
    ok(kvr_history_first_byte_ms(before, after, 0.9) > ms,
       "nine of ten took longer");

    after[KVR_HISTORY_FIRST_BYTE + KVR_HISTOGRAM_BOUNDS] = 1000;
    ms = kvr_history_first_byte_ms(before, after, 0.9);
    ok(ms * 1000 == b[KVR_HISTOGRAM_BOUNDS - 1],
       "a time beyond all bounds is the last bound");
}


/* ---- decisions ---------------------------------------------------------- */

static uint64_t
decide(uint32_t n)
{
    kvr_decision_t  d;

    memset(&d, (int) (n % 251), sizeof(d));
    d.time_ms = n;
    d.noptions = 1;

    return kvr_decisions_add(&shared->decisions, &d);
}


/* Is the record one that decide() wrote, as a whole? */

static bool
whole(const kvr_decision_t *d)
{
    size_t          i;
    const uint8_t  *p = (const uint8_t *) d;

    for (i = offsetof(kvr_decision_t, policy); i < sizeof(*d); i++) {
        if (p[i] != d->time_ms % 251) {
            return false;
        }
    }

    return true;
}


static void
decisions(void)
{
    uint32_t         i, n;
    uint64_t         number;
    kvr_decision_t   d, *open;

    clear();

    ok(!kvr_decisions_read(&shared->decisions, 0, &d), "no decision yet");

    for (i = 1; i <= 3 * KVR_DECISIONS; i++) {
        decide(i);
    }

    for (i = 0, n = 0; i < KVR_DECISIONS; i++) {
        n += kvr_decisions_read(&shared->decisions, i, &d)
             && d.time_ms == 3 * KVR_DECISIONS - i && whole(&d);
    }

    is_u64(n, KVR_DECISIONS, "the last ones are there, the newest one first");
    ok(!kvr_decisions_read(&shared->decisions, KVR_DECISIONS, &d),
       "and no more");
    ok(kvr_decisions_read(&shared->decisions, 0, &d)
       && d.policy_len <= KVR_DECISION_TEXT
       && d.reason_len <= KVR_DECISION_TEXT
       && d.model_len <= KVR_DECISION_TEXT,
       "lengths are within their bounds");

    number = decide(7);
    open = kvr_decisions_open(&shared->decisions, number);

    ok(open != NULL && !kvr_decisions_read(&shared->decisions, 0, &d),
       "a record that is open is passed over");
    ok(kvr_decisions_open(&shared->decisions, number) == NULL,
       "and can't be opened twice");

    if (open) {
        open->first_byte_us = 12345;
        kvr_decisions_close(&shared->decisions, number);
    }

    ok(kvr_decisions_read(&shared->decisions, 0, &d)
       && d.first_byte_us == 12345, "what was added to it is there");

    open = kvr_decisions_open(&shared->decisions, number);

    for (i = 0; i < KVR_DECISIONS; i++) {
        decide(i + 1);
    }

    if (open) {
        kvr_decisions_close(&shared->decisions, number);
    }

    ok(kvr_decisions_read(&shared->decisions, KVR_DECISIONS - 1, &d)
       && d.time_ms == 1, "a record that was open for long is another's now");
    ok(kvr_decisions_open(&shared->decisions, number) == NULL,
       "and can't be opened by its number any more");

    for (i = 0, n = 0; i < 3 * KVR_DECISIONS_RATE; i++) {
        n += kvr_decisions_due(&shared->decisions, 5);
    }

    is_u64(n, KVR_DECISIONS_RATE, "so many are taken in a second");
    ok(kvr_decisions_due(&shared->decisions, 6), "the next second has room");
}


/* ---- hot prefixes ------------------------------------------------------- */

static uint64_t
ask(uint64_t first, uint64_t rest, uint32_t n, uint64_t now_ms)
{
    uint32_t          i;
    kvr_hot_holder_t  holder = { 3, 1, 64 };
    kvr_hot_prompt_t  prompt;

    for (i = 0; i < n; i++) {
        hashes[i] = (i < 64 ? first : rest) * 1000003 + i;
    }

    prompt.hashes = hashes;
    prompt.n = n;
    prompt.overlap = 64;
    prompt.model = "m";
    prompt.model_len = 1;
    prompt.holders = &holder;
    prompt.nholders = 1;
    prompt.now_ms = now_ms;

    return kvr_hot_add(&shared->hot, kvr_owner_self(), &prompt);
}


static void
hot(void)
{
    uint32_t          i, n;
    kvr_hot_prefix_t  out[20];

    clear();

    is_u64(ask(1, 1, 3, 1000), 0, "three blocks are no prefix");

    /* 100 prompts begin alike for 64 blocks, and 1000 have nothing alike */

    for (i = 0; i < 1000; i++) {
        ok(ask(i + 10, i, 20, 1000) != 0 || i != 0, "a prefix is counted");

        if (i % 10 == 0) {
            (void) ask(1, i + 1, 100, 2000);
        }
    }

    n = kvr_hot_read(&shared->hot, kvr_owner_self(), out, 20);
    ok(n != 0 && n <= 20, "some are told");
    ok(out[0].depth == 64 && out[0].count >= 100
       && out[0].count - out[0].error <= 100,
       "the longest common beginning is the hottest: depth %u, count %llu, "
       "error %llu", out[0].depth, (unsigned long long) out[0].count,
       (unsigned long long) out[0].error);
    ok(out[0].nholders == 1 && out[0].holders[0].holder == 3,
       "with the holder that has it");
    ok(out[0].model_len == 1 && out[0].model[0] == 'm', "and the model");

    for (i = 1, n = 0; i < 20; i++) {
        n += out[i].count > out[0].count;
    }

    is_u64(n, 0, "no other one is as hot");

    (void) ask(1, 1, 100, 2000 + KVR_HOT_HALF_MS);
    (void) kvr_hot_read(&shared->hot, kvr_owner_self(), out, 20);
    ok(out[0].count < 70, "ten minutes later all counts are half");

    (void) ask(1, 1, 100, 1);
    (void) kvr_hot_read(&shared->hot, kvr_owner_self(), out, 20);
    ok(out[0].count > 50, "a clock that is set back halves nothing");
}


/* ---- kills -------------------------------------------------------------- */

static uint64_t  values[KVR_HISTORY_SERIES];


static void
nothing(void)
{
}


static void
write_all(void)
{
    kvr_history_write(&shared->history, 9, values);
    decide(77);
    (void) ask(1, 2, 100, 2000);
}


static void
kills(void)
{
    bool              inside;
    uint32_t          i, n, steps, killed, torn, stuck;
    uint64_t          k, out[KVR_HISTORY_SERIES];
    kvr_decision_t    d;
    kvr_hot_prefix_t  hottest[4];

    killed = torn = stuck = 0;
    inside = true;

    for (n = 0, steps = 1; n < KILLS && inside; n++, steps += 1 + steps / 32) {
        clear();
        (void) ask(1, 1, 100, 1000);

        for (k = 0; k < KVR_HISTORY_SERIES; k++) {
            values[k] = 42;
        }

        inside = killed_behind(nothing, write_all, steps);
        killed += inside;

        if (kvr_history_read(&shared->history, 9, out)) {
            for (k = 0; k < KVR_HISTORY_SERIES; k++) {
                torn += out[k] != 42;
            }
        }

        for (i = 0; i < 4; i++) {
            torn += kvr_decisions_read(&shared->decisions, i, &d)
                    && !whole(&d);
        }

        (void) ask(1, 3, 100, 3000);
        stuck += shared->hot.missed != 0
                 || kvr_hot_read(&shared->hot, kvr_owner_self(), hottest, 4)
                    == 0
                 || hottest[0].count < 2 || hottest[0].count > 3;
    }

    ok(killed > 20, "%u processes were killed while they wrote", killed);
    is_u64(torn, 0, "no torn sample or decision was read");
    is_u64(stuck, 0, "prefixes went on to be counted, wrong by one at most");
}


int
main(void)
{
    shared = mmap(NULL, sizeof(shared_t), PROT_READ|PROT_WRITE,
                  MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED) {
        return 1;
    }

    history();
    first_bytes();
    decisions();
    hot();
    kills();

    return done();
}
