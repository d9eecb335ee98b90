/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay_step.h"


kvr_relay_step_t
kvr_relay_step_next(kvr_relay_step_t at, kvr_relay_step_input_t input)
{
    switch (input) {

    case KVR_RELAY_STEP_REACHED:
    case KVR_RELAY_STEP_OTHER:
        if (at.state == KVR_RELAY_STEP_REBUILDING
            || (at.state == KVR_RELAY_STEP_AWAY
                && input == KVR_RELAY_STEP_OTHER))
        {
            return at;
        }

        at.state = KVR_RELAY_STEP_VERIFYING;
        return at;

    case KVR_RELAY_STEP_GONE:
        at.state = KVR_RELAY_STEP_AWAY;
        return at;

    case KVR_RELAY_STEP_LOST:
        if (kvr_relay_step_in(at)) {
            at.state = KVR_RELAY_STEP_CATCHING_UP;
        }

        return at;

    case KVR_RELAY_STEP_FOUND:
        if (at.state == KVR_RELAY_STEP_CATCHING_UP) {
            at.state = KVR_RELAY_STEP_IN_STEP;
        }

        return at;

    case KVR_RELAY_STEP_BEGUN:
        at.whole = true;
        at.unanswered = false;

        if (at.state != KVR_RELAY_STEP_AWAY) {
            at.state = KVR_RELAY_STEP_REBUILDING;
        }

        return at;

    case KVR_RELAY_STEP_ENDED:
        if (at.state != KVR_RELAY_STEP_AWAY && !kvr_relay_step_in(at)) {
            at.state = KVR_RELAY_STEP_IN_STEP;
        }

        return at;

    case KVR_RELAY_STEP_DOUBT:
        if (at.state == KVR_RELAY_STEP_VERIFYING
            || at.state == KVR_RELAY_STEP_IN_STEP)
        {
            at.state = KVR_RELAY_STEP_UNREADABLE;
        }

        return at;

    case KVR_RELAY_STEP_CLEARED:
        at.whole = true;
        at.unanswered = false;
        break;

    case KVR_RELAY_STEP_BROKEN:
        at.whole = false;
        break;

    case KVR_RELAY_STEP_SILENT:
        at.whole = false;
        at.unanswered = true;
        break;

    case KVR_RELAY_STEP_SHORT:
        at.whole = false;
        at.unanswered = false;
        break;

    default: /* KVR_RELAY_STEP_NEXT */
        break;
    }

    /* the doubt is over */

    if (at.state == KVR_RELAY_STEP_UNREADABLE) {
        at.state = KVR_RELAY_STEP_IN_STEP;
    }

    return at;
}
