
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Sentinel: the address of a master, asked for before each connection to it.
 */


#include "ngx_http_kv_router_redis_link.h"


static void ngx_http_kv_router_redis_set_master(
    ngx_http_kv_router_redis_t *r, const ngx_sockaddr_t *sa,
    socklen_t socklen);
static ngx_int_t ngx_http_kv_router_redis_master_addr(
    ngx_http_kv_router_redis_t *r, const kvr_reply_t *host,
    const kvr_reply_t *port);


ngx_uint_t
ngx_http_kv_router_redis_has_master(ngx_http_kv_router_redis_t *r,
    const ngx_http_kv_router_redis_server_t *server)
{
    ngx_http_kv_router_redis_t  *from;

    r->asking = 0;

    if (server->master.len == 0) {
        r->master.socklen = 0;
        return 0;
    }

    from = r->leader;

    if (from) {
        ngx_http_kv_router_redis_set_master(r, &from->master_addr,
                                            from->master.socklen);
        return 1;
    }

    if (r->found) {
        r->found = 0;
        return 1;
    }

    r->asking = 1;

    return 0;
}


static void
ngx_http_kv_router_redis_set_master(ngx_http_kv_router_redis_t *r,
    const ngx_sockaddr_t *sa, socklen_t socklen)
{
    r->master_addr = *sa;

    r->master.sockaddr = &r->master_addr.sockaddr;
    r->master.socklen = socklen;

    r->master.name.data = r->master_text;
    r->master.name.len = ngx_sock_ntop(r->master.sockaddr, socklen,
                                       r->master_text, NGX_SOCKADDR_STRLEN, 1);

    r->master_host.data = r->master_host_text;
    r->master_host.len = ngx_sock_ntop(r->master.sockaddr, socklen,
                                       r->master_host_text,
                                       NGX_SOCKADDR_STRLEN, 0);
}


ngx_uint_t
ngx_http_kv_router_redis_same_master(ngx_http_kv_router_redis_t *a,
    ngx_http_kv_router_redis_t *b)
{
    if (a->master.socklen == 0 || b->master.socklen == 0) {
        return a->master.socklen == b->master.socklen;
    }

    return ngx_cmp_sockaddr(a->master.sockaddr, a->master.socklen,
                            b->master.sockaddr, b->master.socklen, 1)
           == NGX_OK;
}


char *
ngx_http_kv_router_redis_sentinel_reply(ngx_http_kv_router_redis_t *r,
    const ngx_http_kv_router_redis_server_t *server, const kvr_reply_t *reply,
    ngx_str_t *detail)
{
    u_char       before[NGX_SOCKADDR_STRLEN];
    size_t       len;
    kvr_reply_t  host, port;

    if (reply->type == KVR_REPLY_NIL) {
        *detail = server->master;
        return "the Sentinel knows no master";
    }

    if (reply->type == KVR_REPLY_ERROR) {
        detail->data = (u_char *) reply->text;
        detail->len = reply->len;
        return "the Sentinel refused";
    }

    ngx_memzero(&host, sizeof(kvr_reply_t));
    ngx_memzero(&port, sizeof(kvr_reply_t));

    if (reply->type == KVR_REPLY_ARRAY && reply->len == 2) {
        host = kvr_reply_element(reply, 0);
        port = kvr_reply_element(reply, 1);
    }

    if (host.type != KVR_REPLY_STRING || port.type != KVR_REPLY_STRING) {
        ngx_str_set(detail, "another answer than an address");
        return "the Sentinel does not answer as one";
    }

    len = r->master.socklen ? r->master.name.len : 0;
    ngx_memcpy(before, r->master_text, len);

    if (ngx_http_kv_router_redis_master_addr(r, &host, &port) != NGX_OK) {
        detail->data = (u_char *) host.text;
        detail->len = host.len;
        return "the Sentinel's address of the master is no IP address, set "
               "\"sentinel announce-hostnames no\"";
    }

    if (r->master.name.len != len
        || ngx_memcmp(before, r->master_text, len) != 0)
    {
        ngx_log_error((r->beside ? NGX_LOG_INFO : NGX_LOG_NOTICE), &r->log,
                      0, "redis master is \"%V\"", &r->master.name);
    }

    return NULL;
}


static ngx_int_t
ngx_http_kv_router_redis_master_addr(ngx_http_kv_router_redis_t *r,
    const kvr_reply_t *host, const kvr_reply_t *port)
{
    size_t           len;
    ngx_int_t        n;
    socklen_t        socklen;
    ngx_sockaddr_t   sa;

    n = ngx_atoi((u_char *) port->text, port->len);
    len = host->len;

    if (n < 1 || n > 65535) {
        return NGX_ERROR;
    }

    ngx_memzero(&sa, sizeof(ngx_sockaddr_t));

    sa.sockaddr_in.sin_addr.s_addr = ngx_inet_addr((u_char *) host->text, len);

    if (sa.sockaddr_in.sin_addr.s_addr != INADDR_NONE) {
        sa.sockaddr_in.sin_family = AF_INET;
        socklen = sizeof(struct sockaddr_in);

#if (NGX_HAVE_INET6)
    } else if (ngx_inet6_addr((u_char *) host->text, len,
                              sa.sockaddr_in6.sin6_addr.s6_addr)
               == NGX_OK)
    {
        sa.sockaddr_in6.sin6_family = AF_INET6;
        socklen = sizeof(struct sockaddr_in6);
#endif

    } else {
        return NGX_ERROR;
    }

    ngx_inet_set_port(&sa.sockaddr, (in_port_t) n);

    ngx_http_kv_router_redis_set_master(r, &sa, socklen);

    return NGX_OK;
}
