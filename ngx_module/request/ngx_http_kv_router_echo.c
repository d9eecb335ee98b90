
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Compares the prompts that a worker has answered with the blocks that the
 * worker then says it has stored, and keeps the trust that follows from it.
 */


#include "ngx_http_kv_router_route.h"

#include <core/kvr_clock.h>
#include <wire/kvr_route.h>


/* the maximum time of the looks in one call, in microseconds */

#define NGX_HTTP_KV_ROUTER_ECHO_SLICE  300


_Static_assert(KVR_ROUTES <= KVR_TRUST_ROUTES, "each route has a cell");


static void ngx_http_kv_router_echo_keep(ngx_http_kv_router_zone_t *zone,
    const kvr_echo_t *e, const uint64_t *hashes);
static void ngx_http_kv_router_echo_look(ngx_http_kv_router_zone_t *zone,
    kvr_echo_t *e, const uint64_t *hashes);
static void ngx_http_kv_router_echo_warn(ngx_http_kv_router_zone_t *zone,
    const kvr_echo_t *e);


/* ---- the answer --------------------------------------------------------- */

const kvr_worker_t *
ngx_http_kv_router_echo_worker(ngx_http_kv_router_zone_t *zone,
    uint32_t number)
{
    const kvr_worker_t  *w;

    w = kvr_router_worker(&zone->run.router, number);

    if (kvr_load32(&w->flags) & (KVR_WORKER_DRAINS|KVR_WORKER_DELETED
                                 |KVR_WORKER_TRUNCATED)
        || ngx_http_kv_router_confidence(zone, w, number) != KVR_EXACT)
    {
        return NULL;
    }

    return w;
}


/*
 * The engine computes the whole prompt before its first output.  Of a block
 * that ends with the prompt's last token TensorRT-LLM says only later that it
 * is stored: such a block is not looked for.
 */

void
ngx_http_kv_router_echo(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         worker;
    kvr_echo_t                       e;
    const kvr_worker_t              *w;
    ngx_http_kv_router_zone_t       *zone;
    ngx_http_kv_router_candidate_t  *c;

    zone = ctx->zone;
    c = ctx->choice.chosen;

    if ((ctx->keys.ids.hash == NULL && ctx->keys.shadow.hash == NULL)
        || !ctx->try.taken || ctx->choice.prefiller
        || c->role == KVR_ROLE_DECODE
        || ctx->request->headers_out.status != NGX_HTTP_OK)
    {
        /* blocks from another worker's cache prove nothing of this one */
        return;
    }

    worker = kvr_router_holder_worker(&zone->run.router, c->holder);

    if (worker >= zone->run.sh->nworkers) {
        return;
    }

    w = ngx_http_kv_router_echo_worker(zone, worker);

    if (w == NULL || kvr_load32(&w->generation) != c->generation) {
        return;
    }

    e.answered_ms = ngx_current_msec;
    e.epoch = kvr_load64(&w->stream.epoch);
    e.clears = kvr_load64(&w->counters.clears);
    e.worker = worker;
    e.generation = c->generation;

    if (ctx->keys.ids.hash) {
        e.route = ctx->keys.route;
        e.blocks = kvr_contract_blocks(kvr_params_contract(&zone->conf.params),
                                       ctx->found.match.prompt_tokens - 1);
        e.depth = ngx_min(c->device - c->predicted, e.blocks);

        ngx_http_kv_router_echo_keep(zone, &e, ctx->keys.ids.hash);
    }

    if (ctx->keys.shadow.hash) {
        e.route = kvr_route(ctx->prompt.form, KVR_FROM_MODEL);
        e.blocks = ctx->keys.shadow.n;
        e.depth = kvr_router_depth(&zone->run.router, worker,
                                   ctx->keys.shadow.hash, e.blocks);

        ngx_http_kv_router_echo_keep(zone, &e, ctx->keys.shadow.hash);
    }
}


static void
ngx_http_kv_router_echo_keep(ngx_http_kv_router_zone_t *zone,
    const kvr_echo_t *e, const uint64_t *hashes)
{
    if (e->blocks == 0) {
        return;
    }

    if (e->blocks > KVR_ECHO_BLOCKS) {
        ngx_http_kv_router_count(zone->run.sh, ECHOES_LONG, 1);
        return;
    }

    if (zone->run.echoes == NULL) {
        zone->run.echoes = kvr_echoes_create();
    }

    if (zone->run.echoes == NULL
        || kvr_echoes_keep(zone->run.echoes, e, hashes) != KVR_OK)
    {
        ngx_http_kv_router_count(zone->run.sh, ECHOES_DROPPED, 1);
        return;
    }

    ngx_http_kv_router_count(zone->run.sh, ECHOES, 1);
}


/* ---- the looks ---------------------------------------------------------- */

void
ngx_http_kv_router_echo_looks(ngx_http_kv_router_zone_t *zone)
{
    uint64_t         until;
    kvr_echo_t      *e;
    const uint64_t  *hashes;

    if (zone->run.echoes == NULL) {
        return;
    }

    until = kvr_now_us() + NGX_HTTP_KV_ROUTER_ECHO_SLICE;

    do {
        e = kvr_echoes_due(zone->run.echoes, ngx_current_msec, &hashes);

        if (e == NULL) {
            return;
        }

        ngx_http_kv_router_echo_look(zone, e, hashes);

    } while (kvr_now_us() < until);
}


static void
ngx_http_kv_router_echo_look(ngx_http_kv_router_zone_t *zone, kvr_echo_t *e,
    const uint64_t *hashes)
{
    bool                 gone;
    uint32_t             holder, steps;
    kvr_echo_t           echo;
    kvr_router_t        *k;
    kvr_echo_look_t      look;
    kvr_echo_verdict_t   verdict;
    const kvr_worker_t  *w;

    k = &zone->run.router;
    w = kvr_router_worker(k, e->worker);

    /* first: a message that comes during the lookup proves nothing */

    look.heard_ms = kvr_load64(&w->stream.last_ms);
    look.depth = kvr_router_depth(k, e->worker, hashes, e->blocks);
    look.span = 1;

    holder = KVR_HOLDER_NONE;
    steps = 0;

    while (kvr_router_next_holder(k, e->worker, &holder, &steps)) {
        look.span = ngx_max(look.span, kvr_router_holder_span(k, holder));
    }

    gone = kvr_load32(&w->generation) != e->generation
           || kvr_load64(&w->stream.epoch) != e->epoch
           || kvr_load64(&w->counters.clears) != e->clears;

    echo = *e;
    echo.depth = look.depth;
    echo.blocks -= echo.blocks % look.span;

    if (gone || ngx_http_kv_router_echo_worker(zone, e->worker) == NULL) {
        verdict = kvr_echoes_skip(zone->run.echoes, e, gone);

    } else {
        verdict = kvr_echoes_look(zone->run.echoes, e, &look);
    }

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\" echo: worker %uD has %uD of %uD "
                   "blocks of route \"%s\"", &zone->conf.name, echo.worker,
                   echo.depth, echo.blocks, kvr_route_name(echo.route));

    switch (verdict) {

    case KVR_ECHO_AGAIN:
        break;

    case KVR_ECHO_VOID:
        ngx_http_kv_router_count(zone->run.sh, ECHOES_VOID, 1);
        break;

    default: /* KVR_ECHO_IS_FULL, KVR_ECHO_HAS_PARTED */
        ngx_http_kv_router_echo_add(zone, &echo,
                                    verdict == KVR_ECHO_IS_FULL);
    }
}


void
ngx_http_kv_router_echo_add(ngx_http_kv_router_zone_t *zone,
    const kvr_echo_t *e, bool full)
{
    kvr_trust_who_t  who;

    who.generation = e->generation;
    who.epoch = e->epoch;

    if (kvr_trust_add(&zone->run.sh->trust[e->worker], who, e->route, e->depth,
                      e->blocks, full))
    {
        ngx_http_kv_router_echo_warn(zone, e);
    }
}


static void
ngx_http_kv_router_echo_warn(ngx_http_kv_router_zone_t *zone,
    const kvr_echo_t *e)
{
    uint32_t           flags, generation;
    kvr_worker_conf_t  conf;

    if (kvr_router_read_worker(&zone->run.router, e->worker, &conf, &flags,
                               &generation)
        != KVR_OK)
    {
        return;
    }

    if (e->route == KVR_ROUTE_CACHED) {
        ngx_http_kv_router_warn(zone, NGX_LOG_ERR, ngx_cycle->log,
                                "worker \"%s\" often has less in its cache "
                                "than is known here, of the last prompt %uD "
                                "of %uD blocks: is prefix caching on, is it "
                                "this engine that the events are of, has its "
                                "model layers of which the engine publishes "
                                "nothing, as SGLang's hybrid models have "
                                "(hybrid=on), does the engine draft tokens "
                                "(spec_drop=on), are removals lost?",
                                conf.id, e->depth, e->blocks);
        return;
    }

    ngx_http_kv_router_warn(zone, NGX_LOG_ERR, ngx_cycle->log,
                            "worker \"%s\" stored other blocks than those of "
                            "the prompts that it answered: over a fifth of "
                            "the last echoes of route \"%s\" have parted, the "
                            "last one after %uD of %uD blocks: are the "
                            "tokenizer, the chat template and the flags that "
                            "change tokens those of the engine, are the cache "
                            "salt and the LoRA name, is prefix caching on, "
                            "and is it this engine that the events are of?",
                            conf.id, kvr_route_name(e->route), e->depth,
                            e->blocks);
}


void
ngx_http_kv_router_echo_trust(ngx_http_kv_router_zone_t *zone, uint32_t number,
    uint32_t generation, uint32_t route, kvr_trust_view_t *view)
{
    kvr_trust_who_t  who;

    if (number >= zone->run.sh->nworkers) {
        ngx_memzero(view, sizeof(kvr_trust_view_t));
        return;
    }

    who.generation = generation;
    who.epoch = kvr_load64(&kvr_router_worker(&zone->run.router, number)
                           ->stream.epoch);

    kvr_trust_read(&zone->run.sh->trust[number], who, route, view);
}
