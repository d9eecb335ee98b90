/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The answer of a lookup, which is the same for both indexes.
 */


#ifndef KVR_DEPTHS_H_INCLUDED
#define KVR_DEPTHS_H_INCLUDED


#include "../kvr.h"


/*
 * Filled by find: depths[t][v] for views v < nviews, t = 0 device, 1 host,
 * 2 disk, cumulative.  When tiered is false, rows 0 and 1 were not written,
 * and are the same as row 2.
 */
typedef struct {
    uint32_t   *depths[3];
    uint32_t    nviews;
    bool        early_exit;             /* set by the caller: may stop when one
                                           view is left, with less than the
                                           view has */
    bool        tiered;
    bool        torn;                   /* cut short beside a writer */
    bool        cut;                    /* ended at the maximum number of
                                           runs, or blocks, looked at */
} kvr_depths_t;


#endif /* KVR_DEPTHS_H_INCLUDED */
