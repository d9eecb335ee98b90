/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The teller: what a router tells of its load, and when.
 */


#include "zone.h"

#include "sync/kvr_teller.h"


#define RANKS     300
#define MESSAGES  16


static kvr_group_t         *group;
static kvr_teller_t        *teller;
static kvr_sync_message_t   sent[MESSAGES];
static char                 bytes[MESSAGES][KVR_SYNC_MAX];
static uint32_t             nsent;
static uint32_t             room;           /* messages that can be sent */
static uint64_t             number;
static uint64_t             now_us;
static bool                 alone;
static bool                 leaving;


static bool
take(void *data, const char *from, size_t len)
{
    if (room == 0) {
        return false;
    }

    room--;
    memcpy(bytes[nsent], from, len);

    if (kvr_sync_read(bytes[nsent], len, &sent[nsent]) != KVR_OK) {
        printf("Bail out! a message that can't be read\n");
        exit(1);
    }

    nsent++;

    return true;
}


/* What is sent so many ms later; returns the number of messages. */

static uint32_t
look(uint32_t ms)
{
    now_us += (uint64_t) ms * 1000;
    nsent = 0;
    room = MESSAGES;

    kvr_teller_tell(teller, now_us, !alone, 5, leaving, 77, &number, take,
                    NULL);

    return nsent;
}


static void
open_all(uint32_t ranks)
{
    const kind_t  of = { "radix", { .block_size = 4, .max_workers = 1024,
                                    .shards = 1 } };
    const kvr_group_conf_t  conf = { 3000, 50, 0 };

    zone_open(&of, 64 << 20);
    (void) router_put(&router, "w", "127.0.0.1:1", ranks, KVR_WORKER_API);

    group = kvr_group_create(&router, &conf);
    teller = kvr_teller_create(group, "router-a", "0.1.0");
    number = 0;
    now_us += 60000000;
    alone = false;
    leaving = false;
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


static kvr_sync_row_t
first_row(void)
{
    kvr_sync_row_t  row;

    memset(&row, 0, sizeof(row));
    (void) kvr_sync_row_next(&sent[0], &row);

    return row;
}


static void
test_alone(void)
{
    kvr_reservation_t  r;

    open_all(2);
    alone = true;

    ok(look(0) == 1 && sent[0].full && sent[0].parts == 1 && sent[0].part == 0
       && sent[0].left[KVR_SYNC_ROWS] == 0 && sent[0].number == 1
       && sent[0].router == router.peers.zone->router && sent[0].process == 77
       && sent[0].clock_us == now_us && sent[0].share == 5
       && strcmp(sent[0].name, "router-a") == 0
       && strcmp(sent[0].version, "0.1.0") == 0 && !sent[0].leaving,
       "the first call tells who this is");

    r = reserve("w", 0, 100);

    ok(look(20) == 0 && look(500) == 0 && number == 1,
       "without a peer load is not told at once");

    leaving = true;
    ok(look(480) == 1 && sent[0].full && sent[0].left[KVR_SYNC_ROWS] == 1
       && sent[0].leaving && number == 2, "but each second");

    kvr_load_release(&router.load, &r, now_us / 1000);
    close_all();
}


static void
test_changes(void)
{
    kvr_sync_row_t     row;
    kvr_reservation_t  r, other;

    open_all(2);
    (void) look(0);

    ok(look(20) == 0 && look(100) == 0, "without load nothing is told");

    r = reserve("w", 1, 100);

    ok(look(20) == 1 && !sent[0].full && sent[0].left[KVR_SYNC_ROWS] == 1
       && sent[0].number == 2, "a row that changed is told");

    row = first_row();
    ok(row.row == kvr_sync_row("w", 1, 1) && row.active == 1
       && row.prefills == 1 && row.prefill_tokens == 100
       && row.decode_blocks == 9 && row.age_ms == 20, "with all its numbers");

    ok(look(20) == 0 && look(20) == 0, "once");

    ok(look(20) == 1 && sent[0].left[KVR_SYNC_ROWS] == 0 && !sent[0].full,
       "a router with load speaks nevertheless");

    kvr_load_prefilled(&router.load, &r, now_us / 1000);
    other = reserve("w", 0, 50);

    ok(look(20) == 1 && sent[0].left[KVR_SYNC_ROWS] == 2,
       "two rows that changed are one message");

    kvr_load_release(&router.load, &r, now_us / 1000);

    ok(look(20) == 1 && sent[0].left[KVR_SYNC_ROWS] == 1
       && first_row().active == 0 && first_row().decode_blocks == 0,
       "zeros are told");

    kvr_load_release(&router.load, &other, now_us / 1000);
    ok(look(20) == 1 && look(60) == 0,
       "and then a router without load is silent");

    now_us += 5000;
    other = reserve("w", 0, 50);
    now_us += 5000;
    kvr_load_release(&router.load, &other, now_us / 1000);
    ok(look(10) == 1 && sent[0].left[KVR_SYNC_ROWS] == 1
       && first_row().active == 0 && look(20) == 0,
       "a request that came and went between two looks is told");

    other = reserve("w", 0, 50);
    nsent = 0;
    room = 0;
    kvr_teller_tell(teller, now_us, true, 5, false, 77, &number, take, NULL);
    ok(nsent == 0 && look(20) == 1 && sent[0].left[KVR_SYNC_ROWS] == 1
       && sent[0].number == number, "what could not be sent is told later");

    kvr_load_release(&router.load, &other, now_us / 1000);
    close_all();
}


static void
test_full(void)
{
    uint64_t           was;
    kvr_reservation_t  r;

    open_all(2);
    (void) look(0);
    r = reserve("w", 0, 50);
    (void) look(20);

    kvr_teller_again(teller);
    ok(look(20) == 0 && look(40) == 1 && !sent[0].full,
       "who is asked for a full message waits for 100 ms");
    ok(look(20) == 1 && sent[0].full && sent[0].left[KVR_SYNC_ROWS] == 1,
       "and tells one");
    ok(look(20) == 0, "once");

    kvr_teller_again(teller);
    nsent = 0;
    room = 0;
    was = number;
    now_us += 100000;
    kvr_teller_tell(teller, now_us, true, 5, false, 77, &number, take, NULL);
    ok(number == was && look(20) == 1 && sent[0].full,
       "and another time, when it could not be sent");

    /* of another worker in its place, the row is another */

    (void) kvr_router_remove_worker(&router, "w", 1);
    put("v");
    kvr_load_release(&router.load, &r, now_us / 1000);
    r = reserve("v", 0, 1);

    ok(look(100) == 1 && sent[0].full && sent[0].left[KVR_SYNC_ROWS] == 1
       && first_row().row == kvr_sync_row("v", 1, 0),
       "when the fleet changed, all is told");

    kvr_load_release(&router.load, &r, now_us / 1000);
    (void) kvr_router_remove_worker(&router, "v", 1);
    put("v");
    ok(look(100) == 1 && sent[0].full && sent[0].left[KVR_SYNC_ROWS] == 0,
       "a worker that was deleted and made again has no load");

    close_all();
}


/* More rows than a message has room for, of the largest numbers. */

static void
test_parts(void)
{
    bool               same;
    uint32_t           i, n;
    kvr_sync_row_t     row;
    kvr_reservation_t  r[RANKS];

    open_all(RANKS);
    (void) look(0);

    for (i = 0; i < RANKS; i++) {
        r[i] = reserve("w", i, KVR_SYNC_MOST);
        kvr_load_grow(&router.load, &r[i], KVR_SYNC_MOST);
    }

    ok(look(20) == 3 && !sent[2].full && sent[2].number == 4,
       "300 rows that changed are three messages");
    ok(look(20) == 0, "and then told");

    ok(look(1000) == 3, "a full message of them has three parts");

    for (i = 0, n = 0, same = true; i < 3; i++) {
        same &= sent[i].full && sent[i].part == i && sent[i].parts == 3
                && sent[i].epoch == sent[0].epoch
                && sent[i].number == sent[0].number + i;

        while (kvr_sync_row_next(&sent[i], &row)) {
            same &= row.active == 1 && row.prefill_tokens == KVR_SYNC_MOST;
            n++;
        }
    }

    ok(same && n == RANKS, "of one epoch, with all the rows");

    now_us += 1000000;
    nsent = 0;
    room = 2;
    kvr_teller_tell(teller, now_us, true, 5, false, 77, &number, take, NULL);
    ok(nsent == 2 && look(20) == 3 && sent[0].full && sent[0].part == 0,
       "when a part could not be sent, all are told again");

    for (i = 0; i < RANKS; i++) {
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
    test_full();
    test_parts();
    test_window();

    return done();
}
