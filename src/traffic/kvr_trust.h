/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Trust: does an engine compute the token ids that the router hashes?
 *
 * An echo compares the two: the blocks of a prompt that a worker has just
 * answered are looked up in the worker's own events (kvr_echo.h).  The echo is
 * full if all blocks are there; it has parted if some are not.  A cell counts
 * the echoes of one worker and one route.  A route is a number below
 * KVR_TRUST_ROUTES: the form of the requests, and where their ids came from.
 *
 *                20 of the last 22 are full,
 *                or all 3 are, and another worker vouches
 *     shadow ──────────────────────────────────────────────→ proven
 *        │                                                   ↑    │
 *        │                     20 of the last 22 are full    │    │
 *        └────────────────────→ mismatch ────────────────────┘    │
 *           11 of the last 50      ↑           11 of the last 50  │
 *           have parted            └──────────────────────────────┘
 *
 * If 11 of the last 50 have parted, less than 80 % of them are full.  Only the
 * echoes since the state began count.  A cell in mismatch is in shadow again,
 * and the reason was told: no trust is put in either of the two states.
 *
 * A cell belongs to one incarnation of a worker: to its generation and the
 * epoch of its events.  The first echo of another incarnation puts all cells
 * of the worker into shadow.  The counters go on through epochs and begin anew
 * with the generation.
 *
 * WHO MAY DO WHAT.  The records lie in shared memory, one for each worker,
 * beside those of kvr_usage.h.  Any process reads and adds at any time without
 * a lock.  A state and its last echoes are one word, which changes by compare
 * and swap: each change of a state is told to one process alone.
 *
 * WHAT HAPPENS WHEN A PROCESS DIES, AT ANY INSTRUCTION.  The echo that the
 * process was adding is lost, or is missing in the counters.  If the process
 * was the first one of a new generation, the counters of the last generation
 * may stay.  No word is ever half written, and no trust is left: a cell whose
 * era is not the record's is a new cell.  Processes which add for different
 * incarnations at the same moment can lose trust and can't gain any.
 */


#ifndef KVR_TRUST_H_INCLUDED
#define KVR_TRUST_H_INCLUDED


#include "../kvr.h"


#define KVR_TRUST_ROUTES   24
#define KVR_TRUST_WINDOW   50       /* echoes that are remembered */
#define KVR_TRUST_PARTED   11       /* of them: a mismatch */
#define KVR_TRUST_RECENT   22       /* echoes that can prove */
#define KVR_TRUST_FULL     20       /* of them: proven */
#define KVR_TRUST_VOUCHED  3        /* full ones, if another worker vouches */


typedef enum {
    KVR_TRUST_SHADOW = 0,
    KVR_TRUST_PROVEN,
    KVR_TRUST_MISMATCH,
    KVR_TRUST_STATES
} kvr_trust_state_t;


/* A state and the echoes since it began. */
typedef struct {
    kvr_trust_state_t  state;
    uint32_t           n;           /* up to KVR_TRUST_WINDOW */
    uint64_t           parted;      /* a bit for each, the last one is bit 0:
                                       1 if it has parted */
} kvr_trust_window_t;


typedef struct {
    uint64_t    word;               /* kvr_trust_window_t, and its era */
    uint64_t    full;               /* echoes */
    uint64_t    parted;
    uint64_t    mismatches;         /* times that the state began */
    uint64_t    last;               /* one that parted: depth, blocks << 32 */
} kvr_trust_cell_t;


/* A worker's record.  All zero is a valid beginning. */
typedef struct {
    uint64_t          incarnation;  /* a hash (53 bits), and the era (11) */
    uint32_t          generation;   /* of the counters */
    uint32_t          pad;
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
    uint64_t           full;        /* echoes of this generation */
    uint64_t           parted;
    uint64_t           mismatches;
    uint32_t           depth;       /* where the last one parted, in blocks */
    uint32_t           blocks;      /* blocks of that one; 0: there is none */
} kvr_trust_view_t;


/*
 * The state after one more echo.  vouched: another worker of the same kind is
 * proven for this route.  Depends on nothing else and changes nothing else.
 */
kvr_trust_window_t kvr_trust_next(kvr_trust_window_t w, bool full,
    bool vouched);

/*
 * Adds an echo of the worker's present incarnation: depth of `blocks` blocks,
 * from 1, were found; all of them: the echo is full.  Returns the state that
 * began with this echo; KVR_TRUST_STATES if none did, or if another process
 * was told.  *seen becomes the number of echoes of the state that ended, this
 * one included.
 */
kvr_trust_state_t kvr_trust_add(kvr_trust_t *t, kvr_trust_who_t who,
    uint32_t route, uint32_t depth, uint32_t blocks, bool vouched,
    uint32_t *seen);

/* Would a worker that vouches decide, if the next echo is full? */
bool kvr_trust_asks(const kvr_trust_t *t, kvr_trust_who_t who,
    uint32_t route);

/* The cell of this incarnation; in shadow if there was no echo of it yet. */
void kvr_trust_read(const kvr_trust_t *t, kvr_trust_who_t who, uint32_t route,
    kvr_trust_view_t *view);

/* "shadow", "proven", "mismatch" */
const char *kvr_trust_name(uint32_t state);


#endif /* KVR_TRUST_H_INCLUDED */
