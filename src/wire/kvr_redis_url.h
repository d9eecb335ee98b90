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


/*
 * The maximum length, with the null byte: a DNS name fits, and the path of a
 * socket.
 */
#define KVR_REDIS_URL_PART      256

/*
 * The maximum length of a password: tokens of cloud providers have over a
 * thousand bytes.
 */
#define KVR_REDIS_URL_PASSWORD  4096

/* The number of bytes by which a masked text can be longer than the text. */
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
 * Parses a URL of len bytes.  Returns NULL, or what is wrong with the URL: a
 * static sentence without a subject, which contains no part of the URL.
 */
const char *kvr_redis_url_parse(kvr_redis_url_t *url, const char *text,
    size_t len);

/*
 * Writes the text, a URL or any other text, to out, and masks what may be a
 * password. out must have room for len + KVR_REDIS_URL_MASK bytes.  Returns
 * the number of bytes written; there is no null byte.
 */
size_t kvr_redis_url_mask(char *out, const char *text, size_t len);


#endif /* KVR_REDIS_URL_H_INCLUDED */
