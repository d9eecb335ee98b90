
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Histograms of times, as metrics and as JSON; the policies' reasons, warnings
 * and what workers served, as JSON.
 */


#include "ngx_http_kv_router_metrics.h"


static const struct {
    const char  *key;
    const char  *metric;
    const char  *help;
} ngx_http_kv_router_times[] = {
    { "decide", "decide_duration_seconds",
      "Time that a decision took, without questions and waits." },
    { "tokenize", "tokenize_duration_seconds",
      "Time until a text had its token ids, or was given up." },
    { "prefill", "prefill_duration_seconds",
      "Time that a prefill at another worker took." }
};

_Static_assert(sizeof(ngx_http_kv_router_times)
               / sizeof(ngx_http_kv_router_times[0]) == KVR_TIME_WAIT,
               "a name for each");


void
ngx_http_kv_router_times_metrics(ngx_http_kv_router_metrics_t *s)
{
    ngx_uint_t                    i;
    ngx_http_kv_router_worker_t  *w;

    for (i = 0; i < KVR_TIME_WAIT; i++) {
        ngx_http_kv_router_metric(s, ngx_http_kv_router_times[i].metric,
                                  "histogram",
                                  ngx_http_kv_router_times[i].help);
        ngx_http_kv_router_histogram_metric(s, NULL, i,
                                            &s->zone->run.sh->times[i]);
    }

    ngx_http_kv_router_metric(s, "worker_first_byte_seconds", "histogram",
                              "Time from a request, once its body was read, "
                              "to the first byte of its answer, by the "
                              "worker that answered.");

    w = s->workers.elts;

    for (i = 0; i < s->workers.nelts; i++) {
        kvr_served_read(&s->zone->run.sh->served[w[i].slot], w[i].generation,
                        &s->served);
        ngx_http_kv_router_histogram_metric(s, &w[i], KVR_TIME_FIRST_BYTE,
                                            &s->served.first_byte);
    }
}


void
ngx_http_kv_router_histogram_metric(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, kvr_time_t kind,
    const kvr_histogram_t *h)
{
    uint32_t         i;
    uint64_t         n;
    const uint32_t  *bounds;

    bounds = kvr_histogram_bounds(kind);
    n = 0;

    for (i = 0; i < KVR_HISTOGRAM_BOUNDS; i++) {
        n += kvr_load64(&h->counts[i]);

        ngx_http_kv_router_labels(s, "_bucket", w);
        ngx_http_kv_router_answer_printf(s->answer, ",le=\"%uD.%06uD\"",
                                         bounds[i] / 1000000,
                                         bounds[i] % 1000000);
        ngx_http_kv_router_value(s, n, 0);
    }

    n += kvr_load64(&h->counts[KVR_HISTOGRAM_BOUNDS]);

    ngx_http_kv_router_labels(s, "_bucket", w);
    ngx_http_kv_router_label_str(s, "le", "+Inf");
    ngx_http_kv_router_value(s, n, 0);

    ngx_http_kv_router_labels(s, "_sum", w);
    ngx_http_kv_router_value(s, kvr_load64(&h->sum), 6);

    ngx_http_kv_router_labels(s, "_count", w);
    ngx_http_kv_router_value(s, n, 0);
}


ngx_uint_t
ngx_http_kv_router_reason_read(ngx_http_kv_router_zone_t *zone, uint32_t i,
    ngx_str_t *policy, ngx_str_t *reason, uint64_t *count)
{
    size_t       len;
    u_char      *end;
    const char  *word;

    ngx_str_null(policy);
    ngx_str_null(reason);

    if (i == KVR_TALLY_WORDS) {
        *count = kvr_load64(&zone->run.sh->reasons.others);
        return *count != 0;
    }

    *count = kvr_tally_read(&zone->run.sh->reasons, i, &word, &len);

    if (*count == 0) {
        return 0;
    }

    end = ngx_strlchr((u_char *) word, (u_char *) word + len, '\n');

    policy->data = (u_char *) word;
    policy->len = end ? (size_t) (end - policy->data) : len;

    if (end) {
        reason->data = end + 1;
        reason->len = len - policy->len - 1;
    }

    return 1;
}


/* ---- JSON --------------------------------------------------------------- */

static void
ngx_http_kv_router_told_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    uint32_t    i, k, n;
    kvr_told_t  all[KVR_TOLD];

    n = kvr_told_read(&zone->run.sh->told, kvr_router_self(&zone->run.router),
                      all);

    yajl_gen_array_open(g);

    for (i = 0; i < n; i++) {

        /* words of clients and engines may be in it */

        for (k = 0; k < all[i].len; k++) {
            if (all[i].text[k] < 0x20 || all[i].text[k] >= 0x7f) {
                all[i].text[k] = '?';
            }
        }

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_u64(g, "first", all[i].first_ms / 1000);
        ngx_http_kv_router_gen_u64(g, "last", all[i].last_ms / 1000);
        ngx_http_kv_router_gen_u64(g, "count", all[i].count);
        ngx_http_kv_router_gen_str(g, "level",
                                   all[i].level == NGX_LOG_WARN ? "warn"
                                   : all[i].level == NGX_LOG_ERR ? "error"
                                                                 : "alert");
        ngx_http_kv_router_gen_text(g, "text", (u_char *) all[i].text,
                                    all[i].len);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
}


void
ngx_http_kv_router_histograms_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    uint32_t   i;
    uint64_t   count;
    ngx_str_t  policy, reason;

    ngx_http_kv_router_gen_str(g, "version", KVR_VERSION);

    ngx_http_kv_router_gen_key(g, "warnings");
    ngx_http_kv_router_told_json(zone, g);

    ngx_http_kv_router_gen_map(g, "policy");
    ngx_http_kv_router_gen_text(g, "name", zone->run.policy.data,
                                zone->run.policy.len);
    ngx_http_kv_router_gen_text(g, "settings", zone->run.policy_conf.data,
                                zone->run.policy_conf.len);
    ngx_http_kv_router_gen_u64(g, "loaded", zone->run.policy_loaded);
    ngx_http_kv_router_gen_u64(g, "refused_at", zone->run.sh->refused_at);
    ngx_http_kv_router_gen_str(g, "refused", zone->run.sh->refused);
    ngx_http_kv_router_gen_array(g, "reasons");

    for (i = 0; i <= KVR_TALLY_WORDS; i++) {

        if (!ngx_http_kv_router_reason_read(zone, i, &policy, &reason,
                                            &count))
        {
            continue;
        }

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_text(g, "policy", policy.data, policy.len);
        ngx_http_kv_router_gen_text(g, "reason", reason.data, reason.len);
        ngx_http_kv_router_gen_u64(g, "requests", count);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);

    ngx_http_kv_router_gen_u64(g, "waiting",
                               kvr_load_waiting(&zone->run.router.load));

    ngx_http_kv_router_gen_map(g, "times");

    for (i = 0; i < KVR_TIME_WAIT; i++) {
        ngx_http_kv_router_histogram_json(ngx_http_kv_router_times[i].key, i,
                                          &zone->run.sh->times[i], g);
    }

    yajl_gen_map_close(g);
}


void
ngx_http_kv_router_served_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, yajl_gen g)
{
    uint32_t      i;
    kvr_served_t  served;

    kvr_served_read(&zone->run.sh->served[w->slot], w->generation, &served);

    ngx_http_kv_router_gen_map(g, "responses");

    for (i = 0; i < KVR_SERVED_STATUSES; i++) {
        ngx_http_kv_router_gen_u64(g, kvr_served_status_name(i),
                                   served.statuses[i]);
    }

    yajl_gen_map_close(g);

    ngx_http_kv_router_histogram_json("first_byte", KVR_TIME_FIRST_BYTE,
                                      &served.first_byte, g);
}


void
ngx_http_kv_router_histogram_json(const char *key, kvr_time_t kind,
    const kvr_histogram_t *h, yajl_gen g)
{
    uint32_t         i;
    const uint32_t  *bounds;

    bounds = kvr_histogram_bounds(kind);

    ngx_http_kv_router_gen_map(g, key);

    ngx_http_kv_router_gen_decimal(g, "sum", kvr_load64(&h->sum), 6);

    ngx_http_kv_router_gen_array(g, "bounds");

    for (i = 0; i < KVR_HISTOGRAM_BOUNDS; i++) {
        yajl_gen_double(g, bounds[i] / 1e6);
    }

    yajl_gen_array_close(g);

    ngx_http_kv_router_gen_array(g, "counts");

    for (i = 0; i <= KVR_HISTOGRAM_BOUNDS; i++) {
        yajl_gen_integer(g, (long long) kvr_load64(&h->counts[i]));
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}
