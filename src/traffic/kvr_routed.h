/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The ring of routed prompts: what a process tells of the prompts that it sent
 * to workers without events, for the process that keeps the estimates
 * (kvr_estimated.h).
 *
 *     request ──append──► │ BEGIN │ ANSWER │ END │ BEGIN │ … │ ──read──► zone
 *                          head                           tail
 *
 * The request path takes no lock and waits for nobody: a full ring drops what
 * is appended, and counts it.
 *
 * WHO MAY WRITE.  One process at a time appends: the ring's own.  One process
 * at a time reads: the holder of the lease of shard 0.  When two read for a
 * moment, as one was stopped and another has taken the lease over, each record
 * goes to one of them at least, and each gets whole records only.
 *
 * WHAT HAPPENS WHEN A PROCESS DIES.  A process that appends publishes a record
 * by its last store, and leaves nothing before.  A process that dies between
 * the use of a record and kvr_routed_advance() leaves it to be used once more.
 * The ring of a dead process goes to its successor together with what is
 * unread.
 */


#ifndef KVR_ROUTED_H_INCLUDED
#define KVR_ROUTED_H_INCLUDED


#include "../kvr.h"


#define KVR_ROUTED_MIN       (64u << 10) /* bytes of a ring, at least */
#define KVR_ROUTED_PART      4          /* a record takes 1/4 of the ring at
                                           most */


typedef enum {
    KVR_ROUTED_BEGIN = 0,       /* the first output of an answer: the engine
                                   has computed the prompt */
    KVR_ROUTED_END,             /* the answer is whole; to be appended in any
                                   case once BEGIN was */
    KVR_ROUTED_ANSWER,          /* the engine reported its cached tokens */
    KVR_ROUTED_RESTART,         /* the engine was restarted: nothing is left
                                   of what it had */
    KVR_ROUTED_KINDS
} kvr_routed_kind_t;


/*
 * A record.  BEGIN and END have the blocks of the prompt, ANSWER has the
 * depths that the lookup gave before the prompt was routed, RESTART has the
 * holder alone.  The blocks of a prompt are in one unit: of the zone's
 * block_size tokens, or, with text, of KVR_TEXT_BLOCK bytes.
 */
typedef struct {
    uint32_t    kind;           /* kvr_routed_kind_t */
    uint32_t    holder;
    uint32_t    generation;     /* of the worker; a record of another one is
                                   ignored */
    uint32_t    n;              /* whole blocks of the prompt; of ANSWER
                                   without their hashes */
    uint32_t    text;           /* 1: blocks of text */
    uint32_t    sibling;        /* ANSWER: 1: a prompt with the same first
                                   blocks was in flight at the worker when
                                   this one was routed */
    uint32_t    hot;            /* ANSWER: kvr_match_t, in blocks */
    uint32_t    visible;
    uint32_t    ghost;
    uint32_t    pad;
    uint64_t    bytes;          /* of the canonical text; 0: not text */
    uint64_t    tokens;         /* of the prompt; 0: not known */
    uint64_t    completion;     /* END: tokens of the answer; 0: not known */
    uint64_t    cached;         /* ANSWER: tokens, as the engine says */
    uint64_t    routed_ms;      /* monotonic: when the prompt was routed */
} kvr_routed_record_t;

_Static_assert(sizeof(kvr_routed_record_t) % 8 == 0, "whole words");


/* In shared memory.  Each side writes a cache line of its own. */
typedef struct {
    uint64_t    words;          /* of the ring, behind this header */
    uint64_t    pad[7];
    uint64_t    tail;           /* words ever appended */
    uint64_t    appended;       /* records */
    uint64_t    dropped;        /* the ring was full */
    uint64_t    cut;            /* records with less blocks than the prompt */
    uint64_t    pad2[4];
    uint64_t    head;           /* words ever read */
    uint64_t    damaged;        /* times that the ring was emptied, as no
                                   record was where one had to be */
    uint64_t    pad3[6];
} kvr_routed_t;


/*
 * Makes an empty ring of size bytes, a multiple of 8 and KVR_ROUTED_MIN or
 * more, which no other process may use yet.
 */
void kvr_routed_format(kvr_routed_t *r, size_t size);

/*
 * Appends a record, and of the n hashes of its blocks (BEGIN, END) as many as
 * a record may have.  The hashes are local ones.  False: the ring is full and
 * the record is dropped.
 */
bool kvr_routed_append(kvr_routed_t *r, const kvr_routed_record_t *record,
    const uint64_t *locals);

/*
 * Copies the oldest record, and up to max hashes, to the caller's memory;
 * record->n becomes the number of hashes copied, except for ANSWER.  *next is
 * to be passed to kvr_routed_advance() when the record was used.  False: there
 * is no record.
 */
bool kvr_routed_read(kvr_routed_t *r, kvr_routed_record_t *record,
    uint64_t *locals, uint32_t max, uint64_t *head, uint64_t *next);

/* Frees the place of the record.  False: another process did so already. */
bool kvr_routed_advance(kvr_routed_t *r, uint64_t head, uint64_t next);

/* The number of bytes that wait to be read. */
uint64_t kvr_routed_unread(const kvr_routed_t *r);


#endif /* KVR_ROUTED_H_INCLUDED */
