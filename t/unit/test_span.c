/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Handles that span several blocks of the index.
 */


#include "../check/kvr_check.h"
#include "zone.h"

#include "core/kvr_hash.h"
#include "zone/kvr_span.h"


#define TOKENS  256


static uint32_t  tokens[TOKENS];
static uint64_t  plain[TOKENS];         /* local hashes of them */


/* n handles of k blocks each. */

static kvr_rc_t
store_span(const char *worker, uint64_t parent, const uint64_t *handles,
    const uint64_t *locals, uint32_t n, uint32_t k)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.has_parent = parent != 0;
    ev.parent = parent;
    ev.handles = handles;
    ev.nhandles = n;
    ev.locals = locals;
    ev.nlocals = n * k;

    return write_event(worker, &ev);
}


/* n blocks of an engine whose blocks have so many tokens. */

static kvr_event_t
token_event(uint64_t parent, const uint64_t *handles, uint32_t n,
    uint32_t block_size)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.has_parent = parent != 0;
    ev.parent = parent;
    ev.handles = handles;
    ev.nhandles = n;
    ev.tokens = tokens;
    ev.ntokens = n * block_size;
    ev.block_size = block_size;

    return ev;
}


static kvr_rc_t
add_tier(const char *worker, const uint64_t *handles, uint32_t n)
{
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.handles = handles;
    ev.nhandles = n;

    return write_event(worker, &ev);
}


/* Cleared, and nothing left of it. */

static void
empty(const char *worker)
{
    clear(worker);

    while (kvr_router_tend(&router, now_ms, 1000)) { /* void */ }
}


static bool
has(const char *worker, const uint64_t *prompt, uint32_t n, uint32_t device,
    uint32_t host)
{
    kvr_match_t  m;

    m = matched(worker, prompt, n);

    if (m.device != device || m.host != host) {
        note("got %u, %u; want %u, %u", m.device, m.host, device, host);
    }

    return m.device == device && m.host == host;
}


static uint64_t
pairs(void)
{
    kvr_stats_t  s;

    kvr_router_stats(&router, &s);

    return s.pairs;
}


/* The longest span that the first rank of a worker has had; 0: no rank. */

static uint32_t
longest(const char *worker)
{
    uint32_t  w, holder;

    return kvr_router_find_worker(&router, worker, strlen(worker), &w)
           == KVR_OK
           && kvr_router_find_holder(&router, w, 0, &holder) == KVR_OK
           ? kvr_router_holder_span(&router, holder) : 0;
}


static void
test_chain(void)
{
    uint32_t  k;

    for (k = 2; k <= 4; k += 2) {

        put("a");
        store_span("a", 0, row(100, 3), row(1, 3 * k), 3, k);
        store_span("a", 102, row(103, 1), row(1 + 3 * k, k), 1, k);

        ok(has("a", row(1, 4 * k), 4 * k, 4 * k, 4 * k)
           && pairs() == 4 * k,
           "%s: a chain of spans of %u, and what is stored behind it",
           kind->name, k);

        is_u64(longest("a"), k, "%s: the worker's span is known", kind->name);

        ok(has("a", row(1, 4 * k), 2 * k + 1, 2 * k + 1, 2 * k + 1),
           "%s: a prompt may end within a span", kind->name);

        take_one("a", 101);
        ok(unknown == 0 && has("a", row(1, 4 * k), 4 * k, k, k)
           && pairs() == 3 * k,
           "%s: one of the middle removed takes its %u blocks along",
           kind->name, k);

        store_span("a", 100, row(101, 1), row(1 + k, k), 1, k);
        ok(has("a", row(1, 4 * k), 4 * k, 4 * k, 4 * k),
           "%s: stored again it fills the hole", kind->name);

        take_out("a", row(100, 5), 5);
        ok(unknown == 1 && pairs() == 0,
           "%s: all removed, and a handle that never was", kind->name);

        take_one("a", 100);
        ok(unknown == 1, "%s: what is gone is unknown", kind->name);
    }
}


static void
test_tiers(void)
{
    put("a");
    store_span("a", 0, row(100, 3), row(1, 12), 3, 4);

    tier = KVR_HOST;
    add_tier("a", row(100, 2), 2);
    ok(unknown == 0 && has("a", row(1, 12), 12, 12, 12),
       "%s: a tier is added to spans that are known", kind->name);

    add_tier("a", row(200, 1), 1);
    ok(unknown == 1, "%s: and not to others", kind->name);

    tier = KVR_DEVICE;
    take_out("a", row(100, 3), 3);
    ok(has("a", row(1, 12), 12, 0, 8) && pairs() == 8,
       "%s: they are left in that tier, all of each", kind->name);

    tier = KVR_HOST;
    take_one("a", 101);
    ok(has("a", row(1, 12), 12, 0, 4), "%s: until they go there too",
       kind->name);

    take_one("a", 100);
    ok(pairs() == 0, "%s: with nothing left behind", kind->name);
    tier = KVR_DEVICE;
}


/* An engine starts anew with another block size. */

static void
test_other_length(void)
{
    put("a");
    store_span("a", 0, row(100, 2), row(1, 8), 2, 4);
    empty("a");
    store_span("a", 0, row(100, 2), row(1, 4), 2, 2);
    store_span("a", 101, row(102, 1), row(5, 1), 1, 1);

    ok(has("a", row(1, 8), 8, 5, 5),
       "%s: cleared, an engine comes back with spans of another length",
       kind->name);

    take_out("a", row(100, 3), 3);
    ok(unknown == 0 && has("a", row(1, 8), 8, 0, 0),
       "%s: and removes them", kind->name);

    store_span("a", 0, row(100, 1), row(1, 4), 1, 4);
    store_span("a", 0, row(100, 1), row(11, 2), 1, 2);
    ok(has("a", row(1, 4), 4, 0, 0) && has("a", row(11, 2), 2, 2, 2)
       && kvr_router_holder_held(&router, 0) <= 2,
       "%s: a handle stored with fewer blocks elsewhere leaves all it had",
       kind->name);

    store_span("a", 0, row(100, 1), row(1, 4), 1, 4);
    store("a", 0, row(100, 1), row(1, 1), 1);
    ok(has("a", row(1, 4), 4, 1, 1), "%s: with one block it has one",
       kind->name);

    take_one("a", 100);
    ok(unknown == 0 && has("a", row(1, 4), 4, 0, 0),
       "%s: which is all that its removal takes", kind->name);
}


static void
test_parents(void)
{
    put("a");
    put("b");

    ok(store_span("a", 100, row(101, 1), row(5, 4), 1, 4) == KVR_INVALID
       && why == KVR_WHY_PARENT && pairs() == 0,
       "%s: a child before its parent is refused", kind->name);

    store_span("a", 0, row(100, 1), row(1, 4), 1, 4);
    ok(store_span("a", 100, row(101, 1), row(5, 4), 1, 4) == KVR_OK
       && has("a", row(1, 8), 8, 8, 8), "%s: and taken after it",
       kind->name);

    store_span("b", 0, row(100, 1), row(1, 4), 1, 4);
    store_span("b", 0, row(200, 1), row(1, 3), 1, 3);
    take_one("b", 100);
    ok(has("b", row(1, 4), 4, 3, 3),
       "%s: a block of two spans is held until both are gone", kind->name);

    take_one("b", 200);
    ok(has("b", row(1, 4), 4, 0, 0) && has("a", row(1, 8), 8, 8, 8),
       "%s: and other workers' spans are theirs", kind->name);
}


static void
test_refused(void)
{
    kvr_event_t  ev;

    static uint64_t  many[KVR_SPAN_MAX + 1];

    put("a");

    ok(store_span("a", 0, row(100, 1), many, 1, KVR_SPAN_MAX + 1)
       == KVR_INVALID && why == KVR_WHY_LIMIT,
       "%s: a span over the bound is refused", kind->name);

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.handles = row(100, 2);
    ev.nhandles = 2;
    ev.locals = row(1, 5);
    ev.nlocals = 5;
    ok(write_event("a", &ev) == KVR_INVALID && why == KVR_WHY_LENGTH,
       "%s: blocks that fall unevenly to handles are refused", kind->name);

    ev.nhandles = KVR_EVENT_BLOCKS_MAX / 2;
    ev.nlocals = ev.nhandles * 4;
    ok(write_event("a", &ev) == KVR_INVALID && why == KVR_WHY_LIMIT,
       "%s: an event's bound counts the index's blocks", kind->name);

    ev = token_event(0, row(100, 2), 2, 6);
    ok(write_event("a", &ev) == KVR_INVALID && why == KVR_WHY_BLOCK_SIZE,
       "%s: an engine's block size that is no multiple is refused",
       kind->name);

    ev = token_event(0, row(100, 2), 2, 2);
    ok(write_event("a", &ev) == KVR_INVALID && why == KVR_WHY_BLOCK_SIZE
       && pairs() == 0, "%s: and one that is smaller", kind->name);

    ev = token_event(0, row(100, 2), 2, 8);
    ev.ntokens--;
    ok(write_event("a", &ev) == KVR_INVALID && why == KVR_WHY_LENGTH,
       "%s: and tokens that are not as many as the blocks say", kind->name);
}


static void
test_tokens(void)
{
    uint32_t      i, start[4];
    uint64_t      salted[TOKENS];
    kvr_event_t   ev;
    kvr_hasher_t  h;

    put("a");

    ev = token_event(0, row(100, 3), 3, 8);
    ok(write_event("a", &ev) == KVR_OK && has("a", plain, 6, 6, 6),
       "%s: an engine's blocks of twice the tokens are split", kind->name);

    empty("a");

    ev = token_event(0, row(100, 1), 1, 16);
    ev.cache_salt = "pepper";
    ev.salt_len = 6;
    (void) write_event("a", &ev);

    for (i = 0; i < 16; i++) {
        tokens[i] += 16;
    }

    ev = token_event(100, row(101, 1), 1, 16);
    (void) write_event("a", &ev);

    for (i = 0; i < 16; i++) {
        tokens[i] -= 16;
    }

    h.ready = false;
    kvr_hasher_init(&h, kvr_hash_seed("", 0, "pepper", 6));
    (void) kvr_hash_blocks(&h, tokens, 32, 4, salted);
    ok(has("a", salted, 8, 8, 8) && has("a", plain, 8, 0, 0),
       "%s: what is stored behind a span has its salt", kind->name);

    empty("a");

    start[0] = 0;
    start[1] = 0;
    start[2] = 0;
    start[3] = 1;

    ev = token_event(0, row(100, 3), 3, 8);
    ev.mm = row(7, 1);
    ev.mm_start = start;
    ok(write_event("a", &ev) == KVR_OK && why == KVR_WHY_EXTRA_KEY
       && has("a", plain, 6, 4, 4) && pairs() == 4,
       "%s: from the first one with an image on they are filtered",
       kind->name);

    start[1] = 1;
    start[2] = 1;
    empty("a");
    ok(write_event("a", &ev) == KVR_OK && why == KVR_WHY_EXTRA_KEY
       && pairs() == 0, "%s: which may be all", kind->name);

    empty("a");

    ev = token_event(0, row(100, 3), 3, 4);
    ev.mm = row(7, 1);
    ev.mm_start = start;
    ok(write_event("a", &ev) == KVR_OK && why == KVR_WHY_NONE
       && pairs() == 3, "%s: a block of the index's size has its images",
       kind->name);
}


/* The dump's events, into another zone. */

static kvr_rc_t
replay(void *data, const char *line, size_t len)
{
    const char     *detail;
    kvr_event_t     ev;
    kvr_message_t   msg;
    kvr_decoder_t  *d;
    kvr_router_t   *to;

    to = data;
    d = kvr_decoder_create();

    (void) kvr_message_open(d, line, len, &msg, &why, &detail);

    while (kvr_decoder_next(d, &ev) == KVR_OK) {
        (void) kvr_router_write(to, ev.worker, ev.worker_len, &ev, now_ms,
                                &unknown, &why, &detail);
    }

    kvr_decoder_destroy(d);

    return KVR_OK;
}


static void
test_dump(const kind_t *of)
{
    void          *base;
    kvr_rc_t       rc;
    kvr_router_t   from;

    zone_open(of, 8 << 20);
    put("a");
    store_span("a", 0, row(100, 4), row(1, 16), 4, 4);
    take_one("a", 102);
    from = router;
    base = zone_base;

    zone_open(of, 8 << 20);
    put("a");
    rc = kvr_router_dump(&from, false, replay, &router);
    ok(rc == KVR_OK && has("a", row(1, 16), 16, 8, 8) && pairs() == 12,
       "%s: a dump of spans gives the same answers", kind->name);

    zone_close();
    router = from;
    zone_base = base;
    zone_close();
}


static kvr_rc_t
replay_event(void *data, const kvr_event_t *ev)
{
    const char    *detail;
    kvr_router_t  *to;

    to = data;

    return kvr_router_write(to, "a", 1, ev, now_ms, &unknown, &why, &detail);
}


/* Blocks that begin alike: their spans part inside of a run. */

static void
test_dump_events(const kind_t *of)
{
    void             *base;
    uint32_t          i;
    kvr_rc_t          rc;
    kvr_router_t      from;
    uint64_t          handles[2];
    static uint64_t   chains[][8] = {
        { 1, 2, 3, 4, 5, 6, 7, 8 },
        { 1, 2, 91, 92, 93, 94, 95, 96 },
        { 1, 81, 82, 83, 84, 85, 86, 87 },
        { 1, 2, 91, 72, 73, 74, 75, 76 }
    };

    zone_open(of, 8 << 20);
    put("a");
    handles[0] = 100;

    for (i = 0; i < 4; i++) {
        handles[1] = handles[0] + 1;
        store_span("a", 0, handles, chains[i], 2, 4);
        handles[0] += 100;
    }

    from = router;
    base = zone_base;

    zone_open(of, 8 << 20);
    put("a");

    rc = kvr_router_dump_events(&from, "a", 1, replay_event, &router);
    ok(rc == KVR_OK, "%s: the events of a dump of spans are applied",
       kind->name);

    for (i = 0; i < 4; i++) {
        ok(has("a", chains[i], 8, 8, 8), "%s: chain %u is there", kind->name,
           i);
    }

    take_one("a", 201);
    ok(has("a", chains[1], 8, 4, 4) && has("a", chains[3], 8, 8, 8),
       "%s: a handle is removed with its span", kind->name);

    zone_close();
    router = from;
    zone_base = base;
    zone_close();
}


static void
zone_check(void)
{
    bool      sound;
    uint32_t  i;

    sound = true;

    for (i = 0; i < router.nshards; i++) {
        sound = sound && kvr_index_check(&router.shards[i].index) == NULL;
    }

    ok(sound, "%s: the index is sound", kind->name);
}


int
main(void)
{
    uint32_t      i, k;
    kvr_hasher_t  h;

    static void (*const tests[])(void) = {
        test_chain, test_tiers, test_other_length, test_parents, test_refused,
        test_tokens
    };

    for (i = 0; i < TOKENS; i++) {
        tokens[i] = i;
    }

    h.ready = false;
    kvr_hasher_init(&h, KVR_HASH_SEED);
    (void) kvr_hash_blocks(&h, tokens, TOKENS, 4, plain);

    for (i = 0; i < KINDS; i++) {

        for (k = 0; k < sizeof(tests) / sizeof(tests[0]); k++) {
            zone_open(&kinds[i], 8 << 20);
            tests[k]();
            zone_check();
            zone_close();
        }

        test_dump(&kinds[i]);
        test_dump_events(&kinds[i]);
    }

    return done();
}
