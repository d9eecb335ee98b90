
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_tls.h"


#if (NGX_SSL)

#define NGX_HTTP_KV_ROUTER_TLS_DEPTH  10        /* certificates of a chain */


char *
ngx_http_kv_router_tls_conf(ngx_conf_t *cf, ngx_http_kv_router_tls_t *tls,
    const char *scheme)
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

    tls->ssl = ssl;

    if (tls->certificate.len
        && ngx_ssl_certificate(cf, ssl, &tls->certificate,
                               &tls->certificate_key, NULL)
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (!tls->verify) {
        return NGX_CONF_OK;
    }

    if (tls->trusted_certificate.len) {
        return ngx_ssl_trusted_certificate(cf, ssl, &tls->trusted_certificate,
                                           NGX_HTTP_KV_ROUTER_TLS_DEPTH)
               == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    SSL_CTX_set_verify_depth(ssl->ctx, NGX_HTTP_KV_ROUTER_TLS_DEPTH);

    if (SSL_CTX_set_default_verify_paths(ssl->ctx) == 0) {
        ngx_ssl_error(NGX_LOG_EMERG, cf->log, 0,
                      "SSL_CTX_set_default_verify_paths() failed");
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_kv_router_tls_begin(ngx_http_kv_router_tls_t *tls,
    ngx_connection_t *c, ngx_str_t *name)
{
    if (ngx_ssl_create_connection(tls->ssl, c, NGX_SSL_CLIENT) != NGX_OK) {
        return NGX_ERROR;
    }

    /* RFC 6066: an IP address must not be sent as the server's name */

    if (name
        && SSL_set_tlsext_host_name(c->ssl->connection, (char *) name->data)
           == 0)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_kv_router_tls_handshake(ngx_connection_t *c,
    ngx_connection_handler_pt handler)
{
    ngx_int_t  rc;

    rc = ngx_ssl_handshake(c);

    if (rc == NGX_AGAIN) {
        c->ssl->handler = handler;
    }

    return rc;
}


ngx_uint_t
ngx_http_kv_router_tls_done(ngx_connection_t *c)
{
    return c->ssl->handshaked;
}


ngx_int_t
ngx_http_kv_router_tls_check(ngx_http_kv_router_tls_t *tls,
    ngx_connection_t *c, ngx_str_t *name, ngx_uint_t literal,
    ngx_str_t *detail)
{
    long        rc;
    X509       *cert;
    ngx_int_t   ok;

    if (!tls->verify) {
        return NGX_OK;
    }

    rc = SSL_get_verify_result(c->ssl->connection);

    if (rc != X509_V_OK) {
        detail->data = (u_char *) X509_verify_cert_error_string(rc);
        detail->len = ngx_strlen(detail->data);

        return NGX_ERROR;
    }

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

    *detail = *name;

    return ok == NGX_OK ? NGX_OK : NGX_DECLINED;
}


void
ngx_http_kv_router_tls_close(ngx_connection_t *c)
{
    if (c->ssl) {
        c->ssl->no_wait_shutdown = 1;
        c->ssl->no_send_shutdown = 1;

        (void) ngx_ssl_shutdown(c);
    }
}

#else

char *
ngx_http_kv_router_tls_conf(ngx_conf_t *cf, ngx_http_kv_router_tls_t *tls,
    const char *scheme)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%s\" requires SSL support",
                       scheme);
    return NGX_CONF_ERROR;
}


/* without SSL no configuration has TLS: none of these is called */

ngx_int_t
ngx_http_kv_router_tls_begin(ngx_http_kv_router_tls_t *tls,
    ngx_connection_t *c, ngx_str_t *name)
{
    return NGX_ERROR;
}


ngx_int_t
ngx_http_kv_router_tls_handshake(ngx_connection_t *c,
    ngx_connection_handler_pt handler)
{
    return NGX_ERROR;
}


ngx_uint_t
ngx_http_kv_router_tls_done(ngx_connection_t *c)
{
    return 0;
}


ngx_int_t
ngx_http_kv_router_tls_check(ngx_http_kv_router_tls_t *tls,
    ngx_connection_t *c, ngx_str_t *name, ngx_uint_t literal,
    ngx_str_t *detail)
{
    return NGX_ERROR;
}


void
ngx_http_kv_router_tls_close(ngx_connection_t *c)
{
}

#endif
