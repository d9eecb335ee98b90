/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Processes that are killed in the prefix cache: at many instructions of each
 * call, and at any time while several of them are at work.  What is left is
 * sound; a call is done or not done; and locks of the dead are released.
 *
 *     test_prefix_crash [rounds [seed [stride]]]
 */


#include "prefix_fixture.h"
#include "processes.h"


#ifdef __SANITIZE_ADDRESS__
#define ROUNDS       15
#define STRIDE       499                /* instructions between two kills */
#define SPAN         12                 /* times as many instructions */
#else
#define ROUNDS       40
#define STRIDE       151
#define SPAN         1
#endif

#define MORE         20                 /* times as many rounds, at most, until
                                           all was seen that is to be seen */
#define WRITERS      3
#define VALUES       64                 /* tokens of a key */


/* A call, and what its process does before it. */
typedef struct {
    const char  *name;
    void       (*fn)(void);
    void       (*before)(void);         /* in the same process */
} call_t;


static void prepare(void);
static void join(void);
static void hold(void);
static void do_match(void);
static void do_begin(void);
static void do_insert(void);
static void do_unlock(void);
static void do_evict(void);
static void do_put(void);
static void do_delete(void);
static void do_leave(void);
static void roll_back(void);
static uint64_t state(void);
static void kills_in(const call_t *call, uint32_t stride);
static void kills_in_rollback(void);
static void writer(void);
static void rounds_of(uint32_t rounds);


static px_t               f;
static uint32_t           base[VALUES], branch[VALUES], numbers[VALUES];
static uint64_t           random_;
static kvr_prefix_lock_t  lock_;

static const call_t  calls[] = {
    { "match", do_match, join },
    { "begin", do_begin, join },
    { "insert", do_insert, join },
    { "unlock", do_unlock, hold },
    { "evict", do_evict, join },
    { "put", do_put, join },
    { "delete", do_delete, join },
    { "leave", do_leave, hold },
};


int
main(int argc, char **argv)
{
    uint32_t  i, rounds, stride;

    rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : ROUNDS;
    random_ = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261122;
    stride = argc > 3 ? strtoul(argv[3], NULL, 0) : STRIDE;

    for (i = 0; i < VALUES; i++) {
        base[i] = i + 1;
        branch[i] = i < VALUES / 2 ? i + 1 : 1000 + i;
        numbers[i] = i;
    }

    px_open(&f, 2 << 20, KVR_PREFIX_TOKENS, 1, KVR_PREFIX_LRU);

    for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        kills_in(&calls[i], stride);
    }

    kills_in_rollback();
    rounds_of(rounds);

    px_close(&f);

    return done();
}


/* ---- one call ----------------------------------------------------------- */

/* A key in two nodes, another one, and two entries. */

static void
prepare(void)
{
    kvr_prefix_key_t  key;

    kvr_prefix_reset(&f.c, px_keep(&f));
    kvr_prefix_clear(&f.c);

    px_insert(&f, base, VALUES - 8, NULL, numbers);
    px_insert(&f, base, VALUES, NULL, numbers);
    px_insert(&f, base, VALUES, "other", NULL);

    key = px_key(base, 8, NULL);
    kvr_prefix_put(&f.c, &key, "eight", 5);
    key.n = 16;
    kvr_prefix_put(&f.c, &key, "sixteen", 7);
}


static void
join(void)
{
    kvr_prefix_join(&f.c);
}


static void
hold(void)
{
    kvr_prefix_key_t   key;
    kvr_prefix_node_t  node;

    kvr_prefix_join(&f.c);
    key = px_key(base, VALUES - 20, NULL);
    kvr_prefix_begin(&f.c, &key, &node, &lock_, NULL);
}


static void
do_match(void)
{
    px_match(&f, base, VALUES, NULL, NULL, NULL);
}


static void
do_begin(void)
{
    kvr_prefix_key_t   key;
    kvr_prefix_node_t  node;

    key = px_key(base, VALUES - 20, NULL);
    kvr_prefix_begin(&f.c, &key, &node, &lock_, NULL);
}


static void
do_insert(void)
{
    px_insert(&f, branch, VALUES, NULL, numbers);
}


static void
do_unlock(void)
{
    kvr_prefix_unlock(&f.c, &lock_);
}


static void
do_evict(void)
{
    px_evict(&f, 1);
}


static void
do_put(void)
{
    kvr_prefix_key_t  key;

    key = px_key(base, 12, NULL);
    kvr_prefix_put(&f.c, &key, "twelve", 6);
}


static void
do_delete(void)
{
    kvr_prefix_key_t  key;

    key = px_key(base, 16, NULL);
    kvr_prefix_delete(&f.c, &key);
}


static void
do_leave(void)
{
    kvr_prefix_leave(&f.c);
}


/* A number for what is there; the order of eviction and the shape of the tree
 * are not in it. */

static uint64_t
state(void)
{
    uint32_t            a, b, i;
    uint64_t            hash;
    size_t              len;
    char                value[KVR_PREFIX_VALUE_MAX];
    kvr_rc_t            rc;
    kvr_prefix_key_t    key;
    kvr_prefix_stats_t  s;

    /* the first one undoes what was left */

    a = px_match(&f, base, VALUES, NULL, NULL, NULL);
    b = px_match(&f, branch, VALUES, NULL, NULL, NULL);
    s = px_stats(&f);

    hash = fx_mix(s.tokens << 32 | a << 16 | b) + s.entries * 131
           + s.protected * 7919 + s.locks * 65537;

    for (i = 8; i <= 16; i += 4) {
        key = px_key(base, i, NULL);
        rc = kvr_prefix_get(&f.c, &key, value, &len);
        hash = fx_mix(hash + (rc == KVR_OK ? len : 0));
    }

    return hash;
}


static void
kills_in(const call_t *call, uint32_t stride)
{
    bool      good, inside;
    uint32_t  n, mid, steps;
    uint64_t  was, is, done_;

    /* the two states that may be seen; a lock of the killed process is there
       until its release */

    prepare();
    call->before();
    was = state();

    prepare();
    call->before();
    call->fn();
    done_ = state();

    good = true;
    inside = true;
    n = 0;
    mid = 0;

    for (steps = 1 + fx_below(&random_, stride);
         good && inside;
         steps += 1 + fx_below(&random_, 2 * stride))
    {
        prepare();

        inside = killed_behind(call->before, call->fn, steps);
        mid += f.c.mem.journal->n != 0;

        /* this process takes the lock from the dead one */

        is = state();

        if (is != was && is != done_) {
            note("%s: killed after %u instructions it is half done",
                 call->name, steps);
            good = false;
        }

        good = px_sound(&f, call->name) && good;

        f.c.zone->reap = 0;

        while (kvr_prefix_tend(&f.c)) {
            /* void */
        }

        if (px_stats(&f).locks || px_stats(&f).protected
            || !px_sound(&f, "released"))
        {
            note("%s: killed after %u instructions it has left locks",
                 call->name, steps);
            good = false;
        }

        n++;
    }

    ok(good && n > 5 && (mid > 0 || call->fn == do_match),
       "%s: killed at %u places, %u of them in a transaction, it is done or "
       "not done", call->name, n, mid);
}


/* ---- in the rollback ---------------------------------------------------- */

static void
roll_back(void)
{
    kvr_prefix_join(&f.c);
    (void) kvr_prefix_enter(&f.c);
    kvr_prefix_exit(&f.c);
}


static void
kills_in_rollback(void)
{
    bool      good;
    uint32_t  i, n, steps;
    uint64_t  was;

    prepare();
    was = state();
    n = 0;

    for (good = true, steps = 100 * SPAN;
         good && steps < 4000 * SPAN && n < 30;
         steps += 50 * SPAN)
    {
        prepare();
        killed_behind(join, do_insert, steps);

        if (f.c.mem.journal->n == 0) {
            continue;
        }

        for (i = 0; i < 3 && f.c.mem.journal->n; i++) {
            killed_behind(NULL, roll_back, 200 + fx_below(&random_, 2000 * SPAN));
            n++;
        }

        good = state() == was && px_sound(&f, "rolled back");
    }

    ok(good && n > 3, "processes killed %u times at the undoing: the next one "
       "ends it", n);
}


/* ---- many at once ------------------------------------------------------- */

static void
writer(void)
{
    uint32_t           key[VALUES], n, i;
    uint64_t           seed;
    kvr_prefix_key_t   whole;
    kvr_prefix_node_t  node;
    kvr_prefix_lock_t  locks[8];

    kvr_prefix_join(&f.c);
    memset(locks, 0, sizeof(locks));
    seed = fx_now_ns();

    for ( ;; ) {
        n = 1 + fx_below(&seed, VALUES);

        for (i = 0; i < n; i++) {
            key[i] = fx_below(&seed, 2) + 2 * (i / 8);
        }

        whole = px_key(key, n, fx_below(&seed, 4) ? NULL : "other");
        i = fx_below(&seed, 8);

        switch (fx_below(&seed, 10)) {

        case 0:
        case 1:
        case 2:
            px_insert(&f, key, n, whole.extra, numbers);
            break;

        case 3:
        case 4:
            kvr_prefix_unlock(&f.c, &locks[i]);
            kvr_prefix_begin(&f.c, &whole, &node, &locks[i], NULL);
            break;

        case 5:
            px_evict(&f, n);
            break;

        case 6:
            kvr_prefix_put(&f.c, &whole, key, n);
            break;

        case 7:
            kvr_prefix_delete(&f.c, &whole);
            break;

        case 8:
            kvr_prefix_unlock(&f.c, &locks[i]);
            memset(&locks[i], 0, sizeof(locks[i]));
            break;

        default:
            px_match(&f, key, n, whole.extra, NULL, NULL);
        }
    }
}


static void
rounds_of(uint32_t rounds)
{
    int         status;
    bool        good;
    pid_t       pids[WRITERS];
    uint32_t    i, k, mid;
    uint64_t    reaped, undone;

    f.c.params.max_entries = 200;
    prepare();

    for (k = 0; k < WRITERS; k++) {
        pids[k] = start(writer);
    }

    good = true;
    mid = 0;
    reaped = px_stats(&f).reaped;
    undone = px_stats(&f).rollbacks;

    for (i = 0;
         good && (i < rounds
                  || (i < MORE * rounds
                      && (mid < 3 || px_stats(&f).reaped == reaped)));
         i++)
    {
        usleep(fx_below(&random_, 5000));

        k = fx_below(&random_, WRITERS);
        kill(pids[k], SIGKILL);
        waitpid(pids[k], &status, 0);

        f.c.zone->reap = 0;

        while (kvr_prefix_tend(&f.c)) {
            /* void */
        }

        mid = (uint32_t) (px_stats(&f).rollbacks - undone);

        /* the others wait meanwhile */

        do {
            status = kvr_prefix_enter(&f.c);
        } while (status == KVR_BUSY);

        good = status == KVR_OK && px_sound(&f, "a process died");

        kvr_prefix_exit(&f.c);

        pids[k] = start(writer);
    }

    for (k = 0; k < WRITERS; k++) {
        kill(pids[k], SIGKILL);
        waitpid(pids[k], &status, 0);
    }

    f.c.zone->reap = 0;

    while (kvr_prefix_tend(&f.c)) {
        f.c.zone->reap = 0;
    }

    ok(good && mid >= 3 && px_stats(&f).reaped > reaped,
       "of %u processes at work %u were killed, one after the other, and the "
       "tree is sound: %u transactions undone, %llu locks released", WRITERS,
       i + WRITERS, mid, (unsigned long long) (px_stats(&f).reaped - reaped));
    ok(px_stats(&f).locks == 0 && px_stats(&f).protected == 0
       && px_sound(&f, "all dead"), "when all are dead, nothing is locked");

    kvr_prefix_reset(&f.c, px_keep(&f));
    kvr_prefix_clear(&f.c);
    ok(px_stats(&f).used == 0 && px_sound(&f, "emptied"),
       "and no memory is lost");
}
