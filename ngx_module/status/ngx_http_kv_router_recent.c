
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The parts "decisions" and "prefixes" of the status.
 */


#include "../request/ngx_http_kv_router_fleet.h"
#include "ngx_http_kv_router_history.h"

#include <math.h>


#define NGX_HTTP_KV_ROUTER_HOT_TOLD  20


static void ngx_http_kv_router_decision_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_fleet_t *fleet, const kvr_decision_t *d,
    yajl_gen g);
static void ngx_http_kv_router_option_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_fleet_t *fleet, const kvr_decision_option_t *o,
    yajl_gen g);
static void ngx_http_kv_router_prefix_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_fleet_t *fleet, const kvr_hot_prefix_t *p,
    yajl_gen g);
static void ngx_http_kv_router_gen_holder(yajl_gen g,
    const ngx_http_kv_router_fleet_t *fleet, uint32_t holder,
    uint32_t generation);
static void ngx_http_kv_router_gen_bytes(yajl_gen g, const char *key,
    const char *bytes, size_t len);
static void ngx_http_kv_router_gen_prefix(yajl_gen g, const char *key,
    uint64_t prefix);


uint64_t
ngx_http_kv_router_unix_ms(void)
{
    const ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (uint64_t) tp->sec * 1000 + tp->msec;
}


void
ngx_http_kv_router_decisions_json(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    uint32_t                     i;
    kvr_decision_t               d;
    ngx_http_kv_router_fleet_t  *fleet;

    fleet = ngx_http_kv_router_fleet_get(zone);

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_u64(g, "now_ms", ngx_http_kv_router_unix_ms());
    ngx_http_kv_router_gen_u64(g, "max_per_second", KVR_DECISIONS_RATE);
    ngx_http_kv_router_gen_array(g, "decisions");

    for (i = 0; fleet && i < KVR_DECISIONS; i++) {
        if (kvr_decisions_read(&zone->run.sh->decisions, i, &d)) {
            ngx_http_kv_router_decision_json(zone, fleet, &d, g);
        }
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);

    if (fleet) {
        ngx_http_kv_router_fleet_put(fleet);
    }
}


static void
ngx_http_kv_router_decision_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_fleet_t *fleet, const kvr_decision_t *d,
    yajl_gen g)
{
    uint32_t                      i, size;
    const char                   *why;
    const kvr_decision_option_t  *chosen, *best;

    size = zone->conf.params.block_size;
    chosen = &d->options[0];
    best = chosen;

    for (i = 1; i < d->noptions; i++) {
        if (d->options[i].overlap > best->overlap) {
            best = &d->options[i];
        }
    }

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_u64(g, "time_ms", d->time_ms);
    ngx_http_kv_router_gen_bytes(g, "model", d->model, d->model_len);
    ngx_http_kv_router_gen_prefix(g, "session", d->prefix);
    ngx_http_kv_router_gen_u64(g, "prompt_tokens", d->prompt_tokens);
    ngx_http_kv_router_gen_bytes(g, "policy", d->policy, d->policy_len);
    ngx_http_kv_router_gen_bytes(g, "reason", d->reason, d->reason_len);
    ngx_http_kv_router_gen_u64(g, "decide_us", d->decide_us);

    why = ngx_http_kv_router_why_name(d->why);

    if (why) {
        ngx_http_kv_router_gen_str(g, "by", why);
    }

    if (d->first_byte_us) {
        ngx_http_kv_router_gen_decimal(g, "first_byte_ms", d->first_byte_us,
                                       3);
    }

    if (d->noptions) {
        ngx_http_kv_router_gen_key(g, "worker");
        ngx_http_kv_router_gen_holder(g, fleet, chosen->holder,
                                      chosen->generation);
        ngx_http_kv_router_gen_u64(g, "rank", chosen->rank);
        ngx_http_kv_router_gen_str(g, "confidence",
                                   kvr_confidence_name(chosen->confidence));
        ngx_http_kv_router_gen_u64(g, "overlap_tokens",
                                   (uint64_t) chosen->overlap * size);

        ngx_http_kv_router_gen_map(g, "best");
        ngx_http_kv_router_gen_key(g, "worker");
        ngx_http_kv_router_gen_holder(g, fleet, best->holder,
                                      best->generation);
        ngx_http_kv_router_gen_u64(g, "overlap",
                                   (uint64_t) best->overlap * size);
        yajl_gen_map_close(g);
    }

    ngx_http_kv_router_gen_u64(g, "candidates_total", d->candidates);
    ngx_http_kv_router_gen_array(g, "candidates");

    for (i = 0; i < d->noptions; i++) {
        ngx_http_kv_router_option_json(zone, fleet, &d->options[i], g);
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}


static void
ngx_http_kv_router_option_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_fleet_t *fleet, const kvr_decision_option_t *o,
    yajl_gen g)
{
    uint32_t  size;

    size = zone->conf.params.block_size;

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_key(g, "worker");
    ngx_http_kv_router_gen_holder(g, fleet, o->holder, o->generation);
    ngx_http_kv_router_gen_u64(g, "rank", o->rank);
    ngx_http_kv_router_gen_u64(g, "overlap", (uint64_t) o->overlap * size);
    ngx_http_kv_router_gen_u64(g, "predicted", (uint64_t) o->predicted * size);
    ngx_http_kv_router_gen_u64(g, "load", o->active);
    ngx_http_kv_router_gen_u64(g, "prefill_tokens", o->queued);

    yajl_gen_map_close(g);
}


void
ngx_http_kv_router_prefixes_json(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g)
{
    uint32_t                     i, n;
    kvr_hot_prefix_t             hot[NGX_HTTP_KV_ROUTER_HOT_TOLD];
    ngx_http_kv_router_fleet_t  *fleet;

    fleet = ngx_http_kv_router_fleet_get(zone);

    n = fleet ? kvr_hot_read(&zone->run.sh->hot,
                             kvr_router_self(&zone->run.router), hot,
                             NGX_HTTP_KV_ROUTER_HOT_TOLD)
              : 0;

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_u64(g, "now_ms", ngx_http_kv_router_unix_ms());
    ngx_http_kv_router_gen_u64(g, "missed",
                               kvr_load64(&zone->run.sh->hot.missed));
    ngx_http_kv_router_gen_array(g, "prefixes");

    for (i = 0; i < n; i++) {
        ngx_http_kv_router_prefix_json(zone, fleet, &hot[i], g);
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);

    if (fleet) {
        ngx_http_kv_router_fleet_put(fleet);
    }
}


/* The name is the model, the prefix's hash, and when it was seen first. */

static void
ngx_http_kv_router_prefix_json(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_fleet_t *fleet, const kvr_hot_prefix_t *p,
    yajl_gen g)
{
    u_char      name[KVR_HOT_TEXT + 64], *end;
    uint32_t    i;
    ngx_tm_t    tm;

    ngx_gmtime(p->first_ms / 1000, &tm);

    end = ngx_slprintf(name, name + sizeof(name),
                       "%*s%s%08xL, first seen %02d:%02d:%02d UTC",
                       (size_t) p->model_len, p->model,
                       p->model_len ? " " : "", p->key >> 32,
                       tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec);

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_bytes(g, "name", (char *) name, end - name);
    ngx_http_kv_router_gen_bytes(g, "model", p->model, p->model_len);
    ngx_http_kv_router_gen_prefix(g, "prefix", p->key);
    ngx_http_kv_router_gen_u64(g, "depth_blocks", p->depth);
    ngx_http_kv_router_gen_u64(g, "requests", p->count);
    ngx_http_kv_router_gen_u64(g, "error", p->error);
    ngx_http_kv_router_gen_u64(g, "tokens_saved",
                               p->saved * zone->conf.params.block_size);
    ngx_http_kv_router_gen_u64(g, "first_ms", p->first_ms);
    ngx_http_kv_router_gen_u64(g, "last_ms", p->last_ms);
    ngx_http_kv_router_gen_array(g, "holders");

    for (i = 0; i < p->nholders; i++) {
        ngx_http_kv_router_gen_holder(g, fleet, p->holders[i].holder,
                                      p->holders[i].generation);
    }

    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}


/* The worker of a holder, or null: the worker was taken out. */

static void
ngx_http_kv_router_gen_holder(yajl_gen g,
    const ngx_http_kv_router_fleet_t *fleet, uint32_t holder,
    uint32_t generation)
{
    uint32_t                           i;
    const ngx_http_kv_router_holder_t *h;

    for (i = 0; i < fleet->n; i++) {
        h = &fleet->holders[i];

        if (h->holder == holder && h->generation == generation) {
            yajl_gen_string(g, h->id.data, h->id.len);
            return;
        }
    }

    yajl_gen_null(g);
}


/* Bytes that came from clients: what is not ASCII is told as "?". */

static void
ngx_http_kv_router_gen_bytes(yajl_gen g, const char *key, const char *bytes,
    size_t len)
{
    u_char  text[KVR_DECISION_TEXT + KVR_HOT_TEXT + 64];
    size_t  i;

    len = ngx_min(len, sizeof(text));

    for (i = 0; i < len; i++) {
        text[i] = (bytes[i] >= 0x20 && bytes[i] < 0x7f) ? bytes[i] : '?';
    }

    ngx_http_kv_router_gen_text(g, key, text, len);
}


static void
ngx_http_kv_router_gen_prefix(yajl_gen g, const char *key, uint64_t prefix)
{
    u_char  text[16], *end;

    if (prefix == 0) {
        return;
    }

    end = ngx_sprintf(text, "%016xL", prefix);

    ngx_http_kv_router_gen_text(g, key, text, end - text);
}
