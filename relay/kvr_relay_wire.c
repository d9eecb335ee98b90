/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay_wire.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>


static bool kvr_relay_wire_unix(kvr_relay_wire_t *w, const char *path);
static bool kvr_relay_wire_connect(kvr_relay_wire_t *w, int family,
    const struct sockaddr *address, socklen_t len);
static bool kvr_relay_wire_connected(kvr_relay_wire_t *w);
static ssize_t kvr_relay_wire_tls(kvr_relay_wire_t *w, int rc, bool *waits,
    kvr_relay_tls_next_t other);
static void kvr_relay_wire_failed(kvr_relay_wire_t *w, int err);
static ssize_t kvr_relay_wire_plain(kvr_relay_wire_t *w, ssize_t n);
static void kvr_relay_wire_clear(void);


bool
kvr_relay_wire_open(kvr_relay_wire_t *w, const kvr_redis_url_t *url)
{
    int              rc;
    char             port[16];
    struct addrinfo  hints;

    if (url->port == 0) {
        return kvr_relay_wire_unix(w, url->host);
    }

    memset(&hints, 0, sizeof(struct addrinfo));
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;

    snprintf(port, sizeof(port), "%u", url->port);

    rc = getaddrinfo(url->host, port, &hints, &w->found);

    if (rc != 0) {
        snprintf(w->why, sizeof(w->why), "%s", gai_strerror(rc));
        w->found = NULL;
        return false;
    }

    w->next = w->found;

    return kvr_relay_wire_next(w);
}


static bool
kvr_relay_wire_unix(kvr_relay_wire_t *w, const char *path)
{
    struct sockaddr_un  address;

    memset(&address, 0, sizeof(struct sockaddr_un));
    address.sun_family = AF_UNIX;

    if (strlen(path) >= sizeof(address.sun_path)) {
        snprintf(w->why, sizeof(w->why), "the path is too long for a socket");
        return false;
    }

    strcpy(address.sun_path, path);

    return kvr_relay_wire_connect(w, AF_UNIX, (struct sockaddr *) &address,
                                  sizeof(struct sockaddr_un));
}


bool
kvr_relay_wire_next(kvr_relay_wire_t *w)
{
    struct addrinfo  *a;

    while (w->next != NULL) {
        a = w->next;
        w->next = a->ai_next;

        if (kvr_relay_wire_connect(w, a->ai_family, a->ai_addr,
                                   a->ai_addrlen))
        {
            return true;
        }
    }

    return false;
}


static bool
kvr_relay_wire_connect(kvr_relay_wire_t *w, int family,
    const struct sockaddr *address, socklen_t len)
{
    int  on;

    if (w->phase != KVR_RELAY_WIRE_NONE) {
        SSL_free(w->ssl);
        w->ssl = NULL;
        w->in_writes = false;

        close(w->fd);
        w->phase = KVR_RELAY_WIRE_NONE;
    }

    w->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (w->fd == -1) {
        kvr_relay_wire_failed(w, errno);
        return false;
    }

    if (connect(w->fd, address, len) == -1 && errno != EINPROGRESS) {
        kvr_relay_wire_failed(w, errno);
        close(w->fd);
        return false;
    }

    on = 1;
    (void) setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(int));

    w->phase = KVR_RELAY_WIRE_CONNECTING;

    return true;
}


bool
kvr_relay_wire_step(kvr_relay_wire_t *w, const kvr_redis_url_t *url,
    const kvr_relay_options_t *o)
{
    ssize_t  n;

    if (w->phase == KVR_RELAY_WIRE_CONNECTING) {

        if (!kvr_relay_wire_connected(w)) {
            return kvr_relay_wire_next(w);
        }

        if (!url->tls) {
            w->phase = KVR_RELAY_WIRE_OPEN;
            return true;
        }

        w->ssl = kvr_relay_tls_create(o, url, w->fd, w->why);
        if (w->ssl == NULL) {
            return false;
        }

        w->phase = KVR_RELAY_WIRE_HANDSHAKE;
    }

    kvr_relay_wire_clear();

    n = kvr_relay_wire_tls(w, SSL_connect(w->ssl), &w->in_writes,
                           KVR_RELAY_TLS_WRITE);

    if (n > 0) {
        w->phase = KVR_RELAY_WIRE_OPEN;
    }

    if (n < 0) {
        w->shaken = true;
        return kvr_relay_wire_next(w);
    }

    return true;
}


static bool
kvr_relay_wire_connected(kvr_relay_wire_t *w)
{
    int        err;
    socklen_t  len;

    len = sizeof(int);

    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &err, &len) == -1) {
        err = errno;
    }

    if (err != 0) {
        kvr_relay_wire_failed(w, err);
    }

    return err == 0;
}


/*
 * Keeps the reason of a failed handshake: the next address may only tell that
 * nobody listens.
 */

static void
kvr_relay_wire_failed(kvr_relay_wire_t *w, int err)
{
    if (!w->shaken) {
        snprintf(w->why, sizeof(w->why), "%s", strerror(err));
    }
}


short
kvr_relay_wire_events(const kvr_relay_wire_t *w, bool out)
{
    if (w->phase == KVR_RELAY_WIRE_CONNECTING) {
        return ZMQ_POLLOUT;
    }

    out = out && !w->out_reads && w->phase == KVR_RELAY_WIRE_OPEN;

    if (out || w->in_writes) {
        return ZMQ_POLLIN | ZMQ_POLLOUT;
    }

    return ZMQ_POLLIN;
}


ssize_t
kvr_relay_wire_read(kvr_relay_wire_t *w, char *buf, size_t size)
{
    ssize_t  n;

    kvr_relay_wire_clear();

    if (w->ssl != NULL) {
        return kvr_relay_wire_tls(w, SSL_read(w->ssl, buf,
                                              (int) kvr_min(size, INT_MAX)),
                                  &w->in_writes, KVR_RELAY_TLS_WRITE);
    }

    n = recv(w->fd, buf, size, 0);

    if (n == 0) {
        snprintf(w->why, sizeof(w->why), "the server closed the connection");
        return -1;
    }

    return kvr_relay_wire_plain(w, n);
}


ssize_t
kvr_relay_wire_write(kvr_relay_wire_t *w, const char *buf, size_t len)
{
    kvr_relay_wire_clear();

    if (w->ssl != NULL) {
        return kvr_relay_wire_tls(w, SSL_write(w->ssl, buf,
                                               (int) kvr_min(len, INT_MAX)),
                                  &w->out_reads, KVR_RELAY_TLS_READ);
    }

    return kvr_relay_wire_plain(w, send(w->fd, buf, len, MSG_NOSIGNAL));
}


/*
 * Reads or writes by TLS. waits: set when the call waits for the other
 * direction.
 */

static ssize_t
kvr_relay_wire_tls(kvr_relay_wire_t *w, int rc, bool *waits,
    kvr_relay_tls_next_t other)
{
    kvr_relay_tls_next_t  next;

    *waits = false;

    if (rc > 0) {
        return rc;
    }

    next = kvr_relay_tls_next(w->ssl, rc, w->why);
    *waits = (next == other);

    return next == KVR_RELAY_TLS_FAILED ? -1 : 0;
}


static ssize_t
kvr_relay_wire_plain(kvr_relay_wire_t *w, ssize_t n)
{
    if (n != -1) {
        return n;
    }

    if (errno == EAGAIN || errno == EINTR) {
        return 0;
    }

    snprintf(w->why, sizeof(w->why), "%s", strerror(errno));

    return -1;
}


/* Clears OpenSSL's list of errors, in which libcurl may have left some. */

static void
kvr_relay_wire_clear(void)
{
    ERR_clear_error();
    errno = 0;
}


void
kvr_relay_wire_close(kvr_relay_wire_t *w)
{
    SSL_free(w->ssl);

    if (w->phase != KVR_RELAY_WIRE_NONE) {
        close(w->fd);
    }

    if (w->found != NULL) {
        freeaddrinfo(w->found);
    }

    memset(w, 0, sizeof(kvr_relay_wire_t));
}
