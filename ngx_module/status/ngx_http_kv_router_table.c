
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The status as a plain table, for people whose browsers run no scripts.
 */


#include "../request/ngx_http_kv_router_route.h"
#include "ngx_http_kv_router_stats.h"
#include "ngx_http_kv_router_watch.h"


static void ngx_http_kv_router_table_zone(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_answer_t *a);
static void ngx_http_kv_router_table_requests(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_answer_t *a);
static void ngx_http_kv_router_table_workers(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_answer_t *a);
static void ngx_http_kv_router_table_worker(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, ngx_http_kv_router_answer_t *a);
static void ngx_http_kv_router_table_causes(
    const ngx_http_kv_router_worker_t *w, ngx_http_kv_router_answer_t *a);
static void ngx_http_kv_router_table_echoes(
    const ngx_http_kv_router_worker_t *w, ngx_http_kv_router_answer_t *a);
static void ngx_http_kv_router_table_sums(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, const ngx_http_kv_router_field_t *f,
    ngx_http_kv_router_answer_t *a);
static void ngx_http_kv_router_table_rungs(ngx_http_kv_router_answer_t *a,
    const kvr_rungs_found_t *found);
static void ngx_http_kv_router_table_name(ngx_http_kv_router_answer_t *a,
    const ngx_http_kv_router_worker_t *w);
static void ngx_http_kv_router_table_word(ngx_http_kv_router_answer_t *a,
    ngx_uint_t bad, const char *word);
static void ngx_http_kv_router_table_ms(ngx_http_kv_router_answer_t *a,
    int64_t ms);
static void ngx_http_kv_router_table_text(ngx_http_kv_router_answer_t *a,
    const u_char *text, size_t len);
static void ngx_http_kv_router_table_str(ngx_http_kv_router_answer_t *a,
    const char *text);


static const char  ngx_http_kv_router_table_head[] =
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<style>\n"
    ":root { color-scheme: light dark }\n"
    "body { font: 14px sans-serif; margin: 2em }\n"
    "table { border-collapse: collapse; margin: 1em 0; display: block; "
    "overflow-x: auto }\n"
    "th, td { border-bottom: 1px solid #8888; padding: .3em .8em; "
    "text-align: left }\n"
    ".n { text-align: right; font-variant-numeric: tabular-nums }\n"
    ".bad { color: #b00; font-weight: bold }\n"
    "</style>\n";


ngx_int_t
ngx_http_kv_router_table(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, ngx_http_kv_router_answer_t *a)
{
    static ngx_str_t  policy = ngx_string("default-src 'none'; "
                                          "style-src 'unsafe-inline'");

    if (ngx_http_kv_router_answer_header(r, "Content-Security-Policy",
                                         &policy)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_kv_router_answer_printf(a, "<!DOCTYPE html>\n<html lang=\"en\">\n"
                                     "<meta charset=\"utf-8\">\n<title>");
    ngx_http_kv_router_table_text(a, zone->name.data, zone->name.len);
    ngx_http_kv_router_answer_printf(a, " - kv_router</title>\n");

    ngx_http_kv_router_answer_write(a, ngx_http_kv_router_table_head,
                                    sizeof(ngx_http_kv_router_table_head) - 1);

    ngx_http_kv_router_table_zone(zone, a);
    ngx_http_kv_router_table_requests(zone, a);
    ngx_http_kv_router_table_workers(zone, a);

    return NGX_OK;
}


static void
ngx_http_kv_router_table_zone(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_answer_t *a)
{
    const char          *state, *why;
    kvr_stats_t          stats;
    const kvr_params_t  *params;

    ngx_memzero(&stats, sizeof(kvr_stats_t));
    kvr_router_stats(&zone->router, &stats);

    params = kvr_router_params(&zone->router);

    ngx_http_kv_router_answer_printf(a, "<h1>");
    ngx_http_kv_router_table_text(a, zone->name.data, zone->name.len);
    ngx_http_kv_router_answer_printf(a, "</h1>\n<p>");

    if (params->model[0]) {
        ngx_http_kv_router_table_str(a, params->model);
        ngx_http_kv_router_answer_printf(a, ", ");
    }

    ngx_http_kv_router_answer_printf(a, "blocks of %uD %stokens, %uD shard%s\n"
                                     "<p>%uL of %uL MiB used, %uL blocks, "
                                     "%uL pairs, %uL forgotten\n",
                                     params->block_size,
                                     params->eagle ? "pairs of " : "",
                                     params->shards,
                                     params->shards > 1 ? "s" : "",
                                     stats.used_bytes >> 20,
                                     stats.zone_bytes >> 20,
                                     (uint64_t) stats.blocks,
                                     (uint64_t) stats.pairs,
                                     (uint64_t) stats.forgotten);

    if (zone->model) {
        state = ngx_http_kv_router_model_state(zone, &why);

        ngx_http_kv_router_answer_printf(a, "<p%s>model %s",
                                         why[0] ? " class=\"bad\"" : "",
                                         state);

        if (why[0]) {
            ngx_http_kv_router_answer_printf(a, ": ");
            ngx_http_kv_router_table_str(a, why);
        }

        ngx_http_kv_router_answer_printf(a, "\n");
    }
}


static void
ngx_http_kv_router_table_requests(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_answer_t *a)
{
    ngx_uint_t                   blocks;
    ngx_http_kv_router_shctx_t  *sh;

    sh = zone->sh;

    if (sh == NULL) {
        return;
    }

    ngx_http_kv_router_answer_printf(a, "<p>%uA requests, %uA retries, %uA "
                                     "prompt blocks", sh->requests,
                                     sh->retries, sh->prompt_blocks);

    blocks = ngx_max(sh->prompt_blocks, 1);

    ngx_http_kv_router_answer_printf(a, ", %uL%% of them where they were sent "
                                     "to, %uL%% at the best place\n",
                                     (uint64_t) sh->overlap_blocks * 100
                                     / blocks,
                                     (uint64_t) sh->best_blocks * 100
                                     / blocks);

    ngx_http_kv_router_answer_printf(a, "<p>token ids of the body: %uA, of "
                                     "the model: %uA, of render: %uA, of "
                                     "tokenize: %uA, none, but text: %uA, "
                                     "none: %uA\n",
                                     sh->by_rung[NGX_HTTP_KV_ROUTER_BY_IDS],
                                     sh->by_rung[NGX_HTTP_KV_ROUTER_BY_LOCAL],
                                     sh->by_rung[NGX_HTTP_KV_ROUTER_BY_RENDER],
                                     sh->by_rung[NGX_HTTP_KV_ROUTER_BY_REMOTE],
                                     sh->by_rung[NGX_HTTP_KV_ROUTER_BY_TEXT],
                                     sh->by_rung[NGX_HTTP_KV_ROUTER_BY_LOAD]);

    if (ngx_http_kv_router_never_matched(zone)) {
        ngx_http_kv_router_answer_printf(a, "<p class=\"bad\">No prompt ever "
                                         "found a block: are the tokenizer, "
                                         "the LoRA names and the cache salts "
                                         "those of the engines?\n");
    }

    if (zone->redis && !ngx_http_kv_router_redis_up(zone)) {
        ngx_http_kv_router_answer_printf(a, "<p class=\"bad\">Redis is "
                                         "down.\n");
    }
}


static void
ngx_http_kv_router_table_workers(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_answer_t *a)
{
    uint32_t                     i, n;
    ngx_http_kv_router_worker_t  w;

    ngx_http_kv_router_answer_printf(a, "<table>\n<tr><th>worker<th>address"
                                     "<th>role<th>engine<th>asked by<th>health"
                                     "<th>confidence"
                                     "<th>reason<th class=\"n\">last message"
                                     "<th class=\"n\">ranks"
                                     "<th class=\"n\">held blocks"
                                     "<th class=\"n\">requests"
                                     "<th class=\"n\">in prefill"
                                     "<th class=\"n\">prefill tokens"
                                     "<th class=\"n\">decode blocks"
                                     "<th class=\"n\">expected cached tokens"
                                     "<th class=\"n\">reported by engine"
                                     "<th>watchdog<th>\n");

    n = kvr_router_workers(&zone->router);

    for (i = 0; i < n; i++) {
        if (ngx_http_kv_router_read_worker(zone, i, &w) == NGX_OK) {
            ngx_http_kv_router_table_worker(zone, &w, a);
        }
    }

    ngx_http_kv_router_answer_printf(a, "</table>\n");

    for (i = 0; i < n; i++) {
        if (ngx_http_kv_router_read_worker(zone, i, &w) == NGX_OK) {
            ngx_http_kv_router_table_causes(&w, a);
            ngx_http_kv_router_table_echoes(&w, a);
        }
    }
}


/* Shows a line for each route of a worker that had an echo. */

static void
ngx_http_kv_router_table_echoes(const ngx_http_kv_router_worker_t *w,
    ngx_http_kv_router_answer_t *a)
{
    ngx_uint_t               i, bad;
    const kvr_trust_view_t  *view;

    for (i = 0; i < KVR_ROUTES; i++) {

        view = &w->trust[i];
        bad = view->state == KVR_TRUST_MISMATCH;

        if (!ngx_http_kv_router_echoed(view)) {
            continue;
        }

        ngx_http_kv_router_answer_printf(a, "<p>");
        ngx_http_kv_router_table_str(a, w->conf.id);
        ngx_http_kv_router_answer_printf(a, ", route %s: <span%s>%s</span>, "
                                         "%uL echoes full, %uL parted",
                                         kvr_route_name(i),
                                         bad ? " class=\"bad\"" : "",
                                         kvr_trust_name(view->state),
                                         view->full, view->parted);

        if (view->blocks) {
            ngx_http_kv_router_answer_printf(a, ", the last one after %uD of "
                                             "%uD blocks", view->depth,
                                             view->blocks);
        }

        ngx_http_kv_router_answer_printf(a, "%s%s\n", bad ? ": " : "",
                                         bad ? ngx_http_kv_router_echo_causes()
                                             : "");
    }
}


/* Shows the watchdog's verdict on a worker, below the table. */

static void
ngx_http_kv_router_table_causes(const ngx_http_kv_router_worker_t *w,
    ngx_http_kv_router_answer_t *a)
{
    const char  *causes;

    causes = ngx_http_kv_router_usage_causes(w->verdict);

    if (causes == NULL) {
        return;
    }

    ngx_http_kv_router_answer_printf(a, "<p><span class=\"bad\">");
    ngx_http_kv_router_table_str(a, w->conf.id);
    ngx_http_kv_router_answer_printf(a, "</span>: %s: %s\n",
                                     ngx_http_kv_router_usage_says(
                                         w->verdict),
                                     causes);
}


static void
ngx_http_kv_router_table_worker(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, ngx_http_kv_router_answer_t *a)
{
    ngx_http_kv_router_answer_printf(a, "<tr><td>");
    ngx_http_kv_router_table_str(a, w->conf.id);
    ngx_http_kv_router_answer_printf(a, "<td>");
    ngx_http_kv_router_table_str(a, w->conf.address);
    ngx_http_kv_router_table_name(a, w);
    ngx_http_kv_router_answer_printf(a, "<td>%s", kvr_role_name(w->conf.role));
    ngx_http_kv_router_table_rungs(a, &w->rungs);

    ngx_http_kv_router_table_word(a, w->health.state != KVR_HEALTH_OK
                                    && w->health.state
                                       != KVR_HEALTH_SLOW_START,
                                 kvr_health_name(w->health.state));
    ngx_http_kv_router_table_word(a, w->confidence == KVR_DEGRADED
                                    || w->confidence == KVR_STALE,
                                 kvr_confidence_name(w->confidence));

    ngx_http_kv_router_answer_printf(a, "<td>%s%s", w->reason,
                                     w->publisher_reason[0] ? ": " : "");
    ngx_http_kv_router_table_text(a, (u_char *) w->publisher_reason,
                                 ngx_strlen(w->publisher_reason));

    ngx_http_kv_router_answer_printf(a, "<td class=\"n\">");
    ngx_http_kv_router_table_ms(a, w->age);
    ngx_http_kv_router_answer_printf(a, "<td class=\"n\">%uD", w->conf.ranks);

    ngx_http_kv_router_table_sums(zone, w, ngx_http_kv_router_held_fields, a);
    ngx_http_kv_router_table_sums(zone, w, ngx_http_kv_router_load_fields, a);

    ngx_http_kv_router_answer_printf(a, "<td class=\"n\">%uL"
                                     "<td class=\"n\">%uL",
                                     w->usage.predicted_tokens,
                                     w->usage.cached_tokens);

    ngx_http_kv_router_table_word(a,
                                  ngx_http_kv_router_usage_causes(w->verdict)
                                  != NULL,
                                  w->usage.requests
                                  ? kvr_usage_verdict_name(w->verdict) : "");

    ngx_http_kv_router_answer_printf(a, "<td>%s%s%s\n",
                                     w->flags & KVR_WORKER_DRAINING
                                     ? "draining " : "",
                                     w->flags & KVR_WORKER_TRUNCATED
                                     ? "truncated " : "",
                                     w->flags & KVR_WORKER_HYBRID
                                     ? "upper bounds" : "");
}


/* Shows what the host name of the worker is, and why it is nothing. */

static void
ngx_http_kv_router_table_name(ngx_http_kv_router_answer_t *a,
    const ngx_http_kv_router_worker_t *w)
{
    const char  *reason;

    if (w->mark == 0) {
        return;
    }

    reason = ngx_http_kv_router_name_reason(w);

    if (w->name.address[0]) {
        ngx_http_kv_router_answer_printf(a, ", %s", w->name.address);
    }

    if (reason[0]) {
        ngx_http_kv_router_answer_printf(a, ", <span class=\"bad\">");
        ngx_http_kv_router_table_str(a, reason);
        ngx_http_kv_router_answer_printf(a, "</span>");
    }
}


/* Shows what the probe found: the engine, and what it can be asked for. */

static void
ngx_http_kv_router_table_rungs(ngx_http_kv_router_answer_t *a,
    const kvr_rungs_found_t *found)
{
    if (!(found->rungs & KVR_RUNG_KNOWN)) {
        ngx_http_kv_router_answer_printf(a, "<td><td>");
        return;
    }

    ngx_http_kv_router_answer_printf(a, "<td>%s %s<td>%s%s",
                                     kvr_engine_name(found->engine),
                                     found->version,
                                     found->rungs & KVR_RUNG_RENDER
                                     ? "render " : "",
                                     found->rungs & KVR_RUNG_REMOTE
                                     ? "tokenize" : "");
}


/* Shows the sums over all ranks of a worker. */

static void
ngx_http_kv_router_table_sums(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_worker_t *w, const ngx_http_kv_router_field_t *f,
    ngx_http_kv_router_answer_t *a)
{
    uint32_t                   holder, steps;
    uint64_t                   sum;
    ngx_http_kv_router_load_t  load;

    for ( /* void */ ; f->key; f++) {

        sum = 0;
        holder = KVR_HOLDER_NONE;
        steps = 0;

        while (ngx_http_kv_router_next_load(zone, w->slot, &holder, &steps,
                                            &load))
        {
            sum += ngx_http_kv_router_field(f, &load);
        }

        ngx_http_kv_router_answer_printf(a, "<td class=\"n\">%uL", sum);
    }
}


static void
ngx_http_kv_router_table_word(ngx_http_kv_router_answer_t *a, ngx_uint_t bad,
    const char *word)
{
    ngx_http_kv_router_answer_printf(a, "<td%s>%s",
                                     bad ? " class=\"bad\"" : "", word);
}


static void
ngx_http_kv_router_table_ms(ngx_http_kv_router_answer_t *a, int64_t ms)
{
    if (ms >= 0) {
        ngx_http_kv_router_answer_printf(a, "%L.%03L s", ms / 1000,
                                         ms % 1000);
    }
}


/* Escapes text, whose origin is a configuration, the API, or Redis. */

static void
ngx_http_kv_router_table_text(ngx_http_kv_router_answer_t *a,
    const u_char *text, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {

        switch (text[i]) {

        case '<':
            ngx_http_kv_router_answer_write(a, "&lt;", 4);
            break;

        case '>':
            ngx_http_kv_router_answer_write(a, "&gt;", 4);
            break;

        case '&':
            ngx_http_kv_router_answer_write(a, "&amp;", 5);
            break;

        case '"':
            ngx_http_kv_router_answer_write(a, "&quot;", 6);
            break;

        default:
            ngx_http_kv_router_answer_write(a, &text[i], 1);
        }
    }
}


static void
ngx_http_kv_router_table_str(ngx_http_kv_router_answer_t *a, const char *text)
{
    ngx_http_kv_router_table_text(a, (const u_char *) text, ngx_strlen(text));
}
