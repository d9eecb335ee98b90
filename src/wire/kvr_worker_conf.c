/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_worker_conf.h"
#include "kvr_address.h"
#include "kvr_decoder.h"
#include "kvr_json.h"
#include "kvr_keys.h"

#include <stdlib.h>


#define KVR_SETTING_DIGITS   31         /* bytes of a decimal, at most */

#define at(field)  offsetof(kvr_worker_conf_t, field),                        \
                   sizeof(((kvr_worker_conf_t *) 0)->field)


static bool kvr_setting_decimal(const kvr_setting_t *setting,
    const char *value, size_t len, uint32_t *number);
static const char *kvr_setting_address(const kvr_setting_t *setting,
    kvr_worker_conf_t *conf, const char *value, size_t len);
static const char *kvr_setting_text(const kvr_setting_t *setting,
    kvr_worker_conf_t *conf, const char *value, size_t len);


const char *const  kvr_roles[] = { "both", "prefill", "decode", NULL };

static const char *const  kvr_on_off[] = { "on", "off", NULL };


const kvr_setting_t  kvr_settings[KVR_SETTINGS] = {

    [KVR_MEMBER_ADDRESS] = { "address", KVR_SETTING_ADDRESS, at(address),
      0, 0, 0, NULL, NULL },

    [KVR_MEMBER_MODEL] = { "model", KVR_SETTING_TEXT, at(model),
      0, 0, 0, NULL,
      "\"model\" must be printable ASCII of 127 bytes at most" },

    [KVR_MEMBER_LORA] = { "lora", KVR_SETTING_NAMES, at(lora),
      0, 0, 0, NULL, NULL },

    [KVR_MEMBER_RANKS] = { "ranks", KVR_SETTING_NUMBER, at(ranks),
      1, KVR_RANKS_MAX, 0, NULL, "\"ranks\" must be 1..1024" },

    [KVR_MEMBER_ROLE] = { "role", KVR_SETTING_WORD, at(role),
      0, 0, 0, kvr_roles,
      "\"role\" must be \"both\", \"prefill\" or \"decode\"" },

    [KVR_MEMBER_WEIGHT] = { "weight", KVR_SETTING_DECIMAL, at(weight),
      1, KVR_WEIGHT_MAX * 1000, 0, NULL, "\"weight\" must be 0.001..1000" },

    [KVR_MEMBER_ENGINE] = { "engine", KVR_SETTING_WORD, at(engine),
      KVR_ENGINE_VLLM, 0, 0, kvr_engines,
      "\"engine\" must be one of " KVR_ENGINE_ROWS(KVR_ENGINE_QUOTED)
      "\"unknown\"" },

    [KVR_MEMBER_SPEC_DROP] = { "spec_drop", KVR_SETTING_FLAG, at(spec_drop),
      0, 1, 0, NULL, "\"spec_drop\" must be 0 or 1" },

    [KVR_MEMBER_ATTENTION_CHUNK] = { "attention_chunk", KVR_SETTING_NUMBER,
      at(attention_chunk), 0, KVR_EVENT_TOKENS_MAX, 0, NULL,
      "\"attention_chunk\" must be 0..1048576" },

    [KVR_MEMBER_PREFILL_TOKENS] = { "max_prefill_tokens", KVR_SETTING_AUTO,
      at(max_prefill_tokens), 0, KVR_TOKENS_MAX, KVR_OWN_TOKENS, NULL,
      "\"max_prefill_tokens\" must be 0..1000000000, or \"auto\"" },

    /* no registration has the others */

    { "salted", KVR_SETTING_FLAG, at(salted), 0, 1, 0, NULL, NULL },

    { "hybrid", KVR_SETTING_FLAG, at(hybrid), 0, 1, 0, NULL, NULL },

    { "events", KVR_SETTING_OFF, at(events_off), 0, 0, KVR_OWN_EVENTS,
      kvr_on_off, NULL },

    { "capacity", KVR_SETTING_SIZE, at(capacity), 1, KVR_CAPACITY_MAX, 0, NULL,
      "\"capacity\" must be 1..1000000000 tokens" },

    { "max_active", KVR_SETTING_NUMBER, at(max_active), 0, KVR_ACTIVE_MAX, 0,
      NULL, "\"max_active\" must be 0..1000000" },

    { "max_fails", KVR_SETTING_NUMBER, at(max_fails), 0, KVR_FAILS_MAX,
      KVR_OWN_MAX_FAILS, NULL, "\"max_fails\" must be 0..1000" },

    { "fail_timeout", KVR_SETTING_TIME, at(fail_timeout), 1,
      KVR_HEALTH_MS_MAX, KVR_OWN_FAIL_TIMEOUT, NULL,
      "\"fail_timeout\" must be 0.001..3600 seconds" },

    { "slow_start", KVR_SETTING_TIME, at(slow_start), 0, KVR_HEALTH_MS_MAX,
      KVR_OWN_SLOW_START, NULL, "\"slow_start\" must be 0..3600 seconds" }
};

#undef at


void
kvr_worker_conf_init(kvr_worker_conf_t *conf, const char *id, size_t len)
{
    memset(conf, 0, sizeof(kvr_worker_conf_t));
    memcpy(conf->id, id, kvr_min(len, KVR_WORKER_ID_MAX));

    conf->ranks = 1;
    conf->weight = 1000;
}


const char *
kvr_setting_read(const kvr_setting_t *setting, kvr_worker_conf_t *conf,
    const char *value, size_t len)
{
    bool       good;
    uint32_t  *number;
    uint64_t   n;

    number = kvr_setting_number(setting, conf);

    switch (setting->kind) {

    case KVR_SETTING_ADDRESS:
        return kvr_setting_address(setting, conf, value, len);

    case KVR_SETTING_TEXT:
        return kvr_setting_text(setting, conf, value, len);

    case KVR_SETTING_OFF:
    case KVR_SETTING_WORD:
        good = kvr_word_at(setting->words, value, len, number);
        break;

    case KVR_SETTING_DECIMAL:
    case KVR_SETTING_TIME:
        good = kvr_setting_decimal(setting, value, len, number);
        break;

    case KVR_SETTING_AUTO:
        if (len == 4 && memcmp(value, "auto", 4) == 0) {
            *number = UINT32_MAX;
            good = true;
            break;
        }

        /* fall through */

    default:
        good = kvr_json_digits(value, len, &n) && n >= setting->least
               && n <= setting->most;

        if (good) {
            *number = (uint32_t) n;
        }

        break;
    }

    if (!good) {
        return setting->must;
    }

    conf->own |= setting->own;

    return NULL;
}


/* "2", "0.5", "1.0", ".5": as programs print numbers. */

static bool
kvr_setting_decimal(const kvr_setting_t *setting, const char *value,
    size_t len, uint32_t *number)
{
    char    text[KVR_SETTING_DIGITS + 1], *end;
    double  n;

    if (len == 0 || len > KVR_SETTING_DIGITS
        || ((value[0] < '0' || value[0] > '9') && value[0] != '.'))
    {
        return false;
    }

    memcpy(text, value, len);
    text[len] = '\0';

    n = strtod(text, &end) * 1000;

    if (end != text + len || !(n >= setting->least && n <= setting->most)) {
        return false;
    }

    *number = (uint32_t) (n + 0.5);

    return true;
}


static const char *
kvr_setting_address(const kvr_setting_t *setting, kvr_worker_conf_t *conf,
    const char *value, size_t len)
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

    memcpy((char *) conf + setting->offset, address, setting->size);

    return NULL;
}


static const char *
kvr_setting_text(const kvr_setting_t *setting, kvr_worker_conf_t *conf,
    const char *value, size_t len)
{
    size_t   i;
    char    *field;

    for (i = 0; i < len; i++) {
        if (value[i] < 0x20 || value[i] > 0x7e) {
            break;
        }
    }

    if (i < len || len >= setting->size) {
        return setting->must;
    }

    field = (char *) conf + setting->offset;

    memset(field, 0, setting->size);
    memcpy(field, value, len);

    return NULL;
}


const char *
kvr_member_word(kvr_member_field_t field)
{
    static const char *const  words[] = {
        "block_size", "eagle", "hybrid", "draining", "reason", "channel",
        KVR_FIELD_EPOCH, KVR_FIELD_SEQ, "complete", "started"
    };

    return field < KVR_MEMBER_SETTINGS ? kvr_settings[field].word
                                       : words[field - KVR_MEMBER_SETTINGS];
}


const char *
kvr_role_name(uint32_t role)
{
    return role <= KVR_ROLE_DECODE ? kvr_roles[role] : "both";
}
