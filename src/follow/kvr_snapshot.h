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
 * Until kvr_snapshot_end() no reader sees the snapshot: it is built in views
 * of the worker's holders that are aside, and the holders keep their current
 * views.  kvr_snapshot_end() replaces the views of all ranks, and moves the
 * cursor, in one transaction; the old views are reclaimed as cleared ones are.
 *
 * The cursor never goes back within an epoch.  When messages were applied that
 * are behind a snapshot's own, those messages have to be read from the log
 * once more, aside, before the snapshot may take the view's place.
 *
 * A kvr_snapshot_t belongs to one process, for one snapshot after the other;
 * it works for the holder of the lease of the worker's shard, as kvr_ingest_t
 * does.  If a process dies or loses the lease, its views aside are reclaimed
 * at the next takeover, or else by the process that maintains the zone.
 */


#ifndef KVR_SNAPSHOT_H_INCLUDED
#define KVR_SNAPSHOT_H_INCLUDED


#include "../wire/kvr_pointer.h"
#include "../zone/kvr_router.h"


/* The maximum size of a part, bytes. */
#define KVR_SNAPSHOT_PART_MAX   (256u << 10)


typedef struct kvr_snapshot_s  kvr_snapshot_t;


/* NULL when out of memory. */
kvr_snapshot_t *kvr_snapshot_create(kvr_router_t *k);

/* Aborts as well. */
void kvr_snapshot_destroy(kvr_snapshot_t *s);

/*
 * Can the snapshot replace the worker's view, perhaps with entries of the log?
 * A snapshot of a later epoch, or of a later message, can.  A snapshot that is
 * not later can, if the worker's stream is not contiguous.  Takes no lock.
 */
bool kvr_snapshot_usable(const kvr_router_t *k, const char *worker,
    size_t len, const kvr_snapshot_head_t *head);

/*
 * Begins a snapshot.  Views of the worker that are aside are dropped.
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
 * KVR_DECLINED: entries are missing before this one.  KVR_INVALID: neither a
 * part nor an entry; *detail is the reason.  If the content of an entry's
 * envelope can't be read, that counts as a refused event.
 */
kvr_rc_t kvr_snapshot_open(kvr_snapshot_t *s, const void *bytes, size_t n,
    const char **detail);

/*
 * Applies events until about `blocks` blocks are done.  KVR_OK: more to do;
 * KVR_DONE; KVR_BUSY: the lock is taken, try again; KVR_LOST.
 * KVR_INVALID: the rest of a part can't be read.  KVR_DECLINED: the worker was
 * removed, or its views aside were dropped.  After these two: abort.
 */
kvr_rc_t kvr_snapshot_step(kvr_snapshot_t *s, uint32_t blocks);

/*
 * Replaces the worker's view by the snapshot.  If events of the snapshot were
 * refused, the view is DEGRADED.  KVR_DECLINED: as above, or (*behind) the log
 * must be read on to the worker's cursor.  KVR_BUSY, KVR_LOST.
 */
kvr_rc_t kvr_snapshot_end(kvr_snapshot_t *s, uint64_t now_ms, bool *behind);

/*
 * Drops the views aside, if they are still this snapshot's.  KVR_BUSY: the
 * lock is taken; the next kvr_snapshot_begin() drops them.
 */
kvr_rc_t kvr_snapshot_abort(kvr_snapshot_t *s);


#endif /* KVR_SNAPSHOT_H_INCLUDED */
