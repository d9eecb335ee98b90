/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Where Redis is, as the router has it:
 *
 *     redis://[[user:]password@]host[:port][/db]
 *     rediss://…                                       with TLS
 *     unix:/path[?db=N]
 *     unix://[[user:]password@]/path[?db=N]
 *
 * with percent signs in names, passwords and paths.
 */


#ifndef KVR_RELAY_URL_H_INCLUDED
#define KVR_RELAY_URL_H_INCLUDED


#include <stdbool.h>
#include <stdint.h>


#define KVR_RELAY_URL_PART  256


typedef struct {
    char        host[KVR_RELAY_URL_PART];       /* or the socket's path */
    char        user[KVR_RELAY_URL_PART];
    char        password[KVR_RELAY_URL_PART];
    uint32_t    port;                           /* 0: a unix socket */
    uint32_t    db;
    bool        tls;
    char        name[KVR_RELAY_URL_PART + 32];  /* for the log: no secrets */
} kvr_relay_url_t;


/* NULL, or what is wrong with it, which has no part of it. */
const char *kvr_relay_url_parse(kvr_relay_url_t *url, const char *text);


#endif /* KVR_RELAY_URL_H_INCLUDED */
