/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Addresses of workers: "127.0.0.1:8000", "[::1]:8000", "unix:/path", and
 * "host:8000" with a host name, for which a resolver must find an address.
 */


#ifndef KVR_ADDRESS_H_INCLUDED
#define KVR_ADDRESS_H_INCLUDED


#include "../kvr.h"


/*
 * NULL when requests can be sent there, else what is wrong: a sentence, that
 * lives forever.  The address is terminated, of any length.
 */
const char *kvr_address_wrong(const char *address);

/*
 * The bytes of the host name at the beginning of an address with which nothing
 * is wrong; 0: the address has no host name.
 */
size_t kvr_address_named(const char *address);


#endif /* KVR_ADDRESS_H_INCLUDED */
