
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A request on its way, a file for each step, and here in this order:
 *
 *     body -> prompt -> keys -> found -> choice -> try -> answer
 *
 * The load is released when the last byte of the answer has passed, or else
 * when the request ends, whichever comes first, once.
 */


#ifndef _NGX_HTTP_KV_ROUTER_ROUTE_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_ROUTE_H_INCLUDED_


#include "ngx_http_kv_router_ctx.h"


/* ---- body --------------------------------------------------------------- */

/*
 * body: makes ctx->body.tape the tape of the request's body, unless it is
 * that already.  Returns an NGX_HTTP_KV_ROUTER_...: BY_POLICY if there is a
 * tape, else the reason why there is none.
 *
 * ids: 1: the ids of the tape are wanted as well; they are valid until the
 * next scan of any body.
 */
ngx_uint_t ngx_http_kv_router_body(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_uint_t ids);

/*
 * body: the bytes of the text in the body of a prompt whose ids are not known;
 * of a body that is not JSON, or was not scanned, all of its bytes
 */
size_t ngx_http_kv_router_body_bytes(ngx_http_kv_router_ctx_t *ctx);

/*
 * body: this process's tape, with room for a text of len bytes and max_tokens
 * ids.  The ids of bodies that were scanned before are lost.  NULL: no memory.
 */
kvr_tape_t *ngx_http_kv_router_process_tape(size_t len, size_t max_tokens);


/* ---- prompt ------------------------------------------------------------- */

/*
 * model: the adapter that the model of a request names, or one without data;
 * of a model with an adapter behind it, model becomes the former
 */
void ngx_http_kv_router_find_adapter(ngx_http_kv_router_ctx_t *ctx,
    ngx_str_t *model, ngx_str_t *adapter);

/* model: does a worker serve the request's model and adapter? */
ngx_uint_t ngx_http_kv_router_serves(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_holder_t *h);

/* model: does any?  Where there are no workers at all, yes. */
ngx_uint_t ngx_http_kv_router_served(ngx_http_kv_router_ctx_t *ctx);


/* ---- keys --------------------------------------------------------------- */

/*
 * keys: hashes the ids of the prompt, behind those that are known.  NGX_ERROR:
 * no memory.
 */
ngx_int_t ngx_http_kv_router_keys_ids(ngx_http_kv_router_ctx_t *ctx,
    const uint32_t *tokens, size_t n);

/* keys: makes the prompt one of less than a block; its model stays */
void ngx_http_kv_router_keys_drop(ngx_http_kv_router_ctx_t *ctx);

/*
 * keys: if there are no token ids, and a candidate is without events, the
 * keys are the hashes of the prompt's text.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_kv_router_keys_text(ngx_http_kv_router_ctx_t *ctx);


/* ---- queue -------------------------------------------------------------- */

/*
 * granted: the places that are granted at a worker, or, where h is NULL, at
 * all workers, and not yet reserved, but for that of ctx; NULL: for any
 */
kvr_admit_row_t ngx_http_kv_router_queue_granted(
    ngx_http_kv_router_zone_t *zone, const ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_holder_t *h);

/*
 * granted: has the request a place at the worker?  Then the bound of tokens is
 * no matter: another grant may have passed it since.
 */
ngx_uint_t ngx_http_kv_router_queue_owns(const ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_holder_t *h);

/* granted: a worker may have room: it is looked at at the end of this turn */
void ngx_http_kv_router_queue_freed(ngx_http_kv_router_zone_t *zone,
    uint32_t holder);

/* granted: the request's entry, if it has one, and its state, or FREE */
kvr_order_entry_t *ngx_http_kv_router_queue_entry(
    const ngx_http_kv_router_ctx_t *ctx);
uint32_t ngx_http_kv_router_queue_state(const ngx_http_kv_router_ctx_t *ctx);

/* rules: the hash of a class or of a tenant, not 0 */
uint64_t ngx_http_kv_router_queue_hash(const u_char *name, size_t len);

/* rules: gives the zone the process's classes and tenants */
void ngx_http_kv_router_queue_configure(ngx_http_kv_router_queue_t *q);

/* rules: the counters of the request's class; NULL: it has none */
ngx_http_kv_router_class_t *ngx_http_kv_router_queue_class(
    ngx_http_kv_router_ctx_t *ctx);

/*
 * rooms: gives the place of a worker, if it has any, to those that wait in a
 * pool.  h: the first rank that the fleet knows of it.  mine, entry, result:
 * as kvr_admit_room().
 */
kvr_rc_t ngx_http_kv_router_room(ngx_http_kv_router_queue_t *q,
    ngx_http_kv_router_fleet_t *fleet, ngx_http_kv_router_holder_t *h,
    uint32_t pool, uint32_t mine, uint32_t *entry);

/* rooms: the same of all workers, for all pools */
void ngx_http_kv_router_rooms_look(ngx_http_kv_router_queue_t *q);

/* rooms: the key of the pool of a model, and of the eligible roles */
uint64_t ngx_http_kv_router_pool_key(const ngx_str_t *model, uint32_t roles);

/* rooms: is a worker of this pool, as one that decodes or prefills? */
ngx_uint_t ngx_http_kv_router_pool_serves(uint64_t key,
    const ngx_http_kv_router_holder_t *h);

/*
 * queue: may the request reserve, at candidate i or elsewhere?  NGX_BUSY: it
 * is to wait.  If it has reserved, queue_kept() comes next.
 */
ngx_int_t ngx_http_kv_router_queue_enter(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i);
void ngx_http_kv_router_queue_kept(ngx_http_kv_router_ctx_t *ctx);

/* queue: the request has ended */
void ngx_http_kv_router_queue_end(ngx_http_kv_router_ctx_t *ctx);


/* ---- found -------------------------------------------------------------- */

/*
 * load: adds estimates, and what is in flight, to the candidates' overlap
 */
ngx_int_t ngx_http_kv_router_expect(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);

/* flights: can the flights say more of the prompt than this process knows? */
ngx_uint_t ngx_http_kv_router_flies(ngx_http_kv_router_ctx_t *ctx);

/*
 * flights: raises the depths of the first n holders to what is in flight
 * there.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_kv_router_flights_find(ngx_http_kv_router_ctx_t *ctx,
    kvr_inflight_depth_t *depths, uint32_t n);

/* load: the blocks of all prompts of the request but the first one */
uint32_t ngx_http_kv_router_other_blocks(ngx_http_kv_router_ctx_t *ctx);

/* estimate: is any candidate without events? */
ngx_uint_t ngx_http_kv_router_estimates(ngx_http_kv_router_ctx_t *ctx);

/*
 * estimate: candidate i, which is without events, has ctx->found.estimates[i]
 * of the keys, and is expected to have so many
 */
void ngx_http_kv_router_estimate(ngx_http_kv_router_ctx_t *ctx, uint32_t i,
    uint32_t expected);

/*
 * bound: is the worker of candidate i, or the zone, full?  For a retry the
 * worker's tokens are not looked at.
 */
ngx_uint_t ngx_http_kv_router_worker_full(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i);
ngx_uint_t ngx_http_kv_router_zone_full(ngx_http_kv_router_ctx_t *ctx);

/*
 * bound: the same of a worker, or of the zone, for the request of ctx; NULL:
 * for any.  tokens: 1: the worker's are looked at.  h: any rank of the worker.
 */
ngx_uint_t ngx_http_kv_router_bound_worker(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_ctx_t *ctx, ngx_http_kv_router_fleet_t *fleet,
    ngx_http_kv_router_holder_t *h, ngx_uint_t tokens);
ngx_uint_t ngx_http_kv_router_bound_zone(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_ctx_t *ctx, ngx_http_kv_router_fleet_t *fleet);

/*
 * bound: leaves candidates out whose workers have their maximum number of
 * requests; returns how many of n are left.  If out is not NULL, those with
 * no room for tokens are left out, too, and their numbers in the fleet added
 * to out: they are for retries.
 */
uint32_t ngx_http_kv_router_bound_list(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c, uint32_t n, uint32_t *out,
    uint32_t *nout);

/*
 * bound: between these two calls no other process checks the maximum numbers
 * and reserves.  They do nothing if no maximum is configured.  NGX_AGAIN: the
 * process stood still, and another one has reserved meanwhile; what was
 * reserved since the first call must be given back.
 */
void ngx_http_kv_router_bound_begin(ngx_http_kv_router_ctx_t *ctx);
ngx_int_t ngx_http_kv_router_bound_end(ngx_http_kv_router_ctx_t *ctx);


/* ---- choice ------------------------------------------------------------- */

/*
 * choice: reserves for the request where the maximum numbers allow it:
 * candidate i, or, if that is not usable or UINT32_MAX, the next best one,
 * which is returned.  UINT32_MAX: there is no room.
 */
uint32_t ngx_http_kv_router_admit(ngx_http_kv_router_ctx_t *ctx, uint32_t i);

/* choice: moves the reservation and the load of the request to candidate i */
void ngx_http_kv_router_go(ngx_http_kv_router_ctx_t *ctx, uint32_t i);

/* choice: gives back all that was reserved */
void ngx_http_kv_router_choice_drop(ngx_http_kv_router_ctx_t *ctx);

/* load: weighs a text that costs its bytes; to be done before bound_begin() */
void ngx_http_kv_router_weigh(ngx_http_kv_router_ctx_t *ctx);

/* load: the tokens that are to be prefilled at candidate c, see load.c */
uint32_t ngx_http_kv_router_uncached(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c);

/* load: makes s, an empty reservation, the request's at candidate i */
void ngx_http_kv_router_charge(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s, uint32_t i);

/*
 * load: the prefill of s at candidate c ends by time or by events, where no
 * output will show its end
 */
void ngx_http_kv_router_prefill_timer(ngx_http_kv_router_ctx_t *ctx,
    const kvr_reservation_t *s, const ngx_http_kv_router_candidate_t *c);

/* load: the prefill of s is over */
void ngx_http_kv_router_prefilled(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s);

/* load: s has the blocks that end with it alone */
void ngx_http_kv_router_unshare(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s);

/* load: gives all of s back, once; s is empty then */
void ngx_http_kv_router_uncharge(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s);

/*
 * flights: tells other processes and routers what s has in flight at candidate
 * i, and that it is over
 */
void ngx_http_kv_router_flight_begin(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s, uint32_t i);
void ngx_http_kv_router_flight_end(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s);

/* flights: what s has in flight is ended by somebody else */
void ngx_http_kv_router_flight_hand_over(kvr_reservation_t *s);

/* flights: by the timer of each process: those that have gone on for long */
void ngx_http_kv_router_flights_renew(ngx_http_kv_router_zone_t *zone);

/* prefill: the prefill elsewhere ended, as an attempt ends; counts once */
void ngx_http_kv_router_prefill_ended(ngx_http_kv_router_ctx_t *ctx,
    ngx_uint_t how);

/*
 * decided: keeps the decision, and the prefixes of its prompt, for the status
 * page; and adds to what was kept: the first byte has come.
 */
void ngx_http_kv_router_decided(ngx_http_kv_router_ctx_t *ctx);
void ngx_http_kv_router_decided_first_byte(ngx_http_kv_router_ctx_t *ctx);


/* ---- try ---------------------------------------------------------------- */

/*
 * try: a retry: the request names the rank of the candidate that was chosen.
 * NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_kv_router_tell_rank(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);

/*
 * attempt: can candidate i have a request?  anyhow: even if its worker failed.
 * Never if the worker is gone, or drains.
 */
ngx_uint_t ngx_http_kv_router_attempt_usable(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i, ngx_uint_t anyhow);

/* attempt: the same of a holder of the fleet */
ngx_uint_t ngx_http_kv_router_holder_usable(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_holder_t *h, ngx_uint_t anyhow);

/* attempt: candidate i gets the request; NGX_DECLINED: it is not usable */
ngx_int_t ngx_http_kv_router_attempt_take(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i, ngx_uint_t anyhow);

/* attempt: the same with a ticket of its own, for a prefill elsewhere */
ngx_int_t ngx_http_kv_router_attempt_ticket(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i, ngx_uint_t anyhow, kvr_ticket_t *ticket);

/*
 * attempt: an attempt ended; end: a kvr_failure_t, or one of these.  pause:
 * the worker asked for so many milliseconds, or 0.  This ends the ticket's
 * attempt, unless an answer has only begun.
 */

#define NGX_HTTP_KV_ROUTER_DONE     KVR_FAILURES
#define NGX_HTTP_KV_ROUTER_ABORTED  (KVR_FAILURES + 1)
#define NGX_HTTP_KV_ROUTER_STALE    (KVR_FAILURES + 2)

void ngx_http_kv_router_attempt_judge(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c, kvr_ticket_t *ticket, ngx_uint_t end,
    ngx_msec_t pause);

/* attempt: the attempt is given up, or ended without a result to judge by */
void ngx_http_kv_router_attempt_drop(ngx_http_kv_router_ctx_t *ctx);

/* attempt: after all upstreams of the configuration were made */
void ngx_http_kv_router_attempt_init(ngx_conf_t *cf);

/*
 * attempt: the attempts of the request's upstream are seen from now on;
 * NGX_ERROR: it was made before the request was routed
 */
ngx_int_t ngx_http_kv_router_attempt_begin(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);

/*
 * attempt: the request has ended: tells, once a minute, of one that did not go
 * to the worker that was chosen, as no balancer asked
 */
void ngx_http_kv_router_attempt_past(ngx_http_kv_router_ctx_t *ctx);

/* attempt: there is no upstream of this choice any more */
void ngx_http_kv_router_attempt_forget(ngx_http_kv_router_ctx_t *ctx);

/* attempt: an answer begins; NGX_DECLINED: its status is a failure */
ngx_int_t ngx_http_kv_router_attempt_answered(ngx_http_kv_router_ctx_t *ctx);


/* ---- answer ------------------------------------------------------------- */

void ngx_http_kv_router_filter_init(void);

/* echo: an answer's first output has come */
void ngx_http_kv_router_echo(ngx_http_kv_router_ctx_t *ctx);

/* echo: by the timer of each process: the looks that are due */
void ngx_http_kv_router_echo_looks(ngx_http_kv_router_zone_t *zone);

/*
 * echo: adds evidence, of which worker, generation, epoch, route, depth and
 * blocks count, and warns when a mismatch begins; full: see kvr_trust.h
 */
void ngx_http_kv_router_echo_add(ngx_http_kv_router_zone_t *zone,
    const kvr_echo_t *e, bool full);

/*
 * echo: the worker with this number, if what is known of its blocks is
 * complete: if so, a block that is missing was not stored.  Else NULL.
 */
const kvr_worker_t *ngx_http_kv_router_echo_worker(
    ngx_http_kv_router_zone_t *zone, uint32_t number);

/* echo: the trust in a generation of the worker with this number */
void ngx_http_kv_router_echo_trust(ngx_http_kv_router_zone_t *zone,
    uint32_t number, uint32_t generation, uint32_t route,
    kvr_trust_view_t *view);

/*
 * estimate: an answer's first output has come, so its worker has the prompt
 * now; the engine has told its cached tokens; the request has ended
 */
void ngx_http_kv_router_estimate_begin(ngx_http_kv_router_ctx_t *ctx);
void ngx_http_kv_router_estimate_answer(ngx_http_kv_router_ctx_t *ctx,
    uint64_t cached);
void ngx_http_kv_router_estimate_end(ngx_http_kv_router_ctx_t *ctx);

/*
 * speed: a sample of how fast a rank prefills.  answer: the first output of a
 * streamed answer has come.  prefill: a prefill elsewhere has ended well, and
 * its load is still reserved.
 */
void ngx_http_kv_router_speed_answer(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);
void ngx_http_kv_router_speed_prefill(ngx_http_kv_router_ctx_t *ctx);

/*
 * answer: the blocks that the chosen worker was known to have, for the usage
 * that its engine reports; UINT32_MAX: that can't be compared.  count: counts
 * such a usage for the worker; 0: it was not counted.
 */
uint32_t ngx_http_kv_router_usage_known(const ngx_http_kv_router_ctx_t *ctx);
ngx_uint_t ngx_http_kv_router_usage_count(ngx_http_kv_router_zone_t *zone,
    uint32_t holder, uint32_t generation, uint32_t known, uint32_t best,
    const kvr_answer_usage_t *usage);

/* speed: does the stream of candidate c show when its prefill has ended? */
ngx_uint_t ngx_http_kv_router_shows_output(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c);

/* speed: by the timer of each process: zone->speed, and those of the fleet */
void ngx_http_kv_router_speeds(ngx_http_kv_router_zone_t *zone);

/*
 * times: what is counted of a request.  waited: the request no longer waits
 * for room, if it did.  count_end: the request has ended.
 */
void ngx_http_kv_router_count_reason(ngx_http_kv_router_ctx_t *ctx);
void ngx_http_kv_router_waited(ngx_http_kv_router_ctx_t *ctx);
void ngx_http_kv_router_count_end(ngx_http_kv_router_ctx_t *ctx);


/* ---- variables ---------------------------------------------------------- */

ngx_int_t ngx_http_kv_router_add_variables(ngx_conf_t *cf);


#endif /* _NGX_HTTP_KV_ROUTER_ROUTE_H_INCLUDED_ */
