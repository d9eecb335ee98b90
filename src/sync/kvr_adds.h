/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Adds: the flights of peers, by (router, process, id), until their end or
 * their time, so that an end takes away what was added and nothing else.
 *
 * A table of sets, as kvr_flights.h has one: KVR_ADDS_MAX adds, of 320 bytes,
 * 20 MiB at most, of which only what is used is touched.  An add that finds
 * its set full is a timed flight.
 */


#ifndef KVR_ADDS_H_INCLUDED
#define KVR_ADDS_H_INCLUDED


#include "../kvr.h"
#include "../traffic/kvr_flights.h"


#define KVR_ADDS_MAX       65536
#define KVR_ADDS_WAYS      16           /* of a set */
#define KVR_ADDS_TIMED_MS  5000         /* of a flight that finds no room */


typedef struct kvr_adds_s  kvr_adds_t;


/*
 * timed_ms: flights last so long, whatever ends; 0: they last to their end.
 * NULL: out of memory.
 */
kvr_adds_t *kvr_adds_create(const kvr_flights_t *f, uint32_t timed_ms);
void kvr_adds_destroy(kvr_adds_t *a);

/* A flight begins or, if it is known, goes on.  False: it found no room. */
bool kvr_adds_begin(kvr_adds_t *a, uint64_t router, uint32_t process,
    uint32_t id, const kvr_flight_t *flight, uint64_t now_ms);

/* Does nothing if the flight is not known. */
void kvr_adds_end(kvr_adds_t *a, uint64_t router, uint32_t process,
    uint32_t id, uint64_t now_ms);

/* Ends all flights of a router. */
void kvr_adds_forget(kvr_adds_t *a, uint64_t router, uint64_t now_ms);


#endif /* KVR_ADDS_H_INCLUDED */
