/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Four routers with load of their own, whose messages are lost in runs, sent
 * twice and overtaken: when all is quiet, no router sees any load or flight of
 * the others.
 *
 *     test_group_random [seed [rounds]]
 */


#include "group_fixture.h"


#define GROUP     4
#define NWORKERS  8
#define OPEN      64                    /* requests of a router, at most */
#define WAITING   4096                  /* messages on their way */
#define STEP_US   2000


typedef struct {
    kvr_reservation_t   load;
    uint32_t            id;             /* 0: none */
    uint64_t            prompt;
    char                worker[8];
    uint64_t            renew_us;
} request_t;

typedef struct {
    router_t            r;
    kvr_teller_t       *teller;
    uint64_t            numbers[2];     /* of the teller, and of requests */
    uint32_t            ids;
    request_t           requests[OPEN];
    bool                losing[GROUP];  /* to whom */
    uint64_t            again;
} member_t;

typedef struct {
    uint64_t            at_us;
    uint32_t            to;
    size_t              len;
    char                bytes[KVR_SYNC_MAX];
} message_t;


static member_t    members[GROUP];
static message_t   waiting[WAITING];
static uint32_t    nwaiting;
static uint64_t    seed;
static bool        lossy;
static bool        busy;                /* requests come, and all do not end */
static uint64_t    lost, doubled, sent;


static uint32_t
below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;

    return (uint32_t) (seed >> 11) % n;
}


/* ---- the channel -------------------------------------------------------- */

static void
put(uint32_t to, const char *bytes, size_t len)
{
    message_t  *m;

    if (nwaiting == WAITING) {
        return;
    }

    m = &waiting[nwaiting++];
    m->at_us = now_us + 300 + below(lossy ? 6000 : 200);
    m->to = to;
    m->len = len;
    memcpy(m->bytes, bytes, len);
}


static bool
send_all(void *data, const char *bytes, size_t len)
{
    uint32_t   i;
    member_t  *from = data;

    for (i = 0; i < GROUP; i++) {

        sent++;

        if (lossy && below(100) < (from->losing[i] ? 10 : 1)) {
            from->losing[i] = !from->losing[i];
        }

        if (lossy && from->losing[i]) {
            lost++;
            continue;
        }

        put(i, bytes, len);

        if (lossy && below(20) == 0) {
            doubled++;
            put(i, bytes, len);
        }
    }

    return true;
}


static void
deliver(void)
{
    uint32_t            i;
    member_t           *to;
    kvr_group_heard_t   heard;
    static message_t    m;

    for (i = 0; i < nwaiting; /* void */ ) {

        if (waiting[i].at_us > now_us) {
            i++;
            continue;
        }

        m = waiting[i];
        waiting[i] = waiting[--nwaiting];
        to = &members[m.to];

        if (kvr_group_hear(to->r.g, m.bytes, m.len, now_us, &heard) != KVR_OK)
        {
            ok(false, "a message can't be read");
        }

        if (heard.full) {
            kvr_teller_again(to->teller);
        }

        to->again = heard.again ? heard.again : to->again;
    }
}


/* ---- requests ----------------------------------------------------------- */

/* What process 2 of a router tells of a request, with the holder's row. */

static void
tell(member_t *m, const request_t *q, bool add)
{
    kvr_load_row_t       load;
    kvr_sync_row_t       row;
    kvr_sync_message_t   header;

    memset(&header, 0, sizeof(header));
    header.router = m->r.k.peers.zone->router;
    header.process = 2;
    header.number = ++m->numbers[1];
    header.clock_us = now_us;
    kvr_sync_begin(&writer, &header);

    kvr_load_read(&m->r.k.load, q->load.holder, generation_of(&m->r, q->worker),
                  &load);

    memset(&row, 0, sizeof(row));
    row.row = hash_of(q->worker, 0);
    row.active = load.active;
    row.prefills = load.prefills;
    row.prefill_tokens = load.prefill_tokens;
    row.decode_blocks = load.decode_blocks;
    (void) kvr_sync_put_row(&writer, &row);

    if (add) {
        tell_add(&m->r, q->id, q->prompt, q->worker);

    } else {
        (void) kvr_sync_put_end(&writer, q->id);
    }

    (void) send_all(m, writer.bytes, kvr_sync_finish(&writer));
}


static void
start(member_t *m, request_t *q)
{
    (void) snprintf(q->worker, sizeof(q->worker), "w%u", below(NWORKERS));
    q->id = ++m->ids;
    q->prompt = below(12);
    q->renew_us = now_us + KVR_FLIGHT_RENEW_MS * UINT64_C(1000);

    memset(&q->load, 0, sizeof(kvr_reservation_t));
    q->load.holder = holder_of(&m->r, q->worker);
    q->load.generation = generation_of(&m->r, q->worker);
    q->load.prefilling = 1;
    q->load.prefill_tokens = 1 + below(4000);
    q->load.decode_blocks = 1 + below(100);

    kvr_router_reserve(&m->r.k, &q->load, now_ms);
    tell(m, q, true);
}


static void
end(member_t *m, request_t *q)
{
    kvr_load_release(&m->r.k.load, &q->load, now_ms);
    tell(m, q, false);
    q->id = 0;
}


static void
traffic(member_t *m)
{
    uint32_t    i;
    request_t  *q;

    for (i = 0; i < OPEN; i++) {
        q = &m->requests[i];

        if (q->id == 0) {
            if (busy && below(400) == 0) {
                start(m, q);
            }

            continue;
        }

        if (below(busy ? 500 : 50) == 0) {
            end(m, q);

        } else if (below(100) == 0) {
            kvr_load_prefilled(&m->r.k.load, &q->load, now_ms);

        } else if (now_us >= q->renew_us) {
            q->renew_us += KVR_FLIGHT_RENEW_MS * UINT64_C(1000);
            tell(m, q, true);
        }
    }
}


/* ---- time --------------------------------------------------------------- */

static void
asks(member_t *m)
{
    kvr_sync_message_t  header;

    if (m->again) {
        memset(&header, 0, sizeof(header));
        header.router = m->r.k.peers.zone->router;
        header.process = 1;
        header.number = ++m->numbers[0];
        header.clock_us = now_us;
        header.again = m->again;
        kvr_sync_begin(&writer, &header);
        (void) send_all(m, writer.bytes, kvr_sync_finish(&writer));
        m->again = 0;
    }
}


static void
go_on(uint32_t ms)
{
    uint32_t   i, t;
    member_t  *m;

    for (t = 0; t < ms * 1000 / STEP_US; t++) {

        now_us += STEP_US;
        deliver();

        for (i = 0; i < GROUP; i++) {
            m = &members[i];

            traffic(m);
            asks(m);

            if (t % 10 == 0) {
                kvr_teller_tell(m->teller, now_us,
                                kvr_group_heard_any(m->r.g),
                                kvr_group_share(m->r.g), false, 1,
                                &m->numbers[0], send_all, m);
                kvr_group_tick(m->r.g, kvr_teller_uncached(m->teller), false,
                               now_us);
                kvr_flights_clear(&m->r.k.flights, now_ms);
            }
        }
    }
}


/* The load that routers see of one another; *flights: workers that have a
 * prompt in flight. */

static int64_t
seen(uint32_t *flights)
{
    char             id[8];
    int64_t          n;
    uint32_t         i, w, p;
    kvr_load_row_t  *row;

    *flights = 0;

    for (i = 0, n = 0; i < GROUP; i++) {
        for (w = 0; w < NWORKERS; w++) {

            (void) snprintf(id, sizeof(id), "w%u", w);

            /* fresh or not */

            row = (kvr_load_row_t *) (members[i].r.k.peers.base
                                      + members[i].r.k.peers.zone->rows)
                  + holder_of(&members[i].r, id);
            n += row->active + row->prefills + row->prefill_tokens
                 + row->decode_blocks;

            for (p = 0; p < 12; p++) {
                *flights += flying(&members[i].r, p, id) != 0;
            }
        }
    }

    return n;
}


static void
one_round(uint32_t no)
{
    int64_t   load;
    uint32_t  i, flights;

    lossy = busy = true;
    go_on(4000);
    load = seen(&flights);
    ok(load > 0 && flights > 0, "round %u: load and flights are seen", no);

    busy = false;
    go_on(1500);
    lossy = false;
    go_on(1200);

    /* at each moment: a peer with load may be silent at the last one */

    for (i = 0, load = 0; i < 60; i++) {
        go_on(20);
        load += seen(&flights);
    }

    is_u64((uint64_t) load, 0, "round %u: when all is quiet, no load is", no);

    /* ends that were lost */

    go_on(KVR_FLIGHT_UNTIL_MS + 500);
    load = seen(&flights);
    is_u64(flights, 0, "round %u: and no flight a minute later", no);
}


int
main(int argc, char **argv)
{
    uint32_t  i, rounds;

    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 7;
    rounds = argc > 2 ? (uint32_t) atoi(argv[2]) : 3;
    seed = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;

    for (i = 0; i < GROUP; i++) {
        open_router(&members[i].r, NWORKERS);
        members[i].teller = kvr_teller_create(members[i].r.g, "n", KVR_VERSION);
    }

    for (i = 0; i < rounds; i++) {
        one_round(i);
    }

    note("%u messages, %u lost, %u doubled", (unsigned) sent,
         (unsigned) lost, (unsigned) doubled);

    for (i = 0; i < GROUP; i++) {
        ok(kvr_group_counts(members[i].r.g)->missed > 0
           && kvr_group_counts(members[i].r.g)->refused == 0,
           "router %u missed messages, and refused none", i);
        kvr_teller_destroy(members[i].teller);
        close_router(&members[i].r);
    }

    return done();
}
