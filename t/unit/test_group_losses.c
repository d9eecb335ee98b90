/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A router and its teller, whose messages are lost: what another one has of it
 * is right again in the time that kvr_group.h says.
 */


#include "sync/kvr_group_state.h"
#include "group_fixture.h"


static router_t            r;
static router_t            from;        /* its teller tells r */
static kvr_teller_t       *teller;
static bool                losing;
static bool                mute;        /* the teller stands still */


static int64_t
active(const char *id)
{
    return load_of(&r, id).active;
}


static bool
send_it(void *data, const char *bytes, size_t len)
{
    if (!losing) {
        (void) kvr_group_hear(r.g, bytes, len, now_us);
    }

    return true;
}


static void
go_on(uint32_t ms)
{
    uint32_t  i;

    for (i = 0; i < ms; i += 20) {
        now_us += 20000;
        about_of(&from, 9, 8, 1);

        if (!mute) {
            kvr_teller_tell(teller, now_us, false, send_it, NULL);
        }

        echo(&r);
        tick(&r);
    }
}


/* What is told in 20 ms is lost. */

static void
lose(void)
{
    losing = true;
    go_on(20);
    losing = false;
}


/* The row that r has of a worker, whether its peer counts or not. */

static kvr_load_row_t
row_at(const char *id)
{
    return r.g->peers[0]->rows[holder_of(&r, id)].load;
}


/* The ms until r has a row of 0, 5 s at most. */

static uint32_t
zero_after(const char *id)
{
    uint32_t  ms;

    for (ms = 0; ms < 5000 && row_at(id).active; ms += 20) {
        go_on(20);
    }

    return ms;
}


/* Fifty, each at another time of both routers' seconds. */

static void
lost_zeros(bool busy)
{
    uint32_t           i, took, most, least;
    kvr_reservation_t  load, other;

    reserve(&from, "w2", 1, 1, &other);

    if (!busy) {
        kvr_load_release(&from.k.load, &other, now_ms);
    }

    for (i = 0, most = 0, least = UINT32_MAX; i < 50; i++) {
        mute = true;
        go_on(1000 + 20 * i);
        mute = false;
        reserve(&from, "w1", 10, 10, &load);
        go_on(1100 + i % 13 * 80);
        kvr_load_release(&from.k.load, &load, now_ms);
        lose();
        took = zero_after("w1");
        most = kvr_max(most, took);
        least = kvr_min(least, took);
    }

    note("a lost zero: %u to %u ms", least, most);
    ok(least >= 1000 && most <= 2500,
       "a zero that is lost is mended in 2.5 s, %s other load",
       busy ? "beside" : "without");

    tick(&r);
    is_u64(record_of(&r, from.k.peers.zone->router)->active, busy,
           "and the peer has no such request");

    if (busy) {
        kvr_load_release(&from.k.load, &other, now_ms);
    }
}


static void
lost_rows(void)
{
    uint32_t           i, bad;
    kvr_reservation_t  one, two;

    reserve(&from, "w1", 100, 10, &one);
    go_on(20);
    is_u64((uint64_t) active("w1"), 1, "a router tells of a request");

    reserve(&from, "w1", 50, 5, &two);
    lose();
    is_u64((uint64_t) active("w1"), 1, "what tells of another one is lost");
    go_on(500);
    is_u64((uint64_t) active("w1"), 2, "500 ms later it is told again");
    is_u64((uint64_t) load_of(&r, "w1").prefill_tokens, 150,
           "with all its numbers");

    for (i = 0, bad = 0; i < 500; i++) {
        go_on(20);
        bad += active("w1") != 2;
    }

    is_u64(bad, 0, "a row that does not change counts as long as it has load");

    (void) kvr_router_remove_worker(&from.k, "w1", 2);
    ok(zero_after("w1") <= 2600,
       "a worker that the peer has deleted has no load");
    is_u64((uint64_t) active("w1"), 0, "at any place");

    kvr_load_release(&from.k.load, &one, now_ms);
    kvr_load_release(&from.k.load, &two, now_ms);
    put_worker(&from, "w1", 1);
    go_on(120);
}


/* The zero of a worker that is deleted here can't be heard. */

static void
deleted_here(void)
{
    kvr_reservation_t  load;

    reserve(&from, "w3", 100, 10, &load);
    go_on(20);
    (void) kvr_router_remove_worker(&r.k, "w3", 2);
    go_on(120);
    kvr_load_release(&from.k.load, &load, now_ms);
    go_on(3600);
    is_u64(record_of(&r, from.k.peers.zone->router)->active, 0,
           "a worker that is deleted here leaves its peer no requests");
    is_u64(record_of(&r, from.k.peers.zone->router)->state, KVR_PEER_FRESH,
           "so that this is fresh with what it tells each second");
}


int
main(void)
{
    open_router(&r, 8);
    open_router(&from, 8);
    teller = kvr_teller_create(from.g, "from", "1");

    lost_rows();
    lost_zeros(true);
    lost_zeros(false);
    deleted_here();

    kvr_teller_destroy(teller);
    close_router(&from);
    close_router(&r);

    return done();
}
