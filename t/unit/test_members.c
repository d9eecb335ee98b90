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


int
main(void)
{
    for (kind = 0; kind < KVR_INDEX_KINDS; kind++) {
        note("%s", kvr_index_name(kind));

        fresh(&router);
        test_members();
        kvr_router_detach(&router);
    }

    return done();
}
