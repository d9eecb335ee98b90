/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_simulate.h"

#include "core/kvr_clock.h"
#include "traffic/kvr_churn.h"
#include "traffic/kvr_speed.h"
#include "zone/kvr_router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>


#define KVR_SIMULATE_ROUTERS  64
#define KVR_SIMULATE_PART     256       /* blocks of one event */
#define KVR_SIMULATE_NAME     ((UINT64_C(1) << 53) - 1)


struct kvr_simulate_s {
    kvr_router_t           router;
    void                  *base;
    size_t                 size;
    bool                   open;

    uint32_t               workers;
    uint32_t               routers;
    uint32_t               max_holders;
    uint32_t              *holders;     /* by worker */
    uint32_t              *worker_of;   /* by holder */
    uint64_t              *churn;       /* by worker */
    kvr_match_t           *matches;
    kvr_inflight_depth_t  *depths;
    kvr_inflight_t        *inflight[KVR_SIMULATE_ROUTERS];
    kvr_speed_t           *speeds[KVR_SIMULATE_ROUTERS];    /* by worker */
    double                *medians;     /* room for a number a worker */
};


static bool kvr_simulate_open(kvr_simulate_t *s, uint32_t block_size);
static bool kvr_simulate_put(kvr_simulate_t *s, uint32_t worker);
static void kvr_simulate_id(uint32_t worker, char id[16]);
static int kvr_simulate_write(kvr_simulate_t *s, uint32_t worker,
    kvr_event_t *ev);


kvr_simulate_t *
kvr_simulate_create(size_t size, uint32_t block_size, uint32_t workers,
    uint32_t routers)
{
    uint32_t         i;
    kvr_simulate_t  *s;

    if (workers == 0 || routers == 0 || routers > KVR_SIMULATE_ROUTERS) {
        return NULL;
    }

    s = calloc(1, sizeof(kvr_simulate_t));
    if (s == NULL) {
        return NULL;
    }

    s->size = size;
    s->workers = workers;
    s->routers = routers;

    s->base = mmap(NULL, size, PROT_READ|PROT_WRITE,
                   MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
    if (s->base == MAP_FAILED) {
        free(s);
        return NULL;
    }

    if (!kvr_simulate_open(s, block_size)) {
        kvr_simulate_destroy(s);
        return NULL;
    }

    for (i = 0; i < workers; i++) {
        if (!kvr_simulate_put(s, i)) {
            kvr_simulate_destroy(s);
            return NULL;
        }
    }

    return s;
}


static bool
kvr_simulate_open(kvr_simulate_t *s, uint32_t block_size)
{
    char          why[KVR_WHY_LEN];
    uint32_t      i;
    kvr_params_t  params;

    memset(&params, 0, sizeof(kvr_params_t));
    params.block_size = block_size;
    params.max_workers = s->workers;
    params.shards = 1;

    if (kvr_router_format(s->base, s->size, &params, why) != KVR_OK
        || kvr_router_attach(&s->router, s->base, s->size, &params, why)
           != KVR_OK)
    {
        return false;
    }

    s->open = true;

    if (kvr_router_join(&s->router) != KVR_OK) {
        return false;
    }

    s->max_holders = kvr_router_max_holders(&s->router);
    s->holders = calloc(s->workers, sizeof(uint32_t));
    s->worker_of = calloc(s->max_holders, sizeof(uint32_t));
    s->churn = calloc(s->workers, sizeof(uint64_t));
    s->matches = calloc(s->max_holders, sizeof(kvr_match_t));
    s->depths = calloc(s->max_holders, sizeof(kvr_inflight_depth_t));

    s->medians = calloc(s->workers, sizeof(double));

    if (s->holders == NULL || s->worker_of == NULL || s->churn == NULL
        || s->matches == NULL || s->depths == NULL || s->medians == NULL)
    {
        return false;
    }

    for (i = 0; i < s->routers; i++) {
        s->inflight[i] = kvr_inflight_create();
        s->speeds[i] = calloc(s->workers, sizeof(kvr_speed_t));

        if (s->inflight[i] == NULL || s->speeds[i] == NULL) {
            return false;
        }
    }

    return true;
}


static bool
kvr_simulate_put(kvr_simulate_t *s, uint32_t worker)
{
    uint32_t           number, holder;
    kvr_worker_conf_t  conf;

    memset(&conf, 0, sizeof(kvr_worker_conf_t));
    kvr_simulate_id(worker, conf.id);
    conf.ranks = 1;
    conf.weight = 1000;

    if (kvr_router_put_worker(&s->router, &conf, KVR_WORKER_API) != KVR_OK
        || kvr_router_find_worker(&s->router, conf.id, strlen(conf.id),
                                  &number)
           != KVR_OK
        || kvr_router_find_holder(&s->router, number, 0, &holder) != KVR_OK)
    {
        return false;
    }

    s->holders[worker] = holder;
    s->worker_of[holder] = worker;

    return true;
}


static void
kvr_simulate_id(uint32_t worker, char id[16])
{
    (void) snprintf(id, 16, "w%u", worker);
}


void
kvr_simulate_destroy(kvr_simulate_t *s)
{
    uint32_t  i;

    for (i = 0; i < s->routers; i++) {
        if (s->inflight[i]) {
            kvr_inflight_destroy(s->inflight[i]);
        }

        free(s->speeds[i]);
    }

    if (s->open) {
        kvr_router_leave(&s->router);
        kvr_router_detach(&s->router);
    }

    free(s->holders);
    free(s->worker_of);
    free(s->churn);
    free(s->matches);
    free(s->depths);
    free(s->medians);
    (void) munmap(s->base, s->size);
    free(s);
}


void
kvr_simulate_locals(uint64_t stream, uint32_t first, uint32_t n,
    uint64_t *locals)
{
    uint32_t  i;
    uint64_t  block[2];

    block[0] = stream;

    for (i = 0; i < n; i++) {
        block[1] = first + i;
        locals[i] = XXH3_64bits(block, sizeof(block));
    }
}


void
kvr_simulate_names(const uint64_t *locals, uint32_t from, uint32_t n,
    double *names)
{
    uint32_t  i;
    uint64_t  chain[2];

    chain[0] = from ? (uint64_t) names[from - 1] : 0;

    for (i = from; i < n; i++) {
        chain[1] = locals[i];

        /* no block has the name 0: the chain above a first block is 0 */

        chain[0] = kvr_max(XXH3_64bits(chain, sizeof(chain))
                           & KVR_SIMULATE_NAME, 1);
        names[i] = (double) chain[0];
    }
}


int
kvr_simulate_store(kvr_simulate_t *s, uint32_t worker, const uint64_t *locals,
    const double *names, uint32_t from, uint32_t n, double now)
{
    int          rc;
    uint32_t     i, k;
    uint64_t     handles[KVR_SIMULATE_PART];
    kvr_event_t  ev;

    /* the index's own count is by the machine's clock */

    kvr_churn_add(&s->churn[worker], n - from, (uint32_t) now);

    for ( /* void */ ; from < n; from += k) {

        k = kvr_min(n - from, KVR_SIMULATE_PART);

        for (i = 0; i < k; i++) {
            handles[i] = (uint64_t) names[from + i];
        }

        memset(&ev, 0, sizeof(kvr_event_t));
        ev.kind = KVR_STORE;
        ev.tier = KVR_DEVICE;
        ev.has_parent = from > 0;
        ev.parent = from ? (uint64_t) names[from - 1] : 0;
        ev.handles = handles;
        ev.nhandles = k;
        ev.locals = &locals[from];
        ev.nlocals = k;

        rc = kvr_simulate_write(s, worker, &ev);
        if (rc != KVR_OK) {
            return rc;
        }
    }

    return KVR_OK;
}


double
kvr_simulate_churn(const kvr_simulate_t *s, uint32_t worker, double now)
{
    return kvr_churn_read(&s->churn[worker], (uint32_t) now);
}


int
kvr_simulate_remove(kvr_simulate_t *s, uint32_t worker, const double *names,
    uint32_t n)
{
    int          rc;
    uint32_t     i, k, from;
    uint64_t     handles[KVR_SIMULATE_PART];
    kvr_event_t  ev;

    for (from = 0; from < n; from += k) {

        k = kvr_min(n - from, KVR_SIMULATE_PART);

        for (i = 0; i < k; i++) {
            handles[i] = (uint64_t) names[from + i];
        }

        memset(&ev, 0, sizeof(kvr_event_t));
        ev.kind = KVR_REMOVE;
        ev.tier = KVR_DEVICE;
        ev.handles = handles;
        ev.nhandles = k;

        rc = kvr_simulate_write(s, worker, &ev);
        if (rc != KVR_OK) {
            return rc;
        }
    }

    return KVR_OK;
}


int
kvr_simulate_clear(kvr_simulate_t *s, uint32_t worker)
{
    int          rc;
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(kvr_event_t));
    ev.kind = KVR_CLEAR;

    rc = kvr_simulate_write(s, worker, &ev);

    /* the memory of cleared views comes back */

    while (kvr_router_tend(&s->router, kvr_now_us() / 1000, 100000)) {
        /* void */
    }

    return rc;
}


static int
kvr_simulate_write(kvr_simulate_t *s, uint32_t worker, kvr_event_t *ev)
{
    char         id[16];
    uint32_t     unknown;
    kvr_why_t    why;
    const char  *detail;

    kvr_simulate_id(worker, id);

    return kvr_router_write(&s->router, id, strlen(id), ev,
                            kvr_now_us() / 1000, &unknown, &why, &detail);
}


void
kvr_simulate_find(kvr_simulate_t *s, const uint64_t *locals, uint32_t n,
    uint32_t *out)
{
    uint32_t  i, found;

    memset(out, 0, s->workers * sizeof(uint32_t));

    found = kvr_router_find(&s->router, locals, n, 0, false, s->matches,
                            s->max_holders);

    for (i = 0; i < found; i++) {
        out[s->worker_of[s->matches[i].holder]] = s->matches[i].device;
    }
}


void
kvr_simulate_flying(kvr_simulate_t *s, uint32_t router,
    const uint64_t *locals, uint32_t n, uint32_t *out)
{
    uint32_t  i;

    memset(s->depths, 0, s->max_holders * sizeof(kvr_inflight_depth_t));
    kvr_inflight_find(s->inflight[router], locals, n, s->depths,
                      s->max_holders);

    for (i = 0; i < s->workers; i++) {
        out[i] = s->depths[s->holders[i]].depth;
    }
}


uint32_t
kvr_simulate_fly(kvr_simulate_t *s, uint32_t router, uint32_t worker,
    const uint64_t *locals, uint32_t n, uint32_t known, uint32_t all,
    uint32_t *blocks)
{
    return kvr_inflight_add(s->inflight[router], s->holders[worker], 0, locals,
                            n, known, all, blocks);
}


uint32_t
kvr_simulate_land(kvr_simulate_t *s, uint32_t router, uint32_t worker,
    uint32_t request)
{
    return kvr_inflight_remove(s->inflight[router], s->holders[worker], 0,
                               request);
}


void
kvr_simulate_measured(kvr_simulate_t *s, uint32_t router, uint32_t worker,
    double tokens, double us)
{
    kvr_speed_add(&s->speeds[router][worker], 0, (uint64_t) tokens,
                  (int64_t) us);
}


void
kvr_simulate_speeds(kvr_simulate_t *s, uint32_t router, double *out)
{
    double    median, speed;
    uint32_t  i, n;

    n = 0;

    for (i = 0; i < s->workers; i++) {
        speed = kvr_speed_measured(&s->speeds[router][i], 0);

        if (speed > 0) {
            s->medians[n++] = speed;
        }
    }

    median = kvr_speed_median(s->medians, n);

    for (i = 0; i < s->workers; i++) {
        out[i] = kvr_speed_read(&s->speeds[router][i], 0, median);
    }
}


double
kvr_simulate_left(double queued, double prefills, double speed, double ms)
{
    return kvr_speed_left(queued, prefills, speed, ms);
}
