/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Trust: does an engine cache what the router predicts?
 *
 * Each answer can be evidence, of one of two kinds:
 *
 *     echo      the blocks of the prompt are looked up in the worker's own
 *               events (kvr_echo.h).  All of them are there if the engine
 *               computes the token ids that the router hashes.
 *     usage     the engine says how many tokens of the prompt it had cached,
 *               and the events say how many there were.
 *
 * The evidence is full, or it has parted.  A cell counts it, for one worker
 * and one route.  A route is a number below KVR_TRUST_ROUTES: the form of the
 * requests, and where their ids came from; or the usage.
 *
 *                       good reaches 20
 *     shadow ───────────────────────────────→ proven
 *        │                                    ↑    │
 *        │                    good reaches 20 │    │
 *        └───────────────→ mismatch ──────────┘    │
 *         bad reaches 44      ↑                    │
 *                             └────────────────────┘
 *                                bad reaches 44
 *
 * A full one adds 1 to good and takes 1 from bad.  One that has parted takes
 * 10 from good and adds 4 to bad.  Thus 20 full ones in a row prove, 11 parted
 * ones in a row are a mismatch, and so is a share of parted ones that stays
 * above a fifth.  Both numbers are 0 when a state begins.  A cell in mismatch
 * is in shadow again, and the reason was told: no trust is put in either of
 * the two states.
 *
 * A cell belongs to one incarnation of a worker: to its generation and the
 * epoch of its events.  Of another incarnation it is a new cell.  The counters
 * go on through epochs and begin anew with the generation.
 *
 * WHO MAY DO WHAT.  The records lie in shared memory, one for each worker.
 * Any process reads and adds at any time without a lock.  A cell's state,
 * numbers and incarnation are one word, which changes by compare and swap:
 * each change of a state is told to one process alone.
 *
 * WHAT HAPPENS WHEN A PROCESS DIES, AT ANY INSTRUCTION.  The evidence that the
 * process was adding is lost, or is missing in the counters.  If the process
 * was the first one of a new generation, counters of the last generation may
 * stay.  No word is ever half written, and no trust is left.
 */


#ifndef KVR_TRUST_H_INCLUDED
#define KVR_TRUST_H_INCLUDED


#include "../kvr.h"


#define KVR_TRUST_ROUTES   24
#define KVR_TRUST_GOOD     20       /* proven */
#define KVR_TRUST_LOSS     10       /* of good, for one that has parted */
#define KVR_TRUST_BAD      44       /* a mismatch */
#define KVR_TRUST_COST     4        /* in bad, of one that has parted */


typedef enum {
    KVR_TRUST_SHADOW = 0,
    KVR_TRUST_PROVEN,
    KVR_TRUST_MISMATCH,
    KVR_TRUST_STATES
} kvr_trust_state_t;


typedef struct {
    kvr_trust_state_t  state;
    uint32_t           good;        /* up to KVR_TRUST_GOOD */
    uint32_t           bad;         /* up to KVR_TRUST_BAD */
} kvr_trust_score_t;


typedef struct {
    uint64_t    word;               /* kvr_trust_score_t, and a hash of the
                                       incarnation */
    uint64_t    full;
    uint64_t    parted;
    uint64_t    mismatches;         /* times that the state began */
    uint64_t    last;               /* one that parted: depth, blocks << 32 */
} kvr_trust_cell_t;


/* Sums over the answers that reported cached tokens; tokens. */
typedef struct {
    uint64_t    requests;
    uint64_t    prompt_tokens;      /* as the engine counts them */
    uint64_t    predicted_tokens;   /* the worker had, by its events */
    uint64_t    best_tokens;        /* the best worker had */
    uint64_t    cached_tokens;      /* the engine had */
} kvr_usage_t;


/* A worker's record.  All zero is a valid beginning. */
typedef struct {
    uint64_t          generation;   /* of the counters and sums */
    kvr_usage_t       usage;
    kvr_trust_cell_t  cells[KVR_TRUST_ROUTES];
} kvr_trust_t;


/* An incarnation of a worker, as the fleet has it. */
typedef struct {
    uint32_t    generation;
    uint64_t    epoch;              /* of its events */
} kvr_trust_who_t;


/* A cell as it is at one moment. */
typedef struct {
    kvr_trust_state_t  state;
    uint64_t           full;        /* of this generation */
    uint64_t           parted;
    uint64_t           mismatches;
    uint32_t           depth;       /* where the last one parted, in blocks */
    uint32_t           blocks;      /* blocks of that one; 0: there is none */
} kvr_trust_view_t;


/*
 * The score after one more piece of evidence.  Depends on nothing else and
 * changes nothing else.
 */
kvr_trust_score_t kvr_trust_next(kvr_trust_score_t s, bool full);

/*
 * Adds evidence of the worker's present incarnation: depth of `blocks` blocks
 * were there, which is full or has parted.  True: a mismatch began with it,
 * and this process is the one that is told.
 */
bool kvr_trust_add(kvr_trust_t *t, kvr_trust_who_t who, uint32_t route,
    uint32_t depth, uint32_t blocks, bool full);

/* The cell of this incarnation; in shadow if there was no evidence yet. */
void kvr_trust_read(const kvr_trust_t *t, kvr_trust_who_t who, uint32_t route,
    kvr_trust_view_t *view);

/* Adds the sums of one answer; reads those of a generation, or zero. */
void kvr_usage_add(kvr_trust_t *t, uint32_t generation, const kvr_usage_t *a);
void kvr_usage_read(const kvr_trust_t *t, uint32_t generation,
    kvr_usage_t *usage);

/* "shadow", "proven", "mismatch" */
const char *kvr_trust_name(uint32_t state);


#endif /* KVR_TRUST_H_INCLUDED */
