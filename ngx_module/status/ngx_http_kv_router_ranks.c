
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The ranks of a worker: what they hold, do, report and are estimated to hold.
 */


#include "../request/ngx_http_kv_router_route.h"
#include "ngx_http_kv_router_stats.h"


static void ngx_http_kv_router_read_load(ngx_http_kv_router_zone_t *zone,
    uint32_t holder, ngx_http_kv_router_rank_t *rank);
static void ngx_http_kv_router_report_json(
    const ngx_http_kv_router_rank_t *rank, yajl_gen g);
static void ngx_http_kv_router_estimate_json(const kvr_estimate_info_t *info,
    yajl_gen g);


ngx_uint_t
ngx_http_kv_router_next_rank(ngx_http_kv_router_zone_t *zone, uint32_t slot,
    uint32_t *holder, uint32_t *steps, ngx_http_kv_router_rank_t *rank)
{
    if (!kvr_router_next_holder(&zone->run.router, slot, holder, steps)) {
        return 0;
    }

    ngx_memzero(rank, sizeof(ngx_http_kv_router_rank_t));

    rank->rank = kvr_router_holder_rank(&zone->run.router, *holder);
    rank->held = kvr_router_holder_held(&zone->run.router, *holder);
    rank->age = ngx_http_kv_router_read_report(zone, *holder, &rank->report);
    rank->estimated = kvr_router_estimate_read(&zone->run.router, *holder,
                                               &rank->estimate)
                      == KVR_OK;

    ngx_http_kv_router_read_load(zone, *holder, rank);

    return 1;
}


static void
ngx_http_kv_router_read_load(ngx_http_kv_router_zone_t *zone, uint32_t holder,
    ngx_http_kv_router_rank_t *rank)
{
    uint32_t         worker, generation;
    kvr_speed_t     *speed;
    kvr_load_row_t  *row, peers;

    row = &rank->row;
    worker = kvr_router_holder_worker(&zone->run.router, holder);

    if (worker >= kvr_router_max_workers(&zone->run.router)) {
        return;
    }

    generation = kvr_load32(&kvr_router_worker(&zone->run.router,
                                               worker)->generation);
    speed = ngx_http_kv_router_speed(zone, holder);

    rank->speed = (uint64_t) kvr_speed_read(speed, generation,
                                            zone->run.speed);
    rank->samples = kvr_speed_samples(speed, generation);

    kvr_load_read(&zone->run.router.load, holder, generation, row);

    /* while other processes count, a sum may be below zero for a moment */

    row->active = ngx_max(row->active, 0);
    row->prefills = ngx_max(row->prefills, 0);
    row->prefill_tokens = ngx_max(row->prefill_tokens, 0);
    row->decode_blocks = ngx_max(row->decode_blocks, 0);

    ngx_memzero(&peers, sizeof(kvr_load_row_t));
    kvr_peers_add(&zone->run.router.peers, holder, generation,
                  ngx_current_msec, &peers);
    rank->peers = peers.active;
}


void
ngx_http_kv_router_ranks_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, const char *key,
    const ngx_http_kv_router_field_t *f, yajl_gen g)
{
    uint32_t                   holder, steps;
    ngx_http_kv_router_rank_t  rank;

    ngx_http_kv_router_gen_array(g, key);

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (ngx_http_kv_router_next_rank(zone, w->slot, &holder, &steps, &rank))
    {
        if ((f == NULL && rank.age < 0)
            || (f == ngx_http_kv_router_estimate_fields && !rank.estimated))
        {
            continue;
        }

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_u64(g, "dp_rank", rank.rank);

        if (f == NULL) {
            ngx_http_kv_router_report_json(&rank, g);

        } else {
            ngx_http_kv_router_fields_json(f, &rank, g);
        }

        if (f == ngx_http_kv_router_estimate_fields) {
            ngx_http_kv_router_estimate_json(&rank.estimate, g);
        }

        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
}


static void
ngx_http_kv_router_report_json(const ngx_http_kv_router_rank_t *rank,
    yajl_gen g)
{
    ngx_uint_t  i;

    const struct {
        const char  *key;
        double       value;
    } all[] = {
        { "waiting_requests", rank->report.waiting },
        { "running_requests", rank->report.running },
        { "kv_usage", rank->report.usage }
    };

    ngx_http_kv_router_gen_decimal(g, "age", rank->age, 3);

    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {

        if (all[i].value < 0) {
            ngx_http_kv_router_gen_null(g, all[i].key);
            continue;
        }

        ngx_http_kv_router_gen_decimal(g, all[i].key,
                                       (uint64_t) (all[i].value * 1e6 + 0.5),
                                       6);
    }
}


static void
ngx_http_kv_router_estimate_json(const kvr_estimate_info_t *info, yajl_gen g)
{
    ngx_uint_t  i;

    ngx_http_kv_router_gen_str(g, "source",
                               kvr_capacity_source_name(info->source));
    ngx_http_kv_router_gen_decimal(g, "tokens_per_byte", info->text_tokens, 6);
    ngx_http_kv_router_gen_map(g, "cleared");

    for (i = 0; i < KVR_ESTIMATE_WHYS; i++) {
        ngx_http_kv_router_gen_u64(g, kvr_estimate_why_name(i),
                                   info->cleared[i]);
    }

    yajl_gen_map_close(g);
}
