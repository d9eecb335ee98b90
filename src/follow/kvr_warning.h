/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Warnings about refused events, for the log: one for each reason and worker,
 * and one for each block size that is no multiple of the zone's.
 */


#ifndef KVR_WARNING_H_INCLUDED
#define KVR_WARNING_H_INCLUDED


#include "../wire/kvr_event.h"
#include "../fleet/kvr_fleet.h"


#define KVR_WARNING_LEN      256        /* bytes of a message */


typedef struct {
    uint32_t     noted;                 /* a bit for each reason to log */
    uint32_t     block_size;            /* no multiple of the zone's */
    const char  *detail[KVR_WHYS];
} kvr_warning_t;


/*
 * Notes that an event of w was refused, after the event was counted.  detail
 * is the decoder's, or "".  The caller holds the shard's lock.
 */
void kvr_warning_note(kvr_warning_t *c, kvr_mem_t *mem, kvr_worker_t *w,
    kvr_why_t why, const kvr_event_t *ev, const char *detail);

/*
 * Writes the message of one noted reason into text, and forgets the reason;
 * false: none is noted.  block_size is the zone's.
 */
bool kvr_warning_tell(kvr_warning_t *c, const kvr_worker_t *w,
    uint32_t block_size, char text[KVR_WARNING_LEN]);


#endif /* KVR_WARNING_H_INCLUDED */
