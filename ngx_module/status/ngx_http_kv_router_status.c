
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The metrics of a zone, in the text format of Prometheus.
 */


#include "ngx_http_kv_router_metrics.h"
#include "ngx_http_kv_router_stats.h"
#include "../token/ngx_http_kv_router_turns.h"


/* a metric that each worker has, and what writes the samples of one worker */

typedef void ngx_http_kv_router_samples_t(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag);

typedef struct {
    const char                     *name;
    const char                     *help;
    ngx_http_kv_router_samples_t   *samples;
    uint32_t                        flag;      /* KVR_WORKER_… */
} ngx_http_kv_router_worker_metric_t;


static ngx_int_t ngx_http_kv_router_gather(ngx_http_request_t *r,
    ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_zone_metrics(ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_policy_metrics(
    ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_model_metrics(ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_worker_fields(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f);
static ngx_http_kv_router_samples_t
    ngx_http_kv_router_info_samples, ngx_http_kv_router_flag_samples,
    ngx_http_kv_router_confidence_samples, ngx_http_kv_router_degraded_samples,
    ngx_http_kv_router_age_samples, ngx_http_kv_router_trust_samples,
    ngx_http_kv_router_skipped_samples, ngx_http_kv_router_health_samples,
    ngx_http_kv_router_failures_samples, ngx_http_kv_router_responses_samples;
static void ngx_http_kv_router_ranks_metrics(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f, ngx_uint_t estimated);
static void ngx_http_kv_router_reports_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *help, size_t field);


static const ngx_http_kv_router_worker_metric_t
    ngx_http_kv_router_worker_metrics[] =
{
    { "worker_info", "What is known of a worker; always 1.",
      ngx_http_kv_router_info_samples, 0 },
    { "worker_draining", "Whether nothing new goes to the worker.",
      ngx_http_kv_router_flag_samples, KVR_WORKER_DRAINS },
    { "worker_truncated", "Whether blocks of the worker were forgotten.",
      ngx_http_kv_router_flag_samples, KVR_WORKER_TRUNCATED },
    { "worker_confidence", "How far the worker's view can be trusted: 1 for "
      "the state that it is in.", ngx_http_kv_router_confidence_samples, 0 },
    { "worker_degraded", "Why the worker's view is not to be trusted.",
      ngx_http_kv_router_degraded_samples, 0 },
    { "worker_message_age_seconds", "Time since the worker's last message.",
      ngx_http_kv_router_age_samples, 0 },
    { "worker_trust", "Whether the engine caches what is predicted: 1 for the "
      "state that the route is in.",
      ngx_http_kv_router_trust_samples, 0 },
    { "worker_events_skipped_total", "Events that changed nothing in the "
      "index.", ngx_http_kv_router_skipped_samples, 0 },
    { "worker_health", "Whether the worker can have requests: 1 for the state "
      "that it is in.", ngx_http_kv_router_health_samples, 0 },
    { "worker_failures_total", "Attempts that failed, by how.",
      ngx_http_kv_router_failures_samples, 0 },
    { "worker_responses_total", "Requests that ended, by the last worker "
      "tried and the status; \"none\": the client had no header.",
      ngx_http_kv_router_responses_samples, 0 },
    { NULL, NULL, NULL, 0 }
};


ngx_int_t
ngx_http_kv_router_prometheus(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, ngx_http_kv_router_answer_t *a,
    ngx_uint_t openmetrics)
{
    ngx_uint_t                                 i;
    ngx_http_kv_router_metrics_t               s;
    ngx_http_kv_router_worker_t               *w;
    const ngx_http_kv_router_worker_metric_t  *m;

    s.answer = a;
    s.zone = zone;
    s.name = NULL;
    s.key = NULL;
    s.openmetrics = openmetrics;

    if (ngx_http_kv_router_gather(r, &s) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_kv_router_zone_metrics(&s);
    ngx_http_kv_router_queue_metrics(&s);
    ngx_http_kv_router_saturation_metrics(&s);
    ngx_http_kv_router_policy_metrics(&s);
    ngx_http_kv_router_times_metrics(&s);
    ngx_http_kv_router_model_metrics(&s);

    w = s.workers.elts;

    for (m = ngx_http_kv_router_worker_metrics; m->name; m++) {
        ngx_http_kv_router_metric(&s, m->name, NULL, m->help);

        for (i = 0; i < s.workers.nelts; i++) {
            m->samples(&s, &w[i], m->flag);
        }
    }

    ngx_http_kv_router_worker_fields(&s, ngx_http_kv_router_counter_fields);
    ngx_http_kv_router_worker_fields(&s, ngx_http_kv_router_usage_fields);
    ngx_http_kv_router_worker_fields(&s, ngx_http_kv_router_health_fields);

    ngx_http_kv_router_ranks_metrics(&s, ngx_http_kv_router_held_fields, 0);
    ngx_http_kv_router_ranks_metrics(&s, ngx_http_kv_router_load_fields, 0);
    ngx_http_kv_router_ranks_metrics(&s, ngx_http_kv_router_speed_fields, 0);
    ngx_http_kv_router_ranks_metrics(&s, ngx_http_kv_router_estimate_fields,
                                     1);

    ngx_http_kv_router_reports_metric(&s, "worker_reported_waiting_requests",
                                      "Requests that wait in the engine, as "
                                      "it reports.",
                                      offsetof(kvr_report_load_t, waiting));
    ngx_http_kv_router_reports_metric(&s, "worker_reported_running_requests",
                                      "Requests that run in the engine, as it "
                                      "reports.",
                                      offsetof(kvr_report_load_t, running));
    ngx_http_kv_router_reports_metric(&s, "worker_reported_kv_usage",
                                      "Share of the engine's KV cache in use, "
                                      "as it reports.",
                                      offsetof(kvr_report_load_t, usage));

    if (openmetrics) {
        ngx_http_kv_router_answer_printf(a, "# EOF\n");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_gather(ngx_http_request_t *r,
    ngx_http_kv_router_metrics_t *s)
{
    uint32_t                      i, n, holder, steps;
    ngx_http_kv_router_rank_t     rank, *last;
    ngx_http_kv_router_worker_t   w, *worker;

    if (ngx_array_init(&s->workers, r->pool, 16,
                       sizeof(ngx_http_kv_router_worker_t))
        != NGX_OK
        || ngx_array_init(&s->ranks, r->pool, 16,
                          sizeof(ngx_http_kv_router_rank_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    n = kvr_router_workers(&s->zone->run.router);

    for (i = 0; i < n; i++) {

        if (ngx_http_kv_router_read_worker(s->zone, i, &w) != NGX_OK) {
            continue;
        }

        worker = ngx_array_push(&s->workers);
        if (worker == NULL) {
            return NGX_ERROR;
        }

        *worker = w;

        holder = KVR_HOLDER_NONE;
        steps = 0;

        while (ngx_http_kv_router_next_rank(s->zone, i, &holder, &steps,
                                            &rank))
        {
            last = ngx_array_push(&s->ranks);
            if (last == NULL) {
                return NGX_ERROR;
            }

            *last = rank;
            last->worker = s->workers.nelts - 1;
        }
    }

    return NGX_OK;
}


/* ---- the zone ----------------------------------------------------------- */

static void
ngx_http_kv_router_zone_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t                    i;
    kvr_stats_t                   stats;
    kvr_turns_stats_t             turns;
    ngx_http_kv_router_zone_t    *zone;
    ngx_http_kv_router_routed_t   routed;

    zone = s->zone;

    ngx_http_kv_router_metric(s, "build_info", NULL, "Versions of the module "
                              "and of nginx; always 1.");
    ngx_http_kv_router_labels(s, "", NULL);
    ngx_http_kv_router_label_str(s, "version", KVR_VERSION);
    ngx_http_kv_router_label_str(s, "nginx", NGINX_VERSION);
    ngx_http_kv_router_value(s, 1, 0);

    ngx_memzero(&stats, sizeof(kvr_stats_t));
    kvr_router_stats(&zone->run.router, &stats);

    ngx_http_kv_router_fields_metrics(s, ngx_http_kv_router_memory_fields,
                                      &stats);
    ngx_http_kv_router_fields_metrics(s, ngx_http_kv_router_index_fields,
                                      &stats);

    if (zone->conf.turns) {
        kvr_turns_stats(&zone->conf.turns->cache, &turns);
        ngx_http_kv_router_fields_metrics(s, ngx_http_kv_router_turns_fields,
                                          &turns);
    }

    ngx_http_kv_router_fields_metrics(s, ngx_http_kv_router_counters,
                                      zone->run.sh);

    ngx_http_kv_router_read_routed(zone, &routed);
    ngx_http_kv_router_fields_metrics(s, ngx_http_kv_router_routed_fields,
                                      &routed);

    if (zone->conf.redis) {
        ngx_http_kv_router_metric(s, "redis_up", NULL, "Whether the "
                                  "subscription to Redis stands, of all "
                                  "shards.");
        ngx_http_kv_router_sample(s, NULL, NULL, NULL,
                                  ngx_http_kv_router_redis_up(zone));
    }

    ngx_http_kv_router_sync_metrics(s);

    ngx_http_kv_router_metric(s, "decisions_total", NULL, "Requests routed, "
                              "by what decided.");

    for (i = 0; i < NGX_HTTP_KV_ROUTER_REASONS; i++) {
        ngx_http_kv_router_sample(s, NULL, "reason",
                                  ngx_http_kv_router_why_name(i),
                                  zone->run.sh->by_reason[i]);
    }

    ngx_http_kv_router_metric(s, "tokens_total", NULL, "Requests routed, by "
                              "where the token ids of their prompts came "
                              "from.");

    for (i = 0; i < NGX_HTTP_KV_ROUTER_RUNGS; i++) {
        ngx_http_kv_router_sample(s, NULL, "by",
                                  ngx_http_kv_router_rung_name(i),
                                  zone->run.sh->by_rung[i]);
    }
}


static void
ngx_http_kv_router_policy_metrics(ngx_http_kv_router_metrics_t *s)
{
    uint32_t                    i;
    uint64_t                    count;
    ngx_str_t                   policy, reason;
    ngx_http_kv_router_zone_t  *zone;

    zone = s->zone;

    if (zone->run.policy.len) {
        ngx_http_kv_router_metric(s, "policy_info", NULL, "The policy of the "
                                  "zone's router, and the settings that were "
                                  "given; always 1.");
        ngx_http_kv_router_labels(s, "", NULL);
        ngx_http_kv_router_label(s, "policy", &zone->run.policy);
        ngx_http_kv_router_label(s, "settings", &zone->run.policy_conf);
        ngx_http_kv_router_value(s, 1, 0);
    }

    ngx_http_kv_router_metric(s, "policy_reasons_total", NULL, "Requests "
                              "routed, by the reason that the policy gave; "
                              "those beyond 64 reasons have none.");

    for (i = 0; i <= KVR_TALLY_WORDS; i++) {

        if (ngx_http_kv_router_reason_read(zone, i, &policy, &reason, &count))
        {
            ngx_http_kv_router_labels(s, "", NULL);
            ngx_http_kv_router_label(s, "policy", &policy);
            ngx_http_kv_router_label(s, "reason", &reason);
            ngx_http_kv_router_value(s, count, 0);
        }
    }
}


static void
ngx_http_kv_router_model_metrics(ngx_http_kv_router_metrics_t *s)
{
    const char  *state, *why;

    if (s->zone->conf.model == NULL) {
        return;
    }

    state = ngx_http_kv_router_model_state(s->zone, &why);

    ngx_http_kv_router_metric(s, "model", NULL, "The state of the zone's "
                              "model: ready, loaded, refused; always 1.");
    ngx_http_kv_router_sample(s, NULL, "state", state, 1);
}


/* ---- workers ------------------------------------------------------------ */

static void
ngx_http_kv_router_worker_fields(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f)
{
    ngx_uint_t                    i;
    ngx_http_kv_router_worker_t  *w;

    w = s->workers.elts;

    for ( /* void */ ; f->key; f++) {

        if (f->metric == NULL) {
            continue;
        }

        ngx_http_kv_router_metric(s, f->metric, NULL, f->help);

        for (i = 0; i < s->workers.nelts; i++) {
            ngx_http_kv_router_labels(s, "", &w[i]);
            ngx_http_kv_router_field_sample(s, f, &w[i]);
        }
    }
}


static void
ngx_http_kv_router_info_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    ngx_http_kv_router_labels(s, "", w);
    ngx_http_kv_router_label_str(s, "address", w->conf.address);
    ngx_http_kv_router_label_str(s, "model", w->conf.model);
    ngx_http_kv_router_label_str(s, "role", kvr_role_name(w->conf.role));
    ngx_http_kv_router_label_str(s, "origin",
                                 ngx_http_kv_router_origin(w->flags));
    ngx_http_kv_router_label_str(s, "source",
                                 kvr_source_name(w->stream.source));

    /* by the router's probe, once it has ended */

    if (w->rungs.rungs & KVR_RUNG_KNOWN) {
        ngx_http_kv_router_label_str(s, "engine",
                                     kvr_engine_name(w->rungs.engine));
        ngx_http_kv_router_label_str(s, "version", w->rungs.version);
    }

    ngx_http_kv_router_value(s, 1, 0);
}


static void
ngx_http_kv_router_flag_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    ngx_http_kv_router_sample(s, w, NULL, NULL, (w->flags & flag) != 0);
}


static void
ngx_http_kv_router_confidence_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    ngx_uint_t  i;

    for (i = KVR_UNKNOWN; i <= KVR_ESTIMATED; i++) {
        ngx_http_kv_router_sample(s, w, "state", kvr_confidence_name(i),
                                  i == w->confidence);
    }
}


static void
ngx_http_kv_router_degraded_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    if (ngx_strcmp(w->reason, "none") != 0) {
        ngx_http_kv_router_sample(s, w, "reason", w->reason, 1);
    }
}


static void
ngx_http_kv_router_age_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    if (w->age >= 0) {
        ngx_http_kv_router_labels(s, "", w);
        ngx_http_kv_router_value(s, w->age, 3);
    }
}


/* A route without an echo has no sample: few routes of the many are used. */

static void
ngx_http_kv_router_trust_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    ngx_uint_t  i, state;

    for (i = 0; i < KVR_ROUTES; i++) {
        for (state = 0; ngx_http_kv_router_echoed(&w->trust[i])
                        && state < KVR_TRUST_STATES; state++)
        {
            ngx_http_kv_router_labels(s, "", w);
            ngx_http_kv_router_label_str(s, "route", kvr_route_name(i));
            ngx_http_kv_router_label_str(s, "state", kvr_trust_name(state));
            ngx_http_kv_router_value(s, state == w->trust[i].state, 0);
        }
    }
}


/* A reason that never occurred has no sample: there are many reasons. */

static void
ngx_http_kv_router_skipped_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    ngx_uint_t  i;

    for (i = KVR_WHY_NONE + 1; i < KVR_WHYS; i++) {
        if (w->counters.why[i]) {
            ngx_http_kv_router_sample(s, w, "reason", kvr_why_name(i),
                                      w->counters.why[i]);
        }
    }
}


static void
ngx_http_kv_router_health_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    ngx_uint_t  i;

    for (i = 0; i < KVR_HEALTH_STATES; i++) {
        ngx_http_kv_router_sample(s, w, "state", kvr_health_name(i),
                                  i == w->health.state);
    }
}


static void
ngx_http_kv_router_failures_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    ngx_uint_t  i;

    for (i = 0; i < KVR_FAILURES; i++) {
        ngx_http_kv_router_sample(s, w, "kind", kvr_failure_name(i),
                                  w->health.counters.failures[i]);
    }
}


static void
ngx_http_kv_router_responses_samples(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, uint32_t flag)
{
    ngx_uint_t  i;

    kvr_served_read(&s->zone->run.sh->served[w->slot], w->generation,
                    &s->served);

    for (i = 0; i < KVR_SERVED_STATUSES; i++) {
        ngx_http_kv_router_sample(s, w, "status", kvr_served_status_name(i),
                                  s->served.statuses[i]);
    }
}


/* ---- ranks -------------------------------------------------------------- */

static void
ngx_http_kv_router_ranks_metrics(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f, ngx_uint_t estimated)
{
    ngx_uint_t                    i;
    ngx_http_kv_router_rank_t    *rank;
    ngx_http_kv_router_worker_t  *w;

    w = s->workers.elts;
    rank = s->ranks.elts;

    for ( /* void */ ; f->key; f++) {

        if (f->metric == NULL) {
            continue;
        }

        ngx_http_kv_router_metric(s, f->metric, NULL, f->help);

        for (i = 0; i < s->ranks.nelts; i++) {

            if (estimated && !rank[i].estimated) {
                continue;
            }

            ngx_http_kv_router_labels(s, "", &w[rank[i].worker]);
            ngx_http_kv_router_answer_printf(s->answer, ",dp_rank=\"%uD\"",
                                             rank[i].rank);
            ngx_http_kv_router_field_sample(s, f, &rank[i]);
        }
    }
}


/* An unknown value has no sample. */

static void
ngx_http_kv_router_reports_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *help, size_t field)
{
    double                        value;
    ngx_uint_t                    i;
    ngx_http_kv_router_rank_t    *rank;
    ngx_http_kv_router_worker_t  *w;

    w = s->workers.elts;
    rank = s->ranks.elts;

    ngx_http_kv_router_metric(s, name, NULL, help);

    for (i = 0; i < s->ranks.nelts; i++) {

        value = *(double *) ((u_char *) &rank[i].report + field);

        if (value < 0) {
            continue;
        }

        ngx_http_kv_router_labels(s, "", &w[rank[i].worker]);
        ngx_http_kv_router_answer_printf(s->answer, ",dp_rank=\"%uD\"",
                                         rank[i].rank);
        ngx_http_kv_router_value(s, (uint64_t) (value * 1e6 + 0.5), 6);
    }
}
