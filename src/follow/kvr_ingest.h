/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Ingest: messages of workers' event streams, applied to the zone in slices.
 *
 * The state machine of EVENTS.md section 7 stands here.  A kvr_ingest_t is a
 * process's own; it works for the holder of the lease of a worker's shard, and
 * every slice checks that lease's token under the shard's lock.  The cursor
 * (epoch, seq, events of seq + 1 applied) is in the zone and is committed
 * together with what it covers.
 *
 *     switch (kvr_ingest_open(in, worker, len, bytes, n, live, now)) {
 *     case KVR_INGEST_APPLY:
 *         while ((rc = kvr_ingest_step(in, budget)) == KVR_OK) { yield }
 *         …                          rc: KVR_DONE, KVR_BUSY (again), KVR_LOST
 *     case KVR_INGEST_GAP:           ask the log from the cursor
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
    KVR_INGEST_BUSY,        /* the lock was not to be had: open it again */
    KVR_INGEST_LOST         /* the lease is gone */
} kvr_ingest_verdict_t;


/* What a stream stands at, for the repair. */
typedef struct {
    uint64_t    epoch;      /* 0: nothing was ever applied */
    uint64_t    seq;
} kvr_cursor_t;


/* NULL when out of memory. */
kvr_ingest_t *kvr_ingest_create(kvr_router_t *k);
void kvr_ingest_destroy(kvr_ingest_t *in);

/*
 * How many blocks of engines that send bare batches are remembered, instead of
 * KVR_NORMALISE_BLOCKS; to be said before the first message.
 */
void kvr_ingest_remember(kvr_ingest_t *in, uint32_t blocks);

/*
 * Looks at one message of the channel or log of `worker`.  The bytes must
 * stay until the last step.  live: from pub/sub; false: from the log, read in
 * order.  A worker not known is made (KVR_WORKER_SEEN) while there is room.
 * *detail says in words what was refused, else NULL.  That may be all that an
 * envelope wraps: then it is KVR_INGEST_APPLY, for the stream goes on with it.
 */
kvr_ingest_verdict_t kvr_ingest_open(kvr_ingest_t *in, const char *worker,
    size_t len, const void *bytes, size_t n, bool live, uint64_t now_ms,
    const char **detail);

/*
 * Applies events until about `blocks` blocks are done.  KVR_OK: more to do;
 * KVR_DONE; KVR_BUSY: the lock was not to be had, try again; KVR_LOST.
 *
 * An engine's own event in an envelope, which kv-relay never sends, is not
 * cut: done again from the log it would count its copies twice.  The longest,
 * of 65536 blocks of 16 tokens, is a step of 0.1 s, of 0.5 s when it is the
 * first to touch the zone's memory.  To read an event is no part of a slice
 * either: 20 ms for the longest.
 */
kvr_rc_t kvr_ingest_step(kvr_ingest_t *in, uint32_t blocks);

/*
 * To be asked after each step, until it is false: whether something was
 * refused for a reason that its worker never gave before; text then says which
 * worker and why, once.
 */
bool kvr_ingest_warning(kvr_ingest_t *in, char text[KVR_WARNING_LEN]);

/* Where the worker's stream stands.  KVR_DECLINED: not known. */
kvr_rc_t kvr_ingest_cursor(kvr_ingest_t *in, const char *worker, size_t len,
    kvr_cursor_t *cursor);

/*
 * After KVR_INGEST_GAP: the last of the missing messages, which is what
 * kvr_ingest_repair_failed() takes to go on.  That is seq - 1 of the message
 * opened, and seq of a heartbeat.  KVR_DECLINED: not known.
 */
kvr_rc_t kvr_ingest_missing(kvr_ingest_t *in, kvr_cursor_t *last);

/* A repair begins: the worker is SYNCING until one of the two below. */
kvr_rc_t kvr_ingest_repair_begin(kvr_ingest_t *in, const char *worker,
    size_t len);

/*
 * A shard is listened to from now on.  repair: what its workers published in
 * envelopes before is still to be read, and all of them are SYNCING until
 * then; otherwise nobody will read it, and they are STALE until the next
 * message or heartbeat tells whether there was any.  KVR_BUSY, KVR_LOST.
 */
kvr_rc_t kvr_ingest_repair_shard(kvr_ingest_t *in, uint32_t shard,
    bool repair);

/* The log was read to its end, without a hole, and the stream stands there. */
kvr_rc_t kvr_ingest_repair_end(kvr_ingest_t *in, const char *worker,
    size_t len);

/*
 * The log does not reach back to the cursor: the view is kept, DEGRADED, and
 * the stream goes on behind (epoch, seq).
 */
kvr_rc_t kvr_ingest_repair_failed(kvr_ingest_t *in, const char *worker,
    size_t len, uint64_t epoch, uint64_t seq);

/*
 * Messages of a worker were dropped unread.  Envelopes have numbers that tell;
 * whoever sends none is DEGRADED by this.
 */
kvr_rc_t kvr_ingest_dropped(kvr_ingest_t *in, const char *worker, size_t len);


#endif /* KVR_INGEST_H_INCLUDED */
