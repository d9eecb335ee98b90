/*
 * Copyright (C) the nginx-kv-router authors
 *
 * URLs of Redis: taken to pieces, refused with the reason, and shown without
 * their secrets.
 */


#include "wire/kvr_redis_url.h"

#include "tap.h"

#include <stdlib.h>


#define LONG  "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh"


typedef struct {
    const char  *text;
    const char  *host;
    uint32_t     port;
    uint32_t     db;
    const char  *user;
    const char  *password;
    const char  *name;
    bool         tls;
} good_t;


typedef struct {
    const char  *text;
    const char  *why;
} bad_t;


static const good_t  good[] = {

    { "redis://h", "h", 6379, 0, "", "", "h:6379/0", false },
    { "redis://h/", "h", 6379, 0, "", "", "h:6379/0", false },
    { "redis://10.0.0.1:1/3", "10.0.0.1", 1, 3, "", "", "10.0.0.1:1/3",
      false },
    { "rediss://h", "h", 6379, 0, "", "", "h:6379/0", true },
    { "rediss://h.example:6380/65535", "h.example", 6380, 65535, "", "",
      "h.example:6380/65535", true },
    { "REDISS://h", "h", 6379, 0, "", "", "h:6379/0", true },
    { "Redis://h", "h", 6379, 0, "", "", "h:6379/0", false },
    { "rediss://[::1]:6380", "::1", 6380, 0, "", "", "[::1]:6380/0", true },
    { "redis://[fe80::1]", "fe80::1", 6379, 0, "", "", "[fe80::1]:6379/0",
      false },
    { "rediss://u:p@h:1/2", "h", 1, 2, "u", "p", "h:1/2", true },
    { "rediss://p@h", "h", 6379, 0, "", "p", "h:6379/0", true },
    { "redis://:p@h", "h", 6379, 0, "", "p", "h:6379/0", false },
    { "redis://:a?b#c@h", "h", 6379, 0, "", "a?b#c", "h:6379/0", false },
    { "redis://h/2147483647", "h", 6379, 2147483647, "", "",
      "h:6379/2147483647", false },
    { "redis://u:a@b:c@h", "h", 6379, 0, "u", "a@b:c", "h:6379/0", false },
    { "redis://u%3a:%2F%3f%23%40@h", "h", 6379, 0, "u:", "/?#@", "h:6379/0",
      false },
    { "redis-sentinel://h/m", "h", 26379, 0, "", "", "h:26379/m/0", false },
    { "redis-sentinel://u:p@h:1/m%2F1/7", "h", 1, 7, "u", "p", "h:1/m/1/7",
      false },
    { "rediss-sentinel://[::1]/m/", "::1", 26379, 0, "", "",
      "[::1]:26379/m/0", true },
    { "REDIS-SENTINEL://h/m", "h", 26379, 0, "", "", "h:26379/m/0", false },
    { "unix:/run/r.sock", "/run/r.sock", 0, 0, "", "", "unix:/run/r.sock",
      false },
    { "unix:///run/r.sock?db=7", "/run/r.sock", 0, 7, "", "",
      "unix:/run/r.sock", false },
    { "unix:///run/a@b", "/run/a@b", 0, 0, "", "", "unix:/run/a@b", false },
    { "unix:/r%3F", "/r?", 0, 0, "", "", "unix:/r?", false },
    { "UNIX:/r", "/r", 0, 0, "", "", "unix:/r", false },
    { "unix://u:p%40@/r", "/r", 0, 0, "u", "p@", "unix:/r", false },
    { "unix://p@/r?db=1", "/r", 0, 1, "", "p", "unix:/r", false }
};


static const bad_t  bad[] = {

    { "", "begins with none" },
    { "h", "begins with none" },
    { "http://h", "begins with none" },
    { "rediss:/h", "begins with none" },
    { "redisss://h", "begins with none" },
    { "redis://", "has no host" },
    { "redis-sentinel://", "has no host" },
    { "redis-sentinel://h", "has no name of a master" },
    { "redis-sentinel://h/", "has no name of a master" },
    { "redis-sentinel://h//1", "has no name of a master" },
    { "redis-sentinel://h/a,b", "has no name of a master" },
    { "redis-sentinel://h/%00", "has no name of a master" },
    { "redis-sentinel://h:1,i:2/m", "has a wrong port" },
    { "redis-sentinel://h/m/x", "has a wrong db" },
    { "rediss://u:p@", "has no host" },
    { "rediss://:6379", "has no host" },
    { "rediss://[]", "has no host" },
    { "rediss://[::1", "has a wrong host" },
    { "rediss://%", "has a wrong host" },
    { "rediss://%0", "has a wrong host" },
    { "rediss://%00", "has a wrong host" },
    { "rediss://%gg", "has a wrong host" },
    { "rediss://" LONG LONG LONG LONG, "has a wrong host" },
    { "redis://[::1:6379", "has a wrong host" },
    { "rediss://h:", "has a wrong port" },
    { "rediss://h:0", "has a wrong port" },
    { "rediss://h:65536", "has a wrong port" },
    { "rediss://h:99999999999", "has a wrong port" },
    { "rediss://h:-1", "has a wrong port" },
    { "rediss://[::1]1", "has a wrong port" },
    { "rediss://::1", "has no host" },
    { "rediss://@h", "has a wrong user" },
    { "rediss://u:@h", "has a wrong user" },
    { "rediss://u:%zz@h", "has a wrong user" },
    { "rediss://" LONG LONG LONG LONG ":p@h", "has a wrong user" },
    { "rediss://h/x", "has a wrong db" },
    { "rediss://h/2147483648", "has a wrong db" },
    { "rediss://h/18446744073709551616", "has a wrong db" },
    { "rediss://h/-1", "has a wrong db" },
    { "rediss://h/1/2", "has a wrong db" },
    { "rediss://h?db=1", "has more than a db" },
    { "rediss://h#1", "has more than a db" },
    { "redis://h?password=secret", "has more than a db" },
    { "unix:", "has no path" },
    { "unix:/", "has no path" },
    { "unix:relative", "has no path" },
    { "unix://relative", "has no path" },
    { "unix://me:secret@relative", "has no path" },
    { "unix:me:secret@relative", "has no path" },
    { "unix:/%00", "has a wrong path" },
    { "unix:/" LONG LONG LONG LONG, "has a wrong path" },
    { "unix://", "has no path" },
    { "unix://u:p@", "has no path" },
    { "unix://u:@/r", "has a wrong user" },
    { "unix:/r?db=", "has a wrong db" },
    { "unix:/r?base=1", "has a wrong db" },
    { "unix:/r?db=1&password=secret", "has a wrong db" }
};


/* What is shown of a text, be it a URL or not. */

static const char *const  masked[][2] = {

    { "redis://h:1/2", "redis://h:1/2" },
    { "redis://me:secret@h:1/2", "redis://me:***@h:1/2" },
    { "redis://secret@h", "redis://***@h" },
    { "redis://:secret@h", "redis://:***@h" },
    { "redis://me:se:cr@et@h", "redis://me:***@h" },
    { "redis://me:secret@", "redis://me:***@" },
    { "redis://unix:secret@h", "redis://unix:***@h" },
    { "redis://unix:/secret@h", "redis://unix:***@h" },
    { "http://me:secret@h", "http://me:***@h" },
    { "me:secret@h", "me:***@h" },
    { "secret@h", "***@h" },
    { "unix:/run/a@b", "unix:/run/a@b" },
    { "unix:me:secret@relative", "unix:***@relative" },
    { "unix://me:secret@/r?db=1", "unix://me:***@/r?db=1" },
    { "unix:/r?db=1&password=secret", "unix:/r?db=1&password=" },
    { "redis://h?password=secret", "redis://h?password=" },
    { "replay=on", "replay=on" },
    { "", "" }
};


/* A copy of no more bytes than the text has. */

static char *
copy(const char *text, size_t room)
{
    char  *bytes;

    bytes = malloc(strlen(text) + room + 1);
    memcpy(bytes, text, strlen(text));

    return bytes;
}


static const char *
parse(kvr_redis_url_t *url, const char *text)
{
    char        *bytes;
    const char  *why;

    bytes = copy(text, 0);
    why = kvr_redis_url_parse(url, bytes, strlen(text));
    free(bytes);

    return why;
}


static void
test_mask(const char *text, const char *shown)
{
    char    *bytes, *out;
    size_t   n;

    bytes = copy(text, 0);
    out = copy("", strlen(text) + KVR_REDIS_URL_MASK);
    n = kvr_redis_url_mask(out, bytes, strlen(text));

    ok(n == strlen(shown) && memcmp(out, shown, n) == 0,
       "\"%s\" is shown as \"%s\"", text, shown);

    free(out);
    free(bytes);
}


static void
test_long_password(void)
{
    char             text[KVR_REDIS_URL_PASSWORD + 32];
    kvr_redis_url_t  url;

    strcpy(text, "redis://:");
    memset(text + 9, 'p', KVR_REDIS_URL_PASSWORD - 1);
    strcpy(text + 9 + KVR_REDIS_URL_PASSWORD - 1, "@h");

    ok(parse(&url, text) == NULL
       && strlen(url.password) == KVR_REDIS_URL_PASSWORD - 1
       && strcmp(url.host, "h") == 0, "a password of 4095 bytes is taken");

    strcpy(text + 9 + KVR_REDIS_URL_PASSWORD - 1, "p@h");

    ok(parse(&url, text) != NULL, "and none of 4096");
}


int
main(void)
{
    size_t            i;
    const char       *why;
    const good_t     *g;
    kvr_redis_url_t   url;

    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        g = &good[i];
        why = parse(&url, g->text);

        ok(why == NULL && kvr_redis_url_is(g->text, strlen(g->text))
           && strcmp(url.host, g->host) == 0
           && url.port == g->port && url.db == g->db && url.tls == g->tls
           && strcmp(url.user, g->user) == 0
           && strcmp(url.password, g->password) == 0
           && strcmp(url.name, g->name) == 0,
           "%s is read", g->text);
    }

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        why = parse(&url, bad[i].text);

        ok(why != NULL && strncmp(why, bad[i].why, strlen(bad[i].why)) == 0,
           "%.60s %s", bad[i].text, bad[i].why);
    }

    for (i = 0; i < sizeof(masked) / sizeof(masked[0]); i++) {
        test_mask(masked[i][0], masked[i][1]);
    }

    test_long_password();

    ok(kvr_redis_url_parse(&url, "redis://h\0i", 11) != NULL,
       "a null byte is of no host");
    ok(!kvr_redis_url_is("redis:/h", 8) && !kvr_redis_url_is("unix", 4)
       && !kvr_redis_url_is("", 0), "other texts are no URLs of Redis");

    return done();
}
