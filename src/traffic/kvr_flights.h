/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Flights: which prompts are in flight at which holder, over all processes
 * of this nginx and over its peers.  A table of fixed size beside the index,
 * which any process reads and writes at any time without a lock.
 *
 * The chain of a depth is a hash of all blocks of a prompt up to that depth,
 * of 48 bits.  A flight is a request on its way: the table has the chains of
 * at most KVR_FLIGHT_SAMPLES depths of it, those of the part that the holder
 * has not cached: multiples of a power of two, which is at least
 * KVR_FLIGHT_STRIDE, and the last multiple of KVR_FLIGHT_STRIDE.  A chain
 * stands for all blocks before it: who has the chain of a depth in flight
 * has that many blocks of the prompt in flight.
 *
 * A set of KVR_FLIGHT_WAYS words is a cache line; the chain alone says
 * which, so that one line answers for all holders.  A word, 0: free:
 *
 *     tag 24 │ holder 20 │ peer 1 │ count 7 │ until 12
 *
 * tag: of the chain and the holder's generation.  peer: told by a peer; such
 * words count while a peer is fresh.  count: the flights that have the chain
 * at the holder; 0: a timed word, which no end takes away; 127: there were
 * more, and the word stays until its time.  until: quarters of a second.  A
 * word whose time has passed is free.  Where a timed flight meets a counted
 * word, the word only ends later, and the ends still count.
 *
 * A word is changed by one compare-and-swap: nothing is torn, whoever dies.
 * A process that dies leaves its flights until their time.  A set that is
 * full loses the word which ends first.
 */


#ifndef KVR_FLIGHTS_H_INCLUDED
#define KVR_FLIGHTS_H_INCLUDED


#include "../kvr.h"
#include "kvr_inflight.h"           /* kvr_inflight_depth_t */


#define KVR_FLIGHT_STRIDE     4         /* blocks */
#define KVR_FLIGHT_SAMPLES    33        /* of a flight */
#define KVR_FLIGHT_LOOKUPS    128       /* depths looked up, and one */
#define KVR_FLIGHT_WAYS       8
#define KVR_FLIGHT_QUARTER    250       /* ms: flights last to the next one */
#define KVR_FLIGHT_UNTIL_MS   60000     /* of a flight that is not renewed */
#define KVR_FLIGHT_RENEW_MS   30000
#define KVR_FLIGHT_TIMED_MAX  300000    /* ms, of a timed word */
#define KVR_CHAIN_BYTES       6


/* In the zone. */
typedef struct {
    uint64_t    sets;                   /* offset from the zone's base */
    uint64_t    nsets;
    uint64_t    last_ms;                /* all words have ended then */
} kvr_flights_zone_t;


/* A process's handle.  seed: equal in all processes, and in all peers. */
typedef struct {
    kvr_flights_zone_t  *zone;
    char                *base;          /* of the zone */
    uint64_t             seed[2];
    uint64_t             cleared;       /* sets, since the clock began */
} kvr_flights_t;


/* One request at one holder: what kvr_flights_end() needs. */
typedef struct {
    uint32_t    holder;
    uint32_t    generation;
    uint32_t    n;                      /* chains */
    uint64_t    chains[KVR_FLIGHT_SAMPLES];     /* the deepest first */
} kvr_flight_t;


typedef enum {
    KVR_FLIGHT_COUNTED = 0,             /* until kvr_flights_end() */
    KVR_FLIGHT_RENEWED,                 /* such a one goes on: it is counted
                                           already, and where its word was
                                           lost, the word is made again */
    KVR_FLIGHT_TIMED                    /* until its time, whatever ends */
} kvr_flight_kind_t;


void kvr_flights_format(kvr_flights_zone_t *z, char *base, uint64_t at,
    uint64_t size);

/*
 * key: any bytes, from which the seed is derived, one way; NULL and 0: the
 * seed that everybody knows.  KVR_ERROR: it could not be derived.
 */
kvr_rc_t kvr_flights_attach(kvr_flights_t *f, kvr_flights_zone_t *z,
    char *base, const char *key, size_t len);

/*
 * Frees words whose time has passed, before the time of a word begins anew,
 * after 1,024 s.  To be called each 100 ms.
 */
void kvr_flights_clear(kvr_flights_t *f, uint64_t now_ms);

/* Is there nothing in the table, as far as this process can see now? */
bool kvr_flights_empty(const kvr_flights_t *f, uint64_t now_ms);

/*
 * Writes the chains of a prompt of n blocks: chains[i] is of depth
 * (i + 1) * KVR_FLIGHT_STRIDE.  chains must have room for
 * n / KVR_FLIGHT_STRIDE.  Returns their number.
 */
uint32_t kvr_flights_chains(const kvr_flights_t *f, const uint64_t *locals,
    uint32_t n, uint64_t *chains);

/*
 * Sets the chains of a flight whose holder has `from` of the n blocks
 * cached. chains: of the prompt.  whole: the deepest chain alone, for a
 * holder which keeps the end of a prompt and not every beginning (classes of
 * KV-cache groups).  flight->n may be 0.
 */
void kvr_flight_sample(kvr_flight_t *flight, const uint64_t *chains,
    uint32_t n, uint32_t from, bool whole);

void kvr_flights_add(const kvr_flights_t *f, const kvr_flight_t *flight,
    kvr_flight_kind_t kind, bool peer, uint64_t now_ms, uint64_t until_ms);

/* Ends a flight that was COUNTED, once. */
void kvr_flights_end(const kvr_flights_t *f, const kvr_flight_t *flight,
    bool peer, uint64_t now_ms);

/*
 * Raises depths[h].depth to the number of the prompt's blocks that are in
 * flight at holder h, when depths[h].generation is the holder's.  Holders
 * from nholders on are left out.  chains: of a prompt of n blocks.  peers:
 * what peers told counts.
 */
void kvr_flights_find(const kvr_flights_t *f, const uint64_t *chains,
    uint32_t n, bool peers, uint64_t now_ms, kvr_inflight_depth_t *depths,
    uint32_t nholders);


#endif /* KVR_FLIGHTS_H_INCLUDED */
