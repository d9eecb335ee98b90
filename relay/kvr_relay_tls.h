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


/*
 * Can the files that the options name be used?  If not, why says what is
 * wrong.
 */
bool kvr_relay_tls_check(const kvr_relay_options_t *o,
    char why[KVR_RELAY_TLS_WHY]);

/*
 * Makes a client, to be pushed on the BIO of a socket.  The files are read
 * each time, so that renewed files are used.  NULL: why says what is wrong.
 */
BIO *kvr_relay_tls_create(const kvr_relay_options_t *o,
    const kvr_redis_url_t *url, char why[KVR_RELAY_TLS_WHY]);

/* Says in why what OpenSSL's first error means. */
void kvr_relay_tls_reason(const SSL *ssl, char why[KVR_RELAY_TLS_WHY]);


#endif /* KVR_RELAY_TLS_H_INCLUDED */
