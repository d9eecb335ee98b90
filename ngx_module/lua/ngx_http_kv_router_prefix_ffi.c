
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_prefix_ffi.h"
#include "ngx_http_kv_router_text.h"


/* values on their way to Lua */

typedef struct {
    ngx_http_kv_router_text_t   text;
    ngx_uint_t                  lost;      /* unsigned  lost:1 */
} ngx_http_kv_router_prefix_told_t;


static void ngx_http_kv_router_prefix_freed(void *data,
    const uint32_t *values, uint32_t n);
static int ngx_http_kv_router_prefix_rc(kvr_rc_t rc, char **err);


_Static_assert(sizeof(ngx_http_kv_router_prefix_node_t)
               == sizeof(kvr_prefix_node_t), "Lua's node is the library's");
_Static_assert(sizeof(ngx_http_kv_router_prefix_lock_t)
               == sizeof(kvr_prefix_lock_t), "Lua's lock is the library's");


#define cache(zone)  (&((ngx_http_kv_router_prefix_t *) zone)->cache)


uint32_t
ngx_http_kv_router_prefix_ffi_version(void)
{
    return NGX_HTTP_KV_ROUTER_PREFIX_FFI_VERSION;
}


void *
ngx_http_kv_router_prefix_ffi_zone(const u_char *name, size_t len)
{
    ngx_str_t  s;

    s.data = (u_char *) name;
    s.len = len;

    return ngx_http_kv_router_find_prefix((ngx_cycle_t *) ngx_cycle, &s);
}


uint32_t
ngx_http_kv_router_prefix_ffi_unit(void *zone)
{
    return cache(zone)->unit;
}


void
ngx_http_kv_router_prefix_ffi_item(uint64_t hash, uint32_t *units, uint32_t n)
{
    kvr_prefix_item(hash, units, n);
}


/* ---- what comes and goes ------------------------------------------------ */

static kvr_prefix_key_t
ngx_http_kv_router_prefix_key(const ngx_http_kv_router_prefix_key_t *key)
{
    kvr_prefix_key_t  k;

    k.units = key->units_data;
    k.n = key->units;
    k.extra = key->extra_data;
    k.extra_len = key->extra_len;

    return k;
}


static kvr_prefix_freed_t
ngx_http_kv_router_prefix_tell(ngx_http_kv_router_prefix_told_t *told)
{
    kvr_prefix_freed_t  freed;

    ngx_memzero(told, sizeof(ngx_http_kv_router_prefix_told_t));

    freed.fn = ngx_http_kv_router_prefix_freed;
    freed.data = told;

    return freed;
}


static void
ngx_http_kv_router_prefix_freed(void *data, const uint32_t *values,
    uint32_t n)
{
    ngx_http_kv_router_prefix_told_t *told = data;

    if (ngx_http_kv_router_text_add(&told->text, values,
                                    n * sizeof(uint32_t))
        != NGX_OK)
    {
        told->lost = 1;
    }
}


/* Hands the values over, whatever came of the call. */

static int
ngx_http_kv_router_prefix_told(kvr_rc_t rc,
    ngx_http_kv_router_prefix_told_t *told,
    ngx_http_kv_router_prefix_freed_t *freed, char **err)
{
    freed->data = told->text.data;
    freed->len = told->text.len;

    if (told->lost) {
        *err = "no memory: values of freed units could not be told";
        return NGX_ERROR;
    }

    return ngx_http_kv_router_prefix_rc(rc, err);
}


static int
ngx_http_kv_router_prefix_rc(kvr_rc_t rc, char **err)
{
    switch (rc) {

    case KVR_OK:
        return NGX_OK;

    case KVR_BUSY:
        *err = "the prefix cache is in use by another process, try again";
        return NGX_BUSY;

    case KVR_DECLINED:
        *err = "not found: the node, lock or entry is gone, or was never "
               "there";
        return NGX_DECLINED;

    case KVR_FULL:
        *err = "the prefix cache is full: no memory or no lock is left, and "
               "nothing can be evicted";
        return NGX_ERROR;

    case KVR_INVALID:
        /* Lua looks at lengths before */
        *err = "over 2048 keys of other entries begin this entry's key: "
               "delete some";
        return NGX_ERROR;

    default:
        *err = "no memory";
        return NGX_ERROR;
    }
}


/* ---- the tree ----------------------------------------------------------- */

int
ngx_http_kv_router_prefix_ffi_match(void *zone,
    const ngx_http_kv_router_prefix_key_t *key,
    ngx_http_kv_router_prefix_node_t *node, uint32_t *values, char **err)
{
    kvr_prefix_key_t  k;

    k = ngx_http_kv_router_prefix_key(key);

    return ngx_http_kv_router_prefix_rc(
               kvr_prefix_match(cache(zone), &k, (kvr_prefix_node_t *) node,
                                values),
               err);
}


int
ngx_http_kv_router_prefix_ffi_begin(void *zone,
    const ngx_http_kv_router_prefix_key_t *key,
    ngx_http_kv_router_prefix_node_t *node,
    ngx_http_kv_router_prefix_lock_t *lock, uint32_t *values, char **err)
{
    kvr_prefix_key_t  k;

    k = ngx_http_kv_router_prefix_key(key);

    return ngx_http_kv_router_prefix_rc(
               kvr_prefix_begin(cache(zone), &k, (kvr_prefix_node_t *) node,
                                (kvr_prefix_lock_t *) lock, values),
               err);
}


int
ngx_http_kv_router_prefix_ffi_insert(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, const uint32_t *values,
    const ngx_http_kv_router_prefix_node_t *from, uint32_t priority,
    ngx_http_kv_router_prefix_node_t *node,
    ngx_http_kv_router_prefix_freed_t *freed, char **err)
{
    kvr_rc_t                          rc;
    kvr_prefix_key_t                  k;
    kvr_prefix_insert_t               how;
    ngx_http_kv_router_prefix_told_t  told;

    k = ngx_http_kv_router_prefix_key(key);

    how.values = values;
    how.from = (const kvr_prefix_node_t *) from;
    how.priority = priority;
    how.freed = ngx_http_kv_router_prefix_tell(&told);

    rc = kvr_prefix_insert(cache(zone), &k, &how, &freed->existing,
                           (kvr_prefix_node_t *) node);

    return ngx_http_kv_router_prefix_told(rc, &told, freed, err);
}


int
ngx_http_kv_router_prefix_ffi_lock(void *zone,
    const ngx_http_kv_router_prefix_node_t *node,
    ngx_http_kv_router_prefix_lock_t *lock, char **err)
{
    return ngx_http_kv_router_prefix_rc(
               kvr_prefix_lock(cache(zone), (const kvr_prefix_node_t *) node,
                               (kvr_prefix_lock_t *) lock),
               err);
}


int
ngx_http_kv_router_prefix_ffi_unlock(void *zone,
    const ngx_http_kv_router_prefix_lock_t *lock, char **err)
{
    return ngx_http_kv_router_prefix_rc(
               kvr_prefix_unlock(cache(zone),
                                 (const kvr_prefix_lock_t *) lock),
               err);
}


int
ngx_http_kv_router_prefix_ffi_evict(void *zone, uint64_t n,
    ngx_http_kv_router_prefix_freed_t *freed, char **err)
{
    kvr_rc_t                          rc;
    kvr_prefix_freed_t                tell;
    ngx_http_kv_router_prefix_told_t  told;

    tell = ngx_http_kv_router_prefix_tell(&told);
    rc = kvr_prefix_evict(cache(zone), n, &freed->done, tell);

    return ngx_http_kv_router_prefix_told(rc, &told, freed, err);
}


int
ngx_http_kv_router_prefix_ffi_reset(void *zone,
    ngx_http_kv_router_prefix_freed_t *freed, char **err)
{
    kvr_rc_t                          rc;
    kvr_prefix_freed_t                tell;
    ngx_http_kv_router_prefix_told_t  told;

    tell = ngx_http_kv_router_prefix_tell(&told);
    rc = kvr_prefix_reset(cache(zone), tell);

    return ngx_http_kv_router_prefix_told(rc, &told, freed, err);
}


int
ngx_http_kv_router_prefix_ffi_values(void *zone,
    ngx_http_kv_router_prefix_freed_t *all, char **err)
{
    kvr_rc_t                          rc;
    kvr_prefix_freed_t                tell;
    ngx_http_kv_router_prefix_told_t  told;

    tell = ngx_http_kv_router_prefix_tell(&told);
    rc = kvr_prefix_values(cache(zone), tell);

    return ngx_http_kv_router_prefix_told(rc, &told, all, err);
}


/* ---- entries ------------------------------------------------------------ */

int
ngx_http_kv_router_prefix_ffi_put(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, const u_char *value,
    size_t len, char **err)
{
    kvr_prefix_key_t  k;

    k = ngx_http_kv_router_prefix_key(key);

    return ngx_http_kv_router_prefix_rc(kvr_prefix_put(cache(zone), &k, value,
                                                       len),
                                        err);
}


int
ngx_http_kv_router_prefix_ffi_get(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, u_char *value, size_t *len,
    char **err)
{
    kvr_prefix_key_t  k;

    k = ngx_http_kv_router_prefix_key(key);

    return ngx_http_kv_router_prefix_rc(kvr_prefix_get(cache(zone), &k, value,
                                                       len),
                                        err);
}


int
ngx_http_kv_router_prefix_ffi_longest(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, int strict, size_t *length,
    u_char *value, size_t *len, char **err)
{
    kvr_prefix_key_t  k;

    k = ngx_http_kv_router_prefix_key(key);

    return ngx_http_kv_router_prefix_rc(
               kvr_prefix_longest(cache(zone), &k, strict, length, value,
                                  len),
               err);
}


int
ngx_http_kv_router_prefix_ffi_delete(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, char **err)
{
    kvr_prefix_key_t  k;

    k = ngx_http_kv_router_prefix_key(key);

    return ngx_http_kv_router_prefix_rc(kvr_prefix_delete(cache(zone), &k),
                                        err);
}


int
ngx_http_kv_router_prefix_ffi_clear(void *zone, char **err)
{
    return ngx_http_kv_router_prefix_rc(kvr_prefix_clear(cache(zone)), err);
}


/* ---- text --------------------------------------------------------------- */

/* Adds a line; the text is cut when there is no memory. */

static void
ngx_http_kv_router_prefix_text(void *data, const char *text, size_t len)
{
    ngx_http_kv_router_prefix_told_t *told = data;

    if (ngx_http_kv_router_text_add(&told->text, text, len) != NGX_OK
        || ngx_http_kv_router_text_add(&told->text, "\n", 1) != NGX_OK)
    {
        told->lost = 1;
    }
}


int
ngx_http_kv_router_prefix_ffi_text(void *zone, uint32_t limit, char **out,
    size_t *len, char **err)
{
    size_t                            n;
    kvr_rc_t                          rc;
    yajl_gen                          g;
    const u_char                     *json;
    ngx_http_kv_router_prefix_told_t  told;

    ngx_memzero(&told, sizeof(ngx_http_kv_router_prefix_told_t));

    if (limit) {
        rc = kvr_prefix_dump(cache(zone), limit,
                             ngx_http_kv_router_prefix_text, &told);

    } else {
        rc = KVR_ERROR;
        g = yajl_gen_alloc(NULL);

        if (g) {
            ngx_http_kv_router_prefix_json(zone, g);

            if (yajl_gen_get_buf(g, &json, &n) == yajl_gen_status_ok
                && ngx_http_kv_router_text_add(&told.text, json, n) == NGX_OK)
            {
                rc = KVR_OK;
            }

            yajl_gen_free(g);
        }
    }

    if (rc != KVR_OK || told.lost) {
        free(told.text.data);
        return ngx_http_kv_router_prefix_rc(rc == KVR_OK ? KVR_ERROR : rc,
                                            err);
    }

    *out = told.text.data;
    *len = told.text.len;

    return NGX_OK;
}


void
ngx_http_kv_router_prefix_ffi_free(char *text)
{
    free(text);
}
