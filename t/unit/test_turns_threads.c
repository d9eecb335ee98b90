/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Threads that keep and find turns in one cache, in few slots.  Made for
 * ThreadSanitizer (make tsan), which finds accesses to shared memory that
 * nothing orders; what is found is looked at too.
 *
 *     test_turns_threads [milliseconds]
 */


#include "turns_fixture.h"

#include <pthread.h>


#define THREADS   4
#define WORLD     8


typedef struct {
    pthread_t    thread;
    tx_t         f;                 /* a handle of its own */
    tx_text_t    text;
    uint64_t     seed;
    uint64_t     turns;
    uint64_t     hits;
    uint64_t     wrong;
} thread_t;


static void *work(void *data);


static tx_t      f;
static thread_t  threads[THREADS];
static uint32_t  stopped;


int
main(int argc, char **argv)
{
    uint32_t           i;
    uint64_t           until, turns, hits, wrong;
    kvr_turns_stats_t  s;

    until = fx_now_ns() + (argc > 1 ? strtoull(argv[1], NULL, 0) : 1500)
                          * 1000000;

    tx_open(&f, 40 << 10, 1, false);

    for (i = 0; i < THREADS; i++) {
        threads[i].f = f;
        threads[i].seed = i + 1;

        if (pthread_create(&threads[i].thread, NULL, work, &threads[i])) {
            printf("Bail out! no thread\n");
            exit(1);
        }
    }

    while (fx_now_ns() < until) {
        tx_stats(&f);
    }

    __atomic_store_n(&stopped, 1, __ATOMIC_RELAXED);

    for (i = 0, turns = 0, hits = 0, wrong = 0; i < THREADS; i++) {
        pthread_join(threads[i].thread, NULL);
        turns += threads[i].turns;
        hits += threads[i].hits;
        wrong += threads[i].wrong;
    }

    s = tx_stats(&f);

    is_u64(wrong, 0, "%llu turns of %u threads, %llu hits, %llu slots torn: "
           "nothing wrong was found", (unsigned long long) turns, THREADS,
           (unsigned long long) hits, (unsigned long long) s.slots.torn);
    ok(hits > 0 && s.hits == hits && s.misses == turns - hits
       && s.slots.evicted > 0, "all hits and misses are counted");

    tx_close(&f);

    return done();
}


static void *
work(void *data)
{
    thread_t  *me = data;
    uint32_t   i;
    kvr_rc_t   rc;

    while (__atomic_load_n(&stopped, __ATOMIC_RELAXED) == 0
           || me->turns < 100)
    {
        me->text.n = 1 + fx_random(&me->seed) % 6;
        me->text.part[0] = fx_random(&me->seed) % WORLD;

        for (i = 1; i < me->text.n; i++) {
            me->text.part[i] = me->text.part[0] * 10 + i;
        }

        tx_build(&me->f, &me->text);

        me->wrong += !tx_turn(&me->f, &me->text, fx_now_ns() / 1000000, &rc);
        me->hits += rc == KVR_OK;
        me->turns++;
    }

    return NULL;
}
