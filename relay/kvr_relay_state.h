/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a snapshot keeps for the next relay, beside the blocks: how far each
 * source was, which ranks it has told of, and kvr_normalise_save()'s parts.
 *
 * What is kept of an endpoint is believed of the one at the same place, unless
 * that is known to be another: then, and when there are fewer, the ranks that
 * only it has told of are emptied.
 */


#ifndef KVR_RELAY_STATE_H_INCLUDED
#define KVR_RELAY_STATE_H_INCLUDED


bool kvr_relay_state_save(kvr_relay_t *r, kvr_relay_parts_t *parts);

/*
 * load takes one part after the other, false: it is broken; loaded comes after
 * the last.
 */
bool kvr_relay_state_load(kvr_relay_t *r, uint32_t part, const char *bytes,
    size_t len);
void kvr_relay_state_loaded(kvr_relay_t *r);


#endif /* KVR_RELAY_STATE_H_INCLUDED */
