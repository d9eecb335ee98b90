/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_address.h"

#include <arpa/inet.h>
#include <sys/un.h>


#define KVR_ADDRESS_PORT  5             /* digits */
#define KVR_ADDRESS_PATH  sizeof(((struct sockaddr_un *) 0)->sun_path)


static bool kvr_address_port(const char *text);


const char *
kvr_address_wrong(const char *address)
{
    char             host[KVR_ADDRESS_MAX + 1];
    size_t           len;
    const char      *colon, *p;
    struct in_addr   in;
    struct in6_addr  in6;

    if (address[0] == '\0') {
        return "is missing";
    }

    for (p = address; *p; p++) {
        if (*p < 0x21 || *p > 0x7e) {
            return "a character that is not of an address";
        }
    }

    if (strncmp(address, "unix:", 5) == 0) {

        if (address[5] != '/') {
            return "the path of a unix: address must be absolute";
        }

        return strlen(address + 5) < KVR_ADDRESS_PATH
               ? NULL : "the path of the unix: address is too long";
    }

    if (strchr(address, '/')) {
        return "no scheme and no path can be in it";
    }

    colon = strrchr(address, ':');

    if (colon == NULL) {
        return "the port is missing: \"host:port\" was expected";
    }

    if (!kvr_address_port(colon + 1)) {
        return "the port must be 1..65535";
    }

    len = (size_t) (colon - address);

    if (len > KVR_ADDRESS_MAX) {
        return "is too long";
    }

    memcpy(host, address, len);
    host[len] = '\0';

    if (host[0] == '[') {

        if (host[len - 1] != ']') {
            return "the IPv6 address needs a ] at its end";
        }

        host[len - 1] = '\0';

        return inet_pton(AF_INET6, host + 1, &in6) == 1
               ? NULL : "no valid IPv6 address";
    }

    if (strchr(host, ':')) {
        return "an IPv6 address needs brackets: \"[::1]:8000\"";
    }

    if (inet_pton(AF_INET, host, &in) != 1) {
        return "host names are not supported here yet, use an address: "
               "\"127.0.0.1:8000\", \"[::1]:8000\" or \"unix:/path\"";
    }

    return NULL;
}


static bool
kvr_address_port(const char *text)
{
    uint32_t  i, port;

    port = 0;

    for (i = 0; text[i] >= '0' && text[i] <= '9' && i < KVR_ADDRESS_PORT;
         i++)
    {
        port = port * 10 + (uint32_t) (text[i] - '0');
    }

    return text[i] == '\0' && port >= 1 && port <= 65535;
}
