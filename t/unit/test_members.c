/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The workers of a zone: who puts, drains and removes them.
 */


#include "router_fixture.h"


static kvr_router_t  router;


static kvr_health_state_t
health(kvr_router_t *k, const char *id, const kvr_health_params_t *p)
{
    double    share;
    uint32_t  i;

    return kvr_router_find_worker(k, id, strlen(id), &i) == KVR_OK
           ? kvr_health_state(kvr_router_health(k, i),
                              kvr_router_worker(k, i)->generation, p, now(),
                              &share)
           : KVR_HEALTH_STATES;
}


/* The worker fails so that it is out. */

static bool
fails(kvr_router_t *k, const char *id, const kvr_health_params_t *p)
{
    uint32_t      i;
    kvr_ticket_t  ticket = { 0, 0 };

    return kvr_router_find_worker(k, id, strlen(id), &i) == KVR_OK
           && kvr_health_failed(kvr_router_health(k, i),
                                kvr_router_worker(k, i)->generation, p, now(),
                                KVR_FAILED_CONNECT, &ticket)
           && health(k, id, p) == KVR_HEALTH_FAILED;
}


static void
test_members(void)
{
    char                 id[32];
    uint32_t             i, flags, generation;
    kvr_stats_t          stats;
    kvr_worker_conf_t    conf, list[2];
    kvr_health_params_t  p;

    put(&router, "a", "127.0.0.1:1");
    put(&router, "b", "127.0.0.1:2");

    ok(worker(&router, "a") && worker(&router, "b"), "workers are found");

    conf = worker(&router, "a")->conf;
    strcpy(conf.address, "127.0.0.1:9");
    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK,
       "the API changes a static worker");

    strcpy(conf.address, "127.0.0.1:1");
    (void) kvr_router_put_worker(&router, &conf, KVR_WORKER_STATIC);
    ok(strcmp(worker(&router, "a")->conf.address, "127.0.0.1:9") == 0,
       "and the configuration does not change it back");

    ok(store(&router, "b", 0, 100, 4) == KVR_OK, "a worker's blocks");
    is_u64(held(&router, "b", 100, 4), 4, "are found");

    ok(kvr_router_drain(&router, "b", 1, true) == KVR_OK
       && worker(&router, "b")->flags & KVR_WORKER_DRAINING,
       "a worker is drained");

    p = (kvr_health_params_t) { 1, 10000, 0, 0 };
    ok(fails(&router, "b", &p), "a worker fails");

    conf = worker(&router, "b")->conf;
    conf.max_active = 7;
    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK
       && health(&router, "b", &p) == KVR_HEALTH_FAILED,
       "it has failed although it is put again");

    ok(kvr_router_drain(&router, "b", 1, false) == KVR_OK
       && health(&router, "b", &p) == KVR_HEALTH_OK,
       "when it drains no more it begins anew");

    strcpy(conf.address, "127.0.0.1:7");
    ok(fails(&router, "b", &p)
       && kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK
       && health(&router, "b", &p) == KVR_HEALTH_OK,
       "and so it does at another address");

    ok(kvr_router_remove_worker(&router, "b", 1) == KVR_OK,
       "a worker is removed");
    is_u64(held(&router, "b", 100, 4), 0, "with all it held");
    ok(kvr_router_remove_worker(&router, "b", 1) == KVR_DECLINED,
       "and is not there to be removed again");
    ok(store(&router, "b", 0, 100, 4) == KVR_DECLINED,
       "nor to be written to");

    conf = worker(&router, "b")->conf;
    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_STATIC)
       == KVR_DECLINED, "the configuration does not bring it back");
    (void) fails(&router, "b", &p);
    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK,
       "the API does");
    is_u64(health(&router, "b", &p), KVR_HEALTH_OK,
           "and what failed before is forgotten");

    while (kvr_router_tend(&router, now(), 1000)) { /* void */ }

    kvr_router_stats(&router, &stats);
    is_u64(stats.views_dying, 0, "its old view is reclaimed");
    is_u64(stats.handles, 0, "down to the last handle");
    is_u64(stats.blocks, 0, "and the last block");

    memset(list, 0, sizeof(list));
    strcpy(list[0].id, "s1");
    strcpy(list[0].address, "127.0.0.1:5");
    list[0].ranks = 2;
    list[0].weight = 1000;
    list[1] = list[0];
    strcpy(list[1].id, "s2");

    (void) kvr_router_set_static(&router, list, 2);
    (void) kvr_router_set_static(&router, list, 1);
    ok(worker(&router, "s2")->conf.address[0] == '\0'
       && strcmp(worker(&router, "s1")->conf.address, "127.0.0.1:5") == 0,
       "a worker that left the configuration loses its address");

    for (i = 0; i < 100; i++) {
        snprintf(id, sizeof(id), "many%u", i);
        memset(&conf, 0, sizeof(conf));
        strcpy(conf.id, id);
        conf.ranks = 1;

        if (kvr_router_put_worker(&router, &conf, KVR_WORKER_API) != KVR_OK) {
            break;
        }
    }

    ok(i == 12, "the table of workers has a bound: %u more", i);
    ok(kvr_router_remove_worker(&router, "many3", 5) == KVR_OK
       && kvr_router_put_worker(&router, &conf, KVR_WORKER_API) == KVR_OK,
       "and a deleted worker's place is used again");
    ok(kvr_router_read_worker(&router, 0, &conf, &flags, &generation)
       == KVR_OK
       && strcmp(conf.id, "a") == 0, "a worker is read without the lock");
}


/* ---- places ------------------------------------------------------------- */

/* What is wrong with the holders of a worker; NULL: nothing. */

static const char *
wrong(const char *id)
{
    uint32_t              i, k, h, steps, n;
    const kvr_fleet_t    *f;
    const kvr_worker_t   *w;

    static uint32_t  owner[4096];

    f = &router.shards[0].fleet;
    w = worker(&router, id);

    if (w == NULL || w->flags & KVR_WORKER_DELETED) {
        return "it is not there";
    }

    for (i = 0; i < w->conf.ranks; i++) {
        if (kvr_fleet_holder_find(f, (uint32_t) (w - f->workers), i, &h)
            != KVR_OK)
        {
            return "a rank has no holder";
        }

        if (f->holders[h].generation != w->generation) {
            return "a holder is of another generation";
        }
    }

    memset(owner, 0, sizeof(owner));

    for (k = 0; k < f->zone->nworkers; k++) {
        steps = 0;
        h = KVR_HOLDER_NONE;

        for (n = 0; kvr_router_next_holder(&router, k, &h, &steps); n++) {
            if (owner[h]++) {
                return "a holder is in two lists";
            }
        }
    }

    return NULL;
}


static kvr_rc_t
registers(const char *id, uint32_t ranks)
{
    kvr_registered_t    what;
    kvr_registration_t  reg;

    kvr_registration_init(&reg, id, strlen(id));
    strcpy(reg.conf.address, "127.0.0.1:7");
    reg.conf.ranks = ranks;

    return kvr_router_register(&router, &reg, now() + 60000, &what);
}


static void
test_places(void)
{
    char         id[32];
    uint32_t     i, n;
    const char  *bad;

    bad = NULL;

    for (i = 0; i < 1000 && bad == NULL; i++) {
        snprintf(id, sizeof(id), "pod%u", i);

        bad = router_put(&router, id, "127.0.0.1:7", 8, KVR_WORKER_API)
              == KVR_OK ? wrong(id) : "it is refused";

        (void) store(&router, id, 0, 100, 4);
        (void) kvr_router_remove_worker(&router, id, strlen(id));
        (void) kvr_router_tend(&router, now(), 1000);
    }

    ok(bad == NULL, "1000 workers with 8 ranks come and go by the API (%s)",
       bad ? bad : id);

    ok(registers("stays", 8) == KVR_OK && wrong("stays") == NULL,
       "a member of Redis stays");

    bad = NULL;

    for (i = 0; i < 1000 && bad == NULL; i++) {
        snprintf(id, sizeof(id), "member%u", i);

        n = 1 + i % 88;
        bad = registers(id, n) == KVR_OK ? wrong(id) : "it is refused";
        bad = bad ? bad : wrong("stays");

        (void) kvr_router_deregister(&router, id, strlen(id));
    }

    ok(bad == NULL, "1000 members of 1 to 88 ranks come and go beside it (%s)",
       bad ? bad : id);
}


/* Tombstones give their places away last. */

static void
test_tombstones(void)
{
    char               id[32];
    uint32_t           i;
    kvr_worker_conf_t  conf;

    (void) router_put(&router, "dead", "127.0.0.1:7", 96, KVR_WORKER_STATIC);
    conf = worker(&router, "dead")->conf;
    (void) kvr_router_remove_worker(&router, "dead", 4);

    for (i = 0; i < 100; i++) {
        snprintf(id, sizeof(id), "member%u", i);
        (void) registers(id, 4);
        (void) kvr_router_deregister(&router, id, strlen(id));
    }

    ok(kvr_router_put_worker(&router, &conf, KVR_WORKER_STATIC)
       == KVR_DECLINED && registers("dead", 1) == KVR_DECLINED,
       "who was deleted stays so, whoever else came and went");
    is_u64(router.shards[0].fleet.zone->nworkers, 2,
           "and these had one slot in turn");
}


/* Reserves at rank 0 of a worker. */

static kvr_reservation_t
reserves(const char *id)
{
    uint32_t           i, h;
    kvr_reservation_t  r;

    memset(&r, 0, sizeof(r));

    if (kvr_router_find_worker(&router, id, strlen(id), &i) == KVR_OK
        && kvr_router_find_holder(&router, i, 0, &h) == KVR_OK)
    {
        r.holder = h;
        r.generation = kvr_router_worker(&router, i)->generation;
        r.decode_blocks = 5;
        kvr_router_reserve(&router, &r, now());
    }

    return r;
}


static uint64_t
active(const kvr_reservation_t *r)
{
    kvr_load_row_t  row;

    kvr_load_read(&router.load, r->holder, r->generation, &row);

    return (uint64_t) (row.active * 1000 + row.decode_blocks);
}


static void
test_late(void)
{
    uint32_t           before;
    kvr_reservation_t  first, second, third, again;

    before = router.shards[0].fleet.zone->max_holders;

    (void) kvr_router_join(&router);

    (void) router_put(&router, "first", "127.0.0.1:1", before, KVR_WORKER_API);
    first = reserves("first");
    (void) kvr_router_remove_worker(&router, "first", 5);

    (void) router_put(&router, "second", "127.0.0.1:2", before,
                      KVR_WORKER_API);
    second = reserves("second");

    ok(wrong("second") == NULL && second.holder == first.holder
       && second.generation != first.generation,
       "a holder goes to another worker, with another generation");

    again = first;
    kvr_load_release(&router.load, &first, now());
    is_u64(active(&second), 1005, "a late release hits no successor");
    kvr_router_reserve(&router, &again, now());
    is_u64(active(&second), 1005, "nor does a late reservation");

    (void) kvr_router_remove_worker(&router, "second", 6);
    (void) router_put(&router, "first", "127.0.0.1:1", before, KVR_WORKER_API);
    third = reserves("first");

    ok(wrong("first") == NULL && third.holder == second.holder
       && third.generation != again.generation,
       "a worker that comes back has its holders with another generation");

    kvr_load_release(&router.load, &again, now());
    kvr_load_release(&router.load, &second, now());
    is_u64(active(&third), 1005, "and nothing late hits it");

    /* a live worker takes what was an older one's alone */

    (void) kvr_router_remove_worker(&router, "first", 5);
    (void) router_put(&router, "grows", "127.0.0.1:3", 1, KVR_WORKER_API);
    (void) router_put(&router, "later", "127.0.0.1:4", 10, KVR_WORKER_API);
    (void) kvr_router_remove_worker(&router, "later", 5);

    ok(router_put(&router, "grows", "127.0.0.1:3", before - 10,
                  KVR_WORKER_API) == KVR_OK && wrong("grows") == NULL,
       "a worker grows into the holders of an older one");
    ok(router_put(&router, "grows", "127.0.0.1:3", before - 9, KVR_WORKER_API)
       == KVR_FULL, "but of no later one");
}


static void
test_bounds(void)
{
    char      id[32], text[KVR_NO_ROOM];
    uint32_t  i;

    (void) router_put(&router, "wide", "127.0.0.1:1", 90, KVR_WORKER_API);

    ok(router_put(&router, "more", "127.0.0.1:1", 8, KVR_WORKER_API)
       == KVR_FULL, "a worker has no room for its ranks");
    kvr_router_no_room(&router, "more", 4, text);
    ok(strcmp(text, "all (worker, rank) pairs are taken: 96; raise "
              "max_workers") == 0, "which is told: %s", text);

    (void) kvr_router_remove_worker(&router, "wide", 4);

    for (i = 0; i < 16; i++) {
        snprintf(id, sizeof(id), "w%u", i);
        (void) router_put(&router, id, "127.0.0.1:1", 1, KVR_WORKER_API);
    }

    ok(router_put(&router, "more", "127.0.0.1:1", 1, KVR_WORKER_API)
       == KVR_FULL, "there is no room for a worker");
    kvr_router_no_room(&router, "more", 4, text);
    ok(strcmp(text, "all workers are taken: 16; raise max_workers") == 0,
       "which is told, too: %s", text);
}


static void
in_a_fresh_zone(void (*test)(void))
{
    fresh(&router);
    test();
    kvr_router_detach(&router);
}


int
main(void)
{
    for (kind = 0; kind < KVR_INDEX_KINDS; kind++) {
        note("%s", kvr_index_name(kind));

        in_a_fresh_zone(test_members);
        in_a_fresh_zone(test_places);
        in_a_fresh_zone(test_tombstones);
        in_a_fresh_zone(test_late);
        in_a_fresh_zone(test_bounds);
    }

    return done();
}
