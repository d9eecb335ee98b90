/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The teller: what a router tells of its load, and when.
 */


#include "zone.h"

#include "sync/kvr_teller.h"


#define RANKS     300
#define MESSAGES  16
#define PEER      99                /* whom the load is told */


static kvr_group_t         *group;
static kvr_teller_t        *teller;
static kvr_sync_message_t   sent[MESSAGES];
static uint32_t             nsent;
static uint32_t             room;           /* messages that can be sent */
static uint64_t             now_us;
static bool                 leaving;


static bool
take(void *data, const char *from, size_t len)
{
    if (room == 0) {
        return false;
    }

    room--;

    if (kvr_sync_read(from, len, &sent[nsent]) != KVR_OK) {
        printf("Bail out! a message that can't be read\n");
        exit(1);
    }

    nsent++;

    return true;
}


/* What is sent so many ms later; returns the number of messages. */

static uint32_t
look_with(uint32_t ms, uint32_t most)
{
    now_us += (uint64_t) ms * 1000;
    nsent = 0;
    room = most;

    kvr_teller_tell(teller, now_us, leaving, take, NULL);

    return nsent;
}


static uint32_t
look(uint32_t ms)
{
    return look_with(ms, MESSAGES);
}


static void
meet(void)
{
    char                       bytes[KVR_SYNC_MAX];
    static kvr_sync_message_t  m;

    m.router = PEER;
    (void) kvr_group_hear(group, bytes, kvr_sync_write(&m, bytes), now_us);
}


static void
open_all(uint32_t ranks)
{
    const kind_t  of = { "radix", { .block_size = 4, .max_workers = 1024,
                                    .shards = 1 } };
    const kvr_group_conf_t  conf = { 3000, 0 };

    zone_open(&of, 64 << 20);
    (void) router_put(&router, "w", "127.0.0.1:1", ranks, KVR_WORKER_API);

    now_us += 60000000;
    leaving = false;
    group = kvr_group_create(&router, &conf);
    teller = kvr_teller_create(group, "router-a", "0.1.0");
}


static void
close_all(void)
{
    kvr_teller_destroy(teller);
    kvr_group_destroy(group);
    zone_close();
}


static kvr_reservation_t
reserve(const char *id, uint32_t rank, int64_t tokens)
{
    uint32_t           w, flags;
    kvr_worker_conf_t  conf;
    kvr_reservation_t  r;

    memset(&r, 0, sizeof(r));
    r.prefilling = 1;
    r.prefill_tokens = tokens;
    r.decode_blocks = 9;

    if (kvr_router_find_worker(&router, id, strlen(id), &w) != KVR_OK
        || kvr_router_find_holder(&router, w, rank, &r.holder) != KVR_OK
        || kvr_router_read_worker(&router, w, &conf, &flags, &r.generation)
           != KVR_OK)
    {
        printf("Bail out! no holder\n");
        exit(1);
    }

    kvr_router_reserve(&router, &r, now_us / 1000);

    return r;
}


/* The one row of the one message. */

static bool
told(const char *id, uint32_t rank, int64_t active)
{
    return nsent == 1 && sent[0].nrows == 1 && sent[0].rows[0].active == active
           && sent[0].rows[0].row == kvr_sync_row(id, strlen(id), rank);
}


static void
test_alone(void)
{
    kvr_reservation_t  r;

    open_all(2);

    ok(look(0) == 1 && sent[0].about && sent[0].nrows == 0
       && sent[0].router == router.peers.zone->router
       && sent[0].clock_us == now_us && sent[0].share == 0
       && strcmp(sent[0].name, "router-a") == 0
       && strcmp(sent[0].version, "0.1.0") == 0 && !sent[0].leaving,
       "the first call tells who this is");

    leaving = true;
    ok(look(980) == 0 && look(20) == 1 && sent[0].about && sent[0].leaving,
       "and each second again");

    r = reserve("w", 0, 100);
    ok(look(20) == 0 && look(500) == 0, "without a peer no load is told");

    ok(look_with(480, 0) == 0 && look(20) == 1 && sent[0].about
       && look(980) == 0 && look(20) == 1,
       "what is told of a router is told later, if it can't be sent");

    meet();
    ok(look(20) == 1 && told("w", 0, 1), "a peer is heard: load is told");

    kvr_load_release(&router.load, &r, now_us / 1000);
    close_all();
}


static void
test_changes(void)
{
    kvr_sync_row_t     row;
    kvr_reservation_t  r, other;

    open_all(2);
    meet();
    (void) look(0);

    ok(look(20) == 0 && look(100) == 0, "without load nothing is told");

    r = reserve("w", 1, 100);

    ok(look(20) == 1 && told("w", 1, 1) && !sent[0].about
       && sent[0].nadds == 0 && sent[0].nends == 0,
       "a row that changed is told");

    row = sent[0].rows[0];
    ok(row.prefills == 1 && row.prefill_tokens == 100
       && row.decode_blocks == 9 && row.age_ms == 20, "with all its numbers");

    ok(look(20) == 0 && look(20) == 0, "once");
    ok(look(20) == 1 && sent[0].nrows == 0,
       "a router with load speaks nevertheless");

    kvr_load_prefilled(&router.load, &r, now_us / 1000);
    other = reserve("w", 0, 50);
    ok(look(20) == 1 && sent[0].nrows == 2,
       "two rows that changed are one message");

    kvr_load_release(&router.load, &r, now_us / 1000);
    ok(look(20) == 1 && told("w", 1, 0) && sent[0].rows[0].decode_blocks == 0,
       "zeros are told");

    kvr_load_release(&router.load, &other, now_us / 1000);
    ok(look(20) == 1 && look(60) == 0,
       "and then a router without load is silent");

    now_us += 5000;
    other = reserve("w", 0, 50);
    now_us += 5000;
    kvr_load_release(&router.load, &other, now_us / 1000);
    ok(look(10) == 1 && told("w", 0, 0) && look(20) == 0,
       "a request that came and went between two looks is told");

    close_all();
}


/* The ms until the row is told again, looked at each 20 ms. */

static uint32_t
again(void)
{
    uint32_t  ms;

    for (ms = 20; ms < 2000 && !(look(20) && told("w", 0, 1)); ms += 20) {
        /* void */
    }

    return ms;
}


/* The rows that are told in 2 s. */

static uint32_t
rows(void)
{
    uint32_t  i, n;

    for (i = 0, n = 0; i < 100; i++) {
        n += look(20) ? sent[0].nrows : 0;
    }

    return n;
}


static void
test_again(void)
{
    kvr_reservation_t  r;

    open_all(2);
    meet();
    (void) look(0);
    r = reserve("w", 0, 50);
    (void) look(20);

    is_u64(again(), 500, "a row with load is told again after 500 ms");
    is_u64(again(), 500, "and again");

    kvr_load_prefilled(&router.load, &r, now_us / 1000);
    ok(look_with(20, 0) == 0 && look(20) == 0, "what can't be sent is lost");
    is_u64(again(), 480, "and told again as any row");

    kvr_load_release(&router.load, &r, now_us / 1000);
    (void) look(20);
    is_u64(rows(), 0, "a row without load is not told again");

    close_all();
}


/* Of another worker in its place, the row is another. */

static void
test_fleet(void)
{
    kvr_reservation_t  r;

    open_all(2);
    meet();
    (void) look(0);
    r = reserve("w", 0, 50);
    (void) look(20);

    (void) kvr_router_remove_worker(&router, "w", 1);
    (void) look(100);
    is_u64(rows(), 0, "a deleted worker is not told");

    put("v");
    kvr_load_release(&router.load, &r, now_us / 1000);
    r = reserve("v", 0, 1);
    ok(look(100) == 1 && told("v", 0, 1), "another one in its place is");

    kvr_load_release(&router.load, &r, now_us / 1000);
    (void) kvr_router_remove_worker(&router, "v", 1);
    put("v");
    (void) look(100);
    is_u64(rows(), 0, "one that was deleted and made again has no load");

    close_all();
}


/* More rows than a message has room for. */

static void
test_many(void)
{
    bool               same;
    uint32_t           i, k, n;
    kvr_reservation_t  r[RANKS];

    open_all(RANKS);
    meet();
    (void) look(0);

    for (i = 0; i < RANKS; i++) {
        r[i] = reserve("w", i, KVR_SYNC_MOST);
        kvr_load_grow(&router.load, &r[i], KVR_SYNC_MOST);
    }

    ok(look(20) == 3 && sent[0].nrows == 128 && sent[1].nrows == 128
       && sent[2].nrows == 44, "300 rows that changed are three messages");

    for (i = 0, n = 0, same = true; i < 3; i++) {
        for (k = 0; k < sent[i].nrows; k++, n++) {
            same &= sent[i].rows[k].active == 1
                    && sent[i].rows[k].prefill_tokens == KVR_SYNC_MOST;
        }
    }

    ok(same && n == RANKS, "with all the rows");
    ok(look(20) == 0, "which are told");

    ok(look_with(1000, 2) == 2 && sent[0].about && !sent[1].about
       && look(20) == 0, "one that can't be sent is lost alone");
    ok(look(480) == 3, "and all are told again");

    for (i = 0; i < RANKS; i++) {
        kvr_load_release(&router.load, &r[i], now_us / 1000);
    }

    ok(look(20) == 3 && look(20) == 0, "as are all zeros");

    r[0] = reserve("w", 0, 1);

    for (i = 1; i < KVR_SYNC_ROWS; i++) {
        r[i] = reserve("w", i, 1);
    }

    ok(look(20) == 1 && sent[0].nrows == 128,
       "128 rows are one message, and none without a row follows");

    for (i = 0; i < KVR_SYNC_ROWS; i++) {
        kvr_load_release(&router.load, &r[i], now_us / 1000);
    }

    close_all();
}


static void
test_window(void)
{
    uint32_t       i;
    kvr_teller_t  *next;

    open_all(1);
    (void) look(0);
    is_u64(kvr_teller_uncached(teller), 0, "nothing was asked for so far");

    for (i = 0; i < 40; i++) {
        router.peers.zone->uncached += 10;
        (void) look(1000);
    }

    is_u64(kvr_teller_uncached(teller), 290, "tokens of 29 to 30 seconds");
    is_u64(sent[0].uncached, 290, "are told");

    next = kvr_teller_create(group, "router-a", "0.1.0");
    is_u64(kvr_teller_uncached(next), 290,
           "the next process with the lease goes on");
    kvr_teller_destroy(next);

    (void) look(10000);
    is_u64(kvr_teller_uncached(teller), 190, "they pass with the time");
    (void) look(100000);
    is_u64(kvr_teller_uncached(teller), 0, "all of them");

    close_all();
}


int
main(void)
{
    test_alone();
    test_changes();
    test_again();
    test_fleet();
    test_many();
    test_window();

    return done();
}
