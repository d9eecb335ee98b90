/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The engine: the connections of all its sources, of either kind.
 */


#ifndef KVR_RELAY_ENGINE_H_INCLUDED
#define KVR_RELAY_ENGINE_H_INCLUDED


#include "kvr_relay_loop.h"
#include "kvr_relay_source.h"


/* Connects all sources to the engine, or closes their connections. */
void kvr_relay_engine_start(kvr_relay_t *r);
void kvr_relay_engine_stop(kvr_relay_t *r);

/* Adds the sockets of all sources to what the loop polls. */
void kvr_relay_engine_poll(kvr_relay_t *r, kvr_relay_loop_t *loop);

/* Reads a bounded number of messages that have come; called at each turn. */
void kvr_relay_engine_tick(kvr_relay_t *r);

/*
 * Warns of each source that has not been connected for 5 seconds, and again
 * each minute; at each turn.
 */
void kvr_relay_engine_watch(kvr_relay_t *r);

/* Tells why the source's engine can't be reached at its endpoint. */
const char *kvr_relay_engine_why(const kvr_relay_t *r,
    const kvr_relay_source_t *s);


#endif /* KVR_RELAY_ENGINE_H_INCLUDED */
