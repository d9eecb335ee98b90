
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Calls of the HTTP API that show prefix caches.
 */


#include "../prefix/ngx_http_kv_router_prefix.h"
#include "ngx_http_kv_router_api.h"


#define NGX_HTTP_KV_ROUTER_PREFIX_SHOWN  1000   /* nodes */


static void ngx_http_kv_router_prefix_line(void *data, const char *text,
    size_t len);


typedef struct {
    const char                     *name;
    size_t                          offset;
} ngx_http_kv_router_prefix_field_t;


#define field(name)  { #name, offsetof(kvr_prefix_stats_t, name) }

static const ngx_http_kv_router_prefix_field_t
    ngx_http_kv_router_prefix_fields[] =
{
    field(nodes),
    field(tokens),
    field(evictable),
    field(protected),
    field(namespaces),
    field(entries),
    field(entry_tokens),
    field(locks),
    field(owners),
    field(used),
    field(size),
    field(hits),
    field(misses),
    field(asked),
    field(matched),
    field(inserted),
    field(evicted),
    field(entries_evicted),
    field(full),
    field(locks_full),
    field(stale),
    field(deep),
    field(reaped),
    field(rollbacks),
    field(busy),
    field(slices),
    field(slow_slices),
    field(longest_slice),
    { NULL, 0 }
};

#undef field


void
ngx_http_kv_router_prefix_json(ngx_http_kv_router_prefix_t *prefix,
    yajl_gen g)
{
    u_char                                    *s;
    kvr_prefix_stats_t                         stats;
    const ngx_http_kv_router_prefix_field_t   *f;

    kvr_prefix_stats(&prefix->cache, &stats);
    s = (u_char *) &stats;

    (void) yajl_gen_map_open(g);

    ngx_http_kv_router_gen_key(g, "zone");
    (void) yajl_gen_string(g, prefix->name.data, prefix->name.len);

    ngx_http_kv_router_gen_str(g, "key",
                               kvr_prefix_units_name(prefix->params.units));
    ngx_http_kv_router_gen_u64(g, "page_size", prefix->params.page_size);
    ngx_http_kv_router_gen_str(g, "evict",
                               kvr_prefix_policy_name(prefix->params.evict));
    ngx_http_kv_router_gen_str(g, "full_does",
                               prefix->params.refuse ? "refuse" : "evict");
    ngx_http_kv_router_gen_u64(g, "max_entries", prefix->params.max_entries);
    ngx_http_kv_router_gen_bool(g, "enabled", !prefix->params.disabled);

    for (f = ngx_http_kv_router_prefix_fields; f->name; f++) {
        ngx_http_kv_router_gen_u64(g, f->name, *(uint64_t *) (s + f->offset));
    }

    ngx_http_kv_router_gen_decimal(g, "hit_rate",
                                   stats.asked
                                   ? stats.matched * 1000 / stats.asked : 0,
                                   3);

    (void) yajl_gen_map_close(g);
}


ngx_int_t
ngx_http_kv_router_call_prefix(ngx_http_kv_router_call_t *c)
{
    yajl_gen                          g;
    ngx_uint_t                        i;
    ngx_http_kv_router_prefix_t     **prefixes;
    ngx_http_kv_router_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(c->request,
                                         ngx_http_kv_router_module);
    prefixes = kmcf->prefixes.elts;
    g = c->answer->gen;

    (void) yajl_gen_array_open(g);

    for (i = 0; i < kmcf->prefixes.nelts; i++) {
        ngx_http_kv_router_prefix_json(prefixes[i], g);
    }

    (void) yajl_gen_array_close(g);

    return ngx_http_kv_router_call_ok(c);
}


ngx_int_t
ngx_http_kv_router_call_prefix_dump(ngx_http_kv_router_call_t *c)
{
    kvr_rc_t                      rc;
    ngx_http_kv_router_prefix_t  *prefix;

    prefix = ngx_http_kv_router_find_prefix((ngx_cycle_t *) ngx_cycle,
                                            &c->id);
    if (prefix == NULL) {
        return ngx_http_kv_router_answer_error(c->answer, NGX_HTTP_NOT_FOUND,
                                               "there is no "
                                               "kv_router_prefix_cache \"%V\"",
                                               &c->id);
    }

    rc = kvr_prefix_dump(&prefix->cache, NGX_HTTP_KV_ROUTER_PREFIX_SHOWN,
                         ngx_http_kv_router_prefix_line, c->answer);

    if (rc == KVR_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc != KVR_OK) {
        return ngx_http_kv_router_answer_error(c->answer,
                                               NGX_HTTP_SERVICE_UNAVAILABLE,
                                               "kv_router_prefix_cache "
                                               "\"%V\" is in use by another "
                                               "process, try again",
                                               &prefix->name);
    }

    return ngx_http_kv_router_answer_send(c->answer, NGX_HTTP_OK,
                                          "text/plain");
}


static void
ngx_http_kv_router_prefix_line(void *data, const char *text, size_t len)
{
    ngx_http_kv_router_answer_t  *a = data;

    ngx_http_kv_router_answer_write(a, text, len);
    ngx_http_kv_router_answer_write(a, "\n", 1);
}
