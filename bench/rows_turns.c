/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The turn cache: 1,000 sessions that grow to 100,000 tokens in 20 turns, on 20
 * system prompts of 2,000 tokens.  Whose turn it is, is drawn; so the sessions
 * take turns like users do, and a session's entries wait for about 1,000 turns
 * of others.
 */


#include "index.h"
#include "token/kvr_turns.h"

#include <sys/mman.h>


#define SESSIONS    1000
#define SYSTEMS     20
#define SYSTEM      2000                /* tokens of one */
#define TURNS       20
#define CUTS        4                   /* of a turn */
#define PART        1225                /* tokens behind a cut: 20 turns of 4
                                           parts have 98,000 */
#define TOKENS      (SYSTEM + TURNS * CUTS * PART)
#define BYTES       4                   /* of a token */


typedef struct {
    kvr_turns_cut_t  cuts[1 + TURNS * CUTS];
    uint32_t         turns;             /* taken */
} turns_session_t;


static void turns_of(uint32_t mib, uint32_t block_size);
static void turns_cut(turns_session_t *s, uint32_t number, uint32_t cut);
static uint32_t turns_tokens(uint32_t cut);
static double turns_take(kvr_turns_t *t, const kvr_turns_terms_t *terms,
    uint32_t number, uint64_t now_ms);


static turns_session_t  sessions[SESSIONS];
static uint64_t         hashes[TOKENS / 16 + 1], times[SESSIONS * TURNS];
static uint32_t         tail[64];
static uint64_t         again, found, had, got;


void
rows_turns(void)
{
    static const uint32_t  sizes[] = { 32, 64, 128 };

    uint32_t  i;

    for (i = 0; i < 3; i++) {
        turns_of(sizes[i], 16);
        turns_of(sizes[i], 64);
    }
}


static void
turns_of(uint32_t mib, uint32_t block_size)
{
    char                name[96], why[KVR_SLOTS_WHY];
    void               *p;
    double              ns;
    size_t              size;
    uint32_t            i, k, left, n;
    uint64_t            seed;
    kvr_turns_t         t;
    kvr_turns_stats_t   s;
    kvr_turns_terms_t   terms;

    size = (size_t) mib << 20;
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0);

    ix_must(p != MAP_FAILED, "no memory");
    ix_must(kvr_turns_format(p, size, why) == KVR_OK, why);
    ix_must(kvr_turns_attach(&t, p, size, why) == KVR_OK, why);

    memset(&terms, 0, sizeof(terms));
    terms.contract.block_size = block_size;

    memset(sessions, 0, sizeof(sessions));
    again = 0;
    found = 0;
    had = 0;
    got = 0;
    n = 0;
    seed = 1;

    for (left = SESSIONS * TURNS; left; left--) {

        do {
            i = (uint32_t) (wl_mix(seed++) % SESSIONS);

            /* near the end few sessions have turns left */

            for (k = 0; k < SESSIONS && sessions[i].turns == TURNS; k++) {
                i = (i + 1) % SESSIONS;
            }

        } while (sessions[i].turns == TURNS);

        ns = turns_take(&t, &terms, i, n * 10);
        times[n++] = (uint64_t) ns;
    }

    kvr_turns_stats(&t, &s);

    snprintf(name, sizeof(name), "%u MiB, blocks of %u: turns that go on", mib,
             block_size);
    ix_say(name, "% found", 100.0 * found / again);
    snprintf(name, sizeof(name), "%u MiB, blocks of %u: their tokens", mib,
             block_size);
    ix_say(name, "% found", 100.0 * got / had);
    snprintf(name, sizeof(name), "%u MiB, blocks of %u: memory", mib,
             block_size);
    ix_say(name, "MiB used", (double) s.slots.used * KVR_SLOTS_SIZE
                             / (1 << 20));
    snprintf(name, sizeof(name), "%u MiB, blocks of %u: find", mib,
             block_size);
    ix_say(name, "us", ix_percentile(times, n, 50) / 1000);
    snprintf(name, sizeof(name), "%u MiB, blocks of %u: find, p99", mib,
             block_size);
    ix_say(name, "us", ix_percentile(times, n, 99) / 1000);

    munmap(p, size);
}


/* A session's cut: the system prompt's is that of all with that prompt. */

static void
turns_cut(turns_session_t *s, uint32_t number, uint32_t cut)
{
    uint64_t  x;

    x = cut == 0 ? number % SYSTEMS : wl_mix(number * 1000 + cut) | 1u << 31;

    s->cuts[cut].digest[0] = wl_mix(x);
    s->cuts[cut].digest[1] = wl_mix(~x);
    s->cuts[cut].byte = (uint64_t) turns_tokens(cut) * BYTES;
}


static uint32_t
turns_tokens(uint32_t cut)
{
    return SYSTEM + cut * PART;
}


/* One turn, as a request makes it; ns that the find takes. */

static double
turns_take(kvr_turns_t *t, const kvr_turns_terms_t *terms, uint32_t number,
    uint64_t now_ms)
{
    uint32_t            i, n, last;
    uint64_t            begun, took;
    kvr_turns_entry_t   e;
    turns_session_t    *s;

    s = &sessions[number];
    last = s->turns * CUTS;             /* of the turn before */
    n = last + CUTS + 1;

    for (i = s->turns ? last + 1 : 0; i < n; i++) {
        turns_cut(s, number, i);
    }

    begun = wl_now();
    (void) kvr_turns_find(t, terms, s->cuts, n, hashes, TOKENS / 16, tail,
                          now_ms, &e);
    took = wl_now() - begun;

    if (s->turns) {
        again++;
        found += e.tokens == turns_tokens(last);
        had += turns_tokens(last);
        got += e.tokens;
    }

    if (e.tokens == 0) {
        (void) kvr_turns_keep(t, terms, &s->cuts[0], turns_tokens(0), hashes,
                              tail, now_ms, &e);
    }

    (void) kvr_turns_keep(t, terms, &s->cuts[n - 1], turns_tokens(n - 1),
                          hashes, tail, now_ms, &e);
    s->turns++;

    return (double) took;
}
