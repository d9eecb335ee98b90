/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A set of ranks, or of places, which are as many.
 */


#ifndef KVR_RELAY_RANKS_H_INCLUDED
#define KVR_RELAY_RANKS_H_INCLUDED


#define KVR_RELAY_RANKS_WORDS  (KVR_RANKS_MAX / 64)


typedef struct {
    uint64_t    words[KVR_RELAY_RANKS_WORDS];
} kvr_relay_ranks_t;


/* rank is below KVR_RANKS_MAX. */
bool kvr_relay_ranks_has(const kvr_relay_ranks_t *set, uint32_t rank);
void kvr_relay_ranks_add(kvr_relay_ranks_t *set, uint32_t rank);

void kvr_relay_ranks_join(kvr_relay_ranks_t *set,
    const kvr_relay_ranks_t *other);

/* The first one from `from` on, and the first that both have, or
   KVR_RANKS_MAX. */
uint32_t kvr_relay_ranks_next(const kvr_relay_ranks_t *set, uint32_t from);
uint32_t kvr_relay_ranks_common(const kvr_relay_ranks_t *a,
    const kvr_relay_ranks_t *b);

bool kvr_relay_ranks_none(const kvr_relay_ranks_t *set);
bool kvr_relay_ranks_several(const kvr_relay_ranks_t *set);


#endif /* KVR_RELAY_RANKS_H_INCLUDED */
