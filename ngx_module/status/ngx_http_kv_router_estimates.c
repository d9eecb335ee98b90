
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What is estimated of workers without events: as JSON, and as metrics.
 */


#include "ngx_http_kv_router_metrics.h"


typedef struct {
    uint64_t                        rings;
    uint64_t                        unread;    /* bytes */
    uint64_t                        appended;
    uint64_t                        dropped;
    uint64_t                        cut;
    uint64_t                        damaged;
    uint64_t                        lost;
} ngx_http_kv_router_routed_t;


static void ngx_http_kv_router_routed_read(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_routed_t *t);
static ngx_int_t ngx_http_kv_router_estimate_of(
    ngx_http_kv_router_metrics_t *s, ngx_http_kv_router_rank_t *rank,
    kvr_estimate_info_t *info);


#define gauge(field, help)                                                   \
    ngx_http_kv_router_gauge(ngx_http_kv_router_routed_t, field, #field,     \
                             "routed_" #field, help)
#define counter(field, help)                                                 \
    ngx_http_kv_router_counter(ngx_http_kv_router_routed_t, field, #field,   \
                               "routed_" #field "_total", help)

static const ngx_http_kv_router_field_t  ngx_http_kv_router_routed_fields[] = {
    gauge(rings, "Rings of what processes tell of the prompts that they "
                 "routed to workers without events."),
    gauge(unread, "Bytes in these rings that wait to be applied."),
    counter(appended, "Records appended to these rings."),
    counter(dropped, "Records that found the ring full."),
    counter(cut, "Records with less blocks than their prompts have."),
    counter(damaged, "Times that a ring was emptied, since it was damaged."),
    counter(lost, "Records of processes that had no ring."),
    ngx_http_kv_router_fields_end
};

#undef gauge
#undef counter


#define gauge(field, help)                                                   \
    ngx_http_kv_router_gauge(kvr_estimate_info_t, field, #field,             \
                             "worker_estimate_" #field, help)
#define counter(field, help)                                                 \
    ngx_http_kv_router_counter(kvr_estimate_info_t, field, #field,           \
                               "worker_estimate_" #field "_total", help)

static const ngx_http_kv_router_field_t
    ngx_http_kv_router_estimate_fields[] =
{
    gauge(capacity, "Tokens that the rank's cache has room for; 0: not "
                    "known."),
    gauge(held, "Tokens that the rank is estimated to have cached."),
    gauge(ghosts, "Tokens that it is estimated to have evicted of late."),
    gauge(ends, "Ends of the chains that are estimated to be cached."),
    counter(answers, "Answers that told of cached tokens."),
    counter(grown, "Answers that raised the capacity."),
    counter(shrunk, "Answers that lowered the capacity."),
    counter(refused, "Prompts and answers that were not stored for want of "
                     "room."),
    ngx_http_kv_router_fields_end
};

#undef gauge
#undef counter


static void
ngx_http_kv_router_routed_read(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_routed_t *t)
{
    ngx_uint_t                   i;
    const kvr_routed_t          *r;
    ngx_http_kv_router_rings_t  *rings;

    ngx_memzero(t, sizeof(ngx_http_kv_router_routed_t));

    rings = zone->sh->rings;
    t->rings = rings->n;
    t->lost = zone->sh->routed_lost;

    for (i = 0; i < rings->n; i++) {
        r = rings->all[i];

        t->unread += kvr_routed_unread(r);
        t->appended += kvr_load64(&r->appended);
        t->dropped += kvr_load64(&r->dropped);
        t->cut += kvr_load64(&r->cut);
        t->damaged += kvr_load64(&r->damaged);
    }
}


void
ngx_http_kv_router_routed_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    ngx_http_kv_router_routed_t  t;

    ngx_http_kv_router_routed_read(zone, &t);

    yajl_gen_map_open(g);
    ngx_http_kv_router_fields_json(ngx_http_kv_router_routed_fields, &t, g);
    yajl_gen_map_close(g);
}


void
ngx_http_kv_router_estimates_json(ngx_http_kv_router_zone_t *zone,
    uint32_t worker, yajl_gen g)
{
    uint32_t             i, holder, steps;
    kvr_estimate_info_t  info;

    yajl_gen_array_open(g);

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (kvr_router_next_holder(&zone->router, worker, &holder, &steps)) {

        if (kvr_router_estimate_read(&zone->router, holder, &info) != KVR_OK) {
            continue;
        }

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_u64(g, "dp_rank",
                            kvr_router_holder_rank(&zone->router, holder));
        ngx_http_kv_router_gen_str(g, "source",
                                   kvr_capacity_source_name(info.source));
        ngx_http_kv_router_fields_json(ngx_http_kv_router_estimate_fields,
                                       &info, g);
        ngx_http_kv_router_gen_decimal(g, "tokens_per_byte", info.text_tokens,
                                       6);
        ngx_http_kv_router_gen_key(g, "cleared");
        yajl_gen_map_open(g);

        for (i = 0; i < KVR_ESTIMATE_WHYS; i++) {
            ngx_http_kv_router_gen_u64(g, kvr_estimate_why_name(i),
                                       info.cleared[i]);
        }

        yajl_gen_map_close(g);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
}


/* ---- metrics ------------------------------------------------------------ */

/* NGX_DECLINED: nothing is estimated of the rank. */

static ngx_int_t
ngx_http_kv_router_estimate_of(ngx_http_kv_router_metrics_t *s,
    ngx_http_kv_router_rank_t *rank, kvr_estimate_info_t *info)
{
    uint32_t                      holder;
    ngx_http_kv_router_worker_t  *w;

    w = s->workers.elts;

    if (kvr_router_find_holder(&s->zone->router, w[rank->worker].slot,
                               rank->load.rank, &holder)
        != KVR_OK
        || kvr_router_estimate_read(&s->zone->router, holder, info) != KVR_OK)
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


void
ngx_http_kv_router_estimates_metrics(ngx_http_kv_router_metrics_t *s)
{
    uint32_t                           why;
    ngx_uint_t                         i;
    kvr_estimate_info_t                info;
    ngx_http_kv_router_rank_t         *rank;
    ngx_http_kv_router_routed_t        routed;
    ngx_http_kv_router_worker_t       *w;
    const ngx_http_kv_router_field_t  *f;

    ngx_http_kv_router_routed_read(s->zone, &routed);

    for (f = ngx_http_kv_router_routed_fields; f->key; f++) {
        ngx_http_kv_router_metric(s, f->metric,
                                  f->counter ? "counter" : "gauge", f->help);
        ngx_http_kv_router_labels(s, f->metric, NULL);
        ngx_http_kv_router_value(s, ngx_http_kv_router_field(f, &routed));
    }

    w = s->workers.elts;
    rank = s->ranks.elts;

    for (f = ngx_http_kv_router_estimate_fields; f->key; f++) {

        ngx_http_kv_router_metric(s, f->metric,
                                  f->counter ? "counter" : "gauge", f->help);

        for (i = 0; i < s->ranks.nelts; i++) {

            if (ngx_http_kv_router_estimate_of(s, &rank[i], &info) != NGX_OK) {
                continue;
            }

            ngx_http_kv_router_labels(s, f->metric, &w[rank[i].worker]);
            ngx_http_kv_router_answer_printf(s->answer, ",dp_rank=\"%uD\"",
                                             rank[i].load.rank);
            ngx_http_kv_router_value(s, ngx_http_kv_router_field(f, &info));
        }
    }

    ngx_http_kv_router_metric(s, "worker_estimate_cleared_total", "counter",
                              "Times that all that was estimated was "
                              "forgotten, by why.");

    for (i = 0; i < s->ranks.nelts; i++) {

        if (ngx_http_kv_router_estimate_of(s, &rank[i], &info) != NGX_OK) {
            continue;
        }

        for (why = 0; why < KVR_ESTIMATE_WHYS; why++) {
            ngx_http_kv_router_labels(s, "worker_estimate_cleared_total",
                                      &w[rank[i].worker]);
            ngx_http_kv_router_answer_printf(s->answer, ",dp_rank=\"%uD\",",
                                             rank[i].load.rank);
            ngx_http_kv_router_label_str(s, "why", kvr_estimate_why_name(why));
            ngx_http_kv_router_value(s, info.cleared[why]);
        }
    }
}
