
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The functions that Lua calls by FFI; lua/resty/kv_router/ffi.lua declares
 * the same.  All of them are for the nginx worker that runs the request.  If
 * a comment names no phase, the function can be called in any.  They return
 *
 *     NGX_OK        0    done
 *     NGX_ERROR    -1    an error; *err is a static sentence with the cause
 *     NGX_BUSY     -3    the zone's lock is taken; try again later
 *     NGX_DECLINED -5    not found; *err is a static sentence
 */


#ifndef _NGX_HTTP_KV_ROUTER_FFI_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_FFI_H_INCLUDED_


#include "ngx_http_kv_router_module.h"


/*
 * Must be increased with any change of the declarations below.  A reload
 * brings new Lua files but never a new module: the Lua library compares the
 * versions.
 */

#define NGX_HTTP_KV_ROUTER_FFI_VERSION   33

/* how candidates are listed: bits */
#define NGX_HTTP_KV_ROUTER_LOAD_ONLY     1  /* the prompt's hashes are dropped,
                                               overlaps are 0 */
#define NGX_HTTP_KV_ROUTER_UNBOUND       2  /* workers that are full are
                                               candidates, too */

/* the state of a request that waits; more: refused, by the reasons of
   ngx_http_kv_router_module.h */
#define NGX_HTTP_KV_ROUTER_QUEUE_WAITS    0
#define NGX_HTTP_KV_ROUTER_QUEUE_GOES     1
#define NGX_HTTP_KV_ROUTER_QUEUE_REFUSED  2

/* of eligible workers: a bit for each kvr_role_t */
#define NGX_HTTP_KV_ROUTER_ANY_ROLE      7


/*
 * Where the token ids of a prompt came from; also the index of the counter in
 * the status page.
 */

#define NGX_HTTP_KV_ROUTER_BY_LOAD       0  /* there are none */
#define NGX_HTTP_KV_ROUTER_BY_IDS        1  /* the body */
#define NGX_HTTP_KV_ROUTER_BY_RENDER     2  /* POST <path>/render */
#define NGX_HTTP_KV_ROUTER_BY_REMOTE     3  /* POST /tokenize */
#define NGX_HTTP_KV_ROUTER_BY_LOCAL      4  /* the zone's model */
#define NGX_HTTP_KV_ROUTER_BY_TEXT       5  /* none: the text itself, for
                                               workers without events */


/* May the ids of the zone's model be used for a request? */

#define NGX_HTTP_KV_ROUTER_TRUST_NONE      0  /* no: nothing would be proven */
#define NGX_HTTP_KV_ROUTER_TRUST_SHADOW    1  /* for the echo alone */
#define NGX_HTTP_KV_ROUTER_TRUST_BELIEVED  2


/*
 * A holder that the request may go to.  Numbers are doubles where Lua does
 * arithmetic with them.  Valid as long as the request.
 */

typedef struct {
    double      active_requests;    /* here and below: of peers, too */
    double      active_prefills;
    double      prefill_tokens;     /* not yet prefilled, all requests, as
                                       far as its speed lets tell */
    double      decode_blocks;
    double      additional_blocks;  /* this request would add */
    double      weight;             /* 1 is usual; times share */
    double      share;              /* by slow start: above 0, up to 1 */
    double      age;                /* s since the last message; -1: never */
    uint32_t    holder;
    uint32_t    generation;
    uint32_t    rank;
    uint32_t    device;             /* cumulative: device <= host <= disk */
    uint32_t    host;
    uint32_t    disk;
    uint32_t    predicted;          /* part of device that no event
                                       confirmed yet */
    uint32_t    role;               /* kvr_role_t */
    uint32_t    confidence;         /* kvr_confidence_t */
    uint32_t    max_active;         /* 0: no bound */
    uint32_t    max_prefill_tokens; /* 0: no bound */
    uint32_t    tokens_in_flight;   /* uncached prompt tokens of all requests
                                       before their first output */
    uint32_t    health;             /* kvr_health_state_t */
    uint32_t    engine;             /* kvr_engine_kind_t */
    uint32_t    worker_len;
    uint32_t    address_len;
    uint32_t    model_len;
    uint32_t    lora_len;           /* 0: not known */
    const char *worker;             /* id */
    const char *address;            /* "host:port" or "unix:/path" */
    const char *model;
    const char *lora;               /* adapters loaded, joined by commas */
    const char *reason;             /* of the confidence, a word; static */
    const char *engine_name;
    double      reported_waiting;   /* by the engine itself; -1: not known */
    double      reported_running;
    double      reported_usage;     /* 0..1, of its KV cache */
    double      churn;              /* blocks stored on the device lately */
    double      in_flight;          /* blocks of the prompt that the worker
                                       works on for requests of this process,
                                       or was sent by another process lately */
    double      prefill_tps;        /* tokens prefilled per second; 0: not
                                       known */
} ngx_http_kv_router_candidate_t;


typedef struct {
    uint32_t    prompt_tokens;
    uint32_t    prompt_blocks;
    uint32_t    block_size;
    uint32_t    n;                  /* candidates */
    uint32_t    best;               /* largest device overlap of any */
    uint32_t    why;                /* NGX_HTTP_KV_ROUTER_…: 0 when matched */
    uint32_t    cut;                /* 1: holders may have more, see
                                       kvr_match_t */
    uint32_t    nfrequencies;
    uint32_t    full_roles;         /* 1 << kvr_role_t each: there are such
                                       workers, and none has room; 0 if roles
                                       were asked for without prefill */
    uint32_t   *frequencies;        /* of the matched blocks, before this
                                       lookup; NULL: none are counted */
    const ngx_http_kv_router_candidate_t  *candidates;
    const uint64_t                        *hashes;  /* local, prompt_blocks;
                                                       NULL: none, though a
                                                       text has blocks */
    const uint8_t                         *foreign; /* by holder, 1: another
                                                       router's home worker;
                                                       NULL: no homes */
} ngx_http_kv_router_match_t;


/* Names given for a request beside its body.  With NULL a length is 0. */
typedef struct {
    const unsigned char *lora;      /* a namespace of hashes; NULL: the
                                       adapter that the body names */
    size_t               lora_len;
    const unsigned char *salt;      /* another namespace; NULL: the
                                       "cache_salt" of the body */
    size_t               salt_len;
    const unsigned char *model;     /* only workers of this model, or of none,
                                       are eligible; NULL: the "model" of the
                                       body, or of the one searched before */
    size_t               model_len;
    const unsigned char *allowed;   /* only workers of these ids, joined by
                                       commas or blanks; NULL: all */
    size_t               allowed_len;
    uint32_t             roles;     /* eligible ones: 1 << kvr_role_t each */
    uint32_t             asked;     /* 1: the body is that of another request:
                                       its path is the argument "path", or
                                       what its fields look like */
} ngx_http_kv_router_names_t;


/* The prompt of a request, as it was found. */
typedef struct {
    uint32_t    tokens;
    uint32_t    blocks;             /* number of blocks hashed */
    uint32_t    why;                /* NGX_HTTP_KV_ROUTER_…: 0 when hashed */
    uint32_t    form;               /* kvr_form_t */
    uint32_t    text;               /* 1: there is text to be tokenized */
    uint32_t    unserved;           /* 1: no worker serves the model */
    uint32_t    model_len;
    uint32_t    lora_len;
    const char *model;              /* of eligible workers, the request's
                                       memory; NULL: any */
    const char *lora;               /* the adapter, the request's memory;
                                       NULL: none */
} ngx_http_kv_router_prompt_t;


/* A form of requests: its row in kvr_forms.h, as far as Lua needs it. */
typedef struct {
    const char *word;
    uint32_t    render;             /* the rung of each way to ask, a bit; */
    uint32_t    remote;             /* 0: there is none */
    uint32_t    tokenized;          /* 1: its requests can have texts, */
    uint32_t    plain;              /* 1: which are no messages */
} ngx_http_kv_router_form_t;


/* The choice of a policy; a field that is NULL is not known. */
typedef struct {
    const unsigned char *policy;    /* name of the policy */
    size_t               policy_len;
    const unsigned char *reason;    /* the policy's own word */
    size_t               reason_len;
    const uint32_t      *order;     /* numbers of candidates, from 0: the
                                       choice, then those for retries */
    size_t               norder;
    const uint32_t      *prefill;   /* candidates that compute the prompt */
    size_t               nprefill;
    const double        *costs;     /* one for each candidate */
    double               us;        /* microseconds spent deciding */
    uint32_t             why;       /* NGX_HTTP_KV_ROUTER_... */
} ngx_http_kv_router_choice_t;


/* NGX_HTTP_KV_ROUTER_FFI_VERSION of the module that is loaded. */
uint32_t ngx_http_kv_router_ffi_version(void);

/* The zone of that name; NULL when the configuration has none. */
void *ngx_http_kv_router_ffi_zone(const u_char *name, size_t len);

/* The clock that ages and times are of: microseconds, monotonic. */
double ngx_http_kv_router_ffi_now_us(void);


/* ---- the request path --------------------------------------------------- */

/*
 * access: reads a body without a length of HTTP/2 or newer into memory or a
 * file, as nginx does for its proxies: newer Lua modules refuse such a body.
 * NGX_DECLINED: the body is of another kind, and ngx.req.read_body() must read
 * it, which takes 2 microseconds less.  NGX_DONE: the same, and the body may
 * be a long one.  NGX_OK: the body is there.  NGX_AGAIN (-2): it is still to
 * come, and the next function must be called at once.  A number from 300 on:
 * the status that the request must be ended with.  If the client leaves while
 * the body is read, nginx ends the request.
 */
int ngx_http_kv_router_ffi_read_body(ngx_http_request_t *r);

typedef int (*ngx_http_kv_router_sem_post_pt)(void *semaphore, int n);
typedef void (*ngx_http_kv_router_sem_free_pt)(void *semaphore);

/*
 * access, after NGX_AGAIN: when the body is there, post(semaphore, 1) is
 * called.  The semaphore belongs to the request from now on: free(semaphore)
 * is called at its end.  NGX_ERROR: out of memory.
 */
int ngx_http_kv_router_ffi_wake(ngx_http_request_t *r, void *semaphore,
    ngx_http_kv_router_sem_post_pt post, ngx_http_kv_router_sem_free_pt free);

/*
 * access, after the body was read: is it a long one, of 64 KB or more?  Each
 * step of its request has a turn of the event loop of its own.
 */
int ngx_http_kv_router_ffi_body_long(ngx_http_request_t *r);

/*
 * The request holds something, which Lua knows by that number, not 0, until
 * ngx_http_kv_router_ffi_hold_given().  If the request ends before, its number
 * is returned by ngx_http_kv_router_ffi_hold_ended(), once (0: there is none),
 * and post(semaphore, 1) is called if hold_wakes() has set a semaphore.  NULL:
 * out of memory.
 */
void *ngx_http_kv_router_ffi_hold(ngx_http_request_t *r, uint32_t number,
    ngx_http_kv_router_sem_post_pt post);
void ngx_http_kv_router_ffi_hold_wakes(void *hold, void *semaphore);
void ngx_http_kv_router_ffi_hold_given(void *hold);
uint32_t ngx_http_kv_router_ffi_hold_ended(void);

/*
 * after ngx_http_kv_router_ffi_prompt(): a field of the JSON object that the
 * body is, by its name, terminated: the text of its value, in the request's
 * memory, until the body is changed.  Of a name that comes twice the last
 * field.  NGX_DECLINED: there is no such field, no object, or no prompt was
 * looked for.
 */
int ngx_http_kv_router_ffi_field(ngx_http_request_t *r, const char *name,
    const char **data, size_t *len);

/*
 * The same for all fields, in the order of the body: the one behind *at, which
 * is 0 at first.  Names are as they are written, escapes included.
 * NGX_DECLINED: there are no more.
 */
int ngx_http_kv_router_ffi_next_field(ngx_http_request_t *r, uint32_t *at,
    const char **name, size_t *name_len, const char **data, size_t *len);

/*
 * access, after the body was read: finds the prompt's token ids, hashes their
 * blocks, and keeps the hashes with the request, and all that makes a worker
 * eligible, for ngx_http_kv_router_ffi_candidates().  Once a request; for a
 * text twice: its ids are there when it has been tokenized.
 *
 * tokens: ntokens ids in native order, of a body that was searched before, cut
 * here if the body says so; NULL: the body is searched for ids, a model, an
 * adapter and a salt.  All arguments are copied.  A body is searched in one
 * pass.
 *
 * NGX_OK: out->why is 0, or the reason why no prompt was found.  NGX_ERROR:
 * out of memory; candidates can be listed, without overlap.
 */
int ngx_http_kv_router_ffi_prompt(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_names_t *names, const uint32_t *tokens,
    size_t ntokens, ngx_http_kv_router_prompt_t *out, char **err);

/*
 * access, after the above: where its token ids came from (…_BY_LOAD, …), and
 * why not from anything better: NGX_HTTP_KV_ROUTER_…, 0: nothing is better.
 * By itself a body with ids is …_BY_IDS, and anything else …_BY_LOAD.
 */
void ngx_http_kv_router_ffi_tokens_by(ngx_http_request_t *r, void *zone,
    uint32_t rung, uint32_t why);

/*
 * access, after candidates were listed: may the ids of the zone's model be
 * used for this request?  NGX_HTTP_KV_ROUTER_TRUST_...
 */
uint32_t ngx_http_kv_router_ffi_trust(ngx_http_request_t *r, void *zone,
    uint32_t always);

/*
 * access, after the above: ids of the zone's model, in native order, of which
 * the echo alone is kept.  NGX_ERROR: no memory; the request goes on without
 * its echo.
 */
int ngx_http_kv_router_ffi_shadow(ngx_http_request_t *r, void *zone,
    const uint32_t *tokens, size_t ntokens);

/*
 * access, after the above: the body of a question to an engine for the token
 * ids of the request's text.  ask: kvr_ask_t; engine: kvr_engine_kind_t, 0:
 * unknown.  *path is static; *body belongs to the request, is not terminated,
 * and is good until the next call for this request.
 *
 * NGX_DECLINED: there is nothing to ask in this way; if *field is not NULL, it
 * names the field of the body which is the reason.  NGX_ERROR: no memory, or
 * no body.
 */
int ngx_http_kv_router_ffi_question_body(ngx_http_request_t *r, void *zone,
    uint32_t ask, uint32_t engine, const char **path, const char **body,
    size_t *len, const char **field, char **err);

/*
 * The token ids in an engine's answer.  *ids is this process's, good until the
 * next call of any of these functions.  NGX_ERROR: there are none, or more
 * than max_tokens.
 */
int ngx_http_kv_router_ffi_answer_ids(void *zone, const char *text, size_t len,
    const uint32_t **ids, size_t *n, char **err);

/*
 * access, after the above: lists the candidates, that is, the workers that the
 * request may go to now, with the overlap and the load of each.  Can be called
 * again and again.  *out belongs to the request; the next call changes it.
 *
 * how: NGX_HTTP_KV_ROUTER_LOAD_ONLY, NGX_HTTP_KV_ROUTER_UNBOUND.
 *
 * NGX_OK: at least one candidate; if no worker is eligible, all workers that
 * do not drain are candidates.  NGX_DECLINED: no worker at all.  NGX_BUSY: all
 * eligible workers are full.  NGX_ERROR: out of memory.
 */
int ngx_http_kv_router_ffi_candidates(ngx_http_request_t *r, void *zone,
    int how, const ngx_http_kv_router_match_t **out, char **err);

/*
 * init or later: the classes and tenants of a zone.  The first class is that
 * of requests whose class there is not.  They are copied; the first call in a
 * process counts.  Names: see kvr_rules.h; of classes up to 31 bytes.
 * NGX_DECLINED: the zone has no queue, or these are too many.
 */
typedef struct {
    const unsigned char *text;          /* the name */
    size_t               text_len;
    double               weight;
    double               most;          /* of a class */
    uint32_t             max_active;    /* of a tenant; 0: no bound */
} ngx_http_kv_router_rule_t;

int ngx_http_kv_router_ffi_queue_rules(void *zone,
    const ngx_http_kv_router_rule_t *classes, uint32_t nclasses,
    const ngx_http_kv_router_rule_t *tenants, uint32_t ntenants);

/*
 * access, after ngx_http_kv_router_ffi_prompt(): the request's class, by its
 * number in the rules, its tenant, the max_tokens of its body (0: none), and
 * for how many seconds it may wait.  NGX_DECLINED: the zone has no queue, so
 * the functions below must not be called.
 */
int ngx_http_kv_router_ffi_queue_begin(ngx_http_request_t *r, void *zone,
    uint32_t class, const unsigned char *tenant, size_t len,
    double max_tokens, double wait);

/*
 * access: the request waits for room.  Returns NGX_HTTP_KV_ROUTER_QUEUE_…; if
 * it waits, post(semaphore, 1) is called when it may have to wait no longer,
 * and then poll() says the same.  The semaphore must be there as long as the
 * request waits.  If the client leaves, nginx ends the request.  When it goes,
 * candidates must be listed again.
 */
int ngx_http_kv_router_ffi_queue_line(ngx_http_request_t *r, void *zone,
    void *semaphore, ngx_http_kv_router_sem_post_pt post);
int ngx_http_kv_router_ffi_queue_poll(ngx_http_request_t *r, void *zone);

/* access: a request that waits gives up; why it is refused, as poll() */
int ngx_http_kv_router_ffi_queue_leave(ngx_http_request_t *r, void *zone);

/* access: the seconds that the request was expected to wait; 0: not known */
double ngx_http_kv_router_ffi_queue_expected(ngx_http_request_t *r);

/*
 * access: the decision.  Reserves the load at the candidate order[0] of the
 * request's last match and sets the variables.  Retries follow the rest of
 * order; when it is used up they go by overlap and load.  prefill and costs
 * are not read; all else is copied.  A second call moves the reservation.
 * If the candidate has become full or unusable, the next one gets the request.
 * NGX_BUSY: all candidates are full, and nothing is reserved.
 */
int ngx_http_kv_router_ffi_reserve(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_choice_t *choice, char **err);

/*
 * access, after the above: candidates[i] prefills for the reserved candidate.
 * The load of the prompt moves to candidates[i] until the first body byte of
 * the answer, the end of the request, or a call of the next function.
 * NGX_DECLINED: candidates[i] is unusable or full, and must not be asked.
 */
int ngx_http_kv_router_ffi_prefill(ngx_http_request_t *r, void *zone,
    uint32_t i, char **err);

/*
 * access, after the above: the prefill ended.  The load of the prompt is
 * released, and the prefiller's health is updated.  how: a kvr_failure_t,
 * KVR_FAILURES for success, or a greater number for an unknown end.  Without
 * this call the first body byte of the request's answer counts as success, and
 * the end of the request as an unknown end.
 */
int ngx_http_kv_router_ffi_prefill_ended(ngx_http_request_t *r, void *zone,
    uint32_t how, char **err);

/*
 * access, after the above: the reserved candidate prefills itself, and has the
 * load of the prompt again.  Does nothing after the first body byte.
 */
int ngx_http_kv_router_ffi_prefill_failed(ngx_http_request_t *r, void *zone,
    char **err);

/*
 * access, after a reservation: the rank of candidates[i], or, if i is match.n
 * or more, of the reserved candidate.  NGX_DECLINED: the worker has only one
 * rank, or there is no reservation.
 */
int ngx_http_kv_router_ffi_rank(ngx_http_request_t *r, void *zone,
    uint32_t i, uint32_t *rank);

/*
 * access, before the prompt: the request will only be explained.  The request
 * is not counted, and nothing can be reserved.
 */
int ngx_http_kv_router_ffi_dry(ngx_http_request_t *r, void *zone, char **err);

/*
 * access, before the prompt: what is reserved for the request outlives the
 * request: the handler of POST /select makes a selection of it.  NGX_DECLINED:
 * the location is read_only, and its handler says so.  NGX_ERROR: no memory.
 */
int ngx_http_kv_router_ffi_selects(ngx_http_request_t *r, void *zone);

/*
 * The request's last match and the choice (without its us), as JSON.  *out is
 * malloc()ed, to be freed by ngx_http_kv_router_ffi_free().
 */
int ngx_http_kv_router_ffi_explain(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_choice_t *choice, char **out, size_t *len,
    char **err);

/* A request was refused, NGX_HTTP_KV_ROUTER_…: counted. */
void ngx_http_kv_router_ffi_refused(void *zone, uint32_t why);

/* NGX_OK when r, or the request that it was redirected from, has one. */
int ngx_http_kv_router_ffi_reserved(ngx_http_request_t *r, void *zone);

/*
 * balancer: the peer of the reservation for the first try.  For each later try
 * the next candidate whose worker was not tried, to which the load moves.  If
 * the request names a rank, candidates of the same rank come first.
 * The strings belong to the request.  *left: how many further candidates there
 * are.  NGX_DECLINED: no more, or no reservation.
 */
int ngx_http_kv_router_ffi_peer(ngx_http_request_t *r, void *zone,
    const char **host, size_t *host_len, uint32_t *port, uint32_t *left,
    char **err);

/* log: the worker that served, tries, and whether a first byte came. */
typedef struct {
    uint32_t    holder;
    uint32_t    rank;
    uint32_t    tries;
    uint32_t    status;
    double      first_byte_us;      /* since the decision; -1: none came */
    double      total_us;
    uint32_t    worker_len;
    const char *worker;
} ngx_http_kv_router_outcome_t;

int ngx_http_kv_router_ffi_outcome(ngx_http_request_t *r, void *zone,
    ngx_http_kv_router_outcome_t *out);


/* ---- engines ------------------------------------------------------------ */

/* How the engines of a zone are talked to; strings belong to the zone. */
typedef struct {
    const char *headers;            /* lines, each with its CRLF */
    size_t      headers_len;
    const char *name;               /* in their certificates */
    size_t      name_len;
    uint32_t    tls;                /* 1: by TLS */
    uint32_t    verify;             /* 1: certificates are verified */
} ngx_http_kv_router_engine_t;

void ngx_http_kv_router_ffi_engine(void *zone,
    ngx_http_kv_router_engine_t *out);

/* The integer of a parameter of kv_router_zone; -1: no such parameter. */
double ngx_http_kv_router_ffi_parameter(void *zone, const char *name);

/*
 * init, init_worker, or any: from now on the engines of the zone of that name
 * are probed.  automatic: 1: the router asks whatever they have.  Before the
 * processes are made the name is kept for them; 64 names at most.
 */
/*
 * 1: the configuration that is being read, or was the last one, has a zone of
 * that name.  2: the zone has kv_router_redis, too.  0: there is no such zone,
 * and those that there are are in names, joined by commas, as far as they fit
 * in size bytes.  For init_by_lua.
 */
int ngx_http_kv_router_ffi_defined(const u_char *name, size_t len,
    char *names, size_t size);
void ngx_http_kv_router_ffi_probe(const u_char *name, size_t len,
    int automatic);

/*
 * init, init_worker, or any: the policy of a router of the zone of that name,
 * and the policy's settings ("a=1 b=2"), for the status.  Of several routers
 * of a zone the last one is shown.
 */
void ngx_http_kv_router_ffi_policy(const u_char *name, size_t len,
    const u_char *policy, size_t policy_len, const u_char *conf,
    size_t conf_len);

/*
 * any phase: a warning that Lua has logged, of a level of nginx: for the
 * status of the zone if it begins with 'zone "NAME": ', else of all zones.
 */
void ngx_http_kv_router_ffi_told(uint32_t level, const u_char *text,
    size_t len);

/*
 * init: why a router of the zone of that name can't be made, for the status of
 * the processes that go on as before.  At a start, and where the zone is new,
 * it does nothing.
 */
void ngx_http_kv_router_ffi_not_made(const u_char *name, size_t len,
    const u_char *why, size_t why_len);

/* Counts the microseconds in which token ids of a text were made. */
void ngx_http_kv_router_ffi_tokenized(void *zone, double us);

/* access: the request begins to wait for room; again: does nothing. */
void ngx_http_kv_router_ffi_waits(ngx_http_request_t *r, void *zone);

/* access: the request waits no longer; without a wait: does nothing. */
void ngx_http_kv_router_ffi_waited(ngx_http_request_t *r, void *zone);

void ngx_http_kv_router_ffi_form(uint32_t form,
    ngx_http_kv_router_form_t *out);

/* The bits KVR_RUNG_… of a candidate's worker; 0: it was not probed yet. */
uint32_t ngx_http_kv_router_ffi_rungs(void *zone, uint32_t holder,
    uint32_t generation);

/* An engine refused a question: the worker is probed again soon. */
void ngx_http_kv_router_ffi_doubt(void *zone, uint32_t holder);

/*
 * The id of a counter by its object and key in JSON, "questions.asked", or
 * NGX_HTTP_KV_ROUTER_COUNTERS; and adds 1 to the counter.
 */
uint32_t ngx_http_kv_router_ffi_counter(const char *name);
void ngx_http_kv_router_ffi_count(void *zone, uint32_t id);

/* XXH3-128 of a text, with a seed of this process. */
void ngx_http_kv_router_ffi_digest(const u_char *text, size_t len,
    uint64_t *out);


/* ---- policies ----------------------------------------------------------- */

/* Counts a pick() that took over the limit in resty/kv_router/policy.lua. */
void ngx_http_kv_router_ffi_policy_slow(void *zone);


/* ---- the index ---------------------------------------------------------- */

/* One holder's match, with its worker's id. */
typedef struct {
    uint32_t    rank;
    uint32_t    device;
    uint32_t    host;
    uint32_t    disk;
    uint32_t    cut;                   /* 1: the holder may have more, see
                                          kvr_match_t */
    uint32_t    worker_len;
    char        worker[KVR_WORKER_ID_MAX + 1];
} ngx_http_kv_router_found_t;

/* Bounds for buffers: block_size, max_holders of the zone. */
uint32_t ngx_http_kv_router_ffi_block_size(void *zone);
uint32_t ngx_http_kv_router_ffi_max_holders(void *zone);

/* The maximum number of frequencies of a lookup; 0: the zone has none. */
uint32_t ngx_http_kv_router_ffi_max_frequencies(void *zone);

/*
 * Local and sequence hashes of the complete blocks, ntokens / block_size of
 * them at most; either out may be NULL.  Returns the number of blocks.
 */
size_t ngx_http_kv_router_ffi_hash(void *zone, const uint32_t *tokens,
    size_t ntokens, const u_char *lora, size_t lora_len, const u_char *salt,
    size_t salt_len, uint64_t *local, uint64_t *sequence);

/*
 * Writes at most cap matches; returns their number.  tokens: the prompt's
 * length; 0: not known, see kvr_router_find().  The lookup is counted in
 * the frequencies of a zone that has them: frequencies must hold n or
 * ngx_http_kv_router_ffi_max_frequencies() numbers, the smaller of the two;
 * *nfrequencies is set to the number written.
 */
size_t ngx_http_kv_router_ffi_find(void *zone, const uint64_t *local, size_t n,
    size_t tokens, int early_exit, ngx_http_kv_router_found_t *out, size_t cap,
    uint32_t *frequencies, uint32_t *nfrequencies);

/* tier: 0..3 as kvr_tier_t; parent may be NULL. */
int ngx_http_kv_router_ffi_store(void *zone, const u_char *worker,
    size_t worker_len, uint32_t rank, uint32_t tier, const uint64_t *parent,
    const uint64_t *handles, const uint64_t *locals, size_t n, char **err);
int ngx_http_kv_router_ffi_remove(void *zone, const u_char *worker,
    size_t worker_len, uint32_t rank, uint32_t tier, const uint64_t *handles,
    size_t n, uint32_t *unknown, char **err);
int ngx_http_kv_router_ffi_clear(void *zone, const u_char *worker,
    size_t worker_len, uint32_t rank, char **err);
int ngx_http_kv_router_ffi_remove_worker(void *zone, const u_char *worker,
    size_t worker_len, char **err);

/*
 * JSON and dumps.  what: "stats", "workers" or "dump".  *out is malloc()ed,
 * to be freed by ngx_http_kv_router_ffi_free().
 */
int ngx_http_kv_router_ffi_text(void *zone, const char *what, char **out,
    size_t *len, char **err);
void ngx_http_kv_router_ffi_free(char *text);


#endif /* _NGX_HTTP_KV_ROUTER_FFI_H_INCLUDED_ */
