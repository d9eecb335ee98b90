/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Histograms of times, what a worker served, and tallies of words.
 */


#include <pthread.h>
#include <stdlib.h>

#include "traffic/kvr_histogram.h"
#include "traffic/kvr_tally.h"
#include "tap.h"


#define THREADS  4
#define ROUNDS   20000


static void
bounds(void)
{
    bool             up;
    uint32_t         i, k;
    const uint32_t  *b;
    kvr_histogram_t  h;

    for (k = 0; k < KVR_TIMES; k++) {
        b = kvr_histogram_bounds(k);
        up = true;

        for (i = 1; i < KVR_HISTOGRAM_BOUNDS; i++) {
            up = up && b[i - 1] < b[i];
        }

        ok(up, "the bounds of kind %u ascend", k);

        memset(&h, 0, sizeof(h));
        kvr_histogram_add(&h, k, b[3]);
        kvr_histogram_add(&h, k, b[3] + 1);
        kvr_histogram_add(&h, k, (int64_t) b[KVR_HISTOGRAM_BOUNDS - 1] + 1);
        kvr_histogram_add(&h, k, -5);

        is_u64(h.counts[3], 1, "a time that equals a bound belongs to it");
        is_u64(h.counts[4], 1, "a longer one to the next");
        is_u64(h.counts[KVR_HISTOGRAM_BOUNDS], 1,
               "the longest is beyond all bounds");
        is_u64(h.counts[0], 1, "a negative time counts as none");
        is_u64(h.sum, 2 * (uint64_t) b[3] + 2 + b[KVR_HISTOGRAM_BOUNDS - 1],
               "the sum has them all");
    }
}


static void
served(void)
{
    kvr_served_t  s, out;

    memset(&s, 0, sizeof(s));

    kvr_served_add(&s, 7, 200, 30000);
    kvr_served_add(&s, 7, 503, -1);
    kvr_served_add(&s, 7, 0, -1);
    kvr_served_add(&s, 7, 99, -1);
    kvr_served_read(&s, 7, &out);

    is_u64(out.statuses[1], 1, "one answer was 2xx");
    is_u64(out.statuses[4], 1, "one was 5xx");
    is_u64(out.statuses[5], 2, "two had no status");
    is_u64(out.first_byte.sum, 30000, "one first byte came");

    kvr_served_read(&s, 8, &out);
    is_u64(out.statuses[1], 0, "another worker has served nothing");

    kvr_served_add(&s, 8, 200, 10);
    kvr_served_read(&s, 8, &out);
    is_u64(out.statuses[1] + out.statuses[4], 1,
           "the next worker in the place begins at zero");
    is_u64(out.first_byte.sum, 10, "with its times, too");
}


static void *
say(void *data)
{
    char      word[16];
    uint32_t  i;

    for (i = 0; i < ROUNDS; i++) {
        kvr_tally_add(data, word,
                      (size_t) snprintf(word, sizeof(word), "w%u", i % 10));
    }

    return NULL;
}


static void
tally(void)
{
    char          word[KVR_TALLY_LEN + 8];
    size_t        len;
    uint32_t      i, found;
    uint64_t      n, sum;
    pthread_t     t[THREADS];
    kvr_tally_t  *tally;
    const char   *told;

    tally = calloc(1, sizeof(kvr_tally_t));

    for (i = 0; i < THREADS; i++) {
        (void) pthread_create(&t[i], NULL, say, tally);
    }

    for (i = 0; i < THREADS; i++) {
        (void) pthread_join(t[i], NULL);
    }

    found = 0;

    for (i = 0; i < KVR_TALLY_WORDS; i++) {
        n = kvr_tally_read(tally, i, &told, &len);

        if (n) {
            found++;

            if (n != THREADS * ROUNDS / 10 || len != 2 || told[0] != 'w') {
                ok(false, "\"%.*s\" was counted %" PRIu64 " times",
                   (int) len, told, n);
            }
        }
    }

    is_u64(found, 10, "ten words have ten places, whoever came first");

    for (i = 0; i < KVR_TALLY_WORDS; i++) {
        kvr_tally_add(tally, word,
                      (size_t) snprintf(word, sizeof(word), "x%u", i));
    }

    is_u64(tally->others, 10, "words without a place are counted together");

    memset(tally, 0, sizeof(kvr_tally_t));
    memset(word, 'y', sizeof(word));
    kvr_tally_add(tally, word, sizeof(word));
    kvr_tally_add(tally, word, sizeof(word) - 1);
    kvr_tally_add(tally, "", 0);

    sum = 0;

    for (i = 0; i < KVR_TALLY_WORDS; i++) {
        n = kvr_tally_read(tally, i, &told, &len);
        sum += n * (len == KVR_TALLY_LEN ? 1 : len == 0 ? 10 : 1000);
    }

    is_u64(sum, 12, "a long word is cut, an empty one is a word");

    free(tally);
}


int
main(void)
{
    bounds();
    served();
    tally();

    return done();
}
