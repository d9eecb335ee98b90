/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The settings of a worker, and the one table of their words: the parameters
 * of kv_router_worker, the fields of PUT /workers/ID and of a worker's JSON,
 * and fields of a registration in Redis.  A new setting is a field here, a
 * line of the table, and the reader of the field.
 */


#ifndef KVR_WORKER_CONF_H_INCLUDED
#define KVR_WORKER_CONF_H_INCLUDED


#include "../core/kvr_contract.h"
#include "kvr_adapters.h"
#include "kvr_forms.h"


typedef enum {
    KVR_ROLE_BOTH = 0,
    KVR_ROLE_PREFILL = 1,
    KVR_ROLE_DECODE = 2
} kvr_role_t;


#define KVR_WEIGHT_MAX       1000        /* of 1, the usual one */
#define KVR_ACTIVE_MAX       1000000     /* requests: more than any engine */
#define KVR_CAPACITY_MAX     1000000000  /* tokens: more than any engine */
#define KVR_TOKENS_MAX       1000000000  /* tokens in flight */
#define KVR_TOKENS_AUTO      UINT32_MAX  /* "auto" */


#define KVR_OWN_MAX_FAILS    1u
#define KVR_OWN_FAIL_TIMEOUT 2u
#define KVR_OWN_SLOW_START   4u
#define KVR_OWN_EVENTS       8u          /* whether it publishes events */
#define KVR_OWN_HEALTH       7u          /* a zone has these, too */
#define KVR_OWN_TOKENS       16u         /* and max_prefill_tokens */


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
    uint32_t    max_prefill_tokens;             /* 0: no bound; or
                                                   KVR_TOKENS_AUTO */
    uint64_t    name;                           /* number of the host name
                                                   that the address is of; 0:
                                                   of none */
} kvr_worker_conf_t;


/*
 * Fields of a registration, in the order in which they are asked for: first
 * those that routers read, of these first the settings that have a number.
 */
typedef enum {
    KVR_MEMBER_ADDRESS,
    KVR_MEMBER_MODEL,
    KVR_MEMBER_LORA,
    KVR_MEMBER_RANKS,
    KVR_MEMBER_ROLE,
    KVR_MEMBER_WEIGHT,
    KVR_MEMBER_ENGINE,
    KVR_MEMBER_SPEC_DROP,
    KVR_MEMBER_ATTENTION_CHUNK,
    KVR_MEMBER_PREFILL_TOKENS,
    KVR_MEMBER_SETTINGS,            /* the number of those above */

    KVR_MEMBER_BLOCK_SIZE = KVR_MEMBER_SETTINGS,
    KVR_MEMBER_EAGLE,
    KVR_MEMBER_HYBRID,              /* of what is not indexed: not the setting
                                       of that name */
    KVR_MEMBER_DRAINING,
    KVR_MEMBER_REASON,
    KVR_MEMBER_CHANNEL,
    KVR_MEMBER_ROUTER,              /* the number of those above */

    KVR_MEMBER_EPOCH = KVR_MEMBER_ROUTER,
    KVR_MEMBER_SEQ,
    KVR_MEMBER_COMPLETE,
    KVR_MEMBER_STARTED,
    KVR_MEMBER_FIELDS
} kvr_member_field_t;


/* A setting's values, and how they are written. */
typedef enum {
    KVR_SETTING_ADDRESS,            /* a char[] */
    KVR_SETTING_TEXT,               /* a char[]; printable ASCII in Redis */
    KVR_SETTING_NAMES,              /* kvr_adapters.h */
    KVR_SETTING_FLAG,               /* 1 or 0 */
    KVR_SETTING_OFF,                /* a word, "on" or "off"; in JSON a flag */
    KVR_SETTING_WORD,
    KVR_SETTING_NUMBER,
    KVR_SETTING_AUTO,               /* a number, or "auto": UINT32_MAX */
    KVR_SETTING_SIZE,               /* a number; with "k" or "m" in nginx's
                                       configuration */
    KVR_SETTING_DECIMAL,            /* thousandths of what is written */
    KVR_SETTING_TIME                /* ms; seconds in JSON, as a decimal */
} kvr_setting_kind_t;


typedef struct {
    const char          *word;
    kvr_setting_kind_t   kind;
    uint32_t             offset;    /* of the field of kvr_worker_conf_t */
    uint32_t             size;      /* of the field */
    uint32_t             least;     /* of a WORD: the first that the
                                       configuration may have */
    uint32_t             most;
    uint32_t             own;       /* the bit, or 0 */
    const char *const   *words;     /* of a WORD or OFF, by number; then
                                       NULL */
    const char          *must;      /* the error of another value */
} kvr_setting_t;


#define KVR_SETTINGS  18

/* First those of a registration, by their kvr_member_field_t. */
extern const kvr_setting_t  kvr_settings[KVR_SETTINGS];

/* "both", "prefill", "decode", NULL */
extern const char *const  kvr_roles[];


/* The settings of a worker of which only the id is known. */
void kvr_worker_conf_init(kvr_worker_conf_t *conf, const char *id, size_t len);

/*
 * Reads a setting that is no SETTING_NAMES, of any bytes, as text: a flag is 0
 * or 1.  Returns NULL, or the error: a static sentence.
 */
const char *kvr_setting_read(const kvr_setting_t *setting,
    kvr_worker_conf_t *conf, const char *value, size_t len);

/* The number of a setting. */
static inline uint32_t *
kvr_setting_number(const kvr_setting_t *setting, const kvr_worker_conf_t *conf)
{
    return (uint32_t *) ((char *) (uintptr_t) conf + setting->offset);
}


/* The word of a field of a registration. */
const char *kvr_member_word(kvr_member_field_t field);

/* "both", "prefill", "decode" */
const char *kvr_role_name(uint32_t role);


#endif /* KVR_WORKER_CONF_H_INCLUDED */
