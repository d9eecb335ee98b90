/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Messages of other routers: what is taken is in its bounds, and stays the
 * same when it is written and read again.  A group hears all of them, one after
 * the other, as they are and as told of workers that are there: its sums stay
 * in their bounds, and are 0 when all are silent.
 */


#include "fuzz.h"

#include "sync/kvr_group.h"

#include "../t/unit/kinds.h"


#define ZONE     (4u << 20)
#define WORKERS  8
#define ROUTERS  40                     /* more than a group can have */


static void zone_open(void);
static void hear(const char *bytes, size_t len);
static void hear_known(const kvr_sync_message_t *m);
static void sums(int64_t most);
static size_t rewrite(const kvr_sync_message_t *m, size_t len);
static void same(kvr_sync_message_t *a, kvr_sync_message_t *b);


const uint32_t  fuzz_inputs = 200000;

static kvr_sync_writer_t    writer;

static _Alignas(4096) char  zone[ZONE];

static kvr_router_t         router;
static kvr_group_t         *group;
static uint64_t             now_us = 1000000000;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char                *copy;
    size_t               n;
    kvr_rc_t             rc;
    kvr_sync_message_t   m, again, told;

    if (group == NULL) {
        zone_open();
    }

    copy = fuzz_copy((const char *) bytes, len);
    hear(copy, len);
    rc = kvr_sync_read(copy, len, &m);

    if (rc == KVR_OK) {

        if (m.router == 0 || m.number == 0 || m.share > KVR_PEERS_SHARES
            || (m.full && (m.part >= m.parts || m.parts > 1024))
            || m.uncached > KVR_SYNC_MOST)
        {
            fuzz_fail("a header that can't be");
        }

        n = rewrite(&m, len);

        if (n == 0 || kvr_sync_read(writer.bytes, n, &again) != KVR_OK) {
            fuzz_fail("what was written again can't be read");
        }

        told = m;
        same(&m, &again);
        hear_known(&told);

    } else if (rc != KVR_INVALID) {
        fuzz_fail("a message ends with %d", rc);
    }

    free(copy);

    return 0;
}


/* Each value is written in its shortest form, but for the heads of lists. */

static size_t
rewrite(const kvr_sync_message_t *m, size_t len)
{
    bool                room;
    uint32_t            id;
    kvr_sync_add_t      add;
    kvr_sync_row_t      row;
    kvr_sync_message_t  from;

    from = *m;
    from.alive = true;
    room = true;

    kvr_sync_begin(&writer, &from);

    while (kvr_sync_row_next(&from, &row)) {
        room &= kvr_sync_put_row(&writer, &row);
    }

    while (kvr_sync_add_next(&from, &add)) {
        room &= kvr_sync_put_add(&writer, &add);
    }

    while (kvr_sync_end_next(&from, &id)) {
        room &= kvr_sync_put_end(&writer, id);
    }

    if (from.left[KVR_SYNC_ROWS] || from.left[KVR_SYNC_ADDS]
        || from.left[KVR_SYNC_ENDS])
    {
        fuzz_fail("a message that was taken has a broken end");
    }

    if (!room && len <= KVR_SYNC_MAX - 2 * KVR_SYNC_LISTS) {
        fuzz_fail("a message has grown");
    }

    return kvr_sync_finish(&writer);
}


static void
same(kvr_sync_message_t *a, kvr_sync_message_t *b)
{
    uint32_t        i, id[2];
    kvr_sync_add_t  add[2];
    kvr_sync_row_t  row[2];

    if (a->router != b->router || a->process != b->process
        || a->number != b->number || a->clock_us != b->clock_us
        || a->again != b->again || a->bye != b->bye || a->full != b->full
        || a->epoch != b->epoch || a->part != b->part || a->parts != b->parts
        || a->share != b->share || a->uncached != b->uncached
        || a->leaving != b->leaving || strcmp(a->name, b->name) != 0
        || strcmp(a->version, b->version) != 0)
    {
        fuzz_fail("another header comes back");
    }

    while (kvr_sync_row_next(b, &row[1])) {

        if (!kvr_sync_row_next(a, &row[0])
            || memcmp(&row[0], &row[1], sizeof(kvr_sync_row_t)) != 0
            || row[0].row == 0 || row[0].active < 0
            || row[0].decode_blocks > KVR_SYNC_MOST)
        {
            fuzz_fail("another row comes back");
        }
    }

    while (kvr_sync_add_next(b, &add[1])) {

        if (!kvr_sync_add_next(a, &add[0]) || add[0].id != add[1].id
            || add[0].row != add[1].row || add[0].n != add[1].n)
        {
            fuzz_fail("another add comes back");
        }

        for (i = 0; i < add[0].n; i++) {
            if (add[0].chains[i] != add[1].chains[i]
                || add[0].chains[i] >> 48 != 0)
            {
                fuzz_fail("another chain comes back");
            }
        }
    }

    while (kvr_sync_end_next(b, &id[1])) {

        if (!kvr_sync_end_next(a, &id[0]) || id[0] != id[1]) {
            fuzz_fail("another end comes back");
        }
    }
}


/* ---- a group ------------------------------------------------------------ */

static void
zone_open(void)
{
    bool      taken;
    char      why[KVR_WHY_LEN], id[8];
    uint32_t  i;

    static const kvr_group_conf_t  conf = { 3000, 50, 0 };

    if (kvr_router_format(zone, ZONE, &kinds[0].params, why) != KVR_OK
        || kvr_router_attach(&router, zone, ZONE, &kinds[0].params, why)
           != KVR_OK
        || kvr_router_join(&router) != KVR_OK)
    {
        fuzz_fail("no zone: %s", why);
    }

    for (i = 0; i < WORKERS; i++) {
        (void) snprintf(id, sizeof(id), "w%u", i);
        (void) router_put(&router, id, "", 1, KVR_WORKER_API);
    }

    (void) kvr_peers_lease(&router.peers, false, now_us / 1000, &taken);

    group = kvr_group_create(&router, &conf);

    if (group == NULL) {
        fuzz_fail("no group");
    }
}


static void
hear(const char *bytes, size_t len)
{
    kvr_group_heard_t   heard;
    static uint32_t     n;

    now_us += 3000;
    (void) kvr_group_hear(group, bytes, len, now_us, &heard);

    if (++n % 8 == 0) {
        kvr_group_tick(group, 1000, false, now_us);
        sums(KVR_PEERS_MAX * KVR_SYNC_MOST);
    }

    if (n % 4096 == 0) {
        now_us += 2000000;
        kvr_group_tick(group, 1000, false, now_us);
        sums(0);
    }
}


/* The message, as a router of few tells it, now, of workers that are there. */

static void
hear_known(const kvr_sync_message_t *m)
{
    char                id[8];
    uint32_t            end;
    kvr_sync_add_t      add;
    kvr_sync_row_t      row;
    kvr_sync_message_t  from;

    static uint64_t     numbers[ROUTERS];

    from = *m;
    from.router = from.router % ROUTERS + 1;
    from.number = numbers[from.router - 1] += from.number % 3;
    from.number = kvr_max(from.number, 1);
    from.clock_us = now_us - from.clock_us % 100000;
    from.process %= 4;
    from.epoch %= 4;
    from.parts = from.parts % 4 + 1;
    from.part %= from.parts;
    kvr_sync_begin(&writer, &from);

    while (kvr_sync_row_next(&from, &row)) {
        (void) snprintf(id, sizeof(id), "w%u", (unsigned) row.row % WORKERS);
        row.row = kvr_sync_row(id, strlen(id), 0);
        (void) kvr_sync_put_row(&writer, &row);
    }

    while (kvr_sync_add_next(&from, &add)) {
        (void) snprintf(id, sizeof(id), "w%u", (unsigned) add.row % WORKERS);
        add.row = kvr_sync_row(id, strlen(id), 0);
        add.id %= 16;
        (void) kvr_sync_put_add(&writer, &add);
    }

    while (kvr_sync_end_next(&from, &end)) {
        (void) kvr_sync_put_end(&writer, end % 16);
    }

    hear(writer.bytes, kvr_sync_finish(&writer));
}


static void
sums(int64_t most)
{
    uint32_t                 i;
    const kvr_load_row_t    *row;
    const kvr_peers_zone_t  *z;

    z = router.peers.zone;
    row = (const kvr_load_row_t *) (router.peers.base + z->rows);

    for (i = 0; i < z->max_holders; i++) {
        if (row[i].active < 0 || row[i].active > most
            || row[i].prefills < 0 || row[i].prefills > most
            || row[i].prefill_tokens < 0 || row[i].prefill_tokens > most
            || row[i].decode_blocks < 0 || row[i].decode_blocks > most
            || row[i].begun_ms > now_us / 1000)
        {
            fuzz_fail("sums that can't be, of holder %u", i);
        }
    }

    if (z->npeers > KVR_PEERS_MAX || z->nshares > KVR_PEERS_MAX + 1
        || (z->nshares && z->own >= z->nshares)
        || kvr_group_share(group) > KVR_PEERS_SHARES)
    {
        fuzz_fail("a group that can't be");
    }
}
