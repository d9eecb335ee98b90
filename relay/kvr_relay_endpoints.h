/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Where the engine's ranks are: --events, --replay, --ranks.
 */


#ifndef KVR_RELAY_ENDPOINTS_H_INCLUDED
#define KVR_RELAY_ENDPOINTS_H_INCLUDED


#include "kvr_relay_options.h"


/*
 * Makes one endpoint for each rank of the endpoints that were given, and as
 * many ranks as there are.  Returns -1, or the exit code of the process as
 * kvr_relay_bad() does.
 */
int kvr_relay_endpoints_check(kvr_relay_options_t *o);


#endif /* KVR_RELAY_ENDPOINTS_H_INCLUDED */
