/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <unistd.h>


#define KVR_RELAY_TLS_DEPTH  10         /* of chains */


static SSL_CTX *kvr_relay_tls_context(const kvr_relay_options_t *o,
    char why[KVR_RELAY_TLS_WHY]);
static bool kvr_relay_tls_trust(SSL_CTX *ctx, const kvr_relay_options_t *o,
    char why[KVR_RELAY_TLS_WHY]);
static bool kvr_relay_tls_own(SSL_CTX *ctx, const kvr_relay_options_t *o,
    char why[KVR_RELAY_TLS_WHY]);
static bool kvr_relay_tls_file(const char *option, const char *file,
    char why[KVR_RELAY_TLS_WHY]);
static int kvr_relay_tls_no_password(char *buf, int size, int rwflag,
    void *data);
static bool kvr_relay_tls_expect(SSL *ssl, const char *name);


bool
kvr_relay_tls_check(const kvr_relay_options_t *o, char why[KVR_RELAY_TLS_WHY])
{
    SSL_CTX  *ctx;

    ctx = kvr_relay_tls_context(o, why);
    SSL_CTX_free(ctx);

    return ctx != NULL;
}


BIO *
kvr_relay_tls_create(const kvr_relay_options_t *o, const kvr_redis_url_t *url,
    char why[KVR_RELAY_TLS_WHY])
{
    BIO      *bio;
    SSL      *ssl;
    SSL_CTX  *ctx;

    ctx = kvr_relay_tls_context(o, why);
    if (ctx == NULL) {
        return NULL;
    }

    bio = BIO_new_ssl(ctx, 1);
    SSL_CTX_free(ctx);

    if (bio == NULL || BIO_get_ssl(bio, &ssl) != 1
        || !kvr_relay_tls_expect(ssl, o->redis_name ? o->redis_name
                                                    : url->host))
    {
        snprintf(why, KVR_RELAY_TLS_WHY, "no TLS: out of memory, or a name "
                 "that is none");
        BIO_free_all(bio);
        return NULL;
    }

    return bio;
}


static SSL_CTX *
kvr_relay_tls_context(const kvr_relay_options_t *o,
    char why[KVR_RELAY_TLS_WHY])
{
    SSL_CTX  *ctx;

    ERR_clear_error();

    ctx = SSL_CTX_new(TLS_client_method());

    if (ctx == NULL
        || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 0)
    {
        snprintf(why, KVR_RELAY_TLS_WHY, "no TLS: out of memory");
        SSL_CTX_free(ctx);
        return NULL;
    }

    (void) SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
    (void) SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE
                                 | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_default_passwd_cb(ctx, kvr_relay_tls_no_password);

    if (!kvr_relay_tls_trust(ctx, o, why) || !kvr_relay_tls_own(ctx, o, why)) {
        SSL_CTX_free(ctx);
        return NULL;
    }

    return ctx;
}


static bool
kvr_relay_tls_trust(SSL_CTX *ctx, const kvr_relay_options_t *o,
    char why[KVR_RELAY_TLS_WHY])
{
    if (!o->redis_verify) {
        SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE, NULL);
        return true;
    }

    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_verify_depth(ctx, KVR_RELAY_TLS_DEPTH);

    if (o->redis_ca == NULL) {
        if (SSL_CTX_set_default_verify_paths(ctx) == 0) {
            snprintf(why, KVR_RELAY_TLS_WHY, "no TLS: the system's "
                     "authorities can't be read");
            return false;
        }

        return true;
    }

    if (!kvr_relay_tls_file("redis-ca", o->redis_ca, why)) {
        return false;
    }

    if (SSL_CTX_load_verify_locations(ctx, o->redis_ca, NULL) == 0) {
        snprintf(why, KVR_RELAY_TLS_WHY, "--redis-ca: %.100s has no "
                 "certificate in the PEM format", o->redis_ca);
        return false;
    }

    return true;
}


/* Loads the client's own certificate and key, which the server may ask for. */

static bool
kvr_relay_tls_own(SSL_CTX *ctx, const kvr_relay_options_t *o,
    char why[KVR_RELAY_TLS_WHY])
{
    if (o->redis_cert == NULL) {
        return true;
    }

    if (!kvr_relay_tls_file("redis-cert", o->redis_cert, why)
        || !kvr_relay_tls_file("redis-key", o->redis_key, why))
    {
        return false;
    }

    if (SSL_CTX_use_certificate_chain_file(ctx, o->redis_cert) != 1) {
        snprintf(why, KVR_RELAY_TLS_WHY, "--redis-cert: %.100s has no "
                 "certificate in the PEM format", o->redis_cert);
        return false;
    }

    if (SSL_CTX_use_PrivateKey_file(ctx, o->redis_key, SSL_FILETYPE_PEM) != 1)
    {
        snprintf(why, KVR_RELAY_TLS_WHY, "--redis-key: %.60s has not the "
                 "certificate's key, in the PEM format and without a "
                 "password", o->redis_key);
        return false;
    }

    return true;
}


/*
 * Says which file can't be read.  OpenSSL's own message does not name the
 * file.
 */

static bool
kvr_relay_tls_file(const char *option, const char *file,
    char why[KVR_RELAY_TLS_WHY])
{
    if (access(file, R_OK) == 0) {
        return true;
    }

    snprintf(why, KVR_RELAY_TLS_WHY, "--%s: %.80s: %s", option,
             kvr_relay_shown(file), strerror(errno));

    return false;
}


/* Refuses to ask for the password of a key: there is no terminal. */

static int
kvr_relay_tls_no_password(char *buf, int size, int rwflag, void *data)
{
    return 0;
}


static bool
kvr_relay_tls_expect(SSL *ssl, const char *name)
{
    uint8_t  address[sizeof(struct in6_addr)];

    if (inet_pton(AF_INET, name, address) == 1
        || inet_pton(AF_INET6, name, address) == 1)
    {
        /* an IP address is not sent as a server name (RFC 6066) */

        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    }

    return SSL_set1_host(ssl, name) == 1
           && SSL_set_tlsext_host_name(ssl, name) == 1;
}


void
kvr_relay_tls_reason(const SSL *ssl, char why[KVR_RELAY_TLS_WHY])
{
    long           verified;
    const char    *text;
    unsigned long  error;

    error = ERR_peek_error();

    switch (ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0) {

    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        verified = SSL_get_verify_result(ssl);

        snprintf(why, KVR_RELAY_TLS_WHY, "the server's certificate %s: %s",
                 verified == X509_V_ERR_HOSTNAME_MISMATCH
                 || verified == X509_V_ERR_IP_ADDRESS_MISMATCH
                 ? "does not match" : "can't be verified",
                 X509_verify_cert_error_string(verified));
        return;

    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_HTTP_REQUEST:
        snprintf(why, KVR_RELAY_TLS_WHY, "the server speaks no TLS");
        return;

    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        snprintf(why, KVR_RELAY_TLS_WHY, "the server demands a client "
                 "certificate: --redis-cert");
        return;

#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
        snprintf(why, KVR_RELAY_TLS_WHY, "the server closed the connection%s",
                 SSL_is_init_finished(ssl)
                 ? "" : " in the TLS handshake: it may speak none");
        return;
#endif
    }

    text = ERR_reason_error_string(error);

    snprintf(why, KVR_RELAY_TLS_WHY, "TLS: %s", text ? text : "failed");
}
