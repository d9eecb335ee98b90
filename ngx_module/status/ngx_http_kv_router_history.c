
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The last hour of a zone: its samples, and the part "history" of the status.
 */


#include "ngx_http_kv_router_history.h"


typedef struct {
    const char                     *name;
    ngx_uint_t                      series;    /* kvr_history_series_t */
    ngx_uint_t                      blocks;    /* told as tokens */
    double                          share;     /* of first bytes, in ms */
} ngx_http_kv_router_series_t;


static ngx_uint_t ngx_http_kv_router_well(
    const ngx_http_kv_router_worker_t *w);
static void ngx_http_kv_router_history_series(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_series_t *s, uint64_t last, yajl_gen g);
static void ngx_http_kv_router_history_value(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_series_t *s, uint64_t step, yajl_gen g);


static const ngx_http_kv_router_series_t  ngx_http_kv_router_series[] = {
    { "requests", KVR_HISTORY_REQUESTS, 0, 0 },
    { "prompt_tokens", KVR_HISTORY_PROMPT, 1, 0 },
    { "hit_tokens", KVR_HISTORY_OVERLAP, 1, 0 },
    { "best_tokens", KVR_HISTORY_BEST, 1, 0 },
    { "random_tokens", KVR_HISTORY_RANDOM, 1, 0 },
    { "least_loaded_tokens", KVR_HISTORY_LEAST_LOADED, 1, 0 },
    { "events", KVR_HISTORY_EVENTS, 0, 0 },
    { "failed", KVR_HISTORY_FAILED, 0, 0 },
    { "workers", KVR_HISTORY_WORKERS, 0, 0 },
    { "workers_well", KVR_HISTORY_WELL, 0, 0 },
    { "pairs", KVR_HISTORY_BLOCKS, 0, 0 },
    { "used_bytes", KVR_HISTORY_USED_BYTES, 0, 0 },
    { "waiting", KVR_HISTORY_WAITING, 0, 0 },
    { "active", KVR_HISTORY_ACTIVE, 0, 0 },
    { "first_byte_p50_ms", KVR_HISTORY_FIRST_BYTE, 0, 0.5 },
    { "first_byte_p90_ms", KVR_HISTORY_FIRST_BYTE, 0, 0.9 },
    { NULL, 0, 0, 0 }
};


void
ngx_http_kv_router_history_tend(ngx_http_kv_router_zone_t *zone)
{
    uint32_t                      i, steps, holder;
    uint64_t                      step, v[KVR_HISTORY_SERIES];
    kvr_stats_t                   stats;
    const kvr_histogram_t        *first;
    ngx_http_kv_router_rank_t     rank;
    ngx_http_kv_router_shctx_t   *sh;
    ngx_http_kv_router_worker_t   w;

    sh = zone->run.sh;
    step = kvr_history_due(&sh->history, ngx_current_msec);

    if (step == 0) {
        return;
    }

    ngx_memzero(v, sizeof(v));
    ngx_memzero(&stats, sizeof(kvr_stats_t));
    kvr_router_stats(&zone->run.router, &stats);

    v[KVR_HISTORY_REQUESTS] = ngx_http_kv_router_counter(sh, REQUESTS);
    v[KVR_HISTORY_PROMPT] = ngx_http_kv_router_counter(sh, PROMPT_BLOCKS);
    v[KVR_HISTORY_OVERLAP] = ngx_http_kv_router_counter(sh, OVERLAP_BLOCKS);
    v[KVR_HISTORY_BEST] = ngx_http_kv_router_counter(sh, BEST_BLOCKS);
    v[KVR_HISTORY_RANDOM] = ngx_http_kv_router_counter(sh, RANDOM_BLOCKS);
    v[KVR_HISTORY_LEAST_LOADED] =
        ngx_http_kv_router_counter(sh, LEAST_LOADED_BLOCKS);
    v[KVR_HISTORY_EVENTS] = ngx_http_kv_router_counter(sh, REDIS_MESSAGES);
    v[KVR_HISTORY_FAILED] = ngx_http_kv_router_counter(sh, FAILED);

    first = &sh->times[KVR_TIME_FIRST_BYTE];

    for (i = 0; i <= KVR_HISTOGRAM_BOUNDS; i++) {
        v[KVR_HISTORY_FIRST_BYTE + i] = kvr_load64(&first->counts[i]);
    }

    v[KVR_HISTORY_BLOCKS] = stats.pairs;
    v[KVR_HISTORY_USED_BYTES] = stats.used_bytes;
    v[KVR_HISTORY_WAITING] = kvr_load_waiting(&zone->run.router.load);

    for (i = 0; i < sh->nworkers; i++) {

        if (ngx_http_kv_router_read_worker(zone, i, &w) != NGX_OK) {
            continue;
        }

        v[KVR_HISTORY_WORKERS]++;
        v[KVR_HISTORY_WELL] += ngx_http_kv_router_well(&w);

        holder = KVR_HOLDER_NONE;
        steps = 0;

        while (ngx_http_kv_router_next_rank(zone, i, &holder, &steps, &rank)) {
            v[KVR_HISTORY_ACTIVE] += rank.row.active;
        }
    }

    kvr_history_write(&sh->history, step, v);
}


/* Is nothing wrong with the worker that keeps requests or overlap from it? */

static ngx_uint_t
ngx_http_kv_router_well(const ngx_http_kv_router_worker_t *w)
{
    return kvr_health_usable(w->health.state)
           && !(w->flags & (KVR_WORKER_DRAINS|KVR_WORKER_TRUNCATED))
           && w->confidence != KVR_DEGRADED
           && !(w->confidence == KVR_UNKNOWN
                && ngx_strcmp(w->reason, "none") != 0);
}


void
ngx_http_kv_router_history_json(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    uint64_t                            last;
    const ngx_http_kv_router_series_t  *s;

    /* the step that is running has no difference yet */

    last = kvr_history_step(ngx_current_msec);

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_u64(g, "now_ms", ngx_http_kv_router_unix_ms());
    ngx_http_kv_router_gen_u64(g, "step_s", KVR_HISTORY_STEP_S);

    ngx_http_kv_router_gen_map(g, "series");

    for (s = ngx_http_kv_router_series; s->name; s++) {
        ngx_http_kv_router_history_series(zone, s, last, g);
    }

    yajl_gen_map_close(g);
    yajl_gen_map_close(g);
}


/* One number a step, the newest one last. */

static void
ngx_http_kv_router_history_series(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_series_t *s, uint64_t last, yajl_gen g)
{
    uint64_t  n;

    ngx_http_kv_router_gen_array(g, s->name);

    for (n = KVR_HISTORY_STEPS - 1; n > 0; n--) {
        ngx_http_kv_router_history_value(zone, s, last >= n ? last - n + 1 : 0,
                                         g);
    }

    yajl_gen_array_close(g);
}


/* null: a sample is missing, or no answer came in this step. */

static void
ngx_http_kv_router_history_value(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_series_t *s, uint64_t step, yajl_gen g)
{
    double    ms;
    uint64_t  before[KVR_HISTORY_SERIES], after[KVR_HISTORY_SERIES];

    if (!kvr_history_read(&zone->run.sh->history, step, after)) {
        yajl_gen_null(g);
        return;
    }

    if (s->series >= KVR_HISTORY_COUNTERS) {
        yajl_gen_integer(g, after[s->series]);
        return;
    }

    if (!kvr_history_read(&zone->run.sh->history, step - 1, before)) {
        yajl_gen_null(g);
        return;
    }

    if (s->share == 0) {
        yajl_gen_integer(g, (after[s->series] - before[s->series])
                            * (s->blocks ? zone->conf.params.block_size : 1));
        return;
    }

    ms = kvr_history_first_byte_ms(before, after, s->share);

    if (ms < 0) {
        yajl_gen_null(g);

    } else {
        yajl_gen_double(g, ms);
    }
}
