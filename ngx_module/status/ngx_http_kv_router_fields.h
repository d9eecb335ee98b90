
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What is counted, under the names that JSON and Prometheus have for it.
 */


#ifndef _NGX_HTTP_KV_ROUTER_FIELDS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_FIELDS_H_INCLUDED_


#include "../module/ngx_http_kv_router_answer.h"


/* one number: a field of a structure */

typedef struct {
    const char                     *object;    /* JSON; of counters alone */
    const char                     *key;       /* JSON; NULL ends the table */
    const char                     *metric;    /* after "kv_router_"; NULL:
                                                  JSON alone has it */
    const char                     *label;     /* of the sample, or NULL */
    const char                     *help;
    size_t                          offset;
    unsigned                        bits;      /* 32, 64 */
} ngx_http_kv_router_field_t;


/* of a ngx_http_kv_router_shctx_t */
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_counters[];

/* of a kvr_stats_t */
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_memory_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_index_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_frequency_fields[];

/* of a kvr_turns_stats_t, of a ngx_http_kv_router_routed_t */
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_turns_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_routed_fields[];

/* of a ngx_http_kv_router_worker_t */
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_counter_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_usage_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_health_fields[];

/* of a kvr_trust_view_t */
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_trust_fields[];

/* of a ngx_http_kv_router_rank_t */
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_held_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_load_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_speed_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_estimate_fields[];


uint64_t ngx_http_kv_router_field(const ngx_http_kv_router_field_t *f,
    const void *base);

/* pairs of the object that is open */
void ngx_http_kv_router_fields_json(const ngx_http_kv_router_field_t *f,
    const void *base, yajl_gen g);

/* the same of the zone's counters that are in the object of this name */
void ngx_http_kv_router_counters_json(ngx_http_kv_router_zone_t *zone,
    const char *object, yajl_gen g);

/* an object with them */
void ngx_http_kv_router_counts_json(ngx_http_kv_router_zone_t *zone,
    const char *object, yajl_gen g);


#endif /* _NGX_HTTP_KV_ROUTER_FIELDS_H_INCLUDED_ */
