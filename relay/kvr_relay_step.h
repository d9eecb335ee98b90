/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Where a source is with its engine, whether all that the engine holds is
 * known, and whether the engine still owes an answer: a state, whole or not,
 * unanswered or not, and what each input makes of these.  No I/O, no memory.
 *
 *     AWAY         not connected
 *     VERIFYING    connected; the replay is asked whether the last message
 *                  that is known is the engine's, and what followed it
 *     REBUILDING   the engine is another one: it is read from its first
 *                  message on
 *     CATCHING_UP  connected; the replay is asked for messages that were lost
 *     IN_STEP      connected; nothing is missing that could be asked for
 *     UNREADABLE   IN_STEP, but for what could not be read or asked for: the
 *                  next message shows whether something was lost
 *
 * Rows are inputs, columns the states above by their first letters; a dot is
 * no change.
 *
 *                A  V  R  C  I  U  whole  unanswered
 *     REACHED    V  .  .  V  V  V    .      .    the connection is there
 *     GONE       .  A  A  A  A  A    .      .    the connection is lost
 *     LOST       .  .  .  .  C  C    .      .    a number is missing, and is
 *                                                asked for
 *     FOUND      .  .  .  I  .  .    .      .    the replay had all that was
 *                                                missing
 *     OTHER      .  .  .  V  V  V    .      .    the last message is not the
 *                                                engine's
 *     BEGUN      .  R  .  R  R  R  true   false  nothing is known, all will
 *                                                follow
 *     ENDED      .  I  I  I  .  .    .      .    the replay has ended, however
 *                                                it did
 *     DOUBT      .  U  .  .  U  .    .      .    a message can't be read, or
 *                                                nothing tells what happened
 *                                                while away
 *     NEXT       .  .  .  .  .  I    .      .    the next number: nothing was
 *                                                lost
 *     CLEARED    .  .  .  .  .  I  true   false  the engine holds nothing
 *     BROKEN     .  .  .  .  .  I  false    .    something is missing
 *     SILENT     .  .  .  .  .  I  false  true   something is missing: the
 *                                                replay has not answered
 *     SHORT      .  .  .  .  .  I  false  false  something is missing: the
 *                                                replay has answered, and does
 *                                                not have all
 *
 * Routers are told that the relay is complete while each source is IN_STEP and
 * whole.  A source that is unanswered asks the replay for all that the engine
 * holds, again and again, until one of the inputs above ends that.
 */


#ifndef KVR_RELAY_STEP_H_INCLUDED
#define KVR_RELAY_STEP_H_INCLUDED


#include <stdbool.h>


typedef enum {
    KVR_RELAY_STEP_AWAY,
    KVR_RELAY_STEP_VERIFYING,
    KVR_RELAY_STEP_REBUILDING,
    KVR_RELAY_STEP_CATCHING_UP,
    KVR_RELAY_STEP_IN_STEP,
    KVR_RELAY_STEP_UNREADABLE,
    KVR_RELAY_STEP_STATES
} kvr_relay_step_state_t;


typedef enum {
    KVR_RELAY_STEP_REACHED,
    KVR_RELAY_STEP_GONE,
    KVR_RELAY_STEP_LOST,
    KVR_RELAY_STEP_FOUND,
    KVR_RELAY_STEP_OTHER,
    KVR_RELAY_STEP_BEGUN,
    KVR_RELAY_STEP_ENDED,
    KVR_RELAY_STEP_DOUBT,
    KVR_RELAY_STEP_NEXT,
    KVR_RELAY_STEP_CLEARED,
    KVR_RELAY_STEP_BROKEN,
    KVR_RELAY_STEP_SILENT,
    KVR_RELAY_STEP_SHORT,
    KVR_RELAY_STEP_INPUTS
} kvr_relay_step_input_t;


typedef struct {
    kvr_relay_step_state_t   state;
    bool                     whole;     /* all that the engine holds is known,
                                           as of the last message; UNREADABLE:
                                           if it is shown that none was lost */
    bool                     unanswered;    /* the replay has not answered what
                                           would have made it whole */
} kvr_relay_step_t;


/* The table above. */
kvr_relay_step_t kvr_relay_step_next(kvr_relay_step_t at,
    kvr_relay_step_input_t input);

/* Nothing is asked for: IN_STEP or UNREADABLE. */
static inline bool
kvr_relay_step_in(kvr_relay_step_t at)
{
    return at.state == KVR_RELAY_STEP_IN_STEP
           || at.state == KVR_RELAY_STEP_UNREADABLE;
}


/* All that the engine holds is known, and nothing puts it in doubt. */
static inline bool
kvr_relay_step_sure(kvr_relay_step_t at)
{
    return at.whole && at.state != KVR_RELAY_STEP_UNREADABLE;
}


#endif /* KVR_RELAY_STEP_H_INCLUDED */
