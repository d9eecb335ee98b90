/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Estimates in a zone: who has them, what ends them, and their bounds.
 */


#include "estimates.h"


#define LONG     64


static uint64_t  locals[LONG * 400];


/* A prompt of the given number, of n blocks, was answered. */

static void
answered(uint32_t holder, uint32_t number, uint32_t n, uint32_t completion)
{
    kvr_routed_record_t  r;

    r = es_record(holder, KVR_ROUTED_BEGIN);
    r.n = n;
    (void) kvr_routed_append(es_ring, &r, locals + number * LONG);
    r.kind = KVR_ROUTED_END;
    r.completion = completion;
    (void) kvr_routed_append(es_ring, &r, locals + number * LONG);
    es_apply();
}


static uint32_t
has(uint32_t holder, uint32_t number)
{
    return es_match(holder, locals + number * LONG, LONG).host;
}


static kvr_estimate_info_t
info(uint32_t holder)
{
    kvr_estimate_info_t  out;

    memset(&out, 0, sizeof(out));
    (void) kvr_router_estimate_read(&es, holder, &out);

    return out;
}


static kvr_confidence_t
confidence(uint32_t worker)
{
    return kvr_fleet_confidence(kvr_router_worker(&es, worker), 1, 1000,
                                true, NULL);
}


/* An event of the worker that stores blocks of another prompt. */

static kvr_rc_t
told(const char *id, uint32_t number, uint32_t n)
{
    uint32_t     unknown;
    kvr_why_t    why;
    kvr_event_t  ev;
    const char  *detail;

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.handles = locals + number * LONG;
    ev.locals = locals + number * LONG;
    ev.nhandles = n;
    ev.nlocals = n;

    return kvr_router_write(&es, id, strlen(id), &ev, es_now, &unknown, &why,
                            &detail);
}


static kvr_rc_t
count_line(void *data, const char *line, size_t len)
{
    (void) line;
    (void) len;
    (*(uint32_t *) data)++;

    return KVR_OK;
}


/* ---- tests -------------------------------------------------------------- */

static void
answers_are_estimated(void)
{
    void                 *base;
    uint32_t              a, b, ha, hb, lines;
    kvr_match_t           m;
    kvr_estimate_info_t   i;

    base = es_open(ES_ZONE);
    a = es_worker("a");
    b = es_worker("b");
    ha = es_holder(a);
    hb = es_holder(b);

    is_u64(has(ha, 0), 0, "nothing is estimated at first");
    is_u64(confidence(a), KVR_ESTIMATED, "and the worker is ESTIMATED");

    answered(ha, 0, 10, 24);

    is_u64(has(ha, 0), 10, "a prompt that a worker answered is cached there");
    is_u64(has(hb, 0), 0, "and nowhere else");

    m = es_match(ha, locals, 4);
    ok(m.estimated && m.device == 4 && m.host == 4 && m.disk == 4
       && m.hot == 4 && m.ghost == 4, "its beginning is found");
    is_u64(info(ha).held, 16 * ES_BLOCK, "the answer takes room, too");

    answered(hb, 0, 12, 0);
    is_u64(has(hb, 0), 12, "two workers can have the same prompt");
    is_u64(has(ha, 0), 10, "each of them what it answered");

    lines = 0;
    (void) kvr_router_dump(&es, false, count_line, &lines);
    is_u64(lines, 0, "a dump has none of it");

    (void) kvr_router_dump(&es, true, count_line, &lines);
    ok(lines == 2 || lines == 22,
       "unless it is asked for estimates: a line a chain, or a block");

    (void) kvr_router_remove_worker(&es, "a", 1);
    is_u64(has(ha, 0), 0, "a worker that is removed has nothing");
    (void) es_worker("a");

    i = info(hb);
    ok(es_check() == NULL && i.capacity == 0 && i.source == KVR_CAPACITY_NONE
       && i.ends == 1, "and all is whole");

    es_close(base, ES_ZONE);
}


static void
without_a_capacity_prompts_age(void)
{
    void      *base;
    uint32_t   h;

    base = es_open(ES_ZONE);
    h = es_holder(es_worker("w"));

    answered(h, 0, 10, 0);
    es_now += 300000;
    answered(h, 1, 10, 0);
    es_now += 290000;
    es_apply();
    is_u64(has(h, 0), 10, "what was used ten minutes ago is still there");
    es_now += 20000;
    es_apply();
    is_u64(has(h, 0), 0, "and goes a little later");
    is_u64(has(h, 1), 10, "what was used later stays");
    ok(es_check() == NULL, "and all is whole");

    es_close(base, ES_ZONE);
}


static void
capacities_have_sources(void)
{
    void                 *base;
    uint32_t              w, h;
    kvr_estimate_info_t   i;

    base = es_open(ES_ZONE);
    w = es_worker("w");
    h = es_holder(w);

    (void) kvr_router_estimate_capacity(&es, w, 100, KVR_CAPACITY_SCRAPED);
    i = info(h);
    ok(i.capacity == 100 && i.source == KVR_CAPACITY_SCRAPED,
       "a capacity is scraped");

    answered(h, 0, 40, 0);
    is_u64(has(h, 0), 25, "there is room for so many blocks");

    (void) kvr_router_estimate_capacity(&es, w, 80, KVR_CAPACITY_CONFIGURED);
    (void) kvr_router_estimate_capacity(&es, w, 120, KVR_CAPACITY_SCRAPED);
    es_apply();
    i = info(h);
    ok(i.capacity == 80 && i.source == KVR_CAPACITY_CONFIGURED
       && i.held == 80, "one that is configured overrides it");

    is_u64(kvr_router_estimate_capacity(&es, 77, 80, KVR_CAPACITY_SCRAPED),
           KVR_DECLINED, "a worker that is not there has none");

    es_close(base, ES_ZONE);
}


static void
a_prompt_in_flight_stays(void)
{
    void                 *base;
    uint32_t              w, h;
    kvr_routed_record_t   r;

    base = es_open(ES_ZONE);
    w = es_worker("w");
    h = es_holder(w);
    (void) kvr_router_estimate_capacity(&es, w, 30 * ES_BLOCK,
                                        KVR_CAPACITY_CONFIGURED);

    r = es_record(h, KVR_ROUTED_BEGIN);
    r.n = 10;
    (void) kvr_routed_append(es_ring, &r, locals);
    es_apply();

    answered(h, 1, 12, 0);
    answered(h, 2, 12, 0);
    is_u64(has(h, 0), 10, "the oldest prompt stays as long as it is in "
           "flight");
    is_u64(has(h, 1), 8, "the next one goes, the end first");

    answered(h, 0, 10, 0);
    answered(h, 3, 12, 0);
    answered(h, 4, 12, 0);
    is_u64(has(h, 0), 6, "when it is answered, it goes in its turn");

    r.n = 10;
    (void) kvr_routed_append(es_ring, &r, locals + 5 * LONG);
    es_apply();
    es_now += (KVR_ESTIMATE_BUSY + 1) * 1000;
    answered(h, 6, 12, 0);
    answered(h, 7, 12, 0);
    answered(h, 8, 12, 0);
    is_u64(has(h, 5), 0, "one whose process died stays for a minute at most");

    es_close(base, ES_ZONE);
}


static void
engines_restart(void)
{
    void                 *base;
    uint32_t              i, w, h;
    kvr_routed_record_t   r;

    base = es_open(ES_ZONE);
    w = es_worker("w");
    h = es_holder(w);
    (void) kvr_router_estimate_capacity(&es, w, 100000,
                                        KVR_CAPACITY_CONFIGURED);

    answered(h, 0, 20, 0);
    r = es_record(h, KVR_ROUTED_ANSWER);
    r.n = 20;
    r.hot = r.visible = r.ghost = 20;

    for (i = 0; i < KVR_CAPACITY_MISSES - 1; i++) {
        (void) kvr_routed_append(es_ring, &r, NULL);
    }

    r.cached = 4;
    (void) kvr_routed_append(es_ring, &r, NULL);
    r.cached = 0;

    for (i = 0; i < KVR_CAPACITY_MISSES - 1; i++) {
        (void) kvr_routed_append(es_ring, &r, NULL);
    }

    es_apply();
    is_u64(has(h, 0), 20, "nine answers with nothing cached say nothing");

    (void) kvr_routed_append(es_ring, &r, NULL);
    es_apply();
    is_u64(has(h, 0), 0, "ten in a row tell of a restart");
    is_u64(info(h).cleared[KVR_ESTIMATE_RESTARTED], 1, "which is counted");
    is_u64(info(h).capacity, 100000, "the capacity stays");

    answered(h, 0, 20, 0);
    r.routed_ms = 1;

    for (i = 0; i < 3 * KVR_CAPACITY_MISSES; i++) {
        (void) kvr_routed_append(es_ring, &r, NULL);
    }

    es_apply();
    is_u64(has(h, 0), 20, "answers of prompts that were routed before it "
           "count no more");

    r.kind = KVR_ROUTED_RESTART;
    (void) kvr_routed_append(es_ring, &r, NULL);
    es_apply();
    is_u64(has(h, 0), 0, "a restart that is known empties the estimate");

    answered(h, 0, 20, 0);
    r.kind = KVR_ROUTED_BEGIN;
    r.generation++;
    (void) kvr_routed_append(es_ring, &r, locals + LONG);
    es_apply();
    is_u64(has(h, 1), 0, "records of another worker are ignored");

    es_clear(&es, h);
    is_u64(has(h, 0), 0, "an estimate that is dropped is empty");
    es_apply();
    ok(es_check() == NULL && es.shards[h % es.nshards].zone->recency.used == 0,
       "nothing is left of it");

    es_close(base, ES_ZONE);
}


static void
events_take_over(void)
{
    void      *base;
    uint32_t   w, h;

    base = es_open(ES_ZONE);
    w = es_worker("w");
    h = es_holder(w);

    answered(h, 0, 20, 0);
    is_u64(told("w", 1, 5), KVR_OK, "an event comes of a worker without");
    is_u64(has(h, 0), 0, "what was estimated does not count from then on");
    is_u64(has(h, 1), 5, "what events tell does");
    ok(!es_match(h, locals + LONG, 5).estimated, "and is no estimate");

    es_now += 2000;
    es_apply();
    is_u64(info(h).cleared[KVR_ESTIMATE_EVENTS], 1,
           "the estimate is dropped");
    ok(kvr_router_worker(&es, w)->flags & KVR_WORKER_EVENTS,
       "the worker is noted");

    kvr_fleet_forget_stream(&es.shards[w % es.nshards].fleet,
                            w / es.nshards);
    answered(h, 0, 20, 0);
    is_u64(has(h, 0), 0, "and is not estimated again, whatever its events");
    ok(es_check() == NULL, "and all is whole");

    es_close(base, ES_ZONE);
}


static void
text_has_its_weight(void)
{
    void                 *base;
    uint32_t              i, w, h;
    kvr_routed_record_t   r;

    base = es_open(ES_ZONE);
    w = es_worker("w");
    h = es_holder(w);

    r = es_record(h, KVR_ROUTED_END);
    r.n = 20;
    r.text = 1;
    r.bytes = 20 * KVR_TEXT_BLOCK + 30;
    (void) kvr_routed_append(es_ring, &r, locals);
    es_apply();

    is_u64(info(h).held, 20 * KVR_TEXT_BLOCK / 4,
           "a block of text is taken for a quarter of its bytes");
    is_u64(kvr_router_estimate_blocks(&es, h, 10),
           10 * KVR_TEXT_BLOCK / 4 / ES_BLOCK, "in blocks of the zone, too");

    r.kind = KVR_ROUTED_ANSWER;
    r.hot = r.visible = r.ghost = 10;
    r.tokens = r.bytes / 2;
    r.cached = 10 * KVR_TEXT_BLOCK / 2;

    for (i = 0; i < 5; i++) {
        (void) kvr_routed_append(es_ring, &r, NULL);
    }

    es_apply();
    is_u64(info(h).held, 20 * KVR_TEXT_BLOCK / 2, "until answers tell how "
           "many tokens it has");

    answered(h, 3, 10, 0);
    is_u64(info(h).held, 20 * KVR_TEXT_BLOCK / 2 + 10 * ES_BLOCK,
           "blocks of tokens are beside it");

    (void) kvr_router_estimate_capacity(&es, w, 10 * ES_BLOCK
                                                + 5 * KVR_TEXT_BLOCK / 2,
                                        KVR_CAPACITY_CONFIGURED);
    es_apply();
    is_u64(es_match(h, locals, 20).host, 5, "and both share one capacity:");
    is_u64(has(h, 3), 10, "what was used longest ago goes");
    ok(es_check() == NULL, "and all is whole");

    es_close(base, ES_ZONE);
}


/* More than the zone has room for. */

static void
a_full_zone(void)
{
    bool                  good;
    void                 *base;
    uint32_t              i, k, h;
    uint64_t              many[512], seed;
    const char           *why;
    kvr_routed_record_t   r;
    kvr_estimate_info_t   is;

    base = es_open(KVR_ZONE_MIN);
    h = es_holder(es_worker("w"));
    good = true;
    why = NULL;
    seed = 5;

    for (i = 0; i < 3000 && good && why == NULL; i++) {

        for (k = 0; k < 512; k++) {
            many[k] = fx_random(&seed);
        }

        r = es_record(h, KVR_ROUTED_BEGIN);
        r.n = i % 3 ? 8 : 512;
        (void) kvr_routed_append(es_ring, &r, many);
        es_apply();

        if (i % 100 == 0) {
            why = es_check();
        }
    }

    is = info(h);
    ok(why == NULL, "an estimate larger than the zone leaves the zone whole: "
       "%s", why ? why : "yes");
    ok(is.refused || is.cleared[KVR_ESTIMATE_FULL], "%lu prompts were "
       "refused, the estimate was dropped %lu times, and both are counted",
       (unsigned long) is.refused,
       (unsigned long) is.cleared[KVR_ESTIMATE_FULL]);

    es_clear(&es, h);
    es_apply();

    while (kvr_router_tend(&es, es_now, 100000)) {
        /* the zone gets its memory back */
    }

    answered(h, 0, 10, 0);
    is_u64(has(h, 0), 10, "and it goes on");

    es_close(base, KVR_ZONE_MIN);
}


static void
only_the_lease_applies(void)
{
    void                 *base;
    uint32_t              h;
    kvr_routed_record_t   r;

    base = es_open(ES_ZONE);
    h = es_holder(es_worker("w"));
    kvr_router_lease_release(&es);

    r = es_record(h, KVR_ROUTED_BEGIN);
    r.n = 10;
    (void) kvr_routed_append(es_ring, &r, locals);

    ok(!kvr_router_estimate(&es, &es_ring, 1, es_now, 100000)
       && kvr_routed_unread(es_ring) != 0,
       "a process without the lease leaves the ring alone");

    (void) kvr_router_lease(&es, 0, 0, kvr_now_us() / 1000);
    es_apply();
    is_u64(has(h, 0), 10, "the one that has it reads it");

    es_close(base, ES_ZONE);
}


int
main(void)
{
    uint32_t  i;

    for (i = 0; i < sizeof(locals) / sizeof(locals[0]); i++) {
        locals[i] = fx_mix(i + 1);
    }

    for (es_kind = 0; es_kind < KVR_INDEX_KINDS; es_kind++) {
        for (es_shards = 1; es_shards <= 4; es_shards += 3) {
            note("%s, %u shards", kvr_index_name(es_kind), es_shards);

            answers_are_estimated();
            without_a_capacity_prompts_age();
            capacities_have_sources();
            a_prompt_in_flight_stays();
            engines_restart();
            events_take_over();
            text_has_its_weight();
            only_the_lease_applies();
        }

        es_shards = 1;
        a_full_zone();
    }

    return done();
}
