
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Prefix caches for Lua; lua/resty/kv_router/prefix_ffi.lua declares the same.
 * The functions can be called in any phase, and return
 *
 *     NGX_OK        0    done
 *     NGX_ERROR    -1    an error; *err is a static sentence with the cause
 *     NGX_BUSY     -3    the zone's lock is taken; try again later
 *     NGX_DECLINED -5    not found, or gone; *err is a static sentence
 *
 * src/prefix/kvr_prefix.h says what each of them does, and what is one
 * transaction.
 */


#ifndef _NGX_HTTP_KV_ROUTER_PREFIX_FFI_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_PREFIX_FFI_H_INCLUDED_


#include "../prefix/ngx_http_kv_router_prefix.h"


/*
 * Must be increased with any change of the declarations below.  A reload
 * brings new Lua files but never a new module.
 */

#define NGX_HTTP_KV_ROUTER_PREFIX_FFI_VERSION   1


/* a key; the memory stays the caller's */

typedef struct {
    const void     *units_data;
    size_t          units;
    const u_char   *extra_data;
    size_t          extra_len;
} ngx_http_kv_router_prefix_key_t;


/* kvr_prefix_node_t */

typedef struct {
    uint64_t        id;
    uint32_t        node;
    uint32_t        length;
} ngx_http_kv_router_prefix_node_t;


/* kvr_prefix_lock_t */

typedef struct {
    uint64_t        id;
    uint32_t        slot;
    uint32_t        pad;
} ngx_http_kv_router_prefix_lock_t;


/* values that were freed: bytes of data, to be freed by …_prefix_ffi_free() */

typedef struct {
    char           *data;
    size_t          len;
    uint64_t        done;          /* units evicted */
    uint32_t        existing;      /* units that an insertion found */
    uint32_t        pad;
} ngx_http_kv_router_prefix_freed_t;


uint32_t ngx_http_kv_router_prefix_ffi_version(void);
void *ngx_http_kv_router_prefix_ffi_zone(const u_char *name, size_t len);

/* 4: tokens, 8: hashes, 1: bytes */
uint32_t ngx_http_kv_router_prefix_ffi_unit(void *zone);

void ngx_http_kv_router_prefix_ffi_item(uint64_t hash, uint32_t *units,
    uint32_t n);

/* values: room for one a unit of the key, or NULL */
int ngx_http_kv_router_prefix_ffi_match(void *zone,
    const ngx_http_kv_router_prefix_key_t *key,
    ngx_http_kv_router_prefix_node_t *node, uint32_t *values, char **err);
int ngx_http_kv_router_prefix_ffi_begin(void *zone,
    const ngx_http_kv_router_prefix_key_t *key,
    ngx_http_kv_router_prefix_node_t *node,
    ngx_http_kv_router_prefix_lock_t *lock, uint32_t *values, char **err);

/* values: one a unit, or NULL; from: NULL, or a node */
int ngx_http_kv_router_prefix_ffi_insert(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, const uint32_t *values,
    const ngx_http_kv_router_prefix_node_t *from, uint32_t priority,
    ngx_http_kv_router_prefix_node_t *node,
    ngx_http_kv_router_prefix_freed_t *freed, char **err);

int ngx_http_kv_router_prefix_ffi_lock(void *zone,
    const ngx_http_kv_router_prefix_node_t *node,
    ngx_http_kv_router_prefix_lock_t *lock, char **err);
int ngx_http_kv_router_prefix_ffi_unlock(void *zone,
    const ngx_http_kv_router_prefix_lock_t *lock, char **err);

int ngx_http_kv_router_prefix_ffi_evict(void *zone, uint64_t n,
    ngx_http_kv_router_prefix_freed_t *freed, char **err);
int ngx_http_kv_router_prefix_ffi_reset(void *zone,
    ngx_http_kv_router_prefix_freed_t *freed, char **err);
int ngx_http_kv_router_prefix_ffi_values(void *zone,
    ngx_http_kv_router_prefix_freed_t *told, char **err);

/* value: room for KVR_PREFIX_VALUE_MAX bytes, to be read or written */
int ngx_http_kv_router_prefix_ffi_put(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, const u_char *value,
    size_t len, char **err);
int ngx_http_kv_router_prefix_ffi_get(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, u_char *value, size_t *len,
    char **err);
int ngx_http_kv_router_prefix_ffi_longest(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, int strict, size_t *length,
    u_char *value, size_t *len, char **err);
int ngx_http_kv_router_prefix_ffi_delete(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, char **err);
int ngx_http_kv_router_prefix_ffi_clear(void *zone, char **err);

/* limit: nodes of the dump; 0: the numbers, as JSON */
int ngx_http_kv_router_prefix_ffi_text(void *zone, uint32_t limit,
    char **out, size_t *len, char **err);
void ngx_http_kv_router_prefix_ffi_free(char *text);


#endif /* _NGX_HTTP_KV_ROUTER_PREFIX_FFI_H_INCLUDED_ */
