/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Each state of a relay's drain with each input: relay/kvr_relay_drain.h.
 */


#include "../../relay/kvr_relay_drain.h"

#include "tap.h"


/* The table of that header, by the first letters of the states. */

static const char  states[] = "STBIDU";

static const struct {
    const char  *name;
    const char  *becomes;
} inputs[KVR_RELAY_DRAIN_INPUTS] = {
    [KVR_RELAY_DRAIN_ASKED]   = { "ASKED",   "T....T" },
    [KVR_RELAY_DRAIN_TOLD]    = { "TOLD",    ".B...." },
    [KVR_RELAY_DRAIN_RUNNING] = { "RUNNING", "...B.." },
    [KVR_RELAY_DRAIN_NONE]    = { "NONE",    "..ID.." },
    [KVR_RELAY_DRAIN_GONE]    = { "GONE",    ".DDD.." },
    [KVR_RELAY_DRAIN_BLIND]   = { "BLIND",   ".UDD.." },
    [KVR_RELAY_DRAIN_LATE]    = { "LATE",    ".UUU.." },
    [KVR_RELAY_DRAIN_ANEW]    = { "ANEW",    ".SSSSS" }
};


int
main(void)
{
    char                      want;
    kvr_relay_drain_t         d;
    kvr_relay_drain_state_t   state, next;
    kvr_relay_drain_input_t   input;

    for (input = 0; input < KVR_RELAY_DRAIN_INPUTS; input++) {
        for (state = 0; state < KVR_RELAY_DRAIN_STATES; state++) {

            want = inputs[input].becomes[state];
            next = kvr_relay_drain_next(state, input);

            ok(states[next] == (want == '.' ? states[state] : want),
               "%s in %c: %c", inputs[input].name, states[state],
               states[next]);
        }
    }

    memset(&d, 0, sizeof(d));
    is_u64(KVR_RELAY_DRAIN_SERVING, 0, "a relay begins with serving");

    for (state = 0; state < KVR_RELAY_DRAIN_STATES; state++) {
        d.state = state;
        ok(kvr_relay_drain_over(&d) == (strchr("SDU", states[state]) != NULL),
           "who waits in %c", states[state]);
    }

    return done();
}
