
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The index for Lua.  The request path's functions are in ngx_module/request.
 */


#include "../request/ngx_http_kv_router_route.h"
#include "ngx_http_kv_router_text.h"


uint32_t
ngx_http_kv_router_ffi_version(void)
{
    return NGX_HTTP_KV_ROUTER_FFI_VERSION;
}


void *
ngx_http_kv_router_ffi_zone(const u_char *name, size_t len)
{
    return ngx_http_kv_router_find_zone((ngx_cycle_t *) ngx_cycle, name, len);
}


double
ngx_http_kv_router_ffi_now_us(void)
{
    return ngx_http_kv_router_now_us();
}


uint32_t
ngx_http_kv_router_ffi_block_size(void *data)
{
    ngx_http_kv_router_zone_t *zone = data;

    return zone->conf.params.block_size;
}


uint32_t
ngx_http_kv_router_ffi_max_holders(void *data)
{
    ngx_http_kv_router_zone_t *zone = data;

    return kvr_router_max_holders(&zone->run.router);
}


uint32_t
ngx_http_kv_router_ffi_max_frequencies(void *data)
{
    ngx_http_kv_router_zone_t *zone = data;

    return zone->conf.params.frequency_ms ? KVR_FREQUENCY_DEPTH : 0;
}


size_t
ngx_http_kv_router_ffi_hash(void *data, const uint32_t *tokens,
    size_t ntokens, const u_char *lora, size_t lora_len, const u_char *salt,
    size_t salt_len, uint64_t *local, uint64_t *sequence)
{
    ngx_http_kv_router_zone_t *zone = data;

    size_t        n;
    uint64_t     *out;
    kvr_hasher_t  hasher;

    out = local ? local : sequence;

    if (out == NULL) {
        return 0;
    }

    hasher.ready = false;
    kvr_hasher_init(&hasher, kvr_hash_seed((char *) lora, lora ? lora_len : 0,
                                           (char *) salt,
                                           salt ? salt_len : 0));

    n = kvr_contract_hash(kvr_params_contract(&zone->conf.params), &hasher,
                          tokens, ntokens, out);

    if (sequence) {
        kvr_hash_sequence(out, n, sequence);
    }

    return n;
}


size_t
ngx_http_kv_router_ffi_find(void *data, const uint64_t *local, size_t n,
    size_t tokens, int early_exit, ngx_http_kv_router_found_t *out, size_t cap,
    uint32_t *frequencies, uint32_t *nfrequencies)
{
    ngx_http_kv_router_zone_t *zone = data;

    uint32_t            i, k, max, found, worker, flags, generation;
    kvr_match_t        *m;
    kvr_worker_conf_t   conf;

    max = kvr_router_max_holders(&zone->run.router);
    *nfrequencies = 0;

    m = ngx_alloc(max * sizeof(kvr_match_t), ngx_cycle->log);
    if (m == NULL) {
        return 0;
    }

    n = ngx_min(n, KVR_EVENT_TOKENS_MAX);
    found = kvr_router_find(&zone->run.router, local, n, tokens, early_exit, m,
                            max);
    *nfrequencies = kvr_router_touch(&zone->run.router, local, m, found,
                                     ngx_current_msec, frequencies);

    for (i = 0, k = 0; i < found && k < cap; i++) {

        worker = kvr_router_holder_worker(&zone->run.router, m[i].holder);

        if (kvr_router_read_worker(&zone->run.router, worker, &conf, &flags,
                                   &generation)
            != KVR_OK
            || flags & KVR_WORKER_DELETED
            || m[i].estimated)
        {
            continue;
        }

        out[k].rank = kvr_router_holder_rank(&zone->run.router, m[i].holder);
        out[k].device = m[i].device;
        out[k].host = m[i].host;
        out[k].disk = m[i].disk;
        out[k].cut = m[i].cut;
        out[k].worker_len = ngx_strlen(conf.id);
        ngx_memcpy(out[k].worker, conf.id, sizeof(conf.id));
        k++;
    }

    ngx_free(m);

    return k;
}


void
ngx_http_kv_router_ffi_told(uint32_t level, const u_char *text, size_t len)
{
    size_t                           n;
    u_char                          *end, begins[KVR_TOLD_TEXT];
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;

    if (ngx_process != NGX_PROCESS_WORKER) {
        return;
    }

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kv_router_module);
    if (kmcf == NULL) {
        return;
    }

    /* a traceback is in the log alone */

    end = ngx_strlchr((u_char *) text, (u_char *) text + len, LF);
    len = end ? (size_t) (end - text) : len;

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        n = ngx_snprintf(begins, sizeof(begins), "zone \"%V\": ",
                         &zones[i]->conf.name)
            - begins;

        if (len >= n && ngx_memcmp(text, begins, n) == 0) {
            ngx_http_kv_router_told(zones[i], level, text + n, len - n);

        } else if (len < 6 || ngx_memcmp(text, "zone \"", 6) != 0) {
            ngx_http_kv_router_told(zones[i], level, text, len);
        }
    }
}


/* ---- writing ------------------------------------------------------------ */

static int
ngx_http_kv_router_ffi_rc(kvr_rc_t rc, const char *detail, char **err)
{
    switch (rc) {

    case KVR_OK:
        return NGX_OK;

    case KVR_BUSY:
        *err = "the zone is busy, try again";
        return NGX_BUSY;

    case KVR_DECLINED:
        *err = "no such worker";
        return NGX_DECLINED;

    case KVR_FULL:
        *err = "the zone is full";
        return NGX_ERROR;

    case KVR_LOST:
        *err = "the worker has an event stream, it can't be written to";
        return NGX_ERROR;

    default:
        *err = (char *) (detail ? detail : "invalid");
        return NGX_ERROR;
    }
}


static int
ngx_http_kv_router_ffi_event(ngx_http_kv_router_zone_t *zone,
    const u_char *worker, size_t worker_len, const kvr_event_t *ev,
    uint32_t *unknown, char **err)
{
    kvr_rc_t     rc;
    kvr_why_t    why;
    const char  *detail;

    if (ev->nhandles > KVR_EVENT_BLOCKS_MAX) {
        *err = "too many blocks";
        return NGX_ERROR;
    }

    if (ev->tier >= KVR_TIERS) {
        *err = "invalid tier";
        return NGX_ERROR;
    }

    rc = kvr_router_write(&zone->run.router, (char *) worker, worker_len, ev,
                          ngx_current_msec, unknown, &why, &detail);

    return ngx_http_kv_router_ffi_rc(rc, detail, err);
}


int
ngx_http_kv_router_ffi_store(void *zone, const u_char *worker,
    size_t worker_len, uint32_t rank, uint32_t tier, const uint64_t *parent,
    const uint64_t *handles, const uint64_t *locals, size_t n, char **err)
{
    uint32_t     unknown;
    kvr_event_t  ev;

    ngx_memzero(&ev, sizeof(kvr_event_t));

    ev.kind = KVR_STORE;
    ev.tier = tier;
    ev.rank = rank;
    ev.has_parent = parent != NULL;
    ev.parent = parent ? *parent : 0;
    ev.handles = handles;
    ev.nhandles = ngx_min(n, UINT32_MAX);
    ev.locals = locals;
    ev.nlocals = ev.nhandles;

    return ngx_http_kv_router_ffi_event(zone, worker, worker_len, &ev,
                                        &unknown, err);
}


int
ngx_http_kv_router_ffi_remove(void *zone, const u_char *worker,
    size_t worker_len, uint32_t rank, uint32_t tier, const uint64_t *handles,
    size_t n, uint32_t *unknown, char **err)
{
    kvr_event_t  ev;

    ngx_memzero(&ev, sizeof(kvr_event_t));

    ev.kind = KVR_REMOVE;
    ev.tier = tier;
    ev.rank = rank;
    ev.handles = handles;
    ev.nhandles = ngx_min(n, UINT32_MAX);

    return ngx_http_kv_router_ffi_event(zone, worker, worker_len, &ev,
                                        unknown, err);
}


int
ngx_http_kv_router_ffi_clear(void *zone, const u_char *worker,
    size_t worker_len, uint32_t rank, char **err)
{
    uint32_t     unknown;
    kvr_event_t  ev;

    ngx_memzero(&ev, sizeof(kvr_event_t));

    ev.kind = KVR_CLEAR;
    ev.rank = rank;

    return ngx_http_kv_router_ffi_event(zone, worker, worker_len, &ev,
                                        &unknown, err);
}


int
ngx_http_kv_router_ffi_remove_worker(void *data, const u_char *worker,
    size_t worker_len, char **err)
{
    ngx_http_kv_router_zone_t *zone = data;

    return ngx_http_kv_router_ffi_rc(
               kvr_router_remove_worker(&zone->run.router, (char *) worker,
                                        worker_len),
               NULL, err);
}


/* ---- text --------------------------------------------------------------- */

static kvr_rc_t
ngx_http_kv_router_ffi_line(void *data, const char *line, size_t len)
{
    ngx_http_kv_router_text_t *t = data;

    return ngx_http_kv_router_text_add(t, line, len) == NGX_OK
           && ngx_http_kv_router_text_add(t, "\n", 1) == NGX_OK ? KVR_OK
                                                               : KVR_ERROR;
}


int
ngx_http_kv_router_ffi_text(void *data, const char *what, char **out,
    size_t *len, char **err)
{
    ngx_http_kv_router_zone_t *zone = data;

    size_t                      n;
    kvr_rc_t                    rc;
    yajl_gen                    g;
    const u_char               *text;
    ngx_http_kv_router_text_t   t;

    ngx_memzero(&t, sizeof(ngx_http_kv_router_text_t));

    if (ngx_strcmp(what, "dump") == 0) {

        rc = kvr_router_dump(&zone->run.router, false,
                             ngx_http_kv_router_ffi_line, &t);

        if (rc != KVR_OK) {
            free(t.data);
            *err = rc == KVR_BUSY ? "the zone is busy, try again"
                                  : "no memory";
            return rc == KVR_BUSY ? NGX_BUSY : NGX_ERROR;
        }

        *out = t.data;
        *len = t.len;

        return NGX_OK;
    }

    g = yajl_gen_alloc(NULL);
    if (g == NULL) {
        *err = "no memory";
        return NGX_ERROR;
    }

    if (ngx_strcmp(what, "stats") == 0) {
        ngx_http_kv_router_stats_json(zone, g);

    } else if (ngx_strcmp(what, "workers") == 0) {
        ngx_http_kv_router_workers_json(zone, g);

    } else {
        yajl_gen_free(g);
        *err = "no such text";
        return NGX_DECLINED;
    }

    if (yajl_gen_get_buf(g, &text, &n) != yajl_gen_status_ok
        || (*out = malloc(n + 1)) == NULL)
    {
        yajl_gen_free(g);
        *err = "no memory";
        return NGX_ERROR;
    }

    ngx_memcpy(*out, text, n);
    *len = n;

    yajl_gen_free(g);

    return NGX_OK;
}


void
ngx_http_kv_router_ffi_free(char *text)
{
    free(text);
}
