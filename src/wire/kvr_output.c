/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_output.h"


/* Events without output.  Engines have one blank behind the colon. */

static const char *const  kvr_output_silent[] = {
    "event: response.created",
    "event: response.in_progress",
    "event: message_start",
    "event: ping"
};


/* A line has ended; an empty one ends its event. */

static void
kvr_output_line(kvr_output_t *o)
{
    size_t  i;

    if (o->len && o->line[o->len - 1] == '\r') {
        o->len--;
    }

    if (o->len == 0) {
        o->silent = false;
        return;
    }

    if (o->silent || o->line[0] == ':') {
        return;
    }

    for (i = 0; i < kvr_nelts(kvr_output_silent); i++) {

        if (o->len == strlen(kvr_output_silent[i])
            && memcmp(o->line, kvr_output_silent[i], o->len) == 0)
        {
            o->silent = true;
            return;
        }
    }

    o->begun = true;
}


bool
kvr_output_add(kvr_output_t *o, const void *data, size_t len)
{
    size_t       n, kept;
    const char  *p, *end, *lf;

    p = data;
    end = p + len;

    while (p < end && !o->begun) {
        lf = memchr(p, '\n', end - p);
        n = (lf ? lf : end) - p;

        kept = kvr_min(n, (size_t) (KVR_OUTPUT_LINE - o->len));
        memcpy(o->line + o->len, p, kept);
        o->len += kept;

        if (lf == NULL) {
            break;
        }

        kvr_output_line(o);
        o->len = 0;
        p = lf + 1;
    }

    return o->begun;
}
