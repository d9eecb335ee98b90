/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Where the output begins in a stream of events, in any cut of it.
 */


#include <stdlib.h>

#include "wire/kvr_output.h"
#include "tap.h"


#define CREATED   "event: response.created\ndata: {\"response\":{}}\n\n"
#define PROGRESS  "event: response.in_progress\ndata: {\"response\":{}}\n\n"
#define STARTED   "event: message_start\ndata: {\"message\":{}}\n\n"
#define PING      "event: ping\ndata: {\"type\":\"ping\"}\n\n"


/* A piece of its own, so that a read beyond it is seen. */

static bool
add(kvr_output_t *o, const char *text, size_t len)
{
    bool   begun;
    char  *copy;

    copy = malloc(len + 1);
    memcpy(copy + 1, text, len);
    begun = kvr_output_add(o, copy + 1, len);
    free(copy);

    return begun;
}


/* The output is seen from the end of the first line behind `before` on. */

static void
begins(const char *before, const char *first, const char *what)
{
    bool          good;
    char          text[1024];
    size_t        i, k, at, len;
    kvr_output_t  o, zero = { .len = 0 };

    (void) snprintf(text, sizeof(text), "%s%s\ndata: more\n\n", before, first);

    len = strlen(text);
    at = strlen(before) + strlen(first) + 1;
    good = true;

    for (i = 0; i <= len; i++) {
        for (k = i; k <= len; k++) {
            o = zero;
            good = add(&o, text, i) == (i >= at)
                   && add(&o, text + i, k - i) == (k >= at)
                   && add(&o, text + k, len - k) && good;
        }
    }

    o = zero;

    for (i = 0; i < len; i++) {
        good = add(&o, text + i, 1) == (i + 1 >= at) && good;
    }

    ok(good, "%s", what);
}


int
main(void)
{
    static char  line[400];

    begins("", "data: {\"choices\":[{\"text\":\"~\"}]}", "a completion");
    begins("", "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\","
               "\"content\":\"\"}}]}",
           "the role of a chat comes with the first token");
    begins(": ping - 2026-11-28\n\n:\n\n", "data: {\"choices\":[]}",
           "comments have no output");
    begins(CREATED PROGRESS, "event: response.output_item.added",
           "a response is created, and in progress, before its output");
    begins(CREATED PROGRESS, "event: response.incomplete",
           "an answer that ends without output");
    begins(STARTED PING, "event: content_block_start",
           "a message starts, and pings, before its output");
    begins(PING PING, "data: a", "an event without a name, behind one with");
    begins("event: ping\r\ndata: {}\r\n\r\n", "data: a\r", "ends of CR LF");
    begins("\n\n\r\n", "id: 7", "empty lines, and a field that is not known");
    begins("", "event: pings", "a longer name");
    begins("", "event: pin", "a shorter name");
    begins("", "event: response.created.and.more.than.is.kept",
           "a name that is too long");
    begins("", "\rdata: a", "a CR alone ends no line");

    memset(line, 'x', sizeof(line) - 1);
    begins(PING, line, "a line that is longer than what is kept");

    return done();
}
