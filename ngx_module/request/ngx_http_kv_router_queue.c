
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A request's way through the queue of its zone, see admission/kvr_admit.h.
 *
 *     begin     its class, its tenant and its deadline are known
 *     enter     it has a worker in mind: is there room, and is it its turn?
 *     line      there is none: it lines up, and its coroutine waits
 *     poll      the coroutine was woken: may the request go?
 *     kept      it has reserved
 *     leave     it waits no longer
 *     end       what it has cost
 *
 * A request that gets no entry, as all are used, or another process keeps the
 * lock for long, goes without order where it finds room.
 */


#include "ngx_http_kv_router_route.h"


#define NGX_HTTP_KV_ROUTER_TURNS_GIVEN  8     /* grants to others before a
                                                 request lines up */
#define NGX_HTTP_KV_ROUTER_OUTPUT       256   /* tokens, if none is known */
#define NGX_HTTP_KV_ROUTER_LAST         8     /* answers in a tenant's mean */


/* ---- begin -------------------------------------------------------------- */

/* How long a tenant's answers were, in this process. */

static ngx_http_kv_router_output_t *
ngx_http_kv_router_queue_output(ngx_http_kv_router_queue_t *q, uint64_t name)
{
    ngx_http_kv_router_output_t  *o;

    o = &q->outputs[name % NGX_HTTP_KV_ROUTER_OUTPUTS];

    if (o->name != name) {
        o->name = name;
        o->tokens = NGX_HTTP_KV_ROUTER_OUTPUT;
    }

    return o;
}


int
ngx_http_kv_router_ffi_queue_begin(ngx_http_request_t *r, void *zone,
    uint32_t class, const u_char *tenant, size_t len, double max_tokens,
    double wait)
{
    double                       output;
    ngx_http_kv_router_ctx_t    *ctx;
    ngx_http_kv_router_queue_t  *q;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || ctx->choice.dry
        || ctx->zone->run.queue == NULL || class >= KVR_RULES_CLASSES
        || ngx_http_kv_router_copy_str(r->pool, &ctx->queue.tenant, tenant,
                                       len)
           != NGX_OK)
    {
        return NGX_DECLINED;
    }

    q = ctx->zone->run.queue;
    ngx_http_kv_router_plain(&ctx->queue.tenant);

    ctx->queue.begun = 1;
    ctx->queue.class = q->classes[class].hash ? class : 0;
    ctx->queue.name = ngx_http_kv_router_queue_hash(tenant, len);
    ctx->queue.deadline = ngx_current_msec + (ngx_msec_t) (wait * 1000);

    output = ngx_http_kv_router_queue_output(q, ctx->queue.name)->tokens;

    if (max_tokens > 0) {
        output = ngx_min(output,
                         max_tokens * ngx_max(ctx->prompt.sequences, 1));
    }

    ctx->queue.output = (uint32_t) output;

    /* nobody waits who is observed */

    return ctx->zone->conf.queue.observe ? NGX_DECLINED : NGX_OK;
}


/* ---- an entry ----------------------------------------------------------- */

static bool
ngx_http_kv_router_queue_move(ngx_http_kv_router_ctx_t *ctx,
    kvr_admit_event_t event)
{
    return kvr_admit_move(&ctx->zone->run.queue->admit, ctx->queue.entry,
                          event);
}


/* The cost of the request at n candidates, from the i-th on. */

static void
ngx_http_kv_router_queue_cost(ngx_http_kv_router_ctx_t *ctx,
    kvr_order_cost_t *cost, uint32_t i, uint32_t n)
{
    uint32_t                         k, nbest, last, worker, tokens;
    ngx_http_kv_router_candidate_t  *c;

    ngx_http_kv_router_weigh(ctx);

    cost->prompt = ctx->found.match.prompt_tokens
                   ? ctx->found.match.prompt_tokens
                   : (uint32_t) ngx_min(ctx->prompt.bytes / 4, KVR_TOKENS_MAX);
    cost->prompt = ngx_max(cost->prompt + (uint32_t) ctx->prompt.others, 1);
    cost->elsewhere = cost->prompt;
    cost->output = ctx->queue.output;

    for (nbest = 0, last = i + n; i < last; i++) {
        c = &ctx->found.candidates[i];

        if (c->role == KVR_ROLE_PREFILL) {
            continue;
        }

        worker = ngx_http_kv_router_holder(ctx, c)->first;
        tokens = ngx_http_kv_router_uncached(ctx, c);

        /* of several ranks, the best one */

        for (k = 0; k < nbest && cost->best[k].worker != worker; k++) {
            /* void */
        }

        if (k < nbest && cost->best[k].uncached <= tokens) {
            continue;
        }

        if (k == nbest && nbest < KVR_ORDER_BEST) {
            nbest++;

        } else if (k == nbest) {
            k--;

            if (cost->best[k].uncached <= tokens) {
                continue;
            }
        }

        for ( /* void */ ; k > 0 && cost->best[k - 1].uncached > tokens; k--) {
            cost->best[k] = cost->best[k - 1];
        }

        cost->best[k].worker = worker;
        cost->best[k].uncached = tokens;
    }

    cost->nbest = nbest;
}


/*
 * The pool is that of the model of the candidates: clients can make up names.
 * If there are too many pools, the request is narrow, in the last one; narrow
 * is a request that has no candidates, too, until it lines up again.
 */

static ngx_int_t
ngx_http_kv_router_queue_claim(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i, pool;
    ngx_str_t                        model;
    ngx_uint_t                       narrow;
    kvr_order_entry_t               *e;
    ngx_http_kv_router_queue_t      *q;
    ngx_http_kv_router_candidate_t  *c;

    q = ctx->zone->run.queue;
    narrow = ctx->prompt.allowed.data || ctx->prompt.adapter.len
             || ctx->found.match.n == 0;

    ngx_str_null(&model);

    for (i = 0; i < ctx->found.match.n && model.len == 0; i++) {
        c = &ctx->found.candidates[i];

        if (ctx->prompt.view.model && !ctx->prompt.view.unserved) {
            model.data = (u_char *) c->model;
            model.len = c->model_len;
        }
    }

    pool = kvr_admit_pool(&q->admit, ngx_http_kv_router_pool_key(&model,
                                                          ctx->prompt.roles));

    if (pool == KVR_ADMIT_NONE) {
        narrow = 1;
        pool = KVR_ADMIT_POOLS - 1;
    }

    ctx->queue.entry = kvr_admit_claim(&q->admit);

    if (ctx->queue.entry == KVR_ADMIT_NONE) {
        return NGX_DECLINED;
    }

    e = ngx_http_kv_router_queue_entry(ctx);

    e->pool = pool;
    e->class = q->classes[ctx->queue.class].hash;
    e->name = ctx->queue.name;
    e->narrow = narrow;
    e->deadline_ms = ctx->queue.deadline;
    kvr_put64(&e->at_ms, ngx_current_msec);
    kvr_put32(&e->tokens, 0);

    return NGX_OK;
}


static void
ngx_http_kv_router_queue_drop(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t  worker;

    if (ctx->zone->run.queue && ctx->queue.entry != KVR_ADMIT_NONE) {
        worker = ngx_http_kv_router_queue_entry(ctx)->worker;

        if (ngx_http_kv_router_queue_state(ctx) & KVR_ORDER_CHARGED) {
            ngx_http_kv_router_queue_freed(ctx->zone, worker);
        }

        (void) ngx_http_kv_router_queue_move(ctx, KVR_ADMIT_LEAVE);
    }

    ctx->queue.entry = KVR_ADMIT_NONE;
}


/* ---- enter -------------------------------------------------------------- */

/* By queue_mode=observe nobody waits: would this request? */

static void
ngx_http_kv_router_queue_observe(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                      i;
    ngx_http_kv_router_holder_t  *h;

    for (i = 0; i < ctx->found.match.n; i++) {
        h = ngx_http_kv_router_holder(ctx, &ctx->found.candidates[i]);

        if (!ngx_http_kv_router_bound_worker(ctx->zone, NULL, ctx->fleet, h, 1)
            && !ngx_http_kv_router_bound_zone(ctx->zone, NULL, ctx->fleet))
        {
            return;
        }
    }

    (void) ngx_atomic_fetch_add(
               &ngx_http_kv_router_queue_class(ctx)->would_wait, 1);
}


ngx_int_t
ngx_http_kv_router_queue_enter(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    kvr_rc_t                      rc;
    uint32_t                      n, entry;
    kvr_order_entry_t            *e;
    ngx_http_kv_router_queue_t   *q;
    ngx_http_kv_router_holder_t  *h;

    q = ctx->zone->run.queue;

    if (!ctx->queue.begun || q == NULL
        || ctx->prompt.form == KVR_FORM_NO_LOAD)
    {
        return NGX_OK;
    }

    if (ctx->zone->conf.queue.observe) {
        ngx_http_kv_router_queue_observe(ctx);
        return NGX_OK;
    }

    if (ngx_http_kv_router_queue_state(ctx) == KVR_ADMIT_TAKEN) {
        return NGX_OK;
    }

    if (ctx->queue.entry == KVR_ADMIT_NONE
        && ngx_http_kv_router_queue_claim(ctx) != NGX_OK)
    {
        ngx_http_kv_router_count(ctx->zone->run.sh, UNORDERED, 1);
        return NGX_OK;
    }

    e = ngx_http_kv_router_queue_entry(ctx);
    h = ngx_http_kv_router_holder(ctx, &ctx->found.candidates[i]);

    /* if the request goes at once, its cost elsewhere is of no matter */

    ngx_http_kv_router_queue_cost(ctx, &e->cost, i, 1);

    for (n = 0; n < NGX_HTTP_KV_ROUTER_TURNS_GIVEN; n++) {
        rc = ngx_http_kv_router_room(q, ctx->fleet, h, e->pool,
                                     ctx->queue.entry, &entry);

        if (rc == KVR_OK && entry == ctx->queue.entry) {
            return ngx_http_kv_router_queue_move(ctx, KVR_ADMIT_TAKE)
                   ? NGX_OK : NGX_BUSY;
        }

        if (rc == KVR_BUSY) {
            ngx_http_kv_router_queue_drop(ctx);
            ngx_http_kv_router_count(ctx->zone->run.sh, UNORDERED, 1);
            return NGX_OK;
        }

        if (rc != KVR_OK) {
            break;
        }
    }

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router queue: no room, or others go first");

    return NGX_BUSY;
}


void
ngx_http_kv_router_queue_kept(ngx_http_kv_router_ctx_t *ctx)
{
    if (ngx_http_kv_router_queue_state(ctx) == KVR_ADMIT_TAKEN) {
        (void) ngx_http_kv_router_queue_move(ctx, KVR_ADMIT_KEEP);
    }
}


/* ---- waiting ------------------------------------------------------------ */

/* The client is watched as nginx watches it during a delay by limit_req. */

static void
ngx_http_kv_router_queue_watch(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_event_t         *rev;
    ngx_http_request_t  *r;

    r = ctx->request;
    rev = r->connection->read;

    if (r != r->main || r->read_event_handler != ngx_http_block_reading) {
        return;
    }

    r->read_event_handler = ngx_http_test_reading;

    if (rev->ready) {
        ngx_post_event(rev, &ngx_posted_events);

    } else {
        (void) ngx_handle_read_event(rev, 0);
    }
}


/* The request waits no longer. */

static void
ngx_http_kv_router_queue_woken(ngx_http_kv_router_ctx_t *ctx)
{
    if (ctx->queue.semaphore == NULL) {
        return;
    }

    ctx->queue.semaphore = NULL;
    ctx->zone->run.queue->waiting[ctx->queue.entry] = NULL;
    ctx->zone->run.queue->nwaiting--;

    if (ctx->request->read_event_handler == ngx_http_test_reading) {
        ctx->request->read_event_handler = ngx_http_block_reading;
    }
}


static int
ngx_http_kv_router_queue_refuse(ngx_http_kv_router_ctx_t *ctx, uint32_t why)
{
    ngx_http_kv_router_queue_woken(ctx);
    ngx_http_kv_router_queue_drop(ctx);

    (void) ngx_atomic_fetch_add(
               &ngx_http_kv_router_queue_class(ctx)->refused[why], 1);

    return NGX_HTTP_KV_ROUTER_QUEUE_REFUSED + why;
}


/* May the request go, or has it to wait on? */

static int
ngx_http_kv_router_queue_look(ngx_http_kv_router_ctx_t *ctx)
{
    kvr_order_entry_t  *e;

    static const uint32_t  reasons[] = {
        NGX_HTTP_KV_ROUTER_REFUSED_FULL,
        NGX_HTTP_KV_ROUTER_REFUSED_FULL,
        NGX_HTTP_KV_ROUTER_REFUSED_LIMIT,
        NGX_HTTP_KV_ROUTER_REFUSED_LATE
    };

    e = ngx_http_kv_router_queue_entry(ctx);

    if (ngx_http_kv_router_queue_move(ctx, KVR_ADMIT_TAKE)) {
        ngx_http_kv_router_queue_woken(ctx);
        return NGX_HTTP_KV_ROUTER_QUEUE_GOES;
    }

    ctx->queue.expected_ms = e->expected_ms;

    if (ngx_http_kv_router_queue_state(ctx) == KVR_ADMIT_REFUSED) {
        return ngx_http_kv_router_queue_refuse(ctx, reasons[e->worker & 3]);
    }

    return NGX_HTTP_KV_ROUTER_QUEUE_WAITS;
}


/* The worker of no best cost can have the request: it names workers that have
 * gone. */

static ngx_uint_t
ngx_http_kv_router_queue_lost(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                     i, index;
    kvr_order_entry_t           *e;
    ngx_http_kv_router_fleet_t  *fleet;

    e = ngx_http_kv_router_queue_entry(ctx);
    fleet = ctx->zone->run.fleet;

    if (!e->narrow
        || ngx_http_kv_router_queue_state(ctx) != KVR_ADMIT_WAITING)
    {
        return 0;
    }

    for (i = 0; i < e->cost.nbest; i++) {
        index = fleet->by_holder[e->cost.best[i].worker];

        if (index && ngx_http_kv_router_holder_usable(ctx->zone,
                                               &fleet->holders[index - 1], 0))
        {
            return 0;
        }
    }

    return 1;
}


int
ngx_http_kv_router_ffi_queue_line(ngx_http_request_t *r, void *zone,
    void *semaphore, ngx_http_kv_router_sem_post_pt post)
{
    char                              *err;
    uint32_t                           state;
    kvr_order_entry_t                 *e;
    ngx_http_kv_router_ctx_t          *ctx;
    ngx_http_kv_router_queue_t        *q;
    const ngx_http_kv_router_match_t  *match;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->queue.begun
        || ctx->zone->run.queue == NULL || ctx->queue.semaphore)
    {
        return NGX_HTTP_KV_ROUTER_QUEUE_REFUSED
               + NGX_HTTP_KV_ROUTER_REFUSED_FULL;
    }

    q = ctx->zone->run.queue;

    /* workers that are full are of interest, too */

    (void) ngx_http_kv_router_ffi_candidates(r, zone,
                                             NGX_HTTP_KV_ROUTER_UNBOUND,
                                             &match, &err);

    if (ctx->queue.entry == KVR_ADMIT_NONE
        && ngx_http_kv_router_queue_claim(ctx) != NGX_OK)
    {
        return ngx_http_kv_router_queue_refuse(ctx,
                                            NGX_HTTP_KV_ROUTER_REFUSED_FULL);
    }

    e = ngx_http_kv_router_queue_entry(ctx);
    state = ngx_http_kv_router_queue_state(ctx);

    ngx_http_kv_router_queue_cost(ctx, &e->cost, 0, ctx->found.match.n);

    ctx->queue.semaphore = semaphore;
    ctx->queue.post = post;
    q->waiting[ctx->queue.entry] = ctx;

    if (q->nwaiting++ == 0) {
        ngx_add_timer(&q->timer, KVR_ADMIT_SWEEP_MS);
    }

    (void) ngx_http_kv_router_queue_move(ctx, state == KVR_ADMIT_TAKEN
                                              ? KVR_ADMIT_RETURN
                                              : KVR_ADMIT_COME);

    /* a place may have become free since the request has looked */

    ngx_http_kv_router_rooms_look(q);
    ngx_http_kv_router_queue_watch(ctx);

    return ngx_http_kv_router_queue_look(ctx);
}


/* Another coroutine of the request may have routed it meanwhile. */

static ngx_http_kv_router_ctx_t *
ngx_http_kv_router_queue_ctx(ngx_http_request_t *r, void *zone)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    return ctx && ctx->zone == zone && ctx->queue.semaphore ? ctx : NULL;
}


int
ngx_http_kv_router_ffi_queue_poll(ngx_http_request_t *r, void *zone)
{
    ngx_http_kv_router_ctx_t  *ctx;

    void                            *semaphore;
    ngx_http_kv_router_sem_post_pt   post;

    ctx = ngx_http_kv_router_queue_ctx(r, zone);

    if (ctx == NULL) {
        return NGX_HTTP_KV_ROUTER_QUEUE_REFUSED
               + NGX_HTTP_KV_ROUTER_REFUSED_FULL;
    }

    if (ngx_http_kv_router_queue_lost(ctx)) {
        semaphore = ctx->queue.semaphore;
        post = ctx->queue.post;

        ngx_http_kv_router_queue_woken(ctx);
        ngx_http_kv_router_queue_drop(ctx);

        return ngx_http_kv_router_ffi_queue_line(r, zone, semaphore, post);
    }

    return ngx_http_kv_router_queue_look(ctx);
}


int
ngx_http_kv_router_ffi_queue_leave(ngx_http_request_t *r, void *zone)
{
    int                                rc;
    char                              *err;
    uint32_t                           why;
    ngx_http_kv_router_ctx_t          *ctx;
    const ngx_http_kv_router_match_t  *match;

    ctx = ngx_http_kv_router_queue_ctx(r, zone);

    if (ctx == NULL) {
        return NGX_HTTP_KV_ROUTER_QUEUE_REFUSED
               + NGX_HTTP_KV_ROUTER_REFUSED_FULL;
    }

    rc = ngx_http_kv_router_ffi_candidates(r, zone, NGX_HTTP_KV_ROUTER_UNBOUND,
                                           &match, &err);
    why = rc == NGX_DECLINED ? NGX_HTTP_KV_ROUTER_REFUSED_GONE
                             : NGX_HTTP_KV_ROUTER_REFUSED_TIMEOUT;

    return ngx_http_kv_router_queue_refuse(ctx, why);
}


double
ngx_http_kv_router_ffi_queue_expected(ngx_http_request_t *r)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    return ctx ? ctx->queue.expected_ms / 1000.0 : 0;
}


/* ---- the end ------------------------------------------------------------ */

/* The cost of a request that has ended: 0 if it failed before any output. */

static uint32_t
ngx_http_kv_router_queue_tokens(ngx_http_kv_router_ctx_t *ctx)
{
    int64_t                       prompt;
    ngx_http_request_t           *r;
    ngx_http_kv_router_output_t  *o;

    r = ctx->request;

    if (!ctx->choice.reserved || ctx->times.first_byte_us == 0
        || ctx->answer.failed || r->headers_out.status >= 400)
    {
        return 0;
    }

    o = ngx_http_kv_router_queue_output(ctx->zone->run.queue, ctx->queue.name);

    if (ctx->answer.output_tokens) {
        o->tokens += ((double) ctx->answer.output_tokens - o->tokens)
                     / NGX_HTTP_KV_ROUTER_LAST;
    }

    prompt = ngx_http_kv_router_uncached(ctx, ctx->choice.chosen);

    if (ctx->answer.usage_tokens) {
        prompt = (int64_t) ctx->answer.usage_tokens
                 - ngx_max(ctx->answer.cached_tokens, 0);
    }

    prompt = ngx_max(prompt, (int64_t) ctx->zone->conf.params.block_size);

    return (uint32_t) ngx_min(prompt + 2 * (int64_t) ctx->answer.output_tokens,
                              INT32_MAX);
}


void
ngx_http_kv_router_queue_end(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                     tokens;
    ngx_http_kv_router_class_t  *class;

    class = ngx_http_kv_router_queue_class(ctx);

    if (class == NULL) {
        return;
    }

    if (ctx->queue.semaphore) {
        (void) ngx_http_kv_router_queue_refuse(ctx,
                                            NGX_HTTP_KV_ROUTER_REFUSED_LEFT);
    }

    if (ctx->choice.reserved) {
        tokens = ngx_http_kv_router_queue_tokens(ctx);

        /* nobody tells what the answer of a selection has cost */

        if (ctx->selects && ctx->queue.entry != KVR_ADMIT_NONE) {
            tokens = kvr_load32(&ngx_http_kv_router_queue_entry(ctx)->tokens);
        }

        (void) ngx_atomic_fetch_add(&class->requests, 1);
        (void) ngx_atomic_fetch_add(&class->tokens, tokens);

        if (ctx->queue.entry != KVR_ADMIT_NONE) {
            kvr_put32(&ngx_http_kv_router_queue_entry(ctx)->tokens, tokens);
        }
    }

    ngx_http_kv_router_queue_drop(ctx);

    ctx->queue.begun = 0;
}
