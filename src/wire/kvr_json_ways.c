/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_json_ways.h"


const kvr_json_way_t *
kvr_json_way(size_t i)
{
#if KVR_JSON_AVX2

    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi")
        && __builtin_cpu_supports("bmi2"))
    {
        if (i == 0) {
            return &kvr_json_way_avx2;
        }

        i--;
    }

#endif

    return i == 0 ? &kvr_json_way_base : NULL;
}
