/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The options: of the command line, or of the environment as KV_RELAY_…; the
 * command line wins.
 */


#ifndef KVR_RELAY_OPTIONS_H_INCLUDED
#define KVR_RELAY_OPTIONS_H_INCLUDED


#include "kvr_relay_log.h"

#include "kvr.h"


/* the maximum number of values of an option */
#define KVR_RELAY_LIST_MAX     64
#define KVR_RELAY_CHANNEL_MAX  90   /* bytes of its prefix */


typedef struct {
    char      *items[KVR_RELAY_LIST_MAX];
    uint32_t   n;
} kvr_relay_list_t;


typedef struct {
    const char        *worker;
    kvr_relay_list_t   redis;           /* URLs */
    bool               redis_verify;    /* rediss: the server's certificate, */
    const char        *redis_ca;        /* by these; NULL: the system's */
    const char        *redis_name;      /* it is for; NULL: the URL's host */
    const char        *redis_cert;      /* our own; NULL: none */
    const char        *redis_key;
    const char        *channel;         /* prefix of the channel */

    kvr_relay_list_t   events;          /* endpoints, by the rank */
    kvr_relay_list_t   replay;          /* as many, or none */
    uint32_t           ranks;           /* of the engine that are read */
    uint32_t           first_rank;      /* the engine's number of the first */
    const char        *topic;
    const char        *trtllm;          /* URL */

    uint32_t           block_size;      /* tokens, the index's */
    bool               eagle;
    bool               refcount;
    bool               salted;
    bool               hybrid;          /* the engine publishes some of them */
    bool               spec_drop;
    uint32_t           attention_chunk; /* tokens; 0: none */

    const char        *address;         /* membership */
    const char        *model;
    const char        *role;
    const char        *weight;
    const char        *max_prefill_tokens;  /* "": not said */
    const char        *lora;
    const char        *engine;          /* "": not said */

    uint64_t           memory;          /* bytes, of the mirror */
    uint64_t           ring;            /* bytes: a quarter of it, */
    uint64_t           message_max;     /* of one engine message: half */
    uint32_t           snapshot_interval;   /* envelopes */

    const char        *listen;          /* of metrics; NULL: none */
    uint32_t           drain_timeout;   /* seconds */
    bool               drain;           /* of the relay that listens there */
    kvr_relay_level_t  log_level;
} kvr_relay_options_t;


/*
 * Reads the options; the strings they point at stay until the process ends.
 * Returns -1 to go on, otherwise the exit code of the process: after --help
 * and --version, or when an option is wrong, which is written to stderr.
 */
int kvr_relay_options_read(kvr_relay_options_t *o, int argc, char **argv);


#endif /* KVR_RELAY_OPTIONS_H_INCLUDED */
