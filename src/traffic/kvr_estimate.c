/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_estimate.h"
#include "../core/kvr_table.h"


#define KVR_ESTIMATE_EPOCH   UINT64_C(0x100)         /* 1, where epochs are */
#define KVR_ESTIMATE_COUNT   UINT64_C(0xff)          /* the misses */


/* The state; that of an earlier generation of the worker counts as none. */

static uint64_t
kvr_estimate_state(uint64_t state, uint32_t generation)
{
    return state >> 32 == generation ? state : (uint64_t) generation << 32;
}


static uint32_t
kvr_estimate_mix(uint64_t state)
{
    return kvr_table_mix(state & ~KVR_ESTIMATE_COUNT,
                         UINT64_C(0x9e3779b97f4a7c15));
}


uint32_t
kvr_estimate_name(const kvr_estimate_t *e, uint32_t generation)
{
    uint32_t  name;

    name = kvr_estimate_mix(kvr_estimate_state(
                                __atomic_load_n(&e->state, __ATOMIC_RELAXED),
                                generation));

    return name == generation ? ~name : name;
}


bool
kvr_estimate_answer(kvr_estimate_t *e, uint32_t generation, uint32_t name,
    uint32_t blocks, uint64_t cached)
{
    bool      restarted;
    uint64_t  old, state;

    if (cached == 0 && blocks < KVR_ESTIMATE_BLOCKS) {
        return false;
    }

    old = __atomic_load_n(&e->state, __ATOMIC_RELAXED);

    do {
        if (name != kvr_estimate_name(e, generation)) {
            return false;               /* estimated before the restart */
        }

        restarted = false;
        state = kvr_estimate_state(old, generation);

        if (cached) {
            state &= ~KVR_ESTIMATE_COUNT;

        } else if ((state & KVR_ESTIMATE_COUNT) + 1 < KVR_ESTIMATE_MISSES) {
            state++;

        } else {
            restarted = true;
            state = (state & ~KVR_ESTIMATE_COUNT) + KVR_ESTIMATE_EPOCH;
            state = (uint64_t) generation << 32 | (uint32_t) state;
        }

        if (state == old) {
            return false;
        }

    } while (!__atomic_compare_exchange_n(&e->state, &old, state, false,
                                          __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));

    return restarted;
}


void
kvr_estimate_void(kvr_estimate_t *e, uint32_t generation)
{
    uint64_t  old, state;

    old = __atomic_load_n(&e->state, __ATOMIC_RELAXED);

    do {
        state = kvr_estimate_state(old, generation) & ~KVR_ESTIMATE_COUNT;
        state += KVR_ESTIMATE_EPOCH;
        state = (uint64_t) generation << 32 | (uint32_t) state;

    } while (!__atomic_compare_exchange_n(&e->state, &old, state, false,
                                          __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
}
