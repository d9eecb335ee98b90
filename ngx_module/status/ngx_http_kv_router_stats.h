
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
    kvr_usage_t                     usage;
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
    ngx_uint_t                      worker;    /* index in an array of them */
    uint32_t                        rank;
    uint32_t                        held;      /* blocks, in any tier */
    kvr_load_row_t                  row;       /* never negative */
    uint64_t                        peers;     /* requests of those */
    uint64_t                        speed;     /* tokens prefilled per second;
                                                  0: not known */
    uint32_t                        samples;   /* of the speed */
    int64_t                         age;       /* ms, of the report; -1: there
                                                  is none */
    kvr_report_load_t               report;    /* by the engine itself; -1: not
                                                  known */
    ngx_uint_t                      estimated; /* 1: what it caches is */
    kvr_estimate_info_t             estimate;
} ngx_http_kv_router_rank_t;


/* the rings of what was routed to workers without events */

typedef struct {
    uint64_t                        rings;
    uint64_t                        unread;    /* bytes */
    uint64_t                        appended;
    uint64_t                        dropped;
    uint64_t                        cut;
    uint64_t                        damaged;
    uint64_t                        lost;
} ngx_http_kv_router_routed_t;


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
ngx_uint_t ngx_http_kv_router_next_rank(ngx_http_kv_router_zone_t *zone,
    uint32_t slot, uint32_t *holder, uint32_t *steps,
    ngx_http_kv_router_rank_t *rank);

/*
 * A pair of the worker's object: an array with a row for each of its ranks, of
 * the fields f; NULL: of what the engine reports.  The rows that are known.
 */
void ngx_http_kv_router_ranks_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, const char *key,
    const ngx_http_kv_router_field_t *f, yajl_gen g);

/* The load that the engine reports of a holder; age in ms, -1: no report. */
int64_t ngx_http_kv_router_read_report(ngx_http_kv_router_zone_t *zone,
    uint32_t holder, kvr_report_load_t *load);

void ngx_http_kv_router_read_routed(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_routed_t *t);

/* of a zone with Redis the object "sync": the other routers of the group */
void ngx_http_kv_router_sync_json(ngx_http_kv_router_zone_t *zone,
    yajl_gen g);

/* the object "health" of a worker */
void ngx_http_kv_router_health_json(const ngx_http_kv_router_worker_t *w,
    yajl_gen g);

/* the object of one worker, as in "workers" */
void ngx_http_kv_router_worker_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, yajl_gen g);

/*
 * A reason of the policies, with its number of requests; i: up to
 * KVR_TALLY_WORDS, which stands for all reasons without a place.  0: none is
 * there.
 */
ngx_uint_t ngx_http_kv_router_reason_read(ngx_http_kv_router_zone_t *zone,
    uint32_t i, ngx_str_t *policy, ngx_str_t *reason, uint64_t *count);

/*
 * Histograms, the policy and its reasons: pairs of the zone's object; what a
 * worker served: pairs of the worker's.
 */
void ngx_http_kv_router_histograms_json(ngx_http_kv_router_zone_t *zone,
    yajl_gen g);
void ngx_http_kv_router_served_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, yajl_gen g);

/* Bounds in seconds; the last count is of what was longer than all. */
void ngx_http_kv_router_histogram_json(const char *key, kvr_time_t kind,
    const kvr_histogram_t *h, yajl_gen g);

/* of a zone with a queue the object "queue": who waits, and who is served */
void ngx_http_kv_router_queue_json(ngx_http_kv_router_zone_t *zone,
    yajl_gen g);

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
