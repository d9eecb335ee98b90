/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_registration.h"
#include "kvr_address.h"

#include <stdlib.h>


#define KVR_REGISTRATION_NUMBER  31     /* bytes of a number, at most */


static void kvr_registration_said(kvr_registration_t *reg, const char *value,
    size_t len);
static void kvr_registration_engine(kvr_registration_t *reg,
    const char *value, size_t len);
static bool kvr_registration_number(const char *value, size_t len,
    uint32_t max, uint32_t *number);
static bool kvr_registration_weight(const char *value, size_t len,
    uint32_t *weight);
static const char *kvr_registration_address(kvr_registration_t *reg,
    const char *value, size_t len);
static const char *kvr_registration_model(kvr_registration_t *reg,
    const char *value, size_t len);
static const char *kvr_registration_lora(kvr_registration_t *reg,
    const char *value, size_t len);
static const char *kvr_registration_role(kvr_registration_t *reg,
    const char *value, size_t len);


void
kvr_registration_init(kvr_registration_t *reg, const char *id, size_t len)
{
    memset(reg, 0, sizeof(kvr_registration_t));
    memcpy(reg->conf.id, id, kvr_min(len, KVR_WORKER_ID_MAX));

    reg->conf.ranks = 1;
    reg->conf.role = KVR_ROLE_BOTH;
    reg->conf.weight = 1000;
}


const char *
kvr_registration_field(kvr_registration_t *reg, kvr_member_field_t field,
    const char *value, size_t len)
{
    switch (field) {

    case KVR_MEMBER_ADDRESS:
        return kvr_registration_address(reg, value, len);

    case KVR_MEMBER_MODEL:
        return kvr_registration_model(reg, value, len);

    case KVR_MEMBER_LORA:
        return kvr_registration_lora(reg, value, len);

    case KVR_MEMBER_ROLE:
        return kvr_registration_role(reg, value, len);

    case KVR_MEMBER_RANKS:
        return kvr_registration_number(value, len, KVR_RANKS_MAX,
                                       &reg->conf.ranks)
               ? NULL : "\"ranks\" must be 1..1024";

    case KVR_MEMBER_BLOCK_SIZE:
        return kvr_registration_number(value, len, KVR_BLOCK_SIZE_MAX,
                                       &reg->contract.block_size)
               ? NULL : "\"block_size\" must be 1..1024";

    case KVR_MEMBER_EAGLE:
        reg->has_pairs = true;
        reg->contract.pairs = (len == 1 && value[0] == '1');

        return reg->contract.pairs || (len == 1 && value[0] == '0')
               ? NULL : "\"eagle\" must be 0 or 1";

    case KVR_MEMBER_HYBRID:
        reg->hybrid = (len == 1 && value[0] == '1');
        return NULL;

    case KVR_MEMBER_SPEC_DROP:
        reg->conf.spec_drop = (len == 1 && value[0] == '1');

        return reg->conf.spec_drop || (len == 1 && value[0] == '0')
               ? NULL : "\"spec_drop\" must be 0 or 1";

    case KVR_MEMBER_CHUNK:
        if (len == 1 && value[0] == '0') {
            reg->conf.attention_chunk = 0;
            return NULL;
        }

        return kvr_registration_number(value, len, KVR_EVENT_TOKENS_MAX,
                                       &reg->conf.attention_chunk)
               ? NULL : "\"attention_chunk\" must be 0..1048576";

    case KVR_MEMBER_ENGINE:
        kvr_registration_engine(reg, value, len);
        return NULL;

    case KVR_MEMBER_REASON:
        kvr_registration_said(reg, value, len);
        return NULL;

    case KVR_MEMBER_WEIGHT:
        return kvr_registration_weight(value, len, &reg->conf.weight)
               ? NULL : "\"weight\" must be 0.001..1000";

    default:
        return NULL;
    }
}


const char *
kvr_registration_foreign(const kvr_registration_t *reg, const char *model,
    kvr_contract_t zone)
{
    const char      *why;
    kvr_contract_t   its;

    its.block_size = reg->contract.block_size ? reg->contract.block_size
                                              : zone.block_size;
    its.pairs = reg->has_pairs ? reg->contract.pairs : zone.pairs;

    why = kvr_contract_differs(its, zone);
    if (why != NULL) {
        return why;
    }

    if (model[0] && reg->conf.model[0]
        && strcmp(reg->conf.model, model) != 0)
    {
        return "its model is not the zone's";
    }

    return NULL;
}


/* Keeps a value for messages.  A long value is cut. */

static void
kvr_registration_said(kvr_registration_t *reg, const char *value, size_t len)
{
    size_t  i;

    len = kvr_min(len, KVR_REASON_MAX);

    for (i = 0; i < len; i++) {
        reg->reason[i] = (value[i] < 0x20 || value[i] > 0x7e) ? '?' : value[i];
    }

    reg->reason[len] = '\0';
}


/*
 * Reads a kind of engine.  A kind that this version does not know counts as
 * unknown.
 */

static void
kvr_registration_engine(kvr_registration_t *reg, const char *value,
    size_t len)
{
    kvr_engine_kind_t  kind;

    kind = kvr_engine_kind(value, len);

    reg->conf.engine = (kind == KVR_ENGINES) ? KVR_ENGINE_UNKNOWN : kind;
}


static bool
kvr_registration_number(const char *value, size_t len, uint32_t max,
    uint32_t *number)
{
    size_t    i;
    uint32_t  n;

    n = 0;

    for (i = 0; i < len && n <= max; i++) {

        if (value[i] < '0' || value[i] > '9') {
            return false;
        }

        n = n * 10 + (uint32_t) (value[i] - '0');
    }

    if (n < 1 || n > max) {
        return false;
    }

    *number = n;

    return true;
}


/* "2", "0.5", "1.0", ".5": as programs print numbers. */

static bool
kvr_registration_weight(const char *value, size_t len, uint32_t *weight)
{
    char    text[KVR_REGISTRATION_NUMBER + 1], *end;
    double  w;

    if (len == 0 || len > KVR_REGISTRATION_NUMBER
        || ((value[0] < '0' || value[0] > '9') && value[0] != '.'))
    {
        return false;
    }

    memcpy(text, value, len);
    text[len] = '\0';

    w = strtod(text, &end);

    if (end != text + len || !(w >= 0.001 && w <= KVR_WEIGHT_MAX)) {
        return false;
    }

    *weight = (uint32_t) (w * 1000 + 0.5);

    return true;
}


static const char *
kvr_registration_address(kvr_registration_t *reg, const char *value,
    size_t len)
{
    char         address[KVR_ADDRESS_MAX + 1];
    const char  *wrong;

    if (len > KVR_ADDRESS_MAX || memchr(value, '\0', len)) {
        return "\"address\" is too long, or has a null byte in it";
    }

    memset(address, 0, sizeof(address));
    memcpy(address, value, len);

    wrong = len ? kvr_address_wrong(address) : NULL;
    if (wrong != NULL) {
        return wrong;
    }

    memcpy(reg->conf.address, address, sizeof(address));

    return NULL;
}


/* The name of a model must be printable ASCII, as everywhere. */

static const char *
kvr_registration_model(kvr_registration_t *reg, const char *value, size_t len)
{
    size_t  i;

    if (len > KVR_MODEL_MAX) {
        return "\"model\" is too long";
    }

    for (i = 0; i < len; i++) {
        if (value[i] < 0x20 || value[i] > 0x7e) {
            return "\"model\" has a character that is not printable ASCII";
        }
    }

    memset(reg->conf.model, 0, sizeof(reg->conf.model));
    memcpy(reg->conf.model, value, len);

    return NULL;
}


/*
 * A list is refused as a whole: if half of it were kept, the other LoRAs would
 * seem not to be loaded.
 */

static const char *
kvr_registration_lora(kvr_registration_t *reg, const char *value, size_t len)
{
    return kvr_adapters_set(reg->conf.lora, value, len)
           ? "\"lora\" must be names of printable ASCII, with commas, of 511 "
             "bytes at most" : NULL;
}


static const char *
kvr_registration_role(kvr_registration_t *reg, const char *value, size_t len)
{
    uint32_t     i;
    const char  *name;

    for (i = KVR_ROLE_BOTH; i <= KVR_ROLE_DECODE; i++) {
        name = kvr_role_name(i);

        if (len == strlen(name) && memcmp(value, name, len) == 0) {
            reg->conf.role = i;
            return NULL;
        }
    }

    return "\"role\" must be \"both\", \"prefill\" or \"decode\"";
}


const char *
kvr_role_name(uint32_t role)
{
    static const char  *names[] = { "both", "prefill", "decode" };

    return role <= KVR_ROLE_DECODE ? names[role] : "both";
}
