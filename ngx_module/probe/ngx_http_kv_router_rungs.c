
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Probes: what each engine can be asked for to learn the token ids of a text,
 * tried with a known conversation; and what engine it is.
 *
 * Only zones are probed for which a router of Lua asks engines.  A probe is a
 * row of small requests, one after the other, none of which makes an engine
 * generate anything.
 */


#include "ngx_http_kv_router_rounds.h"

#include <wire/kvr_probe.h>


#define NGX_HTTP_KV_ROUTER_PROBES          8      /* at a time, of a process */
#define NGX_HTTP_KV_ROUTER_PROBES_TICK     50     /* ms */
#define NGX_HTTP_KV_ROUTER_PROBE_TIMEOUT   5000   /* ms, of each request */
#define NGX_HTTP_KV_ROUTER_PROBE_MAX       (1024 * 1024 + KVR_HTTP_HEADER_MAX)
#define NGX_HTTP_KV_ROUTER_PROBED_ZONES    64     /* told before the fork */


/* a request of a probe; the first two kinds have no body */

typedef struct {
    ngx_str_t                       uri;
    const char                     *body;      /* behind the model; NULL: a
                                                  GET */
    const char                     *field;     /* of the answer, with ids */
    uint32_t                        rung;      /* found if they are there */
} ngx_http_kv_router_step_t;


typedef struct {
    ngx_http_kv_router_slot_t       slot;
    ngx_uint_t                      step;
    ngx_uint_t                      failed;    /* requests without an answer */
    ngx_uint_t                      windows;   /* kvr_probe_windows() */
    kvr_rungs_found_t               found;
    u_char                          model[KVR_PROBE_MODEL_MAX + 1];
} ngx_http_kv_router_probe_t;


/* a zone that a router of Lua named */

typedef struct {
    ngx_str_t                       name;
    ngx_uint_t                      automatic;
} ngx_http_kv_router_probed_t;


static ngx_uint_t ngx_http_kv_router_probe_wanted(
    ngx_http_kv_router_zone_t *zone);
static ngx_uint_t ngx_http_kv_router_probe_due(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_holder_t *h);
static void ngx_http_kv_router_probe_start(ngx_http_kv_router_slot_t *slot);
static void ngx_http_kv_router_probe_ask(ngx_http_kv_router_probe_t *probe);
static void ngx_http_kv_router_probe_answered(void *data,
    const kvr_http_answer_t *answer, const char *why);
static const char *ngx_http_kv_router_probe_models(
    ngx_http_kv_router_probe_t *probe, const kvr_http_answer_t *answer);
static void ngx_http_kv_router_probe_failed(ngx_http_kv_router_probe_t *probe,
    uint32_t status, const char *why);
static void ngx_http_kv_router_probe_done(ngx_http_kv_router_probe_t *probe);


/* a form without a renderer has a step without a path, which is left out */

#define render(id, name, text, plain, path, probe, ...)                       \
    { ngx_string(path), probe, "token_ids",                                   \
      kvr_rung_render(KVR_FORM_##id) },

static const ngx_http_kv_router_step_t  ngx_http_kv_router_steps[] = {

    { ngx_string("/v1/models"), NULL, NULL, 0 },

    /* vLLM and TensorRT-LLM; SGLang, and older ones */

    { ngx_string("/version"), NULL, NULL, 0 },
    { ngx_string("/server_info"), NULL, NULL, 0 },
    { ngx_string("/get_server_info"), NULL, NULL, 0 },

    KVR_FORM_ROWS(render)

    { ngx_string("/tokenize"), "\"prompt\":\"Hello\"", "tokens",
      KVR_RUNG_TEXT },

    { ngx_string("/tokenize"), KVR_PROBE_CHAT, "tokens", KVR_RUNG_CHAT }
};

#undef render

#define NGX_HTTP_KV_ROUTER_STEPS  (sizeof(ngx_http_kv_router_steps)           \
                                   / sizeof(ngx_http_kv_router_steps[0]))


const ngx_http_kv_router_rounds_kind_t  ngx_http_kv_router_probes = {
    2,
    NGX_HTTP_KV_ROUTER_PROBES,
    sizeof(ngx_http_kv_router_probe_t),
    NGX_HTTP_KV_ROUTER_PROBES_TICK,
    NGX_LOG_ALERT,
    0,
    ngx_http_kv_router_probe_wanted,
    ngx_http_kv_router_probe_due,
    ngx_http_kv_router_probe_start,
    NULL
};


/* zones that were named in this configuration, before the fork or after it */
static ngx_http_kv_router_probed_t
    ngx_http_kv_router_probed[NGX_HTTP_KV_ROUTER_PROBED_ZONES];
static ngx_uint_t  ngx_http_kv_router_nprobed;

/* this process runs: a zone that is named is probed at once */
static ngx_uint_t  ngx_http_kv_router_probing;


/* ---- which zones -------------------------------------------------------- */

void
ngx_http_kv_router_probes_forget(void)
{
    ngx_uint_t  i;

    for (i = 0; i < ngx_http_kv_router_nprobed; i++) {
        ngx_free(ngx_http_kv_router_probed[i].name.data);
    }

    ngx_http_kv_router_nprobed = 0;
    ngx_http_kv_router_probing = 0;
}


void
ngx_http_kv_router_ffi_probe(const u_char *name, size_t len, int automatic)
{
    ngx_uint_t                   i;
    ngx_http_kv_router_zone_t   *zone;
    ngx_http_kv_router_probed_t *p;

    if (ngx_http_kv_router_probing) {

        zone = ngx_http_kv_router_find_zone((ngx_cycle_t *) ngx_cycle,
                                            name, len);

        if (zone) {
            zone->run.probe_auto |= automatic;
            (void) ngx_http_kv_router_rounds_begin((ngx_cycle_t *) ngx_cycle,
                                                   zone,
                                                   &ngx_http_kv_router_probes);
        }

        return;
    }

    for (i = 0; i < ngx_http_kv_router_nprobed; i++) {

        p = &ngx_http_kv_router_probed[i];

        if (p->name.len == len && ngx_memcmp(p->name.data, name, len) == 0) {
            p->automatic |= automatic;
            return;
        }
    }

    /* of more zones, each process learns by the first request */

    if (i == NGX_HTTP_KV_ROUTER_PROBED_ZONES) {
        return;
    }

    p = &ngx_http_kv_router_probed[i];

    p->name.data = ngx_alloc(len + 1, ngx_cycle->log);
    if (p->name.data == NULL) {
        return;
    }

    ngx_memcpy(p->name.data, name, len);
    p->name.len = len;
    p->automatic = automatic;

    ngx_http_kv_router_nprobed++;
}


static ngx_uint_t
ngx_http_kv_router_probe_wanted(ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t                    i;
    ngx_http_kv_router_probed_t  *p;

    ngx_http_kv_router_probing = 1;

    for (i = 0; i < ngx_http_kv_router_nprobed; i++) {

        p = &ngx_http_kv_router_probed[i];

        if (ngx_http_kv_router_same(&p->name, &zone->conf.name)) {
            zone->run.probe_auto = p->automatic;
            return 1;
        }
    }

    return 0;
}


/* ---- which workers ------------------------------------------------------ */

/*
 * A worker is due again when another one has its number, when its publisher
 * began a new epoch, and when it failed and is back: each may be another run
 * of the engine, with other options.
 */

static ngx_uint_t
ngx_http_kv_router_probe_due(ngx_http_kv_router_zone_t *zone,
    ngx_http_kv_router_holder_t *h)
{
    double         share;
    uint64_t       run[3];
    kvr_health_t  *health;

    health = kvr_router_health(&zone->run.router, h->number);

    if (!kvr_health_usable(kvr_health_state(health, h->generation, &h->health,
                                            ngx_current_msec, &share)))
    {
        return 0;
    }

    run[0] = h->generation;
    run[1] = kvr_load64(&h->worker->stream.epoch);
    run[2] = kvr_load64(&health->since);

    return kvr_rungs_due(&zone->run.sh->rungs[h->number],
                         kvr_hash_bytes(run, sizeof(run), KVR_HASH_SEED),
                         ngx_current_msec);
}


/* ---- a probe ------------------------------------------------------------ */

static void
ngx_http_kv_router_probe_start(ngx_http_kv_router_slot_t *slot)
{
    ngx_http_kv_router_probe_ask((ngx_http_kv_router_probe_t *) slot);
}


static void
ngx_http_kv_router_probe_ask(ngx_http_kv_router_probe_t *probe)
{
    ngx_str_t                         body, uri;
    const char                       *why;
    const ngx_http_kv_router_step_t  *step;

    u_char  data[KVR_PROBE_MODEL_MAX + 256];

    step = &ngx_http_kv_router_steps[probe->step];
    uri = step->uri;

    if (step->body) {
        body.data = data;
        body.len = ngx_snprintf(data, sizeof(data), "{\"model\":\"%s\",%s}",
                                probe->model, step->body)
                   - data;
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": probe of worker \"%V\": \"%V\"",
                   &probe->slot.zone->conf.name, &probe->slot.id, &uri);

    if (ngx_http_kv_router_slot_ask(&probe->slot, &uri,
                                    step->body ? &body : NULL,
                                    NGX_HTTP_KV_ROUTER_PROBE_TIMEOUT,
                                    NGX_HTTP_KV_ROUTER_PROBE_MAX,
                                    ngx_http_kv_router_probe_answered, &why)
        != NGX_OK)
    {
        ngx_http_kv_router_probe_failed(probe, 0, why);
    }
}


static void
ngx_http_kv_router_probe_answered(void *data, const kvr_http_answer_t *answer,
    const char *why)
{
    ngx_http_kv_router_probe_t *probe = data;

    const ngx_http_kv_router_step_t  *step;

    step = &ngx_http_kv_router_steps[probe->step];
    probe->slot.client = NULL;

    if (answer == NULL && why == NULL) {
        probe->slot.rounds = NULL;
        return;
    }

    if (probe->step == 0) {

        if (answer) {
            why = ngx_http_kv_router_probe_models(probe, answer);
        }

        if (why) {
            ngx_http_kv_router_probe_failed(probe, answer ? answer->status : 0,
                                            why);
            return;
        }

    } else if (answer == NULL) {
        probe->failed++;

    } else if (answer->status != NGX_HTTP_OK) {
        /* the engine does not have this */

    } else if (step->field == NULL) {
        (void) kvr_probe_version(answer->body, answer->len,
                                 probe->found.version,
                                 sizeof(probe->found.version));
        probe->windows |= kvr_probe_windows(answer->body, answer->len);

    } else if (kvr_probe_ids(answer->body, answer->len, step->field)) {
        probe->found.rungs |= step->rung;
    }

    /* the version is asked for until it is known */

    do {
        if (++probe->step == NGX_HTTP_KV_ROUTER_STEPS) {
            ngx_http_kv_router_probe_done(probe);
            return;
        }

        step = &ngx_http_kv_router_steps[probe->step];

    } while (step->uri.len == 0
             || (step->field == NULL && probe->found.version[0]));

    ngx_http_kv_router_probe_ask(probe);
}


/* NULL, or why the answer is no list of models. */

static const char *
ngx_http_kv_router_probe_models(ngx_http_kv_router_probe_t *probe,
    const kvr_http_answer_t *answer)
{
    kvr_json_text_t    id;
    kvr_engine_kind_t  engine;

    if (answer->status != NGX_HTTP_OK) {
        return "not 200";
    }

    if (!kvr_probe_model(answer->body, answer->len, &id, &engine)) {
        return "no list of models";
    }

    ngx_memcpy(probe->model, id.data, id.len);
    probe->model[id.len] = '\0';

    probe->found.engine = engine;

    return NULL;
}


/* Without a list of models it is not known what to ask. */

static void
ngx_http_kv_router_probe_failed(ngx_http_kv_router_probe_t *probe,
    uint32_t status, const char *why)
{
    ngx_uint_t                  refused, level;
    ngx_http_kv_router_zone_t  *zone;

    zone = probe->slot.zone;
    refused = (status == NGX_HTTP_UNAUTHORIZED
               || status == NGX_HTTP_FORBIDDEN);
    level = refused ? NGX_LOG_ERR : NGX_LOG_INFO;

    ngx_http_kv_router_count(zone->run.sh, PROBES, 1);
    ngx_http_kv_router_count(zone->run.sh, PROBES_FAILED, 1);

    if (kvr_rungs_failed(&zone->run.sh->rungs[probe->slot.number],
                         ngx_current_msec)
        == 1)
    {
        ngx_http_kv_router_warn(zone, level, ngx_cycle->log,
                                "worker \"%V\" was not probed, "
                                "\"/v1/models\" at \"%V\": %s, status %uD%s",
                                &probe->slot.id, &probe->slot.address, why,
                                status,
                                refused ? ": set its key by "
                                          "kv_router_engine" : "");
    }

    probe->slot.rounds = NULL;
}


static void
ngx_http_kv_router_probe_done(ngx_http_kv_router_probe_t *probe)
{
    uint32_t                    rungs;
    kvr_rungs_t                *r;
    kvr_rungs_found_t           before, *found;
    ngx_http_kv_router_zone_t  *zone;

    zone = probe->slot.zone;
    found = &probe->found;
    rungs = found->rungs;
    r = &zone->run.sh->rungs[probe->slot.number];

    probe->slot.rounds = NULL;

    ngx_http_kv_router_count(zone->run.sh, PROBES, 1);

    /* an engine that ended meanwhile has not answered that it has nothing */

    if (rungs == 0 && probe->failed) {
        ngx_http_kv_router_count(zone->run.sh, PROBES_FAILED, 1);
        (void) kvr_rungs_failed(r, ngx_current_msec);
        return;
    }

    if (!ngx_http_kv_router_slot_current(&probe->slot)) {
        return;
    }

    if (kvr_router_mark(&zone->run.router, probe->slot.number,
                        probe->windows ? KVR_WORKER_PARTIAL : 0,
                        probe->windows ? 0 : KVR_WORKER_PARTIAL)
        == KVR_BUSY)
    {
        /* to be probed once more */

        (void) kvr_rungs_failed(r, ngx_current_msec);
        return;
    }

    (void) kvr_rungs_read(r, probe->slot.generation, &before);
    kvr_rungs_write(r, probe->slot.generation, found, ngx_current_msec);

    if (before.engine != found->engine) {
        (void) ngx_atomic_fetch_add(&zone->run.sh->engines_learned, 1);
    }

    if (before.rungs != (rungs | KVR_RUNG_KNOWN)
        || before.engine != found->engine
        || ngx_strcmp(before.version, found->version) != 0)
    {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": worker \"%V\": engine %s %s, it "
                      "has %s%s%s%s%s",
                      &zone->conf.name, &probe->slot.id,
                      kvr_engine_name(found->engine),
                      found->version[0] ? found->version : "of no version",
                      rungs & KVR_RUNG_RENDER ? "render" : "",
                      rungs & KVR_RUNG_RENDER && rungs & KVR_RUNG_REMOTE
                      ? " and " : "",
                      rungs & KVR_RUNG_REMOTE ? "tokenize" : "",
                      rungs ? "" : "neither render nor tokenize",
                      probe->windows
                      ? ", and sliding windows of which it publishes nothing"
                      : "");
    }

    if (rungs && zone->run.probe_auto
        && ngx_atomic_cmp_set(&zone->run.sh->rungs_said, 0, 1))
    {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": tokenizer = \"auto\": an engine "
                      "is asked for the token ids of each new text, the "
                      "request waits for 50 ms and 2 us a byte at most",
                      &zone->conf.name);
    }
}
