/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The prefixes that are asked for most often, for the status page.
 *
 * A prefix is the beginning of a prompt, of 4, 16, 64, 256 or 1024 blocks.
 * KVR_HOT_PREFIXES of them are counted by SpaceSaving (Metwally, Agrawal, El
 * Abbadi: Efficient Computation of Frequent and Top-k Elements in Data
 * Streams, ICDT 2005): a prefix that is not in the table takes the place of
 * the one with the smallest count, and its count begins with that count,
 * which is the greatest error that the new count can have.  All counts are
 * halved each ten minutes, so that the table has what is hot now.
 *
 * The table lies in shared memory, all zero at first.  A process that finds
 * the lock taken does not wait: its prompt is not counted, and the table
 * counts that.  A process that dies with the lock leaves counts that are
 * wrong by one prompt at most; the lock is taken from it.
 */


#ifndef KVR_HOT_H_INCLUDED
#define KVR_HOT_H_INCLUDED


#include "../core/kvr_lock.h"


#define KVR_HOT_PREFIXES     256
#define KVR_HOT_DEPTHS       5
#define KVR_HOT_HOLDERS      8
#define KVR_HOT_TEXT         64         /* bytes of a model's name */
#define KVR_HOT_HALF_MS      600000


/* A holder that has the beginning of a prompt. */
typedef struct {
    uint32_t    holder;
    uint32_t    generation;             /* of the worker */
    uint32_t    depth;                  /* blocks */
} kvr_hot_holder_t;


typedef struct {
    uint64_t          key;              /* hash of its blocks; 0: free */
    uint64_t          parent;           /* key of the next shorter prefix */
    uint64_t          count;            /* prompts */
    uint64_t          error;            /* of count, at most */
    uint64_t          saved;            /* blocks that were cached where the
                                           prompts went */
    uint64_t          first_ms;         /* unix: when it came to the table */
    uint64_t          last_ms;
    uint32_t          depth;            /* blocks */
    uint32_t          nholders;         /* with all of the prefix, at the last
                                           prompt */
    kvr_hot_holder_t  holders[KVR_HOT_HOLDERS];
    uint32_t          model_len;
    char              model[KVR_HOT_TEXT];
} kvr_hot_prefix_t;


/*
 * Keys and counts lie side by side, as each prompt looks at all of them; those
 * of the prefixes are set where prefixes are read.
 */
typedef struct {
    kvr_lock_t        lock;
    uint64_t          half_ms;          /* unix: of the last halving */
    uint64_t          missed;           /* prompts: the lock was taken */
    uint64_t          keys[KVR_HOT_PREFIXES];
    uint64_t          counts[KVR_HOT_PREFIXES];
    kvr_hot_prefix_t  prefixes[KVR_HOT_PREFIXES];
} kvr_hot_t;


/* A prompt, as it is counted. */
typedef struct {
    const uint64_t          *hashes;    /* of its blocks */
    uint32_t                 n;
    uint32_t                 overlap;   /* blocks, at the chosen worker */
    const char              *model;     /* any bytes */
    size_t                   model_len;
    const kvr_hot_holder_t  *holders;   /* with the deepest overlaps */
    uint32_t                 nholders;
    uint64_t                 now_ms;    /* unix */
} kvr_hot_prompt_t;


/*
 * Counts the prefixes of a prompt.  Returns the hash of the shortest one; 0:
 * the prompt is shorter than that.
 */
uint64_t kvr_hot_add(kvr_hot_t *hot, kvr_owner_t self,
    const kvr_hot_prompt_t *prompt);

/*
 * Copies at most max prefixes to out, the most frequent one first, and
 * returns their number.  Of prefixes in one another only the longest one that
 * nearly all of their prompts have (4 of 5) is told.  0, too, if the lock is
 * taken for over 10 milliseconds.
 */
uint32_t kvr_hot_read(kvr_hot_t *hot, kvr_owner_t self, kvr_hot_prefix_t *out,
    uint32_t max);


#endif /* KVR_HOT_H_INCLUDED */
