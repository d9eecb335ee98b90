
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TLS to Redis, by nginx's own.  Whose certificate can't be verified gets no
 * password.
 */


#include "ngx_http_kv_router_redis.h"


#if (NGX_SSL)

#define NGX_HTTP_KV_ROUTER_SSL_DEPTH  10        /* certificates of a chain */


static void ngx_http_kv_router_redis_ssl_handler(ngx_connection_t *c);
static ngx_int_t ngx_http_kv_router_redis_ssl_verify(
    ngx_http_kv_router_redis_t *r, ngx_connection_t *c);
static ngx_str_t *ngx_http_kv_router_redis_ssl_name(
    ngx_http_kv_router_redis_t *r, ngx_uint_t *literal);


char *
ngx_http_kv_router_redis_ssl_conf(ngx_conf_t *cf,
    ngx_http_kv_router_redis_conf_t *rcf)
{
    ngx_ssl_t           *ssl;
    ngx_pool_cleanup_t  *cln;

    ssl = ngx_pcalloc(cf->pool, sizeof(ngx_ssl_t));
    if (ssl == NULL) {
        return NGX_CONF_ERROR;
    }

    ssl->log = cf->log;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    if (ngx_ssl_create(ssl, NGX_SSL_TLSv1_2|NGX_SSL_TLSv1_3, NULL) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_ssl_cleanup_ctx;
    cln->data = ssl;

    rcf->ssl = ssl;

    if (rcf->ssl_certificate.len
        && ngx_ssl_certificate(cf, ssl, &rcf->ssl_certificate,
                               &rcf->ssl_certificate_key, NULL)
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (!rcf->ssl_verify) {
        return NGX_CONF_OK;
    }

    if (rcf->ssl_trusted_certificate.len) {
        return ngx_ssl_trusted_certificate(cf, ssl,
                                           &rcf->ssl_trusted_certificate,
                                           NGX_HTTP_KV_ROUTER_SSL_DEPTH)
               == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    SSL_CTX_set_verify_depth(ssl->ctx, NGX_HTTP_KV_ROUTER_SSL_DEPTH);

    if (SSL_CTX_set_default_verify_paths(ssl->ctx) == 0) {
        ngx_ssl_error(NGX_LOG_EMERG, cf->log, 0,
                      "SSL_CTX_set_default_verify_paths() failed");
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


void
ngx_http_kv_router_redis_ssl(ngx_http_kv_router_redis_t *r)
{
    ngx_int_t          rc;
    ngx_str_t         *name;
    ngx_uint_t         literal;
    ngx_connection_t  *c;

    c = r->peer.connection;

    r->log.action = "SSL handshaking with redis";

    c->pool = ngx_create_pool(256, &r->log);

    if (c->pool == NULL
        || ngx_ssl_create_connection(r->zone->redis->ssl, c, NGX_SSL_CLIENT)
           != NGX_OK)
    {
        ngx_http_kv_router_redis_failed(r, 0, "no memory for redis", NULL);
        return;
    }

    name = ngx_http_kv_router_redis_ssl_name(r, &literal);

    /* RFC 6066: an IP address must not be sent as the server's name */

    if (!literal
        && SSL_set_tlsext_host_name(c->ssl->connection, (char *) name->data)
           == 0)
    {
        ngx_http_kv_router_redis_failed(r, 0, "no SSL name for redis", NULL);
        return;
    }

    ngx_http_kv_router_redis_debug(r, "begins TLS");

    /* nginx logs the failure itself: do not log it twice */

    if (ngx_http_kv_router_redis_current(r)->down) {
        r->log.log_level = NGX_LOG_EMERG;
    }

    rc = ngx_ssl_handshake(c);

    if (rc == NGX_AGAIN) {
        ngx_add_timer(c->write, NGX_HTTP_KV_ROUTER_CONNECT);
        c->ssl->handler = ngx_http_kv_router_redis_ssl_handler;
        return;
    }

    ngx_http_kv_router_redis_ssl_handler(c);
}


static void
ngx_http_kv_router_redis_ssl_handler(ngx_connection_t *c)
{
    ngx_http_kv_router_redis_t  *r;

    r = c->data;

    r->log.log_level = ngx_cycle->log->log_level;

    if (!c->ssl->handshaked) {
        ngx_http_kv_router_redis_failed(r,
                                        c->write->timedout ? NGX_ETIMEDOUT : 0,
                                        "SSL handshake failed", NULL);
        return;
    }

    if (c->write->timer_set) {
        ngx_del_timer(c->write);
    }

    if (r->zone->redis->ssl_verify
        && ngx_http_kv_router_redis_ssl_verify(r, c) != NGX_OK)
    {
        return;
    }

    ngx_http_kv_router_redis_talk(r);
}


static ngx_int_t
ngx_http_kv_router_redis_ssl_verify(ngx_http_kv_router_redis_t *r,
    ngx_connection_t *c)
{
    long         rc;
    X509        *cert;
    ngx_int_t    ok;
    ngx_str_t   *name, text;
    ngx_uint_t   literal;

    rc = SSL_get_verify_result(c->ssl->connection);

    if (rc != X509_V_OK) {
        text.data = (u_char *) X509_verify_cert_error_string(rc);
        text.len = ngx_strlen(text.data);

        ngx_http_kv_router_redis_failed(r, 0, "redis's certificate can't be "
                                        "verified", &text);
        return NGX_ERROR;
    }

    name = ngx_http_kv_router_redis_ssl_name(r, &literal);

    if (literal) {
        ok = NGX_ERROR;
        cert = SSL_get_peer_certificate(c->ssl->connection);

        if (cert) {
            ok = X509_check_ip_asc(cert, (char *) name->data, 0) == 1
                 ? NGX_OK : NGX_ERROR;
            X509_free(cert);
        }

    } else {
        ok = ngx_ssl_check_host(c, name);
    }

    if (ok != NGX_OK) {
        ngx_http_kv_router_redis_failed(r, 0, "redis's certificate does not "
                                        "match", name);
    }

    return ok;
}


static ngx_str_t *
ngx_http_kv_router_redis_ssl_name(ngx_http_kv_router_redis_t *r,
    ngx_uint_t *literal)
{
    ngx_http_kv_router_redis_server_t  *server;

    if (r->zone->redis->ssl_name.len) {
        *literal = 0;
        return &r->zone->redis->ssl_name;
    }

    server = ngx_http_kv_router_redis_current(r);

    *literal = server->literal;

    return &server->host;
}


void
ngx_http_kv_router_redis_ssl_close(ngx_connection_t *c)
{
    if (c->ssl) {
        c->ssl->no_wait_shutdown = 1;
        c->ssl->no_send_shutdown = 1;

        (void) ngx_ssl_shutdown(c);
    }

    if (c->pool) {
        ngx_destroy_pool(c->pool);
        c->pool = NULL;
    }
}

#else

char *
ngx_http_kv_router_redis_ssl_conf(ngx_conf_t *cf,
    ngx_http_kv_router_redis_conf_t *rcf)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"rediss://\" requires SSL support");
    return NGX_CONF_ERROR;
}


void
ngx_http_kv_router_redis_ssl(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_redis_failed(r, 0, "no SSL support", NULL);
}


void
ngx_http_kv_router_redis_ssl_close(ngx_connection_t *c)
{
}

#endif
