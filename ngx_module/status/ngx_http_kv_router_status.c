
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The metrics of a zone, in the text format of Prometheus.
 */


#include "ngx_http_kv_router_metrics.h"
#include "ngx_http_kv_router_watch.h"
#include "../token/ngx_http_kv_router_turns.h"


static ngx_int_t ngx_http_kv_router_gather(ngx_http_request_t *r,
    ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_fields_metrics(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f, const void *base);
static void ngx_http_kv_router_leases_metric(ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_reasons_metric(ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_tokens_metric(ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_rungs_metrics(ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_workers_metrics(
    ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_flag_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *help, uint32_t flag);
static void ngx_http_kv_router_ms_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *help, size_t offset);
static void ngx_http_kv_router_counters_metrics(
    ngx_http_kv_router_metrics_t *s, const ngx_http_kv_router_field_t *f,
    size_t offset);
static void ngx_http_kv_router_trust_metrics(ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_route_labels(ngx_http_kv_router_metrics_t *s,
    const char *name, const ngx_http_kv_router_worker_t *w, uint32_t route);
static void ngx_http_kv_router_whys_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *help, ngx_uint_t from, ngx_uint_t to);
static void ngx_http_kv_router_health_metrics(
    ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_ranks_metrics(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f);
static void ngx_http_kv_router_loads_metrics(
    ngx_http_kv_router_metrics_t *s);
static void ngx_http_kv_router_reports_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *help, size_t field);


ngx_int_t
ngx_http_kv_router_prometheus(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, ngx_http_kv_router_answer_t *a,
    ngx_uint_t openmetrics)
{
    kvr_stats_t                   stats;
    kvr_turns_stats_t             turns;
    ngx_http_kv_router_metrics_t  s;

    s.answer = a;
    s.zone = zone;
    s.openmetrics = openmetrics;

    if (ngx_http_kv_router_gather(r, &s) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_memzero(&stats, sizeof(kvr_stats_t));
    kvr_router_stats(&zone->router, &stats);

    ngx_http_kv_router_fields_metrics(&s, ngx_http_kv_router_memory_fields,
                                      &stats);
    ngx_http_kv_router_fields_metrics(&s, ngx_http_kv_router_index_fields,
                                      &stats);
    ngx_http_kv_router_fields_metrics(&s, ngx_http_kv_router_frequency_fields,
                                      &stats);

    if (zone->turns) {
        kvr_turns_stats(&zone->turns->cache, &turns);
        ngx_http_kv_router_fields_metrics(&s, ngx_http_kv_router_turns_fields,
                                          &turns);
    }

    ngx_http_kv_router_leases_metric(&s);

    if (zone->sh) {
        ngx_http_kv_router_fields_metrics(&s,
                                          ngx_http_kv_router_request_fields,
                                          zone->sh);
        ngx_http_kv_router_reasons_metric(&s);
        ngx_http_kv_router_tokens_metric(&s);
        ngx_http_kv_router_local_metrics(&s);
        ngx_http_kv_router_fields_metrics(&s,
                                          ngx_http_kv_router_question_fields,
                                          zone->sh);
        ngx_http_kv_router_fields_metrics(&s, ngx_http_kv_router_scrape_fields,
                                          zone->sh);
        ngx_http_kv_router_fields_metrics(&s, ngx_http_kv_router_name_fields,
                                          zone->sh);
        ngx_http_kv_router_fields_metrics(&s, ngx_http_kv_router_echo_fields,
                                          zone->sh);
    }

    if (zone->sh && zone->redis) {
        ngx_http_kv_router_metric(&s, "redis_up", "gauge",
                                  "Whether the subscription to Redis stands, "
                                  "of all shards.");
        ngx_http_kv_router_labels(&s, "redis_up", NULL);
        ngx_http_kv_router_value(&s, ngx_http_kv_router_redis_up(zone));

        ngx_http_kv_router_fields_metrics(&s, ngx_http_kv_router_redis_fields,
                                          zone->sh);
    }

    ngx_http_kv_router_workers_metrics(&s);
    ngx_http_kv_router_rungs_metrics(&s);
    ngx_http_kv_router_health_metrics(&s);
    ngx_http_kv_router_loads_metrics(&s);
    ngx_http_kv_router_estimates_metrics(&s);

    if (zone->sh) {
        ngx_http_kv_router_histograms_metrics(&s);
    }

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
    ngx_http_kv_router_load_t     load;
    ngx_http_kv_router_rank_t    *rank;
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

    n = kvr_router_workers(&s->zone->router);

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

        while (ngx_http_kv_router_next_load(s->zone, i, &holder, &steps,
                                            &load))
        {
            rank = ngx_array_push(&s->ranks);
            if (rank == NULL) {
                return NGX_ERROR;
            }

            rank->worker = s->workers.nelts - 1;
            rank->load = load;
            (void) ngx_http_kv_router_read_report(s->zone, holder,
                                                  &rank->report);
        }
    }

    return NGX_OK;
}


static void
ngx_http_kv_router_fields_metrics(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f, const void *base)
{
    uint64_t  value;

    for ( /* void */ ; f->key; f++) {

        value = ngx_http_kv_router_field(f, base);

        ngx_http_kv_router_metric(s, f->metric,
                                  f->counter ? "counter" : "gauge", f->help);
        ngx_http_kv_router_labels(s, f->metric, NULL);

        if (f->us) {
            ngx_http_kv_router_answer_printf(s->answer, "} %uL.%06uL\n",
                                             value / 1000000,
                                             value % 1000000);
            continue;
        }

        ngx_http_kv_router_value(s, value);
    }
}


static void
ngx_http_kv_router_leases_metric(ngx_http_kv_router_metrics_t *s)
{
    u_char    number[NGX_INT32_LEN], *last;
    uint32_t  i, pid;
    uint64_t  token;

    ngx_http_kv_router_metric(s, "lease_pid", "gauge",
                              "Process that consumes the events of a shard's "
                              "workers; 0: none.");

    for (i = 0; i < s->zone->params.shards; i++) {

        kvr_router_lease_holder(&s->zone->router, i, &pid, &token);

        last = ngx_sprintf(number, "%uD", i);

        ngx_http_kv_router_labels(s, "lease_pid", NULL);
        ngx_http_kv_router_answer_write(s->answer, ",", 1);
        ngx_http_kv_router_label(s, "shard", number, last - number);
        ngx_http_kv_router_value(s, pid);
    }
}


static void
ngx_http_kv_router_reasons_metric(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t   i;
    const char  *name;

    ngx_http_kv_router_metric(s, "never_matched", "gauge",
                              "Whether blocks are held and no prompt ever "
                              "found one.");
    ngx_http_kv_router_labels(s, "never_matched", NULL);
    ngx_http_kv_router_value(s, ngx_http_kv_router_never_matched(s->zone));

    ngx_http_kv_router_metric(s, "decisions_total", "counter",
                              "Requests routed, by what decided.");

    for (i = 0; i < NGX_HTTP_KV_ROUTER_REASONS; i++) {

        name = ngx_http_kv_router_why_name(i);

        if (name == NULL) {
            continue;
        }

        ngx_http_kv_router_labels(s, "decisions_total", NULL);
        ngx_http_kv_router_answer_write(s->answer, ",", 1);
        ngx_http_kv_router_label_str(s, "reason", name);
        ngx_http_kv_router_value(s, s->zone->sh->by_reason[i]);
    }
}


static void
ngx_http_kv_router_tokens_metric(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t  i;

    ngx_http_kv_router_metric(s, "tokens_total", "counter",
                              "Requests routed, by where the token ids of "
                              "their prompts came from.");

    for (i = 0; i < NGX_HTTP_KV_ROUTER_RUNGS; i++) {
        ngx_http_kv_router_labels(s, "tokens_total", NULL);
        ngx_http_kv_router_answer_write(s->answer, ",", 1);
        ngx_http_kv_router_label_str(s, "by", ngx_http_kv_router_rung_name(i));
        ngx_http_kv_router_value(s, s->zone->sh->by_rung[i]);
    }
}


/* A worker that was not probed yet has no sample. */

static void
ngx_http_kv_router_rungs_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t                    i, k;
    ngx_http_kv_router_answer_t  *a;
    ngx_http_kv_router_worker_t  *w;

    a = s->answer;
    w = s->workers.elts;

    ngx_http_kv_router_metric(s, "worker_engine", "gauge",
                              "What engine the worker is, by the router's "
                              "probe; always 1.");

    for (i = 0; i < s->workers.nelts; i++) {

        if (!(w[i].rungs.rungs & KVR_RUNG_KNOWN)) {
            continue;
        }

        ngx_http_kv_router_labels(s, "worker_engine", &w[i]);
        ngx_http_kv_router_answer_write(a, ",", 1);
        ngx_http_kv_router_label_str(s, "engine",
                                     kvr_engine_name(w[i].rungs.engine));
        ngx_http_kv_router_answer_write(a, ",", 1);
        ngx_http_kv_router_label_str(s, "version", w[i].rungs.version);
        ngx_http_kv_router_value(s, 1);
    }

    ngx_http_kv_router_metric(s, "worker_rung", "gauge",
                              "Whether the worker can be asked for the token "
                              "ids of texts, by the router's probe.");

    for (i = 0; i < s->workers.nelts; i++) {

        if (!(w[i].rungs.rungs & KVR_RUNG_KNOWN)) {
            continue;
        }

        for (k = 0; k < KVR_RUNGS_MAX; k++) {
            ngx_http_kv_router_labels(s, "worker_rung", &w[i]);
            ngx_http_kv_router_answer_write(a, ",", 1);
            ngx_http_kv_router_label_str(s, "rung", kvr_rungs_name(k));
            ngx_http_kv_router_value(s, (w[i].rungs.rungs >> k) & 1);
        }
    }
}


static void
ngx_http_kv_router_workers_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t                    i, c;
    ngx_http_kv_router_answer_t  *a;
    ngx_http_kv_router_worker_t  *w;

    a = s->answer;
    w = s->workers.elts;

    ngx_http_kv_router_metric(s, "worker_info", "gauge",
                              "What is known of a worker; always 1.");

    for (i = 0; i < s->workers.nelts; i++) {
        ngx_http_kv_router_labels(s, "worker_info", &w[i]);
        ngx_http_kv_router_answer_write(a, ",", 1);
        ngx_http_kv_router_label_str(s, "address", w[i].conf.address);
        ngx_http_kv_router_answer_write(a, ",", 1);
        ngx_http_kv_router_label_str(s, "model", w[i].conf.model);
        ngx_http_kv_router_answer_write(a, ",", 1);
        ngx_http_kv_router_label_str(s, "role",
                                     kvr_role_name(w[i].conf.role));
        ngx_http_kv_router_answer_write(a, ",", 1);
        ngx_http_kv_router_label_str(s, "origin",
                                     ngx_http_kv_router_origin(w[i].flags));
        ngx_http_kv_router_answer_write(a, ",", 1);
        ngx_http_kv_router_label_str(s, "source",
                                     kvr_source_name(w[i].stream.source));
        ngx_http_kv_router_value(s, 1);
    }

    ngx_http_kv_router_metric(s, "worker_resolved", "gauge",
                              "Whether the host name of the worker has an "
                              "address; 0: nothing goes to the worker.");

    for (i = 0; i < s->workers.nelts; i++) {
        if (w[i].mark) {
            ngx_http_kv_router_labels(s, "worker_resolved", &w[i]);
            ngx_http_kv_router_value(s, w[i].name.address[0] != '\0');
        }
    }

    ngx_http_kv_router_flag_metric(s, "worker_draining",
                                   "Whether nothing new goes to the worker.",
                                   KVR_WORKER_DRAINING);
    ngx_http_kv_router_flag_metric(s, "worker_truncated",
                                   "Whether blocks of the worker were "
                                   "forgotten.", KVR_WORKER_TRUNCATED);
    ngx_http_kv_router_flag_metric(s, "worker_hybrid",
                                   "Whether the worker has KV cache groups "
                                   "that are not indexed: overlaps are upper "
                                   "bounds.", KVR_WORKER_HYBRID);

    ngx_http_kv_router_metric(s, "worker_confidence", "gauge",
                              "How far the worker's view can be trusted: 1 "
                              "for the state that it is in.");

    for (i = 0; i < s->workers.nelts; i++) {
        for (c = KVR_UNKNOWN; c <= KVR_ESTIMATED; c++) {
            ngx_http_kv_router_labels(s, "worker_confidence", &w[i]);
            ngx_http_kv_router_answer_write(a, ",", 1);
            ngx_http_kv_router_label_str(s, "state", kvr_confidence_name(c));
            ngx_http_kv_router_value(s, c == w[i].confidence);
        }
    }

    ngx_http_kv_router_metric(s, "worker_degraded", "gauge",
                              "Why the worker's view is not to be trusted.");

    for (i = 0; i < s->workers.nelts; i++) {

        if (ngx_strcmp(w[i].reason, "none") != 0) {
            ngx_http_kv_router_labels(s, "worker_degraded", &w[i]);
            ngx_http_kv_router_answer_write(a, ",", 1);
            ngx_http_kv_router_label_str(s, "reason", w[i].reason);
            ngx_http_kv_router_value(s, 1);
        }
    }

    ngx_http_kv_router_ms_metric(s, "worker_message_age_seconds",
                                 "Time since the worker's last message.",
                                 offsetof(ngx_http_kv_router_worker_t, age));
    ngx_http_kv_router_ms_metric(s, "worker_registration_ttl_seconds",
                                 "Until the worker's registration in Redis "
                                 "expires.",
                                 offsetof(ngx_http_kv_router_worker_t, ttl));

    ngx_http_kv_router_metric(s, "worker_epoch", "gauge",
                              "Incarnation of the worker's publisher.");

    for (i = 0; i < s->workers.nelts; i++) {
        ngx_http_kv_router_labels(s, "worker_epoch", &w[i]);
        ngx_http_kv_router_value(s, w[i].stream.epoch);
    }

    ngx_http_kv_router_metric(s, "worker_seq", "gauge",
                              "Last message of the epoch that was applied.");

    for (i = 0; i < s->workers.nelts; i++) {
        ngx_http_kv_router_labels(s, "worker_seq", &w[i]);
        ngx_http_kv_router_value(s, w[i].stream.seq);
    }

    ngx_http_kv_router_counters_metrics(s, ngx_http_kv_router_counter_fields,
                                        offsetof(ngx_http_kv_router_worker_t,
                                                 counters));

    ngx_http_kv_router_counters_metrics(s, ngx_http_kv_router_usage_fields,
                                        offsetof(ngx_http_kv_router_worker_t,
                                                 usage));

    ngx_http_kv_router_metric(s, "worker_watchdog", "gauge",
                              "Whether what the engine has cached has nothing "
                              "to do with what is known of it, and in which "
                              "way.");

    for (i = 0; i < s->workers.nelts; i++) {
        for (c = KVR_USAGE_NEVER_MATCHED; c < KVR_USAGE_VERDICTS; c++) {
            ngx_http_kv_router_labels(s, "worker_watchdog", &w[i]);
            ngx_http_kv_router_answer_write(a, ",", 1);
            ngx_http_kv_router_label_str(s, "reason",
                                         kvr_usage_verdict_name(c));
            ngx_http_kv_router_value(s, c == w[i].verdict);
        }
    }

    ngx_http_kv_router_trust_metrics(s);

    ngx_http_kv_router_whys_metric(s, "worker_events_filtered_total",
                                   "Events that are not for the index.",
                                   KVR_WHY_NONE + 1, KVR_WHY_SYNTAX);
    ngx_http_kv_router_whys_metric(s, "worker_events_refused_total",
                                   "Events that were wrong.",
                                   KVR_WHY_SYNTAX, KVR_WHY_FULL);
    ngx_http_kv_router_whys_metric(s, "worker_events_forgotten_total",
                                   "Events for which there was no room, or "
                                   "that hung on what is not known any more.",
                                   KVR_WHY_FULL, KVR_WHYS);
}


static void
ngx_http_kv_router_flag_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *help, uint32_t flag)
{
    ngx_uint_t                    i;
    ngx_http_kv_router_worker_t  *w;

    w = s->workers.elts;

    ngx_http_kv_router_metric(s, name, "gauge", help);

    for (i = 0; i < s->workers.nelts; i++) {
        ngx_http_kv_router_labels(s, name, &w[i]);
        ngx_http_kv_router_value(s, (w[i].flags & flag) != 0);
    }
}


/* offset: of the milliseconds in a worker; a negative value has no sample. */

static void
ngx_http_kv_router_ms_metric(ngx_http_kv_router_metrics_t *s, const char *name,
    const char *help, size_t offset)
{
    int64_t                       ms;
    ngx_uint_t                    i;
    ngx_http_kv_router_worker_t  *w;

    w = s->workers.elts;

    ngx_http_kv_router_metric(s, name, "gauge", help);

    for (i = 0; i < s->workers.nelts; i++) {

        ms = *(int64_t *) ((u_char *) &w[i] + offset);

        if (ms >= 0) {
            ngx_http_kv_router_labels(s, name, &w[i]);
            ngx_http_kv_router_answer_printf(s->answer, "} %L.%03L\n",
                                             ms / 1000, ms % 1000);
        }
    }
}


/* offset: in a worker, of the structure that has the fields f. */

static void
ngx_http_kv_router_counters_metrics(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f, size_t offset)
{
    ngx_uint_t                    i;
    ngx_http_kv_router_worker_t  *w;

    w = s->workers.elts;

    for ( /* void */ ; f->key; f++) {

        ngx_http_kv_router_metric(s, f->metric, "counter", f->help);

        for (i = 0; i < s->workers.nelts; i++) {
            ngx_http_kv_router_labels(s, f->metric, &w[i]);
            ngx_http_kv_router_value(s,
                ngx_http_kv_router_field(f, (u_char *) &w[i] + offset));
        }
    }
}


/* A route without an echo has no sample: few routes of the many are used. */

static void
ngx_http_kv_router_trust_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t                         i, k, state;
    ngx_http_kv_router_worker_t       *w;
    const ngx_http_kv_router_field_t  *f;

    w = s->workers.elts;

    ngx_http_kv_router_metric(s, "worker_trust", "gauge",
                              "Whether the engine computes the token ids that "
                              "are hashed here, as its echoes show: 1 for the "
                              "state that the route is in.");

    for (i = 0; i < s->workers.nelts; i++) {
        for (k = 0; k < KVR_ROUTES; k++) {
            for (state = 0; ngx_http_kv_router_echoed(&w[i].trust[k])
                            && state < KVR_TRUST_STATES; state++)
            {
                ngx_http_kv_router_route_labels(s, "worker_trust", &w[i], k);
                ngx_http_kv_router_answer_write(s->answer, ",", 1);
                ngx_http_kv_router_label_str(s, "state",
                                             kvr_trust_name(state));
                ngx_http_kv_router_value(s, state == w[i].trust[k].state);
            }
        }
    }

    for (f = ngx_http_kv_router_trust_fields; f->key; f++) {

        ngx_http_kv_router_metric(s, f->metric, "counter", f->help);

        for (i = 0; i < s->workers.nelts; i++) {
            for (k = 0; k < KVR_ROUTES; k++) {

                if (!ngx_http_kv_router_echoed(&w[i].trust[k])) {
                    continue;
                }

                ngx_http_kv_router_route_labels(s, f->metric, &w[i], k);
                ngx_http_kv_router_value(s,
                    ngx_http_kv_router_field(f, &w[i].trust[k]));
            }
        }
    }
}


static void
ngx_http_kv_router_route_labels(ngx_http_kv_router_metrics_t *s,
    const char *name, const ngx_http_kv_router_worker_t *w, uint32_t route)
{
    ngx_http_kv_router_labels(s, name, w);
    ngx_http_kv_router_answer_write(s->answer, ",", 1);
    ngx_http_kv_router_label_str(s, "route", kvr_route_name(route));
}


/* A reason that never occurred has no sample: there are many reasons. */

static void
ngx_http_kv_router_whys_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *help, ngx_uint_t from, ngx_uint_t to)
{
    ngx_uint_t                    i, why;
    ngx_http_kv_router_worker_t  *w;

    ngx_http_kv_router_metric(s, name, "counter", help);

    w = s->workers.elts;

    for (i = 0; i < s->workers.nelts; i++) {

        for (why = from; why < to; why++) {

            if (w[i].counters.why[why] == 0) {
                continue;
            }

            ngx_http_kv_router_labels(s, name, &w[i]);
            ngx_http_kv_router_answer_write(s->answer, ",", 1);
            ngx_http_kv_router_label_str(s, "reason", kvr_why_name(why));
            ngx_http_kv_router_value(s, w[i].counters.why[why]);
        }
    }
}


static void
ngx_http_kv_router_health_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t                    i, k;
    ngx_http_kv_router_answer_t  *a;
    ngx_http_kv_router_worker_t  *w;

    a = s->answer;
    w = s->workers.elts;

    ngx_http_kv_router_metric(s, "worker_health", "gauge",
                              "Whether the worker can have requests: 1 for "
                              "the state that it is in.");

    for (i = 0; i < s->workers.nelts; i++) {
        for (k = 0; k < KVR_HEALTH_STATES; k++) {
            ngx_http_kv_router_labels(s, "worker_health", &w[i]);
            ngx_http_kv_router_answer_write(a, ",", 1);
            ngx_http_kv_router_label_str(s, "state", kvr_health_name(k));
            ngx_http_kv_router_value(s, k == w[i].health.state);
        }
    }

    ngx_http_kv_router_metric(s, "worker_failures_total", "counter",
                              "Attempts that failed, by how.");

    for (i = 0; i < s->workers.nelts; i++) {
        for (k = 0; k < KVR_FAILURES; k++) {
            ngx_http_kv_router_labels(s, "worker_failures_total", &w[i]);
            ngx_http_kv_router_answer_write(a, ",", 1);
            ngx_http_kv_router_label_str(s, "kind", kvr_failure_name(k));
            ngx_http_kv_router_value(s, w[i].health.counters.failures[k]);
        }
    }

    ngx_http_kv_router_counters_metrics(s, ngx_http_kv_router_health_fields,
                                        offsetof(ngx_http_kv_router_worker_t,
                                                 health.counters));
}


static void
ngx_http_kv_router_ranks_metrics(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f)
{
    ngx_uint_t                    i;
    ngx_http_kv_router_rank_t    *rank;
    ngx_http_kv_router_worker_t  *w;

    w = s->workers.elts;
    rank = s->ranks.elts;

    for ( /* void */ ; f->key; f++) {

        ngx_http_kv_router_metric(s, f->metric, "gauge", f->help);

        for (i = 0; i < s->ranks.nelts; i++) {
            ngx_http_kv_router_labels(s, f->metric, &w[rank[i].worker]);
            ngx_http_kv_router_answer_printf(s->answer, ",dp_rank=\"%uD\"",
                                             rank[i].load.rank);
            ngx_http_kv_router_value(s,
                ngx_http_kv_router_field(f, &rank[i].load));
        }
    }
}


static void
ngx_http_kv_router_loads_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_http_kv_router_ranks_metrics(s, ngx_http_kv_router_held_fields);
    ngx_http_kv_router_ranks_metrics(s, ngx_http_kv_router_load_fields);
    ngx_http_kv_router_ranks_metrics(s, ngx_http_kv_router_speed_fields);

    ngx_http_kv_router_reports_metric(s, "worker_reported_waiting_requests",
                                      "Requests that wait in the engine, as "
                                      "it reports.",
                                      offsetof(kvr_report_load_t, waiting));
    ngx_http_kv_router_reports_metric(s, "worker_reported_running_requests",
                                      "Requests that run in the engine, as it "
                                      "reports.",
                                      offsetof(kvr_report_load_t, running));
    ngx_http_kv_router_reports_metric(s, "worker_reported_kv_usage",
                                      "Share of the engine's KV cache in use, "
                                      "as it reports.",
                                      offsetof(kvr_report_load_t, usage));
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

    ngx_http_kv_router_metric(s, name, "gauge", help);

    w = s->workers.elts;
    rank = s->ranks.elts;

    for (i = 0; i < s->ranks.nelts; i++) {

        value = *(double *) ((u_char *) &rank[i].report + field);

        if (value < 0) {
            continue;
        }

        ngx_http_kv_router_labels(s, name, &w[rank[i].worker]);
        ngx_http_kv_router_answer_printf(s->answer, ",dp_rank=\"%uD\"} %.6f\n",
                                         rank[i].load.rank, value);
    }
}
