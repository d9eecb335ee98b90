/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Host names of workers: how they are written, who resolves them when, and
 * what is read of it.
 */


#include "traffic/kvr_name.h"
#include "wire/kvr_address.h"
#include "tap.h"


#define DAY  86400000u


static kvr_name_found_t
found(uint64_t mark, const char *address)
{
    kvr_name_found_t  f;

    memset(&f, 0, sizeof(f));
    f.mark = mark;
    f.naddrs = 1;
    strcpy(f.address, address);

    return f;
}


static void
addresses(void)
{
    char    text[300];
    size_t  i;

    static const char  *names[] = {
        "localhost:1", "engine-1:8000", "engine_1.example.com:8000",
        "a.b.c.:65535", "1.2.3.four:80", "0x7f.example:80", "xn--bcher-kva.de:1"
    };

    static const char  *wrong[] = {
        ":80", ".:80", ".a:80", "a..b:80", "a b:80", "a!:80", "a:", "a:0",
        "127.0.0.256:80", "127.1:80", "1:80", "a.1:80", "a@b:80", "a%b:80",
        "a.b.c..:80", "b\xc3\xbc" "cher:80", "http://a:80", "a/b:80", "a"
    };

    static const char  *literal[] = {
        "127.0.0.1:80", "[::1]:80", "unix:/run/engine.sock", ""
    };

    for (i = 0; i < sizeof(names) / sizeof(char *); i++) {
        ok(kvr_address_wrong(names[i]) == NULL
           && kvr_address_named(names[i])
              == (size_t) (strchr(names[i], ':') - names[i]),
           "\"%s\" has a name", names[i]);
    }

    for (i = 0; i < sizeof(wrong) / sizeof(char *); i++) {
        ok(kvr_address_wrong(wrong[i]) != NULL, "\"%s\" is no address",
           wrong[i]);
    }

    for (i = 0; i < sizeof(literal) / sizeof(char *); i++) {
        ok(kvr_address_named(literal[i]) == 0, "\"%s\" has no name",
           literal[i]);
    }

    ok(strstr(kvr_address_wrong("https://10.0.0.1:80"), "scheme") != NULL
       && strstr(kvr_address_wrong("10.0.0.1:80/v1"), "path") != NULL,
       "an address with a scheme is told from one with a path");

    memset(text, 'x', sizeof(text));
    strcpy(&text[63], ":80");
    ok(kvr_address_wrong(text) == NULL, "a label may have 63 bytes");

    text[63] = 'x';
    strcpy(&text[64], ":80");
    ok(kvr_address_wrong(text) != NULL, "and no more");
}


static void
turns(void)
{
    uint64_t          now;
    kvr_name_t        n;
    kvr_name_found_t  f, got;

    memset(&n, 0, sizeof(n));
    now = 1000;

    ok(kvr_name_due(&n, 7, now), "a name that nobody resolved is due");
    ok(!kvr_name_due(&n, 7, now + KVR_NAME_LEASE_MS - 1),
       "for one process alone");
    ok(kvr_name_due(&n, 7, now + KVR_NAME_LEASE_MS),
       "until that must have died");
    ok(!kvr_name_read(&n, 7, &got) && got.address[0] == '\0',
       "nothing is known of it yet");

    f = found(7, "10.0.0.1:80");
    ok(kvr_name_write(&n, &f, now + DAY), "its first result is a change");
    ok(kvr_name_read(&n, 7, &got)
       && strcmp(got.address, "10.0.0.1:80") == 0, "and is read");
    ok(!kvr_name_due(&n, 7, now + DAY - 1) && kvr_name_due(&n, 7, now + DAY),
       "it is due again when it said");

    ok(!kvr_name_write(&n, &f, now + DAY), "the same result is no change");

    f.error = 3;
    f.address[0] = '\0';
    memset(f.address, 0, sizeof(f.address));
    ok(kvr_name_write(&n, &f, now + DAY) && kvr_name_read(&n, 7, &got)
       && got.error == 3 && got.address[0] == '\0', "a failure is one");

    ok(kvr_name_due(&n, 8, now), "another name of the worker is due at once");
    ok(!kvr_name_due(&n, 8, now), "for one process alone");
    ok(!kvr_name_read(&n, 8, &got), "nothing is known of it yet");

    f = found(7, "10.0.0.1:80");
    ok(!kvr_name_write(&n, &f, now + DAY) && !kvr_name_read(&n, 8, &got),
       "a late result for the old name is not taken");

    f = found(8, "10.0.0.2:80");
    ok(kvr_name_write(&n, &f, now + DAY) && kvr_name_read(&n, 8, &got)
       && strcmp(got.address, "10.0.0.2:80") == 0,
       "the new one's is");

    /* the writer of the old name was slower than its look at the mark */

    n.found.mark = 7;
    ok(kvr_name_due(&n, 8, now)
       && !kvr_name_due(&n, 8, now + KVR_NAME_LEASE_MS - 1),
       "a result of another name is replaced soon");

    n.seq |= 1;
    ok(!kvr_name_read(&n, 7, &got), "half a result is not read");
    ok(kvr_name_write(&n, &f, now) && kvr_name_read(&n, 8, &got),
       "and the next one is whole");
}


int
main(void)
{
    addresses();
    turns();

    return done();
}
