
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A request on its way: from its body to a decision, from the decision to an
 * engine, and everything that it reserved given back.
 *
 * The context belongs to the request's pool and is found again by the pool's
 * cleanup, so that an internal redirect, which forgets module contexts, does
 * not lose it.  The load is released when the last byte of the answer has
 * passed, or else when the request ends, whichever comes first, once.
 */


#ifndef _NGX_HTTP_KV_ROUTER_ROUTE_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_ROUTE_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"
#include "../lua/ngx_http_kv_router_ffi.h"

#include <wire/kvr_answer.h>


/* a holder, as a process remembers it from the zone */

typedef struct {
    uint32_t                        holder;
    uint32_t                        generation;
    uint32_t                        number;    /* of the worker */
    uint32_t                        rank;
    uint32_t                        role;
    uint32_t                        max_active;
    double                          weight;
    const kvr_worker_t             *worker;    /* in the zone */
    ngx_str_t                       id;
    ngx_str_t                       address;
    ngx_str_t                       host;      /* of address; "unix:/path" */
    ngx_str_t                       model;
    ngx_str_t                       lora;      /* kvr_adapters.h */
    in_port_t                       port;
    kvr_health_params_t             health;
    unsigned                        draining:1;
} ngx_http_kv_router_holder_t;


/*
 * The routable holders of a zone, copied when the fleet's version changes.
 * Never changed once it is made; a request that uses it holds a reference.
 */

typedef struct ngx_http_kv_router_fleet_s {
    uint32_t                        version;
    ngx_uint_t                      refs;
    ngx_pool_t                     *pool;
    ngx_uint_t                      n;
    ngx_uint_t                      size;      /* of holders */
    ngx_http_kv_router_holder_t    *holders;
    uint32_t                       *by_holder; /* index + 1; 0: none */
} ngx_http_kv_router_fleet_t;

/* the current one, with a reference taken; NULL when out of memory */
ngx_http_kv_router_fleet_t *ngx_http_kv_router_fleet_get(
    ngx_http_kv_router_zone_t *zone);
void ngx_http_kv_router_fleet_put(ngx_http_kv_router_fleet_t *fleet);


typedef struct ngx_http_kv_router_attempt_s  ngx_http_kv_router_attempt_t;


/*
 * Memory of the request's pool, which is used again: while a request waits its
 * candidates are listed 100 times a second, and a text has two prompts.
 */

typedef enum {
    NGX_HTTP_KV_ROUTER_ROOM_BODY = 0,
    NGX_HTTP_KV_ROUTER_ROOM_HASHES,
    NGX_HTTP_KV_ROUTER_ROOM_CANDIDATES,
    NGX_HTTP_KV_ROUTER_ROOM_WHERE,
    NGX_HTTP_KV_ROUTER_ROOM_OUT,

    NGX_HTTP_KV_ROUTER_ROOMS
} ngx_http_kv_router_room_e;

typedef struct {
    void                           *data;
    size_t                          size;
} ngx_http_kv_router_room_t;


typedef struct {
    ngx_http_request_t             *request;       /* whose it is */
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_kv_router_fleet_t     *fleet;

    ngx_http_kv_router_room_t       rooms[NGX_HTTP_KV_ROUTER_ROOMS];

    ngx_http_kv_router_prompt_t     prompt;
    uint64_t                       *hashes;        /* prompt.blocks; NULL */
    ngx_str_t                       allowed;       /* ids; data NULL: all */
    uint32_t                        roles;         /* that are eligible */

    ngx_http_kv_router_match_t      match;
    ngx_http_kv_router_candidate_t *candidates;    /* match.n, and those that
                                                      are out, for retries */
    uint32_t                        ncandidates;   /* of both */

    uint64_t                       *chains;        /* of predictions */
    uint32_t                        nchains;
    uint32_t                        best;          /* without them */

    kvr_reservation_t               reservation;
    kvr_reservation_t               prefill;       /* elsewhere */
    ngx_http_kv_router_candidate_t *chosen;
    ngx_http_kv_router_candidate_t *prefiller;     /* the last one; NULL */
    uint32_t                       *ranked;        /* for retries */
    uint32_t                        nranked;
    uint32_t                        rank;          /* that an engine was told;
                                                      UINT32_MAX: none */
    u_char                         *tried;         /* of each candidate */
    ngx_uint_t                      tries;
    ngx_uint_t                      stale;         /* connections it met */

    ngx_http_kv_router_attempt_t   *attempt;       /* the peer's; NULL */
    kvr_ticket_t                    ticket;        /* while taken */
    kvr_ticket_t                    prefill_ticket;

    ngx_str_t                       policy;
    ngx_str_t                       reason;
    ngx_uint_t                      why;
    double                          us;            /* spent deciding */
    double                          decided_us;    /* when */
    double                          first_byte_us; /* when; 0: not yet */

    ngx_uint_t                      output_tokens; /* of a streamed answer */

    kvr_answer_t                   *answer;        /* its end; NULL */
    int64_t                         cached_tokens; /* that the engine told;
                                                      -1: it didn't */
    double                         *costs;         /* to be shown; NULL */

    unsigned                        taken:1;       /* an attempt is on */
    unsigned                        prefilling:1;  /* one to prefill */
    unsigned                        again:1;       /* at the same worker */
    unsigned                        told:1;        /* a rank, to an engine, of
                                                      this zone or another */
    unsigned                        line_end:1;    /* the last byte of it */
    unsigned                        prompted:1;    /* prompt, allowed and roles
                                                      are what they should */
    unsigned                        matched:1;     /* match and candidates
                                                      are those of prompt */
    unsigned                        dry:1;         /* nothing is counted */
    unsigned                        show:1;        /* in a header */
    unsigned                        usage_done:1;
    unsigned                        reserved:1;    /* a decision was made */
} ngx_http_kv_router_ctx_t;


/* the request's context, or that of the one it was redirected from; NULL */
ngx_http_kv_router_ctx_t *ngx_http_kv_router_get_ctx(ngx_http_request_t *r);


/* the same, made when there is none; NULL when out of memory */
ngx_http_kv_router_ctx_t *ngx_http_kv_router_make_ctx(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone);

/* room: of size bytes at least; what it had is lost.  NULL: no memory */
void *ngx_http_kv_router_room(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_room_e which, size_t size);

/* prompt: as one of less than a block; its model stays */
void ngx_http_kv_router_prompt_drop(ngx_http_kv_router_ctx_t *ctx);

/* rank: has the worker of candidate i several? */
ngx_uint_t ngx_http_kv_router_ranks(ngx_http_kv_router_ctx_t *ctx, uint32_t i);

/*
 * rank: a retry: the request names the rank of the candidate that was chosen.
 * NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_kv_router_tell_rank(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);

/* load: predictions, and what is in flight already, go into the candidates */
ngx_int_t ngx_http_kv_router_expect(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);

/* load: reservation s, of nothing, is the request's at candidate i */
void ngx_http_kv_router_charge(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s, uint32_t i);

/*
 * bound: has the worker of candidate i, or the zone, all the requests that it
 * may have?
 */
ngx_uint_t ngx_http_kv_router_worker_full(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i);
ngx_uint_t ngx_http_kv_router_zone_full(ngx_http_kv_router_ctx_t *ctx);

/*
 * bound: between these two no other process looks for room and takes it.  They
 * do nothing where nothing is bounded.
 */
void ngx_http_kv_router_bound_begin(ngx_http_kv_router_ctx_t *ctx);
void ngx_http_kv_router_bound_end(ngx_http_kv_router_ctx_t *ctx);

/* prefill: how the one elsewhere has ended, as attempts do; nothing twice */
void ngx_http_kv_router_prefill_ended(ngx_http_kv_router_ctx_t *ctx,
    ngx_uint_t how);

/* load: a piece of a streamed answer: what it adds */
void ngx_http_kv_router_streamed(ngx_http_kv_router_ctx_t *ctx, ngx_buf_t *b);

/* load: gives all of it back, once; s is of nothing then */
void ngx_http_kv_router_uncharge(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s);

/*
 * attempt: candidate i may have a request; anyhow: even when it has failed.
 * Never when it is gone, or drains.
 */
ngx_uint_t ngx_http_kv_router_attempt_usable(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i, ngx_uint_t anyhow);

/* it gets one; NGX_DECLINED: not this one */
ngx_int_t ngx_http_kv_router_attempt_take(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i, ngx_uint_t anyhow);

/* the same for a try that is not the request's own */
ngx_int_t ngx_http_kv_router_attempt_ticket(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i, ngx_uint_t anyhow, kvr_ticket_t *ticket);

/*
 * How an attempt ended: a kvr_failure_t, or one of these.  pause: milliseconds
 * that the worker asked for, or 0.  The ticket's is over with that, but for an
 * answer that has only begun.
 */

#define NGX_HTTP_KV_ROUTER_DONE     KVR_FAILURES
#define NGX_HTTP_KV_ROUTER_ABORTED  (KVR_FAILURES + 1)
#define NGX_HTTP_KV_ROUTER_STALE    (KVR_FAILURES + 2)

void ngx_http_kv_router_attempt_judge(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c, kvr_ticket_t *ticket, ngx_uint_t end,
    ngx_msec_t pause);

/* the chosen one's attempt is not to be, or without an end to be judged by */
void ngx_http_kv_router_attempt_drop(ngx_http_kv_router_ctx_t *ctx);

/* the first byte of an answer */
void ngx_http_kv_router_attempt_answered(ngx_http_kv_router_ctx_t *ctx);

/* attempt: after all upstreams of the configuration were made */
void ngx_http_kv_router_attempt_init(ngx_conf_t *cf);

/*
 * balancer: the attempts of the request's upstream are seen from now on;
 * NGX_ERROR: it was made before the request was routed
 */
ngx_int_t ngx_http_kv_router_attempt_begin(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);

/* the context goes */
void ngx_http_kv_router_attempt_forget(ngx_http_kv_router_ctx_t *ctx);

/* usage: a piece of the answer, the last one included */
void ngx_http_kv_router_usage(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_buf_t *b);

/* usage: a verdict's likely causes, as a question; NULL: it is no bad one */
const char *ngx_http_kv_router_usage_causes(kvr_usage_verdict_t verdict);

/* usage: by the timer of each process: does what was predicted come true? */
void ngx_http_kv_router_judge(ngx_http_kv_router_zone_t *zone);

/* copies into a string of the pool's */
ngx_int_t ngx_http_kv_router_copy_str(ngx_pool_t *pool, ngx_str_t *to,
    const u_char *data, size_t len);

double ngx_http_kv_router_now_us(void);

void ngx_http_kv_router_filter_init(void);
void ngx_http_kv_router_explain_init(void);
ngx_int_t ngx_http_kv_router_add_variables(ngx_conf_t *cf);


#endif /* _NGX_HTTP_KV_ROUTER_ROUTE_H_INCLUDED_ */
