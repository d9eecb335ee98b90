/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <stdlib.h>
#include <time.h>


static uint64_t kvr_relay_loop_clock(clockid_t id);


bool
kvr_relay_loop_init(kvr_relay_loop_t *loop, uint32_t size)
{
    loop->items = calloc(size, sizeof(zmq_pollitem_t));
    loop->size = loop->items != NULL ? size : 0;
    loop->n = 0;

    return loop->items != NULL;
}


void
kvr_relay_loop_free(kvr_relay_loop_t *loop)
{
    free(loop->items);
    loop->items = NULL;
}


void
kvr_relay_loop_begin(kvr_relay_loop_t *loop)
{
    loop->n = 0;
}


uint32_t
kvr_relay_loop_add(kvr_relay_loop_t *loop, void *socket, int fd,
    short events)
{
    zmq_pollitem_t  *item;

    if ((socket == NULL && fd < 0) || loop->n == loop->size) {
        return loop->size;
    }

    item = &loop->items[loop->n];
    item->socket = socket;
    item->fd = fd;
    item->events = events;
    item->revents = 0;

    return loop->n++;
}


short
kvr_relay_loop_ready(const kvr_relay_loop_t *loop, uint32_t at)
{
    return at < loop->n ? loop->items[at].revents : 0;
}


void
kvr_relay_loop_wait(kvr_relay_loop_t *loop, uint64_t ms)
{
    (void) zmq_poll(loop->items, (int) loop->n, (long) ms);
}


uint64_t
kvr_relay_clock(void)
{
    return kvr_relay_loop_clock(CLOCK_MONOTONIC);
}


uint64_t
kvr_relay_unix(void)
{
    return kvr_relay_loop_clock(CLOCK_REALTIME);
}


static uint64_t
kvr_relay_loop_clock(clockid_t id)
{
    struct timespec  ts;

    clock_gettime(id, &ts);

    return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}
