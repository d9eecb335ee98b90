
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
    const char                     *key;       /* JSON; NULL ends the table */
    const char                     *metric;    /* after "kv_router_"; NULL:
                                                  not for Prometheus */
    const char                     *help;
    size_t                          offset;
    unsigned                        bits:8;    /* 32, 64 */
    unsigned                        counter:1; /* "_total"; else a gauge */
    unsigned                        us:1;      /* microseconds, shown as s */
} ngx_http_kv_router_field_t;


#define ngx_http_kv_router_gauge(type, field, key, metric, help)             \
    { key, metric, help, offsetof(type, field),                              \
      sizeof(((type *) 0)->field) * 8, 0, 0 }

#define ngx_http_kv_router_counter(type, field, key, metric, help)           \
    { key, metric, help, offsetof(type, field),                              \
      sizeof(((type *) 0)->field) * 8, 1, 0 }

#define ngx_http_kv_router_fields_end  { NULL, NULL, NULL, 0, 0, 0, 0 }


extern const ngx_http_kv_router_field_t  ngx_http_kv_router_memory_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_index_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_frequency_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_request_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_question_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_scrape_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_redis_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_counter_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_held_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_load_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_speed_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_usage_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_health_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_echo_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_name_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_trust_fields[];
extern const ngx_http_kv_router_field_t  ngx_http_kv_router_turns_fields[];


uint64_t ngx_http_kv_router_field(const ngx_http_kv_router_field_t *f,
    const void *base);

/* pairs of the object that is open */
void ngx_http_kv_router_fields_json(const ngx_http_kv_router_field_t *f,
    const void *base, yajl_gen g);


#endif /* _NGX_HTTP_KV_ROUTER_FIELDS_H_INCLUDED_ */
