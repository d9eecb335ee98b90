/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_rules.h"


/* The place of a hash, or n. */

static uint32_t
kvr_rules_find(const kvr_rule_t *rules, uint32_t n, uint64_t hash)
{
    uint32_t  i;

    for (i = 0; i < n && rules[i].hash != hash; i++) { /* void */ }

    return i;
}


uint32_t
kvr_rules_class(const kvr_rules_t *rules, uint64_t hash)
{
    uint32_t  i;

    i = kvr_rules_find(rules->classes, KVR_RULES_CLASSES, hash);

    return i < KVR_RULES_CLASSES ? i : (uint32_t) rules->first;
}


uint32_t
kvr_rules_tenant(const kvr_rules_t *rules, uint64_t hash)
{
    uint32_t  i;

    i = kvr_rules_find(rules->tenants, KVR_RULES_TENANTS, hash);

    return i < KVR_RULES_TENANTS
           && rules->tenants[i].version == rules->version
           ? i : KVR_ORDER_UNNAMED;
}


/* Puts rules where they are, or where none is needed. */

static bool
kvr_rules_put(kvr_rule_t *rules, uint32_t n, const kvr_rule_t *from,
    uint64_t version, kvr_rules_needed_pt needed, void *data)
{
    bool      all;
    uint32_t  i, k;

    for (k = 0, all = true; k < n && from[k].hash; k++) {
        i = kvr_rules_find(rules, n, from[k].hash);

        if (i == n) {
            for (i = 0; i < n && (rules[i].version == version
                                  || (rules[i].hash
                                      && needed(data, rules[i].hash)));
                 i++)
            {
                /* void */
            }
        }

        if (i == n) {
            all = false;
            continue;
        }

        rules[i] = from[k];
        rules[i].version = version;
    }

    return all;
}


kvr_rc_t
kvr_rules_set(kvr_rules_t *rules, const kvr_rules_t *conf,
    kvr_rules_needed_pt needed, void *data)
{
    bool  all;

    if (conf->version < rules->version) {
        return KVR_DECLINED;
    }

    rules->version = conf->version;

    all = kvr_rules_put(rules->classes, KVR_RULES_CLASSES, conf->classes,
                        conf->version, needed, data);
    all &= kvr_rules_put(rules->tenants, KVR_RULES_TENANTS, conf->tenants,
                         conf->version, needed, data);

    rules->first = kvr_rules_class(rules, conf->classes[0].hash);

    return all ? KVR_OK : KVR_FULL;
}
