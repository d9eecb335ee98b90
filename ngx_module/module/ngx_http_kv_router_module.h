
/*
 * Copyright (C) the nginx-kv-router authors
 */


#ifndef _NGX_HTTP_KV_ROUTER_MODULE_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_MODULE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <admission/kvr_admit.h>
#include <zone/kvr_router.h>
#include <follow/kvr_ingest.h>
#include <traffic/kvr_decisions.h>
#include <traffic/kvr_histogram.h>
#include <traffic/kvr_history.h>
#include <traffic/kvr_hot.h>
#include <traffic/kvr_tally.h>
#include <traffic/kvr_name.h>
#include <traffic/kvr_rungs.h>
#include <traffic/kvr_speed.h>
#include <traffic/kvr_told.h>
#include <wire/kvr_forms.h>

#include <yajl/yajl_gen.h>

#include "ngx_http_kv_router_counts.h"
#include "ngx_http_kv_router_tls.h"


typedef struct ngx_http_kv_router_consumer_s  ngx_http_kv_router_consumer_t;
typedef struct ngx_http_kv_router_rounds_s  ngx_http_kv_router_rounds_t;
typedef struct ngx_http_kv_router_named_s  ngx_http_kv_router_named_t;
typedef struct ngx_http_kv_router_estimator_s  ngx_http_kv_router_estimator_t;
typedef struct ngx_http_kv_router_model_s  ngx_http_kv_router_model_t;
typedef struct ngx_http_kv_router_turns_s  ngx_http_kv_router_turns_t;
typedef struct ngx_http_kv_router_sync_s  ngx_http_kv_router_sync_t;
typedef struct ngx_http_kv_router_queue_s  ngx_http_kv_router_queue_t;


/* the default of max_workers: so many for each MB of the zone, at most 1024 */
#define NGX_HTTP_KV_ROUTER_WORKERS_MB  32
#define NGX_HTTP_KV_ROUTER_WORKERS     1024

/* kinds of rounds, see probe/ngx_http_kv_router_rounds.h */
#define NGX_HTTP_KV_ROUTER_ROUNDS      4

/* max_body: a million ids have some 7 MB; and its maximum */
#define NGX_HTTP_KV_ROUTER_MAX_BODY    (8 * 1024 * 1024)
#define NGX_HTTP_KV_ROUTER_REFUSED_MAX  256     /* bytes of why, with NUL */
#define NGX_HTTP_KV_ROUTER_BODY_LIMIT  (1024 * 1024 * 1024)


/* one URL of kv_router_redis */

typedef struct {
    ngx_str_t                       url;       /* without the password */
    ngx_addr_t                     *addrs;     /* resolved at start */
    ngx_uint_t                      naddrs;
    ngx_str_t                       host;      /* terminated; without brackets;
                                                  "" of a unix socket */
    in_port_t                       port;
    ngx_str_t                       user;
    ngx_str_t                       password;
    ngx_str_t                       master;    /* the Sentinel's name of it;
                                                  "": no Sentinel */
    ngx_int_t                       db;        /* 0: no SELECT is sent */
    ngx_uint_t                      down;      /* of this process: a failure
                                                  was logged */
    ngx_uint_t                      unresolved; /* the same of its name */

    unsigned                        literal:1; /* the host is an address */
    unsigned                        ssl:1;
} ngx_http_kv_router_redis_server_t;


typedef struct {
    ngx_array_t                     servers;   /* …_redis_server_t */
    ngx_str_t                       channel;   /* "kv-events:*" */
    ngx_str_t                       prefix;    /* before the worker's id */
    ngx_flag_t                      replay;    /* repair from the log */

    ngx_http_kv_router_tls_t        tls;       /* of the servers with TLS */
} ngx_http_kv_router_redis_conf_t;


/* kv_router_health */

typedef struct {
    kvr_health_params_t             params;
    ngx_str_t                       check;     /* URI; len 0: no checks */
    ngx_msec_t                      interval;
    ngx_msec_t                      timeout;
    uint32_t                        passes;
    uint32_t                        fails;
    unsigned                        set:1;     /* the directive was there */
} ngx_http_kv_router_health_conf_t;


/* kv_router_sync */

typedef struct {
    ngx_flag_t                      on;        /* of no use without Redis */
    ngx_flag_t                      set;       /* the directive was there */
    ngx_str_t                       name;      /* of this router, terminated */
    ngx_msec_t                      timeout;   /* silence that ends a peer */
    ngx_str_t                       key;       /* a secret; len 0: none */
    ngx_flag_t                      bounds_own; /* 1: max_active is this
                                                  router's own */
} ngx_http_kv_router_sync_conf_t;

#define NGX_HTTP_KV_ROUTER_SYNC_TIMEOUT  3000

/* Does the zone share its load with other routers? */
#define ngx_http_kv_router_syncs(zone)                                        \
    ((zone)->conf.sync.on && (zone)->conf.redis)


/*
 * A zone as the directives say it.  Written by them, while the configuration
 * is read, and never after.
 */

typedef struct {
    ngx_str_t                       name;
    size_t                          size;      /* of its shared memory */
    kvr_params_t                    params;
    ngx_uint_t                      default_workers; /* 1: max_workers= was
                                                    not written */
    ngx_str_t                       file;      /* where the zone is written */
    ngx_uint_t                      line;
    ngx_shm_zone_t                 *shm_zone;
    ngx_http_core_loc_conf_t       *core;      /* of http: has the resolver */
    ngx_core_conf_t                *processes; /* has their number, when the
                                                  configuration is read */
    ngx_array_t                     workers;   /* kvr_worker_conf_t, static */
    ngx_array_t                     names;     /* the same, of resolve=all: no
                                                  id, "host:port" */

    ngx_http_kv_router_redis_conf_t *redis;    /* NULL: no events */
    ngx_http_kv_router_sync_conf_t  sync;

    ngx_msec_t                      stale;     /* silence that degrades */
    ngx_uint_t                      max_tokens;/* of a prompt */
    size_t                          max_body;  /* bytes that are scanned */
    ngx_uint_t                      max_active;/* requests; 0: no bound */
    uint32_t                        max_prefill_tokens; /* of a worker without
                                                  one of its own */
    struct {
        ngx_uint_t                  size;      /* requests that may wait; 0:
                                                  none does */
        ngx_uint_t                  observe;   /* 1: none waits, and counters
                                                  say which would have */
        ngx_uint_t                  quantum;   /* tokens, see kvr_order.h */
        uint64_t                    version;   /* of the configuration */
    } queue;

    ngx_uint_t                      refuses_models; /* 1: a request for a model
                                                  that no worker serves has the
                                                  answer 404, unless kv.new()
                                                  says otherwise */
    ngx_msec_t                      predict;   /* how long what was routed is
                                                  taken to be cached; 0: not */

    ngx_msec_t                      lease;     /* of what POST /select
                                                  reserves */

    ngx_http_kv_router_health_conf_t   health;

    struct {
        ngx_str_t                   uri;
        ngx_msec_t                  interval;  /* 0: no engine is asked */
        ngx_msec_t                  timeout;
    } scrape;

    ngx_msec_t                      report_ms; /* after which what an engine
                                                  reports is old; 0: at once */

    ngx_str_t                       engine_headers; /* lines, each with its
                                                       CRLF */
    ngx_http_kv_router_tls_t        engine_tls;

    ngx_http_kv_router_model_t     *model;     /* NULL: none */
    ngx_uint_t                      model_kept; /* taken over from another
                                                  configuration or zone */
    ngx_http_kv_router_turns_t     *turns;     /* NULL: no turn cache */
} ngx_http_kv_router_zone_conf_t;


/*
 * A process's own part of a zone.  The zone's init, in the master, writes
 * router and sh; kv.new() in Lua writes probe_auto and policy…; the rest
 * belongs to a worker process, from its init_process on.
 */

typedef struct {
    kvr_router_t                    router;    /* attached by the zone's init,
                                                  joined by each worker
                                                  process */

    /* lives in the zone, beside kvr's memory: all processes add to it */
    struct ngx_http_kv_router_shctx_s  *sh;

    struct ngx_http_kv_router_fleet_s  *fleet; /* a copy of the zone's */
    ngx_http_kv_router_consumer_t  *consumer;  /* or NULL, as those below */
    ngx_http_kv_router_rounds_t    *rounds[NGX_HTTP_KV_ROUTER_ROUNDS];
    ngx_http_kv_router_named_t     *named;     /* workers by resolve=all */
    ngx_http_kv_router_estimator_t *estimator;
    ngx_http_kv_router_sync_t      *sync;
    kvr_inflight_t                 *inflight;  /* NULL before the process's
                                                  first request */
    ngx_queue_t                     flights;   /* of open requests */
    kvr_echoes_t                   *echoes;    /* NULL, as inflight */
    ngx_http_kv_router_queue_t     *queue;     /* NULL: nobody may wait */

    ngx_uint_t                      probe_auto;    /* 1: a router asks whatever
                                                  there is */
    ngx_str_t                       policy;    /* of the last router that
                                                  was made for the zone */
    ngx_str_t                       policy_conf;   /* "a=1 b=2" */
    time_t                          policy_loaded;

    double                          speed;     /* the fleet's median, tokens
                                                  per second; 0: not known */
    ngx_msec_t                      speeds_at; /* when it was found */
    ngx_event_t                     tend;
    ngx_connection_t                tend_conn; /* dummy for the timer's log */
} ngx_http_kv_router_zone_run_t;


/* A zone as one process knows it, made by kv_router_zone. */

typedef struct {
    ngx_http_kv_router_zone_conf_t  conf;
    ngx_http_kv_router_zone_run_t   run;
} ngx_http_kv_router_zone_t;


/*
 * The reasons of a routing decision, if the policy gave none: the list, of
 * which all names of them are; also the index of the counter in the status
 * page.
 *
 * NO_TOKENS: no token ids in the body.  NO_PROMPT: no body at all, or a path
 * whose requests have no prompt that is looked for.  BAD_BODY: not JSON, with
 * a Content-Encoding, or with bad token ids.  TOO_LONG: over
 * max_body or max_tokens.  SHORT: less than one block.
 * UNKNOWN_FORM: a path that is not known, or a field of the body for which
 * cached blocks can't be told. NO_LOAD: a path that infers nothing, or a GET.
 * TOKENIZER: no token ids of the text: what was asked has failed, was too slow
 * or too busy, or refused it. NO_RUNG: no engine can be asked.  UNPROVEN: the
 * engines' echoes have not proven the model's ids.  UNKNOWN_MODEL: nobody
 * serves it: refused. NO_ELIGIBLE: no worker is eligible, and all not draining
 * were candidates. OVERLOAD: all workers full: refused.  RETRY: the next best
 * after a failure.
 */
#define NGX_HTTP_KV_ROUTER_WHY_LIST(X)                                        \
    X(BY_POLICY, "policy")                                                    \
    X(NO_TOKENS, "no_tokens")                                                 \
    X(NO_PROMPT, "no_prompt")                                                 \
    X(BAD_BODY, "bad_body")                                                   \
    X(TOO_LONG, "too_long")                                                   \
    X(SHORT, "short")                                                         \
    X(UNKNOWN_FORM, "unknown_form")                                           \
    X(NO_LOAD, "no_load")                                                     \
    X(TOKENIZER, "tokenizer")                                                 \
    X(NO_RUNG, "no_rung")                                                     \
    X(UNPROVEN, "unproven")                                                   \
    X(UNKNOWN_MODEL, "unknown_model")                                         \
    X(POLICY_ERROR, "policy_error")                                           \
    X(NO_WORKER, "no_worker")                                                 \
    X(NO_ELIGIBLE, "no_eligible")                                             \
    X(OVERLOAD, "overload")                                                   \
    X(RETRY, "retry")

#define NGX_HTTP_KV_ROUTER_WHY_ID(id, name)    NGX_HTTP_KV_ROUTER_##id,
#define NGX_HTTP_KV_ROUTER_WHY_NAME(id, name)  name,

enum {
    NGX_HTTP_KV_ROUTER_WHY_LIST(NGX_HTTP_KV_ROUTER_WHY_ID)
    NGX_HTTP_KV_ROUTER_REASONS
};


/*
 * Data that nginx's processes share beside the kvr zone.  Each counter is only
 * changed by ngx_atomic_fetch_add(), and can be read at any time.
 */

#define NGX_HTTP_KV_ROUTER_RUNGS    6

/* a worker that is asked for its load, by whichever process comes first */

typedef struct {
    kvr_due_t                       due;
    uint32_t                        failing;
    uint32_t                        told;      /* the generation + 1 of which
                                                  the log said that it is
                                                  estimated */
    uint32_t                        twin;          /* the same: that another
                                                  worker has its address */
    uint32_t                        pad;
} ngx_http_kv_router_turn_t;

/*
 * Rings: what processes tell of the prompts that they routed to workers
 * without events.  A ring has one writer, its owner: a kvr_owner_t, 0: none.
 */

#define NGX_HTTP_KV_ROUTER_RINGS  128

typedef struct {
    ngx_uint_t                      n;
    size_t                          size;          /* of a ring */
    uint64_t                        owners[NGX_HTTP_KV_ROUTER_RINGS];
    kvr_routed_t                   *all[NGX_HTTP_KV_ROUTER_RINGS];
    u_char                          pad[48];       /* to 64 bytes: the rings
                                                      lie behind it */
} ngx_http_kv_router_rings_t;

/*
 * The counters of a class, by its place in the rules of the queue.  A process
 * that puts another name there zeroes them.
 */

#define NGX_HTTP_KV_ROUTER_REFUSAL_LIST(X)                                    \
    X(FULL, "full")                                                           \
    X(LIMIT, "tenant_limit")                                                  \
    X(LATE, "too_late")                                                       \
    X(TIMEOUT, "timeout")                                                     \
    X(LEFT, "left")                                                           \
    X(GONE, "no_worker")

#define NGX_HTTP_KV_ROUTER_REFUSAL_ID(id, name)                               \
    NGX_HTTP_KV_ROUTER_REFUSED_##id,

enum {
    NGX_HTTP_KV_ROUTER_REFUSAL_LIST(NGX_HTTP_KV_ROUTER_REFUSAL_ID)
    NGX_HTTP_KV_ROUTER_REFUSALS
};

#define NGX_HTTP_KV_ROUTER_CLASS_NAME  32          /* bytes, with NUL */

typedef struct {
    u_char                          name[NGX_HTTP_KV_ROUTER_CLASS_NAME];
    ngx_atomic_t                    refused[NGX_HTTP_KV_ROUTER_REFUSALS];
    ngx_atomic_t                    would_wait;    /* by queue_mode=observe */
    ngx_atomic_t                    requests;      /* ended */
    ngx_atomic_t                    tokens;        /* as charged */
    kvr_histogram_t                 wait;          /* of all that waited */
} ngx_http_kv_router_class_t;


typedef struct ngx_http_kv_router_shctx_s {
    ngx_atomic_t                    counters[NGX_HTTP_KV_ROUTER_COUNTERS];
    ngx_atomic_t                    by_reason[NGX_HTTP_KV_ROUTER_REASONS];
    ngx_atomic_t                    by_rung[NGX_HTTP_KV_ROUTER_RUNGS];

    /* per shard: does the lease holder, the only writer, get events? */
    ngx_atomic_t                    redis_up[KVR_SHARDS_MAX];
    time_t                          redis_changed[KVR_SHARDS_MAX];
    ngx_atomic_t                    redis_server;  /* of the conf, that events
                                                  come from */
    ngx_atomic_t                    made;          /* unix: the zone */

    kvr_trust_t                    *trust;         /* of each worker */
    kvr_histogram_t                 times[KVR_TIMES];
    kvr_tally_t                     reasons;       /* "policy\nreason" */
    kvr_served_t                   *served;        /* of each worker */
    time_t                          refused_at;    /* the last reload; 0: it
                                                      was not refused */
    char                            refused[NGX_HTTP_KV_ROUTER_REFUSED_MAX];
                                                   /* why; "" while written */
    kvr_history_t                   history;
    kvr_decisions_t                 decisions;
    kvr_hot_t                       hot;
    kvr_told_ring_t                 told;          /* warnings */
    ngx_atomic_t                    past_told;     /* unix: that requests go
                                                      past the balancer */
    ngx_http_kv_router_rings_t     *rings;
    kvr_report_t                   *reports;       /* of each holder */
    kvr_speed_t                    *speeds;        /* of each holder */
    ngx_http_kv_router_turn_t      *turns;         /* each worker to report */
    kvr_rungs_t                    *rungs;         /* of each worker */
    ngx_atomic_t                    engines_learned;   /* kinds, by probes */
    ngx_atomic_t                    rungs_said;    /* the notice of "auto" */
    kvr_name_t                     *names;         /* of each worker */
    ngx_atomic_t                    names_changed; /* addresses */
    void                           *queue;         /* of kvr_admit.h; NULL:
                                                      nobody may wait */
    ngx_http_kv_router_class_t      classes[KVR_RULES_CLASSES];
    uint32_t                        nworkers;
    uint32_t                        nholders;

    void                           *base;          /* the kvr zone */
    size_t                          size;
} ngx_http_kv_router_shctx_t;


/* the record of a holder; NULL: it has none */
#define ngx_http_kv_router_speed(zone, holder)                                \
    ((holder) < (zone)->run.sh->nholders                                      \
     ? &(zone)->run.sh->speeds[holder] : NULL)


/* a location of kv_router_status that can be linked to */

typedef struct {
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_core_srv_conf_t       *server;
    ngx_str_t                       path;
} ngx_http_kv_router_place_t;


typedef struct {
    ngx_array_t                     zones;     /* …_zone_t * */
    ngx_array_t                     prefixes;  /* …_prefix_t * */
    ngx_array_t                     places;    /* …_place_t */
    ngx_array_t                     apis;      /* ngx_http_core_srv_conf_t *,
                                                  with kv_router_api */
} ngx_http_kv_router_main_conf_t;


typedef struct {
    ngx_http_kv_router_zone_t      *status;    /* kv_router_status */
    ngx_http_kv_router_zone_t      *api;       /* kv_router_api */
    ngx_str_t                       token;     /* of its callers; len 0: none
                                                  is needed */
    ngx_uint_t                      read_only; /* no call may change a zone */
} ngx_http_kv_router_loc_conf_t;


typedef struct {
    ngx_http_upstream_init_peer_pt  init_peer; /* of an upstream: the one
                                                  wrapped; NULL */
    ngx_array_t                     names;     /* ngx_http_server_name_t, of a
                                                  server with kv_router_api */
} ngx_http_kv_router_srv_conf_t;


/*
 * How far the view of a worker can be trusted; of it, or of one of its
 * holders, is the number.  Silent too while what it publishes is not heard.
 */
kvr_confidence_t ngx_http_kv_router_confidence(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_t *w, uint32_t number);

/*
 * The reason of it: "none", "no_events", "silent", "redis_down", or a word of
 * kvr_degraded_name(); of the worker is the number.
 */
const char *ngx_http_kv_router_reason(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_t *w, uint32_t number);

/* module: the zone of that name, or NULL */

/*
 * Counts a lookup, see kvr_router_touch().  *out is of the pool; NULL when the
 * zone has no frequencies.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_kv_router_touch(ngx_pool_t *pool,
    ngx_http_kv_router_zone_t *zone, const uint64_t *locals, uint32_t n,
    const kvr_match_t *matches, uint32_t found, uint32_t **out,
    uint32_t *nout);

ngx_http_kv_router_zone_t *ngx_http_kv_router_find_zone(ngx_cycle_t *cycle,
    const u_char *name, size_t len);

/* One of the zones or prefixes of a list, which begin with their names. */
void *ngx_http_kv_router_named(ngx_array_t *all, const u_char *name,
    size_t len);

static ngx_inline ngx_uint_t
ngx_http_kv_router_same(const ngx_str_t *a, const ngx_str_t *b)
{
    return a->len == b->len && ngx_memcmp(a->data, b->data, a->len) == 0;
}


/* The default of max_workers in a zone of so many bytes. */
uint32_t ngx_http_kv_router_zone_workers(size_t size);


/* Headers of a list, at first of { &LIST.part, 0 }. */

typedef struct {
    ngx_list_part_t                *part;
    ngx_uint_t                      i;
} ngx_http_kv_router_headers_t;

/* The next header of that name, in any case; NULL: there is none any more. */
ngx_table_elt_t *ngx_http_kv_router_header(ngx_http_kv_router_headers_t *at,
    const char *name);


/* directives */

char *ngx_http_kv_router_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_kv_router_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_kv_router_sync(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_kv_router_worker(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kv_router_health(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kv_router_scrape(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kv_router_engine(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* A directive of an earlier version: tells its successor. */
char *ngx_http_kv_router_retired(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

#define ngx_http_kv_router_retired_command(name)                              \
    { ngx_string(name), NGX_HTTP_MAIN_CONF|NGX_CONF_ANY,                      \
      ngx_http_kv_router_retired, 0, 0, NULL }

char *ngx_http_kv_router_location(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


/* Finds the zone of a directive's first argument; NULL: logged. */
ngx_http_kv_router_zone_t *ngx_http_kv_router_conf_zone(ngx_conf_t *cf,
    ngx_command_t *cmd);


/*
 * models: their directive, and the time while a configuration is read, in
 * which Lua asks for the models of that configuration
 */

/* the maximum number of models that a reload takes over */
#define NGX_HTTP_KV_ROUTER_MODELS_MAX  256

char *ngx_http_kv_router_model(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_kv_router_models_begin(ngx_conf_t *cf);
void ngx_http_kv_router_models_end(void);

/*
 * While a reload reads its configuration: the one that serves until it is
 * taken.  Else NULL.
 */
ngx_cycle_t *ngx_http_kv_router_models_serving(void);

/* The configuration that is being read, or else the one in use. */
ngx_cycle_t *ngx_http_kv_router_models_cycle(void);

/* JSON of a zone's model, the value of "model"; a line of the page */

void ngx_http_kv_router_model_json(ngx_http_kv_router_zone_t *zone,
    yajl_gen g);
const char *ngx_http_kv_router_model_state(ngx_http_kv_router_zone_t *zone,
    const char **why);


/* prefix caches: their directive, and a process's start and end */

char *ngx_http_kv_router_prefix_cache(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
void ngx_http_kv_router_prefix_join(ngx_cycle_t *cycle,
    ngx_array_t *prefixes);
void ngx_http_kv_router_prefix_leave(ngx_array_t *prefixes);


/* the zone: init of its shared memory, cleanup of its configuration */

ngx_int_t ngx_http_kv_router_init_zone(ngx_shm_zone_t *shm_zone, void *data);

void ngx_http_kv_router_zone_cleanup(void *data);


/* redis: directive and consumer */

char *ngx_http_kv_router_redis_parse(ngx_conf_t *cf,
    ngx_http_kv_router_zone_t *zone);
ngx_int_t ngx_http_kv_router_consumer_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone);
void ngx_http_kv_router_consumer_stop(ngx_http_kv_router_zone_t *zone);


/* health: what it is without kv_router_health, a worker's, its JSON */

void ngx_http_kv_router_health_init(ngx_http_kv_router_zone_t *zone);
void ngx_http_kv_router_health_params(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_conf_t *conf, kvr_health_params_t *params);


/*
 * rounds: active checks, the load that engines report, probes of engines, and
 * the names of workers.  NGX_ERROR: no memory.
 */

ngx_int_t ngx_http_kv_router_rounds_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone);
void ngx_http_kv_router_rounds_stop(ngx_http_kv_router_zone_t *zone);


/*
 * estimates: workers without events.  rings_size: the bytes of the rings in a
 * zone of zone_size bytes.  rings_init: in a new zone, in so many bytes.
 * start: NGX_ERROR: no memory.
 */

size_t ngx_http_kv_router_rings_size(ngx_http_kv_router_zone_t *zone,
    size_t zone_size, const kvr_params_t *params);
void ngx_http_kv_router_rings_init(ngx_http_kv_router_zone_t *zone,
    void *part);
ngx_int_t ngx_http_kv_router_estimator_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone);
void ngx_http_kv_router_estimator_stop(ngx_http_kv_router_zone_t *zone);

/*
 * queue: its memory in the zone; a process's part, from its start to its end.
 * start: NGX_ERROR: no memory.
 */

ngx_int_t ngx_http_kv_router_queue_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone);
void ngx_http_kv_router_queue_stop(ngx_http_kv_router_zone_t *zone);

/* Tells of a prompt, with its local hashes; as kvr_routed_append(). */
void ngx_http_kv_router_routed(ngx_http_kv_router_zone_t *zone,
    const kvr_routed_record_t *record, const uint64_t *locals);

/* The engine was restarted: the worker has nothing cached any more. */
void ngx_http_kv_router_restarted(ngx_http_kv_router_zone_t *zone,
    uint32_t number, uint32_t generation);

/*
 * probes: what engines can be asked for.  forget: a configuration begins, no
 * zone is named any more.
 */

void ngx_http_kv_router_probes_forget(void);


/* names: the error of a kvr_name_found_t in words; "" of 0 */

#define NGX_HTTP_KV_ROUTER_NO_RESOLVER  UINT32_MAX

const char *ngx_http_kv_router_name_error(uint32_t error);


/*
 * warn: logs 'kv_router zone "NAME": TEXT', and keeps the text for the status
 * if it is a warning or worse.  Any process of nginx may call it.  told: only
 * keeps it.
 */

void ngx_cdecl ngx_http_kv_router_warn(ngx_http_kv_router_zone_t *zone,
    ngx_uint_t level, ngx_log_t *log, const char *fmt, ...);
void ngx_http_kv_router_told(ngx_http_kv_router_zone_t *zone,
    ngx_uint_t level, const u_char *text, size_t len);


/*
 * Prepares a timer that holds up no process which exits.  nginx reads the fd
 * of dummy for its debug log; the handler finds data as the data of dummy.
 */

static ngx_inline void
ngx_http_kv_router_timer(ngx_event_t *ev, ngx_connection_t *dummy,
    ngx_event_handler_pt handler, void *data, ngx_log_t *log)
{
    ngx_memzero(ev, sizeof(ngx_event_t));
    ngx_memzero(dummy, sizeof(ngx_connection_t));

    dummy->fd = (ngx_socket_t) -1;
    dummy->data = data;

    ev->handler = handler;
    ev->data = dummy;
    ev->log = log;
    ev->cancelable = 1;
}


/* mistakes: warns of what nginx takes, and is hardly meant */

void ngx_http_kv_router_tell_mistakes(ngx_conf_t *cf);


/*
 * The configuration that is being read, or was the last one: for Lua, which
 * runs before a configuration becomes that of ngx_cycle.  NULL: none was read.
 */

extern ngx_http_kv_router_main_conf_t  *ngx_http_kv_router_read_conf;


/* guard: the directive kv_router_api; the access phase of its locations */

char *ngx_http_kv_router_api_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_kv_router_api_access(ngx_http_request_t *r);

/* Keeps the names of the servers that have an API, for its callers' Host. */
ngx_int_t ngx_http_kv_router_api_names(ngx_conf_t *cf,
    ngx_http_kv_router_main_conf_t *kmcf);


/* location handlers */

ngx_int_t ngx_http_kv_router_api_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_kv_router_status_handler(ngx_http_request_t *r);


/*
 * JSON for the status page, the API and Lua: the object that "stats" stands
 * for, the array of workers.
 */

void ngx_http_kv_router_stats_json(ngx_http_kv_router_zone_t *zone,
    yajl_gen g);
void ngx_http_kv_router_workers_json(ngx_http_kv_router_zone_t *zone,
    yajl_gen g);

/* NGX_HTTP_KV_ROUTER_BY_POLICY … of the FFI in a word; NULL: no such */

const char *ngx_http_kv_router_why_name(ngx_uint_t why);

/* NGX_HTTP_KV_ROUTER_BY_LOAD … of the FFI in a word */

const char *ngx_http_kv_router_rung_name(ngx_uint_t rung);


extern ngx_module_t  ngx_http_kv_router_module;


#endif /* _NGX_HTTP_KV_ROUTER_MODULE_H_INCLUDED_ */
