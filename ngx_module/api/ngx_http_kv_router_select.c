
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * API: /select and /reservations.  A request is routed as any other, by
 * router:api() of Lua; then its reservation is handed over to a selection, see
 * kvr_selections.h, and the caller sends the request to the worker.
 */


#include "ngx_http_kv_router_api.h"
#include "../request/ngx_http_kv_router_route.h"

#include <wire/kvr_decoder.h>
#include <zone/kvr_selections.h>


#define NGX_HTTP_KV_ROUTER_SELECTION_ID    36  /* characters */
#define NGX_HTTP_KV_ROUTER_SELECTION_TEXT  40  /* at most, of any number */


typedef struct {
    ngx_http_request_t             *request;
    ngx_http_kv_router_zone_t      *zone;
    kvr_selection_id_t              id;
} ngx_http_kv_router_selected_t;


static const char *const  ngx_http_kv_router_selection_events[] = {
    "first", "renew", "end", NULL
};


int
ngx_http_kv_router_ffi_selects(ngx_http_request_t *r, void *zone)
{
    ngx_http_kv_router_ctx_t       *ctx;
    ngx_http_kv_router_loc_conf_t  *klcf;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kv_router_module);

    if (klcf->read_only) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_kv_router_make_ctx(r, zone);

    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ctx->selects = 1;

    return NGX_OK;
}


/* Writes an id as text; returns its length. */

static size_t
ngx_http_kv_router_selection_text(const kvr_selection_id_t *id,
    u_char text[NGX_HTTP_KV_ROUTER_SELECTION_TEXT])
{
    return ngx_sprintf(text, "%04xD%016xL%016xL", id->place, id->bits[0],
                       id->bits[1])
           - text;
}


/* ---- handing over ------------------------------------------------------- */

/* The request's own reservation is given back after the selection counts. */

static kvr_rc_t
ngx_http_kv_router_selection_make(ngx_http_kv_router_ctx_t *ctx,
    kvr_selection_id_t *id)
{
    kvr_rc_t            rc;
    kvr_selection_t     s;
    kvr_reservation_t  *own;

    own = &ctx->choice.reservation;

    ngx_http_kv_router_unshare(ctx, own);

    ngx_memzero(&s, sizeof(kvr_selection_t));

    s.known = ngx_http_kv_router_usage_known(ctx);
    s.best = ctx->found.best;
    s.load = *own;
    s.load.flight = NULL;

    if (ctx->prefill_end.timer_set) {
        s.prefilled_ms = ctx->times.prefilled_ms;
    }

    if (own->flight) {
        s.flight = ((ngx_http_kv_router_flight_t *) own->flight)->flight;
    }

    rc = kvr_router_select(&ctx->zone->run.router, &s, ngx_current_msec,
                           ctx->zone->conf.lease, id);

    if (rc == KVR_OK) {
        ngx_http_kv_router_flight_hand_over(own);
        ngx_http_kv_router_uncharge(ctx, own);
        ngx_http_kv_router_estimate_begin(ctx);
        ngx_http_kv_router_count(ctx->zone->run.sh, SELECTED, 1);
    }

    return rc;
}


static void
ngx_http_kv_router_selection_freed(void *data, uint32_t holder)
{
    ngx_http_kv_router_queue_freed(data, holder);
}


void
ngx_http_kv_router_selections_tend(ngx_http_kv_router_zone_t *zone)
{
    uint32_t  n;

    n = kvr_router_selections_sweep(&zone->run.router, ngx_current_msec,
                                    ngx_http_kv_router_selection_freed, zone);

    ngx_http_kv_router_count(zone->run.sh, SELECTED_EXPIRED, n);
}


static kvr_rc_t
ngx_http_kv_router_selection_event(ngx_http_kv_router_zone_t *zone,
    const kvr_selection_id_t *id, kvr_selection_event_t event,
    kvr_selection_t *was)
{
    kvr_rc_t  rc;

    rc = kvr_router_selected(&zone->run.router, id, event, ngx_current_msec,
                             zone->conf.lease, was);

    if (rc == KVR_OK && event != KVR_SELECTION_RENEW) {
        ngx_http_kv_router_queue_freed(zone, was->load.holder);
    }

    return rc;
}


/* Nobody knows the id if the answer could not be sent. */

static void
ngx_http_kv_router_selected_cleanup(void *data)
{
    ngx_http_kv_router_selected_t *s = data;

    kvr_selection_t  was;

    if (s->zone
        && (!s->request->header_sent || s->request->connection->error))
    {
        (void) ngx_http_kv_router_selection_event(s->zone, &s->id,
                                                  KVR_SELECTION_END, &was);
    }
}


/* ---- POST /select ------------------------------------------------------- */

static void
ngx_http_kv_router_selected_json(ngx_http_kv_router_ctx_t *ctx, yajl_gen g,
    const kvr_selection_id_t *id, uint64_t tokens)
{
    size_t                                 len;
    u_char                     text[NGX_HTTP_KV_ROUTER_SELECTION_TEXT];
    const ngx_http_kv_router_candidate_t  *c;

    c = ctx->choice.chosen;
    len = ngx_http_kv_router_selection_text(id, text);

    yajl_gen_map_open(g);
    ngx_http_kv_router_gen_text(g, "id", text, len);
    ngx_http_kv_router_gen_text(g, "worker_id", (u_char *) c->worker,
                                c->worker_len);
    ngx_http_kv_router_gen_text(g, "address", (u_char *) c->address,
                                c->address_len);

    if (ctx->try.rank == UINT32_MAX) {
        ngx_http_kv_router_gen_null(g, "dp_rank");

    } else {
        ngx_http_kv_router_gen_u64(g, "dp_rank", ctx->try.rank);
    }

    ngx_http_kv_router_explain_overlap(g, c);

    ngx_http_kv_router_gen_u64(g, "prompt_tokens",
                               ctx->found.match.prompt_tokens);
    ngx_http_kv_router_gen_u64(g, "prefill_tokens", tokens);
    ngx_http_kv_router_gen_ms(g, "lease", ctx->zone->conf.lease);
    yajl_gen_map_close(g);
}


ngx_int_t
ngx_http_kv_router_call_select(ngx_http_kv_router_call_t *c)
{
    kvr_rc_t                        rc;
    uint64_t                        tokens;
    ngx_pool_cleanup_t             *cln;
    ngx_http_kv_router_ctx_t       *ctx;
    ngx_http_kv_router_selected_t  *s;

    static ngx_str_t  second = ngx_string("1");

    ctx = ngx_http_kv_router_get_ctx(c->request);

    if (ctx == NULL || ctx->zone != c->zone || !ctx->choice.reserved
        || !ctx->selects)
    {
        return ngx_http_kv_router_call_no_router(c, "select");
    }

    if (ctx->prompt.form == KVR_FORM_NO_LOAD) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                               "a request to this path infers "
                                               "nothing, so that nothing is "
                                               "reserved for it: send it to "
                                               "any worker");
    }

    cln = ngx_pool_cleanup_add(c->request->pool,
                               sizeof(ngx_http_kv_router_selected_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    s = cln->data;
    s->request = c->request;
    s->zone = NULL;
    cln->handler = ngx_http_kv_router_selected_cleanup;

    tokens = ctx->choice.reservation.prefill_tokens;
    rc = ngx_http_kv_router_selection_make(ctx, &s->id);

    if (rc == KVR_FULL) {
        ngx_http_kv_router_count(c->zone->run.sh, SELECTED_FULL, 1);

        if (ngx_http_kv_router_answer_header(c->request, "Retry-After",
                                             &second)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_kv_router_answer_error(c->answer,
                                               NGX_HTTP_TOO_MANY_REQUESTS,
                                               "zone \"%V\" has no room for "
                                               "another reservation: it holds "
                                               "%uD of at most %d; end those "
                                               "that are over, or make lease= "
                                               "shorter",
                                               &c->zone->conf.name,
                                               kvr_router_selections(
                                                   &c->zone->run.router),
                                               KVR_SELECTIONS);
    }

    if (rc != KVR_OK) {
        return ngx_http_kv_router_call_failed(c, rc);
    }

    s->zone = c->zone;

    ngx_http_kv_router_selected_json(ctx, c->answer->gen, &s->id, tokens);

    return ngx_http_kv_router_call_ok(c);
}


/* ---- POST /reservations/ID ---------------------------------------------- */

/* A text that is no id has a value, too, which is written in another way. */

static ngx_uint_t
ngx_http_kv_router_selection_read(const ngx_str_t *given,
    kvr_selection_id_t *id)
{
    u_char       text[NGX_HTTP_KV_ROUTER_SELECTION_TEXT];
    const char  *p;

    if (given->len != NGX_HTTP_KV_ROUTER_SELECTION_ID) {
        return 0;
    }

    p = (const char *) given->data;

    id->place = (uint32_t) kvr_hex_value(p, 4);
    id->bits[0] = kvr_hex_value(p + 4, 16);
    id->bits[1] = kvr_hex_value(p + 20, 16);

    return ngx_http_kv_router_selection_text(id, text) == given->len
           && ngx_memcmp(text, given->data, given->len) == 0;
}


static void
ngx_http_kv_router_selection_body(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, ngx_uint_t *event)
{
    const char       *at;
    kvr_json_text_t   key, name;

    *event = 3;

    kvr_json_init(j, (char *) c->body.data, c->body.len);
    kvr_json_open(j, '{');

    while (kvr_json_key(j, &key)) {

        (void) kvr_json_peek(j);
        at = j->pos;

        if (kvr_json_is(&key, "event") && kvr_json_string(j, &name)) {

            for (*event = 0; *event < 3
                 && !kvr_json_is(&name,
                                 ngx_http_kv_router_selection_events[*event]);
                 (*event)++) { /* void */ }

            if (*event == 3) {
                kvr_json_fail(j, at, "\"event\" must be \"first\", \"renew\" "
                                     "or \"end\"");
            }

        } else if (kvr_json_is(&key, "usage")) {

            if (kvr_json_peek(j) != '{' && kvr_json_peek(j) != 'n') {
                kvr_json_fail(j, at, "\"usage\" must be the object of an "
                                     "engine's answer");
            }

            kvr_json_skip(j);

        } else {
            ngx_http_kv_router_call_unknown(c, j, &key);
        }
    }
}


ngx_int_t
ngx_http_kv_router_call_reservation(ngx_http_kv_router_call_t *c)
{
    kvr_rc_t             rc;
    kvr_json_t           j;
    ngx_uint_t           event;
    kvr_answer_t         answer;
    kvr_selection_t      was;
    kvr_answer_usage_t   usage;
    kvr_selection_id_t   id;

    ngx_http_kv_router_selection_body(c, &j, &event);

    if (!kvr_json_end(&j)) {
        return ngx_http_kv_router_call_bad_body(c, &j);
    }

    if (event == 3) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                               "body: \"event\" is missing, "
                                               "\"first\", \"renew\" or "
                                               "\"end\"");
    }

    rc = KVR_DECLINED;

    if (ngx_http_kv_router_selection_read(&c->id, &id)) {
        rc = ngx_http_kv_router_selection_event(c->zone, &id, event, &was);
    }

    if (rc == KVR_DECLINED) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_NOT_FOUND,
                                               "there is no reservation "
                                               "\"%V\": it has ended, or its "
                                               "lease is over, or its worker "
                                               "has gone", &c->id);
    }

    if (rc != KVR_OK) {
        return ngx_http_kv_router_call_failed(c, rc);
    }

    /* the object is found as in an answer that passes nginx */

    kvr_answer_init(&answer, KVR_FORM_CHAT);
    kvr_answer_add(&answer, c->body.data, c->body.len);

    if (event == KVR_SELECTION_END && kvr_answer_usage(&answer, &usage)) {
        (void) ngx_http_kv_router_usage_count(c->zone, was.load.holder,
                                              was.load.generation, was.known,
                                              was.best, &usage);
    }

    yajl_gen_map_open(c->answer->gen);
    ngx_http_kv_router_gen_text(c->answer->gen, "id", c->id.data, c->id.len);
    ngx_http_kv_router_gen_str(c->answer->gen, "event",
                               ngx_http_kv_router_selection_events[event]);
    yajl_gen_map_close(c->answer->gen);

    return ngx_http_kv_router_call_ok(c);
}
