/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_complaint.h"
#include "kvr_shard.h"

#include <stdio.h>


void
kvr_complaint_note(kvr_complaint_t *c, const kvr_worker_t *w, kvr_why_t why,
    const kvr_event_t *ev, const char *detail)
{
    bool  news;

    news = why == KVR_WHY_BLOCK_SIZE
           ? w->stream.engine_block_size != ev->block_size
           : w->counters.why[why] == 1;

    if (news && c->why == KVR_WHY_NONE) {
        c->why = why;
        c->detail = detail[0] ? detail : kvr_why_detail(why);
    }
}


bool
kvr_complaint_tell(kvr_complaint_t *c, const kvr_worker_t *w,
    uint32_t block_size, char text[KVR_COMPLAINT_LEN])
{
    kvr_why_t  why;

    why = c->why;
    c->why = KVR_WHY_NONE;

    if (why == KVR_WHY_NONE) {
        return false;
    }

    if (why == KVR_WHY_BLOCK_SIZE) {
        snprintf(text, KVR_COMPLAINT_LEN, "worker \"%.63s\": its block size "
                 "is %u, which is no multiple of the zone's %u: nothing of it "
                 "is indexed", w->conf.id,
                 kvr_load32(&w->stream.engine_block_size), block_size);

    } else {
        snprintf(text, KVR_COMPLAINT_LEN, "worker \"%.63s\": an event is "
                 "refused, as more like it may be: %s", w->conf.id,
                 c->detail);
    }

    return true;
}
