/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Prompts in flight, beside a naive model: a list of requests.
 */


#include <stdlib.h>

#include "traffic/kvr_inflight.h"
#include "tap.h"


#define HOLDERS   6             /* three, in two generations each */
#define REQUESTS  200
#define PROCESSES 4
#define DEPTH     40


typedef struct {
    uint64_t    locals[DEPTH];
    uint32_t    n;                  /* 0: free */
    uint32_t    holder;
    uint32_t    id;
} request_t;


static request_t  requests[REQUESTS];
static uint64_t   blocks[HOLDERS];  /* what was added and not removed */


static uint32_t
same(const uint64_t *a, uint32_t n, const uint64_t *b, uint32_t m)
{
    uint32_t  i;

    for (i = 0; i < n && i < m && a[i] == b[i]; i++) { /* void */ }

    return i;
}


/* The deepest that any request shares with the prompt at the holder. */

static uint32_t
model_depth(const uint64_t *locals, uint32_t n, uint32_t holder)
{
    uint32_t  i, k, best;

    best = 0;

    for (i = 0; i < REQUESTS; i++) {
        if (requests[i].n && requests[i].holder == holder) {
            k = same(locals, n, requests[i].locals, requests[i].n);
            best = k > best ? k : best;
        }
    }

    return best;
}


static void
zero(kvr_inflight_depth_t *depths, uint32_t n, uint32_t generation)
{
    while (n--) {
        depths[n].generation = generation;
        depths[n].depth = 0;
    }
}


static void
shared(void)
{
    uint32_t              a, b, c, n;
    kvr_inflight_t       *f;
    kvr_inflight_depth_t  depths[2];
    const uint64_t        one[] = { 1, 2, 3, 4, 5 }, two[] = { 1, 2, 3, 9 };

    f = kvr_inflight_create();

    a = kvr_inflight_add(f, 0, 1, one, 5, 0, UINT32_MAX, &n);
    is_u64(n, 5, "the first request brings all its blocks");

    b = kvr_inflight_add(f, 0, 1, two, 4, 0, UINT32_MAX, &n);
    is_u64(n, 1, "one that parts after three of them brings what is new");

    c = kvr_inflight_add(f, 1, 1, one, 3, 0, UINT32_MAX, &n);
    is_u64(n, 3, "at another holder nothing is shared");

    zero(depths, 2, 1);
    kvr_inflight_find(f, one, 4, depths, 2);
    ok(depths[0].depth == 4 && depths[1].depth == 3,
       "both holders' depths are found");

    zero(depths, 2, 1);
    kvr_inflight_find(f, one, 4, depths, 1);
    ok(depths[0].depth == 4 && depths[1].depth == 0,
       "a holder out of range is left out");

    is_u64(kvr_inflight_remove(f, 0, 1, a), 2,
           "what goes with the first is what it had alone");
    is_u64(kvr_inflight_remove(f, 0, 1, b), 4, "the rest goes with the last");
    is_u64(kvr_inflight_remove(f, 1, 1, c), 3, "also at the other holder");
    is_u64(kvr_inflight_nodes(f), 0, "nothing is left");

    a = kvr_inflight_add(f, 0, 1, one, 5, 0, UINT32_MAX, &n);
    b = kvr_inflight_add(f, 0, 2, one, 5, 0, UINT32_MAX, &n);
    is_u64(n, 5, "a successor of the holder shares nothing with it");

    depths[0].generation = 2;
    depths[0].depth = 0;
    kvr_inflight_find(f, two, 4, depths, 1);
    is_u64(depths[0].depth, 3, "its own requests are found");

    is_u64(kvr_inflight_remove(f, 0, 1, a), 5, "all goes with the first");
    is_u64(kvr_inflight_remove(f, 0, 2, b), 5, "and with the second");
    is_u64(kvr_inflight_nodes(f), 0, "nothing is left of both");

    is_u64(kvr_inflight_add(f, 0, 1, one, 0, 0, UINT32_MAX, &n), 0,
           "an empty prompt is not in the tree");
    is_u64(n, 0, "and has no blocks");

    kvr_inflight_destroy(f);
}


/* A local hash: they are spread. */

static uint64_t
hash(uint32_t i)
{
    return (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
}


static void
full(void)
{
    uint32_t         i, n, *ids;
    uint64_t         local;
    kvr_inflight_t  *f;

    f = kvr_inflight_create();
    ids = calloc(KVR_INFLIGHT_NODES, sizeof(uint32_t));

    for (i = 0; i < KVR_INFLIGHT_NODES - 1; i++) {
        local = hash(i);
        ids[i] = kvr_inflight_add(f, 0, 1, &local, 1, 0, UINT32_MAX, &n);

        if (ids[i] == 0) {
            break;
        }
    }

    is_u64(i, KVR_INFLIGHT_NODES - 1, "there is room for all nodes");

    local = hash(i);
    is_u64(kvr_inflight_add(f, 0, 1, &local, 1, 0, UINT32_MAX, &n), 0, "and for no more");
    is_u64(n, 1, "one more request is counted as sharing nothing");

    local = hash(7);
    i = kvr_inflight_add(f, 0, 1, &local, 1, 0, UINT32_MAX, &n);
    ok(i != 0 && n == 0, "but for one that brings nothing new there is room");
    is_u64(kvr_inflight_remove(f, 0, 1, i), 0, "and it takes nothing away");

    for (i = 0; i < KVR_INFLIGHT_NODES - 1; i++) {
        (void) kvr_inflight_remove(f, 0, 1, ids[i]);
    }

    is_u64(kvr_inflight_nodes(f), 0, "all of them can be removed");

    free(ids);
    kvr_inflight_destroy(f);
}


static void
model(uint32_t steps)
{
    bool                  good;
    uint32_t              i, k, n, step;
    uint64_t              locals[DEPTH];
    request_t            *r;
    kvr_inflight_t       *f;
    kvr_inflight_depth_t  depths[HOLDERS / 2];

    f = kvr_inflight_create();
    good = true;

    for (step = 0; step < steps && good; step++) {

        r = &requests[rand() % REQUESTS];

        if (r->n) {
            k = r->n;
            r->n = 0;
            k -= model_depth(r->locals, k, r->holder);
            n = kvr_inflight_remove(f, r->holder / 2, r->holder % 2, r->id);
            blocks[r->holder] -= n;
            good = n == k;

        } else {
            n = 1 + rand() % DEPTH;
            r->holder = rand() % HOLDERS;

            for (i = 0; i < n; i++) {
                r->locals[i] = 1 + (rand() % 8 == 0);
            }

            k = n - model_depth(r->locals, n, r->holder);
            r->id = kvr_inflight_add(f, r->holder / 2, r->holder % 2, r->locals, n, 0, UINT32_MAX, &i);
            r->n = n;
            blocks[r->holder] += i;
            good = r->id != 0 && i == k;
        }

        n = rand() % DEPTH;

        for (i = 0; i < n; i++) {
            locals[i] = 1 + (rand() % 8 == 0);
        }

        for (k = 0; k < 2; k++) {
            zero(depths, HOLDERS / 2, k);
            kvr_inflight_find(f, locals, n, depths, HOLDERS / 2);

            for (i = 0; i < HOLDERS / 2; i++) {
                good = good && depths[i].depth
                               == model_depth(locals, n, i * 2 + k);
            }
        }
    }

    ok(good, "%u random steps agree with the model", step);

    for (i = 0; i < REQUESTS; i++) {
        if (requests[i].n) {
            r = &requests[i];
            blocks[r->holder] -= kvr_inflight_remove(f, r->holder / 2, r->holder % 2, r->id);
        }
    }

    for (i = 0; i < HOLDERS; i++) {
        is_u64(blocks[i], 0, "holder %u is back at zero", i);
    }

    is_u64(kvr_inflight_nodes(f), 0, "no node is left");

    kvr_inflight_destroy(f);
}


/*
 * Several processes, each with its tree: `known` is what the others have at
 * the holder, or an old number, or a lie.  What they count is never below 0,
 * and 0 at the end; while all know the truth and nothing ends, it is the union.
 */

static void
processes(uint32_t steps, bool truth)
{
    bool                  good, all;
    int64_t               sum[PROCESSES][HOLDERS], counted;
    uint32_t              i, p, n, k, step, total;
    request_t            *r;
    kvr_inflight_t       *f[PROCESSES];

    good = true;
    all = true;
    memset(sum, 0, sizeof(sum));
    memset(requests, 0, sizeof(requests));

    for (p = 0; p < PROCESSES; p++) {
        f[p] = kvr_inflight_create();
    }

    for (step = 0; step < steps + REQUESTS; step++) {
        k = step < steps ? (uint32_t) rand() % REQUESTS : step - steps;
        r = &requests[k];
        p = k % PROCESSES;

        if (r->n) {
            if (truth && step < steps) {
                continue;
            }

            sum[p][r->holder] -= kvr_inflight_remove(f[p], r->holder, 1,
                                                     r->id);
            good = good && sum[p][r->holder] >= 0;
            r->n = 0;

        } else if (step < steps) {
            n = 1 + rand() % DEPTH;
            r->holder = rand() % HOLDERS;

            for (i = 0; i < n; i++) {
                r->locals[i] = 1 + (rand() % 8 == 0);
            }

            k = model_depth(r->locals, n, r->holder);
            counted = n - k;

            if (!truth && rand() % 2) {
                k = (uint32_t) rand() % (DEPTH * 2);
            }

            total = truth || rand() % 2 ? 0 : (uint32_t) rand() % 1000;

            for (i = 0; i < PROCESSES; i++) {
                total += (uint32_t) sum[i][r->holder];
            }

            r->id = kvr_inflight_add(f[p], r->holder, 1, r->locals, n, k,
                                     total, &i);
            r->n = n;
            sum[p][r->holder] += i;
            all = all && r->id != 0 && i == counted;
        }
    }

    if (truth) {
        ok(all, "what other processes have in flight is no new load");
    }

    for (p = 0; p < PROCESSES; p++) {

        for (i = 0; i < HOLDERS; i++) {
            good = good && sum[p][i] == 0;
        }

        good = good && kvr_inflight_nodes(f[p]) == 0;
        kvr_inflight_destroy(f[p]);
    }

    ok(good, "whatever processes know of others, what each counts is never "
       "below 0, and 0 in the end");
}


/* A holder's number goes to another worker. */

static void
generations(void)
{
    uint32_t         a, b, c, n;
    uint64_t         one[4] = { 1, 2, 3, 4 };
    kvr_inflight_t  *f;

    f = kvr_inflight_create();

    a = kvr_inflight_add(f, 3, 1, one, 4, 4, UINT32_MAX, &n);
    is_u64(n, 0, "what others have in flight there is no new load");

    b = kvr_inflight_add(f, 3, 2, one, 4, 3, UINT32_MAX, &n);
    is_u64(n, 1, "at the next worker with the number neither");

    c = kvr_inflight_add(f, 3, 1, one, 4, 4, UINT32_MAX, &n);
    is_u64(kvr_inflight_remove(f, 3, 1, a), 0, "the one before ends");
    (void) kvr_inflight_remove(f, 3, 1, c);
    is_u64(kvr_inflight_remove(f, 3, 2, b), 1, "and the next one counts what it has");

    kvr_inflight_destroy(f);
}


/* Others count a prompt, and end before this process does. */

static void
left(void)
{
    uint32_t         i, n, sum, request, last;
    uint64_t         prompt[64];
    kvr_inflight_t  *f;

    f = kvr_inflight_create();

    for (i = 0; i < 64; i++) {
        prompt[i] = i + 1;
    }

    last = kvr_inflight_add(f, 0, 1, prompt, 64, 64, 64, &sum);
    is_u64(sum, 0, "a prompt that others count is not counted");

    request = kvr_inflight_add(f, 0, 1, prompt, 64, 64, 40, &n);
    (void) kvr_inflight_remove(f, 0, 1, last);
    last = request;
    is_u64(n, 6, "of 24 blocks that nobody counts the next request counts 6");
    sum += n;

    for (i = 0; i < 20; i++) {
        request = kvr_inflight_add(f, 0, 1, prompt, 64, 0, sum, &n);
        sum += n;
        sum -= kvr_inflight_remove(f, 0, 1, last);
        last = request;
    }

    is_u64(sum, 64, "after some requests all is counted, though the prompt was "
           "always in flight");
    is_u64(kvr_inflight_remove(f, 0, 1, last), 64, "and ends with the last");

    kvr_inflight_destroy(f);
}


int
main(int argc, char **argv)
{
    srand(argc > 1 ? atoi(argv[1]) : 1);

    shared();
    full();
    model(20000);
    generations();
    left();
    processes(REQUESTS * 20, true);
    processes(20000, false);

    return done();
}
