/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Estimates that are changed by processes which are killed at random moments.
  The next process goes on with what the ring still has; what
 * is estimated then is held against a zone in which nobody was killed.
 *
 *     test_estimates_killed [kills [seed]]
 */


#include "processes.h"
#include "estimates.h"


#ifdef __SANITIZE_ADDRESS__
#define KILLS        60                 /* of each kind of index */
#else
#define KILLS        200
#endif

#define MORE         20                 /* times as many, at most, until all was
                                           seen that is to be seen */
#define PROMPTS      12                 /* before a kill */
#define PATHS        40
#define LONG         300                /* blocks: more than a store commits at
                                           once */
#define CAPACITY     4000               /* tokens */


typedef struct {
    uint64_t    locals[LONG];
    uint32_t    n;
} path_t;


static path_t         paths[PATHS];
static kvr_router_t   other;
static kvr_routed_t  *other_ring;
static uint64_t       random_ = 20261123;
static uint32_t       holder;


/* The other zone takes the place of this one. */

static void
swap(void)
{
    kvr_router_t   r;
    kvr_routed_t  *ring;

    r = es;
    ring = es_ring;
    es = other;
    es_ring = other_ring;
    other = r;
    other_ring = ring;
}


static void
prompt(void)
{
    uint32_t              i, keep;
    path_t               *p, *from;
    kvr_routed_record_t   r;

    p = &paths[fx_below(&random_, PATHS)];
    from = &paths[fx_below(&random_, PATHS)];

    if (p->n == 0 || fx_below(&random_, 3) == 0) {
        keep = from->n ? fx_below(&random_, from->n) : 0;
        memmove(p->locals, from->locals, keep * sizeof(uint64_t));
        p->n = keep + 1 + fx_below(&random_, 200);
        p->n = kvr_min(p->n, LONG);

        for (i = keep; i < p->n; i++) {
            p->locals[i] = fx_random(&random_);
        }
    }

    /* without BEGIN: the order of prompts in flight may differ */

    r = es_record(holder, KVR_ROUTED_END);
    r.n = p->n;
    r.completion = fx_below(&random_, 2) * fx_below(&random_, 40) * ES_BLOCK;

    (void) kvr_routed_append(es_ring, &r, p->locals);
    (void) kvr_routed_append(other_ring, &r, p->locals);
}


/* ---- the process that is killed ----------------------------------------- */

static void
applier(void)
{
    (void) kvr_router_join(&es);
    (void) kvr_router_lease(&es, 0, 0, kvr_now_us() / 1000);

    for ( ;; ) {
        es_apply();
        usleep(100);
    }
}


/* ---- rounds ------------------------------------------------------------- */

static uint64_t
died(void)
{
    kvr_estimate_info_t  info;

    return kvr_router_estimate_read(&es, holder, &info) == KVR_OK
           ? info.cleared[KVR_ESTIMATE_DIED] : 0;
}


static bool
same(void)
{
    uint32_t             i, e;
    uint64_t             held;
    kvr_match_t          a, b;
    kvr_estimate_info_t  info;

    for (e = 0; e < KVR_FLEET_ESTIMATES; e++) {

        held = kvr_estimated_held(&es.shards[0], holder, e);

        if (held != kvr_estimated_held(&other.shards[0], holder, e)) {
            (void) kvr_router_estimate_read(&es, holder, &info);
            printf("# view %u: holds %lu, not %lu; dropped %lu times as full, "
                   "%lu as of the dead\n", e, (unsigned long) held,
                   (unsigned long) kvr_estimated_held(&other.shards[0],
                                                      holder, e),
                   (unsigned long) info.cleared[KVR_ESTIMATE_FULL],
                   (unsigned long) info.cleared[KVR_ESTIMATE_DIED]);
            return false;
        }
    }

    for (i = 0; i < PATHS; i++) {
        a = es_match(holder, paths[i].locals, paths[i].n);
        swap();
        b = es_match(holder, paths[i].locals, paths[i].n);
        swap();

        if (a.hot != b.hot || a.host != b.host || a.ghost != b.ghost) {
            printf("# path %u of %u: %u, %u, %u, not %u, %u, %u\n", i,
                   paths[i].n, a.hot, a.host, a.ghost, b.hot, b.host, b.ghost);
            return false;
        }
    }

    return true;
}


static void
kills(uint32_t n)
{
    int          status;
    bool         good;
    void        *base, *other_base;
    pid_t        pid;
    uint32_t     i, k, w, in, halves, undone;
    uint64_t     before, at;
    const char  *why;

    other_base = es_open(ES_ZONE);
    w = es_worker("w");
    (void) kvr_router_estimate_capacity(&es, w, CAPACITY,
                                        KVR_CAPACITY_CONFIGURED);
    other = es;
    other_ring = es_ring;

    base = es_open(ES_ZONE);
    w = es_worker("w");
    holder = es_holder(w);
    (void) kvr_router_estimate_capacity(&es, w, CAPACITY,
                                        KVR_CAPACITY_CONFIGURED);

    memset(paths, 0, sizeof(paths));
    good = true;
    why = NULL;
    in = 0;
    halves = 0;
    undone = 0;

    for (i = 0; good && why == NULL
                && (i < n || (i < MORE * n && (halves == 0 || undone == 0)));
         i++)
    {
        for (k = 0; k < PROMPTS; k++) {
            prompt();
        }

        kvr_router_lease_release(&es);
        before = died();

        /* when some of the records are used, some microseconds later */

        pid = start(applier);
        at = kvr_load64(&es_ring->head) + fx_below(&random_, 8) * LONG;

        while (kvr_load64(&es_ring->head) <= at && kvr_routed_unread(es_ring))
        {
            /* void */
        }

        for (k = fx_below(&random_, 4000); k; k--) {
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
        }

        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);

        in += kvr_routed_unread(es_ring) != 0;
        undone += es.shards[0].mem.journal->n != 0;

        (void) kvr_router_lease(&es, 0, 0, kvr_now_us() / 1000);
        good = kvr_router_leased(&es, 0);
        es_apply();
        swap();
        es_apply();
        swap();

        why = es_check();

        if (died() != before) {
            halves++;
            es_clear(&es, holder);
            es_clear(&other, holder);

            /* or the zones have no views left after many of these */

            while (kvr_router_tend(&es, es_now, 100000)
                   || kvr_router_tend(&other, es_now, 100000))
            {
                /* void */
            }

        } else if (good) {
            good = same();
        }
    }

    ok(good, "%s: what %u processes left that were killed, %u of them in the "
       "middle of their work, goes on as if none had been", kvr_index_name(es_kind), i, in);
    ok(why == NULL, "and is whole: %s", why ? why : "yes");
    ok(undone > 0, "%u of them left a transaction", undone);
    ok(halves > 0, "%u left a part of a change, and the estimate was dropped",
       halves);

    es_close(base, ES_ZONE);
    swap();
    es_close(other_base, ES_ZONE);
}


int
main(int argc, char **argv)
{
    uint32_t  n;

    n = argc > 1 ? strtoul(argv[1], NULL, 0) : KILLS;
    random_ = argc > 2 ? strtoull(argv[2], NULL, 0) : random_;

    for (es_kind = 0; es_kind < KVR_INDEX_KINDS; es_kind++) {
        kills(n);
    }

    return done();
}
