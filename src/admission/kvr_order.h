/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Order: which of the requests that wait in a pool goes next, when a worker
 * has room.  A pure machine of (state, call): it knows no time, takes no lock
 * and looks at no load.  The caller has the lock of the pool.
 *
 * ONE RULE AT TWO LEVELS.  A class has a service c: all that its requests
 * were charged, by its weight.  So has a tenant in its class.  The class with
 * the least c goes next, in it the tenant with the least c, in that who came
 * first.  V is what c the last grant began with: of classes in the pool, of
 * tenants in their class.  A class that arrives while none of its own waits
 * gets c = max(c, V), a tenant c = max(c, V - quantum): a tenant that asks
 * for less than its part goes before those that always wait, a short burst of
 * it, too.  So nobody saves up more than a quantum while there is nothing to
 * serve, and nobody pays for what the others did not want then.  This is
 * start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996), with the
 * charge of VTC (Sheng et al., OSDI 2024): max(a block, uncached tokens at
 * the worker) + 2 x output expected.
 *
 * LOCALITY, unless the quantum is 0.  Of the tenants within `quantum' of the
 * least that can go, the request goes that has the least part of its prompt
 * to prefill at the worker that has room (deficit longest prefix match, Cao
 * et al. 2025).  The first of a tenant is passed by KVR_ORDER_PASSED of its
 * own at most.  A request that would prefill d tokens more at this worker
 * than at its best one lets others go until `workers' x d / 2 tokens were
 * granted since it came: about the time in which all of them would have done
 * what it saves, as charges count output, too (delay scheduling, Zaharia et
 * al., EuroSys 2010).  If all would wait for another worker, the first one
 * goes: no room stays free.
 *
 * So between two tenants that both wait, the services differ by at most 2 x
 * (the largest charge by weight + quantum) + workers x the largest d / 2.
 *
 * BOUNDS.  A choice looks at KVR_ORDER_LOOK entries at most, KVR_ORDER_EACH
 * of a tenant.  If none of these can use the worker, it looks at as many of
 * the others, in turn, so that no worker is idle for whom some wait behind
 * those that want another.  Of tenants that are not named, KVR_ORDER_TENANTS
 * in all classes together have a service of their own; the others of a class
 * share one.  A tenant with none waiting, none active and c <= V - quantum is
 * forgotten: it loses nothing.
 *
 * MEMORY.  All is in memory without pointers, which may be shared.  Orders may
 * have one row of entries together.  Each entry has a state, a byte which is
 * the caller's but for two bits; kvr_order_rebuild() makes lists, heaps and
 * numbers anew from these, after a process died while it wrote.
 */


#ifndef KVR_ORDER_H_INCLUDED
#define KVR_ORDER_H_INCLUDED


#include "../kvr.h"


#define KVR_ORDER_CLASSES   8           /* at most */
#define KVR_ORDER_TENANTS   4096
#define KVR_ORDER_WAYS      8           /* of a set of these */
#define KVR_ORDER_BEST      4           /* workers whose cost an entry has */
#define KVR_ORDER_LOOK      64
#define KVR_ORDER_TURN      16384       /* states that are looked at in turn */
#define KVR_ORDER_EACH      8           /* entries of a tenant looked at */
#define KVR_ORDER_PASSED    16          /* pass the first of their tenant */
#define KVR_ORDER_NONE      UINT32_MAX
#define KVR_ORDER_UNNAMED   UINT32_MAX


/* Bits of a state. */
#define KVR_ORDER_LISTED    0x01        /* the entry waits */
#define KVR_ORDER_CHARGED   0x02        /* granted, and not over */


/* The cost of a request, in tokens. */
typedef struct {
    uint32_t    prompt;                 /* at least 1 */
    uint32_t    output;                 /* expected */
    uint32_t    elsewhere;              /* uncached at all other workers */
    uint32_t    nbest;
    struct {
        uint32_t  worker;
        uint32_t  uncached;
    } best[KVR_ORDER_BEST];             /* the least first */
} kvr_order_cost_t;

typedef struct {
    uint64_t          number;           /* of its coming */
    uint32_t          tenant;
    uint32_t          next;             /* of its tenant */
    uint32_t          prev;
    uint32_t          charge;           /* of the grant */
    uint32_t          pool;             /* number of its order */
    double            came;             /* tokens granted before it came */
    kvr_order_cost_t  cost;

    /* the caller's, see kvr_admit.h */

    uint64_t          owner;            /* the process; 0: none */
    uint64_t          class;            /* hashes of names, not 0 */
    uint64_t          name;
    uint64_t          narrow;           /* more that its worker must have */
    uint64_t          deadline_ms;      /* monotonic, */
    uint64_t          at_ms;            /* when it came, or was granted */
    uint32_t          worker;           /* of the grant, or why refused */
    uint32_t          generation;
    uint32_t          tokens;           /* of its cost; at first the
                                           charge */
    uint32_t          expected_ms;      /* wait, as foreseen */
} kvr_order_entry_t;

typedef struct {
    uint64_t    hash;                   /* of its name; 0: free */
    double      service;                /* c */
    double      weight;                 /* above 0 */
    uint32_t    class;
    uint32_t    named;                  /* a number, or KVR_ORDER_UNNAMED */
    uint32_t    active;                 /* granted or passed, and not over */
    uint32_t    passed;                 /* granted after the first one that
                                           waits was that */
    uint32_t    first;                  /* entries that wait */
    uint32_t    last;
    uint32_t    waiting;                /* number of these */
    uint32_t    place;                  /* in its class's heap, from 1; 0: none
                                           of it waits */
} kvr_order_tenant_t;

typedef struct {
    double      service;
    double      weight;
    double      start;                  /* V of its tenants */
    double      weights;                /* of the tenants in the heap */
    uint32_t    waiting;                /* tenants, in the heap */
    uint32_t    active;                 /* requests granted, and not over */
} kvr_order_class_t;

/* A tenant that the configuration names, over all classes. */
typedef struct {
    uint32_t    active;
    uint32_t    max_active;             /* 0: no bound */
} kvr_order_named_t;

typedef struct {
    uint32_t           nclasses;
    uint32_t           nnamed;
    uint32_t           formatted;
    uint32_t           waiting;         /* entries */
    uint32_t           block_size;      /* tokens */
    uint32_t           nentries;
    uint32_t           turn;            /* the entry that is next in turn */
    double             quantum;         /* tokens */
    double             start;           /* V of the classes */
    double             granted;         /* tokens, charged to all */
    uint64_t           number;          /* of the last that came */
    uint64_t           looked;          /* choices that looked at all that they
                                           may */
    kvr_order_class_t  classes[KVR_ORDER_CLASSES];
} kvr_order_zone_t;

/* An entry, to be sorted. */
typedef struct {
    uint64_t    number;
    uint32_t    entry;
} kvr_order_came_t;

/* A handle. */
typedef struct {
    kvr_order_zone_t    *zone;
    kvr_order_named_t   *named;
    kvr_order_tenant_t  *tenants;       /* named ones by class, then a shared
                                           one for each class, then hashed */
    kvr_order_entry_t   *entries;       /* the caller's, with states */
    const uint8_t       *states;
    uint32_t             pool;          /* named by its entries */
    kvr_order_came_t    *came;          /* for a rebuild */
    uint32_t            *heaps;         /* of each class, tenants from
                                           place 1 */
} kvr_order_t;


typedef struct {
    uint32_t    nclasses;               /* 1 to KVR_ORDER_CLASSES */
    uint32_t    nnamed;
    uint32_t    block_size;
    double      quantum;
    double      weights[KVR_ORDER_CLASSES];
    uint32_t    nentries;               /* 0: none is looked at in turn */
} kvr_order_conf_t;

/* The number of tenants of a zone, or of a conf. */
#define kvr_order_tenants(z)                                                  \
    ((z)->nclasses * ((z)->nnamed + 1) + KVR_ORDER_TENANTS)

size_t kvr_order_size(const kvr_order_conf_t *conf);

/*
 * A process's handle.  memory: kvr_order_size() bytes, at a multiple of 8.
 * came: as many as there are entries.
 */
void kvr_order_attach(kvr_order_t *o, void *memory, kvr_order_entry_t *entries,
    const uint8_t *states, kvr_order_came_t *came,
    const kvr_order_conf_t *conf);

/* Begins anew, when no entry is in a list. */
void kvr_order_format(kvr_order_t *o, const kvr_order_conf_t *conf);

/*
 * The tenant of a class by the hash of its name, not 0, or by its number;
 * weight: above 0.  It stays the same while it waits or is active.
 */
uint32_t kvr_order_tenant(kvr_order_t *o, uint32_t class, uint64_t hash,
    uint32_t named, double weight);

/* May a request of the tenant be served now, by its max_active? */
bool kvr_order_may(const kvr_order_t *o, uint32_t tenant);

/* The charge of a request at a worker. */
uint32_t kvr_order_charge(const kvr_order_t *o, const kvr_order_cost_t *cost,
    uint32_t worker);

/* A request waits, whose entry has its cost.  The state of an entry is written
 * by the caller: LISTED here and when it is given back, CHARGED when it is
 * granted. */
void kvr_order_wait(kvr_order_t *o, uint32_t entry, uint32_t tenant);

/* A request has found room at once, and is charged; see kvr_order_end(). */
void kvr_order_pass(kvr_order_t *o, uint32_t tenant, uint32_t charge);

/* Can the entry use the worker at all?  It must be quick. */
typedef bool (*kvr_order_fits_pt)(void *data, const kvr_order_entry_t *entry,
    uint32_t worker);

/*
 * The entry that goes next at a worker with room, or KVR_ORDER_NONE.  workers:
 * that the pool has.  held: a bit of each class that can't go now.
 */
uint32_t kvr_order_next(kvr_order_t *o, uint32_t worker, uint32_t workers,
    uint32_t held, kvr_order_fits_pt fits, void *data);

/* The entry waits no longer: it is granted, and costs its charge. */
void kvr_order_grant(kvr_order_t *o, uint32_t entry);

/* The grant is not used: the charge is given back, and the entry waits as the
 * first of its tenant. */
void kvr_order_back(kvr_order_t *o, uint32_t entry);

/* A request that waits is gone. */
void kvr_order_leave(kvr_order_t *o, uint32_t entry);

/* A request that passed or was granted is over; it was charged `charge', and
 * has cost `tokens'. */
void kvr_order_end(kvr_order_t *o, uint32_t tenant, uint32_t charge,
    uint64_t tokens);

/*
 * Makes lists, heaps and numbers of n orders from their nentries, and from the
 * services.  Orders that are zeroed memory, not formatted, are left out.
 */
void kvr_order_rebuild(kvr_order_t *orders, uint32_t n, uint32_t nentries);


#endif /* KVR_ORDER_H_INCLUDED */
