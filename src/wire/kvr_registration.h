/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A worker's registration, field by field: the hash "kv-worker:{worker}" that
 * its publisher keeps in Redis (EVENTS.md section 2).  Whoever can write to
 * Redis can write anything there.
 */


#ifndef KVR_REGISTRATION_H_INCLUDED
#define KVR_REGISTRATION_H_INCLUDED


#include "../fleet/kvr_fleet.h"


typedef struct {
    kvr_worker_conf_t  conf;            /* address: "" when there is none, and
                                           the worker gets no requests */
    uint32_t           block_size;      /* tokens; 0: not said */
    bool               has_eagle;
    bool               eagle;           /* its blocks are of pairs of tokens */
    bool               hybrid;          /* has KV cache groups that are not
                                           indexed */
    char               said[KVR_SAID_MAX + 1];  /* "reason": why its publisher
                                           is not complete, or "" */
} kvr_registration_t;


/* One without fields.  The id is valid, len its bytes. */
void kvr_registration_init(kvr_registration_t *reg, const char *id,
    size_t len);

/*
 * Takes a field of any bytes; those that nobody here needs are ignored.  NULL,
 * or what is wrong, a sentence that lives forever.
 */
const char *kvr_registration_field(kvr_registration_t *reg, const char *name,
    size_t name_len, const char *value, size_t len);

/*
 * NULL when the worker is for a zone of this model ("": of any) and of these
 * blocks; else why not, as above.  A worker that does not say is.
 */
const char *kvr_registration_foreign(const kvr_registration_t *reg,
    const char *model, uint32_t block_size, bool eagle);


#endif /* KVR_REGISTRATION_H_INCLUDED */
