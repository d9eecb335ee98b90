/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "wires.h"

#include <stdarg.h>


uint64_t  wires_clock;
uint32_t  wires_unreached;
char      wires_line[1024];
bool      wires_unloaded;


void
wires_reset(void)
{
    wires_clear();
    wires_redis_reset();

    wires_full = false;
    wires_unreached = 0;
    wires_unloaded = false;
}


void
wires_clear(void)
{
    wires_zmq_clear();
    wires_redis_clear();
    wires_http_clear();
}


uint64_t
kvr_relay_clock(void)
{
    return wires_clock;
}


uint64_t
kvr_relay_unix(void)
{
    return 1700000000000 + wires_clock;
}


/* Nothing is polled. */

uint32_t
kvr_relay_loop_add(kvr_relay_loop_t *loop, void *socket, int fd, short events)
{
    return 0;
}


/* The log's lines are made, and go nowhere. */

void __wrap_kvr_relay_log(kvr_relay_level_t level, const char *msg,
    const char *fmt, ...);

void
__wrap_kvr_relay_log(kvr_relay_level_t level, const char *msg,
    const char *fmt, ...)
{
    char     line[1024];
    va_list  args;

    if (fmt != NULL) {
        va_start(args, fmt);
        (void) vsnprintf(line, sizeof(line), fmt, args);
        va_end(args);
    }

    if (strcmp(msg, "snapshot not loaded") == 0) {
        wires_unloaded = true;

    } else if (strcmp(msg, "engine not reached") == 0) {
        wires_unreached++;
        memcpy(wires_line, line, sizeof(line));
    }
}
