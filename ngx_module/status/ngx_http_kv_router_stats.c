
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "../request/ngx_http_kv_router_route.h"
#include "ngx_http_kv_router_stats.h"
#include "../token/ngx_http_kv_router_turns.h"


static const char  *ngx_http_kv_router_why_names[] = {
    NGX_HTTP_KV_ROUTER_WHY_LIST(NGX_HTTP_KV_ROUTER_WHY_NAME)
};


/* Indexed by NGX_HTTP_KV_ROUTER_BY_LOAD and the values after it. */

static const char  *ngx_http_kv_router_rung_names[NGX_HTTP_KV_ROUTER_RUNGS] = {
    "load", "ids", "render", "remote", "local", "text"
};


const char *
ngx_http_kv_router_why_name(ngx_uint_t why)
{
    return why < NGX_HTTP_KV_ROUTER_REASONS
           ? ngx_http_kv_router_why_names[why] : NULL;
}


const char *
ngx_http_kv_router_rung_name(ngx_uint_t rung)
{
    return ngx_http_kv_router_rung_names[rung];
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

    if (flags & KVR_WORKER_NAMED) {
        return "name";
    }

    return (flags & KVR_WORKER_REDIS) ? "redis" : "events";
}


ngx_int_t
ngx_http_kv_router_read_worker(ngx_http_kv_router_zone_t *zone, uint32_t slot,
    ngx_http_kv_router_worker_t *w)
{
    uint32_t             i;
    uint64_t             now, expires;
    kvr_rc_t             rc;
    const kvr_worker_t  *s;

    rc = kvr_router_read_worker(&zone->run.router, slot, &w->conf, &w->flags,
                                &w->generation);

    if (rc == KVR_OK) {
        rc = kvr_router_publisher_reason(&zone->run.router, slot,
                                         w->publisher_reason);
    }

    if (rc == KVR_BUSY) {
        return NGX_BUSY;
    }

    if (rc != KVR_OK || (w->flags & KVR_WORKER_DELETED)) {
        return NGX_DECLINED;
    }

    s = kvr_router_worker(&zone->run.router, slot);

    /* each number is read by itself: one number may be newer than another */

    w->slot = slot;
    w->stream = s->stream;
    w->counters = s->counters;

    now = ngx_current_msec;

    kvr_usage_read(&zone->run.sh->trust[slot], w->generation, &w->usage);

    for (i = 0; i < KVR_ROUTES; i++) {
        ngx_http_kv_router_echo_trust(zone, slot, w->generation, i,
                                      &w->trust[i]);
    }

    ngx_http_kv_router_health_params(zone, &w->conf, &w->params);
    kvr_health_view(kvr_router_health(&zone->run.router, slot), w->generation,
                    &w->params, now, &w->health);

    (void) kvr_rungs_read(&zone->run.sh->rungs[slot], w->generation,
                          &w->rungs);

    w->mark = ngx_http_kv_router_name_mark(w->conf.address);
    (void) kvr_name_read(&zone->run.sh->names[slot], w->mark, &w->name);

    w->confidence = ngx_http_kv_router_confidence(zone, s, slot);

    /* an upper bound is shown alike, whatever its cause */

    if (kvr_fleet_bound(s)) {
        w->flags |= KVR_WORKER_HYBRID;
    }
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


void
ngx_http_kv_router_read_routed(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_routed_t *t)
{
    ngx_uint_t                   i;
    const kvr_routed_t          *r;
    ngx_http_kv_router_rings_t  *rings;

    ngx_memzero(t, sizeof(ngx_http_kv_router_routed_t));

    rings = zone->run.sh->rings;
    t->rings = rings->n;
    t->lost = ngx_http_kv_router_counter(zone->run.sh, ROUTED_LOST);

    for (i = 0; i < rings->n; i++) {
        r = rings->all[i];

        t->unread += kvr_routed_unread(r);
        t->appended += kvr_load64(&r->appended);
        t->dropped += kvr_load64(&r->dropped);
        t->cut += kvr_load64(&r->cut);
        t->damaged += kvr_load64(&r->damaged);
    }
}


static void
ngx_http_kv_router_object_json(const char *key,
    const ngx_http_kv_router_field_t *f, const void *base, yajl_gen g)
{
    ngx_http_kv_router_gen_map(g, key);
    ngx_http_kv_router_fields_json(f, base, g);
    yajl_gen_map_close(g);
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


/* null: no probe of this worker has ended */

static void
ngx_http_kv_router_rungs_json(const kvr_rungs_found_t *found, yajl_gen g)
{
    ngx_uint_t   i;
    const char  *name;

    if (!(found->rungs & KVR_RUNG_KNOWN)) {
        yajl_gen_null(g);
        return;
    }

    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_str(g, "engine",
                               kvr_engine_name(found->engine));
    ngx_http_kv_router_gen_str(g, "version", found->version);

    ngx_http_kv_router_gen_array(g, "has");

    for (i = 0; i < KVR_RUNGS_MAX; i++) {
        if (found->rungs & (1u << i)) {
            name = kvr_rung_name(i);
            yajl_gen_string(g, (u_char *) name, ngx_strlen(name));
        }
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}


/* null: the address has no host name */

static void
ngx_http_kv_router_name_json(const ngx_http_kv_router_worker_t *w, yajl_gen g)
{
    if (w->mark == 0) {
        yajl_gen_null(g);
        return;
    }

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_str(g, "address", w->name.address);
    ngx_http_kv_router_gen_u64(g, "addresses", w->name.naddrs);
    ngx_http_kv_router_gen_str(g, "reason", w->name.mark
                               ? ngx_http_kv_router_name_error(w->name.error)
                               : "not resolved yet");
    yajl_gen_map_close(g);
}


void
ngx_http_kv_router_gen_adapters(yajl_gen g, const char *key,
    const char *list)
{
    size_t       len;
    const char  *name;

    ngx_http_kv_router_gen_array(g, key);

    while (kvr_adapters_next(&list, &name, &len)) {
        yajl_gen_string(g, (u_char *) name, len);
    }

    yajl_gen_array_close(g);
}


ngx_uint_t
ngx_http_kv_router_echoed(const kvr_trust_view_t *view)
{
    return view->full || view->parted;
}


/* an object for each route that had an echo */

static void
ngx_http_kv_router_trust_json(const ngx_http_kv_router_worker_t *w, yajl_gen g)
{
    ngx_uint_t               i;
    const kvr_trust_view_t  *view;

    yajl_gen_array_open(g);

    for (i = 0; i < KVR_ROUTES; i++) {
        view = &w->trust[i];

        if (!ngx_http_kv_router_echoed(view)) {
            continue;
        }

        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_str(g, "route", kvr_route_name(i));
        ngx_http_kv_router_gen_str(g, "trust", kvr_trust_name(view->state));
        ngx_http_kv_router_fields_json(ngx_http_kv_router_trust_fields, view,
                                       g);

        /* the last one: after so many of its blocks */

        ngx_http_kv_router_gen_u64(g, "parted_after", view->depth);
        ngx_http_kv_router_gen_u64(g, "parted_blocks", view->blocks);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);
}


/*
 * Settings that a zone has, too, are told as they count: in "health", and
 * max_prefill_tokens as a number.
 */

static void
ngx_http_kv_router_settings_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, yajl_gen g)
{
    char                 *text;
    uint32_t              n;
    ngx_uint_t            i;
    const kvr_setting_t  *s;

    for (i = 0; i < KVR_SETTINGS; i++) {
        s = &kvr_settings[i];
        text = (char *) kvr_setting_number(s, &w->conf);

        switch (s->kind) {

        case KVR_SETTING_ADDRESS:
        case KVR_SETTING_TEXT:
            ngx_http_kv_router_gen_str(g, s->word, text);
            continue;

        case KVR_SETTING_NAMES:
            ngx_http_kv_router_gen_adapters(g, s->word, text);
            continue;

        default:
            n = *kvr_setting_number(s, &w->conf);
        }

        switch (s->kind) {

        case KVR_SETTING_FLAG:
        case KVR_SETTING_OFF:
            ngx_http_kv_router_gen_bool(g, s->word,
                                        (s->kind == KVR_SETTING_FLAG) == n);
            break;

        case KVR_SETTING_WORD:
            ngx_http_kv_router_gen_str(g, s->word, s->words[n]);
            break;

        case KVR_SETTING_DECIMAL:
            ngx_http_kv_router_gen_decimal(g, s->word, n, 3);
            break;

        case KVR_SETTING_AUTO:
            ngx_http_kv_router_gen_u64(g, s->word,
                              ngx_http_kv_router_fleet_tokens(zone, w->slot));
            break;

        default:
            if (!(s->own & KVR_OWN_HEALTH)) {
                ngx_http_kv_router_gen_u64(g, s->word, n);
            }
        }
    }
}


void
ngx_http_kv_router_worker_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, yajl_gen g)
{
    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_str(g, "worker_id", w->conf.id);
    ngx_http_kv_router_settings_json(zone, w, g);
    ngx_http_kv_router_gen_key(g, "resolved");
    ngx_http_kv_router_name_json(w, g);

    ngx_http_kv_router_gen_str(g, "origin",
                               ngx_http_kv_router_origin(w->flags));
    ngx_http_kv_router_gen_bool(g, "draining",
                                w->flags & KVR_WORKER_DRAINS);
    ngx_http_kv_router_gen_str(g, "draining_by",
                               w->flags & KVR_WORKER_DRAINING
                               ? w->flags & KVR_WORKER_LEAVING
                                 ? "both" : "api"
                               : w->flags & KVR_WORKER_LEAVING
                                 ? "registration" : "none");
    ngx_http_kv_router_gen_bool(g, "truncated",
                                w->flags & KVR_WORKER_TRUNCATED);

    /* the blocks of groups that are not indexed are not known */

    ngx_http_kv_router_gen_str(g, "scores", w->flags & KVR_WORKER_HYBRID
                                            ? "upper_bounds" : "as_held");

    ngx_http_kv_router_gen_str(g, "confidence",
                               kvr_confidence_name(w->confidence));
    ngx_http_kv_router_gen_str(g, "reason", w->reason);
    ngx_http_kv_router_gen_str(g, "publisher_reason", w->publisher_reason);
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
        ngx_http_kv_router_gen_null(g, "engine_block_size");
    }

    ngx_http_kv_router_gen_key(g, "probe");
    ngx_http_kv_router_rungs_json(&w->rungs, g);

    ngx_http_kv_router_gen_key(g, "health");
    ngx_http_kv_router_health_json(w, g);

    ngx_http_kv_router_object_json("counters",
                                   ngx_http_kv_router_counter_fields,
                                   w, g);

    ngx_http_kv_router_gen_key(g, "filtered");
    ngx_http_kv_router_whys_json(&w->counters, KVR_WHY_NONE + 1,
                                 KVR_WHY_SYNTAX, g);

    ngx_http_kv_router_gen_key(g, "refused");
    ngx_http_kv_router_whys_json(&w->counters, KVR_WHY_SYNTAX, KVR_WHY_FULL,
                                 g);

    ngx_http_kv_router_gen_key(g, "forgotten");
    ngx_http_kv_router_whys_json(&w->counters, KVR_WHY_FULL, KVR_WHYS, g);

    ngx_http_kv_router_object_json("usage", ngx_http_kv_router_usage_fields, w,
                                   g);

    ngx_http_kv_router_gen_key(g, "echo");
    ngx_http_kv_router_trust_json(w, g);

    ngx_http_kv_router_ranks_json(zone, w, "load",
                                  ngx_http_kv_router_load_fields, g);

    ngx_http_kv_router_ranks_json(zone, w, "speed",
                                  ngx_http_kv_router_speed_fields, g);

    ngx_http_kv_router_ranks_json(zone, w, "reported", NULL, g);

    ngx_http_kv_router_ranks_json(zone, w, "held",
                                  ngx_http_kv_router_held_fields, g);

    ngx_http_kv_router_ranks_json(zone, w, "estimates",
                                  ngx_http_kv_router_estimate_fields, g);

    ngx_http_kv_router_served_json(zone, w, g);

    yajl_gen_map_close(g);
}


void
ngx_http_kv_router_workers_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    uint32_t                     i, n;
    ngx_http_kv_router_worker_t  w;

    yajl_gen_array_open(g);

    n = kvr_router_workers(&zone->run.router);

    for (i = 0; i < n; i++) {

        /* a worker that is being changed now is shown at the next call */

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

    for (i = 0; i < zone->conf.params.shards; i++) {
        if (!zone->run.sh->redis_up[i]) {
            return 0;
        }
    }

    return 1;
}


/* When a shard's subscription was last made or lost; 0: never. */

static uint64_t
ngx_http_kv_router_redis_changed(ngx_http_kv_router_zone_t *zone)
{
    time_t    last;
    uint32_t  i;

    last = 0;

    for (i = 0; i < zone->conf.params.shards; i++) {
        last = ngx_max(last, zone->run.sh->redis_changed[i]);
    }

    return last;
}


static void
ngx_http_kv_router_turns_json(ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    kvr_turns_stats_t  stats;

    if (zone->conf.turns == NULL) {
        return;
    }

    kvr_turns_stats(&zone->conf.turns->cache, &stats);

    ngx_http_kv_router_gen_map(g, "turn_cache");
    ngx_http_kv_router_gen_u64(g, "bytes", zone->conf.turns->size);
    ngx_http_kv_router_fields_json(ngx_http_kv_router_turns_fields, &stats, g);
    yajl_gen_map_close(g);
}


static void
ngx_http_kv_router_lease_json(ngx_http_kv_router_zone_t *zone, uint32_t shard,
    yajl_gen g)
{
    uint32_t  pid;
    uint64_t  token;

    kvr_router_lease_holder(&zone->run.router, shard, &pid, &token);

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

    for (i = 0; i < zone->conf.params.shards; i++) {
        kvr_router_shard_stats(&zone->run.router, i, &stats);

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
    ngx_uint_t                    i;
    kvr_stats_t                   stats;
    const kvr_params_t           *params;
    ngx_http_kv_router_routed_t   routed;

    ngx_memzero(&stats, sizeof(kvr_stats_t));
    kvr_router_stats(&zone->run.router, &stats);

    params = kvr_router_params(&zone->run.router);

    yajl_gen_map_open(g);

    ngx_http_kv_router_gen_text(g, "zone", zone->conf.name.data,
                                zone->conf.name.len);

    ngx_http_kv_router_gen_str(g, "model", params->model);
    ngx_http_kv_router_gen_u64(g, "block_size", params->block_size);
    ngx_http_kv_router_gen_bool(g, "eagle", params->eagle);
    ngx_http_kv_router_gen_u64(g, "max_workers", params->max_workers);

    ngx_http_kv_router_object_json("memory", ngx_http_kv_router_memory_fields,
                                   &stats, g);
    ngx_http_kv_router_object_json("index", ngx_http_kv_router_index_fields,
                                   &stats, g);

    ngx_http_kv_router_gen_map(g, "frequency");
    ngx_http_kv_router_gen_u64(g, "window_ms", params->frequency_ms);
    ngx_http_kv_router_fields_json(ngx_http_kv_router_frequency_fields, &stats,
                                   g);
    yajl_gen_map_close(g);

    ngx_http_kv_router_gen_key(g, "lease");
    ngx_http_kv_router_lease_json(zone, 0, g);

    ngx_http_kv_router_gen_key(g, "shards");
    ngx_http_kv_router_shards_json(zone, g);

    ngx_http_kv_router_gen_u64(g, "uptime",
                               ngx_time() - (time_t) zone->run.sh->made);
    ngx_http_kv_router_histograms_json(zone, g);

    ngx_http_kv_router_gen_map(g, "requests");

    ngx_http_kv_router_counters_json(zone, "requests", g);

    ngx_http_kv_router_gen_map(g, "by_reason");

    for (i = 0; i < NGX_HTTP_KV_ROUTER_REASONS; i++) {
        ngx_http_kv_router_gen_u64(g, ngx_http_kv_router_why_name(i),
                                   zone->run.sh->by_reason[i]);
    }

    yajl_gen_map_close(g);

    ngx_http_kv_router_gen_map(g, "by_rung");

    for (i = 0; i < NGX_HTTP_KV_ROUTER_RUNGS; i++) {
        ngx_http_kv_router_gen_u64(g, ngx_http_kv_router_rung_name(i),
                                   zone->run.sh->by_rung[i]);
    }

    yajl_gen_map_close(g);
    yajl_gen_map_close(g);

    ngx_http_kv_router_counts_json(zone, "questions", g);
    ngx_http_kv_router_counts_json(zone, "echoes", g);
    ngx_http_kv_router_counts_json(zone, "names", g);

    ngx_http_kv_router_read_routed(zone, &routed);
    ngx_http_kv_router_object_json("routed",
                                   ngx_http_kv_router_routed_fields,
                                   &routed, g);

    if (zone->conf.model) {
        ngx_http_kv_router_gen_key(g, "local_model");
        ngx_http_kv_router_model_json(zone, g);
    }

    ngx_http_kv_router_turns_json(zone, g);

    if (zone->conf.scrape.interval) {
        ngx_http_kv_router_counts_json(zone, "scrape", g);
    }

    if (zone->conf.redis) {
        ngx_http_kv_router_gen_map(g, "redis");
        ngx_http_kv_router_gen_u64(g, "up", ngx_http_kv_router_redis_up(zone));
        ngx_http_kv_router_gen_u64(g, "changed",
                                   ngx_http_kv_router_redis_changed(zone));
        ngx_http_kv_router_counters_json(zone, "redis", g);
        yajl_gen_map_close(g);
    }

    ngx_http_kv_router_sync_json(zone, g);
    ngx_http_kv_router_queue_json(zone, g);

    ngx_http_kv_router_gen_key(g, "workers");
    ngx_http_kv_router_workers_json(zone, g);

    yajl_gen_map_close(g);
}
