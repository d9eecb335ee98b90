/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A lock that knows its owner, so that it can be taken from a dead one.
 *
 * nginx frees only a zone's slab mutex after a worker was killed; this lock
 * is a word of ours that carries the owner's pid and start time.  A recycled
 * pid has another start time; a zombie counts as dead; a process that is only
 * stopped counts as alive and keeps the lock.
 *
 * All processes must see one another's pids (one pid namespace, /proc
 * mounted), as the workers of one nginx do.
 */


#ifndef KVR_LOCK_H_INCLUDED
#define KVR_LOCK_H_INCLUDED


#include "../kvr.h"

#include <sys/types.h>


/*
 * A process: pid in the high 24 bits, its start time in clock ticks since
 * boot (proc(5), field 22 of stat) in the low 40.  Never 0.
 */
typedef uint64_t  kvr_owner_t;


/* One word of the zone; 0 when free.  Zeroed memory is a free lock. */
typedef struct {
    kvr_owner_t  owner;
} kvr_lock_t;


/* This process; after a fork the child gets its own. */
kvr_owner_t kvr_owner_self(void);

/* False when the process is gone, a zombie, or its pid is another's now. */
bool kvr_owner_alive(kvr_owner_t owner);

static inline pid_t
kvr_owner_pid(kvr_owner_t owner)
{
    return (pid_t) (owner >> 40);
}


/*
 * Takes the lock within timeout_ms: spins shortly, then yields, then sleeps
 * in small steps.  KVR_BUSY when a live owner kept it.  *broken says that it
 * was taken from a dead owner, whose work may be half done.
 */
kvr_rc_t kvr_lock_acquire(kvr_lock_t *lock, kvr_owner_t self,
    uint32_t timeout_ms, bool *broken);

/*
 * Gives back a lock that self holds.  False: self does not hold it any more,
 * for another process has taken it over (kvr_load_shut()).
 */
bool kvr_lock_release(kvr_lock_t *lock, kvr_owner_t self);

/* True when a dead process holds it.  Costs one load when it is free. */
bool kvr_lock_orphaned(const kvr_lock_t *lock);


#endif /* KVR_LOCK_H_INCLUDED */
