/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Frequencies: a table of fixed size beside the index, in which lookups count
 * how often each block was asked for lately.
 *
 * A block is named by the chain of local hashes that leads to it, mixed with
 * the zone's secret: its tag.  The tag's home is a set of KVR_FREQUENCY_WAYS
 * slots.  Of a set the tags are in one cache line, and the counts of each slot
 * in another:
 *
 *     tag:    40 bits of it │ the last bucket that the block was asked in (24)
 *     count:  16 bits of the tag │ bucket (24) │ lookups in it (24)
 *
 * Time is cut into buckets of a seventh of the window; bucket b is counted in
 * word b mod 8.  What is of another tag or out of the window counts as
 * nothing, so that a slot is taken by one exchange of its tag, and a lookup
 * counted by one exchange of a word.  There is nothing in between that a
 * process could leave half-done when it dies, and no writer of the index is in
 * it.
 *
 * A lookup counts for the window at least, and for 8/7 of it at most: for 8
 * buckets, of which the last is not over.  Counts stay at 2^24 - 1 lookups a
 * bucket.
 *
 * When all slots of a set belong to others, the one that was not asked for
 * the longest is taken; what it had counted is forgotten, and when that was
 * still in the window, z->replaced says so.  Two processes that take a slot
 * for the same block at the same time, in a full set, may take two of them;
 * then the counts of one are not seen, until that slot is taken by others.
 */


#ifndef KVR_FREQUENCY_H_INCLUDED
#define KVR_FREQUENCY_H_INCLUDED


#include "../kvr.h"


#define KVR_FREQUENCY_BUCKETS  8        /* words of a line */
#define KVR_FREQUENCY_WAYS     8
#define KVR_FREQUENCY_DEPTH    4096     /* blocks of a lookup: bounds its work
                                           to some 0.2 ms */
#define KVR_FREQUENCY_MIN      1000     /* ms */
#define KVR_FREQUENCY_MAX      86400000 /* ms; 2^24 buckets are years then, and
                                           weeks with the shortest window */


typedef struct {
    uint64_t    tags[KVR_FREQUENCY_WAYS];       /* 0: free */
    uint64_t    counts[KVR_FREQUENCY_WAYS][KVR_FREQUENCY_BUCKETS];
} __attribute__((aligned(64))) kvr_frequency_set_t;


/* In the zone.  After the format only the counters change. */
typedef struct {
    uint64_t    sets;                   /* offset from the zone's base */
    uint64_t    nsets;                  /* 0: there is no table */
    uint64_t    secret[2];
    uint64_t    bucket_ms;
    uint64_t    replaced;               /* slots taken from blocks in use */
    uint64_t    cut;                    /* lookups of more than
                                           KVR_FREQUENCY_DEPTH blocks */
} kvr_frequency_zone_t;


/*
 * Makes an empty table in size bytes at offset at, a multiple of 64; at least
 * one set has to fit.
 */
void kvr_frequency_format(kvr_frequency_zone_t *z, char *base, uint64_t at,
    uint64_t size, uint32_t window_ms, const uint64_t secret[2]);

/*
 * Counts a lookup that matched locals[0..n).  out[i] becomes the number of
 * earlier lookups in the window that matched the block at depth i + 1.  Only
 * the first KVR_FREQUENCY_DEPTH blocks are counted; returns how many were.
 *
 * For any process, at any time, without a lock.  now_ms must be of the same
 * monotonic clock in all processes, and may be late by less than a window.
 */
uint32_t kvr_frequency_touch(kvr_frequency_zone_t *z, char *base,
    const uint64_t *locals, uint32_t n, uint64_t now_ms, uint32_t *out);


#endif /* KVR_FREQUENCY_H_INCLUDED */
