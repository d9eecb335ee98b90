
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a decision leaves for the status page.
 */


#include "ngx_http_kv_router_route.h"


static void ngx_http_kv_router_decided_options(ngx_http_kv_router_ctx_t *ctx,
    kvr_decision_t *d);
static void ngx_http_kv_router_decided_option(
    const ngx_http_kv_router_candidate_t *c, kvr_decision_option_t *o);
static uint8_t ngx_http_kv_router_decided_text(char *to, const u_char *text,
    size_t len);


void
ngx_http_kv_router_decided(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i;
    ngx_str_t                        model;
    kvr_decision_t                   d;
    kvr_hot_prompt_t                 prompt;
    const ngx_time_t                *tp;
    kvr_hot_holder_t                 holders[KVR_DECISION_OPTIONS];
    ngx_http_kv_router_shctx_t      *sh;
    ngx_http_kv_router_candidate_t  *chosen;

    sh = ctx->zone->run.sh;
    tp = ngx_timeofday();
    chosen = ctx->choice.chosen;

    if (!kvr_decisions_due(&sh->decisions, tp->sec)) {
        return;
    }

    ngx_memzero(&d, offsetof(kvr_decision_t, policy));

    d.time_ms = (uint64_t) tp->sec * 1000 + tp->msec;
    d.prompt_tokens = ctx->found.match.prompt_tokens;
    d.prompt_blocks = ctx->found.match.prompt_blocks;
    d.best = ctx->found.best;
    d.decide_us = (uint32_t) ctx->choice.us;
    d.why = ctx->choice.why;
    d.candidates = ctx->found.match.n;
    d.policy_len = ngx_http_kv_router_decided_text(d.policy,
                                                   ctx->choice.policy.data,
                                                   ctx->choice.policy.len);
    d.reason_len = ngx_http_kv_router_decided_text(d.reason,
                                                   ctx->choice.reason.data,
                                                   ctx->choice.reason.len);

    model.data = (u_char *) chosen->model;
    model.len = chosen->model_len;

    if (model.len == 0) {
        model.data = (u_char *) ctx->zone->conf.params.model;
        model.len = ngx_strlen(model.data);
    }

    d.model_len = ngx_http_kv_router_decided_text(d.model, model.data,
                                                  model.len);

    ngx_http_kv_router_decided_options(ctx, &d);

    for (i = 0; i < d.noptions; i++) {
        holders[i].holder = d.options[i].holder;
        holders[i].generation = d.options[i].generation;
        holders[i].depth = d.options[i].overlap;
    }

    prompt.hashes = ctx->keys.lookup.hash;
    prompt.n = ctx->keys.lookup.n;
    prompt.overlap = chosen->device - chosen->predicted;
    prompt.model = d.model;
    prompt.model_len = d.model_len;
    prompt.holders = holders;
    prompt.nholders = d.noptions;
    prompt.now_ms = d.time_ms;

    d.prefix = kvr_hot_add(&sh->hot, kvr_router_self(&ctx->zone->run.router),
                           &prompt);

    ctx->choice.decision = kvr_decisions_add(&sh->decisions, &d);
}


void
ngx_http_kv_router_decided_first_byte(ngx_http_kv_router_ctx_t *ctx)
{
    kvr_decision_t   *d;
    kvr_decisions_t  *all;

    all = &ctx->zone->run.sh->decisions;
    d = ctx->choice.decision ? kvr_decisions_open(all, ctx->choice.decision)
                             : NULL;

    if (d) {
        d->first_byte_us = (uint32_t) (ctx->times.first_byte_us
                                       - ctx->times.began_us);
        kvr_decisions_close(all, ctx->choice.decision);
    }
}


/* The chosen candidate, and behind it those with the most overlap. */

static void
ngx_http_kv_router_decided_options(ngx_http_kv_router_ctx_t *ctx,
    kvr_decision_t *d)
{
    uint32_t                               i, k, n;
    const ngx_http_kv_router_candidate_t  *c, *most[KVR_DECISION_OPTIONS];

    most[0] = ctx->choice.chosen;
    n = 1;

    for (i = 0; i < ctx->found.match.n; i++) {
        c = &ctx->found.candidates[i];

        if (c == ctx->choice.chosen
            || (n == KVR_DECISION_OPTIONS
                && c->device <= most[n - 1]->device))
        {
            continue;
        }

        k = (n < KVR_DECISION_OPTIONS) ? n++ : n - 1;

        for ( /* void */ ; k > 1 && most[k - 1]->device < c->device; k--) {
            most[k] = most[k - 1];
        }

        most[k] = c;
    }

    for (i = 0; i < n; i++) {
        ngx_http_kv_router_decided_option(most[i], &d->options[i]);
    }

    d->noptions = n;
}


static void
ngx_http_kv_router_decided_option(const ngx_http_kv_router_candidate_t *c,
    kvr_decision_option_t *o)
{
    o->holder = c->holder;
    o->generation = c->generation;
    o->rank = c->rank;
    o->overlap = c->device;
    o->predicted = c->predicted;
    o->active = (uint32_t) c->active_requests;
    o->queued = (uint32_t) c->prefill_tokens;
    o->confidence = c->confidence;
}


static uint8_t
ngx_http_kv_router_decided_text(char *to, const u_char *text, size_t len)
{
    len = ngx_min(len, KVR_DECISION_TEXT);
    ngx_memcpy(to, text, len);

    return (uint8_t) len;
}
