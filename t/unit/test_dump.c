/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A zone's dump: what it says makes another zone that answers the same.
 */


#include "../check/kvr_check.h"
#include "router_fixture.h"
#include "zone/kvr_shard.h"


static char    *dumped;
static size_t   dumped_len;


static kvr_rc_t
line(void *data, const char *text, size_t len)
{
    dumped = realloc(dumped, dumped_len + len + 2);
    memcpy(dumped + dumped_len, text, len);
    dumped_len += len;
    dumped[dumped_len++] = '\n';
    dumped[dumped_len] = '\0';

    return KVR_OK;
}


static void
replay(kvr_router_t *k)
{
    char            *p, *end;
    uint32_t         unknown;
    kvr_why_t        reason;
    const char      *text;
    kvr_event_t      ev;
    kvr_message_t    msg;
    kvr_decoder_t   *d;

    d = kvr_decoder_create();

    for (p = dumped; p && *p; p = end + 1) {
        end = strchr(p, '\n');

        if (kvr_message_open(d, p, end - p, &msg, &reason, &text) != KVR_OK) {
            continue;
        }

        while (kvr_decoder_next(d, &ev) == KVR_OK) {
            (void) kvr_router_write(k, ev.worker, ev.worker_len, &ev, now(),
                                    &unknown, &reason, &text);
        }
    }

    kvr_decoder_destroy(d);
}


static uint64_t
next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}


static void
test_dump(void)
{
    char          id[2] = "a";
    uint32_t      i, n, t, bad, unknown, round;
    uint64_t      seed, h, parent, buf[64], q[8];
    kvr_why_t     reason;
    kvr_event_t   ev;
    kvr_match_t   one[256], two[256];
    kvr_router_t  from, to;

    fresh(&from);
    fresh(&to);

    for (i = 0; i < 4; i++) {
        id[0] = (char) ('a' + i);
        put(&from, id, "127.0.0.1:1");
        put(&to, id, "127.0.0.1:1");
    }

    /*
     * a small forest: handle = 1 + path in base 4, so that parents are known;
     * the last digit is the local hash
     */

    seed = 42;

    for (round = 0; round < 20000; round++) {

        id[0] = (char) ('a' + next_random(&seed) % 4);
        n = 1 + (uint32_t) (next_random(&seed) % 5);
        h = 1;

        for (i = 0; i < n; i++) {
            h = h * 4 + next_random(&seed) % 3;
        }

        parent = h / 4 == 1 ? 0 : h / 4;
        t = next_random(&seed) % 4 == 0 ? next_random(&seed) % KVR_TIERS : 0;

        event(&ev, next_random(&seed) % 5 < 2 ? KVR_REMOVE : KVR_STORE,
              parent, h, 1, buf);
        ev.tier = t;

        if (ev.kind == KVR_STORE) {
            buf[1] = h % 4;
            ev.locals = buf + 1;

            if (next_random(&seed) % 16 == 0) {
                buf[0] += 1u << 20;             /* a second handle */
            }
        }

        (void) kvr_router_write(&from, id, 1, &ev, now(), &unknown, &reason,
                                &detail);
    }

    ok(kvr_router_dump(&from, false, line, NULL) == KVR_OK && dumped_len,
       "an index with holes, tiers and aliases is dumped: %zu bytes",
       dumped_len);

    replay(&to);

    bad = 0;

    for (round = 0; round < 3 * 3 * 3 * 3 * 3; round++) {

        for (i = 0, n = round; i < 5; i++, n /= 3) {
            q[i] = n % 3;
        }

        n = kvr_router_find(&from, q, 5, 0, false, one, 256);

        if (n != kvr_router_find(&to, q, 5, 0, false, two, 256)
            || memcmp(one, two, n * sizeof(kvr_match_t)) != 0)
        {
            bad++;
        }
    }

    is_u64(bad, 0, "and replayed into an empty one answers the same");
    ok(kvr_index_check(&from.shards[0].index) == NULL
       && kvr_index_check(&to.shards[0].index) == NULL, "both are sound");

    free(dumped);
    dumped = NULL;
    dumped_len = 0;
    kvr_router_detach(&from);
    kvr_router_detach(&to);
}


int
main(void)
{
    for (kind = 0; kind < KVR_INDEX_KINDS; kind++) {
        note("%s", kvr_index_name(kind));
        test_dump();
    }

    return done();
}
