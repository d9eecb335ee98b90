/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What engines can be asked for: who probes when, and what is read of it.
 */


#include "traffic/kvr_rungs.h"
#include "wire/kvr_forms.h"
#include "tap.h"


#define RENDER_CHAT  kvr_rung_render(KVR_FORM_CHAT)


static void
turns(void)
{
    uint32_t     i, n;
    uint64_t     now;
    kvr_rungs_t  r;

    static const kvr_rungs_found_t  found = { KVR_RUNG_CHAT, 1, "1" };

    memset(&r, 0, sizeof(r));
    now = 1000;

    ok(kvr_rungs_due(&r, 7, now), "a worker that nobody probed is due");
    ok(!kvr_rungs_due(&r, 7, now), "for one process alone");
    ok(!kvr_rungs_due(&r, 7, now + KVR_RUNGS_LEASE_MS - 1),
       "as long as the probe may take");
    ok(kvr_rungs_due(&r, 7, now + KVR_RUNGS_LEASE_MS),
       "then another gets it: the process may have died");

    kvr_rungs_write(&r, 5, &found, now);
    ok(!kvr_rungs_due(&r, 7, now + KVR_RUNGS_AGAIN_MS - 1),
       "a probe that was answered holds for a while");
    ok(kvr_rungs_due(&r, 7, now + KVR_RUNGS_AGAIN_MS), "and not for ever");

    kvr_rungs_write(&r, 5, &found, now);
    ok(kvr_rungs_due(&r, 8, now + 1), "another run of the engine is due");
    ok(!kvr_rungs_due(&r, 8, now + 1), "once");

    kvr_rungs_write(&r, 5, &found, now);

    for (i = 0, n = 0; i < 10; i++) {
        n += kvr_rungs_failed(&r, now) == i + 1;
        n += !kvr_rungs_due(&r, 8, now + (i < 6 ? 1000u << i : 60000) - 1);
    }

    ok(n == 20, "probes without an answer: each later, up to a minute");
    ok(kvr_rungs_due(&r, 8, now + KVR_RUNGS_RETRY_MAX_MS), "but not later");

    kvr_rungs_write(&r, 5, &found, now);
    kvr_rungs_failed(&r, now);
    ok(kvr_rungs_due(&r, 8, now + KVR_RUNGS_RETRY_MS),
       "an answer makes the delay short again");

    r.failed = UINT32_MAX;
    ok(kvr_rungs_failed(&r, now) == UINT32_MAX, "the count has an end");
}


static void
doubts(void)
{
    uint64_t     now;
    kvr_rungs_t  r;

    static const kvr_rungs_found_t  found = { RENDER_CHAT, 1, "" };

    memset(&r, 0, sizeof(r));
    now = 50000;

    (void) kvr_rungs_due(&r, 7, now);
    kvr_rungs_write(&r, 5, &found, now);

    kvr_rungs_doubt(&r, now + 1);
    ok(kvr_rungs_due(&r, 7, now + 1), "a doubt makes the worker due");

    kvr_rungs_write(&r, 5, &found, now + 2);
    kvr_rungs_doubt(&r, now + KVR_RUNGS_DOUBT_MS);
    ok(!kvr_rungs_due(&r, 7, now + KVR_RUNGS_DOUBT_MS),
       "the next ones do not, for a while");

    kvr_rungs_doubt(&r, now + KVR_RUNGS_DOUBT_MS + 1);
    ok(kvr_rungs_due(&r, 7, now + KVR_RUNGS_DOUBT_MS + 1), "but later ones");
}


static void
records(void)
{
    kvr_rungs_t        r;
    kvr_rungs_found_t  f;

    static const kvr_rungs_found_t  found = {
        RENDER_CHAT, 1, "0.32.0"
    };
    static const kvr_rungs_found_t  none = { 0, 0, "" };

    memset(&r, 0, sizeof(r));

    ok(!kvr_rungs_read(&r, 0, &f) && f.rungs == 0 && f.version[0] == '\0',
       "an empty record says nothing, even of generation 0");

    kvr_rungs_write(&r, 5, &found, 1);
    ok(kvr_rungs_read(&r, 5, &f)
       && f.rungs == (RENDER_CHAT | KVR_RUNG_KNOWN)
       && f.engine == 1 && strcmp(f.version, "0.32.0") == 0,
       "what was found is read");
    ok(strcmp(kvr_rung_name(KVR_FORM_CHAT), "render_chat") == 0
       && strcmp(kvr_rung_name(KVR_RUNGS_MAX - 1), "tokenize_chat") == 0,
       "each rung has a name");
    ok(kvr_rungs_bits(&r, 5) == (RENDER_CHAT | KVR_RUNG_KNOWN),
       "or the rungs alone");
    ok(!kvr_rungs_read(&r, 6, &f) && f.engine == 0 && kvr_rungs_bits(&r, 6) == 0,
       "not by the next worker of that number");

    kvr_rungs_failed(&r, 2);
    ok(kvr_rungs_bits(&r, 5) != 0, "a probe without an answer changes nothing");

    r.seq |= 1;
    ok(!kvr_rungs_read(&r, 5, &f) && f.version[0] == '\0',
       "nothing is read of a record whose writer died");

    kvr_rungs_write(&r, 5, &none, 3);
    ok(kvr_rungs_read(&r, 5, &f) && f.rungs == KVR_RUNG_KNOWN,
       "the next writer repairs it; that there is nothing is known, too");
}


int
main(void)
{
    turns();
    doubts();
    records();

    return done();
}
