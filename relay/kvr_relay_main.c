/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The process: its loop.
 */


#include "kvr_relay.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>


#define KVR_RELAY_TURN_MS  1000         /* a turn at least so often */


static void kvr_relay_standard(void);
static int kvr_relay_signals(void);
static void kvr_relay_run(kvr_relay_t *r, int signals);
static void kvr_relay_signalled(kvr_relay_t *r, int signals);


int
main(int argc, char **argv)
{
    int  code, signals;

    static kvr_relay_t  r;

    kvr_relay_standard();

    code = kvr_relay_options_read(&r.options, argc, argv);
    if (code >= 0) {
        return code;
    }

    kvr_relay_log_init(r.options.log_level, r.options.worker);

    signals = kvr_relay_signals();

    if (signals < 0 || !kvr_relay_init(&r)) {
        r.exit = KVR_RELAY_FAILED;

    } else {
        kvr_relay_run(&r, signals);
    }

    kvr_relay_free(&r);

    return (int) r.exit;
}


/* None of our own files is to be what lines are written to. */

static void
kvr_relay_standard(void)
{
    int  fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);

    if (fd >= 0) {
        close(fd);
    }
}


static int
kvr_relay_signals(void)
{
    sigset_t  set;

    signal(SIGPIPE, SIG_IGN);

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);

    /* before libzmq starts its thread, which inherits it */

    sigprocmask(SIG_BLOCK, &set, NULL);

    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}


/* ---- the loop ----------------------------------------------------------- */

static void
kvr_relay_run(kvr_relay_t *r, int signals)
{
    int               redis;
    long              wait;
    short             events;
    uint32_t          i, n, at;
    zmq_pollitem_t   *items;

    items = calloc((size_t) r->nsources * 3 + 3 + KVR_RELAY_TRTLLM_FDS,
                   sizeof(zmq_pollitem_t));

    if (items == NULL) {
        r->exit = KVR_RELAY_FAILED;
        return;
    }

    r->wake_ms = 0;

    while (!r->done) {
        n = 0;

        items[n].fd = signals;
        items[n++].events = ZMQ_POLLIN;

        at = n;
        redis = kvr_relay_redis_poll(r, &events);

        if (redis >= 0) {
            items[n].fd = redis;
            items[n++].events = events;
        }

        items[n].fd = kvr_relay_metrics_poll(r);

        if (items[n].fd >= 0) {
            items[n++].events = ZMQ_POLLIN;
        }

        for (i = 0; i < n; i++) {
            items[i].socket = NULL;
            items[i].revents = 0;
        }

        for (i = 0; i < r->nsources; i++) {
            n += kvr_relay_zmq_poll(&r->sources[i], &items[n]);
        }

        n += kvr_relay_trtllm_poll(r, &items[n]);

        r->now_ms = kvr_relay_clock();
        wait = r->wake_ms > r->now_ms ? (long) (r->wake_ms - r->now_ms) : 0;

        (void) zmq_poll(items, (int) n, wait);

        r->now_ms = kvr_relay_clock();
        r->wake_ms = r->now_ms + KVR_RELAY_TURN_MS;

        if (items[0].revents) {
            kvr_relay_signalled(r, signals);
        }

        kvr_relay_redis_ready(r, redis >= 0 ? items[at].revents : 0);

        kvr_relay_turn(r);
    }

    free(items);
    close(signals);
}


static void
kvr_relay_signalled(kvr_relay_t *r, int signals)
{
    struct signalfd_siginfo  info;

    while (read(signals, &info, sizeof(info)) == (ssize_t) sizeof(info)) {

        if (r->stopping) {
            kvr_relay_exit(r, KVR_RELAY_ENDED);
            return;
        }

        kvr_relay_log(KVR_RELAY_INFO, "ending", "signal=%u", info.ssi_signo);

        kvr_relay_stop(r);
    }
}


uint64_t
kvr_relay_clock(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}


uint64_t
kvr_relay_unix(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_REALTIME, &ts);

    return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}
