/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Messages of other routers: what is taken is in its bounds, and stays the
 * same when it is written and read again.
 */


#include "fuzz.h"

#include "sync/kvr_sync.h"


static size_t rewrite(const kvr_sync_message_t *m, size_t len);
static void same(kvr_sync_message_t *a, kvr_sync_message_t *b);


const uint32_t  fuzz_inputs = 200000;

static kvr_sync_writer_t  writer;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char                *copy;
    size_t               n;
    kvr_rc_t             rc;
    kvr_sync_message_t   m, again;

    copy = fuzz_copy((const char *) bytes, len);
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

        same(&m, &again);

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
