/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Echoes: when they are looked at, what a look proves, and their bounds.
 */


#include <stdlib.h>

#include "traffic/kvr_echo.h"
#include "wire/kvr_route.h"
#include "tap.h"


#define NOW  UINT64_C(1000000)


static kvr_echoes_t  *t;


/* An answer at a time; the number in its first hash tells which it is. */

static bool
keep(uint64_t ms, uint32_t blocks, uint32_t depth, uint64_t number)
{
    uint32_t    i;
    uint64_t    hashes[KVR_ECHO_BLOCKS];
    kvr_echo_t  e = { 0 };

    e.answered_ms = NOW + ms;
    e.blocks = blocks;
    e.depth = depth;

    for (i = 0; i < blocks; i++) {
        hashes[i] = number + i;
    }

    return kvr_echoes_keep(t, &e, hashes) == KVR_OK;
}


/* A look at what is due: the verdict, or -1 when nothing is. */

static int
look(uint64_t ms, uint32_t depth, uint32_t span, uint64_t heard)
{
    kvr_echo_t      *e;
    const uint64_t  *hashes;
    kvr_echo_look_t  l = { depth, span, NOW + heard };

    e = kvr_echoes_due(t, NOW + ms, &hashes);

    return e ? (int) kvr_echoes_look(t, e, &l) : -1;
}


static void
times(void)
{
    t = kvr_echoes_create();

    ok(look(0, 0, 1, 0) == -1, "without an answer there is no look");
    ok(keep(0, 5, 0, 100), "an answer is kept");
    ok(look(999, 5, 1, 999) == -1, "for a second nothing is looked at");
    ok(look(1000, 5, 1, 1000) == KVR_ECHO_IS_FULL, "then all its blocks are "
       "there");
    ok(look(5000, 5, 1, 1000) == -1, "and that is its end");

    (void) keep(10000, 5, 0, 100);
    ok(look(11000, 0, 1, 11000) == KVR_ECHO_AGAIN
       && look(11999, 5, 1, 11000) == -1
       && look(12000, 4, 1, 12000) == KVR_ECHO_AGAIN
       && look(13999, 5, 1, 13000) == -1
       && look(14000, 5, 1, 14000) == KVR_ECHO_IS_FULL,
       "events may be late: there are three looks");

    (void) keep(20000, 5, 0, 100);
    ok(look(21000, 2, 1, 21000) == KVR_ECHO_AGAIN
       && look(22000, 2, 1, 22000) == KVR_ECHO_AGAIN
       && look(24000, 2, 1, 24000) == KVR_ECHO_HAS_PARTED
       && look(99000, 2, 1, 99000) == -1,
       "blocks that are not there at the last look are missing");

    (void) keep(30000, 5, 0, 100);
    ok(look(39000, 2, 1, 39000) == KVR_ECHO_AGAIN
       && look(39000, 2, 1, 39000) == KVR_ECHO_AGAIN
       && look(39000, 2, 1, 39000) == KVR_ECHO_HAS_PARTED,
       "a process that was stopped looks as often");

    kvr_echoes_destroy(t);
}


static void
proofs(void)
{
    kvr_echo_t      *e;
    const uint64_t  *hashes;

    t = kvr_echoes_create();

    (void) keep(0, 5, 0, 100);
    ok(look(1000, 2, 1, 0) == KVR_ECHO_AGAIN
       && look(2000, 2, 1, 0) == KVR_ECHO_AGAIN
       && look(4000, 2, 1, 0) == KVR_ECHO_VOID,
       "a worker that was not heard since proves nothing");

    (void) keep(10000, 5, 3, 100);
    ok(look(11000, 2, 1, 11000) == KVR_ECHO_VOID,
       "nor one that has evicted what it had before");

    (void) keep(20000, 5, 0, 100);
    ok(look(21000, 4, 1, 21000) == KVR_ECHO_AGAIN
       && look(22000, 3, 1, 22000) == KVR_ECHO_VOID,
       "or what it stored");

    (void) keep(30000, 5, 0, 100);
    ok(look(31000, 0, 1, 31000) == KVR_ECHO_AGAIN
       && look(32000, 2, 1, 32000) == KVR_ECHO_AGAIN
       && look(34000, 3, 1, 34000) == KVR_ECHO_VOID,
       "nor one that is still storing");

    (void) keep(40000, 10, 0, 100);
    ok(look(41000, 8, 4, 41000) == KVR_ECHO_IS_FULL,
       "of an engine with blocks of 4 of the index's, 8 of 10 are all");

    (void) keep(50000, 3, 0, 100);
    ok(look(51000, 0, 4, 51000) == KVR_ECHO_VOID, "and of 3 there is none");

    (void) keep(60000, 5, 0, 100);
    e = kvr_echoes_due(t, NOW + 61000, &hashes);
    ok(e && kvr_echoes_skip(t, e, true) == KVR_ECHO_VOID
       && look(99000, 5, 1, 99000) == -1,
       "a worker whose blocks are other ones now is not looked at again");

    (void) keep(70000, 5, 0, 100);
    e = kvr_echoes_due(t, NOW + 71000, &hashes);
    ok(e && kvr_echoes_skip(t, e, false) == KVR_ECHO_AGAIN
       && look(72000, 5, 1, 72000) == KVR_ECHO_IS_FULL,
       "one that can't be looked at now is, at the next time");

    kvr_echoes_destroy(t);
}


/* Answers of any length, ended in any order: each has its own hashes. */

static void
rings(void)
{
    bool             good;
    uint32_t         i, n, held, full;
    uint64_t         ms, now;
    kvr_echo_t      *e;
    const uint64_t  *hashes;
    kvr_echo_look_t  l;

    t = kvr_echoes_create();

    for (n = 0; keep(0, 1, 0, n); n++) { /* void */ }

    is_u64(n, KVR_ECHO_MAX, "so many answers are kept, and no more");

    for (i = 0; i < n; i++) {
        (void) look(1000, 1, 1, 1000);
    }

    for (n = 0; keep(2000, KVR_ECHO_BLOCKS, 0, n); n++) { /* void */ }

    ok(n == KVR_ECHO_HASHES / KVR_ECHO_BLOCKS
       || n == KVR_ECHO_HASHES / KVR_ECHO_BLOCKS - 1,
       "%u of the longest prompts are kept", n);

    kvr_echoes_destroy(t);

    t = kvr_echoes_create();
    srandom(3);

    good = true;
    held = 0;
    full = 0;
    now = 0;

    for (ms = 0; ms < 400000; ms += 7) {

        n = 1 + (uint32_t) random() % (random() % 9 ? 40 : KVR_ECHO_BLOCKS);

        /* the number tells the time and the length */

        if (keep(ms, n, 0, (ms << 32) + n * UINT64_C(65536))) {
            held++;

        } else {
            full++;
        }

        for (now = ms; random() % 4; /* void */ ) {

            e = kvr_echoes_due(t, NOW + now, &hashes);
            if (e == NULL) {
                break;
            }

            for (i = 0; i < e->blocks; i++) {
                good = good && hashes[i]
                               == ((e->answered_ms - NOW) << 32)
                                  + e->blocks * UINT64_C(65536) + i;
            }

            good = good && e->answered_ms + 1000 <= NOW + now;

            l.depth = random() % 2 ? e->blocks : 0;
            l.span = 1;
            l.heard_ms = NOW + now;

            held -= kvr_echoes_look(t, e, &l) != KVR_ECHO_AGAIN;
        }
    }

    while ((e = kvr_echoes_due(t, NOW + ms + 4000, &hashes))) {
        l.depth = 0;
        l.span = 1;
        l.heard_ms = NOW + ms + 4000;
        held -= kvr_echoes_look(t, e, &l) != KVR_ECHO_AGAIN;
    }

    ok(good, "each has the hashes of its prompt, whatever came and went");
    is_u64(held, 0, "each that was kept ends");
    ok(full != 0, "%u found no room", full);
    ok(keep(ms, KVR_ECHO_BLOCKS, 0, 1), "in the end there is room again");

    kvr_echoes_destroy(t);
}


/* The names of routes are those of their forms, and with ids say so. */

static void
routes(void)
{
    static const char *const  ends[KVR_FROM] = { "", "_ids", "_local" };

    bool         good;
    size_t       len;
    uint32_t     form, from, route;
    const char  *name;

    good = true;

    for (form = 0; form < KVR_FORM_NO_PROMPT; form++) {
        for (from = 0; from < KVR_FROM; from++) {
            route = kvr_route(form, from);
            good = good && route < KVR_ROUTES;

            name = kvr_route_name(route);
            len = strlen(kvr_form_name(form));
            good = good && strncmp(name, kvr_form_name(form), len) == 0
                   && strcmp(name + len, ends[from]) == 0;
        }
    }

    ok(good, "each form has three routes of its name");
    ok(kvr_route(KVR_FORM_NO_PROMPT, KVR_FROM_BODY)
       == kvr_route(KVR_FORM_UNKNOWN, KVR_FROM_BODY)
       && kvr_route(KVR_FORM_NO_LOAD, KVR_FROM_ENGINE)
          == kvr_route(KVR_FORM_UNKNOWN, KVR_FROM_ENGINE),
       "forms without a prompt are of the unknown route");
}


int
main(void)
{
    times();
    proofs();
    rings();
    routes();

    return done();
}
