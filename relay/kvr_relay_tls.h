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


/* What must happen before the call of OpenSSL is repeated. */
typedef enum {
    KVR_RELAY_TLS_FAILED,           /* why says it */
    KVR_RELAY_TLS_READ,             /* repeat the call when there is input */
    KVR_RELAY_TLS_WRITE             /* or room for output */
} kvr_relay_tls_next_t;


/*
 * Can the files that the options name be used?  If not, why says what is
 * wrong.
 */
bool kvr_relay_tls_check(const kvr_relay_options_t *o,
    char why[KVR_RELAY_TLS_WHY]);

/*
 * Makes a client for a connected socket.  The caller must free the client
 * before it closes the socket.  The files are read each time, so that renewed
 * files are used.  NULL: why says what is wrong.
 */
SSL *kvr_relay_tls_create(const kvr_relay_options_t *o,
    const kvr_redis_url_t *url, int fd, char why[KVR_RELAY_TLS_WHY]);

/*
 * Tells what to do after SSL_connect(), SSL_read() or SSL_write() returned rc,
 * which is not positive.  ERR_clear_error() must have been called before them.
 */
kvr_relay_tls_next_t kvr_relay_tls_next(const SSL *ssl, int rc,
    char why[KVR_RELAY_TLS_WHY]);


#endif /* KVR_RELAY_TLS_H_INCLUDED */
