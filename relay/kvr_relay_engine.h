/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The engine: the connections of all its sources, of either kind.
 */


#ifndef KVR_RELAY_ENGINE_H_INCLUDED
#define KVR_RELAY_ENGINE_H_INCLUDED


/* Connects to the engine, and lets it be. */
void kvr_relay_engine_start(kvr_relay_t *r);
void kvr_relay_engine_stop(kvr_relay_t *r);

/* Adds what the loop polls. */
void kvr_relay_engine_poll(kvr_relay_t *r, kvr_relay_loop_t *loop);

/* Reads what there is, some of it; at each turn. */
void kvr_relay_engine_tick(kvr_relay_t *r);

/*
 * Warns of each source that has not been connected for 5 seconds, and again
 * each minute; at each turn.
 */
void kvr_relay_engine_watch(kvr_relay_t *r);

/* Why the source's engine is not reached at its endpoint. */
const char *kvr_relay_engine_why(const kvr_relay_t *r,
    const kvr_relay_source_t *s);


#endif /* KVR_RELAY_ENGINE_H_INCLUDED */
