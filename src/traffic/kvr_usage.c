/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Predicted against actual.
 */


#include "kvr_usage.h"


static void kvr_usage_begin(kvr_usage_t *u, uint32_t generation);
static void kvr_usage_window(const kvr_usage_window_t *from,
    kvr_usage_window_t *to);
static kvr_usage_verdict_t kvr_usage_verdict(const kvr_usage_window_t *w,
    bool holds, bool bound);


#define kvr_usage_load(field)  __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define kvr_usage_set(field, value)                                          \
    __atomic_store_n(&(field), value, __ATOMIC_RELAXED)
#define kvr_usage_inc(field, value)                                          \
    (void) __atomic_fetch_add(&(field), value, __ATOMIC_RELAXED)


const char *
kvr_usage_verdict_name(uint32_t verdict)
{
    static const char  *names[] = {
        "unknown", "good", "never_matched", "not_cached", "less_cached"
    };

    return names[verdict < KVR_USAGE_VERDICTS ? verdict : 0];
}


/* ---- adding ------------------------------------------------------------- */

static void
kvr_usage_begin(kvr_usage_t *u, uint32_t generation)
{
    size_t     i;
    uint32_t   was;
    uint64_t  *word;

    was = kvr_usage_load(u->generation);

    if (was == generation
        || !__atomic_compare_exchange_n(&u->generation, &was, generation,
                                        false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
    {
        return;
    }

    word = (uint64_t *) u;

    for (i = 0; i < offsetof(kvr_usage_t, verdict) / sizeof(uint64_t); i++) {
        kvr_usage_set(word[i], 0);
    }

    kvr_usage_set(u->verdict, KVR_USAGE_UNKNOWN);
}


void
kvr_usage_add(kvr_usage_t *u, uint32_t generation, const kvr_usage_answer_t *a)
{
    uint64_t  predicted, cached;

    kvr_usage_begin(u, generation);

    kvr_usage_inc(u->counters.requests, 1);
    kvr_usage_inc(u->counters.prompt_tokens, a->prompt_tokens);
    kvr_usage_inc(u->counters.predicted_tokens, a->predicted);
    kvr_usage_inc(u->counters.best_tokens, a->best);
    kvr_usage_inc(u->counters.cached_tokens, a->cached);

    if (a->blocks < KVR_USAGE_BLOCKS) {
        return;
    }

    predicted = a->predicted / a->block_size;
    cached = a->cached / a->block_size;

    kvr_usage_inc(u->all.predicted, predicted);
    kvr_usage_inc(u->all.cached, cached);
    kvr_usage_inc(u->all.often_predicted, predicted >= KVR_USAGE_BLOCKS);
    kvr_usage_inc(u->all.often_cached, cached > 0);
    kvr_usage_inc(u->all.often_less, predicted >= KVR_USAGE_BLOCKS
                                     && cached < predicted / 2);
    kvr_usage_inc(u->all.requests, 1);
}


/* ---- judging ------------------------------------------------------------ */

static void
kvr_usage_window(const kvr_usage_window_t *from, kvr_usage_window_t *to)
{
    to->requests = kvr_usage_load(from->requests);
    to->predicted = kvr_usage_load(from->predicted);
    to->cached = kvr_usage_load(from->cached);
    to->often_predicted = kvr_usage_load(from->often_predicted);
    to->often_cached = kvr_usage_load(from->often_cached);
    to->often_less = kvr_usage_load(from->often_less);
}


static kvr_usage_verdict_t
kvr_usage_verdict(const kvr_usage_window_t *w, bool holds, bool bound)
{
    uint64_t  rule;

    rule = w->requests / KVR_USAGE_SHARE;

    if (w->often_cached >= rule
        && w->predicted * KVR_USAGE_NOTHING < w->cached)
    {
        /* without blocks there is nothing that could match */

        return holds ? KVR_USAGE_NEVER_MATCHED : KVR_USAGE_UNKNOWN;
    }

    if (w->often_predicted >= rule
        && w->cached * KVR_USAGE_NOTHING < w->predicted)
    {
        return KVR_USAGE_NOT_CACHED;
    }

    if (!bound && w->often_less * KVR_USAGE_LESS > w->requests) {
        return KVR_USAGE_LESS_CACHED;
    }

    /* prompts without a cached block show nothing */

    return w->often_cached || w->often_predicted ? KVR_USAGE_GOOD
                                                 : KVR_USAGE_UNKNOWN;
}


bool
kvr_usage_judge(kvr_usage_t *u, uint32_t generation, bool holds, bool bound,
    kvr_usage_verdict_t *verdict)
{
    uint64_t            begun;
    kvr_usage_verdict_t       was, is;
    kvr_usage_window_t  now, before, w;

    begun = kvr_usage_load(u->judged.requests);

    if (kvr_usage_load(u->all.requests) - begun < KVR_USAGE_WINDOW
        || kvr_usage_load(u->generation) != generation)
    {
        return false;
    }

    kvr_usage_window(&u->all, &now);

    if (!__atomic_compare_exchange_n(&u->judged.requests, &begun, now.requests,
                                     false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
    {
        return false;
    }

    kvr_usage_window(&u->judged, &before);

    kvr_usage_set(u->judged.predicted, now.predicted);
    kvr_usage_set(u->judged.cached, now.cached);
    kvr_usage_set(u->judged.often_predicted, now.often_predicted);
    kvr_usage_set(u->judged.often_cached, now.often_cached);
    kvr_usage_set(u->judged.often_less, now.often_less);

    w.requests = now.requests - begun;
    w.predicted = now.predicted - before.predicted;
    w.cached = now.cached - before.cached;
    w.often_predicted = now.often_predicted - before.often_predicted;
    w.often_cached = now.often_cached - before.often_cached;
    w.often_less = now.often_less - before.often_less;

    was = kvr_usage_load(u->verdict);
    is = kvr_usage_verdict(&w, holds, bound);

    /* a bad verdict stays until prompts show that it is wrong */

    if (is == KVR_USAGE_UNKNOWN || is == was) {
        return false;
    }

    kvr_usage_set(u->verdict, is);
    *verdict = is;

    return was != KVR_USAGE_UNKNOWN || is != KVR_USAGE_GOOD;
}


void
kvr_usage_read(const kvr_usage_t *u, uint32_t generation,
    kvr_usage_counters_t *counters, kvr_usage_verdict_t *verdict)
{
    if (kvr_usage_load(u->generation) != generation) {
        *counters = (kvr_usage_counters_t) { 0 };
        *verdict = KVR_USAGE_UNKNOWN;
        return;
    }

    counters->requests = kvr_usage_load(u->counters.requests);
    counters->prompt_tokens = kvr_usage_load(u->counters.prompt_tokens);
    counters->predicted_tokens = kvr_usage_load(u->counters.predicted_tokens);
    counters->best_tokens = kvr_usage_load(u->counters.best_tokens);
    counters->cached_tokens = kvr_usage_load(u->counters.cached_tokens);

    *verdict = kvr_usage_load(u->verdict);
}
