/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The prefix cache against a list of all prefixes that it holds, one by one.
 *
 *     test_prefix_model [operations [seed]]
 */


#include "prefix_fixture.h"


#ifdef __SANITIZE_ADDRESS__
#define OPERATIONS   1500               /* of each policy and page size */
#else
#define OPERATIONS   6000
#endif

#define TOKENS       3                  /* there are, so that keys meet */
#define LONGEST      24
#define PREFIXES     4096
#define LOCKS        16
#define SPACES       3


/* The first len tokens of a key, and what belongs to the last of them. */
typedef struct {
    uint32_t  space, len, value, locks;
    uint32_t  tokens[LONGEST];
} prefix_t;


typedef struct {
    uint32_t           space, len;
    uint32_t           tokens[LONGEST];
    kvr_prefix_lock_t  lock;
} held_t;


static void random_key(uint32_t *space, uint32_t *tokens, uint32_t *len);
static prefix_t *find(uint32_t space, const uint32_t *tokens, uint32_t len);
static uint32_t longest(uint32_t space, const uint32_t *tokens, uint32_t n);
static bool insert(void);
static bool match(void);
static bool lock(void);
static bool unlock(void);
static bool evict(void);
static bool gone(void);
static bool counts(void);
static void run(uint32_t policy, uint32_t page, uint32_t operations);


static px_t         f;
static prefix_t     prefixes[PREFIXES];
static held_t       held[LOCKS];
static uint32_t     nprefixes, nheld, page_size, values, space_, len_;
static uint32_t     tokens_[LONGEST];
static uint64_t     seed, evictions, splits, refused;

static const char  *spaces[SPACES] = { NULL, "a", "b" };


int
main(int argc, char **argv)
{
    uint32_t  policy, page, operations;

    operations = argc > 1 ? strtoul(argv[1], NULL, 0) : OPERATIONS;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261122;

    for (policy = 0; policy < KVR_PREFIX_POLICIES; policy++) {
        for (page = 1; page <= 3; page++) {
            run(policy, page, operations);
        }
    }

    ok(evictions > operations && splits > operations / 3
       && refused > operations / 20,
       "there were %llu evictions, %llu splits and %llu stale nodes",
       (unsigned long long) evictions, (unsigned long long) splits,
       (unsigned long long) refused);

    return done();
}


/* Often the beginning of one that is there. */

static void
random_key(uint32_t *space, uint32_t *tokens, uint32_t *len)
{
    uint32_t   i;
    prefix_t  *p;

    *space = fx_below(&seed, SPACES);
    *len = fx_below(&seed, LONGEST + 1);

    for (i = 0; i < LONGEST; i++) {
        tokens[i] = 1 + fx_below(&seed, TOKENS);
    }

    if (nprefixes && fx_below(&seed, 4)) {
        p = &prefixes[fx_below(&seed, nprefixes)];
        *space = p->space;
        memcpy(tokens, p->tokens, p->len * sizeof(uint32_t));
    }
}


/* A token belongs to its page: pages which begin alike share none. */

static prefix_t *
find(uint32_t space, const uint32_t *tokens, uint32_t len)
{
    uint32_t  i, whole;

    whole = (len + page_size - 1) / page_size * page_size;

    for (i = 0; i < nprefixes; i++) {
        if (prefixes[i].space == space && prefixes[i].len == len
            && memcmp(prefixes[i].tokens, tokens, whole * sizeof(uint32_t))
               == 0)
        {
            return &prefixes[i];
        }
    }

    return NULL;
}


/* In whole pages, of the first n tokens. */

static uint32_t
longest(uint32_t space, const uint32_t *tokens, uint32_t n)
{
    uint32_t  len;

    for (len = n - n % page_size; len; len -= page_size) {
        if (find(space, tokens, len)) {
            return len;
        }
    }

    return 0;
}


static bool
insert(void)
{
    uint32_t             i, had, existing, whole, own[LONGEST];
    uint64_t             nodes;
    kvr_prefix_key_t     key;
    kvr_prefix_node_t    from, node;
    kvr_prefix_insert_t  how;

    random_key(&space_, tokens_, &len_);

    for (i = 0; i < LONGEST; i++) {
        own[i] = ++values;
    }

    memset(&how, 0, sizeof(how));
    how.values = own;
    how.priority = fx_below(&seed, 4);
    key = px_key(tokens_, len_, spaces[space_]);

    if (fx_below(&seed, 2)) {
        kvr_prefix_match(&f.c, &key, &from, NULL);
        how.from = &from;
    }

    had = longest(space_, tokens_, len_);
    whole = len_ - len_ % page_size;
    nodes = px_stats(&f).nodes;

    if (kvr_prefix_insert(&f.c, &key, &how, &existing, &node) != KVR_OK
        || existing != had || node.length != whole)
    {
        note("inserted %u of %u, %u were there, not %u", node.length, whole,
             existing, had);
        return false;
    }

    splits += px_stats(&f).nodes > nodes + 1;

    for (i = had; i < whole; i++) {
        prefixes[nprefixes].space = space_;
        prefixes[nprefixes].len = i + 1;
        prefixes[nprefixes].value = own[i];
        prefixes[nprefixes].locks = 0;
        memcpy(prefixes[nprefixes].tokens, tokens_, sizeof(tokens_));
        nprefixes++;
    }

    return true;
}


static bool
match(void)
{
    uint32_t           i, n, got[LONGEST];
    kvr_prefix_node_t  node;

    random_key(&space_, tokens_, &len_);

    n = px_match(&f, tokens_, len_, spaces[space_], &node, got);

    if (n != longest(space_, tokens_, len_)) {
        note("matched %u of %u, not %u", n, len_,
             longest(space_, tokens_, len_));
        return false;
    }

    for (i = 0; i < n; i++) {
        if (got[i] != find(space_, tokens_, i + 1)->value) {
            note("value %u is wrong", i);
            return false;
        }
    }

    return true;
}


/* By a node that was matched, perhaps some time ago; or with the match. */

static bool
lock(void)
{
    bool               was;
    held_t            *h;
    kvr_rc_t           rc;
    uint32_t           i, n;
    kvr_prefix_key_t   key;
    kvr_prefix_node_t  node;

    if (nheld == LOCKS) {
        return true;
    }

    random_key(&space_, tokens_, &len_);

    h = &held[nheld];
    h->space = space_;
    memcpy(h->tokens, tokens_, sizeof(tokens_));
    key = px_key(h->tokens, len_, spaces[space_]);

    if (fx_below(&seed, 2)) {
        n = longest(space_, h->tokens, len_ ? len_ - 1 : 0);

        rc = kvr_prefix_begin(&f.c, &key, &node, &h->lock, NULL);

    } else {
        n = px_match(&f, h->tokens, len_, spaces[space_], &node, NULL);
        was = fx_below(&seed, 2);

        if (was && (!evict() || !insert())) {
            return false;
        }

        rc = kvr_prefix_lock(&f.c, &node, &h->lock);

        if (was && rc == KVR_DECLINED) {
            refused++;
            return true;
        }
    }

    if (rc != KVR_OK || node.length != n || (n == 0) != (h->lock.id == 0)) {
        note("a lock: %d, of %u, not %u", rc, node.length, n);
        return false;
    }

    h->len = n;

    for (i = 1; i <= n; i++) {
        find(h->space, h->tokens, i)->locks++;
    }

    nheld++;

    return true;
}


static bool
unlock(void)
{
    held_t    *h;
    uint32_t   i;

    if (nheld == 0) {
        return true;
    }

    h = &held[fx_below(&seed, nheld)];

    if (kvr_prefix_unlock(&f.c, &h->lock) != KVR_OK) {
        note("a lock can't be given back");
        return false;
    }

    for (i = 1; i <= h->len; i++) {
        find(h->space, h->tokens, i)->locks--;
    }

    *h = held[--nheld];

    return true;
}


static bool
evict(void)
{
    uint64_t  n, can, done;

    n = fx_below(&seed, 60);
    can = px_stats(&f).evictable;
    done = px_evict(&f, n);

    if (done < kvr_min(n, can) || done > can || done != f.nfreed) {
        note("%llu evicted, of %llu, %llu were asked for",
             (unsigned long long) done, (unsigned long long) can,
             (unsigned long long) n);
        return false;
    }

    evictions += done != 0;

    return gone();
}


/* What was told to be free was there, without a lock, and had no children. */

static bool
gone(void)
{
    uint32_t  i, k;

    for (i = 0; i < f.nfreed; i++) {

        for (k = 0; k < nprefixes && prefixes[k].value != f.freed[i]; k++) {
            /* void */
        }

        if (k == nprefixes || prefixes[k].locks) {
            note("value %u: %s", f.freed[i],
                 k == nprefixes ? "nobody has it" : "it is locked");
            return false;
        }

        prefixes[k] = prefixes[--nprefixes];
    }

    for (i = 0; i < nprefixes; i++) {
        if (prefixes[i].len > 1 && find(prefixes[i].space, prefixes[i].tokens,
                                        prefixes[i].len - 1) == NULL)
        {
            note("a prefix has lost its beginning");
            return false;
        }
    }

    return true;
}


static bool
counts(void)
{
    uint32_t            i, locked;
    kvr_prefix_stats_t  s;

    s = px_stats(&f);

    for (locked = 0, i = 0; i < nprefixes; i++) {
        locked += prefixes[i].locks != 0;
    }

    if (s.tokens != nprefixes || s.protected != locked
        || s.evictable != nprefixes - locked)
    {
        note("%llu tokens, %llu protected, not %u and %u",
             (unsigned long long) s.tokens, (unsigned long long) s.protected,
             nprefixes, locked);
        return false;
    }

    return true;
}


static void
run(uint32_t policy, uint32_t page, uint32_t operations)
{
    bool      good;
    uint32_t  i;

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, page, policy);

    nprefixes = 0;
    nheld = 0;
    page_size = page;
    good = true;

    for (i = 0; good && i < operations; i++) {

        switch (fx_below(&seed, 8)) {

        case 0:
        case 1:
            good = insert();
            break;

        case 2:
        case 3:
            good = match();
            break;

        case 4:
            good = lock();
            break;

        case 5:
            good = unlock();
            break;

        default:
            good = evict();
        }

        if (nprefixes > PREFIXES - 2 * LONGEST) {
            px_evict(&f, PREFIXES / 2);
            good = good && gone();
        }

        good = good && counts()
               && (i % 8 || px_sound(&f, "an operation"));
    }

    ok(good, "%s, pages of %u: %u operations, and each answer is the list's",
       kvr_prefix_policy_name(policy), page, i);

    while (nheld && unlock()) {
        /* void */
    }

    px_evict(&f, UINT64_MAX);
    ok(gone() && nprefixes == 0 && px_stats(&f).used == 0
       && px_sound(&f, "the end"),
       "%s, pages of %u: in the end all is evicted, and no memory in use",
       kvr_prefix_policy_name(policy), page);

    px_close(&f);
}
