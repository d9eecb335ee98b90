/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A worker's registration, field by field: a hash that its publisher keeps in
 * Redis (kvr_keys.h).  Whoever can write to Redis can write anything there.
 */


#ifndef KVR_REGISTRATION_H_INCLUDED
#define KVR_REGISTRATION_H_INCLUDED


#include "../core/kvr_contract.h"
#include "kvr_adapters.h"
#include "kvr_forms.h"
#include "kvr_keys.h"


typedef enum {
    KVR_ROLE_BOTH = 0,
    KVR_ROLE_PREFILL = 1,
    KVR_ROLE_DECODE = 2
} kvr_role_t;


#define KVR_REASON_MAX       127         /* bytes of a publisher's reason */
#define KVR_WEIGHT_MAX       1000        /* of 1, the usual one */
#define KVR_ACTIVE_MAX       1000000     /* requests: more than any engine */
#define KVR_CAPACITY_MAX     1000000000  /* tokens: more than any engine */


#define KVR_OWN_MAX_FAILS    1u
#define KVR_OWN_FAIL_TIMEOUT 2u
#define KVR_OWN_SLOW_START   4u
#define KVR_OWN_EVENTS       8u          /* whether it publishes events */


/* The settings of a worker, by configuration or registration. */
typedef struct {
    char        id[KVR_WORKER_ID_MAX + 1];
    char        address[KVR_ADDRESS_MAX + 1];   /* "" when not routable */
    char        model[KVR_MODEL_MAX + 1];       /* "" when not set */
    char        lora[KVR_ADAPTERS_MAX + 1];     /* kvr_adapters.h */
    uint32_t    ranks;                          /* 1..KVR_RANKS_MAX */
    uint32_t    role;                           /* kvr_role_t */
    uint32_t    weight;                         /* thousandths; 1000 = 1 */
    uint32_t    max_active;                     /* requests; 0 = no bound */
    uint32_t    own;                            /* of the following, which are
                                                   its own: KVR_OWN_… */
    uint32_t    max_fails;                      /* as kvr_health_params_t */
    uint32_t    fail_timeout;                   /* ms */
    uint32_t    slow_start;                     /* ms */
    uint32_t    salted;                         /* kvr_decoder_conf_t */
    uint32_t    spec_drop;                      /* the engine drafts tokens:
                                                   kvr_hit.h */
    uint32_t    attention_chunk;                /* tokens; 0: not known */
    uint32_t    hybrid;                         /* the engine publishes its
                                                   full attention alone */
    uint32_t    engine;                         /* kvr_engine_kind_t */
    uint32_t    events_off;                     /* no events are expected:
                                                   kvr_estimated.h */
    uint32_t    capacity;                       /* tokens of the KV cache of
                                                   each rank; 0: not said */
    uint32_t    pad;                            /* whole words: kvr_fleet.c */
} kvr_worker_conf_t;


typedef struct {
    kvr_worker_conf_t  conf;            /* address: "" when there is none, and
                                           the worker gets no requests */
    kvr_contract_t     contract;        /* of its blocks; the size 0: not
                                           said */
    bool               has_pairs;       /* said of which kind */
    bool               hybrid;          /* has KV cache groups that are not
                                           indexed */
    char               reason[KVR_REASON_MAX + 1];  /* why its publisher
                                           is not complete, or "" */
} kvr_registration_t;


/*
 * Makes a registration without fields.  The id must be valid; len is its
 * length.
 */
void kvr_registration_init(kvr_registration_t *reg, const char *id,
    size_t len);

/*
 * Reads a field, whose value can be any bytes, into reg.  Fields that routers
 * don't read are ignored.  Returns NULL, or the error: a static sentence.
 */
const char *kvr_registration_field(kvr_registration_t *reg,
    kvr_member_field_t field, const char *value, size_t len);

/*
 * Is the worker for a zone of this model ("": any model) and of these blocks?
 * NULL: it is.  Otherwise the reason why not, a static sentence.  A
 * registration without a model, or without a block size, fits every zone.
 */
const char *kvr_registration_foreign(const kvr_registration_t *reg,
    const char *model, kvr_contract_t zone);

/* "both", "prefill", "decode" */
const char *kvr_role_name(uint32_t role);


#endif /* KVR_REGISTRATION_H_INCLUDED */
