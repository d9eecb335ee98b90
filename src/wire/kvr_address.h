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
 * Returns NULL when requests can be sent to the address, otherwise what is
 * wrong: a static sentence.  The address ends with NUL and can have any
 * length.
 */
const char *kvr_address_wrong(const char *address);

/*
 * Returns the length of the host name at the beginning of a correct address.
 * 0: the address has no host name.
 */
size_t kvr_address_named(const char *address);


#endif /* KVR_ADDRESS_H_INCLUDED */
