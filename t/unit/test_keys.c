/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The names of Redis keys, and of the fields of its hashes.
 */


#include "wire/kvr_keys.h"
#include "wire/kvr_worker_conf.h"

#include "tap.h"


static bool
key_is(const char *name, const char *worker, const char *wanted)
{
    char    key[KVR_KEY_MAX];
    size_t  n;

    n = kvr_key(key, name, worker, strlen(worker));

    return n == strlen(wanted) && strcmp(key, wanted) == 0;
}


static bool
each_once(const char *const *fields, uint32_t n)
{
    uint32_t  i, j;

    for (i = 0; i < n; i++) {

        if (fields[i] == NULL || fields[i][0] == '\0') {
            return false;
        }

        for (j = 0; j < i; j++) {
            if (strcmp(fields[i], fields[j]) == 0) {
                return false;
            }
        }
    }

    return true;
}


int
main(void)
{
    uint32_t     i;
    const char  *members[KVR_MEMBER_FIELDS];
    char    key[KVR_KEY_MAX], id[KVR_WORKER_ID_MAX];
    size_t  n;

    ok(key_is(KVR_KEY_LOG, "w1", "kv-log:{w1}")
       && key_is(KVR_KEY_SNAPSHOT, "w1", "kv-snap:{w1}")
       && key_is(KVR_KEY_ASK, "w1", "kv-snap-ask:{w1}")
       && key_is(KVR_KEY_WORKER, "a:b", "kv-worker:{a:b}")
       && key_is(KVR_KEY_LEASE, "w1", "kv-lease:{w1}"),
       "a key has its worker in braces, for one slot of a cluster");

    n = kvr_key_part(key, "w1x", 2, 5, 7, false, 0);
    ok(n == strlen(key) && strcmp(key, "kv-snap:{w1}:5-7:0") == 0,
       "a part has the number of its snapshot, and its own");

    (void) kvr_key_part(key, "w1", 2, 5, 7, true, 12);
    ok(strcmp(key, "kv-snap:{w1}:5-7:s12") == 0,
       "and an s when it is for relays alone");

    memset(id, 'w', sizeof(id));
    n = kvr_key_part(key, id, sizeof(id), UINT64_MAX, UINT64_MAX, true,
                     UINT32_MAX);
    ok(n == strlen(key) && key[n - 1] == '5', "the longest of all has room");

    n = kvr_key(key, KVR_KEY_ASK, id, sizeof(id));
    ok(n == strlen(key) && key[n - 1] == '}', "so has the longest other");

    for (i = 0; i < KVR_MEMBER_FIELDS; i++) {
        members[i] = kvr_member_word(i);
    }

    ok(each_once(members, KVR_MEMBER_FIELDS)
       && each_once(kvr_pointer_fields, KVR_POINTER_FIELDS),
       "each field has a name of its own");

    return done();
}
