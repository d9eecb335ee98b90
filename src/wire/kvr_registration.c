/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_registration.h"
#include "kvr_json.h"


static void kvr_registration_said(kvr_registration_t *reg, const char *value,
    size_t len);
static const char *kvr_registration_setting(kvr_registration_t *reg,
    kvr_member_field_t field, const char *value, size_t len);


void
kvr_registration_init(kvr_registration_t *reg, const char *id, size_t len)
{
    memset(reg, 0, sizeof(kvr_registration_t));
    kvr_worker_conf_init(&reg->conf, id, len);
}


const char *
kvr_registration_field(kvr_registration_t *reg, kvr_member_field_t field,
    const char *value, size_t len)
{
    uint64_t  n;

    switch (field) {

    case KVR_MEMBER_BLOCK_SIZE:
        if (!kvr_json_digits(value, len, &n)
            || n < 1 || n > KVR_BLOCK_SIZE_MAX)
        {
            return "\"block_size\" must be 1..1024";
        }

        reg->contract.block_size = (uint32_t) n;
        return NULL;

    case KVR_MEMBER_EAGLE:
        reg->has_pairs = true;
        reg->contract.pairs = (len == 1 && value[0] == '1');

        return reg->contract.pairs || (len == 1 && value[0] == '0')
               ? NULL : "\"eagle\" must be 0 or 1";

    case KVR_MEMBER_HYBRID:
        reg->hybrid = (len == 1 && value[0] == '1');
        return NULL;

    case KVR_MEMBER_DRAINING:
        reg->draining = (len == 1 && value[0] == '1');

        return reg->draining || (len == 1 && value[0] == '0')
               ? NULL : "\"draining\" must be 0 or 1";

    case KVR_MEMBER_REASON:
        kvr_registration_said(reg, value, len);
        return NULL;

    default:
        return field < KVR_MEMBER_SETTINGS
               ? kvr_registration_setting(reg, field, value, len) : NULL;
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
 * A kind of engine that this version does not know counts as unknown, and an
 * empty max_prefill_tokens as not said.  A list of LoRAs is refused as a
 * whole: if half of it were kept, the others would seem not to be loaded.
 */

static const char *
kvr_registration_setting(kvr_registration_t *reg, kvr_member_field_t field,
    const char *value, size_t len)
{
    if (field == KVR_MEMBER_ENGINE
        && kvr_engine_kind(value, len) == KVR_ENGINES)
    {
        reg->conf.engine = KVR_ENGINE_UNKNOWN;
        return NULL;
    }

    if (field == KVR_MEMBER_PREFILL_TOKENS && len == 0) {
        return NULL;
    }

    if (field == KVR_MEMBER_LORA) {
        return kvr_adapters_set(reg->conf.lora, value, len)
               ? "\"lora\" must be names of printable ASCII, with commas, of "
                 "511 bytes at most" : NULL;
    }

    return kvr_setting_read(&kvr_settings[field], &reg->conf, value, len);
}
