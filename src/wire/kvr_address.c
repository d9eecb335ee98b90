/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_address.h"
#include "kvr_decoder.h"

#include <arpa/inet.h>
#include <sys/un.h>


#define KVR_ADDRESS_PORT   5            /* digits */
#define KVR_ADDRESS_LABEL  63           /* bytes between dots */
#define KVR_ADDRESS_PATH   sizeof(((struct sockaddr_un *) 0)->sun_path)


static const char *kvr_address_v6(char *host, size_t len);
static const char *kvr_address_name(const char *host);
static bool kvr_address_port(const char *text);


const char *
kvr_address_wrong(const char *address)
{
    char             host[KVR_ADDRESS_MAX + 1];
    size_t           len;
    const char      *colon, *p;
    struct in_addr   in;

    if (address[0] == '\0') {
        return "the address is missing";
    }

    for (p = address; *p; p++) {
        if (*p < 0x21 || *p > 0x7e) {
            return "the address has a character that is not of an address";
        }
    }

    if (strncmp(address, "unix:", 5) == 0) {

        if (address[5] != '/') {
            return "the path of a unix: address must be absolute";
        }

        return strlen(address + 5) < KVR_ADDRESS_PATH
               ? NULL : "the path of the unix: address is too long";
    }

    if (strstr(address, "://")) {
        return "an address has no scheme, as all workers of a zone have the "
               "scheme of \"proxy_pass\": write \"host:port\" alone";
    }

    if (strchr(address, '/')) {
        return "an address has no path: write \"host:port\" alone";
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
        return "the address is too long";
    }

    memcpy(host, address, len);
    host[len] = '\0';

    if (host[0] == '[') {
        return kvr_address_v6(host, len);
    }

    if (strchr(host, ':')) {
        return "an IPv6 address needs brackets: \"[::1]:8000\"";
    }

    return inet_pton(AF_INET, host, &in) == 1 ? NULL : kvr_address_name(host);
}


static const char *
kvr_address_v6(char *host, size_t len)
{
    struct in6_addr  in6;

    if (host[len - 1] != ']') {
        return "the IPv6 address needs a ] at its end";
    }

    host[len - 1] = '\0';

    return inet_pton(AF_INET6, host + 1, &in6) == 1
           ? NULL : "the address is no valid IPv6 address";
}


/*
 * Checks a host name: labels of letters, digits, hyphens and underscores, with
 * dots between them.  The last label must have a letter: "127.0.0.256" is a
 * wrong address and not a name.
 */

static const char *
kvr_address_name(const char *host)
{
    bool         letter;
    size_t       len;
    const char  *p;

    static const char  wrong[] = "the host is neither an IP address nor a "
                                 "host name";

    letter = false;
    len = 0;

    for (p = host; *p; p++) {

        if (*p == '.') {

            if (len == 0) {
                return wrong;
            }

            if (p[1] != '\0') {
                len = 0;
                letter = false;
            }

            continue;
        }

        if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')) {
            letter = true;

        } else if ((*p < '0' || *p > '9') && *p != '-' && *p != '_') {
            return wrong;
        }

        if (++len > KVR_ADDRESS_LABEL) {
            return wrong;
        }
    }

    return letter ? NULL : wrong;
}


size_t
kvr_address_named(const char *address)
{
    char             host[INET_ADDRSTRLEN];
    size_t           len;
    struct in_addr   in;

    if (address[0] == '\0' || address[0] == '['
        || strncmp(address, "unix:", 5) == 0)
    {
        return 0;
    }

    len = strcspn(address, ":");

    if (len >= sizeof(host)) {
        return len;
    }

    memcpy(host, address, len);
    host[len] = '\0';

    return inet_pton(AF_INET, host, &in) == 1 ? 0 : len;
}


static bool
kvr_address_port(const char *text)
{
    size_t    len;
    uint64_t  port;

    len = strlen(text);

    return len <= KVR_ADDRESS_PORT && kvr_u64_parse(text, len, &port)
           && port >= 1 && port <= 65535;
}
