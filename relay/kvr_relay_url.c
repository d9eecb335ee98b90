/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay_url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>


#define KVR_RELAY_DB_MAX  65535


static const char *kvr_relay_url_unix(kvr_relay_url_t *url, const char *p);
static bool kvr_relay_url_user(kvr_relay_url_t *url, const char *text,
    size_t len);
static const char *kvr_relay_url_host(kvr_relay_url_t *url, const char *p,
    const char *end);
static bool kvr_relay_url_decode(char out[KVR_RELAY_URL_PART],
    const char *text, size_t len);
static bool kvr_relay_url_number(const char *text, size_t len, uint32_t max,
    uint32_t *number);
static int kvr_relay_url_hex(char c);


const char *
kvr_relay_url_parse(kvr_relay_url_t *url, const char *text)
{
    const char  *p, *end, *at, *why;

    memset(url, 0, sizeof(kvr_relay_url_t));

    if (strncasecmp(text, "unix:", 5) == 0) {
        return kvr_relay_url_unix(url, text + 5);
    }

    if (strncasecmp(text, "redis://", 8) == 0) {
        p = text + 8;

    } else if (strncasecmp(text, "rediss://", 9) == 0) {
        p = text + 9;
        url->tls = true;

    } else {
        return "begins with none of redis://, rediss:// and unix:";
    }

    end = p + strcspn(p, "/?#");

    /* a password may have an @ */

    for (at = end; at > p && at[-1] != '@'; at--) { /* void */ }

    if (at > p && !kvr_relay_url_user(url, p, (size_t) (at - 1 - p))) {
        return "has a wrong user or password";
    }

    url->port = 6379;

    why = kvr_relay_url_host(url, at, end);
    if (why != NULL) {
        return why;
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


static const char *
kvr_relay_url_unix(kvr_relay_url_t *url, const char *p)
{
    const char  *end, *at;

    if (strncmp(p, "//", 2) == 0) {
        p += 2;
        end = p + strcspn(p, "/");

        for (at = end; at > p && at[-1] != '@'; at--) { /* void */ }

        if (at > p && !kvr_relay_url_user(url, p, (size_t) (at - 1 - p))) {
            return "has a wrong user or password";
        }

        p = at;
    }

    end = p + strcspn(p, "?");

    if (end == p || !kvr_relay_url_decode(url->host, p, (size_t) (end - p))) {
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


/* A lone word is the password, as redis-cli and the router have it. */

static bool
kvr_relay_url_user(kvr_relay_url_t *url, const char *text, size_t len)
{
    const char  *colon, *end;

    end = text + len;
    colon = memchr(text, ':', len);

    if (colon != NULL) {
        if (!kvr_relay_url_decode(url->user, text, (size_t) (colon - text))) {
            return false;
        }

        text = colon + 1;
    }

    return kvr_relay_url_decode(url->password, text, (size_t) (end - text))
           && url->password[0] != '\0';
}


static const char *
kvr_relay_url_host(kvr_relay_url_t *url, const char *p, const char *end)
{
    bool         good;
    const char  *colon;

    if (*p == '[') {
        colon = memchr(p, ']', (size_t) (end - p));
        good = colon && kvr_relay_url_decode(url->host, p + 1,
                                             (size_t) (colon - p - 1));
        colon = colon ? colon + 1 : end;

    } else {
        colon = memchr(p, ':', (size_t) (end - p));
        colon = colon ? colon : end;
        good = kvr_relay_url_decode(url->host, p, (size_t) (colon - p));
    }

    if (!good) {
        return "has a wrong host";
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
