/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Rules: the classes and the named tenants of the newest configuration, each
 * in a place which keeps its number while requests of it wait or are served.
 * In the zone; the caller has the queue's lock.
 *
 * A class or a tenant that is gone keeps its place while one needs it.  Until
 * the place is another's, requests that come later are of the same class; a
 * tenant has no name any more at once.  Then they are of the first class.
 */


#ifndef KVR_RULES_H_INCLUDED
#define KVR_RULES_H_INCLUDED


#include "kvr_order.h"


#define KVR_RULES_CLASSES  KVR_ORDER_CLASSES
#define KVR_RULES_TENANTS  64


typedef struct {
    uint64_t    hash;                   /* of its name; 0: none */
    double      weight;                 /* above 0 */
    double      most;                   /* of a class: the part of its pool's
                                           places that it may have; 1 */
    uint64_t    max_active;             /* of a tenant in a pool; 0: none */
    uint64_t    version;                /* set by kvr_rules_set() */
} kvr_rule_t;

/* As the configuration has them, and as the zone has them. */
typedef struct {
    uint64_t    version;                /* later ones are greater, and not 0 */
    uint64_t    first;                  /* of the zone: the first class */
    kvr_rule_t  classes[KVR_RULES_CLASSES];     /* at least one */
    kvr_rule_t  tenants[KVR_RULES_TENANTS];
} kvr_rules_t;

/* Is the class or the tenant needed by a request? */
typedef bool (*kvr_rules_needed_pt)(void *data, uint64_t hash);


/*
 * KVR_FULL: some found no place, as all others are needed: to be called again
 * later.  KVR_DECLINED: a later configuration is set.
 */
kvr_rc_t kvr_rules_set(kvr_rules_t *rules, const kvr_rules_t *conf,
    kvr_rules_needed_pt needed, void *data);

/* The place of a class, or of the first one if there is no such class. */
uint32_t kvr_rules_class(const kvr_rules_t *rules, uint64_t hash);

/* The place of a tenant, or KVR_ORDER_UNNAMED. */
uint32_t kvr_rules_tenant(const kvr_rules_t *rules, uint64_t hash);


#endif /* KVR_RULES_H_INCLUDED */
