
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The last warnings: which are kept, counted and forgotten, and a process that
 * dies while it has the lock.
 */


#include <sys/mman.h>
#include <unistd.h>

#include "traffic/kvr_told.h"
#include "processes.h"
#include "tap.h"


static kvr_told_ring_t  *ring;
static kvr_told_t        all[KVR_TOLD];


static void
add(const char *text, uint64_t now_ms)
{
    kvr_told_add(ring, kvr_owner_self(), 5, text, strlen(text), now_ms);
}


static uint32_t
number(void)
{
    return kvr_told_read(ring, kvr_owner_self(), all);
}


static bool
is(uint32_t i, const char *text)
{
    return all[i].len == strlen(text)
           && memcmp(all[i].text, text, all[i].len) == 0;
}


static void
keep_lock(void)
{
    bool  broken;

    (void) kvr_lock_acquire(&ring->lock, kvr_owner_self(), 0, &broken);
}


int
main(void)
{
    int       status;
    char      text[2 * KVR_TOLD_TEXT + 1];
    uint32_t  i;

    ring = mmap(NULL, sizeof(*ring), PROT_READ|PROT_WRITE,
                MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    if (ring == MAP_FAILED) {
        return 1;
    }

    is_u64(number(), 0, "at first there is none");

    add("a", 1000);
    add("b", 2000);
    add("a", 3000);
    is_u64(number(), 2, "a warning that comes again takes no second place");
    ok(is(0, "a") && all[0].count == 2 && all[0].first_ms == 1000
       && all[0].last_ms == 3000 && all[0].level == 5,
       "but is counted, and is the newest one");
    ok(is(1, "b") && all[1].count == 1, "the other one is as it was");

    for (i = 0; i < KVR_TOLD - 1; i++) {
        snprintf(text, sizeof(text), "%u", i);
        add(text, 4000 + i);
    }

    is_u64(number(), KVR_TOLD, "there are so many places");
    ok(is(0, text) && is(KVR_TOLD - 1, "a"),
       "who was told longest ago is forgotten");

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    add(text, 5000);
    (void) number();
    is_u64(all[0].len, KVR_TOLD_TEXT, "a long text is cut");
    add(text, 6000);
    (void) number();
    is_u64(all[0].count, 2, "and known again");

    ring->places[0].len = UINT32_MAX;
    is_u64(number(), KVR_TOLD, "a length that was spoilt does no harm");

    (void) waitpid(start(keep_lock), &status, 0);
    add("late", 7000);
    (void) number();
    ok(is(0, "late"), "a process that died with the lock does not keep it");

    return done();
}
