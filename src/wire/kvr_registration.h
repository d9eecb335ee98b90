/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A worker's registration, field by field: a hash that its publisher keeps in
 * Redis (kvr_keys.h).  Whoever can write to Redis can write anything there.
 */


#ifndef KVR_REGISTRATION_H_INCLUDED
#define KVR_REGISTRATION_H_INCLUDED


#include "kvr_keys.h"
#include "kvr_worker_conf.h"


#define KVR_REASON_MAX       127         /* bytes of a publisher's reason */
typedef struct {
    kvr_worker_conf_t  conf;            /* address: "" when there is none, and
                                           the worker gets no requests */
    kvr_contract_t     contract;        /* of its blocks; the size 0: not
                                           said */
    bool               has_pairs;       /* said of which kind */
    bool               hybrid;          /* has KV cache groups that are not
                                           indexed */
    bool               draining;        /* wants no new requests */
    bool               drained;         /* of the zone, set by its reader: it
                                           said so when Redis was asked */
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

#endif /* KVR_REGISTRATION_H_INCLUDED */
