/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What of a worker's events is refused, for people: each reason once for each
 * worker, and a block size that doesn't fit once for each size.
 */


#ifndef KVR_WARNING_H_INCLUDED
#define KVR_WARNING_H_INCLUDED


#include "../wire/kvr_event.h"
#include "../fleet/kvr_fleet.h"


#define KVR_WARNING_LEN      256        /* bytes of it in words */


typedef struct {
    uint32_t     noted;                 /* a bit for each reason to be told */
    uint32_t     block_size;            /* that doesn't fit */
    const char  *detail[KVR_WHYS];
} kvr_warning_t;


/*
 * An event of w was refused, which its counters tell by now.  detail is the
 * decoder's, or "".  Under the shard's lock.
 */
void kvr_warning_note(kvr_warning_t *c, kvr_mem_t *mem, kvr_worker_t *w,
    kvr_why_t why, const kvr_event_t *ev, const char *detail);

/*
 * One of those that were noted, in words; false: there is none any more.
 * block_size is the zone's.
 */
bool kvr_warning_tell(kvr_warning_t *c, const kvr_worker_t *w,
    uint32_t block_size, char text[KVR_WARNING_LEN]);


#endif /* KVR_WARNING_H_INCLUDED */
