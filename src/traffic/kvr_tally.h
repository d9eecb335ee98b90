/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A tally: how often each of a few words was said, such as the reasons that
 * policies give.
 *
 * A tally lies in shared memory, all zero at first.  Any process adds to it
 * with atomics, without a lock.  There is room for KVR_TALLY_WORDS words; what
 * comes beyond them is counted together.  A word keeps its place for ever.
 *
 * A process that dies while it takes a place leaves a place without a word:
 * what is counted there is told as said without a word.
 */


#ifndef KVR_TALLY_H_INCLUDED
#define KVR_TALLY_H_INCLUDED


#include "../kvr.h"


#define KVR_TALLY_WORDS      64
#define KVR_TALLY_LEN        88  /* bytes of a word; a longer one is cut */


typedef struct {
    uint64_t    key;                 /* hash of the word; 0: free */
    uint64_t    count;
    uint32_t    len;                 /* set last; 0: not told yet */
    char        word[KVR_TALLY_LEN + 4];
} kvr_tally_place_t;


typedef struct {
    kvr_tally_place_t  places[KVR_TALLY_WORDS];
    uint64_t           others;       /* counts of words without a place */
} kvr_tally_t;


/* Counts a word, which may have any bytes. */
void kvr_tally_add(kvr_tally_t *t, const char *word, size_t len);

/*
 * Reads the count of a place, 0..KVR_TALLY_WORDS - 1; 0: the place is free.
 * *word and *len become its word, in shared memory, where it stays; *len is 0
 * where the word is not told.
 */
uint64_t kvr_tally_read(const kvr_tally_t *t, uint32_t i, const char **word,
    size_t *len);


#endif /* KVR_TALLY_H_INCLUDED */
