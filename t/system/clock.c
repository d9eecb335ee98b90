/*
 * Copyright (C) the nginx-kv-router authors
 *
 * To be preloaded: the time of day is so many seconds off as the file named by
 * KVR_CLOCK says, a signed 64-bit number.  Monotonic clocks are left alone.
 */


#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>


typedef int (*kvr_clock_pt)(clockid_t id, struct timespec *ts);


int gettimeofday(struct timeval *restrict tv, void *restrict zone);


static kvr_clock_pt      kvr_clock_real;
static volatile int64_t  kvr_clock_none;
static volatile int64_t *kvr_clock_off = &kvr_clock_none;


__attribute__((constructor))
static void
kvr_clock_open(void)
{
    int          fd;
    void        *page, *real;
    const char  *name;

    real = dlsym(RTLD_NEXT, "clock_gettime");
    __builtin_memcpy(&kvr_clock_real, &real, sizeof(real));

    name = getenv("KVR_CLOCK");
    if (name == NULL) {
        return;
    }

    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }

    page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);

    if (page != MAP_FAILED) {
        kvr_clock_off = page;
    }
}


int
clock_gettime(clockid_t id, struct timespec *ts)
{
    int  rc;

    if (kvr_clock_real == NULL) {
        kvr_clock_open();
    }

    rc = kvr_clock_real(id, ts);

    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        ts->tv_sec += *kvr_clock_off;
    }

    return rc;
}


int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec  ts;

    (void) zone;

    if (clock_gettime(CLOCK_REALTIME, &ts) != 0) {
        return -1;
    }

    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;

    return 0;
}


time_t
time(time_t *at)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    if (at != NULL) {
        *at = ts.tv_sec;
    }

    return ts.tv_sec;
}
