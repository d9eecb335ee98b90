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
static void kvr_relay_wire_failed(kvr_relay_wire_t *w, int err);
static ssize_t kvr_relay_wire_did(kvr_relay_wire_t *w, int rc, bool *waits,
    int other);
static void kvr_relay_wire_clear(void);
static void kvr_relay_wire_drop(kvr_relay_wire_t *w);


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

    kvr_relay_wire_drop(w);

    w->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (w->fd == -1) {
        kvr_relay_wire_failed(w, errno);
        return false;
    }

    w->bio = BIO_new_socket(w->fd, BIO_CLOSE);

    if (w->bio == NULL) {
        kvr_relay_wire_failed(w, ENOMEM);
        close(w->fd);
        return false;
    }

    if (connect(w->fd, address, len) == -1 && errno != EINPROGRESS) {
        kvr_relay_wire_failed(w, errno);
        kvr_relay_wire_drop(w);
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
    BIO      *tls;
    ssize_t   n;

    if (w->phase == KVR_RELAY_WIRE_CONNECTING) {

        if (!kvr_relay_wire_connected(w)) {
            return kvr_relay_wire_next(w);
        }

        if (!url->tls) {
            w->phase = KVR_RELAY_WIRE_OPEN;
            return true;
        }

        tls = kvr_relay_tls_create(o, url, w->why);
        if (tls == NULL) {
            return false;
        }

        (void) BIO_get_ssl(tls, &w->ssl);
        w->bio = BIO_push(tls, w->bio);
        w->phase = KVR_RELAY_WIRE_HANDSHAKE;
    }

    kvr_relay_wire_clear();

    n = kvr_relay_wire_did(w, (int) BIO_do_handshake(w->bio), &w->in_writes,
                           BIO_FLAGS_WRITE);

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
    kvr_relay_wire_clear();

    return kvr_relay_wire_did(w, BIO_read(w->bio, buf,
                                          (int) kvr_min(size, INT_MAX)),
                              &w->in_writes, BIO_FLAGS_WRITE);
}


ssize_t
kvr_relay_wire_write(kvr_relay_wire_t *w, const char *buf, size_t len)
{
    kvr_relay_wire_clear();

    return kvr_relay_wire_did(w, BIO_write(w->bio, buf,
                                           (int) kvr_min(len, INT_MAX)),
                              &w->out_reads, BIO_FLAGS_READ);
}


/*
 * Looks at what reading, writing or the handshake returned.  waits: set when
 * it waits for the other direction, which TLS may do.
 */

static ssize_t
kvr_relay_wire_did(kvr_relay_wire_t *w, int rc, bool *waits, int other)
{
    *waits = false;

    if (rc > 0) {
        return rc;
    }

    if (BIO_should_retry(w->bio)) {
        *waits = BIO_test_flags(w->bio, other) != 0;
        return 0;
    }

    if (ERR_peek_error() != 0) {
        kvr_relay_tls_reason(w->ssl, w->why);

    } else {
        snprintf(w->why, sizeof(w->why), "%s", errno ? strerror(errno)
                 : "the server closed the connection");
    }

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
    kvr_relay_wire_drop(w);

    if (w->found != NULL) {
        freeaddrinfo(w->found);
    }

    memset(w, 0, sizeof(kvr_relay_wire_t));
}


/* Closes the socket, if there is one. */

static void
kvr_relay_wire_drop(kvr_relay_wire_t *w)
{
    BIO_free_all(w->bio);

    w->bio = NULL;
    w->ssl = NULL;
    w->in_writes = false;
    w->phase = KVR_RELAY_WIRE_NONE;
}
