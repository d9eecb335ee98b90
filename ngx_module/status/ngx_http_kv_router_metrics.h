
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
    ngx_uint_t                      worker;    /* index in workers */
    ngx_http_kv_router_load_t       load;
    kvr_report_load_t               report;    /* -1: not reported */
} ngx_http_kv_router_rank_t;


typedef struct {
    ngx_http_kv_router_answer_t    *answer;
    ngx_http_kv_router_zone_t      *zone;
    ngx_array_t                     workers;   /* …_worker_t */
    ngx_array_t                     ranks;     /* …_rank_t */
    kvr_served_t                    served;    /* of one worker at a time */
    ngx_uint_t                      openmetrics;   /* the format; else that
                                                  of Prometheus 0.0.4 */
} ngx_http_kv_router_metrics_t;


/* Writes the head of a metric; samples follow. */
void ngx_http_kv_router_metric(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *type, const char *help);

/*
 * Writes the name and the labels that all samples have: the zone and, if w is
 * not NULL, the worker.  More labels may follow, each after a comma.
 */
void ngx_http_kv_router_labels(ngx_http_kv_router_metrics_t *s,
    const char *name, const ngx_http_kv_router_worker_t *w);

/* Writes a label; the second one takes a terminated string. */
void ngx_http_kv_router_label(ngx_http_kv_router_metrics_t *s,
    const char *name, const u_char *value, size_t len);
void ngx_http_kv_router_label_str(ngx_http_kv_router_metrics_t *s,
    const char *name, const char *value);

/* Writes the value, which ends a sample. */
void ngx_http_kv_router_value(ngx_http_kv_router_metrics_t *s,
    uint64_t value);

/* Writes the metrics of workers without events. */
void ngx_http_kv_router_estimates_metrics(ngx_http_kv_router_metrics_t *s);


/* histograms, reasons of policies, and what workers served */
void ngx_http_kv_router_histograms_metrics(ngx_http_kv_router_metrics_t *s);

/* the zone's model, if it has one */
void ngx_http_kv_router_local_metrics(ngx_http_kv_router_metrics_t *s);


#endif /* _NGX_HTTP_KV_ROUTER_METRICS_H_INCLUDED_ */
