/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Snapshots of 1 M blocks, read, built aside in slices as nginx does it, and
 * swapped in where a view of as many blocks was.
 */


#include "index.h"
#include "follow/kvr_snapshot.h"


#define SN_BLOCKS   (UINT64_C(1) << 20)
#define SN_PART     16000u              /* blocks, of less than 256 KiB */
#define SN_SLICE    256u                /* as nginx's */
#define SN_ZONE     (UINT64_C(512) << 20)
#define SN_ROUNDS   4


static void rows_snapshot_of(kvr_index_kind_t kind, const char *index,
    uint32_t chain, uint32_t event, const char *shape);
static size_t rows_part(uint8_t *bytes, uint64_t from, uint64_t n,
    uint32_t chain, uint32_t event, uint64_t salt);
static uint64_t rows_cpu(void);
static uint8_t *rows_u64s(uint8_t *p, uint64_t from, uint64_t n,
    uint64_t salt);


void
rows_snapshot(void)
{
    rows_snapshot_of(KVR_INDEX_RADIX, "radix", 1024, 1024, "chains of 1024");
    rows_snapshot_of(KVR_INDEX_RADIX, "radix", 16000, 16000,
                     "chains of 16000");
    rows_snapshot_of(KVR_INDEX_RADIX, "radix", 1024, 64, "events of 64");
    rows_snapshot_of(KVR_INDEX_POSITIONAL, "positional", 1024, 1024,
                     "chains of 1024");
}


static void
rows_snapshot_of(kvr_index_kind_t kind, const char *index, uint32_t chain,
    uint32_t event, const char *shape)
{
    bool                  behind;
    char                  why[KVR_WHY_LEN], name[128];
    void                 *base;
    size_t                len;
    uint8_t              *bytes;
    uint64_t              t, begun, longest, end, tend, took[SN_ROUNDS], at;
    uint32_t              i, holder, worker;
    kvr_rc_t              rc;
    const char           *detail;
    kvr_params_t          params;
    kvr_router_t          k;
    kvr_snapshot_t       *s;
    kvr_worker_conf_t     conf;
    kvr_snapshot_head_t   head;

    memset(&params, 0, sizeof(params));
    params.block_size = 16;
    params.max_workers = 64;
    params.shards = 1;
    params.index = kind;

    base = wl_alloc(SN_ZONE);
    bytes = wl_alloc(KVR_SNAPSHOT_PART_MAX * 2);

    ix_must(kvr_router_format(base, SN_ZONE, &params, why) == KVR_OK
            && kvr_router_attach(&k, base, SN_ZONE, &params, why) == KVR_OK
            && kvr_router_join(&k) == KVR_OK
            && kvr_router_lease(&k, 0, 0, 1) == KVR_OK, "a zone");

    memset(&conf, 0, sizeof(conf));
    strcpy(conf.id, "w");
    conf.ranks = 1;
    conf.weight = 1000;

    ix_must(kvr_router_put_worker(&k, &conf, KVR_WORKER_STATIC) == KVR_OK,
            "a worker");

    s = kvr_snapshot_create(&k);

    head.epoch = 1;
    head.contract = (kvr_contract_t) { 16, false };
    head.complete = true;

    longest = 0;
    end = 0;
    tend = 0;

    for (i = 0; i < SN_ROUNDS; i++) {

        head.seq = i + 1;
        took[i] = 0;

        ix_must(kvr_snapshot_begin(s, "w", 1, &head) == KVR_OK, "begin");

        for (at = 0; at < SN_BLOCKS; at += SN_PART) {

            len = rows_part(bytes, at, kvr_min(SN_PART, SN_BLOCKS - at),
                            chain, event, wl_mix(i + 1));

            ix_must(len <= KVR_SNAPSHOT_PART_MAX, "a part");

            begun = wl_now();
            ix_must(kvr_snapshot_open(s, bytes, len, &detail) == KVR_OK,
                    "open");

            do {
                t = rows_cpu();
                rc = kvr_snapshot_step(s, SN_SLICE);
                longest = kvr_max(longest, rows_cpu() - t);
            } while (rc == KVR_OK);

            took[i] += wl_now() - begun;

            ix_must(rc == KVR_DONE, "step");
        }

        t = wl_now();
        ix_must(kvr_snapshot_end(s, 1, &behind) == KVR_OK, "end");
        end = kvr_max(end, wl_now() - t);
        took[i] += wl_now() - t;

        ix_must(kvr_router_find_worker(&k, "w", 1, &worker) == KVR_OK
                && kvr_router_find_holder(&k, worker, 0, &holder) == KVR_OK
                && kvr_router_holder_held(&k, holder) == SN_BLOCKS,
                "all is held");

        do {
            t = rows_cpu();
            behind = kvr_router_tend(&k, i + 1, 500);
            tend = kvr_max(tend, rows_cpu() - t);
        } while (behind);
    }

    /* the first one meets fresh memory, the others a view to be replaced */

    snprintf(name, sizeof(name), "%s, %s: a snapshot of 1 M blocks", index,
             shape);
    ix_say(name, "ms", ix_percentile(took, SN_ROUNDS, 99) / 1e6);

    snprintf(name, sizeof(name), "%s, %s: longest slice", index, shape);
    ix_say(name, "ms", longest / 1e6);

    snprintf(name, sizeof(name), "%s, %s: swap", index, shape);
    ix_say(name, "ms", end / 1e6);

    snprintf(name, sizeof(name), "%s, %s: longest reclaim", index, shape);
    ix_say(name, "ms", tend / 1e6);

    kvr_snapshot_destroy(s);
    kvr_router_leave(&k);
    kvr_router_detach(&k);
    free(bytes);
    free(base);
}


/* Nanoseconds of this process: others may have the processor meanwhile. */

static uint64_t
rows_cpu(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


/* Blocks [from, from + n), msgpack of stores of at most `event` blocks. */

static size_t
rows_part(uint8_t *bytes, uint64_t from, uint64_t n, uint32_t chain,
    uint32_t event, uint64_t salt)
{
    uint8_t   *p, *count;
    uint64_t   m, parent;
    uint32_t   i, events;

    p = bytes;
    *p++ = 0xdc;
    count = p;
    p += 2;
    events = 0;

    for ( /* void */ ; n; n -= m, from += m, events++) {

        m = kvr_min(n, event - from % chain % event);
        m = kvr_min(m, chain - from % chain);

        *p++ = 0x96;
        *p++ = 0xa1;
        *p++ = 's';
        *p++ = 0;
        *p++ = 0;

        if (from % chain) {
            parent = wl_mix(salt + from - 1) | 1;
            *p++ = 0xcf;

            for (i = 0; i < 8; i++) {
                *p++ = parent >> (56 - 8 * i);
            }

        } else {
            *p++ = 0xc0;
        }

        p = rows_u64s(p, from, m, salt);
        p = rows_u64s(p, from, m, salt);
    }

    count[0] = events >> 8;
    count[1] = events;

    return p - bytes;
}


static uint8_t *
rows_u64s(uint8_t *p, uint64_t from, uint64_t n, uint64_t salt)
{
    uint64_t  i, name;

    *p++ = 0xc6;
    *p++ = n * 8 >> 24;
    *p++ = n * 8 >> 16;
    *p++ = n * 8 >> 8;
    *p++ = n * 8;

    for (i = 0; i < n; i++) {
        name = wl_mix(salt + from + i) | 1;
        memcpy(p, &name, 8);
        p += 8;
    }

    return p;
}
