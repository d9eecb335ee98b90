/*
 * Copyright (C) the nginx-kv-router authors
 *
 * /metrics in the format of Prometheus; /health: 200 while the process turns
 * its loop; /ready: 200 while the engine is reached and what it says reaches
 * Redis, otherwise 503, and a line for each thing that is lacking.  POST
 * /drain, of loopback peers: answered when the drain is over.
 */


#ifndef KVR_RELAY_METRICS_H_INCLUDED
#define KVR_RELAY_METRICS_H_INCLUDED


#include "kvr_relay_core.h"


#define KVR_RELAY_METRICS_MAX   32      /* connections at a time */


struct MHD_Connection;
struct MHD_Daemon;


typedef struct {
    struct MHD_Daemon  *daemon;         /* NULL: not asked for */
    int                 fd;             /* what the loop polls; -1: nothing */
    char                address[KVR_ADDRESS_MAX + 16];      /* or "-" */

    struct MHD_Connection  *waiting[KVR_RELAY_METRICS_MAX]; /* for a drain */
    uint32_t            nwaiting;
} kvr_relay_metrics_t;


/* Starts to listen.  False: why is a sentence. */
bool kvr_relay_metrics_init(kvr_relay_t *r, char why[KVR_WHY_LEN]);
void kvr_relay_metrics_free(kvr_relay_t *r);

void kvr_relay_metrics_tick(kvr_relay_t *r);


#endif /* KVR_RELAY_METRICS_H_INCLUDED */
