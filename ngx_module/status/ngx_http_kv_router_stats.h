
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Workers, their ranks and their load, read for the status page, the API and
 * Lua, and printed as JSON.
 */


#ifndef _NGX_HTTP_KV_ROUTER_STATS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_STATS_H_INCLUDED_


#include "ngx_http_kv_router_fields.h"

#include <wire/kvr_route.h>


/* a worker as it is at one moment */

typedef struct {
    uint32_t                        slot;
    uint32_t                        flags;
    uint32_t                        generation;
    kvr_confidence_t                confidence;
    const char                     *reason;    /* of the confidence */
    int64_t                         age;       /* ms; -1: no message yet */
    int64_t                         ttl;       /* ms; 0: expired; -1: not
                                                  registered in Redis */
    kvr_worker_conf_t               conf;
    char                            publisher_reason[KVR_REASON_MAX + 1];
                                               /* by its publisher */
    kvr_stream_t                    stream;
    kvr_worker_counters_t           counters;
    kvr_usage_counters_t            usage;
    kvr_usage_verdict_t             verdict;   /* of the watchdog */
    kvr_trust_view_t                trust[KVR_ROUTES];
    kvr_health_params_t             params;    /* of health */
    kvr_health_view_t               health;
    kvr_rungs_found_t               rungs;     /* by probes; all 0: none yet */
    uint64_t                        mark;      /* of the address's host name;
                                                  0: it has none */
    kvr_name_found_t                name;      /* all 0: not resolved yet */
} ngx_http_kv_router_worker_t;


/* one of its ranks: what it holds, and its load over all processes */

typedef struct {
    uint32_t                        rank;
    uint32_t                        held;      /* blocks, in any tier */
    kvr_load_row_t                  row;       /* never negative */
    uint64_t                        speed;     /* tokens prefilled per second;
                                                  0: not known */
    uint32_t                        samples;   /* of the speed */
} ngx_http_kv_router_load_t;


/*
 * Reads the worker in a slot.  NGX_DECLINED: none is there, or it was taken
 * out; NGX_BUSY: it is just being changed.
 */
ngx_int_t ngx_http_kv_router_read_worker(ngx_http_kv_router_zone_t *zone,
    uint32_t slot, ngx_http_kv_router_worker_t *w);

/* Was there an echo of this route? */
ngx_uint_t ngx_http_kv_router_echoed(const kvr_trust_view_t *view);

/* 1: the events of all shards' workers are heard */
ngx_uint_t ngx_http_kv_router_redis_up(ngx_http_kv_router_zone_t *zone);

/*
 * The next rank of a worker; 0: there is none.  Before the first, holder is
 * KVR_HOLDER_NONE and steps 0.
 */
ngx_uint_t ngx_http_kv_router_next_load(ngx_http_kv_router_zone_t *zone,
    uint32_t slot, uint32_t *holder, uint32_t *steps,
    ngx_http_kv_router_load_t *load);

/*
 * The load that the engine itself reports of a holder; age in ms, -1: no
 * report.  reports_json() writes an array of the known ranks of a worker.
 */
int64_t ngx_http_kv_router_read_report(ngx_http_kv_router_zone_t *zone,
    uint32_t holder, kvr_report_load_t *load);
void ngx_http_kv_router_reports_json(ngx_http_kv_router_zone_t *zone,
    uint32_t worker, yajl_gen g);

/*
 * the estimates of a worker without events, an array of its ranks; and the
 * state of the rings that all estimates come from
 */
void ngx_http_kv_router_estimates_json(ngx_http_kv_router_zone_t *zone,
    uint32_t worker, yajl_gen g);
void ngx_http_kv_router_routed_json(ngx_http_kv_router_zone_t *zone,
    yajl_gen g);

/* the object of one worker, as in "workers" */
void ngx_http_kv_router_worker_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, yajl_gen g);

/*
 * Histograms, the policy and its reasons: pairs of the zone's object; what a
 * worker served: pairs of the worker's.
 */
void ngx_http_kv_router_histograms_json(ngx_http_kv_router_zone_t *zone,
    yajl_gen g);
void ngx_http_kv_router_served_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, yajl_gen g);

/* the names of a list of kvr_adapters.h, as an array */
void ngx_http_kv_router_gen_adapters(yajl_gen g, const char *key,
    const char *list);

/* where a worker is known from: "api", "static", "redis", "events" */
const char *ngx_http_kv_router_origin(uint32_t flags);

/* the metrics, in the format of Prometheus or in OpenMetrics */
ngx_int_t ngx_http_kv_router_prometheus(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, ngx_http_kv_router_answer_t *a,
    ngx_uint_t openmetrics);

/*
 * The status page, which reads the JSON by its script: the same for each zone.
 * Adds the headers that it needs.
 */
ngx_int_t ngx_http_kv_router_page(ngx_http_request_t *r,
    ngx_http_kv_router_answer_t *a);

/*
 * The locations of kv_router_status in the request's server, with their zones,
 * and the prefix caches: pairs of an object.
 */
void ngx_http_kv_router_places_json(ngx_http_request_t *r, yajl_gen g);


#endif /* _NGX_HTTP_KV_ROUTER_STATS_H_INCLUDED_ */
