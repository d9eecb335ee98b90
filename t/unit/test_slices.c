/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Long events of live messages: applied in slices, and whole whatever happens
 * between two of them.
 */


#include "snapshot.h"


#define SLICE  8
#define SPAN   4


/* A batch of one store of a whole prompt. */

static size_t
whole_prompt(uint8_t *batch, uint32_t p)
{
    pack_t  out;

    out.pos = batch;
    out.end = batch + BYTES;

    pack_array(&out, 1);
    pack_store(&out, 0, 0, p, 0, LENGTH);

    return out.pos - batch;
}


/* A batch that removes every other block of it. */

static size_t
holes(uint8_t *batch, uint32_t p)
{
    pack_t    out;
    uint32_t  i;
    uint64_t  handles[LENGTH / 2];

    for (i = 0; i < LENGTH / 2; i++) {
        handles[i] = handle(p, 2 * i + 1);
    }

    out.pos = batch;
    out.end = batch + BYTES;

    pack_array(&out, 1);
    pack_remove(&out, 0, 0, handles, LENGTH / 2);

    return out.pos - batch;
}


/*
 * Applies a message for so many steps at most, 0: to its end; true when it
 * came to its end.
 */

static bool
stepped(const void *bytes, size_t len, uint32_t steps)
{
    uint32_t  n;

    if (kvr_ingest_open(ingest, "a", 1, bytes, len, true, now_ms, &detail)
        != KVR_INGEST_APPLY)
    {
        return false;
    }

    for (n = 0; steps == 0 || n < steps; n++) {
        if (kvr_ingest_step(ingest, SLICE) == KVR_DONE) {
            return true;
        }
    }

    return false;
}


/* Of a batch in an envelope. */

static bool
apply(uint64_t seq, const uint8_t *batch, size_t len, uint32_t steps)
{
    uint8_t  bytes[BYTES];

    len = envelope(bytes, "a", 5, seq, true, batch, len);

    return stepped(bytes, len, steps);
}


static uint32_t
depth(uint32_t p)
{
    uint32_t  i;
    uint64_t  prompt[LENGTH];

    for (i = 0; i < LENGTH; i++) {
        prompt[i] = local(p, i);
    }

    return matched("a", prompt, LENGTH).device;
}


static void
test_slices(void)
{
    bool      sliced;
    size_t    len;
    uint8_t   batch[BYTES];
    uint32_t  n;

    len = whole_prompt(batch, 0);
    sliced = true;

    for (n = 1; !apply(1, batch, len, n); n++) {
        sliced = sliced && depth(0) == n * SLICE;
    }

    ok(sliced && n > LENGTH / SLICE && depth(0) == LENGTH
       && held("a") == LENGTH,
       "a long store is applied in slices, each there when it is applied");

    len = holes(batch, 0);

    ok(!apply(2, batch, len, 3) && held("a") == LENGTH - 3 * SLICE
       && apply(2, batch, len, 0) && depth(0) == 1
       && held("a") == LENGTH / 2, "and so is a long removal");

    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 2),
       "the stream stands behind both, EXACT");
}


/* Of blocks that span several, the index's blocks are counted. */

static void
test_spans(void)
{
    bool      last;
    size_t    len;
    pack_t    out;
    uint8_t   batch[BYTES];
    uint32_t  i;
    uint64_t  handles[LENGTH / SPAN], locals[LENGTH];

    for (i = 0; i < LENGTH; i++) {
        handles[i / SPAN] = handle(0, i);
        locals[i] = local(0, i);
    }

    out.pos = batch;
    out.end = batch + BYTES;

    pack_array(&out, 1);
    pack_array(&out, 6);
    pack_str(&out, "s", 1);
    pack_u64(&out, 0);
    pack_u64(&out, 0);
    pack_tag(&out, 0xc0, 0, 0);
    pack_bin(&out, handles, sizeof(handles));
    pack_bin(&out, locals, sizeof(locals));
    len = out.pos - batch;

    (void) apply(1, batch, len, 0);
    is_u64(held("a"), LENGTH, "a chain of blocks of %u each", SPAN);

    out.pos = batch;
    pack_array(&out, 1);
    pack_remove(&out, 0, 0, handles, LENGTH / SPAN);
    len = out.pos - batch;

    last = apply(2, batch, len, 1);
    ok(!last && held("a") == LENGTH - SLICE,
       "of a removal of all of them a slice takes %u blocks", SLICE);

    while (kvr_ingest_step(ingest, SLICE) == KVR_OK) { /* void */ }

    ok(held("a") == 0 && stands("a", KVR_EXACT, KVR_FINE, 5, 2),
       "and the others the rest");
}


/* What a process began is done by the next one from the event's beginning. */

static void
test_abandoned(void)
{
    size_t    len;
    uint8_t   batch[BYTES];
    uint32_t  i, steps, seq;
    model_t   m;

    memset(&m, 0, sizeof(m));

    for (seq = 1, steps = 1; steps <= 13; steps++) {

        for (i = 0; i < LENGTH; i++) {
            m.tiers[0][0][i] = i % 2 == 0;
        }

        len = whole_prompt(batch, 0);
        (void) apply(seq, batch, len, steps);

        kvr_ingest_destroy(ingest);
        ingest = kvr_ingest_create(&router);

        (void) apply(seq++, batch, len, 0);

        len = holes(batch, 0);
        (void) apply(seq, batch, len, steps);

        kvr_ingest_destroy(ingest);
        ingest = kvr_ingest_create(&router);

        (void) apply(seq++, batch, len, 0);

        if (!holds("a", &m) || held("a") != LENGTH / 2
            || !stands("a", KVR_EXACT, KVR_FINE, 5, seq - 1))
        {
            break;
        }
    }

    ok(steps == 14, "an event that was left after any slice is applied whole");
}


static void
test_refused(void)
{
    size_t               len;
    pack_t               out;
    uint8_t              batch[BYTES];
    const kvr_worker_t  *w;

    out.pos = batch;
    out.end = batch + BYTES;

    pack_array(&out, 2);
    pack_store(&out, 0, 0, 0, 1, LENGTH - 1);
    pack_store(&out, 0, 0, 1, 0, LENGTH);
    len = out.pos - batch;

    w = worker_of("a");

    ok(apply(1, batch, len, 0) && w->counters.why[KVR_WHY_PARENT] == 1
       && held("a") == LENGTH && depth(1) == LENGTH,
       "a long store that is refused is refused once, the next one applied");
}


/* A RouterEvent that stores a whole prompt, by its number; steps as above. */

static bool
routed(uint64_t number, uint32_t p, uint32_t steps)
{
    char      text[BYTES];
    size_t    len;
    uint32_t  i;

    len = snprintf(text, BYTES, "{\"worker_id\":\"a\",\"event\":{\"event_id\":"
                   "%llu,\"dp_rank\":0,\"data\":{\"stored\":{\"parent_hash\":"
                   "null,\"blocks\":[", (unsigned long long) number);

    for (i = 0; i < LENGTH; i++) {
        len += snprintf(text + len, BYTES - len,
                        "%s{\"block_hash\":%llu,\"tokens_hash\":%llu}",
                        i ? "," : "", (unsigned long long) handle(p, i),
                        (unsigned long long) local(p, i));
    }

    len += snprintf(text + len, BYTES - len, "]}}}}");

    return stepped(text, len, steps);
}


static void
test_numbered(void)
{
    const kvr_worker_t  *w;

    w = worker_of("a");

    ok(!routed(1, 0, 2) && held("a") == 2 * SLICE && routed(2, 0, 0)
       && held("a") == LENGTH && depth(0) == LENGTH
       && w->counters.duplicates == 0 && w->counters.gaps == 0,
       "a long RouterEvent is applied in slices, and has one number");
    ok(routed(2, 1, 0) && held("a") == LENGTH && depth(1) < LENGTH
       && w->counters.duplicates == 1,
       "one that was applied already isn't, in none of its slices");
    ok(routed(4, 1, 0) && held("a") == 2 * LENGTH && depth(1) == LENGTH
       && w->counters.gaps == 1, "and one gap is one gap");
}


int
main(void)
{
    uint32_t  i, k;

    static void  (*const tests[])(void) = {
        test_slices, test_spans, test_abandoned, test_refused,
        test_numbered
    };

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
