/*
 * Copyright (C) the nginx-kv-router authors
 *
 * To be preloaded into nginx, for rivals.py --turns: the processor time of each
 * turn of the event loop, from one epoll_wait() to the next one.  The file named
 * by KVR_TURNS has the longest turn, the turns of more than 1 ms, and all of
 * them, each as a 64-bit number: ns, turns, turns.
 */


#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>


typedef int (*turns_pt)(int fd, struct epoll_event *events, int n, int ms);


static turns_pt   turns_real;
static uint64_t  *turns_file;
static uint64_t   turns_begun;


static uint64_t
turns_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


__attribute__((constructor))
static void
turns_open(void)
{
    int          fd;
    void        *real, *page;
    const char  *name;

    real = dlsym(RTLD_NEXT, "epoll_wait");
    __builtin_memcpy(&turns_real, &real, sizeof(real));

    name = getenv("KVR_TURNS");
    fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;

    if (fd >= 0) {
        page = mmap(NULL, 3 * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                    MAP_SHARED, fd, 0);
        turns_file = page == MAP_FAILED ? NULL : page;
        close(fd);
    }
}


int
epoll_wait(int fd, struct epoll_event *events, int n, int ms)
{
    int       rc;
    uint64_t  took;

    if (turns_file && turns_begun) {
        took = turns_now() - turns_begun;
        turns_file[0] = took > turns_file[0] ? took : turns_file[0];
        turns_file[1] += took > 1000000;
        turns_file[2]++;
    }

    rc = turns_real(fd, events, n, ms);
    turns_begun = turns_now();

    return rc;
}
