/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv-relay: the process beside each engine.
 *
 *     source ──► mirror ──► batch ──► publisher ──► Redis
 *     zmq, trtllm            │            ▲ │
 *                            └─ snapshot ─┘ └ ring: what Redis may need again
 *
 *     source       an engine's rank: its sequence, and how much of what the
 *                  engine holds is known
 *     feed         what a source's messages do to the mirror; zmq, replay and
 *                  trtllm bring them, engine starts and watches these
 *     mirror       what the engine holds: the router's own index, in memory
 *                  of this process
 *     publisher    envelopes of an epoch, in order, each once
 *     snapshot     the mirror, written to Redis, and state, what the next
 *                  relay needs of the sources
 *     session      from a connection to Redis to the right to publish: the
 *                  lease, what is there already, membership
 *     drain        keeps new requests away, and waits for the engine's last
 *     redis        that connection: commands and their answers, over a wire,
 *                  which may speak TLS
 *
 * One thread, one loop (kvr_relay_main.c; a turn of it: kvr_relay.c).  Modules
 * are called by the loop when their descriptors are ready and at each turn
 * (…_tick), and say when they want to be called again (kvr_relay_wake).
 * Nothing blocks but the lookup of host names.
 *
 * Calls go one way: metrics, then drain, then session, then snapshot, then the
 * engine's side (engine, zmq and trtllm, replay, feed), then publisher and
 * source, then mirror, redis and what stands on nothing.  What a module has to
 * tell upwards is a field that the turn reads, or a callback that it was given
 * at its start.
 */


#ifndef KVR_RELAY_H_INCLUDED
#define KVR_RELAY_H_INCLUDED


#include "kvr_relay_core.h"
#include "kvr_relay_loop.h"
#include "kvr_relay_parts.h"
#include "kvr_relay_batch.h"
#include "kvr_relay_mirror.h"
#include "kvr_relay_redis.h"
#include "kvr_relay_ring.h"
#include "kvr_relay_publisher.h"
#include "kvr_relay_snapshot.h"
#include "kvr_relay_session.h"
#include "kvr_relay_frames.h"
#include "kvr_relay_step.h"
#include "kvr_relay_source.h"
#include "kvr_relay_feed.h"
#include "kvr_relay_zmq.h"
#include "kvr_relay_trtllm.h"
#include "kvr_relay_engine.h"
#include "kvr_relay_state.h"
#include "kvr_relay_drain.h"
#include "kvr_relay_metrics.h"


struct kvr_relay_s {
    kvr_relay_options_t     options;
    kvr_relay_counters_t    counters;

    kvr_relay_mirror_t      mirror;
    kvr_relay_redis_t       redis;
    kvr_relay_publisher_t   publisher;
    kvr_relay_snapshot_t    snapshot;
    kvr_relay_session_t     session;
    kvr_relay_drain_t       drain;
    kvr_relay_metrics_t     metrics;

    kvr_relay_source_t     *sources;    /* one a rank */
    uint32_t                nsources;
    void                   *zmq;        /* context */
    kvr_relay_trtllm_t      trtllm;

    kvr_relay_loop_t        loop;
    uint64_t                now_ms;     /* monotonic, of this turn */
    uint64_t                wake_ms;    /* when the next turn is due */
    uint64_t                started_ms; /* unix */
    uint64_t                sync_ms;    /* sources are waited for until then,
                                           before there is a base */

    bool                    reading;    /* the engine: sources were started */
    bool                    complete;   /* as was told to routers */
    bool                    cut_off;    /* what is behind the snapshot can't be
                                           replayed */
    bool                    ending;     /* by a signal: the drain comes
                                           first */
    bool                    stopping;   /* and then what is queued is sent */
    uint64_t                stop_ms;    /* and at the latest then */
    bool                    done;
    kvr_relay_exit_t        exit;
};


/*
 * Starts the modules with the options that were read. greet is called when a
 * connection to Redis is open, see kvr_relay_redis_told_t.  False: the relay
 * can't start, and the log says why.  The relay must be freed in both cases.
 */
bool kvr_relay_init(kvr_relay_t *r, void (*greet)(kvr_relay_t *r));
void kvr_relay_free(kvr_relay_t *r);

/* Does what is to be done at now_ms.  The caller polls between two turns. */
void kvr_relay_turn(kvr_relay_t *r);

/*
 * Asks the process to end soon: queued envelopes are sent first, then the
 * worker leaves.
 */
void kvr_relay_stop(kvr_relay_t *r);

/* Asks for a turn of the loop at this time at the latest. */

static inline void
kvr_relay_wake(kvr_relay_t *r, uint64_t at_ms)
{
    r->wake_ms = kvr_min(r->wake_ms, at_ms);
}


/*
 * Ends the process after this turn with an exit code.  The first call decides
 * the code.
 */

static inline void
kvr_relay_exit(kvr_relay_t *r, kvr_relay_exit_t code)
{
    if (!r->done) {
        r->done = true;
        r->exit = code;
    }
}


#endif /* KVR_RELAY_H_INCLUDED */
