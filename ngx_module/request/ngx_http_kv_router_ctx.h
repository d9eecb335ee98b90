
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A request's context: the state of its routing, from its body to its end.
 *
 * The context belongs to the request's pool and is found again by the pool's
 * cleanup, so that an internal redirect, which forgets module contexts, does
 * not lose it.
 */


#ifndef _NGX_HTTP_KV_ROUTER_CTX_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_CTX_H_INCLUDED_


#include "../module/ngx_http_kv_router_ffi.h"
#include "ngx_http_kv_router_body.h"
#include "ngx_http_kv_router_fleet.h"

#include <wire/kvr_answer.h>
#include <wire/kvr_tokens.h>


typedef struct ngx_http_kv_router_attempt_s  ngx_http_kv_router_attempt_t;


/*
 * Buffers of the request's pool, which are reused: while a request waits, its
 * candidates are listed 100 times a second, and a text has two prompts.
 */

typedef enum {
    NGX_HTTP_KV_ROUTER_BUFFER_BODY = 0,
    NGX_HTTP_KV_ROUTER_BUFFER_TAPE,
    NGX_HTTP_KV_ROUTER_BUFFER_QUESTION,
    NGX_HTTP_KV_ROUTER_BUFFER_HASHES,
    NGX_HTTP_KV_ROUTER_BUFFER_SHADOW,
    NGX_HTTP_KV_ROUTER_BUFFER_TEXT,
    NGX_HTTP_KV_ROUTER_BUFFER_ESTIMATES,
    NGX_HTTP_KV_ROUTER_BUFFER_CANDIDATES,
    NGX_HTTP_KV_ROUTER_BUFFER_WHERE,
    NGX_HTTP_KV_ROUTER_BUFFER_OUT,

    NGX_HTTP_KV_ROUTER_BUFFERS
} ngx_http_kv_router_buffer_e;

typedef struct {
    void                           *data;
    size_t                          size;
} ngx_http_kv_router_buffer_t;


typedef struct ngx_http_kv_router_ctx_s  ngx_http_kv_router_ctx_t;


/*
 * Ids from Lua that go on where block hashes are known already, see
 * ngx_http_kv_router_resume.c.
 */

typedef struct {
    uint64_t                       *hashes;
    size_t                          room;
    uint32_t                        blocks;        /* known */
    const uint32_t                 *tokens;        /* the ids behind them */

    /* called when the hashes of all blocks are known */
    void                          (*done)(ngx_http_kv_router_ctx_t *ctx);
    void                           *data;
} ngx_http_kv_router_known_t;


struct ngx_http_kv_router_ctx_s {
    ngx_http_request_t             *request;       /* this is the context of */
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_kv_router_fleet_t     *fleet;

    ngx_http_kv_router_buffer_t     buffers[NGX_HTTP_KV_ROUTER_BUFFERS];

    ngx_http_kv_router_body_t       body;
    ngx_http_kv_router_prompt_t     prompt;
    uint64_t                       *hashes;        /* prompt.blocks; NULL */
    uint32_t                        route;         /* of kvr_route.h */
    uint64_t                       *shadow;        /* hashes of the model's
                                                      ids, for the echo alone;
                                                      NULL */
    uint32_t                        shadow_blocks;
    uint64_t                       *text_hashes;   /* of the plain text, for
                                                      estimates; NULL */
    uint32_t                        text_blocks;
    uint64_t                        text_bytes;
    uint64_t                       *keys;          /* the hashes that are
                                                      looked up: the ids', or
                                                      the text's; NULL */
    uint32_t                        nkeys;
    uint32_t                        prompts;       /* of the body */
    ngx_str_t                       allowed;       /* ids; data NULL: all */
    uint32_t                        roles;         /* eligible roles */
    kvr_form_t                      form;
    ngx_str_t                       adapter;       /* named by the model */
    uint64_t                        seed;          /* of the hashes */
    ngx_str_t                       salt;          /* is in the seed */
    ngx_http_kv_router_known_t     *known;         /* NULL */
    kvr_prompt_cut_t                cut;           /* for tokens from Lua */
    ngx_uint_t                      reports;       /* see kvr_prompt_t */
    uint32_t                        sequences;     /* for the load: of all
                                                      prompts */
    size_t                          others;        /* for the load: tokens of
                                                      all prompts but the
                                                      first */

    ngx_http_kv_router_match_t      match;
    ngx_http_kv_router_candidate_t *candidates;    /* match.n, and unhealthy
                                                      ones, for retries */
    uint32_t                        ncandidates;   /* of both */

    uint64_t                       *chains;        /* of predictions */
    uint32_t                        nchains;
    uint32_t                        best;          /* without them */
    kvr_match_t                    *estimates;     /* of each candidate: what
                                                      was found, in blocks of
                                                      the keys */
    uint64_t                        routed_ms;     /* monotonic */
    uint64_t                        usage_tokens;  /* of the prompt, as the
                                                      engine says; 0: it does
                                                      not */

    kvr_reservation_t               reservation;
    kvr_reservation_t               prefill;       /* elsewhere */
    ngx_http_kv_router_candidate_t *chosen;
    ngx_http_kv_router_candidate_t *prefiller;     /* the last one; NULL */
    uint32_t                       *ranked;        /* for retries */
    uint32_t                        nranked;
    uint32_t                        rank;          /* sent to the engine;
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
    uint32_t                        rung;          /* where the token ids came
                                                      from */
    uint32_t                        rung_why;      /* why from nothing better;
                                                      0: nothing is */
    double                          us;            /* spent deciding */
    double                          began_us;      /* when the body had come */
    double                          waits_us;      /* since when it waits for
                                                      room; 0: it does not */
    double                          prefill_us;    /* since when it prefills
                                                      elsewhere */
    double                          decided_us;    /* when */
    double                          first_byte_us; /* when; 0: not yet */

    ngx_uint_t                      output_tokens; /* of a streamed answer */

    kvr_answer_t                    answer;        /* the search in it */
    int64_t                         cached_tokens; /* as the engine reported;
                                                      -1: not reported */
    uint64_t                        decision;      /* number of the record; 0:
                                                      none */

    unsigned                        taken:1;       /* an attempt is on */
    unsigned                        prefilling:1;  /* one to prefill */
    unsigned                        again:1;       /* at the same worker */
    unsigned                        rank_sent:1;   /* this zone or another set
                                                      a rank in the request */
    unsigned                        line_end:1;    /* the last byte of it */
    unsigned                        prompted:1;    /* prompt, allowed and roles
                                                      are set */
    unsigned                        matched:1;     /* match and candidates
                                                      belong to prompt */
    unsigned                        dry:1;         /* nothing is counted */
    unsigned                        guess:1;       /* form is as the body
                                                      looks */
    unsigned                        usage_done:1;
    unsigned                        encoded:1;     /* the answer has a
                                                      Content-Encoding */
    unsigned                        reserved:1;    /* a decision was made */
    unsigned                        believed:1;    /* the model's ids are */
    unsigned                        text:1;        /* the keys are those of the
                                                      text */
    unsigned                        begun:1;       /* the estimate knows of the
                                                      prompt */
};


/* now, in microseconds; monotonic */
double ngx_http_kv_router_now_us(void);


/* the request's context, or that of the one it was redirected from; NULL */
ngx_http_kv_router_ctx_t *ngx_http_kv_router_get_ctx(ngx_http_request_t *r);


/* the same, made when there is none; NULL when out of memory */
ngx_http_kv_router_ctx_t *ngx_http_kv_router_make_ctx(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone);

/*
 * A buffer of at least size bytes; its former content is lost.  NULL: out of
 * memory.
 */
void *ngx_http_kv_router_buffer(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_buffer_e which, size_t size);


/* called for each context that ends, before its fleet is put back */
typedef void (*ngx_http_kv_router_release_pt)(ngx_http_kv_router_ctx_t *ctx);

void ngx_http_kv_router_ctx_init(ngx_http_kv_router_release_pt release);


#endif /* _NGX_HTTP_KV_ROUTER_CTX_H_INCLUDED_ */
