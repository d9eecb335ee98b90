/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A worker's lane: what a process that follows the worker's stream remembers
 * of it.  There is one for each number of a worker in the zone.
 */


#ifndef KVR_LANE_H_INCLUDED
#define KVR_LANE_H_INCLUDED


#include "kvr_ingest.h"
#include "kvr_queue.h"


typedef struct {
    kvr_row_t      parked;          /* messages that wait for the repair */
    kvr_cursor_t   missing;         /* the gap goes up to here */
    kvr_cursor_t   useless;         /* a snapshot that failed */
    const char    *detail;          /* the last refusal that was logged */
    uint64_t       again;           /* ms: look for a snapshot; or 0 */
    uint32_t       delay;           /* ms before the next look */
    uint32_t       logged;          /* troubles, a bit each */
    bool           wanted;          /* a repair */
    bool           look;            /* only for a snapshot */
    bool           active;          /* in repair */
    uint8_t        unheard;         /* looks of the owner: no event came */
    bool           silent;          /* logged by the owner: none comes any
                                       more */
    uint8_t        dropped;         /* 0-2: how often the loss of messages must
                                       still be recorded in the zone (now, and
                                       behind the queue) */
} kvr_lane_t;


#endif /* KVR_LANE_H_INCLUDED */
