/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The process: its loop.
 */


#include "kvr_relay.h"
#include "kvr_relay_greet.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>


#define KVR_RELAY_TURN_MS  1000         /* a turn at least so often */
#define KVR_RELAY_OWN_FDS  3            /* signals, Redis and metrics */
#define KVR_RELAY_HTTPS    2            /* TensorRT-LLM, and a drain */


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

    if (r.options.drain) {
        return kvr_relay_drain_call(&r.options);
    }

    kvr_relay_log_init(r.options.log_level, r.options.worker);

    signals = kvr_relay_signals();

    if (signals < 0 || !kvr_relay_init(&r, kvr_relay_greet)) {
        r.exit = KVR_RELAY_FAILED;

    } else {
        kvr_relay_run(&r, signals);
    }

    kvr_relay_free(&r);

    return (int) r.exit;
}


/*
 * Keeps stdin, stdout and stderr open, so that no later file gets the number
 * of stderr and receives log lines.
 */

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

    /* before libzmq starts its thread, which inherits the mask */

    sigprocmask(SIG_BLOCK, &set, NULL);

    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}


/* ---- the loop ----------------------------------------------------------- */

static void
kvr_relay_run(kvr_relay_t *r, int signals)
{
    uint32_t           at_signals, at_redis;
    kvr_relay_loop_t  *loop;

    loop = &r->loop;

    if (!kvr_relay_loop_init(loop, r->nsources * KVR_RELAY_ZMQ_FDS
                             + KVR_RELAY_HTTPS * KVR_RELAY_HTTP_FDS
                             + KVR_RELAY_OWN_FDS))
    {
        r->exit = KVR_RELAY_FAILED;
        return;
    }

    r->wake_ms = 0;

    while (!r->done) {
        kvr_relay_loop_begin(loop);

        at_signals = kvr_relay_loop_add(loop, NULL, signals, ZMQ_POLLIN);
        at_redis = kvr_relay_redis_poll(r, loop);
        (void) kvr_relay_loop_add(loop, NULL, r->metrics.fd, ZMQ_POLLIN);
        kvr_relay_engine_poll(r, loop);
        kvr_relay_http_poll(&r->drain.http, loop);

        r->now_ms = kvr_relay_clock();
        kvr_relay_loop_wait(loop, r->wake_ms > r->now_ms
                                  ? r->wake_ms - r->now_ms : 0);

        r->now_ms = kvr_relay_clock();
        r->wake_ms = r->now_ms + KVR_RELAY_TURN_MS;

        if (kvr_relay_loop_ready(loop, at_signals)) {
            kvr_relay_signalled(r, signals);
        }

        kvr_relay_redis_ready(r, kvr_relay_loop_ready(loop, at_redis));

        kvr_relay_turn(r);
    }

    kvr_relay_loop_free(loop);
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

        if (r->ending || !r->session.started
            || r->options.address[0] == '\0')
        {
            kvr_relay_stop(r);
            return;
        }

        r->ending = true;
        kvr_relay_drain_begin(r);
    }
}
