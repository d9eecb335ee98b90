/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the engine holds: a zone of one worker in memory of this process, so
 * that the engine's events are applied by the router's own code.
 */


#ifndef KVR_RELAY_MIRROR_H_INCLUDED
#define KVR_RELAY_MIRROR_H_INCLUDED


#include "kvr_relay_core.h"


typedef struct {
    void              *base;
    size_t             size;
    kvr_router_t       router;
    kvr_normaliser_t  *engine;
    kvr_decoder_t     *decoder;
    const char        *worker;          /* id */
    size_t             worker_len;
    uint32_t           number;
    uint32_t           window;          /* TensorRT-LLM's largest */
    uint64_t           forgotten;       /* before the mirror was emptied */
    bool               hybrid;          /* --hybrid */
    bool               lacking;         /* what was loaded was not all */
} kvr_relay_mirror_t;


/* Makes an empty mirror.  False: why is a sentence. */
bool kvr_relay_mirror_init(kvr_relay_mirror_t *m,
    const kvr_relay_options_t *o, char why[KVR_WHY_LEN]);
void kvr_relay_mirror_free(kvr_relay_mirror_t *m);

/*
 * Applies one decoded event of the engine, and calls emit() with each change
 * that took effect.  Returns KVR_WHY_NONE when all took effect, otherwise why
 * the event was filtered or refused; *refused tells which of the two.
 */
kvr_why_t kvr_relay_mirror_event(kvr_relay_mirror_t *m, const kvr_event_t *ev,
    kvr_normalise_emit_pt emit, void *data, bool *refused);

/* Sets the largest attention window that TensorRT-LLM has named. */
void kvr_relay_mirror_window(kvr_relay_mirror_t *m, uint32_t window);

/* Empties a rank; emit may be NULL. */
void kvr_relay_mirror_clear(kvr_relay_mirror_t *m, uint32_t rank,
    kvr_normalise_emit_pt emit, void *data);

/* Empties all ranks. */
void kvr_relay_mirror_clear_all(kvr_relay_mirror_t *m);

/* Finds the next rank that the engine named.  At first *holder is
   KVR_HOLDER_NONE and *steps 0.  False: there are no more. */
bool kvr_relay_mirror_next(const kvr_relay_mirror_t *m, uint32_t *holder,
    uint32_t *steps, uint32_t *rank);

/*
 * Loads a part of a snapshot, or, after the last of these, a part that
 * kvr_normalise_save() wrote.  False: the part is broken.
 */
bool kvr_relay_mirror_load(kvr_relay_mirror_t *m, const void *bytes,
    size_t len);
bool kvr_relay_mirror_load_state(kvr_relay_mirror_t *m, const void *bytes,
    size_t len);

/* See kvr_router_dump_events(). */
kvr_rc_t kvr_relay_mirror_dump(kvr_relay_mirror_t *m,
    kvr_rc_t (*put)(void *data, const kvr_event_t *ev), void *data);

/* See kvr_normalise_save(). */
kvr_rc_t kvr_relay_mirror_save(kvr_relay_mirror_t *m,
    kvr_rc_t (*put)(void *data, const void *part, size_t len), void *data);

/* The number of index blocks held, over all ranks. */
uint64_t kvr_relay_mirror_blocks(const kvr_relay_mirror_t *m);

/*
 * The number of blocks and copies forgotten for want of memory: lost() since
 * the start, forgotten() since each rank was empty, which
 * kvr_relay_mirror_emptied() records. lacks(): some of the mirror's blocks, or
 * of the snapshot that was loaded, are among them.
 */
uint64_t kvr_relay_mirror_lost(const kvr_relay_mirror_t *m);
uint64_t kvr_relay_mirror_forgotten(const kvr_relay_mirror_t *m);
bool kvr_relay_mirror_lacks(const kvr_relay_mirror_t *m);
void kvr_relay_mirror_emptied(kvr_relay_mirror_t *m);

/* Did the engine name KV cache groups that are not indexed? */
bool kvr_relay_mirror_hybrid(const kvr_relay_mirror_t *m);

/* Does a bounded part of the work that was left for later. */
void kvr_relay_mirror_tick(kvr_relay_t *r);


#endif /* KVR_RELAY_MIRROR_H_INCLUDED */
