/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The prefix cache: 2,048 keys of 512 tokens, looked up 200 times; and 10,000
 * conversations of 1 M tokens altogether, inserted turn by turn, matched and
 * evicted.  prefix.py does the same with others.
 */


#include "index.h"
#include "prefix/kvr_prefix.h"

#include <sys/mman.h>


#define ZONE         (64u << 20)
#define ENTRIES      2048
#define ENTRY        512                /* tokens */
#define LOOKUPS      200
#define ROUNDS       20                 /* of so many lookups */

#define TALKS        10000
#define SYSTEMS      100                /* prompts, which talks begin with */
#define SYSTEM       20                 /* tokens of one */
#define TURNS        4
#define TURN         25


static void prefix_open(kvr_prefix_t *c);
static void prefix_close(kvr_prefix_t *c);
static double prefix_median(uint32_t n);
static void prefix_entries(void);
static void prefix_tree(void);
static void prefix_talks(void);
static kvr_prefix_key_t prefix_key(const uint32_t *tokens, uint32_t n);
static void prefix_talk(uint32_t talk, uint32_t *tokens);


static uint32_t  tokens[ENTRIES][ENTRY];
static char      value[KVR_PREFIX_VALUE_MAX];
static uint64_t  times[TALKS * TURNS];


void
rows_prefix(void)
{
    uint32_t  i, k;

    for (i = 0; i < ENTRIES; i++) {
        for (k = 0; k < ENTRY; k++) {
            tokens[i][k] = (uint32_t) wl_mix((uint64_t) i * ENTRY + k) % 32000;
        }
    }

    prefix_entries();
    prefix_tree();
    prefix_talks();
}


static void
prefix_open(kvr_prefix_t *c)
{
    char                 why[KVR_PREFIX_WHY];
    void                *p;
    kvr_prefix_params_t  params;

    memset(&params, 0, sizeof(params));
    params.page_size = 1;

    p = mmap(NULL, ZONE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0);

    ix_must(p != MAP_FAILED, "no memory");
    ix_must(kvr_prefix_format(p, ZONE, &params, why) == KVR_OK, why);
    ix_must(kvr_prefix_attach(c, p, ZONE, &params, why) == KVR_OK, why);
}


static void
prefix_close(kvr_prefix_t *c)
{
    void  *p;

    p = c->mem.base;
    kvr_prefix_detach(c);
    munmap(p, ZONE);
}


static kvr_prefix_key_t
prefix_key(const uint32_t *tokens, uint32_t n)
{
    kvr_prefix_key_t  key = { tokens, n, NULL, 0 };

    return key;
}


/* ns a lookup: the median of all. */

static double
prefix_median(uint32_t n)
{
    double  ns;

    ns = ix_percentile(times, n, 50) - (double) ix_clock_ns;

    return ns > 0 ? ns : 0;
}


static void
prefix_entries(void)
{
    size_t            n, len;
    uint32_t          i, k, miss;
    uint64_t          t;
    kvr_rc_t          rc;
    kvr_prefix_t      c;
    kvr_prefix_key_t  key;
    static uint32_t   other[ENTRY];

    prefix_open(&c);

    for (i = 0; i < ENTRIES; i++) {
        key = prefix_key(tokens[i], ENTRY);
        ix_must(kvr_prefix_put(&c, &key, &i, sizeof(i)) == KVR_OK, "put");
    }

    for (miss = 0; miss < 2; miss++) {
        for (i = 0; i < LOOKUPS * ROUNDS; i++) {
            k = (uint32_t) wl_mix(i) % ENTRIES;
            memcpy(other, tokens[k], sizeof(other));
            other[0] += miss * 32000;
            key = prefix_key(other, ENTRY);

            t = wl_now();
            rc = kvr_prefix_longest(&c, &key, false, &n, value, &len);
            times[i] = wl_now() - t;

            ix_must(miss ? rc == KVR_DECLINED
                         : rc == KVR_OK && n == ENTRY
                           && memcmp(value, &k, sizeof(k)) == 0,
                    "the longest prefix");
        }

        ix_say(miss ? "prefix: longest of 2,048 entries, miss"
                    : "prefix: longest of 2,048 entries, hit", "ns",
               prefix_median(LOOKUPS * ROUNDS));
    }

    prefix_close(&c);
}


static void
prefix_tree(void)
{
    uint32_t             i, existing;
    uint64_t             t;
    kvr_prefix_t         c;
    kvr_prefix_key_t     key;
    kvr_prefix_node_t    node;
    kvr_prefix_insert_t  how;

    prefix_open(&c);
    memset(&how, 0, sizeof(how));

    for (i = 0; i < ENTRIES; i++) {
        key = prefix_key(tokens[i], ENTRY);
        ix_must(kvr_prefix_insert(&c, &key, &how, &existing, &node)
                == KVR_OK, "insert");
    }

    for (i = 0; i < LOOKUPS * ROUNDS; i++) {
        key = prefix_key(tokens[wl_mix(i) % ENTRIES], ENTRY);

        t = wl_now();
        (void) kvr_prefix_match(&c, &key, &node, NULL);
        times[i] = wl_now() - t;

        ix_must(node.length == ENTRY, "match");
    }

    ix_say("prefix: match in 2,048 keys, hit", "ns",
           prefix_median(LOOKUPS * ROUNDS));

    prefix_close(&c);
}


static void
prefix_talk(uint32_t talk, uint32_t *tokens)
{
    uint32_t  i;

    for (i = 0; i < SYSTEM; i++) {
        tokens[i] = (uint32_t) wl_mix((talk % SYSTEMS) << 8 | i) % 32000;
    }

    for (i = SYSTEM; i < SYSTEM + TURNS * TURN; i++) {
        tokens[i] = (uint32_t) wl_mix(((uint64_t) talk + 1) << 20 | i) % 32000;
    }
}


static void
prefix_talks(void)
{
    uint32_t             i, turn, n, existing;
    uint64_t             t, all, done;
    kvr_prefix_t         c;
    kvr_prefix_key_t     key;
    kvr_prefix_node_t    node;
    kvr_prefix_stats_t   s;
    kvr_prefix_freed_t   nobody = { NULL, NULL };
    kvr_prefix_insert_t  how;
    static uint32_t      talk[SYSTEM + TURNS * TURN];

    prefix_open(&c);
    memset(&how, 0, sizeof(how));
    all = 0;

    for (turn = 1; turn <= TURNS; turn++) {
        for (i = 0; i < TALKS; i++) {
            prefix_talk(i, talk);
            n = SYSTEM + turn * TURN;
            key = prefix_key(talk, n);

            t = wl_now();
            (void) kvr_prefix_insert(&c, &key, &how, &existing, &node);
            all += wl_now() - t - ix_clock_ns;

            ix_must(node.length == n, "insert a turn");
        }
    }

    kvr_prefix_stats(&c, &s);
    ix_must(s.tokens > TALKS * TURNS * TURN && s.evicted == 0, "1 M tokens");

    ix_say("prefix: 1 M tokens in talks, insert a turn", "ns",
           (double) all / (TALKS * TURNS));
    ix_say("prefix: 1 M tokens in talks, bytes a token", "bytes",
           (double) s.used / (double) s.tokens);

    for (i = 0; i < TALKS; i++) {
        prefix_talk((uint32_t) wl_mix(i) % TALKS, talk);
        key = prefix_key(talk, SYSTEM + TURNS * TURN);

        t = wl_now();
        (void) kvr_prefix_match(&c, &key, &node, NULL);
        times[i] = wl_now() - t;

        ix_must(node.length == SYSTEM + TURNS * TURN, "match a talk");
    }

    ix_say("prefix: 1 M tokens in talks, match", "ns", prefix_median(TALKS));

    t = wl_now();
    (void) kvr_prefix_evict(&c, s.tokens / 2, &done, nobody);
    all = wl_now() - t;

    ix_must(done >= s.tokens / 2, "evict");
    ix_say("prefix: 1 M tokens in talks, evict half, a token", "ns",
           (double) all / (double) done);

    prefix_close(&c);
}
