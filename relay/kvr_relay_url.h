/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Where Redis is: redis://[[user]:password@]host[:port][/db], with percent
 * signs in names and passwords, or unix:/path[?db=N].
 */


#ifndef KVR_RELAY_URL_H_INCLUDED
#define KVR_RELAY_URL_H_INCLUDED


#include <stdint.h>


#define KVR_RELAY_URL_PART  256


typedef struct {
    char        host[KVR_RELAY_URL_PART];       /* or the socket's path */
    char        user[KVR_RELAY_URL_PART];
    char        password[KVR_RELAY_URL_PART];
    uint32_t    port;                           /* 0: a unix socket */
    uint32_t    db;
    char        name[KVR_RELAY_URL_PART + 32];  /* for the log: no secrets */
} kvr_relay_url_t;


/* NULL, or what is wrong with it, which has no part of it. */
const char *kvr_relay_url_parse(kvr_relay_url_t *url, const char *text);


#endif /* KVR_RELAY_URL_H_INCLUDED */
