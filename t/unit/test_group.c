/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The group: what a router makes of what its peers tell.
 */


#include "group_fixture.h"


#define GROUP  4


static router_t  r;


static void
begin_test(void)
{
    open_router(&r, 8);
    echo(&r);
    tick(&r);
}


static void
end_test(void)
{
    close_router(&r);
}


static int64_t
active(const char *id)
{
    return load_of(&r, id).active;
}


/* The shares of all, as the router's place has them; 0: it knows nobody. */

static uint64_t
shares_of(router_t *of)
{
    return of->k.peers.zone->place >> 32;
}


/* ---- sums --------------------------------------------------------------- */

static void
sums(void)
{
    kvr_load_row_t  row;

    begin_test();

    is_u64(kvr_peers_part(&r.k.peers, 60), 60, "alone a bound is whole");

    about_of(&r, 7, 8, 100);
    row_of(&r, 7, "w1", 3);
    row_of(&r, 8, "w1", 2);
    tick(&r);
    ok(strcmp(record_of(&r, 7)->name, "peer 7") == 0, "a peer is heard, and has its name");
    ok(record_of(&r, 8)->name[0] == '\0', "another one has told none so far");

    row = load_of(&r, "w1");
    is_u64((uint64_t) row.active, 5, "requests of peers are added up");
    is_u64((uint64_t) row.prefills, 2, "and prefills");
    is_u64((uint64_t) row.prefill_tokens, 500, "and their tokens");
    is_u64((uint64_t) row.decode_blocks, 50, "and blocks");
    is_u64(row.begun_ms, now_ms - 40, "a prefill began by our clock");
    is_u64((uint64_t) active("w2"), 0, "another worker has no load");

    row_of(&r, 7, "w1", 0);
    is_u64((uint64_t) active("w1"), 2, "zeros are told, too");
    row_of(&r, 8, "w1", INT64_MAX / 1000);
    row_of(&r, 7, "w1", INT64_MAX / 1000);
    is_u64((uint64_t) active("w1"), 2 * (uint64_t) KVR_SYNC_MOST,
           "what can't be is clamped");
    row_of(&r, 8, "w1", 1);
    row_of(&r, 7, "w1", 0);
    is_u64((uint64_t) active("w1"), 1, "and is over with the next row");

    is_u64(kvr_group_counts(r.g)->messages, 8, "messages of peers are counted");
    is_u64(kvr_group_counts(r.g)->refused, 0, "none was refused");

    (void) kvr_group_hear(r.g, "\xc0", 1, now_us);
    is_u64(kvr_group_counts(r.g)->refused, 1, "one that can't be read is");

    end_test();
}


/* ---- rows by clock ------------------------------------------------------- */

static void
order(void)
{
    uint64_t  sent_us;

    begin_test();

    row_of(&r, 7, "w1", 1);
    now_us += 1000;
    row_of(&r, 7, "w1", 2);
    sent_us = now_us - DELAY;
    tick(&r);
    now_us += 1000;

    say.clock_us = sent_us;
    row_of(&r, 7, "w1", 2);
    is_u64((uint64_t) active("w1"), 2, "a doubled message changes nothing");

    say.clock_us = sent_us - 1;
    tell_row("w1", 9);
    tell_row("w2", 4);
    (void) heard(&r, 7);
    is_u64((uint64_t) active("w1"), 2, "a row with an older clock is dropped");
    is_u64((uint64_t) active("w2"), 4, "others of its message are not");

    say.process = 2;
    say.clock_us = sent_us - 1;
    row_of(&r, 7, "w1", 50);
    is_u64((uint64_t) active("w1"), 2, "whichever process tells it");

    say.process = 2;
    say.clock_us = sent_us + 1;
    row_of(&r, 7, "w1", 5);
    is_u64((uint64_t) active("w1"), 5, "a younger one is taken");

    say.clock_us = sent_us - 1;
    row_of(&r, 8, "w1", 1);
    is_u64((uint64_t) active("w1"), 6, "clocks of other routers are others");

    end_test();
}


/* ---- clocks ------------------------------------------------------------- */

static void
clocks(void)
{
    uint32_t  i;

    begin_test();

    row_of(&r, 7, "w1", 1);
    now_us += 10000;
    say.clock_us = UINT64_C(1) << 61;
    row_of(&r, 7, "w1", 1000);
    tick(&r);
    is_u64((uint64_t) active("w1"), 1, "a clock that is far ahead is refused");
    say.clock_us = now_us - 3200000;
    row_of(&r, 7, "w2", 1000);
    is_u64((uint64_t) active("w2"), 0, "and news older than timeout");
    is_u64(kvr_group_counts(r.g)->refused, 2, "both are counted");
    row_of(&r, 7, "w1", 2);
    is_u64((uint64_t) active("w1"), 2, "the peer's own go on");

    /* the first that is heard of a router is forged */

    say.clock_us = UINT64_C(1) << 61;
    row_of(&r, 8, "w2", 1000);

    for (i = 0; i < 200; i++) {
        pass(&r, 20);
        row_of(&r, 8, "w2", 3);
    }

    tick(&r);
    is_u64((uint64_t) active("w2"), 3, "a forged router is gone with timeout");

    end_test();
}


/* ---- lag, silence, timeout ---------------------------------------------- */

/* Messages of such a lag of peer 7, each 10 ms. */

static void
lagging(uint32_t lag_ms, uint32_t ms)
{
    uint64_t         until_us;
    static uint32_t  last_ms;

    /* what is slow comes later, and not from the past */

    now_us += lag_ms > last_ms ? (lag_ms - last_ms) * UINT64_C(1000) : 0;
    last_ms = lag_ms;

    for (until_us = now_us + ms * UINT64_C(1000); now_us < until_us; ) {
        now_us += 10000;
        echo(&r);
        say.clock_us = now_us - DELAY - lag_ms * UINT64_C(1000);
        row_of(&r, 7, "w1", 4);
        tick(&r);
    }
}


static void
lag(void)
{
    begin_test();

    lagging(0, 100);
    is_u64((uint64_t) active("w1"), 4, "a peer in step counts");
    lagging(130, 2000);
    is_u64((uint64_t) active("w1"), 4, "one that lags for 130 ms does, too");
    is_u64(record_of(&r, 7)->lag_us / 1000, 130, "its lag is told");
    is_u64(load_of(&r, "w1").begun_ms, now_ms - 170,
           "its prefill began as much sooner");
    lagging(170, 100);
    is_u64((uint64_t) active("w1"), 0, "one that lags for 170 ms does not");
    is_u64(record_of(&r, 7)->state, KVR_PEER_SILENT, "it is silent");
    ok(!kvr_peers_fresh(&r.k.peers, now_ms), "and nobody else is fresh");
    lagging(10, 10);
    is_u64((uint64_t) active("w1"), 4, "in step it counts again at once");

    /* half of our echo's way is part of the lag */

    say.clock_us = now_us - 4000;
    (void) heard(&r, r.k.peers.zone->router);
    row_of(&r, 7, "w1", 4);
    tick(&r);
    is_u64(record_of(&r, 7)->lag_us, DELAY / 2,
           "the quickest echo tells what a message takes at the least");

    end_test();
}


static void
silence(void)
{
    begin_test();

    about_of(&r, 7, 8, 100);
    about_of(&r, 8, 8, 100);
    row_of(&r, 7, "w1", 4);
    row_of(&r, 8, "w1", 3);
    pass(&r, 140);
    is_u64((uint64_t) active("w1"), 7, "news of 140 ms count");
    row_of(&r, 8, "w1", 3);
    pass(&r, 40);
    is_u64((uint64_t) active("w1"), 3, "those of 180 ms do not");
    is_u64(record_of(&r, 7)->state, KVR_PEER_SILENT, "their peer is silent");
    ok(kvr_peers_fresh(&r.k.peers, now_ms), "the other one is fresh");
    row_of(&r, 8, "w1", 0);
    pass(&r, 200);
    is_u64(record_of(&r, 8)->state, KVR_PEER_FRESH,
           "a peer without load need not speak");

    row_of(&r, 7, "w2", 1);
    is_u64((uint64_t) active("w1"), 4, "who is back has all its rows");

    pass(&r, 2780);
    is_u64(r.k.peers.zone->npeers, 2, "a peer stays for 3 s");
    is_u64(shares_of(&r), 16, "and its share");
    row_of(&r, 8, "w1", 0);
    pass(&r, 260);
    is_u64(r.k.peers.zone->npeers, 1, "then it is gone");
    pass(&r, 100);
    is_u64(shares_of(&r), 8, "with its share");

    end_test();
}


static void
leaving(void)
{
    begin_test();

    about_of(&r, 7, 8, 100);
    row_of(&r, 7, "w1", 4);
    pass(&r, 100);
    is_u64(shares_of(&r), 8, "a peer has a share");
    ok(kvr_peers_homes(&r.k.peers) != NULL, "and workers");

    say.leaving = true;
    about_of(&r, 7, 8, 100);
    pass(&r, 100);
    is_u64(record_of(&r, 7)->state, KVR_PEER_LEAVING, "it says that it leaves");
    is_u64((uint64_t) active("w1"), 4, "its streams go on");
    is_u64(shares_of(&r), 0, "its share is over at once");
    ok(kvr_peers_homes(&r.k.peers) == NULL, "and so are its homes");
    is_u64(kvr_peers_part(&r.k.peers, 60), 60, "and its parts of bounds");

    pass(&r, 200);
    is_u64(record_of(&r, 7)->state, KVR_PEER_SILENT, "then it is silent");
    is_u64((uint64_t) active("w1"), 0, "and does not count");
    pass(&r, 2600);
    is_u64(r.k.peers.zone->npeers, 1, "for 3 s");
    pass(&r, 120);
    is_u64(r.k.peers.zone->npeers, 0, "then it is gone");

    end_test();
}


static void
redis_gone(void)
{
    uint32_t  i;

    begin_test();

    about_of(&r, 7, 8, 100);
    row_of(&r, 7, "w1", 4);
    pass(&r, 100);

    for (i = 0; i < 1000; i++) {
        now_us += 20000;
        tick(&r);
    }

    is_u64(r.k.peers.zone->npeers, 1, "Redis is gone for 20 s: peers stay");
    is_u64(shares_of(&r), 8, "and shares");
    ok(kvr_peers_homes(&r.k.peers) != NULL, "and homes");
    is_u64((uint64_t) active("w1"), 0, "but nothing counts");

    pass(&r, 2900);
    is_u64(r.k.peers.zone->npeers, 1, "our echo is back: a peer has time");
    pass(&r, 200);
    is_u64(r.k.peers.zone->npeers, 0, "timeout later it is gone");
    pass(&r, 100);
    ok(kvr_peers_homes(&r.k.peers) == NULL, "and there are no homes");
    is_u64(kvr_peers_part(&r.k.peers, 60), 60, "a bound is whole");

    end_test();
}


/* ---- the fleet ---------------------------------------------------------- */

static void
fleet(void)
{
    char      id[8];
    int64_t   n;
    uint32_t  i, was;

    begin_test();

    row_of(&r, 7, "new", 4);
    pass(&r, 20);
    put_worker(&r, "new", 1);
    pass(&r, 80);
    row_of(&r, 7, "new", 5);
    pass(&r, 20);
    is_u64((uint64_t) active("new"), 5,
           "a worker that is known now has load with the next message");

    was = generation_of(&r, "w1");
    row_of(&r, 7, "w1", 5);
    pass(&r, 20);
    is_u64((uint64_t) active("w1"), 5, "a worker has load");
    (void) kvr_router_remove_worker(&r.k, "w1", 2);

    for (i = 0; i < WORKERS - 8; i++) {
        (void) snprintf(id, sizeof(id), "o%u", i);
        put_worker(&r, id, 1);
    }

    (void) kvr_router_remove_worker(&r.k, "o1", 2);
    put_worker(&r, "w1", 1);
    ok(generation_of(&r, "w1") != was, "it is registered again, as a new one");
    is_u64((uint64_t) active("w1"), 0, "its load was another one's");
    pass(&r, 80);
    row_of(&r, 7, "w1", 6);
    pass(&r, 40);
    is_u64((uint64_t) active("w1"), 6, "and counts from the next row");

    for (i = 0, n = 0; i < WORKERS - 8; i++) {
        (void) snprintf(id, sizeof(id), "o%u", i);
        n += i == 1 ? 0 : active(id);
    }

    is_u64((uint64_t) n, 0, "nobody has the load of its holder before");

    end_test();
}


/* ---- flights ------------------------------------------------------------ */

static void
add(uint64_t peer, uint32_t id, uint64_t prompt, const char *worker)
{
    tell_add(&r, id, prompt, worker);
    (void) heard(&r, peer);
}


static void
ends(uint64_t peer, uint32_t id)
{
    say.ends[say.nends++] = id;
    (void) heard(&r, peer);
}


static void
flights(void)
{
    uint32_t  i;

    begin_test();

    add(7, 1, 100, "w1");
    is_u64(flying(&r, 100, "w1"), BLOCKS, "a flight of a peer");
    is_u64(flying(&r, 100, "w2"), 0, "at its worker alone");
    add(8, 1, 100, "w1");
    ends(7, 1);
    is_u64(flying(&r, 100, "w1"), BLOCKS, "another peer's has the same id");
    ends(7, 1);
    is_u64(flying(&r, 100, "w1"), BLOCKS, "an end ends what was added alone");
    say.process = 2;
    ends(8, 1);
    is_u64(flying(&r, 100, "w1"), BLOCKS, "an id is of a process");
    ends(8, 1);
    is_u64(flying(&r, 100, "w1"), 0, "the last one has ended");

    add(7, 2, 200, "w2");
    now_us += 30000000;
    add(7, 2, 200, "w2");
    now_us += 50000000;
    is_u64(flying(&r, 200, "w2"), BLOCKS, "what is renewed lasts for 60 s more");
    ends(7, 2);
    is_u64(flying(&r, 200, "w2"), 0, "and ends once");

    add(7, 3, 300, "w3");
    now_us += 61000000;
    is_u64(flying(&r, 300, "w3"), 0, "what is not renewed is over");

    add(7, 4, 400, "nobody");
    is_u64(flying(&r, 400, "w1"), 0, "a flight at a worker that is unknown");

    add(7, 5, 500, "w1");
    add(7, 6, 600, "w2");

    for (i = 0; i < 40; i++) {
        add(8, 5, 700, "w3");
        pass(&r, 100);
    }

    is_u64(flying(&r, 500, "w1") + flying(&r, 600, "w2"), 0,
           "a peer that is gone has no flights");
    is_u64(flying(&r, 700, "w3"), BLOCKS, "no other's end with them");

    /* the table is full */

    for (i = 0; i < 80000; i++) {

        tell_add(&r, 1000 + i, 1, "w4");

        if (say.nadds == KVR_SYNC_ADDS) {
            (void) heard(&r, 7);
        }
    }

    (void) heard(&r, 7);

    ok(kvr_group_counts(r.g)->refused > 80000 - 65536,
       "65,536 adds at the most");
    add(7, 1, 800, "w5");
    is_u64(flying(&r, 800, "w5"), BLOCKS, "one more is a timed flight");

    if (kvr_group_counts(r.g)->refused == 0) {
        ends(7, 1);
    }

    now_us += 6000000;
    is_u64(flying(&r, 800, "w5"), 0, "of 5 s");

    end_test();

    conf.predict_ms = 2000;
    begin_test();
    add(7, 1, 100, "w1");
    ends(7, 1);
    is_u64(flying(&r, 100, "w1"), BLOCKS, "a prediction lasts its time");
    add(7, 2, 200, "w1");
    now_us += 1500000;
    add(7, 2, 200, "w1");
    now_us += 1000000;
    is_u64(flying(&r, 200, "w1"), 0, "and is not renewed");
    conf.predict_ms = 0;
    end_test();
}


/* ---- many routers ------------------------------------------------------- */

static void
many(void)
{
    uint32_t  i, n;

    begin_test();

    for (i = 0, n = 0; i < 40; i++) {
        row_of(&r, 10 + i, "w1", 1);
        n += r.rc == KVR_FULL;
    }

    tick(&r);

    is_u64(n, 9, "a 33rd router is refused");
    is_u64(kvr_group_counts(r.g)->refused, 9, "and counted");
    is_u64((uint64_t) active("w1"), KVR_PEERS_MAX, "the others count");
    is_u64(r.k.peers.zone->npeers, KVR_PEERS_MAX, "and have records");

    for (i = 0; i < 1000; i++) {
        say.process = i + 10;
        row_of(&r, 10, "w1", 1);
    }

    is_u64(kvr_group_counts(r.g)->messages, KVR_PEERS_MAX + 1000,
           "processes of a router can be many");

    end_test();
}


/* ---- the lease is another one's ----------------------------------------- */

static void
handed_over(void)
{
    begin_test();

    about_of(&r, 7, 8, 100);
    row_of(&r, 7, "w1", 4);
    add(7, 1, 100, "w1");
    now_us += 1000000;
    echo(&r);
    kvr_group_tick(r.g, 100, false, now_us);
    is_u64(kvr_peers_share(&r.k.peers), 8, "a router has a half");
    is_u64(shares_of(&r), 16, "of all");
    pass(&r, 20);
    renew_group(&r);

    is_u64((uint64_t) active("w1"), 0, "a new holder of the lease knows no load");
    is_u64(r.k.peers.zone->npeers, 1, "but peers");
    kvr_group_tick(r.g, 100, false, now_us);
    is_u64(kvr_peers_share(&r.k.peers), 8, "and the router's own share");
    is_u64(shares_of(&r), 16, "and theirs");
    ok(kvr_peers_homes(&r.k.peers) != NULL, "and homes");
    ok(!kvr_peers_fresh(&r.k.peers, now_ms), "and nobody is fresh");

    now_us += 20000;
    row_of(&r, 7, "w1", 4);
    tick(&r);
    is_u64((uint64_t) active("w1"), 4, "its load is heard anew");
    is_u64(record_of(&r, 7)->since_ms, now_ms - 1040, "it is known as long");
    ok(strcmp(record_of(&r, 7)->name, "peer 7") == 0, "by its name");

    now_us += 1000000;
    echo(&r);
    kvr_group_tick(r.g, 300, false, now_us);
    is_u64(kvr_peers_share(&r.k.peers), 12,
           "shares go on with the tokens that it told before");

    end_test();
}


/* ---- shares and homes of four ------------------------------------------- */

static router_t  four[GROUP];
static uint32_t  tokens[GROUP];         /* uncached ones */
static bool      leaves[GROUP];


/* A second of a group, in which each tells the others. */

static void
second(void)
{
    uint32_t  i, k, t;

    for (i = 0; i < GROUP; i++) {
        for (k = 0; k < GROUP; k++) {
            say.leaving = leaves[i];
            about_of(&four[k], four[i].k.peers.zone->router,
                     kvr_peers_share(&four[i].k.peers), tokens[i]);
        }
    }

    for (t = 0; t < 50; t++) {
        now_us += 20000;

        for (i = 0; i < GROUP; i++) {
            kvr_group_tick(four[i].g, tokens[i], leaves[i], now_us);
        }
    }
}


static void
seconds(uint32_t n)
{
    while (n--) {
        second();
    }
}


/* The workers that exactly one router has at home; owns[i]: those of i. */

static uint32_t
owned(uint32_t *owns)
{
    char            id[8];
    uint32_t        i, w, n, all;
    const uint8_t  *homes;

    memset(owns, 0, GROUP * sizeof(uint32_t));

    for (w = 0, all = 0; w < 32; w++) {

        (void) snprintf(id, sizeof(id), "w%u", w);

        for (i = 0, n = 0; i < GROUP; i++) {
            homes = kvr_peers_homes(&four[i].k.peers);

            if (homes == NULL || homes[holder_of(&four[i], id)] == 0) {
                owns[i]++;
                n++;
            }
        }

        all += n == 1;
    }

    return all;
}


static void
homes_of_four(void)
{
    uint32_t  i, sum, owns[GROUP];

    for (i = 0; i < GROUP; i++) {
        open_router(&four[i], 32);
        tokens[i] = 1000;
    }

    seconds(4);

    for (i = 0; i < GROUP; i++) {
        is_u64(kvr_peers_share(&four[i].k.peers), 4, "router %u: a quarter", i);
    }

    is_u64(owned(owns), 32, "each worker is at home at exactly one of four");

    for (i = 0, sum = 0; i < GROUP; i++) {
        sum += kvr_peers_part(&four[i].k.peers, 64);
    }

    is_u64(sum, 64, "the parts of a bound add up");

    tokens[0] = 0;
    tokens[1] = 8000;
    seconds(4);
    is_u64(kvr_peers_share(&four[0].k.peers), 0, "a standby has no share");
    is_u64(owned(owns), 32, "each worker still has one home");
    is_u64(owns[0], 0, "the standby is nobody's");
    ok(owns[1] > owns[2] && owns[1] > owns[3], "who has more has more workers");

    leaves[1] = true;
    seconds(2);
    is_u64(kvr_peers_share(&four[1].k.peers), 0, "who leaves has no share");
    is_u64(owned(owns), 32, "and gives its workers away");
    is_u64(owns[1], 0, "all of them");
    is_u64(record_of(&four[0], four[1].k.peers.zone->router)->state,
           KVR_PEER_LEAVING, "it is known to leave");

    tokens[2] = tokens[3] = 0;
    tokens[0] = 100;
    seconds(4);
    is_u64(kvr_peers_share(&four[2].k.peers), 0, "all goes to one router");
    owned(owns);
    is_u64(owns[0], 32, "it is home to all");

    for (i = 0; i < GROUP; i++) {
        close_router(&four[i]);
    }
}


int
main(void)
{
    sums();
    order();
    clocks();
    lag();
    silence();
    leaving();
    redis_gone();
    fleet();
    flights();
    many();
    handed_over();
    homes_of_four();

    return done();
}
