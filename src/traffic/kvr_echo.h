/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Echoes: the blocks of prompts that were answered a moment ago, which are to
 * be looked up among the blocks that the engine says it has stored.
 *
 *     answer begins      1st look      2nd look                    3rd look
 *     ├──────────────────┼─────────────┼───────────────────────────┤
 *     0                  1 s           2 s                         4 s
 *
 * An echo ends at the look that finds all of its blocks.  An echo whose blocks
 * are not all there at the last look has parted, unless that look proves
 * nothing:
 *
 *     * no message of the worker has come since the answer began: its events
 *       may be late;
 *     * fewer blocks are there than before: the engine has evicted some;
 *     * more blocks are there than at the look before: the engine is still
 *       computing the prompt, or its events are late.
 *
 * The table is a process's own and is not for threads.  It has room for
 * KVR_ECHO_MAX echoes and KVR_ECHO_HASHES blocks; an answer that finds no room
 * is not looked at.  Thus many answers are sampled: the number of looks a
 * second has a bound, too.
 */


#ifndef KVR_ECHO_H_INCLUDED
#define KVR_ECHO_H_INCLUDED


#include "../kvr.h"


#define KVR_ECHO_MAX       256      /* echoes */
#define KVR_ECHO_HASHES    32768    /* blocks of all echoes: 256 KB */
#define KVR_ECHO_BLOCKS    2048     /* of one echo: copied in about 1 us */
#define KVR_ECHO_LOOKS     3


typedef struct {
    uint64_t    answered_ms;        /* when the answer began; monotonic */
    uint64_t    epoch;              /* of the worker's events, then */
    uint64_t    clears;             /* of the worker's counters, then */
    uint32_t    worker;             /* number */
    uint32_t    generation;
    uint32_t    route;              /* as in kvr_trust.h */
    uint32_t    blocks;             /* the engine must have stored */
    uint32_t    depth;              /* blocks that the worker had before the
                                       answer, then at the last look */

    /* the table's own */
    uint32_t    at;                 /* of the first hash */
    uint32_t    looks;
    bool        ended;
} kvr_echo_t;


/* The echo's worker, as a look finds it. */
typedef struct {
    uint32_t    depth;              /* blocks of the prompt */
    uint32_t    span;               /* blocks of the index in a block of the
                                       engine; at least 1 */
    uint64_t    heard_ms;           /* the worker's last message */
} kvr_echo_look_t;


typedef enum {
    KVR_ECHO_AGAIN = 0,             /* there will be another look */
    KVR_ECHO_IS_FULL,
    KVR_ECHO_HAS_PARTED,
    KVR_ECHO_VOID                   /* the echo proves nothing */
} kvr_echo_verdict_t;


typedef struct kvr_echoes_s  kvr_echoes_t;


/* An empty table; NULL when out of memory. */
kvr_echoes_t *kvr_echoes_create(void);
void kvr_echoes_destroy(kvr_echoes_t *t);

/*
 * Keeps an echo, with copies of its e->blocks hashes, of which there are 1 to
 * KVR_ECHO_BLOCKS.  e->answered_ms must not be before that of the last echo
 * kept.  KVR_FULL: there is no room.
 */
kvr_rc_t kvr_echoes_keep(kvr_echoes_t *t, const kvr_echo_t *e,
    const uint64_t *hashes);

/*
 * The next echo whose look is due, and its hashes; NULL: none is.  Must be
 * followed by one of the two functions below; the echo is then not valid any
 * more.
 */
kvr_echo_t *kvr_echoes_due(kvr_echoes_t *t, uint64_t now_ms,
    const uint64_t **hashes);

/* Judges by a look.  Any verdict but KVR_ECHO_AGAIN ends the echo. */
kvr_echo_verdict_t kvr_echoes_look(kvr_echoes_t *t, kvr_echo_t *e,
    const kvr_echo_look_t *look);

/*
 * The worker can't be looked at now.  KVR_ECHO_AGAIN, or KVR_ECHO_VOID after
 * the last look or if `gone` is true: the worker's blocks are other ones now.
 */
kvr_echo_verdict_t kvr_echoes_skip(kvr_echoes_t *t, kvr_echo_t *e, bool gone);


#endif /* KVR_ECHO_H_INCLUDED */
