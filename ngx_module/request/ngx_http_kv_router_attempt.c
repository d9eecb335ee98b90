
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Attempts: the result of each time that a request is sent to a worker.
 *
 * The balancer phase does not see the end of the last attempt, nor why an
 * attempt failed.  nginx calls the peer's free() once for every peer that was
 * used, with any result.  So the peer's functions are wrapped, around the
 * functions of the keepalive module, which wraps the functions of the Lua
 * module.  They are wrapped when nginx makes the peer, because in some
 * versions the peer's data is the Lua module's own while the balancer phase
 * runs.
 */


#include "ngx_http_kv_router_route.h"


struct ngx_http_kv_router_attempt_s {
    ngx_http_kv_router_ctx_t       *ctx;
    ngx_http_request_t             *request;
    ngx_peer_connection_t          *pc;

    void                           *data;      /* of the wrapped functions */
    ngx_event_get_peer_pt           get;
    ngx_event_free_peer_pt          free;
    ngx_event_notify_peer_pt        notify;

#if (NGX_SSL || NGX_COMPAT)
    ngx_event_set_peer_session_pt   set_session;
    ngx_event_save_peer_session_pt  save_session;
#endif
};


#define NGX_HTTP_KV_ROUTER_STALE_MAX    256   /* connections of a request */
#define NGX_HTTP_KV_ROUTER_PAST_PERIOD  60    /* seconds between two lines */


static ngx_int_t ngx_http_kv_router_attempt_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_kv_router_attempt_get(ngx_peer_connection_t *pc,
    void *data);
static void ngx_http_kv_router_attempt_free(ngx_peer_connection_t *pc,
    void *data, ngx_uint_t state);
static void ngx_http_kv_router_attempt_notify(ngx_peer_connection_t *pc,
    void *data, ngx_uint_t type);

#if (NGX_SSL || NGX_COMPAT)
static ngx_int_t ngx_http_kv_router_attempt_set_session(
    ngx_peer_connection_t *pc, void *data);
static void ngx_http_kv_router_attempt_save_session(
    ngx_peer_connection_t *pc, void *data);
#endif

static ngx_uint_t ngx_http_kv_router_attempt_end(ngx_http_request_t *r,
    ngx_peer_connection_t *pc, ngx_uint_t state);
static ngx_uint_t ngx_http_kv_router_attempt_complete(ngx_http_request_t *r);
static ngx_uint_t ngx_http_kv_router_attempt_bad_status(
    ngx_http_request_t *r);
static ngx_msec_t ngx_http_kv_router_attempt_pause(ngx_http_request_t *r);
#if (NGX_DEBUG)
static const char *ngx_http_kv_router_attempt_name(ngx_uint_t end);
#endif


/* ---- candidates --------------------------------------------------------- */

/* NULL: another worker has the number now; *health: the worker's record. */

static ngx_http_kv_router_holder_t *
ngx_http_kv_router_attempt_holder(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c, kvr_health_t **health)
{
    ngx_http_kv_router_holder_t  *h;

    h = ngx_http_kv_router_holder(ctx, c);

    if (kvr_load32(&h->worker->generation) != h->generation) {
        return NULL;
    }

    *health = kvr_router_health(&ctx->zone->run.router, h->number);

    return h;
}


ngx_uint_t
ngx_http_kv_router_attempt_usable(ngx_http_kv_router_ctx_t *ctx, uint32_t i,
    ngx_uint_t anyhow)
{
    return ngx_http_kv_router_holder_usable(
               ctx->zone,
               ngx_http_kv_router_holder(ctx, &ctx->found.candidates[i]),
               anyhow);
}


ngx_uint_t
ngx_http_kv_router_holder_usable(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_holder_t *h, ngx_uint_t anyhow)
{
    double  share;

    if (kvr_load32(&h->worker->generation) != h->generation
        || kvr_load32(&h->worker->flags)
           & (KVR_WORKER_DRAINS|KVR_WORKER_DELETED))
    {
        return 0;
    }

    return anyhow
           || kvr_health_usable(kvr_health_state(
                                    kvr_router_health(&zone->run.router,
                                                      h->number),
                                    h->generation, &h->health,
                                    ngx_current_msec, &share));
}


ngx_int_t
ngx_http_kv_router_attempt_take(ngx_http_kv_router_ctx_t *ctx, uint32_t i,
    ngx_uint_t anyhow)
{
    ngx_http_kv_router_attempt_drop(ctx);

    if (ngx_http_kv_router_attempt_ticket(ctx, i, anyhow, &ctx->try.ticket)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    ctx->try.taken = 1;

    return NGX_OK;
}


ngx_int_t
ngx_http_kv_router_attempt_ticket(ngx_http_kv_router_ctx_t *ctx, uint32_t i,
    ngx_uint_t anyhow, kvr_ticket_t *ticket)
{
    kvr_health_t                 *health;
    ngx_http_kv_router_holder_t  *h;

    h = ngx_http_kv_router_attempt_holder(ctx, &ctx->found.candidates[i],
                                          &health);

    if (h == NULL || !ngx_http_kv_router_holder_usable(ctx->zone, h, 1)
        || !kvr_health_take(health, h->generation, &h->health,
                            ngx_current_msec, anyhow, ticket))
    {
        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                       "kv_router attempt: not at worker \"%*s\", which is "
                       "gone, drains, or is out",
                       (size_t) ctx->found.candidates[i].worker_len,
                       ctx->found.candidates[i].worker);

        return NGX_DECLINED;
    }

    return NGX_OK;
}


void
ngx_http_kv_router_attempt_drop(ngx_http_kv_router_ctx_t *ctx)
{
    if (!ctx->try.taken) {
        return;
    }

    ctx->try.taken = 0;

    ngx_http_kv_router_attempt_judge(ctx, ctx->choice.chosen, &ctx->try.ticket,
                                     NGX_HTTP_KV_ROUTER_ABORTED, 0);
}


ngx_int_t
ngx_http_kv_router_attempt_answered(ngx_http_kv_router_ctx_t *ctx)
{
    if (ngx_http_kv_router_attempt_bad_status(ctx->request)) {
        return NGX_DECLINED;
    }

    if (ctx->try.taken) {
        ngx_http_kv_router_attempt_judge(ctx, ctx->choice.chosen,
                                         &ctx->try.ticket,
                                         NGX_HTTP_KV_ROUTER_DONE, 0);
    }

    return NGX_OK;
}


/* ---- the peer ----------------------------------------------------------- */

void
ngx_http_kv_router_attempt_init(ngx_conf_t *cf)
{
    ngx_uint_t                       i;
    ngx_http_upstream_srv_conf_t   **uscfp;
    ngx_http_upstream_main_conf_t   *umcf;
    ngx_http_kv_router_srv_conf_t   *kscf;

    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);
    uscfp = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {

        /* the upstream is an address in "proxy_pass", and has no balancer */

        if (uscfp[i]->srv_conf == NULL) {
            continue;
        }

        kscf = ngx_http_conf_upstream_srv_conf(uscfp[i],
                                               ngx_http_kv_router_module);

        kscf->init_peer = uscfp[i]->peer.init;
        uscfp[i]->peer.init = ngx_http_kv_router_attempt_init_peer;
    }
}


static ngx_int_t
ngx_http_kv_router_attempt_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_peer_connection_t          *pc;
    ngx_http_kv_router_ctx_t       *ctx;
    ngx_http_kv_router_attempt_t   *a;
    ngx_http_kv_router_srv_conf_t  *kscf;

    kscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_kv_router_module);

    if (kscf->init_peer(r, us) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || !ctx->choice.reserved) {
        return NGX_OK;
    }

    a = ngx_palloc(r->pool, sizeof(ngx_http_kv_router_attempt_t));
    if (a == NULL) {
        return NGX_ERROR;
    }

    pc = &r->upstream->peer;

    a->ctx = NULL;
    a->request = r;
    a->pc = pc;
    a->data = pc->data;
    a->get = pc->get;
    a->free = pc->free;
    a->notify = pc->notify;

    pc->data = a;
    pc->get = ngx_http_kv_router_attempt_get;
    pc->free = ngx_http_kv_router_attempt_free;
    pc->notify = a->notify ? ngx_http_kv_router_attempt_notify : NULL;

#if (NGX_SSL || NGX_COMPAT)
    a->set_session = pc->set_session;
    a->save_session = pc->save_session;

    if (a->set_session) {
        pc->set_session = ngx_http_kv_router_attempt_set_session;
    }

    if (a->save_session) {
        pc->save_session = ngx_http_kv_router_attempt_save_session;
    }
#endif

    ctx->try.attempt = a;

    return NGX_OK;
}


ngx_int_t
ngx_http_kv_router_attempt_begin(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx)
{
    if (ctx->try.attempt == NULL || r->upstream == NULL
        || ctx->try.attempt->pc != &r->upstream->peer)
    {
        return NGX_ERROR;
    }

    ctx->try.attempt->ctx = ctx;

    return NGX_OK;
}


void
ngx_http_kv_router_attempt_forget(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_http_kv_router_attempt_drop(ctx);

    if (ctx->try.attempt) {
        ctx->try.attempt->ctx = NULL;
        ctx->try.attempt = NULL;
    }
}


static ngx_int_t
ngx_http_kv_router_attempt_get(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_kv_router_attempt_t *a = data;

    return a->get(pc, a->data);
}


void
ngx_http_kv_router_attempt_past(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_str_t                    *name;
    ngx_uint_t                    was;
    ngx_atomic_t                 *told;
    ngx_http_upstream_t          *u;
    ngx_http_kv_router_holder_t  *h;

    u = ctx->request->upstream;
    name = u ? u->peer.name : NULL;

    if (!ctx->choice.reserved || ctx->choice.dry || ctx->try.tries
        || name == NULL)
    {
        return;
    }

    h = ngx_http_kv_router_holder(ctx, ctx->choice.chosen);

    /* a variable may have the worker's address */

    if (ngx_http_kv_router_same(name, &h->address)) {
        return;
    }

    told = &ctx->zone->run.sh->past_told;
    was = *told;

    if (ngx_time() - (time_t) was < NGX_HTTP_KV_ROUTER_PAST_PERIOD
        || !ngx_atomic_cmp_set(told, was, ngx_time()))
    {
        return;
    }

    ngx_http_kv_router_warn(ctx->zone, NGX_LOG_ERR,
                            ctx->request->connection->log,
                            "worker \"%V\" at \"%V\" was chosen, but the "
                            "request went to \"%V\", past the balancer: "
                            "\"proxy_pass\" must name an upstream that has "
                            "\"balancer_by_lua_block { router:balance() }\"",
                            &h->id, &h->address, name);
}


static void
ngx_http_kv_router_attempt_notify(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t type)
{
    ngx_http_kv_router_attempt_t *a = data;

    a->notify(pc, a->data, type);
}


#if (NGX_SSL || NGX_COMPAT)

static ngx_int_t
ngx_http_kv_router_attempt_set_session(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_kv_router_attempt_t *a = data;

    return a->set_session(pc, a->data);
}


static void
ngx_http_kv_router_attempt_save_session(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_kv_router_attempt_t *a = data;

    a->save_session(pc, a->data);
}

#endif


/*
 * An attempt is over.  The worker has done its work, even if the client has
 * not received all of the answer yet: the load is released, unless another
 * attempt may follow.
 */

static void
ngx_http_kv_router_attempt_free(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_http_kv_router_attempt_t *a = data;

    ngx_uint_t                 end;
    ngx_msec_t                 pause;
    ngx_http_request_t        *r;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = a->ctx;
    r = a->request;

    if (ctx == NULL || !ctx->try.taken) {
        a->free(pc, a->data, state);
        return;
    }

    end = ngx_http_kv_router_attempt_end(r, pc, state);
    pause = ngx_http_kv_router_attempt_pause(r);

    if (end == NGX_HTTP_KV_ROUTER_STALE) {

        /*
         * the worker had closed the connection before the request came:
         * try the worker again, until no kept connection is left
         */

        if (ctx->try.stale == NGX_HTTP_KV_ROUTER_STALE_MAX) {
            end = KVR_FAILED_RESET;

        } else {
            ctx->try.stale++;
            ctx->try.again = 1;
        }
    }

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router attempt: at worker \"%*s\" ended: %s, pause %M",
                   (size_t) ctx->choice.chosen->worker_len,
                   ctx->choice.chosen->worker,
                   ngx_http_kv_router_attempt_name(end), pause);

    a->free(pc, a->data, state);

    /*
     * the load stays reserved for the next try, so that no other request
     * takes the slot meanwhile; without a next try, the header of the error
     * releases the load
     */

    if (!(state & (NGX_PEER_FAILED|NGX_PEER_NEXT))) {
        ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
    }

    ctx->try.taken = 0;

    ngx_http_kv_router_attempt_judge(ctx, ctx->choice.chosen, &ctx->try.ticket,
                                     end, pause);
}


void
ngx_http_kv_router_attempt_judge(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c, kvr_ticket_t *ticket, ngx_uint_t end,
    ngx_msec_t pause)
{
    kvr_health_t                 *health;
    ngx_http_kv_router_holder_t  *h;

    h = ngx_http_kv_router_attempt_holder(ctx, c, &health);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router health: worker \"%*s\": %s%s",
                   (size_t) c->worker_len, c->worker,
                   ngx_http_kv_router_attempt_name(end),
                   h ? "" : ", it has gone");

    if (h == NULL) {
        return;
    }

    if (end >= NGX_HTTP_KV_ROUTER_ABORTED) {
        kvr_health_aborted(health, h->generation, ngx_current_msec, ticket);
        return;
    }

    if (pause) {
        kvr_health_pause(health, h->generation, ngx_current_msec, pause);
        end = NGX_HTTP_KV_ROUTER_DONE;
    }

    if (end == NGX_HTTP_KV_ROUTER_DONE) {

        if (kvr_health_answered(health, h->generation, ngx_current_msec,
                                ticket))
        {
            ngx_log_error(NGX_LOG_NOTICE, ctx->request->connection->log, 0,
                          "kv_router zone \"%V\": worker \"%V\" answers "
                          "again", &ctx->zone->conf.name, &h->id);
        }

        return;
    }

    if (kvr_health_failed(health, h->generation, &h->health, ngx_current_msec,
                          end, ticket))
    {
        ngx_http_kv_router_warn(ctx->zone, NGX_LOG_WARN,
                                ctx->request->connection->log,
                                "worker \"%V\" is out for %uD ms after %uD "
                                "failures, the last one: %s", &h->id,
                                h->health.fail_timeout, h->health.max_fails,
                                kvr_failure_name(end));
    }
}


/* ---- how it ended ------------------------------------------------------- */

static ngx_uint_t
ngx_http_kv_router_attempt_end(ngx_http_request_t *r,
    ngx_peer_connection_t *pc, ngx_uint_t state)
{
    ngx_uint_t            nothing;
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    c = pc->connection;

    /* if a connection fails at once, u has the values of the attempt before */

    if (c == NULL) {
        return state & NGX_PEER_FAILED ? (ngx_uint_t) KVR_FAILED_CONNECT
                                       : NGX_HTTP_KV_ROUTER_ABORTED;
    }

    nothing = u->headers_in.status_n == 0;

    if (c->read->timedout || c->write->timedout) {
        return KVR_FAILED_TIMEOUT;
    }

    if (!nothing && ngx_http_kv_router_attempt_bad_status(r)) {
        return KVR_FAILED_STATUS;
    }

    if (state & NGX_PEER_FAILED) {

        if (u->buffer.last != u->buffer.start && !c->read->eof
            && !c->read->error)
        {
            return KVR_FAILED_INVALID;
        }

        if (pc->cached && u->buffer.last == u->buffer.start) {
            return NGX_HTTP_KV_ROUTER_STALE;
        }

        return u->request_sent ? KVR_FAILED_RESET : KVR_FAILED_CONNECT;
    }

    if (nothing) {

        /* nginx passes an answer without a status line as HTTP/0.9 */

        return u->header_sent ? (ngx_uint_t) KVR_FAILED_INVALID
                              : NGX_HTTP_KV_ROUTER_ABORTED;
    }

    if (state & NGX_PEER_NEXT || ngx_http_kv_router_attempt_complete(r)) {
        return NGX_HTTP_KV_ROUTER_DONE;
    }

    if (c->read->eof || c->read->error || c->read->pending_eof) {
        return KVR_FAILED_CUT;
    }

    return NGX_HTTP_KV_ROUTER_ABORTED;
}


/* Has all of the answer come? */

static ngx_uint_t
ngx_http_kv_router_attempt_complete(ngx_http_request_t *r)
{
    ngx_event_pipe_t     *p;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u->upgrade || r->header_only
        || u->headers_in.status_n == NGX_HTTP_NO_CONTENT
        || u->headers_in.status_n == NGX_HTTP_NOT_MODIFIED)
    {
        return 1;
    }

    if (u->buffering) {
        p = u->pipe;

        return p->upstream_done || p->length == 0
               || (p->upstream_eof && p->length == -1 && !p->upstream_error);
    }

    return u->length == 0
           || (u->length == -1 && u->peer.connection->read->eof
               && !u->peer.connection->read->error);
}


/*
 * If proxy_next_upstream lists a status, the status is a failure, even if no
 * worker is left to try.  Other modules of nginx do the same.
 */

static ngx_uint_t
ngx_http_kv_router_attempt_bad_status(ngx_http_request_t *r)
{
    ngx_uint_t            mask;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL) {
        return 0;
    }

    switch (u->headers_in.status_n) {

    case NGX_HTTP_INTERNAL_SERVER_ERROR:
        mask = NGX_HTTP_UPSTREAM_FT_HTTP_500;
        break;

    case NGX_HTTP_BAD_GATEWAY:
        mask = NGX_HTTP_UPSTREAM_FT_HTTP_502;
        break;

    case NGX_HTTP_SERVICE_UNAVAILABLE:
        mask = NGX_HTTP_UPSTREAM_FT_HTTP_503;
        break;

    case NGX_HTTP_GATEWAY_TIME_OUT:
        mask = NGX_HTTP_UPSTREAM_FT_HTTP_504;
        break;

    case NGX_HTTP_TOO_MANY_REQUESTS:
        mask = NGX_HTTP_UPSTREAM_FT_HTTP_429;
        break;

    default:
        return 0;
    }

    return (u->conf->next_upstream & mask) != 0;
}


/* Reads a 503's Retry-After in milliseconds; 0: there is none. */

static ngx_msec_t
ngx_http_kv_router_attempt_pause(ngx_http_request_t *r)
{
    time_t                         at;
    ngx_int_t                      n;
    ngx_table_elt_t               *h;
    ngx_http_upstream_t           *u;
    ngx_http_kv_router_headers_t   headers;

    u = r->upstream;

    if (u->peer.connection == NULL
        || u->headers_in.status_n != NGX_HTTP_SERVICE_UNAVAILABLE)
    {
        return 0;
    }

    headers.part = &u->headers_in.headers.part;
    headers.i = 0;

    h = ngx_http_kv_router_header(&headers, "Retry-After");

    if (h == NULL) {
        return 0;
    }

    n = ngx_atoi(h->value.data, h->value.len);

    if (n == NGX_ERROR) {
        at = ngx_parse_http_time(h->value.data, h->value.len);
        n = at != NGX_ERROR && at > ngx_time() ? at - ngx_time() : 0;
    }

    return (ngx_msec_t) ngx_min(n, KVR_HEALTH_AWAY_MAX / 1000) * 1000;
}


#if (NGX_DEBUG)

static const char *
ngx_http_kv_router_attempt_name(ngx_uint_t end)
{
    switch (end) {

    case NGX_HTTP_KV_ROUTER_DONE:
        return "answered";

    case NGX_HTTP_KV_ROUTER_ABORTED:
        return "aborted";

    case NGX_HTTP_KV_ROUTER_STALE:
        return "stale connection";

    default:
        return kvr_failure_name(end);
    }
}

#endif
