
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The status page: status.html, which the build makes an array of, and what
 * its script needs beside the status of the zone.
 */


#include "../module/ngx_http_kv_router_answer.h"
#include "../prefix/ngx_http_kv_router_prefix.h"
#include "ngx_http_kv_router_stats.h"

#include <openssl/evp.h>


/* "'sha256-", 32 bytes in base64, "'" */

#define NGX_HTTP_KV_ROUTER_HASH_LEN  53


static ngx_int_t ngx_http_kv_router_page_hash(const char *tag, u_char *to);


/* made by util/embed */

extern const u_char  ngx_http_kv_router_status_html[];
extern const size_t  ngx_http_kv_router_status_html_size;


/*
 * The browser runs the script and the style of this very page, by their
 * hashes, and nothing else; it may read from this server alone.
 */

ngx_int_t
ngx_http_kv_router_page(ngx_http_request_t *r, ngx_http_kv_router_answer_t *a)
{
    static u_char     data[256 + 2 * NGX_HTTP_KV_ROUTER_HASH_LEN];
    static ngx_str_t  policy;
    static ngx_str_t  cache = ngx_string("no-cache");

    u_char  script[NGX_HTTP_KV_ROUTER_HASH_LEN + 1];
    u_char  style[NGX_HTTP_KV_ROUTER_HASH_LEN + 1];

    if (policy.len == 0) {

        if (ngx_http_kv_router_page_hash("script", script) != NGX_OK
            || ngx_http_kv_router_page_hash("style", style) != NGX_OK)
        {
            return NGX_ERROR;
        }

        policy.data = data;
        policy.len = ngx_snprintf(data, sizeof(data),
                                  "default-src 'none'; script-src %s; "
                                  "style-src %s; connect-src 'self'; "
                                  "img-src data:; base-uri 'none'; "
                                  "form-action 'none'",
                                  script, style) - data;
    }

    if (ngx_http_kv_router_answer_header(r, "Content-Security-Policy", &policy)
        != NGX_OK
        || ngx_http_kv_router_answer_header(r, "Cache-Control", &cache)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_kv_router_answer_write(a, ngx_http_kv_router_status_html,
                                    ngx_http_kv_router_status_html_size);

    return NGX_OK;
}


/* Writes the hash of what is between the first <tag> and the </tag> after. */

static ngx_int_t
ngx_http_kv_router_page_hash(const char *tag, u_char *to)
{
    u_char       hash[EVP_MAX_MD_SIZE], name[16];
    ngx_str_t    from, out;
    const char  *begin, *end;

    *ngx_snprintf(name, sizeof(name) - 1, "<%s>", tag) = '\0';
    begin = ngx_strstr((const char *) ngx_http_kv_router_status_html, name);

    *ngx_snprintf(name, sizeof(name) - 1, "</%s>", tag) = '\0';
    end = begin ? ngx_strstr(begin, name) : NULL;

    if (end == NULL) {
        return NGX_ERROR;
    }

    begin += ngx_strlen(name) - 1;

    if (EVP_Digest(begin, end - begin, hash, NULL, EVP_sha256(), NULL) != 1) {
        return NGX_ERROR;
    }

    from.data = hash;
    from.len = 32;
    out.data = ngx_cpymem(to, "'sha256-", 8);
    ngx_encode_base64(&out, &from);

    (void) ngx_cpymem(out.data + out.len, "'", 2);

    return NGX_OK;
}


void
ngx_http_kv_router_places_json(ngx_http_request_t *r, yajl_gen g)
{
    ngx_uint_t                        i;
    ngx_http_kv_router_place_t       *places;
    ngx_http_kv_router_prefix_t     **prefixes;
    ngx_http_kv_router_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kv_router_module);
    places = kmcf->places.elts;
    prefixes = kmcf->prefixes.elts;

    ngx_http_kv_router_gen_array(g, "places");

    for (i = 0; i < kmcf->places.nelts; i++) {

        if (places[i].server
            != ngx_http_get_module_srv_conf(r, ngx_http_core_module))
        {
            continue;
        }

        (void) yajl_gen_map_open(g);
        ngx_http_kv_router_gen_text(g, "zone", places[i].zone->conf.name.data,
                                    places[i].zone->conf.name.len);
        ngx_http_kv_router_gen_text(g, "path", places[i].path.data,
                                    places[i].path.len);
        (void) yajl_gen_map_close(g);
    }

    (void) yajl_gen_array_close(g);
    ngx_http_kv_router_gen_array(g, "prefix_caches");

    for (i = 0; i < kmcf->prefixes.nelts; i++) {
        ngx_http_kv_router_prefix_json(prefixes[i], g);
    }

    (void) yajl_gen_array_close(g);
}
