
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TLS as a client, of the connections to Redis and to engines, by nginx's own.
 *
 *     begin ──► nginx's handshake ──► check
 */


#ifndef _NGX_HTTP_KV_ROUTER_TLS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_TLS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>


/* the parameters of a directive, and what was made of them */

typedef struct {
    void                           *ssl;       /* ngx_ssl_t; NULL: no TLS */
    ngx_flag_t                      verify;
    ngx_str_t                       trusted_certificate; /* "": the system's */
    ngx_str_t                       name;      /* terminated; "": the host's */
    ngx_str_t                       certificate;         /* "": none */
    ngx_str_t                       certificate_key;
} ngx_http_kv_router_tls_t;


/*
 * Makes tls->ssl of the other fields.  scheme: in the message of an nginx
 * without SSL.  NGX_CONF_OK, or NGX_CONF_ERROR, logged.
 */
char *ngx_http_kv_router_tls_conf(ngx_conf_t *cf,
    ngx_http_kv_router_tls_t *tls, const char *scheme);

/*
 * Makes a connection one with TLS, whose handshake must follow.  name: sent to
 * the server, terminated; NULL: the server is known by an address.
 */
ngx_int_t ngx_http_kv_router_tls_begin(ngx_http_kv_router_tls_t *tls,
    ngx_connection_t *c, ngx_str_t *name);

/*
 * Begins the handshake, or goes on: NGX_OK: it is done; NGX_AGAIN: handler is
 * called at its end; NGX_ERROR.
 */
ngx_int_t ngx_http_kv_router_tls_handshake(ngx_connection_t *c,
    ngx_connection_handler_pt handler);

/* 1: the handshake succeeded */
ngx_uint_t ngx_http_kv_router_tls_done(ngx_connection_t *c);

/*
 * Is the certificate of the server one for name, by somebody trusted?
 * literal: name is an address.  NGX_ERROR: it can't be verified, and *detail
 * is the reason; NGX_DECLINED: it does not match, and *detail is name.
 */
ngx_int_t ngx_http_kv_router_tls_check(ngx_http_kv_router_tls_t *tls,
    ngx_connection_t *c, ngx_str_t *name, ngx_uint_t literal,
    ngx_str_t *detail);

/* Ends TLS without a word to the server. */
void ngx_http_kv_router_tls_close(ngx_connection_t *c);


#endif /* _NGX_HTTP_KV_ROUTER_TLS_H_INCLUDED_ */
