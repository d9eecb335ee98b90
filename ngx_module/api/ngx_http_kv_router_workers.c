
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * API: /workers, membership.
 */


#include "ngx_http_kv_router_api.h"
#include "../module/ngx_http_kv_router_resolver.h"
#include "../status/ngx_http_kv_router_stats.h"

#include <wire/kvr_utf8.h>


static ngx_int_t ngx_http_kv_router_worker_answer(
    ngx_http_kv_router_call_t *c, ngx_uint_t status);
static void ngx_http_kv_router_worker_field(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, kvr_json_text_t *key, kvr_worker_conf_t *conf);
static void ngx_http_kv_router_worker_string(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, char *value, size_t size);
static void ngx_http_kv_router_worker_lora(ngx_http_kv_router_call_t *c,
    kvr_json_t *j, char *list);
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

    kvr_worker_conf_init(&conf, (char *) c->id.data, c->id.len);

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

    if (kvr_router_find_worker(&c->zone->run.router, conf.id, c->id.len, &slot)
        == KVR_OK
        && ngx_http_kv_router_read_worker(c->zone, slot, &w) != NGX_DECLINED)
    {
        status = NGX_HTTP_OK;
    }

    rc = kvr_router_put_worker(&c->zone->run.router, &conf, KVR_WORKER_API);

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

    rc = kvr_router_remove_worker(&c->zone->run.router, (char *) c->id.data,
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

    rc = kvr_router_drain(&c->zone->run.router, (char *) c->id.data, c->id.len,
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

    if (kvr_router_find_worker(&c->zone->run.router, (char *) c->id.data,
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
    bool                  on;
    char                 *field;
    ngx_str_t             value;
    ngx_uint_t            i;
    const char           *at, *wrong;
    kvr_json_text_t       number;
    const kvr_setting_t  *setting;

    for (i = 0; i < KVR_SETTINGS && !kvr_json_is(key, kvr_settings[i].word);
         i++) { /* void */ }

    if (i == KVR_SETTINGS) {
        ngx_http_kv_router_call_unknown(c, j, key);
        return;
    }

    setting = &kvr_settings[i];
    field = (char *) kvr_setting_number(setting, conf);

    (void) kvr_json_peek(j);
    at = j->pos;

    switch (setting->kind) {

    case KVR_SETTING_ADDRESS:
    case KVR_SETTING_TEXT:
        ngx_http_kv_router_worker_string(c, j, field, setting->size);
        return;

    case KVR_SETTING_NAMES:
        ngx_http_kv_router_worker_lora(c, j, field);
        return;

    case KVR_SETTING_FLAG:
    case KVR_SETTING_OFF:
        if (kvr_json_bool(j, &on)) {
            *(uint32_t *) field = (setting->kind == KVR_SETTING_FLAG) == on;
            conf->own |= setting->own;
        }

        return;

    case KVR_SETTING_WORD:
        ngx_http_kv_router_call_string(c, j, &value);
        break;

    case KVR_SETTING_AUTO:
        if (kvr_json_peek(j) == '"') {
            ngx_http_kv_router_call_string(c, j, &value);
            break;
        }

        /* fall through */

    default:
        if (kvr_json_number(j, &number)) {
            value.data = (u_char *) number.data;
            value.len = number.len;
        }
    }

    if (j->error) {
        return;
    }

    wrong = kvr_setting_read(setting, conf, (char *) value.data, value.len);

    if (wrong) {
        kvr_json_fail(j, at, wrong);
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

    if (kvr_utf8_valid((char *) s.data, s.len) != s.len) {
        kvr_json_fail(j, at, "the string is not UTF-8");
        return;
    }

    ngx_memzero(value, size);
    ngx_memcpy(value, s.data, s.len);
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


static ngx_int_t
ngx_http_kv_router_bad_id(ngx_http_kv_router_call_t *c)
{
    return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_BAD_REQUEST,
                                           "invalid worker id \"%V\": 1..63 "
                                           "characters A-Z a-z 0-9 . _ : - "
                                           "were expected", &c->id);
}
