/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_OUTSTANDING        256            /* envelopes, and */
#define KVR_RELAY_OUTSTANDING_BYTES  (4u << 20)     /* bytes on their way */


static kvr_rc_t kvr_relay_publisher_full(void *data, const void *bytes,
    size_t len);
static bool kvr_relay_publisher_make(kvr_relay_t *r, const char *payload,
    size_t len, bool last, uint32_t rank, uint64_t engine_seq);
static void kvr_relay_publisher_overflow(kvr_relay_t *r);
static void kvr_relay_publisher_send(kvr_relay_t *r,
    const kvr_relay_entry_t *e);
static void kvr_relay_publisher_answer(kvr_relay_t *r, void *data,
    const redisReply *reply);


bool
kvr_relay_publisher_init(kvr_relay_t *r)
{
    kvr_relay_publisher_t  *p;

    p = &r->publisher;
    p->state = KVR_RELAY_UNBASED;
    p->fresh = true;

    return kvr_relay_ring_init(&p->ring, r->options.ring)
           && kvr_relay_batch_init(&p->batch, kvr_relay_publisher_full, r);
}


void
kvr_relay_publisher_free(kvr_relay_t *r)
{
    kvr_relay_ring_free(&r->publisher.ring);
    kvr_relay_batch_free(&r->publisher.batch);
}


/* ---- making ------------------------------------------------------------- */

void
kvr_relay_publisher_event(void *data, const kvr_change_t *ev)
{
    kvr_relay_t  *r;

    r = data;

    if (ev->kind == KVR_STORE) {
        r->counters.stored += ev->nhandles;

    } else if (ev->kind == KVR_REMOVE) {
        r->counters.removed += ev->nhandles;
    }

    if (r->publisher.state != KVR_RELAY_UNBASED) {
        (void) kvr_relay_batch_add(&r->publisher.batch, ev);
    }
}


static kvr_rc_t
kvr_relay_publisher_full(void *data, const void *bytes, size_t len)
{
    return kvr_relay_publisher_make(data, bytes, len, false, 0, 0)
           ? KVR_OK : KVR_ERROR;
}


void
kvr_relay_publisher_end(kvr_relay_t *r, bool last, uint32_t rank,
    uint64_t engine_seq)
{
    kvr_relay_publisher_t  *p;

    p = &r->publisher;

    if (p->state != KVR_RELAY_UNBASED && kvr_relay_batch_end(&p->batch)) {
        (void) kvr_relay_publisher_make(r, p->batch.bytes, p->batch.len, last,
                                        rank, engine_seq);
    }

    kvr_relay_batch_reset(&p->batch);
}


static bool
kvr_relay_publisher_make(kvr_relay_t *r, const char *payload, size_t len,
    bool last, uint32_t rank, uint64_t engine_seq)
{
    char                   *bytes;
    size_t                  size;
    uint64_t                oldest;
    kvr_envelope_t          e;
    kvr_relay_publisher_t  *p;

    p = &r->publisher;

    if (p->state == KVR_RELAY_UNBASED) {
        return false;
    }

    size = len + KVR_ENVELOPE_HEAD;

    /* entries that Redis has are dropped first */

    while (!kvr_relay_ring_room(&p->ring, size) && p->ring.n != 0) {
        oldest = p->ring.entries[p->ring.first].seq;

        if (oldest > p->acked) {
            break;
        }

        kvr_relay_ring_drop(&p->ring, oldest);
    }

    bytes = kvr_relay_ring_room(&p->ring, size) ? malloc(size) : NULL;

    if (bytes == NULL) {
        kvr_relay_publisher_overflow(r);
        return false;
    }

    memset(&e, 0, sizeof(kvr_envelope_t));
    e.worker = r->options.worker;
    e.worker_len = strlen(r->options.worker);
    e.epoch = p->epoch;
    e.seq = p->seq + 1;
    e.complete = kvr_relay_complete(r, NULL);
    e.payload = payload;
    e.payload_len = len;
    e.has_engine_seq = last;
    e.engine_seq = engine_seq;
    e.rank = rank;
    e.hybrid = kvr_relay_mirror_hybrid(&r->mirror);

    size = kvr_envelope_print(bytes, size, &e);

    p->seq++;
    kvr_relay_ring_push(&p->ring, p->seq, bytes, size, e.complete, r->now_ms);

    return true;
}


static void
kvr_relay_publisher_overflow(kvr_relay_t *r)
{
    kvr_relay_log(KVR_RELAY_WARN, "ring full", "envelopes=%u bytes=%llu "
                  "seq=%llu", r->publisher.ring.n,
                  (unsigned long long) r->publisher.ring.bytes,
                  (unsigned long long) r->publisher.seq);

    r->counters.dropped++;

    kvr_relay_publisher_unbase(r, false);
}


/* ---- the base ----------------------------------------------------------- */

void
kvr_relay_publisher_unbase(kvr_relay_t *r, bool fresh)
{
    kvr_relay_publisher_t  *p;

    p = &r->publisher;

    if (p->state != KVR_RELAY_UNBASED) {
        r->counters.dropped += p->seq - p->acked;
        kvr_relay_ring_drop(&p->ring, UINT64_MAX);
        kvr_relay_batch_reset(&p->batch);

        p->outstanding = 0;
        p->outstanding_bytes = 0;
        p->generation++;
    }

    p->state = KVR_RELAY_UNBASED;
    p->fresh = p->fresh || fresh;

    kvr_relay_wake(r, r->now_ms);
}


void
kvr_relay_publisher_base(kvr_relay_t *r)
{
    kvr_relay_publisher_t  *p;

    p = &r->publisher;

    if (p->fresh) {
        p->epoch = kvr_max(kvr_relay_unix(),
                           kvr_max(p->epoch, p->known) + 1);
        p->seq = 0;
    }

    p->fresh = false;
    p->hole = false;
    p->lasting = false;
    p->seq++;
    p->sent = p->seq;
    p->acked = p->seq;
    p->sent_complete = kvr_relay_complete(r, NULL);
    p->state = KVR_RELAY_HELD;

    kvr_relay_log(KVR_RELAY_INFO, "base", "epoch=%llu seq=%llu",
                  (unsigned long long) p->epoch,
                  (unsigned long long) p->seq);
}


void
kvr_relay_publisher_covered(kvr_relay_t *r, uint64_t seq, bool base)
{
    kvr_relay_publisher_t  *p;

    p = &r->publisher;

    if (base && p->state == KVR_RELAY_HELD) {
        p->state = KVR_RELAY_OPEN;
    }

    kvr_relay_ring_drop(&p->ring, kvr_min(seq, p->acked));
}


/* ---- Redis goes and comes ----------------------------------------------- */

void
kvr_relay_publisher_down(kvr_relay_t *r)
{
    kvr_relay_publisher_t  *p;

    p = &r->publisher;

    p->resumed = false;
    p->sent = p->acked;
    p->outstanding = 0;
    p->outstanding_bytes = 0;

    if (p->state == KVR_RELAY_HELD) {
        kvr_relay_publisher_unbase(r, false);
    }
}


bool
kvr_relay_publisher_resume(kvr_relay_t *r, uint64_t log_epoch,
    uint64_t log_seq, uint64_t snap_epoch, uint64_t snap_seq)
{
    uint64_t                at;
    kvr_relay_publisher_t  *p;

    p = &r->publisher;
    p->known = kvr_max(p->known, kvr_max(log_epoch, snap_epoch));
    p->resumed = true;
    p->lasting = false;

    if (p->epoch != 0 && p->known > p->epoch) {
        kvr_relay_log(KVR_RELAY_ERROR, "superseded", "epoch=%llu by=%llu",
                      (unsigned long long) p->epoch,
                      (unsigned long long) p->known);
        kvr_relay_exit(r, KVR_RELAY_SUPERSEDED);
        return false;
    }

    if (p->state != KVR_RELAY_OPEN) {
        return false;
    }

    /* The log ends before the last envelope that was sent: Redis has lost
       some. */

    at = (log_epoch == p->epoch) ? log_seq
         : (snap_epoch == p->epoch) ? snap_seq : 0;

    if (p->hole || at == 0 || at > p->seq
        || (at < p->seq && kvr_relay_ring_at(&p->ring, at + 1) == NULL))
    {
        kvr_relay_log(KVR_RELAY_WARN, "redis lost messages", "epoch=%llu "
                      "seq=%llu has=%llu", (unsigned long long) p->epoch,
                      (unsigned long long) p->acked, (unsigned long long) at);
        kvr_relay_publisher_unbase(r, false);
        return false;
    }

    if (at != p->acked) {
        kvr_relay_log(KVR_RELAY_INFO, "log compared", "epoch=%llu seq=%llu "
                      "has=%llu", (unsigned long long) p->epoch,
                      (unsigned long long) p->acked, (unsigned long long) at);
        p->refused = false;
    }

    p->acked = at;
    p->sent = at;

    return true;
}


/* ---- sending ------------------------------------------------------------ */

void
kvr_relay_publisher_tick(kvr_relay_t *r)
{
    kvr_relay_publisher_t    *p;
    const kvr_relay_entry_t  *e;

    p = &r->publisher;

    while (p->state == KVR_RELAY_OPEN && p->resumed && p->sent < p->seq
           && p->outstanding < KVR_RELAY_OUTSTANDING
           && p->outstanding_bytes < KVR_RELAY_OUTSTANDING_BYTES)
    {
        e = kvr_relay_ring_at(&p->ring, p->sent + 1);

        if (e == NULL) {
            kvr_relay_publisher_unbase(r, false);
            return;
        }

        p->sent++;
        p->sent_complete = e->complete;
        p->outstanding++;
        p->outstanding_bytes += e->len;

        kvr_relay_publisher_send(r, e);
    }
}


static void
kvr_relay_publisher_send(kvr_relay_t *r, const kvr_relay_entry_t *e)
{
    char  id[48];

    snprintf(id, sizeof(id), "%llu-%llu",
             (unsigned long long) r->publisher.epoch,
             (unsigned long long) e->seq);

    kvr_relay_redis_args(r, NULL, NULL, "MULTI", NULL);

    kvr_relay_redis_bytes(r, NULL, NULL, e->bytes, e->len, "XADD",
                          r->session.log_key, id, KVR_LOG_FIELD, e->bytes,
                          NULL);
    kvr_relay_redis_bytes(r, NULL, NULL, e->bytes, e->len, "PUBLISH",
                          r->session.channel, e->bytes, NULL);
    kvr_relay_redis_args(r, kvr_relay_publisher_answer,
                         (void *) (uintptr_t) r->publisher.generation, "EXEC",
                         NULL);

    /* The log expires even if the relay dies before its next heartbeat. */

    if (!r->publisher.lasting) {
        r->publisher.lasting = true;
        kvr_relay_redis_args(r, NULL, NULL, "EXPIRE", r->session.log_key,
                             KVR_RELAY_KEEP_SECONDS, NULL);
    }
}


/*
 * Takes the answer to one envelope.  Answers come in the order of the
 * envelopes.
 */

static void
kvr_relay_publisher_answer(kvr_relay_t *r, void *data, const redisReply *reply)
{
    const redisReply         *bad;
    kvr_relay_publisher_t    *p;
    const kvr_relay_entry_t  *e;

    p = &r->publisher;

    if (reply == NULL || !p->resumed) {
        return;
    }

    bad = NULL;

    if (reply->type == REDIS_REPLY_ERROR) {
        bad = reply;

    } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements != 0
               && reply->element[0]->type == REDIS_REPLY_ERROR)
    {
        bad = reply->element[0];
    }

    if (bad != NULL && strstr(bad->str, "equal or smaller") != NULL) {

        if (p->refused) {
            kvr_relay_log(KVR_RELAY_ERROR, "superseded", "epoch=%llu",
                          (unsigned long long) p->epoch);
            kvr_relay_exit(r, KVR_RELAY_SUPERSEDED);
            return;
        }

        /* Redis has an entry of another relay, or ours by a connection that
           was given up. */

        p->refused = true;
        kvr_relay_redis_break(r, "has a later message", bad);
        return;
    }

    if (bad != NULL || reply->type != REDIS_REPLY_ARRAY) {
        p->hole = true;
        kvr_relay_redis_break(r, "refused a message", bad);
        return;
    }

    if ((uintptr_t) data != p->generation) {
        return;                             /* a base took its place */
    }

    p->refused = false;
    p->acked++;
    p->outstanding--;
    r->counters.envelopes++;

    e = kvr_relay_ring_at(&p->ring, p->acked);

    if (e != NULL) {
        p->outstanding_bytes -= kvr_min(p->outstanding_bytes, e->len);
        r->counters.lag_ms = r->now_ms - e->made_ms;
    }
}


void
kvr_relay_publisher_heartbeat(kvr_relay_t *r)
{
    char                    bytes[KVR_ENVELOPE_HEAD];
    size_t                  len;
    kvr_envelope_t          e;
    kvr_relay_publisher_t  *p;

    p = &r->publisher;

    if (p->state != KVR_RELAY_OPEN || !p->resumed) {
        return;
    }

    memset(&e, 0, sizeof(kvr_envelope_t));
    e.worker = r->options.worker;
    e.worker_len = strlen(r->options.worker);
    e.epoch = p->epoch;
    e.seq = p->sent;
    e.complete = kvr_relay_complete(r, NULL)
                 && (p->sent_complete || p->sent == p->seq);
    e.hybrid = kvr_relay_mirror_hybrid(&r->mirror);
    e.draining = r->drain.state != KVR_RELAY_DRAIN_SERVING;

    len = kvr_envelope_print(bytes, sizeof(bytes), &e);

    kvr_relay_redis_bytes(r, NULL, NULL, bytes, len, "PUBLISH",
                          r->session.channel, bytes, NULL);
}


bool
kvr_relay_publisher_idle(const kvr_relay_t *r)
{
    const kvr_relay_publisher_t  *p;

    p = &r->publisher;

    return p->state == KVR_RELAY_OPEN && p->acked == p->seq;
}
