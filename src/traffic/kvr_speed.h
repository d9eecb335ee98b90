/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Speed: how many prompt tokens a holder prefills in a second, measured by the
 * time from sending a request to the first output of its answer.
 *
 * The time grows with the tokens that must be prefilled before that: the
 * request's own uncached tokens, and those that are queued before it.  The
 * speed is the inverse of the slope of time over tokens, by the estimator of
 * Theil and Sen: the median of the slopes of all pairs of samples (P. K. Sen,
 * "Estimates of the regression coefficient based on Kendall's tau", JASA 63,
 * 1968).  What each request costs besides its tokens cancels out, and up to
 * 29 % of the samples may be anything at all.  A record keeps the last
 * KVR_SPEED_SAMPLES samples.  Other requests in an engine disturb the times
 * much: the speed is the mean of the last estimates, where older ones count
 * less and less, and each can change it by little.
 *
 * A holder has one record, beside the fleet, found by the holder's number; all
 * zero is a valid beginning.  Where there are more holders than records, those
 * without one are not measured: NULL stands for their record.
 *
 * All processes write a record without a lock.  Each word of a record is
 * written by one store and names the generation of its holder, so that no word
 * depends on another one: a process that is killed between two stores leaves
 * a valid record, in which one sample is missing.  Samples that are lost when
 * two processes write at the same time do no harm either.
 */


#ifndef KVR_SPEED_H_INCLUDED
#define KVR_SPEED_H_INCLUDED


#include "../kvr.h"


#define KVR_SPEED_SAMPLES  32       /* of a record; a power of 2 */
#define KVR_SPEED_LEAST    20       /* samples before there is a speed */
#define KVR_SPEED_TOKENS   256      /* a sample has more; two samples that
                                       are closer show no slope */
#define KVR_SPEED_STEP     8        /* samples between two estimates */
#define KVR_SPEED_MEAN     8        /* the last one has this part of the
                                       mean, at least */
#define KVR_SPEED_CHANGE   2        /* times the mean: as much as a later one
                                       counts, at most; the same part of the
                                       mean, at least */
#define KVR_SPEED_RANGE    4        /* times the fleet's median, at most, and
                                       the same part of it, at least */


typedef struct {
    uint64_t    slope;              /* the generation, and a float:
                                       microseconds per token, the mean */
    uint64_t    count;              /* the generation, and the number of
                                       samples */
    uint64_t    samples[KVR_SPEED_SAMPLES];
                                    /* 8 bits of the generation, 24 bits:
                                       tokens, 32 bits: microseconds */
} kvr_speed_t;


/*
 * Adds a sample: the first output came `us` microseconds after the request was
 * sent, and so many tokens had to be prefilled before.  A sample of up to
 * KVR_SPEED_TOKENS tokens, of 2^24 or more, of no time or of more than 4294
 * seconds is not taken.  Each KVR_SPEED_STEP samples the speed is estimated
 * anew, in some 15 microseconds.  If the samples' tokens are too much alike,
 * or the time does not grow with the tokens, the last speed stays.
 */
void kvr_speed_add(kvr_speed_t *s, uint32_t generation, uint64_t tokens,
    int64_t us);

/* The number of samples that a generation of the holder has had. */
uint32_t kvr_speed_samples(const kvr_speed_t *s, uint32_t generation);

/* The speed as it was measured, tokens per second; 0: not known yet. */
double kvr_speed_measured(const kvr_speed_t *s, uint32_t generation);

/*
 * The speed to be used, when so many tokens per second are the fleet's median
 * (0: not known): the measured one, but at least the median /
 * KVR_SPEED_RANGE, and at most the median * KVR_SPEED_RANGE.  The median
 * stands in for a speed which is not known.  0: neither is known.
 */
double kvr_speed_read(const kvr_speed_t *s, uint32_t generation,
    double median);

/* The median of n numbers, whose order is changed; 0 of none. */
double kvr_speed_median(double *values, uint32_t n);

/*
 * The tokens that are still to be prefilled, of so many that are queued by
 * that number of prefills, when the running prefill has run for so many
 * milliseconds at that speed.  An engine prefills in the order of arrival, and
 * the end of a prefill is seen: only the running one can be done, and its size
 * is taken to be the average.  So the result is never below 0, and never below
 * what the speed leaves.  If an engine stands still, the prefills that wait
 * for the running one still count.  A speed of 0: all tokens.
 */
double kvr_speed_left(double queued, double prefills, double speed,
    double ms);


#endif /* KVR_SPEED_H_INCLUDED */
