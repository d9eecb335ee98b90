/*
 * Copyright (C) the nginx-kv-router authors
 */


#ifndef KVR_PREFIX_CHECK_H_INCLUDED
#define KVR_PREFIX_CHECK_H_INCLUDED


#include "prefix/kvr_prefix_state.h"


/* Looks at all invariants of a cache at rest: NULL, or what is broken. */
const char *kvr_prefix_check(const kvr_prefix_t *c);


#endif /* KVR_PREFIX_CHECK_H_INCLUDED */
