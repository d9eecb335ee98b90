/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Snapshots for tests, in all kinds of zone, and a naive model of what a
 * worker holds: a table that has, for each rank, prompt and block, the tiers
 * that hold it.
 */


#ifndef SNAPSHOT_H_INCLUDED
#define SNAPSHOT_H_INCLUDED


#include "follow/kvr_snapshot.h"
#include "zone/kvr_zone.h"

#include "../check/kvr_check.h"
#include "pack.h"
#include "zone.h"


#define ZONE     (16u << 20)
#define RANKS    2
#define PROMPTS  6
#define LENGTH   100
#define BYTES    (1u << 16)
#define PARTS    64


typedef struct {
    uint8_t   tiers[RANKS][PROMPTS][LENGTH];     /* bit t: held in tier t */
} model_t;


typedef struct {
    size_t    len;
    uint8_t   bytes[BYTES];
} part_t;


static kvr_ingest_t    *ingest;
static kvr_snapshot_t  *snapshot;
static const char      *detail;
static uint64_t         seed = 20261121;
static part_t           parts[PARTS];
static uint32_t         nparts;


static inline uint64_t
random_below(uint64_t n)
{
    seed = seed * UINT64_C(6364136223846793005)
           + UINT64_C(1442695040888963407);

    return (seed >> 33) % n;
}


static inline uint64_t
handle(uint32_t p, uint32_t i)
{
    return UINT64_C(0x9000000000000000) + p * 1000 + i;
}


static inline uint64_t
local(uint32_t p, uint32_t i)
{
    /* the first prompts begin alike */

    return i < 10 ? 5 + i : 1000 + p * 1000 + i;
}


/* ---- the model ---------------------------------------------------------- */

static inline void
model_random(model_t *m)
{
    uint32_t  r, p, i, n;

    memset(m, 0, sizeof(model_t));

    for (r = 0; r < RANKS; r++) {
        for (p = 0; p < PROMPTS; p++) {
            n = random_below(LENGTH + 1);

            for (i = 0; i < n; i++) {
                m->tiers[r][p][i] = random_below(20) ? 1
                                    : random_below(8);
            }
        }
    }
}


/* Blocks that all prompts have in common are held by any of their names. */

static inline uint32_t
model_tiers(const model_t *m, uint32_t r, uint32_t p, uint32_t i)
{
    uint32_t  q, tiers;

    if (i >= 10) {
        return m->tiers[r][p][i];
    }

    tiers = 0;

    for (q = 0; q < PROMPTS; q++) {
        tiers |= m->tiers[r][q][i];
    }

    return tiers;
}


static inline kvr_match_t
model_match(const model_t *m, uint32_t r, uint32_t p)
{
    uint32_t     t, n;
    uint32_t     depth[3];
    kvr_match_t  match;

    memset(&match, 0, sizeof(match));

    for (t = 0; t < 3; t++) {
        for (n = 0; n < LENGTH; n++) {
            if ((model_tiers(m, r, p, n) & ((2u << t) - 1)) == 0) {
                break;
            }
        }

        depth[t] = n;
    }

    match.device = depth[0];
    match.host = depth[1];
    match.disk = depth[2];

    return match;
}


/* Does the worker have just what the model says? */

static inline bool
holds(const char *worker, const model_t *m)
{
    uint32_t     r, p, i;
    uint64_t     prompt[LENGTH];
    kvr_match_t  has, should;

    for (r = 0; r < RANKS; r++) {
        for (p = 0; p < PROMPTS; p++) {

            for (i = 0; i < LENGTH; i++) {
                prompt[i] = local(p, i);
            }

            rank = r;
            has = matched(worker, prompt, LENGTH);
            should = model_match(m, r, p);

            if (has.device != should.device || has.host != should.host
                || has.disk != should.disk)
            {
                note("rank %u prompt %u: %u %u %u, not %u %u %u", r, p,
                     has.device, has.host, has.disk, should.device,
                     should.host, should.disk);
                return false;
            }
        }
    }

    return true;
}


static inline uint64_t
model_held(const model_t *m)
{
    uint32_t  r, p, i;
    uint64_t  n;

    n = 0;

    for (r = 0; r < RANKS; r++) {
        for (p = 0; p < PROMPTS; p++) {
            for (i = 0; i < LENGTH; i++) {
                n += m->tiers[r][p][i] != 0;
            }
        }
    }

    return n;
}


static inline uint64_t
held(const char *worker)
{
    uint32_t  w, h, steps;
    uint64_t  n;

    n = 0;
    steps = 0;
    h = KVR_HOLDER_NONE;

    if (kvr_router_find_worker(&router, worker, strlen(worker), &w)
        != KVR_OK)
    {
        return 0;
    }

    while (kvr_router_next_holder(&router, w, &h, &steps)) {
        n += kvr_router_holder_held(&router, h);
    }

    return n;
}


/* ---- messages ----------------------------------------------------------- */

static inline void
pack_u64s(pack_t *out, uint32_t p, uint32_t from, uint32_t n, bool locals)
{
    uint32_t  i;
    uint64_t  values[LENGTH];

    for (i = 0; i < n; i++) {
        values[i] = locals ? local(p, from + i) : handle(p, from + i);
    }

    pack_bin(out, values, n * 8);
}


static inline void
pack_store(pack_t *out, uint32_t r, uint32_t t, uint32_t p, uint32_t from,
    uint32_t n)
{
    pack_array(out, 6);
    pack_str(out, "s", 1);
    pack_u64(out, r);
    pack_u64(out, t);

    if (from) {
        pack_u64(out, handle(p, from - 1));

    } else {
        pack_tag(out, 0xc0, 0, 0);
    }

    pack_u64s(out, p, from, n, false);
    pack_u64s(out, p, from, n, true);
}


/* Whole chains, parents first, and then what makes the holes. */

static inline void
snapshot_write(const model_t *m)
{
    uint32_t  r, p, i, t, n, events;
    uint64_t  name;
    pack_t    out;
    uint8_t   body[BYTES];

    nparts = 0;

    for (r = 0; r < RANKS; r++) {
        for (p = 0; p < PROMPTS; p++) {

            for (n = LENGTH; n && m->tiers[r][p][n - 1] == 0; n--) {
                /* void */
            }

            if (n == 0) {
                continue;
            }

            out.pos = body;
            out.end = body + BYTES;
            events = 0;

            for (t = 0; t < 3; t++) {
                pack_store(&out, r, t, p, 0, n / 2);
                pack_store(&out, r, t, p, n / 2, n - n / 2);
                events += 2;
            }

            for (t = 0; t < 3; t++) {
                for (i = 0; i < n; i++) {
                    if ((m->tiers[r][p][i] >> t & 1) == 0) {
                        name = handle(p, i);
                        pack_remove(&out, r, t, &name, 1);
                        events++;
                    }
                }
            }

            parts[nparts].len = out.pos - body;
            out.pos = parts[nparts].bytes;
            out.end = parts[nparts].bytes + BYTES;
            pack_array(&out, events);
            pack_bytes(&out, body, parts[nparts].len);
            parts[nparts].len = out.pos - parts[nparts].bytes;
            nparts++;
        }
    }
}


/* ["kvr1", worker, epoch, seq, complete, 0, payload] in bytes; the length */

static inline size_t
envelope(uint8_t *bytes, const char *worker, uint64_t epoch, uint64_t seq,
    bool complete, const uint8_t *payload, size_t len)
{
    pack_t  out;

    out.pos = bytes;
    out.end = bytes + BYTES;

    pack_array(&out, 7);
    pack_str(&out, "kvr1", 4);
    pack_str(&out, worker, strlen(worker));
    pack_u64(&out, epoch);
    pack_u64(&out, seq);
    pack_tag(&out, complete ? 0xc3 : 0xc2, 0, 0);
    pack_u64(&out, 0);

    if (payload) {
        pack_bin(&out, payload, len);

    } else {
        pack_tag(&out, 0xc0, 0, 0);
    }

    return out.pos - bytes;
}


static inline kvr_ingest_verdict_t
send_bytes(const char *worker, uint64_t epoch, uint64_t seq, bool complete,
    const uint8_t *payload, size_t len)
{
    uint8_t               bytes[BYTES];
    kvr_ingest_verdict_t  verdict;

    len = envelope(bytes, worker, epoch, seq, complete, payload, len);

    verdict = kvr_ingest_open(ingest, worker, strlen(worker), bytes, len,
                              true, now_ms, &detail);

    if (verdict == KVR_INGEST_APPLY) {
        while (kvr_ingest_step(ingest, 64) == KVR_OK) {
            /* void */
        }
    }

    return verdict;
}


/* One message, in JSON as pack.h has it. */

static inline kvr_ingest_verdict_t
say(const char *worker, uint64_t epoch, uint64_t seq, bool complete,
    const char *json)
{
    size_t   len;
    uint8_t  bytes[1024];

    len = json ? pack(bytes, sizeof(bytes), json) : 0;

    return send_bytes(worker, epoch, seq, complete, json ? bytes : NULL, len);
}


/* Stores a block, of a prompt and rank, that the model then has too. */

static inline size_t
one_block(model_t *m, uint8_t *bytes, uint32_t r, uint32_t p)
{
    uint32_t  n;
    pack_t    out;

    for (n = 0; n < LENGTH && m->tiers[r][p][n]; n++) {
        /* void */
    }

    n -= n == LENGTH;
    m->tiers[r][p][n] |= 1;

    out.pos = bytes;
    out.end = bytes + BYTES;

    pack_array(&out, 1);
    pack_store(&out, r, 0, p, n, 1);

    return out.pos - bytes;
}


static inline kvr_rc_t
begin(const char *worker, uint64_t epoch, uint64_t seq, bool complete)
{
    kvr_snapshot_head_t  head;

    head.epoch = epoch;
    head.seq = seq;
    head.complete = complete;
    head.contract = (kvr_contract_t) { 4, false };
    head.hybrid = false;

    return kvr_snapshot_begin(snapshot, worker, strlen(worker), &head);
}


/* The same of a model that has KV cache groups which are not in it. */

static inline kvr_rc_t
begin_hybrid(const char *worker, uint64_t epoch, uint64_t seq)
{
    kvr_snapshot_head_t  head = {
        .epoch = epoch, .seq = seq, .contract = { 4, false }, .complete = true,
        .hybrid = true
    };

    return kvr_snapshot_begin(snapshot, worker, strlen(worker), &head);
}


/* KVR_DONE when all is well. */

static inline kvr_rc_t
part(const uint8_t *bytes, size_t len, uint32_t budget)
{
    kvr_rc_t  rc;

    rc = kvr_snapshot_open(snapshot, bytes, len, &detail);

    while (rc == KVR_OK) {
        rc = kvr_snapshot_step(snapshot, budget);
    }

    return rc;
}


static inline bool
all_parts(void)
{
    uint32_t  i;

    for (i = 0; i < nparts; i++) {
        if (part(parts[i].bytes, parts[i].len, 16) != KVR_DONE) {
            return false;
        }
    }

    return true;
}


static inline kvr_rc_t
end(void)
{
    bool  behind;

    return kvr_snapshot_end(snapshot, now_ms, &behind);
}


static inline bool
load(const char *worker, uint64_t epoch, uint64_t seq, bool complete,
    const model_t *m)
{
    snapshot_write(m);

    return begin(worker, epoch, seq, complete) == KVR_OK && all_parts()
           && end() == KVR_OK
           && kvr_ingest_repair_end(ingest, worker, strlen(worker)) == KVR_OK;
}


static inline const kvr_worker_t *
worker_of(const char *id)
{
    uint32_t  i;

    if (kvr_router_find_worker(&router, id, strlen(id), &i) != KVR_OK) {
        printf("Bail out! no worker %s\n", id);
        exit(1);
    }

    return kvr_router_worker(&router, i);
}


static inline bool
stands(const char *id, kvr_confidence_t confidence, uint32_t reason,
    uint64_t epoch, uint64_t seq)
{
    const kvr_worker_t  *w;

    w = worker_of(id);

    if (w->stream.confidence == confidence && w->stream.reason == reason
        && w->stream.epoch == epoch && w->stream.seq == seq)
    {
        return true;
    }

    note("%s, %s at %" PRIu64 "-%" PRIu64,
         kvr_confidence_name(w->stream.confidence),
         kvr_degraded_name(w->stream.reason), w->stream.epoch, w->stream.seq);

    return false;
}


/* Nothing is aside, nothing waits, and the index is sound. */

static inline bool
tidy(void)
{
    uint32_t      i;
    kvr_stats_t   stats;
    const char   *wrong;

    while (kvr_router_tend(&router, now_ms, 1000)) {
        /* void */
    }

    kvr_router_stats(&router, &stats);

    for (i = 0; i < router.nshards; i++) {
        wrong = kvr_index_check(&router.shards[i].index);

        if (wrong || router.shards[i].zone->fleet.naside) {
            note("%s, %u aside", wrong ? wrong : "sound",
                 router.shards[i].zone->fleet.naside);
            return false;
        }
    }

    return stats.views_dying == 0;
}


static inline uint64_t
pairs(void)
{
    kvr_stats_t  stats;

    kvr_router_stats(&router, &stats);

    return stats.pairs;
}


static inline void
open_all(const kind_t *of)
{
    uint32_t  i;

    zone_open(of, ZONE);

    for (i = 0; i < router.nshards; i++) {
        (void) kvr_router_lease(&router, i, 0, now_ms);
    }

    ingest = kvr_ingest_create(&router);
    snapshot = kvr_snapshot_create(&router);

    put("a");
    put("b");
}


static inline void
close_all(void)
{
    kvr_snapshot_destroy(snapshot);
    kvr_ingest_destroy(ingest);
    zone_close();
}


#endif /* SNAPSHOT_H_INCLUDED */
