/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_capacity.h"


static void kvr_capacity_first(kvr_capacity_t *c,
    const kvr_capacity_sample_t *s, uint64_t visible);
static void kvr_capacity_bound(kvr_capacity_t *c, uint64_t tokens);


bool
kvr_capacity_set(kvr_capacity_t *c, uint64_t tokens,
    kvr_capacity_source_t source)
{
    if (source < c->source || (source == c->source && tokens == c->first)
        || (source != c->source && tokens == 0))
    {
        return false;
    }

    /* without its source the value stays, as one that was learned */

    c->source = tokens ? source
                       : c->tokens ? KVR_CAPACITY_LEARNED : KVR_CAPACITY_NONE;

    if (tokens) {
        c->first = tokens;
        c->tokens = tokens;
        c->lost = 0;
    }

    return true;
}


bool
kvr_capacity_learn(kvr_capacity_t *c, const kvr_capacity_sample_t *s)
{
    uint64_t  most, visible, hot, ghost;

    /* an engine computes the last token in any case, and so its block */

    most = s->prompt - kvr_min(s->prompt, s->block);
    hot = kvr_min(s->hot, most);
    visible = kvr_min(s->visible, most);
    ghost = kvr_min(s->ghost, most);

    if (s->cached) {
        c->misses = 0;

    } else if (visible >= KVR_CAPACITY_BLOCKS * s->block) {

        if (++c->misses == KVR_CAPACITY_MISSES) {
            c->misses = 0;
            c->lost = 0;

            return true;
        }
    }

    if (c->tokens == 0) {
        kvr_capacity_first(c, s, visible);

    } else if (ghost > visible && s->cached > visible + s->slack) {
        kvr_capacity_bound(c, c->tokens + c->tokens / KVR_CAPACITY_STEP);
        c->grown++;

    } else if (visible > hot + s->slack && s->cached + s->slack >= hot
               && s->cached + s->slack < visible)
    {
        kvr_capacity_bound(c, c->tokens - c->tokens / KVR_CAPACITY_STEP);
        c->shrunk++;
    }

    return false;
}


/*
 * A prompt that was lost as a whole counts when the engine then has another
 * one: otherwise the engine may have been restarted.
 */

static void
kvr_capacity_first(kvr_capacity_t *c, const kvr_capacity_sample_t *s,
    uint64_t visible)
{
    bool      less;
    uint64_t  held;

    less = s->cached + s->slack < visible;

    if (s->cached == 0) {

        if (less && c->lost == 0) {
            c->lost = s->held;
        }

        return;
    }

    held = c->lost ? c->lost : less ? s->held : 0;

    if (held == 0) {
        return;
    }

    c->tokens = held;
    c->first = held;
    c->lost = 0;
    c->source = KVR_CAPACITY_LEARNED;
}


/* A learned value was held by chance: it bounds nothing but a fall to 0. */

static void
kvr_capacity_bound(kvr_capacity_t *c, uint64_t tokens)
{
    if (c->source != KVR_CAPACITY_LEARNED) {
        tokens = kvr_max(tokens, c->first / 4);
        tokens = kvr_min(tokens, c->first * 2);
    }

    c->tokens = kvr_max(tokens, KVR_CAPACITY_STEP);
}


const char *
kvr_capacity_source_name(uint32_t source)
{
    static const char  *names[] = {
        "none", "learned", "scraped", "configured"
    };

    return source <= KVR_CAPACITY_CONFIGURED ? names[source] : "none";
}
