/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The last decisions of a zone, for the status page: a ring of records.
 *
 * The ring lies in shared memory, all zero at first, and stays through
 * reloads.  All processes write to it without a lock: a counter gives each
 * record its place.  A record has an odd version while it is written, and an
 * even one that names it afterwards; readers take a record only when its
 * version is even and the same before and behind the copy.  A process that
 * dies while it writes leaves a record that readers pass over until it is
 * written again.  A process that is stopped while it writes, and goes on when
 * the ring has come round, can mix two records: every number and length is
 * checked by its reader, and the record is one of a table for people.
 *
 * At most KVR_DECISIONS_RATE records a second are taken.
 */


#ifndef KVR_DECISIONS_H_INCLUDED
#define KVR_DECISIONS_H_INCLUDED


#include "../kvr.h"


#define KVR_DECISIONS        128
#define KVR_DECISIONS_RATE   100        /* a second; over all processes */
#define KVR_DECISION_OPTIONS 8          /* candidates that are told */
#define KVR_DECISION_TEXT    64         /* bytes of a text, not terminated */


/* A candidate of a decision. */
typedef struct {
    uint32_t    holder;
    uint32_t    generation;             /* of the worker */
    uint32_t    rank;
    uint32_t    overlap;                /* blocks on the device */
    uint32_t    predicted;              /* blocks of overlap that no event
                                           confirmed yet */
    uint32_t    active;                 /* requests */
    uint32_t    queued;                 /* tokens, not yet prefilled */
    uint32_t    confidence;             /* kvr_confidence_t */
} kvr_decision_option_t;


typedef struct {
    uint64_t               time_ms;     /* unix */
    uint64_t               prefix;      /* hash of the prompt's beginning; 0:
                                           the prompt has no blocks */
    uint32_t               prompt_tokens;
    uint32_t               prompt_blocks;
    uint32_t               best;        /* blocks, at the best candidate */
    uint32_t               decide_us;
    uint32_t               first_byte_us;   /* from the request to the first
                                           byte of the answer; 0: none yet */
    uint32_t               why;         /* of the caller's reasons */
    uint32_t               candidates;  /* there were so many */
    uint32_t               noptions;    /* told: the chosen one first, then
                                           those with the most overlap */
    uint8_t                policy_len;
    uint8_t                reason_len;
    uint8_t                model_len;
    char                   policy[KVR_DECISION_TEXT];
    char                   reason[KVR_DECISION_TEXT];
    char                   model[KVR_DECISION_TEXT];
    kvr_decision_option_t  options[KVR_DECISION_OPTIONS];
} kvr_decision_t;


typedef struct {
    uint64_t        version;
    kvr_decision_t  decision;
} kvr_decision_place_t;


typedef struct {
    uint64_t              next;         /* number of the next record */
    uint64_t              second;       /* unix */
    uint64_t              taken;        /* records of that second */
    kvr_decision_place_t  places[KVR_DECISIONS];
} kvr_decisions_t;


/*
 * Is there room for another record in this second (unix)?  Must be called once
 * for each decision, before kvr_decisions_add().
 */
bool kvr_decisions_due(kvr_decisions_t *d, uint64_t second);

/* Adds a record, which is copied.  Returns its number, 1 at first. */
uint64_t kvr_decisions_add(kvr_decisions_t *d, const kvr_decision_t *decision);

/*
 * Opens the record of that number, to be changed in place; readers pass over
 * the record until it is closed, which must be at once.  NULL: another record
 * has its place by now, or the record is open; then it must not be closed.
 */
kvr_decision_t *kvr_decisions_open(kvr_decisions_t *d, uint64_t number);
void kvr_decisions_close(kvr_decisions_t *d, uint64_t number);

/*
 * Copies record i from the newest one on: 0..KVR_DECISIONS - 1.  False: there
 * is none, or it is being written.  Lengths and numbers of options are within
 * their bounds.
 */
bool kvr_decisions_read(const kvr_decisions_t *d, uint32_t i,
    kvr_decision_t *decision);


#endif /* KVR_DECISIONS_H_INCLUDED */
