/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Snapshots, in all kinds of zone: what a worker holds is swapped for what a
 * snapshot says, at once or not at all, whoever is killed meanwhile.
 *
 * The model is a table: for each rank, prompt and block the tiers that hold
 * it.
 */


#include "kvr_snapshot.h"
#include "kvr_zone.h"

#include "pack.h"
#include "processes.h"
#include "zone.h"


#define ZONE     (16u << 20)
#define RANKS    2
#define PROMPTS  6
#define LENGTH   100
#define BYTES    (1u << 16)
#define PARTS    64
#define ROUNDS   40

#ifdef __SANITIZE_ADDRESS__
#define STRIDE   211                    /* instructions between two kills */
#else
#define STRIDE   23
#endif

#define CHILD    (*(volatile uint64_t *) shared)


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
static model_t          models[2];
static void            *shared;
static uint32_t         looks, looks_empty;


static uint64_t
random_below(uint64_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);

    return (seed >> 33) % n;
}


static uint64_t
handle(uint32_t p, uint32_t i)
{
    return UINT64_C(0x9000000000000000) + p * 1000 + i;
}


static uint64_t
local(uint32_t p, uint32_t i)
{
    /* the first prompts begin alike */

    return i < 10 ? 5 + i : 1000 + p * 1000 + i;
}


/* ---- the model ---------------------------------------------------------- */

static void
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

static uint32_t
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


static kvr_match_t
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

static bool
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


static uint64_t
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


static uint64_t
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

static void
pack_u64s(pack_t *out, uint32_t p, uint32_t from, uint32_t n, bool locals)
{
    uint32_t  i;
    uint64_t  values[LENGTH];

    for (i = 0; i < n; i++) {
        values[i] = locals ? local(p, from + i) : handle(p, from + i);
    }

    pack_bin(out, values, n * 8);
}


static void
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

static void
snapshot_write(const model_t *m)
{
    uint32_t  r, p, i, t, n, events;
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
                        pack_array(&out, 4);
                        pack_str(&out, "r", 1);
                        pack_u64(&out, r);
                        pack_u64(&out, t);
                        pack_u64s(&out, p, i, 1, false);
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

static size_t
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


static kvr_ingest_verdict_t
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

static kvr_ingest_verdict_t
say(const char *worker, uint64_t epoch, uint64_t seq, bool complete,
    const char *json)
{
    size_t   len;
    uint8_t  bytes[1024];

    len = json ? pack(bytes, sizeof(bytes), json) : 0;

    return send_bytes(worker, epoch, seq, complete, json ? bytes : NULL, len);
}


/* Stores a block, of a prompt and rank, that the model then has too. */

static size_t
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


static kvr_rc_t
begin(const char *worker, uint64_t epoch, uint64_t seq, bool complete)
{
    kvr_snapshot_head_t  head;

    head.epoch = epoch;
    head.seq = seq;
    head.complete = complete;
    head.block_size = 4;

    return kvr_snapshot_begin(snapshot, worker, strlen(worker), &head);
}


/* KVR_DONE when all is well. */

static kvr_rc_t
part(const uint8_t *bytes, size_t len, uint32_t budget)
{
    kvr_rc_t  rc;

    rc = kvr_snapshot_open(snapshot, bytes, len, &detail);

    while (rc == KVR_OK) {
        rc = kvr_snapshot_step(snapshot, budget);
    }

    return rc;
}


static bool
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


static kvr_rc_t
end(void)
{
    bool  behind;

    return kvr_snapshot_end(snapshot, now_ms, &behind);
}


static bool
load(const char *worker, uint64_t epoch, uint64_t seq, bool complete,
    const model_t *m)
{
    snapshot_write(m);

    return begin(worker, epoch, seq, complete) == KVR_OK && all_parts()
           && end() == KVR_OK
           && kvr_ingest_repair_end(ingest, worker, strlen(worker)) == KVR_OK;
}


static const kvr_worker_t *
worker_of(const char *id)
{
    uint32_t  i;

    if (kvr_router_find_worker(&router, id, strlen(id), &i) != KVR_OK) {
        printf("Bail out! no worker %s\n", id);
        exit(1);
    }

    return kvr_router_worker(&router, i);
}


static bool
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

static bool
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


static uint64_t
pairs(void)
{
    kvr_stats_t  stats;

    kvr_router_stats(&router, &stats);

    return stats.pairs;
}


static void
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


static void
close_all(void)
{
    kvr_snapshot_destroy(snapshot);
    kvr_ingest_destroy(ingest);
    zone_close();
}


/* ---- tests -------------------------------------------------------------- */

static kvr_rc_t
count_line(void *data, const char *line, size_t len)
{
    ++*(uint32_t *) data;

    return KVR_OK;
}


static void
test_swap(void)
{
    bool      apart;
    uint32_t  i, lines;
    model_t   none, before, after;

    memset(&none, 0, sizeof(none));
    model_random(&before);
    model_random(&after);

    snapshot_write(&before);

    ok(begin("a", 5, 100, true) == KVR_OK && all_parts(),
       "a snapshot of a worker that nothing is known of is built");

    lines = 0;
    (void) kvr_router_dump(&router, count_line, &lines);
    ok(holds("a", &none) && held("a") == 0 && lines == 0,
       "lookup, count and dump see nothing of it");

    ok(end() == KVR_OK && holds("a", &before)
       && held("a") == model_held(&before),
       "with its end all of it is there");

    (void) kvr_ingest_repair_end(ingest, "a", 1);
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 100) && tidy(),
       "the view is EXACT, and the stream stands at its message");

    ok(say("a", 5, 100, true, "[['c', 0]]") == KVR_INGEST_DROP
       && say("a", 5, 102, true, "[['c', 0]]") == KVR_INGEST_GAP
       && holds("a", &before), "the stream goes on behind that message");

    snapshot_write(&after);
    apart = begin("a", 6, 1, true) == KVR_OK;

    for (i = 0; i < nparts; i++) {
        apart = apart
                && part(parts[i].bytes, parts[i].len, 1) == KVR_DONE
                && holds("a", &before) && held("a") == model_held(&before);
    }

    ok(apart, "while another epoch's is built the view stays");
    ok(end() == KVR_OK && holds("a", &after) && held("b") == 0,
       "then it is the other");
    ok(worker_of("a")->counters.restarts == 1
       && worker_of("a")->counters.snapshots == 2,
       "a restart and two snapshots are counted");

    ok(tidy() && pairs() == model_held(&after),
       "what was held before is reclaimed");

    nparts = 0;
    ok(begin("a", 6, 9, true) == KVR_OK && end() == KVR_OK && tidy()
       && pairs() == 0 && holds("a", &none),
       "a snapshot without parts is an empty view");
}


/* A part that is one long event: slices all the same. */

static void
test_slices(void)
{
    size_t    len;
    pack_t    out;
    uint8_t   bytes[BYTES];
    uint32_t  i, slices;
    model_t   m;

    memset(&m, 0, sizeof(m));

    for (i = 0; i < LENGTH; i++) {
        m.tiers[0][0][i] = 1;
    }

    out.pos = bytes;
    out.end = bytes + BYTES;
    pack_array(&out, 1);
    pack_store(&out, 0, 0, 0, 0, LENGTH);
    len = out.pos - bytes;

    slices = 0;

    ok(begin("a", 1, 1, true) == KVR_OK
       && kvr_snapshot_open(snapshot, bytes, len, &detail) == KVR_OK,
       "a part with one event of many blocks");

    while (kvr_snapshot_step(snapshot, 8) == KVR_OK) {
        slices++;
    }

    ok(slices >= LENGTH / 8 && end() == KVR_OK && holds("a", &m),
       "is applied in slices of so many blocks as were asked for");

    out.pos = bytes;
    pack_array(&out, 1);
    pack_store(&out, 1, 0, 3, 50, 50);
    len = out.pos - bytes;

    ok(begin("a", 1, 2, true) == KVR_OK && part(bytes, len, 8) == KVR_DONE
       && worker_of("a")->counters.why[KVR_WHY_PARENT] == 1,
       "when it is refused it is counted once");
}


/* Engine blocks of two of ours each. */

static void
test_spans(void)
{
    uint32_t  i;
    uint64_t  locals[40], handles[20];
    pack_t    out;
    uint8_t   bytes[BYTES];

    for (i = 0; i < 40; i++) {
        locals[i] = 77 + i;
        handles[i / 2] = 9000 + i / 2;
    }

    out.pos = bytes;
    out.end = bytes + BYTES;
    pack_array(&out, 2);
    pack_array(&out, 6);
    pack_str(&out, "s", 1);
    pack_u64(&out, 0);
    pack_u64(&out, 0);
    pack_tag(&out, 0xc0, 0, 0);
    pack_bin(&out, handles, sizeof(handles));
    pack_bin(&out, locals, sizeof(locals));
    pack_array(&out, 4);
    pack_str(&out, "r", 1);
    pack_u64(&out, 0);
    pack_u64(&out, 0);
    pack_bin(&out, &handles[15], 8);

    rank = 0;

    ok(begin("a", 1, 1, true) == KVR_OK
       && part(bytes, out.pos - bytes, 3) == KVR_DONE && end() == KVR_OK
       && matched("a", locals, 40).device == 30,
       "engine blocks that span several of ours come in slices too");
}


static void
test_cursor(void)
{
    bool      behind;
    size_t    len;
    model_t   m;
    uint8_t   bytes[BYTES], message[BYTES];

    model_random(&m);

    ok(load("a", 5, 100, true, &m), "a view stands at message 100");

    ok(begin("a", 4, 999, true) == KVR_DECLINED
       && begin("a", 5, 99, true) == KVR_DECLINED
       && begin("a", 5, 100, true) == KVR_DECLINED
       && begin("a", 0, 0, true) == KVR_DECLINED
       && begin("nobody", 6, 1, true) == KVR_DECLINED,
       "no snapshot of an earlier epoch or message can be begun");

    (void) kvr_ingest_repair_failed(ingest, "a", 1, 5, 103);
    ok(stands("a", KVR_DEGRADED, KVR_DEG_GAP, 5, 103)
       && kvr_fleet_wants_snapshot(worker_of("a")) && holds("a", &m),
       "messages that are lost make it DEGRADED; the view is kept");

    snapshot_write(&m);
    ok(begin("a", 5, 102, true) == KVR_OK && all_parts()
       && kvr_snapshot_end(snapshot, now_ms, &behind) == KVR_DECLINED
       && behind, "a snapshot behind the cursor is not enough by itself");

    len = one_block(&m, bytes, 1, 3);
    len = envelope(message, "a", 5, 104, true, bytes, len);
    ok(part(message, len, 1) == KVR_DECLINED,
       "nor with an entry of the log that does not follow");

    len = envelope(message, "a", 5, 102, true, bytes, len);
    ok(part(message, len, 1) == KVR_DONE, "an entry that it covers is passed");

    m.tiers[1][3][0] |= 1;
    len = one_block(&m, bytes, 0, 2);
    len = envelope(message, "a", 5, 103, true, bytes, len);
    ok(part(message, len, 1) == KVR_DONE, "one that follows is applied aside");

    ok(end() == KVR_OK
       && kvr_ingest_repair_end(ingest, "a", 1) == KVR_OK
       && stands("a", KVR_EXACT, KVR_FINE, 5, 103),
       "then the view is EXACT, and the cursor never went back");

    snapshot_write(&m);
    ok(load("a", 5, 110, true, &m) && holds("a", &m) && tidy(),
       "a later snapshot of the same epoch is taken");

    ok(begin("a", 5, 120, true) == KVR_OK && all_parts()
       && send_bytes("a", 6, 1, true, (uint8_t *) "\x90", 1)
          == KVR_INGEST_APPLY
       && end() == KVR_DECLINED && held("a") == 0 && tidy(),
       "a new epoch that begins meanwhile ends what is built");
}


static void
test_whole(void)
{
    uint32_t  i;
    model_t   m, none;

    memset(&none, 0, sizeof(none));
    model_random(&m);

    ok(load("a", 5, 100, false, &m)
       && stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 5, 100)
       && !kvr_fleet_wants_snapshot(worker_of("a")) && holds("a", &m),
       "an incomplete snapshot: DEGRADED, and another one would not help");

    (void) say("a", 5, 101, true, "[['c', 0]]");
    ok(stands("a", KVR_DEGRADED, KVR_DEG_GAP, 5, 101),
       "when one rank of two is cleared it stays so");

    (void) say("a", 5, 102, true, "[['c', 1]]");
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 102) && holds("a", &none),
       "when both are it is EXACT");

    (void) say("a", 5, 103, true, "[['c', 0]]");
    (void) kvr_ingest_repair_failed(ingest, "a", 1, 5, 105);
    (void) say("a", 5, 106, true, "[['c', 1]]");
    ok(stands("a", KVR_DEGRADED, KVR_DEG_GAP, 5, 106),
       "what was cleared before messages were lost does not count");

    (void) say("a", 5, 107, false, "[['c', 0]]");
    ok(stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 5, 107),
       "nor what a publisher says that does not know all");

    (void) say("a", 5, 108, true, "[['c', 0], ['c', 1]]");
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 108), "both at once do");

    (void) say("a", 5, 109, true, "[['s', 0, 9, null, 1, 2]]");
    ok(stands("a", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 109),
       "a refused event: DEGRADED");

    (void) say("a", 5, 110, true, "[['c', 1], ['c', 0]]");
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 110), "cleared: EXACT");

    (void) say("a", 5, 110, false, NULL);
    ok(stands("a", KVR_DEGRADED, KVR_DEG_INCOMPLETE, 5, 110),
       "a heartbeat that says incomplete is believed");

    (void) say("a", 5, 110, true, NULL);
    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 110), "and one that takes it back");

    for (i = 0; i < router.nshards; i++) {
        (void) kvr_ingest_repair_shard(ingest, i, true);
    }

    ok(stands("a", KVR_SYNCING, KVR_FINE, 5, 110)
       && worker_of("b")->stream.confidence == KVR_UNKNOWN,
       "when it is listened to anew it is SYNCING");

    for (i = 0; i < router.nshards; i++) {
        (void) kvr_ingest_repair_shard(ingest, i, false);
    }

    ok(stands("a", KVR_EXACT, KVR_FINE, 5, 110),
       "unless nobody will read what was missed");

    (void) say("a", 5, 111, true, "[['s', 0, 9, null, 1, 2]]");
    ok(load("a", 5, 112, true, &m)
       && stands("a", KVR_EXACT, KVR_FINE, 5, 112),
       "a snapshot ends what a refusal began");
}


static void
test_garbage(void)
{
    bool      good;
    size_t    n;
    uint8_t   bytes[BYTES];
    uint32_t  i;
    model_t   before, after;

    model_random(&before);
    model_random(&after);

    ok(load("a", 5, 100, true, &before), "a view");

    snapshot_write(&after);

    good = true;

    for (i = 0; i < 200; i++) {
        n = random_below(parts[0].len);
        memcpy(bytes, parts[0].bytes, parts[0].len);

        if (i & 1) {
            good = good && begin("a", 5, 101, true) == KVR_OK
                   && part(bytes, n, 8) == KVR_INVALID;

        } else {
            bytes[n] ^= 1u << random_below(8);
            good = good && begin("a", 5, 101, true) == KVR_OK;
            (void) part(bytes, parts[0].len, 8);
        }

        good = good && kvr_snapshot_abort(snapshot) == KVR_OK;
    }

    ok(good && holds("a", &before) && tidy() && pairs() == model_held(&before)
       && stands("a", KVR_EXACT, KVR_FINE, 5, 100),
       "parts with bits flipped or an end cut off leave the view as it was");

    good = begin("a", 5, 101, true) == KVR_OK;
    n = pack(bytes, sizeof(bytes), "[1.5, [['AllBlocksCleared']], 0]");
    good = good && part(bytes, n, 8) == KVR_INVALID;
    n = pack(bytes, sizeof(bytes), "{}");
    good = good && part(bytes, n, 8) == KVR_INVALID;
    n = envelope(bytes, "b", 5, 102, true, (uint8_t *) "\x90", 1);
    good = good && part(bytes, n, 8) == KVR_INVALID;
    good = good && part((uint8_t *) "", 0, 8) == KVR_INVALID;
    ok(good && kvr_snapshot_abort(snapshot) == KVR_OK && holds("a", &before),
       "nor may a part be anything else");

    n = pack(bytes, sizeof(bytes), "[['s', 0, 0, 77, {'$bin': "
             "'0100000000000000'}, {'$bin': '0100000000000000'}]]");
    ok(begin("a", 5, 101, true) == KVR_OK && part(bytes, n, 8) == KVR_DONE
       && all_parts() && end() == KVR_OK
       && kvr_ingest_repair_end(ingest, "a", 1) == KVR_OK
       && stands("a", KVR_DEGRADED, KVR_DEG_REFUSED, 5, 101)
       && holds("a", &after),
       "an event of a part that is refused makes the new view DEGRADED");

    ok(begin("a", 5, 102, true) == KVR_OK && all_parts()
       && kvr_router_remove_worker(&router, "a", 1) == KVR_OK
       && part(parts[0].bytes, parts[0].len, 8) == KVR_DECLINED
       && end() == KVR_DECLINED && tidy() && pairs() == 0,
       "of a worker that is removed meanwhile nothing comes in");

    put("a");
    ok(part(parts[0].bytes, parts[0].len, 8) == KVR_DECLINED
       && held("a") == 0, "nor when it is put again");

    ok(load("a", 1, 1, true, &before) && holds("a", &before),
       "it begins anew");
}


/* ---- killed ------------------------------------------------------------- */

static void
lease_all(void)
{
    uint32_t  i;

    for (i = 0; i < router.nshards; i++) {
        while (kvr_router_lease(&router, i, 0, now_ms) == KVR_BUSY) {
            usleep(100);
        }
    }
}


/* Loads the one and the other snapshot in turn; even seqs are of models[0]. */

static void
loader(void)
{
    uint64_t  seq;

    if (kvr_router_join(&router) != KVR_OK) {
        _exit(1);
    }

    lease_all();

    for (seq = worker_of("a")->stream.seq + 1; /* void */ ; seq++) {

        if (!load("a", 7, seq, true, &models[seq & 1])) {
            _exit(2);
        }

        CHILD = seq;
    }
}


/*
 * A lookup beside the loader: what the one or the other has, or less of it,
 * and once for each rank.
 */

static bool
look(void)
{
    uint32_t     i, n, p, r, rank_of, seen;
    uint64_t     prompt[LENGTH];
    kvr_match_t  all[64], most, other;

    p = random_below(PROMPTS);

    for (i = 0; i < LENGTH; i++) {
        prompt[i] = local(p, i);
    }

    n = kvr_router_find(&router, prompt, LENGTH, false, all, 64);
    seen = 0;

    for (i = 0; i < n; i++) {
        rank_of = kvr_router_holder_rank(&router, all[i].holder);
        r = kvr_min(rank_of, RANKS - 1);
        most = model_match(&models[0], r, p);
        other = model_match(&models[1], r, p);

        if (seen >> r & 1
            || all[i].device > kvr_max(most.device, other.device)
            || all[i].host > kvr_max(most.host, other.host)
            || all[i].disk > kvr_max(most.disk, other.disk))
        {
            note("rank %u prompt %u: %u %u %u", rank_of, p, all[i].device,
                 all[i].host, all[i].disk);
            return false;
        }

        seen |= 1u << r;
    }

    looks++;
    looks_empty += n == 0;

    return true;
}


static void
test_killed(void)
{
    int       status;
    bool      good;
    pid_t     pid;
    uint32_t  i, n, loaded, middle;
    uint64_t  until;

    model_random(&models[0]);
    model_random(&models[1]);

    good = load("a", 7, 2, true, &models[0]);
    loaded = 0;
    middle = 0;

    kvr_router_leave(&router);

    for (i = 0; good && i < ROUNDS; i++) {
        CHILD = 0;
        pid = start(loader);

        for (n = 0; CHILD == 0 && n < 20000; n++) {
            usleep(100);
        }

        until = kvr_now_us() + random_below(3000);

        while (good && kvr_now_us() < until) {
            good = look();
        }

        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);

        good = good && WIFSIGNALED(status) && CHILD;

        if (kvr_router_join(&router) != KVR_OK) {
            good = false;
        }

        for (n = 0; n < router.nshards; n++) {
            middle += router.shards[n].zone->fleet.naside != 0;
        }

        /* in turns: by a successor, and by whoever tends the zone */

        if (i & 1) {
            lease_all();
        }

        good = good && tidy()
               && holds("a", &models[worker_of("a")->stream.seq & 1])
               && pairs() == held("a");

        loaded += CHILD > worker_of("a")->stream.seq - 2;
        kvr_router_leave(&router);
    }

    (void) kvr_router_join(&router);
    lease_all();

    note("%u kills, %u while something was aside; %u lookups, %u empty", i,
         middle, looks, looks_empty);
    ok(good && loaded == i && middle,
       "whoever is killed leaves one view or the other, and nothing aside; "
       "lookups meanwhile find no more than is there");
}


/* Builds the other one, and waits with the swap. */

static void
builder(void)
{
    uint64_t  seq;

    if (kvr_router_join(&router) != KVR_OK) {
        _exit(1);
    }

    lease_all();

    seq = worker_of("a")->stream.seq + 1;
    snapshot_write(&models[seq & 1]);

    if (begin("a", 7, seq, true) != KVR_OK || !all_parts()) {
        _exit(2);
    }
}


static void
swapper(void)
{
    (void) end();
}


/* At instructions all through the swap. */

static void
test_swap_killed(void)
{
    bool      good;
    uint32_t  steps, swapped;
    uint64_t  seq;

    model_random(&models[0]);
    model_random(&models[1]);

    good = load("a", 7, 2, true, &models[0]);
    swapped = 0;

    kvr_router_leave(&router);

    for (steps = 0; good; steps += STRIDE) {
        seq = worker_of("a")->stream.seq;

        if (!killed_behind(builder, swapper, steps)) {
            break;
        }

        good = kvr_router_join(&router) == KVR_OK && tidy()
               && holds("a", &models[worker_of("a")->stream.seq & 1])
               && pairs() == held("a");

        swapped += worker_of("a")->stream.seq != seq;

        kvr_router_leave(&router);
    }

    (void) kvr_router_join(&router);
    lease_all();

    note("killed up to instruction %u, %u behind the swap", steps, swapped);
    ok(good && steps > 500 && swapped,
       "killed at any instruction of the swap: the one or the other");
}


int
main(void)
{
    uint32_t  i, k;

    static void  (*const tests[])(void) = {
        test_swap, test_slices, test_spans, test_cursor, test_whole, test_garbage, test_killed,
        test_swap_killed
    };

    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    for (i = 0; i < KINDS; i++) {
        note("%s", kinds[i].name);

        for (k = 0; k < sizeof(tests) / sizeof(tests[0]); k++) {
            open_all(&kinds[i]);
            tests[k]();
            close_all();
        }
    }

    return done();
}
