/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_redis_url.h"
#include "kvr_decoder.h"

#include <stdio.h>
#include <strings.h>


#define KVR_REDIS_PORT     6379
#define KVR_SENTINEL_PORT  26379


static bool kvr_redis_url_begins(const char *text, size_t len,
    const char *scheme);
static const char *kvr_redis_url_unix(kvr_redis_url_t *url, const char *p,
    const char *last);
static const char *kvr_redis_url_tcp(kvr_redis_url_t *url, const char *p,
    const char *last, bool sentinel);
static const char *kvr_redis_url_master(kvr_redis_url_t *url, const char **p,
    const char *last);
static const char *kvr_redis_url_user(kvr_redis_url_t *url, const char **p,
    const char *last);
static const char *kvr_redis_url_host(kvr_redis_url_t *url, const char *p,
    const char *end);
static const char *kvr_redis_url_db(kvr_redis_url_t *url, const char *p,
    const char *last);
static bool kvr_redis_url_decode(char *out, size_t size, const char *p,
    const char *end);
static bool kvr_redis_url_number(const char *p, const char *end,
    uint64_t least, uint64_t most, uint32_t *number);
static const char *kvr_redis_url_find(const char *p, const char *last,
    const char *what);


bool
kvr_redis_url_is(const char *text, size_t len)
{
    return kvr_redis_url_begins(text, len, "redis://")
           || kvr_redis_url_begins(text, len, "rediss://")
           || kvr_redis_url_begins(text, len, "redis-sentinel://")
           || kvr_redis_url_begins(text, len, "rediss-sentinel://")
           || kvr_redis_url_begins(text, len, "unix:");
}


const char *
kvr_redis_url_parse(kvr_redis_url_t *url, const char *text, size_t len)
{
    const char  *last;

    memset(url, 0, sizeof(kvr_redis_url_t));

    last = text + len;

    if (kvr_redis_url_begins(text, len, "unix:")) {
        return kvr_redis_url_unix(url, text + 5, last);
    }

    if (kvr_redis_url_begins(text, len, "redis://")) {
        return kvr_redis_url_tcp(url, text + 8, last, false);
    }

    if (kvr_redis_url_begins(text, len, "rediss://")) {
        url->tls = true;
        return kvr_redis_url_tcp(url, text + 9, last, false);
    }

    if (kvr_redis_url_begins(text, len, "redis-sentinel://")) {
        return kvr_redis_url_tcp(url, text + 17, last, true);
    }

    if (kvr_redis_url_begins(text, len, "rediss-sentinel://")) {
        url->tls = true;
        return kvr_redis_url_tcp(url, text + 18, last, true);
    }

    return "begins with none of redis://, rediss://, redis-sentinel://, "
           "rediss-sentinel:// and unix:";
}


static bool
kvr_redis_url_begins(const char *text, size_t len, const char *scheme)
{
    return len >= strlen(scheme)
           && strncasecmp(text, scheme, strlen(scheme)) == 0;
}


static const char *
kvr_redis_url_unix(kvr_redis_url_t *url, const char *p, const char *last)
{
    const char  *end, *why;

    if (kvr_redis_url_begins(p, (size_t) (last - p), "//")) {
        p += 2;

        why = kvr_redis_url_user(url, &p, last);
        if (why != NULL) {
            return why;
        }
    }

    end = kvr_redis_url_find(p, last, "?");

    if (end - p < 2 || *p != '/') {
        return "has no path that begins with \"/\"";
    }

    if (!kvr_redis_url_decode(url->host, KVR_REDIS_URL_PART, p, end)) {
        return "has a wrong path";
    }

    if (end < last) {

        if (!kvr_redis_url_begins(end, (size_t) (last - end), "?db=")) {
            return "has a wrong db: only \"?db=N\" may follow the path";
        }

        why = kvr_redis_url_db(url, end + 4, last);
        if (why != NULL) {
            return why;
        }
    }

    snprintf(url->name, sizeof(url->name), "unix:%s", url->host);

    return NULL;
}


static const char *
kvr_redis_url_tcp(kvr_redis_url_t *url, const char *p, const char *last,
    bool sentinel)
{
    const char  *slash, *why;

    why = kvr_redis_url_user(url, &p, last);
    if (why != NULL) {
        return why;
    }

    slash = kvr_redis_url_find(p, last, "/");

    if (kvr_redis_url_find(p, slash, "?") != slash
        || kvr_redis_url_find(p, slash, "#") != slash)
    {
        return "has more than a db behind the port";
    }

    url->port = sentinel ? KVR_SENTINEL_PORT : KVR_REDIS_PORT;

    why = kvr_redis_url_host(url, p, slash);
    if (why != NULL) {
        return why;
    }

    if (sentinel) {
        why = kvr_redis_url_master(url, &slash, last);
        if (why != NULL) {
            return why;
        }
    }

    if (last - slash > 1) {
        why = kvr_redis_url_db(url, slash + 1, last);
        if (why != NULL) {
            return why;
        }
    }

    snprintf(url->name, sizeof(url->name),
             strchr(url->host, ':') ? "[%s]:%u/%s%s%u" : "%s:%u/%s%s%u",
             url->host, url->port, url->master, sentinel ? "/" : "", url->db);

    return NULL;
}


/* Reads the master's name; moves p to the slash behind it, or to the end. */

static const char *
kvr_redis_url_master(kvr_redis_url_t *url, const char **p, const char *last)
{
    const char  *start, *end;

    start = *p < last ? *p + 1 : last;
    end = kvr_redis_url_find(start, last, "/");

    if (memchr(start, ',', (size_t) (end - start))
        || !kvr_redis_url_decode(url->master, KVR_REDIS_URL_PART, start, end)
        || url->master[0] == '\0')
    {
        return "has no name of a master: "
               "redis-sentinel://host:port/MASTER was expected";
    }

    *p = end;

    return NULL;
}


/*
 * Reads user and password: the part before the last @ that precedes the first
 * slash, because a password can contain an @.  Moves p behind that @.
 */

static const char *
kvr_redis_url_user(kvr_redis_url_t *url, const char **p, const char *last)
{
    const char  *start, *at, *colon;

    start = *p;

    for (at = kvr_redis_url_find(start, last, "/");
         at > start && at[-1] != '@';
         at--)
    {
        /* void */
    }

    if (at == start) {
        return NULL;
    }

    *p = at--;

    colon = kvr_redis_url_find(start, at, ":");

    if (colon < at) {
        if (!kvr_redis_url_decode(url->user, KVR_REDIS_URL_PART, start, colon))
        {
            return "has a wrong user or password";
        }

        start = colon + 1;
    }

    if (!kvr_redis_url_decode(url->password, KVR_REDIS_URL_PASSWORD, start, at)
        || url->password[0] == '\0')
    {
        return "has a wrong user or password";
    }

    return NULL;
}


static const char *
kvr_redis_url_host(kvr_redis_url_t *url, const char *p, const char *end)
{
    const char  *from, *colon, *behind;

    from = p;
    colon = kvr_redis_url_find(p, end, ":");
    behind = colon;

    if (p < end && *p == '[') {
        from = p + 1;
        colon = kvr_redis_url_find(from, end, "]");

        if (colon == end) {
            return "has a wrong host";
        }

        behind = colon + 1;
    }

    if (!kvr_redis_url_decode(url->host, KVR_REDIS_URL_PART, from, colon)) {
        return "has a wrong host";
    }

    if (url->host[0] == '\0') {
        return "has no host";
    }

    if (behind < end
        && (*behind != ':'
            || !kvr_redis_url_number(behind + 1, end, 1, UINT16_MAX,
                                     &url->port)))
    {
        return "has a wrong port: it must be 1..65535";
    }

    return NULL;
}


static const char *
kvr_redis_url_db(kvr_redis_url_t *url, const char *p, const char *last)
{
    return kvr_redis_url_number(p, last, 0, INT32_MAX, &url->db)
           ? NULL : "has a wrong db: it must be 0..2147483647";
}


/* False: a null byte, a wrong %XX, or more than size - 1 bytes. */

static bool
kvr_redis_url_decode(char *out, size_t size, const char *p, const char *end)
{
    char    c;
    size_t  n;

    for (n = 0; p < end; p++) {

        c = *p;

        if (c == '%') {

            if (end - p < 3 || kvr_hex_digits(p + 1, 2) != 2) {
                return false;
            }

            c = (char) kvr_hex_value(p + 1, 2);
            p += 2;
        }

        if (c == '\0' || n == size - 1) {
            return false;
        }

        out[n++] = c;
    }

    out[n] = '\0';

    return true;
}


static bool
kvr_redis_url_number(const char *p, const char *end, uint64_t least,
    uint64_t most, uint32_t *number)
{
    uint64_t  n;

    if (!kvr_u64_parse(p, (size_t) (end - p), &n) || n < least || n > most) {
        return false;
    }

    *number = (uint32_t) n;

    return true;
}


/* Finds `what`; returns its position, or last. */

static const char *
kvr_redis_url_find(const char *p, const char *last, const char *what)
{
    size_t  len;

    len = strlen(what);

    for ( /* void */ ; (size_t) (last - p) >= len; p++) {
        if (memcmp(p, what, len) == 0) {
            return p;
        }
    }

    return last;
}


size_t
kvr_redis_url_mask(char *out, const char *text, size_t len)
{
    char        *p;
    const char  *start, *at, *colon, *last;

    last = text + len;

    start = kvr_redis_url_find(text, last, "://");
    start = (start < last) ? start + 3 : text;

    at = start;

    if (start > text || !kvr_redis_url_begins(text, len, "unix:/")) {
        for (at = last; at > start && at[-1] != '@'; at--) { /* void */ }
    }

    p = out;

    if (at > start) {
        at--;
        colon = kvr_redis_url_find(start, at, ":");
        start = (colon < at) ? colon + 1 : start;

        memcpy(p, text, (size_t) (start - text));
        p += start - text;

        memcpy(p, "***", KVR_REDIS_URL_MASK);
        p += KVR_REDIS_URL_MASK;

        text = at;
    }

    memcpy(p, text, (size_t) (last - text));
    p += last - text;

    /* other clients write the password as "?password=…" */

    start = kvr_redis_url_find(out, p, "password=");

    return (size_t) ((start < p ? start + 9 : p) - out);
}
