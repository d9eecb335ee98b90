/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_pace.h"


double
kvr_pace_count(kvr_pace_t *p, uint64_t now_ms, uint32_t n)
{
    uint32_t  i;
    uint64_t  now, ms, sum;

    now = now_ms / 1000;
    i = now % KVR_PACE_SECONDS;

    if (p->granted == 0) {
        p->first_ms = now_ms;
    }

    if (p->last[i].second != now) {
        p->last[i].second = now;
        p->last[i].granted = 0;
    }

    p->granted += n;
    p->last[i].granted += n;

    for (i = 0, sum = 0; i < KVR_PACE_SECONDS; i++) {
        sum += p->last[i].second + KVR_PACE_SECONDS > now
               ? p->last[i].granted : 0;
    }

    ms = kvr_min((KVR_PACE_SECONDS - 1) * 1000 + now_ms % 1000,
                 now_ms - p->first_ms);

    return 1000 * (double) sum / (double) kvr_max(ms, 1);
}


double
kvr_pace_expected(uint32_t all, uint32_t own, double share, double rate)
{
    return rate > 0 ? kvr_min(all, own / share) / rate : 0;
}


bool
kvr_pace_late(const kvr_pace_t *p, double expected, double limit)
{
    return p->granted >= KVR_PACE_SURE && expected > 1.5 * limit;
}
