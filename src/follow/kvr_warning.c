/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_warning.h"
#include "../zone/kvr_shard.h"

#include <stdio.h>


static bool kvr_warning_size(kvr_mem_t *mem, kvr_worker_t *w,
    uint32_t size);


void
kvr_warning_note(kvr_warning_t *c, kvr_mem_t *mem, kvr_worker_t *w,
    kvr_why_t why, const kvr_event_t *ev, const char *detail)
{
    bool  news;

    if (c->noted >> why & 1) {
        return;
    }

    news = why == KVR_WHY_BLOCK_SIZE
           ? kvr_warning_size(mem, w, ev->block_size)
           : w->counters.why[why] == 1;

    if (news) {
        c->noted |= 1u << why;
        c->detail[why] = detail[0] ? detail : kvr_why_detail(why);

        if (why == KVR_WHY_BLOCK_SIZE) {
            c->block_size = ev->block_size;
        }
    }
}


/*
 * Is this block size of the worker new, that is, not logged yet?  Two sizes
 * can share one of the 32 bits: then the second is not logged.
 */

static bool
kvr_warning_size(kvr_mem_t *mem, kvr_worker_t *w, uint32_t size)
{
    uint32_t  bit;

    bit = 1u << (size * 2654435769u >> 27);

    if (w->stream.logged_sizes & bit) {
        return false;
    }

    kvr_set32(mem, &w->stream.logged_sizes, w->stream.logged_sizes | bit);

    return true;
}


bool
kvr_warning_tell(kvr_warning_t *c, const kvr_worker_t *w,
    uint32_t block_size, char text[KVR_WARNING_LEN])
{
    kvr_why_t  why;

    if (c->noted == 0) {
        return false;
    }

    why = (kvr_why_t) __builtin_ctz(c->noted);
    c->noted &= c->noted - 1;

    if (why == KVR_WHY_BLOCK_SIZE) {
        snprintf(text, KVR_WARNING_LEN, "worker \"%.63s\": its block size "
                 "is %u, which is no multiple of the zone's %u: nothing of it "
                 "is indexed", w->conf.id,
                 c->block_size, block_size);

    } else {
        snprintf(text, KVR_WARNING_LEN, "worker \"%.63s\": an event is "
                 "refused, as more like it may be: %s", w->conf.id,
                 c->detail[why]);
    }

    return true;
}
