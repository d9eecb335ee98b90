
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Writes metrics in the text format of Prometheus, or in OpenMetrics, where a
 * counter's family has no "_total" and "# EOF" is the end.
 */


#ifndef _NGX_HTTP_KV_ROUTER_METRICS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_METRICS_H_INCLUDED_


#include "ngx_http_kv_router_stats.h"


/* the values of a scrape: read once, written metric by metric */

typedef struct {
    ngx_http_kv_router_answer_t    *answer;
    ngx_http_kv_router_zone_t      *zone;
    ngx_array_t                     workers;   /* …_worker_t */
    ngx_array_t                     ranks;     /* …_rank_t */
    kvr_served_t                    served;    /* of one worker at a time */
    const char                     *name;      /* of the metric; NULL: none */
    const char                     *key;       /* of a label that all samples
                                                  have, and its value; NULL:
                                                  there is none */
    const ngx_str_t                *of;
    ngx_uint_t                      openmetrics;   /* the format; else that
                                                  of Prometheus 0.0.4 */
} ngx_http_kv_router_metrics_t;


/*
 * Begins a metric, unless it has begun; samples follow.  type NULL: a counter
 * if the name ends in "_total", else a gauge.
 */
void ngx_http_kv_router_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *type, const char *help);

/*
 * Writes the name, with what is added to it, and the labels that all samples
 * have: the zone and, if w is not NULL, the worker.
 */
void ngx_http_kv_router_labels(ngx_http_kv_router_metrics_t *s,
    const char *added, const ngx_http_kv_router_worker_t *w);

/* Writes one more label. */
void ngx_http_kv_router_label(ngx_http_kv_router_metrics_t *s,
    const char *name, const ngx_str_t *value);
void ngx_http_kv_router_label_str(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *value);

/* Writes value / 10^digits, which ends a sample; digits is 0, 3 or 6. */
void ngx_http_kv_router_value(ngx_http_kv_router_metrics_t *s,
    uint64_t value, ngx_uint_t digits);

/* Writes a sample with one more label; name NULL: with none. */
void ngx_http_kv_router_sample(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, const char *name, const char *label,
    uint64_t value);

/* The label of a field, if it has one, and its value, which ends a sample. */
void ngx_http_kv_router_field_sample(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f, const void *base);

/* Fields of the zone. */
void ngx_http_kv_router_fields_metrics(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_field_t *f, const void *base);

/* the peers of the zone with Redis */
void ngx_http_kv_router_sync_metrics(ngx_http_kv_router_metrics_t *s);

/* a histogram */
void ngx_http_kv_router_histogram_metric(ngx_http_kv_router_metrics_t *s,
    const ngx_http_kv_router_worker_t *w, kvr_time_t kind,
    const kvr_histogram_t *h);

/* the queue of the zone, if it has one */
void ngx_http_kv_router_queue_metrics(ngx_http_kv_router_metrics_t *s);

/* of each model and role */
void ngx_http_kv_router_saturation_metrics(ngx_http_kv_router_metrics_t *s);

/* the histograms of times */
void ngx_http_kv_router_times_metrics(ngx_http_kv_router_metrics_t *s);


#endif /* _NGX_HTTP_KV_ROUTER_METRICS_H_INCLUDED_ */
