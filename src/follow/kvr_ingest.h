/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Ingest: messages of workers' event streams, applied to the zone in slices.
 *
 * A kvr_ingest_t checks the epochs and the sequence of envelopes, as
 * docs/events.md describes them.  It belongs to one process, which must have
 * the lease of the worker's shard.  Every slice checks the token of that lease
 * under the shard's lock.  The cursor (epoch, seq, number of applied events of
 * seq + 1) is in the zone.  The cursor is committed together with the events
 * that it counts.
 *
 *     switch (kvr_ingest_open(in, worker, len, bytes, n, live, now)) {
 *     case KVR_INGEST_APPLY:
 *         while ((rc = kvr_ingest_step(in, budget)) == KVR_OK) { yield }
 *         …                          rc: KVR_DONE, KVR_BUSY (again), KVR_LOST
 *     case KVR_INGEST_GAP:           ask the log from the cursor
 *
 * The way of an event, from the turn in which the bytes of the socket are at
 * hand to the runs of the index, is at most seven calls.  What kv-relay and
 * RouterEvents say is a set of changes, and takes five of them; an engine's
 * own batch needs the normaliser, which knows what it said before:
 *
 *     kvr_ingest_step          takes an event from the decoder, cuts it
 *     kvr_ingest_event         numbers, windows, verdicts
 *       kvr_normalise_apply    an engine's own: copies, groups, blocks that
 *                              come back
 *       kvr_shard_apply_event  an engine's own: tokens become local hashes,
 *                              the event a change
 *     kvr_shard_apply          the change: holder, view, spans, counters
 *     kvr_index_store          one of the two indexes
 *     kvr_radix_store          walks the runs, and writes them
 */


#ifndef KVR_INGEST_H_INCLUDED
#define KVR_INGEST_H_INCLUDED


#include "kvr_warning.h"
#include "../zone/kvr_router.h"


typedef struct kvr_ingest_s  kvr_ingest_t;


typedef enum {
    KVR_INGEST_APPLY,       /* step until KVR_DONE */
    KVR_INGEST_DROP,        /* nothing to do: a duplicate, an old epoch, a
                               heartbeat, or refused and counted */
    KVR_INGEST_GAP,         /* messages are missing before this one: repair
                               from the log; the message is not applied */
    KVR_INGEST_BUSY,        /* the lock is taken: open it again */
    KVR_INGEST_LOST         /* the lease is gone */
} kvr_ingest_verdict_t;


/* The last message applied of a stream; a repair begins behind it. */
typedef struct {
    uint64_t    epoch;      /* 0: nothing was ever applied */
    uint64_t    seq;
} kvr_cursor_t;


/* NULL when out of memory. */
kvr_ingest_t *kvr_ingest_create(kvr_router_t *k);
void kvr_ingest_destroy(kvr_ingest_t *in);

/*
 * Looks at one message of the channel or log of `worker`.  The bytes must
 * stay until the last step.  live: from pub/sub; false: from the log, read in
 * order.  An unknown worker is made (KVR_WORKER_SEEN) if the zone has space.
 * *detail: the reason of a refusal, in words, or NULL.  If an envelope is
 * readable and all its events are refused, the verdict is KVR_INGEST_APPLY,
 * because the stream goes on behind the message.
 */
kvr_ingest_verdict_t kvr_ingest_open(kvr_ingest_t *in, const char *worker,
    size_t len, const void *bytes, size_t n, bool live, uint64_t now_ms,
    const char **detail);

/*
 * Applies events until about `blocks` blocks are done.  KVR_OK: more to do;
 * KVR_DONE; KVR_BUSY: the lock is taken, try again; KVR_LOST: the lease is
 * gone.
 *
 * An engine's own event in an envelope, which kv-relay never sends, is not
 * cut: applied again from the log, the event would count its copies twice.
 * The longest, of 65536 blocks of 16 tokens, is a step of 0.1 s, of 0.5 s when
 * it is the first to touch the zone's memory.  To read an event is no part of
 * a slice either: 20 ms for the longest.
 */
kvr_rc_t kvr_ingest_step(kvr_ingest_t *in, uint32_t blocks);

/*
 * True: an event was refused for a reason that is new for its worker; text is
 * a message that names the worker and the reason, once.  Must be called after
 * each step, until it returns false.
 */
bool kvr_ingest_warning(kvr_ingest_t *in, char text[KVR_WARNING_LEN]);

/* The cursor of the worker's stream.  KVR_DECLINED: no such worker. */
kvr_rc_t kvr_ingest_cursor(kvr_ingest_t *in, const char *worker, size_t len,
    kvr_cursor_t *cursor);

/*
 * After KVR_INGEST_GAP: the last of the missing messages, the argument of
 * kvr_ingest_repair_failed().  For a message opened this is its seq - 1, for a
 * heartbeat its seq.  KVR_DECLINED: not known.
 */
kvr_rc_t kvr_ingest_missing(kvr_ingest_t *in, kvr_cursor_t *last);

/* A repair begins: the worker is SYNCING until one of the two below. */
kvr_rc_t kvr_ingest_repair_begin(kvr_ingest_t *in, const char *worker,
    size_t len);

/*
 * This process listens to a shard from now on.  repair: earlier messages of
 * the shard's workers will be read from their logs, and these workers are
 * SYNCING until then.  Without repair, these workers are silent until the next
 * message or heartbeat shows whether messages are missing.  KVR_BUSY,
 * KVR_LOST.
 */
kvr_rc_t kvr_ingest_repair_shard(kvr_ingest_t *in, uint32_t shard,
    bool repair);

/* A repair ends: the log was read to its end, and no message is missing. */
kvr_rc_t kvr_ingest_repair_end(kvr_ingest_t *in, const char *worker,
    size_t len);

/*
 * A repair ends: the log does not reach back to the cursor.  The view is kept,
 * DEGRADED, and the stream goes on behind (epoch, seq).
 */
kvr_rc_t kvr_ingest_repair_failed(kvr_ingest_t *in, const char *worker,
    size_t len, uint64_t epoch, uint64_t seq);

/*
 * Messages of a worker were dropped unread.  A worker that sends envelopes is
 * left alone, because the numbers will show the loss; another is DEGRADED.
 */
kvr_rc_t kvr_ingest_dropped(kvr_ingest_t *in, const char *worker, size_t len);


#endif /* KVR_INGEST_H_INCLUDED */
