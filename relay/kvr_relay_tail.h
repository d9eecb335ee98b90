/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The tail: envelopes that an earlier relay added to the log behind its last
 * snapshot.
 *
 * A relay that starts asks the engine for what came after the snapshot, which
 * tells more.  Where the engine does not have that any more, the tail is the
 * next best: what routers were told already stays as it was, only how many
 * copies there are of a block isn't known.
 */


#ifndef KVR_RELAY_TAIL_H_INCLUDED
#define KVR_RELAY_TAIL_H_INCLUDED


#include "kvr_relay_parts.h"
#include "kvr_relay_source.h"

#include <hiredis/hiredis.h>


typedef struct {
    kvr_relay_parts_t   entries;
    uint64_t            bytes;          /* --ring at most */
    uint64_t            epoch;          /* of the last one */
    uint64_t            seq;
} kvr_relay_tail_t;


/* Starts an empty tail behind the snapshot (epoch, seq). */
void kvr_relay_tail_begin(kvr_relay_t *r, uint64_t epoch, uint64_t seq);

/*
 * Takes a page of the log, as XRANGE answers it.  True: the caller must ask
 * for the next page, from (epoch, seq) on.
 */
bool kvr_relay_tail_page(kvr_relay_t *r, const redisReply *reply);

/*
 * Applies the tail's changes of a source's ranks to the mirror, once, and only
 * before the source is in step.  The source is not whole afterwards.
 */
void kvr_relay_tail_apply(kvr_relay_t *r, kvr_relay_source_t *s);

void kvr_relay_tail_free(kvr_relay_t *r);


#endif /* KVR_RELAY_TAIL_H_INCLUDED */
