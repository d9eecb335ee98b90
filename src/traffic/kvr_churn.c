/*
 * Copyright (C) the nginx-kv-router authors
 */


#include <math.h>

#include "kvr_churn.h"
#include "../core/kvr_words.h"


static float kvr_churn_decayed(uint64_t word, uint32_t now_s);


void
kvr_churn_add(uint64_t *churn, uint32_t blocks, uint32_t now_s)
{
    float     sum;
    uint32_t  bits;

    sum = kvr_churn_decayed(kvr_load64(churn), now_s) + (float) blocks;

    memcpy(&bits, &sum, sizeof(uint32_t));

    kvr_put64(churn, (uint64_t) now_s << 32 | bits);
}


double
kvr_churn_read(const uint64_t *churn, uint32_t now_s)
{
    return (double) kvr_churn_decayed(kvr_load64(churn), now_s);
}


/* A clock that is behind, as another process's can be, counts as equal. */

static float
kvr_churn_decayed(uint64_t word, uint32_t now_s)
{
    float     sum;
    int32_t   passed;
    uint32_t  bits;

    bits = (uint32_t) word;
    memcpy(&sum, &bits, sizeof(float));

    passed = (int32_t) (now_s - (uint32_t) (word >> 32));

    if (passed <= 0 || sum == 0) {
        return sum;
    }

    return sum * exp2f((float) -passed / KVR_CHURN_HALF);
}
