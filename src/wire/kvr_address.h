/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Addresses of workers: "127.0.0.1:8000", "[::1]:8000", "unix:/path".  Names
 * need a resolver, and are none.
 */


#ifndef KVR_ADDRESS_H_INCLUDED
#define KVR_ADDRESS_H_INCLUDED


#include "../kvr.h"


/*
 * NULL when requests can be sent there, else what is wrong, a sentence's end.
 * The address is terminated, and has no more than KVR_ADDRESS_MAX bytes.
 */
const char *kvr_address_wrong(const char *address);


#endif /* KVR_ADDRESS_H_INCLUDED */
