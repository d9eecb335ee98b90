/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay_endpoints.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>


static int kvr_relay_endpoints_spread(const char *name, kvr_relay_list_t *list,
    uint32_t ranks);
static int kvr_relay_endpoints_once(const kvr_relay_options_t *o);


int
kvr_relay_endpoints_check(kvr_relay_options_t *o)
{
    int  code;

    if (o->first_rank + o->ranks > KVR_RANKS_MAX) {
        return kvr_relay_bad("first-rank", "%u and %u ranks are more than the "
                             "%u that there may be", o->first_rank, o->ranks,
                             KVR_RANKS_MAX);
    }

    if (o->trtllm != NULL) {
        if (o->replay.n != 0) {
            return kvr_relay_bad("replay", "goes with --events");
        }

        return -1;
    }

    code = kvr_relay_endpoints_spread("events", &o->events, o->ranks);

    if (code < 0 && o->replay.n != 0) {
        code = kvr_relay_endpoints_spread("replay", &o->replay, o->ranks);
    }

    if (code >= 0) {
        return code;
    }

    if (o->replay.n != 0 && o->replay.n != o->events.n) {
        return kvr_relay_bad("replay", "is there %u times, --events %u times",
                             o->replay.n, o->events.n);
    }

    o->ranks = o->events.n;

    return kvr_relay_endpoints_once(o);
}


/*
 * Refuses endpoints whose ranges of ports overlap: the ranks of an endpoint
 * are at its next ports.
 */

static int
kvr_relay_endpoints_once(const kvr_relay_options_t *o)
{
    uint32_t                 i, k, n;
    const char              *endpoint, *name[2] = { "events", "replay" };
    const kvr_relay_list_t  *list[2] = { &o->events, &o->replay };

    n = o->events.n;

    for (i = 0; i < n + o->replay.n; i++) {
        endpoint = list[i / n]->items[i % n];

        for (k = 0; k < i; k++) {

            if (strcmp(list[k / n]->items[k % n], endpoint) == 0) {
                return kvr_relay_bad(name[i / n], "\"%s\" is there twice, for "
                                     "--%s rank %u and --%s rank %u",
                                     kvr_relay_shown(endpoint), name[k / n],
                                     k % n, name[i / n], i % n);
            }
        }
    }

    return -1;
}


/*
 * Makes one endpoint for several ranks into one for each: the next ranks are
 * at the next ports.
 */

static int
kvr_relay_endpoints_spread(const char *name, kvr_relay_list_t *list,
    uint32_t ranks)
{
    char           *end, *base;
    char            endpoint[300];
    uint32_t        i;
    const char     *first, *colon;
    unsigned long   port;

    for (i = 0; i < list->n; i++) {
        first = list->items[i];

        if (strncmp(first, "ipc://", 6) == 0 && first[6] != '\0') {
            continue;
        }

        if (strncmp(first, "tcp://*:", 8) == 0) {
            return kvr_relay_bad(name, "\"%s\": \"*\" is an address to listen "
                                 "at, which is for the engine: give the "
                                 "engine's host", kvr_relay_shown(first));
        }

        colon = strrchr(first, ':');
        port = colon && isdigit((unsigned char) colon[1])
               ? strtoul(colon + 1, &end, 10) : 0;

        if (strncmp(first, "tcp://", 6) != 0 || colon < first + 7
            || port == 0 || port > 65535 || *end != '\0'
            || strlen(first) > 255)
        {
            return kvr_relay_bad(name, "\"%s\" is neither tcp://host:port nor "
                                 "ipc:///path", kvr_relay_shown(first));
        }
    }

    if (ranks == 1 || list->n == ranks) {
        return -1;
    }

    if (list->n != 1) {
        return kvr_relay_bad(name, "is there %u times, with --ranks %u",
                             list->n, ranks);
    }

    base = list->items[0];
    first = base;

    if (strncmp(first, "tcp://", 6) != 0) {
        return kvr_relay_bad(name, "must be there %u times, once a rank, for "
                             "\"%s\" has no port", ranks,
                             kvr_relay_shown(first));
    }

    colon = strrchr(first, ':');
    port = strtoul(colon + 1, NULL, 10);

    if (port + ranks - 1 > 65535) {
        return kvr_relay_bad(name, "there are no %u ports from %lu on", ranks,
                             port);
    }

    for (i = 0; i < ranks; i++) {
        snprintf(endpoint, sizeof(endpoint), "%.*s:%lu",
                 (int) (colon - first), first, port + i);
        list->items[i] = strdup(endpoint);
    }

    free(base);
    list->n = ranks;

    return -1;
}
