/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TLS to Redis, by OpenSSL.  The server's certificate is verified within the
 * handshake, so that nothing is said to another one.
 */


#ifndef KVR_RELAY_TLS_H_INCLUDED
#define KVR_RELAY_TLS_H_INCLUDED


#include "kvr_relay_options.h"

#include "wire/kvr_redis_url.h"

#include <openssl/ssl.h>


#define KVR_RELAY_TLS_WHY  160      /* bytes of what is wrong */


/* What a call of OpenSSL is about to do next. */
typedef enum {
    KVR_RELAY_TLS_FAILED,           /* why says it */
    KVR_RELAY_TLS_READ,             /* the call again when there is input, */
    KVR_RELAY_TLS_WRITE             /* or room for output */
} kvr_relay_tls_next_t;


/* Can the files of the options be used?  If not, why says what is wrong. */
bool kvr_relay_tls_check(const kvr_relay_options_t *o,
    char why[KVR_RELAY_TLS_WHY]);

/*
 * A client for a socket that is connected; it is the caller's to free, before
 * the socket is closed.  Files are read anew each time, so that those that
 * were renewed are taken.  NULL: why says what is wrong.
 */
SSL *kvr_relay_tls_create(const kvr_relay_options_t *o,
    const kvr_redis_url_t *url, int fd, char why[KVR_RELAY_TLS_WHY]);

/*
 * After SSL_connect(), SSL_read() or SSL_write() returned rc, which is not
 * positive; ERR_clear_error() was called before.
 */
kvr_relay_tls_next_t kvr_relay_tls_next(const SSL *ssl, int rc,
    char why[KVR_RELAY_TLS_WHY]);


#endif /* KVR_RELAY_TLS_H_INCLUDED */
