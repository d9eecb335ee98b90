/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Rungs: what an engine can be asked for to learn the token ids of a text, as
 * the router's own probe found it, with the engine's kind and version.
 *
 *     render    POST <path>/render     the ids of a request of that path
 *     remote    POST /tokenize         the ids of a prompt, or of a chat
 *
 * A worker has one record, beside the fleet, found by the worker's number.
 * What a record says counts for one generation of its worker.  Any process
 * may call any function; none takes a lock.
 *
 * One process at a time probes a worker: kvr_rungs_due() gives the probe to
 * the first that asks, for KVR_RUNGS_LEASE_MS.  If that process dies, another
 * one gets the probe after this time.  If it dies within kvr_rungs_write(),
 * readers find nothing until the next probe has written.
 */


#ifndef KVR_RUNGS_H_INCLUDED
#define KVR_RUNGS_H_INCLUDED


#include "kvr_due.h"


/* The bit of kvr_rungs_found_t.rungs that a probe has ended. */
#define KVR_RUNG_KNOWN               0x80000000

#define KVR_RUNGS_VERSION_MAX        31     /* bytes of a version */

#define KVR_RUNGS_LEASE_MS           60000  /* a probe may take so long */
#define KVR_RUNGS_AGAIN_MS           300000 /* after one that was answered */
#define KVR_RUNGS_RETRY_MS           1000   /* after the first that was not */
#define KVR_RUNGS_RETRY_MAX_MS       60000  /* the delay doubles up to that */
#define KVR_RUNGS_DOUBT_MS           10000  /* between two because of doubts */


/* The result of a probe. */
typedef struct {
    uint32_t    rungs;                  /* KVR_RUNG_… of kvr_forms.h */
    uint32_t    engine;                 /* kvr_engine_kind_t */
    char        version[KVR_RUNGS_VERSION_MAX + 1];     /* "": not known */
} kvr_rungs_found_t;


/* The record; all zero is a valid beginning. */
typedef struct {
    kvr_due_t          due;             /* the next probe, with the mark of
                                           the engine's run */
    uint64_t           doubt_ms;        /* of the last kvr_rungs_doubt() */
    uint32_t           seq;             /* odd: being written */
    uint32_t           generation;      /* of the worker that it is about */
    kvr_rungs_found_t  found;           /* 8-byte words: see kvr_words.h */
    uint32_t           failed;          /* probes in a row */
    uint32_t           pad[13];         /* whole cache lines */
} kvr_rungs_t;


/*
 * True: the caller must probe the worker now, and call kvr_rungs_write() or
 * kvr_rungs_failed() in the end.  mark: a number that changes when the engine
 * may have been restarted; a worker whose mark changed is due at once.
 */
bool kvr_rungs_due(kvr_rungs_t *r, uint64_t mark, uint64_t now_ms);

/* The probe has ended with what it found. */
void kvr_rungs_write(kvr_rungs_t *r, uint32_t generation,
    const kvr_rungs_found_t *found, uint64_t now_ms);

/*
 * The probe had no answer: what was found before for this generation stays.
 * Returns the number of such probes in a row.
 */
uint32_t kvr_rungs_failed(kvr_rungs_t *r, uint64_t now_ms);

/*
 * Reads what was found for this generation.  False, and *found is empty: no
 * probe has ended yet.
 */
bool kvr_rungs_read(const kvr_rungs_t *r, uint32_t generation,
    kvr_rungs_found_t *found);

/* The rungs alone; 0: no probe has ended yet. */
uint32_t kvr_rungs_bits(const kvr_rungs_t *r, uint32_t generation);

/*
 * Something else than a probe says that the engine may have changed: a
 * question that was refused, or metrics that can be read again.  The worker is
 * due now, but for this reason not more often than each KVR_RUNGS_DOUBT_MS.
 */
void kvr_rungs_doubt(kvr_rungs_t *r, uint64_t now_ms);


#endif /* KVR_RUNGS_H_INCLUDED */
