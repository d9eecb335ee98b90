
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_client.h"

#include <ngx_event_connect.h>


#define NGX_HTTP_KV_ROUTER_CLIENT_BUF  16384    /* bytes, at first */


struct ngx_http_kv_router_client_s {
    ngx_pool_t                     *pool;      /* the client is in it */
    ngx_peer_connection_t           peer;
    ngx_log_t                      *log;
    ngx_http_kv_router_tls_t       *tls;       /* NULL: none */
    ngx_str_t                       request;
    size_t                          sent;
    u_char                         *buf;
    size_t                          got;
    size_t                          size;
    size_t                          max;
    ngx_http_kv_router_client_pt    handler;
    void                           *data;
};


static ngx_int_t ngx_http_kv_router_client_connect(
    ngx_http_kv_router_client_t *client, ngx_str_t *address,
    const char **why);
static ngx_int_t ngx_http_kv_router_client_write_request(
    ngx_http_kv_router_client_t *client, ngx_str_t *host, ngx_str_t *uri,
    ngx_str_t *headers, ngx_str_t *body);
static void ngx_http_kv_router_client_connected(ngx_event_t *ev);
static void ngx_http_kv_router_client_secured(ngx_connection_t *c);
static void ngx_http_kv_router_client_write(ngx_event_t *wev);
static void ngx_http_kv_router_client_read(ngx_event_t *rev);
static ngx_int_t ngx_http_kv_router_client_grow(
    ngx_http_kv_router_client_t *client);
static void ngx_http_kv_router_client_done(ngx_http_kv_router_client_t *client,
    const kvr_http_answer_t *answer, const char *why);


ngx_int_t
ngx_http_kv_router_client_ask(ngx_http_kv_router_client_t **out,
    ngx_http_kv_router_zone_t *zone, ngx_str_t *address, ngx_str_t *uri,
    ngx_str_t *body, ngx_msec_t timeout, size_t max, ngx_log_t *log,
    ngx_http_kv_router_client_pt handler, void *data, const char **why)
{
    ngx_int_t                     rc;
    ngx_str_t                     host;
    ngx_pool_t                   *pool;
    ngx_http_kv_router_client_t  *client;

    *out = NULL;
    *why = "no memory";

    pool = ngx_create_pool(2048, log);
    if (pool == NULL) {
        return NGX_ERROR;
    }

    client = ngx_pcalloc(pool, sizeof(ngx_http_kv_router_client_t));
    if (client == NULL) {
        ngx_destroy_pool(pool);
        return NGX_ERROR;
    }

    client->pool = pool;
    client->log = log;
    client->tls = zone->conf.engine_tls.ssl ? &zone->conf.engine_tls : NULL;
    client->max = max;
    client->handler = handler;
    client->data = data;

    ngx_str_set(&host, "localhost");

    if (ngx_strncmp(address->data, "unix:", 5) != 0) {
        host = *address;
    }

    rc = ngx_http_kv_router_client_write_request(client, &host, uri,
                                                 &zone->conf.engine_headers,
                                                 body);

    if (rc == NGX_OK) {
        rc = ngx_http_kv_router_client_connect(client, address, why);
    }

    if (rc != NGX_OK) {
        ngx_http_kv_router_client_cancel(client);
        return rc;
    }

    ngx_add_timer(client->peer.connection->read, timeout);

    *out = client;

    return NGX_OK;
}


void
ngx_http_kv_router_client_cancel(ngx_http_kv_router_client_t *client)
{
    if (client->peer.connection) {
        ngx_http_kv_router_tls_close(client->peer.connection);
        ngx_close_connection(client->peer.connection);
    }

    if (client->buf) {
        ngx_free(client->buf);
    }

    ngx_destroy_pool(client->pool);
}


static ngx_int_t
ngx_http_kv_router_client_connect(ngx_http_kv_router_client_t *client,
    ngx_str_t *address, const char **why)
{
    ngx_int_t          rc;
    ngx_url_t          u;
    ngx_connection_t  *c;

    ngx_memzero(&u, sizeof(ngx_url_t));
    u.url = *address;
    u.no_resolve = 1;

    if (ngx_parse_url(client->pool, &u) != NGX_OK || u.naddrs == 0) {
        *why = "the address is no IP address with a port";
        return NGX_ERROR;
    }

    client->peer.sockaddr = u.addrs[0].sockaddr;
    client->peer.socklen = u.addrs[0].socklen;
    client->peer.name = &u.addrs[0].name;
    client->peer.get = ngx_event_get_peer;
    client->peer.log = client->log;
    client->peer.log_error = NGX_ERROR_ERR;

    rc = ngx_event_connect_peer(&client->peer);

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        *why = "no connection";
        return rc == NGX_DECLINED ? NGX_DECLINED : NGX_ERROR;
    }

    c = client->peer.connection;

    c->data = client;
    c->pool = client->pool;
    c->idle = 1;                    /* an exiting process need not wait */
    c->log = client->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = client->tls ? ngx_http_kv_router_client_connected
                                   : ngx_http_kv_router_client_read;
    c->write->handler = client->tls ? ngx_http_kv_router_client_connected
                                    : ngx_http_kv_router_client_write;
    c->read->cancelable = 1;

    if (rc == NGX_OK) {
        ngx_post_event(c->write, &ngx_posted_events);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_client_write_request(ngx_http_kv_router_client_t *client,
    ngx_str_t *host, ngx_str_t *uri, ngx_str_t *headers, ngx_str_t *body)
{
    u_char  *p;
    size_t   len;

    static char  get[] = "GET %V HTTP/1.1" CRLF "Host: %V" CRLF
                         "User-Agent: nginx-kv-router" CRLF
                         "Connection: close" CRLF "%V" CRLF;
    static char  post[] = "POST %V HTTP/1.1" CRLF "Host: %V" CRLF
                          "User-Agent: nginx-kv-router" CRLF
                          "Connection: close" CRLF "%V"
                          "Content-Type: application/json" CRLF
                          "Content-Length: %uz" CRLF CRLF "%V";

    len = sizeof(post) + NGX_SIZE_T_LEN + uri->len + host->len + headers->len
          + (body ? body->len : 0);

    p = ngx_pnalloc(client->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    client->request.data = p;

    if (body) {
        p = ngx_sprintf(p, post, uri, host, headers, body->len, body);
    } else {
        p = ngx_sprintf(p, get, uri, host, headers);
    }

    client->request.len = p - client->request.data;

    return NGX_OK;
}


/* The first event of a connection with TLS, or its timer. */

static void
ngx_http_kv_router_client_connected(ngx_event_t *ev)
{
    int                           err;
    socklen_t                     len;
    ngx_connection_t             *c;
    ngx_http_kv_router_client_t  *client;

    c = ev->data;
    client = c->data;

    if (c->close) {
        ngx_http_kv_router_client_done(client, NULL, NULL);
        return;
    }

    if (ev->timedout) {
        ngx_http_kv_router_client_done(client, NULL, "timeout");
        return;
    }

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1
        || err
        || ngx_http_kv_router_tls_begin(client->tls, c,
                                        client->tls->name.len
                                        ? &client->tls->name : NULL)
           != NGX_OK)
    {
        ngx_http_kv_router_client_done(client, NULL, "no connection");
        return;
    }

    if (ngx_http_kv_router_tls_handshake(c, ngx_http_kv_router_client_secured)
        != NGX_AGAIN)
    {
        ngx_http_kv_router_client_secured(c);
    }
}


static void
ngx_http_kv_router_client_secured(ngx_connection_t *c)
{
    ngx_int_t                     rc;
    ngx_str_t                     detail;
    ngx_http_kv_router_client_t  *client;

    client = c->data;

    if (!ngx_http_kv_router_tls_done(c)) {
        ngx_http_kv_router_client_done(client, NULL, c->read->timedout
                                                     ? "timeout"
                                                     : "SSL handshake failed");
        return;
    }

    rc = ngx_http_kv_router_tls_check(client->tls, c, &client->tls->name, 0,
                                      &detail);

    if (rc != NGX_OK) {
        ngx_http_kv_router_client_done(client, NULL, rc == NGX_DECLINED
                                       ? "its certificate does not match "
                                         "ssl_name"
                                       : "its certificate can't be verified");
        return;
    }

    c->read->handler = ngx_http_kv_router_client_read;
    c->write->handler = ngx_http_kv_router_client_write;

    ngx_post_event(c->write, &ngx_posted_events);
}


static void
ngx_http_kv_router_client_write(ngx_event_t *wev)
{
    ssize_t                       n;
    ngx_connection_t             *c;
    ngx_http_kv_router_client_t  *client;

    c = wev->data;
    client = c->data;

    while (client->sent < client->request.len) {

        n = c->send(c, client->request.data + client->sent,
                    client->request.len - client->sent);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n <= 0) {
            ngx_http_kv_router_client_done(client, NULL, "no connection");
            return;
        }

        client->sent += n;
    }

    if (ngx_handle_write_event(wev, 0) != NGX_OK) {
        ngx_http_kv_router_client_done(client, NULL, "no connection");
    }
}


static void
ngx_http_kv_router_client_read(ngx_event_t *rev)
{
    ssize_t                       n;
    kvr_rc_t                      rc;
    kvr_http_answer_t             answer;
    ngx_connection_t             *c;
    ngx_http_kv_router_client_t  *client;

    c = rev->data;
    client = c->data;

    if (c->close) {
        ngx_http_kv_router_client_done(client, NULL, NULL);
        return;
    }

    if (rev->timedout) {
        ngx_http_kv_router_client_done(client, NULL, "timeout");
        return;
    }

    for ( ;; ) {

        if (client->got == client->size
            && ngx_http_kv_router_client_grow(client) != NGX_OK)
        {
            ngx_http_kv_router_client_done(client, NULL,
                                           client->size == client->max
                                           ? "the answer is too long"
                                           : "no memory");
            return;
        }

        n = c->recv(c, client->buf + client->got, client->size - client->got);

        if (n == NGX_AGAIN) {

            if (ngx_handle_read_event(rev, 0) != NGX_OK) {
                ngx_http_kv_router_client_done(client, NULL, "no connection");
            }

            return;
        }

        if (n == NGX_ERROR) {
            ngx_http_kv_router_client_done(client, NULL, "no answer");
            return;
        }

        client->got += n;

        rc = kvr_http_answer((char *) client->buf, client->got, n == 0,
                             &answer);

        if (rc == KVR_OK) {
            ngx_http_kv_router_client_done(client, &answer, NULL);
            return;
        }

        if (rc != KVR_BUSY) {
            ngx_http_kv_router_client_done(client, NULL, client->got
                                           ? "the answer is no HTTP"
                                           : "no answer");
            return;
        }
    }
}


static ngx_int_t
ngx_http_kv_router_client_grow(ngx_http_kv_router_client_t *client)
{
    size_t   size;
    u_char  *p;

    size = client->size ? 2 * client->size : NGX_HTTP_KV_ROUTER_CLIENT_BUF;
    size = ngx_min(size, client->max);

    if (size == client->size) {
        return NGX_ERROR;
    }

    p = ngx_alloc(size, client->log);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (client->buf) {
        ngx_memcpy(p, client->buf, client->got);
        ngx_free(client->buf);
    }

    client->buf = p;
    client->size = size;

    return NGX_OK;
}


static void
ngx_http_kv_router_client_done(ngx_http_kv_router_client_t *client,
    const kvr_http_answer_t *answer, const char *why)
{
    client->handler(client->data, answer, why);

    ngx_http_kv_router_client_cancel(client);
}
