/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Entries of the prefix cache: keys that are stored with values, and the
 * longest of them that a key begins with.
 */


#include "prefix_fixture.h"


#ifdef __SANITIZE_ADDRESS__
#define OPERATIONS   4000
#else
#define OPERATIONS   20000
#endif

#define KEYS         64


static bool put(const char *key, const char *value);
static const char *get(const char *key);
static const char *longest(const char *key, bool strict);
static void basics(void);
static void oldest(void);
static void full(void);
static void chains(void);
static void model(void);


static px_t      f;
static char      value_[KVR_PREFIX_VALUE_MAX + 1];
static uint32_t  many[KVR_PREFIX_ENTRY_MAX + 1];


int
main(void)
{
    basics();
    oldest();
    full();
    chains();
    model();

    return done();
}


static bool
put(const char *key, const char *value)
{
    kvr_prefix_key_t  k;

    k = px_key(key, strlen(key), NULL);

    return kvr_prefix_put(&f.c, &k, value, strlen(value)) == KVR_OK;
}


static const char *
get(const char *key)
{
    size_t            len;
    kvr_prefix_key_t  k;

    k = px_key(key, strlen(key), NULL);

    if (kvr_prefix_get(&f.c, &k, value_, &len) != KVR_OK) {
        return "";
    }

    value_[len] = '\0';

    return value_;
}


static const char *
longest(const char *key, bool strict)
{
    size_t            n, len;
    kvr_prefix_key_t  k;
    static char       text[128];

    k = px_key(key, strlen(key), NULL);

    if (kvr_prefix_longest(&f.c, &k, strict, &n, value_, &len) != KVR_OK) {
        return "";
    }

    value_[len] = '\0';
    snprintf(text, sizeof(text), "%zu=%.64s", n, value_);

    return text;
}


static void
basics(void)
{
    size_t            n, len;
    kvr_prefix_key_t  key;

    px_open(&f, 2 << 20, KVR_PREFIX_BYTES, 4, KVR_PREFIX_LRU);

    ok(put("abc", "three") && put("abcde", "five") && put("ab", "two")
       && put("xyz", ""), "four entries are stored, split by each other");
    ok(strcmp(get("abc"), "three") == 0 && strcmp(get("ab"), "two") == 0
       && strcmp(get("abcde"), "five") == 0, "each has its value");
    ok(strcmp(get("abcd"), "") == 0 && strcmp(get("a"), "") == 0,
       "a part of a key is no key");
    ok(strcmp(longest("abcd", false), "3=three") == 0
       && strcmp(longest("abcdefgh", false), "5=five") == 0
       && strcmp(longest("abc", false), "3=three") == 0,
       "the longest stored prefix is found, the key itself as well");
    ok(strcmp(longest("abc", true), "2=two") == 0
       && strcmp(longest("abcdefgh", true), "5=five") == 0
       && strcmp(longest("ab", true), "") == 0,
       "with strict only a shorter one");
    ok(strcmp(longest("zzz", false), "") == 0, "or none");
    ok(strcmp(longest("xyz!", false), "3=") == 0, "a value may be empty");

    put("abc", "another one, which is longer");
    ok(strcmp(get("abc"), "another one, which is longer") == 0
       && px_stats(&f).entries == 4, "a value can be replaced");

    ok(px_insert(&f, "abcd", 4, NULL, NULL) == 0
       && px_match(&f, "abcdefgh", 8, NULL, NULL, NULL) == 4
       && strcmp(longest("abcd", false), "3=another one, which is longer")
          == 0,
       "the tree has the same keys, and nothing in common with entries");

    key = px_key("abc", 3, "tenant");
    ok(kvr_prefix_put(&f.c, &key, "its own", 7) == KVR_OK
       && kvr_prefix_longest(&f.c, &key, false, &n, value_, &len) == KVR_OK
       && len == 7 && strcmp(get("abc"), "its own") != 0,
       "an extra key has entries of its own");

    key = px_key("abc", 3, NULL);
    ok(kvr_prefix_delete(&f.c, &key) == KVR_OK
       && kvr_prefix_delete(&f.c, &key) == KVR_DECLINED
       && strcmp(longest("abcd", false), "2=two") == 0
       && px_sound(&f, "deleted"),
       "a deleted entry is gone, those around it are not");

    px_evict(&f, UINT64_MAX);
    ok(px_stats(&f).entries == 4 && px_stats(&f).tokens == 0,
       "tokens that are evicted take no entry with them");

    ok(kvr_prefix_clear(&f.c) == KVR_OK && px_stats(&f).entries == 0
       && px_stats(&f).used == 0 && px_sound(&f, "cleared"),
       "cleared: no memory is in use");

    key.n = 0;
    ok(kvr_prefix_put(&f.c, &key, "", 0) == KVR_INVALID,
       "an empty key is refused");
    ok(kvr_prefix_longest(&f.c, &key, true, &n, value_, &len)
       == KVR_DECLINED, "and begins with none");
    key = px_key(many, KVR_PREFIX_ENTRY_MAX + 1, NULL);
    ok(kvr_prefix_put(&f.c, &key, "", 0) == KVR_INVALID,
       "so is a key that is too long");
    key.n = 4;
    ok(kvr_prefix_put(&f.c, &key, many, KVR_PREFIX_VALUE_MAX + 1)
       == KVR_INVALID
       && kvr_prefix_put(&f.c, &key, many, KVR_PREFIX_VALUE_MAX) == KVR_OK,
       "a value of 64 KiB is taken, and no longer one");

    f.c.params.disabled = 1;
    ok(kvr_prefix_get(&f.c, &key, value_, &len) == KVR_DECLINED
       && put("b", "c") && strcmp(get("b"), "") == 0,
       "a disabled cache stores and finds none");

    px_close(&f);
}


static void
oldest(void)
{
    px_open(&f, 2 << 20, KVR_PREFIX_BYTES, 1, KVR_PREFIX_LRU);

    f.c.params.max_entries = 3;

    put("aa", "1");
    put("aab", "2");
    put("aac", "3");
    get("aa");
    longest("aabz", false);
    put("d", "4");

    ok(px_stats(&f).entries == 3 && px_stats(&f).entries_evicted == 1
       && strcmp(get("aac"), "") == 0 && px_sound(&f, "bounded"),
       "of more entries than max_entries the least recently used one goes");
    ok(strcmp(get("aa"), "1") == 0 && strcmp(get("aab"), "2") == 0,
       "found by get or as a prefix: both are uses");
    put("d", "5");
    ok(px_stats(&f).entries == 3 && strcmp(get("d"), "5") == 0,
       "an entry that is replaced takes no other one's place");

    px_close(&f);
}


static void
full(void)
{
    bool              good;
    char              text[32];
    uint32_t          i;
    kvr_prefix_key_t  key;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    for (good = true, i = 0; i < 1000; i++) {
        many[0] = i;
        key = px_key(many, 1000, NULL);
        snprintf(text, sizeof(text), "%u", i);
        good = good && kvr_prefix_put(&f.c, &key, text, strlen(text))
                       == KVR_OK;
    }

    ok(good && px_stats(&f).entries < 1000
       && px_stats(&f).entries + px_stats(&f).entries_evicted == 1000
       && px_sound(&f, "full"), "a full zone drops the oldest entries");

    ok(px_insert(&f, many, KVR_PREFIX_ENTRY_MAX, "tree", NULL) == 0
       && px_sound(&f, "both"), "also for the tree, which has nothing else");

    f.c.params.refuse = 1;

    for (i = 0; good && i < 10000; i++) {
        many[0] = 5000 + i;
        good = kvr_prefix_put(&f.c, &key, "x", 1) == KVR_OK;
    }

    ok(!good && px_stats(&f).full == 1 && px_sound(&f, "refused"),
       "one that must not evict refuses, and counts that");

    px_close(&f);
}


/* An entry at each length of a key, deleted from the shortest on: the last has
 * all nodes to remove. */

static void
chains(void)
{
    bool              good;
    uint32_t          n;
    kvr_prefix_key_t  key;

    px_open(&f, 8 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    for (good = true, n = 1; n <= KVR_PREFIX_HOPS; n++) {
        key = px_key(many, n, NULL);
        good = good && kvr_prefix_put(&f.c, &key, &n, sizeof(n)) == KVR_OK;
    }

    key = px_key(many, n, NULL);
    ok(good && kvr_prefix_put(&f.c, &key, "", 0) == KVR_INVALID
       && px_stats(&f).deep == 1 && px_stats(&f).entries == KVR_PREFIX_HOPS
       && px_sound(&f, "a chain"),
       "entries at each of 2,048 lengths of a key, and no more");

    for (n = 1; n <= KVR_PREFIX_HOPS; n++) {
        key = px_key(many, n, NULL);
        good = good && kvr_prefix_delete(&f.c, &key) == KVR_OK;
    }

    kvr_prefix_clear(&f.c);

    ok(good && px_stats(&f).used == 0 && px_sound(&f, "no chain"),
       "deleted from the shortest on, they leave nothing");

    px_close(&f);
}


/* ---- against a list ----------------------------------------------------- */

typedef struct {
    uint32_t  n;                        /* 0: not there */
    uint32_t  used;
    char      key[16];
    char      value[16];
} entry_t;


static void
model(void)
{
    bool               good, strict;
    char               key[16];
    size_t             len, n;
    uint32_t           i, k, at, old, best, now, bound;
    uint64_t           seed;
    kvr_rc_t           rc;
    kvr_prefix_key_t   whole;
    static entry_t     list[KEYS];

    px_open(&f, 2 << 20, KVR_PREFIX_BYTES, 1, KVR_PREFIX_LRU);

    seed = 5;
    bound = 24;
    f.c.params.max_entries = bound;
    now = 0;

    for (good = true, i = 0; good && i < OPERATIONS; i++) {

        n = 1 + fx_below(&seed, 10);

        for (k = 0; k < n; k++) {
            key[k] = (char) ('a' + fx_below(&seed, 2));
        }

        whole = px_key(key, n, NULL);

        for (at = 0; at < KEYS; at++) {
            if (list[at].n == n && memcmp(list[at].key, key, n) == 0) {
                break;
            }
        }

        switch (fx_below(&seed, 4)) {

        case 0:
            if (at == KEYS) {
                for (old = KEYS, best = 0, k = 0; k < KEYS; k++) {
                    best += list[k].n != 0;
                    at = list[k].n ? at : k;

                    if (list[k].n && (old == KEYS
                                      || list[k].used < list[old].used))
                    {
                        old = k;
                    }
                }

                if (best == bound) {
                    list[old].n = 0;
                }
            }

            list[at].n = (uint32_t) n;
            list[at].used = ++now;
            memcpy(list[at].key, key, n);
            snprintf(list[at].value, sizeof(list[at].value), "%u", i);

            good = kvr_prefix_put(&f.c, &whole, list[at].value,
                                  strlen(list[at].value)) == KVR_OK;
            break;

        case 1:
            rc = kvr_prefix_delete(&f.c, &whole);
            good = rc == (at < KEYS ? KVR_OK : KVR_DECLINED);

            if (at < KEYS) {
                list[at].n = 0;
            }

            break;

        default:
            strict = fx_below(&seed, 2);

            for (best = KEYS, k = 0; k < KEYS; k++) {
                if (list[k].n && list[k].n <= n - strict
                    && memcmp(list[k].key, key, list[k].n) == 0
                    && (best == KEYS || list[k].n > list[best].n))
                {
                    best = k;
                }
            }

            rc = kvr_prefix_longest(&f.c, &whole, strict, &n, value_, &len);
            good = rc == (best < KEYS ? KVR_OK : KVR_DECLINED);

            if (good && best < KEYS) {
                list[best].used = ++now;
                good = n == list[best].n && len == strlen(list[best].value)
                       && memcmp(value_, list[best].value, len) == 0;
            }
        }

        good = good && (i % 4 || px_sound(&f, "an operation"));
    }

    ok(good, "%u operations, and each answer is the list's", i);

    kvr_prefix_clear(&f.c);
    is_u64(px_stats(&f).used, 0, "in the end nothing is left");

    px_close(&f);
}
