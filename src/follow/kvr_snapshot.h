/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Snapshots: all that a worker holds as of one message of its stream, built
 * aside in slices and swapped in at once.
 *
 *     kvr_snapshot_begin(s, worker, len, &head)
 *
 *     for (each part, and then the log's entries from there on) {
 *         if (kvr_snapshot_open(s, bytes, n, &detail) == KVR_OK) {
 *             while ((rc = kvr_snapshot_step(s, budget)) == KVR_OK) { yield }
 *         }
 *     }
 *
 *     kvr_snapshot_end(s, now)      or kvr_snapshot_abort(s)
 *
 * Until its end no reader sees anything of it: what is built lies in views of
 * the worker's holders that are aside, and what the holders had stays as it
 * is.  The end makes all ranks' views the new ones, and moves the cursor, in
 * one transaction; the old views are reclaimed as cleared ones are.
 *
 * The cursor never goes back within an epoch.  When messages were applied that
 * are behind a snapshot's own, those messages have to be read from the log
 * once more, aside, before the snapshot may take the view's place.
 *
 * A kvr_snapshot_t is a process's own, for one snapshot after the other; it
 * works for the holder of the lease of the worker's shard, as kvr_ingest_t
 * does.  What a process leaves aside when it dies, or loses the lease, is
 * reclaimed at the next takeover, or, when there is none, by whoever tends the
 * zone.
 */


#ifndef KVR_SNAPSHOT_H_INCLUDED
#define KVR_SNAPSHOT_H_INCLUDED


#include "../wire/kvr_pointer.h"
#include "../zone/kvr_router.h"


/* Bytes of a part, at most. */
#define KVR_SNAPSHOT_PART_MAX   (256u << 10)


typedef struct kvr_snapshot_s  kvr_snapshot_t;


/* NULL when out of memory. */
kvr_snapshot_t *kvr_snapshot_create(kvr_router_t *k);

/* Aborts as well. */
void kvr_snapshot_destroy(kvr_snapshot_t *s);

/*
 * Could the snapshot take the place of the worker's view, perhaps with some of
 * the log?  One of a later epoch, or a later message, can; one that is not
 * later when the view is not whole.  Without the lock.
 */
bool kvr_snapshot_usable(const kvr_router_t *k, const char *worker,
    size_t len, const kvr_snapshot_head_t *head);

/*
 * Begins.  What was aside of the worker, from whomever, is dropped.
 * KVR_DECLINED: not usable, or no such worker; KVR_INVALID: another block
 * size, or other blocks; KVR_BUSY: again; KVR_LOST: the lease is gone.
 */
kvr_rc_t kvr_snapshot_begin(kvr_snapshot_t *s, const char *worker, size_t len,
    const kvr_snapshot_head_t *head);

/*
 * Opens a part, which is a normalised batch, or, after the parts, an entry of
 * the log, which is an envelope.  The bytes must stay until the last step.
 *
 * KVR_OK: step until KVR_DONE.  KVR_DONE: an entry that the snapshot covers.
 * KVR_DECLINED: entries are missing before this one.  KVR_INVALID: neither of
 * the two, *detail says why.  What an entry wraps, and can't be read, counts
 * as a refused event.
 */
kvr_rc_t kvr_snapshot_open(kvr_snapshot_t *s, const void *bytes, size_t n,
    const char **detail);

/*
 * Applies events until about `blocks` blocks are done.  KVR_OK: more to do;
 * KVR_DONE; KVR_BUSY: the lock was not to be had, try again; KVR_LOST.
 * KVR_INVALID: the rest of a part can't be read.  KVR_DECLINED: the worker was
 * removed, or what was aside was dropped.  After these two: abort.
 */
kvr_rc_t kvr_snapshot_step(kvr_snapshot_t *s, uint32_t blocks);

/*
 * Swaps it in.  Events of it that were refused make the view DEGRADED.
 * KVR_DECLINED as above, or the log has to be read on to the worker's cursor;
 * *behind says which.  KVR_BUSY, KVR_LOST.
 */
kvr_rc_t kvr_snapshot_end(kvr_snapshot_t *s, uint64_t now_ms, bool *behind);

/*
 * Gives up what is aside, as far as it is still this one's.  KVR_BUSY: the
 * lock was not to be had; the next begin does it.
 */
kvr_rc_t kvr_snapshot_abort(kvr_snapshot_t *s);


#endif /* KVR_SNAPSHOT_H_INCLUDED */
