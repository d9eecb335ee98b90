
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_stats.h"
#include "../lua/ngx_http_kv_router_ffi.h"
#include "ngx_http_kv_router_watch.h"


#define ngx_http_kv_router_gauge(type, field, key, metric, help)             \
    { key, metric, help, offsetof(type, field),                              \
      sizeof(((type *) 0)->field) * 8, 0, 0 }

#define ngx_http_kv_router_counter(type, field, key, metric, help)           \
    { key, metric, help, offsetof(type, field),                              \
      sizeof(((type *) 0)->field) * 8, 1, 0 }

#define ngx_http_kv_router_fields_end  { NULL, NULL, NULL, 0, 0, 0, 0 }


static void ngx_http_kv_router_read_load(ngx_http_kv_router_zone_t *zone,
    uint32_t holder, kvr_load_row_t *row);
static void ngx_http_kv_router_object_json(const char *key,
    const ngx_http_kv_router_field_t *f, const void *base, yajl_gen g);
static void ngx_http_kv_router_ranks_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, const char *key,
    const ngx_http_kv_router_field_t *f, yajl_gen g);
static void ngx_http_kv_router_whys_json(const kvr_worker_counters_t *c,
    ngx_uint_t from, ngx_uint_t to, yajl_gen g);
static void ngx_http_kv_router_lease_json(ngx_http_kv_router_zone_t *zone,
    uint32_t shard, yajl_gen g);
static void ngx_http_kv_router_shards_json(ngx_http_kv_router_zone_t *zone,
    yajl_gen g);


#define gauge(field, metric, help)                                           \
    ngx_http_kv_router_gauge(kvr_stats_t, field, #field, metric, help)
#define counter(field, metric, help)                                         \
    ngx_http_kv_router_counter(kvr_stats_t, field, #field, metric, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_memory_fields[] = {
    gauge(zone_bytes, "zone_size_bytes", "Size of the zone."),
    gauge(used_bytes, "zone_used_bytes",
          "Bytes in use of all that can run out."),
    gauge(arena_bytes, "arena_size_bytes",
          "Size of the arena that blocks are kept in."),
    gauge(arena_used, "arena_used_bytes", "Bytes in use of the arena."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_index_fields[] = {
    gauge(workers, "workers", "Workers that are known."),
    gauge(holders, "holders", "Pairs of a worker and a rank."),
    gauge(blocks, "blocks", "Block positions in the index."),
    gauge(pairs, "pairs", "Pairs of a holder and a handle of a block."),
    gauge(handles, "handles", "Handles that are known, shared ones once."),
    gauge(handles_max, "handles_max", "Handles that there is room for."),
    gauge(runs, "runs", "Runs of blocks in the index."),
    gauge(runs_max, "runs_max", "Runs that there is room for."),
    gauge(holes, "holes", "Pairs of a run and a holder with holes or tiers."),
    gauge(views_dying, "views_dying",
          "Cleared views that are not reclaimed yet."),
    counter(forgotten, "forgotten_total",
            "Pairs forgotten for want of room or use."),
    counter(stores_full, "stores_full_total",
            "Stores refused because the zone was full."),
    counter(lookups_torn, "lookups_torn_total",
            "Lookups cut short because a writer was in the way."),
    counter(rollbacks, "rollbacks_total",
            "Transactions of dead writers that were undone."),
    counter(lock_breaks, "lock_breaks_total",
            "Locks taken over from dead processes."),
    counter(load_reclaimed, "load_tables_reclaimed_total",
            "Load tables of dead processes that were zeroed."),
    counter(load_overflow, "load_tables_overflow_total",
            "Processes that found no load table of their own."),
    counter(load_below_zero, "load_below_zero_total",
            "Times that a load counter fell below zero: a bug."),
    ngx_http_kv_router_fields_end
};

#undef gauge
#undef counter


#define gauge(field, key, metric, help)                                      \
    ngx_http_kv_router_gauge(kvr_stats_t, field, key, metric, help)
#define counter(field, key, metric, help)                                    \
    ngx_http_kv_router_counter(kvr_stats_t, field, key, metric, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_frequency_fields[] = {
    gauge(frequency_max, "blocks_max", "frequency_blocks_max",
          "Blocks whose lookups can be counted; 0: none are."),
    counter(frequency_replaced, "replaced", "frequency_replaced_total",
            "Blocks forgotten in the window, because others took their room."),
    counter(frequency_cut, "cut", "frequency_cut_total",
            "Lookups of which only the first blocks were counted."),
    ngx_http_kv_router_fields_end
};

#undef gauge
#undef counter


#define gauge(field, key, metric, help)                                      \
    ngx_http_kv_router_gauge(ngx_http_kv_router_shctx_t, field, key, metric, \
                             help)
#define counter(field, key, metric, help)                                    \
    ngx_http_kv_router_counter(ngx_http_kv_router_shctx_t, field, key,       \
                               metric, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_request_fields[] = {
    counter(requests, "routed", "requests_total", "Requests routed."),
    counter(retries, "retries", "retries_total",
            "Attempts after a worker failed."),
    counter(policy_errors, "policy_errors", "policy_errors_total",
            "Requests whose policy failed."),
    counter(prompts_scanned, "prompts_scanned", "prompts_scanned_total",
            "Times that a request's body was searched for token ids."),
    counter(lookups, "lookups", "lookups_total",
            "Prompts whose blocks were looked up."),
    counter(lookups_matched, "lookups_matched", "lookups_matched_total",
            "Those of whose blocks some worker had one at least."),
    counter(prompt_blocks, "prompt_blocks", "prompt_blocks_total",
            "Complete blocks of the prompts."),
    counter(overlap_blocks, "overlap_blocks", "overlap_blocks_total",
            "Blocks of the prompts that the chosen worker had."),
    counter(best_blocks, "best_overlap_blocks", "best_overlap_blocks_total",
            "Blocks of the prompts that the best worker had."),
    counter(unshared, "unshared", "unshared_total",
            "Prompts counted as sharing no block with others in flight, for "
            "want of room."),
    { "decide_seconds", "decide_seconds_total", "Time spent deciding.",
      offsetof(ngx_http_kv_router_shctx_t, decide_us),
      sizeof(ngx_atomic_t) * 8, 1, 1 },
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_scrape_fields[] = {
    counter(scrapes, "scrapes", "scrapes_total",
            "Times that an engine was asked for its load."),
    counter(scrapes_failed, "failed", "scrapes_failed_total",
            "Of these, times that it could not be read."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_redis_fields[] = {
    counter(redis_connects, "connects", "redis_connects_total",
            "Connections to Redis made."),
    counter(redis_disconnects, "disconnects", "redis_disconnects_total",
            "Connections to Redis lost."),
    counter(redis_messages, "messages", "redis_messages_total",
            "Messages received."),
    counter(redis_bytes, "bytes", "redis_received_bytes_total",
            "Bytes of the messages received."),
    counter(redis_refused, "refused", "redis_messages_refused_total",
            "Messages refused as a whole."),
    counter(redis_dropped, "dropped", "redis_messages_dropped_total",
            "Messages dropped because the queue was full."),
    counter(repairs_started, "repairs_started", "repairs_started_total",
            "Repairs from the log begun."),
    counter(repairs_done, "repairs_done", "repairs_done_total",
            "Repairs that filled their gap."),
    counter(repairs_failed, "repairs_failed", "repairs_failed_total",
            "Repairs that did not."),
    counter(snapshots_loaded, "snapshots_loaded", "snapshots_loaded_total",
            "Snapshots that took the place of a view."),
    counter(snapshots_refused, "snapshots_refused", "snapshots_refused_total",
            "Troubles with snapshots, each said once a worker in the log."),
    counter(snapshots_asked, "snapshots_asked", "snapshots_asked_total",
            "Times that a new snapshot was asked for."),
    ngx_http_kv_router_fields_end
};

#undef gauge
#undef counter


#define counter(field, help)                                                 \
    ngx_http_kv_router_counter(kvr_worker_counters_t, field, #field,         \
                               "worker_" #field "_total", help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_counter_fields[] = {
    counter(messages, "Messages applied."),
    counter(heartbeats, "Heartbeats received."),
    counter(duplicates, "Messages that had been applied before."),
    counter(gaps, "Gaps in the sequence of messages."),
    counter(repairs, "Repairs finished."),
    counter(restarts, "Restarts of the publisher."),
    counter(snapshots, "Snapshots that took the place of the view."),
    counter(stores, "Store events applied."),
    counter(removes, "Remove events applied."),
    counter(clears, "Clear events applied."),
    counter(blocks_stored, "Blocks stored."),
    counter(blocks_removed, "Blocks removed."),
    counter(blocks_unknown, "Blocks to be removed that were not held."),
    counter(blocks_forgotten, "Blocks forgotten for want of room or use."),
    ngx_http_kv_router_fields_end
};

#undef counter


#define counter(field, key, help)                                            \
    ngx_http_kv_router_counter(kvr_usage_counters_t, field, key,             \
                               "worker_usage_" key "_total", help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_usage_fields[] = {
    counter(requests, "requests",
            "Answers in which the engine said what it had cached."),
    counter(prompt_tokens, "prompt_tokens", "Tokens of their prompts."),
    counter(predicted_tokens, "predicted_tokens",
            "Of these, tokens that the worker had by its events."),
    counter(best_tokens, "best_tokens",
            "Of these, tokens that the best worker had by its events."),
    counter(cached_tokens, "cached_tokens",
            "Of these, tokens that the engine said it had."),
    ngx_http_kv_router_fields_end
};

#undef counter


#define gauge(field, key, help)                                              \
    ngx_http_kv_router_gauge(ngx_http_kv_router_load_t, field, key,          \
                             "worker_" key, help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_held_fields[] = {
    ngx_http_kv_router_gauge(ngx_http_kv_router_load_t, held, "blocks",
                             "worker_held_blocks",
                             "Blocks that the rank holds, in any tier."),
    ngx_http_kv_router_fields_end
};

const ngx_http_kv_router_field_t  ngx_http_kv_router_load_fields[] = {
    gauge(row.active, "active_requests", "Requests sent and not ended."),
    gauge(row.prefills, "active_prefills",
          "Requests before their first byte."),
    gauge(row.prefill_tokens, "prefill_tokens",
          "Uncached prompt tokens of the requests before their first byte."),
    gauge(row.decode_blocks, "decode_blocks", "KV blocks of the requests."),
    ngx_http_kv_router_fields_end
};

#undef gauge


#define counter(field, metric, help)                                         \
    ngx_http_kv_router_counter(kvr_health_counters_t, field, #field,         \
                               "worker_" metric "_total", help)

const ngx_http_kv_router_field_t  ngx_http_kv_router_health_fields[] = {
    counter(attempts, "attempts", "Times that a request was sent there."),
    counter(aborted, "attempts_aborted",
            "Attempts whose end nobody waited for."),
    counter(pauses, "pauses", "Times that the engine asked for a pause."),
    counter(opened, "circuit_opened", "Times that the worker failed."),
    counter(probes, "probes",
            "Requests sent to the failed worker to see whether it answers."),
    counter(checks, "checks", "Active checks."),
    counter(checks_failed, "checks_failed", "Active checks that failed."),
    ngx_http_kv_router_fields_end
};

#undef counter


/* by NGX_HTTP_KV_ROUTER_BY_POLICY and the following */

static const char  *ngx_http_kv_router_why_names[] = {
    "policy", "no_tokens", "no_body", "bad_body", "too_long", "short",
    "tokenizer", "policy_error", "no_worker", "retry", "no_eligible",
    "overload", "unknown_form", "unknown_field"
};


const char *
ngx_http_kv_router_why_name(ngx_uint_t why)
{
    if (why >= sizeof(ngx_http_kv_router_why_names) / sizeof(char *)) {
        return NULL;
    }

    return ngx_http_kv_router_why_names[why];
}


const char *
ngx_http_kv_router_origin(uint32_t flags)
{
    if (flags & KVR_WORKER_API) {
        return "api";
    }

    if (flags & KVR_WORKER_STATIC) {
        return "static";
    }

    return (flags & KVR_WORKER_REDIS) ? "redis" : "events";
}


/* Others may be adding to it. */

uint64_t
ngx_http_kv_router_field(const ngx_http_kv_router_field_t *f, const void *base)
{
    const u_char  *p;

    p = (const u_char *) base + f->offset;

    return (f->bits == 32) ? *(const volatile uint32_t *) p
                           : *(const volatile uint64_t *) p;
}


kvr_confidence_t
ngx_http_kv_router_confidence(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_t *w, uint32_t number)
{
    uint32_t  source;

    if (zone->redis) {
        source = kvr_load32(&w->stream.source);

        if (source != KVR_SOURCE_NONE && source != KVR_SOURCE_API
            && !zone->sh->redis_up[kvr_router_worker_shard(&zone->router,
                                                           number)])
        {
            return KVR_STALE;
        }
    }

    return kvr_fleet_confidence(w, ngx_current_msec, zone->stale);
}


ngx_int_t
ngx_http_kv_router_read_worker(ngx_http_kv_router_zone_t *zone, uint32_t slot,
    ngx_http_kv_router_worker_t *w)
{
    uint64_t             now, expires;
    kvr_rc_t             rc;
    const kvr_worker_t  *s;

    rc = kvr_router_read_worker(&zone->router, slot, &w->conf, &w->flags,
                                &w->generation);

    if (rc == KVR_OK) {
        rc = kvr_router_said(&zone->router, slot, w->said);
    }

    if (rc == KVR_BUSY) {
        return NGX_BUSY;
    }

    if (rc != KVR_OK || (w->flags & KVR_WORKER_DELETED)) {
        return NGX_DECLINED;
    }

    s = kvr_router_worker(&zone->router, slot);

    /* numbers of their own each: one may be newer than another */

    w->slot = slot;
    w->stream = s->stream;
    w->counters = s->counters;

    now = ngx_current_msec;

    kvr_usage_read(&zone->sh->usage[slot], w->generation, &w->usage,
                   &w->verdict);

    ngx_http_kv_router_health_params(zone, &w->conf, &w->params);
    kvr_health_view(kvr_router_health(&zone->router, slot), w->generation,
                    &w->params, now, &w->health);

    w->confidence = ngx_http_kv_router_confidence(zone, s, slot);
    w->reason = ngx_http_kv_router_reason(zone, s, slot);
    w->age = -1;

    w->ttl = -1;
    expires = kvr_load64(&s->expires_ms);

    if (expires) {
        w->ttl = (expires > now) ? expires - now : 0;
    }

    if (w->stream.last_ms) {
        w->age = (now > w->stream.last_ms) ? now - w->stream.last_ms : 0;
    }

    return NGX_OK;
}


ngx_uint_t
ngx_http_kv_router_next_load(ngx_http_kv_router_zone_t *zone, uint32_t slot,
    uint32_t *holder, uint32_t *steps, ngx_http_kv_router_load_t *load)
{
    if (!kvr_router_next_holder(&zone->router, slot, holder, steps)) {
        return 0;
    }

    load->rank = kvr_router_holder_rank(&zone->router, *holder);
    load->held = kvr_router_holder_held(&zone->router, *holder);
    ngx_http_kv_router_read_load(zone, *holder, &load->row);

    return 1;
}


static void
ngx_http_kv_router_read_load(ngx_http_kv_router_zone_t *zone, uint32_t holder,
    kvr_load_row_t *row)
{
    uint32_t             worker;
    const kvr_worker_t  *w;

    worker = kvr_router_holder_worker(&zone->router, holder);

    if (worker >= kvr_router_max_workers(&zone->router)) {
        ngx_memzero(row, sizeof(kvr_load_row_t));
        return;
    }

    w = kvr_router_worker(&zone->router, worker);

    kvr_load_read(&zone->router.load, holder, kvr_load32(&w->generation), row);

    /* while others count, the sum may be below zero for a moment */

    row->active = ngx_max(row->active, 0);
    row->prefills = ngx_max(row->prefills, 0);
    row->prefill_tokens = ngx_max(row->prefill_tokens, 0);
    row->decode_blocks = ngx_max(row->decode_blocks, 0);
}


void
ngx_http_kv_router_fields_json(const ngx_http_kv_router_field_t *f,
    const void *base, yajl_gen g)
{
    for ( /* void */ ; f->key; f++) {
        ngx_http_kv_router_gen_decimal(g, f->key,
                                       ngx_http_kv_router_field(f, base),
                                       f->us ? 6 : 0);
    }
}


static void
ngx_http_kv_router_object_json(const char *key,
    const ngx_http_kv_router_field_t *f, const void *base, yajl_gen g)
{
    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_map_open(g);
    ngx_http_kv_router_fields_json(f, base, g);
    yajl_gen_map_close(g);
}


/* a row for each rank of a worker */

static void
ngx_http_kv_router_ranks_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, const char *key,
    const ngx_http_kv_router_field_t *f, yajl_gen g)
{
    uint32_t                   holder, steps;
    ngx_http_kv_router_load_t  load;

    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_array_open(g);

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (ngx_http_kv_router_next_load(zone, w->slot, &holder, &steps,
                                        &load))
    {
        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_u64(g, "dp_rank", load.rank);
        ngx_http_kv_router_fields_json(f, &load, g);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
}


static void
ngx_http_kv_router_whys_json(const kvr_worker_counters_t *c, ngx_uint_t from,
    ngx_uint_t to, yajl_gen g)
{
    ngx_uint_t  i;

    yajl_gen_map_open(g);

    for (i = from; i < to; i++) {
        if (c->why[i]) {
            ngx_http_kv_router_gen_u64(g, kvr_why_name(i), c->why[i]);
        }
    }

    yajl_gen_map_close(g);
}


void
ngx_http_kv_router_gen_adapters(yajl_gen g, const char *key,
    const char *list)
{
    size_t       len;
    const char  *name;

    ngx_http_kv_router_gen_key(g, key);
    yajl_gen_array_open(g);

    while (kvr_adapters_next(&list, &name, &len)) {
        yajl_gen_string(g, (u_char *) name, len);
    }

    yajl_gen_array_close(g);
}


void
ngx_http_kv_router_worker_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, yajl_gen g)
{
    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_str(g, "worker_id", w->conf.id);
    ngx_http_kv_router_gen_str(g, "address", w->conf.address);
    ngx_http_kv_router_gen_str(g, "model", w->conf.model);
    ngx_http_kv_router_gen_u64(g, "ranks", w->conf.ranks);
    ngx_http_kv_router_gen_str(g, "role", kvr_role_name(w->conf.role));
    ngx_http_kv_router_gen_decimal(g, "weight", w->conf.weight, 3);
    ngx_http_kv_router_gen_u64(g, "max_active", w->conf.max_active);
    ngx_http_kv_router_gen_bool(g, "salted", w->conf.salted);
    ngx_http_kv_router_gen_adapters(g, "lora", w->conf.lora);

    ngx_http_kv_router_gen_str(g, "origin",
                               ngx_http_kv_router_origin(w->flags));
    ngx_http_kv_router_gen_bool(g, "draining",
                                w->flags & KVR_WORKER_DRAINING);
    ngx_http_kv_router_gen_bool(g, "truncated",
                                w->flags & KVR_WORKER_TRUNCATED);

    /* which blocks the groups that are not indexed hold is not known */

    ngx_http_kv_router_gen_str(g, "scores", w->flags & KVR_WORKER_HYBRID
                                            ? "upper_bounds" : "as_held");

    ngx_http_kv_router_gen_str(g, "confidence",
                               kvr_confidence_name(w->confidence));
    ngx_http_kv_router_gen_str(g, "reason", w->reason);
    ngx_http_kv_router_gen_str(g, "publisher_reason", w->said);
    ngx_http_kv_router_gen_str(g, "source",
                               kvr_source_name(w->stream.source));
    ngx_http_kv_router_gen_u64(g, "epoch", w->stream.epoch);
    ngx_http_kv_router_gen_u64(g, "seq", w->stream.seq);
    ngx_http_kv_router_gen_u64(g, "at", w->stream.at);

    ngx_http_kv_router_gen_ms(g, "age", w->age);
    ngx_http_kv_router_gen_ms(g, "ttl", w->ttl);

    if (w->stream.engine_block_size) {
        ngx_http_kv_router_gen_u64(g, "engine_block_size",
                                   w->stream.engine_block_size);
    } else {
        ngx_http_kv_router_gen_key(g, "engine_block_size");
        yajl_gen_null(g);
    }

    ngx_http_kv_router_gen_key(g, "health");
    ngx_http_kv_router_health_json(&w->params, &w->health, g);

    ngx_http_kv_router_object_json("counters",
                                   ngx_http_kv_router_counter_fields,
                                   &w->counters, g);

    ngx_http_kv_router_gen_key(g, "filtered");
    ngx_http_kv_router_whys_json(&w->counters, KVR_WHY_NONE + 1,
                                 KVR_WHY_SYNTAX, g);

    ngx_http_kv_router_gen_key(g, "refused");
    ngx_http_kv_router_whys_json(&w->counters, KVR_WHY_SYNTAX, KVR_WHY_FULL,
                                 g);

    ngx_http_kv_router_gen_key(g, "forgotten");
    ngx_http_kv_router_whys_json(&w->counters, KVR_WHY_FULL, KVR_WHYS, g);

    ngx_http_kv_router_gen_key(g, "usage");
    yajl_gen_map_open(g);
    ngx_http_kv_router_fields_json(ngx_http_kv_router_usage_fields, &w->usage,
                                   g);
    yajl_gen_map_close(g);

    ngx_http_kv_router_gen_str(g, "watchdog",
                               kvr_usage_verdict_name(w->verdict));

    ngx_http_kv_router_ranks_json(zone, w, "load",
                                  ngx_http_kv_router_load_fields, g);

    ngx_http_kv_router_gen_key(g, "reported");
    ngx_http_kv_router_reports_json(zone, w->slot, g);

    ngx_http_kv_router_ranks_json(zone, w, "held",
                                  ngx_http_kv_router_held_fields, g);

    yajl_gen_map_close(g);
}


void
ngx_http_kv_router_workers_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    uint32_t                     i, n;
    ngx_http_kv_router_worker_t  w;

    yajl_gen_array_open(g);

    n = kvr_router_workers(&zone->router);

    for (i = 0; i < n; i++) {

        /* one that is just being changed is there the next time */

        if (ngx_http_kv_router_read_worker(zone, i, &w) == NGX_OK) {
            ngx_http_kv_router_worker_json(zone, &w, g);
        }
    }

    yajl_gen_array_close(g);
}


ngx_uint_t
ngx_http_kv_router_redis_up(ngx_http_kv_router_zone_t *zone)
{
    uint32_t  i;

    for (i = 0; i < zone->params.shards; i++) {
        if (!zone->sh->redis_up[i]) {
            return 0;
        }
    }

    return 1;
}


static void
ngx_http_kv_router_lease_json(ngx_http_kv_router_zone_t *zone, uint32_t shard,
    yajl_gen g)
{
    uint32_t  pid;
    uint64_t  token;

    kvr_router_lease_holder(&zone->router, shard, &pid, &token);

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_u64(g, "pid", pid);
    ngx_http_kv_router_gen_u64(g, "token", token);
    yajl_gen_map_close(g);
}


static void
ngx_http_kv_router_shards_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    uint32_t     i;
    kvr_stats_t  stats;

    yajl_gen_array_open(g);

    for (i = 0; i < zone->params.shards; i++) {
        kvr_router_shard_stats(&zone->router, i, &stats);

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_key(g, "lease");
        ngx_http_kv_router_lease_json(zone, i, g);
        ngx_http_kv_router_gen_u64(g, "workers", stats.workers);
        ngx_http_kv_router_gen_u64(g, "blocks", stats.blocks);
        ngx_http_kv_router_gen_u64(g, "used_bytes", stats.used_bytes);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
}


void
ngx_http_kv_router_stats_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    ngx_uint_t            i;
    const char           *name;
    kvr_stats_t           stats;
    const kvr_params_t   *params;

    ngx_memzero(&stats, sizeof(kvr_stats_t));
    kvr_router_stats(&zone->router, &stats);

    params = kvr_router_params(&zone->router);

    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_key(g, "zone");
    yajl_gen_string(g, zone->name.data, zone->name.len);

    ngx_http_kv_router_gen_str(g, "model", params->model);
    ngx_http_kv_router_gen_u64(g, "block_size", params->block_size);
    ngx_http_kv_router_gen_bool(g, "eagle", params->eagle);
    ngx_http_kv_router_gen_u64(g, "max_workers", params->max_workers);

    ngx_http_kv_router_object_json("memory", ngx_http_kv_router_memory_fields,
                                   &stats, g);
    ngx_http_kv_router_object_json("index", ngx_http_kv_router_index_fields,
                                   &stats, g);

    ngx_http_kv_router_gen_key(g, "frequency");
    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_u64(g, "window_ms", params->frequency_ms);
    ngx_http_kv_router_fields_json(ngx_http_kv_router_frequency_fields, &stats,
                                   g);
    yajl_gen_map_close(g);

    ngx_http_kv_router_gen_key(g, "lease");
    ngx_http_kv_router_lease_json(zone, 0, g);

    ngx_http_kv_router_gen_key(g, "shards");
    ngx_http_kv_router_shards_json(zone, g);

    if (zone->sh) {
        ngx_http_kv_router_gen_key(g, "requests");
        yajl_gen_map_open(g);

        ngx_http_kv_router_fields_json(ngx_http_kv_router_request_fields,
                                       zone->sh, g);

        ngx_http_kv_router_gen_bool(g, "never_matched",
                                    ngx_http_kv_router_never_matched(zone));

        ngx_http_kv_router_gen_key(g, "by_reason");
        yajl_gen_map_open(g);

        for (i = 0; i < NGX_HTTP_KV_ROUTER_REASONS; i++) {
            name = ngx_http_kv_router_why_name(i);

            if (name) {
                ngx_http_kv_router_gen_u64(g, name, zone->sh->by_reason[i]);
            }
        }

        yajl_gen_map_close(g);
        yajl_gen_map_close(g);
    }

    if (zone->scrape.interval) {
        ngx_http_kv_router_gen_key(g, "scrape");
        yajl_gen_map_open(g);
        ngx_http_kv_router_fields_json(ngx_http_kv_router_scrape_fields,
                                       zone->sh, g);
        yajl_gen_map_close(g);
    }

    if (zone->sh && zone->redis) {
        ngx_http_kv_router_gen_key(g, "redis");
        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_u64(g, "up", ngx_http_kv_router_redis_up(zone));
        ngx_http_kv_router_fields_json(ngx_http_kv_router_redis_fields,
                                       zone->sh, g);
        yajl_gen_map_close(g);
    }

    ngx_http_kv_router_gen_key(g, "workers");
    ngx_http_kv_router_workers_json(zone, g);

    yajl_gen_map_close(g);
}
