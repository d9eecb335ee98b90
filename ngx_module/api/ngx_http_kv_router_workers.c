
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * API: /workers, membership.
 */


#include "ngx_http_kv_router_api.h"
#include "../module/ngx_http_kv_router_resolver.h"
#include "../status/ngx_http_kv_router_stats.h"


static ngx_int_t ngx_http_kv_router_worker_answer(
    ngx_http_kv_router_call_t *c, ngx_uint_t status);
static void ngx_http_kv_router_worker_field(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, kvr_json_text_t *key, kvr_worker_conf_t *conf);
static void ngx_http_kv_router_worker_string(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, char *value, size_t size);
static ngx_uint_t ngx_http_kv_router_worker_utf8(ngx_str_t *s);
static void ngx_http_kv_router_worker_lora(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, char *list);
static void ngx_http_kv_router_worker_bool(kvr_json_t *j, uint32_t *value);
static void ngx_http_kv_router_worker_number(kvr_json_t *j, uint32_t *value,
    uint32_t min, uint32_t max, const char *error);
static void ngx_http_kv_router_worker_word(kvr_json_t *j, uint32_t *value,
    const char *(*name)(uint32_t), uint32_t n, const char *error);
static void ngx_http_kv_router_worker_decimal(kvr_json_t *j, uint32_t *value,
    double min, double max, const char *error);
static ngx_int_t ngx_http_kv_router_bad_id(ngx_http_kv_router_call_t *c);


ngx_int_t
ngx_http_kv_router_call_workers(ngx_http_kv_router_call_t *c)
{
    ngx_http_kv_router_workers_json(c->zone, c->answer->gen);

    return ngx_http_kv_router_call_ok(c);
}


ngx_int_t
ngx_http_kv_router_call_put_worker(ngx_http_kv_router_call_t *c)
{
    kvr_rc_t                      rc;
    uint32_t                      slot;
    ngx_uint_t                    status;
    kvr_json_t                    j;
    const char                   *wrong;
    kvr_json_text_t               key;
    kvr_worker_conf_t             conf;
    ngx_http_kv_router_worker_t   w;

    if (!kvr_worker_id_valid((char *) c->id.data, c->id.len)) {
        return ngx_http_kv_router_bad_id(c);
    }

    ngx_memzero(&conf, sizeof(kvr_worker_conf_t));

    ngx_memcpy(conf.id, c->id.data, c->id.len);

    conf.ranks = 1;
    conf.role = KVR_ROLE_BOTH;
    conf.weight = 1000;

    kvr_json_init(&j, (char *) c->body.data, c->body.len);
    kvr_json_open(&j, '{');

    while (kvr_json_key(&j, &key)) {
        ngx_http_kv_router_worker_field(c, &j, &key, &conf);
    }

    if (!kvr_json_end(&j)) {
        return ngx_http_kv_router_call_bad_body(c, &j);
    }

    wrong = ngx_http_kv_router_address_wrong(c->zone, conf.address);

    if (wrong) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                               "invalid address \"%s\" of "
                                               "worker \"%s\": %s",
                                               conf.address, conf.id, wrong);
    }

    status = NGX_HTTP_CREATED;

    if (kvr_router_find_worker(&c->zone->router, conf.id, c->id.len, &slot)
        == KVR_OK
        && ngx_http_kv_router_read_worker(c->zone, slot, &w) != NGX_DECLINED)
    {
        status = NGX_HTTP_OK;
    }

    rc = kvr_router_put_worker(&c->zone->router, &conf, KVR_WORKER_API);

    if (rc != KVR_OK) {
        return ngx_http_kv_router_call_failed(c, rc);
    }

    return ngx_http_kv_router_worker_answer(c, status);
}


ngx_int_t
ngx_http_kv_router_call_delete_worker(ngx_http_kv_router_call_t *c)
{
    kvr_rc_t  rc;

    if (!kvr_worker_id_valid((char *) c->id.data, c->id.len)) {
        return ngx_http_kv_router_bad_id(c);
    }

    rc = kvr_router_remove_worker(&c->zone->router, (char *) c->id.data,
                                  c->id.len);

    if (rc != KVR_OK) {
        return ngx_http_kv_router_call_failed(c, rc);
    }

    yajl_gen_map_open(c->answer->gen);
    ngx_http_kv_router_gen_key(c->answer->gen, "worker_id");
    yajl_gen_string(c->answer->gen, c->id.data, c->id.len);
    ngx_http_kv_router_gen_bool(c->answer->gen, "deleted", 1);
    yajl_gen_map_close(c->answer->gen);

    return ngx_http_kv_router_call_ok(c);
}


ngx_int_t
ngx_http_kv_router_call_drain(ngx_http_kv_router_call_t *c)
{
    bool             on;
    kvr_rc_t         rc;
    kvr_json_t       j;
    kvr_json_text_t  key;

    if (!kvr_worker_id_valid((char *) c->id.data, c->id.len)) {
        return ngx_http_kv_router_bad_id(c);
    }

    on = true;

    if (c->body.len) {
        kvr_json_init(&j, (char *) c->body.data, c->body.len);
        kvr_json_open(&j, '{');

        while (kvr_json_key(&j, &key)) {

            if (kvr_json_is(&key, "drain")) {
                kvr_json_bool(&j, &on);

            } else {
                ngx_http_kv_router_call_unknown(c, &j, &key);
            }
        }

        if (!kvr_json_end(&j)) {
            return ngx_http_kv_router_call_bad_body(c, &j);
        }
    }

    rc = kvr_router_drain(&c->zone->router, (char *) c->id.data, c->id.len,
                          on);

    if (rc != KVR_OK) {
        return ngx_http_kv_router_call_failed(c, rc);
    }

    return ngx_http_kv_router_worker_answer(c, NGX_HTTP_OK);
}


static ngx_int_t
ngx_http_kv_router_worker_answer(ngx_http_kv_router_call_t *c,
    ngx_uint_t status)
{
    uint32_t                     slot;
    ngx_http_kv_router_worker_t  w;

    if (kvr_router_find_worker(&c->zone->router, (char *) c->id.data,
                               c->id.len, &slot)
        != KVR_OK)
    {
        return ngx_http_kv_router_call_failed(c, KVR_DECLINED);
    }

    switch (ngx_http_kv_router_read_worker(c->zone, slot, &w)) {

    case NGX_OK:
        break;

    case NGX_BUSY:

        /* the worker is changed, but another process is writing it now */

        return ngx_http_kv_router_call_failed(c, KVR_BUSY);

    default:
        return ngx_http_kv_router_call_failed(c, KVR_DECLINED);
    }

    ngx_http_kv_router_worker_json(c->zone, &w, c->answer->gen);
    ngx_http_kv_router_answer_write(c->answer, "\n", 1);

    return ngx_http_kv_router_answer_send(c->answer, status,
                                          "application/json");
}


static void
ngx_http_kv_router_worker_field(ngx_http_kv_router_call_t *c, kvr_json_t *j,
    kvr_json_text_t *key, kvr_worker_conf_t *conf)
{
    uint32_t  events;

    if (kvr_json_is(key, "address")) {
        ngx_http_kv_router_worker_string(c, j, conf->address,
                                         sizeof(conf->address));

    } else if (kvr_json_is(key, "model")) {
        ngx_http_kv_router_worker_string(c, j, conf->model,
                                         sizeof(conf->model));

    } else if (kvr_json_is(key, "lora")) {
        ngx_http_kv_router_worker_lora(c, j, conf->lora);

    } else if (kvr_json_is(key, "ranks")) {
        ngx_http_kv_router_worker_number(j, &conf->ranks, 1, KVR_RANKS_MAX,
                                         "\"ranks\" must be 1..1024");

    } else if (kvr_json_is(key, "max_active")) {
        ngx_http_kv_router_worker_number(j, &conf->max_active, 0,
                                         KVR_ACTIVE_MAX,
                                         "\"max_active\" must be "
                                         "0..1000000");

    } else if (kvr_json_is(key, "salted")) {
        ngx_http_kv_router_worker_bool(j, &conf->salted);

    } else if (kvr_json_is(key, "spec_drop")) {
        ngx_http_kv_router_worker_bool(j, &conf->spec_drop);

    } else if (kvr_json_is(key, "hybrid")) {
        ngx_http_kv_router_worker_bool(j, &conf->hybrid);

    } else if (kvr_json_is(key, "events")) {
        events = !conf->events_off;
        ngx_http_kv_router_worker_bool(j, &events);
        conf->events_off = !events;

    } else if (kvr_json_is(key, "capacity")) {
        ngx_http_kv_router_worker_number(j, &conf->capacity, 1,
                                         KVR_CAPACITY_MAX,
                                         "\"capacity\" must be "
                                         "1..1000000000 tokens");

    } else if (kvr_json_is(key, "attention_chunk")) {
        ngx_http_kv_router_worker_number(j, &conf->attention_chunk, 0,
                                         KVR_EVENT_TOKENS_MAX,
                                         "\"attention_chunk\" must be "
                                         "0..1048576");

    } else if (kvr_json_is(key, "role")) {
        ngx_http_kv_router_worker_word(j, &conf->role, kvr_role_name,
                                       KVR_ROLE_DECODE + 1,
                                       "\"role\" must be \"both\", "
                                       "\"prefill\" or \"decode\"");

    } else if (kvr_json_is(key, "engine")) {
        ngx_http_kv_router_worker_word(j, &conf->engine, kvr_engine_name,
                                       KVR_ENGINES,
                                       "\"engine\" must be \"vllm\", "
                                       "\"sglang\", \"trtllm\" or "
                                       "\"unknown\"");

    } else if (kvr_json_is(key, "weight")) {
        ngx_http_kv_router_worker_decimal(j, &conf->weight, 0.001,
                                          KVR_WEIGHT_MAX,
                                          "\"weight\" must be 0.001..1000");

    } else if (kvr_json_is(key, "max_fails")) {
        ngx_http_kv_router_worker_number(j, &conf->max_fails, 0,
                                         KVR_FAILS_MAX,
                                         "\"max_fails\" must be 0..1000");
        conf->own |= KVR_OWN_MAX_FAILS;

    } else if (kvr_json_is(key, "fail_timeout")) {
        ngx_http_kv_router_worker_decimal(j, &conf->fail_timeout, 0.001,
                                          KVR_HEALTH_MS_MAX / 1000,
                                          "\"fail_timeout\" must be "
                                          "0.001..3600 seconds");
        conf->own |= KVR_OWN_FAIL_TIMEOUT;

    } else if (kvr_json_is(key, "slow_start")) {
        ngx_http_kv_router_worker_decimal(j, &conf->slow_start, 0,
                                          KVR_HEALTH_MS_MAX / 1000,
                                          "\"slow_start\" must be 0..3600 "
                                          "seconds");
        conf->own |= KVR_OWN_SLOW_START;

    } else {
        ngx_http_kv_router_call_unknown(c, j, key);
    }
}


static void
ngx_http_kv_router_worker_string(ngx_http_kv_router_call_t *c, kvr_json_t *j,
    char *value, size_t size)
{
    size_t       i;
    ngx_str_t    s;
    const char  *at;

    (void) kvr_json_peek(j);
    at = j->pos;

    ngx_http_kv_router_call_string(c, j, &s);

    if (j->error) {
        return;
    }

    if (s.len >= size) {
        kvr_json_fail(j, at, "the string is too long");
        return;
    }

    for (i = 0; i < s.len; i++) {
        if (s.data[i] < 0x20 || s.data[i] == 0x7f) {
            kvr_json_fail(j, at, "a control character in the string");
            return;
        }
    }

    if (!ngx_http_kv_router_worker_utf8(&s)) {
        kvr_json_fail(j, at, "the string is not UTF-8");
        return;
    }

    ngx_memzero(value, size);
    ngx_memcpy(value, s.data, s.len);
}


/* Is the string well-formed UTF-8?  JSON can show no other string. */

static ngx_uint_t
ngx_http_kv_router_worker_utf8(ngx_str_t *s)
{
    u_char    *p, *last;
    uint32_t   c;

    last = s->data + s->len;

    for (p = s->data; p < last; /* void */ ) {

        c = *p < 0x80 ? *p++ : ngx_utf8_decode(&p, last - p);

        if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
            return 0;
        }
    }

    return 1;
}


static void
ngx_http_kv_router_worker_lora(ngx_http_kv_router_call_t *c, kvr_json_t *j,
    char *list)
{
    ngx_str_t    s;
    const char  *at;

    list[0] = '\0';

    kvr_json_open(j, '[');

    while (kvr_json_next(j)) {

        (void) kvr_json_peek(j);
        at = j->pos;

        ngx_http_kv_router_call_string(c, j, &s);

        if (!j->error && kvr_adapters_add(list, (char *) s.data, s.len)) {
            kvr_json_fail(j, at, "\"lora\" must be names of printable ASCII "
                                 "without a comma, of 511 bytes together");
        }
    }
}


static void
ngx_http_kv_router_worker_bool(kvr_json_t *j, uint32_t *value)
{
    bool  on;

    on = false;

    if (kvr_json_bool(j, &on)) {
        *value = on;
    }
}


static void
ngx_http_kv_router_worker_number(kvr_json_t *j, uint32_t *value, uint32_t min,
    uint32_t max, const char *error)
{
    uint64_t          n;
    const char       *at;
    kvr_json_text_t   text;

    (void) kvr_json_peek(j);
    at = j->pos;

    if (!kvr_json_number(j, &text)) {
        return;
    }

    if (!kvr_json_digits(text.data, text.len, &n) || n < min || n > max) {
        kvr_json_fail(j, at, error);
        return;
    }

    *value = (uint32_t) n;
}


/* Reads one of n words, each with the name of its number. */

static void
ngx_http_kv_router_worker_word(kvr_json_t *j, uint32_t *value,
    const char *(*name)(uint32_t), uint32_t n, const char *error)
{
    uint32_t          i;
    const char       *at;
    kvr_json_text_t   text;

    (void) kvr_json_peek(j);
    at = j->pos;

    if (!kvr_json_string(j, &text)) {
        return;
    }

    for (i = 0; i < n; i++) {
        if (kvr_json_is(&text, name(i))) {
            *value = i;
            return;
        }
    }

    kvr_json_fail(j, at, error);
}


/* Reads a number with up to three decimal places, in thousandths. */

static void
ngx_http_kv_router_worker_decimal(kvr_json_t *j, uint32_t *value, double min,
    double max, const char *error)
{
    char              buf[32];
    double            v;
    const char       *at;
    kvr_json_text_t   text;

    (void) kvr_json_peek(j);
    at = j->pos;

    if (!kvr_json_number(j, &text)) {
        return;
    }

    v = -1;

    if (text.len < sizeof(buf)) {
        ngx_cpystrn((u_char *) buf, (u_char *) text.data, text.len + 1);
        v = strtod(buf, NULL);
    }

    if (!(v >= min && v <= max)) {
        kvr_json_fail(j, at, error);
        return;
    }

    *value = (uint32_t) (v * 1000 + 0.5);
}


static ngx_int_t
ngx_http_kv_router_bad_id(ngx_http_kv_router_call_t *c)
{
    return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                           "invalid worker id \"%V\": 1..63 "
                                           "characters A-Z a-z 0-9 . _ : - "
                                           "were expected", &c->id);
}
