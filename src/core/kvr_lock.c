/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_lock.h"

#include "kvr_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>


#define KVR_LOCK_SPINS       64         /* about a microsecond */
#define KVR_LOCK_YIELDS      32
#define KVR_LOCK_SLEEP_NS    50000
#define KVR_LOCK_LOOKS       16         /* the number of sleeps between two
                                           checks that the owner lives */

#define KVR_OWNER_TICKS      ((UINT64_C(1) << 40) - 1)
#define KVR_OWNER_UNKNOWN    UINT64_MAX


static uint64_t kvr_owner_start(pid_t pid, char *state);


kvr_owner_t
kvr_owner_self(void)
{
    char      state;
    pid_t     pid;
    uint64_t  start;

    pid = getpid();
    start = kvr_owner_start(pid, &state);

    if (start == 0 || start == KVR_OWNER_UNKNOWN) {
        /* without /proc other processes know this one by its pid alone */
        start = KVR_OWNER_TICKS;
    }

    return (kvr_owner_t) pid << 40 | start;
}


bool
kvr_owner_alive(kvr_owner_t owner)
{
    char      state;
    uint64_t  start;

    start = kvr_owner_start(kvr_owner_pid(owner), &state);

    if (start == KVR_OWNER_UNKNOWN
        || (owner & KVR_OWNER_TICKS) == KVR_OWNER_TICKS)
    {
        /*
         * the start time is unknown (no free descriptor, perhaps): check only
         * that a process has the pid
         */
        return kill(kvr_owner_pid(owner), 0) == 0 || errno != ESRCH;
    }

    return start != 0 && start == (owner & KVR_OWNER_TICKS)
           && state != 'Z' && state != 'X' && state != 'x';
}


/*
 * The process's start time, at least 1; 0 when there is no such process,
 * KVR_OWNER_UNKNOWN when that can't be told.
 */

static uint64_t
kvr_owner_start(pid_t pid, char *state)
{
    int        fd, i;
    bool       gone;
    char       path[48], buf[1024], *p;
    ssize_t    n;
    uint64_t   start;

    /*
     * the first thread's file says the same as /proc/PID/stat, which qemu-user
     * makes up for the process itself, with another start time
     */

    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int) pid,
             (int) pid);

    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1) {
        return errno == ENOENT ? 0 : KVR_OWNER_UNKNOWN;
    }

    n = read(fd, buf, sizeof(buf) - 1);
    gone = n == 0 || (n == -1 && errno == ESRCH);

    close(fd);

    if (n <= 0) {
        return gone ? 0 : KVR_OWNER_UNKNOWN;
    }

    buf[n] = '\0';

    /* the command may hold anything, parentheses and blanks too */

    p = strrchr(buf, ')');
    if (p == NULL || p[1] != ' ') {
        return 0;
    }

    p += 2;
    *state = *p;

    /* skip from field 3, the state, to field 22, the start time */

    for (i = 3; i < 22; i++) {
        p = strchr(p, ' ');
        if (p == NULL) {
            return 0;
        }
        p++;
    }

    start = strtoull(p, NULL, 10) & KVR_OWNER_TICKS;

    return start ? start : 1;
}


kvr_rc_t
kvr_lock_acquire(kvr_lock_t *lock, kvr_owner_t self, uint32_t timeout_ms,
    bool *broken)
{
    uint32_t         n;
    uint64_t         deadline;
    kvr_owner_t      owner;
    struct timespec  ts;

    *broken = false;
    deadline = 0;

    for (n = 0; /* void */ ; n++) {

        owner = 0;

        if (__atomic_compare_exchange_n(&lock->owner, &owner, self, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        {
            return KVR_OK;
        }

        if (n < KVR_LOCK_SPINS) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
            continue;
        }

        if (n < KVR_LOCK_SPINS + KVR_LOCK_YIELDS) {
            sched_yield();
            continue;
        }

        if ((n - KVR_LOCK_SPINS - KVR_LOCK_YIELDS) % KVR_LOCK_LOOKS == 0
            && !kvr_owner_alive(owner))
        {
            if (__atomic_compare_exchange_n(&lock->owner, &owner, self, false,
                                            __ATOMIC_ACQUIRE,
                                            __ATOMIC_RELAXED))
            {
                *broken = true;
                return KVR_OK;
            }

            continue;
        }

        if (deadline == 0) {
            deadline = kvr_now_us() + (uint64_t) timeout_ms * 1000;

        } else if (kvr_now_us() >= deadline) {
            return KVR_BUSY;
        }

        ts.tv_sec = 0;
        ts.tv_nsec = KVR_LOCK_SLEEP_NS;
        nanosleep(&ts, NULL);
    }
}


bool
kvr_lock_release(kvr_lock_t *lock, kvr_owner_t self)
{
    return __atomic_compare_exchange_n(&lock->owner, &self, 0, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}


bool
kvr_lock_orphaned(const kvr_lock_t *lock)
{
    kvr_owner_t  owner;

    owner = __atomic_load_n(&lock->owner, __ATOMIC_RELAXED);

    return owner != 0 && !kvr_owner_alive(owner);
}
