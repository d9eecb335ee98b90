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
static void check(const kvr_sync_message_t *m);
static void same(const kvr_sync_message_t *a, const kvr_sync_message_t *b);
static void hear(const char *bytes, size_t len);
static void hear_known(kvr_sync_message_t *m);
static void sums(int64_t most);


const uint32_t  fuzz_inputs = 200000;

static _Alignas(4096) char  zone[ZONE];

static kvr_router_t         router;
static kvr_group_t         *group;
static uint64_t             now_us = 1000000000;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char      *copy;
    size_t     n;
    kvr_rc_t   rc;

    static char                out[KVR_SYNC_MAX];
    static kvr_sync_message_t  m, again;

    if (group == NULL) {
        zone_open();
    }

    copy = fuzz_copy((const char *) bytes, len);
    hear(copy, len);
    rc = kvr_sync_read(copy, len, &m);
    free(copy);

    if (rc == KVR_OK) {
        check(&m);
        n = kvr_sync_write(&m, out);
        copy = fuzz_copy(out, n);

        if (kvr_sync_read(copy, n, &again) != KVR_OK) {
            fuzz_fail("what was written again can't be read");
        }

        free(copy);
        same(&m, &again);
        hear_known(&m);

    } else if (rc != KVR_INVALID) {
        fuzz_fail("a message ends with %d", rc);
    }

    return 0;
}


static void
check(const kvr_sync_message_t *m)
{
    uint32_t               i, k;
    const kvr_sync_row_t  *row;

    if (m->router == 0 || m->clock_us >> 62 != 0
        || m->nrows > KVR_SYNC_ROWS || m->nadds > KVR_SYNC_ADDS
        || m->nends > KVR_SYNC_ENDS
        || (m->about && (m->share > KVR_PEERS_SHARES
                         || m->uncached > KVR_SYNC_MOST
                         || strlen(m->name) > KVR_PEERS_NAME_MAX
                         || strlen(m->version) >= sizeof(m->version))))
    {
        fuzz_fail("a header that can't be");
    }

    for (i = 0; i < m->nrows; i++) {
        row = &m->rows[i];

        if (row->row == 0
            || row->active < 0 || row->active > KVR_SYNC_MOST
            || row->prefills < 0 || row->prefills > KVR_SYNC_MOST
            || row->prefill_tokens < 0 || row->prefill_tokens > KVR_SYNC_MOST
            || row->age_ms < 0 || row->age_ms > KVR_SYNC_MOST
            || row->decode_blocks < 0 || row->decode_blocks > KVR_SYNC_MOST)
        {
            fuzz_fail("a row that can't be");
        }
    }

    for (i = 0; i < m->nadds; i++) {

        if (m->adds[i].row == 0 || m->adds[i].n > KVR_FLIGHT_SAMPLES) {
            fuzz_fail("an add that can't be");
        }

        for (k = 0; k < m->adds[i].n; k++) {
            if (m->adds[i].chains[k] >> 48 != 0) {
                fuzz_fail("a chain that can't be");
            }
        }
    }
}


static void
same(const kvr_sync_message_t *a, const kvr_sync_message_t *b)
{
    uint32_t               i;
    const kvr_sync_add_t  *add;

    if (a->router != b->router || a->process != b->process
        || a->clock_us != b->clock_us || a->about != b->about
        || a->nrows != b->nrows || a->nadds != b->nadds
        || a->nends != b->nends)
    {
        fuzz_fail("another header comes back");
    }

    if (a->about
        && (a->share != b->share || a->uncached != b->uncached
            || a->leaving != b->leaving || strcmp(a->name, b->name) != 0
            || strcmp(a->version, b->version) != 0))
    {
        fuzz_fail("another router comes back");
    }

    if (memcmp(a->rows, b->rows, a->nrows * sizeof(kvr_sync_row_t)) != 0
        || memcmp(a->ends, b->ends, a->nends * sizeof(uint32_t)) != 0)
    {
        fuzz_fail("another row or end comes back");
    }

    for (i = 0; i < a->nadds; i++) {
        add = &b->adds[i];

        if (a->adds[i].id != add->id || a->adds[i].row != add->row
            || a->adds[i].n != add->n
            || memcmp(a->adds[i].chains, add->chains,
                      add->n * sizeof(uint64_t)) != 0)
        {
            fuzz_fail("another add comes back");
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

    static const kvr_group_conf_t  conf = { 3000, 0 };

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
    static uint32_t  n;

    now_us += 3000;
    (void) kvr_group_hear(group, bytes, len, now_us);

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
hear_known(kvr_sync_message_t *m)
{
    char      id[8];
    uint32_t  i;

    static char  out[KVR_SYNC_MAX];

    m->router = m->router % ROUTERS + 1;
    m->clock_us = now_us - m->clock_us % 100000;
    m->process %= 4;

    for (i = 0; i < m->nrows; i++) {
        (void) snprintf(id, sizeof(id), "w%u",
                        (unsigned) (m->rows[i].row % WORKERS));
        m->rows[i].row = kvr_sync_row(id, strlen(id), 0);
    }

    for (i = 0; i < m->nadds; i++) {
        (void) snprintf(id, sizeof(id), "w%u",
                        (unsigned) (m->adds[i].row % WORKERS));
        m->adds[i].row = kvr_sync_row(id, strlen(id), 0);
        m->adds[i].id %= 16;
    }

    for (i = 0; i < m->nends; i++) {
        m->ends[i] %= 16;
    }

    hear(out, kvr_sync_write(m, out));
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

    if (z->npeers > KVR_PEERS_MAX
        || kvr_peers_share(&router.peers) > KVR_PEERS_SHARES
        || kvr_peers_part(&router.peers, 64) < 1
        || kvr_peers_part(&router.peers, 64) > 64)
    {
        fuzz_fail("a group that can't be");
    }
}
