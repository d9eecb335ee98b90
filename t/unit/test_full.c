/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A zone that is full: whatever is refused or forgotten then, nobody is said
 * to have more than it has, everybody goes on, and a clear makes room again.
 */


#include "zone.h"


#define ZONE      (4u << 20)
#define CHAIN     100
#define CHAINS    6000                  /* more than there is room for */
#define WORKERS   3

#define MANY      128                   /* workers */
#define ROUND     8000                  /* stores of a shape */


/* What is stored: by how many, how long, and do they name it alike? */
typedef struct {
    const char  *name;
    uint32_t     holders;
    uint32_t     len;
    bool         own;
} shape_t;


static void full(void);
static void changing(void);
static uint32_t rounds(const shape_t *shape, uint32_t *next);
static uint64_t chain(uint32_t i);
static uint32_t answers(uint32_t n, uint32_t most, uint32_t *less);
static uint32_t flags(const char *worker);


static const char *const  names[WORKERS] = { "a", "b", "c" };

/* each after some that leaves other pieces of memory behind it */

static const shape_t  shapes[] = {
    { "one-block prompts", 1, 1, false },
    { "long chains", 1, CHAIN, false },
    { "one-block prompts on 128 workers", MANY, 1, false },
    { "chains of three blocks", 1, 3, false },
    { "long chains on 128 workers", MANY, CHAIN, false },
    { "one-block prompts on 30 workers", 30, 1, false },
    { "long chains that each worker names otherwise", 5, CHAIN, true },
    { "one-block prompts again", 1, 1, false },
    { "long chains on 128 workers again", MANY, CHAIN, false }
};


int
main(int argc, char **argv)
{
    kind_t    many;
    uint32_t  i;

    for (i = 0; i < KINDS; i++) {
        zone_open(&kinds[i], ZONE);
        full();
        zone_close();

        many = kinds[i];
        many.params.max_workers = MANY;
        zone_open(&many, 2 * ZONE);
        changing();
        zone_close();
    }

    return done();
}


static void
full(void)
{
    uint32_t     i, n, k, refused, other, less, more;
    uint64_t     handle;
    kvr_rc_t     rc;
    kvr_stats_t  stats;

    for (i = 0; i < WORKERS; i++) {
        put(names[i]);
    }

    refused = 0;
    other = 0;

    for (n = 0; n < CHAINS; n++) {
        rc = store(names[n % WORKERS], 0, row(chain(n), CHAIN),
                   row(chain(n), CHAIN), CHAIN);
        refused += rc == KVR_FULL;
        other += rc != KVR_OK && rc != KVR_FULL;
    }

    kvr_router_stats(&router, &stats);
    is_u64(other, 0, "%s: a store into a full zone is done or KVR_FULL",
           kind->name);
    ok(stats.used_bytes <= stats.zone_bytes && stats.blocks > CHAIN,
       "%s: of %u chains there is room for some: %u were refused, %llu KiB",
       kind->name, n, refused, (unsigned long long) stats.used_bytes / 1024);

    more = answers(n, CHAIN, &less);
    is_u64(more, 0, "%s: nobody has more than it stored", kind->name);
    ok(less > 0, "%s: and what there was no room for, %u chains, is not all "
       "there", kind->name, less);

    k = 0;

    for (i = 0; i < WORKERS; i++) {
        k += (flags(names[i]) & KVR_WORKER_TRUNCATED) != 0;
    }

    ok(k > 0, "%s: a worker whose blocks were not kept is marked", kind->name);

    /* a hole in each chain takes memory, too: with none left a holder may
       lose all it has, but is never said to have what it has not */

    other = 0;

    for (i = 0; i < n; i++) {
        handle = chain(i) + CHAIN / 2;
        rc = take_one(names[i % WORKERS], handle);
        other += rc != KVR_OK && rc != KVR_FULL;
    }

    is_u64(other, 0, "%s: a removal from one, too", kind->name);
    is_u64(answers(n, CHAIN / 2, &less), 0,
           "%s: and no match goes beyond what was removed", kind->name);

    for (i = 0; i < WORKERS; i++) {
        other += clear(names[i]) != KVR_OK;
    }

    while (kvr_router_tend(&router, now_ms, 100000)) { /* void */ }

    kvr_router_stats(&router, &stats);
    ok(other == 0 && stats.handles == 0 && stats.blocks == 0
       && stats.runs == 0, "%s: cleared, nothing is left", kind->name);

    is_u64(store("b", 0, row(5, CHAIN), row(5, CHAIN), CHAIN), KVR_OK,
           "%s: and there is room again", kind->name);
    is_u64(matched("b", row(5, CHAIN), CHAIN).device, CHAIN,
           "%s: for a whole chain", kind->name);
}


/* What a full zone has is of any shape, and so is what is stored next. */

static void
changing(void)
{
    char      name[8];
    uint32_t  i, next, refused;

    for (i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "w%u", i);
        put(name);
    }

    next = 0;

    for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        refused = rounds(&shapes[i], &next);

        /* one of some millions is, where chance has it that nothing of what
           an event may forget makes room */

        ok(refused <= ROUND / 1000, "%s: as good as none of %s is refused: "
           "%u", kind->name, shapes[i].name, refused);
    }
}


/* How many of a shape's stores were refused. */

static uint32_t
rounds(const shape_t *shape, uint32_t *next)
{
    char      name[8];
    uint32_t  i, k, refused;
    uint64_t  first;

    refused = 0;

    for (i = 0; i < ROUND; (*next)++) {
        for (k = 0; k < shape->holders; k++, i++) {
            snprintf(name, sizeof(name), "w%u", (*next + k) % MANY);
            first = chain(*next);

            refused += store(name, 0, row(shape->own ? first * (k + 2) : first,
                                          shape->len),
                             row(first, shape->len), shape->len)
                       != KVR_OK;
        }
    }

    return refused;
}


/* The first block of a chain of its own. */

static uint64_t
chain(uint32_t i)
{
    return (uint64_t) (i + 1) << 16;
}


/* Chains of which somebody has more than it may; *less: than all. */

static uint32_t
answers(uint32_t n, uint32_t most, uint32_t *less)
{
    uint32_t     i, more;
    kvr_match_t  m;

    more = 0;
    *less = 0;

    for (i = 0; i < n; i++) {
        m = matched(names[i % WORKERS], row(chain(i), CHAIN), CHAIN);
        more += m.disk > most || m.device > m.host || m.host > m.disk;
        *less += m.disk < CHAIN;

        m = matched(names[(i + 1) % WORKERS], row(chain(i), CHAIN), CHAIN);
        more += m.disk != 0;
    }

    return more;
}


static uint32_t
flags(const char *worker)
{
    uint32_t           w, bits, generation;
    kvr_worker_conf_t  conf;

    bits = 0;

    if (kvr_router_find_worker(&router, worker, 1, &w) == KVR_OK) {
        (void) kvr_router_read_worker(&router, w, &conf, &bits, &generation);
    }

    return bits;
}
