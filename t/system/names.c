/*
 * Copyright (C) the nginx-kv-router authors
 *
 * To be preloaded: "localhost" takes 6 seconds to look up, as with a first
 * nameserver that does not answer; "two.test" has the addresses 127.0.0.2 and
 * 127.0.0.1.
 */


#define _GNU_SOURCE

#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>


#define KVR_NAMES_SLOW  6


typedef int (*kvr_names_pt)(const char *name, const char *service,
    const struct addrinfo *hints, struct addrinfo **found);


int
getaddrinfo(const char *restrict name, const char *restrict service,
    const struct addrinfo *restrict hints, struct addrinfo **restrict found)
{
    int           rc;
    kvr_names_pt  real;

    real = (kvr_names_pt) dlsym(RTLD_NEXT, "getaddrinfo");

    if (name != NULL && strcmp(name, "localhost") == 0) {
        sleep(KVR_NAMES_SLOW);
    }

    if (name != NULL && strcmp(name, "two.test") == 0) {
        rc = real("127.0.0.2", service, hints, found);

        return rc ? rc : real("127.0.0.1", service, hints,
                              &(*found)->ai_next);
    }

    return real(name, service, hints, found);
}
