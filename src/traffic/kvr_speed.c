/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_speed.h"


#define KVR_SPEED_PAIRS                                                       \
    (KVR_SPEED_SAMPLES * (KVR_SPEED_SAMPLES - 1) / 2)

#define kvr_speed_word(p)  __atomic_load_n(p, __ATOMIC_RELAXED)
#define kvr_speed_put(p, word)  __atomic_store_n(p, word, __ATOMIC_RELAXED)

#define kvr_speed_of(word, generation)  ((word) >> 32 == (generation))


static double kvr_speed_slope(const kvr_speed_t *s, uint32_t generation);
static double kvr_speed_estimate(const kvr_speed_t *s, uint32_t generation);
static void kvr_speed_mean(kvr_speed_t *s, uint32_t generation, double slope,
    uint32_t estimates);
static double kvr_speed_select(double *values, uint32_t n, uint32_t k);


static uint64_t
kvr_speed_pack(uint32_t generation, uint32_t low)
{
    return (uint64_t) generation << 32 | low;
}


void
kvr_speed_add(kvr_speed_t *s, uint32_t generation, uint64_t tokens,
    int64_t us)
{
    uint32_t  i, n;
    uint64_t  was;

    if (s == NULL || tokens <= KVR_SPEED_TOKENS || tokens >= 1u << 24
        || us <= 0 || us > UINT32_MAX)
    {
        return;
    }

    was = kvr_speed_word(&s->count);
    n = (uint32_t) was;

    if (!kvr_speed_of(was, generation)) {

        if ((int32_t) ((uint32_t) (was >> 32) - generation) > 0) {
            return;                 /* the holder is another worker's by now */
        }

        n = 0;

    } else if (n == UINT32_MAX) {
        n = KVR_SPEED_SAMPLES - 1;  /* the same place, after a round */
    }

    if (!__atomic_compare_exchange_n(&s->count, &was,
                                     kvr_speed_pack(generation, n + 1), false,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    {
        return;                     /* another process adds: one is enough */
    }

    if (n == 0) {

        /* one of an earlier worker may have the same 8 bits of a generation */

        for (i = 0; i < KVR_SPEED_SAMPLES; i++) {
            kvr_speed_put(&s->samples[i], 0);
        }
    }

    kvr_speed_put(&s->samples[n % KVR_SPEED_SAMPLES],
                  (uint64_t) (generation & 0xff) << 56 | tokens << 32
                  | (uint64_t) us);

    if (n + 1 < KVR_SPEED_LEAST || (n + 1 - KVR_SPEED_LEAST) % KVR_SPEED_STEP)
    {
        return;
    }

    kvr_speed_mean(s, generation, kvr_speed_estimate(s, generation),
                   (n + 1 - KVR_SPEED_LEAST) / KVR_SPEED_STEP + 1);
}


/* The median slope of the samples; 0: they show none. */

static double
kvr_speed_estimate(const kvr_speed_t *s, uint32_t generation)
{
    double    tokens[KVR_SPEED_SAMPLES], us[KVR_SPEED_SAMPLES];
    double    slopes[KVR_SPEED_PAIRS];
    uint32_t  i, k, n, pairs;
    uint64_t  word;

    n = 0;

    for (i = 0; i < KVR_SPEED_SAMPLES; i++) {
        word = kvr_speed_word(&s->samples[i]);

        if (word && word >> 56 == (generation & 0xff)) {
            tokens[n] = (double) (word >> 32 & 0xffffff);
            us[n] = (double) (uint32_t) word;
            n++;
        }
    }

    pairs = 0;

    for (i = 1; i < n; i++) {
        for (k = 0; k < i; k++) {

            if (tokens[i] - tokens[k] >= KVR_SPEED_TOKENS
                || tokens[k] - tokens[i] >= KVR_SPEED_TOKENS)
            {
                slopes[pairs++] = (us[i] - us[k]) / (tokens[i] - tokens[k]);
            }
        }
    }

    /* fewer pairs may all have the same two or three samples */

    if (n < KVR_SPEED_LEAST || pairs < n * (n - 1) / 8) {
        return 0;
    }

    return kvr_speed_median(slopes, pairs);
}


static void
kvr_speed_mean(kvr_speed_t *s, uint32_t generation, double slope,
    uint32_t estimates)
{
    float     mean;
    double    was;
    uint32_t  bits;

    if (slope <= 0) {
        return;
    }

    was = kvr_speed_slope(s, generation);

    if (was > 0) {

        if (estimates > KVR_SPEED_MEAN) {
            slope = kvr_max(slope, was / KVR_SPEED_CHANGE);
            slope = kvr_min(slope, was * KVR_SPEED_CHANGE);
        }

        slope = was + (slope - was) / kvr_min(estimates, KVR_SPEED_MEAN);
    }

    mean = (float) slope;
    memcpy(&bits, &mean, sizeof(bits));

    kvr_speed_put(&s->slope, kvr_speed_pack(generation, bits));
}


/* 0: not known yet */

static double
kvr_speed_slope(const kvr_speed_t *s, uint32_t generation)
{
    float     slope;
    uint32_t  bits;
    uint64_t  word;

    word = kvr_speed_word(&s->slope);

    if (!kvr_speed_of(word, generation)) {
        return 0;
    }

    bits = (uint32_t) word;
    memcpy(&slope, &bits, sizeof(bits));

    return (double) slope;
}


uint32_t
kvr_speed_samples(const kvr_speed_t *s, uint32_t generation)
{
    uint64_t  word;

    if (s == NULL) {
        return 0;
    }

    word = kvr_speed_word(&s->count);

    return kvr_speed_of(word, generation) ? (uint32_t) word : 0;
}


double
kvr_speed_measured(const kvr_speed_t *s, uint32_t generation)
{
    double  slope;

    slope = s ? kvr_speed_slope(s, generation) : 0;

    return slope > 0 ? 1e6 / slope : 0;
}


double
kvr_speed_read(const kvr_speed_t *s, uint32_t generation, double median)
{
    double  speed;

    speed = kvr_speed_measured(s, generation);

    if (speed > 0 && median > 0) {
        speed = kvr_max(speed, median / KVR_SPEED_RANGE);
        return kvr_min(speed, median * KVR_SPEED_RANGE);
    }

    return speed > 0 ? speed : median;
}


double
kvr_speed_median(double *values, uint32_t n)
{
    double    upper, lower;
    uint32_t  i;

    if (n == 0) {
        return 0;
    }

    upper = kvr_speed_select(values, n, n / 2);

    if (n % 2) {
        return upper;
    }

    lower = values[0];

    for (i = 1; i < n / 2; i++) {
        lower = kvr_max(lower, values[i]);
    }

    return (lower + upper) / 2;
}


/*
 * Finds the number that would be values[k] in ascending order, and puts it
 * there, with no greater number before it (Hoare's quickselect).
 */

static double
kvr_speed_select(double *values, uint32_t n, uint32_t k)
{
    double   pivot, value;
    int64_t  i, j, left, right;

    left = 0;
    right = (int64_t) n - 1;

    while (left < right) {

        pivot = values[(left + right) / 2];
        i = left;
        j = right;

        while (i <= j) {

            while (values[i] < pivot) {
                i++;
            }

            while (pivot < values[j]) {
                j--;
            }

            if (i <= j) {
                value = values[i];
                values[i++] = values[j];
                values[j--] = value;
            }
        }

        if (k <= j) {
            right = j;

        } else if (k >= i) {
            left = i;

        } else {
            break;
        }
    }

    return values[k];
}


double
kvr_speed_left(double queued, double prefills, double speed, double ms)
{
    double  done;

    if (queued <= 0) {
        return 0;
    }

    if (speed <= 0 || ms <= 0 || prefills < 1) {
        return queued;
    }

    done = kvr_min(speed * ms / 1000, queued / prefills);

    return queued - done;
}
