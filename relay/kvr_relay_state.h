/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a snapshot keeps for the next relay, beside the blocks: how far each
 * source was, and kvr_normalise_save()'s parts.
 *
 * What is kept of a source is believed where the same endpoint is at the same
 * place.  A source at another place, or by another name, begins anew; which is
 * said.
 */


#ifndef KVR_RELAY_STATE_H_INCLUDED
#define KVR_RELAY_STATE_H_INCLUDED


#include "kvr_relay_core.h"
#include "kvr_relay_parts.h"


bool kvr_relay_state_save(kvr_relay_t *r, kvr_relay_parts_t *parts);

/*
 * load() takes one part after the other; false: the part is of no use, and why
 * says so. loaded() must be called after the last part.
 */
bool kvr_relay_state_load(kvr_relay_t *r, uint32_t part, const char *bytes,
    size_t len, const char **why);
void kvr_relay_state_loaded(kvr_relay_t *r);


#endif /* KVR_RELAY_STATE_H_INCLUDED */
