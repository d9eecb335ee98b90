
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * API: /events.
 */


#include "ngx_http_kv_router_api.h"
#include "../status/ngx_http_kv_router_stats.h"


/*
 * The maximum number of refused events that an answer lists.  The bound keeps
 * the answer from being many times as long as the message.
 */
#define NGX_HTTP_KV_ROUTER_REFUSALS  100


typedef struct {
    ngx_uint_t                      at;
    ngx_str_t                       why;
} ngx_http_kv_router_refusal_t;


typedef struct {
    ngx_array_t                     listed;    /* first refusals */
    ngx_uint_t                      more;
} ngx_http_kv_router_refusals_t;


static void ngx_http_kv_router_decoder_cleanup(void *data);
static ngx_int_t ngx_http_kv_router_events_open(ngx_http_kv_router_call_t *c,
    kvr_decoder_t *d, kvr_message_t *msg, ngx_int_t *sent);
static ngx_int_t ngx_http_kv_router_events_check(ngx_http_kv_router_call_t *c,
    kvr_decoder_t *d, ngx_int_t *sent);
static ngx_int_t ngx_http_kv_router_events_refuse(ngx_http_kv_router_call_t *c,
    ngx_http_kv_router_refusals_t *refused, const kvr_event_t *ev,
    const char *why, ...);
static ngx_int_t ngx_http_kv_router_events_answer(ngx_http_kv_router_call_t *c,
    ngx_uint_t applied, ngx_uint_t filtered, ngx_uint_t unknown,
    ngx_http_kv_router_refusals_t *refused, kvr_rc_t rc);


/*
 * The message is read twice.  If the message can't be read to its end, all of
 * it is refused, before any event is applied.  Otherwise it is applied event
 * by event, as a message of the engine would be.
 */

ngx_int_t
ngx_http_kv_router_call_events(ngx_http_kv_router_call_t *c)
{
    size_t                          len;
    uint32_t                        gone;
    kvr_rc_t                        rc;
    ngx_int_t                       sent;
    kvr_why_t                       why;
    ngx_uint_t                      applied, filtered, unknown;
    const char                     *worker, *detail;
    kvr_event_t                     ev;
    kvr_decoder_t                  *d;
    kvr_message_t                   msg;
    ngx_pool_cleanup_t             *cln;
    ngx_http_kv_router_refusals_t   refused;

    if (c->body.len == 0) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                               "body: it is empty");
    }

    cln = ngx_pool_cleanup_add(c->request->pool, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    d = kvr_decoder_create();
    if (d == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = ngx_http_kv_router_decoder_cleanup;
    cln->data = d;

    refused.more = 0;

    if (ngx_array_init(&refused.listed, c->request->pool, 4,
                       sizeof(ngx_http_kv_router_refusal_t))
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_kv_router_events_open(c, d, &msg, &sent) != NGX_OK
        || ngx_http_kv_router_events_check(c, d, &sent) != NGX_OK
        || ngx_http_kv_router_events_open(c, d, &msg, &sent) != NGX_OK)
    {
        return sent;
    }

    applied = 0;
    filtered = 0;
    unknown = 0;
    rc = KVR_OK;

    while (kvr_decoder_next(d, &ev) == KVR_OK) {

        if (ev.verdict == KVR_FILTERED) {
            filtered++;
            continue;
        }

        worker = ev.worker;
        len = ev.worker_len;

        if (worker == NULL) {
            worker = msg.worker;
            len = msg.worker_len;
        }

        why = ev.why;
        detail = kvr_decoder_detail(d);

        if (ev.verdict == KVR_KEEP) {

            gone = 0;
            why = KVR_WHY_NONE;
            detail = "";

            rc = kvr_router_write(&c->zone->run.router, worker, len, &ev,
                                  ngx_current_msec, &gone, &why, &detail);

            unknown += gone;

            if (rc == KVR_OK) {
                applied += why == KVR_WHY_NONE;
                filtered += why != KVR_WHY_NONE;
                continue;
            }

            if (rc == KVR_BUSY || rc == KVR_ERROR) {

                /* the remaining events would fail as well */

                break;
            }

            if (rc == KVR_DECLINED) {

                if (ngx_http_kv_router_events_refuse(c, &refused, &ev,
                                                     "unknown worker \"%*s\": "
                                                     "PUT /workers/%*s first",
                                                     len, worker, len, worker)
                    != NGX_OK)
                {
                    return NGX_HTTP_INTERNAL_SERVER_ERROR;
                }

                continue;
            }

            if (rc == KVR_LOST) {
                why = KVR_WHY_WORKER;
                detail = "the worker has an event source of its own";
            }

            if (rc == KVR_FULL) {
                why = KVR_WHY_FULL;
                detail = "the zone is full";
            }
        }

        if (ngx_http_kv_router_events_refuse(c, &refused, &ev, "%s: %s",
                                             kvr_why_name(why), detail)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return ngx_http_kv_router_events_answer(c, applied, filtered, unknown,
                                            &refused, rc);
}


static void
ngx_http_kv_router_decoder_cleanup(void *data)
{
    kvr_decoder_destroy(data);
}


/* NGX_DECLINED: an error was answered; *sent is the result of sending it. */

static ngx_int_t
ngx_http_kv_router_events_open(ngx_http_kv_router_call_t *c, kvr_decoder_t *d,
    kvr_message_t *msg, ngx_int_t *sent)
{
    uint32_t                     slot;
    kvr_why_t                    why;
    ngx_str_t                    arg;
    const char                  *detail;
    kvr_router_t                *k;
    ngx_http_kv_router_worker_t  w;

    why = KVR_WHY_NONE;
    detail = "";
    k = &c->zone->run.router;

    kvr_decoder_conf(d)->contract = kvr_params_contract(kvr_router_params(k));
    kvr_decoder_conf(d)->window = 0;

    if (kvr_message_open(d, c->body.data, c->body.len, msg, &why, &detail)
        != KVR_OK)
    {
        *sent = ngx_http_kv_router_answer_error(c->answer,
                                                NGX_HTTP_BAD_REQUEST,
                                                "body: %s: %s",
                                                kvr_why_name(why), detail);
        return NGX_DECLINED;
    }

    if (msg->form != KVR_FORM_BARE && msg->form != KVR_FORM_NORMALISED) {
        return NGX_OK;
    }

    if (ngx_http_arg(c->request, (u_char *) "worker", 6, &arg) != NGX_OK
        || !kvr_worker_id_valid((char *) arg.data, arg.len))
    {
        *sent = ngx_http_kv_router_answer_error(c->answer,
                                                NGX_HTTP_BAD_REQUEST,
                                                "an engine's own events need "
                                                "the worker's id in the "
                                                "argument \"worker\"");
        return NGX_DECLINED;
    }

    msg->worker = (char *) arg.data;
    msg->worker_len = arg.len;

    if (kvr_router_find_worker(k, msg->worker, msg->worker_len, &slot)
        == KVR_OK
        && ngx_http_kv_router_read_worker(c->zone, slot, &w) == NGX_OK)
    {
        kvr_decoder_conf(d)->salted = w.conf.salted;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_events_check(ngx_http_kv_router_call_t *c, kvr_decoder_t *d,
    ngx_int_t *sent)
{
    kvr_rc_t     rc;
    ngx_uint_t   n;
    kvr_event_t  ev;

    n = 0;

    for ( ;; ) {
        rc = kvr_decoder_next(d, &ev);

        if (rc != KVR_OK) {
            break;
        }

        n++;
    }

    if (rc == KVR_DONE) {
        return NGX_OK;
    }

    *sent = ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                            "body: %s behind event %ui, "
                                            "nothing was applied",
                                            kvr_decoder_detail(d), n);
    return NGX_DECLINED;
}


/* The text is made now: the event's values end with the next event. */

static ngx_int_t
ngx_http_kv_router_events_refuse(ngx_http_kv_router_call_t *c,
    ngx_http_kv_router_refusals_t *refused, const kvr_event_t *ev,
    const char *why, ...)
{
    u_char                         buf[256], *last;
    va_list                        args;
    ngx_http_kv_router_refusal_t  *refusal;

    if (refused->listed.nelts == NGX_HTTP_KV_ROUTER_REFUSALS) {
        refused->more++;
        return NGX_OK;
    }

    va_start(args, why);
    last = ngx_vslprintf(buf, buf + sizeof(buf), why, args);
    va_end(args);

    refusal = ngx_array_push(&refused->listed);
    if (refusal == NULL) {
        return NGX_ERROR;
    }

    refusal->at = ev->at;
    refusal->why.len = last - buf;
    refusal->why.data = ngx_pnalloc(c->request->pool, last - buf);

    if (refusal->why.data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(refusal->why.data, buf, last - buf);

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_events_answer(ngx_http_kv_router_call_t *c,
    ngx_uint_t applied, ngx_uint_t filtered, ngx_uint_t unknown,
    ngx_http_kv_router_refusals_t *refused, kvr_rc_t rc)
{
    yajl_gen                       g;
    ngx_uint_t                     i, status;
    ngx_http_kv_router_refusal_t  *refusal;

    static ngx_str_t  second = ngx_string("1");

    g = c->answer->gen;
    status = NGX_HTTP_OK;
    refusal = refused->listed.elts;

    yajl_gen_map_open(g);

    if (rc == KVR_BUSY || rc == KVR_ERROR) {

        /* an event can be applied twice without harm: send all events again */

        ngx_http_kv_router_gen_str(g, "error",
                                   (rc == KVR_BUSY)
                                   ? "the zone is being written by another "
                                     "process: send all again"
                                   : "the zone can't be written");

        status = (rc == KVR_BUSY) ? NGX_HTTP_SERVICE_UNAVAILABLE
                                  : NGX_HTTP_INTERNAL_SERVER_ERROR;

        if (rc == KVR_BUSY
            && ngx_http_kv_router_answer_header(c->request, "Retry-After",
                                                &second)
               != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ngx_http_kv_router_gen_u64(g, "applied", applied);

    if (filtered) {
        ngx_http_kv_router_gen_u64(g, "filtered", filtered);
    }

    if (unknown) {
        ngx_http_kv_router_gen_u64(g, "unknown_blocks", unknown);
    }

    ngx_http_kv_router_gen_key(g, "refused");
    yajl_gen_array_open(g);

    for (i = 0; i < refused->listed.nelts; i++) {
        yajl_gen_map_open(g);
        ngx_http_kv_router_gen_u64(g, "at", refusal[i].at);
        ngx_http_kv_router_gen_key(g, "why");
        yajl_gen_string(g, refusal[i].why.data, refusal[i].why.len);
        yajl_gen_map_close(g);
    }

    yajl_gen_array_close(g);

    if (refused->more) {
        ngx_http_kv_router_gen_u64(g, "more_refused", refused->more);
    }

    yajl_gen_map_close(g);

    ngx_http_kv_router_answer_write(c->answer, "\n", 1);

    return ngx_http_kv_router_answer_send(c->answer, status,
                                          "application/json");
}
