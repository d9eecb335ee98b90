/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "../../relay/kvr_relay_url.h"

#include "tap.h"

#include <string.h>


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
    { "redis://u:a@b:c@h", "h", 6379, 0, "u", "a@b:c", "h:6379/0", false },
    { "redis://u%3a:%2F%3f%23%40@h", "h", 6379, 0, "u:", "/?#@", "h:6379/0",
      false },
    { "unix:/run/r.sock", "/run/r.sock", 0, 0, "", "", "unix:/run/r.sock",
      false },
    { "unix:///run/r.sock?db=7", "/run/r.sock", 0, 7, "", "",
      "unix:/run/r.sock", false },
    { "unix:///run/a@b", "/run/a@b", 0, 0, "", "", "unix:/run/a@b", false },
    { "unix:r%3F", "r?", 0, 0, "", "", "unix:r?", false },
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
    { "rediss://u:p@", "has no host" },
    { "rediss://:6379", "has no host" },
    { "rediss://[]", "has no host" },
    { "rediss://[::1", "has a wrong host" },
    { "rediss://%", "has a wrong host" },
    { "rediss://%0", "has a wrong host" },
    { "rediss://%00", "has a wrong host" },
    { "rediss://%gg", "has a wrong host" },
    { "rediss://" LONG LONG LONG LONG, "has a wrong host" },
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
    { "rediss://h/65536", "has a wrong db" },
    { "rediss://h/-1", "has a wrong db" },
    { "rediss://h/1/2", "has a wrong db" },
    { "rediss://h?db=1", "has more than a db" },
    { "rediss://h#1", "has more than a db" },
    { "unix:", "has no path" },
    { "unix://", "has no path" },
    { "unix://u:p@", "has no path" },
    { "unix://u:@/r", "has a wrong user" },
    { "unix:/r?db=", "has a wrong db" },
    { "unix:/r?base=1", "has a wrong db" }
};


int
main(void)
{
    size_t            i;
    const char       *why;
    const good_t     *g;
    kvr_relay_url_t   url;

    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        g = &good[i];
        why = kvr_relay_url_parse(&url, g->text);

        ok(why == NULL && strcmp(url.host, g->host) == 0
           && url.port == g->port && url.db == g->db && url.tls == g->tls
           && strcmp(url.user, g->user) == 0
           && strcmp(url.password, g->password) == 0
           && strcmp(url.name, g->name) == 0,
           "%s is read", g->text);
    }

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        why = kvr_relay_url_parse(&url, bad[i].text);

        ok(why != NULL && strncmp(why, bad[i].why, strlen(bad[i].why)) == 0,
           "%.60s %s", bad[i].text, bad[i].why);
    }

    return done();
}
