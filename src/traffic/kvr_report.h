/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Reports: the load that an engine itself tells, in the Prometheus text of its
 * /metrics: requests that run and wait there, whoever sent them, how large and
 * how full its KV cache is, and when the engine was started.
 *
 * A holder has one record, beside the fleet, found by the holder's number.
 * One process at a time writes it; readers take no lock, and may see one
 * number newer than the other.  A record counts for one generation of its
 * holder.
 */


#ifndef KVR_REPORT_H_INCLUDED
#define KVR_REPORT_H_INCLUDED


#include "../kvr.h"


/* The report of one rank; a value below zero is not known. */
typedef struct {
    double      waiting;            /* requests */
    double      running;
    double      usage;              /* 0..1, of the KV cache */
    double      capacity;           /* tokens, of the KV cache */
    double      started;            /* seconds since 1970: the start of the
                                       engine's process */
} kvr_report_load_t;


typedef struct {
    uint64_t    at_ms;              /* monotonic; 0: never */
    uint32_t    waiting;            /* UINT32_MAX: not known */
    uint32_t    running;
    uint32_t    usage;              /* millionths */
    uint32_t    generation;
    uint32_t    capacity;           /* tokens; 0: not known; the last one that
                                       was reported */
    uint32_t    started;            /* seconds; as capacity */
} kvr_report_t;


/*
 * All zero is a valid beginning.  True: the engine's process is another one
 * than that of the report before, so the engine was restarted.
 */
bool kvr_report_write(kvr_report_t *r, uint32_t generation,
    const kvr_report_load_t *load, uint64_t now_ms);

/* Reads a report of less than max_ms ago; returns its age in ms, or -1: there
 * is none. */
int64_t kvr_report_read(const kvr_report_t *r, uint32_t generation,
    uint64_t now_ms, uint64_t max_ms, kvr_report_load_t *load);

/*
 * The tokens of the KV cache as the engine reported them last, however long
 * ago; 0: never for this generation.  Any process may call it.
 */
uint32_t kvr_report_capacity(const kvr_report_t *r, uint32_t generation);

/*
 * Reads the metrics of vLLM and SGLang in the text of /metrics, and skips all
 * others.  A metric without a rank is of all ranks together: a count is
 * divided by the number of ranks.  Returns the number of values found, without
 * the start of the process, which many other programs report as well.
 */
uint32_t kvr_report_parse(const char *text, size_t len,
    kvr_report_load_t *ranks, uint32_t nranks);


#endif /* KVR_REPORT_H_INCLUDED */
