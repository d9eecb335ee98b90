
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Mistakes that nginx takes for a configuration: found at start, and told as
 * warnings.
 */


#include "ngx_http_kv_router_module.h"

#include <dlfcn.h>


/* How a configuration begins that nginx's module keeps to itself. */

typedef struct {
    ngx_array_t                    *rules;
#if (NGX_HAVE_INET6)
    ngx_array_t                    *rules6;
#endif
#if (NGX_HAVE_UNIX_DOMAIN)
    ngx_array_t                    *rules_un;
#endif
} ngx_http_kv_router_access_t;         /* ngx_http_access_module */


static ngx_module_t *ngx_http_kv_router_module_named(ngx_conf_t *cf,
    const char *name);

static void ngx_http_kv_router_same_redis(ngx_conf_t *cf,
    ngx_http_kv_router_main_conf_t *kmcf);
static ngx_uint_t ngx_http_kv_router_share_redis(
    ngx_http_kv_router_zone_t *a, ngx_http_kv_router_zone_t *b);
static void ngx_http_kv_router_same_address(ngx_conf_t *cf,
    ngx_http_kv_router_zone_t *zone);

static ngx_uint_t ngx_http_kv_router_access_is_open(ngx_conf_t *cf,
    ngx_http_kv_router_api_place_t *place);
static ngx_uint_t ngx_http_kv_router_listens_to_all(ngx_conf_t *cf,
    ngx_http_core_srv_conf_t *server);
static ngx_uint_t ngx_http_kv_router_is_local(struct sockaddr *sa);


void
ngx_http_kv_router_tell_mistakes(ngx_conf_t *cf)
{
    ngx_uint_t                       i;
    ngx_http_kv_router_zone_t      **zones;
    ngx_http_kv_router_main_conf_t  *kmcf;
    ngx_http_kv_router_api_place_t  *place;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kv_router_module);

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        ngx_http_kv_router_same_address(cf, zones[i]);
    }

    ngx_http_kv_router_same_redis(cf, kmcf);

    place = kmcf->apis.elts;

    for (i = 0; i < kmcf->apis.nelts; i++) {

        if (ngx_http_kv_router_access_is_open(cf, &place[i])) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "the location \"%V\" with \"kv_router_api\" in "
                          "%s:%ui can be called by everybody, who then can "
                          "take workers away: add \"allow\" and \"deny\", "
                          "\"auth_basic\" or token_file=FILE, or have its "
                          "server listen at 127.0.0.1",
                          &place[i].core->name, place[i].file, place[i].line);
        }
    }
}


static ngx_module_t *
ngx_http_kv_router_module_named(ngx_conf_t *cf, const char *name)
{
    ngx_uint_t  i;

    for (i = 0; cf->cycle->modules[i]; i++) {
        if (ngx_strcmp(cf->cycle->modules[i]->name, name) == 0) {
            return cf->cycle->modules[i];
        }
    }

    return NULL;
}


/* ---- zones and workers -------------------------------------------------- */

/*
 * A registration in Redis without a model, or a zone without one, fits all:
 * two such zones have all of each other's workers.
 */

static void
ngx_http_kv_router_same_redis(ngx_conf_t *cf,
    ngx_http_kv_router_main_conf_t *kmcf)
{
    ngx_uint_t                   i, k;
    ngx_http_kv_router_zone_t  **zones, *a, *b;

    zones = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {

        for (k = 0; k < i; k++) {
            a = zones[k];
            b = zones[i];

            if (!ngx_http_kv_router_share_redis(a, b)
                || a->params.block_size != b->params.block_size
                || a->params.eagle != b->params.eagle
                || (a->params.model[0] && b->params.model[0]
                    && ngx_strcmp(a->params.model, b->params.model) != 0))
            {
                continue;
            }

            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "the zones \"%V\" (model \"%s\") and \"%V\" (model "
                          "\"%s\") have the same Redis and channel, and so "
                          "the same workers: give each zone its \"model=\" in "
                          "\"kv_router_zone\", and each kv-relay its "
                          "\"--model\"", &a->name, a->params.model, &b->name,
                          b->params.model);
        }
    }
}


static ngx_uint_t
ngx_http_kv_router_share_redis(ngx_http_kv_router_zone_t *a,
    ngx_http_kv_router_zone_t *b)
{
    ngx_uint_t                          i, k;
    ngx_http_kv_router_redis_server_t  *sa, *sb;

    if (a->redis == NULL || b->redis == NULL
        || a->redis->channel.len != b->redis->channel.len
        || ngx_strncmp(a->redis->channel.data, b->redis->channel.data,
                       a->redis->channel.len)
           != 0)
    {
        return 0;
    }

    sa = a->redis->servers.elts;
    sb = b->redis->servers.elts;

    for (i = 0; i < a->redis->servers.nelts; i++) {

        for (k = 0; k < b->redis->servers.nelts; k++) {

            if (sa[i].port == sb[k].port && sa[i].db == sb[k].db
                && sa[i].host.len == sb[k].host.len
                && ngx_strncmp(sa[i].host.data, sb[k].host.data,
                               sa[i].host.len)
                   == 0
                && sa[i].url.len == sb[k].url.len
                && ngx_strncmp(sa[i].url.data, sb[k].url.data, sa[i].url.len)
                   == 0)
            {
                return 1;
            }
        }
    }

    return 0;
}


static void
ngx_http_kv_router_same_address(ngx_conf_t *cf,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t          i, k;
    kvr_worker_conf_t  *w;

    w = zone->workers.elts;

    for (i = 0; i < zone->workers.nelts; i++) {

        for (k = 0; k < i; k++) {

            if (ngx_strcmp(w[i].address, w[k].address) == 0) {
                ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                              "the workers \"%s\" and \"%s\" of zone \"%V\" "
                              "have the same address %s, so the load of this "
                              "engine is counted as that of two: leave one of "
                              "them out, or, for data-parallel ranks, write "
                              "\"ranks=2\"", w[k].id, w[i].id, &zone->name,
                              w[i].address);
                break;
            }
        }
    }
}


/* ---- the HTTP API ------------------------------------------------------- */

/* Is there nothing that keeps people from a location of "kv_router_api"? */

static ngx_uint_t
ngx_http_kv_router_access_is_open(ngx_conf_t *cf,
    ngx_http_kv_router_api_place_t *place)
{
    ngx_str_t                      *request;
    ngx_module_t                   *m;
    ngx_http_complex_value_t      **realm;
    ngx_http_kv_router_access_t    *access;
    ngx_http_kv_router_loc_conf_t  *klcf;

    klcf = place->core->loc_conf[ngx_http_kv_router_module.ctx_index];

    if (klcf->token.len || place->core->internal || place->core->limit_except)
    {
        return 0;
    }

    m = ngx_http_kv_router_module_named(cf, "ngx_http_access_module");

    if (m) {
        access = place->core->loc_conf[m->ctx_index];

        if (access->rules
#if (NGX_HAVE_INET6)
            || access->rules6
#endif
#if (NGX_HAVE_UNIX_DOMAIN)
            || access->rules_un
#endif
           )
        {
            return 0;
        }
    }

    m = ngx_http_kv_router_module_named(cf, "ngx_http_auth_basic_module");

    if (m) {
        realm = place->core->loc_conf[m->ctx_index];

        if (*realm && (*realm)->value.len
            && ngx_strcmp((*realm)->value.data, "off") != 0)
        {
            return 0;
        }
    }

    m = ngx_http_kv_router_module_named(cf, "ngx_http_auth_request_module");

    if (m) {
        request = place->core->loc_conf[m->ctx_index];

        if (request->len) {
            return 0;
        }
    }

    return ngx_http_kv_router_listens_to_all(cf, place->server);
}


static ngx_uint_t
ngx_http_kv_router_listens_to_all(ngx_conf_t *cf,
    ngx_http_core_srv_conf_t *server)
{
    ngx_uint_t                   i, k, n;
    ngx_http_conf_addr_t        *addr;
    ngx_http_conf_port_t        *port;
    ngx_http_core_srv_conf_t   **servers;
    ngx_http_core_main_conf_t   *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    if (cmcf->ports == NULL) {
        return 0;
    }

    port = cmcf->ports->elts;

    for (i = 0; i < cmcf->ports->nelts; i++) {
        addr = port[i].addrs.elts;

        for (k = 0; k < port[i].addrs.nelts; k++) {

            if (ngx_http_kv_router_is_local(addr[k].opt.sockaddr)) {
                continue;
            }

            servers = addr[k].servers.elts;

            for (n = 0; n < addr[k].servers.nelts; n++) {
                if (servers[n] == server) {
                    return 1;
                }
            }
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_kv_router_is_local(struct sockaddr *sa)
{
    struct sockaddr_in   *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6  *sin6;
#endif

    switch (sa->sa_family) {

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) sa;
        return IN6_IS_ADDR_LOOPBACK(&sin6->sin6_addr) != 0;
#endif

    case AF_INET:
        sin = (struct sockaddr_in *) sa;
        return (ntohl(sin->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;

    default: /* AF_UNIX */
        return 1;
    }
}


/* ---- upstreams ---------------------------------------------------------- */

/*
 * A balancer that stands behind "keepalive" takes its place: connections are
 * not kept.  If "keepalive" comes last, requests begin in a function of the
 * binary of nginx, where that module is; else in a function of the Lua module,
 * which has an address of its own when it is loaded dynamically.  The first
 * field of the module's configuration is the number of connections until nginx
 * 1.28; later versions keep connections by default.
 */

void
ngx_http_kv_router_tell_keepalive(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *upstream)
{
#if (nginx_version < 1029000)
    Dl_info        nginx, balancer;
    ngx_uint_t    *connections;
    ngx_module_t  *m;

    m = ngx_http_kv_router_module_named(cf,
                                        "ngx_http_upstream_keepalive_module");

    if (m == NULL || upstream->peer.init == NULL) {
        return;
    }

    connections = upstream->srv_conf[m->ctx_index];

    if (*connections == 0
        || !dladdr((void *) (uintptr_t) ngx_http_upstream_init_round_robin,
                   &nginx)
        || !dladdr((void *) (uintptr_t) upstream->peer.init, &balancer)
        || nginx.dli_fbase == balancer.dli_fbase)
    {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                  "\"keepalive %ui\" of upstream \"%V\" in %s:%ui has no "
                  "effect, because it stands before the balancer: write it "
                  "behind \"balancer_by_lua_block\"", *connections,
                  &upstream->host, upstream->file_name, upstream->line);
#endif
}
