/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Four routers with load of their own, whose messages are lost in runs, sent
 * twice and overtaken: 3 s after the last loss each sees what the others have,
 * exactly, and when all is quiet no load or flight of them.
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
    uint32_t            ids;
    request_t           requests[OPEN];
    bool                losing[GROUP];  /* to whom */
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
static bool        still;               /* none come, none end */
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
    uint32_t          i;
    static message_t  m;

    for (i = 0; i < nwaiting; /* void */ ) {

        if (waiting[i].at_us > now_us) {
            i++;
            continue;
        }

        m = waiting[i];
        waiting[i] = waiting[--nwaiting];

        if (kvr_group_hear(members[m.to].r.g, m.bytes, m.len, now_us) != KVR_OK)
        {
            ok(false, "a message can't be read");
        }
    }
}


/* ---- requests ----------------------------------------------------------- */

/* What process 2 of a router tells of a request, with the holder's row. */

static void
tell(member_t *m, const request_t *q, bool add)
{
    size_t          len;
    char            bytes[KVR_SYNC_MAX];
    kvr_load_row_t  load;

    kvr_load_read(&m->r.k.load, q->load.holder, generation_of(&m->r, q->worker),
                  &load);

    say.router = m->r.k.peers.zone->router;
    say.process = 2;
    say.clock_us = now_us;
    say.rows[say.nrows++] = kvr_sync_load(hash_of(q->worker, 0), &load, now_ms);

    if (add) {
        tell_add(&m->r, q->id, q->prompt, q->worker);

    } else {
        say.ends[say.nends++] = q->id;
    }

    len = kvr_sync_write(&say, bytes);
    memset(&say, 0, sizeof(say));
    (void) send_all(m, bytes, len);
}


static void
start(member_t *m, request_t *q)
{
    (void) snprintf(q->worker, sizeof(q->worker), "w%u", below(NWORKERS));
    q->id = ++m->ids;
    q->prompt = below(12);
    q->renew_us = now_us + KVR_FLIGHT_RENEW_MS * UINT64_C(1000);

    reserve(&m->r, q->worker, 1 + below(4000), 1 + below(100), &q->load);
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
go_on(uint32_t ms)
{
    uint32_t   i, t;
    member_t  *m;

    for (t = 0; t < ms * 1000 / STEP_US; t++) {

        now_us += STEP_US;
        deliver();

        for (i = 0; i < GROUP; i++) {
            m = &members[i];

            if (!still) {
                traffic(m);
            }

            if (t % 10 == 0) {
                kvr_teller_tell(m->teller, now_us, false, send_all, m);
                kvr_group_tick(m->r.g, kvr_teller_uncached(m->teller), false,
                               now_us);
                kvr_flights_clear(&m->r.k.flights, now_ms);
            }
        }
    }
}


/* What a router has told of the others at a worker, fresh or not. */

static const kvr_load_row_t *
row_at(member_t *m, const char *id)
{
    return (kvr_load_row_t *) (m->r.k.peers.base + m->r.k.peers.zone->rows)
           + holder_of(&m->r, id);
}


/* The rows of all routers that are not what the others have; *all: requests
 * that they see. */

static uint32_t
wrong(int64_t *all)
{
    char                   id[8];
    uint32_t               i, k, w, n;
    kvr_load_row_t         of, has;
    const kvr_load_row_t  *row;

    *all = 0;

    for (i = 0, n = 0; i < GROUP; i++) {
        for (w = 0; w < NWORKERS; w++) {

            (void) snprintf(id, sizeof(id), "w%u", w);
            memset(&has, 0, sizeof(has));

            for (k = 0; k < GROUP; k++) {
                if (k != i) {
                    kvr_load_read(&members[k].r.k.load,
                                  holder_of(&members[k].r, id),
                                  generation_of(&members[k].r, id), &of);
                    kvr_load_sum(&has, &of);
                }
            }

            row = row_at(&members[i], id);
            *all += row->active;
            n += row->active != has.active || row->prefills != has.prefills
                 || row->prefill_tokens != has.prefill_tokens
                 || row->decode_blocks != has.decode_blocks;
        }
    }

    return n;
}


/* The workers that have a prompt of another router's in flight. */

static uint32_t
flights(void)
{
    char      id[8];
    uint32_t  i, w, p, n;

    for (i = 0, n = 0; i < GROUP; i++) {
        for (w = 0; w < NWORKERS; w++) {

            (void) snprintf(id, sizeof(id), "w%u", w);

            for (p = 0; p < 12; p++) {
                n += flying(&members[i].r, p, id) != 0;
            }
        }
    }

    return n;
}


static void
one_round(uint32_t no)
{
    int64_t  all;

    lossy = busy = true;
    go_on(4000);
    lossy = false;
    still = true;
    go_on(3000);
    is_u64(wrong(&all), 0, "round %u: each router has what the others have", no);
    ok(all > 0 && flights() > 0, "round %u: %u requests, some with flights", no,
       (unsigned) all);

    lossy = true;
    still = busy = false;
    go_on(1500);
    lossy = false;
    go_on(3000);
    ok(wrong(&all) == 0 && all == 0,
       "round %u: when all is quiet, no load is", no);

    /* ends that were lost */

    go_on(KVR_FLIGHT_UNTIL_MS + 500);
    is_u64(flights(), 0, "round %u: and no flight a minute later", no);
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
        is_u64(kvr_group_counts(members[i].r.g)->refused, 0,
               "router %u refused no message", i);
        kvr_teller_destroy(members[i].teller);
        close_router(&members[i].r);
    }

    return done();
}
