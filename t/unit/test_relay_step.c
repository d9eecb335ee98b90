/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Each state of a relay's source with each input: relay/kvr_relay_step.h.
 */


#include "../../relay/kvr_relay_step.h"

#include "tap.h"


/*
 * The table of that header, written once more: states by their first letters,
 * then "+" where all is known afterwards, "-" where it is not, and " " where
 * that stays; then the same of whether the replay owes an answer.
 */
static const char  *table[KVR_RELAY_STEP_INPUTS] = {
    [KVR_RELAY_STEP_REACHED] = "VVRVVV  ",
    [KVR_RELAY_STEP_GONE]    = "AAAAAA  ",
    [KVR_RELAY_STEP_LOST]    = "AVRCCC  ",
    [KVR_RELAY_STEP_FOUND]   = "AVRIIU  ",
    [KVR_RELAY_STEP_OTHER]   = "AVRVVV  ",
    [KVR_RELAY_STEP_BEGUN]   = "ARRRRR+-",
    [KVR_RELAY_STEP_ENDED]   = "AIIIIU  ",
    [KVR_RELAY_STEP_DOUBT]   = "AURCUU  ",
    [KVR_RELAY_STEP_NEXT]    = "AVRCII  ",
    [KVR_RELAY_STEP_CLEARED] = "AVRCII+-",
    [KVR_RELAY_STEP_BROKEN]  = "AVRCII- ",
    [KVR_RELAY_STEP_SILENT]  = "AVRCII-+",
    [KVR_RELAY_STEP_SHORT]   = "AVRCII--"
};

static const char  *states[KVR_RELAY_STEP_STATES] = {
    [KVR_RELAY_STEP_AWAY]        = "AWAY",
    [KVR_RELAY_STEP_VERIFYING]   = "VERIFYING",
    [KVR_RELAY_STEP_REBUILDING]  = "REBUILDING",
    [KVR_RELAY_STEP_CATCHING_UP] = "CATCHING_UP",
    [KVR_RELAY_STEP_IN_STEP]     = "IN_STEP",
    [KVR_RELAY_STEP_UNREADABLE]  = "UNREADABLE"
};

static const char  *inputs[KVR_RELAY_STEP_INPUTS] = {
    [KVR_RELAY_STEP_REACHED] = "REACHED",
    [KVR_RELAY_STEP_GONE]    = "GONE",
    [KVR_RELAY_STEP_LOST]    = "LOST",
    [KVR_RELAY_STEP_FOUND]   = "FOUND",
    [KVR_RELAY_STEP_OTHER]   = "OTHER",
    [KVR_RELAY_STEP_BEGUN]   = "BEGUN",
    [KVR_RELAY_STEP_ENDED]   = "ENDED",
    [KVR_RELAY_STEP_DOUBT]   = "DOUBT",
    [KVR_RELAY_STEP_NEXT]    = "NEXT",
    [KVR_RELAY_STEP_CLEARED] = "CLEARED",
    [KVR_RELAY_STEP_BROKEN]  = "BROKEN",
    [KVR_RELAY_STEP_SILENT]  = "SILENT",
    [KVR_RELAY_STEP_SHORT]   = "SHORT"
};


static bool becomes(char what, bool before);
static void pairs(void);
static void predicates(void);
static void never(void);


int
main(void)
{
    pairs();
    predicates();
    never();

    return done();
}


/* What the table's character makes of something that was so, or was not. */

static bool
becomes(char what, bool before)
{
    return what == '+' || (what == ' ' && before);
}


static void
pairs(void)
{
    bool                    good;
    uint32_t                state, input, was;
    const char             *row;
    kvr_relay_step_t        at;

    for (state = 0; state < KVR_RELAY_STEP_STATES; state++) {
        for (input = 0; input < KVR_RELAY_STEP_INPUTS; input++) {
            good = true;
            row = table[input];

            for (was = 0; was < 4; was++) {
                at.state = (kvr_relay_step_state_t) state;
                at.whole = was & 1;
                at.unanswered = was >> 1;

                at = kvr_relay_step_next(at, (kvr_relay_step_input_t) input);

                good = good
                       && at.whole == becomes(row[KVR_RELAY_STEP_STATES],
                                              was & 1)
                       && at.unanswered
                          == becomes(row[KVR_RELAY_STEP_STATES + 1], was >> 1)
                       && states[at.state][0] == row[state];
            }

            ok(good, "%s in %s leads to %c", inputs[input], states[state],
               row[state]);
        }
    }
}


static void
predicates(void)
{
    uint32_t          state, known;
    kvr_relay_step_t  at;

    for (state = 0; state < KVR_RELAY_STEP_STATES; state++) {
        for (known = 0; known < 2; known++) {
            at.state = (kvr_relay_step_state_t) state;
            at.whole = known;
            at.unanswered = false;

            ok(kvr_relay_step_in(at) == (states[state][0] == 'I'
                                         || states[state][0] == 'U')
               && kvr_relay_step_sure(at) == (known
                                              && states[state][0] != 'U'),
               "%s that is %s is told apart", states[state],
               known ? "whole" : "not whole");
        }
    }
}


/* What was lost is not known again but by a clear or from the beginning. */

static void
never(void)
{
    bool              good;
    uint32_t          state, input;
    kvr_relay_step_t  at;

    good = true;

    for (state = 0; state < KVR_RELAY_STEP_STATES; state++) {
        for (input = 0; input < KVR_RELAY_STEP_INPUTS; input++) {

            at.state = (kvr_relay_step_state_t) state;
            at.whole = false;
            at.unanswered = true;

            at = kvr_relay_step_next(at, (kvr_relay_step_input_t) input);

            good = good && at.whole == (input == KVR_RELAY_STEP_CLEARED
                                        || input == KVR_RELAY_STEP_BEGUN);
        }
    }

    ok(good, "only CLEARED and BEGUN make whole what was not");
}
