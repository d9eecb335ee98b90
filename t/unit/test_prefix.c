/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The prefix cache's tree.  The first part has the cases of SGLang's own unit
 * tests of its RadixCache, by their names (test_radix_cache_unit.py in
 * sgl-project/sglang, 341ffe1): what they ask for, in our words.
 */


#include "prefix_fixture.h"


#define SEQUENCES    10000
#define COMMON       10000
#define SUFFIX       100


static void reset(void);
static void insert_and_match_basic(void);
static void insert_with_none_value(void);
static void total_size(void);
static void extra_key_isolation(void);
static void lock_ref_operations(void);
static void evict_functionality(void);
static void page_alignment_boundary(void);
static void pretty_print(void);
static void all_values_flatten(void);
static void advanced_prefix_match_with_node_splits(void);
static void memory_allocated(void);
static void begins(void);
static void handles(void);
static void inherited(void);
static void orders(void);
static void order_of(uint32_t policy, uint32_t first, const char *what);
static void full(void);
static void long_keys(void);
static void other_units(void);
static void items(void);
static void refusals(void);


static px_t      f;
static char      text[1 << 16];
static size_t    text_len;
static uint32_t  many[KVR_PREFIX_KEY_MAX], more[KVR_PREFIX_KEY_MAX];


int
main(void)
{
    reset();
    insert_and_match_basic();
    insert_with_none_value();
    total_size();
    extra_key_isolation();
    lock_ref_operations();
    evict_functionality();
    page_alignment_boundary();
    pretty_print();
    all_values_flatten();
    advanced_prefix_match_with_node_splits();
    memory_allocated();

    begins();
    handles();
    inherited();
    orders();
    full();
    long_keys();
    other_units();
    items();
    refusals();

    return done();
}


static bool
same(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    return memcmp(a, b, n * sizeof(uint32_t)) == 0;
}


static bool
sizes(uint64_t total, uint64_t evictable, uint64_t protected)
{
    kvr_prefix_stats_t  s;

    s = px_stats(&f);

    if (s.tokens != total || s.evictable != evictable
        || s.protected != protected)
    {
        note("total %llu, evictable %llu, protected %llu",
             (unsigned long long) s.tokens, (unsigned long long) s.evictable,
             (unsigned long long) s.protected);
        return false;
    }

    return true;
}


static void
print(void *data, const char *line, size_t len)
{
    (void) data;

    if (text_len + len + 2 < sizeof(text)) {
        memcpy(text + text_len, line, len);
        text_len += len;
        text[text_len++] = '\n';
        text[text_len] = '\0';
    }
}


/* ---- SGLang's cases ----------------------------------------------------- */

static const uint32_t  one_two_three[] = { 1, 2, 3 };
static const uint32_t  tens[] = { 10, 20, 30 };


static void
reset(void)
{
    kvr_prefix_node_t  node;
    kvr_prefix_lock_t  lock;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    px_insert(&f, one_two_three, 3, NULL, tens);
    ok(sizes(3, 3, 0), "reset: three tokens are there");

    px_match(&f, one_two_three, 3, NULL, &node, NULL);
    kvr_prefix_lock(&f.c, &node, &lock);

    ok(kvr_prefix_reset(&f.c, px_keep(&f)) == KVR_OK && sizes(0, 0, 0)
       && px_stats(&f).locks == 0 && px_sound(&f, "reset"),
       "reset: nothing is left, locked or not");
    ok(f.nfreed == 3 && same(f.freed, tens, 3),
       "reset: the values are told");
    ok(kvr_prefix_unlock(&f.c, &lock) == KVR_DECLINED,
       "reset: its lock is void");
    is_u64(px_stats(&f).used, 0, "reset: no memory is in use");

    px_close(&f);
}


static void
insert_and_match_basic(void)
{
    uint32_t  values[3];

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    ok(px_insert(&f, one_two_three, 3, NULL, tens) == 0 && sizes(3, 3, 0),
       "insert_and_match_basic: nothing was there, three tokens are");
    ok(px_match(&f, one_two_three, 3, NULL, NULL, values) == 3
       && same(values, tens, 3),
       "insert_and_match_basic: all are matched, with their values");
    ok(px_match(&f, one_two_three, 2, NULL, NULL, values) == 2
       && same(values, tens, 2),
       "insert_and_match_basic: a part is matched");

    f.c.params.disabled = 1;
    ok(px_match(&f, one_two_three, 3, NULL, NULL, values) == 0
       && px_insert(&f, many, 8, NULL, NULL) == 0 && sizes(3, 3, 0),
       "insert_and_match_basic: a disabled cache finds and stores nothing");

    px_close(&f);
}


static void
insert_with_none_value(void)
{
    uint32_t  values[3];

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    ok(px_insert(&f, one_two_three, 3, NULL, NULL) == 0 && sizes(3, 3, 0),
       "insert_with_none_value: three tokens are there");
    ok(px_match(&f, one_two_three, 3, NULL, NULL, values) == 3
       && same(values, one_two_three, 3),
       "insert_with_none_value: the tokens are the values");

    px_close(&f);
}


static void
total_size(void)
{
    static const uint32_t  four_five[] = { 4, 5 };

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    ok(sizes(0, 0, 0), "total_size: an empty cache has none");
    px_insert(&f, one_two_three, 3, NULL, tens);
    ok(sizes(3, 3, 0), "total_size: then three");
    px_insert(&f, four_five, 2, NULL, tens);
    ok(sizes(5, 5, 0), "total_size: then five");
    px_insert(&f, four_five, 2, NULL, tens);
    ok(sizes(5, 5, 0), "total_size: what is there is not counted again");

    px_close(&f);
}


static void
extra_key_isolation(void)
{
    uint32_t     k, values[3];
    bool         good;
    static const uint32_t  sets[3][3] = {
        { 10, 20, 30 }, { 40, 50, 60 }, { 70, 80, 90 }
    };
    static const char     *extras[] = { "key1", "key2", NULL };

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    for (k = 0; k < 3; k++) {
        px_insert(&f, one_two_three, 3, extras[k], sets[k]);
    }

    for (good = true, k = 0; k < 3; k++) {
        good = good && px_match(&f, one_two_three, 3, extras[k], NULL,
                                values) == 3
               && same(values, sets[k], 3);
    }

    ok(good, "extra_key_isolation: each key has its own values");
    is_u64(px_match(&f, one_two_three, 3, "nonexistent", NULL, NULL), 0,
           "extra_key_isolation: another key matches nothing");
    ok(px_stats(&f).namespaces == 3 && px_sound(&f, "extra keys"),
       "extra_key_isolation: there are three namespaces");

    px_close(&f);
}


static void
lock_ref_operations(void)
{
    kvr_prefix_node_t  node;
    kvr_prefix_lock_t  lock;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    px_insert(&f, one_two_three, 3, NULL, tens);
    px_match(&f, one_two_three, 3, NULL, &node, NULL);

    ok(kvr_prefix_lock(&f.c, &node, &lock) == KVR_OK && sizes(3, 0, 3)
       && px_sound(&f, "locked"),
       "lock_ref_operations: locked tokens are protected");
    is_u64(px_evict(&f, 3), 0, "lock_ref_operations: and are not evicted");
    ok(kvr_prefix_unlock(&f.c, &lock) == KVR_OK && sizes(3, 3, 0)
       && px_sound(&f, "unlocked"),
       "lock_ref_operations: unlocked ones are evictable again");
    ok(kvr_prefix_unlock(&f.c, &lock) == KVR_DECLINED,
       "lock_ref_operations: a lock is given back once");

    px_close(&f);
}


static void
evict_functionality(void)
{
    uint32_t  keys[2][2] = { { 1, 2 }, { 3, 4 } };
    uint32_t  values[2][2] = { { 10, 20 }, { 30, 40 } };

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    px_insert(&f, keys[0], 2, NULL, values[0]);
    px_insert(&f, keys[1], 2, NULL, values[1]);

    ok(px_evict(&f, 2) == 2 && sizes(2, 2, 0),
       "evict_functionality: two tokens are evicted");
    ok(f.nfreed == 2 && same(f.freed, values[0], 2),
       "evict_functionality: the older ones, whose values are told");

    px_close(&f);
}


static void
page_alignment_boundary(void)
{
    uint32_t     i, k;
    static const uint32_t  cases[3][3] = {
        { 1, 5, 5 }, { 2, 5, 4 }, { 4, 6, 4 }
    };
    static const uint32_t  tokens[] = { 0, 1, 2, 3, 4, 5 };

    for (i = 0; i < 3; i++) {
        px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, cases[i][0], KVR_PREFIX_LRU);

        px_insert(&f, tokens, cases[i][1], NULL, NULL);
        k = px_match(&f, tokens, cases[i][1], NULL, NULL, NULL);

        is_u64(k, cases[i][2], "page_alignment_boundary: pages of %u: %u of "
               "%u tokens match", cases[i][0], cases[i][2], cases[i][1]);

        px_close(&f);
    }
}


static void
pretty_print(void)
{
    uint32_t           other[] = { 1, 2, 9, 10, 11, 12, 13, 14, 15, 16, 17 };
    kvr_prefix_node_t  node;
    kvr_prefix_lock_t  lock;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    px_insert(&f, one_two_three, 3, NULL, tens);
    px_insert(&f, other, 11, NULL, NULL);
    px_insert(&f, one_two_three, 3, "a \"b\"", NULL);
    px_match(&f, one_two_three, 3, NULL, &node, NULL);
    kvr_prefix_lock(&f.c, &node, &lock);

    text_len = 0;
    ok(kvr_prefix_dump(&f.c, 100, print, NULL) == KVR_OK
       && strcmp(text, "tree \"a \\x22b\\x22\"\n"
                       "  3: 1 2 3\n"
                       "tree \"\"\n"
                       "  2: 1 2 locks=1\n"
                       "    9: 9 10 11 12 13 14 15 16 17\n"
                       "    1: 3 locks=1\n") == 0,
       "pretty_print: the tree is shown, indented, with its locks");

    text_len = 0;
    kvr_prefix_dump(&f.c, 2, print, NULL);
    ok(strcmp(text, "tree \"a \\x22b\\x22\"\n"
                    "  3: 1 2 3\n"
                    "more nodes are not shown: the first 2 are\n") == 0,
       "pretty_print: and no more of it than is asked for");

    px_close(&f);
}


static int
by_number(const void *a, const void *b)
{
    return (int) *(const uint32_t *) a - (int) *(const uint32_t *) b;
}


static void
all_values_flatten(void)
{
    uint32_t     keys[2][2] = { { 1, 2 }, { 3, 4 } };
    static const uint32_t  values[] = { 10, 20, 30, 40 };

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    px_insert(&f, keys[0], 2, NULL, values);
    px_insert(&f, keys[1], 2, NULL, values + 2);

    kvr_prefix_values(&f.c, px_keep(&f));
    qsort(f.freed, f.nfreed, sizeof(uint32_t), by_number);

    ok(f.nfreed == 4 && same(f.freed, values, 4) && sizes(4, 4, 0),
       "all_values_flatten: all values are told, and stay");

    px_close(&f);
}


static void
advanced_prefix_match_with_node_splits(void)
{
    uint32_t     i, page, v[8], nodes;
    static const uint32_t  seq1[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    static const uint32_t  val1[] = { 10, 20, 30, 40, 50, 60, 70, 80 };
    static const uint32_t  seq2[] = { 1, 2, 9, 10 };
    static const uint32_t  val2[] = { 10, 20, 90, 100 };
    static const uint32_t  query1[] = { 1, 2, 3, 4, 999, 1000 };
    static const uint32_t  query2[] = { 1, 2, 3, 4, 5, 6, 777, 888 };

    for (page = 1; page <= 2; page++) {
        px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, page, KVR_PREFIX_LRU);

        px_insert(&f, seq1, 8, NULL, val1);
        i = px_insert(&f, seq2, 4, NULL, val2);
        nodes = (uint32_t) px_stats(&f).nodes;

        ok(i == 2 && sizes(10, 10, 0) && nodes == 3,
           "advanced_prefix_match_with_node_splits: pages of %u: 10 tokens "
           "in three nodes", page);

        ok(px_match(&f, query1, 6, NULL, NULL, v) == 4 && same(v, val1, 4)
           && px_match(&f, seq1, 8, NULL, NULL, v) == 8 && same(v, val1, 8)
           && px_match(&f, query2, 8, NULL, NULL, v) == 6 && same(v, val1, 6)
           && px_match(&f, seq2, 4, NULL, NULL, v) == 4 && same(v, val2, 4),
           "advanced_prefix_match_with_node_splits: pages of %u: each query "
           "has its values", page);
        ok(sizes(10, 10, 0) && px_stats(&f).nodes == nodes
           && px_sound(&f, "splits"),
           "advanced_prefix_match_with_node_splits: pages of %u: a match "
           "does not change the tree", page);

        px_close(&f);
    }
}


static void
memory_allocated(void)
{
    bool                good;
    uint32_t            i, k;
    uint64_t            seed;
    kvr_prefix_stats_t  s;

    px_open(&f, 64 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    seed = 7;
    good = true;

    for (i = 0; i < COMMON; i++) {
        many[i] = 1 + fx_below(&seed, 1000);
    }

    for (k = 0; k < SEQUENCES; k++) {
        for (i = 0; i < SUFFIX; i++) {
            many[COMMON + i] = 1 + fx_below(&seed, 1000);
        }

        many[COMMON] = 2000 + k;
        good = good && px_insert(&f, many, COMMON + SUFFIX, NULL, many)
                       == (k ? COMMON : 0);
    }

    s = px_stats(&f);

    ok(good && s.tokens == COMMON + SEQUENCES * SUFFIX
       && px_sound(&f, "many sequences"),
       "memory_allocated: 10,000 sequences share a prefix of 10,000 tokens");
    ok(s.used < 2 * s.tokens * 2 * sizeof(uint32_t),
       "memory_allocated: memory is below twice that of tokens and values: "
       "%llu bytes of %llu", (unsigned long long) s.used,
       (unsigned long long) s.tokens * 8);
    is_u64(s.evicted, 0, "memory_allocated: none was evicted");

    px_close(&f);
}


/* ---- what SGLang's tests don't ask for ---------------------------------- */

static void
begins(void)
{
    uint32_t           values[3];
    kvr_prefix_key_t   key;
    kvr_prefix_node_t  node;
    kvr_prefix_lock_t  lock;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);
    px_insert(&f, one_two_three, 3, NULL, tens);

    key = px_key(one_two_three, 3, NULL);

    ok(kvr_prefix_begin(&f.c, &key, &node, &lock, values) == KVR_OK
       && node.length == 2 && same(values, tens, 2),
       "a request that begins leaves its last token to be computed");
    ok(sizes(3, 1, 2) && px_sound(&f, "begun"),
       "what it found is protected, and no more than that");
    ok(px_evict(&f, 3) == 1 && sizes(2, 0, 2)
       && px_match(&f, one_two_three, 3, NULL, NULL, NULL) == 2,
       "the rest can be evicted");
    ok(kvr_prefix_unlock(&f.c, &lock) == KVR_OK && sizes(2, 2, 0)
       && px_sound(&f, "ended"), "it ends: all can");

    key = px_key(one_two_three, 1, NULL);
    ok(kvr_prefix_begin(&f.c, &key, &node, &lock, NULL) == KVR_OK
       && node.length == 0 && lock.id == 0
       && kvr_prefix_unlock(&f.c, &lock) == KVR_OK,
       "one that finds nothing has nothing to give back");

    px_close(&f);
}


static void
handles(void)
{
    uint32_t             existing;
    uint32_t             longer[] = { 1, 2, 3, 4, 5, 6 };
    kvr_prefix_key_t     key;
    kvr_prefix_node_t    node, end, forged;
    kvr_prefix_lock_t    lock;
    kvr_prefix_insert_t  how;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);
    px_insert(&f, longer, 4, NULL, NULL);
    px_match(&f, longer, 4, NULL, &node, NULL);

    memset(&how, 0, sizeof(how));
    how.from = &node;
    key = px_key(longer, 6, NULL);

    ok(kvr_prefix_insert(&f.c, &key, &how, &existing, &end) == KVR_OK
       && existing == 4 && end.length == 6 && sizes(6, 6, 0)
       && px_sound(&f, "from a node"),
       "an insertion goes on from a node that was matched");

    px_insert(&f, one_two_three, 2, NULL, NULL);
    longer[2] = 77;
    px_insert(&f, longer, 6, NULL, NULL);
    ok(kvr_prefix_lock(&f.c, &node, &lock) == KVR_OK && sizes(10, 6, 4)
       && px_sound(&f, "split"),
       "a node that was split since then is still good for its length");
    kvr_prefix_unlock(&f.c, &lock);

    px_evict(&f, 10);
    ok(kvr_prefix_lock(&f.c, &node, &lock) == KVR_DECLINED
       && kvr_prefix_insert(&f.c, &key, &how, &existing, &end)
          == KVR_DECLINED
       && px_stats(&f).stale == 2 && sizes(0, 0, 0),
       "one that was evicted is refused, and counted");

    px_insert(&f, longer, 6, NULL, NULL);
    ok(kvr_prefix_lock(&f.c, &node, &lock) == KVR_DECLINED,
       "also when another node has its place");

    px_match(&f, longer, 6, NULL, &node, NULL);
    forged = node;
    forged.node = UINT32_MAX;
    ok(kvr_prefix_lock(&f.c, &forged, &lock) == KVR_DECLINED,
       "so is a place that is none");
    forged.node = node.node + 8;
    ok(kvr_prefix_lock(&f.c, &forged, &lock) == KVR_DECLINED,
       "and a place inside of a node");
    forged = node;
    forged.length = 7;
    ok(kvr_prefix_lock(&f.c, &forged, &lock) == KVR_DECLINED
       && px_sound(&f, "handles"), "and a length beyond the node");

    px_close(&f);
}


static void
inherited(void)
{
    uint32_t           branch[] = { 1, 9, 9 };
    kvr_prefix_node_t  node;
    kvr_prefix_lock_t  a, b;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);
    px_insert(&f, one_two_three, 3, NULL, NULL);
    px_match(&f, one_two_three, 3, NULL, &node, NULL);
    kvr_prefix_lock(&f.c, &node, &a);
    kvr_prefix_lock(&f.c, &node, &b);

    px_insert(&f, branch, 3, NULL, NULL);
    ok(sizes(5, 2, 3) && px_sound(&f, "inherited"),
       "both halves of a split are locked as the whole was");
    ok(px_evict(&f, 5) == 2 && sizes(3, 0, 3), "only the branch is evicted");

    kvr_prefix_unlock(&f.c, &a);
    ok(sizes(3, 0, 3) && px_sound(&f, "one lock"), "one lock is enough");
    kvr_prefix_unlock(&f.c, &b);
    ok(sizes(3, 3, 0) && px_evict(&f, 1) == 2 && sizes(1, 1, 0)
       && px_evict(&f, 1) == 1 && px_stats(&f).used == 0,
       "then leaves are evicted, and their parents follow");

    px_close(&f);
}


/* Keys 10, 20, 30, 40 of two tokens; 20 is used twice, then 30 once. */

static void
order_of(uint32_t policy, uint32_t first, const char *what)
{
    uint32_t             i, k, existing, key[2], order[4];
    kvr_prefix_key_t     whole;
    kvr_prefix_node_t    node;
    kvr_prefix_insert_t  how;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, policy);

    for (i = 1; i <= 4; i++) {
        key[0] = i * 10;
        key[1] = i;

        memset(&how, 0, sizeof(how));
        how.priority = 100 - i;
        whole = px_key(key, 2, NULL);
        kvr_prefix_insert(&f.c, &whole, &how, &existing, &node);
    }

    for (i = 0; i < 3; i++) {
        key[0] = i < 2 ? 20 : 30;
        key[1] = key[0] / 10;
        px_match(&f, key, 2, NULL, NULL, NULL);
    }

    for (i = 0; i < 4; i++) {
        px_evict(&f, 1);
        order[i] = f.freed[0];
    }

    for (k = 0, i = 0; i < 4; i++) {
        k = k * 10 + order[i] / 10;
    }

    is_u64(k, first, "%s", what);
    ok(px_stats(&f).used == 0 && px_sound(&f, what), "%s: all are gone",
       what);

    px_close(&f);
}


static void
orders(void)
{
    order_of(KVR_PREFIX_LRU, 1423, "lru: the least recently used go first");
    order_of(KVR_PREFIX_LFU, 1432, "lfu: the least often used go first");
    order_of(KVR_PREFIX_FIFO, 1234, "fifo: the first inserted go first");
    order_of(KVR_PREFIX_MRU, 3241, "mru: the most recently used go first");
    order_of(KVR_PREFIX_PRIORITY, 4321, "priority: the lowest go first");
}


static void
full(void)
{
    bool                 good;
    uint32_t             i, existing;
    uint64_t             seed;
    kvr_rc_t             rc;
    kvr_prefix_key_t     key;
    kvr_prefix_node_t    node;
    kvr_prefix_lock_t    lock;
    kvr_prefix_stats_t   s;
    kvr_prefix_insert_t  how;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    seed = 11;
    memset(&how, 0, sizeof(how));
    key = px_key(many, 5000, NULL);

    for (good = true, i = 0; i < 400; i++) {
        many[0] = i;
        many[1 + i] = (uint32_t) fx_random(&seed);
        how.freed = px_keep(&f);
        rc = kvr_prefix_insert(&f.c, &key, &how, &existing, &node);
        good = good && rc == KVR_OK && node.length == 5000;
    }

    s = px_stats(&f);
    ok(good && s.evicted && s.tokens + s.evicted == s.inserted
       && px_sound(&f, "full"),
       "a full zone evicts, and takes what is inserted");
    ok(f.nfreed > 0, "the values of what had to go are told");
    is_u64(px_match(&f, many, 5000, NULL, &node, NULL), 5000,
           "the newest key is there");

    ok(kvr_prefix_lock(&f.c, &node, &lock) == KVR_OK, "it is locked");

    key = px_key(more, KVR_PREFIX_KEY_MAX, "big");
    rc = kvr_prefix_insert(&f.c, &key, &how, &existing, &node);
    ok(rc == KVR_FULL && node.length > 0 && node.length < KVR_PREFIX_KEY_MAX
       && px_match(&f, more, KVR_PREFIX_KEY_MAX, "big", NULL, NULL)
          == node.length
       && px_stats(&f).full == 1 && px_sound(&f, "too big"),
       "of a key that is larger than the zone a prefix stays: %u tokens",
       node.length);
    is_u64(px_match(&f, many, 5000, NULL, NULL, NULL), 5000,
           "what is locked stays, too");
    kvr_prefix_unlock(&f.c, &lock);

    f.c.params.refuse = 1;
    s = px_stats(&f);
    rc = kvr_prefix_insert(&f.c, &key, &how, &existing, &node);
    ok(rc == KVR_FULL && px_stats(&f).evicted == s.evicted
       && px_stats(&f).full == 2 && px_sound(&f, "refused"),
       "a zone that must not evict refuses, and counts that");

    px_close(&f);
}


static void
long_keys(void)
{
    bool                 good;
    uint32_t             i, n;
    uint32_t             chain[2];
    kvr_prefix_key_t     key;
    kvr_prefix_node_t    node;
    kvr_prefix_lock_t    lock;

    px_open(&f, 32 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    for (i = 0; i < KVR_PREFIX_KEY_MAX; i++) {
        many[i] = i;
    }

    is_u64(px_insert(&f, many, KVR_PREFIX_KEY_MAX, NULL, NULL), 0,
           "a key of 2^20 tokens is inserted");
    ok(px_match(&f, many, KVR_PREFIX_KEY_MAX, NULL, &node, more)
       == KVR_PREFIX_KEY_MAX && same(many, more, KVR_PREFIX_KEY_MAX),
       "and found, with its values");
    ok(kvr_prefix_lock(&f.c, &node, &lock) == KVR_OK
       && sizes(KVR_PREFIX_KEY_MAX, 0, KVR_PREFIX_KEY_MAX)
       && kvr_prefix_unlock(&f.c, &lock) == KVR_OK
       && sizes(KVR_PREFIX_KEY_MAX, KVR_PREFIX_KEY_MAX, 0),
       "locked, and unlocked");
    ok(px_stats(&f).nodes == 1024 && px_stats(&f).deep == 0
       && px_sound(&f, "long"), "in 1024 nodes");
    note("longest slice: %llu us",
         (unsigned long long) px_stats(&f).longest_slice);
    is_u64(px_evict(&f, 1), 1024, "the end of it goes first");

    kvr_prefix_reset(&f.c, (kvr_prefix_freed_t) { NULL, NULL });

    /* a branch at each token: more nodes below each other than are followed */

    good = true;

    for (n = 1; n <= KVR_PREFIX_HOPS + 10; n++) {
        chain[0] = many[n];
        many[n] = UINT32_MAX;
        good = good && px_insert(&f, many, n + 1, NULL, NULL) != UINT32_MAX;
        many[n] = chain[0];
        good = good && px_insert(&f, many, n + 1, NULL, NULL) != UINT32_MAX;
    }

    ok(good && px_match(&f, many, KVR_PREFIX_KEY_MAX, NULL, &node, NULL)
       == KVR_PREFIX_HOPS && px_stats(&f).deep > 0 && px_sound(&f, "deep"),
       "of a way of more nodes than are followed the first ones are told, "
       "and that is counted");

    key = px_key(many, KVR_PREFIX_KEY_MAX, NULL);
    ok(kvr_prefix_begin(&f.c, &key, &node, &lock, NULL) == KVR_OK
       && node.length == KVR_PREFIX_HOPS && px_sound(&f, "deep lock")
       && kvr_prefix_unlock(&f.c, &lock) == KVR_OK
       && px_sound(&f, "deep unlock"), "these can be locked");

    px_close(&f);
}


static void
other_units(void)
{
    uint32_t  values[32];
    uint64_t  hashes[] = { UINT64_C(1) << 40 | 5, 6, 7, UINT64_MAX };

    px_open(&f, 2 << 20, KVR_PREFIX_HASHES, 2, KVR_PREFIX_LRU);
    px_insert(&f, hashes, 4, NULL, NULL);
    hashes[3] = 8;
    px_insert(&f, hashes, 4, NULL, NULL);
    ok(px_match(&f, hashes, 4, NULL, NULL, values) == 4 && values[0] == 5
       && values[3] == 8 && sizes(6, 6, 0) && px_sound(&f, "hashes"),
       "keys of hashes: pages of two are shared");
    px_close(&f);

    px_open(&f, 2 << 20, KVR_PREFIX_BYTES, 1, KVR_PREFIX_LRU);
    px_insert(&f, "You are a helpful assistant.", 28, NULL, NULL);
    px_insert(&f, "You are a pirate.", 17, NULL, NULL);
    ok(px_match(&f, "You are a hat.", 14, NULL, NULL, values) == 11
       && values[0] == 'Y' && sizes(35, 35, 0) && px_sound(&f, "bytes"),
       "keys of bytes: the common beginning is shared");

    text_len = 0;
    kvr_prefix_dump(&f.c, 2, print, NULL);
    ok(strstr(text, "  10: Y o u 20 a r e 20 ... 20\n") != NULL,
       "and printed as characters");
    px_close(&f);
}


static void
items(void)
{
    uint32_t  a[6] = { 5 }, b[6] = { 5 };

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    kvr_prefix_item(1234, a + 1, 5);
    kvr_prefix_item(1235, b + 1, 5);
    px_insert(&f, a, 6, NULL, NULL);

    is_u64(px_match(&f, a, 6, NULL, NULL, NULL), 6, "an item matches itself");
    is_u64(px_match(&f, b, 6, NULL, NULL, NULL), 1,
           "and not an item with another hash");
    ok(a[1] >> 31 && a[5] >> 31 && a[1] != a[2],
       "its units are no tokens, and differ");

    px_close(&f);
}


static void
refusals(void)
{
    char                 why[KVR_PREFIX_WHY], extra[KVR_PREFIX_EXTRA_MAX + 1];
    uint32_t             existing;
    kvr_prefix_t         c;
    kvr_prefix_key_t     key;
    kvr_prefix_node_t    node;
    kvr_prefix_insert_t  how;
    kvr_prefix_params_t  params;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 4, KVR_PREFIX_LRU);

    key = px_key(many, KVR_PREFIX_KEY_MAX + 1, NULL);
    ok(kvr_prefix_match(&f.c, &key, &node, NULL) == KVR_INVALID,
       "a key that is too long is refused");

    memset(extra, 'x', sizeof(extra));
    key.n = 4;
    key.extra = extra;
    key.extra_len = sizeof(extra);
    ok(kvr_prefix_match(&f.c, &key, &node, NULL) == KVR_INVALID,
       "so is an extra key");

    key.extra_len = 0;
    memset(&how, 0, sizeof(how));
    how.priority = KVR_PREFIX_LEVELS;
    ok(kvr_prefix_insert(&f.c, &key, &how, &existing, &node) == KVR_INVALID,
       "and a priority above 255");

    params = f.params;
    params.page_size = 8;
    ok(kvr_prefix_attach(&c, f.base, f.size, &params, why) == KVR_INVALID
       && strstr(why, "page_size=4") && strstr(why, "page_size=8"),
       "a zone of another page size is not opened, and both are named");

    params.page_size = 0;
    ok(kvr_prefix_format(f.base, f.size, &params, why) == KVR_INVALID
       && strstr(why, "1..512"), "pages of nothing are refused");
    params.page_size = 1;
    ok(kvr_prefix_format(f.base, 4096, &params, why) == KVR_INVALID
       && strstr(why, "1 MiB"), "so is a zone that is too small");

    memset(f.base, 0, 64);
    ok(kvr_prefix_attach(&c, f.base, f.size, &f.params, why) == KVR_INVALID
       && strstr(why, "no prefix cache"),
       "memory that holds no zone is not opened");

    px_close(&f);
}
