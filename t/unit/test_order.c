/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The order of requests that wait: the rule at both levels, its bounds, and
 * every choice beside one by hand that looks at all.
 */


#include "admission/kvr_order.h"

#include "fixture.h"
#include "tap.h"


#define BLOCK    16
#define ENTRIES  600
#define WORKERS  4
#define LARGEST  4000                   /* tokens of a charge, at most */


static kvr_order_t  o;
static void        *memory;
static kvr_order_entry_t  entries[ENTRIES];
static uint8_t            states[ENTRIES];
static kvr_order_came_t   came[ENTRIES];
static uint64_t     seed = 1;
static uint32_t     refused_worker;     /* of entries with an odd owner */


/* ---- helpers ------------------------------------------------------------ */

static void
fresh(uint32_t nclasses, uint32_t nnamed, double quantum)
{
    kvr_order_conf_t  conf = { nclasses, nnamed, BLOCK, quantum,
                               { 1, 1, 1, 1, 1, 1, 1, 1 }, ENTRIES };

    free(memory);
    memory = malloc(kvr_order_size(&conf));
    memset(entries, 0, sizeof(entries));
    memset(states, 0, sizeof(states));
    kvr_order_attach(&o, memory, entries, states, came, &conf);
    kvr_order_format(&o, &conf);
    refused_worker = UINT32_MAX;
}


static uint32_t
tenant(uint32_t class, uint64_t name)
{
    return kvr_order_tenant(&o, class, name * UINT64_C(0x9e3779b97f4a7c15),
                            KVR_ORDER_UNNAMED, 1);
}


static kvr_order_cost_t
cost(uint32_t prompt, uint32_t output)
{
    kvr_order_cost_t  c;

    memset(&c, 0, sizeof(c));
    c.prompt = prompt;
    c.elsewhere = prompt;
    c.output = output;

    return c;
}


/* The states are the caller's. */

static uint32_t
lines_up(uint32_t of, const kvr_order_cost_t *c, uint64_t owner)
{
    uint32_t  i;

    for (i = 0; i < ENTRIES && states[i]; i++) {
        /* void */
    }

    if (i == ENTRIES) {
        return KVR_ORDER_NONE;
    }

    entries[i].cost = *c;
    entries[i].owner = owner;
    states[i] = KVR_ORDER_LISTED;
    kvr_order_wait(&o, i, of);

    return i;
}


static void
grant(uint32_t entry, uint32_t worker)
{
    entries[entry].worker = worker;
    entries[entry].charge = kvr_order_charge(&o, &entries[entry].cost, worker);
    states[entry] = KVR_ORDER_CHARGED;
    kvr_order_grant(&o, entry);
}


static void
back(uint32_t entry)
{
    states[entry] = KVR_ORDER_LISTED;
    kvr_order_back(&o, entry);
}


static void
over(uint32_t entry, uint64_t tokens)
{
    states[entry] = 0;
    kvr_order_end(&o, entries[entry].tenant, entries[entry].charge, tokens);
}


static void
leave(uint32_t entry)
{
    if (states[entry] == KVR_ORDER_LISTED) {
        states[entry] = 0;
        kvr_order_leave(&o, entry);

    } else {
        over(entry, 0);
    }
}


static uint32_t
waits(uint32_t of, uint32_t prompt, uint32_t output)
{
    kvr_order_cost_t  c;

    c = cost(prompt, output);

    return lines_up(of, &c, 0);
}


static bool
fits(void *data, const kvr_order_entry_t *entry, uint32_t worker)
{
    (void) data;

    return worker != refused_worker || entry->owner % 2 == 0;
}


/* Grants the next one; returns its tenant, or KVR_ORDER_NONE. */

static uint32_t
serve(uint32_t worker)
{
    uint32_t  entry, of;

    entry = kvr_order_next(&o, worker, WORKERS, 0, fits, NULL);

    if (entry == KVR_ORDER_NONE) {
        return KVR_ORDER_NONE;
    }

    of = o.entries[entry].tenant;
    grant(entry, worker);
    over(entry, entries[entry].charge);

    return of;
}


/* ---- one after another --------------------------------------------------- */

static void
test_first_come(void)
{
    uint32_t  a, entry[3];

    fresh(1, 0, 0);
    a = tenant(0, 1);

    ok(kvr_order_next(&o, 0, WORKERS, 0, fits, NULL) == KVR_ORDER_NONE,
       "nobody waits: nobody goes");

    entry[0] = waits(a, 100, 0);
    entry[1] = waits(a, 10, 0);
    entry[2] = waits(a, 1000, 0);

    is_u64(kvr_order_next(&o, 0, WORKERS, 0, fits, NULL), entry[0],
           "of one tenant goes who came first");
    is_u64(o.zone->waiting, 3, "and to ask changes nothing");

    grant(entry[0], 2);
    is_u64(kvr_order_next(&o, 0, WORKERS, 0, fits, NULL), entry[1], "then the second");
    back(entry[0]);
    is_u64(kvr_order_next(&o, 0, WORKERS, 0, fits, NULL), entry[0],
           "a grant that was not used goes to the head");
    ok(o.tenants[a].service == 0 && o.tenants[a].active == 0,
       "and costs nothing");

    leave(entry[1]);
    leave(entry[0]);
    is_u64(kvr_order_next(&o, 0, WORKERS, 0, fits, NULL), entry[2],
           "who has left is passed over");

    grant(entry[2], 2);
    is_u64(o.entries[entry[2]].charge, 1000, "the charge is what is uncached");
    leave(entry[2]);
    ok(o.tenants[a].service == 0 && o.tenants[a].active == 0
       && o.zone->waiting == 0,
       "who leaves with a grant gives its charge back");
}


static void
test_charge(void)
{
    kvr_order_cost_t  c;

    fresh(1, 0, 0);
    c = cost(1000, 30);
    c.nbest = 2;
    c.best[0].worker = 7;
    c.best[0].uncached = 100;
    c.best[1].worker = 3;
    c.best[1].uncached = 0;

    is_u64(kvr_order_charge(&o, &c, 7), 160, "uncached and twice the output");
    is_u64(kvr_order_charge(&o, &c, 3), BLOCK + 60, "a block at least");
    is_u64(kvr_order_charge(&o, &c, 1), 1060, "all of it elsewhere");

    c.output = UINT32_MAX;
    is_u64(kvr_order_charge(&o, &c, 1), UINT32_MAX, "and no number wraps");
}


static void
test_bounds(void)
{
    uint32_t  i, a, b;

    fresh(2, 1, 0);

    a = kvr_order_tenant(&o, 0, 5, 0, 1);
    b = kvr_order_tenant(&o, 1, 5, 0, 1);
    o.named[0].max_active = 2;

    ok(a != b, "a tenant is counted in each class by itself");

    kvr_order_pass(&o, a, 10);
    kvr_order_pass(&o, b, 10);
    ok(!kvr_order_may(&o, a) && !kvr_order_may(&o, b),
       "its max_active holds over all");

    (void) waits(a, 10, 0);
    is_u64(kvr_order_next(&o, 0, WORKERS, 0, fits, NULL), KVR_ORDER_NONE,
           "none of it goes");
    kvr_order_end(&o, b, 10, 10);
    ok(kvr_order_next(&o, 0, WORKERS, 0, fits, NULL) != KVR_ORDER_NONE,
       "until one is over");
    is_u64(kvr_order_next(&o, 0, WORKERS, 1, fits, NULL), KVR_ORDER_NONE,
           "a class that is held does not go");

    for (i = 1; i < ENTRIES; i++) {
        (void) waits(b, 10, 0);
    }

    is_u64(waits(b, 10, 0), KVR_ORDER_NONE, "as many wait as may");

    fresh(1, 0, 0);

    for (i = 1; i <= KVR_ORDER_TENANTS * 4; i++) {
        kvr_order_pass(&o, tenant(0, i), 10);
    }

    ok(tenant(0, i) == 0 && o.tenants[0].active,
       "where its set is full a tenant shares one with the rest");
}


/* Entries that do not fit: others go, and no more than 64 are looked at. */

static void
test_look(void)
{
    uint32_t          i, a, b, entry;
    kvr_order_cost_t  c;

    fresh(1, 0, 0);
    refused_worker = 1;
    c = cost(10, 0);
    a = tenant(0, 1);
    b = tenant(0, 2);

    for (i = 0; i < KVR_ORDER_EACH; i++) {
        (void) lines_up(a, &c, 1);
    }

    (void) lines_up(a, &c, 2);
    entry = lines_up(b, &c, 2);

    is_u64(kvr_order_next(&o, 1, WORKERS, 0, fits, NULL), entry,
           "some of a tenant are looked at, then the next tenant");

    fresh(1, 0, 0);
    refused_worker = 1;

    b = tenant(0, KVR_ORDER_LOOK + 1);
    kvr_order_pass(&o, b, 100);
    (void) lines_up(b, &c, 2);

    for (i = 1; i <= KVR_ORDER_LOOK; i++) {
        (void) lines_up(tenant(0, i), &c, 1);
    }

    o.zone->nentries = 0;               /* none in turn */

    is_u64(kvr_order_next(&o, 1, WORKERS, 0, fits, NULL), KVR_ORDER_NONE,
           "64 entries are looked at");
    is_u64(o.zone->looked, 1, "which is counted");
    ok(kvr_order_next(&o, 0, WORKERS, 0, fits, NULL) != KVR_ORDER_NONE,
       "another worker finds one at once");
}


static void
test_locality(void)
{
    uint32_t          a, b, cold, warm;
    kvr_order_cost_t  c;

    fresh(1, 0, 500);
    a = tenant(0, 1);
    b = tenant(0, 2);
    c = cost(1000, 0);
    cold = lines_up(a, &c, 0);
    c.nbest = 1;
    c.best[0].worker = 3;
    c.best[0].uncached = 100;
    warm = lines_up(b, &c, 0);

    is_u64(kvr_order_next(&o, 3, WORKERS, 0, fits, NULL), warm,
           "within the quantum goes what the worker has");
    is_u64(kvr_order_next(&o, 2, WORKERS, 0, fits, NULL), cold,
           "at another worker who came first");

    kvr_order_pass(&o, b, 501);
    is_u64(kvr_order_next(&o, 3, WORKERS, 0, fits, NULL), cold,
           "beyond the quantum goes who had less");
}


/* A tenant's first one is passed by 16 of its own, whatever they have cached. */

static void
test_passed(void)
{
    uint32_t          i, a, cold;
    kvr_order_cost_t  c;

    fresh(1, 0, 1e6);
    a = tenant(0, 1);
    cold = waits(a, 1000, 0);
    c = cost(1000, 0);
    c.nbest = 1;
    c.best[0].worker = 0;

    for (i = 0; i < 40; i++) {
        (void) lines_up(a, &c, 0);
    }

    for (i = 0; kvr_order_next(&o, 0, WORKERS, 0, fits, NULL) != cold; i++) {
        (void) serve(0);
    }

    is_u64(i, KVR_ORDER_PASSED, "so many of its own pass a tenant's first one");
}


/* A request lets others go until its best worker has had its time. */

static void
test_patience(void)
{
    uint32_t          a, b, warm, cold;
    kvr_order_cost_t  c;

    fresh(1, 0, 500);
    a = tenant(0, 1);
    b = tenant(0, 2);
    c = cost(1000, 0);
    c.nbest = 1;
    c.best[0].worker = 3;
    warm = lines_up(a, &c, 0);

    is_u64(kvr_order_next(&o, 0, 4, 0, fits, NULL), warm,
           "alone it goes to any worker");

    cold = waits(b, 1000, 0);
    kvr_order_pass(&o, b, 1000);
    is_u64(kvr_order_next(&o, 0, 4, 0, fits, NULL), cold,
           "it lets others go to other workers, beyond the quantum, too");
    is_u64(kvr_order_next(&o, 3, 4, 0, fits, NULL), warm,
           "but not to its best one");

    kvr_order_pass(&o, b, 999);
    is_u64(kvr_order_next(&o, 0, 4, 0, fits, NULL), cold,
           "until half of what it saves, by the workers,");
    kvr_order_pass(&o, b, 1);
    is_u64(kvr_order_next(&o, 0, 4, 0, fits, NULL), warm, "was granted");
}


/* Who asks for little goes before who always waits, for a quantum. */

static void
test_credit(void)
{
    uint32_t  i, a, b;

    fresh(1, 0, 1000);
    a = tenant(0, 1);
    b = tenant(0, 2);

    for (i = 0; i < 200; i++) {
        (void) waits(a, 100, 0);
    }

    for (i = 0; i < 100; i++) {
        (void) serve(0);
    }

    for (i = 0; i < 50; i++) {
        (void) waits(b, 100, 0);
    }

    for (i = 0; serve(0) == b; i++) { /* void */ }

    ok(i >= 10 && i <= 12, "a burst of a quantum goes first: %u of it", i);
}


/* ---- the rule ------------------------------------------------------------ */

static void
test_start(void)
{
    uint32_t  i, a, b, na, nb;

    fresh(1, 0, 0);
    a = tenant(0, 1);
    b = tenant(0, 2);

    /* ten hours of one alone, then both */

    for (i = 0; i < 360000; i++) {
        kvr_order_pass(&o, a, 100);
        kvr_order_end(&o, a, 100, 100);
    }

    for (i = 0; i < 200; i++) {
        (void) waits(a, 100, 0);
        (void) waits(b, 100, 0);
    }

    for (i = 0, na = 0, nb = 0; i < 20; i++) {
        if (serve(0) == a) {
            na++;
        } else {
            nb++;
        }
    }

    ok(na >= 9 && nb >= 9, "after unequal use both are served alike, %u and %u",
       na, nb);

    /* a tenant that was away has not saved up service */

    while (serve(0) != KVR_ORDER_NONE) { /* void */ }

    for (i = 0; i < 1000; i++) {
        (void) waits(b, 100, 0);
        (void) serve(0);
    }

    for (i = 0; i < 20; i++) {
        (void) waits(a, 100, 0);
        (void) waits(b, 100, 0);
    }

    for (i = 0, na = 0; i < 20; i++) {
        na += serve(0) == a;
    }

    ok(na >= 9 && na <= 11, "who was away is served as others, %u of 20", na);
}


static void
test_forgotten(void)
{
    uint32_t  i, a;

    fresh(1, 0, 0);
    a = tenant(0, 1);
    kvr_order_pass(&o, a, 1000);

    for (i = 2; i <= 10 * KVR_ORDER_TENANTS; i++) {
        (void) tenant(0, i);
    }

    is_u64(tenant(0, 1), a, "a tenant that is active is not forgotten");
    kvr_order_end(&o, a, 1000, 1000);

    for (i = 2; i <= 10 * KVR_ORDER_TENANTS; i++) {
        (void) tenant(0, i);
    }

    is_u64(tenant(0, 1), a, "nor one with more service than the last began");
}


/* Weights hold over any window in which each is served 100 of the largest
 * charge by its weight. */

static void
test_weights(void)
{
    bool      good;
    double    served[3], was[3], least, most, part;
    uint32_t  i, k, t[3], of, charge;

    static const double  weights[3] = { 4, 2, 1 };

    fresh(1, 0, 0);
    memset(served, 0, sizeof(served));
    memset(was, 0, sizeof(was));

    for (i = 0; i < 3; i++) {
        t[i] = kvr_order_tenant(&o, 0, 77 + i, KVR_ORDER_UNNAMED, weights[i]);
    }

    good = true;
    least = 1;
    most = 0;

    for (i = 0, part = 0; i < 200000; i++) {

        for (k = 0; k < 3; k++) {
            while (o.zone->waiting < 300
                   || o.tenants[t[k]].place == 0)
            {
                (void) waits(t[k], 1 + (uint32_t) (fx_random(&seed) % LARGEST), 0);
            }
        }

        charge = o.entries[kvr_order_next(&o, 0, WORKERS, 0, fits, NULL)].cost.prompt;
        of = serve(0);

        for (k = 0; k < 3; k++) {
            served[k] += t[k] == of ? kvr_max(charge, BLOCK) : 0;
        }

        part += charge;

        if (part > 7 * 100.0 * LARGEST) {

            for (k = 0; k < 3; k++) {
                part = (served[k] - was[k])
                       / (served[0] + served[1] + served[2]
                          - was[0] - was[1] - was[2]) * 7 / weights[k];
                least = kvr_min(least, part);
                most = kvr_max(most, part);
                good &= part > 0.95 && part < 1.05;
            }

            memcpy(was, served, sizeof(was));
            part = 0;
        }
    }

    ok(good, "weights 4, 2 and 1 hold in each window, %.3f to %.3f", least,
       most);
}


/*
 * Two that both wait, in a window: what they were served by weight differs by
 * at most two of the largest charge and the quantum, and by what a request lets
 * others have before it, at both levels.
 */

static void
test_fair(double quantum)
{
    bool      good;
    double    low[8], high[8], d, most, bound, s[8];
    uint32_t  i, j, k, t[8], n;

    fresh(2, 0, quantum);
    good = true;
    most = 0;
    bound = 2 * (LARGEST + quantum) + (quantum ? WORKERS * LARGEST / 2 : 0);

    for (i = 0; i < 8; i++) {
        t[i] = tenant(i % 2, 10 + i);
    }

    for (n = 0; n < 300; n++) {

        /* all wait for a while: what each has had since then */

        while (serve((uint32_t) (fx_random(&seed) % WORKERS)) != KVR_ORDER_NONE) {
            /* void */
        }

        for (i = 0; i < 8; i++) {
            if (fx_random(&seed) % 2) {
                kvr_order_pass(&o, t[i], (uint32_t) (fx_random(&seed) % LARGEST));
            }
        }

        for (k = 0; k < 200; k++) {

            for (i = 0; i < 8; i++) {
                while (o.tenants[t[i]].place == 0) {
                    kvr_order_cost_t  c;

                    c = cost(1 + (uint32_t) (fx_random(&seed) % LARGEST), 0);
                    c.nbest = 1;
                    c.best[0].worker = (uint32_t) (fx_random(&seed) % WORKERS);
                    c.best[0].uncached = (uint32_t) (fx_random(&seed) % c.prompt);
                    (void) lines_up(t[i], &c, 0);
                    (void) lines_up(t[i], &c, 0);
                }
            }

            for (i = 0; i < 8; i++) {
                s[i] = o.tenants[t[i]].service;
                low[i] = k == 0 ? s[i] : low[i];
                high[i] = s[i];
            }

            for (i = 0; i < 8; i++) {
                for (j = i % 2; j < i; j += 2) {
                    d = (high[i] - low[i]) - (high[j] - low[j]);
                    d = d < 0 ? -d : d;
                    most = kvr_max(most, d);
                    good &= d <= bound;
                }
            }

            (void) serve((uint32_t) (fx_random(&seed) % WORKERS));
        }

        for (i = 0; i < 8; i++) {
            while (o.tenants[t[i]].active) {
                kvr_order_end(&o, t[i], 0, 0);
            }
        }
    }

    ok(good, "quantum %.0f: what two had differs by %.0f tokens at most",
       quantum, most);
}


/* ---- random, beside a choice that looks at all ---------------------------- */

static uint32_t
plain(uint32_t worker)
{
    double                     c, d;
    uint32_t                   i, j, best, before;
    const kvr_order_entry_t   *e, *b;
    const kvr_order_tenant_t  *t, *u;

    /* quantum 0, few wait: the least class, the least tenant, the first */

    best = KVR_ORDER_NONE;

    for (i = 0; i < 24; i++) {
        e = &o.entries[i];

        for (j = 0, before = 0; j < 24; j++) {
            before += states[j] == KVR_ORDER_LISTED
                      && o.entries[j].tenant == e->tenant
                      && o.entries[j].number < e->number;
        }

        if (states[i] != KVR_ORDER_LISTED || before >= KVR_ORDER_EACH
            || !fits(NULL, e, worker)
            || !kvr_order_may(&o, e->tenant))
        {
            continue;
        }

        if (best != KVR_ORDER_NONE) {
            b = &o.entries[best];
            t = &o.tenants[e->tenant];
            u = &o.tenants[b->tenant];
            c = o.zone->classes[t->class].service;
            d = o.zone->classes[u->class].service;

            if (c > d || (c == d && t->class > u->class)
                || (t->class == u->class
                    && (t->service > u->service
                        || (t == u && e->number > b->number))))
            {
                continue;
            }
        }

        best = i;
    }

    return best;
}


static void
test_random(void)
{
    bool               same, whole;
    uint32_t           i, n, entry, want, worker, held[8];

    fresh(3, 2, 0);
    refused_worker = 1;
    o.named[0].max_active = 3;
    same = true;
    whole = true;
    n = 0;

    for (i = 0; i < 100000; i++) {

        if (fx_random(&seed) % 2 && o.zone->waiting < 15) {
            kvr_order_cost_t  c;
            uint32_t          of, named;

            named = (uint32_t) (fx_random(&seed) % 6);
            of = kvr_order_tenant(&o, (uint32_t) (fx_random(&seed) % 3), 100 + named,
                                  named < 2 ? named : KVR_ORDER_UNNAMED,
                                  1 + named);
            c = cost(1 + (uint32_t) (fx_random(&seed) % 1000), (uint32_t) (fx_random(&seed) % 100));
            (void) lines_up(of, &c, fx_random(&seed));
        }

        worker = (uint32_t) (fx_random(&seed) % 2);
        entry = kvr_order_next(&o, worker, WORKERS, 0, fits, NULL);
        want = plain(worker);

        /* of equal tenants any one may go */

        if (entry != want
            && (entry == KVR_ORDER_NONE || want == KVR_ORDER_NONE
                || o.tenants[o.entries[entry].tenant].service
                   != o.tenants[o.entries[want].tenant].service))
        {
            same = false;
        }

        if (entry != KVR_ORDER_NONE && fx_random(&seed) % 2) {
            grant(entry, worker);

            switch (fx_random(&seed) % 4) {

            case 0:
                back(entry);
                break;

            case 1:
                leave(entry);
                break;

            default:
                if (n < 8) {
                    held[n++] = entry;
                    states[entry] = KVR_ORDER_CHARGED;
                } else {
                    leave(entry);
                }
            }
        }

        if (n && fx_random(&seed) % 4 == 0) {
            over(held[--n], fx_random(&seed) % 50);
        }

        if (fx_random(&seed) % 1000 == 0) {
            kvr_order_rebuild(&o, 1, ENTRIES);
        }
    }

    ok(same, "100,000 choices are those of a look at all");

    while (n) {
        over(held[--n], 0);
    }

    for (i = 0; i < ENTRIES; i++) {
        if (states[i] == KVR_ORDER_LISTED) {
            leave(i);
        }

        whole &= states[i] == 0;
    }

    for (i = 0; i < 3 * 3 + KVR_ORDER_TENANTS; i++) {
        whole &= o.tenants[i].active == 0 && o.tenants[i].place == 0;
    }

    ok(whole && o.zone->waiting == 0 && o.named[0].active == 0,
       "and when all are gone, all counters are 0");
}


/* After a death at any word the lists are what the entries say. */

static void
test_rebuild(void)
{
    bool      same;
    uint32_t  i, n, entry, first[500];

    fresh(2, 0, 0);
    same = true;

    for (i = 0; i < 500; i++) {
        entry = waits(tenant(i % 2, 1 + fx_random(&seed) % 30), 1 + (uint32_t) (fx_random(&seed) % 900),
                      0);

        if (fx_random(&seed) % 3 == 0) {
            grant(entry, 0);

            if (fx_random(&seed) % 2) {
                back(entry);
            }
        }
    }

    for (i = 0, n = o.zone->waiting; i < n; i++) {
        first[i] = kvr_order_next(&o, 0, WORKERS, 0, fits, NULL);
        leave(first[i]);
    }

    for (i = 0; i < n; i++) {
        states[first[i]] = KVR_ORDER_LISTED;
    }

    /* the state that a dead process may leave */

    o.zone->waiting = 3;
    o.zone->classes[0].waiting = 1;
    memset(o.heaps, 0xff, 64);

    kvr_order_rebuild(&o, 1, ENTRIES);
    same = o.zone->waiting == n;

    for (i = 0; i < n; i++) {
        entry = kvr_order_next(&o, 0, WORKERS, 0, fits, NULL);
        same &= o.tenants[o.entries[entry].tenant].service
                == o.tenants[o.entries[first[i]].tenant].service;
        leave(entry);
    }

    ok(same && o.zone->waiting == 0,
       "%u entries are in the same order after a rebuild", n);
}


/* Many that want another worker come before one that wants this one. */

static void
test_turn(void)
{
    uint32_t          i, n, first, last;
    kvr_order_cost_t  c;

    fresh(2, 0, 0);
    refused_worker = 1;
    c = cost(BLOCK, 0);

    for (i = 0; i < 300; i++) {
        (void) lines_up(tenant(0, i % 3), &c, 1);
    }

    first = lines_up(tenant(0, 0), &c, 0);
    last = lines_up(tenant(1, 9), &c, 0);

    for (n = 1; n < 300; n++) {
        i = kvr_order_next(&o, 1, WORKERS, 2, fits, NULL);
        if (i != KVR_ORDER_NONE) {
            break;
        }
    }

    ok(i == first && n <= 300 / KVR_ORDER_LOOK + 2,
       "who stands behind 300 that want another worker is found");

    grant(i, 1);
    n = kvr_order_next(&o, 1, WORKERS, 2, fits, NULL);
    ok(n == KVR_ORDER_NONE, "none of a class that is held is found in turn");
    ok(kvr_order_next(&o, 1, WORKERS, 0, fits, NULL) == last,
       "when it is not held, it is");
}


int
main(void)
{
    test_first_come();
    test_charge();
    test_bounds();
    test_look();
    test_locality();
    test_passed();
    test_patience();
    test_credit();
    test_start();
    test_forgotten();
    test_weights();
    test_fair(0);
    test_fair(16384);
    test_random();
    test_rebuild();
    test_turn();

    free(memory);

    return done();
}
