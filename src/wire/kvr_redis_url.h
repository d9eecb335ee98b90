/*
 * Copyright (C) the nginx-kv-router authors
 *
 * URLs of Redis, as the router and kv-relay take them:
 *
 *     redis://[[user:]password@]host[:port][/db]
 *     rediss://…                                       with TLS
 *     unix:/path[?db=N]
 *     unix://[[user:]password@]/path[?db=N]
 *     redis-sentinel://[[user:]password@]host[:port]/MASTER[/db]
 *     rediss-sentinel://…                              with TLS
 *
 * The last two name a Sentinel, which is asked for the address of the master;
 * users and passwords are those of the master, and are tried on the Sentinel.
 *
 * %XX is decoded in users, passwords, hosts and paths.  IPv6 addresses have
 * brackets.  A word without a colon is the password, as redis-cli has it.
 */


#ifndef KVR_REDIS_URL_H_INCLUDED
#define KVR_REDIS_URL_H_INCLUDED


#include "../kvr.h"


/* Bytes, with the null byte: a DNS name fits, and the path of a socket. */
#define KVR_REDIS_URL_PART      256

/* The same of passwords: tokens of cloud providers have over a thousand. */
#define KVR_REDIS_URL_PASSWORD  4096

/* Bytes that a masked text may have more than the text. */
#define KVR_REDIS_URL_MASK      3


typedef struct {
    char        host[KVR_REDIS_URL_PART];       /* without brackets; or the
                                                   socket's path */
    char        user[KVR_REDIS_URL_PART];       /* "": none */
    char        password[KVR_REDIS_URL_PASSWORD];   /* "": none */
    uint32_t    port;                           /* 0: a unix socket */
    uint32_t    db;                             /* 0..INT32_MAX */
    bool        tls;
    char        master[KVR_REDIS_URL_PART];     /* "": no Sentinel */
    char        name[2 * KVR_REDIS_URL_PART + 32];  /* for logs: no secrets */
} kvr_redis_url_t;


/* Does the text begin as a URL of Redis does? */
bool kvr_redis_url_is(const char *text, size_t len);

/*
 * Takes a URL of len bytes to pieces.  NULL, or what is wrong with the URL: a
 * sentence without its subject, of no part of the URL, that lives forever.
 */
const char *kvr_redis_url_parse(kvr_redis_url_t *url, const char *text,
    size_t len);

/*
 * Writes the text, be it a URL or not, without what may be a password, to out,
 * which has room for len + KVR_REDIS_URL_MASK bytes.  Answers how many bytes
 * were written; there is no null byte behind them.
 */
size_t kvr_redis_url_mask(char *out, const char *text, size_t len);


#endif /* KVR_REDIS_URL_H_INCLUDED */
