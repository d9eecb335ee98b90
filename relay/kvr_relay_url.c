/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay_url.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define KVR_RELAY_DB_MAX  65535


static bool kvr_relay_url_decode(char out[KVR_RELAY_URL_PART],
    const char *text, size_t len);
static bool kvr_relay_url_number(const char *text, size_t len, uint32_t max,
    uint32_t *number);
static int kvr_relay_url_hex(char c);


const char *
kvr_relay_url_parse(kvr_relay_url_t *url, const char *text)
{
    size_t       len;
    const char  *p, *end, *at, *colon;

    memset(url, 0, sizeof(kvr_relay_url_t));

    if (strncmp(text, "unix:", 5) == 0) {
        p = text + 5;
        p += strncmp(p, "//", 2) == 0 ? 2 : 0;
        end = p + strcspn(p, "?");

        if (end == p || !kvr_relay_url_decode(url->host, p,
                                              (size_t) (end - p)))
        {
            return "has no path";
        }

        if (*end == '?'
            && (strncmp(end, "?db=", 4) != 0
                || !kvr_relay_url_number(end + 4, strlen(end + 4),
                                         KVR_RELAY_DB_MAX, &url->db)))
        {
            return "has a wrong db";
        }

        snprintf(url->name, sizeof(url->name), "unix:%s", url->host);

        return NULL;
    }

    if (strncmp(text, "rediss://", 9) == 0) {
        return "is rediss://: kv-relay has no TLS, use a local tunnel";
    }

    if (strncmp(text, "redis://", 8) != 0) {
        return "begins with neither redis:// nor unix:";
    }

    p = text + 8;
    end = p + strcspn(p, "/?#");

    /* a password may have an @ */

    for (at = end; at > p && at[-1] != '@'; at--) { /* void */ }

    if (at > p) {
        colon = memchr(p, ':', (size_t) (at - 1 - p));
        len = (size_t) ((colon ? colon : at - 1) - p);

        if (!kvr_relay_url_decode(url->user, p, len)
            || (colon && !kvr_relay_url_decode(url->password, colon + 1,
                                               (size_t) (at - colon - 2))))
        {
            return "has a wrong user or password";
        }

        p = at;
    }

    url->port = 6379;

    if (*p == '[') {
        colon = memchr(p, ']', (size_t) (end - p));

        if (colon == NULL
            || !kvr_relay_url_decode(url->host, p + 1,
                                     (size_t) (colon - p - 1)))
        {
            return "has a wrong host";
        }

        colon++;

    } else {
        colon = memchr(p, ':', (size_t) (end - p));
        colon = colon ? colon : end;

        if (!kvr_relay_url_decode(url->host, p, (size_t) (colon - p))) {
            return "has a wrong host";
        }
    }

    if (url->host[0] == '\0') {
        return "has no host";
    }

    if (colon != end
        && (*colon != ':'
            || !kvr_relay_url_number(colon + 1, (size_t) (end - colon - 1),
                                     65535, &url->port)
            || url->port == 0))
    {
        return "has a wrong port";
    }

    if (*end == '/' && end[1] != '\0'
        && !kvr_relay_url_number(end + 1, strlen(end + 1), KVR_RELAY_DB_MAX,
                                 &url->db))
    {
        return "has a wrong db";
    }

    if (*end == '?' || *end == '#') {
        return "has more than a db behind the port";
    }

    snprintf(url->name, sizeof(url->name),
             strchr(url->host, ':') ? "[%s]:%u/%u" : "%s:%u/%u", url->host,
             url->port, url->db);

    return NULL;
}


static bool
kvr_relay_url_decode(char out[KVR_RELAY_URL_PART], const char *text,
    size_t len)
{
    int     high, low;
    size_t  i, n;

    n = 0;

    for (i = 0; i < len; i++) {

        if (n == KVR_RELAY_URL_PART - 1) {
            return false;
        }

        if (text[i] != '%') {
            out[n++] = text[i];
            continue;
        }

        if (len - i < 3) {
            return false;
        }

        high = kvr_relay_url_hex(text[i + 1]);
        low = kvr_relay_url_hex(text[i + 2]);
        i += 2;

        if (high < 0 || low < 0 || high + low == 0) {
            return false;
        }

        out[n++] = (char) (high * 16 + low);
    }

    out[n] = '\0';

    return true;
}


static int
kvr_relay_url_hex(char c)
{
    static const char  digits[] = "0123456789abcdef";

    const char  *p;

    p = c ? strchr(digits, tolower((unsigned char) c)) : NULL;

    return p ? (int) (p - digits) : -1;
}


static bool
kvr_relay_url_number(const char *text, size_t len, uint32_t max,
    uint32_t *number)
{
    size_t  i;

    if (len == 0 || len > 5) {
        return false;
    }

    *number = 0;

    for (i = 0; i < len; i++) {
        if (!isdigit((unsigned char) text[i])) {
            return false;
        }

        *number = *number * 10 + (uint32_t) (text[i] - '0');
    }

    return *number <= max;
}
