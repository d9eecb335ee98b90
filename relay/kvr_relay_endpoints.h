/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Where the engine's ranks are: --events, --replay, --ranks.
 */


#ifndef KVR_RELAY_ENDPOINTS_H_INCLUDED
#define KVR_RELAY_ENDPOINTS_H_INCLUDED


#include "kvr_relay_options.h"


/*
 * Makes one endpoint for each rank of those that were given, and as many ranks
 * as there are.  -1, or the process's exit code, as kvr_relay_bad().
 */
int kvr_relay_endpoints_check(kvr_relay_options_t *o);


#endif /* KVR_RELAY_ENDPOINTS_H_INCLUDED */
