
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The answer of an engine on its way to the client: its first output ends the
 * prefill, its last byte the load; the cached tokens that it reports are
 * compared with the prediction.
 */


#include "ngx_http_kv_router_route.h"

#include <wire/kvr_route.h>


/* the minimum of blocks that were predicted: of fewer nothing is said */

#define NGX_HTTP_KV_ROUTER_USAGE_BLOCKS  4

/* the engine must have one of so many; or where they are an upper bound */

#define NGX_HTTP_KV_ROUTER_USAGE_LESS    2
#define NGX_HTTP_KV_ROUTER_USAGE_BOUND   20


static void ngx_http_kv_router_answer_first(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);
static void ngx_http_kv_router_answer_output(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_uint_t streamed);
static void ngx_http_kv_router_streamed(ngx_http_kv_router_ctx_t *ctx,
    ngx_buf_t *b);
static void ngx_http_kv_router_usage(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_buf_t *b);
static void ngx_http_kv_router_usage_reported(ngx_http_kv_router_ctx_t *ctx);
static void ngx_http_kv_router_usage_judge(ngx_http_kv_router_ctx_t *ctx,
    uint32_t worker, uint32_t known, uint64_t cached);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt  ngx_http_next_body_filter;


/*
 * After all tries, the answer comes from nginx's error page or from another
 * location, not from a worker.
 */

static ngx_int_t
ngx_http_kv_router_header_filter(ngx_http_request_t *r)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = (r == r->main) ? ngx_http_kv_router_get_ctx(r) : NULL;

    if (ctx && ctx->choice.reserved && ctx->try.tries && !ctx->try.taken) {
        ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
        ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_ABORTED);
    }

    /* later, nginx's own gzip filter sets the header, too */

    if (ctx && ctx->choice.reserved && r->headers_out.content_encoding
        && r->headers_out.content_encoding->value.len)
    {
        ctx->answer.encoded = 1;
    }

    return ngx_http_next_header_filter(r);
}


/*
 * The first output of an answer ends the prefill: the first byte, unless it is
 * a stream that can be read.  The last byte ends the request's load at the
 * engine, although the client may still be receiving.
 */

static ngx_int_t
ngx_http_kv_router_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_str_t                 *type;
    ngx_uint_t                 streamed;
    ngx_chain_t               *cl;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = in && r == r->main && r->upstream ? ngx_http_kv_router_get_ctx(r)
                                            : NULL;

    if (ctx == NULL || !ctx->choice.reserved) {
        return ngx_http_next_body_filter(r, in);
    }

    type = &r->headers_out.content_type;

    streamed = type->len >= sizeof("text/event-stream") - 1
               && ngx_strncasecmp(type->data, (u_char *) "text/event-stream",
                                  sizeof("text/event-stream") - 1)
                  == 0;

    for (cl = in; cl; cl = cl->next) {

        if (ctx->times.first_byte_us == 0 && ngx_buf_size(cl->buf) > 0) {
            ngx_http_kv_router_answer_first(r, ctx);
        }

        if (!ctx->answer.output && ngx_buf_size(cl->buf) > 0
            && (!streamed || ctx->answer.encoded
                || !ngx_buf_in_memory(cl->buf)
                || kvr_output_add(&ctx->answer.begin, cl->buf->pos,
                                  cl->buf->last - cl->buf->pos)))
        {
            ngx_http_kv_router_answer_output(r, ctx, streamed);
        }

        if (streamed && ngx_buf_in_memory(cl->buf)) {
            ngx_http_kv_router_streamed(ctx, cl->buf);
        }

        ngx_http_kv_router_usage(r, ctx, cl->buf);

        if (cl->buf->last_buf) {
            ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
            ngx_http_kv_router_estimate_end(ctx);
        }
    }

    return ngx_http_next_body_filter(r, in);
}


static void
ngx_http_kv_router_answer_first(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx)
{
    ctx->times.first_byte_us = ngx_http_kv_router_now_us();

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router first byte, %uL us after the decision",
                   (uint64_t) (ctx->times.first_byte_us
                               - ctx->times.decided_us));

    ngx_http_kv_router_decided_first_byte(ctx);

    ctx->answer.failed = ngx_http_kv_router_attempt_answered(ctx) != NGX_OK;
}


static void
ngx_http_kv_router_answer_output(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_uint_t streamed)
{
    ctx->answer.output = 1;

    if (streamed) {
        ngx_http_kv_router_speed_answer(r, ctx);
    }

    if (!ctx->answer.failed) {
        ngx_http_kv_router_echo(ctx);

        if (r->headers_out.status == NGX_HTTP_OK) {
            ngx_http_kv_router_estimate_begin(ctx);
        }

        ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_DONE);
    }

    ngx_http_kv_router_prefilled(ctx, &ctx->choice.reservation);
    ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_ABORTED);
}


/*
 * A streamed answer has an event for each token, or for a few tokens.  An
 * empty line ends an event.
 */

static void
ngx_http_kv_router_streamed(ngx_http_kv_router_ctx_t *ctx, ngx_buf_t *b)
{
    u_char      *p;
    ngx_uint_t   blocks;

    for (p = b->pos; p < b->last; p++) {

        p = ngx_strlchr(p, b->last, LF);
        if (p == NULL) {
            break;
        }

        if (p > b->pos ? p[-1] == LF : ctx->answer.line_end) {
            ctx->answer.output_tokens++;
        }
    }

    if (b->pos < b->last) {
        ctx->answer.line_end = b->last[-1] == LF;
    }

    blocks = ctx->answer.output_tokens / ctx->found.match.block_size;

    if (blocks > (ngx_uint_t) ctx->choice.reservation.output_blocks) {
        kvr_load_grow(&ctx->zone->run.router.load, &ctx->choice.reservation,
                      blocks - ctx->choice.reservation.output_blocks);
    }
}


/* ---- the usage ---------------------------------------------------------- */

/*
 * Looks for the usage in a part of the answer.  A buffer in a file is not
 * read, nor is an answer with a Content-Encoding.
 */

static void
ngx_http_kv_router_usage(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    ngx_buf_t *b)
{
    if (r->headers_out.status != NGX_HTTP_OK || ctx->choice.prefiller
        || ctx->choice.chosen->role == KVR_ROLE_DECODE
        || ctx->answer.usage_done || ctx->answer.encoded)
    {
        /* blocks from another worker's cache are no hits of this worker */
        return;
    }

    if (ngx_buf_in_memory(b)) {
        kvr_answer_add(&ctx->answer.search, b->pos, b->last - b->pos);

    } else if (ngx_buf_size(b) > 0) {
        kvr_answer_gap(&ctx->answer.search);
    }

    if (b->last_buf) {
        ctx->answer.usage_done = 1;
        ngx_http_kv_router_usage_reported(ctx);
    }
}


static void
ngx_http_kv_router_usage_reported(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         known;
    kvr_answer_usage_t               usage;
    ngx_http_kv_router_candidate_t  *c;

    if (!kvr_answer_usage(&ctx->answer.search, &usage)) {
        return;
    }

    ctx->answer.usage_tokens = ctx->prompt.others ? 0 : usage.prompt_tokens;
    ctx->answer.output_tokens = ngx_max(ctx->answer.output_tokens,
                                        usage.completion_tokens);

    if (!usage.has_cached) {
        return;
    }

    ctx->answer.cached_tokens = usage.cached_tokens;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router usage: the engine had %uL of %uL tokens cached, "
                   "%uD of %uD blocks were known", usage.cached_tokens,
                   usage.prompt_tokens, ctx->choice.chosen->device,
                   ctx->found.match.prompt_blocks);

    known = ngx_http_kv_router_usage_known(ctx);
    c = ctx->choice.chosen;

    if (!ngx_http_kv_router_usage_count(ctx->zone, c->holder, c->generation,
                                        known, ctx->found.best, &usage))
    {
        return;
    }

    ngx_http_kv_router_usage_judge(ctx,
                                   kvr_router_holder_worker(
                                       &ctx->zone->run.router, c->holder),
                                   known,
                                   usage.cached_tokens
                                   / ctx->found.match.block_size);

    ngx_http_kv_router_estimate_answer(ctx, usage.cached_tokens);
}


/*
 * Predicted blocks are not known; blocks in lower tiers are, because the
 * engine finds them, too.  Several prompts have one usage: their sum.
 */

uint32_t
ngx_http_kv_router_usage_known(const ngx_http_kv_router_ctx_t *ctx)
{
    const ngx_http_kv_router_candidate_t  *c;

    c = ctx->choice.chosen;

    if (ctx->found.match.prompt_blocks == 0 || ctx->prompt.others
        || c->role == KVR_ROLE_DECODE)
    {
        return UINT32_MAX;
    }

    return c->predicted && c->disk == c->device ? c->device - c->predicted
                                                : c->disk;
}


ngx_uint_t
ngx_http_kv_router_usage_count(ngx_http_kv_router_zone_t *zone,
    uint32_t holder, uint32_t generation, uint32_t known, uint32_t best,
    const kvr_answer_usage_t *usage)
{
    uint32_t       worker, size;
    kvr_usage_t    a;
    kvr_router_t  *k;

    k = &zone->run.router;
    size = zone->conf.params.block_size;
    worker = kvr_router_holder_worker(k, holder);

    if (known == UINT32_MAX || !usage->has_cached
        || worker >= zone->run.sh->nworkers
        || kvr_load32(&kvr_router_worker(k, worker)->generation)
           != generation)
    {
        return 0;
    }

    a.requests = 1;
    a.prompt_tokens = usage->prompt_tokens;
    a.predicted_tokens = (uint64_t) known * size;
    a.best_tokens = (uint64_t) ngx_max(best, known) * size;
    a.cached_tokens = usage->cached_tokens;

    kvr_usage_add(&zone->run.sh->trust[worker], generation, &a);

    return 1;
}


/* Estimates learn from the same answers: what they say is no evidence. */

static void
ngx_http_kv_router_usage_judge(ngx_http_kv_router_ctx_t *ctx, uint32_t worker,
    uint32_t known, uint64_t cached)
{
    uint32_t             less;
    kvr_echo_t           e;
    const kvr_worker_t  *w;

    w = kvr_router_worker(&ctx->zone->run.router, worker);

    if (known < NGX_HTTP_KV_ROUTER_USAGE_BLOCKS
        || ngx_http_kv_router_confidence(ctx->zone, w, worker)
           == KVR_ESTIMATED)
    {
        return;
    }

    less = kvr_fleet_bound(w) ? NGX_HTTP_KV_ROUTER_USAGE_BOUND
                              : NGX_HTTP_KV_ROUTER_USAGE_LESS;

    e.worker = worker;
    e.generation = ctx->choice.chosen->generation;
    e.epoch = kvr_load64(&w->stream.epoch);
    e.route = KVR_ROUTE_CACHED;
    e.depth = (uint32_t) ngx_min(cached, known);
    e.blocks = known;

    ngx_http_kv_router_echo_add(ctx->zone, &e, cached * less >= known);
}


/* ---- the end ------------------------------------------------------------ */

int
ngx_http_kv_router_ffi_outcome(ngx_http_request_t *r, void *zone,
    ngx_http_kv_router_outcome_t *out)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->choice.reserved) {
        return NGX_DECLINED;
    }

    out->holder = ctx->choice.chosen->holder;
    out->rank = ctx->choice.chosen->rank;
    out->tries = ctx->try.tries;
    out->status = r->err_status ? r->err_status : r->headers_out.status;
    out->first_byte_us = ctx->times.first_byte_us
                         ? ctx->times.first_byte_us - ctx->times.decided_us
                         : -1;
    out->total_us = ngx_http_kv_router_now_us() - ctx->times.decided_us;
    out->worker_len = ctx->choice.chosen->worker_len;
    out->worker = ctx->choice.chosen->worker;

    return NGX_OK;
}


/* Gives back all reservations of a request when its context ends. */

static void
ngx_http_kv_router_answer_release(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_http_kv_router_attempt_past(ctx);
    ngx_http_kv_router_choice_drop(ctx);
    ngx_http_kv_router_waited(ctx);
    ngx_http_kv_router_queue_end(ctx);
    ngx_http_kv_router_count_end(ctx);
}


void
ngx_http_kv_router_filter_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_kv_router_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_kv_router_body_filter;

    ngx_http_kv_router_ctx_init(ngx_http_kv_router_answer_release);
}
