
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
#include "ngx_http_kv_router_queue.h"

#include <wire/kvr_answer.h>
#include <wire/kvr_output.h>
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
    NGX_HTTP_KV_ROUTER_BUFFER_CHAINS,
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


/* The flight of a request, which ends it; of the request's pool. */

typedef struct {
    ngx_queue_t                     queue;         /* zone->run.flights */
    ngx_msec_t                      renew;         /* when it is due */
    uint32_t                        id;            /* for peers */
    kvr_flight_t                    flight;
} ngx_http_kv_router_flight_t;


/* Hashes of blocks: hash is NULL and n is 0 where there are none. */

typedef struct {
    uint64_t                       *hash;
    uint32_t                        n;
} ngx_http_kv_router_hashes_t;


/*
 * The parts are in the order in which a request passes through them.  Each is
 * written by the file of its name, or by those which its comment names, and is
 * read by all behind it.
 */

struct ngx_http_kv_router_ctx_s {
    ngx_http_request_t             *request;       /* this is the context of */
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_kv_router_fleet_t     *fleet;
    ngx_event_t                     prefill_end;   /* by load.c, when nothing
                                                      else tells of it */
    ngx_uint_t                      rank_sent;     /* this zone or another set
                                                      a rank in the request */
    ngx_uint_t                      selects;       /* by POST /select: somebody
                                                      else sends the request */

    ngx_http_kv_router_buffer_t     buffers[NGX_HTTP_KV_ROUTER_BUFFERS];

    /* reset by each scan of another body */

    ngx_http_kv_router_body_t       body;

    /*
     * Reset when the body is searched: token ids from Lua come for the prompt
     * that was found.
     */

    struct {
        ngx_http_kv_router_prompt_t  view;         /* as Lua sees it */
        kvr_form_t                   form;
        ngx_str_t                    adapter;      /* named by the model */
        uint64_t                     seed;         /* of the hashes */
        ngx_str_t                    salt;         /* is in the seed */
        kvr_prompt_cut_t             cut;          /* for tokens from Lua */
        ngx_http_kv_router_known_t  *known;        /* by resume.c; NULL */
        ngx_str_t                    allowed;      /* ids; data NULL: all */
        uint32_t                     roles;        /* eligible roles */
        uint32_t                     prompts;      /* of the body */
        uint32_t                     sequences;    /* for the load: of all
                                                      prompts */
        size_t                       others;       /* for the load: tokens of
                                                      all prompts but the
                                                      first */
        size_t                       bytes;        /* for the load: of texts,
                                                      by load.c, for the body
                                                      as it came; 0: not yet */
        ngx_uint_t                   reports;      /* see kvr_prompt_t */

        unsigned                     stream:1;     /* the same */
        unsigned                     guess:1;      /* form is as the body
                                                      looks */
        unsigned                     prompted:1;   /* all of this is set */
    } prompt;

    /*
     * Also by trust.c (believed) and engines.c (rung).  Reset with the prompt.
     */

    struct {
        ngx_http_kv_router_hashes_t  ids;          /* of the prompt's blocks */
        ngx_http_kv_router_hashes_t  shadow;       /* of the model's ids, for
                                                      the echo alone */
        ngx_http_kv_router_hashes_t  text;         /* of the plain text, for
                                                      estimates */
        ngx_http_kv_router_hashes_t  lookup;       /* of these, the one that
                                                      is looked up */
        uint64_t                     text_bytes;
        uint32_t                     route;        /* of kvr_route.h */
        uint32_t                     rung;         /* where the token ids came
                                                      from */
        uint32_t                     rung_why;     /* why from nothing better;
                                                      0: nothing is */

        unsigned                     believed:1;   /* the model's ids are */
        unsigned                     of_text:1;    /* the lookup is of text */
    } keys;

    /*
     * Also by load.c (best) and flights.c (chains).  Reset by each list of
     * candidates, which a request that waits has 100 times a second.
     */

    struct {
        ngx_http_kv_router_match_t      match;     /* as Lua sees it */
        ngx_http_kv_router_candidate_t *candidates;  /* match.n, and unhealthy
                                                      ones, for retries */
        uint32_t                        ncandidates;  /* of both */
        kvr_match_t                    *estimates; /* of each candidate: what
                                                      was found, in blocks of
                                                      the lookup */
        uint64_t                       *chains;    /* of flights; NULL: not
                                                      made yet */
        uint32_t                        best;      /* without flights */

        unsigned                        matched:1; /* with the prompt */
    } found;

    /*
     * Also by prefill.c and decided.c.  Reset before each reservation, by
     * ngx_http_kv_router_ctx_reset().
     */

    struct {
        ngx_str_t                       policy;
        ngx_str_t                       reason;
        ngx_uint_t                      why;
        double                          us;        /* spent deciding */
        ngx_http_kv_router_candidate_t *chosen;
        ngx_http_kv_router_candidate_t *prefiller; /* the last one; NULL */
        uint32_t                       *ranked;    /* for retries */
        uint32_t                        nranked;
        kvr_reservation_t               reservation;
        kvr_reservation_t               prefill;   /* elsewhere */
        uint64_t                        decision;  /* number of the record; 0:
                                                      none */

        unsigned                        dry:1;     /* nothing is counted */
        unsigned                        reserved:1;  /* a decision was made */
    } choice;

    /* Also by attempt.c and prefill.c.  Reset with the choice. */

    struct {
        ngx_http_kv_router_attempt_t   *attempt;   /* the peer's; NULL */
        u_char                         *tried;     /* of each candidate */
        ngx_uint_t                      tries;
        ngx_uint_t                      stale;     /* connections it met */
        uint32_t                        rank;      /* sent to the engine;
                                                      UINT32_MAX: none */
        kvr_ticket_t                    ticket;    /* while taken */
        kvr_ticket_t                    prefill_ticket;

        unsigned                        taken:1;   /* an attempt is on */
        unsigned                        prefilling:1;  /* one to prefill */
        unsigned                        again:1;   /* at the same worker */
    } try;

    /* Also by estimate.c (begun).  Reset with the choice. */

    struct {
        kvr_answer_t                    search;    /* for the usage */
        kvr_output_t                    begin;     /* of a stream's output */
        ngx_uint_t                      output_tokens;  /* of a stream */
        int64_t                         cached_tokens;  /* as the engine
                                                      reported; -1: not
                                                      reported */
        uint64_t                        usage_tokens;  /* of the prompt, as the
                                                      engine says; 0: it does
                                                      not */

        unsigned                        failed:1;  /* by its status */
        unsigned                        output:1;  /* has begun */
        unsigned                        line_end:1;  /* the last byte of it */
        unsigned                        usage_done:1;
        unsigned                        encoded:1; /* with a
                                                      Content-Encoding */
        unsigned                        begun:1;   /* the estimate knows of the
                                                      prompt */
    } answer;

    /*
     * The queue.  By queue.c, but for unbound, which found.c writes.  Once a
     * request; begun is 0 where nobody may wait.
     */

    struct {
        uint32_t                        entry;     /* of kvr_admit.h, or
                                                      KVR_ADMIT_NONE */
        uint32_t                        class;     /* of the process's list */
        uint32_t                        output;    /* expected, in tokens */
        uint32_t                        expected_ms;  /* of a wait */
        uint64_t                        name;      /* hash of the tenant */
        ngx_str_t                       tenant;
        ngx_msec_t                      deadline;
        double                          waited_us;
        void                           *semaphore; /* while it waits */
        ngx_http_kv_router_sem_post_pt  post;
        unsigned                        begun:1;
        unsigned                        unbound:1; /* the list has workers that
                                                      are full, too */
    } queue;

    /* By all of them; monotonic, in microseconds.  0: not yet. */

    struct {
        double                          began_us;  /* when the body had come */
        double                          waits_us;  /* since when it waits for
                                                      room; 0: it does not */
        double                          decided_us;
        double                          prefill_us;  /* since when it prefills
                                                      elsewhere */
        double                          first_byte_us;
        uint64_t                        routed_ms; /* as ngx_current_msec */
        ngx_msec_t                      prefilled_ms;  /* the same: its end, at
                                                      the latest */
        ngx_msec_t                      look_ms;   /* between two looks */
    } times;
};


/* the holder which candidate c is */
static ngx_inline ngx_http_kv_router_holder_t *
ngx_http_kv_router_holder(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c)
{
    return &ctx->fleet->holders[ctx->fleet->by_holder[c->holder] - 1];
}


/* now, in microseconds; monotonic */
double ngx_http_kv_router_now_us(void);


/* the request's context, or that of the one it was redirected from; NULL */
ngx_http_kv_router_ctx_t *ngx_http_kv_router_get_ctx(ngx_http_request_t *r);


/* the same, made when there is none; NULL when out of memory */
ngx_http_kv_router_ctx_t *ngx_http_kv_router_make_ctx(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone);

/* has the worker of candidate i several ranks? */
ngx_uint_t ngx_http_kv_router_ranks(ngx_http_kv_router_ctx_t *ctx, uint32_t i);

/* before a decision: the choice, the try and the answer are of none */
void ngx_http_kv_router_ctx_reset(ngx_http_kv_router_ctx_t *ctx);

/*
 * A buffer of at least size bytes; its former content is lost.  NULL: out of
 * memory.
 */
void *ngx_http_kv_router_buffer(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_buffer_e which, size_t size);

/* copies into a string of the pool's */
ngx_int_t ngx_http_kv_router_copy_str(ngx_pool_t *pool, ngx_str_t *to,
    const u_char *data, size_t len);

/* control characters become spaces, so that the text is fit for a header */
void ngx_http_kv_router_plain(ngx_str_t *s);


/* called for each context that ends, before its fleet is put back */
typedef void (*ngx_http_kv_router_release_pt)(ngx_http_kv_router_ctx_t *ctx);

void ngx_http_kv_router_ctx_init(ngx_http_kv_router_release_pt release);


#endif /* _NGX_HTTP_KV_ROUTER_CTX_H_INCLUDED_ */
